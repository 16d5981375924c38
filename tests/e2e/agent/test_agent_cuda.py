# SPDX-License-Identifier: Apache-2.0
"""gpuprov-agent-cuda against stand-ins for NVIDIA's libraries: a good machine, and each bad one told
by name. The device files are real ones, in a mount namespace of the test's own."""
import os
import pathlib
import re
import shutil
import subprocess

import agent_gpu
import pytest
from agent_gpu import AGENT, HOST_AGENT, ROOT, metrics, skip_without_agent


@pytest.fixture(scope="module", autouse=True)
def needed():
    skip_without_agent()


def run(gpus=8, checks="gpu.presence,gpu.memory", more=("--all",), **others):
    return agent_gpu.run(gpus, checks=checks, more=more, **others)


def test_good():
    results, end, status = run()
    assert (end["verdict"], status) == ("pass", 0)
    presence, fill = results["gpu.presence"], results["gpu.memory"]
    assert presence["verdict"] == fill["verdict"] == "pass"
    assert metrics(presence)["gpus"] == 8
    assert [g["pci"] for g in presence["data"]["gpus"]] == [f"0000:0{i}:00.0" for i in range(1, 9)]
    assert presence["data"]["driver"] == "580.65.06"
    assert metrics(fill)["gpus"] == 8
    assert [g["verdict"] for g in fill["data"]["gpus"]] == ["pass"] * 8


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("code,name,advice", [
    (34, "STUB_LIBRARY", "stubs"),
    (35, "INSUFFICIENT_DRIVER", "newer driver"),
    (100, "NO_DEVICE", "kernel log"),
    (802, "SYSTEM_NOT_READY", "fabricmanager"),
    (803, "DRIVER_MISMATCH", "reboot"),
    (804, "COMPAT_NOT_SUPPORTED", "cuda-compat"),
    (999, "UNKNOWN", "nvidia-uvm"),
])
def test_driver_does_not_start(code, name, advice):
    results, end, status = run(standin=f"init={code}")
    assert (end["verdict"], status) == ("fail", 2)
    presence = results["gpu.presence"]
    assert (presence["verdict"], presence["code"]) == ("fail", f"cuda_{code}")
    assert name in presence["message"] and advice in presence["suggestion"]
    assert results["gpu.memory"]["verdict"] == "fail"


def test_every_start_error_has_its_own_advice():
    advice = {c: run(standin=f"init={c}", checks="gpu.presence")[0]["gpu.presence"]["suggestion"]
              for c in (34, 35, 100, 802, 803, 804, 999)}
    assert len(set(advice.values())) == len(advice)


@pytest.mark.long
def test_seven_of_eight():
    results, end, status = run(7, nodes=8, bought=8)
    presence = results["gpu.presence"]
    assert (end["verdict"], status) == ("fail", 2)
    assert (presence["verdict"], presence["code"]) == ("fail", "gpu_missing")
    assert "7 of 8" in presence["message"]
    # the one that is not there has a worker of its own, which says so
    assert results["gpu.memory"]["verdict"] == "fail"
    assert "101" in results["gpu.memory"]["message"]


def test_fewer_than_bought():
    results, _, status = run(4, bought=8)
    assert results["gpu.presence"]["code"] == "gpu_missing" and status == 2
    assert "4 of 8" in results["gpu.presence"]["message"]
    fill = results["gpu.memory"]  # what was there is sound, and is not what was bought
    assert (fill["verdict"], fill["code"], metrics(fill)["gpus"]) == ("fail", "gpu_missing", 4), fill


def test_hidden_by_the_environment_is_said():
    results, _, _ = run(2, nodes=8, bought=8, env={"CUDA_VISIBLE_DEVICES": "0,1", "GPUPROV_STANDIN_NVML": "gpus=8"})
    assert "CUDA_VISIBLE_DEVICES" in results["gpu.presence"]["suggestion"]


def test_nvml_of_another_version():
    results, _, _ = run(1, nvml="init=18", checks="gpu.presence")
    assert (results["gpu.presence"]["verdict"], results["gpu.presence"]["code"]) == ("fail", "nvml_mismatch")
    assert "reboot" in results["gpu.presence"]["suggestion"]


def test_nvml_sees_another_number():
    results, _, status = run(2, env={"GPUPROV_STANDIN_NVML": "gpus=3"}, checks="gpu.presence")
    assert (results["gpu.presence"]["verdict"], status) == ("degraded", 1)


def test_one_gpu_differs():
    results, _, _ = run(2, standin="differs=1", checks="gpu.presence")
    assert (results["gpu.presence"]["verdict"], results["gpu.presence"]["code"]) == ("degraded", "mixed")


def test_driver_too_old_for_this_build_is_skipped_and_not_ready():
    results, end, status = run(1, standin="driver=11080")
    fill = results["gpu.memory"]
    assert fill["verdict"] == "skipped" and re.search(r"agent needs driver >= \d+", fill["message"])
    assert end["verdict"] != "pass" and status == 3


@pytest.mark.parametrize("standin,check,code", [
    ("hang_init=1", "gpu.presence", "load_timeout"),
    ("hang_init=1", "gpu.memory", "load_timeout"),
    ("hang=1", "gpu.memory", "gpu_hang"),
])
def test_hang_is_ended_by_the_watchdog(standin, check, code):
    results, _, status = run(1, standin=standin, checks=check, more=["--load-limit", "2s"])
    assert (results[check]["verdict"], results[check]["code"], status) == ("fail", code, 2)


def test_the_toolkits_stub_is_told(tmp_path):
    homes = re.split(r"[: ]", os.environ.get("CUDA_HOMES", "")) + [os.environ.get("CUDA_HOME", ""),
                                                                 "/usr/local/cuda"]
    stubs = [p for h in homes if h for p in [pathlib.Path(h) / "lib64/stubs/libcuda.so"] if p.exists()]
    if not stubs:
        pytest.skip("no CUDA toolkit with a stub library is installed")
    shutil.copy(stubs[0], tmp_path / "libcuda.so.1")
    results, _, status = run(1, libraries=tmp_path)
    assert (results["gpu.presence"]["code"], status) == ("cuda_34", 2)


def test_no_driver_library(tmp_path):
    if subprocess.run("ldconfig -p | grep -q libcuda.so.1", shell=True).returncode == 0:
        pytest.skip("this machine has a driver's library")
    results, _, status = run(1, libraries=tmp_path)
    assert (results["gpu.presence"]["code"], status) == ("no_driver", 2)
    assert "libcuda.so.1" in results["gpu.presence"]["message"]


@pytest.mark.parametrize("agent", [AGENT, HOST_AGENT])
def test_bought_but_no_device_files(agent):
    results, _, status = run(nodes=0, agent=agent, checks="gpu.presence")
    assert (results["gpu.presence"]["verdict"], status) == ("fail", 2)
    assert results["gpu.presence"]["message"].startswith("no GPU device files")


@pytest.mark.parametrize("agent", [AGENT, HOST_AGENT])
def test_none_bought_none_there(agent):
    results, _, status = run(0, agent=agent, checks="gpu.presence")
    assert results["gpu.presence"]["verdict"] == "skipped" and status == 3  # nothing ran: could not tell


def test_static_agent_does_not_pass_a_gpu_machine():
    results, _, status = run(2, agent=HOST_AGENT)
    assert results["gpu.presence"]["code"] == "no_cuda_agent" and status == 3
    assert results["gpu.memory"]["verdict"] == "skipped"


def test_runs_on_an_old_glibc():
    done = subprocess.run(["sh", str(ROOT / "validate/agent/checkabi.sh"), "2.28", str(AGENT)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # and the check can fail
    assert subprocess.run(["sh", str(ROOT / "validate/agent/checkabi.sh"), "2.2", str(AGENT)],
                          capture_output=True).returncode == 1
