# SPDX-License-Identifier: Apache-2.0
"""Outputs and checkpoints in buckets: moto's S3, which is not ours, and what a run must do around it."""
import hashlib
import itertools
import json
import signal
import threading
import time

import pytest

from ec2 import CLEAN, Moto, REGION
from job_lab import write_job
from store_proxy import StoreProxy, xml_error
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: train
nodes: {nodes}
offers: [{{provider: local}}]
limits: {{ttl: 20m}}
validate: {{time: 1m}}
job:
  workdir: work
  run: sh job.sh
  outputs: [{{path: out, to: "s3://results/runs/a"{every}}}]
{more}"""
CHECKPOINT = '  checkpoint: {path: ckpt, to: "s3://results/state", every: 1s}\n'


class Store:
    """A bucket `results` of moto, as a person's client sees it."""

    def __init__(self, moto):
        self.moto = moto
        self.s3 = moto.client("s3")
        self.s3.create_bucket(Bucket="results")
        self.env = {**CLEAN, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing-secret", "AWS_REGION": REGION,
                    "AWS_ENDPOINT_URL_S3": moto.url}

    def objects(self):
        got = self.s3.list_objects_v2(Bucket="results").get("Contents", [])
        return {o["Key"]: o["LastModified"] for o in got}

    def read(self, key):
        return self.s3.get_object(Bucket="results", Key=key)["Body"].read()

    def put(self, key, text):
        self.s3.put_object(Bucket="results", Key=key, Body=text.encode())

    def unfinished(self):
        return self.s3.list_multipart_uploads(Bucket="results").get("Uploads", [])


@pytest.fixture(scope="module")
def moto():
    m = Moto()
    yield m
    m.close()


@pytest.fixture
def store(moto):
    moto.reset()
    return Store(moto)


@pytest.fixture
def proxy(store):
    """Between gpuprov and the store."""
    p = StoreProxy(store.moto.url)
    store.env["AWS_ENDPOINT_URL_S3"] = p.url
    yield p
    p.close()


@pytest.fixture
def job(tmp_path):
    """job(SCRIPT): the path of a spec that runs it."""

    def write(script, nodes=1, more="", every=""):
        return write_job(tmp_path, SPEC.format(nodes=nodes, more=more, every=every), script)
    return write


def staged(gpuprov):
    """What of the buckets' files is on this machine."""
    return [p for p in (gpuprov.state / "buckets").rglob("*") if p.is_file()]


def folder_of(gpuprov, to):
    """Where its files are on this machine."""
    return gpuprov.state / "buckets/train" / hashlib.sha256(to.encode()).hexdigest()[:16]


def nothing_runs(gpuprov):
    assert gpuprov.json("status")["stacks"] == []


def test_outputs_of_each_rank_and_a_checkpoint_that_another_machine_resumes(gpuprov, job, store, tmp_path):
    spec = job("cat ckpt/step || echo first; mkdir -p out/deep ckpt; echo $NODE_RANK >out/deep/rank; printf x >'out/a +%é b'; "
               ": >out/empty; ln -s deep/rank out/link; echo 7 >ckpt/step", nodes=2, more=CHECKPOINT)
    first = gpuprov("run", spec, "--json", env=store.env).json
    names = ["a +%é b", "deep/rank", "empty", "link"]
    assert sorted(store.objects()) == sorted(
        [f"runs/a/{r}/{n}" for r in "01" for n in names] + ["state/0/step", "state/1/step"])
    assert store.read("runs/a/1/deep/rank") == b"1\n" == store.read("runs/a/1/link")
    head = store.s3.head_object(Bucket="results", Key="runs/a/0/deep/rank")
    assert head["Metadata"] == {"gpuprov-sha256": hashlib.sha256(b"0\n").hexdigest()}
    stored = {s["to"]: s for s in first["job"]["stored"]}
    assert stored["s3://results/runs/a"]["files"] == 8 == stored["s3://results/runs/a"]["files_sent"]
    assert first["job"]["fetched"][0]["to"] == "s3://results/runs/a/0/"
    assert not staged(gpuprov)
    nothing_runs(gpuprov)

    # another machine: no state, the same bucket
    before = store.objects()
    gpuprov.state = tmp_path / "other"
    gpuprov.env["GPUPROV_STATE_DIR"] = str(gpuprov.state)
    second = gpuprov("run", spec, "--json", env=store.env)
    assert sum(e.get("text", "").startswith("checkpoint: 2 of 2 files fetched from") for e in second.events) == 1
    stored = {s["to"]: s for s in second.json["job"]["stored"]}
    assert (stored["s3://results/runs/a"]["files"], stored["s3://results/runs/a"]["files_sent"]) == (8, 0)
    assert store.objects() == before, "only what differs is sent"
    assert not staged(gpuprov) and not store.unfinished()


BIG = "mkdir -p out; head -c 70000000 /dev/zero >out/big; echo end >>out/big; echo small >out/small"


def is_part(n):
    return lambda r: r.command == "PUT" and f"partNumber={n}&" in r.path


def is_object(r):
    return r.command == "PUT" and "partNumber" not in r.path


def test_a_large_file_goes_up_in_parts_and_is_not_sent_again(gpuprov, job, store, proxy):
    proxy.rule(is_part(2), xml_error(503, "SlowDown"), times=1)
    proxy.rule(is_part(3), lambda r, forward: None, times=1)
    spec = job(BIG)
    gpuprov("run", spec, env=store.env)
    head = store.s3.head_object(Bucket="results", Key="runs/a/big")
    assert head["ContentLength"] == 70000004 and head["ETag"].endswith('-5"') and not store.unfinished()
    assert store.read("runs/a/big")[-4:] == b"end\n"
    proxy.calls.clear()
    again = gpuprov("run", spec, "--json", env=store.env).json["job"]
    assert (again["attached"], again["stored"][0]["files"], again["stored"][0]["files_sent"]) == (False, 2, 0)
    # the check begins an upload, which has no parts, and gives it up
    assert [c for c, _ in proxy.calls if c in ("PUT", "POST", "DELETE")] == ["POST", "DELETE"]


@pytest.mark.parametrize("case", ["bucket", "list", "read", "write", "credentials"])
def test_what_cannot_work_is_found_before_anything_is_launched(gpuprov, job, store, proxy, case):
    words, code = {"bucket": ("NoSuchBucket", 1), "list": ("s3:ListBucket", 5), "read": ("s3:GetObject", 5), "write": ("s3:PutObject", 5),
                   "credentials": ("run 'aws configure'", 5)}[case]
    if case == "bucket":
        store.s3.delete_bucket(Bucket="results")
    if case == "read":
        proxy.rule(lambda r: r.command == "HEAD", lambda r, forward: (403, [("Content-Length", "0")], b""))
    if case == "list":
        proxy.rule(lambda r: "list-type=2" in r.path, xml_error(403, "AccessDenied"))
    if case == "write":
        proxy.rule(lambda r: "uploads" in r.path, xml_error(403, "AccessDenied"))
    if case == "credentials":
        del store.env["AWS_ACCESS_KEY_ID"], store.env["AWS_SECRET_ACCESS_KEY"]
    result = gpuprov("run", "--json", job("true"), code=code, env=store.env)
    error = result.json["error"]["message"]
    assert words in error and "nothing was started" in error and "s3://results/runs/a" in error + words
    assert not any("create" in e.get("text", "") for e in result.events)
    assert not list((gpuprov.state / "local").glob("*"))


def test_refused_at_the_end_the_nodes_go_and_the_next_run_only_sends(gpuprov, job, store, proxy):
    refusal = {"on": True}
    proxy.rule(lambda r: is_object(r) and r.path.endswith("/two") and refusal["on"], xml_error(403, "AccessDenied"))
    spec = job("mkdir out; echo 1 >out/one; echo 2 >out/two; echo 3 >out/zero")
    failed = gpuprov("run", "--json", spec, code=5, env=store.env)
    error = failed.json["error"]["message"]
    here = [p for p in staged(gpuprov) if p.name == "two"]
    assert len(here) == 1 and str(here[0].parent) in error and "the same 'gpuprov run' sends them" in error
    assert failed.json["destroyed"] > 0 and failed.json["job"]["stored"][0]["error"]
    assert sorted(store.objects()) == ["runs/a/one"]
    nothing_runs(gpuprov)
    refusal["on"] = False
    again = gpuprov("run", "--json", spec, env=store.env)
    assert again.json["job"]["id"] == failed.json["job"]["id"]
    assert (again.json["job"]["state"], again.json["job"]["stored"][0]["files_sent"]) == ("succeeded", 2)
    assert any("what was not sent is sent now" in e.get("text", "") for e in again.events)
    assert sorted(store.objects()) == ["runs/a/one", "runs/a/two", "runs/a/zero"]
    assert not staged(gpuprov)
    third = gpuprov("run", "--json", spec, env=store.env).json
    assert third["job"]["id"] != failed.json["job"]["id"], "it runs anew"
    nothing_runs(gpuprov)


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_refused_after_a_job_without_success_the_next_run_begins_anew(gpuprov, job, store, proxy, tmp_path, how):
    refusal = {"on": True}
    proxy.rule(lambda r: is_object(r) and refusal["on"], xml_error(403, "AccessDenied"))
    spec = job("mkdir -p out; [ -e second ] && { echo 2 >out/both; exit 0; }; echo 1 >out/both; echo 1 >out/first; "
               + {"failed": "exit 3", "cancelled": "sleep 600"}[how], every=", every: 1s")
    folder = folder_of(gpuprov, "s3://results/runs/a")
    p = gpuprov.popen("run", "--json", spec, env=store.env)
    if how == "cancelled":
        wait_for((folder / "first").is_file, 120)
        p.send_signal(signal.SIGINT)
    _out, err = p.communicate(timeout=180)
    assert p.returncode == {"failed": 9, "cancelled": 130}[how], err
    assert f"'{folder}'" in err and "begins the job anew, writes over files of the same name, and sends all at its end" in err
    assert "the same 'gpuprov run' sends them" not in err
    nothing_runs(gpuprov)
    refusal["on"] = False
    (tmp_path / "work/second").write_text("")
    again = gpuprov("run", "--json", spec, env=store.env).json["job"]
    assert not again["attached"] and again["id"] not in ("", None)
    assert (store.read("runs/a/both"), store.read("runs/a/first")) == (b"2\n", b"1\n") and not staged(gpuprov)


def test_refused_after_exec_the_same_exec_sends(gpuprov, job, store, proxy):
    refusal = {"on": True}
    proxy.rule(lambda r: is_object(r) and refusal["on"], xml_error(403, "AccessDenied"))
    spec = job("mkdir -p out; echo 1 >out/a; exit 3")
    gpuprov("up", "--yes", spec)
    failed = gpuprov("exec", "--json", spec, code=9, env=store.env)
    assert any("the same 'gpuprov exec' sends them" in e.get("text", "") for e in failed.events)
    refusal["on"] = False
    again = gpuprov("exec", "--json", spec, code=9, env=store.env).json["job"]
    assert again["attached"] and again["id"] == failed.json["job"]["id"] and store.read("runs/a/a") == b"1\n"
    assert not staged(gpuprov)


def test_killed_in_the_upload_the_next_run_ends_it(gpuprov, job, store, proxy):
    there, go = threading.Event(), threading.Event()

    def hang(request, forward):
        there.set()
        go.wait(60)

    proxy.rule(is_part(3), hang, times=1)
    spec = job(BIG)
    p = gpuprov.popen("run", spec, env=store.env)
    assert there.wait(120)
    p.kill()
    p.communicate()
    go.set()
    assert len(store.unfinished()) == 1
    result = gpuprov("run", "--json", spec, env=store.env).json
    assert result["job"]["attached"] and result["job"]["fetched"][0]["files_sent"] == 0
    assert not store.unfinished() and len(store.read("runs/a/big")) == 70000004
    assert sorted(store.objects()) == ["runs/a/big", "runs/a/small"] and not staged(gpuprov)
    nothing_runs(gpuprov)


def is_list(r):
    return "max-keys=1000" in r.path


def list_page(key, token):
    body = (f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
            f"<Contents><Key>{key}</Key><Size>1</Size></Contents></ListBucketResult>").encode()
    return 200, [("Content-Length", str(len(body)))], body


def test_a_list_whose_pages_go_round_ends(gpuprov, job, store, proxy):
    pages = itertools.count()
    proxy.rule(is_list, lambda r, f: list_page(f"runs/a/{(n := next(pages))}", f"t{n % 2}"))
    failed = gpuprov("run", "--json", job("mkdir out; echo 1 >out/one"), code=1, env=store.env)
    assert "'s3://results/runs/a': the store repeats a page of its list" in failed.json["error"]["message"]
    assert next(pages) < 10 and failed.json["destroyed"] > 0
    nothing_runs(gpuprov)


@pytest.mark.parametrize("how", ["list", "put", "drip"])
def test_a_store_without_end_does_not_keep_the_nodes(gpuprov, job, store, proxy, how):
    """New pages come every two seconds; or an object is taken and not acknowledged; or a page never ends."""
    pages, bad, done = itertools.count(), {"on": True}, threading.Event()

    def hostile(request, _forward):
        if how == "list":
            done.wait(2)
            return list_page(f"runs/a/{(n := next(pages))}", f"t{n}")
        while how == "drip" and not done.wait(0.3):
            request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" if next(pages) == 0 else b" ")
        done.wait(120)
        return None

    proxy.rule(lambda r: bad["on"] and (is_object(r) if how == "put" else is_list(r)), hostile)
    spec = job("mkdir out; echo 1 >out/one")
    start = time.monotonic()
    p = gpuprov.popen("run", "--json", "--fetch-timeout", "5s", spec, env=store.env)
    try:
        out, err = p.communicate(timeout=90)
    finally:
        done.set()
        p.kill()
    failed = json.loads(out.splitlines()[-1])
    error = failed["error"]["message"]
    assert p.returncode == 6 and failed["error"]["code"] == "timeout", err
    assert "'s3://results/runs/a': the store did not finish within 5.0s (--fetch-timeout)" in error and time.monotonic() - start < 80
    here = [p for p in staged(gpuprov) if p.name == "one"]
    assert len(here) == 1 and str(here[0].parent) in error and "the same 'gpuprov run' sends them" in error
    assert failed["destroyed"] > 0
    nothing_runs(gpuprov)
    bad["on"] = False
    again = gpuprov("run", "--json", "--fetch-timeout", "5m", spec, env=store.env).json["job"]
    assert again["id"] == failed["job"]["id"] and store.read("runs/a/one") == b"1\n" and not staged(gpuprov)


def test_a_store_that_hangs_does_not_stop_the_copies_of_nodes(gpuprov, job, store, proxy):
    hung, done = threading.Event(), threading.Event()
    proxy.rule(lambda r: is_object(r) and not done.is_set(), lambda r, f: hung.set() or (done.wait(120) and None))
    here = folder_of(gpuprov, "s3://results/state") / "n"
    p = gpuprov.popen("run", job(COUNTS, more=CHECKPOINT), env=store.env)
    try:
        assert hung.wait(120)
        step = int(here.read_text())
        wait_for(lambda: int(here.read_text() or 0) > step + 100, 40)
        assert mark_of(gpuprov).exists()
        done.set()
        wait_for(lambda: "state/n" in store.objects(), 60)
        gpuprov("ssh", "train/0", "--", "touch .gpuprov/work/fast")
        _out, err = p.communicate(timeout=120)
    finally:
        done.set()
        p.kill()
    assert p.returncode == 0, err
    assert int(store.read("state/n")) > step + 100 and not staged(gpuprov)


@pytest.mark.long
def test_refused_in_the_middle_of_a_large_file_no_parts_stay(gpuprov, job, store, proxy):
    proxy.rule(is_part(4), xml_error(403, "AccessDenied"))
    gpuprov("run", job(BIG), code=5, env=store.env)
    assert not store.unfinished() and sorted(store.objects()) == []
    assert not [p for p in staged(gpuprov) if p.name.endswith(".upload")]


def test_keys_that_are_no_paths_are_left_out(gpuprov, job, store, tmp_path):
    bad = ["state/../../../evil", "state//twice", "state/a\x01b", "state/.gpuprov-part.x", "state/x/./y",
           "state/" + "n" * 300]
    for key in [*bad, "state/good", "state/dir/", "state/file", "state/file/below", "state", "stately"]:
        store.put(key, "evil" if key in bad else "fine")
    store.put("state/dir/", "")
    result = gpuprov("run", "--json", job("cd ckpt; find . -type f | sort; cat good", more=CHECKPOINT), env=store.env)
    lines = [e["line"] for e in result.events if "line" in e]
    assert lines == ["./file", "./good", "fine"]
    warnings = [e["text"] for e in result.events if e.get("status") == "warn"]
    assert sum("not the name of a file" in w for w in warnings) == len(bad)
    assert any("state/file/below" in w or "file/below" in w for w in warnings)
    assert not list(tmp_path.rglob("*evil*"))


def test_what_a_killed_fetch_left_is_no_part_of_the_checkpoint(gpuprov, job, store, tmp_path):
    for key in ["state/n", "state/deep/er/n", "state/was-folder", "state/was-link/n"]:
        store.put(key, "fine")
    part = folder_of(gpuprov, "s3://results/state").with_suffix(".part")
    for name in ["stale", "deep/stale", "deep/er/n", "deep/er/stale", "gone/a/b", "was-folder/below"]:
        (part / name).parent.mkdir(parents=True, exist_ok=True)
        (part / name).write_text("old")
    (tmp_path / "outside").mkdir()
    (part / "was-link").symlink_to(tmp_path / "outside")
    result = gpuprov("run", "--json", job("cd ckpt; find . | sort; cat deep/er/n", more=CHECKPOINT), env=store.env)
    lines = [e["line"] for e in result.events if "line" in e]
    assert lines == [".", "./deep", "./deep/er", "./deep/er/n", "./n", "./was-folder", "./was-link", "./was-link/n", "fine"]
    assert not list((tmp_path / "outside").iterdir()) and not staged(gpuprov)


@pytest.mark.parametrize("how", ["short", "other", "longer"])
def test_a_body_that_is_not_the_object(gpuprov, job, store, proxy, how):
    store.s3.put_object(Bucket="results", Key="state/n", Body=b"12345678",
                        Metadata={"gpuprov-sha256": hashlib.sha256(b"12345678").hexdigest()})

    def spoil(request, forward):
        status, headers, body = forward()
        if how == "longer":
            headers = [(n, v) for n, v in headers if n != "Content-Length"] + [("Content-Length", "9")]
        return status, headers, {"short": body[:4], "other": b"1234567x", "longer": body + b"9"}[how]

    def cut(request, forward):
        reply = spoil(request, forward)
        request.close_connection = True
        return reply

    proxy.rule(lambda r: r.command == "GET" and r.path.endswith("/n"), cut, times=1 if how == "short" else -1)
    spec = job("cat ckpt/n", more=CHECKPOINT)
    if how == "short":  # the connection ended too soon: it is asked again
        assert "12345678" in gpuprov("run", spec, env=store.env).out
        return
    result = gpuprov("run", "--json", spec, code=None, env=store.env)
    assert result.code != 0 and "state" in result.json["error"]["message"]
    assert "the checkpoint could not be fetched" in result.json["error"]["message"]
    assert not staged(gpuprov) and not list((gpuprov.state / "local").glob("*")), "found before nodes are launched"


def test_outputs_come_while_the_job_runs(gpuprov, job, store, tmp_path):
    spec = job("mkdir -p out log; n=0; while [ ! -e stop ]; do n=$((n + 1)); echo $n >out/n; echo $n >>log/all; sleep 0.2; done; "
               "echo last >out/n", every=", every: 1s", more="    - {path: log, to: log, every: 1s}\n")
    spec.write_text(spec.read_text().replace(
        'outputs: [{path: out, to: "s3://results/runs/a", every: 1s}]',
        'outputs:\n    - {path: out, to: "s3://results/runs/a", every: 1s}'))
    p = gpuprov.popen("run", spec, env=store.env)
    wait_for(lambda: "runs/a/n" in store.objects() and (tmp_path / "log/all").is_file(), 120)
    first = store.read("runs/a/n")
    wait_for(lambda: store.read("runs/a/n") != first)
    gpuprov("ssh", "train/0", "--", "touch .gpuprov/work/stop")
    _out, err = p.communicate(timeout=120)
    assert p.returncode == 0, err
    assert store.read("runs/a/n") == b"last\n" and not staged(gpuprov)
    nothing_runs(gpuprov)


COUNTS = ("mkdir -p ckpt; n=$(cat ckpt/n 2>/dev/null || echo 0); echo from $n; ls ckpt; "
          "while [ $n -lt 1000 ] && [ ! -e fast ]; do n=$((n + 1)); echo $n >ckpt/.n && mv ckpt/.n ckpt/n; sleep 0.1; done")


def lines_of(result):
    return [e["line"] for e in result.events if "line" in e]


def mark_of(gpuprov):
    return folder_of(gpuprov, "s3://results/state").with_suffix(".unsent.json")


@pytest.mark.long
def test_a_checkpoint_that_a_killed_run_did_not_send_is_used(gpuprov, job, store, proxy, tmp_path):
    """It is newer than the bucket, and is reported."""
    refusal = {"on": True}
    proxy.rule(lambda r: is_object(r) and r.path.endswith("/n") and refusal["on"], xml_error(403, "AccessDenied"))
    here = folder_of(gpuprov, "s3://results/state") / "n"
    spec = job(COUNTS, more=CHECKPOINT)
    store.put("state/n", "1\n")
    p = gpuprov.popen("run", spec, env=store.env)
    wait_for(lambda: here.is_file() and here.read_text() not in ("", "1\n"), 120)
    p.kill()
    p.communicate()
    gpuprov("down", "train")
    step = int(here.read_text())
    (tmp_path / "work/fast").write_text("")
    refusal["on"] = False

    mark = mark_of(gpuprov)
    whole = mark.read_text()
    for bad in ["", "{", "{}", '{"to": "s3://results/runs/a"}', whole[:-1] + ', "more": 1}', "[]"]:
        mark.write_text(bad)
        refused = gpuprov("run", spec, code=1, env=store.env).err
        assert str(mark) in refused and str(here.parent) in refused and "remove both" in refused
    mark.write_text(whole)
    result = gpuprov("run", "--json", spec, env=store.env)
    assert lines_of(result) == [f"from {step}", "n"] and step > 1
    assert any("before it was sent is used" in e.get("text", "") for e in result.events)
    assert not staged(gpuprov)
    nothing_runs(gpuprov)


def test_a_checkpoint_that_was_sent_gives_way_to_another_machines(gpuprov, job, store, tmp_path):
    """After `run --detach` nothing came from a node: the folder here is a copy of the bucket, and becomes old."""
    spec = job(COUNTS, more=CHECKPOINT)
    for key in ["state/n", "state/old"]:
        store.put(key, "1\n")
    gpuprov("run", "--detach", spec, env=store.env)
    assert sorted(p.name for p in staged(gpuprov)) == ["n", "old"]
    gpuprov("down", "train")
    store.put("state/n", "70\n")
    store.s3.delete_object(Bucket="results", Key="state/old")
    (tmp_path / "work/fast").write_text("")
    result = gpuprov("run", "--json", spec, env=store.env)
    assert lines_of(result) == ["from 70", "n"] and store.read("state/n") == b"70\n"
    assert not any("before it was sent" in e.get("text", "") for e in result.events)
    assert not staged(gpuprov)


def test_a_checkpoint_from_nodes_that_was_sent_gives_way_too(gpuprov, job, store, proxy):
    """The outputs of a failed job were refused, its checkpoint was not."""
    refusal = {"on": True}
    proxy.rule(lambda r: is_object(r) and "/runs/a/" in r.path and refusal["on"], xml_error(403, "AccessDenied"))
    spec = job("mkdir -p ckpt out; echo from $(cat ckpt/n); echo 2 >ckpt/n; echo $(cat ckpt/n) >out/o; [ -e ckpt/go ]",
               more=CHECKPOINT)
    store.put("state/n", "1\n")
    gpuprov("run", "--json", spec, code=9, env=store.env)
    assert store.read("state/n") == b"2\n" and folder_of(gpuprov, "s3://results/state").is_dir()
    assert not mark_of(gpuprov).exists()
    refusal["on"] = False
    store.put("state/n", "50\n")
    store.put("state/go", "")
    result = gpuprov("run", "--json", spec, env=store.env)
    assert lines_of(result) == ["from 50"] and store.read("runs/a/o") == b"2\n"
    assert not staged(gpuprov)


@pytest.mark.long
def test_the_region_of_the_bucket_is_followed(gpuprov, job, store, proxy):
    def elsewhere(r):
        return "/eu-west-3/s3/" not in r.headers.get("Authorization", "")

    proxy.rule(elsewhere, xml_error(301, "PermanentRedirect", [("x-amz-bucket-region", "eu-west-3")]))
    gpuprov("run", job("mkdir out; echo 1 >out/one"), env=store.env)
    assert sorted(store.objects()) == ["runs/a/one"]


def test_refused_at_the_end_and_another_place_in_the_spec(gpuprov, job, store, proxy):
    """The natural answer to a refusal: the results must not count as sent."""
    refusal = {"on": True}
    proxy.rule(lambda r: is_object(r) and refusal["on"], xml_error(403, "AccessDenied"))
    spec = job("mkdir -p out; echo precious >out/a")
    first = gpuprov("run", spec, code=5, env=store.env)
    assert "is in s3://" not in first.err, "it is not"
    refusal["on"] = False
    spec.write_text(spec.read_text().replace("results/runs/a", "results/runs/b"))
    second = gpuprov("run", spec, code=1, env=store.env)
    folder = next(p.parent for p in staged(gpuprov) if p.name == "a")
    assert f"'{folder}'" in second.err and "s3://results/runs/a" in second.err
    nothing_runs(gpuprov)
    spec.write_text(spec.read_text().replace("results/runs/b", "results/runs/a"))

    # a job of another definition would write over them
    refusal["on"] = True
    other = ("run", spec, "--", "sh", "-c", "mkdir -p out; echo other >out/b")
    third = gpuprov(*other, code=5, env=store.env)
    assert "no job begins before the files of job" in third.err and f"'{folder}'" in third.err
    nothing_runs(gpuprov)
    refusal["on"] = False
    gpuprov(*other, env=store.env)
    assert (store.read("runs/a/a"), store.read("runs/a/b")) == (b"precious\n", b"other\n") and not staged(gpuprov)


def test_what_a_bucket_cannot_keep_of_a_checkpoint_stays_here(gpuprov, job, store):
    """But for links to folders, whose files are sent under their own names."""
    script = "mkdir -p ckpt/step-1; echo 1 >ckpt/step-1/n; ln -sfn step-1 ckpt/newest"
    result = gpuprov("run", "--json", job(script, more=CHECKPOINT), env=store.env)
    assert any("a link to a folder cannot be kept" in e.get("text", "") for e in result.events) and not staged(gpuprov)

    spec = job(script + "; echo only >\"ckpt/$(printf 'x\\377')\"", more=CHECKPOINT)
    result = gpuprov("run", "--json", spec, env=store.env)
    assert sorted(store.objects()) == ["state/step-1/n"]
    kept, = {next(p for p in f.parents if ".kept-" in p.name) for f in staged(gpuprov)}
    assert [f.read_text() for f in kept.iterdir() if f.is_file() and not f.is_symlink()] == ["only\n"]
    warnings = [e["text"] for e in result.events if e.get("status") == "warn" and str(kept) in e["text"]]
    assert len(warnings) == 1 and "'s3://results/state'" in warnings[0]
    nothing_runs(gpuprov)
    again = gpuprov("run", "--json", job("ls ckpt", more=CHECKPOINT), env=store.env)
    assert [e["line"] for e in again.events if "line" in e] == ["step-1"] and kept.is_dir()


def test_what_a_bucket_cannot_keep_does_not_hide_what_was_not_fetched(gpuprov, job, store):
    spec = job("mkdir -p out/real; echo 1 >out/real/a; ln -s real out/newest; mkfifo out/pipe")
    first = gpuprov("run", spec, code=1, env=store.env)
    assert "its outputs are incomplete" in first.err and "'gpuprov down train' destroys them" in first.err
    assert gpuprov.json("status")["stacks"], "the only copy is on the nodes"


def test_what_a_bucket_cannot_keep_of_an_earlier_job_does_not_stop_the_next_one(gpuprov, job, store):
    spec = job("true")
    gpuprov("up", "--yes", spec)
    gpuprov("exec", spec, "--detach", "--", "sh", "-c", "mkdir -p out/real; echo 1 >out/real/a; ln -s real out/newest",
            env=store.env)
    gpuprov("attach", "train")
    for _ in range(2):
        again = gpuprov("exec", spec, "--json", "--", "sh", "-c",
                        "rm -f out/newest; mkdir -p out/real; echo 1 >out/real/a; echo 2 >out/b", env=store.env)
        warned = [e for e in again.events if "cannot be kept in a bucket, and stay in" in e.get("text", "")]
    assert not warned, "the second one has fetched it"
    assert (store.read("runs/a/real/a"), store.read("runs/a/b")) == (b"1\n", b"2\n")
    assert [p.name for p in staged(gpuprov)] == ["a"] and ".kept-" in str(staged(gpuprov)[0])
    assert next(gpuprov.state.rglob("newest")).is_symlink()
    before = gpuprov("status", "train").out
    gpuprov("attach", "train")
    assert "its files were fetched" in before and "its files were fetched" in gpuprov("status", "train").out
