# SPDX-License-Identifier: Apache-2.0
"""Bad days of any step: questions, two runs at once, lost connections, interrupted installations, and repositories that
are gone, silent, unsigned or changed."""
import os
import signal
import subprocess
import sys

import pytest

from repo import Repo
from test_bootstrap import lab_fixture, node_fixture, saw  # noqa: F401
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


@pytest.mark.parametrize("run,said", [
    ("printf 'Continue? [y/N] '; read answer; echo \"$answer\" > ~/answer\n",
     "step 'ask': ended with status 1; its last output: Continue? [y/N]  (steps have no terminal and get no answers)"),
    ("printf 'Really?' ; read answer </dev/tty\n", "step 'ask': ended with status "),
    ("sudo -k; sudo -u nobody true </dev/null && sudo rm /etc/sudoers.d/90-ops; sudo true\n",
     "sudo: a password is required"),
    ("python3 -c 'input(\"Proceed? \")'\n", "EOFError"),
], ids=["read", "tty", "sudo", "python"])
def test_a_step_that_asks(node, run, said):
    out = node.run(*node.step("ask", run), error=said)
    assert out.result["rc"] == -8 and not node.host.file("/home/ops/answer").exists()


def test_much_output_is_no_failure(node):
    out = node.run(*node.step("loud", "yes | head -c 100000000\n"))
    assert out.result["applied"] == 2 and len(out.log) < 1000
    assert int(node.host.sh("du -sk /home/ops/.gpuprov/nodes").stdout.split()[0]) < 2000


def test_two_runs_at_once(node):
    """Both follow one run of each step, and both end well."""
    options = ["--package", "gp-one", *node.step("s", "echo x >> ~/runs; until [ -e /go ]; do sleep .1; done\n")]
    other = node.popen(*options)
    wait_for(lambda: node.host.file("/home/ops/runs").exists(), 60)

    def go(lines):
        saw(lines, '"step":"s"')
        node.host.put("/go", "")
    out = node.run(*options, during=go)
    said, log = other.communicate(timeout=120)
    assert other.returncode == 0, (said, log)
    assert node.host.file("/home/ops/runs").read_text() == "x\n" and out.result["rc"] == 0


@pytest.mark.long
def test_two_runs_with_other_specs_at_once(node):
    """The second one does not kill the step of the first one, such as its package manager: it ends with the reason."""
    first = node.popen(*node.step("s", "touch ~/up; until [ -e /go ]; do sleep .1; done; echo x >>~/ran\n"))
    wait_for(lambda: node.host.file("/home/ops/up").exists(), 60)
    second = node.step("s", "echo y >>~/ran\n")
    node.run(*second, error="step 's': another gpuprov, with another spec, runs this step on the node now: wait until it "
             "has ended")
    node.host.put("/go", "")
    said, log = first.communicate(timeout=120)
    assert first.returncode == 0 and "killed" not in said, (said, log)
    node.run(*second)
    assert node.host.file("/home/ops/ran").read_text() == "x\ny\n"


def test_a_killed_run_and_an_edited_step(node):
    """Nobody follows the old step any more: it is ended, and the new one runs."""
    other = node.popen(*node.step("s", "touch ~/up; sleep 1000\n"))
    wait_for(lambda: node.host.file("/home/ops/up").exists(), 60)
    other.kill()
    other.communicate()
    node.run(*node.step("s", "echo new >~/new\n"))
    assert node.host.file("/home/ops/new").exists()
    assert node.host.sh("pgrep -f '[s]leep 1000'", check=False).stdout == ""


def test_ssh_lost_in_each_step(node):
    """The connection ends at the start of each step of the table, and again while it runs."""
    steps = ["packages", "s", "agent"]

    def cut(lines):
        for step in steps:
            wait_for(lambda step=step: any('"start"' in line and '"%s"' % step in line for line in lines), 60)
            node.host.drop_connections()
    out = node.run("--package", "gp-two", *node.step("s", "echo x >> ~/runs; sleep 1\n"), during=cut)
    assert out.result["applied"] == 3, out
    assert node.host.file("/home/ops/runs").read_text() == "x\n"
    assert "installed" in node.host.sh("dpkg -s gp-two").stdout
    assert sum("reconnects" in t for t in out.texts()) >= 2, out


def test_dpkg_that_was_killed_half_way(node):
    """A package is unpacked and not configured: it is finished first."""
    host = node.host
    host.sh("apt-get -q update; (apt-get -q -y install gp-slow >/dev/null 2>&1 &); "
            "until pgrep -f '[g]p-slow.postinst'; do sleep .1; done; pkill -KILL -x 'apt-get|dpkg'; "
            "pkill -KILL -f '[g]p-slow.postinst'; pkill -KILL -x sleep || true")
    assert "half-configured" in host.sh("dpkg -s gp-slow").stdout
    host.put("/go", "")
    out = node.run("--package", "gp-one")
    assert "finishes an interrupted installation" in out.texts("packages")
    for name in ("gp-slow", "gp-one"):
        assert "Status: install ok installed" in host.sh("dpkg -s " + name).stdout


@pytest.mark.long
def test_a_repository_that_is_unreachable(node):
    """apt-get reports success of the update then."""
    node.host.put("/etc/apt/sources.list.d/test.list", "deb [trusted=yes] http://10.77.0.1:9 ./\n")
    out = node.run("--package", "gp-one", error="apt-get reported: E: Unable to locate package gp-one (the update of "
                   "the package lists reported: W: Failed to fetch http://10.77.0.1:9/")
    assert "connect" in out.result["error"], out


def test_a_repository_that_is_silent(node):
    """It accepts the connection and sends nothing; the limit ends apt too."""
    silent = node.lab.popen([sys.executable, "-c", ("import socket,time\ns=socket.create_server(('10.77.0.1',8099))\n"
                             "keep=[]\nwhile True: keep.append(s.accept())")])
    try:
        node.run()
        node.host.put("/etc/apt/sources.list.d/test.list", "deb [trusted=yes] http://10.77.0.1:8099 ./\n")
        node.run_out("packages", "--package", "gp-one", error="step 'packages': did not finish in time and was killed")
        assert node.host.sh("pgrep -x apt-get", check=False).stdout == ""
    finally:
        os.kill(silent.pid, signal.SIGKILL)
        silent.wait()


DRIP = """
import http.server, os, sys, time
class Handler(http.server.SimpleHTTPRequestHandler):
    def copyfile(self, source, to):
        while part := source.read(2000 if self.path.endswith(".deb") else -1):
            to.write(part)
            to.flush()
            time.sleep(0.1)
    def log_message(self, *args):
        pass
os.chdir(sys.argv[1])
http.server.ThreadingHTTPServer(("10.77.0.1", 8098), Handler).serve_forever()
"""


@pytest.mark.long
def test_a_repository_that_is_slow(node, tmp_path):
    """It sends a little all the time, so that no timeout of apt ends it: its percentage is shown, and the limit ends it."""
    slow = Repo(tmp_path / "slow")
    slow.add("gp-drip")
    deb = next(slow.folder.glob("*.deb"))
    deb.unlink()
    deb.write_bytes(os.urandom(4_000_000))
    slow.entries = [slow.entries[0].split("Size:")[0] + "Size: 4000000\nSHA256: %s\n" % ("0" * 64)]
    (slow.folder / "Packages").write_text(slow.entries[0])
    (slow.folder / "Packages.gz").unlink()
    server = node.lab.popen([sys.executable, "-c", DRIP, str(slow.folder)])
    try:
        node.host.put("/etc/apt/sources.list.d/test.list", "deb [trusted=yes] http://10.77.0.1:8098 ./\n")
        for seconds in ("12", "60"):  # a busy machine may get to the download when most of the time is over
            out = node.run("--package", "gp-drip", "--deadline-s", seconds, error="step 'packages': did not finish in time")
            shown = [int(t.split("%")[0]) for t in out.texts("packages") if t.split("%")[0].isdigit()]
            if len(shown) >= 2:
                break
        assert "step 'packages': did not finish in time and was killed; its last progress: " in out.result["error"], out
        assert len(shown) >= 2 and shown == sorted(shown) and 0 < shown[-1] < 60, out
        assert "its last progress: %d%%: Retrieving file 1 of 1" % shown[-1] in out.result["error"], out
        assert node.host.sh("pgrep -x apt-get", check=False).stdout == ""
    finally:
        os.kill(server.pid, signal.SIGKILL)
        server.wait()


def test_a_package_that_is_gone_from_its_repository(node):
    """The index lists it, and the file is not there, also after the update."""
    node.lab.repo.add("gp-gone")
    next(node.lab.repo.folder.glob("gp-gone_*.deb")).unlink()
    node.run("--package", "gp-gone", error="step 'packages': apt-get reported: E: Failed to fetch")
    node.run("--package", "gp-gone", error="404")


def test_a_package_that_was_changed(node):
    """The file is not what the index says of it."""
    node.lab.repo.add("gp-changed", size=10)
    deb = next(node.lab.repo.folder.glob("gp-changed_*.deb"))
    deb.write_bytes(deb.read_bytes()[:-1] + b"#")
    node.run("--package", "gp-changed", error="step 'packages': apt-get reported: E: Failed to fetch")
    assert node.host.sh("dpkg -s gp-changed", check=False).returncode != 0


def sign(folder, home):
    """Release and InRelease of a repository by a new key; its public half."""
    env = {**os.environ, "GNUPGHOME": str(home)}
    home.mkdir(mode=0o700)

    def run(*argv):
        return subprocess.run(argv, check=True, env=env, capture_output=True)
    run("gpg", "--batch", "--passphrase", "", "--quick-gen-key", "test@localhost", "ed25519", "sign")
    files = "".join(" %s %d %s\n" % (subprocess.run(["sha256sum", p], check=True, capture_output=True, text=True)
                                     .stdout.split()[0], p.stat().st_size, p.name)
                    for p in sorted(folder.glob("Packages*")))
    (folder / "Release").write_text("Origin: test\nDate: %s\nSHA256:\n%s" % (
        subprocess.run(["date", "-Ru"], check=True, capture_output=True, text=True).stdout.strip().replace("+0000", "UTC"),
        files))
    run("gpg", "--batch", "--yes", "--clearsign", "-o", str(folder / "InRelease"), str(folder / "Release"))
    key = run("gpg", "--armor", "--export").stdout.decode()
    run("gpgconf", "--kill", "all")
    return key


def test_a_repository_with_a_bad_signature(node, tmp_path):
    """Signed by another key, and by no key: nothing of it is installed."""
    repo = Repo(tmp_path / "signed")
    repo.add("gp-signed")
    good = sign(repo.folder, tmp_path / "g1")
    other = Repo(tmp_path / "other")
    other.add("x")
    bad = sign(other.folder, tmp_path / "g2")
    port = 8100 + node.lab.next
    repo.serve(node.lab, "10.77.0.1", port)
    try:
        source = "deb [signed-by=/etc/apt/keyrings/test.asc] http://10.77.0.1:%d ./\n" % port
        node.host.sh("mkdir -p /etc/apt/keyrings")
        node.host.put("/etc/apt/sources.list.d/test.list", source)
        node.host.put("/etc/apt/keyrings/test.asc", bad)
        out = node.run("--package", "gp-signed", error="step 'packages': apt-get update reported: ")
        assert "signed" in out.result["error"] or "GPG error" in out.result["error"], out
        node.host.put("/etc/apt/keyrings/test.asc", good)
        assert node.run("--package", "gp-signed").result["applied"] == 2
    finally:
        repo.close()
