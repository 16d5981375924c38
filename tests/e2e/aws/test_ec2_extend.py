# SPDX-License-Identifier: Apache-2.0
"""`gpuprov extend` on EC2: the deadline moves on the nodes, in the tags and in the journal, and on bad days nowhere. What
is true is asked of the hosts and of the cloud, not of gpuprov."""
import calendar
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from ec2_lab import tags
from faultproxy import through
from waiting import wait_for
from ec2_lab import cloud_fixture, key_fixture, machine_fixture, proxies_fixture, spec_fixture  # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
CONF = "/etc/gpuprov/deadline.conf"


def seconds(text):
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


class Stack:
    """One ready stack of a test, and where its deadline is kept."""

    def __init__(self, cloud, gpuprov, path):
        self.cloud, self.gpuprov, self.path, self.name = cloud, gpuprov, path, path.stem
        up = gpuprov.json("up", path, timeout=300)
        assert up["report"]["ready"] is True
        self.hosts = [cloud.lab.host(n["id"]) for n in up["stack"]["nodes"]]

    def on_nodes(self):
        return [int(dict(line.split("=", 1) for line in h.sh("cat " + CONF).stdout.splitlines())["EXPIRES"])
                for h in self.hosts]

    def in_force(self):
        return [int(h.sh("cat /run/gpuprov/deadline").stdout.split()[0].split("=")[1]) for h in self.hosts]

    def in_tags(self):
        things = self.cloud.alive(self.name) + self.cloud.groups(self.name)
        return [seconds(tags(t)["gpuprov:expires"]) for t in things]

    def status(self, *options):
        return self.gpuprov.json("status", self.name, *options)["stacks"][0]

    def everywhere(self):
        """The one deadline that all have."""
        [only] = set(self.on_nodes() + self.in_force() + self.in_tags() + [seconds(self.status()["expires"])])
        assert self.status()["notes"] == [] and self.status("--offline")["expires"] == self.status()["expires"]
        return only


@pytest.fixture(name="stack")
def stack_fixture(cloud, machine, spec):
    return Stack(cloud, machine(), spec(nodes=2, require="host.memory"))


def test_a_deadline_moves_everywhere(stack):
    first = stack.everywhere()
    said = stack.gpuprov.json("extend", stack.name, "3h")
    assert said["moved"] and seconds(said["was"]) == first and abs(seconds(said["expires"]) - time.time() - 10800) < 60
    assert stack.everywhere() == seconds(said["expires"])
    more = stack.gpuprov.json("extend", stack.path, "+30m")
    assert seconds(more["expires"]) == seconds(said["expires"]) + 1800 == stack.everywhere()
    # earlier is allowed and said; the count of used time moves too
    less = stack.gpuprov("extend", stack.name, "20m")
    assert "the nodes end earlier than before" in less.out
    assert stack.everywhere() < first
    for host in stack.hosts:
        words = dict(w.split("=") for w in host.sh("cat /run/gpuprov/deadline").stdout.split())
        assert 0 < int(words["ttl"]) - int(words["used"]) <= 1200
    # a changed ttl is the same move, from the launch on
    stack.path.write_text(stack.path.read_text().replace("ttl: 1h", "ttl: 5h"))
    assert "(the deadline moves to " in stack.gpuprov("plan", stack.path, code=2).out
    assert "the deadline was moved" in stack.gpuprov("up", stack.path).out
    assert stack.everywhere() == first + 4 * 3600
    assert stack.gpuprov("plan", stack.path, code=0)
    # a reboot keeps it: cloud-init runs the installer of the launch again
    [host, _] = stack.hosts
    host.sh("systemctl reboot", check=False)
    wait_for(lambda: host.boots == 2 and host.ssh_up(), 120)
    wait_for(lambda: host.sh("cat /run/gpuprov/deadline", check=False).returncode == 0, 60)
    assert stack.everywhere() == first + 4 * 3600
    # a script of an earlier version reads its file once: the new one takes its place
    host.sh("systemctl stop gpuprov-deadline && rm -r /run/gpuprov && printf 'while :; do sleep 5; done\\n' "
            "> /etc/gpuprov/deadline.sh && systemctl start gpuprov-deadline")
    said = stack.gpuprov.json("extend", stack.name, "5h")
    assert stack.everywhere() == seconds(said["expires"])
    stack.gpuprov("extend", stack.name, "31d", code=1)
    stack.gpuprov("extend", stack.name, "2s", code=1)
    assert stack.everywhere() == seconds(said["expires"])
    stack.gpuprov("down", stack.name)
    stack.cloud.nothing_left()


def kill_at(stack, proxies, do, time_text):
    """kill -9 while the call that writes the tags is under way."""
    proxy = proxies()
    proxy.rule("CreateTags", do, times=None)
    p = stack.gpuprov.popen("extend", stack.name, time_text, env=through(proxy))
    wait_for(lambda: proxy.count("CreateTags") > 0 or p.poll() is not None, 60)
    assert p.poll() is None, p.communicate()
    if do == "hold_after":
        wait_for(lambda: len(set(stack.in_tags())) == 1 and stack.in_tags()[0] == stack.on_nodes()[0], 60)
    p.kill()
    p.communicate()
    proxy.clear()


@pytest.mark.long
def test_killed_between_nodes_and_tags_and_journal(stack, proxies):
    first = stack.everywhere()
    # between the nodes and the tags: both are named, and the earlier one counts
    kill_at(stack, proxies, "hang", "3h")
    assert set(stack.in_tags()) == {first} and min(stack.on_nodes()) > first + 3600
    for said in (stack.gpuprov("status", stack.name).out, stack.gpuprov("plan", stack.path, code=0).out):
        assert "moving the deadline to " in said and "was interrupted" in said and "'gpuprov extend llm TIME' sets all" in said
    assert seconds(stack.status()["expires"]) == first
    stack.gpuprov("extend", stack.name, "2h")
    second = stack.everywhere()
    # the same to an earlier time: the nodes end first, so theirs counts
    kill_at(stack, proxies, "hang", "30m")
    earlier = stack.on_nodes()[0]
    assert earlier < second == stack.in_tags()[0]
    [note] = stack.status()["notes"]
    assert "the earlier one counts, %s" % time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(earlier)) in note
    stack.gpuprov("extend", stack.name, "2h")
    stack.everywhere()
    # between the tags and the journal: nodes and tags agree, and the journal follows them
    kill_at(stack, proxies, "hold_after", "4h")
    [new] = set(stack.on_nodes() + stack.in_tags())
    assert stack.status("--offline")["expires"] != stack.status()["expires"]
    assert seconds(stack.status()["expires"]) == new and stack.status()["notes"] == []
    stack.gpuprov("up", stack.path)
    assert stack.everywhere() == new
    # another machine moved it: this journal only follows
    stack.gpuprov("down", stack.name)


@pytest.mark.long
def test_a_node_that_cannot_take_it_moves_nothing(stack):
    first, hosts = stack.everywhere(), stack.hosts

    def refused(why, code=6):
        said = stack.gpuprov("extend", stack.name, "3h", code=code).err.splitlines()[-1]
        assert "the deadline was not moved" in said and why in said, said
        assert stack.everywhere() == first
        assert "next" not in "".join(h.sh("ls /etc/gpuprov").stdout for h in hosts)
    # full disk
    hosts[1].sh("cp -a /etc/gpuprov /root/kept && mount -t tmpfs -o size=24k full /etc/gpuprov && cp -a /root/kept/. "
                "/etc/gpuprov && { head -c 99999 /dev/zero > /etc/gpuprov/rest || true; }")
    refused("llm/1: could not move its deadline: could not write below /etc/gpuprov")
    hosts[1].sh("umount /etc/gpuprov")
    # it is ending
    hosts[0].sh("mkdir /run/gpuprov/ending")
    refused("llm/0: could not move its deadline: it is ending already")
    hosts[0].sh("rmdir /run/gpuprov/ending")
    # it began to end just before the new deadline was there: the other node is moved back
    hosts[0].sh("systemctl stop gpuprov-deadline && cp /bin/mv /bin/mv.real && "
                "printf '#!/bin/sh\\n/bin/mv.real \"$@\"\\ncase $* in *conf.next-*) mkdir -p /run/gpuprov/ending ;; esac\\n' "
                "> /usr/local/bin/mv && chmod 755 /usr/local/bin/mv && systemctl start gpuprov-deadline")
    wait_for(lambda: hosts[0].sh("cat /run/gpuprov/deadline", check=False).returncode == 0)
    refused("llm/0: could not move its deadline: it began to end before the new deadline was there")
    hosts[0].sh("rm -rf /usr/local/bin/mv /run/gpuprov/ending")
    # its unit does not run, or is of another stack
    hosts[1].sh("systemctl stop gpuprov-deadline")
    said = stack.gpuprov("extend", stack.name, "3h", code=6).err
    assert "llm/1: could not move its deadline: gpuprov-deadline is not running: run 'gpuprov up' first" in said
    hosts[1].sh("systemctl start gpuprov-deadline")
    wait_for(lambda: hosts[1].sh("cat /run/gpuprov/deadline", check=False).returncode == 0)
    # it does not answer
    hosts[1].sh("systemctl stop ssh.socket ssh.service; systemctl mask --runtime ssh.service ssh.socket", check=False)
    stack.path.write_text(stack.path.read_text().replace("access: {", "access: {timeout: 5s, "))
    said = stack.gpuprov("extend", stack.name, "3h", code=6, timeout=200).err.splitlines()[-1]
    assert "the deadline was not moved: llm/1" in said, said
    assert set(stack.on_nodes() + stack.in_tags()) == {first} and stack.status()["notes"] == []
    stack.gpuprov("down", stack.name)


@pytest.mark.long
def test_two_at_once_and_tags_of_others(stack):
    """Two runs end with one of both deadlines at every place. A deadline that somebody wrote by hand is named, and is used
    nowhere; so is a former one that is put back, if it is earlier, and a later one on a part of the nodes is named."""
    def written():
        return {key: tags(stack.cloud.alive()[0])["gpuprov:" + key] for key in ("expires", "deadline")}
    former = written()
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda t: stack.gpuprov.json("extend", stack.name, t), ("2h", "3h")))
    now = stack.everywhere()
    assert now in [seconds(one["expires"]) for one in both]
    [one, other] = stack.cloud.alive()

    def write(thing, **values):
        new = [{"Key": "gpuprov:" + key, "Value": value} for key, value in values.items()]
        stack.cloud.ec2.create_tags(Resources=[thing["InstanceId"]], Tags=new)
    # far in the future, a bit earlier, in the past, and one that this stack had
    earlier = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 600))
    for edit in ({"expires": "2099-01-01T00:00:00Z"}, {"expires": earlier}, {"expires": "2020-01-01T00:00:00Z"}, former):
        for things in ([one], [one, other]):
            for thing in things:
                write(thing, **edit)
            assert seconds(stack.status()["expires"]) == now
            [note] = stack.status()["notes"]
            assert "that this stack did not write, and it is ignored" in note
        stack.gpuprov("gc")
        stack.gpuprov("extend", stack.name, "3h")
        now = stack.everywhere()
    later = written()
    stack.gpuprov("extend", stack.name, "2h")
    now = stack.everywhere()
    write(one, **later)
    assert seconds(stack.status()["expires"]) == now and "different deadlines" in stack.status()["notes"][0]
    stack.gpuprov("extend", stack.name, "2h")
    stack.everywhere()
    stack.gpuprov("down", stack.name)


@pytest.mark.long
@pytest.mark.parametrize("limit", ["idle", "controller"])
def test_nodes_that_nobody_uses_end_themselves(cloud, machine, spec, limit):
    gpuprov, path = machine(), spec(nodes=1, require="host.memory")
    path.write_text(path.read_text().replace("ttl: 1h", "ttl: 1h, %s: 1m" % limit))
    assert gpuprov.json("up", path, timeout=300)["report"]["ready"] is True
    [one] = cloud.alive()
    if limit == "controller":
        host = cloud.lab.host(one["InstanceId"])
        boot, pid, _ = host.sh("cat /home/gpuprov/.gpuprov/contact").stdout.split()
        assert boot == host.sh("cat /proc/sys/kernel/random/boot_id").stdout.strip() and int(pid) > 1
    cloud.lab.wait_no_host(one["InstanceId"])
    assert cloud.lab.about(one["InstanceId"])["ended"] == "itself" and cloud.alive() == []
    gpuprov("down", path)
