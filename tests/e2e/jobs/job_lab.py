# SPDX-License-Identifier: Apache-2.0
"""Parts of the tests of `gpuprov run`: a spec beside its working folder, waits on stderr, and checks of what is left."""
import contextlib
import fcntl
import re

from snapshot import Snapshot, leftovers
from waiting import wait_for


def write_job(folder, spec, script):
    """Writes the spec and, into its working folder, the script. Returns the path of the spec."""
    (folder / "work").mkdir(exist_ok=True)
    (folder / "work/job.sh").write_text(script)
    path = folder / "spec.yaml"
    path.write_text(spec)
    return path


def seen(p, pattern, times=1):
    """Reads stderr of a process until that many lines have the pattern. Returns the lines."""
    read = []
    while times > 0:
        read.append(p.stderr.readline())
        assert read[-1], "it ended:\n" + "".join(read)
        times -= re.search(pattern, read[-1]) is not None
    return read


@contextlib.contextmanager
def in_use(folder):
    """Another copy writes to the folder."""
    folder.mkdir(parents=True)
    with open(folder / ".gpuprov-part.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def nothing_left(gpuprov, before, tmp_path):
    """before: a Snapshot."""
    assert not list((gpuprov.state / "local").glob("*"))
    assert gpuprov.json("status")["stacks"] == []
    wait_for(lambda: not leftovers(before, Snapshot(tmp_path)))
