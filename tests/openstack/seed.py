# SPDX-License-Identifier: Apache-2.0
"""What the lab's cloud has: users, endpoints, zones, flavors, images, networks. Through the services' own APIs."""
import sys
import time

import lab_config as config
import keystoneauth1.identity
import keystoneauth1.session

MICROVERSION = {"OpenStack-API-Version": "compute 2.90"}
# name: vCPUs, MiB, GB, extra specs
FLAVORS = {"cpu.small": (1, 1024, 1, {}), "cpu.large": (4, 8192, 10, {}),
           "gpu.h100.1": (8, 65536, 100, {"pci_passthrough:alias": "h100:1"}),
           "gpu.h100.8": (64, 524288, 100, {"pci_passthrough:alias": "h100:8"}),
           "vgpu.1": (4, 8192, 10, {"resources:VGPU": "1"}),
           "no-disk": (2, 2048, 0, {}), "impossible": (4000, 1024, 1, {})}
PROJECTS = {"gpu": ("gpu", "colleague"), "other": ("stranger",)}


class Api:
    def __init__(self, address):
        self.at = {service: config.url(address, service) for service in config.PORTS}
        self.at["network"] += "/v2.0"
        self.at["image"] += "/v2"
        self.session = keystoneauth1.session.Session(keystoneauth1.identity.V3Password(
            auth_url=self.at["identity"], username="admin", password=config.PASSWORD, project_name="admin",
            user_domain_id="default", project_domain_id="default"))

    def __call__(self, method, service, path, body=None, data=None):
        headers = {"compute": MICROVERSION, "image": {"Content-Type": "application/octet-stream"} if data else {}}
        reply = self.session.request(self.at[service] + path, method, json=body, data=data, raise_exc=False,
                                     headers=headers.get(service, {}))
        print(method, service, path, reply.status_code, flush=True)
        if reply.status_code >= 400:
            sys.exit(reply.text)
        return reply.json() if reply.content and "json" in reply.headers.get("content-type", "") else None


def identity(address, _opt):
    api = Api(address)
    roles = {r["name"]: r["id"] for r in api("GET", "identity", "/roles")["roles"]}

    def project(name):
        return api("POST", "identity", "/projects", {"project": {"name": name, "domain_id": "default"}})["project"]["id"]

    def user(name, of, *mine):
        made = api("POST", "identity", "/users", {"user": {
            "name": name, "password": config.PASSWORD, "domain_id": "default", "default_project_id": of}})
        for role in mine:
            api("PUT", "identity", "/projects/%s/users/%s/roles/%s" % (of, made["user"]["id"], roles[role]))

    user("svc", project("service"), "admin")
    for name, users in PROJECTS.items():
        its = project(name)
        for one in users:
            user(one, its, "member", "reader")
    for service in ("placement", "image", "network", "compute"):
        made = api("POST", "identity", "/services", {"service": {"type": service, "name": service}})
        for interface in ("public", "internal", "admin"):
            api("POST", "identity", "/endpoints", {"endpoint": {
                "interface": interface, "service_id": made["service"]["id"], "region_id": config.REGION,
                "url": config.url(address, service)}})


def networks(api):
    """lab: the tenants' network, with a router to public, where floating addresses come from."""
    def network(name, cidr, **more):
        made = api("POST", "network", "/networks", {"network": {"name": name, **more}})["network"]
        subnet = api("POST", "network", "/subnets", {"subnet": {
            "network_id": made["id"], "name": name, "ip_version": 4, "cidr": cidr,
            "enable_dhcp": "router:external" not in more}})["subnet"]
        return made["id"], subnet["id"]

    _, inside = network("lab", "10.90.0.0/16", shared=True)
    public, _ = network("public", "203.0.113.0/24", **{
        "router:external": True, "provider:network_type": "flat", "provider:physical_network": "public"})
    router = api("POST", "network", "/routers", {"router": {
        "name": "lab", "external_gateway_info": {"network_id": public}}})["router"]["id"]
    api("PUT", "network", "/routers/%s/add_router_interface" % router, {"subnet_id": inside})


def cloud(address, opt):
    api = Api(address)
    for name, (cpus, mib, gb, extra) in FLAVORS.items():
        api("POST", "compute", "/flavors", {"flavor": {"id": name, "name": name, "vcpus": cpus, "ram": mib, "disk": gb}})
        if extra:
            api("POST", "compute", "/flavors/%s/os-extra_specs" % name, {"extra_specs": extra})
    for name, facts in (("tiny", {"os_distro": "debian", "os_version": "12"}),):
        image = api("POST", "image", "/images", {"name": name, "visibility": "public", "container_format": "bare",
                                                 "disk_format": "raw", **facts})["id"]
        api("PUT", "image", "/images/%s/file" % image, data=b"\0")
    networks(api)
    for name in PROJECTS:
        project = api("GET", "identity", "/projects?name=" + name)["projects"][0]["id"]
        api("PUT", "compute", "/os-quota-sets/" + project, {"quota_set": {
            "cores": 8000, "ram": 80000000, "instances": 500, "key_pairs": 200}})
        api("PUT", "network", "/quotas/" + project, {"quota": {"port": 1000}})
    zones(api, opt)


def zones(api, opt):
    for _ in range(600):
        there = {h["hypervisor_hostname"] for h in api("GET", "compute", "/os-hypervisors")["hypervisors"]}
        up = {s["host"] for s in api("GET", "compute", "/os-services?binary=nova-compute")["services"]
              if s["state"] == "up"}
        if there == up == set(opt["hosts"]):
            break
        time.sleep(0.2)
    else:
        sys.exit("compute hosts are missing: %s of %s" % (sorted(there & up), sorted(opt["hosts"])))
    made = {}
    for host in sorted(opt["hosts"]):
        zone = config.zone_of(host)
        if zone not in made:
            made[zone] = api("POST", "compute", "/os-aggregates", {"aggregate": {
                "name": zone, "availability_zone": zone}})["aggregate"]["id"]
        api("POST", "compute", "/os-aggregates/%s/action" % made[zone], {"add_host": {"host": host}})
