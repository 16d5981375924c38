# SPDX-License-Identifier: Apache-2.0
"""The benchmark: `make bench`, or `run.py [--only start,launch,clouds,fanout,transfer,joblog,setup,local] [--quick] [--out FILE]`.

GPUPROV_BIN names the program, B the build folder with tests/drivers. What is compared takes turns within
one run, so that a busy machine is busy for all of it. What this machine does not have is left out, with the
reason. Everything that is started ends with the run. Exit 1: a part failed; a missed goal is a figure, no
failure."""
import argparse
import datetime
import os
import pathlib
import signal
import sys
import tempfile
import time

import clouds
import fanout
import joblog
import launch
import nodes
import setup
import start
import transfer
from timing import Skip, first_line, machine, table

LIMIT_S = 5400  # for all of it

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("B", ROOT / "build")).resolve()
PROGRAM = pathlib.Path(os.environ.get("GPUPROV_BIN", BUILD / "gpuprov")).resolve()

HEAD = """# Benchmarks

This page has the speed of gpuprov beside other programs, with the means to repeat the measurement. It is for people who
check that speed or change it.

```sh
make bench                          # all parts; rewrites this page
%s    # one part
```

Measured %s. `make bench` installs missing packages as `make test` does, needs root for the hosts and
nodes, and takes about half an hour on a machine of this size, most of it for Ansible's share of the bootstraps. Ansible comes from
PyPI, into the build folder. Terraform and the AWS CLI are compared if they are installed.

Machine: %s.

Versions: %s.

Compared programs took turns within one run, in a rotated order. The figures are medians; the ranges show how restless the machine
was. Clients and servers share its cores. On a machine that does other work at the same time, trust the ratios rather than the seconds.

## Goals

%s
"""


def versions():
    found = [first_line(str(PROGRAM), "version"), first_line("ssh", "-V"), first_line("terraform", "version"),
             first_line("aws", "--version")]
    try:
        import importlib.metadata
        found.append("moto " + importlib.metadata.version("moto"))
    except importlib.metadata.PackageNotFoundError:
        pass
    return "; ".join(f.split(" Linux/")[0] for f in found if f)


def page(parts, skipped, took):
    goals = [g for _, _, gs in parts for g in gs]
    today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    text = HEAD % ("make bench BENCH='--only fanout'", "on %s, in %.1f minutes" % (today, took / 60), machine(),
                   versions(), table(["goal", "measured", "met"], goals))
    for title, body, _ in parts:
        text += "\n## %s\n\n%s" % (title, NOTES.get(title, "")) + body
    for title, why in skipped:
        text += "\n## %s\n\nNot measured: %s.\n" % (title, why)
    return text


NOTES = {
    "Launch, describe, terminate on an EC2 emulator": """One stack from claim to nothing left, on moto, which answers each client from an empty state.

| client | meaning |
|---|---|
| its calls alone | sends gpuprov's own requests again and does nothing else. The difference is the share of gpuprov itself: reading, deciding, the journal on disk before and after every create. It does not sign |
| the fewest calls | a program written by hand: no claim, no identity, no lookup of subnets, types, zones, image and quota, no list by tag. It does not sign |

| column | of gpuprov |
|---|---|
| look up | identity and offers |
| describe | the poll of nodes that `up` sends |
| terminate | ends with a whole list that shows nothing |

""",
    "Launch to ids at each cloud": """`gpuprov up` at each cloud's stand-in (EC2: moto), with 80 ms added to every call. Calls that run side by side count as
one round trip. The time ends when `up` knows the ids of all nodes.

| column | meaning |
|---|---|
| round trips before the create call | of the launch alone: credentials, offers, claim, network, without the lists that `up` reads for its plan |
| of `up` | the same with those lists |
| floor | the round trips of `up` to all ids, of 80 ms each |

The rest of the time is gpuprov's own, the stand-in's, and deliberate pauses: Lambda's and Shadeform's claims are read again after 0.6 s here (6 s
and 5 s at the real pace), Azure's after 1 s, and accepted operations are polled. Lambda and Shadeform have no
idempotency, so their nodes are created one after another; the pace of their API (`docs/lambda.md`, `docs/shadeform.md`) is switched off here.
At EC2 the first `up` lists every region of AWS, and most of its time is moto's, whose one process answers these 140 calls.

Azure misses the goal: the claim is read, written and read back before it counts, and the network is an operation that is read until it is done.

""",
    "Fan-out over SSH": """On every host at once: log in, copy 10 MB of random bytes, run a script of ten commands.

| client | meaning |
|---|---|
| gpuprov | `core/ssh` as the engine uses it, one thread per host. It looks for the copy first, checks it by SHA-256 on the node, and renames it into place |
| gpuprov, ten commands | each command has an exit status of its own |
| OpenSSH | one `ssh` per host, file and script on its stdin, no checksum |

Hosts are namespaces with an sshd on this machine, so most of the wall time is sshd's for every client. Client CPU is the user and system time of all client
processes. Peak memory is the sum of PSS of all of them, sampled in a separate run.

""",
    "Files to nodes and back": """gpuprov checks every file by SHA-256 on the node and renames it into place; rsync runs with `-a`.

| client | meaning |
|---|---|
| gpuprov | `tests/drivers/transfer.c`: what `gpuprov cp` does, without the lookup of the stack |
| rsync | `rsync -a -e ssh`; to many nodes one rsync per node, all at once |

Nodes are sshds on this machine, so the wall time has both ends' CPU. The column "left this machine" counts what a line to a cloud would
carry: from node to node gpuprov uses the nodes' own network.

""",
    "Log of a job on many nodes": """Every node prints numbered lines at a fixed pace. A run counts only if every line of every node arrives, in order.

| client | meaning |
|---|---|
| gpuprov | `gpuprov exec`: the node keeps the log, the client merges all logs and puts the rank in front of each line |
| OpenSSH | one `ssh` per node, each into a file of its own: nothing is merged or kept |

The nodes are local, so programs, sshds, agents and client share the cores. Client CPU is that of all client processes.

""",
    "Bootstrap of many hosts": """Ten tasks on every host: three packages, a folder, four files, a line in one of them, a link, a user, a command. The first
run finds fresh hosts; `again` finds nothing to do. After each run the hosts are compared with what the tasks say.

| client | meaning |
|---|---|
| gpuprov | `bootstrap/` as the engine uses it, one thread per host, without launch and validation. The first run also copies the agent to every host |
| Ansible, its defaults | ansible-core with `-f 5` and without pipelining; its SSH connections stay open for the second run |
| Ansible, a fork per host, pipelining | the same with `-f HOSTS`, pipelining, and no gathering of facts |

Hosts are namespaces with an sshd and a real apt on this machine: clients and hosts share its cores. Client CPU does not count Ansible's
SSH processes that stay in the background. Peak memory is the sum of PSS of all client processes, sampled in separate runs.

""",
}


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--only", default="start,launch,clouds,fanout,transfer,joblog,setup,local", help="parts, with commas")
    words.add_argument("--quick", action="store_true", help="few rounds: is it broken?")
    words.add_argument("--out", default=str(ROOT / "docs" / "benchmarks.md"))
    args = words.parse_args()
    drivers, quick = BUILD / "tests" / "drivers", args.quick
    known = {
        "start": ("Start", lambda d: start.run(PROGRAM, d, 5 if quick else 31)),
        "launch": ("Launch, describe, terminate on an EC2 emulator", lambda d: launch.run(
            drivers, d, [1, 32, 100], 1 if quick else 5)),
        "clouds": ("Launch to ids at each cloud", lambda d: clouds.run(PROGRAM, d, [1] if quick else [1, 32],
                                                                       1 if quick else 3)),
        "fanout": ("Fan-out over SSH", lambda d: fanout.run(drivers, d, [4] if quick else [32, 128],
                                                            1 if quick else 3)),
        "transfer": ("Files to nodes and back", lambda d: transfer.run(
            drivers, d, *((500, 16, 3, 1) if quick else (10000, 1024, 32, 5)))),
        "joblog": ("Log of a job on many nodes", lambda d: joblog.run(
            PROGRAM, d, *((2, 1000, 2, 1) if quick else (32, 10000, 10, 3)))),
        "setup": ("Bootstrap of many hosts", lambda d: setup.run(
            drivers / "bootstrap_fleet", BUILD, d, [4] if quick else [4, 8, 32], 1 if quick else 3)),
        "local": ("Local nodes", lambda d: nodes.run(PROGRAM, d, [2] if quick else [2, 8, 32, 64],
                                                        1 if quick else 3, 0 if quick else 128)),
    }
    wanted = args.only.split(",")
    unknown = [w for w in wanted if w not in known]
    if unknown:
        words.error("no part %s; there are: %s" % (unknown[0], ", ".join(known)))
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit("bench: ended by %s" % signal.Signals(n).name))
    signal.alarm(LIMIT_S)
    parts, skipped, started = [], [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpuprov-bench-") as folder:
        for name in wanted:
            title, measure = known[name]
            print("bench: %s" % title, file=sys.stderr, flush=True)
            try:
                parts.append(measure(folder))
                print(parts[-1][1], flush=True)
                for goal in parts[-1][2]:
                    print("goal: %s: %s: %s" % tuple(goal), flush=True)
            except Skip as why:
                skipped.append((title, str(why)))
                print("bench: skipped: %s" % why, file=sys.stderr)
    if not parts:
        sys.exit("bench: nothing was measured")
    pathlib.Path(args.out).write_text(page(parts, skipped, time.monotonic() - started))
    print("bench: wrote %s" % args.out, file=sys.stderr)


if __name__ == "__main__":
    main()
