# SPDX-License-Identifier: Apache-2.0
"""Launch to ids: `up` at each cloud's stand-in, which takes 80 ms longer over every call. Counted are the round trips, and
timed is the way from the start of `up` to the moment when the ids of all nodes are known. Then `up` is interrupted, and
`down` ends the nodes, which are no machines.

Counts are the least of all runs: calls that a busy machine did not start in time for one another count apart."""
import datetime
import json
import os
import pathlib
import sys
import tempfile
import time

from timing import Load, cost, load_words, sec, table, verdict

TESTS = pathlib.Path(__file__).resolve().parent.parent
LATENCY = 0.08
GOAL = 5  # round trips before the create call


def ids_known(log, nodes):
    """The time of day at which `up` had noted the id of its last node, or None."""
    done = {}
    if log.exists():
        for line in log.read_text().split("\n")[:-1]:
            event = json.loads(line)
            if (event["phase"], event["status"], event["step"]) == ("launch", "done", "create"):
                done[event["node"]] = datetime.datetime.strptime(event["t"], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
    return max(done.values()) if len(done) == nodes else None


def one_up(program, make, folder, nodes):
    with make(folder, nodes, LATENCY) as far:
        log, between = far.folder / "log", time.time() - time.monotonic()
        try:
            started = time.time()
            c = cost([program, "up", "--quiet", "--yes", "--log", log, far.spec], env=far.env, timeout=300, ok=(6, 130),
                     enough=lambda: ids_known(log, nodes) is not None)
            known = ids_known(log, nodes)
            c.ids, c.before, c.trips = known - started, far.before_create(), far.until(known - between)
        finally:
            cost([program, "down", "--quiet", "--yes", far.spec], env=far.env, timeout=300)
    return c


def one_launch(make, folder, nodes):
    """Round trips of a launch alone, without what `up` reads for its plan."""
    with make(folder, nodes, LATENCY) as far:
        far.drive()
        return far.before_create()


def row(name, nodes, ups, launches):
    ids = sorted(c.ids for c in ups)
    trips = min(c.trips for c in ups)
    middle = ids[len(ids) // 2]
    return [name, nodes, min(launches), min(c.before for c in ups), trips,
            "%s (%s to %s)" % (sec(middle), sec(ids[0]), sec(ids[-1])), sec(trips * LATENCY),
            "%.1f" % (middle / (trips * LATENCY))]


def run(program, folder, sizes, count):
    """Returns (title, text, goals)."""
    os.environ.setdefault("B", str(program.parent))  # of the drivers
    sys.path[:0] = [str(TESTS / "e2e" / "clouds"), str(TESTS / "e2e"), str(TESTS / "clouds"), str(TESTS / "hosts")]
    from far_clouds import FAR
    load, rows, goals = Load(), [], []
    for name, make in FAR.items():
        for nodes in sizes:
            def fresh():
                return pathlib.Path(tempfile.mkdtemp(dir=folder))
            ups = [one_up(program, make, fresh(), nodes) for _ in range(count)]
            launches = [one_launch(make, fresh(), nodes) for _ in range(count)]
            rows.append(row(name, nodes, ups, launches))
            goals.append(["%s, %d node%s: at most %d round trips before the create call" % (
                name, nodes, "s" if nodes > 1 else "", GOAL), min(launches), verdict(min(launches) <= GOAL)])
    text = "%d runs each (%s):\n\n%s" % (count, load_words(load.end()), table(
        ["cloud", "nodes", "round trips before the create call", "of `up`", "of `up`, to all ids",
         "`up` to all ids, median (range)", "floor", "of the floor"], rows))
    return "Launch to ids at each cloud", text, goals
