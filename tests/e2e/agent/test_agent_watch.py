# SPDX-License-Identifier: Apache-2.0
"""The agent's verb watch: what becomes worse while other programs run is reported once, with its GPU; a sound
node, old faults and a job's own faults are not called a failure; what cannot be watched is said."""
import contextlib
import http.server
import json
import os
import subprocess
import threading

import pytest

import agent_gpu
from agent_gpu import needed  # noqa: F401  (a fixture)
from waiting import wait_for


def watch(nvml="", gpus=2, agent=agent_gpu.AGENT, kmsg="", time="1s", more=(), libraries=agent_gpu.STANDIN):
    """Its lines. Reads of the counters: 1 is the begin, then one a period."""
    own = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "KMSG", "SETUP")}
    own.update({"GPUPROV_STANDIN": f"gpus={gpus}", "GPUPROV_STANDIN_NVML": f"gpus={gpus},{nvml}", "SETUP": ":",
                "GPUPROV_LIBRARY_PATH": str(libraries)})
    if kmsg is not None:
        own["KMSG"] = kmsg
    argv = [*agent_gpu.namespace(), "sh", "-c", agent_gpu.NAMESPACE, "sh", str(gpus), str(agent), "watch",
            "--every", "100ms", "--time", time, *more]
    done = subprocess.run(argv, env=own, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def unhealthy(lines):
    return [l for l in lines if l["watch"] == "unhealthy"]


def test_a_sound_node(needed):  # noqa: F811
    lines = watch("ecc_old=4,remap=8,replays=900,retired=3,reasons=0x4")
    assert lines[0] == {"watch": "begin", "gpus": 2, "kernlog": True}
    assert lines[-1]["watch"] == "end" and {l["watch"] for l in lines[1:-1]} == {"alive"}


@pytest.mark.parametrize("nvml,severity,code,words", [
    ("ecc=2", "fail", "ecc_uncorrected", "2 new uncorrectable ECC errors"),
    ("remap_pending=1", "degraded", "remap_pending", "a reset of the GPU is due"),
    ("remap_failed=1", "fail", "remap_failed", "could not be remapped"),
    ("recovery=1", "fail", "recovery_action", "reset the GPU"),
    ("link_down=7", "fail", "nvlink_down", "NVLink 7 went down"),
    ("pcie_fatal=1", "fail", "pcie_errors", "uncorrectable PCIe"),
    ("lost=1", "fail", "gpu_lost", "fell off the bus"),
    ("xid=79", "fail", "xid_79", "Xid 79"),
    ("xid=31", "note", "xid_31", "Xid 31"),  # the job's own
    ("xid=63", "degraded", "xid_63", "Xid 63"),  # a reset is due, later
    ("reasons=0x48", "degraded", "hw_slowdown", "HW thermal slowdown"),
])
def test_what_becomes_worse_is_reported_once(needed, nvml, severity, code, words):  # noqa: F811
    lines = watch(f"gpu=1,after=2,{nvml}")
    found = unhealthy(lines)
    assert [(f["gpu"], f["severity"], f["code"]) for f in found] == [(1, severity, code)], lines
    assert words in found[0]["text"]


def test_a_fault_from_before_the_job_is_not_the_jobs(needed):  # noqa: F811
    assert unhealthy(watch("gpu=1,ecc=2,remap_pending=1,recovery=1,link_down=7")) == []


def test_a_collective_that_waits_is_a_note(needed):  # noqa: F811
    idle = "busy=100,power=120000"
    found = unhealthy(watch(f"gpu=0,{idle}", more=("--stalled", "200ms")))
    assert [(f["gpu"], f["severity"], f["code"]) for f in found] == [(0, "note", "busy_at_low_power")]
    assert "100 % busy with 120 W of 700 W" in found[0]["text"]
    assert unhealthy(watch(idle)) == []  # not for as long as the default
    assert unhealthy(watch("busy=100,power=600000", more=("--stalled", "200ms"))) == []


def test_the_kernel_log_names_the_gpu(needed):  # noqa: F811
    found = unhealthy(watch("gpu=1,after=2,kmsg=79", kmsg="6,1,1,-;boot\n"))
    assert [(f["gpu"], f["code"]) for f in found] == [(1, "xid_79")], found


def test_without_nvml_nothing_is_watched_and_that_is_said(needed, tmp_path):  # noqa: F811
    (tmp_path / "libcuda.so.1").symlink_to(agent_gpu.STANDIN / "libcuda.so.1")
    blind = [l for l in watch(libraries=tmp_path, kmsg=None) if l["watch"] == "blind"]
    assert [b["gpu"] for b in blind] == [0, 1] and "libnvidia-ml" in blind[0]["reason"]


def test_a_program_without_gpu_code_says_how_many_it_watches():
    lines = watch(gpus=0, agent=agent_gpu.HOST_AGENT, kmsg=None, time="200ms")
    assert lines[0] == {"watch": "begin", "gpus": 0, "kernlog": False} and lines[-1]["watch"] == "end"


def test_it_ends_when_nobody_reads(tmp_path):
    p = subprocess.Popen([agent_gpu.HOST_AGENT, "watch", "--every", "100ms"], stdout=subprocess.PIPE, text=True)
    assert json.loads(p.stdout.readline())["watch"] == "begin"
    p.stdout.close()
    assert p.wait(timeout=30) == 0


def test_sigterm_is_a_last_look(needed):  # noqa: F811
    """What ended a job is often newer than the last period."""
    env = {**os.environ, "GPUPROV_STANDIN": "gpus=2", "GPUPROV_STANDIN_NVML": "gpus=2,gpu=1,after=2,ecc=1", "SETUP": ":",
           "GPUPROV_LIBRARY_PATH": str(agent_gpu.STANDIN)}
    with subprocess.Popen([*agent_gpu.namespace(), "sh", "-c", agent_gpu.NAMESPACE, "sh", "2", agent_gpu.AGENT, "watch",
                           "--every", "1h"], env=env, stdout=subprocess.PIPE, text=True) as p:
        lines = [json.loads(p.stdout.readline()) for _ in range(2)]
        p.terminate()
        lines += [json.loads(line) for line in p.stdout]
        assert p.wait(timeout=30) == 0
    assert [l["watch"] for l in lines] == ["begin", "alive", "unhealthy", "end"] and lines[2]["code"] == "ecc_uncorrected"


def test_a_program_without_gpu_code_says_that_gpus_are_not_watched(needed):  # noqa: F811
    lines = watch(agent=agent_gpu.HOST_AGENT, time="200ms")
    assert [(l["gpu"], l["reason"]) for l in lines if l["watch"] == "blind"] == [
        (n, "this program has no code for GPUs") for n in range(2)]


def test_wrong_options():
    for words in (["--every", "1ms"], ["--every", "x"], ["--what"]):
        done = subprocess.run([agent_gpu.HOST_AGENT, "watch", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 3 and done.stderr.startswith("gpuprov-agent watch: "), done


# --- notices of the cloud ---

class Metadata(http.server.BaseHTTPRequestHandler):
    """A metadata service: server.answers maps (method, path) to (status, text); requests are kept."""

    def answer(self):
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        status, text = self.server.answers.get((self.command, self.path), (404, "not found"))
        self.send_response(status)
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):  # who asked has ended
            self.wfile.write(text.encode())

    do_GET = do_PUT = answer

    def log_message(self, *_):
        pass


@pytest.fixture
def metadata():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    server.answers, server.seen = {}, []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def notices(cloud, metadata, expected=True, every="100ms"):
    """Its lines: the first one, or what it prints until the service was asked twice."""
    env = {**os.environ, "GPUPROV_METADATA": f"127.0.0.1:{metadata.server_address[1]}"}
    with subprocess.Popen([agent_gpu.HOST_AGENT, "watch", "--every", every, "--notices", cloud], env=env,
                          stdout=subprocess.PIPE, text=True) as p:
        lines = []
        while expected and not [l for l in lines if l["watch"] in ("preempted", "blind")]:
            lines.append(json.loads(p.stdout.readline()))
        wait_for(lambda: sum(method == "GET" and "name" not in path for method, path, _ in metadata.seen) >= 2
                 or (lines and lines[-1]["watch"] == "blind"))
        p.terminate()
        lines += [json.loads(line) for line in p.stdout]
        assert p.wait(timeout=30) == 0
    return [l for l in lines if l["watch"] in ("preempted", "blind")]


AZURE = "/metadata/scheduledevents?api-version=2020-07-01"
AZURE_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"


def events(kind, name):
    other = {"EventId": "1", "EventType": "Preempt", "Resources": ["vm-other"], "NotBefore": ""}
    mine = {"EventId": "2", "EventType": kind, "Resources": ["vm-1", name], "NotBefore": "Thu, 26 Nov 2026 08:22:00 GMT"}
    return json.dumps({"DocumentIncarnation": 2, "Events": [other, mine]})


@pytest.mark.parametrize("cloud,answers,found", [
    ("aws", {("PUT", "/latest/api/token"): (200, "tok"),
             ("GET", "/latest/meta-data/spot/instance-action"):
             (200, '{"action": "terminate", "time": "2026-11-26T08:22:00Z"}')},
     [{"watch": "preempted", "when": "2026-11-26T08:22:00Z"}]),
    ("aws", {("PUT", "/latest/api/token"): (200, "tok")}, []),
    ("alibaba", {("PUT", "/latest/api/token"): (200, "tok"),
                 ("GET", "/latest/meta-data/instance/spot/termination-time"): (200, "2026-11-26T08:22:00Z")},
     [{"watch": "preempted", "when": "2026-11-26T08:22:00Z"}]),
    ("google", {("GET", "/computeMetadata/v1/instance/preempted"): (200, "TRUE")}, [{"watch": "preempted"}]),
    ("google", {("GET", "/computeMetadata/v1/instance/preempted"): (200, "FALSE")}, []),
    ("azure", {("GET", AZURE_NAME): (200, "vm-0"), ("GET", AZURE): (200, events("Preempt", "vm-0"))},
     [{"watch": "preempted", "when": "2026-11-26T08:22:00Z"}]),
    ("azure", {("GET", AZURE_NAME): (200, "vm-0"), ("GET", AZURE): (200, events("Freeze", "vm-0"))}, []),
    ("azure", {("GET", AZURE_NAME): (200, "vm-0"), ("GET", AZURE): (200, '{"Events":[]}')}, []),
])
def test_the_clouds_notice(metadata, cloud, answers, found):
    metadata.answers.update(answers)
    assert notices(cloud, metadata, expected=bool(found)) == found
    method, path, headers = [s for s in metadata.seen if s[0] == "GET"][-1]
    if cloud in ("aws", "alibaba"):
        assert [v for k, v in headers.items() if k.lower().endswith("metadata-token")] == ["tok"]
    assert method == "GET" and headers["Host"] in ("169.254.169.254", "100.100.100.200"), (path, headers)


def test_after_a_notice_the_service_is_not_asked_all_the_time(metadata):
    metadata.answers[("GET", "/computeMetadata/v1/instance/preempted")] = (200, "TRUE")
    assert notices("google", metadata, every="1h") == [{"watch": "preempted"}]
    assert len(metadata.seen) == 2


@pytest.mark.parametrize("cloud,answers,words", [
    ("aws", {}, "status 404"),
    ("aws", {("PUT", "/latest/api/token"): (200, "tok"),
             ("GET", "/latest/meta-data/spot/instance-action"): (500, "")}, "unknown text"),
    ("google", {("GET", "/computeMetadata/v1/instance/preempted"): (200, "maybe")}, "unknown text"),
    ("azure", {("GET", AZURE_NAME): (200, "vm-0"), ("GET", AZURE): (200, "[1")}, "unknown text"),
])
def test_an_answer_that_is_none_is_said(metadata, cloud, answers, words):
    metadata.answers.update(answers)
    lines = notices(cloud, metadata)
    assert [l["watch"] for l in lines] == ["blind"] and words in lines[0]["reason"], lines
