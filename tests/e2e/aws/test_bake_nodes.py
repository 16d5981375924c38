# SPDX-License-Identifier: Apache-2.0
"""gpuprov bake on EC2 from end to end: a systemd host behind the instance is bootstrapped, validated, cleaned, stopped
and made an AMI of; the nodes of `image: baked` are launched from it. kill -9 at the request leaves nothing behind."""
import cloud as clouds
import pytest
from ec2_lab import HERE, Cloud, tags
from killing import settle
from moto_images import FIRST
from waiting import wait_for
from ec2_lab import machine_fixture, proxies_fixture  # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: llm
offers: [{here}]
limits: {{ttl: 1h}}
image: {image}
access: {{ssh_from: [172.31.240.1/32]}}
bootstrap:
  steps:
    - {{name: hello, run: "echo hello > ~/hello", check: "test -s ~/hello"}}
validate: {{time: 1m}}
"""


@pytest.fixture(name="cloud", scope="module")
def cloud_fixture(tmp_path_factory):
    with clouds.Ec2Lab(tmp_path_factory.mktemp("ec2"), first=FIRST) as lab:
        yield Cloud(lab)


def own_images(cloud):
    return [i for i in cloud.ec2.describe_images(Owners=["self"])["Images"] if "gpuprov:uid" in tags(i)]


@pytest.mark.long
def test_bake_use_and_remove(cloud, machine, proxies, tmp_path):
    gpuprov, proxy = machine(), proxies()
    path = tmp_path / "llm.yaml"
    path.write_text(SPEC.format(here=HERE, image="{id: %s}" % cloud.images[HERE]))
    baker = gpuprov.popen("bake", path, "--json", env={"AWS_ENDPOINT_URL": proxy.url})
    wait_for(lambda: proxy.count("CreateImage") > 0 or baker.poll() is not None, 300)
    assert baker.poll() is None, baker.communicate()
    baker.kill()
    baker.communicate()
    cloud.lab.call(settle, proxy)
    done = gpuprov.json("bake", path)
    image, = own_images(cloud)
    assert done["image"]["id"] == image["ImageId"] and done["report"] is None
    # the bake that continued wrote what the killed one could not: the proofs of the image and of its snapshots
    assert len(tags(image)["gpuprov:proof"]) == 32
    snapshots = [s for s in cloud.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"] if "gpuprov:uid" in tags(s)]
    assert snapshots and all(len(tags(s)["gpuprov:proof"]) == 32 for s in snapshots)
    cloud.nothing_left()

    path.write_text(SPEC.format(here=HERE, image="{baked: require, id: %s}" % cloud.images[HERE]))
    up = gpuprov.json("up", path)
    assert up["report"]["nodes"][0]["image"] == image["ImageId"]
    assert [i["ImageId"] for i in cloud.alive()] == [image["ImageId"]]
    gpuprov("down", "llm")
    assert own_images(cloud) == [image]
    gpuprov("images", "--remove", "--yes", image["ImageId"])
    assert own_images(cloud) == []
    cloud.nothing_left()
