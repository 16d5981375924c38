# SPDX-License-Identifier: Apache-2.0
"""A job that meets the deadline of its stack: the warning, the stop before it, and an `extend` meanwhile."""
import datetime
import time

import pytest

from job_lab import seen, write_job
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: late
nodes: 2
offers: [{provider: local}]
limits: {ttl: 2m}
validate: {time: 1m}
job:
  workdir: work
  run: sh job.sh
  outputs: [{path: out, to: results}]
  checkpoint: {path: ckpt, to: saved, every: 1h}
  max_duration: 1h
"""
LOOP = """\
mkdir -p out ckpt; trap 'echo $NODE_RANK >ckpt/s; echo late >out/late; exit 0' TERM
echo up; while [ ! -e go ]; do sleep 0.1; done; echo done
"""


@pytest.fixture
def spec(tmp_path):
    return write_job(tmp_path, SPEC, LOOP)


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


NOTE = "job.max_duration, 1h, is longer than limits.ttl, 2m: the deadline ends the job before"


def test_check_and_plan_name_a_job_that_is_longer_than_the_deadline(gpuprov, spec):
    assert f"note: {NOTE}\n" in gpuprov("check", spec).out
    assert gpuprov.json("check", spec)["notes"] == [NOTE]
    assert NOTE in gpuprov("plan", spec, code=2).out
    spec.write_text(SPEC.replace("ttl: 2m", "ttl: 2h"))
    assert gpuprov.json("check", spec)["notes"] == [] and NOTE not in gpuprov("plan", spec, code=2).out


@pytest.mark.long
def test_run_stops_the_job_in_time_and_fetches_its_files(gpuprov, spec, tmp_path):
    result = gpuprov("run", "--json", spec, code=9)
    r = result.json
    assert r["job"]["state"] == "deadline" and r["error"]["code"] == "job"
    assert "the deadline of the stack, 2" in r["error"]["message"] and "ended the job: " in r["error"]["message"]
    for rank in ("0", "1"):
        assert (tmp_path / "saved" / rank / "s").read_text() == rank + "\n"
        assert (tmp_path / "results" / rank / "late").read_text() == "late\n"
    texts = [e.get("text", "") for e in result.events]
    [warned] = [t for t in texts if "'gpuprov extend late +1h' moves it" in t]
    assert "the job is stopped 30s before, and its files are fetched" in warned
    assert not any("is gone" in t for t in texts)
    assert time.time() < seconds(warned.split(" at ")[1].split(": ")[0]), "its end was before the deadline"
    assert r["destroyed"] > 0 and r["left"] == [] and gpuprov.json("status")["stacks"] == []


@pytest.mark.long
def test_an_extension_meanwhile_counts(gpuprov, spec):
    p = gpuprov.popen("run", spec)
    wait_for(lambda: "up" in p.stdout.readline())
    other = gpuprov.popen("attach", "late")
    was = seconds(gpuprov.json("status", "late")["stacks"][0]["expires"])
    warned = seen(other, r"'gpuprov extend late [+]1h' moves it")[-1]
    assert "the nodes end then, and the job with them" in warned
    gpuprov("extend", "late", "30m")
    wait_for(lambda: time.time() > was + 1, 120)
    gpuprov("ssh", "late/0", "--", "touch .gpuprov/work/go")
    gpuprov("ssh", "late/1", "--", "touch .gpuprov/work/go")
    out, err = p.communicate(timeout=120)
    assert p.returncode == 0 and out.count("done") == 2, err
    other.communicate(timeout=60)
    assert other.returncode == 0


def test_a_job_that_would_be_stopped_at_once_does_not_begin(gpuprov, spec, tmp_path):
    """The nodes of `up` are left alone."""
    spec.write_text(SPEC.replace("ttl: 2m", "ttl: 90s"))
    gpuprov("up", spec)
    gpuprov("extend", "late", "60s")
    wait_for(lambda: seconds(gpuprov.json("status", "late")["stacks"][0]["expires"]) - time.time() < 29, 60)
    err = gpuprov("run", spec, code=1).err
    assert "and a job would be stopped at once: run 'gpuprov extend late 2h' first" in err
    assert not (tmp_path / "results").exists()
