# SPDX-License-Identifier: Apache-2.0
"""The driver, CUDA, cuDNN and NCCL where dnf manages the packages: real dnf, rpm, gpg and dkms on a host that says that it
is Rocky Linux 9; stand-in packages of NVIDIA's names, epochs and module streams."""
import pytest
from dnf_node import DnfNode, start_lab
from gpu_repo import DRIVER, LATER

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


def fill(repo, distribution):
    distribution.system()
    distribution.kernel("5.14.0-570.12.1.el9_6.x86_64")
    repo.driver(DRIVER)
    repo.driver(LATER)
    repo.libraries()


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    lab = start_lab(tmp_path_factory.mktemp("lab"), fill)
    yield lab
    lab.close()


@pytest.fixture(name="node")
def node_fixture(lab, tmp_path):
    node = DnfNode(lab, tmp_path).start()
    yield node
    node.remove()


def test_a_bare_node_gets_all_of_it_once(node):
    spec = node.spec(cuda={"runtime": ["13.0"]}, cudnn="auto", nccl="auto")
    out = node.run(spec)
    assert out.applied == ["kernel-headers", "driver-repo", "driver", "persistence", "cuda", "cudnn", "nccl", "holds",
                           "agent"], out
    assert node.sh("dkms status -k $(uname -r)").startswith("nvidia/%s, %s, " % (LATER, node.lab.kernel))
    assert node.sh("modinfo -k $(uname -r) -F version nvidia") == LATER
    assert LATER in node.sh("cat /proc/driver/nvidia/version")
    assert "H100" in node.sh("nvidia-smi -L")
    held = node.sh("grep -v '^#' /etc/dnf/plugins/versionlock.list").split()
    assert {"nvidia-open-3:%s-1.el9.*" % LATER, "kmod-nvidia-open-dkms-3:%s-1.el9.*" % LATER, "libnccl-0:2.30.7-1+cuda13.3.*",
            "libcudnn9-cuda-13-0:9.17.0.29-1.*", "kernel-devel-0:5.14.0-570.12.1.el9_6.*"} <= set(held)
    assert "nvidia-persiste" in node.sh("cat /proc/[0-9]*/comm")
    again = node.run(spec)
    assert again.applied == [] and again.result["applied"] == 0, again
