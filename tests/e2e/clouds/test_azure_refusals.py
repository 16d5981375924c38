# SPDX-License-Identifier: Apache-2.0
"""What Azure refuses, at once and after it had accepted; quotas; what a hostile account can put into replies."""
import azure_cloud as azure
import azure_lab
import pytest
from azure_lab import Drive


@pytest.fixture(name="cloud")
def cloud_fixture():
    with azure.Azure() as cloud:
        yield cloud


def drive(cloud, folder, *args, env=None, **spec):
    return Drive(azure_lab.environment(cloud, folder, **(env or {})), azure_lab.spec(folder, **spec), *args)


def end(cloud, folder, **spec):
    got = drive(cloud, folder, "destroy", **spec)
    assert got.rc == 0, got.text
    azure_lab.clean(cloud)


def test_operations_are_polled_at_the_pace_that_azure_names(cloud, tmp_path):
    """Its limits are per subscription and resource, so that Retry-After counts for each operation."""
    cloud.after, cloud.ready_after = "1", 2
    assert drive(cloud, tmp_path, "create", nodes=1).rc == 0
    [launch] = cloud.requests("PUT .*/virtualMachines/")
    at = {}
    for r in cloud.requests("GET .*/operations/"):
        at.setdefault(r["target"], [launch["at"]]).append(r["at"])
    polled = [times for times in at.values() if times[1] > launch["at"]]
    assert polled and all(len(t) > 2 and min(b - a for a, b in zip(t, t[1:])) > 0.99 for t in polled), at
    end(cloud, tmp_path, nodes=1)


@pytest.mark.parametrize("code", ["AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest"])
def test_no_capacity_after_acceptance(cloud, tmp_path, code):
    """The failed machines are removed, and the next zone is tried: three zones, then it is given up."""
    cloud.fail_size = {"Standard_NC4as_T4_v3": code}
    got = drive(cloud, tmp_path, "create")
    assert got.rc == 3, got.text
    tried = [(t["zone"], t["result"]) for t in got["tried"]]
    assert tried == [("eastus-1", code), ("eastus-2", code), ("eastus-3", code)]
    assert len(cloud.requests("PUT .*/virtualMachines/")) == 6
    assert len(cloud.requests("DELETE .*/virtualMachines/.*forceDeletion=true")) == 6
    end(cloud, tmp_path)


def test_half_a_gang_is_placed(cloud, tmp_path):
    """One of two fails after acceptance: it is removed, and the other one is reported and in the journal."""
    cloud.fail_name = {"contract-1-": "AllocationFailed"}
    got = drive(cloud, tmp_path, "create", offer={"zones": ["eastus-1"]})
    assert got.rc == 3 and [t["result"] for t in got["tried"]] == ["AllocationFailed"], got.text
    [made] = got["resources"]
    assert made["slot"] == 0 and made["state"] == "running"
    assert {i["state"] for i in got["intents"] if i["kind"] == "instance"} == {"done", "failed"}
    assert len(cloud.requests("DELETE .*/virtualMachines/gpuprov-contract-1-1")) == 1
    end(cloud, tmp_path)


@pytest.mark.parametrize("status, code, message, rc, words", [
    (409, "SkuNotAvailable", "The requested VM size is not available.", 3, "SkuNotAvailable"),
    (409, "OperationNotAllowed", "Operation could not be completed as it results in exceeding approved T4 Cores quota.", 4,
     "Quotas page"),
    (409, "OperationNotAllowed", "This is not allowed here.", 1, "This is not allowed here"),
    (409, "MissingSubscriptionRegistration", "The subscription is not registered.", 5, "az provider register"),
    (403, "AuthorizationFailed", "The client does not have authorization.", 5, "--policy"),
    (403, "RequestDisallowedByPolicy", "Disallowed.", 5, "policy of the subscription"),
    (409, "ReadOnlyDisabledSubscription", "Disabled.", 4, "payment"),
    (400, "NobodyKnowsThis", "Strange.", 1, "NobodyKnowsThis"),
])
def test_a_refusal_at_once(cloud, tmp_path, status, code, message, rc, words):
    cloud.refuse_size = {"Standard_NC4as_T4_v3": (status, code, message)}
    got = drive(cloud, tmp_path, "create")
    assert got.rc == rc and words in got["message"], got.text
    assert cloud.vms() == []
    end(cloud, tmp_path)


@pytest.mark.parametrize("market, family", [("on-demand", "Standard NCASv3_T4 Family"), ("spot", "lowPriorityCores")])
def test_too_little_quota(cloud, tmp_path, market, family):
    """It is found before anything is created: two nodes of 4 vCPUs, quota 7."""
    cloud.quota = {family: 7}
    got = drive(cloud, tmp_path, "create", offer={"market": market})
    assert got.rc == 4 and "7 of 7 left" in got["message"] and "8 vCPUs" in got["message"], got.text
    assert cloud.requests("PUT .*/providers/") == []
    cloud.quota = {family: 8}
    assert drive(cloud, tmp_path, "create", offer={"market": market}).rc == 0
    end(cloud, tmp_path)


def test_offers(cloud, tmp_path):
    """Zones, prices and their source; Windows, low priority and other products are not the price."""
    cloud.page = 2
    got = drive(cloud, tmp_path, "offers")
    assert [(o["zone"], o["price"]) for o in got["offers"]] == [("eastus-1", 0.53), ("eastus-2", 0.53), ("eastus-3", 0.53)], got.text
    assert len(cloud.requests("GET /api/retail")) >= 2
    got = drive(cloud, tmp_path, "offers", offer={"market": "spot"})
    assert {o["price"] for o in got["offers"]} == {0.21}
    cloud.rule("/api/retail", "reply", status=500, times=None)
    got = drive(cloud, tmp_path, "offers")
    assert {o["price"] for o in got["offers"]} == {0.526}  # the catalogue's
    got = drive(cloud, tmp_path, "offers", gpu="H100-NVL:1")
    assert [(o["type"], o["zone"]) for o in got["offers"]] == [("Standard_NC40ads_H100_v5", "")]


@pytest.mark.parametrize("spec, words", [
    ({"gpu": "H100:3"}, "it has them in: 8"),
    ({"gpu": "B200:8"}, "no size with a GPU 'B200'"),
    ({"gpu": "T4:1", "offer": {"instance_type": "Standard_ND96isr_H100_v5"}}, "has 8 x H100, but gpu is T4:1"),
    ({"gpu": "A10:1", "offer": {"instance_type": "Standard_NV36ads_A10_v5"}}, "GRID driver"),
    ({"gpu": "T4:1", "offer": {"instance_type": "Standard_Nothing"}}, "no size 'Standard_Nothing'"),
    ({"gpu": "T4:1", "offer": {"zones": ["eastus-7"]}}, "not sold in the requested zones"),
    ({"gpu": None, "offer": {"market": "spot"}}, "sells none of the small sizes"),
])
def test_offers_that_do_not_exist(cloud, tmp_path, spec, words):
    got = drive(cloud, tmp_path, "offers", **spec)
    assert got.rc != 0 and words in got["message"], got.text


def test_a_size_that_the_subscription_may_not_have(cloud, tmp_path):
    cloud.restricted = {"Standard_ND96isr_H100_v5"}
    got = drive(cloud, tmp_path, "offers", gpu="H100:8")
    assert got.rc == 4 and "NotAvailableForSubscription" in got["message"], got.text


def test_a_group_of_somebody_else(cloud, tmp_path):
    """The name is taken: nothing is written there, and nothing of it is ended."""
    name = "gpuprov-%s-contract" % azure.PRINCIPAL
    cloud.groups[name] = {"id": "/subscriptions/%s/resourceGroups/%s" % (azure.SUBSCRIPTION, name), "name": name,
                          "location": "eastus", "tags": {"team": "ours"}, "type": "Microsoft.Resources/resourceGroups",
                          "properties": {"provisioningState": "Succeeded"}}
    got = drive(cloud, tmp_path, "create")
    assert got.rc != 0 and "no tags of gpuprov" in got["message"], got.text
    assert cloud.requests("^(PUT|PATCH|DELETE)") == []
    assert drive(cloud, tmp_path, "destroy").rc == 0
    assert list(cloud.groups) == [name]


def test_a_foreign_resource_keeps_the_group(cloud, tmp_path):
    """The machines end, the group stays with what is not gpuprov's, and the error names it."""
    assert drive(cloud, tmp_path, "create").rc == 0
    [group] = cloud.groups
    cloud.put_thing(group, "Microsoft.Storage/storageAccounts", "precious", {"location": "eastus"})
    got = drive(cloud, tmp_path, "destroy")
    assert got.rc != 0 and "Microsoft.Storage/storageAccounts 'precious'" in got["message"], got.text
    assert group in cloud.groups and (group, "Microsoft.Storage/storageAccounts", "precious") in cloud.things
    del cloud.things[group, "Microsoft.Storage/storageAccounts", "precious"]
    end(cloud, tmp_path)


def test_a_later_stack_of_the_same_name_is_left_alone(cloud, tmp_path):
    """The journal knows machines of a stack that has ended; another machine has made it anew with the same names."""
    assert drive(cloud, tmp_path, "create").rc == 0
    [group] = cloud.groups
    cloud.groups[group]["tags"]["gpuprov:uid"] = "f" * 16
    for vm in cloud.vms():
        vm["tags"]["gpuprov:uid"] = "f" * 16
    listed = drive(cloud, tmp_path, "list")
    assert {r["uid"] for r in listed["resources"]} == {"f" * 16}
    before = len(cloud.requests("^DELETE"))
    assert all(r["id"].endswith("@" + "f" * 16) for r in listed["resources"])
    assert before == 0
    end(cloud, tmp_path)


def hostile_vm(cloud, **change):
    vm = cloud.vms()[0]
    for key, value in change.items():
        vm[key] = value


@pytest.mark.parametrize("identity", [
    "/subscriptions/%s/resourceGroups/x/../../../y" % azure.SUBSCRIPTION,
    "/subscriptions/99999999-9999-9999-9999-999999999999/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v",
    "/subscriptions/%s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v%%2f..\x07" % azure.SUBSCRIPTION,
    "", "https://192.0.2.1/"])
def test_ids_that_are_not_ids(cloud, tmp_path, identity):
    assert drive(cloud, tmp_path, "create").rc == 0
    mine = cloud.vms()[0]["id"]
    cloud.rule("GET .*/virtualMachines[?]", "edit", times=None,
               change=lambda o: {"value": [dict(v, id=identity) if v["id"] == mine else v for v in o["value"]]})
    got = drive(cloud, tmp_path, "list")
    assert got.rc != 0 and "not that of a virtual machine" in got["message"] and "\x07" not in got.text, got.text
    cloud.rules.clear()
    end(cloud, tmp_path)


def test_replies_that_steer_and_numbers_out_of_range(cloud, tmp_path):
    assert drive(cloud, tmp_path, "create").rc == 0
    hostile_vm(cloud, zones=["\x1b[31m"], location="eastus")
    cloud.vms()[1]["tags"]["gpuprov:slots"] = "99999999999999999999+1"
    cloud.rule("GET .*/publicIPAddresses", "edit", times=None, change=lambda o: {"value": [
        dict(v, properties={"ipAddress": "203.0.113.1; rm -rf /"}) for v in o["value"]]})
    got = drive(cloud, tmp_path, "list")
    assert got.rc == 0 and "\x1b" not in got.text and "rm -rf" not in got.text, got.text
    nodes = [r for r in got["resources"] if r["kind"] == "instance"]
    assert sorted(n["slot"] for n in nodes) == [-1, 0] and {n["public_ip"] for n in nodes} == {""}
    cloud.rules.clear()
    end(cloud, tmp_path)


@pytest.mark.parametrize("where", ["operation", "nextLink"])
def test_another_host_gets_no_token(cloud, tmp_path, where):
    with azure.Azure() as elsewhere:
        if where == "operation":
            cloud.ready_after = 2
            real = cloud.begin
            cloud.begin = lambda done, fail=None: real(done, fail).replace(cloud.url, elsewhere.url)
            cloud.operations_elsewhere = True
            assert drive(cloud, tmp_path, "create").rc == 0  # the machine itself is read instead
        else:
            cloud.rule("GET .*/skus", "edit", times=None, change=lambda o: dict(o, nextLink=elsewhere.url + "/next"))
            got = drive(cloud, tmp_path, "create")
            assert got.rc != 0 and "another server" in got["message"], got.text
        assert elsewhere.log == []
    cloud.begin = azure.Azure.begin.__get__(cloud)
    end(cloud, tmp_path)


def test_another_runs_machine_with_our_name(cloud, tmp_path):
    """A lost race of two claims: the name of the machine is taken, its uid is another one's."""
    def foreign(o):
        return dict(o, tags=dict(o["tags"], **{"gpuprov:uid": "e" * 16}))
    cloud.rule("PUT .*/virtualMachines/", "reply", times=None, status=412,
               obj={"error": {"code": "PreconditionFailed", "message": "The condition was not satisfied."}})
    cloud.rule("GET .*/virtualMachines/[^/]*[?].*expand", "reply", times=None, status=200, obj=foreign(
        {"id": "/subscriptions/%s/resourceGroups/gpuprov-%s-contract/providers/Microsoft.Compute/virtualMachines/"
               "gpuprov-contract-0-1" % (azure.SUBSCRIPTION, azure.PRINCIPAL), "location": "eastus", "tags": {}}))
    got = drive(cloud, tmp_path, "create")
    assert got["code"] == "reach" and "another run" in got["message"] and len(got["tried"]) == 1, got.text
    assert cloud.requests("DELETE") == []
    cloud.rules.clear()
    end(cloud, tmp_path)


def test_a_failure_without_its_operation(cloud, tmp_path):
    """The reply of the request is lost: the machine's own view has the reason."""
    cloud.fail_name = {"contract-0-": "ZonalAllocationFailed"}
    cloud.rule("PUT .*/virtualMachines/gpuprov-contract-0", "drop_after")
    got = drive(cloud, tmp_path, "create", nodes=1, offer={"zones": ["eastus-1"]})
    assert got.rc == 3 and [t["result"] for t in got["tried"]] == ["ZonalAllocationFailed"], got.text
    end(cloud, tmp_path)


@pytest.mark.parametrize("power, state, billed", [("stopped", "stopped", True), ("deallocated", "stopped", True),
                                                  ("starting", "pending", True), ("running", "running", True)])
def test_power_states(cloud, tmp_path, power, state, billed):
    """A poweroff, and an eviction that deallocates, are not ends."""
    assert drive(cloud, tmp_path, "create", nodes=1).rc == 0
    cloud.vms()[0]["_power"] = power
    [node] = [r for r in drive(cloud, tmp_path, "list", nodes=1)["resources"] if r["kind"] == "instance"]
    assert (node["state"], node["billed"]) == (state, billed)
    end(cloud, tmp_path, nodes=1)


def test_a_disk_that_is_left_behind(cloud, tmp_path):
    """Its machine has gone without it: it is listed as billed, and ended alone."""
    assert drive(cloud, tmp_path, "create", nodes=1).rc == 0
    [disk] = [t for k, t in cloud.things.items() if k[1] == "Microsoft.Compute/disks"]
    disk["managedBy"], disk["_vm"] = None, "nothing"
    del disk["managedBy"]
    [listed] = [r for r in drive(cloud, tmp_path, "list", nodes=1)["resources"] if r["kind"] == "volume"]
    assert listed["state"] == "stopped" and listed["billed"] is True
    end(cloud, tmp_path, nodes=1)


@pytest.mark.parametrize("change", ["subscription", "endpoint"])
def test_a_404_of_something_else_proves_no_absence(cloud, tmp_path, change):
    """Nodes exist; a wrong subscription, or a server that is not Azure, must not read as "nothing is there"."""
    assert drive(cloud, tmp_path, "create", nodes=1).rc == 0
    env = {}
    if change == "subscription":
        env["AZURE_SUBSCRIPTION_ID"] = "55555555-5555-5555-5555-555555555555"
    else:
        cloud.rule("GET .*/resourcegroups/", "reply", status=404, obj={"what": "nginx"})
    got = drive(cloud, tmp_path, "list", env=env, nodes=1)
    assert got.rc != 0 and ("SubscriptionNotFound" in got["message"] or "HTTP 404" in got["message"]), got.text
    end(cloud, tmp_path, nodes=1)
