# SPDX-License-Identifier: Apache-2.0
"""Bad days between the aws provider and EC2: each is made by the fault proxy in front of moto, and what
is true afterwards is asked of moto, not of gpuprov."""
import base64
import json
import sqlite3
import threading
import time

import ec2
import faultproxy
import pytest
from aws_cloud import cloud_fixture, moto_fixture  # noqa: F401
from waiting import wait_for

REGION = ec2.REGION


def tokens(cloud):
    return [call.params["ClientToken"] for call in cloud.proxy.of("RunInstances")]


def ok_with_two(cloud, run):
    assert run["code"] == "ok", run["message"]
    alive = cloud.moto.instances()
    assert sorted(i["InstanceId"] for i in alive) == sorted(r["id"] for r in run.of_kind("instance"))
    assert len(alive) == 2
    assert [i["state"] for i in run.intents("instance")][-1] == "done"


# --- a launch as it should be ---

def test_request(cloud):
    spec = ec2.spec(cloud.tmp, cloud.moto.image(), gpu="T4:1",
                    offers=[{"provider": "aws", "regions": [REGION], "zones": ["us-east-1b"], "market": "spot",
                             "instance_type": "g4dn.2xlarge"}])
    run = ec2.Drive(cloud.env, spec, "create")
    ok_with_two(cloud, run)
    p = cloud.proxy.of("RunInstances")[0].params
    assert p["MinCount"] == p["MaxCount"] == "2" and len(p["ClientToken"]) == 64
    assert p["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert p["MetadataOptions.HttpTokens"] == "required"
    assert p["Placement.AvailabilityZone"] == "us-east-1b"
    assert p["NetworkInterface.1.AssociatePublicIpAddress"] == "true"
    image = cloud.moto.client().describe_images(ImageIds=[p["ImageId"]])["Images"][0]
    assert p["BlockDeviceMapping.1.DeviceName"] == image["RootDeviceName"]
    assert p["BlockDeviceMapping.1.Ebs.Encrypted"] == p["BlockDeviceMapping.1.Ebs.DeleteOnTermination"] == "true"
    assert int(p["BlockDeviceMapping.1.Ebs.VolumeSize"]) >= 100
    assert p["InstanceMarketOptions.MarketType"] == "spot"
    assert base64.b64decode(p["UserData"]) == b"#cloud-config\n{}\n"
    kinds = {v for k, v in p.items() if k.endswith(".ResourceType")}
    assert kinds == {"instance", "volume", "network-interface", "spot-instances-request"}
    one = cloud.moto.instances()[0]
    tags = {t["Key"]: t["Value"] for t in one["Tags"]}
    assert tags["gpuprov:slots"] == "0+2" and tags["gpuprov:owner"] == run["owner"] == "123456789012-moto"
    assert tags["gpuprov:uid"] == run["uid"] and tags["gpuprov:stack"] == "contract"
    assert one["MetadataOptions"]["HttpTokens"] == "required"
    group = cloud.moto.groups()[0]
    assert group["GroupName"] == "gpuprov-123456789012-moto/contract"
    assert [g["GroupId"] for g in one["NetworkInterfaces"][0]["Groups"]] == [group["GroupId"]]
    rules = group["IpPermissions"]
    assert {(r["IpProtocol"], r.get("FromPort")) for r in rules} == {("tcp", 22), ("-1", None)} or \
        {(r["IpProtocol"], r.get("FromPort")) for r in rules} == {("tcp", 22), ("-1", -1)}
    ssh = [r for r in rules if r["IpProtocol"] == "tcp"][0]
    assert [x["CidrIp"] for x in ssh["IpRanges"]] == ["203.0.113.0/24"]
    # what one run has seen it does not ask again: subnets once, and the group that it made not at all
    assert [cloud.proxy.count(a) for a in ("DescribeSubnets", "DescribeVpcs", "DescribeSecurityGroups",
                                           "CreateSecurityGroup")] == [1, 1, 0, 1]
    again = ec2.Drive(cloud.env, spec, "prepare")
    assert again["code"] == "ok" and again["uid"] == run["uid"]
    assert len(cloud.moto.groups()) == cloud.proxy.count("AuthorizeSecurityGroupIngress") == 1


# --- a create whose reply is lost ---

def test_reply_lost_after_the_cloud_acted(cloud):
    cloud.proxy.rule("RunInstances", "drop_after")
    ok_with_two(cloud, cloud.drive("create"))
    sent = cloud.proxy.of("RunInstances")  # the repeated token is answered with the first machines
    assert len(sent) == 2 and sent[0].body == sent[1].body and cloud.proxy.count("DescribeInstances") == 0


@pytest.mark.parametrize("fault", ["truncate", "cut_xml"])
def test_reply_cut_short_after_the_cloud_acted(cloud, fault):
    cloud.proxy.rule("RunInstances", fault)
    ok_with_two(cloud, cloud.drive("create"))
    assert cloud.proxy.count("RunInstances") == 2


def test_request_lost_before_the_cloud_acted(cloud):
    cloud.proxy.rule("RunInstances", "drop_before")
    ok_with_two(cloud, cloud.drive("create"))
    sent = cloud.proxy.of("RunInstances")
    assert len(sent) == 2 and sent[0].body == sent[1].body


def test_unknown_outcome_is_settled_by_the_next_run(cloud):
    cloud.proxy.rule("RunInstances", "drop_before", times=None)
    run = cloud.drive("create")
    assert run.rc == 8 and run["code"] == "unknown-outcome", run.result
    assert [i["state"] for i in run.intents("instance")] == ["open"]
    assert len(run["tried"]) == 1  # never the next offer
    token = set(tokens(cloud))
    cloud.proxy.clear()
    ok_with_two(cloud, cloud.drive("create"))
    assert set(tokens(cloud)) == token


def test_unknown_outcome_that_the_cloud_did_act_on(cloud):
    """Every reply is lost: the next run repeats the token and launches none."""
    cloud.proxy.rule("RunInstances", "drop_after", times=None)
    run = cloud.drive("create")
    assert run["code"] == "unknown-outcome"
    assert cloud.proxy.count("RunInstances") == 3 and len(cloud.moto.instances()) == 2
    cloud.proxy.clear()
    ok_with_two(cloud, cloud.drive("create"))
    assert cloud.proxy.count("RunInstances") == 1


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("code, status", [("RequestLimitExceeded", 503), ("UnauthorizedOperation", 403),
                                          ("ExpiredToken", 400)])
def test_a_refusal_says_nothing_of_the_send_before_it(cloud, code, status):
    """The first send was acted on and its reply lost; the second one is not let in. That is no "nothing was made": the
    intent stays open, and the next run gets the machines by the token."""
    cloud.proxy.rule("RunInstances", "drop_after").rule("RunInstances", "error", times=None, code=code, status=status)
    run = cloud.drive("create")
    assert run.rc == 8 and run["code"] == "unknown-outcome", run.result
    assert [i["state"] for i in run.intents("instance")] == ["open"]
    assert len(run["tried"]) == 1 and len(cloud.moto.instances()) == 2
    cloud.proxy.clear()
    ok_with_two(cloud, cloud.drive("create"))
    assert cloud.proxy.count("RunInstances") == 1


def test_a_launch_that_cannot_be_written_down(cloud):
    """The reply came and the journal takes nothing: exit 8 with the ids, and nothing is called refused."""
    cloud.proxy.rule("RunInstances", "hold_after", times=None)
    db = cloud.tmp / "state" / "journal.db"

    def spoil():
        wait_for(cloud.moto.instances)
        with sqlite3.connect(db, timeout=20) as j:
            j.execute("CREATE TRIGGER full BEFORE INSERT ON resources BEGIN SELECT RAISE(ABORT, 'no room'); END")
        cloud.proxy.release()

    spoiler = threading.Thread(target=spoil)
    spoiler.start()
    run = cloud.drive("create")
    spoiler.join()
    alive = [i["InstanceId"] for i in cloud.moto.instances()]
    assert run.rc == 8 and len(alive) == 2 and all(i in run["message"] for i in alive), run.result
    assert [i["state"] for i in run.intents("instance")] == ["open"]
    with sqlite3.connect(db) as j:
        j.execute("DROP TRIGGER full")
    cloud.proxy.clear()
    ok_with_two(cloud, cloud.drive("create"))
    assert cloud.proxy.count("RunInstances") == 1 and len(cloud.moto.instances()) == 2


def test_another_run_launched_these_slots(cloud):
    """Its machines are taken over once they prove it: tags alone do not."""
    mine = cloud.drive("create")
    cloud.proxy.rule("RunInstances", "error", times=None, code="IdempotentParameterMismatch")
    elsewhere = {"GPUPROV_STATE_DIR": str(cloud.tmp)}
    early = cloud.drive("create", **elsewhere)
    assert (early.rc, early["code"], len(early["tried"])) == (6, "reach", 1), early.result
    assert "nodes 0..1: another run launched them at aws and they have not proven themselves yet" in early["message"]
    assert "gpuprov down contract" in early["message"] and early.of_kind("instance") == []
    assert cloud.drive("prove")["code"] == "ok"
    other = cloud.drive("create", "2", **elsewhere)  # other slots' machines are not this launch's
    assert other["code"] == "reach", other.result
    other = cloud.drive("create", **elsewhere)
    assert other["code"] == "ok", other["message"]
    assert {r["id"] for r in other.of_kind("instance")} == {r["id"] for r in mine.of_kind("instance")}
    assert all(r["ours"] and r["other_run"] for r in other.of_kind("instance"))
    assert len(cloud.moto.instances()) == 2


def copy_of(cloud, genuine, **changed):
    """A machine of somebody else with the tags of this one."""
    tags = [dict(t, Value=changed.get(t["Key"].removeprefix("gpuprov:"), t["Value"])) for t in genuine["Tags"]]
    made = cloud.moto.client().run_instances(ImageId=genuine["ImageId"], MinCount=1, MaxCount=1, TagSpecifications=[
        {"ResourceType": "instance", "Tags": tags}])
    return made["Instances"][0]["InstanceId"]


def test_a_foreign_machine_with_the_tags_of_a_lost_launch(cloud):
    """The request never arrives, and somebody has launched a machine with its tags: that is not its answer."""
    assert cloud.drive("create")["code"] == "ok"
    genuine = cloud.moto.instances()
    evil = [copy_of(cloud, genuine[0], attempt="2") for _ in range(2)]
    cloud.proxy.rule("RunInstances", "drop_before", times=None)
    run = cloud.drive("create", "2")
    assert run["code"] == "unknown-outcome" and run.of_kind("instance") == [], run.result
    cloud.proxy.clear()
    run = cloud.drive("create")
    assert run["code"] == "ok", run.result
    got = {r["id"] for r in run.of_kind("instance")}
    assert len(got) == 2 and not got & (set(evil) | {i["InstanceId"] for i in genuine})
    assert {r["ours"] for r in run.of_kind("instance")} == {True}


def test_the_token_is_the_keys(cloud):
    """Equal for two controllers with one login key; nobody without it can send it first."""
    for name, key in (("one", "fixed"), ("two", "fixed"), ("three", "another")):
        cloud.proxy.rule("RunInstances", "error", code="InsufficientInstanceCapacity")
        cloud.drive("create", GPUPROV_STATE_DIR=str(cloud.tmp / name), GPUPROV_TEST_KEY=key)
    first = tokens(cloud)[0]
    assert all(len(t) == 64 for t in tokens(cloud)) and tokens(cloud).count(first) == 2, tokens(cloud)


def test_cancelled_while_launching(cloud):
    cloud.proxy.rule("RunInstances", "hang", times=None, touch=cloud.tmp / "now")
    run = cloud.drive("create", GPUPROV_DRIVE_CANCEL_ON=str(cloud.tmp / "now"))
    assert run["code"] == "unknown-outcome", run.result
    assert [i["state"] for i in run.intents("instance")] == ["open"]
    assert cloud.moto.instances() == []


def test_claim_reply_lost(cloud):
    cloud.proxy.rule("CreateSecurityGroup", "drop_after")
    run = cloud.drive("prepare")
    assert run["code"] == "ok"
    groups = cloud.moto.groups()
    assert len(groups) == 1
    assert {t["Key"]: t["Value"] for t in groups[0]["Tags"]}["gpuprov:uid"] == run["uid"]
    assert [i["state"] for i in run.intents("group")] == ["done"]


def test_claim_lost_to_a_rival(cloud):
    """The create says Duplicate and the first read shows nothing yet: the winner's uid is taken."""
    first = cloud.drive("prepare", GPUPROV_STATE_DIR=str(cloud.tmp))
    cloud.proxy.rule("DescribeSecurityGroups", "empty_list")
    second = cloud.drive("prepare")
    assert second["uid"] == first["uid"]
    assert {i["state"] for i in second.intents("group")} == {"failed"}
    assert len(cloud.moto.groups()) == 1


def test_no_further_group_is_allowed(cloud):
    """A claim that is there is taken all the same; one that is not is the cloud's own refusal."""
    cloud.proxy.rule("CreateSecurityGroup", "error", times=None, code="SecurityGroupLimitExceeded")
    refused = cloud.drive("prepare")
    assert refused["code"] == "quota" and refused["detail"] == "SecurityGroupLimitExceeded", refused.result
    cloud.proxy.clear()
    first = cloud.drive("prepare", GPUPROV_STATE_DIR=str(cloud.tmp))
    cloud.proxy.rule("CreateSecurityGroup", "error", times=None, code="SecurityGroupLimitExceeded")
    second = cloud.drive("prepare")
    assert second["code"] == "ok" and second["uid"] == first["uid"], second.result


def test_a_new_group_is_not_known_yet(cloud):
    cloud.proxy.rule("AuthorizeSecurityGroupIngress", "error", times=2, code="InvalidGroup.NotFound")
    ok_with_two(cloud, cloud.drive("create"))
    assert cloud.proxy.count("AuthorizeSecurityGroupIngress") == 3
    assert len(cloud.moto.groups()[0]["IpPermissions"]) == 2


def test_rules_of_a_claim_that_is_there(cloud):
    """What was cut between the group and its rules is completed; what is open already is not asked for."""
    cloud.proxy.rule("AuthorizeSecurityGroupIngress", "error", times=None, code="UnauthorizedOperation", status=403)
    assert cloud.drive("prepare").rc == 5
    assert cloud.moto.groups()[0]["IpPermissions"] == []
    cloud.proxy.clear()
    assert cloud.drive("prepare")["code"] == "ok"
    assert len(cloud.moto.groups()[0]["IpPermissions"]) == 2
    before = cloud.proxy.count("AuthorizeSecurityGroupIngress")
    assert cloud.drive("prepare")["code"] == "ok"
    assert cloud.proxy.count("AuthorizeSecurityGroupIngress") == before


def test_claim_outlives_a_volume_that_the_list_did_not_show(cloud):
    run = cloud.drive("create")
    tags = [{"Key": "gpuprov:" + k, "Value": v} for k, v in
            (("owner", run["owner"]), ("stack", "contract"), ("uid", run["uid"]))]
    cloud.moto.client().create_volume(AvailabilityZone="us-east-1a", Size=1, TagSpecifications=[
        {"ResourceType": "volume", "Tags": tags}])
    cloud.proxy.rule("DescribeVolumes", "empty_list")
    assert cloud.drive("destroy")["code"] == "ok"
    ends = {a: cloud.proxy.of(a) for a in ("TerminateInstances", "DeleteVolume", "DeleteSecurityGroup")}
    assert [len(e) for e in ends.values()] == [1, 1, 1]
    assert ends["TerminateInstances"][0].at < ends["DeleteVolume"][0].at < ends["DeleteSecurityGroup"][0].at
    assert cloud.moto.groups() == [] and cloud.moto.client().describe_volumes()["Volumes"] == []


def test_a_stranger_holds_the_name(cloud):
    cloud.moto.client().create_security_group(GroupName="gpuprov-123456789012-moto/contract", Description="x")
    run = cloud.drive("prepare")
    assert run["code"] == "exists" and "no tags of gpuprov" in run["message"]
    assert cloud.proxy.count("CreateTags") == cloud.proxy.count("AuthorizeSecurityGroupIngress") == 0


# --- no capacity, no quota ---

def test_capacity_goes_to_the_next_zone(cloud):
    for zone in ("us-east-1a", "us-east-1b"):  # EC2 sends it as HTTP 500
        cloud.proxy.rule("RunInstances", "error", times=None, status=500, code="InsufficientInstanceCapacity",
                         params={"Placement.AvailabilityZone": zone})
    run = cloud.drive("create")
    ok_with_two(cloud, run)
    assert [t["result"] for t in run["tried"]] == ["InsufficientInstanceCapacity"] * 2 + ["ok"]
    assert cloud.proxy.count("RunInstances") == 3  # no retry in the same place
    assert [i["note"] for i in run.intents("instance")][:2] == ["InsufficientInstanceCapacity"] * 2
    assert len(set(tokens(cloud))) == 3


def test_quota_leaves_the_region(cloud):
    cloud.proxy.rule("RunInstances", "error", times=None, code="VcpuLimitExceeded")
    run = cloud.drive("create")
    assert run.rc == 4 and run["code"] == "quota" and "Service Quotas" in run["message"]
    assert len(run["tried"]) == 1
    assert cloud.moto.instances() == []


def test_quota_is_looked_up_first(cloud):
    cloud.proxy.rule("GetServiceQuota", "reply", times=None,
                     body=b'{"Quota":{"QuotaName":"All G and VT Spot Instance Requests","Value":4.0}}')
    run = cloud.drive("create")
    assert run.rc == 4 and "need 8 vCPUs" in run["message"] and "is 4" in run["message"]
    assert cloud.proxy.count("RunInstances") == 0
    assert run.intents("instance") == []


def test_not_permitted(cloud):
    cloud.proxy.rule("RunInstances", "error", times=None, status=403, code="UnauthorizedOperation",
                     message="Encoded authorization failure message: " + "x" * 3000)
    run = cloud.drive("create")
    assert run.rc == 5 and "--policy" in run["message"] and len(run["message"]) < 480
    assert len(run["tried"]) == 1


# --- throttled, slow, broken ---

@pytest.mark.parametrize("action", ["RunInstances", "DescribeInstanceTypes"])
def test_throttled(cloud, action):
    cloud.proxy.rule(action, "error", times=2, status=503, code="RequestLimitExceeded")
    ok_with_two(cloud, cloud.drive("create"))
    assert cloud.proxy.count(action) == 3


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after(cloud, status):
    cloud.proxy.rule("RunInstances", "status", status=status, headers={"Retry-After": "2"}, body=b"busy")
    ok_with_two(cloud, cloud.drive("create"))
    first, second = cloud.proxy.of("RunInstances")
    assert second.at - first.at >= 2.0 and first.body == second.body


def test_throttled_without_end(cloud):
    cloud.proxy.rule("DescribeSecurityGroups", "error", times=None, status=503, code="RequestLimitExceeded")
    run = cloud.drive("list")
    assert run["code"] == "throttled" and run.rc == 3
    assert 2 <= cloud.proxy.count("DescribeSecurityGroups") <= 5


@pytest.mark.parametrize("fault", ["drop_after", "truncate", "cut_xml"])
def test_reads_are_repeated(cloud, fault):
    cloud.proxy.rule("DescribeInstances", fault, times=2)
    run = cloud.drive("list")
    assert run["code"] == "ok" and run["resources"] == []
    assert cloud.proxy.count("DescribeInstances") >= 3


def test_html_500(cloud):
    cloud.proxy.rule("DescribeInstances", "status", times=None, status=500,
                     body=b"<!doctype html><html><body><h1>Internal Server Error</h1></body></html>")
    run = cloud.drive("list")
    assert run["code"] == "protocol" and "HTTP 500" in run["message"] and "<" not in run["message"]


def test_html_500_to_a_create_is_unknown(cloud):
    cloud.proxy.rule("RunInstances", "status", status=500, body=b"<html>oops</html>")
    ok_with_two(cloud, cloud.drive("create"))
    assert cloud.proxy.count("RunInstances") == 2


def test_huge_reply(cloud):
    cloud.proxy.rule("DescribeInstances", "huge", times=None, size=80 << 20)
    run = cloud.drive("list")
    assert run["code"] == "protocol" and "larger than" in run["message"]


def test_slow_reply(cloud):
    cloud.proxy.rule("DescribeInstanceTypes", "slow", pieces=20, delay=0.02)
    assert cloud.drive("offers")["code"] == "ok"


def test_cancel_is_heard_at_once(cloud):
    cloud.proxy.rule("DescribeInstances", "hang", times=None, touch=cloud.tmp / "now")
    run = cloud.drive("list", GPUPROV_DRIVE_CANCEL_ON=str(cloud.tmp / "now"))
    assert run["code"] == "cancelled" and run.rc == 130


def test_redirects_are_not_followed(cloud):
    cloud.proxy.rule("DescribeInstances", "status", times=None, status=307,
                     headers={"Location": cloud.moto.url + "/"}, body=b"")
    run = cloud.drive("list")
    assert run["code"] == "protocol" and "redirect" in run["message"]


# --- the end ---

def test_destroy_with_trouble(cloud):
    cloud.drive("create")
    cloud.proxy.rule("TerminateInstances", "error", code="InvalidInstanceID.NotFound") \
        .rule("DeleteSecurityGroup", "error", times=2, code="DependencyViolation")
    run = cloud.drive("destroy")
    assert run["code"] == "ok", run["message"]
    assert cloud.moto.instances() == [] and cloud.moto.groups() == []
    assert cloud.proxy.count("DeleteSecurityGroup") == 3


def test_claim_goes_last(cloud):
    cloud.drive("create")
    cloud.drive("destroy")
    order = [c.action for c in cloud.proxy.calls if c.action in ("TerminateInstances", "DeleteSecurityGroup")]
    assert order[0] == "TerminateInstances" and order[-1] == "DeleteSecurityGroup"
    assert order.count("DeleteSecurityGroup") == 1


# --- reaching it ---

def test_endpoint_down(cloud):
    with ec2.NobodyListens() as nobody:
        run = cloud.drive("open", AWS_ENDPOINT_URL=nobody.url)
    assert run.rc == 1 and "does not answer" in run["message"] and "endpoint" in run["message"]


def test_no_such_host(cloud):
    run = cloud.drive("open", AWS_ENDPOINT_URL="https://ec2.nowhere.invalid")
    assert run.rc == 1 and run["detail"] == "DNS"


def test_endpoint_speaks_no_tls(cloud):
    garbage = faultproxy.Garbage()
    try:
        run = cloud.drive("open", AWS_ENDPOINT_URL=f"https://127.0.0.1:{garbage.port}")
        assert run.rc == 1 and run["detail"] == "TLS" and "AWS_CA_BUNDLE" in run["message"]
        run = cloud.drive("open", AWS_ENDPOINT_URL=f"http://127.0.0.1:{garbage.port}")
        assert run["code"] == "protocol" and "is not HTTP" in run["message"], run.result
    finally:
        garbage.close()


def test_ca_bundle_absent(cloud):
    run = cloud.drive("open", AWS_CA_BUNDLE="/nonexistent/ca.pem")
    assert run.rc == 1 and "AWS_CA_BUNDLE" in run["message"]


def test_proxies_as_the_cli_has_them(cloud):
    named = {"AWS_ENDPOINT_URL": "http://ec2.nowhere.invalid", "GPUPROV_CLEAR_TEXT": "ec2.nowhere.invalid"}
    run = cloud.drive("open", **named, HTTP_PROXY=cloud.proxy.url)
    assert run["code"] == "ok"
    assert cloud.proxy.calls[-1].path.startswith("http://ec2.nowhere.invalid")
    run = cloud.drive("open", **named, HTTP_PROXY=cloud.proxy.url, NO_PROXY="nowhere.invalid")
    assert run["detail"] == "DNS"


@pytest.mark.parametrize("seconds", [5400, -5400])
def test_our_clock_is_wrong(cloud, seconds):
    cloud.proxy.rule(None, "skew", times=None, seconds=seconds)
    run = cloud.drive("create")
    ok_with_two(cloud, run)
    assert abs(run["skew_s"] - seconds) <= 5
    assert abs(run.of_kind("instance")[0]["expires_s"] - (time.time() + seconds + 3600)) < 120


# --- what is bought ---

def test_offers_of_many_types_are_two_calls(cloud):
    run = ec2.Drive(cloud.env, ec2.spec(cloud.tmp, cloud.moto.image(), gpu="T4:1"), "offers")
    sold = {(o["type"], o["zone"]) for o in run["offers"]}
    assert len({t for t, _ in sold}) > 2 and len(sold) == len(run["offers"]) > 6
    told = cloud.moto.client().describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": sorted({t for t, _ in sold})}])
    assert sold == {(o["InstanceType"], o["Location"]) for o in told["InstanceTypeOfferings"]}
    assert [cloud.proxy.count(a) for a in ("DescribeInstanceTypeOfferings", "DescribeSpotPriceHistory")] == [1, 1]


def test_offers_of_many_names(cloud):
    image = cloud.moto.image()
    for gpu, types in {"H100:8": {"p5.48xlarge"}, "H100-80GB:1": {"p5.4xlarge"}, "A100-80GB:8": {"p4de.24xlarge"},
                       "A100-40GB:8": {"p4d.24xlarge"}, "nvidia-l4:1": None, "H200:8": None}.items():
        run = ec2.Drive(cloud.env, ec2.spec(cloud.tmp, image, gpu=gpu, offers=[
            {"provider": "aws", "regions": [REGION, "us-west-2"], "market": "on-demand"}]), "offers")
        if types is not None:
            assert {o["type"] for o in run["offers"]} == types, (gpu, run.result)
        for o in run["offers"]:
            assert o["gpus"] == int(gpu.split(":")[1]) and o["region"] == REGION  # the image is there only
            known = o["price"] >= 0
            assert o["price_source"] == ("catalogue 2026-07-20" if known else "")
    run = ec2.Drive(cloud.env, ec2.spec(cloud.tmp, image, gpu="H100:3"), "offers")
    assert run.rc == 1 and "it has them in: " in run["message"]
    run = ec2.Drive(cloud.env, ec2.spec(cloud.tmp, image, gpu="Z9000:1"), "offers")
    assert run.rc == 1 and "L40S" in run["message"]


def test_offers_without_gpu_and_with_bad_names(cloud):
    image = cloud.moto.image()
    run = ec2.Drive(cloud.env, ec2.spec(cloud.tmp, image, gpu=None), "offers")
    assert {o["type"] for o in run["offers"]} == {"t3.medium"}

    def offer(**more):
        return ec2.Drive(cloud.env, ec2.spec(cloud.tmp, image, gpu=None, offers=[
            {"provider": "aws", "regions": [REGION], **more}]), "offers")
    assert "instance_type" in offer(instance_type="z9.huge")["message"]
    assert "us-east-1z" in offer(zones=["us-east-1z"])["message"]
    assert "subnet" in offer(subnet="subnet-00000000000000000")["message"]
    run = ec2.Drive(cloud.env, ec2.spec(cloud.tmp, "ami-00000000000000000", gpu=None), "offers")
    assert run.rc == 1 and "ami-00000000000000000" in run["message"]


def test_image_by_name(cloud):
    image = cloud.moto.image()
    reply = json.dumps({"Parameter": {"Name": "x", "Value": image}}).encode()
    cloud.proxy.rule("GetParameter", "reply", times=None, body=reply)
    for how, asked in (({"os": "ubuntu-22.04"}, "ubuntu/server/22.04"), ("auto", "base-oss-nvidia-driver-gpu"),
                       ({"os": "amzn-2023"}, "al2023-ami-kernel-default-x86_64")):
        run = ec2.Drive(cloud.env, ec2.spec(cloud.tmp, how), "offers")
        assert run["code"] == "ok" and {o["image"] for o in run["offers"]} == {image}, run["message"]
        assert asked.encode() in cloud.proxy.of("GetParameter")[-1].body
    cloud.proxy.clear()  # SSM does not know: DescribeImages by owner and name is asked
    run = ec2.Drive(cloud.env, ec2.spec(cloud.tmp, {"os": "debian-12"}), "offers")
    assert run.rc == 1 and "debian-12" in run["message"]
    asked = cloud.proxy.of("DescribeImages")[-1].params
    assert asked["Owner.1"] == "136693071363" and asked["Filter.1.Value.1"] == "debian-12-amd64-*"


def test_own_address_is_asked_for(cloud, moto):
    moto.image()
    spec = ec2.spec(cloud.tmp, moto.image(), access={})
    cloud.proxy.rule("/ip", "reply", times=None, body=b"198.51.100.7\n")
    run = ec2.Drive(dict(cloud.env, GPUPROV_CHECKIP_URL=cloud.proxy.url + "/ip"), spec, "prepare")
    assert run["code"] == "ok", run["message"]
    rules = [r for r in moto.groups()[0]["IpPermissions"] if r["IpProtocol"] == "tcp"]
    assert [x["CidrIp"] for r in rules for x in r["IpRanges"]] == ["198.51.100.7/32"]
    with ec2.NobodyListens() as nobody:
        run = ec2.Drive(dict(cloud.env, GPUPROV_CHECKIP_URL=nobody.url),
                        ec2.spec(cloud.tmp, moto.image(), access={}, name="other"), "prepare")
    assert run.rc != 0 and "access.ssh_from" in run["message"]
