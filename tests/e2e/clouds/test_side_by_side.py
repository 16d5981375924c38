# SPDX-License-Identifier: Apache-2.0
"""Clouds are asked side by side: the first request at each of two stand-ins is answered once both have theirs."""
import threading

import ec2
import pytest
from lambda_cloud import KEY as LAMBDA_KEY
from lambda_cloud import LambdaCloud
from shadeform_cloud import KEY as SHADEFORM_KEY
from shadeform_cloud import ShadeformCloud

PATIENCE_S = 60  # until a test of sequential requests fails


@pytest.fixture(name="clouds")
def clouds_fixture():
    with LambdaCloud() as one, ShadeformCloud() as other:
        yield [one, other]
        assert one.sound() is True and other.sound() is True


@pytest.fixture(name="run")
def run_fixture(gpuprov, clouds, tmp_path):
    one, other = clouds
    gpuprov.env.update(ec2.CLEAN, HOME=str(tmp_path), GPUPROV_OWNER="tester", LAMBDA_API_KEY=LAMBDA_KEY,
                       SHADEFORM_API_KEY=SHADEFORM_KEY, GPUPROV_LAMBDA_ENDPOINT=one.url, GPUPROV_LAMBDA_PACE_MS="0",
                       GPUPROV_SHADEFORM_ENDPOINT=other.url, GPUPROV_SHADEFORM_PACE_MS="0")
    return gpuprov


def hold_both(clouds):
    """Holds the first request at each cloud until both have one. Returns a list that gets an entry for each."""
    both = threading.Barrier(len(clouds))
    overlaps = []

    def hold(reply):
        both.wait(PATIENCE_S)
        overlaps.append(threading.current_thread().name)
        return reply

    for cloud in clouds:
        cloud.rule("^GET ", "edit", times=1, change=hold)
    return overlaps


@pytest.mark.parametrize("words", [["status"], ["gc"], ["gc", "--dry-run"], ["down", "unknown"]], ids=" ".join)
def test_two_clouds_overlap(run, clouds, words):
    overlaps = hold_both(clouds)
    done = run(*words, "--in", "shadeform,lambda", "--json")
    assert len(overlaps) == len(clouds)
    if words[0] == "down":  # of a stack that the journal does not know
        return
    places = [place["provider"] for place in done.json["looked"]]
    assert places and places == sorted(places, key=["lambda", "shadeform"].index)  # the registry's order


def test_doctor_asks_two_clouds_at_once(run, clouds):
    overlaps = hold_both(clouds)
    done = run("doctor", "--json", code=None, env={"ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true"})
    assert len(overlaps) == len(clouds)
    items = {item["name"]: item for item in done.json["items"]}
    assert items["lambda"]["found"] == items["shadeform"]["found"] == "ok", items
    accounts = [item["name"] for item in done.json["items"]][-9:]
    assert accounts.index("aws") < accounts.index("lambda") < accounts.index("shadeform")
