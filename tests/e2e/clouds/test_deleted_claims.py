# SPDX-License-Identifier: Apache-2.0
"""Somebody deletes a stack's claim, which no machine protects (an SSH key, a key pair, a firewall rule). The journal's own
machines and its open launches keep the stack: they become nobody's neither for `up` nor for `down`."""
import json
import re
import sqlite3
import subprocess

import ec2
import lambda_world
import pytest
from far_clouds import FAR
from killing import kill_at
from lambda_cloud import LambdaCloud


class Program:
    def __init__(self, env, spec):
        self.env, self.spec = env, spec

    def __call__(self, *words):
        done = subprocess.run([ec2.BUILD / "gpuprov", *words], env=self.env, capture_output=True, text=True, timeout=170,
                              check=False)
        return done.returncode, done.stdout + done.stderr

    def popen(self, *words):
        return subprocess.Popen([ec2.BUILD / "gpuprov", *words], env=self.env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def sql(self, text):
        with sqlite3.connect(self.env["GPUPROV_STATE_DIR"] + "/journal.db") as db:
            return db.execute(text).fetchall()


def stop_lambda(cloud):
    [one] = cloud.instances.values()
    one["status"] = "preempted"
    cloud.keys.clear()


def stop_shadeform(cloud):
    [one] = cloud.instances.values()
    one["status"] = "error"
    cloud.keys.clear()


def stop_google(cloud):
    [one] = cloud.instances.values()
    one["item"]["status"] = "TERMINATED"
    for name in [n for n in cloud.firewalls if not n.endswith("-members")]:
        del cloud.firewalls[name]


def stop_alibaba(cloud):
    [one] = cloud.instances.values()
    one["stopped"] = True
    cloud.pairs.clear()


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("provider,stop", [("lambda", stop_lambda), ("shadeform", stop_shadeform),
                                           ("google", stop_google), ("alibaba", stop_alibaba)])
def test_a_stopped_node_stays_the_stacks(tmp_path, provider, stop):
    with FAR[provider](tmp_path, latency=0) as far:
        spec = json.loads(far.spec.read_text())
        far.spec.write_text(json.dumps({**spec, "access": {**spec["access"], "timeout": "1s"}}))
        run = Program(far.env, far.spec)
        code, text = run("up", far.spec)
        assert code == 6, text
        [(first, uid)] = run.sql("SELECT id, uid FROM resources WHERE kind=0")
        stop(far.cloud)
        code, text = run("up", far.spec)
        assert first in text, text
        machines = run.sql("SELECT id, uid FROM resources WHERE kind=0")
        assert {u for _, u in machines} == {uid} and len(machines) == 2, (machines, text)
        code, text = run("down", far.name)
        assert code == 0 and "nothing is left" in text, text
        assert far.cloud.left() == [], text


# --- a launch whose result is not known ---

@pytest.fixture(name="cloud")
def cloud_fixture():
    with LambdaCloud() as cloud:
        yield cloud
        assert cloud.sound() is True


@pytest.fixture(name="cut")
def cut_fixture(cloud, tmp_path):
    """`up` was killed before the reply to its launch. The claim is an hour older than that, and lists show the machine
    late."""
    env = lambda_world.environment(cloud, tmp_path, GPUPROV_STATE_DIR=str(tmp_path / "state"))
    run = Program(env, lambda_world.spec(tmp_path, access={"timeout": "1s"}, nodes=1))
    cloud.late_lists = 4
    cloud.rule("POST .*/launch", "drop_after", times=None)
    kill_at(run.popen("up", run.spec, "--quiet"), cloud, lambda: cloud.instances)
    cloud.rules.clear()
    run.sql("UPDATE resources SET created_s=created_s-3600 WHERE kind<>0")
    assert run.sql("SELECT state FROM intents WHERE kind=0") == [(0,)]
    return run


def test_a_planted_claim_ends_no_search(cut, cloud):
    """`down` looks for what the open launch made, although the only claim that is listed has another uid."""
    (key_id, key), = cloud.keys.items()
    uid = key["name"].split("-")[2]
    del cloud.keys[key_id]
    public = re.sub(r"created=\S+", "created=2026-01-02T03:04:05Z", key["public_key"].replace(uid, "b" * 16))
    his = {**key, "id": "f" * len(key_id), "name": key["name"].replace(uid, "b" * 16), "public_key": public}
    cloud.keys[his["id"]] = his
    code, text = cut("down", "contract")
    assert not cloud.instances and code == 0, (code, text)


def test_up_settles_a_launch_without_its_claim(cut, cloud):
    [(uid,)] = cut.sql("SELECT uid FROM intents WHERE kind=0")
    cloud.keys.clear()
    code, text = cut("up", cut.spec)
    tags = [t["value"] for i in cloud.instances.values() for t in i["tags"] if t["key"] == "gpuprov:uid"]
    assert code == 6 and tags == [uid], (tags, text)
    code, text = cut("down", "contract")
    assert code == 0 and cloud.left() == [], text
