# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Lambda Cloud's API 1.10.0, gated by its description (api/lambda.json). By hand:

    python tests/clouds/lambda_cloud.py --port 8080

Known of the real cloud only by its description: names of SSH keys need not be unique; exactly one key per launch;
instances appear as `booting`, without an address; a terminated one is listed as `terminating` for a while, then not
any more. Knobs: the attributes that __init__ sets."""
import argparse
import json
import pathlib
import random
import secrets
import time

from mock import Fault, Mock  # noqa: UP026
from openapi_paths import Gate, Refused

API = pathlib.Path(__file__).resolve().parent / "api" / "lambda.json"
KEY = "secret_stand-in_0123456789abcdef"
REGIONS = {"us-east-1": "Virginia, USA", "us-west-1": "California, USA", "us-south-1": "Texas, USA"}
TYPES = {  # name: GPU, count, cents, vCPUs, GiB, disk
    "gpu_1x_a10": ("A10 (24 GB PCIe)", 1, 75, 30, 200, 1400),
    "gpu_1x_a100_sxm4": ("A100 (40 GB SXM4)", 1, 129, 30, 200, 512),
    "gpu_1x_gh200": ("GH200 (96 GB)", 1, 149, 64, 432, 4096),
    "gpu_1x_h100_pcie": ("H100 (80 GB PCIe)", 1, 249, 26, 200, 1024),
    "gpu_8x_a100_80gb_sxm4": ("A100 (80 GB SXM4)", 8, 1432, 240, 1800, 20480),
    "gpu_8x_h100_sxm5": ("H100 (80 GB SXM5)", 8, 2392, 208, 1800, 22528),
    "gpu_8x_b200_sxm6": ("B200 (180 GB SXM6)", 8, 3992, 208, 2900, 22528),
    "cpu_4x_general": ("N/A", 0, 8, 4, 16, 512),
}
FAMILIES = {"lambda-stack-22-04": "22.4.5", "lambda-stack-24-04": "24.4.1", "gpu-base-24-04": "24.4.1",
            "ubuntu-lts": "24.04.01"}


def error(status, code, message, suggestion="Ask your test."):
    return Fault(status, {"error": {"code": code, "message": message, "suggestion": suggestion}})


def image_list():
    found = []
    for region in REGIONS:
        for family, version in FAMILIES.items():
            for arch in ("x86_64", "arm64"):
                for age in (1, 2):
                    found.append({"id": secrets.token_hex(16), "name": f"{family}-{arch}", "description": "an image",
                                  "family": family, "version": version, "architecture": arch,
                                  "created_time": f"2026-0{age}-01T00:00:00Z",
                                  "updated_time": f"2026-0{age}-02T01:00:00+01:00",
                                  "region": {"name": region, "description": REGIONS[region]}})
    return found


class LambdaCloud(Mock):
    def __init__(self, **more):
        super().__init__(**more)
        self.gate = Gate(json.loads(API.read_text()))
        self.key = KEY
        self.instances, self.keys, self.rulesets, self.images = {}, {}, {}, image_list()
        self.global_rules = [{"protocol": "tcp", "port_range": [22, 22], "source_network": "0.0.0.0/0",
                              "description": "SSH"}]
        self.capacity = {(t, r): 8 for t in TYPES for r in ("us-east-1", "us-west-1")}
        self.quota = 16
        self.boot_lists = 1         # lists that show an instance without an address
        self.gone_lists = 1         # lists that show a terminated instance
        self.late_lists = 0         # lists that do not show a new instance
        self.unique_key_names = False
        self.drop_comments = False  # of public keys
        self.shuffle = False        # lists are in no order
        self.fails_boot = False     # accepted, then terminated by the cloud
        self.launches = []          # monotonic times
        self.rejected = []          # requests that the gate refused
        self.drifted = []           # own replies that the gate refused

    # --- one request ---

    def handle(self, method, target, headers, body):
        if headers.get("authorization") != f"Bearer {self.key}":
            raise error(401, "global/invalid-api-key", "API key was invalid, expired, or deleted.")
        try:
            op = self.gate.check(method, target, headers, body)
        except Refused as e:
            self.rejected.append(str(e))
            raise error(404 if "no such operation" in str(e) else 400, "global/invalid-parameters", str(e)) from e
        status, obj = 200, None
        try:
            obj = {"data": getattr(self, self.NAMES[op.path])(op)}
        except Fault as fault:
            status, obj = fault.status, fault.obj
        try:
            self.gate.reply(op, status, obj)
        except Refused as e:
            self.drifted.append(str(e))
            raise
        return status, {}, obj

    NAMES = {"GET /api/v1/instance-types": "types", "GET /api/v1/regions": "regions", "GET /api/v1/images": "image",
             "GET /api/v1/instances": "list", "GET /api/v1/instances/{id}": "one",
             "POST /api/v1/instances/{id}": "rename", "POST /api/v1/instance-operations/launch": "launch",
             "POST /api/v1/instance-operations/terminate": "terminate", "GET /api/v1/ssh-keys": "list_keys",
             "POST /api/v1/ssh-keys": "add_key", "DELETE /api/v1/ssh-keys/{id}": "delete_key",
             "GET /api/v1/firewall-rulesets": "list_rulesets", "POST /api/v1/firewall-rulesets": "add_ruleset",
             "GET /api/v1/firewall-rulesets/global": "global_ruleset",
             "GET /api/v1/firewall-rulesets/{id}": "one_ruleset",
             "PATCH /api/v1/firewall-rulesets/{id}": "change_ruleset",
             "DELETE /api/v1/firewall-rulesets/{id}": "delete_ruleset"}

    @staticmethod
    def region(name):
        return {"name": name, "description": REGIONS[name]}

    @staticmethod
    def type_of(name):
        gpu, gpus, cents, vcpus, memory, disk = TYPES[name]
        return {"name": name, "description": f"{gpus}x {gpu}", "gpu_description": gpu, "price_cents_per_hour": cents,
                "specs": {"vcpus": vcpus, "memory_gib": memory, "storage_gib": disk, "gpus": gpus}}

    def ordered(self, items):
        items = list(items)
        if self.shuffle:
            random.shuffle(items)
        return items

    # --- reads ---

    def types(self, _):
        return {t: {"instance_type": self.type_of(t),
                    "regions_with_capacity_available": [self.region(r) for r in REGIONS
                                                        if self.capacity.get((t, r), 0) > 0]} for t in TYPES}

    def regions(self, _):
        return [self.region(r) for r in REGIONS]

    def image(self, _):
        return self.images

    def list(self, _):
        shown = []
        for i in list(self.instances.values()):
            i["lists"] += 1
            if i["status"] == "terminating":
                i["left"] -= 1
                if i["left"] < 0:
                    del self.instances[i["id"]]
                    continue
            elif i["lists"] > self.late_lists + self.boot_lists and i["status"] == "booting":
                i["status"] = "terminated" if self.fails_boot else "active"
            if i["lists"] > self.late_lists:
                shown.append(self.shown(i))
        return self.ordered(shown)

    @staticmethod
    def shown(i):
        out = {k: v for k, v in i.items() if k not in ("lists", "left", "user_data", "image")}
        if i["status"] == "booting":
            del out["ip"], out["private_ip"]
        return out

    def found(self, of, id, what):
        if id not in of:
            raise error(404, "global/object-does-not-exist", f"Specified {what} does not exist.")
        return of[id]

    def one(self, op):
        return self.shown(self.found(self.instances, op.words["id"], "instance"))

    def rename(self, op):
        i = self.found(self.instances, op.words["id"], "instance")
        i["name"] = op.body.get("name", i.get("name", ""))
        return self.shown(i)

    # --- instances ---

    def launch(self, op):
        b = op.body
        self.launches.append(time.monotonic())
        place = (b["instance_type_name"], b["region_name"])
        if len(b["ssh_key_names"]) != 1:
            raise error(400, "global/invalid-parameters", "Exactly one SSH key must be specified.")
        if b["ssh_key_names"][0] not in [k["name"] for k in self.keys.values()]:
            raise error(400, "global/object-does-not-exist", "SSH key not found.")
        if len(b.get("user_data", "")) > 1000000:
            raise error(400, "global/invalid-parameters", "user_data is too long.")
        if place[0] not in TYPES or place[1] not in REGIONS:
            raise error(400, "global/object-does-not-exist", "No such instance type or region.")
        if not any(i["id"] == b.get("image", {}).get("id", i["id"]) and i["region"]["name"] == place[1]
                   for i in self.images):
            raise error(400, "global/object-does-not-exist", "Image not found in the region.")
        for ruleset in b.get("firewall_rulesets", []):
            if self.rulesets.get(ruleset["id"], {}).get("region", {}).get("name") != place[1]:
                raise error(400, "global/object-does-not-exist", "Firewall ruleset not found in the region.")
        if len(self.instances) >= self.quota:
            raise error(400, "global/quota-exceeded", "Quota exceeded.")
        if self.capacity.get(place, 0) < 1:
            raise error(400, "instance-operations/launch/insufficient-capacity", "Not enough capacity.")
        self.capacity[place] -= 1
        id, n = secrets.token_hex(16), len(self.launches)
        action = {"available": True}
        self.instances[id] = {
            "id": id, "name": b.get("name", ""), "ip": f"127.88.0.{n % 250 + 1}", "private_ip": f"10.0.0.{n % 250 + 1}",
            "status": "booting", "ssh_key_names": b["ssh_key_names"], "file_system_names": [],
            "region": self.region(place[1]), "instance_type": self.type_of(place[0]), "hostname": f"host-{n}",
            "jupyter_token": "a-secret-of-the-node", "jupyter_url": "https://jupyter.example/?token=a-secret-of-the-node",
            "actions": dict.fromkeys(("migrate", "rebuild", "restart", "cold_reboot", "terminate"), action),
            "tags": b.get("tags", []), "firewall_rulesets": b.get("firewall_rulesets", []),
            "lists": 0, "user_data": b.get("user_data"), "image": b.get("image")}
        return {"instance_ids": [id]}

    def terminate(self, op):
        for id in op.body["instance_ids"]:
            self.found(self.instances, id, "instance")
        ended = []
        for id in op.body["instance_ids"]:
            i = self.instances[id]
            if i["status"] != "terminating":
                i.update(status="terminating", left=self.gone_lists)
                self.capacity[(i["instance_type"]["name"], i["region"]["name"])] += 1
            ended.append(self.shown(i))
        return {"terminated_instances": ended}

    # --- keys and firewall ---

    def list_keys(self, _):
        return self.ordered(self.keys.values())

    def add_key(self, op):
        if "public_key" not in op.body:
            raise error(400, "global/invalid-parameters", "The stand-in makes no keys.")
        if self.unique_key_names and op.body["name"] in [k["name"] for k in self.keys.values()]:
            raise error(400, "global/invalid-parameters", "An SSH key of that name exists.")
        key = dict(op.body, id=secrets.token_hex(16))
        if self.drop_comments:
            key["public_key"] = " ".join(key["public_key"].split()[:2])
        self.keys[key["id"]] = key
        return key

    def delete_key(self, op):
        if op.words["id"] not in self.keys:
            raise error(404, "global/not-found", "The SSH key does not exist.")
        del self.keys[op.words["id"]]
        return {}

    def list_rulesets(self, _):
        return self.ordered(self.one_ruleset(id=id) for id in self.rulesets)

    def one_ruleset(self, op=None, id=None):
        ruleset = self.found(self.rulesets, id or op.words["id"], "firewall ruleset")
        using = [i["id"] for i in self.instances.values() if {"id": ruleset["id"]} in i["firewall_rulesets"]]
        return dict(ruleset, instance_ids=using)

    def add_ruleset(self, op):
        if op.body["region"] not in REGIONS:
            raise error(400, "global/invalid-parameters", "No such region.")
        id = secrets.token_hex(16)
        self.rulesets[id] = {"id": id, "name": op.body["name"], "region": self.region(op.body["region"]),
                             "rules": op.body["rules"], "created": "2026-11-23T00:00:00Z"}
        return self.one_ruleset(id=id)

    def change_ruleset(self, op):
        self.found(self.rulesets, op.words["id"], "firewall ruleset").update(op.body)
        return self.one_ruleset(op)

    def delete_ruleset(self, op):
        if self.one_ruleset(op)["instance_ids"]:
            raise error(400, "firewall-rulesets/firewall-ruleset-in-use", "It is in use.")
        del self.rulesets[op.words["id"]]
        return {}

    def global_ruleset(self, _):
        return {"id": "global", "name": "Default Workspace Global Rules", "rules": self.global_rules}

    # --- for a test ---

    def left(self):
        """What is billed or would confuse the next stack."""
        live = [i["id"] for i in self.instances.values() if i["status"] not in ("terminating", "terminated")]
        return live + list(self.keys) + list(self.rulesets)

    def sound(self):
        """No request and no reply that the description does not have."""
        return (self.rejected == [] and self.drifted == []) or (self.rejected, self.drifted)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, default=0)
    with LambdaCloud(port=options.parse_args().port) as cloud:
        print(f"export GPUPROV_LAMBDA_ENDPOINT={cloud.url} GPUPROV_LAMBDA_PACE_MS=0 LAMBDA_API_KEY={KEY}", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
