# SPDX-License-Identifier: Apache-2.0
"""validate --node-check --kubernetes against an API server that answers as Kubernetes documents it (v1 Node, v1
Status), over TLS with the pod's CA and token; and the example's manifests."""
import datetime
import http.server
import ipaddress
import json
import os
import pathlib
import re
import ssl
import subprocess
import threading

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agent_gpu import needs_cuda_agent

ROOT = pathlib.Path(__file__).resolve().parents[3]
PASS, FAIL, UNKNOWN = 0, 2, 3
TOKEN = "eyJhbGciOiJSUzI1NiJ9.e30.c2ln"

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

# A pod's /var/run/secrets, in a mount namespace of the test's own.
POD = r"""
account=$1; shift
mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount || exit 99
[ -z "$account" ] || cp "$account/token" "$account/ca.crt" /run/secrets/kubernetes.io/serviceaccount/ || exit 99
exec "$@"
"""


def certificate(folder, name):
    """A CA and a server certificate for 127.0.0.1 of it."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.timezone.utc)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    cert = (x509.CertificateBuilder().subject_name(who).issuer_name(who).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
            .sign(key, hashes.SHA256()))
    (folder / f"{name}.crt").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                                          serialization.NoEncryption()))


def status(code, reason, message):
    """What the API server sends with an error (meta/v1 Status)."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": reason, "code": code}


class Api(http.server.ThreadingHTTPServer):
    """One node. faults: per method, replies that come before the true one: (code, body) or 'hang'."""
    daemon_threads = True

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                            "lastHeartbeatTime": "2026-11-21T00:00:00Z", "lastTransitionTime": "2026-11-20T00:00:00Z"}]
        self.faults, self.calls, self.released = {"GET": [], "PATCH": []}, [], threading.Event()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "ca.crt", folder / "ca.key")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def condition(self):
        return next((c for c in self.conditions if c["type"] == "GPUValidated"), None)

    def handle_error(self, request, client_address):
        pass # a client that does not trust us


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def act(self, do):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        api = self.server
        api.calls.append((self.command, self.path, dict(self.headers), body.decode()))
        if api.faults[self.command]:
            fault = api.faults[self.command].pop(0)
            if fault == "hang":
                api.released.wait(120)
                return
            self.answer(*fault)
            return
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, status(401, "Unauthorized", "Unauthorized"))
        elif not self.path.startswith("/api/v1/nodes/gpu-7"):
            name = self.path.split("/")[4]
            self.answer(404, status(404, "NotFound", f'nodes "{name}" not found'))
        else:
            do(body)

    def node(self):
        return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "gpu-7", "resourceVersion": "41"},
                "spec": {}, "status": {"conditions": self.server.conditions}}

    def do_GET(self):
        self.act(lambda body: self.answer(200, self.node()))

    def do_PATCH(self):
        def patch(body):
            if self.path != "/api/v1/nodes/gpu-7/status" or \
                    self.headers["Content-Type"] != "application/strategic-merge-patch+json":
                self.answer(415, status(415, "UnsupportedMediaType", "the body of the request was in an unknown format"))
                return
            for new in json.loads(body)["status"]["conditions"]: # strategic merge: by type
                self.server.conditions = [c for c in self.server.conditions if c["type"] != new["type"]] + [new]
            self.answer(200, self.node())
        self.act(patch)


@pytest.fixture
def api(tmp_path):
    certificate(tmp_path, "ca")
    (tmp_path / "token").write_text(TOKEN + "\n")
    made = Api(tmp_path)
    yield made
    made.released.set()
    made.shutdown()
    made.server_close()


@pytest.fixture
def pod(gpuprov, api, tmp_path):
    def call(*args, code=PASS, account=tmp_path, node="gpu-7", **env):
        argv = ["unshare", "-m", "sh", "-c", POD, "sh", account, gpuprov.program, "validate", "--node-check", "--kubernetes",
                "--time", "5s", *args]
        full = {**gpuprov.env, "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.server_port),
                "NODE_NAME": node, "HTTPS_PROXY": "http://127.0.0.1:9", **env}
        done = subprocess.run([str(a) for a in argv], env=full, capture_output=True, text=True, timeout=200)
        assert done.returncode == code, done
        assert TOKEN not in done.stdout + done.stderr
        return done
    return call


def test_writes_the_condition(pod, api):
    done = pod()
    c = api.condition()
    assert (c["status"], c["reason"], c["message"]) == ("True", "Validated", done.stdout.strip())
    assert c["lastTransitionTime"] == c["lastHeartbeatTime"]
    assert [call[:2] for call in api.calls] == [("GET", "/api/v1/nodes/gpu-7"), ("PATCH", "/api/v1/nodes/gpu-7/status")]
    assert list(json.loads(api.calls[1][3])) == ["status"] # nothing else of the node
    assert api.conditions[0]["reason"] == "KubeletReady"


@needs_cuda_agent
def test_transition_time_moves_only_with_the_status(pod, api):
    api.conditions.append({"type": "GPUValidated", "status": "True", "reason": "Validated", "message": "old",
                           "lastHeartbeatTime": "2026-01-02T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    pod()
    c = api.condition()
    assert c["lastTransitionTime"] == "2026-01-01T00:00:00Z" and c["lastHeartbeatTime"] > "2026-01-02"
    pod("--gpu", "H100:8", code=FAIL)
    c = api.condition()
    assert (c["status"], c["reason"]) == ("False", "ValidationFailed") and c["message"].startswith("fail: gpu.presence")
    assert c["lastTransitionTime"] == c["lastHeartbeatTime"]


@pytest.mark.parametrize("method", ["GET", "PATCH"])
@pytest.mark.parametrize("code,reason,message,said", [
    (401, "Unauthorized", "Unauthorized", "the token is not accepted"),
    (403, "Forbidden", 'nodes "gpu-7" is forbidden: User "system:serviceaccount:gpuprov:gpuprov" cannot patch',
     "needs get on nodes and patch on nodes/status"),
    (422, "Invalid", 'Node "gpu-7" is invalid: status.conditions[0].status: Unsupported value', "Unsupported value"),
])
def test_refused(pod, api, method, code, reason, message, said):
    api.faults[method] = [(code, status(code, reason, message))]
    done = pod(code=UNKNOWN)
    assert f"HTTP {code}: {message[:30]}" in done.stderr and said in done.stderr, done
    assert done.stdout.startswith("pass: ") and api.condition() is None


@needs_cuda_agent
def test_a_failed_node_stays_failed_whatever_the_api_says(pod, api):
    api.faults["PATCH"] = [(403, status(403, "Forbidden", "no"))]
    pod("--gpu", "H100:8", code=FAIL)


def test_conflict_is_read_again(pod, api):
    api.faults["PATCH"] = [(409, status(409, "Conflict", "the object has been modified"))] * 2
    pod()
    assert api.condition()["status"] == "True" and [c[0] for c in api.calls] == ["GET", "PATCH"] * 3
    api.faults["PATCH"] = [(409, status(409, "Conflict", "the object has been modified"))] * 9
    assert "the object has been modified" in pod(code=UNKNOWN).stderr


@pytest.mark.parametrize("code", [429, 500, 503])
def test_the_servers_trouble_is_waited_for(pod, api, code):
    for method in ("GET", "PATCH"):
        api.faults[method] = [(code, status(code, "InternalError", "etcdserver: leader changed"))]
    pod()
    assert api.condition()["status"] == "True"
    api.faults["GET"] = [(code, status(code, "InternalError", "etcdserver: leader changed"))] * 20
    assert "etcdserver: leader changed" in pod(code=UNKNOWN).stderr


def test_a_reply_that_never_comes(pod, api):
    api.faults["PATCH"] = ["hang"]
    pod()
    assert api.condition()["status"] == "True" and [c[0] for c in api.calls].count("PATCH") == 2


def test_where_it_cannot_work(pod, api, tmp_path):
    assert 'nodes "other" not found' in pod(code=UNKNOWN, node="other").stderr
    assert "NODE_NAME" in pod(code=UNKNOWN, node="").stderr
    assert "no service account" in pod(code=UNKNOWN, account="").stderr
    assert "not in a pod" in pod(code=UNKNOWN, KUBERNETES_SERVICE_HOST="").stderr
    for host, port in (("api@evil.example/", "443"), ("a b", "443"), ("127.0.0.1", "443/../x"), ("127.0.0.1", "0")):
        refused = pod(code=UNKNOWN, KUBERNETES_SERVICE_HOST=host, KUBERNETES_SERVICE_PORT=port).stderr
        assert "is not a host or port" in refused
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    certificate(stranger, "ca")
    (stranger / "token").write_text(TOKEN)
    before = len(api.calls)
    pod(code=UNKNOWN, account=stranger)
    assert len(api.calls) == before, "the token went to a server that the CA does not vouch for"
    (stranger / "token").write_text("another")
    (stranger / "ca.crt").write_bytes((tmp_path / "ca.crt").read_bytes())
    assert "the token is not accepted" in pod(code=UNKNOWN, account=stranger).stderr


# --- the example ---

def test_manifests():
    docs = list(yaml.safe_load_all((ROOT / "examples" / "kubernetes" / "job.yaml").read_text()))
    by_kind = {d["kind"]: d for d in docs}
    assert [d["apiVersion"] for d in docs] == ["v1", "v1"] + ["rbac.authorization.k8s.io/v1"] * 2 + ["batch/v1"]
    role, binding, job = by_kind["ClusterRole"], by_kind["ClusterRoleBinding"], by_kind["Job"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
                             {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}]
    account = by_kind["ServiceAccount"]["metadata"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    pod = job["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["name"] and job["metadata"]["namespace"] == account["namespace"]
    assert pod["restartPolicy"] == "Never" and pod["tolerations"] == [{"operator": "Exists"}]
    mounts = {m["name"] for m in pod["containers"][0]["volumeMounts"]}
    assert mounts == {v["name"] for v in pod["volumes"]}
    env = {e["name"]: e for e in pod["containers"][0]["env"]}
    assert env["NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"


def test_the_examples_limits_leave_time_for_one_another():
    """The checks end before the Job's deadline, which also has the pull of an image, and that before the wait."""
    text = (ROOT / "examples" / "kubernetes" / "job.yaml").read_text()
    job = list(yaml.safe_load_all(text))[-1]["spec"]
    command = job["template"]["spec"]["containers"][0]["command"]
    checks_s = 60 * int(command[command.index("--time") + 1].removesuffix("m"))
    wait_s = 60 * int(re.search(r"kubectl wait .*--timeout=(\d+)m", text).group(1))
    assert 2 * checks_s <= job["activeDeadlineSeconds"] <= wait_s - 60


@needs_cuda_agent
def test_the_examples_command_is_one(gpuprov):
    docs = list(yaml.safe_load_all((ROOT / "examples" / "kubernetes" / "job.yaml").read_text()))
    command = docs[-1]["spec"]["template"]["spec"]["containers"][0]["command"]
    done = gpuprov(*command[1:], env={"NODE_NAME": "x", "KUBERNETES_SERVICE_HOST": "", "KUBERNETES_SERVICE_PORT": ""},
                   code=None)
    assert (done.code == FAIL and done.out.startswith("fail: gpu.presence")) or os.path.exists("/dev/nvidia0"), done
