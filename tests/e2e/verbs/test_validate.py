# SPDX-License-Identifier: Apache-2.0
"""Gang checks on local nodes and their bad days: Ctrl-C, a rank that is killed, more nodes than
--jobs, a login shell that talks. What runs on the nodes is looked up in /proc by the test itself."""
import contextlib
import json
import os
import pathlib
import signal

import pytest

from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: gang
nodes: 4
offers: [{provider: local}]
limits: {ttl: 20m}
bootstrap:
  steps:
    - name: talk
      run: "printf 'echo welcome; echo beware >&2; printf today:\\\\n' >> ~/.bashrc"
      check: "grep -q welcome ~/.bashrc"
validate: {time: 1m}
"""


def below(pid, top):
    while pid > 1 and pid != top:
        try:
            pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return pid == top


def agents(gpuprov):
    """Command lines of the agents on this test's nodes, by pid."""
    record = next((gpuprov.state / "local").glob("*/holder.json"))
    holder = json.loads(record.read_text())["pid"]
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:
            continue
        if words[0].endswith("gpuprov-agent") and below(int(path.parent.name), holder):
            found[int(path.parent.name)] = words
    return found


def ranks(gpuprov, number):
    return {pid: words for pid, words in agents(gpuprov).items()
            if words[1] == "rank" and words[words.index("--rank") + 1] == str(number)}


def send(pids, signum):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # the rest of a rank ends with its half
            os.kill(pid, signum)


def in_training(pid, words):
    """Whether a rank has begun train.ddp and not said its result, by the file that it writes."""
    said = pathlib.Path(f"/proc/{pid}/root{words[words.index('--dir') + 1]}/rank.jsonl")
    with contextlib.suppress(OSError):  # the rank has ended
        lines = [line for line in said.read_text().splitlines() if '"train.ddp"' in line]
        return len(lines) > 0 and not any('"result"' in line for line in lines)
    return False


def halted(gpuprov, number, *args):
    """A validate whose rank `number` stands still in train.ddp: (process, the rank's pids). A machine that
    was through with the training before it could be halted does it again."""
    for _ in range(5):
        p = gpuprov.popen("validate", "gang", *args)
        wait_for(lambda p=p: p.poll() is not None or
                 any(in_training(*rank) for rank in ranks(gpuprov, number).items()), 100)
        pids = ranks(gpuprov, number)
        send(pids, signal.SIGSTOP)
        if pids and all(in_training(*rank) for rank in pids.items()):
            return p, pids
        send(pids, signal.SIGCONT)
        _, err = p.communicate(timeout=300)
        assert p.returncode == 0, err
    raise AssertionError("the training was over each time before a rank could be halted")


def nothing_runs(gpuprov, said):
    wait_for(lambda: not agents(gpuprov))
    for slot in range(4):
        left = gpuprov("ssh", f"gang/{slot}", "--", "echo; ls -R ~/.gpuprov/run | tail -n +2").out.split("\n", 2)[-1]
        assert left.strip() == "", f"{slot}: {left}\n{said}"


@pytest.mark.long
def test_a_gang_and_its_bad_days(gpuprov, spec):
    path = spec(SPEC)
    up = gpuprov.json("up", path, "--jobs", 2, timeout=300)  # a gang larger than the pool
    assert up["report"]["ready"] is True
    for node in up["report"]["nodes"]:
        train = next(c for c in node["checks"] if c["check"] == "train.ddp")
        assert train["verdict"] == "pass" or train["code"] == "slow_rank", train  # nodes that share the cores of a busy machine

    p, pids = halted(gpuprov, 1)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=300)
    assert p.returncode == 130, err
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids), err
    nothing_runs(gpuprov, err)

    p, pids = halted(gpuprov, 2, "--json")
    send(pids, signal.SIGKILL)
    _, err = p.communicate(timeout=300)
    assert p.returncode == 7, err
    assert "gang/2: train.ddp: " in err.splitlines()[-1], err
    nothing_runs(gpuprov, err)
    assert gpuprov.json("validate", "gang", timeout=300)["ready"] is True
    gpuprov("down", "gang")


def test_a_floor_of_a_check_that_cannot_run_is_refused(gpuprov, spec):
    path = spec("name: gang\nnodes: 1\noffers: [{provider: local}]\n"
                "validate: {floors: {net.pair.bandwidth: 1 GB/s}}\n")
    refused = gpuprov("up", path, code=1)
    assert "validate.floors: net.pair cannot run: needs two nodes" in refused.err
    refused = gpuprov("check", path, code=1)
    assert "net.pair" in refused.err + refused.out


@pytest.mark.long
def test_a_floor_of_a_check_that_was_skipped_is_not_held(gpuprov, spec):
    """The kernel's log of this machine is not a clone's to read: with a floor that is not READY."""
    path = spec("name: gang\nnodes: 1\noffers: [{provider: local}]\nlimits: {ttl: 20m}\n"
                "validate: {floors: {host.kernlog.failures: 3 lines}}\n")
    got = gpuprov("up", path, code=None, timeout=300)
    verdicts = {c["check"]: c["verdict"] for c in gpuprov.json("report", "gang", code=None)["nodes"][0]["checks"]}
    assert verdicts["host.kernlog"] == "skipped"
    assert got.code == 7 and "host.kernlog: skipped" in got.err, got
    gpuprov("down", "gang")
