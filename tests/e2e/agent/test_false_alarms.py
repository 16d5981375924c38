# SPDX-License-Identifier: Apache-2.0
"""Sound machines that look odd, each simulated by the stand-ins: none may be called degraded or bad, and what only
resembles them still is."""

import pytest

from agent_gpu import one, run
from agent_gpu import needed  # noqa: F401  (a fixture)
from test_agent_nccl import Ranks

pytestmark = pytest.mark.usefixtures("needed")

GUEST = "flags : fpu vme hypervisor lahf_lm\n"


def passes(got):
    assert (got["verdict"], got["code"]) == ("pass", ""), got


# --- PCIe ---

def test_a_t4_with_eight_lanes_by_design():
    passes(one("gpu.bandwidth", gpus=1, standin="profile=t4,slow_h2d=50,slow_d2h=50", nvml="pcie_width=8")[0])
    got, _, _ = one("gpu.bandwidth", gpus=1, standin="profile=t4,slow_h2d=25", nvml="pcie_width=4")
    assert (got["verdict"], got["code"]) == ("fail", "pcie_width"), got


def cpuinfo(folder, text):
    (folder / "cpuinfo").write_text(text)
    return {"GPUPROV_CPUINFO": str(folder / "cpuinfo")}


def test_a_gen5_gpu_on_a_gen4_host_in_a_guest(tmp_path):
    """The guest cannot see the slot: the link's generation is no fault, and its rates are those of generation 4."""
    slow = "slow_h2d=50,slow_d2h=50"
    got, _, _ = one("gpu.bandwidth", gpus=1, standin=slow, nvml="pcie_gen=4", env=cpuinfo(tmp_path, GUEST))
    passes(got)
    assert got["data"]["conditions"]["pcie"] == 0.5
    got, _, _ = one("gpu.bandwidth", gpus=1, standin="slow_h2d=30,slow_d2h=30", nvml="pcie_gen=4",
                    env=cpuinfo(tmp_path, GUEST))
    assert (got["verdict"], got["code"]) == ("fail", "low_h2d"), got
    got, _, _ = one("gpu.bandwidth", gpus=1, standin=slow, nvml="pcie_gen=4", env=cpuinfo(tmp_path, "flags : fpu\n"))
    assert got["verdict"] == "fail", got  # on bare metal the slot is known


def test_pairs_through_the_host_are_not_alike_both_ways():
    passes(one("gpu.p2p", gpus=2, standin="profile=t4,memory_mib=32,peer=0,slow_way=1,slow_peer=50")[0])
    got, _, _ = one("gpu.p2p", gpus=2, standin="profile=t4,memory_mib=32,slow_way=1,slow_peer=50")
    assert (got["verdict"], got["code"]) == ("degraded", "slow_pair"), got


# --- health ---

XIDS = "".join(f"4,{n},1000,-;NVRM: Xid (PCI:0000:02:00): {n}, pid=1, Row Remapper\n SUBSYSTEM=pci\n"
               for n in (63, 64, 94))


@pytest.mark.parametrize("check", ["gpu.health", "host.kernlog"])
def test_xids_from_before_the_reset_that_cured_them(check):
    passes(one(check, gpus=2, nvml="gpu=1,remap=1", kmsg="6,1,1,-;booted\n" + XIDS)[0])


@pytest.mark.parametrize("nvml", ["remap=1,remap_pending=1", "ecc=1", "remap_failed=1", "lacks=remap"])
def test_the_same_xids_without_a_cure(nvml):
    got, _, _ = one("gpu.health", gpus=2, nvml=f"gpu=1,{nvml}", kmsg=XIDS)
    assert got["verdict"] == "fail", got


@pytest.mark.parametrize("device, up, verdict", [
    (0x2321, 12, "pass"),     # H100 NVL with three bridges of four links
    (0x2331, 8, "pass"),      # H100 PCIe with two
    (0x2321, 11, "degraded"), # one link of a bridge is down
    (0x2330, 12, "fail"),     # SXM: all 18 are soldered
])
def test_bridges_that_join_some_of_the_links(device, up, verdict):
    got, _, _ = one("gpu.health", gpus=2, standin="profile=unknown" if device != 0x2330 else "",
                    nvml=f"device={device:#x},links=18,links_up={up},power_limit=400000")
    assert got["verdict"] == verdict, got


# --- exclusive-process mode ---

def test_exclusive_process_mode(tmp_path):
    """One process at a time on each GPU: every check still runs, also the one that opens all GPUs."""
    env = {"GPUPROV_STANDIN_EXCLUSIVE": str(tmp_path)}
    results, end, status = run(gpus=2, standin="memory_mib=32,exclusive=1", nvml="compute_mode=3", env=env, seconds=120,
                               checks="gpu.presence,gpu.memory,gpu.p2p,gpu.gemm")
    assert {k: (r["verdict"], r["message"]) for k, r in results.items() if r["verdict"] != "pass"} == {}
    assert (end["verdict"], status) == ("pass", 0)


# --- NCCL ---

@pytest.mark.parametrize("size", [4, 8])
def test_a_pcie_gang_on_two_sockets(tmp_path, size):
    nccl = f"pcie=1,far=40,far_from={size // 2}"
    for told in Ranks(tmp_path, [size], checks="nccl.bandwidth", standin="profile=unknown", nccl=nccl).results():
        passes(told["nccl.bandwidth"])


def test_a_slow_rank_of_a_pcie_gang_is_still_named(tmp_path):
    nccl = "pcie=1,far=80,far_from=2,rank=2,slow=15"
    for told in Ranks(tmp_path, [4], checks="nccl.bandwidth", standin="profile=unknown", nccl=nccl).results():
        speed = told["nccl.bandwidth"]
        assert (speed["verdict"], speed["code"], speed["data"]["culprits"]) == ("degraded", "uneven", [2]), speed


@pytest.mark.parametrize("error", [35, 36, 222])
def test_an_nccl_newer_than_the_driver_blames_no_node(tmp_path, error):
    for told in Ranks(tmp_path, [2], checks="nccl.values,nccl.bandwidth", nccl=f"newer={error}").results():
        for got in told.values():
            assert got["verdict"] == "error" and not got["data"].get("culprits"), got
            assert "newer CUDA than this driver" in got["message"], got


@pytest.mark.long
def test_sums_of_another_order_in_a_restored_training(tmp_path):
    """As NVLS adds: the same on all ranks, not the same each time. (20 steps are too few to learn.)"""
    for told in Ranks(tmp_path, [4], checks="train.ddp", nccl="unsteady=1", more=["--steps", "20"]).results():
        got = told["train.ddp"]
        assert got["code"] == "high_loss" and got["data"]["restored_plainly"], got
