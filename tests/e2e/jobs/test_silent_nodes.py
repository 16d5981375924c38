# SPDX-License-Identifier: Apache-2.0
"""A node whose sshd answers and whose agent does not: its disk hangs. Nothing waits for it without a limit, and the
limits are seen."""
import os
import re
import signal
import subprocess

import pytest

from clock import Clock
from conftest import Gpuprov, built_program
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: silent
offers: [{provider: local}]
limits: {ttl: 30m}
validate: {time: 1m}
job:
  run: mkdir -p out; echo made >out/file
  outputs: [{path: out, to: results}]
"""
AGENT = ".gpuprov/agent/gpuprov-agent"
HANGS = f"sleep {98765 + os.getpid()}"  # another run on this machine may have one of its own


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("silent")
    (tmp / "home").mkdir()
    g = Gpuprov(built_program(), tmp / "state", tmp / "home")
    g.spec = tmp / "spec.yaml"
    g.spec.write_text(SPEC)
    g("up", g.spec)
    yield g
    g("down", "silent", code=None)


def hanging():
    """Process ids of the agents that hang."""
    return subprocess.run(["pgrep", "-f", f"^{HANGS}$"], capture_output=True, text=True, check=False).stdout.split()


@pytest.fixture
def node(stack):
    """node.hang(VERBS): these verbs of the agent answer no more; node.start: popen. It answers again after the test, and no job runs."""
    def sh(script):
        stack("ssh", "silent", "--", script)

    def hang(verbs):
        sh(f"mv {AGENT} {AGENT}.real; printf '%s\\n' '#!/bin/sh' 'case $1 in {verbs}) exec {HANGS};; esac' "
           f"'exec ~/{AGENT}.real \"$@\"' >{AGENT}.new; chmod 755 {AGENT}.new; mv {AGENT}.new {AGENT}")

    def start(*args, **kw):
        running.append(stack.popen(*args, **kw))
        return running[-1]

    running = []
    stack.hang, stack.start = hang, start
    yield stack
    for p in running:
        p.kill()
    sh(f"test ! -e {AGENT}.real || mv {AGENT}.real {AGENT}; pkill -f '^{HANGS}$'; true")
    wait_for(lambda: not hanging())
    stack("cancel", "silent")


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


def another_hangs(p, before):
    """Waits until one more call of the agent hangs, or p has ended."""
    wait_for(lambda: p.poll() is not None or set(hanging()) - set(before))


def started(node, clock, name):
    """Each name is another job: one that was cancelled and not fetched would be continued."""
    p = node.start("exec", "silent", "--", f"echo {name} is up; sleep 300", env=clock.env)
    assert "up" in p.stdout.readline(), p.communicate()
    return p


def test_a_job_whose_node_hangs_is_lost_after_its_time(node, clock):
    p = started(node, clock, "one")
    node.hang("job")
    for _ in range(10):  # a connection that can be opened again does not count
        before = hanging()
        clock.jump(120)
        another_hangs(p, before)
        if p.poll() is not None:
            break
    _, err = p.communicate(timeout=60)
    assert p.returncode == 9, err
    assert re.search(r"silent/0 .*the node has not answered for .*it counts as lost after 15m", err), err
    assert "lost: its node has not answered for 1" in err and "its agent does not answer, though its sshd does" in err


def test_ctrl_c_ends_although_the_node_hangs(node, clock):
    p = started(node, clock, "two")
    node.hang("job")
    p.send_signal(signal.SIGINT)
    wait_for(hanging)  # the question to stop
    jumps = [61] + 5 * [18.5]  # a minute for it, then rounds of 18 s
    while p.poll() is None and jumps:
        before = hanging()
        clock.jump(jumps.pop(0))
        another_hangs(p, before)
    assert jumps, "it goes on and on"
    _, err = p.communicate(timeout=60)
    assert p.returncode == 130, err
    assert "the job could not be stopped there" in err


def test_a_copy_whose_node_hangs_is_tried_three_times(node, clock, tmp_path):
    (tmp_path / "file").write_text("x")
    node.hang("tree")
    p = node.start("cp", tmp_path / "file", "silent/0:", env=clock.env)
    wait_for(hanging)
    for _ in range(3):
        before = hanging()
        clock.jump(61)
        another_hangs(p, before)
    _, err = p.communicate(timeout=60)
    assert p.returncode == 6, err
    assert "silent/0: its agent does not answer, though its sshd does (3 times for 60 s)" in err
    assert "tries again" in err


def test_ctrl_c_ends_a_fetch_and_the_outputs_stay(node):
    node("exec", "silent", "--", "true")  # fetches what the job of another test left
    node.hang("tree")
    p = node.start("exec", node.spec)
    wait_for(hanging)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=60)
    assert p.returncode == 130, err
    assert "the nodes still have 'out'" in err and "repeat this command" in err
    results = node.spec.parent / "results"
    assert not (results / "file").exists()
    node("ssh", "silent", "--", f"mv {AGENT}.real {AGENT}")
    assert node("exec", "--json", node.spec).json["job"]["attached"]
    assert (results / "file").read_text() == "made\n"
