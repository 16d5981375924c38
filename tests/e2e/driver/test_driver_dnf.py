# SPDX-License-Identifier: Apache-2.0
"""The driver, CUDA, cuDNN and NCCL where dnf manages the packages: real dnf, rpm, gpg and dkms on a host that says that it
is Rocky Linux 9; stand-in packages of NVIDIA's names, epochs and module streams."""
import json
import os
import subprocess

import pytest
from dnf_node import AMAZON, EL9, DnfLab, DnfNode
from gpu_repo import DRIVER, LATER

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


def fill(lab):
    lab.distribution.kernel(EL9)
    lab.distribution.kernel(AMAZON, name="kernel6.12")
    for system in ("rhel9", "amzn2023"):
        lab.made(system).driver(DRIVER)
        lab.repos[system].driver(LATER)
        lab.repos[system].libraries()
    # has no module streams
    lab.made("rhel10").driver(DRIVER, streams=False)
    lab.repos["rhel10"].driver("590.44.01", streams=False)


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    with DnfLab(tmp_path_factory.mktemp("lab"), fill) as lab:
        yield lab


@pytest.fixture(name="made")
def made_fixture(lab, tmp_path):
    """made(...): a node; ended with the test."""
    nodes = []

    def make(**more):
        nodes.append(DnfNode(lab, tmp_path, **more).start())
        return nodes[-1]
    yield make
    for node in nodes:
        node.remove()


@pytest.fixture(name="node")
def node_fixture(made):
    return made()


@pytest.mark.long
def test_a_bare_node_gets_all_of_it_once(node):
    spec = node.spec(cuda={"runtime": ["13.0"]}, cudnn="auto", nccl="auto")
    out = node.run(spec)
    assert out.applied == ["kernel-headers", "driver-repo", "driver", "persistence", "cuda", "cudnn", "nccl", "holds",
                           "agent"], out
    assert node.sh("dkms status -k $(uname -r)").startswith("nvidia-open/%s, %s, " % (LATER, EL9))
    assert node.sh("modinfo -k $(uname -r) -F version nvidia") == LATER
    assert LATER in node.sh("cat /proc/driver/nvidia/version")
    assert "H100" in node.sh("nvidia-smi -L")
    assert {"nvidia-open-3:%s-1.el9.*" % LATER, "kmod-nvidia-open-dkms-3:%s-1.el9.*" % LATER, "libnccl-0:2.30.7-1+cuda13.3.*",
            "libcudnn9-cuda-13-0:9.17.0.29-1.*", "kernel-devel-0:5.14.0-570.12.1.el9_6.*"} <= set(node.holds())
    assert "nvidia-persiste" in node.sh("cat /proc/[0-9]*/comm")
    again = node.run(spec)
    assert again.applied == [] and again.result["applied"] == 0, again


@pytest.mark.long
def test_amazon_linux(made):
    """Its kernel 6.12 has headers of another name; dkms is its own."""
    node = made(release="amzn-2023", kernel=AMAZON)
    spec = node.spec(driver={"branch": DRIVER, "source": node.lab.repos["amzn2023"].source()}, cuda="13.0", cudnn="auto",
                     nccl="auto")
    out = node.run(spec)
    assert out.applied == ["kernel-headers", "driver-repo", "driver", "persistence", "cuda", "cudnn", "nccl", "holds",
                           "agent"], out
    assert node.sh("rpm -q kernel6.12-devel") == "kernel6.12-devel-" + AMAZON
    assert node.sh("modinfo -k $(uname -r) -F version nvidia") == DRIVER and "H100" in node.sh("nvidia-smi -L")
    assert node.sh("/usr/local/cuda-13.0/bin/nvcc") == "release 13.0"
    assert "nvidia-open-3:%s-1.amzn2023.*" % DRIVER in node.holds()
    assert node.run(spec).applied == []


@pytest.mark.long
def test_rhel_10_without_a_pinned_key(made):
    """Its key's hash is not known; with that of a mirror the branch is found without module streams."""
    node = made(release="rhel-10.0")
    node.run(node.spec(driver="580"), error="step 'driver-repo': the hash of the key of https://developer.download.nvidia.com/"
             "compute/cuda/repos/rhel10/x86_64 is not known, and a key without a hash is not trusted: write it behind the "
             "address: driver.source: URL#sha256=HASH")
    assert node.sh("rpm -qa '*nvidia*'") == ""
    spec = node.spec(driver={"branch": "580", "source": node.lab.repos["rhel10"].source()})
    node.run(spec)
    assert node.version("nvidia-open") == DRIVER and "H100" in node.sh("nvidia-smi -L")
    assert node.run(spec).applied == []


@pytest.mark.long
def test_an_exact_version_is_pinned_and_held(node):
    """An upgrade of all packages leaves it; another version in the spec replaces it, also an older one."""
    for version in (DRIVER, LATER, DRIVER):
        spec = node.spec(driver={"branch": version, "source": node.lab.repo.source()})
        out = node.run(spec)
        assert out.applied.count("driver") == 1, out
        node.sh("dnf -y upgrade")
        assert {node.version(p) for p in ("nvidia-open", "kmod-nvidia-open-dkms", "nvidia-driver-cuda")} == {version}
        assert node.sh("modinfo -k $(uname -r) -F version nvidia") == version and "H100" in node.sh("nvidia-smi -L")
        assert [h for h in node.holds() if h.startswith("nvidia-open-")] == ["nvidia-open-3:%s-1.el9.*" % version]
        assert node.run(spec).applied == []
    # what comes later is held too
    assert node.run(node.spec(driver={"branch": "580", "source": node.lab.repo.source()}, nccl="auto")).applied == ["nccl", "holds"]
    assert {"nvidia-open-3:%s-1.el9.*" % DRIVER, "libnccl-0:2.30.7-1+cuda13.3.*"} <= set(node.holds())


@pytest.mark.long
def test_up_brings_a_host_with_systemd_to_a_driver(made, lab, tmp_path, program):
    """The whole program on a host of the ssh provider: services run by systemd, and a second run changes nothing."""
    node = made(kind="systemd")
    node.sh("mount --bind /lab-pci /sys/bus/pci/devices")
    (tmp_path / "known_hosts").write_text("%s %s\n" % (node.host.address, node.host.host_key()))
    (tmp_path / "hosts.yaml").write_text(json.dumps({"hosts": [{
        "address": node.host.address, "user": "ops", "key": str(lab.key), "known_hosts": str(tmp_path / "known_hosts")}]}))
    spec = tmp_path / "up.yaml"
    spec.write_text(json.dumps({
        "name": "gpu", "offers": [{"provider": "ssh", "hosts": "hosts.yaml"}], "validate": {"time": "1m"},
        "bootstrap": {"driver": {"branch": "580", "source": lab.repo.source()}, "cuda": {"runtime": ["13.0"]}}}))
    env = {**os.environ, "GPUPROV_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)}
    first = lab.run([str(program), "up", str(spec), "--json"], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    steps = [json.loads(line).get("step") for line in first.stderr.splitlines() if '"status":"done"' in line]
    assert first.returncode == 0, first
    ours = ["kernel-headers", "driver-repo", "driver", "persistence", "cuda", "holds"]
    assert [step for step in steps if step in ours] == ours, first
    assert LATER in node.sh("cat /proc/driver/nvidia/version")
    assert node.sh("systemctl is-active nvidia-persistenced") == "active"
    assert node.run(node.spec(cuda={"runtime": ["13.0"]})).applied == []
