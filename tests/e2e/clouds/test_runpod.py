# SPDX-License-Identifier: Apache-2.0
"""The provider runpod against the stand-in of RunPod's API (tests/clouds/runpod.py)."""
import base64
import json
import os
import pathlib
import random
import shlex
import subprocess
import sys

import ec2
import pytest
from killing import JOURNALS, kill_at
from runpod import CAPACITY, RunPod
from test_provider_contract import CASES, LATE_REFUSALS, REFUSALS, run_contract


@pytest.fixture
def cloud():
    with RunPod() as c:
        yield c
        assert c.faults == []


@pytest.fixture
def env(cloud, tmp_path):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GPUPROV_", "RUNPOD_"))}
    return {**clean, **cloud.environment(tmp_path), "GPUPROV_STATE_DIR": str(tmp_path / "state"), "GPUPROV_OWNER": "me"}


def spec(tmp_path, name="pods", **more):
    """Two nodes with GPUs; `more` replaces top-level keys, None removes one."""
    top = {"name": name, "nodes": 2, "gpu": "RTX 4090:1", "offers": [{"provider": "runpod"}],
           "limits": {"ttl": "1h", "unattended": "accept"}, **more}
    path = tmp_path / f"{name}.yaml"
    path.write_text(json.dumps({k: v for k, v in top.items() if v is not None}))
    return path


def drive(env, path, *words):
    done = subprocess.run([str(ec2.BUILD / "tests/drivers/provider_drive"), "runpod", str(path), *words], env=env,
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip(), done.stderr
    result = json.loads(done.stdout)
    scope = ["none", "zone", "region", "offer", "provider"][result["scope"]]
    return {**result, "rc": done.returncode, "scope": scope}, done.stderr


def run(program, env, *words, code=0):
    done = subprocess.run([str(program), *map(str, words)], env=env, capture_output=True, text=True, timeout=300,
                          stdin=subprocess.DEVNULL, check=False)
    assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


# --- the contract ---

def faults(cloud, case, flag):
    def half(reply):
        return {"id": reply["id"], "status": "STARTING"}

    def turned(reply):
        return {"pods": reply["pods"][::-1]}

    if case == "async_failure":
        cloud.refuse_placed = 100
    elif case == "gang_partial":
        cloud.rule("^POST /v2/pods", "reply", times=None, skip=1, **told(400, "Bad Request", CAPACITY))
    elif case == "gang_cut":
        cloud.rule("^POST /v2/pods", "edit", change=half)
        cloud.lag = 2
    elif case == "late_address":
        cloud.place_after, cloud.run_after = 2, 3
    elif case == "late_list":
        cloud.lag = 4
    elif case == "lost_reply":
        cloud.rule("^POST /v2/pods", "drop_after")
    elif case == "paged":
        cloud.rule("^GET /v2/pods", "edit", times=None, change=turned)
    elif case == "destroy_refused":
        cloud.rule("^DELETE", "reply", times=None, when=flag, **told(403, "Forbidden", "access denied"))
    elif case == "list_hollow":
        cloud.rule("^GET /v2/pods", "reply", times=None, when=flag, status=200, obj={"success": False})
    elif case == "list_refused":
        cloud.rule("^GET /v2/pods", "reply", times=None, when=flag, **told(403, "Forbidden", "access denied"))
    elif case == "throttled":
        cloud.rule(".", "reply", times=None, every=3, status=429, headers={"Retry-After": "0"},
                   obj={"title": "Too Many Requests", "status": 429, "detail": "rate limit exceeded"})


def test_contract(cloud, env, tmp_path):
    run_contract(env, "runpod", spec(tmp_path))
    assert cloud.pods == {} and len(cloud.all) >= 2


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("case", CASES + REFUSALS + LATE_REFUSALS)
def test_contract_on_bad_days(cloud, env, tmp_path, case):
    faults(cloud, case, tmp_path / "flag")
    run_contract(env, "runpod", spec(tmp_path), case, tmp_path / "flag")
    assert cloud.pods == {} and all(r["done"] for r in cloud.rules)


# --- what is sent ---

def test_the_request(cloud, env, tmp_path):
    result, _ = drive(env, spec(tmp_path, gpu="H100:2", offers=[{"provider": "runpod", "regions": ["EU-RO-1"]}]), "create")
    assert result["rc"] == 0, result
    assert sorted(p.center for p in cloud.pods.values()) == ["EU-RO-1"] * 2
    body = json.loads(cloud.requests("POST /v2/pods")[0]["body"])
    assert body["gpu"] == {"id": "NVIDIA H100 80GB HBM3", "count": 2, "minCudaVersion": "12.8"}
    assert body["cloud"] == "SECURE" and body["dataCenterIds"] == ["EU-RO-1"] and body["ports"] == ["22/tcp"]
    assert body["globalNetworking"] is True and "startSsh" not in body
    assert body["image"] == "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
    own = {k: v for k, v in body["env"].items() if k.startswith("GPUPROV_TAG_")}
    assert own["GPUPROV_TAG_owner"] == "me" and own["GPUPROV_TAG_stack"] == "pods" and own["GPUPROV_TAG_attempt"] == "1"
    assert {p.body["env"]["GPUPROV_TAG_slots"] for p in cloud.pods.values()} == {"0+1", "1+1"}
    assert base64.b64decode(body["env"]["GPUPROV_START"])
    assert {r["price"] for r in result["resources"]} == {5.98}
    assert all(r["billed"] and r["region"] == "EU-RO-1" and r["zone"] == "EU-RO-1-secure" for r in result["resources"])


@pytest.mark.parametrize("words, cuda", [({"image": {"id": "ubuntu:24.04"}}, None),
                                         ({"image": {"id": "ubuntu:24.04"}, "bootstrap": {"cuda": "12.4"}}, "12.4"),
                                         ({"bootstrap": {"cuda": {"runtime": ["12.6", "12.9"]}}}, "12.9"),
                                         ({"image": {"id": "x/y:1"}, "bootstrap": {"python": {"torch": "2.7.1"}}}, "12.8")])
def test_the_hosts_cuda(cloud, env, tmp_path, words, cuda):
    """A pod on a host whose driver is too old is billed and never computes (runpodctl #253, skypilot #8408)."""
    result, _ = drive(env, spec(tmp_path, nodes=1, **words), "create")
    assert result["rc"] == 0, result
    assert json.loads(cloud.requests("POST")[0]["body"])["gpu"].get("minCudaVersion") == cuda
    catalogue = cloud.requests("GET /v2/catalog/gpus")[0]["target"]
    assert (f"minCudaVersion={cuda}" in catalogue) == (cuda is not None)


def test_offers(cloud, env, tmp_path):
    cloud.stock = {"US-KS-2": "LOW", "EU-RO-1": "HIGH", "US-TX-9": "HIGH"}

    def places(**more):
        result, _ = drive(env, spec(tmp_path, **more), "offers")
        return [(o["region"], o["zone"], o["price"]) for o in result.get("offers", [])], result

    assert places()[0] == [("US-KS-2", "US-KS-2-secure", 0.69), ("EU-RO-1", "EU-RO-1-secure", 0.69)]  # pods of US-TX-9 have no network
    assert len(places(nodes=1)[0]) == 3
    both = [{"provider": "runpod", "zones": ["secure", "community"], "regions": ["EU-RO-1"]}]
    assert places(nodes=1, offers=both)[0] == [("EU-RO-1", "EU-RO-1-secure", 0.69), ("EU-RO-1", "EU-RO-1-community", 0.34)]
    assert [p[2] for p in places(nodes=1, gpu="H100 PCIe:4")[0]] == [9.56] * 3
    assert places(nodes=1, gpu="RTX 6000 Ada")[0][0][2] == 0.77
    assert places(nodes=1, gpu=None)[0][0] == ("US-KS-2", "US-KS-2-secure", 0.08)
    for more, part in (({"gpu": "L4:8"}, "no host has 8 x L4 in one pod"), ({"gpu": "B200"}, "not in the catalogue"),
                       ({"gpu": None}, "no network between them")):
        _, refused = places(**more)
        assert refused["rc"] != 0 and part in refused["message"], refused
    cloud.stock = {}
    assert places()[1]["code"] == "capacity"


def test_the_start_command(cloud, env, tmp_path):
    """It means the same to a shell and to an engine that splits it into words itself."""
    drive(env, spec(tmp_path, nodes=1), "create")
    body = json.loads(cloud.requests("POST")[0]["body"])
    script = base64.b64encode(b"printf '%s' \"it's\\n$HOME\"\n").decode()
    for argv in (shlex.split(body["args"]), ["sh", "-c", body["args"]]):
        done = subprocess.run(argv, env={"PATH": os.environ["PATH"], "HOME": "/h", "GPUPROV_START": script},
                              capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == "it's\\n/h" and done.stderr == ""


def test_disk_and_stock(cloud, env, program, tmp_path):
    """The stock of each place is in the table of offers, too."""
    cloud.stock = {"US-KS-2": "LOW", "EU-RO-1": "HIGH"}
    table = json.loads(run(program, env, "offers", spec(tmp_path, nodes=1), "--json").stdout)["offers"]
    assert {o["region"]: o["stock"] for o in table} == {"US-KS-2": "low", "EU-RO-1": "high"}
    assert "low" in run(program, env, "offers", spec(tmp_path, nodes=1)).stdout
    result, _ = drive(env, spec(tmp_path, nodes=1, disk="500GB"), "create")
    assert result["rc"] == 0 and json.loads(cloud.requests("POST")[0]["body"])["disk"] >= 500


# --- refusals ---

def told(status, title, detail, **headers):
    return {"status": status, "obj": {"title": title, "status": status, "detail": detail}, "headers": headers}


@pytest.mark.parametrize("reply, code, scope", [
    (told(400, "Bad Request", CAPACITY), "capacity", "zone"),
    (told(400, "Bad Request", "This machine does not have the resources to deploy your pod"), "capacity", "zone"),
    (told(400, "Bad Request", "mounts.persistent is invalid"), "usage", "zone"),
    (told(402, "Payment Required", "your balance is too low"), "money", "provider"),
    (told(400, "Bad Request", "You have reached your spend limit of $80/hr"), "money", "provider"),
    (told(500, "Internal Server Error", CAPACITY), "capacity", "zone"),
    (told(403, "Forbidden", "access denied"), "auth", "zone"),
    (told(422, "Unprocessable Entity", "Request validation failed."), "usage", "provider")])
def test_a_refused_create(cloud, env, tmp_path, reply, code, scope):
    cloud.rule("^POST", "reply", times=None, **reply)
    result, _ = drive(env, spec(tmp_path, nodes=1), "create")
    assert (result["code"], result["scope"]) == (code, scope), result
    assert cloud.all == {} and not [i for i in result["intents"] if i["state"] == "open"]


def test_a_server_error_is_searched_for(cloud, env, tmp_path):
    """A pod was created although the reply was an error: it is found, and nothing is sent twice."""
    cloud.rule("^POST", "edit", times=1, change=lambda reply: None)
    result, _ = drive(env, spec(tmp_path, nodes=1), "create")
    assert result["rc"] == 0 and len(cloud.pods) == len(cloud.requests("POST")) == 1


def test_a_lost_request_creates_nothing_twice(cloud, env, tmp_path):
    """It is sent once more after the list's lag; when that is lost too, nothing is there and nothing is open."""
    path = spec(tmp_path, nodes=1, offers=[{"provider": "runpod", "regions": ["EU-RO-1"]}])
    cloud.rule("^POST", "drop_before", times=3)
    result, _ = drive(env, path, "create")
    assert result["rc"] != 0 and "created nothing" in result["message"], result
    assert len(cloud.requests("POST")) == 2 and cloud.all == {}
    result, _ = drive(env, path, "create", "2")
    assert result["rc"] == 0 and len(cloud.requests("POST")) == 4 and len(cloud.all) == 1, result


def test_a_pod_without_a_host_is_removed(cloud, env, tmp_path):
    cloud.refuse_placed = 1
    result, _ = drive(env, spec(tmp_path, nodes=1), "create")
    assert result["rc"] == 0, result  # the next data center
    assert len(cloud.pods) == 1 and len(cloud.all) == 2


def test_two_runs_at_once(cloud, env, tmp_path):
    """Nothing keeps the name unique: the run whose pod is younger ends its own."""
    path = spec(tmp_path, nodes=1)
    first, _ = drive(env, path, "create")
    assert first["rc"] == 0
    other = dict(env, GPUPROV_STATE_DIR=str(tmp_path / "other"))
    cloud.rule("^GET /v2/pods", "edit", times=1, change=lambda reply: {"pods": []})  # its first look saw none
    second, _ = drive(other, path, "create")
    assert second["rc"] != 0 and "another run launched 'pods' first" in second["message"], second
    assert list(cloud.pods) == [first["resources"][0]["id"]]


# --- states, hostile replies ---

def test_states(cloud, env, tmp_path):
    path = spec(tmp_path, nodes=1)
    drive(env, path, "create")
    pod = next(iter(cloud.pods.values()))
    for status, state, billed in (("STARTING", "running", True), ("RUNNING", "running", True), ("EXITED", "stopped", True),
                                  ("ERROR", "stopped", True)):
        pod.status = status
        result, _ = drive(env, path, "list")
        assert [(r["state"], r["billed"]) for r in result["resources"]] == [(state, billed)]
    cloud.rule("^GET /v2/pods$", "edit", change=lambda r: {"pods": [dict(r["pods"][0], status="HIBERNATED")]})
    assert drive(env, path, "list")[0]["resources"][0]["state"] == "pending"


HOSTILE = [
    lambda p: dict(p, id="../../v2/pods/x"), lambda p: dict(p, id="a/b"), lambda p: dict(p, id=""), lambda p: "pod",
    lambda p: {k: v for k, v in p.items() if k != "id"}, lambda p: dict(p, id=7)]
STRANGE = [{"dataCenterId": "../x"}, {"dataCenterId": 7}, {"gpu": "x"}, {"gpu": {"id": "\u001b[2J", "count": 10 ** 15}},
           {"cost": "NaN"}, {"cost": -1e300}, {"createdAt": "yesterday\n"}, {"ssh": None}, {"runtime": {"ports": "22"}},
           {"runtime": {"ports": [None, {"private": 22, "type": "tcp", "ip": 1, "public": -1}]}}, {"status": None},
           {"globalNetworking": {"enabled": True, "ip": "10.0.0.1; reboot"}}, {"name": "x" * 100000}]


@pytest.mark.parametrize("change", HOSTILE)
def test_an_id_that_is_none(cloud, env, tmp_path, change):
    """The list cannot be relied on: it is an error, never 'no pods'."""
    path = spec(tmp_path, nodes=1)
    drive(env, path, "create")
    cloud.rule("^GET /v2/pods$", "edit", times=None, change=lambda r: {"pods": [change(p) for p in r["pods"]]})
    result, _ = drive(env, path, "list")
    assert result["rc"] != 0 and result["code"] == "protocol", result


@pytest.mark.parametrize("change", STRANGE)
def test_a_strange_pod_is_still_listed_and_ended(cloud, env, tmp_path, change):
    path = spec(tmp_path, nodes=1)
    pod = drive(env, path, "create")[0]["resources"][0]
    cloud.rule("^GET /v2/pods$", "edit", times=None, change=lambda r: {"pods": [{**p, **change} for p in r["pods"]]})
    result, _ = drive(env, path, "list")
    assert [r["id"] for r in result["resources"]] == [pod["id"]] and result["resources"][0]["billed"], result
    assert result["resources"][0]["region"] in ("US-KS-2", "EU-RO-1", "US-TX-9") and "reboot" not in json.dumps(result)
    assert drive(env, path, "destroy")[0]["rc"] == 0 and cloud.pods == {}


@pytest.mark.parametrize("tags", [{"uid": "../x"}, {"slots": "9999999+1"}, {"slots": 5}, {"price": "nan"},
                                  {"attempt": "-1"}, {"expires": "tomorrow"}])
def test_tags_that_gpuprov_does_not_write(cloud, env, tmp_path, tags):
    path = spec(tmp_path, nodes=1)
    drive(env, path, "create")
    pod = next(iter(cloud.pods.values()))
    pod.body["env"].update({f"GPUPROV_TAG_{k}": v for k, v in tags.items() if isinstance(v, str)})
    stranger = dict(env, GPUPROV_STATE_DIR=str(tmp_path / "other"))

    def typed(reply):
        for p in reply["pods"]:
            p["env"].update({f"GPUPROV_TAG_{k}": v for k, v in tags.items()})
        return reply

    cloud.rule("^GET /v2/pods$", "edit", times=None, change=typed)
    found = drive(stranger, path, "list")[0]["resources"]
    assert len(found) == 1 and (found[0]["uid"] == "" or found[0]["slot"] == -1 or tags.keys() & {"price", "attempt", "expires"})


def test_an_address_that_is_none(cloud, env, tmp_path):
    path = spec(tmp_path, nodes=1)
    drive(env, path, "create")

    def moved(reply):
        for p in reply["pods"]:
            p["status"] = "RUNNING"
            p["runtime"] = None
            p["ssh"]["direct"] = {"host": "-oProxyCommand=x", "port": 10 ** 12, "username": "root", "command": ""}
        return reply

    cloud.rule("^GET /v2/pods$", "edit", times=None, change=moved)
    assert drive(env, path, "list")[0]["resources"][0]["public_ip"] == ""


# --- the program ---

def test_the_program(cloud, env, program, tmp_path):
    """check, plan, up as far as a pod without sshd goes, status, down; gc from an empty state folder."""
    path = spec(tmp_path, nodes=1, access={"timeout": "3s"})
    run(program, env, "check", path)
    refused = spec(tmp_path, "refused", nodes=1, limits={"ttl": "1h"})
    done = run(program, env, "plan", refused, code=1)
    assert "unattended: accept" in done.stderr + done.stdout
    done = run(program, env, "plan", path, code=2)
    assert "gc" in done.stdout and "0.69" in done.stdout
    up = run(program, env, "up", path, "--yes", code=None)
    assert up.returncode == 6, up.stderr
    assert len(cloud.pods) == 1
    assert cloud.key not in up.stdout + up.stderr
    body = json.loads(cloud.requests("POST")[0]["body"])
    script = base64.b64decode(body["env"]["GPUPROV_START"]).decode()
    assert "authorized_keys" in script and "ssh-ed25519 " in script
    assert "enforced only by 'gpuprov gc'" in run(program, env, "status", "pods").stdout
    run(program, env, "down", "pods", "--yes")
    assert cloud.pods == {}


def test_calls_before_the_first_create(cloud, env, program, tmp_path):
    """The goal is five at most: each costs a round trip."""
    run(program, env, "up", spec(tmp_path, access={"timeout": "1s"}), "--yes", code=6)
    methods = [r["method"] for r in cloud.requests()]
    assert methods.index("POST") <= 5, cloud.requests()
    run(program, env, "down", "pods", "--yes")


@pytest.mark.long
def test_a_stopped_pod_is_replaced(cloud, env, program, tmp_path):
    """Its disk is billed and it computes nothing."""
    path = spec(tmp_path, nodes=1, access={"timeout": "1s"})
    run(program, env, "up", path, "--yes", code=6)
    first = next(iter(cloud.pods.values()))
    first.status = "EXITED"
    assert first.id in run(program, env, "plan", path, code=2).stdout
    run(program, env, "up", path, "--yes", code=6)
    assert first.status == "TERMINATED" and len(cloud.pods) == 1
    run(program, env, "down", "pods", "--yes")


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("reply", [
    {"status": 500, "obj": {"title": "Internal Server Error", "status": 500, "detail": "trouble"}},
    {"status": 200, "obj": {"success": False}}, {"status": 200, "obj": {"pods": None}}, {"status": 200, "obj": []},
    {"status": 200, "obj": b"<html>"}, {"status": 404, "obj": {"title": "Not Found", "status": 404, "detail": "no"}},
    {"status": 410, "obj": b"gone"}])
def test_a_list_that_fails_is_never_an_empty_one(cloud, env, program, tmp_path, reply):
    """skypilot #10517, LibreYOLO #505: nothing is reported as destroyed that was not seen to be gone."""
    drive(env, spec(tmp_path, nodes=1), "create")
    cloud.rule("^GET /v2/pods", "reply", times=None, headers={"Retry-After": "0"}, **reply)
    done = run(program, env, "down", "pods", "--yes", code=None)
    assert done.returncode not in (0, 2), done
    done = run(program, dict(env, GPUPROV_STATE_DIR=str(tmp_path / "other")), "gc", "runpod", code=None)
    assert done.returncode != 0, done


def test_a_pod_that_stays_is_reported(cloud, env, tmp_path):
    """RunPod refuses the end: an error, and the pod stays listed."""
    path = spec(tmp_path, nodes=1)
    drive(env, path, "create")
    cloud.rule("^DELETE", "reply", times=1, **told(409, "Conflict", "pod belongs to a cluster"))
    result, _ = drive(env, path, "destroy")
    assert result["rc"] != 0 and "belongs to a cluster" in result["message"] and len(cloud.pods) == 1, result
    assert drive(env, path, "destroy")[0]["rc"] == 0 and cloud.pods == {}


def test_gc_without_the_journal(cloud, env, program, tmp_path):
    drive(env, spec(tmp_path), "create")
    for pod in cloud.pods.values():
        pod.body["env"]["GPUPROV_TAG_expires"] = "2021-01-01T00:00:00Z"
    fresh = dict(env, GPUPROV_STATE_DIR=str(tmp_path / "fresh"))
    run(program, fresh, "gc", "runpod")
    assert cloud.pods == {}


def test_down_leaves_pods_of_others(cloud, env, program, tmp_path):
    path = spec(tmp_path, nodes=1)
    drive(env, path, "create")
    drive(dict(env, GPUPROV_OWNER="you", GPUPROV_STATE_DIR=str(tmp_path / "yours")), path, "create")
    run(program, env, "down", "pods", "--yes")
    assert [p.body["env"]["GPUPROV_TAG_owner"] for p in cloud.pods.values()] == ["you"]


def test_credentials(cloud, env, program, tmp_path):
    path = spec(tmp_path, nodes=1)
    config = tmp_path / ".runpod" / "config.toml"
    config.parent.mkdir()
    none = {k: v for k, v in env.items() if k != "RUNPOD_API_KEY"}
    result, _ = drive(none, path, "list")
    assert result["code"] == "auth" and "set RUNPOD_API_KEY" in result["message"]
    for text in (f"apiKey = '{cloud.key}'\n", f"[default]\napi_key = \"{cloud.key}\"\n"):
        config.write_text("# mine\napiurl = 'https://x'\n" + text)
        assert drive(none, path, "list")[0]["rc"] == 0
    for text in ("[other]\napi_key = 'abcdefgh12345678'\n", "apiKey = 12\n", "apiKey = ''\n"):
        config.write_text(text)
        assert drive(none, path, "list")[0]["code"] == "auth"
    bad = dict(env, RUNPOD_API_KEY="rpa_notthekeyofthisaccount")
    result, trace = drive(dict(bad, GPUPROV_TRACE="all"), path, "list")
    assert "/v2/pods" in trace
    assert result["code"] == "auth" and "RUNPOD_API_KEY" in result["message"]
    assert "notthekey" not in json.dumps(result) + trace
    result, _ = drive(dict(env, RUNPOD_API_KEY="two words"), path, "list")
    assert "form of a key" in result["message"] and "two words" not in result["message"]
    doctor = run(program, env, "doctor", code=None)
    assert "API key of RUNPOD_API_KEY" in doctor.stdout and cloud.key not in doctor.stdout
    assert run(program, bad, "doctor", code=None).returncode != 0


@pytest.mark.parametrize("rest, part", [
    ({"bootstrap": {"mounts": [{"at": "/data", "nvme": "auto"}]}}, "nodes of runpod cannot have 'mounts'"),
    ({"bootstrap": {"driver": "580"}}, "cannot have 'driver'"),
    ({"access": {"ssh_from": ["192.0.2.0/24"]}}, "RunPod has no firewall"),
    ({"offers": [{"provider": "runpod", "market": "spot"}]}, "spot pods exist only in RunPod's older GraphQL API"),
    ({"offers": [{"provider": "runpod", "zones": ["private"]}]}, "secure or community"),
    ({"offers": [{"provider": "runpod", "instance_type": "x"}]}, "does not take it"),
    ({"image": {"os": "debian-12"}}, "has no system 'debian-12'"),
    ({"gpu": "H1OO"}, "did you mean 'H100'")])
def test_check_refuses(env, program, tmp_path, rest, part):
    done = run(program, env, "check", spec(tmp_path, **rest), code=1)
    assert part in done.stderr and ":1:" in done.stderr, done.stderr


@pytest.mark.parametrize("rest, vcpus", [({}, 2), ({"cpus": 5}, 8), ({"memory": "20GiB"}, 16)])
def test_minimums_choose_the_size_of_a_pod_without_a_gpu(cloud, env, program, tmp_path, rest, vcpus):
    path = spec(tmp_path, nodes=1, gpu=None, access={"timeout": "1s"}, **rest)
    run(program, env, "up", path, "--yes", code=None)
    assert [json.loads(r["body"])["cpu"]["vcpuCount"] for r in cloud.requests("POST .*/pods$")] == [vcpus]
    run(program, env, "down", path, "--yes")
    assert cloud.pods == {}


def test_minimums_that_no_pod_has(cloud, env, program, tmp_path):
    """The largest size is named; pods with GPUs have no figures in the catalogue."""
    done = run(program, env, "plan", spec(tmp_path, nodes=1, gpu=None, cpus=64), code=None)
    assert "has 32 CPUs, fewer than 'cpus: 64'" in done.stderr
    done = run(program, env, "plan", spec(tmp_path, cpus=4), code=None)
    assert "its number of CPUs is not known" in done.stderr
    assert cloud.requests("POST") == []


@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize("journal", JOURNALS)
@pytest.mark.parametrize("round_", range(20))
def test_killed(cloud, env, program, tmp_path, round_, journal):
    """kill -9 at any moment: 'down' leaves nothing, with and without the journal."""
    path = spec(tmp_path, access={"timeout": "2s"})
    cloud.place_after, cloud.run_after = 1, 1
    cloud.latency = 0.02
    dice = random.Random(f"{round_} {journal}")
    up = subprocess.Popen([str(program), "up", str(path), "--yes"], env=env, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    kill_at(up, cloud, lambda: True, dice.uniform(0.02, 0.9))
    cloud.latency = 0
    state = dict(env, GPUPROV_STATE_DIR=str(tmp_path / "lost")) if journal == "lost" else env
    run(program, state, "down", "pods", "--yes", code=None)
    assert cloud.pods == {}, [p.view() for p in cloud.pods.values()]


def test_the_mock_runs_alone(env, tmp_path):
    script = pathlib.Path(__file__).resolve().parents[2] / "clouds" / "runpod.py"
    alone = subprocess.Popen([sys.executable, "-u", str(script), "--port", "0"], env=env,
                             stdout=subprocess.PIPE, text=True)
    try:
        words = dict(w.split("=", 1) for w in alone.stdout.readline().split()[1:])
        result, _ = drive({**env, **words}, spec(tmp_path, nodes=1), "list")
        assert result["rc"] == 0 and result["resources"] == []
    finally:
        alone.terminate()
        alone.wait()
        alone.stdout.close()
