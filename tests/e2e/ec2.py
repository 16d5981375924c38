# SPDX-License-Identifier: Apache-2.0
"""An EC2 that is not ours to test against: moto's server, and what the tests ask it with boto3."""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import boto3
from botocore.config import Config

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tests/hosts"))
from moto_fabric import START  # noqa: E402

BUILD = pathlib.Path(os.environ.get("B", ROOT / "build"))
REGION = "us-east-1"
# Nothing of the person's own AWS set-up may reach a test.
CLEAN = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nonexistent",
         "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "NO_PROXY": "", "no_proxy": ""}


# moto's server on a socket that is listening already: nobody else can have the port, and what connects
# before moto is ready waits. EC2 keeps a group's name unique, moto only while no two calls meet: they are let in
# one at a time. Ends with its parent.
SERVER = """
import ctypes, os, signal, sys, threading
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[2]):
    sys.exit("the test has ended")
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.ec2.models.security_groups import SecurityGroupBackend
from werkzeug.serving import make_server
one_at_a_time, create_group = threading.Lock(), SecurityGroupBackend.create_security_group
def create_alone(*args, **kwargs):
    with one_at_a_time:
        return create_group(*args, **kwargs)
SecurityGroupBackend.create_security_group = create_alone
make_server("127.0.0.1", int(os.environ["MOTO_PORT"]), DomainDispatcherApplication(create_backend_app), threaded=True,
            request_handler=MotoRequestHandler, fd=int(sys.argv[1])).serve_forever()
"""


class NobodyListens:
    """An address of loopback that refuses connections for as long as this is open."""

    def __init__(self):
        self.sock = socket.socket()
        self.sock.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.sock.getsockname()[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()


class Moto:
    """moto's server on a port of its own. strict_after: signatures are checked after that many calls. first:
    Python that the server runs before it begins."""

    def __init__(self, strict_after=None, extra=None, first=""):
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
            self.port = listening.getsockname()[1]
            self.url = f"http://127.0.0.1:{self.port}"
            env = dict(os.environ, MOTO_EC2_LOAD_DEFAULT_AMIS="false", MOTO_PORT=str(self.port), **(extra or {}))
            if strict_after is not None:
                env["INITIAL_NO_AUTH_ACTION_COUNT"] = str(strict_after)
            self.log = tempfile.TemporaryFile()
            fd = listening.fileno()
            self.process = subprocess.Popen([sys.executable, "-c", START + first + SERVER, str(fd), str(os.getpid())], env=env,
                                            pass_fds=[fd], stdout=self.log, stderr=self.log)
        try:
            urllib.request.urlopen(self.url + "/moto-api/", timeout=300).close()
        except urllib.error.HTTPError:
            pass
        except OSError as e:
            self.process.kill()
            self.process.wait()
            self.log.seek(0)
            raise RuntimeError("moto: " + self.log.read().decode()[-800:]) from e

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()

    def reset(self):
        urllib.request.urlopen(urllib.request.Request(self.url + "/moto-api/reset", method="POST"),
                               timeout=120).close()

    def client(self, service="ec2", region=REGION, key="testing", secret="testing-secret"):
        return boto3.client(service, region_name=region, endpoint_url=self.url,
                            aws_access_key_id=key, aws_secret_access_key=secret,
                            config=Config(retries={"max_attempts": 1}))

    def image(self, region=REGION, **how):
        return self.client(region=region, **how).register_image(
            Name="base", Architecture="x86_64", RootDeviceName="/dev/xvda",
            BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 12}}])["ImageId"]

    def instances(self, region=REGION, alive=True, **how):
        found = []
        for page in self.client(region=region, **how).get_paginator("describe_instances").paginate():
            for r in page["Reservations"]:
                found += [i for i in r["Instances"] if not alive or i["State"]["Name"] != "terminated"]
        return found

    def groups(self, region=REGION, **how):
        got = self.client(region=region, **how).describe_security_groups()["SecurityGroups"]
        return [g for g in got if g["GroupName"].startswith("gpuprov-")]


def spec(folder, image, market="spot", **more):
    """A spec file for two nodes; `more` replaces top-level keys."""
    top = {"name": "contract", "nodes": 2, "gpu": "T4:1",
           "image": {"id": image} if isinstance(image, str) and image.startswith("ami-") else image,
           "offers": [{"provider": "aws", "regions": [REGION], "market": market}],
           "access": {"ssh_from": ["203.0.113.0/24"]}}
    top.update(more)
    path = pathlib.Path(folder) / "spec.yaml"
    path.write_text(json.dumps({k: v for k, v in top.items() if v is not None}))
    return path


def environment(url, state, **more):
    env = {k: v for k, v in os.environ.items()
           if not k.upper().startswith("AWS_") and k.upper() not in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")}
    env.update(CLEAN, AWS_ACCESS_KEY_ID="testing", AWS_SECRET_ACCESS_KEY="testing-secret",
               AWS_ENDPOINT_URL=url, GPUPROV_STATE_DIR=str(state), AWS_REGION=REGION)
    env.update(more)
    return {k: v for k, v in env.items() if v is not None}


class Drive:
    """One run of tests/drivers/provider_drive."""

    def __init__(self, env, spec_path, *words, timeout=300):
        done = subprocess.run([str(BUILD / "tests/drivers/provider_drive"), "aws", str(spec_path), *words],
                              env=env, capture_output=True, text=True, timeout=timeout, check=False)
        self.rc, self.stderr = done.returncode, done.stderr
        if not done.stdout.strip():
            raise AssertionError(f"no result, exit {done.returncode}: {done.stderr[-2000:]}")
        self.result = json.loads(done.stdout)

    def __getitem__(self, key):
        return self.result.get(key)

    def intents(self, kind):
        return [i for i in self.result["intents"] if i["kind"] == kind]

    def of_kind(self, kind):
        return [r for r in self.result["resources"] if r["kind"] == kind]
