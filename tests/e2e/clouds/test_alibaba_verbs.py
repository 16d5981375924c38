# SPDX-License-Identifier: Apache-2.0
"""The built program at Alibaba Cloud: check, doctor, plan, up, status, gc and down; killed at any moment with its journal
kept or lost. The stand-in's nodes are addresses of loopback at which nobody answers, so a launch ends unreachable."""
import json
import random
import re
from concurrent.futures import ThreadPoolExecutor

import alibaba
import pytest
from conftest import Gpuprov
from killing import forget, kill_at
from waiting import wait_for

SPEC = {"name": "demo", "nodes": 2, "gpu": "T4:1", "limits": {"ttl": "2h"},
        "offers": [{"provider": "alibaba", "regions": [alibaba.REGION], "market": "spot"}],
        "access": {"ssh_from": ["203.0.113.0/24"], "timeout": "2s"}}


@pytest.fixture(name="cloud")
def cloud_fixture():
    with alibaba.Alibaba() as cloud:
        yield cloud
        assert cloud.sound() is True


@pytest.fixture(name="at_cloud")
def at_cloud_fixture(gpuprov, cloud):
    gpuprov.env.update(cloud.environment(), NO_PROXY="*", no_proxy="*", AWS_EC2_METADATA_DISABLED="true")
    return gpuprov


def spec(folder, **more):
    path = folder / "demo.yaml"
    path.write_text(json.dumps(dict(SPEC, **more)))
    return path


def test_check_needs_no_cloud(tmp_path, at_cloud, cloud):
    at_cloud("check", spec(tmp_path))
    bad = at_cloud("check", spec(tmp_path, offers=[{"provider": "alibaba", "subnet": "subnet-0abc1234"}]), code=1)
    assert "the id of a VSwitch" in bad.err
    assert cloud.log == []


def test_doctor_names_credentials_account_and_region(at_cloud):
    text = at_cloud("doctor", code=None).out
    assert "credentials of the environment" in text and "account 1234567890123456" in text and alibaba.REGION in text
    assert "test-secret" not in text


def test_policy_is_that_of_one_owner(at_cloud):
    policy = json.loads(at_cloud("providers", "alibaba", "--policy", "--owner", "me").out)
    by_tag = [s for s in policy["Statement"] if "gpuprov:owner" in json.dumps(s.get("Condition", {}))]
    actions = {a for s in policy["Statement"] for a in s["Action"]}
    assert len(by_tag) == 3 and all('"me"' in json.dumps(s["Condition"]) for s in by_tag)
    assert {"ecs:RunInstances", "ecs:DeleteInstances", "vpc:CreateVpc", "ecs:ModifyInstanceAutoReleaseTime"} <= actions
    late, = [s for s in policy["Statement"] if s["Action"] == ["ecs:TagResources"]]  # what a launch leaves without tags
    assert late["Resource"] == "acs:ecs:*:*:eni/*" and "RequestTag" in json.dumps(late["Condition"])
    assert at_cloud("providers", "alibaba", "--policy", "--owner", "a*", code=1)


def test_policy_has_every_action_that_is_called(tmp_path, at_cloud, cloud):
    cloud.vpcs.clear()
    cloud.vswitches.clear()
    at_cloud("up", spec(tmp_path), code=6)
    at_cloud("down", "demo")
    policy = json.loads(at_cloud("providers", "alibaba", "--policy", "--owner", "me").out)
    allowed = {a for s in policy["Statement"] for a in s["Action"]}
    vpc = {"CreateVpc", "CreateVSwitch", "DeleteVpc", "DeleteVSwitch", "DescribeVpcs", "DescribeVSwitches"}
    used = {r["headers"]["x-acs-action"] for r in cloud.log} - {"GetCallerIdentity"}
    missing = {a for a in used if ("vpc:" if a in vpc else "ecs:") + a not in allowed and
               not (a.startswith("Describe") and a not in vpc)}
    assert not missing


def test_plan_buys_nothing_and_names_who_ends_a_node(tmp_path, at_cloud, cloud):
    text = at_cloud("plan", spec(tmp_path), code=2).out
    assert "ecs.gn6i-c4g1.xlarge" in text and "AutoReleaseTime" in text
    assert cloud.left() == [] and not [r for r in cloud.log if "Create" in r["target"] or "RunInstances" in r["target"]]


def test_offers_show_the_price_of_the_account(tmp_path, at_cloud, cloud):
    cloud.currency = "CNY"
    one = at_cloud.json("offers", spec(tmp_path, disk="500GiB"))["offers"][0]
    assert (one["currency"], one["disk_gib"]) == ("CNY", 500) and one["quota"] == "0 of 10000 vCPUs used"
    assert 0 < one["disk_usd_per_h"] < one["price_usd_per_h"] < one["price_per_h"]


def test_offers_show_the_stock(tmp_path, at_cloud, cloud):
    """ClosedWithStock: some are left, and no more come."""
    cloud.stock["ecs.gn6i-c4g1.xlarge", "ap-southeast-1a"] = 3
    path = spec(tmp_path)
    listed = {(o["type"], o["zone"]): o["stock"] for o in at_cloud.json("offers", path)["offers"]}
    assert listed["ecs.gn6i-c4g1.xlarge", "ap-southeast-1a"] == "low"
    assert listed["ecs.gn6i-c4g1.xlarge", "ap-southeast-1b"] == "high"
    head, *rows = at_cloud("offers", path).out.splitlines()
    assert "stock" in head and any(re.search(r"xlarge .* low ", row) for row in rows), rows


@pytest.mark.parametrize("own_network", [False, True])
def test_up_and_down(tmp_path, at_cloud, cloud, own_network):
    if own_network:
        cloud.vpcs.clear()
        cloud.vswitches.clear()
    up = at_cloud("up", spec(tmp_path), code=6)
    assert len(cloud.instances) == 2, up.err
    stack, = at_cloud.json("status", "demo")["stacks"]
    assert sorted(n["id"] for n in stack["nodes"]) == sorted(cloud.instances)
    assert all(one["release"] for one in cloud.instances.values())
    at_cloud("down", "demo")
    assert cloud.left() == []


def test_ttl_moves_the_deadline_of_running_nodes(tmp_path, at_cloud, cloud):
    at_cloud("up", spec(tmp_path), code=6)
    before = {iid: one["release"] for iid, one in cloud.instances.items()}
    at_cloud("up", spec(tmp_path, limits={"ttl": "5h"}), code=6)
    after = {iid: one["release"] for iid, one in cloud.instances.items()}
    assert before.keys() == after.keys() and all(after[i] > before[i] for i in before)
    at_cloud("down", "demo")
    assert cloud.left() == []


def releases(cloud):
    return {iid: one["release"] for iid, one in cloud.instances.items() if one["gone"] is None}


@pytest.mark.parametrize("ttl, later", [("6h", True), ("1h", False)])
def test_extend_moves_each_node_whatever_its_tags_are(tmp_path, at_cloud, cloud, ttl, later):
    """Somebody has changed the uid of one node, and copied the tags of the other one to a machine of his own."""
    at_cloud("up", spec(tmp_path), code=6)
    before = releases(cloud)
    edited, other = sorted(before)
    foreign = dict(cloud.instances[other], tags=dict(cloud.instances[other]["tags"]))
    cloud.instances["i-0foreign0foreign0"] = foreign
    cloud.instances[edited]["tags"]["gpuprov:uid"] = "0" * 16
    assert "enforced by the provider" in at_cloud("extend", "demo", ttl).out
    after = releases(cloud)
    assert after.pop("i-0foreign0foreign0") == before[other]
    assert len(set(after.values())) == 1 and all((after[i] > before[i]) == later for i in before), (before, after)
    del cloud.instances["i-0foreign0foreign0"]
    at_cloud("down", "demo")
    assert cloud.left() == []


@pytest.mark.parametrize("kept, code, words", [(False, 1, "does not show the new one"), (True, 8, "is not listed")])
def test_extend_fails_where_a_node_may_keep_its_release(tmp_path, at_cloud, cloud, kept, code, words):
    at_cloud("up", spec(tmp_path), code=6)
    first = min(cloud.instances)
    cloud.keep_release = kept
    if kept:  # it cannot be read back
        cloud.rule("InstanceIds", "edit", times=None, change=lambda reply: dict(reply, Instances={"Instance": [
            one for one in reply["Instances"]["Instance"] if one["InstanceId"] != first]}))
    said = at_cloud("extend", "demo", "6h", code=code)
    assert words in said.err and "gpuprov status demo" in said.err, said.err
    assert first in said.err or not kept
    cloud.rules.clear()
    cloud.keep_release = True
    at_cloud("extend", "demo", "6h")
    assert len(set(releases(cloud).values())) == 1
    at_cloud("down", "demo")
    assert cloud.left() == []


def test_gc_finds_nodes_without_a_journal(tmp_path, at_cloud, cloud):
    at_cloud("up", spec(tmp_path), code=6)
    forget(at_cloud)
    for one in cloud.instances.values():
        one["release"] = ""  # somebody switched the release off
    at_cloud("gc", "--in", "alibaba")
    assert len(cloud.instances) == 2, "their time has not come"
    cloud.clock = 2 * 3600 + 60
    assert "no other cloud confirms" in at_cloud("gc", "--in", "alibaba", code=8).err
    cloud.clock = 0
    assert len(cloud.instances) == 2
    for kind in (cloud.instances, cloud.disks, cloud.nics, cloud.groups, cloud.pairs):
        for one in kind.values():
            if "gpuprov:expires" in one["tags"]:
                one["tags"]["gpuprov:expires"] = "2026-01-02T03:04:05Z"
    at_cloud("gc", "--in", "alibaba")
    assert cloud.left() == []


@pytest.mark.parametrize("name, value", [("RegionEndpoint", "evil.example.org"), ("RegionEndpoint", "a/b.aliyuncs.com"),
                                         ("RegionId", "x/../y"), ("RegionId", 7)])
def test_hostile_regions_are_an_error(at_cloud, cloud, name, value):
    def change(reply):
        reply["Regions"]["Region"][0][name] = value
        return reply
    cloud.rule("DescribeRegions", "edit", times=None, change=change)
    gc = at_cloud("gc", "--in", "alibaba", code=8)
    assert "DescribeRegions" in gc.err and "below aliyuncs.com" in gc.err


def test_list_that_fails_is_never_gone(tmp_path, at_cloud, cloud):
    """While the list of instances is refused, the claim and the nodes in the journal stay."""
    at_cloud("up", spec(tmp_path), code=6)
    cloud.rule("DescribeInstances", "reply", times=None, status=403,
               obj={"Code": "Forbidden.RAM", "Message": "User not authorized to operate on the specified resource",
                    "RequestId": "1"})
    down = at_cloud.popen("down", "demo")
    wait_for(lambda: sum(r["done"] for r in cloud.rules) >= 4 or down.poll() is not None, 120)
    assert down.poll() is None and len(cloud.pairs) == 1
    cloud.rules.clear()
    assert down.wait(120) == 0, down.communicate()
    down.communicate()
    assert cloud.left() == []


class Moment:
    """One `up` that is killed at a moment of its own cloud, and the `down` after it."""

    def __init__(self, gpuprov, folder, own_network):
        self.cloud, self.gpuprov = alibaba.Alibaba(), gpuprov
        self.cloud.default_network = not own_network
        folder.mkdir()
        self.path = spec(folder)

    def run(self, reached, delay, lost):
        with self.cloud as cloud:
            self.gpuprov.env.update(cloud.environment(), NO_PROXY="*", no_proxy="*", AWS_EC2_METADATA_DISABLED="true")
            kill_at(self.gpuprov.popen("up", self.path, "--quiet"), cloud, lambda: reached(cloud), delay)
            if lost:
                forget(self.gpuprov)
            self.gpuprov("down", self.path)
            assert cloud.left() == []
            assert cloud.sound() is True


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("journal", ["kept", "lost"])
def test_killed_at_any_moment_down_leaves_nothing(tmp_path, program, journal):
    """kill -9 of `up` at twenty moments, most of them around the calls that create something."""
    rng = random.Random(20261123 + len(journal))
    names = ["ImportKeyPair", "CreateVpc", "CreateVSwitch", "CreateSecurityGroup", "RunInstances", "RunInstances"] * 2
    marks = [lambda cloud, n=n: len(cloud.log) >= n for n in [rng.randint(1, 30) for _ in range(8)]]
    marks += [lambda cloud, a=a: bool(cloud.actions(a)) for a in names]
    with ThreadPoolExecutor(10) as pool:
        waits = []
        for n, reached in enumerate(marks):
            home = tmp_path / f"home{n}"
            home.mkdir()
            one = Moment(Gpuprov(program, tmp_path / f"state{n}", home), tmp_path / f"spec{n}", n % 2 or n >= 8)
            delay = rng.choice([0, rng.uniform(0, 0.02), rng.uniform(0, 0.1)])
            waits.append(pool.submit(one.run, reached, delay, journal == "lost"))
        for w in waits:
            w.result()
