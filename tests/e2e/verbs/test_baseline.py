# SPDX-License-Identifier: Apache-2.0
"""GPUs out of line with their peers, models that nobody measured, a fleet's own baseline, and the history:
the programs against the stand-ins, whose rates are the model's unless a knob slows them."""
import json

import pytest

from agent_gpu import gpu_data, metrics, needed, run  # noqa: F401
from test_validate_bare import gpus_fixture  # noqa: F401

pytestmark = pytest.mark.usefixtures("needed")


def bandwidth(standin, n=8):
    results, end, status = run(gpus=n, standin=standin, checks="gpu.bandwidth")
    return results["gpu.bandwidth"], end, status


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("profile", ["a100", "unknown"])
def test_an_outlier_among_eight_is_degraded_and_named(profile):
    """90 % of the others: more than the model asks for, or nobody knows what it asks for."""
    got, _, status = bandwidth(f"profile={profile},gpu=5,slow_copy=90")
    assert (got["verdict"], got["code"], status) == ("degraded", "outlier", 1), got["message"]
    assert got["message"].startswith("gpu 5: ") and "of the 8 GPUs here" in got["message"]
    assert {g: d["verdict"] for g, d in gpu_data(got).items() if d["verdict"] != "pass"} == {5: "degraded"}
    assert gpu_data(got)[5]["code"] == "outlier"


def test_three_have_no_median_to_speak_of():
    got, _, status = bandwidth("profile=unknown,gpu=1,slow_copy=80", n=3)
    assert (got["verdict"], status) == ("pass", 0)


@pytest.mark.long
def test_an_unknown_model_is_unrated_and_passes_on_counters():
    results, end, status = run(gpus=4, standin="profile=unknown", checks="gpu.health,gpu.memory,gpu.bandwidth")
    assert (end["verdict"], status) == ("pass", 0), results
    rated = {m["name"]: m for m in results["gpu.bandwidth"]["metrics"]}
    for figure in ("copy", "read", "h2d", "d2h"):
        assert rated[figure]["unrated"] and "floor" not in rated[figure]
    results, end, status = run(gpus=4, standin="profile=unknown,gpu=2,flip=12345,bit=7",
                               checks="gpu.memory,gpu.bandwidth")
    assert (end["verdict"], results["gpu.memory"]["verdict"], status) == ("fail", "fail", 2)


def test_a_known_models_figures_say_by_what():
    got, _, _ = bandwidth("", n=1)
    read = next(m for m in got["metrics"] if m["name"] == "read")
    assert read["floor"] == 2544 and read["degraded"] == 2862 and read["measured"] == 3180
    assert "BabelStream" in read["source"] and "unrated" not in read


# --- the fleet's own baseline ---

@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """Where the file of the first test is kept for the others."""
    return tmp_path_factory.mktemp("baseline") / "fleet.json"


def local(gpus, *args, standin="", code=0):
    done = gpus(4, "validate", "--local", "--time", "60s", "--json", *args, standin=f"gpus=4,profile=a100,{standin}", code=code)
    return json.loads(done.stdout), done


def check(report, name):
    return next(c for c in report["nodes"][0]["checks"] if c["check"] == name)


def test_calibrate(gpus, calibrated):
    report, done = local(gpus, "--calibrate", "--baseline", calibrated)
    assert "figures written to" in done.stderr
    data = json.loads(calibrated.read_text())
    assert data["schema"] == "gpuprov/baseline/v1"
    figures = {f"{f['check']}.{f['metric']}": f for f in data["figures"]}
    copy = figures["gpu.bandwidth.copy"]
    assert (copy["model"], copy["driver"], copy["n"]) == ("a100-sxm4-80", "580.65.06", 4)
    assert copy["median"] == pytest.approx(1850, rel=0.03) and copy["mad"] < 60
    # the same machine again holds, and is rated by it now
    report, _ = local(gpus, "--baseline", calibrated)
    m = next(m for m in check(report, "gpu.bandwidth")["metrics"] if m["name"] == "copy")
    assert m["floor"] == pytest.approx(0.8 * copy["median"], rel=1e-3) and str(calibrated) in m["source"]


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("percent,verdict,code", [(88, "degraded", 0), (78, "fail", 7)])
def test_slower_than_the_baseline(gpus, calibrated, percent, verdict, code):
    """All GPUs alike, so that no peer tells; both rates pass or are degraded by the model."""
    if not calibrated.exists():
        pytest.fail("test_calibrate made no baseline")
    report, _ = local(gpus, "--baseline", calibrated, standin=f"slow_copy={percent}", code=code)
    found = check(report, "gpu.bandwidth")
    assert (found["verdict"], found["code"]) == (verdict, "below_baseline"), found["message"]
    assert "of the 18" in found["message"] and "fleet's baseline" in found["message"]
    assert {x["gpu"] for x in found["data"]["below_baseline"]} == {0, 1, 2, 3}


@pytest.mark.long
def test_no_baseline_of_a_sick_fleet(gpus, tmp_path):
    to = tmp_path / "b.json"
    _, done = local(gpus, "--calibrate", "--baseline", to, standin="gpu=2,slow_copy=50", code=7)
    assert not to.exists()
    _, done = local(gpus, "--calibrate", "--baseline", to, standin="gpu=2,slow_copy=90", code=7)
    assert "sound nodes only" in done.stderr and "outlier" in done.stdout and not to.exists()


@pytest.mark.parametrize("text,said", [
    (None, "--calibrate"),
    ("{}", "not a baseline of this version"),
    (('{"schema":"gpuprov/baseline/v1","figures":[{"model":"h200-sxm","driver":"1","check":"gpu.bandwidth",'
      '"metric":"read","unit":"GB/s","n":8,"median":2.333,"mad":0}]}'), "pass every broken GPU"),
])
def test_a_baseline_that_is_none(gpuprov, tmp_path, text, said):
    path = tmp_path / "b.json"
    if text is not None:
        path.write_text(text)
    done = gpuprov("validate", "--local", "--baseline", path, code=1)
    assert said in done.err and str(path) in done.err


# --- the history ---

@pytest.mark.long
def test_history(gpuprov, tmp_path):
    spec = tmp_path / "s.yaml"
    spec.write_text("name: hist\n")
    gpuprov("up", spec)
    try:
        gpuprov("validate", "hist")
        table = gpuprov("report", "hist", "--history").out
        assert "host.memory.copy" in table and "2 runs" in table and "2 ready" in table
        kept = json.loads(gpuprov("report", "hist", "--history", "--json").out)
        assert kept["schema"] == "gpuprov/history/v1" and len(kept["runs"]) == 2
        names = [f"{f['check']}.{f['metric']}" for f in kept["runs"][1]["figures"]]
        assert "train.ddp.tokens_per_s" in names and kept["runs"][0]["run"] != kept["runs"][1]["run"]
        none = gpuprov("validate", "hist", "--calibrate", code=1)  # 7 is for nodes that are not ready
        assert "no baseline was written" in none.err and "1 of 1 node ready" in none.out
        kept = gpuprov.state / "history" / "hist.json"
        assert len(json.loads(kept.read_text())["runs"]) == 3
        kept.write_text('{"schema": "something else"}')
        assert "set aside" in gpuprov("validate", "hist").err  # it stops no run, and nothing is thrown away
        assert kept.with_name("hist.json.damaged").read_text() == '{"schema": "something else"}'
    finally:
        gpuprov("down", "hist")
    assert "1 run from" in gpuprov("report", "hist", "--history").out  # it outlives the nodes
    assert "no history" in gpuprov("report", "other", "--history", code=1).err
