# SPDX-License-Identifier: Apache-2.0
"""Somebody else in the account copies every tag of a stack onto a machine, a group or a volume of his own, and edits
tags. He has neither the journal nor the login key. No genuine machine ends because of it, nothing is sent to his
machine, and `down` ends it. What Hypothesis makes of it: test_copied_tags_random.py. What is true is asked of moto
with boto3, and of his SSH server."""
import pytest
from faultproxy import FaultProxy, several, through
from hostile import HOME, OWNER, claim_tags, tags_of
from second_principal import PAST, SECRET, make_key, prove, slots_of
from second_principal import accounts_fixture, shared_fixture, victim_fixture  # noqa: F401
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


@pytest.fixture(name="proxies")
def proxies_fixture(shared):
    yield from several(lambda **kw: FaultProxy(shared.moto.url, **kw).start())


def nothing_received(shared):
    """Neither a command nor a secret."""
    assert SECRET not in shared.server.received and shared.server.received == ""
    assert "Accepted" not in shared.server.said


def warnings_of(said, machine):
    return [line for line in said.err.splitlines() if machine in line and "warning" in line]


def everything_ends(shared, one, what):
    assert one.json("down", what)["gone"] is True
    assert shared.alive() == []


# --- machines ---

@pytest.mark.parametrize("late", [False, True], ids=["first id", "last id"])
def test_a_copy_does_not_replace_a_node(shared, victim, late):
    one = victim()
    path = one.spec()
    genuine = one.launch(path)
    foreign = [shared.copy(i, late) for i in genuine]
    said = one("up", path, code=None)
    assert shared.alive() == sorted(genuine + foreign)
    nothing_received(shared)
    for i in foreign:
        assert len(warnings_of(said, i)) == 1, said
    everything_ends(shared, one, path)


@pytest.mark.parametrize("late", [False, True], ids=["first id", "last id"])
def test_a_copy_does_not_replace_a_validated_node(shared, victim, late, tmp_path):
    """The copies have the proof of the machine that they are copied from, too."""
    one, key = victim(), make_key(tmp_path)
    path = one.spec(key=key)
    genuine = one.launch(path)
    for slot, i in slots_of(shared, genuine).items():
        prove(shared, key, i, slot)
    foreign = [shared.copy(i, late) for i in genuine]
    foreign += [shared.copy(i, late, hostkey=tags_of(shared.about(i))["hostkey"]) for i in genuine]
    one("up", path, code=None)
    assert shared.alive() == sorted(genuine + foreign)
    nothing_received(shared)
    everything_ends(shared, one, path)


@pytest.mark.parametrize("late", [False, True], ids=["first id", "last id"])
def test_a_copy_does_not_take_the_place_of_a_preempted_node(shared, victim, late):
    one = victim()
    path = one.spec(nodes=1)
    [genuine] = one.launch(path)
    foreign = shared.copy(genuine, late)
    shared.end(genuine)
    said = one("up", path, code=None)
    [new] = [i for i in shared.alive() if i != foreign]
    assert new.startswith("i-8") and foreign in shared.alive(), said
    nothing_received(shared)
    assert len(warnings_of(said, foreign)) == 1, said
    everything_ends(shared, one, path)


def test_a_copy_that_knows_the_first_host_key(shared, victim):
    """The key of the first contact is in the user-data of the genuine machine."""
    one = victim()
    path = one.spec(nodes=1)
    [genuine] = one.launch(path)
    shared.server.show(shared.first_host_key(genuine))
    foreign = shared.copy(genuine)
    one("up", path, code=None)
    assert shared.alive() == sorted([genuine, foreign])
    shared.end(genuine)
    one("up", path, code=None)
    assert foreign in shared.alive() and len(shared.alive()) == 2
    nothing_received(shared)


@pytest.mark.parametrize("first", [True, False], ids=["his key", "the first host key"])
def test_up_was_killed_before_it_read_the_reply_of_its_launch(shared, victim, proxies, first):
    one, proxy = victim(), proxies(tokens=True)
    path = one.spec(nodes=1)
    proxy.rule("RunInstances", "hold_after", times=None)
    p = one.popen("up", path, env=through(proxy))
    [genuine] = wait_for(shared.alive, 120)
    p.kill()
    p.communicate()
    proxy.release()
    proxy.clear()
    if not first:
        shared.server.show(shared.first_host_key(genuine))
    foreign = [shared.copy(genuine), shared.copy(genuine, late=True)]
    said = one("up", path, code=None, env=through(proxy))
    assert shared.alive() == sorted([genuine, *foreign]), said
    nothing_received(shared)
    nodes = one.json("status", "t4")["stacks"][0]["nodes"]
    assert [n["id"] for n in nodes] == [genuine], said
    everything_ends(shared, one, path)


@pytest.mark.parametrize("edits", [{"slots": "5+2"}, {"slots": "1+2"}, {"attempt": "7"}, {"uid": "0" * 16},
                                   {"owner": "somebody"}], ids=lambda e: " ".join(e.values()))
def test_the_reply_to_a_repeated_launch_has_edited_tags(shared, victim, proxies, edits):
    """`up` was killed before it read the reply of its launch. EC2 may answer the same token with the tags of now."""
    one, proxy = victim(), proxies(tokens=True)
    path = one.spec(nodes=2)
    proxy.rule("RunInstances", "hold_after", times=None)
    p = one.popen("up", path, env=through(proxy))
    genuine = wait_for(shared.alive, 120)
    p.kill()
    p.communicate()
    proxy.release()
    proxy.clear()
    tags = tags_of(shared.about(genuine[0]))
    slots = slots_of(shared, genuine)
    [(key, value)] = edits.items()
    for i in genuine:
        shared.tag(i, **edits)
    old, new = (b"<value>%s</value>" % v.encode() for v in (tags[key], value))
    proxy.rule("RunInstances", "edit", old=old, new=new, times=1)
    said = one("up", path, code=None, env=through(proxy))
    assert shared.alive() == sorted(genuine), said
    nodes = one.json("status", "t4")["stacks"][0]["nodes"]
    assert {n["slot"]: n["id"] for n in nodes} == slots, said
    everything_ends(shared, one, path)


def test_a_copy_on_a_slot_that_the_spec_does_not_have(shared, victim):
    one = victim()
    path = one.spec(nodes=1)
    [genuine] = one.launch(path)
    foreign = [shared.copy(genuine, slots="1+1"), shared.copy(genuine, slots="4095+1")]
    one("up", path, code=None)
    assert genuine in shared.alive() and set(shared.alive()) <= {genuine, *foreign}
    nothing_received(shared)


# --- without the journal ---

@pytest.mark.parametrize("late", [False, True], ids=["first id", "last id"])
def test_the_login_key_tells_them_apart(shared, victim, late, tmp_path):
    """The journal is lost, and the login key is the user's own."""
    one, key = victim(), make_key(tmp_path)
    path = one.spec(key=key)
    genuine = slots_of(shared, one.launch(path))
    for slot, i in genuine.items():
        prove(shared, key, i, slot)
    foreign = [shared.copy(i, late) for i in genuine.values()]
    foreign += [shared.copy(i, late, hostkey=tags_of(shared.about(i))["hostkey"]) for i in genuine.values()]
    other = victim()
    said = other("up", other.spec(key=key), code=None)
    assert shared.alive() == sorted([*genuine.values(), *foreign]), said
    nothing_received(shared)
    for i in foreign:
        assert warnings_of(said, i), said
    nodes = other.json("status", "t4")["stacks"][0]["nodes"]
    assert {n["slot"]: n["id"] for n in nodes} == genuine, said
    everything_ends(shared, other, path)


@pytest.mark.parametrize("keyed", [False, True], ids=["no key", "another key"])
def test_without_journal_and_key_nothing_is_launched(shared, victim, keyed, tmp_path):
    one = victim()
    genuine = one.launch(one.spec(nodes=1))
    foreign = shared.copy(genuine[0])
    other = victim()
    path = other.spec(nodes=2, key=make_key(tmp_path) if keyed else None)
    said = other("up", path, code=None)
    assert said.code not in (0, 130) and "'gpuprov down t4'" in said.err.splitlines()[-1], said
    assert shared.alive() == sorted([*genuine, foreign]), said
    nothing_received(shared)
    seen = other("status", "t4", "--json", code=None)
    assert genuine[0] in seen.out and foreign in seen.out, seen
    everything_ends(shared, other, path)


@pytest.mark.parametrize("words", [["ssh", "t4/0", "--", "cat"], ["cp", "FILE", "t4/0:x"], ["validate", "SPEC"], ["logs", "t4"],
                                   ["recover", "t4"], ["extend", "t4", "2h"], ["ssh", "t4", "--config"]],
                         ids=lambda words: " ".join(words[:1] + words[2:3]))
def test_no_verb_takes_a_copy_for_a_node(shared, victim, words):
    """On a computer that knows nothing, and on the one of a stack whose machine has ended."""
    one, other = victim(), victim()
    path = one.spec(nodes=1)
    [genuine] = one.launch(path)
    foreign = shared.copy(genuine)
    shared.end(genuine)
    (one.work / "secret").write_text(SECRET)
    for who in (one, other):
        it = {"FILE": one.work / "secret", "SPEC": path}
        p = who.popen(*[it.get(w, w) for w in words])
        wait_for(lambda p=p: p.poll() is not None or "Accepted" in shared.server.said, 120)
        p.kill()
        out, err = p.communicate()
        nothing_received(shared)
        assert shared.server.address not in out and shared.server.fingerprint not in out, (out, err)
    assert shared.alive() == [foreign]


# --- gc ---

def gc(who):
    return who("gc", "--in", f"aws/{HOME}", code=None)


@pytest.mark.parametrize("journal", ["kept", "lost"])
def test_gc_ends_an_expired_copy_alone(shared, victim, journal):
    one = victim()
    genuine = one.launch(one.spec())
    foreign = [shared.copy(genuine[0], expires=PAST), shared.copy(genuine[0], late=True, expires=PAST)]
    said = gc(one if journal == "kept" else victim())
    assert shared.alive() == sorted(genuine) and foreign, said


@pytest.mark.parametrize("journal", ["kept", "lost"])
@pytest.mark.parametrize("changes", [{"stack": "other"}, {"uid": "0" * 16}, {"stack": "other", "uid": "0" * 16},
                                     {"slots": "4095+1"}, {"slots": None}, {"spec": None, "attempt": None}],
                         ids="-".join)
def test_gc_ends_no_genuine_machine_for_half_a_copy(shared, victim, journal, changes):
    """The uid counts in whatever name, and the name with whatever uid."""
    one = victim()
    genuine = one.launch(one.spec())
    shared.copy(genuine[0], expires=PAST, **changes)
    said = gc(one if journal == "kept" else victim())
    assert set(genuine) <= set(shared.alive()), said
    assert one.json("status", "t4")["stacks"][0]["nodes"], said


@pytest.mark.parametrize("journal", ["kept", "lost"])
@pytest.mark.parametrize("kind", ["group", "claim", "volume"])
def test_gc_ends_no_genuine_machine_for_something_else_that_expired(shared, victim, journal, kind):
    one = victim()
    genuine = one.launch(one.spec())
    copied = {**tags_of(shared.about(genuine[0])), "expires": PAST}
    if kind == "volume":
        shared.volume(copied)
    else:
        [claim] = shared.groups("t4")
        all_of = {**tags_of(claim), "expires": PAST} if kind == "claim" else copied
        shared.group(all_of, name="his")
    said = gc(one if journal == "kept" else victim())
    assert shared.alive() == sorted(genuine), said


@pytest.mark.parametrize("changes", [{"expires": PAST}, {"expires": PAST, "stack": "other"}, {"expires": PAST, "uid": "0" * 16},
                                     {"expires": PAST, "slots": "9+1", "attempt": "7"}, {"expires": PAST, "owner": "other"}],
                         ids="-".join)
def test_gc_with_the_journal_and_edited_tags_of_genuine_machines(shared, victim, changes):
    one = victim()
    genuine = one.launch(one.spec())
    for i in genuine:
        shared.tag(i, **changes)
    said = gc(one)
    assert shared.alive() == sorted(genuine), said
    one("status", "t4", code=None)
    gc(one)
    assert shared.alive() == sorted(genuine)


def test_gc_with_an_edited_claim(shared, victim):
    one = victim()
    genuine = one.launch(one.spec())
    [claim] = shared.groups("t4")
    shared.tag(claim["GroupId"], expires=PAST, created=PAST)
    for words in (["status", "t4"], ["gc", "--in", f"aws/{HOME}"], ["up", one.spec()], ["gc", "--in", f"aws/{HOME}"]):
        one(*words, code=None)
        assert shared.alive() == sorted(genuine), words


def test_an_edited_deadline_is_not_adopted(shared, victim, tmp_path):
    """Who adopts the stack with the login key does not take a deadline that the key has not proven, so gc ends
    nothing by it."""
    one, key = victim(), make_key(tmp_path)
    genuine = slots_of(shared, one.launch(one.spec(key=key)))
    for slot, i in genuine.items():
        prove(shared, key, i, slot)
    other = victim()
    other("up", other.spec(key=key), code=None)
    for i in genuine.values():
        shared.tag(i, expires=PAST)
    other("up", other.spec(key=key), code=None)
    said = gc(other)
    assert shared.alive() == sorted(genuine.values()), said


# --- two stacks ---

@pytest.mark.parametrize("journal", ["kept", "lost"])
@pytest.mark.parametrize("what", ["copy", "edit"])
def test_down_of_one_stack_leaves_another(shared, victim, journal, what, tmp_path):
    """A machine has the name of one stack and the uid of another: it ends with the first one, and nothing else of the
    second one does."""
    one, key = victim(), make_key(tmp_path)
    one.launch(one.spec("first", key=key, nodes=1))
    second = one.launch(one.spec("second", key=key))
    if what == "copy":
        shared.copy(second[0], stack="first")
    else:
        shared.tag(second[0], stack="first")
    other = one if journal == "kept" else victim()
    said = other("down", "first", code=None)
    left = set(second) - ({second[0]} if what == "edit" and journal == "lost" else set())
    assert left <= set(shared.alive()), said


# --- claims and units ---

def second_claim(shared, **changes):
    """A claim of the same name in another network, where EC2 takes the same group name."""
    ec2 = shared.clients[HOME]
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    [claim] = shared.groups("t4")
    put = {**tags_of(claim), "uid": "0" * 16, **changes}
    return ec2.create_security_group(
        GroupName=claim["GroupName"], Description="x", VpcId=vpc, TagSpecifications=[
            {"ResourceType": "security-group", "Tags": [{"Key": "gpuprov:" + k, "Value": v} for k, v in put.items()]}])["GroupId"]


@pytest.mark.parametrize("changes", [{}, {"expires": PAST}, {"created": PAST}], ids=lambda c: "-".join(c) or "copied")
def test_a_second_claim_does_not_move_the_uid(shared, victim, changes):
    one = victim()
    path = one.spec()
    genuine = one.launch(path)
    uid = tags_of(shared.about(genuine[0]))["uid"]
    second_claim(shared, **changes)
    for words in (["status", "t4"], ["plan", path], ["up", path], ["gc", "--in", f"aws/{HOME}"], ["up", path]):
        said = one(*words, code=None)
        assert shared.alive() == sorted(genuine), said
    assert one.json("status", "t4")["stacks"][0]["uid"] == uid


def test_an_edited_claim_does_not_move_the_uid(shared, victim):
    """The genuine claim itself, and beside it a machine of the uid that it names now."""
    one = victim()
    path = one.spec()
    genuine = one.launch(path)
    uid = tags_of(shared.about(genuine[0]))["uid"]
    [claim] = shared.groups("t4")
    shared.tag(claim["GroupId"], uid="0" * 16)
    foreign = shared.copy(genuine[0], uid="0" * 16)
    for words in (["up", path], ["gc", "--in", f"aws/{HOME}"], ["up", path]):
        said = one(*words, code=None)
        assert shared.alive() == sorted([*genuine, foreign]), said
    assert one.json("status", "t4")["stacks"][0]["uid"] == uid
    nothing_received(shared)


def unit_folder(one, *names):
    path = one.work / "unit"
    path.mkdir()
    (path / "gpuprov.unit").write_text("infra\n")
    for name in names:
        one.spec(name, path, nodes=1)
    return path


@pytest.mark.parametrize("journal", ["kept", "lost"])
@pytest.mark.parametrize("what", ["machine", "claim", "claim of another uid", "machine of another uid"])
def test_a_copied_unit_does_not_prune(shared, victim, journal, what):
    """The victim's stack is in no unit. Somebody gives his copies the tag of a unit of the victim's."""
    one = victim()
    other = one if journal == "kept" else victim()
    one.env["GPUPROV_OWNER"] = other.env["GPUPROV_OWNER"] = OWNER
    genuine = one.launch(one.spec())
    changes = {"unit": "infra", **({"uid": "0" * 16} if "another" in what else {})}
    if "machine" in what:
        shared.copy(genuine[0], **changes)
    else:
        [claim] = shared.groups("t4")
        shared.group({**tags_of(claim), **changes}, name="his")
    said = other("up", "--prune", unit_folder(other, "a"), code=None)
    assert set(genuine) <= set(shared.alive()), said
    nothing_received(shared)


@pytest.mark.parametrize("same", [True, False], ids=["same offer", "another offer"])
def test_a_planted_claim_gives_another_name_the_uid_of_a_stack(shared, victim, proxies, tmp_path, same):
    """Both stacks have one login key, and the second controller does not have the journal of the first. Neither their
    launches nor their proofs meet."""
    key, env = make_key(tmp_path), through(proxies(tokens=True))
    one, other = victim(), victim()
    path = one.spec("m", key=key, nodes=1)
    one("up", path, code=6, env=env)
    [genuine] = shared.alive("m")
    prove(shared, key, genuine, 0)
    shared.group(claim_tags("n", uid=tags_of(shared.about(genuine))["uid"]))
    offers = {} if same else {"offers": [{"provider": "aws", "regions": [HOME], "market": "on-demand",
                                          "instance_type": "t3.small"}]}
    other("up", other.spec("n", key=key, nodes=1, **offers), code=None, env=env)
    assert genuine in shared.alive("m")
    other("status", path, code=None, env=env)
    said = other("down", "n", code=None, env=env)
    assert shared.alive() == [genuine] and f"{genuine} is no longer there" not in said.err, said
