# SPDX-License-Identifier: Apache-2.0
"""The openstack provider against a real OpenStack (tests/openstack). openstacksdk checks what is there."""
import base64
import json
import signal
import subprocess

from openstack_world import DRIVE, FROM, MARKS, Drive, Eye, environment, quota, spec
from openstack_world import cloud_fixture, eye_fixture  # noqa: F401  # fixtures
from test_provider_contract import run_contract
from waiting import wait_for

pytestmark = MARKS


def test_contract(cloud, eye, tmp_path):
    """Claim, gang, list, late tag, foreign owner, end; with floating IPs."""
    run_contract(environment(cloud, tmp_path), "openstack", spec(tmp_path))


def test_the_sdk_sees_what_was_launched(cloud, eye, tmp_path):
    env, path = environment(cloud, tmp_path), spec(tmp_path, gpu="H100:8")
    made = Drive(env, path, "create")
    assert made.rc == 0, made.result
    servers = {s.name: s for s in eye.servers()}
    assert sorted(servers) == ["gpuprov-contract-0", "gpuprov-contract-1"]
    nodes = {r["id"]: r for r in Drive(env, path, "list").of_kind("instance")}
    assert set(nodes) == {s.id for s in servers.values()}
    (group,), (claim,), (uid,) = eye.groups(), eye.claims(), {r["uid"] for r in nodes.values()}
    for n, name in enumerate(sorted(servers)):
        s = servers[name]
        assert s.status == "ACTIVE" and s.flavor.original_name == "gpu.h100.8" and not s.key_name
        assert s.metadata["gpuprov:uid"] == uid and s.metadata["gpuprov:slots"] == f"{n}+1"
        assert {"gpuprov", f"gpuprov-uid-{uid}"} <= set(s.tags)
        assert [g["name"] for g in s.security_groups] == [group.name]
        addresses = [a for a in eye.addresses() if a.floating_ip_address == nodes[s.id]["public_ip"]]
        assert [a.fixed_ip_address for a in addresses] == [
            a["addr"] for net in s.addresses.values() for a in net if a["OS-EXT-IPS:type"] == "fixed"]
    admin = Eye(cloud, "admin").c.compute.get(f"/servers/{servers['gpuprov-contract-0'].id}", microversion="2.90").json()
    data = base64.b64decode(admin["server"]["OS-EXT-SRV-ATTR:user_data"]).decode()
    assert data.startswith("#cloud-config")
    rules = {(r["ethertype"], r["protocol"], r["port_range_min"], r["remote_ip_prefix"] or r["remote_group_id"])
             for r in group.security_group_rules if r["direction"] == "ingress"}
    assert rules == {("IPv4", "tcp", 22, FROM), ("IPv4", None, None, group.id), ("IPv6", None, None, group.id)}
    assert f"uid={uid}" in claim.public_key and claim.public_key.startswith("ssh-ed25519 ")
    assert Drive(env, path, "destroy").rc == 0


def test_what_the_sdk_deletes_is_gone(cloud, eye, tmp_path):
    env, path = environment(cloud, tmp_path), spec(tmp_path)
    assert Drive(env, path, "create").rc == 0
    eye.wipe()
    assert Drive(env, path, "list")["resources"] == []
    assert Drive(env, path, "destroy").rc == 0


def test_the_program_from_plan_to_nothing(cloud, eye, tmp_path, program):
    """The built binary. The lab's servers are no machines, so up stops at SSH; down needs no journal, gc neither."""
    path, env = spec(tmp_path, access={"ssh_from": [FROM], "timeout": "5s"}), environment(cloud, tmp_path)

    def run(*words, state="state"):
        return subprocess.run([program, *map(str, words)], env={**env, "GPUPROV_STATE_DIR": str(tmp_path / state)},
                              capture_output=True, text=True, timeout=300, check=False)

    plan = run("plan", path)
    assert "gpu.h100.1" in plan.stdout and "only by 'gpuprov gc'" in plan.stdout, plan
    up = run("up", path)
    assert up.returncode == 6, up
    assert len(eye.servers()) == 2 and len(eye.addresses()) == 2
    down = run("down", "contract", "--in", "openstack", state="another")
    assert down.returncode == 0, down
    eye.nothing()
    up = run("up", path, state="third")
    assert up.returncode == 6, up
    kept = run("gc", "--in", "openstack", state="empty")
    assert kept.returncode == 0 and len(eye.servers()) == 2, kept  # their deadline is not over
    assert run("down", "contract", state="third").returncode == 0
    eye.nothing()


def test_failures_after_the_202(cloud, eye, tmp_path):
    """nova accepts, then the server is in ERROR. It is taken away, because it keeps its quota."""
    env = environment(cloud, tmp_path)
    for more, code, word in (
            ({"gpu": None, "nodes": 2, "offer": {"instance_type": "impossible"}}, "capacity", "No valid host"),
            ({"gpu": None, "nodes": 3, "offer": {"instance_type": "cpu.small", "zones": ["small"]}}, "capacity", "No valid"),
            ({"nodes": 3, "gpu": "H100:8"}, "capacity", "No valid host"),
            ({"gpu": None, "offer": {"instance_type": "cpu.small", "zones": ["abort"]}}, "capacity", "aborted")):
        path = spec(tmp_path, **more)
        made = Drive(env, path, "create")
        assert made["code"] == code and word in made["message"], made.result
        assert all(s.status == "ACTIVE" for s in eye.servers())
        assert Drive(env, path, "destroy").rc == 0
        eye.nothing()


def test_a_server_that_comes_back_after_its_delete(cloud, eye, tmp_path):
    """nova's 204 is no proof: the first DELETE fails on the host, and the server is in ERROR until the second."""
    env = environment(cloud, tmp_path)
    path = spec(tmp_path, gpu=None, offer={"instance_type": "cpu.small", "zones": ["stubborn"]})
    assert Drive(env, path, "create").rc == 0
    assert Drive(env, path, "destroy").rc == 0
    eye.nothing()


def test_a_slow_build_that_is_killed_goes_on(cloud, eye, tmp_path):
    """The servers stay in BUILD; the run is killed; the next one finishes them, and none is made twice."""
    env = environment(cloud, tmp_path)
    path = spec(tmp_path, gpu=None, offer={"instance_type": "cpu.small", "zones": ["slow"]})
    first = subprocess.Popen([str(DRIVE), "openstack", str(path), "create"], env=env, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: len(eye.servers()) == 2 or first.poll() is not None, 200)
    finally:
        first.kill()
        first.wait()
    assert first.returncode == -signal.SIGKILL
    before = {s.id: s.status for s in eye.servers()}
    assert len(before) == 2 and set(before.values()) == {"BUILD"}, before
    cloud.go()
    for _ in before:  # one open intent each
        made = Drive(env, path, "create")
        assert made.rc == 0, made.result
    assert {s.id: s.status for s in eye.servers()} == dict.fromkeys(before, "ACTIVE")
    assert len(eye.addresses()) == 2
    assert Drive(env, path, "destroy").rc == 0


def test_quota_is_read_before_the_first_request(cloud, eye, tmp_path):
    env, path = environment(cloud, tmp_path), spec(tmp_path)
    quota(cloud, instances=1)
    try:
        made = Drive(env, path, "create")
        assert made["code"] == "quota" and "room for 1 servers" in made["message"], made.result
        assert eye.servers() == []
    finally:
        quota(cloud, instances=500)
    assert Drive(env, path, "destroy").rc == 0


def test_access_rules_of_the_policy_are_enough(cloud, eye, tmp_path, program):
    """An application credential with exactly the rules that --policy prints does the whole story, and nothing else."""
    rules = json.loads(subprocess.run([program, "providers", "openstack", "--policy", "--owner", "me"], check=True,
                                      capture_output=True, text=True, env=environment(cloud, tmp_path)).stdout)
    made = eye.c.identity.create_application_credential(eye.c.current_user_id, "least", access_rules=rules)
    env = environment(cloud, tmp_path, OS_AUTH_TYPE="v3applicationcredential", OS_USERNAME=None, OS_PASSWORD=None,
                      OS_PROJECT_NAME=None, OS_APPLICATION_CREDENTIAL_ID=made.id,
                      OS_APPLICATION_CREDENTIAL_SECRET=made.secret)
    run_contract(env, "openstack", spec(tmp_path))
    tight = eye.c.identity.create_application_credential(eye.c.current_user_id, "tight", access_rules=rules[:1])
    env.update(OS_APPLICATION_CREDENTIAL_ID=tight.id, OS_APPLICATION_CREDENTIAL_SECRET=tight.secret)
    refused = Drive(env, spec(tmp_path), "list")
    assert refused["code"] == "auth" and "access rules" in refused["message"], refused.result
    eye.c.identity.delete_application_credential(eye.c.current_user_id, tight.id)
    gone = Drive(env, spec(tmp_path), "open")
    assert gone["code"] == "auth" and "Application Credential" in gone["message"], gone.result
    for secret in (made.secret, tight.secret):
        assert secret not in refused.stderr + gone.stderr + json.dumps([refused.result, gone.result])


def test_another_project_and_a_colleague(cloud, eye, tmp_path):
    """A stack of that name in another project, or of another user of the project, is another stack."""
    mine, path = environment(cloud, tmp_path), spec(tmp_path)
    (tmp_path / "2").mkdir()
    assert Drive(mine, path, "create").rc == 0
    for user in ("colleague", "stranger"):
        theirs = environment(cloud, tmp_path / "2", user=user)
        assert Drive(theirs, path, "list")["resources"] == []
        assert Drive(theirs, path, "destroy").rc == 0
    assert len(eye.servers()) == 2
    assert Drive(mine, path, "destroy").rc == 0


# --- credentials ---

def doctor(program, env, folder):
    done = subprocess.run([program, "doctor", "--json"], env=env, cwd=folder, capture_output=True, text=True, timeout=60,
                          check=False)
    assert '"secret' not in done.stdout and " secret" not in done.stderr
    item = next(i for i in json.loads(done.stdout)["items"] if i["name"] == "openstack")
    return {"state": item["found"], "text": "%s %s" % (item["text"], item.get("how"))}


def bare(cloud, folder, **more):
    """No credentials, and then these."""
    none = dict.fromkeys(cloud.env())
    return environment(cloud, folder, **{**none, **more})


def clouds(cloud, password="secret", **cloud_keys):
    auth = {"auth_url": cloud.auth_url, "username": "gpu", "project_name": "gpu", "user_domain_name": "Default",
            "project_domain_name": "Default", **({"password": password} if password else {})}
    return json.dumps({"clouds": {"here": {"auth": auth, "region_name": "RegionOne", **cloud_keys}}})


def test_credentials_are_found_where_the_sdk_finds_them(cloud, eye, tmp_path, program):
    config = tmp_path / ".config" / "openstack"
    config.mkdir(parents=True)
    found = doctor(program, environment(cloud, tmp_path), tmp_path)
    assert found["state"] == "ok" and "the environment (OS_*)" in found["text"], found
    nothing = doctor(program, bare(cloud, tmp_path), tmp_path)
    assert nothing["state"] == "missing" and "OS_CLOUD" in nothing["text"], nothing
    (config / "clouds.yaml").write_text(clouds(cloud, password=None))
    lacks = doctor(program, bare(cloud, tmp_path, OS_CLOUD="here"), tmp_path)
    assert "has no password" in lacks["text"], lacks
    (config / "secure.yaml").write_text("clouds: {here: {auth: {password: secret}}}\n")
    for env in ({"OS_CLOUD": "here"}, {}):
        found = doctor(program, bare(cloud, tmp_path, **env), tmp_path)
        assert found["state"] == "ok" and f"the cloud 'here' of {config}/clouds.yaml" in found["text"], found
    work = tmp_path / "work"
    work.mkdir()
    (work / "clouds.yml").write_text(clouds(cloud))
    assert "of ./clouds.yml" in doctor(program, bare(cloud, tmp_path), work)["text"]
    found = doctor(program, bare(cloud, tmp_path, OS_CLIENT_CONFIG_FILE=str(cloud.clouds_yaml), OS_CLOUD="gpu"), work)
    assert str(cloud.clouds_yaml) in found["text"], found
    several = doctor(program, bare(cloud, tmp_path, OS_CLIENT_CONFIG_FILE=str(cloud.clouds_yaml)), tmp_path)
    assert "several clouds (gpu, colleague" in several["text"], several
    unknown = doctor(program, bare(cloud, tmp_path, OS_CLOUD="nowhere"), tmp_path)
    assert "no cloud 'nowhere'" in unknown["text"] and "it has: here" in unknown["text"], unknown


def test_credentials_of_other_kinds(cloud, eye, tmp_path, program):
    made = eye.c.identity.create_application_credential(eye.c.current_user_id, "by-name")
    base = {"OS_AUTH_URL": cloud.auth_url}
    by_name = {**base, "OS_APPLICATION_CREDENTIAL_NAME": "by-name", "OS_APPLICATION_CREDENTIAL_SECRET": made.secret,
               "OS_USERNAME": "gpu", "OS_USER_DOMAIN_ID": "default"}
    token = {**base, "OS_AUTH_TYPE": "token", "OS_TOKEN": eye.c.auth_token, "OS_PROJECT_NAME": "gpu"}
    for env, kind in ((by_name, "v3applicationcredential"), (token, "v3token")):
        found = doctor(program, bare(cloud, tmp_path, **env), tmp_path)
        assert found["state"] == "ok" and f"({kind})" in found["text"], found
    for env, word in (({**by_name, "OS_APPLICATION_CREDENTIAL_SECRET": "wrong-words"}, "credentials"),
                      ({**token, "OS_TOKEN": "gAAAAAwrong-words"}, "token"),
                      ({**cloud.env(), "OS_PASSWORD": "wrong-words"}, "credentials"),
                      ({**cloud.env(), "OS_PROJECT_NAME": "other"}, "credentials"),
                      ({**cloud.env(), "OS_AUTH_TYPE": "v3oidcpassword"}, "not supported"),
                      ({**cloud.env(), "OS_PROJECT_NAME": None}, "names no project"),
                      ({**cloud.env(), "OS_INSECURE": "true"}, "OS_CACERT"),
                      ({**cloud.env(), "OS_AUTH_URL": "file:///etc/passwd"}, "not the URL"),
                      ({**cloud.env(), "OS_REGION_NAME": "Mars"}, "")):
        refused = doctor(program, bare(cloud, tmp_path, **env), tmp_path)
        assert word in refused["text"] and "wrong-words" not in json.dumps(refused), (env, refused)
        assert (refused["state"] == "ok") == ("Mars" in env.values()), refused
    (tmp_path / "clouds.yaml").write_text(clouds(cloud, verify=False))
    assert "'cacert'" in doctor(program, bare(cloud, tmp_path), tmp_path)["text"]
    mars = Drive(environment(cloud, tmp_path, OS_REGION_NAME="Mars"), spec(tmp_path), "offers")
    assert mars["code"] == "usage" and "it has compute in: RegionOne" in mars["message"], mars.result


def test_offers_that_do_not_fit(cloud, eye, tmp_path):
    env = environment(cloud, tmp_path)
    for more, word in (({"gpu": "A100:1"}, "no flavor whose extra specs name 1 x A100; it has: gpu.h100.1 (1 x H100)"),
                       ({"gpu": "H100:4"}, "4 x H100"),
                       ({"offer": {"instance_type": "nosuch"}}, "no flavor 'nosuch'"),
                       ({"offer": {"instance_type": "gpu.h100.8"}}, "has 8 x H100, but gpu is H100:1"),
                       ({"gpu": None, "offer": {"instance_type": "no-disk"}}, "has no disk"),
                       ({"offer": {"image": {"id": "nosuch"}}}, "no active image 'nosuch'"),
                       ({"offer": {"image": {"os": "ubuntu-24.04"}}}, "os_distro"),
                       ({"offer": {"network": "nosuch"}}, "no network 'nosuch': correct network; it has ")):
        refused = Drive(env, spec(tmp_path, **more), "offers")
        assert refused["code"] == "usage" and word in refused["message"], refused.result
    for more, flavor in (({"offer": {"image": {"os": "debian-12"}, "network": "lab"}}, "gpu.h100.1"),
                         ({"image": "auto", "offer": {"image": None}}, "gpu.h100.1"),
                         ({"gpu": "L4:1", "offer": {"instance_type": "vgpu.1"}}, "vgpu.1"),
                         ({"gpu": None, "offer": {"zones": ["main"]}}, "cpu.small")):
        found = Drive(env, spec(tmp_path, **more), "offers")
        assert found.rc == 0 and found["offers"][0]["type"] == flavor, found.result
