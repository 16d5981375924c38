# SPDX-License-Identifier: Apache-2.0
"""`gpuprov run` killed while it destroys the nodes, with the results here: the next one finishes that, and reports the
job's own result instead of running the job a second time."""
import json
import signal

import pytest

from job_lab import SPEC, killed, marks, nothing_left, write_job
from snapshot import Snapshot
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

# Each job leaves a file of its own in the results.
JOB = "mkdir -p out; touch out/$GPUPROV_JOB_ID; "


@pytest.fixture
def job(gpuprov, tmp_path):
    """job(SCRIPT, nodes=1, more=""): the path of a spec."""
    def write(script, nodes=1, more=""):
        return write_job(tmp_path, SPEC.format(nodes=nodes) + more, JOB + script)
    return write


@pytest.fixture(autouse=True)
def leaves_nothing(gpuprov, tmp_path):
    before = Snapshot(tmp_path)
    yield
    assert marks(gpuprov) == []
    nothing_left(gpuprov, before, tmp_path)


def jobs_run(tmp_path, rank=""):
    return sorted(f.name for f in (tmp_path / "results" / rank).iterdir())


PHASES = {"result": None, "machine": "instance local-", "gone": "is no longer there", "holder": "holder local-"}


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("nodes", [1, 2])
def test_in_each_phase_the_next_run_ends_it_with_the_same_result(gpuprov, job, tmp_path, phase, nodes):
    spec = job("test $NODE_RANK != 0 || exit 5; sleep 600", nodes)
    mark = killed(gpuprov, spec, PHASES[phase])
    again = gpuprov("run", "--json", spec, code=9)
    r = again.json["job"]
    assert (r["id"], r["key"]) == (mark["job"]["id"], mark["job"]["key"])
    assert (r["state"], r["exit"], r["signal"], r["rank"], r["attached"]) == ("failed", 5, None, 0, False)
    assert [k["exit"] for k in r["ranks"]][0] == 5 and len(r["ranks"]) == nodes
    assert [f["files"] for f in r["fetched"]] == [1] * nodes and r["why"] == "exited with code 5"
    assert again.json["error"]["message"] == mark["error"]["text"] == "train/0: the job failed: exited with code 5"
    assert not any(e.get("phase") == "launch" or e.get("phase") == "check" for e in again.events)
    assert jobs_run(tmp_path, "0" if nodes == 2 else "") == [r["id"]], "it ran once"


def test_a_success_and_then_the_job_runs_anew(gpuprov, job, tmp_path):
    spec = job("true")
    first = killed(gpuprov, spec, "instance local-")["job"]["id"]
    r = gpuprov("run", "--json", spec).json
    assert (r["job"]["id"], r["job"]["state"], r["job"]["exit"], r["left"]) == (first, "succeeded", 0, [])
    assert r["destroyed"] is not None and jobs_run(tmp_path) == [first]
    new = gpuprov("run", "--json", spec).json["job"]
    assert new["id"] != first and jobs_run(tmp_path) == sorted([first, new["id"]])


@pytest.mark.long
def test_killed_twice(gpuprov, job, tmp_path):
    spec = job("exit 7", nodes=2)
    first = killed(gpuprov, spec, "instance local-")["job"]
    assert killed(gpuprov, spec, "this one destroys them")["job"] == first
    r = gpuprov("run", "--json", spec, code=9).json["job"]
    assert (r["id"], r["state"], r["exit"]) == (first["id"], "failed", 7)
    assert [f["to"] for f in r["fetched"]] == [f["to"] for f in first["fetched"]] and len(r["fetched"]) == 2


@pytest.mark.long
def test_killed_while_the_nodes_are_kept(gpuprov, job, tmp_path):
    spec = job("exit 3", more="  keep: 10m\n")
    first = killed(gpuprov, spec, "the nodes stay for")["job"]
    r = gpuprov("run", "--json", spec, code=9).json["job"]
    assert (r["id"], r["exit"]) == (first["id"], 3) and jobs_run(tmp_path) == [first["id"]]


@pytest.mark.long
def test_a_stopped_job(gpuprov, job, tmp_path):
    spec = job("echo up; sleep 600")
    p = gpuprov.popen("run", spec)
    wait_for(lambda: "up" in p.stdout.readline())
    p.send_signal(signal.SIGINT)
    wait_for(lambda: marks(gpuprov))
    p.kill()
    p.communicate()
    r = gpuprov("run", "--json", spec, code=130).json
    assert r["job"]["state"] == "stopped" and jobs_run(tmp_path) == [r["job"]["id"]]


@pytest.mark.long
def test_a_run_that_waits_takes_over(gpuprov, job, tmp_path):
    spec = job("echo up; while [ ! -e go ]; do sleep 0.1; done")
    first = gpuprov.popen("run", spec)
    wait_for(lambda: "up" in first.stdout.readline())
    second = gpuprov.popen("run", spec)
    wait_for(lambda: "up" in second.stdout.readline())
    gpuprov("ssh", "train/0", "--", "touch .gpuprov/work/go")
    wait_for(lambda: marks(gpuprov))
    first.kill()
    first.communicate()
    _out, err = second.communicate(timeout=120)
    assert second.returncode == 0 and "nothing is left" in err, err
    assert len(jobs_run(tmp_path)) == 1


@pytest.mark.long
def test_another_job_and_no_down_are_refused(gpuprov, job, tmp_path):
    spec = job("true")
    first = killed(gpuprov, spec, "instance local-")["job"]["id"]
    for args in (["--", "true"], ["--", "false"]):
        other = gpuprov("run", "--json", spec, *args, code=1)
        assert other.json["error"]["code"] == "busy" and other.json["job"] is None
        assert f"job {first}, another one, has ended" in other.err and "gpuprov down train" in other.err
    assert "without --no-down" in gpuprov("run", "--no-down", spec, code=1).err
    assert marks(gpuprov)
    gpuprov("down", "train")
    assert marks(gpuprov) == [] and gpuprov("run", "--json", spec).json["job"]["id"] != first


@pytest.mark.long
@pytest.mark.parametrize("begin", ["up", "exec"])
def test_a_stack_that_is_in_use_again_has_no_mark(gpuprov, job, tmp_path, begin):
    spec = job("exit 3", more="  keep: 10m\n")
    first = killed(gpuprov, spec, "the nodes stay for")["job"]["id"]
    gpuprov(begin, spec, code=9 if begin == "exec" else 0)
    assert marks(gpuprov) == []
    spec.write_text(spec.read_text().replace("keep: 10m", "keep: 1s"))
    assert gpuprov("run", "--json", spec, code=9).json["job"]["id"] != first


@pytest.mark.long
@pytest.mark.parametrize("broken", ["", "{", '"version": 99', '"uid": "0123456789abcdef"', '"more": 1'])
def test_a_mark_that_cannot_be_read_decides_nothing(gpuprov, job, tmp_path, broken):
    spec = job("exit 3", more="  keep: 10m\n")
    first = killed(gpuprov, spec, "the nodes stay for")["job"]["id"]
    [mark] = marks(gpuprov)
    text = mark.read_text()
    if broken.startswith('"'):
        name = broken.split('"')[1]
        whole = json.loads(text)
        whole.update(json.loads("{" + broken + "}"))
        assert name in whole
        mark.write_text(json.dumps(whole))
    else:
        mark.write_text(broken)
    nodes = gpuprov.json("status")["stacks"][0]["nodes"]
    refused = gpuprov("run", "--json", spec, code=1)
    assert refused.json["error"]["code"] == "environment" and "job_end.json" in refused.err
    assert "gpuprov down train" in refused.err and gpuprov.json("status")["stacks"][0]["nodes"] == nodes
    mark.write_text(text)
    assert gpuprov("run", "--json", spec, code=9).json["job"]["id"] == first


@pytest.mark.long
def test_the_mark_of_another_uid_is_not_taken(gpuprov, job, tmp_path):
    spec = job("true")
    first = killed(gpuprov, spec, "instance local-")["job"]["id"]
    [mark] = marks(gpuprov)
    text = mark.read_text()
    gpuprov("down", "train")
    mark.parent.mkdir()
    mark.write_text(text)
    new = gpuprov("run", "--json", spec).json["job"]["id"]
    assert new != first and jobs_run(tmp_path) == sorted([first, new])
    mark.unlink()
    mark.parent.rmdir()
