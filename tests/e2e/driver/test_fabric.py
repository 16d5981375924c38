# SPDX-License-Identifier: Apache-2.0
"""bootstrap.fabric on a light host: devices are folders in place of sysfs, AWS's installer is a stand-in that is signed
with a real gpg, and modprobe is a stand-in. The steps' files are run as a step runs them."""
import pathlib
import subprocess
import tarfile

import pytest
from fleet import Fleet
from lab import why_not
from repo import end_server, serve_folder

ROOT = pathlib.Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.root, pytest.mark.namespaces]

INSTALLER = """#!/bin/bash
echo "stand-in installer $*"
[ ! -e /installer-fails ] || { echo 'E: no such kernel' >&2; exit 3; }
mkdir -p /opt/amazon/efa/bin /opt/amazon/ofi-nccl/lib64
printf '#!/bin/sh\\necho "provider: efa"\\n' >/opt/amazon/efa/bin/fi_info
chmod 755 /opt/amazon/efa/bin/fi_info
touch /opt/amazon/ofi-nccl/lib64/libnccl-net-ofi.so
[ -e /module-in-use ] || ln -sfn ../../bus/pci/drivers/efa /lab-pci/0000:01:00.0/driver
"""


@pytest.fixture(name="site", scope="module")
def site_fixture(tmp_path_factory):
    if why_not():
        pytest.skip(why_not())
    tmp = tmp_path_factory.mktemp("fabric")
    with Fleet(tmp, 1) as made:
        www, gnupg = tmp / "www", tmp / "gnupg"
        www.mkdir()
        gnupg.mkdir(mode=0o700)
        (tmp / "aws-efa-installer").mkdir()
        (tmp / "aws-efa-installer" / "efa_installer.sh").write_text(INSTALLER)
        with tarfile.open(www / "aws-efa-installer-latest.tar.gz", "w:gz") as tar:
            tar.add(tmp / "aws-efa-installer", "aws-efa-installer")

        def gpg(*words):
            return subprocess.run(["gpg", "--homedir", gnupg, "--batch", "--pinentry-mode", "loopback", "--passphrase", "",
                                   *words], check=True, capture_output=True, text=True).stdout
        gpg("--quick-generate-key", "efa@test", "rsa2048", "sign", "never")
        made.fingerprint = next(line.split(":")[9] for line in gpg("--with-colons", "--list-keys").splitlines()
                                if line.startswith("fpr"))
        (www / "aws-efa-installer.key").write_text(gpg("--armor", "--export", "efa@test"))
        gpg("--detach-sign", www / "aws-efa-installer-latest.tar.gz")
        made.www, made.url = www, "http://10.77.0.1:8080"
        server = serve_folder(made, "10.77.0.1", 8080, www)
        subprocess.run(["gpgconf", "--homedir", gnupg, "--kill", "all"], check=False)
        yield made
        end_server(server)


@pytest.fixture(name="node")
def node_fixture(site):
    """A host with empty lists of devices and drivers."""
    host = site.nodes[0]
    host.sh("rm -rf /lab-pci /opt/amazon /tmp/w /module-in-use /installer-fails /usr/local/sbin/modprobe; "
            "rm -f /etc/modules-load.d/gpuprov*; mkdir -p /lab-pci /tmp/w; mount --bind /lab-pci /sys/bus/pci/devices; "
            "mount -t tmpfs x /proc/driver; mount -t tmpfs x /sys/module")
    yield host
    host.sh("umount /sys/bus/pci/devices /proc/driver /sys/module; rm -f /usr/local/sbin/uname")


def device(node, name, vendor, number="0x0000", kind="0x020000"):
    for file, text in (("vendor", vendor), ("device", number), ("class", kind)):
        node.put("/lab-pci/%s/%s" % (name, file), text + "\n")


def step(site, node, name, tail, fabric="auto", fingerprint=None):
    def part(file):
        return (ROOT / "templates/bootstrap" / (file + ".sh")).read_text() + "\n"
    words = "FABRIC=%s URL=%s FINGERPRINT=%s REFUSAL= BUDGET=60\n" % (fabric, site.url, fingerprint or site.fingerprint)
    return node.sh("cd /tmp/w\n" + part("run/lib") + part("run/pkg") + words + part("fabric/" + name) + tail, check=False)


@pytest.mark.parametrize("name,fabric", [("efa", "efa"), ("rdma", "infiniband")])
def test_a_node_without_devices(site, node, name, fabric):
    device(node, "0000:00:03.0", "0x1d0f", "0xec20")  # AWS's ordinary network card
    assert step(site, node, name, "probe").returncode == 0
    wanted = step(site, node, name, "probe", fabric)
    assert wanted.returncode == 1 and "::error this node has no " in wanted.stdout, wanted


def test_efa_is_installed_once(site, node):
    device(node, "0000:01:00.0", "0x1d0f", "0xefa2")
    device(node, "0000:02:00.0", "0x10de", "0x2330", "0x030200")
    assert step(site, node, "efa", "probe").returncode == 10
    done = step(site, node, "efa", "apply || exit\nverify")
    assert done.returncode == 0 and "stand-in installer -y" in done.stdout, done
    assert step(site, node, "efa", "probe").returncode == 0
    node.sh("rm -r /opt/amazon/ofi-nccl")
    assert step(site, node, "efa", "probe").returncode == 10
    node.sh("rm -r /lab-pci/0000:02:00.0")  # without a GPU no plugin is needed
    assert step(site, node, "efa", "probe").returncode == 0


def test_an_installer_of_somebody_else(site, node):
    device(node, "0000:01:00.0", "0x1d0f", "0xefa1")
    other = step(site, node, "efa", "apply || exit\nverify", fingerprint="4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC")
    assert other.returncode == 1 and "has no valid signature of the key 4E90" in other.stdout, other
    archive = site.www / "aws-efa-installer-latest.tar.gz"
    good = archive.read_bytes()
    try:
        archive.write_bytes(good + b"more")
        changed = step(site, node, "efa", "apply || exit\nverify")
        assert changed.returncode == 1 and "has no valid signature" in changed.stdout, changed
    finally:
        archive.write_bytes(good)
    assert not node.file("/opt/amazon").exists()


def test_a_module_that_is_in_use_needs_one_reboot(site, node):
    device(node, "0000:01:00.0", "0x1d0f", "0xefa2")
    node.put("/module-in-use", "")
    first = step(site, node, "efa", "apply || exit\nverify")
    assert first.returncode == 75 and "::reboot the kernel module efa does not drive 0000:01:00.0" in first.stdout, first
    second = step(site, node, "efa", "apply || exit\nverify")
    assert second.returncode == 1 and "reported success, but the kernel module efa does not drive" in second.stdout, second


def test_an_installer_that_fails(site, node):
    device(node, "0000:01:00.0", "0x1d0f", "0xefa2")
    node.put("/installer-fails", "")
    done = step(site, node, "efa", "apply || exit\nverify")
    assert done.returncode == 1 and "::error efa_installer.sh ended with status 3: E: no such kernel\n" in done.stdout, done


def test_cards_reach_gpus(site, node):
    device(node, "0000:03:00.0", "0x15b3", "0x1021", "0x020700")
    assert step(site, node, "rdma", "probe").returncode == 0  # no GPU's driver: nothing to do
    version = "/proc/driver/nvidia/version"
    node.sh("mkdir /proc/driver/nvidia; echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1' >" + version)
    assert step(site, node, "rdma", "probe").returncode == 10
    refused = step(site, node, "rdma", "apply || exit\nverify")
    assert refused.returncode == 1 and "::error nvidia-peermem cannot be loaded: " in refused.stdout, refused
    node.put("/usr/local/sbin/modprobe", "#!/bin/sh\nmkdir /sys/module/nvidia_peermem\n", 0o755)
    assert step(site, node, "rdma", "apply || exit\nverify").returncode == 0
    assert node.file("/etc/modules-load.d/gpuprov-peermem.conf").read_text() == "nvidia-peermem\n"
    assert step(site, node, "rdma", "probe").returncode == 0
    # the kernel does it with the open modules
    node.sh("rmdir /sys/module/nvidia_peermem; "
            "echo 'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06' >" + version)
    for release, code in (("5.4.0-1", 10), ("5.12.3", 0), ("6.8.0-31-generic", 0), ("5.11-x", 10)):
        node.put("/usr/local/sbin/uname", "#!/bin/sh\necho %s\n" % release, 0o755)
        assert step(site, node, "rdma", "probe").returncode == code, release
