# SPDX-License-Identifier: Apache-2.0
"""Baked images on EC2: the calls and their tags, and every bad day of CreateImage: denied, its reply lost, killed in
between, an image that fails, somebody else's images. What is true is asked of moto."""
import ec2
import faultproxy
import pytest
from conftest import Gpuprov
from moto_images import FIRST

REGION = ec2.REGION


@pytest.fixture(name="moto", scope="module")
def moto_fixture():
    server = ec2.Moto(first=FIRST)
    yield server
    server.close()


class Cloud:
    """moto behind a fault proxy, a spec of one node, the provider and the program."""

    def __init__(self, moto, tmp, program):
        self.moto, self.tmp = moto, tmp
        self.proxy = faultproxy.FaultProxy(moto.url).start()
        self.base = moto.image()
        self.spec = ec2.spec(tmp, self.base, "on-demand", nodes=1, gpu=None)
        (tmp / "state").mkdir()
        (tmp / "home").mkdir()
        self.env = ec2.environment(self.proxy.url, tmp / "state")
        self.gpuprov = Gpuprov(program, tmp / "state", tmp / "home")
        self.gpuprov.env.update(self.env)

    def drive(self, *words, **more):
        return ec2.Drive(dict(self.env, **more), self.spec, *words)

    def images(self):
        return [i for i in self.moto.client().describe_images(Owners=["self"])["Images"] if i["ImageId"] != self.base]

    def snapshots(self):
        """Those of gpuprov: moto makes one for each of its own images, too."""
        return [s for s in self.moto.client().describe_snapshots(OwnerIds=["self"])["Snapshots"]
                if "gpuprov:uid" in tags(s)]

    def ready(self):
        made = self.drive("create")
        assert made["code"] == "ok", made["message"]
        return made


@pytest.fixture(name="cloud")
def cloud_fixture(moto, tmp_path, program):
    moto.reset()
    c = Cloud(moto, tmp_path, program)
    yield c
    c.proxy.close()


def tags(thing):
    return {t["Key"]: t["Value"] for t in thing.get("Tags", [])}


def test_an_image_and_its_snapshot_are_tagged_listed_and_removed(cloud):
    node = cloud.ready()
    baked = cloud.drive("bake")
    assert baked["code"] == "ok", baked["message"]
    image, = cloud.images()
    snapshot, = cloud.snapshots()
    assert baked.of_kind("image")[0]["id"] == image["ImageId"]
    for thing in (image, snapshot):
        its = tags(thing)
        assert its["gpuprov:owner"] == baked["owner"] and its["gpuprov:uid"] == node["uid"]
        assert its["gpuprov:stack"] == "contract" and its["gpuprov:image"].endswith("verdict=ready")
        assert "gpuprov:expires" not in its and "gpuprov:slots" not in its
    # stopped first, and the intent has the request as it was sent
    actions = [c.action for c in cloud.proxy.calls]
    assert actions.index("StopInstances") < actions.index("CreateImage")
    assert cloud.proxy.of("CreateImage")[0].params["NoReboot"] == "false"
    assert [i["state"] for i in baked.intents("image")] == ["open"]

    # neither the lists of stacks nor `down` of a stack of that name have it
    assert not [r for r in cloud.drive("list")["resources"] if r["kind"] in ("image", "snapshot")]
    assert cloud.drive("destroy")["code"] == "ok"
    assert len(cloud.images()) == 1
    shown = cloud.gpuprov.json("images", "--in", f"aws/{REGION}")["images"]
    assert {i["kind"]: i["id"] for i in shown} == {"image": image["ImageId"], "snapshot": snapshot["SnapshotId"]}
    kept = cloud.gpuprov.json("gc", "--in", f"aws/{REGION}")["kept"]
    assert {r["id"] for r in kept} >= {image["ImageId"], snapshot["SnapshotId"]}
    # a snapshot alone is not removed: EC2 keeps it while its image exists
    alone = cloud.gpuprov("images", "--remove", "--yes", "--in", f"aws/{REGION}", snapshot["SnapshotId"], code=1)
    assert f"{snapshot['SnapshotId']} is the snapshot of the image {image['ImageId']}: nothing was removed" in alone.err
    assert cloud.proxy.of("DeleteSnapshot") == []
    removed = cloud.gpuprov.json("images", "--remove", "--yes", "--in", f"aws/{REGION}", image["ImageId"])["removed"]
    assert {r["id"] for r in removed} == {image["ImageId"], snapshot["SnapshotId"]}
    assert cloud.images() == [] and cloud.snapshots() == []


def test_one_stack_has_one_image(cloud):
    """Two bakes at once, or a lost journal: the name is taken, and the image that has it is found."""
    cloud.ready()
    first = cloud.drive("bake")
    second = cloud.drive("bake", GPUPROV_STATE_DIR=str(cloud.tmp / "state"))
    assert second["code"] == "ok", second["message"]
    assert first.of_kind("image")[0]["id"] == second.of_kind("image")[0]["id"]
    assert len(cloud.images()) == 1


@pytest.mark.parametrize("sent", [True, False], ids=["reply lost", "request lost"])
def test_a_lost_reply_is_settled_by_the_list(cloud, sent):
    cloud.ready()
    cloud.proxy.rule("CreateImage", "drop_after" if sent else "drop_before")
    baked = cloud.drive("bake")
    assert baked["code"] == "ok", baked["message"]
    assert len(cloud.images()) == 1
    assert baked.of_kind("image")[0]["id"] == cloud.images()[0]["ImageId"]


def test_denied(cloud):
    cloud.ready()
    cloud.proxy.rule("CreateImage", "error", times=None, status=403, code="UnauthorizedOperation",
                     message="You are not authorized")
    baked = cloud.drive("bake")
    assert baked["code"] == "auth" and "CreateImage" in baked["message"], baked.result
    assert [i["state"] for i in baked.intents("image")] == ["failed"]
    assert cloud.images() == []


def test_an_image_of_another_owner_is_neither_used_nor_touched(cloud):
    cloud.ready()
    baked = cloud.drive("bake", GPUPROV_OWNER="somebody-else")
    assert baked["code"] == "not-found"  # the node is not theirs, either
    cloud.drive("bake")
    image, = cloud.images()
    other = cloud.drive("images", GPUPROV_OWNER="somebody-else")
    assert other["resources"] == []
    gone = cloud.gpuprov("images", "--remove", "--yes", "--in", f"aws/{REGION}", image["ImageId"], code=None,
                         env={"GPUPROV_OWNER": "somebody-else"})
    assert "there is no baked image" in gone.err
    assert len(cloud.images()) == 1
    # tags that somebody planted without the form that gpuprov writes
    cloud.moto.client().create_tags(Resources=[image["ImageId"]],
                                    Tags=[{"Key": "gpuprov:image", "Value": "v1 bootstrap=x"}])
    shown = cloud.gpuprov.json("images", "--in", f"aws/{REGION}", code=None)
    assert [i for i in shown["images"] if i["kind"] == "image"] == []
    assert shown["unreadable"][0]["id"] == image["ImageId"]


def test_gc_removes_what_is_of_no_use(cloud):
    cloud.ready()
    cloud.drive("bake")
    image, = cloud.images()
    cloud.drive("destroy")
    # the snapshot of an image whose tags somebody edited is that image's still
    good = tags(image)["gpuprov:image"]
    cloud.moto.client().create_tags(Resources=[image["ImageId"]], Tags=[{"Key": "gpuprov:image", "Value": "v0"}])
    cloud.gpuprov("gc", "--in", f"aws/{REGION}", code=None)
    assert cloud.proxy.of("DeleteSnapshot") == [] and len(cloud.snapshots()) == 1
    cloud.moto.client().create_tags(Resources=[image["ImageId"]], Tags=[{"Key": "gpuprov:image", "Value": good}])
    # one that its owner has disabled may be enabled again
    cloud.proxy.rule("DescribeImages", "edit", times=None, old=b"<imageState>available", new=b"<imageState>disabled")
    kept = cloud.gpuprov.json("gc", "--in", f"aws/{REGION}")
    assert image["ImageId"] in {r["id"] for r in kept["kept"]} and len(cloud.images()) == 1
    assert "disabled" in cloud.gpuprov("images", "--in", f"aws/{REGION}").out
    cloud.proxy.clear()
    cloud.proxy.rule("DescribeImages", "edit", times=None, old=b"<imageState>available", new=b"<imageState>failed")
    dry = cloud.gpuprov.json("gc", "--dry-run", "--in", f"aws/{REGION}")
    assert image["ImageId"] in {r["id"] for r in dry["ended"]} and len(cloud.images()) == 1
    cloud.gpuprov.json("gc", "--in", f"aws/{REGION}")
    assert cloud.images() == []
    cloud.gpuprov.json("gc", "--in", f"aws/{REGION}")  # the snapshot of an image that is gone
    assert cloud.snapshots() == []
