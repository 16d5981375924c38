#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The test of includes.py: a small tree that keeps every rule is planted with violations, and each must be
reported with its file and line, and nothing else. Run by `make lint`."""
import pathlib
import tempfile
import unittest

import includes
import size

HEADER = "/* SPDX-License-Identifier: Apache-2.0 */\n/* Purpose. */\n"

# The small tree: files that keep the rules; the include lines of each.
SOUND = {
    "core/base/gp_base.h": [],
    "core/base/str.h": [],
    "core/base/json.h": ["<jansson.h>"],
    "core/base/xml.c": ['"base/gp_base.h"', "<expat.h>"],
    "core/model/event.h": ['"base/str.h"'],
    "core/spec/spec.h": ['"base/json.h"'],
    "core/spec/spec_internal.h": ['"spec/spec.h"'],
    "core/journal/journal.h": ['"spec/spec.h"'],
    "core/journal/columns.h": ["<sqlite3.h>"],
    "core/ssh/ssh.h": ['"model/event.h"'],
    "core/ssh/ssh_private.h": ["<libssh2.h>"],
    "core/output/output.h": ['"model/event.h"'],
    "templates/templates.h": ['"base/str.h"'],
    "bootstrap/bootstrap.h": ['"templates/templates.h"'],
    "bootstrap/steps.h": [],
    "providers/provider.h": ['"journal/journal.h"'],
    "providers/http.h": [],
    "providers/http_int.h": [],
    "providers/http.c": ['"base/gp_base.h"', '"providers/http.h"', "<curl/curl.h>"],
    "providers/catalog/catalog.h": [],
    "providers/aws/aws.h": [],
    "providers/aws/aws_int.h": ['"providers/provider.h"', '"providers/catalog/catalog.h"', '"providers/http.h"'],
    "providers/local/local.h": [],
    "providers/local/layers.h": ["<stdbool.h>"],
    "providers/ssh/hosts.h": [],
    "providers/other/other.h": ['"providers/provider.h"'],
    "validate/suite/checks.h": [],
    "validate/suite/checks.c": ['"base/gp_base.h"', '"validate/suite/rows/gpu.inc"'],
    "validate/suite/rows/gpu.inc": [],
    "validate/suite/models.c": ['"base/gp_base.h"', '"gen/gpu_models.inc"'],
    "validate/agent/agent.h": ['"validate/suite/checks.h"'],
    "validate/agent/device/numeric.h": [],
    "validate/agent/device/host_gemm.h": [],
    "validate/agent/cuda/cuda.h": ['"validate/agent/agent.h"'],
    "validate/agent/cuda/kernels/gemm.cu": ['"gemm_body.inc"', '"../../device/numeric.h"'],
    "validate/agent/cuda/kernels/gemm_body.inc": [],
    "validate/agent/gang/gang.h": ['"validate/agent/agent.h"'],
    "validate/agent/run/run.h": ['"validate/agent/gang/gang.h"'],
    "validate/validate.h": ['"bootstrap/bootstrap.h"'],
    "validate/lines.h": [],
    "engine/engine.h": ['"journal/journal.h"'],
    "engine/run.h": ['"providers/provider.h"', '"validate/validate.h"', '"engine/engine.h"'],
    "engine/bare.c": ['"base/gp_base.h"', '"engine/run.h"', '"providers/ssh/hosts.h"'],
    "cmd/verbs.h": ['"engine/engine.h"', '"providers/aws/aws.h"'],
}

# A new file, its third line (for .c the fourth, after gp_base.h), and what must be reported there.
PLANTS = [
    # upwards, in every form of a project include
    ("core/base/up.c", '#include "spec/spec.h"', "core/base may not include core/spec/spec.h"),
    ("core/base/angle.h", "#include <spec/spec.h>", "core/base may not include core/spec/spec.h"),
    ("core/model/up.c", "#include <engine/engine.h>", "core/model may not include engine/engine.h"),
    ("core/output/up.c", "#include <engine/engine.h>", "core/output may not include engine/engine.h"),
    ("core/output/spaced.h", "  #  include\t<engine/engine.h>", "core/output may not include engine/engine.h"),
    ("core/output/dots.h", '#include "../../engine/engine.h"', "core/output may not include engine/engine.h"),
    ("core/output/digraph.h", '%:include "engine/engine.h"', "core/output may not include engine/engine.h"),
    ("core/output/comment.h", '#include /* why */ "engine/engine.h"', "core/output may not include engine/engine.h"),
    ("core/output/macro.h", "#include WHERE", "an include names its file"),
    ("core/output/split.h", "#include \\", "an include names its file"),
    ("core/output/journal.c", '#include "journal/journal.h"', "core/output may not include core/journal/journal.h"),
    ("core/ssh/up.h", '#include "spec/spec.h"', "core/ssh may not include core/spec/spec.h"),
    ("core/journal/up.h", '#include "providers/provider.h"', "core/journal may not include providers/provider.h"),
    ("templates/up.c", '#include "engine/engine.h"', "templates may not include engine/engine.h"),
    ("templates/up.h", '#include "spec/spec.h"', "templates may not include core/spec/spec.h"),
    ("bootstrap/up.c", '#include "engine/engine.h"', "bootstrap may not include engine/engine.h"),
    ("bootstrap/ssh.h", '#include "ssh/ssh.h"', "bootstrap may not include core/ssh/ssh.h"),
    ("validate/up.c", '#include "engine/engine.h"', "validate may not include engine/engine.h"),
    ("providers/up.h", '#include "engine/engine.h"', "providers may not include engine/engine.h"),
    ("engine/up.h", '#include "cmd/verbs.h"', "engine may not include cmd/verbs.h"),
    # private headers
    ("engine/private.c", '#include "providers/aws/aws_int.h"', "engine may not include providers/aws/aws_int.h"),
    ("engine/private.h", "#include <providers/aws/aws_int.h>", "engine may not include providers/aws/aws_int.h"),
    ("engine/steps.h", '#include "bootstrap/steps.h"', "engine may not include bootstrap/steps.h"),
    ("engine/columns.h", '#include "journal/columns.h"', "engine may not include core/journal/columns.h"),
    ("engine/tables.h", '#include "spec/spec_internal.h"', "engine may not include core/spec/spec_internal.h"),
    ("engine/session.h", '#include "ssh/ssh_private.h"', "engine may not include core/ssh/ssh_private.h"),
    ("engine/lines.h", '#include "validate/lines.h"', "engine may not include validate/lines.h"),
    ("cmd/run.c", '#include "engine/run.h"', "cmd may not include engine/run.h"),
    ("cmd/layers.c", '#include "providers/local/layers.h"', "cmd may not include providers/local/layers.h"),
    # providers know the contract, not each other
    ("providers/local/sister.c", '#include "providers/aws/aws.h"', "providers/local may not include providers/aws/"),
    ("providers/local/proxy/up.h", '#include "providers/local/layers.h"', "providers/local/proxy may not include"),
    ("providers/aws/sister.h", '#include "providers/ssh/hosts.h"', "providers/aws may not include providers/ssh/"),
    ("providers/other/sister.h", '#include "providers/aws/aws.h"', "providers/other may not include providers/aws/"),
    ("providers/another/sister.h", '#include "providers/other/other.h"', "providers/another may not include"),
    ("providers/http_more.h", '#include "providers/aws/aws_int.h"', "providers/http* may not include providers/aws/"),
    ("providers/aws/http.h", '#include "providers/http_int.h"', "providers/aws may not include providers/http_int.h"),
    # the agent stands alone, and its rooms have an order
    ("engine/agent.c", '#include "validate/agent/agent.h"', "engine may not include validate/agent/agent.h"),
    ("validate/agent.c", '#include "validate/agent/agent.h"', "validate may not include validate/agent/agent.h"),
    ("validate/agent/ssh.c", '#include "ssh/ssh.h"', "validate/agent may not include core/ssh/ssh.h"),
    ("validate/agent/run/spec.h", '#include "spec/spec.h"', "validate/agent/run may not include core/spec/spec.h"),
    ("validate/agent/base/gang.h", '#include "validate/agent/gang/gang.h"', "validate/agent/base may not include"),
    ("validate/agent/device/up.h", '#include "validate/agent/agent.h"', "validate/agent/device may not include"),
    ("validate/agent/gang/run.h", '#include "validate/agent/run/run.h"', "validate/agent/gang may not include"),
    ("validate/agent/gang/gemm.h", '#include "validate/agent/device/host_gemm.h"', "validate/agent/gang may not"),
    ("validate/suite/agent.h", '#include "validate/agent/agent.h"', "validate/suite may not include"),
    # .inc and .cu
    ("validate/suite/rows/up.inc", '#include "engine/engine.h"', "validate/suite may not include engine/engine.h"),
    ("core/model/rows.inc", "#include <journal/journal.h>", "core/model may not include core/journal/journal.h"),
    ("validate/agent/cuda/kernels/up.cu", '#include "engine/engine.h"', "validate/agent/cuda/kernels may not include"),
    ("validate/agent/cuda/kernels/up_agent.cu", '#include "validate/agent/agent.h"', "validate/agent/cuda/kernels may"),
    ("engine/rows.h", '#include "validate/suite/rows/gpu.inc"', "engine may not include validate/suite/rows/gpu.inc"),
    ("engine/source.h", '#include "engine/bare.c"', "engine may not include engine/bare.c"),
    ("engine/models.h", "#include <gen/gpu_models.inc>", "only validate/suite/models.c may include"),
    ("engine/models2.h", '#include "gpu_models.inc"', "only validate/suite/models.c may include"),
    ("engine/nowhere.h", '#include "engine/nothing.h"', '"engine/nothing.h" is not in this tree'),
    # libraries
    ("core/output/json.c", "#include <jansson.h>", "only core/base/json.h may include <jansson.h>"),
    ("engine/json.h", "#include <jansson.h>", "only core/base/json.h may include <jansson.h>"),
    ("cmd/ssh.c", "#include <libssh2.h>", "only core/ssh/ may include <libssh2.h>"),
    ("core/ssh/curl.h", "#include <curl/curl.h>", "only providers/http may include <curl/curl.h>"),
    ("engine/sql.h", "#include <sqlite3.h>", "only core/journal/ may include <sqlite3.h>"),
    ("core/base/yaml2.h", "#include <yaml.h>", "only core/base/yaml.c may include <yaml.h>"),
    ("providers/aws/expat.h", "#include <expat.h>", "only core/base/xml.c may include <expat.h>"),
    ("engine/hash.h", "#include <openssl/evp.h>", "may include <openssl/evp.h>"),
    ("engine/zip.h", "#include <zlib.h>", "may include <zlib.h>"),
    ("engine/open.h", "#include <dlfcn.h>", "only validate/agent/ may include <dlfcn.h>"),
    ("validate/agent/cuda/cuda_api.h", "#include <cuda_runtime.h>", "only nobody may include <cuda_runtime.h>"),
    ("validate/agent/comm/nccl_api.h", "#include <nccl.h>", "only nobody may include <nccl.h>"),
    ("engine/multiarch.h", "#include <x86_64-linux-gnu/curl/curl.h>", "only providers/http may include"),
    ("engine/absolute.h", "#include </usr/include/sqlite3.h>", "is not a library's own name"),
    ("engine/dot.h", "#include <./sqlite3.h>", "is not a library's own name"),
    ("engine/up_dot.h", "#include <../include/sqlite3.h>", "is not a library's own name"),
    # ways around the form of an include
    ("engine/embed.h", '#embed "providers/aws/aws_int.h"', "none is #embed"),
    ("engine/halves.h", '#inc\\', "a directive is in one line"),
    ("engine/bare_hash.h", '#\\', "a directive is in one line"),
    ("engine/tests.h", '#include "tests/unit/rates.h"', "tests/unit/rates.h is in no room"),
    # calls, also in .inc and .cu
    ("engine/exits.c", "void f(void) { exit(1); }", "only main exits"),
    ("engine/exits.inc", "static void f(void) { _exit(1); }", "only main exits"),
    ("providers/local/child.c", "void f(void) { exit(1); }", "a forked child ends by _exit"),
    ("engine/banned.c", "int f(char *s) { return atoi(s); }", "atoi is banned"),
    ("core/model/banned.h", "#define X 1\nstatic inline void g(char *d) { strcpy(d, d); }", "strcpy is banned"),
    ("validate/agent/cuda/kernels/banned.cu", "void f(char *s) { sprintf(s, s); }", "sprintf is banned"),
    ("engine/environ.c", "void f(void) { environ = NULL; }", "changes the environment"),
    ("engine/wide.inc", "// " + "x" * 118, "longer than 120 columns"),
]

# Whole files: (path, text, line, what is reported)
WHOLE = [
    ("engine/licence.c", "/* x */\n/* x */\n" + '#include "base/gp_base.h"\n', 1, "the SPDX line"),
    ("engine/licence.cu", "/* x */\n/* x */\n", 1, "the SPDX line"),
    ("engine/purpose.c", HEADER.split("\n")[0] + '\n#include "base/gp_base.h"\n', 2, "the file's purpose"),
    ("engine/first.c", HEADER + "#include <stdio.h>\n", 1, "the first include is"),
    ("engine/long.inc", HEADER + "\n" * 599, 601, "more than 600 lines"),
    ("core/new/new.h", HEADER, 1, "no row of ROOMS"),
]

# What looks like a violation and is none.
HARMLESS = [
    ("engine/comment.c", '/* exit(1); */\n// #include "cmd/verbs.h"\n/*\n#include "cmd/verbs.h"\n*/'),
    ("engine/text.c", 'static const char *const t = "system(x)";'),
    ("engine/system.c", "#include <errno.h>"),
    ("providers/another/twin.h", '#include "sister.h"'),
    ("engine/part/inner.h", '#include "engine/run.h"'),
]


def text_of(path, lines):
    base = '#include "base/gp_base.h"\n' if path.endswith(".c") else ""
    return HEADER + base + lines + "\n"


class Includes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for path, names in SOUND.items():
            self.write(path, HEADER + "".join(f"#include {n}\n" for n in names))
        self.write("tests/unit/rates.h", HEADER)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def run_rules(self):
        tree = includes.Tree(self.root)
        tree.check_all()
        return tree.problems

    def test_a_sound_tree_has_no_problem(self):
        for path, lines in HARMLESS:
            self.write(path, text_of(path, lines))
        self.write("providers/another/sister.h", HEADER)
        self.assertEqual(self.run_rules(), [])

    def test_each_plant_is_reported_with_file_and_line(self):
        expected = {}
        for path, lines, what in PLANTS:
            text = text_of(path, lines)
            self.assertFalse((self.root / path).exists(), path)
            self.write(path, text)
            expected[path] = (len(text.splitlines()), what)
        for path, text, line, what in WHOLE:
            self.write(path, text)
            expected[path] = (line, what)
        got = self.run_rules()
        for path, line, rule in got:
            with self.subTest(path):
                self.assertIn(path, expected, rule)
                self.assertEqual(line, expected[path][0], rule)
                self.assertIn(expected[path][1], rule)
        self.assertEqual(sorted(p for p, _, _ in got), sorted(expected))

    def test_the_length_of_tests_is_limited(self):
        self.write("tests/e2e/test_long.py", "\n" * 601)
        self.assertEqual(self.run_rules(), [("tests/e2e/test_long.py", 601, "more than 600 lines")])

    def test_the_table_has_no_circle_and_no_stale_row(self):
        tree = includes.Tree(pathlib.Path(__file__).parents[2])
        tree.check_all()
        tree.check_table()
        self.assertEqual(tree.problems, [])
        rooms, exceptions = dict(includes.ROOMS), dict(includes.EXCEPTIONS)
        try:
            includes.ROOMS["core/base"] = (["*.h"], ["engine"])
            includes.ROOMS["core/journal"] = (["gone.h"], [])
            includes.EXCEPTIONS[("engine/up.c", "cmd/app.h")] = "no reason"
            tree.problems.clear()
            tree.check_table()
            said = " ".join(rule for _, _, rule in tree.problems)
        finally:
            includes.ROOMS.update(rooms)
            includes.EXCEPTIONS.clear()
            includes.EXCEPTIONS.update(exceptions)
        for part in ("core/base: engine is not above it", "core/journal: there is no header gone.h",
                     "('engine/up.c', 'cmd/app.h') is not needed"):
            self.assertIn(part, said)

    def test_functions_are_measured_and_folders_limited(self):
        body = ("#define F(x) \\\n    { x; }\nstatic const int table[] = {1, 2};\nstruct s {\n    int n;\n};\n"
                "static int\nlong_one(int a) {\n" + "    if (a) {\n    }\n" * 30 + "    return a; /* } */\n}\n"
                "int short_one(void) { return sizeof(\"}\"); }\n")
        self.assertEqual([(n, c) for n, _, c in size.functions(body)], [("long_one", 64), ("short_one", 1)])
        for i in range(size.MAX_FILES):
            self.write(f"engine/part/f{i}.h", HEADER)
        self.assertEqual(size.over(size.measure(self.root)), [])
        self.write("engine/part/last.c", HEADER + '#include "base/gp_base.h"\n' + body)
        folders = size.measure(self.root)
        self.assertEqual(size.over(folders), ["engine/part: 36 source files, at most 35: divide the folder"])
        self.assertEqual((folders["engine/part"].longest, folders["engine/part"].long), ((64, "long_one"), 1))


if __name__ == "__main__":
    unittest.main()
