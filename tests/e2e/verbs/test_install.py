# SPDX-License-Identifier: Apache-2.0
"""`make install`: the program, its manual pages, completions and schemas; and `make uninstall`."""
import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
B = os.environ.get("B", str(ROOT / "build"))


def make(goal, where):
    # -o all: the tree is built already
    subprocess.run(["make", "-s", "-C", ROOT, "-o", "all", goal, f"B={B}", f"DESTDIR={where}", "PREFIX=/usr"],
                   check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def share(tmp_path_factory):
    where = tmp_path_factory.mktemp("install")
    make("install", where)
    yield where / "usr/share"
    make("uninstall", where)
    assert not [p for p in where.rglob("*") if p.is_file()]


def test_the_program_runs(share):
    out = subprocess.run([share.parent / "bin/gpuprov", "version"], check=True, capture_output=True, text=True).stdout
    assert out.startswith("gpuprov ")


@pytest.mark.parametrize("page", ["man1/gpuprov.1", "man5/gpuprov.yaml.5"])
def test_manual_pages_are_sound(share, page):
    path = share / "man" / page
    lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", path], capture_output=True, text=True)
    # the date is left out, so that two builds of one source are equal
    problems = [line for line in lint.stdout.splitlines() if "missing date" not in line]
    assert not problems, problems
    text = subprocess.run(["mandoc", "-T", "utf8", path], check=True, capture_output=True, text=True).stdout
    text = "".join(c for i, c in enumerate(text) if c != "\b" and text[i + 1:i + 2] != "\b")
    assert "`" not in text and "\\" not in text.replace("\\0", "")
    # every key of the spec's page, every verb of the help
    keys = re.findall(r"^\| `([\w.]+)`", (ROOT / "docs/spec.md").read_text(), re.M)
    verbs = re.findall(r"^  ([a-z]+) ", (ROOT / "tests/unit/golden/help.txt").read_text(), re.M)
    words = {"man1/gpuprov.1": verbs + ["--dry-run", "EXIT STATUS", "GPUPROV_OWNER", "gpuprov ssh try/1"],
             "man5/gpuprov.yaml.5": keys + ["RULES OF THE LANGUAGE", "instance_type"]}
    missing = [word for word in words[page] if word not in text]
    assert not missing and len(words[page]) > 15


def test_schemas(share):
    assert "properties" in json.loads((share / "gpuprov/gpuprov.schema.json").read_text())
    assert "properties" in json.loads((share / "gpuprov/report.schema.json").read_text())


def test_bash_completion(share):
    script = (share / "bash-completion/completions/gpuprov").read_text() + (
        'COMP_WORDS=(gpuprov sch); COMP_CWORD=1; __gpuprov; echo "${COMPREPLY[@]}"\n')
    p = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert p.stdout == "schema\n"


def test_zsh_completion_loads(share):
    """The file is a function of the completion system: it defines the completion and completes at once."""
    script = (f"fpath=({share}/zsh/site-functions $fpath); autoload -Uz compinit; compinit -u -D\n"
              '_bash_complete() { print -r -- "called: $*"; }\n'
              "autoload -Uz +X bashcompinit; bashcompinit() { complete() { print -r -- registered: $*; }; }\n"
              "autoload -Uz _gpuprov; _gpuprov\n"
              "COMP_WORDS=(gpuprov sch); COMP_CWORD=1\n"
              'print -r -- "${_comps[gpuprov]}"\n')
    p = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, check=True)
    assert p.stdout.splitlines() == ["registered: -o filenames -F __gpuprov gpuprov",
                                     "called: -o filenames -F __gpuprov", "_gpuprov"], p


def test_fish_completion(share):
    script = f"source {share}/fish/vendor_completions.d/gpuprov.fish; complete -C 'gpuprov sch'"
    p = subprocess.run(["fish", "-N", "-c", script], capture_output=True, text=True, check=True)
    assert p.stdout.startswith("schema\t"), p
