# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/first_minutes.sh, the calls for the first real GPU, on stand-ins: each ends under its limit, is cut in
the middle and goes on."""
import os
import pathlib
import re
import subprocess
import time

import pytest

import agent_gpu
from agent_gpu import needed  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("needed")
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "gpu" / "first_minutes.sh"


def argv(tmp_path, call, limit, agent=agent_gpu.AGENT, gpus=1):
    return [*agent_gpu.namespace(), "sh", "-c", agent_gpu.NAMESPACE, "sh", str(gpus), "sh", str(SCRIPT), call, "--limit",
            str(limit), "--work", str(tmp_path / "work"), str(agent), str(tmp_path / "out")]


def environment(**more):
    return {**os.environ, "GPUPROV_LIBRARY_PATH": str(agent_gpu.STANDIN), "GPUPROV_STANDIN": "gpus=1",
            "GPUPROV_STANDIN_NVML": "gpus=1", "SETUP": ":", "KMSG": "", "B": str(agent_gpu.BUILD),
            "GPUPROV_GPU_CHECK_PYTHON": "no-such-python", "GPUPROV_BESIDE_S": "1", "GPUPROV_KILL_S": "0.2",
            "GPUPROV_GPU_CHECK_ROUNDS": "1", "GPUPROV_GPU_CHECK_GANG": "nccl.values",
            "GPUPROV_GPU_CHECK_CHECKS": "gpu.presence,gpu.bandwidth,gpu.gemm", **more}


def call(tmp_path, letter, limit=580, **how):
    return subprocess.run(argv(tmp_path, letter, limit, **how), env=environment(), capture_output=True, text=True,
                          timeout=600)


def steps_run(text):
    return re.findall(r"gpu-check: (\S+) \(up to", text)


@pytest.fixture
def agent(tmp_path):
    """The agent, with a suite of two quick checks."""
    path = tmp_path / "agent"
    path.write_text(f'''#!/bin/sh
case "$*" in *"--all --time"*) exec {agent_gpu.AGENT} "$@" --checks gpu.presence,gpu.gemm;;
*"--checks train.ddp"*) exec {agent_gpu.AGENT} run --json --time 1m --checks nccl.values;; esac
exec {agent_gpu.AGENT} "$@"
''')
    path.chmod(0o755)
    return path


@pytest.mark.long
@pytest.mark.parametrize("letter, steps", [
    ("A", ["facts", "device", "gemm", "train_kernels", "gemm_own", "suite"]),
    ("D", ["suite", "busy"]),
    ("E", ["two_tenants", "hidden", "killed_rank", "two_agents"])])
def test_each_call_ends_and_is_kept(tmp_path, agent, letter, steps):
    done = call(tmp_path, letter, agent=agent)
    assert [s.split(".")[1] for s in steps_run(done.stderr)] == steps, done.stderr
    assert done.returncode in (0, 1), done.stderr  # 1: a stand-in has no other process on its GPU
    again = call(tmp_path, letter, agent=agent)
    assert steps_run(again.stderr) == [], again.stderr


def test_same_gpu_call_names_what_is_not_here(tmp_path, agent):
    done = call(tmp_path, "B", agent=agent)
    assert steps_run(done.stderr)[:2] == ["B.nccl.values", "B.nccl.bandwidth"], done.stderr
    assert "compute-sanitizer is not installed here" in done.stderr or done.returncode == 0


def test_check_call_passes_its_limit_on(tmp_path):
    done = call(tmp_path, "C", limit=100)
    assert done.returncode == 3 and "run again to go on" in done.stderr, done.stderr
    assert list((tmp_path / "out").glob("*.md"))


@pytest.mark.long
def test_a_call_that_is_killed_goes_on(tmp_path, agent):
    first = subprocess.Popen(argv(tmp_path, "A", 580, agent), env=environment(), stderr=subprocess.PIPE, text=True)
    for line in first.stderr:
        if "A.gemm (up to" in line:
            break
    first.kill()
    first.wait()
    time.sleep(0.2)
    done = call(tmp_path, "A", agent=agent)
    assert steps_run(done.stderr)[0] in ("A.gemm", "A.train_kernels"), done.stderr  # not what was done before
    assert (tmp_path / "work" / "A.suite.done").exists()


def test_an_unknown_call_is_refused(tmp_path):
    done = call(tmp_path, "F")
    assert done.returncode == 2 and "A, B, C, D or E" in done.stderr
