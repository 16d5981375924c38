# SPDX-License-Identifier: Apache-2.0
"""Secrets and plain http, for every provider: a service on an address of this machine that is not its loopback gets no
byte, unless GPUPROV_CLEAR_TEXT names it, and then each run warns. No secret is in a URL's query or in an error."""
import http.server
import json
import socket
import threading

import pytest

SECRET = "S3cretPw-0123456789"
GUID = "11111111-1111-4111-8111-111111111111"
ROLE = "acs:ram::1234567890123456:role/worker"


def other_address():
    """An address of this machine that others can reach too; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return s.getsockname()[0]


class Ear(http.server.BaseHTTPRequestHandler):
    """Hears everything, and answers with an error that repeats it."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        head = " ".join(self.headers.values())
        self.server.heard.append((self.path, head, body))
        said = f"refused: {self.path} {head} {body}"
        reply = json.dumps({"error": {"code": "x", "message": said, "status": said}, "Code": said, "Message": said, "code": said,
                            "message": said, "error_description": said, "title": said, "detail": said}).encode()
        self.send_response(403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = answer


def ear(address):
    server = http.server.ThreadingHTTPServer((address, 0), Ear)
    server.heard = []
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


@pytest.fixture(name="far")
def far_fixture():
    server = ear(other_address())
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(name="near")
def near_fixture():
    server = ear("127.0.0.1")
    yield server
    server.shutdown()
    server.server_close()


def write(tmp, name, value):
    path = tmp / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    path.chmod(0o600)
    return str(path)


def google(tmp, **file):
    return {"GOOGLE_APPLICATION_CREDENTIALS": write(tmp, "google.json", file), "CLOUDSDK_CORE_PROJECT": "p"}


def user(tmp, url):
    return google(tmp, type="authorized_user", client_id="i", client_secret=SECRET, refresh_token=SECRET + "r",
                  token_uri=url + "/token")


# name: (provider, environment by URL and folder). What a secret could be sent by, in each provider.
WAYS = {
    "openstack": ("openstack", lambda u, _: {"OS_AUTH_URL": u + "/v3", "OS_USERNAME": "u", "OS_PASSWORD": SECRET, "OS_PROJECT_NAME": "p"}),
    "openstack application credential": ("openstack", lambda u, _: {
        "OS_AUTH_URL": u + "/v3", "OS_APPLICATION_CREDENTIAL_ID": "i", "OS_APPLICATION_CREDENTIAL_SECRET": SECRET}),
    "openstack token": ("openstack", lambda u, _: {"OS_AUTH_URL": u + "/v3", "OS_TOKEN": SECRET, "OS_AUTH_TYPE": "token"}),
    "alibaba key": ("alibaba", lambda u, _: {"GPUPROV_ALIBABA_ENDPOINT": u, "ALIBABA_CLOUD_ACCESS_KEY_ID": "LTAI",
                                             "ALIBABA_CLOUD_ACCESS_KEY_SECRET": SECRET + "k",
                                             "ALIBABA_CLOUD_SECURITY_TOKEN": SECRET}),
    "alibaba oidc": ("alibaba", lambda u, t: {
        "GPUPROV_ALIBABA_ENDPOINT": u, "ALIBABA_CLOUD_ROLE_ARN": ROLE, "ALIBABA_CLOUD_OIDC_TOKEN_FILE": write(t, "oidc", SECRET),
        "ALIBABA_CLOUD_OIDC_PROVIDER_ARN": "acs:ram::1:oidc-provider/x"}),
    "alibaba uri": ("alibaba", lambda u, _: {"ALIBABA_CLOUD_CREDENTIALS_URI": u + "/keys"}),
    "aws session": ("aws", lambda u, _: {"AWS_ENDPOINT_URL": u, "AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": SECRET + "k",
                                         "AWS_SESSION_TOKEN": SECRET}),
    "aws one service": ("aws", lambda u, _: {"AWS_ENDPOINT_URL_STS": u, "AWS_ACCESS_KEY_ID": "AK",
                                             "AWS_SECRET_ACCESS_KEY": SECRET + "k", "AWS_SESSION_TOKEN": SECRET}),
    "aws profile": ("aws", lambda u, t: {"AWS_CONFIG_FILE": write(t, "config", f"[default]\nendpoint_url = {u}\n"),
                                         "AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": SECRET}),
    "aws web identity": ("aws", lambda u, t: {"AWS_ENDPOINT_URL": u, "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/r",
                                              "AWS_WEB_IDENTITY_TOKEN_FILE": write(t, "web", SECRET)}),
    "aws container": ("aws", lambda u, _: {"AWS_CONTAINER_CREDENTIALS_FULL_URI": u, "AWS_CONTAINER_AUTHORIZATION_TOKEN": SECRET}),
    "aws metadata": ("aws", lambda u, _: {"AWS_EC2_METADATA_SERVICE_ENDPOINT": u, "AWS_EC2_METADATA_DISABLED": ""}),
    "google token_uri": ("google", lambda u, t: user(t, u)),
    "google source url": ("google", lambda u, t: google(
        t, type="external_account", audience="a", token_url="https://sts.invalid/token",
        credential_source={"url": u + "/id", "headers": {"Authorization": "bearer " + SECRET}})),
    "google token_url": ("google", lambda u, t: google(
        t, type="external_account", audience="a", token_url=u + "/token", credential_source={"file": write(t, "subject", SECRET)})),
    "google metadata": ("google", lambda u, _: {"GCE_METADATA_HOST": u.removeprefix("http://")}),
    "azure authority": ("azure", lambda u, _: {"AZURE_AUTHORITY_HOST": u, "GPUPROV_AZURE_ENDPOINT": "https://arm.invalid",
                                               "AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": SECRET}),
    "azure federated": ("azure", lambda u, t: {
        "AZURE_AUTHORITY_HOST": u, "GPUPROV_AZURE_ENDPOINT": "https://arm.invalid", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c",
        "AZURE_FEDERATED_TOKEN_FILE": write(t, "federated", SECRET)}),
    "azure identity": ("azure", lambda u, _: {"AZURE_POD_IDENTITY_AUTHORITY_HOST": u}),
    "lambda": ("lambda", lambda u, _: {"GPUPROV_LAMBDA_ENDPOINT": u, "LAMBDA_API_KEY": SECRET}),
    "runpod": ("runpod", lambda u, _: {"RUNPOD_API_BASE_URL": u, "RUNPOD_API_KEY": SECRET}),
    "shadeform": ("shadeform", lambda u, _: {"GPUPROV_SHADEFORM_ENDPOINT": u, "SHADEFORM_API_KEY": SECRET}),
}
QUIET = {"AWS_EC2_METADATA_DISABLED": "true", "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true", "NO_PROXY": "*", "AWS_REGION": "us-east-1",
         "AZURE_SUBSCRIPTION_ID": GUID, "GPUPROV_LAMBDA_PACE_MS": "0", "GPUPROV_SHADEFORM_PACE_MS": "0", "GPUPROV_RUNPOD_PACE_MS": "0"}


def look(gpuprov, tmp_path, way, server, **more):
    """plan prints the whole reason; status reads what there is."""
    provider, env = WAYS[way]
    url = "http://%s:%d" % server.server_address[:2]
    spec = write(tmp_path, "spec.yaml", "name: s\noffers: [{provider: %s%s}]\n" % (
        provider, ", regions: [westeurope]" if provider == "azure" else ""))
    env = {**QUIET, **env(url, tmp_path), **more}
    gpuprov("status", "--in", provider, code=None, env=env)
    return gpuprov("plan", spec, code=None, env=env)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_goes_in_clear_text(gpuprov, tmp_path, far, way):
    run = look(gpuprov, tmp_path, way, far)
    assert far.heard == [], "sent in clear text"
    assert run.code in (1, 5) and "is not https" in run.err and "GPUPROV_CLEAR_TEXT=%s:%d" % far.server_address[:2] in run.err, run
    assert SECRET not in run.err + run.out, run


@pytest.mark.parametrize("way", WAYS)
def test_nothing_goes_through_a_proxy_in_clear_text(gpuprov, tmp_path, near, far, way):
    """A loopback URL is for this machine: a proxy would be another one."""
    proxy = "http://%s:%d" % far.server_address[:2]
    look(gpuprov, tmp_path, way, near, http_proxy=proxy, HTTP_PROXY=proxy, NO_PROXY="", ALL_PROXY=proxy)
    assert far.heard == []


@pytest.mark.parametrize("way", WAYS)
def test_a_named_host_is_said_aloud(gpuprov, tmp_path, far, way):
    named = "%s:%d" % far.server_address[:2]
    run = look(gpuprov, tmp_path, way, far, GPUPROV_CLEAR_TEXT=named)
    assert far.heard, run
    assert "warning" in run.err and "GPUPROV_CLEAR_TEXT" in run.err and named in run.err, run
    far.heard.clear()
    run = look(gpuprov, tmp_path, way, far, GPUPROV_CLEAR_TEXT="other.example,%s0" % named)
    assert far.heard == [], run


@pytest.mark.parametrize("way", WAYS)
def test_a_service_that_repeats_everything(gpuprov, tmp_path, near, way):
    """It puts the URL, each header and the body into its error; with traces, without, and as JSON."""
    for words in ((), ("--trace", "all"), ("--json",)):
        provider, env = WAYS[way]
        url = "http://%s:%d" % near.server_address[:2]
        run = gpuprov("status", "--in", provider, *words, code=None, env={**QUIET, **env(url, tmp_path)})
        assert SECRET not in run.err + run.out, run
    assert near.heard
    assert not any(SECRET in path for path, _, _ in near.heard), "a secret in a URL"


@pytest.mark.parametrize("host", ["127.0.0.1.nowhere.invalid", "localhost@HOST", "127.0.0.1@HOST", "127.0.0.1%23@HOST", "[::1]@HOST",
                                  "localhost.nowhere.invalid", "127.1", "0x7f.1", "2130706433", "0.0.0.0", "ip6-localhost"])
def test_what_only_looks_like_this_machine(gpuprov, tmp_path, far, host):
    url = "http://" + host.replace("HOST", "%s:%d" % far.server_address[:2])
    run = gpuprov("status", "--in", "openstack", code=None, env={
        **QUIET, "OS_AUTH_URL": url + "/v3", "OS_USERNAME": "u", "OS_PASSWORD": SECRET, "OS_PROJECT_NAME": "p"})
    assert far.heard == [] and run.code == 8 and SECRET not in run.err, run
    run = gpuprov("status", "--in", "lambda", code=None, env={**QUIET, "GPUPROV_LAMBDA_ENDPOINT": url, "LAMBDA_API_KEY": SECRET})
    assert far.heard == [] and run.code != 0 and "https" in run.err, run
