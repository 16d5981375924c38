# SPDX-License-Identifier: Apache-2.0
"""Files to nodes and back: core/tree over core/ssh (tests/drivers/transfer) against rsync over OpenSSH, in turns over the
same sshd. The nodes are sshds on this machine with home folders of their own, so both ends share its cores."""
import json
import os
import pathlib
import shlex
import shutil
import sys
import time

from timing import Cost, Load, Skip, cost, load_words, median, rounds, sec, spread, table, verdict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "hosts"))
from own_sshd import OwnSshd

SSH = "-F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o IdentitiesOnly=yes"


def small(folder, count):
    for i in range(count):
        where = folder / ("d%d" % (i % 100))
        where.mkdir(parents=True, exist_ok=True)
        (where / ("f%d" % i)).write_bytes(os.urandom(4096))


def large(folder, mib):
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "large").open("wb") as f:
        for _ in range(mib):
            f.write(os.urandom(1 << 20))


class Pair:
    """One node, and the two programs that copy to it and from it."""

    def __init__(self, driver, node, folder):
        self.driver, self.node, self.folder = driver, node, folder
        self.ssh = "ssh %s -i %s -p %d" % (SSH, shlex.quote(str(node.key)), node.port)

    def clean(self):
        for path in (self.node.home / "to", self.folder / "to"):
            shutil.rmtree(path, ignore_errors=True)

    def ours(self, how, source):
        to = "to" if how == "up" else self.folder / "to"
        return cost([self.driver, how, self.node.key, self.node.host_key, self.node.port, source, to], timeout=1800)

    def rsync(self, how, source):
        there = "%s@127.0.0.1:" % self.node.user
        way = [f"{source}/", there + "to"] if how == "up" else [f"{there}{source}/", self.folder / "to"]
        return cost(["rsync", "-a", "-e", self.ssh, *way], timeout=1800)


def one_node(driver, folder, what, fill, count):
    rows, goals = [], []
    folder.mkdir()
    source = folder / "source"
    fill(source)
    with OwnSshd(folder / "node", driver.parents[2] / "agent" / "gpuprov-agent") as node:
        pair = Pair(driver, node, folder)
        for how in ("up", "down"):
            got = rounds(count, {"gpuprov": lambda how=how: pair.ours(how, source),
                                 "rsync": lambda how=how: pair.rsync(how, source)}, before=pair.clean)
            ratio = median(got["gpuprov"]) / median(got["rsync"])
            for name, costs in got.items():
                low, high = spread(costs)
                rows.append(["%s %s" % (what, how), name, "%s (%s to %s)" % (sec(median(costs)), sec(low), sec(high)),
                             sec(median(costs, "cpu")), "%.2f" % ratio if name == "gpuprov" else "1"])
            goals.append(["%s %s: at most 1.1 x rsync's time" % (what, how), "%.2f x" % ratio, verdict(ratio <= 1.1)])
    shutil.rmtree(folder)
    return rows, goals


def rsync_many(nodes, source):
    """One rsync per node, all at once."""
    lines = ["rsync -a -e %s %s/ %s@127.0.0.1:to &" % (
        shlex.quote("ssh %s -i %s -p %d" % (SSH, n.key, n.port)), shlex.quote(str(source)), n.user) for n in nodes]
    return cost(["sh", "-c", "\n".join(lines) + "\nwait"], timeout=1800)


def many_nodes(driver, folder, n, mib, count):
    folder.mkdir()
    source = folder / "source"
    large(source, mib)
    agent = driver.parents[2] / "agent" / "gpuprov-agent"
    nodes = [OwnSshd(folder / "node0", agent)]
    nodes += [OwnSshd(folder / ("node%d" % i), agent, like=nodes[0]) for i in range(1, n)]
    try:
        for node in nodes:
            node.__enter__()

        def clean():
            for node in nodes:
                shutil.rmtree(node.home / "to", ignore_errors=True)

        def ours():
            ports = ",".join(str(node.port) for node in nodes)
            got = cost([driver, "many", nodes[0].key, nodes[0].host_key, ports, source, "to"], timeout=1800)
            sent = json.loads(got.out)["bytes_sent"]
            if any((node.home / "to" / "large").stat().st_size != mib << 20 for node in nodes):
                raise RuntimeError("a node has not all of it")
            return Sent(got, sent)
        got = rounds(count, {"gpuprov": ours, "rsync": lambda: Sent(rsync_many(nodes, source), n * mib << 20)}, before=clean)
    finally:
        for node in nodes:
            node.__exit__()
    shutil.rmtree(folder)
    ratio = median(got["rsync"]) / median(got["gpuprov"])
    rows = [[n, name, sec(median(costs)), sec(median(costs, "cpu")), "%.0f MB" % (median(costs, "sent") / 1e6)]
            for name, costs in got.items()]
    return rows, [["%d MiB to %d nodes: 3 x faster than one rsync per node" % (mib, n), "%.1f x" % ratio,
                   verdict(ratio >= 3)]]


class Sent(Cost):
    """sent: bytes that left this machine."""

    def __init__(self, c, sent):
        super().__init__(c.wall, c.cpu, c.rss, c.out, c.code)
        self.sent = sent


def run(drivers, folder, files, mib, n, count):
    """files of 4 KiB, and one of mib, to one node and back; 64 MiB to n nodes. Returns (title, text, goals)."""
    if not shutil.which("rsync"):
        raise Skip("rsync is not installed")
    load, started = Load(), time.monotonic()
    folder, driver = pathlib.Path(folder) / "transfer", pathlib.Path(drivers) / "transfer"
    folder.mkdir()
    one, goals = [], []
    for k, (what, fill) in enumerate((("%d files of 4 KiB" % files, lambda f: small(f, files)),
                                      ("%d MiB" % mib, lambda f: large(f, mib)))):
        rows, more = one_node(driver, folder / str(k), what, fill, count)
        one, goals = one + rows, goals + more
    many, more = many_nodes(driver, folder / "many", n, min(mib, 64), max(1, count // 3))
    text = "%d rounds in %.0f s (%s). Each copy goes to an empty folder.\n\n%s\nOne folder to many nodes at once:\n\n%s" % (
        count, time.monotonic() - started, load_words(load.end()),
        table(["copy", "client", "wall", "client CPU", "x rsync"], one),
        table(["nodes", "client", "wall", "client CPU", "left this machine"], many))
    return "Files to nodes and back", text, goals + more
