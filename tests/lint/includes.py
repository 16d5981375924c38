#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of the house that a compiler does not know: who may include whom, who may use which
library, who may exit, banned calls, headers of files, length. Prints file:line: rule; exit 1."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = ["cmd", "engine", "providers", "bootstrap", "templates", "validate", "core"]

# folder -> what it may include (prefixes of project paths). Longest folder wins.
MAY = {
    "cmd": ["cmd", "engine", "core", "providers", "validate", "templates"],
    "engine": ["engine", "providers", "bootstrap", "templates", "validate", "core"],
    "providers": ["core", "providers"],
    "bootstrap": ["bootstrap", "core", "templates"],
    "templates": ["templates", "core"],
    "validate": ["validate", "core", "templates", "bootstrap"],
    "validate/agent": ["validate/agent", "validate/suite/checks.h", "validate/suite/models.h",
                       "validate/suite/peers.h", "validate/suite/pick.h", "core/base"],
    "core/base": ["core/base"],
    "core/model": ["core/base", "core/model"],
    "core/journal": ["core/base", "core/model", "core/journal"],
    "core/ssh": ["core/base", "core/ssh", "core/model/event.h"],
    "core/output": ["core/base", "core/model", "core/output"],
}
# A provider may use its own folder, the catalogue, and what lies flat in providers/.
PROVIDER_SHARED = ["providers/catalog", "providers/common"]

# system header -> the only places that may include it
LIBRARY = {
    r"curl/": ["providers/http"],
    r"libssh2": ["core/ssh/"],
    r"sqlite3\.h": ["core/journal/"],
    r"expat\.h": ["core/base/xml.c"],
    r"yaml\.h": ["core/base/yaml.c"],
}
EXITS = re.compile(r"\b(exit|_exit|_Exit|quick_exit)\s*\(")
# Own processes, not gpuprov's: the agent's programs; children that were forked and end themselves.
MAY_EXIT = ["cmd/main.c", "validate/agent/"]
# The environment is nobody's to change, but NCCL has no other way to be told: one file, not by setenv.
ENVIRON = re.compile(r"\benviron\s*=[^=]|&\s*environ\b")
MAY_SET_ENVIRON = "validate/agent/comm/nccl_setting.c"
BANNED = re.compile(
    r"\b(strcpy|strcat|strncpy|strncat|sprintf|vsprintf|strtok|atoi|atol|atof|gets|system|popen|"
    r"longjmp|setjmp|pthread_cancel|alloca|mktemp|tmpnam|setenv|putenv)\s*\("
)
MAX_LINES = 600


def strip(text):
    """Comments and strings become blanks of the same length, so that lines stay."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def rule_of(path):
    best = max((f for f in MAY if path.startswith(f + "/")), key=len, default=None)
    return best


def resolve(path, name):
    """Where a quoted include leads, as the compiler would look: own folder, core/, the root."""
    for base in (ROOT / path).parent, ROOT / "core", ROOT:
        if (base / name).is_file():
            return str((base / name).resolve().relative_to(ROOT))
    return None


def includes(path, text, problems):
    rule = rule_of(path)
    first = None
    for i, line in enumerate(text.splitlines(), 1):
        m = re.match(r'\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', line)
        if not m:
            continue
        quoted, system = m.groups()
        first = first or quoted or system
        if system:
            for lib, places in LIBRARY.items():
                if re.match(lib, system) and not path.startswith(tuple(places)):
                    problems.append((path, i, f"<{system}> belongs to {places[0]} alone"))
            continue
        target = resolve(path, quoted)
        if target is None:
            if not quoted.startswith("gen/"):
                problems.append((path, i, f'"{quoted}" is nowhere'))
            continue
        allowed = [p + "/" if not p.endswith(".h") else p for p in MAY[rule]]
        if not target.startswith(tuple(allowed)):
            problems.append((path, i, f"{rule}/ may not include {target} (ARCHITECTURE, Folders)"))
        m = re.match(r"providers/([a-z]+)/", path)
        t = re.match(r"providers/([a-z]+)/", target)
        if m and t and m.group(1) != t.group(1) and f"providers/{t.group(1)}" not in PROVIDER_SHARED:
            problems.append((path, i, f"provider {m.group(1)} may not include {target}"))
    if path.endswith(".c") and first != "base/gp_base.h":
        problems.append((path, 1, 'the first include is "base/gp_base.h"'))


def check(path, problems):
    text = (ROOT / path).read_text(encoding="utf-8")
    lines = text.splitlines()
    head = lines[0] if lines else ""
    if not re.match(r"(/\*|//) SPDX-License-Identifier: Apache-2\.0( \*/)?$", head):
        problems.append((path, 1, "the first line is the SPDX line"))
    if path.endswith(".c") and not (len(lines) > 1 and lines[1].startswith("/*")):
        problems.append((path, 2, "a comment says what the file is for"))
    if len(lines) > MAX_LINES:
        problems.append((path, len(lines), f"more than {MAX_LINES} lines"))
    includes(path, text, problems)
    bare = strip(text)
    forks = path.startswith("providers/local/") or "fork(" in bare
    for i, line in enumerate(bare.splitlines(), 1):
        if len(lines[i - 1]) > 120:
            problems.append((path, i, "longer than 120 columns"))
        if path == "core/base/gp_base.h":
            continue
        m = BANNED.search(line)
        if m and not line.lstrip().startswith("#"):
            problems.append((path, i, f"{m.group(1)} is banned (base/gp_base.h, STYLE)"))
        if ENVIRON.search(line) and path != MAY_SET_ENVIRON:
            problems.append((path, i, f"only {MAY_SET_ENVIRON} changes the environment"))
        if EXITS.search(line) and not forks and not path.startswith(tuple(MAY_EXIT)):
            problems.append((path, i, "only main exits"))
        if re.search(r"\bexit\s*\(", line) and forks and not path.startswith(tuple(MAY_EXIT)):
            problems.append((path, i, "a forked child ends by _exit"))


def main():
    problems = []
    files = [p for d in CODE for p in (ROOT / d).rglob("*.[ch]")]
    for p in sorted(files):
        check(str(p.relative_to(ROOT)), problems)
    for p in sorted(p for p in (ROOT / "tests").rglob("*") if p.suffix in (".c", ".h", ".py", ".sh")):
        n = len(p.read_text(encoding="utf-8").splitlines())
        if n > MAX_LINES:
            problems.append((str(p.relative_to(ROOT)), n, f"more than {MAX_LINES} lines"))
    for path, line, rule in problems:
        print(f"{path}:{line}: {rule}")
    if not files:
        print("includes: no files")
        return 1
    print(f"includes: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
