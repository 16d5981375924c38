# SPDX-License-Identifier: Apache-2.0
"""The provider contract and its bad days for alibaba, against its stand-in cloud (tests/clouds/alibaba.py)."""
import alibaba
import pytest
import test_provider_contract as contract
from alibaba_lab import environment, spec

CASES = contract.CASES + contract.REFUSALS


@pytest.fixture(name="cloud")
def cloud_fixture():
    with alibaba.Alibaba() as cloud:
        yield cloud
        assert cloud.sound() is True


@pytest.mark.parametrize("market", ["spot", "on-demand"])
def test_contract(tmp_path, cloud, market):
    contract.run_contract(environment(cloud, tmp_path), "alibaba", spec(tmp_path, market))
    assert cloud.left() == []


def test_contract_in_an_own_network(tmp_path, cloud):
    """Without a default VPC the stack gets a VPC and a VSwitch, and they go with it."""
    cloud.vpcs.clear()
    cloud.vswitches.clear()
    contract.run_contract(environment(cloud, tmp_path), "alibaba", spec(tmp_path))
    assert cloud.actions("CreateVpc") and cloud.actions("CreateVSwitch")
    assert cloud.left() == [] and cloud.vpcs == {} and cloud.vswitches == {}


def empty(*path):
    def change(reply):
        at = reply
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = []
        return reply
    return change


def no_addresses(reply):
    for one in reply["Instances"]["Instance"]:
        one["PublicIpAddress"]["IpAddress"] = []
        one["VpcAttributes"]["PrivateIpAddress"]["IpAddress"] = []
    return reply


def bad_day(cloud, case, flag):
    refused = {"times": None, "when": str(flag), "status": 403,
               "obj": {"Code": "Forbidden.RAM", "Message": "User not authorized to operate on the specified resource.",
                       "RequestId": "1"}}
    no_nodes = empty("Instances", "Instance")
    if case == "gang_cut":
        cloud.rule("RunInstances", "edit", change=lambda r: dict(r, InstanceIdSets={"InstanceIdSet": []}))
        cloud.rule("DescribeInstances", "edit", times=2, change=no_nodes)
    elif case == "late_address":
        cloud.rule("DescribeInstances", "edit", times=6, change=no_addresses)
    elif case == "late_list":
        cloud.rule("DescribeInstances", "edit", times=4, change=no_nodes)
        cloud.rule("DescribeKeyPairs", "edit", times=2, change=empty("KeyPairs", "KeyPair"))
        cloud.rule("DescribeSecurityGroups", "edit", times=2, change=empty("SecurityGroups", "SecurityGroup"))
    elif case == "lost_reply":
        cloud.rule("RunInstances", "drop_after").rule("CreateSecurityGroup", "drop_after")
        cloud.rule("ImportKeyPair", "drop_after")
    elif case == "paged":
        cloud.page_max = 1
    elif case == "destroy_refused":
        cloud.rule("DeleteInstances", "reply", **refused)
    elif case == "list_hollow":
        cloud.rule("DescribeInstances", "reply", times=None, when=str(flag), status=200, obj={"success": False})
    elif case == "list_refused":
        cloud.rule("DescribeInstances", "reply", **refused)
    elif case == "gang_partial":  # ECS makes all of a gang or none
        cloud.stock = dict.fromkeys(cloud.stock, 1)
    elif case == "throttled":
        cloud.rule(".", "reply", times=None, every=3, status=400,
                   obj={"Code": "Throttling.User", "Message": "Request was denied due to user flow control.",
                        "RequestId": "1"})


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("case", CASES)
def test_bad_days(tmp_path, cloud, case):
    bad_day(cloud, case, tmp_path / "flag")
    contract.run_contract(environment(cloud, tmp_path), "alibaba", spec(tmp_path), case, tmp_path / "flag")
    assert case in ("gang_partial", "killed", "paged") or any(r["done"] for r in cloud.rules), "no fault came"
    assert cloud.left() == []
