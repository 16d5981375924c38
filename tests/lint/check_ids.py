#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No check is known by its id outside its row and its own files: the code around checks asks for flags of
check_info (validate/suite/checks.h). Prints file:line: rule; exit 1."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = ["cmd", "core", "engine", "bootstrap", "providers", "templates", "validate"]
ROWS = "validate/suite/rows/"
ID = re.compile(r'\.id = "([a-z]+\.[a-z0-9_]+)"')

# a check's own files, by the beginning of its id
OWN = {
    "gpu.": ["validate/agent/checks/gpu/"],
    "host.": ["validate/agent/checks/host/"],
    "nccl.": ["validate/agent/checks/nccl/"],
    "net.": ["validate/agent/checks/net/"],
    "train.": ["validate/agent/checks/train/"],
}
# In OWN, only the file of the check itself may name it, and these: the tables that give a row its code.
CODE_TABLES = ["validate/agent/kind_cuda.c", "validate/agent/checks/gpu/check_gpu.c",
               "validate/agent/checks/host/host_checks.c", "validate/agent/gang/gang_exchange.c"]
EXCEPTIONS = {
    # kept reports name the check that tells which GPUs a node has; a unit test holds it to the row's flag
    ("core/model/report.h", "gpu.presence"): "REPORT_IDENTITY_CHECK",
}


def strip_comments(text):
    return re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def is_own(path, check):
    folders = next((f for start, f in OWN.items() if check.startswith(start)), [])
    return (path.startswith(tuple(folders)) and check.split(".")[1] in path.rsplit("/", 1)[1]) or (
        check == "train.ddp" and path.startswith("validate/agent/checks/train/"))


def problems_of(path, text, ids):
    for i, line in enumerate(strip_comments(text).splitlines(), 1):
        for check in re.findall(r'"([a-z]+\.[a-z0-9_]+)"', line):
            if check not in ids or is_own(path, check) or (path, check) in EXCEPTIONS:
                continue
            if path in CODE_TABLES and f'.id = "{check}"' in line:
                continue
            yield f'{path}:{i}: "{check}" outside its row and its own file: use a flag of check_info'


def main():
    ids = {i for p in (ROOT / ROWS).glob("*.inc") for i in ID.findall(p.read_text(encoding="utf-8"))}
    found, files = [], 0
    for folder in CODE:
        for p in sorted((ROOT / folder).rglob("*")):
            path = str(p.relative_to(ROOT))
            if p.suffix not in (".c", ".h", ".inc", ".cu") or path.startswith(ROWS):
                continue
            files += 1
            found += problems_of(path, p.read_text(encoding="utf-8"), ids)
    print("\n".join(found + [f"check_ids: {len(ids)} checks, {files} files, {len(found)} problems"]))
    return 1 if found or len(ids) < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
