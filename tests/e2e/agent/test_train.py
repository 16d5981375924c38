# SPDX-License-Identifier: Apache-2.0
"""train.ddp in bf16 and fp16: sound ranks hold every condition, and each way to be wrong is named. Twenty
steps learn too little for fp32's loss limit, so a run in which all else held ends with `high_loss`."""
import json
import os
import subprocess

import pytest

from test_agent import BUILD, FAULTS, Gang, good, metrics
from test_agent_nccl import Ranks

CUDA_AGENT = BUILD / "agent" / "gpuprov-agent-cuda"
STANDIN = BUILD / "tests" / "standin"


def train(folder, size, fault="", precision="bf16,fp16", steps=20, **more):
    extra = ["--precision", precision, "--steps", steps, *more.pop("extra", [])]
    program = {"program": FAULTS} if fault else {}
    every = Gang(folder, size, checks="train.ddp", fault=fault, extra=extra, **program, **more).results()
    return [r["train.ddp"] for r in every]


def held(result):
    """Everything but the loss limit, which twenty steps do not reach."""
    return result["code"] == "high_loss" and {"bf16", "fp16"} <= set(result["data"])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_sound_ranks_hold_in_every_precision(tmp_path, size):
    every = train(tmp_path, size)
    for result in every:
        assert held(result), result
        for name in ("bf16", "fp16"):
            run = result["data"][name]
            assert run["losses"][0] > 4.0 and run["losses"][-1] < 3.5, run
            assert run["micro_batches"] == 2 and run["buckets"] > 1
        assert result["data"]["bf16"]["skipped_steps"] == 0 and result["data"]["bf16"]["loss_scale"] == 1
        fp16 = result["data"]["fp16"]
        # it starts too large on purpose: the first steps overflow, are left out, and halve it
        assert 1 <= fp16["skipped_steps"] <= 12 and fp16["loss_scale"] < 2**24
    runs = {json.dumps([r["data"][n]["losses"] for n in ("bf16", "fp16")]) for r in every}
    assert len(runs) == 1, "the ranks report different losses"


def test_a_whole_run_passes(tmp_path):
    for result in train(tmp_path, 2, steps=200):
        assert good(result), result
        assert {"bf16", "fp16"} <= set(result["data"]) and "timed" not in result["data"]


def test_the_host_does_fp32_unless_asked(tmp_path):
    result = train(tmp_path, 1, precision="fp32")[0]
    assert result["code"] == "high_loss" and "bf16" not in result["data"]


@pytest.mark.matrix(keep=5)
@pytest.mark.parametrize("size, fault, rank, code, why", [
    (2, "mx-flip:1:5", 1, "wrong_gradient", "host reference"),
    (4, "mx-flip:2:5", 2, "wrong_gradient", "third rank"),
    (2, "mx-sign:0:5", 0, "wrong_gradient", "host reference"),
    (4, "mx-sign:3:5", 3, "wrong_gradient", "third rank"),
    (2, "mx-once:1:8", 1, "wrong_gradient", "repeated, it has other bits"),
    (2, "mx-nan:0:6", 0, "bad_gradient", "not finite"),
    (4, "mx-nan:2:6", 2, "bad_gradient", "not finite"),
    (2, "mx-param:1:6", 1, "parameters_differ", "rank 1"),
    (4, "mx-param:0:6", 0, "parameters_differ", "rank 0"),
    (2, "mx-sum:0:6", 0, "wrong_sum", "rank 0"),
    (4, "mx-sum:3:6", 3, "wrong_sum", "rank 3"),
    (2, "mx-wire:1:6", 1, "wrong_sum", "not the sum of the ranks"),
    (2, "mx-restore:1:0", 1, "not_repeatable", "restored"),
])
@pytest.mark.parametrize("precision", ["bf16"])
def test_a_rank_that_computes_wrong_is_named(tmp_path, size, fault, rank, code, why, precision):
    for result in train(tmp_path, size, fault, precision):
        assert (result["verdict"], result["code"]) == ("fail", code), result
        assert result["data"]["culprits"] == [rank], result
        assert why in result["message"] and precision in result["message"], result


@pytest.mark.parametrize("size, fault, rank, code", [
    (1, "mx-nan:0:6", 0, "bad_gradient"),  # the scale falls until that is no excuse any more
    (2, "mx-nan:1:6", 1, "wrong_gradient"),  # an overflow does not look like that to its neighbour
    (2, "mx-flip:1:9", 1, "wrong_gradient"),
])
def test_loss_scaling_hides_no_fault(tmp_path, size, fault, rank, code):
    for result in train(tmp_path, size, fault, "fp16", steps=40):
        assert (result["verdict"], result["code"]) == ("fail", code), result
        assert result["data"]["culprits"] == [rank] and "fp16" in result["message"], result


def test_a_rank_that_dies_is_named_by_the_others(tmp_path):
    every = train(tmp_path, 3, "mx-die:1:6", "bf16")
    assert every[1]["verdict"] == "error"
    for rank in (0, 2):
        assert every[rank]["code"] == "rank_lost" and every[rank]["data"]["culprits"] == [1], every[rank]


def test_a_rank_that_hangs_is_named_by_the_others(tmp_path):
    every = train(tmp_path, 3, "mx-hang:2:5", "bf16", stall="2s", deadline="15s")
    for rank in (0, 1):
        assert every[rank]["code"] == "rank_lost" and every[rank]["data"]["culprits"] == [2], every[rank]


def test_an_unknown_precision_is_refused():
    got = subprocess.run([BUILD / "agent" / "gpuprov-agent", "rank", "--dir", "/nonexistent", "--rank", "0",
                          "--size", "1", "--bind", "127.0.0.1", "--check", "train.ddp", "--precision", "fp8"],
                         input="", capture_output=True, text=True, timeout=30)
    assert got.returncode == 3 and "is not fp32, bf16 or fp16" in got.stderr


# --- on a GPU: the stand-in driver, one rank (more need NCCL) ---

@pytest.fixture
def gpu(monkeypatch):
    if not CUDA_AGENT.exists():
        pytest.skip("this build has no gpuprov-agent-cuda: no CUDA toolkit was found")
    monkeypatch.setenv("GPUPROV_LIBRARY_PATH", str(STANDIN))
    monkeypatch.setenv("GPUPROV_STANDIN_NVML", "gpus=1")
    monkeypatch.setenv("GPUPROV_STANDIN", "gpus=1")
    return monkeypatch


def on_gpu(folder):
    extra = ["--gpu", "0", "--steps", 20]
    every = Gang(folder, 1, program=CUDA_AGENT, checks="train.ddp", extra=extra, deadline="120s").results()
    return every[0]["train.ddp"]


@pytest.mark.long
def test_a_gpu_trains_in_every_precision(tmp_path, gpu):
    result = on_gpu(tmp_path)
    assert held(result), result
    data, figures = result["data"], metrics(result)
    assert data["device"] == "cuda"
    # the fp32 model has the host's bits, whatever computed it
    (tmp_path / "host").mkdir()
    host = train(tmp_path / "host", 1, precision="fp32")[0]
    assert data["parameters_hash"] == host["data"]["parameters_hash"]
    assert 0 < figures["reference"] < 0.2, figures
    assert figures["tokens_per_s"] > 0 and figures["mfu"] > 0
    assert data["timed"]["type"] == "bf16" and len(data["step_ms_0_10_50_90_100"]) == 5


@pytest.mark.long
@pytest.mark.parametrize("library, driver, code, run", [
    ("tile=1", "", "beyond_reference", "bf16"),            # a wrong tile in every product
    ("nan=1", "", "bad_gradient", "bf16"),
    ("", "gemm_bit=12,gemm_every=101", "wrong_gradient", ""),  # now and then a bit of one element
])
def test_a_gpu_whose_products_are_wrong_is_named(tmp_path, gpu, library, driver, code, run):
    gpu.setenv("GPUPROV_STANDIN_CUBLASLT", library)
    gpu.setenv("GPUPROV_STANDIN", f"gpus=1,{driver}")
    result = on_gpu(tmp_path)
    assert (result["verdict"], result["code"]) == ("fail", code), result
    assert result["data"]["culprits"] == [0] and run in result["message"], result


def test_the_timed_model_alone(gpu):
    env = {**os.environ}
    got = subprocess.run([CUDA_AGENT, "train", "--gpu", "0", "--json"], env=env, capture_output=True, text=True,
                         timeout=120)
    result = json.loads(got.stdout)
    assert got.returncode == 0 and result["verdict"] == "pass", got
    assert metrics(result)["tokens_per_s"] > 0 and result["data"]["timed"]["batch"] > 0
    refused = subprocess.run([CUDA_AGENT, "train", "--precision", "fp64"], env=env, capture_output=True, text=True)
    assert refused.returncode == 3 and "neither bf16 nor fp16" in refused.stderr


# --- over NCCL's stand-in: a rank for each GPU ---

def gang_of_gpus(folder, size, driver="", nccl=""):
    gang = Ranks(folder, [size], checks="train.ddp", standin=driver, nccl=nccl, more=["--steps", "20"])
    return [r["train.ddp"] for r in gang.results()]


def test_gpus_train_together(tmp_path, gpu):
    every = gang_of_gpus(tmp_path, 2)
    for result in every:
        assert held(result), result
        figures = metrics(result)
        assert 0 < figures["reference"] < 0.2 and 0 <= figures["overlap"] <= 1, figures
        assert len(result["data"]["tokens_per_s_per_rank"]) == 2
    assert len({r["data"]["parameters_hash"] for r in every}) == 1


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("size, rank, bit", [(2, 0, 13), (2, 1, 31), (4, 2, 13), (4, 3, 31)])
def test_a_gpu_of_a_gang_that_computes_wrong_is_named(tmp_path, gpu, size, rank, bit):
    """A mantissa bit, and the sign."""
    for result in gang_of_gpus(tmp_path, size, driver=f"gpu={rank},gemm_bit={bit}"):
        assert (result["verdict"], result["code"]) == ("fail", "wrong_gradient"), result
        assert result["data"]["culprits"] == [rank], result


def test_a_sum_that_nccl_spoils_is_found(tmp_path, gpu):
    """Not in the first collectives: those of the fp32 model are sound, and the next run finds it."""
    for result in gang_of_gpus(tmp_path, 2, nccl="rank=1,bit=20,sums=1,from=60"):
        assert result["verdict"] == "fail" and result["code"] in ("wrong_sum", "sum_disagrees"), result
