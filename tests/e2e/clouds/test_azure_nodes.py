# SPDX-License-Identifier: Apache-2.0
"""The built program at the stand-in for Azure: check, plan, up as far as nodes go that never answer SSH, kill -9 at
random moments, down with and without the journal, gc from an empty state folder."""
import json
import random
import time
import urllib.parse

import azure_cloud as azure
import azure_lab
import pytest
from killing import forget, settle

SPEC = {"nodes": 2, "limits": {"unattended": "accept", "ttl": "1h"},
        "access": {"ssh_from": ["198.51.100.0/24"], "timeout": "1s"}}


@pytest.fixture(name="cloud")
def cloud_fixture():
    with azure.Azure() as cloud:
        yield cloud


@pytest.fixture(name="run")
def run_fixture(cloud, gpuprov, tmp_path):
    gpuprov.env = {k: v for k, v in gpuprov.env.items() if not k.startswith(azure_lab.OWN)}
    gpuprov.env.update(cloud.environment(GPUPROV_STATE_DIR=str(tmp_path / "state")), NO_PROXY="*", no_proxy="*",
                       PATH=str(tmp_path))
    return gpuprov


def test_check_plan_up_status_down(cloud, run, tmp_path):
    path = azure_lab.spec(tmp_path, "llm", **SPEC)
    run("check", path)
    plan = run.json("plan", path, code=2)  # 2: there are changes
    assert plan["ends"] == "gc-only" and {o["price_usd_per_h"] for o in plan["offers"]} == {0.53}
    assert cloud.requests("^(PUT|PATCH|DELETE)") == []
    up = run("up", path, "--quiet", code=None)
    assert up.code == 6, up  # the nodes have addresses, and nobody answers
    seen = run.json("status", "llm")["stacks"][0]
    made = cloud.vms()
    assert sorted(n["address"] for n in seen["nodes"]) == sorted(
        t["properties"]["ipAddress"] for k, t in cloud.things.items() if k[1].endswith("publicIPAddresses"))
    for vm in made:
        tags = {k[len("gpuprov:"):]: v for k, v in vm["tags"].items()}
        assert tags["owner"] == azure.PRINCIPAL and tags["stack"] == "llm" and tags["expires"] > tags.get("created", "")
        assert vm["properties"]["storageProfile"]["osDisk"]["deleteOption"] == "Delete"
    run("down", path)
    azure_lab.clean(cloud)


def test_a_machine_of_another_region_is_not_gone(cloud, run, tmp_path):
    """The list has a machine of the journal at another region than it was launched in: `plan` launches no second one in
    its place, and `down` destroys nothing of its group before it is gone."""
    path = azure_lab.spec(tmp_path, "llm", **dict(SPEC, nodes=1))
    run("up", path, "--quiet", code=6)
    [vm] = cloud.vms()
    vm.update(location="westeurope", zones=["2"])
    [node] = run.json("status", "llm")["stacks"][0]["nodes"]
    assert node["id"].partition("@")[0].endswith("/" + vm["name"]), node
    assert "create 1" not in run("plan", path, code=2).out and len(cloud.vms()) == 1
    assert "no longer listed" not in run("down", "llm").err
    azure_lab.clean(cloud)


def test_doctor_and_policy(cloud, run, tmp_path):
    """The role has every action that the requests of a whole life need, and no star."""
    doctor = run("doctor", code=None)
    assert "environment (client secret)" in doctor.out and azure.SUBSCRIPTION in doctor.out, doctor
    assert azure.SECRET not in doctor.out + doctor.err
    role = json.loads(run("providers", "azure", "--policy", "--owner", "me").out)
    assert role["AssignableScopes"] == ["/subscriptions/" + azure.SUBSCRIPTION] and role["Name"] == "gpuprov me"
    assert not any("*" in action for action in role["Actions"])
    path = azure_lab.spec(tmp_path, "llm", **SPEC)
    run("up", path, "--quiet", code=6)
    run("down", path)
    needed = {action(r["method"], r["target"]) for r in cloud.requests("/subscriptions/")} - {None}
    assert len(needed) > 10 and needed <= set(role["Actions"]), needed - set(role["Actions"])
    run.env.pop("AZURE_SUBSCRIPTION_ID")
    refused = run("providers", "azure", "--policy", "--owner", "me", code=None)
    assert refused.code != 0 and "AZURE_SUBSCRIPTION_ID" in refused.err


def action(method, target):
    """The action of a request, by Azure's rule: NAMESPACE/TYPE/SUBTYPE/verb."""
    verb = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}[method]
    words = urllib.parse.urlsplit(target).path.strip("/").split("/")[2:]
    if "providers" in words:
        space, *rest = words[len(words) - words[::-1].index("providers"):]
        if space == "Microsoft.Resources":
            return "Microsoft.Resources/tags/" + verb
        return "/".join([space, *rest[::2], verb])
    if not words:
        return "Microsoft.Resources/subscriptions/read"
    kinds = ["resourceGroups" if w.lower() == "resourcegroups" else w for w in words[::2]]
    return "/".join(["Microsoft.Resources/subscriptions", *kinds, verb])


def test_unattended_is_refused(cloud, run, tmp_path):
    """Nothing at Azure ends a node at its deadline, and the spec did not accept that."""
    path = azure_lab.spec(tmp_path, "llm", **{**SPEC, "limits": {"ttl": "1h"}})
    up = run("up", path, code=None)
    assert up.code != 0 and "unattended" in up.err, up
    assert cloud.vms() == []
    run("down", path, code=None)
    azure_lab.clean(cloud)


def test_gc_on_another_machine(cloud, run, tmp_path):
    """Expired nodes end from an empty state folder; a stack that has not expired stays."""
    path = azure_lab.spec(tmp_path, "llm", **SPEC)
    run("up", path, "--quiet", code=6)
    forget(run)
    run("gc", "azure", code=None)
    assert len(cloud.vms()) == 2
    for thing in [*cloud.vms(), *cloud.groups.values()]:
        thing["tags"]["gpuprov:created"] = "2026-01-01T00:00:00Z"
        thing["tags"]["gpuprov:expires"] = "2026-01-01T01:00:00Z"
    gone = run("gc", "azure", code=None)
    assert gone.code == 0, gone
    azure_lab.clean(cloud)


KILLS, PARTS = 20, 4


def killed_at(n):
    """Moments of a launch: after so many requests. Half of them are around the calls that create."""
    rng = random.Random(20261123)
    create = "PUT .*/(virtualMachines|virtualNetworks|networkSecurityGroups|resourcegroups)/"
    return [(create, rng.randint(1, 5)) if i % 2 else ("", rng.randint(1, 40)) for i in range(n)]


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("journal", ["kept", "lost"])
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_while_launching_down_leaves_nothing(cloud, run, tmp_path, part, journal):
    """kill -9 of `up` at twenty random moments, with the journal and without: the next `down` leaves zero."""
    for i, (pattern, count) in enumerate(killed_at(KILLS)[part::PARTS]):
        path = azure_lab.spec(tmp_path, "kill%d" % i, **SPEC)
        before = len(cloud.requests(pattern))
        p = run.popen("up", path, "--quiet")
        while p.poll() is None and len(cloud.requests(pattern)) < before + count:
            time.sleep(0.002)
        p.kill()
        p.communicate()
        settle(cloud)
        if journal == "lost":
            forget(run)
        run("down", path)
        azure_lab.clean(cloud)
