# SPDX-License-Identifier: Apache-2.0
"""Where credentials and the region come from: the AWS CLI's places, in its order."""
import http.server
import json
import os
import re
import subprocess
import threading

import pytest
from aws_cloud import cloud_fixture, moto_fixture  # noqa: F401


def test_no_credentials(cloud):
    run = cloud.drive("open", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    assert run.rc == 5 and "none found" in run["message"]
    assert cloud.proxy.calls == []


def doctor(cloud, code, **more):
    program = os.environ.get("GPUPROV_BIN") or os.path.join(os.environ.get("B", "build"), "gpuprov")
    done = subprocess.run([program, "doctor", "--json"], env=dict(cloud.env, **more), capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == code, done
    return next(i for i in json.loads(done.stdout)["items"] if i["name"] == "aws")


def test_doctor_names_credentials_region_and_clock(cloud):
    item = doctor(cloud, 0)
    lines = item["text"].splitlines()
    assert item["found"] == "ok" and lines[0] == "credentials of the environment", item
    assert lines[1].startswith("account 123456789012, owner 123456789012-") and lines[2] == "region us-east-1"
    assert lines[3] == "clock agrees with AWS's"
    assert {c.action for c in cloud.proxy.calls} == {"GetCallerIdentity"}, "no call that costs or lists"
    cloud.proxy.rule(None, "skew", times=None, seconds=120)
    assert re.search(r"\nthis machine's clock is 1[12]\d s behind AWS's", doctor(cloud, 0)["text"])
    cloud.proxy.clear()
    assert "no region: set AWS_REGION" in doctor(cloud, 0, AWS_REGION="")["text"]


def test_doctor_without_and_with_refused_credentials(cloud):
    """Without an account nothing is wrong with this machine; an account that is refused is."""
    item = doctor(cloud, 0, **no_keys())
    assert (item["found"], item["needed"], item["text"]) == ("missing", False, "not configured")
    assert "needed by stacks on aws: " in item["how"] and "aws configure" in item["how"]
    assert doctor(cloud, 5, AWS_SECRET_ACCESS_KEY="")["needed"]
    cloud.proxy.rule("GetCallerIdentity", "error", code="InvalidClientTokenId", status=403, times=None)
    item = doctor(cloud, 5)
    assert item["found"] == "refused" and item["needed"] and "InvalidClientTokenId" in item["text"], item


def no_keys(**more):
    return dict(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", **more)


def scope_key(call):
    return call.headers["Authorization"].split("Credential=")[1].split("/")[0]


def test_profile_and_region_from_files(cloud):
    (cloud.tmp / "credentials").write_text("[team]\naws_access_key_id = AKTEAM\naws_secret_access_key = abcdefgh\n")
    (cloud.tmp / "config").write_text("[profile team]\nregion = eu-west-1\n")
    run = cloud.drive("open", **no_keys(AWS_SHARED_CREDENTIALS_FILE=str(cloud.tmp / "credentials"),
                                        AWS_CONFIG_FILE=str(cloud.tmp / "config"), AWS_PROFILE="team",
                                        AWS_REGION=""))
    assert run["code"] == "ok", run["message"]
    assert scope_key(cloud.proxy.calls[0]) == "AKTEAM"
    assert "/eu-west-1/sts/" in cloud.proxy.calls[0].headers["Authorization"]
    run = cloud.drive("open", **no_keys(AWS_PROFILE="nobody"))
    assert run.rc == 5 and "'nobody'" in run["message"]


def test_assume_role_with_source_profile(cloud):
    (cloud.tmp / "config").write_text(
        "[profile base]\naws_access_key_id = AKBASE\naws_secret_access_key = abcdefgh\n"
        "[profile work]\nrole_arn = arn:aws:iam::123456789012:role/gpu\nsource_profile = base\n"
        "external_id = ext-1\nrole_session_name = me\n")
    run = cloud.drive("open", **no_keys(AWS_CONFIG_FILE=str(cloud.tmp / "config"), AWS_PROFILE="work"))
    assert run["code"] == "ok", run["message"]
    assume, who = cloud.proxy.calls
    assert assume.action == "AssumeRole" and scope_key(assume) == "AKBASE"
    assert assume.params["ExternalId"] == "ext-1" and assume.params["RoleSessionName"] == "me"
    assert scope_key(who).startswith("ASIA") and who.headers["X-Amz-Security-Token"]
    assert run["owner"] == "123456789012-gpu"  # no session name in it


def test_web_identity_is_unsigned(cloud):
    (cloud.tmp / "token").write_text("header.payload.signature\n")
    run = cloud.drive("open", **no_keys(AWS_ROLE_ARN="arn:aws:iam::123456789012:role/ci",
                                        AWS_WEB_IDENTITY_TOKEN_FILE=str(cloud.tmp / "token"), GPUPROV_TRACE="http"))
    assert run["code"] == "ok", run["message"]
    call = cloud.proxy.calls[0]
    assert call.action == "AssumeRoleWithWebIdentity" and "Authorization" not in call.headers
    assert call.params["WebIdentityToken"] == "header.payload.signature"
    assert "header.payload" not in run.stderr
    assert run["owner"] == "123456789012-ci"


def write_process(cloud, text):
    script = cloud.tmp / "give creds.sh"
    script.write_text("#!/bin/sh\n" + text)
    script.chmod(0o755)
    (cloud.tmp / "config").write_text(f"[default]\ncredential_process = \"{script}\" 'a b'\n")
    return no_keys(AWS_CONFIG_FILE=str(cloud.tmp / "config"))


def test_credential_process_and_an_expired_token(cloud):
    env = write_process(cloud, f"""echo "$1" >>{cloud.tmp}/asked
echo '{{"Version":1,"AccessKeyId":"AKPROC","SecretAccessKey":"verysecretvalue","SessionToken":"tok-1234567"}}'
""")
    cloud.proxy.rule("DescribeInstances", "error", code="ExpiredToken", status=403)
    run = cloud.drive("list", GPUPROV_TRACE="http", **env)
    assert run["code"] == "ok", run["message"]
    assert (cloud.tmp / "asked").read_text() == "a b\na b\n"  # asked again after ExpiredToken
    assert "verysecretvalue" not in run.stderr and "tok-1234567" not in run.stderr


@pytest.mark.parametrize("text, said", [
    ("exit 3", "failed with status 3"), ("echo nonsense", "json"),
    ("echo '{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"B\",\"Expiration\":\"2020-01-01T00:00:00Z\"}'",
     "expired")])
def test_credential_process_fails(cloud, text, said):
    run = cloud.drive("open", **write_process(cloud, text))
    assert run.rc == 5 and said in run["message"].lower(), run.result
    assert cloud.proxy.calls == []


class Agent(http.server.BaseHTTPRequestHandler):
    """What ECS's agent and EC2's metadata answer."""
    seen = []
    token, region, role = b"imds-token", b"eu-central-1", b"node-role\n"
    creds = {"AccessKeyId": "AKAGENT", "SecretAccessKey": "abcdefgh", "Token": "tok-abcdef",
             "Expiration": "2099-01-01T00:00:00Z"}

    def log_message(self, *_):
        pass

    def answer(self):
        type(self).seen.append((self.command, self.path, dict(self.headers)))
        role = "/latest/meta-data/iam/security-credentials/"
        if self.path == "/latest/api/token" and self.command == "PUT":
            body = self.token
        elif self.path.startswith("/latest/") and self.headers.get("X-aws-ec2-metadata-token") != "imds-token":
            return self.send_error(401)
        elif self.path == role:
            body = self.role
        elif self.path == "/latest/meta-data/placement/region":
            body = self.region
        elif self.path in (role + "node-role", "/creds"):
            body = json.dumps(self.creds).encode()
        else:
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None

    do_GET = do_PUT = answer


@pytest.fixture
def agent():
    Agent.seen, Agent.token, Agent.region, Agent.role = [], b"imds-token", b"eu-central-1", b"node-role\n"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_container_credentials(cloud, agent):
    run = cloud.drive("open", **no_keys(AWS_CONTAINER_CREDENTIALS_FULL_URI=agent + "/creds",
                                        AWS_CONTAINER_AUTHORIZATION_TOKEN="let-me-in"))
    assert run["code"] == "ok", run["message"]
    assert Agent.seen[0][2]["Authorization"] == "let-me-in"
    assert scope_key(cloud.proxy.calls[0]) == "AKAGENT"

@pytest.mark.parametrize("where", ["http://example.com", "http://localhost:80@AGENT", "http://[::1]@AGENT",
                                   "http://169.254.170.2@AGENT", "ftp://AGENT"])
def test_container_credentials_from_elsewhere(cloud, agent, where):
    """AGENT is what curl would connect to."""
    uri = where.replace("AGENT", agent.removeprefix("http://")) + "/creds"
    run = cloud.drive("open", **no_keys(AWS_CONTAINER_CREDENTIALS_FULL_URI=uri,
                                        AWS_CONTAINER_AUTHORIZATION_TOKEN="let-me-in"))
    assert run.rc == 5 and "https" in run["message"], run.result
    assert Agent.seen == []


def test_instance_metadata_v2(cloud, agent):
    run = cloud.drive("open", **no_keys(AWS_EC2_METADATA_SERVICE_ENDPOINT=agent, AWS_EC2_METADATA_DISABLED="",
                                        AWS_REGION="", HTTP_PROXY="http://127.0.0.1:9", NO_PROXY="127.0.0.1"))
    assert run["code"] == "ok", run["message"]
    assert Agent.seen[0][:2] == ("PUT", "/latest/api/token")
    assert scope_key(cloud.proxy.calls[0]) == "AKAGENT"


def metadata(agent, **more):
    return no_keys(AWS_EC2_METADATA_SERVICE_ENDPOINT=agent, AWS_EC2_METADATA_DISABLED="", NO_PROXY="127.0.0.1", **more)


def test_region_of_instance_metadata(cloud, agent):
    Agent.region = b"eu-central-1\n"
    run = cloud.drive("prepare", **metadata(agent, AWS_REGION=""))
    assert run["code"] == "ok", run["message"]
    assert "/latest/meta-data/placement/region" in [s[1] for s in Agent.seen]


@pytest.mark.parametrize("region", [b"evil.example/", b"us-east-1.evil.example", b"us-east-1@evil.example", b"US-EAST-1",
                                    b"us-east-1\0x", b"-us-east-1", b"us east 1", b"x" * 60, b"<html>"])
def test_region_of_instance_metadata_that_is_none(cloud, agent, region):
    """It would become part of a host name."""
    Agent.region = region
    run = cloud.drive("open", **metadata(agent, AWS_REGION=""))
    assert run["code"] == "protocol" and "set AWS_REGION" in run["message"], run.result
    assert "evil" not in run["message"] and cloud.proxy.calls == []
    run = cloud.drive("open", **metadata(agent, AWS_REGION="us-east-1"))  # nobody asks for it then
    assert run["code"] == "ok", run["message"]


@pytest.mark.parametrize("role", [b"../../user-data", b"a b", b"<html>", b"x" * 65, b"a?b", b"a%2e"])
def test_role_of_instance_metadata_that_is_none(cloud, agent, role):
    """It would become part of a URL."""
    Agent.role = role
    run = cloud.drive("open", **metadata(agent))
    assert run["code"] == "protocol" and "role name" in run["message"], run.result
    assert [s[1] for s in Agent.seen] == ["/latest/api/token", "/latest/meta-data/iam/security-credentials/"]


@pytest.mark.parametrize("token", [b"a\r\nX-Forwarded-For: 127.0.0.1", b"a b", b"a\0b", b"\xff"])
def test_token_of_instance_metadata_that_is_none(cloud, agent, token):
    """It would become part of a request's headers."""
    Agent.token = token
    run = cloud.drive("open", **metadata(agent))
    assert run["code"] == "protocol" and "token" in run["message"], run.result
    assert [s[1] for s in Agent.seen] == ["/latest/api/token"]
