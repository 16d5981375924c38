# SPDX-License-Identifier: Apache-2.0
"""Jobs across reboots of a systemd host, started through ssh as a user with sudo."""
import json
import os
import shlex
import subprocess

import lab as labs
import pytest
from agent_job import AGENT, Log, new_id, request
from waiting import wait_for

pytestmark = [pytest.mark.skipif(labs.why_not() is not None, reason=f"no test hosts: {labs.why_not()}")]
UNIT = "/etc/systemd/system/gpuprov-job.service"


class Remote:
    """A host through ssh: each call is a connection of its own."""

    def __init__(self, lab, host, key):
        self.lab, self.host = lab, host
        self.ssh = ["ssh", "-i", key, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o",
                    "LogLevel=ERROR", "-o", "ConnectTimeout=10", f"ops@{host.address}"]

    def call(self, *args, stdin=""):
        line = " ".join(map(shlex.quote, (".gpuprov/agent/gpuprov-agent", "job", *args)))
        return self.lab.run([*self.ssh, line], input=stdin.encode(), capture_output=True, timeout=120)

    def ok(self, *args, **kw):
        got = self.call(*args, **kw)
        assert got.returncode == 0, (args, got.stderr)
        return json.loads(got.stdout)

    def start(self, run, **members):
        job = new_id()
        got = self.ok("start", job, stdin=json.dumps(request(job, run, **members)))
        assert got["job"] == "started", got
        return job, got

    def reboot(self):
        boots = self.host.boots
        self.host.sh("systemctl reboot", check=False)
        wait_for(lambda: self.host.boots == boots + 1 and self.host.state == "running" and self.host.ssh_up(), 180)

    def ended(self, job):
        """Its state once it has ended and nobody is about to start it again."""
        def look():
            got = self.call("state", job)
            state = json.loads(got.stdout) if got.returncode == 0 else {"state": "none"}
            return state["state"] == "ended" and not (state["again"] and state["unit"]) and state
        return wait_for(look, 120)


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    key = tmp_path_factory.mktemp("key") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    with labs.Lab(tmp_path_factory.mktemp("lab")) as lab:
        host = lab.add("systemd", "job1", "10.77.1.1", start=False)
        host.authorize((key.parent / "key.pub").read_text())
        agent = host.file("/home/ops/.gpuprov/agent/gpuprov-agent")
        agent.parent.mkdir(parents=True)
        agent.write_bytes(AGENT.read_bytes())
        agent.chmod(0o755)
        for p in (agent, agent.parent, agent.parent.parent):
            os.chown(p, 1000, 1000)
        host.start()
        host.wait_ssh()
        yield Remote(lab, host, str(key))


def test_a_job_starts_again_by_itself(remote):
    """The unit is there while the job runs, starts it once more, and goes with its end."""
    job, got = remote.start("echo attempt $A; id -un; if [ -e second ]; then exit 4; fi; touch second; sleep 1000",
                            setup="echo setup", restart=1, env={"A": "x y"}, preempt="true",
                            watch={"notices": None, "on_unhealthy": "stop"})
    assert got["unit"] is True and remote.host.file(UNIT).exists()
    wait_for(remote.host.file("/home/ops/.gpuprov/work/second").exists)
    remote.reboot()
    end = remote.ended(job)
    assert (end["attempt"], end["exit"], end["reason"], end["again"]) == (2, 4, "exited", False)
    assert end["boot"] == remote.host.sh("cat /proc/sys/kernel/random/boot_id").stdout.strip()
    log = Log(remote.call("follow", job).stdout)
    assert log.text.decode() == "setup\nattempt x y\nops\n" * 2 and log.all("attempt") == [2]
    assert log.all("health") == []  # a watch that ended with its node is no finding
    wait_for(lambda: not remote.host.file(UNIT).exists())
    assert not remote.host.file("/etc/systemd/system/multi-user.target.wants/gpuprov-job.service").is_symlink()


def test_a_shutdown_is_no_success(remote):
    """The job's own answer to the SIGTERM of a shutdown is status 0, but nobody let it finish. Processes of root, which
    sudo started, end with the job."""
    job, got = remote.start("trap 'exit 0' TERM; touch up; sleep 1000 & wait")
    assert got["unit"] is False and not remote.host.file(UNIT).exists()
    wait_for(remote.host.file("/home/ops/.gpuprov/work/up").exists)
    remote.reboot()
    end = remote.ended(job)
    assert (end["exit"], end["signal"], end["reason"], end["again"]) == (None, None, "lost", False)
    job, _ = remote.start("sudo -n setsid sleep 1234 & sleep 0.5; trap '' TERM; exit 3", grace_s=1)
    end = remote.ended(job)
    assert (end["exit"], end["left"]) == (3, 0)
    assert remote.host.sh("pgrep -f [s]leep.1234", check=False).stdout == ""
