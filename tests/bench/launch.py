# SPDX-License-Identifier: Apache-2.0
"""Launch, describe, terminate on one EC2 emulator (moto), three ways: gpuprov's provider
(tests/drivers/ec2_cycle), the AWS CLI, and the calls alone.

The calls alone come in two kinds. "its calls alone": the very requests that gpuprov sent, sent again by a
client that does nothing else: what is above it is gpuprov's own. "the fewest calls": a group with its rules,
RunInstances, DescribeInstances, TerminateInstances, DescribeInstances, the group deleted: what one would
write by hand for exactly this, without claim, tags looked up, prices, quotas or a journal."""
import http.client
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

from timing import TICKS, Cost, Load, Skip, cost, load_words, median, ms, rounds, spread, table, verdict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

TYPE = "g4dn.xlarge"
# the call before which a phase has ended
FIRST = {"offers": "Action=CreateSecurityGroup&", "describe": "Action=TerminateInstances&"}
PHASES = ("offers", "launch", "describe", "terminate")
ID = re.compile(r"\b(?:sg|i|vpc|subnet|ami)-[0-9a-f]{8,17}\b")


class Bare:
    """Sends a body, reads the answer to its end (moto closes after every answer, for everybody). The header
    has the form of a signature: moto reads the service from it and does not check it, so not even signing
    is paid for."""

    def __init__(self, port, region):
        self.connection, self.region = http.client.HTTPConnection("127.0.0.1", port, timeout=60), region

    def call(self, body, service="ec2", headers=None):
        auth = ("AWS4-HMAC-SHA256 Credential=testing/20260101/%s/%s/aws4_request, SignedHeaders=host, "
                "Signature=0" % (self.region, service))
        self.connection.request("POST", "/", body.encode(), {
            "Authorization": auth, "Content-Type": "application/x-www-form-urlencoded", **(headers or {})})
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if service == "ec2" and answer.status != 200:
            raise RuntimeError("the emulator refused %s: %s" % (body[:60], text[:300]))
        return text

    def ec2(self, action, **params):
        return self.call(urllib.parse.urlencode({"Action": action, "Version": "2016-11-15", **params}))


def ids(answer, tag, prefix):
    return list(dict.fromkeys(re.findall("<%s>(%s-[0-9a-f]+)</%s>" % (tag, prefix, tag), answer)))


def fewest(bare, n, image, group):
    started = time.monotonic()
    sg = ids(bare.ec2("CreateSecurityGroup", GroupName=group, GroupDescription="bench"), "groupId", "sg")[0]
    bare.ec2("AuthorizeSecurityGroupIngress", GroupId=sg, **{
        "IpPermissions.1.IpProtocol": "-1", "IpPermissions.1.Groups.1.GroupId": sg,
        "IpPermissions.2.IpProtocol": "tcp", "IpPermissions.2.FromPort": 22, "IpPermissions.2.ToPort": 22,
        "IpPermissions.2.IpRanges.1.CidrIp": "203.0.113.0/24"})
    made = ids(bare.ec2("RunInstances", ImageId=image, InstanceType=TYPE, MinCount=n, MaxCount=n, **{
        "SecurityGroupId.1": sg, "TagSpecification.1.ResourceType": "instance",
        "TagSpecification.1.Tag.1.Key": "stack", "TagSpecification.1.Tag.1.Value": group,
        "BlockDeviceMapping.1.DeviceName": "/dev/sda1", "BlockDeviceMapping.1.Ebs.VolumeSize": 100,
        "BlockDeviceMapping.1.Ebs.VolumeType": "gp3", "BlockDeviceMapping.1.Ebs.Encrypted": "true",
        "BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true", "MetadataOptions.HttpTokens": "required",
    }), "instanceId", "i")
    launched = time.monotonic()
    named = {"InstanceId.%d" % (i + 1): name for i, name in enumerate(made)}
    if bare.ec2("DescribeInstances", **named).count("<name>running</name>") != n:
        raise RuntimeError("not all run")
    described = time.monotonic()
    bare.ec2("TerminateInstances", **named)
    bare.ec2("DescribeInstances", **named)
    bare.ec2("DeleteSecurityGroup", GroupId=sg)
    ended = time.monotonic()
    return told(Cost(ended - started, 0, 0), 0, launched - started, described - launched, ended - described)


def told(c, offers, launch, describe, terminate):
    c.offers, c.launch, c.describe, c.terminate = offers, launch, describe, terminate
    return c


def record(env, driver, spec):
    """The calls of one run of gpuprov: [(service, body)], from its trace."""
    done = subprocess.run([str(driver), str(spec)], env=dict(env, GPUPROV_TRACE="http"), capture_output=True,
                          text=True, timeout=120, check=True)
    calls = re.findall(r"http: (\S+) \S+ in \S+: (Action=\S+|\{.*\})$", done.stderr, re.M)
    answered = len(re.findall(r"http: \S+ \S+ in \S+: POST \S+ -> \d+", done.stderr))
    if not calls or len(calls) != answered:
        raise RuntimeError("%d calls, %d answers" % (len(calls), answered))
    return calls


def landscape(moto, image):
    """{what: id} of what the emulator makes anew at every reset."""
    ec2 = moto.client()
    known = {"subnet " + s["AvailabilityZone"]: s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]}
    known["vpc"] = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    known["image"] = image
    return known


def replay(bare, calls, new):
    """Sends them again. new: {old id: id now}; those of the group and the instances come with the answers."""
    new, ends, started = dict(new), {}, time.monotonic()
    old = list(dict.fromkeys(i for _, body in calls for i in ID.findall(body)))
    for service, recorded in calls:
        body = ID.sub(lambda m: new.get(m.group(0), m.group(0)), recorded)
        for phase, first in FIRST.items():
            if first in body:
                ends.setdefault(phase, time.monotonic())
        answer = bare.call(body, service) if service != "servicequotas" else quota(bare, body)
        if "Action=CreateSecurityGroup" in body:
            new.update(zip([i for i in old if i.startswith("sg-")], ids(answer, "groupId", "sg")))
        if "Action=RunInstances" in body:
            new.update(zip([i for i in old if i.startswith("i-")], ids(answer, "instanceId", "i")))
            ends["launch"] = time.monotonic()
    ended = time.monotonic()
    return told(Cost(ended - started, 0, 0), ends["offers"] - started, ends["launch"] - ends["offers"],
                ends["describe"] - ends["launch"], ended - ends["describe"])


def quota(bare, body):
    return bare.call(body, "servicequotas", {"Content-Type": "application/x-amz-json-1.1",
                                             "X-Amz-Target": "ServiceQuotasV20190624.GetServiceQuota"})


def gpuprov(env, driver, spec, n):
    c = cost([driver, spec], env=env)
    t = json.loads(c.out)
    if t["instances"] != n:
        raise RuntimeError("gpuprov: " + c.out)
    return told(c, (t["open_ms"] + t["offers_ms"]) / 1e3, t["launch_ms"] / 1e3, t["describe_ms"] / 1e3,
                t["terminate_ms"] / 1e3)


def aws_cli(env, aws, n, image, group):
    def aws_call(*words):
        c = cost([aws, "--output", "json", "ec2", *words], env=env)
        spent[0] += c.cpu
        spent[1] = max(spent[1], c.rss)
        return json.loads(c.out) if c.out.strip() else {}
    spent, started = [0, 0], time.monotonic()
    sg = aws_call("create-security-group", "--group-name", group, "--description", "bench")["GroupId"]
    aws_call("authorize-security-group-ingress", "--group-id", sg, "--protocol", "tcp", "--port", "22",
             "--cidr", "203.0.113.0/24")
    made = [i["InstanceId"] for i in aws_call(
        "run-instances", "--image-id", image, "--instance-type", TYPE, "--count", str(n),
        "--security-group-ids", sg)["Instances"]]
    launched = time.monotonic()
    aws_call("describe-instances", "--instance-ids", *made)
    described = time.monotonic()
    aws_call("terminate-instances", "--instance-ids", *made)
    aws_call("describe-instances", "--instance-ids", *made)
    aws_call("delete-security-group", "--group-id", sg)
    ended = time.monotonic()
    return told(Cost(ended - started, spent[0], spent[1]), 0, launched - started, described - launched,
                ended - described)


def with_server(moto, fn):
    """Adds the emulator's CPU seconds to what fn() cost: on a busy machine they say more than the clock."""
    stat = pathlib.Path("/proc/%d/stat" % moto.process.pid)

    def used():
        return sum(map(int, stat.read_text().rsplit(")", 1)[1].split()[11:13])) / TICKS

    def run():
        before = used()
        c = fn()
        c.server = used() - before
        return c
    return run


def measure(moto, driver, folder, n, count):
    import ec2
    aws = shutil.which("aws")
    spec_dir = pathlib.Path(tempfile.mkdtemp(dir=folder))
    state = {"image": None, "runs": 0, "calls": None, "was": None}
    bare = Bare(moto.port, ec2.REGION)
    env = ec2.environment(moto.url, spec_dir / "state", AWS_DEFAULT_REGION=ec2.REGION)
    spec = spec_dir / "spec.yaml"

    def fresh():
        """An emulator that knows nothing: what ran before would be listed by every later describe."""
        moto.reset()
        state["image"] = moto.image()
        state["runs"] += 1
        ec2.spec(spec_dir, state["image"], market="on-demand", nodes=n, gpu=None, offers=[
            {"provider": "aws", "regions": [ec2.REGION], "market": "on-demand", "instance_type": TYPE}])

    def same():
        now = landscape(moto, state["image"])
        return with_server(moto, lambda: replay(
            bare, state["calls"], {state["was"][k]: now[k] for k in now}))()

    fresh()
    state["was"] = landscape(moto, state["image"])
    state["calls"] = record(env, driver, spec)
    contestants = {
        "gpuprov": with_server(moto, lambda: gpuprov(env, driver, spec, n)), "its calls alone": same,
        "the fewest calls": with_server(
            moto, lambda: fewest(bare, n, state["image"], "bench%d" % state["runs"]))}
    if aws:
        contestants["AWS CLI"] = with_server(
            moto, lambda: aws_cli(env, aws, n, state["image"], "cli%d" % state["runs"]))
    load = Load()
    got = rounds(count, contestants, before=fresh)
    return got, len(state["calls"]), load_words(load.end())


def distant(moto, driver, folder, sizes, latency=0.08):
    """A launch at a cloud that is 80 ms away: round trips that wait for one another before RunInstances, and the
    time until the ids are known."""
    import ec2
    import faultproxy
    rows, goals = [], []
    for n in sizes:
        moto.reset()
        here = pathlib.Path(tempfile.mkdtemp(dir=folder))
        spec = ec2.spec(here, moto.image(), market="on-demand", nodes=n)
        with faultproxy.FaultProxy(moto.url, latency=latency) as proxy:
            done = subprocess.run([str(driver), str(spec)], env=ec2.environment(proxy.url, here / "state"),
                                  capture_output=True, text=True, timeout=120, check=True)
            t, trips = json.loads(done.stdout), proxy.rounds_before("RunInstances")
            before = next(i for i, c in enumerate(proxy.calls) if c.action == "RunInstances")
        rows.append([str(n), str(before), str(trips), ms((t["open_ms"] + t["offers_ms"] + t["launch_ms"]) / 1e3)])
        goals.append(["%d instance%s at 80 ms: at most 5 round trips before RunInstances" % (n, "s"[:n != 1]), str(trips),
                      verdict(trips <= 5)])
    return ("With 80 ms added to each call:\n\n" + table(
        ["instances", "calls before RunInstances", "round trips", "to the ids"], rows)), goals


def rows_of(got):
    base = median(got["its calls alone"])
    rows = []
    for name, costs in got.items():
        low, high = spread(costs)
        phases = [ms(median(costs, p)) if hasattr(costs[0], p) and median(costs, p) else "-" for p in PHASES]
        rows.append([name, "%s (%s to %s)" % (ms(median(costs)), ms(low), ms(high)),
                     "%.2f" % (median(costs) / base), *phases,
                     ms(median(costs, "cpu")) if median(costs, "cpu") else "-", ms(median(costs, "server"))])
    return rows


def run(drivers, folder, sizes, count):
    """Returns (title, text, goals)."""
    try:
        import ec2
    except ImportError as why:
        raise Skip("boto3 and moto are not installed (make deps): %s" % why) from why
    parts, goals = [], []
    moto = ec2.Moto()
    try:
        for n in sizes:
            got, calls, words = measure(moto, drivers / "ec2_cycle", folder, n, count)
            parts.append("%d instance%s, %d rounds, %d calls of gpuprov (%s):\n\n" % (
                n, "s"[:n != 1], count, calls, words) + table(
                ["client", "all, median (range)", "of its calls alone", "look up", "launch", "describe",
                 "terminate", "client CPU", "emulator's CPU"], rows_of(got)))
            if n == 32:
                ours = median(got["gpuprov"])
                alone, few = ours / median(got["its calls alone"]), ours / median(got["the fewest calls"])
                goals += [["32 instances: at most 1.2 of the same API calls alone", "%.2f" % alone,
                           verdict(alone <= 1.2)],
                          ["32 instances: at most 1.2 of the fewest calls that launch, describe and end them",
                           "%.2f" % few, verdict(few <= 1.2)]]
        text, more = distant(moto, drivers / "ec2_cycle", folder, sizes)
        parts.append(text)
        goals += more
    finally:
        moto.close()
    if not shutil.which("aws"):
        parts.append("The AWS CLI is not installed here: its rows are missing.\n")
    return "Launch, describe, terminate on an EC2 emulator", "\n".join(parts), goals
