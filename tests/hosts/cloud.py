# SPDX-License-Identifier: Apache-2.0
"""EC2 for a test: an independent emulator (moto) with a real systemd host behind every instance.

    with Ec2Lab(tmp_path) as lab:
        lab.run([gpuprov, "up", spec], env={**os.environ, **lab.env})
        lab.ec2("us-east-1").describe_instances()
        lab.host(instance_id).sh("systemctl status")
"""
import json
import os
import pathlib
import subprocess
import sys

from lab import HERE, Host, Lab
from moto_fabric import START
from waiting import wait_for

# In the range that every region's default VPC has, above its subnets: two regions with hosts at once
# would give the same private addresses twice.
ADDRESS = "172.31.240.1"
PORT = 5000


class _Client:
    """A boto3 client whose calls are made from inside the lab's network."""

    def __init__(self, lab, client):
        self._lab, self._client = lab, client

    def __getattr__(self, name):
        method = getattr(self._client, name)
        return lambda **kw: self._lab.call(method, **kw)


class Ec2Lab(Lab):
    """regions: those whose instances get a host (one; see ADDRESS). signatures=True: moto checks every signature and
    every permission (after it made one user, whose key is lab.env's). first: Python that moto runs before it begins."""

    def __init__(self, tmp, regions=("us-east-1",), signatures=False, base_dir=None, env=None,
                 first=""):
        super().__init__(tmp, cidr=ADDRESS + "/16", base_dir=base_dir)
        self.regions, self.signatures = regions, signatures
        self.endpoint = "http://%s:%d" % (ADDRESS, PORT)
        self.moto_env, self.moto_first = env or {}, first
        self.key = ("AKIAIOSFODNN7EXAMPLE", "not-checked-unless-signatures")
        self._procs = []

    @property
    def env(self):
        """What gpuprov needs to know of this cloud."""
        return {"AWS_ENDPOINT_URL": self.endpoint, "GPUPROV_CLEAR_TEXT": ADDRESS, "AWS_REGION": self.regions[0],
                "AWS_ACCESS_KEY_ID": self.key[0], "AWS_SECRET_ACCESS_KEY": self.key[1],
                "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
                "AWS_EC2_METADATA_DISABLED": "true"}

    def __enter__(self):
        super().__enter__()
        try:
            self._start_moto()
            self._start_reconciler()
        except BaseException:
            self.close()
            raise
        return self

    def _start_moto(self):
        env = {**os.environ, "MOTO_EC2_LOAD_DEFAULT_AMIS": "true", "MOTO_PORT": str(PORT), **self.moto_env}
        if self.signatures:
            env["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"  # the calls of _make_user
        log = open(self.tmp / "moto.log", "wb")
        self._procs.append(self.popen(
            [sys.executable, "-c", START + self.moto_first + "from moto.server import main; main()", "-H", ADDRESS, "-p", PORT],
            env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        probe = "exec 3<>/dev/tcp/%s/%d" % (ADDRESS, PORT)
        wait_for(lambda: self.run(["bash", "-c", probe], capture_output=True).returncode == 0, 120)
        if self.signatures:
            self._make_user()

    def _make_user(self):
        iam = self.client("iam", self.regions[0])
        iam.create_user(UserName="gpuprov")
        iam.put_user_policy(UserName="gpuprov", PolicyName="all", PolicyDocument=json.dumps({
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": ["ec2:*", "sts:*", "ssm:*", "servicequotas:*", "iam:*"],
                           "Resource": "*"}]}))
        made = iam.create_access_key(UserName="gpuprov")["AccessKey"]
        iam.list_users()  # the last one that is not checked
        self.key = (made["AccessKeyId"], made["SecretAccessKey"])

    def _start_reconciler(self):
        log = open(self.tmp / "reconcile.log", "wb")
        env = {**os.environ, "AWS_ACCESS_KEY_ID": self.key[0], "AWS_SECRET_ACCESS_KEY": self.key[1]}
        prefix = self.cidr.split("/")[1]
        self._procs.append(subprocess.Popen(
            ["nsenter", "-t", str(self.pid), "--net", "--mount", "--pid", "--ipc", sys.executable,
             str(HERE / "reconcile.py"), self.endpoint, ",".join(self.regions),
             str(self.folder.resolve()), self.base, prefix],
            env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL))

    def close(self):
        for p in self._procs:
            p.kill()
        for p in self._procs:
            p.wait()
        self._procs = []
        super().close()

    def client(self, service, region=None):
        """A boto3 client for this cloud; made and used inside the lab's network."""
        import boto3
        made = self.call(boto3.client, service, region_name=region or self.regions[0],
                         endpoint_url=self.endpoint, aws_access_key_id=self.key[0],
                         aws_secret_access_key=self.key[1])
        return _Client(self, made)

    def ec2(self, region=None):
        return self.client("ec2", region)

    def instances(self, *states, region=None):
        """Instances in one of the states (default: those that cost money)."""
        states = states or ("pending", "running", "stopping", "shutting-down")
        found = self.ec2(region).describe_instances(
            Filters=[{"Name": "instance-state-name", "Values": list(states)}])
        return [i for r in found["Reservations"] for i in r["Instances"]]

    def in_image(self, path, text):
        """Every host that is made from now on has this file."""
        to = self.path("image", path.lstrip("/"))
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text)

    def about(self, instance_id):
        """What the reconciler noted of an instance, or {}."""
        path = self.path("instances", instance_id + ".json")
        return json.loads(path.read_text()) if path.exists() else {}

    def host(self, instance_id, seconds=120):
        """The host behind an instance, once it is started."""
        said = wait_for(lambda: self.about(instance_id), seconds)
        if "host" not in said:
            raise RuntimeError("no host behind %s: %s" % (instance_id, said))
        return Host(self, "systemd", said["host"], said["private"], said["public"])

    def wait_no_host(self, instance_id, seconds=120):
        wait_for(lambda: "ended" in self.about(instance_id), seconds)

    def log(self, name):
        """'moto' or 'reconcile': what it wrote."""
        return pathlib.Path(self.tmp / (name + ".log")).read_text(errors="replace")
