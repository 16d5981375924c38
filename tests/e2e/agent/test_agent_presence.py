# SPDX-License-Identifier: Apache-2.0
"""gpu.presence, the inventory: what was bought against what is there, settings that forbid its use, versions
that do not fit, and who else holds a GPU."""
import os
import subprocess
import sys

import pytest

import agent_gpu
from agent_gpu import needed  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("needed")


def presence(gpus=2, nvml="", **more):
    return agent_gpu.one("gpu.presence", gpus=gpus, nvml=nvml, **more)


def bought(model):
    return ["--gpu-model", model]


def test_a_sound_machine_passes():
    result, end, status = presence(gpus=8, more=bought("H100"))
    assert (result["verdict"], end["verdict"], status) == ("pass", "pass", 0), result
    assert "8 x H100 SXM5 80GB" in result["message"]
    gpu = result["data"]["gpus"][7]
    assert gpu["uuid"] == "GPU-5a3d1c00-0000-4000-8000-000000000007" and gpu["serial"] == "165402310007"
    assert (gpu["pci"], gpu["pci_id"], gpu["vbios"]) == ("0000:08:00.0", "2330", "96.00.74.00.01")
    assert gpu["memory_mib"] == 81559 and gpu["ecc"] is True and gpu["mig"] is False
    assert result["data"]["driver"] == "580.65.06" and result["data"]["cuda"] == 13000


# --- what was bought ---

@pytest.mark.parametrize("name", ["H100", "h100-80gb", "NVIDIA H100 80GB HBM3", "H100 SXM"])
def test_names_of_the_same_model(name):
    assert presence(more=bought(name))[0]["verdict"] == "pass"


@pytest.mark.parametrize("name", ["A100", "H200", "L40S", "B200"])
def test_another_model_fails(name):
    result, _, status = presence(more=bought(name))
    assert (result["verdict"], result["code"], status) == ("fail", "gpu_model", 2), result
    assert "gpu 0 is 'NVIDIA H100 80GB HBM3'" in result["message"] and f"'{name}' was bought" in result["message"]


def test_one_gpu_differs_from_the_others():
    result, _, _ = presence(standin="differs=1", more=bought("H100"))
    assert (result["verdict"], result["code"]) == ("degraded", "mixed") and "gpu 1 is" in result["message"]


def test_a_name_that_nobody_knows_condemns_nobody():
    result, _, _ = presence(more=bought("Zebra 9000"))
    assert result["verdict"] == "pass" and result["data"]["bought_not_known"] == "Zebra 9000"


def test_a_gpu_that_the_table_does_not_know():
    result, _, _ = presence(standin="profile=unknown")
    assert result["verdict"] == "pass" and "model" not in result["data"]["gpus"][0]
    result, _, _ = presence(standin="profile=unknown", more=bought("H100"))
    assert (result["verdict"], result["code"]) == ("fail", "gpu_model")


@pytest.mark.parametrize("seen,want", [(7, 8), (4, 8), (1, 2)])
def test_seven_of_eight(seen, want):
    result, _, status = presence(gpus=seen, bought=want)
    assert (result["verdict"], result["code"], status) == ("fail", "gpu_missing", 2)
    assert f"{seen} of {want}" in result["message"]


def test_too_little_memory():
    result, _, _ = presence(nvml="gpu=1,memory_mib=40960")
    assert (result["verdict"], result["code"]) == ("fail", "memory_size")
    assert "gpu 1 has 40 GiB" in result["message"]


# --- how it is set, and what surrounds it ---

@pytest.mark.matrix(keep=8)
@pytest.mark.parametrize("nvml,verdict,code,words", [
    ("gpu=1,mig=1", "fail", "mig", "gpu 1 is divided into MIG"),
    ("gpu=1,compute_mode=2", "fail", "compute_mode", "prohibits"),
    ("gpu=1,compute_mode=3", "pass", "", ""),  # one process at a time: all that a check needs
    ("gpu=1,ecc_mode=0", "degraded", "ecc_off", "gpu 1's memory runs without ECC"),
    ("persistence=0", "pass", "", ""),
    ("gpu=1,fabric=1", "fail", "fabric", "gpu 1 has not joined the NVSwitch fabric: not started"),
    ("gpu=1,fabric=2", "fail", "fabric", "in progress"),
    ("gpu=1,fabric_status=999", "fail", "fabric", "failed to join"),
    ("fabric_health=0x1a9", "degraded", "fabric_health", "degraded bandwidth"),
    ("fabric_health=0x5aa", "degraded", "fabric_health", "incorrect configuration"),
    ("fabric=0", "pass", "", ""),
    ("lacks=fabric", "pass", "", ""),
    ("nvml=13.575.51.03", "fail", "nvml_mismatch", "13.575.51.03"),
    ("gpu=1,pid=1", "error", "gpu_busy", "gpu 1 is in use by process 1 (process-1), 1 GiB"),
    ("gpu=1,graphics=1", "degraded", "gpu_busy", "gpu 1 renders for process 1"),
    ("gpu=1,lost=1", "fail", "gpu_lost", "gpu 1 fell off the bus"),
])
def test_settings_and_surroundings(nvml, verdict, code, words):
    result, _, status = presence(nvml=nvml)
    assert (result["verdict"], result["code"]) == (verdict, code), result
    assert words in result["message"] and status == {"pass": 0, "degraded": 1, "fail": 2, "error": 3}[verdict]


def test_what_is_not_told_is_not_said():
    gpu = presence(nvml="lacks=ecc")[0]["data"]["gpus"][0]
    assert "ecc" not in gpu and gpu["mig"] is False
    assert presence(nvml="persistence=0")[0]["data"]["gpus"][0]["persistence"] is False


def test_a_process_outside_of_this_container_may_be_our_own():
    assert presence(nvml="pid=4194000")[0]["verdict"] == "pass"


@pytest.mark.parametrize("name", ["CUDA_LAUNCH_BLOCKING", "CUDA_INJECTION64_PATH"])
def test_variables_that_change_what_cuda_does(name):
    result, _, _ = presence(env={name: "1"})
    assert (result["verdict"], result["code"]) == ("degraded", "environment") and name in result["message"]


def test_nouveau_beside_the_driver():
    setup = "mount -t tmpfs none /sys && mkdir -p /sys/module/nouveau || exit 99"
    result, _, _ = presence(setup=setup)
    assert (result["verdict"], result["code"]) == ("degraded", "nouveau")
    result, _, _ = presence(setup=setup, standin="init=100")
    assert (result["code"], "blacklist" in result["suggestion"]) == ("cuda_100", True)


def nvswitch(tmp_path, version):
    """A PCI bus with an NVSwitch, and a fabric manager of that version."""
    if version:
        manager = tmp_path / "nv-fabricmanager"
        manager.write_text(f"#!/bin/sh\necho 'Fabric Manager version is : {version}'\n")
        manager.chmod(0o755)
    bus = tmp_path / "bus" / "0000:c1:00.0"
    bus.mkdir(parents=True)
    (bus / "vendor").write_text("0x10de\n")
    (bus / "class").write_text("0x068000\n")
    return {"setup": f"mount --bind {tmp_path}/bus /sys/bus/pci/devices || exit 99",
            "env": {"PATH": f"{tmp_path}:{os.environ['PATH']}"}}


def test_fabric_manager_of_the_drivers_version(tmp_path):
    result, _, _ = presence(**nvswitch(tmp_path, "580.65.06"))
    assert result["verdict"] == "pass"
    assert (result["data"]["fabric_manager"], result["data"]["nvswitches"]) == ("580.65.06", 1)


def test_fabric_manager_of_another_version(tmp_path):
    result, _, _ = presence(**nvswitch(tmp_path, "575.57.08"))
    assert (result["verdict"], result["code"]) == ("fail", "fabric_version")
    assert "575.57.08" in result["message"] and "580.65.06" in result["message"]


def test_a_fabric_that_is_not_up_names_the_version(tmp_path):
    result, _, _ = presence(standin="init=802", **nvswitch(tmp_path, "575.57.08"))
    assert (result["verdict"], result["code"]) == ("fail", "cuda_802")
    assert "575.57.08" in result["suggestion"] and "580.65.06" in result["suggestion"]


def test_a_fabric_that_is_not_up_without_its_manager(tmp_path):
    result, _, _ = presence(standin="init=802", **nvswitch(tmp_path, None))
    assert result["code"] == "cuda_802" and "exactly version 580.65.06" in result["suggestion"]


def test_a_fabric_manager_that_never_answers(tmp_path):
    surroundings = nvswitch(tmp_path, "1")
    (tmp_path / "nv-fabricmanager").write_text("#!/bin/sh\nexec sleep 1000\n")
    result, _, _ = presence(**surroundings)
    assert result["verdict"] == "pass" and "fabric_manager" not in result["data"]


def test_the_kernel_module_is_of_another_version(tmp_path):
    if not os.path.isdir("/proc/driver"):
        pytest.skip("there is no /proc/driver here to put the module's version under")
    (tmp_path / "driver" / "nvidia").mkdir(parents=True)
    (tmp_path / "driver" / "nvidia" / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build\nGCC version:\n")
    result, _, _ = presence(setup=f"mount --bind {tmp_path}/driver /proc/driver || exit 99")
    assert (result["verdict"], result["code"]) == ("fail", "nvml_mismatch")
    assert "575.57.08" in result["message"]


def test_uvm_is_missing():
    result, _, _ = presence(standin="init=999", setup="rm -f /dev/nvidia-uvm")
    assert result["code"] == "cuda_999" and "/dev/nvidia-uvm, which is missing" in result["suggestion"]


def test_another_program_holds_a_gpu():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        result, _, status = presence(nvml=f"gpu=1,pid={other.pid}")
        other.communicate(b"\n")
    assert (result["verdict"], result["code"], status) == ("error", "gpu_busy", 3)
    assert f"process {other.pid} " in result["message"]
