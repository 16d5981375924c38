# SPDX-License-Identifier: Apache-2.0
"""gpu.health, and what the counters around every GPU check say: each way in which NVML or the kernel log
speaks against a GPU is told by verdict, code and GPU, and a sound machine passes."""
import pytest

import agent_gpu
from agent_gpu import needed  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("needed")


def health(nvml="", gpus=2, **more):
    return agent_gpu.one("gpu.health", gpus=gpus, nvml=nvml, **more)


def test_a_sound_gpu_passes():
    result, end, status = health(gpus=8)
    assert (result["verdict"], end["verdict"], status) == ("pass", "pass", 0), result
    assert [g["verdict"] for g in result["data"]["gpus"]] == ["pass"] * 8
    gpu = result["data"]["gpus"][5]
    assert gpu["counters"]["recovery_action"] == 0 and gpu["nvlinks_active"] == 18
    assert gpu["counters"]["ecc_uncorrected"] == 0 and gpu["load"]["pcie_width"] == 16
    assert agent_gpu.metrics(result)["remapped_rows"] == 0


@pytest.mark.matrix(keep=8)
@pytest.mark.parametrize("nvml,verdict,code,words", [
    ("recovery=1", "fail", "recovery_action", "reset the GPU"),
    ("recovery=2", "fail", "recovery_action", "reboot the node"),
    ("recovery=3", "fail", "recovery_action", "drain peer-to-peer"),
    ("recovery=4", "fail", "recovery_action", "drain and reset"),
    ("recovery=5", "fail", "recovery_action", "IMEX"),
    ("recovery=9", "fail", "recovery_action", "unknown to this program"),
    ("ecc=1", "fail", "ecc_uncorrected", "1 uncorrectable"),
    ("ecc=3,sram=1", "fail", "ecc_uncorrected", "SRAM"),
    ("sram_threshold=1", "fail", "sram_threshold", "limit for replacement"),
    ("ecc_old=2,sram=1", "degraded", "sram_scars", "2 uncorrectable SRAM"),
    ("corrected_old=20000001", "degraded", "ecc_corrected", "20000001 in DRAM"),
    ("corrected_old=10001,sram=1", "degraded", "ecc_corrected", "10001 in SRAM"),
    ("remap_pending=1", "fail", "remap_pending", "reset"),
    ("remap_failed=1", "fail", "remap_failed", "could not be remapped"),
    ("remap=512", "fail", "remapped_rows", "512 rows"),
    ("retired=63", "fail", "retired_pages", "63"),
    ("retired=10,retired_dbe=5", "degraded", "high_retired_pages", "15"),
    ("retired_pending=1", "fail", "retirement_pending", "reboot"),
    ("link_down=3", "fail", "nvlink_down", "17 of 18 NVLinks are up; down: 3"),
    ("links=12", "fail", "nvlink_down", "12 of 18"),
    ("temperature=92", "fail", "hot", "92 C"),
    ("reasons=0x48", "degraded", "hw_slowdown", "HW thermal"),
    ("power_limit=400000", "degraded", "power_limit", "400 W"),
    ("lost=1,after=0", "fail", "gpu_lost", "fell off the bus"),
])
def test_a_sick_gpu_is_named(nvml, verdict, code, words):
    result, end, status = health(f"gpu=1,{nvml}")
    assert (result["verdict"], result["code"]) == (verdict, code), result
    assert end["verdict"] == verdict and status == {"fail": 2, "degraded": 1}[verdict]
    assert result["message"].startswith("gpu 1:") and words in result["message"] + result["suggestion"]
    assert [g["verdict"] for g in result["data"]["gpus"]] == ["pass", verdict]


def test_old_scars_are_no_fault():
    result, _, status = health("remap=8,remap_corrected=3,ecc_old=4,replays=900,retired=3,"
                               "link_error=0,link_errors=70,reasons=0x4")
    assert (result["verdict"], status) == ("pass", 0), result
    counters = result["data"]["gpus"][0]["counters"]
    assert counters["remapped_uncorrected"] == 8 and counters["ecc_uncorrected_life"] == 4
    assert "old faults are remapped" in result["message"]


def test_what_an_old_driver_does_not_tell_is_not_zero():
    result, _, _ = health("lacks=recovery")
    assert result["verdict"] == "pass"
    assert "recovery_action" not in result["data"]["gpus"][0]["counters"]
    result, _, _ = health("lacks=ecc")
    counters = result["data"]["gpus"][0]["counters"]
    assert "ecc_uncorrected" not in counters and counters["recovery_action"] == 0
    assert "ecc_uncorrected" not in agent_gpu.metrics(result)


def test_nothing_told_is_never_a_pass():
    result, _, status = health("lacks=")  # an empty word: everything is told
    assert (result["verdict"], status) == ("pass", 0)
    result, _, status = health("lacks=e")  # recovery, ecc, remap, retired and more
    assert (result["verdict"], result["code"], status) == ("skipped", "not_told", 3), result


@pytest.mark.parametrize("nvml,verdict,code", [
    ("init=9", "error", "nvml"),
    ("init=15", "fail", "gpu_lost"),
    ("init=17", "error", "nvml"),
    ("init=18", "fail", "nvml_mismatch"),
    ("init=999", "error", "nvml"),
])
def test_nvml_does_not_start(nvml, verdict, code):
    result, _, status = health(nvml)
    assert (result["verdict"], result["code"]) == (verdict, code) and result["suggestion"], result
    assert status == {"fail": 2, "error": 3}[verdict]


def test_no_nvml_library(tmp_path):
    (tmp_path / "libcuda.so.1").symlink_to(agent_gpu.STANDIN / "libcuda.so.1")
    result, _, status = health(libraries=tmp_path)
    assert (result["verdict"], result["code"], status) == ("error", "nvml", 3)
    assert "libnvidia-ml" in result["message"]


def test_functions_that_an_old_library_has_not(tmp_path):
    (tmp_path / "libcuda.so.1").symlink_to(agent_gpu.STANDIN / "libcuda.so.1")
    (tmp_path / "libnvidia-ml.so.1").symlink_to(agent_gpu.BUILD / "tests/standin-old/libnvidia-ml.so.1")
    result, _, status = health(libraries=tmp_path)
    assert (result["verdict"], result["code"], status) == ("skipped", "not_told", 3), result
    results, _, status = agent_gpu.run(gpus=2, libraries=tmp_path, checks="gpu.presence")
    gpu = results["gpu.presence"]["data"]["gpus"][0]
    assert (results["gpu.presence"]["verdict"], status) == ("pass", 0)
    assert gpu["pci_id"] == "2330" and not {"uuid", "serial", "ecc", "mig", "memory_mib"} & set(gpu)


def test_a_call_that_hangs_is_ended_by_the_watchdog():
    result, _, status = health("hang=1,after=0,gpu=1", seconds=4)
    assert (result["verdict"], result["code"], status) == ("fail", "overrun", 2)
    assert result["message"].startswith("gpu 1:")


# --- what moves while a check runs ---

@pytest.mark.matrix(keep=9)
@pytest.mark.parametrize("nvml,verdict,code,words", [
    ("ecc=1", "fail", "ecc_uncorrected", "1 new uncorrectable ECC error in DRAM while gpu.health ran"),
    ("ecc=2,sram=1", "fail", "ecc_uncorrected", "2 new uncorrectable ECC errors in SRAM"),
    ("remap=1", "fail", "remapped", "1 rows remapped"),
    ("remap_pending=1", "fail", "remapped", "a reset is due"),
    ("remap_failed=1", "fail", "remap_failed", "could not be remapped"),
    ("remap_corrected=2", "degraded", "remapped", "2 rows"),
    ("retired_dbe=1", "fail", "remapped", "1 pages retired"),
    ("recovery=1", "fail", "recovery_action", "reset the GPU"),
    ("link_down=7", "fail", "nvlink_down", "NVLink 7 went down"),
    ("link_error=0,link_errors=1", "fail", "nvlink_errors", "NVLink 3: 1 new replay"),
    ("link_error=1,link_errors=1", "fail", "nvlink_errors", "recovery"),
    ("link_error=4,link_errors=5", "fail", "nvlink_errors", "5 new ecc"),
    ("link_error=2,link_errors=5000", "fail", "nvlink_errors", "crc"),
    ("link_error=2,link_errors=20", "pass", "", ""),
    ("replays=31", "pass", "", ""),
    ("replays=32", "degraded", "pcie_replays", "the limit is 31 at generation 5 with 16 lanes"),
    ("replays=17,pcie_gen=4,pcie_gen_max=4", "degraded", "pcie_replays", "the limit is 16"),
    ("replays=500", "fail", "pcie_replays", "500 new"),
    ("pcie_fatal=1", "fail", "pcie_errors", "uncorrectable PCIe"),
    ("pcie_nonfatal=1", "fail", "pcie_errors", "uncorrectable PCIe"),
    ("slow_ns=60000000000", "fail", "hw_slowdown", "100 %"),
    ("slow_ns=1000", "degraded", "hw_slowdown", "0 %"),
    ("lost=1", "fail", "gpu_lost", "fell off the bus while"),
    ("xid=79", "fail", "xid_79", "Xid 79"),
    ("xid=31", "fail", "xid_31", "Xid 31"),
    ("xid=43", "pass", "", ""),
    ("xid=1234", "fail", "xid_1234", "Xid 1234"),
])
def test_what_moves_during_a_check_is_its_fault(nvml, verdict, code, words):
    # read 1 is `before`, 2 the check's own, 3 `after`
    result, _, status = health(f"gpu=1,after=2,{nvml}")
    assert (result["verdict"], result["code"]) == (verdict, code), result
    assert words in result["message"] + result["suggestion"], result
    assert status == {"fail": 2, "degraded": 1, "pass": 0}[verdict]
    if verdict != "pass":
        assert result["message"].startswith("gpu 1:")
        assert result["data"]["gpus"][0]["verdict"] == "pass"


def test_what_moved_is_told():
    result, _, _ = health("after=2,replays=12,link_error=2,link_errors=20")
    assert result["verdict"] == "pass"
    moved = result["data"]["gpus"][1]["moved"]
    assert moved["pcie_replays"] == 12 and moved["nvlink_3_crc"] == 20


# --- the kernel log ---

def line(text, priority=4):
    return f"{priority},77,1000,-;{text}\n SUBSYSTEM=pci\n"


GOOD = line("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.65.06", 6)


@pytest.mark.parametrize("text,verdict,code", [
    ("NVRM: Xid (PCI:0000:02:00): 79, pid=1, GPU has fallen off the bus.", "fail", "xid_79"),
    ("NVRM: Xid (PCI:0000:02:00): 48, pid=1, DBE", "fail", "xid_48"),
    (("NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset "
      "Required)"), "fail", "xid_154"),
    ("NVRM: Xid (PCI:0000:02:00): 4321, something new", "degraded", "xid_4321"),
    ("NVRM: Xid (PCI:0000:02:00): 13, pid=1, Graphics Exception", "pass", ""),
    ("NVRM: Xid (PCI:0000:09:00): 79, another machine's GPU", "pass", ""),
])
def test_xid_lines_since_boot(text, verdict, code):
    result, _, _ = health(kmsg=GOOD + line(text))
    assert (result["verdict"], result["code"]) == (verdict, code), result
    if code:
        assert result["message"].startswith("gpu 1:") and text[:40] in result["message"]


def test_nvswitch_lines_are_everybodys():
    text = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30"
    result, _, _ = health(kmsg=GOOD + line(text))
    assert (result["verdict"], result["code"]) == ("fail", "sxid_20034")
    assert [g["verdict"] for g in result["data"]["gpus"]] == ["fail", "fail"]


def test_a_program_wrote_that_line():
    result, _, _ = health(kmsg=GOOD + line("NVRM: Xid (PCI:0000:02:00): 79, pid=1", priority=12))
    assert result["verdict"] == "pass"


def test_lines_that_come_during_a_check():
    # read 1 is `before`, 2 the check's own, which the stand-in follows by the line
    result, _, status = health("gpu=1,after=1,kmsg=31", kmsg=GOOD)
    assert (result["verdict"], result["code"], status) == ("fail", "xid_31", 2), result
    assert "while gpu.health ran" in result["message"]


def test_a_kernel_log_that_cannot_be_read_is_said():
    result, _, _ = health(kmsg=None)
    assert result["verdict"] == "pass"
    gpu = result["data"]["gpus"][0]
    assert gpu["kernel_log"].startswith("not read") and gpu["load"]["kernel_log"] == "not readable"
    results, _, _ = agent_gpu.run(gpus=1, checks="host.kernlog", kmsg=None)
    assert results["host.kernlog"]["verdict"] == "skipped" or "since boot" in results["host.kernlog"]["message"]


@pytest.mark.parametrize("text,verdict,code", [
    ("", "pass", ""),
    ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 38", "degraded", "sxid_12028"),
    ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30", "fail", "sxid_20034"),
    ("NVRM: Xid (PCI:0000:02:00): 45, pid=7, Ch 8", "degraded", "xid_45"),  # alone
    (("NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot "
      "Required)"), "fail", "xid_154"),
])
def test_the_node_as_a_whole(text, verdict, code):
    results, _, _ = agent_gpu.run(gpus=1, checks="host.kernlog", kmsg=GOOD + (line(text) if text else ""))
    result = results["host.kernlog"]
    assert (result["verdict"], result["code"]) == (verdict, code), result


def test_a_cleanup_after_another_error_is_no_news():
    text = line("NVRM: Xid (PCI:0000:02:00): 13, Exception") + line("NVRM: Xid (PCI:0000:02:00): 45, Ch 8")
    results, _, _ = agent_gpu.run(gpus=1, checks="host.kernlog", kmsg=GOOD + text)
    assert results["host.kernlog"]["verdict"] == "pass"


# --- under a real load: copies between host and GPU ---

@pytest.mark.matrix(keep=6)
@pytest.mark.parametrize("nvml,verdict,code,words", [
    ("", "pass", "", ""),
    ("pcie_gen=4", "degraded", "pcie_gen", "generation 4 under load; GPU and slot support 5"),
    ("pcie_gen=2", "fail", "pcie_gen", "generation 2"),
    ("pcie_width=8", "fail", "pcie_width", "8 lanes under load; 16 are wired"),
    ("pcie_gen=4,pcie_gen_max=4", "pass", "", ""),  # the slot can do no more
    ("after=1,replays=90", "fail", "pcie_replays", "90 new PCIe replays while gpu.bandwidth ran"),
    ("reasons=0x80", "fail", "hw_slowdown", "HW power brake"),
    ("reasons=0x8", "fail", "hw_slowdown", "HW slowdown"),
    ("reasons=0x8,reasons_at=2", "pass", "", ""),  # alone and for a moment: a change of clocks
    ("reasons=0x4", "pass", "", ""),  # the power cap is normal at load
    ("after=1,ecc=1", "fail", "ecc_uncorrected", "while gpu.bandwidth ran"),
    ("after=1,xid=74", "fail", "xid_74", "while gpu.bandwidth ran"),
])
def test_counters_around_a_load(nvml, verdict, code, words):
    results, _, _ = agent_gpu.run(gpus=2, checks="gpu.bandwidth", nvml=f"gpu=1,{nvml}")
    result = results["gpu.bandwidth"]
    assert (result["verdict"], result["code"]) == (verdict, code), result
    assert words in result["message"]
    if code:
        assert result["message"].startswith("gpu 1:")
        assert [g["verdict"] for g in result["data"]["gpus"]] == ["pass", verdict]


def test_a_machine_where_pcie_was_wired_narrow_on_purpose():
    # T4: clouds are known to wire 8 lanes of 16; fewer than both ends can do is still told
    results, _, _ = agent_gpu.run(gpus=1, checks="gpu.bandwidth", standin="profile=t4",
                                  nvml="pcie_width=8,pcie_width_max=8")
    assert results["gpu.bandwidth"]["verdict"] == "pass", results["gpu.bandwidth"]
