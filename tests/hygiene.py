#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hygiene.py COMMAND...: runs tests and fails when they leave anything behind: processes, mounts, network
namespaces, control groups, or files in /dev/shm, /tmp, /var/tmp, /run, /etc and /var/lib.

Processes are told by ancestry: what the command's processes orphan becomes a child of this one, except inside a
PID namespace, which ends with its own first process. TMPDIR of the command is a new folder, removed after a run
that passed. The rest is told by name, so it is compared only when no other run is active on this machine."""
import ctypes
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

GRACE_S = 15  # for processes that are ending
LOCK = "/tmp/gpuprov-hygiene.lock"
PREFIXES = ("gpuprov", "gp-", "test_output.")
FOLDERS = ("/dev/shm", "/tmp", "/var/tmp", "/run", "/run/netns", "/etc", "/etc/default", "/etc/slurm", "/var/lib",
           "/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")
PR_SET_CHILD_SUBREAPER = 36


def named():
    """What the machine has, by name: files, control groups, mounts."""
    found = set()
    for folder in FOLDERS:
        try:
            found |= {e.path for e in os.scandir(folder) if e.name.startswith(PREFIXES) or folder == "/run/netns"}
        except OSError:
            pass
    for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        if any(word in line for word in ("gpuprov", "/gp-", " nsfs ")):
            found.add("mount " + line.split()[4])
    return found - {LOCK}


def children():
    """Processes below this one, {pid: command line}. The dead are left out."""
    parent, line = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
                state, ppid = stat[2].split()[:2]
                if state not in "ZX":
                    parent[int(entry.name)] = int(ppid)
                    said = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                    line[int(entry.name)] = said or stat[0].partition("(")[2]
            except OSError:
                pass
    below, grown = {os.getpid()}, True
    while grown:
        new = {pid for pid, up in parent.items() if up in below} - below
        below |= new
        grown = bool(new)
    return {pid: line[pid] for pid in below if pid in line and pid != os.getpid()}


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def run(argv, tmp):
    """The command's exit code. Orphans are waited for, as a machine's first process does."""
    env = {**os.environ, "TMPDIR": tmp}
    env["PYTEST_ADDOPTS"] = f"{env.get('PYTEST_ADDOPTS', '')} --basetemp={tmp}/t".strip()
    child = subprocess.Popen(argv, env=env)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # the terminal's Ctrl-C has reached the child too; what somebody sent to this process goes on to it
        signal.signal(name, lambda n, _: n == signal.SIGINT or child.send_signal(n))
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode if child.returncode >= 0 else 128 - child.returncode


def left_running():
    """Names and ends what still runs."""
    end = time.monotonic() + GRACE_S
    while (left := children()) and time.monotonic() < end:
        reap()
        time.sleep(0.1)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    reap()
    return [f"process {pid}: {line[:200]}" for pid, line in sorted(left.items())]


def main(argv):
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    fcntl.flock(lock, fcntl.LOCK_SH)
    before, began = named(), time.monotonic()
    tmp = tempfile.mkdtemp(prefix="gp-", dir="/tmp")
    code = run(argv, tmp)
    left = left_running()
    used = os.times()
    print(f"tests: {time.monotonic() - began:.0f} s, of which CPU "
          f"{used.children_user + used.children_system:.0f} s on {len(os.sched_getaffinity(0))} cores")
    left += [f"{tmp}/{name}" for name in sorted(os.listdir(tmp)) if name != "t"]
    new = sorted(named() - before - {tmp})
    if new:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left += new
        except BlockingIOError:
            print("tests: another run is active, so these may be its own:", *new, sep="\n  ")
    if left:
        print("tests: left behind:", *left, sep="\n  ")
    if code or left:
        print(f"tests: files of this run are kept in {tmp}")
        return code or 1
    shutil.rmtree(tmp)
    print("tests: nothing is left behind")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
