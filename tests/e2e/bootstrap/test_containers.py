# SPDX-License-Identifier: Apache-2.0
"""Container engines on real systemd hosts: installed, connected with (stand-in) GPUs, with images of a registry that
needs a login; and the check of validation that runs a container."""
import json

import pytest
from container_node import ContainerNode
from containers import LOGIN, ContainerLab
from lab import why_not
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces, pytest.mark.skipif(bool(why_not()), reason=str(why_not()))]


@pytest.fixture(scope="module", name="lab")
def lab_fixture(tmp_path_factory):
    with ContainerLab(tmp_path_factory.mktemp("containers")) as lab:
        yield lab


@pytest.fixture(name="node")
def node_fixture(lab, tmp_path):
    made = []

    def make(**kw):
        host = lab.host(**kw)
        made.append(host)
        return ContainerNode(lab, host, tmp_path)
    yield make
    for host in made:
        host.remove()


@pytest.mark.long
def test_podman_from_a_spec_to_a_proven_node(node, lab, gpuprov, tmp_path):
    it = node(gpus=2)
    digest = lab.push(it.host, "bb:1")
    image = lab.image("bb:1")
    (tmp_path / "login").write_text(LOGIN)
    lab.hosts_file(tmp_path / "hosts.yaml", it.host)
    (tmp_path / "spec.yaml").write_text(json.dumps({
        "name": "box", "offers": [{"provider": "ssh", "hosts": "hosts.yaml"}], "validate": {"time": "1m"},
        "bootstrap": {"container": {"engine": "podman", "images": [image], "registry_auth": "RUN"}},
        "secrets": [{"env": "RUN", "from": "file:login"}]}))
    lab.enter(gpuprov, tmp_path)
    up = gpuprov("up", tmp_path / "spec.yaml", "--json")
    texts = [e["text"] for e in up.events]
    assert f"{image} is {digest}" in texts and "pulls " + image in texts, texts
    assert digest in it.sh("podman image inspect -f '{{.RepoDigests}}' " + image)
    found = next(c for c in up.json["report"]["nodes"][0]["checks"] if c["check"] == "host.container")
    assert (found["verdict"], found["required"]) == ("pass", True), found
    assert found["message"] == "a container of podman sees all GPUs (CDI)"
    # a GPU that fell off: the description still names it, and the node is not proven again
    it.host.sh("rm /dev/nvidia1")
    bad = gpuprov("validate", "box", "--json", code=7)
    found = next(c for c in bad.json["nodes"][0]["checks"] if c["check"] == "host.container")
    assert (found["verdict"], found["code"]) == ("fail", "no_container") and "nvidia1" in found["message"], found


@pytest.mark.long
def test_podman_keeps_its_gpus(node):
    it = node(gpus=2)
    want = {"engine": "podman"}
    it.set_up(want)
    assert it.check("podman")["verdict"] == "pass"
    # a description from when the node had fewer GPUs is repaired, and nothing else is done
    it.host.sh("rm /dev/nvidia1; systemctl restart gpuprov-cdi && mknod -m 666 /dev/nvidia1 c 1 3")
    assert it.check("podman")["message"] == "a container of podman sees 1 of 2 GPUs (CDI)"
    assert it.set_up(want).done() == ["container-cdi"]
    assert it.check("podman")["verdict"] == "pass"
    assert it.set_up(want).result["applied"] == 0
    # the description is written again at boot
    it.host.sh("systemctl reboot")
    wait_for(lambda: it.host.boots == 2, 60)
    it.host.wait_ssh()
    assert it.check("podman")["verdict"] == "pass"
    # a container keeps its GPU when systemd reads its units again
    it.host.sh("podman import -q /lab/busybox.tar lab/bb:1 && "
               "podman run -d --name keeps --network none --device nvidia.com/gpu=0 lab/bb:1 sleep 600")
    assert it.sh("systemctl daemon-reload; podman exec keeps sh -c 'echo x >/dev/nvidia0 && echo written'") == "written"
    unknown = it.host.sh("podman run --rm --network none --device nvidia.com/gpu=7 lab/bb:1 true", check=False)
    assert unknown.returncode == 126 and "unresolvable CDI devices nvidia.com/gpu=7" in unknown.stderr


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("engine, gpus", [("docker", 2), ("containerd", 1)])
def test_an_engine_without_cdi_gets_the_nvidia_runtime(node, lab, engine, gpus):
    """docker 20 and containerd 1.6 know no CDI. Neither is started at first."""
    it = node(gpus=gpus)
    digest = lab.push(it.host, "bb:2")
    image, exact = lab.image("bb:2"), lab.image("bb@" + digest)
    want = {"engine": engine, "images": [image + "@" + digest, image], "registry_auth": "RUN"}
    up = it.set_up(want)
    assert up.done() == ["container-engine", "container-toolkit", "container-cdi", "images", "agent"]
    assert f"{image} is {digest}" in up.texts("images") and f"{exact} is {digest}" in up.texts("images")
    assert any("has no CDI: its containers get GPUs by the NVIDIA runtime" in t for t in up.texts("container-cdi"))
    found = it.check(engine)
    assert found["message"] == f"a container of {engine} sees {'all GPUs' if gpus > 1 else 'the GPU'} (NVIDIA runtime)", found
    assert it.sh("systemctl is-enabled %s" % engine) == "enabled"
    assert not it.has("/run/cdi/nvidia.yaml")
    assert it.set_up(want).result["applied"] == 0
    # the check leaves nothing
    left = it.sh("docker image ls -a 2>/dev/null; docker ps -a 2>/dev/null; ctr c ls; ctr t ls; ls /tmp")
    assert "gpuprov" not in left, left
    # without the runtime's part in the settings its containers get none
    it.host.sh("rm -f /etc/docker/daemon.json /etc/containerd/config.toml /usr/bin/nvidia-container-runtime; "
               "systemctl restart %s" % engine)
    bad = it.check(engine)
    assert (bad["verdict"], bad["code"]) == ("fail", "no_cdi"), bad


def test_an_engine_on_a_node_without_gpus(node):
    it = node()
    assert it.set_up({"engine": "podman"}).done() == ["agent"], "podman is there already"
    found = it.check("podman")
    assert (found["verdict"], found["message"]) == ("pass", "podman started a container; this node has no GPU")
    assert it.check("docker")["code"] == "no_container"
    assert it.set_up({"engine": "none"}).result["applied"] == 0


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("engine, packages", [("podman", "podman"), ("docker", "docker.io"),
                                              ("containerd", "containerd docker.io")])
def test_an_engine_is_installed_from_the_distribution(node, engine, packages):
    """The distribution's own packages, from a repository with all that they need."""
    it = node()
    it.host.sh("DEBIAN_FRONTEND=noninteractive dpkg --purge %s" % packages)
    assert it.host.sh("command -v %s" % ("ctr" if engine == "containerd" else engine), check=False).returncode != 0
    up = it.set_up({"engine": engine})
    assert f"installs {packages.split()[0]}" in up.texts("container-engine"), up
    assert it.check(engine)["verdict"] == "pass"
    assert it.set_up({"engine": engine}).result["applied"] == 0
