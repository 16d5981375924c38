# SPDX-License-Identifier: Apache-2.0
"""Statements of absence of the whole program against moto: each test leaves something that runs in the cloud
where an earlier version printed "gone", "ended" or "nothing", or exited 0."""
import json
import signal
import sqlite3
import subprocess
import time

import ec2
import pytest
from aws_cloud import cloud_fixture, moto_fixture  # noqa: F401

REGION = ec2.REGION
UID = "0123456789abcdef"


def gpuprov(cloud, code, *words, owner="me"):
    done = subprocess.run([str(ec2.BUILD / "gpuprov"), *words], env=dict(cloud.env, GPUPROV_OWNER=owner),
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def machine(cloud, **tags):
    tags = {"owner": "me", "stack": "one", "uid": UID, "slots": "0+1", "attempt": "1",
            "expires": "2025-01-01T00:00:00Z", **tags}
    return cloud.moto.client().run_instances(
        ImageId=cloud.moto.image(), MinCount=1, MaxCount=1, InstanceType="t3.micro",
        TagSpecifications=[{"ResourceType": "instance", "Tags": [
            {"Key": "gpuprov:" + k, "Value": v} for k, v in tags.items()]}])["Instances"][0]["InstanceId"]


def test_gc_of_one_uid_under_two_names(cloud):
    """Each name is ended; none counts as ended because the other one was."""
    ids = {machine(cloud, stack="one"), machine(cloud, stack="two")}
    got = json.loads(gpuprov(cloud, 0, "gc", "--json", "--in", "aws/" + REGION).stdout)
    assert {r["id"] for r in got["ended"]} == ids and cloud.moto.instances() == []


@pytest.mark.parametrize("old", [b"reservationSet>", b"instancesSet>"])
def test_a_reply_without_what_was_asked_for(cloud, old):
    """It is no list of nothing."""
    machine(cloud)
    cloud.proxy.rule("DescribeInstances", "edit", times=None, old=old, new=b"others>")
    assert json.loads(gpuprov(cloud, 8, "gc", "--dry-run", "--json").stdout)["complete"] is False
    assert "may exist" in gpuprov(cloud, 8, "status", "one").stderr


def test_an_account_without_regions(cloud):
    machine(cloud)
    cloud.proxy.rule("DescribeRegions", "reply", times=None,
                     body=b"<DescribeRegionsResponse><regionInfo/></DescribeRegionsResponse>")
    assert json.loads(gpuprov(cloud, 8, "gc", "--dry-run", "--json").stdout)["complete"] is False
    gpuprov(cloud, 8, "status", "two")
    gpuprov(cloud, 8, "down", "two")


def test_credentials_of_another_account(cloud):
    """An owner that begins with an account has nothing in any other one: no list there says that it is gone."""
    said = gpuprov(cloud, 8, "down", "one", owner="210987654321-me").stderr
    assert "account 123456789012" in said and "account 210987654321" in said
    gpuprov(cloud, 8, "gc", owner="210987654321-me")
    gpuprov(cloud, 8, "status", "one", owner="210987654321-me")
    gpuprov(cloud, 0, "gc", "aws", "--dry-run", owner="123456789012-me")


def test_status_names_a_machine_that_is_nobodys(cloud):
    one = machine(cloud, uid="../x")
    assert one in gpuprov(cloud, 8, "status", "one").stderr


@pytest.mark.parametrize("offers", ["[{provider: aws}, {provider: local}]", "[{provider: local}, {provider: aws}]"])
def test_the_order_of_offers_does_not_decide_the_owner(cloud, offers):
    """The stack is the cloud principal's in either order; with the other one `plan` used to buy the node again."""
    one = machine(cloud, owner="123456789012-moto", stack="both", expires="2099-01-01T00:00:00Z")
    spec = cloud.tmp / "both.yaml"
    spec.write_text(f"name: both\noffers: {offers}\n")
    got = json.loads(gpuprov(cloud, 2, "plan", "--json", str(spec), owner="").stdout)
    assert [i["action"] for i in got["items"]] == ["resume"] and one in got["items"][0]["what"]
    assert "both/0  aws" in gpuprov(cloud, 0, "status", "both", owner="").stdout


@pytest.mark.parametrize("nodes", [1, 2])
def test_plan_shows_the_place_of_the_nodes_that_are_there(cloud, nodes):
    """A free offer elsewhere is not tried for the second node, and another provider does not end the first one."""
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 6 * 3600 - 40))  # that ttl, by another clock
    machine(cloud, owner="123456789012-moto", stack="both", expires=expires)
    spec = cloud.tmp / "both.yaml"
    spec.write_text(json.dumps({"name": "both", "nodes": nodes, "limits": {"ttl": "6h"},
                                "access": {"ssh_from": ["203.0.113.0/24"]}, "offers": [
        {"provider": "local"},
        {"provider": "aws", "regions": [REGION], "instance_type": "t3.micro", "image": {"id": cloud.moto.image()}}]}))
    got = json.loads(gpuprov(cloud, 2, "plan", "--json", str(spec), owner="").stdout)
    assert got["expires"] is None  # nothing proves the tag's, and limits.ttl from now on it is not
    assert got["ends"] == "guest" and not any("local" in note for note in got["notes"]), got
    assert {o["provider"] for o in got["offers"]} == ({"aws"} if nodes == 2 else set()), got


def test_plan_warns_of_a_machine_that_is_nobodys(cloud):
    one = machine(cloud, stack="contract", uid="../x")
    said = gpuprov(cloud, 2, "plan", str(cloud.spec)).stderr
    assert "left alone: " + one in said and "may be billed" in said


@pytest.mark.parametrize("verb", ["down", "status", "gc"])
def test_looking_nowhere_proves_nothing(cloud, verb):
    """Hosts of the provider ssh are in no list of anybody: --in ssh leaves no place to look at."""
    words = [verb] if verb == "gc" else [verb, "one"]
    said = gpuprov(cloud, 1, *words, "--in", "ssh")
    assert "nothing was found" not in said.stdout and "there is no stack" not in said.stderr
    if verb == "down":
        assert json.loads(gpuprov(cloud, 1, *words, "--in", "ssh", "--json").stdout)["gone"] is None


def test_in_ends_nothing_elsewhere(cloud):
    """Also not what the journal knows there."""
    cloud.spec = ec2.spec(cloud.tmp, cloud.moto.image(), market="on-demand", nodes=1)
    up = subprocess.Popen([str(ec2.BUILD / "gpuprov"), "up", str(cloud.spec)], env=dict(cloud.env, GPUPROV_OWNER="me"),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in up.stdout:
        if "waiting for ssh" in line:
            break
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=60)
    [one] = cloud.moto.instances()
    said = gpuprov(cloud, 8, "down", "contract", "--in", "aws/eu-west-1")
    assert one["InstanceId"] in said.stderr and len(cloud.moto.instances()) == 1
    with sqlite3.connect(cloud.tmp / "state" / "journal.db") as journal:  # a wrong uid there keeps nothing alive
        journal.execute("UPDATE stacks SET uid='../../x'")
    gpuprov(cloud, 0, "down", "contract")
    assert cloud.moto.instances() == []


# --- rules ---

ANYBODY = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]


def let_anybody_in(cloud):
    assert cloud.drive("create")["code"] == "ok"
    group = cloud.moto.groups()[0]["GroupId"]
    cloud.moto.client().authorize_security_group_ingress(GroupId=group, IpPermissions=ANYBODY)
    return group


def test_a_revoke_that_revokes_nothing(cloud):
    """EC2 answers with success and the rules that it did not recognize."""
    let_anybody_in(cloud)
    cloud.proxy.rule("RevokeSecurityGroupIngress", "reply", times=None, body=(
        b"<RevokeSecurityGroupIngressResponse><return>true</return><unknownIpPermissionSet><item/>"
        b"</unknownIpPermissionSet></RevokeSecurityGroupIngressResponse>"))
    run = cloud.drive("create")
    assert run["code"] == "protocol" and "still allows" in run["message"], run.result


def test_a_rule_that_somebody_else_revoked_meanwhile(cloud):
    group = let_anybody_in(cloud)
    cloud.proxy.rule("RevokeSecurityGroupIngress", "drop_after")
    assert cloud.drive("create")["code"] == "ok"  # the repeated call finds no such rule
    [found] = cloud.moto.client().describe_security_groups(GroupIds=[group])["SecurityGroups"]
    assert "0.0.0.0/0" not in str(found["IpPermissions"])
