# SPDX-License-Identifier: Apache-2.0
"""gpuprov-agent by itself: the checks of one node, bad usage, workers that hang, crash and are killed, and
what is shipped."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from test_agent import AGENT, BUILD, FAULTS, agent, lines_of, metrics, needed  # noqa: F401  (needed is a fixture)
from waiting import wait_for


def test_node_checks_are_lines_and_an_exit_code():
    got = agent("run", "--time", "60s", "--now-ms", int(time.time() * 1000))
    lines = lines_of(got.stdout)
    assert lines[0]["type"] == "hello" and lines[0]["v"] == 1 and lines[0]["kind"] == "host"
    assert lines[-1]["type"] == "end"
    results = {l["check"]: l for l in lines if l["type"] == "result"}
    assert {"host.cores", "host.memory", "host.disk", "host.clock", "host.kernlog"} <= set(results)
    for check in ("host.cores", "host.memory", "host.clock"):
        assert results[check]["verdict"] == "pass", results[check]
    assert metrics(results["host.memory"])["wrong_words"] == 0
    assert got.returncode == {"pass": 0, "degraded": 1, "fail": 2}.get(lines[-1]["verdict"], 3)
    assert all(len(line) <= 60 << 10 for line in got.stdout.splitlines())


@pytest.mark.parametrize("offset_s, verdict", [(0, "pass"), (-60, "degraded"), (600, "fail")])
def test_a_wrong_clock_is_told(offset_s, verdict):
    got = agent("run", "--checks", "host.clock", "--now-ms", int((time.time() + offset_s) * 1000))
    result = lines_of(got.stdout)[2]
    assert result["verdict"] == verdict
    assert abs(result["data"]["signed_offset_s"] + offset_s) < 5


def boot_id():
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.mark.parametrize("args, verdict", [(["--same-clock"], "skipped"), (["--now-boot", boot_id()], "skipped"),
                                           (["--now-boot", "0" * 36], "pass")])
def test_a_clock_is_not_compared_with_itself(args, verdict):
    got = agent("run", "--checks", "host.clock,host.cores", "--now-ms", int(time.time() * 1000), *args)
    results = {l["check"]: l for l in lines_of(got.stdout) if l["type"] == "result"}
    assert results["host.clock"]["verdict"] == verdict
    if verdict == "skipped":
        assert results["host.clock"]["code"] == "same_clock" and "offset" not in metrics(results["host.clock"])
        assert "time service" in results["host.clock"]["message"]
    assert got.returncode == 0, "a skipped clock is no unknown node"


def test_gpu_checks_of_the_static_agent_are_skipped_not_passed():
    got = agent("run", "--checks", "gpu.memory")
    lines = lines_of(got.stdout)
    result = next(l for l in lines if l["type"] == "result")
    assert result["verdict"] == "skipped" and "no GPU" in result["message"], result
    assert got.returncode == 3


@pytest.mark.parametrize("args, text", [
    (["run", "--checks", "host.nothing"], "the checks are: host.cores"),
    (["run", "--checks", "net.pair"], "is not a node check"),
    (["run", "--checks", "host.disk,host.disk"], "given twice"),
    (["run", "--time", "60"], "is not a duration"),
    (["run", "--frobnicate"], "unknown option"),
    (["follow", "--dir", "/nonexistent"], "/nonexistent"),
    (["dance"], "unknown verb: dance"),
    (["checks", "--loud"], "unknown option"),
])
def test_bad_usage_is_one_line_and_could_not_tell(args, text):
    got = agent(*args)
    assert got.returncode == 3 and got.stdout == ""
    assert text in got.stderr


def test_a_check_that_never_ends_is_killed_and_fails():
    got = agent("run", "--all", "--checks", "host.clock,host.cores", program=FAULTS,
                env={"GPUPROV_FAULT": "host.clock:0:0"})
    results = {l["check"]: l for l in lines_of(got.stdout) if l["type"] == "result"}
    assert results["host.clock"]["code"] == "overrun" and results["host.clock"]["verdict"] == "fail"
    assert results["host.cores"]["verdict"] == "pass"  # in a new worker
    assert got.returncode == 2


def test_a_disk_that_stops_giving_back_fails():
    """The first blocks came back: without the rest that is no pass."""
    got = agent("run", "--checks", "host.disk", program=FAULTS, env={"GPUPROV_FAULT": "disk_read:0:0"})
    result = next(l for l in lines_of(got.stdout) if l["type"] == "result")
    assert result["verdict"] == "fail" and result["code"] == "disk_read", result
    assert "after 2 of" in result["message"] and got.returncode == 2


def test_a_kernel_log_that_was_not_read_to_its_end_is_no_pass():
    got = agent("run", "--checks", "host.kernlog", program=FAULTS, env={"GPUPROV_FAULT": "kernlog:0:0"})
    result = next(l for l in lines_of(got.stdout) if l["type"] == "result")
    if result["code"] == "unreadable":
        pytest.skip(result["message"])
    assert result["verdict"] == "error" and result["code"] in ("not_read", "empty"), result


def test_a_worker_that_cannot_be_ended_spoils_the_end():
    """After the last result nothing else would tell of a driver that holds a process."""
    got = agent("run", "--checks", "host.cores", program=FAULTS, env={"GPUPROV_FAULT": "unreaped:0:0"})
    lines = lines_of(got.stdout)
    assert lines[2]["verdict"] == "pass"
    assert lines[-1]["verdict"] == "fail" and "driver hang" in lines[-1]["reason"], lines[-1]
    assert got.returncode == 2


def test_a_worker_that_is_killed_while_the_next_check_waits(tmp_path):
    """SIGKILL and SIGSTOP of the worker at moments of no choice: never a pass of what did not run."""
    for sig, verdicts in ((signal.SIGKILL, {"error"}), (signal.SIGSTOP, {"fail"})):
        p = subprocess.Popen([FAULTS, "run", "--all", "--checks", "host.memory,host.disk,host.cores"],
                             stdout=subprocess.PIPE, text=True)
        lines = [json.loads(p.stdout.readline()) for _ in range(2)]
        assert lines[1] == {"type": "start", "check": "host.memory"}
        children = pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children")
        os.kill(int(wait_for(lambda children=children: children.read_text().split())[0]), sig)
        lines += lines_of(p.communicate(timeout=60)[0])
        results = [l for l in lines if l["type"] == "result"]
        assert [r["check"] for r in results] == ["host.memory", "host.disk", "host.cores"]
        assert results[0]["verdict"] in verdicts, results[0]
        assert results[2]["verdict"] == "pass"  # in a new worker
        assert p.returncode != 0 and lines[-1]["type"] == "end"


def test_a_check_that_crashes_is_an_error_and_the_rest_runs():
    got = agent("run", "--checks", "host.clock,host.cores", program=FAULTS,
                env={"GPUPROV_FAULT": "host.clock:1:0"})
    results = {l["check"]: l for l in lines_of(got.stdout) if l["type"] == "result"}
    assert results["host.clock"]["verdict"] == "error" and "SIGABRT" in results["host.clock"]["message"]
    assert results["host.cores"]["verdict"] == "pass"
    assert got.returncode == 3


def test_a_full_disk_is_told():
    script = (f"exec 9<{AGENT}; mount -t tmpfs -o size=3m none /var/tmp && "
              "mount --bind /var/tmp /tmp && cd / && "
              "HOME=/var/tmp exec /proc/self/fd/9 run --checks host.disk")
    who = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-r", "-m"]
    if subprocess.run([*who, "true"]).returncode:
        pytest.skip("mount namespaces are refused here")
    got = subprocess.run([*who, "sh", "-c", script], capture_output=True, text=True, timeout=300)
    result = next((l for l in lines_of(got.stdout) if l["type"] == "result"), got)
    assert result["verdict"] == "fail" and result["code"] == "disk_full", result


def test_what_is_shipped_has_no_faults_and_is_small():
    assert b"GPUPROV_FAULT" not in AGENT.read_bytes()
    assert (BUILD / "agent" / "gpuprov-agent.gz").stat().st_size < 1 << 20
    kind = subprocess.run(["readelf", "-l", AGENT], capture_output=True, text=True, check=True).stdout
    assert "INTERP" not in kind
