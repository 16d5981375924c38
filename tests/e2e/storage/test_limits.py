# SPDX-License-Identifier: Apache-2.0
"""bootstrap.limits: judged by a new login of the host's own sshd and PAM, and by systemd where it runs. Huge pages and
fs.nr_open belong to the whole machine, so the host has plain files in place of those of /proc/sys. The image has low
soft limits; the tests raise them as far as this machine's hard limits, because it may lack CAP_SYS_RESOURCE."""
import resource
import subprocess

import lab as labs
import pytest
from storage_node import StorageNode

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("lab")
    with labs.Lab(tmp) as made:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp / "key"], check=True)
        made.key = tmp / "key"
        made.next = 2
        yield made


NOFILE = 15000
IMAGE = "* soft memlock 64\nroot soft memlock 64\n* soft nofile 512\nroot soft nofile 512\n"


def may_raise():
    """Whether this machine's root may raise hard limits."""
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    return hard == resource.RLIM_INFINITY or int(
        next(line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff:")), 16) >> 24 & 1


def make(lab, tmp_path, kind="light"):
    lab.next += 1
    host = lab.add(kind, "l%d" % lab.next, "10.77.3.%d" % lab.next, start=False)
    host.put("/etc/security/limits.d/50-image.conf", IMAGE)
    host.authorize((lab.key.parent / "key.pub").read_text())
    host.start()
    host.wait_ssh()
    return StorageNode(lab, host, tmp_path)


@pytest.fixture(name="node")
def node_fixture(lab, tmp_path):
    node = make(lab, tmp_path)
    node.host.sh("echo 0 >/run/nr_hugepages; echo 1048576 >/run/nr_open; "
                 "mount --bind /run/nr_hugepages /proc/sys/vm/nr_hugepages; "
                 "mount --bind /run/nr_open /proc/sys/fs/nr_open")
    yield node
    node.host.remove()


def login(node, what):
    """What a login of its own has."""
    options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
    command = ["ssh", "-F", "none", "-i", node.lab.key, *sum((["-o", o] for o in options), []),
               "ops@" + node.host.address, what]
    return node.lab.run(command, capture_output=True, text=True).stdout.split()


def test_a_new_login_has_them_and_the_second_run_does_nothing(node):
    boot = {"limits": {"memlock": "2MiB", "nofile": NOFILE, "hugepages": 4}}
    assert login(node, "ulimit -l; ulimit -n") == ["64", "512"]
    assert "limits" in node.run(boot).done()
    assert login(node, "ulimit -l; ulimit -Hl; ulimit -n; ulimit -Hn") == ["2048", "2048", "15000", "15000"]
    assert node.host.sh("su - root -c 'ulimit -l'").stdout.split() == ["2048"]  # "*" is not root
    assert node.host.sh("cat /run/nr_hugepages").stdout == "4\n"
    assert "vm.nr_hugepages = 4" in node.host.file("/etc/sysctl.d/99-gpuprov-limits.conf").read_text()
    again = node.run(boot)
    assert again.result["applied"] == 0 and [e["event"] for e in again.events] == ["result"], again
    node.host.sh("rm /etc/security/limits.d/99-gpuprov.conf")
    assert "limits" in node.run(boot).done()


def test_only_what_is_named_is_set(node):
    node.run({"limits": {"memlock": "1MiB"}})
    assert login(node, "ulimit -l; ulimit -n") == ["1024", "512"]
    assert "DefaultLimitMEMLOCK=1024K" in node.host.file("/etc/systemd/system.conf.d/99-gpuprov.conf").read_text()
    assert not node.host.file("/etc/sysctl.d/99-gpuprov-limits.conf").exists()


def test_auto_or_the_machine_refuses(node):
    """pam_limits refuses every login when the kernel refuses the limit, so it is tried before it is written."""
    if may_raise():
        assert "limits" in node.run({"limits": "auto"}).done()
        assert login(node, "ulimit -l; ulimit -n") == ["unlimited", "1048576"]
        return
    node.run({"limits": "auto"}, error="step 'limits': this machine does not allow memlock unlimited: error "
             "setting limit (Operation not permitted); set a smaller bootstrap.limits.memlock")
    assert not node.host.file("/etc/security/limits.d/99-gpuprov.conf").exists()
    assert login(node, "echo in") == ["in"]


def test_more_open_files_than_the_kernel_has(node):
    node.run({"limits": {"nofile": 1 << 30}}, error="step 'limits': this machine does not allow nofile 1073741824: ")
    assert login(node, "echo in") == ["in"]


def test_another_line_wins(node):
    node.host.put("/etc/security/limits.d/zz.conf", "ops soft memlock 100\n")
    node.run({"limits": {"memlock": "1MiB"}},
             error="step 'limits': a new login has memlock 100 KiB, nofile 512: another line")


def test_pam_is_off(node):
    node.host.put("/etc/ssh/sshd_config.d/a.conf", "UsePAM no\n")
    node.host.sh("usermod -p '*' ops; prlimit --pid 1 --memlock=65536:; kill -HUP 1")  # the soft limit only
    node.host.wait_ssh()
    node.run({"limits": {"memlock": "1MiB"}}, error="or sshd has 'UsePAM no'")


def test_fewer_huge_pages_than_asked(node):
    node.host.sh("umount /proc/sys/vm/nr_hugepages; mount --bind /dev/null /proc/sys/vm/nr_hugepages")
    node.run({"limits": {"hugepages": 8}}, error="step 'limits': the kernel reserved 0 of 8 huge pages")


def test_huge_pages_leave_memory_to_the_node(node):
    """Nothing is written: the node would not come back from its next reboot."""
    node.run({"limits": {"hugepages": 1 << 26}}, error="step 'limits': 67108864 huge pages of ")
    assert node.host.sh("cat /proc/sys/vm/nr_hugepages").stdout == "0\n"
    assert not node.host.file("/etc/sysctl.d/99-gpuprov-limits.conf").exists()


def test_no_sudo(node):
    node.host.sh("rm /etc/sudoers.d/90-ops")
    node.run({"limits": "auto"}, error="step 'limits': user 'ops' may not use sudo without a password here, so limits "
             "cannot be set up")


def test_services_have_them(lab, tmp_path):
    node = make(lab, tmp_path, "systemd")
    try:
        boot = {"limits": {"memlock": "2MiB", "nofile": NOFILE}}
        assert "limits" in node.run(boot).done()
        shown = node.host.sh("systemd-run --quiet --wait --pipe sh -c 'ulimit -l; ulimit -n'").stdout.split()
        assert shown == ["2048", "15000"]
        assert node.run(boot).result["applied"] == 0
    finally:
        node.host.remove()
