# SPDX-License-Identifier: Apache-2.0
"""tests/contract/test_provider.c against every provider that this machine can run."""
import json
import os
import subprocess

import ec2
import pytest


def run_contract(env, provider, spec):
    env = dict(env, GPUPROV_CONTRACT=provider, GPUPROV_CONTRACT_SPEC=str(spec))
    done = subprocess.run([str(ec2.BUILD / "tests/contract/test_provider")], env=env, capture_output=True,
                          text=True, timeout=400, check=False)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert "test_create" in text and "SKIPPED ] test_create" not in text, text


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


def test_ssh(tmp_path):
    """The contract needs no connection: taking a host is an entry in the journal."""
    (tmp_path / "hosts.yaml").write_text(json.dumps({"defaults": {"user": "ops"}, "hosts": [
        {"address": f"198.51.100.{n}", "host_key": "ssh-ed25519 " + "AAAAC3NzaC1lZDI1NTE5AAAAIE" + "A" * 41 + "A"}
        for n in (1, 2)]}))
    spec = ec2.spec(tmp_path, None, gpu=None, offers=[{"provider": "ssh", "hosts": "hosts.yaml"}], access=None)
    env = {k: v for k, v in os.environ.items() if not k.startswith("GPUPROV_")}
    run_contract(dict(env, GPUPROV_STATE_DIR=str(tmp_path / "state")), "ssh", spec)


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
