# SPDX-License-Identifier: Apache-2.0
"""gpu.stress against the stand-ins: a load that holds, and each way in which it does not."""
import json
import math

import pytest

from agent_gpu import STANDIN, metrics, one
from agent_gpu import needed  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("needed")


def stress(standin="", nvml="", gpus=2, **more):
    return one("gpu.stress", gpus=gpus, standin=standin, nvml=nvml, **more)


def test_a_load_that_holds():
    result, end, status = stress()
    assert (result["verdict"], end["verdict"], status) == ("pass", "pass", 0), result
    m = metrics(result)
    assert 0.9 < m["decay"] < 1.1 and m["rate"] > 0 and m["gpus"] == 2 and m["dips"] == 0
    assert (m["clock"], m["temperature"], m["power"]) == (1980, 45, 300)
    gpus = result["data"]["gpus"]
    assert [g["gpu"] for g in gpus] == [0, 1]
    assert len({g["result"] for g in gpus}) == 1  # the same operands, the same bits
    for g in gpus:
        assert g["metrics"]["rate"] > 0 and g["products"] >= 16 and len(g["samples"]) >= 14
        times = [s["t"] for s in g["samples"]]
        assert times == sorted(times) and all(s["rate"] > 0 and s["clock"] == 1980 for s in g["samples"])


@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize("standin,nvml,verdict,code", [
    ("gpu=1,fade=40", "", "fail", "low_decay"),
    ("", "gpu=1,reasons=0x48,temperature=93", "fail", "hw_slowdown"),
    ("", "gpu=1,reasons=0x88", "fail", "hw_brake"),
    ("", "gpu=1,reasons=0x20", "degraded", "sw_thermal"),
    ("", "gpu=1,reasons=0x8", "fail", "hw_slowdown"),
    ("", "gpu=1,reasons=0x8,reasons_at=9", "pass", ""),  # once and alone: a change of clocks
    ("", "gpu=1,reasons=0x4", "pass", ""),  # at its power limit: that is what it was built for
    ("gpu=1,gemm_nan=1", "", "fail", "odd_values"),
    ("gpu=1,hang_after=20", "", "fail", "gpu_hang"),
    ("gpu=1,lost_after=20", "", "fail", "cuda_999"),
])
def test_a_load_that_does_not(standin, nvml, verdict, code):
    result, _, status = stress(standin, nvml)
    gpus = {g["gpu"]: g for g in result["data"]["gpus"]}
    assert gpus[0]["verdict"] == "pass", gpus[0]  # the other one went on
    assert (result["verdict"], result["code"]) == (verdict, code), result
    assert status == {"pass": 0, "degraded": 1, "fail": 2}[verdict]
    if code:
        assert gpus[1]["verdict"] == verdict and result["message"].startswith("gpu 1:"), result
    if "temperature=93" in nvml:
        assert "93 C" in result["message"] and metrics(result)["temperature"] == 93


def test_a_gpu_without_bf16_draws_its_power_with_fp16():
    result, _, _ = stress("profile=t4", gpus=1)
    assert (result["verdict"], result["data"]["gpus"][0]["type"]) == ("pass", "fp16"), result


def test_without_cublaslt_the_products_are_small_and_our_own():
    result, _, _ = stress("profile=t4", gpus=1, env={"GPUPROV_CUBLASLT": "off"})
    assert (result["verdict"], result["data"]["gpus"][0]["type"]) == ("pass", "fp16"), result


def test_without_nvml_it_cannot_tell(tmp_path):
    """Rates alone do not say whether the GPU was slowed down."""
    (tmp_path / "libcuda.so.1").symlink_to(STANDIN / "libcuda.so.1")
    result, _, status = stress(libraries=tmp_path, gpus=1)
    assert (result["verdict"], result["code"], status) == ("error", "no_nvml", 3), result
    assert metrics(result)["rate"] > 0


def test_eight_gpus_fit_one_line():
    result, _, _ = stress(gpus=8)
    assert len(json.dumps(result)) < 60 << 10
    assert [len(g["samples"]) > 10 for g in result["data"]["gpus"]] == [True] * 8
    assert all(math.isfinite(g["metrics"]["decay"]) for g in result["data"]["gpus"])
