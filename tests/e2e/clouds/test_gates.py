# SPDX-License-Identifier: Apache-2.0
"""The gates of the stand-ins (tests/clouds): each request and reply of a launch is spoiled at every member, and the gate
refuses it. A gate that refuses nothing would prove nothing. EC2 has tests/e2e/aws/test_ec2_gate.py."""
import copy
import json
import urllib.parse

import alibaba
import alibaba_gate
import azure_gate
import pytest
from alibaba_lab import Drive, environment, spec
from far_clouds import FAR
from mock import Fault  # noqa: UP026  (of tests/clouds)
from openapi_paths import Refused

REFUSES = (Refused, azure_gate.Refused, ValueError, AssertionError, Fault)


def places(value, path=()):
    """Every object and every value that is neither object nor list; of a list its first entry."""
    if isinstance(value, list):
        yield from places(value[0], (*path, 0)) if value else ()
    elif value is not None:
        yield path, value
        for k, v in value.items() if isinstance(value, dict) else ():
            yield from places(v, (*path, k))


def spoiled(whole):
    """(words, copy): a member that is not described, or a value of another type. A map of strings takes no object."""
    for path, value in places(whole):
        other = copy.deepcopy(whole)
        at, last = other, path if isinstance(value, dict) else path[:-1]
        for k in last:
            at = at[k]
        if isinstance(value, dict):
            at["spoiled"] = {"spoiled": [1]}
        elif path:
            at[path[-1]] = 7.5 if isinstance(value, str) else "spoiled"
        else:
            continue
        yield "%s: %s" % ("/".join(map(str, path)), "one member more" if isinstance(value, dict) else "another type"), other


class Gated:
    """How the gate of one stand-in is called."""

    def __init__(self, cloud):
        self.gate = cloud.gate

    def request(self, r, target, body):
        return self.gate.check(r["method"], target, r["headers"], b"" if body is None else json.dumps(body).encode())

    def reply(self, op, status, value):
        self.gate.reply(op, status, value)


class Azure(Gated):
    def reply(self, op, status, value):
        self.gate.answer(op, status, value)


class Google(Gated):
    def request(self, r, target, body):
        return self.gate.check(r["method"], target, None if body is None else json.dumps(body))[0]

    def reply(self, op, status, value):
        fault = self.gate.validate(op["response"]["$ref"], False, value)
        if fault:
            raise ValueError(fault)


class RunPod(Gated):
    def request(self, r, target, body):
        url = urllib.parse.urlsplit(target)
        op = self.gate.operation(r["method"], url.path)
        self.gate.request(op, dict(urllib.parse.parse_qsl(url.query)), body)
        return op


# the stand-in's gate, and which of its requests pass it: tokens and operations are described elsewhere
KINDS = {"google": (Google, lambda path: path.startswith("/compute/")),
         "azure": (Azure, lambda path: path.startswith("/subscriptions/") and "/operations/" not in path),
         "lambda": (Gated, lambda path: True), "runpod": (RunPod, lambda path: True), "shadeform": (Gated, lambda path: True)}


def calls(log, own):
    """The first accepted request of each form."""
    seen = {}
    for r in log:
        path = urllib.parse.urlsplit(r["target"]).path
        if own(path) and r["status"] < 300:
            seen.setdefault((r["method"], tuple(w for w in path.split("/") if w.isalpha())), r)
    return seen.values()


def passes(check, *args):
    try:
        check(*args)
    except REFUSES:
        return False
    return True


@pytest.mark.parametrize("provider", sorted(KINDS))
def test_a_spoiled_call_is_refused(tmp_path, provider):
    kind, own = KINDS[provider]
    with FAR[provider](tmp_path, 1, latency=0) as far:
        # the pace of a claim, so that a busy machine is not too slow for it
        far.env.update({k: "200" for k in far.env if k.endswith("_PACE_MS")})
        far.drive()
        gate, passed, tried = kind(far.cloud), [], 0
        for r in calls(far.cloud.log, own):
            body = json.loads(r["body"]) if r["body"] else None
            op = gate.request(r, r["target"], body)
            gate.reply(op, r["status"], r["reply"])
            more = r["target"] + ("&" if "?" in r["target"] else "?") + "spoiled=1"
            requests = [("query", more, body)] + [(words, r["target"], value) for words, value in spoiled(body)]
            replies = list(spoiled(r["reply"]))
            tried += len(requests) + len(replies)
            what = "%s %s: " % (r["method"], r["target"])
            passed += [what + words for words, target, value in requests if passes(gate.request, r, target, value)]
            passed += [what + "reply: " + words for words, value in replies if passes(gate.reply, op, r["status"], value)]
        assert passed == [] and tried > 50, (tried, passed)


def test_a_spoiled_call_is_refused_at_alibaba(tmp_path):
    """Its parameters are flat; text has any form."""
    passed, tried = [], 0
    with alibaba.Alibaba() as cloud:
        assert Drive(environment(cloud, tmp_path), spec(tmp_path), "create").rc == 0
        for r in {r["headers"]["x-acs-action"]: r for r in cloud.log}.values():
            action, version = r["headers"]["x-acs-action"], r["headers"]["x-acs-version"]
            pairs = alibaba.parse_qsl(r["target"].partition("?")[2]) + alibaba.parse_qsl(r["body"])
            api = alibaba_gate.API[action]
            others = [pairs + [("Spoiled", "1")], pairs + [("Tag.1.Spoiled", "1")], pairs + [("RegionId", "a"), ("RegionId", "a")]]
            others += [[(k, "spoiled" if k == n else v) for k, v in pairs] for n, _ in pairs
                       if api["params"].get(n) in ("i", "l", "f", "b")]
            others += [[(k, v) for k, v in pairs if k.partition(".")[0] != n] for n in api["required"]]
            assert not passes(alibaba_gate.check_request, action, "2000-01-01", pairs, False)
            passed += [(action, p) for p in others if passes(alibaba_gate.check_request, action, version, p, False)]
            replies = list(spoiled(r["reply"]))
            passed += [(action, words) for words, value in replies if passes(alibaba_gate.check_reply, api["reply"], value, action)]
            tried += len(others) + len(replies)
    assert passed == [] and tried > 100, (tried, passed)


def test_a_refused_read_that_gpuprov_does_without_is_noticed(tmp_path, monkeypatch):
    """A quota that cannot be read is a warning, so the launch goes on; the stand-in has noted the request."""
    api = alibaba_gate.API["DescribeAccountAttributes"]
    monkeypatch.setitem(api, "params", {k: v for k, v in api["params"].items() if not k.startswith("AttributeName")})
    with alibaba.Alibaba() as cloud:
        assert Drive(environment(cloud, tmp_path), spec(tmp_path), "create").rc == 0
        assert cloud.sound() is not True and "AttributeName" in cloud.sound()[0], cloud.sound()
