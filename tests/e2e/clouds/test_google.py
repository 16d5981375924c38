# SPDX-License-Identifier: Apache-2.0
"""The provider google against a stand-in cloud: the contract, its bad days, refusals, credentials."""
import json
import os
import pathlib
import subprocess

import google_cloud
import pytest

BUILD = pathlib.Path(os.environ.get("B", pathlib.Path(__file__).resolve().parents[3] / "build"))
PROGRAM = os.environ.get("GPUPROV_BIN", str(BUILD / "gpuprov"))
CASES = ["async_failure", "destroy_refused", "gang_cut", "gang_partial", "killed", "late_address", "late_list", "list_hollow",
         "list_refused", "lost_reply", "paged", "throttled"]


def write_spec(folder, **more):
    """A spec file for two nodes; `more` replaces top-level keys, `offer` keys of the offer."""
    offer = {"provider": "google", "regions": ["us-central1"], **more.pop("offer", {})}
    top = {"name": "contract", "nodes": 2, "gpu": "L4:1", "offers": [offer], "access": {"ssh_from": ["203.0.113.0/24"]}}
    top.update(more)
    path = pathlib.Path(folder) / "spec.yaml"
    path.write_text(json.dumps({k: v for k, v in top.items() if v is not None}))
    return path


def environment(cloud, folder, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUPROV_", "GOOGLE_", "CLOUDSDK_"))}
    env.update(cloud.environment(folder, **more), GPUPROV_STATE_DIR=str(pathlib.Path(folder) / "state"))
    return {k: v for k, v in env.items() if v is not None}


def contract(cloud, folder, spec, case=None):
    env = dict(environment(cloud, folder), GPUPROV_CONTRACT="google", GPUPROV_CONTRACT_SPEC=str(spec),
               GPUPROV_CONTRACT_FLAG=str(pathlib.Path(folder) / "flag"))
    program, name = "test_provider", "test_create"
    if case is not None:
        program, name = "test_provider_faults", case
        env["GPUPROV_CONTRACT_CASE"] = case
    done = subprocess.run([str(BUILD / "tests/contract" / program)], env=env, capture_output=True, text=True,
                          timeout=400, check=False)
    text = done.stdout + done.stderr
    assert done.returncode == 0 and f"OK ] {name}" in text, text
    assert cloud.faults == []
    assert cloud.left() == []


def drive(cloud, folder, spec, *words, **more):
    """One run of tests/drivers/provider_drive: (exit code, result, standard error)."""
    done = subprocess.run([str(BUILD / "tests/drivers/provider_drive"), "google", str(spec), *words],
                          env=environment(cloud, folder, **more), capture_output=True, text=True, timeout=300,
                          check=False)
    assert done.stdout.strip(), done.stderr[-2000:]
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture(name="cloud")
def one_cloud():
    with google_cloud.Google() as cloud:
        yield cloud
        assert cloud.faults == []


@pytest.mark.parametrize("market", ["spot", "on-demand"])
def test_contract(cloud, tmp_path, market):
    contract(cloud, tmp_path, write_spec(tmp_path, offer={"market": market}))


def make_bad(cloud, case, flag):
    """Makes the cloud behave as the case says. flag: while this file is there, it refuses."""
    denied = {"times": None, "when": str(flag), "status": 403,
              "obj": google_cloud.error(403, "forbidden", "Required permission is missing").obj}

    def without_one(reply):
        return dict(reply, items=reply.get("items", [])[:1])
    if case == "async_failure":
        cloud.capacity = dict.fromkeys(("us-central1-a", "us-central1-b"), 0)
    elif case == "gang_partial":  # and Google leaves the one that it has made
        cloud.capacity, cloud.leave = dict.fromkeys(("us-central1-a", "us-central1-b"), 1), True
    elif case == "gang_cut":
        cloud.rule("POST .*bulkInsert", "edit", change=lambda reply: {"kind": "compute#operation", "status": "DONE"})
        cloud.rule("GET .*/zones/[^/]*/instances[?]", "edit", times=2, change=without_one)
    elif case == "late_address":
        cloud.address_lag = 4
    elif case == "late_list":
        cloud.lag = 3
        cloud.rule("GET .*/global/firewalls/", "reply", times=2, status=404, obj={})
    elif case == "lost_reply":
        cloud.rule("POST .*bulkInsert", "drop_after").rule("POST .*/global/firewalls", "drop_after")
    elif case == "paged":
        cloud.page = 1
    elif case == "destroy_refused":
        cloud.rule("DELETE .*/instances/", "reply", **denied)
    elif case == "list_hollow":
        cloud.rule("GET .*/aggregated/instances", "reply", times=None, when=str(flag), status=200, obj={"success": False})
    elif case == "list_refused":
        cloud.rule("GET .*/aggregated/instances", "reply", **denied)
    elif case == "throttled":
        refused = google_cloud.error(403, "rateLimitExceeded", "Rate Limit Exceeded")
        cloud.rule("/compute/v1/", "reply", times=None, every=3, status=403, obj=refused.obj)


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("case", CASES)
def test_contract_on_bad_days(cloud, tmp_path, case):
    make_bad(cloud, case, tmp_path / "flag")
    contract(cloud, tmp_path, write_spec(tmp_path), case)
    assert all(rule["done"] for rule in cloud.rules), "no fault came"
