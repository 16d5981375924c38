#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README and docs/ against the project: each figure of README has a source that says the same; files, links,
verbs, options, keys of a spec and tests that a page names exist. Prints file: problem; exit 1."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"(?<![\w.])\d[\d,.]*(?<![,.])")


def read(name):
    return (ROOT / name).read_text()


def rows(name, pattern):
    return len(re.findall(pattern, read(name), re.M))


def figure(name, pattern):
    found = re.search(pattern, read(name), re.M)
    return found.group(1) if found else f"nothing in {name}"


# A sentence of README with one figure in parentheses, and where that figure comes from.
FIGURES = [
    (r"has (\d+) checks", lambda: rows("docs/checks.md", r"^\| \[[a-z0-9.]+\]\(#")),
    (r"table of (\d+) GPU models", lambda: rows("validate/suite/gpu_models.tsv", r"^model\t")),
    (r"whose (\d+) figures and limits", lambda: rows("validate/suite/gpu_models.tsv", r"^(?:measured|floor)\t")),
    (r"found all (\d+) simulated faults", lambda: figure("docs/detection.md", r"^(\d+) faults, all found")),
    (r"no false alarm in ([\d,]+) runs of sound machines", lambda: figure("docs/detection.md", r"No false alarm in ([\d,]+) runs")),
]
# Numbers of README's text that measure nothing.
NO_FIGURES = [r"Debian 12/13 or Ubuntu 22\.04/24\.04", r"exits 8", r"\(2 cores\)", r"Apache-2\.0"]
# Files that a command writes.
MADE = ("docs/gpu-results", "build")


def no_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def readme_figures():
    text = " ".join(no_code(read("README.md")).split())
    for pattern, source in FIGURES:
        found = re.search(pattern, text)
        if not found:
            yield f"no text matches '{pattern}': change FIGURES in tests/lint/pages.py with the sentence"
        elif found.group(1) != str(source()):
            yield f"'{found.group(0)}' should be {source()}"
        text = re.sub(pattern, "", text)
    for pattern in NO_FIGURES:
        text = re.sub(pattern, "", text)
    for number in NUMBER.findall(text):
        yield f"figure {number} has no source: add it to FIGURES or NO_FIGURES in tests/lint/pages.py"


def readme_providers():
    named = set(re.findall(r"^\| `(\w+)` \|", read("README.md"), re.M))
    rows_of = figure("providers/provider.h", r"^#define PROVIDER_ROWS\(row\)((?:.*\\\n)*.*)")
    known = set(re.findall(r"row\((\w+)\)", rows_of))
    if named != known:
        yield f"its table has the providers {sorted(named)}, providers/provider.h {sorted(known)}"


def exit_codes():
    listed = figure("tests/unit/golden/help.txt", r"^exit codes:\n((?:  \d.*\n)*)")
    known = set(re.findall(r"^  (\d+) ", listed, re.M))
    table = read("docs/how-it-works.md").split("## Exit codes")[1].split("\n\n")[1]
    named = set(re.findall(r"^\| (\d+) \|", table, re.M))
    if named != known:
        yield f"its table has the exit codes {sorted(named)}, 'gpuprov --help' {sorted(known)}"


def words():
    """The words of `ends` that 'gpuprov providers' and JSON print are in the glossary."""
    for word in sorted(set(re.findall(r'\[ENDS_\w+\] *= *"([a-z-]+)"', read("core/model/offer.c")))):
        if f"`{word}`" not in read("docs/glossary.md"):
            yield f"the word '{word}' of offer_ends_name is missing"


def avoided(text):
    """Words of the glossary's last table that are never right in a text of ours."""
    for word in re.findall(r"\b(?:says|tells|asks|hears|believes|must hold|not reachable|set-up|unless said)\b", text):
        yield f"'{word}': docs/glossary.md has the word to use"


def files(page, text):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        if not (page.parent / target).exists():
            yield f"link to {target}: no such file"
    folders = "|".join(sorted(p.name for p in ROOT.iterdir() if p.is_dir() and p.name[0] not in "._"))
    for name in re.findall(rf"`((?:{folders})/[\w./*-]+)`", text):
        if not name.startswith(MADE) and not re.search(r"[A-Z]{3}", name) and not list(ROOT.glob(name.rstrip("/"))):
            yield f"{name}: no such file"


def commands(text):
    """Each line or span of code that starts gpuprov: its verb is one, its long options are that verb's."""
    manual = dict(re.findall(r"^gpuprov (\w+)(.*?)(?=^gpuprov |\Z)", read("tests/unit/golden/help-verbs.txt"), re.S | re.M))
    common = read("tests/unit/golden/help.txt")
    code = re.findall(r"^```(?:sh|console)\n(.*?)^```", text, re.S | re.M)
    lines = [line for block in code for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", text)
    for line in lines:
        found = re.match(r"(?:\$ )?(?:build/)?gpuprov ([a-z]+)(.*)", line)
        if not found:
            continue
        verb, words = found.group(1), found.group(2).split(" # ")[0].split(" -- ")[0]
        if verb not in manual:
            yield f"'{line}': no such verb"
            continue
        for option in re.findall(r"(?<!\S)--[a-z-]+", words):
            if f"{option} " not in manual[verb] + common and f"{option}\n" not in manual[verb] + common:
                yield f"'{line}': {verb} has no option {option}"


def keys(text):
    """Each `block.key` of a block of the spec is in docs/spec.md. `gpu.` is left out: so do names of checks begin."""
    for block, table in re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", read("docs/spec.md"), re.S | re.M):
        known = re.findall(r"^\| `(\w+)`", table, re.M)
        for key in re.findall(rf"`{block}\.([a-z_]+)`", text) if block != "gpu" else []:
            if key not in known:
                yield f"{block}.{key}: docs/spec.md has no such key"


PREFIXES = "GPUPROV|ALIBABA|AWS|AZURE|CLOUDSDK|GCE|GOOGLE|LAMBDA|LAMBDALABS|OS|RUNPOD|SHADEFORM"


def variables():
    """Every environment variable that a provider's code names is on the provider's page."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        code = "\n".join(f.read_text() for f in sorted((ROOT / "providers" / page.stem).glob("*.[ch]")))
        for name in sorted(set(re.findall(rf'"((?:{PREFIXES})_[A-Z0-9_]+)"', code))):
            if not re.search(rf"\b{name}\b", page.read_text()):
                yield f"docs/{page.name}: the variable {name} is not there, and providers/{page.stem} reads it"


def tests_named(text):
    """Each `FOLDER/test_FILE.py::NAME` is a test below tests/e2e."""
    for file, name in re.findall(r"`([\w/]+\.py)::(\w+)`", text):
        path = ROOT / "tests/e2e" / file
        if not path.exists() or not re.search(rf"^def {name}\(", path.read_text(), re.M):
            yield f"{file}::{name}: no such test"


def messages():
    """Each heading of docs/troubleshooting.md that is a message: its parts between '...' stand in one text of the source."""
    literal = r'"(?:[^"\\\n]|\\.)*"'
    texts = []
    for folder in ("core", "engine", "providers", "bootstrap", "cmd", "validate"):
        for path in (ROOT / folder).rglob("*.c"):
            for joined in re.findall(rf"(?:{literal}\s*)+", path.read_text()):
                texts.append("".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', joined)))
    for path in (ROOT / "templates" / "bootstrap").rglob("*.sh"):
        texts += path.read_text().replace("\\\n", "").splitlines()
    for heading in re.findall(r"^### `(.*)`$", read("docs/troubleshooting.md"), re.M):
        parts = [re.escape(part) for part in heading.split("...")]
        if not any(re.search(".*".join(parts), text) for text in texts):
            yield f"no message of the program is '{heading}'"


def main():
    problems = [f"README.md: {p}" for check in (readme_figures, readme_providers) for p in check()]
    problems += [f"docs/how-it-works.md: {p}" for p in exit_codes()]
    problems += [f"docs/glossary.md: {p}" for p in words()]
    problems += variables()
    problems += [f"docs/troubleshooting.md: {p}" for p in messages()]
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text()
        problems += [f"{page.relative_to(ROOT)}: {p}" for p in (*files(page, text), *commands(text), *keys(text), *tests_named(text))]
        if page.name not in ("decisions.md", "glossary.md"):
            problems += [f"{page.relative_to(ROOT)}: {p}" for p in avoided(text)]
    for page in [*sorted((ROOT / "tests/unit/golden").glob("help*.txt")), *sorted((ROOT / "examples").rglob("*.yaml"))]:
        problems += [f"{page.relative_to(ROOT)}: {p}" for p in avoided(page.read_text())]
    print("\n".join(problems) or "pages: figures, files, links, verbs, options and keys are those of the project")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
