# SPDX-License-Identifier: Apache-2.0
"""InfiniBand between the nodes of a gang at Azure: what the plan says, one availability set, the image, the devices that
validation expects, and the offers that cannot have it."""
import azure_cloud as azure
import azure_lab
import pytest
from azure_lab import Drive

SIZE = "Standard_ND96isr_H100_v5"


@pytest.fixture(name="cloud")
def cloud_fixture():
    with azure.Azure() as cloud:
        yield cloud


def drive(cloud, folder, verb, fabric="auto", gpu="H100:8", **spec):
    return Drive(azure_lab.environment(cloud, folder),
                 azure_lab.spec(folder, gpu=gpu, bootstrap={"fabric": fabric}, **spec), verb)


def plan(cloud, gpuprov, folder, fabric="auto", **spec):
    gpuprov.env = azure_lab.environment(cloud, folder)
    path = azure_lab.spec(folder, gpu="H100:8", bootstrap={"fabric": fabric}, **spec)
    return [(o["zone"], o["fabric"]) for o in gpuprov.json("plan", path, code=2)["offers"]]


@pytest.mark.parametrize("fabric", ["auto", "infiniband"])
def test_a_gang_is_in_one_availability_set(cloud, tmp_path, fabric):
    got = drive(cloud, tmp_path, "create", fabric)
    assert got.rc == 0, got.text
    [vmset] = [t for k, t in cloud.things.items() if k[1].endswith("availabilitySets")]
    assert vmset["properties"]["platformFaultDomainCount"] == 1 and vmset["tags"]["gpuprov:stack"] == "contract"
    for vm in cloud.vms():
        assert vm["properties"]["availabilitySet"]["id"] == vmset["id"] and "zones" not in vm
        image = vm["properties"]["storageProfile"]["imageReference"]
        assert (image["offer"], image["sku"]) == ("ubuntu-hpc", "2204")
    listed = drive(cloud, tmp_path, "list", fabric)
    assert [r["kind"] for r in listed["resources"]].count("placement-group") == 1
    # what validation requires of each node: one card for each GPU
    assert [r["rdma"] for r in listed["resources"] if r["kind"] == "instance"] == [8, 8]
    assert drive(cloud, tmp_path, "destroy", fabric).rc == 0
    azure_lab.clean(cloud)


def test_the_plan_says_the_network(cloud, gpuprov, tmp_path):
    assert plan(cloud, gpuprov, tmp_path) == [("", "InfiniBand, one availability set")]
    [(zone, text)] = plan(cloud, gpuprov, tmp_path, "none")
    assert zone == "eastus-2" and text.startswith("TCP only") and "bootstrap.fabric: auto" in text
    [(zone, text)] = plan(cloud, gpuprov, tmp_path, offer={"market": "spot"})
    assert zone == "eastus-2" and text.endswith("not for spot nodes")
    [(zone, text)] = plan(cloud, gpuprov, tmp_path, offer={"zones": ["eastus-2"]})
    assert zone == "eastus-2" and "without zones" in text
    assert plan(cloud, gpuprov, tmp_path, nodes=1) in ([("eastus-2", None)], [("eastus-2", "")])


@pytest.mark.parametrize("more, words", [({"gpu": "T4:1"}, "has no InfiniBand"), ({"offer": {"market": "spot"}}, "spot nodes"),
                                         ({"offer": {"zones": ["eastus-2"]}}, "has no zones")])
def test_infiniband_that_cannot_be(cloud, tmp_path, more, words):
    got = drive(cloud, tmp_path, "create", "infiniband", **more)
    assert got.rc == 1 and words in got["message"], got.text
    assert cloud.vms() == [] and cloud.requests("PUT .*/providers/") == []
    assert drive(cloud, tmp_path, "destroy", "infiniband", **more).rc == 0
    azure_lab.clean(cloud)


@pytest.mark.parametrize("size, nodes", [("T4:1", 2), ("H100:8", 1)])
def test_others_are_in_no_set(cloud, tmp_path, size, nodes):
    assert drive(cloud, tmp_path, "create", gpu=size, nodes=nodes).rc == 0
    assert cloud.requests("PUT .*availabilitySets") == []
    assert all("availabilitySet" not in vm["properties"] and vm["zones"] for vm in cloud.vms())
    listed = drive(cloud, tmp_path, "list", gpu=size, nodes=nodes)
    assert {r["rdma"] for r in listed["resources"] if r["kind"] == "instance"} == {-1}  # nothing is expected
    assert drive(cloud, tmp_path, "destroy", gpu=size, nodes=nodes).rc == 0
    azure_lab.clean(cloud)


def test_a_set_that_is_left_is_removed_with_its_group(cloud, tmp_path):
    """The launch fails after acceptance: the set goes with the group, and a machine in it keeps it."""
    cloud.fail_size = {SIZE: "AllocationFailed"}
    got = drive(cloud, tmp_path, "create")
    assert got.rc == 3, got.text
    assert drive(cloud, tmp_path, "destroy").rc == 0
    azure_lab.clean(cloud)
