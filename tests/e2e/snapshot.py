# SPDX-License-Identifier: Apache-2.0
"""What the machine looked like before and after: processes, mounts, namespaces, links, files. The
test's own eyes: nothing of gpuprov is asked."""
import os
import pathlib
import subprocess


def _namespaces():
    seen = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for kind in ("net", "pid", "mnt", "uts", "ipc", "user"):
            try:
                seen.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:
                pass
    return seen


def _gpuprov_processes(marks):
    """Processes whose command line or environment names one of the marks (zombies have neither)."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("cmdline", "environ"):
            try:
                text = pathlib.Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if any(m in text for m in marks):
                found.add(int(pid))
    return found


def holders():
    """Live processes that hold or belong to a stack, by what the kernel says they run."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            cmdline = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"__holder" in cmdline or b"gpuprov: " in cmdline[:10]:
                found.append(int(pid))
        except OSError:
            pass
    return found


class Snapshot:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.mounts = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
        self.links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True,
                                    check=True).stdout.splitlines()
        self.links = [line.split(":")[1].strip() for line in self.links]
        self.namespaces = _namespaces()
        self.processes = _gpuprov_processes([str(self.folder)])
        self.files = sorted(str(p) for p in self.folder.rglob("*"))
        self.netns = sorted(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else []


def leftovers(before, after, own=lambda pid: False):
    """Differences that a stack could have made; [] when there are none."""
    out = []
    out += [f"mount {m}" for m in after.mounts if m not in before.mounts]
    out += [f"link {x}" for x in after.links if x not in before.links]
    out += [f"netns {x}" for x in after.netns if x not in before.netns]
    out += [f"process {p}" for p in after.processes - before.processes if not own(p)]
    return out
