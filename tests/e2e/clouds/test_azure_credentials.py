# SPDX-License-Identifier: Apache-2.0
"""The sources of Azure's credentials, in their order; what is refused; and that no secret is printed."""
import base64
import datetime
import hashlib
import json

import azure_cloud as azure
import azure_lab
import pytest
from azure_lab import Drive

NONE = {"AZURE_TENANT_ID": None, "AZURE_CLIENT_ID": None, "AZURE_CLIENT_SECRET": None}


@pytest.fixture(name="cloud")
def cloud_fixture():
    with azure.Azure() as cloud:
        yield cloud


def run(cloud, folder, verb="open", **env):
    """PATH has no az of this machine, unless the test puts one there."""
    env.setdefault("PATH", str(folder / "bin"))
    return Drive(azure_lab.environment(cloud, folder, **env), azure_lab.spec(folder), verb)


def test_a_secret(cloud, tmp_path):
    assert run(cloud, tmp_path)["owner"] == azure.PRINCIPAL
    [sent] = cloud.requests("POST")
    assert sent["headers"]["content-type"] == "application/x-www-form-urlencoded"
    assert cloud.requests("GET") == []  # at most one call


@pytest.mark.parametrize("change, words", [
    ({"AZURE_CLIENT_SECRET": "wrong-secret-value"}, "invalid_client: AADSTS7000215"),
    ({"AZURE_TENANT_ID": "99999999-9999-9999-9999-999999999999"}, "AADSTS90002"),
    ({"AZURE_TENANT_ID": "../../evil"}, "AZURE_TENANT_ID is not a tenant"),
    ({"AZURE_TENANT_ID": None}, "AZURE_CLIENT_SECRET is set, but AZURE_TENANT_ID is not"),
    ({"AZURE_SUBSCRIPTION_ID": None}, "set AZURE_SUBSCRIPTION_ID"),
    ({"AZURE_SUBSCRIPTION_ID": "my-subscription"}, "is not the id of a subscription"),
    ({"GPUPROV_AZURE_ENDPOINT": "http://192.0.2.1"}, "is not https"),
    ({"AZURE_AUTHORITY_HOST": "http://192.0.2.1"}, "is not https"),
    ({**NONE, "AZURE_CLIENT_CERTIFICATE_PATH": "/nonexistent"}, "AZURE_CLIENT_CERTIFICATE_PATH is set, but AZURE_TENANT_ID"),
    ({"AZURE_CLIENT_SECRET": None, "AZURE_CLIENT_CERTIFICATE_PATH": "/dev/null/no"}, "AZURE_CLIENT_CERTIFICATE_PATH"),
    ({"AZURE_CLIENT_SECRET": None, "AZURE_FEDERATED_TOKEN_FILE": "/nonexistent"}, "AZURE_FEDERATED_TOKEN_FILE"),
])
def test_what_is_refused(cloud, tmp_path, change, words):
    got = run(cloud, tmp_path, **change)
    assert got.rc != 0 and words in got["message"], got.text
    assert azure.SECRET not in got.text and "wrong-secret-value" not in got.text


def test_none(cloud, tmp_path):
    got = run(cloud, tmp_path, **NONE)
    assert got.rc == 5 and got["detail"] == "NoCredentials", got.text
    assert cloud.log == []


def certificate(folder):
    """A PEM file with key and certificate, and its SHA-1 as x5t."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import NameOID
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "client")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
            .serial_number(7).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
            .sign(key, hashes.SHA256()))
    path = folder / "client.pem"
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                       serialization.NoEncryption()) + made.public_bytes(serialization.Encoding.PEM))
    sha1 = hashlib.sha1(made.public_bytes(serialization.Encoding.DER)).digest()
    return path, key.public_key(), base64.urlsafe_b64encode(sha1).rstrip(b"=").decode()


def unpack(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_a_certificate(cloud, tmp_path):
    """The signature is verified as Azure does it: by the certificate that x5t names."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding
    path, public, x5t = certificate(tmp_path)
    seen = []

    def verify(assertion):
        head, claims, signature = assertion.split(".")
        public.verify(unpack(signature), (head + "." + claims).encode(), padding.PKCS1v15(), hashes.SHA256())
        seen.append((json.loads(unpack(head)), json.loads(unpack(claims))))
        return True
    cloud.assertion = verify
    assert run(cloud, tmp_path, AZURE_CLIENT_SECRET=None, AZURE_CLIENT_CERTIFICATE_PATH=str(path)).rc == 0
    [(head, claims)] = seen
    assert head == {"alg": "RS256", "typ": "JWT", "x5t": x5t}
    assert claims["iss"] == claims["sub"] == azure.CLIENT and len(claims["jti"]) == 32
    assert claims["aud"] == "%s/%s/oauth2/v2.0/token" % (cloud.url, azure.TENANT)
    assert claims["exp"] - claims["nbf"] == 600


def test_a_key_without_its_certificate(cloud, tmp_path):
    path, _, _ = certificate(tmp_path)
    path.write_text(path.read_text().split("-----BEGIN CERTIFICATE")[0])
    got = run(cloud, tmp_path, AZURE_CLIENT_SECRET=None, AZURE_CLIENT_CERTIFICATE_PATH=str(path))
    assert got.rc == 5 and "has no certificate in PEM form" in got["message"], got.text
    assert "PRIVATE KEY" not in got.text


def test_a_federated_token_is_read_again(cloud, tmp_path):
    file = tmp_path / "token"
    file.write_text("a.federated.token\n")
    cloud.assertion = lambda text: text == "a.federated.token"
    got = run(cloud, tmp_path, AZURE_CLIENT_SECRET=None, AZURE_FEDERATED_TOKEN_FILE=str(file))
    assert got.rc == 0 and "a.federated.token" not in got.text, got.text


def test_managed_identity(cloud, tmp_path):
    got = run(cloud, tmp_path, **{**NONE, "AZURE_CLIENT_ID": azure.CLIENT}, AZURE_POD_IDENTITY_AUTHORITY_HOST=cloud.url)
    assert got.rc == 0, got.text
    [sent] = cloud.requests("GET /metadata")
    assert "client_id=" + azure.CLIENT in sent["target"] and sent["headers"]["metadata"] == "true"


def fake_az(folder, script):
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "az").write_text("#!/bin/sh\n" + script)
    (folder / "bin" / "az").chmod(0o755)
    (folder / ".azure").mkdir(exist_ok=True)
    (folder / ".azure" / "azureProfile.json").write_text("{}")  # somebody logged in


def test_the_cli(cloud, tmp_path):
    """Its default subscription is used; it runs without a shell, with arguments of its own."""
    reply = json.dumps({"accessToken": cloud.token(), "expires_on": 4102444800, "tokenType": "Bearer",
                        "subscription": azure.SUBSCRIPTION, "tenant": azure.TENANT})
    fake_az(tmp_path, 'for a in "$@"; do echo "$a"; done >%s/arguments\necho \'%s\'\n' % (tmp_path, reply))
    got = run(cloud, tmp_path, **NONE, AZURE_SUBSCRIPTION_ID=None)
    assert got.rc == 0, got.text
    assert (tmp_path / "arguments").read_text().split() == [
        "account", "get-access-token", "--resource", "https://management.azure.com/", "-o", "json"]
    got = run(cloud, tmp_path, **NONE, AZURE_SUBSCRIPTION_ID=azure.SUBSCRIPTION)
    assert got.rc == 0 and (tmp_path / "arguments").read_text().split()[-2:] == ["--subscription", azure.SUBSCRIPTION]


def test_the_cli_is_not_started_without_a_login(cloud, tmp_path):
    fake_az(tmp_path, "touch %s/started\n" % tmp_path)
    (tmp_path / ".azure" / "azureProfile.json").unlink()
    got = run(cloud, tmp_path, **NONE)
    assert got.rc == 5 and "none found" in got["message"] and not (tmp_path / "started").exists(), got.text


@pytest.mark.parametrize("script, words", [
    ("echo 'Please run az login' >&2; exit 1", "run 'az login'"),
    ("echo not json", "its output"),
    ("echo '{\"accessToken\": \"a b\\u0007\"}'", "has no token"),
    ("echo '{\"accessToken\": \"opaque\", \"subscription\": \"%s\"}'" % azure.SUBSCRIPTION, "does not name its principal"),
])
def test_a_cli_that_fails(cloud, tmp_path, script, words):
    fake_az(tmp_path, script)
    got = run(cloud, tmp_path, **NONE, AZURE_SUBSCRIPTION_ID=None)
    assert got.rc == 5 and words in got["message"], got.text


def test_a_refused_token_is_renewed_once(cloud, tmp_path):
    cloud.rule("GET .*/resourcegroups", "reply", status=401,
               obj={"error": {"code": "ExpiredAuthenticationToken", "message": "The access token expired."}})
    assert run(cloud, tmp_path, "list").rc == 0
    assert len(cloud.requests("POST .*/token")) == 2
    cloud.rule("GET .*/resourcegroups", "reply", status=401, times=None,
               obj={"error": {"code": "ExpiredAuthenticationToken", "message": "The access token expired."}})
    got = run(cloud, tmp_path, "list")
    assert got.rc == 5 and len(cloud.requests("POST .*/token")) == 4, got.text


def test_nothing_secret_in_a_trace(cloud, tmp_path):
    got = run(cloud, tmp_path, "create", GPUPROV_TRACE="http", GPUPROV_NO_REDACT="1")
    assert got.rc == 0, got.text
    assert azure.SECRET not in got.text
    assert not any(token in got.text for token in cloud.tokens)
    assert "gpuprov-contract-0-1" in got.text  # it was traced at all
    assert run(cloud, tmp_path, "destroy").rc == 0
    azure_lab.clean(cloud)
