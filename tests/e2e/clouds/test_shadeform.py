# SPDX-License-Identifier: Apache-2.0
"""The provider contract of shadeform against its stand-in, and the built program from check to down and gc. Nodes never
answer SSH here."""
import base64
import json
import os
import subprocess

import ec2
import pytest
from killing import JOURNALS, forget, killed_up
from shadeform_cloud import KEY, ShadeformCloud, error
from test_provider_contract import CASES, LATE_REFUSALS, REFUSALS, run_contract

REGION = "hyperstack.canada-1"


@pytest.fixture(name="cloud")
def cloud_fixture():
    with ShadeformCloud() as cloud:
        yield cloud
        assert cloud.sound() is True


def environment(cloud, folder, **more):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("GPUPROV_", "SHADEFORM", "LAMBDA"))
           and k.upper() not in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")}
    home = folder / "home"
    home.mkdir(exist_ok=True)
    env.update(ec2.CLEAN, HOME=str(home), GPUPROV_STATE_DIR=str(folder / "state"), SHADEFORM_API_KEY=KEY,
               GPUPROV_SHADEFORM_ENDPOINT=cloud.url, GPUPROV_SHADEFORM_PACE_MS="0", GPUPROV_OWNER="tester")
    return dict(env, **more)


def spec(folder, **more):
    return ec2.spec(folder, more.pop("image", None), **{
        "gpu": "A6000:1", "offers": [{"provider": "shadeform", "regions": [REGION]}], "access": None, **more})


@pytest.fixture(name="run")
def run_fixture(gpuprov, cloud, tmp_path):
    gpuprov.env.update(environment(cloud, tmp_path, GPUPROV_STATE_DIR=str(gpuprov.state)))
    return gpuprov


def one(folder, **more):
    return spec(folder, **{"access": {"timeout": "1s"}, "nodes": 1, **more})


def empty(reply):
    return {k: [] for k in reply}


def faults(cloud, case, flag):
    denied = {"times": None, "when": str(flag), "status": 403, "obj": error(403, "FORBIDDEN", "no").obj}
    if case == "async_failure":
        cloud.fails_placement = True
    elif case == "gang_partial":
        cloud.rule("POST .*/create$", "reply", times=None, skip=1, status=409,
                   obj=error(409, "OUT_OF_STOCK", "The type is not available.").obj)
    elif case == "gang_cut":
        cloud.rule("POST .*/create", "edit", change=lambda r: {})
        cloud.rule("GET .*/instances$", "edit", change=empty, times=2)
    elif case == "late_address":
        cloud.place_reads = 6
    elif case == "late_list":
        cloud.late_lists = 4
        cloud.rule("GET .*/sshkeys$", "edit", change=empty, times=2, skip=1)
    elif case == "lost_reply":
        cloud.rule("POST .*/create", "drop_after").rule("POST .*/sshkeys/add", "drop_after")
    elif case == "paged":  # there are no pages: lists in no order
        cloud.shuffle = True
    elif case == "destroy_refused":
        cloud.rule("POST .*/delete$", "reply", **denied)
    elif case == "list_hollow":
        cloud.rule("GET .*/instances$", "reply", times=None, when=str(flag), status=200, obj={"success": False})
    elif case == "list_refused":
        cloud.rule("GET .*/instances$", "reply", **denied)
    elif case == "throttled":
        cloud.rule("", "reply", times=None, every=3, status=429, headers={"Retry-After": "0"}, obj={})


def test_shadeform_contract(cloud, tmp_path):
    run_contract(environment(cloud, tmp_path), "shadeform", spec(tmp_path))
    assert cloud.left() == []


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("case", CASES + REFUSALS + LATE_REFUSALS)
def test_shadeform_on_bad_days(cloud, tmp_path, case):
    faults(cloud, case, tmp_path / "flag")
    run_contract(environment(cloud, tmp_path), "shadeform", spec(tmp_path), case, tmp_path / "flag")
    assert cloud.left() == []
    assert all(r["done"] for r in cloud.rules), "no fault came"


def script_of(request):
    """The startup script and the part of it that root runs."""
    whole = base64.b64decode(request["launch_configuration"]["script_configuration"]["base64_script"]).decode()
    coded = next(line.split()[1] for line in whole.splitlines() if line.startswith("echo "))
    return whole, base64.b64decode(coded).decode()


def test_check_plan_up_down(run, cloud, tmp_path):
    path = one(tmp_path)
    run("check", path)
    plan = run("plan", path, code=2)
    assert "0.57 USD/h" in plan.out and REGION in plan.out and cloud.requests("POST") == []
    up = run("up", path, code=6)
    sent = json.loads(cloud.requests("POST .*/create")[0]["body"])
    assert set(sent) == {"cloud", "region", "shade_instance_type", "shade_cloud", "name", "os", "ssh_key_id", "tags",
                         "auto_delete", "launch_configuration"}
    assert (sent["cloud"], sent["region"], sent["os"]) == ("hyperstack", "canada-1", "ubuntu22.04_cuda12.8_shade_os")
    assert sent["ssh_key_id"] in cloud.keys and "gpuprov-stack=contract" in sent["tags"]
    status = run.json("status", "contract", code=None)["stacks"][0]
    assert status["ends"] == "server" and status["expires"] == sent["auto_delete"]["date_threshold"]
    run("down", path)
    assert cloud.left() == [] and KEY not in up.out + up.err


def test_startup_script(run, cloud, tmp_path):
    """It is a script that bash takes, and root's part makes the user, its key and the host key."""
    run("up", one(tmp_path), code=6)
    whole, root = script_of(json.loads(cloud.requests("POST .*/create")[0]["body"]))
    for text in (whole, root):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    files = {line.split(">", 1)[1].split(".new")[0]: base64.b64decode(line.split()[1]).decode()
             for line in root.splitlines() if line.startswith("echo ")}
    assert files["/etc/sudoers.d/gpuprov"] == "gpuprov ALL=(ALL) NOPASSWD:ALL\n"
    assert files["/home/gpuprov/.ssh/authorized_keys"].startswith("ssh-ed25519 ")
    assert files["/etc/ssh/ssh_host_ed25519_key"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert files["/etc/ssh/ssh_host_ed25519_key.pub"].startswith("ssh-ed25519 ")
    run("down", tmp_path / "spec.yaml")


def test_a_deadline_that_is_not_kept(run, cloud, tmp_path):
    """Accepted and not to be read back: the node is deleted again."""
    cloud.drop_deadline = True
    up = run("up", one(tmp_path), code=None)
    assert up.code != 0 and "cannot be read back" in up.err
    assert all(i["status"] == "deleting" for i in cloud.instances.values())
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


def test_accepted_and_not_placed(run, cloud, tmp_path):
    cloud.fails_placement = True
    up = run("up", one(tmp_path), code=3)
    assert "no machine left" in up.err
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


@pytest.mark.parametrize("status, code, text, expected", [
    (409, "INSUFFICIENT_FUNDS", "Balance must be a minimum of $5 to launch an instance.", 4),
    (409, "OUT_OF_STOCK", "The type is not available.", 3), (401, None, "Unauthorized", 5), (400, None, "Bad request", 1)])
def test_a_refused_launch(run, cloud, tmp_path, status, code, text, expected):
    """By the service's code and text: the same status is a lack of money or of machines."""
    reply = {"error": text} if code is None else {"error_code": code, "error": text}
    cloud.rule("POST .*/create", "reply", times=None, status=status, obj=reply)
    up = run("up", one(tmp_path, nodes=2), code=expected)
    assert text.split(".")[0] in up.err and len(cloud.requests("POST .*/create")) == 1
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


def test_a_server_error_is_not_a_refusal(run, cloud, tmp_path):
    """Whatever its text: the instance may exist. It does, and is found by its tags."""
    cloud.rule("POST .*/create", "edit", change=lambda r: r)
    act = cloud.create

    def create(op):
        act(op)
        raise ConnectionError("made by a test")
    cloud.create = create
    run("up", one(tmp_path), code=6)
    assert len(cloud.requests("POST .*/create")) == 1 and len(cloud.instances) == 1
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


def test_a_launch_that_never_arrived(run, cloud, tmp_path):
    """No reply, and no instance while lists may lag: the same request is sent once more."""
    cloud.rule("POST .*/create", "drop_before")
    run("up", one(tmp_path), code=6)
    first, second = [r["body"] for r in cloud.requests("POST .*/create")]
    assert first == second and len(cloud.instances) == 1
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []


def test_offers(run, cloud, tmp_path):
    """Containers are no machines; PCIe is not SXM; one offer for each cloud and region, the cheapest first."""
    every = [{"provider": "shadeform"}]
    assert "0.57 USD/h" in run("plan", one(tmp_path, offers=every), code=2).out
    cloud.out_of_stock = {("hyperstack", "canada-1"), ("hyperstack", "norway-1")}
    assert "massedcompute.us-central-2" in run("plan", one(tmp_path, offers=every), code=2).out
    assert "no capacity for A6000" in run("plan", one(tmp_path), code=3).err
    cloud.out_of_stock = set()
    assert "H100_sxm5x8" in run("plan", one(tmp_path, gpu="H100:8", offers=every), code=2).out
    assert "datacrunch.fin-01" in run("plan", one(tmp_path, gpu="A100-80GB:1", offers=every), code=2).out
    assert "have them" not in run("check", one(tmp_path)).out
    refused = run("plan", one(tmp_path, access={"ssh_from": ["203.0.113.0/24"]}), code=1)
    assert "no firewall in the API" in refused.err
    assert cloud.requests("POST") == []


def test_minimums_of_a_type(run, cloud, tmp_path):
    """The disk of a type is fixed: one that is larger than what is asked is enough."""
    offer = run.json("plan", one(tmp_path, disk="256GB", cpus=12, memory="48GiB"), code=2)["offers"][0]
    assert offer["disk_gib"] == 239
    refused = run("plan", one(tmp_path, disk="300GB"), code=None)
    assert refused.code not in (0, 2) and "root disk of 239 GiB, less than 'disk: 280 GiB'" in refused.err
    assert cloud.requests("POST") == []


def test_credentials(run, cloud, tmp_path):
    gone = {"SHADEFORM_API_KEY": ""}
    assert "no API key: set SHADEFORM_API_KEY" in run("plan", one(tmp_path), code=5, env=gone).err
    wrong = run("plan", one(tmp_path), "--trace", "all", code=5, env={"SHADEFORM_API_KEY": "secret-wrong"})
    assert "/v1/instances" in wrong.err and "secret-wrong" not in wrong.out + wrong.err
    doctor = run("doctor", code=5, env={"SHADEFORM_API_KEY": "secret-wrong"}).out
    assert "API key of the variable SHADEFORM_API_KEY: " in doctor and "secret-wrong" not in doctor
    folder = tmp_path / "home" / ".shadeform"
    folder.mkdir()
    (folder / "api_key").write_text(KEY + "\n")
    (folder / "api_key").chmod(0o600)
    doctor = run("doctor", code=None, env=gone).out
    assert "api_key" in doctor and KEY not in doctor


@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize("journal", JOURNALS)
@pytest.mark.parametrize("round_", range(20))
def test_killed(run, cloud, tmp_path, round_, journal):
    """kill -9 at any moment: 'down' leaves nothing, with and without the journal."""
    # an `up` of two nodes sends more requests
    killed_up(run, cloud, spec(tmp_path, nodes=2, access={"timeout": "1s"}), journal, f"shadeform {round_}", 14)


def test_gc_without_a_journal(run, cloud, tmp_path):
    run("up", one(tmp_path), code=6)
    forget(run)
    past = "expires=2026-01-02_t03_004_005_z"
    for i in cloud.instances.values():
        i["tags"] = ["gpuprov-" + past if t.startswith("gpuprov-expires=") else t for t in i["tags"]]
    for k in cloud.keys.values():
        k["public_key"] = " ".join(past if w.startswith("expires=") else w for w in k["public_key"].split())
    run("gc", "shadeform")
    assert cloud.left() == []


@pytest.mark.parametrize("change", [{"id": "../../x"}, {"status": None}, {"region": "x\u001b[2J"}, {"cloud": "a.b"}])
def test_hostile_instances(run, cloud, tmp_path, change):
    run("up", one(tmp_path), code=6)
    forget(run)
    cloud.rule("GET .*/instances$", "edit", times=None,
               change=lambda r: {"instances": [dict(i, **change) for i in r["instances"]]})
    refused = run("down", tmp_path / "spec.yaml", code=8)
    assert "\x1b" not in refused.out + refused.err and len(cloud.left()) == 2
    assert not [r for r in cloud.log if ".." in r["target"]]
    cloud.rules.clear()
    run("down", tmp_path / "spec.yaml")
    assert cloud.left() == []
