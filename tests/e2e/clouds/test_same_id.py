# SPDX-License-Identifier: Apache-2.0
"""Somebody chooses the id of a node as the name of a resource of another kind, and copies the node's tags to it. At Alibaba
Cloud: a key pair's id is its name, which anybody may choose."""
import alibaba
import pytest
from test_alibaba_verbs import at_cloud_fixture, cloud_fixture, spec  # noqa: F401  # fixtures

EDITED = {"gpuprov:owner": "somebody"}


def launched(at_cloud, cloud, tmp_path):
    at_cloud("up", spec(tmp_path, nodes=1), code=6)
    [(id, vm)] = cloud.instances.items()
    return id, vm


def test_a_key_pair_with_the_id_of_a_node_hides_nothing(tmp_path, at_cloud, cloud):
    """The journal has one resource of an id, and it stays the machine: status shows it, up goes on with it, down ends it."""
    id, vm = launched(at_cloud, cloud, tmp_path)
    cloud.pairs[alibaba.REGION, id] = {"tags": dict(vm["tags"])}
    for things in (cloud.instances, cloud.disks, cloud.nics, cloud.groups):
        for one in things.values():
            if one.get("tags"):
                one["tags"] = dict(one["tags"], **EDITED)
    assert id in at_cloud("status", "demo", code=None).out
    at_cloud("up", spec(tmp_path, nodes=1), code=6)
    assert set(cloud.instances) == {id}
    down = at_cloud("down", "demo")
    assert not cloud.instances and id in down.out + down.err, down.out + down.err


@pytest.mark.parametrize("over", [False, True])
def test_gc_sees_the_node_behind_a_key_pair_that_is_listed_first(tmp_path, at_cloud, cloud, monkeypatch, over):
    """The key pair is in a region that the cloud names before the node's. No tag of the stack is edited, but for a deadline
    that is over."""
    real = cloud.do_DescribeRegions

    def regions(*args):
        reply = real(*args)
        reply["Regions"]["Region"].reverse()
        return reply

    def elsewhere(action):
        if action != "DescribeKeyPairs":
            return alibaba.Alibaba.elsewhere(action)
        pair = {"KeyPairName": id, "KeyPairFingerPrint": "89f0", "Tags": cloud.tag_list(vm["tags"])}
        return cloud.page("KeyPairs", "KeyPair", [pair], {})
    monkeypatch.setattr(cloud, "do_DescribeRegions", regions)
    id, vm = launched(at_cloud, cloud, tmp_path)
    monkeypatch.setattr(cloud, "elsewhere", elsewhere)
    if over:
        vm["tags"] = dict(vm["tags"], **{"gpuprov:expires": "2026-01-01T00:00:00Z"})
    other = dict(at_cloud.env, GPUPROV_STATE_DIR=str(tmp_path / "other"))
    p = at_cloud.popen("gc", "--in", "alibaba", env=other)
    out, err = p.communicate(timeout=100)
    assert id in out + err and p.returncode == 0, out + err
    assert ("1 node" in out + err or over) and (set(cloud.instances) == (set() if over else {id})), out + err


def test_gc_of_another_owner_forgets_no_node(tmp_path, at_cloud, cloud):
    """Two owners have one journal. `gc` for one of them ends an expired key pair of that owner, whose name is the id of the
    other owner's node: the node keeps its record."""
    def gpuprov(*words, owner=None, code=0):
        env = {k: v for k, v in at_cloud.env.items() if k != "GPUPROV_OWNER"}
        p = at_cloud.popen(*words, env=dict(env, GPUPROV_OWNER=owner) if owner else env)
        out, err = p.communicate(timeout=170)
        assert p.returncode == code, (words, p.returncode, out + err)
        return out + err

    gpuprov("up", spec(tmp_path, nodes=1), owner="teamb", code=6)
    [id] = cloud.instances
    base = {"gpuprov:owner": "1234567890123456-tester", "gpuprov:stack": "x", "gpuprov:uid": "00112233445566aa"}
    cloud.pairs[alibaba.REGION, id] = {"tags": dict(base, **{"gpuprov:expires": "2026-01-01T00:00:00Z"})}
    cloud.pairs[alibaba.REGION, "other"] = {"tags": dict(base, **{"gpuprov:expires": "2036-01-01T00:00:00Z"})}
    assert f"key-pair {id}, and nothing else" in gpuprov("gc")
    for things in (cloud.instances, cloud.disks, cloud.nics, cloud.groups):
        for one in things.values():
            if one.get("tags"):
                one["tags"] = dict(one["tags"], **EDITED)
    assert f'"id":"{id}"' in gpuprov("status", "demo", "--json", owner="teamb")
    gpuprov("down", "demo", owner="teamb")
    assert not cloud.instances


def test_a_key_pair_with_the_id_of_a_network_keeps_nothing(tmp_path, at_cloud, cloud):
    """Without the journal, `down` takes the network for the stack's, and not the key pair, which anybody may name. So the
    network ends, then its claim, and in the end the key pair, which has the stack's tags."""
    cloud.vpcs.clear()
    cloud.vswitches.clear()
    launched(at_cloud, cloud, tmp_path)
    for things in (cloud.vpcs, cloud.vswitches):
        [(id, one)] = things.items()
        cloud.pairs[alibaba.REGION, id] = {"tags": dict(one["tags"])}
    other = dict(at_cloud.env, GPUPROV_STATE_DIR=str(tmp_path / "other"))
    p = at_cloud.popen("down", "demo", "--in", "alibaba", env=other)
    out, err = p.communicate(timeout=170)
    assert cloud.left() == [] and p.returncode == 0, out + err
