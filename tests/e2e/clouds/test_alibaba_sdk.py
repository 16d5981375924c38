# SPDX-License-Identifier: Apache-2.0
"""The official SDK as a second witness: it does the same life cycle on the same stand-in, sends the same requests, and
lists and deletes what gpuprov launched."""
import re

import alibaba
import pytest
from alibaba_gate import API
from alibaba_lab import Drive, environment, spec

pytest.importorskip("alibabacloud_ecs20140526", reason="make deps installs the SDK")
from alibabacloud_ecs20140526 import models as m
from alibabacloud_ecs20140526.client import Client
from alibabacloud_tea_openapi.exceptions import ClientException
from alibabacloud_tea_openapi.utils_models import Config


@pytest.fixture(name="cloud")
def cloud_fixture():
    with alibaba.Alibaba() as cloud:
        yield cloud
        assert cloud.sound() is True


def client(cloud):
    cloud.any_case_bool = True  # the SDK sends Python's True and False
    return Client(Config(access_key_id="LTAItest", access_key_secret="test-secret", region_id=alibaba.REGION,
                         endpoint="127.0.0.1:%d" % cloud.port, protocol="http"))


def sent(cloud, action, since=0):
    with cloud.lock:
        found = [r for r in cloud.log[since:] if r["headers"].get("x-acs-action") == action]
    pairs = [alibaba.parse_qsl(r["target"].partition("?")[2]) + alibaba.parse_qsl(r["body"]) for r in found]
    return [dict(p) for p in pairs]


def split_tags(q):
    """A request without its tags, and the tags."""
    tags = {q["Tag.%d.Key" % i]: q["Tag.%d.Value" % i] for i in range(1, 21) if "Tag.%d.Key" % i in q}
    return {k: v for k, v in q.items() if not k.startswith("Tag.")}, tags


def same_launch(sdk, q, tags):
    """What gpuprov sent, by the SDK's own model."""
    return sdk.run_instances(m.RunInstancesRequest(
        region_id=q["RegionId"], zone_id=q["ZoneId"], image_id=q["ImageId"], instance_type=q["InstanceType"],
        amount=int(q["Amount"]), min_amount=int(q["MinAmount"]), client_token="another", auto_release_time=q["AutoReleaseTime"],
        instance_name=q["InstanceName"], v_switch_id=q["VSwitchId"], security_group_id=q["SecurityGroupId"],
        internet_charge_type=q["InternetChargeType"], internet_max_bandwidth_out=int(q["InternetMaxBandwidthOut"]),
        system_disk=m.RunInstancesRequestSystemDisk(category=q["SystemDisk.Category"], size=q["SystemDisk.Size"], encrypted="true"),
        http_endpoint=q["HttpEndpoint"], http_tokens=q["HttpTokens"], instance_charge_type=q["InstanceChargeType"],
        spot_strategy=q["SpotStrategy"], spot_interruption_behavior=q["SpotInterruptionBehavior"], user_data=q["UserData"],
        tag=[m.RunInstancesRequestTag(key=k, value=v) for k, v in tags.items()]))


def test_requests_are_those_of_the_sdk(tmp_path, cloud):
    assert Drive(environment(cloud, tmp_path), spec(tmp_path), "create").rc == 0
    ours, tags = split_tags(sent(cloud, "RunInstances")[0])
    since, sdk = len(cloud.log), client(cloud)
    same_launch(sdk, ours, tags)
    theirs, their_tags = split_tags(sent(cloud, "RunInstances", since)[0])
    assert tags == their_tags
    assert dict(theirs, ClientToken=ours["ClientToken"]) == ours

    first = {k: split_tags(sent(cloud, k)[0])[0] for k in ("CreateSecurityGroup", "ImportKeyPair", "AuthorizeSecurityGroup")}
    since = len(cloud.log)
    q = first["CreateSecurityGroup"]
    made = sdk.create_security_group(m.CreateSecurityGroupRequest(
        region_id=q["RegionId"], vpc_id=q["VpcId"], security_group_name=q["SecurityGroupName"],
        client_token="another-group", security_group_type=q["SecurityGroupType"]))
    assert dict(sent(cloud, "CreateSecurityGroup", since)[0], ClientToken=q["ClientToken"]) == q
    q = first["AuthorizeSecurityGroup"]
    sdk.authorize_security_group(m.AuthorizeSecurityGroupRequest(
        region_id=q["RegionId"], security_group_id=made.body.security_group_id,
        permissions=[m.AuthorizeSecurityGroupRequestPermissions(ip_protocol="TCP", port_range="22/22", policy="Accept",
                                                                source_cidr_ip="203.0.113.0/24")]))
    assert dict(sent(cloud, "AuthorizeSecurityGroup", since)[0], SecurityGroupId=q["SecurityGroupId"]) == q
    q = first["ImportKeyPair"]
    sdk.import_key_pair(m.ImportKeyPairRequest(region_id=q["RegionId"], key_pair_name=q["KeyPairName"] + "x",
                                               public_key_body=q["PublicKeyBody"]))
    assert dict(sent(cloud, "ImportKeyPair", since)[0], KeyPairName=q["KeyPairName"]) == q


def test_sdk_lists_and_deletes_what_gpuprov_launched(tmp_path, cloud):
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    run = Drive(env, text, "create")
    assert run.rc == 0
    ours = {r["id"] for r in run.of_kind("instance")}
    sdk = client(cloud)
    tag = m.DescribeInstancesRequestTag(key="gpuprov:owner", value=run["owner"])
    seen = sdk.describe_instances(m.DescribeInstancesRequest(region_id=alibaba.REGION, tag=[tag])).body
    assert {i.instance_id for i in seen.instances.instance} == ours
    assert all(i.auto_release_time for i in seen.instances.instance)
    pairs = sdk.describe_key_pairs(m.DescribeKeyPairsRequest(region_id=alibaba.REGION)).body.key_pairs.key_pair
    assert [{t.tag_key: t.tag_value for t in p.tags.tag}["gpuprov:stack"] for p in pairs] == ["contract"]
    sdk.delete_instances(m.DeleteInstancesRequest(region_id=alibaba.REGION, instance_id=sorted(ours), force=True))
    cloud.settle()
    assert Drive(env, text, "list").of_kind("instance") == []
    assert Drive(env, text, "destroy").rc == 0
    assert cloud.left() == []


def test_gpuprov_leaves_what_the_sdk_launched(tmp_path, cloud):
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, text, "create").rc == 0
    q, _ = split_tags(sent(cloud, "RunInstances")[0])
    cloud.groups["sg-somebodys01"] = {"vpc": "vpc-default0001", "name": "", "tags": {}, "rules": []}
    q["SecurityGroupId"] = "sg-somebodys01"
    foreign = same_launch(client(cloud), q, {"Name": "somebody's"}).body.instance_id_sets.instance_id_set
    assert not set(foreign) & {r["id"] for r in Drive(env, text, "list").of_kind("instance")}
    assert Drive(env, text, "destroy").rc == 0
    cloud.settle()
    assert set(cloud.instances) == set(foreign)


def test_sdk_gets_the_errors_that_gpuprov_gets(tmp_path, cloud):
    sdk = client(cloud)
    with pytest.raises(ClientException) as caught:
        sdk.delete_instances(m.DeleteInstancesRequest(region_id=alibaba.REGION, instance_id=["i-none00000001"], force=True))
    assert caught.value.code == "InvalidInstanceId.NotFound"
    wrong = Client(Config(access_key_id="LTAItest", access_key_secret="wrong", region_id=alibaba.REGION,
                          endpoint="127.0.0.1:%d" % cloud.port, protocol="http"))
    with pytest.raises(ClientException) as caught:
        wrong.describe_instances(m.DescribeInstancesRequest(region_id=alibaba.REGION))
    assert caught.value.code == "SignatureDoesNotMatch"
    run = Drive(environment(cloud, tmp_path, ALIBABA_CLOUD_ACCESS_KEY_SECRET="wrong"), spec(tmp_path), "list")
    assert run["detail"] == "SignatureDoesNotMatch"


def test_lists_and_ends_are_those_of_the_sdk(tmp_path, cloud):
    """The one difference: the SDK writes True where gpuprov writes true."""
    env, text = environment(cloud, tmp_path), spec(tmp_path)
    run = Drive(env, text, "create")
    since = len(cloud.log)
    assert Drive(env, text, "list").rc == 0
    ours = {a: sent(cloud, a, since)[0] for a in ("DescribeInstances", "DescribeDisks", "DescribeNetworkInterfaces",
                                                   "DescribeSecurityGroups", "DescribeKeyPairs")}
    since, sdk = len(cloud.log), client(cloud)
    tags = {"gpuprov:owner": run["owner"], "gpuprov:stack": "contract"}

    def tag(kind):
        return [kind(key=k, value=v) for k, v in tags.items()]
    where = {"region_id": alibaba.REGION}
    sdk.describe_instances(m.DescribeInstancesRequest(**where, max_results=100, tag=tag(m.DescribeInstancesRequestTag)))
    sdk.describe_disks(m.DescribeDisksRequest(**where, max_results=100, tag=tag(m.DescribeDisksRequestTag)))
    sdk.describe_network_interfaces(m.DescribeNetworkInterfacesRequest(
        **where, max_results=100, tag=tag(m.DescribeNetworkInterfacesRequestTag)))
    sdk.describe_security_groups(m.DescribeSecurityGroupsRequest(
        **where, max_results=100, tag=tag(m.DescribeSecurityGroupsRequestTag)))
    sdk.describe_key_pairs(m.DescribeKeyPairsRequest(**where, page_size=50, page_number=1,
                                                     tag=tag(m.DescribeKeyPairsRequestTag)))
    assert {a: sent(cloud, a, since)[0] for a in ours} == ours
    since = len(cloud.log)
    assert Drive(env, text, "destroy").rc == 0
    end = sent(cloud, "DeleteInstances", since)[0]
    nodes = [v for k, v in sorted(end.items()) if k.startswith("InstanceId.")]
    assert {r["id"] for r in run.of_kind("instance")} == set(nodes)
    since = len(cloud.log)
    with pytest.raises(ClientException):  # they are gone
        sdk.delete_instances(m.DeleteInstancesRequest(**where, instance_id=nodes, force=True))
    theirs = sent(cloud, "DeleteInstances", since)[0]
    assert dict(theirs, Force=theirs["Force"].lower()) == end


def nested(q):
    """{"Tag.1.Key": "a"} as {"Tag": [{"Key": "a"}]}, which the SDK's models take."""
    tree = {}
    for name, value in q.items():
        *path, last = name.split(".")
        at = tree
        for word in path:
            at = at.setdefault(word, {})
        at[last] = value

    def lists(value):
        if not isinstance(value, dict):
            return value
        if all(k.isdigit() for k in value):
            return [lists(value[k]) for k in sorted(value, key=int)]
        return {k: lists(v) for k, v in value.items()}
    return lists(tree)


def test_every_request_passes_through_the_models_of_the_sdk(tmp_path, cloud):
    """Each request of a whole life, once more from the SDK's own model of that action: a parameter that the model does not have
    would be lost. One difference: gpuprov names the region of every request, also where the SDK does not. What the repeated
    request does at the cloud does not matter."""
    env, text = environment(cloud, tmp_path), spec(tmp_path, "on-demand", nodes=2, gpu="A10:8", bootstrap={"fabric": "auto"},
                                                   disk="200GiB")
    cloud.late_release = 4  # so that the deadline is set again
    run = Drive(env, text, "create")
    assert run.rc == 0, run.text
    assert Drive(env, text, "list").rc == 0 and Drive(env, text, "destroy").rc == 0
    ours = {a: sent(cloud, a)[0] for a in {r["headers"]["x-acs-action"] for r in cloud.log} if API[a]["version"] == "2014-05-26"}
    differ, sdk = set(), client(cloud)
    for action, q in ours.items():
        since = len(cloud.log)
        model = getattr(m, action + "Request")().from_map(nested(q))
        try:
            getattr(sdk, re.sub("(?<!^)(?=[A-Z])", "_", action).lower())(model)
        except ClientException:
            pass  # it was done before
        theirs = sent(cloud, action, since)[0]
        differ |= {(action, k, q.get(k), theirs.get(k)) for k in q.keys() | theirs.keys() if q.get(k) != theirs.get(k)}
    assert differ == {("DescribeInstanceTypes", "RegionId", alibaba.REGION, None)} and len(ours) > 15, differ
