#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a cloud does between its API and a machine. Keeps one systemd host per machine of an emulator: its user-data is
given to the host's own cloud-init, its private and public address are the host's; a deleted machine loses its host; a
host that switches itself off ends its machine as the cloud does.

reconcile.py ENDPOINT REGION[,REGION] FOLDER BASE PREFIX does so for an emulator of EC2, in a lab's namespaces (host.sh
makes the hosts) until it is killed. mock_lab.py does so for a stand-in in the test's own process.
FOLDER/instances/ID.json says for each instance which host it has and how it went; what is below
FOLDER/image every new host has too."""
import base64
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import time

import boto3
from lab import ENVIRONMENT

HERE = pathlib.Path(__file__).resolve().parent


class Ec2:
    """The machines of an emulator of EC2."""

    def __init__(self, endpoint, regions):
        self.clients = [boto3.client("ec2", region_name=r, endpoint_url=endpoint) for r in regions]
        self.of = {}

    def machines(self):
        for ec2 in self.clients:
            for page in ec2.get_paginator("describe_instances").paginate(Filters=[
                    {"Name": "instance-state-name", "Values": ["pending", "running"]}]):
                for reservation in page["Reservations"]:
                    for instance in reservation["Instances"]:
                        iid, private = instance["InstanceId"], instance["PrivateIpAddress"]
                        self.of[iid] = ec2
                        yield {"id": iid, "private": private, "public": instance.get("PublicIpAddress"),
                               "name": "ip-" + private.replace(".", "-")}

    def user_data(self, iid):
        data = self.of[iid].describe_instance_attribute(InstanceId=iid, Attribute="userData")
        return base64.b64decode(data.get("UserData", {}).get("Value", "") or "")

    def powered_off(self, iid):
        """The host is off: EC2 stops or terminates the instance."""
        ec2 = self.of[iid]
        said = ec2.describe_instance_attribute(InstanceId=iid, Attribute="instanceInitiatedShutdownBehavior")
        behaviour = said.get("InstanceInitiatedShutdownBehavior", {}).get("Value", "stop")
        if behaviour == "terminate":
            ec2.terminate_instances(InstanceIds=[iid])
        else:
            ec2.stop_instances(InstanceIds=[iid])
        return behaviour


class Reconciler:
    """cloud: machines() lists those that should run, each {id, private, public or None, name}; user_data(id) gives
    bytes; powered_off(id) is told of a host that switched itself off, and says what becomes of the machine.
    host_sh(command, *arguments) runs host.sh; folder: the lab's."""

    def __init__(self, cloud, host_sh, folder, base, prefix):
        self.cloud, self.host_sh, self.folder, self.base, self.prefix = cloud, host_sh, folder, base, prefix
        self.have, self.failed = {}, set()
        (folder / "instances").mkdir(exist_ok=True)
        self.image = folder / "image"

    def note(self, iid, **what):
        path = self.folder / "instances" / (iid + ".json")
        new = path.with_suffix(".new")
        new.write_text(json.dumps(what))
        new.rename(path)

    def start(self, machine):
        iid, private, public = machine["id"], machine["private"], machine["public"]
        name = host_name(iid)
        self.host_sh("add", self.base, "systemd", name, "%s/%s" % (private, self.prefix), *([public] if public else []))
        seed = self.folder / "hosts" / name / "m/var/lib/cloud/seed/nocloud"
        seed.mkdir(parents=True)
        text = self.cloud.user_data(iid)
        (seed / "user-data").write_bytes(text)
        (seed / "user-data").chmod(0o600)
        if self.image.is_dir():
            shutil.copytree(self.image, self.folder / "hosts" / name / "m", dirs_exist_ok=True)
        (seed / "meta-data").write_text("instance-id: %s\nlocal-hostname: %s\n" % (iid, machine["name"]))
        with open(self.folder / "hosts" / name / "m/etc/hosts", "a", encoding="utf-8") as names:
            names.write("%s %s\n" % (private, machine["name"]))  # the cloud's resolver knows it
        self.host_sh("start", name)
        self.have[iid] = name
        self.note(iid, host=name, private=private, public=public, user_data_bytes=len(text))

    def step(self):
        wanted = {m["id"]: m for m in self.cloud.machines()}
        for iid, machine in wanted.items():
            if iid in self.have or iid in self.failed:
                continue
            try:
                self.start(machine)
            except (RuntimeError, OSError) as e:
                self.failed.add(iid)  # the instance stays without a host
                self.note(iid, failed=str(e))
                self.host_sh("del", host_name(iid))
                raise
        for iid, name in list(self.have.items()):
            if iid not in wanted:
                self.host_sh("del", name)
                del self.have[iid]
                self.note(iid, ended="by the API")
                continue
            state = (self.folder / "hosts" / name / "state").read_text().split()[0]
            if state == "off":
                self.note(iid, ended="itself", behaviour=self.cloud.powered_off(iid))
                self.host_sh("del", name)
                del self.have[iid]


def host_name(iid):
    """A name of at most nine characters: it becomes that of a network interface."""
    return "i" + (iid[-8:] if iid[-8:].isalnum() else hashlib.sha256(iid.encode()).hexdigest()[:8])


def main():
    endpoint, regions, folder, base, prefix = sys.argv[1:6]
    folder = pathlib.Path(folder)

    def host_sh(command, *args):
        done = subprocess.run([str(HERE / "host.sh"), command, str(folder), *map(str, args)], env=ENVIRONMENT,
                              capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError("host.sh %s %s: %s" % (command, args, done.stderr))

    r = Reconciler(Ec2(endpoint, regions.split(",")), host_sh, folder, base, prefix)
    while True:
        try:
            r.step()
        except Exception as e:  # pylint: disable=broad-except
            # the emulator may be restarted or reset under us: said, and looked at again
            print("reconcile: %r" % e, file=sys.stderr, flush=True)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
