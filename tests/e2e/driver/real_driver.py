# SPDX-License-Identifier: Apache-2.0
"""Debian's own NVIDIA driver on test hosts. gpuprov installs it once, and dkms builds all of it for the host's kernel: 5
minutes of one core. A copy of the host's own files stays beside the hosts' base (nvidia.built), with what gpuprov
reported; it is made again when a package, a step or this file changes."""
import fcntl
import hashlib
import json
import pathlib
import shutil
import subprocess

import gpu_node
from repo import Repo

ROOT = gpu_node.ROOT
DISTRO = {"source": "distro"}
OF_ITS_STEPS = ("templates/bootstrap/gpu/*.sh", "templates/bootstrap/run/*.sh", "bootstrap/steps_driver.c",
                "core/software/packages.c", "tests/e2e/driver/real_driver.py")
# A disk of its own for the build, and the end of it once the compiler runs.
SMALL = "mkdir -p /var/lib/dkms && mount -t tmpfs -o size=100m small /var/lib/dkms"
FILL = """until test -s /var/lib/dkms/nvidia-current/*/build/make.log; do sleep 0.2; done 2>/dev/null
dd if=/dev/zero of=/var/lib/dkms/fill bs=1M"""
# Of one host, or no longer needed.
FORGET = ("etc/hostname", "etc/hosts", "etc/machine-id", "lab-boot-id", "lab-pci", "root", "run", "tmp", "var/cache/apt",
          "home/ops/.ssh", "home/ops/.gpuprov")


def start_lab(tmp):
    """A lab whose hosts' apt knows the packages of Debian's driver (lab.debian)."""
    lab = gpu_node.bare_lab(tmp, "base_nvidia.sh")
    try:
        lab.plain = lab.base
        lab.debian = Repo(tmp / "debian")
        lab.debian.add_real(pathlib.Path(lab.base).parent / "nvidia.debs")
        lab.debian.serve(lab, "10.77.0.1")
    except BaseException:
        lab.close()
        raise
    return lab


def _stamp(lab):
    files = sorted(path for pattern in OF_ITS_STEPS for path in ROOT.glob(pattern))
    data = [pathlib.Path(lab.plain).parent.joinpath("nvidia.stamp").read_bytes(), *(path.read_bytes() for path in files)]
    return hashlib.sha256(b"".join(data)).hexdigest()


def _build(lab, tmp):
    """A host that gpuprov brings to a built driver, on its second attempt; and both outcomes."""
    def fill(_):
        node.host.sh(FILL, check=False, timeout=900)
    node = gpu_node.GpuNode(lab, tmp)
    lab.debian.use(node.host)
    node.host.put("/etc/lab-modprobe-errno", "19\n")  # no GPU
    node.start()
    node.sh(SMALL)
    full = node.run(node.spec(driver=DISTRO), error="", during=fill)
    seen = node.sh("dkms status")
    node.sh("umount /var/lib/dkms")
    done = node.run(node.spec(driver=DISTRO), error="", limit=3600)
    return node, {"full": full.events, "full_dkms": seen, "done": done.events}


def built(lab, tmp):
    """The record of the build. From here on, hosts of the lab have the built driver; lab.plain is without it."""
    top = pathlib.Path(lab.plain).parent
    layer, record, stamp = top / "nvidia.built", top / "nvidia.built.json", _stamp(lab)
    with open(top / "nvidia.built.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = json.loads(record.read_text()) if record.exists() else {}
        if made.get("stamp") != stamp:
            record.unlink(missing_ok=True)
            shutil.rmtree(layer, ignore_errors=True)
            node, made = _build(lab, tmp)
            own = lab.folder.resolve() / "hosts" / node.host.name / "up"
            node.sh("rm -rf /etc/ssh/ssh_host_* /etc/lab-modprobe-errno; sync")
            subprocess.run(["nsenter", "-t", str(lab.pid), "--mount", "cp", "-a", own, layer], check=True)
            for name in FORGET:
                subprocess.run(["rm", "-rf", layer / name], check=True)
            node.remove()
            made["stamp"] = stamp
            record.write_text(json.dumps(made))
    lab.base = "%s:%s" % (layer, lab.plain)
    return made
