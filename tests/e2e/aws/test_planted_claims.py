# SPDX-License-Identifier: Apache-2.0
"""Somebody who may make and tag things in the account plants a claim with a stack's name, while the place of the genuine
stack cannot be read, or after the stack has ended. Absence from a list that was not made proves nothing, and a claim gives
a uid, but no right to what has it."""
import contextlib
import sqlite3
import time

import pytest

from hostile import AWAY, HOME, claim_tags, listed, never_gone, tags, tags_of
from hostile import account_fixture, clouds_fixture, computer_fixture, proxies_fixture  # noqa: F401  # fixtures
from faultproxy import through
from second_principal import make_key

FOREIGN = "a" * 16


def plant(account, kind):
    """A claim of that name with a uid of its own, in a region that the stack does not use."""
    own = claim_tags("t4", uid=FOREIGN, regions=AWAY)
    if kind == "group":
        return account.group(own, AWAY)
    made = account.clients[AWAY].create_volume(AvailabilityZone=AWAY + "a", Size=1, TagSpecifications=[
        {"ResourceType": "volume", "Tags": listed(own)}])
    return made["VolumeId"]


def blind(proxies):
    proxy = proxies()
    for action in ("DescribeInstances", "DescribeSecurityGroups", "DescribeVolumes"):
        proxy.rule(action, "error", code="UnauthorizedOperation", region=HOME, times=None)
    return through(proxy)


def rows(one, query):
    with contextlib.closing(sqlite3.connect(one.state / "journal.db")) as db:
        return db.execute(query).fetchall()


def expire(one):
    with contextlib.closing(sqlite3.connect(one.state / "journal.db")) as db, db:
        db.execute("UPDATE stacks SET expires_s = ?", (int(time.time()) - 60,))


@pytest.mark.parametrize("kind", ["volume", "group"])
@pytest.mark.parametrize("words", [("down", "t4"), ("down", "t4", "--in", f"aws/{AWAY}"), ("gc", "--in", "aws"),
                                   ("status", "t4")])
@pytest.mark.matrix(keep=2)
def test_the_journal_keeps_a_stack_whose_place_is_not_seen(account, computer, proxies, kind, words):
    one = computer()
    made, _ = one.up(one.spec("t4"), "t4")
    [(uid,)] = rows(one, "SELECT uid FROM stacks")
    plant(account, kind)
    if words[0] == "gc":
        expire(one)
    said = one.tell(*words, env=None if AWAY in words[-1] else blind(proxies))
    assert said["code"] == 8 and "continuing with the cloud's" not in said["said"].err, said["said"]
    assert words[0] == "gc" or made in said["said"].out + said["said"].err, said["said"]
    assert rows(one, "SELECT uid FROM stacks") == [(uid,)] and (one.state / "stacks" / uid).exists()
    assert (made,) in rows(one, f"SELECT id FROM resources WHERE uid = '{uid}'")
    if words[0] == "status" or AWAY in words[-1]:  # the others end it by its id, and then wait for a list
        assert account.alive() == [made]
    one("down", "t4")
    assert not account.alive() and not account.groups("t4")


@pytest.mark.parametrize("kind", ["none", "volume", "group"])
@pytest.mark.matrix(keep=1)
def test_a_planted_claim_hides_no_region_that_was_not_read(account, computer, proxies, kind):
    """Without a journal: whose claim that is, and so which regions count, is not known."""
    made = account.instance(tags("t4"), HOME)
    account.group(claim_tags("t4"), HOME)
    if kind != "none":
        plant(account, kind)
    env = blind(proxies)
    for words in (["status", "t4"], ["down", "t4", "--dry-run"]):
        said = computer().tell(*words, env=env)
        assert said["code"] == 8 and f"not looked at: aws {HOME}" in said["said"].err, said["said"]
    never_gone(computer().tell("down", "t4", env=env))
    assert account.alive() == [made]


@pytest.mark.parametrize("key", ["own", "same"])
def test_a_tombstone_ends_no_launch_of_another_controller(account, computer, proxies, tmp_path, key):
    """It names uid, slots and attempt. All of these are the same for another controller that launches under the old claim,
    which somebody has put back."""
    one, other = computer(), computer()
    access = {"access": {"key": str(make_key(tmp_path)), "ssh_from": ["203.0.113.0/24"]}} if key == "same" else {}
    proxy = proxies()
    proxy.rule("RunInstances", "drop_before", times=None)
    one("up", one.spec("t4", **access), code=8, env=through(proxy))
    [claim] = account.groups("t4")
    one("down", "t4", code=None)
    assert rows(one, "SELECT state FROM intents WHERE note = 'ended by down' AND kind = 0") and not account.groups("t4")
    account.group(tags_of(claim))
    made, _ = other.up(other.spec("t4", limits={"ttl": "2h"}, **access), "t4")
    said = one("gc", "--in", f"aws/{HOME}", code=None)
    assert account.alive() == [made] and account.groups("t4"), said
