# SPDX-License-Identifier: Apache-2.0
"""tree_up_many: a folder to several nodes, which give it to each other; peers that fail, lie, or are strangers."""
import json
import os
import signal
import socket
import subprocess

import pytest

from transfer_lab import AGENT, DRIVER, Node, age, agents_of, describe
from waiting import wait_for

MIB = 1 << 20


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    first = Node(tmp_path_factory.mktemp("node0"), AGENT)
    made = [first] + [Node(tmp_path_factory.mktemp("node%d" % i), AGENT, like=first) for i in range(1, 5)]
    for n in made:
        n.__enter__()
    yield made
    for n in made:
        n.__exit__()


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    (path / "sub").mkdir(parents=True)
    (path / "big").write_bytes(os.urandom(6 * MIB))
    for i in range(50):
        (path / "sub" / ("f%d" % i)).write_bytes(os.urandom(1000))
    (path / "link").symlink_to("big")
    (path / ".gpuprovignore").write_text("*.o\n")
    (path / "x.o").write_text("ignored")
    age(path)
    return path


def start(nodes, source, to, *words):
    ports = ",".join(str(n.port) for n in nodes)
    return subprocess.Popen([DRIVER, "many", nodes[0].key, nodes[0].host_key, ports, source, to, "ignore", *words],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def copy(nodes, source, to, *words, code=0):
    p = start(nodes, source, to, *words)
    out, err = p.communicate(timeout=300)
    assert p.returncode == code, (out, err)
    return json.loads(out), err


def want(source):
    return {k: v for k, v in describe(source).items() if k != b"x.o"}


def no_agent_is_left(nodes):
    wait_for(lambda: not any(agents_of(n) for n in nodes))


def test_nodes_give_it_to_each_other(nodes, source):
    (nodes[0].home / "w").mkdir()
    (nodes[0].home / "w" / "mine").write_text("only here")  # not in the list: stays on this node
    got, err = copy(nodes, source, "w")
    for n in nodes:
        there = describe(n.home / "w")
        there.pop(b"mine", None)
        assert there == want(source)
    assert [(n.home / "w" / "mine").exists() for n in nodes] == [True] + [False] * 4
    size = sum(v[3].__len__() for v in want(source).values() if v[0] == "file")
    assert got["bytes_sent"] == size and got["bytes_fetched"] == 4 * size and "warning" not in err
    no_agent_is_left(nodes)
    again, _ = copy(nodes, source, "w")
    assert again["bytes_sent"] == again["bytes_fetched"] == 0


def test_without_a_network_of_their_own(nodes, source):
    got, _ = copy(nodes[:3], source, "apart", "apart")
    assert all(describe(n.home / "apart") == want(source) for n in nodes[:3]) and got["bytes_fetched"] == 0


def test_one_file_goes_to_each(nodes, source):
    got, _ = copy(nodes[:3], source / "big", "one")
    assert all((n.home / "one").read_bytes() == (source / "big").read_bytes() for n in nodes[:3])
    assert got["bytes_fetched"] == 0


def test_a_node_that_cannot_be_reached_keeps_nobody_waiting(nodes, source):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        ports = ",".join(str(p) for p in [silent.getsockname()[1], nodes[1].port, nodes[2].port])
        p = subprocess.Popen([DRIVER, "many", nodes[0].key, nodes[0].host_key, ports, source, "reached", "ignore",
                              "reach=120000"], stdout=subprocess.PIPE, text=True)
        wait_for(lambda: all((n.home / "reached" / "sub" / "f9").exists() for n in nodes[1:3]))
        assert p.poll() is None  # it still waits for the first node
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=20)
    assert all(describe(n.home / "reached") == want(source) for n in nodes[1:3])


@pytest.fixture
def agent_of(nodes):
    """Replaces a node's agent by a script that may start the real one as "$0.real"."""
    changed = []

    def change(node, text):
        node.agent.rename(node.agent.with_name("gpuprov-agent.real"))
        node.agent.write_text("#!/bin/sh\n" + text)
        node.agent.chmod(0o700)
        changed.append(node)
    yield change
    for n in changed:
        n.agent.with_name("gpuprov-agent.real").rename(n.agent)


def test_a_peer_that_fails_is_replaced_by_this_machine(nodes, source, agent_of):
    # the second command of node 0, which shares, dies soon after it began to listen
    flag = nodes[0].home / "second"
    agent_of(nodes[0], 'if [ -e %s ]; then "$0.real" "$@" & sleep 0.1; kill -9 $!; exit 1; fi\n'
                       'touch %s; exec "$0.real" "$@"\n' % (flag, flag))
    _, err = copy(nodes[:3], source, "failing")
    assert all(describe(n.home / "failing") == want(source) for n in nodes[:3])
    assert "does not give the folder to other nodes" in err
    no_agent_is_left(nodes)


def test_what_a_peer_changed_is_found_by_its_hash(nodes, source, agent_of):
    # node 0 changes a file, with its old size and time, before it shares the folder
    flag, w = nodes[0].home / "shares", nodes[0].home / "lying"
    agent_of(nodes[0], 'if [ -e %s ]; then touch -r %s/big %s/t; printf evil | dd of=%s/big conv=notrunc 2>/dev/null; '
                       'touch -r %s/t %s/big; fi\ntouch %s; exec "$0.real" "$@"\n' % (flag, w, w, w, w, w, flag))
    copy(nodes[:2], source, "lying")
    assert (w / "big").read_bytes()[:4] == b"evil"
    assert describe(nodes[1].home / "lying") == want(source)


# In place of an agent: shares one file more than gpuprov lists.
MORE = r"""
import os, struct, subprocess, sys
real, extra = sys.argv[1:3]
got, list_ends = b"", False
p = subprocess.Popen([real, "tree", "serve"], stdin=subprocess.PIPE)
def pass_on(b):
    p.stdin.write(b)
    p.stdin.flush()
def more():
    global got
    piece = os.read(0, 65536)
    if not piece:
        sys.exit(0)
    got += piece
while len(got) < 26:
    more()
shares = got[25] == 2
at = 16
while shares and not list_ends:
    while len(got) < at + 5 or len(got) < at + 5 + struct.unpack("<I", got[at + 1:at + 5])[0]:
        more()
    n = struct.unpack("<I", got[at + 1:at + 5])[0]
    if got[at] == 4:  # the end of the list
        count = struct.unpack("<I", got[at + 5:at + 9])[0] + 1
        entry = b"f\0" + struct.pack("<IQQqI", 0o644, 4, 4, 1000000000, 0) + struct.pack("<I", 3) + b"zzz"
        got = (got[:at] + b"\3" + struct.pack("<I", len(entry)) + entry + got[at:at + 5] + struct.pack("<I", count)
               + got[at + 9:])
        open(extra, "w").write("evil")
        open(real + ".shared", "w").write("x")
        list_ends = True
    at += 5 + n
while True:
    pass_on(got)
    got = b""
    more()
"""


def test_a_peer_gives_what_gpuprov_lists_and_nothing_else(nodes, source, agent_of):
    """Into a home folder: .ssh/authorized_keys of another node."""
    (nodes[0].home / "more.py").write_text(MORE)
    agent_of(nodes[0], 'exec python3 %s "$0.real" %s\n' % (nodes[0].home / "more.py", nodes[0].home / "exact" / "zzz"))
    _, err = copy(nodes[:2], source, "exact")
    assert nodes[0].agent.with_name("gpuprov-agent.real.shared").exists()
    assert (nodes[0].home / "exact" / "zzz").read_text() == "evil"
    assert describe(nodes[1].home / "exact") == want(source)
    assert "warning: 1: could not copy from t/0, copies from this machine: " in err and "another list than gpuprov's" in err


def test_a_stranger_gets_nothing(nodes, source, agent_of):
    """Without the token a connection to a node that shares ends after the nonces."""
    agent_of(nodes[1], 'until [ -e %s ]; do sleep 0.02; done; exec "$0.real" "$@"\n' % (nodes[1].home / "go"))
    p = start(nodes[:2], source, "closed")
    port = wait_for(lambda: listening(nodes[0]))
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(b"x" * 64)
        got = b""
        while piece := s.recv(4096):
            got += piece
        assert len(got) == 32
    (nodes[1].home / "go").write_text("")
    out, err = p.communicate(timeout=120)
    assert p.returncode == 0 and describe(nodes[1].home / "closed") == want(source), (out, err)


def listening(node):
    """The port at which an agent of the node listens."""
    pids = agents_of(node)
    inodes = set()
    for pid in pids:
        try:
            links = [os.readlink("/proc/%s/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%s/fd" % pid)]
        except OSError:
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    with open("/proc/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in f.readlines()[1:]]
    return next((int(r[1].split(":")[1], 16) for r in rows if r[3] == "0A" and r[9] in inodes), None)


def test_cancelled(nodes, source, agent_of):
    agent_of(nodes[1], "exec cat >/dev/null\n")  # never answers
    p = start(nodes[:3], source, "cancelled")
    wait_for((nodes[2].home / "cancelled" / "big").exists)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=20)
    assert p.returncode == 1 and "cancelled" in out, (out, err)
    no_agent_is_left(nodes)
