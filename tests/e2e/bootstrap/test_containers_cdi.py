# SPDX-License-Identifier: Apache-2.0
"""The engines of Debian 13, which know CDI: docker 26 has it switched off, containerd 1.7 too, podman 5 has it on."""
import pytest
from container_node import ContainerNode
from containers import ContainerLab
from lab import why_not

pytestmark = [pytest.mark.root, pytest.mark.namespaces, pytest.mark.skipif(bool(why_not()), reason=str(why_not()))]


@pytest.fixture(scope="module", name="lab")
def lab_fixture(tmp_path_factory):
    with ContainerLab(tmp_path_factory.mktemp("containers"), base_script="base_container13.sh") as lab:
        yield lab


@pytest.mark.long
@pytest.mark.parametrize("engine", ["docker", "containerd", "podman"])
def test_an_engine_with_cdi_gets_cdi(lab, tmp_path, engine):
    host = lab.host(gpus=2)
    it = ContainerNode(lab, host, tmp_path)
    lab.push(host, "bb:1")
    want = {"engine": engine, "images": [lab.image("bb:1")], "registry_auth": "RUN"}
    it.set_up(want)
    found = it.check(engine)
    # containerd 1.7 gives CDI to Kubernetes alone: its own program ctr takes the other way
    way = "NVIDIA runtime" if engine == "containerd" else "CDI"
    assert found["message"] == f"a container of {engine} sees all GPUs ({way})", found
    assert "enable_cdi = true" in it.sh("containerd config dump") or engine != "containerd"
    assert '- name: "all"' in it.sh("cat /run/cdi/nvidia.yaml")
    assert it.set_up(want).result["applied"] == 0
    if engine == "docker":
        assert "/var/run/cdi" in it.sh("docker info -f '{{json .CDISpecDirs}}'")
        unknown = host.sh("docker run --rm --device nvidia.com/gpu=7 %s true" % lab.image("bb:1"), check=False)
        assert "unresolvable CDI devices nvidia.com/gpu=7" in unknown.stderr, unknown
        # switched off by someone: containers get no GPU, and the step switches it on again
        host.sh("echo '{}' >/etc/docker/daemon.json; systemctl restart docker")
        assert it.check(engine)["verdict"] == "fail"
        assert it.set_up(want).done() == ["container-toolkit"]
        assert it.check(engine)["verdict"] == "pass"
    # the description names a GPU that fell off: nothing of this is a pass
    host.sh("rm /dev/nvidia1")
    assert engine == "containerd" or it.check(engine)["verdict"] == "fail"
    host.remove()
