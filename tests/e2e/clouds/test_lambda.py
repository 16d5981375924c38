# SPDX-License-Identifier: Apache-2.0
"""gpuprov at Lambda Cloud's stand-in: the built program from check to down and gc, credentials, refusals, replies of
another form than documented, kills. Nodes never answer SSH here."""
import email.utils
import json
import time

import lambda_world
import pytest
from killing import JOURNALS, forget, killed_up
from lambda_cloud import KEY, LambdaCloud, error

PAST = "2026-01-02T03:04:05Z"


@pytest.fixture(name="cloud")
def cloud_fixture():
    with LambdaCloud() as cloud:
        yield cloud
        assert cloud.sound() is True


@pytest.fixture(name="run")
def run_fixture(gpuprov, cloud, tmp_path):
    gpuprov.env.update(lambda_world.environment(cloud, tmp_path, GPUPROV_STATE_DIR=str(gpuprov.state)))
    return gpuprov


def spec(folder, **more):
    return lambda_world.spec(folder, **{"access": {"timeout": "1s"}, "nodes": 1, **more})


def words(cloud, what):
    return [json.loads(r["body"]) for r in cloud.requests(what)]


def test_check_plan_up_down(run, cloud, tmp_path):
    """What is bought, with which tags, and that down leaves nothing."""
    path = spec(tmp_path, nodes=2)
    run("check", path)
    plan = run("plan", path, code=2)
    assert "gpu_1x_a10" in plan.out and "1.50 USD/h" in plan.out
    assert "gpuprov gc" in plan.out + plan.err
    assert cloud.requests("POST") == []
    up = run("up", path, code=6)
    assert "contract/0" in up.err
    first, second = words(cloud, "POST .*/launch")
    assert set(first) == {"region_name", "instance_type_name", "ssh_key_names", "name", "image", "user_data", "tags"}
    assert first["ssh_key_names"] == second["ssh_key_names"] == [k["name"] for k in cloud.keys.values()]
    assert (first["region_name"], first["instance_type_name"]) == ("us-east-1", "gpu_1x_a10")
    assert first["user_data"].startswith("#cloud-config") and first["image"]["id"] in [i["id"] for i in cloud.images]
    tags = {t["key"]: t["value"] for t in first["tags"]}
    assert (tags["gpuprov:owner"], tags["gpuprov:stack"], tags["gpuprov:slots"]) == ("tester", "contract", "0+1")
    assert tags["gpuprov:price"] == "0.75" and "T" in tags["gpuprov:expires"]
    status = run.json("status", "contract", code=None)["stacks"][0]
    assert {n["id"] for n in status["nodes"]} == set(cloud.instances) and status["ends"] == "gc-only"
    run("down", path)
    assert cloud.left() == []
    assert KEY not in up.out + up.err


def test_newest_image_and_named_ones(run, cloud, tmp_path):
    def family(**more):
        offers = lambda_world.Drive(run.env, spec(tmp_path, **more), "offers")["offers"]
        return [next(i["family"] for i in cloud.images if i["id"] == o["image"]) for o in offers]
    assert family() == ["lambda-stack-24-04"]
    assert family(image={"os": "ubuntu-24.04"}) == ["ubuntu-lts"]
    assert family(image={"os": "ubuntu-22.04"}) == ["lambda-stack-22-04"]
    assert family(image={"id": "gpu-base-24-04"}) == ["gpu-base-24-04"]
    one = next(i for i in cloud.images if i["region"]["name"] == "us-east-1" and i["architecture"] == "x86_64")
    assert family(image={"id": one["id"]}) == [one["family"]]
    assert "no image that fits" in run("plan", spec(tmp_path, image={"id": "nope"}), code=1).err


@pytest.mark.parametrize("gpu, type_", [("H100:1", "gpu_1x_h100_pcie"), ("H100:8", "gpu_8x_h100_sxm5"),
                                        ("A100-80GB:8", "gpu_8x_a100_80gb_sxm4"), ("GH200:1", "gpu_1x_gh200"),
                                        ("B200:8", "gpu_8x_b200_sxm6"), ("A10:1", "gpu_1x_a10")])
def test_gpus_are_recognised(run, cloud, tmp_path, gpu, type_):
    """Also those of a card: 'H100' alone is the SXM module, so that the PCIe card needs its form."""
    if gpu == "H100:1":
        assert "it has them in: 8" in run("plan", spec(tmp_path, gpu=gpu), code=1).err
        gpu = "H100 PCIe:1"
    assert type_ in run("plan", spec(tmp_path, gpu=gpu), code=2).out
    assert "us-west-1" in run("plan", spec(tmp_path, gpu=gpu, offers=[{"provider": "lambda", "regions": ["us-west-1"]}]), code=2).out
    assert cloud.requests("POST") == []


def test_minimums_of_a_type(run, cloud, tmp_path):
    """The disk of a type is fixed: one that is larger than what is asked is enough."""
    offer = run.json("plan", spec(tmp_path, disk="1TB", cpus=30, memory="200GiB"), code=2)["offers"][0]
    assert (offer["type"], offer["disk_gib"]) == ("gpu_1x_a10", 1400)
    refused = run("plan", spec(tmp_path, disk="1500GiB"), code=None)
    assert refused.code not in (0, 2) and "root disk of 1400 GiB, less than 'disk: 1500 GiB'" in refused.err
    assert cloud.requests("POST") == []


def test_needs_unattended_accept(run, cloud, tmp_path):
    refused = run("up", spec(tmp_path, limits={"ttl": "1h"}), code=1)
    assert "limits: {unattended: accept}" in refused.err
    assert cloud.left() == []


def test_keys_that_it_does_not_take(run, tmp_path):
    for key, value in {"zones": ["a"], "market": "spot", "subnet": "x", "role": "r"}.items():
        refused = run("check", spec(tmp_path, offers=[{"provider": "lambda", key: value}]), code=1)
        assert key in refused.err
    refused = run("plan", spec(tmp_path, access={"public_ip": False}), code=1)
    assert "always have a public address" in refused.err


# --- refusals ---

CODES = {"instance-operations/launch/insufficient-capacity": (400, 3), "global/quota-exceeded": (400, 4),
         "global/account-inactive": (403, 4), "global/invalid-address": (403, 4), "global/invalid-api-key": (401, 5),
         "global/forbidden": (403, 5), "global/invalid-parameters": (400, 1), "global/object-does-not-exist": (404, 1)}


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("code", CODES)
def test_a_refused_launch(run, cloud, tmp_path, code):
    """The exit code is that of the cause, the rest of the gang is not sent, and nothing is left but the claim."""
    status, expected = CODES[code]
    cloud.rule("POST .*/launch", "reply", times=None, status=status,
               obj={"error": {"code": code, "message": "made by a test", "suggestion": ""}})
    up = run("up", spec(tmp_path, nodes=3), code=expected)
    assert code in up.err and "made by a test" in up.err
    assert len(cloud.requests("POST .*/launch")) == 1
    assert cloud.instances == {}
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


def test_capacity_ends_in_the_middle_of_a_gang(run, cloud, tmp_path):
    cloud.capacity[("gpu_1x_a10", "us-east-1")] = 2
    up = run("up", spec(tmp_path, nodes=3), code=3)
    assert "insufficient-capacity" in up.err
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


def test_accepted_and_then_ended_by_the_cloud(run, cloud, tmp_path):
    cloud.boot_lists, cloud.fails_boot = 0, True
    up = run("up", spec(tmp_path), code=3)
    assert "right after its launch" in up.err
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


def test_no_capacity_anywhere(run, cloud, tmp_path):
    cloud.capacity = {}
    refused = run("up", spec(tmp_path), code=3)
    assert "no capacity for A10 in us-east-1" in refused.err
    assert cloud.requests("POST") == []


def test_a_launch_that_never_arrived(run, cloud, tmp_path):
    """No reply, and no instance while lists may lag: the same request is sent once more."""
    cloud.rule("POST .*/launch", "drop_before")
    run("up", spec(tmp_path), code=6)
    first, second = [r["body"] for r in cloud.requests("POST .*/launch")]
    assert first == second and len(cloud.instances) == 1
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


def test_a_launch_that_never_arrives(run, cloud, tmp_path):
    """Sent once more, and then refused: it left nothing."""
    cloud.rule("POST .*/launch", "drop_before", times=None)
    up = run("up", spec(tmp_path), code=None)
    assert up.code != 0 and "created nothing" in up.err
    assert cloud.instances == {} and len(cloud.requests("POST .*/launch")) == 2
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


# --- credentials ---

def test_no_credentials(run, cloud, tmp_path):
    gone = {"LAMBDA_API_KEY": ""}
    assert "no API key: set LAMBDA_API_KEY" in run("plan", spec(tmp_path), code=5, env=gone).err
    assert "no API key" in run("doctor", code=None, env=gone).out
    assert cloud.log == []


def test_wrong_credentials(run, cloud, tmp_path):
    wrong = {"LAMBDA_API_KEY": "secret_wrong_0000"}
    refused = run("up", spec(tmp_path), code=5, env=wrong)
    assert "global/invalid-api-key" in refused.err and "secret_wrong" not in refused.err + refused.out
    assert run("down", "contract", code=8, env=wrong).err != ""
    broken = run("up", spec(tmp_path), code=5, env={"LAMBDA_API_KEY": "two words"})
    assert "not one line of printable characters" in broken.err and "two words" not in broken.err
    assert cloud.requests("POST") == []


def test_a_key_that_a_reply_repeats_behind_a_value(run, cloud, tmp_path):
    """A file that the spec names ends with the public beginning of a key, and begins with the words of the reply."""
    wrong = "secret_joe_0123456789.abcdef"

    def handle(_method, _target, headers, _body):
        raise error(403, "global/invalid-api-key", f"API key {headers['authorization'][7:]} was not accepted")
    cloud.handle = handle
    (tmp_path / "v.txt").write_text("API key secret_")
    path = spec(tmp_path, bootstrap={"steps": [{"name": "x", "run": "echo ${file:./v.txt}"}]})
    for verb, code in (("up", 5), ("plan", 5)):
        refused = run(verb, path, code=code, env={"LAMBDA_API_KEY": wrong})
        assert "was not accepted" in refused.err and "0123" not in refused.err + refused.out


def test_file_of_credentials_is_found_and_read_again(run, cloud, tmp_path):
    """Its mode is reported; a key that was replaced after a refusal is used."""
    folder = tmp_path / "home" / ".lambda_cloud"
    folder.mkdir()
    path = folder / "lambda_keys"
    path.write_text("# made by hand\napi_key = secret_old\n")
    path.chmod(0o644)
    gone = {"LAMBDA_API_KEY": ""}
    refused = cloud.handle

    def handle(method, target, headers, body):
        if headers.get("authorization") == "Bearer secret_old":
            path.write_text(f'api_key = "{KEY}"\n')
        return refused(method, target, headers, body)
    cloud.handle = handle
    plan = run("plan", spec(tmp_path), env=gone, code=2)
    assert "gpu_1x_a10" in plan.out and "chmod 600" in plan.out + plan.err
    path.chmod(0o600)
    doctor = run("doctor", code=None, env=gone).out
    assert "lambda_keys" in doctor and "0 instances" in doctor and KEY not in doctor
    path.write_text('api_key = "secret_refused"\n')
    refused_key = run("doctor", code=5, env=gone).out
    assert "API key of" in refused_key and str(path.name) in refused_key and "secret_refused" not in refused_key
    path.write_text("key = x\n")
    assert "no line 'api_key = KEY'" in run("plan", spec(tmp_path), env=gone, code=5).err


def test_key_is_never_sent_in_the_clear(run, cloud, tmp_path):
    refused = run("plan", spec(tmp_path), code=1, env={"GPUPROV_LAMBDA_ENDPOINT": "http://198.51.100.1"})
    assert "is not https: use https, or GPUPROV_CLEAR_TEXT=198.51.100.1" in refused.err
    traced = run("plan", spec(tmp_path), "--trace", "all", code=2)
    assert "/api/v1/instance-types" in traced.err and KEY not in traced.out + traced.err


def test_pace(run, cloud, tmp_path):
    """Launches keep the distance of the description, 12 times that of other requests. The stand-in may note one late, and
    the next in time."""
    run("up", spec(tmp_path, nodes=3), code=6, env={"GPUPROV_LAMBDA_PACE_MS": "100"})
    a, b, c = cloud.launches
    assert min(b - a, c - b) > 0.7 and c - a > 1.9
    at = [r["at"] for r in cloud.log]
    assert (at[-1] - at[0]) / (len(at) - 1) > 0.09
    run("down", tmp_path / "spec.yaml")


# --- replies that are not as documented ---

def changed(what):
    def change(reply):
        for i in reply["data"]:
            i.update(what(i))
        return reply
    return change


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("field, value", [("id", "../../x"), ("id", "i/../j"), ("id", 7), ("id", ""), ("status", "a b"),
                                          ("status", None), ("region", {"name": "x\u001b[2J"}), ("region", None)])
def test_hostile_instances(run, cloud, tmp_path, field, value):
    """A malformed entry fails the list: nothing is said to be gone, and no such text becomes a path."""
    run("up", spec(tmp_path), code=6)
    forget(run)
    cloud.rule("GET .*/instances$", "edit", times=None, change=changed(lambda i: {field: value}))
    refused = run("down", tmp_path / "spec.yaml", code=8)
    assert "nothing" not in refused.out and "\x1b" not in refused.out + refused.err
    assert len(cloud.left()) == 2
    assert not [r for r in cloud.log if ".." in r["target"]]
    cloud.rules.clear()
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


def test_hostile_figures_and_addresses(run, cloud, tmp_path):
    def change(i):
        kind = dict(i["instance_type"], price_cents_per_hour=10 ** 18, specs={"gpus": 10 ** 12})
        return {"ip": "127.0.0.1; reboot", "private_ip": "x" * 4000, "instance_type": kind, "name": "\u202e" * 60}
    run("up", spec(tmp_path), code=6)
    cloud.rule("GET .*/instances$", "edit", times=None, change=changed(change))
    status = run("status", "contract", code=None)
    assert "reboot" not in status.out and "\u202e" not in status.out
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


def test_foreign_instances_are_left_alone(run, cloud, tmp_path):
    """No tags, another owner's tags, tags that do not decode."""
    run("up", spec(tmp_path), code=6)
    mine = next(iter(cloud.instances.values()))

    def other(id, tags, name="someone's"):
        cloud.instances[id] = dict(mine, id=id, name=name, tags=tags)
    other("a" * 32, [])
    other("b" * 32, [dict(t, value="else") if t["key"] == "gpuprov:owner" else t for t in mine["tags"]])
    other("c" * 32, [dict(t, value="No Uid") if t["key"] == "gpuprov:uid" else t for t in mine["tags"]])
    down = run("down", "contract", code=None)
    assert "c" * 32 in down.out + down.err
    assert set(cloud.left()) == {"a" * 32, "b" * 32, "c" * 32}
    for id in list(cloud.instances):
        del cloud.instances[id]


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("reply", [{}, {"data": {}}, {"data": None}, [], {"error": {"code": "global/internal-error"}}])
def test_a_list_that_is_none_is_not_an_empty_list(run, cloud, tmp_path, reply):
    run("up", spec(tmp_path), code=6)
    cloud.rule("GET .*/(instances|ssh-keys)$", "reply", times=None, status=200, obj=reply)
    down = run("down", "contract", code=8)
    assert "contract" in down.err
    cloud.rules.clear()
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


# --- firewall ---

def test_networks_of_ssh(run, cloud, tmp_path):
    """A ruleset for each region, with the launch; changed rules reach running nodes; it goes with the stack."""
    more = {"access": {"timeout": "1s", "ssh_from": ["203.0.113.0/24"]}}
    up = run("up", spec(tmp_path, **more), code=6)
    assert "global firewall rules allow SSH from 0.0.0.0/0 too" in up.err
    ruleset, = cloud.rulesets.values()
    assert [(r["protocol"], r["source_network"]) for r in ruleset["rules"]] == [("tcp", "203.0.113.0/24"),
                                                                               ("icmp", "203.0.113.0/24")]
    assert words(cloud, "POST .*/launch")[0]["firewall_rulesets"] == [{"id": ruleset["id"]}]
    cloud.global_rules = []
    more["access"]["ssh_from"] = ["198.51.100.7/32"]
    up = run("up", spec(tmp_path, **more), code=6)
    assert "global firewall" not in up.err and len(cloud.launches) == 1
    assert {r["source_network"] for r in ruleset["rules"]} == {"198.51.100.7/32"}
    kinds = [o["kind"] for o in run.json("status", "contract", code=None)["stacks"][0]["others"]]
    assert sorted(kinds) == ["group", "key-pair"]
    forget(run)
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


def test_networks_that_cannot_be(run, cloud, tmp_path):
    refused = run("up", spec(tmp_path, access={"ssh_from": ["2001:db8::/32"]}), code=1)
    assert "IPv4 networks only" in refused.err
    cloud.capacity[("gpu_1x_a10", "us-south-1")] = 8
    offers = [{"provider": "lambda", "regions": ["us-south-1"], "ssh_from": ["203.0.113.0/24"]}]
    refused = run("up", spec(tmp_path, offers=offers), code=1)
    assert "have no effect in us-south-1" in refused.err
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


def test_a_ruleset_without_its_claim(run, cloud, tmp_path):
    """Its name is that of the stack, so that down finds it; gc without the stack's name reports it."""
    run("up", spec(tmp_path, access={"timeout": "1s", "ssh_from": ["203.0.113.0/24"]}), code=6)
    forget(run)
    cloud.keys.clear()
    ruleset, = cloud.rulesets
    gc = run("gc", "lambda", code=None)
    assert gc.code != 0 or ruleset in gc.out + gc.err
    assert list(cloud.rulesets) == [ruleset]
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


def test_a_lost_reply_of_a_ruleset(run, cloud, tmp_path):
    cloud.rule("POST .*/firewall-rulesets", "drop_after")
    run("up", spec(tmp_path, access={"timeout": "1s", "ssh_from": ["203.0.113.0/24"]}), code=6)
    assert len(cloud.rulesets) == 1 and len(cloud.instances) == 1
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


# --- the claim ---

def test_a_claim_whose_comment_was_changed_is_not_used(run, cloud, tmp_path):
    run("up", spec(tmp_path), code=6)
    run("down", tmp_path / "spec.yaml")
    run("up", spec(tmp_path), code=6)
    key = next(iter(cloud.keys.values()))
    key["public_key"] = key["public_key"].replace("stack=contract", "stack=other")
    for f in run.state.glob("journal.db*"):
        f.unlink()
    for id in list(cloud.instances):
        del cloud.instances[id]
    refused = run("up", spec(tmp_path), code=None)
    assert refused.code != 0 and key["name"] in refused.err
    assert len(cloud.requests("POST .*/launch")) == 2
    cloud.keys.clear()


def test_comments_that_the_cloud_drops(run, cloud, tmp_path):
    cloud.drop_comments = True
    refused = run("up", spec(tmp_path), code=None)
    assert "without its comment" in refused.err and cloud.left() == []


def test_unique_names_of_keys(run, cloud, tmp_path):
    """Lambda may keep names unique: a repeated request is refused then, and the key counts."""
    cloud.unique_key_names = True
    cloud.rule("POST .*/ssh-keys$", "drop_after")
    cloud.rule("GET .*/ssh-keys$", "edit", times=2, skip=1, change=lambda r: {"data": []})
    run("up", spec(tmp_path), code=6)
    assert len(cloud.requests("POST .*/ssh-keys$")) > 1 and len(cloud.keys) == 1
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


# --- kills, another machine ---

@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize("journal", JOURNALS)
@pytest.mark.parametrize("round_", range(20))
def test_killed(run, cloud, tmp_path, round_, journal):
    """kill -9 at any moment: 'down' leaves nothing, with and without the journal."""
    # an `up` of two nodes sends more requests
    killed_up(run, cloud, spec(tmp_path, nodes=2, access={"timeout": "1s"}), journal, f"lambda {round_}", 16)


def test_gc_without_a_journal(run, cloud, tmp_path):
    """Another machine: what is past its deadline is ended by its tags alone, and nothing else."""
    run("up", spec(tmp_path, name="old"), code=6)
    run("up", spec(tmp_path, name="young"), code=6)
    forget(run)
    for i in cloud.instances.values():
        for t in i["tags"]:
            if t["key"] == "gpuprov:expires" and {"key": "gpuprov:stack", "value": "old"} in i["tags"]:
                t["value"] = PAST
    for k in cloud.keys.values():
        if " stack=old " in k["public_key"]:
            facts = k["public_key"].split()
            k["public_key"] = " ".join("expires=2026-01-02_t03_004_005_z" if f.startswith("expires=") else f for f in facts)
    young = {i["id"] for i in cloud.instances.values() if {"key": "gpuprov:stack", "value": "young"} in i["tags"]}
    run("gc", "lambda")
    assert {i for i in cloud.instances if cloud.instances[i]["status"] != "terminating"} == young
    assert len(cloud.keys) == 1
    run("down", "young", "--in", "lambda")
    assert cloud.left() == []


# --- the clock ---

def from_a_proxy(status, days):
    """A reply of something between here and the cloud, with a clock of its own."""
    date = email.utils.formatdate(time.time() + days * 86400, usegmt=True)
    return {"times": None, "status": status, "obj": b"<html>Log in</html>",
            "headers": {"Date": date, "Content-Type": "text/html"}}


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("status, days", [(502, 365), (403, 365), (403, -365)])
def test_a_proxys_clock_is_not_the_clouds(run, cloud, tmp_path, status, days):
    """Its reply is the last one of each list: nothing expires by its date, and what has expired is ended."""
    path = spec(tmp_path, name="one")
    run("up", path, code=6)
    cloud.rule("GET .*/firewall-rulesets", "reply", **from_a_proxy(status, days))
    node, = cloud.instances.values()
    if days > 0:
        shown = run("status", "one", code=None)
        gone = run("gc", "lambda", code=None)
        again = run("up", path, code=None)
        assert "clock" not in gone.out + gone.err and "destroys what is left" not in shown.out, (shown, gone)
        assert "deadline" not in again.err and node["status"] != "terminating", again.err
    else:
        node["tags"] = [{**t, "value": PAST} if t["key"] == "gpuprov:expires" else t for t in node["tags"]]
        kept = run("gc", "lambda", code=None)  # its journal has another deadline than the edited tag
        assert "1 seen and kept" in kept.out and "past its deadline" not in kept.out, kept.out
        assert node["status"] == "active", kept.out
        forget(run)
        gone = run("gc", "lambda", code=None)
        assert "clock" not in gone.out + gone.err and node["status"] == "terminating", gone.out + gone.err
    assert cloud.requests("GET .*/firewall-rulesets")[-1]["status"] == status
    cloud.rules.clear()
    run("down", path)
    assert cloud.left() == []
