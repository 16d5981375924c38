# SPDX-License-Identifier: Apache-2.0
"""The openstack provider on bad days: a relay in front of a real OpenStack loses replies, lets lists lag, throttles,
refuses, and gives malformed replies."""
import json
import random
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import openstack
import pytest
from killing import settle
from mock import certificate  # noqa: UP026  # tests/clouds/mock.py
from openstack_relay import Relay, error
from openstack_world import FROM, MARKS, Drive, Eye, environment, spec
from openstack_world import cloud_fixture, eye_fixture  # noqa: F401  # fixtures
from test_provider_contract import CASES, LATE_REFUSALS, REFUSALS, run_contract

pytestmark = MARKS
CHANGES = "^(POST|PUT|DELETE)"
NEW, LIST = r"^POST /p8774/v2.1/servers$", r"^GET /p8774/v2.1/servers/detail"


def without(member):
    """The same reply with an empty list."""
    return lambda reply: {**reply, member: []}


def no_addresses(reply):
    for server in reply["servers"]:
        server["addresses"] = {}
    return reply


def faults(relay, case, flag):
    refused = {"times": None, "when": str(flag), **error(403, "forbidden", "Policy doesn't allow it to be performed.")}
    if case == "gang_partial":
        relay.rule(NEW, "reply", times=None, skip=1, **error(403, "forbidden", "Quota exceeded for instances: Requested 1"))
    elif case == "gang_cut":
        relay.rule(NEW, "drop_after", skip=1).rule(LIST, "edit", times=2, change=without("servers"))
    elif case == "late_address":
        relay.rule(LIST, "edit", times=4, change=no_addresses)
        relay.rule(r"^GET /p9696/v2.0/ports", "edit", times=3, change=without("ports"))
    elif case == "late_list":
        relay.rule(LIST, "edit", times=4, change=without("servers"))
        relay.rule(r"^GET /p8774/v2.1/os-keypairs(\?|$)", "edit", times=2, change=without("keypairs"))
    elif case == "lost_reply":
        for path in ("p8774/v2.1/servers", "p8774/v2.1/os-keypairs", "p9696/v2.0/security-groups", "p9696/v2.0/floatingips"):
            relay.rule("^POST /%s$" % path, "drop_after")
    elif case == "throttled":
        relay.rule("", "reply", times=None, every=3, **error(429, "overLimit", "This request was rate-limited.",
                                                             **{"Retry-After": "0"}))
    elif case == "destroy_refused":
        relay.rule(r"^DELETE /p8774/v2.1/servers/", "reply", **refused)
    elif case == "list_hollow":
        relay.rule(LIST, "reply", times=None, when=str(flag), status=200, obj={"success": False})
    elif case == "list_refused":
        relay.rule(LIST, "reply", **refused)


@pytest.mark.parametrize("case", CASES + REFUSALS + LATE_REFUSALS)
def test_contract_on_bad_days(cloud, eye, tmp_path, case):
    with Relay(cloud, page=1 if case == "paged" else None) as relay:
        faults(relay, case, tmp_path / "flag")
        impossible = {"gpu": None, "offer": {"instance_type": "impossible"}} if case == "async_failure" else {}  # no valid host
        run_contract(environment(cloud, tmp_path, relay=relay), "openstack", spec(tmp_path, **impossible), case, tmp_path / "flag")
        assert all(r["done"] for r in relay.rules), "a fault did not come"
        if case == "paged":
            assert [r for r in relay.requests("servers/detail") if "marker=" in r["target"]]
    eye.nothing()


class Lane:
    """A stack with a relay, a state folder and a client of its own: several of them are cut side by side."""

    def __init__(self, cloud, folder, program, name):
        folder.mkdir()
        self.cloud, self.folder, self.program, self.name = cloud, folder, program, name
        self.path = spec(folder, name=name, gpu=None, offer={"instance_type": "cpu.small"},
                         access={"ssh_from": [FROM], "timeout": "2s"})

    def _run(self, relay, state, verb, *words):
        env = {**environment(self.cloud, self.folder, relay=relay), "GPUPROV_STATE_DIR": str(self.folder / state)}
        return subprocess.Popen([self.program, verb, *map(str, words)], env=env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def whole(self):
        """The requests of an `up` that nobody cuts: all of them, and those that change something."""
        with Relay(self.cloud) as relay:
            up = self._run(relay, "whole", "up", self.path)
            text = up.communicate(timeout=200)[1]
            assert up.returncode == 6, text
            counts = len(relay.log), len(relay.requests(CHANGES))
            self.down(relay, "whole")
        return counts

    def down(self, relay, state):
        down = self._run(relay, state, "down", self.name, "--in", "openstack")
        text = down.communicate(timeout=300)[1]
        assert down.returncode == 0, text
        Eye(self.cloud).nothing(stack=self.name)

    def cut(self, moments, journal):
        """moments: (pattern, count): kill -9 once so many requests have come; then `down`. Returns how many were killed: an
        `up` can need fewer requests than the one that was counted."""
        killed = 0
        with Relay(self.cloud) as relay:
            for n, (pattern, count) in enumerate(moments):
                relay.log.clear()
                up = self._run(relay, "state", "up", self.path)
                while up.poll() is None and len(relay.requests(pattern)) < count:
                    time.sleep(0.002)
                up.kill()
                up.communicate()
                killed += up.returncode == -signal.SIGKILL
                settle(relay)
                self.down(relay, "state" if journal else f"new{n}")
        return killed


LANES, CUTS = 10, 2


def moments(rng, calls, changes):
    """One random moment in each of as many equal parts of an `up`: half of them right after a request that changes
    something."""
    half = LANES * CUTS // 2
    return [(pattern, 1 + (n * most + rng.randrange(most)) // half)
            for n in range(half) for pattern, most in (("", calls), (CHANGES, changes))]


@pytest.mark.parametrize("journal", [True, False])
def test_killed_at_any_moment_leaves_nothing(cloud, eye, tmp_path, program, journal):
    """kill -9 at twenty moments of an `up`; then `down`, with the journal of that run or without one. Without it `down`
    searches for launches of another run for half a minute, so several stacks are cut at the same time."""
    lanes = [Lane(cloud, tmp_path / f"lane{n}", program, f"cut{n}") for n in range(LANES)]
    cuts = moments(random.Random(20261123 + journal), *lanes[0].whole())
    with ThreadPoolExecutor(LANES) as pool:
        killed = list(pool.map(lambda n: lanes[n].cut(cuts[n::LANES], journal), range(LANES)))
    assert sum(killed) > LANES * CUTS // 2, killed
    eye.nothing()


def hostile(reply, **values):
    for server in reply["servers"]:
        server.update(values)
    return reply


@pytest.mark.parametrize("what, values", [
    ("id", {"id": "../os-keypairs/x"}), ("id", {"id": "x" * 5000}), ("id", {"id": None}),
    ("tags", {"metadata": {"gpuprov:owner": "OWNER", "gpuprov:stack": "contract", "gpuprov:uid": "../../../etc"}}),
    ("tags", {"metadata": {"gpuprov:owner": "OWNER", "gpuprov:stack": "contract", "gpuprov:uid": "0123456789abcdef",
                           "gpuprov:slots": "99999999999999999999+1"}}),
    ("text", {"fault": {"message": "\x1b[2J\x07gone\n\nok"}, "status": "ERROR", "addresses": {"n": [{"addr": "1.2.3.4; rm"}]}}),
    ("cell", {"status": "UNKNOWN", "metadata": None}), ("more", None)])
def test_hostile_replies(cloud, eye, tmp_path, what, values):
    """Nothing of a reply becomes a path, an address or an end that has not its form."""
    env, path = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, path, "create").rc == 0
    owner = Drive(env, path, "open")["owner"]
    if values and values.get("metadata"):
        values = {"metadata": {k: v.replace("OWNER", owner) for k, v in values["metadata"].items()}}

    def change(reply):
        if what == "more":  # no server, and more of them are said to follow
            return {"servers": [], "servers_links": [{"rel": "next", "href": "http://x/servers?marker=y"}]}
        changed = hostile(reply, **values)
        for server in changed["servers"]:
            if server["status"] == "UNKNOWN":
                del server["metadata"]
        return changed

    with Relay(cloud) as relay:
        relay.rule(LIST, "edit", times=None, change=change)
        listed = Drive(environment(cloud, tmp_path, relay=relay), path, "list")
        if what in ("id", "cell", "more"):
            assert listed["code"] == "protocol", listed.result
        else:
            assert listed.rc == 0 and len(listed.of_kind("instance")) == 2, listed.result
        if what == "tags":
            assert all(r["uid"] == "" or r["slot"] == -1 for r in listed.of_kind("instance")), listed.result
        assert "\x1b" not in str(listed.result) and "rm" not in str([r["public_ip"] for r in listed["resources"] or []])
        assert not [r for r in relay.log if ".." in r["target"] or re.search("[\x00-\x20]", r["target"])]
    assert Drive(env, path, "destroy").rc == 0


def test_a_token_that_ends_is_renewed_once(cloud, eye, tmp_path):
    with Relay(cloud) as relay:
        env, path = environment(cloud, tmp_path, relay=relay), spec(tmp_path)
        relay.rule(r"^GET /p8774", "reply", **error(401, "unauthorized", "expired"))
        assert Drive(env, path, "list").rc == 0
        assert len(relay.requests("POST .*/auth/tokens")) == 2
        relay.log.clear()
        relay.rule(r"^GET /p8774", "reply", times=None, **error(401, "unauthorized", "no"))
        refused = Drive(env, path, "list")
        assert refused["code"] == "auth", refused.result
        assert len(relay.requests("POST .*/auth/tokens")) == 2, "one login, and one more"
        assert "secret" not in refused.stderr + str(refused.result)


def test_more_regions_than_a_cloud_has(cloud, eye, tmp_path):
    def change(reply):
        for entry in reply["token"]["catalog"]:
            entry["endpoints"] += [dict(e, region="far%d" % n, region_id="far%d" % n)
                                   for e in entry["endpoints"] for n in range(20_000)]
        return reply

    with Relay(cloud) as relay:
        env, path = environment(cloud, tmp_path, relay=relay), spec(tmp_path)
        relay.rule("^POST .*/auth/tokens$", "edit", times=None, change=change)
        listed = Drive(env, path, "list")
        assert listed["code"] == "protocol" and "more than 500 regions" in listed["message"], listed.result


def test_microversions_that_are_too_old(cloud, eye, tmp_path):
    with Relay(cloud) as relay:
        relay.rule(r"^GET /p8774/v2.1/$", "edit", times=None,
                   change=lambda reply: {"version": {**reply["version"], "version": "2.53"}})
        old = Drive(environment(cloud, tmp_path, relay=relay), spec(tmp_path), "offers")
        assert old["code"] == "usage" and "2.61" in old["message"], old.result


# --- nothing leaks ---

@pytest.mark.parametrize("tls", [True, False])
def test_a_token_is_not_sent_in_clear_text(cloud, eye, tmp_path, program, tls):
    """The catalogue names an http URL on another machine: no request goes there, whether auth_url is https or http to this
    machine."""
    cert = certificate(tmp_path) if tls else None
    with Relay(cloud, tls=cert) as relay:
        env = environment(cloud, tmp_path, relay=relay, **({"OS_CACERT": cert[0]} if tls else {}))
        path = spec(tmp_path)
        assert Drive(env, path, "list").rc == 0
        relay.log.clear()

        def unencrypted(reply):
            for entry in reply["token"]["catalog"]:
                for e in entry["endpoints"] if entry["type"] == "compute" else []:
                    e["url"] = "http://198.51.100.7:8774/v2.1"
            return reply

        relay.rule("^POST .*/auth/tokens$", "edit", times=None, change=unencrypted)
        refused = Drive(env, path, "list")
        assert refused["code"] == "usage" and "would send the token in clear text" in refused["message"], refused.result
        assert "http://198.51.100.7:8774/v2.1" in refused["message"] and "OS_INTERFACE" in refused["message"]
        assert {r["target"] for r in relay.log} == {"/p5000/v3/auth/tokens"}
        doctor = subprocess.run([program, "doctor", "--json"], env=env, capture_output=True, text=True, timeout=60, check=False)
        assert "would send the token in clear text" in doctor.stdout, doctor


def test_a_page_whose_marker_was_deleted(cloud, eye, tmp_path):
    """nova replies 400 when the last server of a page is gone before the next page is read: that is no error of the spec,
    and `down` reads the list again."""
    env, path = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, path, "create").rc == 0
    with Relay(cloud, page=1) as relay:
        gone = error(400, "badRequest", "marker [11111111-1111-4111-8111-111111111111] not found")
        relay.rule(r"^GET /p8774/v2.1/servers/detail.*marker=", "reply", **gone)
        listed = Drive(environment(cloud, tmp_path, relay=relay), path, "list")
        assert listed["code"] == "protocol" and "changed while its pages were read" in listed["message"], listed.result
        assert Drive(environment(cloud, tmp_path, relay=relay), path, "list").rc == 0
    assert Drive(env, path, "destroy").rc == 0


def test_a_locked_server_is_reported(cloud, eye, tmp_path):
    """nova refuses to delete it with the same status as for a server that is deleted already."""
    env, path = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, path, "create").rc == 0
    locked = eye.servers()[0]
    eye.c.compute.lock_server(locked)
    try:
        refused = Drive(env, path, "destroy")
        assert refused.rc != 0 and "is locked: unlock it" in refused["message"], refused.result
        assert [s.id for s in eye.servers()] == [locked.id]
    finally:
        eye.c.compute.unlock_server(locked)
    assert Drive(env, path, "destroy").rc == 0


def test_ports_of_servers_that_vanished(cloud, eye, tmp_path, program):
    """A port that nova left keeps the group in use; another one's port of that group stays, and so does the group."""
    env, path = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, path, "create").rc == 0
    (group,), network = eye.groups(), eye.c.network.find_network("lab")
    left = eye.c.network.create_port(network_id=network.id, security_groups=[group.id], device_owner="compute:main",
                                     device_id="11111111-1111-4111-8111-111111111111")
    own = eye.c.network.create_port(network_id=network.id, security_groups=[group.id])
    flag = tmp_path / "flag"
    try:
        with Relay(cloud) as relay:
            relay.rule("^DELETE /p9696/v2.0/security-groups/", "edit", skip=2, change=lambda reply: flag.touch() or reply)
            stays = Drive(environment(cloud, tmp_path, relay=relay, GPUPROV_DRIVE_CANCEL_ON=str(flag)), path, "destroy")
        assert stays["code"] == "cancelled", stays.result
        assert eye.c.network.find_port(left.id) is None
        assert eye.c.network.find_port(own.id) is not None and [g.id for g in eye.groups()] == [group.id]
    finally:
        eye.c.network.delete_port(own.id)
    down = subprocess.run([program, "down", "contract", "--in", "openstack"], env=env, capture_output=True, text=True,
                          timeout=300, check=False)
    assert down.returncode == 0, down
    eye.nothing()


def test_an_address_that_somebody_gave_the_node(cloud, eye, tmp_path):
    """A port has one floating IP. The node that has one already is not given another, and nobody's is deleted."""
    env, path = environment(cloud, tmp_path), spec(tmp_path, nodes=1)
    public = eye.c.network.find_network("public")
    given = []

    def give(reply):
        for port in reply["ports"]:
            if not given:
                given.append(eye.c.network.create_ip(floating_network_id=public.id, port_id=port["id"]))
        return reply

    with Relay(cloud) as relay:
        relay.rule(r"^GET /p9696/v2.0/ports\?device_id", "edit", times=None, change=give)
        made = Drive(environment(cloud, tmp_path, relay=relay), path, "create")
        assert made.rc == 0 and not relay.requests("POST .*floatingips"), made.result
    assert [a.id for a in eye.addresses()] == [given[0].id]
    assert Drive(env, path, "destroy").rc == 0
    assert [a.id for a in eye.addresses()] == [given[0].id]
    eye.c.network.delete_ip(given[0].id)


def test_credentials_that_end_while_servers_are_built(cloud, eye, tmp_path):
    """The run ends with the cause instead of polling for twenty minutes, and a later one finishes the servers."""
    path, env = spec(tmp_path), environment(cloud, tmp_path)
    with Relay(cloud) as relay:
        flag = tmp_path / "flag"
        relay.rule(NEW, "edit", times=None, change=lambda reply: flag.touch() or reply)
        relay.rule("^GET|^POST .*/auth/tokens", "reply", times=None, when=str(flag), **error(401, "unauthorized", "It ended."))
        cut = Drive(environment(cloud, tmp_path, relay=relay), path, "create")
        assert cut["code"] == "unknown-outcome" and "It ended" in cut["message"], cut.result
        assert "secret" not in cut.stderr + json.dumps(cut.result)
    before = {s.id for s in eye.servers()}
    for _ in before:  # one open intent each
        assert Drive(env, path, "create").rc == 0
    assert {s.id for s in eye.servers()} == before and len(before) == 2
    assert Drive(env, path, "destroy").rc == 0


# --- what the SDK sends ---

def bodies(relay, pattern):
    """Service and path of each request, without ids, and its body."""
    sent = [(r["method"] + re.sub(r"/p\d+/v[\d.]+|/[0-9a-f-]{32,36}", "", r["target"]), json.loads(r["body"]))
            for r in relay.requests(pattern)]
    relay.log.clear()
    return sent


def sdk_of(relay, **auth):
    return openstack.connect(load_yaml_config=False, load_envvars=False, auth_url=relay.auth_url, region_name="RegionOne",
                             compute_default_microversion="2.90", **auth)


def test_the_sdk_sends_what_gpuprov_sends(cloud, eye, tmp_path):
    """The login, and every request that creates something, from openstacksdk and keystoneauth1: the same bodies."""
    with Relay(cloud) as relay:
        env, path = environment(cloud, tmp_path, relay=relay), spec(tmp_path, nodes=1)
        assert Drive(env, path, "create").rc == 0
        ours = bodies(relay, "^POST")
        assert Drive(env, path, "destroy").rc == 0
        relay.log.clear()
        sdk = sdk_of(relay, auth_type="password", username=env["OS_USERNAME"], password=env["OS_PASSWORD"],
                     project_name=env["OS_PROJECT_NAME"], user_domain_id=env["OS_USER_DOMAIN_ID"],
                     project_domain_id=env["OS_PROJECT_DOMAIN_ID"])
        made = {name.rpartition("/")[2]: body for name, body in ours}
        key, group = made["os-keypairs"]["keypair"], made["security-groups"]["security_group"]
        sdk.compute.create_keypair(**key)
        new = sdk.network.create_security_group(**group)
        for _, body in [one for one in ours if one[0].endswith("security-group-rules")]:
            rule = dict(body["security_group_rule"], security_group_id=new.id)
            rule["ether_type"] = rule.pop("ethertype")
            rule["remote_group_id"] = new.id if "remote_group_id" in rule else None
            sdk.network.create_security_group_rule(**{k: v for k, v in rule.items() if v is not None})
        s = dict(made["servers"]["server"], security_groups=[{"name": new.id}])
        server = sdk.compute.create_server(**{**{k: v for k, v in s.items() if not k.endswith("Ref")}, "image_id": s["imageRef"],
                                              "flavor_id": s["flavorRef"]})
        server = sdk.compute.wait_for_server(server)
        port = next(sdk.network.ports(device_id=server.id))
        sdk.network.create_ip(**dict(made["floatingips"]["floatingip"], port_id=port.id))
        theirs = bodies(relay, "^POST")
        eye.wipe()

        def same(calls):
            """Ids of what was made differ."""
            for _, body in calls:
                for used in body.get("server", {}).get("security_groups", []):
                    used["name"] = "X"
            lines = (json.dumps(call, sort_keys=True) for call in calls)
            return sorted(re.sub(r'("(security_group_id|remote_group_id|port_id)": )"[^"]*"', r'\1"X"', line) for line in lines)
        assert same(ours) == same(theirs) and {"tokens", "servers", "floatingips"} <= made.keys()


def test_an_application_credential_logs_in_as_keystoneauth_does(cloud, eye, tmp_path):
    made = eye.c.identity.create_application_credential(eye.c.current_user_id, "login")
    with Relay(cloud) as relay:
        own = {"OS_AUTH_TYPE": "v3applicationcredential", "OS_APPLICATION_CREDENTIAL_ID": made.id,
               "OS_APPLICATION_CREDENTIAL_SECRET": made.secret}
        env = environment(cloud, tmp_path, relay=relay, **dict.fromkeys(("OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME")), **own)
        run = Drive(dict(env, GPUPROV_TRACE="all"), spec(tmp_path), "list")
        assert run.rc == 0 and "/v3/auth/tokens" in run.stderr
        token = relay.requests("^GET /p8774")[0]["headers"]["x-auth-token"]
        assert made.secret not in run.stderr and token not in run.stderr and len(token) > 20
        sdk_of(relay, auth_type=own["OS_AUTH_TYPE"], application_credential_id=made.id,
               application_credential_secret=made.secret).authorize()
        ours, theirs = bodies(relay, "^POST .*/auth/tokens")
        assert ours == theirs
    eye.c.identity.delete_application_credential(eye.c.current_user_id, made.id)
