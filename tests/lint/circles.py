#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No file of engine/ calls, directly or through others of engine/, a file that calls it back: the story reads from
top to bottom. Usage: circles.py OBJECT_FOLDER (build/obj). Which file defines and which uses a function comes from
nm over the object files. Prints each circle with the calls that close it; exit 1. --graph prints who calls whom."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = "engine"
# Circles that stay: {file, file}: reason. A row that no circle needs is an error.
ALLOWED = {}


def symbols(objects):
    """{file: (defined, used)}: the functions that each file defines for others, and those it uses of others."""
    table = {}
    for source in sorted((ROOT / FOLDER).rglob("*.c")):
        name = str(source.relative_to(ROOT))
        out = subprocess.run(["nm", "-g", (objects / name).with_suffix(".o")], check=True, capture_output=True,
                             text=True).stdout
        defined, used = set(), set()
        for line in out.splitlines():
            kind, symbol = line.split()[-2:]
            (used if kind == "U" else defined).add(symbol)
        table[name] = defined, used
    return table


def calls(table):
    """{caller: {callee: [functions]}}"""
    owner = {symbol: name for name, (defined, _) in table.items() for symbol in defined}
    graph = {name: {} for name in table}
    for name, (_, used) in table.items():
        for symbol in sorted(used & owner.keys()):
            graph[name].setdefault(owner[symbol], []).append(symbol)
    return graph


def reached(graph, start):
    seen, todo = set(), list(graph[start])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += graph[name]
    return seen


def circles(graph):
    """Groups of files, each of which reaches every other of its group."""
    reach = {name: reached(graph, name) for name in graph}
    groups = {frozenset(b for b in reach[a] if a in reach[b]) for a in graph if a in reach[a]}
    return sorted(groups, key=sorted)


def main():
    objects = pathlib.Path(sys.argv[1]).resolve()
    graph = calls(symbols(objects))
    if "--graph" in sys.argv:
        for name, callees in graph.items():
            print(name)
            for callee, functions in sorted(callees.items()):
                print(f"    {callee}: {', '.join(functions)}")
    bad = 0
    found = circles(graph)
    for group in found:
        if group in ALLOWED:
            continue
        bad += 1
        print(f"circle of {len(group)} files:")
        for name in sorted(group):
            for callee in sorted(group & graph[name].keys()):
                print(f"    {name} calls {callee}: {', '.join(graph[name][callee])}")
    for group in ALLOWED.keys() - set(found):
        bad += 1
        print(f"no such circle any more: {', '.join(sorted(group))}")
    print(f"circles: {len(graph)} files, {bad} problems")
    return 1 if bad or not graph else 0


if __name__ == "__main__":
    sys.exit(main())
