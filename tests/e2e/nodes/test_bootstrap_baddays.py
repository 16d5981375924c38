# SPDX-License-Identifier: Apache-2.0
"""Nodes that are odd or unwell: bootstrap works on them all the same, or says in one line why not."""
import hashlib
import json

import pytest

from test_bootstrap import saw
from test_bootstrap import lab_fixture, node_fixture  # noqa: F401
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


def step_and_package(node):  # pylint: disable=redefined-outer-name
    """The usual: a package and a step. The second run does nothing."""
    options = ["--package", "gp-one", *node.step("s", "echo ran; cat <<X >> ~/runs\nx\nX\n")]
    out = node.run(*options)
    assert out.result["applied"] == 3 and out.result["root"], out
    assert node.run(*options).result["applied"] == 0
    assert node.host.file("/home/ops/runs").read_text() == "x\n"
    return out


def test_a_full_tmp(node):
    node.host.sh("mount -t tmpfs -o size=4k full /tmp; head -c 9999 /dev/zero > /tmp/big; ! echo x > /tmp/more")
    step_and_package(node)


def test_a_tmp_where_nothing_runs_and_nobody_writes(node):
    node.host.sh("mount -t tmpfs -o noexec,ro,mode=755 own /tmp")
    step_and_package(node)


def test_no_gzip(node):
    node.host.sh("rm /usr/bin/gzip /usr/bin/gunzip")
    step_and_package(node)


@pytest.mark.parametrize("tool", ["sha256sum", "setsid"])
def test_a_tool_is_missing(node, tool):
    node.host.sh("rm /usr/bin/" + tool)
    node.run(error="test/1: probing the node: it has no '%s', which gpuprov requires: install it" % tool)


@pytest.mark.parametrize("value", [
    "it's a \"quoted\" $HOME `touch /tmp/pwned` $(touch /tmp/pwned) \\ back\\slash \\n",
    "-----BEGIN KEY-----\nfirst line of it\n$second 'line'\n-----END KEY-----",
    "%s%d\ttab and blanks  *  ~ # ! ;&|<>",
], ids=["quotes", "lines", "blanks"])
def test_secrets_of_any_characters(node, value):
    run = "printf '%s' \"$TOKEN\" | sha256sum | cut -c1-64 > ~/sum; sleep 0.5; printf '%s\\n' \"$TOKEN\"; exit 3\n"
    out = node.run(*node.step("s", run), *node.secret("TOKEN", value), error="step 's': ended with status 3")
    assert node.host.file("/home/ops/sum").read_text().strip() == hashlib.sha256(value.encode()).hexdigest()
    assert not node.host.file("/tmp/pwned").exists()
    for line in value.split("\n"):
        if line.startswith("-----"):
            continue  # of PEM, and no secret
        assert json.dumps(line)[1:-1] not in repr(out) and line not in out.result["error"], out


def test_names_of_any_characters(node):
    """A step's name and a package's are data, whatever they are (the spec's own rules are stricter)."""
    out = node.run(*node.step("it's $(touch /tmp/pwned) \"x\" ../..", "touch ~/ran\n"))
    assert out.result["applied"] == 2 and node.host.file("/home/ops/ran").exists()
    for name in ("$(touch /tmp/pwned)", "a'b\"c", "`touch /tmp/pwned`", "gp-one; touch /tmp/pwned"):
        node.run("--package", name, error="step 'packages': ")
    assert not node.host.file("/tmp/pwned").exists()


# As csh is: one line only, and "!" is not for commands.
CSH = """#!/usr/bin/python3
import os, sys
if sys.argv[1] != '-c' or '\\n' in sys.argv[2] or '!' in sys.argv[2]:
    sys.exit("Unmatched '''.")
print('Welcome to this machine', end='', flush=True)
os.execv('/bin/sh', ['sh', '-c', sys.argv[2]])
"""


def test_a_login_shell_that_is_not_sh(node):
    node.host.put("/usr/local/bin/oddsh", CSH, 0o755)
    node.host.sh("usermod -s /usr/local/bin/oddsh ops")
    step_and_package(node)


@pytest.mark.parametrize("shell,said", [("/bin/false", "status 1"), ("/usr/sbin/nologin", "status 1")])
def test_a_login_shell_that_lets_nobody_in(node, shell, said):
    node.host.sh("usermod -s %s ops" % shell)
    node.run(error="test/1: probing the node: its shell did not answer as a POSIX sh does: " + said)


def test_an_account_that_is_locked_out_by_its_command(node):
    """A forced command answers everything with its own words."""
    keys = node.host.file("/home/ops/.ssh/authorized_keys")
    keys.write_text('command="echo only rsync here >&2; exit 9" ' + keys.read_text())
    node.run(error="its shell did not answer as a POSIX sh does: only rsync here (status 9)")


def sshd_says(node, lines):  # pylint: disable=redefined-outer-name
    node.host.put("/etc/ssh/sshd_config.d/a.conf", lines)
    node.host.sh("kill -HUP 1")
    node.host.wait_ssh()


def test_an_sshd_that_allows_one_of_everything(node):
    node.host.put("/etc/hello", "Authorized use only.\n::error no\n")
    sshd_says(node, "MaxSessions 1\nMaxStartups 1\nMaxAuthTries 1\nBanner /etc/hello\n")

    def cut(lines):
        saw(lines, "begins")
        node.host.drop_connections()
        saw(lines, "reconnects")
        node.host.put("/go", "")
    step_and_package(node)
    node.run(*node.step("long", "echo begins; until [ -e /go ]; do sleep .1; done\n"), during=cut)


def test_what_looks_at_the_node_is_killed(node):
    """As a shutdown does, which ends what runs before it ends connections: asked again, but not for ever."""
    killer = "pkill -TERM -x -f 'sh -s'; sleep 5; "
    check = "test -e ~/ready && exit; test -e ~/killed || { touch ~/killed; %s }; false" % killer
    out = node.run(*node.step("s", "echo x >> ~/runs; touch ~/ready\n", check))
    assert out.result["applied"] == 2 and node.host.file("/home/ops/runs").read_text() == "x\n"
    node.run(*node.step("s", "true\n", killer + "false"), error="was killed by signal TERM on the node")


@pytest.mark.long
def test_what_follows_a_step_is_killed(node):
    run = "echo begins; echo x >> ~/runs; until [ -e ~/go ]; do sleep .1; done\n"

    def kill(lines):
        saw(lines, "begins")
        for n in range(6):  # more often than a row of them may be
            wait_for(lambda: node.host.sh("pkill -TERM -x -f 'sh -s'", check=False).returncode == 0, 60)
            wait_for(lambda n=n: sum("reconnects" in line for line in lines) > n, 60)
        node.host.put("/home/ops/go", "", uid=1000)
    node.run(*node.step("s", run), during=kill)
    assert node.host.file("/home/ops/runs").read_text() == "x\n"


def test_a_home_that_is_read_only(node):
    node.host.sh("mount --bind /home/ops /home/ops; mount -o remount,ro,bind /home/ops")
    node.run(*node.step("s", "true\n"), error="step 's': cannot make /home/ops/.gpuprov/nodes/")
    out = node.run(*node.step("s", "true\n"), error="Read-only file system")
    assert out.result["rc"] == -8


def test_start_up_files_that_fail_loudly(node):
    """Their words on stderr are nobody's reason."""
    node.host.put("/home/ops/.bashrc", "echo 'nvm is not compatible with this' >&2\n", 0o644, 1000)
    node.host.put("/home/ops/.gpuprov", "in the way\n", 0o644, 1000)
    node.run(error="step 'agent': mkdir: ")
    node.run(*node.step("s", "true\n"), error=": Not a directory")
