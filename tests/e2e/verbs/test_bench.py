# SPDX-License-Identifier: Apache-2.0
"""The benchmark still runs and says what it found: few rounds, its figures are not judged here."""
import os
import subprocess
import sys

import pytest

from conftest import ROOT

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


def bench(*words, program, timeout=300):
    return subprocess.run([sys.executable, str(ROOT / "tests/bench/run.py"), *map(str, words)],
                          env={**os.environ, "GPUPROV_BIN": str(program)}, capture_output=True, text=True,
                          timeout=timeout, check=False)


@pytest.mark.long
def test_it_measures_and_writes_a_page(program, tmp_path):
    page = tmp_path / "page.md"
    done = bench("--quick", "--only", "start,fanout", "--out", page, program=program)
    assert done.returncode == 0, done.stdout + done.stderr
    text = page.read_text()
    for row in ("| `gpuprov version` |", "| gpuprov |", "| OpenSSH, curve25519 |", "under 64 MiB"):
        assert row in text, text


@pytest.mark.long
def test_it_measures_a_launch_at_each_cloud(program, tmp_path):
    page = tmp_path / "page.md"
    done = bench("--quick", "--only", "clouds", "--out", page, program=program, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    text = page.read_text()
    for cloud in ("alibaba", "aws", "azure", "google", "lambda", "runpod", "shadeform"):
        assert "\n| %s | 1 |" % cloud in text, text


def test_a_run_that_fails_has_no_figures(tmp_path):
    """A program that ends with an error must not come out as a quick one."""
    page = tmp_path / "page.md"
    done = bench("--quick", "--only", "start", "--out", page, program="/bin/false")
    assert done.returncode == 1, done.stdout + done.stderr
    assert not page.exists()
    assert "exit 1" in done.stderr
