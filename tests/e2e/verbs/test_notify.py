# SPDX-License-Identifier: Apache-2.0
"""Notifications: receivers on loopback and commands, told by the program and by a driver that emits many events. The
signature is verified by the function that docs/notify.md prints."""
import datetime
import http.server
import json
import os
import pathlib
import re
import signal
import sqlite3
import ssl
import subprocess
import threading

import pytest

from test_up_plan import OnTerminal
from waiting import wait_for

DOC = pathlib.Path(__file__).parents[3] / "docs" / "notify.md"
KEY = "k3y-that-nobody-else-has"
PATH = "/services/T0KEN-of-the-hook"


def verified(*args, **kw):
    """The example of the page, as users copy it."""
    [code] = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.S)
    space = {}
    exec(code, space)
    return space["verified"](*args, **kw)


class Receiver:
    """An HTTP server that keeps what it gets. codes: the answers, the last one again and again; 0 never answers."""

    def __init__(self, codes=(204,), tls=None):
        self.got, self.codes, self.left, self.lock = [], list(codes), threading.Event(), threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with outer.lock:
                    code = outer.codes.pop(0) if len(outer.codes) > 1 else outer.codes[0]
                    outer.got.append((self.path, dict(self.headers), body, code))
                if code == 0:
                    outer.left.wait()
                    return
                self.send_response(code)
                if 300 <= code < 400:
                    self.send_header("Location", f"http://127.0.0.1:{outer.port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}{PATH}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.left.set()
        self.server.shutdown()
        self.server.server_close()

    def events(self):
        with self.lock:
            return [json.loads(body) for _, _, body, code in self.got if 200 <= code < 300]

    def kinds(self):
        return [e["kind"] for e in self.events()]


@pytest.fixture
def receiver():
    made = []

    def make(*args, **kw):
        made.append(Receiver(*args, **kw))
        return made[-1]
    yield make
    for r in made:
        r.close()


@pytest.fixture
def drive(gpuprov, spec):
    """drive(notify, count, *kinds): what the driver warns of. notify: the list, as JSON is YAML."""
    program = pathlib.Path(os.environ["B"]) / "tests/drivers/notify_driver"

    def start(notify, count, *kinds, env=None):
        path = spec("name: told\noffers: [{provider: local}]\nnotify: " + json.dumps(notify) + "\n")
        return subprocess.Popen([program, path, str(count), *kinds], env={**gpuprov.env, **(env or {})}, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(*args, code=0, **kw):
        p = start(*args, **kw)
        out, err = p.communicate(timeout=120)
        assert p.returncode == code, err
        assert out == "emitted\n"
        return err
    run.start = start
    return run


def no_secret_in(gpuprov, *texts):
    for text in texts:
        assert KEY not in text and "T0KEN" not in text, text
    for path in gpuprov.state.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert KEY.encode() not in data and b"T0KEN" not in data, path


# --- the program ---

SPEC = """\
name: told
offers: [{provider: local}]
limits: {ttl: 2h}
validate: {time: 1m, require: [host.memory]}
notify:
  - {url: env:HOOK, secret: env:HOOK_KEY}
  - {url: env:HOOK2, on: [gone]}
  - command: '{ printf "%%s " "$GPUPROV_EVENT"; cat; } >>%s'
job: {run: echo done}
"""


@pytest.mark.root
@pytest.mark.namespaces
def test_a_stack_from_up_to_down(gpuprov, spec, receiver, tmp_path):
    all_of, some = receiver(), receiver()
    log = tmp_path / "told"
    path = spec(SPEC % log)
    gpuprov.env.update(HOOK=all_of.url, HOOK2=some.url, HOOK_KEY=KEY, http_proxy="http://127.0.0.1:1")
    said = [gpuprov("up", path, "--trace=http")]
    assert all_of.kinds() == ["ready"]
    said.append(gpuprov("up", path))  # nothing to do: nothing to tell
    assert all_of.kinds() == ["ready"]
    said.append(gpuprov("exec", "told", "--", "exit 3", code=9))
    said.append(gpuprov("exec", "told", "--", "true"))
    jobs = [e for e in all_of.events() if e["kind"] == "job"]
    assert "the job failed" in jobs[0]["text"] and jobs[1]["text"].endswith("has succeeded") and len(jobs) == 2
    edited = spec(SPEC.replace("on: [gone]", "on: [gone, ready]") % log)
    assert "nothing to do" in gpuprov("plan", edited).out  # a receiver is no change of the nodes
    said.append(gpuprov("run", path))  # on the nodes that are there
    assert all_of.kinds() == ["ready", "job", "job", "job", "gone"] and some.kinds() == ["gone"]
    for got_path, headers, body, _ in all_of.got:
        event = json.loads(body)
        assert got_path == PATH and headers["Gpuprov-Event"] == event["kind"] and headers["Gpuprov-Delivery"] == event["id"]
        assert verified(headers["Gpuprov-Signature"], body, KEY.encode())
        assert not verified(headers["Gpuprov-Signature"], body + b" ", KEY.encode())
        assert not verified(headers["Gpuprov-Signature"], body, b"another key")
        assert not verified(headers["Gpuprov-Signature"], body, KEY.encode(), now=0)
        assert event["schema"] == "gpuprov-notify/v1" and event["stack"] == "told" and event["owner"] and event["node"] is None
        assert re.fullmatch("[0-9a-f]{16}", event["run"])
    assert len({e["id"] for e in all_of.events()}) == 5
    assert "Gpuprov-Signature" not in some.got[0][1]
    lines = log.read_text().splitlines()
    assert [line.split(" ", 1)[0] for line in lines] == all_of.kinds()
    assert [json.loads(line.split(" ", 1)[1])["id"] for line in lines] == [e["id"] for e in all_of.events()]
    no_secret_in(gpuprov, *[text for s in said for text in (s.out, s.err)], log.read_text())


def test_a_url_or_key_that_cannot_be_read(gpuprov, spec):
    path = spec(SPEC % os.devnull)
    said = gpuprov("up", path, code=1, env={"HOOK2": "http://evil.example/T0KEN", "HOOK_KEY": KEY}).err
    assert "spec.yaml:6:5: error: notify.url: the environment has no HOOK: set it" in said
    assert "spec.yaml:7:5: error: notify.url: the value of 'env:HOOK2' is not https" in said
    no_secret_in(gpuprov, said)
    said = gpuprov("check", spec("name: a\nnotify: [{url: '${env:HOOK}'}]\n"), code=1, env={"HOOK": "https://x/T0KEN"}).err
    assert "spec.yaml:2:16" in said and "write 'env:HOOK' without" in said
    no_secret_in(gpuprov, said)


@pytest.mark.root
@pytest.mark.namespaces
def test_a_failure_then_money_and_the_deadline_once(gpuprov, spec, receiver):
    """The stack's age and price are set in the journal, which both follow from."""
    r, moves = receiver(), receiver([500, 500, 500, 204])
    gpuprov.env.update(HOOK=r.url, HOOK2=moves.url)
    failed = gpuprov("up", spec("name: told\noffers: [{provider: local}]\nlimits: {ttl: 2h, max_cost: 100 USD}\n"
                                "bootstrap: {steps: [{name: bad, run: exit 7}]}\n"
                                "notify: [{url: env:HOOK2, on: [spent, deadline]}, {url: env:HOOK}]\n"), code=6)
    [event] = r.events()
    assert event["kind"] == "failed" and "told/0" in event["text"] and "bad" in event["text"] and moves.got == []
    assert "was not delivered" not in failed.err
    now = int(datetime.datetime.now(datetime.timezone.utc).timestamp())
    with sqlite3.connect(gpuprov.state / "journal.db") as db:
        db.execute("UPDATE stacks SET created_s = ?, expires_s = ?", (now - 7200, now + 600))
        db.execute("UPDATE resources SET price_usd_per_h = 45, created_s = ?", (now - 7200,))
    first = gpuprov("gc", "local")
    assert "notify[0]: 'deadline' was not delivered" in first.err and "answered 500 (3 tries)" in first.err
    assert "notify[0]: 'deadline' was not delivered" in gpuprov("logs", "told").out
    gpuprov("gc", "local")  # what was not delivered is tried again: the same event, with the same id
    told = moves.events()
    assert sorted(e["kind"] for e in told) == ["deadline", "spent"]
    texts = " ".join(e["text"] for e in told)
    assert "'gpuprov extend told TIME'" in texts and "90.0" in texts and "90 % of limits.max_cost 100 USD" in texts
    assert len({json.loads(b)["id"] for _, _, b, _ in moves.got}) == 2
    gpuprov("gc", "local")
    assert len(moves.events()) == 2
    with sqlite3.connect(gpuprov.state / "journal.db") as db:
        db.execute("UPDATE stacks SET expires_s = ?", (now + 700,))  # another deadline
    gpuprov("gc", "local")
    assert [e["kind"] for e in moves.events()[2:]] == ["deadline"] and len({e["id"] for e in moves.events()}) == 3
    assert r.kinds()[1:] in (["deadline", "spent", "deadline"], ["spent", "deadline", "deadline"])
    # something at a cloud that this machine cannot query; `down` by name takes the receivers of the journal
    with sqlite3.connect(gpuprov.state / "journal.db") as db:
        names = [row[1] for row in db.execute("PRAGMA table_info(resources)")]
        other = {"provider": "'aws'", "id": "'i-0123456789abcdef0'", "region": "'us-east-1'", "billed": "1", "slot": "1"}
        db.execute("INSERT INTO resources SELECT %s FROM resources WHERE slot = 0" % ", ".join(other.get(n, n) for n in names))
    gpuprov("down", "told", code=8)
    leaked = r.events()[-1]
    assert leaked["kind"] == "leaked" and "i-0123456789abcdef0" in leaked["text"] and "gone" not in r.kinds()
    with sqlite3.connect(gpuprov.state / "journal.db") as db:
        db.execute("DELETE FROM resources WHERE provider = 'aws'")
        db.execute("UPDATE stacks SET expires_s = ?", (now - 5,))
    gpuprov("gc", "local")  # its deadline has passed
    assert r.kinds()[-1] == "gone" and "its deadline has passed" in r.events()[-1]["text"] and len(moves.events()) == 3
    no_secret_in(gpuprov, first.err)


# --- receivers on bad days ---

def test_retries_and_what_is_not_retried(drive, receiver):
    heals, refuses, moves = receiver([500, 503, 200]), receiver([404]), receiver([302])
    said = drive([{"url": r.url} for r in (heals, refuses, moves)], 1, "failed")
    assert [code for *_, code in heals.got] == [500, 503, 200] and len({b for _, _, b, _ in heals.got}) == 1
    assert len(refuses.got) == 1 and [path for path, *_ in moves.got] == [PATH]
    assert f"notify[1]: 'failed' was not delivered: 127.0.0.1:{refuses.port} answered 404 (1 try)" in said
    assert "notify[2]" in said and "redirects are not followed" in said
    assert "notify[0]" not in said and "T0KEN" not in said


def test_one_that_hangs_delays_neither_the_run_nor_the_other(drive, receiver):
    hangs, sound = receiver([0]), receiver()
    p = drive.start([{"url": hangs.url}, {"url": sound.url}], 20, "failed")
    wait_for(lambda: len(sound.events()) == 20)  # while the other one hangs
    wait_for(lambda: hangs.got)
    assert p.poll() is None
    p.send_signal(signal.SIGINT)  # ends the wait
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and out.startswith("emitted\n")
    assert "notify[0]: 20 events were not delivered before the end of this run" in err
    assert "T0KEN" not in err


def test_one_that_is_away_is_one_warning(drive, receiver):
    away = receiver()
    away.close()
    err = drive([{"url": away.url}], 2, "failed")
    assert err.count("notify[0]: 'failed' was not delivered: 127.0.0.1:") == 1 and "does not answer" in err
    assert len(err.splitlines()) == 1 and "T0KEN" not in err


def test_the_end_of_a_verb_does_not_wait_for_ever(drive, receiver):
    hangs = receiver([0])
    err = drive([{"url": hangs.url}], 1, "failed")
    assert "notify[0]: 1 event was not delivered before the end of this run" in err


def test_ten_thousand_events(drive, receiver):
    """A flood of one kind is bounded, and takes no place from the others."""
    slow = receiver([0, 204])
    p = drive.start([{"url": slow.url}], 10000, "unhealthy")
    assert p.stdout.readline() == "emitted\n"
    slow.left.set()
    _, err = p.communicate(timeout=120)
    assert p.returncode == 0
    dropped = int(re.search(r"notify\[0\]: (\d+) events were dropped, because 256 were waiting already", err)[1])
    assert dropped + len({e["id"] for e in slow.events()}) + 1 >= 10000 - 1 and err.count("dropped") == 1
    assert json.loads(slow.got[-1][2])["text"] == "unhealthy: event 9999"


def test_a_flood_leaves_the_other_kinds(drive, receiver):
    slow = receiver([0, 204])
    p = drive.start([{"url": slow.url, "on": ["failed", "unhealthy"]}], 1, *["failed", "preempted"], *["unhealthy"] * 600)
    assert p.stdout.readline() == "emitted\n"
    slow.left.set()
    p.communicate(timeout=120)
    kinds = [json.loads(b)["kind"] for _, _, b, _ in slow.got]
    assert "failed" in kinds and "preempted" not in kinds and kinds.count("unhealthy") >= 200


def test_a_certificate_that_nobody_trusts(drive, receiver, tmp_path):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                    tmp_path / "k.pem", "-out", tmp_path / "c.pem", "-subj", "/CN=127.0.0.1", "-addext",
                    "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "c.pem", tmp_path / "k.pem")
    r = receiver(tls=tls)
    said = drive([{"url": r.url}], 1, "failed")
    assert r.got == [] and "no trusted TLS connection" in said and "T0KEN" not in said


# --- commands ---

def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def processes_with(text):
    return [p.name for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and text in command_line(p.name)]


def test_a_command_that_floods_and_one_that_hangs(drive, tmp_path, receiver):
    pid, sound = tmp_path / "pid", receiver()
    seconds = f"4711.{os.getpid()}"  # another run on this machine may have one of its own
    hang = f"cat >/dev/null; echo $$ >{pid}; sleep {seconds} & wait"
    p = drive.start([{"command": "yes; exit 0"}, {"command": hang}, {"url": sound.url},
                     {"command": "head -c 3 | grep -q . && exit 5"}], 1, "failed")
    wait_for(lambda: pid.exists() and pid.read_text().endswith("\n") and sound.events())
    # its text is in no argument, and it has a process group of its own
    assert command_line(pid.read_text().strip()) == b"sh\0/proc/self/fd/3\0"
    wait_for(lambda: processes_with(seconds.encode()))
    assert os.getpgid(int(pid.read_text())) == int(pid.read_text())
    said = p.stderr.readline()
    while "notify[3]" not in said.splitlines()[-1]:
        said += p.stderr.readline()
    p.send_signal(signal.SIGINT)
    err = said + p.stderr.read()
    p.communicate(timeout=60)
    assert p.returncode == 0 and not processes_with(seconds.encode())
    assert "notify[3]: 'failed' was not delivered: the command ended with status 5" in err
    assert "notify[1]: 1 event was not delivered before the end of this run" in err


def test_no_command_of_a_spec_runs_before_a_person_agreed(gpuprov, spec, tmp_path):
    """A spec of somebody else must not run anything here by failing before the question."""
    out = tmp_path / "out"
    path = spec(f"name: told\noffers: [{{provider: local}}]\ngpu: H100:8\nnotify: [{{command: 'cat >>{out}'}}]\n")
    for verb in ("up", "run"):
        t = OnTerminal(gpuprov, verb, path, *(["--", "true"] if verb == "run" else []))
        assert t.end() not in (0, 130) and "[y/N]" not in t.seen and not out.exists()
    gpuprov("up", path, code=None)  # a script has no person to ask
    assert json.loads(out.read_text())["kind"] == "failed"
    ask = OnTerminal(gpuprov, "up", spec("name: told\noffers: [{provider: local}]\nnotify: [{command: 'cat >>x'}]\n"))
    ask.wait_for("[y/N]")
    assert "note: notify[0] runs on this machine: cat >>x" in ask.seen
    ask.answer("n\n")
    assert ask.end() == 130


WITHOUT_A_PLAN = {"down": [], "validate": [], "exec": ["--", "true"], "extend": ["1h"]}


@pytest.mark.parametrize("verb", WITHOUT_A_PLAN)
@pytest.mark.parametrize("terminal", [False, True])
def test_a_verb_without_a_plan_runs_no_command_of_an_unknown_stack(gpuprov, spec, tmp_path, verb, terminal):
    """The journal has no launch of it, so nobody has approved its commands."""
    out = tmp_path / "out"
    path = spec(f"name: evil\noffers: [{{provider: local}}]\nnotify: [{{command: 'cat >>{out}; : ${{env:SECRET}}'}}]\n")
    gpuprov.env["SECRET"] = KEY
    args = [verb, path, *WITHOUT_A_PLAN[verb]]
    if terminal:
        t = OnTerminal(gpuprov, *args)
        t.end()
        said = t.seen + t.out
    else:
        r = gpuprov(*args, code=None)
        said = r.out + r.err
    assert not out.exists(), said
    if verb == "exec":  # the others find no stack before there is an event
        assert said.count("commands that are not run") == 1 and f"notify[0] (cat >>{out}; : ${{env:SECRET}})" in said, said
        assert "'gpuprov up SPEC' shows and approves them" in said
    assert KEY not in said


@pytest.mark.root
@pytest.mark.namespaces
def test_a_folder_that_is_refused_runs_no_command(gpuprov, spec, tmp_path):
    """The stack's deadline is near by the new spec's time, so that planning it would tell that at once."""
    out, folder = tmp_path / "out", tmp_path / "unit"
    gpuprov("up", spec("name: near\noffers: [{provider: local}]\nlimits: {ttl: 20m}\nvalidate: {time: 1m}\n"))
    folder.mkdir()
    (folder / "near.yaml").write_text("name: near\noffers: [{provider: local}]\nlimits: {ttl: 48h}\n"
                                      f"validate: {{time: 1m}}\nnotify: [{{command: 'cat >>{out}'}}]\n")
    t = OnTerminal(gpuprov, "up", folder)
    t.wait_for("[y/N]")
    t.answer("n\n")
    assert t.end() == 130 and not out.exists(), t.seen
    gpuprov("down", "near")


@pytest.mark.root
@pytest.mark.namespaces
def test_a_verb_without_a_plan_runs_the_commands_of_the_launch(gpuprov, spec, receiver, tmp_path):
    mine, other, hook = tmp_path / "mine", tmp_path / "other", receiver()
    text = SPEC.split("notify:")[0] + "job: {run: echo done}\nnotify:\n  - {url: env:HOOK}\n"
    gpuprov.env["HOOK"] = hook.url
    launched = spec(text + f"  - command: 'cat >>{mine}'\n")
    gpuprov("up", launched)
    assert hook.kinds() == ["ready"]
    changed = spec(text + f"  - command: 'cat >>{other}'\n  - command: 'cat >>{mine}'\n", "changed.yaml")
    staged = spec("bootstrap: {steps: [{name: one, run: 'true'}]}\n" + changed.read_text(), "staged.yaml")
    said = gpuprov("bootstrap", staged).err  # it shows no plan, so the journal does not get the commands
    assert "keeps its earlier spec, because only 'gpuprov up' shows and approves a command of 'notify'" in said
    t = OnTerminal(gpuprov, "up", changed)  # there is nothing to do, but its command would run
    t.wait_for("[y/N]")
    assert f"runs on this machine: cat >>{other}" in t.seen, t.seen
    t.answer("n\n")
    assert t.end() == 130 and not other.exists(), t.seen
    told = len(mine.read_text().splitlines())
    for verb, args in (("validate", []), ("exec", ["--", "true"]), ("extend", ["3h"]), ("down", [])):
        for terminal in ([False] if verb == "down" else [True, False]):
            if terminal:
                t = OnTerminal(gpuprov, verb, changed, *args)
                assert t.end() == 0, t.seen
                said = t.seen
            else:
                said = gpuprov(verb, changed, *args).err
            told += verb != "extend"
            # extend takes the journal's spec
            assert said.count("commands that are not run") == (verb != "extend"), said
            assert verb == "extend" or (f"notify[1] (cat >>{other}); " in said and "notify[2] (" not in said)
            assert len(mine.read_text().splitlines()) == told == len(hook.events()), (verb, terminal)
    gpuprov("up", launched)
    told += 1
    for file in gpuprov.state.glob("journal.db*"):
        file.unlink()
    for verb, code in (("validate", None), ("down", 0)):  # found by its tags: the journal has no launch
        said = gpuprov(verb, changed, code=code).err
        assert said.count("commands that are not run") == 1 and "notify[1] (" in said and "notify[2] (" in said, said
    assert not other.exists() and hook.kinds()[-1] == "gone"
    assert len(mine.read_text().splitlines()) == told
    assert [json.loads(line)["id"] for line in mine.read_text().splitlines()] == [e["id"] for e in hook.events()][:told]


def test_the_environment_of_a_command(drive, tmp_path):
    out = tmp_path / "env"
    drive([{"command": f"a=$(readlink /proc/$$/fd/2); env >{out}; echo stderr=$a >>{out}"},
           {"url": "http://127.0.0.1:1/T0KEN", "secret": "env:HOOK_KEY", "on": ["gone"]}], 1, "unhealthy",
          env={"HOOK_KEY": KEY, "GPUPROV_EVENT": "mine"})
    text = out.read_text()
    assert "GPUPROV_EVENT=unhealthy\n" in text and "GPUPROV_EVENT=mine" not in text
    assert text.count("T0KEN") == 0 and text.count(KEY) == 1  # as the user's shell has it
    assert "stderr=/dev/null\n" in text


def test_killed_while_it_sends(drive, receiver, gpuprov):
    """Nothing is left behind that disturbs the next one."""
    hangs = receiver([0])
    p = drive.start([{"url": hangs.url, "secret": "env:HOOK_KEY"}], 5, "failed", env={"HOOK_KEY": KEY})
    wait_for(lambda: hangs.got)
    p.kill()
    p.communicate()
    sound = receiver()
    err = drive([{"url": sound.url, "secret": "env:HOOK_KEY"}], 2, "gone", env={"HOOK_KEY": KEY})
    assert sound.kinds() == ["gone", "gone"] and err == ""
    no_secret_in(gpuprov, err)
