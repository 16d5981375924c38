# SPDX-License-Identifier: Apache-2.0
"""framework.torch with a real PyTorch on the CPU: two ranks train one step, and what it reports without a GPU."""
import os
import pathlib
import shutil
import subprocess

import pytest
from test_agent import Gang

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHECK = "framework.torch"


@pytest.fixture(name="python", scope="module")
def python_fixture():
    folder = os.environ.get("GP_HOSTS_DIR") or ROOT / "build" / "hosts"
    made = subprocess.run([ROOT / "tests/hosts/real_torch.sh", folder], capture_output=True, text=True, timeout=1800,
                          check=False)
    assert made.returncode == 0, made.stderr
    return pathlib.Path(made.stdout.strip()) / "bin/python"


@pytest.mark.long
def test_two_ranks_train_one_step(python, tmp_path):
    every = [r[CHECK] for r in Gang(tmp_path, 2, checks=CHECK, deadline="300s", extra=["--python", python]).results()]
    assert [r["verdict"] for r in every] == ["pass"] * 2, every
    assert every[0]["data"]["torch"].startswith("2.15.0") and every[0]["data"]["backend"] == "gloo"
    assert every[0]["data"]["cuda"] != "none" and "no GPU took part" in every[0]["message"], every


@pytest.mark.long
def test_a_gpu_that_its_driver_does_not_show(python, tmp_path):
    gang = Gang(tmp_path, 1, checks=CHECK, deadline="300s", extra=["--python", python, "--gpu", 0])
    result = gang.results()[0][CHECK]
    assert result["verdict"] == "fail" and result["code"] == "no_cuda", result
    assert "cannot use the GPUs: " in result["message"], result


@pytest.mark.long
def test_a_library_of_cuda_is_missing(python, tmp_path):
    whole = python.parents[1]  # other tests use it at the same time
    lacking = whole.with_name(f"torch-lacking-{os.getpid()}")
    try:
        subprocess.run(["cp", "-al", whole, lacking], check=True)  # hard links
        next(lacking.glob("lib/python3*/site-packages/torch/lib/libcublas.so*")).unlink()
        gang = Gang(tmp_path, 1, checks=CHECK, deadline="300s", extra=["--python", lacking / "bin/python"])
        result = gang.results()[0][CHECK]
    finally:
        shutil.rmtree(lacking, ignore_errors=True)
    assert result["verdict"] == "fail" and result["code"] == "import", result
    assert "libcublas" in result["message"], result
