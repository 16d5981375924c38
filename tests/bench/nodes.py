# SPDX-License-Identifier: Apache-2.0
"""Local nodes with the program itself: from nothing to the first command over SSH on every node, then away.
The spec has no steps: what is left is nodes, SSH and the checks that every node gets."""
import datetime
import json
import os
import pathlib
import tempfile
import time

from timing import Load, Skip, cost, load_words, median, sec, spread, table

SPEC = """\
name: bench%d
nodes: %d
offers: [{provider: local}]
limits: {ttl: 10m}
"""


def answered(stderr_lines, started, n):
    """Seconds until every node had answered its first command: its set-up goes on with what that said."""
    first = {}
    for line in stderr_lines:
        event = json.loads(line)
        if event.get("phase") == "bootstrap" and event.get("step") and event["node"] not in first:
            when = datetime.datetime.strptime(event["t"], "%Y-%m-%dT%H:%M:%S.%f%z")
            first[event["node"]] = when.timestamp() - started
    if len(first) != n:
        raise RuntimeError("%d of %d nodes told of their first command" % (len(first), n))
    return max(first.values())


def one_round(program, folder, n):
    home = pathlib.Path(tempfile.mkdtemp(dir=folder))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "GPUPROV_", "XDG_"))}
    env.update(HOME=str(home), GPUPROV_STATE_DIR=str(home / "state"))
    env.pop("SSH_AUTH_SOCK", None)
    spec, log = home / "spec.yaml", home / "log"
    spec.write_text(SPEC % (n, n))
    try:
        started = time.time()
        up = cost([program, "up", "-q", "--log", log, spec], env=env)
        ssh = cost([program, "ssh", "bench%d/%d" % (n, n - 1), "--", "true"], env=env)
    finally:
        down = cost([program, "down", "-q", spec], env=env)
    up.first = answered(log.read_text().splitlines(), started, n)
    up.ssh, up.down = ssh.wall, down.wall
    return up


def run(program, folder, sizes, count):
    """Returns (title, text, goals)."""
    if os.geteuid() != 0:
        raise Skip("local nodes are measured as root")
    rows, load, got = [], Load(), {n: [] for n in sizes}
    for _ in range(count):
        for n in sizes:
            got[n].append(one_round(program, folder, n))
    for n, costs in got.items():
        low, high = spread(costs, "first")
        rows.append([n, "%s (%s to %s)" % (sec(median(costs, "first")), sec(low), sec(high)),
                     sec(median(costs)), sec(median(costs, "ssh")), sec(median(costs, "down")),
                     sec(median(costs, "cpu")), "%.0f MiB" % (median(costs, "rss") / 1024)])
    text = "%d rounds (%s). Ready nodes are validated. That includes a training step over all nodes, which " \
           "takes most of the time on a machine with few cores.\n\n%s" % (count, load_words(load.end()), table(
               ["nodes", "every node answered its first command", "`up`, all ready", "`ssh -- true`",
                "`down`", "CPU of `up`", "memory of `up`"], rows))
    return "Local nodes", text, []
