# SPDX-License-Identifier: Apache-2.0
"""gpuprov on EC2, from a spec to proven nodes and back to nothing, with others at work in the same account
and on bad days of the cloud; killed and robbed of its memory: test_ec2_killed.py. What is true is asked of
the cloud with boto3 and of the hosts, not of gpuprov."""
import re
import base64
import calendar
import hashlib
import time

import pytest
from ec2_lab import HERE, SPEC, THERE, Cloud, InLab, clouds, tags
from faultproxy import through
from waiting import wait_for
from ec2_lab import cloud_fixture, key_fixture, machine_fixture, proxies_fixture, spec_fixture  # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


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
    assert group["GroupName"] == "gpuprov-123456789012-moto/llm"
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


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("nodes, market", [(2, "on-demand"), (4, "spot")])
def test_from_a_spec_to_proven_nodes_and_back(cloud, machine, spec, nodes, market):
    gpuprov, path = machine(), spec(nodes=nodes, offers=[HERE.replace("on-demand", market)], bootstrap="  packages: [gp-one]")
    assert "a node terminates itself at its deadline" in gpuprov("plan", path, code=2).out
    up = gpuprov.json("up", path, timeout=300)
    assert up["report"]["ready"] is True
    for n in range(nodes):
        assert verdicts(up, n)["host.memory"] == "pass" and verdicts(up, n)["train.ddp"] in ("pass", "degraded")
    gang = {r["check"]: r["verdict"] for r in up["report"]["gang"]}
    assert gang["nccl.values"] == "skipped"
    assert {gang["train.ddp"], gang["net.pair"]} <= {"pass", "degraded"}  # four nodes share this machine's cores
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
    gpuprov("down", "llm")  # again: nothing was found, and that is no error


# --- other machines ---

@pytest.mark.long
def test_two_at_once_from_two_machines(cloud, machine, spec, proxies, key):
    """Same account, same spec, no shared memory: one launch, and whoever comes second says what to do."""
    proxy = proxies()
    path = spec(nodes=1, require="host.memory", access=", key: %s" % key)
    both = [machine(), machine()]
    started = [g.popen("up", path, "--json", env=through(proxy)) for g in both]
    ended = [(p.communicate(timeout=300), p.returncode) for p in started]
    assert len(cloud.alive()) == 1 and len(cloud.groups()) == 1
    codes = [code for _, code in ended]
    assert 0 in codes, ended
    for (_, err), code in ended:
        if code:
            assert code == 6 and re.search("launched by another run|another run launched it", err), err
    for gpuprov in both:  # afterwards both know the same stack
        up = gpuprov.json("up", path, env=through(proxy), timeout=300)
        assert up["stack"]["phase"] == "ready"
    both[1]("down", "llm")
    cloud.nothing_left()


@pytest.mark.long
def test_a_colleagues_stack_of_the_same_name(cloud, machine, spec, proxies):
    """Tags of another owner are never touched."""
    proxy, path = proxies(), spec(offers=[THERE], nodes=1)
    launched = []
    for gpuprov, owner in ((machine(), {"GPUPROV_OWNER": "alice"}), (machine(), {})):
        p = gpuprov.popen("up", path, env={**through(proxy), **owner})
        launched.append(wait_for(lambda: [
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


@pytest.mark.long
def test_throttled_and_one_zone_is_full(cloud, machine, spec, proxies):
    gpuprov, proxy, path = machine(), proxies(), spec(offers=[THERE])
    proxy.rule("RunInstances", "error", status=503, code="RequestLimitExceeded", headers={"Retry-After": "1"})
    proxy.rule("RunInstances", "error", times=None, status=500, code="InsufficientInstanceCapacity",
               params={"Placement.AvailabilityZone": ZONES[0]})
    p = gpuprov.popen("up", path, env=through(proxy))
    wait_for(lambda: len(cloud.alive("llm")) == 2, 60)  # the emulator makes one by one
    p.kill()
    _, err = p.communicate()
    assert {i["Placement"]["AvailabilityZone"] for i in cloud.alive("llm")} == {ZONES[1]}
    calls = proxy.of("RunInstances")
    assert len(calls) == 3 and calls[1].at - calls[0].at >= 1
    assert ZONES[0] in err and "InsufficientInstanceCapacity" in err
    gpuprov("down", path)
    cloud.nothing_left()


@pytest.mark.long
def test_a_launch_of_unknown_outcome(cloud, machine, spec, proxies):
    """Exit 8 and what may be billed; `down` ends it."""
    gpuprov, proxy, path = machine(), proxies(), spec(offers=[THERE])
    proxy.rule("RunInstances", "drop_after", times=None)
    proxy.rule("DescribeInstances", "drop_before", times=None, params={"Filter.3.Name": "tag:gpuprov:slots"})
    said = gpuprov("up", path, code=8, env=through(proxy)).err
    assert "may exist" in said and "gpuprov down llm" in said
    assert len({c.params["ClientToken"] for c in proxy.of("RunInstances")}) == 1
    assert len(cloud.alive("llm")) == 2  # the request is repeated with its token
    gpuprov("down", path)
    cloud.nothing_left()


@pytest.mark.long
@pytest.mark.parametrize("code, rules, says", [
    (3, [("RunInstances", "error", {"status": 500, "code": "InsufficientInstanceCapacity"})],
     ZONES + ["InsufficientInstanceCapacity"]),
    (4, [("RunInstances", "error", {"code": "VcpuLimitExceeded"})], ["VcpuLimitExceeded"]),
    (5, [("RunInstances", "error", {"status": 403, "code": "UnauthorizedOperation"})], ["--policy"]),
    (5, [("GetCallerIdentity", "error", {"status": 403, "code": "InvalidClientTokenId"})], ["AWS_PROFILE"]),
    (None, [("DescribeInstances", "status", {"status": 500, "body": b"<!doctype html><h1>oops</h1>"})],
     ["HTTP 500", "DescribeInstances"]),
    (None, [("DescribeInstances", "cut_xml", {})], ["DescribeInstances", "not XML"]),
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


def test_wrong_names_leave_the_other_offers(cloud, machine, spec):
    wrong = THERE.replace("market: on-demand", "instance_type: z9.huge")
    elsewhere = THERE.replace("market: on-demand", "zones: [us-west-2z]")
    said = machine()("plan", spec(offers=[wrong, elsewhere, THERE]), code=2)
    assert "z9.huge" in said.err and "us-west-2z" in said.err and "us-west-2" in said.out, said
    said = machine()("plan", spec(offers=[wrong, elsewhere]), code=1)
    last = said.err.splitlines()[-1]
    assert "offer 1 (aws)" in last and "z9.huge" in last and "offer 2 (aws)" in last and "us-west-2z" in last, said
    assert cloud.alive() == []


def test_the_endpoint_is_down_or_speaks_no_tls(cloud, machine, spec):
    path = spec(offers=[THERE])
    for url, word in (("http://%s:1" % clouds.ADDRESS, "endpoint"),
                      (cloud.lab.endpoint.replace("http:", "https:"), "TLS")):
        said = machine()("up", path, code=1, env={"AWS_ENDPOINT_URL": url})
        last = said.err.splitlines()[-1]
        assert last.startswith("gpuprov: ") and word in last and url.split("/")[2] in last, said


# --- signatures ---

@pytest.mark.long
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

@pytest.mark.long
def test_the_nodes_own_end(program, tmp_path):
    """The deadline passes while a step runs: the node powers itself off, EC2 terminates it, and `up` says
    what happened."""
    with clouds.Ec2Lab(tmp_path) as lab:
        cloud, gpuprov = Cloud(lab), InLab(lab, program, tmp_path / "state", tmp_path)
        path = tmp_path / "spec.yaml"
        for ttl in ("1m", "5m"):  # on a busy machine a minute may be over before the step begins
            path.write_text(SPEC.format(name="llm", nodes=1, offers=HERE, ttl=ttl, require="host.memory", bootstrap="",
                                        access="", image=cloud.images[HERE]).replace("echo hello > ~/hello", "sleep 600"))
            p = gpuprov.popen("up", path)
            try:
                [one] = wait_for(cloud.alive, 120)
                host = lab.host(one["InstanceId"])
                wait_for(lambda h=host, up=p: h.ssh_up() or up.poll() is not None, 400)
                # the wall clock counts only where it is known to be right, which nothing in a lab says
                host.sh("mkdir -p /run/systemd/timesync && touch /run/systemd/timesync/synchronized", check=False)
                _, err = p.communicate(timeout=500)
            finally:
                p.kill()
            if "in phase 'bootstrap'" in err:
                break
            gpuprov("down", path)
        said = f"llm/0 bootstrap: failed: its deadline passed in phase 'bootstrap' (limits.ttl is {ttl})"
        assert p.returncode == 6 and said in err, err
        lab.wait_no_host(one["InstanceId"])
        assert lab.about(one["InstanceId"])["ended"] == "itself"
        assert cloud.alive() == []
        gpuprov("gc")  # what is left costs nothing: the claim
        cloud.nothing_left()
