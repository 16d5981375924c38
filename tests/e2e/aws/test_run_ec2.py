# SPDX-License-Identifier: Apache-2.0
"""`gpuprov run` on EC2: moto answers the API, behind each instance stands a host of its own. What is left is asked of
the cloud, not of gpuprov."""
import signal

import pytest

from waiting import wait_for
from ec2_lab import cloud_fixture, key_fixture, machine_fixture, spec_fixture  # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

JOB = """\
job:
  workdir: work
  run: sh job.sh
  outputs: [{{path: out, to: results}}]
  checkpoint: {{path: ckpt, to: saved, every: 1s}}
  {more}
"""
# Counts its steps from the checkpoint on. {first}: what a job without a checkpoint does at its end.
STEPS = """\
mkdir -p ckpt out; from=$(cat ckpt/n 2>/dev/null || echo 0); echo from $from; n=$from
while [ $n -lt $((from + 3)) ] || { [ $from = 0 ] && [ "{waits}" ] && [ ! -e stop ]; }; do
    n=$((n + 1)); echo $n >ckpt/.n && mv ckpt/.n ckpt/n; sleep 0.2
done
echo $n >out/n
"""
AGAIN = "launched again, then the job starts anew"


@pytest.fixture
def job(spec, tmp_path):
    """job(waits, nodes=2, more="", access=""): the path of a spec. waits: the first job goes on until something ends it."""
    def write(waits, nodes=2, more="recover: 3", access=""):
        (tmp_path / "work").mkdir()
        (tmp_path / "work/job.sh").write_text(STEPS.replace("{waits}", "y" if waits else ""))
        path = spec(nodes=nodes, require="host.memory", access=access)
        path.write_text(path.read_text() + JOB.format(more=more))
        return path
    return write


def seen(p, text):
    read = []
    while not read or text not in read[-1]:
        read.append(p.stderr.readline())
        assert read[-1], "it ended:\n" + "".join(read)


def terminate(cloud, gpuprov, slot):
    """As EC2 does it without a notice. Returns the instance's id."""
    [one] = [n["id"] for n in gpuprov.json("status", "llm")["stacks"][0]["nodes"] if n["slot"] == slot]
    cloud.ec2.terminate_instances(InstanceIds=[one])
    return one


def steps(out, rank):
    return [int(line.split()[-1]) for line in out.splitlines() if line.startswith("[%d] from " % rank)]


@pytest.mark.long
def test_a_job_on_two_instances_leaves_only_its_results(cloud, machine, job, tmp_path):
    result = machine()("run", "--json", job(False)).json
    assert (result["job"]["state"], result["job"]["recovered"], result["destroyed"] > 0) == ("succeeded", 0, True)
    for rank in ("0", "1"):
        assert (tmp_path / "results" / rank / "n").read_text() == "3\n"
        assert (tmp_path / "saved" / rank / "n").read_text() == "3\n"
    cloud.nothing_left()


def test_an_instance_that_is_taken_back_is_replaced(cloud, machine, job, tmp_path):
    gpuprov = machine()
    p = gpuprov.popen("run", job(True))
    seen(p, "runs on 2 nodes")
    wait_for((tmp_path / "saved/1/n").is_file, 60)
    ids = {i["InstanceId"] for i in cloud.alive("llm")}
    lost = terminate(cloud, gpuprov, 1)
    seen(p, AGAIN)
    wait_for(lambda: len(cloud.alive("llm")) == 2, 120)
    now = {i["InstanceId"] for i in cloud.alive("llm")}
    assert lost not in now and len(now & ids) == 1, "only the lost one was replaced"
    out, err = p.communicate(timeout=300)
    assert p.returncode == 0 and AGAIN not in err, err
    for rank in (0, 1):
        first, last = steps(out, rank)
        assert first == 0 < last
        assert int((tmp_path / "results" / str(rank) / "n").read_text()) == last + 3
    cloud.nothing_left()


@pytest.mark.long
def test_no_recovery_where_the_spec_wants_none(cloud, machine, job, tmp_path):
    gpuprov = machine()
    p = gpuprov.popen("run", job(True, nodes=1, more="recover: 0"))
    wait_for((tmp_path / "saved/n").is_file, 180)
    terminate(cloud, gpuprov, 0)
    _out, err = p.communicate(timeout=300)
    assert p.returncode == 9 and AGAIN not in err, err
    cloud.nothing_left()


@pytest.mark.long
def test_killed_during_the_recovery(cloud, machine, job, tmp_path):
    gpuprov, path = machine(), job(True)
    p = gpuprov.popen("run", path)
    seen(p, "runs on 2 nodes")
    wait_for((tmp_path / "saved/1/n").is_file, 60)
    terminate(cloud, gpuprov, 0)
    seen(p, AGAIN)
    seen(p, "create")
    p.kill()
    p.communicate()
    again = gpuprov("run", path)
    assert [steps(again.out, rank)[-1] > 0 for rank in (0, 1)] == [True, True], again.out
    cloud.nothing_left()


@pytest.mark.long
def test_a_second_machine_goes_on(cloud, machine, job, key, tmp_path):
    """The first one is killed, and never seen again."""
    first, path = machine(), job(True, nodes=1, access=f", key: {key}")
    p = first.popen("run", path)
    wait_for((tmp_path / "saved/n").is_file, 180)
    p.kill()
    p.communicate()
    expires = first.json("status", "llm")["stacks"][0]["expires"]
    second = machine()
    follower = second.popen("attach", path)
    assert follower.stdout.readline() == "[0] from 0\n", "its log comes from the beginning"
    assert second.json("status", "llm")["stacks"][0]["expires"] == expires
    refused = second("ssh", "llm/0", "--", "true", code=1)  # this machine has no spec, and so no key, of that name
    assert "give its spec file instead of its name" in refused.err
    second("ssh", path, "--", "touch .gpuprov/work/stop")
    _out, err = follower.communicate(timeout=120)
    assert follower.returncode == 0, err
    result = second.json("run", path)
    assert (result["job"]["attached"], result["job"]["state"], result["destroyed"] > 0) == (True, "succeeded", True)
    assert int((tmp_path / "results/n").read_text()) > 0
    cloud.nothing_left()


@pytest.mark.long
@pytest.mark.parametrize("phase", ["create:", "bootstrapping", "runs on 1 node", "destroy"])
def test_ctrl_c_twice_names_the_instances(cloud, machine, job, phase):
    """Exit code 8 as long as something may be billed, and every instance that exists is named."""
    gpuprov, path = machine(), job(phase != "destroy", nodes=1)
    p = gpuprov.popen("run", path)
    seen(p, phase)

    def press():
        p.send_signal(signal.SIGINT)
        return p.poll() is not None
    wait_for(press, 60)
    read = p.communicate()[1]
    alive = [i["InstanceId"] for i in cloud.alive("llm")]
    named = read[read.rfind("gpuprov: "):]  # by the second one, or by the error of a verb that the first one ended
    left_at_once = named.startswith("gpuprov: stopped\n")
    assert p.returncode == 8 if alive or left_at_once else p.returncode in (8, 130), read
    assert all(i in named or "(a launch of nodes" in named for i in alive), (alive, read)
    gpuprov("down", path)
    cloud.nothing_left()
