# SPDX-License-Identifier: Apache-2.0
"""Every cloud's stand-in at a distance: a latency on each call, a spec, and which calls a launch waits for. For
tests/bench/clouds.py and for the tests that hold the number of round trips.

    with FAR["lambda"](folder, nodes=32, latency=0.08) as far:
        run([gpuprov, "up", far.spec], env=far.env)
        far.before_create()

Counts are upper limits on a busy machine: calls that it did not start in time for one another count apart, and a claim
that took too long is taken again. The least of several runs is the count: least_rounds()."""
import json
import os
import pathlib
import subprocess

import ec2
import faultproxy
import lambda_cloud
import shadeform_cloud
from alibaba import REGION as ALIBABA_REGION
from alibaba import Alibaba
from azure_cloud import Azure
from google_cloud import Google
from mock import rounds  # noqa: UP026
from runpod import RunPod

FOREIGN = ("ALIBABA", "AWS_", "AZURE_", "CLOUDSDK_", "GOOGLE_", "GPUPROV_", "LAMBDA", "RUNPOD_", "SHADEFORM")


class Far:
    """create: pattern of the calls that make machines, in "METHOD TARGET". latencies: what least_rounds() tries."""
    provider = gpu = create = None
    withdraw = None  # of a claim that took too long, and is taken again: read, written, read, withdrawn
    latencies = (0.08, 0.4, 1.6)
    make = staticmethod(lambda latency: None)
    offer, limits = {}, {"ttl": "1h"}

    def __init__(self, folder, nodes=1, latency=0.08):
        self.folder, self.nodes, self.latency = pathlib.Path(folder), nodes, latency
        self.name = "far"

    def __enter__(self):
        self.cloud = self.make(self.latency).__enter__()
        self.prepare()
        home = self.folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN) and not k.upper().endswith("_PROXY")}
        env.update(ec2.CLEAN, HOME=str(home), GPUPROV_STATE_DIR=str(self.folder / "state"), GPUPROV_OWNER="tester")
        env.update(self.variables(home))
        self.env = {k: v for k, v in env.items() if v is not None}
        self.spec = self.folder / "far.yaml"
        self.spec.write_text(json.dumps({
            "name": self.name, "nodes": self.nodes, "gpu": self.gpu, "limits": self.limits,
            "offers": [{"provider": self.provider, **self.offer}], "access": self.access(), **self.more()}))
        return self

    def __exit__(self, *args):
        self.cloud.__exit__(*args)

    def prepare(self):
        """The cloud has room for 32 nodes."""

    def variables(self, home):
        return self.cloud.environment()

    def access(self):
        return {"ssh_from": ["203.0.113.0/24"]}

    def more(self):
        return {}

    def log(self):
        """The calls that were answered: "at" and "end", and "creates" of those that make machines."""
        creates = [id(r) for r in self.cloud.requests(self.create)]
        with self.cloud.lock:
            return [{"at": r["at"], "end": r["end"], "creates": id(r) in creates} for r in self.cloud.log if "end" in r]

    def before_create(self):
        """Round trips that the first create call waited for, without those of claims that were too late."""
        log = self.log()
        first = min(r["at"] for r in log if r["creates"])
        again = len(self.cloud.requests(self.withdraw)) if self.withdraw else 0
        return rounds([r for r in log if r["end"] <= first]) - 4 * again

    def until(self, moment):
        """Round trips that were over at this moment of time.monotonic()."""
        return rounds([r for r in self.log() if r["end"] <= moment])

    def drive(self):
        """The launch alone, as `up` does it after its plan: open, offers, claim, create; [instance]."""
        done = subprocess.run([ec2.BUILD / "tests/drivers/provider_drive", self.provider, self.spec, "create"], env=self.env,
                              capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise RuntimeError("%s: %s%s" % (self.provider, done.stdout[-2000:], done.stderr[-2000:]))
        return [r for r in json.loads(done.stdout)["resources"] if r["kind"] == "instance"]


class FarAlibaba(Far):
    provider, gpu, create = "alibaba", "T4:1", "RunInstances"
    offer = {"regions": [ALIBABA_REGION]}
    make = staticmethod(lambda latency: Alibaba(latency=latency))

    def log(self):  # its calls are told apart by a header
        with self.cloud.lock:
            return [{"at": r["at"], "end": r["end"], "creates": r["headers"].get("x-acs-action") == self.create}
                    for r in self.cloud.log if "end" in r]


class FarGoogle(Far):
    provider, gpu, create = "google", "L4:1", "POST .*/instances/bulkInsert"
    offer = {"regions": ["us-central1"]}
    make = staticmethod(lambda latency: Google(latency=latency))

    def prepare(self):
        self.cloud.quotas = dict.fromkeys(self.cloud.quotas, 64)
        self.cloud.all_gpus = 64

    def variables(self, home):
        return self.cloud.environment(home)


class FarAzure(Far):
    provider, gpu, create = "azure", "T4:1", "PUT .*/virtualMachines/"
    offer, limits = {"regions": ["eastus"]}, {"ttl": "1h", "unattended": "accept"}
    make = staticmethod(lambda latency: Azure(latency=latency))


class FarLambda(Far):
    latencies = 5 * (0.08,)  # a claim must be made within 0.3 s
    withdraw = "DELETE .*/ssh-keys/"
    provider, gpu, create = "lambda", "A10:1", "POST .*/launch"
    offer, limits = {"regions": ["us-east-1"]}, {"ttl": "1h", "unattended": "accept"}
    make = staticmethod(lambda latency: lambda_cloud.LambdaCloud(latency=latency))

    def prepare(self):
        self.cloud.capacity = dict.fromkeys(self.cloud.capacity, 64)
        self.cloud.quota = 64

    def variables(self, home):
        return {"LAMBDA_API_KEY": lambda_cloud.KEY, "GPUPROV_LAMBDA_ENDPOINT": self.cloud.url, "GPUPROV_LAMBDA_PACE_MS": "0"}

    def access(self):
        return {}


class FarRunPod(Far):
    provider, gpu, create = "runpod", "RTX 4090:1", "POST /v2/pods"
    limits = {"ttl": "1h", "unattended": "accept"}
    make = staticmethod(lambda latency: RunPod(latency=latency))

    def variables(self, home):
        return self.cloud.environment(home)

    def access(self):
        return {}


class FarShadeform(Far):
    latencies = 5 * (0.08,)  # a claim must be made within 0.3 s
    withdraw = "POST .*/sshkeys/[^/]+/delete"
    provider, gpu, create = "shadeform", "A6000:1", "POST .*/create"
    offer = {"regions": ["hyperstack.canada-1"]}
    make = staticmethod(lambda latency: shadeform_cloud.ShadeformCloud(latency=latency))

    def variables(self, home):
        return {"SHADEFORM_API_KEY": shadeform_cloud.KEY, "GPUPROV_SHADEFORM_ENDPOINT": self.cloud.url,
                "GPUPROV_SHADEFORM_PACE_MS": "0"}

    def access(self):
        return {}


class FarEC2(Far):
    """moto behind the fault proxy, which has the latency."""
    provider, gpu, create = "aws", "T4:1", "RunInstances"
    offer = {"regions": [ec2.REGION]}

    def __enter__(self):
        self.moto = ec2.Moto()
        try:
            self.image = self.moto.image()
            self.make = lambda latency: faultproxy.FaultProxy(self.moto.url, latency=latency)
            return super().__enter__()
        except BaseException:
            self.moto.close()
            raise

    def __exit__(self, *args):
        try:
            super().__exit__(*args)
        finally:
            self.moto.close()

    def drive(self):  # begins with the offers, as `up` does; it also terminates
        done = subprocess.run([ec2.BUILD / "tests/drivers/ec2_cycle", self.spec], env=self.env, capture_output=True,
                              text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise RuntimeError("aws: %s%s" % (done.stdout[-2000:], done.stderr[-2000:]))
        return [{"slot": n, "id": str(n)} for n in range(json.loads(done.stdout)["instances"])]

    def variables(self, home):
        return {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing-secret",
                "AWS_ENDPOINT_URL": self.cloud.url, "AWS_REGION": ec2.REGION}

    def more(self):
        return {"image": {"id": self.image}}

    def log(self):
        with self.cloud.lock:
            return [{"at": c.at, "end": c.end, "creates": c.action == self.create} for c in self.cloud.calls
                    if c.end is not None]


def least_rounds(make, folder, nodes, most):
    """The round trips before the create call: those of the first run that has no more than `most`, else the least. Each run
    is of a cloud farther away, so that a machine which is slow to start threads has the time."""
    seen = []
    for n, latency in enumerate(make.latencies):
        with make(folder / str(n), nodes, latency=latency) as far:
            made = far.drive()
            assert len({r["id"] for r in made}) == nodes and {r["slot"] for r in made} == set(range(nodes))
            seen.append((far.before_create(), ["%s %s" % (r["method"], r["target"][:120]) for r in far.cloud.log], made))
        if seen[-1][0] <= most:
            break
    return min(seen, key=lambda s: s[0])


FAR = {far.provider: far for far in (FarEC2, FarAlibaba, FarGoogle, FarAzure, FarLambda, FarRunPod, FarShadeform)}
