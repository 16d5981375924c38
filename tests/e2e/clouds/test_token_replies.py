# SPDX-License-Identifier: Apache-2.0
"""Token services that send what must not become a header, and times that overflow."""
import http.server
import json
import threading

import pytest

GUID = "11111111-1111-4111-8111-111111111111"
EVIL = ["tok\r\nX-Evil: 1", "tok\nX-Evil: 1", "tok\rX-Evil: 1", "tok en", "t\u00f6k", "tok\u0000", ""]
TIMES = [9223372036854775807, -9223372036854775808, 2 ** 62, -1, 0, 10 ** 30, "9223372036854775807", "1e18", 1.5e300, None]


class Service(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.heard.append((self.path, dict(self.headers)))
        token = any(word in self.path for word in ("token", "Token"))
        body = json.dumps(self.server.reply if token else {}).encode()
        self.send_response(200 if token else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = answer


@pytest.fixture(name="service")
def service_fixture():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.heard, server.url = [], "http://127.0.0.1:%d" % server.server_address[1]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def google(tmp, service, file):
    path = tmp / "google.json"
    path.write_text(json.dumps(file))
    return "google", {"GOOGLE_APPLICATION_CREDENTIALS": str(path), "CLOUDSDK_CORE_PROJECT": "p",
                      "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": service.url + "/compute/v1/"}


def person(service):
    return {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r", "account": "a@b.example",
            "token_uri": service.url + "/token"}


def google_person(tmp, service):
    return google(tmp, service, person(service))


def google_impersonation(tmp, service):
    return google(tmp, service, {
        "type": "impersonated_service_account", "source_credentials": person(service),
        "service_account_impersonation_url": service.url + "/v1/projects/-/serviceAccounts/a@b.example:generateAccessToken"})


def azure(_, service):
    return "azure", {"AZURE_AUTHORITY_HOST": service.url, "GPUPROV_AZURE_ENDPOINT": service.url + "/arm", "AZURE_TENANT_ID": "t",
                     "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "ssssssss", "AZURE_SUBSCRIPTION_ID": GUID}


def look(gpuprov, tmp_path, service, how):
    provider, env = how(tmp_path, service)
    return gpuprov("status", "--in", provider, "--owner", "me", code=None, env={"NO_PROXY": "*", **env})


@pytest.mark.parametrize("token", EVIL)
@pytest.mark.parametrize("how", [google_person, google_impersonation, azure])
def test_a_token_that_is_no_header(gpuprov, tmp_path, service, how, token):
    good = "abc" if how is google_impersonation else token  # of the first service
    service.reply = {"access_token": good, "accessToken": token, "expires_in": 3600, "expireTime": "2099-01-01T00:00:00Z"}
    run = look(gpuprov, tmp_path, service, how)
    assert run.code == 8 and ("no token" in run.err or "not JSON" in run.err), run
    assert not [path for path, head in service.heard if "X-Evil" in head or "compute" in path or "arm" in path], service.heard


@pytest.mark.parametrize("seconds", TIMES)
@pytest.mark.parametrize("how", [google_person, google_impersonation, azure])
def test_a_time_that_is_none(gpuprov, tmp_path, service, how, seconds):
    """No overflow (a build with sanitizers ends there), and no token that counts as lasting for ever."""
    service.reply = {"access_token": "abcdefgh", "accessToken": "abcdefgh", "expires_in": seconds, "expires_on": seconds,
                     "expireTime": "9999-12-31T23:59:59Z"}
    run = look(gpuprov, tmp_path, service, how)
    assert run.code == 8 and "runtime error" not in run.err and "abcdefgh" not in run.err, run
