# SPDX-License-Identifier: Apache-2.0
"""framework.torch by the agent's ranks on loopback: each with a Python of its own that has a stand-in for torch."""
import os
import subprocess

import pytest
import torch_standin
from test_agent import AGENT, Gang, agent, lines_of

CHECK = "framework.torch"


class TorchGang(Gang):
    """Rank N uses the environment pyN."""

    def __init__(self, folder, size, asked=(), gpus=False, deadline="60s", **torch):
        self.pythons = [make_python(folder / ("py%d" % n), asked[n] if n < len(asked) else {}, **torch)
                        for n in range(size)]
        self.gpus = gpus
        super().__init__(folder, size, checks=CHECK, deadline=deadline)

    def start(self, rank, addr, token=None):
        keep = self.args
        self.args = [*keep, "--python", self.pythons[rank], *(["--gpu", 0] if self.gpus else [])]
        super().start(rank, addr, token)
        self.args = keep

    def torch(self):
        return [r[CHECK] for r in self.results()]


def make_python(folder, asked, **torch):
    """An interpreter whose packages are only these; asked None: without torch."""
    subprocess.run(["python3", "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    if asked is not None:
        torch = {**torch, **asked.get("torch", {})}
        torch_standin.put(packages, **torch, **{k: v for k, v in asked.items() if k != "torch"})
    return folder / "bin/python"


def test_ranks_train_one_step(tmp_path):
    every = TorchGang(tmp_path, 3).torch()
    assert [r["verdict"] for r in every] == ["pass"] * 3, every
    data = every[1]["data"]
    assert data["torch"] == "2.9.1+cpu" and data["cuda"] == "none" and data["backend"] == "gloo"
    assert data["torchrun"] == "torchrun --nnodes=3 --nproc_per_node=1 --node_rank=1"
    assert data["python"].endswith("py1/bin/python")
    assert {m["name"] for m in every[0]["metrics"]} == {"start_time", "step_time"}
    assert "one step of training over 3 ranks by gloo left the same weights" in every[0]["message"]
    assert not running(tmp_path)


def test_one_rank_alone(tmp_path):
    (one,) = TorchGang(tmp_path, 1).torch()
    assert one["verdict"] == "pass" and "over 1 rank by gloo" in one["message"], one


def running(folder):
    """Processes of these environments."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                found += [pid] if os.fsencode(folder) + b"/py" in f.read() else []
        except OSError:
            pass
    return found


# fault of rank 1 of 2, code there, words of its message, whether it alone is to blame
FAULTS = [
    ({"fault": "import"}, "import", "import torch: ValueError: libcublas.so.*[0-9] not found", True),
    ({"fault": "crash"}, "crashed", "Python was killed by signal 11 in 'import'", True),
    ({"fault": "chatter"}, "strange_report", "its report has an unexpected line 'stage done'", True),
    ({"fault": "wrong_product"}, "wrong_result", "a product of integers in float32 is wrong at 3,5", True),
    ({"fault": "no_join"}, "training", "RuntimeError: connect() timed out. [127.0.0.1]:28588", True),
    ({"fault": "die_forward"}, "crashed", "Python was killed by signal 9 in 'forward'", True),
    ({"fault": "raise_backward"}, "training", "RuntimeError: CUDA error: an illegal memory access", None),
    ({"fault": "no_step"}, "no_step", "left the weights as they were", True),
    ({"fault": "wrong_sum"}, "wrong_sum", "a sum over all ranks is wrong: 4.0 instead of 3", False),
    ({"fault": "own_weights"}, "different_weights", "have different weights, without a majority", False),
]


@pytest.mark.parametrize("asked, code, words, alone", FAULTS, ids=[f[0]["fault"] for f in FAULTS])
def test_a_fault_has_its_rank(tmp_path, asked, code, words, alone):
    zero, one = TorchGang(tmp_path, 2, [{}, asked], deadline="20s").torch()
    assert zero["verdict"] == one["verdict"] == "fail", (zero, one)
    assert one["code"] == code and words in one["message"], one
    if alone:
        assert one["data"]["culprits"] == zero["data"]["culprits"] == [1], (zero, one)
        assert zero["code"] == "rank_lost" and words in zero["message"], zero
    if alone is False:
        assert "culprits" not in one["data"], one
    assert not running(tmp_path)


@pytest.mark.parametrize("asked, stage", [("hang_import", "import"), ("hang_forward", "forward")])
def test_a_rank_that_hangs_is_killed_and_named(tmp_path, asked, stage):
    zero, one = TorchGang(tmp_path, 2, [{}, {"fault": asked}], deadline="14s").torch()
    assert one["verdict"] == "fail" and one["code"] == "hang", (zero, one)
    assert "Python did not come beyond '%s' within" % stage in one["message"], one
    assert zero["code"] == "rank_lost" and zero["data"]["culprits"] == [1], zero
    assert not running(tmp_path)


def test_different_weights_have_a_minority(tmp_path):
    every = TorchGang(tmp_path, 3, [{}, {}, {"fault": "own_gradient"}]).torch()
    assert {r["code"] for r in every} == {"different_weights"}, every
    assert all(r["data"]["culprits"] == [2] for r in every), every


def test_torch_is_absent(tmp_path):
    every = TorchGang(tmp_path, 2, [None, None]).torch()
    assert [r["verdict"] for r in every] == ["skipped"] * 2 and every[0]["code"] == "no_torch", every
    assert "py0/bin/python has no torch" in every[0]["message"], every


def test_torch_is_absent_on_one(tmp_path):
    zero, one = TorchGang(tmp_path, 2, [{}, None]).torch()
    assert one["verdict"] == "fail" and one["code"] == "absent" and one["data"]["culprits"] == [1], one
    assert zero["data"]["culprits"] == [1], zero


def test_versions_differ(tmp_path):
    every = TorchGang(tmp_path, 2, [{}, {"torch": {"version": "2.8.0+cpu"}}]).torch()
    assert {(r["verdict"], r["code"]) for r in every} == {("degraded", "versions_differ")}, every
    assert "rank 0 has torch 2.9.1+cpu and rank 1 torch 2.8.0+cpu" in every[0]["message"]


GPU = {"gpus": 1, "arch": ["sm_80", "sm_90"], "torch": {"version": "2.9.1+cu128", "cuda": "12.8"}}


def with_gpu(**other):
    return [{**GPU, **other}]


# A node that has GPUs: rank 0 of 1 with --gpu
@pytest.mark.parametrize("asked, code, words", [
    (with_gpu(), "", "torch 2.9.1+cu128 for CUDA 12.8: products exact"),
    (with_gpu(capability=[8, 6]), "", "products exact"),
    (with_gpu(arch=["sm_90", "compute_90"], capability=[12, 0]), "", "products exact"),
    (with_gpu(capability=[7, 0]), "no_arch", "has code for sm_80 sm_90, and this GPU (NVIDIA Stand-in) is sm_70"),
    (with_gpu(capability=[12, 0]), "no_arch", "is sm_120"),
    (with_gpu(arch=["sm_90a"], capability=[9, 1]), "no_arch", "is sm_91"),
    (with_gpu(gpus=0), "no_cuda", "cannot use the GPUs: RuntimeError: The NVIDIA driver on your system is too old"),
    ([{"gpus": 0}], "cpu_build", "torch 2.9.1+cpu is the build for CPUs, and this node has GPUs"),
])
def test_a_node_with_a_gpu(tmp_path, asked, code, words):
    (one,) = TorchGang(tmp_path, 1, asked, gpus=True).torch()
    assert one["code"] == code and words in one["message"], one
    assert one["verdict"] == ("fail" if code else "pass")


def test_a_build_for_cuda_without_a_gpu_computes_on_the_cpu(tmp_path):
    (one,) = TorchGang(tmp_path, 1, [{"torch": {"version": "2.9.1+cu128", "cuda": "12.8"}}]).torch()
    assert one["verdict"] == "pass" and "by gloo left the same weights; no GPU took part" in one["message"], one


def test_no_such_interpreter(tmp_path):
    result = Gang(tmp_path, 1, checks=CHECK, extra=["--python", tmp_path / "py/bin/python"]).results()[0][CHECK]
    assert result["verdict"] == "skipped" and "there is no " in result["message"], result


def test_it_runs_on_one_machine_only_by_name():
    lines = lines_of(agent("run", "--time", "1m", "--checks", "host.limits", program=AGENT).stdout)
    assert not any(l.get("check") == CHECK for l in lines), lines
