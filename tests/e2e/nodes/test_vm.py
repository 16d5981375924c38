# SPDX-License-Identifier: Apache-2.0
"""A virtual machine with a kernel of its own (QEMU, without KVM), booted with the user-data that gpuprov renders: its
cloud-init, its systemd, its disks and its reboot are real. It boots for about a minute, so one test does it all."""
import pathlib
import socket
import subprocess
import time

import lab as labs
import pytest
from test_cloud_init import render
from waiting import wait_for

BOOT_S = 600


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Machine:
    """A running machine: sh() over its SSH, with the pinned host key that went with the user-data."""

    def __init__(self, folder, disks=()):
        self.folder, self.port = folder, free_port()
        vm = pathlib.Path(labs.base(script="base_vm.sh"))
        disk = folder / "disk"
        subprocess.run(["cp", "--sparse=always", "--reflink=auto", vm / "disk", disk], check=True)
        (folder / "meta-data").write_text("instance-id: i-vm\nlocal-hostname: vm\n")
        script = "cd /var/lib/cloud/seed/nocloud\n"
        script += "".join("write %s %s\n" % (folder / name, name) for name in ("user-data", "meta-data"))
        subprocess.run(["debugfs", "-w", "-f", "-", disk], input=script, text=True, check=True, capture_output=True)
        listed = subprocess.run(["debugfs", "-R", "ls /var/lib/cloud/seed/nocloud", disk], capture_output=True, check=True)
        assert b"user-data" in listed.stdout, listed
        argv = ["qemu-system-x86_64", "-accel", "tcg,thread=single", "-cpu", "max", "-m", "1024", "-nographic",
                "-nodefaults", "-no-user-config", "-serial", "file:%s" % (folder / "console"), "-monitor", "none",
                "-kernel", vm / "vmlinuz", "-initrd", vm / "initrd",
                "-append", "root=/dev/vda ro console=ttyS0 net.ifnames=0", "-device", "virtio-rng-pci",
                "-netdev", "user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:%d-:22" % self.port,
                "-device", "virtio-net-pci,netdev=n"]
        for i, path in enumerate([disk, *disks]):
            argv += ["-drive", "file=%s,format=raw,if=none,id=d%d,cache=unsafe" % (path, i),
                     "-device", "virtio-blk-pci,drive=d%d,serial=disk%d" % (i, i)]
        self.process = subprocess.Popen(list(map(str, argv)), stdin=subprocess.DEVNULL)
        (folder / "known_hosts").write_text("[127.0.0.1]:%d %s" % (self.port, (folder / "host_key.pub").read_text()))

    def sh(self, command, check=True, timeout=120):
        done = subprocess.run(
            ["ssh", "-p", str(self.port), "-i", self.folder / "key", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30",
             "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes", "-F", "/dev/null",
             "-o", "UserKnownHostsFile=%s" % (self.folder / "known_hosts"), "gpuprov@127.0.0.1", command],
            capture_output=True, text=True, timeout=timeout, check=False)
        assert not check or done.returncode == 0, done
        return done

    def up(self):
        assert self.process.poll() is None, "QEMU ended with %s" % self.process.returncode
        return self.sh("true", check=False).returncode == 0

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.mark.root
@pytest.mark.long
def test_a_real_kernel_boots_user_data(tmp_path):
    render(tmp_path, ttl=7200)
    began = time.monotonic()
    machine = Machine(tmp_path)
    try:
        wait_for(machine.up, BOOT_S)
        print("ssh after %.0f s" % (time.monotonic() - began))
        said = machine.sh("cloud-init status --wait --long", check=False, timeout=BOOT_S)
        assert "status: done" in said.stdout, (said, (tmp_path / "console").read_text()[-3000:])
        assert machine.sh("sudo -n id -u").stdout.strip() == "0"
        assert machine.sh("systemctl is-active gpuprov-deadline").stdout.strip() == "active"
    finally:
        machine.end()
