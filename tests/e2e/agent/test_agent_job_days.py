# SPDX-License-Identifier: Apache-2.0
"""Bad days of a job: what it leaves behind, full disks, killed supervisors, reboots, hostile requests."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading

import pytest
from agent_job import FAULTS, KEY, Node, alive, kill9, marked, new_id, request
from small_disk import fill, small_disk
from waiting import wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def node(tmp_path):
    n = Node(tmp_path / "home")
    yield n
    n.close()


@pytest.fixture
def boot(tmp_path):
    """A node whose boots are a file's content."""
    (tmp_path / "boot").write_text("boot-1\n")
    n = Node(tmp_path / "home", FAULTS, {"GPUPROV_BOOT_FILE": str(tmp_path / "boot")})

    def reboot():
        for job in n.ids:
            if (n.folder(job) / "pid").exists():
                kill9(n.supervisor(job))
            for pid in marked(job):
                kill9(pid)
        (tmp_path / "boot").write_text("boot-2\n")
    n.reboot = reboot
    yield n
    n.close()


def script(tmp_path, code):
    path = tmp_path / "job.py"
    path.write_text(code)
    return f"exec python3 {path}"


# --- what a job leaves behind ---

DAEMON = """
import glob, os, signal, sys, time
how = sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for n in range(3):
    if os.fork():
        continue
    os.setsid()
    if os.fork():
        os._exit(0)
    if how == "closed":
        os.closerange(0, 100)
    open(f"daemon{n}", "w").close()
    if how == "moles":  # a new process every moment
        while True:
            if os.fork():
                os._exit(0)
            os.setsid()
            time.sleep(0.002)
    time.sleep(1000)
while len(glob.glob("daemon?")) < 3:
    time.sleep(0.01)
open("daemons", "w").close()
if how != "stop":
    os._exit(6)
time.sleep(1000)
"""


@pytest.mark.parametrize("how", ["open", "closed", "moles", "stop"])
def test_daemons_end_with_the_job(node, tmp_path, how):
    """Double forks with sessions of their own, which ignore SIGTERM."""
    job = node.start(script(tmp_path, DAEMON) + f" {how}", grace_s=1)
    wait_for((node.home / ".gpuprov/work/daemons").exists)
    got = node.ok("stop", job) if how == "stop" else node.ended(job)
    end = (None, "SIGKILL", "stopped") if how == "stop" else (6, None, "exited")
    assert (got["exit"], got["signal"], got["reason"], got["left"]) == (*end, 0)
    assert not marked(job)


def test_daemons_of_setup_stay_until_the_end(node):
    got, text = node.run("kill -0 $(cat pid) && echo there", setup="sleep 1000 & echo $! >pid", grace_s=1)
    assert (got["exit"], text) == (0, "there\n") and not marked(got["id"])


def test_zombies(node, tmp_path):
    """Zombies: children without a wait, of a job that goes on and of a daemon that it leaves."""
    job = node.start(script(tmp_path, "import os, time\nfor n in range(200):\n    if not os.fork():\n        os._exit(0)\n"
                                      "if not os.fork():\n    time.sleep(1000)\nprint('all', flush=True)\n"
                                      "time.sleep(0.2)\n"))
    got = node.follow(job).end
    assert (got["exit"], got["left"]) == (0, 0)
    assert not marked(job)


def test_output_of_what_is_ended_is_kept(node):
    got, text = node.run("(trap 'echo last words; exit' TERM; echo up >up; while :; do sleep 0.05; done) & "
                         "until [ -s up ]; do sleep 0.05; done; exit 3")
    assert got["exit"] == 3 and text.endswith("last words\n")


# --- disks ---

@needs_root
def test_a_full_disk_in_the_middle(tmp_path):
    """The job fills the disk: its end and its last lines are kept."""
    with small_disk(tmp_path / "home", "64m") as home:
        node = Node(home)
        job = node.start("cat /dev/zero >fill 2>/dev/null; head -c 40000000 /dev/zero; seq 1 1000; exit 9")
        got = node.ended(job)
        assert (got["state"], got["exit"], got["reason"]) == ("ended", 9, "exited")
        log = node.follow(job, got["log_bytes"] - 16)
        assert log.text == b"997\n998\n999\n1000\n"[-16:]
        whole = node.follow(job)
        dropped, = whole.all("dropped")
        assert whole.at == dropped + len(whole.text) == got["log_bytes"] and len(whole.text) >= 16 << 20
        fill(home)
        assert node.ok("collected", job)["collected"] is True
        said = node.refused("start", new_id(), stdin=json.dumps(request(new_id(), "true")).encode())
        assert "request" in said  # another ID
        other = new_id()
        said = node.refused("start", other, stdin=json.dumps(request(other, "true")).encode())
        assert said.endswith("No space left on device") and str(home) in said
        assert node.state(other) == {"state": "none", "id": other}
        assert node.ok("remove", job)["removed"] is True


@needs_root
def test_a_disk_without_space_for_the_log(tmp_path):
    with small_disk(tmp_path / "home", "24m") as home:
        node, job = Node(home), new_id()
        said = node.refused("start", job, stdin=json.dumps(request(job, "true")).encode())
        assert said.startswith("cannot allocate 32 MiB in '") and said.endswith("for the job's log: No space left on device")
        assert node.state() == {"state": "none"}


@needs_root
def test_stop_on_a_full_disk(tmp_path):
    with small_disk(tmp_path / "home", "40m") as home:
        node = Node(home)
        job = node.start("sleep 1000")
        fill(home)
        assert node.ok("stop", job, "--reason", "enough")["text"] == "enough"
        assert not marked(job)


@needs_root
def test_a_disk_that_became_read_only(tmp_path):
    """The job is ended, and the report is that its end is not known."""
    with small_disk(tmp_path / "home", "40m") as home:
        node = Node(home)
        job = node.start("sleep 1000")
        kill9(node.supervisor(job))
        subprocess.run(["mount", "-o", "remount,ro", home], check=True)
        for _ in range(2):
            got = node.state(job)
            assert (got["state"], got["reason"]) == ("ended", "lost") and not marked(job)


def test_stop_where_it_cannot_be_noted(node):
    """A job costs money: it is ended, only the reason is not kept."""
    job = node.start("sleep 1000")
    (node.folder(job) / "stop").unlink()
    got = node.ok("stop", job, "--reason", "x")
    assert (got["state"], got["reason"]) == ("ended", "lost") and not marked(job)


@pytest.mark.parametrize("home", ["/proc/nothing", "relative", None])
def test_a_home_that_cannot_be_written(tmp_path, home):
    node, job = Node(tmp_path / "home"), new_id()
    node.env["HOME"] = home or ""
    said = node.refused("start", job, stdin=json.dumps(request(job, "true")).encode())
    assert said == ("cannot make the folder '/proc/nothing/.gpuprov': No such file or directory" if home == "/proc/nothing"
                    else "HOME is not the path of a folder")


def test_a_home_of_somebody_else(tmp_path):
    for p in [tmp_path, *tmp_path.parents][:4]:
        p.chmod(p.stat().st_mode | 0o055)
    node, job = Node(tmp_path / "home", user=65534), new_id()
    os.chown(node.home, 0, 0)
    said = node.refused("start", job, stdin=json.dumps(request(job, "true")).encode())
    assert said == f"cannot make the folder '{node.home}/.gpuprov': Permission denied"


# --- supervisors that die ---

@pytest.mark.parametrize("verb", ["state", "follow", "start", "stop", "list"])
def test_the_supervisor_is_killed(node, tmp_path, verb):
    """Whoever looks next ends the job's processes and reports it as lost, never as passed."""
    job = node.start(script(tmp_path, DAEMON) + " stop", restart=0)
    wait_for((node.home / ".gpuprov/work/daemons").exists)
    before = marked(job)
    assert len(before) >= 4
    kill9(node.supervisor(job))
    wait_for(lambda: not alive(before[0]) or len(marked(job)) < len(before))  # the first process ends with it
    if verb == "start":
        got = node.begin("true", job)[1]
        assert got["job"] == "ended"
    elif verb == "follow":
        got = node.follow(job).end
    else:
        got = node.ok(verb, *([] if verb == "list" else [job]))
    assert (got["state"], got["exit"], got["signal"], got["reason"], got["left"]) == ("ended", None, None, "lost", 0)
    assert got["text"].startswith("the job's supervisor was killed while run ran; ") and got["again"] is False
    assert not marked(job) and not (node.folder(job) / "pid").exists()
    assert node.begin("true")[1]["job"] == "started"


def test_a_follower_learns_that_the_supervisor_was_killed(node):
    job = node.start("echo up; sleep 1000")
    p = node.popen("follow", job)
    assert p.stdout.readline() == b"=up\n"
    kill9(node.supervisor(job))
    assert b'"reason":"lost"' in p.communicate(timeout=60)[0]


def test_the_supervisor_gets_sigterm(node):
    """As at a shutdown: the job had no chance to end by itself, so even its status 0 is no success."""
    job = node.start("trap 'exit 0' TERM; echo up; sleep 1000 & wait", restart=1)
    wait_for(lambda: node.state(job)["log_bytes"] == 3)
    os.kill(node.supervisor(job), signal.SIGTERM)
    got = node.ended(job)
    assert (got["exit"], got["reason"], got["again"]) == (None, "lost", True)
    assert not marked(job)


def test_the_call_that_starts_is_killed(node):
    """At any moment: the job is not there, or it runs, or it is lost; and another one can start."""
    for n in range(12):
        job = new_id()
        node.ids.append(job)
        p = node.popen("start", job, stdin=subprocess.PIPE)
        p.stdin.write(json.dumps(request(job, "sleep 1000", setup="true")).encode())
        p.stdin.close()
        try:
            p.wait(0.001 * n)
        except subprocess.TimeoutExpired:
            p.kill()
        p.wait()
        state = node.state(job)
        if state["state"] == "none":
            state = node.begin("sleep 1000", job)[1]
        assert state["state"] in ("setup", "running") or state["reason"] == "lost", state
        got = node.ok("stop", job)
        assert got["reason"] in ("stopped", "lost") and not marked(job)
        node.ok("remove", job)


# --- reboots ---

def test_a_reboot(boot):
    """restart: N allows N more attempts; each is counted, and the log goes on."""
    job = boot.start("echo ran $A $B; [ $A = 3 ] || sleep 1000", restart=1, env={"A": "1"}, secrets={"B": "x"})
    wait_for(lambda: boot.state(job)["log_bytes"] == 8)
    first = boot.follow(job, 0, "--seconds", "0")
    boot.reboot()
    got = boot.state(job)
    assert (got["state"], got["reason"], got["text"], got["again"], got["unit"]) == (
        "ended", "lost", "the node rebooted while run ran", True, False)
    got = boot.begin("echo ran $A $B; [ $A = 3 ] || sleep 1000", job, restart=1, env={"A": "3"}, secrets={"B": "x"})[1]
    assert (got["job"], got["attempt"], got["boot"]) == ("started", 2, "boot-2")
    log = boot.follow(job, first.at)
    assert (log.text, log.all("attempt"), log.all("dropped"), log.end["exit"]) == (b"ran 3 x\n", [2], [], 0)
    assert boot.follow(job).text == b"ran 1 x\nran 3 x\n"
    assert (log.end["attempt"], log.end["again"]) == (2, False) and log.end["started_s"] <= log.end["attempt_s"]


def test_a_reboot_without_attempts_left(boot):
    job = boot.start("sleep 1000")
    boot.reboot()
    got = boot.begin("sleep 1000", job)[1]
    assert (got["job"], got["state"], got["reason"], got["again"]) == ("ended", "ended", "lost", False)


def test_a_stop_holds_across_a_reboot(boot, tmp_path):
    """The node dies between the request to stop and the end."""
    job = boot.start("trap '' TERM; echo up; sleep 1000", grace_s=1000, restart=3)
    wait_for(lambda: boot.state(job)["log_bytes"] == 3)
    p = boot.popen("stop", job, "--reason", "too dear")
    wait_for(lambda: b"too dear" in (boot.folder(job) / "stop").read_bytes())
    boot.reboot()
    p.communicate(timeout=60)
    got = boot.state(job)
    assert (got["state"], got["reason"], got["again"]) == ("ended", "stopped", False)


def test_another_process_has_the_pid_now(boot):
    """After a reboot the pid of the supervisor may be anybody's, who is left alone."""
    job = boot.start("sleep 1000")
    boot.reboot()
    other = subprocess.Popen(["sleep", "1000"], env={"GPUPROV_JOB_ID": job})
    try:
        start = pathlib.Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
        (boot.folder(job) / "pid").write_text(f"{other.pid} {start} boot-1\n")
        assert boot.state(job)["reason"] == "lost"
        assert boot.ok("stop", job)["reason"] == "lost" and other.poll() is None
    finally:
        other.kill()
        other.wait()


# --- what others send and leave ---

@pytest.mark.parametrize("job", ["../x", "", "0" * 15, "0" * 17, "ABCDEF0123456789", "0123456789abcde/", "0" * 15 + "\n"])
@pytest.mark.parametrize("verb", ["start", "follow", "state", "stop", "collected", "remove"])
def test_hostile_ids(node, verb, job):
    said = node.refused(verb, job, stdin=json.dumps(request(job, "true")).encode())
    assert said.endswith("is not an ID of 16 lower hexadecimal digits")
    assert not (node.home / ".gpuprov").exists()


HOSTILE = {
    "schema": ({"schema": "gpuprov-job/v2"}, "'schema' is not gpuprov-job/v1: this agent and gpuprov have different versions"),
    "other id": ({"id": "f" * 16}, "the request on stdin is for job ffffffffffffffff"),
    "id": ({"id": "../../../../etc/x"}, "'id' is not in [16, 16]"),
    "key": ({"key": "A" * 64}, "'key' is not 64 lower hexadecimal digits"),
    "unknown": ({"on": "all"}, "'on' is not a member of gpuprov-job/v1"),
    "rank": ({"rank": 2, "ranks": 2}, "'rank' is not below 'ranks'"),
    "negative": ({"max_s": -1}, "'max_s' is not in [0, 316224000]"),
    "fraction": ({"grace_s": 1.5}, "neither a text, a whole number"),
    "huge number": ({"restart": 10 ** 30}, "neither a text, a whole number"),
    "restart": ({"restart": 17}, "'restart' is not in [0, 16]"),
    "text": ({"max_s": "1"}, "'max_s' is not a whole number"),
    "list": ({"run": ["true"]}, "neither a text, a whole number"),
    "empty run": ({"run": ""}, "the size of 'run' is not in [1, 1048576]"),
    "null run": ({"run": None}, "'run' is not a text"),
    "cwd": ({"cwd": "work"}, "'cwd' begins neither with / nor with ~/"),
    "name": ({"env": {"A B": "1"}}, "'env' has 'A B', which is not the name of a variable"),
    "digit": ({"env": {"1A": "1"}}, "'env' has '1A', which is not the name of a variable"),
    "mark": ({"secrets": {"GPUPROV_JOB_ID": "1"}}, "'secrets' sets GPUPROV_JOB_ID"),
    "both": ({"env": {"A": "1"}, "secrets": {"A": "2"}}, "'env' and 'secrets' both have A"),
    "number in env": ({"env": {"A": 1}}, "a text was expected"),
    "null in env": ({"env": {"A": None}}, "'env' has null for A, where a text was expected"),
    "null in secrets": ({"secrets": {"A": None}}, "'secrets' has null for A, where a text was expected"),
    "watch": ({"watch": "aws"}, "'watch' is not an object of texts"),
    "empty watch": ({"watch": {}}, "'on_unhealthy' of 'watch' is neither warn nor stop"),
    "watch's member": ({"watch": {"on_unhealthy": "warn", "every": "1s"}}, "'every' is not a member of 'watch'"),
    "on_unhealthy": ({"watch": {"on_unhealthy": "replace"}}, "'on_unhealthy' of 'watch' is neither warn nor stop"),
    "null on_unhealthy": ({"watch": {"on_unhealthy": None}}, "'on_unhealthy' of 'watch' is neither warn nor stop"),
    "notices": ({"watch": {"on_unhealthy": "warn", "notices": "--time"}}, "'notices' of 'watch' is not the name of a cloud"),
    "no notices": ({"watch": {"on_unhealthy": "warn", "notices": ""}}, "'notices' of 'watch' is not the name of a cloud"),
    "preempt": ({"preempt": 7}, "'preempt' is not a text"),
    "long preempt": ({"preempt": "x" * (1 << 20 | 1)}, "the size of 'preempt' is not in [0, 1048576]"),
    "nul": ({"env": {"A": "x\0y"}}, "a NUL in a text"),
    "long value": ({"env": {"A": "x" * 130000}}, "'env' has a value for A of more than 122880 bytes"),
    "much": ({"env": {f"A{n}": "x" * 100000 for n in range(11)}}, "'env' and 'secrets' have more than 1048576 bytes"),
    "long run": ({"run": "x" * (1 << 20 | 1)}, "the size of 'run' is not in [1, 1048576]"),
    "huge": ({"run": "x" * (9 << 20)}, "the request on stdin has more than 8388608 bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_requests(node, name):
    job = new_id()
    change, why = HOSTILE[name]
    said = node.refused("start", job, stdin=json.dumps({**request(job, "true"), **change}).encode())
    assert why in said
    assert not (node.home / ".gpuprov").exists()


@pytest.mark.parametrize("text", [
    b"", b"{}", b"[]", b"null", b"{\"schema\":\"gpuprov-job/v1\"", b"\xff\xfe", b"{\"a\":1}{\"b\":2}", b"{" * 100000,
    b"{\"schema\":\"gpuprov-job/v1\",\"schema\":\"gpuprov-job/v1\"}", b"{\"run\":\"\xc0\x80\"}", b"{\"run\":\"\\ud800\"}"])
def test_requests_that_are_no_requests(node, text):
    assert node.refused("start", new_id(), stdin=text).startswith("the request of job ")
    assert not (node.home / ".gpuprov").exists()


def test_largest_request(node):
    """As much as is allowed reaches the job."""
    env = {f"A{n}": "x" * 100000 for n in range(10)}
    got, text = node.run("#" * ((1 << 20) - 40) + "\nprintf %s \"$A0$A9\" | wc -c", env=env)
    assert (got["exit"], text.strip()) == (0, "200000")


@pytest.mark.parametrize("verb", ["--bogus", "frobnicate", ""])
def test_verbs_that_do_not_exist(node, verb):
    assert "is not a verb of it; see 'gpuprov-agent --help'" in node.refused(verb)


def test_damaged_folders(node):
    """Half of a job, and a state that cannot be read: other jobs run, and nothing is invented."""
    done = node.start("exit 0")
    node.ended(done)
    half = new_id()
    (node.folder(done).parent / half).mkdir()
    assert node.state(half) == {"state": "none", "id": half}
    with open(node.folder(done) / "state", "r+b") as f:
        f.write(b"x" * 8192)
    said = node.refused("state", done)
    assert said == f"job {done}: '{node.folder(done)}/state' is damaged"
    assert node.begin("exit 5", half)[1]["job"] == "started"
    assert node.ended(half)["exit"] == 5 and node.state()["id"] == half
    assert node.ok("remove", done)["removed"] is True
    # one that runs is not started a second time, nor beside another one
    job = node.start("sleep 1000")
    keep = (node.folder(job) / "state").read_bytes()
    (node.folder(job) / "state").write_bytes(b"")
    for other in (job, new_id()):
        said = node.refused("start", other, stdin=json.dumps(request(other, "sleep 1000")).encode())
        assert said.startswith("it runs, but its state cannot be read: ")
    assert node.refused("remove", job) == f"job {job} still runs; stop it first"
    (node.folder(job) / "state").write_bytes(keep)


def test_half_written_states(node):
    """A crash while one of the two places is written: the other one counts."""
    job = node.start("exit 3")
    supervisor = node.supervisor(job)
    want = node.ended(job)
    wait_for(lambda: not alive(supervisor))  # it writes the state and then ends
    path = node.folder(job) / "state"
    places = path.read_bytes()
    newest = max((0, 4096), key=lambda at: int(places[at:at + 16], 16))
    path.write_bytes(places[:newest + 100] + b"\0" * 200 + places[newest + 300:])
    got = node.state(job)  # the one before: it ran, and its supervisor is gone
    assert (got["state"], got["reason"], got["exit"]) == ("ended", "lost", None) and want["exit"] == 3


def test_links_in_place_of_files(node, tmp_path):
    """Nothing is written through a link that somebody put there."""
    job = node.start("true")
    node.ended(job)
    for name in ("state", "log.head", "log.0"):
        target = tmp_path / f"target-{name}"
        shutil.copy(node.folder(job) / name, target)
        before = target.read_bytes()
        (node.folder(job) / name).unlink()
        (node.folder(job) / name).symlink_to(target)
        node.call("collected", job)
        assert target.read_bytes() == before


def test_many_at_once(node):
    """Readers of states while the job starts, runs and ends: every answer is a whole one."""
    job = new_id()
    seen, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            seen.append(node.state(job)["state"])
    threads = [threading.Thread(target=read) for _ in range(4)]
    for t in threads:
        t.start()
    got = node.begin("seq 1 1000", job, setup="seq 1 1000")[1]
    assert got["job"] == "started" and node.ended(job)["exit"] == 0
    stop.set()
    for t in threads:
        t.join()
    order = {"none": 0, "setup": 1, "running": 2, "ended": 3}
    assert set(seen) <= set(order) and node.state(job)["reason"] == "exited"
    assert node.state(job)["key"] == KEY
