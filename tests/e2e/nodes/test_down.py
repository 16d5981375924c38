# SPDX-License-Identifier: Apache-2.0
"""down and up beside each other: a spec of another stack, the question on a terminal, and runs that wait for
the lock of a stack that another run changes meanwhile."""
import fcntl
import os
import pty
import signal
import sqlite3
import threading

import pytest

from conftest import Result
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: try
nodes: {nodes}
offers: [{{provider: local}}]
limits: {{ttl: 20m}}
validate: {{time: 1m, require: [host.memory]}}
"""
OTHER = "name: try\noffers: [{provider: aws, regions: [us-east-1]}]\n"
# only local answers here
NO_CLOUD = ("--in", "local")


class Terminal:
    """A run whose stdin and stderr are a terminal; stdout is a pipe."""

    def __init__(self, gpuprov, *args):
        self.master, slave = pty.openpty()
        self.p = gpuprov.popen(*args, stdin=slave, stderr=slave)
        gpuprov.started.append(self.p)
        os.close(slave)
        self.text = ""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        while True:
            try:
                part = os.read(self.master, 4096)
            except OSError:  # the other side was closed
                return
            self.text += part.decode(errors="replace")

    def wait_for(self, text):
        wait_for(lambda: text in self.text or self.p.poll() is not None, found=lambda: self.text)
        assert text in self.text, self.text

    def type(self, text):
        os.write(self.master, text.encode())

    def end(self):
        out = self.p.communicate(timeout=120)[0]
        self.reader.join(timeout=10)
        return Result(self.p.args, self.p.returncode, out, self.text)


class Waiting:
    """A run that has printed that it waits for another one."""

    def __init__(self, gpuprov, *args):
        self.p = gpuprov.popen(*args)
        gpuprov.started.append(self.p)
        self.lines = []
        for line in self.p.stderr:
            self.lines.append(line)
            if "waiting for it" in line:
                return
        pytest.fail(f"it did not wait: {self.lines}")

    def end(self):
        out, err = self.p.communicate(timeout=120)
        return Result(self.p.args, self.p.returncode, out, "".join(self.lines) + err)


@pytest.fixture(autouse=True)
def ended(gpuprov):
    """What a failed test left would keep the lock."""
    gpuprov.started = []
    yield
    for p in gpuprov.started:
        p.kill()
        p.wait()


def ids(gpuprov):
    stacks = gpuprov.json("status", "try", *NO_CLOUD, code=None).get("stacks", [])
    return [n["id"] for s in stacks for n in s["nodes"] if n["state"] == "running"]


@pytest.fixture
def stack(gpuprov, spec):
    """Two local nodes named try, and the spec of another stack with that name."""
    path, other = spec(SPEC.format(nodes=2)), spec(OTHER, "aws.yaml")
    gpuprov("up", path)
    return path, other


def test_the_spec_of_another_stack(gpuprov, stack, spec):
    """It has the same name, and no offer where the stack is: without a terminal it is refused."""
    path, other = stack
    before = ids(gpuprov)
    assert len(before) == 2
    refused = gpuprov("down", other, *NO_CLOUD, code=1)
    assert "'try' is at local here (2 nodes), where " in refused.err and "aws.yaml has no offer" in refused.err
    assert "'gpuprov down try', or add --yes" in refused.err
    j = gpuprov("down", other, *NO_CLOUD, "--json", code=1).json
    assert j["error"]["code"] == "usage" and j["destroyed"] == 0 and j["gone"] is None
    assert ids(gpuprov) == before
    # what it would do is shown without a question, and changes nothing
    dry = gpuprov("down", other, "--dry-run", *NO_CLOUD, code=8)  # aws, which the spec names, was not looked at
    assert "would be destroyed" in dry.out and "no offer at local here (2 nodes)" in dry.out
    assert "looked at: local here" in dry.out and all(i in dry.out for i in before)
    j = gpuprov.json("down", path, "-n")
    assert j["dry_run"] is True and j["elsewhere"] is None
    assert sorted(r["id"] for r in j["would_be_destroyed"] if r["kind"] == "instance") == sorted(before)
    assert ids(gpuprov) == before
    # an edited spec of the same stack has offers where it is
    edited = spec(SPEC.format(nodes=1) + "bootstrap: {packages: [htop]}\n", "edited.yaml")
    assert "no offer" not in gpuprov("down", edited, "-n").out
    assert "nothing is left" in gpuprov("down", edited).out
    assert "nothing was found" in gpuprov("down", path, "-n").out
    # its report stays, and says what became of the stack
    kept = gpuprov.json("report", path)
    assert kept["ready"] is True and [n["id"] for n in kept["nodes"]] == before
    assert kept["outdated"].startswith("'try' was destroyed at 20")
    assert "outdated: 'try' was destroyed at" in gpuprov("report", "try").out
    history = gpuprov("report", "try", "--history").out
    assert "1 run from" in history and "host.memory" in history
    gpuprov("report", "try", "--owner", "somebody", code=1)


@pytest.mark.long
def test_yes_needs_no_terminal(gpuprov, stack):
    gpuprov("down", stack[1], "--yes", *NO_CLOUD, code=8)  # aws was not looked at
    assert ids(gpuprov) == []


@pytest.mark.long
def test_any_other_answer_is_no(gpuprov, stack):
    before = ids(gpuprov)
    for answer in ("n\n", "\n", "yess\n", "\x04"):
        t = Terminal(gpuprov, "down", stack[1], *NO_CLOUD)
        t.wait_for("Destroy it? [y/N] ")
        t.type(answer)
        r = t.end()
        assert r.code == 130 and "not confirmed: nothing was changed" in r.err and "fail" not in r.err, (answer, r)
        assert ids(gpuprov) == before, answer
    t = Terminal(gpuprov, "down", stack[1], *NO_CLOUD)
    t.wait_for("[y/N]")
    t.p.send_signal(signal.SIGINT)
    r = t.end()
    assert r.code == 130 and "not confirmed: nothing was changed" in r.err and "fail" not in r.err, r
    assert ids(gpuprov) == before


@pytest.mark.long
@pytest.mark.parametrize("told", [False, True])
def test_an_up_behind_a_down_launches_nothing(gpuprov, stack, told):
    """The down holds the lock while it asks, so the up waits for certain."""
    path, other = stack
    down = Terminal(gpuprov, "down", other, *NO_CLOUD)
    down.wait_for("[y/N]")
    up = Waiting(gpuprov, "up", path, *(["--even-if-changed"] if told else []))
    assert f"another gpuprov (pid {down.p.pid}) works on 'try': waiting for it (0.0s of 1h)" in up.lines[-1]
    down.type("YES\n")
    assert down.end().code == 8  # aws was not looked at
    r = up.end()
    if told:
        assert r.code == 0 and len(ids(gpuprov)) == 2, r
        return
    assert r.code == 1, r
    # in part, as far as is known: aws was not looked at
    assert f"'try' was destroyed, at least in part, by another gpuprov (pid {down.p.pid}) while this" in r.err
    assert ids(gpuprov) == [] and not list((gpuprov.state / "local").glob("*"))
    # nobody waits now
    assert gpuprov("up", path).code == 0


@pytest.mark.long
def test_an_up_behind_a_down_that_was_not_confirmed(gpuprov, stack):
    path, other = stack
    down = Terminal(gpuprov, "down", other, *NO_CLOUD)
    down.wait_for("[y/N]")
    up = Waiting(gpuprov, "up", path)
    down.type("n\n")
    assert down.end().code == 130
    r = up.end()
    assert r.code == 0 and "nothing to do" in r.out, r


class Held:
    """The test holds the stack's lock, as a gpuprov would."""

    def __init__(self, gpuprov, text):
        self.path = gpuprov.state / "locks" / "try@root"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(self.path, "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)
        self.says(text)

    def says(self, text):
        self.file.truncate(0)
        self.file.seek(0)
        self.file.write(text)
        self.file.flush()

    def release(self):
        self.path.unlink()
        self.file.close()


@pytest.mark.long
def test_an_up_behind_a_down_that_was_cut(gpuprov, stack):
    """Part of the stack may be gone: to continue it would launch that part again."""
    path, _ = stack
    held = Held(gpuprov, "4711")
    up = Waiting(gpuprov, "up", path)
    assert "(pid 4711) works on 'try'" in up.lines[-1]
    held.says("04711")
    for line in up.p.stderr:  # the next line, after 10 s, says what the run knows then
        up.lines.append(line)
        if "destroys 'try'" in line:
            break
    held.release()
    r = up.end()
    assert r.code == 1 and "'try' was destroyed, at least in part, by another gpuprov (pid 4711)" in r.err, r
    assert len(ids(gpuprov)) == 2


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("column, value, says", [
    ("spec_hash", "f" * 64, "'try' was changed to another spec by another gpuprov (pid 4711)"),
    ("expires_s", "expires_s", None)])
def test_an_up_behind_an_up(gpuprov, stack, spec, column, value, says):
    """Another spec was applied meanwhile: this one would undo it. Other changes are no conflict."""
    held = Held(gpuprov, "4711")
    up = Waiting(gpuprov, "up", spec(SPEC.format(nodes=1), "fewer.yaml"))
    with sqlite3.connect(gpuprov.state / "journal.db") as db:
        db.execute(f"UPDATE stacks SET {column}=" + ("expires_s" if says is None else f"'{value}'"))
    held.release()
    r = up.end()
    assert r.code == (1 if says else 0) and (says or "") in r.err, r
    assert len(ids(gpuprov)) == (2 if says else 1)


@pytest.mark.long
def test_two_ups_of_one_spec(gpuprov, spec):
    """The second one waits and finds nothing to do."""
    wait = "bootstrap: {steps: [{name: wait, run: 'until test -e /opt/go; do sleep 0.1; done'}]}\n"
    path = spec(SPEC.format(nodes=1) + wait)
    first = gpuprov.popen("up", path)
    gpuprov.started.append(first)
    for line in first.stderr:
        if "wait" in line and "bootstrap" in line:
            break
    second = Waiting(gpuprov, "up", path)
    for verb in ("down", "validate", "up"):
        target = path if verb == "up" else "try"
        r = gpuprov(verb, target, "--lock-timeout", "0s", code=1)
        assert f"'try': another gpuprov (pid {first.pid}) works on it: repeat this later" in r.err, r
        assert "--lock-timeout" in r.err
    r = gpuprov("down", "try", "--lock-timeout", "300ms", "--json", code=1)
    assert r.json["error"]["code"] == "busy" and r.json["error"]["retryable"] is True
    gpuprov("ssh", "try/0", "--", "touch /opt/go")
    assert first.communicate(timeout=120) and first.returncode == 0
    r = second.end()
    assert r.code == 0 and "nothing to do" in r.out, r


def test_ctrl_c_is_no_failure(gpuprov, spec):
    """130 is its exit code; nothing of the output or the log calls it a failure."""
    path = spec(SPEC.format(nodes=2) + "bootstrap: {steps: [{name: wait, run: sleep 1000}]}\n")
    up = gpuprov.popen("up", path, "--json")
    gpuprov.started.append(up)
    waiting = set()
    lines = []
    for line in up.stderr:
        lines.append(line)
        if '"step":"wait"' in line:
            waiting.add(line.split('"node":')[1][0])
        if waiting == {"0", "1"}:
            break
    up.send_signal(signal.SIGINT)
    out, err = up.communicate(timeout=120)
    r = Result(up.args, up.returncode, out, "".join(lines) + err)
    assert r.code == 130, r
    assert r.json["error"]["code"] == "cancelled", r
    assert "'try': stopped before all nodes were ready" in r.err and "fail" not in r.err, r
    assert "'gpuprov up' continues, 'gpuprov down try' destroys them" in r.err
    assert "fail" not in gpuprov("logs", "try").out


def test_lock_timeout_wants_a_unit(gpuprov):
    assert "a duration with its unit" in gpuprov("down", "try", "--lock-timeout", "5", code=1).err
