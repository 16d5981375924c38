# SPDX-License-Identifier: Apache-2.0
"""Certificates: what `verify` says of a good one, of every way to be wrong, and of a machine that changed. The
signature is checked a second time by OpenSSL's own program, so that it is not only ours with ours."""
import base64
import datetime
import json
import os
import subprocess

import pytest

from agent_gpu import needs_cuda_agent

PASS, DEGRADED, FAIL, UNKNOWN = 0, 1, 2, 3

# /proc as a machine with NVIDIA's driver has it, in a mount namespace of the test's own.
MACHINE = r"""
driver=$1 boot=$2 uuids=$3; shift 3
if [ -n "$driver" ]; then
  mount -t tmpfs none /proc/driver || exit 99
  mkdir -p /proc/driver/nvidia/gpus
  printf 'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (dvs-builder)\nGCC version:  gcc 12.3.0\n' \
    "$driver" >/proc/driver/nvidia/version
  n=0
  for u in $uuids; do
    d=/proc/driver/nvidia/gpus/0000:0$n:00.0; mkdir "$d"
    printf 'Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 149\nGPU UUID: \t %s\nVideo BIOS: \t 96.00.74.00.01\nDevice Minor: \t %s\n' \
      "$u" "$n" >"$d/information"
    n=$((n+1))
  done
fi
if [ -n "$boot" ]; then
  echo "$boot" >"$BOOT_FILE" && mount --bind "$BOOT_FILE" /proc/sys/kernel/random/boot_id || exit 99
fi
exec "$@"
"""


@pytest.fixture
def made(gpuprov, tmp_path):
    """A certificate of this machine, out of the program."""
    folder = tmp_path / "certs"
    done = gpuprov("validate", "--local", "--time", "5s", "--certificate", folder)
    path = folder / "local-0.certificate.json"
    assert f"certificate: {path}" in done.err
    return path


def payload(path):
    return json.loads(base64.b64decode(json.loads(path.read_text())["payload"]))


def key_of(gpuprov):
    return gpuprov.state / "signing_key"


def pae(envelope):
    body = base64.b64decode(envelope["payload"])
    return b"DSSEv1 %d %s %d " % (len(envelope["payloadType"]), envelope["payloadType"].encode(), len(body)) + body


def sign(path, key, change, tmp_path):
    """Signs a changed payload with a key at hand, as somebody who holds one could."""
    envelope = json.loads(path.read_text())
    body = json.loads(base64.b64decode(envelope["payload"]))
    change(body)
    envelope["payload"] = base64.b64encode(json.dumps(body).encode()).decode()
    data, sig = tmp_path / "data", tmp_path / "sig"
    data.write_bytes(pae(envelope))
    subprocess.run(["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", data, "-out", sig], check=True)
    envelope["signatures"][0]["sig"] = base64.b64encode(sig.read_bytes()).decode()
    out = tmp_path / "changed.json"
    out.write_text(json.dumps(envelope))
    return out


def said(gpuprov, path, code, *options):
    done = gpuprov("verify", path, *options, code=code)
    assert done.out.count("\n") == 1, "one line"
    return done.out.strip()


def test_good(gpuprov, made):
    told = said(gpuprov, made, PASS)
    body = payload(made)
    assert told.startswith(f"pass: local/0, run {body['run']}, 0 GPUs, until ") and told.endswith("; this machine")
    fingerprint = body["key"]["fingerprint"]
    pub = gpuprov.state / "signing_key.pub"
    assert fingerprint in told
    for trust in (["--key", pub], ["--fingerprint", fingerprint], ["--this-machine"]):
        said(gpuprov, made, PASS, *trust)
    out = gpuprov.json("verify", made)
    assert out["verify"] == "pass" and out["this_machine"] is True and out["certificate"] == body
    der = subprocess.run(["openssl", "pkey", "-pubin", "-in", pub, "-outform", "DER"], capture_output=True, check=True).stdout
    digest = subprocess.run(["openssl", "dgst", "-sha256", "-binary"], input=der, capture_output=True, check=True).stdout
    assert fingerprint == "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def test_what_it_says(gpuprov, made):
    body = payload(made)
    boot = open("/proc/sys/kernel/random/boot_id").read().strip()
    assert (body["schema"], body["boot_id"], body["verdict"]) == ("gpuprov/certificate/v1", boot, "pass")
    day = datetime.datetime.fromisoformat(body["expires"]) - datetime.datetime.fromisoformat(body["validated"])
    assert day == datetime.timedelta(hours=24)
    cores = next(c for c in body["checks"] if c["check"] == "host.cores")
    assert cores["metrics"][0]["name"] == "usable" and "data" not in cores
    assert key_of(gpuprov).stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in made.read_text()


def test_openssl_agrees(gpuprov, made, tmp_path):
    envelope = json.loads(made.read_text())
    (tmp_path / "data").write_bytes(pae(envelope))
    (tmp_path / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    subprocess.run(["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", gpuprov.state / "signing_key.pub",
                    "-in", tmp_path / "data", "-sigfile", tmp_path / "sig"], check=True, capture_output=True)


def test_ttl_and_one_key_for_all(gpuprov, made, tmp_path):
    one = tmp_path / "one.json"
    gpuprov("validate", "--local", "--time", "5s", "--certificate", one, "--certificate-ttl", "90m")
    body = payload(one)
    assert body["key"] == payload(made)["key"]
    length = datetime.datetime.fromisoformat(body["expires"]) - datetime.datetime.fromisoformat(body["validated"])
    assert length == datetime.timedelta(minutes=90)


def test_tampered(gpuprov, made, tmp_path):
    envelope = json.loads(made.read_text())
    body = payload(made)
    bad = tmp_path / "bad.json"
    for member, value in (("expires", "2099-01-01T00:00:00Z"), ("boot_id", "0" * 36), ("node", 7), ("verdict", "degraded")):
        changed = dict(body, **{member: value})
        bad.write_text(json.dumps(dict(envelope, payload=base64.b64encode(json.dumps(changed).encode()).decode())))
        assert "the signature is not valid: the certificate was changed" in said(gpuprov, bad, FAIL)
    sig = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
    sig[10] ^= 1
    bad.write_text(json.dumps(dict(envelope, signatures=[{"keyid": "", "sig": base64.b64encode(sig).decode()}])))
    assert "the signature is not valid" in said(gpuprov, bad, FAIL)


def test_no_bit_can_change(gpuprov, made, tmp_path):
    """Any other payload byte, as a whole, is refused: nothing of it is outside the signature."""
    envelope = json.loads(made.read_text())
    body = bytearray(base64.b64decode(envelope["payload"]))
    bad = tmp_path / "bad.json"
    for at in range(0, len(body), max(1, len(body) // 40)):
        changed = bytearray(body)
        changed[at] ^= 1
        bad.write_text(json.dumps(dict(envelope, payload=base64.b64encode(changed).decode())))
        assert gpuprov("verify", bad, code=None).code == FAIL, at


def test_signed_again_with_another_key(gpuprov, made, tmp_path):
    other = tmp_path / "other.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", other], check=True)
    pub = subprocess.run(["openssl", "pkey", "-in", other, "-pubout", "-outform", "DER"], capture_output=True, check=True).stdout

    def mine(body):
        body["key"]["public"] = base64.b64encode(pub).decode()
    forged = sign(made, other, mine, tmp_path)
    assert "a key that is not trusted on this machine" in said(gpuprov, forged, UNKNOWN)
    own = gpuprov.state / "signing_key.pub"
    assert "signed with another key: SHA256:" in said(gpuprov, forged, FAIL, "--key", own)
    assert "signed with another key" in said(gpuprov, forged, FAIL, "--fingerprint", payload(made)["key"]["fingerprint"])


def test_expired_and_early(gpuprov, made, tmp_path):
    def at(member, text):
        return sign(made, key_of(gpuprov), lambda b: b.update({member: text}), tmp_path)
    assert "expired at 2026-01-01T00:00:00Z" in said(gpuprov, at("expires", "2026-01-01T00:00:00Z"), FAIL)
    assert "dated in the future" in said(gpuprov, at("validated", "2098-01-01T00:00:00Z"), FAIL)
    said(gpuprov, at("verdict", "degraded"), DEGRADED)
    assert "neither pass nor degraded" in said(gpuprov, at("verdict", "fail"), FAIL)
    assert "no boot_id" in said(gpuprov, at("boot_id", ""), FAIL)
    assert "the certificate's version is not supported" in said(gpuprov, at("schema", "gpuprov/certificate/v2"), FAIL)


def test_cut_short(gpuprov, made, tmp_path):
    text = made.read_text()
    cut = tmp_path / "cut.json"
    for n in (0, 1, len(text) // 3, len(text) - 3):
        cut.write_text(text[:n])
        assert said(gpuprov, cut, FAIL).startswith("fail: "), n
    cut.write_text("{}")
    assert "its payloadType is not application/vnd.gpuprov.certificate.v1+json" in said(gpuprov, cut, FAIL)


def test_could_not_tell(gpuprov, made, tmp_path):
    assert said(gpuprov, tmp_path / "none.json", UNKNOWN).startswith("unknown: ")
    (tmp_path / "text").write_text("no key")
    assert "is not an Ed25519 public key" in said(gpuprov, made, UNKNOWN, "--key", tmp_path / "text")
    for wrong in (["verify"], ["verify", made, "--key"], ["verify", made, "--keys", "x"],
                  ["verify", made, "--key", "a", "--fingerprint", "b"]):
        assert gpuprov(*wrong, code=None).code == UNKNOWN, "wrong usage must not read as degraded"


@needs_cuda_agent
def test_a_node_that_failed_loses_its_certificate(gpuprov, made):
    done = gpuprov("validate", "--local", "--time", "5s", "--gpu", "H100:8", "--certificate", made.parent, code=7)
    assert "no certificate: local/0 is not ready" in done.err
    assert list(made.parent.iterdir()) == []


# --- the machine ---

@pytest.fixture
def on(gpuprov, tmp_path):
    """on(path, code, driver=, boot=, uuids=): verify on a machine like that."""
    if os.geteuid() != 0:
        pytest.skip("needs root: /proc of another machine is mounted over this one's")

    def call(path, code, driver="", boot="", uuids="", options=()):
        argv = ["unshare", "-m", "sh", "-c", MACHINE, "sh", driver, boot, uuids, gpuprov.program, "verify", path, *options]
        done = subprocess.run([str(a) for a in argv], env={**gpuprov.env, "BOOT_FILE": str(tmp_path / "boot")},
                              capture_output=True, text=True)
        assert done.returncode == code, done
        return done.stdout.strip()
    return call


BOOT = "85e460ee-cf77-4929-9227-3c8f949a3a35"
A, B, C = (f"GPU-{n}a3d8b1c-7f1e-4a1e-9c58-0e4f5ad7b0f1" for n in range(3))


@pytest.fixture
def of_gpus(gpuprov, made, tmp_path):
    def change(body):
        body.update(boot_id=BOOT, driver="580.65.06", gpus=[{"uuid": A}, {"uuid": B}])
    return sign(made, key_of(gpuprov), change, tmp_path)


def test_same_machine(of_gpus, on):
    told = on(of_gpus, PASS, "580.65.06", BOOT, f"{B} {A}")
    assert "2 GPUs, driver 580.65.06" in told and told.endswith("; this machine")


@pytest.mark.parametrize("machine,said_why,code", [
    (dict(driver="580.65.06", boot="0" * 8 + BOOT[8:], uuids=f"{A} {B}"), "another machine, or rebooted since", FAIL),
    (dict(driver="580.65.06", boot=BOOT, uuids=A), f"{B} was validated and is not in this machine", FAIL),
    (dict(driver="580.65.06", boot=BOOT, uuids=f"{A} {C}"), f"{B} was validated and is not in this machine", FAIL),
    (dict(driver="580.65.06", boot=BOOT, uuids=f"{A} {B} {C}"), f"{C} is in this machine and was not validated", FAIL),
    (dict(driver="580.95.05", boot=BOOT, uuids=f"{A} {B}"), "the driver is now 580.95.05, 580.65.06 was validated", FAIL),
    (dict(driver="", boot=BOOT), f"{A} was validated and is not in this machine", FAIL),
    (dict(driver="580.65.06", boot=BOOT, uuids=f"{A} GPU-????????-????-????-????-????????????"), "nvidia-smi -L", UNKNOWN),
])
def test_another_machine(of_gpus, on, machine, said_why, code):
    assert said_why in on(of_gpus, code, options=["--this-machine"], **machine)


def test_elsewhere_the_machine_is_not_looked_at(of_gpus, on):
    elsewhere = ("550.54.14", "0" * 8 + BOOT[8:], C)
    told = on(of_gpus, PASS, *elsewhere)
    assert told.endswith("; machine not compared (give --this-machine on the node)")
    assert json.loads(on(of_gpus, PASS, *elsewhere, options=["--json"]))["this_machine"] is None


@pytest.mark.parametrize("driver,uuids,option,code,this_machine", [
    ("580.65.06", f"{A} {B}", True, PASS, True), ("580.65.06", f"{A} {B}", False, PASS, True),
    ("580.65.06", A, True, FAIL, False), ("580.65.06", A, False, FAIL, False),
    ("580.65.06", f"{A} GPU-????????-????-????-????-????????????", True, UNKNOWN, None),
])
def test_this_machine_in_json(of_gpus, on, driver, uuids, option, code, this_machine):
    options = ["--json", *(["--this-machine"] if option else [])]
    assert json.loads(on(of_gpus, code, driver, BOOT, uuids, options=options))["this_machine"] is this_machine


# --- of a stack ---

def test_of_a_stack(gpuprov, spec, tmp_path):
    """up gives one per node; the key is the stack's own and goes with it; report gives them again."""
    path = spec("name: cert\nnodes: 2\noffers: [{provider: local}]\nlimits: {ttl: 20m}\nvalidate: {time: 1m}\n")
    folder = tmp_path / "certs"
    for bad, why in (("/proc/x", "could not create the folder '/proc/x'"), (tmp_path / "a.json", "is one file and there are 2 nodes")):
        assert "--certificate: " in (r := gpuprov("up", path, "--certificate", bad, code=1)).err and why in r.err, r
    assert not (gpuprov.state / "local").exists()  # nothing was launched
    up = gpuprov("up", path, "--certificate", folder, "--report", f"html={tmp_path / 'up.html'}")
    names = ["cert-0.certificate.json", "cert-1.certificate.json"]
    assert sorted(p.name for p in folder.iterdir()) == names and (tmp_path / "up.html").exists(), up
    first, second = (payload(folder / n) for n in names)
    assert (first["stack"], first["node"], second["node"]) == ("cert", 0, 1) and first["instance"] != second["instance"]
    assert {c["check"] for c in first["gang"]} >= {"train.ddp"} and first["uid"] == second["uid"] != ""
    keys = list((gpuprov.state / "stacks").glob("*/signing_key"))
    assert [k.parent.name for k in keys] == [first["uid"]] and keys[0].stat().st_mode & 0o777 == 0o600
    assert said(gpuprov, folder / names[0], PASS).startswith(f"pass: cert/0, run {first['run']}")
    again = tmp_path / "again"
    gpuprov("report", "cert", "--certificate", again)
    assert payload(again / names[1]) == second, "the same proof, the same time"
    (tmp_path / "taken" / names[0]).mkdir(parents=True)
    late = gpuprov("validate", "cert", "--certificate", tmp_path / "taken", code=1)
    assert "; the nodes are ready and the report is kept: give this option to 'gpuprov report cert'" in late.err
    pub = tmp_path / "pub.pem"
    pub.write_bytes((keys[0].parent / "signing_key.pub").read_bytes())
    gpuprov("down", "cert")
    assert list((gpuprov.state / "stacks").glob("*/signing_key")) == []
    assert "a key that is not trusted on this machine" in said(gpuprov, folder / names[0], UNKNOWN)
    said(gpuprov, folder / names[0], PASS, "--key", pub)
