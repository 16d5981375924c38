# SPDX-License-Identifier: Apache-2.0
"""The clouds' stand-ins with a real host behind every machine (MockLab): what each gives the reconciler."""
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


CLOUDS = [HostedLambda]
