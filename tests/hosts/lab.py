# SPDX-License-Identifier: Apache-2.0
"""A lab: one private set of namespaces (net, mount, pid, ipc) with a bridge, in which test hosts live.

Everything that a lab makes hangs on one process, pid 1 of the lab: when that ends (at close, or
because the test was killed) the kernel ends every process, mount and interface with it. Needs root.
"""
import ctypes
import glob
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from waiting import wait_for

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

# pid 1 of a lab: collects what is orphaned, and ends with its parent.
_INIT = """
import os, time
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.1)
"""


def why_not():
    """A reason why this machine cannot hold a lab, or None."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("unshare", "nsenter", "ip", "debootstrap"):
        if not any(os.access(os.path.join(d, tool), os.X_OK)
                   for d in ("/usr/sbin", "/usr/bin", "/sbin", "/bin")):
            return "needs " + tool
    try:
        probe = subprocess.run(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc",
             "mount", "-t", "tmpfs", "x", "/run"], capture_output=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "unshare does not answer"
    return None if probe.returncode == 0 else "unshare: " + probe.stderr.decode().strip()


# A host is a machine of its own: nothing of this one's environment reaches it.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


def base(folder=None, script="base.sh"):
    """Path of the hosts' common root; made on first use (about a minute). script: base.sh, or
    base_dnf.sh for one whose package manager is dnf, base_container.sh for one with container engines."""
    folder = folder or os.environ.get("GP_HOSTS_DIR") or ROOT / "build" / "hosts"
    env = {k: v for k, v in os.environ.items() if k != "TMPDIR"}  # a folder that the base does not have
    made = subprocess.run([str(HERE / script), str(folder)], capture_output=True, text=True, env=env,
                          timeout=1200, check=False)
    if made.returncode != 0:
        raise RuntimeError("no base for test hosts: " + made.stderr.strip()[-500:])
    return made.stdout.strip()


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL)


class Host:
    """A host of a lab. kind: 'light' (an sshd as pid 1), 'systemd', or 'container' (systemd, and container
    engines work)."""

    def __init__(self, lab, kind, name, address, public=None):
        self.lab, self.kind, self.name, self.address, self.public = lab, kind, name, address, public

    @property
    def dir(self):
        """The host's folder, seen from outside the lab."""
        return self.lab.path("hosts", self.name)

    def file(self, path):
        """A path of the host's file system, for reading and writing from outside."""
        return self.dir / "m" / path.lstrip("/")

    def put(self, path, text, mode=0o644, uid=0):
        to = self.file(path)
        missing = [p for p in to.parents if not p.exists()]
        to.parent.mkdir(parents=True, exist_ok=True)
        for p in missing:
            os.chown(p, uid, uid)
        to.write_text(text)
        to.chmod(mode)
        os.chown(to, uid, uid)

    def authorize(self, public_key, user="ops", uid=1000):
        self.put("/home/%s/.ssh/authorized_keys" % user, public_key.strip() + "\n", 0o600, uid)
        self.file("/home/%s/.ssh" % user).chmod(0o700)

    def start(self):
        self.lab.host_sh("start", self.name)

    @property
    def state(self):
        """'made', 'running', 'rebooting' or 'off'."""
        return self._state()[0]

    @property
    def boots(self):
        return int(self._state()[1])

    def _state(self):
        text = (self.dir / "state").read_text().split() if (self.dir / "state").exists() else ["off"]
        return (text + ["0"])[:2]

    def sh(self, script, check=True, timeout=120):
        """Runs sh -c inside the host as root."""
        done = self.lab.host_sh("exec", self.name, "sh", "-c", script, check=False, timeout=timeout)
        if check and done.returncode != 0:
            raise RuntimeError("%s: %s: %s" % (self.name, script, done.stderr))
        return done

    def ssh_up(self, port=22):
        """True when something says an SSH banner."""
        probe = "exec 3<>/dev/tcp/%s/%d && head -c 4 <&3" % (self.address, port)
        done = self.lab.run(["timeout", "10", "bash", "-c", probe], capture_output=True)
        return done.stdout[:4] in (b"SSH-", "SSH-")

    def wait_ssh(self, seconds=120):
        wait_for(self.ssh_up, seconds)

    def host_key(self):
        text = self.file("/etc/ssh/ssh_host_ed25519_key.pub").read_text().split()
        return " ".join(text[:2])

    def cut(self):
        """Pulls the network cable: what is on its way is lost and nothing answers."""
        self.lab.run(["ip", "link", "set", "v" + self.name, "down"], check=True)

    def mend(self):
        self.lab.run(["ip", "link", "set", "v" + self.name, "up"], check=True)

    def drop_connections(self):
        """Ends every SSH connection of the host, as a broken line does that is noticed."""
        self.sh("pkill -KILL -f '^sshd(-session)?: .*@' || true")

    def remove(self):
        self.lab.host_sh("del", self.name)
        self.lab.hosts.pop(self.name, None)


class Lab:
    """Use as a context manager. tmp: a folder of the test's own; cidr: the bridge's own address; nets:
    what else hosts may have addresses of; base_script: what makes the hosts' root."""

    def __init__(self, tmp, cidr="10.77.0.1/16", base_dir=None, nets=(), base_script="base.sh"):
        self.tmp = pathlib.Path(tmp)
        self.nets = nets
        self.cidr = cidr
        self.base = base(base_dir, base_script)
        self.hosts = {}
        self._holder = None
        self._threads = None
        self.pid = None
        self.folder = None

    def __enter__(self):
        self.tmp.mkdir(parents=True, exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lab-", dir=self.tmp))
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child",
             "--mount-proc", "--propagation", "private", sys.executable, "-c", _INIT],
            stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)
        try:
            self.pid = wait_for(self._first_child)
            self.host_sh("setup", self.cidr, *self.nets)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc):
        self.close()

    def _first_child(self):
        if self._holder.poll() is not None:
            raise RuntimeError("unshare ended: this machine cannot hold a lab: %s" % why_not())
        children = pathlib.Path("/proc/%d/task/%d/children" % ((self._holder.pid,) * 2)).read_text()
        pid = children.split()[0] if children.split() else None
        if not pid:
            return None
        # ready when it has become Python in its own namespaces, with its own /proc
        line = pathlib.Path("/proc/%s/cmdline" % pid).read_bytes().split(b"\0")
        return int(pid) if line[0] == os.fsencode(sys.executable) else None

    def close(self):
        """Ends everything in the lab; safe to call twice."""
        if self._threads:
            self._threads.shutdown(wait=True)
            self._threads = None
        if self._holder:
            if self.pid:
                try:
                    os.kill(self.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self._holder.kill()
            self._holder.wait()
            self._holder = None
        if self.folder:
            _sweep_cgroups(self.folder.name)
            shutil.rmtree(self.folder, ignore_errors=True)  # only an empty mount point is left
            self.folder = None

    @property
    def holder_pid(self):
        """The process here below which everything of the lab lives."""
        return self._holder.pid

    def path(self, *parts):
        """A path inside the lab's mounts, as seen from outside."""
        inside = self.folder.resolve().joinpath(*parts)
        return pathlib.Path("/proc/%d/root" % self.pid) / str(inside).lstrip("/")

    def host_sh(self, command, *args, check=True, timeout=120):
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "--net", "--mount", "--pid", "--ipc",
             str(HERE / "host.sh"), command, str(self.folder.resolve()), *map(str, args)], env=ENVIRONMENT,
            capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL)
        if check and done.returncode != 0:
            raise RuntimeError("host.sh %s %s: %s" % (command, args, done.stderr.strip()))
        return done

    def in_net(self, command):
        """The command line that runs `command` in the lab's network (and nothing else of it)."""
        return ["nsenter", "--net=/proc/%d/ns/net" % self.pid, *map(str, command)]

    def run(self, command, **kw):
        """subprocess.run in the lab's network."""
        kw.setdefault("timeout", 600)
        kw.setdefault("check", False)
        return subprocess.run(self.in_net(command), **kw)

    def popen(self, command, **kw):
        """subprocess.Popen in the lab's network; ends with the test's process."""
        return subprocess.Popen(self.in_net(command), preexec_fn=_die_with_parent, **kw)

    def call(self, fn, *args, **kw):
        """Runs fn in a thread that is in the lab's network: for boto3 and plain sockets."""
        if not self._threads:
            fd = os.open("/proc/%d/ns/net" % self.pid, os.O_RDONLY)

            def enter():
                if _libc.setns(fd, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            self._threads = ThreadPoolExecutor(4, initializer=enter)
        return self._threads.submit(fn, *args, **kw).result()

    def add(self, kind, name, address, public=None, start=True):
        """A new host. With start=False files can be put before its first boot."""
        prefix = self.cidr.split("/")[1]
        self.host_sh("add", self.base, kind, name, "%s/%s" % (address, prefix),
                     *([public] if public else []))
        host = Host(self, kind, name, address, public)
        self.hosts[name] = host
        if start:
            host.start()
        return host


def _sweep_cgroups(lab):
    """Removes the control groups that a lab's hosts had."""
    for top in (*glob.glob("/sys/fs/cgroup/*"), "/sys/fs/cgroup"):
        mine = os.path.join(top, "gp-" + lab)
        end = time.monotonic() + 60
        while os.path.isdir(mine) and time.monotonic() < end:
            for where, _, _ in os.walk(mine, topdown=False):
                try:
                    os.rmdir(where)
                except OSError:
                    time.sleep(0.02)  # its processes are still ending
