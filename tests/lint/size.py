#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints figures of the code's form, per folder: files, lines, functions, the longest function, functions over
60 lines, includes in a header, and the header that most files include. Refuses (exit 1) a folder with more
source files than the limit; a file's limit is in includes.py. Usage: size.py [--limits] [TREE]"""
import collections
import pathlib
import re
import sys

import includes

LONG = 60
MAX_FILES = 35

INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)', re.MULTILINE)


def functions(text):
    """(name, first line, lines) of each function with a body: from its declaration to its closing brace."""
    bare = includes.without_comments_and_text(text)
    bare = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", includes.blank, bare, flags=re.MULTILINE)
    found, depth, begin, after = [], 0, None, 0
    for m in re.finditer(r"[{};]", bare):
        if m.group() == ";" and depth == 0:
            after = m.end()
        elif m.group() == "{":
            head = bare[after:m.start()]
            if depth == 0 and re.search(r"\)\s*$", head) and "=" not in head:
                begin = after + len(head) - len(head.lstrip())
            depth += 1
        elif m.group() == "}":
            depth -= 1
            if depth == 0 and begin is not None:
                name = re.search(r"(\w+)\s*\(", bare[begin:m.start()])
                first = bare.count("\n", 0, begin) + 1
                found.append((name.group(1) if name else "?", first, bare.count("\n", begin, m.end()) + 1))
                begin = None
            if depth == 0:
                after = m.end()
    return found


class Folder:
    def __init__(self):
        self.files = self.lines = self.headers = self.includes = self.functions = self.long = 0
        self.longest = (0, "-")
        self.widest = (0, "-")


def measure(root):
    """{folder: Folder} of the product's code."""
    folders, users, texts = collections.defaultdict(Folder), collections.Counter(), {}
    tree = includes.Tree(root)
    for path in tree.code():
        texts[path] = text = (tree.root / path).read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            m = INCLUDE.match(line)
            target = tree.resolve(path, m.group(1), quoted=True) if m else None
            if target:
                users[target] += 1
    for path, text in texts.items():
        f = folders[path.rsplit("/", 1)[0]]
        f.files += 1
        f.lines += text.count("\n")
        name = path.rsplit("/", 1)[1]
        if path.endswith(".h"):
            f.headers += 1
            f.includes += len(INCLUDE.findall(text))
            f.widest = max(f.widest, (users[path], name))
        for function, _, lines in functions(text):
            f.functions += 1
            f.long += lines > LONG
            f.longest = max(f.longest, (lines, function))
    return folders


def show(folders):
    form = "{:28} {:>5} {:>6} {:>5} {:>5} {:<32} {:>5}  {:<24}"
    print(form.format("folder", "files", "lines", "func", f">{LONG}", "longest function", "inc/h", "most included"))
    for name, f in sorted(folders.items()):
        per = f"{f.includes / f.headers:.1f}" if f.headers else "-"
        print(form.format(name, f.files, f.lines, f.functions, f.long, "{} {}".format(*f.longest), per,
                          "{} {}".format(*f.widest)))
    all_of = list(folders.values())
    headers, total = sum(f.headers for f in all_of), sum(f.includes for f in all_of)
    print(form.format("all", sum(f.files for f in all_of), sum(f.lines for f in all_of),
                      sum(f.functions for f in all_of), sum(f.long for f in all_of),
                      "{} {}".format(*max(f.longest for f in all_of)), f"{total / headers:.1f}",
                      "{} {}".format(*max(f.widest for f in all_of))))


def over(folders):
    return [f"{name}: {f.files} source files, at most {MAX_FILES}: divide the folder"
            for name, f in sorted(folders.items()) if f.files > MAX_FILES]


def main():
    words = [w for w in sys.argv[1:] if w != "--limits"]
    folders = measure(words[0] if words else pathlib.Path(__file__).parents[2])
    if "--limits" not in sys.argv:
        show(folders)
    problems = over(folders) if not words else []
    for problem in problems:
        print(f"size: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
