# SPDX-License-Identifier: Apache-2.0
"""`gpuprov run` after the loss of a node, on local nodes: which failures launch nodes again, how often, and what kills,
signals and other gpuprovs in the middle of that leave. Jobs on EC2: aws/test_run_ec2.py."""
import json
import signal

import pytest

from job_lab import nothing_left, seen, write_job
from snapshot import Snapshot
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: train
nodes: {nodes}
offers: [{{provider: local}}]
limits: {{ttl: {ttl}}}
validate: {{time: 1m}}
job:
  workdir: work
  run: sh job.sh
  outputs: [{{path: out, to: results}}]
  checkpoint: {{path: ckpt, to: saved, every: 1s}}
"""
# Counts its steps from the checkpoint on. The first time it goes on until something ends it.
STEPS = """\
mkdir -p ckpt out; from=$(cat ckpt/n 2>/dev/null || echo 0); echo from $from; n=$from
{first}
while [ $n -lt $((from + 3)) ] || [ $from = 0 ]; do
    n=$((n + 1)); echo $n >ckpt/.n && mv ckpt/.n ckpt/n; sleep 0.1
done
echo $n >out/n
"""
AGAIN = "launched again, then the job starts anew"

# In place of a node's agent: the real one, whose words about the end of the job are changed. The watch itself has
# tests of its own.
STAND_IN = """\
if [ $from = 0 ] && [ $NODE_RANK = 1 ]; then
    agent=~/.gpuprov/agent/gpuprov-agent; mv $agent $agent.real
    cat >$agent.new <<'EOF'
#!/bin/sh
[ "$1" = job ] || exec "$0.real" "$@"
if [ "$2" = follow ]; then echo '@{"health": FOUND}'; fi
"$0.real" "$@" | sed -u '%s'
EOF
    chmod +x $agent.new; mv $agent.new $agent; echo 1 >ckpt/n; sleep 11; exit 1  # the next call of follow
fi
"""
FOUND = '{"n": 1, "watch": "unhealthy", "gpu": 0, "severity": "fail", "code": "xid_79", "text": "off the bus"}'
FAULT = 's/"reason": *"exited"/"reason":"unhealthy"/; s/"unhealthy": *0/"unhealthy":1/'
NOTICE = 's/"reason": *"exited"/"reason":"preempted"/; s/"preempted": *false/"preempted":true/'


@pytest.fixture
def job(tmp_path):
    """job(FIRST, nodes=2, more=""): the path of a spec; FIRST is a part of its script."""
    def write(first, nodes=2, more="", ttl="30m"):
        return write_job(tmp_path, SPEC.format(nodes=nodes, ttl=ttl) + more, STEPS.replace("{first}", first))
    return write


@pytest.fixture(autouse=True)
def leaves_nothing(gpuprov, tmp_path):
    before = Snapshot(tmp_path)
    yield
    nothing_left(gpuprov, before, tmp_path)


def lose(gpuprov, node, saved):
    """Its machine ends, once its checkpoint is here."""
    wait_for(saved.is_file, 120)
    gpuprov("ssh", "train/%d" % node, "--", "(sleep 1; poweroff) >/dev/null 2>&1 &", code=None)


def resumed(out, rank):
    """The step at which a rank began the last time."""
    return [int(line.split()[-1]) for line in out.splitlines() if line.startswith("[%d] from " % rank)][-1]


@pytest.mark.long
def test_a_lost_node_is_launched_again_and_the_job_resumes(gpuprov, job, tmp_path):
    p = gpuprov.popen("run", "--json", job(""))
    lose(gpuprov, 1, tmp_path / "saved/1/n")
    out, err = p.communicate(timeout=300)
    assert p.returncode == 0, err
    r = json.loads(out)["job"]
    assert (r["state"], r["recovered"], r["health"]) == ("succeeded", 1, [])
    assert [(x["rank"], x["why"]) for x in r["replaced"]] == [(1, "is gone")] and r["replaced"][0]["job"] != r["id"]
    assert err.count(AGAIN) == 1
    lines = [json.loads(line) for line in err.splitlines() if line.startswith('{"rank"')]
    log = "\n".join("[%(rank)d] %(line)s" % line for line in lines)
    for rank in (0, 1):
        assert int((tmp_path / "results" / str(rank) / "n").read_text()) == resumed(log, rank) + 3 > 3


@pytest.mark.long
def test_a_node_whose_agent_ends_in_order_before_its_machine_is_launched_again(gpuprov, job, tmp_path):
    """As at a cloud's reclaim without a notice: the supervisor reports its end while the machine still exists."""
    p = gpuprov.popen("run", "--json", job(""))
    wait_for((tmp_path / "saved/1/n").is_file, 120)
    gpuprov("ssh", "train/1", "--", "kill -TERM $(cut -d' ' -f1 .gpuprov/nodes/*/jobs/*/pid); "
            "(sleep 12; poweroff) >/dev/null 2>&1 &", code=None)
    out, err = p.communicate(timeout=300)
    assert p.returncode == 0, err
    r = json.loads(out)["job"]
    assert (r["state"], r["recovered"]) == ("succeeded", 1)
    assert "the job ended as at a shutdown of its node" in err and err.count(AGAIN) == 1


@pytest.mark.long
def test_the_only_node_keeps_the_deadline_of_its_stack(gpuprov, job, tmp_path):
    p = gpuprov.popen("run", job("", nodes=1))
    assert "from 0" in p.stdout.readline()
    before = gpuprov.json("status")["stacks"][0]
    lose(gpuprov, 0, tmp_path / "saved/n")
    seen(p, AGAIN)
    seen(p, "runs on 1 node")
    after = gpuprov.json("status")["stacks"][0]
    out, err = p.communicate(timeout=120)
    assert p.returncode == 0 and resumed(out, 0) > 0, err
    assert after["nodes"][0]["id"] != before["nodes"][0]["id"]
    assert (after["uid"], after["expires"]) == (before["uid"], before["expires"])


@pytest.mark.long
def test_the_deadline_is_too_near(gpuprov, job):
    result = gpuprov("run", "--json", job("poweroff; sleep 600", nodes=1, ttl="4m"), code=9)
    assert any("the deadline is in " in e.get("text", "") for e in result.events)
    assert result.json["job"]["recovered"] == 0


@pytest.mark.long
def test_as_often_as_the_spec_allows(gpuprov, job):
    result = gpuprov("run", "--json", job("poweroff; sleep 600", nodes=1, more="  recover: 1\n"), code=9)
    assert result.json["job"]["recovered"] == 1 and result.json["destroyed"] > 0
    assert any("1 time already (job.recover)" in e.get("text", "") for e in result.events)


@pytest.mark.parametrize("said, more, why", [
    pytest.param(FAULT, "  on_unhealthy: replace\n", "has a fault", id="replace"),
    pytest.param(NOTICE, "", "was preempted", marks=pytest.mark.long, id="preempted"),
    pytest.param(FAULT, "  on_unhealthy: stop\n", None, marks=pytest.mark.long, id="stop")])
def test_what_the_node_reports(gpuprov, job, said, more, why):
    result = gpuprov("run", "--json", job((STAND_IN % said).replace("FOUND", FOUND), more=more), code=9 if why is None else 0)
    r = result.json["job"]
    assert [x["why"] for x in r["replaced"]] == [why] * r["recovered"] and r["recovered"] == (why is not None)
    [found] = [e for e in result.events if e.get("step") == "job.health"]
    assert (found["node"], found["status"]) == (1, "warn")
    assert found["text"] == "unhealthy: GPU 0: off the bus (xid_79, fail)"
    assert [(h["rank"], h["n"], h["watch"], h["gpu"], h["code"]) for h in r["health"]] == [(1, 1, "unhealthy", 0, "xid_79")]
    given_back = any("that the job cannot use any more is destroyed" in e.get("text", "") for e in result.events)
    assert given_back == (why is not None)


@pytest.mark.long
def test_exec_launches_nothing(gpuprov, job):
    spec = job("if [ $NODE_RANK = 1 ]; then poweroff; sleep 600; fi")
    gpuprov("up", spec)
    result = gpuprov("exec", "--json", spec, code=9)
    assert any("node 1 is gone: only 'gpuprov run' launches nodes again" in e.get("text", "") for e in result.events)
    assert result.json["job"]["recovered"] == 0
    gpuprov("down", "train")


def test_down_in_the_middle_is_not_undone(gpuprov, job):
    p = gpuprov.popen("run", job(""))
    assert "from 0" in p.stdout.readline()
    gpuprov("down", "train")
    _out, err = p.communicate(timeout=180)
    assert p.returncode not in (0, 130) and AGAIN not in err and "create:" not in err.split("runs on 2 nodes")[1], err


PHASES = {"given back": AGAIN, "launch": "create:", "check": "checking the node"}


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGINT])
def test_killed_while_nodes_are_launched_again(gpuprov, job, tmp_path, phase, sig):
    spec = job("")
    p = gpuprov.popen("run", spec)
    lose(gpuprov, 1, tmp_path / "saved/1/n")
    seen(p, AGAIN)
    if phase != "given back":
        seen(p, PHASES[phase])
    p.send_signal(sig)
    _out, err = p.communicate(timeout=120)
    if sig == signal.SIGINT:
        assert p.returncode == 130 and "nothing is left" in err, err
        return
    again = gpuprov("run", spec)
    assert resumed(again.out, 0) > 0 and resumed(again.out, 1) > 0


@pytest.mark.parametrize("recover", [3, 0])
@pytest.mark.parametrize("journal", ["kept", pytest.param("lost", marks=pytest.mark.long)])
def test_a_node_that_is_gone_before_the_next_run_looks(gpuprov, job, tmp_path, recover, journal):
    """The job runs on the other node: it is followed, and not disturbed by a validation."""
    spec = job("", more=f"  recover: {recover}\n")
    p = gpuprov.popen("run", spec)
    wait_for(lambda: all((tmp_path / "saved" / r / "n").is_file() for r in "01"), 120)
    p.kill()
    p.communicate()
    gpuprov("ssh", "train/1", "--", "(sleep 0.5; poweroff) >/dev/null 2>&1 &", code=None)
    wait_for(lambda: "stopped" in [n["state"] for n in gpuprov.json("status")["stacks"][0]["nodes"]])
    if journal == "lost":
        for path in gpuprov.state.glob("journal.db*"):
            path.unlink()
    again = gpuprov("run", "--json", spec, code=9 if recover == 0 else 0)
    r = again.json["job"]
    texts = [e.get("text", "") for e in again.events]
    assert sum(", which runs" in t for t in texts) == 1, again
    stopped = next(i for i, t in enumerate(texts) if "rank 1 its machine is gone: stopping the other ranks" in t)
    first_check = next((i for i, e in enumerate(again.events) if e.get("phase") in ("launch", "check")), len(texts))
    assert stopped < first_check
    assert r["recovered"] == (recover != 0)
    if recover == 0:
        assert (r["rank"], r["why"], first_check) == (1, "its machine is gone", len(texts))
        return
    assert [(x["rank"], x["why"]) for x in r["replaced"]] == [(1, "is gone")]
    log = "\n".join("[%(rank)d] %(line)s" % e for e in again.events if "line" in e)
    assert resumed(log, 0) > 0 and resumed(log, 1) > 0


def test_a_node_with_a_fault_is_not_ready_after_exec(gpuprov, job):
    spec = job((STAND_IN % FAULT).replace("FOUND", FOUND))
    gpuprov("up", spec)
    first = gpuprov("exec", "--json", spec, code=9)
    assert any("the node is not ready any more" in e.get("text", "") for e in first.events)
    stack = gpuprov.json("status")["stacks"][0]
    assert [n["phase"] for n in stack["nodes"]] == ["ready", "failed"] and stack["phase"] != "ready"
    assert "xid_79" in gpuprov("status").out
    refused = gpuprov("exec", "--json", "train", "--", "true", code=7)
    assert "train/1 is not ready: a fault during a job: GPU 0: off the bus (xid_79, fail)" in refused.json["error"]["message"]
    assert "train/1: not ready" in gpuprov("export", "hostfile", "train", code=7).err
    gpuprov("up", spec)
    assert gpuprov.json("status")["stacks"][0]["phase"] == "ready"
    gpuprov("exec", "train", "--", "true")
    gpuprov("down", "train")
