# SPDX-License-Identifier: Apache-2.0
"""Beside the driver: the services that must have its version, run by a real systemd; and Secure Boot as the firmware's
variables tell it."""
import pathlib

import pytest
from gpu_node import H100, NVSWITCH, GpuNode, start_lab
from gpu_repo import DRIVER

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
PARTS = pathlib.Path(__file__).resolve().parents[3] / "templates" / "bootstrap"
GB200 = {**H100, "device": "0x2941"}
SERVICES = ["nvidia-fabricmanager", "nvidia-imex"]


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    lab = start_lab(tmp_path_factory.mktemp("lab"), lambda repo: repo.driver(DRIVER))
    yield lab
    lab.repo.close()
    lab.kernels.close()
    lab.close()


def states(node, verb):
    return node.host.sh("systemctl %s %s" % (verb, " ".join(SERVICES)), check=False).stdout.split()


@pytest.mark.long
def test_services_of_the_drivers_version_under_systemd(lab, tmp_path):
    """Started, enabled, and started again where one was stopped; one that does not stay is told."""
    node = GpuNode(lab, tmp_path, (GB200, NVSWITCH), kind="systemd").start()
    try:
        node.sh("mount --bind /lab-pci /sys/bus/pci/devices")
        spec = node.spec(driver={"branch": DRIVER, "source": lab.repo.source()})
        out = node.run(spec)
        assert [s for s in out.applied if s in ("fabric-manager", "imex")] == ["fabric-manager", "imex"], out
        for package in SERVICES:
            assert node.sh("dpkg-query -W -f '${Version}' " + package) == DRIVER + "-1"
        assert states(node, "is-active") == ["active"] * 2 and states(node, "is-enabled") == ["enabled"] * 2
        assert node.run(spec).applied == []
        node.sh("systemctl stop nvidia-imex; systemctl disable -q nvidia-fabricmanager")
        assert node.run(spec).applied == ["fabric-manager", "imex"]
        assert states(node, "is-active") == ["active"] * 2 and states(node, "is-enabled") == ["enabled"] * 2
        # systemd reports a simple service as started, and it ends
        node.host.put("/usr/bin/nvidia-imex", "#!/bin/sh\necho 'no domain is configured' >&2\nexit 1\n", 0o755)
        node.sh("systemctl stop nvidia-imex")
        node.run(spec, error="step 'imex': service nvidia-imex does not run (no domain is configured): without it GPUs of "
                 "other nodes cannot be reached over NVLink")
    finally:
        node.remove()


# --- Secure Boot ---

def firmware(node, variables):
    """/sys/firmware as a machine with these EFI variables has it."""
    node.sh("mount -t tmpfs firmware /sys/firmware; mkdir -p /sys/firmware/efi/efivars")
    for name, octal in variables.items():
        node.sh("printf '%s' >/sys/firmware/efi/efivars/%s-8be4df61-93ca-11d2-aa0d-00e098032b8c" % (octal, name))


def probe(node):
    text = "BRANCH=580 EXACT= MINIMUM= FLAVOUR=\n" + "".join(
        (PARTS / (name + ".sh")).read_text() + "\n" for name in ("run/lib", "gpu/lib", "gpu/secure-boot")) + "probe"
    return node.host.sh(text, check=False)


def test_secure_boot_is_read_from_the_firmware(lab, tmp_path):
    """Without mokutil, or with one that cannot tell; 4 bytes of attributes come before the value."""
    node = GpuNode(lab, tmp_path).start()
    try:
        assert node.host.sh("command -v mokutil", check=False).returncode != 0
        firmware(node, {})
        assert probe(node).returncode == 0
        firmware(node, {"SecureBoot": r"\006\000\000\000\000", "SetupMode": r"\006\000\000\000\001"})
        assert probe(node).returncode == 0
        firmware(node, {"SecureBoot": r"\006\000\000\000\001"})
        for _ in range(2):
            node.run(node.spec(), error="step 'secure-boot': Secure Boot is enabled, and no key for own kernel modules is "
                     "enrolled: the driver could be built but not loaded; switch Secure Boot off for this node")
            node.host.put("/usr/local/bin/mokutil", "#!/bin/sh\necho 'EFI variables are not supported on this system'\n",
                          0o755)
        assert node.host.sh("dpkg-query -W 'nvidia-*'", check=False).stdout == ""
        # dkms signs with a key that is enrolled
        node.host.put("/var/lib/dkms/mok.pub", "key")
        node.host.put("/usr/local/bin/mokutil", "#!/bin/sh\n[ $1 = --sb-state ] || echo \"$2 is already enrolled\"\n", 0o755)
        assert probe(node).returncode == 0
    finally:
        node.remove()
