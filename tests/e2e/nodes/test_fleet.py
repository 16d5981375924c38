# SPDX-License-Identifier: Apache-2.0
"""The ssh provider on machines that exist already, behind a bastion: from a hosts file to proven nodes and
back, and what can be wrong with a host. What is on the hosts is looked at from outside gpuprov."""
import json
import shutil
import signal
import time

import pytest
from fleet import Fleet
from lab import why_not

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = {"name": "fleet", "nodes": 2, "offers": [{"provider": "ssh", "hosts": "fleet.yaml"}],
        "validate": {"time": "1m"}}


def write(path, value):
    path.write_text(json.dumps(value))  # JSON is YAML
    return path


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    if why_not():
        pytest.skip(why_not())
    with Fleet(tmp_path_factory.mktemp("fleet"), 3, bastion=True) as made:
        yield made


@pytest.fixture
def inside(gpuprov, fleet, tmp_path):
    """The program in the network from which only the bastion can be reached."""
    return fleet.enter(gpuprov, tmp_path)


def traces(fleet):
    """What runs or lies on the hosts for gpuprov, apart from the agent's folder in the home."""
    found = []
    for host in fleet.nodes:
        found += host.sh("ps -eo args | grep '[g]puprov' || true").stdout.splitlines()
    return found


def test_up_to_down(inside, fleet, tmp_path):
    spec = write(tmp_path / "spec.yaml", SPEC)
    boots = [h.sh("cat /proc/sys/kernel/random/boot_id").stdout for h in fleet.nodes]
    up = inside.json("up", spec, timeout=300)
    status = inside.json("status", "fleet")
    nodes = status["stacks"][0]["nodes"] if "stacks" in status else status["nodes"]
    assert len(nodes) == 2, status
    assert "READY" in json.dumps(up).upper()
    again = inside("up", spec, timeout=300)
    assert "create" not in again.err, again
    # the user's own ssh, through the bastion
    assert inside("ssh", "fleet/1", "--", "hostname").out.strip() == "h2"
    down = inside("down", "fleet")
    assert down.out.startswith("fleet: 2 hosts released, nothing is left\nlooked at: ")
    assert "release: host" in down.err and "destroy" not in down.err, down
    assert inside.json("status")["stacks"] == []
    assert traces(fleet) == []
    assert boots == [h.sh("cat /proc/sys/kernel/random/boot_id").stdout for h in fleet.nodes]


@pytest.mark.long
def test_a_host_is_in_one_stack_at_a_time(inside, fleet, tmp_path):
    first = write(tmp_path / "a.yaml", dict(SPEC, name="first", nodes=2))
    second = write(tmp_path / "b.yaml", dict(SPEC, name="second", nodes=2))
    inside("up", first, timeout=300)
    refused = inside("up", second, code=3)
    assert "3 hosts, 1 free where 2 are needed, 2 held by others such as 'first'" in refused.err, refused
    inside("down", "first")
    inside("up", second, timeout=300)
    inside("down", "second")


def test_a_changed_host_key_is_never_accepted(inside, fleet, tmp_path):
    spec = write(tmp_path / "spec.yaml", SPEC)
    known = tmp_path / "known_hosts"
    lines = known.read_text().splitlines()
    other = lines[2].split()[1:]
    known.write_text("\n".join([" ".join([line.split()[0], *other]) if line.startswith(fleet.nodes[0].address + " ")
                                else line for line in lines]) + "\n")
    out = inside("up", spec, "--accept-new-host-key", code=5, timeout=300)
    assert "fleet/0" in out.err and "host key" in out.err and "changed" in out.err, out
    assert fleet.nodes[0].host_key() not in known.read_text()
    inside("down", "fleet")


@pytest.mark.long
def test_an_unknown_host_must_be_accepted_aloud(inside, fleet, tmp_path):
    spec = write(tmp_path / "spec.yaml", dict(SPEC, nodes=1))
    host = fleet.nodes[2]
    write(tmp_path / "fleet.yaml", {"defaults": {"user": "ops", "key": str(fleet.key),
                                                 "bastion": "ops@" + fleet.bastion.address},
                                    "hosts": [host.address]})
    home_known = tmp_path / "home" / ".ssh" / "known_hosts"
    home_known.write_text("%s %s\n" % (fleet.bastion.address, fleet.bastion.host_key()))
    out = inside("up", spec, code=1)
    assert "--accept-new-host-key" in out.err and "not known: " + host.address in out.err, out
    inside("up", spec, "--accept-new-host-key", timeout=300)
    assert "%s %s" % (host.address, host.host_key()) in home_known.read_text()
    inside("status", "fleet")
    inside("down", "fleet")


@pytest.mark.long
def test_an_accepted_key_is_read_back_and_edits_are_seen(inside, fleet, tmp_path):
    """In a home without ~/.ssh, as in a container: the key is kept, and no later run needs the option."""
    spec = write(tmp_path / "spec.yaml", dict(SPEC, nodes=1))
    host = fleet.nodes[1]
    login = {"user": "ops", "key": str(fleet.key), "bastion": "ops@" + fleet.bastion.address}
    write(tmp_path / "fleet.yaml", {"defaults": login, "hosts": [host.address]})
    ssh = tmp_path / "home" / ".ssh"
    shutil.rmtree(ssh)
    assert "--accept-new-host-key" in inside("plan", spec, code=1).err
    inside("plan", spec, "--accept-new-host-key", code=2)
    assert not ssh.exists(), "plan connects to nobody"
    inside("up", spec, "--accept-new-host-key", timeout=300)
    assert ssh.stat().st_mode & 0o777 == 0o700
    known = (ssh / "known_hosts").read_text()
    assert all("%s %s" % (h.address, h.host_key()) in known for h in (host, fleet.bastion)), known
    assert inside("plan", spec, code=0).err == ""
    for edit, said in (({"defaults": login, "hosts": [fleet.nodes[2].address]}, "no longer has %s:22" % host.address),
                       ({"defaults": dict(login, user="root"), "hosts": [host.address]}, "user: ops -> root"),
                       ({"defaults": dict(login, port=2222), "hosts": [host.address]}, "no longer has %s:22" % host.address)):
        write(tmp_path / "fleet.yaml", edit)
        assert said in inside("plan", spec, code=0).err, edit
    assert inside("down", "--dry-run", spec).out.startswith("would be released:\n")
    write(tmp_path / "fleet.yaml", {"defaults": login, "hosts": [host.address]})
    inside("plan", spec, code=0)
    for text, said in (("hosts: [\n", "fleet.yaml:2:1: a value is missing"), ("hosts: []\n", "at least one host")):
        (tmp_path / "fleet.yaml").write_text(text)
        for verb in ("check", "plan", "up"):
            assert said in inside(verb, spec, code=1).err, verb
        done = inside("ssh", "fleet/0", "--", "echo here")
        assert done.out == "here\n" and "its hosts are used with the settings that were read last" in done.err, done
    assert "1 host released, nothing is left" in inside("down", spec).out
    write(tmp_path / "fleet.yaml", {"defaults": login, "hosts": [host.address]})
    inside("plan", spec, code=2)
    inside("up", spec, timeout=300)
    inside("down", "fleet")


@pytest.mark.long
def test_a_host_that_does_not_answer(inside, fleet, tmp_path):
    spec = write(tmp_path / "spec.yaml", dict(SPEC, nodes=1))
    write(tmp_path / "fleet.yaml", {"defaults": {"user": "ops", "key": str(fleet.key), "port": 2222,
                                                 "known_hosts": str(tmp_path / "known_hosts"),
                                                 "bastion": "ops@" + fleet.bastion.address},
                                    "hosts": [fleet.nodes[0].address]})
    out = inside("up", spec, code=6, timeout=300)
    assert "fleet/0 reach: failed" in out.err and "could not connect to %s:2222" % fleet.nodes[0].address in out.err, out
    inside("down", "fleet")
    assert inside.json("status")["stacks"] == []


def test_a_login_that_is_refused(inside, fleet, tmp_path):
    spec = write(tmp_path / "spec.yaml", dict(SPEC, nodes=1))
    text = (tmp_path / "fleet.yaml").read_text().replace("user: ops", "user: nobody")
    (tmp_path / "fleet.yaml").write_text(text)
    out = inside("up", spec, code=5, timeout=300)
    assert "login as 'nobody'" in out.err and "was refused" in out.err and str(fleet.key) in out.err, out
    inside("down", "fleet")


@pytest.mark.parametrize("text,message", [
    ("hosts:\n  - {adress: a}\n", ":2:6: unknown key 'adress' in a host (did you mean 'address'?)"),
    ("hosts: []\n", ":1:8: 'hosts' must be a list with at least one host"),
])
def test_a_wrong_hosts_file(inside, tmp_path, text, message):
    (tmp_path / "fleet.yaml").write_text(text)
    out = inside("up", write(tmp_path / "spec.yaml", SPEC), code=1)
    assert message in out.err, out


@pytest.mark.long
def test_killed_in_the_middle(inside, fleet, tmp_path):
    spec = write(tmp_path / "spec.yaml", SPEC)
    for n in range(4):
        p = inside.popen("up", spec)
        time.sleep(0.15 + 0.4 * n)  # anywhere: the outcome must be the same
        p.send_signal(signal.SIGKILL)
        p.communicate()
        inside("down", "fleet", code=None)
        assert inside.json("status")["stacks"] == []
    inside("up", spec, timeout=300)
    inside("down", "fleet")
    assert traces(fleet) == []
