# SPDX-License-Identifier: Apache-2.0
"""gpu.bandwidth: a sound GPU's figures, each rate that is too low, and copies that change data."""
import pytest

from agent_gpu import gpu_data, metrics, needed, one  # noqa: F401

pytestmark = pytest.mark.usefixtures("needed")

CLEAN = {"copy": 2950, "read": 2950, "h2d": 55, "d2h": 54}


def bandwidth(standin="", nodes=2, **kw):
    return one("gpu.bandwidth", gpus=nodes, standin=standin, **kw)


def test_a_sound_gpu_passes():
    got, end, status = bandwidth(nodes=8)
    assert (got["verdict"], end["verdict"], status) == ("pass", "pass", 0), got
    for figure, want in CLEAN.items():
        assert metrics(got)[figure] == pytest.approx(want, rel=0.025), figure
    for g in gpu_data(got).values():
        for figure in CLEAN:
            samples = g[f"{figure}_samples"]
            assert samples["least"] <= samples["median"] <= samples["most"] and samples["samples"] >= 9
        best = max(v for k, v in g.items() if k.startswith("copy_") and isinstance(v, float))
        assert g["copy_samples"]["median"] == best  # of all shapes the fastest


@pytest.mark.parametrize("knob,figure", [("slow_copy", "copy"), ("slow_h2d", "h2d"), ("slow_d2h", "d2h")])
def test_half_the_rate_of_the_model_fails(knob, figure):
    got, _, status = bandwidth(f"gpu=1,{knob}=50")
    assert (got["verdict"], got["code"], status) == ("fail", f"low_{figure}", 2), got["message"]
    assert got["message"].startswith("gpu 1:") and gpu_data(got)[0]["verdict"] == "pass"
    assert metrics(got)[figure] == pytest.approx(CLEAN[figure] / 2, rel=0.025)


def test_a_little_slow_is_degraded():
    got, _, status = bandwidth("gpu=1,slow_copy=92", nodes=2)  # 2714 GB/s; 90 % of 3180 is 2862
    assert (got["verdict"], got["code"], status) == ("degraded", "low_read", 1), got["message"]


def test_a_model_that_is_not_in_the_table_is_unrated():
    got, _, _ = bandwidth("profile=unknown", nodes=1)
    assert got["verdict"] == "pass"
    assert all(m.get("unrated") for m in got["metrics"] if m["name"] in CLEAN)


@pytest.mark.parametrize("knob,code,said", [
    ("sm=3,sm_bit=4", "copy_wrong", "bits 0x10"),
    ("h2d_bit=2", "h2d_wrong", "bits 0x4"),
    ("d2h_bit=5", "d2h_wrong", "bits 0x20"),
])
def test_wrong_data_is_named(knob, code, said):
    got, _, status = bandwidth(f"gpu=1,{knob}")
    assert (got["verdict"], got["code"], status) == ("fail", code, 2), got["message"]
    assert got["message"].startswith("gpu 1:") and said in got["message"]


@pytest.mark.parametrize("standin,verdict,code", [
    ("gpu=1,query=719", "fail", "cuda_719"),
    ("gpu=1,lost_after=30", "fail", "cuda_999"),
    ("gpu=1,pinned=2", "error", "cuda_2"),
    ("held_mib=60", "error", "cuda_2"),
    ("lazy=1", "error", "cuda"),
])
def test_what_goes_wrong_is_told(standin, verdict, code):
    got, _, status = bandwidth(standin)
    assert (got["verdict"], got["code"]) == (verdict, code), got["message"]
    assert status == {"fail": 2, "error": 3}[verdict]


def test_a_hang_is_given_up():
    got, _, status = bandwidth("hang_after=30", nodes=1, seconds=4)
    assert (got["verdict"], got["code"], status) == ("fail", "gpu_hang", 2)


@pytest.mark.long
@pytest.mark.parametrize("after", [171, 173, 177])
def test_a_gpu_that_hangs_in_its_turn_is_the_only_one_blamed(after):
    """GPUs take turns for the copies to and from the host; one that waits for its turn has no fault."""
    got, _, status = bandwidth(f"gpu=1,hang_after={after}", nodes=2, seconds=10)
    assert (got["verdict"], got["code"], status) == ("fail", "gpu_hang", 2) and got["message"].startswith("gpu 1:"), got
    assert gpu_data(got)[0]["verdict"] in ("pass", "error"), got
