# SPDX-License-Identifier: Apache-2.0
"""Bad days of `gpuprov run` that the other files of this folder leave out: Ctrl-C twice, kills while files move, the
deadline after a kill, a gigabyte of output, odd outputs. docs/testing.md has the whole list."""
import contextlib
import pathlib
import re
import signal
import subprocess
import threading
import time

import pytest

from conftest import sanitized
from job_lab import in_use, nothing_left, seen, write_job
from snapshot import Snapshot
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: train
offers: [{provider: local}]
limits: {ttl: 20m}
validate: {time: 1m}
job:
  workdir: work
  run: sh job.sh
  outputs: [{path: out, to: results}, {path: more, to: second}]
"""


@pytest.fixture
def job(tmp_path):
    """job(SCRIPT): the path of a spec that runs it."""
    def write(script):
        return write_job(tmp_path, SPEC, script)
    return write


# --- signals and kills ---

MARKS = {"launch": "create:", "bootstrap": "bootstrapping", "check": "checking the node", "files": "working folder: ",
         "job": "runs on 1 node", "results": "trying again for ", "destroy": "destroy"}


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("phase", MARKS)
def test_ctrl_c_until_it_has_ended(gpuprov, job, tmp_path, phase):
    """The second one leaves at once, unless the first one was enough. `down` ends what is left."""
    before = Snapshot(tmp_path)
    ends = phase in ("results", "destroy")
    spec = job("mkdir -p out; echo x >out/a; " + ("" if ends else "trap '' TERM; while :; do sleep 0.1; done"))
    with in_use(tmp_path / "results") if phase == "results" else contextlib.nullcontext():
        p = gpuprov.popen("run", spec)
        read = "".join(seen(p, MARKS[phase]))

        def press():
            p.send_signal(signal.SIGINT)
            return p.poll() is not None
        wait_for(press, 20)
        read += p.communicate()[1]
    assert p.returncode == 130, read
    left_at_once = "gpuprov: stopped" in read  # before the claim: no node; after it the node is named
    if "1 node of 'train' stays" in read:
        assert re.search(r"^ *train/0 +local-\S+ +until its deadline 20", read, re.M), read
    explained = "nothing is left" in read or "the nodes stay until their deadline" in read
    assert left_at_once or explained, read
    gpuprov("down", spec)
    nothing_left(gpuprov, before, tmp_path)


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("phase", ["files", "results"])
def test_killed_while_files_move_the_next_run_goes_on(gpuprov, job, tmp_path, phase):
    """files: they are there, the job is not. results: the first output is here, the second is not."""
    before = Snapshot(tmp_path)
    spec = job("mkdir -p out more; echo run >>out/runs; echo 2 >more/b")
    with in_use(tmp_path / "second") if phase == "results" else contextlib.nullcontext():
        p = gpuprov.popen("run", spec)
        seen(p, MARKS[phase])
        p.kill()
        p.communicate()
    again = gpuprov("run", "--json", spec).json["job"]
    assert again["state"] == "succeeded"
    assert phase == "files" or again["attached"]
    assert (tmp_path / "results/runs").read_text() == "run\n" and (tmp_path / "second/b").read_text() == "2\n"
    nothing_left(gpuprov, before, tmp_path)


@pytest.mark.long
def test_killed_the_deadline_holds_and_moves_until_it_is_over(gpuprov, job, tmp_path):
    """Nobody comes back but for `extend`, which either moves the deadline or fails: no node ends that it has moved."""
    before = Snapshot(tmp_path)
    p = gpuprov.popen("run", job("while :; do sleep 0.1; done"))
    seen(p, MARKS["job"])
    p.kill()
    p.communicate()
    gpuprov("extend", "train", "1m")
    end = time.monotonic() + 59
    wait_for(lambda: time.monotonic() > end, 70)
    assert gpuprov.json("status")["stacks"][0]["phase"] == "ready"
    moved = gpuprov("extend", "train", "1m", code=None)  # while it expires
    local = gpuprov.state / "local"
    if moved.code == 0:
        end = time.monotonic() + 50
        while time.monotonic() < end:
            assert list(local.glob("*")), "it was moved, and ended nevertheless"
            time.sleep(0.5)
    wait_for(lambda: not list(local.glob("*")), 90)
    assert "there is no stack 'train' with nodes" in gpuprov("extend", "train", "1h", code=1).err
    gpuprov("down", "train")  # the journal still has it
    nothing_left(gpuprov, before, tmp_path)


# --- what a job prints and leaves ---

LINES = 10_000_000


def checksum(command):
    return subprocess.run(f"{command} | sha256sum", shell=True, check=True, capture_output=True, text=True).stdout


@pytest.mark.long
def test_a_job_that_prints_a_gigabyte(gpuprov, job, tmp_path):
    """Ten million lines, none is lost, and they are not kept in memory."""
    before = Snapshot(tmp_path)
    spec = job(f"seq -f %099.0f 1 {LINES}")
    want = checksum(f"seq -f '[0] %099.0f' 1 {LINES}")
    with subprocess.Popen("sha256sum", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        p = gpuprov.popen("run", spec, stdout=reader.stdin)
        reader.stdin.close()
        err = []
        thread = threading.Thread(target=lambda: err.append(p.stderr.read()))
        thread.start()
        peak = 0
        while p.poll() is None:  # wait4's ru_maxrss begins with the size of this process
            with contextlib.suppress(OSError, AttributeError):
                status = pathlib.Path(f"/proc/{p.pid}/status").read_text()
                peak = max(peak, int(re.search(r"VmHWM:\s*(\d+)", status).group(1)))
            time.sleep(0.2)
        thread.join()
        p.stderr.close()
        got = reader.stdout.read()
    assert p.returncode == 0, err
    assert got == want
    assert sanitized(gpuprov.program) or 0 < peak < 100 << 10
    nothing_left(gpuprov, before, tmp_path)


ODD = r"""
mkdir -p out more
cd out
printf 1 >"$(printf 'a\nb')"
printf 2 >"$(printf '\033[31mred')"
mkfifo "$(printf 'pipe\n\033[31m')"
ln -s ../../.. up
truncate -s 20G sparse
printf end >>sparse
"""


def test_odd_outputs(gpuprov, job, tmp_path):
    """Newlines and escapes in names, a link out of the tree, a pipe, 20 GB of holes."""
    p = gpuprov("run", job(ODD), code=1)
    assert "\033[31m" not in p.err and "outputs are incomplete: 2 files were not fetched" in p.err
    out = tmp_path / "results"
    assert sorted(f.name for f in out.iterdir()) == ["\033[31mred", "a\nb", "sparse"]
    assert ((out / "a\nb").read_text(), (out / "\033[31mred").read_text()) == ("1", "2")
    size = (20 << 30) + 3
    assert (out / "sparse").stat().st_size == size and (out / "sparse").stat().st_blocks * 512 < 1 << 20
    with (out / "sparse").open("rb") as f:
        f.seek(size - 4)
        assert f.read() == b"\0end"
    gpuprov("down", "train")
