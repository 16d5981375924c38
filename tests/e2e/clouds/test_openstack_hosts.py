# SPDX-License-Identifier: Apache-2.0
"""From a spec to proven nodes and back at a real OpenStack, with a real host behind every server."""
import json

import pytest
from ec2_lab import InLab
from hosted_openstack import GATEWAY, OpenStackHosts
from lab import why_not
from openstack_world import Eye
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces, pytest.mark.long,
              pytest.mark.skipif(bool(why_not()), reason=str(why_not())),
              pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")]  # of the SDK

SPEC = """\
name: llm
nodes: 2
offers: [{provider: openstack, image: {id: tiny}}]
limits: {ttl: 1h, unattended: accept}
access: {ssh_from: [%s/32]}
bootstrap:
  steps:
    - {name: hello, run: "echo hello > ~/hello", check: "test -s ~/hello"}
validate: {time: 5m, require: [train.ddp]}
""" % GATEWAY


@pytest.fixture(name="lab")
def lab_fixture(tmp_path):
    with OpenStackHosts(tmp_path) as lab:
        yield lab


def machine(lab, program, tmp_path, name):
    home = tmp_path / name
    home.mkdir()
    lab.env = {**lab.cloud.env("gpu"), "HOME": str(home)}
    return InLab(lab, program, tmp_path / (name + "-state"), home)


def test_from_a_spec_to_proven_nodes_and_back(lab, program, tmp_path):
    eye = lab.call(Eye, lab.cloud)
    spec = tmp_path / "llm.yaml"
    spec.write_text(SPEC)
    me = machine(lab, program, tmp_path, "me")
    up = me("up", spec, "--json", timeout=500)
    nodes = json.loads(up.out)["stack"]["nodes"]
    assert [n["phase"] for n in nodes] == ["ready"] * 2, up
    assert {s.id for s in lab.call(eye.servers)} == {n["id"] for n in nodes}
    for n in nodes:
        assert lab.host(n["id"]).sh("cat ~gpuprov/hello").stdout == "hello\n"
    again = me("up", spec, timeout=500)
    assert "nothing to do" in again.err + again.out, again
    # a node that switches itself off is a server that nova has stopped, and which somebody still pays for
    lab.host(nodes[1]["id"]).sh("systemctl poweroff --no-block")
    wait_for(lambda: lab.about(nodes[1]["id"]).get("ended") == "itself", 120)
    wait_for(lambda: {s.id: s.status for s in lab.call(eye.servers)}[nodes[1]["id"]] == "SHUTOFF", 60)
    status = me.json("status", "llm", code=None)["stacks"][0]
    assert [(n["phase"], n["state"], n["billed"]) for n in status["nodes"]] == [
        ("ready", "running", True), ("failed", "stopped", True)], status
    # another machine, which has no record, ends it
    machine(lab, program, tmp_path, "other")("down", spec, "--yes", timeout=300)
    wait_for(lambda: not lab.call(eye.left), 60)
    wait_for(lambda: lab.about(nodes[0]["id"]).get("ended") == "by the API", 120)


def test_a_node_deletes_itself(lab, program, tmp_path):
    """It gets an application credential for its own server only, and uses it with what gpuprov left on it."""
    eye = lab.call(Eye, lab.cloud)
    spec = tmp_path / "llm.yaml"
    spec.write_text(SPEC.replace("nodes: 2", "nodes: 1").replace("image:", "role: self-delete, image:"))
    me = machine(lab, program, tmp_path, "me")
    up = me("up", spec, "--json", timeout=500)
    node = json.loads(up.out)["stack"]["nodes"][0]
    host = lab.host(node["id"])
    assert node["phase"] == "ready", up
    assert host.sh("stat -c '%a %U' /run/gpuprov/end.conf").stdout == "600 root\n"
    assert host.sh("grep ^END= /etc/gpuprov/deadline.conf").stdout == "END=/etc/gpuprov/end.sh\n"
    assert me.json("status", "llm")["stacks"][0]["ends"] == "guest"
    secret = host.sh("grep ^SECRET= /run/gpuprov/end.conf | cut -d= -f2").stdout.strip()
    assert secret and secret not in up.out + up.err
    host.sh("sh /etc/gpuprov/end.sh check")
    host.sh("sh /etc/gpuprov/end.sh delete")
    wait_for(lambda: not lab.call(eye.servers), 60)
    me("down", spec, "--yes", timeout=300)
    wait_for(lambda: not lab.call(eye.left), 60)
