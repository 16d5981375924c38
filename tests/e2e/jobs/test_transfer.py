# SPDX-License-Identifier: Apache-2.0
"""tree_up and tree_down between this machine and a real sshd: equal trees, only differences, odd names, holes, rules,
mirror, conflicts."""
import os
import pathlib

import pytest

from transfer_lab import age, describe, home_fixture, node_fixture  # noqa: F401


def fill(root):
    root = os.fsencode(root)
    os.makedirs(root)

    def put(name, content, mode=0o644):
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(content)
        os.chmod(path, mode)
    put(b"a", b"plain")
    put(b"empty", b"")
    put(b"run.sh", b"#!/bin/sh\n", 0o755)
    put(b"secret", b"x", 0o600)
    put(b"none", b"unreadable later", 0o400)
    put(b"new\nline", b"1")
    put(b"not \xff\xfe utf-8", b"2")
    put(b"-rf *", b"3")
    put(b"a.b/c-d/e f/g", b"deep")
    put(b"a/".rstrip(b"/") + b"-b", b"sorts between a folder and its content")
    put(b"x" * 255, b"long name")
    put(b"d/" * 100 + b"e", b"deep")
    put(b"big", os.urandom(3 << 20) + b"tail")
    put(b"zeros", bytes(300000))
    os.symlink(b"a", os.path.join(root, b"link"))
    os.symlink(b"../a", os.path.join(root, b"a.b/up"))
    os.symlink(b"nowhere/at all", os.path.join(root, b"dangling"))
    os.mkdir(os.path.join(root, b"hollow"))
    os.mkdir(os.path.join(root, b"closed"))
    put(b"closed/in", b"y")
    os.chmod(os.path.join(root, b"closed"), 0o555)


def test_up_and_down_again(node, home, tmp_path):
    source, back = tmp_path / "source", tmp_path / "back"
    fill(source)
    first = node.up(source, home / "w")
    want = describe(source)
    files = sum(w[0] == "file" for w in want.values())
    assert describe(home / "w") == want
    assert first["files"] == first["files_sent"] == files and first["left_out"] == 0
    assert node.down(home / "w", back)["files_sent"] == files
    assert describe(back) == want
    # again, to the node and from it: nothing is sent; a folder without write permission does not matter
    assert node.up(source, home / "w")["files_sent"] == 0
    assert node.down(home / "w", back)["files_sent"] == 0
    assert describe(back) == want


def test_only_what_differs(node, home, tmp_path):
    source = tmp_path / "s"
    source.mkdir()
    for name in "abcdef":
        (source / name).write_text(name * 1000)
    age(source)
    node.up(source, home / "w")
    (source / "b").write_text("B" * 1000)  # the same size
    (source / "c").write_text("longer" * 1000)
    (source / "d").touch()  # only its time
    (source / "e").chmod(0o640)
    (home / "w" / "f").write_text("F" * 1000)  # changed on the node
    os.utime(home / "w" / "f", ns=(0, (source / "f").stat().st_mtime_ns))  # which did not show it
    assert node.up(source, home / "w")["files_sent"] == 2
    assert (home / "w" / "b").read_text() == "B" * 1000 and (home / "w" / "e").stat().st_mode & 0o777 == 0o640
    assert (home / "w" / "f").read_text() == "F" * 1000  # equal size and time
    assert node.up(source, home / "w", "by_hash")["files_sent"] == 1
    assert describe(home / "w") == describe(source)


def test_a_change_within_one_tick_of_the_clock_is_seen(node, home, tmp_path):
    source = tmp_path / "s"
    source.mkdir()
    (source / "a").write_text("old")
    at = (source / "a").stat().st_mtime_ns
    node.up(source, home / "w")
    (source / "a").write_text("new")
    os.utime(source / "a", ns=(at, at))  # as if the clock of the file system had not moved
    assert node.up(source, home / "w")["files_sent"] == 1
    assert (home / "w" / "a").read_text() == "new"


def test_holes_stay_holes(node, home, tmp_path):
    sparse, back = tmp_path / "sparse", tmp_path / "back"
    with sparse.open("wb") as f:
        f.write(b"begin")
        f.seek(20 << 30)
        f.write(b"end")
        f.truncate((20 << 30) + (5 << 20))
    sent = node.up(sparse, str(home) + "/")
    assert sent["bytes"] == (20 << 30) + (5 << 20) and sent["bytes_sent"] < 1 << 20
    there = home / "sparse"
    assert there.stat().st_size == sparse.stat().st_size and there.stat().st_blocks * 512 < 1 << 20
    node.down(there, back)
    assert back.stat().st_size == sparse.stat().st_size and back.stat().st_blocks * 512 < 1 << 20
    with back.open("rb") as f:
        assert f.read(5) == b"begin"
        f.seek(20 << 30)
        assert f.read(4) == b"end\0"
    assert node.down(there, back, "by_hash")["files_sent"] == 0


def test_one_file(node, home, tmp_path):
    one = tmp_path / "one"
    one.write_text("1")
    (home / "d").mkdir()
    node.up(one, home / "other")  # a new name
    node.up(one, home / "d")  # a folder that exists
    node.up(one, str(home / "new") + "/")  # a folder that is made
    assert [p.read_text() for p in (home / "other", home / "d" / "one", home / "new" / "one")] == ["1"] * 3
    (tmp_path / "link").symlink_to(one)
    node.up(tmp_path / "link", home / "d")  # the link itself is followed
    assert (home / "d" / "link").read_text() == "1" and not (home / "d" / "link").is_symlink()
    node.down(home / "other", tmp_path / "back")
    assert (tmp_path / "back").read_text() == "1"
    assert "there is no" in node.down(home / "absent", tmp_path / "x", code=1)["error"]["message"]
    assert node.up(tmp_path / "absent", home / "x", code=1)["error"]["code"] == "not-found"
    assert node.up("/dev/null", home / "x", code=1)["error"]["code"] == "usage"
    # relative to the home folder
    node.up(one, "rel/a")
    node.up(one, "~/rel/b")
    assert sorted(p.name for p in (node.home / "rel").iterdir()) == ["a", "b"]


def test_ignore_rules(node, home, tmp_path):
    source = tmp_path / "s"
    for name in ("a.c", "a.o", ".git/config", "keep.o", "build/x", "src/build/y", "src/b.o", "src/b.c", "src/logs/1.txt",
                 "logs/2.txt", "src/.gpuprovignore"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (source / ".gpuprovignore").write_text("# objects\n*.o\n!keep.o\n/build/\n")
    (source / "src" / ".gpuprovignore").write_text("logs/*\n")
    node.up(source, home / "w", "ignore")
    there = {str(p.relative_to(home / "w")) for p in (home / "w").rglob("*") if p.is_file()}
    assert there == {".gpuprovignore", "a.c", "keep.o", "src/.gpuprovignore", "src/b.c", "src/build/y", "logs/2.txt"}
    # mirror removes what only the node has, but nothing that the rules ignore
    for name in ("extra", "old/deep/file", "build/cache", "x.o", "src/logs/run.txt", ".git/objects/1"):
        (home / "w" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "w" / name).write_text(name)
    (source / "logs" / "2.txt").unlink()
    assert node.up(source, home / "w", "ignore")["removed"] == 0 and (home / "w" / "extra").exists()
    assert node.up(source, home / "w", "ignore", "mirror")["removed"] == 5
    there = {str(p.relative_to(home / "w")) for p in (home / "w").rglob("*") if p.is_file()}
    assert there == {".gpuprovignore", "a.c", "keep.o", "src/.gpuprovignore", "src/b.c", "src/build/y", "build/cache", "x.o",
                     "src/logs/run.txt", ".git/objects/1"}


def test_something_else_is_in_its_place(node, home, tmp_path):
    source, w = tmp_path / "s", home / "w"
    (source / "d").mkdir(parents=True)
    (source / "d" / "f").write_text("f")
    outside = home / "outside"
    outside.mkdir()
    w.mkdir()
    (w / "d").symlink_to(outside)  # never written through
    refused = node.up(source, w, code=1)["error"]
    assert "'d' is a link there, and a folder here" in refused["message"] and refused["message"].startswith("t/0: ")
    assert list(outside.iterdir()) == []
    node.up(source, w, "mirror")
    assert (w / "d" / "f").read_text() == "f" and not (w / "d").is_symlink() and list(outside.iterdir()) == []
    # a link in a file's place is replaced itself
    (w / "d" / "f").unlink()
    (w / "d" / "f").symlink_to(outside / "target")
    (outside / "target").write_text("keep")
    node.up(source, w)
    assert (w / "d" / "f").read_text() == "f" and (outside / "target").read_text() == "keep"
    # a folder with content in a file's place
    (w / "d" / "f").unlink()
    (w / "d" / "f" / "g").mkdir(parents=True)
    assert "is a folder there" in node.up(source, w, code=1)["error"]["message"]
    node.up(source, w, "mirror")
    assert (w / "d" / "f").read_text() == "f"


def test_what_cannot_be_copied_is_named(node, home, tmp_path):
    w, back = home / "w", tmp_path / "back"
    w.mkdir()
    os.mkfifo(w / "pipe")
    (w / "abs").symlink_to("/etc/passwd")
    (w / "up").symlink_to("../../x")
    (w / "sub").mkdir()
    (w / "sub" / "tricky").symlink_to("../sub/../../x")
    (w / "sub" / "fine").symlink_to("../ok")
    (w / "ok").write_text("ok")
    got = node.down(w, back)
    assert got["left_out"] == 4 and len(got["notes"]) == 4
    assert sorted(p.name for p in back.rglob("*")) == ["fine", "ok", "sub"]
    assert any("'pipe': not a file" in n for n in got["notes"])
    assert sum("leads out of the folder" in n for n in got["notes"]) == 3
    # to a node links are copied as they are: they are the user's own
    assert node.up(w, home / "x")["left_out"] == 1 and os.readlink(home / "x" / "abs") == "/etc/passwd"


@pytest.mark.long
def test_100_000_small_files(node, home, tmp_path):
    source = tmp_path / "s"
    for d in range(100):
        (source / str(d)).mkdir(parents=True)
        for f in range(1000):
            (source / str(d) / str(f)).write_text("%d %d" % (d, f))
    assert node.up(source, home / "w")["files_sent"] == 100000
    got = node.down(home / "w", tmp_path / "back")
    assert got["files_sent"] == 100000 and got["peak_kib"] < 100 << 10
    assert describe(tmp_path / "back") == describe(source)


def test_agents_that_do_not_know_it(node, home, tmp_path):
    (tmp_path / "a").write_text("a")
    there = node.agent.read_bytes()
    try:
        node.agent.write_text("#!/bin/sh\necho 'gpuprov-agent: unknown verb: tree' >&2; exit 3\n")
        assert "run 'gpuprov bootstrap' to replace it" in node.up(tmp_path / "a", home / "a", code=1)["error"]["message"]
        node.agent.unlink()
        refused = node.up(tmp_path / "a", home / "a", code=1)["error"]
        assert "the agent is not on the node" in refused["message"] and refused["code"] == "bootstrap"
    finally:
        node.agent.write_bytes(there)
        node.agent.chmod(0o700)


def test_a_login_shell_that_prints(node, home, tmp_path):
    (tmp_path / "a").write_text("a")
    real = node.agent.with_name("real")
    node.agent.rename(real)
    try:
        node.agent.write_text('#!/bin/sh\necho "Welcome to this machine"; exec "%s" "$@"\n' % real)
        node.agent.chmod(0o700)
        node.up(tmp_path / "a", home / "a")
        node.down(home / "a", tmp_path / "b")
    finally:
        real.rename(node.agent)
    assert pathlib.Path(tmp_path / "b").read_text() == "a"
