# SPDX-License-Identifier: Apache-2.0
"""User-data as gpuprov renders it, given to a real cloud-init on a real systemd host: the user, the
keys, and a node that ends itself."""
import os
import pathlib
import subprocess

import lab as labs
import pytest
import yaml
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]
DRIVER = pathlib.Path(os.environ.get("B", ROOT / "build")) / "tests" / "drivers" / "cloud_init_driver"
FAR = 4000000000


def render(tmp_path, ttl=3600, grace=60, tick=1, expires=FAR):
    if not (tmp_path / "key").exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    assert DRIVER.is_file(), "%s is not built: run 'make drivers'" % DRIVER
    subprocess.run([DRIVER, tmp_path / "key.pub", tmp_path, *map(str, (ttl, grace, tick, expires))], check=True)
    return (tmp_path / "user-data").read_text()


def test_user_data_is_small(tmp_path):
    assert len(render(tmp_path).encode()) < 16384


def test_boot_commands_are_shell(tmp_path):
    for command in yaml.safe_load(render(tmp_path))["bootcmd"]:
        assert command[:2] == ["sh", "-c"]
        assert len(command) == 3
        subprocess.run(["sh", "-n", "-c", command[2]], check=True)


def test_nothing_in_user_data_is_secret_beyond_the_first_key(tmp_path):
    data = render(tmp_path)
    assert data.count("PRIVATE KEY") == 2  # begin and end of the first-contact key, burned by design
    assert (tmp_path / "key").read_text().splitlines()[-2] not in data


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with labs.Lab(tmp_path_factory.mktemp("lab")) as made:
        made.next = 1
        yield made


@pytest.fixture
def boot(lab, tmp_path):
    """boot(ttl=..): a host that has booted with user-data. Ended by the test's end."""
    made = []

    def start(**kw):
        data = render(tmp_path, **kw)
        lab.next += 1
        host = lab.add("systemd", "c%d" % lab.next, "10.77.2.%d" % lab.next, start=False)
        made.append(host)
        host.put("/var/lib/cloud/seed/nocloud/user-data", data, 0o600)
        host.put("/var/lib/cloud/seed/nocloud/meta-data", "instance-id: i-%d\nlocal-hostname: c%d\n" % ((lab.next,) * 2))
        host.start()
        return host
    yield start
    for host in made:
        host.remove()


@pytest.mark.root
@pytest.mark.namespaces
def test_user_data_is_valid(lab, tmp_path):
    host = lab.add("light", "schema", "10.77.1.1")
    wait_for(host.ssh_up)
    host.put("/root/user-data", render(tmp_path))
    said = host.sh("cloud-init schema -c /root/user-data")
    assert "Valid" in said.stdout, said
    host.put("/root/user-data", render(tmp_path).replace("users:", "users: 7\nusers_:", 1))
    assert host.sh("cloud-init schema -c /root/user-data", check=False).returncode == 1
    host.remove()


def ssh(lab, tmp_path, host, command):
    known = tmp_path / "known_hosts"
    known.write_text("%s %s\n" % (host.address, (tmp_path / "host_key.pub").read_text()))
    return lab.run(["ssh", "-i", tmp_path / "key", "-o", "UserKnownHostsFile=%s" % known,
                    "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
                    "gpuprov@" + host.address, command], capture_output=True, text=True)


def used(host):
    """Seconds that the node has counted; none yet: a very large number."""
    path = host.file("/var/lib/gpuprov/deadline-used")
    text = path.read_text().strip() if path.exists() else ""  # made a moment before it is written
    return int(text) if text else 10**9


@pytest.mark.root
@pytest.mark.namespaces
def test_a_node_as_it_should_be(lab, boot, tmp_path):
    host = boot()
    host.wait_ssh()
    # the very first connection shows the key that we gave, and lets the login key in
    said = ssh(lab, tmp_path, host, "id -un; sudo -n id -un; ls /etc/ssh/ssh_host_*; "
               "timeout 300 cloud-init status --wait; cat /run/cloud-init/result.json")
    assert said.returncode == 0, said
    assert said.stdout.split()[:2] == ["gpuprov", "root"]
    assert "ssh_host_ed25519_key" in said.stdout and "ssh_host_rsa" not in said.stdout
    assert "ssh_host_ecdsa" not in said.stdout
    assert '"errors": []' in said.stdout, said.stdout
    # counting before anybody could log in
    at = [int(host.sh("systemctl show -P ActiveEnterTimestampMonotonic " + unit).stdout)
          for unit in ("gpuprov-deadline.service", "ssh.service")]
    assert 0 < at[0] < at[1]
    assert host.sh("systemctl is-enabled gpuprov-deadline").stdout.strip() == "enabled"
    now = used(host)
    wait_for(lambda: used(host) > now, 60)
    assert "gpuprov" not in host.sh("getent shadow gpuprov | cut -d: -f2").stdout


@pytest.mark.long
@pytest.mark.root
@pytest.mark.namespaces
def test_the_count_survives_a_reboot_and_a_full_disk(boot):
    host = boot()
    host.wait_ssh()
    wait_for(lambda: 3 <= used(host) < 10**9, 60)
    before = used(host)
    host.sh("systemctl reboot", check=False)
    wait_for(lambda: host.boots == 2, 120)
    host.wait_ssh()
    assert used(host) >= before
    assert host.sh("systemctl is-active gpuprov-deadline").stdout.strip() == "active"
    # what is counted needs no new block
    host.sh("mkdir /full && mount -t tmpfs -o size=64k full /full && cp /etc/gpuprov/deadline.conf /full/conf && "
            "echo STATE=/full/used >> /full/conf && cp /var/lib/gpuprov/deadline-used /full/used && "
            "{ head -c 999999 /dev/zero > /full/rest || true; }")
    host.sh("systemd-run --unit=second sh /etc/gpuprov/deadline.sh /full/conf")
    full = host.sh("cat /full/used").stdout
    wait_for(lambda: int(host.sh("cat /full/used").stdout) > int(full) + 1, 60)


@pytest.mark.root
@pytest.mark.namespaces
def test_used_time_ends_the_node(boot):
    host = boot(ttl=3, grace=1)
    wait_for(lambda: host.state == "off", 120)
    assert host.boots == 1


@pytest.mark.root
@pytest.mark.namespaces
def test_reboots_do_not_stretch_the_time(boot):
    """Each start costs a tick, so a node that reboots before every tick ends too."""
    host = boot(ttl=150, grace=30, tick=100)
    host.wait_ssh()
    host.sh("systemctl reboot", check=False)
    wait_for(lambda: host.state == "off", 120)
    assert host.boots == 2


@pytest.mark.long
@pytest.mark.root
@pytest.mark.namespaces
def test_the_clock_counts_only_when_it_is_right(boot):
    host = boot(expires=1)
    host.wait_ssh()
    now = used(host)
    wait_for(lambda: used(host) > now + 2, 60)
    if "synchronized: yes" in host.sh("timedatectl", check=False).stdout:
        pytest.fail("this machine's clock is synchronised and the node past its deadline still lives")
    host.sh("mkdir -p /run/systemd/timesync && touch /run/systemd/timesync/synchronized", check=False)
    wait_for(lambda: host.state == "off", 120)


@pytest.mark.long
@pytest.mark.root
@pytest.mark.namespaces
def test_a_killed_dead_man_comes_back(boot):
    host = boot()
    host.wait_ssh()
    pid = host.sh("systemctl show -P MainPID gpuprov-deadline").stdout.strip()
    host.sh("kill -9 " + pid)
    wait_for(lambda: host.sh("systemctl show -P MainPID gpuprov-deadline").stdout.strip() not in ("0", pid))


@pytest.mark.root
@pytest.mark.namespaces
def test_another_instance_of_a_baked_image_starts_anew(boot):
    host = boot(ttl=3600)
    host.wait_ssh()
    # as if the image had been made of a node of ours whose time was up
    host.sh("echo other > /etc/gpuprov/instance; printf 'TTL=1\\nGRACE=1\\nEXPIRES=1\\nMACHINE=another\\n' > /etc/gpuprov/deadline.conf; "
            "systemctl stop gpuprov-deadline; printf '%012d\\n' 999999 > /var/lib/gpuprov/deadline-used; "
            "systemctl reboot", check=False)
    wait_for(lambda: host.boots == 2, 120)
    conf = host.file("/etc/gpuprov/deadline.conf")
    wait_for(lambda: conf.exists() and "TTL=3600" in conf.read_text() and used(host) < 3600)
    assert host.state == "running"


def test_a_shutdown_that_hangs_is_forced(tmp_path):
    """deadline.sh itself, with a poweroff that does nothing: it goes on to force it."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "poweroff").write_text("#!/bin/sh\necho poweroff \"$@\" >> %s/log\n" % tmp_path)
    (tools / "poweroff").chmod(0o755)
    script = (ROOT / "templates/cloud-init/deadline.sh").read_text()
    assert script.count("/proc/sysrq-trigger") == 2
    (tmp_path / "deadline.sh").write_text(script.replace("/proc/sysrq-trigger", str(tmp_path / "sysrq")))
    (tmp_path / "conf").write_text("EXPIRES=%d\nTTL=0\nGRACE=0\nTICK=1\nFORCE_AFTER=1\nSYSRQ_AFTER=1\nHOLD=0\nSTATE=%s/used\n"
                                   "RUN=%s/run\n" % (FAR, tmp_path, tmp_path))
    p = subprocess.Popen(["sh", tmp_path / "deadline.sh", tmp_path / "conf"], stdout=subprocess.DEVNULL,
                         env={**os.environ, "PATH": "%s:%s" % (tools, os.environ["PATH"])})
    try:
        wait_for(lambda: (tmp_path / "sysrq").exists() and (tmp_path / "sysrq").read_text(), 120)
        assert (tmp_path / "log").read_text() == "poweroff\npoweroff -f\n"
        assert (tmp_path / "sysrq").read_text() == "o\n"
    finally:
        p.kill()
        p.wait()
