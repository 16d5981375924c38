# SPDX-License-Identifier: Apache-2.0
"""Many hosts at once: log in, copy 10 MB, run a script of ten commands. core/ssh (tests/drivers/fanout)
against OpenSSH, one connection per host, file and script on its stdin. The hosts are namespaces with an
sshd on this very machine, so client and servers share its cores."""
import json
import os
import pathlib
import sys
import threading
import time

from timing import Load, Skip, cost, load_words, median, rounds, sec, spread, table, verdict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "hosts"))
from fleet import Fleet
from lab import why_not

SIZE = 10_000_000
REMOTE = "/tmp/bench.bin"
SCRIPT = """uname -a
id
head -3 /etc/os-release
df -h / | tail -1
ls / | wc -l
stat -c %%s %s
date
hostname
cat /proc/loadavg
echo done
""" % REMOTE
CURVE = ["-o", "KexAlgorithms=curve25519-sha256"]


class Fan:
    def __init__(self, fleet, driver, folder):
        self.fleet, self.driver, self.folder = fleet, driver, pathlib.Path(folder)
        (self.folder / "script").write_text(SCRIPT)
        payload = os.urandom(SIZE)  # does not pack: the same bytes travel for both
        (self.folder / "payload").write_bytes(payload)
        (self.folder / "both").write_bytes(payload + SCRIPT.encode())
        fleet.known_hosts(self.folder / "known_hosts")
        self.nodes = fleet.nodes

    def use(self, n):
        self.nodes = self.fleet.nodes[:n]
        (self.folder / "hosts").write_text("".join(h.address + "\n" for h in self.nodes))

    def check_and_clean(self):
        """Between runs: what the one before copied is whole; then it is taken away."""
        for host in self.nodes:
            file = host.file(REMOTE)
            if file.exists():
                if file.stat().st_size != SIZE:
                    raise RuntimeError("%s has %d bytes" % (host.name, file.stat().st_size))
                file.unlink()

    def settle(self):
        """Sessions of the run before have ended, so that their end is not counted in the next."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            done = self.fleet.run(["ss", "-Htn", "state", "established", "dport", "=", ":22"],
                                  capture_output=True, text=True)
            if not done.stdout.strip():
                break
            time.sleep(0.1)
        self.check_and_clean()

    def ours(self, *more):
        c = cost(self.fleet.in_net([self.driver, self.folder / "hosts", "ops", self.fleet.key,
                                    self.folder / "known_hosts", self.folder / "payload", REMOTE,
                                    self.folder / "script", *more]))
        told = json.loads(c.out)
        if told["hosts"] != len(self.nodes) or told["failed"]:
            raise RuntimeError("fanout: " + c.out)
        c.told = told
        return c

    def openssh(self, *more):
        options = ["-F", "none", "-i", str(self.fleet.key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
                   "-o", "StrictHostKeyChecking=yes", "-o",
                   "UserKnownHostsFile=%s" % (self.folder / "known_hosts"), "-o", "LogLevel=ERROR", *more]
        each = 'exec ssh %s "ops@$1" "head -c %d >%s; sh -s" <"$0"' % (" ".join(options), SIZE, REMOTE)
        with open(self.folder / "hosts", "rb") as hosts:
            c = cost(self.fleet.in_net(["xargs", "-P", len(self.nodes), "-n", "1", "sh", "-c", each,
                                        self.folder / "both"]), stdin=hosts)
        if c.out.count("done\n") != len(self.nodes):
            raise RuntimeError("openssh: %d of %d hosts answered" % (c.out.count("done\n"), len(self.nodes)))
        return c


def descendants(pid, but=0):
    """Process ids below pid, without those below `but`."""
    found = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            for child in open("/proc/%d/task/%s/children" % (pid, task)).read().split():
                if int(child) != but:
                    found += [int(child)] + descendants(int(child), but)
    except OSError:
        pass  # it ended meanwhile
    return found


def pss_kib(pid, own=True):
    """own: 0 for a child of this Python that has not become another program yet: it still has its pages."""
    try:
        if own and os.readlink("/proc/%d/exe" % pid) == os.path.realpath(sys.executable):
            return 0
        for line in open("/proc/%d/smaps_rollup" % pid):
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def sampled_peak(run, lab):
    """Largest sum of PSS, in KiB, of what run() starts (and not of the lab, where the servers are), read
    again and again. Reading costs time, so nothing else is measured in that run."""
    peak, stop = [0], threading.Event()

    def watch():
        while not stop.wait(0.02):
            peak[0] = max(peak[0], sum(map(pss_kib, descendants(os.getpid(), lab.holder_pid))))
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run()
    finally:
        stop.set()
        watcher.join()
    if peak[0] == 0:
        raise RuntimeError("no process was seen while sampling memory")
    return peak[0]


def measure(fan, n, count):
    fan.use(n)
    contestants = {"gpuprov": fan.ours,
                   "gpuprov, ten commands": lambda: fan.ours("separate"),
                   "OpenSSH, curve25519": lambda: fan.openssh(*CURVE),
                   "OpenSSH, its default": fan.openssh}
    fan.settle()
    fan.ours()  # once for nothing: files into memory, sshd's pages in place
    load = Load()
    slow = {} if n <= 32 else {"OpenSSH, its default": contestants.pop("OpenSSH, its default")}
    got = rounds(count, contestants, before=fan.settle)
    got.update(rounds(1, slow, before=fan.settle))
    words = load_words(load.end())
    fan.settle()
    peaks = {"gpuprov": sampled_peak(fan.ours, fan.fleet)}
    fan.settle()
    peaks["OpenSSH, curve25519"] = sampled_peak(lambda: fan.openssh(*CURVE), fan.fleet)
    return got, peaks, words


def rows_of(got, peaks):
    base = got["OpenSSH, curve25519"]
    rows = []
    for name, costs in got.items():
        low, high = spread(costs)
        peak = "%.0f MiB" % (peaks[name] / 1024) if name in peaks else "-"
        rows.append([name, "%s (%s to %s)" % (sec(median(costs)), sec(low), sec(high))
                     if len(costs) > 1 else sec(low) + " (one run)",
                     "%.2f" % (median(costs) / median(base)), sec(median(costs, "cpu")),
                     "%.2f" % (median(costs, "cpu") / median(base, "cpu")), peak])
    return rows


def run(drivers, folder, sizes, count):
    """Returns (title, text, goals)."""
    why = why_not()
    if why:
        raise Skip("no test hosts on this machine: " + why)
    parts, goals = [], []
    with Fleet(pathlib.Path(folder) / "fleet", max(sizes)) as fleet:
        fan = Fan(fleet, drivers / "fanout", folder)
        for n in sizes:
            got, peaks, words = measure(fan, n, count)
            parts.append("%d hosts, %d rounds (%s):\n\n" % (n, count, words) + table(
                ["client", "wall, median (range)", "of OpenSSH's", "client CPU", "of OpenSSH's", "peak memory"],
                rows_of(got, peaks)))
            ours, theirs = got["gpuprov"], got["OpenSSH, curve25519"]
            if n == max(sizes):
                wall = median(ours) / median(theirs)
                cpu = median(ours, "cpu") / median(theirs, "cpu")
                peak = peaks["gpuprov"] / 1024
                goals += [["%d hosts: wall at most 1.10 of OpenSSH's" % n, "%.2f" % wall, verdict(wall <= 1.1)],
                          ["%d hosts: client CPU at most 0.70 of OpenSSH's" % n, "%.2f" % cpu, verdict(cpu <= 0.7)],
                          ["%d hosts: under 64 MiB" % n, "%.0f MiB" % peak, verdict(peak < 64)]]
    return "Fan-out over SSH", "\n".join(parts), goals
