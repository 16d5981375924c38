# SPDX-License-Identifier: Apache-2.0
"""The runner of bootstrap steps: time limits, repetitions, reboots, and bad days of any step."""
import pathlib
import subprocess

import pytest

from test_bootstrap import Node, lab_fixture, node_fixture  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.root, pytest.mark.namespaces]


@pytest.mark.long
def test_a_steps_own_time_limit(node):
    """It ends the step and not the bootstrap, whose limit is far away."""
    node.run()  # the agent is there: all the time below is the step's
    out = node.run(*node.step("slow", "echo begins; sleep 1000 & sleep 1000\n"), "--limit-s", "3",
                   error="step 'slow': did not finish within its 3 s and was killed; its last output: begins")
    assert out.result["rc"] == -8
    assert node.host.sh("pgrep -x sleep", check=False).stdout == ""


def test_a_limit_is_of_each_step(node):
    """Two steps whose limits are together longer than one of them."""
    steps = [*node.step("a", "sleep 2; echo a >> ~/ran\n"), "--limit-s", "60",
             *node.step("b", "sleep 2; echo b >> ~/ran\n"), "--limit-s", "60"]
    assert node.run(*steps).result["applied"] == 3
    assert node.host.file("/home/ops/ran").read_text() == "a\nb\n"


@pytest.mark.long
def test_a_step_is_repeated_where_its_row_allows_it(node):
    run = "echo x >> ~/runs; [ $(wc -l < ~/runs) -ge 3 ] || { echo not yet; exit 5; }\n"
    out = node.run(*node.step("flaky", run), "--tries", "3")
    assert out.result["applied"] == 2
    assert node.host.file("/home/ops/runs").read_text() == "x\nx\nx\n"
    assert "failed, tries again in 2 s (2 of 3): ended with status 5; its last output: not yet" in out.texts("flaky")
    assert any(t.startswith("failed, tries again in 4 s (3 of 3)") for t in out.texts("flaky")), out


def test_a_step_is_not_repeated_more_often(node):
    run = "echo x >> ~/runs; exit 5\n"
    node.run(*node.step("bad", run), "--tries", "2", error="step 'bad': ended with status 5")
    assert node.host.file("/home/ops/runs").read_text() == "x\nx\n"


def test_a_step_runs_once_by_default(node):
    out = node.run(*node.step("bad", "echo x >> ~/runs; exit 5\n"), error="step 'bad': ended with status 5")
    assert node.host.file("/home/ops/runs").read_text() == "x\n"
    assert not any("tries again" in t for t in out.texts("bad")), out


def test_a_failed_check_counts_as_a_failure(node):
    run = "echo x >> ~/runs\n"
    node.run(*node.step("c", run, "[ $(wc -l < ~/runs) -ge 2 ]"), "--tries", "2")
    assert node.host.file("/home/ops/runs").read_text() == "x\nx\n"


RESTART = "echo x >> ~/runs; [ $(wc -l < ~/runs) -gt %d ] || { echo '::reboot the kernel changed'; exit 75; }\n"


def test_a_planned_reboot(node):
    """The step asks for it, the runner does it, and it is neither a failure nor a cut: the step has no check."""
    before = node.host.sh("cat /proc/sys/kernel/random/boot_id").stdout.strip()
    out = node.run(*node.step("s", RESTART % 3))
    assert node.host.file("/home/ops/runs").read_text() == "x\n" * 4 and node.host.boots == 4
    assert out.result["applied"] == 2 and out.result["boot_id"] != before
    assert out.texts("s").count("reboots the node: the kernel changed") == 3
    assert out.texts("s").count("the node rebooted, runs the step again") == 3
    assert node.run(*node.step("s", RESTART % 3)).result["applied"] == 0


@pytest.mark.long
def test_a_step_that_needs_reboots_for_ever(node):
    node.run(*node.step("s", RESTART % 99), error="step 's': the node was rebooted 3 times for this step, which still "
             "needs a reboot: the kernel changed")
    assert node.host.boots == 4


def test_a_reboot_after_much_output(node):
    node.run(*node.step("s", "yes | head -c 3000000\n" + RESTART % 1))
    assert node.host.boots == 2 and node.host.file("/home/ops/runs").read_text() == "x\nx\n"


@pytest.mark.long
def test_a_reboot_that_never_comes_back(node):
    node.lab.path("hosts", node.host.name, "boot-delay").write_text("25")
    out = node.run(*node.step("s", RESTART % 1), "--reboot-s", "6", error="step 's': the node must be rebooted (the "
                   "kernel changed), and it did not come back within 6.0s: look at its console; access.timeout")
    assert out.result["rc"] == -8 and "reboots the node: the kernel changed" in out.texts("s")


def test_a_reboot_that_does_not_begin(node):
    """The command returns well, and nothing happens."""
    node.host.sh("rm -f /usr/local/sbin/reboot; ln -s /bin/true /usr/local/sbin/reboot; "
                 "ln -s /bin/true /usr/local/sbin/systemctl")
    node.run(*node.step("s", RESTART % 1), "--reboot-s", "4", error="and it did not go down within 4.0s")


def test_a_reboot_that_is_not_allowed(node):
    node.host.sh("rm /etc/sudoers.d/90-ops")
    node.run(*node.step("s", RESTART % 1), error="step 's': the command reboot failed: sudo: ")


def test_status_75_alone_is_a_failure(node):
    node.run(*node.step("s", "echo no; exit 75\n"), error="step 's': ended with status 75; its last output: no")
    assert node.host.boots == 1


def test_restart_node_ends_a_step_for_a_reboot():
    """As fragments call it: nothing after it runs, and a line without an end before it is ended."""
    done = subprocess.run(["sh", "-c", ('. "$0"; apply() { printf half; restart_node kernel 6.8 is gone; echo no; }\n'
                           "apply || exit $?"), ROOT / "templates/bootstrap/run/lib.sh"],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (75, "half\n::reboot kernel 6.8 is gone\n")


@pytest.mark.long
def test_a_planned_reboot_by_systemd(lab, tmp_path):
    lab.next += 1
    host = lab.add("systemd", "s%d" % lab.next, "10.77.1.%d" % lab.next, start=False)
    try:
        host.authorize((lab.key.parent / "key.pub").read_text())
        host.start()
        host.wait_ssh()
        out = Node(lab, host, tmp_path).run(*Node(lab, host, tmp_path).step("s", RESTART % 1))
        assert out.result["applied"] == 2 and host.boots == 2
        assert host.file("/home/ops/runs").read_text() == "x\nx\n"
    finally:
        host.remove()
