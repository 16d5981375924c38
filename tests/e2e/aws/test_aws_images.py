# SPDX-License-Identifier: Apache-2.0
"""Images: one whose driver fits the GPU is chosen, and every disk of one ends with its instance. moto shows
one disk per image, so the further ones are put into its DescribeImages reply."""
import json

import ec2
import faultproxy
import pytest
from aws_cloud import cloud_fixture, moto_fixture  # noqa: F401

REGION = ec2.REGION


def disk(device, gib=20, ends="false"):
    return (f"<item><ebs><deleteOnTermination>{ends}</deleteOnTermination><snapshotId>snap-0123456789abcdef0"
            f"</snapshotId><volumeSize>{gib}</volumeSize><volumeType>io1</volumeType></ebs>"
            f"<deviceName>{device}</deviceName></item>")


def with_disks(cloud, *items):
    end = b"</blockDeviceMapping>"
    cloud.proxy.rule("DescribeImages", "edit", times=None, old=end, new="".join(items).encode() + end)


def test_every_disk_of_an_image_ends_with_its_instance(cloud):
    with_disks(cloud, disk("/dev/sdb", 30), disk("/dev/xvdba", 40, "true"), disk("sdf", 50),
               "<item><deviceName>/dev/sdc</deviceName><virtualName>ephemeral0</virtualName></item>")
    run = cloud.drive("create")
    assert run["code"] == "ok", run["message"]
    p = cloud.proxy.of("RunInstances")[0].params
    mapped = {p[f"BlockDeviceMapping.{n}.DeviceName"]: (p.get(f"BlockDeviceMapping.{n}.Ebs.VolumeSize"),
                                                       p.get(f"BlockDeviceMapping.{n}.Ebs.VolumeType"))
              for n in range(1, 9) if f"BlockDeviceMapping.{n}.DeviceName" in p}
    # the root is ours; of the others only the size, so that the image's own type and snapshot stay
    assert mapped == {"/dev/sda1": ("100", "gp3"), "/dev/sdb": ("30", None), "/dev/xvdba": ("40", None),
                      "sdf": ("50", None)}
    client = cloud.moto.client()
    volumes = client.describe_volumes()["Volumes"]
    assert len(volumes) == 2 * 4
    for v in volumes:
        tags = {t["Key"]: t["Value"] for t in v["Tags"]}
        assert v["Encrypted"] and tags["gpuprov:uid"] == run["uid"] and tags["gpuprov:owner"] == run["owner"]
    for i in cloud.moto.instances():
        ends = {m["DeviceName"]: m["Ebs"]["DeleteOnTermination"] for m in i["BlockDeviceMappings"]}
        assert ends == dict.fromkeys(mapped, True)
    # as a node does at its deadline, without gpuprov
    client.terminate_instances(InstanceIds=[i["InstanceId"] for i in cloud.moto.instances()])
    assert client.describe_volumes()["Volumes"] == []


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("items, said", [
    ([disk("/dev/../x")], "device name"), ([disk("")], "device name"), ([disk("/dev/sdb&amp;x=1")], "device name"),
    ([disk("/dev/sdb", gib="x")], "device name"), ([disk("/dev/sdb", gib=-1)], "device name"),
    ([disk("/dev/sdb", gib=99999999)], "device name"), ([disk(f"/dev/sd{c}") for c in "bcdefghijklmnopqr"], "more than 16"),
], ids=["path", "none", "ampersand", "size", "negative", "huge", "too many"])
def test_an_image_with_strange_disks_is_not_launched(cloud, items, said):
    with_disks(cloud, *items)
    run = cloud.drive("create")
    assert run["code"] == "protocol" and said in run["message"] and "ami-" in run["message"], run.result
    assert cloud.moto.instances() == []


# --- the driver fits the GPU ---

OSS, OLD = "ami-0000000000000000a", "ami-0000000000000000b"


def ami(image, name, created, arch="x86_64"):
    return {"ami_id": image, "name": name, "architecture": arch, "creation_date": created, "image_location": name,
            "image_type": "machine", "owner_id": "898082745236", "public": True, "root_device_name": "/dev/sda1",
            "root_device_type": "ebs", "state": "available", "virtualization_type": "hvm"}


CATALOGUE = [
    ami(OSS, "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20260918", "2026-09-18T00:00:00.000Z"),
    ami("ami-0000000000000000c", "Deep Learning Base Proprietary Nvidia Driver GPU AMI (Ubuntu 20.04) 20240315",
        "2024-03-15T00:00:00.000Z"),
    ami(OLD, "Deep Learning Base Proprietary Nvidia Driver GPU AMI (Ubuntu 20.04) 20250516", "2025-05-16T00:00:00.000Z"),
    ami("ami-0000000000000000d", "Deep Learning Base Proprietary Nvidia Driver AMI (Amazon Linux 2) Version 71.6",
        "2026-01-02T00:00:00.000Z"),
]


@pytest.fixture(scope="module")
def amazon(tmp_path_factory):
    """One cloud that has images of both kinds, one that has the newer kind only."""
    folder, servers = tmp_path_factory.mktemp("amis"), []
    for name, images in (("both", CATALOGUE), ("new", CATALOGUE[:1])):
        path = folder / f"{name}.json"
        path.write_text(json.dumps(images))
        servers.append(ec2.Moto(extra={"MOTO_AMIS_PATH": str(path)}))
    yield dict(zip(("both", "new"), servers))
    for s in servers:
        s.close()


def offers(server, tmp_path, gpu, rename=None, **offer):
    with faultproxy.FaultProxy(server.url) as proxy:
        if rename:
            proxy.rule("DescribeInstanceTypes", "edit", times=None, old=b"<name>V100</name>",
                       new=f"<name>{rename}</name>".encode())
        spec = ec2.spec(tmp_path, "auto", gpu=gpu, offers=[{"provider": "aws", "regions": [REGION], **offer}])
        return ec2.Drive(ec2.environment(proxy.url, tmp_path / "state"), spec, "offers")


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("gpu, image", [("T4:1", OSS), ("A10G:1", OSS), ("A100:8", OSS), ("H100:8", OSS),
                                        ("B200:8", OSS), ("V100:8", OLD), ("Tesla V100-32GB:8", OLD)])
def test_the_driver_fits_the_gpu(amazon, tmp_path, gpu, image):
    run = offers(amazon["both"], tmp_path, gpu)
    assert run["code"] == "ok", run["message"]
    assert {o["image"] for o in run["offers"]} == {image}


def test_the_driver_fits_a_named_type(amazon, tmp_path):
    run = offers(amazon["both"], tmp_path, "V100:8", instance_type="p3dn.24xlarge")
    assert run["code"] == "ok" and {o["image"] for o in run["offers"]} == {OLD}, run.result


@pytest.mark.parametrize("gpu", ["P100", "P4", "M60"])
def test_other_old_gpus(amazon, tmp_path, gpu):
    """EC2 sells few of them today, and moto knows none: a V100 gets their name."""
    run = offers(amazon["both"], tmp_path, gpu + ":8", rename=gpu)
    assert run["code"] == "ok" and {o["image"] for o in run["offers"]} == {OLD}, run.result


def test_no_image_for_an_old_gpu(amazon, tmp_path):
    run = offers(amazon["new"], tmp_path, "V100:8")
    assert run["code"] == "usage" and run.rc == 1, run.result
    for words in (REGION, "V100", "Volta", "Turing", "image.id", "580"):
        assert words in run["message"], run["message"]
    assert offers(amazon["new"], tmp_path, "T4:1")["code"] == "ok"


def test_kepler_needs_an_older_driver_than_any_image_has(amazon, tmp_path):
    run = offers(amazon["both"], tmp_path, "K80:8", rename="K80")
    assert run["code"] == "usage" and "Kepler" in run["message"] and "470" in run["message"], run.result


def test_an_image_by_id_is_not_second_guessed(amazon, tmp_path):
    spec = ec2.spec(tmp_path, OSS, gpu="V100:8", offers=[{"provider": "aws", "regions": [REGION]}])
    run = ec2.Drive(ec2.environment(amazon["both"].url, tmp_path / "state"), spec, "offers")
    assert run["code"] == "ok" and {o["image"] for o in run["offers"]} == {OSS}, run.result
