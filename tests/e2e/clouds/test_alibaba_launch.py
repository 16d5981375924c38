# SPDX-License-Identifier: Apache-2.0
"""What only Alibaba Cloud has: stock and prices, own networks, the deadline that is read back, leftovers, its errors,
and replies that no cloud should send."""
import base64
import time

import alibaba
import pytest
from alibaba_lab import Drive, environment, query, spec


@pytest.fixture(name="cloud")
def cloud_fixture():
    with alibaba.Alibaba() as cloud:
        yield cloud
        assert cloud.sound() is True


# --- offers ---

def test_offers_are_types_with_stock_and_a_price(tmp_path, cloud):
    cloud.stock["ecs.gn6i-c4g1.xlarge", "ap-southeast-1a"] = 0
    cloud.stock["ecs.gn6i-c8g1.2xlarge", "ap-southeast-1b"] = 3  # the last ones
    offers = Drive(environment(cloud, tmp_path), spec(tmp_path, "on-demand"), "offers")["offers"]
    found = {(o["type"], o["zone"]): o for o in offers}
    assert set(found) == {("ecs.gn6i-c4g1.xlarge", "ap-southeast-1b"), ("ecs.gn6i-c8g1.2xlarge", "ap-southeast-1a"),
                          ("ecs.gn6i-c8g1.2xlarge", "ap-southeast-1b")}, "slices and other counts are not offers"
    assert found["ecs.gn6i-c4g1.xlarge", "ap-southeast-1b"]["price"] == 1.25
    assert all("20261001" in o["image"] for o in offers), "the newest image of the family"


def test_spot_price_is_the_newest_of_the_zone(tmp_path, cloud):
    offers = Drive(environment(cloud, tmp_path), spec(tmp_path), "offers")["offers"]
    prices = {o["zone"]: o["price"] for o in offers if o["type"] == "ecs.gn6i-c4g1.xlarge"}
    assert prices == {"ap-southeast-1a": 0.375, "ap-southeast-1b": 0.5}


def test_memory_in_the_model_is_compared(tmp_path, cloud):
    found = Drive(environment(cloud, tmp_path), spec(tmp_path, gpu="V100-32GB:1"), "offers")["offers"]
    assert {o["type"] for o in found} == {"ecs.gn6e-c12g1.3xlarge"}


def test_price_in_another_currency_is_converted(tmp_path, cloud):
    """For the order and the limits; the limit that is sent is in the currency of the account."""
    def price(currency, market):
        cloud.currency = currency
        run = Drive(environment(cloud, tmp_path), spec(tmp_path, market, offer={"instance_type": "ecs.gn6i-c4g1.xlarge"}), "offers")
        return run["offers"][0]["price"]
    rate = price("CNY", "on-demand") / price("USD", "on-demand")
    assert 0.1 < rate < 0.2 and price("CNY", "spot") == pytest.approx(rate * price("USD", "spot"))
    assert price("XTS", "spot") < 0, "a currency without a rate"
    cloud.currency = "CNY"
    text = spec(tmp_path, limits={"ttl": "4h", "max_price": "0.9 USD/h"})
    assert Drive(environment(cloud, tmp_path), text, "create").rc == 0
    assert float(query(cloud.actions("RunInstances")[0])["SpotPriceLimit"]) == pytest.approx(0.9 / rate, rel=1e-3)


def test_catalogue_where_there_is_no_price(tmp_path, cloud):
    cloud.rule("DescribePrice", "reply", times=None, status=403,
               obj={"Code": "Forbidden.RAM", "Message": "User not authorized", "RequestId": "1"})
    offers = Drive(environment(cloud, tmp_path), spec(tmp_path, "on-demand"), "offers")["offers"]
    small = [o for o in offers if o["type"] == "ecs.gn6i-c4g1.xlarge"]
    assert [o["price"] for o in small] == [1.253, 1.253]


@pytest.mark.parametrize("market", ["spot", "on-demand"])
def test_the_disk_is_part_of_the_price(tmp_path, cloud, market):
    """DescribePrice has it in its sum; to a spot price it is added."""
    env, one = environment(cloud, tmp_path), {"instance_type": "ecs.gn6i-c4g1.xlarge"}
    plain = Drive(env, spec(tmp_path, market, offer=one), "offers")["offers"][0]
    big = Drive(env, spec(tmp_path, market, offer=one, disk="1000GiB"), "offers")["offers"][0]
    assert big["price"] - plain["price"] == pytest.approx(
        alibaba.DISK_PRICE * (1000 if market == "spot" else 1000 - 100))
    cloud.currency = "CNY"
    converted = Drive(env, spec(tmp_path, market, offer=one, disk="1000GiB"), "offers")["offers"][0]
    assert 0.1 < converted["price"] / big["price"] < 0.2


def test_without_the_price_of_the_disk_there_is_no_price(tmp_path, cloud):
    """Neither the spot price alone nor the catalogue's is a node's."""
    cloud.rule("DescribePrice", "reply", times=None, status=403,
               obj={"Code": "Forbidden.RAM", "Message": "User not authorized", "RequestId": "1"})
    for market in ("spot", "on-demand"):
        offers = Drive(environment(cloud, tmp_path), spec(tmp_path, market, disk="500GiB"), "offers")["offers"]
        assert offers and all((o["price"], o["price_source"]) == (-1, "") for o in offers)


@pytest.mark.parametrize("disk, gib", [("500GB", 466), ("25GiB", 25)])
def test_the_disk_that_is_requested_is_listed(tmp_path, cloud, disk, gib):
    text = spec(tmp_path, nodes=1, disk=disk)
    assert Drive(environment(cloud, tmp_path), text, "create").rc == 0
    q = query(cloud.actions("RunInstances")[0])
    assert (q["SystemDisk.Size"], q["SystemDisk.Encrypted"]) == (str(gib), "true")
    volume, = Drive(environment(cloud, tmp_path), text, "list").of_kind("volume")
    assert volume["reason"] == f"In_use, {gib} GiB"


@pytest.mark.parametrize("disk, image, words", [
    ("3TiB", None, "at most 2048 GiB, but 'disk' is 3072 GiB"),
    ("100GiB", {"id": "m-image0001"}, "needs a system disk of 200 GiB, but 'disk' is 100 GiB"),
    ("10GiB", None, "needs a system disk of 20 GiB, but 'disk' is 10 GiB"),
])
def test_a_disk_that_does_not_fit_is_refused(tmp_path, cloud, disk, image, words):
    run = Drive(environment(cloud, tmp_path), spec(tmp_path, disk=disk, image=image), "create")
    assert run["code"] == "usage" and words in run["message"], run["message"]
    assert cloud.instances == {}


@pytest.mark.parametrize("what, words", [
    ({"gpu": "H100:8"}, "no type with 8 x H100"), ({"gpu": "T4:3"}, "no type with 3 x T4"),
    ({"gpu": None, "offer": {"instance_type": "ecs.gn9.none"}}, "no instance type 'ecs.gn9.none'"),
    ({"gpu": "T4:2", "offer": {"instance_type": "ecs.gn6i-c4g1.xlarge"}}, "has 1 x NVIDIA T4, but gpu is T4:2"),
    ({"image": {"id": "m-image9999"}}, "no image 'm-image9999'"),
    ({"offer": {"subnet": "vsw-none00001"}}, "no VSwitch 'vsw-none00001'"),
])
def test_no_offer_names_the_reason(tmp_path, cloud, what, words):
    run = Drive(environment(cloud, tmp_path), spec(tmp_path, **what), "offers")
    assert run.rc == 1 and words in run["message"], run["message"]


def test_sold_out_everywhere(tmp_path, cloud):
    for place in cloud.stock:
        cloud.stock[place] = 0
    run = Drive(environment(cloud, tmp_path), spec(tmp_path), "offers")
    assert run.rc == 3 and run["code"] == "capacity" and "sold out" in run["message"]


# --- the launch ---

def test_request_of_a_gang(tmp_path, cloud):
    text = spec(tmp_path, limits={"ttl": "4h", "max_price": "0.9 USD/h"}, offer={"role": "gpu-node"})
    run = Drive(environment(cloud, tmp_path), text, "create")
    assert run.rc == 0, run.text
    launch, = cloud.actions("RunInstances")
    q = query(launch)
    assert (q["Amount"], q["MinAmount"], q["SpotStrategy"], q["SpotPriceLimit"]) == ("2", "2", "SpotWithPriceLimit", "0.9")
    assert q["SystemDisk.Encrypted"] == "true" and q["HttpTokens"] == "required" and q["RamRoleName"] == "gpu-node"
    assert q["InternetMaxBandwidthOut"] == "100" and len(q["ClientToken"]) == 64 and "KeyPairName" not in q
    assert base64.b64decode(q["UserData"]) and "UserData" in launch["body"] and "UserData" not in launch["target"]
    assert sorted(one["name"] for one in cloud.instances.values()) == ["gpuprov-contract-0000", "gpuprov-contract-0001"]
    assert all(len(one["tags"]) <= 20 and one["tags"]["gpuprov:slots"] == "0+2" for one in cloud.instances.values())
    group, = cloud.groups.values()
    assert [(r["PortRange"], r["SourceCidrIp"]) for r in group["rules"]] == [("22/22", "203.0.113.0/24")]
    (_, name), = cloud.pairs
    assert name.startswith("gpuprov-contract-") and cloud.pairs[alibaba.REGION, name]["tags"]["gpuprov:claim"] == "1"
    assert Drive(environment(cloud, tmp_path), text, "destroy").rc == 0
    assert cloud.left() == []


def test_an_image_has_its_size_and_its_way_to_metadata(tmp_path, cloud):
    text = spec(tmp_path, image={"id": "m-image0001"}, nodes=1)
    assert Drive(environment(cloud, tmp_path), text, "create").rc == 0
    q = query(cloud.actions("RunInstances")[0])
    assert (q["ImageId"], q["HttpTokens"], q["SystemDisk.Size"]) == ("m-image0001", "optional", "200")


def test_calls_before_the_launch(tmp_path, cloud):
    """Round trips of a launch; calls that run side by side count once."""
    assert Drive(environment(cloud, tmp_path), spec(tmp_path), "create").rc == 0
    before = [r["headers"]["x-acs-action"] for r in cloud.log]
    before = before[:before.index("RunInstances")]
    rounds = ["GetCallerIdentity", "ImportKeyPair", {"DescribeInstanceTypes", "DescribeAvailableResource", "DescribeImages",
                                                     "DescribeVSwitches", "DescribeSpotPriceHistory", "DescribeAccountAttributes"},
              "CreateSecurityGroup", "AuthorizeSecurityGroup"]
    for one in rounds:
        while before and before[0] in ({one} if isinstance(one, str) else one):
            before.pop(0)
    assert before == []


@pytest.mark.parametrize("market", ["spot", "on-demand"])
def test_prices_are_read_with_the_types(tmp_path, market):
    """By the catalogue's names: each once, and those that the region does not sell leave nothing."""
    for latency in (0.4, 2):  # long beside what a machine needs to send them; the second where a busy one needed longer
        with alibaba.Alibaba(latency=latency) as cloud:
            found = Drive(environment(cloud, tmp_path), spec(tmp_path, market), "offers")["offers"]
            assert found and all(o["price"] > 0 and "catalogue" not in o["price_source"] for o in found)
            reads = cloud.actions("DescribeInstanceTypes", "DescribeAvailableResource", "DescribeImages", "DescribeVSwitches",
                                  "DescribeAccountAttributes", "DescribePrice", "DescribeSpotPriceHistory")
            asked = [query(r)["InstanceType"] for r in cloud.actions("DescribePrice", "DescribeSpotPriceHistory")]
            assert len(asked) == len(set(asked)) > len({o["type"] for o in found})
        if side_by_side := max(r["at"] for r in reads) < min(r["end"] for r in reads):
            break
    assert side_by_side, reads


def test_a_price_has_the_disk_that_the_image_needs(tmp_path, cloud):
    """The size of the image is known only after the first prices were read."""
    text = spec(tmp_path, "on-demand", image={"id": "m-image0001"}, offer={"instance_type": "ecs.gn6i-c4g1.xlarge"})
    found = Drive(environment(cloud, tmp_path), text, "offers")["offers"]
    assert found and all(o["price"] == pytest.approx(1.25 + 100 * alibaba.DISK_PRICE) for o in found)
    assert [query(r)["SystemDisk.Size"] for r in cloud.actions("DescribePrice")] == ["100", "200"]
    assert {query(r)["ImageId"] for r in cloud.actions("DescribePrice")} == {"m-image0001"}


def test_a_type_that_the_catalogue_lacks_has_a_price(tmp_path, cloud, monkeypatch):
    monkeypatch.setitem(alibaba.TYPES, "ecs.gn99-new.xlarge", (1, "NVIDIA T4", 16, 2, 8, 0.7))
    cloud.stock["ecs.gn99-new.xlarge", alibaba.ZONES[0]] = 5
    found = Drive(environment(cloud, tmp_path), spec(tmp_path, "on-demand"), "offers")["offers"]
    new, = [o for o in found if o["type"] == "ecs.gn99-new.xlarge"]
    assert new["price"] == pytest.approx(0.7) and new["price_source"].startswith("DescribePrice")


def test_slots_are_those_of_the_names_not_of_the_order(tmp_path, cloud):
    cloud.order_ids = False
    env, text = environment(cloud, tmp_path), spec(tmp_path, nodes=5)
    run = Drive(env, text, "create")
    assert run.rc == 0, run.text
    want = {iid: int(one["name"][-4:]) for iid, one in cloud.instances.items()}
    assert {r["id"]: r["slot"] for r in run.of_kind("instance")} == want
    assert {r["id"]: r["slot"] for r in Drive(env, text, "list").of_kind("instance")} == want


def test_no_stock_in_one_zone_is_the_next_zone(tmp_path, cloud):
    cloud.rule("RunInstances.*ap-southeast-1a", "reply", times=None, status=403,
               obj={"Code": "OperationDenied.NoStock", "Message": "sold out", "RequestId": "1"})
    run = Drive(environment(cloud, tmp_path), spec(tmp_path), "create")
    assert run.rc == 0 and {r["zone"] for r in run.of_kind("instance")} == {"ap-southeast-1b"}


@pytest.mark.parametrize("code, rc, name, scope", [
    ("QuotaExceed.ElasticQuota", 4, "quota", 2), ("InvalidAccountStatus.NotEnoughBalance", 4, "money", 4),
    ("Forbidden.RAM", 5, "auth", 4), ("InvalidInstanceType.ZoneNotSupported", 1, "usage", 1),
    ("OperationDenied", 3, "capacity", 1),
])
def test_refusals_have_their_scope(tmp_path, cloud, code, rc, name, scope):
    cloud.rule("RunInstances", "reply", times=None, status=403,
               obj={"Code": code, "Message": "the resource is out of usage", "RequestId": "1"})
    run = Drive(environment(cloud, tmp_path), spec(tmp_path), "create")
    assert (run.rc, run["code"], run["scope"], run["detail"]) == (rc, name, scope, code)
    assert cloud.instances == {}


@pytest.mark.parametrize("market, name, other", [("spot", "max-spot-instance-vcpu-count", "postpaid"),
                                                 ("on-demand", "max-postpaid-instance-vcpu-count", "spot")])
def test_quota_is_checked_before_the_launch(tmp_path, cloud, market, name, other):
    """Two nodes of 4 vCPUs fit into a quota of 8, with 4 of them in use they do not."""
    env, one = environment(cloud, tmp_path), {"instance_type": "ecs.gn6i-c4g1.xlarge"}
    text = spec(tmp_path, market, offer=one)
    cloud.vcpus = dict.fromkeys(cloud.vcpus, 8)
    cloud.vcpus[other] = 0
    assert Drive(env, text, "create").rc == 0
    assert Drive(env, text, "destroy").rc == 0
    cloud.vcpus = dict.fromkeys(cloud.vcpus, 4)
    calls = len(cloud.actions("RunInstances", "CreateSecurityGroup"))
    run = Drive(env, text, "create")
    assert (run.rc, run["code"], run["scope"]) == (4, "quota", 2)
    assert f"the quota {name} is 4 vCPUs, 0 of them in use, and 2 x ecs.gn6i-c4g1.xlarge need 8" in run["message"]
    assert len(cloud.actions("RunInstances", "CreateSecurityGroup")) == calls and cloud.instances == {}
    assert Drive(env, text, "destroy").rc == 0


@pytest.mark.parametrize("answer", [
    {"status": 403, "obj": {"Code": "Forbidden.RAM", "Message": "User not authorized", "RequestId": "1"}},
    {"status": 200, "obj": {"RequestId": "1", "AccountAttributeItems": {"AccountAttributeItem": [
        {"AttributeName": "max-spot-instance-vcpu-count", "AttributeValues": {"ValueItem": [{"Value": "-1"}]}}]}}},
])
def test_quota_that_cannot_be_read_is_left_to_the_launch(tmp_path, cloud, answer):
    cloud.rule("DescribeAccountAttributes", "reply", times=None, **answer)
    run = Drive(environment(cloud, tmp_path), spec(tmp_path), "create")
    assert run.rc == 0 and len(cloud.instances) == 2, run.text
    reads = len(cloud.actions("DescribeAccountAttributes"))
    assert reads == (2 if answer["status"] == 403 else 1), "with the offers, and again before the launch where that failed"


def test_lost_reply_of_a_launch_makes_no_second_gang(tmp_path, cloud):
    cloud.rule("RunInstances", "drop_after")
    run = Drive(environment(cloud, tmp_path), spec(tmp_path), "create")
    assert run.rc == 0 and len(cloud.instances) == 2


# --- the deadline ---

def test_deadline_is_read_back(tmp_path, cloud):
    run = Drive(environment(cloud, tmp_path), spec(tmp_path), "create")
    assert run.rc == 0
    for one in cloud.instances.values():
        expires = one["tags"]["gpuprov:expires"]
        assert one["release"].endswith(":00Z") and 0 <= seconds(one["release"]) - seconds(expires) < 60
    after = [r for r in cloud.log if r["headers"].get("x-acs-action") in ("RunInstances", "DescribeInstances")]
    assert any("InstanceIds" in r["target"] for r in after), "nobody read it back"


def seconds(text):
    return alibaba.calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def test_deadline_that_is_missing_is_set_again(tmp_path, cloud):
    cloud.late_release = 4
    run = Drive(environment(cloud, tmp_path), spec(tmp_path), "create")
    assert run.rc == 0, run.text
    assert cloud.actions("ModifyInstanceAutoReleaseTime")


def test_deadline_that_the_cloud_does_not_keep_ends_the_launch(tmp_path, cloud):
    cloud.keep_release = False
    run = Drive(environment(cloud, tmp_path), spec(tmp_path), "create")
    assert run.rc == 1 and "AutoReleaseTime" in run["message"], run["message"]
    assert all(one["gone"] is not None for one in cloud.instances.values()), "a node without a deadline stayed"
    assert Drive(environment(cloud, tmp_path), spec(tmp_path), "destroy").rc == 0
    assert cloud.left() == []


def test_the_cloud_ends_nodes_by_itself(tmp_path, cloud):
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, text, "create").rc == 0
    cloud.clock, cloud.gone_after = 3700, 0
    assert [r for r in Drive(env, text, "list").of_kind("instance") if r["state"] not in ("stopping", "gone")] == []
    assert Drive(env, text, "list").of_kind("instance") == []


# --- what is left ---

def test_leftovers_are_listed_and_ended(tmp_path, cloud):
    cloud.leave_disks = True
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, text, "create").rc == 0
    nic = dict(next(iter(cloud.nics.values())), instance="")
    cloud.nics["eni-leftover01"] = nic
    listed = Drive(env, text, "list")
    kinds = sorted(r["kind"] for r in listed["resources"])
    assert kinds == ["group", "instance", "instance", "key-pair"] + ["network-interface"] * 3 + ["volume"] * 2
    assert Drive(env, text, "destroy").rc == 0
    assert cloud.left() == []


def test_instance_that_is_being_initialised_is_ended_later(tmp_path, cloud):
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, text, "create").rc == 0
    cloud.rule("DeleteInstances", "reply", times=3, status=403,
               obj={"Code": "IncorrectInstanceStatus.Initializing", "Message": "not yet", "RequestId": "1"})
    assert Drive(env, text, "destroy").rc == 0
    assert cloud.left() == []


def test_release_protection_is_an_error_that_names_it(tmp_path, cloud):
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, text, "create").rc == 0
    cloud.rule("DeleteInstances", "reply", times=None, status=403,
               obj={"Code": "InvalidOperation.DeletionProtection", "Message": "protected", "RequestId": "1"})
    run = Drive(env, text, "destroy")
    assert run.rc != 0 and "release protection is on" in run["message"]
    assert len(cloud.instances) == 2 and len(cloud.pairs) == 1, "the claim outlives the nodes"


def test_group_in_use_is_kept_without_an_error(tmp_path, cloud):
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, text, "create").rc == 0
    cloud.rule("DeleteSecurityGroup", "reply", times=2, status=403,
               obj={"Code": "DependencyViolation", "Message": "still in use", "RequestId": "1"})
    assert Drive(env, text, "destroy").rc == 0
    assert cloud.left() == []


def test_foreign_rule_is_revoked(tmp_path, cloud):
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, text, "create").rc == 0
    group, = cloud.groups.values()
    group["rules"].append({"IpProtocol": "ALL", "PortRange": "-1/-1", "SourceCidrIp": "0.0.0.0/0", "Policy": "Accept",
                           "Direction": "ingress", "SecurityGroupRuleId": "sgr-foreign0001"})
    assert Drive(env, text, "create", "2").rc == 0
    assert [r["SourceCidrIp"] for r in group["rules"]] == ["203.0.113.0/24"]


def test_nodes_of_another_owner_stay(tmp_path, cloud):
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, text, "create").rc == 0
    before = cloud.left()
    other = dict(env, GPUPROV_OWNER="somebody-else", GPUPROV_STATE_DIR=str(tmp_path / "other"))
    assert Drive(other, text, "destroy").rc == 0
    assert cloud.left() == before


# --- replies that no cloud should send ---

def edited(path, value):
    def change(reply):
        at = reply
        for name in path[:-1]:
            at = at[name] if not isinstance(at, list) or at else {}
        if at:
            at[path[-1]] = value
        return reply
    return change


INSTANCE = ("Instances", "Instance", 0)


@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize("action, path, value", [
    ("DescribeInstances", (*INSTANCE, "InstanceId"), "i-../../x"), ("DescribeInstances", (*INSTANCE, "InstanceId"), "i-a\nb"),
    ("DescribeInstances", (*INSTANCE, "InstanceId"), 7), ("DescribeInstances", ("Instances",), None),
    ("DescribeInstances", ("Instances", "Instance"), {"a": 1}), ("DescribeDisks", ("Disks", "Disk", 0, "DiskId"), "d-\u202e"),
    ("DescribeKeyPairs", ("KeyPairs", "KeyPair", 0, "KeyPairName"), "x\x1b[2J"),
    ("DescribeSecurityGroups", ("SecurityGroups", "SecurityGroup", 0, "SecurityGroupId"), "sg-a/b"),
    ("DescribeVpcs", ("TotalCount",), None),
])
def test_hostile_list_is_an_error_and_nothing_is_ended(tmp_path, cloud, action, path, value):
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, text, "create").rc == 0
    cloud.rule(action, "edit", times=None, change=edited(path, value))
    run = Drive(env, text, "list")
    assert run.rc == 1 and run["code"] == "protocol", run.text
    assert "\x1b" not in run["message"] and "\u202e" not in run["message"]
    assert len(cloud.instances) == 2


@pytest.mark.parametrize("tags", [{"gpuprov:slots": "0+99999999999"}, {"gpuprov:uid": "../x"}, {"gpuprov:owner": "a\nb"}])
def test_changed_tags_are_reported_not_believed(tmp_path, cloud, tags):
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, text, "create").rc == 0
    victim = next(iter(cloud.instances))
    cloud.instances[victim]["tags"].update(tags)
    run = Drive(env, text, "list")
    assert run.rc == 0
    mine = [r for r in run.of_kind("instance") if r["id"] == victim]
    assert all(r["uid"] == "" or r["slot"] < 0 for r in mine), mine


def test_a_list_that_does_not_end(tmp_path, cloud):
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    cloud.rule("DescribeInstances", "edit", times=None, change=lambda r: dict(r, NextToken="1"))
    run = Drive(env, text, "list")
    assert run.rc == 1 and "repeats a page" in run["message"], run["message"]


@pytest.mark.parametrize("action, path, value", [
    ("DescribeInstanceTypes", ("InstanceTypes", "InstanceType", 0, "GPUAmount"), 10 ** 18),
    ("DescribeInstanceTypes", ("InstanceTypes", "InstanceType", 0, "CpuCoreCount"), -1),
    ("DescribeInstanceTypes", ("InstanceTypes", "InstanceType", 0, "EriQuantity"), 10 ** 12),
    ("DescribeInstanceTypes", ("InstanceTypes", "InstanceType", 0, "EniQuantity"), -3),
    ("DescribeInstanceTypes", ("InstanceTypes", "InstanceType", 0, "NetworkCardQuantity"), 2 ** 40),
    ("DescribeInstanceTypes", ("InstanceTypes", "InstanceType", 0, "QueuePairNumber"), -1),
    ("DescribeInstanceTypes", ("InstanceTypes", "InstanceType", 0, "InstanceTypeId"), "ecs.x/../y"),
    ("DescribeAvailableResource", ("AvailableZones", "AvailableZone", 0, "ZoneId"), "a b"),
    ("DescribeImages", ("Images", "Image", 0, "ImageId"), "m-\x1b[2J"),
    ("DescribeVSwitches", ("VSwitches", "VSwitch", 0, "VpcId"), "vpc-1/../2"),
    ("DescribeInstanceTypes", ("InstanceTypes",), {"InstanceType": "none"}),
])
def test_hostile_catalogue_is_an_error(tmp_path, cloud, action, path, value):
    cloud.rule(action, "edit", times=None, change=edited(path, value))
    run = Drive(environment(cloud, tmp_path), spec(tmp_path), "offers")
    assert run.rc == 1 and run["code"] == "protocol", run.text
    assert "\x1b" not in run.text


@pytest.mark.parametrize("price", [-5, 1e308, "free", None])
def test_price_that_is_none_is_unknown(tmp_path, cloud, price):
    cloud.rule("DescribePrice", "edit", times=None, change=edited(("PriceInfo", "Price", "TradePrice"), price))
    offers = Drive(environment(cloud, tmp_path), spec(tmp_path, "on-demand", gpu="V100-32GB:1"), "offers")["offers"]
    assert offers and all(o["price"] < 0 or o["price_source"].startswith("catalogue") for o in offers)


@pytest.mark.parametrize("reply", [{"success": False}, [], "gone", {"Instances": {"Instance": []}, "NextToken": 3}])
def test_a_reply_without_a_list_is_no_empty_list(tmp_path, cloud, reply):
    """Only an empty list of the right form is one."""
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, text, "create").rc == 0
    cloud.rule("DescribeDisks", "edit", times=None, change=lambda _: reply)
    assert Drive(env, text, "list").rc == 1


def test_a_reclaimed_spot_node_is_ending(tmp_path, cloud):
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, text, "create").rc == 0
    victim = next(iter(cloud.instances))
    cloud.instances[victim]["lock"] = "Recycling"
    states = {r["id"]: r["state"] for r in Drive(env, text, "list").of_kind("instance")}
    assert states.pop(victim) == "stopping" and set(states.values()) == {"running"}
