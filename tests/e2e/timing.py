# SPDX-License-Identifier: Apache-2.0
"""Wall and CPU seconds per test. The ten slowest tests are printed at the end of a run; all of them are
written to the file GPUPROV_TIMES, one line each: wall, CPU, test. With GPUPROV_TIMES, as root and with cgroup v1, the
CPU seconds are those of everything that the test started; else of the test's process and of the children it waited for."""
import os
import pathlib
import resource
import time

import pytest

SLOWEST = 10


ACCOUNTS = pathlib.Path("/sys/fs/cgroup/cpuacct")
GROUP = ACCOUNTS / f"gpuprov-test-{os.getpid()}"


def account():
    """Puts this process, and what it will start, into a group of its own that counts its CPU time."""
    if not os.environ.get("GPUPROV_TIMES") or os.geteuid() != 0 or not (ACCOUNTS / "cgroup.procs").exists():
        return
    GROUP.mkdir()
    (GROUP / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


def close_account():
    if GROUP.exists():
        for pid in (GROUP / "cgroup.procs").read_text(encoding="ascii").split():
            (ACCOUNTS / "cgroup.procs").write_text(pid, encoding="ascii")
        GROUP.rmdir()


def cpu():
    if GROUP.exists():
        return int((GROUP / "cpuacct.usage").read_text(encoding="ascii")) / 1e9
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


class Timing:
    def __init__(self):
        self.times = {}
        account()

    def pytest_unconfigure(self):
        close_account()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        item.stash[BEGAN] = time.monotonic(), cpu()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if call.when == "teardown":
            wall, used = item.stash[BEGAN]
            report.user_properties.append(("times", (time.monotonic() - wall, cpu() - used)))
        return report

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            self.times[report.nodeid] = dict(report.user_properties).get("times", (0, 0))

    def pytest_terminal_summary(self, terminalreporter):
        ordered = sorted(self.times.items(), key=lambda t: -t[1][0])
        if not ordered:
            return
        walls, cpus = zip(*self.times.values())
        terminalreporter.section(f"the {SLOWEST} slowest of {len(ordered)} tests: wall s, CPU s")
        for name, (wall, used) in ordered[:SLOWEST]:
            terminalreporter.line(f"{wall:8.1f} {used:8.1f}  {name}")
        terminalreporter.line(f"{sum(walls):8.1f} {sum(cpus):8.1f}  all tests")
        if os.environ.get("GPUPROV_TIMES"):
            with open(os.environ["GPUPROV_TIMES"], "w", encoding="utf-8") as f:
                f.writelines(f"{wall:.2f}\t{used:.2f}\t{name}\n" for name, (wall, used) in ordered)


BEGAN = pytest.StashKey()
