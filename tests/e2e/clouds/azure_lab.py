# SPDX-License-Identifier: Apache-2.0
"""What the tests of azure share: an environment without a person's own credentials, specs, provider_drive."""
import json
import os
import subprocess

import azure_cloud as azure
import ec2

OWN = ("AZURE_", "GPUPROV_", "IDENTITY_", "MSI_", "ARM_")


def environment(cloud, folder, **more):
    """more: None takes a variable away."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(OWN)}
    env.update(cloud.environment(HOME=str(folder), GPUPROV_STATE_DIR=str(folder / "state"), **more), NO_PROXY="*", no_proxy="*")
    return {k: v for k, v in env.items() if v is not None}


def spec(folder, name="contract", nodes=2, **more):
    offer = {"provider": "azure", "regions": ["eastus"], **more.pop("offer", {})}
    top = {"name": name, "nodes": nodes, "gpu": "T4:1", "offers": [offer], "limits": {"unattended": "accept"},
           "access": {"ssh_from": ["198.51.100.0/24", "2001:db8::/32"]}, **more}
    path = folder / (name + ".yaml")
    path.write_text(json.dumps({k: v for k, v in top.items() if v is not None}))
    return path


class Drive:
    def __init__(self, env, spec_path, *args, timeout=120):
        done = subprocess.run([str(ec2.BUILD / "tests/drivers/provider_drive"), "azure", str(spec_path), *args], env=env,
                              capture_output=True, text=True, timeout=timeout, check=False)
        self.rc, self.stderr = done.returncode, done.stderr
        lines = done.stdout.strip().splitlines()
        self.result = json.loads(lines[-1]) if lines else {}
        self.text = done.stdout + done.stderr

    def __getitem__(self, key):
        return self.result[key]


def clean(cloud):
    """Nothing is left, and every request and reply was as the description has it."""
    assert cloud.faults == []
    assert cloud.groups == {} and cloud.things == {}


__all__ = ["Drive", "azure", "clean", "environment", "spec"]
