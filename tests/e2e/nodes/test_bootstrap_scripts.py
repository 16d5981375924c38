# SPDX-License-Identifier: Apache-2.0
"""The shell that starts and follows a step, run here by sh in a home of the test's own: what is hard to
bring about on a node at the right moment."""
import os
import pathlib
import shlex
import subprocess
import threading

import pytest
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]
FRAGMENTS = ROOT / "templates" / "bootstrap"
_ID = pathlib.Path("/etc/machine-id")
MACHINE_ID = _ID.read_text().strip() if _ID.is_file() else ""


class Home:
    def __init__(self, path):
        self.path, self.bin = path, path / "bin"
        self.bin.mkdir()
        self.dir = path / ".gpuprov/nodes" / (os.uname().nodename + "-" + MACHINE_ID) / "steps/s"
        self.env = {"HOME": str(path), "PATH": "%s:%s" % (self.bin, os.environ["PATH"])}

    def tool(self, name, text):
        (self.bin / name).write_text("#!/bin/sh\n" + text)
        (self.bin / name).chmod(0o755)

    def sh(self, fragment, **names):
        """Runs lib.sh and a fragment as the controller sends them."""
        lines = ["%s=%s" % (k, shlex.quote(str(v))) for k, v in names.items()]
        script = "{ echo\n%s\n%s\n%s\n} </dev/null\n" % (
            (FRAGMENTS / "run" / "lib.sh").read_text(), "\n".join(lines), (FRAGMENTS / (fragment + ".sh")).read_text())
        return subprocess.run(["sh", "-s"], input=script, env=self.env, capture_output=True, text=True, timeout=60,
                              check=False)

    def start(self, run, run_id, job_hash="h"):
        return self.sh("run/start", STEP="s", HASH=job_hash, RUN_ID=run_id, JOB=run,
                       WRAP=(FRAGMENTS / "run" / "job.sh").read_text())

    def follow(self, run_id, off=0, slice_s=10):
        done = self.sh("run/follow", STEP="s", RUN_ID=run_id, OFF=off, SLICE=slice_s)
        assert done.returncode == 0, done
        return done.stdout.replace("::%s alive\n" % run_id, "").lstrip("\n")

    def pretend(self, run_id, out):
        """A run that goes on, of which only its output is there."""
        self.dir.mkdir(parents=True)
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        (self.dir / "id").write_text("h %s %s\n" % (boot, run_id))
        (self.dir / "rc").write_text("run       \n")
        (self.dir / "out").write_text(out)
        alive = subprocess.Popen(["sh", "-c", "read x", run_id], stdin=subprocess.PIPE)
        (self.dir / "pid").write_text("%d\n" % alive.pid)
        return alive


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def runs(home, pid):
    script = (FRAGMENTS / "run" / "lib.sh").read_text() + "runs '%s'\n" % pid
    return subprocess.run(["sh", "-c", script], env=home.env, check=False).returncode == 0


def test_a_process_without_a_command_line_runs(home):
    """As one has none for a moment while it starts another program. A zombie has ended."""
    child = subprocess.Popen(["bash", "-c", 'exec -a "" cat'], stdin=subprocess.PIPE)
    wait_for(lambda: pathlib.Path("/proc/%d/cmdline" % child.pid).read_bytes() == b"\0", 60)
    assert runs(home, child.pid)
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    assert not runs(home, child.pid)
    child.wait()
    assert not runs(home, child.pid) and not runs(home, "") and not runs(home, "self/nothing")


def test_two_starts_at_once_start_one_run(home):
    """The answer to the first was lost, and it is still at work when it is asked for again."""
    home.dir.mkdir(parents=True)
    lock = subprocess.Popen(["flock", home.dir / "lock", "sh", "-c", "echo held; read x"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    assert lock.stdout.readline() == "held\n"
    said = []
    threads = [threading.Thread(target=lambda: said.append(home.start("echo x >> ~/runs\n", "aaaa"))) for _ in range(4)]
    for t in threads:
        t.start()
    lock.communicate("\n")
    for t in threads:
        t.join()
    assert [(s.returncode, s.stdout) for s in said] == [(0, "\n::run aaaa\n")] * 4, said
    assert home.follow("aaaa").endswith("::aaaa end 0\n")
    assert (home.path / "runs").read_text() == "x\n"


def test_a_run_whose_place_was_taken_does_nothing(home):
    alive = home.pretend("bbbb", "")
    (home.dir / "run").write_text("echo x > ~/ran\n")
    done = subprocess.run(["sh", FRAGMENTS / "run" / "job.sh", "aaaa"], cwd=home.dir, env=home.env, check=False)
    assert done.returncode == 0 and not (home.path / "ran").exists()
    assert (home.dir / "pid").read_text() == "%d\n" % alive.pid
    alive.communicate(b"\n")


def uptime():
    return float(pathlib.Path("/proc/uptime").read_text().split()[0])


@pytest.mark.parametrize("status, ago, shared", [(0, 0, True), (1, 0, False), (0, 60, False)])
def test_a_run_that_ended_well_is_not_repeated_before_its_follower_saw_it(home, status, ago, shared):
    """A second gpuprov that starts the equal step in that moment takes its end. A run that nobody follows is of the past."""
    home.start("echo x >> ~/runs; exit %d\n" % status, "aaaa")
    wait_for(lambda: (home.dir / "rc").read_text().strip() == str(status), 60)
    (home.dir / "followed").write_text("%d\n" % max(uptime() - ago, 0))
    assert home.start("echo x >> ~/runs\n", "bbbb").stdout == "\n::run %s\n" % ("aaaa" if shared else "bbbb")
    assert home.follow("aaaa" if shared else "bbbb").endswith("end 0\n")
    assert (home.path / "runs").read_text() == ("x\n" if shared else "x\nx\n")


def test_a_run_that_another_gpuprov_replaced_was_not_killed(home):
    home.start("true\n", "aaaa")
    assert home.follow("aaaa").endswith("::aaaa end 0\n")
    assert "::run bbbb" in home.start("echo new; exit 3\n", "bbbb").stdout
    wait_for(lambda: (home.dir / "rc").read_text().strip() == "3", 60)
    assert home.follow("aaaa") == "::aaaa vanished replaced\n"


def test_an_earlier_form_of_a_step_is_ended_with_all_it_started(home):
    home.start("echo $$ >> ~/pids; sleep 1000 & echo $! >> ~/pids; touch ~/up; wait\n", "aaaa", "old")
    wait_for((home.path / "up").exists, 60)
    assert "::run bbbb" in home.start("echo new\n", "bbbb", "new").stdout
    for pid in (home.path / "pids").read_text().split():
        stat = pathlib.Path("/proc/%s/stat" % pid)
        assert not stat.exists() or stat.read_text().split()[2] == "Z"
    assert home.follow("bbbb") == "new\n\n::bbbb over\n::bbbb at 17\n::bbbb end 0\n"


def test_what_is_said_last_is_heard_on_a_slow_node(home):
    """The status is there before the output has come through."""
    home.tool("dd", "sleep 2\nexec /bin/dd \"$@\"\n")
    home.start("echo '::error this is why'; exit 3\n", "aaaa")
    said = home.follow("aaaa")
    assert said.startswith("::error this is why\n") and said.endswith("::aaaa end 3\n")


def test_many_small_writes_are_all_followed(home):
    """Each line is a read of its own at the other end of the pipe."""
    assert home.start("i=0; while [ $i -lt 60 ]; do echo line $i; sleep 0.01; i=$((i + 1)); done", "run1").returncode == 0
    wait_for(lambda: (home.dir / "rc").read_text().strip() == "0")
    said = home.follow("run1")
    assert [line for line in said.splitlines() if line.startswith("line")] == [f"line {i}" for i in range(60)]
    assert (home.dir / "tail").read_text() == ""


@pytest.mark.parametrize("size", [1048576 - 5000, 1048576 + 3000, 3000000])
def test_the_first_mib_and_the_last_64_kib_are_kept(home, size):
    run = "head -c %d /dev/zero | tr '\\0' a; echo the end" % size
    assert home.start(run, "run1").returncode == 0
    wait_for(lambda: (home.dir / "rc").read_text().strip() == "0")
    wait_for((home.dir / "tail").exists)
    first, kept = home.sh("run/output", STEP="s").stdout.lstrip("\n").split("\n", 1)
    assert first == "::output %s" % (home.dir / "out") and kept.rstrip("\n").endswith("the end")
    if size < 1048576 + 65536:
        assert kept.count("a") == size  # nothing is missing
    else:
        assert "[gpuprov: the output from here to its last 64 KiB was not kept]" in kept
        assert 1048576 + 60000 < len(kept) < 1048576 + 70000


def test_what_a_step_leaves_running_is_not_waited_for(home):
    home.start("echo ready; sleep 1000 & echo $! > ~/pid; exit 4\n", "aaaa")
    said = home.follow("aaaa")
    assert said.startswith("ready\n") and "::aaaa last ready\n" in said and said.endswith("::aaaa end 4\n")
    subprocess.run(["kill", (home.path / "pid").read_text().strip()], check=True)


def test_bytes_that_are_no_text(home):
    home.start("printf 'a\\0b \\377 why\\n' >&2; exit 5\n", "aaaa")
    home.env["LC_ALL"] = "C.UTF-8"
    done = subprocess.run(["sh", "-s"], env=home.env, capture_output=True, check=False, input=(
        "STEP=s RUN_ID=aaaa OFF=0 SLICE=9\n%s\n%s\n" % ((FRAGMENTS / "run" / "lib.sh").read_text(),
                                                       (FRAGMENTS / "run" / "follow.sh").read_text())).encode())
    assert b"::aaaa last ab \xff why\n" in done.stdout, done


@pytest.mark.parametrize("half", ["::err", ":", "hf_Geh"])
def test_half_a_line_waits_for_its_end(home, half):
    """What is for gpuprov, or may be the first half of a secret, is not told in two halves."""
    alive = home.pretend("aaaa", "first\n" + half)
    rest, told = "or x\n", []
    follower = threading.Thread(target=lambda: told.append(home.follow("aaaa", slice_s=3600)))
    home.tool("sleep", "touch ~/looks; until [ -e ~/go ]; do /bin/sleep 0.02; done\n")
    follower.start()
    wait_for((home.path / "looks").exists, 60)
    with open(home.dir / "out", "a", encoding="ascii") as out:
        out.write(rest)
    alive.communicate(b"\n")
    (home.path / "go").touch()
    follower.join()
    size = 6 + len(half + rest)
    assert told == ["first\n::aaaa at 6\n%s%s::aaaa at %d\n::aaaa vanished killed\n" % (half, rest, size)]
    assert home.follow("aaaa", off=size) == "::aaaa vanished killed\n"


def test_a_question_is_shown_once(home):
    alive = home.pretend("aaaa", "Password: ")
    home.tool("sleep", "echo x >> ~/looks; [ $(wc -l < ~/looks) -lt 8 ] || kill %d\n" % alive.pid)
    assert home.follow("aaaa", slice_s=3600) == "Password: \n::aaaa at 10\n::aaaa vanished killed\n"
    assert home.follow("aaaa", off=10) == "::aaaa vanished killed\n"
    alive.wait()


def test_the_time_of_day_may_be_set_meanwhile(home):
    home.tool("date", "echo $((1000000 - $(cut -d. -f1 /proc/uptime)))\n")
    alive = home.pretend("aaaa", "")
    assert home.follow("aaaa", slice_s=1) == "::aaaa again\n"
    alive.communicate(b"\n")


@pytest.mark.parametrize("looks, code", [(3, 0), (1000, 1)])
def test_a_unit_that_is_a_moment_late(home, looks, code):
    """systemd reports a unit as started before its program runs: it is looked for more than once."""
    home.tool("grep", "echo . >>\"$HOME/looks\"; test $(wc -l <\"$HOME/looks\") -ge %d\n" % looks)
    home.tool("sleep", ":\n")
    text = (FRAGMENTS / "deadline.sh").read_text().replace("/etc/gpuprov", str(home.path))
    (home.path / "deadline.conf").write_text("TTL=1\n")
    verify = "fail() { echo \"$1\" >&2; exit 1; }\n%s\nverify\n" % text
    done = subprocess.run(["sh", "-s"], input=verify, env=home.env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done
    assert ("is not running" in done.stderr) == (code != 0)


@pytest.mark.parametrize("refusals, within, code", [(0, "0", 0), (2, "600", 0), (1000, "0", 1), (1000, "", 0)])
def test_a_node_that_deletes_itself_tries_its_right(home, refusals, within, code):
    """The cloud applies a new right within minutes: until then it is tried again. "": a poweroff ends the node."""
    home.tool("grep", ":\n")
    home.tool("sleep", ":\n")
    text = (FRAGMENTS / "deadline.sh").read_text().replace("/etc/gpuprov", str(home.path))
    (home.path / "deadline.conf").write_text("TTL=1\n")
    (home.path / "end.sh").write_text("[ \"$1\" = check ] && echo . >>\"$HOME/tried\"; test $(wc -l <\"$HOME/tried\") -gt %d "
                                      "|| { echo 'gpuprov: no right' >&2; exit 1; }\n" % refusals)
    verify = "fail() { echo \"$1\" >&2; exit 1; }\nroot() ( exec \"$@\" )\nENDS_WITHIN=%s\n%s\nverify\n" % (within, text)
    done = subprocess.run(["sh", "-s"], input=verify, env=home.env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done
    assert ("the node would not end at its deadline: no right" in done.stderr) == (code != 0)
