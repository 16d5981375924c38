# SPDX-License-Identifier: Apache-2.0
"""GPUDirect between the nodes of a gang at Google: the interfaces of the request, what the plan says, the devices that
validation expects, and the networks that do not fit."""
import json

import google_cloud
import pytest
from far_clouds import FarGoogle, least_rounds
from test_google import drive, write_spec
from test_google import one_cloud  # noqa: F401
from test_google_program import Machine

GPU = {"a3-highgpu-8g": "H100:8", "a3-megagpu-8g": "H100:8", "a3-ultragpu-8g": "H200:8", "a4-highgpu-8g": "B200:8"}
NAMES = {"a3-highgpu-8g": "GPUDirect-TCPX, 4 interfaces", "a3-megagpu-8g": "GPUDirect-TCPXO, 8 interfaces",
         "a3-ultragpu-8g": "GPUDirect RDMA x8", "a4-highgpu-8g": "GPUDirect RDMA x8"}


@pytest.fixture(name="large")
def cloud_with_large_types(cloud):
    cloud.types.update(google_cloud.LARGE)
    return cloud


def spec_of(folder, kind, networks, fabric="auto", **more):
    offer = {"instance_type": kind, "zones": ["us-central1-a"], **({"networks": networks} if networks else {}),
             **more.pop("offer", {})}
    return write_spec(folder, gpu=GPU.get(kind, "L4:1"), offer=offer, bootstrap={"fabric": fabric}, **more)


def plan(cloud, folder, *args, **more):
    said = json.loads(Machine(cloud, folder)("plan", spec_of(folder, *args, **more), "--json", code=2))
    return [o["fabric"] for o in said["offers"]]


def interfaces(cloud):
    return [json.loads(r["body"])["instanceProperties"]["networkInterfaces"] for r in cloud.requests("POST .*bulkInsert")]


@pytest.mark.parametrize("kind", sorted(GPU))
def test_a_gang_has_the_interfaces_of_its_type(large, tmp_path, kind):
    networks = large.add_networks(kind)
    spec = spec_of(tmp_path, kind, networks)
    assert plan(large, tmp_path, kind, networks) == [NAMES[kind]]
    rc, result, _ = drive(large, tmp_path, spec, "create")
    assert rc == 0, result
    gvnics, cards = google_cloud.FURTHER[kind]
    [nics] = interfaces(large)
    assert [n["nicType"] for n in nics] == ["GVNIC"] * (1 + gvnics) + ["MRDMA"] * cards
    assert nics[0]["network"].endswith("/default") and nics[0]["accessConfigs"]
    wanted = [f"gpu-sub-{i}" for i in range(gvnics)] + [f"rdma-sub-{i}" for i in range(cards)]
    assert [n["subnetwork"] for n in nics[1:]] == [f"projects/proj-1/regions/us-central1/subnetworks/{s}" for s in wanted]
    assert all("accessConfigs" not in n for n in nics[1:])
    # what validation requires of each node
    listed = drive(large, tmp_path, spec, "list")[1]["resources"]
    assert [r["rdma"] for r in listed if r["kind"] == "instance"] == [cards, cards]
    assert len({r["target"] for r in large.requests("global/networks/")}) == len(networks)
    assert drive(large, tmp_path, spec, "destroy")[0] == 0 and large.left() == []


@pytest.mark.parametrize("nodes, fabric", [(2, "none"), (1, "auto"), (1, "none")])
def test_others_have_one_interface(large, tmp_path, nodes, fabric):
    [text] = plan(large, tmp_path, "a3-highgpu-8g", [], fabric, nodes=nodes)
    assert text == ("TCP only; the type has GPUDirect-TCPX: bootstrap.fabric: auto with networks uses it"
                    if nodes > 1 else "")
    spec = spec_of(tmp_path, "a3-highgpu-8g", [], fabric, nodes=nodes)
    rc, result, _ = drive(large, tmp_path, spec, "create")
    assert rc == 0, result
    [[nic]] = interfaces(large)
    assert set(nic) == {"network", "accessConfigs"} and not large.requests("global/networks/")
    assert drive(large, tmp_path, spec, "destroy")[0] == 0 and large.left() == []


def test_types_without_it_are_left_alone(large, tmp_path):
    """auto is what fits: an L4 has nothing; of the types with eight H100, the one that the networks fit is offered."""
    assert plan(large, tmp_path, "g2-standard-4", []) == [""]
    networks = large.add_networks("a3-megagpu-8g")
    spec = write_spec(tmp_path, gpu="H100:8", offer={"networks": networks, "zones": ["us-central1-a"]},
                      bootstrap={"fabric": "auto"})
    rc, result, _ = drive(large, tmp_path, spec, "offers")
    assert rc == 0 and [o["type"] for o in result["offers"]] == ["a3-megagpu-8g"], result


def test_networks_that_do_not_fit(large, tmp_path):
    tcpx, rdma = large.add_networks("a3-highgpu-8g"), large.add_networks("a3-ultragpu-8g")
    large.networks["slow"] = {"mtu": 1460}
    large.networks["elsewhere"] = {"mtu": 8896, "profile": "europe-west4-b-vpc-roce"}
    large.networks["strange"] = {"mtu": 8896, "profile": "us-central1-a-vpc-other"}
    large.networks["narrow"] = {"mtu": 1460, "profile": "us-central1-a-vpc-roce"}
    large.networks["bare"] = {"mtu": 8896}
    large.subnets["us-central1", "slow"] = "slow"
    large.subnets["us-central1", "rdma-sub-of-few"] = "few"
    large.networks["few"] = {"mtu": 8896, "profile": "us-central1-a-vpc-roce"}
    cases = [("a3-highgpu-8g", [], "give the names of 4 networks without a profile"),
             ("a3-highgpu-8g", tcpx[:3], "4 interfaces of their own"), ("a3-ultragpu-8g", tcpx, "one with a RoCE profile"),
             ("a3-highgpu-8g", [*tcpx[:3], "slow"], "the network 'slow' has an MTU of 1460"),
             ("a3-highgpu-8g", [*tcpx[:3], "bare"], "the network 'bare' has 0 subnets there"),
             ("a3-highgpu-8g", [*tcpx[:3], "default"], "in the network 'default': name another one in networks"),
             ("a3-highgpu-8g", [*tcpx[:3], "none"], "the network 'none' does not exist: correct networks"),
             ("a3-ultragpu-8g", [rdma[0], "elsewhere"], "'elsewhere' does not have the RoCE profile of this zone"),
             ("a3-ultragpu-8g", [rdma[0], "strange"], "give one that has the profile us-central1-a-vpc-roce"),
             ("a3-ultragpu-8g", [rdma[0], "narrow"], "the network 'narrow' has an MTU of 1460"),
             ("a3-ultragpu-8g", ["gpu-net-3", rdma[1]], "'gpu-net-3' has an MTU of 8244, and GPUDirect RDMA"),
             ("a3-ultragpu-8g", [rdma[0], "few"], "has 1 of the 8 subnets there"),
             ("g2-standard-4", tcpx, "has no GPUDirect: remove networks")]
    for kind, networks, text in cases:
        rc, result, _ = drive(large, tmp_path, spec_of(tmp_path, kind, networks), "offers")
        assert rc != 0 and result["code"] == "usage" and text in result["message"], (kind, networks, result)
    for more in ({"fabric": "none"}, {"nodes": 1}):
        rc, result, _ = drive(large, tmp_path, spec_of(tmp_path, "a3-highgpu-8g", tcpx, **more), "offers")
        assert rc != 0 and "networks are for a gang with GPUDirect" in result["message"], result
    for kind, networks in (("a3-highgpu-8g", tcpx), ("g2-standard-4", [])):
        rc, result, _ = drive(large, tmp_path, spec_of(tmp_path, kind, networks, "infiniband"), "offers")
        assert rc != 0 and kind + " has no RDMA cards" in result["message"], result
    assert not large.requests("POST .*compute")


def test_infiniband_is_the_rdma_cards(large, tmp_path):
    networks = large.add_networks("a3-ultragpu-8g")
    assert plan(large, tmp_path, "a3-ultragpu-8g", networks, "infiniband") == ["GPUDirect RDMA x8"]


def test_nodes_that_lack_cards_do_not_stay(large, tmp_path):
    large.drop_cards = 1
    spec = spec_of(tmp_path, "a4-highgpu-8g", large.add_networks("a4-highgpu-8g"))
    rc, result, _ = drive(large, tmp_path, spec, "create")
    assert rc != 0 and "do not have the number of RDMA cards that was requested" in result["message"], result
    assert len(large.instances) == 2 and all(vm["ending"] for vm in large.instances.values())
    assert drive(large, tmp_path, spec, "destroy")[0] == 0 and large.left() == []


def test_a_lost_reply_is_settled_with_the_cards(large, tmp_path):
    large.rule("POST .*bulkInsert", "drop_after")
    spec = spec_of(tmp_path, "a3-ultragpu-8g", large.add_networks("a3-ultragpu-8g"))
    rc, result, _ = drive(large, tmp_path, spec, "create")
    assert rc == 0 and [r["rdma"] for r in result["resources"] if r["kind"] == "instance"] == [8, 8], result
    assert len(large.instances) == 2
    assert drive(large, tmp_path, spec, "destroy")[0] == 0 and large.left() == []


class FarRdma(FarGoogle):
    gpu = "H200:8"
    offer = {"regions": ["us-central1"], "zones": ["us-central1-a"], "instance_type": "a3-ultragpu-8g",
             "networks": ["gpu-net-0", "rdma-net"]}

    def prepare(self):
        super().prepare()
        self.cloud.types.update(google_cloud.LARGE)
        self.cloud.add_networks("a3-ultragpu-8g")

    def more(self):
        return {"bootstrap": {"fabric": "auto"}}


def test_the_networks_cost_no_round_trip(tmp_path):
    """As many as without them (test_round_trips.py): they are read side by side with the machine types."""
    rounds, told, made = least_rounds(FarRdma, tmp_path, 2, 5)
    assert rounds == 5 and [r["rdma"] for r in made] == [8, 8], told


SUBNETS = "https://www.googleapis.com/compute/v1/projects/proj-1/regions/us-central1/subnetworks/"


@pytest.mark.parametrize("change, text", [
    ({"name": "other"}, "the reply is another network"), ({"name": None}, "the reply is another network"),
    ({"subnetworks": [SUBNETS + "../x"]}, "names a subnet that is none"), ({"subnetworks": [5]}, "a subnet that is none"),
    ({"subnetworks": [SUBNETS.replace("us-central1", "..") + "x"]}, "names a subnet that is none"),
    ({"subnetworks": {"a": SUBNETS + "x"}}, "has 0 subnets there"), ({"mtu": -1}, "has an MTU of 0"),
    ({"mtu": 2 ** 40}, "has an MTU of 0"), ({"mtu": "8896"}, "has an MTU of 1460"),
    ({"networkProfile": "x/../../y"}, "GPUDirect-TCPX on 4 interfaces")])
def test_a_network_that_is_none(tmp_path, change, text):
    """Nothing in the reply becomes a path or a decision."""
    with google_cloud.Google() as cloud:
        networks = cloud.add_networks("a3-highgpu-8g")
        cloud.rule("GET .*global/networks/", "edit", times=None, change=lambda r: dict(r, **change))
        rc, result, _ = drive(cloud, tmp_path, spec_of(tmp_path, "a3-highgpu-8g", networks), "offers")
        assert rc != 0 and text in result["message"], result
        assert all("/../" not in r["target"] for r in cloud.log)


def test_one_subnet_eight_times_is_one(large, tmp_path):
    networks = large.add_networks("a3-ultragpu-8g")
    large.rule("GET .*global/networks/rdma-net", "edit", times=None,
               change=lambda r: dict(r, subnetworks=[SUBNETS + "rdma-sub-0"] * 8))
    rc, result, _ = drive(large, tmp_path, spec_of(tmp_path, "a3-ultragpu-8g", networks), "offers")
    assert rc != 0 and "has 1 of the 8 subnets there" in result["message"], result


def test_networks_that_may_not_be_read(large, tmp_path):
    networks = large.add_networks("a3-highgpu-8g")
    large.rule("GET .*global/networks/", "reply", times=None, status=403,
               obj=google_cloud.error(403, "forbidden", "Required 'compute.networks.get' permission").obj)
    rc, result, _ = drive(large, tmp_path, spec_of(tmp_path, "a3-highgpu-8g", networks), "offers")
    assert rc != 0 and result["code"] == "auth" and "compute.networks.get" in result["message"], result
