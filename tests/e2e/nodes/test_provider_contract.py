# SPDX-License-Identifier: Apache-2.0
"""tests/contract/test_provider.c against every provider that this machine can run."""
import json
import os
import subprocess

import ec2
import faultproxy
import pytest


CASES = ["gang_cut", "killed", "late_address", "late_list", "lost_reply", "paged", "throttled"]
REFUSALS = ["destroy_refused", "gang_partial", "list_hollow", "list_refused"]  # only of clouds
LATE_REFUSALS = ["async_failure"]  # of clouds that accept a launch before they place it


def run_contract(env, provider, spec, case=None, flag=None):
    """The story, or one case of the bad days. flag: a path; the cloud of a case in REFUSALS refuses while it is there."""
    env = dict(env, GPUPROV_CONTRACT=provider, GPUPROV_CONTRACT_SPEC=str(spec), GPUPROV_CONTRACT_FLAG=str(flag))
    program, name = "test_provider", "test_create"
    if case is not None:
        program, name = "test_provider_faults", case
        env["GPUPROV_CONTRACT_CASE"] = case
    done = subprocess.run([str(ec2.BUILD / "tests/contract" / program)], env=env, capture_output=True,
                          text=True, timeout=1200, check=False)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert f"OK ] {name}" in text, text


def faults(proxy, case, flag):
    """Makes EC2 behave as the case says."""
    refused = {"times": None, "when": str(flag), "code": "UnauthorizedOperation", "status": 403}
    if case == "gang_cut":
        proxy.rule("RunInstances", "cut_xml").rule("DescribeInstances", "empty_list", times=2)
    elif case == "late_address":
        gone = ["ipAddress", "dnsName", "privateIpAddress", "privateIpAddressesSet", "association"]
        proxy.rule("RunInstances", "strip", tags=gone).rule("DescribeInstances", "strip", times=4, tags=gone)
    elif case == "late_list":
        proxy.rule("DescribeInstances", "empty_list", times=4).rule("DescribeSecurityGroups", "empty_list", times=2)
    elif case == "lost_reply":
        proxy.rule("RunInstances", "drop_after").rule("CreateSecurityGroup", "drop_after")
    elif case == "paged":
        for action in faultproxy.SETS:
            proxy.rule(action, "paged", times=None)
    elif case == "destroy_refused":
        proxy.rule("TerminateInstances", "error", **refused)
    elif case == "list_hollow":
        body = b'<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"></DescribeInstancesResponse>'
        proxy.rule("DescribeInstances", "status", times=None, when=str(flag), status=200, body=body)
    elif case == "list_refused":
        proxy.rule("DescribeInstances", "error", **refused)
    elif case == "gang_partial":  # EC2 makes all of a gang or none
        proxy.rule("RunInstances", "error", times=None, status=500, code="InsufficientInstanceCapacity")
    elif case == "throttled":
        proxy.rule(None, "error", every=3, status=503, code="RequestLimitExceeded")


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("case", CASES + REFUSALS)
def test_aws_on_bad_days(tmp_path, case):
    moto = ec2.Moto()
    try:
        spec = ec2.spec(tmp_path, moto.image())
        with faultproxy.FaultProxy(moto.url, tokens=True) as proxy:
            faults(proxy, case, tmp_path / "flag")
            run_contract(ec2.environment(proxy.url, tmp_path), "aws", spec, case, tmp_path / "flag")
            assert case == "killed" or any(r.get("times") == 0 or r.get("seen") or r["times"] is None
                                           for r in proxy.rules), "no fault came"
        assert moto.instances() == []
        assert moto.groups() == []
    finally:
        moto.close()


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("case", CASES)
def test_local_on_bad_days(tmp_path, case):
    spec = ec2.spec(tmp_path, None, name=f"days-{case.replace('_', '-')}", gpu=None, offers=[{"provider": "local"}], access=None)
    env = {k: v for k, v in os.environ.items() if not k.startswith("GPUPROV_")}
    run_contract(dict(env, GPUPROV_STATE_DIR=str(tmp_path / "state")), "local", spec, case)


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("case", CASES)
def test_ssh_on_bad_days(tmp_path, case):
    run_contract(*ssh_world(tmp_path), case)


@pytest.mark.parametrize("market", ["spot", "on-demand"])
def test_aws(tmp_path, market):
    moto = ec2.Moto()
    try:
        spec = ec2.spec(tmp_path, moto.image(), market=market)
        run_contract(ec2.environment(moto.url, tmp_path), "aws", spec)
        assert moto.instances() == []
        assert moto.groups() == []
        assert moto.client().describe_volumes()["Volumes"] == []
    finally:
        moto.close()


def test_local(tmp_path):
    spec = ec2.spec(tmp_path, None, name="contract-local", gpu=None, offers=[{"provider": "local"}], access=None)
    env = {k: v for k, v in os.environ.items() if not k.startswith("GPUPROV_")}
    run_contract(dict(env, GPUPROV_STATE_DIR=str(tmp_path / "state")), "local", spec)


def ssh_world(tmp_path):
    """No connection is needed: taking a host is an entry in the journal."""
    (tmp_path / "hosts.yaml").write_text(json.dumps({"defaults": {"user": "ops"}, "hosts": [
        {"address": f"198.51.100.{n}", "host_key": "ssh-ed25519 " + "AAAAC3NzaC1lZDI1NTE5AAAAIE" + "A" * 41 + "A"}
        for n in (1, 2)]}))
    spec = ec2.spec(tmp_path, None, gpu=None, offers=[{"provider": "ssh", "hosts": "hosts.yaml"}], access=None)
    env = {k: v for k, v in os.environ.items() if not k.startswith("GPUPROV_")}
    return dict(env, GPUPROV_STATE_DIR=str(tmp_path / "state")), "ssh", spec


def test_ssh(tmp_path):
    run_contract(*ssh_world(tmp_path))


def test_aws_strict_signatures_and_policy(tmp_path, program):
    """moto recomputes every signature, and the account may do only the actions of `--policy` (moto knows
    neither EC2's resources nor conditions: they are taken off)."""
    moto = ec2.Moto(strict_after=4)
    try:
        image = moto.image()  # 1 of the 4 free calls
        iam = moto.client("iam")
        iam.create_user(UserName="gp")
        key = iam.create_access_key(UserName="gp")["AccessKey"]
        policy = subprocess.run([str(program), "providers", "aws", "--policy", "--owner", "me"], check=True,
                                capture_output=True, text=True).stdout
        policy = json.loads(policy)
        for statement in policy["Statement"]:
            statement["Resource"] = "*"
            statement.pop("Condition", None)
        iam.put_user_policy(UserName="gp", PolicyName="least", PolicyDocument=json.dumps(policy))
        env = ec2.environment(moto.url, tmp_path, AWS_ACCESS_KEY_ID=key["AccessKeyId"],
                              AWS_SECRET_ACCESS_KEY=key["SecretAccessKey"])
        spec = ec2.spec(tmp_path, image)
        run_contract(env, "aws", spec)
        wrong = ec2.Drive(dict(env, AWS_SECRET_ACCESS_KEY="not-the-secret"), spec, "open")
        assert wrong.rc == 5 and wrong["code"] == "auth", wrong.result
        assert "not-the-secret" not in wrong.stderr + json.dumps(wrong.result)
    finally:
        moto.close()
