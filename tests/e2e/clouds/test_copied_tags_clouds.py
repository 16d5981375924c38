# SPDX-License-Identifier: Apache-2.0
"""A second principal of the account launches machines of his own with copied tags of a stack, while a launch of that stack
has no reply yet or its token or name is taken. At each cloud's stand-in; EC2 is in aws/test_aws_faults.py."""
import json
import os
import subprocess

import alibaba
import alibaba_lab
import azure_cloud
import azure_lab
import ec2
import google_cloud
import lambda_world
import proofs
import pytest
import test_google
import test_shadeform
from lambda_cloud import LambdaCloud
from runpod import RunPod
from shadeform_cloud import ShadeformCloud

CREATE = {"lambda": "POST .*/launch", "shadeform": "POST .*/create$", "runpod": "^POST", "google": "POST .*bulkInsert",
          "alibaba": "RunInstances", "azure": "PUT .*/virtualMachines/"}


def runpod_env(cloud, folder):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GPUPROV_", "RUNPOD_"))}
    return {**clean, **cloud.environment(folder), "GPUPROV_STATE_DIR": str(folder / "state"), "GPUPROV_OWNER": "me"}


def runpod_spec(folder, **more):
    return ec2.spec(folder, None, **{"gpu": "RTX 4090:1", "offers": [{"provider": "runpod", "regions": ["EU-RO-1"]}],
                                     "limits": {"ttl": "1h", "unattended": "accept"}, "access": None, **more})


WORLDS = {"lambda": (LambdaCloud, lambda_world.environment, lambda_world.spec),
          "shadeform": (ShadeformCloud, test_shadeform.environment, test_shadeform.spec),
          "runpod": (RunPod, runpod_env, runpod_spec),
          "google": (google_cloud.Google, test_google.environment, test_google.write_spec),
          "alibaba": (alibaba.Alibaba, alibaba_lab.environment, alibaba_lab.spec),
          "azure": (azure_cloud.Azure, azure_lab.environment, azure_lab.spec)}


class World:
    def __init__(self, provider, folder):
        start, self.environment, self.write = WORLDS[provider]
        self.provider, self.folder, self.cloud = provider, folder, start()

    def drive(self, *words, state="state", nodes=1, **more):
        env = self.environment(self.cloud, self.folder)
        env.update(GPUPROV_STATE_DIR=str(self.folder / state), **more)
        done = subprocess.run([str(ec2.BUILD / "tests/drivers/provider_drive"), self.provider,
                               str(self.write(self.folder, nodes=nodes)), *words], env=env, capture_output=True, text=True,
                              timeout=300, check=False)
        assert done.stdout.strip(), done.stderr
        return dict(json.loads(done.stdout), rc=done.returncode)



@pytest.fixture(name="world")
def world_fixture(request, tmp_path):
    world = World(request.param, tmp_path)
    with world.cloud:
        yield world


def at(*providers):
    return pytest.mark.parametrize("world", providers, indirect=True)


def machines(result):
    return [r for r in result["resources"] if r["kind"] == "instance"]


def copy_machine(world, attempt):
    """A machine with every tag of the first node, and the attempt of a launch that is to come. Returns its id."""
    cloud = world.cloud
    if world.provider == "runpod":
        one = next(iter(cloud.all.values()))
        env = dict(one.body["env"], GPUPROV_TAG_attempt=str(attempt))
        view = cloud.create(dict(one.body, env=env))
        cloud.all[view["id"]].status = "RUNNING"
        return view["id"]
    one = next(iter(cloud.instances.values()))
    id = "e" * len(one["id"])
    if world.provider == "lambda":
        tags = [dict(t, value=str(attempt)) if t["key"] == "gpuprov:attempt" else t for t in one["tags"]]
    else:
        tags = [f"gpuprov-attempt={attempt}" if t.startswith("gpuprov-attempt=") else t for t in one["tags"]]
    cloud.instances[id] = dict(one, id=id, tags=tags, status="active")
    return id


@at("lambda", "shadeform", "runpod")
def test_a_copy_is_not_the_answer_to_a_lost_request(world):
    """Without tokens a list is searched: its machines count only with the proof of that very launch."""
    assert world.drive("create")["code"] == "ok"
    evil = copy_machine(world, 2)
    world.cloud.rule(CREATE[world.provider], "drop_before")
    got = world.drive("create", "2")
    assert got["code"] == "ok", got
    [mine] = machines(got)
    assert mine["id"] != evil and mine["ours"] and not mine["other_run"]
    assert len(world.cloud.requests(CREATE[world.provider])) == 3  # the lost one was repeated
    assert mine["launch"] == proofs.launch(got["uid"], 0, 1, 2)  # what the program writes is what others compute


READ = {"google": "_instances_list", "azure": "VirtualMachines_Get", "alibaba": "do_DescribeInstances", "shadeform": "info"}


def edit_machine(world, one, key, change):
    if world.provider == "google":
        labels = one["item"]["labels"]
        labels["gpuprov-" + key] = change(labels["gpuprov-" + key])
    elif world.provider == "shadeform":
        one["tags"] = [f"gpuprov-{key}={change(t.split('=', 1)[1])}" if t.startswith(f"gpuprov-{key}=") else t for t in one["tags"]]
    else:
        one["tags"] = dict(one["tags"], **{"gpuprov:" + key: change(one["tags"]["gpuprov:" + key])})


@at("google", "azure", "alibaba", "shadeform")
@pytest.mark.parametrize("key, change", [("uid", lambda _: "0" * 16), ("attempt", lambda _: "7"), ("slots", lambda _: "5"),
                                         ("expires", lambda was: "2020" + was[4:]), ("owner", lambda _: "somebody")],
                         ids=["uid", "attempt", "slots", "expires", "owner"])
def test_tags_that_are_edited_during_the_launch(world, key, change):
    """The names, ids and tokens of the launch say what its machines are, so nothing is ended, and their slots are right."""
    cloud, edited = world.cloud, []
    real = getattr(cloud, READ[world.provider])

    def read(*args):
        for one in cloud.vms() if world.provider == "azure" else list(cloud.instances.values()):
            if not any(one is e for e in edited):
                edit_machine(world, one, key, change)
                edited.append(one)
        return real(*args)
    setattr(cloud, READ[world.provider], read)
    got = world.drive("create", nodes=2)
    assert got["code"] == "ok" and len(edited) == 2, got
    assert sorted((m["slot"], m["uid"], m["attempt"]) for m in machines(got)) == [(0, got["uid"], 1), (1, got["uid"], 1)]
    assert all(m["ours"] for m in machines(got)), got
    assert {i["state"] for i in got["intents"]} == {"done"}
    assert not cloud.requests("^DELETE|DeleteInstances|/delete$")


@at("runpod")
def test_an_older_pod_with_the_stacks_tags_ends_no_pod(world):
    """Two runs under two uids: the younger one ends its pods. That the other pod is a run's has to be proven."""
    assert world.drive("create")["code"] == "ok"
    [one] = world.cloud.all.values()
    env = dict(one.body["env"], GPUPROV_TAG_uid="0123456789abcdef", GPUPROV_TAG_launch="0" * 32)
    world.cloud.all.clear()
    evil = world.cloud.create(dict(one.body, env=env))["id"]
    world.cloud.rule("^GET /v2/pods", "edit", times=1, change=lambda reply: {"pods": []})  # the first look sees none
    got = world.drive("create", state="other")
    assert got["code"] == "ok" and got["uid"] != "0123456789abcdef", got
    assert {machines(got)[0]["id"], evil} == set(world.cloud.pods)


@at("lambda")
def test_of_the_machine_and_a_copy_of_it_none_is_taken(world):
    """The copy was made in the moment after the launch, with its proof. Nothing tells the two apart yet."""
    cloud = world.cloud

    def twice(reply):
        made = cloud.instances[reply["data"]["instance_ids"][0]]
        cloud.instances["e" * 32] = dict(made, id="e" * 32)
    cloud.rule(CREATE["lambda"], "edit", change=twice)
    got = world.drive("create")
    genuine = [i for i in cloud.instances if i != "e" * 32]
    assert got["code"] == "unknown-outcome" and got["resources"] == [], got
    assert "e" * 32 in got["message"] and genuine[0] in got["message"]
    assert [i["state"] for i in got["intents"] if i["kind"] == "instance"] == ["open"]
    assert len(cloud.instances) == 2 and len(cloud.requests(CREATE["lambda"])) == 1


TAKEN = {"google": {"status": 409, "obj": google_cloud.error(409, "alreadyExists", "The resource already exists").obj},
         "azure": {"status": 412, "obj": {"error": {"code": "PreconditionFailed", "message": "The condition failed."}}},
         "alibaba": {"status": 400, "obj": {"Code": "IdempotentParameterMismatch", "Message": "same token", "RequestId": "x"}}}


@at("google", "azure", "alibaba")
def test_a_taken_token_or_name_is_another_run_once_it_has_a_proof(world):
    first = world.drive("create")
    assert first["code"] == "ok", first
    if world.provider != "azure":  # it refuses the name by itself
        world.cloud.rule(CREATE[world.provider], "reply", times=None, **TAKEN[world.provider])
    early = world.drive("create", state="other")
    assert (early["rc"], early["code"], early["scope"], len(early["tried"])) == (6, "reach", 0, 1), early
    assert f"another run launched it at {world.provider} and it has not proven itself yet" in early["message"]
    assert machines(early) == [] and [i["state"] for i in early["intents"] if i["kind"] == "instance"] == ["failed"]
    assert world.cloud.requests("DELETE") == [] and "DeleteInstances" not in str(world.cloud.requests())
    assert world.drive("prove")["code"] == "ok"
    later = world.drive("create", state="other")
    assert later["code"] == "ok", later
    [mine], [same] = machines(first), machines(later)
    assert same["id"] == mine["id"] and same["ours"] and same["other_run"]
    proof = same["proof"]
    assert proof == proofs.machine(first["uid"], world.provider, same["id"], 0, same["host_keys"])


def tokens(world):
    """What keeps a launch from being made twice: a token, or the name."""
    kept = world.cloud.requests(CREATE[world.provider])
    if world.provider == "alibaba":
        return [alibaba_lab.query(r)["ClientToken"] for r in kept]
    if world.provider == "google":
        return [list(json.loads(r["body"])["perInstanceProperties"])[0] for r in kept]
    return [r["target"].partition("?")[0].rpartition("/")[2] for r in kept]


@at("google", "azure", "alibaba")
def test_tokens_and_names_are_the_keys(world):
    """Equal for two controllers with one login key. Without the key nobody can take them first."""
    refused = {"status": 403, "obj": {"error": {"code": "AuthorizationFailed", "message": "no", "errors": [
        {"reason": "forbidden"}]}, "Code": "Forbidden.RAM", "Message": "no", "RequestId": "x"}}
    world.cloud.rule(CREATE[world.provider], "reply", times=None, **refused)
    for state, key in (("one", "fixed"), ("two", "fixed"), ("three", "another")):
        assert world.drive("create", state=state, GPUPROV_TEST_KEY=key)["code"] != "ok"
    one, two, three = tokens(world)
    assert one == two and one != three, tokens(world)
    assert len(one) <= 64 and len(three) == len(one)
