# SPDX-License-Identifier: Apache-2.0
"""The suite itself: docs/testing.md lists what `make test` leaves out, and the tables of scheduling.py name real files."""
import ast
import os
import re
import subprocess
import sys

from conftest import ROOT
from scheduling import COMPUTE, LONG, PARTS, WAITING

E2E = ROOT / "tests" / "e2e"


def marked():
    """(test, N) of each matrix(keep=N), (test, None) of each long one."""
    for path in E2E.glob("*/test_*.py"):
        for node in ast.parse(path.read_text()).body:
            for mark in map(ast.unparse, getattr(node, "decorator_list", [])):
                if found := re.fullmatch(r"pytest\.mark\.(?:matrix\(keep=(\d+)\)|long)", mark):
                    yield f"{path.parent.name}/{path.name}::{node.name}", found[1]


def test_what_make_test_leaves_out_is_documented():
    page = (ROOT / "docs" / "testing.md").read_text()
    rows = re.findall(r"^\| `(\S+::\w+)` \| \d+ (?:\| (\d+) )?\|$", page, re.M)
    assert rows and set(marked()) == {(name, keep or None) for name, keep in rows}


def test_scheduling_names_files_that_exist():
    assert all((E2E / name).exists() for name in (*COMPUTE, *WAITING, *LONG, *PARTS))


def test_pytest_runs_without_xdist():
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", __file__, "-k", "exist"], check=True,
                   capture_output=True)


def test_a_unit_program_that_hangs_is_named(tmp_path):
    for name, body in (("hangs", "echo begins; exec sleep 100"), ("ends", "echo done")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run([sys.executable, ROOT / "tests/run.py", "unit", tmp_path / "hangs", tmp_path / "ends"],
                          env={**os.environ, "TEST_LIMIT_S": "1"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "unit: failed: hangs\n" in done.stdout, done
    assert f"{tmp_path}/hangs: exit -9\nbegins\n{tmp_path}/hangs: killed after 1 s" in done.stdout, done


def test_no_two_files_of_tests_share_a_name():
    """pytest imports each by its bare name, so of two that are alike only one would be collected."""
    names = sorted(path.name for path in E2E.glob("*/*.py"))
    assert names == sorted(set(names))
