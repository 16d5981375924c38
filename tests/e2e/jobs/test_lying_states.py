# SPDX-License-Identifier: Apache-2.0
"""A node that says what it wants about its job. It decides about nothing but itself, and nobody waits for it without end."""
import json
import pathlib
import shlex
import signal
import subprocess

import pytest

import job_lab
from clock import Clock
from conftest import Gpuprov, built_program
from job_lab import seen, write_job

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: liar
offers: [{provider: local}]
limits: {ttl: 30m}
validate: {time: 1m}
"""
AGENT = ".gpuprov/agent/gpuprov-agent"
# Its job goes on, whatever it is asked.
STOPS_NOTHING = 'if [ "$2" = stop ]; then shift 2; set -- job state "$1"; fi'
# It announces a log without end, and moves on in it without a byte.
LONG_LOG = """\
if [ "$2" = state ]; then "$me.real" "$@" | sed 's/"log_bytes":[0-9]*/"log_bytes":9007199254740992/'; exit; fi
if [ "$2" = follow ]; then echo '@{"at":'$(($5 + 6000))'}'; exit; fi"""
# Another job runs there.
STATE = json.dumps({"id": "00112233445566aa", "key": "7b" * 32, "rank": 0, "ranks": 1, "state": "running", "started_s": 1795858964,
                    "attempt": 1, "exit": None, "log_bytes": 0})
BUSY = f'if [ "$2" = state ]; then echo {shlex.quote(STATE)}; exit; fi'


def liar(what):
    return f'#!/bin/sh\nme=$(readlink -f "$0")\n{what}\nexec "$me.real" "$@"\n'


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("liar")
    (tmp / "home").mkdir()
    (tmp / "spec.yaml").write_text(SPEC)
    g = Gpuprov(built_program(), tmp / "state", tmp / "home")
    g("up", tmp / "spec.yaml")
    yield g
    g("down", "liar", code=None)


def tell(gpuprov, name, what):
    """From now on the node's agent answers so."""
    gpuprov("ssh", name, "--", f"test -e {AGENT}.real || cp {AGENT} {AGENT}.real; printf %s {shlex.quote(liar(what))} >{AGENT}.new; "
            f"chmod 755 {AGENT}.new; mv {AGENT}.new {AGENT}")


@pytest.fixture
def honest(stack):
    yield stack
    stack("ssh", "liar", "--", f"mv {AGENT}.real {AGENT}")
    stack("cancel", "liar")


def end_of(p, clock):
    """stdout and stderr of a process that waits for a minute of its own clock, more than once."""
    for _ in range(20):
        if p.poll() is not None:
            break
        clock.jump(61)
        try:
            return p.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            continue
    return p.communicate(timeout=60)


def test_cancel_ends_though_the_job_goes_on(honest, tmp_path):
    clock = Clock(tmp_path)
    honest("exec", "-d", "liar", "--", "sleep 300")
    tell(honest, "liar", STOPS_NOTHING)
    p = honest.popen("cancel", "liar", env=clock.env)
    seen(p, "stopping job")
    out, err = end_of(p, clock)
    assert p.returncode == 6 and "was stopped" not in out, (out, err)
    assert "was asked to end, and it may still run on node 0: the job could not be stopped on its node" in err
    assert "'gpuprov cancel liar' asks again, 'gpuprov down liar' destroys the nodes" in err


def test_logs_end_though_a_log_without_end_is_announced(honest, tmp_path):
    clock = Clock(tmp_path)
    honest("exec", "-d", "liar", "--", "echo one; sleep 300")
    tell(honest, "liar", LONG_LOG)
    p = honest.popen("logs", "--job", "liar", env=clock.env)
    _, err = p.communicate(timeout=300)
    assert "the node has announced 9007199254740992 bytes of the log, and 0 came: not waiting for the rest" in err, err


def test_ctrl_c_destroys_the_nodes_though_the_job_goes_on(gpuprov, tmp_path):
    """Also the honest ones', whose files come before."""
    clock = Clock(tmp_path)
    spec = write_job(tmp_path, job_lab.SPEC.format(nodes=2), "mkdir -p out; echo $NODE_RANK >out/f; echo is up; sleep 300")
    p = gpuprov.popen("run", spec, env=clock.env)
    for _ in range(2):
        assert "is up" in p.stdout.readline(), p.communicate()
    tell(gpuprov, "train/1", STOPS_NOTHING)
    p.send_signal(signal.SIGINT)
    seen(p, "stopping job")
    out, err = end_of(p, clock)
    assert p.returncode == 130, (out, err)
    assert "the job could not be stopped on its node" in err
    assert gpuprov.json("status")["stacks"] == []
    assert [pathlib.Path(tmp_path, f"results/{rank}/f").read_text() for rank in (0, 1)] == ["0\n", "1\n"]


def test_a_node_that_says_it_is_busy_after_its_launch(gpuprov, tmp_path):
    """Another gpuprov may have been faster, so its nodes are not destroyed. That they stay is said."""
    swap = f"A=/root/{AGENT}; until [ -x $A ]; do sleep 0.1; done; cp $A $A.real; mv /root/liar $A"
    step = ["printf %s " + shlex.quote(liar(f'[ "$1" = job ] || exec "$me.real" "$@"\n{BUSY}')) + " >/root/liar", "chmod 755 /root/liar",
            f"setsid sh -c {shlex.quote(swap)} >/dev/null 2>&1 </dev/null &"]
    text = "\n".join(step).replace("\n", "\n        ")
    spec = write_job(tmp_path, job_lab.SPEC.format(nodes=1) + f"bootstrap:\n  steps:\n    - name: swap\n      run: |\n        {text}\n",
                     "true")
    said = gpuprov("run", spec, code=1)
    assert "another job runs there" in said.err, said.err
    assert "the nodes stay until " in said.err and "because a node reports that another job runs on it: 'gpuprov down train'" in said.err
    assert len(gpuprov.json("status")["stacks"][0]["nodes"]) == 1
    gpuprov("down", "train")
