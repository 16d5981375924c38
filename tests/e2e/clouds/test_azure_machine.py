# SPDX-License-Identifier: Apache-2.0
"""disk of a spec at Azure: the size that is requested and created, its part of the price, and its limits."""
import json

import azure_cloud as azure
import azure_lab
import pytest
from azure_lab import Drive

HOURS = 730


@pytest.fixture(name="cloud")
def cloud_fixture():
    with azure.Azure() as cloud:
        yield cloud


def drive(cloud, folder, verb, **spec):
    return Drive(azure_lab.environment(cloud, folder), azure_lab.spec(folder, nodes=1, **spec), verb)


@pytest.mark.parametrize("more, gib", [({}, 128), ({"gpu": None}, 32), ({"disk": "500GiB"}, 500), ({"disk": "4095GiB"}, 4095)])
def test_the_disk_has_the_size_of_the_spec(cloud, tmp_path, more, gib):
    assert drive(cloud, tmp_path, "create", **more).rc == 0
    [disk] = [t for k, t in cloud.things.items() if k[1] == "Microsoft.Compute/disks"]
    assert disk["properties"]["diskSizeGB"] == gib
    [put] = cloud.requests("PUT .*/virtualMachines/")
    asked = json.loads(put["body"])["properties"]["storageProfile"]["osDisk"]
    assert (asked["diskSizeGB"], asked["deleteOption"]) == (gib, "Delete")
    assert drive(cloud, tmp_path, "destroy", **more).rc == 0
    azure_lab.clean(cloud)


@pytest.mark.parametrize("disk, tier", [("100GiB", "P10 LRS"), ("128GiB", "P10 LRS"), ("500GiB", "P20 LRS"),
                                        ("4095GiB", "P50 LRS")])
def test_the_disk_is_part_of_the_price(cloud, tmp_path, disk, tier):
    """Azure bills a premium disk by its tier, and a month has 730 hours."""
    usd = azure.DISK_PRICES[tier] / HOURS
    offers = drive(cloud, tmp_path, "offers", disk=disk)["offers"]
    assert [o["price"] for o in offers] == [pytest.approx(0.53 + usd)] * 3
    spot = drive(cloud, tmp_path, "offers", disk=disk, offer={"market": "spot"})["offers"]
    assert [o["price"] for o in spot] == [pytest.approx(0.21 + usd)] * 3


@pytest.mark.parametrize("why", ["tier", "region", "service"])
def test_a_disk_without_a_price_has_no_price_of_the_node(cloud, tmp_path, why):
    if why == "service":
        cloud.rule("/api/retail/prices.*Premium", "reply", status=500, times=None)
    disk = "200GiB" if why == "tier" else "100GiB"
    offers = drive(cloud, tmp_path, "offers", disk=disk,
                   offer={"regions": ["westeurope" if why == "region" else "eastus"]})["offers"]
    assert {o["price"] < 0 and o["price_source"] == "" for o in offers} == {True}, offers


def test_a_spot_node_and_its_disk_cost_at_most_the_limit(cloud, tmp_path):
    limits = {"unattended": "accept", "max_price": "1.50 USD/h"}
    assert drive(cloud, tmp_path, "create", disk="100GiB", limits=limits, offer={"market": "spot"}).rc == 0
    [vm] = cloud.vms()
    assert vm["properties"]["billingProfile"]["maxPrice"] == pytest.approx(1.5 - azure.DISK_PRICES["P10 LRS"] / HOURS)
    assert drive(cloud, tmp_path, "destroy", disk="100GiB", limits=limits, offer={"market": "spot"}).rc == 0
    azure_lab.clean(cloud)


@pytest.mark.parametrize("disk, words, asked", [("20GiB", "raise 'disk'", 1), ("4096GiB", "at most 4095 GiB", 0)])
def test_a_disk_that_no_machine_can_have(cloud, tmp_path, disk, words, asked):
    got = drive(cloud, tmp_path, "create", disk=disk)
    assert got.rc == 1 and words in got["message"], got.text
    assert len(cloud.requests("PUT .*/virtualMachines/")) == asked and cloud.vms() == []
    assert drive(cloud, tmp_path, "destroy").rc == 0
    azure_lab.clean(cloud)


def test_plan_states_the_disk(cloud, gpuprov, tmp_path):
    gpuprov.env = azure_lab.environment(cloud, tmp_path)
    plan = gpuprov.json("plan", azure_lab.spec(tmp_path, disk="100GiB"), code=2)
    assert {(o["disk_gib"], round(o["disk_usd_per_h"], 6)) for o in plan["offers"]} == {
        (100, round(azure.DISK_PRICES["P10 LRS"] / HOURS, 6))}
    plain = gpuprov.json("plan", azure_lab.spec(tmp_path), code=2)
    assert {(o["disk_gib"], o["disk_usd_per_h"]) for o in plain["offers"]} == {(128, None)}
