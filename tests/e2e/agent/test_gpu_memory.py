# SPDX-License-Identifier: Apache-2.0
"""gpu.memory: sound memory passes, each fault has its verdict, and the wrong word is named."""
import pytest

from agent_gpu import gpu_data, metrics, needed, one  # noqa: F401

pytestmark = pytest.mark.usefixtures("needed")

PATTERNS = ["address", "random", "random_inverse", "inversions_zeros", "inversions_random",
            "inversions_stripes"]


def memory(standin="", nodes=2, seconds=600, **kw):
    """seconds: from a minute on they are time for all patterns on a busy machine; so little memory repeats few of them."""
    return one("gpu.memory", gpus=nodes, standin=f"memory_mib=16,{standin}", seconds=seconds, **kw)


def test_sound_memory_passes():
    got, end, status = memory(nodes=8)
    assert (got["verdict"], end["verdict"], status) == ("pass", "pass", 0), got
    assert metrics(got)["wrong_words"] == 0 and metrics(got)["gpus"] == 8
    for g in gpu_data(got).values():
        assert g["patterns"] == PATTERNS and g["patterns_left_out"] == []
        assert g["tested_gib"] > 0.9 * g["free_gib"] - 1 / 1024  # whole MiB
    # by the GPU's clock: what the stand-in's memory does, within its noise
    assert metrics(got)["rate"] == pytest.approx(2950, rel=0.025)


@pytest.mark.parametrize("stuck,again", [(1, "the same when read again"), (0, "right when read again")])
def test_wrong_bit_is_named(stuck, again):
    got, end, status = memory(f"gpu=1,flip=12345,bit=7,stuck={stuck}")
    assert (end["verdict"], status) == ("fail", 2)
    assert (got["verdict"], got["code"]) == ("fail", "memory_wrong")
    assert got["message"].startswith("gpu 1:") and again in got["message"] and "bits 0x80;" in got["message"]
    # once for each plain pattern; twice for each inversion, after its fill and after its way down, as a
    # word that was wrong is put right on the way up
    assert metrics(got)["wrong_words"] == 3 + 3 * 2
    gpus = gpu_data(got)
    assert gpus[0]["verdict"] == "pass" and gpus[1]["verdict"] == "fail"
    words = gpus[1]["wrong_words"]
    assert len({w["address"] for w in words}) == 1 and len(words) == 8
    assert [w["pattern"] for w in words][:5] == ["address", "random", "random_inverse", "inversions_zeros",
                                                 "inversions_zeros"]
    for w in words:
        assert int(w["got"], 16) ^ int(w["want"], 16) == 1 << 7 == int(w["bits"], 16)
        assert int(w["address"], 16) % 8 == 0
        assert w["again"] == (w["got"] if stuck else w["want"])


@pytest.mark.matrix(keep=5)
@pytest.mark.parametrize("standin,verdict,code", [
    ("gpu=1,context=46", "fail", "cuda_46"),
    ("gpu=1,query=214", "fail", "cuda_214"),
    ("gpu=1,query=719", "fail", "cuda_719"),
    ("gpu=0,alloc=999", "fail", "cuda_999"),
    ("gpu=1,lost_after=9", "fail", "cuda_999"),
    ("module=209", "error", "cuda_209"),
    ("held_mib=13", "error", "no_memory"),
    ("held_mib=15", "error", "cuda_2"),
    ("held_mib=8", "degraded", "low_tested"),
    ("lazy=1", "error", "cuda"),
    ("gpu=1,die=1", "error", "crashed"),
])
def test_what_goes_wrong_is_told(standin, verdict, code):
    got, _, status = memory(standin)
    assert (got["verdict"], got["code"]) == (verdict, code), got["message"]
    assert status == {"fail": 2, "error": 3, "degraded": 1}[verdict]
    if "gpu=1" in standin:
        assert got["message"].startswith("gpu 1:") and gpu_data(got)[0]["verdict"] == "pass"


def test_what_was_found_before_the_gpu_was_lost_is_said():
    got, _, _ = memory("flip=99,bit=3,lost_after=40", nodes=1)
    assert (got["verdict"], got["code"]) == ("fail", "memory_wrong")
    assert "bits 0x8;" in got["message"]


@pytest.mark.parametrize("fault", ["hang=1", "hang_after=20"])
def test_a_hang_is_given_up(fault):
    got, _, status = memory(fault, nodes=1, seconds=4)
    assert (got["verdict"], got["code"], status) == ("fail", "gpu_hang", 2)
