# SPDX-License-Identifier: Apache-2.0
"""A colleague in the project of a real OpenStack makes servers of his own with copied tags of a stack, while a launch of that
stack has no reply. The other clouds are in test_copied_tags_clouds.py."""
import subprocess

import ec2
import proofs
from openstack_relay import Relay
from openstack_world import MARKS, Drive, Eye, environment, spec
from openstack_world import cloud_fixture, eye_fixture  # noqa: F401  # fixtures
from waiting import wait_for

pytestmark = MARKS
NEW, LIST = r"^POST /p8774/v2.1/servers$", r"^GET /p8774/v2.1/servers/detail"


def copy(cloud, one, **changed):
    """A server of the colleague's with all tags of `one` but the changed ones. Returns its id once it runs."""
    c = Eye(cloud, "colleague").c
    metadata = {**one.metadata, **{f"gpuprov:{k}": str(v) for k, v in changed.items()}}
    assert set(one.metadata) == set(metadata), metadata
    network = next(n for n in c.network.networks() if n.name in one.addresses)
    made = c.compute.post("/servers", microversion="2.90", json={"server": {
        "name": one.name, "imageRef": one.image.id, "flavorRef": flavor(c, one), "networks": [{"uuid": network.id}],
        "metadata": metadata, "tags": list(one.tags)}})
    assert made.status_code == 202, made.text
    id = made.json()["server"]["id"]
    wait_for(lambda: c.compute.get_server(id).status == "ACTIVE", 120)
    return id


def flavor(c, one):
    return next(f.id for f in c.compute.flavors() if f.name == one.flavor.original_name)


def public(eye):
    """Which servers have a public address, by neutron: nova learns of it later."""
    return {eye.c.network.get_port(a.port_id).device_id for a in eye.addresses() if a.port_id}


def test_a_copy_is_not_the_answer_to_a_lost_request(cloud, eye, tmp_path):
    path = spec(tmp_path, nodes=1, gpu=None, offer={"instance_type": "cpu.small"})
    with Relay(cloud) as relay:
        env = environment(cloud, tmp_path, relay=relay)
        assert Drive(env, path, "create")["code"] == "ok"
        [one] = eye.servers()
        evil = copy(cloud, one, attempt=2)
        relay.rule(NEW, "drop_before")
        got = Drive(env, path, "create", "2")
        assert got["code"] == "connection-lost" and got.of_kind("instance") == [], got.result
        assert [i["state"] for i in got["intents"] if i["kind"] == "instance"] == ["done", "failed"]
        got = Drive(env, path, "create", "3")
        assert got["code"] == "ok", got.result
        [mine] = got.of_kind("instance")
        assert mine["id"] != evil and mine["ours"] and not mine["other_run"]
        assert mine["launch"] == proofs.launch(got["uid"], 0, 1, 3)
        assert public(eye) == {one.id, mine["id"]}
        assert Drive(env, path, "destroy").rc == 0
        eye.nothing()  # what somebody made in the stack's name ends with it


def test_of_the_machine_and_a_copy_of_it_none_is_taken(cloud, eye, tmp_path):
    """The copy was made in the moment after the launch, with its proof."""
    path = spec(tmp_path, nodes=1, gpu=None, offer={"instance_type": "cpu.small"})
    evil = []

    def twice(reply):
        wait_for(lambda: [s.status for s in eye.servers()] == ["ACTIVE"], 120)
        evil.append(copy(cloud, eye.servers()[0]))
        return {**reply, "servers": []}
    with Relay(cloud) as relay:
        env = environment(cloud, tmp_path, relay=relay)
        relay.rule(NEW, "drop_after").rule(LIST, "edit", change=twice)
        got = Drive(env, path, "create")
        assert got["code"] == "unknown-outcome" and got.of_kind("instance") == [], got.result
        assert all(s.id in got["message"] for s in eye.servers()) and evil[0] in got["message"]
        assert [i["state"] for i in got["intents"] if i["kind"] == "instance"] == ["open"]
        assert len(eye.servers()) == 2 and len(relay.requests(NEW)) == 1
        assert Drive(env, path, "destroy").rc == 0
        eye.nothing()


def give_address(cloud, server, like):
    """A floating address of the colleague's for his server, with the description of another one. Its id."""
    c = Eye(cloud, "colleague").c
    [port] = c.network.ports(device_id=server)
    external = next(n for n in c.network.networks() if n.is_router_external)
    made = c.network.create_ip(floating_network_id=external.id, port_id=port.id, description=like.description)
    return made.id


def test_what_ends_with_a_copy_is_its_own_address(cloud, eye, tmp_path):
    """The tags of a node's address are those of the copy, too: neutron tells which address leads to which server."""
    path = spec(tmp_path, nodes=1, gpu=None, offer={"instance_type": "cpu.small"})
    env = environment(cloud, tmp_path)
    assert Drive(env, path, "create")["code"] == "ok"
    [one] = eye.servers()
    [address] = eye.addresses()
    evil = copy(cloud, one)
    its = give_address(cloud, evil, address)
    assert public(eye) == {one.id, evil}
    got = Drive(env, path, "end", evil)
    assert got["code"] == "ok", got.result
    wait_for(lambda: [s.id for s in eye.servers()] == [one.id], 120)
    assert [a.id for a in eye.addresses()] == [address.id] != [its] and public(eye) == {one.id}
    bare = copy(cloud, one)
    assert Drive(env, path, "end", bare)["code"] == "ok"
    wait_for(lambda: [s.id for s in eye.servers()] == [one.id], 120)
    assert public(eye) == {one.id}
    assert Drive(env, path, "destroy").rc == 0
    eye.nothing()


def test_addresses_with_other_descriptions(cloud, eye, tmp_path):
    """The journal knows them by their ids: `down` ends them with their nodes."""
    path = spec(tmp_path, nodes=2, gpu=None, offer={"instance_type": "cpu.small"},
                access={"ssh_from": ["198.51.100.0/24"], "timeout": "1s"})
    env = environment(cloud, tmp_path)

    def gpuprov(*words):
        return subprocess.run([str(ec2.BUILD / "gpuprov"), *map(str, words)], env=env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=240, check=False)
    up = gpuprov("up", path)
    one, other = eye.addresses()
    assert up.returncode == 6, up.stderr
    eye.c.network.update_ip(one.id, description="mine")
    eye.c.network.update_ip(other.id, description=other.description.replace("gpu", "x"))
    down = gpuprov("down", "contract")
    assert down.returncode == 0, down.stdout + down.stderr
    eye.nothing()
