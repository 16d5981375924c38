# SPDX-License-Identifier: Apache-2.0
"""A node whose agent gives signs of life and nothing else, or a byte now and then. It is not waited for without end, it
keeps no other node waiting, and a slow node that is honest is served."""
import struct
import textwrap

import pytest

from clock import Clock
from conftest import Gpuprov, built_program
from hostile_agent import BEGIN, DATA, FILE, LIST, LISTED, MAGIC, entry, frame
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

NODES = """\
name: stall
nodes: 2
offers: [{provider: local}]
limits: {ttl: 1h}
validate: {time: 1m}
"""
AGENT = ".gpuprov/agent/gpuprov-agent"


def sh_print(data):
    """A command of sh that prints these bytes."""
    return "printf '%s'" % "".join(rf"\{byte:03o}" for byte in data)


GREETING = sh_print(MAGIC)
PING = sh_print(frame(17, bytes(16)))
NOTE = sh_print(frame(15, b"\1" + struct.pack("<I", 7) + b"waiting"))
# one file of 16 MiB; then, as it is wanted, its beginning, and a frame of 1 MiB
ONE = sh_print(frame(BEGIN, b"\0") + frame(LIST, entry("f", "f", 16 << 20)) + frame(LISTED, struct.pack("<IBQ", 1, 0, 0)))
PART = sh_print(frame(FILE, bytes(12)) + struct.pack("<BI", DATA, 1 << 20))
HOSTILE = {
    "silent": "while sleep 0.2; do echo >&2; done",
    "ping": f"{GREETING}; while {PING}; do sleep 0.2; done",
    "closed": f"exec <&-; {GREETING}; while {PING}; do sleep 0.2; done",
    "note": f"{GREETING}; while {NOTE}; do sleep 0.2; done",
    "noise": "while printf x; do sleep 0.2; done",
    "byte": f"{GREETING}; {ONE}; sleep 0.3; {PART}; while printf x; do sleep 0.2; done",
    "dies": f"{GREETING}; {ONE}; sleep 0.3; {PART}; head -c 1048576 /dev/zero; kill -9 $$",
}
SLOW = ("\"$0.real\" \"$@\" | python3 -c 'import os, time; [(os.write(1, d), time.sleep(0.02)) for d in "
        "iter(lambda: os.read(0, 4096), b\"\")]'")


def wrapper(hostile):
    """An agent that does this instead of `tree serve`; the real one is beside it."""
    return f"#!/bin/sh\ncase $1 in tree) {hostile}; exit;; esac\nexec \"$0.real\" \"$@\"\n"


def plant(hostile):
    """A script for a node."""
    return (f"cd; test -e {AGENT}.real || cp -p {AGENT} {AGENT}.real\ncat >{AGENT}.new <<'END'\n{wrapper(hostile)}END\n"
            f"chmod 755 {AGENT}.new; mv {AGENT}.new {AGENT}\n")


RESTORE = f"cd; test ! -e {AGENT}.real || mv {AGENT}.real {AGENT}"


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("stall")
    (tmp / "home").mkdir()
    g = Gpuprov(built_program(), tmp / "state", tmp / "home")
    (tmp / "spec.yaml").write_text(NODES.replace("nodes: 2", "nodes: 1"))
    g("up", tmp / "spec.yaml", code=None)  # the checks of a busy machine may fail, and cp needs no ready node
    g("ssh", "stall/0", "--", "mkdir -p d; head -c 300000 /dev/urandom >d/f")
    yield g
    g("down", "stall", code=None)


@pytest.fixture
def node(stack):
    """The node of the stack; node.does(HOSTILE)."""
    stack.does = lambda hostile: stack("ssh", "stall/0", "--", plant(hostile))
    yield stack
    stack("ssh", "stall/0", "--", RESTORE)


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


@pytest.mark.parametrize("how", HOSTILE)
def test_a_copy_ends_at_its_limit(node, tmp_path, how):
    node.does(HOSTILE[how])
    got = node("cp", "--json", "--fetch-timeout", "2s", "stall/0:d", tmp_path / "d", code=6, timeout=60)
    assert got.json["error"]["code"] == "timeout" and got.json["error"]["detail"] == "TRANSFER_LIMIT", got
    assert "stall/0: the transfer did not finish in time" in got.json["error"]["message"]


def ends_after_minutes(p, clock):
    """The program's own clock runs ahead with each of its events, by less than the time in which it would wake up without
    a sign of life. Returns what it printed on stderr."""
    said = []
    for line in p.stderr:
        said.append(line)
        clock.jump(4)
    p.wait(60)
    return "".join(said)


@pytest.mark.parametrize("how", ["ping", "note", "byte"])
@pytest.mark.parametrize("way", ["up", "down"])
def test_a_copy_without_progress_ends(node, tmp_path, clock, how, way):
    (tmp_path / "x").write_bytes(bytes(10))
    node.does(HOSTILE[how])
    files = ["stall/0:d", tmp_path / "d"] if way == "down" else [tmp_path / "x", "stall/0:x"]
    p = node.popen("cp", "--json", *files, env=clock.env)
    err = ends_after_minutes(p, clock)
    if (how, way) == ("byte", "up"):
        assert p.returncode == 1 and "nonsense" in err, err
        return
    assert p.returncode == 6, err
    assert "stall/0: its agent answers, but the transfer makes no progress (3 times less than 60 kB in 120 s)" in err
    assert err.count("tries again") == 2


def test_a_slow_node_that_is_honest_is_served(node, tmp_path):
    node.does(SLOW)
    node("cp", "stall/0:d", tmp_path)
    node("cp", "--fetch-timeout", "2m", "stall/0:d/.", tmp_path / "again")
    assert (tmp_path / "d/f").stat().st_size == (tmp_path / "again/f").stat().st_size == 300000


def test_the_limit_is_for_copies_from_a_node(node, tmp_path):
    (tmp_path / "x").write_text("x")
    got = node("cp", "--fetch-timeout", "2s", tmp_path / "x", "stall/0:", code=1)
    assert "--fetch-timeout is for copies from a node" in got.err


def job_spec(name, run, places):
    return NODES.replace("stall", name) + f"job:\n  run: |\n{textwrap.indent(run, '    ')}  outputs: {places}\n"


def hidden(name):
    """The agent of the job's own node is replaced on rank 1."""
    return f"if [ $NODE_RANK = 1 ]; then\n(\n{plant(HOSTILE[name])})\nfi\n"


@pytest.mark.parametrize("how", ["ping", "byte"])
def test_a_run_ends_although_a_node_stalls(gpuprov, tmp_path, how):
    spec = tmp_path / "spec.yaml"
    spec.write_text(job_spec("run", "mkdir -p a b; echo $NODE_RANK | tee a/f >b/f\n" + hidden(how),
                             "[{path: a, to: results/a}, {path: b, to: results/b}]"))
    got = gpuprov("run", "--json", "--fetch-timeout", "3s", spec, code=6)
    assert (tmp_path / "results/a/0/f").read_text() == (tmp_path / "results/b/0/f").read_text() == "0\n"
    late = [f for f in got.json["job"]["fetched"] if f["error"]]
    assert [(f["rank"], f["path"].split("/")[-1]) for f in late] == [(1, "a"), (1, "b")]
    assert all("run/1: not fetched within 3.0s (--fetch-timeout)" in f["error"] for f in late), late
    said = [e["text"] for e in got.events]
    assert any(text.startswith("node 1 stays until its deadline, because it has outputs that are not here") for text in said)
    [stack] = gpuprov.json("status")["stacks"]  # the other one is not paid for any more
    assert [n["slot"] for n in stack["nodes"] if n["state"] == "running"] == [1], stack["nodes"]
    gpuprov("ssh", "run/1", "--", RESTORE)
    got = gpuprov("run", "--json", spec)  # the same command fetches them, and destroys the nodes
    assert (tmp_path / "results/a/1/f").read_text() == (tmp_path / "results/b/1/f").read_text() == "1\n"
    job = got.json["job"]
    assert (job["state"], job["exit"], job["recovered"], len(job["ranks"])) == ("succeeded", 0, 0, 2)
    assert [(f["rank"], f["error"]) for f in job["fetched"]] == [(0, None), (0, None), (1, None), (1, None)]
    assert not any(e.get("phase") == "launch" for e in got.events)
    assert gpuprov.json("status")["stacks"] == []


def test_a_stalled_node_does_not_stop_the_backup_of_another(gpuprov, tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(job_spec("backup", "mkdir -p c; i=0\n" + hidden("ping") +
                             "while [ ! -e stop ]; do i=$((i + 1)); echo $i >c/new; mv c/new c/f; sleep 0.2; done\n", "[]") +
                    "  checkpoint: {path: c, to: saved, every: 1s}\n")
    p = gpuprov.popen("run", "--fetch-timeout", "2s", spec)
    try:
        kept, seen = tmp_path / "saved/0/f", set()

        def more():
            if kept.exists():
                seen.add(kept.read_text())
            return len(seen) > 2 or p.poll() is not None
        wait_for(more, 240)
        assert p.poll() is None, p.communicate()
        assert not (tmp_path / "saved/1/f").exists()
        for rank in (0, 1):
            gpuprov("ssh", f"backup/{rank}", "--", "touch .gpuprov/work/stop")
        _, err = p.communicate(timeout=240)
        assert p.returncode == 6, err
    finally:
        p.kill()
