# SPDX-License-Identifier: Apache-2.0
"""A unit's stacks in the cloud's tags, prune without a journal, what was changed by hand, and plan files at EC2. What is
true is asked of moto with boto3."""
import contextlib
import json
import shutil
import sqlite3
import time

import faultproxy
import pytest
from hostile import AWAY, HOME, SSH_FROM, denied, rules, tags, tags_of
from hostile import account_fixture, clouds_fixture, computer_fixture, proxies_fixture  # noqa: F401

OWNER = "repo"
AS = {"GPUPROV_OWNER": OWNER}
OFFER = {"provider": "aws", "regions": [HOME], "market": "on-demand", "instance_type": "t3.small"}


@pytest.fixture(name="repo")
def repo_fixture(computer, tmp_path):
    """repo(computer, names): a folder of specs, as a checkout has it."""
    def make(one, *names, unit="infra", **more):
        path = tmp_path / "checkout"
        path.mkdir(exist_ok=True)
        for old in path.glob("*.yaml"):
            old.unlink()
        (path / "gpuprov.unit").write_text(unit + "\n")
        for name in names:
            one.spec(name, offers=[{**OFFER, **more}]).rename(path / f"{name}.yaml")
        return path
    return make


def up_until_ssh(one, *args, stacks=1):
    """`up`, ended by kill -9 as soon as that many stacks wait for their machines. Its stderr."""
    p = one.popen("up", *args, env=AS)
    lines = []
    try:
        for line in p.stderr:
            lines.append(line)
            if sum("waiting for ssh" in x for x in lines) == stacks:
                break
    finally:
        p.kill()
        p.communicate()
    return "".join(lines)


def test_a_runner_with_an_empty_journal_prunes(account, computer, repo):
    one, two = computer(), computer()
    up_until_ssh(one, repo(one, "a", "b"), stacks=2)
    [b] = account.alive("b")
    assert all(tags_of(i)["unit"] == "infra" for i in account.machines())
    [group] = account.groups("b")
    assert tags_of(group)["unit"] == "infra"
    account.tag(group["GroupId"], created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600)))
    other = account.instance(tags("c", OWNER, unit="other"))
    none = account.instance(tags("d", OWNER))
    stranger = account.instance(tags("e", "stranger", unit="infra"))
    path = repo(two, "a")
    j = two.tell("plan", "--prune", path, env=AS)
    assert j["code"] == 2 and [p["stack"]["name"] for p in j["prune"]] == ["b"], j["said"]
    assert "cannot prove" in two("plan", "--prune", path, env=AS, code=2).out
    assert b in account.alive()
    shutil.copytree(one.state, two.state, dirs_exist_ok=True)  # it knows a, whose node has no proof yet, and not b
    with contextlib.closing(sqlite3.connect(two.state / "journal.db")) as db, db:
        [[uid]] = db.execute("SELECT uid FROM stacks WHERE name='b'").fetchall()
        for table, column in (("nodes", "stack_uid"), ("resources", "uid"), ("intents", "uid"), ("stacks", "uid")):
            db.execute(f"DELETE FROM {table} WHERE {column}=?", [uid])
    said = up_until_ssh(two, "--prune", path)
    assert "- destroy stack b (1 node)" in said
    assert account.alive("b") == [] and len(account.alive("a")) == 1
    assert {other, none, stranger} <= set(account.alive())


def test_prune_where_the_cloud_cannot_be_read(account, computer, repo):
    """What is found is destroyed, what could not be read is not called gone, and the exit code is 8."""
    one, two = computer(), computer()
    up_until_ssh(one, repo(one, "b"))
    [group] = account.groups("b")
    account.tag(group["GroupId"], created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600)))
    path = repo(two, "a", instance_type="zz9.none")
    proxy = denied(account, AWAY)
    try:
        env = {**AS, "AWS_ENDPOINT_URL": proxy.url}
        plan = two("plan", "--prune", path, env=env, code=8)
        assert "stack b" in plan.out and AWAY in plan.err, plan
        j = two.tell("up", "--prune", path, env=env)
        assert j["code"] == 8 and AWAY in j["error"]["message"], j["said"]
        assert [(p["name"], p["gone"]) for p in j["pruned"]] == [("b", None)]  # its claim names only HOME, and may be anybody's
    finally:
        proxy.close()
    assert account.alive("b") == []
    blind = faultproxy.FaultProxy(account.moto.url).start().rule(
        None, "error", times=None, code="UnauthorizedOperation", status=403, region=HOME)
    try:
        account.instance(tags("gone-spec", OWNER, unit="infra"))
        j = two.tell("up", "--prune", path, env={**AS, "AWS_ENDPOINT_URL": blind.url})
        assert j["code"] == 8 and j["pruned"] == [], j["said"]
    finally:
        blind.close()
    assert account.alive("gone-spec") != []


def test_drift_is_named_field_by_field(account, computer):
    one = computer()
    path = one.spec("t4", offers=[OFFER])
    made, _ = one.up(path, "t4")

    def rows(code=2):
        j = one.tell("plan", path)
        assert j["code"] == code, j["said"]
        return {(r["action"], r["resource"], r["key"]): r for r in j["resource_changes"]}
    assert set(rows()) == {("resume", "node", "phase")}
    [group] = account.groups("t4")
    account.clients[HOME].authorize_security_group_ingress(
        GroupId=group["GroupId"], IpProtocol="tcp", FromPort=8080, ToPort=8081, CidrIp="0.0.0.0/0")
    account.tag(made, expires="2033-01-01T00:00:00Z")
    now = rows()
    opened = now["repair", "group", "ingress"]
    assert (opened["id"], opened["before"], opened["after"]) == (group["GroupId"], "tcp 8080-8081 0.0.0.0/0", None)
    assert now["refuse", "node", "tag expires"]["before"] == "2033-01-01T00:00:00Z"
    text = one("plan", path, code=2).out
    assert f"~ repair {group['GroupId']} ingress: tcp 8080-8081 0.0.0.0/0 -> none (" in text
    status = one.tell("status", "t4")
    assert [d["key"] for d in status["stacks"][0]["drift"]] == ["tag expires", "ingress"]
    one.again(path)
    assert SSH_FROM in rules(account.group_of(group["GroupId"])) and len(rules(account.group_of(group["GroupId"]))) == 2
    assert ("repair", "group", "ingress") not in rows()
    account.clients[HOME].stop_instances(InstanceIds=[made])
    stopped = rows()["replace", "node", "state"]
    assert (stopped["id"], stopped["before"], stopped["after"], stopped["node"]) == (made, "stopped", "running", 0)


def test_a_changed_instance_type(account, computer):
    one = computer()
    path = one.spec("t4", offers=[{k: v for k, v in OFFER.items() if k != "instance_type"}], cpus=2, memory="2 GB")
    made, _ = one.up(path, "t4")
    before = [i["InstanceType"] for i in account.machines()]
    account.clients[HOME].stop_instances(InstanceIds=[made])
    account.clients[HOME].modify_instance_attribute(InstanceId=made, InstanceType={"Value": "m5.4xlarge"})
    account.clients[HOME].start_instances(InstanceIds=[made])
    for _ in range(2):  # the journal takes over what it sees, and the row stays
        j = one.tell("plan", path)
        [row] = [r for r in j["resource_changes"] if r["key"] == "type"]
        assert (row["action"], row["before"], [row["after"]]) == ("refuse", "m5.4xlarge", before)


def test_a_plan_file_at_ec2(account, computer, repo, tmp_path):
    one, two = computer(), computer()
    plan = tmp_path / "t4.plan"
    path = repo(one, "t4") / "t4.yaml"
    one("plan", "-o", plan, path, env=AS, code=2)
    said = up_until_ssh(two, plan)  # another machine, the same cloud
    assert "waiting for ssh" in said and [tags_of(i)["unit"] for i in account.machines()] == ["infra"]
    r = one("up", plan, env=AS, code=1)
    assert account.alive("t4")[0] in r.err and "cannot prove" in r.err
    kept = tmp_path / "kept.plan"
    two("plan", "-o", kept, path, env=AS, code=2)
    account.clients[HOME].stop_instances(InstanceIds=account.alive("t4"))
    r = two("up", kept, env=AS, code=1)
    assert "moved: nodes 0: planned i-" in r.err and "moved: other machines: planned none, now i-" in r.err
    assert len(account.alive("t4")) == 1


def test_an_offer_that_got_dearer(account, computer, tmp_path):
    import hashlib
    one, plan = computer(), tmp_path / "t4.plan"
    one("plan", "-o", plan, one.spec("t4", offers=[{**OFFER, "instance_type": "g4dn.xlarge"}]), env=AS, code=2)
    j = json.loads(plan.read_text())
    for offer in j["plan"]["offers"]:  # as if the plan had been made when it was cheaper
        offer["usd_per_h"] /= 2
    text = json.dumps(j["plan"], separators=(",", ":"))
    j["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    plan.write_text(json.dumps(j))
    r = one("up", plan, env=AS, code=1)
    assert "no offer of the plan can be bought at its price any more" in r.err and "left out: aws " in r.err, r
    assert account.alive() == [] and account.groups("t4") == []
