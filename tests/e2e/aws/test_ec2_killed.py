# SPDX-License-Identifier: Apache-2.0
"""gpuprov on EC2, killed at any moment, its journal lost, its disk full: the next run finds what there is by
its tags alone, goes on with it or ends it, and nothing is left. What is true is asked of the cloud with
boto3 and of the hosts, not of gpuprov."""
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from ec2_lab import THERE, InLab
from faultproxy import through
from killing import forget, settle
from small_disk import fill, small_disk
from waiting import wait_for
from ec2_lab import cloud_fixture, key_fixture, machine_fixture, proxies_fixture, spec_fixture  # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


def wait_call(p, proxy, ready, seconds=180):
    wait_for(lambda: ready() or p.poll() is not None, seconds)
    assert p.poll() is None, (p.communicate(), [c.action for c in proxy.calls])


# --- killed ---

def moments(rng):
    """Ten moments of a launch: some anywhere, most around the calls that create something."""
    anywhere = [(lambda proxy, n=n: len(proxy.calls) >= n) for n in [rng.randint(1, 20) for _ in range(4)]]
    claim = [lambda proxy: proxy.count("CreateSecurityGroup") > 0] * 2
    run = [lambda proxy: proxy.count("RunInstances") > 0] * 4
    return anywhere + claim + run


@pytest.mark.long
@pytest.mark.parametrize("journal", ["kept", "lost"])
def test_killed_while_launching_down_leaves_nothing(cloud, machine, spec, proxies, journal):
    """kill -9 of `up` at ten random moments, with the journal and without: the next `down` leaves zero."""
    rng = random.Random(20261121)

    def one(i, reached, gpuprov, path, proxy, delay):
        name = path.stem
        p = gpuprov.popen("up", path, "--quiet", env=through(proxy))
        wait_call(p, proxy, lambda: reached(proxy))
        time.sleep(delay)
        p.kill()
        p.communicate()
        if journal == "lost":  # nobody knows then what is still on its way to the cloud
            cloud.lab.call(settle, proxy)
            forget(gpuprov)
        gpuprov("down", path if i % 2 else name)
        cloud.nothing_of(name)

    with ThreadPoolExecutor(10) as pool:
        waits = [pool.submit(one, i, reached, machine(), spec("kill%d" % i, offers=[THERE]), proxies(),
                             rng.choice([0, rng.uniform(0, 0.02), rng.uniform(0, 0.2)]))
                 for i, reached in enumerate(moments(rng))]
        for w in waits:
            w.result()
    cloud.nothing_left()


@pytest.mark.long
def test_killed_after_the_launch_up_goes_on(cloud, machine, spec, proxies):
    """EC2 acted, the answer never came and gpuprov was killed: the next `up` gets the machines by the launch's
    token, enters them with the key made before, and launches none."""
    gpuprov, path, proxy = machine(), spec(nodes=1, require="host.memory"), proxies()
    proxy.rule("RunInstances", "hold_after", times=None)
    p = gpuprov.popen("up", path, env=through(proxy))
    wait_for(cloud.alive, 60)
    p.kill()
    p.communicate()
    [first] = proxy.of("RunInstances")
    proxy.clear()
    up = gpuprov.json("up", path, env=through(proxy), timeout=300)
    # the repeated token shows that the machine is this launch's
    assert up["report"]["ready"] is True
    assert {c.params["ClientToken"] for c in proxy.of("RunInstances")} == {first.params["ClientToken"]}
    assert [n["id"] for n in up["stack"]["nodes"]] == [i["InstanceId"] for i in cloud.alive()]
    gpuprov("down", path)
    cloud.nothing_left()


@pytest.mark.long
@pytest.mark.parametrize("at", ["bootstrap: hello", "check: host.memory"])
def test_killed_after_the_nodes_are_there_up_goes_on(cloud, machine, spec, at):
    """kill -9 while the nodes are set up, and while they are checked: the next `up` goes on with the same
    machines, and `down` leaves nothing."""
    gpuprov, path = machine(), spec(nodes=2, require="train.ddp")
    path.write_text(path.read_text().replace("echo hello >", "sleep 1; echo hello >"))
    p = gpuprov.popen("up", path)
    seen = []
    for line in p.stderr:
        seen.append(line)
        if at in line:
            break
    assert p.poll() is None, seen
    p.kill()
    p.communicate()
    launched = sorted(i["InstanceId"] for i in cloud.alive("llm"))
    assert len(launched) == 2
    up = gpuprov.json("up", path, timeout=200)
    assert up["report"]["ready"] is True
    assert sorted(n["id"] for n in up["stack"]["nodes"]) == launched == sorted(i["InstanceId"] for i in cloud.alive())
    gpuprov("down", "llm")
    cloud.nothing_left()


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("at", ["bootstrap: hello", "check: host.memory"])
def test_killed_after_the_nodes_are_there_down_leaves_nothing(cloud, machine, spec, at):
    gpuprov, path = machine(), spec(nodes=1, require="host.memory")
    p = gpuprov.popen("up", path)
    assert any(at in line for line in p.stderr)
    p.kill()
    p.communicate()
    assert len(cloud.alive("llm")) == 1
    gpuprov("down", path)
    cloud.nothing_left()


# --- lost memories ---

@pytest.mark.long
def test_the_journal_is_lost(cloud, machine, spec, key):
    """Tags alone are enough to see and to end; with the login key also to go on. A changed host key is
    never accepted, whoever asks."""
    first, path = machine(), spec(nodes=1, require="host.memory", access=", key: %s" % key)
    up = first.json("up", path, timeout=300)
    [one] = cloud.alive()
    forget(first)
    seen = first.json("status", "llm")["stacks"][0]
    assert [n["id"] for n in seen["nodes"]] == [one["InstanceId"]]
    assert seen["nodes"][0]["address"] == one["PublicIpAddress"] and seen["uid"] == up["stack"]["uid"]

    without_key = machine()
    other = path.with_name("other.yaml")
    other.write_text(path.read_text().replace(", key: %s" % key, ""))
    said = without_key("up", other, code=1).err
    assert "login key of 'llm' is not on this machine" in said and "gpuprov down llm" in said

    adopting = machine()
    adopted = adopting.json("up", path, timeout=300)
    assert adopted["report"]["ready"] is True
    assert [n["id"] for n in adopted["stack"]["nodes"]] == [one["InstanceId"]]
    assert adopting.json("validate", path, timeout=300)["ready"] is True
    assert [i["InstanceId"] for i in cloud.alive()] == [one["InstanceId"]]

    host = cloud.lab.host(one["InstanceId"])
    was = host.host_key()
    host.sh("ssh-keygen -q -t ed25519 -N '' -f /tmp/k && cp /tmp/k /tmp/k.pub /root && "
            "cat /tmp/k > /etc/ssh/ssh_host_ed25519_key && cat /tmp/k.pub > /etc/ssh/ssh_host_ed25519_key.pub && "
            "systemctl restart ssh")
    assert host.host_key() != was
    for who, verb in ((adopting, "validate"), (machine(), "up")):  # the journal pins it, and the tag does
        said = who(verb, path, code=5, timeout=300).err
        assert "llm/0" in said and "is pinned" in said
    assert adopting("ssh", "llm/0", "--", "true", code=255).out == ""

    machine()("down", "llm")  # a machine that knows nothing
    cloud.nothing_left()


@pytest.mark.long
def test_killed_and_forgotten_while_the_launch_is_on_its_way(cloud, machine, spec, proxies):
    """The journal is lost, the claim is seconds old and the launch reaches the cloud after `down` began: the
    claim is not believed to be all there is before its settling time is over."""
    gpuprov, path, proxy = machine(), spec(offers=[THERE]), proxies()
    proxy.rule("RunInstances", "late", delay=8)
    p = gpuprov.popen("up", path, env=through(proxy))
    wait_call(p, proxy, lambda: proxy.count("RunInstances") > 0)
    p.kill()
    p.communicate()
    forget(gpuprov)
    assert cloud.alive("llm") == []
    said = gpuprov("down", path, env=through(proxy))
    assert proxy.busy == 0 and "searching for the launches of another run" in said.err, said
    cloud.nothing_left()


@pytest.mark.long
def test_down_on_a_full_disk(cloud, program, spec, proxies, tmp_path, request):
    """The disk of this machine is full: what is billed is ended and proven gone first, then it is said, with
    the ids, what could not be written down."""
    request.addfinalizer(cloud.sweep)
    with small_disk(tmp_path / "small", "400k") as small:
        gpuprov, path, proxy = InLab(cloud.lab, program, small / "state", tmp_path), spec(offers=[THERE]), proxies()
        proxy.rule("RunInstances", "hold_after", times=None)
        p = gpuprov.popen("up", path, env=through(proxy))
        alive = wait_for(lambda: cloud.alive("llm"), 120)
        p.kill()
        p.communicate()
        fill(small)
        last = gpuprov("down", "llm", code=1, timeout=200).err.splitlines()[-1]
        assert "disk is full" in last and "gpuprov down llm" in last, last
        assert all(i["InstanceId"] in last for i in alive), last
        cloud.nothing_left()
        (small / "fill").unlink()
        gpuprov("down", "llm")
        assert gpuprov.json("status")["stacks"] == []
