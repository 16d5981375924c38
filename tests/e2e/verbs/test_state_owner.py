# SPDX-License-Identifier: Apache-2.0
"""Whose a state folder is, who can write it, and links in it: another user must not decide what is destroyed, nor which
files this user writes."""
import os
import sqlite3
import subprocess

import pytest

SPEC = "name: kept\noffers: [{provider: local}]\nlimits: {ttl: 20m}\nvalidate: {time: 1m}\n"


@pytest.mark.parametrize("mode, who", [(0o775, "its group"), (0o770, "its group"), (0o777, "every user"),
                                       (0o1777, "every user"), (0o702, "every user")])
def test_writable_by_others(gpuprov, mode, who):
    gpuprov.state.mkdir()
    gpuprov.state.chmod(mode)
    r = gpuprov("status", code=1)
    assert f"can be written by {who}" in r.err and f"chmod 700 {gpuprov.state}" in r.err
    assert gpuprov.state.stat().st_mode & 0o7777 == mode and not list(gpuprov.state.iterdir())
    gpuprov.state.chmod(0o755)
    gpuprov("status")


@pytest.mark.root
def test_of_another_user(gpuprov):
    """Root in a user's folder: sudo -E."""
    gpuprov.state.mkdir(mode=0o700)
    os.chown(gpuprov.state, 1234, 1234)
    r = gpuprov("status", code=1)
    assert "belongs to user 1234, and this is user 0" in r.err and "sudo -H" in r.err and "GPUPROV_STATE_DIR" in r.err
    assert not list(gpuprov.state.iterdir())


@pytest.mark.root
@pytest.mark.parametrize("name", ["events/kept.jsonl", "locks/kept@root", "journal.db"])
@pytest.mark.parametrize("planted", ["link", "dangling", "hard", "fifo", "theirs"])
def test_planted(gpuprov, spec, tmp_path, name, planted):
    """What lies there under the name of a log, a lock or the journal is not written through."""
    outside, at = tmp_path / "outside", gpuprov.state / name
    path = spec(SPEC + "bootstrap: {steps: [{name: no, run: exit 1}]}\n")
    gpuprov("status")
    at.parent.mkdir(mode=0o700, exist_ok=True)
    at.unlink(missing_ok=True)
    if planted != "dangling":
        outside.write_text("mine\n")
    if planted in ("link", "dangling"):
        at.symlink_to(outside)
    elif planted == "hard":
        at.hardlink_to(outside)
    elif planted == "fifo":
        os.mkfifo(at)
    else:
        at.write_text("")
        os.chown(at, 1234, 1234)
    r = gpuprov("up", path, code=None, env={"PATH": os.environ["PATH"]})
    gpuprov("down", "kept", code=None)
    assert f"'{at}' is " in r.err and "remove it" in r.err, r
    assert not outside.exists() if planted == "dangling" else outside.read_text() == "mine\n"


@pytest.mark.parametrize("value", [2 ** 63 - 1, -2 ** 63, 2 ** 62, -1, 0, 10 ** 18, "text", 1e308, None])
def test_hostile_times_and_numbers(gpuprov, value):
    """status, plan and gc --dry-run count with any number of the journal. A build with UBSan finds the overflow."""
    gpuprov("status")
    with sqlite3.connect(gpuprov.state / "journal.db") as db:
        tables = {t: [row[1:3] for row in db.execute(f"PRAGMA table_info({t})")]
                  for t in ("stacks", "resources", "nodes", "intents")}
        for t, columns in tables.items():
            own = {"owner": "root", "name": "kept", "stack": "kept", "uid": "0123456789abcdef", "stack_uid":
                   "0123456789abcdef", "provider": "local", "region": "here", "spec": "", "report": "", "id": "x"}
            row = {name: own.get(name, "" if kind == "TEXT" else value) for name, kind in columns}
            if t == "intents":
                row["id"] = 7
            marks = ",".join("?" * len(row))
            db.execute(f"INSERT OR REPLACE INTO {t}({','.join(row)}) VALUES ({marks})", list(row.values()))
    spec_path = gpuprov.state.parent / "kept.yaml"
    spec_path.write_text(SPEC)
    for args in (["status"], ["status", "--json"], ["status", "kept"], ["plan", spec_path], ["gc", "--dry-run"],
                 ["down", "--dry-run", "kept"], ["logs", "kept"]):
        r = gpuprov(*args, code=None)
        assert r.code >= 0 and "runtime error" not in r.err and "AddressSanitizer" not in r.err, repr(r)


def test_the_helper_is_the_only_way():
    """Files that are written in place are opened by fs_open_kept, those that a user names by fs_open_output."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    found = subprocess.run(["grep", "-rnE", "open\\(.*O_CREAT", "engine", "core", "providers/ssh"], cwd=root,
                           capture_output=True, text=True, check=True).stdout.splitlines()
    loose = [line for line in found if "O_NOFOLLOW" not in line]
    assert loose == []
