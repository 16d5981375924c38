# SPDX-License-Identifier: Apache-2.0
"""What a local node can do to the machine that it is a clone of: its package proxy reaches other machines only, and no
call of its root reaches keys, kexec or sockets of the machine's kernel."""
import ast
import contextlib
import ctypes
import os
import platform
import secrets
import shlex
import socket
import subprocess
import threading

import pytest

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: walls
nodes: 1
offers: [{provider: local}]
limits: {ttl: 20m}
validate: {time: 1m, require: []}
"""


def sh(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


LISTENER = """
import socket
s = socket.create_server(("::", 443), family=socket.AF_INET6, dualstack_ipv6=True)
print("on", flush=True)
while True:
    c, _ = s.accept()
    c.sendall(%r + c.getsockname()[0].encode())
    c.close()
"""


class Machine:
    """A machine that is only a network: its addresses, and a listener at port 443 of all of them, also of later ones."""

    def __init__(self, stack, name):
        self.name = name
        sh("ip", "netns", "add", name)
        stack.callback(sh, "ip", "netns", "del", name)
        self.ip("link", "set", "lo", "up")
        code = LISTENER % (name + " ").encode()
        listener = subprocess.Popen(["ip", "netns", "exec", name, "python3", "-c", code], stdout=subprocess.PIPE, text=True)
        stack.callback(listener.wait)
        stack.callback(listener.kill)
        assert listener.stdout.readline() == "on\n"

    def ip(self, *words):
        return sh("ip", "-n", self.name, *words)

    def add(self, address, dev="lo"):
        self.ip("addr", "add", address, "dev", dev, *(["nodad"] if ":" in address else []))

    def answers(self, address):
        """What a program on the machine itself gets from the listener."""
        script = f"import socket; print(socket.create_connection(({address!r}, 443)).recv(100).decode())"
        return sh("ip", "netns", "exec", self.name, "python3", "-c", script).strip()

    def addresses(self):
        return sorted({word.split("/")[0] for line in self.ip("-o", "addr").splitlines()
                       for kind, word in zip(line.split(), line.split()[1:]) if kind in ("inet", "inet6")})

    def program(self, folder, program, hosts):
        """The program with this network and these names."""
        (folder / "hosts").write_text("".join(f"{a} {n}\n" for n, a in hosts.items()))
        wrapped = folder / "on-machine"
        wrapped.write_text(f"#!/bin/sh\nexec unshare -m sh -c 'mount --bind {folder}/hosts /etc/hosts; "
                           f"exec nsenter --net=/run/netns/{self.name} {program} \"$@\"' sh \"$@\"\n")
        wrapped.chmod(0o755)
        return wrapped


def tunnels(gpuprov, hosts):
    """host: what a node gets from the stack's proxy for CONNECT host:443, to the end."""
    script = f"""
import socket
for host in {hosts!r}:
    s = socket.create_connection(("10.91.0.1", 3128), timeout=60)
    s.sendall(b"CONNECT %s:443 HTTP/1.1\\r\\n\\r\\n" % host.encode())
    got = b""
    while part := s.recv(4096):
        got += part
    print(repr((host, got.decode("latin-1"))))
"""
    out = gpuprov("ssh", "walls/0", "--", f"python3 -c {shlex.quote(script)}").out
    return dict(ast.literal_eval(line) for line in out.splitlines())


def test_the_package_proxy_never_leads_to_this_machine(gpuprov, spec, tmp_path):
    """By none of its addresses, also those that it gets after the start, in any form and by any name."""
    mark = secrets.token_hex(3)
    late, late6 = "198.18.9.77", "fd00:77::9"
    names = {"localhost": "127.0.0.1", "v4.example": late, "v6.example": late6, "first.example": "198.18.203.1",
             "six.example": "fd00:203::1", "nat.example": "64:ff9b::" + late, "mapped.example": "::ffff:" + late,
             "six-to-four.example": "2002:c612:94d::1", "meta.example": "fd00:ec2::254", "azure.example": "168.63.129.16"}
    other = {"far.example": "198.18.203.2", "far6.example": "fd00:203::2"}
    with contextlib.ExitStack() as stack:
        here, far = Machine(stack, "gp-here-" + mark), Machine(stack, "gp-far-" + mark)
        here.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", far.name)
        for n, machine in enumerate((here, far), 1):
            machine.add(f"198.18.203.{n}/24", "eth0")
            machine.add(f"fd00:203::{n}/64", "eth0")
            machine.ip("link", "set", "eth0", "up")
        here.ip("route", "add", "default", "via", "198.18.203.2")
        plain, gpuprov.program = gpuprov.program, here.program(tmp_path, gpuprov.program, names | other)
        gpuprov("up", spec(SPEC), timeout=300)
        gpuprov.program = plain
        here.add(late + "/32")
        here.add(late6 + "/128")
        assert here.answers(late).startswith(here.name) and here.answers(late6).startswith(here.name)
        v4 = [a for a in here.addresses() if ":" not in a]
        assert late in v4 and "198.18.203.1" in v4
        near = [*v4, *names, "0.0.0.0", "0", "0x7f.1", "255.255.255.255", "198.18.203.255", "224.0.0.1", "169.254.169.254",
                "100.100.100.200", "168.63.129.16", socket.gethostname(), str(int.from_bytes(socket.inet_aton(late)))]
        got = tunnels(gpuprov, [*near, *other, "198.18.203.2"])
        reached = [host for host in near if not got[host].startswith("HTTP/1.1 502 ")]
        assert not reached, reached
        unsaid = [host for host in near if "is the machine itself, its link or a cloud's metadata" not in got[host]]
        assert unsaid in ([], [socket.gethostname()])  # a name that this network cannot look up
        for host in (*other, "198.18.203.2"):
            assert got[host].startswith("HTTP/1.1 200 Connected\r\n\r\n" + far.name), (host, got[host])
        gpuprov("down", "walls")


class Upstream:
    """A proxy of this machine: connects wherever it is sent, and keeps the heads."""

    def __init__(self, stack):
        self.heads = []
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        stack.callback(self.close)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                s, _ = self.sock.accept()
                self.heads.append(s.recv(4096).decode().split("\r\n")[0])
                s.sendall(b"HTTP/1.1 200 Connected\r\n\r\nupstream\n")
                s.close()

    def close(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def test_nor_does_the_machines_own_proxy_lead_there(gpuprov, spec):
    """Where the machine itself uses a proxy, that one is not sent to this machine either."""
    with contextlib.ExitStack() as stack:
        upstream = Upstream(stack)
        gpuprov("up", spec(SPEC), timeout=300, env={"https_proxy": f"http://127.0.0.1:{upstream.port}"})
        own = {word.split("/")[0] for line in sh("ip", "-o", "-4", "addr").splitlines()
               for kind, word in zip(line.split(), line.split()[1:]) if kind == "inet"}
        near = [*sorted(own), "localhost", "a.localhost", "169.254.169.254", "metadata.google.internal", "0x7f.1",
                socket.gethostname()]
        far = ["198.51.100.7", "no-such-name.example"]
        got = tunnels(gpuprov, [*near, *far])
        assert {host: got[host].split()[1] for host in near} == dict.fromkeys(near, "502")
        assert {host: got[host].split()[1] for host in far} == dict.fromkeys(far, "200")
        assert upstream.heads == [f"CONNECT {host}:443 HTTP/1.1" for host in far]
        gpuprov("down", "walls")


CALLS = {"x86_64": {"add_key": 248, "request_key": 249, "keyctl": 250, "kexec_load": 246, "kexec_file_load": 320,
                    "io_uring_setup": 425, "bpf": 321, "userfaultfd": 323, "open_by_handle_at": 304},
         "aarch64": {"add_key": 217, "request_key": 218, "keyctl": 219, "kexec_load": 104, "kexec_file_load": 294,
                     "io_uring_setup": 425, "bpf": 280, "userfaultfd": 282, "open_by_handle_at": 265}}
KEYCTL_UNLINK, USER_KEYRING = 9, -4

IN_NODE = """
import ctypes, errno, os, socket, subprocess
libc = ctypes.CDLL(None, use_errno=True)
calls, name, serial = %r, %r, %d
def call(nr, *args):
    r = libc.syscall(ctypes.c_long(nr), *args)
    return r if r >= 0 else errno.errorcode[ctypes.get_errno()]
text = ctypes.create_string_buffer(100)
print("search", call(calls["keyctl"], 10, -4, b"user", name.encode(), 0))
print("read", call(calls["keyctl"], 11, serial, text, 100), text.value)
print("request", call(calls["request_key"], b"user", name.encode(), None, 0))
for one, nr in calls.items():
    print(one, call(nr, 0, 0, 0, 0, 0))
for family in (40, 38, 31):
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
        print("family", family, "made")
    except OSError as e:
        print("family", family, errno.errorcode[e.errno])
print("inside", subprocess.run(["unshare", "-Ur", "true"]).returncode)
with open("/proc/self/status") as f:
    print([l.split()[1] for l in f if l.startswith("NoNewPrivs")])
"""


def test_a_node_has_no_part_in_the_kernels_keys(gpuprov, spec):
    libc, calls = ctypes.CDLL(None, use_errno=True), CALLS[platform.machine()]
    name, secret = "gpuprov-test-" + secrets.token_hex(6), b"disk-" + secrets.token_hex(6).encode()
    serial = libc.syscall(ctypes.c_long(calls["add_key"]), b"user", name.encode(), secret, len(secret), USER_KEYRING)
    if serial < 0:
        pytest.skip("this machine's kernel keeps no keys: " + os.strerror(ctypes.get_errno()))
    try:
        gpuprov("up", spec(SPEC), timeout=300)
        script = IN_NODE % (calls, name, serial)
        out = gpuprov("ssh", "walls/0", "--", f"python3 -c {shlex.quote(script)}").out
        assert secret.decode() not in out
        told = [line.split() for line in out.splitlines()]
        assert [t[:2] for t in told if t[0] in {"search", "read", "request", *calls}] == [
            [what, "ENOSYS"] for what in ["search", "read", "request", *calls]], out
        assert [t for t in told if t[0] == "family"] == [["family", str(f), "EAFNOSUPPORT"] for f in (40, 38, 31)], out
        # what programs of nodes use is there: namespaces of users, programs with the rights of their owner
        assert told[-2:] == [["inside", "0"], ["['0']"]], out
        # and the node still ends and begins by itself
        gpuprov("down", "walls")
    finally:
        libc.syscall(ctypes.c_long(calls["keyctl"]), KEYCTL_UNLINK, serial, USER_KEYRING, 0, 0)
