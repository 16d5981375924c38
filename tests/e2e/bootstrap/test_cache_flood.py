# SPDX-License-Identifier: Apache-2.0
"""bootstrap.cache: a node whose cache sends without end, or never ends. Its disk takes no more than the package lists
name. The functions of run/cache.sh run on this machine, with the real apt-helper and a dnf module of the test."""
import hashlib
import http.server
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

TEMPLATES = pathlib.Path(__file__).resolve().parents[3] / "templates" / "bootstrap"
SIZE, FLOOD = 200000, 40 << 20
SUM = hashlib.sha256(b"x" * SIZE).hexdigest()
# Each package of the transaction: hash, size and name, as dnf has them.
DNF = """
import os
class Package:
    downloadsize = %d
    def __init__(self, name):
        self.name = name
    def returnIdSum(self):
        return "sha256", "%s"
    def remote_location(self, schemes):
        return "http://repo.example/" + self.name + ".rpm"
    def localPkg(self):
        return os.path.join(os.environ["STORE"], self.name + ".rpm")
class Conf:
    installroot, substitutions = "/", type("S", (dict,), {"update_from_etc": lambda *a: None})()
    read = lambda *a: None
class Base:
    conf = Conf()
    def __init__(self):
        self.names = []
        self.transaction = type("T", (), {"install_set": self.names})
    read_all_repos = fill_sack = resolve = lambda *a: None
    def install(self, name):
        self.names.append(Package(name))
""" % (SIZE, SUM)
APT = """#!/bin/sh
for name in $NAMES; do
    printf "'http://repo.example/$name.deb' $name.deb %d SHA256:%s\\n"
done
""" % (SIZE, SUM)


class Handler(http.server.BaseHTTPRequestHandler):
    """40 MB whatever was asked for, of "gp-a" with that length in the head; of "slow" a byte now and then; of "good" what
    was asked for."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        slow, most = "slow" in self.path, SIZE if "good" in self.path else FLOOD
        self.send_response(200)
        if "gp-a" in self.path or most == SIZE:
            self.send_header("Content-Length", str(most))
        self.send_header("Connection", "close")
        self.end_headers()
        sent = 0
        try:
            while sent < most and not self.server.over.is_set():
                sent += self.wfile.write(b"x" * min(1 if slow else 1 << 16, most - sent))
                time.sleep(0.1 if slow else 0.002)
        except OSError:
            pass
        self.server.sent.append(sent)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.sent, made.over = [], threading.Event()
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.over.set()
        made.shutdown()
        thread.join()


@pytest.fixture
def step(server, tmp_path):
    """Runs a function of the script with these packages as a step of `limit` seconds does; what it printed."""
    store, programs = tmp_path / "store", tmp_path / "programs"
    store.mkdir()
    programs.mkdir()
    (tmp_path / "dnf.py").write_text(DNF)
    (programs / "apt-get").write_text(APT)
    (programs / "apt-get").chmod(0o755)
    (programs / "python3").symlink_to(sys.executable)

    def run(function, *packages, limit=60, shell="sh"):
        script = (TEMPLATES / "run" / "lib.sh").read_text() + (TEMPLATES / "run" / "cache.sh").read_text()
        script = script.replace("/var/cache/apt/archives", str(store)).replace("/usr/libexec/platform-python", "nothing")
        script += "\nroot() { \"$@\"; }\nCACHE=http://127.0.0.1:%d BUDGET=%d\n%s %s\n" % (
            server.server_port, limit, function, " ".join(packages))
        env = {**os.environ, "PATH": "%s:%s" % (programs, os.environ["PATH"]), "PYTHONPATH": str(tmp_path),
               "STORE": str(store), "HOME": str(tmp_path), "NAMES": " ".join(packages)}
        done = subprocess.run([*shell.split(), "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True,
                              timeout=90)
        assert done.returncode == 0, done
        return done.stdout, sorted(str(path.relative_to(store)) for path in store.rglob("*"))
    return run


def most(server, count):
    """The most bytes that a request took; some are in buffers of the kernel."""
    assert len(server.sent) == count, server.sent
    return max(server.sent)


@pytest.mark.parametrize("function, end", [("from_cache_apt", "deb"), ("from_cache_dnf", "rpm")])
def test_what_was_named_is_taken(step, function, end):
    if end == "deb" and not os.path.exists("/usr/lib/apt/apt-helper"):
        pytest.skip("this machine has no apt-helper")
    out, left = step(function, "gp-good", "gp-b-good")
    assert "::warn" not in out and left == ["gp-b-good." + end, "gp-good." + end], (out, left)


def test_dnf_takes_no_more_than_was_named(step, server):
    out, left = step("from_cache_dnf", "gp-a", "gp-b")
    assert left == [] and most(server, 2) < 10 << 20, out
    assert "::warn fetches 2 of 2 packages directly: " in out and "it sends more than the package lists name" in out, out


def test_dnf_leaves_no_part_when_it_is_killed(step):
    out, left = step("from_cache_dnf", "slow", limit=6)
    assert "::warn fetches packages directly: the package cache was not used: it is too slow\n" in out, out
    assert left == []


@pytest.mark.parametrize("shell", ["sh", "bash --posix"])
def test_apt_takes_no_more_than_was_named(step, server, shell):
    if not os.path.exists("/usr/lib/apt/apt-helper"):
        pytest.skip("this machine has no apt-helper")
    out, left = step("from_cache_apt", "gp-a", "gp-b", shell=shell)
    assert left == [] and most(server, 2) < 10 << 20, out
    assert "::warn fetches 2 of 2 packages directly: " in out and "it sends more than the package lists name" in out, out
