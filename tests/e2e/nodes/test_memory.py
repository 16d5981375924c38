# SPDX-License-Identifier: Apache-2.0
"""The program's memory: keys in it stay there (no core file, and no other process of the same user reads it), and it
hardly grows with the number of nodes."""
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import time

import pytest
from conftest import sanitized
from waiting import wait_for

NOBODY = 65534


def has_open(pid, path):
    """Whether the process has this file open. Other users see no files of one that may not be dumped: main has begun then."""
    try:
        return str(path) in [os.readlink(f) for f in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
    except FileNotFoundError:  # closed meanwhile
        return False
    except PermissionError:
        return True


@pytest.fixture
def waiting(program, tmp_path):
    """Starts the program as an ordinary user, in a folder of its own, and leaves it waiting for a spec."""
    user = {} if os.getuid() != 0 else {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    folder = pathlib.Path("/tmp") / f"gpuprov-memory-{os.getpid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    copy = folder / "gpuprov"
    shutil.copy(program, copy)
    fifo = folder / "spec.yaml"
    os.mkfifo(fifo)
    fifo.chmod(0o644)
    writer = os.open(fifo, os.O_RDWR)  # who writes nothing
    started = []

    def start():
        p = subprocess.Popen([str(copy), "check", str(fifo)], cwd=folder, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={"PATH": os.environ["PATH"], "HOME": str(folder),
                                  "GPUPROV_STATE_DIR": str(folder / "state")},
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)), **user)
        started.append(p)
        wait_for(lambda: has_open(p.pid, fifo))  # main has begun long before
        return p

    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    yield start
    for p in started:
        if p.poll() is None:
            p.kill()
        p.communicate()
    os.close(writer)
    shutil.rmtree(folder)


def test_no_core_limit_and_not_dumpable(waiting):
    p = waiting()
    limits = pathlib.Path(f"/proc/{p.pid}/limits").read_text()
    core = [line.split() for line in limits.splitlines() if line.startswith("Max core file size")][0]
    assert core[4:6] == ["0", "0"], core
    # the kernel gives the files of a process that may not be dumped to root
    assert os.stat(f"/proc/{p.pid}/mem").st_uid == 0
    read = ["cat", f"/proc/{p.pid}/environ"]
    user = {} if os.getuid() != 0 else {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    other = subprocess.run(read, capture_output=True, text=True, **user)
    assert other.returncode != 0 and other.stdout == "" and "denied" in other.stderr


def test_no_core_file(waiting):
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith(("|", "/")):
        pytest.skip(f"core files do not come into the folder here ({pattern})")
    p = waiting()
    folder = pathlib.Path(os.readlink(f"/proc/{p.pid}/cwd"))
    p.send_signal(signal.SIGABRT)
    assert p.wait(timeout=30) == -signal.SIGABRT
    assert not list(folder.glob("core*"))


def peak_kib(gpuprov, path):
    """The largest size of `up`. Not wait4's: that begins with the size of this process."""
    peak, up = 0, gpuprov.popen("up", "-q", path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while up.poll() is None:
        found = re.search(r"VmHWM:\s*(\d+)", pathlib.Path(f"/proc/{up.pid}/status").read_text())
        peak = max(peak, int(found.group(1)) if found else 0)
        time.sleep(0.02)
    assert up.returncode == 0
    gpuprov("down", path)
    return peak


@pytest.mark.long
@pytest.mark.root
@pytest.mark.namespaces
def test_up_hardly_grows_with_the_number_of_nodes(gpuprov, spec):
    """What all nodes need, such as the agents, is there once: one node more takes less than 1 MiB."""
    if sanitized(gpuprov.program):
        pytest.skip("a sanitizer keeps memory of its own")
    one, many = (peak_kib(gpuprov, spec(f"name: memory{n}\nnodes: {n}\noffers: [{{provider: local}}]\n"
                                        "limits: {ttl: 10m}\n", f"memory{n}.yaml")) for n in (1, 6))
    assert one < 32 * 1024, f"{one} KiB"
    assert (many - one) / 5 < 1024, f"one node: {one} KiB, six: {many} KiB"
