# SPDX-License-Identifier: Apache-2.0
"""The packages step of bootstrap/ where dnf and rpm manage the packages: hosts of tests/hosts/base_dnf.sh
and a repository of rpmbuild's. What dnf 5 and yum 3 say differently is said by a stand-in."""
import subprocess

import lab as labs
import pytest
from repo import RpmRepo
from test_bootstrap import node_fixture  # noqa: F401
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
# holds a lock of FILE until /release is there
HOLD = ("import fcntl,os,sys,time\nf=open(sys.argv[1],'w')\n"
        "if sys.argv[1].endswith('.pid'): print(os.getpid(),end='',file=f,flush=True)\n"
        "else: fcntl.lockf(f,fcntl.LOCK_EX)\n"
        "open('/held','w').close()\n"
        "while not os.path.exists('/release'): time.sleep(.05)\nos.remove(sys.argv[1])\n")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("lab")
    with labs.Lab(tmp, base_script="base_dnf.sh") as made:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp / "key"], check=True)
        made.key = tmp / "key"
        made.repo = RpmRepo(tmp / "repo")
        made.repo.add("gp-one")
        made.repo.add("gp-two", version="2.1", tags="Requires: gp-one\nProvides: gp-virtual")
        made.repo.add("gp-moved")
        made.repo.add("gp-orphan", tags="Requires: gp-nowhere")
        made.repo.add("gp-broken", scripts="%pre -p <lua>\nerror('broken by design')")
        builder = made.add("light", "builder", "10.77.1.2")
        builder.wait_ssh()
        made.repo.build(builder)
        builder.remove()
        made.repo.serve(made, "10.77.0.1")
        made.next = 2
        yield made
        made.repo.close()


def test_first_run_installs_second_does_nothing(node):
    options = ["--package", "gp-two", "--package", "gp-virtual"]
    out = node.run(*options)
    assert out.result["applied"] == 2  # packages, agent
    assert "installs gp-two gp-virtual" in out.texts("packages")
    assert node.host.sh("rpm -q gp-one gp-two").stdout == "gp-one-1.0-1.noarch\ngp-two-2.1-1.noarch\n"
    look = "find /home/ops /var/lib/rpm /var/lib/dnf /var/cache/dnf | sort | xargs ls -ld --full-time"
    before = node.host.sh(look).stdout
    again = node.run(*options)
    assert again.result["applied"] == 0
    assert [e["event"] for e in again.events] == ["result"]
    assert node.host.sh(look).stdout == before
    # by version, as rpm writes it and as apt does
    assert node.run("--package", "gp-two-2.1-1", "--package", "gp-one=1.0").result["applied"] == 0
    node.host.sh("rpm -e gp-two gp-one")
    assert node.run("--package", "gp-two=2.1-1", "--package", "gp-one-1.0").result["applied"] == 1
    node.run("--package", "gp-two=9", error="step 'packages': dnf reported: Error: Unable to find a match: gp-two-9")


def test_packages_that_cannot_be_installed(node):
    node.run("--package", "gp-one", "--package", "gp-none",
             error="test/1: step 'packages': dnf reported: Error: Unable to find a match: gp-none")
    assert node.host.sh("rpm -q gp-one", check=False).returncode != 0
    node.run("--package", "gp-orphan", error="dnf reported: Error: Problem: conflicting requests - nothing provides "
             "gp-nowhere needed by gp-orphan-1.0-1.noarch")
    node.run("--package", "gp-broken", error="dnf reported: Error in PREIN scriptlet in rpm package gp-broken")


def test_repository_down(node):
    down = "baseurl=http://10.77.0.1:8081"
    node.host.sh("sed -i 's|^baseurl=.*|%s|' /etc/yum.repos.d/test.repo" % down)
    # skipped when unavailable, as Fedora has it
    node.run("--package", "gp-one", error="step 'packages': dnf reported: Error: Unable to find a match: gp-one "
             "(Curl error (7): Couldn't connect to server for http://10.77.0.1:8081/repodata/repomd.xml)")
    node.host.sh("echo skip_if_unavailable=0 >>/etc/yum.repos.d/test.repo")
    node.run("--package", "gp-one", error="step 'packages': dnf reported: Error: Failed to download metadata for repo "
             "'test': Cannot download repomd.xml: Cannot download repodata/repomd.xml: All mirrors were tried "
             "(Curl error (7): Couldn't connect to server for http://10.77.0.1:8081/repodata/repomd.xml)")


def test_a_list_that_is_old(node):
    """The image brought a list with a version that the repository has no more."""
    repo = node.lab.repo
    node.host.sh("dnf -q makecache")
    (repo.folder / "noarch/gp-moved-1.0-1.noarch.rpm").unlink()
    repo.add("gp-moved", version="1.1")
    repo.build(node.host)
    out = node.run("--package", "gp-moved")
    assert "updates the package lists" in out.texts("packages")
    assert node.host.sh("rpm -q gp-moved").stdout == "gp-moved-1.1-1.noarch\n"


@pytest.mark.parametrize("lock", ["/var/cache/dnf/metadata_lock.pid", "/var/lib/rpm/.rpm.lock"], ids=["dnf", "rpm"])
def test_lock_held(node, lock):
    node.host.put("/holder.py", HOLD)
    node.host.sh("mkdir -p /var/cache/dnf; setsid python3 /holder.py %s </dev/null >/dev/null 2>&1 &" % lock)
    wait_for(lambda: node.host.file("/held").exists(), 60)
    out = node.run("--package", "gp-one", during=node.release)
    assert out.result["applied"] == 2
    assert "dnf" not in lock or any("already locked by" in t for t in out.texts("packages")), out


def test_yum_and_words_of_others(node):
    """There is no dnf, but a yum; an apt-get and a dpkg that manage nothing. Locks in the words of dnf 5
    and of yum 3."""
    node.host.sh("mv /usr/bin/dnf /usr/bin/yum.real; mkdir -p /var/lib/dpkg; : >/var/lib/dpkg/status; "
                 "ln -s /bin/false /usr/bin/apt-get; ln -s /bin/false /usr/bin/dpkg-query")
    node.host.put("/usr/bin/yum", """#!/bin/sh
echo x >>/calls
case $(wc -l </calls) in
1) echo 'Running transaction'
   echo 'Transaction failed: Failed to obtain rpm transaction lock. Another transaction is in progress.' ;;
2) echo 'Existing lock /var/run/yum.pid: another copy is running as pid 1234.'
   echo 'Another app is currently holding the yum lock; exiting as configured by exit_on_lock' ;;
*) exec /usr/bin/yum.real "$@" ;;
esac
exit 1
""", 0o755)
    out = node.run("--package", "gp-one")
    assert out.result["applied"] == 2
    assert [t for t in out.texts("packages") if "waits" in t] == [
        "waits for another package manager: (0 s)",
        "waits for another package manager: running as pid 1234 (2 s)"]
    assert node.run("--package", "gp-one").result["applied"] == 0
    node.host.sh("rm /usr/bin/yum")
    node.run("--package", "gp-two", error="this system has neither apt-get nor dnf nor yum")
