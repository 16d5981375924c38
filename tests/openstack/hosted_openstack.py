# SPDX-License-Identifier: Apache-2.0
"""A real OpenStack whose servers are machines: behind every ACTIVE server of nova's fake hypervisors runs a systemd host
with the distribution's cloud-init, which gets the server's user-data and addresses.

    with OpenStackHosts(tmp_path) as lab:
        lab.run([gpuprov, "up", spec], env={**os.environ, **lab.cloud.env("gpu")})
        lab.host(server_id).sh("systemctl status")

OpenStack listens on loopback of the lab's network. Its operator's API gives the servers, neutron's floating IPs and the
user-data. A host that switched itself off is reported to nova, which has no hypervisor that would notice."""
import base64

import keystoneauth1.identity
import keystoneauth1.session
import lab_config as config
from mock_lab import MockLab
from openstack_lab import OpenStack

GATEWAY = "10.90.0.1"  # of the tenants' network (seed.py): no server gets it, and in the lab it is the bridge
MICROVERSION = {"OpenStack-API-Version": "compute 2.90"}


class Machines(OpenStack):
    """What Reconciler wants to know. call: runs a function in the lab's network."""

    def __init__(self, call, folder, **how):
        super().__init__(folder, **how)
        self.address = self.options["address"] = GATEWAY  # its servers reach it too
        self.call, self.session = call, None
        self.data = {}  # user-data by server
        self.seen = set()  # servers that had their address once: a host does not end because its floating IP goes first

    def __enter__(self):
        return self.call(super().__enter__)  # its processes inherit the network of the thread that starts them

    def _api(self, service, method, path, **body):
        if self.session is None:
            auth = self._cloud("admin")["auth"]
            self.session = keystoneauth1.session.Session(keystoneauth1.identity.V3Password(**auth))
        headers = MICROVERSION if service == "compute" else {}
        reply = self.call(self.session.request, config.url(self.address, service) + path, method, headers=headers, **body)
        return reply.json() if reply.content else None

    def machines(self):
        """Servers that run and have their floating IP: the lab's hosts get all addresses at once."""
        public = {a["fixed_ip_address"]: a["floating_ip_address"]
                  for a in self._api("network", "GET", "/v2.0/floatingips")["floatingips"] if a["fixed_ip_address"]}
        found = []
        for s in self._api("compute", "GET", "/servers/detail?all_tenants=1&status=ACTIVE")["servers"]:
            fixed = [a["addr"] for net in s["addresses"].values() for a in net if a["OS-EXT-IPS:type"] == "fixed"]
            self.data[s["id"]] = base64.b64decode(s["OS-EXT-SRV-ATTR:user_data"] or "")
            if s["id"] in self.seen or (fixed and fixed[0] in public):
                self.seen.add(s["id"])
                found.append({"id": s["id"], "private": fixed[0], "public": public.get(fixed[0]), "name": s["name"]})
        return found

    def user_data(self, iid):
        return self.data[iid]

    def powered_off(self, iid):
        self._api("compute", "POST", "/servers/%s/action" % iid, json={"os-stop": None})
        return "stopped"  # it is billed until it is deleted


class OpenStackHosts(MockLab):
    def __init__(self, tmp, base_dir=None, **how):
        super().__init__(tmp, lambda: Machines(self.call, self.tmp / "openstack", **how), base_dir=base_dir,
                         cidr=GATEWAY + "/16", pause=1)
