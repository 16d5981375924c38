# SPDX-License-Identifier: Apache-2.0
"""A node's jobs, driven through the agent's verb `job` as the controller does it."""
import json
import os
import pathlib
import secrets
import signal
import subprocess

from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("B", ROOT / "build"))
AGENT = BUILD / "agent" / "gpuprov-agent"
FAULTS = BUILD / "tests" / "gpuprov-agent-faults"
KEY = "0123456789abcdef" * 4


def new_id():
    return secrets.token_hex(8)


def request(job, run, **members):
    return {"schema": "gpuprov-job/v1", "id": job, "key": KEY, "cwd": "~/.gpuprov/work", "run": run, **members}


class Log:
    """What follow printed: the bytes of the log, and what it says about them."""

    def __init__(self, out):
        self.said, self.at, self.end, self.pieces = [], None, None, []
        for line in out.split(b"\n")[:-1]:
            kind, rest = line[:1], line[1:]
            if kind == b"@":
                about = json.loads(rest)
                self.said.append(about)
                self.at = about.get("at", self.at)
                self.end = about.get("end", self.end)
            else:
                assert kind in (b"=", b"+"), line[:80]
                self.pieces.append(line)

        self.text = b"".join(p[1:] + (b"\n" if p[:1] == b"=" else b"") for p in self.pieces)

    def all(self, name):
        return [s[name] for s in self.said if name in s]


class Node:
    """A home folder. program: FAULTS takes settings for tests from env; user: not root."""

    def __init__(self, home, program=AGENT, env=None, user=None):
        self.home, self.program, self.user = pathlib.Path(home), program, user
        assert program.exists(), f"{program} is not built: make agent agent-faults"
        self.home.mkdir(exist_ok=True)
        if user:
            os.chown(self.home, user, user)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home), **(env or {})}
        self.ids = []

    def popen(self, *args, **kw):
        who = {"user": self.user, "group": self.user, "extra_groups": []} if self.user else {}
        return subprocess.Popen([str(self.program), "job", *map(str, args)], env=self.env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, cwd="/", **who, **kw)

    def call(self, *args, stdin=b"", timeout=120):
        p = self.popen(*args, stdin=subprocess.PIPE)
        out, err = p.communicate(stdin, timeout)
        return p.returncode, out, err.decode()

    def ok(self, *args, **kw):
        """The one line of JSON that a verb answers."""
        rc, out, err = self.call(*args, **kw)
        assert (rc, err) == (0, ""), (args, rc, err)
        return json.loads(out)

    def refused(self, *args, **kw):
        """The one line of error, without the verb in front of it."""
        rc, out, err = self.call(*args, **kw)
        assert (rc, out) == (3, b"") and err.endswith("\n") and err.count("\n") == 1, (args, rc, out, err)
        return err.strip().partition(": ")[2]

    def begin(self, run, job=None, **members):
        """Starts a job; its ID and the answer."""
        job = job or new_id()
        self.ids.append(job)
        return job, self.ok("start", job, stdin=json.dumps(request(job, run, **members)).encode())

    def start(self, run, **members):
        job, got = self.begin(run, **members)
        assert got["job"] == "started", got
        return job

    def state(self, *job):
        return self.ok("state", *job)

    def follow(self, job, start=0, *more):
        rc, out, err = self.call("follow", job, "--from", start, *more)
        assert (rc, err) == (0, ""), (rc, err)
        return Log(out)

    def ended(self, job, seconds=60):
        return wait_for(lambda: (s := self.state(job))["state"] == "ended" and s, seconds)

    def run(self, run, **members):
        """A whole job: its end and its log."""
        log = self.follow(self.start(run, **members))
        return log.end, log.text.decode()

    def folder(self, job):
        return next(self.home.glob(f".gpuprov/nodes/*/jobs/{job}"))

    def supervisor(self, job):
        return int((self.folder(job) / "pid").read_text().split()[0])

    def close(self):
        for job in self.ids:
            self.call("stop", job)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def marked(job):
    """Processes whose environment names this job."""
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"GPUPROV_JOB_ID={job}".encode() in (p / "environ").read_bytes() and alive(p.name):
                found.append(int(p.name))
        except OSError:
            pass
    return found


def kill9(pid):
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid))
