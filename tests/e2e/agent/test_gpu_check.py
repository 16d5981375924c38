# SPDX-License-Identifier: Apache-2.0
"""`make gpu-check`'s script: the agent on stand-in GPUs beside programs that print what PyTorch's measures,
nvbandwidth, nccl-tests and DCGM print. What is tested is the reading, the ratios and the page; figures of a
real GPU come from a real GPU only."""
import os
import pathlib
import re
import subprocess

import pytest

import agent_gpu
from agent_gpu import needed  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("needed")
CHECK = pathlib.Path(__file__).resolve().parents[2] / "gpu" / "check.sh"

PYTHON = """#!/bin/sh
case "$*" in
*torch_rates.py*) echo "gpu.bandwidth copy {copy} pytorch"; echo "gpu.gemm bf16 700 pytorch" ;;
*train_torch.py*) echo '{{"mode": "eager", "tokens_per_s": 10}}' ;;
*"import torch"*) exit 0 ;;
*) exit 1 ;;
esac
"""
NVBANDWIDTH = """#!/bin/sh
echo 'Running host_to_device_memcpy_ce.'
echo 'SUM host_to_device_memcpy_ce 55.00'
echo 'SUM device_to_host_memcpy_ce 54.00'
"""


def tool(folder, name, text):
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def check(tmp_path, copy=2900, gpus=2, tools=True):
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    if tools:
        tool(bin_, "torch-python", PYTHON.format(copy=copy))
        tool(bin_, "nvbandwidth", NVBANDWIDTH)
    env = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "GPUPROV_LIBRARY_PATH": str(agent_gpu.STANDIN),
           "GPUPROV_STANDIN": f"gpus={gpus}", "GPUPROV_STANDIN_NVML": f"gpus={gpus}", "SETUP": ":", "KMSG": "",
           "GPUPROV_GPU_CHECK_PYTHON": "torch-python" if tools else "no-such-python", "GPUPROV_GPU_CHECK_ROUNDS": "1",
           "GPUPROV_GPU_CHECK_CHECKS": "gpu.presence,gpu.bandwidth,gpu.gemm"}
    done = subprocess.run([*agent_gpu.namespace(), "sh", "-c", agent_gpu.NAMESPACE, "sh", str(gpus), "sh", str(CHECK),
                           str(agent_gpu.AGENT), str(tmp_path / "out")], env=env, capture_output=True, text=True, timeout=300)
    pages = list((tmp_path / "out").glob("*.md"))
    return done, pages[0] if pages else None


def test_the_page_and_its_ratios(tmp_path):
    done, page = check(tmp_path)
    assert done.returncode == 0, done
    assert page.name == "NVIDIA-H100-80GB-HBM3.md"
    text = page.read_text()
    assert "2 GPUs, driver 580.65.06, CUDA 13.0" in text and "| gpu.gemm | pass |" in text
    row = re.search(r"\| gpu.gemm bf16 \| (\S+) \| 700 \| pytorch \| (\S+) \| - \|", text)
    assert row and float(row[2]) == pytest.approx(float(row[1]) / 700, abs=2e-3) and float(row[1]) == pytest.approx(770, rel=0.03)
    row = re.search(r"\| gpu.bandwidth copy \| (\S+) \| 2900 \| pytorch \| (\S+) \| 0.98 \|", text)
    assert row and float(row[2]) == pytest.approx(float(row[1]) / 2900, abs=2e-3)
    assert "| gpu.bandwidth h2d |" in text and "| nvbandwidth |" in text and "pytorch-eager" in text
    assert "* nccl-tests (all_reduce_perf)" in text and "* DCGM (dcgmi diag)" in text  # not here, and said


def test_a_ratio_below_its_goal_fails(tmp_path):
    done, page = check(tmp_path, copy=9999)
    assert done.returncode == 1 and page
    assert "below its goal: gpu.bandwidth copy" in done.stderr


def test_the_best_of_cublaslt_does_the_work_of_gpu_gemm():
    """Its figures are of the same product: on the same stand-in, the same rates."""
    best = agent_gpu.BUILD / "tests" / "gpu" / "cublaslt_best"
    if not best.exists():
        pytest.skip("not built: no cublasLt.h, or not asked for (make gpu-programs)")
    ours = agent_gpu.metrics(agent_gpu.one("gpu.gemm", gpus=1)[0])
    done = subprocess.run([str(best), "128"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "LD_LIBRARY_PATH": str(agent_gpu.STANDIN), "GPUPROV_STANDIN": "gpus=1"})
    other = {line.split()[1]: float(line.split()[2]) for line in done.stdout.splitlines()}
    assert {"fp32", "tf32", "bf16", "fp16"} <= set(other), done
    for metric, rate in other.items():
        assert rate == pytest.approx(ours[metric], rel=0.03), metric


def test_without_other_tools_it_says_so(tmp_path):
    _, page = check(tmp_path, tools=False, gpus=1)
    assert page and "* PyTorch" in page.read_text()


def test_without_a_gpu_nothing_was_checked(tmp_path):
    done = subprocess.run([*agent_gpu.namespace(), "sh", "-c", agent_gpu.NAMESPACE, "sh", "0", "sh", str(CHECK),
                           str(agent_gpu.AGENT), str(tmp_path / "out")], env={**os.environ, "SETUP": ":", "KMSG": ""},
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "nothing was checked" in done.stderr
    assert not (tmp_path / "out").exists()
