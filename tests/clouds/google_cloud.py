# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Compute Engine, Google's token services and the metadata server of one project.

    with google_cloud.Google() as cloud:
        env = cloud.environment(folder)      # credentials, endpoint, project
        cloud.capacity["us-central1-a"] = 0  # accepted, then refused by the operation
        run(env)
        assert not cloud.left() and not cloud.faults

Every request is validated against api/google.json, and so is every reply. Knobs are the attributes of Google.
`python tests/clouds/google_cloud.py --port 0` starts it alone and prints the lines to export."""
import argparse
import base64
import contextlib
import datetime
import hashlib
import json
import pathlib
import re
import signal
import sys
import tempfile
import time
import uuid

from cryptography.hazmat.primitives import serialization
from google_gate import Gate
from google_tokens import EMAIL, PROJECT, ROBOT, SCOPE, USER, Tokens, error, private_key  # noqa: F401
from mock import Mock  # noqa: UP026  (the one of this folder)

API = pathlib.Path(__file__).resolve().parent / "api" / "google.json"
ZONES = ["us-central1-a", "us-central1-b", "europe-west4-a", "europe-west4-b"]
# name: vCPUs, MiB, accelerator, number, architecture
TYPES = {"e2-medium": (2, 4096, None, 0, "X86_64"), "n1-standard-8": (8, 30720, None, 0, "X86_64"),
         "n1-standard-16": (16, 61440, None, 0, "X86_64"), "g2-standard-4": (4, 16384, "nvidia-l4", 1, "X86_64"),
         "g2-standard-8": (8, 32768, "nvidia-l4", 1, "X86_64"),
         "a2-highgpu-1g": (12, 87040, "nvidia-tesla-a100", 1, "X86_64"),
         "a2-ultragpu-1g": (12, 174080, "nvidia-a100-80gb", 1, "X86_64"),
         "a3-highgpu-8g": (208, 1916928, "nvidia-h100-80gb", 8, "X86_64"),
         "a4x-highgpu-4g": (140, 905216, "nvidia-gb200", 4, "ARM64")}
# Types with GPUDirect, which a test adds to `types`: and their further interfaces, gVNICs and MRDMA cards.
LARGE = {"a3-megagpu-8g": (208, 1916928, "nvidia-h100-mega-80gb", 8, "X86_64"),
         "a3-ultragpu-8g": (224, 3022848, "nvidia-h200-141gb", 8, "X86_64"),
         "a4-highgpu-8g": (224, 4063232, "nvidia-b200", 8, "X86_64")}
FURTHER = {"a3-highgpu-8g": (4, 0), "a3-megagpu-8g": (8, 0), "a3-ultragpu-8g": (1, 8), "a4-highgpu-8g": (1, 8)}
FAMILIES = {"ubuntu-2404-lts-amd64": "X86_64", "ubuntu-2404-lts-arm64": "ARM64", "ubuntu-2204-lts": "X86_64",
            "ubuntu-2204-lts-arm64": "ARM64"}
TERM = re.compile(r'(labels\.[\w-]+|name)(=| eq )"([^"]*)"')


def number_text():
    """The id that Google gives a resource: 62 bits, as text."""
    return str(uuid.uuid4().int >> 66 | 1 << 61)


def now_text():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


class Google(Mock, Tokens):
    gate = Gate(json.loads(API.read_text()))

    def __init__(self, **how):
        self.faults = []         # what the gate refused, of requests and of own replies
        self.project = PROJECT
        self.polls = 1           # reads of an operation until it is done
        self.seconds = 0.3       # age at which it is done without a read
        self.capacity = {}       # zone: most instances; refused by the operation, after it was accepted
        self.refusal = "ZONE_RESOURCE_POOL_EXHAUSTED"
        self.leave = False       # a refused gang leaves its instances behind
        self.lag = 0             # lists that do not show a new instance yet
        self.address_lag = 0     # lists that show it without addresses
        self.page = 500          # most entries of a page
        self.unreachable = []    # zones that an aggregated list leaves out
        self.drop_deadline = False
        self.drop_cards = 0      # MRDMA cards that an instance lacks
        self.keep_disks = False  # a deleted instance leaves its disk
        self.linger = 1          # lists that still show a deleted instance
        self.token_s = 3599
        self.quotas = {"NVIDIA_L4_GPUS": 16, "PREEMPTIBLE_NVIDIA_L4_GPUS": 16, "NVIDIA_T4_GPUS": 8,
                       "PREEMPTIBLE_NVIDIA_H100_GPUS": 0}
        self.all_gpus = 64
        self.console = "login: \n"
        self.instances, self.disks, self.firewalls, self.operations = {}, {}, {}, {}
        self.request_ids, self.tokens, self.grants = {}, {}, []
        self.types = dict(TYPES)
        self.networks = {"default": {"mtu": 1460}, "other": {"mtu": 1460}}  # profile: of RoCE, "ZONE-vpc-roce"
        self.subnets = {("us-central1", "training"): "default", ("us-central1", "apart"): "other"}
        super().__init__(**how)

    # --- for tests ---

    def key_file(self, folder, **more):
        pem = private_key().private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                          serialization.NoEncryption()).decode()
        return self.file(folder, {"type": "service_account", "project_id": self.project, "private_key_id": "k1",
                                  "private_key": pem, "client_email": EMAIL, "token_uri": self.url + "/token", **more})

    @staticmethod
    def file(folder, content, name="adc.json"):
        path = pathlib.Path(folder) / name
        path.write_text(json.dumps(content))
        return str(path)

    def environment(self, folder, **more):
        """Variables of gpuprov; None removes one."""
        env = {"CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": self.url + "/compute/v1/", "CLOUDSDK_CONFIG": str(folder),
               "GOOGLE_APPLICATION_CREDENTIALS": None, "GOOGLE_CLOUD_PROJECT": None, "CLOUDSDK_CORE_PROJECT": None,
               "CLOUDSDK_COMPUTE_REGION": None, "GCE_METADATA_HOST": None, "NO_PROXY": "*"}
        if "GOOGLE_APPLICATION_CREDENTIALS" not in more and "GCE_METADATA_HOST" not in more:
            env["GOOGLE_APPLICATION_CREDENTIALS"] = self.key_file(folder)
        return {**env, **more}

    def left(self):
        """Names of everything that is billed or would remain."""
        with self.lock:
            return sorted([*(k[1] for k in self.instances), *(k[1] for k in self.disks), *self.firewalls])

    def end_expired(self, at):
        """What Google does at a termination time."""
        with self.lock:
            for key, vm in list(self.instances.items()):
                until = vm["item"]["scheduling"].get("terminationTime")
                if until and datetime.datetime.fromisoformat(until.replace("Z", "+00:00")).timestamp() <= at:
                    self._remove(key)

    def expire_tokens(self):
        with self.lock:
            self.tokens.clear()

    # --- compute ---

    def handle(self, method, target, headers, body):
        other = self._other_services(method, target, headers, body)
        if other is not None:
            return other
        self._bearer(headers)
        for op, what in list(self.operations.items()):
            if what["item"]["status"] != "DONE" and time.monotonic() - what["at"] > self.seconds:
                what["left"] = 0
                self._step(op)
        try:
            found, args, query, obj = self.gate.check(method, target, body)
        except ValueError as e:
            self.faults.append(str(e))
            raise error(400, "invalid", str(e)) from e
        if args.get("project") not in (self.project, "ubuntu-os-cloud"):
            raise error(403, "forbidden", f"Required permission for 'projects/{args.get('project')}'")
        name = "_" + found["id"].removeprefix("compute.").replace(".", "_")
        key = query.get("requestId")
        if key in self.request_ids:
            reply = self.operations[self.request_ids[key]]["item"]
        else:
            reply = getattr(self, name)(args, query, obj)
            if key:
                self.request_ids[key] = reply["name"]
        fault = self.gate.validate(found["response"]["$ref"], False, reply)
        if fault:
            self.faults.append(f"reply of {found['id']}: {fault}")
        return 200, {}, reply

    def _link(self, *path):
        return "https://www.googleapis.com/compute/v1/projects/" + "/".join((self.project, *path))

    def _operation(self, kind, zone, target, done, refused=None):
        """done: called when it is finished. refused: the error of an operation."""
        name = "operation-%d-%s" % (time.time() * 1000, uuid.uuid4().hex[:20])
        place = ("zones", zone) if zone else ("global",)
        item = {"kind": "compute#operation", "id": number_text(), "name": name, "operationType": kind,
                "targetLink": self._link(*place, *target), "status": "RUNNING", "progress": 0, "user": EMAIL,
                "insertTime": now_text(), "startTime": now_text(), "selfLink": self._link(*place, "operations", name)}
        if zone:
            item["zone"] = self._link("zones", zone)
        self.operations[name] = {"item": item, "left": self.polls, "done": done, "refused": refused,
                                 "at": time.monotonic()}
        if self.polls == 0:
            self._step(name)
        return dict(item)

    def _step(self, name):
        if name not in self.operations:
            raise error(404, "notFound", f"The operation '{name}' was not found")
        op = self.operations[name]
        op["left"] -= 1
        if op["left"] <= 0 and op["item"]["status"] != "DONE":
            op["item"].update(status="DONE", progress=100, endTime=now_text())
            if op["refused"]:
                op["item"].update(error={"errors": [op["refused"]]}, httpErrorStatusCode=503,
                                  httpErrorMessage="SERVICE UNAVAILABLE")
            op["done"]()
        return dict(op["item"])

    def _zoneOperations_get(self, args, _query, _obj):
        return self._step(args["operation"])

    _zoneOperations_wait = _globalOperations_get = _globalOperations_wait = _zoneOperations_get

    # --- what is sold ---

    def _projects_get(self, _args, _query, _obj):
        used = sum(self._gpus(vm["item"]) for vm in self.instances.values())
        return {"kind": "compute#project", "name": self.project, "id": "1",
                "quotas": [{"metric": "GPUS_ALL_REGIONS", "limit": self.all_gpus, "usage": used}]}

    def _regions_get(self, args, _query, _obj):
        zones = [z for z in ZONES if z.rsplit("-", 1)[0] == args["region"]]
        if not zones:
            raise error(404, "notFound", f"The resource 'projects/{self.project}/regions/{args['region']}' was not found")
        return {"kind": "compute#region", "name": args["region"], "status": "UP",
                "zones": [self._link("zones", z) for z in zones],
                "quotas": [{"metric": k, "limit": v, "usage": 0} for k, v in self.quotas.items()]}

    def _zone(self, args):
        if args["zone"] not in ZONES:
            raise error(404, "notFound", f"The resource 'projects/{self.project}/zones/{args['zone']}' was not found")
        return args["zone"]

    def _machineTypes_list(self, args, query, _obj):
        zone, items = self._zone(args), []
        for name, (cpus, mib, gpu, n, arch) in self.types.items():
            item = {"kind": "compute#machineType", "name": name, "guestCpus": cpus, "memoryMb": mib, "zone": zone,
                    "architecture": arch}
            if gpu:
                item["accelerators"] = [{"guestAcceleratorType": gpu, "guestAcceleratorCount": n}]
            items.append(item)
        return self._paged("compute#machineTypeList", items, query)

    def _acceleratorTypes_list(self, args, query, _obj):
        zone = self._zone(args)
        items = [{"kind": "compute#acceleratorType", "name": "nvidia-tesla-t4", "zone": zone,
                  "maximumCardsPerInstance": 4}]
        return self._paged("compute#acceleratorTypeList", items if zone.endswith("a") else [], query)

    def _images_getFromFamily(self, args, _query, _obj):
        if args["family"] not in FAMILIES:
            raise error(404, "notFound", "The resource 'projects/x/global/images/family' was not found")
        return {"kind": "compute#image", "name": args["family"] + "-v20261101", "family": args["family"],
                "diskSizeGb": "10", "status": "READY", "architecture": FAMILIES[args["family"]]}

    def _images_get(self, args, _query, _obj):
        family = args["image"].rsplit("-v", 1)[0]
        return dict(self._images_getFromFamily({"family": family}, None, None), name=args["image"])

    def _subnetworks_get(self, args, _query, _obj):
        network = self.subnets.get((args["region"], args["subnetwork"]))
        if network is None:
            raise error(404, "notFound", "The resource subnetwork was not found")
        return {"kind": "compute#subnetwork", "name": args["subnetwork"],
                "network": self._link("global", "networks", network)}

    def _networks_get(self, args, _query, _obj):
        name = args["network"]
        if name not in self.networks:
            raise error(404, "notFound", f"The resource 'projects/{self.project}/global/networks/{name}' was not found")
        of = self.networks[name]
        reply = {"kind": "compute#network", "name": name, "mtu": of["mtu"], "autoCreateSubnetworks": False,
                 "subnetworks": [self._link("regions", r, "subnetworks", s) for (r, s), n in self.subnets.items() if n == name]}
        return dict(reply, networkProfile=self._link("global", "networkProfiles", of["profile"])) if "profile" in of else reply

    def add_networks(self, kind, region="us-central1", zone="us-central1-a"):
        """Those of GPUDirect as its guide makes them, for a type: their names."""
        gvnics, cards = FURTHER[kind]
        names = [f"gpu-net-{i}" for i in range(gvnics)]
        for name in names:
            self.networks[name] = {"mtu": 8896 if cards else 8244}
            self.subnets[region, name.replace("net", "sub")] = name
        if cards:
            self.networks["rdma-net"] = {"mtu": 8896, "profile": zone + "-vpc-roce"}
            self.subnets.update({(region, f"rdma-sub-{i}"): "rdma-net" for i in range(cards)})
        return names + ["rdma-net"] * (cards > 0)

    # --- lists ---

    def _cut(self, items, query):
        """One page and the token of the next."""
        start, most = int(query.get("pageToken", "0")), min(int(query.get("maxResults", "500")), self.page)
        return items[start:start + most], str(start + most) if start + most < len(items) else None

    def _paged(self, kind, items, query):
        some, token = self._cut([i for i in items if self._matches(i, query.get("filter"))], query)
        reply = {"kind": kind, "selfLink": self._link("x")}
        if some:
            reply["items"] = some  # an empty list is left out
        return dict(reply, nextPageToken=token) if token else reply

    def _matches(self, item, text):
        if not text:
            return True
        if re.sub(r"( AND )", "", TERM.sub("", text)):
            self.faults.append("filter: " + text)
            raise error(400, "invalid", "Invalid value for field 'filter'")
        for field, compare, value in TERM.findall(text):
            has = item.get("name") if field == "name" else item.get("labels", {}).get(field[7:])
            if not (re.fullmatch(value, has or "") if compare == " eq " else has == value):
                return False
        return True

    def _aggregated(self, kind, name, items, query):
        if query.get("returnPartialSuccess") != "true" and self.unreachable:
            raise error(503, "backendError", "a zone is unreachable")
        fit = [i for i in items if self._matches(i, query.get("filter"))]
        some, token = self._cut(fit, query)
        scopes = {}
        for zone in ZONES:
            here = [i for i in some if i["zone"].rsplit("/", 1)[1] == zone]
            if zone in self.unreachable:
                scopes["zones/" + zone] = {"warning": {"code": "UNREACHABLE", "message": "unreachable"}}
            elif here:
                scopes["zones/" + zone] = {name: here}
            else:
                scopes["zones/" + zone] = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "none",
                                                       "data": [{"key": "scope", "value": "zones/" + zone}]}}
        reply = {"kind": kind, "items": scopes, "selfLink": self._link("x")}
        return dict(reply, nextPageToken=token) if token else reply

    def _shown(self):
        """Instances as a list shows them now; time passes with each list."""
        shown = []
        for key, vm in list(self.instances.items()):
            vm["lists"] += 1
            if vm["ending"]:
                vm["ending"] -= 1
                if not vm["ending"]:
                    self._remove(key)
                    continue
            if vm["lists"] <= vm["lag"]:
                continue
            if vm["item"]["status"] == "STAGING" and vm["lists"] > 1:
                vm["item"]["status"] = "RUNNING"
            item = json.loads(json.dumps(vm["item"]))
            if vm["lists"] <= self.address_lag:
                for nic in item["networkInterfaces"]:
                    nic.pop("networkIP", None)
                    nic.pop("accessConfigs", None)
            shown.append(item)
        return shown

    def _instances_list(self, args, query, _obj):
        zone = self._zone(args)
        return self._paged("compute#instanceList", [i for i in self._shown() if i["zone"].endswith("/" + zone)], query)

    def _instances_aggregatedList(self, _args, query, _obj):
        return self._aggregated("compute#instanceAggregatedList", "instances", self._shown(), query)

    def _disks_aggregatedList(self, _args, query, _obj):
        return self._aggregated("compute#diskAggregatedList", "disks", list(self.disks.values()), query)

    # --- instances ---

    def _gpus(self, item):
        attached = sum(a["acceleratorCount"] for a in item.get("guestAccelerators", []))
        return attached or self.types[item["machineType"].rsplit("/", 1)[1]][3]

    def _instance(self, name, zone, properties, number):
        p = properties
        disks = []
        for i, disk in enumerate(p["disks"]):
            init = disk["initializeParams"]
            self.disks[zone, name] = {
                "kind": "compute#disk", "name": name, "id": number_text(), "zone": self._link("zones", zone), "status": "READY",
                "sizeGb": init["diskSizeGb"], "labels": init.get("labels", {}), "creationTimestamp": now_text(),
                "type": self._link("zones", zone, "diskTypes", init["diskType"]),
                "users": [self._link("zones", zone, "instances", name)]}
            disks.append({"kind": "compute#attachedDisk", "boot": disk["boot"], "autoDelete": disk["autoDelete"],
                          "index": i, "diskSizeGb": init["diskSizeGb"], "type": disk["type"],
                          "source": self._link("zones", zone, "disks", name)})
        nics = [dict(nic, kind="compute#networkInterface", name=f"nic{i}", networkIP=f"10.128.0.{number}",
                     accessConfigs=[dict(c, natIP=f"127.77.0.{number}") for c in nic.get("accessConfigs", [])])
                for i, nic in enumerate(p["networkInterfaces"])]
        nics = nics[:len(nics) - self.drop_cards]
        scheduling = dict(p["scheduling"])
        if self.drop_deadline:
            scheduling.pop("terminationTime", None)
        item = {"kind": "compute#instance", "name": name, "id": number_text(), "status": "PROVISIONING",
                "zone": self._link("zones", zone), "machineType": self._link("zones", zone, "machineTypes",
                                                                               p["machineType"]),
                "creationTimestamp": now_text(), "labels": dict(p["labels"]), "tags": p["tags"], "disks": disks,
                "networkInterfaces": nics, "scheduling": scheduling, "metadata": p["metadata"],
                "labelFingerprint": self._fingerprint(p["labels"])}
        for optional in ("guestAccelerators", "serviceAccounts"):
            if optional in p:
                item[optional] = p[optional]
        self.instances[zone, name] = {"item": item, "lists": 0, "lag": self.lag, "ending": 0}

    @staticmethod
    def _fingerprint(labels):
        return base64.b64encode(hashlib.sha256(json.dumps(labels, sort_keys=True).encode()).digest()[:8]).decode()

    def _prose(self, zone, body):
        """Rules that the description has in words only."""
        p = body["instanceProperties"]
        names, count = list(body["perInstanceProperties"]), int(body["count"])
        label = re.compile(r"[a-z0-9_-]{0,63}")
        s = p["scheduling"]
        checks = [(len(names) == count, "perInstanceProperties: one for each of count"),
                  (p["machineType"] in self.types, "machineType: a name, sold in the zone"),
                  (all(re.fullmatch("[a-z]([-a-z0-9]{0,61}[a-z0-9])?", n) for n in names), "names"),
                  (all(label.fullmatch(k) and label.fullmatch(v) for k, v in p["labels"].items()), "labels"),
                  (len(p["labels"]) <= 64, "64 labels"),
                  (not s.get("terminationTime") or s.get("instanceTerminationAction") == "DELETE", "termination"),
                  (s.get("provisioningModel") != "SPOT" or s.get("automaticRestart") is False, "spot"),
                  (not self.types.get(p["machineType"], (0, 0, 0, 0))[3] or s.get("onHostMaintenance") == "TERMINATE",
                   "GPUs need onHostMaintenance TERMINATE"),
                  (sum(len(i["value"]) for i in p["metadata"]["items"]) <= 512 * 1024, "metadata"),
                  (all(10 <= int(d["initializeParams"]["diskSizeGb"]) <= 65536 for d in p["disks"]), "diskSizeGb"),
                  (zone in ZONES, "zone")]
        for right, text in checks:
            if not right:
                self.faults.append("bulkInsert: " + text)
                raise error(400, "invalid", "Invalid value for field " + text)
        network = [n.get("network", "").rsplit("/", 1)[-1] for n in p["networkInterfaces"]]
        if any(n and n not in self.networks for n in network):
            raise error(404, "notFound", f"The resource 'projects/{self.project}/global/networks/x' was not found")
        self._interfaces(zone, p)

    def _interfaces(self, zone, p):
        """What the guides say of several interfaces."""
        nics, region = p["networkInterfaces"], zone.rsplit("-", 1)[0]
        subnets = [n.get("subnetwork", "").rsplit("/", 1)[-1] for n in nics]
        if any(s and (region, s) not in self.subnets for s in subnets):
            raise error(404, "notFound", "The resource subnetwork was not found")
        of = [self.subnets[region, s] if s else nic["network"].rsplit("/", 1)[-1]
              for s, nic in zip(subnets, nics, strict=True)]
        cards = [n.get("nicType") == "MRDMA" for n in nics]
        ordinary = [n for n, card in zip(of, cards, strict=True) if not card]
        roce = [self.networks[n].get("profile") for n in of]
        checks = [(len(set(ordinary)) == len(ordinary), "a network for each gVNIC"),
                  (len(set(subnets)) == len(subnets), "a subnet for each interface"),
                  (not cards[0] and len(nics) <= 18, "the first interface, and the number"),
                  (all((profile == zone + "-vpc-roce") if card else not profile
                       for profile, card in zip(roce, cards, strict=True)), "the RoCE profile of the zone"),
                  (not any("accessConfigs" in n for n, card in zip(nics, cards, strict=True) if card), "a public address"),
                  (len(nics) == 1 or (sum(not c for c in cards[1:]), sum(cards)) == FURTHER.get(p["machineType"]),
                   "the layout of " + p["machineType"]),
                  (cards == sorted(cards), "gVNICs come first")]
        for right, text in checks:
            if not right:
                self.faults.append("networkInterfaces: " + text)
                raise error(400, "invalid", "Invalid value for field networkInterfaces: " + text)

    def _instances_bulkInsert(self, args, _query, body):
        zone, names = self._zone(args), list(body["perInstanceProperties"])
        self._prose(zone, body)
        taken = [n for n in names if (zone, n) in self.instances]
        if taken:
            raise error(409, "alreadyExists", f"The resource 'instances/{taken[0]}' already exists")
        here = sum(1 for z, _ in self.instances if z == zone)
        full = zone in self.capacity and here + len(names) > self.capacity[zone]
        for name in names:
            self._instance(name, zone, body["instanceProperties"], len(self.instances) + 2)
        refused = {"code": self.refusal, "message": f"The zone '{zone}' cannot launch it: {self.refusal}."}

        def done():
            for name in names:
                if full and not self.leave:
                    self._remove((zone, name), whole=True)
                elif (zone, name) in self.instances and not self.instances[zone, name]["ending"]:
                    self.instances[zone, name]["item"]["status"] = "STAGING"
        return self._operation("bulkInsert", zone, ("instances", names[0]), done, refused if full else None)

    def _remove(self, key, whole=False):
        self.instances.pop(key, None)
        if self.keep_disks and not whole and key in self.disks:
            self.disks[key].pop("users", None)
        else:
            self.disks.pop(key, None)

    def _found(self, args):
        key = (args["zone"], args["instance"])
        if key not in self.instances:
            raise error(404, "notFound", f"The resource 'zones/{key[0]}/instances/{key[1]}' was not found")
        return key

    def _instances_get(self, args, _query, _obj):
        return self.instances[self._found(args)]["item"]

    def _instances_delete(self, args, _query, _obj):
        key = self._found(args)
        vm = self.instances[key]
        vm["item"]["status"] = "STOPPING"
        vm["ending"] = vm["ending"] or self.linger + 1
        return self._operation("delete", key[0], ("instances", key[1]), lambda: None)

    def _instances_setLabels(self, args, _query, body):
        key = self._found(args)
        item = self.instances[key]["item"]
        if body.get("labelFingerprint") != item["labelFingerprint"]:
            raise error(412, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed")
        item["labels"], item["labelFingerprint"] = body["labels"], self._fingerprint(body["labels"])
        return self._operation("setLabels", key[0], ("instances", key[1]), lambda: None)

    def _instances_getSerialPortOutput(self, args, query, _obj):
        self._found(args)
        assert query == {"port": "1", "start": "-65536"}, query
        return {"kind": "compute#serialPortOutput", "contents": self.console, "start": "0",
                "next": str(len(self.console))}

    def _disks_delete(self, args, _query, _obj):
        key = (args["zone"], args["disk"])
        if key not in self.disks:
            raise error(404, "notFound", "The resource disk was not found")
        if self.disks[key].get("users"):
            raise error(400, "resourceInUseByAnotherResource", "The disk resource is already being used")
        self.disks.pop(key)
        return self._operation("delete", key[0], ("disks", key[1]), lambda: None)

    # --- firewalls: the name is taken at once, the rule shows when its operation is done ---

    def _firewalls_insert(self, _args, _query, body):
        name = body["name"]
        if name in self.firewalls:
            raise error(409, "alreadyExists", f"The resource 'projects/{self.project}/global/firewalls/{name}' "
                                              "already exists")
        if body["network"].rsplit("/", 1)[-1] not in self.networks:
            raise error(404, "notFound", f"The resource 'projects/{self.project}/global/networks/x' was not found")
        self._firewall_prose(body)
        item = dict(body, kind="compute#firewall", id=str(uuid.uuid4().int >> 66), creationTimestamp=now_text(),
                    selfLink=self._link("global", "firewalls", name), network=self._link(
                        "global", "networks", body["network"].rsplit("/", 1)[-1]), priority=1000)
        self.firewalls[name] = {"item": item, "there": False}

        def done():
            if name in self.firewalls:
                self.firewalls[name]["there"] = True
        return self._operation("insert", None, ("firewalls", name), done)

    def _firewall_prose(self, body):
        has = {k for k, v in body.items() if v}
        accounts = has & {"sourceServiceAccounts", "targetServiceAccounts"}
        checks = [(len(body.get("description", "")) <= 2048, "description"),
                  (has & {"sourceRanges", "sourceTags", "sourceServiceAccounts"}, "sources"),
                  (len(has & {"allowed", "denied"}) == 1, "allowed or denied"),
                  (not (accounts and has & {"sourceTags", "targetTags"}), "service accounts with tags"),
                  (0 <= body.get("priority", 1000) <= 65535, "priority")]
        for right, text in checks:
            if not right:
                self.faults.append("firewall: " + text)
                raise error(400, "invalid", "Invalid value for field 'resource': " + text)

    def _rule(self, args):
        found = self.firewalls.get(args["firewall"])
        if found is None or not found["there"]:
            raise error(404, "notFound", f"The resource 'global/firewalls/{args['firewall']}' was not found")
        return found

    def _firewalls_get(self, args, _query, _obj):
        return self._rule(args)["item"]

    def _firewalls_list(self, _args, query, _obj):
        return self._paged("compute#firewallList", [f["item"] for f in self.firewalls.values() if f["there"]], query)

    def _firewalls_patch(self, args, _query, body):
        """A JSON merge patch: what it does not name stays, an array replaces the whole one, and an empty one is not shown."""
        item = self._rule(args)["item"]
        if body.get("direction", item["direction"]) != item["direction"] or body["name"] != item["name"]:
            self.faults.append("firewalls.patch: direction or name")
            raise error(400, "invalid", "Invalid value for field 'resource'")
        changed = {k: v for k, v in {**item, **body}.items() if v != []}
        self._firewall_prose(changed)
        item.clear()
        item.update(changed)
        return self._operation("patch", None, ("firewalls", args["firewall"]), lambda: None)

    def _firewalls_delete(self, args, _query, _obj):
        self._rule(args)
        self.firewalls.pop(args["firewall"])
        return self._operation("delete", None, ("firewalls", args["firewall"]), lambda: None)


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--port", type=int, default=0)
    for end in (signal.SIGINT, signal.SIGTERM):  # or the folder stays; a shell's background jobs ignore SIGINT
        signal.signal(end, signal.default_int_handler)
    with (contextlib.suppress(KeyboardInterrupt), tempfile.TemporaryDirectory() as folder,
          Google(port=words.parse_args().port) as cloud):
        for name, value in cloud.environment(folder).items():
            print(f"export {name}='{value}'" if value is not None else f"unset {name}")
        sys.stdout.flush()
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
