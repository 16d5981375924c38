#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py NAME PROGRAM...: runs test programs, several at once because most of them wait. The output of a program
is printed when it fails, else its closing line with its wall and CPU seconds. Fails when one fails or none ran. A
program that runs longer than TEST_LIMIT_S seconds is killed, and fails."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

JOBS = int(os.environ.get("TEST_JOBS") or 3 * len(os.sched_getaffinity(0)))
LIMIT_S = float(os.environ.get("TEST_LIMIT_S") or 300)


def run(name, program):
    """(program, exit code, output, wall, CPU)."""
    argv = [program]
    if name == "fuzz":
        argv.append("tests/fuzz/corpus/" + pathlib.Path(program).name.removeprefix("fuzz_"))
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        killer = threading.Timer(LIMIT_S, os.kill, (child.pid, signal.SIGKILL))
        killer.start()
        _, status, used = os.wait4(child.pid, 0)
        killer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - began
        out.seek(0)
        text = out.read().decode(errors="replace")
    if child.returncode and wall >= LIMIT_S:
        text += f"{program}: killed after {LIMIT_S:g} s (TEST_LIMIT_S)\n"
    return program, child.returncode, text, wall, used.ru_utime + used.ru_stime


def main(name, programs):
    failed, empty, skipped = [], [], []
    began, all_cpu = time.monotonic(), 0.0
    with ThreadPoolExecutor(JOBS) as pool:
        for done in as_completed([pool.submit(run, name, p) for p in programs]):
            program, code, text, wall, used = done.result()
            short = pathlib.Path(program).name
            all_cpu += used
            lines = [line for line in text.splitlines() if line.strip()] or [""]
            if code != 0:
                failed.append(short)
                print(f"{program}: exit {code}\n{text}", flush=True)
                continue
            if re.search(r"PASSED *\] 0 test", text):  # every test was skipped: that proves nothing
                empty.append(short)
            print(f"{short:32} {lines[-1]:28} {wall:6.1f} s, CPU {used:5.1f} s", flush=True)
            skipped += [f"{short}: {line}" for line in lines if re.match(r"skipped:|\[  SKIPPED \] [a-z]", line)]
    print(*skipped, sep="\n", end="\n" if skipped else "")
    if failed:
        print(f"{name}: failed:", *failed)
        return 1
    if len(empty) == len(programs):
        print(f"{name}: nothing ran")
        return 1
    if skipped and os.environ.get("GPUPROV_NO_SKIPS"):
        print(f"{name}: tests were skipped, which GPUPROV_NO_SKIPS makes a failure")
        return 1
    print(f"{name}: {len(programs) - len(empty)} programs passed" + ("; nothing ran in: " if empty else "") +
          " ".join(empty))
    print(f"{name}: {time.monotonic() - began:.0f} s, of which CPU {all_cpu:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
