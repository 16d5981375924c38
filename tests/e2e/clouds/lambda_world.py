# SPDX-License-Identifier: Apache-2.0
"""What the tests of lambda share: the spec, the environment, one run of the provider's driver."""
import json
import os
import subprocess

import ec2
from lambda_cloud import KEY

REGION = "us-east-1"


def spec(folder, **more):
    top = {"gpu": "A10:1", "offers": [{"provider": "lambda", "regions": [REGION]}],
           "limits": {"unattended": "accept"}, "access": None}
    top.update(more)
    return ec2.spec(folder, top.pop("image", None), **top)


def environment(cloud, folder, **more):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("GPUPROV_", "LAMBDA")) and k.upper() not in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")}
    home = folder / "home"
    home.mkdir(exist_ok=True)
    env.update(ec2.CLEAN, HOME=str(home), GPUPROV_STATE_DIR=str(folder / "state"), LAMBDA_API_KEY=KEY,
               GPUPROV_LAMBDA_ENDPOINT=cloud.url, GPUPROV_LAMBDA_PACE_MS="0", GPUPROV_OWNER="tester")
    env.update(more)
    return {k: v for k, v in env.items() if v is not None}


class Drive:
    """One run of tests/drivers/provider_drive."""

    def __init__(self, env, spec_path, *words, timeout=300):
        done = subprocess.run([str(ec2.BUILD / "tests/drivers/provider_drive"), "lambda", str(spec_path), *words],
                              env=env, capture_output=True, text=True, timeout=timeout, check=False)
        self.rc, self.text = done.returncode, done.stdout + done.stderr
        assert done.stdout.strip(), f"no result, exit {done.returncode}: {done.stderr[-2000:]}"
        self.result = json.loads(done.stdout)

    def __getitem__(self, key):
        return self.result.get(key)
