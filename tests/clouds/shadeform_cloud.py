# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Shadeform's API, gated by what its reference pages document (api/shadeform.json). By hand:

    python tests/clouds/shadeform_cloud.py --port 8080

Knobs: the attributes that __init__ sets."""
import argparse
import json
import pathlib
import random
import time
import uuid

from mock import Fault, Mock  # noqa: UP026
from openapi_paths import Gate, Refused

API = pathlib.Path(__file__).resolve().parent / "api" / "shadeform.json"
KEY = "stand-in-0123456789"
OS = ["ubuntu20.04_cuda12.0_shade_os", "ubuntu22.04_cuda12.2_shade_os", "ubuntu22.04_cuda12.8_shade_os", "ubuntu24.04"]
# cloud, type, GPU, interconnect, GPUs, GB, cents, kind, regions
TYPES = [("hyperstack", "A6000", "A6000", "pcie", 1, 48, 57, "vm", ["canada-1", "norway-1"]),
         ("massedcompute", "A6000", "A6000", "pcie", 1, 48, 62, "vm", ["us-central-2"]),
         ("hyperstack", "H100_sxm5x8", "H100", "sxm5", 8, 80, 1560, "vm", ["canada-1"]),
         ("latitude", "H100x8", "H100", "pcie", 8, 80, 1500, "baremetal", ["us-chi-1"]),
         ("datacrunch", "A100_80G", "A100_80G", "sxm4", 1, 80, 129, "vm", ["fin-01"]),
         ("runpod", "A6000", "A6000", "pcie", 1, 48, 20, "container", ["ca-1"])]


def error(status, code, text):
    return Fault(status, {"error_code": code, "error": text})


class ShadeformCloud(Mock):
    def __init__(self, **more):
        super().__init__(**more)
        self.gate = Gate(json.loads(API.read_text()))
        self.key = KEY
        self.instances, self.keys = {}, {}
        self.out_of_stock = set()      # (cloud, region)
        self.place_reads = 2           # reads of an instance until it is placed, then active
        self.gone_lists = 1            # lists that show an instance that is being deleted
        self.late_lists = 0            # lists that do not show a new instance
        self.drop_deadline = False     # auto_delete is accepted and not kept
        self.fails_placement = False   # accepted, then `error`
        self.shuffle = False
        self.rejected, self.drifted = [], []

    NAMES = {"GET /v1/instances": "list", "GET /v1/instances/types": "types", "POST /v1/instances/create": "create",
             "GET /v1/instances/{id}/info": "info", "POST /v1/instances/{id}/update": "update",
             "POST /v1/instances/{id}/delete": "delete", "GET /v1/sshkeys": "list_keys",
             "POST /v1/sshkeys/add": "add_key", "POST /v1/sshkeys/{id}/delete": "delete_key"}

    def handle(self, method, target, headers, body):
        if headers.get("x-api-key") != self.key:
            raise Fault(401, {"error": "Unauthorized"})
        try:
            op = self.gate.check(method, target, headers, body)
        except Refused as e:
            self.rejected.append(str(e))
            raise error(400, "BAD_REQUEST", str(e)) from e
        status, obj = 200, None
        try:
            obj = getattr(self, self.NAMES[op.path])(op)
        except Fault as fault:
            status, obj = fault.status, fault.obj
        try:
            self.gate.reply(op, status, obj)
        except Refused as e:
            self.drifted.append(str(e))
            raise
        return status, {}, obj

    def types(self, _):
        return {"instance_types": [
            {"cloud": cloud, "shade_instance_type": name, "cloud_instance_type": f"gpu_{n}x", "hourly_price": cents,
             "deployment_type": kind, "boot_time": {"min_boot_in_sec": 180, "max_boot_in_sec": 300},
             "configuration": {"memory_in_gb": 48 * n, "storage_in_gb": 256, "vcpus": 12 * n, "num_gpus": n,
                               "gpu_type": gpu, "interconnect": how, "nvlink": False, "vram_per_gpu_in_gb": gb,
                               "os_options": OS, "gpu_manufacturer": "nvidia"},
             "availability": [{"region": r, "available": (cloud, r) not in self.out_of_stock, "display_name": r}
                              for r in regions]}
            for cloud, name, gpu, how, n, gb, cents, kind, regions in TYPES]}

    @staticmethod
    def shown(i, whole=False):
        out = {k: v for k, v in i.items() if k not in ("lists", "reads", "left")}
        if not whole:
            out = {k: v for k, v in out.items() if k not in ("auto_delete", "ssh_key_id")}
        return out

    def step(self, i):
        i["reads"] += 1
        if i["status"] in ("creating", "pending_provider", "pending") and i["reads"] > self.place_reads:
            i["status"] = "error" if self.fails_placement else "active" if i["status"] == "pending" else "pending"
            i["status_details"] = "no machine left" if self.fails_placement else ""
        elif i["status"] == "creating":
            i["status"] = "pending_provider"
        if i["status"] == "active":
            i["ip"] = i["ip"] or f"127.88.1.{len(self.log) % 250 + 1}"

    def list(self, _):
        shown = []
        for i in list(self.instances.values()):
            i["lists"] += 1
            if i["status"] == "deleting":
                i["left"] -= 1
                if i["left"] < 0:
                    del self.instances[i["id"]]
                    continue
            else:
                self.step(i)
            if i["lists"] > self.late_lists:
                shown.append(self.shown(i))
        if self.shuffle:
            random.shuffle(shown)
        return {"instances": shown}

    def found(self, id):
        if id not in self.instances:
            raise error(404, "NOT_FOUND", "Instance not found.")
        return self.instances[id]

    def info(self, op):
        i = self.found(op.words["id"])
        self.step(i)
        return self.shown(i, True)

    def update(self, op):
        self.found(op.words["id"]).update(op.body)

    def create(self, op):
        b = op.body
        sold = [t for t in TYPES if (t[0], t[1]) == (b["cloud"], b["shade_instance_type"]) and b["region"] in t[8]]
        if not sold or b.get("os") not in OS:
            raise error(400, "BAD_REQUEST", "No such type, region or operating system.")
        if b.get("ssh_key_id") not in self.keys:
            raise error(400, "BAD_REQUEST", "No such SSH key.")
        if (b["cloud"], b["region"]) in self.out_of_stock:
            raise error(409, "OUT_OF_STOCK", "The type is not available in the region.")
        id, t = str(uuid.uuid4()), sold[0]
        self.instances[id] = {
            "id": id, "cloud": t[0], "region": b["region"], "shade_instance_type": t[1], "cloud_instance_type": "gpu",
            "cloud_assigned_id": "", "shade_cloud": b["shade_cloud"], "name": b["name"], "ip": "",
            "configuration": {"memory_in_gb": 48, "storage_in_gb": 256, "vcpus": 12, "num_gpus": t[4], "gpu_type": t[2],
                              "interconnect": t[3], "nvlink": False, "vram_per_gpu_in_gb": t[5],
                              "gpu_manufacturer": "nvidia", "os": b["os"]},
            "ssh_user": "shadeform", "ssh_port": 22, "status": "creating", "status_details": "", "cost_estimate": "0.0",
            "hourly_price": t[6], "launch_configuration": b["launch_configuration"], "tags": b.get("tags", []),
            "created_at": "2026-11-23T00:00:00Z", "deleted_at": "", "ssh_key_id": b["ssh_key_id"],
            "lists": 0, "reads": 0}
        if "auto_delete" in b and not self.drop_deadline:
            self.instances[id]["auto_delete"] = b["auto_delete"]
        return {"id": id}

    def delete(self, op):
        i = self.found(op.words["id"])
        if i["status"] != "deleting":
            i.update(status="deleting", left=self.gone_lists)

    def list_keys(self, _):
        return {"ssh_keys": list(self.keys.values())}

    def add_key(self, op):
        id = str(uuid.uuid4())
        self.keys[id] = dict(op.body, id=id, is_default=False)
        return {"id": id}

    def delete_key(self, op):
        if op.words["id"] not in self.keys:
            raise error(404, "NOT_FOUND", "SSH key not found.")
        if any(i["ssh_key_id"] == op.words["id"] and i["status"] != "deleting" for i in self.instances.values()):
            raise error(409, "IN_USE", "The SSH key is in use.")
        del self.keys[op.words["id"]]

    # --- for a test ---

    def left(self):
        return [i["id"] for i in self.instances.values() if i["status"] != "deleting"] + list(self.keys)

    def sound(self):
        return (self.rejected == [] and self.drifted == []) or (self.rejected, self.drifted)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, default=0)
    with ShadeformCloud(port=options.parse_args().port) as cloud:
        print(f"export GPUPROV_SHADEFORM_ENDPOINT={cloud.url} GPUPROV_SHADEFORM_PACE_MS=0 SHADEFORM_API_KEY={KEY}",
              flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
