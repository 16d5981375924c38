# SPDX-License-Identifier: Apache-2.0
"""Some nodes of a job that has ended have files which are not here: they alone stay, and the same `run` ends it with the
job's own result. The job never runs a second time."""
import pytest

import job_lab
from job_lab import killed, marks, nothing_left, write_job
from snapshot import Snapshot
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = job_lab.SPEC + "  recover: 2\n"
# Each start of a job leaves a line in its file.
JOB = "mkdir -p out; echo $GPUPROV_JOB_ID >>out/f; "
STAYS = "node 1 stays until its deadline, because it has outputs that are not here"


@pytest.fixture
def job(gpuprov, tmp_path):
    """job(SCRIPT, nodes=2, more=""): the path of a spec. The results of rank 1 cannot come until free()."""
    before = Snapshot(tmp_path)

    def write(script, nodes=2, more=""):
        (tmp_path / "results").mkdir()
        (tmp_path / "results/1").write_text("in the way")
        return write_job(tmp_path, SPEC.format(nodes=nodes) + more, JOB + script)
    yield write
    nothing_left(gpuprov, before, tmp_path)
    assert marks(gpuprov) == []


def free(tmp_path):
    (tmp_path / "results/1").unlink()


def running(gpuprov):
    [stack] = gpuprov.json("status")["stacks"]
    return [n["slot"] for n in stack["nodes"] if n["state"] == "running"]


def ran(tmp_path, *ranks):
    """The ids of the jobs that the ranks ran, of which each ran once."""
    return [(tmp_path / f"results/{rank}/f").read_text().split() for rank in ranks]


@pytest.mark.parametrize("script, code", [("true", 0), ("test $NODE_RANK = 1 || exit 5; sleep 600", 9)])
def test_the_others_are_destroyed_and_the_next_run_ends_it(gpuprov, job, tmp_path, script, code):
    spec = job(script, nodes=3)
    first = gpuprov("run", "--json", spec, code=code or 1)
    assert STAYS in first.err and "2 nodes whose files are here are destroyed" in first.err, first.err
    assert running(gpuprov) == [1]
    # not another job, and not with other rules
    assert "outputs of it are still on its nodes" in gpuprov("run", "--no-down", spec, code=1).err
    kept = spec.read_text()
    spec.write_text(kept.replace("sh job.sh", "sh job.sh; true"))
    assert "another one, has ended" in gpuprov("run", spec, code=1).err
    spec.write_text(kept)
    # still in the way: nothing changes
    again = gpuprov("run", "--json", spec, code=code or 1)
    assert STAYS in again.err and running(gpuprov) == [1]
    free(tmp_path)
    last = gpuprov("run", "--json", spec, code=code)
    told = last.json["job"]
    assert told["id"] == first.json["job"]["id"] and told["state"] == ("failed" if code else "succeeded")
    assert [(f["rank"], f["files"], f["error"]) for f in told["fetched"]] == [(0, 1, None), (2, 1, None), (1, 1, None)]
    assert len(told["ranks"]) == 3 and told["recovered"] == 0
    assert ran(tmp_path, 0, 1, 2) == [[told["id"]]] * 3
    assert not any(e.get("phase") == "launch" for e in again.events + last.events)


@pytest.mark.parametrize("at", [None, "destroy: instance local-"])
@pytest.mark.matrix(keep=1)
def test_killed_meanwhile(gpuprov, job, tmp_path, at):
    spec = job("true")
    mark = killed(gpuprov, spec, at)
    assert [one["rank"] for one in mark["owed"]] == [1]
    free(tmp_path)
    told = gpuprov("run", "--json", spec).json["job"]
    assert (told["id"], told["state"]) == (mark["job"]["id"], "succeeded")
    assert ran(tmp_path, 0, 1) == [[told["id"]]] * 2


def test_its_machine_ends_before(gpuprov, job, tmp_path):
    """What is lost is said, with a code that is not success, and nothing stays."""
    spec = job("true")
    gpuprov("run", spec, code=1)
    gpuprov("ssh", "train/1", "--", "(sleep 0.5; poweroff) >/dev/null 2>&1 &", code=None)
    wait_for(lambda: running(gpuprov) == [])
    free(tmp_path)
    said = gpuprov("run", "--json", spec, code=6)
    assert "its outputs that are not here" in said.err or "outputs that are not here with them" in said.err, said.err
    assert said.json["job"]["recovered"] == 0 and not any(e.get("phase") == "launch" for e in said.events)
    assert ran(tmp_path, 0) == [[said.json["job"]["id"]]]


def test_without_its_result_the_job_does_not_run_again(gpuprov, job, tmp_path):
    """Another machine's `run`, or one after the state was lost: it cannot tell why the others are gone."""
    spec = job("true")
    first = gpuprov("run", "--json", spec, code=1).json["job"]["id"]
    [mark] = marks(gpuprov)
    mark.unlink()
    free(tmp_path)
    said = gpuprov("run", "--json", spec, code=9)
    assert "may have been fetched by another gpuprov" in said.err
    assert said.json["job"]["recovered"] == 0 and not any(e.get("phase") == "launch" for e in said.events)
    assert ran(tmp_path, 0, 1) == [[first]] * 2


@pytest.mark.parametrize("more, argument", [("  keep: 10m\n", []), ("", ["--keep", "10m"])])
@pytest.mark.matrix(keep=1)
def test_nodes_that_are_kept_after_a_failure_all_stay(gpuprov, job, tmp_path, more, argument):
    spec = job("test $NODE_RANK = 1 || exit 5; sleep 600", more=more)
    assert "the nodes stay until their deadline" in gpuprov("run", *argument, spec, code=9).err
    assert running(gpuprov) == [0, 1]
    gpuprov("down", "train")


@pytest.mark.long
def test_up_takes_the_stack_into_use_again(gpuprov, job, tmp_path):
    """The rest is fetched, and then it is a new job."""
    spec = job("true")
    first = gpuprov("run", "--json", spec, code=1).json["job"]["id"]
    assert gpuprov.json("up", spec)["report"]["ready"] is True and running(gpuprov) == [0, 1]
    free(tmp_path)
    new = gpuprov("run", "--json", spec).json["job"]["id"]
    zero, one = ran(tmp_path, 0, 1)
    assert new != first and (zero, one) == ([new], [first, new])


def test_machines_that_another_gpuprov_launched_are_not_destroyed(gpuprov, job, tmp_path):
    """`up` of another machine does not know the mark, and leaves it."""
    spec = job("true")
    gpuprov("run", spec, code=1)
    free(tmp_path)
    [mark] = marks(gpuprov)
    kept = mark.read_text()
    gpuprov("up", spec)
    mark.write_text(kept)
    said = gpuprov("run", spec, code=1)
    assert "node 0 was launched after it: the stack is in use again" in said.err, said.err
    assert running(gpuprov) == [0, 1]
    gpuprov("down", "train")
