# SPDX-License-Identifier: Apache-2.0
"""Ranks that are stopped for a while are not suspected, and one that is stopped for ever is always named. Seeds choose
the size of the gang, who stops, when and for how long (tests/drivers/gang_stops.c). The times are scaled: with a
limit of one second a stop lasts 0.05 to 0.5 s, with the usual 20 s it would last 1 to 10 s."""
import concurrent.futures
import json
import os
import pathlib
import subprocess

import pytest

from conftest import ROOT

DRIVER = pathlib.Path(os.environ.get("B", ROOT / "build")) / "tests" / "drivers" / "gang_stops"


def one(seed, stall_ms=1000, *more):
    done = subprocess.run([DRIVER, str(seed), str(stall_ms), *more], capture_output=True, text=True, timeout=250)
    return done.returncode, done.stdout + done.stderr


def seeds(which):
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        every = list(pool.map(one, which))
    wrong = [text for code, text in every if code != 0]
    assert not wrong, f"{len(wrong)} of {len(every)}: " + "\n".join(wrong[:5])
    ever = [json.loads(text)["for_ever"] for _, text in every]
    assert any(ever) and not all(ever)


def test_stopped_ranks_are_named_only_if_they_never_continue():
    seeds(range(40))


@pytest.mark.long
def test_a_thousand_gangs_with_stopped_ranks():
    seeds(range(1000))


@pytest.mark.parametrize("seed", [1, 6])
def test_a_rank_that_computes_for_long_is_not_suspected(seed):
    """It looks at nobody for four times the limit; its heartbeats report CPU time."""
    code, text = one(seed, 1000, "computes")
    assert code == 0, text
