# SPDX-License-Identifier: Apache-2.0
"""Baked images on EC2: the calls and their tags, and every bad day of CreateImage: denied, its reply lost, killed in
between, an image that fails, somebody else's images. What is true is asked of moto."""
import re
import shutil

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


# --- tags are a claim: others in the account can write them ---

def plant(cloud, like, name="planted", **more):
    """Somebody else's image, made after `like`, with copies of all its tags; and a snapshot with the same."""
    ec2_client, copied = cloud.moto.client(), dict(tags(like), **more)
    listed = [{"Key": k, "Value": v} for k, v in copied.items()]
    image = ec2_client.register_image(Name=f"{name}-{len(cloud.images())}", Architecture="x86_64",
                                      RootDeviceName="/dev/xvda")["ImageId"]
    volume = ec2_client.create_volume(AvailabilityZone=REGION + "a", Size=1)["VolumeId"]
    snapshot = ec2_client.create_snapshot(VolumeId=volume)["SnapshotId"]
    ec2_client.create_tags(Resources=[image, snapshot], Tags=listed)
    return image, snapshot


def other_machine(cloud, name, key):
    """The person's other machine: no journal; with or without a copy of the signing key."""
    state = cloud.tmp / name
    state.mkdir()
    if key:
        shutil.copy(cloud.tmp / "state/signing_key", state / "signing_key")
    there = Gpuprov(cloud.gpuprov.program, state, cloud.tmp / "home")
    there.env.update(cloud.env, GPUPROV_STATE_DIR=str(state))
    return there


def use_baked(cloud):
    """The spec asks for a baked image from now on."""
    cloud.spec = ec2.spec(cloud.tmp, {"baked": "require", "id": cloud.base}, "on-demand", nodes=1, gpu=None)


def chosen(cloud, gpuprov=None):
    return (gpuprov or cloud.gpuprov).json("plan", cloud.spec, code=2)["notes"]


def proof(cloud, image):
    return tags(next(i for i in cloud.images() if i["ImageId"] == image)).get("gpuprov:proof")


def test_a_foreign_image_with_copied_tags_is_never_chosen(cloud):
    cloud.ready()
    cloud.drive("bake")
    genuine, = cloud.images()
    use_baked(cloud)
    # the bake was cut before the proof: the journal knows the image, and the next look writes it
    assert proof(cloud, genuine["ImageId"]) is None
    foreign, _ = plant(cloud, genuine, **{"gpuprov:created": "2099-01-01T00:00:00Z"})
    assert f"image: {genuine['Name']}" in chosen(cloud)
    assert proof(cloud, genuine["ImageId"]) is None  # `plan` changes nothing
    cloud.gpuprov("images", "--in", f"aws/{REGION}")
    assert len(proof(cloud, genuine["ImageId"])) == 32
    assert proof(cloud, foreign) is None
    snapshot = next(s for s in cloud.snapshots() if "CreateImage" in s["Description"])
    assert len(tags(snapshot)["gpuprov:proof"]) == 32
    assert [s for s in cloud.snapshots() if "gpuprov:proof" in tags(s)] == [snapshot]
    # a copy of the proof is that of another image
    genuine = next(i for i in cloud.images() if i["ImageId"] == genuine["ImageId"])
    copy, _ = plant(cloud, genuine, **{"gpuprov:created": "2099-01-01T00:00:00Z"})
    assert proof(cloud, copy) == proof(cloud, genuine["ImageId"])
    for machine in (cloud.gpuprov, other_machine(cloud, "with-key", key=True)):
        assert f"image: {genuine['Name']}" in chosen(cloud, machine)


def test_without_a_key_no_image_is_proven(cloud):
    cloud.ready()
    cloud.drive("bake")
    image, = cloud.images()
    cloud.gpuprov("images", "--in", f"aws/{REGION}")
    use_baked(cloud)
    stranger = other_machine(cloud, "without-key", key=False)
    refused = stranger("plan", cloud.spec, code=None)
    assert refused.code != 0
    assert (f"no baked image at aws {REGION} is proven: {image['ImageId']} fits by tags, which others in the account can "
            "write, and nothing proves that this owner baked it: copy the file signing_key from the state folder of the "
            "machine that did, or bake again") in refused.err
    shown = stranger("images", "--in", f"aws/{REGION}").out
    assert image["ImageId"] in shown and "not proven" in shown
    listed = stranger.json("images", "--in", f"aws/{REGION}")["images"]
    assert {i["kind"]: i["proven"] for i in listed} == {"image": False, "snapshot": False}
    assert {i["proven"] for i in cloud.gpuprov.json("images", "--in", f"aws/{REGION}")["images"]} == {True}
    # the person may still remove it
    removed = stranger.json("images", "--remove", "--yes", "--in", f"aws/{REGION}", image["ImageId"])["removed"]
    assert {r["kind"] for r in removed} == {"image", "snapshot"} and cloud.images() == []


def test_changed_facts_are_not_proven(cloud):
    """Neither the journal nor a proof stands for facts that somebody edited."""
    cloud.ready()
    cloud.drive("bake")
    image, = cloud.images()
    edited = tags(image)["gpuprov:image"].replace("cuda=-", "cuda=12.8")
    cloud.moto.client().create_tags(Resources=[image["ImageId"]], Tags=[{"Key": "gpuprov:image", "Value": edited}])
    cloud.gpuprov("images", "--in", f"aws/{REGION}")
    assert proof(cloud, image["ImageId"]) is None
    use_baked(cloud)
    assert "is proven" in cloud.gpuprov("plan", cloud.spec, code=None).err


def test_a_lost_reply_is_not_settled_by_a_foreign_image(cloud):
    node = cloud.ready()
    like = {"Tags": [{"Key": k, "Value": v} for k, v in (
        ("gpuprov:owner", node["owner"]), ("gpuprov:uid", node["uid"]), ("gpuprov:stack", "contract"),
        ("gpuprov:spec", "a" * 64), ("gpuprov:created", "2026-11-01T00:00:00Z"),
        ("gpuprov:image", f"v1 bootstrap={'0' * 64} arch=x86_64 gpu=- base=- driver=- cuda=- verdict=ready"))]}
    foreign, _ = plant(cloud, like)
    cloud.proxy.rule("CreateImage", "drop_after")
    baked = cloud.drive("bake")
    assert baked["code"] == "ok", baked["message"]
    assert baked.of_kind("image")[0]["id"] in {i["ImageId"] for i in cloud.images()} - {foreign}
    # nobody can take the name before: it has a part that the key makes
    name = cloud.proxy.of("CreateImage")[0].params["Name"]
    assert re.fullmatch(f"gpuprov-contract-{node['uid']}-[0-9a-f]{{16}}", name)


def test_gc_destroys_nothing_because_of_copied_tags(cloud):
    cloud.ready()
    cloud.drive("bake")
    genuine, = cloud.images()
    cloud.gpuprov("images", "--in", f"aws/{REGION}")
    cloud.drive("destroy")
    foreign, _ = plant(cloud, genuine, name="failed")
    there = {i["ImageId"] for i in cloud.images()}
    parts = {s["SnapshotId"] for s in cloud.snapshots()}
    assert len(there) == 2 and len(parts) == 2
    ended = cloud.gpuprov.json("gc", "--in", f"aws/{REGION}", code=None)["ended"]
    assert [r for r in ended if r["kind"] in ("image", "snapshot")] == []
    assert {i["ImageId"] for i in cloud.images()} == there and {s["SnapshotId"] for s in cloud.snapshots()} == parts
    # removing the foreign image leaves the genuine snapshot, whose tags it has copied
    cloud.gpuprov("images", "--remove", "--yes", "--in", f"aws/{REGION}", foreign)
    assert [i["ImageId"] for i in cloud.images()] == [genuine["ImageId"]]
    assert {s["SnapshotId"] for s in cloud.snapshots()} == parts
