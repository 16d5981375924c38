# SPDX-License-Identifier: Apache-2.0
"""An sshd of the test's own on 127.0.0.1, whose logins have a home folder of the test's own. Needs no root and no lab.
What it starts ends with it."""
import ctypes
import getpass
import os
import pathlib
import shutil
import signal
import socket
import subprocess

from waiting import wait_for

_libc = ctypes.CDLL(None, use_errno=True)
CONF = """\
HostKey %(dir)s/host_key
AuthorizedKeysFile %(dir)s/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
ListenAddress 127.0.0.1:%(port)d
ForceCommand HOME=%(home)s; export HOME; cd; exec sh -c "$SSH_ORIGINAL_COMMAND"
"""


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL)


class OwnSshd:
    """Use as a context manager. folder: of the test's own. agent: the program that becomes the node's agent. like:
    another one, whose keys this one has too."""

    def __init__(self, folder, agent=None, like=None):
        self.dir = pathlib.Path(folder)
        self.home = self.dir / "home"
        self.key = self.dir / "key"
        self.user = getpass.getuser()
        self.agent = self.home / ".gpuprov" / "agent" / "gpuprov-agent"
        self.agent.parent.mkdir(parents=True)
        if agent:
            shutil.copy(agent, self.agent)
            self.agent.chmod(0o700)
        for name in ("key", "host_key"):
            if like:
                for file in (name, name + ".pub"):
                    shutil.copy(like.dir / file, self.dir / file)
                continue
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.dir / name], check=True)
        self.host_key = " ".join((self.dir / "host_key.pub").read_text().split()[:2])
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self._sshd = None

    def __enter__(self):
        conf = self.dir / "sshd_config"
        conf.write_text(CONF % {"dir": self.dir, "port": self.port, "home": self.home})
        pathlib.Path("/run/sshd").mkdir(exist_ok=True) if os.geteuid() == 0 else None
        with (self.dir / "log").open("w") as log:
            self._sshd = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", conf], stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=log, preexec_fn=_die_with_parent)
        wait_for(lambda: "Server listening" in (self.dir / "log").read_text(), 30)
        return self

    def connections(self):
        """Process ids of the sshd processes of connections."""
        pids = pathlib.Path("/proc/%d/task/%d/children" % ((self._sshd.pid,) * 2)).read_text().split()
        return [int(p) for p in pids]

    def drop_connections(self):
        for pid in self.connections():
            _kill(pid)

    def __exit__(self, *exc):
        for pid in self.connections():
            _kill(pid)
        self._sshd.kill()
        self._sshd.wait()


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
