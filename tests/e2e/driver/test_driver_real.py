# SPDX-License-Identifier: Apache-2.0
"""Debian's own NVIDIA driver, installed by gpuprov and really built by dkms (real_driver.py), and its real failures. Only
the running kernel and the loading are pretended: no GPU is here, and what the real programs then report is told."""
import re

import pytest
import real_driver
from gpu_node import H100, GpuNode
from gpu_repo import DAEMON, DRIVER, SMI, GpuRepo

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
NEWER = "6.1.0-99-amd64"
DISTRO = real_driver.DISTRO


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    lab = real_driver.start_lab(tmp_path_factory.mktemp("lab"))
    yield lab
    lab.debian.close()
    lab.close()


@pytest.fixture(name="record", scope="module")
def record_fixture(lab, tmp_path_factory):
    return real_driver.built(lab, tmp_path_factory.mktemp("built"))


@pytest.fixture(name="made")
def made_fixture(lab, tmp_path):
    """made(kernel, base): a node that runs this kernel; ended with the test."""
    nodes = []

    def make(kernel=None, base=None):
        lab.base, kept = base or lab.base, lab.base
        node = GpuNode(lab, tmp_path, (H100,))
        lab.base = kept
        nodes.append(node)
        lab.debian.use(node.host)
        if kernel:
            node.host.put("/etc/lab-kernel", kernel + "\n")
        return node.start()
    yield make
    for node in nodes:
        node.remove()


@pytest.fixture(name="plain")
def plain_fixture(lab, made):
    """plain(kernel): a node without the driver."""
    return lambda kernel=None: made(kernel, lab.plain)


def error(events):
    assert events[-1]["rc"] != 0, events
    return events[-1]["error"]


def version(lab):
    """The driver's, of the package that the hosts' apt knows."""
    [deb] = lab.debian.folder.glob("nvidia-kernel-dkms_*.deb")
    return deb.name.split("_")[1].split("-")[0]


def status(node):
    return node.sh("dkms status -k $(uname -r)")


# --- failures that end early ---

@pytest.mark.long
def test_no_compiler(plain):
    node = plain()
    node.sh("mv /usr/bin/gcc-12 /usr/bin/other-gcc")
    node.run(node.spec(driver=DISTRO), error="step 'driver': no module was built for the running kernel %s: the node has no "
             "C compiler: install gcc" % node.lab.kernel)
    assert status(node).endswith(": added") and node.sh("dpkg --audit")


@pytest.mark.long
def test_a_kernel_that_the_driver_does_not_support(plain):
    """Debian's real-time kernel, whose headers gpuprov installs: apt-get returns 0, and nothing was built."""
    kernel = plain().lab.kernel.replace("-amd64", "-rt-amd64")
    node = plain(kernel)
    out = node.run(node.spec(driver=DISTRO), error="step 'driver': no module was built for the running kernel %s: driver %s "
                   "does not support it (BUILD_EXCLUSIVE_KERNEL=" % (kernel, version(node.lab)))
    assert out.applied == ["kernel-headers"] and "!CONFIG_PREEMPT_RT" in out.result["error"]
    assert "install ok installed" in node.sh("dpkg -s nvidia-kernel-dkms")
    assert status(node).endswith(": added")


@pytest.mark.long
def test_not_the_compiler_of_the_kernel(plain):
    """A C compiler is there, but the kernel's makefiles call another."""
    node = plain()
    node.sh("mv /usr/bin/gcc-12 /usr/bin/gcc-11; ln -sf gcc-11 /usr/bin/gcc")
    node.run(node.spec(driver=DISTRO), error="step 'driver': no module was built for the running kernel %s: it was built with "
             "gcc-12, which the node does not have: install gcc-12" % node.lab.kernel)


@pytest.mark.long
def test_headers_are_missing(plain):
    """apt-get returns 0, and dkms reports "added"."""
    node = plain()
    node.sh("dpkg -P linux-headers-amd64 linux-headers-$(uname -r) >/dev/null 2>&1; apt-get -q update >/dev/null 2>&1")
    node.sh("DEBIAN_FRONTEND=noninteractive apt-get -q -y install nvidia-kernel-dkms nvidia-smi libcuda1 >/root/log 2>&1")
    assert status(node).endswith(": added")
    node.run(node.spec(driver=DISTRO), error="step 'kernel-headers': the repositories have neither the headers of kernel %s "
             "nor linux-image-amd64: choose a newer image" % node.lab.kernel)


# --- the build ---

@pytest.mark.long
def test_the_disk_is_full_during_the_build(record):
    assert "step 'driver': no module was built for the running kernel" in error(record["full"])
    assert error(record["full"]).endswith(": the disk is full (/var/lib/dkms)")
    assert record["full_dkms"].endswith(": added")


@pytest.mark.long
def test_a_node_without_a_gpu(record, made):
    """The second attempt finishes the installation and builds; the honest result of loading: No such device."""
    assert "step 'driver': the driver's module finds no GPU that it supports (No such device): check that the node has an " \
        "NVIDIA GPU" in error(record["done"])
    assert any("finishes an interrupted installation" in e.get("text", "") for e in record["done"])
    node = made()
    want = version(node.lab)
    assert re.fullmatch("nvidia-current/%s, %s, x86_64: installed" % (want, node.lab.kernel), status(node))
    assert node.sh("modinfo -F version nvidia-current") == want and node.sh("modinfo -F license nvidia-current") == "NVIDIA"
    for name in ("nvidia-current", "nvidia-current-uvm", "nvidia-current-modeset", "nvidia-current-drm"):
        assert node.lab.kernel in node.sh("modinfo -F vermagic " + name)


# --- with the built module ---

@pytest.mark.long
def test_what_the_real_programs_report_without_a_gpu(record, made):
    """The module of that build loads, as far as programs can tell. Each program after it reports that there is no GPU."""
    assert record
    node = made()
    want = version(node.lab)
    broken = "step 'driver': driver %s does not work: nvidia-smi reported: " % want
    out = node.run(node.spec(driver=DISTRO), error=broken + "Failed to initialize NVML")  # its device is an empty file
    assert not any("builds the module" in text for text in out.texts())
    assert "x86_64 Kernel Module  %s " % want in node.sh("cat /proc/driver/nvidia/version")
    node.sh("rm /run/lab-nvidiactl")
    node.run(node.spec(driver=DISTRO), error=broken + "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver")
    node.host.put("/usr/local/bin/nvidia-smi", SMI, 0o755)
    node.run(node.spec(driver=DISTRO), error="step 'persistence': nvidia-persistenced does not start: ")
    node.host.put("/usr/local/bin/nvidia-persistenced", DAEMON % {"match": ""}, 0o755)
    out = node.run(node.spec(driver=DISTRO))
    assert out.applied == ["persistence", "holds", "agent"]
    assert {"nvidia-kernel-dkms", "nvidia-smi", "libcuda1"} <= set(node.sh("apt-mark showhold").split())
    assert node.run(node.spec(driver=DISTRO)).applied == []


@pytest.mark.long
def test_a_package_that_fails_beside_the_driver(record, made):
    """apt-get fails because of nvidia-persistenced. The module is there: the driver is judged for itself."""
    assert record
    node = made()
    node.sh("dpkg -P libcuda1 nvidia-smi nvidia-persistenced; userdel nvpd")
    node.host.put("/usr/sbin/adduser", "#!/bin/sh\nexit 1\n", 0o755)
    node.host.put("/usr/local/bin/nvidia-smi", SMI, 0o755)
    out = node.run(node.spec(driver=DISTRO), error="step 'persistence': ")
    assert any(text.startswith("nvidia-persistenced is not configured; apt-get reported: dpkg: error processing package "
                               "nvidia-persistenced") for text in out.texts()), out.texts()
    assert out.applied == ["driver"] and "installed" in status(node)


@pytest.mark.long
def test_only_the_module_of_another_kernel_is_there(record, made):
    """dkms reports "installed", for a kernel that does not run."""
    assert record
    node = made(NEWER)
    assert node.sh("dkms status").endswith(": installed")
    node.run(node.spec(driver=DISTRO), error="step 'kernel-headers': the repositories have neither the headers of kernel "
             + NEWER)
    assert not node.host.file("/run/lab-modules").exists()


@pytest.mark.long
def test_another_driver_replaces_debians(record, made, lab, tmp_path):
    """With replace: true Debian's packages and its built modules go, before NVIDIA's come."""
    assert record
    repo = GpuRepo(tmp_path / "nvidia")
    repo.driver(DRIVER)
    repo.finish()
    repo.serve(lab, "10.77.0.1", 8082)
    try:
        node = made()
        source = {"branch": "580", "source": repo.source()}
        node.run(node.spec(driver=source), error=" is installed, and the spec wants driver 580: write bootstrap.driver: "
                 "{replace: true}")
        assert status(node).endswith(": installed")
        node.run(node.spec(driver={**source, "replace": True}))
        assert status(node).startswith("nvidia/%s, %s, " % (DRIVER, lab.kernel)) and "\n" not in status(node)
        assert DRIVER in node.sh("cat /proc/driver/nvidia/version")
        assert not node.sh("dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' | grep '^installed.*%s' || true"
                           % version(lab))
    finally:
        repo.close()
