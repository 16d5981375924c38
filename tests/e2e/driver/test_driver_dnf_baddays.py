# SPDX-License-Identifier: Apache-2.0
"""The driver's bad days where dnf manages the packages. dnf returns 0 when a script of a package fails: the node is
judged."""
import contextlib

import pytest
from dnf_node import EL9, DnfLab, DnfNode
from gpu_node import H100, NVSWITCH
from gpu_repo import DRIVER, LATER
from gpu_rpm_repo import POST
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
OLD, NEWER = "5.14.0-503.11.1.el9_5.x86_64", "5.14.0-611.5.1.el9_7.x86_64"
NOT_BUILT, CUT, BROKEN = "590.44.01", "575.57.08", "570.172.08"
MODULE = "kmod-nvidia-open-dkms"
GB200 = {**H100, "device": "0x2941"}
DRACUT = "#!/bin/sh\nls /etc/modprobe.d >/dracut.log\n"


def fill(lab):
    lab.distribution.kernel(EL9)
    lab.distribution.kernel(NEWER, boots=True)
    repo = lab.made("rhel9")
    for version in (DRIVER, LATER, "595.45.04"):
        repo.driver(version)
    repo.driver(NOT_BUILT, dkms='BUILD_EXCLUSIVE_KERNEL="^4[.].*"\n')
    repo.driver(CUT, post="exit 3\n")
    repo.driver(BROKEN, post="rm -r /usr/src/nvidia-open-{0}\nexit 3\n" + POST)


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


def branch(node, name, **more):
    return node.spec(driver={"branch": name, "source": node.lab.repo.source(), **more})


def works(node, version):
    assert version in node.sh("cat /proc/driver/nvidia/version") and "H100" in node.sh("nvidia-smi -L")
    assert node.sh("modinfo -k $(uname -r) -F version nvidia") == version


def untouched(node):
    """No package of NVIDIA's is there."""
    assert node.sh("rpm -qa '*nvidia*' 'cuda-*'") == ""


# --- the repository ---

@pytest.mark.long
def test_a_key_with_another_hash_is_not_trusted(node):
    node.run(branch(node, "580", source=node.lab.repo.source("0" * 64)),
             error="step 'driver-repo': the key of the repository has another hash than expected")
    assert node.host.sh("rpm -q gpg-pubkey", check=False).returncode == 1
    untouched(node)


@pytest.mark.long
def test_packages_signed_by_another_key(node):
    name = MODULE + "-" + LATER + "*.rpm"
    node.lab.repo.sign("evil@localhost", name)
    node.lab.repo.index()
    try:
        node.run(node.spec(), error="step 'driver': dnf reported: Error: GPG check FAILED")
    finally:
        node.lab.repo.sign("lab@localhost", name)
        node.lab.repo.index()
    untouched(node)


@pytest.mark.long
def test_a_package_that_is_gone(node):
    """From the server only; from the list, so that another lacks it. Once it is back, it is found."""
    rpm = next(node.lab.repo.folder.glob("%s-%s*" % (MODULE, LATER)))
    rpm.rename(rpm.with_suffix(".gone"))
    try:
        out = node.run(node.spec(), error="step 'driver': dnf reported: Error")
        assert "404" in out.result["error"], out
    finally:
        rpm.with_suffix(".gone").rename(rpm)
    untouched(node)
    node.lab.repo.index(without=[MODULE + "-580"])
    try:
        out = node.run(node.spec(), error="step 'driver': dnf reported: Error: ")
        assert "nothing provides %s = 3:" % MODULE in out.result["error"], out
    finally:
        node.lab.repo.index()
    node.run(node.spec())
    works(node, LATER)


@contextlib.contextmanager
def no_server(lab):
    lab.serve_no_more()
    try:
        yield
    finally:
        lab.serve()


def test_a_repository_that_does_not_answer(node):
    node.sh("rm /etc/yum.repos.d/*; mkdir -p /lib/modules/%s/build; : >/lib/modules/%s/build/Makefile" % (EL9, EL9))
    with no_server(node.lab):
        node.run(node.spec(), error="step 'driver-repo': cannot fetch http://10.77.0.1:8080/repos/rhel9/x86_64/D42D0685.pub: curl: (7)")
    node.run(node.spec(), error="step 'driver': no repository of this node has dkms, which builds the driver's module, or "
             "epel-release: add the repository EPEL to the image")
    node.sh("dnf clean all")
    with no_server(node.lab):
        out = node.run(node.spec(), error="step 'driver': dnf reported: Error: Failed to download metadata for repo 'cuda'")
        assert "Curl error (7)" in out.result["error"], out
    untouched(node)


@pytest.mark.long
def test_epel_is_added_for_dkms(made):
    """Of a clone of RHEL, whose own repository has the package that adds it."""
    node = made(repos=["distribution"])
    out = node.run(node.spec())
    assert "adds the repository EPEL, which has dkms" in out.texts("driver")
    works(node, LATER)


# --- the build ---

def test_a_module_that_is_not_built(node):
    """Its package ignores that, and dnf returns 0."""
    node.run(branch(node, "590"), error="step 'driver': no module was built for the running kernel " + EL9)
    assert node.version("nvidia-open") == NOT_BUILT
    assert "Complete!" in node.sh("cat /home/ops/.gpuprov/nodes/*/steps/driver-*/manager.log")


@pytest.mark.long
def test_a_script_that_fails_before_the_build(node):
    """rpm does not run it again: dkms is told of the source."""
    out = node.run(branch(node, "575"))
    assert "a script of package %s-3:%s-1.el9.noarch failed, and dnf reported success" % (MODULE, CUT) in str(out.events), out
    works(node, CUT)


@pytest.mark.long
def test_a_script_that_fails_and_leaves_no_source(node):
    error = "step 'driver': no module was built for the running kernel %s: dkms does not have its source: " % EL9
    node.run(branch(node, "570"), error=error + "a script of package %s-3:%s-1.el9.noarch failed" % (MODULE, BROKEN))
    node.run(branch(node, "570"), error=error + "run 'dnf reinstall %s'" % MODULE)
    assert node.version(MODULE) == BROKEN


@pytest.mark.long
def test_the_disk_is_full_during_the_build(node):
    node.sh("mount -t tmpfs -o size=64k full /var/lib/dkms")
    node.run(node.spec(), error="the disk is full")
    node.sh("umount /var/lib/dkms")
    node.run(node.spec())
    works(node, LATER)


@pytest.mark.long
def test_a_reboot_in_the_middle_of_the_build(node):
    """rpm has its package already, but not the packages behind it."""
    def reboot(_):
        wait_for(lambda: node.host.sh("pgrep -f [w]ait.sh", check=False).stdout, 120)
        node.host.put("/go", "")  # for the second time
        node.host.sh("reboot", check=False)
    node.host.put("/hold", "")
    spec = node.spec()
    node.run(spec, during=reboot)
    assert node.host.boots == 2
    works(node, LATER)
    assert node.run(spec).applied == []


# --- kernels ---

@pytest.mark.long
def test_a_kernel_whose_headers_are_gone_is_left(made):
    """The node moves to the newest kernel, is rebooted, and goes on."""
    node = made(kernel=OLD)
    out = node.run(node.spec())
    assert node.host.boots == 2 and node.sh("uname -r") == NEWER
    assert any("reboots the node: kernel %s has no headers any more" % OLD in t for t in out.texts())
    works(node, LATER)
    assert "kernel-0:5.14.0-611.5.1.el9_7.*" in node.holds()


@pytest.mark.long
def test_a_kernel_upgrade_without_a_build(node):
    """The holds do not hide the headers of the new kernel."""
    node.run(node.spec())
    assert "kernel-devel-0:5.14.0-570.12.1.el9_6.*" in node.holds()
    node.host.put("/etc/lab-kernel", NEWER + "\n")
    node.host.sh("reboot", check=False)
    wait_for(lambda: node.host.boots == 2)
    node.host.wait_ssh()
    out = node.run(node.spec())
    assert {"kernel-headers", "driver"} <= set(out.applied) and node.host.boots == 2
    works(node, LATER)


@pytest.mark.long
def test_nouveau_has_the_gpu(node):
    """The initial RAM disk is made again by dracut, and the node is rebooted."""
    node.host.put("/usr/bin/dracut", DRACUT, 0o755)
    node.sh("rm -f /usr/sbin/update-initramfs; echo 'nouveau 2000000 1 - Live 0x0' >/run/lab-modules; touch /etc/lab-busy")
    out = node.run(node.spec())
    assert "nouveau-off" in out.applied and node.host.boots == 2
    assert "gpuprov-nouveau.conf" in node.sh("cat /dracut.log")
    works(node, LATER)


# --- other drivers, and the services of this one ---

@pytest.mark.long
def test_packages_of_another_branch(node):
    node.run(branch(node, "595"))
    node.run(branch(node, "580"), error=" is installed, and the spec wants driver 580: write bootstrap.driver: {replace: true}")
    works(node, "595.45.04")
    node.run(branch(node, "580", replace=True))
    works(node, LATER)
    assert "595." not in node.sh("rpm -qa '*nvidia*'") + str(node.holds())


@pytest.mark.long
def test_services_have_the_drivers_version(made):
    """The fabric manager and, on a GB200, IMEX. The list of packages is that of a day without them."""
    node = made(devices=(GB200, NVSWITCH))
    spec = branch(node, DRIVER)
    node.lab.repo.index(without=["nvidia-fabricmanager-" + DRIVER])
    try:
        node.run(spec, error="step 'fabric-manager': the repository has no nvidia-fabricmanager of the driver's version " + DRIVER)
    finally:
        node.lab.repo.index()
    out = node.run(spec)
    assert out.applied[:2] == ["fabric-manager", "imex"], out
    assert node.version("nvidia-fabricmanager") == node.version("nvidia-imex") == DRIVER
    assert {"nv-fabricmanage", "nvidia-imex"} <= set(node.sh("cat /proc/[0-9]*/comm").split())
    assert node.run(spec).applied == []
