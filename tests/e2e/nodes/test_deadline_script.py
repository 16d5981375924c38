# SPDX-License-Identifier: Apache-2.0
"""deadline.sh itself: what it reads, what ends a node, and that nothing on a node stops its time. A poweroff is recorded."""
import os
import pathlib
import signal
import subprocess
import time

import pytest
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]
FAR = 4000000000


class Node:
    """A copy of the script with folders of its own; `tools` come first in its PATH."""

    def __init__(self, path):
        self.path, self.tools, self.p = path, path / "bin", None
        self.tools.mkdir()
        (path / "home/.gpuprov/nodes/n0-1/jobs").mkdir(parents=True)
        self.tool("poweroff", "echo poweroff >> %s/log" % path)
        self.tool("who", "cat %s/who 2>/dev/null" % path)
        self.tool("timedatectl", "cat %s/clock 2>/dev/null" % path)
        self.tool("chronyc", ":")
        script = (ROOT / "templates/cloud-init/deadline.sh").read_text()
        for old, new in (("/proc/sysrq-trigger", path / "sysrq"), ("/etc/passwd", path / "passwd"),
                         ("/run/systemd/timesync/synchronized", path / "synchronized"),
                         ("/proc/[0-9]*/cmdline", "%s/proc/[0-9]*/cmdline" % path)):
            assert old in script, old
            script = script.replace(old, str(new))
        (path / "passwd").write_text("me:x:0:0::%s/home:/bin/sh\n" % path)
        (path / "deadline.sh").write_text(script)

    def tool(self, name, text):
        (self.tools / name).write_text("#!/bin/sh\n%s\n" % text)
        (self.tools / name).chmod(0o755)

    def conf(self, text=None, **keys):
        keys = {"EXPIRES": FAR, "TTL": 100000, "GRACE": 0, "TICK": 1, "HOLD": 0, "FORCE_AFTER": 99, "STATE": self.path / "used",
                "RUN": self.path / "run", "MACHINE": machine(), **keys}
        lines = "".join("%s=%s\n" % one for one in keys.items())
        new = self.path / "conf.new"
        new.write_text("FORM=2\n%sCOMPLETE=1\n" % lines if text is None else text)
        new.rename(self.path / "conf")

    def start(self, **env):
        env = {**os.environ, "PATH": "%s:%s" % (self.tools, os.environ["PATH"]), "NVIDIACTL": str(self.path / "gpu"), **env}
        self.p = subprocess.Popen(["sh", self.path / "deadline.sh", self.path / "conf"], env=env, text=True,
                                  stdout=subprocess.PIPE, start_new_session=True)

    def stop(self):
        if self.p is not None:
            os.killpg(self.p.pid, signal.SIGKILL)
            self.p.wait()
        self.p = None

    def nudge(self):
        os.kill(self.p.pid, signal.SIGUSR1)

    def says(self):
        """What is in force: {"expires": ...}."""
        try:
            return {k: int(v) for k, v in (w.split("=") for w in (self.path / "run/deadline").read_text().split())}
        except FileNotFoundError:
            return {}

    def ended(self):
        return (self.path / "log").exists()


def machine():
    try:
        return pathlib.Path("/sys/class/dmi/id/product_uuid").read_text().strip()
    except OSError:
        return ""


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.stop()


def why(node):
    wait_for(node.ended, 60)
    return node.p.stdout.readline()


def test_a_deadline_that_moves(node):
    """Later and earlier, without a restart; what is moved is in force at once, also with a long tick."""
    node.conf(TICK=500)
    node.start()
    wait_for(lambda: node.says().get("ttl") == 100000)
    node.conf(TICK=500, TTL=200000, EXPIRES=FAR + 7)
    node.nudge()
    wait_for(lambda: node.says()["ttl"] == 200000 and node.says()["expires"] == FAR + 7)
    node.conf(TICK=500, TTL=0)
    node.nudge()
    assert "its ttl is 0 s" in why(node)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("text", [
    "FORM=2\nEXPIRES=40", "FORM=2\nEXPIRES=1\nTTL=0\nGRACE=0\n", "", "EXPIRES=1\nTTL=0\n", "EXPIRES=1\nTTL=0\nGRACE=-1\n",
    "EXPIRES=010\nTTL=0\nGRACE=0\n", "EXPIRES=1\nTTL=$(touch /tmp/x)\nGRACE=0\n", "EXPIRES=1\nTTL=0\nGRACE=99999999999999999999\n",
    "FORM=3\nEXPIRES=1\nTTL=0\nGRACE=0\nCOMPLETE=1\n"])
def test_a_file_that_is_not_complete_changes_nothing(node, text):
    node.conf()
    node.start()
    wait_for(lambda: node.says().get("used", -1) >= 0)
    node.conf(text=text)
    node.nudge()
    before = node.says()["used"]
    wait_for(lambda: node.says()["used"] > before + 1)
    assert node.says()["ttl"] == 100000 and not node.ended()


def test_a_node_without_a_readable_deadline_ends(node):
    node.conf(text="FORM=2\nEXPIRES=40")
    script = node.path / "deadline.sh"
    for old, new in (("BROKEN=3600", "BROKEN=2"), ("TICK=30", "TICK=1"), ("/var/lib/gpuprov/deadline-used", node.path / "used"),
                     ("/run/gpuprov", node.path / "run"), ("HOLD=300", "HOLD=0")):
        script.write_text(script.read_text().replace(old, str(new), 1))
    node.start()
    assert "cannot be read: this node ends after 2 s" in why(node)


def test_the_form_of_earlier_versions(node):
    node.conf(text="EXPIRES=%d\nTTL=0\nGRACE=0\nTICK=1\nEND=\nMACHINE=%s\nSTATE=%s/used\nRUN=%s/run\n"
              % (FAR, machine(), node.path, node.path))
    node.start()
    assert "its ttl is 0 s" in why(node)


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Apia"])
def test_time_zones_change_nothing(node, zone):
    (node.path / "synchronized").touch()
    node.conf(EXPIRES=int(time.time()) + 3600)
    node.start(TZ=zone)
    wait_for(lambda: node.says().get("used", 0) > 0)
    assert not node.ended()
    node.conf(EXPIRES=int(time.time()) - 1)
    node.nudge()
    assert "its deadline has passed" in why(node)


def test_a_clock_that_is_an_hour_ahead_ends_nothing(node):
    """Until it is synchronized, only used time counts."""
    node.tool("date", "echo %d" % (int(time.time()) + 3600))
    node.conf(EXPIRES=int(time.time()) + 60)
    node.start()
    wait_for(lambda: node.says().get("used", 0) > 2)
    assert not node.ended()
    (node.path / "clock").write_text("System clock synchronized: yes\n")
    assert "its deadline has passed" in why(node)


@pytest.mark.parametrize("clock", ["no", "yes"])
def test_a_clock_that_is_an_hour_behind_keeps_nothing(node, clock):
    """Used time counts also on a node that takes its clock for synchronized."""
    node.tool("date", "echo %d" % (int(time.time()) - 3600))
    (node.path / "clock").write_text("System clock synchronized: %s\n" % clock)
    node.conf(EXPIRES=int(time.time()) + 2, TTL=2)
    node.start()
    assert "its ttl is 2 s" in why(node)


def test_an_extension_at_the_last_moment(node):
    """It comes between the decision and the end: it counts, and the node says that it does not end."""
    node.conf()
    script = node.path / "deadline.sh"
    at = 'mkdir "$RUN/ending" 2>/dev/null\n'
    assert at in script.read_text()
    script.write_text(script.read_text().replace(at, at + 'cp "$CONFIG.next" "$CONFIG.n" && mv "$CONFIG.n" "$CONFIG"\n'))
    node.conf(TTL=50000)
    (node.path / "conf").rename(node.path / "conf.next")
    node.conf(TTL=0)
    node.start()
    wait_for(lambda: node.says().get("ttl") == 50000)
    assert not node.ended() and not (node.path / "run/ending").exists()


def test_an_end_that_began_is_shown(node):
    node.conf(TTL=0)
    node.start()
    why(node)
    assert (node.path / "run/ending").is_dir()


def session(node, pid, title):
    (node.path / "proc" / str(pid)).mkdir(parents=True, exist_ok=True)
    (node.path / "proc" / str(pid) / "cmdline").write_bytes(title.encode() + b"\0" * 20)


def test_idle_ends_the_node(node):
    node.conf(IDLE=3)
    node.start()
    assert "it had no job, no login and no GPU use" in why(node)


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("used_by", ["terminal", "session", "console", "root's job", "user's job", "gpu", "mig"])
def test_a_node_in_use_is_not_idle(node, used_by):
    other = subprocess.Popen(["sh", "-c", "sleep 1000; : gpuprov-agent"], start_new_session=True)
    jobs = node.path / "home/.gpuprov/nodes/n0-1/jobs/0123456789abcdef"
    jobs.mkdir(parents=True)
    (node.path / "run").mkdir()
    if used_by == "terminal":
        session(node, 7, "sshd: me@pts/0")
    elif used_by == "session":
        session(node, 7, "sshd-session: me@notty")
    elif used_by == "console":
        (node.path / "who").write_text("me tty1\n")
    elif used_by == "root's job":
        (node.path / "run/job").write_text("%d 4711 boot\n" % other.pid)
    elif used_by == "user's job":
        (jobs / "pid").write_text("%d 4711 boot\n" % other.pid)
    else:
        (node.path / "gpu").touch()
        node.tool("nvidia-smi", 'case $1 in *util*) echo 0; echo %s ;; *) echo 4711 ;; esac'
                  % ("7" if used_by == "gpu" else "'[N/A]'"))
    try:
        node.conf(IDLE=3)
        node.start()
        wait_for(lambda: node.says().get("used", 0) > 6)
        assert not node.ended() and node.says()["idle"] < 3
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()
    # and then it is free: a job whose supervisor was killed leaves its files behind
    for one in (node.path / "proc/7/cmdline", node.path / "who"):
        one.unlink(missing_ok=True)
    node.tool("nvidia-smi", "case $1 in *util*) echo 0 ;; esac")
    assert "no GPU use" in why(node)


def test_preauth_and_listener_are_no_login(node):
    for pid, title in enumerate(("sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups", "sshd: root [preauth]",
                                 "sshd: unknown [priv]", "vi sshd: x@pts/0")):
        session(node, pid, title)
    node.conf(IDLE=3)
    node.start()
    assert "no login" in why(node)


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("how", ["fails", "hangs", "is missing"])
def test_gpus_of_unknown_use_are_not_idle_and_stop_no_deadline(node, how):
    (node.path / "gpu").touch()
    if how == "is missing":
        node.tool("timeout", "exit 127")
    else:
        node.tool("nvidia-smi", "exit 9" if how == "fails" else "sleep 1000")
    node.conf(IDLE=2, TTL=8)
    node.start()
    assert "its ttl is 8 s" in why(node)


def test_idle_time_survives_a_restart(node):
    """A node that reboots before its idle time is over ends too."""
    node.conf(IDLE=1000, TICK=1)
    node.start()
    wait_for(lambda: node.says().get("idle", 0) >= 3)
    node.stop()
    kept = int((node.path / "used.idle").read_text())
    assert kept >= 2
    (node.path / "run/deadline").unlink()
    node.start()
    wait_for(lambda: node.says().get("idle", 0) > kept)


def contact(node, pid, boot=None, at="1.00"):
    boot = boot or pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    new = node.path / "home/.gpuprov/c"
    new.write_text("%s %d %s\n" % (boot, pid, at))
    new.rename(node.path / "home/.gpuprov/contact")


def test_a_node_without_a_controller_ends(node):
    """Each new contact starts the time again; an old one, or one before a reboot, does not."""
    node.conf(CONTROLLER=6)
    node.start()
    for i in range(4):
        contact(node, 999999, at="%d.00" % i)
        before = node.says().get("used", 0)
        wait_for(lambda b=before: node.says().get("used", 0) > b + 2)
    assert not node.ended()
    contact(node, 999999, boot="0-0", at="77.00")
    assert "no gpuprov has connected for" in why(node)


def test_hostile_contact_files(node):
    """They are written by the login user: nothing of them reaches a shell or a path."""
    file = node.path / "home/.gpuprov/contact"
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for text in ("%s ../../etc $(touch %s/x)\n" % (boot, node.path), "%s ;touch${IFS}x `id`\n" % boot, "\0\0\n", "a" * 100000):
        file.write_text(text)
        node.conf(CONTROLLER=3)
        node.start()
        wait_for(lambda: node.says().get("used", 0) > 1)
        node.stop()
    assert not (node.path / "x").exists()


def test_a_hanging_home_stops_no_deadline(node):
    os.mkfifo(node.path / "home/.gpuprov/contact.fifo")
    (node.path / "home/.gpuprov/nodes/n0-1/jobs/a").mkdir()
    os.mkfifo(node.path / "home/.gpuprov/nodes/n0-1/jobs/a/pid")
    node.tool("cut", "sleep 1000")
    node.conf(IDLE=2, CONTROLLER=2, TTL=8)
    node.start()
    assert "its ttl is 8 s" in why(node)
