# SPDX-License-Identifier: Apache-2.0
"""Jobs on the ready nodes of one stack: exec, attach, wait, cancel, logs --job. The stack is made once."""
import contextlib
import hashlib
import json
import re
import signal
import sqlite3

import pytest

from conftest import Gpuprov, built_program
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: jobs
nodes: 2
offers: [{provider: local}]
limits: {ttl: 30m}
validate: {time: 1m}
secrets: [{env: TOKEN, from: env:JOB_TOKEN}]
job:
  setup: echo "setup $LEVEL"
  env: {LEVEL: high}
  run: sleep 300
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("jobs")
    (tmp / "home").mkdir()
    g = Gpuprov(built_program(), tmp / "state", tmp / "home")
    g.env["JOB_TOKEN"] = "tok'en\n\"$x"
    g.spec = tmp / "spec.yaml"
    g.spec.write_text(SPEC)
    g("up", g.spec)
    yield g
    g("down", "jobs", code=None)


@pytest.fixture
def gpuprov(stack):
    yield stack
    stack("cancel", "jobs")


def job_of(gpuprov, *words, code=0):
    """The job in the result of `gpuprov exec WORDS --json`."""
    return gpuprov("exec", "--json", *words, code=code).json["job"]


def lines(out, rank):
    return [line.split("] ", 1)[1] for line in out.splitlines() if line.startswith(f"[{rank}] ")]


def run_states(gpuprov, slot):
    agent = gpuprov("ssh", f"jobs/{slot}", "--", ".gpuprov/agent/gpuprov-agent job list").out
    return [json.loads(line) for line in agent.splitlines() if line.startswith("{")]


def test_the_environment_of_each_rank(gpuprov):
    script = ('printf "%s|" "$GPUPROV_NODE_RANK" "$GPUPROV_NUM_NODES" "$WORLD_SIZE" "$MASTER_ADDR:$MASTER_PORT" "$LEVEL"; echo; '
              'echo "$GPUPROV_NODE_IPS" | wc -l; ip -o addr show dev "$GLOO_SOCKET_IFNAME" | grep -c inet; '
              'grep -c "^10.91.0.[23] slots=1$" "$GPUPROV_HOSTFILE"; printf %s "$TOKEN" | sha256sum; pwd; '
              'echo "$GPUPROV_TORCHRUN_ARGS"; env | grep -c GPUPROV_SECRET')
    out = gpuprov("exec", "jobs", "--", script + "; true").out
    for rank in (0, 1):
        got = lines(out, rank)
        assert got[0] == "setup high"
        assert got[1] == f"{rank}|2|2|10.91.0.2:29500|high|"
        assert got[2] == "2" and int(got[3]) >= 1 and got[4] == "2"
        assert got[5] == hashlib.sha256(gpuprov.env["JOB_TOKEN"].encode()).hexdigest() + "  -"
        assert got[6].endswith("/.gpuprov/work")
        assert got[7] == f"--nnodes 2 --node-rank {rank} --nproc-per-node 1 --master-addr 10.91.0.2 --master-port 29500"
        assert got[8] == "0"
        # a secret is in no file of the node's job
        assert "tok'en" not in gpuprov("ssh", f"jobs/{rank}", "--", "cat .gpuprov/nodes/*/jobs/*/* 2>/dev/null; true").out


def test_words_are_arguments_and_one_word_is_a_script(gpuprov):
    assert "[0] a  b $HOME" in gpuprov("exec", "jobs", "--", "echo", "a  b $HOME").out
    assert "[1] /" in gpuprov("exec", "jobs", "--", "echo $HOME").out


def test_the_failure_of_one_rank_stops_the_others(gpuprov):
    script = 'echo here; if [ $NODE_RANK = 1 ]; then exit 42; fi; trap "echo told; exit 0" TERM; sleep 300 & wait'
    failed = gpuprov("exec", "jobs", "--", script, code=9)
    assert "jobs/1: the job failed: exited with code 42" in failed.err
    assert lines(failed.out, 0) == ["setup high", "here", "told"]
    result = gpuprov("exec", "jobs", "--json", "--", script, code=9).json
    assert (result["job"]["state"], result["job"]["exit"], result["job"]["rank"]) == ("failed", 42, 1)
    assert result["error"]["code"] == "job"
    assert [r["reason"] for r in result["job"]["ranks"]] == ["stopped", "exited"]
    killed = gpuprov("exec", "jobs", "--json", "--", "kill -SEGV $$", code=9).json["job"]
    assert killed["exit"] is None and killed["signal"] == "SIGSEGV"


def test_a_setup_that_fails(gpuprov, tmp_path):
    spec = tmp_path / "s.yaml"
    spec.write_text(SPEC.replace('echo "setup $LEVEL"', "exit 7"))
    failed = gpuprov("exec", spec, code=9)
    assert "its setup exited with code 7" in failed.err


def test_several_after_another_share_the_working_folder(gpuprov):
    ids = set()
    for k in range(3):
        job = job_of(gpuprov, "jobs", "--", f"echo {k} >>kept; cat kept")
        assert job["state"] == "succeeded" and job["exit"] == 0 and not job["attached"]
        ids.add(job["id"])
    assert len(ids) == 3
    assert lines(gpuprov("exec", "jobs", "--", "cat kept").out, 1)[1:] == ["0", "1", "2"]
    # the same definition again is a new job, because the first one was finished
    again = [job_of(gpuprov, "jobs", "--", "true") for _ in range(2)]
    assert again[0]["key"] == again[1]["key"] and again[0]["id"] != again[1]["id"]


def test_hostile_bytes_do_not_reach_the_terminal(gpuprov):
    out = gpuprov("exec", "jobs", "--", r"printf 'a\033[2Jb\033]0;t\007c\n10%%\r100%%\n\200\377\n[9] x\n'; printf last").out
    assert lines(out, 0)[1:] == ["abc", "100%", "??", "[9] x", "last"]
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", out)


def test_a_long_line_is_whole(gpuprov):
    out = gpuprov("exec", "jobs", "--", "head -c 100000 /dev/zero | tr '\\0' x; echo; echo end").out
    assert "".join(lines(out, 0)[1:-1]) == "x" * 100000 and lines(out, 0)[-1] == "end"


def test_on_rank0(gpuprov, tmp_path):
    spec = tmp_path / "s.yaml"
    spec.write_text(SPEC.replace("run: sleep 300", "run: echo $GPUPROV_NUM_NODES\n  on: rank0"))
    out = gpuprov("exec", spec).out
    assert lines(out, 0) == ["setup high", "2"] and lines(out, 1) == []


def test_detach_attach_wait_and_logs(gpuprov):
    job = job_of(gpuprov, "-d", "jobs", "--", "echo first; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo last")
    assert job["state"] == "running"
    attached = gpuprov.popen("attach", "jobs")
    waiting = gpuprov.popen("wait", "--json", "jobs")
    wait_for(lambda: lines(gpuprov("logs", "--job", "jobs").out, 1) == ["setup high", "first"])
    assert gpuprov("logs", "--job", "jobs/1").out == "setup high\nfirst\n"
    # an attached one that is interrupted leaves the job alone
    other = gpuprov.popen("attach", "jobs")
    wait_for(lambda: "first" in other.stdout.readline())
    other.send_signal(signal.SIGINT)
    assert other.wait(30) == 130
    for slot in (0, 1):
        gpuprov("ssh", f"jobs/{slot}", "--", "touch /tmp/go")
    out, err = attached.communicate(timeout=60)
    assert attached.returncode == 0, err
    assert lines(out, 0) == lines(out, 1) == ["setup high", "first", "last"]
    out, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0 and json.loads(out)["job"]["id"] == job["id"]
    for slot in (0, 1):
        gpuprov("ssh", f"jobs/{slot}", "--", "rm /tmp/go")
    # it was not collected: the same command takes its result, another one starts anew
    same = "echo first; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo last"
    refused = gpuprov("exec", "-d", "jobs", "--", same, code=1).err
    assert f"this job has ended ({job['id']})" in refused and "without --detach to fetch them" in refused
    taken = job_of(gpuprov, "jobs", "--", same)
    assert taken["id"] == job["id"] and taken["attached"]


def test_another_job_is_busy_and_cancel_ends_it(gpuprov):
    assert "no job runs" in gpuprov("cancel", "jobs").out
    job = job_of(gpuprov, "-d", "jobs")
    busy = gpuprov("exec", "--json", "jobs", "--", "true", code=1).json
    assert busy["error"]["code"] == "busy" and job["id"] in busy["error"]["message"]
    cancelled = gpuprov.json("cancel", "jobs")["job"]
    assert cancelled["id"] == job["id"] and cancelled["state"] == "stopped"
    failed = gpuprov("wait", "jobs", code=9)
    assert "stopped: it was cancelled" in failed.err
    gpuprov("exec", "jobs", "--", "true")


def test_ctrl_c_stops_the_job_on_every_node(gpuprov):
    p = gpuprov.popen("exec", "jobs", "--", "echo up; sleep 300")
    wait_for(lambda: "up" in p.stdout.readline())
    p.send_signal(signal.SIGINT)
    _out, err = p.communicate(timeout=60)
    assert p.returncode == 130, err
    for slot in (0, 1):
        newest = run_states(gpuprov, slot)[0]
        assert (newest["state"], newest["reason"], newest["collected"]) == ("ended", "stopped", True)


def test_killed_and_continued(gpuprov):
    script = "echo begin; while [ ! -e /tmp/on ]; do sleep 0.1; done; echo end"
    p = gpuprov.popen("exec", "jobs", "--", script)
    wait_for(lambda: "begin" in p.stdout.readline())
    p.kill()
    p.wait()
    again = gpuprov.popen("exec", "jobs", "--json", "--", script)
    beside = gpuprov.popen("exec", "jobs", "--", script)
    wait_for(lambda: '"begin"' in again.stderr.readline())
    wait_for(lambda: "begin" in beside.stdout.readline())
    for slot in (0, 1):
        gpuprov("ssh", f"jobs/{slot}", "--", "touch /tmp/on")
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0 and json.loads(out)["job"]["attached"], err
    out, err = beside.communicate(timeout=60)
    assert beside.returncode == 0 and "end" in out, err
    for slot in (0, 1):
        keys = [state["key"] for state in run_states(gpuprov, slot)]
        assert keys.count(keys[0]) == 1
        gpuprov("ssh", f"jobs/{slot}", "--", "rm /tmp/on")


def test_lost_connections_lose_no_line_and_repeat_none(gpuprov):
    """The job ends its node's SSH connections again and again."""
    script = ('for i in $(seq 300); do echo "line $i"; sleep 0.01; '
              'if [ $((i % 60)) = 0 ]; then pkill -KILL -f "sshd: [a-z]*@notty"; fi; done')
    out = gpuprov("exec", "jobs", "--", script, timeout=120).out
    for rank in (0, 1):
        assert lines(out, rank)[1:] == [f"line {i}" for i in range(1, 301)]


def journal(gpuprov, statement):
    """Runs SQL on the journal: what a run has recorded."""
    with contextlib.closing(sqlite3.connect(gpuprov.state / "journal.db")) as db, db:
        return db.execute(statement).fetchone()


def test_a_job_starts_on_ready_nodes_only(gpuprov, tmp_path):
    spec = tmp_path / "s.yaml"
    spec.write_text(SPEC + "  workdir: sent\n")
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent/marker").write_text("")
    (phase,) = journal(gpuprov, "select phase from nodes where slot = 1")
    journal(gpuprov, "update nodes set phase = 'failed' where slot = 1")
    try:
        refused = gpuprov("exec", spec, "--", "touch /tmp/ran", code=7)
        assert "jobs/1 is not ready" in refused.err
    finally:
        journal(gpuprov, f"update nodes set phase = '{phase}' where slot = 1")
    for slot in (0, 1):
        assert gpuprov("ssh", f"jobs/{slot}", "--", "ls /tmp").out.find("ran") < 0
        assert gpuprov("ssh", f"jobs/{slot}", "--", "ls .gpuprov/work").out.find("marker") < 0


def test_no_command(gpuprov, tmp_path):
    spec = tmp_path / "s.yaml"
    spec.write_text("name: none\noffers: [{provider: local}]\n")
    assert "has no command" in gpuprov("run", spec, code=1).err
    assert "there is no stack 'none'" in gpuprov("exec", spec, "--", "true", code=1).err
    assert len(list((gpuprov.state / "local").iterdir())) == 1  # that of this file
