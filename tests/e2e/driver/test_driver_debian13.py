# SPDX-License-Identifier: Apache-2.0
"""The order of test_driver.py on Debian 13: its apt 3, sqv, dkms 3.2, compiler and kernel headers."""
import pytest
from gpu_node import GpuNode, driver_and_libraries, gets_all_of_it_once, start_lab

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    lab = start_lab(tmp_path_factory.mktemp("lab"), driver_and_libraries, base_script="base_gpu13.sh", system="debian13")
    yield lab
    lab.repo.close()
    lab.kernels.close()
    lab.close()


@pytest.fixture(name="node")
def node_fixture(lab, tmp_path):
    node = GpuNode(lab, tmp_path).start()
    yield node
    node.remove()


@pytest.mark.long
def test_a_bare_node_gets_all_of_it_once(node):
    assert node.sh(". /etc/os-release; echo $ID-$VERSION_ID") == "debian-13"
    # the headers come with the kernel and its modules here: nouveau is one of them
    gets_all_of_it_once(node, ["nouveau-off"])
    assert "blacklist nouveau" in node.sh("cat /etc/modprobe.d/gpuprov-nouveau.conf")


@pytest.mark.long
def test_a_kernel_that_debians_driver_does_not_build_for(node):
    """Nothing is installed: the table knows that 550 does not build for the newest kernel of Debian 13."""
    node.run(node.spec(driver={"source": "distro"}), error="debian-13 and kernel %s and a driver of the distribution: the "
             "distribution has branch 550 only; the modules of branch 550 do not build for this kernel" % node.lab.kernel)
    assert not node.sh("dpkg -l 'nvidia-*' 2>/dev/null | grep '^ii' || true")
