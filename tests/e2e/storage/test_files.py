# SPDX-License-Identifier: Apache-2.0
"""bootstrap.files on a real sshd: sent when they differ, placed with mode and owner, and nothing the second time."""
import os
import subprocess

import lab as labs
import pytest
from storage_node import StorageNode
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("lab")
    with labs.Lab(tmp) as made:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp / "key"], check=True)
        made.key = tmp / "key"
        made.next = 2
        yield made


@pytest.fixture(name="node")
def node_fixture(lab, tmp_path):
    lab.next += 1
    host = lab.add("light", "f%d" % lab.next, "10.77.2.%d" % lab.next, start=False)
    host.authorize((lab.key.parent / "key.pub").read_text())
    host.start()
    host.wait_ssh()
    yield StorageNode(lab, host, tmp_path)
    host.remove()


def modes(node, *paths):
    return node.host.sh("stat -c '%a %U:%G' " + " ".join(paths)).stdout.splitlines()


def test_first_run_places_second_does_nothing(node):
    (node.tmp / "app.conf").write_text("a = 1\n")
    (node.tmp / "run me.sh").write_text("#!/bin/sh\n")
    (node.tmp / "run me.sh").chmod(0o700)
    code = node.tmp / "code"
    (code / "deep er" / "est").mkdir(parents=True)
    (code / "one.py").write_text("print(1)\n")
    strange = ["-rf", " $(touch it)`touch it`", "'\"*?[x] ", "a ", "\u00fc#%s"]
    for name in strange:
        (code / name).write_text(name)
    (code / "deep er" / "est" / "empty").write_text("")
    (code / "deep er" / "big").write_bytes(os.urandom(3_000_000))
    boot = {"files": [{"from": "app.conf", "to": "/etc/app/app.conf", "owner": "root:root", "mode": "0640"},
                      {"from": "run me.sh", "to": "/home/ops/bin/run"},
                      {"from": "code/", "to": "/home/ops/code"}]}
    assert "files" in node.run(boot).done()
    assert modes(node, "/etc/app/app.conf", "/etc/app", "/home/ops/bin/run", "/home/ops/bin",
                 "/home/ops/code/one.py", "'/home/ops/code/deep er/est'") == \
        ["640 root:root", "755 root:root", "755 ops:ops", "755 ops:ops", "644 ops:ops", "755 ops:ops"]
    big = "home/ops/code/deep er/big"
    assert node.host.file(big).read_bytes() == (code / "deep er" / "big").read_bytes()
    assert node.host.file("home/ops/code/deep er/est/empty").read_bytes() == b""
    assert [node.host.file("home/ops/code/" + name).read_text() for name in strange] == strange
    before = node.host.sh("find /home/ops/code /etc/app -printf '%p %i %T@\\n' | sort").stdout
    again = node.run(boot)
    assert again.result["applied"] == 0 and [e["event"] for e in again.events] == ["result"], again
    assert before == node.host.sh("find /home/ops/code /etc/app -printf '%p %i %T@\\n' | sort").stdout
    assert node.host.sh("find / -xdev -name '.gpuprov.*' -o -path '*/.gpuprov/files/*'").stdout == ""


@pytest.mark.long
def test_only_what_differs_is_sent(node):
    code = node.tmp / "code"
    code.mkdir()
    for name in ("a", "b", "c"):
        (code / name).write_text(name)
    boot = {"files": [{"from": "code", "to": "/opt/code"}]}
    node.run(boot)
    inode = node.host.file("/opt/code/a").stat().st_ino
    (code / "b").write_text("B")  # changed here
    out = node.run(boot)
    assert "sends files 1 to 1 of 1 (0.0 MB)" in out.texts("files"), out
    assert node.host.file("/opt/code/b").read_text() == "B" and node.host.file("/opt/code/a").stat().st_ino == inode
    node.host.sh("echo x >/opt/code/c; chmod 600 /opt/code/a; chown root /opt/code/b")  # changed there
    assert "sends files 1 to 3 of 3 (0.0 MB)" in node.run(boot).texts("files")
    assert modes(node, "/opt/code/a", "/opt/code/b") == ["644 ops:ops"] * 2
    assert node.run(boot).result["applied"] == 0
    node.host.sh("echo mine >/opt/code/own")  # not ours: stays
    assert node.run(boot).result["applied"] == 0 and node.host.file("/opt/code/own").exists()


@pytest.mark.long
def test_many_files_in_one_copy(node):
    code = node.tmp / "many"
    code.mkdir()
    for n in range(400):
        (code / ("f%04d" % n)).write_text("content of %d\n" % n)
    boot = {"files": [{"from": "many", "to": "/opt/many"}]}
    assert "sends files 1 to 400 of 400 (0.0 MB)" in node.run(boot).texts("files")
    assert node.host.file("/opt/many/f0399").read_text() == "content of 399\n"
    for n in range(400, 2001):
        (code / ("f%04d" % n)).write_text("")
    node.run(boot, error="exceeds the limit of 2000 files and 256 MiB in all: use bootstrap.mounts")


def test_a_link_on_the_node_is_replaced_not_followed(node):
    (node.tmp / "f").write_text("new")
    node.host.sh("echo old >/opt/old; ln -s /opt/old /opt/f")
    boot = {"files": [{"from": "f", "to": "/opt/f"}]}
    node.run(boot)
    assert node.host.file("/opt/old").read_text() == "old\n" and node.host.sh("cat /opt/f").stdout == "new"
    assert not node.host.file("/opt/f").is_symlink()


def test_what_is_in_the_way(node):
    (node.tmp / "f").write_text("new")
    boot = {"files": [{"from": "f", "to": "/opt/f/g"}]}
    node.host.sh("mkdir -p /opt/f/g")
    node.run(boot, error="test/1: step 'files': '/opt/f/g' is a folder on the node: remove it, or correct 'to'")
    node.host.sh("rm -r /opt/f; echo file >/opt/f")
    node.run(boot, error="step 'files': cannot create the folder /opt/f")
    boot["files"][0].update(to="/opt/h", owner="nobody_here")
    node.run(boot, error="cannot give /opt/h to nobody_here:")
    assert not node.host.file("/opt/h").exists()


def test_a_full_disk(node):
    (node.tmp / "f").write_bytes(os.urandom(3 << 20))
    node.host.sh("mkdir /small; mount -t tmpfs -o size=1m small /small")
    node.run({"files": [{"from": "f", "to": "/small/f"}]}, error="cannot write /small/f")
    assert node.host.sh("ls -A /small").stdout == ""


def test_a_user_without_sudo_writes_his_own(node):
    node.host.sh("rm /etc/sudoers.d/90-ops")
    (node.tmp / "f").write_text("new")
    boot = {"files": [{"from": "f", "to": "/home/ops/x/f"}]}
    node.run(boot)
    assert modes(node, "/home/ops/x/f") == ["644 ops:ops"] and node.run(boot).result["applied"] == 0
    node.run({"files": [{"from": "f", "to": "/etc/f"}]}, error="step 'files': cannot write /etc/f")


def test_a_secret_file_is_open_at_no_moment(node):
    """Its content is in no argument and in no file that others read, also while it is on its way."""
    (node.tmp / "key").write_text("sEcReTvAlUe\n")
    node.host.put("/pattern", "sEcReTvAlUe\n")
    node.host.put("/look.sh", "grep -rlsf /pattern /home /opt /tmp /var/tmp; cat /proc/[0-9]*/cmdline 2>/dev/null | "
                  "tr '\\0' ' ' | grep -of /pattern")
    node.host.put("/watch.sh", "while [ ! -e /stop ]; do su nobody -s /bin/sh /look.sh >>/found; echo >/round; done")
    node.host.sh("setsid sh /watch.sh </dev/null >/dev/null 2>&1 &")
    out = node.run({"files": [{"from": "key", "to": "/opt/key", "mode": "0600", "owner": "root:root"}]})
    node.host.sh("rm -f /round; until [ -e /round ]; do sleep .1; done; touch /stop")
    assert node.host.file("/found").read_text() == "" and "sEcReT" not in repr(out)
    assert node.host.file("/opt/key").read_text() == "sEcReTvAlUe\n" and modes(node, "/opt/key") == ["600 root:root"]


def test_the_owner_of_a_folder_gets_no_other_file(node):
    """A user swaps the new file for a link while root places it: nothing but that link is his."""
    (node.tmp / "f").write_text("for alice")
    node.host.sh("useradd -m alice; echo secret >/etc/victim; chmod 600 /etc/victim")
    node.host.put("/swap.sh", "cd /home/alice && for f in .gpuprov.*; do [ -L $f ] || { mv $f aside; ln -s /etc/victim $f; }; done")
    for tool in ("chown", "chmod"):
        node.host.put("/usr/local/bin/" + tool, "#!/bin/sh\nsu alice -s /bin/sh /swap.sh\nexec /usr/bin/%s \"$@\"\n" % tool,
                      0o755)
    node.host.sh("ln -s /usr/local/bin/chown /usr/local/bin/chmod /usr/local/sbin/")
    node.run({"files": [{"from": "f", "to": "/home/alice/f", "owner": "alice", "mode": "0644"}]}, error="step 'files': ")
    assert modes(node, "/etc/victim") == ["600 root:root"]
    assert node.host.file("/etc/victim").read_text() == "secret\n"


def test_names_with_blanks_at_their_end(node):
    (node.tmp / "d").mkdir()
    (node.tmp / "d" / "two  blanks  ").write_text("x")
    boot = {"files": [{"from": "d", "to": "/opt/d"}]}
    node.run(boot)
    assert [f.name for f in node.host.file("/opt/d").iterdir()] == ["two  blanks  "]
    assert node.run(boot).result["applied"] == 0


def test_a_connection_lost_on_the_way(node):
    (node.tmp / "big").write_bytes(os.urandom(20_000_000))

    def cut(lines):
        wait_for(lambda: any("sends files" in line for line in lines), 60)
        node.host.drop_connections()
    out = node.run({"files": [{"from": "big", "to": "/opt/big"}]}, during=cut)
    assert node.host.file("/opt/big").read_bytes() == (node.tmp / "big").read_bytes(), out


SLOW_SUMS = """#!/bin/sh
if [ "$1" = -c ]; then while [ -e /hold ]; do sleep 0.1; done; fi
exec /usr/bin/sha256sum "$@"
"""


def test_what_a_killed_run_left_beside_the_places(node):
    """The next run removes it, and nothing that another run still writes."""
    host, code = node.host, node.tmp / "code"
    (code / "deep er").mkdir(parents=True)
    for name in ("a", "deep er/b"):
        (code / name).write_text(name)
    boot = {"files": [{"from": "code", "to": "/opt/code"}]}
    left = "find /opt/code -name '.gpuprov.*' | sort"
    host.put("/usr/local/bin/sha256sum", SLOW_SUMS, 0o755)
    host.put("/hold", "")

    def kill(lines):
        wait_for(lambda: len(host.sh(left, check=False).stdout.splitlines()) == 2, 60, lambda: str(lines))
        host.sh("pkill -KILL -f '[e]ach rename'; rm /hold")
    node.run(boot, error="step 'files': ", during=kill)
    first, second = host.sh(left).stdout.splitlines()
    assert second.startswith("/opt/code/deep er/"), (first, second)
    pid = host.sh("sleep 1000 </dev/null >/dev/null 2>&1 & echo $!").stdout.strip()
    _, _, own, booted, _, _ = first.split("/")[-1].split(".")
    others = ["/opt/code/.gpuprov.%s.%s.%s.1" % row for row in
              [(own, booted, pid), ("0" * 8, booted, "999999")]]
    host.sh("touch /opt/code/.gpuprov.%s.11111111.%s.1 %s" % (own, pid, " ".join(others)))  # before the last boot
    node.run(boot)
    assert host.sh(left).stdout.splitlines() == sorted(others)
    assert host.sh("cat /opt/code/a '/opt/code/deep er/b'").stdout == "adeep er/b"
