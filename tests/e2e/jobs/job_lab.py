# SPDX-License-Identifier: Apache-2.0
"""Parts of the tests of `gpuprov run`: a spec beside its working folder, waits on stderr, and checks of what is left."""
import contextlib
import fcntl
import json
import re
import signal

from snapshot import Snapshot, leftovers
from waiting import wait_for


# The smallest spec of a job with results; more lines of `job` may follow.
SPEC = """\
name: train
nodes: {nodes}
offers: [{{provider: local}}]
limits: {{ttl: 20m}}
validate: {{time: 1m}}
job:
  workdir: work
  run: sh job.sh
  outputs: [{{path: out, to: results}}]
"""


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


def marks(gpuprov):
    """The files that keep the results of jobs whose nodes are being destroyed, or owe files."""
    return list((gpuprov.state / "stacks").glob("*/job_end.json"))


def killed(gpuprov, spec, text):
    """Starts a run, kills it at the first line with the text (None: as soon as there is a mark), and returns the content
    of the mark."""
    p = gpuprov.popen("run", spec)
    try:
        if text is None:
            wait_for(lambda: marks(gpuprov), 120)
        else:
            seen(p, text)
    finally:
        p.kill()
        p.communicate()
    assert p.returncode == -signal.SIGKILL
    [mark] = marks(gpuprov)
    return json.loads(mark.read_text())


def nothing_left(gpuprov, before, tmp_path):
    """before: a Snapshot."""
    assert not list((gpuprov.state / "local").glob("*"))
    assert gpuprov.json("status")["stacks"] == []
    wait_for(lambda: not leftovers(before, Snapshot(tmp_path)))
