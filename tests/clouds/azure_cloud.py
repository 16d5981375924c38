# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Azure: the token service, the metadata service of a machine, Resource Manager with resource groups,
networks and virtual machines, and the public price list. Run alone: python tests/clouds/azure_cloud.py --port 0

It behaves as Azure does where a client must care: a machine is accepted and allocated later (fail_size: refused then,
with the object left behind), operations are polled, deletion takes time, a group is removed with all that it has,
lists have pages, ids come back in other cases, implicit interfaces and addresses have no tags."""
import base64
import copy
import json
import re
import threading
import time
import urllib.parse
import uuid

from azure_gate import Gate, Refused
from azure_rights import Rights
from mock import Fault, Mock  # noqa: UP026 (the file beside this one)

TENANT = "11111111-1111-1111-1111-111111111111"
CLIENT = "22222222-2222-2222-2222-222222222222"
SUBSCRIPTION = "33333333-3333-3333-3333-333333333333"
PRINCIPAL = "44444444-4444-4444-4444-444444444444"
SECRET = "the-client-secret"
MANAGER = "https://management.azure.com"

#        name, family, vCPUs, GiB, GPUs, spot, zones
SIZES = [("Standard_NC4as_T4_v3", "Standard NCASv3_T4 Family", 4, 28, 1, True, ["1", "2", "3"]),
         ("Standard_NC64as_T4_v3", "Standard NCASv3_T4 Family", 64, 440, 4, True, ["1", "2", "3"]),
         ("Standard_ND96isr_H100_v5", "standardNDSH100v5Family", 96, 1900, 8, True, ["2"]),
         ("Standard_NC40ads_H100_v5", "StandardNCadsH100v5Family", 40, 320, 1, True, []),
         ("Standard_NV36ads_A10_v5", "StandardNVADSA10v5Family", 36, 440, 1, True, ["1"]),
         ("Standard_B2s", "standardBSFamily", 2, 4, 0, False, ["1", "2", "3"])]
PRICES = {"Standard_NC4as_T4_v3": (0.53, 0.21), "Standard_B2s": (0.0416, None), "Standard_NC64as_T4_v3": (4.4, 1.7)}
DISK_PRICES = {"P4 LRS": 5.28, "P10 LRS": 19.71, "P20 LRS": 73.22, "P50 LRS": 495.57}  # USD a month, eastus
IMAGE_GIB = 30  # of every image: what its disk needs at least
INFINIBAND = {"Standard_ND96isr_H100_v5"}
REGIONS = ["eastus", "westeurope"]


def error(status, code, message, headers=None):
    return Fault(status, {"error": {"code": code, "message": message}}, headers)


def jwt(claims):
    def part(o):
        return base64.urlsafe_b64encode(json.dumps(o).encode()).rstrip(b"=").decode()
    return ".".join([part({"alg": "RS256", "typ": "JWT"}), part(claims), part({"n": uuid.uuid4().hex})])


class Azure(Rights, Mock):
    """Knobs: ready_after: polls until an operation ends; page: entries of a page; fail_size: {size: error code} of
    allocations that fail after acceptance, fail_name: {part of a machine's name: error code}; refuse_size: {size:
    (status, code, message)}; quota: {family: limit}; upper_groups: groups come back in upper case, as some of Azure's
    lists do; restricted: sizes that the subscription may not have; any_version: other API versions are taken too
    (the SDK's)."""

    def __init__(self, **how):
        super().__init__(**how)
        self.gate = Gate()
        self.ready_after, self.page, self.any_version, self.upper_groups = 1, 50, False, False
        self.fail_size, self.fail_name, self.refuse_size, self.quota, self.restricted = {}, {}, {}, {}, set()
        self.tokens, self.operations, self.faults = set(), {}, []
        self.groups, self.things = {}, {}  # lower-case name: group; (group, type, name): thing
        self.assertion, self.lifetime_s, self.counter, self.after = None, 3599, 0, "0"  # after: seconds between two polls
        self.begin_rights(SUBSCRIPTION, TENANT)

    # --- tokens ---

    def token(self, **claims):
        made = jwt({"aud": MANAGER, "oid": PRINCIPAL, "appid": CLIENT, "tid": TENANT, "exp": int(time.time()) + 3600,
                    **claims})
        self.tokens.add(made)
        return made

    def give_token(self, headers, body):
        if headers.get("content-type") != "application/x-www-form-urlencoded":
            raise Fault(400, {"error": "invalid_request", "error_description": "AADSTS900144: not a form"})
        form = dict(urllib.parse.parse_qsl(body.decode()))
        wrong = None
        if form.get("grant_type") != "client_credentials" or form.get("scope", "").split(" ")[0] != MANAGER + "/.default":
            wrong = "AADSTS70011: grant or scope"
        elif form.get("client_id") != CLIENT:
            wrong = "AADSTS700016: Application not found"
        elif "client_assertion" in form:
            if form.get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" or \
                    self.assertion is None or not self.assertion(form["client_assertion"]):
                wrong = "AADSTS700027: Client assertion failed signature validation"
        elif form.get("client_secret") != SECRET:
            wrong = "AADSTS7000215: Invalid client secret provided"
        if wrong:
            raise Fault(401, {"error": "invalid_client", "error_description": wrong, "error_codes": [1]})
        return 200, {}, {"token_type": "Bearer", "expires_in": self.lifetime_s, "access_token": self.token()}

    def metadata_token(self, target, headers):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target).query))
        if headers.get("metadata") != "true" or query.get("api-version") != "2018-02-01" or \
                query.get("resource", "").rstrip("/") != MANAGER:
            raise Fault(400, {"error": "invalid_request", "error_description": "Required metadata header not specified"})
        return 200, {}, {"access_token": self.token(), "client_id": CLIENT, "expires_in": "3600",
                         "expires_on": str(int(time.time()) + 3600), "resource": query["resource"],
                         "token_type": "Bearer"}

    # --- operations that take time ---

    def begin(self, done, fail=None):
        name = str(uuid.uuid4())
        self.operations[name] = {"left": self.ready_after, "done": done, "fail": fail}
        return "%s/subscriptions/%s/providers/Microsoft.Compute/locations/eastus/operations/%s?api-version=2025-04-01" % (
            self.url, SUBSCRIPTION, name)

    def poll(self, name, monitor):
        o = self.operations.get(name)
        if o is None:
            raise error(404, "NotFound", "no such operation")
        o["left"] -= 1
        if o["left"] >= 0:
            return (202, {"Location": self.url + self.target, "Retry-After": "0"}, None) if monitor else \
                (200, {"Retry-After": self.after}, {"status": "InProgress", "startTime": "2026-01-01T00:00:00Z"})
        if o["done"]:
            o["done"]()
            o["done"] = None
        failed = {"status": "Failed", "error": o["fail"]}
        return 200, {}, None if monitor else failed if o["fail"] else {"status": "Succeeded"}

    # --- requests ---

    def handle(self, method, target, headers, body):
        self.target, path = target, urllib.parse.urlsplit(target).path
        if method == "GET" and path == "/%s/v2.0/.well-known/openid-configuration" % TENANT:  # the SDK reads it
            base = "%s/%s" % (self.url, TENANT)
            return 200, {}, {"token_endpoint": base + "/oauth2/v2.0/token", "issuer": base + "/v2.0",
                             "authorization_endpoint": base + "/oauth2/v2.0/authorize"}
        if method == "POST" and path == "/%s/oauth2/v2.0/token" % TENANT:
            return self.give_token(headers, body)
        if path.endswith("/oauth2/v2.0/token"):
            raise Fault(400, {"error": "invalid_request", "error_description": "AADSTS90002: Tenant not found"})
        if path == "/metadata/identity/oauth2/token" or (self.machine and path.startswith("/metadata/")):
            return (self.machine_metadata if self.machine else self.metadata_token)(target, headers)
        if path == "/api/retail/prices":
            return self.retail(target)
        if path == "/checkip":
            return 200, {}, b"198.51.100.7\n"
        if headers.get("authorization", "")[7:] not in self.tokens:
            raise error(401, "InvalidAuthenticationToken", "The access token is invalid.")
        self.check_identity(method, path, headers)
        polled = re.search(r"/(operations|operationresults)/([-0-9a-f]+)$", path)
        if polled and method == "GET":
            return self.poll(polled[2], polled[1] == "operationresults")
        try:
            op = self.gate.check(method, target, headers, body, self.any_version)
        except Refused as e:
            self.faults.append(str(e))
            raise error(400, "InvalidRequestContent", str(e)) from e
        if op.path.get("subscriptionId", SUBSCRIPTION) != SUBSCRIPTION:
            raise error(404, "SubscriptionNotFound", "The subscription could not be found.")
        status, extra, obj = getattr(self, op.name)(op, headers)
        try:
            self.gate.answer(op, status, obj)
        except Refused as e:
            self.faults.append(str(e))
            raise
        return status, extra, obj

    def retail(self, target):
        wanted = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target).query))["$filter"]
        region = re.search(r"armRegionName eq '([^']*)'", wanted)[1]
        items = self.disk_prices(wanted, region) if "serviceName eq 'Storage'" in wanted else \
            self.machine_prices(wanted, region)
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target).query))
        start = int(query.get("$skip", 0))
        reply = {"Items": items[start:start + self.page], "NextPageLink": None, "Count": len(items)}
        if start + self.page < len(items):  # with a port, as the real one
            reply["NextPageLink"] = "https://prices.azure.com:443%s&$skip=%d" % (
                re.sub(r"&\$skip=\d+", "", self.target), start + self.page)
        return 200, {}, reply

    @staticmethod
    def machine_prices(wanted, region):
        items = []
        for name in re.findall(r"armSkuName eq '([^']*)'", wanted):
            plain, spot = PRICES.get(name, (None, None))
            for price, product, meter in [(plain, "Virtual Machines X Series", "X"),
                                          (spot, "Virtual Machines X Series", "X Spot"),
                                          (plain and plain * 2, "Virtual Machines X Series Windows", "X"),
                                          (plain and plain / 5, "Virtual Machines X Series", "X Low Priority")]:
                if price:
                    items.append({"currencyCode": "USD", "retailPrice": price, "unitPrice": price, "armRegionName": region,
                                  "armSkuName": name, "productName": product, "meterName": meter, "skuName": meter,
                                  "serviceName": "Virtual Machines", "type": "Consumption", "unitOfMeasure": "1 Hour"})
        return items

    @staticmethod
    def disk_prices(wanted, region):
        """Of eastus only. A disk has a second row, for each further machine that shares it."""
        sku = re.search(r"productName eq 'Premium SSD Managed Disks' and skuName eq '([^']*)'", wanted)[1]
        price = DISK_PRICES.get(sku) if region == "eastus" else None
        return [{"currencyCode": "USD", "retailPrice": usd, "unitPrice": usd, "armRegionName": region, "armSkuName": "",
                 "productName": "Premium SSD Managed Disks", "meterName": sku + meter, "skuName": sku,
                 "serviceName": "Storage", "type": "Consumption", "unitOfMeasure": "1/Month"}
                for usd, meter in [(price, " Disk"), (price and price / 10, " Disk Mount")] if usd]

    # --- what there is ---

    def paged(self, items):
        plain = re.sub(r"&%24skiptoken=\d+", "", self.target)
        at = re.search(r"%24skiptoken=(\d+)", self.target)
        start = int(at[1]) if at else 0
        reply = {"value": items[start:start + self.page]}
        if start + self.page < len(items):
            reply["nextLink"] = "%s%s&%%24skiptoken=%d" % (self.url, plain, start + self.page)
        return 200, {}, reply

    def group(self, op):
        name = op.path["resourceGroupName"].lower()
        if name not in self.groups:
            raise error(404, "ResourceGroupNotFound", "Resource group '%s' could not be found." % name)
        return name

    @staticmethod
    def id_of(group, kind, name):
        return "/subscriptions/%s/resourceGroups/%s/providers/%s/%s" % (SUBSCRIPTION, group, kind, name)

    def of_group(self, group, kind):
        made = [t for (g, k, _), t in sorted(self.things.items()) if g == group and k == kind]
        made = [{k: v for k, v in t.items() if not k.startswith("_")} for t in copy.deepcopy(made)]
        return self.upper(group, made)

    def upper(self, group, made):
        for t in made if self.upper_groups else []:
            t["id"] = t["id"].replace("/resourceGroups/" + group, "/resourceGroups/" + group.upper())
        return made

    def put_thing(self, group, kind, name, thing):
        self.things[group, kind, name.lower()] = thing
        thing.update(id=self.id_of(group, kind, name), name=name, type=kind)
        return thing

    def drop_vm(self, group, name):
        """With its interface, address and disk: deleteOption Delete."""
        self.things.pop((group, "Microsoft.Compute/virtualMachines", name), None)
        for kind in ("Microsoft.Compute/disks", "Microsoft.Network/networkInterfaces",
                     "Microsoft.Network/publicIPAddresses"):
            for key in [k for k, t in self.things.items() if k[:2] == (group, kind) and t["_vm"] == name]:
                del self.things[key]

    def vms(self):
        return [t for (_, k, _), t in sorted(self.things.items()) if k == "Microsoft.Compute/virtualMachines"]

    # --- subscriptions and sizes ---

    def Subscriptions_Get(self, op, headers):
        return 200, {}, {"id": "/subscriptions/" + SUBSCRIPTION, "subscriptionId": SUBSCRIPTION, "displayName": "Lab",
                         "state": "Enabled", "authorizationSource": "RoleBased"}

    def Subscriptions_ListLocations(self, op, headers):
        return 200, {}, {"value": [{"name": r, "displayName": r} for r in REGIONS]}

    def ResourceSkus_List(self, op, headers):
        region = re.fullmatch(r"location eq '([a-z0-9]+)'", op.query["$filter"])[1]
        items = []
        for name, family, cpus, gib, gpus, spot, zones in SIZES:
            values = {"vCPUs": cpus, "MemoryGB": gib, "LowPriorityCapable": spot, "CpuArchitectureType": "x64",
                      "RdmaEnabled": name in INFINIBAND}
            if gpus:
                values["GPUs"] = gpus
            closed = [{"type": "Location", "values": [region], "reasonCode": "NotAvailableForSubscription",
                       "restrictionInfo": {"locations": [region]}}] if name in self.restricted else []
            items.append({"resourceType": "virtualMachines", "name": name, "family": family, "locations": [region],
                          "locationInfo": [{"location": region, "zones": zones}], "restrictions": closed,
                          "capabilities": [{"name": k, "value": str(v)} for k, v in values.items()]})
        items.insert(2, {"resourceType": "disks", "name": "Premium_LRS", "locations": [region]})
        return self.paged(items)

    def Usage_List(self, op, headers):
        rows = {f: self.quota.get(f, 1000) for f in sorted({s[1] for s in SIZES})}
        rows["lowPriorityCores"] = self.quota.get("lowPriorityCores", 1000)
        return self.paged([{"unit": "Count", "currentValue": 0, "limit": v, "name": {"value": k, "localizedValue": k}}
                           for k, v in rows.items()])

    # --- groups ---

    def shown(self, g):
        return {k: v for k, v in copy.deepcopy(g).items() if not k.startswith("_")}

    def ResourceGroups_CreateOrUpdate(self, op, headers):
        name, new = op.path["resourceGroupName"], op.path["resourceGroupName"].lower() not in self.groups
        old = self.groups.get(name.lower())
        if old and old["properties"]["provisioningState"] == "Deleting":
            raise error(409, "ResourceGroupBeingDeleted", "The resource group is in deprovisioning state.")
        if old and old["location"] != op.body["location"]:
            raise error(409, "InvalidResourceGroupLocation", "Invalid resource group location.")
        g = dict(op.body, id="/subscriptions/%s/resourceGroups/%s" % (SUBSCRIPTION, name), name=name,
                 type="Microsoft.Resources/resourceGroups", properties={"provisioningState": "Succeeded"})
        self.groups[name.lower()] = g
        return (201 if new else 200), {}, self.shown(g)

    def ResourceGroups_Get(self, op, headers):
        return 200, {}, self.shown(self.groups[self.group(op)])

    def ResourceGroups_List(self, op, headers):
        wanted = re.fullmatch(r"tagName eq '([^']*)' and tagValue eq '([^']*)'", op.query.get("$filter", ""))
        if not wanted and "$filter" in op.query:
            raise error(400, "InvalidFilterInQueryString", op.query["$filter"])
        return self.paged([self.shown(g) for _, g in sorted(self.groups.items())
                           if not wanted or g.get("tags", {}).get(wanted[1]) == wanted[2]])

    def ResourceGroups_Delete(self, op, headers):
        name = self.group(op)
        self.groups[name]["properties"]["provisioningState"] = "Deleting"

        def gone():
            self.groups.pop(name, None)
            for key in [k for k in self.things if k[0] == name]:
                del self.things[key]
        self.later(gone)
        url = self.begin(gone).replace("/operations/", "/operationresults/")
        return 202, {"Location": url, "Retry-After": "0"}, None

    def later(self, action, seconds=0.2):
        def run():
            with self.lock:
                action()
        timer = threading.Timer(seconds, run)
        timer.daemon = True
        timer.start()

    def Resources_ListByResourceGroup(self, op, headers):
        name = self.group(op)
        return self.paged([{k: t[k] for k in ("id", "name", "type", "location", "tags") if k in t}
                           for (g, _, _), t in sorted(self.things.items()) if g == name])

    def Tags_UpdateAtScope(self, op, headers):
        scope = op.path["scope"].lower()
        there = [g for n, g in self.groups.items() if scope.endswith("/resourcegroups/" + n)]
        there += [t for t in self.things.values() if t["id"].lower().lstrip("/") == scope.lstrip("/")]
        if not there or op.body["operation"] != "Merge":
            raise error(404, "ResourceNotFound", "The resource was not found.")
        tags = there[0].setdefault("tags", {})
        tags.update(op.body["properties"]["tags"])
        return 200, {}, {"properties": {"tags": dict(tags)}}

    # --- networks ---

    def put_network(self, op, kind, name):
        group = self.group(op)
        key = (group, "Microsoft.Network/" + kind, name.lower())
        new = key not in self.things
        body = copy.deepcopy(op.body)
        body["properties"] = dict(body.get("properties", {}), provisioningState="Updating")
        thing = self.put_thing(group, "Microsoft.Network/" + kind, name, body)
        thing["_reads"] = self.ready_after
        return (201 if new else 200), {"Retry-After": "0", "Azure-AsyncOperation": self.begin(lambda: None)}, \
            self.shown(thing)

    def get_network(self, op, kind, name):
        thing = self.things.get((self.group(op), "Microsoft.Network/" + kind, name.lower()))
        if thing is None:
            raise error(404, "ResourceNotFound", "The Resource '%s' was not found." % name)
        thing["_reads"] -= 1
        if thing["_reads"] <= 0:
            thing["properties"]["provisioningState"] = "Succeeded"
        return 200, {"Retry-After": "0"}, self.shown(thing)

    def NetworkSecurityGroups_CreateOrUpdate(self, op, headers):
        for rule in op.body["properties"].get("securityRules", []):
            families = {":" in p for p in rule["properties"].get("sourceAddressPrefixes", [])}
            if len(families) != 1:
                raise error(400, "SecurityRuleInvalidAddressPrefix", "Rules have one family of addresses.")
        return self.put_network(op, "networkSecurityGroups", op.path["networkSecurityGroupName"])

    def NetworkSecurityGroups_Get(self, op, headers):
        return self.get_network(op, "networkSecurityGroups", op.path["networkSecurityGroupName"])

    def VirtualNetworks_CreateOrUpdate(self, op, headers):
        return self.put_network(op, "virtualNetworks", op.path["virtualNetworkName"])

    def VirtualNetworks_Get(self, op, headers):
        return self.get_network(op, "virtualNetworks", op.path["virtualNetworkName"])

    def delete_network(self, op, kind, name, code):
        group = self.group(op)
        if any(k[:2] == (group, "Microsoft.Network/networkInterfaces") for k in self.things):
            raise error(400, code, "It is in use by a network interface.")
        self.things.pop((group, "Microsoft.Network/" + kind, name.lower()), None)
        return 202, {"Location": self.begin(lambda: None), "Retry-After": "0"}, None

    def NetworkSecurityGroups_Delete(self, op, headers):
        return self.delete_network(op, "networkSecurityGroups", op.path["networkSecurityGroupName"],
                                   "InUseNetworkSecurityGroupCannotBeDeleted")

    def VirtualNetworks_Delete(self, op, headers):
        return self.delete_network(op, "virtualNetworks", op.path["virtualNetworkName"], "InUseSubnetCannotBeDeleted")

    def NetworkSecurityGroups_List(self, op, headers):
        return self.paged(self.of_group(self.group(op), "Microsoft.Network/networkSecurityGroups"))

    def VirtualNetworks_List(self, op, headers):
        return self.paged(self.of_group(self.group(op), "Microsoft.Network/virtualNetworks"))

    def NetworkInterfaces_List(self, op, headers):
        return self.paged(self.of_group(self.group(op), "Microsoft.Network/networkInterfaces"))

    def PublicIPAddresses_List(self, op, headers):
        return self.paged(self.of_group(self.group(op), "Microsoft.Network/publicIPAddresses"))

    def Disks_ListByResourceGroup(self, op, headers):
        return self.paged(self.of_group(self.group(op), "Microsoft.Compute/disks"))

    def Disks_Delete(self, op, headers):
        self.things.pop((self.group(op), "Microsoft.Compute/disks", op.path["diskName"].lower()), None)
        return 202, {}, None

    # --- availability sets ---

    def AvailabilitySets_CreateOrUpdate(self, op, headers):
        properties = op.body.get("properties", {})
        if op.body.get("sku", {}).get("name") != "Aligned":
            raise error(400, "OperationNotAllowed", "Managed disks need an aligned availability set.")
        if not 1 <= properties.get("platformFaultDomainCount", 2) <= 3:
            raise error(400, "InvalidParameter", "The specified fault domain count must fall in the range 1 to 3.")
        thing = self.put_thing(self.group(op), "Microsoft.Compute/availabilitySets", op.path["availabilitySetName"],
                               copy.deepcopy(op.body))
        return 200, {}, self.shown(thing)

    def members(self, thing):
        return [v for v in self.vms() if v["properties"].get("availabilitySet", {}).get("id", "").lower() == thing["id"].lower()]

    def AvailabilitySets_List(self, op, headers):
        return self.paged(self.of_group(self.group(op), "Microsoft.Compute/availabilitySets"))

    def AvailabilitySets_Delete(self, op, headers):
        key = (self.group(op), "Microsoft.Compute/availabilitySets", op.path["availabilitySetName"].lower())
        if key not in self.things:
            return 204, {}, None
        if self.members(self.things[key]):
            raise error(409, "OperationNotAllowed", "Availability Set '%s' cannot be deleted. Before deleting an Availability "
                        "Set please ensure that it does not contain any VM." % key[2])
        del self.things[key]
        return 200, {}, None

    def check_set(self, op, group):
        """A set has no zones and no spot machines, and one size: its machines are on the same hardware."""
        named = op.body["properties"].get("availabilitySet", {}).get("id")
        if named is None:
            return
        thing = self.things.get((group, "Microsoft.Compute/availabilitySets", named.split("/")[-1].lower()))
        if thing is None or thing["id"].lower() != named.lower():
            raise error(404, "InvalidResourceReference", "Resource %s referenced was not found." % named)
        if op.body.get("zones"):
            raise error(400, "BadRequest", "Virtual Machine cannot be created because both Availability Zone and "
                        "Availability Set were specified.")
        if op.body["properties"].get("priority") == "Spot":
            raise error(409, "OperationNotAllowed", "A spot virtual machine cannot be in an availability set.")
        size = op.body["properties"]["hardwareProfile"]["vmSize"]
        if any(v["properties"]["hardwareProfile"]["vmSize"] != size for v in self.members(thing)):
            raise error(409, "AllocationFailed", "The size is not available in the cluster of the availability set.")

    # --- machines ---

    def vm(self, op):
        group = self.group(op)
        found = self.things.get((group, "Microsoft.Compute/virtualMachines", op.path["vmName"].lower()))
        if found is None:
            raise error(404, "ResourceNotFound", "The virtual machine '%s' was not found." % op.path["vmName"])
        return group, found

    def network_of(self, op, group):
        one = op.body["properties"]["networkProfile"]["networkInterfaceConfigurations"][0]["properties"]
        ip = one["ipConfigurations"][0]["properties"]
        for path in (one["networkSecurityGroup"]["id"], ip["subnet"]["id"].split("/subnets/")[0]):
            parts = path.split("/")
            there = self.things.get((parts[4].lower(), "/".join(parts[6:8]), parts[8].lower()))
            if there is None and parts[4].lower() == group:
                raise error(404, "InvalidResourceReference", "Resource %s referenced was not found." % path)
            if there is not None and there["properties"]["provisioningState"] != "Succeeded":
                raise error(429, "ReferencedResourceNotProvisioned", "%s is not in Succeeded state." % path,
                            {"Retry-After": "0"})
        return ip

    def VirtualMachines_CreateOrUpdate(self, op, headers):
        group, name = self.group(op), op.path["vmName"]
        if self.groups[group]["properties"]["provisioningState"] == "Deleting":
            raise error(409, "ResourceGroupBeingDeleted", "The resource group is in deprovisioning state.")
        size = op.body["properties"]["hardwareProfile"]["vmSize"]
        old = self.things.get((group, "Microsoft.Compute/virtualMachines", name.lower()))
        if old is not None and headers.get("if-none-match") == "*":
            raise error(412, "PreconditionFailed", "The condition '*' in the If-None-Match header was not satisfied.")
        disk = op.body["properties"]["storageProfile"]["osDisk"].get("diskSizeGB", IMAGE_GIB)
        if disk < IMAGE_GIB:
            raise error(409, "OperationNotAllowed", "The specified disk size %d GB is smaller than the size of the "
                        "corresponding disk in the VM image: %d GB. This is not allowed." % (disk, IMAGE_GIB))
        if disk > 4095:
            raise error(400, "InvalidParameter", "The value '%d' of parameter 'osDisk.diskSizeGB' is out of range." % disk)
        if size in self.refuse_size:
            status, code, message = self.refuse_size[size]
            raise error(status, code, message)
        self.check_set(op, group)
        ip = self.network_of(op, group)
        properties = copy.deepcopy(op.body["properties"])
        base64.b64decode(properties["osProfile"].pop("customData", ""), validate=True)
        properties.update(provisioningState="Creating", vmId=str(uuid.uuid4()))
        configurations = properties["networkProfile"].pop("networkInterfaceConfigurations")
        properties["networkProfile"].pop("networkApiVersion")
        thing = self.put_thing(group, "Microsoft.Compute/virtualMachines", name,
                               dict(self.identified(op.body), properties=properties))
        thing["_power"], low = None, name.lower()
        code = self.fail_size.get(size) or next((c for part, c in self.fail_name.items() if part in low), None)
        self.counter += 1
        address = "127.77.0.%d" % (self.counter % 250 + 1)  # nobody listens there
        nic, pip = configurations[0]["name"], None
        place = {"location": op.body["location"]}
        if "publicIPAddressConfiguration" in ip:
            pip = self.put_thing(group, "Microsoft.Network/publicIPAddresses", nic, dict(place, _vm=low, properties={
                "ipAddress": address, "publicIPAllocationMethod": "Static", "provisioningState": "Succeeded"}))
        refer = {"publicIPAddress": {"id": pip["id"]}} if pip else {}
        self.put_thing(group, "Microsoft.Network/networkInterfaces", nic, dict(place, _vm=low, properties={
            "provisioningState": "Succeeded", "virtualMachine": {"id": thing["id"]}, "ipConfigurations": [
                {"name": "main", "properties": dict(refer, privateIPAddress="10.71.0.%d" % (self.counter % 250 + 4))}]}))
        properties["networkProfile"]["networkInterfaces"] = [
            {"id": self.id_of(group, "Microsoft.Network/networkInterfaces", nic)}]
        if not code:
            self.put_thing(group, "Microsoft.Compute/disks", name + "_OsDisk_1", dict(
                place, _vm=low, managedBy=thing["id"], tags=dict(op.body.get("tags", {})),
                properties={"creationData": {"createOption": "FromImage"}, "provisioningState": "Succeeded",
                            "diskSizeGB": disk}))

        def ready():
            properties["provisioningState"] = "Failed" if code else "Succeeded"
            thing["_power"] = None if code else "running"
            thing["_code"] = code
        fail = {"code": code, "message": "Allocation failed. We do not have sufficient capacity."} if code else None
        url = self.begin(ready, fail)
        thing["_operation"] = self.operations[re.search(r"operations/([-0-9a-f]+)", url)[1]]
        return 201, {"Azure-AsyncOperation": url, "Retry-After": self.after}, self.shown(thing)

    def view(self, thing):
        state = thing["properties"]["provisioningState"].lower()
        codes = ["ProvisioningState/" + state + ("/" + thing["_code"] if state == "failed" else "")]
        if thing["_power"]:
            codes.append("PowerState/" + thing["_power"])
        return {"statuses": [{"code": c, "level": "Info", "displayStatus": c} for c in codes]}

    def VirtualMachines_Get(self, op, headers):
        group, thing = self.vm(op)
        o = thing["_operation"]  # it goes on although nobody polls it
        o["left"] -= 1
        if o["left"] < 0 and o["done"]:
            o["done"]()
            o["done"] = None
        [made] = self.upper(group, [self.shown(thing)])
        if op.query.get("$expand") == "instanceView":
            made["properties"]["instanceView"] = self.view(thing)
        return 200, {}, made

    def VirtualMachines_InstanceView(self, op, headers):
        return 200, {}, self.view(self.vm(op)[1])

    def VirtualMachines_List(self, op, headers):
        return self.paged(self.of_group(self.group(op), "Microsoft.Compute/virtualMachines"))

    def VirtualMachines_Delete(self, op, headers):
        group = self.group(op)
        name = op.path["vmName"].lower()
        thing = self.things.get((group, "Microsoft.Compute/virtualMachines", name))
        if thing is None:
            return 204, {}, None
        thing["properties"]["provisioningState"] = "Deleting"

        def gone():
            self.drop_vm(group, name)
        self.later(gone)
        return 202, {"Azure-AsyncOperation": self.begin(gone), "Retry-After": "0"}, None

    # --- for tests ---

    def environment(self, **more):
        return {"AZURE_TENANT_ID": TENANT, "AZURE_CLIENT_ID": CLIENT, "AZURE_CLIENT_SECRET": SECRET,
                "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION, "AZURE_AUTHORITY_HOST": self.url,
                "GPUPROV_AZURE_ENDPOINT": self.url, "GPUPROV_AZURE_PRICES_ENDPOINT": self.url,
                "GPUPROV_CHECKIP_URL": self.url + "/checkip", **more}


def main():
    import argparse
    parser = argparse.ArgumentParser(description="A stand-in for Azure. Prints its environment, and runs until it is "
                                                 "interrupted.")
    parser.add_argument("--port", type=int, default=0)
    with Azure(port=parser.parse_args().port) as cloud:
        for name, value in cloud.environment().items():
            print("export %s=%s" % (name, value), flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
