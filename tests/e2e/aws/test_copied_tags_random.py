# SPDX-License-Identifier: Apache-2.0
"""What test_copied_tags.py does by name, in an order that Hypothesis makes: somebody else in the account copies and edits
tags, while the victim uses her stack with the journal, with the login key alone, and with neither. In every history no
genuine machine ends before its deadline, there are never more of them than the spec names, and his machines receive
nothing. GPUPROV_HYPOTHESIS=N: that many rounds, other ones in each run."""
import itertools
import os
import pathlib
import tempfile

import pytest
from hostile import HOME, side_by_side, stamp, tags_of
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from second_principal import PAST, SECRET, Victim, make_key, prove, slots_of
from second_principal import accounts_fixture  # noqa: F401

MORE = int(os.environ.get("GPUPROV_HYPOTHESIS", "0"))
NODES = 2
AT_ONCE = 6  # histories of one round: most of the time is waiting for machines that do not answer
pytestmark = [pytest.mark.root, pytest.mark.namespaces]

HIS = "his own"  # a host key
VALUES = {
    "expires": [PAST, stamp(20 * 86400), "yesterday"], "slots": ["0+1", "1+1", "0+2", "1+0", "4095+1"],
    "attempt": ["0", "1", "2", "1000000"], "uid": ["0" * 16, "x"], "owner": ["other"], "stack": ["other"],
    "unit": ["infra"], "claim": ["1"], "spec": ["5" * 64], "hostkey": [HIS, "SHA256:" + "A" * 43],
    "launch": ["0" * 32], "deadline": ["0" * 32], "proof": ["0" * 32]}
# Without the journal a machine is found by these. One who edits them hides it: docs/security.md.
IDENTITY = {"uid", "owner", "stack", "slots", "attempt", "launch", "proof", "hostkey"}
OFTEN = ["expires", "stack", "uid"]  # they decide what gc and `down` end
CHANGE = st.one_of(st.sampled_from(sorted(VALUES)), st.sampled_from(OFTEN)).flatmap(
    lambda key: st.tuples(st.just(key), st.one_of(st.sampled_from(VALUES[key]), st.none())))
CHANGES = st.lists(CHANGE, max_size=3).map(dict)
WHICH = st.integers(0, NODES - 1)
HIS_STEPS = st.one_of(
    st.tuples(st.just("copy"), WHICH, CHANGES, st.booleans(), st.integers(1, 3)),
    st.tuples(st.just("copy"), WHICH, CHANGE.map(lambda c: {"expires": PAST, c[0]: c[1]}), st.booleans(), st.just(1)),
    st.tuples(st.just("copy_claim"), CHANGES),
    st.tuples(st.just("copy_volume"), WHICH, CHANGES),
    st.tuples(st.just("preempt"), WHICH),
    st.tuples(st.just("edit_his"), st.integers(0, 9), CHANGE),
    st.tuples(st.just("edit"), st.integers(0, NODES), CHANGE))
HER_STEPS = st.sampled_from(["up", "plan", "status", "gc", "gc without the journal", "up with the key"]).map(lambda v: (v,))
# He acts before she does, else nothing could be wrong.
HISTORY = st.lists(st.tuples(st.lists(HIS_STEPS, min_size=1, max_size=3), HER_STEPS), min_size=1, max_size=3)


class History:
    """One stack under an owner of its own, so that several do not meet."""

    def __init__(self, shared, program, folder, key, number):
        self.shared, self.key, self.name = shared, key, f"h{number}"
        self.folder, self.program = folder / self.name, program
        self.folder.mkdir()
        self.owner, self.computers = f"owner-{number}", itertools.count()
        self.one = self.computer()
        self.path = self.one.spec(self.name, key=key, nodes=NODES)
        self.his, self.groups, self.edited, self.hidden = [], [], set(), False

    def computer(self):
        made = Victim(self.shared, self.program, self.folder / str(next(self.computers)))
        made.env["GPUPROV_OWNER"] = self.owner
        return made

    def begin(self):
        self.genuine = slots_of(self.shared, self.one.launch(self.path))
        for slot, i in self.genuine.items():
            prove(self.shared, self.key, i, slot)
        self.claim = self.shared.groups(self.name)[0]["GroupId"]
        self.kept = set(self.genuine.values())

    def changed(self, changes):
        return {k: self.shared.server.fingerprint if v == HIS else v for k, v in changes.items()}

    # --- his steps ---

    def copy(self, which, changes, late, count):
        for _ in range(count):
            self.his.append(self.shared.copy(self.genuine[which], late, **self.changed(changes)))

    def copied(self, thing, changes):
        return {k: v for k, v in {**tags_of(thing), **self.changed(changes)}.items() if v is not None}

    def copy_claim(self, changes):
        made = self.shared.group(self.copied(self.shared.group_of(self.claim), changes),
                                 name=f"{self.owner} {len(self.groups)}")
        self.groups.append(made)

    def copy_volume(self, which, changes):
        self.shared.volume(self.copied(self.shared.about(self.genuine[which]), changes))

    def edit_his(self, which, change):
        things = [i for i in self.his if i in self.shared.alive()] + self.groups
        if things:
            self.tag(things[which % len(things)], *change)

    def edit(self, which, change):
        thing = self.genuine.get(which, self.claim)
        if thing in self.shared.alive() or thing == self.claim:
            self.tag(thing, *change)
            self.edited |= {thing} if change[0] == "expires" else set()
            self.hidden = self.hidden or change[0] in IDENTITY

    def preempt(self, which):
        """The cloud's doing: her node ends, and its copies stay."""
        if self.genuine[which] in self.shared.alive():
            self.shared.end(self.genuine[which])
        self.kept.discard(self.genuine[which])

    def tag(self, thing, key, value):
        try:
            self.shared.tag(thing, **self.changed({key: value}))
        except self.shared.clients[HOME].exceptions.ClientError:
            assert thing in self.groups, thing  # gc has ended it

    # --- her steps ---

    def her(self, verb):
        if verb == "gc":
            return self.one("gc", "--in", f"aws/{HOME}", code=None)
        if verb == "gc without the journal":
            return self.computer()("gc", "--in", f"aws/{HOME}", code=None)
        if verb == "up with the key":
            return self.computer()("up", self.path, code=None)
        return self.one(verb, self.name if verb == "status" else self.path, code=None)

    def run(self, turns):
        self.begin()
        for his, (verb,) in turns:
            for step, *how in his:
                getattr(self, step)(*how)
            said = self.her(verb)
            self.check(verb, (turns, said))

    def check(self, verb, why):
        alive, ours = self.shared.alive(), self.ours()
        ended = self.kept - set(alive)
        assert ended <= (self.edited if verb == "gc without the journal" else set()), (ended, why)
        assert self.hidden or len(ours) <= NODES, (ours, why)
        assert SECRET not in self.shared.server.received and self.shared.server.received == "", why
        self.kept = set(ours)

    def ours(self):
        """Machines of the stack's launches, whatever their tags are now."""
        return [i["InstanceId"] for i in self.shared.machines(HOME) if i["InstanceId"].startswith("i-8")
                and any(g["GroupId"] == self.claim for g in i["SecurityGroups"])]


@pytest.mark.long
@settings(max_examples=MORE or 5, derandomize=not MORE, deadline=None, database=None,
          suppress_health_check=list(HealthCheck), phases=[Phase.generate])  # a smaller case costs seconds each
@given(turns=st.lists(HISTORY, min_size=AT_ONCE, max_size=AT_ONCE))
def test_histories(accounts, program, turns):
    accounts.fresh()
    with tempfile.TemporaryDirectory() as folder:
        key = make_key(folder)
        rounds = [History(accounts, program, pathlib.Path(folder), key, n) for n in range(AT_ONCE)]
        side_by_side(*[lambda r=r, t=t: r.run(t) for r, t in zip(rounds, turns, strict=True)])
