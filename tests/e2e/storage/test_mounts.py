# SPDX-License-Identifier: Apache-2.0
"""bootstrap.mounts of disks and shares. Disks are loop devices of this machine under other names: a host has a /dev of
its own, and a list of its disks in place of /sys/block. The NFS server is real and in user space; this machine's kernel
has no NFS client, so a stand-in for mount.nfs shows the good case."""
import os
import pathlib
import subprocess
import sys

import lab as labs
import pytest
from repo import Repo
from storage_node import StorageNode
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
SIZE = 120 << 20  # xfs and btrfs need more: XFS
XFS = 300 << 20
LOCAL = "Amazon EC2 NVMe Instance Storage"
GANESHA = """
NFS_CORE_PARAM { NFS_Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; }
NFSv4 { RecoveryBackend = fs; Graceless = true; }
EXPORT { Protocols = 4; Export_Id = 1; Path = /srv/x; Pseudo = /x; Access_Type = RW; Squash = No_Root_Squash;
SecType = sys; FSAL { Name = VFS; } }
"""
# A private /dev with what programs need; the machine's own is not touched.
OWN_DEV = """
mkdir -p /newdev && mount -t tmpfs -o mode=755 dev /newdev
for n in null zero full random urandom tty ptmx fuse btrfs-control; do cp -a /dev/$n /newdev/ 2>/dev/null; done
mkdir /newdev/pts /newdev/shm && mount --rbind /dev/pts /newdev/pts && ln -s /proc/self/fd /newdev/fd
mount --move /newdev /dev && mkdir -p /disks && mount --bind /disks /sys/block
"""


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("lab")
    with labs.Lab(tmp, base_script="base_storage.sh") as made:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp / "key"], check=True)
        made.key = tmp / "key"
        made.repo = Repo(tmp / "repo")
        made.repo.add("nfs-common", version="2:9", postinst="cp /usr/local/lib/stand-in /sbin/mount.nfs\n")
        made.repo.serve(made, "10.77.0.1")
        made.next = 2
        yield made
        made.repo.close()


class DiskNode(StorageNode):
    """A node with disks that a test adds."""

    def __init__(self, lab, host, tmp):
        super().__init__(lab, host, tmp)
        self.loops, self.names = [], {}

    def disk(self, name, model=LOCAL, serial="x", content=b"", size=SIZE):
        """A blank disk /dev/NAME; content: its first bytes."""
        image = self.tmp / (name + ".img")
        with open(image, "wb") as f:
            f.write(content)
            f.truncate(size)
        loop = subprocess.run(["losetup", "-f", "--show", image], check=True, capture_output=True,
                              text=True).stdout.strip()
        self.loops.append(loop)
        self.names[name] = loop
        number = os.minor(os.stat(loop).st_rdev)
        self.host.sh("mknod -m 660 /dev/%s b 7 %d; mknod -m 660 %s b 7 %d; mkdir -p /disks/%s/device" %
                     (name, number, loop, number, name))
        for what, text in (("size", str(size // 512)), ("dev", "7:%d" % number), ("device/model", model),
                           ("device/serial", serial)):
            self.host.put("/disks/%s/%s" % (name, what), text + "\n")
        return "/dev/" + name

    def content(self, name):
        """What the disk holds, by blkid."""
        found = subprocess.run(["blkid", "-p", "-o", "export", self.names[name]], capture_output=True, text=True).stdout
        return dict(line.split("=", 1) for line in found.splitlines() if "=" in line)

    def close(self):
        self.host.remove()
        for loop in self.loops:
            subprocess.run(["losetup", "-d", loop], check=False, capture_output=True)


@pytest.fixture(name="node")
def node_fixture(lab, tmp_path):
    lab.next += 1
    host = lab.add("light", "m%d" % lab.next, "10.77.5.%d" % lab.next, start=False)
    host.authorize((lab.key.parent / "key.pub").read_text())
    lab.repo.use(host)
    host.start()
    host.wait_ssh()
    made = DiskNode(lab, host, tmp_path)
    try:
        host.sh(OWN_DEV)
        yield made
    finally:
        made.close()


def found(node, at):
    return node.host.sh("awk '$2 == \"%s\" { print $1, $3 }' /proc/mounts" % at).stdout.split()


# --- local disks ---

@pytest.mark.long
def test_one_disk_is_formatted_and_mounted_and_comes_back(node):
    node.disk("nvme0n1")
    node.disk("nvme1n1", model="Amazon Elastic Block Store")
    boot = {"mounts": [{"at": "/scratch", "nvme": "auto", "options": "noatime"}]}
    assert "disks" in node.run(boot).done()
    assert found(node, "/scratch")[1] == "ext4" and node.content("nvme1n1") == {}
    node.host.sh("su ops -c 'echo kept >/scratch/file'")
    again = node.run(boot)
    assert again.result["applied"] == 0 and [e["event"] for e in again.events] == ["result"], again
    node.host.sh("umount /scratch; mount -a")  # as a reboot does
    assert node.host.sh("cat /scratch/file; grep -o noatime /proc/mounts | head -n 1").stdout == "kept\nnoatime\n"
    node.host.sh("umount /scratch")
    node.run(boot)
    assert node.host.sh("cat /scratch/file").stdout == "kept\n"
    node.host.sh("umount /scratch; mount -r /scratch; mount -o remount,bind,rw /scratch")
    assert "disks" in node.run(boot).done()  # read-only, as after an error of the disk
    assert node.host.sh("cat /scratch/file").stdout == "kept\n"


@pytest.mark.long
def test_several_disks_are_striped(node):
    """This machine's kernel has no md: btrfs is what stripes."""
    node.disk("nvme0n1", size=XFS)
    node.disk("nvme1n1", size=XFS)
    boot = {"mounts": [{"at": "/scratch", "nvme": "auto", "fs": "xfs"}]}
    out = node.run(boot)
    assert found(node, "/scratch")[1] == "btrfs"
    assert "this node's kernel has no md: /dev/nvme0n1 /dev/nvme1n1 are striped by btrfs instead of xfs" in \
        out.texts("disks"), out
    assert "RAID0" in node.host.sh("btrfs filesystem df /scratch").stdout
    assert int(node.host.sh("df --output=size -k /scratch | tail -n 1").stdout) * 1024 > XFS * 1.5
    assert node.content("nvme0n1")["LABEL"] == node.content("nvme1n1")["LABEL"]
    assert node.run(boot).result["applied"] == 0
    node.host.sh("umount /scratch")
    assert "disks" in node.run(boot).done() and found(node, "/scratch")[1] == "btrfs"


@pytest.mark.parametrize("what,said", [
    ("mkfs.ext4 -q {d}", "holds ext4"), ("mkfs.xfs -q {d}", "holds xfs"), ("mkswap -q {d}", "holds swap"),
    ("echo 'label: gpt' | sfdisk -q {d}", "holds gpt"), ("pvcreate", "holds a signature"),
    ("printf data | dd of={d} bs=1 seek=9000 conv=notrunc", "holds data of an unknown form"),
    ("echo | dd of={d} bs=1 seek=9000 conv=notrunc", "holds data of an unknown form"),
    ("printf '\\377data' | dd of={d} bs=1 seek=9000 conv=notrunc", "holds data of an unknown form")])
def test_a_disk_that_holds_something_is_never_formatted(node, what, said):
    lvm = (b"\0" * 512 + b"LABELONE" + (1).to_bytes(8, "little") + bytes.fromhex("4c1c7e13") +
           b" \0\0\0LVM2 001" + b"a" * 32)
    dev = node.disk("nvme0n1", content=lvm if what == "pvcreate" else b"", size=XFS if "xfs" in what else 20 << 20)
    if what != "pvcreate":
        node.host.sh(what.format(d=dev))
    before = node.host.sh("sha256sum <" + dev).stdout
    node.run({"mounts": [{"at": "/scratch", "nvme": "auto"}]},
             error="step 'disks': this node has no blank local NVMe disk: /dev/nvme0n1 " + said)
    assert node.host.sh("sha256sum <" + dev).stdout == before


def test_a_disk_in_use_is_never_formatted(node):
    dev = node.disk("nvme0n1", size=20 << 20)
    node.host.sh("mkdir /m; mkfs.ext4 -q %s; mount %s /m" % (dev, dev))
    node.run({"mounts": [{"at": "/scratch", "nvme": "auto"}]}, error=dev + " is mounted on /m")


@pytest.mark.long
def test_a_used_disk_is_left_alone_beside_a_blank_one(node):
    used = node.disk("nvme0n1")
    node.host.sh("mkfs.ext4 -q -L mine " + used)
    node.disk("nvme1n1")
    out = node.run({"mounts": [{"at": "/scratch", "nvme": "auto"}]})
    assert "left alone: /dev/nvme0n1 holds ext4" in out.texts("disks"), out
    assert node.content("nvme0n1")["LABEL"] == "mine" and node.content("nvme1n1")["LABEL"].startswith("gp-")


def test_no_local_disk(node):
    node.disk("nvme0n1", model="Amazon Elastic Block Store")
    node.run({"mounts": [{"at": "/scratch", "nvme": "auto"}]}, error="this node has no local NVMe disk")


@pytest.mark.long
@pytest.mark.parametrize("place", ["device", "device/nvme5"])  # the second: with multipath
def test_a_disk_behind_a_network_is_not_local(node, place):
    """Other nodes have it too."""
    node.disk("nvme0n1")
    node.disk("nvme1n1", model="Linux")
    node.host.put("/disks/nvme0n1/device/transport", "pcie\n")
    node.host.put("/disks/nvme1n1/%s/transport" % place, "tcp\n")
    node.run({"mounts": [{"at": "/scratch", "nvme": "auto"}]})
    assert found(node, "/scratch")[1] == "ext4" and node.content("nvme1n1") == {}


@pytest.mark.long
def test_kernels_that_cannot_stripe(node):
    node.disk("nvme0n1")
    node.disk("nvme1n1")
    boot = {"mounts": [{"at": "/scratch", "nvme": "auto"}]}
    node.host.sh("grep -v btrfs /proc/filesystems >/run/fs; mount --bind /run/fs /proc/filesystems")
    node.run(boot, error="has neither md nor btrfs to stripe them")
    node.host.put("/usr/local/sbin/modprobe", "#!/bin/sh\n", 0o755)  # claims that md is there: mdadm's own words
    out = node.run(boot, error="step 'disks': mdadm cannot stripe /dev/nvme0n1 /dev/nvme1n1: mdadm: ")
    assert "md" in out.result["error"] and found(node, "/scratch") == []


# --- volumes ---

@pytest.mark.long
def test_a_volume_is_formatted_only_when_it_is_blank(node):
    node.disk("nvme3n1", model="Amazon Elastic Block Store", serial="vol0123456789abcdef0", size=XFS)
    boot = {"mounts": [{"at": "/data", "volume": "vol-0123456789abcdef0", "fs": "xfs"}]}
    assert "disks" in node.run(boot).done()
    assert found(node, "/data")[1] == "xfs"
    node.host.sh("su ops -c 'echo kept >/data/file'; umount /data; mount -a")
    assert node.run(boot).result["applied"] == 0 and node.host.sh("cat /data/file").stdout == "kept\n"
    node.host.sh("umount /data; sed -i '\\,/data,d' /etc/fstab")
    del boot["mounts"][0]["fs"]
    node.run(boot)
    assert found(node, "/data")[1] == "xfs" and node.host.sh("cat /data/file").stdout == "kept\n"
    node.host.sh("umount /data")
    boot["mounts"][0]["fs"] = "ext4"
    node.run(boot, error="(/dev/nvme3n1) holds xfs, and the spec wants ext4")


def test_a_volume_with_a_file_system_of_somebody_else(node):
    dev = node.disk("vdb")
    node.host.sh("mkfs.ext4 -q -L mine %s; mount %s /mnt; echo theirs >/mnt/file; umount /mnt" % (dev, dev))
    node.run({"mounts": [{"at": "/data", "volume": "/dev/vdb", "mode": "read"}]})
    assert node.host.sh("cat /data/file").stdout == "theirs\n" and node.content("vdb")["LABEL"] == "mine"
    assert node.host.sh("touch /data/x", check=False).returncode != 0
    node.run({"mounts": [{"at": "/data", "volume": "/dev/vdb"}]},
             error="/data is mounted and cannot be written by ops: sh: 2: cannot create /data/.gpuprov-")


def test_volumes_that_cannot_be_used(node):
    dev = node.disk("vdb")
    node.host.sh("echo 'label: gpt' | sfdisk -q " + dev)
    node.run({"mounts": [{"at": "/data", "volume": "/dev/vdb"}]},
             error="/dev/vdb (/dev/vdb) holds gpt: gpuprov formats only")
    node.host.put("/usr/local/bin/sleep", "#!/bin/sh\n[ $1 = 0.5 ] || exec /usr/bin/sleep $1\n", 0o755)
    node.run({"mounts": [{"at": "/data", "volume": "vol-0fff"}]}, error="this node has no disk vol-0fff: attach it")


# --- shares ---

def stand_in(node, script):
    """mount.nfs SOURCE FOLDER -o OPTIONS, by what this kernel has."""
    node.host.put("/sbin/mount.nfs", "#!/bin/sh\n" + script, 0o755)


GOOD = "echo \"$*\" >/called; mount -t tmpfs -o mode=777 \"$1\" \"$2\"\n"


@pytest.mark.long
def test_a_share_of_a_stand_in(node):
    stand_in(node, GOOD)
    boot = {"mounts": [{"at": "/home/shared", "nfs": "10.77.0.1:/x", "options": "nconnect=8,hard"}]}
    assert "shares" in node.run(boot).done()
    assert found(node, "/home/shared") == ["10.77.0.1:/x", "tmpfs"]
    called = node.host.file("/called").read_text()
    assert called.startswith("10.77.0.1:/x /home/shared") and "nconnect=8,hard" in called
    line = node.host.sh("grep shared /etc/fstab").stdout
    assert line == ("10.77.0.1:/x /home/shared nfs nofail,x-gpuprov,_netdev,x-systemd.mount-timeout=90s,nconnect=8,hard"
                    " 0 0\n")
    assert node.run(boot).result["applied"] == 0
    boot["mounts"][0]["nfs"] = "10.77.0.1:/y"  # another one, at the same place
    assert "shares" in node.run(boot).done()
    assert found(node, "/home/shared") == ["10.77.0.1:/y", "tmpfs"] and \
        node.host.sh("grep -c shared /etc/fstab").stdout == "1\n"


def test_a_node_without_fstab(node):
    """As some images for containers and some with an image-based system."""
    stand_in(node, GOOD)
    node.host.file("/etc/fstab").unlink(missing_ok=True)
    boot = {"mounts": [{"at": "/shared", "nfs": "10.77.0.1:/x"}]}
    node.run(boot)
    assert found(node, "/shared")[1] == "tmpfs" and node.run(boot).result["applied"] == 0


def test_a_folder_behind_a_link(node):
    """It would be mounted again by each run, once over the other."""
    stand_in(node, GOOD)
    node.host.sh("mkdir /var/mnt; ln -s /var/mnt /shares")
    boot = {"mounts": [{"at": "/shares/x", "nfs": "10.77.0.1:/x"}]}
    node.run(boot, error="/shares/x leads through a symbolic link to /var/mnt/x: write 'at: /var/mnt/x'")
    assert found(node, "/var/mnt/x") == []
    node.host.sh("! grep x-gpuprov /etc/fstab")
    boot["mounts"][0]["at"] = "/var/mnt/x"
    node.run(boot)


def test_efs_gets_the_options_of_its_maker(node):
    stand_in(node, GOOD)
    node.run({"mounts": [{"at": "/efs", "nfs": "fs-12.efs.eu-west-1.amazonaws.com:/"}]})
    assert "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport" in \
        node.host.file("/called").read_text()


def test_the_client_is_installed(node):
    node.host.sh("dpkg --remove --force-depends nfs-common; test ! -e /sbin/mount.nfs")
    node.host.put("/usr/local/lib/stand-in", "#!/bin/sh\n" + GOOD, 0o755)
    node.run({"mounts": [{"at": "/shared", "nfs": "10.77.0.1:/x"}]})
    assert "installed" in node.host.sh("dpkg -s nfs-common").stdout and found(node, "/shared")[1] == "tmpfs"


def test_a_share_that_hangs_is_ended(node):
    stand_in(node, "sleep 1000\n")
    node.host.put("/usr/local/bin/timeout", "#!/bin/sh\n[ \"$3\" != 90 ] || { shift 3; set -- -k 1 3 \"$@\"; }\n"
                  "exec /usr/bin/timeout \"$@\"\n", 0o755)
    node.host.sh("grep -v nfs /proc/filesystems >/run/fs; echo 'nodev nfs' >>/run/fs; "
                 "mount --bind /run/fs /proc/filesystems")
    node.run({"mounts": [{"at": "/shared", "nfs": "10.77.0.1:/x"}]},
             error="10.77.0.1:/x cannot be mounted at /shared: did not answer within 90 s and was killed")
    assert node.host.sh("pgrep -f '[s]leep 1000'", check=False).stdout == ""


def test_a_share_that_root_may_not_write(node):
    """root_squash and a folder of somebody else: the login user is who must write."""
    stand_in(node, "case $* in *ro,*) ro=,ro ;; esac; mount -t tmpfs -o mode=755$ro \"$1\" \"$2\"\n")
    boot = {"mounts": [{"at": "/shared", "nfs": "10.77.0.1:/x"}]}
    node.run(boot, error="/shared is mounted and cannot be written by ops: sh: 2: cannot create /shared/.gpuprov-")
    boot["mounts"][0]["mode"] = "read"
    node.run(boot)


def test_a_kernel_without_nfs(lab, node):
    """The real mount.nfs against a real server: the kernel is what refuses."""
    if "\tnfs" in pathlib.Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has an NFS client")
    node.disk("srv")
    node.host.sh("mkdir -p /srv/x /run/dbus /var/run/ganesha; mkfs.ext4 -q /dev/srv; mount /dev/srv /srv/x")
    node.host.put("/etc/ganesha/g.conf", GANESHA)
    node.host.sh("ganesha.nfsd -f /etc/ganesha/g.conf -L /tmp/g.log -p /tmp/g.pid")
    probe = [sys.executable, "-c", "import socket; socket.create_connection(('%s', 2049), 2)" % node.host.address]
    wait_for(lambda: lab.run(probe, capture_output=True).returncode == 0, 60)
    node.run({"mounts": [{"at": "/shared", "nfs": node.host.address + ":/x"}]},
             error=":/x cannot be mounted at /shared: this node's kernel (%s) has no nfs client" % os.uname().release)
    node.host.sh("kill -KILL $(cat /tmp/g.pid)")


def test_lustre_without_a_client(node):
    node.run({"mounts": [{"at": "/fsx", "lustre": "fs-1.fsx.eu-west-1.amazonaws.com@tcp:/abc"}]},
             error="this node's repositories have no Lustre client for its kernel (lustre-client-modules-")


def test_lustre_by_a_stand_in(node):
    node.host.put("/sbin/mount.lustre", "#!/bin/sh\necho \"$*\" >/called; "
                  "mount -t tmpfs -o mode=777 10.9.9.9@tcp:/abc $2\n", 0o755)
    boot = {"mounts": [{"at": "/fsx", "lustre": "fs-1.fsx.eu-west-1.amazonaws.com@tcp:/abc"}]}
    node.run(boot)
    assert "noatime,flock" in node.host.file("/called").read_text() and node.run(boot).result["applied"] == 0
