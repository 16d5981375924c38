# SPDX-License-Identifier: Apache-2.0
"""Container engines on real systemd hosts: installed, connected with (stand-in) GPUs, with images of a registry that
needs a login; and the check of validation that runs a container."""
import json

import pytest
from containers import LOGIN, ContainerLab
from lab import why_not

pytestmark = [pytest.mark.root, pytest.mark.namespaces, pytest.mark.skipif(bool(why_not()), reason=str(why_not()))]


@pytest.fixture(scope="module", name="lab")
def lab_fixture(tmp_path_factory):
    with ContainerLab(tmp_path_factory.mktemp("containers")) as lab:
        yield lab


def checked(done):
    said = json.loads(done.out) if done.out.startswith("{") else {}
    nodes = said.get("report", said).get("nodes", [])
    checks = nodes[0].get("checks", []) if nodes else []
    done.check = next((c for c in checks if c["check"] == "host.container"), None)
    return done


class Node:
    """A host, and the program that sets it up from inside the lab's network."""

    def __init__(self, lab, host, gpuprov, tmp):
        self.lab, self.host, self.gpuprov, self.tmp = lab, host, gpuprov, tmp
        wrapper = tmp / "in-net"
        wrapper.write_text("#!/bin/sh\nexec nsenter --net=/proc/%d/ns/net %s \"$@\"\n" % (lab.pid, gpuprov.program))
        wrapper.chmod(0o755)
        gpuprov.program = wrapper
        lab.hosts_file(tmp / "hosts.yaml", host)
        (tmp / "login").write_text(LOGIN)

    def spec(self, container, **more):
        text = {"name": "box", "offers": [{"provider": "ssh", "hosts": "hosts.yaml"}], "validate": {"time": "1m"},
                "bootstrap": {"container": container},
                "secrets": [{"env": "RUN", "from": "file:login"}], **more}
        path = self.tmp / "spec.yaml"
        path.write_text(json.dumps(text))
        return path

    def up(self, container, code=0, **more):
        """done.events; done.check: what host.container found."""
        return checked(self.gpuprov("up", self.spec(container, **more), "--json", code=code))

    def validate(self, code=7):
        return checked(self.gpuprov("validate", "box", "--json", code=code))

    def sh(self, script):
        return self.host.sh(script).stdout.strip()


@pytest.fixture(name="node")
def node_fixture(lab, gpuprov, tmp_path):
    made = []

    def make(**kw):
        host = lab.host(**kw)
        made.append(host)
        return Node(lab, host, gpuprov, tmp_path)
    yield make
    for host in made:
        host.remove()


def test_podman_with_an_image_and_gpus(node, lab):
    it = node(gpus=2)
    digest = lab.push(it.host, "bb:1")
    image = lab.image("bb:1")
    want = {"engine": "podman", "images": [image], "registry_auth": "RUN"}
    up = it.up(want)
    assert digest in it.sh("podman image inspect -f '{{.RepoDigests}}' " + image)
    texts = [e.get("text", "") for e in up.events]
    assert f"{image} is {digest}" in texts and "pulls " + image in texts, texts
    assert up.check["verdict"] == "pass" and up.check["required"], up.check
    assert up.check["message"] == "a container of podman sees all 2 GPUs (CDI)"
    # a GPU that fell off: the description still names it
    it.host.sh("rm /dev/nvidia1")
    bad = it.validate().check
    assert (bad["verdict"], bad["code"]) == ("fail", "no_container") and "nvidia1" in bad["message"], bad
    # a description from when the node had fewer GPUs
    it.host.sh("systemctl restart gpuprov-cdi && mknod -m 666 /dev/nvidia1 c 1 3")
    bad = it.validate().check
    assert (bad["verdict"], bad["message"]) == ("fail", "a container of podman sees 1 of 2 GPUs (CDI)"), bad
    # bootstrap repairs the description, and pulls nothing
    again = it.up(want)
    assert again.check["verdict"] == "pass", again.check
    assert {e["step"] for e in again.events if e.get("phase") == "bootstrap" and e["status"] == "done" and e["step"]} == {
        "container-cdi"}
