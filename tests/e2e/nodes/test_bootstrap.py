# SPDX-License-Identifier: Apache-2.0
"""bootstrap/ on a real sshd and a real apt: what a first run does, that a second does nothing, and
every bad day in between. The test program bootstrap_driver calls the library; hosts are tests/hosts."""
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import lab as labs
import pytest
from repo import Repo
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
DRIVER = pathlib.Path(os.environ.get("B", ROOT / "build")) / "tests" / "drivers" / "bootstrap_driver"


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("lab")
    with labs.Lab(tmp) as made:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp / "key"], check=True)
        made.key = tmp / "key"
        made.repo = Repo(tmp / "repo")
        made.repo.add("gp-one")
        made.repo.add("gp-two", depends="gp-one", version="2.1-1")
        made.repo.add("gp-slow", postinst="[ -e /go ] || sleep 1000\n")
        made.repo.add("gp-broken", postinst="echo broken by design >&2; exit 3\n")
        made.repo.serve(made, "10.77.0.1")
        made.next = 2
        yield made
        made.repo.close()


class Outcome:
    def __init__(self, lines, log):
        self.events = [json.loads(line) for line in lines if line.startswith("{")]
        self.log = log
        last = self.events[-1] if self.events else {}
        self.result = last if last.get("event") == "result" else None

    def texts(self, step=None):
        return [e["text"] for e in self.events if "text" in e and step in (None, e["step"])]

    def __repr__(self):
        return "\n".join(map(json.dumps, self.events)) + "\n" + self.log


class Node:
    def __init__(self, lab, host, tmp):
        self.lab, self.host, self.tmp, self.n = lab, host, tmp, 0

    def text(self, content):
        self.n += 1
        path = self.tmp / ("f%d" % self.n)
        path.write_text(content)
        return path

    def step(self, name, run, check=None):
        return ["--step", "%s:%s:%s" % (name, self.text(check) if check else "-", self.text(run))]

    def secret(self, env, value):
        return ["--secret", "%s:%s" % (env, self.text(value + "\n"))]

    def release(self, lines):
        """Ends the holder of a lock as soon as bootstrap waits for it."""
        saw(lines, "waits for another package manager")
        self.host.put("/release", "")

    def popen(self, *options, what="run", user="ops", keys=None):
        assert DRIVER.is_file(), "%s is not built: run 'make drivers'" % DRIVER
        return self.lab.popen([DRIVER, what, self.host.address, user, self.lab.key,
                               keys or self.host.host_key(), *options],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *options, error=None, timeout=300, during=None, **kw):
        """error: None: must end well; text: must fail and say that. during(lines): called in a
        thread with the growing list of lines."""
        p = self.popen(*options, **kw)
        lines, helper, trouble = [], None, []
        if during:
            def guarded():
                try:
                    during(lines)
                except Exception as e:  # pylint: disable=broad-except
                    trouble.append(e)
            helper = threading.Thread(target=guarded)
            helper.start()
        killer = threading.Timer(timeout, p.kill)
        killer.start()
        for line in p.stdout:
            lines.append(line)
        log = p.stderr.read()
        p.wait()
        killer.cancel()
        if helper:
            helper.join()
        assert not trouble, trouble
        out = Outcome(lines, log)
        assert out.result, out
        if error is None:
            assert out.result["rc"] == 0, out
        else:
            assert out.result["rc"] != 0 and error in out.result["error"], out
            assert "\n" not in out.result["error"]
        return out

    def run_out(self, step, *options, error):
        """A run whose time is over in this step. On a busy machine it may be over before the step: then again with more."""
        for seconds in (5, 20, 80):
            out = self.run("--deadline-s", str(seconds), *options, error="")
            if out.texts(step):
                break
        assert error in out.result["error"], out
        return out


def saw(lines, text, seconds=120):
    wait_for(lambda: any(text in line for line in lines), seconds, lambda: f"no {text!r} in {lines}")


@pytest.fixture(name="node")
def node_fixture(lab, tmp_path):
    lab.next += 1
    host = lab.add("light", "h%d" % lab.next, "10.77.1.%d" % lab.next, start=False)
    host.authorize((lab.key.parent / "key.pub").read_text())
    lab.repo.use(host)
    host.start()
    host.wait_ssh()
    yield Node(lab, host, tmp_path)
    host.remove()


def test_a_node_without_user_data_gets_its_own_end(node):
    """The unit is put in place over SSH, once; a node on which it does not run is not handed over."""
    out = node.run("--ends-itself", "36000")
    assert out.result["applied"] >= 1 and any("deadline" in json.dumps(e) for e in out.events), out
    conf = node.host.file("/etc/gpuprov/deadline.conf").read_text()
    assert "TTL=36000" in conf, conf
    assert "gpuprov/deadline.sh" in node.host.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    again = node.run("--ends-itself", "36000")
    assert again.result["applied"] == 0, again


def test_a_node_that_would_not_end_is_not_handed_over(node):
    node.host.put("/etc/gpuprov", "in the way of the folder")
    node.run("--ends-itself", "36000", error="would not power off at its deadline")


def test_first_run_applies_second_does_nothing(node):
    options = ["--package", "gp-two", *node.step("seed", "echo 7 > seed\n"),
               *node.step("made", "touch made\n", "test -e ~/made")]
    out = node.run(*options)
    assert out.result["applied"] == 4 and out.result["root"] and not out.result["nvidia"]
    assert out.result["arch"] == os.uname().machine
    boot = node.host.sh("cat /proc/sys/kernel/random/boot_id").stdout.strip()
    assert out.result["boot_id"] == boot
    assert "installed" in node.host.sh("dpkg -s gp-one gp-two").stdout
    home = node.host.file("/home/ops")
    assert (home / "seed").read_text() == "7\n" and (home / "made").exists()
    assert oct((home / ".gpuprov").stat().st_mode)[-3:] == "700"
    assert oct((home / ".gpuprov/agent/gpuprov-agent").stat().st_mode)[-3:] == "700"
    before = node.host.sh("find /home/ops /var/lib/dpkg -newer /etc/hostname | sort | xargs ls -ld").stdout
    again = node.run(*options)
    assert again.result["applied"] == 0
    assert [e["event"] for e in again.events] == ["result"]
    assert before == node.host.sh("find /home/ops /var/lib/dpkg -newer /etc/hostname | sort | xargs ls -ld").stdout


def test_a_changed_step_runs_again_and_a_check_decides(node):
    assert node.run(*node.step("s", "echo 1 >> log\n")).result["applied"] == 2
    assert node.run(*node.step("s", "echo 2 >> log\n")).result["applied"] == 1
    assert node.host.file("/home/ops/log").read_text() == "1\n2\n"
    step = node.step("c", "touch ready\n", "test -e ~/ready")
    assert node.run(*step).result["applied"] == 1
    node.host.sh("rm /home/ops/ready")
    assert node.run(*step).result["applied"] == 1


def test_a_step_has_the_users_own_umask(node):
    """What it makes is as open as it would be by hand; gpuprov's record of it is not."""
    node.run(*node.step("made", "mkdir ~/made; echo x >~/made/file; sudo mkdir /opt/made"))
    assert node.host.sh("stat -c %a /home/ops/made /home/ops/made/file /opt/made").stdout.split() == ["755", "644", "755"]
    assert node.host.sh("stat -c %a /home/ops/.gpuprov/nodes/*/steps/*").stdout.split() == ["700"]
    node.host.put("/home/ops/.bashrc", "umask 027\n")
    node.run(*node.step("closed", "mkdir ~/closed"))
    assert node.host.sh("stat -c %a /home/ops/closed").stdout == "750\n"


def test_a_step_has_the_users_own_language(node):
    """gpuprov's steps read the words of programs in English; a secret may have the name of that setting."""
    node.host.put("/home/ops/.bashrc", "export LANG=C.UTF-8 LC_MESSAGES=de_DE.UTF-8\n")
    look = "echo \"$LANG $LC_MESSAGES ${LC_ALL-none} ${GPUPROV_LANGUAGE-none}\" >>/home/ops/%s"
    node.run(*node.step("s", look % "run", look % "check" + "; [ -e /home/ops/run ]"))
    seen = node.host.sh("cat /home/ops/run /home/ops/check | sort -u").stdout
    assert seen == "C.UTF-8 de_DE.UTF-8 none none\n"
    node.host.put("/home/ops/.bashrc", "export LC_ALL=C.UTF-8\n")
    node.run(*node.step("t", look % "all"), *node.step("u", look % "all"))
    assert node.host.file("/home/ops/all").read_text() == 2 * "  C.UTF-8 none\n"
    node.run(*node.step("v", look % "secret"), *node.secret("LC_ALL", "C"))
    assert node.host.file("/home/ops/secret").read_text() == "  C none\n"


def test_a_check_that_an_earlier_step_made_true_is_not_run(node):
    out = node.run("--package", "gp-one", *node.step("s", "echo ran > ran\n", "dpkg -s gp-one"))
    assert out.result["applied"] == 2  # package, agent
    assert not node.host.file("/home/ops/ran").exists()


def test_a_version_of_a_package(node):
    assert node.run("--package", "gp-two=2.1-1").result["applied"] == 2
    assert node.run("--package", "gp-two=2.1-1").result["applied"] == 0
    node.run("--package", "gp-two=9", error="step 'packages': apt-get reported: E: Version '9' for 'gp-two'")


def test_a_package_that_is_not_there(node):
    node.run("--package", "gp-none", error="test/1: step 'packages': apt-get reported: E: Unable to locate "
             "package gp-none")


def test_a_package_that_breaks(node):
    node.run("--package", "gp-broken", error="step 'packages': apt-get reported: dpkg: error processing package "
             "gp-broken (--configure): installed gp-broken package post-installation script")
    # an installation that ended half way is put right first, and says so when it cannot be
    node.run("--package", "gp-one", error="step 'packages': dpkg --configure -a reported: dpkg: error")


def test_packages_refused(node):
    out = node.run("--package", "gp-one", "--refusal", "this machine's root is not ours",
                   error="step 'packages': this machine's root is not ours")
    assert out.result["rc"] == -8
    node.host.sh("rm /etc/sudoers.d/90-ops")
    node.run("--package", "gp-one", error="user 'ops' may not use sudo without a password")
    assert node.run().result["root"] is False


def test_dpkg_lock_held(node):
    holder = ("import fcntl,time\nf=open('/var/lib/dpkg/lock-frontend','w')\nfcntl.lockf(f,fcntl.LOCK_EX)\n"
              "open('/held','w').close()\n"
              "while not __import__('os').path.exists('/release'): time.sleep(.05)\n")
    node.host.put("/holder.py", holder)
    node.host.sh("setsid python3 /holder.py </dev/null >/dev/null 2>&1 &")
    wait_for(lambda: node.host.file("/held").exists(), 60)
    out = node.run("--package", "gp-one", during=node.release)
    assert out.result["applied"] == 2
    assert any("held by process" in t for t in out.texts("packages")), out


def test_failing_steps_say_why(node):
    out = node.run(*node.step("bad", "echo first; echo it went wrong >&2; exit 7\n"),
                   error="test/1: step 'bad': ended with status 7; its last output: it went wrong")
    assert out.result["rc"] == -8
    node.run(*node.step("mid", "false\necho not reached\n"), error="ended with status 1")
    node.run(*node.step("unproven", "true\n", "test -e /nowhere"),
             error="step 'unproven': ran, but its check still fails: test -e /nowhere")
    node.run(*node.step("own", "#!/usr/bin/python3\nraise SystemExit(9)\n"), error="ended with status 9")
    node.run(*node.step("told", "echo '::error no licence found'; exit 1\n"), error="step 'told'")


def test_progress_lines(node):
    out = node.run(*node.step("p", "echo '::progress 40 of 100 files'; sleep 0.5\n"))
    assert "40 of 100 files" in out.texts("p")


def test_huge_output(node):
    out = node.run(*node.step("loud", "yes | head -c 100000000; echo; echo the end >&2; exit 4\n"),
                   error="ended with status 4; its last output: the end")
    assert len(out.log) < 1000
    used = node.host.sh("du -sk /home/ops/.gpuprov/nodes").stdout.split()[0]
    assert int(used) < 2000


def test_a_step_that_never_ends(node):
    node.run()  # all of the time below is the step's
    out = node.run_out("never", *node.step("never", "echo begins; sleep 1000 & yes\n"),
                       error="step 'never': did not finish in time and was killed")
    assert out.result["rc"] == -8
    assert "; its last output: y" in out.result["error"]
    assert node.host.sh("pgrep -x 'yes|sleep'", check=False).stdout == ""


def test_start_up_files_that_print(node):
    """An echo in ~/.bashrc breaks scp and rsync; here it is nobody's word."""
    noise = "echo ran >> ~/bashrc-ran\necho welcome\necho to err >&2\nprintf 'today:'\n"
    node.host.put("/home/ops/.bashrc", noise, 0o644, 1000)
    options = ["--package", "gp-one", *node.step("s", "echo working; echo 1 >> log\n")]
    out = node.run(*options)
    assert out.result["applied"] == 3 and len(out.result["boot_id"]) == 36, out
    assert "working" in out.texts("s")
    assert node.host.file("/home/ops/bashrc-ran").exists()
    assert node.run(*options).result["applied"] == 0
    assert node.host.file("/home/ops/log").read_text() == "1\n"


def test_lost_connection_in_the_middle(node):
    def cut(lines):
        saw(lines, "begins")
        node.host.drop_connections()
        saw(lines, "reconnects")
        node.host.put("/go", "")
    out = node.run(*node.step("long", "echo begins; echo x >> ~/runs; until [ -e /go ]; do sleep .1; done\n"
                              "echo ends\n"), during=cut)
    assert out.result["applied"] == 2
    assert node.host.file("/home/ops/runs").read_text() == "x\n"


def test_cable_pulled_in_the_middle(node):
    """Nothing answers for a while, and no connection is ever closed."""
    def cut(lines):
        saw(lines, "begins")
        node.host.cut()
        time.sleep(2)  # that something is not answered can only be waited out
        node.host.put("/go", "")
        node.host.mend()
    out = node.run(*node.step("long", "echo begins; echo x >> ~/runs; until [ -e /go ]; do sleep .1; done\n"),
                   during=cut)
    assert out.result["rc"] == 0
    assert node.host.file("/home/ops/runs").read_text() == "x\n"


def test_killed_and_run_again_finds_the_step(node):
    options = node.step("long", "echo begins; echo x >> ~/runs; until [ -e /go ]; do sleep .1; done\n")
    p = node.popen(*options)
    wait_for(lambda: node.host.file("/home/ops/runs").exists(), 60)
    # the driver is nsenter's own process: it became it
    os.kill(p.pid, signal.SIGKILL)
    p.wait()

    def go(lines):
        saw(lines, "begins")
        node.host.put("/go", "")
    out = node.run(*options, during=go)
    assert out.result["applied"] == 2
    assert node.host.file("/home/ops/runs").read_text() == "x\n"


def test_a_home_that_two_nodes_share(lab, node, tmp_path):
    """What was done on one node is not done on the other, at the same time or later."""
    lab.next += 1
    other = lab.add("light", "h%d" % lab.next, "10.77.1.%d" % lab.next, start=False)
    lab.repo.use(other)
    other.start()
    try:
        other.wait_ssh()
        lab.host_sh("bind", other.name, node.host.name, "/home/ops")
        second = Node(lab, other, tmp_path)
        options = node.step("s", "uname -n >> ~/ran; sleep 1\n")
        p = second.popen(*options)
        node.run(*options)
        out, log = p.communicate(timeout=120)
        assert p.returncode == 0, (out, log)
        ran = node.host.file("/home/ops/ran").read_text().split()
        assert sorted(ran) == sorted([node.host.name, other.name])
        assert node.run(*options).result["applied"] == second.run(*options).result["applied"] == 0
    finally:
        other.remove()


def test_a_run_that_ends_while_the_next_one_starts(node):
    """An earlier gpuprov's run of the step ends well after this one has looked: not run twice."""
    once = node.step("once", "echo x >> ~/runs\n")
    node.run(*once)
    node.host.sh("mv /home/ops/.gpuprov/nodes/*/marks /home/ops/kept")
    out = node.run(*node.step("first", "cd ~/.gpuprov/nodes/*/; mkdir -p marks; mv ~/kept/* marks\n"), *once)
    assert out.result["applied"] == 1 and node.host.file("/home/ops/runs").read_text() == "x\n"


def test_reboot_in_the_middle_of_a_step(node):
    """The step reboots the node: it is run again, and its check tells when it is done."""
    run = "echo x >> ~/runs; [ $(wc -l < ~/runs) = 1 ] && { sudo reboot; sleep 100; }; touch ~/ready\n"
    first = node.host.sh("cat /proc/sys/kernel/random/boot_id").stdout.strip()
    out = node.run(*node.step("s", run, "test -e ~/ready"))
    assert out.result["applied"] == 2
    assert node.host.boots == 2 and out.result["boot_id"] != first
    assert node.host.file("/home/ops/runs").read_text() == "x\nx\n"
    assert any("rebooted" in t for t in out.texts("s")), out


def test_a_step_that_always_reboots(node):
    node.run(*node.step("s", "sudo reboot; sleep 100\n"), error="the node rebooted 2 times before it ended")
    assert node.host.boots == 3  # also when the reboot came before the answer that the step runs


def test_reboot_in_the_middle_of_apt(node):
    def reboot(_):
        wait_for(lambda: node.host.sh("pgrep -f [g]p-slow.postinst", check=False).stdout)
        node.host.put("/go", "")  # for the second time
        node.host.sh("reboot", check=False)
    out = node.run("--package", "gp-slow", during=reboot)
    assert node.host.boots == 2
    assert "install ok installed" in node.host.sh("dpkg -s gp-slow").stdout
    assert out.result["applied"] == 2


def test_reboot_by_systemd_in_the_middle(lab, tmp_path):
    """A shutdown ends the step politely, which must not be taken for its failure."""
    lab.next += 1
    host = lab.add("systemd", "s%d" % lab.next, "10.77.1.%d" % lab.next, start=False)
    try:
        host.authorize((lab.key.parent / "key.pub").read_text())
        host.start()
        host.wait_ssh()
        node = Node(lab, host, tmp_path)

        def reboot(lines):
            saw(lines, "begins")
            host.sh("systemctl reboot", check=False)
        out = node.run(*node.step("s", "echo begins; echo x >> ~/runs; [ $(wc -l < ~/runs) -gt 1 ] || sleep 1000\n"),
                       during=reboot)
        assert out.result["applied"] == 2 and host.boots == 2
        assert host.file("/home/ops/runs").read_text() == "x\nx\n"
    finally:
        host.remove()


def test_full_disk(node):
    node.host.sh("mount -t tmpfs -o size=300k,uid=1000,mode=700 full /home/ops")
    node.host.authorize((node.lab.key.parent / "key.pub").read_text())
    keys = node.host.sh("cat /etc/ssh/ssh_host_ed25519_key.pub").stdout
    node.host.sh("mkdir -p /home/ops/.ssh; echo '%s' > /home/ops/.ssh/authorized_keys; "
                 "chown -R ops:ops /home/ops/.ssh" % (node.lab.key.parent / "key.pub").read_text().strip())
    keys = " ".join(keys.split()[:2])
    node.run(error="test/1: step 'agent': the disk is full", keys=keys)
    fill = "head -c 10000000 /dev/zero > big || true; echo some words; head -c 99999999 /dev/zero > big\n"
    node.run(*node.step("fill", fill), error="the disk is full (/home/ops)", keys=keys)
    node.run(*node.step("next", "true\n"), error="the disk is full", keys=keys)


def test_a_home_where_nothing_runs(node):
    """noexec: said as such, the second time as well; read-only: the agent has no place."""
    mount = "mount -t tmpfs -o size=64m,uid=1000,gid=1000,mode=700,noexec own /home/ops"
    node.host.sh(mount + "; mkdir -p /home/ops/.ssh; echo '%s' > /home/ops/.ssh/authorized_keys; "
                 "chown -R ops:ops /home/ops/.ssh" % (node.lab.key.parent / "key.pub").read_text().strip())
    for _ in range(2):
        node.run(error="step 'agent': gpuprov-agent is on the node but cannot be run (status 126): "
                 "'/home/ops' is mounted noexec")
    node.host.sh("mount -o remount,exec /home/ops")
    node.run()
    node.host.sh("rm -rf /home/ops/.gpuprov; mount -o remount,ro /home/ops")
    node.run(error="step 'agent': mkdir: ")


def test_secrets_are_not_to_be_seen(node):
    value = "hf_Geheim0123456789"
    look = ("for p in /proc/[0-9]*; do grep -alE '%s' $p/cmdline 2>/dev/null; done; "
            "grep -rlsE --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev '%s' "
            "/home /tmp /var /run /etc /root 2>/dev/null; true" % ((value[:9] + "[" + value[9] + "]" + value[10:],) * 2))
    found = []

    def spy(lines):
        saw(lines, "begins")
        found.append(node.host.sh(look).stdout)
        found.append(node.host.sh("su nobody -s /bin/sh -c \"grep -al '%s' /proc/[0-9]*/environ\" 2>/dev/null; true"
                                  % (value[:9] + "[" + value[9] + "]" + value[10:])).stdout)
        node.host.put("/go", "")
    run = "echo begins; test -n \"$HF_TOKEN\" || exit 5; until [ -e /go ]; do sleep .1; done; " \
          "sleep 0.6; echo use $HF_TOKEN; sleep 0.6; echo ${#HF_TOKEN} > len\n"
    out = node.run(*node.step("s", run, "test -e ~/len && test -n \"$HF_TOKEN\""), *node.secret("HF_TOKEN", value),
                   during=spy)
    assert found == ["", ""]
    assert value not in repr(out) and "use ***" in repr(out)
    assert node.host.file("/home/ops/len").read_text() == "%d\n" % len(value)
    bad = node.run(*node.step("b", "echo $HF_TOKEN; exit 1\n"), *node.secret("HF_TOKEN", value), error="step 'b'")
    assert value not in repr(bad)


def test_a_secret_with_the_name_of_a_variable_changes_no_step(node):
    """Scripts of gpuprov use variables too: RUN, STEP and JOB are some of them."""
    names = ["RUN", "CHECK", "HASH", "MARK", "STEP", "JOB", "NODE_DIR", "rc"]
    secrets = [x for name in names for x in node.secret(name, "of-" + name)]
    seen = " ".join("$" + name for name in names)
    step = node.step("s", f"echo \"{seen}\" >seen; env | grep -c GPUPROV_SECRET >left || true\n",
                     "test -s seen -a $RUN = of-RUN")
    node.run(*step, *secrets)
    assert node.host.file("/home/ops/seen").read_text().split() == ["of-" + name for name in names]
    assert node.host.file("/home/ops/left").read_text() == "0\n"
    assert node.run(*step, *secrets).result["applied"] == 0


def test_driver_is_looked_for_only_with_a_gpu(node):
    node.run("--gpu", "1", "--image", "debian-12", error="test/1: no driver: image debian-12 has neither /dev/nvidiactl")
    node.run("--gpu", "1", "--image", "", error="this host has neither /dev/nvidiactl nor nvidia-smi: write bootstrap.driver: auto")
    node.host.put("/usr/local/bin/nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n", 0o755)
    node.run("--gpu", "1", "--image", "debian-12", error="nvidia-smi reported: NVIDIA-SMI has failed")
    node.host.put("/usr/local/bin/nvidia-smi", "#!/bin/sh\necho 'GPU 0: stand-in'\n", 0o755)
    node.run("--gpu", "1", "--image", "debian-12")


def test_another_architecture(node):
    node.host.put("/usr/local/bin/uname", "#!/bin/sh\necho aarch64\n", 0o755)
    node.run(error="test/1: step 'agent': this node is aarch64, and this gpuprov contains agents for x86_64 only")
    assert not node.host.file("/home/ops/.gpuprov").exists()


def test_host_key_rotation(node, tmp_path):
    first = node.host.host_key()
    kept = tmp_path / "next"
    out = node.run("--commit-file", str(kept), what="rotate")
    new = out.result["key"]
    assert new != first and out.result["shown"] == new and out.result["accepted"] == 1
    assert kept.read_text() == new and node.host.host_key() == new
    node.run(error="host key", keys=first)
    again = node.run(what="rotate", keys=new)
    assert again.result["key"] == new


def test_host_key_rotation_cut_after_commit(node, tmp_path):
    first = node.host.host_key()
    kept = tmp_path / "next"
    p = node.popen("--commit-file", str(kept), "--stop-after", "commit", what="rotate")
    assert p.wait() in (-9, 137)
    p.communicate()
    assert node.host.host_key() == first
    out = node.run(what="rotate", keys=first + "," + kept.read_text())
    assert out.result["key"] == kept.read_text()


@pytest.mark.parametrize("damage", [
    "cp /etc/ssh/gpuprov_next_host_key /etc/ssh/ssh_host_ed25519_key",       # cut between two renames
    ": > /etc/ssh/gpuprov_next_host_key",                                     # an empty file after a crash
    ("cp /etc/ssh/gpuprov_next_host_key /etc/ssh/ssh_host_ed25519_key; "
     "ssh-keygen -y -f /etc/ssh/ssh_host_ed25519_key | cut -d' ' -f1,2 | "
     "tee /etc/ssh/ssh_host_ed25519_key.pub > /etc/ssh/gpuprov_host_key_made; "
     "rm /etc/ssh/gpuprov_next_host_key"),                                    # cut before sshd was told
], ids=["rename", "empty", "reload"])
def test_host_key_rotation_cut_on_the_node(node, tmp_path, damage):
    first = node.host.host_key()
    kept = tmp_path / "next"
    p = node.popen("--commit-file", str(kept), "--stop-after", "commit", what="rotate")
    p.communicate()
    node.host.sh(damage)
    out = node.run(what="rotate", keys=first + "," + kept.read_text())
    assert out.result["accepted"] == 1 and node.host.host_key() == out.result["key"]
    node.run(keys=out.result["key"])
