#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Connect + 10 MB + a script of ten commands on N hosts at once: gpuprov's SSH against OpenSSH (one
connection per host, curve25519), in turns on the same hosts. Needs root (test hosts in namespaces).

    tests/bench/ssh_fanout.py BUILD [N] [ROUNDS] [JOBS]     N: 32; ROUNDS: 3; JOBS: 64 (gpuprov's threads)

`openssh` only writes the bytes; `openssh_checked` gives what gpuprov's copy gives: a checksum on the host and a
rename. Hosts and client share this machine's cores, so what a host computes counts in the wall time.
Prints one JSON object: medians, and ratios of them. Client CPU is that of the client's processes."""
import hashlib
import json
import os
import pathlib
import resource
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "hosts"))
from fleet import Fleet  # noqa: E402

SCRIPT = """uname -a
id
head -3 /etc/os-release
df -h / | tail -1
ls / | wc -l
stat -c %s /tmp/f10
date
hostname
cat /proc/loadavg
echo done
"""
SIZE = 10_000_000


def steal():
    fields = open("/proc/stat", encoding="ascii").readline().split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def measured(call):
    before, stolen, start = resource.getrusage(resource.RUSAGE_CHILDREN), steal(), time.monotonic()
    extra = call() or {}
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": round(wall, 3), "cpu_s": round(cpu, 3), "steal_s": round(steal() - stolen, 2), **extra}


def ours(fleet, program, tmp, jobs):
    done = fleet.run([program, str(jobs), fleet.key, tmp / "known_hosts", "ops", tmp / "f10", tmp / "s.sh",
                      *[h.address for h in fleet.nodes]], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    own = json.loads(done.stdout)
    return {"peak_mib": own["peak_mib"], "first": own["first"]}


def openssh(fleet, tmp, checked):
    options = ["-F", "none", "-i", str(fleet.key), "-o", "UserKnownHostsFile=%s" % (tmp / "known_hosts"),
               "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "KexAlgorithms=curve25519-sha256"]
    after = ""
    if checked:
        digest = hashlib.sha256((tmp / "f10").read_bytes()).hexdigest()
        after = ".new; echo %s  /tmp/f10.new | sha256sum -c --quiet && mv /tmp/f10.new /tmp/f10" % digest
    command = "cat %s %s | ssh %s ops@\"$1\" 'head -c %d > /tmp/f10%s; sh -s' > /dev/null" % (
        tmp / "f10", tmp / "s.sh", " ".join(options), SIZE, after)
    done = fleet.run(["xargs", "-P", str(len(fleet.nodes)), "-n", "1", "sh", "-c", command, "sh"],
                     input="\n".join(h.address for h in fleet.nodes), text=True, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


def clean(fleet):
    for host in fleet.nodes:
        (host.file("/tmp/f10")).unlink(missing_ok=True)


def check(fleet):
    for host in fleet.nodes:
        size = host.file("/tmp/f10").stat().st_size
        if size != SIZE:
            raise RuntimeError("%s has %d bytes" % (host.name, size))


def main():
    program = pathlib.Path(sys.argv[1]).resolve() / "tests" / "bench" / "ssh_fanout"
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    jobs = int(sys.argv[4]) if len(sys.argv) > 4 else 64
    runs = {"gpuprov": [], "openssh": [], "openssh_checked": []}
    with tempfile.TemporaryDirectory(prefix="gpuprov-bench-") as folder:
        tmp = pathlib.Path(folder)
        (tmp / "f10").write_bytes(os.urandom(SIZE))
        (tmp / "s.sh").write_text(SCRIPT)
        with Fleet(tmp / "fleet", n) as fleet:
            fleet.known_hosts(tmp / "known_hosts")
            for _ in range(rounds):
                for name, call in (("gpuprov", lambda: ours(fleet, program, tmp, jobs)),
                                   ("openssh", lambda: openssh(fleet, tmp, False)),
                                   ("openssh_checked", lambda: openssh(fleet, tmp, True))):
                    clean(fleet)
                    runs[name].append(measured(call))
                    check(fleet)
    median = {name: {k: statistics.median(r[k] for r in rs) for k in ("wall_s", "cpu_s")}
              for name, rs in runs.items()}
    print(json.dumps({"hosts": n, "rounds": rounds, "median": median, "ratio": {
        name: {k: round(median["gpuprov"][k] / median[name][k], 3) for k in ("wall_s", "cpu_s")}
        for name in ("openssh", "openssh_checked")},
        "peak_mib": max(r["peak_mib"] for r in runs["gpuprov"]), "runs": runs}))


if __name__ == "__main__":
    main()
