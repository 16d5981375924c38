# SPDX-License-Identifier: Apache-2.0
"""disk, cpus and memory of a spec at EC2: the root volume that is requested, its price, and the types that are chosen."""
import ec2
import pytest
from aws_cloud import cloud_fixture, moto_fixture  # noqa: F401


def drive(cloud, verb, offer=None, image=None, **more):
    cloud.spec = ec2.spec(cloud.tmp, image or cloud.moto.image(), market="on-demand", nodes=1, **more,
                          offers=[{"provider": "aws", "regions": [ec2.REGION], **(offer or {})}])
    return cloud.drive(verb)


def volume(cloud):
    [call] = cloud.proxy.of("RunInstances")
    return {k.split(".", 2)[2]: v for k, v in call.params.items() if k.startswith("BlockDeviceMapping.1.")}


@pytest.mark.parametrize("more, gib", [({}, 100), ({"gpu": None}, 20), ({"disk": "500GiB"}, 500), ({"disk": "500GB"}, 466)])
def test_the_root_volume_has_the_size_of_the_spec(cloud, more, gib):
    assert drive(cloud, "create", **more)["code"] == "ok"
    got = volume(cloud)
    assert (got["Ebs.VolumeSize"], got["Ebs.VolumeType"], got["Ebs.Encrypted"]) == (str(gib), "gp3", "true")
    assert got["Ebs.DeleteOnTermination"] == "true"
    [one] = cloud.moto.instances()
    ids = [d["Ebs"]["VolumeId"] for d in one["BlockDeviceMappings"]]
    assert all(v["Encrypted"] for v in cloud.moto.client().describe_volumes(VolumeIds=ids)["Volumes"])


def test_a_disk_that_is_smaller_than_the_image_is_refused(cloud):
    got = drive(cloud, "create", disk="8GiB")  # moto's image has 15 GiB
    assert got["code"] == "usage" and cloud.proxy.of("RunInstances") == [] and cloud.moto.instances() == [], got.result


def test_the_disk_is_part_of_the_price_where_its_price_is_known(cloud):
    plain = drive(cloud, "offers")["offers"][0]
    priced = drive(cloud, "offers", disk="1000GiB")["offers"][0]
    assert priced["type"] == plain["type"]
    assert priced["price"] - plain["price"] == pytest.approx(1000 * 0.08 * 12 / 8760)
    far = cloud.moto.image(region="eu-west-1")
    elsewhere = drive(cloud, "offers", image=far, disk="1000GiB", offer={"regions": ["eu-west-1"]})["offers"][0]
    assert elsewhere["price"] < 0 and elsewhere["price_source"] == ""


def test_types_without_a_gpu_by_cpus_and_memory(cloud):
    for more, cpus, gib in (({"cpus": 8}, 8, 0), ({"memory": "60GiB"}, 0, 60), ({"cpus": 4, "memory": "30GiB"}, 4, 30)):
        offers = drive(cloud, "offers", gpu=None, **more)["offers"]
        assert len({o["type"] for o in offers}) == 1 and offers[0]["gpus"] == 0
        assert offers[0]["vcpus"] >= cpus and offers[0]["memory_gib"] >= gib
        assert offers[0]["vcpus"] <= 8  # the smallest that fits
    assert drive(cloud, "offers", gpu=None, cpus=5000)["code"] == "usage"
