# SPDX-License-Identifier: Apache-2.0
"""`gpuprov run` from a spec to nothing: files there and back, failures, signals and kills in each phase."""
import os
import signal

import pytest

import job_lab
from job_lab import nothing_left, seen, write_job
from small_disk import fill, small_disk
from snapshot import Snapshot
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = job_lab.SPEC + "  checkpoint: {{path: ckpt, to: saved, every: 1s}}\n"


@pytest.fixture
def job(gpuprov, tmp_path):
    """job(SCRIPT, nodes=1): the path of a spec that runs it."""
    def write(script, nodes=1, more=""):
        return write_job(tmp_path, SPEC.format(nodes=nodes) + more, script)
    return write


def test_files_go_there_and_results_come_back(gpuprov, job, tmp_path):
    before = Snapshot(tmp_path)
    spec = job("cat data/in; cat ckpt/step; mkdir -p out/deep ckpt; echo $NODE_RANK >out/deep/rank; echo 7 >ckpt/step; "
               "ln -s deep/rank out/fine", nodes=2)
    (tmp_path / "work/data").mkdir()
    (tmp_path / "work/data/in").write_text("hello\n")
    (tmp_path / "work/.gpuprovignore").write_text("*.tmp\n")
    (tmp_path / "work/big.tmp").write_text("x")
    (tmp_path / "saved/1").mkdir(parents=True)
    (tmp_path / "saved/1/step").write_text("5\n")
    result = gpuprov("run", spec)
    out = sorted(line for line in result.out.splitlines() if "cat:" not in line)
    assert out == ["[0] hello", "[1] 5", "[1] hello"]
    for rank in ("0", "1"):
        assert (tmp_path / "results" / rank / "deep/rank").read_text() == rank + "\n"
        assert os.readlink(tmp_path / "results" / rank / "fine") == "deep/rank"
        assert (tmp_path / "saved" / rank / "step").read_text() == "7\n"
    nothing_left(gpuprov, before, tmp_path)


def test_a_failed_job_gives_its_outputs_and_exits_9(gpuprov, job, tmp_path):
    before = Snapshot(tmp_path)
    spec = job("mkdir out; echo part >out/a; exit 5", more="  keep: 1s\n")
    result = gpuprov("run", "--json", spec, code=9)
    r = result.json
    assert (r["job"]["state"], r["job"]["exit"], r["destroyed"] > 0) == ("failed", 5, True)
    assert (tmp_path / "results/a").read_text() == "part\n"
    assert any("the nodes stay for 1.0s" in e.get("text", "") for e in result.events)
    assert r["job"]["fetched"][0]["files"] == 1
    nothing_left(gpuprov, before, tmp_path)


PHASES = ["launch", "bootstrap", "check", "job"]
MARKS = {"launch": "create:", "bootstrap": "bootstrapping", "check": "checking the node", "job": "runs on 1 node"}
COUNTED = "mkdir -p out; echo run >>out/runs; sleep 3; echo done"


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("phase", PHASES)
def test_a_signal_in_each_phase_leaves_nothing(gpuprov, job, tmp_path, phase, sig):
    before = Snapshot(tmp_path)
    spec = job("echo up; trap 'echo bye >out/bye; exit 1' TERM; mkdir out; while :; do sleep 0.1; done")
    p = gpuprov.popen("run", spec)
    seen(p, MARKS[phase])
    if phase == "job":
        wait_for(lambda: "up" in p.stdout.readline())
    p.send_signal(sig)
    _out, err = p.communicate(timeout=120)
    assert p.returncode == 130, err
    assert "nothing is left" in err
    nothing_left(gpuprov, before, tmp_path)


@pytest.mark.long
def test_ctrl_c_twice_leaves_at_once_with_the_ids(gpuprov, job):
    p = gpuprov.popen("run", job("trap '' TERM; echo up; sleep 300"))
    wait_for(lambda: "up" in p.stdout.readline())
    ids = [n["id"] for n in gpuprov.json("status")["stacks"][0]["nodes"]]
    p.send_signal(signal.SIGINT)
    seen(p, "stopping job")
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=60)
    assert p.returncode == 130
    left = err[err.index("gpuprov: stopped\n"):].splitlines()
    assert left[1] == "1 node of 'train' stays; 'gpuprov down train' destroys it:"
    assert left[2].split()[:5] == ["train/0", ids[0], "until", "its", "deadline"] and left[2].endswith("Z"), left
    assert [n["id"] for n in gpuprov.json("status")["stacks"][0]["nodes"]] == ids
    gpuprov("down", "train")


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("phase", PHASES)
def test_killed_in_each_phase_the_next_run_goes_on(gpuprov, job, tmp_path, phase):
    before = Snapshot(tmp_path)
    spec = job(COUNTED)
    p = gpuprov.popen("run", spec)
    seen(p, MARKS[phase])
    p.kill()
    p.communicate()
    result = gpuprov("run", spec, "--json").json
    assert result["job"]["state"] == "succeeded"
    assert result["job"]["attached"] == (phase == "job")
    assert (tmp_path / "results/runs").read_text() == "run\n", "it ran once"
    nothing_left(gpuprov, before, tmp_path)


@pytest.mark.long
def test_killed_and_the_journal_lost(gpuprov, job, tmp_path):
    before = Snapshot(tmp_path)
    spec = job(COUNTED)
    p = gpuprov.popen("run", spec)
    seen(p, MARKS["job"])
    p.kill()
    p.communicate()
    for path in gpuprov.state.glob("journal.db*"):
        path.unlink()
    assert "done" in gpuprov("attach", spec).out
    result = gpuprov("run", spec, "--json").json
    assert result["job"]["attached"] and result["job"]["state"] == "succeeded"
    assert (tmp_path / "results/runs").read_text() == "run\n"
    nothing_left(gpuprov, before, tmp_path)


def test_two_runs_of_one_stack(gpuprov, job, tmp_path):
    before = Snapshot(tmp_path)
    spec = job("mkdir out; echo run >>out/runs; echo up; while [ ! -e go ]; do sleep 0.1; done; echo done")
    first = gpuprov.popen("run", spec)
    wait_for(lambda: "up" in first.stdout.readline())
    second = gpuprov.popen("run", spec)
    wait_for(lambda: "up" in second.stdout.readline())
    other = gpuprov("run", spec, "--", "echo another", code=1)
    assert "another job runs there" in other.err
    gpuprov("ssh", "train/0", "--", "touch .gpuprov/work/go")
    for p in (first, second):
        out, err = p.communicate(timeout=120)
        assert p.returncode == 0 and "done" in out, err
    assert (tmp_path / "results/runs").read_text() == "run\n"
    nothing_left(gpuprov, before, tmp_path)


@pytest.mark.long
def test_detached_and_collected_later(gpuprov, job, tmp_path):
    before = Snapshot(tmp_path)
    spec = job(COUNTED)
    detached = gpuprov("run", "-d", spec)
    assert "gpuprov attach train" in detached.err
    gpuprov("wait", "train")
    refused = gpuprov("run", "-d", spec, code=1)  # it has ended: nothing is left to start
    assert "repeat this command without --detach to fetch them" in refused.err
    again = gpuprov("run", "--json", spec).json
    assert again["job"]["attached"] and (tmp_path / "results/runs").read_text() == "run\n"
    nothing_left(gpuprov, before, tmp_path)


@pytest.mark.long
def test_no_down_and_an_approval_that_is_not_given(gpuprov, job):
    spec = job("true")
    gpuprov("run", "--no-down", spec)
    stack = gpuprov.json("status")["stacks"][0]
    assert stack["phase"] == "ready"
    # a run that may not begin leaves the stack alone: another spec of it is refused
    spec.write_text(spec.read_text().replace("nodes: 1", "nodes: 1\nimage: {baked: prefer}"))
    assert "another 'image'" in gpuprov("run", spec, code=1).err
    assert gpuprov.json("status")["stacks"][0]["nodes"] == stack["nodes"]
    gpuprov("down", "train")


@pytest.mark.long
def test_a_full_disk_here_keeps_the_results_there(gpuprov, job, tmp_path):
    spec = job("mkdir out; head -c 3000000 /dev/urandom >out/big; echo ok")
    with small_disk(tmp_path / "results", "4M"):
        fill(tmp_path / "results")
        full = gpuprov("run", spec, code=1)
        assert "the nodes stay until their deadline" in full.err
        assert gpuprov.json("status")["stacks"][0]["phase"] == "ready"
        (tmp_path / "results/fill").unlink()
        again = gpuprov("run", "--json", spec).json
        assert again["job"]["attached"] and again["job"]["fetched"][0]["error"] is None
        assert (tmp_path / "results/big").stat().st_size == 3000000
    assert gpuprov.json("status")["stacks"] == []


@pytest.mark.long
def test_killed_while_a_checkpoint_is_there_it_resumes_on_new_nodes(gpuprov, job, tmp_path):
    before = Snapshot(tmp_path)
    spec = job("mkdir -p ckpt out; n=$(cat ckpt/n 2>/dev/null || echo 0); echo from $n; while [ $n -lt 1000 ] && [ ! -e fast ]; do "
               "n=$((n + 1)); echo $n >ckpt/.n && mv ckpt/.n ckpt/n; sleep 0.1; done; echo $n >out/n")
    p = gpuprov.popen("run", spec)
    wait_for((tmp_path / "saved/n").is_file)
    p.kill()
    p.communicate()
    gpuprov("down", "train")
    step = int((tmp_path / "saved/n").read_text())
    (tmp_path / "work/fast").write_text("")
    out = gpuprov("run", spec).out
    assert f"[0] from {step}" in out and int((tmp_path / "results/n").read_text()) >= step > 0
    nothing_left(gpuprov, before, tmp_path)


@pytest.mark.long
def test_a_node_that_ends_in_the_middle_fails_the_job(gpuprov, job, tmp_path):
    """The other node does not wait for one whose machine is gone."""
    before = Snapshot(tmp_path)
    spec = job("if [ $NODE_RANK = 1 ]; then poweroff; fi; sleep 600", nodes=2, more="  recover: 0\n")
    result = gpuprov("run", "--json", spec, code=9).json
    assert result["job"]["rank"] == 1 and result["job"]["why"].startswith("its machine is ")
    assert [r["state"] for r in result["job"]["ranks"]] == ["ended", "lost"]
    nothing_left(gpuprov, before, tmp_path)
