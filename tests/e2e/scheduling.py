# SPDX-License-Identifier: Apache-2.0
"""Which tests run, and which of them at once.

Jobs by need: files that compute (COMPUTE) run only in as many workers as there are cores, because a gang that
gets no core is late. All other files wait for most of their time; they run in every other worker.
A worker takes a whole file, in its order, so that what a file starts for all of its tests starts once. Only the
files in PARTS are split: each part is one worker's.

--sample: of the tests with the mark `matrix(keep=N)` (one function with many parameters) only N run. The commit
decides which, so the same commit runs the same ones and other commits run others. The same limits large files
(AT_MOST). Tests with the mark `long` do not run. --rest=N: with --sample, one Nth of what it leaves out runs too, again by commit."""
import os
import subprocess
import zlib

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

# Prefixes of files that compute.
COMPUTE = ("agent/", "driver/test_driver_real.py", "verbs/test_baseline.py", "verbs/test_validate.py",
           "verbs/test_validate_bare.py")
WAITING = ("agent/test_agent_nccl.py", "agent/test_agent_job.py", "agent/test_agent_job_days.py",
           "agent/test_agent_job_health.py", "agent/test_agent_job_reboot.py",
           "agent/test_agent_watch.py")  # among those, they wait for limits
# Files that take long, the longest first: begun last, one would keep all others waiting.
LONG = ["driver/test_driver_real.py", "clouds/test_openstack_days.py", "aws/test_ec2.py", "aws/test_ec2_killed.py",
        "aws/test_run_ec2.py", "aws/test_copied_tags.py", "jobs/test_run.py", "jobs/test_recover.py",
        "driver/test_driver_baddays.py", "nodes/test_local.py", "aws/test_hostile.py",
        "driver/test_driver_dnf_baddays.py", "nodes/test_bootstrap.py",
        "agent/test_detection.py", "agent/test_agent.py", "nodes/test_fleet.py", "aws/test_aws_faults.py",
        "aws/test_hostile_stacks.py", "aws/test_hostile_random.py", "verbs/test_baseline.py"]
# Files whose tests do not depend on each other, and into how many parts: of all tests, and of a sample, which has
# few of them, while each part starts a lab of its own.
PARTS = {"aws/test_copied_tags.py": (3, 1), "aws/test_ec2.py": (3, 2), "aws/test_ec2_killed.py": (3, 1), "aws/test_hostile.py": (2, 1),
         "driver/test_driver_baddays.py": (2, 2)}
# Of each file with this beginning at most so many tests run in a sample; the first that fits counts.
AT_MOST = {"clouds/": 5, "agent/": 8, "aws/": 6, "bootstrap/": 5, "driver/": 3, "nodes/": 7, "jobs/": 6, "storage/": 5,
           "verbs/test_cli": 1000, "verbs/": 10}
# What these files start for their tests takes minutes: --rest takes all of a file's tests or none.
TOGETHER = {"driver/test_driver_real.py", "nodes/test_vm.py"}
# The same for files with too many tests for that: --rest takes none of a file, or more of them.
SELDOM = {"clouds/test_openstack.py", "clouds/test_openstack_days.py", "clouds/test_openstack_deadline.py",
          "clouds/test_openstack_hosts.py", "bootstrap/test_framework_images.py"}


def computes(scope):
    return scope.startswith(COMPUTE) and not scope.startswith(WAITING)


def file_of(nodeid):
    return nodeid.partition("::")[0].removeprefix("tests/e2e/")


class Scheduling(LoadScopeScheduling):
    """xdist's scheduler, with units and their order as above."""

    def _split_scope(self, nodeid):
        file = file_of(nodeid)
        parts = PARTS.get(file, (1, 1))[self.config.option.sample and not self.config.option.rest]
        return f"{file} {zlib.crc32(nodeid.encode()) % parts}" if parts > 1 else file

    def _computes(self, node):
        return int(node.gateway.id.removeprefix("gw")) % len(self.config.option.tx) < len(os.sched_getaffinity(0))

    def _next(self, node):
        """The unit that this worker takes, or None. A worker that computes takes others at the end."""
        def rank(scope):
            file = scope.partition(" ")[0]
            return LONG.index(file) if file in LONG else len(LONG)
        mine = [s for s in self.workqueue if computes(s) == self._computes(node)]
        if not mine and self._computes(node):
            mine = list(self.workqueue)
        return min(mine, key=rank, default=None)

    def _assign_work_unit(self, node):
        scope = self._next(node) or next(iter(self.workqueue))
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node):
        if not node.shutting_down and self._next(node) is None:
            node.shutdown()
            return
        super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)  # pytest -p no:xdist runs the tests too
def pytest_xdist_make_scheduler(config, log):
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_addoption(parser):
    parser.addoption("--sample", action="store_true", help="run a sample of the tests marked `matrix`, and none marked `long`")
    parser.addoption("--rest", type=int, default=0, metavar="N", help="and one Nth of the tests that --sample leaves out")


def pytest_configure(config):
    config.addinivalue_line("markers", "matrix(keep): one test with many parameters; --sample runs `keep` of them")
    config.addinivalue_line("markers", "long: --sample leaves it out")
    if config.option.sample and "GPUPROV_SAMPLE" not in os.environ:  # workers inherit it
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=config.rootpath, capture_output=True, text=True, check=False)
        os.environ["GPUPROV_SAMPLE"] = head.stdout.strip()[:12] or "none"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if not config.option.sample:
        return
    by, out = {}, set()
    for item in items:
        if item.get_closest_marker("long"):
            out.add(item)
            continue
        if mark := item.get_closest_marker("matrix"):
            by.setdefault((item.path, item.originalname), (mark.kwargs["keep"], []))[1].append(item)
    seed = os.environ["GPUPROV_SAMPLE"]

    def leave_out(tests, keep):
        tests.sort(key=lambda t: zlib.crc32((seed + t.nodeid).encode()))
        out.update(tests[keep:])
    for keep, tests in by.values():
        leave_out(tests, keep)
    files = {}
    for item in items:
        if item not in out:
            files.setdefault(file_of(item.nodeid), []).append(item)
    for file, tests in files.items():
        leave_out(tests, next((n for folder, n in AT_MOST.items() if file.startswith(folder)), len(tests)))
    if rest := config.option.rest:
        def share(item):
            file = file_of(item.nodeid)
            by_file, by_test = zlib.crc32((seed + file).encode()), zlib.crc32((seed + item.nodeid).encode())
            if file in SELDOM:
                return by_file % 4 or by_test % (rest // 4)
            return (by_file if file in TOGETHER else by_test) % rest
        out = {item for item in out if share(item)}
    if out:
        config.hook.pytest_deselected(items=list(out))
        items[:] = [item for item in items if item not in out]


def pytest_terminal_summary(terminalreporter, config):
    if config.option.sample:
        terminalreporter.line(f"sampled by commit {os.environ['GPUPROV_SAMPLE']}: make test-all runs every test")
