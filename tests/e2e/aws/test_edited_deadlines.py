# SPDX-License-Identifier: Apache-2.0
"""Somebody edits slots and deadlines of a stack's machines and its claim. A controller with the login key and without the
journal takes none of it for the stack's, writes none of it further, and destroys nothing because of it."""
import time

import pytest

from hostile import tags_of
from second_principal import PAST, make_key, prove, slots_of
from second_principal import accounts_fixture, shared_fixture, victim_fixture  # noqa: F401  # fixtures
from test_gc_elsewhere import at_text, gc

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


@pytest.fixture
def stack(shared, victim, tmp_path):
    """Two proven machines by slot, the first controller, and another one with the key: (genuine, one, other, its spec)."""
    one, key = victim(), make_key(tmp_path)
    genuine = slots_of(shared, one.launch(one.spec(key=key)))
    for slot, id in genuine.items():
        prove(shared, key, id, slot)
    other = victim()
    return genuine, one, other, other.spec(key=key)


def claim(shared, **tags):
    [group] = shared.groups("t4")
    shared.tag(group["GroupId"], **tags)


@pytest.mark.parametrize("expired", [True, False])
@pytest.mark.parametrize("slots", [None, "junk", "900000+1"])
@pytest.mark.matrix(keep=2)
def test_machines_without_a_slot(shared, stack, slots, expired):
    genuine, _, other, spec = stack
    for id in genuine.values():
        shared.tag(id, slots=slots)
    if expired:
        claim(shared, expires=PAST)
    said = other("up", spec, code=1)
    assert shared.alive() == sorted(genuine.values()), said.err
    assert "cannot prove that the stack launched it" in said.err, said.err
    assert any(id in said.err for id in genuine.values()), said.err
    other("plan", spec, code=None)
    said = gc(other)
    assert shared.alive() == sorted(genuine.values()), said


@pytest.mark.parametrize("edited_s", [29 * 86400, 25])
def test_a_claims_deadline_is_not_signed(shared, stack, edited_s):
    """A node is missing. Its replacement would get the deadline, with a proof for which the login key is needed."""
    genuine, one, other, spec = stack
    before = tags_of(shared.about(genuine[0]))["expires"]
    claim(shared, expires=at_text(time.time() + edited_s))
    for id in genuine.values():
        shared.tag(id, deadline=None)
    shared.end(genuine[1])
    said = other("up", spec, "--yes", code=1)
    assert "the deadline of 't4' is not known" in said.err and "'gpuprov extend t4 TIME' sets it" in said.err, said.err
    assert shared.alive() == [genuine[0]]
    assert tags_of(shared.about(genuine[0]))["expires"] == before
    said = gc(other)
    assert shared.alive() == [genuine[0]], said
    # the first controller has its own
    assert before[:16] in one("status", "t4", code=None).out
