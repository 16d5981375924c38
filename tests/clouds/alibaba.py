# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Alibaba Cloud: ECS, VPC and STS in the RPC form, and the metadata service of an instance.

    with Alibaba() as cloud:
        run(env=cloud.environment())
    python tests/clouds/alibaba.py --port 0

Every signature is recomputed, every request and every reply is checked against api/alibaba.json. The attributes of the
class are the knobs. Rules (mock.py) see the action as the path: cloud.rule("RunInstances", "drop_after")."""
import base64
import calendar
import hashlib
import json
import re
import sys
import time
import uuid
from urllib.parse import parse_qsl

from alibaba_gate import API, Gateway, check_reply, fault, interfaces, new_id, now_text
from mock import Fault  # noqa: UP026

REGION = "ap-southeast-1"
ZONES = ["ap-southeast-1a", "ap-southeast-1b"]
DISK_PRICE = 0.0002  # of a GiB and hour
TYPES = {  # GPUs, GPU, GPU memory, cores, memory, price with a disk of 100 GiB
    "ecs.gn6i-c4g1.xlarge": (1, "NVIDIA T4", 16, 4, 15, 1.25), "ecs.gn6i-c8g1.2xlarge": (1, "NVIDIA T4", 16, 8, 31, 1.48),
    "ecs.gn6i-c24g1.12xlarge": (2, "NVIDIA T4", 16, 48, 186, 4.89), "ecs.gn6v-c8g1.2xlarge": (1, "NVIDIA V100", 16, 8, 32, 3.8),
    "ecs.gn6e-c12g1.3xlarge": (1, "NVIDIA V100", 32, 12, 92, 4.9), "ecs.vgn6i-m4.xlarge": (1, "NVIDIA T4/4", 4, 4, 23, 0.5),
    "ecs.sgn7i-vws-m2.xlarge": (1, "NVIDIA A10*1/12", 2, 4, 15.5, 0.3),
    "ecs.gn7e-c16g1.32xlarge": (8, "NVIDIA A100 80GB", 80, 128, 1000, 41.9), "ecs.c7.large": (0, "", 0, 2, 4, 0.09),
    "ecs.ebmgn7ix.32xlarge": (8, "NVIDIA A10", 24, 128, 512, 11.4), "ecs.ebmgn8v.48xlarge": (8, "", 96, 192, 1024, 60.0),
    "ecs.ebmgn8ti.48xlarge": (8, "", 96, 192, 1536, 64.0),
}
# interfaces, elastic RDMA interfaces, network cards, queue pairs
NETWORK = {"ecs.ebmgn7ix.32xlarge": (16, 1, 1, 131071), "ecs.ebmgn8v.48xlarge": (20, 2, 2, 262143),
           "ecs.ebmgn8ti.48xlarge": (2, 4, 1, 0)}


# --- the cloud ---

class Alibaba(Gateway):
    ready_after = 2        # lists until an instance runs
    gone_after = 1         # lists that still show a released instance
    page_max = 100         # entries of a page
    keep_release = True    # AutoReleaseTime is kept
    late_release = 0       # so many DescribeInstances do not show it yet
    default_network = True
    currency = "USD"
    leave_disks = False    # a released instance leaves its disk behind
    leave_nics = False     # and its interfaces beside the primary one
    late_nics = 0          # so many lists of instances or interfaces do not show these yet
    own_nics = ()          # interfaces of the account that each new instance gets: {"kind", "mode", "name"}
    order_ids = True       # RunInstances returns ids in the order of the names

    def __init__(self, **how):
        self.stock = {(t, z): 1000 for t in TYPES for z in ZONES}
        self.quota = 1000
        self.vcpus = {"postpaid": 10000, "spot": 10000}  # quotas by market
        self.instances, self.disks, self.nics, self.groups, self.pairs = {}, {}, {}, {}, {}
        self.vpcs, self.vswitches, self.clients = {}, {}, {}
        super().__init__(**how)

    def __enter__(self):
        if self.default_network:
            self.vpcs["vpc-default0001"] = {"region": REGION, "default": True, "net": "172.31.0.0/16", "tags": {}, "left": 0}
            for n, zone in enumerate(ZONES):
                self.vswitches["vsw-default000%d" % n] = {"region": REGION, "zone": zone, "vpc": "vpc-default0001",
                                                          "default": True, "tags": {}, "left": 0, "net": "172.31.%d.0/20" % (16 * n)}
        return super().__enter__()

    def environment(self, **more):
        env = {"ALIBABA_CLOUD_ACCESS_KEY_ID": "LTAItest", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "test-secret",
               "ALIBABA_CLOUD_REGION_ID": REGION, "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true",
               "GPUPROV_ALIBABA_ENDPOINT": self.url, "GPUPROV_ALIBABA_METADATA": self.url}
        env.update(more)
        return {k: v for k, v in env.items() if v is not None}

    def left(self):
        """Everything that somebody would have to pay for or to clean up."""
        self.settle()
        own = [k for k, v in self.vpcs.items() if not v["default"]] + [k for k, v in self.vswitches.items() if not v["default"]]
        return (sorted(self.instances) + sorted(self.disks) + sorted(self.nics) + sorted(self.groups) + sorted(own) +
                sorted(name for _, name in self.pairs))

    def settle(self):
        """Time passes: released instances are gone, those whose time has come are released."""
        for iid, one in list(self.instances.items()):
            if one["release"] and calendar.timegm(time.strptime(one["release"], "%Y-%m-%dT%H:%M:%SZ")) <= self.now():
                self.release(iid)
        for iid in [i for i, one in self.instances.items() if one["gone"] is not None]:
            self.remove(iid)

    def handle(self, method, target, headers, body):
        action = headers.get("x-acs-action")
        if not action:
            return self.metadata(method, target, headers)
        query = target.partition("?")[2]
        pairs = parse_qsl(query, keep_blank_values=True)
        key = None if action == "AssumeRoleWithOIDC" and "authorization" not in headers else \
            self.authorize(method, "/", pairs, headers, body)
        if body and headers.get("content-type") != "application/x-www-form-urlencoded":
            raise fault(400, "InvalidParameter", "a body of the type %r" % headers.get("content-type"))
        q = self.described(action, headers.get("x-acs-version"), pairs + parse_qsl(body.decode(), keep_blank_values=True))
        self.settle_some()
        if "RegionId" in q and q["RegionId"] != REGION and action not in ("DescribeRegions",):
            reply = self.elsewhere(action)
        else:
            reply = getattr(self, "do_" + action)(q, key) or {}
        reply["RequestId"] = str(uuid.uuid4()).upper()
        check_reply(API[action]["reply"], reply, action)
        return 200, {}, reply

    def settle_some(self):
        for iid, one in list(self.instances.items()):
            if one["release"] and one["gone"] is None and \
                    calendar.timegm(time.strptime(one["release"], "%Y-%m-%dT%H:%M:%SZ")) <= self.now():
                self.release(iid)

    @staticmethod
    def elsewhere(action):
        """Another region, in which there is nothing."""
        names = {k: v for k, v in API[action]["reply"].items() if isinstance(v, dict)}
        if not action.startswith("Describe"):
            raise fault(404, "InvalidRegionId.NotFound", "The RegionId provided does not exist in our records.")
        reply = {k: {inner: [] for inner in v} for k, v in names.items() if len(v) == 1}
        if "TotalCount" in API[action]["reply"]:
            reply["TotalCount"] = 0
        return reply

    # --- regions, types, prices, images ---

    def do_DescribeRegions(self, _, __):
        return {"Regions": {"Region": [
            {"RegionId": r, "RegionEndpoint": "ecs.%s.aliyuncs.com" % r, "LocalName": r, "Status": "available"}
            for r in (REGION, "eu-central-1")] + [
                {"RegionId": "cn-hangzhou", "RegionEndpoint": "ecs-cn-hangzhou.aliyuncs.com", "LocalName": "Hangzhou",
                 "Status": "available"}]}}

    def do_DescribeInstanceTypes(self, q, _):
        out = []
        for name, (gpus, gpu, gib, cores, memory, _) in TYPES.items():
            if q.get("InstanceTypes.1", name) != name or gpus < int(q.get("MinimumGPUAmount", 0)):
                continue
            if not int(q.get("MinimumCpuCoreCount", 0)) <= cores <= int(q.get("MaximumCpuCoreCount", 9999)):
                continue
            out.append({"InstanceTypeId": name, "GPUAmount": gpus, "GPUSpec": gpu, "GPUMemorySize": gib,
                        "CpuCoreCount": cores, "MemorySize": memory, "CpuArchitecture": "X86",
                        **dict(zip(("EniQuantity", "EriQuantity", "NetworkCardQuantity", "QueuePairNumber"),
                                   NETWORK.get(name, (2, 0, 1, 0))))})
        return self.page("InstanceTypes", "InstanceType", out, q)

    def do_DescribeAvailableResource(self, q, _):
        zones = []
        for zone in ZONES:
            types = [{"Value": t, "Status": "Available" if n > 0 else "SoldOut",
                      "StatusCategory": "WithStock" if n > 10 else "ClosedWithStock" if n > 0 else "WithoutStock"}
                     for (t, z), n in self.stock.items() if z == zone and q.get("InstanceType", t) == t]
            zones.append({"ZoneId": zone, "RegionId": REGION, "Status": "Available", "StatusCategory": "WithStock",
                          "AvailableResources": {"AvailableResource": [
                              {"Type": "InstanceType", "SupportedResources": {"SupportedResource": types}}]}})
        return {"AvailableZones": {"AvailableZone": zones}}

    def do_DescribePrice(self, q, _):
        disk = "DataDisk.1." if q["ResourceType"] == "disk" else "SystemDisk."
        if q["PriceUnit"] != "Hour" or q[disk + "Category"] != "cloud_essd":
            raise fault(400, "InvalidParameter", "PriceUnit or the disk's category")
        price = int(q[disk + "Size"]) * DISK_PRICE
        if q["ResourceType"] == "instance":
            if q["InstanceType"] not in TYPES:
                raise fault(404, "PriceNotFound", "The price of your queried resource is not found.")
            price += TYPES[q["InstanceType"]][5] - 100 * DISK_PRICE
        return {"PriceInfo": {"Price": {"TradePrice": round(price, 6), "Currency": self.currency}}}

    def do_DescribeSpotPriceHistory(self, q, _):
        if q["InstanceType"] not in TYPES:
            return {"Currency": "", "SpotPrices": {"SpotPriceType": []}}
        price = TYPES[q["InstanceType"]][5]
        return {"Currency": self.currency, "SpotPrices": {"SpotPriceType": [
            {"ZoneId": zone, "InstanceType": q["InstanceType"], "NetworkType": "vpc", "OriginPrice": price,
             "SpotPrice": round(price * (0.3 + 0.1 * n + 0.05 * age), 4), "Timestamp": now_text(self.now() - 3600 * age)}
            for n, zone in enumerate(ZONES) for age in (2, 0, 1)]}}

    def used_vcpus(self, market):
        return sum(TYPES[one["q"]["InstanceType"]][3] for one in self.instances.values()
                   if one["gone"] is None and ("spot" if "SpotStrategy" in one["q"] else "postpaid") == market)

    def do_DescribeAccountAttributes(self, q, _):
        items = []
        for name in [q["AttributeName.%d" % i] for i in range(1, 9) if "AttributeName.%d" % i in q]:
            what, market = re.fullmatch(r"(max|used)-(postpaid|spot)-instance-vcpu-count", name).groups()
            value = self.vcpus[market] if what == "max" else self.used_vcpus(market)
            items.append({"AttributeName": name, "AttributeValues": {"ValueItem": [{"Value": str(value)}]}})
        return {"AccountAttributeItems": {"AccountAttributeItem": items}}

    def do_DescribeImages(self, q, _):
        family = q.get("ImageFamily", "acs:ubuntu_24_04_x64")
        images = [{"ImageId": "%s_20G_alibase_%s.vhd" % (family[4:], day), "ImageName": "%s_%s" % (family[4:], day),
                   "ImageFamily": family, "Architecture": "x86_64", "CreationTime": "%sT00:00:00Z" % day2, "Size": 20,
                   "Features": {"ImdsSupport": "v2"}}
                  for day, day2 in (("20260801", "2026-08-01"), ("20261001", "2026-10-01"))]
        if "ImageId" in q:
            own = dict(images[0], ImageId="m-image0001", ImageName="own", Features={}, Size=200)
            images = [own] if q["ImageId"] == "m-image0001" else []
        return self.page("Images", "Image", images, q)

    # --- tags ---

    def do_TagResources(self, q, _):
        for i in range(1, 51):
            rid = q.get("ResourceId.%d" % i)
            if rid is None:
                break
            where = {"instance": self.instances, "keypair": self.pairs, "eni": self.nics}[q["ResourceType"]]
            one = where.get((q["RegionId"], rid) if q["ResourceType"] == "keypair" else rid)
            if one is None:
                raise fault(404, "InvalidResourceId.NotFound", "The specified ResourceId does not exist.")
            one["tags"].update(self.tags(q))
            if len(one["tags"]) > 20:
                raise fault(400, "InvalidTagCount", "too many tags")

    # --- key pairs ---

    def do_ImportKeyPair(self, q, _):
        name = q["KeyPairName"]
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9:_-]{1,127}", name):
            raise fault(400, "InvalidKeyPairName.Malformed", "Specified Key Pair name is not valid.")
        blob = base64.b64decode(q["PublicKeyBody"].split()[1], validate=True)
        if not q["PublicKeyBody"].startswith("ssh-rsa ") or blob[:11] != b"\0\0\0\7ssh-rsa" or len(blob) != 279:
            raise fault(400, "InvalidPublicKeyBody.Malformed", "not an RSA key of 2048 bits")
        if (q["RegionId"], name) in self.pairs:
            raise fault(400, "KeyPair.AlreadyExist", "The key pair already exist.")
        self.pairs[q["RegionId"], name] = {"tags": self.tags(q)}
        return {"KeyPairName": name, "KeyPairFingerPrint": hashlib.md5(blob).hexdigest()}

    def do_DescribeKeyPairs(self, q, _):
        items = [{"KeyPairName": name, "KeyPairFingerPrint": "89f0", "Tags": self.tag_list(one["tags"])}
                 for (region, name), one in sorted(self.pairs.items())
                 if q.get("KeyPairName", name) == name and self.tagged(one["tags"], q)]
        return self.page("KeyPairs", "KeyPair", items, q)

    def do_DeleteKeyPairs(self, q, _):
        for name in json.loads(q["KeyPairNames"]):
            self.pairs.pop((q["RegionId"], name), None)

    # --- network ---

    def once(self, q):
        """What an earlier call with this token made; None: nothing."""
        token = q.get("ClientToken")
        if token is None:
            return None
        if len(token) > 64:
            raise fault(400, "InvalidClientToken.Malformed", "too long")
        rest = {k: v for k, v in q.items() if k != "ClientToken"}
        if token not in self.clients:
            self.clients[token] = [rest, None]
            return None
        if self.clients[token][0] != rest:
            raise fault(400, "IdempotentParameterMismatch", "The request uses the same client token as a previous, but "
                        "non-identical request.")
        return self.clients[token][1]

    def made(self, q, result):
        if "ClientToken" in q:
            self.clients[q["ClientToken"]][1] = result
        return result

    def do_CreateVpc(self, q, _):
        vid = self.once(q) or self.made(q, new_id("vpc-"))
        self.vpcs.setdefault(vid, {"region": q["RegionId"], "default": False, "net": q["CidrBlock"], "tags": self.tags(q), "left": 1})
        return {"VpcId": vid}

    def do_DescribeVpcs(self, q, _):
        items = []
        for vid, one in self.vpcs.items():
            if q.get("VpcId", vid) != vid or not self.tagged(one["tags"], q):
                continue
            if "IsDefault" in q and (q["IsDefault"] == "true") != one["default"]:
                continue
            items.append({"VpcId": vid, "Status": "Pending" if one["left"] > 0 else "Available", "IsDefault": one["default"],
                          "CidrBlock": one["net"], "RegionId": one["region"], "Tags": self.tag_list(one["tags"], True)})
            one["left"] -= 1
        return self.page("Vpcs", "Vpc", items, q)

    def do_DeleteVpc(self, q, _):
        vid = q["VpcId"]
        if vid not in self.vpcs:
            raise fault(404, "InvalidVpcID.NotFound", "Specified VPC does not exist.")
        if any(v["vpc"] == vid for v in self.vswitches.values()) or any(g["vpc"] == vid for g in self.groups.values()):
            raise fault(400, "DependencyViolation.VSwitch", "Specified object has dependent resources.")
        del self.vpcs[vid]

    def do_CreateVSwitch(self, q, _):
        vpc = self.vpcs.get(q["VpcId"])
        if vpc is None:
            raise fault(404, "InvalidVpcId.NotFound", "Specified VPC does not exist.")
        if vpc["left"] > 0:
            raise fault(400, "IncorrectVpcStatus", "Current VPC status does not support this operation.")
        vid = self.once(q)
        if vid is None:
            if any(v["vpc"] == q["VpcId"] and v["net"] == q["CidrBlock"] for v in self.vswitches.values()):
                self.clients.pop(q.get("ClientToken"), None)
                raise fault(400, "InvalidCidrBlock.Overlapped", "Specified CIDR block overlapped with other subnets.")
            vid = self.made(q, new_id("vsw-"))
            self.vswitches[vid] = {"region": q["RegionId"], "zone": q["ZoneId"], "vpc": q["VpcId"], "default": False,
                                   "tags": self.tags(q), "left": 1, "net": q["CidrBlock"]}
        return {"VSwitchId": vid}

    def do_DescribeVSwitches(self, q, _):
        items = []
        for vid, one in self.vswitches.items():
            if q.get("VSwitchId", vid) != vid or q.get("ZoneId", one["zone"]) != one["zone"] or not self.tagged(one["tags"], q):
                continue
            if "IsDefault" in q and (q["IsDefault"] == "true") != one["default"]:
                continue
            items.append({"VSwitchId": vid, "VpcId": one["vpc"], "ZoneId": one["zone"], "IsDefault": one["default"],
                          "Status": "Pending" if one["left"] > 0 else "Available", "CidrBlock": one["net"],
                          "Tags": self.tag_list(one["tags"], True)})
            one["left"] -= 1
        return self.page("VSwitches", "VSwitch", items, q)

    def do_DeleteVSwitch(self, q, _):
        vid = q["VSwitchId"]
        if vid not in self.vswitches:
            raise fault(404, "InvalidVSwitchId.NotFound", "Specified vswitch does not exist.")
        if any(i["vswitch"] == vid for i in self.instances.values()) or any(n["vswitch"] == vid for n in self.nics.values()):
            raise fault(400, "DependencyViolation", "Specified object has dependent resources.")
        del self.vswitches[vid]

    def do_CreateSecurityGroup(self, q, _):
        if q.get("VpcId") not in self.vpcs:
            raise fault(404, "InvalidVpcId.NotFound", "Specified VPC does not exist.")
        if self.vpcs[q["VpcId"]]["left"] > 0:
            raise fault(400, "IncorrectVpcStatus", "Current VPC status does not support this operation.")
        gid = self.once(q) or self.made(q, new_id("sg-"))
        self.groups.setdefault(gid, {"vpc": q["VpcId"], "name": q.get("SecurityGroupName", ""), "tags": self.tags(q), "rules": []})
        return {"SecurityGroupId": gid}

    def do_DescribeSecurityGroups(self, q, _):
        items = [{"SecurityGroupId": gid, "SecurityGroupName": g["name"], "VpcId": g["vpc"], "Tags": self.tag_list(g["tags"])}
                 for gid, g in self.groups.items()
                 if q.get("VpcId", g["vpc"]) == g["vpc"] and self.tagged(g["tags"], q)]
        return self.page("SecurityGroups", "SecurityGroup", items, q)

    def group(self, q):
        if q["SecurityGroupId"] not in self.groups:
            raise fault(404, "InvalidSecurityGroupId.NotFound", "The specified SecurityGroupId does not exist.")
        return self.groups[q["SecurityGroupId"]]

    def do_AuthorizeSecurityGroup(self, q, _):
        group = self.group(q)
        for i in range(1, 101):
            p = "Permissions.%d." % i
            if p + "IpProtocol" not in q:
                break
            rule = {"IpProtocol": q[p + "IpProtocol"], "PortRange": q[p + "PortRange"], "Policy": q.get(p + "Policy", "accept"),
                    "Direction": "ingress"}
            for source in ("SourceCidrIp", "Ipv6SourceCidrIp"):
                if p + source in q:
                    rule[source] = q[p + source]
            if any({k: v for k, v in r.items() if k != "SecurityGroupRuleId"} == rule for r in group["rules"]):
                continue
            group["rules"].append(dict(rule, SecurityGroupRuleId=new_id("sgr-")))

    def do_DescribeSecurityGroupAttribute(self, q, _):
        group = self.group(q)
        return {"SecurityGroupId": q["SecurityGroupId"], "InnerAccessPolicy": "Accept",
                "Permissions": {"Permission": list(group["rules"])}}

    def do_RevokeSecurityGroup(self, q, _):
        group = self.group(q)
        gone = [q["SecurityGroupRuleId.%d" % i] for i in range(1, 101) if "SecurityGroupRuleId.%d" % i in q]
        group["rules"] = [r for r in group["rules"] if r["SecurityGroupRuleId"] not in gone]

    def do_DeleteSecurityGroup(self, q, _):
        self.group(q)
        if any(i["group"] == q["SecurityGroupId"] for i in list(self.instances.values()) + list(self.nics.values())):
            raise fault(403, "DependencyViolation", "There is still instance(s) in the specified security group.")
        del self.groups[q["SecurityGroupId"]]

    # --- instances ---

    def check_launch(self, q):
        zone, kind, amount = q["ZoneId"], q["InstanceType"], int(q.get("Amount", 1))
        vswitch, group = self.vswitches.get(q["VSwitchId"]), self.groups.get(q["SecurityGroupId"])
        if vswitch is None or vswitch["zone"] != zone or vswitch["left"] > 0:
            raise fault(403, "InvalidVSwitchId.NotFound", "The specified virtual switch does not exist.")
        if group is None or group["vpc"] != vswitch["vpc"]:
            raise fault(404, "InvalidSecurityGroupId.NotFound", "the group is not in the VPC of the VSwitch")
        if len(base64.b64decode(q.get("UserData", ""), validate=True)) > 32768:
            raise fault(400, "InvalidUserData.SizeExceeded", "too long")
        if not 1 <= int(q.get("MinAmount", amount)) <= amount <= 100:
            raise fault(400, "InvalidAmount", "Amount and MinAmount")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9:_.-]*(\[\d+,\d\])?", q.get("InstanceName", "a")):
            raise fault(400, "InvalidInstanceName.Malformed", "The specified InstanceName is wrongly formed.")
        if int(q["SystemDisk.Size"]) > 2048:
            raise fault(400, "InvalidSystemDiskSize.ExceedsLimit", "SystemDisk.Size is more than 2048 GiB.")
        if int(q["SystemDisk.Size"]) < (200 if q["ImageId"] == "m-image0001" else 20):
            raise fault(400, "InvalidSystemDiskSize.LessThanImageSize", "SystemDisk.Size is less than the image's.")
        when = q.get("AutoReleaseTime")
        if when:
            at = calendar.timegm(time.strptime(when, "%Y-%m-%dT%H:%M:%SZ"))
            if not self.now() + 1800 <= at <= self.now() + 3 * 366 * 86400:
                raise fault(400, "InvalidAutoReleaseTime.Malformed", "at least 30 minutes, at most 3 years")
        if (kind, zone) not in self.stock:
            raise fault(403, "InvalidResourceType.NotSupported", "this type is not sold in this zone")
        if self.stock[kind, zone] < amount:
            raise fault(403, "OperationDenied.NoStock", "The requested resource is sold out in the specified zone; try "
                        "other types of resources or other regions and zones.")
        market = "spot" if "SpotStrategy" in q else "postpaid"
        if len(self.instances) + amount > self.quota or \
                self.used_vcpus(market) + amount * TYPES[kind][3] > self.vcpus[market]:
            raise fault(403, "QuotaExceed.ElasticQuota", "The number of the specified ECS instances has exceeded the "
                        "quota of the specified instance type.")

    def do_RunInstances(self, q, _):
        ids = self.once(q)
        q, further = interfaces(q, NETWORK.get(q["InstanceType"], (2, 0, 1, 0)))
        if ids is None:
            try:
                if q.get("DryRun") == "true":
                    raise fault(400, "DryRunOperation", "Request validation has been passed with DryRun flag set.")
                self.check_launch(q)
            except Fault:
                self.clients.pop(q.get("ClientToken"), None)
                raise
            ids = self.made(q, [self.launch(q, n, further) for n in range(int(q.get("Amount", 1)))])
        if not self.order_ids:
            ids = sorted(ids, key=lambda i: hashlib.md5(i.encode()).hexdigest())
        return {"InstanceIdSets": {"InstanceIdSet": list(ids)}}

    def launch(self, q, n, further):
        iid, tags = new_id("i-"), self.tags(q)
        name = q.get("InstanceName", iid)
        found = re.fullmatch(r"(.*)\[(\d+),(\d)\]", name)
        if found:
            name = "%s%0*d" % (found[1], int(found[3]), int(found[2]) + n)
        release = q.get("AutoReleaseTime", "")
        self.instances[iid] = {"q": q, "tags": dict(tags), "name": name, "left": self.ready_after, "gone": None,
                               "vswitch": q["VSwitchId"], "group": q["SecurityGroupId"], "hidden": self.late_release,
                               "alone": self.late_nics,
                               "release": release[:16] + ":00Z" if release and self.keep_release else "", "lock": None,
                               "address": len(self.instances) + 10, "created": now_text(self.now(), True)}
        self.disks[new_id("d-")] = {"instance": iid, "tags": dict(tags), "zone": q["ZoneId"],
                                    "encrypted": q.get("SystemDisk.Encrypted") == "true", "gib": int(q["SystemDisk.Size"])}
        for nic in [{"kind": "Primary", "mode": q.get("mode", "Standard")}] + further + list(self.own_nics):
            own = dict(tags) if nic["kind"] == "Primary" else {}  # it alone gets the launch's
            self.nics[new_id("eni-")] = {"instance": iid, "tags": own, "zone": q["ZoneId"], "vswitch": q["VSwitchId"],
                                         "group": q["SecurityGroupId"], **nic}
        self.stock[q["InstanceType"], q["ZoneId"]] -= 1
        return iid

    def describe(self, iid, one):
        q = one["q"]
        kind = TYPES[q["InstanceType"]]
        one["left"] -= 1
        one["hidden"] -= 1
        one["alone"] -= 1
        running = one["left"] <= 0
        public = ["127.77.%d.%d" % divmod(one["address"], 256)] if running and int(q.get("InternetMaxBandwidthOut", 0)) else []
        return {"InstanceId": iid, "InstanceName": one["name"], "RegionId": q["RegionId"], "ZoneId": q["ZoneId"],
                "InstanceType": q["InstanceType"], "GPUAmount": kind[0], "GPUSpec": kind[1], "ImageId": q["ImageId"],
                "Status": "Stopping" if one["gone"] is not None else "Stopped" if one.get("stopped") else
                          "Running" if running else "Starting" if one["left"] == 1 else "Pending",
                "SpotStrategy": q.get("SpotStrategy", "NoSpot"), "CreationTime": one["created"],
                "AutoReleaseTime": one["release"][:16] + "Z" if one["release"] and one["hidden"] < 0 else "",
                "PublicIpAddress": {"IpAddress": public},
                "NetworkInterfaces": {"NetworkInterface": [
                    {"NetworkInterfaceId": nid, "Type": nic["kind"]} for nid, nic in self.nics.items()
                    if nic["instance"] == iid and (one["alone"] < 0 or nic["kind"] == "Primary")]},
                "VpcAttributes": {"VSwitchId": one["vswitch"], "VpcId": self.vswitches[one["vswitch"]]["vpc"], "NatIpAddress": "",
                                  "PrivateIpAddress": {"IpAddress": ["172.31.0.%d" % one["address"]]}},
                "OperationLocks": {"LockReason": [{"LockReason": one["lock"]}] if one["lock"] else []},
                "Tags": self.tag_list(one["tags"])}

    def do_DescribeInstances(self, q, _):
        wanted = set(json.loads(q["InstanceIds"])) if "InstanceIds" in q else None
        shown = [(iid, one) for iid, one in self.instances.items()
                 if (wanted is None or iid in wanted) and self.tagged(one["tags"], q)]
        reply = self.page("Instances", "Instance", [self.describe(*pair) for pair in shown], q)
        for iid, one in shown:
            if one["gone"] is not None:
                one["gone"] -= 1
                if one["gone"] < 0:
                    self.remove(iid)
        return reply

    def release(self, iid):
        if self.instances[iid]["gone"] is None:
            self.instances[iid]["gone"] = self.gone_after

    def remove(self, iid):
        del self.instances[iid]
        for did in [d for d, one in self.disks.items() if one["instance"] == iid]:
            if self.leave_disks:
                self.disks[did]["instance"] = ""
            else:
                del self.disks[did]
        for nid in [n for n, one in self.nics.items() if one["instance"] == iid]:
            if self.nics[nid].get("keep", False) or (self.leave_nics and self.nics[nid]["kind"] == "Secondary"):
                self.nics[nid]["instance"] = ""
            else:
                del self.nics[nid]

    def do_DeleteInstances(self, q, _):
        ids = [q["InstanceId.%d" % i] for i in range(1, 101) if "InstanceId.%d" % i in q]
        for iid in ids:
            if iid not in self.instances:
                raise fault(404, "InvalidInstanceId.NotFound", "The specified InstanceId does not exist.")
            if q.get("Force", "false").lower() != "true":
                raise fault(403, "IncorrectInstanceStatus", "The current status of the resource does not support this operation.")
            if self.instances[iid].get("initialising"):
                raise fault(403, "IncorrectInstanceStatus.Initializing", "The specified instance status does not support "
                            "this operation.")
        for iid in ids:
            self.release(iid)

    def do_ModifyInstanceAutoReleaseTime(self, q, _):
        if q["InstanceId"] not in self.instances:
            raise fault(404, "InvalidInstanceId.NotFound", "The specified InstanceId does not exist.")
        if self.keep_release:
            self.instances[q["InstanceId"]]["release"] = q.get("AutoReleaseTime", "")

    def do_GetInstanceConsoleOutput(self, q, _):
        if q["InstanceId"] not in self.instances:
            raise fault(404, "InvalidInstanceId.NotFound", "The specified InstanceId does not exist.")
        return {"InstanceId": q["InstanceId"], "LastUpdateTime": now_text(),
                "ConsoleOutput": base64.b64encode(b"[    0.000000] Linux version 6.8\nlogin: ").decode()}

    # --- what instances have ---

    def do_DescribeDisks(self, q, _):
        items = [{"DiskId": did, "Status": "In_use" if one["instance"] else "Available", "ZoneId": one["zone"],
                  "InstanceId": one["instance"], "Encrypted": one["encrypted"], "Size": one["gib"], "Tags": self.tag_list(one["tags"])}
                 for did, one in self.disks.items() if self.tagged(one["tags"], q)]
        return self.page("Disks", "Disk", items, q)

    def do_DeleteDisk(self, q, _):
        if q["DiskId"] not in self.disks:
            raise fault(404, "InvalidDiskId.NotFound", "The specified disk does not exist.")
        if self.disks[q["DiskId"]]["instance"]:
            raise fault(403, "IncorrectDiskStatus", "The current disk status does not support this operation.")
        del self.disks[q["DiskId"]]

    def do_DescribeNetworkInterfaces(self, q, _):
        for one in self.instances.values():
            one["alone"] -= 1
        late = {iid for iid, one in self.instances.items() if one["alone"] >= 0}
        items = [{"NetworkInterfaceId": nid, "Status": "InUse" if one["instance"] else "Available", "ZoneId": one["zone"],
                  "InstanceId": one["instance"], "VSwitchId": one["vswitch"], "Tags": self.tag_list(one["tags"]),
                  "NetworkInterfaceTrafficMode": one["mode"], "Type": one["kind"], "NetworkInterfaceName": one.get("name", "")}
                 for nid, one in self.nics.items() if self.tagged(one["tags"], q) and
                 (one["kind"] == "Primary" or one["instance"] not in late) and
                 q.get("Type", one["kind"]) == one["kind"] and q.get("NetworkInterfaceName", one.get("name", "")) == one.get("name", "")]
        return self.page("NetworkInterfaceSets", "NetworkInterfaceSet", items, q)

    def do_DeleteNetworkInterface(self, q, _):
        if q["NetworkInterfaceId"] not in self.nics:
            raise fault(404, "InvalidEniId.NotFound", "The specified NetworkInterfaceId does not exist.")
        if self.nics[q["NetworkInterfaceId"]]["instance"]:
            raise fault(403, "InvalidOperation.InvalidEniState", "The specified operation is not allowed in this state.")
        del self.nics[q["NetworkInterfaceId"]]


def main():
    port = int(sys.argv[sys.argv.index("--port") + 1]) if "--port" in sys.argv else 0
    with Alibaba(port=port) as cloud:
        for name, value in cloud.environment().items():
            print("export %s=%s" % (name, value), flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
