# SPDX-License-Identifier: Apache-2.0
"""`gpuprov providers aws --policy`: whose policy it is, what it allows its owner, and what it denies."""
import json
import os
import pathlib
import re
import subprocess

import ec2
import iam
import pytest
from aws_cloud import cloud_fixture, moto_fixture  # noqa: F401

ME, OTHER = "alice", "bob"
EC2 = "arn:aws:ec2:us-east-1:123456789012:"
EC2_IMAGES = "arn:aws:ec2:us-east-1::"
IMAGE = "arn:aws:ec2:us-east-1::image/ami-0123456789abcdef0"
KEY = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
OWNER, RESOURCE = "aws:RequestTag/gpuprov:owner", "aws:ResourceTag/gpuprov:owner"


def run(*words, **env):
    clean = {k: v for k, v in os.environ.items() if not k.upper().startswith(("AWS_", "GPUPROV_"))}
    binary = os.environ.get("GPUPROV_BIN", str(ec2.BUILD / "gpuprov"))
    return subprocess.run([binary, "providers", "aws", "--policy", *words], capture_output=True, text=True,
                          timeout=120, check=False,
                          env=dict(clean, **ec2.CLEAN, **{k: v for k, v in env.items() if v is not None}))


@pytest.fixture(scope="module")
def policy():
    done = run("--owner", ME)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- requests, as EC2 asks IAM about them ---

def made(kind, owner):
    return ("ec2:RunInstances", EC2 + kind + "/*", {OWNER: owner} if owner else {})


def tagged(kind, action, owner, **more):
    tags = {OWNER: owner, "aws:TagKeys": ["Name", "gpuprov:owner", "gpuprov:uid", "gpuprov:stack"]} if owner else {}
    return ("ec2:CreateTags", EC2 + kind + "/*", dict(tags, **({"ec2:CreateAction": action} if action else {}), **more))


def launch(owner, group_owner, spot=True):
    kinds = ["instance", "volume", "network-interface"] + (["spot-instances-request"] if spot else [])
    return [made(k, owner) for k in kinds] + [tagged(k, "RunInstances", owner) for k in kinds] + [
        ("ec2:RunInstances", IMAGE, {}), ("ec2:RunInstances", EC2 + "subnet/subnet-1", {}),
        ("ec2:RunInstances", EC2 + "security-group/sg-1", {RESOURCE: group_owner} if group_owner else {})]


def new_group(owner):
    return [("ec2:CreateSecurityGroup", EC2 + "security-group/*", {OWNER: owner} if owner else {}),
            ("ec2:CreateSecurityGroup", EC2 + "vpc/vpc-1", {}), tagged("security-group", "CreateSecurityGroup", owner)]


def new_placement(owner):
    return [("ec2:CreatePlacementGroup", EC2 + "placement-group/*", {OWNER: owner} if owner else {}),
            tagged("placement-group", "CreatePlacementGroup", owner)]


def new_image(owner):
    tags = {OWNER: owner, "aws:TagKeys": ["Name", "gpuprov:owner"]} if owner else {}
    return [("ec2:CreateImage", EC2_IMAGES + kind + "/*", tags) for kind in ("image", "snapshot")] + [
        ("ec2:CreateTags", EC2_IMAGES + kind + "/*", dict(tags, **{"ec2:CreateAction": "CreateImage"}))
        for kind in ("image", "snapshot")]


def on(action, kind, owner, **more):
    return [(action, f"{EC2}{kind}/x-1", dict({RESOURCE: owner} if owner else {}, **more))]


def tag(kind, owner, *keys, **more):
    context = {RESOURCE: owner} if owner else {}
    context.update({"aws:RequestTag/" + k: "x" for k in keys})
    return [("ec2:CreateTags", f"{EC2}{kind}/x-1", dict(context, **({"aws:TagKeys": list(keys)} if keys else {}), **more))]


def through_ec2(action, via="ec2.us-east-1.amazonaws.com", **more):
    return [("kms:" + action, KEY, dict({"kms:ViaService": via} if via else {}, **more))]


GRANT = {"kms:GrantIsForAWSResource": "true"}
CLAIM_TAGS = ("gpuprov:expires", "gpuprov:created", "gpuprov:spec", "gpuprov:region/us-west-2")
TABLE = [
    ("launch as oneself", True, launch(ME, ME)),
    ("launch on demand", True, launch(ME, ME, spot=False)),
    ("launch as another", False, launch(OTHER, ME)),
    ("launch without an owner", False, launch(None, ME)),
    ("launch into another's group", False, launch(ME, OTHER)),
    ("launch into a group of nobody", False, launch(ME, None)),
    ("create an own group", True, new_group(ME)),
    ("create a group for another", False, new_group(OTHER)),
    ("create a group of nobody", False, new_group(None)),
    *[(f"placement group as {owner}", owner == ME, new_placement(owner)) for owner in (ME, OTHER, None)],
    *[(f"launch into a placement group of {owner}", owner == ME, on("ec2:RunInstances", "placement-group", owner))
      for owner in (ME, OTHER, None)],
    ("launch into reserved capacity", True, [("ec2:RunInstances", EC2 + "capacity-reservation/cr-1", {})]),
    ("reserve capacity", False, [("ec2:CreateCapacityReservation", EC2 + "capacity-reservation/*", {OWNER: ME})]),
    ("tag while launching, for another", False, [tagged("instance", "RunInstances", OTHER)]),
    ("tag while launching, without owner", False, [("ec2:CreateTags", EC2 + "instance/*",
                                                     {"ec2:CreateAction": "RunInstances", "aws:TagKeys": ["x"]})]),
    ("tag while making an image", False, [tagged("image", "CreateImage", ME)]),
    ("the tags of launching, later, on an own instance", False, [tagged("instance", None, ME, **{RESOURCE: ME})]),
    ("host key of an own instance", True, tag("instance", ME, "gpuprov:hostkey")),
    ("host key of an own instance with its proof", True, tag("instance", ME, "gpuprov:hostkey", "gpuprov:proof")),
    ("proof of another's instance", False, tag("instance", OTHER, "gpuprov:hostkey", "gpuprov:proof")),
    ("launch of an own instance, later", False, tag("instance", ME, "gpuprov:launch")),
    ("deadline of an own instance", True, tag("instance", ME, "gpuprov:expires", "gpuprov:deadline")),
    ("deadline of an own claim", True, tag("security-group", ME, "gpuprov:expires", "gpuprov:deadline")),
    ("proof on a claim", False, tag("security-group", ME, "gpuprov:proof")),
    ("deadline of another's instance", False, tag("instance", OTHER, "gpuprov:expires")),
    ("deadline and owner together", False, tag("instance", ME, "gpuprov:expires", "gpuprov:owner")),
    ("host key of another's instance", False, tag("instance", OTHER, "gpuprov:hostkey")),
    ("host key of nobody's instance", False, tag("instance", None, "gpuprov:hostkey")),
    ("host key of an own volume", False, tag("volume", ME, "gpuprov:hostkey")),
    ("no key at all on an own instance", False, tag("instance", ME)),
    ("host key and owner together", False, tag("instance", ME, "gpuprov:hostkey", "gpuprov:owner")),
    ("any other tag of an own instance", False, tag("instance", ME, "Name")),
    ("renew an own claim", True, tag("security-group", ME, *CLAIM_TAGS)),
    ("renew one tag of an own claim", True, tag("security-group", ME, "gpuprov:expires")),
    ("take regions away from an own claim", False, tag("security-group", ME, "gpuprov:regions")),
    ("renew another's claim", False, tag("security-group", OTHER, "gpuprov:expires")),
    ("renew nobody's claim", False, tag("security-group", None, "gpuprov:expires")),
    ("no key at all on an own claim", False, tag("security-group", ME)),
    ("host key on a claim", False, tag("security-group", ME, "gpuprov:hostkey")),
    *[(f"{key} of an own {kind} later", False, tag(kind, ME, key))
      for key in ("gpuprov:owner", "gpuprov:uid", "gpuprov:stack")
      for kind in ("instance", "volume", "security-group", "network-interface")],
    *[(f"claim nobody's {kind}: {key}", False, tag(kind, None, key, **{OWNER: ME}))
      for key in ("gpuprov:owner", "gpuprov:uid") for kind in ("instance", "security-group")],
    ("remove tags of an own instance", False, on("ec2:DeleteTags", "instance", ME)),
    *[(f"{action} {kind} of {owner}", owner == ME, on("ec2:" + action, kind, owner))
      for action, kind in (("TerminateInstances", "instance"), ("GetConsoleOutput", "instance"), ("DeleteVolume", "volume"),
                           ("DeletePlacementGroup", "placement-group"),
                           ("DeleteSecurityGroup", "security-group"), ("AuthorizeSecurityGroupIngress", "security-group"),
                           ("RevokeSecurityGroupIngress", "security-group"))
      for owner in (ME, OTHER, None, ME + "2", "", "*")],
    *[(f"{action} {kind} of {owner}", owner == ME, on("ec2:" + action, kind, owner))
      for action, kind in (("StopInstances", "instance"), ("CreateImage", "instance")) for owner in (ME, OTHER, None)],
    *[(f"{action} {kind} of {owner}", owner == ME, [("ec2:" + action, f"{EC2_IMAGES}{kind}/x-1",
                                                    {RESOURCE: owner} if owner else {})])
      for action, kind in (("DeregisterImage", "image"), ("DeleteSnapshot", "snapshot")) for owner in (ME, OTHER, None)],
    *[(f"image as {owner}", owner == ME, new_image(owner)) for owner in (ME, OTHER, None)],
    *[(f"proof of {owner}'s {kind}", owner == ME,
       [("ec2:CreateTags", f"{EC2_IMAGES}{kind}/x-1",
         dict({RESOURCE: owner} if owner else {}, **{"aws:TagKeys": ["gpuprov:image", "gpuprov:proof"]}))])
      for kind in ("image", "snapshot") for owner in (ME, OTHER, None)],
    ("proof and owner of an own image", False,
     [("ec2:CreateTags", EC2_IMAGES + "image/x-1", {RESOURCE: ME, "aws:TagKeys": ["gpuprov:proof", "gpuprov:owner"]})]),
    ("an own image of another's instance", False,
     [("ec2:CreateImage", EC2 + "instance/i-1", {RESOURCE: OTHER, OWNER: ME})]),
    ("start an own instance", False, on("ec2:StartInstances", "instance", ME)),
    ("look at instances", True, [("ec2:DescribeInstances", "*", {})]),
    ("a public parameter", True, [("ssm:GetParameter", "arn:aws:ssm:us-east-1::parameter/aws/service/x", {})]),
    ("an own parameter", False, [("ssm:GetParameter", "arn:aws:ssm:us-east-1:123456789012:parameter/secret", {})]),
    ("give a role to an instance", True, [("iam:PassRole", "arn:aws:iam::123456789012:role/r",
                                           {"iam:PassedToService": "ec2.amazonaws.com"})]),
    ("give a role to a function", False, [("iam:PassRole", "arn:aws:iam::123456789012:role/r",
                                           {"iam:PassedToService": "lambda.amazonaws.com"})]),
    ("the role for spot", True, [("iam:CreateServiceLinkedRole",
                                  "arn:aws:iam::123456789012:role/aws-service-role/spot.amazonaws.com/x",
                                  {"iam:AWSServiceName": "spot.amazonaws.com"})]),
    *[(f"{action} by EC2", True, through_ec2(action))
      for action in ("Decrypt", "DescribeKey", "GenerateDataKeyWithoutPlaintext", "ReEncryptFrom", "ReEncryptTo")],
    ("decrypt by EC2 in China", True, through_ec2("Decrypt", "ec2.cn-north-1.amazonaws.com.cn")),
    ("decrypt by oneself", False, through_ec2("Decrypt", None)),
    ("decrypt by S3", False, through_ec2("Decrypt", "s3.us-east-1.amazonaws.com")),
    ("grant for a volume", True, through_ec2("CreateGrant", **GRANT)),
    ("grant for anybody", False, through_ec2("CreateGrant", **{"kms:GrantIsForAWSResource": "false"})),
    ("grant without its purpose", False, through_ec2("CreateGrant")),
    ("grant by oneself", False, through_ec2("CreateGrant", None, **GRANT)),
    ("schedule a key's end", False, through_ec2("ScheduleKeyDeletion")),
]


@pytest.mark.parametrize("wanted, needs", [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_table(policy, wanted, needs):
    assert iam.allowed(policy, *needs) is wanted


def test_the_evaluator_denies_and_allows():
    """An evaluator that allows all or denies all would prove nothing."""
    p = {"Statement": [{"Effect": "Allow", "Action": ["s:Get*"], "Resource": "arn:?:x", "Condition": {
        "StringEquals": {"k": ["a", "b"]}, "ForAllValues:StringEquals": {"l": ["x"]}, "Null": {"l": "false"}}}]}
    good = {"k": "a", "l": ["x"]}
    assert iam.allowed(p, ("s:GetIt", "arn:1:x", good))
    for action, resource, context in (("s:Put", "arn:1:x", good), ("s:GetIt", "arn:12:x", good),
                                      ("s:GetIt", "arn:1:x", {"k": "c", "l": ["x"]}), ("s:GetIt", "arn:1:x", {"l": ["x"]}),
                                      ("s:GetIt", "arn:1:x", {"k": "a", "l": ["x", "y"]}),
                                      ("s:GetIt", "arn:1:x", {"k": "a"})):
        assert not iam.allowed(p, (action, resource, context))


# --- its actions are those of the code ---

# Nothing in the code calls these: EC2 does, in the caller's name.
BY_OTHERS = {"iam:PassRole", "iam:CreateServiceLinkedRole", "kms:Decrypt",
             "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo",
             "kms:CreateGrant"}


def called():
    """Every action in the sources: bodies that begin with it, and calls of the JSON services. STS needs no
    permission for GetCallerIdentity; taking a role is the base credentials' matter."""
    found = set()
    for path in (pathlib.Path(__file__).resolve().parents[3] / "providers/aws").glob("*.c"):
        text = re.sub(r"\s+", " ", path.read_text())
        found |= {"ec2:" + name for name in re.findall(r'aws_begin\(&?\w+, "(\w+)"\)', text)}
        found |= {"ec2:" + name for name in re.findall(r'change_all\(\w+, "(\w+)"', text)}
        found |= {"ec2:" + name for name in re.findall(r'delete_one\([^;]*?, "(\w+)", "\w+"', text)}
        for service, name in re.findall(r'\.service = "(\w+)",[^;]*?\.action = "(\w+)"', text):
            if service != "sts":
                found.add(f"{service}:{name}")
    return found


def test_actions_are_those_of_the_code(policy):
    given = {a for s in policy["Statement"] for a in iam.as_list(s["Action"])}
    assert len(called()) > 15, called()
    assert called() - given == set()
    assert given - called() - BY_OTHERS == set()
    assert not [a for a in given if "*" in a]


def test_size(policy):
    """IAM counts without blanks: 6,144 for a managed policy; the longest owner has 128 characters."""
    longest = json.loads(run("--owner", "o" * 128).stdout)
    assert len(json.dumps(longest, separators=(",", ":"))) < 6144
    assert [s["Sid"] for s in longest["Statement"]] == [s["Sid"] for s in policy["Statement"]]


# --- whose it is ---

def test_owner_of_the_environment_and_the_option():
    assert '"carol"' in run(GPUPROV_OWNER="carol").stdout
    both = run("--owner", ME, GPUPROV_OWNER="carol").stdout
    assert f'"{ME}"' in both and "carol" not in both


@pytest.mark.parametrize("owner", ["*", "a*", "${aws:username}", 'a"b', "a b", "?", "-x", "a/b", "x" * 129])
def test_what_is_no_owner(owner):
    done = run("--owner", owner)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done
    assert "letters, digits" in done.stderr


def test_without_owner_and_credentials(tmp_path):
    done = run(GPUPROV_STATE_DIR=str(tmp_path / "state"))
    assert done.returncode == 5 and done.stdout == "" and "--owner NAME" in done.stderr, done
    assert not (tmp_path / "state").exists()


def test_principal_of_the_credentials(cloud):
    done = run(**{k: v for k, v in cloud.env.items() if k.startswith("AWS_") and k not in ec2.CLEAN})
    assert done.returncode == 0, done.stderr
    assert cloud.proxy.count("GetCallerIdentity") == len(cloud.proxy.calls) == 1
    mine = json.loads(done.stdout)
    assert iam.allowed(mine, *on("ec2:TerminateInstances", "instance", "123456789012-moto"))
    assert not iam.allowed(mine, *on("ec2:TerminateInstances", "instance", ME))
