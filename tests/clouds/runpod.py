# SPDX-License-Identifier: Apache-2.0
"""A stand-in for RunPod's REST API v2: pods with their states, catalogues, and a gate made from the API's description.

    with RunPod() as cloud:
        run(env=cloud.environment(home))
        cloud.pods                     # id -> Pod, those that exist

Knobs: place_after (how often a pod is read before it has a host), run_after (before it runs), lag (how many lists do not
show a new pod), refuse_placed (how many of the next pods end in ERROR instead of getting a host), stock and gpus (the
catalogue), key, machine: an object whose start(pod) gives (host, port) of a pod that begins to run and whose stop(pod)
ends it. As the real one does, a DELETE of a missing pod is 404, lists have no pages, and one GPU or CPU type is exact.

    python tests/clouds/runpod.py --port 0          # alone; prints what to export"""
import argparse
import datetime
import itertools
import json
import pathlib
import re
import time
import urllib.parse

import jsonschema

from mock import Fault, Mock  # noqa: UP026

API = json.loads((pathlib.Path(__file__).parent / "api" / "runpod.json").read_text())
CENTERS = {"US-KS-2": True, "EU-RO-1": True, "US-TX-9": False}  # whether pods there reach each other
GPUS = [("NVIDIA GeForce RTX 4090", "RTX 4090", 24, 0.69, 0.34, 8), ("NVIDIA H100 80GB HBM3", "H100 SXM", 80, 2.99, 2.69, 8),
        ("NVIDIA H100 PCIe", "H100 PCIe", 80, 2.39, 1.99, 8), ("NVIDIA L4", "L4", 24, 0.43, 0.0, 4),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", 48, 0.77, 0.74, 8)]
NUMBERS = itertools.count(1)  # two accounts have no pod of one id
CAPACITY = "There are no longer any instances available with the requested specifications. Please refresh and try again."


def problem(status, title, detail, headers=None, errors=None):
    body = {"title": title, "status": status, "detail": detail}
    if errors:
        body["errors"] = errors
    return Fault(status, body, {"Content-Type": "application/problem+json", **(headers or {})})


def once(pairs):
    if len({k for k, _ in pairs}) != len(pairs):
        raise ValueError("a name comes twice")
    return dict(pairs)


def parts(s):
    """A schema whose members and entries are closed, itself not: it can be a part of another one."""
    if isinstance(s, list):
        return [parts(one) for one in s]
    if not isinstance(s, dict):
        return s
    return {k: {n: closed(one) for n, one in v.items()} if k == "properties" else
            closed(v) if k in ("items", "additionalProperties") else parts(v) for k, v in s.items()}


def closed(s):
    """The schema of a value, of which a member that it does not describe is refused."""
    out = parts(s)
    if isinstance(out, dict) and {"$ref", "properties", "allOf", "anyOf", "oneOf"} & out.keys():
        out["unevaluatedProperties"] = False
    return out


class Gate:
    """Refuses what the description does not have, in requests and in the mock's own replies."""

    def __init__(self, api):
        self.api, self.schemas = api, {name: parts(s) for name, s in api["schemas"].items()}

    def _validator(self, schema):
        return jsonschema.Draft202012Validator({**closed(schema), "schemas": self.schemas})

    def validate(self, schema, value, what):
        errors = [e.message for e in self._validator(schema).iter_errors(value)]
        assert not errors, (what, errors[:3], value)

    def operation(self, method, path):
        for template, methods in self.api["paths"].items():
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path) and method.lower() in methods:
                return methods[method.lower()]
        raise problem(404, "Not Found", f"no operation {method} {path}")

    def request(self, op, query, body):
        known = {p["name"]: p for p in op["parameters"] if p["in"] == "query"}
        wrong = [f"query: unknown parameter '{name}'" for name in query if name not in known]
        for name, text in query.items():
            schema = known.get(name, {}).get("schema", {})
            value = {"integer": int, "array": lambda t: t.split(",")}.get(schema.get("type"), str)(text)
            wrong += [f"query.{name}: {e.message}" for e in self._validator(schema).iter_errors(value)]
        if "body" in op:
            wrong += [f"$: {e.message}" for e in self._validator(op["body"]).iter_errors(body)]
        elif body is not None:
            wrong.append("$: no body is expected")
        if wrong:
            raise problem(422, "Unprocessable Entity", "Request validation failed.", errors=wrong[:5])

    def reply(self, op, status, value):
        row = op["responses"].get(str(status), op["responses"].get("default"))
        if row is None:
            assert value is None, (status, value)
        else:
            self.validate(row["schema"], value, f"reply {status}")


class Pod:
    def __init__(self, number, body, center, price):
        self.id = f"rp{number:012x}"
        self.body, self.center, self.price = body, center, price
        self.status, self.reads, self.lists, self.doomed = "PROVISIONING", 0, 0, False
        self.address = None
        self.created = time.time() + number / 1e6

    def view(self):
        b = self.body
        running, gone = self.status == "RUNNING", self.status in ("EXITED", "TERMINATED")
        host, port = self.address or (None, None)
        direct = {"host": host, "port": port, "username": "root", "command": f"ssh root@{host} -p {port}"} if host else None
        placed = self.status != "PROVISIONING" and not (self.status == "ERROR" and self.doomed)
        out = {"id": self.id, "name": b["name"], "image": b["image"], "args": b.get("args", ""), "disk": b.get("disk", 50),
               "ports": b.get("ports", []), "env": b.get("env", {}), "registry": None, "status": self.status,
               "actions": ["stop", "restart", "terminate"], "mounts": {}, "cloud": b.get("cloud", "SECURE"),
               "dataCenterId": self.center if placed else None, "cudaVersion": "12.8" if placed else None,
               "ssh": {"proxy": None, "direct": direct if running else None}, "template": None,
               "cost": 0.0 if gone else self.price, "locked": False,
               "globalNetworking": {"enabled": False}, "runtime": None, "createdAt": stamp(self.created),
               "startedAt": None}
        if b.get("globalNetworking"):
            out["globalNetworking"] = {"enabled": True, "ip": f"10.65.1.{int(self.id[2:], 16) % 250 + 1}",
                                       "internalDns": f"{self.id}.runpod.internal"}
        if "gpu" in b:
            out["gpu"] = {"id": b["gpu"]["id"], "count": b["gpu"].get("count", 1)}
        if "cpu" in b:
            out["cpu"] = {**b["cpu"], "memory": 4}
        if running and host:
            out["runtime"] = {"uptime": 5, "ports": [{"private": 22, "public": port, "type": "tcp", "ip": host}]}
        return out


def stamp(at):
    return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class RunPod(Mock):
    def __init__(self, key="rpa_TESTTESTTESTTEST", machine=None, **kw):
        super().__init__(**kw)
        self.gate, self.key, self.machine = Gate(API), key, machine
        self.all = {}
        self.place_after = self.run_after = self.lag = self.refuse_placed = 0
        self.stock = dict.fromkeys(CENTERS, "HIGH")
        self.gpus = list(GPUS)
        self.faults = []  # requests and replies that the description does not have

    @property
    def pods(self):
        return {p.id: p for p in self.all.values() if p.status != "TERMINATED"}

    def environment(self, home):
        return {"RUNPOD_API_KEY": self.key, "RUNPOD_API_BASE_URL": self.url, "HOME": str(home), "NO_PROXY": "*",
                "no_proxy": "*"}

    # --- requests ---

    def handle(self, method, target, headers, body):
        url = urllib.parse.urlsplit(target)
        op = None
        try:
            op = self.gate.operation(method, url.path)
            if headers.get("authorization") != f"Bearer {self.key}":
                raise problem(401, "Unauthorized", "invalid bearer token")
            query = dict(urllib.parse.parse_qsl(url.query, strict_parsing=bool(url.query)))
            data = json.loads(body, object_pairs_hook=once) if body else None
            try:
                self.gate.request(op, query, data)
            except Fault as fault:
                self.faults.append(f"{method} {target}: {fault.obj['errors']}")
                raise
            status, reply = self.answer(method, url.path, query, data)
        except Fault as fault:
            self.gate.validate({"$ref": "#/schemas/ErrorResponse"}, fault.obj, "an error")
            raise
        try:
            self.gate.reply(op, status, reply)
        except AssertionError as e:
            self.faults.append(repr(e))
            raise
        return status, {}, reply

    def answer(self, method, path, query, data):
        words = path.split("/")[2:]
        if words[0] == "catalog":
            return 200, self.catalogue(words[1], query)
        if len(words) == 1:
            return (201, self.create(data)) if method == "POST" else (200, {"pods": self.listed()})
        pod = self.all.get(words[1])
        if pod is None or pod.status == "TERMINATED":
            raise problem(404, "Not Found", "pod not found")
        if method == "DELETE":
            pod.status = "TERMINATED"
            if self.machine:
                self.machine.stop(pod)
            return 204, None
        self.step(pod)
        return 200, pod.view()

    def listed(self):
        """A terminated pod is shown no more."""
        shown = []
        for pod in self.pods.values():
            pod.lists += 1
            if pod.lists > self.lag:
                self.step(pod)
                shown.append(pod.view())
        return shown

    def step(self, pod):
        """Time passes by reads, so that no test waits."""
        pod.reads += 1
        if pod.status == "PROVISIONING" and pod.reads > self.place_after:
            pod.status = "ERROR" if pod.doomed else "STARTING"
        elif pod.status == "STARTING" and pod.reads > self.place_after + self.run_after:
            pod.status = "RUNNING"
            pod.address = self.machine.start(pod) if self.machine else ("127.0.0.1", 9)

    # --- pods ---

    def create(self, body):
        if ("gpu" in body) == ("cpu" in body):
            raise problem(400, "Bad Request", "exactly one of gpu or cpu must be set")
        centers = body.get("dataCenterIds") or list(CENTERS)
        there = [c for c in centers if self.stock.get(c, "NONE") != "NONE"]
        if "gpu" in body:
            types = {g[0]: g for g in self.gpus}
            kind = types.get(body["gpu"]["id"])
            if kind is None:
                raise problem(400, "Bad Request", "unknown GPU type")
            price = (kind[4] if body.get("cloud") == "COMMUNITY" else kind[3]) * body["gpu"].get("count", 1)
            if float(body["gpu"].get("minCudaVersion", "0")) > 12.9:
                there = []
        else:
            price = 0.04 * body["cpu"]["vcpuCount"]
            if body.get("globalNetworking"):
                raise problem(400, "Bad Request", "global networking needs an NVIDIA GPU")
        if body.get("globalNetworking"):
            there = [c for c in there if CENTERS[c]]
        if not there:
            raise problem(400, "Bad Request", CAPACITY)
        pod = Pod(next(NUMBERS), body, there[0], round(price, 4))
        if self.refuse_placed > 0:
            self.refuse_placed -= 1
            pod.doomed = True
        if not self.place_after and not pod.doomed:
            pod.status = "STARTING"
        self.all[pod.id] = pod
        return pod.view()

    # --- catalogues ---

    def places(self):
        return [{"id": c, "name": c, "availability": level} for c, level in self.stock.items() if level != "NONE"]

    def catalogue(self, what, query):
        detail = "AVAILABILITY" in query.get("include", "")
        if what == "datacenters":
            return {"dataCenters": [{"id": c, "name": c, "region": "UNKNOWN", "networkVolumeTypes": [], "compliance": [],
                                     "globalNetwork": joined} for c, joined in CENTERS.items()]}
        if detail != ("product" in query):
            raise problem(400, "Bad Request", "product is required with include=AVAILABILITY, and valid only with it")
        stock = {"availability": "HIGH" if self.places() else "NONE"}
        if self.places():
            stock["dataCenters"] = self.places()
        if what == "cpus":
            return {"cpus": [{"id": "cpu5c", "name": "Compute-Optimized", "group": "Gen 5", "vcpu": {"min": 2, "max": 32},
                              "ramGbPerVcpu": 2.0, "price": {"securePerVcpu": 0.04, "serverlessPerVcpu": 0.03}, **stock}]}
        new = float(query.get("minCudaVersion", "0")) > 12.9
        if new:
            stock = {"availability": "NONE"}
        return {"gpus": [{"id": i, "name": n, "pool": None, "manufacturer": "NVIDIA", "memory": gb, "secure": True,
                          "community": community > 0, "price": {"secure": secure, "community": community},
                          "maxCount": {"secure": most, "community": most // 2}, **stock}
                         for i, n, gb, secure, community, most in self.gpus]}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--port", type=int, default=0)
    with RunPod(port=p.parse_args().port) as cloud:
        print(f"export RUNPOD_API_KEY={cloud.key} RUNPOD_API_BASE_URL={cloud.url}", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
