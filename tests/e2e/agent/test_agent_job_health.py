# SPDX-License-Identifier: Apache-2.0
"""The health watch beside a job: findings reach its readers and its state, a fault or a notice of the cloud ends it
where that was requested, and no watch, whatever it does, harms a job. Real watches look at stand-in GPUs and a metadata
service of the test; a watch that misbehaves is a script in place of gpuprov-agent-cuda."""
import contextlib
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import time

import agent_gpu
import pytest
from agent_gpu import needed  # noqa: F401  (a fixture)
from agent_job import AGENT, FAULTS, Log, Node, alive, kill9, marked
from small_disk import fill, small_disk
from test_agent_watch import metadata  # noqa: F401  (a fixture)
from waiting import wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
WARN = {"notices": None, "on_unhealthy": "warn"}
STOP = {"notices": None, "on_unhealthy": "stop"}
BEGIN = '{"watch":"begin","gpus":2,"kernlog":false}'
FAULT = {"watch": "unhealthy", "gpu": 1, "severity": "fail", "code": "xid_79", "text": "Xid 79", "advice": "replace it"}
NOTE = {"watch": "unhealthy", "severity": "note", "code": "xid_31", "text": "Xid 31"}
RUBBISH = "the health watch prints lines that are not understood: findings may be missing"


def says(*lines):
    """A piece of sh that prints them."""
    return "".join(f"echo '{line if isinstance(line, str) else json.dumps(line)}'\n" for line in lines)


class Watched(Node):
    """A node whose agent has a watch of the test beside it."""

    def __init__(self, tmp_path, body, home=None, program=AGENT, env=None, user=None):
        self.bin = tmp_path / "bin"
        self.bin.mkdir()
        shutil.copy(program, self.bin / "gpuprov-agent")
        for p in [tmp_path, *tmp_path.parents][:4]:
            p.chmod(p.stat().st_mode | 0o055)
        self.script(body)
        super().__init__(home or tmp_path / "home", self.bin / "gpuprov-agent", env, user)

    def script(self, body):
        (self.bin / "gpuprov-agent-cuda").write_text(f"#!/bin/sh\n{body}\n")
        (self.bin / "gpuprov-agent-cuda").chmod(0o755)

    def health(self, job):
        return self.follow(job, 0, "--seconds", "0").all("health")

    def watch(self, job):
        """The pid of the watch: the supervisor's child without the job's mark."""
        def look():
            pids = pathlib.Path(f"/proc/{self.supervisor(job)}/task/{self.supervisor(job)}/children").read_text().split()
            return [int(p) for p in pids if int(p) not in marked(job) and alive(p)]
        return wait_for(look)[0]

    def workers(self, job, n):
        """The pids of its n children."""
        watch = self.watch(job)

        def look():
            found = pathlib.Path(f"/proc/{watch}/task/{watch}/children").read_text().split()
            return len(found) == n and [int(p) for p in found]
        return wait_for(look)

    def go(self):
        (self.home / ".gpuprov/work/go").touch()


WAITS = "until [ -e go ]; do sleep 0.02; done; "


@pytest.fixture
def watched(tmp_path):
    nodes = []

    def make(body, **more):
        nodes.append(Watched(tmp_path, body, **more))
        return nodes[-1]
    yield make
    for n in nodes:
        n.close()


# --- findings ---

def test_findings_reach_every_reader(watched):
    node = watched('echo "$*" >$HOME/args\n' + says(BEGIN, NOTE, FAULT) + "exec sleep 1000")
    job = node.start(f"echo up; {WAITS} echo end", watch={"notices": "aws", "on_unhealthy": "warn"})
    p = node.popen("follow", job)
    lines = []
    while not lines or b"xid_79" not in lines[-1]:
        lines.append(p.stdout.readline())  # while the job runs
    assert wait_for(lambda: node.state(job)["unhealthy"] == 1) and node.state(job)["preempted"] is False
    node.go()
    want = [{"n": 1, **NOTE}, {"n": 2, **FAULT}]
    log = Log(b"".join([*lines, *p.stdout]))
    p.communicate(timeout=60)
    assert log.all("health") == want and log.text == b"up\nend\n"
    assert log.end["exit"] == 0 and log.end["reason"] == "exited" and log.end["unhealthy"] == 1
    assert node.follow(job, 7).all("health") == want  # who reads after the end gets them too
    assert (node.home / "args").read_text() == "watch --notices aws\n"


def test_a_job_without_a_watch(watched):
    node = watched("touch $HOME/ran; exec sleep 1000")
    got, _ = node.run("exit 3")
    assert (got["exit"], got["unhealthy"], got["preempted"]) == (3, 0, False)
    assert not (node.folder(got["id"]) / "health").exists() and not (node.home / "ran").exists()


def test_a_fault_ends_the_job_where_requested(watched):
    node = watched(says(BEGIN, NOTE) + "until [ -e $HOME/fault ]; do sleep 0.02; done\n" + says(FAULT) + "exec sleep 1000")
    job = node.start("trap 'echo saved; exit 5' TERM; echo up; sleep 1000 & wait", watch=STOP)
    wait_for(lambda: node.state(job)["log_bytes"] == 3 and node.health(job))
    assert node.state(job)["state"] == "running"  # a note ends nothing
    (node.home / "fault").touch()
    log = node.follow(job)
    assert (log.end["reason"], log.end["exit"], log.end["unhealthy"], log.end["again"]) == ("unhealthy", 5, 1, False)
    assert log.end["text"] == "the node became unhealthy: GPU 1: xid_79: Xid 79" and log.text == b"up\nsaved\n"
    assert not marked(job)


def test_a_fault_during_setup_keeps_run_from_going_on(watched):
    node = watched(says(BEGIN, FAULT) + "exec sleep 1000")
    got = node.ended(node.start("sleep 1000", setup="sleep 1000", watch=STOP))
    assert (got["reason"], got["in"], got["unhealthy"]) == ("unhealthy", "setup", 1)


def cuda(node, gpus, nvml):
    """The real watch, in a namespace with stand-in GPUs."""
    node.env.update({"GPUPROV_STANDIN": f"gpus={gpus}", "GPUPROV_STANDIN_NVML": f"gpus={gpus},{nvml}", "SETUP": ":",
                     "GPUPROV_LIBRARY_PATH": str(agent_gpu.STANDIN), "NAMESPACE": agent_gpu.NAMESPACE})
    node.script(f"exec {' '.join(agent_gpu.namespace())} sh -c \"$NAMESPACE\" sh {gpus} {agent_gpu.AGENT} \"$@\"")
    return node


def test_a_gpu_that_breaks(watched, needed):  # noqa: F811
    node = cuda(watched(""), 2, "gpu=1,after=1,ecc=2")
    log = node.follow(node.start("sleep 1000", watch=STOP))
    assert (log.end["reason"], log.end["unhealthy"]) == ("unhealthy", 1)
    found, = log.all("health")
    assert (found["n"], found["gpu"], found["severity"], found["code"]) == (1, 1, "fail", "ecc_uncorrected")


def test_a_gpu_that_breaks_with_the_job(watched, needed):  # noqa: F811
    """The fault that made the job fail is newer than the watch's last period: it is found all the same."""
    node = cuda(watched(""), 2, "gpu=0,after=2,lost=1")
    job = node.start(WAITS + "exit 1", watch=WARN)
    node.workers(job, 2)
    node.go()
    log = node.follow(job)
    assert (log.end["reason"], log.end["exit"], log.end["unhealthy"]) == ("exited", 1, 1)
    assert [(f["gpu"], f["code"]) for f in log.all("health")] == [(0, "gpu_lost")]


def test_a_sound_node_has_no_findings(watched, needed):  # noqa: F811
    node = cuda(watched(""), 2, "ecc_old=4,remap=8,reasons=0x4")
    log = node.follow(node.start("sleep 0.5", watch=STOP))
    assert (log.end["exit"], log.end["unhealthy"], log.all("health")) == (0, 0, [])


def test_many_findings_are_bounded(watched):
    node = watched("n=0; while [ $n -lt 400 ]; do n=$((n+1)); "
                   "echo '{\"watch\":\"unhealthy\",\"severity\":\"fail\",\"code\":\"x\",\"text\":\"t\"}'; done\n"
                   + says({"watch": "preempted"}) + "exec sleep 1000")
    log = node.follow(node.start("sleep 1000", watch=WARN))
    found = log.all("health")
    assert [f["n"] for f in found] == list(range(1, 257))
    assert found[254] == {"n": 255, "watch": "blind", "reason": "there are too many findings: no more of them are kept"}
    assert found[255]["watch"] == "preempted" and (log.end["unhealthy"], log.end["reason"]) == (254, "preempted")


# --- a watch on bad days ---

def test_the_watch_is_killed(watched):
    """That is one finding, and the job goes on."""
    node = watched(says(BEGIN) + "exec sleep 1000")
    job = node.start(WAITS + "exit 4", watch=STOP)
    kill9(node.watch(job))
    wait_for(lambda: node.health(job))
    node.go()
    log = node.follow(job)
    assert log.all("health") == [{"n": 1, "watch": "blind", "reason": "the health watch was killed by SIGKILL: the node's "
                                                                      "health is not known from here on"}]
    assert (log.end["exit"], log.end["reason"], log.end["unhealthy"], log.end["left"]) == (4, "exited", 0, 0)


@pytest.mark.parametrize(("body", "reasons"), [
    ("exit 3", ["the health watch ended with status 3: "]),
    (says(BEGIN, "hello", "", '{"watch":"unhealthy"}', "[1]") + "exec sleep 1000", [RUBBISH]),
    (says(BEGIN) + "head -c 1048576 /dev/zero | tr '\\0' x; echo; exec sleep 1000",
     [RUBBISH, "the health watch was ended: it printed 64 KiB that are not understood"]),
    (says(BEGIN) + "yes", [RUBBISH, "the health watch was ended: it printed 64 KiB that are not understood"]),
    (says(BEGIN) + "exec >&-; exit 0", ["the health watch ended with status 0: "]),
], ids=["ends", "rubbish", "a line of 1 MB", "endless", "closes"])
def test_a_watch_that_does_not_work(watched, body, reasons):
    node = watched(body)
    job = node.start(WAITS + "exit 4", watch=STOP)
    wait_for(lambda: len(node.health(job)) == len(reasons))
    node.go()
    log = node.follow(job)
    found = log.all("health")
    assert [f["watch"] for f in found] == ["blind"] * len(reasons), found
    assert all(f["reason"].startswith(r) for f, r in zip(found, reasons)), found
    assert (log.end["exit"], log.end["reason"], log.end["unhealthy"]) == (4, "exited", 0)


def test_rubbish_does_not_hide_a_fault(watched):
    node = watched(says("hello", "x" * 9000, FAULT) + "exec sleep 1000")
    log = node.follow(node.start("sleep 1000", watch=STOP))
    assert log.end["reason"] == "unhealthy"
    assert [f.get("code", f.get("reason")) for f in log.all("health")] == [RUBBISH, "xid_79"]


def test_a_watch_that_says_nothing(watched):
    node = watched("exec sleep 1000", program=FAULTS, env={"GPUPROV_WATCH_SILENT": "200"})
    job = node.start(WAITS, watch=WARN)
    found, = wait_for(lambda: node.health(job))
    assert found["reason"] == "the health watch was ended: it printed nothing for a minute"
    node.go()
    assert node.ended(job)["exit"] == 0


def test_a_watch_that_does_not_end(watched):
    """The job ends all the same, and nothing of it counts as left over."""
    node = watched("trap '' TERM; touch $HOME/deaf\n" + says(BEGIN) + "sleep 1000 & sleep 1000")
    job = node.start(WAITS + "exit 4", watch=WARN)
    watch = node.watch(job)
    wait_for((node.home / "deaf").exists)
    node.go()
    log = node.follow(job)
    assert (log.end["exit"], log.end["left"]) == (4, 0) and not alive(watch)
    assert [f["reason"] for f in log.all("health")] == ["the health watch was ended: it did not end with the job"]


def test_a_watch_that_cannot_be_executed(watched):
    """Then this program watches."""
    node = watched("")
    (node.bin / "gpuprov-agent-cuda").write_bytes(b"\x7fELF rubbish")
    job = node.start(WAITS, watch=WARN)
    assert pathlib.Path(f"/proc/{node.watch(job)}/cmdline").read_bytes() == b"gpuprov-agent\0watch\0"
    node.go()
    assert node.follow(job).all("health") == []


def test_the_watch_is_none_of_the_jobs_processes(watched):
    """It gets no signal at the end of the job but the one that lets it look a last time, and has nothing of the job."""
    node = watched("trap 'echo term >>$HOME/terms; exit 0' TERM; env >$HOME/env\n" + says(BEGIN)
                   + "while :; do sleep 0.02; done")
    job = node.start("(trap '' TERM; echo up; exec sleep 1000) & sleep 0.2; exit 4", grace_s=1, watch=WARN,
                     env={"A": "of the job"}, secrets={"B": "secret"})
    wait_for((node.home / "env").exists)
    log = node.follow(job)
    assert (log.end["exit"], log.end["left"], log.all("health")) == (4, 0, []) and not marked(job)
    assert (node.home / "terms").read_text() == "term\n"
    text = (node.home / "env").read_text()
    assert "of the job" not in text and "secret" not in text and "GPUPROV_JOB_ID" not in text


def test_the_supervisor_is_killed(watched, needed):  # noqa: F811
    """No watch stays behind, nor one of its workers."""
    node = cuda(watched(""), 2, "")
    job = node.start("sleep 1000", watch=WARN)
    watch = node.watch(job)

    pids = [watch, *node.workers(job, 2)]
    kill9(node.supervisor(job))
    wait_for(lambda: not any(alive(p) for p in pids))
    assert node.state(job)["reason"] == "lost"


@needs_root
def test_a_job_that_kills_every_process_of_its_user(watched):
    user = 54321
    node = watched(says(BEGIN) + "exec sleep 1000", user=user)
    job = node.start(WAITS + "kill -9 -1", watch=WARN)
    watch, supervisor = node.watch(job), node.supervisor(job)
    node.go()
    wait_for(lambda: not alive(supervisor) and not alive(watch))  # a verb at that moment would be killed too
    got = node.ended(job)
    assert (got["reason"], got["exit"]) == ("lost", None) and not marked(job)
    job = node.start("kill -TERM $(cat /proc/$PPID/task/$PPID/children | tr ' ' '\\n' | grep -vx $$); exit 4", watch=WARN)
    assert node.ended(job)["exit"] == 4


def test_a_reboot_keeps_findings(watched, tmp_path):
    (tmp_path / "boot").write_text("boot-1\n")
    node = watched(says(BEGIN, FAULT) + "exec sleep 1000", program=FAULTS,
                   env={"GPUPROV_BOOT_FILE": str(tmp_path / "boot")})
    job = node.start("sleep 1000", restart=1, watch=WARN)
    wait_for(lambda: node.state(job)["unhealthy"] == 1)
    for pid in [node.supervisor(job), *marked(job)]:
        with contextlib.suppress(ProcessLookupError):
            kill9(pid)
    with open(node.folder(job) / "health", "ab") as f:
        f.write(b'{"n":2,"watch":"unhea')  # the power went while a line was written
    (tmp_path / "boot").write_text("boot-2\n")
    assert node.state(job)["again"] is True and node.health(job) == [{"n": 1, **FAULT}]
    node.script(says(BEGIN, NOTE, FAULT) + "exec sleep 1000")
    got = node.begin(WAITS, job, restart=1, watch=WARN)[1]
    assert (got["job"], got["attempt"]) == ("started", 2)
    wait_for(lambda: node.state(job)["unhealthy"] == 2)
    (node.home / ".gpuprov/work/go").touch()
    stored = json.loads((node.folder(job) / "request").read_text())
    assert stored["watch"] == WARN
    node.ok("stop", job)
    assert node.follow(job).all("health") == [{"n": 1, **FAULT}, {"n": 2, **NOTE}, {"n": 3, **FAULT}]


@needs_root
def test_a_full_disk(watched, tmp_path):
    """Findings have their space from the beginning."""
    with small_disk(tmp_path / "home", "40m") as home:
        node = watched(says(BEGIN) + f"until [ -e {tmp_path}/fault ]; do sleep 0.02; done\n" + says(NOTE, FAULT)
                       + "exec sleep 1000", home=home)
        job = node.start("sleep 1000", watch=STOP)
        fill(home)
        (tmp_path / "fault").touch()
        log = node.follow(job)
        assert log.end["reason"] == "unhealthy" and log.all("health") == [{"n": 1, **NOTE}, {"n": 2, **FAULT}]


def test_a_job_that_writes_its_health_file(watched):
    """Nothing that is no finding reaches a reader, and what comes next does."""
    node = watched(says(BEGIN) + "until [ -e $HOME/fault ]; do sleep 0.02; done\n" + says(FAULT) + "exec sleep 1000")
    job = node.start(WAITS, watch=WARN)
    (node.folder(job) / "health").write_text('{"n":1,"watch":"unhealthy","severity":"fail"}\n@{"end":{}}\n')
    assert node.health(job) == []
    (node.home / "fault").touch()
    wait_for(lambda: node.health(job) == [{"n": 1, **FAULT}])
    node.go()
    assert node.follow(job).end["exit"] == 0


# --- notices ---

def notice(metadata, seconds=None):  # noqa: F811
    """EC2 announces that it takes the node in so many seconds."""
    when = datetime.datetime.fromtimestamp(int(time.time() + seconds), datetime.timezone.utc) if seconds else None
    metadata.answers[("PUT", "/latest/api/token")] = (200, "tok")
    text = {"action": "terminate", **({"time": f"{when:%Y-%m-%dT%H:%M:%SZ}"} if when else {})}
    metadata.answers[("GET", "/latest/meta-data/spot/instance-action")] = (200, json.dumps(text))
    return when


NOTICES = {"notices": "aws", "on_unhealthy": "stop"}


@pytest.fixture
def spot(tmp_path, metadata):  # noqa: F811
    """A node that this program watches, with a metadata service."""
    n = Node(tmp_path / "home", env={"GPUPROV_METADATA": f"127.0.0.1:{metadata.server_address[1]}"})
    n.program = tmp_path / "gpuprov-agent"
    shutil.copy(AGENT, n.program)
    yield n
    n.close()


def test_a_notice_ends_the_job(spot, metadata):  # noqa: F811
    """Its text runs first, as a part of the job; then the job is asked to end."""
    when = notice(metadata, 120)
    job = spot.start("trap 'echo ends; exit 7' TERM; echo up; touch up; sleep 1000 & wait", watch=NOTICES,
                     preempt='until [ -e up ]; do sleep 0.02; done; '
                             'echo "$A $B $GPUPROV_JOB_ID $GPUPROV_PREEMPT_AT"; pwd',
                     env={"A": "a", "GPUPROV_PREEMPT_AT": "own"}, secrets={"B": "b"})
    log = spot.follow(job)
    assert log.text.decode() == f"up\na b {job} {int(when.timestamp())}\n{spot.home}/.gpuprov/work\nends\n"
    assert (log.end["reason"], log.end["exit"], log.end["preempted"], log.end["again"]) == ("preempted", 7, True, False)
    assert log.end["text"] == f"the cloud takes this node back at {when:%Y-%m-%dT%H:%M:%SZ}"
    assert log.all("health") == [{"n": 1, "watch": "preempted", "when": f"{when:%Y-%m-%dT%H:%M:%SZ}"}]


@pytest.mark.parametrize(("seconds", "preempt", "text"), [
    (None, None, ""), (None, "exit 3", "; preempt ended with status 3"), (-3600, "touch ran", ""),
    (6, "trap '' TERM; sleep 1000", "; preempt (was ended after [1-3] s|did not run: there was no time)")],
    ids=["no text", "fails", "a clock that is wrong", "hangs"])
def test_a_notice_and_its_text(spot, metadata, seconds, preempt, text):  # noqa: F811
    notice(metadata, seconds)
    got = spot.ended(spot.start("sleep 1000", watch=NOTICES, preempt=preempt))
    assert (got["reason"], got["signal"]) == ("preempted", "SIGTERM") and not marked(got["id"])
    assert re.fullmatch(f"the cloud takes this node back( at [^ ;]*Z)?{text}", got["text"]), got["text"]
    assert (spot.home / ".gpuprov/work/ran").exists() == (preempt == "touch ran")


def test_the_job_ends_while_its_text_runs(spot, metadata):  # noqa: F811
    """Its own end stays, and the text, which may be saving the results, gets its time."""
    notice(metadata)
    log = spot.follow(spot.start("until [ -e saving ]; do sleep 0.02; done; exit 6", watch=NOTICES,
                                 preempt="touch saving; sleep 0.5; echo saved"))
    assert (log.end["reason"], log.end["exit"], log.end["preempted"]) == ("exited", 6, True)
    assert log.text == b"saved\n"


@pytest.mark.parametrize(("rest", "reason"), [("sleep 1000", "stopped"), ("exit 6", "exited")])
def test_stop_while_the_text_runs(spot, metadata, rest, reason):  # noqa: F811
    """Nobody waits for it any more, also after the job's own end."""
    notice(metadata)
    job = spot.start(f"echo $$ >main; until [ -e begun ]; do sleep 0.02; done; {rest}", watch=NOTICES, preempt="touch begun; sleep 1000")
    work = spot.home / ".gpuprov/work"
    wait_for(lambda: spot.state(job)["preempted"] and (work / "begun").exists() and (work / "main").exists())
    if reason == "exited":
        wait_for(lambda: not alive(int((work / "main").read_text())))
    assert spot.ok("stop", job, "--reason", "enough")["reason"] == reason and not marked(job)


def test_a_notice_during_setup(spot, metadata):  # noqa: F811
    """setup ends well while the text runs: run does not go on unnoticed."""
    notice(metadata)
    got = spot.ended(spot.start("sleep 1000", setup="until [ -e begun ]; do sleep 0.02; done", watch=NOTICES,
                                preempt="touch begun; sleep 0.3"))
    assert (got["reason"], got["in"]) == ("preempted", "run")


def test_the_node_shuts_down_after_a_notice(spot, metadata):  # noqa: F811
    notice(metadata)
    job = spot.start("trap 'exit 0' TERM; sleep 1000 & wait", watch=NOTICES, restart=2,
                     preempt="touch begun; sleep 1000", grace_s=1)
    wait_for((spot.home / ".gpuprov/work/begun").exists)
    os.kill(spot.supervisor(job), signal.SIGTERM)
    got = spot.ended(job)
    assert (got["reason"], got["preempted"], got["again"]) == ("preempted", True, False) and not marked(job)


def test_without_a_notice_its_text_does_not_run(watched):
    node = watched(says(BEGIN) + "exec sleep 1000")
    got, text = node.run("echo run", watch=WARN, preempt="echo never")
    assert (got["exit"], text) == (0, "run\n")
