# SPDX-License-Identifier: Apache-2.0
"""How many round trips a launch waits for: the requests before RunInstances that do not overlap, seen by a proxy that
adds a latency to each. Nothing here depends on the time that passes, but on what is under way at once."""
import json
import subprocess

import ec2
import faultproxy
import pytest
from aws_cloud import cloud_fixture, moto_fixture  # noqa: F401

LATENCIES = 0.4, 2  # long beside what a machine needs to start threads; the second where a busy one needed longer


@pytest.fixture(name="far")
def far_fixture(cloud):
    with faultproxy.FaultProxy(cloud.moto.url) as proxy:
        cloud.proxy, cloud.env["AWS_ENDPOINT_URL"] = proxy, proxy.url
        yield cloud


def spec(far, **more):
    market = more.pop("market", "on-demand")
    far.spec = ec2.spec(far.tmp, far.moto.image(), **{"market": market, **more})


def cycle(far, nodes):
    """Launches as `up` does, with tests/drivers/ec2_cycle: open, offers, claim, create; and ends all again."""
    done = subprocess.run([ec2.BUILD / "tests/drivers/ec2_cycle", far.spec], env=far.env, capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["instances"] == nodes, done.stderr


def seen(far, run, found):
    """Whether found() holds after run() at one of the latencies."""
    for latency in LATENCIES:
        far.proxy.latency = latency
        far.proxy.clear()
        run()
        if found():
            return True
    return False


def side_by_side(calls):
    return max(c.at for c in calls) < min(c.end for c in calls)


@pytest.mark.parametrize("nodes", [1, 32])
@pytest.mark.parametrize("market", ["on-demand", "spot"])
def test_at_most_five_round_trips_before_the_create_call(far, nodes, market):
    spec(far, nodes=nodes, market=market)
    assert seen(far, lambda: cycle(far, nodes), lambda: far.proxy.rounds_before("RunInstances") <= 5), \
        [c.action for c in far.proxy.calls]


def test_regions_are_read_side_by_side(far):
    regions = [ec2.REGION, "us-west-2", "eu-west-1"]
    spec(far, offers=[{"provider": "aws", "regions": regions}])

    def read():
        assert far.drive("offers")["code"] == "ok"  # the image is in one of them only
        assert {c.region for c in far.proxy.of("DescribeInstanceTypes")} == set(regions)
    assert seen(far, read, lambda: side_by_side(far.proxy.of("DescribeInstanceTypes")))


def test_a_gang_with_efa_needs_one_more_for_its_placement_group(far):
    spec(far, gpu=None, access={"ssh_from": ["203.0.113.0/24"], "public_ip": False}, bootstrap={"fabric": "auto"},
         offers=[{"provider": "aws", "regions": [ec2.REGION], "instance_type": "p5.48xlarge"}])
    assert seen(far, lambda: cycle(far, 2), lambda: far.proxy.rounds_before("RunInstances") <= 6)


def test_a_list_of_one_region_is_one_round_trip(far):
    spec(far, nodes=1)
    assert far.drive("create")["code"] == "ok"
    kinds = {"DescribeInstances", "DescribeVolumes", "DescribePlacementGroups", "DescribeSecurityGroups"}

    def first():
        calls = [c for c in far.proxy.calls if c.action in kinds][:4]
        assert {c.action for c in calls} == kinds
        return calls
    assert seen(far, lambda: far.drive("list"), lambda: side_by_side(first()))
