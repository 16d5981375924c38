#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules that a compiler does not know: who may include whom, who may use which library, who may
exit, banned calls, the first lines of a file, its length. Prints file:line: rule; exits 1 on a problem.
Usage: includes.py [TREE]. CONTRIBUTING.md has the rules for people; test_includes.py plants violations."""
import fnmatch
import pathlib
import re
import sys

CODE = ["cmd", "engine", "providers", "bootstrap", "templates", "validate", "core"]
SUFFIXES = (".c", ".h", ".cu", ".inc")

# room: (its public headers, "!" before a name that is none; what it may include besides itself).
# * A room is a folder with what lies below it, or files by name (with *); the longest match wins.
#   providers/* stands for each provider's folder that has no row.
# * A room may include any header of its own and the public ones of the rooms that it names. A name that ends
#   in .h allows that header only.
# * A room names only rooms above it in this table, so there are no circles.
ALL = ["*.h"]
CORE = ["core/base", "core/software", "core/spec", "core/model", "core/journal", "core/ssh", "core/tree", "core/output"]
ROOMS = {
    "core/base": (ALL, []),
    "core/software": (["software.h"], ["core/base"]),
    "core/spec": (["*.h", "!spec_internal.h"], ["core/base", "core/software"]),
    "core/model": (ALL, ["core/base", "core/spec"]),
    "core/journal": (["journal.h"], ["core/base", "core/spec", "core/model"]),
    "core/ssh": (["ssh.h", "link.h"], ["core/base", "core/model/event.h"]),
    # Files and folders as a stream; both sides of the wire use it.
    "core/tree": (["list.h", "sha256.h", "tree.h"], ["core/base"]),
    "core/output": (["export_forms.h", "output.h", "report_forms.h", "width.h"], ["core/base", "core/spec", "core/model"]),
    "templates": (["templates.h"], ["core/base"]),
    "bootstrap": (["bootstrap.h"], ["core/base", "core/software", "core/spec", "core/model", "core/ssh/link.h",
                                    "templates"]),
    # Facts about checks and GPU models; both sides of the wire use them.
    "validate/suite": (ALL, ["core/base"]),
    # The contract, what all providers share, each provider by itself, and the table of them.
    "providers/provider.*": (ALL, ["core/base", "core/spec", "core/model", "core/journal"]),
    "providers/http*": (["http.h"], ["core/base"]),
    "providers/common": (ALL, ["core/base", "core/spec", "core/model", "validate/suite/models.h", "providers/provider.*",
                               "providers/http*"]),
    "providers/catalog": (["catalog.h"], ["core/base"]),
    # Object stores: the contract and the table of them; each is in the folder of the provider whose credentials it takes.
    "providers/bucket": (["bucket.h"], ["core/base", "core/spec", "providers/http*", "providers/common"]),
    "providers/aws": (["aws.h"], ["core/base", "core/spec", "core/model", "providers/provider.*", "providers/http*",
                                  "providers/common", "providers/catalog", "providers/bucket"]),
    "providers/runpod": ([], ["core/base", "core/software", "core/spec", "core/model", "providers/provider.*",
                              "providers/http*", "providers/common", "providers/catalog"]),
    # What reads the nodes' requests knows nothing of the holder that forks it.
    "providers/local/ns": (ALL, ["core/base"]),
    "providers/local/proxy": (["proxy.h"], ["core/base", "providers/local/ns"]),
    "providers/local": (["local.h"], ["core/base", "core/spec", "core/model", "providers/provider.*", "providers/common",
                                      "providers/local/ns",
                                      "providers/local/proxy"]),
    "providers/ssh": (["hosts.h"],
                      ["core/base", "core/spec", "core/model", "core/ssh", "providers/provider.*", "providers/common"]),
    "providers/*": ([], ["core/base", "core/spec", "core/model", "core/ssh", "providers/provider.*", "providers/http*",
                         "providers/common", "providers/catalog", "providers/bucket"]),
    "providers": ([], ["core/base", "core/spec", "core/model", "providers/provider.*", "providers/local"]),
    # The agent: nothing of the controller but core/base.
    "validate/agent/device": (["device.h", "numeric.h"], ["core/base"]),
    "validate/agent/comm/comm.*": (ALL, ["core/base", "validate/agent/device/device.h"]),
    "validate/agent/agent.*": (ALL, ["core/base", "validate/suite", "validate/agent/device/device.h",
                                   "validate/agent/comm/comm.*"]),
    "validate/agent/verbs.*": (ALL, ["validate/agent/agent.*"]),
    "validate/agent/base": (["command.h", "emit.h", "engine.h", "kernlog.h", "proc.h", "rank_dir.h", "tcp.h",
                             "worker.h"],
                            ["core/base", "validate/agent/agent.*", "validate/agent/verbs.*"]),
    "validate/agent/cuda/kernels": (["collective.h", "gemm.h", "known.h", "memory.h"],
                                    ["validate/agent/device/numeric.h"]),
    "validate/agent/cuda": (["cuda.h", "nvml_cuda.h"], ["core/base", "validate/agent/agent.*", "validate/agent/device",
                                                        "validate/agent/cuda/kernels"]),
    "validate/agent/comm": (["comm_tcp.h", "nccl_cuda.h"],
                            ["core/base", "core/tree", "validate/agent/agent.*", "validate/agent/base", "validate/agent/device",
                             "validate/agent/cuda", "validate/agent/comm/comm.*"]),
    "validate/agent/gang": (["gang.h"], ["core/base", "validate/agent/agent.*", "validate/agent/device"]),
    "validate/agent/checks/host": (["host.h"], ["core/base", "validate/agent/agent.*", "validate/agent/base",
                                                "validate/agent/device"]),
    "validate/agent/checks/gpu": (["gpu.h", "health_cuda.h", "samples.h"],
                                  ["core/base", "validate/agent/agent.*", "validate/agent/base",
                                   "validate/agent/device", "validate/agent/cuda", "validate/agent/cuda/kernels"]),
    "validate/agent/checks/nccl": ([], ["core/base", "validate/agent/agent.*", "validate/agent/cuda/kernels",
                                        "validate/agent/comm", "validate/agent/gang"]),
    "validate/agent/checks/net": ([], ["core/base", "validate/agent/agent.*", "validate/agent/device",
                                       "validate/agent/comm", "validate/agent/gang"]),
    "validate/agent/checks/train": ([], ["core/base", "validate/agent/agent.*", "validate/agent/verbs.*",
                                         "validate/agent/device", "validate/agent/gang"]),
    "validate/agent/cache": ([], ["core/base", "core/tree", "validate/agent/verbs.*", "validate/agent/base"]),
    "validate/agent/watch": (["watch_cuda.h"], ["core/base", "validate/agent/agent.*", "validate/agent/verbs.*",
                                                "validate/agent/base", "validate/agent/cuda",
                                                "validate/agent/checks/gpu"]),
    "validate/agent/job": ([], ["core/base", "validate/agent/verbs.*", "validate/agent/base"]),
    "validate/agent/tree": ([], ["core/base", "core/tree", "validate/agent/verbs.*", "validate/agent/base"]),
    "validate/agent/checks/framework": ([], ["core/base", "validate/agent/agent.*", "validate/agent/base",
                                             "validate/agent/gang"]),
    "validate/agent/run": ([], ["core/base", "validate/suite", "validate/agent/agent.*", "validate/agent/verbs.*",
                                "validate/agent/base", "validate/agent/gang"]),
    "validate/agent/tools": ([], ["core/base"]),
    "validate/agent": ([], ["core/base", "validate/suite", "validate/agent/agent.*", "validate/agent/verbs.*",
                            "validate/agent/comm/comm.*", "validate/agent/device", "validate/agent/cuda",
                            "validate/agent/comm", "validate/agent/checks/gpu", "validate/agent/watch"]),
    # The controller's half of validation, the story, the verbs.
    "validate": (["baseline.h", "estimate.h", "judge.h", "samples.h", "validate.h"],
                 ["core/base", "core/spec", "core/model", "core/ssh", "bootstrap", "validate/suite"]),
    # The engine: what it takes and gives, what one run shares, making and ending machines, proving them, the verbs.
    "engine/engine.*": (ALL, CORE + ["validate"]),
    "engine/internal.*": (ALL, ["engine/engine.*"]),
    "engine/run": (ALL, CORE + ["providers/provider.*", "providers/http*", "providers/ssh", "bootstrap", "templates", "validate",
                                "engine/engine.*", "engine/internal.*"]),
    "engine/transfer": (["bucket_copy.h", "bucket_pace.h", "pace.h", "transfer.h"], ["core/base", "core/tree", "core/model", "core/ssh",
                                                          "providers/bucket"]),
    # Which machines, deadlines and names of a list are the stack's: proofs and the journal, not tags.
    "engine/trust": (ALL, CORE + ["providers/provider.*", "engine/run", "engine/engine.*"]),
    "engine/stack": (ALL, CORE + ["providers/provider.*", "templates", "engine/run", "engine/trust", "engine/engine.*",
                                  "engine/internal.*"]),
    # What gc decides by clocks and tags.
    "engine/gc": (ALL, CORE + ["engine/stack"]),
    "engine/proof": (ALL, CORE + ["providers/provider.*", "bootstrap", "validate/suite", "validate", "engine/run", "engine/trust",
                                  "engine/engine.*", "engine/internal.*"]),
    # What this machine last saw of a job: written by jobs, read by the verbs.
    "engine/job/seen": (ALL, CORE + ["engine/run", "engine/engine.*"]),
    # What a job is: its text, its key, its environment.
    "engine/job/def": (ALL, CORE + ["templates", "bootstrap"]),
    # Transfers of the nodes of a job.
    "engine/job/copy": (ALL, CORE + ["bootstrap", "engine/run", "engine/transfer", "engine/engine.*"]),
    # Jobs on ready nodes: over the engine's verbs up and down.
    "engine/job": (["jobs.h", "job_follow.h", "job_state.h"],
                   CORE + ["templates", "bootstrap", "providers/provider.*", "providers/bucket", "validate", "engine/run",
                           "engine/trust", "engine/stack", "engine/proof", "engine/transfer", "engine/engine.*",
                           "engine/internal.*", "engine/job/copy", "engine/job/def", "engine/job/seen"]),
    # Statements about nodes for other programs.
    "engine/certificate": (ALL, CORE + ["providers/http*", "validate", "engine/engine.*", "engine/internal.*"]),
    "engine": (["plan_file.h"],
               CORE + ["templates", "bootstrap", "providers/provider.*", "providers/http*", "providers/ssh",
                       "validate/suite", "validate", "engine/engine.*", "engine/internal.*", "engine/run",
                       "engine/transfer", "engine/trust", "engine/stack", "engine/gc", "engine/proof", "engine/certificate",
                       "engine/job/seen"]),
    "cmd": ([], CORE + ["templates", "providers/provider.*", "providers/aws", "providers/local", "providers/ssh",
                        "validate",
                        "engine/engine.*", "engine/job", "engine/certificate", "engine"]),
}

# (file, header): why this one include may break the order. One that is not used is a problem too.
EXCEPTIONS = {
    ("engine/engine.c", "engine/internal.h"): "internal.h declares what engine.c defines",
}

# library header: the files and folders that may include it (none: nobody); everybody else uses their functions.
LIBRARY = {
    r"curl/": ["providers/http"],
    r"libssh2": ["core/ssh/"],
    r"sqlite3": ["core/journal/"],
    r"expat": ["core/base/xml.c"],
    r"yaml\.h": ["core/base/yaml.c"],
    r"jansson": ["core/base/json.h"],
    # hash.h has SHA-256 and base64; what signs and what holds keys does the rest by itself.
    r"openssl/": ["core/base/hash.c", "core/base/sign.c", "core/ssh/", "core/spec/spec.c", "providers/aws/sigv4.c",
                  "providers/common/jwt.c"],
    r"zlib\.h": ["core/ssh/put.c", "bootstrap/agents.c"],
    r"dlfcn\.h": ["validate/agent/"],
    # The agent declares what it needs of NVIDIA's libraries and finds them by dlopen.
    r"(cuda|nvrtc|nccl|nvml|cublas)\w*\.h": [],
}
# made by the build: who may include it
GENERATED = {"gpu_models.inc": ["validate/suite/models.c"]}

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
MAX_COLUMNS = 120

COMMENT = r"//[^\n]*|/\*.*?\*/"
TEXT = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
INCLUDE = re.compile(r"\s*(?:#|%:|\?\?=)\s*(?:include|include_next|import)\b\s*(.*)")
SPLIT = re.compile(r"\s*(?:#|%:|\?\?=)\s*\w*\\$")  # the directive's name goes on in the next line
EMBED = re.compile(r"\s*(?:#|%:|\?\?=)\s*embed\b")
NAME = re.compile(r'"([^"]+)"|<([^>]+)>')


def blank(m):
    return re.sub(r"[^\n]", " ", m.group())


def without_comments(text):
    """Comments become blanks of the same length, so that lines stay."""
    return re.sub(f"{COMMENT}|({TEXT})", lambda m: m.group(1) or blank(m), text, flags=re.DOTALL)


def without_comments_and_text(text):
    return re.sub(f"{COMMENT}|{TEXT}", blank, text, flags=re.DOTALL)


def room_of(path):
    """The room's name (for providers/*: the folder that matched) and its row's."""
    rows = (r for r in ROOMS if path.startswith(r + "/") or
            (r.endswith("*") and not r.endswith("/*") and fnmatch.fnmatch(path, r)))
    best = max(rows, key=len, default=None)
    m = re.match(r"(providers/\w+)/", path)
    return (m.group(1), "providers/*") if m and best == "providers" else (best, best)


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.problems = []
        self.used = set()

    def problem(self, path, line, text):
        self.problems.append((path, line, text))

    def resolve(self, path, name, quoted):
        """Where an include leads, as the compiler would look: own folder, core/, the root. None: not ours."""
        for base in ([(self.root / path).parent] if quoted else []) + [self.root / "core", self.root]:
            target = base / name
            if target.is_file():
                target = target.resolve()
                return str(target.relative_to(self.root)) if target.is_relative_to(self.root) else None
        return None

    def may(self, path, target):
        """Whether path may include target, a file of this tree."""
        (own, row), (other, other_row) = room_of(path), room_of(target)
        public, uses = ROOMS[other_row][0], ROOMS[row][1]
        name = target.rsplit("/", 1)[1]
        if not target.endswith(".h"):
            inner = {".inc": SUFFIXES, ".cu": (".cu",)}.get(target[target.rindex("."):], ())
            return own == other and path.endswith(inner) if inner else False
        if own == other or target in uses:
            return True
        return other_row in uses and "!" + name not in public and any(fnmatch.fnmatch(name, p) for p in public)

    def include(self, path, line, quoted, name):
        target = self.resolve(path, name, quoted)
        if target is None:
            generated = re.sub(r"^gen/", "", name)
            if generated in GENERATED:
                if path not in GENERATED[generated]:
                    self.problem(path, line, f"only {GENERATED[generated][0]} may include {name}")
                return
            if not quoted and (name.startswith("/") or {".", ".."} & set(name.split("/"))):
                self.problem(path, line, f"<{name}> is not a library's own name for its header")
                return
            for library, places in LIBRARY.items():
                if re.search(f"(?:^|/){library}", name) and not path.startswith(tuple(places)):
                    self.problem(path, line, f"only {' '.join(places) or 'nobody'} may include <{name}>")
            if quoted:
                self.problem(path, line, f'"{name}" is not in this tree')
            return
        if room_of(target)[1] is None:
            self.problem(path, line, f"{target} is in no room")
            return
        if self.may(path, target):
            return
        if (path, target) in EXCEPTIONS:
            self.used.add((path, target))
            return
        self.problem(path, line, f"{room_of(path)[0]} may not include {target}")

    def includes(self, path, text):
        first = None
        for i, line in enumerate(without_comments(text).splitlines(), 1):
            if SPLIT.match(line) or EMBED.match(line):
                self.problem(path, i, "a directive is in one line, and none is #embed")
            m = INCLUDE.match(line)
            if not m:
                continue
            name = NAME.match(m.group(1))
            if name is None:
                self.problem(path, i, "an include names its file, not a macro")
                continue
            first = first or name.group(1) or name.group(2)
            self.include(path, i, name.group(1) is not None, name.group(1) or name.group(2))
        if path.endswith(".c") and first != "base/gp_base.h":
            self.problem(path, 1, 'the first include is "base/gp_base.h"')

    def calls(self, path, text):
        bare = without_comments_and_text(text)
        forks = path.startswith("providers/local/") or "fork(" in bare
        may_exit = path.startswith(tuple(MAY_EXIT))
        for i, line in enumerate(bare.splitlines(), 1):
            m = BANNED.search(line)
            if m and not line.lstrip().startswith("#"):
                self.problem(path, i, f"{m.group(1)} is banned (core/base/gp_base.h)")
            if ENVIRON.search(line) and path != MAY_SET_ENVIRON:
                self.problem(path, i, f"only {MAY_SET_ENVIRON} changes the environment")
            if EXITS.search(line) and not forks and not may_exit:
                self.problem(path, i, "only main exits")
            if re.search(r"\bexit\s*\(", line) and forks and not may_exit:
                self.problem(path, i, "a forked child ends by _exit")

    def check(self, path):
        text = (self.root / path).read_text(encoding="utf-8")
        lines = text.splitlines()
        if not re.match(r"(/\*|//) SPDX-License-Identifier: Apache-2\.0( \*/)?$", lines[0] if lines else ""):
            self.problem(path, 1, "the first line is the SPDX line")
        if not path.endswith(".h") and not (len(lines) > 1 and lines[1].startswith("/*")):
            self.problem(path, 2, "the second line begins a comment with the file's purpose")
        if len(lines) > MAX_LINES:
            self.problem(path, len(lines), f"more than {MAX_LINES} lines")
        for i, line in enumerate(lines, 1):
            if len(line) > MAX_COLUMNS:
                self.problem(path, i, f"longer than {MAX_COLUMNS} columns")
        if room_of(path)[0] is None:
            self.problem(path, 1, "no row of ROOMS in tests/lint/includes.py has this file")
            return
        self.includes(path, text)
        if path != "core/base/gp_base.h":
            self.calls(path, text)

    def code(self):
        files = [p for d in CODE for p in (self.root / d).rglob("*") if p.suffix in SUFFIXES and p.is_file()]
        return sorted(str(p.relative_to(self.root)) for p in files)

    def check_all(self):
        files = self.code()
        for path in files:
            self.check(path)
        tests = (p for p in (self.root / "tests").rglob("*") if p.suffix in (".c", ".h", ".py", ".sh"))
        for p in sorted(tests):
            n = len(p.read_text(encoding="utf-8").splitlines())
            if n > MAX_LINES:
                self.problem(str(p.relative_to(self.root)), n, f"more than {MAX_LINES} lines")
        return files

    def check_table(self):
        """Rows that name what is not there, break the order, or are not needed any more."""
        here = "tests/lint/includes.py"
        above = set()
        for room, (public, uses) in ROOMS.items():
            for name in uses:
                file = name.endswith(".h")
                below = room_of(name)[1] not in above if file else name not in above
                if below or (file and not (self.root / name).is_file()):
                    self.problem(here, 1, f"{room}: {name} is not above it in ROOMS, or not there")
            above.add(room)
            folder = self.root / room
            for name in public if folder.is_dir() else []:
                if "*" not in name and not (folder / name.lstrip("!")).is_file():
                    self.problem(here, 1, f"{room}: there is no header {name}")
        for pair in EXCEPTIONS.keys() - self.used:
            self.problem(here, 1, f"the exception {pair} is not needed")


def main():
    tree = Tree(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
    files = tree.check_all()
    tree.check_table()
    for path, line, rule in tree.problems:
        print(f"{path}:{line}: {rule}")
    if not files:
        print("includes: no files")
        return 1
    print(f"includes: {len(files)} files, {len(tree.problems)} problems")
    return 1 if tree.problems else 0


if __name__ == "__main__":
    sys.exit(main())
