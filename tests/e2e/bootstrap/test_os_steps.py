# SPDX-License-Identifier: Apache-2.0
"""The steps clock and package-locks. A test host shares the clock of this machine, which no test may change: `date` of
the host is a stand-in whose offset is a file."""
import pytest

from test_bootstrap import Node, lab_fixture, node_fixture  # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
YEARS = 1095 * 86400 + 43200  # half a day more, so that time which passes changes no number of days

# Knows only what the step uses. The real one is moved away, so that nothing can set the time.
DATE = """#!/bin/sh
off=$(cat /clock-off)
case $1 in
+%s) echo $(($(/usr/bin/real-date-read +%s) + off)) ;;
-s)
    [ ! -e /clock-fixed ] || { echo 'date: cannot set date: Operation not permitted' >&2; exit 1; }
    echo $((${2#@} - $(/usr/bin/real-date-read +%s))) >/clock-off
    echo "$2" >>/clock-set ;;
esac
"""
# Prints the time and cannot set it.
READ = "#!/usr/bin/python3\nimport time\nprint(int(time.time()))\n"


def clock(host, off):
    host.put("/usr/bin/real-date-read", READ, 0o755)
    host.put("/usr/bin/date", DATE, 0o755)
    for name in ("hwclock", "timedatectl"):
        host.sh("rm -f /usr/sbin/%s /usr/bin/%s" % (name, name))
        host.put("/usr/bin/" + name, "#!/bin/sh\necho %s \"$@\" >>/clock-tools\n" % name, 0o755)
    host.put("/clock-off", "%d\n" % off, 0o666)
    assert host.sh("date -s @5; cat /clock-set; rm /clock-set").stdout == "@5\n"  # it is the stand-in
    host.put("/clock-off", "%d\n" % off, 0o666)


def now_off(host):
    return int(host.file("/clock-off").read_text())


@pytest.mark.parametrize("off,words", [(-YEARS, "1095 days behind"), (YEARS, "1095 days ahead"),
                                       (-1830, "30 minutes behind")])
def test_a_clock_that_is_off_is_set(node, off, words):
    clock(node.host, off)
    out = node.run("--launched", "yes")
    assert any(t == "set the clock, which was " + words for t in out.texts("clock")) and out.result["applied"] == 2, out
    assert abs(now_off(node.host)) < 120
    assert "hwclock --systohc" in node.host.file("/clock-tools").read_text()
    again = node.run("--launched", "yes")
    assert again.result["applied"] == 0 and again.texts("clock") == []


@pytest.mark.parametrize("off", [-300, 300, 2400])
def test_a_clock_that_is_nearly_right_is_left_alone(node, off):
    clock(node.host, off)
    assert node.run("--launched", "yes").texts("clock") == []
    assert not node.host.file("/clock-set").exists() and now_off(node.host) == off


def test_a_clock_that_cannot_be_set(node):
    """A container shares the clock of its machine."""
    clock(node.host, -YEARS)
    node.host.put("/clock-fixed", "")
    node.run("--launched", "yes", error="step 'clock': the clock is 1095 days behind and cannot be set here: Operation "
             "not permitted: set the clock of the machine that runs this node")


def test_a_machine_that_is_not_ours_is_only_warned_of(node):
    clock(node.host, -YEARS)
    out = node.run()
    assert any("the clock is 1095 days behind this machine's: set it" in t for t in out.texts("clock")), out
    assert not node.host.file("/clock-set").exists() and out.result["rc"] == 0


def test_a_clock_that_a_time_service_sets(node):
    """Then it is the controller's that is wrong."""
    clock(node.host, YEARS)
    node.host.put("/usr/bin/timedatectl", "#!/bin/sh\n[ \"$1\" != show ] || echo yes\n", 0o755)
    out = node.run("--launched", "yes")
    assert any("a time service sets it: check the clock of this machine" in t for t in out.texts("clock")), out
    assert not node.host.file("/clock-set").exists()


@pytest.fixture(name="booted")
def booted_fixture(lab, tmp_path):
    """A host with systemd, and a unit that holds dpkg's lock as an unattended upgrade does."""
    lab.next += 1
    host = lab.add("systemd", "s%d" % lab.next, "10.77.1.%d" % lab.next, start=False)
    host.authorize((lab.key.parent / "key.pub").read_text())
    lab.repo.use(host)
    host.put("/holder.py", "import fcntl,time\nf=open('/var/lib/dpkg/lock-frontend','w')\nfcntl.lockf(f,fcntl.LOCK_EX)\n"
             "open('/held','w').close()\ntime.sleep(1000)\n")
    host.put("/etc/systemd/system/unattended-upgrades.service",
             "[Service]\nExecStart=/usr/bin/python3 /holder.py\n[Install]\nWantedBy=multi-user.target\n")
    host.start()
    host.wait_ssh()
    yield Node(lab, host, tmp_path)
    host.remove()


@pytest.mark.long
def test_unattended_upgrades_end_before_packages_are_installed(booted):
    host = booted.host
    host.sh("systemctl enable --now unattended-upgrades.service; until [ -e /held ]; do sleep .1; done")
    units = host.sh("systemctl is-enabled apt-daily.timer apt-daily-upgrade.timer", check=False).stdout.split()
    out = booted.run("--launched", "yes", "--package", "gp-one")
    assert out.result["applied"] == 3, out
    assert not any("waits for another" in t for t in out.texts("packages")), out
    assert "stops unattended-upgrades.service" in out.texts("package-locks")
    assert host.sh("systemctl is-enabled unattended-upgrades.service", check=False).stdout.strip() == "disabled"
    for unit, was in zip(("apt-daily.timer", "apt-daily-upgrade.timer"), units):
        assert was != "enabled" or host.sh("systemctl is-active %s" % unit, check=False).stdout.strip() == "inactive"
    assert booted.run("--launched", "yes", "--package", "gp-one").result["applied"] == 0


@pytest.mark.long
def test_a_machine_that_is_not_ours_keeps_its_timers(booted):
    booted.host.sh("systemctl enable unattended-upgrades.service")
    out = booted.run()
    assert out.texts("package-locks") == []
    assert booted.host.sh("systemctl is-enabled unattended-upgrades.service").stdout.strip() == "enabled"
