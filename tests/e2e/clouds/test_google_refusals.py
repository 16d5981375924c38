# SPDX-License-Identifier: Apache-2.0
"""What the provider google does when Compute Engine refuses, fails later, forgets or cannot see a zone; its offers and
requests. Against a stand-in cloud, by tests/drivers/provider_drive."""
import json
import re
import time

import google_cloud
import pytest
from test_google import contract, drive, write_spec
from test_google import one_cloud  # noqa: F401


def bodies(cloud, pattern="bulkInsert"):
    return [json.loads(r["body"]) for r in cloud.requests("POST .*" + pattern)]


def end(cloud, tmp_path, spec):
    rc, result, _ = drive(cloud, tmp_path, spec, "destroy")
    assert rc == 0, result
    assert cloud.left() == []


# --- refused after it was accepted ---

@pytest.mark.parametrize("leave", [False, True])
def test_no_capacity_in_a_zone_is_the_next_zone(cloud, tmp_path, leave):
    cloud.capacity, cloud.leave = {"us-central1-a": 1}, leave
    spec = write_spec(tmp_path, offer={"instance_type": "g2-standard-4"})
    rc, result, _ = drive(cloud, tmp_path, spec, "create")
    assert rc == 0, result
    assert [(t["zone"], t["result"]) for t in result["tried"][:2]] == [
        ("us-central1-a", "ZONE_RESOURCE_POOL_EXHAUSTED"), ("us-central1-b", "ok")]
    nodes = [r for r in result["resources"] if r["kind"] == "instance"]
    assert [n["zone"] for n in nodes] == ["us-central1-b"] * 2
    assert [i["state"] for i in result["intents"] if i["kind"] == "instance"] == ["failed", "done"]
    # nothing of the refused gang is alive but what is ending
    assert all(vm["ending"] for (zone, _), vm in cloud.instances.items() if zone == "us-central1-a")
    end(cloud, tmp_path, spec)


@pytest.mark.parametrize("code, exit_code, last", [
    ("QUOTA_EXCEEDED", 4, "us-central1-a"), ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", 3, "us-central1-b"),
    ("VM_MIN_COUNT_NOT_REACHED", 3, "us-central1-b"), ("CONDITION_NOT_MET", 1, "us-central1-a"),
    ("SOMETHING_NEW", 1, "us-central1-a")])
def test_an_operation_that_fails(cloud, tmp_path, code, exit_code, last):
    """last: the last zone that is tried."""
    cloud.capacity, cloud.refusal = {"us-central1-a": 0, "us-central1-b": 0}, code
    spec = write_spec(tmp_path, offer={"instance_type": "g2-standard-4"})
    rc, result, _ = drive(cloud, tmp_path, spec, "create")
    assert rc == exit_code and result["tried"][-1] == {"zone": last, "type": "g2-standard-4", "result": code}, result
    end(cloud, tmp_path, spec)


def test_quotas_are_read_before_the_launch(cloud, tmp_path):
    spec = write_spec(tmp_path)
    cloud.quotas["NVIDIA_L4_GPUS"] = 1
    _, result, _ = drive(cloud, tmp_path, spec, "create")
    assert result["code"] == "quota" and "the quota NVIDIA_L4_GPUS is 1, 0 of it in use" in result["message"], result
    cloud.quotas["NVIDIA_L4_GPUS"], cloud.all_gpus = 16, 1
    _, result, _ = drive(cloud, tmp_path, spec, "create")
    assert result["code"] == "quota" and "GPUS_ALL_REGIONS is 1" in result["message"], result
    assert bodies(cloud) == []
    cloud.all_gpus = 64
    spec = write_spec(tmp_path, gpu="H100:8", offer={"market": "spot"})
    _, result, _ = drive(cloud, tmp_path, spec, "create")
    assert "PREEMPTIBLE_NVIDIA_H100_GPUS is 0" in result["message"] and bodies(cloud) == []
    end(cloud, tmp_path, spec)


def test_nodes_without_the_deadline_do_not_stay(cloud, tmp_path):
    cloud.drop_deadline = True
    spec = write_spec(tmp_path)
    rc, result, _ = drive(cloud, tmp_path, spec, "create")
    assert rc != 0 and "do not have the deadline that was requested, so they were deleted" in result["message"], result
    assert all(vm["ending"] for vm in cloud.instances.values()) and len(cloud.instances) == 2
    end(cloud, tmp_path, spec)


def test_the_end_that_a_list_shows_is_googles_not_the_labels(cloud, tmp_path):
    spec = write_spec(tmp_path)
    assert drive(cloud, tmp_path, spec, "create")[0] == 0
    edited, ended = [vm["item"] for _, vm in sorted(cloud.instances.items())]
    edited["labels"]["gpuprov-expires"] = "2020" + edited["labels"]["gpuprov-expires"][4:]
    ended["scheduling"].pop("terminationTime")
    _, result, _ = drive(cloud, tmp_path, spec, "list")
    reasons = {n["id"].split("/")[0]: n["reason"] for n in result["resources"] if n["kind"] == "instance"}
    assert reasons[edited["name"]].endswith("Google deletes it at " + edited["scheduling"]["terminationTime"]), reasons
    assert "Google no longer has its deadline" in reasons[ended["name"]], reasons
    end(cloud, tmp_path, spec)


def test_google_ends_the_nodes_at_their_deadline(cloud, tmp_path):
    spec = write_spec(tmp_path)
    rc, result, _ = drive(cloud, tmp_path, spec, "create")
    assert rc == 0
    until = {n["expires_s"] for n in result["resources"]}
    assert len(until) == 1 and abs(until.pop() - time.time() - 3600) < 60
    cloud.end_expired(time.time() + 3500)
    assert len(cloud.instances) == 2
    cloud.end_expired(time.time() + 3700)
    assert not cloud.instances
    end(cloud, tmp_path, spec)


@pytest.mark.parametrize("status, reason, code, text", [
    (403, "forbidden", "auth", "give this principal the role"), (403, "accessNotConfigured", "auth", "enable the Comp"),
    (401, "authError", "auth", "application-default login"), (403, "quotaExceeded", "quota", "IAM & Admin"),
    (400, "invalid", "usage", "Invalid value")])
def test_a_call_that_is_refused(cloud, tmp_path, status, reason, code, text):
    obj = google_cloud.error(status, reason, "Invalid value for field").obj
    cloud.rule("POST .*bulkInsert", "reply", times=None, status=status, obj=obj)
    spec = write_spec(tmp_path)
    _, result, _ = drive(cloud, tmp_path, spec, "create")
    assert result["code"] == code and text in result["message"] and reason in result["message"], result
    assert [i["state"] for i in result["intents"] if i["kind"] == "instance"][0] == "failed"
    end(cloud, tmp_path, spec)


# --- the rule between the nodes, whose insert is sent side by side with the launch ---

MEMBERS = "POST .*/global/firewalls.*-members"


def test_nodes_whose_rule_is_refused_do_not_stay(cloud, tmp_path):
    """The next launch has the rule first: nothing is bought until there is one."""
    refused = google_cloud.error(403, "quotaExceeded", "Quota 'FIREWALLS' exceeded")
    cloud.rule(MEMBERS, "reply", times=2, status=403, obj=refused.obj)
    spec = write_spec(tmp_path, offer={"regions": ["us-central1", "europe-west4"]})
    _, result, _ = drive(cloud, tmp_path, spec, "create")
    assert result["code"] == "quota" and "firewalls.insert" in result["message"], result
    assert [i["result"] for i in result["tried"]] == ["quotaExceeded"] * 2
    assert len(cloud.requests("POST .*us-central1.*bulkInsert")) == len(cloud.requests("POST .*bulkInsert")) == 1
    assert len(cloud.instances) == 2 and all(vm["ending"] for vm in cloud.instances.values())
    assert [i["state"] for i in result["intents"] if i["kind"] == "instance"] == ["failed"]
    end(cloud, tmp_path, spec)


@pytest.mark.parametrize("action", ["drop_before", "drop_after"])
def test_a_lost_reply_about_the_rule_between_the_nodes(cloud, tmp_path, action):
    cloud.rule(MEMBERS, action)
    spec = write_spec(tmp_path)
    rc, result, _ = drive(cloud, tmp_path, spec, "create")
    assert rc == 0 and len(cloud.requests("POST .*bulkInsert")) == 1, result
    assert len([f for f in cloud.firewalls if f.endswith("-members")]) == 1
    assert "open" not in {i["state"] for i in result["intents"]}, result["intents"]
    end(cloud, tmp_path, spec)


# --- lost, late, forgotten ---

def test_a_launch_that_google_has_forgotten_is_read_back(cloud, tmp_path):
    """The reply is lost, lists lag, and the requestId is no longer known: 409 alreadyExists settles it."""
    cloud.rule("POST .*bulkInsert", "drop_after")
    cloud.rule("GET .*/zones/[^/]*/instances[?]", "edit", times=3, change=lambda r: dict(r, items=[]))
    spec = write_spec(tmp_path)
    real, forgetful = cloud._instances_bulkInsert, []  # pylint: disable=protected-access

    def forget(args, query, body):
        forgetful.append(1)
        return real(args, query, body)
    cloud._instances_bulkInsert = forget  # pylint: disable=protected-access
    ids = cloud.request_ids

    class Forgets(dict):
        def __contains__(self, key):
            return False
    cloud.request_ids = Forgets(ids)
    rc, result, _ = drive(cloud, tmp_path, spec, "create")
    assert rc == 0 and len(forgetful) == 2 and len(cloud.instances) == 2, result
    tokens = {re.search("requestId=([^&]*)", r["target"])[1] for r in cloud.requests("bulkInsert")}
    assert len(tokens) == 1 and len({str(b) for b in bodies(cloud)}) == 1
    cloud.request_ids = {}
    end(cloud, tmp_path, spec)


def test_a_token_that_is_refused_is_renewed_once(cloud, tmp_path):
    expired = google_cloud.error(401, "authError", "Request had invalid authentication credentials.")
    cloud.rule("GET .*/regions/", "reply", status=401, obj=expired.obj)
    spec = write_spec(tmp_path)
    rc, _, _ = drive(cloud, tmp_path, spec, "offers")
    assert rc == 0 and len(cloud.requests("POST /token")) == 2
    cloud.rule("GET .*/regions/", "reply", times=None, status=401, obj=expired.obj)
    rc, result, _ = drive(cloud, tmp_path, spec, "offers")
    assert rc == 5 and result["code"] == "auth" and len(cloud.requests("POST /token")) == 4


def test_labels_written_by_another_meanwhile(cloud, tmp_path):
    """The fingerprint does not fit any more: read again, then written."""
    spec = write_spec(tmp_path)
    assert drive(cloud, tmp_path, spec, "create")[0] == 0
    changed = google_cloud.error(412, "conditionNotMet", "Labels fingerprint either invalid or changed")
    cloud.rule("POST .*setLabels", "reply", status=412, obj=changed.obj)
    end(cloud, tmp_path, spec)
    contract(cloud, tmp_path, spec)


@pytest.mark.parametrize("zone", ["us-central1-b", "europe-west4-a"])
def test_a_zone_that_google_cannot_read(cloud, tmp_path, zone):
    """The list of its region is incomplete, that of another region is not."""
    spec = write_spec(tmp_path)
    assert drive(cloud, tmp_path, spec, "create")[0] == 0
    cloud.unreachable = [zone]
    rc, result, _ = drive(cloud, tmp_path, spec, "list")
    assert len([r for r in result["resources"] if r["kind"] == "instance"]) == 2
    if zone.startswith("us-central1"):
        assert rc != 0 and "a zone could not be read now" in result["message"], result
    else:
        assert rc == 0, result
    cloud.unreachable = []
    end(cloud, tmp_path, spec)


def test_a_stack_in_two_regions(cloud, tmp_path):
    """One claim, and a list of both; a region that the project does not have is not called empty."""
    cloud.capacity = {"us-central1-a": 0, "us-central1-b": 0}
    spec = write_spec(tmp_path, offer={"regions": ["us-central1", "europe-west4"], "instance_type": "g2-standard-4"})
    rc, result, _ = drive(cloud, tmp_path, spec, "create")
    assert rc == 0 and [t["zone"] for t in result["tried"]] == ["us-central1-a", "us-central1-b", "europe-west4-a"]
    rc, result, _ = drive(cloud, tmp_path, spec, "list")
    regions = [(r["kind"], r["region"]) for r in result["resources"]]
    assert rc == 0 and regions.count(("instance", "europe-west4")) == 2 and regions.count(("group", "us-central1")) == 2
    about = [json.loads(f["item"]["description"]) for f in cloud.firewalls.values()]
    assert {a["gpuprov:regions"] for a in about if "gpuprov:claim" in a} == {"europe-west4 us-central1"}
    end(cloud, tmp_path, spec)
    spec = write_spec(tmp_path, offer={"regions": ["us-central1", "us-nowhere1"]})
    rc, result, _ = drive(cloud, tmp_path, spec, "list")
    assert rc != 0 and "has no region 'us-nowhere1'" in result["message"], result


def test_disks_that_remain_are_listed_and_deleted(cloud, tmp_path):
    cloud.keep_disks = True
    spec = write_spec(tmp_path)
    assert drive(cloud, tmp_path, spec, "create")[0] == 0
    cloud.end_expired(time.time() + 3700)
    rc, result, _ = drive(cloud, tmp_path, spec, "list")
    kinds = sorted(r["kind"] for r in result["resources"])
    assert rc == 0 and kinds == ["group", "group", "volume", "volume"], result
    assert all(r["billed"] and r["state"] == "stopped" for r in result["resources"] if r["kind"] == "volume")
    end(cloud, tmp_path, spec)


# --- offers and requests ---

def test_offers(cloud, tmp_path):
    def offers(**how):
        rc, result, _ = drive(cloud, tmp_path, write_spec(tmp_path, **how), "offers")
        assert rc == 0, result
        return result["offers"]
    one = offers(gpu="H100:8", offer={"market": "spot"})
    assert [(o["zone"], o["type"]) for o in one] == [("us-central1-a", "a3-highgpu-8g"),
                                                     ("us-central1-b", "a3-highgpu-8g")]
    assert abs(one[0]["price"] - 50.61) < 10
    assert {o["type"] for o in offers(gpu="A100:1")} == {"a2-highgpu-1g", "a2-ultragpu-1g"}
    assert {o["type"] for o in offers(gpu="A100-80GB:1")} == {"a2-ultragpu-1g"}
    attached = offers(gpu="T4:2")
    assert [(o["zone"], o["type"], o["price"]) for o in attached] == [("us-central1-a", "n1-standard-16", -1)]
    assert {o["zone"] for o in offers(offer={"zones": ["us-central1-b"]})} == {"us-central1-b"}
    assert {o["type"] for o in offers(gpu=None)} == {"e2-medium"}
    assert "arm64" in offers(gpu="GB200:4")[0]["image"]


@pytest.mark.parametrize("how, text", [
    ({"gpu": "B200:8"}, "B200:8 is not sold in any zone"), ({"gpu": "H100:3"}, "H100:3 is not sold"),
    ({"offer": {"zones": ["us-central1-x"]}}, "the zone 'us-central1-x' does not exist"),
    ({"offer": {"regions": ["us-nowhere1"]}}, "the region 'us-nowhere1' does not exist"),
    ({"offer": {"subnet": "absent"}}, "the subnet 'absent' does not exist"),
    ({"access": {"ssh_from": ["2001:db8::/32"]}}, "is an IPv6 network"),
    ({"image": {"id": "projects/ubuntu-os-cloud/global/images/other"}}, "notFound")])
def test_what_is_not_there(cloud, tmp_path, how, text):
    spec = write_spec(tmp_path, **how)
    rc, result, _ = drive(cloud, tmp_path, spec, "create")
    assert rc != 0 and text in result["message"], result
    assert bodies(cloud) == []


def test_the_request_of_a_gang(cloud, tmp_path):
    spec = write_spec(tmp_path, gpu="T4:1", offer={"market": "spot", "subnet": "training",
                                                   "role": "node@proj-1.iam.gserviceaccount.com"})
    assert drive(cloud, tmp_path, spec, "create")[0] == 0
    body = bodies(cloud)[0]
    p = body["instanceProperties"]
    uid = p["labels"]["gpuprov-uid"]
    names = sorted(body["perInstanceProperties"])
    assert body["count"] == body["minCount"] == "2"
    assert [n.rsplit("-", 1)[0] for n in names] == [f"gpuprov-{uid}-0-1", f"gpuprov-{uid}-1-1"]
    assert p["machineType"] == "n1-standard-8"
    assert p["guestAccelerators"] == [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 1}]
    s = p["scheduling"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", s.pop("terminationTime"))
    assert s == {"instanceTerminationAction": "DELETE", "automaticRestart": False, "onHostMaintenance": "TERMINATE",
                 "provisioningModel": "SPOT"}
    disk = p["disks"][0]
    assert disk["autoDelete"] and disk["boot"] and disk["initializeParams"]["labels"] == p["labels"]
    assert disk["initializeParams"]["diskSizeGb"] == "100"
    assert p["networkInterfaces"] == [{"subnetwork": "projects/proj-1/regions/us-central1/subnetworks/training",
                                       "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]}]
    items = {i["key"]: i["value"] for i in p["metadata"]["items"]}
    assert items["ssh-keys"].startswith("gpuprov:ssh-ed25519 ") and items["user-data"].startswith("#cloud-config")
    assert items["block-project-ssh-keys"] == "TRUE" and items["enable-oslogin"] == "FALSE"
    assert p["serviceAccounts"] == [{"email": "node@proj-1.iam.gserviceaccount.com", "scopes": [google_cloud.SCOPE]}]
    rules = {f["item"]["name"]: f["item"] for f in cloud.firewalls.values()}
    members = rules.pop(f"gpuprov-{uid}-members")
    claim = rules.popitem()[1]
    assert p["tags"] == {"items": [f"gpuprov-{uid}"]} and claim["targetTags"] == members["targetTags"] == p["tags"]["items"]
    assert claim["sourceRanges"] == ["203.0.113.0/24"] and claim["allowed"] == [{"IPProtocol": "tcp", "ports": ["22"]}]
    assert members["sourceTags"] == p["tags"]["items"] and members["allowed"] == [{"IPProtocol": "all"}]
    end(cloud, tmp_path, spec)


def offers_of(cloud, tmp_path, **more):
    rc, result, _ = drive(cloud, tmp_path, write_spec(tmp_path, **more), "offers")
    return result["offers"] if rc == 0 else result


def test_the_disk_is_part_of_the_price_where_its_price_is_known(cloud, tmp_path):
    g2 = {"instance_type": "g2-standard-4"}
    plain, big = offers_of(cloud, tmp_path, offer=g2)[0], offers_of(cloud, tmp_path, offer=g2, disk="1000GiB")[0]
    assert big["price"] - plain["price"] == pytest.approx(1000 * 0.10 / 730)
    assert big["price_source"] == plain["price_source"] == "catalogue 2026-08-03"
    for more in ({"offer": {**g2, "regions": ["europe-west4"]}}, {"gpu": "T4:1"}):  # a region, and a sum, without prices
        one = offers_of(cloud, tmp_path, disk="1000GiB", **more)[0]
        assert (one["price"], one["price_source"]) == (-1, "")


def test_the_disk_that_is_requested_is_listed(cloud, tmp_path):
    cloud.keep_disks = True
    spec = write_spec(tmp_path, disk="500GB", nodes=1)  # 10^9 bytes: 466 GiB
    rc, result, _ = drive(cloud, tmp_path, spec, "create")
    assert rc == 0, result
    disk = bodies(cloud)[0]["instanceProperties"]["disks"][0]["initializeParams"]
    assert (disk["diskSizeGb"], disk["diskType"]) == ("466", "pd-balanced")
    cloud.end_expired(time.time() + 3700)
    _, result, _ = drive(cloud, tmp_path, spec, "list")
    assert [r["reason"] for r in result["resources"] if r["kind"] == "volume"] == ["READY, 466 GiB"]
    end(cloud, tmp_path, spec)


def test_a_disk_that_is_smaller_than_the_image_is_refused(cloud, tmp_path):
    result = offers_of(cloud, tmp_path, disk="8GiB")
    assert result["code"] == "usage" and "needs a boot disk of 10 GiB, but 'disk' is 8 GiB" in result["message"], result


def test_a_stack_is_in_one_network(cloud, tmp_path):
    spec = write_spec(tmp_path, offer={"subnet": "apart"})
    assert drive(cloud, tmp_path, spec, "create")[0] == 0
    assert {f["item"]["network"].rsplit("/", 1)[1] for f in cloud.firewalls.values()} == {"other"}
    spec = write_spec(tmp_path)
    rc, result, _ = drive(cloud, tmp_path, spec, "prepare")
    assert rc != 0 and "is in the network 'other', but the spec's nodes are in 'default'" in result["message"], result
    end(cloud, tmp_path, spec)


def test_the_network_of_an_offer(cloud, tmp_path):
    spec = write_spec(tmp_path, offer={"network": "other"})
    assert drive(cloud, tmp_path, spec, "create")[0] == 0
    assert {f["item"]["network"].rsplit("/", 1)[1] for f in cloud.firewalls.values()} == {"other"}
    nic, = bodies(cloud)[0]["instanceProperties"]["networkInterfaces"]
    assert nic["network"] == "projects/proj-1/global/networks/other" and "subnetwork" not in nic
    end(cloud, tmp_path, spec)
    spec = write_spec(tmp_path, offer={"network": "other", "subnet": "apart"})
    assert drive(cloud, tmp_path, spec, "create")[0] == 0
    nic, = bodies(cloud)[1]["instanceProperties"]["networkInterfaces"]
    assert nic["subnetwork"].endswith("/apart") and "network" not in nic
    end(cloud, tmp_path, spec)


def test_a_network_that_does_not_fit(cloud, tmp_path):
    for offer, text in (({"network": "other", "subnet": "training"}, "is in the network 'default', but 'network' is 'other'"),
                        ({"network": "nowhere"}, "networks/x' was not found")):
        rc, result, _ = drive(cloud, tmp_path, write_spec(tmp_path, offer=offer), "create")
        assert rc != 0 and text in result["message"], result
    assert bodies(cloud) == [] and cloud.left() == []
