# SPDX-License-Identifier: Apache-2.0
"""The gate itself: what it lets pass and what it refuses. A gate that refuses nothing would prove nothing."""
import base64
import http.client
import urllib.parse

import ec2_gate
import pytest
from aws_cloud import cloud_fixture, moto_fixture  # noqa: F401

GOOD = {"Action": "RunInstances", "Version": "2016-11-15", "ImageId": "ami-1", "InstanceType": "p5.48xlarge", "MinCount": "1",
        "MaxCount": "1", "UserData": base64.b64encode(b"x").decode(), "NetworkInterface.1.DeviceIndex": "0",
        "NetworkInterface.1.SecurityGroupId.1": "sg-1", "NetworkInterface.1.InterfaceType": "efa",
        "TagSpecification.1.ResourceType": "instance", "TagSpecification.1.Tag.1.Key": "k",
        "TagSpecification.1.Tag.1.Value": "v", "InstanceMarketOptions.MarketType": "capacity-block",
        "BlockDeviceMapping.1.Ebs.Encrypted": "true"}


def test_a_good_request_passes():
    got = ec2_gate.ec2(GOOD)
    assert got["NetworkInterfaces"] == [{"DeviceIndex": 0, "Groups": ["sg-1"], "InterfaceType": "efa"}]
    assert got["BlockDeviceMappings"] == [{"Ebs": {"Encrypted": True}}]
    ec2_gate.ec2({**GOOD, "InstanceType": "p9.48xlarge"})  # a type that this botocore does not know


@pytest.mark.parametrize("wrong, words", [
    ({"Fabric": "efa"}, "unknown parameter 'Fabric'"),
    ({"NetworkInterface.1.Groups.1": "sg-1"}, "unknown parameter 'Groups'"),
    ({"NetworkInterface.2.NetworkCard": "1"}, "unknown parameter 'NetworkCard'"),
    ({"MinCount": "one"}, "is not a number"),
    ({"BlockDeviceMapping.1.Ebs.Encrypted": "yes"}, "neither true nor false"),
    ({"InstanceMarketOptions.MarketType": "block"}, "is none of spot, capacity-block"),
    ({"TagSpecification.1.ResourceType": "placement-groups"}, "is none of"),
    ({"TagSpecification.3.ResourceType": "volume"}, "without gaps"),
    ({"ImageId.1": "ami-1"}, "a value and members"),
    ({"NetworkInterface": "eni-1"}, "a value and members"),
    ({"Placement": "here"}, "a value where members belong"),
    ({"MinCount": None}, "Missing required parameter"),
    ({"Action": "RunInstance"}, "there is no RunInstance"),
    ({"Version": "2014-10-01"}, "is not 2016-11-15")])
def test_a_wrong_request_is_refused(wrong, words):
    with pytest.raises(ec2_gate.Wrong, match=words):
        ec2_gate.ec2({k: v for k, v in {**GOOD, **wrong}.items() if v is not None})


def test_times_and_json_services():
    spot = {"Action": "DescribeSpotPriceHistory", "Version": "2016-11-15", "StartTime": "2026-11-23T10:00:00Z"}
    ec2_gate.ec2(spot)
    with pytest.raises(ec2_gate.Wrong, match="is not a time"):
        ec2_gate.ec2({**spot, "StartTime": "now"})
    ec2_gate.of_json("AmazonSSM.GetParameter", b'{"Name": "/x"}')
    with pytest.raises(ec2_gate.Wrong, match="Missing required parameter"):
        ec2_gate.of_json("AmazonSSM.GetParameter", b"{}")
    with pytest.raises(ec2_gate.Wrong, match="Invalid type"):
        ec2_gate.of_json("ServiceQuotasV20190624.GetServiceQuota", b'{"ServiceCode": "ec2", "QuotaCode": 1}')


def send(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/", urllib.parse.urlencode(body), {
        "Content-Type": "application/x-www-form-urlencoded", "User-Agent": "gpuprov/0",
        "Authorization": "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/ec2/aws4_request, "
                         "SignedHeaders=host, Signature=0"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_the_proxy_and_every_moto_server_have_it(cloud):
    right = {"Action": "DescribePlacementGroups", "Version": "2016-11-15"}
    for port in (cloud.proxy.port, cloud.moto.port):
        assert send(port, right)[0] == 200
        status, text = send(port, {**right, "Groups.1": "x"})
        assert status == 400 and "GateRefused" in text and "unknown parameter" in text
    assert len(cloud.proxy.refused) == 1
    cloud.proxy.refused.clear()
