# SPDX-License-Identifier: Apache-2.0
"""gpu.p2p: sound links, slow ones, detours, and links that change data: looked at twice, then named."""
import pytest

from agent_gpu import metrics, needed, one  # noqa: F401

pytestmark = pytest.mark.usefixtures("needed")


def p2p(standin="", nodes=3, **kw):
    return one("gpu.p2p", gpus=nodes, standin=f"memory_mib=32,{standin}", **kw)


def test_sound_links_pass():
    got, end, status = p2p(nodes=8)
    assert (got["verdict"], end["verdict"], status) == ("pass", "pass", 0), got
    assert metrics(got)["gpus"] == 8 and metrics(got)["wrong"] == 0
    matrix = got["data"]["matrix"]
    rates = {(i, j): matrix[i][j] for i in range(8) for j in range(8) if i != j}
    assert all(matrix[i][i] is None for i in range(8)) and got["data"]["not_direct"] == []
    assert all(r == pytest.approx(390, rel=0.025) for r in rates.values())
    assert rates[tuple(got["data"]["best_pair"])] == max(rates.values()) == metrics(got)["best"]
    assert rates[tuple(got["data"]["worst_pair"])] == min(rates.values()) == metrics(got)["worst"]


def test_one_gpu_has_no_pair():
    got, end, status = p2p(nodes=1)
    assert (got["verdict"], got["code"], status) == ("skipped", "one_gpu", 3)
    assert end["verdict"] != "pass"


def test_a_slow_gpu_is_named():
    got, _, status = p2p("gpu=2,slow_peer=50")
    assert (got["verdict"], got["code"], status) == ("fail", "slow_pair", 2), got["message"]
    assert "gpu 2" in got["message"] and 2 in got["data"]["worst_pair"]


def test_slow_one_way_is_told_whatever_the_model():
    got, _, status = p2p("profile=unknown,slow_way=12,slow_peer=50", nodes=3)
    assert (got["verdict"], got["code"], status) == ("degraded", "slow_pair", 1), got["message"]
    assert got["message"].startswith("gpu 1 to gpu 2:") and got["data"]["worst_pair"] == [1, 2]


def test_no_direct_access_fails_where_the_model_has_nvlink():
    got, _, status = p2p("peer=0")
    assert (got["verdict"], got["code"], status) == ("fail", "p2p_not_direct", 2), got["message"]
    assert len(got["data"]["not_direct"]) == 6


def test_no_direct_access_is_no_fault_of_a_pcie_card():
    got, _, status = p2p("profile=t4,peer=0")
    assert (got["verdict"], status) == ("pass", 0), got["message"]
    assert len(got["data"]["not_direct"]) == 6


def test_a_link_that_changes_data_is_condemned_after_a_second_look():
    got, _, status = p2p("gpu=2,peer_bit=3")
    assert (got["verdict"], got["code"], status) == ("fail", "p2p_wrong", 2), got["message"]
    assert "gpu 2" in got["message"] and "bits 0x8" in got["message"] and "the link between" in got["message"]
    assert metrics(got)["wrong"] == 4  # one word each way, to and from both others


def test_what_does_not_come_back_condemns_nobody():
    got, _, status = p2p("gpu=1,peer_bit=3,peer_times=6", nodes=2)
    assert (got["verdict"], got["code"], status) == ("degraded", "p2p_once", 1), got["message"]
    assert metrics(got)["wrong"] == 0


@pytest.mark.parametrize("standin,verdict,code", [
    ("gpu=1,context=46", "fail", "cuda_46"),
    ("gpu=1,lost_after=12", "fail", "cuda_999"),
    ("held_mib=32", "error", "cuda_2"),
    ("lazy=1", "error", "cuda"),
])
def test_what_goes_wrong_is_told(standin, verdict, code):
    got, _, status = p2p(standin)
    assert (got["verdict"], got["code"]) == (verdict, code), got["message"]
    assert status == {"fail": 2, "error": 3}[verdict]


def test_a_hang_is_given_up():
    got, _, status = p2p("gpu=1,hang_after=12", nodes=2, seconds=4)
    assert (got["verdict"], got["code"], status) == ("fail", "gpu_hang", 2)
    assert "gpu 1" in got["message"]


def test_more_gpus_than_one_has_room_for_as_peers():
    # without NVSwitch a GPU takes eight peers at a time; access is given back after each pair
    got, _, status = p2p("profile=t4", nodes=10)
    assert (got["verdict"], status) == ("pass", 0), got["message"]
    assert not got["data"]["not_direct"]
