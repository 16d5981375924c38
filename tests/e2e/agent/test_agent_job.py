# SPDX-License-Identifier: Apache-2.0
"""Jobs of a node: the verb `job` of gpuprov-agent, as docs/agent-protocol.md describes it. Bad days:
test_agent_job_days.py."""
import json
import os
import signal
import subprocess
import threading

import pytest
from agent_job import AGENT, FAULTS, KEY, Log, Node, alive, marked, new_id, request
from waiting import wait_for


@pytest.fixture
def node(tmp_path):
    n = Node(tmp_path / "home")
    yield n
    n.close()


def test_a_job_from_its_start_to_its_end(node):
    job = node.start("echo run; pwd; echo err >&2; exit 7", setup="echo setup; touch made", rank=1, ranks=2)
    log = node.follow(job)
    cwd = node.home / ".gpuprov" / "work"
    assert log.text.decode() == f"setup\nrun\n{cwd}\nerr\n" and (cwd / "made").exists()
    assert log.at == len(log.text) == log.end["log_bytes"]
    assert log.end == node.state(job) == node.state()
    boot = open("/proc/sys/kernel/random/boot_id", encoding="ascii").read().strip()
    want = {"id": job, "key": KEY, "rank": 1, "ranks": 2, "state": "ended", "in": "run", "attempt": 1, "restart": 0,
            "exit": 7, "signal": None, "reason": "exited", "text": "run ended with status 7", "collected": False,
            "unit": False, "again": False, "left": 0, "boot": boot}
    assert {k: log.end[k] for k in want} == want
    assert log.end["started_s"] == log.end["attempt_s"] <= log.end["ended_s"]
    assert not (node.folder(job) / "pid").exists()


@pytest.mark.parametrize(("run", "end"), [
    ("exit 0", (0, None, "exited")), ("exit 255", (255, None, "exited")),
    ("kill -SEGV $$", (None, "SIGSEGV", "signaled")), ("kill -KILL $$", (None, "SIGKILL", "signaled")),
    ("no-such-program", (127, None, "exited"))])
def test_ends(node, run, end):
    got, _ = node.run(run)
    assert (got["exit"], got["signal"], got["reason"]) == end


def test_setup_that_fails_keeps_run_from_starting(node):
    got, text = node.run("touch ran", setup="echo no; exit 3")
    assert (got["in"], got["exit"], got["text"], text) == ("setup", 3, "setup ended with status 3", "no\n")
    assert not (node.home / ".gpuprov/work/ran").exists()


def test_environment_and_secrets(node, tmp_path):
    """A secret is in the environment of the job's processes, and nowhere else."""
    value = "s3cr3t'\"\\\n$(x) \u00e4\U0001f600"
    node.env.update(SSH_CONNECTION="1.2.3.4 5 6.7.8.9 22", KEPT="yes", A="login")
    job = node.start("printf '%s|' \"$A\" \"$KEPT\" \"${SSH_CONNECTION-none}\" \"$GPUPROV_JOB_ID\"; "
                     'printf %s "$TOKEN" >"$OUT"; kill -STOP $$', env={"A": "1 2", "OUT": str(tmp_path / "out")},
                     secrets={"TOKEN": value}, restart=3)
    wait_for(lambda: node.state(job)["log_bytes"] > 0)
    wait_for(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text() == value)
    for at, _, files in os.walk(node.home):
        for name in files:
            assert b"s3cr3t" not in open(os.path.join(at, name), "rb").read(), name
    supervisor = node.supervisor(job)
    for pid in [supervisor, *marked(job)]:
        assert b"s3cr3t" not in open(f"/proc/{pid}/cmdline", "rb").read()
    assert b"s3cr3t" not in open(f"/proc/{supervisor}/environ", "rb").read()
    assert not (node.folder(job) / "request").exists()
    node.ok("stop", job)
    assert node.follow(job).text.decode() == f"1 2|yes|none|{job}|"


def test_it_goes_on_without_its_connection(node):
    """The call that started it is gone, with its session and its pipes."""
    job = node.start("while [ ! -e go ]; do sleep 0.05; done; echo went")
    pid = node.supervisor(job)
    stat = open(f"/proc/{pid}/stat", encoding="ascii").read().rpartition(")")[2].split()
    assert int(stat[3]) == pid  # leads its own session
    assert {os.readlink(f"/proc/{pid}/fd/{n}") for n in (0, 1, 2)} == {"/dev/null"}
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    os.kill(pid, signal.SIGHUP)
    (node.home / ".gpuprov/work/go").touch()
    assert node.follow(job).text == b"went\n"


def test_start_again_reports_what_there_is(node):
    job = node.start("sleep 1000")
    assert node.begin("sleep 1000", job)[1]["job"] == "running"
    other, got = node.begin("true")
    assert (got["job"], got["id"], got["state"]) == ("busy", job, "running")
    assert node.state(other) == {"state": "none", "id": other}
    assert "another definition" in node.refused("start", job, stdin=json.dumps(
        request(job, "true", key="f" * 64)).encode())
    assert node.refused("remove", job) == f"job {job} still runs; stop it first"
    assert node.refused("collected", job) == f"job {job} still runs"
    node.ok("stop", job)
    got = node.begin("sleep 1000", job)[1]
    assert (got["job"], got["reason"]) == ("ended", "stopped")
    assert node.begin("true", other)[1]["job"] == "started"


def test_two_starts_at_once(node):
    """Sent twice because a reply was lost: it runs once. Another job at the same time: one of them is busy."""
    jobs = [new_id(), new_id()]
    node.ids += jobs
    calls = [node.popen("start", jobs[n % 2], stdin=subprocess.PIPE) for n in range(8)]
    answers = []

    def send(n):
        text = json.dumps(request(jobs[n % 2], "echo ran >>ran; sleep 1000")).encode()
        answers.append(json.loads(calls[n].communicate(text)[0]))
    threads = [threading.Thread(target=send, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(a["job"] for a in answers) == ["busy"] * 4 + ["running"] * 3 + ["started"]
    assert len({a["id"] for a in answers}) == 1
    ran = node.home / ".gpuprov/work/ran"
    wait_for(ran.exists)
    node.ok("stop", answers[0]["id"])
    assert ran.read_text() == "ran\n"


def test_list_collected_and_remove(node):
    jobs = [node.start(f"exit {n}") for n in range(3) if not n or node.ended(node.ids[-1])]
    node.ended(jobs[-1])
    _, out, _ = node.call("list")
    assert [json.loads(line)["id"] for line in out.splitlines()] == jobs[::-1]
    assert node.ok("collected", jobs[0])["collected"] is True
    assert node.state(jobs[0])["collected"] is True and node.state(jobs[1])["collected"] is False
    folder = node.folder(jobs[0])
    for _ in range(2):
        assert node.ok("remove", jobs[0]) == {"id": jobs[0], "removed": True}
        assert not folder.exists() and node.state(jobs[0]) == {"state": "none", "id": jobs[0]}
    # what nobody needs any more goes: ended, collected, and not one of the newest four
    for _ in range(5):
        jobs.append(node.start("true"))
        node.ended(jobs[-1])
        node.ok("collected", jobs[-1])
    last = node.start("true")
    _, out, _ = node.call("list")
    assert [json.loads(line)["id"] for line in out.splitlines()] == [last, *jobs[:3:-1], jobs[2], jobs[1]]


def test_a_node_without_jobs(node):
    assert node.state() == {"state": "none"}
    assert node.call("list") == (0, b"", "")
    job = new_id()
    assert node.state(job) == {"state": "none", "id": job}
    assert node.refused("follow", job) == f"this node has no job {job}"
    assert node.ok("remove", job) == {"id": job, "removed": True}
    assert not (node.home / ".gpuprov").exists()


def test_stop(node):
    """SIGTERM once for each process, then time to end by itself."""
    job = node.start("trap 'echo asked; sleep 0.3; echo done; exit 5' TERM; echo up; sleep 1000 & wait")
    wait_for(lambda: node.state(job)["log_bytes"] == 3)
    got = node.ok("stop", job, "--reason", "another\nrank\x1b[2J failed")
    assert (got["state"], got["exit"], got["reason"], got["text"]) == ("ended", 5, "stopped", "another rank?[2J failed")
    assert node.follow(job).text == b"up\nasked\ndone\n"
    assert node.ok("stop", job) == got  # again


def test_a_checkpoint_on_sigterm_gets_one(node):
    """The shell ends by SIGTERM before the program that it started, which must not get a second one."""
    code = ("import signal, time\nn = 0\ndef on(*_):\n    global n\n    n += 1\n"
            "signal.signal(signal.SIGTERM, on)\nprint('up', flush=True)\nend = None\n"
            "while not end or time.monotonic() < end:\n    time.sleep(0.02)\n"
            "    if n and not end: end = time.monotonic() + 0.5\nprint('terms', n, flush=True)\n")
    job = node.start(f"python3 -c '{code.replace(chr(39), chr(34))}'; true")
    wait_for(lambda: node.state(job)["log_bytes"] == 3)
    assert node.ok("stop", job)["signal"] == "SIGTERM"
    assert node.follow(job).text == b"up\nterms 1\n"


def test_stop_during_setup(node):
    job = node.start("touch ran", setup="sleep 1000")
    assert node.state(job)["state"] == "setup"
    got = node.ok("stop", job)
    assert (got["reason"], got["in"], got["signal"]) == ("stopped", "setup", "SIGTERM")
    assert not (node.home / ".gpuprov/work/ran").exists() and not marked(job)


def test_max_duration(node):
    job = node.start("sleep 1000", setup="sleep 0.1", max_s=1)
    got = node.ended(job)
    assert (got["reason"], got["signal"], got["text"]) == ("max_duration", "SIGTERM", "ended after max_duration, 1 s")
    assert got["exit"] is None and not marked(job)


# --- follow ---

def test_parts_of_lines(node):
    """A line without its end is sent after a moment, as a part; what follows completes it."""
    job = node.start("printf one; until [ -e go ]; do sleep 0.05; done; printf ' two\\nthree'")
    p = node.popen("follow", job)
    assert p.stdout.readline() == b"+one\n" and p.stdout.readline() == b'@{"at":3}\n'
    (node.home / ".gpuprov/work/go").touch()
    log = Log(p.communicate(timeout=60)[0])
    assert log.pieces == [b"= two", b"+three"] and log.end["exit"] == 0


def test_alive_once_a_second(node):
    job = node.start("sleep 1000")
    p = node.popen("follow", job)
    assert [p.stdout.readline() for _ in range(2)] == [b'@{"alive":true}\n'] * 2
    p.kill()
    p.communicate()
    assert node.follow(job, 0, "--seconds", "0").said == []


def test_bytes_of_every_kind(node, tmp_path):
    """NUL, carriage returns, bytes that are no UTF-8, lines that look like the protocol, a megabyte without a newline."""
    data = bytes(range(256)) * 5 + b"\n@{\"end\":1}\n=x\n+y\n\n" + b"\0" * 1000 + b"z" * (1 << 20) + b"\nend"
    (tmp_path / "data").write_bytes(data)
    log = node.follow(node.start(f"cat {tmp_path}/data"))
    assert log.text == data and log.at == len(data)
    assert max(map(len, log.pieces)) <= 32769


def test_cut_and_resumed(node):
    """A reader that is killed at any byte and continues at its last offset loses nothing and repeats nothing."""
    job = node.start("seq -f 'line %06g of the log' 1 200000; printf end")
    whole, at, n = [], 0, 0
    while True:
        p = node.popen("follow", job, "--from", at)
        out = p.stdout.read(70001 + 1013 * (n := n + 1))
        p.kill()
        p.communicate()
        cut = out.rfind(b'@{"at":')
        out = out[:out.index(b"\n", cut) + 1] if cut >= 0 and b"\n" in out[cut:] else b""
        if not out:  # less than a batch: the next piece is longer
            continue
        log = Log(out)
        whole.append(log.text)
        at = log.at
        if log.text.endswith(b"end"):
            break
        assert n < 500
    assert b"".join(whole) == b"".join(b"line %06d of the log\n" % i for i in range(1, 200001)) + b"end"


def test_an_offset_that_is_not_there_yet(node):
    """After a power cut the node may have less than it had sent: a reader waits for what it has not seen."""
    job = node.start("until [ -e go ]; do sleep 0.05; done; seq 1 9")
    p = node.popen("follow", job, "--from", 10)
    assert p.stdout.readline() == b'@{"alive":true}\n'
    (node.home / ".gpuprov/work/go").touch()
    assert Log(p.communicate(timeout=60)[0]).text == b"6\n7\n8\n9\n"


def test_two_followers_at_once(node):
    job = node.start("seq 1 100000; sleep 0.3; seq 1 100000")
    logs = [node.popen("follow", job, "--from", start) for start in (0, 100)]
    got = [Log(p.communicate(timeout=60)[0]) for p in logs]
    want = "".join(f"{i}\n" for i in range(1, 100001)).encode() * 2
    assert (got[0].text, got[1].text) == (want, want[100:])
    assert got[0].end == got[1].end


def test_the_oldest_lines_are_dropped(tmp_path):
    """The log keeps a number of files. A reader learns how much it missed, and gets whole lines from there on."""
    node = Node(tmp_path / "home", FAULTS, {"GPUPROV_JOB_SEGMENT": "65536", "GPUPROV_JOB_SEGMENTS": "4"})
    want = "".join(f"{i}\n" for i in range(1, 200001)).encode()
    job = node.start("seq 1 200000")
    node.ended(job)
    log = node.follow(job)
    dropped, = log.all("dropped")
    assert log.text == want[dropped:] and 3 * 65536 <= len(log.text) <= 4 * 65536 and log.at == len(want)
    assert sum(f.stat().st_size for f in node.folder(job).glob("log.[0-9]*")) <= 4 * 65536
    assert node.follow(job, len(want) - 10).text == want[-10:]
    assert node.follow(job, len(want) + 10**12).text == b""


def test_nothing_is_lost_at_a_hundred_thousand_lines_a_second(node):
    """Follow reads while the job writes as fast as it can."""
    log = node.follow(node.start("seq -f 'step %g of this training, loss 2.718281828, 123 tokens' 1 500000"))
    lines = log.text.splitlines()
    assert len(lines) == 500000 and lines[-1].startswith(b"step 500000 ") and not log.all("dropped")
    assert lines[99999].startswith(b"step 100000 ")
    assert log.end["exit"] == 0


def test_without_root(tmp_path):
    tmp_path.chmod(0o755)
    for p in [*tmp_path.parents][:3]:
        p.chmod(p.stat().st_mode | 0o055)
    node = Node(tmp_path / "home", user=65534)
    assert os.access(AGENT, os.X_OK)
    got, text = node.run("id -u; (setsid sleep 1000 &); exit 4", env={"A": "1"}, secrets={"B": "2"})
    assert (got["exit"], text) == (4, "65534\n")
    assert not [p for p in marked(got["id"]) if alive(p)]
