# SPDX-License-Identifier: Apache-2.0
"""Which machines ask a cloud's metadata service: the firmware's texts decide, a setting goes first. In namespaces of
the test's own, where both addresses of such services are a server that counts."""
import json
import os
import subprocess
import sys

import pytest

# Runs in the namespaces. Prints the addresses that were asked.
INSIDE = r"""
import http.server, json, os, subprocess, sys, threading
files, env, command = json.loads(sys.argv[1])
asked = []

class Service(http.server.BaseHTTPRequestHandler):
    def answer(self):
        asked.append(self.server.server_address[0])
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_GET = do_PUT = answer

    def log_message(self, *args):
        pass

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "dmi", "/sys/class"], check=True)
with open("hosts", "w") as f:
    f.write("169.254.169.254 metadata.google.internal\n")
subprocess.run(["mount", "--bind", "hosts", "/etc/hosts"], check=True)
for address in ("169.254.169.254", "100.100.100.200"):
    subprocess.run(["ip", "addr", "add", address + "/32", "dev", "lo"], check=True)
    server = http.server.ThreadingHTTPServer((address, 80), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
os.makedirs("/sys/class/dmi/id")
for name, text in files.items():
    with open("/sys/class/dmi/id/" + name, "w") as f:
        f.write(text + "\n")
ran = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
print(json.dumps({"asked": sorted(set(asked)), "said": ran.stderr}))
"""

pytestmark = pytest.mark.namespaces

DELL = {"sys_vendor": "Dell Inc.", "product_name": "PowerEdge", "bios_version": "2.1", "chassis_asset_tag": "7"}
LINK_LOCAL, ALIBABA = ["169.254.169.254"], ["100.100.100.200"]


@pytest.mark.parametrize("provider, files, env, asked", [
    ("aws", DELL, {}, []),
    ("aws", {}, {}, LINK_LOCAL),
    ("aws", {"sys_vendor": "Amazon EC2"}, {}, LINK_LOCAL),
    ("aws", {"sys_vendor": "Xen", "bios_version": "4.11.amazon"}, {}, LINK_LOCAL),
    ("aws", DELL, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://169.254.169.254"}, LINK_LOCAL),
    ("alibaba", DELL, {}, []),
    ("alibaba", {}, {}, ALIBABA),
    ("alibaba", {"sys_vendor": "Alibaba Cloud"}, {}, ALIBABA),
    ("alibaba", DELL, {"ALIBABA_CLOUD_ECS_METADATA": "role"}, ALIBABA),
    ("azure", DELL, {}, []),
    ("azure", {}, {}, []),
    ("azure", dict(DELL, chassis_asset_tag="7783-7084-3265-9085-8269-3286-77"), {}, LINK_LOCAL),
    ("google", DELL, {}, []),
    ("google", {}, {}, []),
    ("google", {"product_name": "Google Compute Engine"}, {}, LINK_LOCAL),
], ids=lambda value: value if isinstance(value, str) else None)
def test_who_asks(tmp_path, provider, files, env, asked):
    assert asked_by(tmp_path, provider, files, env) == asked


@pytest.mark.parametrize("provider, path, text, asked", [
    ("aws", ".aws/config",
     "[default]\nrole_arn = arn:aws:iam::1:role/x\ncredential_source = Ec2InstanceMetadata\n", LINK_LOCAL),
    ("alibaba", ".aliyun/config.json", json.dumps({"current": "x", "profiles": [{"name": "x", "mode": "EcsRamRole"}]}),
     ALIBABA)], ids=["aws", "alibaba"])
def test_a_profile_that_names_the_service(tmp_path, provider, path, text, asked):
    (tmp_path / path).parent.mkdir()
    (tmp_path / path).write_text(text)
    assert asked_by(tmp_path, provider, DELL, {}) == asked


def asked_by(tmp_path, provider, files, env):
    command = [os.environ["GPUPROV_BIN"], "status", "--in", provider]
    clean = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    ran = subprocess.run(["unshare", "-Urmn", sys.executable, "-c", INSIDE, json.dumps([files, env, command])],
                         cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert provider in result["said"]  # it has no credentials
    return result["asked"]
