# SPDX-License-Identifier: Apache-2.0
"""The alibaba provider against its stand-in cloud (tests/clouds/alibaba.py): the provider contract, its bad days, and
what only this cloud has: own networks, the deadline that is read back, stock, prices, leftovers."""
import os

import alibaba
import ec2
import pytest
import test_provider_contract as contract

CASES = contract.CASES


def environment(cloud, state, **more):
    env = {k: v for k, v in os.environ.items()
           if not k.upper().startswith(("ALIBABA", "GPUPROV_", "AWS_")) and
           k.upper() not in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")}
    env.update(ec2.CLEAN, HOME=str(state), GPUPROV_STATE_DIR=str(state / "state"))
    env.update(cloud.environment(**more))
    return {k: v for k, v in env.items() if v is not None}


def spec(folder, market="spot", **more):
    offer = {"provider": "alibaba", "regions": [alibaba.REGION], "market": market}
    offer.update(more.pop("offer", {}))
    return ec2.spec(folder, None, offers=[{k: v for k, v in offer.items() if v is not None}], **more)


@pytest.fixture(name="cloud")
def cloud_fixture():
    with alibaba.Alibaba() as cloud:
        yield cloud
        assert not [r for r in cloud.log if r.get("status") == 500], "the stand-in itself failed"


@pytest.mark.parametrize("market", ["spot", "on-demand"])
def test_contract(tmp_path, cloud, market):
    contract.run_contract(environment(cloud, tmp_path), "alibaba", spec(tmp_path, market))
    assert cloud.left() == []


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


def bad_day(cloud, case):
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
    elif case == "throttled":
        cloud.rule(".", "reply", times=None, every=3, status=400,
                   obj={"Code": "Throttling.User", "Message": "Request was denied due to user flow control.",
                        "RequestId": "1"})


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("case", CASES)
def test_bad_days(tmp_path, cloud, case):
    bad_day(cloud, case)
    contract.run_contract(environment(cloud, tmp_path), "alibaba", spec(tmp_path), case)
    assert case in ("killed", "paged") or any(r["done"] for r in cloud.rules), "no fault came"
    assert cloud.left() == []
