# SPDX-License-Identifier: Apache-2.0
"""Transfers with the driver (tests/drivers/transfer.c) to an sshd of the test's own, whose home folder is the node."""
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import threading

import pytest
from own_sshd import OwnSshd

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("B", ROOT / "build")).resolve()
DRIVER = BUILD / "tests" / "drivers" / "transfer"
AGENT = BUILD / "agent" / "gpuprov-agent"


class Node(OwnSshd):
    def argv(self, how, source, target, *words, port=None):
        return [str(DRIVER), how, str(self.key), self.host_key, str(port or self.port), os.fsencode(source), os.fsencode(target),
                *words]

    def start(self, how, source, target, *words, port=None):
        return subprocess.Popen(self.argv(how, source, target, *words, port=port), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def copy(self, how, source, target, *words, code=0, timeout=300, port=None):
        p = self.start(how, source, target, *words, port=port)
        try:
            out, err = p.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGKILL)
            p.wait()
            raise
        assert p.returncode == code, (p.returncode, out, err)
        return json.loads(out)

    def up(self, source, target, *words, **kw):
        return self.copy("up", source, target, *words, **kw)

    def down(self, source, target, *words, **kw):
        return self.copy("down", source, target, *words, **kw)


def describe(root):
    """Every path below root: its kind, mode, time, content or target."""
    root, found = os.fsencode(root), {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            if os.path.islink(path):
                what = ("link", os.readlink(path))
            elif os.path.isdir(path):
                what = ("folder", st.st_mode & 0o777)
            else:
                with open(path, "rb") as f:
                    # the time of a file that was changed just now may be one off: see core/tree/take_file.c
                    what = ("file", st.st_mode & 0o777, st.st_mtime_ns // 2, f.read())
            found[os.path.relpath(path, root)] = what
    return found


def age(root, seconds=100):
    """So that no file was changed just now."""
    for folder, _, files in os.walk(os.fsencode(root)):
        for name in files:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                st = os.lstat(path)
                os.utime(path, ns=(st.st_mtime_ns, st.st_mtime_ns - seconds * 10**9))


def agents_of(node):
    """Process ids of the node's agents that run now."""
    return subprocess.run(["pgrep", "-f", "%s/.gpuprov/agent/gpuprov-agent.* tree serve" % node.home], capture_output=True,
                          text=True, check=False).stdout.split()


class Line:
    """The line to a node, which fails on request: per connection, in their order, (way, bytes, "cut" or "stall"): after
    so many bytes that way the connection is closed, or nothing passes any more. Later connections are whole."""

    def __init__(self, node, *plan):
        self.node, self.plan, self.stalled = node, list(plan), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for s in self.stalled:
            s.close()

    def _accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            fault = self.plan.pop(0) if self.plan else (None, 0, None)
            threading.Thread(target=self._pump, args=(client, fault), daemon=True).start()

    def _pump(self, client, fault):
        server = socket.create_connection(("127.0.0.1", self.node.port))
        ways = {client: ("up", server), server: ("down", client)}
        left = fault[1]
        while True:
            for ready in select.select([client, server], [], [])[0]:
                way, to = ways[ready]
                try:
                    piece = ready.recv(1 << 16)
                    to.sendall(piece)
                except OSError:
                    piece = b""
                left -= len(piece) if way == fault[0] else 0
                if not piece or (fault[0] and left <= 0):
                    if piece and fault[2] == "stall":
                        self.stalled += [client, server]
                        return
                    client.close()
                    server.close()
                    return


@pytest.fixture(name="node", scope="module")
def node_fixture(tmp_path_factory):
    with Node(tmp_path_factory.mktemp("node"), AGENT) as n:
        yield n


@pytest.fixture(name="home")
def home_fixture(node, tmp_path):
    """A folder of the test's own below the node's home."""
    path = node.home / tmp_path.name
    path.mkdir()
    return path
