# SPDX-License-Identifier: Apache-2.0
"""validate without a stack: this machine (--local, --node-check), with and without GPUs, and the machines
of a hosts file. GPUs are the stand-ins of test_agent_cuda.py, in a mount namespace of the test's own."""
import json
import os
import pathlib
import signal
import subprocess

import pytest

from agent_gpu import NAMESPACE, STANDIN, namespace, skip_without_agent
from fleet import Fleet
from lab import why_not
from waiting import wait_for

PASS, DEGRADED, FAIL, UNKNOWN = 0, 1, 2, 3


@pytest.fixture(name="gpus")
def gpus_fixture(gpuprov):
    """gpus(n, *args, code=): the program on a machine with n GPUs."""
    skip_without_agent()

    def call(n, *args, code=0, standin="", nvml="", libraries=STANDIN):
        argv = [*namespace(), "sh", "-c", NAMESPACE, "sh", str(n), gpuprov.program, *args]
        env = {**gpuprov.env, "GPUPROV_STANDIN": standin or f"gpus={n}", "GPUPROV_STANDIN_NVML": nvml or f"gpus={n}",
               "GPUPROV_LIBRARY_PATH": str(libraries)}
        done = subprocess.run([str(a) for a in argv], env=env, capture_output=True, text=True, timeout=200)
        assert code is None or done.returncode == code, done
        return done
    return call


def verdicts(report):
    return {c["check"]: c["verdict"] for c in report["nodes"][0]["checks"]}


def test_one_line(gpuprov):
    done = gpuprov("validate", "--node-check", "--time", "10s", code=PASS)
    assert done.out.count("\n") == 1 and done.out.startswith("pass: ") and "checks passed" in done.out
    assert done.err == "" and list(gpuprov.state.parent.glob("state/*")) == []


def test_the_own_clock_is_not_compared_with_itself(gpuprov):
    """host.clock passed on every machine: the controller's clock was the node's."""
    for mode in ("--local", "--node-check"):
        report = json.loads(gpuprov("validate", mode, "--json", "--time", "10s", code=PASS).out)
        clock = next(c for c in report["nodes"][0]["checks"] if c["check"] == "host.clock")
        assert (clock["verdict"], clock["code"], clock["required"]) == ("skipped", "same_clock", False), clock
        assert "no other to compare with" in clock["message"] and "time service" in clock["message"]
        assert report["ready"]


def test_nothing_stays(gpuprov, tmp_path):
    """No folder, no process, no file: also when it is ended in the middle."""
    env = {**gpuprov.env, "TMPDIR": str(tmp_path)}
    p = subprocess.Popen([gpuprov.program, "validate", "--local", "--json"], env=env, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    for line in p.stderr:  # an event: the agent is at work
        if "host." in line:
            break
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=60)
    assert p.returncode == 130
    assert [x.name for x in tmp_path.iterdir()] == ["home"]
    gpuprov("validate", "--local", "--time", "5s", env=env)
    assert [x.name for x in tmp_path.iterdir()] == ["home"]


def test_where_nothing_can_be_written(gpuprov):
    """A container with a root that is read-only, /tmp included: a verdict needs no place."""
    assert gpuprov("validate", "--node-check", "--time", "5s", env={"TMPDIR": "/nowhere", "GPUPROV_STATE_DIR": "/proc/x",
                                                                   "HOME": "/nowhere"}).out.startswith("pass: ")


def test_the_agent_dies_with_it(gpuprov):
    p = gpuprov.popen("validate", "--local", "--json")
    for line in p.stderr:
        if "host." in line:
            break
    children = subprocess.run(["pgrep", "-P", str(p.pid)], capture_output=True, text=True).stdout.split()
    p.kill()
    p.communicate()
    assert children
    wait_for(lambda: not any(pathlib.Path(f"/proc/{c}").exists() for c in children), 120)  # the agent ends with it


@pytest.mark.long
def test_good_gpus(gpus, tmp_path):
    out = json.loads(gpus(4, "validate", "--node-check", "--json", "--time", "5m", "--gpu", "H100:4", "--report",
                          f"prometheus={tmp_path / 'n.prom'}", "--certificate", tmp_path / "cert.json").stdout)
    assert out["line"].startswith("pass: ") and out["ready"], out["line"]
    seen = verdicts(out)
    assert seen["gpu.presence"] == seen["nccl.values"] == "pass" and not {"fail", "error"} & set(seen.values()), seen
    assert (tmp_path / "n.prom").read_text().count('gpu="3",uuid="GPU-') > 4
    presence = next(c for c in out["nodes"][0]["checks"] if c["check"] == "gpu.presence")
    said = gpus(4, "verify", tmp_path / "cert.json", "--json", code=FAIL).stdout
    certified = json.loads(said)["certificate"] # the stand-in's GPUs are not in this machine's /proc
    assert [g["uuid"] for g in certified["gpus"]] == [g["uuid"] for g in presence["data"]["gpus"]]
    assert len(certified["gpus"]) == 4 and certified["driver"] and "is not in this machine" in said


def test_what_is_there_is_what_is_checked(gpus):
    out = json.loads(gpus(4, "validate", "--node-check", "--json", "--time", "60s").stdout)
    assert len(out["nodes"][0]["checks"][[c["check"] for c in out["nodes"][0]["checks"]].index("gpu.presence")]
               ["data"]["gpus"]) == 4


@pytest.mark.parametrize("n,args,standin,code,word,said", [
    (7, ["--gpu", "H100:8"], "", FAIL, "fail", "gpu.presence"),
    (8, ["--gpu", "A100-SXM4-80GB:8"], "", FAIL, "fail", "'A100-SXM4-80GB' was bought"),
    (8, [], "init=802", FAIL, "fail", "fabric"),
    (8, [], "init=999", FAIL, "fail", "gpu.presence"),
])
def test_bad_gpus(gpus, n, args, standin, code, word, said):
    done = gpus(n, "validate", "--node-check", "--time", "40s", *args, standin=f"gpus={n},{standin}".rstrip(","), code=code)
    assert done.stdout.count("\n") == 1 and done.stdout.startswith(f"{word}: ") and said in done.stdout, done


def test_gpus_are_looked_at_or_it_is_no_verdict(gpus):
    """However short the time: a pass that left the GPUs out would be believed."""
    assert json.loads(gpus(8, "validate", "--node-check", "--json", "--time", "4s").stdout)["nodes"][0]["checks"][0]["check"] \
        == "gpu.presence"
    assert "gpu.presence" in gpus(8, "validate", "--node-check", "--time", "1s", code=UNKNOWN).stdout


def test_a_mistyped_model(gpuprov, tmp_path):
    """Some GPUs are in no table: an unknown name is no error, but this one looks like a known one."""
    said = "warning: gpu: unknown GPU model '%s'; did you mean 'H100'?"
    for model, warned in (("H1000", True), ("h100", False), ("Frobnicator", False)):
        err = gpuprov("validate", "--local", "--gpu", f"{model}:8", "--time", "5s", code=7).err
        assert (said % model in err) == warned and ("unknown GPU" in err) == warned, err
    path = tmp_path / "h.yaml"
    path.write_text("defaults: {gpu: H1000:8}\nhosts: [192.0.2.1]\n")
    assert said % "H1000" in gpuprov("validate", "--hosts", path, "--time", "5s", code=None).err


def test_no_driver(gpus, tmp_path):
    done = gpus(8, "validate", "--node-check", "--time", "30s", libraries=tmp_path, code=FAIL)
    assert "gpu.presence" in done.stdout


@pytest.mark.parametrize("args,said", [
    (["--time", "3"], "duration with its unit"),
    (["--gpu", "H100:none"], "H100:none"),
    (["--calibrate"], "--calibrate without a stack requires --baseline FILE"),
    (["--local"], "one of STACK"),
    (["llm"], "one of STACK"),
])
def test_wrong_usage_is_not_degraded(gpuprov, args, said):
    done = gpuprov("validate", "--node-check", *args, code=UNKNOWN)
    assert said in done.out + done.err


def test_options_that_belong_to_a_spec(gpuprov):
    assert "set them in the stack's spec" in gpuprov("validate", "llm", "--gpu", "H100:8", code=1).err
    assert "one of STACK" in gpuprov("validate", code=1).err


# --- a hosts file ---

@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    if os.geteuid() != 0 or why_not():
        pytest.skip(why_not() or "needs root")
    with Fleet(tmp_path_factory.mktemp("bare"), 2) as made:
        yield made


@pytest.fixture
def inside(gpuprov, fleet, tmp_path):
    return fleet.enter(gpuprov, tmp_path)


@pytest.mark.long
def test_hosts(inside, fleet, tmp_path):
    env = {"TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    report = inside.json("validate", "--hosts", tmp_path / "fleet.yaml", "--certificate", tmp_path / "certs", env=env)
    assert report["stack"] == "hosts" and report["ready"] and len(report["nodes"]) == 2
    assert {c["check"]: c["verdict"] for c in report["gang"]} == {"net.pair": "pass", "train.ddp": "pass"} or \
        {c["verdict"] for c in report["gang"] if c["required"]} == {"pass"}
    assert sorted(p.name for p in (tmp_path / "certs").iterdir()) == [f"hosts-{n}.certificate.json" for n in (0, 1)]
    # nothing is kept: no stack, no scratch folder, nothing that runs on the hosts
    assert inside.json("status")["stacks"] == [] and list((tmp_path / "tmp").iterdir()) == []
    for host in fleet.nodes:
        assert host.sh("ps -eo args | grep '[g]puprov' || true").stdout == ""


def test_a_host_that_fails_is_named(inside, fleet, tmp_path):
    fleet.nodes[1].cut()
    try:
        done = inside("validate", "--hosts", tmp_path / "fleet.yaml", code=6)
    finally:
        fleet.nodes[1].mend()
    assert "hosts/1" in done.err and "NOT READY" in done.out, done
    assert "destroys" not in done.err + done.out  # there is no stack


def test_hosts_files_that_do_not_do(gpuprov, tmp_path):
    path = tmp_path / "h.yaml"
    path.write_text("hosts: []\n")
    assert gpuprov("validate", "--hosts", path, code=1).err
    path.write_text("hosts:\n  - {address: 10.0.0.1, gpu: H100:8}\n  - {address: 10.0.0.2, gpu: A100:8}\n")
    assert "the hosts have different GPUs (10.0.0.1 and 10.0.0.2)" in gpuprov("validate", "--hosts", path, code=1).err
    assert "nowhere.yaml" in gpuprov("validate", "--hosts", tmp_path / "nowhere.yaml", code=1).err
