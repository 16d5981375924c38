# SPDX-License-Identifier: Apache-2.0
"""An account in which somebody else writes tags, groups, rules and machines, and a computer on which every
file outside gpuprov's state folder and every process that gpuprov starts is noticed."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import ec2
import faultproxy
import pytest
from conftest import Gpuprov
from waiting import wait_for

OWNER = "123456789012-moto"  # whom moto's identity is
HOME, AWAY, THIRD = "us-east-1", "us-west-2", "eu-west-1"
REGIONS = [HOME, AWAY, THIRD]
# Four regions, since every look goes through all of them, and addresses that nobody has (RFC 5737): gpuprov
# tries to reach what it launched.
FIRST = f"""
from moto.ec2.models import elastic_network_interfaces as eni
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
eni.random_public_ip = lambda: "192.0.2.7"
RegionsAndZonesBackend.regions = [r for r in RegionsAndZonesBackend.regions if r.name in {REGIONS + ['ap-south-1']!r}]
"""
SSH_FROM = ("tcp", 22, 22, "203.0.113.0/24")
NAMES = ["sh", "bash", "dash", "env", "ssh", "scp", "ssh-keygen", "ssh-add", "touch", "true", "id", "cat", "rm", "mv",
         "cp", "mkdir", "curl", "wget", "python3", "perl", "sudo", "git", "aws", "systemctl", "unshare", "nsenter"]
# Escapes, the C1 controls that some terminals obey, and marks that turn a line's direction around.
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def uid(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def tags(of, owner=OWNER, expires=3600, **more):
    """The tags of a machine of the stack `of` as gpuprov writes them; `more` replaces them (None: absent). Times
    are seconds from now, or a text."""
    expires = expires if isinstance(expires, str) else stamp(expires)
    all_of = {"owner": owner, "stack": of, "uid": uid(of), "spec": "5" * 64, "expires": expires,
              "slots": "0+1", "attempt": "0", "price": "0.5"}
    all_of.update(more)
    return {k: v for k, v in all_of.items() if v is not None}


def claim_tags(of, owner=OWNER, expires=3600, **more):
    return tags(of, owner, expires, **{"slots": None, "attempt": None, "price": None, "claim": "1",
                                             "created": stamp(-7200), "regions": HOME, **more})


def listed(all_of):
    return [{"Key": k if k == "Name" else "gpuprov:" + k, "Value": v} for k, v in all_of.items()]


def tags_of(thing):
    return {t["Key"].removeprefix("gpuprov:"): t["Value"] for t in thing.get("Tags", [])}


class Account:
    """moto, and what anybody in the account can do there."""

    def __init__(self):
        self.moto = ec2.Moto(first=FIRST)
        self.clients = {region: self.moto.client(region=region) for region in REGIONS}
        self.fresh()

    def fresh(self):
        self.moto.reset()
        self.images = {region: self.moto.image(region) for region in REGIONS}

    def instance(self, all_of, region=HOME, **more):
        got = self.clients[region].run_instances(
            ImageId=self.images[region], InstanceType="t3.medium", **{"MinCount": 1, "MaxCount": 1, **more},
            TagSpecifications=[{"ResourceType": "instance", "Tags": listed(all_of)}] if all_of else [])
        ids = [i["InstanceId"] for i in got["Instances"]]
        return ids[0] if len(ids) == 1 else ids

    def group(self, all_of, region=HOME, name=None, stack=None, owner=OWNER):
        name = name or f"gpuprov-{owner}/{stack or all_of['stack']}"
        return self.clients[region].create_security_group(
            GroupName=name, Description="x",
            TagSpecifications=[{"ResourceType": "security-group", "Tags": listed(all_of)}])["GroupId"]

    def volume(self, all_of, region=HOME):
        return self.clients[region].create_volume(
            AvailabilityZone=region + "a", Size=1,
            TagSpecifications=[{"ResourceType": "volume", "Tags": listed(all_of)}])["VolumeId"]

    def tag(self, thing, region=HOME, **values):
        """None takes a tag away."""
        put = {k: v for k, v in values.items() if v is not None}
        if put:
            self.clients[region].create_tags(Resources=[thing], Tags=listed(put))
        gone = [{"Key": "gpuprov:" + k} for k, v in values.items() if v is None]
        if gone:
            self.clients[region].delete_tags(Resources=[thing], Tags=gone)

    def machines(self, region=None):
        """Everything that is billed, with its region."""
        found = []
        for name in [region] if region else REGIONS:
            for r in self.clients[name].describe_instances()["Reservations"]:
                found += [dict(i, Region=name) for i in r["Instances"] if i["State"]["Name"] != "terminated"]
        return found

    def alive(self, stack=None, region=None):
        return sorted(i["InstanceId"] for i in self.machines(region)
                      if stack is None or tags_of(i).get("stack") == stack)

    def group_of(self, thing, region=HOME):
        return self.clients[region].describe_security_groups(GroupIds=[thing])["SecurityGroups"][0]

    def groups(self, stack, region=HOME):
        return [g for g in self.clients[region].describe_security_groups()["SecurityGroups"]
                if tags_of(g).get("stack") == stack]

    def volumes(self, region=HOME):
        return {v["VolumeId"]: v for v in self.clients[region].describe_volumes()["Volumes"]}

    def close(self):
        self.moto.close()


def rules(group):
    """{(protocol, from, to, source)} of a group."""
    found = set()
    for p in group["IpPermissions"]:
        ports = (p.get("FromPort"), p.get("ToPort")) if p["IpProtocol"] != "-1" else (None, None)
        sources = ([r["CidrIp"] for r in p.get("IpRanges", [])] + [r["CidrIpv6"] for r in p.get("Ipv6Ranges", [])]
                   + [r["PrefixListId"] for r in p.get("PrefixListIds", [])]
                   + [r["GroupId"] for r in p.get("UserIdGroupPairs", [])])
        found |= {(p["IpProtocol"], *ports, s) for s in sources}
    return found


def picture(top, leave_out):
    """Every file below `top`: kind, mode, size, time of its last change and content."""
    seen = {}
    for folder, folders, files in os.walk(top):
        folders[:] = [d for d in folders if pathlib.Path(folder, d) not in leave_out]
        for path in [pathlib.Path(folder)] + [pathlib.Path(folder, f) for f in files]:
            if path in leave_out:
                continue
            s = path.lstat()
            text = path.read_bytes() if stat.S_ISREG(s.st_mode) else b""
            seen[str(path)] = (s.st_mode, s.st_size, s.st_mtime_ns, hashlib.sha256(text).hexdigest())
    return seen


class Machine(Gpuprov):
    """gpuprov on a computer of its own. check(): nothing but its state folder changed, no process was started,
    nothing that it printed steers a terminal."""

    def __init__(self, account, program, top):
        self.account, self.top = account, top
        self.work = top / "a" / "b"
        for name in ("state/stacks", "state/events", "state/locks", "specs", "home/.ssh", "home/.aws", "bin", "cwd"):
            (self.work / name).mkdir(parents=True)
        for where in (top, top / "a", self.work, self.work / "home"):
            (where / "victimdir" / "sub").mkdir(parents=True)
            (where / "victimdir" / "sub" / "precious").write_text("precious\n")
            (where / "victimdir" / "ssh_config").write_text("Host *\n")
        self.pwned = self.work / "pwned"
        for name in NAMES:
            (self.work / "bin" / name).write_text(f"#!/bin/sh\necho {name} >> {self.pwned}\n")
            (self.work / "bin" / name).chmod(0o755)
        self.traces, self.said = self.work / "traces", []
        self.traces.mkdir()
        super().__init__(program, self.work / "state", self.work / "home")
        self.env = ec2.environment(account.moto.url, self.state, HOME=str(self.work / "home"), TERM="dumb",
                                   LC_ALL="C.UTF-8", PATH=str(self.work / "bin"), SSH_AUTH_SOCK=None)
        if "ASAN_OPTIONS" in os.environ:  # the search for leaks does not work under strace
            self.env["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"] + ":detect_leaks=0"
        self.strace = shutil.which("strace")
        assert self.strace, "no strace: run 'make deps'"
        self.before = self.picture()

    def picture(self):
        return picture(self.top, {self.state, self.traces, self.work / "specs"})

    def popen(self, *args, env=None, cwd=None, **kw):
        argv = [str(self.program), *map(str, args)]
        out = self.traces / str(len(list(self.traces.iterdir())))
        argv = [self.strace, "-D", "-f", "-q", "-e", "trace=execve,execveat", "-o", str(out)] + argv
        kw = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kw}
        return subprocess.Popen(argv, text=True, errors="replace", env={**self.env, **(env or {})},
                                cwd=cwd or self.work / "cwd", start_new_session=True, **kw)

    def __call__(self, *args, **kw):
        got = super().__call__(*args, **kw)
        self.said.append(got)
        return got

    def tell(self, *args, **kw):
        """A verb with --json and every exit code: its result, with the code as `code`."""
        got = self(*args, "--json", **{"code": None, **kw})
        assert got.code >= 0, got
        try:
            found = json.loads(got.out) if got.out.strip() else {}
        except ValueError as e:
            raise AssertionError(f"no JSON: {got!r}") from e
        return {**found, "code": got.code, "said": got}

    def spec(self, name, region=HOME, **more):
        """A spec file beside the state folder."""
        known = {"name": name, "nodes": 1, "gpu": None, "limits": {"ttl": "1h"},
                 "offers": [{"provider": "aws", "regions": [region], "market": "on-demand"}]}
        path = ec2.spec(self.work / "specs", self.account.images[region], **{**known, **more})
        return path.rename(path.with_name(name + ".json"))

    def up(self, path, stack, proxy=None, more=0, **kw):
        """`up`, ended by kill -9 as soon as it waits for its new machine. Its id, and stderr."""
        before = self.account.alive(stack)
        p = self.popen("up", path, env={"AWS_ENDPOINT_URL": proxy.url} if proxy else None, **kw)
        lines = []
        try:
            for line in p.stderr:
                lines.append(line)
                if "waiting for ssh" in line:
                    break
        finally:
            p.kill()
            rest, err = p.communicate()
        new = [i for i in self.account.alive(stack) if i not in before]
        assert len(new) == 1 + more, ("".join(lines), rest, err)
        return new[0], "".join(lines)

    def again(self, path, proxy=None):
        """`up` of a stack whose machine is there, ended by kill -9 when it waits for it. Its stderr."""
        p = self.popen("up", path, env={"AWS_ENDPOINT_URL": proxy.url} if proxy else None)
        lines = []
        for line in p.stderr:
            lines.append(line)
            if "waiting for ssh" in line:
                break
        p.kill()
        rest, err = p.communicate()
        assert "waiting for ssh" in lines[-1], (lines, rest, err)
        return "".join(lines)

    def check(self):
        assert not self.pwned.exists(), "started: " + self.pwned.read_text()
        lines = [line for f in sorted(self.traces.iterdir()) for line in self.settled(f).splitlines()]
        started = [line for line in lines if "exec" in line]
        assert all(f'execve("{self.program}"' in line for line in started), started
        assert len(started) <= len(list(self.traces.iterdir())), started
        assert self.picture() == self.before
        for got in self.said:
            assert not STEERS.search(got.out.replace("\r\n", "\n")), got
            assert not STEERS.search(got.err), got
            assert got.code >= 0, got

    @staticmethod
    def settled(trace):
        """strace -D outlives what it watched by a moment."""
        wait_for(lambda: "+++" in trace.read_text())
        return trace.read_text()


def denied(account, region):
    """A proxy that refuses whatever is signed for one region."""
    proxy = faultproxy.FaultProxy(account.moto.url).start()
    return proxy.rule(None, "error", times=None, code="UnauthorizedOperation", status=403, region=region)


def side_by_side(*jobs):
    """Waiting is most of what `down` does: several machines at once. The first failure is raised."""
    with ThreadPoolExecutor(16) as pool:
        waits = [pool.submit(job) for job in jobs]
        return [w.result() for w in waits]


NOBODY = {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}


@pytest.fixture(name="clouds", scope="module")
def clouds_fixture():
    made = Account()
    yield made
    made.close()


@pytest.fixture(name="account")
def account_fixture(clouds):
    clouds.fresh()
    return clouds


@pytest.fixture(name="computer")
def computer_fixture(account, program, tmp_path):
    """computer(): gpuprov on a computer that knows nothing; what it changed outside its state folder, and what
    it started, is looked at in the end."""
    made = []

    def make():
        made.append(Machine(account, program, tmp_path / ("computer%d" % len(made))))
        return made[-1]
    yield make
    for one in made:
        one.check()


@pytest.fixture(name="proxies")
def proxies_fixture(account):
    yield from faultproxy.several(lambda proxy=None: proxy or faultproxy.FaultProxy(account.moto.url).start())


def without_credentials(computer):
    env = dict(computer.env)
    for name in NOBODY:
        env.pop(name)
    return env


class Blind:
    """Runs verbs without credentials."""

    def __init__(self, computer):
        self.computer = computer

    def __enter__(self):
        self.env = self.computer.env
        self.computer.env = without_credentials(self.computer)
        return self.computer

    def __exit__(self, *_):
        self.computer.env = self.env


def never_gone(said, *ids):
    """Exit 8, and no word of absence."""
    assert said["code"] == 8 and said["gone"] is not True, said["said"]
    assert "nothing is left" not in said["said"].err and "nothing was found" not in said["said"].err
    for i in ids:
        assert i in said["said"].out + said["said"].err, said["said"]
    return said


def looked(said):
    return {(x["provider"], x["region"]): x for x in said["looked"]}
