# SPDX-License-Identifier: Apache-2.0
"""Accounts and clouds that change between two commands: another API key, another project, several clouds in one spec.
Nodes never answer SSH here."""
import contextlib
import email.utils
import json
import sqlite3
import time

import ec2
import pytest
from conftest import Gpuprov
from far_clouds import FAR
from killing import kill_at
from lambda_cloud import LambdaCloud
from mock import certificate  # noqa: UP026  (the one of that folder)
from runpod import RunPod
from shadeform_cloud import ShadeformCloud
from waiting import wait_for

OTHER = "another-key-0123456789"
VARIABLES = {"lambda": ("LAMBDA_API_KEY", "GPUPROV_LAMBDA_ENDPOINT", "GPUPROV_LAMBDA_PACE_MS"),
             "shadeform": ("SHADEFORM_API_KEY", "GPUPROV_SHADEFORM_ENDPOINT", "GPUPROV_SHADEFORM_PACE_MS"),
             "runpod": ("RUNPOD_API_KEY", "RUNPOD_API_BASE_URL", None)}
CLOUDS = {"lambda": (LambdaCloud, "A10:1", {"regions": ["us-east-1"]}),
          "shadeform": (ShadeformCloud, "A6000:1", {"regions": ["hyperstack.canada-1"]}),
          "runpod": (RunPod, "RTX 4090:1", {})}


def use(gpuprov, name, cloud):
    """The environment of one cloud, as an account whose key is the stand-in's."""
    key, endpoint, pace = VARIABLES[name]
    gpuprov.env.update({key: cloud.key, endpoint: cloud.url, "NO_PROXY": "*", "no_proxy": "*", **ec2.CLEAN,
                        "GPUPROV_OWNER": "tester"})
    if pace:
        gpuprov.env[pace] = "0"


def write(folder, name, **more):
    _, gpu, offer = CLOUDS[name]
    path = folder / "spec.yaml"
    path.write_text(json.dumps({"name": "contract", "nodes": 1, "gpu": gpu, "offers": [{"provider": name, **offer}],
                                "limits": {"unattended": "accept"}, "access": {"timeout": "1s"}, **more}))
    return path


def machines(cloud):
    if isinstance(cloud, RunPod):
        return list(cloud.pods)
    return [i for i, one in cloud.instances.items() if one["status"] not in ("terminating", "terminated", "deleting")]


def take_away(cloud, machine):
    with cloud.lock:
        if isinstance(cloud, RunPod):
            cloud.all[machine].status = "TERMINATED"
        else:
            del cloud.instances[machine]


@pytest.mark.parametrize("name", CLOUDS)
def test_another_account_proves_nothing(gpuprov, tmp_path, name):
    """Its lists are empty, and 404 is its reply to the machines' ids. The right key ends them."""
    with CLOUDS[name][0]() as cloud, CLOUDS[name][0]() as other:
        other.key = OTHER
        use(gpuprov, name, cloud)
        path = write(tmp_path, name)
        gpuprov("up", path, code=6)
        [machine] = machines(cloud)
        use(gpuprov, name, other)
        for words in (["status", "contract"], ["down", path, "--yes"], ["up", path]):
            told = gpuprov(*words, code=None)
            assert told.code in (5, 8) and "another API key" in told.err and machine in told.err, told
            assert "nothing is left" not in told.out + told.err and OTHER not in told.out + told.err
        assert machines(cloud) == [machine] and machines(other) == []
        use(gpuprov, name, cloud)
        assert "nothing is left" in gpuprov("down", "contract").out
        assert machines(cloud) == []


@pytest.mark.parametrize("verb", ["down", "gc", "status", "up"])
@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.matrix(keep=3)
def test_another_account_has_a_stack_of_that_name(gpuprov, program, tmp_path, name, verb):
    """It is somebody else's: it is neither taken for this one, nor destroyed, and this one is not forgotten."""
    with CLOUDS[name][0]() as cloud, CLOUDS[name][0]() as other:
        other.key = OTHER
        use(gpuprov, name, cloud)
        path = write(tmp_path, name)
        gpuprov("up", path, code=6)
        [machine] = machines(cloud)
        second = Gpuprov(program, tmp_path / "state-2", tmp_path)
        use(second, name, other)
        second("up", path, code=6)
        [theirs] = machines(other)
        use(gpuprov, name, other)
        if verb == "gc":
            with contextlib.closing(sqlite3.connect(gpuprov.state / "journal.db")) as db, db:
                db.execute("UPDATE stacks SET expires_s = ?", (int(time.time()) - 60,))
        words = {"down": ["down", "contract"], "gc": ["gc", "--in", name], "status": ["status", "contract"], "up": ["up", path]}
        told = gpuprov(*words[verb], code=None)
        assert told.code in (5, 8) and machine in told.out + told.err, told
        assert "continuing with the cloud's" not in told.err and "nothing is left" not in told.out + told.err, told
        assert machines(cloud) == [machine] and machines(other) == [theirs]
        use(gpuprov, name, cloud)
        assert "nothing is left" in gpuprov("down", "contract").out
        assert machines(cloud) == []


@pytest.mark.parametrize("name", ["shadeform", "runpod"])
def test_a_replaced_key_of_the_same_account(gpuprov, tmp_path, name):
    """The new key shows what the old one launched: nothing is in its way, also when one of two machines is gone."""
    with CLOUDS[name][0]() as cloud:
        use(gpuprov, name, cloud)
        gpuprov("up", write(tmp_path, name, nodes=2), code=6)
        cloud.key = OTHER
        use(gpuprov, name, cloud)
        take_away(cloud, machines(cloud)[0])
        status = gpuprov.json("status", "contract")["stacks"][0]
        assert [n["id"] for n in status["nodes"] if n["id"]] == machines(cloud), status
        assert "nothing is left" in gpuprov("down", "contract").out
        assert machines(cloud) == []


def test_another_account_after_a_kill(gpuprov, tmp_path):
    """`up` was killed before it had a reply, so that the journal has a launch and no machine."""
    with RunPod() as cloud, RunPod() as other:
        other.key = OTHER
        use(gpuprov, "runpod", cloud)
        cloud.rule("^POST /v2/pods", "slow", seconds=60)
        up = gpuprov.popen("up", write(tmp_path, "runpod"), "--yes")
        wait_for(lambda: machines(cloud), 60)
        up.kill()
        up.communicate()
        use(gpuprov, "runpod", other)
        told = gpuprov("down", "contract", code=8)
        assert "another API key" in told.err and "a launch of nodes 0..0" in told.err, told
        assert "nothing is left" not in told.out + told.err
        use(gpuprov, "runpod", cloud)
        gpuprov("down", "contract")
        assert machines(cloud) == []


@pytest.mark.parametrize("name", CLOUDS)
def test_no_key_goes_over_the_network_in_the_clear(gpuprov, tmp_path, name):
    """Neither to a server of another name, nor to one whose name begins like this machine's."""
    with CLOUDS[name][0]() as proxy:
        use(gpuprov, name, proxy)
        gpuprov.env.update(http_proxy=proxy.url, HTTP_PROXY=proxy.url, NO_PROXY="", no_proxy="")
        for url in ("http://api.example.com", "http://127.0.0.1.example.com", "http://localhost:1@api.example.com"):
            told = gpuprov("plan", write(tmp_path, name), code=1, env={VARIABLES[name][1]: url})
            assert "is not https" in told.err or "of a host without a user" in told.err, told
        assert proxy.log == []


@pytest.mark.parametrize("name", CLOUDS)
def test_a_certificate_that_nobody_trusts(gpuprov, tmp_path, name):
    """No request is sent. These clouds have no setting for a CA bundle, so the message names none."""
    with CLOUDS[name][0](tls=certificate(tmp_path)) as cloud:
        use(gpuprov, name, cloud)
        path = write(tmp_path, name)
        for code, words in ((1, ["plan", path]), (1, ["up", path]), (8, ["down", "contract", "--in", name])):
            told = gpuprov(*words, code=code)
            assert "no trusted TLS connection with 127.0.0.1:" in told.err and cloud.key not in told.out + told.err, told
            assert code == 8 or "authority, add it to this system's certificates" in told.err, told
        assert cloud.log == []


@pytest.mark.parametrize("name", ["lambda", "shadeform"])
def test_a_machine_that_is_listed_twice(gpuprov, tmp_path, name):
    """Once as ended and once as running: it runs, is shown so, and is ended."""
    ended = {"lambda": "terminated", "shadeform": "deleted"}[name]

    def twice(reply):
        return {k: [dict(i, status=ended) for i in v] + v for k, v in reply.items()}
    with CLOUDS[name][0]() as cloud:
        use(gpuprov, name, cloud)
        gpuprov("up", write(tmp_path, name), code=6)
        cloud.rule("GET .*/instances$", "edit", times=None, change=twice)
        [node] = gpuprov.json("status", "contract")["stacks"][0]["nodes"]
        assert [node["id"]] == machines(cloud), node
        assert "nothing is left" in gpuprov("down", "contract").out
        assert machines(cloud) == []


def test_a_price_of_zero_is_no_price(gpuprov, tmp_path):
    """It is neither the cheapest nor below a limit; the second cloud's price is known."""
    def zero(reply):
        for kind in reply["data"].values():
            kind["instance_type"]["price_cents_per_hour"] = 0
        return reply
    with LambdaCloud() as zeros, ShadeformCloud() as priced:
        use(gpuprov, "lambda", zeros)
        use(gpuprov, "shadeform", priced)
        zeros.rule("GET .*/instance-types", "edit", times=None, change=zero)
        path = tmp_path / "spec.yaml"
        top = {"name": "contract", "order": "cheapest", "limits": {"unattended": "accept"}, "offers": [
            {"provider": "lambda", "regions": ["us-east-1"], "instance_type": "gpu_1x_a10"},
            {"provider": "shadeform", "regions": ["hyperstack.canada-1"], "instance_type": "A6000"}]}
        path.write_text(json.dumps(top))
        plan = gpuprov("plan", path, code=2)
        assert "free" not in plan.out and "create 1 x shadeform" in plan.out, plan
        offers = gpuprov.json("offers", path)
        assert [o["price_usd_per_h"] for o in offers["offers"]] == [0.57, None], offers
        top["limits"]["max_price"] = "5 USD/h"
        path.write_text(json.dumps(top))
        plan = gpuprov("plan", path, code=2)
        assert "gpu_1x_a10" not in plan.out and "price is not known" in plan.err, plan


@pytest.mark.parametrize("spec", [False, True])
def test_regions_of_several_clouds_in_one_table(gpuprov, tmp_path, spec):
    """Azure has no default region, and Google's names are none of Azure's."""
    with FAR["azure"](tmp_path / "azure", latency=0) as azure, FAR["google"](tmp_path / "google", latency=0) as google:
        gpuprov.env.update({**azure.env, **google.env, "HOME": str(tmp_path), "GPUPROV_STATE_DIR": str(tmp_path / "state")})
        words = ["--region", "azure:westeurope", "--region", "google:europe-west4", "--gpu", "T4:1"]
        if spec:
            words.append(tmp_path / "both.yaml")
            words[-1].write_text(json.dumps({"name": "both", "limits": {"unattended": "accept"}, "offers": [
                {"provider": "azure", "regions": ["eastus"]}, {"provider": "google", "regions": ["us-central1"]}]}))
        listed = gpuprov.json("offers", *words)
        assert {(o["provider"], o["region"]) for o in listed["offers"]} <= {("azure", "westeurope"), ("google", "europe-west4")}
        seen = [(o["provider"], o["zone"], o["type"], o["market"]) for o in listed["offers"]]
        assert "azure" in {s[0] for s in seen} and len(seen) == len(set(seen)), listed
        assert not any("--region" in gap["error"]["message"] for gap in listed["not_listed"]), listed


# --- nothing is launched after its deadline ---

def test_launches_that_wait_for_one_another(gpuprov, tmp_path):
    """Lambda takes one launch per 12 s: a gang that takes longer than its ttl is refused before the first."""
    with LambdaCloud() as cloud:
        use(gpuprov, "lambda", cloud)
        refused = gpuprov("up", write(tmp_path, "lambda", nodes=7, limits=LIMITS), code=1,
                          env={"GPUPROV_LAMBDA_PACE_MS": "1000"})
        assert "7 launches take 72 s" in refused.err and cloud.launches == [], refused
        assert cloud.left() == []


def later_after_launch(cloud, at):
    """From the first launch at `at` on, the clock of `cloud` is five minutes further."""
    def date(_handler, _timestamp=None):
        return email.utils.formatdate(time.time() + (300 if at.requests("POST .*/launch") else 0), usegmt=True)
    cloud.server.RequestHandlerClass.date_time_string = date


LIMITS = {"unattended": "accept", "ttl": "1m"}


def test_a_launch_takes_the_time_of_the_next(gpuprov, tmp_path):
    with LambdaCloud() as cloud:
        use(gpuprov, "lambda", cloud)
        later_after_launch(cloud, cloud)
        late = gpuprov("up", write(tmp_path, "lambda", nodes=3, limits=LIMITS), code=1)
        assert "the deadline passed before node 1 was launched" in late.err, late
        assert len(cloud.launches) == 1
        gpuprov("down", "contract")
        assert cloud.left() == []


def test_no_wait_for_a_login_after_the_deadline(gpuprov, tmp_path):
    """The launch took longer than the ttl: `up` does not wait for access.timeout, during which the node is billed."""
    with LambdaCloud() as cloud:
        use(gpuprov, "lambda", cloud)
        later_after_launch(cloud, cloud)
        late = gpuprov("up", write(tmp_path, "lambda", limits=LIMITS, access={"timeout": "1h"}), code=6)
        assert "its deadline passed in phase 'reach' (limits.ttl is 1m)" in late.err and "access.timeout" not in late.err, late
        gpuprov("down", "contract")
        assert cloud.left() == []


def test_a_cloud_takes_the_time_of_the_next(gpuprov, tmp_path):
    """The first cloud's refusal comes after the deadline: nothing is launched at the second."""
    with LambdaCloud() as slow, ShadeformCloud() as unused:
        use(gpuprov, "lambda", slow)
        use(gpuprov, "shadeform", unused)
        later_after_launch(unused, slow)
        slow.rule("POST .*/launch", "reply", status=400, obj={"error": {
            "code": "instance-operations/launch/insufficient-capacity", "message": "no", "suggestion": ""}})
        path = tmp_path / "spec.yaml"
        path.write_text(json.dumps({"name": "contract", "limits": LIMITS, "order": "listed", "access": {"timeout": "1s"}, "offers": [
            {"provider": "lambda", "regions": ["us-east-1"], "instance_type": "gpu_1x_a10"},
            {"provider": "shadeform", "regions": ["hyperstack.canada-1"], "instance_type": "A6000"}]}))
        late = gpuprov("up", path, code=1)
        assert "its deadline passed before all nodes were launched" in late.err, late
        assert unused.instances == {} and slow.requests("POST .*/launch")
        gpuprov("down", path)
        assert slow.left() == [] and unused.left() == []


@pytest.mark.parametrize("name", ["alibaba", "azure", "google"])
def test_nodes_without_a_public_address_need_the_network_of_ssh(gpuprov, tmp_path, name):
    """This controller's public address in the firewall would let nobody in, and be seen only when the launch timed out."""
    with FAR[name](tmp_path, 1, latency=0) as far:
        gpuprov.env.update(far.env)
        spec = json.loads(far.spec.read_text())
        spec["access"] = {"public_ip": False}
        far.spec.write_text(json.dumps(spec))
        refused = gpuprov("plan", far.spec, code=1)
        assert f"({name}): access.public_ip is false, so SSH comes from a private address" in refused.err, refused
        spec["access"]["ssh_from"] = ["10.0.0.0/8"]
        far.spec.write_text(json.dumps(spec))
        gpuprov("plan", far.spec, code=2)
        assert [n["public_ip"] for n in far.drive()] == [""]


@pytest.mark.parametrize("name, launch", [("lambda", "POST .*/launch"), ("shadeform", "POST .*/instances/create")])
def test_two_runs_under_one_claim(gpuprov, tmp_path, name, launch):
    """A cloud without tokens would make the node twice: the second run waits for the first one's launches."""
    with CLOUDS[name][0]() as cloud:
        use(gpuprov, name, cloud)
        path = write(tmp_path, name)
        cloud.rule(launch, "reply", times=None, status=503, obj={})  # on its way for a long time
        kill_at(gpuprov.popen("up", path, "--yes"), cloud, lambda: cloud.requests(launch))
        sent = len(cloud.requests(launch))
        second = gpuprov("up", path, "--yes", code=1, env={"GPUPROV_STATE_DIR": str(tmp_path / "other")})
        assert "another run claimed 'contract'" in second.err and len(cloud.requests(launch)) == sent, second
        gpuprov("down", "contract")
        assert machines(cloud) == []


FILES = {"runpod": (".runpod/config.toml", "apiKey = '%s'\n"), "shadeform": (".shadeform/api_key", "%s\n")}


@pytest.mark.parametrize("name", FILES)
def test_a_refused_key_is_read_again_once(gpuprov, tmp_path, name):
    """It may have been replaced; the same key is not sent twice. Lambda has a test of its own."""
    file, form = tmp_path / FILES[name][0], FILES[name][1]
    with CLOUDS[name][0]() as cloud:
        use(gpuprov, name, cloud)
        gpuprov.env.update({VARIABLES[name][0]: "", "HOME": str(tmp_path)})
        file.parent.mkdir()
        answer = cloud.handle

        def handle(method, target, headers, body):
            file.write_text(form % cloud.key)
            return answer(method, target, headers, body)

        for replaced, code in ((True, 2), (False, 5)):
            file.write_text(form % OTHER)
            file.chmod(0o600)
            cloud.handle = handle if replaced else answer
            cloud.log.clear()
            plan = gpuprov("plan", write(tmp_path, name), code=code)
            assert OTHER not in plan.out + plan.err
            sent = [OTHER in str(r["headers"]) for r in cloud.log]
            assert sent.count(True) == 1 and sent[0] and (len(sent) > 1) == replaced, sent
