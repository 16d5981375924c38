# SPDX-License-Identifier: Apache-2.0
"""How many round trips a launch at Azure waits for before its first machine is requested: those of its requests that
do not overlap, at a stand-in with a latency. Nothing here depends on the time that passes, but on what is under way at
once."""
import azure_cloud as azure
import azure_lab
import pytest
from azure_lab import Drive
from far_clouds import FAR
from mock import rounds  # noqa: UP026 (the file of tests/clouds)

LATENCIES = 0.4, 2  # long beside what a machine needs to send requests side by side; the second where it needed longer


@pytest.fixture(name="far")
def far_fixture():
    with azure.Azure() as cloud:
        yield cloud


def before_the_machines(cloud):
    log = list(cloud.log)
    first = next(i for i, r in enumerate(log) if r["method"] == "PUT" and "/virtualMachines/" in r["target"])
    return log[:first]


@pytest.mark.parametrize("more", [{}, {"disk": "100GiB"}, {"gpu": None}, {"offer": {"market": "spot"}},
                                  {"offer": {"regions": ["eastus", "westeurope"]}}])
def test_at_most_seven_round_trips_before_the_create_call(far, tmp_path, more):
    """The token; sizes, quotas and prices; the claim: read, written, read back; the network: written, provisioned."""
    env, text = azure_lab.environment(far, tmp_path), azure_lab.spec(tmp_path, **more)
    for latency in LATENCIES:
        far.latency = latency
        far.log.clear()
        assert Drive(env, text, "create").rc == 0
        log = before_the_machines(far)
        far.latency = 0
        assert Drive(env, text, "destroy").rc == 0
        azure_lab.clean(far)
        if rounds(log) <= 7:
            break
    assert rounds(log) <= 7, [(r["method"], r["target"]) for r in log]


def test_the_machines_of_a_gang_are_polled_side_by_side(tmp_path):
    """32 of them: their requests, then looks at all machines and operations together."""
    for latency in LATENCIES:
        with FAR["azure"](tmp_path / str(latency), 32, latency=latency) as distant:
            assert len(distant.drive()) == 32
            log = list(distant.cloud.log)
            after = log[len(before_the_machines(distant.cloud)):]
        assert len(after) >= 32 * 3
        if rounds(after) <= 12:
            break
    assert rounds(after) <= 12, (rounds(after), [(r["method"], r["target"]) for r in after])


def test_regions_are_read_side_by_side(far, tmp_path):
    text = azure_lab.spec(tmp_path, disk="100GiB", offer={"regions": ["eastus", "westeurope"]})
    far.latency = 0
    far.meet("skus|usages|/api/retail", 8)
    got = Drive(azure_lab.environment(far, tmp_path), text, "offers")
    assert {o["region"] for o in got["offers"]} == {"eastus", "westeurope"}, got.text
    assert len(far.requests("skus|usages|/api/retail")) == 8


def test_a_list_is_four_round_trips(far, tmp_path):
    """The token, the group, everything in it side by side, the power states."""
    env, text = azure_lab.environment(far, tmp_path), azure_lab.spec(tmp_path)
    assert Drive(env, text, "create").rc == 0
    kinds = ("virtualMachines", "networkInterfaces", "publicIPAddresses", "disks", "availabilitySets",
             "networkSecurityGroups", "virtualNetworks")
    for latency in LATENCIES:
        far.latency = latency
        far.log.clear()
        far.meet("GET .*/(%s)[?]" % "|".join(kinds), len(kinds))
        got = Drive(env, text, "list")
        assert got.rc == 0 and len([r for r in got["resources"] if r["kind"] == "instance"]) == 2, got.text
        assert [len(far.requests("GET .*/%s[?]" % kind)) for kind in kinds] == [1] * len(kinds)
        far.met, far.latency = None, 0
        if rounds(far.log) <= 4:
            break
    assert rounds(far.log) <= 4, [(r["method"], r["target"]) for r in far.log]
    assert Drive(env, text, "destroy").rc == 0
    azure_lab.clean(far)


def test_a_quota_that_is_too_small_is_read_again(tmp_path):
    """What was read with the sizes may be old: it lets a launch begin, and never refuses one alone."""
    with azure.Azure() as cloud:
        cloud.rule("GET .*/usages", "edit", change=lambda o: {"value": [dict(u, limit=1) for u in o["value"]]})
        assert Drive(azure_lab.environment(cloud, tmp_path), azure_lab.spec(tmp_path), "create").rc == 0
        assert len(cloud.requests("GET .*/usages")) == 2
        assert Drive(azure_lab.environment(cloud, tmp_path), azure_lab.spec(tmp_path), "destroy").rc == 0
        azure_lab.clean(cloud)
