# SPDX-License-Identifier: Apache-2.0
"""What test_hostile.py does by name, with tags that Hypothesis makes: in every case no file outside the state
folder changes, no process starts, nothing of others ends, and no machine with our owner and stack is called
gone. GPUPROV_HYPOTHESIS=N: that many cases of each verb, other ones in each run."""
import os
import pathlib
import tempfile

import pytest
from hostile import AWAY, HOME, OWNER, REGIONS, Account, Machine, claim_tags, stamp, tags, tags_of, uid
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

MORE = int(os.environ.get("GPUPROV_HYPOTHESIS", "0"))
STACK = "t4"
# What paths, shells, EC2's filters, terminals and readers of numbers give a meaning to. No control character
# that XML cannot carry: EC2 takes none either.
PIECES = ["../", "..", "/", "\\", "victimdir", "~", "$(touch pwned)", "`touch pwned`", ";touch pwned;", "'", '"', "|",
          "&", "\n", "\t", " ", "*", "?", "%s%n", "%2e", "\x7f", "\u009b31m", "\u202e", "\ufeff", "\u2028", "\u00e9",
          "\U0001f600", "-o", "ProxyCommand=touch pwned", "0", "1", "9" * 12, "+", "-1", "nan", "1e999", "a", "f" * 15,
          "A" * 43, "SHA256:", "T", "Z", ":", "<", ">", "&amp;", "aws", "us-east-1", OWNER, STACK]
TEXT = st.lists(st.sampled_from(PIECES), max_size=5).map(lambda p: "".join(p)[:255])
NEARLY = {
    "owner": [OWNER, OWNER + "x", "other", OWNER.upper(), "*"], "stack": [STACK, STACK + "x", "T4", "*", "../t4"],
    "uid": [uid(STACK), "0" * 16, "0" * 15, "0" * 17, "F" * 16, "../../../victimdir"],
    "spec": ["5" * 64, "5" * 63, "G" * 64],
    "expires": [stamp(-3600), stamp(3600), stamp(29 * 86400), "0000-00-00T00:00:00Z"],
    "created": [stamp(-7200), stamp(7200), "1969-12-31T23:59:59Z"], "slots": ["0+1", "0+4096", "4096+1", "1+0", "-1+1"],
    "attempt": ["0", "1000000", "2147483648", "-1"], "price": ["0.5", "-1", "inf", "1e999", ""],
    "claim": ["1", "0", ""],
    "regions": [HOME, f"{AWAY} {HOME}", f"{HOME} {AWAY}", "*", "../x", "us-nowhere-1", " "],
    "region/" + AWAY: ["1", "0"], "region/../x": ["1"],
    "hostkey": ["SHA256:" + "A" * 43, "SHA256:$(touch pwned)"]}


@st.composite
def changed(draw, whole):
    """Tags as gpuprov writes them, a few of them changed, taken away, or kept."""
    made = dict(whole)
    for key in draw(st.lists(st.sampled_from(sorted(NEARLY)), max_size=3, unique=True)):
        value = draw(st.one_of(st.none(), st.sampled_from(NEARLY[key]), TEXT))
        if value is None:
            made.pop(key, None)
        else:
            made[key] = value
    return made


THINGS = st.lists(st.one_of(
    st.tuples(st.just("instance"), changed(tags(STACK)), st.sampled_from(REGIONS)),
    st.tuples(st.just("group"), changed(claim_tags(STACK)), st.sampled_from(REGIONS)),
    st.tuples(st.just("volume"), changed(tags(STACK)), st.sampled_from(REGIONS))), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def account():
    made = Account()
    yield made
    made.close()


def plant(account, things):
    """EC2's own limits hold: what it refuses is not there."""
    for n, (kind, all_of, region) in enumerate(things):
        if kind == "group":
            account.group(all_of, region, name=f"gpuprov-{OWNER}/{STACK}" if n == 0 else f"planted {n}")
        else:
            getattr(account, kind)(all_of, region)


def inventory(account):
    """{(kind, id): tags} of all that is there."""
    found = {("instance", i["InstanceId"]): tags_of(i) for i in account.machines()}
    for region in REGIONS:
        found.update({("volume", i): tags_of(v) for i, v in account.volumes(region).items()})
        found.update({("group", g["GroupId"]): tags_of(g)
                      for g in account.clients[region].describe_security_groups()["SecurityGroups"]})
    return found


def examine(account, program, things, words):
    account.fresh()
    plant(account, things)
    before = inventory(account)
    with tempfile.TemporaryDirectory() as top:
        one = Machine(account, program, pathlib.Path(top) / "computer")
        said = one.tell(*[one.spec(STACK) if w == "SPEC" else w for w in words])
        one.check()
    after = inventory(account)
    ended = {k: t for k, t in before.items() if k not in after and k[0] != "volume"}
    ended.update({k: t for k, t in before.items() if k not in after and k[0] == "volume" and t})
    for thing, its in ended.items():
        assert words[0] in ("down", "gc") and "--dry-run" not in words, (thing, its, said["said"])
        assert its.get("owner") == OWNER, (thing, its, said["said"])
        assert words[0] == "gc" or its.get("stack") == STACK, (thing, its, said["said"])
    assert all(after[k] == before[k] for k in after if k in before), said["said"]
    ours = [(k, t) for k, t in after.items() if (t.get("owner"), t.get("stack")) == (OWNER, STACK)]
    left = [i for (kind, i), _ in ours if kind == "instance"]
    if left and words[0] == "down":
        assert said["code"] == 8 and said["gone"] is not True, (left, said["said"])
        assert all(i in said["said"].out for i in left), (left, said["said"])
    if left and words[0] == "status":
        assert all(s["phase"] != "gone" for s in said["stacks"]), (left, said["said"])
        assert all(i in said["said"].out for i in left), (left, said["said"])
    if left and words[0] == "gc":
        assert all(i in said["said"].out for i in left), (left, said["said"])


def cases(n):
    return settings(max_examples=MORE or n, derandomize=not MORE, deadline=None, database=None,
                    suppress_health_check=list(HealthCheck),
                    phases=list(Phase) if MORE else [Phase.generate])  # a smaller case costs seconds each


@pytest.mark.long
@cases(8)
@given(things=THINGS)
def test_down(account, program, things):
    examine(account, program, things, ["down", STACK])


@pytest.mark.long
@cases(15)
@given(things=THINGS)
def test_gc(account, program, things):
    examine(account, program, things, ["gc"])


@pytest.mark.long
@cases(25)
@given(things=THINGS, words=st.sampled_from([["status", STACK], ["gc", "--dry-run"], ["plan", "SPEC"],
                                             ["ssh", STACK, "--config"], ["logs", STACK], ["status", "SPEC"]]))
def test_reading(account, program, things, words):
    examine(account, program, things, words)
