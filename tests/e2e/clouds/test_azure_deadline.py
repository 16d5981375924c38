# SPDX-License-Identifier: Apache-2.0
"""Nodes at Azure that delete themselves at their deadline: the assignment of a role to the identity of each machine,
its faults, its end, and the node's script at the stand-in's metadata service."""
import base64
import contextlib
import json
import os
import pathlib
import sqlite3
import subprocess
import time

import azure_cloud as azure
import azure_lab
import azure_rights
import pytest
from azure_lab import Drive
from killing import forget, kill_at

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "templates/cloud-init/end-azure.sh"
WITH_ROLE = {"offer": {"role": azure_rights.ROLE, "zones": ["eastus-1"]}, "limits": {"ttl": "1h"}}
PUT = "PUT .*/roleAssignments/"
NO_RIGHT = {"error": {"code": "AuthorizationFailed", "message": "The client has no authorization to perform action "
                      "'Microsoft.Authorization/roleAssignments/write'."}}


@pytest.fixture(name="cloud")
def cloud_fixture():
    with azure.Azure() as cloud:
        yield cloud


@pytest.fixture(name="drive")
def drive_fixture(cloud, tmp_path):
    def drive(*args, env=None, **spec):
        how = {"GPUPROV_AZURE_ROLE_WAIT": "1", **(env or {})}
        return Drive(azure_lab.environment(cloud, tmp_path, **how),
                     azure_lab.spec(tmp_path, **{**WITH_ROLE, **spec}), *args)
    return drive


@pytest.fixture(name="run")
def run_fixture(cloud, gpuprov, tmp_path):
    gpuprov.env = {k: v for k, v in gpuprov.env.items() if not k.startswith(azure_lab.OWN)}
    gpuprov.env.update(cloud.environment(GPUPROV_STATE_DIR=str(tmp_path / "state")), NO_PROXY="*", no_proxy="*",
                       PATH=str(tmp_path), GPUPROV_AZURE_ROLE_WAIT="1")
    return gpuprov


def spec(folder, **more):
    return azure_lab.spec(folder, "llm", **{**WITH_ROLE, "access": {"ssh_from": ["198.51.100.0/24"], "timeout": "1s"},
                                            **more})


def end(cloud, drive, **more):
    got = drive("destroy", **more)
    assert got.rc == 0, got.text
    azure_lab.clean(cloud)
    assert cloud.grants == {}


def granted(cloud):
    """Scopes of the assignments; each has the identity of its machine, and the role."""
    vms = {t["id"].lower(): t for t in cloud.vms()}
    for (scope, _), g in cloud.grants.items():
        assert g["properties"]["principalId"] == vms[scope]["identity"]["principalId"]
        assert g["properties"]["roleDefinitionId"].endswith("/" + azure_rights.ROLE)
        assert g["properties"]["principalType"] == "ServicePrincipal"
    return sorted(scope for scope, _ in cloud.grants)


def rights(got):
    return [r for r in got["resources"] if r["kind"] == "grant"]


def test_each_machine_gets_the_role_in_its_own_scope(cloud, drive):
    got = drive("create")
    assert got.rc == 0, got.text
    assert granted(cloud) == sorted(t["id"].lower() for t in cloud.vms()) and len(cloud.vms()) == 2
    assert [i["state"] for i in got["intents"] if i["kind"] == "grant"] == ["done", "done"]
    names = [r["target"] for r in cloud.requests(PUT)]
    assert len(set(names)) == 2 and all("/virtualMachines/" in n for n in names)
    listed = drive("list")
    assert [r["state"] for r in rights(listed)] == ["running", "running"], listed.text
    end(cloud, drive)


def test_without_role_nothing_is_assigned(cloud, drive):
    offer = {"zones": ["eastus-1"]}
    assert drive("create", offer=offer).rc == 0
    assert cloud.requests("Microsoft.Authorization") == [] and not any("identity" in t for t in cloud.vms())
    end(cloud, drive, offer=offer)
    assert cloud.requests("Microsoft.Authorization") == []


def test_a_lost_reply_and_a_new_identity(cloud, drive):
    """A repeated request is the same one. Azure does not know a new identity everywhere at once."""
    cloud.rule(PUT, "drop_after", times=1)
    cloud.rule(PUT, "reply", times=2, status=400, headers={"Retry-After": "0"}, obj={"error": {
        "code": "PrincipalNotFound", "message": "Principal does not exist in the directory."}})
    got = drive("create", env={"GPUPROV_AZURE_ROLE_WAIT": "30"})
    assert got.rc == 0 and len(granted(cloud)) == 2, got.text
    assert len(cloud.requests(PUT)) == 5 and len({(r["target"], r["body"]) for r in cloud.requests(PUT)}) == 2
    end(cloud, drive)


@pytest.mark.parametrize("pattern", [PUT, "GET .*/roleDefinitions/", "GET .*/virtualMachines/[^/?]*[?]"])
def test_a_failure_that_heals_deletes_no_node(cloud, drive, pattern):
    """The service is down for the first requests after the machines were made."""
    def after_the_machines(method, target, headers, body):
        if len(cloud.vms()) == 2 and not cloud.rules:
            cloud.rule(pattern, "reply", times=8, status=503, headers={"Retry-After": "0"},
                       obj={"error": {"code": "ServiceUnavailable", "message": "try again"}})
        return handle(method, target, headers, body)
    handle, cloud.handle = cloud.handle, after_the_machines
    got = drive("create", env={"GPUPROV_AZURE_ROLE_WAIT": "60"})
    assert got.rc == 0 and len(granted(cloud)) == 2, got.text
    assert not [r for r in cloud.requests("DELETE") if "virtualMachines" in r["target"]]
    end(cloud, drive)


READ = "GET .*/roleAssignments/"
UNREAD = {"status": 404, "headers": {"Retry-After": "0"}, "obj": {"error": {
    "code": "RoleAssignmentNotFound", "message": "It is not found."}}}


def lost_then_refused(cloud):
    """The first request acts and its reply is lost; from the second one on it is refused."""
    cloud.rule(PUT, "drop_after", times=1)
    cloud.rule(PUT, "reply", times=None, status=403, obj=NO_RIGHT)


def states(got):
    return [i["state"] for i in got["intents"] if i["kind"] == "grant"]


def test_a_refusal_after_a_lost_reply_is_read_back(cloud, drive):
    lost_then_refused(cloud)
    got = drive("create", nodes=1, env={"GPUPROV_AZURE_ROLE_WAIT": "60"})
    assert got.rc == 0 and len(granted(cloud)) == 1 and states(got) == ["done"], got.text
    assert len(cloud.requests(PUT)) == 2
    end(cloud, drive, nodes=1)


@pytest.mark.parametrize("acted", [True, False])
def test_a_refusal_after_a_lost_reply_proves_nothing(cloud, drive, acted):
    """The assignment may exist, although Azure refuses it now and does not return it yet: its intent stays open."""
    cloud.rule(PUT, "drop_after" if acted else "reply", times=1, status=500, obj={"error": {
        "code": "InternalServerError", "message": "try again"}})
    cloud.rule(PUT, "reply", times=None, status=403, obj=NO_RIGHT)
    cloud.rule(READ, "reply", times=None, **UNREAD)
    got = drive("create", nodes=1, env={"GPUPROV_AZURE_ROLE_WAIT": "60"})
    assert got.rc != 0 and "right that docs/azure.md states" in got["message"] and got["resources"] == [], got.text
    assert states(got) == ["open"] and len(cloud.grants) == acted, got.text
    end(cloud, drive, nodes=1)


def test_a_definite_refusal_ends_the_intent(cloud, drive):
    cloud.rule(PUT, "reply", times=None, status=403, obj=NO_RIGHT)
    got = drive("create", nodes=1)
    assert got.rc != 0 and states(got) == ["failed"] and cloud.requests(READ) == [], got.text
    end(cloud, drive, nodes=1)


OPEN, DONE, GRANT = 0, 1, 13  # in the journal


def intents(run):
    """States of the intents of assignments."""
    with contextlib.closing(sqlite3.connect(run.state / "journal.db")) as db:
        return [row[0] for row in db.execute("SELECT state FROM intents WHERE kind=? ORDER BY id", (GRANT,))]


def test_the_next_run_settles_a_right_that_may_exist(cloud, run, tmp_path):
    """It is listed then: its open intent ends, and nothing is requested again."""
    path = spec(tmp_path, nodes=1, **ACCEPTED)
    lost_then_refused(cloud)
    cloud.rule(READ, "reply", times=None, **UNREAD)
    run.env["GPUPROV_AZURE_ROLE_WAIT"] = "60"
    run("up", path, "--quiet", code=6)
    assert intents(run) == [OPEN] and len(granted(cloud)) == 1
    before = len(cloud.requests(PUT))
    run("up", path, "--quiet", code=6)
    assert intents(run) == [DONE] and len(cloud.requests(PUT)) == before
    assert run.json("status", "llm")["stacks"][0]["ends"] == "guest"
    run("down", path)
    azure_lab.clean(cloud)
    assert cloud.grants == {}


def test_a_machine_that_lives_keeps_its_right(cloud, drive):
    """No list of machines: then no assignment is left over. And none of a living machine is deleted, nor its group: nothing
    would list the assignment any more."""
    assert drive("create").rc == 0
    cloud.rule("GET .*/virtualMachines[?]", "reply", times=None, status=500, obj={"error": {"code": "InternalServerError"}})
    got = drive("list")
    assert got.rc != 0 and [r for r in rights(got) if r["state"] == "stopped"] == [], got.text
    cloud.rules.clear()
    cloud.rule("DELETE .*/virtualMachines/[^/?]*[?]", "reply", times=None, status=409, obj={"error": {
        "code": "ScopeLocked", "message": "a lock"}})
    assert drive("destroy").rc != 0
    assert len(cloud.grants) == 2 and len(cloud.vms()) == 2 and not cloud.requests("DELETE .*/resourcegroups/[^/?]*[?]")
    cloud.rules.clear()
    end(cloud, drive)


@pytest.mark.parametrize("rule, words", [
    ((PUT, {"status": 403, "obj": NO_RIGHT}),
     "right that docs/azure.md states"),
    (("GET .*/roleAssignments/", {"status": 404, "headers": {"Retry-After": "0"}, "obj": {"error": {
        "code": "RoleAssignmentNotFound", "message": "It is not found."}}}), "does not return it"),
])
def test_nodes_without_the_right_are_deleted_or_accepted(cloud, drive, rule, words):
    """A refused assignment, and one that never becomes readable: without `unattended: accept` the nodes are deleted."""
    cloud.rule(rule[0], "reply", times=None, **rule[1])
    got = drive("create")
    assert got.rc != 0 and words in got["message"] and "may not delete itself" in got["message"], got.text
    assert "docs/azure.md" in got["message"] and got["resources"] == []
    assert len(cloud.requests("DELETE .*/virtualMachines/")) == 2
    end(cloud, drive)
    accepted = {"limits": {"ttl": "1h", "unattended": "accept"}}
    kept = drive("create", "2", **accepted)
    assert kept.rc == 0 and len([r for r in kept["resources"] if r["kind"] == "instance"]) == 2, kept.text
    end(cloud, drive, **accepted)


# requests of the first half of the right: the assignments are read, then the group gets its tag
BEGIN = ["GET .*/resourceGroups/[^/]*/providers/Microsoft.Authorization/roleAssignments[?]", "PATCH .*/tags/default"]
ACCEPTED = {"limits": {"ttl": "1h", "unattended": "accept"}}


def begin_fails(cloud, at):
    cloud.rule(at, "reply", times=1, status=403, obj={"error": {"code": "AuthorizationFailed",
                                                               "message": "The client has no authorization."}})


@pytest.mark.parametrize("at", BEGIN)
def test_no_right_is_given_below_a_group_without_its_tag(cloud, drive, at):
    """Later lists look for assignments only below a group with the tag: one made without it would stay for ever."""
    begin_fails(cloud, at)
    got = drive("create", **ACCEPTED)
    assert got.rc == 0 and len(cloud.vms()) == 2, got.text
    assert cloud.grants == {} and cloud.requests(PUT) == []
    end(cloud, drive, **ACCEPTED)


def test_a_launch_that_is_repeated_tags_the_group_before_the_right(cloud, drive):
    """The run that could not tag the group is cut; the next one settles its launch, and gives the right."""
    begin_fails(cloud, BEGIN[1])
    cloud.rule("PUT .*/virtualMachines/[^/]*$", "drop_before", times=None)
    got = drive("create", nodes=1, **ACCEPTED)
    assert got.rc != 0 and cloud.vms() == [] and "open" in [i["state"] for i in got["intents"]], got.text
    cloud.rules.clear()
    assert drive("create", nodes=1, **ACCEPTED).rc == 0 and len(granted(cloud)) == 1
    assert all(azure_rights.TAG in g["tags"] for g in cloud.groups.values())
    end(cloud, drive, nodes=1, **ACCEPTED)


def test_a_right_that_could_not_be_given_is_completed(cloud, run, tmp_path):
    """`up` accepts its nodes without the right and warns; the next one may do everything, and `down` leaves nothing."""
    path = spec(tmp_path, nodes=1, **ACCEPTED)
    begin_fails(cloud, BEGIN[0])
    assert "only 'gpuprov gc' ends nodes at azure" in run("up", path, code=6).err and cloud.grants == {}
    assert run.json("status", "llm")["stacks"][0]["ends"] == "gc-only"
    run("up", path, "--quiet", code=6)
    assert len(granted(cloud)) == 1 and run.json("status", "llm")["stacks"][0]["ends"] == "guest"
    forget(run)
    run("down", path)
    azure_lab.clean(cloud)
    assert cloud.grants == {}


def test_nodes_that_cannot_be_deleted_either_are_named(cloud, drive):
    """Azure refuses the assignment, then the deletion: the error states that nodes are billed, and the next step."""
    cloud.rule(PUT, "reply", times=None, status=403, obj=NO_RIGHT)
    cloud.rule("DELETE .*/virtualMachines/", "reply", times=None, status=403,
               obj={"error": {"code": "AuthorizationFailed", "message": "No deletion."}})
    got = drive("create")
    assert got.rc == 8 and "run 'gpuprov down contract'" in got["message"] and "No deletion" in got["message"], got.text
    assert len([r for r in got["resources"] if r["kind"] == "instance"]) == len(cloud.vms()) == 2
    cloud.rules.clear()
    end(cloud, drive)


def test_a_role_that_allows_more_is_refused(cloud, drive):
    """Whether or not the spec accepts nodes that do not end themselves: nothing is launched."""
    for role, words in [(azure_rights.WIDE, "allows more"), (azure.TENANT, "RoleDefinitionDoesNotExist")]:
        offer = {"role": role, "zones": ["eastus-1"]}
        got = drive("create", offer=offer)
        assert got.rc != 0 and words in got["message"], got.text
        assert cloud.vms() == [] and cloud.grants == {}
        end(cloud, drive, offer=offer)


@pytest.mark.parametrize("at", [PUT, "PUT .*/virtualMachines/[^/]*$", "PUT .*/virtualNetworks/"])
def test_killed_while_launching(cloud, run, tmp_path, at):
    """kill -9 when the network, the first machine or assignment is requested: the next `up` completes it, by its name."""
    path = spec(tmp_path)
    cloud.rule(at, "slow", seconds=30, times=1)
    kill_at(run.popen("up", path, "--quiet"), cloud, lambda: cloud.requests(at))
    cloud.rules.clear()
    run("up", path, "--quiet", code=6)
    assert len(granted(cloud)) == 2 and len(cloud.vms()) == 2
    assert len({r["target"] for r in cloud.requests(PUT)}) == 2
    assert script_given(cloud)
    assert run.json("status", "llm")["stacks"][0]["ends"] == "guest"
    run("down", path)
    azure_lab.clean(cloud)
    assert cloud.grants == {}


def test_a_completed_right_is_reported(cloud, drive):
    """What prepare completes it marks in the resources that it got, so that the bootstrap proves it."""
    begin_fails(cloud, BEGIN[0])
    assert drive("create", **ACCEPTED).rc == 0 and cloud.grants == {}
    cloud.rule(PUT, "reply", times=1, status=403, obj=NO_RIGHT)  # of one node
    got = drive("complete", **ACCEPTED)
    assert got.rc == 0 and len(granted(cloud)) == 1, got.text
    assert sorted(r["ends_itself"] for r in got["resources"] if r["kind"] == "instance") == [False, True]
    got = drive("complete", **ACCEPTED)
    assert got.rc == 0 and len(granted(cloud)) == 2, got.text
    assert [r["ends_itself"] for r in got["resources"] if r["kind"] == "instance"] == [True, True]
    end(cloud, drive, **ACCEPTED)


def script_given(cloud):
    """Whether the user-data of each machine has the script with which it deletes itself."""
    text = base64.b64encode(SCRIPT.read_bytes()).decode()
    given = {text in base64.b64decode(json.loads(r["body"])["properties"]["osProfile"]["customData"]).decode()
             for r in cloud.requests("PUT .*/virtualMachines/gpuprov-[^/]*$")}
    assert len(given) == 1
    return given.pop()


def test_plan_status_and_a_leftover(cloud, run, tmp_path):
    """`plan` and `status` name who ends the nodes. A node that ended itself leaves its assignment, which gc removes."""
    path = spec(tmp_path)
    assert run.json("plan", path, code=2)["ends"] == "guest"
    run("up", path, "--quiet", code=6)
    assert run.json("status", "llm")["stacks"][0]["ends"] == "guest"
    for vm in cloud.vms():
        cloud.drop_vm("gpuprov-%s-llm" % azure.PRINCIPAL, vm["name"].lower())
    assert len(cloud.grants) == 2
    for g in cloud.groups.values():
        g["tags"]["gpuprov:created"] = "2026-01-01T00:00:00Z"
        g["tags"]["gpuprov:expires"] = "2026-01-01T01:00:00Z"
    forget(run)
    gone = run("gc", "azure", code=None)
    assert gone.code == 0 and "grant" in gone.out + gone.err, gone
    azure_lab.clean(cloud)
    assert cloud.grants == {}


def test_accepted_nodes_without_role_as_before(cloud, run, tmp_path):
    path = spec(tmp_path, offer={"zones": ["eastus-1"]}, limits={"ttl": "1h", "unattended": "accept"})
    assert run.json("plan", path, code=2)["ends"] == "gc-only"
    run("up", path, "--quiet", code=6)
    assert not script_given(cloud) and cloud.requests("Microsoft.Authorization") == []
    run("down", path)
    azure_lab.clean(cloud)


def test_another_assignment_is_left_alone(cloud, run, tmp_path):
    """One that a person made, in the scope of the same machine, is not the node's right and is not deleted."""
    path = spec(tmp_path, nodes=1)
    run("up", path, "--quiet", code=6)
    [(scope, name)] = cloud.grants
    own = cloud.grants.pop((scope, name))
    cloud.grants[scope, azure.TENANT] = {**own, "name": azure.TENANT}
    assert run.json("status", "llm")["stacks"][0]["ends"] == "gc-only"
    forget(run)
    run("down", path)
    azure_lab.clean(cloud)
    assert list(cloud.grants) == [(scope, azure.TENANT)]


def test_policy_of_a_node(cloud, run):
    role = json.loads(run("providers", "azure", "--policy", "--node", "--owner", "me").out)
    assert sorted(role["Actions"]) == sorted(azure_rights.NODE) and role["Name"] == "gpuprov node me"
    assert "--node" in run("providers", "azure", "--node", code=1).err
    assert "google" in run("providers", "google", "--policy", "--node", "--owner", "me", code=1).err
    assert "'role'" in run("doctor", code=None).out
    assert cloud.vms() == []


# --- the node's script ---


@pytest.fixture(name="node")
def node_fixture(cloud, drive):
    """The script of the first node, at the metadata service of that machine."""
    assert drive("create").rc == 0
    vm = cloud.vms()[0]
    cloud.machine = (vm["id"].split("/")[4], vm["name"].lower())

    def script(verb):
        env = {"PATH": os.environ["PATH"], "METADATA": cloud.url, "MANAGER": cloud.url}
        return subprocess.run(["sh", SCRIPT, verb], env=env, capture_output=True, text=True, timeout=60, check=False)
    yield script
    cloud.machine = None
    end(cloud, drive)


def test_a_node_deletes_itself(cloud, node):
    """It reads and deletes its own machine, with its disk and address, and no other one."""
    own = cloud.machine[1]
    assert node("check").returncode == 0
    done = node("delete")
    assert done.returncode == 0 and done.stdout + done.stderr == "", done
    [deleted] = cloud.requests("DELETE .*/virtualMachines/")
    assert deleted["target"].split("?")[0].lower().endswith("/" + own) and "forceDeletion=true" in deleted["target"]
    until = time.monotonic() + 30
    while any(v["name"].lower() == own for v in cloud.vms()) and time.monotonic() < until:
        time.sleep(0.02)
    assert len(cloud.vms()) == 1 and not any(t.get("_vm") == own for t in cloud.things.values())
    assert node("delete").returncode != 0  # the metadata service of a machine that is gone


def test_a_node_without_its_right(cloud, node):
    cloud.grants.clear()
    for verb in ("check", "delete"):
        refused = node(verb)
        assert refused.returncode == 1 and "403" in refused.stderr, refused
        assert not any(token in refused.stdout + refused.stderr for token in cloud.identities)
    assert len(cloud.vms()) == 2 and node("other").returncode == 1


@pytest.mark.parametrize("pattern, text", [("resourceId", b"/subscriptions/x/../y"), ("resourceId", b""),
                                           ("azEnvironment", b"Elsewhere"),
                                           ("oauth2/token", b'{"access_token": "a b\\nHeader: x"}')])
def test_a_malformed_metadata_service(cloud, node, pattern, text):
    cloud.rule("GET .*" + pattern, "reply", times=1, status=200, headers={"Content-Type": "text/plain"}, obj=text)
    done = node("delete")
    assert done.returncode == 1 and "cannot delete itself" in done.stderr, done
    assert cloud.requests("DELETE .*/virtualMachines/") == []


def this_machine():
    uuid = pathlib.Path("/sys/class/dmi/id/product_uuid")
    try:
        return uuid.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def config(folder, machine):
    conf = folder / "conf"
    conf.write_text("EXPIRES=1\nTTL=0\nGRACE=0\nTICK=1\nHOLD=1\nRETRY=1\nMACHINE=%s\nEND=%s\nSTATE=%s\nRUN=%s\n" %
                    (machine, SCRIPT, folder / "used", folder / "run"))
    return conf


def test_a_machine_from_the_image_of_a_node_is_not_deleted(cloud, node, tmp_path):
    """Its deadline is that of the node, and its identity may have more rights than the node's."""
    assert node("check").returncode == 0
    done = subprocess.run(["sh", ROOT / "templates/cloud-init/deadline.sh", config(tmp_path, "another")], text=True,
                          capture_output=True, timeout=60, check=False,
                          env={"PATH": os.environ["PATH"], "METADATA": cloud.url, "MANAGER": cloud.url})
    assert done.returncode == 0 and "another machine's: nothing is deleted" in done.stdout, done
    assert cloud.requests("DELETE .*/virtualMachines/") == [] and len(cloud.vms()) == 2


def test_the_unit_repeats_until_azure_accepts(cloud, node, tmp_path):
    """deadline.sh with the script: refused twice, then accepted, and it goes on: a node cannot see its own end."""
    cloud.rule("DELETE .*/virtualMachines/", "reply", times=2, status=429, obj={"error": {"code": "TooManyRequests",
                                                                                        "message": "Slow down."}})
    conf = config(tmp_path, this_machine())
    assert node("check").returncode == 0
    p = subprocess.Popen(["sh", ROOT / "templates/cloud-init/deadline.sh", conf], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, start_new_session=True,
                         env={"PATH": os.environ["PATH"], "METADATA": cloud.url, "MANAGER": cloud.url})
    try:
        until = time.monotonic() + 60
        while len(cloud.vms()) == 2 and time.monotonic() < until:
            time.sleep(0.02)
        assert len(cloud.requests("DELETE .*/virtualMachines/")) >= 3 and p.poll() is None
    finally:
        os.killpg(p.pid, 9)
        out = p.communicate()[0]
    assert "deletes itself now" in out and "HTTP 429" in out and len(cloud.vms()) == 1, out


@pytest.mark.parametrize("uid", ["0123456789abcdef", "junk", None])
@pytest.mark.matrix(keep=1)
def test_a_node_whose_uid_tag_was_edited_stays_a_node(run, cloud, tmp_path, uid):
    """By the journal: it is not launched a second time, keeps its right to delete itself, and `down` ends it."""
    path = spec(tmp_path, nodes=2)
    run("up", path, code=6)
    vms = cloud.vms()
    before, grants = sorted(v["id"] for v in vms), dict(cloud.grants)
    if uid is None:
        del vms[0]["tags"]["gpuprov:uid"]
    else:
        vms[0]["tags"]["gpuprov:uid"] = uid
    shown = run.json("status", "llm")["stacks"][0]
    assert [n["state"] for n in shown["nodes"]] == ["running"] * 2, shown
    run("up", path, code=6)
    assert sorted(v["id"] for v in cloud.vms()) == before
    assert set(grants) <= set(cloud.grants)
    run("down", path)
    azure_lab.clean(cloud)
