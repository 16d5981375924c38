# SPDX-License-Identifier: Apache-2.0
"""The table "How to add something" of docs/how-it-works.md holds: in a copy of the tree a dummy of each kind
is added by its row, with no other file touched; the copy is built, and each dummy works."""
import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT, Gpuprov
from recipes import RECIPES

SPEC = "name: fried\noffers: [{provider: %s}]\nrecipe: %s\n"


def table():
    """{what: paths that its row names}, NAME filled in. A path is a word in backticks with a slash."""
    page = (ROOT / "docs/how-it-works.md").read_text()
    section = page.split("## How to add something\n", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    assert rows[0][:3] == ["what", "new file", "rows in"], rows[0]
    return {row[0]: {word.replace("NAME", "recipe") for cell in row[1:3] for word in re.findall(r"`([^`]+)`", cell)
                     if "/" in word} for row in rows[2:]}


def copy_tree(to):
    """The files that git knows, and what is built of them, with their times, so that make builds the rest."""
    out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                         check=True, capture_output=True).stdout
    for path in filter(None, out.decode().split("\0")):
        if path.startswith("tests/fuzz/") or not (ROOT / path).is_file():
            continue
        (to / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, to / path)
    for part in ("obj", "agent-obj", "gen"):
        if (ROOT / "build" / part).is_dir():
            shutil.copytree(ROOT / "build" / part, to / "build" / part)


def make(root, *targets):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "GPUPROV_", "CUDA"))
           and k not in ("B", "SAN", "CFLAGS", "LDFLAGS")}
    env["CUDA_HOMES"] = str(root / "no-toolkit")
    p = subprocess.run(["make", "-j", str(os.cpu_count()), "DEV=1", "B=build", *targets], cwd=root, env=env, text=True,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900, check=False)
    assert p.returncode == 0, f"make {targets} of the tree with the dummies fails:\n" + p.stdout[-4000:]


@pytest.fixture(scope="module", name="tree")
def built_tree(tmp_path_factory):
    """A copy of the tree with every dummy, built without the CUDA agent."""
    root = tmp_path_factory.mktemp("recipes")
    copy_tree(root)
    for recipe in RECIPES.values():
        recipe.apply(root)
    make(root, "all")
    return root


@pytest.fixture(name="copy")
def copy_program(tree, tmp_path):
    """The copy's gpuprov with a state folder of its own."""
    (tmp_path / "home").mkdir()
    return Gpuprov(tree / "build/gpuprov", tmp_path / "state", tmp_path / "home")


def test_the_table_and_the_recipes_name_the_same_files():
    named = table()
    assert named.keys() == RECIPES.keys()
    for what, recipe in RECIPES.items():
        assert named[what] == recipe.new.keys() | recipe.rows.keys(), what


@pytest.mark.long
def test_the_copy_keeps_the_include_rules(tree):
    p = subprocess.run([sys.executable, "tests/lint/includes.py"], cwd=tree, capture_output=True, text=True, check=False)
    assert p.returncode == 0, p.stdout


@pytest.mark.long
def test_the_page_names_what_else_follows_the_rows(tree):
    """README has the numbers of checks and models and a row for each provider; all other pages are made."""
    section = (ROOT / "docs/how-it-works.md").read_text().split("## How to add something\n", 1)[1]
    assert "`make docs`" in section and "`tests/lint/pages.py`" in section
    make(tree, "docs")
    p = subprocess.run([sys.executable, "tests/lint/pages.py"], cwd=tree, capture_output=True, text=True, check=False)
    found = [line for line in p.stdout.splitlines() if "tests/fuzz" not in line]  # copy_tree leaves that out
    kinds = [r"'has \d+ checks' should be \d+", r"'table of \d+ GPU models' should be \d+",
             r"its table has the providers .*'recipe'.*"]
    assert re.fullmatch("\n".join("README.md: " + kind for kind in kinds), "\n".join(found)), p.stdout


def test_the_key_is_decoded_documented_and_part_of_the_hash(copy, spec):
    key = copy.json("schema")["properties"]["recipe"]
    assert key["default"] == 3 and {"type": "integer", "minimum": 1, "maximum": 9} in key["anyOf"], key
    assert re.search(r"`recipe`.*how many eggs", copy("schema", "--markdown").out)
    bad = copy("check", spec(SPEC % ("local", 10)), code=1)
    assert "recipe" in bad.err and "1 to 9" in bad.err, bad
    hashes = [copy.json("check", spec(SPEC % ("local", n)))["hash"] for n in (3, 4, 4)]
    assert hashes[0] != hashes[1] == hashes[2]


def test_the_verb_is_listed_and_runs(copy):
    assert re.search(r"^  recipe WORD +prints a word$", copy("help").out, re.M)
    assert copy("recipe", "egg").out == "the word is egg\n"
    assert copy.json("recipe", "egg") == {"word": "egg"}
    assert "recipe" in copy("completion", "bash").out


def test_the_provider_is_listed_and_planned_with(copy, spec):
    assert "a provider by the recipe" in copy("providers").out
    plan = copy("plan", spec(SPEC % ("recipe", 3)), code=2).out
    assert "recipe" in plan and "kitchen" in plan and "pan" in plan, plan


def test_the_provider_is_complete(tree):
    """The test of all provider rows passes with the dummy's one folder, one row and page, and misses what is taken away."""
    make(tree, "build/tests/unit/providers/test_registry")
    check = [str(tree / "build/tests/unit/providers/test_registry")]
    done = subprocess.run(check, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page = tree / "docs/recipe.md"
    text = page.read_text()
    page.unlink()
    done = subprocess.run(check, cwd=tree, capture_output=True, text=True, check=False)
    page.write_text(text)
    assert done.returncode != 0 and "docs/recipe.md is missing" in done.stdout + done.stderr


def test_the_check_is_listed(copy):
    row = next(c for c in copy.json("checks")["checks"] if c["id"] == "host.recipe")
    assert row["finds"] == "arithmetic that fails"
    assert "host.recipe" in copy("checks", "--markdown").out


def test_the_model_is_listed(copy):
    assert re.search(r"^\| \[Recipe 9\].*\| 7 \|", copy("checks", "--models").out, re.M)


def test_the_driver_is_chosen(copy, spec):
    path = spec("name: fried\ngpu: H100\noffers: [{provider: aws}]\n")
    (one,) = copy.json("check", path, "--explain")["software"]
    assert one["values"]["driver"]["value"] == "999" and one["driver_minimum"] == "999.10.01"


@pytest.mark.long
@pytest.mark.root
@pytest.mark.namespaces
def test_step_check_and_form_work_on_a_node(copy, spec):
    path = spec(SPEC % ("local", 3))
    try:
        up = copy("up", path, "--json", timeout=300)
        assert any(e["phase"] == "bootstrap" and e["step"] == "recipe" for e in up.events), up
        assert copy("ssh", "fried/0", "--", "ls").out.split() == ["recipe-was-here"]
        report = copy("report", "fried", "--json").json
        result = next(c for c in report["nodes"][0]["checks"] if c["check"] == "host.recipe")
        assert (result["verdict"], result["message"]) == ("pass", "one and one is two"), result
        assert copy("report", "fried", "--format", "recipe").out == "recipe of fried\n"
        assert copy("export", "recipe", "fried", "--unproven").out == "recipe of fried\n"
    finally:
        copy("down", "fried", code=None)
