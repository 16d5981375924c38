# SPDX-License-Identifier: Apache-2.0
"""An account in which everybody can write tags, groups and machines, and somebody who knows the owner, the name
and the uid of a stack does: no file outside the state folder changes, no process starts, nothing of others is
ended, and nothing of ours is called gone. Claims, regions, rules and lost launches: test_hostile_stacks.py. What
Hypothesis makes of it: test_hostile_random.py. What is true is asked of moto with boto3."""
import pytest
from hostile import AWAY, HOME, OWNER, claim_tags, never_gone, rules, side_by_side, stamp, tags
from hostile import account_fixture, clouds_fixture, computer_fixture, proxies_fixture  # noqa: F401


# --- 1: identities that are paths ---

PATHS = ["../../../victimdir", "../../victimdir", "../victimdir", "..", ".", "/tmp/victimdir", "~/victimdir", "",
         "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0", "0123456789abcde/", "0123456789abcdef ",
         "%2e%2e%2fvictimdir", "....//victimdir", "victimdir\\..", "*", "$HOME", "\u2024\u2024/victimdir"]


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("billed", [False, True])
def test_a_uid_that_is_a_path(account, computer, billed):
    one = computer()
    paths = PATHS if not billed else PATHS[:4]
    ids = []
    for n, path in enumerate(paths):
        ids.append(account.group(claim_tags("t4", expires=-3600, uid=path), name=f"planted {n}"))
        if billed:
            ids.append(account.instance(tags("t4", expires=-3600, uid=path)))
    alive = account.alive()
    for words in (["gc"], ["gc", "--dry-run"], ["down", "t4"], ["status", "t4"], ["gc"]):
        said = one.tell(*words)
        assert said["code"] == (8 if billed else 0), said["said"]
        reported = said["stacks"][0]["unreadable"] if words[0] == "status" else said["unreadable"]
        assert {r["id"] for r in reported} >= {i for i in ids if billed or i.startswith("sg-")}
    text = one("gc", code=8 if billed else 0)
    assert all(f"left alone: security-group {i}" in text.out or f"{i} " in text.out for i in ids)
    assert account.alive() == alive and len(account.groups("t4")) == len(paths)


STACKS = ["../../..", "..", "/", "t4/../../victimdir", "T4", "-t4", "t" * 41, "t4\u202e", "*"]


def test_a_stack_that_is_a_path(account, computer):
    """No filter of gpuprov asks for such a name; gc, which lists all that the owner has, leaves it alone."""
    one = computer()
    groups = [account.group(claim_tags("t4", expires=-3600, stack=s), name=f"planted {n}")
              for n, s in enumerate(STACKS)]
    said = one.tell("gc")
    assert said["code"] == 0 and sorted(r["id"] for r in said["unreadable"]) == sorted(groups), said["said"]
    for stack in STACKS:
        assert one.tell("down", stack)["code"] == 1, stack
    for group in groups:
        account.group_of(group)


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("path", ["../../../victimdir", "..", "/tmp/victimdir"])
def test_a_claim_whose_uid_is_a_path_is_not_taken(account, computer, path):
    one = computer()
    group = account.group(claim_tags("t4", uid=path))
    for expires in (-3600, 29 * 86400):
        account.tag(group, expires=stamp(expires))
        said = one("up", one.spec("t4"), code=None)
        assert said.code not in (0, 8) and group in said.err and "its tag 'uid' is not" in said.err, said
        assert account.alive() == []
    assert rules(account.group_of(group)) == set()


# --- 2: host keys that are shell text ---

KEYS = ["SHA256:$(touch {f})", "SHA256:`touch {f}`;touch {f}", "'; touch {f}; '", "SHA256:" + "A" * 42 + "'",
        "SHA256:x\nProxyCommand touch {f}\n", "| touch {f}", "SHA256:" + "A" * 43 + " -oProxyCommand=touch"]


@pytest.mark.long
def test_a_host_key_that_is_shell_text(account, computer):
    """Neither a computer that launched the machine nor one that adopts it lets a shell read the tag."""
    def one_key(stack, key, one, other):
        path = one.spec(stack)
        made, _ = one.up(path, stack)
        key = key.format(f=one.pwned)
        account.tag(made, hostkey=key)
        for who in (one, other):
            said = who.tell("status", stack)
            assert said["stacks"][0]["nodes"][0]["id"] == made, said["said"]
            config = who("ssh", stack, "--config", code=None).out
            assert "touch" not in config and key not in config, config
        one.again(path)
        assert account.alive(stack) == [made]

    jobs = [(f"k{n}", key, computer(), computer()) for n, key in enumerate(KEYS)]
    side_by_side(*[lambda job=job: one_key(*job) for job in jobs])


# --- 9: tags of our own machine ---

CHANGES = [("uid", "0" * 16), ("uid", "../x"), ("uid", None), ("stack", "other"), ("stack", "../x"), ("stack", None),
           ("slots", "9+1"), ("slots", "99999999999+1"), ("slots", None), ("owner", "other"), ("owner", "../x"),
           ("owner", None), ("expires", stamp(-3600)), ("expires", "yesterday"), ("price", "1e999"), ("price", "nan")]


@pytest.mark.long
@pytest.mark.parametrize("journal", ["kept", "lost"])
def test_tags_of_our_machine_changed(account, computer, journal):
    """With the journal the machine is found by its id and ended. Without it: ended, or reported by its id with
    exit 8. A machine without our owner's tag is not seen: it is left, and the result
    names the owner that was looked for."""
    def one_change(n, key, value, one):
        stack = f"s{n}"
        if journal == "kept":
            made, _ = one.up(one.spec(stack), stack)
        else:  # not in the claim's group, for which `down` waits ten minutes while a machine has it
            made, _ = account.instance(tags(stack)), account.group(claim_tags(stack))
        account.tag(made, **{key: value})
        said = one.tell("down", stack)
        there = made in account.alive()
        if journal == "kept":
            assert not there and said["code"] == 0 and said["gone"] is True, (key, value, said["said"])
        elif key == "owner":
            assert there and said["code"] == 0, (key, value, said["said"])
            assert said["owner"] == OWNER
        else:  # with another name it may be another stack's, whose uid somebody copied
            unknown = (key == "uid" and value != "0" * 16) or key == "stack"
            assert there == unknown, (key, value, said["said"])
            if there:
                never_gone(said, made)
            else:
                assert said["code"] == 0 and said["gone"] is True, (key, value, said["said"])

    jobs = [(n, key, value, computer()) for n, (key, value) in enumerate(CHANGES)]
    side_by_side(*[lambda job=job: one_change(*job) for job in jobs])


def test_gc_keeps_what_somebody_called_expired_apart(account, computer):
    """A machine whose stack tag is no stack's name any more is seen by gc, and may be billed."""
    made = account.instance(tags("t4", stack="../x"))
    said = computer().tell("gc")
    assert said["code"] == 8 and [r["id"] for r in said["unreadable"]] == [made] and account.alive() == [made]


# --- 10: others ---

@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("owner", ["other", OWNER.upper(), "*"])
def test_what_is_of_others_is_left_alone(account, computer, owner):
    """The same stack name and uid under another owner's tags."""
    theirs = [account.instance(tags("t4", owner=owner, expires=-60), region) for region in (HOME, AWAY)]
    volume = account.volume(tags("t4", owner=owner, expires=-60))
    group = account.group(claim_tags("t4", owner=owner, expires=-60), owner="other")
    mine = account.instance(tags("t4"))
    own_group = account.group(claim_tags("t4"))
    one = computer()
    assert one.tell("gc")["code"] == 0
    said = one.tell("down", "t4")
    assert said["code"] == 0 and said["gone"] is True and mine not in account.alive()
    assert one.tell("gc")["code"] == 0
    assert account.alive() == sorted(theirs) and volume in account.volumes()
    assert [g["GroupId"] for g in account.groups("t4")] == [group] and own_group != group


def test_others_have_the_claims_name(account, computer):
    group = account.group(claim_tags("t4", owner="other"), owner=OWNER)
    one = computer()
    said = one("up", one.spec("t4"), code=None)
    assert said.code == 1 and "of 'other'" in said.err, said
    said = one.tell("down", "t4")
    assert said["code"] == 0 and account.group_of(group) and account.alive() == []


# --- 11: numbers ---

NUMBERS = [{"slots": "4095+1"}, {"slots": "4096+1"}, {"slots": "0+4097"}, {"slots": "-1+2"}, {"slots": "0+0"},
           {"slots": "2147483647+2147483647"}, {"slots": "00+1"}, {"attempt": "2147483648"}, {"attempt": "-1"},
           {"attempt": "9" * 200}, {"expires": "9999-12-31T23:59:59Z"}, {"price": "-5"}, {"price": "1" * 200}]


@pytest.mark.long
def test_numbers_out_of_range(account, computer):
    def one_number(stack, more, one):
        made = account.instance(tags(stack, **more))
        path = one.spec(stack)
        assert one.tell("status", stack)["code"] == 0
        plan = one("plan", path, code=None)
        assert plan.code in (0, 1, 2), plan
        said = one.tell("down", path)
        assert said["code"] == 0 and said["gone"] is True and made not in account.alive(), said["said"]

    jobs = [(f"n{n}", more, computer()) for n, more in enumerate(NUMBERS)]
    side_by_side(*[lambda job=job: one_number(*job) for job in jobs])


@pytest.mark.long
def test_many_machines_for_one_slot(account, computer):
    """Forty machines have the tags of node 0, and forty groups those of the claim: all machines are ended."""
    made = account.instance(tags("t4"), MinCount=1, MaxCount=1), *[account.instance(tags("t4")) for _ in range(39)]
    for n in range(40):
        account.group(claim_tags("t4"), name=f"planted {n}")
    one = computer()
    seen = one.tell("status", "t4")
    assert seen["code"] == 0 and seen["stacks"][0]["nodes"][0]["id"] == min(made), seen["said"]
    said = one.tell("down", "t4")
    assert said["code"] == 0 and said["gone"] is True and account.alive() == [], said["said"]
    assert account.groups("t4") == []
