# SPDX-License-Identifier: Apache-2.0
"""Bad days of `gpuprov-agent run`: workers, GPUs and agents that die, hang or are held, and what is then
said of the rest. Also what a given time chooses, and where a failure ends a run."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from agent_gpu import AGENT as CUDA
from agent_gpu import NAMESPACE, STANDIN, metrics, namespace, skip_without_agent
from test_agent import AGENT, FAULTS, agent, lines_of
from test_agent_cuda import run
from waiting import wait_for

TWO = "gpu.memory,gpu.stress"


@pytest.fixture
def gpu():
    skip_without_agent()


def start(checks, standin="", gpus=2, extra=("--all",)):
    env = {**os.environ, "GPUPROV_STANDIN": f"gpus={gpus},{standin}", "GPUPROV_STANDIN_NVML": f"gpus={gpus}",
           "GPUPROV_LIBRARY_PATH": str(STANDIN)}
    return subprocess.Popen([*namespace(), "sh", "-c", NAMESPACE, "sh", str(gpus), str(CUDA), "run", "--gpus",
                             str(gpus), "--checks", checks, *extra], env=env, stdout=subprocess.PIPE, text=True)


def until(process, kind, check=None):
    """Lines of a running agent up to the first of this kind."""
    lines = []
    for text in process.stdout:
        lines.append(json.loads(text))
        if lines[-1]["type"] == kind and check in (None, lines[-1].get("check")):
            return lines
    raise AssertionError(lines)


def workers_of(pid):
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid):
    try:
        return "State:\tZ" in pathlib.Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def gpus_of(result):
    return {g["gpu"]: g for g in result["data"]["gpus"]}


# --- workers and the agent ---

def test_a_worker_that_is_killed_is_an_error_and_its_gpu_goes_on_in_a_new_one(gpu):
    p = start(TWO, "gpu=1,hang=1")  # so that its worker is surely at work when it is killed
    hello = until(p, "start", "gpu.memory")[0]
    children = workers_of(hello["pid"])
    assert len(children) == 2  # one for each GPU; nothing here needs the host's
    os.kill(children[1], signal.SIGKILL)
    lines = lines_of(p.communicate(timeout=120)[0])
    memory = next(l for l in lines if l["type"] == "result" and l["check"] == "gpu.memory")
    assert (memory["verdict"], memory["code"]) == ("error", "crashed"), memory
    assert "gpu 1" in memory["message"] and "SIGKILL" in memory["message"]
    assert gpus_of(memory)[0]["verdict"] == "pass"
    stress = next(l for l in lines if l["type"] == "result" and l["check"] == "gpu.stress")
    assert gpus_of(stress)[0]["verdict"] == "pass"
    assert gpus_of(stress)[1]["code"] == "gpu_hang"  # it was tried again, and hangs
    assert p.returncode == 2


def test_workers_die_with_the_agent(gpu):
    p = start("gpu.memory", "hang=1")
    hello = until(p, "start", "gpu.memory")[0]
    children = workers_of(hello["pid"])
    assert len(children) == 2
    os.kill(hello["pid"], signal.SIGKILL)
    p.wait(timeout=60)
    wait_for(lambda: all(gone(c) for c in children))


def test_what_cannot_be_stopped_is_said_to_be_on_the_node():
    """The worker of a check that never ends, and that SIGKILL does not end either."""
    got = agent("run", "--all", "--checks", "host.clock,host.cores", program=FAULTS,
                env={"GPUPROV_FAULT": "host.clock:0:0+stuck:0:0"})
    lines = lines_of(got.stdout)
    results = {l["check"]: l for l in lines if l["type"] == "result"}
    clock = results["host.clock"]
    assert (clock["verdict"], clock["code"]) == ("fail", "driver_hang"), clock
    assert "replace the node" in clock["suggestion"]
    assert results["host.cores"]["verdict"] == "pass"
    end = lines[-1]
    assert end["verdict"] == "fail" and "still runs" in end["reason"], end
    assert "in host.clock" in end["reason"] and "process " in end["reason"]
    assert got.returncode == 2


# --- GPUs ---

def test_a_gpu_that_falls_off_the_bus_is_not_asked_again(gpu):
    results, _, status = run(2, standin="gpu=1,lost_after=5", checks=TWO)
    memory, stress = results["gpu.memory"], results["gpu.stress"]
    assert (memory["verdict"], memory["code"], status) == ("fail", "cuda_999", 2), memory
    assert gpus_of(memory)[0]["verdict"] == gpus_of(stress)[0]["verdict"] == "pass"
    lost = gpus_of(stress)[1]
    assert (lost["verdict"], lost["code"]) == ("fail", "cuda_999")
    assert lost["message"].startswith("not run: gpu 1 was lost in gpu.memory: "), lost
    assert lost["took_ms"] == 0 and lost["metrics"] == {}
    assert metrics(stress)["gpus"] == 1  # on how many it ran


def test_a_hang_on_one_gpu_leaves_the_others(gpu):
    results, _, status = run(2, standin="gpu=1,hang_after=5", checks=TWO)
    memory, stress = results["gpu.memory"], results["gpu.stress"]
    assert (memory["verdict"], memory["code"], status) == ("fail", "gpu_hang", 2), memory
    assert gpus_of(memory)[0]["verdict"] == gpus_of(stress)[0]["verdict"] == "pass"
    assert gpus_of(stress)[1]["code"] == "gpu_hang" and gpus_of(stress)[1]["took_ms"] == 0


def test_a_gpu_that_another_process_holds(gpu):
    results, _, status = run(2, standin="gpu=1,context=46", nvml="gpu=1,pid=4321", checks="gpu.stress")
    stress = results["gpu.stress"]
    assert (stress["verdict"], stress["code"], status) == ("fail", "cuda_46", 2), stress
    assert "gpu 1" in stress["message"] and "process 4321" in stress["message"]
    assert gpus_of(stress)[0]["verdict"] == "pass"


def test_a_driver_that_does_not_load(gpu):
    """Said before any check, in its own time, and each GPU check has that reason."""
    results, _, status = run(2, standin="hang_init=1", checks=TWO, more=["--all", "--load-limit", "1s"])
    for check in TWO.split(","):
        assert (results[check]["verdict"], results[check]["code"]) == ("fail", "load_timeout"), results[check]
        assert "also gpu 1" in results[check]["message"] and "NVRM" in results[check]["suggestion"]
    assert status == 2


def test_loading_is_told(gpu):
    p = start("gpu.stress", "gpu=1,context=46")
    loaded = until(p, "loaded")[-1]
    p.communicate(timeout=120)
    assert loaded["load_ms"] >= 0 and [g["gpu"] for g in loaded["gpus"]] == [0, 1]
    good, bad = loaded["gpus"]
    assert (good["pci"], good["pci_id"], good["model"]) == ("0000:01:00.0", "2330", "H100 SXM5 80GB")
    assert bad["code"] == "cuda_46" and "model" not in bad


# --- the node's surroundings ---

def test_neither_tmp_nor_home_is_needed(gpu):
    script = ("mount -t tmpfs -o size=4k none /tmp && head -c 100000 /dev/zero >/tmp/full 2>/dev/null; "
              "mount -t tmpfs -o ro none \"$HOME\" && ! touch \"$HOME/x\" 2>/dev/null && exec \"$@\"")
    home = "/var/tmp" if str(CUDA).startswith(str(pathlib.Path.home())) else str(pathlib.Path.home())
    env = {**os.environ, "HOME": home, "GPUPROV_STANDIN": "gpus=1", "GPUPROV_STANDIN_NVML": "gpus=1",
           "GPUPROV_LIBRARY_PATH": "/proc/self/fd/8"}
    own = f"exec 9<{CUDA}; exec 8<{STANDIN}; {script}"
    got = subprocess.run([*namespace(), "sh", "-c", NAMESPACE, "sh", "1", "sh", "-c", own, "sh",
                          "/proc/self/fd/9", "run", "--checks", "host.cores,gpu.stress"],
                         env=env, capture_output=True, text=True, timeout=120)
    lines = lines_of(got.stdout)
    assert lines and lines[-1]["type"] == "end", got
    assert {l["check"]: l["verdict"] for l in lines if l["type"] == "result"} == {
        "host.cores": "pass", "gpu.stress": "pass"}, got.stdout


# --- time, and where a failure ends a run ---

def test_the_first_certain_failure_ends_the_run():
    late = ["run", "--checks", "host.clock,host.cores", "--now-ms", int((time.time() - 900) * 1000)]
    results = {l["check"]: l for l in lines_of(agent(*late).stdout) if l["type"] == "result"}
    assert results["host.clock"]["code"] == "high_offset"
    cores = results["host.cores"]
    assert (cores["verdict"], cores["code"]) == ("skipped", "stopped"), cores
    assert "host.clock failed before" in cores["message"] and "--all" in cores["message"]
    for more in (["--all"], ["--floors", "host.clock"]):  # its caller judges that limit by another one
        results = {l["check"]: l for l in lines_of(agent(*late, *more).stdout) if l["type"] == "result"}
        assert results["host.clock"]["verdict"] == "fail" and results["host.cores"]["verdict"] == "pass"


def test_a_fault_ends_the_run_whoever_judges_limits():
    got = agent("run", "--checks", "host.clock,host.cores", "--floors", "host.clock", program=FAULTS,
                env={"GPUPROV_FAULT": "host.clock:0:0"})
    results = {l["check"]: l for l in lines_of(got.stdout) if l["type"] == "result"}
    assert results["host.clock"]["code"] == "overrun" and results["host.cores"]["code"] == "stopped"


@pytest.mark.long
def test_a_machine_that_stood_still_is_not_a_check_that_hangs():
    """All processes are stopped for longer than the check may take (6 s and the tolerance of 10 s), as in a snapshot or
    a move to another host."""
    p = subprocess.Popen([AGENT, "run", "--time", "60s", "--checks", "host.disk"], stdout=subprocess.PIPE, text=True)
    hello = until(p, "start", "host.disk")[0]
    every = [hello["pid"], *wait_for(lambda: workers_of(hello["pid"]))]
    for sig, pause in ((signal.SIGSTOP, 18), (signal.SIGCONT, 0)):
        for pid in every:
            os.kill(pid, sig)
        time.sleep(pause)
    got = next(l for l in lines_of(p.communicate(timeout=60)[0]) if l["type"] == "result")
    assert got["code"] in ("", "low_write"), got  # the pause counts as slow writing


def test_what_does_not_fit_the_time_is_said():
    got = agent("run", "--time", "4s", "--now-ms", int(time.time() * 1000))
    results = {l["check"]: l for l in lines_of(got.stdout) if l["type"] == "result"}
    disk = results["host.disk"]
    assert (disk["verdict"], disk["code"]) == ("skipped", "left_out")
    assert disk["message"] == "not run: takes 6 s, more than the rest of --time 4.0s"
    assert results["host.cores"]["verdict"] == results["host.memory"]["verdict"] == "pass"
    assert got.returncode == 0  # the core was run


def test_without_all_of_the_core_nothing_is_a_pass():
    got = agent("run", "--time", "2s", "--now-ms", int(time.time() * 1000))
    results = {l["check"]: l for l in lines_of(got.stdout) if l["type"] == "result"}
    assert results["host.cores"]["verdict"] == "pass" and results["host.memory"]["code"] == "left_out"
    assert lines_of(got.stdout)[-1]["verdict"] == "skipped" and got.returncode == 3


# --- for people ---

def test_text_says_each_figure_beside_its_limit_and_what_was_not_run():
    got = agent("run", "--text", "--time", "4s", "--now-ms", int(time.time() * 1000))
    lines = got.stdout.splitlines()
    assert any(l.startswith("pass") and "host.memory" in l for l in lines)
    assert any("wrong_words" in l and "0 words, at most 0" in l for l in lines), got.stdout
    assert any(l.startswith("skipped") and "host.disk" in l and "takes 6 s" in l for l in lines)
    assert lines[-1].startswith("pass: ") and "6 not run" in lines[-1], lines[-1]
    assert "e+" not in got.stdout and got.stderr == ""


def test_help_and_checks():
    helped = agent("--help")
    assert helped.returncode == 0 and "--time 1m" in helped.stdout and helped.stderr == ""
    assert agent("run", "--help").stdout == helped.stdout
    listed = agent("checks")
    assert listed.returncode == 0
    names = [l.split()[0] for l in listed.stdout.splitlines() if l and not l.startswith(" ")]
    assert names[0] == "check" and {"host.cores", "gpu.presence", "train.ddp"} <= set(names)
    assert {"gpu.memory", "gpu.stress"} <= set(names)  # all of the table's, though this program skips them
    assert all(len(l) <= 100 for l in listed.stdout.splitlines())
