# SPDX-License-Identifier: Apache-2.0
"""Servers of a real OpenStack that delete themselves at their deadline: the application credential of each one, its
faults, its end, and the node's script with such a credential. The servers are no machines, so `up` ends at SSH:
test_openstack_hosts.py has the hand-over."""
import base64
import json
import os
import pathlib
import subprocess
import uuid

import pytest
from openstack_relay import Relay, error
from openstack_world import FROM, MARKS, Eye, environment, spec
from openstack_world import cloud_fixture, eye_fixture  # noqa: F401  # fixtures
from waiting import wait_for

pytestmark = MARKS
ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "templates/cloud-init/end-openstack.sh"
NEW = r"^POST /p5000/v3/users/[^/]*/application_credentials$"
READ = r"^GET /p5000/v3/users/[^/]*/application_credentials$"
OFFER = {"role": "self-delete", "instance_type": "cpu.small"}
LIMITS = {"ttl": "1h"}  # without `unattended: accept`


class Run:
    """gpuprov with one state folder after another, through a relay."""

    def __init__(self, cloud, relay, program, folder):
        self.cloud, self.relay, self.program, self.folder, self.more = cloud, relay, program, folder, {}
        self.path = self.spec()

    def spec(self, **more):
        how = {"gpu": None, "nodes": 1, "offer": OFFER, "limits": LIMITS, "access": {"ssh_from": [FROM], "timeout": "1s"}, **more}
        return spec(self.folder, **how)

    def popen(self, *words, state="state"):
        env = environment(self.cloud, self.folder, relay=self.relay, GPUPROV_STATE_DIR=str(self.folder / state), **self.more)
        return subprocess.Popen([self.program, *map(str, words)], env=env, stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __call__(self, *words, code=0, state="state"):
        process = self.popen(*words, state=state)
        out, err = process.communicate(timeout=400)
        assert code is None or process.returncode == code, (process.returncode, out, err)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def ends(self):
        return json.loads(self("status", "contract", "--json", code=None).stdout)["stacks"][0]["ends"]


@pytest.fixture(name="run")
def run_fixture(cloud, program, tmp_path):
    with Relay(cloud) as relay:
        yield Run(cloud, relay, program, tmp_path)


def rules_of(credential):
    return sorted((r["service"], r["method"], r["path"]) for r in credential["access_rules"])


def test_each_server_gets_its_own_right(eye, run):
    """What keystone has is what one server needs; a second `up` keeps it until the node has another one."""
    path = run.spec(nodes=2)
    plan = json.loads(run("plan", path, "--json", code=2).stdout)
    assert plan["ends"] == "guest", plan
    up = run("up", path, code=6)
    servers = {s.id: s for s in eye.servers()}
    made = eye.credentials()
    assert len(servers) == len(made) == 2
    region = servers[next(iter(servers))].location.region_name
    assert {c["name"] for c in made} == {f"gpuprov-end-{region}-{i}-1" for i in servers}
    for c in made:
        own = f"/p8774/v2.1/servers/{c['name'].removeprefix(f'gpuprov-end-{region}-').removesuffix('-1')}"
        assert rules_of(c) == [("compute", "DELETE", own), ("compute", "GET", own)] and c["unrestricted"] is False
        assert c["expires_at"] and " stack=contract " in c["description"]
    admin = Eye(run.cloud, "admin").c.compute
    script = base64.b64encode(SCRIPT.read_bytes()).decode()
    for i in servers:
        data = admin.get(f"/servers/{i}", microversion="2.90").json()["server"]["OS-EXT-SRV-ATTR:user_data"]
        assert script in base64.b64decode(data).decode()
    assert run.ends() == "gc-only"  # no node has used its right
    for c, i in ((c, i) for c in made for i in servers if i in c["name"]):
        eye.c.compute.set_server_metadata(i, **{"gpuprov-ends": c["id"]})
    assert run.ends() == "guest"
    again = run("up", path, code=6)
    assert {c["name"][-2:] for c in eye.credentials()} == {"-1", "-2"} and len(eye.credentials()) == 4
    assert run.ends() == "guest"  # the first ones still count
    eye.c.identity.delete(f"/users/{eye.c.current_user_id}/application_credentials/{made[0]['id']}")
    assert run.ends() == "gc-only"
    secrets = [json.loads(r["body"])["application_credential"] for r in run.relay.requests(NEW)]
    assert all("secret" not in s for s in secrets)
    said = (up.stdout + up.stderr + again.stderr).lower().replace("read their secrets", "")  # of the plan
    assert "secret" not in said
    run("down", "contract", "--in", "openstack", state="another")
    eye.nothing()


def test_without_role_nothing_is_made(eye, run):
    path = run.spec(offer={"instance_type": "cpu.small"}, limits={"ttl": "1h", "unattended": "accept"})
    assert json.loads(run("plan", path, "--json", code=2).stdout)["ends"] == "gc-only"
    run("up", path, code=6)
    assert len(eye.servers()) == 1 and eye.credentials() == [] and not run.relay.requests(NEW)
    run("down", "contract")
    eye.nothing()


def test_a_lost_reply(eye, run):
    """keystone shows a secret once: what was made is deleted and made again, with the same name."""
    run.relay.rule(NEW, "drop_after", times=1)
    run("up", run.path, code=6)
    assert len(run.relay.requests(NEW)) == 2
    assert [c["name"][-2:] for c in eye.credentials()] == ["-1"]
    run("down", "contract")
    eye.nothing()


@pytest.mark.parametrize("journal", [True, False])
def test_killed_while_it_is_made(eye, run, journal):
    """kill -9 after keystone has made it: `up` makes another one, and `down` deletes both."""
    run.relay.rule(NEW, "slow", seconds=20, times=1)
    up = run.popen("up", run.path)
    try:
        wait_for(eye.credentials, 300)
    finally:
        up.kill()
        up.communicate()
    run.relay.rules.clear()
    run("up", run.path, code=6)
    assert sorted(c["name"][-2:] for c in eye.credentials()) == ["-1", "-2"]
    run("down", "contract", "--in", "openstack", state="state" if journal else "new")
    eye.nothing()


def test_refused(eye, run):
    """keystone refuses: `up` fails with the cause, and `down` leaves nothing."""
    run.relay.rule(NEW, "reply", times=None, **error(403, "error", "You are not authorized to perform this action."))
    up = run("up", run.path, code=None)
    assert up.returncode != 0 and "its right to end itself" in up.stderr and "not authorized" in up.stderr, up
    run.relay.rules.clear()
    run("down", "contract")
    eye.nothing()


def test_a_list_that_fails_ends_nothing(eye, run):
    """A list without the credentials is not complete: `down` does not report success."""
    run("up", run.path, code=6)
    run.relay.rule(READ, "reply", times=None, **error(403, "error", "Not allowed to list."))
    down = run("down", "contract", code=None)
    assert down.returncode == 8 and "application_credentials: error: Not allowed to list" in down.stderr, down
    run.relay.rules.clear()
    run("down", "contract")
    eye.nothing()


def test_a_login_that_may_not_make_any(eye, run):
    """An application credential makes others only if it is unrestricted."""
    base = f"/users/{eye.c.current_user_id}/application_credentials"
    own = {}
    for free in (False, True):
        body = {"application_credential": {"name": f"own-{free}", "unrestricted": free}}
        own[free] = eye.c.identity.post(base, json=body).json()["application_credential"]

    def login(free):
        return {"OS_AUTH_TYPE": "v3applicationcredential", "OS_APPLICATION_CREDENTIAL_ID": own[free]["id"],
                "OS_APPLICATION_CREDENTIAL_SECRET": own[free]["secret"], "OS_USERNAME": None, "OS_PASSWORD": None,
                "OS_PROJECT_NAME": None, "OS_USER_DOMAIN_ID": None, "OS_PROJECT_DOMAIN_ID": None}
    try:
        run.more = login(False)
        plan = run("plan", run.path, code=None)
        assert plan.returncode not in (0, 2) and "'--unrestricted'" in plan.stderr and "'role'" in plan.stderr, plan
        assert "may not create others" in run("doctor", code=None).stdout
        run.more = login(True)
        run("up", run.path, code=6)
        assert len(eye.credentials()) == 1
        run.more = login(False)
        down = run("down", "contract", code=None)
        assert down.returncode != 0 and "may not delete others" in down.stderr, down
        wait_for(lambda: not eye.servers(), 120)
        assert len(eye.credentials()) == 1
        run.more = login(True)
        run("down", "contract")
        eye.nothing()
    finally:
        for c in own.values():
            eye.c.identity.delete(f"{base}/{c['id']}")


def test_a_server_that_deleted_itself(eye, run):
    """What it leaves is listed as stopped, and `down` removes it."""
    run("up", run.path, code=6)
    for s in eye.servers():
        eye.c.compute.delete_server(s.id)
    wait_for(lambda: not eye.servers(), 120)
    shown = json.loads(run("status", "contract", "--json", code=None).stdout)["stacks"][0]
    assert [r["state"] for r in shown["others"] if r["kind"] == "grant"] == ["stopped"], shown
    run("down", "contract", "--in", "openstack", state="another")
    eye.nothing()


# --- the node's script ---


@pytest.fixture(name="node")
def node_fixture(cloud, eye, tmp_path):
    """Two servers, and the script with a credential for the first one, in the form that gpuprov gives it."""
    c = eye.c.compute
    servers = [c.wait_for_server(c.create_server(name="own", flavor_id="cpu.small", networks="none",
                                                 image_id=eye.c.image.find_image("tiny").id)) for _ in range(2)]
    base = f"/users/{eye.c.current_user_id}/application_credentials"
    path = f"/v2.1/servers/{servers[0].id}"
    rules = [{"service": "compute", "method": m, "path": path} for m in ("GET", "DELETE")]
    made = eye.c.identity.post(base, json={"application_credential": {
        "name": f"script-{uuid.uuid4()}", "access_rules": rules}}).json()["application_credential"]
    conf = tmp_path / "end.conf"

    def script(verb, server=0, auth=None, secret=None):
        conf.write_text("AUTH=%s/auth/tokens\nSERVER=%s\nID=%s\nSECRET=%s\nCACERT=\n" % (
            auth or cloud.auth_url, c.get_endpoint() + "/servers/" + servers[server].id, made["id"], secret or made["secret"]))
        done = subprocess.run(["sh", SCRIPT, verb], env={"PATH": os.environ["PATH"], "END_FILE": str(conf)},
                              capture_output=True, text=True, timeout=120, check=False)
        assert made["secret"] not in done.stdout + done.stderr
        return done
    script.conf, script.servers = conf, servers
    yield script
    eye.c.identity.delete(f"{base}/{made['id']}")
    for rule in made["access_rules"]:
        eye.c.identity.delete(f"/users/{eye.c.current_user_id}/access_rules/{rule['id']}")
    for s in servers:
        c.delete_server(s.id)
    wait_for(lambda: not [s for s in c.servers() if s.name == "own"], 120)


def test_the_script_deletes_its_own_server_only(eye, node):
    assert node("check").returncode == 0
    for verb in ("check", "delete"):
        other = node(verb, server=1)
        assert other.returncode == 1 and "HTTP 401" in other.stderr, other
    wrong = node("check", secret="x" * 32)
    assert wrong.returncode == 1 and "HTTP 401" in wrong.stderr, wrong
    away = node("check", auth="http://127.0.0.1:9/v3")
    assert away.returncode == 1 and "http://127.0.0.1:9" in away.stderr and "'role'" in away.stderr, away
    assert node("other").returncode == 1
    node.conf.unlink()
    assert {s.id for s in eye.c.compute.servers() if s.name == "own"} == {s.id for s in node.servers}
    lost = subprocess.run(["sh", SCRIPT, "delete"], env={"PATH": os.environ["PATH"], "END_FILE": str(node.conf)},
                          capture_output=True, text=True, timeout=60, check=False)
    assert lost.returncode == 1 and "a reboot removes it, and 'gpuprov up'" in lost.stderr, lost


def test_the_unit_deletes_its_server_at_the_deadline(eye, node, tmp_path):
    assert node("check").returncode == 0
    try:
        machine = pathlib.Path("/sys/class/dmi/id/product_uuid").read_text(encoding="ascii").strip()
    except OSError:
        machine = ""
    conf = tmp_path / "deadline.conf"
    conf.write_text(f"EXPIRES=1\nTTL=0\nGRACE=0\nTICK=1\nHOLD=1\nRETRY=1\nMACHINE={machine}\nEND={SCRIPT}\n"
                    f"STATE={tmp_path / 'used'}\nRUN={tmp_path / 'run'}\n")
    unit = subprocess.Popen(["sh", ROOT / "templates/cloud-init/deadline.sh", conf], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, start_new_session=True,
                            env={"PATH": os.environ["PATH"], "END_FILE": str(node.conf)})
    try:
        wait_for(lambda: {s.id for s in eye.c.compute.servers() if s.name == "own"} == {node.servers[1].id}, 120)
    finally:
        os.killpg(unit.pid, 9)
        unit.wait()
