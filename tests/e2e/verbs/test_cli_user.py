# SPDX-License-Identifier: Apache-2.0
"""What a user of terraform, ssh or kubectl tries at the command line besides the happy path."""
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import sqlite3
import struct
import subprocess
import termios
import threading

import pytest
from test_cli import VERBS

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOOD = "name: try\noffers: [{provider: local}]\n"


@pytest.mark.parametrize("verb", VERBS)
def test_help_as_json(gpuprov, verb):
    page = gpuprov.json("help", verb)
    assert [v["name"] for v in page["verbs"]] == [verb]
    assert {"json", "quiet", "log"} <= {o["name"] for o in page["options"]}
    if verb != "help":
        assert gpuprov.json(verb, "--help") == page


def test_every_verb_in_the_json_help(gpuprov):
    assert {v["name"] for v in gpuprov.json("help")["verbs"]} == set(VERBS)


@pytest.mark.parametrize("args, key", [
    (["init", "-"], "spec"), (["completion", "bash"], "script"), (["completion", "fish"], "script"),
    (["schema", "--markdown"], "markdown"), (["checks", "--markdown"], "markdown"),
    (["schema"], "$schema"), (["providers", "aws", "--policy", "--owner", "me"], "Statement"),
])
def test_json_of_texts(gpuprov, args, key):
    assert key in gpuprov.json(*args)
    if key in ("spec", "script", "markdown"):
        assert gpuprov.json(*args)[key].strip() == gpuprov(*args).out.strip()


def test_starters_and_examples_have_names_of_their_own(gpuprov):
    """`down` of one must not find the stack of another one."""
    providers = [p["name"] for p in gpuprov.json("providers")["providers"]]
    names = [gpuprov("init", "-", "-p", p).out.split("\nname: ")[1].split()[0] for p in providers]
    assert names == [f"try-{p}" for p in providers]
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        names += [line.split()[1] for line in path.read_text().splitlines() if line.startswith("name: ")]
    assert len(names) == len(set(names)) >= 7, names


def test_init_for_machines_that_exist(gpuprov, tmp_path):
    r = gpuprov("init", "--provider", "ssh", "fleet.yaml", cwd=tmp_path)
    assert "hosts.yaml" in r.out and (tmp_path / "hosts.yaml").exists()
    gpuprov("check", "fleet.yaml", cwd=tmp_path)
    (tmp_path / "hosts.yaml").write_text("mine")
    again = json.loads(gpuprov("init", "-p", "ssh", "b.yaml", "--json", cwd=tmp_path).out)
    assert again == {"written": "b.yaml", "hosts": None}
    assert (tmp_path / "hosts.yaml").read_text() == "mine"


def test_a_node_where_a_stack_is_wanted(gpuprov):
    for verb in ("down", "status", "report", "validate"):
        r = gpuprov(verb, "llm/1", code=1)
        assert f"'llm/1' is one node: {verb} takes a whole stack, 'llm'" in r.err and r.out == ""


def test_status_of_a_slip_is_an_error(gpuprov, spec):
    r = gpuprov("status", "nothere", "--in", "local", "--json", code=1, timeout=300)
    assert r.json["error"]["code"] == "not-found" and "nothere" in r.err
    # nothing is remembered of it
    assert "no log of" in gpuprov("logs", "nothere", code=1).err
    # a spec's stack may not be there yet
    gpuprov("status", spec(GOOD), timeout=300)


def test_a_spec_from_a_slow_pipe(gpuprov):
    read, write = os.pipe()
    p = gpuprov.popen("check", "/dev/stdin", stdin=read)
    os.close(read)

    def feed():
        # the second half comes when the program has surely met the empty pipe, or later: both must do
        os.write(write, GOOD[:8].encode())
        wchan = f"/proc/{p.pid}/stat"
        while open(wchan).read().rsplit(")", 1)[1].split()[0] == "R":
            pass
        os.write(write, GOOD[8:].encode())
        os.close(write)
    threading.Thread(target=feed).start()
    out, err = p.communicate(timeout=120)
    assert p.returncode == 0, err
    assert "stack 'try'" in out


def test_a_spec_from_a_named_pipe_whose_writer_comes_later(gpuprov, tmp_path):
    fifo = tmp_path / "spec"
    os.mkfifo(fifo)
    p = gpuprov.popen("check", fifo)

    write = None
    while write is None and p.poll() is None:  # ENXIO: gpuprov has not opened it yet
        with contextlib.suppress(OSError):
            write = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    assert write is not None, p.communicate()
    os.write(write, GOOD.encode())
    os.close(write)
    out, err = p.communicate(timeout=120)
    assert p.returncode == 0, err
    assert "stack 'try'" in out


def test_nothing_of_a_broken_spec_steers_the_terminal(gpuprov, tmp_path):
    path = tmp_path / "bin.yaml"
    path.write_bytes(b"a: \x00\xff\xc3\x9b\x1b[31m\xc2\x9b\xe4\xb8\xad\x80\n")
    p = gpuprov.popen("check", path)
    err = p.stderr.buffer.read()
    p.communicate()
    text = err.decode()  # strict: UTF-8 all the way
    assert p.returncode == 1 and not any((ord(c) < 0x20 and c != "\n") or 0x7f <= ord(c) < 0xa0
                                         for c in text)


def test_big_and_odd_specs_are_one_line(gpuprov, tmp_path):
    big = tmp_path / "big.yaml"
    big.write_text("# " + "x" * 10_000_000 + "\n")
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    (tmp_path / "dir.yaml").mkdir()
    for path in (big, loop, tmp_path / "dir.yaml", "/dev/zero"):
        r = gpuprov("check", path, code=1)
        assert len(r.err.splitlines()) == 1 and str(path) in r.err
        assert path not in (big, "/dev/zero") or f"is larger than {1 << 20} bytes" in r.err  # docs/spec.md: 1 MiB


@pytest.mark.parametrize("fd", [0, 1, 2])
def test_a_closed_descriptor_is_no_other_file(gpuprov, fd, tmp_path):
    """With fd 2 closed the journal or a socket would take its place and hear the progress."""
    argv = [str(gpuprov.program), "gc", "local"]
    p = subprocess.Popen(["sh", "-c", f'exec "$@" {fd}{"<" if fd == 0 else ">"}&-', "sh", *argv],
                         env=gpuprov.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = p.communicate(timeout=300)
    assert p.returncode == (1 if fd == 1 else 0), err
    if fd == 1:
        assert "could not write the " in err and "result to stdout" in err
    else:
        assert out == "gc: 0 destroyed, 0 within their deadline\nlooked at: local here (owner root)\n"
    assert gpuprov("status", "--offline").out.startswith("the journal has no stacks")


def test_state_folders_that_cannot_be_used(gpuprov, tmp_path):
    plain = tmp_path / "file"
    plain.write_text("mine")
    r = gpuprov("status", code=1, env={"GPUPROV_STATE_DIR": str(plain)})
    assert str(plain) in r.err and "Not a directory" in r.err and plain.read_text() == "mine"
    r = gpuprov("status", env={"GPUPROV_STATE_DIR": "", "HOME": str(tmp_path)})
    assert (tmp_path / ".local/state/gpuprov").is_dir()


@pytest.mark.parametrize("args", [["\udcff"], ["down", "\udcffx"], ["check", "/no\udcff.yaml"],
                                  ["up", "/no/" + "\u4e2d" * 300 + ".yaml"],
                                  ["up", "/no/x" + "\u4e2d" * 300 + ".yaml"]])
def test_names_that_are_no_utf8_keep_json_whole(gpuprov, args):
    r = gpuprov(*args, "--json", code=1)
    assert r.json["error"]["code"] in ("usage", "not-found", "io") and r.json["error"]["message"] in r.err


def test_odd_file_names_in_results(gpuprov, tmp_path):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff\xc2\x9b31m.yaml")
    assert gpuprov.json("init", odd)["written"] == f"{tmp_path}/odd??31m.yaml"
    assert os.path.exists(odd)
    assert f"'{tmp_path}/odd??31m.yaml' exists already" in gpuprov("init", odd, code=1).err


def write_log(gpuprov, lines):
    """An event log of a stack 'big', as gpuprov writes it."""
    line = json.dumps({"t": "2026-01-02T03:04:05.678Z", "stack": "big", "run": "0" * 16, "node": 0,
                       "phase": "checking", "status": "info", "step": "s", "text": "x\u009b31m" * 10})
    (gpuprov.state / "events").mkdir(parents=True)
    (gpuprov.state / "events" / "big.jsonl").write_text((line + "\n") * lines)


def test_long_results_and_a_reader_that_leaves(gpuprov):
    """The thread that wrote has seen EPIPE or ENOSPC, main has not."""
    write_log(gpuprov, 20000)
    p = gpuprov.popen("logs", "big")
    assert p.stdout.readline() == ("2026-01-02T03:04:05Z node 0   checking   info     s: "
                                   + "x?31m" * 10 + "\n")
    p.stdout.close()
    assert (p.stderr.read(), p.wait(timeout=120)) == ("", 0)
    for args in (["logs", "big"], ["logs", "big", "--json"]):
        with open("/dev/full", "w") as full:
            p = gpuprov.popen(*args, stdout=full)
            err = p.communicate(timeout=120)[1]
        assert p.returncode == 1 and "could not write" in err and len(err.splitlines()) == 1, err


@pytest.mark.long
@pytest.mark.root
@pytest.mark.namespaces
def test_a_full_stdout_hides_no_exit_code(gpuprov, spec):
    path = spec(GOOD + "validate: {time: 1m, floors: {host.cores.usable: 100000}}\n")
    for more in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            p = gpuprov.popen("up", path, "-q", *more, stdout=full)
            err = p.communicate(timeout=100)[1]
        assert p.returncode == 7 and "host.cores" in err, err
    again = gpuprov("validate", "try", "--json", "-q", code=7)
    assert again.json["error"]["message"] in again.err and again.json["nodes"] and not again.json["ready"]
    gpuprov("down", "try")


def test_empty_arguments_are_named(gpuprov):
    for verb in ("up", "down", "ssh", "init", "logs"):
        r = gpuprov(verb, "", code=1)
        assert r.err.startswith(f"gpuprov: {verb}: an argument is empty: usage: gpuprov {verb} ")
        assert len(r.err.splitlines()) == 1


def test_version_wherever_it_is_said(gpuprov):
    version = gpuprov("version").out
    for args in (["status", "--version"], ["-V", "up", "x", "--format", "y"], ["up", "x.yaml", "-V"]):
        assert gpuprov(*args).out == version
    assert not gpuprov.state.exists()


def test_verbs_that_answer_at_once_say_what_went_wrong(gpuprov, spec, tmp_path):
    """They have no progress; a warning (here: the journal was set aside) is not kept back."""
    path = spec(GOOD)
    gpuprov("status")

    def damaged(*args, code):
        (gpuprov.state / "journal.db").write_bytes(b"no database at all " * 100)
        return gpuprov(*args, code=code)
    for args, code, who in ((["plan", path], 2, "try"), (["status"], 0, "status"),
                            (["report", "x"], 1, "report")):
        r = damaged(*args, code=code)
        assert r.err.startswith(f"{who}: warning: journal: the journal was damaged and set aside as "
                                f"{gpuprov.state}/journal.db.damaged-"), r
        assert "stacks are read again from their tags: 'gpuprov status' lists them" in r.err
    r = damaged("plan", path, "--json", "--log", tmp_path / "log", code=2)
    assert [(e["stack"], e["status"], e["step"]) for e in r.events] == [("try", "warn", "journal")]
    assert (tmp_path / "log").read_text() == r.err and r.json["changes"]
    assert damaged("plan", path, "-q", code=2).err == ""


def test_a_state_folder_is_named_by_what_named_it(gpuprov, tmp_path):
    r = gpuprov("status", code=1, env={"GPUPROV_STATE_DIR": "/proc/nowhere"})
    assert "(GPUPROV_STATE_DIR names it)" in r.err
    r = gpuprov("status", code=1, env={"GPUPROV_STATE_DIR": "", "XDG_STATE_HOME": "/proc/nowhere"})
    assert "set XDG_STATE_HOME" in r.err
    # a relative one would be another one in each folder
    r = gpuprov("status", code=1, env={"GPUPROV_STATE_DIR": "rel/state"}, cwd=tmp_path)
    assert "GPUPROV_STATE_DIR 'rel/state' is not an absolute path" in r.err
    assert not (tmp_path / "rel").exists()
    r = gpuprov("doctor", env={"GPUPROV_STATE_DIR": "", "XDG_STATE_HOME": "rel", "HOME": str(tmp_path)}, cwd=tmp_path)
    assert f" {tmp_path}/.local/state/gpuprov\n" in r.out and not (tmp_path / "rel").exists()


@pytest.mark.parametrize("owner", ["../../x", "a/b", "a b", "-x", ".x", "*", "a?", "$(id)", "a'b", "a\nb", "\u202ex", "a" * 129])
def test_an_owner_has_its_form(gpuprov, owner):
    for verb in ("status", "down", "gc"):
        target = ["try"] if verb == "down" else []
        for r in (gpuprov(verb, *target, f"--owner={owner}", code=1), gpuprov(verb, *target, code=1, env={"GPUPROV_OWNER": owner})):
            assert "must be a letter or digit, then letters, digits and ._+=,@-, at most 128 in all" in r.err
            assert r.err.count("\n") == 1 and r.out == ""
    assert gpuprov("status", "--owner", "Jo.Doe+x=1,y@example-corp_2", "--json").json["stacks"] == []


def test_output_is_not_coloured_in_a_pipe(gpuprov):
    for args in (["help"], ["doctor"], ["checks"], ["plan", "nosuch.yaml"]):
        r = gpuprov(*args, code=None, env={"TERM": "xterm-256color"})
        assert "\033" not in r.out + r.err


@pytest.mark.root
@pytest.mark.namespaces
def test_everything_about_one_local_stack(gpuprov, spec, tmp_path):
    path = spec("name: ux\noffers: [{provider: local}]\nlimits: {ttl: 20m}\nvalidate: {time: 1m}\n")
    plan = gpuprov("plan", path, code=2)
    assert "deadline after 20m (enforced by the provider)" in plan.out
    r = gpuprov("up", path, "--json", timeout=300)
    fields = {"t", "stack", "owner", "run", "node", "phase", "status", "step", "text"}
    assert len(r.events) == len(r.err.splitlines())
    assert all(set(e) == fields and e["stack"] == "ux" for e in r.events), r.err  # the owner is known before the first one
    assert len({e["run"] for e in r.events}) == 1
    events = [e for e in r.events if not re.search(r": still (waiting|running) \[", e["text"])]  # only progress has these
    report = gpuprov.json("report", "ux")
    assert r.json["report"] == report
    assert report["nodes"][0]["host"] == gpuprov("ssh", "ux", "--", "hostname").out.strip()
    text = gpuprov("report", "ux").out
    assert "e+" not in text and f"host {report['nodes'][0]['host']}" in text
    assert max(map(len, text.splitlines())) <= 100
    # the command's exit code, and words as ssh has them
    assert gpuprov("ssh", "ux/0", "--", "exit 42", code=42).out == ""
    assert gpuprov("ssh", "ux", "--", "printf '%s|' 'a  b' \"c'd\"").out == "a  b|c'd|"
    assert "has no node 7" in gpuprov("ssh", "ux/7", "--", "true", code=1).err
    assert "node 7" in gpuprov("logs", "ux/7", code=1).err
    # what progress said is what the log has, line for line
    lines = [json.loads(line) for line in gpuprov("logs", "ux", "--json").out.splitlines()]
    of_up = [e for e in lines if e["run"] == events[0]["run"]]
    assert sorted(map(json.dumps, of_up)) == sorted(map(json.dumps, events))
    assert all(json.loads(line)["node"] == 0 for line in gpuprov("logs", "ux/0", "--json").out.splitlines())
    assert gpuprov("logs", "ux").out.splitlines()[0].startswith(lines[0]["t"][:19] + "Z node 0 ")
    # scp through the printed config
    cfg = tmp_path / "cfg"
    cfg.write_text(gpuprov("ssh", "ux", "--config").out)
    (tmp_path / "a b").write_text("hello")
    subprocess.run(["scp", "-q", "-F", cfg, tmp_path / "a b", "ux-0:/tmp/copied"], check=True,
                   env=gpuprov.env, timeout=300)
    assert gpuprov("ssh", "ux", "--", "cat /tmp/copied").out == "hello"
    old = gpuprov.state / "events" / "long-gone.jsonl"
    old.write_text("{}\n")
    os.utime(old, (0, 0))
    (gpuprov.state / "locks" / "killed@me").write_text("1")
    assert gpuprov("down", "ux").out.startswith("ux: 2 resources destroyed, nothing is left\nlooked at: local here (owner ")
    # what nobody needs any more goes by itself; what happened can still be read
    assert not old.exists() and not any((gpuprov.state / "locks").iterdir())
    assert not any((gpuprov.state / "stacks").iterdir())
    last = json.loads(gpuprov("logs", "ux", "--json").out.splitlines()[-1])
    assert (last["status"], last["text"]) == ("done", "2 resources destroyed, nothing is left")


def test_known_host_compares_the_key_itself(gpuprov, tmp_path):
    """ssh's KnownHostsCommand: it prints a line for a key with one of the fingerprints, and nothing for others."""
    key = tmp_path / "k"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    words = (tmp_path / "k.pub").read_text().split()[:2]
    prints = subprocess.run(["ssh-keygen", "-lf", key], capture_output=True, text=True, check=True).stdout.split()[1]
    other = "SHA256:" + "A" * 43
    assert gpuprov("__known_host", other, prints, "--", "[h]:2222", *words).out == f"[h]:2222 {words[0]} {words[1]}\n"
    assert gpuprov("__known_host", other, "--", "h", *words).out == ""
    assert gpuprov("__known_host", prints, "--", "h", "NONE", "NONE").out == ""
    for bad in ([prints + "=", "--", "h", *words], ["$(id)", "--", "h", *words], [prints, "h", *words], [prints, "--", "*", *words], []):
        assert gpuprov("__known_host", *bad, code=1).out == ""


def on_terminal(gpuprov, columns, *args):
    """stdout of a run on a terminal that is so wide."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    p = gpuprov.popen(*args, stdout=slave)
    os.close(slave)
    text = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(master, 65536):
            text += part
    os.close(master)
    assert p.communicate(timeout=60) and p.returncode == 0
    return text.decode().replace("\r\n", "\n").splitlines()


def test_a_command_to_copy_is_in_one_line(gpuprov):
    gpuprov("status", "--offline")
    with sqlite3.connect(gpuprov.state / "journal.db") as db:
        db.execute("INSERT INTO stacks(owner,name,uid,spec_hash,provider,region,created_s,expires_s,spec) "
                   "VALUES('me','try-local','0123456789abcdef','','aws','us-east-1',1,4000000000,'')")
        node = {"provider": "aws", "id": "i-0123456789abcdef0", "kind": 0, "region": "us-east-1", "zone": "us-east-1a", "owner": "me",
                "stack": "try-local", "uid": "0123456789abcdef", "slot": 0, "attempt": 0, "state": 1, "billed": 1, "public_ip": "192.0.2.1",
                "instance_type": "p5.48xlarge", "price_usd_per_h": 55.04, "created_s": 1, "expires_s": 4000000000}
        db.execute(f"INSERT INTO resources({','.join(node)}) VALUES({','.join('?' * len(node))})", tuple(node.values()))
    lines = on_terminal(gpuprov, 60, "status", "--offline")
    assert lines[0].endswith("connect with") and any(line.endswith("  gpuprov ssh try-local/0") for line in lines), lines
    table = [line for line in lines if "  " in line]
    assert len(table) > 2 and max(map(len, table)) <= 60, lines


@pytest.mark.parametrize("args", [["providers"], ["checks"], ["providers", "aws"]])
def test_tables_fit_a_narrow_terminal(gpuprov, args):
    wide = on_terminal(gpuprov, 1000, *args)
    narrow = on_terminal(gpuprov, 60, *args)
    assert max(map(len, wide)) > 60 and len(wide[0].split("  ")) > 2
    table = [line for line in narrow if "  " in line]
    assert max(map(len, table)) <= 60, table
    # nothing is lost: a cell goes on below
    assert sorted("".join(narrow).replace(" ", "")) == sorted("".join(wide).replace(" ", ""))
    # a pipe is no terminal: one line per row
    assert len(gpuprov(*args).out.splitlines()) == len(wide)


def test_a_narrow_table_breaks_between_words(gpuprov):
    lines = on_terminal(gpuprov, 80, "providers", "azure")
    assert max(map(len, lines)) <= 80
    for word in ("gc-only", "Standard_ND96isr_H100_v5", "publisher:offer:sku:version,"):
        assert any(word in line for line in lines), lines
    names = [line.split("  ")[0] for line in on_terminal(gpuprov, 40, "providers")[1:]]
    assert {p["name"] for p in gpuprov.json("providers")["providers"]} <= set(names), names


@pytest.mark.parametrize("up,ssh,down,code", [(0, 0, 0, 0), (3, 0, 0, 3), (7, 0, 0, 7), (0, 4, 0, 1), (0, 0, 8, 8), (6, 0, 8, 8)])
@pytest.mark.parametrize("shell", [["sh"], ["sh", "-e"]])
def test_the_tutorials_lines_for_ci(tmp_path, shell, up, ssh, down, code):
    """The codes of `up` reach CI, and `down` runs after every one of them, also where the shell stops at failures."""
    lines = (ROOT / "docs/tutorial.md").read_text().split("## In CI\n")[1].split("```sh\n")[1].split("```")[0]
    fake = tmp_path / "gpuprov"
    fake.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/ran\ncase $1 in up) exit {up};; ssh) exit {ssh};; down) exit {down};; esac\n')
    fake.chmod(0o755)
    done = subprocess.run([*shell, "-c", lines], env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=False)
    assert done.returncode == code
    assert (tmp_path / "ran").read_text().split() == ["up", *(["ssh"] if up == 0 else []), "down"]
