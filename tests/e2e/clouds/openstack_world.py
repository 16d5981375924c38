# SPDX-License-Identifier: Apache-2.0
"""What the tests of the openstack provider share: specs, environments, and openstacksdk as the independent eye."""
import json
import os
import pathlib
import re
import subprocess
import time

import ec2
import openstack
import pytest
from openstack_lab import OpenStack

FROM = "198.51.100.0/24"
MARKS = [pytest.mark.root, pytest.mark.namespaces, pytest.mark.long,
         pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")]  # of the SDK


def spec(folder, name="contract", file="spec.yaml", offer=None, **more):
    """Two nodes with one GPU each; offer: keys of the offer; more: top-level keys, None removes one."""
    keys = {"provider": "openstack", "image": {"id": "tiny"}, **(offer or {})}
    top = {"apiVersion": "gpuprov/v1", "name": name, "nodes": 2, "gpu": "H100:1",
           "offers": [{k: v for k, v in keys.items() if v is not None}],
           "limits": {"unattended": "accept", "ttl": "1h"}, "access": {"ssh_from": [FROM]}}
    top.update(more)
    path = pathlib.Path(folder) / file
    path.write_text(json.dumps({k: v for k, v in top.items() if v is not None}))
    return path


def environment(cloud, folder, user="gpu", relay=None, **more):
    """Only these credentials: nothing of the person's own reaches a test."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OS_", "GPUPROV_", "AWS_", "XDG_"))}
    env.update(ec2.CLEAN, HOME=str(folder), GPUPROV_STATE_DIR=str(pathlib.Path(folder) / "state"))
    env.update(cloud.env(user, auth_url=relay.auth_url if relay else None), **more)
    return {k: v for k, v in env.items() if v is not None}


DRIVE = ec2.BUILD / "tests/drivers/provider_drive"


class Drive:
    """One run of tests/drivers/provider_drive."""

    def __init__(self, env, spec_path, *words):
        done = subprocess.run([str(DRIVE), "openstack", str(spec_path), *words], env=env, capture_output=True, text=True,
                              timeout=300, check=False)
        self.rc, self.stderr = done.returncode, done.stderr
        assert done.stdout.strip(), f"no result, exit {done.returncode}: {done.stderr[-2000:]}"
        self.result = json.loads(done.stdout)

    def __getitem__(self, key):
        return self.result.get(key)

    def of_kind(self, kind):
        return [r for r in self.result.get("resources", []) if r["kind"] == kind]


class Eye:
    """What a user's project has, as openstacksdk sees it."""

    def __init__(self, cloud, user="gpu"):
        found = openstack.config.OpenStackConfig(config_files=[str(cloud.clouds_yaml)]).get_one(user)
        self.c = openstack.connection.Connection(config=found)

    def servers(self):
        return [s for s in self.c.compute.servers(details=True) if "gpuprov" in (s.tags or [])]

    def claims(self):
        return [k for k in self.c.compute.keypairs() if k.name.startswith("gpuprov-")]

    def groups(self):
        return [g for g in self.c.network.security_groups(project_id=self.c.current_project_id)
                if g.name.startswith("gpuprov-")]

    def addresses(self):
        return list(self.c.network.ips(project_id=self.c.current_project_id))

    def _own(self, things):
        path = f"/users/{self.c.current_user_id}/{things}"
        return path, self.c.identity.get(path).json()[things]

    def credentials(self):
        """Application credentials of nodes."""
        return [c for c in self._own("application_credentials")[1] if c["name"].startswith("gpuprov-end-")]

    def rules(self):
        """keystone keeps the access rules of a deleted credential."""
        return [r for r in self._own("access_rules")[1] if re.search("/servers/[0-9a-f-]{36}$", r["path"])]

    def left(self, stack=None):
        """Names of everything of gpuprov's, or of one stack; [] when nothing is left."""
        named = [x.name for x in self.servers() + self.claims() + self.groups()]
        if stack is None:
            named += [c["name"] for c in self.credentials()] + [r["path"] for r in self.rules()]
            return named + [a.floating_ip_address for a in self.addresses()]
        return [n for n in named if n.startswith(f"gpuprov-{stack}-")] + [
            a.floating_ip_address for a in self.addresses() if f" stack={stack} " in a.description + " "]

    def nothing(self, seconds=60, stack=None):
        """Waits until nothing is left: nova ends servers after its reply."""
        until = time.monotonic() + seconds
        while (left := self.left(stack)) and time.monotonic() < until:
            time.sleep(0.5)
        assert left == []

    def wipe(self):
        """Removes everything, with the official client alone."""
        until = time.monotonic() + 120
        while self.left():
            assert time.monotonic() < until, self.left()
            for s in self.servers():
                self.c.compute.delete_server(s.id)
            for a in self.addresses():
                self.c.network.delete_ip(a.id)
            for k in self.claims():
                self.c.compute.delete_keypair(k.name)
            for things, have in (("application_credentials", self.credentials()), ("access_rules", self.rules())):
                for x in have:
                    self.c.identity.delete(f"{self._own(things)[0]}/{x['id']}")
            for g in self.groups():
                try:
                    self.c.network.delete_security_group(g.id)
                except openstack.exceptions.ConflictException:
                    pass  # its server is not gone yet
            time.sleep(0.5)


def quota(cloud, **values):
    """Sets nova's quota of the project gpu, as its operator does."""
    admin, mine = Eye(cloud, "admin").c, Eye(cloud).c
    admin.compute.put("/os-quota-sets/" + mine.current_project_id, json={"quota_set": {**values, "force": True}})


@pytest.fixture(name="cloud", scope="module")
def cloud_fixture(tmp_path_factory):
    with OpenStack(tmp_path_factory.mktemp("openstack")) as running:
        yield running


@pytest.fixture(name="eye")
def eye_fixture(cloud):
    """Fails a test that left something, and takes it away for the next one."""
    seen = Eye(cloud)
    yield seen
    left = seen.left()
    seen.wipe()
    assert left == []
