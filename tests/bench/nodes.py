# SPDX-License-Identifier: Apache-2.0
"""Local nodes with the program itself: from nothing to the first command over SSH on every node, then away.
The spec has no steps: what is left is nodes, SSH and the checks that every node gets."""
import datetime
import json
import os
import pathlib
import tempfile
import time

from timing import Load, Skip, cost, load_words, median, sec, spread, table, verdict

CROWD = 32  # from so many nodes on, one round is long enough

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


def one_round(program, folder, n, cut=False):
    """cut: only until all nodes are checked together."""
    home = pathlib.Path(tempfile.mkdtemp(dir=folder))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "GPUPROV_", "XDG_"))}
    env.update(HOME=str(home), GPUPROV_STATE_DIR=str(home / "state"))
    env.pop("SSH_AUTH_SOCK", None)
    spec, log = home / "spec.yaml", home / "log"
    spec.write_text(SPEC % (n, n))
    together = (lambda: log.exists() and '"phase":"gang"' in log.read_text()) if cut else None
    try:
        started = time.time()
        up = cost([program, "up", "-q", "--log", log, spec], env=env, timeout=900, enough=together,
                  ok=(130,) if cut else (0, 7) if n >= CROWD else (0,))
        ssh = None if cut else cost([program, "ssh", "bench%d/%d" % (n, n - 1), "--", "true"], env=env)
    finally:
        down = cost([program, "down", "-q", spec], env=env, ok=(0,))
    up.first = answered(log.read_text().splitlines(), started, n)
    up.ssh, up.down = ssh.wall if ssh else 0, down.wall
    return up


def row(n, costs):
    low, high = spread(costs, "first")
    ready = sum(c.code == 0 for c in costs)
    return [n, "%s (%s to %s)" % (sec(median(costs, "first")), sec(low), sec(high)), sec(median(costs)),
            "READY" if ready == len(costs) else "%d of %d times READY" % (ready, len(costs)),
            sec(median(costs, "ssh")), sec(median(costs, "down")), sec(median(costs, "cpu")), mib(costs)]


def mib(costs):
    return "%.0f MiB" % (median(costs, "rss") / 1024)


def run(program, folder, sizes, count, most=0):
    """sizes below CROWD: count times, others once. most: so many nodes once, cut, for their memory. Returns (title,
    text, goals)."""
    if os.geteuid() != 0:
        raise Skip("local nodes are measured as root")
    load, got, goals = Load(), {n: [] for n in sizes}, []
    for k in range(count):
        for n in sizes:
            if k == 0 or n < CROWD:
                got[n].append(one_round(program, folder, n))
    rows = [row(n, costs) for n, costs in got.items()]
    text = "%d rounds, one from %d nodes on (%s). Ready nodes are validated. That includes a training step over all nodes, " \
           "which takes most of the time on a machine with few cores.\n\n%s" % (count, CROWD, load_words(load.end()), table(
               ["nodes", "every node answered its first command", "`up`", "outcome", "`ssh -- true`",
                "`down`", "CPU of `up`", "memory of `up`"], rows))
    for n, limit in ((32, 40), (64, 64)):
        if n in got:
            goals.append(["%d local nodes: `up` under %d MiB" % (n, limit), mib(got[n]),
                          verdict(median(got[n], "rss") < limit * 1024)])
    if most:
        cut = [one_round(program, folder, most, cut=True)]
        text += "\n%d nodes until they are checked together, once: %s, memory of `up` %s.\n" % (
            most, sec(cut[0].wall), mib(cut))
        goals.append(["%d local nodes, until they are checked together: `up` under 64 MiB" % most, mib(cut),
                      verdict(cut[0].rss < 64 * 1024)])
    return "Local nodes", text, goals
