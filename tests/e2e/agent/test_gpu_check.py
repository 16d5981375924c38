# SPDX-License-Identifier: Apache-2.0
"""`make gpu-check`'s script: the agent on stand-in GPUs beside programs that print what PyTorch's measures,
nvbandwidth, nccl-tests and DCGM print. What is tested is the reading, the ratios and the page; figures of a
real GPU come from a real GPU only."""
import os
import pathlib
import re
import subprocess
import time

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


def environment(tmp_path, copy=2900, gpus=2, tools=True, **more):
    bin_ = tmp_path / "bin"
    bin_.mkdir(exist_ok=True)
    if tools:
        tool(bin_, "torch-python", PYTHON.format(copy=copy))
        tool(bin_, "nvbandwidth", NVBANDWIDTH)
    return {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "GPUPROV_LIBRARY_PATH": str(agent_gpu.STANDIN),
            "GPUPROV_STANDIN": f"gpus={gpus}", "GPUPROV_STANDIN_NVML": f"gpus={gpus}", "SETUP": ":", "KMSG": "",
            "GPUPROV_GPU_CHECK_PYTHON": "torch-python" if tools else "no-such-python", "GPUPROV_GPU_CHECK_ROUNDS": "1",
            "GPUPROV_GPU_CHECK_CHECKS": "gpu.presence,gpu.bandwidth,gpu.gemm", "B": str(agent_gpu.BUILD),
            "GPUPROV_GPU_CHECK_GANG": "nccl.values", **more}


def command(tmp_path, gpus=2, options=()):
    return [*agent_gpu.namespace(), "sh", "-c", agent_gpu.NAMESPACE, "sh", str(gpus), "sh", str(CHECK), *options,
            "--work", str(tmp_path / "work"), str(agent_gpu.AGENT), str(tmp_path / "out")]


def check(tmp_path, gpus=2, options=(), **how):
    done = subprocess.run(command(tmp_path, gpus, options), env=environment(tmp_path, gpus=gpus, **how),
                          capture_output=True, text=True, timeout=300)
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


@pytest.mark.long
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
    done, page = check(tmp_path, gpus=0)
    assert done.returncode == 1 and "nothing was checked" in done.stderr
    assert page is None


def test_a_container_with_another_gpus_device_file(tmp_path):
    """The driver counts the GPUs, not the numbers of their files."""
    done, page = check(tmp_path, gpus=1, SETUP="touch /dev/nvidia3; umount /dev/nvidia0; rm /dev/nvidia0")
    assert page and "1 GPU, driver" in page.read_text(), done


def test_one_gpu_runs_the_gangs_checks_between_two_processes(tmp_path):
    done, page = check(tmp_path, gpus=1, tools=False, GPUPROV_GPU_CHECK_GANG="nccl.values nccl.bandwidth")
    text = page.read_text()
    assert "| nccl.values | pass |" in text and "| nccl.bandwidth | pass |" in text, done
    assert "No figure of this section is a bandwidth" in text


def test_a_gang_on_one_gpu_that_fails_is_not_a_pass(tmp_path):
    """The suite itself passes: on one GPU it has no gang."""
    done, page = check(tmp_path, gpus=1, tools=False, GPUPROV_STANDIN_NCCL="rank=1,bit=20,sums=1")
    assert "| nccl.values | fail |" in page.read_text(), done
    assert done.returncode == 1 and "same.nccl.values: fail" in done.stderr and "full: pass" in done.stderr, done


@pytest.mark.long
def test_one_gpu_trains_between_two_processes(tmp_path):
    done, page = check(tmp_path, gpus=1, tools=False, GPUPROV_GPU_CHECK_GANG="train.ddp")
    assert "| train.ddp | pass |" in page.read_text(), done


def steps_run(done):
    return re.findall(r"gpu-check: (\S+) \(up to", done.stderr)


@pytest.mark.long
def test_a_call_that_its_limit_ends_is_gone_on_with(tmp_path):
    """Steps that do not fit are left to the next call; the page has what is there."""
    done, page = check(tmp_path, options=["--limit", "100"])
    assert done.returncode == 3 and "run again to go on" in done.stderr, done
    assert steps_run(done) == ["presence", "minute"] and "not run yet" in page.read_text()
    done, page = check(tmp_path, options=["--limit", "500"])
    assert done.returncode == 0 and steps_run(done)[:2] == ["presence", "full"], done
    assert "not run yet" not in page.read_text() and "pytorch-eager" in page.read_text()
    done, _ = check(tmp_path, options=["--limit", "500"])
    assert steps_run(done) == ["presence"]  # all was kept


@pytest.mark.long
def test_a_killed_call_is_gone_on_with(tmp_path):
    """SIGKILL in the middle of a step: what was done is kept, what was left running is ended, the step runs again."""
    tool(tmp_path, "agent", f'#!/bin/sh\ncase "$*" in *--all*) [ -e "{tmp_path}/second" ] || exec sleep 300;; esac\n'
                            f'exec {agent_gpu.AGENT} "$@"\n')
    argv = [str(tmp_path / "agent") if a == str(agent_gpu.AGENT) else a for a in command(tmp_path)]
    env = environment(tmp_path)
    first = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)
    for line in first.stderr:
        if "full (up to" in line:
            break
    running = tmp_path / "work" / "running"
    limit = time.monotonic() + 120
    while not running.exists() and time.monotonic() < limit:
        time.sleep(0.05)
    first.kill()
    first.wait()
    orphan = int(running.read_text().split()[0])
    os.kill(orphan, 0)  # it outlived the script
    (tmp_path / "second").touch()
    again = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0 and "ending full of the call before" in again.stderr, again
    assert steps_run(again)[:2] == ["presence", "full"]
    with pytest.raises(ProcessLookupError):
        os.killpg(orphan, 0)  # with all that it started


@pytest.mark.long
def test_a_step_that_no_call_has_time_for_ends(tmp_path):
    """Cut off twice although it was the first of its call: that is its result, and the rest runs."""
    tool(tmp_path, "agent", f'#!/bin/sh\ncase "$*" in *--all*) exec sleep 300;; esac\nexec {agent_gpu.AGENT} "$@"\n')
    argv = [str(tmp_path / "agent") if a == str(agent_gpu.AGENT) else a
            for a in command(tmp_path, options=["--limit", "25"])]
    calls = []
    while len(calls) < 10 and not (tmp_path / "work" / "full.done").exists():
        calls.append(subprocess.run(argv, env=environment(tmp_path), capture_output=True, text=True, timeout=100))
    assert {c.returncode for c in calls} == {3}, calls
    assert [s for c in calls for s in steps_run(c)].count("full") == 2
    assert "status 124" in (tmp_path / "work" / "full.done").read_text()
