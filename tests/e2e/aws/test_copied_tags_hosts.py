# SPDX-License-Identifier: Apache-2.0
"""What test_copied_tags.py promises, with a real host behind every instance: gpuprov sets its machines up to the end and
writes their proofs itself, and the copy runs an SSH server that obeys everybody."""
import cloud as clouds
import ec2_lab
import pytest
from repo import Repo
from second_principal import SECRET, ids, make_host_key, user_data
from waiting import wait_for
from ec2_lab import HERE, key_fixture, machine_fixture, spec_fixture, tags  # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.namespaces, pytest.mark.long]


@pytest.fixture(name="cloud", scope="module")
def cloud_fixture(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("ec2")
    with clouds.Ec2Lab(tmp, first=ids()) as lab:
        repo = Repo(tmp / "repo")
        repo.add("gp-one")
        repo.serve(lab, clouds.ADDRESS)
        lab.in_image("/etc/apt/sources.list.d/test.list", repo.sources())
        yield ec2_lab.Cloud(lab)
        repo.close()


def alive(cloud):
    return sorted(i["InstanceId"] for i in cloud.alive())


def copy(cloud, machine, folder):
    """A host of somebody else with all tags of that machine, and with his host key as its own. Its id sorts first."""
    [found] = [i for i in cloud.alive() if i["InstanceId"] == machine]
    private, fingerprint = make_host_key(folder)
    put = {**tags(found), "gpuprov:hostkey": fingerprint}
    made = cloud.ec2.run_instances(
        ImageId=cloud.images[HERE], InstanceType="t3.medium", MinCount=1, MaxCount=1, UserData=user_data(private),
        SubnetId=found["SubnetId"],
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in put.items()]}])
    host = cloud.lab.host(made["Instances"][0]["InstanceId"])
    wait_for(lambda: host.sh("test -e /opt/his/done", check=False).returncode == 0, 240)
    return made["Instances"][0]["InstanceId"], host


def received(host):
    return host.sh("cat /var/log/kept").stdout


def test_a_copy_beside_a_validated_node(cloud, machine, spec, key, tmp_path):
    """With the journal, and on a computer that has the login key alone."""
    one, path = machine(), spec(nodes=1, require="host.memory", access=", key: %s" % key)
    path.write_text(path.read_text() + "secrets: [{env: HF_TOKEN, from: env:HF_TOKEN}]\n")
    one.env["HF_TOKEN"] = SECRET
    uid = one.json("up", path, timeout=600)["stack"]["uid"]
    [genuine] = alive(cloud)
    foreign, host = copy(cloud, genuine, tmp_path)
    other = machine()
    other.env["HF_TOKEN"] = SECRET
    for who in (one, other):
        said = who("up", path, "--json", timeout=600, code=None)
        assert alive(cloud) == sorted([genuine, foreign]) and received(host) == "", said
        up = said.json
        assert said.code == 0 and up["report"]["ready"] is True and up["stack"]["uid"] == uid
        assert [n["id"] for n in up["stack"]["nodes"]] == [genuine]
    for verb in ("validate", "gc"):
        one(verb, *([path] if verb == "validate" else ["--in", "aws/us-east-1"]), timeout=600)
    assert alive(cloud) == sorted([genuine, foreign]) and received(host) == ""

    one("down", path)
    cloud.nothing_left()


def test_a_former_deadline_does_not_return(cloud, machine, spec, key):
    """`extend` has written a later deadline, and somebody puts back the tags that were there before: with their proof."""
    one, path = machine(), spec(nodes=1, require="host.memory", access=", key: %s" % key)
    one("up", path, timeout=600)
    [genuine] = cloud.alive()
    before = tags(genuine)
    one("extend", "llm", "5h", timeout=300)
    now = one.json("status", "llm")["stacks"][0]["expires"]
    assert now > before["gpuprov:expires"]
    cloud.ec2.create_tags(Resources=[genuine["InstanceId"]], Tags=[
        {"Key": k, "Value": v} for k, v in before.items() if k in ("gpuprov:expires", "gpuprov:deadline")])
    for words in (["status", "llm"], ["gc", "--in", "aws/us-east-1"], ["up", path]):
        one(*words, code=None, timeout=300)
        assert one.json("status", "llm")["stacks"][0]["expires"] == now, words
    one("down", path)
    cloud.nothing_left()
