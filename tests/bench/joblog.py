# SPDX-License-Identifier: Apache-2.0
"""The merged log of a job on many nodes: `gpuprov exec` against one OpenSSH per node, in turns on the same local nodes.
Every node prints numbered lines at a fixed pace, and every line has to arrive, in order. Nodes and client share the
machine's cores."""
import os
import pathlib
import tempfile
import time

from timing import Load, Skip, cost, load_words, median, rounds, sec, table, verdict

SPEC = """\
name: log%d
nodes: %d
offers: [{provider: local}]
limits: {ttl: 20m}
"""
# sh keeps what is between ' as it is, on both ways to the node
PRINT = """import sys, time
began = time.monotonic()
for tick in range(%d * 10):
    sys.stdout.write("".join("line %%09d of the log of a training job\\n" %% k for k in range(tick * %d, (tick + 1) * %d)))
    sys.stdout.flush()
    time.sleep(max(0, began + (tick + 1) / 10 - time.monotonic()))
"""


def check(lines, n, total):
    """lines: of (rank, text). Every rank printed 0 to total - 1, in this order."""
    expected = [0] * n
    for rank, text in lines:
        words = text.split()
        if words[:1] != ["line"] or int(words[1]) != expected[rank]:
            raise RuntimeError("rank %d: %r instead of line %d" % (rank, text, expected[rank]))
        expected[rank] += 1
    if expected != [total] * n:
        raise RuntimeError("lines of %d each arrived: %s" % (total, expected))


class Stack:
    """n local nodes, and the two clients that print what a job on them prints."""

    def __init__(self, program, folder, n):
        self.program, self.folder, self.n = program, pathlib.Path(folder), n
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "GPUPROV_", "XDG_"))}
        self.env.update(HOME=str(folder), GPUPROV_STATE_DIR=str(self.folder / "state"))
        self.env.pop("SSH_AUTH_SOCK", None)
        self.name, self.spec = "log%d" % n, self.folder / "spec.yaml"
        self.spec.write_text(SPEC % (n, n))

    def __enter__(self):
        try:
            cost([self.program, "up", "-q", self.spec], env=self.env, timeout=900)
            config = cost([self.program, "ssh", self.name, "--config"], env=self.env).out
            (self.folder / "cfg").write_text(config)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        cost([self.program, "down", "-q", self.spec], env=self.env)

    def script(self, per_s, seconds):
        return "exec python3 -c '%s'" % (PRINT % (seconds, per_s // 10, per_s // 10))

    def gpuprov(self, per_s, seconds):
        out = self.folder / "out"
        c = cost(["sh", "-c", 'exec "$@" >"$0"', out, self.program, "exec", "-q", self.name, "--",
                  self.script(per_s, seconds)], env=self.env, timeout=900)
        with out.open() as f:
            check(((int(line[1:line.index("]")]), line.partition("] ")[2]) for line in f), self.n, per_s * seconds)
        out.unlink()
        return c

    def openssh(self, per_s, seconds):
        """Each log into a file of its own: nothing is merged, no line gets its rank."""
        each = 'exec ssh -F "$1" "$2-$0" "$3" >"$4.$0"'
        c = cost(["sh", "-c", 'seq 0 %d | xargs -P %d -I K sh -c "$0" K "$@"' % (self.n - 1, self.n), each,
                  self.folder / "cfg", self.name, self.script(per_s, seconds), self.folder / "out"], env=self.env,
                 timeout=900)
        for rank in range(self.n):
            out = self.folder / ("out.%d" % rank)
            with out.open() as f:
                check(((0, line) for line in f), 1, per_s * seconds)
            out.unlink()
        return c


def run(program, folder, n, per_s, seconds, count):
    """n nodes, each prints per_s lines a second. Returns (title, text, goals)."""
    if os.geteuid() != 0:
        raise Skip("local nodes are measured as root")
    load, started = Load(), time.monotonic()
    home = tempfile.mkdtemp(dir=folder)
    with Stack(program, home, n) as stack:
        got = rounds(count, {"gpuprov": lambda: stack.gpuprov(per_s, seconds),
                             "OpenSSH": lambda: stack.openssh(per_s, seconds)})
    lines = n * per_s * seconds
    rows = [[name, sec(median(costs)), "%.0f" % (lines / median(costs)), sec(median(costs, "cpu")),
             "%.2f us" % (median(costs, "cpu") / lines * 1e6), "%.0f MiB" % (median(costs, "rss") / 1024)]
            for name, costs in got.items()]
    text = "%d nodes, %d lines/s each for %d s, %d rounds in %.0f s (%s).\n\n%s" % (
        n, per_s, seconds, count, time.monotonic() - started, load_words(load.end()),
        table(["client", "wall", "lines/s in all", "client CPU", "CPU per line", "memory"], rows))
    # each run reached this line only with all lines of all nodes
    return "Log of a job on many nodes", text, [
        ["%d nodes, %d lines/s each: every line arrives, in order" % (n, per_s), "%d of %d" % (lines, lines), verdict(True)]]
