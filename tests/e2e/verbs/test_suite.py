# SPDX-License-Identifier: Apache-2.0
"""The suite itself: docs/testing.md lists every sampled matrix, and the tables of scheduling.py name real files."""
import ast
import re
import subprocess
import sys

from conftest import ROOT
from scheduling import COMPUTE, LONG, PARTS

E2E = ROOT / "tests" / "e2e"


def matrices(path):
    for node in ast.parse(path.read_text()).body:
        for mark in getattr(node, "decorator_list", []):
            if ast.unparse(mark).startswith("pytest.mark.matrix("):
                yield f"{path.parent.name}/{path.name}::{node.name}", str(mark.keywords[0].value.value)


def test_sampled_matrices_are_documented():
    marked = {found for path in E2E.glob("*/test_*.py") for found in matrices(path)}
    page = (ROOT / "docs" / "testing.md").read_text()
    assert marked and marked == set(re.findall(r"^\| `(\S+::\w+)` \| \d+ \| (\d+) \|$", page, re.M))


def test_scheduling_names_files_that_exist():
    assert all((E2E / name).exists() for name in (*COMPUTE, *LONG, *PARTS))


def test_pytest_runs_without_xdist():
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", __file__, "-k", "exist"], check=True,
                   capture_output=True)
