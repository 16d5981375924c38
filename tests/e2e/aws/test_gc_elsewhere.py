# SPDX-License-Identifier: Apache-2.0
"""`gc` and `up` of a machine that has no journal of a stack's launch: it ends only what it has listed and judged, and what
tags say of the rest is a claim. The stack's own controller lives, and may launch at any moment."""
import contextlib
import sqlite3
import time

import pytest

from faultproxy import FaultProxy, several, through
from hostile import AWAY, HOME, OWNER, tags_of
from second_principal import PAST, make_key, proof_of, prove, slots_of
from second_principal import accounts_fixture, shared_fixture, victim_fixture  # noqa: F401  # fixtures
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
BLIND = [{"code": "UnauthorizedOperation", "times": 1}, {"code": "RequestLimitExceeded", "status": 503, "times": 9}]


@pytest.fixture(name="proxies")
def proxies_fixture(shared):
    yield from several(lambda **kw: FaultProxy(shared.moto.url, **kw).start())


@pytest.fixture
def keyed(shared, victim, tmp_path):
    """keyed(expires=None): another controller with the login key that has adopted the stack. Returns both, the genuine
    machines by slot, and deadline(id, at), which writes that with a proof, as `extend` does."""
    def make(expires=None):
        one, key = victim(), make_key(tmp_path)
        path = one.spec(key=key)
        genuine = slots_of(shared, one.launch(path))
        uid = tags_of(shared.about(genuine[0]))["uid"]

        def deadline(id, at):
            shared.tag(id, expires=at_text(at), deadline=proof_of(key, OWNER, "t4", "deadline", uid, at))
        for slot, id in genuine.items():
            prove(shared, key, id, slot)
            if expires is not None:
                deadline(id, expires)
        other = victim()
        other("up", other.spec(key=key), code=None)
        assert shared.alive() == sorted(genuine.values())
        return one, path, other, genuine, deadline
    return make


def at_text(s):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(s))


def gc(g, *words, **kw):
    return g("gc", *(words or ("--in", f"aws/{HOME}")), code=None, **kw)


@pytest.mark.parametrize("blind", BLIND)
@pytest.mark.matrix(keep=1)
def test_a_region_that_is_not_seen_at_first(shared, victim, proxies, blind):
    """An expired copy is all that the first list shows. The genuine machines appear while it is destroyed."""
    one = victim()
    genuine = one.launch(one.spec())
    his = shared.instance({**tags_of(shared.about(genuine[0])), "expires": PAST}, AWAY)
    proxy = proxies()
    proxy.rule("DescribeInstances", "error", region=HOME, **blind)
    said = gc(victim(), "--in", "aws", env=through(proxy))
    assert set(shared.alive()) - {his} == set(genuine), said
    said = gc(victim(), "--in", "aws")
    assert shared.alive() == sorted(genuine) and shared.groups("t4"), said


def test_a_region_that_is_never_seen(shared, proxies, keyed):
    _, _, other, genuine, _ = keyed()
    shared.instance({**tags_of(shared.about(genuine[0])), "expires": PAST}, AWAY)
    proxy = proxies()
    proxy.rule("DescribeInstances", "error", code="UnauthorizedOperation", region=HOME, times=None)
    said = gc(other, "--in", "aws", env=through(proxy))
    assert set(genuine.values()) <= set(shared.alive()), said


def test_the_claim_of_a_stack_without_machines(shared, victim):
    """They were preempted. An expired copy does not end the claim under which they are launched again."""
    one = victim()
    [genuine] = one.launch(one.spec(nodes=1))
    his = shared.copy(genuine, expires=PAST)
    shared.end(genuine)
    said = gc(victim())
    assert his not in shared.alive() and shared.groups("t4"), said
    [claim] = shared.groups("t4")
    shared.tag(claim["GroupId"], expires=PAST)
    said = gc(victim())
    assert not shared.groups("t4"), said


def test_a_former_deadline_that_is_put_back(shared, keyed):
    _, _, other, genuine, deadline = keyed(int(time.time()) + 7200)
    deadline(genuine[0], int(time.time()) - 60)
    said = gc(other)
    assert shared.alive() == sorted(genuine.values()), said


@pytest.mark.parametrize("at", [None, 3, 5])
@pytest.mark.matrix(keep=1)
def test_an_adopted_stack_is_launched_again_meanwhile(shared, proxies, keyed, at):
    """This journal has the deadline of before an `extend`. at: the list of this `gc` at which the other one launches."""
    former = int(time.time()) + 20
    one, path, other, genuine, deadline = keyed(former)
    for id in genuine.values():
        deadline(id, former + 7200)
        shared.end(id)
    time.sleep(max(0, former + 2 - time.time()))
    proxy = proxies(latency=0 if at is None else 0.5)
    p = other.popen("gc", "--in", f"aws/{HOME}", env=through(proxy))

    def lists():
        return len([c for c in proxy.calls if c.action == "DescribeInstances"])
    if at is not None:
        wait_for(lambda: lists() >= at or p.poll() is not None, 60)
        one("up", path, code=None)
    said = p.communicate()
    assert shared.groups("t4"), said
    assert len(shared.alive()) == (0 if at is None else 2), said


@pytest.mark.parametrize("key_is", ["here", "away"])
@pytest.mark.parametrize("proof", ["whole", "removed", "not yet"])
@pytest.mark.matrix(keep=2)
def test_a_stack_that_another_controller_launched_again_and_extended(shared, victim, tmp_path, key_is, proof):
    """This journal launched it, the node was preempted, and the other one moved the deadline. What it launched may have no
    proof of the machine, because somebody removed the tag or because it starts just now."""
    one, key = victim(), make_key(tmp_path)
    [first] = one.launch(one.spec(key=key, nodes=1))
    prove(shared, key, first, 0)
    shared.end(first)
    one("status", "t4", code=None)
    other = victim()
    [now] = other.launch(other.spec(key=key, nodes=1))
    if proof != "not yet":
        prove(shared, key, now, 0)
    uid, later = tags_of(shared.about(now))["uid"], int(time.time()) + 7200
    shared.tag(now, expires=at_text(later), deadline=proof_of(key, OWNER, "t4", "deadline", uid, later))
    if proof == "removed":
        shared.tag(now, proof=None)
    with contextlib.closing(sqlite3.connect(one.state / "journal.db")) as db, db:
        db.execute("UPDATE stacks SET expires_s = ?", (int(time.time()) - 60,))
    if key_is == "away":
        key.rename(key.with_name("away"))
    said = gc(one)
    assert shared.alive() == [now] and shared.groups("t4"), said
    if key_is == "away":  # by its own word, which nothing can check, it is over
        shared.tag(now, expires=PAST)
        said = gc(one)
        assert shared.alive() == [] and not shared.groups("t4"), said


def test_what_is_gone_is_forgotten(shared, keyed):
    """The other half: nothing of the stack is there, and its deadline has passed."""
    former = int(time.time()) + 20
    one, path, other, _, _ = keyed(former)
    one("down", path)
    time.sleep(max(0, former + 2 - time.time()))
    other("gc", "--in", f"aws/{HOME}")
    assert other.json("status", "--in", f"aws/{HOME}")["stacks"] == []
    assert not list((other.state / "stacks").glob("*"))


def test_a_stack_that_is_launched_between_plan_and_claim(shared, victim, proxies):
    """This run's plan says that it makes the claim. It goes on under none that another one has made, and ends nothing of it."""
    one, other, proxy = victim(), victim(), proxies()
    proxy.rule("DescribeImages", "hold_after", times=None)
    p = other.popen("run", other.spec(), "--yes", "--", "true", env=through(proxy))
    wait_for(lambda: proxy.held > 0 or p.poll() is not None, 120)
    genuine = one.launch(one.spec())
    proxy.release()
    _, err = p.communicate()
    assert "another run has just made the claim of 't4'" in err, err
    assert shared.alive() == sorted(genuine) and shared.groups("t4"), err
