# SPDX-License-Identifier: Apache-2.0
"""The driver's bad days: each ends in an error that names the cause, or is repaired. What is judged is the node."""
import contextlib
import re

import pytest
from gpu_node import H100, NVSWITCH, GpuNode, saw, start_lab
from gpu_repo import DRIVER, LATER
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
NEWER = "6.1.0-99-amd64"
HOLDER = ("import fcntl,time,os\nf=open('/var/lib/dpkg/lock-frontend','w')\nfcntl.lockf(f,fcntl.LOCK_EX)\n"
          "open('/held','w').close()\nwhile not os.path.exists('/release'): time.sleep(.05)\n")
# InfiniBand's modules, built for the running kernel
INFINIBAND = """mkdir /root/ib && cd /root/ib && k=/lib/modules/$(uname -r) && printf '%s\\n' '#include <linux/module.h>' \\
    'MODULE_LICENSE("GPL");' >ib_umad.c && cp ib_umad.c mlx5_ib.c && echo 'obj-m := ib_umad.o mlx5_ib.o' >Makefile &&
    make -C $k/build M=$PWD modules >/root/ib.log 2>&1 && mkdir -p $k/updates && cp ./*.ko $k/updates/ && depmod -a
"""
MOKUTIL = "#!/bin/sh\ncase $1 in --sb-state) echo 'SecureBoot enabled';; *) echo \"$2 is %s enrolled\"; exit 1;; esac\n"


def fill(repo):
    repo.nvlsm()
    repo.driver(DRIVER)
    repo.driver(LATER)
    repo.driver("590.44.01", dkms='BUILD_EXCLUSIVE_KERNEL="^5[.].*"\n')


def kernels(repo):
    repo.kernel(NEWER)
    repo.add("linux-headers-6.1.0-98-amd64", "1-1")  # without the headers


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    lab = start_lab(tmp_path_factory.mktemp("lab"), fill, kernels)
    yield lab
    lab.repo.close()
    lab.kernels.close()
    lab.close()


@pytest.fixture(name="made")
def made_fixture(lab, tmp_path):
    """made(devices): a node; ended with the test."""
    nodes = []

    def make(devices=(H100,)):
        nodes.append(GpuNode(lab, tmp_path, devices).start())
        return nodes[-1]
    yield make
    for node in nodes:
        node.remove()


@pytest.fixture(name="node")
def node_fixture(made):
    return made()


@contextlib.contextmanager
def repository(lab, without=()):
    """The repository without some packages."""
    lab.repo.index(without)
    try:
        yield
    finally:
        lab.repo.index()


def exact(node, version=DRIVER, **more):
    return node.spec(driver={"branch": version, "source": node.lab.repo.source(), **more})


def works(node, version):
    assert version in node.sh("cat /proc/driver/nvidia/version") and "H100" in node.sh("nvidia-smi -L")
    assert node.sh("modinfo -k $(uname -r) -F version nvidia") == version


def untouched(node):
    """No package of NVIDIA's is there."""
    found = node.sh("dpkg-query -W -f '${db:Status-Status} ${Package}\\n' 'nvidia-*' 'cuda-*' 2>/dev/null || true")
    assert "installed" not in found, found


# --- before anything is installed ---

@pytest.mark.long
def test_secure_boot_is_told_before_anything_is_installed(node):
    node.host.put("/usr/local/bin/mokutil", MOKUTIL % "not", 0o755)
    node.run(node.spec(), error="step 'secure-boot': Secure Boot is enabled, and no key for own kernel modules is enrolled")
    untouched(node)
    # dkms signs with a key that the firmware knows
    node.host.put("/var/lib/dkms/mok.pub", "key")
    node.host.put("/usr/local/bin/mokutil", MOKUTIL % "already", 0o755)
    node.run(exact(node))
    works(node, DRIVER)


@pytest.mark.long
def test_a_key_with_another_hash_is_not_trusted(node):
    source = node.lab.repo.source().split("#", maxsplit=1)[0]
    node.run(node.spec(driver={"branch": "580", "source": source}),
             error="step 'driver-repo': the key of the repository has another hash than expected")
    untouched(node)
    node.run(node.spec(driver={"branch": "580", "source": "http://10.77.0.1:9/repos#sha256=" + "0" * 64}),
             error="step 'driver-repo': cannot fetch http://10.77.0.1:9/repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb")


@pytest.mark.long
def test_a_repository_with_a_bad_signature(node):
    release = node.lab.repo.pool / "InRelease"
    good = release.read_text()
    release.write_text(good.replace("Origin: NVIDIA", "Origin: EVIL"))
    try:
        node.run(node.spec(), error="step 'driver-repo': apt-get update reported:")
    finally:
        release.write_text(good)
    assert "nvidia-open" not in node.sh("dpkg-query -W -f '${Package}' 2>/dev/null || true")


@pytest.mark.long
def test_a_package_that_is_gone(node):
    with repository(node.lab, ["nvidia-dkms-580-open"]):
        node.run(node.spec(), error="step 'driver': apt-get reported: E: Unable to correct problems")
    deb = next(node.lab.repo.pool.glob("nvidia-dkms-580-open_%s*" % LATER))
    deb.rename(deb.with_suffix(".gone"))
    try:
        out = node.run(node.spec(), error="step 'driver': apt-get reported: E: Failed to fetch")
        assert "404" in out.result["error"]
    finally:
        deb.with_suffix(".gone").rename(deb)


# --- the build ---

@pytest.mark.long
def test_no_headers_of_the_running_kernel(node):
    """The package manager returns 0; only a look shows that there are none."""
    node.distribution()
    node.host.put("/etc/lab-kernel", "6.1.0-98-amd64\n")
    node.run(node.spec(), error="step 'kernel-headers': the headers of the running kernel 6.1.0-98-amd64 are not at "
             "/lib/modules/6.1.0-98-amd64/build")
    assert "nvidia" not in node.sh("dkms status")


@pytest.mark.long
def test_a_kernel_whose_headers_are_gone_is_left(node):
    """The node moves to the newest kernel, is rebooted, and goes on."""
    node.distribution()
    node.host.put("/etc/lab-kernel", "6.1.0-97-amd64\n")
    out = node.run(exact(node))
    assert node.host.boots == 2 and node.sh("uname -r") == NEWER
    assert any("reboots the node: kernel 6.1.0-97-amd64 has no headers any more" in t for t in out.texts())
    works(node, DRIVER)
    assert node.sh("find /home/ops/.gpuprov -name moved") == ""  # no move, if this kernel's headers are gone one day
    assert re.search("^nvidia/%s, %s, .*: installed$" % (DRIVER, NEWER), node.sh("dkms status -k " + NEWER))


@pytest.mark.long
def test_neither_headers_nor_a_newer_kernel(node):
    node.distribution()
    node.host.put("/etc/lab-kernel", "6.1.0-97-cloud-amd64\n")
    node.run(node.spec(), error="step 'kernel-headers': the repositories have neither the headers of kernel "
             "6.1.0-97-cloud-amd64 nor linux-image-cloud-amd64: choose a newer image")
    assert node.host.boots == 1


@pytest.mark.long
def test_a_module_that_is_not_built_for_this_kernel(node):
    """dkms skips it, apt-get returns 0, dkms status says "added". The step ends with the user's own holds as they were."""
    node.sh("apt-mark hold $(dpkg-query -W -f '${db:Status-Status} ${Package} ' | grep -o 'installed linux-headers[^ ]*' | "
            "cut -d' ' -f2) >/dev/null")
    held = node.sh("apt-mark showhold")
    node.run(node.spec(driver={"branch": "590", "source": node.lab.repo.source()}),
             error="step 'driver': no module was built for the running kernel " + node.lab.kernel)
    assert "install ok installed" in node.sh("dpkg -s nvidia-open")
    assert held and node.sh("apt-mark showhold") == held


@pytest.mark.long
def test_no_compiler(node):
    node.sh("rm -f /usr/bin/gcc /usr/bin/cc /usr/bin/gcc-1? /usr/bin/x86_64-linux-gnu-gcc*")
    node.run(node.spec(), error="the node has no C compiler: install gcc")


@pytest.mark.long
def test_the_disk_is_full_during_the_build(node):
    node.sh("mount -t tmpfs -o size=64k full /var/lib/dkms")
    node.run(node.spec(), error="the disk is full")
    node.sh("umount /var/lib/dkms")
    node.run(node.spec())
    works(node, LATER)


@pytest.mark.long
def test_a_reboot_in_the_middle_of_the_build(node):
    def reboot(_):
        wait_for(lambda: node.host.sh("pgrep -f [w]ait.sh", check=False).stdout)
        node.host.put("/go", "")  # for the second time
        node.host.sh("reboot", check=False)
    node.host.put("/hold", "")
    node.run(exact(node), during=reboot)
    assert node.host.boots == 2
    works(node, DRIVER)


@pytest.mark.long
def test_the_lock_of_dpkg_is_held(node):
    def release(lines):
        saw(lines, "waits for another package manager")
        node.host.put("/release", "")
    node.host.put("/holder.py", HOLDER)
    node.sh("setsid python3 /holder.py </dev/null >/dev/null 2>&1 &")
    wait_for(node.host.file("/held").exists)
    node.run(exact(node), during=release)
    works(node, DRIVER)


# --- loading ---

@pytest.mark.long
@pytest.mark.parametrize("errno,said", [
    ("129", "the kernel refuses the driver's module (Key was rejected by service): Secure Boot is enabled"),
    ("19", "the driver's module finds no GPU that it supports (No such device)")])
def test_a_module_that_does_not_load(node, errno, said):
    node.host.put("/etc/lab-modprobe-errno", errno + "\n")
    node.run(exact(node), error="step 'driver': " + said)
    node.sh("rm /etc/lab-modprobe-errno")
    node.run(exact(node))
    works(node, DRIVER)


@pytest.mark.long
def test_nouveau_has_the_gpu(node):
    node.sh("echo 'nouveau 2000000 1 - Live 0x0' >/run/lab-modules; touch /etc/lab-busy")
    out = node.run(exact(node))
    assert "nouveau-off" in out.applied and node.host.boots == 2
    assert "blacklist nouveau" in node.sh("cat /etc/modprobe.d/gpuprov-nouveau.conf")
    works(node, DRIVER)


@pytest.mark.long
@pytest.mark.parametrize("busy", [False, True])
def test_an_upgrade_under_a_loaded_module(node, busy):
    """NVML: Driver/library version mismatch. The module is loaded again; where it is in use, the node is rebooted."""
    node.run(exact(node))
    node.sh("{ apt-mark unhold '*nvidia*'; apt-get -y install nvidia-driver-pinning-580 nvidia-driver-pinning-%s-; "
            "apt-get -y install nvidia-open; } >/root/log 2>&1" % DRIVER)
    assert "mismatch" in node.host.sh("nvidia-smi", check=False).stdout
    if busy:
        node.sh("touch /etc/lab-busy")
    out = node.run(node.spec())
    assert out.applied.count("driver") == 1 and node.host.boots == (2 if busy else 1)
    works(node, LATER)


@pytest.mark.long
def test_a_kernel_upgrade_without_a_build(node):
    node.distribution()
    node.run(exact(node))
    node.host.put("/etc/lab-kernel", NEWER + "\n")
    node.host.sh("reboot", check=False)
    wait_for(lambda: node.host.boots == 2)
    node.host.wait_ssh()
    out = node.run(exact(node))
    assert {"kernel-headers", "driver"} <= set(out.applied)
    works(node, DRIVER)


# --- drivers that came another way ---

@pytest.mark.long
def test_a_driver_that_fits_is_left_alone(node):
    """Also one of another source: nothing is installed, nothing held."""
    node.run(exact(node))
    node.sh("rm -rf /etc/gpuprov/driver* /etc/apt/sources.list.d/cuda*; apt-mark unhold '*' >/dev/null")
    for branch in ("auto", "580", DRIVER):
        out = node.run(exact(node, branch))
        assert out.applied == [], out
    assert node.sh("apt-mark showhold") == ""


@pytest.mark.long
def test_a_driver_of_a_runfile(node):
    node.host.put("/usr/bin/nvidia-uninstall", "#!/bin/sh\nrm /usr/bin/nvidia-uninstall\n", 0o755)
    node.run(node.spec(), error="step 'driver': a driver of NVIDIA's runfile is installed, and the spec wants driver 580: "
             "write bootstrap.driver: {replace: true}")
    untouched(node)
    node.run(exact(node, replace=True))
    assert not node.host.file("/usr/bin/nvidia-uninstall").exists()
    works(node, DRIVER)


@pytest.mark.long
def test_packages_of_another_branch(node):
    node.run(exact(node))
    other = node.spec(driver={"branch": "590", "source": node.lab.repo.source()})
    node.run(other, error=" %s-1 is installed, and the spec wants driver 590" % DRIVER)
    works(node, DRIVER)


# --- the fabric manager ---

@pytest.mark.long
def test_the_fabric_manager_has_the_drivers_version(made):
    node = made((H100, NVSWITCH))
    out = node.run(exact(node))
    assert "fabric-manager" in out.applied
    assert node.sh("dpkg-query -W -f '${Version}' nvidia-fabricmanager") == DRIVER + "-1"
    assert "nv-fabricmanage" in node.sh("cat /proc/[0-9]*/comm")
    assert node.run(exact(node)).applied == []


@pytest.mark.long
def test_nvlink_5_gets_its_subnet_manager_too(made):
    """A B200 by its PCI id; its switches are no PCI devices. First no repository has NVLSM, then the kernel no modules."""
    node = made(({**H100, "device": "0x2901"},))
    with repository(node.lab, ["nvlsm_"]):
        node.run(exact(node), error="step 'fabric-manager': no repository of this node has the package nvlsm, which the "
                 "fabric manager needs for NVSwitches of NVLink 5")
    node.run(exact(node), error="step 'fabric-manager': the kernel module mlx5_ib, which NVLSM needs, cannot be loaded: "
             "modprobe: FATAL: Module mlx5_ib not found")
    assert "nv-fabricmanage" not in node.sh("cat /proc/[0-9]*/comm").split()
    node.sh(INFINIBAND)
    assert node.run(exact(node)).applied[0] == "fabric-manager"
    assert {"nv-fabricmanage", "nvlsm"} <= set(node.sh("cat /proc/[0-9]*/comm").split())
    assert node.sh("cat /etc/modules-load.d/gpuprov-nvlsm.conf").split() == ["mlx5_ib", "ib_umad"]
    held = node.sh("apt-mark showhold").split()
    assert "nvlsm" in held and "nvidia-fabricmanager" in held and "infiniband-diags" not in held, held
    assert node.run(exact(node)).applied == []
    node.sh("kill $(pidof -x nvlsm)")
    assert node.run(exact(node)).applied == ["fabric-manager"]
    assert "nvlsm" in node.sh("cat /proc/[0-9]*/comm").split()


@pytest.mark.long
def test_a_node_of_an_nvl72_gets_imex(made):
    """A GB200 by its PCI id: the service that reaches other nodes' GPUs, of the driver's version."""
    node = made(({**H100, "device": "0x2941"},))
    assert "imex" in node.run(exact(node)).applied
    assert node.sh("dpkg-query -W -f '${Version}' nvidia-imex") == DRIVER + "-1"
    assert "nvidia-imex" in node.sh("cat /proc/[0-9]*/comm")


@pytest.mark.long
def test_a_repository_without_that_fabric_manager(made):
    node = made((H100, NVSWITCH))
    with repository(node.lab, ["nvidia-fabricmanager_" + DRIVER]):
        node.run(exact(node), error="step 'fabric-manager': the repository has no nvidia-fabricmanager of the driver's "
                 "version " + DRIVER)
