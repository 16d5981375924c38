# SPDX-License-Identifier: Apache-2.0
"""EFA, placement groups and reserved capacity: the requests themselves (each is compared with botocore's model by the
proxy), what is created, and that nothing remains. moto has the calls from tests/hosts/moto_fabric.py."""
import datetime
import json
import subprocess
import time

import ec2
import pytest
from aws_cloud import cloud_fixture, moto_fixture  # noqa: F401
from ec2 import BUILD
from waiting import wait_for

P5 = "p5.48xlarge"


def spec(cloud, nodes=2, fabric="auto", public=False, ttl="4h", **offer):
    access = {"ssh_from": ["203.0.113.0/24"], "public_ip": public, **({} if public else {"bastion": "ops@203.0.113.9"})}
    cloud.spec = ec2.spec(
        cloud.tmp, cloud.moto.image(), nodes=nodes, gpu=None, access=access, limits={"ttl": ttl},
        bootstrap={"fabric": fabric}, offers=[{"provider": "aws", "regions": [ec2.REGION], "market": "on-demand",
                                               **({"instance_type": P5} if "reservation" not in offer else {}),
                                               **offer}])
    return cloud.spec


def groups(cloud):
    return cloud.moto.client().describe_placement_groups()["PlacementGroups"]


def launch(cloud):
    """The parameters of the only RunInstances."""
    [call] = cloud.proxy.of("RunInstances")
    return call.params


def interfaces(params):
    found = {}
    for key, value in params.items():
        if key.startswith("NetworkInterface."):
            _, n, name = key.split(".", 2)
            found.setdefault(int(n), {})[name] = value
    return [found[i + 1] for i in range(len(found))]


def nothing_left(cloud):
    assert cloud.moto.instances() == [] and cloud.moto.groups() == [] and groups(cloud) == []


@pytest.mark.parametrize("kind, cards", [(P5, 32), ("p5en.48xlarge", 16), ("p4d.24xlarge", 4), ("p6-b200.48xlarge", 8)])
def test_a_gang_has_one_efa_interface_on_each_network_card(cloud, kind, cards):
    spec(cloud, instance_type=kind)
    run = cloud.drive("create")
    assert run["code"] == "ok", run["message"]
    nics = interfaces(launch(cloud))
    assert len(nics) == cards
    assert (nics[0]["InterfaceType"], nics[0]["NetworkCardIndex"], nics[0]["DeviceIndex"]) == ("efa", "0", "0")
    for i, nic in enumerate(nics[1:], 1):
        assert (nic["InterfaceType"], nic["NetworkCardIndex"], nic["DeviceIndex"]) == ("efa-only", str(i), "1")
    assert all(n["DeleteOnTermination"] == "true" and n["SecurityGroupId.1"].startswith("sg-") for n in nics)
    assert not any("AssociatePublicIpAddress" in n for n in nics)
    [group] = groups(cloud)
    tags = {t["Key"]: t["Value"] for t in group["Tags"]}
    assert launch(cloud)["Placement.GroupName"] == group["GroupName"] and group["Strategy"] == "cluster"
    assert tags["gpuprov:owner"] == "123456789012-moto" and len(tags["gpuprov:uid"]) == 16
    assert [i["state"] for i in run.intents("placement-group")] == ["done"]
    assert [r["id"] for r in cloud.drive("list").of_kind("placement-group")] == [group["GroupName"]]
    assert cloud.drive("destroy")["code"] == "ok"
    nothing_left(cloud)


def test_a_card_without_efa_has_the_addresses(cloud):
    spec(cloud, instance_type="p6-b300.48xlarge")
    assert cloud.drive("create")["code"] == "ok"
    nics = interfaces(launch(cloud))
    assert [n["InterfaceType"] for n in nics] == ["interface"] + ["efa-only"] * 16
    assert [n["NetworkCardIndex"] for n in nics] == [str(i) for i in range(17)]


def test_one_card_keeps_its_public_address(cloud):
    spec(cloud, instance_type="g6.8xlarge", public=True)
    assert cloud.drive("create")["code"] == "ok"
    [nic] = interfaces(launch(cloud))
    assert nic["InterfaceType"] == "efa" and nic["AssociatePublicIpAddress"] == "true"


def test_several_cards_and_a_public_address_are_refused(cloud):
    spec(cloud, public=True)
    run = cloud.drive("offers")
    assert run["code"] == "usage" and "access.public_ip: false" in run["message"] and "32" in run["message"]
    assert cloud.proxy.count("RunInstances") == 0


@pytest.mark.parametrize("more", [{"nodes": 1}, {"fabric": "none"}, {"fabric": "infiniband"}])
def test_no_efa_where_it_has_no_use(cloud, more):
    spec(cloud, **more)
    assert cloud.drive("create")["code"] == "ok"
    [nic] = interfaces(launch(cloud))
    assert "InterfaceType" not in nic and "NetworkCardIndex" not in nic
    assert "Placement.GroupName" not in launch(cloud) and groups(cloud) == []


def test_efa_that_the_type_does_not_have(cloud):
    spec(cloud, fabric="efa", instance_type="g4dn.xlarge")
    run = cloud.drive("offers")
    assert run["code"] == "usage" and "g4dn.xlarge has no EFA" in run["message"]
    spec(cloud, fabric="auto", instance_type="g4dn.xlarge")
    assert cloud.drive("offers")["code"] == "ok"


def test_plan_names_the_fabric(cloud):
    def plan():
        done = subprocess.run([BUILD / "gpuprov", "plan", cloud.spec, "--json"], env=cloud.env, capture_output=True,
                              text=True, timeout=120, check=False)
        assert done.returncode == 2, done.stderr  # there are changes
        return json.loads(done.stdout)["offers"][0]["fabric"]
    spec(cloud)
    assert plan() == "EFA x32, a cluster placement group"
    spec(cloud, fabric="none")
    assert plan() == "TCP only; the type has EFA x32: bootstrap.fabric: auto uses it"
    text = subprocess.run([BUILD / "gpuprov", "plan", spec(cloud)], env=cloud.env, capture_output=True, text=True,
                          timeout=120, check=False).stdout
    assert "\nfabric: EFA x32, a cluster placement group\n" in text


# --- a cloud that is late, or loses replies ---

def test_a_new_placement_group_that_run_instances_does_not_find_yet(cloud):
    spec(cloud)
    cloud.proxy.rule("RunInstances", "error", times=2, code="InvalidPlacementGroup.Unknown")
    assert cloud.drive("create")["code"] == "ok"
    assert cloud.proxy.count("RunInstances") == 3 and len(cloud.moto.instances()) == 2
    first, *others = cloud.proxy.of("RunInstances")
    assert all(o.body == first.body for o in others)


def test_a_lost_reply_of_the_placement_group(cloud):
    spec(cloud)
    cloud.proxy.rule("CreatePlacementGroup", "drop_after")
    cloud.proxy.rule("DescribePlacementGroups", "empty_list", times=2)  # and its list lags behind
    run = cloud.drive("create")
    assert run["code"] == "ok", run["message"]
    assert cloud.proxy.count("CreatePlacementGroup") == 1 and len(groups(cloud)) == 1
    assert [i["state"] for i in run.intents("placement-group")] == ["done"]


def test_a_placement_group_of_an_earlier_try_is_used(cloud):
    spec(cloud)
    cloud.proxy.rule("RunInstances", "error", times=None, code="InsufficientInstanceCapacity", status=500)
    assert cloud.drive("create")["code"] == "capacity"
    before = groups(cloud)
    cloud.proxy.clear()
    assert cloud.drive("create", "2")["code"] == "ok"
    assert {g["GroupName"] for g in groups(cloud)} == {g["GroupName"] for g in before}
    assert cloud.drive("destroy")["code"] == "ok"
    nothing_left(cloud)


def test_a_group_that_is_still_in_use_is_deleted_later(cloud):
    spec(cloud)
    assert cloud.drive("create")["code"] == "ok"
    cloud.proxy.rule("DeletePlacementGroup", "error", times=2, code="InvalidPlacementGroup.InUse")
    assert cloud.drive("destroy")["code"] == "ok"
    assert cloud.proxy.count("DeletePlacementGroup") >= 3
    nothing_left(cloud)


def test_without_the_journal_the_group_is_found_and_ended(cloud):
    spec(cloud)
    assert cloud.drive("create")["code"] == "ok"
    fresh = cloud.tmp / "another"
    fresh.mkdir()
    assert cloud.drive("destroy", GPUPROV_STATE_DIR=str(fresh))["code"] == "ok"
    nothing_left(cloud)


def test_a_placement_group_with_another_name_is_left_alone(cloud):
    spec(cloud)
    run = cloud.drive("create")
    [group] = groups(cloud)
    cloud.moto.client().create_placement_group(
        GroupName="production of somebody", Strategy="cluster",
        TagSpecifications=[{"ResourceType": "placement-group", "Tags": group["Tags"]}])
    assert run["code"] == "ok" and cloud.drive("destroy")["code"] == "ok"
    assert [g["GroupName"] for g in groups(cloud)] == ["production of somebody"]


# --- reserved capacity ---

def reserve(cloud, count=2, hours=48, block=True, zone="us-east-1b", **more):
    tags = [{"Key": k, "Value": v} for k, v in {**({"block": "1"} if block else {}), **more.pop("tags", {})}.items()]
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=hours)
    return cloud.moto.client().create_capacity_reservation(
        InstanceType=P5, InstancePlatform="Linux/UNIX", AvailabilityZone=zone, InstanceCount=count,
        EndDate=end, EndDateType="limited",
        **({"TagSpecifications": [{"ResourceType": "capacity-reservation", "Tags": tags}]} if tags else {}),
        **more)["CapacityReservation"]["CapacityReservationId"]


def test_a_capacity_block_is_launched_into(cloud):
    block = reserve(cloud)
    spec(cloud, reservation=block)
    offers = cloud.drive("offers")["offers"]
    assert [(o["zone"], o["type"], o["price"]) for o in offers] == [("us-east-1b", P5, 0)]
    assert offers[0]["price_source"] == f"paid with Capacity Block {block}"
    assert cloud.drive("create")["code"] == "ok"
    params = launch(cloud)
    assert params["InstanceMarketOptions.MarketType"] == "capacity-block"
    target = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"
    assert params[target] == block and params["Placement.AvailabilityZone"] == "us-east-1b"
    assert len(interfaces(params)) == 32
    assert groups(cloud) == [] and "Placement.GroupName" not in params  # a block is close by itself
    assert {i["InstanceLifecycle"] for i in cloud.moto.instances()} == {"capacity-block"}
    assert cloud.drive("destroy")["code"] == "ok"
    nothing_left(cloud)


def test_a_reservation_with_a_placement_group_of_its_own(cloud):
    cloud.moto.client().create_placement_group(GroupName="theirs", Strategy="cluster")
    kept = reserve(cloud, block=False,
                   PlacementGroupArn="arn:aws:ec2:us-east-1:123456789012:placement-group/theirs")
    spec(cloud, reservation=kept)
    assert cloud.drive("create")["code"] == "ok"
    assert launch(cloud)["Placement.GroupName"] == "theirs"
    assert "InstanceMarketOptions.MarketType" not in launch(cloud)
    assert cloud.drive("destroy")["code"] == "ok"
    assert [g["GroupName"] for g in groups(cloud)] == ["theirs"]


def test_a_block_that_ends_before_the_deadline(cloud):
    block = reserve(cloud, hours=4)  # EC2 ends its nodes half an hour before
    spec(cloud, reservation=block, ttl="4h")
    run = cloud.drive("offers")
    assert run["code"] == "usage"
    ends = time.strftime("%Y-%m-%dT%H", time.gmtime(time.time() + 4 * 3600))
    assert run["message"].count(ends) >= 1 and "deadline" in run["message"] and "limits.ttl" in run["message"]
    spec(cloud, reservation=block, ttl="3h")
    assert cloud.drive("offers")["code"] == "ok"


@pytest.mark.parametrize("wrong, code, words", [
    ({"zones": ["us-east-1a"]}, "usage", "is in us-east-1b"),
    ({"instance_type": "p4d.24xlarge"}, "usage", "correct instance_type"),
    ({"market": "spot"}, "usage", "remove market: spot")])
def test_an_offer_that_contradicts_its_reservation(cloud, wrong, code, words):
    spec(cloud, reservation=reserve(cloud), **wrong)
    run = cloud.drive("offers")
    assert run["code"] == code and words in run["message"]


def test_reservations_that_cannot_be_used_now(cloud):
    spec(cloud, reservation=reserve(cloud, tags={"state": "scheduled", "start": "2099-01-02T03:04:05Z"}))
    run = cloud.drive("offers")
    assert run["code"] == "capacity" and "scheduled, and begins 2099-01-02T03:04:05Z" in run["message"]
    spec(cloud, reservation=reserve(cloud, tags={"state": "expired"}))
    assert "is expired" in cloud.drive("offers")["message"]
    spec(cloud, reservation=reserve(cloud, count=0))
    assert "has no free node" in cloud.drive("offers")["message"]
    spec(cloud, reservation="cr-0123456789abcdef0")
    run = cloud.drive("offers")
    assert run["code"] == "usage" and "InvalidCapacityReservationId.NotFound" in run["message"]


def test_fewer_free_nodes_than_the_gang_has(cloud):
    spec(cloud, nodes=3, reservation=reserve(cloud, count=2))
    done = subprocess.run([BUILD / "gpuprov", "plan", cloud.spec], env=cloud.env, capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode != 0 and "capacity for 2" in done.stdout + done.stderr


def test_a_reply_that_is_about_another_reservation(cloud):
    mine = reserve(cloud)
    spec(cloud, reservation=mine)
    cloud.proxy.rule("DescribeCapacityReservations", "edit", old=mine.encode(), new=b"cr-00000000000000000")
    run = cloud.drive("offers")
    assert run["code"] == "protocol" and mine in run["message"]


# --- nodes without a public address ---

def way(cloud, **more):
    """The warnings of `plan` about the way out of the subnet."""
    spec(cloud, nodes=1, fabric="none", instance_type="g4dn.xlarge", **more)
    done = subprocess.run([BUILD / "gpuprov", "plan", cloud.spec], env=cloud.env, capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    return [line for line in done.stderr.splitlines() if "cannot reach the internet" in line]


@pytest.mark.long
def test_a_subnet_without_a_way_out_is_reported(cloud):
    client = cloud.moto.client()
    vpc = client.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnets = [client.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{i}.0/24", AvailabilityZone="us-east-1b")["Subnet"]["SubnetId"]
               for i in range(3)]
    [alone, public, private] = subnets
    gateway = client.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    client.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    nat = client.create_nat_gateway(SubnetId=public, ConnectivityType="private")["NatGateway"]["NatGatewayId"]
    for subnet, target in ((public, {"GatewayId": gateway}), (private, {"NatGatewayId": nat})):
        table = client.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
        client.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", **target)
        client.associate_route_table(RouteTableId=table, SubnetId=subnet)
    [line] = way(cloud, subnet=alone)
    assert alone in line and "has no default route" in line
    [line] = way(cloud, subnet=public)
    assert public in line and "internet gateway" in line and "NAT gateway" in line
    assert way(cloud, subnet=private) == []
    assert way(cloud, subnet=public, public=True) == []
    cloud.proxy.rule("DescribeRouteTables", "error", times=None, code="UnauthorizedOperation", status=403)
    assert way(cloud, subnet=public) == []  # unknown: nothing is claimed


def test_nodes_without_a_public_address_need_a_private_source(cloud):
    spec(cloud, nodes=1, fabric="none")
    text = json.loads(cloud.spec.read_text())
    del text["access"]["ssh_from"]
    cloud.spec.write_text(json.dumps(text))
    run = cloud.drive("offers")
    assert run["code"] == "usage" and "set access.ssh_from" in run["message"]


def test_no_capacity_of_a_type_that_is_sold_in_blocks(cloud):
    spec(cloud)
    cloud.proxy.rule("RunInstances", "error", times=None, code="InsufficientInstanceCapacity", status=500)
    run = cloud.drive("create")
    assert run["code"] == "capacity" and "'reservation'" in run["message"]
    spec(cloud, instance_type="g4dn.xlarge", fabric="none")
    assert "'reservation'" not in cloud.drive("create")["message"]


def test_a_launch_that_is_killed_at_any_moment_leaves_nothing(cloud, tmp_path):
    """kill -9 while a call is on its way: down finds the group and the nodes, with the journal and without."""
    for i, action in enumerate(("CreatePlacementGroup", "RunInstances")):
        for kept in (True, False):
            spec(cloud)
            state = tmp_path / f"state{i}{kept}"
            state.mkdir()
            cloud.proxy.rule(action, "hold_after")
            cloud.proxy.released.clear()
            before = cloud.proxy.held
            child = subprocess.Popen([BUILD / "tests/drivers/provider_drive", "aws", str(cloud.spec), "create"],
                                     env={**cloud.env, "GPUPROV_STATE_DIR": str(state)}, stdout=subprocess.DEVNULL)
            wait_for(lambda n=before: cloud.proxy.held > n, 60)  # the cloud has acted
            child.kill()
            child.wait()
            cloud.proxy.release()
            fresh = tmp_path / f"fresh{i}{kept}"
            fresh.mkdir()
            done = cloud.drive("destroy", GPUPROV_STATE_DIR=str(state if kept else fresh))
            assert done["code"] == "ok", (action, kept, done.result)
            nothing_left(cloud)
            cloud.proxy.clear()
