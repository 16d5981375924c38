# SPDX-License-Identifier: Apache-2.0
"""What the machine looked like before and after: processes, mounts, links. The
test's own eyes: nothing of gpuprov is asked. Only what can be of this test's folder counts: other tests
and their users work on the same machine at the same time."""
import os
import pathlib
import re
import subprocess


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


class Snapshot:
    def __init__(self, folder):
        self.folder = str(pathlib.Path(folder).resolve())
        self.mounts = [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
                       if self.folder in line or " gpuprov" in line]
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
        # the names that nodes and their bridge have in a namespace of their own
        self.links = [name for name in (line.split(":")[1].strip() for line in links)
                      if re.fullmatch(r"(br0|node\d+)(@.*)?", name)]
        self.processes = _gpuprov_processes([self.folder])


def leftovers(before, after):
    """Differences that a stack could have made; [] when there are none."""
    out = []
    out += [f"mount {m}" for m in after.mounts if m not in before.mounts]
    out += [f"link {x}" for x in after.links if x not in before.links]
    out += [f"process {p}" for p in after.processes - before.processes]
    return out
