# SPDX-License-Identifier: Apache-2.0
"""What `up` shows and asks before it changes anything, the default spec, and the secrets that `check` reads."""
import os
import pty
import select
import time

import pytest

from waiting import wait_for

SPEC = "name: ask\nnodes: 1\noffers: [{provider: local}]\nlimits: {ttl: 20m}\nvalidate: {time: 1m}\n"


class OnTerminal:
    """gpuprov with stdin and stderr on a terminal; stdout is a pipe."""

    def __init__(self, gpuprov, *args):
        self.master, slave = pty.openpty()
        self.p = gpuprov.popen(*args, stdin=slave, stderr=slave)
        os.close(slave)
        self.seen = ""

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            try:
                got = os.read(self.master, 4096).decode(errors="replace")
            except OSError:  # the other end is closed
                return self.seen
            if not got:
                return self.seen
            self.seen += got
        return self.seen

    def wait_for(self, text):
        wait_for(lambda: text in self.read(), 60, lambda: self.seen)

    def answer(self, text):
        os.write(self.master, text.encode())

    def end(self):
        deadline = time.monotonic() + 120
        while self.p.poll() is None and time.monotonic() < deadline:  # a full terminal would block it
            self.read()
            time.sleep(0.05)
        self.read()
        self.out = self.p.stdout.read()
        self.p.stdout.close()
        os.close(self.master)
        return self.p.returncode


@pytest.mark.parametrize("answer", ["\n", "n\n", "yep\n", "\x04"])
def test_without_a_yes_nothing_happens(gpuprov, spec, answer):
    t = OnTerminal(gpuprov, "up", spec(SPEC))
    t.wait_for("[y/N]")
    for shown in ("+ create 1 x local (missing)", "ask: 1 node, free, deadline after 20m"):
        assert shown in t.seen
    t.answer(answer)
    assert t.end() == 130
    assert "nothing was changed" in t.seen and "failed" not in t.seen.lower(), t.seen
    assert not list((gpuprov.state / "local").glob("ask*")) if (gpuprov.state / "local").exists() else True
    assert gpuprov.json("status")["stacks"] == []


def test_ctrl_c_at_the_question(gpuprov, spec):
    t = OnTerminal(gpuprov, "up", spec(SPEC))
    t.wait_for("[y/N]")
    t.p.send_signal(2)
    assert t.end() == 130
    assert "not confirmed: nothing was changed" in t.seen and "failed" not in t.seen.lower(), t.seen
    assert gpuprov.json("status")["stacks"] == []


@pytest.mark.long
@pytest.mark.root
@pytest.mark.namespaces
def test_yes_goes_on(gpuprov, spec):
    path = spec(SPEC)
    t = OnTerminal(gpuprov, "up", path)
    t.wait_for("[y/N]")
    t.answer("y\n")
    assert t.end() == 0 and "READY" in t.out
    again = OnTerminal(gpuprov, "up", path)  # nothing changes, so nothing is asked
    assert again.end() == 0 and "[y/N]" not in again.seen
    strict = spec(SPEC.replace("1m}", "1m, strict: true}"))
    quiet = OnTerminal(gpuprov, "up", "--quiet", strict)  # the question is no progress
    quiet.wait_for("[y/N]")
    assert "validate.strict: false -> true" in quiet.seen
    quiet.answer("n\n")
    assert quiet.end() == 130
    skipped = OnTerminal(gpuprov, "up", "-y", strict)
    assert skipped.end() in (0, 7) and "[y/N]" not in skipped.seen and "validate.strict" in skipped.seen
    gpuprov("down", "ask")


def test_json_on_a_terminal_needs_yes(gpuprov, spec):
    t = OnTerminal(gpuprov, "up", "--json", spec(SPEC))
    assert t.end() == 1
    assert "add --yes" in t.out and gpuprov.json("status")["stacks"] == []


@pytest.mark.root
@pytest.mark.namespaces
def test_without_a_terminal_the_plan_is_printed(gpuprov, spec):
    r = gpuprov("up", spec(SPEC))
    assert r.err.index("+ create 1 x local") < r.err.index("ask/0 ") and "[y/N]" not in r.err
    j = gpuprov.json("up", spec(SPEC.replace("20m", "40m")))
    changed = j["plan"]["spec_changes"]
    assert changed == [{"key": "limits.ttl", "old": "20m", "new": "40m", "effect": "deadline"}]
    assert j["nothing_to_do"] is True and j["plan"]["expires"] == j["stack"]["expires"]
    gpuprov("down", "ask")


# --- the default spec, and standard input ---

def test_the_default_spec(gpuprov, tmp_path):
    r = gpuprov("check", cwd=tmp_path, code=1)
    assert "no SPEC was given" in r.err and "gpuprov.yaml" in r.err and "gpuprov init" in r.err
    (tmp_path / "gpuprov.yaml").write_text(SPEC)
    assert "gpuprov.yaml: ok: stack 'ask'" in gpuprov("check", cwd=tmp_path).out
    assert "1 x local" in gpuprov("plan", cwd=tmp_path, code=2).out


def piped(gpuprov, *args, text):
    read, write = os.pipe()
    os.write(write, text.encode())
    os.close(write)
    p = gpuprov.popen(*args, stdin=read)
    os.close(read)
    out, err = p.communicate(timeout=60)
    return p.returncode, out, err


def test_a_spec_on_standard_input(gpuprov):
    code, out, _ = piped(gpuprov, "check", "-", text=SPEC)
    assert code == 0 and "stdin: ok: stack 'ask'" in out
    code, out, _ = piped(gpuprov, "plan", "-", text=SPEC)
    assert code == 2 and "1 x local" in out
    code, _, err = piped(gpuprov, "check", "-", text="name: ask\nnodse: 2\n")
    assert code == 1 and "stdin:2:1: " in err and "nodse: 2\n" in err and "^" in err  # the line itself too


# --- secrets ---

def test_check_reads_the_secrets(gpuprov, spec, tmp_path):
    token = tmp_path / "token"
    path = spec(SPEC + f"secrets:\n  - {{env: A, from: env:GP_TEST_A}}\n  - {{env: B, from: 'file:{token}'}}\n")
    r = gpuprov("check", path, code=1)
    assert f"{path}:7:" in r.err and f"{path}:8:" in r.err and "^" in r.err  # both at once
    assert "GP_TEST_A" in r.err and "token" in r.err
    problems = gpuprov("check", path, "--json", code=1).json["error"]["problems"]
    assert [p["line"] for p in problems] == [7, 8]
    gpuprov("plan", path, code=1)
    token.write_text("hunter2\n")
    good = gpuprov("check", path, env={"GP_TEST_A": "swordfish"})
    assert "ok" in good.out and not any(s in good.out + good.err for s in ("hunter2", "swordfish"))


# --- limits ---

@pytest.mark.parametrize("limits, why", [
    ("max_price: 60", "write 60 USD/h"),
    ("max_price: 60 EUR/h", "such as 60 USD/h"),
    ("max_price: 60 USD", "such as 60 USD/h"),
    ("max_cost: 1e3 USD", "such as 500 USD"),
    ("max_cost: 0 USD", "must be from 0.000001 USD"),
    ("max_cost: 5.0000001 USD", "such as 500 USD"),
])
def test_wrong_limits_are_refused(gpuprov, spec, limits, why):
    r = gpuprov("check", spec(SPEC.replace("ttl: 20m", limits)), code=1)
    assert why in r.err and "^" in r.err


def test_limits_do_not_refuse_what_is_free(gpuprov, spec):
    path = spec(SPEC.replace("ttl: 20m", "max_price: 0.01 USD/h, max_cost: 0.01USD"))
    plan = gpuprov.json("plan", path, code=2)
    assert plan["max_usd"] == 0 and plan["price_usd_per_h"] == 0


@pytest.mark.parametrize("line, code, said", [
    ("access: {key: nope}", 5, "access.key '"),
    ("validate: {time: 1m, baseline: nope.json}", 1, "the baseline is missing"),
    ("validate: {time: 1m, require: [gpu.stress]}", 1, "validate.require: gpu.stress cannot run: the spec has no gpu"),
    ("validate: {time: 1m, require: [nccl.values]}", 1, "validate.require: nccl.values cannot run"),
    ("offers: [{provider: ssh, hosts: fleet.yaml}]", 1, "fleet.yaml:1:1: unknown key 'host'")])
def test_check_and_plan_refuse_what_up_refuses_at_once(gpuprov, spec, tmp_path, line, code, said):
    (tmp_path / "fleet.yaml").write_text("host: [10.0.0.1]\n")
    path = spec("name: ref\n" + line + "\n")
    for verb in ("check", "plan", "up"):
        r = gpuprov(verb, path, code=code)
        assert said in r.err and "create" not in r.err, r
    assert gpuprov.json("status", "--in", "local")["stacks"] == []  # no claim either
