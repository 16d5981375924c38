# SPDX-License-Identifier: Apache-2.0
"""The clouds' stand-ins with a real host behind every machine (MockLab): what each gives the reconciler."""
from google_cloud import Google
from lambda_cloud import KEY, LambdaCloud
from mock_lab import addresses


class HostedLambda(LambdaCloud):
    provider, offer = "lambda", "{provider: lambda, regions: [us-east-1]}"
    limits = "unattended: accept"  # no deadline of its own

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
    provider, offer, limits = "google", "{provider: google, regions: [us-central1]}", ""

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


CLOUDS = [HostedLambda, HostedGoogle]
