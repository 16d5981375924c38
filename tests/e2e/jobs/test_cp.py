# SPDX-License-Identifier: Apache-2.0
"""gpuprov cp with local nodes: both directions, names of targets, errors, JSON."""
import os
import pathlib
import re

import pytest

from conftest import Gpuprov
from transfer_lab import describe

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: cp
nodes: 2
offers: [{provider: local}]
limits: {ttl: 30m}
validate: {time: 1m}
"""


@pytest.fixture(scope="module")
def stack(program, tmp_path_factory):
    tmp = tmp_path_factory.mktemp("cp")
    (tmp / "home").mkdir()
    (tmp / "spec.yaml").write_text(SPEC)
    g = Gpuprov(program, tmp / "state", tmp / "home")
    g("up", tmp / "spec.yaml", code=None)  # READY or not: the nodes are there
    yield g
    g("down", "cp")


def on_node(stack, slot, command):
    return stack("ssh", "cp/%d" % slot, "--", command).out


def test_a_folder_there_and_back(stack, tmp_path):
    source = tmp_path / "data"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "new\nline").write_text("x")
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("run.sh")
    done = stack("cp", source, "cp/1:")  # into the home folder, under its name
    assert "cp/1: copied 2 files" in done.out
    assert on_node(stack, 1, "cat ~/data/sub/* && readlink ~/data/link") == "xrun.sh\n"
    assert stack.json("cp", source, "cp/1:")["files_sent"] == 0
    assert re.search(r"^cp/1: 2 files \(\d+ B\), unchanged, in ", stack("cp", source, "cp/1:").out)
    stack("cp", str(source) + "/.", "cp/1:other")  # its content
    assert on_node(stack, 1, "ls ~/other") == "link\nrun.sh\nsub\n"
    stack("cp", "cp/1:data/", tmp_path / "back")
    assert describe(tmp_path / "back" / "data") == describe(source)
    assert on_node(stack, 0, "ls -d ~/data 2>/dev/null; true") == ""


def test_files(stack, tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    stack("cp", tmp_path / "a", "cp:renamed")  # node 0
    stack("cp", tmp_path / "a", tmp_path / "b", "cp/0:two")
    assert on_node(stack, 0, "cat ~/renamed ~/two/a ~/two/b") == "aab"
    got = stack.json("cp", "cp:renamed", "cp:two", tmp_path / "here")
    assert (got["stack"], got["node"], got["files"], got["left_out"], got["notes"]) == ("cp", 0, 3, 0, [])
    assert sorted(str(p.relative_to(tmp_path / "here")) for p in (tmp_path / "here").rglob("*") if p.is_file()) == [
        "renamed", "two/a", "two/b"]
    colon = tmp_path / "x:y"
    colon.write_text("colon")
    stack("cp", "./x:y", "cp:/tmp/x:y", cwd=tmp_path)
    assert on_node(stack, 0, "cat /tmp/x:y") == "colon"


def test_what_is_left_out_makes_it_fail(stack, tmp_path):
    on_node(stack, 0, "mkdir -p ~/odd && ln -sfn /etc/passwd ~/odd/out && echo ok >~/odd/fine")
    failed = stack("cp", "cp:odd", tmp_path, code=1)
    assert "warning: cp/0: 'out': the link leads out of the folder" in failed.err
    assert "were not copied" in failed.err and (tmp_path / "odd" / "fine").read_text() == "ok\n"
    assert stack("cp", "--json", "cp:odd", tmp_path, code=1).json["left_out"] == 1
    for source, target in (("/proc/version", "cp:version"), ("cp:/proc/version", tmp_path / "version")):
        failed = stack("cp", source, target, code=1)
        assert "'version': it has content, but its size is reported as 0" in failed.err
    assert not (tmp_path / "version").exists()


def test_mirror_and_ignore(stack, tmp_path):
    source = tmp_path / "m"
    source.mkdir()
    (source / "a").write_text("a")
    (source / "b.o").write_text("b")
    (source / ".gpuprovignore").write_text("*.o\n")
    on_node(stack, 0, "mkdir -p ~/m && touch ~/m/extra ~/m/x.o")
    done = stack("cp", "--ignore", "--mirror", source, "cp:")
    assert "removed 1" in done.out
    assert on_node(stack, 0, "ls ~/m") == "a\nx.o\n"


def test_to_all_nodes(stack, tmp_path):
    source = tmp_path / "all"
    source.mkdir()
    (source / "f").write_bytes(os.urandom(100000))
    done = stack("cp", source, "cp/all:")
    assert "cp: copied" in done.out and "100.0 kB from node to node" in done.out, done
    for slot in (0, 1):
        stack("cp", f"cp/{slot}:all", tmp_path / str(slot))
        assert describe(tmp_path / str(slot) / "all") == describe(source)
    assert "name one node to copy from" in stack("cp", "cp/all:all", tmp_path, code=1).err


@pytest.mark.parametrize("args, why", [
    (["a", "b"], "neither 'a' nor 'b' is on a node"),
    (["cp:a", "cp:b"], "are both on nodes"),
    (["cp/0:a", "cp/1:b", "x"], "all sources must be on one node"),
    (["/absent", "cp:x"], "could not read '/absent': No such file"),
    (["/dev/null", "cp:x"], "'/dev/null' is neither a file nor a folder"),
    (["cp:absent", "x"], "cp/0: there is no '"),
    (["/etc/hostname", "cp/7:x"], "cp/7: there is no such node"),
    (["--ignore", "cp:a", "x"], "--ignore is for copies to a node")])
def test_wrong_usage(stack, tmp_path, args, why):
    failed = stack("cp", *args, code=1, cwd=tmp_path)
    assert why in failed.err and not os.listdir(tmp_path)
    assert pathlib.Path(tmp_path).is_dir()
