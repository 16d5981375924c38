# SPDX-License-Identifier: Apache-2.0
"""What the tests of the alibaba provider share: its environment, a spec, one run of tests/drivers/provider_drive."""
import json
import os
import subprocess

import alibaba
import ec2


def query(record):
    """The parameters of a request, in its URL and its body."""
    pairs = alibaba.parse_qsl(record["target"].partition("?")[2]) + alibaba.parse_qsl(record["body"])
    return dict(pairs)


def environment(cloud, state, **more):
    env = {k: v for k, v in os.environ.items()
           if not k.upper().startswith(("ALIBABA", "GPUPROV_", "AWS_")) and
           k.upper() not in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")}
    env.update(ec2.CLEAN, HOME=str(state), GPUPROV_STATE_DIR=str(state / "state"))
    env.update(cloud.environment())
    env.update(more)
    return {k: v for k, v in env.items() if v is not None}


def spec(folder, market="spot", **more):
    offer = {"provider": "alibaba", "regions": [alibaba.REGION], "market": market}
    offer.update(more.pop("offer", {}))
    return ec2.spec(folder, more.pop("image", None), offers=[{k: v for k, v in offer.items() if v is not None}], **more)


class Drive:
    """One run of tests/drivers/provider_drive."""

    def __init__(self, env, spec_path, *words, timeout=120):
        self.done = subprocess.run([str(ec2.BUILD / "tests/drivers/provider_drive"), "alibaba", str(spec_path), *words],
                                   env=env, capture_output=True, text=True, timeout=timeout, check=False)
        self.rc, self.stderr = self.done.returncode, self.done.stderr
        if not self.done.stdout.strip():
            raise AssertionError(f"no result, exit {self.rc}: {self.stderr[-2000:]}")
        self.result = json.loads(self.done.stdout)
        self.text = self.done.stdout + self.stderr

    def __getitem__(self, key):
        return self.result.get(key)

    def of_kind(self, kind):
        return [r for r in self.result["resources"] if r["kind"] == kind]
