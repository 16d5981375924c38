# SPDX-License-Identifier: Apache-2.0
"""The clouds' stand-ins with a real host behind every machine (MockLab): what each gives the reconciler."""
import base64

from alibaba import REGION, Alibaba
from azure_cloud import Azure
from google_cloud import Google
from lambda_cloud import KEY, LambdaCloud
from mock_lab import ADDRESS, addresses
from shadeform_cloud import KEY as SHADEFORM_KEY
from shadeform_cloud import ShadeformCloud

SSH_FROM = "{ssh_from: [%s/32]}" % ADDRESS


class HostedLambda(LambdaCloud):
    provider, offer = "lambda", "{provider: lambda, regions: [us-east-1]}"
    limits, access = "unattended: accept", SSH_FROM  # no deadline of its own

    def env(self, home):
        return {"GPUPROV_LAMBDA_ENDPOINT": self.url, "GPUPROV_LAMBDA_PACE_MS": "0", "LAMBDA_API_KEY": KEY,
                "HOME": str(home)}

    def launch(self, op):
        made = super().launch(op)
        for n, one in enumerate(self.instances.values()):
            one["private_ip"], one["ip"] = addresses(n)
        return made

    def machines(self):
        with self.lock:
            return [{"id": i["id"], "private": i["private_ip"], "public": i["ip"], "name": i["hostname"]}
                    for i in self.instances.values() if i["status"] in ("booting", "active")]

    def user_data(self, iid):
        return (self.instances[iid]["user_data"] or "").encode()

    def powered_off(self, iid):
        with self.lock:
            self.instances[iid]["status"] = "unhealthy"  # it is billed until it is terminated
        return "unhealthy"


class HostedGoogle(Google):
    provider, offer, limits, access = "google", "{provider: google, regions: [us-central1]}", "", SSH_FROM

    def env(self, home):
        return {k: v for k, v in self.environment(home).items() if v is not None}

    def _instance(self, name, zone, properties, number):
        super()._instance(name, zone, properties, number)
        nic = self.instances[zone, name]["item"]["networkInterfaces"][0]
        nic["networkIP"], public = addresses(number)
        for config in nic["accessConfigs"]:
            config["natIP"] = public

    def _items(self):
        with self.lock:
            return {vm["item"]["id"]: vm["item"] for vm in self.instances.values()
                    if not vm["ending"] and vm["item"]["status"] in ("PROVISIONING", "STAGING", "RUNNING")}

    def machines(self):
        return [{"id": i, "private": item["networkInterfaces"][0]["networkIP"], "name": item["name"],
                 "public": item["networkInterfaces"][0]["accessConfigs"][0]["natIP"]}
                for i, item in self._items().items()]

    def user_data(self, iid):
        return next(m["value"] for m in self._items()[iid]["metadata"]["items"] if m["key"] == "user-data").encode()

    def powered_off(self, iid):
        self._items()[iid]["status"] = "TERMINATED"  # stopped: its disk is billed
        return "stopped"

    def left(self):
        with self.lock:
            return [vm["item"]["name"] for vm in self.instances.values() if not vm["ending"]] + list(self.firewalls)

    def sound(self):
        return self.faults == [] or self.faults


class HostedAlibaba(Alibaba):
    provider, offer, limits, access = "alibaba", "{provider: alibaba, regions: [%s]}" % REGION, "", SSH_FROM

    def env(self, home):
        return dict(self.environment(), HOME=str(home))

    def describe(self, iid, one):
        item = super().describe(iid, one)
        private, public = addresses(one["address"])
        item["VpcAttributes"]["PrivateIpAddress"]["IpAddress"] = [private]
        if item["PublicIpAddress"]["IpAddress"]:
            item["PublicIpAddress"]["IpAddress"] = [public]
        return item

    def machines(self):
        with self.lock:
            return [dict(zip(("private", "public"), addresses(one["address"])), id=iid, name=one["name"])
                    for iid, one in self.instances.items() if one["gone"] is None and not one.get("off")]

    def user_data(self, iid):
        return base64.b64decode(self.instances[iid]["q"]["UserData"])

    def powered_off(self, iid):
        self.instances[iid]["off"] = True  # it is billed until it is released
        return "stopped"


class HostedAzure(Azure):
    provider, offer, limits = "azure", "{provider: azure, regions: [eastus]}", "unattended: accept"
    access = SSH_FROM

    def __init__(self, **how):
        super().__init__(**how)
        self.custom, self.off = {}, set()

    def env(self, home):
        return dict(self.environment(), HOME=str(home))

    def VirtualMachines_CreateOrUpdate(self, op, headers):
        reply = super().VirtualMachines_CreateOrUpdate(op, headers)
        name, (private, public) = op.path["vmName"].lower(), addresses(self.counter)
        for thing in self.things.values():
            if thing.get("_vm") == name and thing["type"].endswith("publicIPAddresses"):
                thing["properties"]["ipAddress"] = public
            if thing.get("_vm") == name and thing["type"].endswith("networkInterfaces"):
                thing["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"] = private
        self.custom[name] = (op.body["properties"]["osProfile"]["customData"], private, public)
        return reply

    def machines(self):
        with self.lock:
            return [{"id": vm["name"].lower(), "name": vm["name"], "private": self.custom[vm["name"].lower()][1],
                     "public": self.custom[vm["name"].lower()][2]} for vm in self.vms()
                    if vm["properties"]["provisioningState"] != "Deleting" and vm["name"] not in self.off]

    def user_data(self, iid):
        return base64.b64decode(self.custom[iid][0])

    def powered_off(self, iid):
        self.off.add(iid)  # stopped, not deallocated: it is billed
        return "stopped"

    def left(self):
        with self.lock:
            return list(self.groups) + list(self.things)

    def sound(self):
        return self.faults == [] or self.faults


class HostedShadeform(ShadeformCloud):
    """cloud-init runs the startup script of a launch as root: it is user-data that begins with "#!"."""

    provider, limits, access = "shadeform", "", "{}"  # no firewall in its API, and no private addresses
    offer = "{provider: shadeform, regions: [hyperstack.canada-1], instance_type: A6000}"

    def __init__(self, **how):
        super().__init__(**how)
        self.at, self.off = {}, set()

    def env(self, home):
        return {"GPUPROV_SHADEFORM_ENDPOINT": self.url, "GPUPROV_SHADEFORM_PACE_MS": "0",
                "SHADEFORM_API_KEY": SHADEFORM_KEY, "HOME": str(home)}

    def create(self, op):
        made = super().create(op)
        self.at[made["id"]] = addresses(len(self.at))
        return made

    def step(self, i):
        super().step(i)
        if i["status"] == "active":
            i["ip"] = self.at[i["id"]][1]

    def machines(self):
        with self.lock:
            return [dict(zip(("private", "public"), self.at[i["id"]]), id=i["id"], name=i["name"])
                    for i in self.instances.values() if i["status"] in ("pending", "active") and i["id"] not in self.off]

    def user_data(self, iid):
        script = self.instances[iid]["launch_configuration"]["script_configuration"]["base64_script"]
        return base64.b64decode(script)

    def powered_off(self, iid):
        self.off.add(iid)  # it is billed until it is deleted
        return "stopped"


CLOUDS = [HostedAlibaba, HostedGoogle, HostedAzure, HostedLambda, HostedShadeform]
