#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reconcile.py ENDPOINT REGION[,REGION] FOLDER PREFIX: what EC2 does between its API and a machine.

Keeps one systemd host per pending or running instance of an emulator: the instance's user-data is
given to the host's own cloud-init, its private and public address are the host's; a terminated instance
loses its host; a host that switches itself off ends its instance as its shutdown behaviour says. Runs
in a lab's namespaces (host.sh makes the hosts) until it is killed.
FOLDER/instances/ID.json says for each instance which host it has and how it went; what is below
FOLDER/image every new host has too."""
import base64
import json
import pathlib
import shutil
import subprocess
import sys
import time

import boto3
from lab import ENVIRONMENT

HERE = pathlib.Path(__file__).resolve().parent


class Reconciler:
    def __init__(self, endpoint, regions, folder, base, prefix):
        self.folder, self.base, self.prefix = pathlib.Path(folder), base, prefix
        self.clients = [boto3.client("ec2", region_name=r, endpoint_url=endpoint) for r in regions]
        self.have, self.failed = {}, set()
        (self.folder / "instances").mkdir(exist_ok=True)
        self.image = self.folder / "image"

    def sh(self, *args):
        done = subprocess.run([str(HERE / "host.sh"), args[0], str(self.folder), *map(str, args[1:])], env=ENVIRONMENT,
                              capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError("host.sh %s: %s" % (args, done.stderr))

    def note(self, iid, **what):
        path = self.folder / "instances" / (iid + ".json")
        new = path.with_suffix(".new")
        new.write_text(json.dumps(what))
        new.rename(path)

    def start(self, ec2, instance):
        iid = instance["InstanceId"]
        name = "i" + iid[-8:]
        private, public = instance["PrivateIpAddress"], instance.get("PublicIpAddress")
        self.sh("add", self.base, "systemd", name, "%s/%s" % (private, self.prefix),
                *([public] if public else []))
        seed = self.folder / "hosts" / name / "m/var/lib/cloud/seed/nocloud"
        seed.mkdir(parents=True)
        data = ec2.describe_instance_attribute(InstanceId=iid, Attribute="userData")
        text = base64.b64decode(data.get("UserData", {}).get("Value", "") or "")
        (seed / "user-data").write_bytes(text)
        (seed / "user-data").chmod(0o600)
        if self.image.is_dir():
            shutil.copytree(self.image, self.folder / "hosts" / name / "m", dirs_exist_ok=True)
        own_name = "ip-" + private.replace(".", "-")
        (seed / "meta-data").write_text("instance-id: %s\nlocal-hostname: %s\n" % (iid, own_name))
        with open(self.folder / "hosts" / name / "m/etc/hosts", "a", encoding="utf-8") as names:
            names.write("%s %s\n" % (private, own_name))  # EC2's resolver knows it
        self.sh("start", name)
        self.have[iid] = (ec2, name)
        self.note(iid, host=name, private=private, public=public, user_data_bytes=len(text))

    def ended_itself(self, iid, ec2):
        """The host is off: EC2 stops or terminates the instance."""
        said = ec2.describe_instance_attribute(InstanceId=iid,
                                               Attribute="instanceInitiatedShutdownBehavior")
        behaviour = said.get("InstanceInitiatedShutdownBehavior", {}).get("Value", "stop")
        if behaviour == "terminate":
            ec2.terminate_instances(InstanceIds=[iid])
        else:
            ec2.stop_instances(InstanceIds=[iid])
        self.note(iid, ended="itself", behaviour=behaviour)

    def step(self):
        wanted = {}
        for ec2 in self.clients:
            for page in ec2.get_paginator("describe_instances").paginate(Filters=[
                    {"Name": "instance-state-name", "Values": ["pending", "running"]}]):
                for reservation in page["Reservations"]:
                    for instance in reservation["Instances"]:
                        wanted[instance["InstanceId"]] = (ec2, instance)
        for iid, (ec2, instance) in wanted.items():
            if iid in self.have or iid in self.failed:
                continue
            try:
                self.start(ec2, instance)
            except (RuntimeError, OSError) as e:
                self.failed.add(iid)  # the instance stays without a host
                self.note(iid, failed=str(e))
                self.sh("del", "i" + iid[-8:])
                raise
        for iid, (ec2, name) in list(self.have.items()):
            if iid not in wanted:
                self.sh("del", name)
                del self.have[iid]
                self.note(iid, ended="by the API")
                continue
            state = (self.folder / "hosts" / name / "state").read_text().split()[0]
            if state == "off":
                self.ended_itself(iid, ec2)
                self.sh("del", name)
                del self.have[iid]


def main():
    endpoint, regions, folder, base, prefix = sys.argv[1:6]
    r = Reconciler(endpoint, regions.split(","), folder, base, prefix)
    while True:
        try:
            r.step()
        except Exception as e:  # pylint: disable=broad-except
            # the emulator may be restarted or reset under us: said, and looked at again
            print("reconcile: %r" % e, file=sys.stderr, flush=True)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
