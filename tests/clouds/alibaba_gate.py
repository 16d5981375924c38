# SPDX-License-Identifier: Apache-2.0
"""What every service of Alibaba Cloud shares, for its stand-in (alibaba.py): the check of requests and replies against
api/alibaba.json, the signature, temporary credentials of STS and of the metadata service."""
import calendar
import hashlib
import hmac
import json
import pathlib
import re
import time
import uuid
from urllib.parse import quote

from mock import Fault, Mock  # noqa: UP026

API = json.loads((pathlib.Path(__file__).parent / "api/alibaba.json").read_text())["actions"]


def now_text(at=None, minutes=False):
    return time.strftime("%Y-%m-%dT%H:%MZ" if minutes else "%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def new_id(prefix):
    return prefix + uuid.uuid4().hex[:20]


def fault(status, code, message="", headers=None):
    return Fault(status, {"Code": code, "Message": message or code, "RequestId": str(uuid.uuid4()).upper(),
                               "HostId": "ecs.mock", "Recommend": "https://mock/" + code}, headers)


def encode(text):
    return quote(text, safe="-_.~")


def acs3(secret, method, path, pairs, headers, body, signed):
    """The signature over the named headers, in hex."""
    query = "&".join("%s=%s" % (encode(k), encode(v)) for k, v in sorted(pairs))
    lines = "".join("%s:%s\n" % (name, headers[name].strip()) for name in signed)
    canonical = "\n".join([method, path, query, lines, ";".join(signed), hashlib.sha256(body).hexdigest()])
    text = "ACS3-HMAC-SHA256\n" + hashlib.sha256(canonical.encode()).hexdigest()
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


# --- the description ---

FORMS = {"i": r"-?\d{1,10}", "l": r"-?\d{1,19}", "f": r"-?\d+(\.\d+)?", "b": r"true|false"}


def check_value(form, name, value):
    if form in FORMS and not re.fullmatch(FORMS[form], value):
        raise fault(400, "InvalidParameter", "%s=%r does not have the form %s" % (name, value, form))


def check_name(name, value, params, counts, prefix=""):
    """One parameter in its flat form: Tag.1.Key, InstanceId.2, SystemDisk.Size."""
    if isinstance(params.get(name), str):
        return check_value(params[name], prefix + name, value)
    head, _, rest = name.partition(".")
    form = params.get(head)
    if isinstance(form, dict) and not form and rest:
        return None  # a structure without described members
    found = re.fullmatch(r"([1-9]\d*)(?:\.(.+))?", rest) if isinstance(form, list) else None
    if not found:
        raise fault(400, "InvalidParameter", "unknown parameter %r" % (prefix + name))
    counts.setdefault(prefix + head, set()).add(int(found[1]))
    if form[0] == "s":
        if found[2]:
            raise fault(400, "InvalidParameter", "%r is too deep" % (prefix + name))
        return None
    members = {k: v for k, v in params.items() if isinstance(v, str)} if form[0] is None else form[0]
    if not found[2]:
        raise fault(400, "InvalidParameter", "%r has no member" % (prefix + name))
    return check_name(found[2], value, members, counts, "%s%s.%s." % (prefix, head, found[1]))


def check_request(action, version, pairs, any_case):
    api = API.get(action)
    if not api or version != api["version"]:
        raise fault(404, "InvalidAction.NotFound", "%s %s" % (action, version))
    seen, counts = {}, {}
    for name, value in pairs:
        if name in seen:
            raise fault(400, "InvalidParameter", "%r comes twice" % name)
        seen[name] = value
        text = value.lower() if any_case and value in ("True", "False") else value
        check_name(name, text, api["params"] if "RegionId" in api["params"] else dict(api["params"], RegionId="s"),
                   counts)
    for name, numbers in counts.items():
        if numbers != set(range(1, len(numbers) + 1)):
            raise fault(400, "InvalidParameter", "%s has the numbers %s" % (name, sorted(numbers)))
    for name in api["required"]:
        if not any(k == name or k.startswith(name + ".") for k in seen):
            raise fault(400, "MissingParameter", "%s is mandatory" % name)
    return seen


def check_reply(form, value, where):
    ok = {"s": lambda v: isinstance(v, str), "b": lambda v: isinstance(v, bool),
          "i": lambda v: isinstance(v, int) and not isinstance(v, bool),
          "f": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool)}
    if isinstance(form, str):
        assert ok[form](value), "%s: %r does not have the form %s" % (where, value, form)
    elif isinstance(form, list):
        assert isinstance(value, list), where
        for one in value:
            check_reply(form[0], one, where + "[]")
    elif form is not None:
        assert isinstance(value, dict), where
        for k, v in value.items():
            assert k in form, "%s has no member %s" % (where, k)
            check_reply(form[k], v, where + "." + k)


def interfaces(q, network):
    """A launch with interfaces of its own: the request with VSwitch, group and mode of the primary one where a plain one
    has them, and the others. network: how many interfaces and elastic RDMA interfaces the type takes, its network cards
    and queue pairs."""
    most, erdma, cards, pairs = network
    found = sorted({int(k.split(".")[1]) for k in q if k.startswith("NetworkInterface.")})
    if not found:
        return q, []
    own = [{k.split(".", 2)[2]: v for k, v in q.items() if k.startswith("NetworkInterface.%d." % n)} for n in found]
    first, others = own[0], own[1:]
    if found != list(range(1, len(own) + 1)) or len(own) > most:
        raise fault(400, "InvalidParameter.NetworkInterface", "interfaces %s of at most %d" % (found, most))
    if first.get("InstanceType") != "Primary" or first.get("NetworkCardIndex", "0") != "0" or "DeleteOnRelease" in first or \
            any(o.get("InstanceType") != "Secondary" for o in others):
        raise fault(400, "InvalidParameter", "a primary interface on card 0, then secondary ones")
    if "VSwitchId" in q or "SecurityGroupId" in q:
        raise fault(400, "InvalidParameter.Conflict", "VSwitchId, SecurityGroupId and a primary interface")
    if any(o.get(k, first[k]) != first[k] for o in others for k in ("VSwitchId", "SecurityGroupId")):
        raise fault(400, "InvalidParameter", "interfaces in several VSwitches are not modelled")
    modes = [o.get("NetworkInterfaceTrafficMode", "Standard") for o in own]
    if set(modes) - {"Standard", "HighPerformance"} or modes.count("HighPerformance") > erdma:
        raise fault(400, "InvalidParameter.NetworkInterfaceTrafficMode", "the instance type has %d eRDMA interfaces" % erdma)
    if sum(int(o.get("QueuePairNumber", 0)) for o in own) > pairs:
        raise fault(400, "InvalidParameter.QueuePairNumber", "the instance type has %d queue pairs" % pairs)
    used = [int(o["NetworkCardIndex"]) for o in others if "NetworkCardIndex" in o]
    if any(not 0 <= n < cards for n in used) or (used and cards < 2):
        raise fault(400, "InvalidParameter.NetworkCardIndex", "the instance type has %d network cards" % cards)
    return (dict(q, VSwitchId=first["VSwitchId"], SecurityGroupId=first["SecurityGroupId"], mode=modes[0]),
            [{"kind": "Secondary", "mode": m, "name": o.get("NetworkInterfaceName", ""), "keep": o.get("DeleteOnRelease", "true") != "true"}
             for o, m in zip(others, modes[1:])])


# --- the gateway ---

class Gateway(Mock):
    """Keys, signatures, temporary credentials. clock: seconds that the cloud is ahead of this machine."""
    account = "1234567890123456"
    role_expiry = 3600
    oidc_token = "oidc-token"
    any_case_bool = False  # the Python SDK sends True and False

    def __init__(self, **how):
        self.keys = {"LTAItest": {"secret": "test-secret", "token": None,
                                  "arn": "acs:ram::%s:user/gpu/tester" % self.account}}
        self.nonces, self.clock, self.refused = set(), 0, []
        super().__init__(**how)

    def now(self):
        return time.time() + self.clock

    def sound(self):
        """True, or the requests that the description does not have and the faults of the stand-in itself."""
        with self.lock:
            return (self.refused + [r["target"] for r in self.log if r.get("status") == 500]) or True

    # --- requests ---

    def described(self, action, version, pairs):
        """The parameters. A request that the description does not have is kept: gpuprov goes on without some replies."""
        try:
            return check_request(action, version, pairs, self.any_case_bool)
        except Fault as e:
            self.refused.append("%s: %s" % (action, e.obj["Message"]))
            raise

    def serve(self, handler, headers, body):
        action = headers.get("x-acs-action")
        if action:  # rules and the log see it
            handler.path = "/" + action + handler.path[1:]
        handler.date_time_string = lambda *_: time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(self.now()))
        super().serve(handler, headers, body)

    def actions(self, *names):
        with self.lock:
            return [r for r in self.log if r["headers"].get("x-acs-action") in names]

    def authorize(self, method, path, pairs, headers, body):
        found = re.fullmatch(r"ACS3-HMAC-SHA256 Credential=([^,]+),SignedHeaders=([^,]+),Signature=([0-9a-f]{64})",
                             headers.get("authorization", ""))
        if not found:
            raise fault(400, "IncompleteSignature", "Authorization header")
        key = self.keys.get(found[1])
        if key is None:
            raise fault(404, "InvalidAccessKeyId.NotFound", "Specified access key is not found.")
        signed = found[2].split(";")
        must = {h for h in headers if h.startswith("x-acs-") or h == "host"} | ({"content-type"} if body else set())
        if signed != sorted(signed) or must - set(signed) or set(signed) - set(headers):
            raise fault(400, "IncompleteSignature", "signed %s, not all of %s" % (signed, sorted(must)))
        if headers.get("x-acs-content-sha256") != hashlib.sha256(body).hexdigest() or \
                acs3(key["secret"], method, path, pairs, headers, body, signed) != found[3]:
            raise fault(400, "SignatureDoesNotMatch", "Specified signature is not matched with our calculation.")
        at = calendar.timegm(time.strptime(headers["x-acs-date"], "%Y-%m-%dT%H:%M:%SZ"))
        if abs(at - self.now()) > 900:
            raise fault(400, "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired.")
        nonce = headers.get("x-acs-signature-nonce", "")
        if len(nonce) < 8 or nonce in self.nonces:
            raise fault(400, "SignatureNonceUsed", "Specified signature nonce was used already.")
        self.nonces.add(nonce)
        if headers.get("x-acs-security-token") != key["token"] or key.get("until", self.now() + 1) < self.now():
            raise fault(400, "InvalidSecurityToken.Expired", "Specified SecurityToken is expired.")
        return key

    def metadata(self, method, target, headers):
        if target == "/latest/api/token" and method == "PUT":
            return 200, {}, b"metadata-token"
        if target == "/uri":
            return 200, {}, self.session("acs:ram::%s:assumed-role/uri/s" % self.account)
        if headers.get("x-aliyun-ecs-metadata-token") != "metadata-token":
            return 403, {}, b""
        if target == "/latest/meta-data/ram/security-credentials/":
            return 200, {}, b"node-role"
        if target == "/latest/meta-data/ram/security-credentials/node-role":
            return 200, {}, dict(self.session("acs:ram::%s:assumed-role/node-role/i-1" % self.account), Code="Success")
        return 404, {}, b""

    def session(self, arn):
        """New temporary credentials."""
        key_id, token = "STS." + uuid.uuid4().hex[:16], "CAIS" + uuid.uuid4().hex + "+/=="
        secret = uuid.uuid4().hex
        until = self.now() + self.role_expiry
        self.keys[key_id] = {"secret": secret, "token": token, "arn": arn, "until": until}
        return {"AccessKeyId": key_id, "AccessKeySecret": secret, "SecurityToken": token, "Expiration": now_text(until)}

    # --- STS ---

    def do_GetCallerIdentity(self, _, key):
        return {"AccountId": self.account, "Arn": key["arn"], "IdentityType": "RAMUser", "PrincipalId": "29",
                "UserId": "29"}

    def assumed(self, q):
        arn = "acs:ram::%s:assumed-role/%s/%s" % (self.account, q["RoleArn"].split("/")[-1], q.get("RoleSessionName", "s"))
        return {"Credentials": self.session(arn), "AssumedRoleUser": {"Arn": arn, "AssumedRoleId": "3"}}

    def do_AssumeRole(self, q, _):
        if not q["RoleArn"].endswith("role/worker"):
            raise fault(404, "EntityNotExist.Role", "The specified Role not exists.")
        return self.assumed(q)

    def do_AssumeRoleWithOIDC(self, q, _):
        if q["OIDCToken"] != self.oidc_token:
            raise fault(400, "AuthenticationFail.OIDCToken.Invalid", "This JWT is malformed.")
        return self.assumed(q)

    # --- tags and pages ---

    @staticmethod
    def tags(q):
        out = {}
        for i in range(1, 200):
            if "Tag.%d.Key" % i in q:
                out[q["Tag.%d.Key" % i]] = q.get("Tag.%d.Value" % i, "")
        if len(out) > 20:
            raise fault(400, "InvalidTagCount", "The specified tags are beyond the valid range.")
        for k, v in out.items():
            if len(k) > 128 or len(v) > 128 or k.startswith(("aliyun", "acs:")):
                raise fault(400, "InvalidTagValue.Malformed", k)
        return out

    def tagged(self, tags, q):
        return all(tags.get(k) == v for k, v in self.tags(q).items())

    @staticmethod
    def tag_list(tags, vpc=False):
        names = ("Key", "Value") if vpc else ("TagKey", "TagValue")
        return {"Tag": [dict(zip(names, pair)) for pair in tags.items()]}

    def page(self, outer, inner, items, q):
        api = API[self.action_of(outer)]
        if "NextToken" in api["reply"] and "MaxResults" in api["params"] and "PageNumber" not in q:
            size = min(self.page_max, int(q.get("MaxResults", 10)))
            start = int(q.get("NextToken") or 0)
            more = {"NextToken": str(start + size) if start + size < len(items) else ""}
        else:
            size = min(self.page_max, int(q.get("PageSize", 10)))
            start = size * (int(q.get("PageNumber", 1)) - 1)
            more = {"TotalCount": len(items), "PageNumber": int(q.get("PageNumber", 1)), "PageSize": size}
        return dict(more, **{outer: {inner: items[start:start + size]}})

    @staticmethod
    def action_of(outer):
        return {"NetworkInterfaceSets": "DescribeNetworkInterfaces"}.get(outer, "Describe" + outer)
