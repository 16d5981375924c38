# SPDX-License-Identifier: Apache-2.0
"""Nodes at Azure that delete themselves: the identity, its role assignment, their readback, faults, leftovers, and the
node's own script against the metadata service and Resource Manager of the stand-in."""
import json
import os
import pathlib
import subprocess

import azure_authorization as roles
import azure_cloud as azure
import azure_lab
import pytest
from azure_lab import Drive

ROOT = pathlib.Path(__file__).resolve().parents[3]
PUT = "PUT .*/roleAssignments/"


@pytest.fixture(name="cloud")
def cloud_fixture():
    with azure.Azure() as cloud:
        yield cloud


def drive(cloud, folder, verb, unattended="refuse", wait="600", role=roles.ROLE, **more):
    spec = azure_lab.spec(folder, nodes=2, offer={"role": role} if role else {}, limits={"unattended": unattended})
    return Drive(azure_lab.environment(cloud, folder, GPUPROV_AZURE_ROLE_WAIT=wait, **more), spec, verb)


def granted(cloud):
    """The scopes of the assignments, each of the right principal and role."""
    by_id = {vm["id"].lower(): vm for vm in cloud.vms()}
    for g in cloud.grants.values():
        p = g["properties"]
        assert p["principalId"] == by_id[p["scope"].lower()]["identity"]["principalId"]
        assert p["roleDefinitionId"].endswith("/" + roles.ROLE)
    return sorted(g["properties"]["scope"].lower() for g in cloud.grants.values())


@pytest.mark.parametrize("fault", ["none", "lost", "new"])
def test_each_node_gets_the_right_over_itself_alone(cloud, tmp_path, fault):
    if fault == "lost":
        cloud.rule(PUT, "drop_after")
    if fault == "new":
        cloud.unknown_principal = 3
    made = drive(cloud, tmp_path, "create")
    assert made.rc == 0, made.text
    assert granted(cloud) == sorted(vm["id"].lower() for vm in cloud.vms()) and len(cloud.grants) == 2
    assert all(r["done"] for r in cloud.rules) and cloud.unknown_principal == 0
    listed = drive(cloud, tmp_path, "list")
    assert sorted(r["kind"] for r in listed["resources"]).count("role-assignment") == 2, listed.text
    assert drive(cloud, tmp_path, "destroy").rc == 0
    azure_lab.clean(cloud)


def test_without_role_nothing_of_it_is_requested(cloud, tmp_path):
    assert drive(cloud, tmp_path, "create", role=None).rc == 0
    assert cloud.requests("Microsoft.Authorization") == [] and all("identity" not in vm for vm in cloud.vms())
    assert drive(cloud, tmp_path, "destroy", role=None).rc == 0
    azure_lab.clean(cloud)


@pytest.mark.parametrize("why", ["denied", "hidden"])
@pytest.mark.parametrize("unattended", ["refuse", "accept"])
def test_an_assignment_that_is_not_read_back_does_not_count(cloud, tmp_path, why, unattended):
    if why == "denied":
        cloud.rule(PUT, "reply", times=None, status=403,
                   obj={"error": {"code": "AuthorizationFailed", "message": "no right"}})
    cloud.hidden_grants = why == "hidden"
    made = drive(cloud, tmp_path, "create", unattended=unattended, wait="0" if why == "hidden" else "600")
    if unattended == "refuse":
        assert made.rc != 0 and "may not delete itself" in made["message"], made.text
        assert all(vm["properties"]["provisioningState"] == "Deleting" for vm in cloud.vms())
    else:
        assert made.rc == 0 and len(cloud.vms()) == 2, made.text
    cloud.hidden_grants = False
    assert drive(cloud, tmp_path, "destroy", unattended=unattended).rc == 0
    azure_lab.clean(cloud)


@pytest.mark.parametrize("actions, words", [(["*"], "allows more"), (roles.ACTIONS[:1], "does not allow"),
                                            ([*roles.ACTIONS, "Microsoft.Compute/virtualMachines/write"], "allows more")])
def test_a_role_that_does_not_fit_is_refused_before_anything_is_bought(cloud, tmp_path, actions, words):
    cloud.role_actions = actions
    made = drive(cloud, tmp_path, "create")
    assert made.rc != 0 and words in made.text and cloud.vms() == [], made.text


def test_an_assignment_left_by_a_node_that_ended_itself_is_listed_and_deleted(cloud, tmp_path):
    assert drive(cloud, tmp_path, "create").rc == 0
    with cloud.lock:
        for group, _, name in [k for k in cloud.things if k[1] == "Microsoft.Compute/virtualMachines"]:
            cloud.drop_vm(group, name)
    left = [r for r in drive(cloud, tmp_path, "list")["resources"] if r["kind"] == "role-assignment"]
    assert [r["state"] for r in left] == ["stopped"] * 2, left
    assert drive(cloud, tmp_path, "destroy").rc == 0
    azure_lab.clean(cloud)


def test_plan_and_policy(cloud, gpuprov, tmp_path):
    gpuprov.env = azure_lab.environment(cloud, tmp_path)
    spec = azure_lab.spec(tmp_path, offer={"role": roles.ROLE}, limits={"unattended": "refuse"})
    assert gpuprov.json("plan", spec, code=2)["ends"] == "guest"
    role = json.loads(gpuprov("providers", "azure", "--policy", "--node", "--owner", "me").out)
    assert role["Actions"] == roles.ACTIONS and role["Name"] == "gpuprov me node"
    assert gpuprov("providers", "google", "--policy", "--node", "--owner", "me", code=None).code != 0


@pytest.mark.parametrize("verb", ["check", "delete"])
def test_the_script_of_the_node(cloud, tmp_path, verb):
    """templates/cloud-init/end-azure.sh itself, with the metadata service and Resource Manager of the stand-in."""
    assert drive(cloud, tmp_path, "create").rc == 0
    before = len(cloud.vms())
    cloud.machine_id = cloud.vms()[0]["id"]
    env = dict(os.environ, METADATA=cloud.url, MANAGER=cloud.url, http_proxy="", no_proxy="*")
    done = subprocess.run(["sh", ROOT / "templates/cloud-init/end-azure.sh", verb], env=env, capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done
    [one] = cloud.requests("(GET|DELETE) .*/%s[?]api-version=2025-04-01" % cloud.machine_id.rsplit("/", 1)[1])[-1:]
    assert one["method"] == {"check": "GET", "delete": "DELETE"}[verb] and before == 2
    cloud.rule("/metadata/identity/", "reply", status=400, obj={"error": "invalid_request"})
    failed = subprocess.run(["sh", ROOT / "templates/cloud-init/end-azure.sh", verb], env=env, capture_output=True,
                            text=True, timeout=60, check=False)
    assert failed.returncode == 1 and "managed identity has no token" in failed.stderr, failed
    assert drive(cloud, tmp_path, "destroy").rc == 0
    azure_lab.clean(cloud)
