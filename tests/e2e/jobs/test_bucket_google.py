# SPDX-License-Identifier: Apache-2.0
"""Outputs and checkpoints in buckets of Google: an emulator of Cloud Storage that is not ours, behind a proxy that gives
tokens and refuses requests without one."""
import hashlib
import itertools
import json
import socket
import urllib.parse
import urllib.request

import pytest
from gcp_storage_emulator.server import create_server

from store_proxy import StoreProxy

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
SPEC = """\
name: train
nodes: 1
offers: [{{provider: local}}]
limits: {{ttl: 20m}}
validate: {{time: 1m}}
job:
  run: |
    {script}
  outputs: [{{path: out, to: "gs://results/runs/a"}}]
  checkpoint: {{path: ckpt, to: "gs://results/state", every: 1s}}
"""


def reply(status, body):
    text = json.dumps(body).encode()
    return status, [("Content-Type", "application/json"), ("Content-Length", str(len(text)))], text


class Store:
    def __init__(self, folder):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.server = create_server("127.0.0.1", port, in_memory=True, default_bucket="results")
        self.server.start()
        self.proxy = StoreProxy(self.url)
        self.tokens = 0
        self.proxy.rule(lambda r: r.path == "/token", self.token)
        self.proxy.rule(lambda r: r.headers.get("Authorization") != f"Bearer ya29.{self.tokens}",
                        lambda r, f: reply(401, {"error": {"code": 401, "message": "x", "errors": [{"reason": "authError"}]}}))
        key = folder / "adc.json"
        key.write_text(json.dumps({"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r",
                                   "token_uri": self.proxy.url + "/token"}))
        self.env = {"GOOGLE_APPLICATION_CREDENTIALS": str(key), "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": self.proxy.url,
                    "NO_PROXY": "", "no_proxy": ""}

    def token(self, _request, _forward):
        self.tokens += 1
        return reply(200, {"access_token": f"ya29.{self.tokens}", "expires_in": 3600})

    def get(self, path):
        with urllib.request.urlopen(self.url + path) as r:
            return r.read()

    def objects(self):
        items = json.loads(self.get("/storage/v1/b/results/o")).get("items") or []
        return {o["name"]: o for o in items}

    def read(self, key):
        return self.get("/storage/v1/b/results/o/" + urllib.parse.quote(key, "") + "?alt=media")

    def put(self, key, data):
        urllib.request.urlopen(urllib.request.Request(
            f"{self.url}/upload/storage/v1/b/results/o?uploadType=media&name={urllib.parse.quote(key, '')}", data=data,
            method="POST", headers={"Content-Type": "text/plain"})).close()

    def close(self):
        self.proxy.close()
        self.server.stop()


@pytest.fixture
def store(tmp_path):
    s = Store(tmp_path)
    yield s
    s.close()


def staged(gpuprov):
    return [p for p in (gpuprov.state / "buckets").rglob("*") if p.is_file()]


def test_results_go_there_and_another_machine_resumes(gpuprov, store, spec, tmp_path):
    def part(r):
        return r.command == "PUT" and "bytes 16777216-" in (r.headers.get("Content-Range") or "")

    store.proxy.rule(part, lambda r, f: reply(503, {"error": {"code": 503, "errors": [{"reason": "backendError"}]}}), times=1)
    store.proxy.rule(part, lambda r, f: f() and None, times=1)  # it arrives, and the reply is lost
    path = spec(SPEC.format(script="cat ckpt/step || echo first; mkdir -p out ckpt; head -c 40000000 /dev/zero >out/big; "
                                   "echo end >>out/big; printf x >'out/a +%é b'; : >out/empty; echo 7 >ckpt/step"))
    gpuprov("run", path, env=store.env)
    got = store.objects()
    assert sorted(got) == ["runs/a/a +%é b", "runs/a/big", "runs/a/empty", "state/step"]
    assert got["state/step"]["metadata"] == {"gpuprov-sha256": hashlib.sha256(b"7\n").hexdigest()}
    assert store.read("runs/a/big")[-5:] == b"\0end\n" and got["runs/a/big"]["size"] == "40000004"
    assert not staged(gpuprov)

    gpuprov.state = tmp_path / "other"
    gpuprov.env["GPUPROV_STATE_DIR"] = str(gpuprov.state)
    second = gpuprov("run", path, "--json", env=store.env)
    assert [e["line"] for e in second.events if "line" in e] == ["7"]
    stored = {s["to"]: s for s in second.json["job"]["stored"]}
    assert (stored["gs://results/runs/a"]["files"], stored["gs://results/runs/a"]["files_sent"]) == (3, 0)
    assert store.objects() == got, "nothing is sent again"


def test_keys_that_are_no_paths_and_a_spoiled_body(gpuprov, store, spec, tmp_path):
    for key in ["state/.gpuprov-evil", "state/a\nevil", "state/" + "evil" * 60 + "/\x1bx", "state/good"]:
        store.put(key, b"fine")
    result = gpuprov("run", "--json", spec(SPEC.format(script="cd ckpt; find . -type f; cat good")), env=store.env)
    assert [e["line"] for e in result.events if "line" in e] == ["./good", "fine"]
    assert sum("not the name of a file" in e.get("text", "") for e in result.events) == 3
    assert not list(tmp_path.rglob("*evil*"))
    store.proxy.rule(lambda r: "state%2Fgood?alt=media" in r.path,
                     lambda r, f: (206, [("Content-Range", "bytes 0-3/4"), ("Content-Length", "4")], b"evil"))
    bad = gpuprov("run", "--json", spec(SPEC.format(script="cat ckpt/good")), code=None, env=store.env)
    assert bad.code != 0 and "does not have the hash" in bad.json["error"]["message"]
    assert not list((gpuprov.state / "local").glob("*")), "found before nodes are launched"


@pytest.mark.parametrize("case", ["bucket", "rights", "credentials", "refused"])
def test_what_cannot_work_is_found_before_anything_is_launched(gpuprov, store, spec, tmp_path, case):
    words = {"bucket": "create the bucket", "rights": "lacks storage.objects.create", "refused": "Storage Object User",
             "credentials": "gcloud auth application-default login"}[case]
    text = SPEC.format(script="true")
    if case == "bucket":
        text = text.replace("gs://results/runs", "gs://absent/runs")
    if case == "rights":
        store.proxy.rule(lambda r: "testPermissions" in r.path, lambda r, f: reply(200, {
            "permissions": ["storage.objects.list", "storage.objects.get", "storage.objects.delete"]}))
    if case == "refused":
        store.proxy.rule(lambda r: "testPermissions" in r.path, lambda r, f: reply(403, {
            "error": {"code": 403, "message": "no", "errors": [{"reason": "forbidden"}]}}))
    if case == "credentials":
        store.env["GOOGLE_APPLICATION_CREDENTIALS"] = ""
    result = gpuprov("run", "--json", spec(text), code=1 if case == "bucket" else 5, env=store.env)
    error = result.json["error"]["message"]
    assert words in error and "nothing was started" in error
    assert not list((gpuprov.state / "local").glob("*"))


def test_a_refusal_is_none_of_the_checksum_whatever_the_prefix_is_called(gpuprov, store, spec):
    """Else the checkpoint counted as one that changed meanwhile, and the copy here was removed with the nodes."""
    store.proxy.rule(lambda r: r.command == "PUT", lambda r, f: reply(403, {
        "error": {"code": 403, "message": "no", "errors": [{"reason": "forbidden"}]}}))
    text = SPEC.format(script="mkdir -p ckpt; echo 7 >ckpt/step").replace("gs://results/state", "gs://results/hash-crc32c")
    failed = gpuprov("run", "--json", spec(text), code=5, env=store.env)
    assert "the same 'gpuprov run' sends them" in failed.json["error"]["message"]
    assert [p.read_text() for p in staged(gpuprov) if p.name == "step"] == ["7\n"]


@pytest.mark.parametrize("how", ["list", "range"])
def test_a_store_that_does_not_get_on_is_left(gpuprov, store, spec, how):
    """The tokens of its pages go round; or it keeps one byte more of each part that is sent."""
    calls = itertools.count(1)
    if how == "list":
        store.proxy.rule(lambda r: r.command == "GET" and "/o?" in r.path and "runs" in r.path, lambda r, f: reply(200, {
            "nextPageToken": f"t{(n := next(calls)) % 2}", "items": [{"name": f"runs/a/{n}", "size": "1"}]}))
    else:
        store.proxy.rule(lambda r: r.command == "PUT", lambda r, f: (
            308, [("Range", f"bytes=0-{next(calls)}"), ("Content-Length", "0")], b""))
    path = spec(SPEC.format(script="mkdir -p out; head -c 3000000 /dev/zero >out/big"))
    p = gpuprov.popen("run", "--json", path, env=store.env)
    try:
        out, err = p.communicate(timeout=90)
    finally:
        p.kill()
    error = json.loads(out.splitlines()[-1])["error"]["message"]
    assert p.returncode == 1 and next(calls) < 10, err
    assert {"list": "'gs://results/runs/a': the store repeats a page", "range": "the store does not take 'big'"}[how] in error
    assert gpuprov.json("status")["stacks"] == []
