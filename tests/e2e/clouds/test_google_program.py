# SPDX-License-Identifier: Apache-2.0
"""The built program at a stand-in Compute Engine whose nodes never answer: check, plan, up, status, down, gc from an
empty state folder, and kill -9 of `up`. What there is, is asked of the cloud."""
import contextlib
import copy
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import google_cloud
import pytest
from killing import kill_at
from small_disk import fill, small_disk
from test_google import PROGRAM, environment, write_spec
from test_google import one_cloud  # noqa: F401

OWNER = google_cloud.EMAIL


class Machine:
    """gpuprov with a state folder of its own."""

    def __init__(self, cloud, folder, state="state"):
        self.env = dict(environment(cloud, folder), GPUPROV_STATE_DIR=str(folder / state))

    def start(self, *words):
        return subprocess.Popen([PROGRAM, *map(str, words)], env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def __call__(self, *words, code=0):
        p = self.start(*words)
        try:
            out, _ = p.communicate(timeout=120)
        finally:
            p.kill()
        assert p.returncode == code, (words, p.returncode, out)
        return out


def spec_of(folder, **more):
    return write_spec(folder, name="train", access={"ssh_from": ["203.0.113.0/24"], "timeout": "1s"}, **more)


def test_up_and_down(cloud, tmp_path):
    spec, gpuprov = spec_of(tmp_path, offer={"market": "spot"}), Machine(cloud, tmp_path)
    assert "ok: stack 'train', 2 nodes" in gpuprov("check", spec)
    plan = gpuprov("plan", spec, code=2)
    assert "create 2 x google us-central1-a g2-standard-4 spot" in plan
    assert "(enforced by the provider)" in plan and "create the claim" in plan and cloud.left() == []
    up = gpuprov("up", spec, code=6)
    assert "could not log in at 127.77.0." in up and "its last lines" in up, up
    assert len(cloud.instances) == 2 and len(cloud.firewalls) == 2
    status = json.loads(gpuprov("status", "train", "--json"))
    assert "us-central1-a" in json.dumps(status) and status["stacks"][0]["name"] == "train", status
    assert "nothing is left" in gpuprov("down", spec)
    assert cloud.left() == []


def test_another_network_of_the_same_stack(cloud, tmp_path):
    """A changed access.ssh_from is written to the rule of running nodes; a changed ttl is refused."""
    spec, gpuprov = spec_of(tmp_path, nodes=1), Machine(cloud, tmp_path)
    gpuprov("up", spec, code=6)
    write_spec(tmp_path, name="train", nodes=1, access={"ssh_from": ["198.51.100.0/24"], "timeout": "1s"})
    gpuprov("up", spec, code=6)
    assert [f["item"]["sourceRanges"] for f in cloud.firewalls.values()] == [["198.51.100.0/24"]]
    write_spec(tmp_path, name="train", nodes=1, access={"ssh_from": ["198.51.100.0/24"], "timeout": "1s"},
               limits={"ttl": "9h"})
    assert "ttl" in gpuprov("up", spec, code=1)
    assert len(cloud.instances) == 1
    gpuprov("down", "train")
    assert cloud.left() == []


def test_nodes_without_the_rule_between_them_get_it(cloud, tmp_path):
    """A launch was killed before the rule was there, or somebody deleted it."""
    spec, gpuprov = spec_of(tmp_path), Machine(cloud, tmp_path)
    gpuprov("up", spec, code=6)
    members = [name for name in cloud.firewalls if name.endswith("-members")]
    assert len(members) == 1 and cloud.firewalls.pop(members[0])
    gpuprov("up", spec, code=6)
    assert members[0] in cloud.firewalls and len(cloud.instances) == 2
    gpuprov("down", "train")
    assert cloud.left() == []


def test_rules_of_running_nodes_that_somebody_opened(cloud, tmp_path):
    """Each `up` writes them again, and names what was removed."""
    spec, gpuprov = spec_of(tmp_path), Machine(cloud, tmp_path)
    gpuprov("up", spec, code=6)
    before = copy.deepcopy(cloud.firewalls)
    for name, rule in cloud.firewalls.items():
        rule["item"].update({"sourceRanges": ["0.0.0.0/0"]} if name.endswith("-members") else
                            {"sourceTags": ["theirs"], "priority": 1})
    said = gpuprov("up", spec, code=6)
    assert cloud.firewalls == before
    assert "-members allowed everything from 0.0.0.0/0, which is no node of the stack: removed" in said, said
    assert "allowed SSH from theirs, which access.ssh_from does not list: removed" in said, said
    assert "was changed by somebody (priority): it is as gpuprov makes it again" in said, said
    assert "firewall rule" not in gpuprov("up", spec, code=6)
    gpuprov("down", "train")
    assert cloud.left() == []


def test_nodes_of_a_lost_launch_whose_rule_is_refused(cloud, tmp_path):
    """The repeated request finds them, and they are deleted, as after a launch whose reply came: the next `up` launches."""
    spec, gpuprov = spec_of(tmp_path), Machine(cloud, tmp_path)
    cloud.rule("POST .*bulkInsert", "drop_after", times=1)
    cloud.rule("POST .*global/firewalls.*-members", "reply", times=None, status=403, obj={"error": {
        "code": 403, "message": "Required 'compute.firewalls.create' permission", "errors": [{"reason": "forbidden"}]}})
    said = gpuprov("up", spec, code=5)
    assert not cloud.instances and "firewalls.insert: forbidden" in said, said
    cloud.rules.clear()
    gpuprov("up", spec, code=6)
    assert len(cloud.instances) == 2 and any(n.endswith("-members") for n in cloud.firewalls)
    gpuprov("down", "train")
    assert cloud.left() == []


@pytest.mark.root
def test_a_disk_that_is_full_since_the_launch(cloud, tmp_path):
    """The operation cannot be noted: the launch goes on, its nodes are named as billed, and with room they are used."""
    with small_disk(tmp_path / "small", "4m,mode=0700") as small:
        spec, gpuprov = spec_of(tmp_path), Machine(cloud, tmp_path, "small")
        cloud.rule("POST .*bulkInsert", "edit", change=lambda reply: fill(small) or reply)
        up = gpuprov("up", spec, code=8)
        nodes = {name for _, name in cloud.instances}
        assert len(nodes) == 2 and all(name in up for name in nodes) and "disk is full" in up, up
        assert cloud.requests("DELETE") == []
        (small / "fill").unlink()
        gpuprov("up", spec, code=6)
        assert {name for _, name in cloud.instances} == nodes
        assert "nothing is left" in gpuprov("down", "train")
    assert cloud.left() == []


def status_of(gpuprov):
    """The stack as `status --json` shows it, after the events of stderr."""
    return json.loads(gpuprov("status", "train", "--json").splitlines()[-1])["stacks"][0]


def test_a_machine_with_a_nodes_name_in_another_zone(cloud, tmp_path):
    """Names are unique in a zone only. The node is the machine with its number; a twin with its name and labels is another
    machine, whatever its zone and state, and wherever it stands in a list."""
    cloud.capacity["us-central1-a"] = 0
    spec, gpuprov = spec_of(tmp_path, nodes=1), Machine(cloud, tmp_path)
    gpuprov("up", spec, code=6)
    [((zone, name), vm)] = cloud.instances.items()
    assert zone != "us-central1-a"
    twin = copy.deepcopy(vm)
    twin["item"].update(id=str(int(vm["item"]["id"]) + 1), zone=vm["item"]["zone"].replace(zone, "us-central1-a"))
    twin["item"]["networkInterfaces"][0]["accessConfigs"][0]["natIP"] = "127.77.9.9"
    with cloud.lock:
        cloud.instances = {("us-central1-a", name): twin, (zone, name): vm}
    for state in ("TERMINATED", "RUNNING"):
        twin["item"]["status"] = state
        [node] = [n for n in status_of(gpuprov)["nodes"] if n["slot"] == 0]
        assert node["id"] == f"{name}/{vm['item']['id']}" and "127.77.9.9" not in str(node), node
    del cloud.log[:]
    cloud.rule("DELETE .*zones/us-central1-a/", "reply", times=None, status=400,
               obj=google_cloud.error(400, "resourceInUse", "The instance is protected from deletion").obj)
    gpuprov("down", "train", code=8)
    assert list(cloud.instances) == [("us-central1-a", name)]


def test_a_machine_with_the_name_of_a_lost_launchs_node(cloud, tmp_path):
    """The reply was lost, the cloud took the spot instance back, and a colleague made one of that name with its labels and
    metadata: Google made it after the launch's operation had ended. Within the time in which the request can be repeated
    the launch stays open; later it counts as one without machines."""
    spec, gpuprov = spec_of(tmp_path, nodes=1, offer={"market": "spot"}), Machine(cloud, tmp_path)
    cloud.rule("POST .*bulkInsert", "drop_after", times=None)
    gpuprov("up", spec, code=8)
    [((zone, name), vm)] = cloud.instances.items()
    theirs = copy.deepcopy(vm)
    theirs["item"].update(id=str(int(vm["item"]["id"]) + 1), status="RUNNING",
                          creationTimestamp=time.strftime("%Y-%m-%dT%H:%M:%S.000+00:00", time.gmtime(time.time() + 60)))
    theirs["item"]["networkInterfaces"][0]["accessConfigs"][0]["natIP"] = "127.77.9.9"
    with cloud.lock:
        cloud.instances = {(zone, name): theirs}
        cloud.rules.clear()
    said = gpuprov("up", spec, code=8)
    assert "its nodes are not listed yet" in said and "127.77.9.9" not in said, said
    with contextlib.closing(sqlite3.connect(tmp_path / "state/journal.db")) as db, db:
        assert db.execute("SELECT count(*) FROM resources WHERE kind=0 AND ours<>0").fetchone() == (0,)
        db.execute("UPDATE intents SET created_s=created_s-7200")
    said = gpuprov("up", spec, code=6)
    own = {n for _, n in cloud.instances} - {name}
    assert len(own) == 1 and "127.77.9.9" not in said, said
    assert status_of(gpuprov)["nodes"][0]["id"].split("/")[0] in own
    gpuprov("down", "train")
    assert not cloud.instances


@pytest.mark.parametrize("edited", [False, True])
def test_a_journal_of_an_older_build(cloud, tmp_path, edited):
    """Its ids are names. The machines are found by them, also with labels that somebody changed, each once."""
    spec, gpuprov = spec_of(tmp_path), Machine(cloud, tmp_path)
    gpuprov("up", spec, code=6)
    with contextlib.closing(sqlite3.connect(tmp_path / "state/journal.db")) as db, db:
        db.execute("UPDATE resources SET id=substr(id, 1, instr(id, '/') - 1) WHERE instr(id, '/') > 0")
    names = {name for _, name in cloud.instances}
    for vm in cloud.instances.values():
        if edited:
            vm["item"]["labels"] = {"gpuprov-owner": "somebody"}
    stack = status_of(gpuprov)
    assert {n["id"] for n in stack["nodes"]} == names and len(stack["nodes"]) == 2, stack
    assert "nothing is left" in gpuprov("down", "train")
    assert not cloud.instances


def expire(cloud):
    """The stack's time is over, and Google did not act: only gc is left."""
    past = "2026-01-01T00:00:00Z"
    coded = past.lower().replace("t", "_t").replace("z", "_z").replace(":", "_0")
    for vm in cloud.instances.values():
        vm["item"]["labels"]["gpuprov-expires"] = coded
        vm["item"]["scheduling"]["terminationTime"] = past
    for disk in cloud.disks.values():
        disk["labels"]["gpuprov-expires"] = coded
    for rule in cloud.firewalls.values():
        about = json.loads(rule["item"]["description"])
        about["gpuprov:expires"] = past
        about["gpuprov:created"] = "2025-12-31T00:00:00Z"
        rule["item"]["description"] = json.dumps(about)


def test_gc_from_an_empty_state_folder(cloud, tmp_path):
    spec = spec_of(tmp_path)
    Machine(cloud, tmp_path)("up", spec, code=6)
    other = Machine(cloud, tmp_path, "other")
    seen = other("gc", "--in", "google")
    assert "2 nodes" in seen and "google us-central1, europe-west4" in seen
    assert len(cloud.instances) == 2
    expire(cloud)
    said = other("gc", "--in", "google")
    assert cloud.left() == [], said


def test_gc_does_not_call_a_place_empty_that_it_could_not_read(cloud, tmp_path):
    spec = spec_of(tmp_path)
    Machine(cloud, tmp_path)("up", spec, code=6)
    other = Machine(cloud, tmp_path, "other")
    cloud.unreachable = ["us-central1-a"]
    said = other("gc", "--in", "google", code=8)
    assert "us-central1" in said and "could not be read now" in said
    assert len(cloud.instances) == 2 and len(cloud.firewalls) == 2
    cloud.unreachable = []
    Machine(cloud, tmp_path)("down", spec)
    assert cloud.left() == []


def test_offers_show_the_quota_and_the_disk(cloud, tmp_path):
    gpuprov = Machine(cloud, tmp_path)
    for market, quota in (("spot", "0 of 7 GPUs used"), ("on-demand", "0 of 16 GPUs used")):
        cloud.quotas["PREEMPTIBLE_NVIDIA_L4_GPUS"] = 7
        one = json.loads(gpuprov("offers", spec_of(tmp_path, disk="500GiB", offer={"market": market}), "--json"))["offers"][0]
        assert (one["quota"], one["disk_gib"]) == (quota, 500) and 0 < one["disk_usd_per_h"] < one["price_usd_per_h"]
    cloud.quotas["NVIDIA_L4_GPUS"] = -1
    one = json.loads(gpuprov("offers", spec_of(tmp_path), "--json"))["offers"][0]
    assert not one["quota"], one


def test_the_project_of_the_offers(cloud, tmp_path):
    """It comes before the environment's, also for `down` by name; a spec of another project leaves the nodes alone."""
    elsewhere = Machine(cloud, tmp_path)
    elsewhere.env["GOOGLE_CLOUD_PROJECT"] = "elsewhere-1"
    elsewhere("up", spec_of(tmp_path, offer={"project": google_cloud.PROJECT}), code=6)
    assert len(cloud.instances) == 2
    elsewhere("status", "train")
    other = spec_of(tmp_path, offer={"project": "another-1"})
    assert "account proj-1" in elsewhere("up", other, code=5)
    assert len(cloud.instances) == 2
    elsewhere("down", "train")
    assert cloud.left() == []
    two = [{"provider": "google", "regions": ["us-central1"], "project": p} for p in (google_cloud.PROJECT, "another-1")]
    assert "name the projects 'proj-1' and 'another-1'" in elsewhere("plan", spec_of(tmp_path, offers=two), code=1)


class Moment:
    """One `up` that is killed at a moment of its own cloud, and the `down` after it."""

    def __init__(self, folder):
        self.folder, self.spec = folder, spec_of(folder)

    def run(self, reached, delay, lost):
        with google_cloud.Google() as cloud:
            cloud.polls = 2
            gpuprov = Machine(cloud, self.folder)
            kill_at(gpuprov.start("up", self.spec), cloud, lambda: reached(cloud), delay)
            if lost:
                age_claims(cloud)
                gpuprov = Machine(cloud, self.folder, "new")
            gpuprov("down", self.spec)
            assert cloud.left() == [] and cloud.faults == []


@pytest.mark.long
@pytest.mark.parametrize("journal", ["kept", "lost"])
def test_killed_at_any_moment_down_leaves_nothing(tmp_path, journal):
    """kill -9 of `up` at twenty moments, most of them around the calls that create something."""
    rng = random.Random(20261123 + len(journal))
    marks = [lambda cloud, n=n: len(cloud.log) >= n for n in [rng.randint(1, 30) for _ in range(8)]]
    calls = ["POST .*/global/firewalls", "GET .*/operations/", "POST .*bulkInsert", "POST .*bulkInsert"] * 3
    marks += [lambda cloud, c=c: bool(cloud.requests(c)) for c in calls]
    with ThreadPoolExecutor(5) as pool:
        waits = []
        for n, reached in enumerate(marks):
            folder = tmp_path / f"moment{n}"
            folder.mkdir()
            delay = rng.choice([0, rng.uniform(0, 0.02), rng.uniform(0, 0.3)])
            waits.append(pool.submit(Moment(folder).run, reached, delay, journal == "lost"))
        for w in waits:
            w.result()


def age_claims(cloud):
    """A young claim makes `down` wait for another run's launch; here there is none."""
    time.sleep(cloud.seconds)
    for rule in cloud.firewalls.values():
        about = json.loads(rule["item"]["description"])
        if "gpuprov:created" in about:
            about["gpuprov:created"] = "2026-11-01T00:00:00Z"
            rule["item"]["description"] = json.dumps(about)


# Google's documentation: the permissions of a method, where they are not named as it is; "in" the body of a launch.
PERMISSIONS = {"instances.bulkInsert": "instances.create", "instances.aggregatedList": "instances.list",
               "disks.aggregatedList": "disks.list", "firewalls.insert": "firewalls.create firewalls.get networks.updatePolicy",
               "firewalls.patch": "firewalls.update firewalls.get networks.updatePolicy"}
IN_LAUNCH = {"labels": "instances.setLabels", "metadata": "instances.setMetadata", "tags": "instances.setTags",
             "serviceAccounts": "instances.setServiceAccount", "disks": "disks.create images.useReadOnly",
             "networkInterfaces": "subnetworks.use"}


def permissions(cloud):
    """What an account needs for the requests that came."""
    needed = set()
    for r in cloud.requests(" /compute/"):
        method, _, _, body = cloud.gate.check(r["method"], r["target"], r["body"])
        name = method["id"].removeprefix("compute.")
        needed.update(PERMISSIONS.get(name, name).split())
        launch = body["instanceProperties"] if name == "instances.bulkInsert" else {}
        for member in launch.keys() & IN_LAUNCH.keys():
            needed.update(IN_LAUNCH[member].split())
        needed |= {"disks.setLabels" for d in launch.get("disks", []) if d["initializeParams"].get("labels")}
        needed |= {"subnetworks.useExternalIp" for n in launch.get("networkInterfaces", []) if n.get("accessConfigs")}
    return {"compute." + p for p in needed}


def test_doctor_and_policy(cloud, tmp_path):
    """The role has every permission that the requests of whole lives need, and no other."""
    gpuprov = Machine(cloud, tmp_path)
    said = gpuprov("doctor")
    assert f"project {google_cloud.PROJECT}, owner {OWNER}" in said and "quota of GPUs in all regions: 64" in said
    role = json.loads(gpuprov("providers", "google", "--policy", "--owner", "me"))
    assert role["stage"] == "GA" and len(set(role["includedPermissions"])) == len(role["includedPermissions"])
    cloud.polls, cloud.keep_disks = 2, True
    offer = {"market": "spot", "subnet": "training", "role": "node@proj-1.iam.gserviceaccount.com"}
    gpuprov("up", spec_of(tmp_path, gpu="T4:1", offer=offer), code=6)
    spec = json.loads((tmp_path / "spec.yaml").read_text())
    spec["access"]["ssh_from"] = ["198.51.100.0/24"]  # the rule is changed
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    gpuprov("up", tmp_path / "spec.yaml", code=6)
    gpuprov("down", "train")
    assert cloud.left() == []
    cloud.types.update(google_cloud.LARGE)
    gpuprov("plan", spec_of(tmp_path, gpu="H100:8", bootstrap={"fabric": "auto"}, offer={
        "instance_type": "a3-highgpu-8g", "zones": ["us-central1-a"], "networks": cloud.add_networks("a3-highgpu-8g"),
        "image": {"id": "projects/ubuntu-os-cloud/global/images/ubuntu-2404-lts-amd64-v20261101"}}), code=2)
    assert permissions(cloud) == set(role["includedPermissions"])


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_the_stand_in_alone_leaves_nothing(tmp_path, end):
    alone = subprocess.Popen([sys.executable, "-u", google_cloud.__file__, "--port", "0"], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "TMPDIR": str(tmp_path)})
    try:
        assert alone.stdout.readline() and list(tmp_path.iterdir())
    finally:
        alone.send_signal(end)
        code = alone.wait(60)
        alone.stdout.close()
    assert code == 0 and list(tmp_path.iterdir()) == []
