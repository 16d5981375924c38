# SPDX-License-Identifier: Apache-2.0
"""One spec with two providers, aws on moto and local on this machine: the launch goes on at the next one, and status,
gc and down see both."""
import json
import signal
import subprocess

import ec2
import pytest
from aws_cloud import cloud_fixture, moto_fixture  # noqa: F401
from test_aws_absence import gpuprov, machine

REGION = ec2.REGION
pytestmark = [pytest.mark.root, pytest.mark.namespaces]


def both(cloud, order, first="aws"):
    offers = [{"provider": "aws", "regions": [REGION], "instance_type": "t3.micro", "image": {"id": cloud.moto.image()}},
              {"provider": "local"}]
    path = cloud.tmp / "both.yaml"
    path.write_text(json.dumps({"name": "both", "order": order, "access": {"ssh_from": ["203.0.113.0/24"]},
                                "offers": offers if first == "aws" else offers[::-1]}))
    return path


def up_until_launched(cloud, spec):
    """Runs `up` until a node was created, and interrupts it. Returns what it printed."""
    up = subprocess.Popen([str(ec2.BUILD / "gpuprov"), "up", "--yes", str(spec)], env=dict(cloud.env, GPUPROV_OWNER="me"),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said, stopped = [], False
    for line in up.stdout:
        said.append(line)
        if not stopped and (" reach" in line or " bootstrap" in line):
            up.send_signal(signal.SIGINT)
            stopped = True
    up.wait(60)
    return "".join(said)


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "VcpuLimitExceeded", "UnauthorizedOperation",
                                  "PendingVerification"])
def test_a_refused_launch_goes_on_at_the_next_cloud(cloud, code):
    status = 500 if code == "InsufficientInstanceCapacity" else 403 if code == "UnauthorizedOperation" else 400
    cloud.proxy.rule("RunInstances", "error", times=None, status=status, code=code)
    spec = both(cloud, "listed")
    said = up_until_launched(cloud, spec)
    try:
        assert cloud.proxy.of("RunInstances"), "aws is the first offer"
        assert "1 x local" in said and code in said, said
        seen = json.loads(gpuprov(cloud, 0, "status", "both", "--json").stdout)["stacks"][0]
        [node] = seen["nodes"]
        assert node["place"] == "local here" and node["billed"] is False, seen
        assert {p["provider"] for p in seen["looked"] if p["checked"]} >= {"aws", "local"}
        assert cloud.moto.instances() == [] and len(cloud.moto.groups()) == 1, "the claim is at the first provider"
    finally:
        ended = json.loads(gpuprov(cloud, 0, "down", "both", "--json").stdout)
    assert ended["gone"] is True and cloud.moto.groups() == []
    assert "there is no stack" in gpuprov(cloud, 1, "status", "both").stderr


@pytest.mark.long
def test_status_gc_and_down_see_both_clouds(cloud):
    """A local stack that lives, and a machine on aws that outlived its deadline: one is kept, the other one ended."""
    stale = machine(cloud, stack="stale")
    cloud.proxy.rule("RunInstances", "error", times=None, status=500, code="InsufficientInstanceCapacity")
    up_until_launched(cloud, both(cloud, "cheapest"))
    try:
        seen = json.loads(gpuprov(cloud, 0, "status", "--json").stdout)
        assert {s["name"] for s in seen["stacks"]} == {"both", "stale"}, seen
        told = json.loads(gpuprov(cloud, 0, "gc", "--json").stdout)
        assert [r["id"] for r in told["ended"]] == [stale] and cloud.moto.instances() == []
        assert "both" in {r["stack"] for r in told["kept"]} and told["complete"] is True
        assert {p["provider"] for p in told["looked"] if p["checked"]} >= {"aws", "local"}
        assert not any(p.get("gap") for p in told["looked"]), "no credentials and nothing there is no gap"
    finally:
        gpuprov(cloud, 0, "down", "both")
    assert json.loads(gpuprov(cloud, 0, "gc", "--json").stdout)["kept"] == []

