# SPDX-License-Identifier: Apache-2.0
"""framework.deepspeed with the real one and a real PyTorch on the CPU."""
import os
import pathlib
import subprocess

import pytest
from test_agent import Gang

ROOT = pathlib.Path(__file__).resolve().parents[3]


def made(name):
    folder = os.environ.get("GP_HOSTS_DIR") or ROOT / "build" / "hosts"
    done = subprocess.run([ROOT / "tests/hosts/real_frameworks.sh", folder, name], capture_output=True, text=True,
                          timeout=3600, check=False)
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip()) / "bin/python"


def train(name, tmp_path):
    check = "framework." + name
    every = [r[check] for r in Gang(tmp_path, 2, checks=check, deadline="300s", extra=["--python", made(name)]).results()]
    assert [r["verdict"] for r in every] == ["pass"] * 2, every
    assert "over 2 ranks by gloo left the right weights; no GPU took part" in every[0]["message"], every
    return every[0]["data"]


@pytest.mark.long
def test_deepspeed_trains_one_step(tmp_path):
    data = train("deepspeed", tmp_path)
    assert data["deepspeed"] == "0.19.8" and data["torch"].startswith("2.15.0"), data
