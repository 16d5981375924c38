# SPDX-License-Identifier: Apache-2.0
"""Credentials of Alibaba Cloud from every place where the official tools find them, their renewal, and what happens
where they are wrong or missing. No secret is printed."""
import json
import sys

import alibaba
import pytest
from alibaba_lab import Drive, environment, spec

NO_KEYS = {"ALIBABA_CLOUD_ACCESS_KEY_ID": None, "ALIBABA_CLOUD_ACCESS_KEY_SECRET": None}
ROLE = "acs:ram::1234567890123456:role/worker"


@pytest.fixture(name="cloud")
def cloud_fixture():
    with alibaba.Alibaba() as cloud:
        yield cloud
        assert cloud.sound() is True


def no_secret(run, cloud):
    for key in cloud.keys.values():
        assert key["secret"] not in run.text, "a secret was printed"
        assert not key["token"] or key["token"] not in run.text


def opened(cloud, tmp_path, **env):
    run = Drive(environment(cloud, tmp_path, GPUPROV_TRACE="http", **env), spec(tmp_path), "open")
    no_secret(run, cloud)
    return run


def config(tmp_path, *profiles, current="default"):
    folder = tmp_path / ".aliyun"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"current": current, "profiles": list(profiles)}))


AK = {"name": "default", "mode": "AK", "access_key_id": "LTAItest", "access_key_secret": "test-secret"}


def test_environment(tmp_path, cloud):
    run = opened(cloud, tmp_path)
    assert run.rc == 0 and run["owner"] == "1234567890123456-tester"


def test_temporary_credentials_of_the_environment(tmp_path, cloud):
    one = cloud.session("acs:ram::1234567890123456:assumed-role/trainer/session")
    run = opened(cloud, tmp_path, ALIBABA_CLOUD_ACCESS_KEY_ID=one["AccessKeyId"],
                 ALIBABA_CLOUD_ACCESS_KEY_SECRET=one["AccessKeySecret"], ALIBABA_CLOUD_SECURITY_TOKEN=one["SecurityToken"])
    assert run.rc == 0 and run["owner"] == "1234567890123456-trainer"


def test_profile_of_the_cli(tmp_path, cloud):
    config(tmp_path, dict(AK, access_key_id="LTAIother"), dict(AK, name="work"))
    assert opened(cloud, tmp_path, **NO_KEYS, ALIBABA_CLOUD_PROFILE="work").rc == 0
    wrong = opened(cloud, tmp_path, **NO_KEYS)
    assert wrong.rc == 5 and wrong["detail"] == "InvalidAccessKeyId.NotFound"


def profile(mode, cloud, tmp_path):
    """A profile of that mode that works, and the role that it gets; None: the user."""
    if mode == "StsToken":
        one = cloud.session("acs:ram::1234567890123456:assumed-role/sts/s")
        return {"access_key_id": one["AccessKeyId"], "access_key_secret": one["AccessKeySecret"],
                "sts_token": one["SecurityToken"]}, "sts"
    if mode == "RamRoleArn":
        return dict(AK, ram_role_arn=ROLE, ram_session_name="here"), "worker"
    if mode == "ChainableRamRoleArn":
        return {"ram_role_arn": ROLE, "source_profile": "base"}, "worker"
    if mode == "EcsRamRole":
        return {"ram_role_name": "node-role"}, "node-role"
    if mode == "RamRoleArnWithEcs":
        return {"ram_role_arn": ROLE, "ram_role_name": "node-role"}, "worker"
    if mode == "OIDC":
        (tmp_path / "token").write_text(cloud.oidc_token + "\n")
        return {"ram_role_arn": ROLE, "oidc_provider_arn": "acs:ram::1:oidc-provider/x",
                "oidc_token_file": str(tmp_path / "token")}, "worker"
    if mode == "External":
        text = json.dumps({"mode": "AK", "access_key_id": "LTAItest", "access_key_secret": "test-secret"})
        (tmp_path / "helper.py").write_text("print(%r)" % text)
        return {"process_command": "%s %s" % (sys.executable, tmp_path / "helper.py")}, None
    return {"credentials_uri": cloud.url + "/uri"}, "uri"


@pytest.mark.parametrize("mode", ["StsToken", "RamRoleArn", "ChainableRamRoleArn", "EcsRamRole", "RamRoleArnWithEcs", "OIDC",
                                  "External", "CredentialsURI"])
def test_modes_of_profiles(tmp_path, cloud, mode):
    members, role = profile(mode, cloud, tmp_path)
    config(tmp_path, dict(AK, name="base"), dict(members, name="default", mode=mode))
    run = opened(cloud, tmp_path, **NO_KEYS)
    assert run.rc == 0, run.text
    assert run["owner"] == "1234567890123456-" + (role or "tester")


@pytest.mark.parametrize("members, words", [
    ({"mode": "CloudSSO"}, "mode 'CloudSSO' is not supported"), ({"mode": "StsToken"}, "it has no access key"),
    ({"mode": "RamRoleArn"}, "it has no ram_role_arn"),
    ({"mode": "ChainableRamRoleArn", "ram_role_arn": ROLE, "source_profile": "default"}, "refers back to itself"),
    ({"mode": "ChainableRamRoleArn", "ram_role_arn": ROLE, "source_profile": "nobody"}, "'nobody' does not exist"),
    ({"mode": "External", "process_command": "/nonexistent/helper"}, "could not start '/nonexistent/helper'"),
    ({"mode": "External", "process_command": "true"}, "process_command"),
    ({"mode": "CredentialsURI", "credentials_uri": "file:///etc/passwd"}, "not an http or https URL"),
    ({"mode": "RamRoleArn", "access_key_id": "LTAItest", "access_key_secret": "test-secret",
      "ram_role_arn": ROLE.replace("worker", "other")}, "EntityNotExist.Role"),
])
def test_profiles_that_cannot_work(tmp_path, cloud, members, words):
    config(tmp_path, dict(members, name="default"))
    run = opened(cloud, tmp_path, **NO_KEYS, ALIBABA_CLOUD_PROFILE="default")
    assert run.rc == 5 and words in run["message"], run["message"]


def test_malformed_config_shows_no_content(tmp_path, cloud):
    (tmp_path / ".aliyun").mkdir()
    (tmp_path / ".aliyun/config.json").write_text('{"profiles": [{"access_key_secret": "hunter2hunter2"')
    run = opened(cloud, tmp_path, **NO_KEYS)
    assert run.rc == 5 and "config.json" in run["message"] and "hunter2" not in run.text


@pytest.mark.parametrize("lines, owner", [
    ("type = access_key\naccess_key_id = LTAItest\naccess_key_secret = test-secret", "tester"),
    ("type = ram_role_arn\naccess_key_id = LTAItest\naccess_key_secret = test-secret\nrole_arn = " + ROLE, "worker"),
    ("type = ecs_ram_role\nrole_name = node-role", "node-role"),
])
def test_shared_file(tmp_path, cloud, lines, owner):
    (tmp_path / "credentials").write_text("[default]\n%s\n" % lines)
    run = opened(cloud, tmp_path, **NO_KEYS, ALIBABA_CLOUD_CREDENTIALS_FILE=str(tmp_path / "credentials"))
    assert run.rc == 0 and run["owner"].endswith("-" + owner), run.text


def test_token_of_an_identity_provider(tmp_path, cloud):
    (tmp_path / "token").write_text(cloud.oidc_token)
    env = dict(NO_KEYS, ALIBABA_CLOUD_ROLE_ARN=ROLE, ALIBABA_CLOUD_OIDC_PROVIDER_ARN="acs:ram::1:oidc-provider/x",
               ALIBABA_CLOUD_OIDC_TOKEN_FILE=str(tmp_path / "token"))
    run = opened(cloud, tmp_path, **env)
    assert run.rc == 0 and run["owner"].endswith("-worker")
    sent, = cloud.actions("AssumeRoleWithOIDC")
    assert "authorization" not in sent["headers"]
    (tmp_path / "token").write_text("wrong")
    assert opened(cloud, tmp_path, **env)["detail"] == "AuthenticationFail.OIDCToken.Invalid"


def test_role_of_this_instance(tmp_path, cloud):
    run = opened(cloud, tmp_path, **NO_KEYS, ALIBABA_CLOUD_ECS_METADATA_DISABLED=None)
    assert run.rc == 0 and run["owner"].endswith("-node-role")
    assert [r["method"] for r in cloud.log if "api/token" in r["target"]] == ["PUT"]


@pytest.mark.parametrize("role", [b"../../x", b"a b", b"", b"r\0"])
def test_hostile_role_of_the_metadata(tmp_path, cloud, role):
    cloud.rule("security-credentials/ ?$", "reply", times=None, status=200, obj=role)
    run = opened(cloud, tmp_path, **NO_KEYS, ALIBABA_CLOUD_ECS_METADATA_DISABLED=None)
    assert run.rc != 0
    assert all(r["target"] in ("/latest/api/token", "/latest/meta-data/ram/security-credentials/",
                               "/latest/meta-data/ram/security-credentials/r") for r in cloud.log)


def test_none_at_all(tmp_path, cloud):
    run = opened(cloud, tmp_path, **NO_KEYS)
    assert run.rc == 5 and run["detail"] == "NoCredentials" and "aliyun configure" in run["message"]
    assert cloud.log == []


def test_half_of_a_key(tmp_path, cloud):
    run = opened(cloud, tmp_path, ALIBABA_CLOUD_ACCESS_KEY_SECRET=None)
    assert run.rc == 5 and "set both or none" in run["message"]


def test_wrong_secret(tmp_path, cloud):
    run = opened(cloud, tmp_path, ALIBABA_CLOUD_ACCESS_KEY_SECRET="not-the-secret")
    assert run.rc == 5 and run["detail"] == "SignatureDoesNotMatch" and "not-the-secret" not in run.text


def test_expired_token_is_renewed_once(tmp_path, cloud):
    config(tmp_path, dict(AK, mode="RamRoleArn", ram_role_arn=ROLE))
    cloud.rule("DescribeInstanceTypes", "reply", status=400,
               obj={"Code": "InvalidSecurityToken.Expired", "Message": "expired", "RequestId": "1"})
    run = Drive(environment(cloud, tmp_path, **NO_KEYS), spec(tmp_path), "offers")
    assert run.rc == 0, run.text
    assert len(cloud.actions("AssumeRole")) == 2
    no_secret(run, cloud)


def test_token_that_stays_refused_is_an_error(tmp_path, cloud):
    config(tmp_path, dict(AK, mode="RamRoleArn", ram_role_arn=ROLE))
    cloud.rule("GetCallerIdentity", "reply", times=None, status=400,
               obj={"Code": "InvalidSecurityToken.Expired", "Message": "expired", "RequestId": "1"})
    run = opened(cloud, tmp_path, **NO_KEYS)
    assert run.rc == 5 and len(cloud.actions("GetCallerIdentity")) == 2
    assert run.result["message"].startswith(f"credentials of the role {ROLE}: "), run.result


def test_credentials_that_end_soon_are_renewed_before(tmp_path, cloud):
    cloud.role_expiry = 200  # less than five minutes
    config(tmp_path, dict(AK, mode="RamRoleArn", ram_role_arn=ROLE))
    run = Drive(environment(cloud, tmp_path, **NO_KEYS), spec(tmp_path), "list")
    assert run.rc == 0 and len(cloud.actions("AssumeRole")) > 1


@pytest.mark.parametrize("ahead", [-7200, 7200])
def test_wrong_clock_is_corrected(tmp_path, cloud, ahead):
    cloud.clock = ahead
    run = opened(cloud, tmp_path)
    assert run.rc == 0, run.text
    assert abs(run["skew_s"] - ahead) < 5
    assert len(cloud.actions("GetCallerIdentity")) == 2


def test_each_request_has_its_own_nonce(tmp_path, cloud):
    cloud.rule("GetCallerIdentity", "reply", times=2, status=503,
               obj={"Code": "ServiceUnavailable", "Message": "later", "RequestId": "1"})
    assert opened(cloud, tmp_path).rc == 0
    nonces = [r["headers"]["x-acs-signature-nonce"] for r in cloud.actions("GetCallerIdentity")]
    assert len(nonces) == 3 and len(set(nonces)) == 3
