# SPDX-License-Identifier: Apache-2.0
"""gpuprov on EC2, from a spec to proven nodes and back to nothing: moto answers the API, and behind
every instance stands a systemd host that runs Debian's own cloud-init on the instance's user-data. What
is true is asked of the cloud with boto3 and of the hosts, not of gpuprov."""
import base64
import calendar
import hashlib
import os
import pathlib
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import faultproxy
import pytest
from conftest import Gpuprov

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "hosts"))
import cloud as clouds  # noqa: E402
import lab as labs  # noqa: E402
from repo import Repo  # noqa: E402

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

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
        labs.wait_for("the end of all hosts", lambda: not self.hosts(), 120)

    def sweep(self):
        for region, ec2 in self.regions.items():
            ids = [i["InstanceId"] for i in self.lab.instances(region=region)]
            if ids:
                ec2.terminate_instances(InstanceIds=ids)
        labs.wait_for("no instance", lambda: not self.alive(), 60)
        for ec2 in self.regions.values():
            for g in ec2.describe_security_groups()["SecurityGroups"]:
                if g["GroupName"].startswith("gpuprov-"):
                    ec2.delete_security_group(GroupId=g["GroupId"])
        labs.wait_for("the end of all hosts", lambda: not self.hosts(), 120)


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


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("ec2")
    with clouds.Ec2Lab(tmp) as lab:
        repo = Repo(tmp / "repo")
        repo.add("gp-one")
        repo.serve(lab, clouds.ADDRESS)
        lab.in_image("/etc/apt/sources.list.d/test.list", repo.sources())
        yield Cloud(lab)
        repo.close()


@pytest.fixture
def machine(cloud, program, tmp_path):
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


@pytest.fixture
def spec(cloud, tmp_path):
    def write(name="llm", nodes=2, offers=None, ttl="1h", require="train.ddp", bootstrap="", access="", image=None):
        path = tmp_path / (name + ".yaml")
        offers = offers or [HERE]
        where = HERE if any("us-east-1" in o for o in offers) else THERE
        path.write_text(SPEC.format(name=name, nodes=nodes, offers=", ".join(offers), ttl=ttl, require=require,
                                    bootstrap=bootstrap, access=access,
                                    image=image or cloud.images[where]))
        return path
    return write


def verdicts(up, node):
    return {c["check"]: c["verdict"] for c in up["report"]["nodes"][node]["checks"]}


def user_data(cloud, iid):
    said = cloud.ec2.describe_instance_attribute(InstanceId=iid, Attribute="userData")
    return base64.b64decode(said["UserData"]["Value"])


SLOTS = {"gpuprov:owner": "123456789012-moto", "gpuprov:stack": "llm"}


def as_asked(cloud, one, nodes, market):
    """What EC2 was told of an instance, and by what it can be found and ended again."""
    assert SLOTS.items() <= tags(one).items()
    assert tags(one)["gpuprov:slots"] == "0+%d" % nodes
    assert len(tags(one)["gpuprov:uid"]) == 16 and len(tags(one)["gpuprov:spec"]) == 64
    expires = calendar.timegm(time.strptime(tags(one)["gpuprov:expires"], "%Y-%m-%dT%H:%M:%SZ"))
    assert 0 < expires - time.time() < 3600
    assert len(one["ClientToken"]) == 64
    assert one["MetadataOptions"]["HttpTokens"] == "required"
    assert one.get("InstanceLifecycle") == ("spot" if market == "spot" else None)
    [disk] = one["BlockDeviceMappings"]
    volume = cloud.ec2.describe_volumes(VolumeIds=[disk["Ebs"]["VolumeId"]])["Volumes"][0]
    assert volume["Encrypted"] and disk["Ebs"]["DeleteOnTermination"]
    behaviour = cloud.ec2.describe_instance_attribute(InstanceId=one["InstanceId"],
                                                      Attribute="instanceInitiatedShutdownBehavior")
    assert behaviour["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
    data = user_data(cloud, one["InstanceId"])
    assert 0 < len(data) <= 16384
    return data


def closed_but_for_ssh(cloud, uid):
    [group] = cloud.groups()
    assert group["GroupName"] == "gpuprov-123456789012-moto-llm"
    assert tags(group)["gpuprov:uid"] == uid and tags(group)["gpuprov:claim"] == "1"
    for rule in group["IpPermissions"]:
        if rule["IpProtocol"] == "-1":
            assert [p["GroupId"] for p in rule["UserIdGroupPairs"]] == [group["GroupId"]]
            assert rule["IpRanges"] == []
        else:
            assert (rule["FromPort"], rule["ToPort"]) == (22, 22)
            assert [r["CidrIp"] for r in rule["IpRanges"]] == ["172.31.240.1/32"]


def own_host_key(cloud, one):
    """The node made a key of its own; it is the one that the late tag names, and not user-data's."""
    key = cloud.lab.host(one["InstanceId"]).host_key()
    blob = base64.b64decode(key.split()[1])
    assert key.split()[1].encode() not in user_data(cloud, one["InstanceId"])
    said = "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    assert tags(one)["gpuprov:hostkey"] == said


@pytest.mark.parametrize("nodes, market", [(2, "on-demand"), (4, "spot")])
def test_from_a_spec_to_proven_nodes_and_back(cloud, machine, spec, nodes, market):
    gpuprov, path = machine(), spec(nodes=nodes, offers=[HERE.replace("on-demand", market)], bootstrap="  packages: [gp-one]")
    assert "the node ends itself at its deadline" in gpuprov("plan", path, code=2).out
    up = gpuprov.json("up", path, timeout=300)
    assert up["report"]["ready"] is True
    for n in range(nodes):
        assert verdicts(up, n)["train.ddp"] == verdicts(up, n)["host.memory"] == "pass"
    assert up["report"]["gang"][-1]["verdict"] == "pass"
    alive = {i["InstanceId"]: i for i in cloud.alive()}
    assert sorted(alive) == sorted(n["id"] for n in up["stack"]["nodes"]) and len(alive) == nodes
    assert len({i["ClientToken"] for i in alive.values()}) == 1  # the gang in one call
    for one in alive.values():
        as_asked(cloud, one, nodes, market)
        own_host_key(cloud, one)
        host = cloud.lab.host(one["InstanceId"])
        assert host.sh("dpkg-query -W -f '${Status}' gp-one").stdout == "install ok installed"
        assert host.sh("cat /home/gpuprov/hello").stdout == "hello\n"
    closed_but_for_ssh(cloud, up["stack"]["uid"])

    status = gpuprov.json("status", "llm")["stacks"][0]
    assert status["phase"] == "ready" and status["ends"] == "guest"
    assert [n["phase"] for n in status["nodes"]] == ["ready"] * nodes
    again = gpuprov.json("up", path)
    assert again["nothing_to_do"] is True and len(cloud.alive()) == nodes
    gpuprov("plan", path, code=0)
    assert gpuprov("ssh", "llm/1", "--", "id -un; sudo -n id -un").out.split() == ["gpuprov", "root"]
    if nodes == 2:
        validated = gpuprov.json("validate", "llm", timeout=300)
        assert validated["ready"] is True and validated["run"] != up["report"]["run"]

    gpuprov("down", "llm")
    cloud.nothing_left()
    ended = cloud.ec2.describe_instances(InstanceIds=list(alive))["Reservations"]
    assert {i["State"]["Name"] for r in ended for i in r["Instances"]} == {"terminated"}
    assert gpuprov.json("status")["stacks"] == []
    gpuprov("down", "llm")  # again: nothing was there, and that is no error


# --- killed ---

@pytest.fixture
def proxies(cloud):
    """proxies(): a fault proxy in front of the cloud, in the lab's network."""
    made = []

    def make(**kw):
        made.append(cloud.lab.call(lambda: faultproxy.FaultProxy(cloud.lab.endpoint, **kw).start()))
        return made[-1]
    yield make
    for proxy in made:
        proxy.close()


def through(proxy):
    return {"AWS_ENDPOINT_URL": proxy.url}


def forget(gpuprov):
    """The machine's memory is lost."""
    for f in gpuprov.state.glob("journal.db*"):
        f.unlink()


def wait_call(p, proxy, ready, seconds=60):
    labs.wait_for("a call", lambda: ready() or p.poll() is not None, seconds)
    assert p.poll() is None, (p.communicate(), [c.action for c in proxy.calls])


def moments(rng):
    """Ten moments of a launch: some anywhere, most around the calls that create something."""
    anywhere = [(lambda proxy, n=rng.randint(1, 20): len(proxy.calls) >= n) for _ in range(4)]
    claim = [lambda proxy: proxy.count("CreateSecurityGroup") > 0] * 2
    run = [lambda proxy: proxy.count("RunInstances") > 0] * 4
    return anywhere + claim + run


@pytest.mark.parametrize("journal", ["kept", "lost"])
def test_killed_while_launching_down_leaves_nothing(cloud, machine, spec, proxies, journal):
    """kill -9 of `up` at ten random moments, with the journal and without: the next `down` leaves zero."""
    rng = random.Random(20261121)

    def one(i, reached, gpuprov, path, proxy, delay):
        name = path.stem
        p = gpuprov.popen("up", path, "--quiet", env=through(proxy))
        wait_call(p, proxy, lambda: reached(proxy))
        time.sleep(delay)
        p.kill()
        p.communicate()
        if journal == "lost":  # nobody knows then what is still on its way to the cloud
            labs.wait_for("the last call's end", lambda: proxy.busy == 0, 60)
            forget(gpuprov)
        gpuprov("down", path if i % 2 else name)
        cloud.nothing_of(name)

    with ThreadPoolExecutor(10) as pool:
        waits = [pool.submit(one, i, reached, machine(), spec("kill%d" % i, offers=[THERE]), proxies(),
                             rng.choice([0, rng.uniform(0, 0.02), rng.uniform(0, 0.2)]))
                 for i, reached in enumerate(moments(rng))]
        for w in waits:
            w.result()
    cloud.nothing_left()


# --- other machines, lost memories, keys ---

@pytest.fixture
def key(tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "id"], check=True)
    return tmp_path / "id"


def test_the_journal_is_lost(cloud, machine, spec, key):
    """Tags alone are enough to see and to end; with the login key also to go on. A changed host key is
    never accepted, whoever asks."""
    first, path = machine(), spec(nodes=1, require="host.memory", access=", key: %s" % key)
    up = first.json("up", path, timeout=300)
    [one] = cloud.alive()
    forget(first)
    seen = first.json("status", "llm")["stacks"][0]
    assert [n["id"] for n in seen["nodes"]] == [one["InstanceId"]]
    assert seen["nodes"][0]["address"] == one["PublicIpAddress"] and seen["uid"] == up["stack"]["uid"]

    without_key = machine()
    other = path.with_name("other.yaml")
    other.write_text(path.read_text().replace(", key: %s" % key, ""))
    said = without_key("up", other, code=1).err
    assert "login key of 'llm' is not on this machine" in said and "gpuprov down llm" in said

    adopting = machine()
    adopted = adopting.json("up", path, timeout=300)
    assert adopted["report"]["ready"] is True
    assert [n["id"] for n in adopted["stack"]["nodes"]] == [one["InstanceId"]]
    assert adopting.json("validate", path, timeout=300)["ready"] is True
    assert [i["InstanceId"] for i in cloud.alive()] == [one["InstanceId"]]

    host = cloud.lab.host(one["InstanceId"])
    was = host.host_key()
    host.sh("ssh-keygen -q -t ed25519 -N '' -f /tmp/k && cp /tmp/k /tmp/k.pub /root && "
            "cat /tmp/k > /etc/ssh/ssh_host_ed25519_key && cat /tmp/k.pub > /etc/ssh/ssh_host_ed25519_key.pub && "
            "systemctl restart ssh")
    assert host.host_key() != was
    for who, verb in ((adopting, "validate"), (machine(), "up")):  # the journal pins it, and the tag does
        said = who(verb, path, code=5, timeout=300).err
        assert "llm/0" in said and "is pinned" in said
    assert adopting("ssh", "llm/0", "--", "true", code=255).out == ""

    machine()("down", "llm")  # a machine that knows nothing
    cloud.nothing_left()


def test_killed_after_the_launch_up_goes_on(cloud, machine, spec, proxies):
    """EC2 acted, the answer never came and gpuprov was killed: the next `up` finds the machines by their
    tags, enters them with the key made before, and launches none."""
    gpuprov, path, proxy = machine(), spec(nodes=1, require="host.memory"), proxies()
    proxy.rule("RunInstances", "hold_after", times=None)
    p = gpuprov.popen("up", path, env=through(proxy))
    labs.wait_for("the instance", cloud.alive, 60)
    p.kill()
    p.communicate()
    proxy.clear()
    up = gpuprov.json("up", path, env=through(proxy), timeout=300)
    assert up["report"]["ready"] is True and proxy.count("RunInstances") == 0
    assert [n["id"] for n in up["stack"]["nodes"]] == [i["InstanceId"] for i in cloud.alive()]
    gpuprov("down", path)
    cloud.nothing_left()


@pytest.mark.parametrize("at", ["bootstrap: hello", "check: host.memory"])
def test_killed_after_the_nodes_are_there_up_goes_on(cloud, machine, spec, at):
    """kill -9 while the nodes are set up, and while they are checked: the next `up` goes on with the same
    machines, and `down` leaves nothing."""
    gpuprov, path = machine(), spec(nodes=2, require="train.ddp")
    path.write_text(path.read_text().replace("echo hello >", "sleep 1; echo hello >"))
    p = gpuprov.popen("up", path)
    seen = []
    for line in p.stderr:
        seen.append(line)
        if at in line:
            break
    assert p.poll() is None, seen
    p.kill()
    p.communicate()
    launched = sorted(i["InstanceId"] for i in cloud.alive("llm"))
    assert len(launched) == 2
    up = gpuprov.json("up", path, timeout=200)
    assert up["report"]["ready"] is True
    assert sorted(n["id"] for n in up["stack"]["nodes"]) == launched == sorted(i["InstanceId"] for i in cloud.alive())
    gpuprov("down", "llm")
    cloud.nothing_left()


@pytest.mark.parametrize("at", ["bootstrap: hello", "check: host.memory"])
def test_killed_after_the_nodes_are_there_down_leaves_nothing(cloud, machine, spec, at):
    gpuprov, path = machine(), spec(nodes=1, require="host.memory")
    p = gpuprov.popen("up", path)
    assert any(at in line for line in p.stderr)
    p.kill()
    p.communicate()
    assert len(cloud.alive("llm")) == 1
    gpuprov("down", path)
    cloud.nothing_left()


def test_killed_and_forgotten_while_the_launch_is_on_its_way(cloud, machine, spec, proxies):
    """The journal is lost, the claim is seconds old and the launch reaches the cloud after `down` began: the
    claim is not believed to be all there is before its settling time is over."""
    gpuprov, path, proxy = machine(), spec(offers=[THERE]), proxies()
    proxy.rule("RunInstances", "late", delay=8)
    p = gpuprov.popen("up", path, env=through(proxy))
    wait_call(p, proxy, lambda: proxy.count("RunInstances") > 0)
    p.kill()
    p.communicate()
    forget(gpuprov)
    assert cloud.alive("llm") == []
    said = gpuprov("down", path, env=through(proxy))
    assert proxy.busy == 0 and "looking for what another run may have launched" in said.err, said
    cloud.nothing_left()


def test_down_on_a_full_disk(cloud, program, spec, proxies, tmp_path):
    """The disk of this machine is full: what is billed is ended and proven gone first, then it is said, with
    the ids, what could not be written down."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", small], check=True)
    try:
        gpuprov, path, proxy = InLab(cloud.lab, program, small / "state", tmp_path), spec(offers=[THERE]), proxies()
        proxy.rule("RunInstances", "hold_after", times=None)
        p = gpuprov.popen("up", path, env=through(proxy))
        alive = labs.wait_for("the instances", lambda: cloud.alive("llm"), 30)
        p.kill()
        p.communicate()
        with open(small / "fill", "wb", buffering=0) as f:
            for size in (65536, 4096, 512, 1):
                try:
                    while True:
                        f.write(b"x" * size)
                except OSError:
                    pass
        last = gpuprov("down", "llm", code=1, timeout=200).err.splitlines()[-1]
        assert "disk is full" in last and "gpuprov down llm" in last, last
        assert all(i["InstanceId"] in last for i in alive), last
        cloud.nothing_left()
        (small / "fill").unlink()
        gpuprov("down", "llm")
        assert gpuprov.json("status")["stacks"] == []
    finally:
        subprocess.run(["umount", "-l", small], check=True)
        cloud.sweep()


def test_two_at_once_from_two_machines(cloud, machine, spec, proxies, key):
    """Same account, same spec, no shared memory: one launch, and whoever comes second says what to do."""
    proxy = proxies(tokens=True)
    path = spec(nodes=1, require="host.memory", access=", key: %s" % key)
    both = [machine(), machine()]
    started = [g.popen("up", path, "--json", env=through(proxy)) for g in both]
    ended = [(p.communicate(timeout=300), p.returncode) for p in started]
    assert len(cloud.alive()) == 1 and len(cloud.groups()) == 1
    codes = [code for _, code in ended]
    assert 0 in codes, ended
    for (_, err), code in ended:
        if code:
            assert code == 6 and "launched by another run" in err, err
    for gpuprov in both:  # afterwards both know the same stack
        up = gpuprov.json("up", path, env=through(proxy), timeout=300)
        assert up["stack"]["phase"] == "ready"
    both[1]("down", "llm")
    cloud.nothing_left()


def test_a_colleagues_stack_of_the_same_name(cloud, machine, spec, proxies):
    """Tags of another owner are never touched."""
    proxy, path = proxies(), spec(offers=[THERE], nodes=1)
    launched = []
    for gpuprov, owner in ((machine(), {"GPUPROV_OWNER": "alice"}), (machine(), {})):
        p = gpuprov.popen("up", path, env={**through(proxy), **owner})
        launched.append(labs.wait_for("the instance", lambda: [
            i["InstanceId"] for i in cloud.alive("llm") if i["InstanceId"] not in launched], 60)[0])
        p.kill()
        p.communicate()
    assert [n["id"] for n in gpuprov.json("status", "llm")["stacks"][0]["nodes"]] == launched[1:]
    gpuprov("down", "llm")
    gpuprov("gc")
    assert [i["InstanceId"] for i in cloud.alive()] == launched[:1]
    assert [tags(g)["gpuprov:owner"] for g in cloud.groups()] == ["alice"]
    machine()("down", "llm", "--owner", "alice")
    cloud.nothing_left()


# --- bad days ---

ZONES = ["us-west-2a", "us-west-2b", "us-west-2c"]


def test_throttled_and_one_zone_is_full(cloud, machine, spec, proxies):
    gpuprov, proxy, path = machine(), proxies(), spec(offers=[THERE])
    proxy.rule("RunInstances", "error", status=503, code="RequestLimitExceeded", headers={"Retry-After": "1"})
    proxy.rule("RunInstances", "error", times=None, status=500, code="InsufficientInstanceCapacity",
               params={"Placement.AvailabilityZone": ZONES[0]})
    p = gpuprov.popen("up", path, env=through(proxy))
    labs.wait_for("both instances", lambda: len(cloud.alive("llm")) == 2, 60)  # the emulator makes one by one
    p.kill()
    _, err = p.communicate()
    assert {i["Placement"]["AvailabilityZone"] for i in cloud.alive("llm")} == {ZONES[1]}
    calls = proxy.of("RunInstances")
    assert len(calls) == 3 and calls[1].at - calls[0].at >= 1
    assert ZONES[0] in err and "InsufficientInstanceCapacity" in err
    gpuprov("down", path)
    cloud.nothing_left()


def test_a_launch_of_unknown_outcome(cloud, machine, spec, proxies):
    """Exit 8 and what may be billed; `down` ends it."""
    gpuprov, proxy, path = machine(), proxies(), spec(offers=[THERE])
    proxy.rule("RunInstances", "drop_after", times=None)
    proxy.rule("DescribeInstances", "drop_before", times=None, params={"Filter.3.Name": "tag:gpuprov:slots"})
    said = gpuprov("up", path, code=8, env=through(proxy)).err
    assert "may or may not exist" in said and "gpuprov down llm" in said
    assert len({c.params["ClientToken"] for c in proxy.of("RunInstances")}) == 1
    assert proxy.count("RunInstances") == 1 and len(cloud.alive("llm")) == 2
    gpuprov("down", path)
    cloud.nothing_left()


@pytest.mark.parametrize("code, rules, says", [
    (3, [("RunInstances", "error", {"status": 500, "code": "InsufficientInstanceCapacity"})],
     ZONES + ["InsufficientInstanceCapacity"]),
    (4, [("RunInstances", "error", {"code": "VcpuLimitExceeded"})], ["VcpuLimitExceeded"]),
    (5, [("RunInstances", "error", {"status": 403, "code": "UnauthorizedOperation"})], ["--policy"]),
    (5, [("GetCallerIdentity", "error", {"status": 403, "code": "InvalidClientTokenId"})], ["AWS_PROFILE"]),
    (None, [("DescribeInstances", "status", {"status": 500, "body": b"<!doctype html><h1>oops</h1>"})],
     ["HTTP 500", "DescribeInstances"]),
    (None, [("DescribeInstances", "cut_xml", {})], ["DescribeInstances", "no XML"]),
    (None, [("DescribeSecurityGroups", "error", {"status": 503, "code": "RequestLimitExceeded"})],
     ["RequestLimitExceeded"]),
])
def test_the_cloud_refuses(cloud, machine, spec, proxies, code, rules, says):
    gpuprov, proxy = machine(), proxies()
    for action, do, more in rules:
        proxy.rule(action, do, times=None, **more)
    path = spec(offers=[THERE])
    said = gpuprov("up", path, code=code, env=through(proxy), timeout=300)
    last = said.err.splitlines()[-1]
    assert last.startswith("gpuprov: ") and all(word in last for word in says), said
    assert "<" not in last
    proxy.clear()
    assert cloud.alive() == []
    gpuprov("down", path)
    cloud.nothing_left()


@pytest.mark.parametrize("change, says", [
    (("us-west-2", "us-nowhere-1"), ["us-nowhere-1"]),
    (("market: on-demand", "instance_type: z9.huge"), ["z9.huge"]),
    (("market: on-demand", "zones: [us-west-2z]"), ["us-west-2z"]),
    (("ami-", "ami-0000000000000000"), ["ami-0000000000000000"]),
])
def test_names_that_are_wrong(cloud, machine, spec, change, says):
    path = spec(offers=[THERE])
    path.write_text(path.read_text().replace(*change))
    said = machine()("up", path, code=1)
    last = said.err.splitlines()[-1]
    assert last.startswith("gpuprov: ") and all(word in last for word in says), said
    assert cloud.alive() == []


def test_the_endpoint_is_down_or_speaks_no_tls(cloud, machine, spec):
    path = spec(offers=[THERE])
    for url, word in (("http://%s:1" % clouds.ADDRESS, "endpoint"),
                      (cloud.lab.endpoint.replace("http:", "https:"), "TLS")):
        said = machine()("up", path, code=1, env={"AWS_ENDPOINT_URL": url})
        last = said.err.splitlines()[-1]
        assert last.startswith("gpuprov: ") and word in last and url.split("/")[2] in last, said


# --- signatures ---

def test_with_every_signature_checked(program, tmp_path):
    with clouds.Ec2Lab(tmp_path, signatures=True) as lab:
        home = tmp_path / "home"
        home.mkdir()
        gpuprov = InLab(lab, program, tmp_path / "state", home)
        cloud = Cloud(lab)
        path = tmp_path / "spec.yaml"
        path.write_text(SPEC.format(name="llm", nodes=2, offers=HERE, ttl="1h", require="train.ddp", bootstrap="",
                                    access="", image=cloud.images[HERE]))
        said = gpuprov("up", path, code=5, env={"AWS_SECRET_ACCESS_KEY": "not-the-secret"}).err
        assert "AWS_PROFILE" in said and "not-the-secret" not in said
        up = gpuprov.json("up", path, timeout=300)
        assert up["report"]["ready"] is True and len(cloud.alive()) == 2
        gpuprov("down", "llm")
        cloud.nothing_left()


# --- the end that needs nobody ---

def own_end(program, tmp):
    """The deadline passes while a step runs: the node powers itself off, EC2 terminates it, and `up` says
    what happened."""
    with clouds.Ec2Lab(tmp) as lab:
        cloud, gpuprov = Cloud(lab), InLab(lab, program, tmp / "state", tmp)
        path = tmp / "spec.yaml"
        path.write_text(SPEC.format(name="llm", nodes=1, offers=HERE, ttl="1m", require="host.memory", bootstrap="",
                                    access="", image=cloud.images[HERE]).replace("echo hello > ~/hello", "sleep 600"))
        p = gpuprov.popen("up", path)
        try:
            [one] = labs.wait_for("the instance", cloud.alive, 60)
            host = lab.host(one["InstanceId"])
            host.wait_ssh()
            # the wall clock counts only where it is known to be right, which nothing in a lab says
            host.sh("mkdir -p /run/systemd/timesync && touch /run/systemd/timesync/synchronized")
            _, err = p.communicate(timeout=300)
        finally:
            p.kill()
        assert p.returncode == 6 and "llm/0" in err and "ended while it was in phase" in err, err
        lab.wait_no_host(one["InstanceId"])
        assert lab.about(one["InstanceId"])["ended"] == "itself"
        assert cloud.alive() == []
        gpuprov("gc")  # what is left costs nothing: the claim
        cloud.nothing_left()


@pytest.fixture(scope="module", autouse=True)
def under_way(request, program, tmp_path_factory):
    """own_end() is a minute of waiting: it begins with the first test, in a cloud of its own."""
    wanted = any(i.name == "test_the_nodes_own_end" for i in request.session.items)
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(own_end, program, tmp_path_factory.mktemp("own-end")) if wanted else None


def test_the_nodes_own_end(under_way):
    under_way.result()
