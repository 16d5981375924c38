# SPDX-License-Identifier: Apache-2.0
"""Words from AWS that do not have their form are never used: the call ends with one line that names the
call, and nothing is launched. And what a subnet without IPv4 changes in a launch."""
import json
import subprocess

import ec2
import pytest
from aws_cloud import cloud_fixture, moto_fixture  # noqa: F401

REGION = ec2.REGION


def refused(cloud, verb, call, **env):
    run = cloud.drive(verb, **env)
    assert run["code"] == "protocol" and run.rc == 1, run.result
    assert call in run["message"] and "\n" not in run["message"], run["message"]
    assert cloud.proxy.count("RunInstances") == 0 and cloud.moto.instances() == []
    return run["message"]


@pytest.mark.parametrize("action, old, new", [
    ("DescribeSubnets", b"<subnetId>subnet-", b"<subnetId>vpc-"),
    ("DescribeSubnets", b"<vpcId>vpc-", b"<vpcId>../"),
    ("DescribeSubnets", b"<availabilityZone>us-", b"<availabilityZone>us/"),
    ("DescribeSubnets", b"<availabilityZone>us-", b"<availabilityZone>-o "),
    ("DescribeInstanceTypes", b"<instanceType>g4dn", b"<instanceType>g4/dn"),
    ("DescribeInstanceTypeOfferings", b"<instanceType>g4dn", b"<instanceType>g4 dn"),
    ("DescribeInstanceTypeOfferings", b"<location>us-", b"<location>us;"),
    ("DescribeImages", b"<imageId>ami-", b"<imageId>img-"),
    ("DescribeImages", b"<rootDeviceName>/dev/", b"<rootDeviceName>/etc/"),
    ("DescribeImages", b"<volumeSize>15", b"<volumeSize>-15"),
    ("DescribeSpotPriceHistory", b"<spotPrice>0", b"<spotPrice>-1"),
    ("DescribeSpotPriceHistory", b"<spotPrice>0", b"<spotPrice>99999"),
    ("DescribeSpotPriceHistory", b"<spotPrice>0", b"<spotPrice>nan"),
    ("DescribeSpotPriceHistory", b"<spotPrice>0", b"<spotPrice>1e999"),
    ("DescribeSpotPriceHistory", b"<availabilityZone>us-", b"<availabilityZone>us "),
])
def test_replies_without_their_form(cloud, action, old, new):
    cloud.proxy.rule(action, "edit", times=None, old=old, new=new)
    refused(cloud, "create", action)


def test_another_image_than_the_one_asked_for(cloud):
    body = (b"<DescribeImagesResponse><imagesSet><item><imageId>ami-ffffffffffffffff0</imageId></item></imagesSet>"
            b"</DescribeImagesResponse>")
    cloud.proxy.rule("DescribeImages", "reply", times=None, body=body)
    assert "ami-ffffffffffffffff0" in refused(cloud, "create", "DescribeImages")


@pytest.mark.parametrize("value", ["img-0123456789abcdef0", "ami-xyz", "ami-0123456789abcdef0&Owner.1=me", "", "ami-"])
def test_a_parameter_that_holds_no_image_id(cloud, value):
    cloud.spec = ec2.spec(cloud.tmp, {"os": "ubuntu-24.04"}, gpu=None)
    body = json.dumps({"Parameter": {"Name": "x", "Value": value}}).encode()
    cloud.proxy.rule("GetParameter", "reply", times=None, body=body)
    assert "image.id" in refused(cloud, "offers", "GetParameter")


# --- who we are ---

def identity(cloud, account, arn):
    cloud.proxy.rule("GetCallerIdentity", "reply", times=None, body=(
        "<GetCallerIdentityResponse><GetCallerIdentityResult>"
        f"<Arn>{arn}</Arn><UserId>x</UserId><Account>{account}</Account>"
        "</GetCallerIdentityResult></GetCallerIdentityResponse>").encode())


@pytest.mark.parametrize("account, arn", [
    ("12345678901", "arn:aws:iam::12345678901:user/x"), ("1234567890123", "arn:aws:iam::1:user/x"),
    ("12345678901*", "arn:aws:iam::1:user/x"), ("", "arn:aws:iam::1:user/x"), ("123456789012", "nobody"),
    ("123456789012", "arn:aws:iam::123456789012:user/" + "x" * 130)])
def test_an_identity_without_its_form(cloud, account, arn):
    identity(cloud, account, arn)
    refused(cloud, "open", "GetCallerIdentity")


@pytest.mark.parametrize("arn, owner", [
    ("arn:aws:iam::123456789012:user/team/ann.lee+gpu@x", "123456789012-ann.lee+gpu@x"),
    ("arn:aws:iam::123456789012:root", "123456789012-root"),
    ("arn:aws:sts::123456789012:assumed-role/ops/i-0abc", "123456789012-ops"),
    ("arn:aws:sts::123456789012:federated-user/a*b?c$d e", "123456789012-a-b-c-d-e"),
    ("arn:aws:iam::123456789012:user/zo\u00eb", "123456789012-zo--")])
def test_the_owner_that_an_identity_gives(cloud, arn, owner):
    identity(cloud, "123456789012", arn)
    run = cloud.drive("open")
    assert run["code"] == "ok" and run["owner"] == owner, run.result


# --- what an offer has of its own ---

def test_an_offers_image_and_networks_go_before_the_stacks(cloud):
    own = cloud.moto.image()
    here = {"provider": "aws", "regions": [REGION]}
    cloud.spec = ec2.spec(cloud.tmp, {"os": "ubuntu-24.04"}, offers=[
        dict(here, image={"id": own}, ssh_from=["198.51.100.0/24"]), dict(here, market="spot")])
    cloud.drive("create")
    assert cloud.proxy.of("RunInstances")[-1].params["ImageId"] == own
    allowed = {v for call in cloud.proxy.of("AuthorizeSecurityGroupIngress")
               for k, v in call.params.items() if k.endswith(".CidrIp")}
    # the group is the region's: the second offer's networks, the stack's, are let in too
    assert allowed == {"198.51.100.0/24", "203.0.113.0/24"}


# --- subnets without IPv4 ---

def subnets(cloud):
    client = cloud.moto.client()
    vpc = client.create_vpc(CidrBlock="10.9.0.0/16", AmazonProvidedIpv6CidrBlock=True)["Vpc"]["VpcId"]
    block = client.describe_vpcs(VpcIds=[vpc])["Vpcs"][0]["Ipv6CidrBlockAssociationSet"][0]["Ipv6CidrBlock"]
    net = block.split("::")[0].rsplit("/")[0]
    only = client.create_subnet(VpcId=vpc, Ipv6CidrBlock=f"{net}::/64", Ipv6Native=True,
                                AvailabilityZone=REGION + "a")["Subnet"]["SubnetId"]
    both = client.create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24", AvailabilityZone=REGION + "a")["Subnet"]["SubnetId"]
    return only, both


def request(cloud, subnet, **access):
    cloud.spec = ec2.spec(cloud.tmp, cloud.moto.image(), access=dict({"ssh_from": ["2001:db8::/32"]}, **access),
                          offers=[{"provider": "aws", "regions": [REGION], "subnet": subnet}])
    cloud.drive("create")  # what moto makes of it is not asked
    p = cloud.proxy.of("RunInstances")[-1].params
    assert p["NetworkInterface.1.SubnetId"] == subnet
    return {k: p.get(k) for k in ("NetworkInterface.1.AssociatePublicIpAddress", "NetworkInterface.1.Ipv6AddressCount",
                                  "MetadataOptions.HttpProtocolIpv6")}


@pytest.mark.parametrize("public", [True, False])
def test_a_launch_into_a_subnet_without_ipv4(cloud, public):
    only, _ = subnets(cloud)
    assert request(cloud, only, public_ip=public) == {
        "NetworkInterface.1.AssociatePublicIpAddress": None, "NetworkInterface.1.Ipv6AddressCount": "1",
        "MetadataOptions.HttpProtocolIpv6": "enabled"}


def test_a_launch_into_any_other_subnet(cloud):
    _, both = subnets(cloud)
    assert request(cloud, both) == {
        "NetworkInterface.1.AssociatePublicIpAddress": "true", "NetworkInterface.1.Ipv6AddressCount": None,
        "MetadataOptions.HttpProtocolIpv6": None}


# --- limits of prices ---

@pytest.mark.parametrize("limits, price", [({}, None), ({"max_price": "0.75 USD/h"}, "0.75"), ({"max_price": "60 USD/h"}, "60")])
def test_a_spot_request_has_the_limit_of_the_spec(cloud, limits, price):
    cloud.spec = ec2.spec(cloud.tmp, cloud.moto.image(), limits={"ttl": "1h", **limits}, offers=[
        {"provider": "aws", "regions": [REGION], "market": "spot"}])
    cloud.drive("create")
    p = cloud.proxy.of("RunInstances")[-1].params
    assert p["InstanceMarketOptions.MarketType"] == "spot"
    assert p.get("InstanceMarketOptions.SpotOptions.MaxPrice") == price


@pytest.mark.parametrize("limits, why", [({"max_price": "0.01 USD/h"}, "is over limits.max_price 0.01 USD/h"),
                                         ({"max_cost": "0.01 USD"}, "is over limits.max_cost 0.01 USD")])
def test_offers_over_a_limit_are_not_bought(cloud, limits, why):
    cloud.spec = ec2.spec(cloud.tmp, cloud.moto.image(), "on-demand", limits={"ttl": "1h", **limits})
    for verb in ("plan", "up"):
        done = subprocess.run([str(ec2.BUILD / "gpuprov"), verb, str(cloud.spec)], env=cloud.env, capture_output=True,
                              text=True, timeout=120, check=False)
        assert done.returncode == 4 and why in done.stderr, done
    assert cloud.proxy.count("RunInstances") == 0 and cloud.proxy.count("CreateSecurityGroup") == 0
