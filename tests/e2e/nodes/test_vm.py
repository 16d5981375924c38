# SPDX-License-Identifier: Apache-2.0
"""A virtual machine with a kernel of its own (QEMU, without KVM), booted with the user-data that gpuprov renders: its
cloud-init, its systemd, its disks and its reboot are real. It boots for about a minute, so a test does much in one boot."""
import json
import os
import pathlib
import socket
import subprocess
import time

import lab as labs
import pytest
from test_cloud_init import render
from waiting import wait_for

BOOT_S = 600
DRIVER = pathlib.Path(os.environ.get("B", pathlib.Path(__file__).resolve().parents[3] / "build")) \
    / "tests" / "drivers" / "bootstrap_driver"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Machine:
    """A running machine: sh() over its SSH, with the pinned host key that went with the user-data."""

    def __init__(self, folder, disks=(), nvme=()):
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
        for i, path in enumerate([disk, *disks, *nvme]):
            kind = "nvme" if path in nvme else "virtio-blk-pci"
            argv += ["-drive", "file=%s,format=raw,if=none,id=d%d,cache=unsafe" % (path, i),
                     "-device", "%s,drive=d%d,serial=disk%d" % (kind, i, i)]
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


def bootstrap(machine, **keys):
    """The steps that gpuprov's bootstrap applies, by a spec with these keys."""
    spec = machine.folder / "spec.yaml"
    spec.write_text(json.dumps({"name": "vm", "offers": [{"provider": "local"}], "bootstrap": keys}))
    done = subprocess.run([DRIVER, "run", "127.0.0.1", "gpuprov", machine.folder / "key",
                           (machine.folder / "host_key.pub").read_text().strip(), "--port", str(machine.port),
                           "--spec", spec, "--deadline-s", str(BOOT_S)], capture_output=True, text=True, check=False)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert events and events[-1].get("rc") == 0, done
    return [e["step"] for e in events if e["event"] == "done"]


@pytest.mark.root
@pytest.mark.long
def test_disks_are_striped_by_md_and_a_share_is_mounted(tmp_path):
    """Two NVMe disks and a kernel with md and NFS; all of it returns after a reboot, with its content."""
    render(tmp_path, ttl=7200)
    disks = [tmp_path / "nvme0", tmp_path / "nvme1"]
    for disk in disks:
        with open(disk, "wb") as f:
            f.truncate(128 << 20)
    machine = Machine(tmp_path, nvme=disks)
    try:
        wait_for(machine.up, BOOT_S)
        machine.sh("cloud-init status --wait", check=False, timeout=BOOT_S)
        # the machine has no name server, for which each sudo would wait
        machine.sh("sudo sh -c 'echo 127.0.1.1 vm >>/etc/hosts; mkdir -p /srv/x && chmod 777 /srv/x && "
                   "echo \"/srv/x 127.0.0.1(rw,insecure,no_subtree_check)\" >/etc/exports && "
                   "systemctl enable -q --now nfs-server && exportfs -ra'", timeout=BOOT_S)
        keys = {"mounts": [{"at": "/scratch", "nvme": "auto"}, {"at": "/shared", "nfs": "127.0.0.1:/srv/x"}]}
        assert bootstrap(machine, **keys) == ["disks", "shares", "agent"]

        def looks():
            assert " raid0 " in machine.sh("cat /proc/mdstat").stdout
            mounts = machine.sh("cat /proc/mounts").stdout.splitlines()
            by = {line.split()[1]: line.split() for line in mounts}
            assert by["/scratch"][0].startswith("/dev/md") and by["/scratch"][2] == "ext4", mounts
            assert by["/shared"][0] == "127.0.0.1:/srv/x" and by["/shared"][2].startswith("nfs"), mounts
            size = int(machine.sh("df --output=size -k /scratch | tail -n 1").stdout)
            assert size * 1024 > 1.5 * disks[0].stat().st_size
        looks()
        machine.sh("echo kept >/scratch/file; echo shared >/shared/file; sync")
        assert machine.sh("cat /srv/x/file").stdout == "shared\n"
        assert bootstrap(machine, **keys) == []
        boot_id = machine.sh("cat /proc/sys/kernel/random/boot_id").stdout
        machine.sh("sudo systemctl reboot", check=False)
        wait_for(lambda: machine.sh("cat /proc/sys/kernel/random/boot_id", check=False).stdout not in ("", boot_id), BOOT_S)
        wait_for(lambda: machine.sh("cat /scratch/file /shared/file", check=False).stdout == "kept\nshared\n", BOOT_S)
        looks()
        assert bootstrap(machine, **keys) == []
    finally:
        machine.end()
