# SPDX-License-Identifier: Apache-2.0
"""eRDMA at Alibaba Cloud: the interfaces of a gang, their tags, the RDMA devices that validation requires of each node,
and the interfaces that a node leaves behind."""
import alibaba
import pytest
from alibaba_lab import Drive, environment, query, spec

TWO = {"gpu": None, "offer": {"instance_type": "ecs.ebmgn8v.48xlarge"}, "bootstrap": {"fabric": "auto"}}  # interfaces


@pytest.fixture(name="cloud")
def cloud_fixture():
    with alibaba.Alibaba() as cloud:
        yield cloud
        assert cloud.sound() is True


@pytest.mark.parametrize("fabric, nodes, gpu, erdma", [
    ("auto", 2, "A10:8", True), ("none", 2, "A10:8", False), ("auto", 1, "A10:8", False), ("auto", 2, "T4:1", False)])
def test_a_gang_uses_the_erdma_of_its_type(tmp_path, cloud, fabric, nodes, gpu, erdma):
    text = spec(tmp_path, gpu=gpu, nodes=nodes, bootstrap={"fabric": fabric})
    run = Drive(environment(cloud, tmp_path), text, "create")
    assert run.rc == 0, run.text
    q = query(cloud.actions("RunInstances")[0])
    own = {k.rpartition(".")[2]: v for k, v in q.items() if k.startswith("NetworkInterface.1.")}
    place = own if erdma else q
    assert place["VSwitchId"].startswith("vsw-") and place["SecurityGroupId"] in cloud.groups
    assert own == ({"InstanceType": "Primary", "NetworkInterfaceTrafficMode": "HighPerformance",
                    **{k: place[k] for k in ("VSwitchId", "SecurityGroupId")}} if erdma else {})
    listed = Drive(environment(cloud, tmp_path), text, "list")
    nics = listed.of_kind("network-interface")
    assert {r["reason"] for r in nics} == {"InUse, eRDMA" if erdma else "InUse"} and len(nics) == nodes
    # what validation requires of each node: in every list, and in a poll of the nodes, which has nothing else
    polled = Drive(environment(cloud, tmp_path), text, "nodes")
    assert {r["kind"] for r in polled["resources"]} == {"instance"}
    for result in (listed, polled):
        assert [r["rdma"] for r in result.of_kind("instance")] == [1 if erdma else 0] * nodes
    assert Drive(environment(cloud, tmp_path), text, "destroy").rc == 0
    assert cloud.left() == []


def interfaces(q):
    """{number: {parameter: value}}"""
    out = {}
    for k, v in q.items():
        if k.startswith("NetworkInterface."):
            _, n, name = k.split(".", 2)
            out.setdefault(int(n), {})[name] = v
    return out


@pytest.mark.parametrize("kind, card, pairs", [("ecs.ebmgn8v.48xlarge", "1", "131071"), ("ecs.ebmgn8ti.48xlarge", None, None)])
def test_a_gang_has_every_erdma_interface_of_its_type(tmp_path, cloud, kind, card, pairs):
    """Two of them: on their own cards where the type has several, with an equal part of its queue pairs where it has
    a number. The second interface has no tags from the launch, and gets them after it."""
    env, text = environment(cloud, tmp_path), spec(tmp_path, gpu=None, offer={"instance_type": kind}, bootstrap={"fabric": "auto"})
    made = Drive(env, text, "create")
    assert made.rc == 0, made.text
    first, second = interfaces(query(cloud.actions("RunInstances")[0])).values()
    assert (first["InstanceType"], second["InstanceType"], second["DeleteOnRelease"]) == ("Primary", "Secondary", "true")
    assert {i["NetworkInterfaceTrafficMode"] for i in (first, second)} == {"HighPerformance"}
    assert [i.get("NetworkCardIndex") for i in (first, second)] == [None, card]
    assert [i.get("QueuePairNumber") for i in (first, second)] == [pairs, pairs]
    names = ("gpuprov:owner", "gpuprov:stack", "gpuprov:uid", "gpuprov:spec", "gpuprov:expires")
    tags = [tuple(n["tags"].get(k) for k in names) for n in cloud.nics.values()]
    assert len(tags) == 4 and len(set(tags)) == 1 and all(tags[0]), tags
    for result in (made, Drive(env, text, "list"), Drive(env, text, "nodes")):
        assert [r["rdma"] for r in result.of_kind("instance")] == [2, 2], result.text
    assert Drive(env, text, "destroy").rc == 0
    assert cloud.left() == []


def test_interfaces_that_are_attached_late_get_their_tags(tmp_path, cloud):
    cloud.late_nics = 3
    text = spec(tmp_path, **TWO)
    made = Drive(environment(cloud, tmp_path), text, "create")
    assert made.rc == 0 and all(n["tags"].get("gpuprov:owner") for n in cloud.nics.values()), made.text
    assert [r["rdma"] for r in made.of_kind("instance")] == [2, 2]
    assert "not attached" not in made.stderr


def test_interfaces_of_others_get_no_tags(tmp_path, cloud):
    """What the account attaches to each new instance is not the stack's."""
    cloud.own_nics = [{"kind": "Secondary", "mode": "Standard", "name": "watch"}]
    text = spec(tmp_path, **TWO)
    made = Drive(environment(cloud, tmp_path), text, "create")
    assert made.rc == 0 and "not attached" not in made.stderr, made.text
    assert {n.get("name") == "watch": bool(n["tags"]) for n in cloud.nics.values()} == {True: False, False: True}


@pytest.mark.parametrize("prepare, words", [
    (lambda cloud: setattr(cloud, "late_nics", 10 ** 6), "2 of 2 further interfaces are not attached"),
    (lambda cloud: cloud.rule("TagResources", "reply", times=None, status=403,
                              obj={"Code": "Forbidden.RAM", "Message": "User not authorized", "RequestId": "1"}),
     "the further interfaces of the nodes have no tags")])
def test_interfaces_without_tags_go_with_their_nodes(tmp_path, gpuprov, cloud, prepare, words):
    gpuprov.env.update(cloud.environment(), NO_PROXY="*", no_proxy="*", AWS_EC2_METADATA_DISABLED="true")
    prepare(cloud)
    up = gpuprov("up", spec(tmp_path, **TWO, access={"ssh_from": ["203.0.113.0/24"], "timeout": "1s"}), code=6)
    assert words in up.err, up.err
    assert len(cloud.instances) == 2
    gpuprov("down", "contract")
    assert cloud.left() == []


def test_an_interface_that_is_left_behind_is_listed_and_deleted(tmp_path, cloud):
    env = environment(cloud, tmp_path)
    text = spec(tmp_path, **TWO)
    assert Drive(env, text, "create").rc == 0
    cloud.leave_nics = True
    Drive(env, text, "destroy")
    cloud.settle()
    for _ in range(5):
        if cloud.left() == []:
            break
        Drive(env, text, "destroy")
    assert cloud.left() == [] and len(cloud.actions("DeleteNetworkInterface")) >= 2


def test_the_reply_to_a_launch_with_interfaces_is_lost(tmp_path, cloud):
    """The replayed launch tags them."""
    env = environment(cloud, tmp_path)
    text = spec(tmp_path, **TWO)
    cloud.rule("RunInstances", "drop_after", times=1)
    made = Drive(env, text, "create")
    assert made.rc == 0 and [r["rdma"] for r in made.of_kind("instance")] == [2, 2], made.text
    assert len(cloud.instances) == 2 and all(n["tags"].get("gpuprov:uid") for n in cloud.nics.values())
    assert Drive(env, text, "destroy").rc == 0
    assert cloud.left() == []


@pytest.mark.parametrize("change, rdma", [
    (lambda nic: nic.update(mode="Standard"), 0),  # the cloud made it without: nothing is expected of the node
    (lambda nic: nic.update(instance=""), -1),     # it shows none of the node's interfaces
])
def test_the_rdma_devices_are_read_back(tmp_path, cloud, change, rdma):
    text = spec(tmp_path, gpu="A10:8", bootstrap={"fabric": "auto"})
    made = Drive(environment(cloud, tmp_path), text, "create")
    assert made.rc == 0 and [r["rdma"] for r in made.of_kind("instance")] == [1, 1], made.text
    for nic in cloud.nics.values():
        change(nic)
    assert [r["rdma"] for r in Drive(environment(cloud, tmp_path), text, "nodes").of_kind("instance")] == [rdma] * 2
    assert Drive(environment(cloud, tmp_path), text, "destroy").rc == 0
    assert cloud.left() == []


@pytest.mark.parametrize("kind, fabric, words", [
    ("ecs.ebmgn7ix.32xlarge", "auto", "fabric: eRDMA on the primary interface"),
    ("ecs.ebmgn8v.48xlarge", "auto", "fabric: eRDMA on 2 interfaces"),
    ("ecs.ebmgn8v.48xlarge", "none", "fabric: TCP only; the type has eRDMA")])
def test_plan_names_the_fabric_of_a_gang(tmp_path, gpuprov, cloud, kind, fabric, words):
    gpuprov.env.update(cloud.environment(), NO_PROXY="*", no_proxy="*", AWS_EC2_METADATA_DISABLED="true")
    text = spec(tmp_path, gpu=None, offer={"instance_type": kind}, bootstrap={"fabric": fabric})
    assert words in gpuprov("plan", text, code=2).out


def test_a_cut_launch_is_completed(tmp_path, gpuprov, cloud):
    """The next `up` tags the interfaces of the stack's name at its own nodes, and no other."""
    gpuprov.env.update(cloud.environment(), NO_PROXY="*", no_proxy="*", AWS_EC2_METADATA_DISABLED="true")
    text = spec(tmp_path, **TWO, access={"ssh_from": ["203.0.113.0/24"], "timeout": "1s"})
    gpuprov("up", text, code=6)
    further = {nid: nic for nid, nic in cloud.nics.items() if nic["kind"] == "Secondary"}
    assert len(further) == 2
    for nic in further.values():
        nic["tags"].clear()  # as if `up` had been killed after RunInstances
    name, node = next((n["name"], n["instance"]) for n in further.values())
    others = {"eni-elsewhere0001": {"name": name, "instance": "i-elsewhere0001"},
              "eni-byhand00000001": {"name": "by-hand", "instance": node}}
    for nid, nic in others.items():
        cloud.nics[nid] = dict(next(iter(further.values())), tags={}, **nic)
    gpuprov("up", text, code=6)
    assert all(nic["tags"].get("gpuprov:uid") and nic["tags"].get("gpuprov:stack") for nic in further.values())
    assert not any(cloud.nics[nid]["tags"] for nid in others)
    for nid in others:
        del cloud.nics[nid]
    gpuprov("down", "contract")
    assert cloud.left() == []
