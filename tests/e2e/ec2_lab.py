# SPDX-License-Identifier: Apache-2.0
"""What test_ec2.py and test_ec2_killed.py share: moto answers the API, and behind every instance stands a
systemd host that runs Debian's own cloud-init on the instance's user-data. gpuprov runs in the network of
that lab, on machines with no memory in common."""
import pathlib
import subprocess

import cloud as clouds
import faultproxy
import pytest
from conftest import Gpuprov
from repo import Repo
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Instances of us-east-1 have a host; those of us-west-2 have none, so a launch there is all there is.
HERE = "{provider: aws, regions: [us-east-1], market: on-demand}"
THERE = "{provider: aws, regions: [us-west-2], market: on-demand}"
SPEC = """\
name: {name}
nodes: {nodes}
offers: [{offers}]
limits: {{ttl: {ttl}}}
image: {{id: {image}}}
access: {{ssh_from: [172.31.240.1/32]{access}}}
bootstrap:
{bootstrap}
  steps:
    - {{name: hello, run: "echo hello > ~/hello", check: "test -s ~/hello"}}
validate: {{time: 5m, require: [{require}]}}
"""


class Cloud:
    """One lab, one moto; .spec() and .ask() for the tests."""

    def __init__(self, lab):
        self.lab = lab
        self.regions = {region: lab.ec2(region) for region in ("us-east-1", "us-west-2")}
        self.ec2 = self.regions["us-east-1"]
        self.images = {HERE: self.image(self.ec2), THERE: self.image(self.regions["us-west-2"])}

    @staticmethod
    def image(ec2):
        return ec2.register_image(
            Name="base", Architecture="x86_64", RootDeviceName="/dev/xvda",
            BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 8}}])["ImageId"]

    def alive(self, stack=None):
        found = [i for region in self.regions for i in self.lab.instances(region=region)]
        return [i for i in found if stack is None or tags(i).get("gpuprov:stack") == stack]

    def groups(self, stack=None):
        found = [g for ec2 in self.regions.values() for g in ec2.describe_security_groups()["SecurityGroups"]]
        return [g for g in found if g["GroupName"].startswith("gpuprov-")
                and (stack is None or tags(g).get("gpuprov:stack") == stack)]

    def hosts(self):
        return sorted(p.name for p in self.lab.path("hosts").iterdir() if p.is_dir())

    def nothing_of(self, stack):
        assert self.alive(stack) == [] and self.groups(stack) == []

    def nothing_left(self):
        assert self.alive() == []
        assert self.groups() == []
        for ec2 in self.regions.values():
            assert ec2.describe_volumes()["Volumes"] == []
        wait_for(lambda: not self.hosts(), 120)

    def sweep(self):
        for region, ec2 in self.regions.items():
            ids = [i["InstanceId"] for i in self.lab.instances(region=region)]
            if ids:
                ec2.terminate_instances(InstanceIds=ids)
        wait_for(lambda: not self.alive(), 60)
        for ec2 in self.regions.values():
            for g in ec2.describe_security_groups()["SecurityGroups"]:
                if g["GroupName"].startswith("gpuprov-"):
                    ec2.delete_security_group(GroupId=g["GroupId"])
        wait_for(lambda: not self.hosts(), 120)


def tags(thing):
    return {t["Key"]: t["Value"] for t in thing.get("Tags", [])}


class InLab(Gpuprov):
    """gpuprov run inside the lab's network, with the cloud's environment."""

    def __init__(self, lab, program, state, home):
        super().__init__(program, state, home)
        self.lab = lab
        self.env.update(lab.env)

    def popen(self, *args, env=None, **kw):
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(self.lab.in_net([self.program, *args]), text=True, errors="replace",
                                env={**self.env, **(env or {})}, start_new_session=True, **kw)


@pytest.fixture(name="cloud", scope="module")
def cloud_fixture(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("ec2")
    with clouds.Ec2Lab(tmp) as lab:
        repo = Repo(tmp / "repo")
        repo.add("gp-one")
        repo.serve(lab, clouds.ADDRESS)
        lab.in_image("/etc/apt/sources.list.d/test.list", repo.sources())
        yield Cloud(lab)
        repo.close()


@pytest.fixture(name="machine")
def machine_fixture(cloud, program, tmp_path):
    """machine(): gpuprov on a machine of its own (state and home folder) in the lab. Whatever a test
    left is ended, without gpuprov."""
    made = []

    def make():
        home = tmp_path / ("home%d" % len(made))
        home.mkdir()
        made.append(InLab(cloud.lab, program, tmp_path / ("state%d" % len(made)), home))
        return made[-1]
    yield make
    cloud.sweep()


@pytest.fixture(name="spec")
def spec_fixture(cloud, tmp_path):
    def write(name="llm", nodes=2, offers=None, ttl="1h", require="train.ddp", bootstrap="", access="", image=None):
        path = tmp_path / (name + ".yaml")
        offers = offers or [HERE]
        where = HERE if any("us-east-1" in o for o in offers) else THERE
        path.write_text(SPEC.format(name=name, nodes=nodes, offers=", ".join(offers), ttl=ttl, require=require,
                                    bootstrap=bootstrap, access=access,
                                    image=image or cloud.images[where]))
        return path
    return write


@pytest.fixture(name="key")
def key_fixture(tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "id"], check=True)
    return tmp_path / "id"


@pytest.fixture(name="proxies")
def proxies_fixture(cloud):
    """proxies(): a fault proxy in front of the cloud, in the lab's network."""
    yield from faultproxy.several(
        lambda **kw: cloud.lab.call(lambda: faultproxy.FaultProxy(cloud.lab.endpoint, **kw).start()))
