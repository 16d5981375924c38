# SPDX-License-Identifier: Apache-2.0
"""gpu.sdc: exact products of sound GPUs, and each way to compute wrong: always, now and then, NaN, on one
multiprocessor, in one library's tile."""
import pytest

from agent_gpu import gpu_data, metrics, needed, one  # noqa: F401

pytestmark = pytest.mark.usefixtures("needed")

TYPES = ["fp32", "tf32", "bf16", "fp16", "fp8"]


def sdc(standin="", gpus=2, **kw):
    return one("gpu.sdc", gpus=gpus, standin=standin, **kw)


def test_sound_gpus_pass_and_agree():
    got, end, status = sdc(gpus=3)
    assert (got["verdict"], end["verdict"], status) == ("pass", "pass", 0), got
    assert metrics(got)["wrong_tiles"] == metrics(got)["unsteady_tiles"] == 0 and metrics(got)["gpus"] == 3
    gpus = gpu_data(got)
    for g in gpus.values():
        assert list(g["types"]) == TYPES and all(n >= 4 for n in g["types"].values())
        assert g["sms"] == g["sms_tested"] == 132 and g["wrong_sms"] == [] and g["rounds"] == 2
    for lists in ("answers", "random", "random_own"):
        assert len({str(g[lists]) for g in gpus.values()}) == 1, lists
    assert len(set(gpus[0]["random"].values())) == len(TYPES)


@pytest.mark.parametrize("bit", [0, 20, 30, 31])
def test_one_wrong_bit_in_every_product_is_named(bit):
    got, _, status = sdc(f"gpu=1,gemm_bit={bit}")
    assert (got["verdict"], got["code"], status) == ("fail", "sdc_wrong", 2), got["message"]
    assert got["message"].startswith("gpu 1: fp32:") and "element (64, 0)" in got["message"]
    assert f"bits 0x{1 << bit:x};" in got["message"] and "wrong when repeated" in got["message"]
    gpus = gpu_data(got)
    assert gpus[0]["verdict"] == "pass"
    assert {w["type"] for w in gpus[1]["wrong"]} == set(TYPES)
    for w in gpus[1]["wrong"]:
        if w["size"] == 32:  # of the library's products; the tile that holds the element
            assert w["tile"] == [2, 0] and int(w["got"], 16) ^ int(w["want"], 16) == 1 << bit


def test_a_fault_now_and_then_is_found():
    got, _, status = sdc("gpu=1,gemm_bit=3,gemm_every=2")
    assert (got["verdict"], got["code"], status) == ("fail", "sdc_wrong", 2), got["message"]
    assert "right when repeated" in got["message"]


def test_random_products_that_change_are_found():
    got, _, status = sdc("gpu=1,gemm_bit=20,gemm_every=7")
    assert (got["verdict"], status) == ("fail", 2), got["message"]
    assert got["code"] in ("sdc_unsteady", "sdc_wrong", "sdc_differs") and got["message"].startswith("gpu 1:")
    assert gpu_data(got)[0]["verdict"] == "pass"


def test_nan_is_a_difference():
    got, _, status = sdc("gpu=1,gemm_nan=1")
    assert (got["verdict"], got["code"], status) == ("fail", "sdc_wrong", 2), got["message"]
    assert "is 0xffffffff, expected" in got["message"]


def test_a_wrong_tile_of_the_library_is_named():
    got, _, status = sdc(env={"GPUPROV_STANDIN_CUBLASLT": "tile=1,gpu=0"})
    assert (got["verdict"], got["code"], status) == ("fail", "sdc_wrong", 2), got["message"]
    assert got["message"].startswith("gpu 0:") and "tile (0, 0)" in got["message"]
    assert "none of 132 multiprocessors" in got["message"]  # our own kernels on them are right


@pytest.mark.parametrize("bit", [1, 30])
def test_the_faulty_multiprocessor_is_named(bit):
    got, _, status = sdc(f"gpu=1,sm=17,sm_bit={bit}")
    assert (got["verdict"], status) == ("fail", 2), got["message"]
    assert "multiprocessor 17 of 132 computed wrong" in got["message"] and got["message"].startswith("gpu 1:")
    assert gpu_data(got)[1]["wrong_sms"] == [17] and gpu_data(got)[0]["wrong_sms"] == []


def test_without_cublaslt_our_own_kernels_are_held_to_the_answer():
    got, _, status = sdc(env={"GPUPROV_CUBLASLT": "off"}, gpus=1)
    assert (got["verdict"], status) == ("pass", 0), got["message"]
    assert gpu_data(got)[0]["by"].startswith("own kernels")
    got, _, status = sdc("gemm_bit=9", env={"GPUPROV_CUBLASLT": "off"}, gpus=1)
    assert (got["verdict"], got["code"], status) == ("fail", "sdc_wrong", 2), got["message"]


@pytest.mark.parametrize("standin,verdict,code", [
    ("gpu=1,query=719", "fail", "cuda_719"),
    ("gpu=1,lost_after=40", "fail", "cuda_999"),
    ("gpu=1,alloc=2", "error", "cuda_2"),
    ("lazy=1", "fail", "sdc_wrong"),
])
def test_what_goes_wrong_is_told(standin, verdict, code):
    got, _, status = sdc(standin)
    assert (got["verdict"], got["code"]) == (verdict, code), got["message"]
    assert status == {"fail": 2, "error": 3}[verdict]


def test_a_hang_is_given_up():
    got, _, status = sdc("hang_after=40", gpus=1, seconds=4)
    assert (got["verdict"], got["code"], status) == ("fail", "gpu_hang", 2), got["message"]
