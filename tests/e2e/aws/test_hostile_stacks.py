# SPDX-License-Identifier: Apache-2.0
"""Claims, regions, rules and launches that somebody else wrote, edited or cut, and looks that are refused: what
test_hostile.py promises, over whole stacks. What is true is asked of moto with boto3."""
import calendar
import contextlib
import sqlite3
import time

import pytest
from hostile import AWAY, HOME, OWNER, SSH_FROM, THIRD, Blind, claim_tags, denied, looked, never_gone, rules
from hostile import side_by_side, stamp, tags, tags_of, uid
from hostile import account_fixture, clouds_fixture, computer_fixture, proxies_fixture  # noqa: F401
from faultproxy import through
from waiting import wait_for


# --- 3: regions that the spec does not name any more ---

@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("claim", ["with its regions", "of an older version", "taken away"])
def test_down_of_an_edited_spec_without_a_journal(account, computer, claim):
    one, other = computer(), computer()
    made, _ = one.up(one.spec("t4", region=AWAY), "t4")
    [group] = account.groups("t4", AWAY)
    account.tag(group["GroupId"], AWAY, created=stamp(-3600))  # else `down` waits for it to settle
    if claim == "of an older version":
        account.tag(group["GroupId"], AWAY, regions=None)
    if claim == "taken away":
        account.tag(group["GroupId"], AWAY, claim=None)
    said = other.tell("down", other.spec("t4", region=HOME))
    assert said["code"] == 0 and said["gone"] is True, said["said"]
    assert account.alive() == [] and made in said["said"].err
    assert looked(said)["aws", AWAY]["checked"] is True
    text = computer()("down", one.spec("t4", region=HOME))
    assert AWAY in text.out.split("looked at")[-1], text


def test_down_of_an_edited_spec_reads_the_claims_regions(account, computer):
    """The claim is in the spec's region, the machine in another one that only the claim names."""
    account.group(claim_tags("t4", regions=f"{HOME} {AWAY}"))
    made = account.instance(tags("t4"), AWAY)
    one = computer()
    said = one.tell("down", one.spec("t4", region=HOME))
    assert said["code"] == 0 and said["gone"] is True and account.alive() == [], said["said"]
    assert made in said["said"].err and looked(said)["aws", AWAY]["checked"] is True


def test_two_controllers_with_other_regions(account, computer):
    """Each adds its regions to the claim and takes none away, and `down` without a journal looks at all of them."""
    one = computer()
    group = account.group(claim_tags("t4", regions=HOME, **{"region/" + THIRD: "1"}))  # the other one's
    wider = [{"provider": "aws", "regions": [HOME, AWAY], "market": "on-demand", "instance_type": "t3.small"}]
    one.up(one.spec("t4", offers=wider), "t4")
    now = tags_of(account.group_of(group))
    account.tag(group, HOME, created=stamp(-3600))  # else `down` waits for it to settle
    assert now["regions"] == HOME and {k for k in now if k.startswith("region/")} == {"region/" + AWAY, "region/" + THIRD}
    said = computer().tell("down", one.spec("t4"))
    assert said["code"] == 0 and said["gone"] is True and account.alive() == [], said["said"]
    assert {region for name, region in looked(said) if name == "aws"} >= {HOME, AWAY, THIRD}


def test_a_claim_without_regions_stays_everywhere(account, computer):
    """Of an older version, or somebody took the tag away: an `up` of one region does not narrow it to that one."""
    group = account.group(claim_tags("t4", regions=None))
    one = computer()
    one.up(one.spec("t4"), "t4")
    elsewhere = account.instance(tags("t4", slots="1+1"), THIRD)  # another controller's
    assert not [k for k in tags_of(account.group_of(group)) if k.startswith("region")]
    account.tag(group, HOME, created=stamp(-3600))
    said = computer().tell("down", one.spec("t4"))
    assert said["code"] == 0 and account.alive() == [] and elsewhere in said["said"].err, said["said"]


def test_a_claim_that_hides_a_region_hides_no_known_machine(account, computer):
    """Its regions tag is written by somebody else: what the journal and the spec know is looked at all the same."""
    one = computer()
    made, _ = one.up(one.spec("t4", region=AWAY), "t4")
    [group] = account.groups("t4", AWAY)
    account.tag(group["GroupId"], AWAY, regions=THIRD)
    said = one.tell("down", "t4")
    assert said["code"] == 0 and account.alive() == [] and made in said["said"].err, said["said"]


def test_a_claim_that_hides_a_region_hides_nothing_that_was_seen(account, computer):
    """Without a journal all regions are looked at once; what was seen there is not forgotten when the claim, as
    somebody wrote it, names other regions."""
    account.group(claim_tags("t4", regions=AWAY), AWAY)
    damaged = account.instance(tags("t4", uid="F" * 16), THIRD)
    whole = account.instance(tags("t4"), HOME)
    never_gone(computer().tell("down", "t4"), damaged)
    assert account.alive() == [damaged], whole


@pytest.mark.long
def test_a_changed_spec_without_the_journal_of_its_launch(account, computer):
    """No change of a key is lost: what the machine shows is compared, and the rest is said to be unknown."""
    offer = {"provider": "aws", "regions": [HOME], "market": "on-demand", "instance_type": "t3.small"}
    one, other = computer(), computer()
    one.up(one.spec("t4", offers=[offer]), "t4")
    with contextlib.closing(sqlite3.connect(one.state / "journal.db")) as db, db:
        db.execute("UPDATE stacks SET spec=''")
    other = one  # it knows the machines, and not the spec of their launch
    note = "note: the nodes were launched with another spec, which this journal does not have"
    assert note not in other("plan", one.spec("t4", offers=[offer]), code=2).out
    for change in ({"instance_type": "t3.large"}, {"regions": [AWAY]}):
        path = other.spec("t4", offers=[{**offer, **change}])
        for verb in ("plan", "up"):
            said = other(verb, path, code=1)
            assert f"no offer of this one allows node 0, which is aws t3.small {HOME}: correct 'offers'" in said.err
    assert note in other("plan", other.spec("t4", offers=[{**offer, "market": "spot"}]), code=2).out
    assert len(account.alive()) == 1
    assert other.tell("down", "t4")["code"] == 0


@pytest.mark.parametrize("seconds", [-7200, 7200])
def test_the_time_left_is_that_of_the_clouds_clock(account, computer, proxies, seconds):
    """A machine whose clock is wrong by hours: the deadline is in the cloud's time, and so is what is left."""
    account.group(claim_tags("t4", expires=stamp(seconds + 3 * 3600)))
    account.instance(tags("t4", expires=stamp(seconds + 3 * 3600)))
    proxy = proxies()
    proxy.rule(None, "skew", times=None, seconds=seconds)
    text = computer()("status", "t4", "--in", f"aws/{HOME}", env={"AWS_ENDPOINT_URL": proxy.url}).out
    assert "(2h59m left" in text or "(3h left" in text, text  # seconds are rounded


# --- 4: claims that somebody else made, or left ---

def plant_rules(account, group, region=HOME):
    client = account.clients[region]
    other = client.create_security_group(GroupName="other", Description="x")["GroupId"]
    prefixes = client.create_managed_prefix_list(PrefixListName="p", MaxEntries=1, AddressFamily="IPv4")
    prefix = prefixes["PrefixList"]["PrefixListId"]
    client.authorize_security_group_ingress(GroupId=group, IpPermissions=[
        {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}],
         "Ipv6Ranges": [{"CidrIpv6": "::/0"}]},
        {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}], "Ipv6Ranges": [{"CidrIpv6": "::/0"}]},
        {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 65535, "UserIdGroupPairs": [{"GroupId": other}]},
        {"IpProtocol": "udp", "FromPort": 53, "ToPort": 53, "PrefixListIds": [{"PrefixListId": prefix}]}])
    return ["0.0.0.0/0", "::/0", other, prefix]


def seconds_of(text):
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


@pytest.mark.parametrize("created", [-30 * 86400, -5, None])
def test_a_claim_that_was_there(account, computer, created):
    """Its times and its rules are the spec's after `up`, and what was revoked is reported."""
    when = {"created": stamp(created) if created else None}
    group = account.group(claim_tags("t4", expires=29 * 86400, regions="*", **when))
    foreign = plant_rules(account, group)
    one = computer()
    made, said = one.up(one.spec("t4"), "t4")
    [machine] = account.machines()
    for thing in (machine, account.group_of(group)):
        left = seconds_of(tags_of(thing)["expires"]) - time.time()
        assert 3000 < left < 3700, tags_of(thing)
    assert tags_of(machine)["uid"] == uid("t4") and machine["InstanceId"] == made
    assert rules(account.group_of(group)) == {SSH_FROM, ("-1", None, None, group)}
    for source in foreign:
        assert f"from {source}, which access.ssh_from does not list: revoked" in said, (source, said)


def test_a_claim_of_the_same_spec_that_is_old_is_not_shared(account, computer):
    """Somebody copies the spec's hash: its times are taken only with the spec's ttl and of the last minutes."""
    one, other = computer(), computer()
    path = one.spec("t4")
    first, _ = one.up(path, "t4")
    spec_hash = tags_of(account.machines()[0])["spec"]
    one("down", "t4")
    assert account.alive() == [] and first
    group = account.group(claim_tags("t4", expires=29 * 86400, created=stamp(-60), spec=spec_hash))
    other.up(other.spec("t4"), "t4")
    for thing in (account.machines()[0], account.group_of(group)):
        assert seconds_of(tags_of(thing)["expires"]) - time.time() < 3700, tags_of(thing)


# --- 5: a launch of an earlier spec whose outcome is not known ---

def cut_launch(one, account, proxy, path):
    """`up` whose RunInstances never arrives, and kill -9: one open intent. Its token."""
    proxy.rule("RunInstances", "hang", times=None)
    p = one.popen("up", path, env=through(proxy))
    wait_for(lambda: proxy.count("RunInstances"))
    p.kill()
    p.communicate()
    assert account.alive(path.stem) == []
    [call] = proxy.of("RunInstances")
    proxy.clear()
    return call.params["ClientToken"]


def corrected(account, one, proxy):
    cut_launch(one, account, proxy, one.spec("t5", offers=[
        {"provider": "aws", "regions": [HOME], "market": "on-demand", "instance_type": "t3.2xlarge"}]))
    path = one.spec("t5", offers=[
        {"provider": "aws", "regions": [HOME], "market": "on-demand", "instance_type": "t3.small"}])
    said = one.tell("plan", path)
    settle = [i for i in said["items"] if i["action"] == "settle"]
    assert said["code"] == 2 and "t3.2xlarge" in settle[0]["what"] and "not repeated" in settle[0]["why"], said
    one.up(path, "t5", proxy)
    assert {c.params["InstanceType"] for c in proxy.of("RunInstances")} == {"t3.small"}
    assert [i["InstanceType"] for i in account.machines() if tags_of(i)["stack"] == "t5"] == ["t3.small"]


def repeated(account, one, proxy):
    path = one.spec("t6")
    token = cut_launch(one, account, proxy, path)
    said = one.tell("plan", path)
    assert "then repeated" in [i for i in said["items"] if i["action"] == "settle"][0]["why"]
    one.up(path, "t6", proxy)
    assert [c.params["ClientToken"] for c in proxy.of("RunInstances")] == [token]


def dropped(account, one, proxy):
    """The launch was acted on and its reply lost: the machine is found, and none is launched again."""
    path = one.spec("t7")
    proxy.rule("RunInstances", "hold_after", times=None)
    p = one.popen("up", path, env=through(proxy))
    [made] = wait_for(lambda: account.alive("t7"))
    p.kill()
    p.communicate()
    proxy.clear()
    said = one.tell("plan", path)
    assert "settle" in [i["action"] for i in said["items"]] or made in str(said["items"]), said
    one.again(path, proxy)
    assert account.alive("t7") == [made]  # the repeated token names it: its tags could be anybody's


@pytest.mark.long
def test_a_launch_without_a_known_outcome(account, computer, proxies):
    jobs = [(what, computer(), proxies()) for what in (corrected, repeated, dropped)]
    side_by_side(*[lambda job=job: job[0](account, *job[1:]) for job in jobs])


# --- 6: a region that may not be looked at ---

def test_one_denied_region(account, computer, proxies):
    """The machines elsewhere are found and ended; what may be in that region keeps exit 8. Only a claim that the journal
    knows for the stack's own shows that nothing is there: anybody can write another one."""
    proxy = proxies(denied(account, THIRD))
    own = computer()
    own.up(own.spec("own", region=AWAY), "own")
    own.env["AWS_ENDPOINT_URL"] = proxy.url
    made = {s: account.instance(tags(s), AWAY) for s in ("bare", "claimed", "limited", "hidden")}
    hidden = account.instance(tags("hidden"), THIRD)
    account.group(claim_tags("claimed", regions=f"{HOME} {AWAY}"))
    one, two, three, four = computer(), computer(), computer(), computer()
    for g in (one, two, three, four):
        g.env["AWS_ENDPOINT_URL"] = proxy.url

    seen = one.tell("status", "bare")
    assert seen["code"] == 8 and [n["id"] for n in seen["stacks"][0]["nodes"]] == [made["bare"]], seen["said"]
    seen = two.tell("status", "claimed")
    assert seen["code"] == 8 and [n["id"] for n in seen["stacks"][0]["nodes"]] == [made["claimed"]], seen["said"]
    bare, claimed, mine, limited, gap = side_by_side(
        lambda: one.tell("down", "bare"), lambda: two.tell("down", "claimed"), lambda: own.tell("down", "own"),
        lambda: three.tell("down", "limited", "--in", f"aws/{AWAY},aws/{HOME}"), lambda: four.tell("down", "hidden"))
    assert bare["code"] == 8 and bare["gone"] is None and THIRD in bare["said"].err, bare["said"]
    assert looked(bare)["aws", THIRD]["checked"] is False and looked(bare)["aws", AWAY]["checked"] is True
    assert claimed["code"] == 8 and claimed["gone"] is not True and THIRD in claimed["said"].err, claimed["said"]
    assert mine["code"] == 0 and mine["gone"] is True and ("aws", THIRD) not in looked(mine), mine["said"]
    assert limited["code"] == 0 and limited["gone"] is True and ("aws", THIRD) not in looked(limited), limited["said"]
    assert gap["code"] == 8 and gap["gone"] is None, gap["said"]
    assert account.alive() == [hidden]


def test_gc_with_one_denied_region(account, computer, proxies):
    proxy = proxies(denied(account, THIRD))
    account.instance(tags("old", expires=-60), AWAY)
    other = account.instance(tags("old", expires=-60), THIRD)
    said = computer().tell("gc", env=through(proxy))
    assert said["code"] == 8 and said["complete"] is False, said["said"]
    assert account.alive() == [other]
    assert computer().tell("gc", "--in", f"aws/{AWAY}", env=through(proxy))["code"] == 0


@pytest.mark.long
def test_a_region_that_is_denied_only_later(account, computer, proxies):
    """The journal knows a machine there: it is named, and is not gone."""
    one = computer()
    path = one.spec("t4", region=AWAY)
    made, _ = one.up(path, "t4")
    proxy = proxies(denied(account, AWAY))
    never_gone(one.tell("down", path, env=through(proxy)), made)
    assert account.alive() == [made]
    assert one.tell("down", "t4")["code"] == 0 and account.alive() == []


# --- 7: who may reach the machines ---

def test_access_of_a_running_stack(account, computer):
    """Narrowed, widened and moved on a running stack: applied in the claim and in the group beside it."""
    one = computer()
    path = one.spec("t4", region=AWAY)
    account.group(claim_tags("t4", regions=f"{HOME} {AWAY}"))  # the claim stays at home: a group beside it in AWAY
    made, _ = one.up(path, "t4")

    def groups():
        return {g["GroupId"]: rules(g) for region in (HOME, AWAY) for g in account.groups("t4", region)}

    assert len(groups()) >= 1
    for sources in (["198.51.100.0/24", "203.0.113.0/24"], ["203.0.113.9/32"], ["2001:db8::/32"], ["203.0.113.0/24"]):
        path = one.spec("t4", region=AWAY, access={"ssh_from": sources})
        one.again(path)
        for group, found in groups().items():
            assert found == {("tcp", 22, 22, s) for s in sources} | {("-1", None, None, group)}, (sources, found)
    assert account.alive() == [made]


def test_rules_that_were_added_to_a_running_stack(account, computer):
    one = computer()
    path = one.spec("t4")
    one.up(path, "t4")
    [group] = account.groups("t4")
    foreign = plant_rules(account, group["GroupId"])
    said = one.again(path)
    assert rules(account.group_of(group["GroupId"])) == {SSH_FROM, ("-1", None, None, group["GroupId"])}
    assert all(f"from {source}, which" in said for source in foreign), said


# --- 8: absence ---

def test_nobody_says_nothing_without_credentials(account, computer):
    made = account.instance(tags("t4"))
    one = computer()
    with Blind(one):
        for words in (["down", "t4"], ["down", "t4"], ["--owner", "other", "down", "t4"], ["down", one.spec("t4")]):
            said = never_gone(one.tell(*words))
            assert said["gone"] is None and looked(said)["aws", None]["checked"] is False
            text = one(*words, code=8)
            assert "nothing" not in text.out, text
        gc = one.tell("gc")
        assert gc["code"] == 8 and gc["complete"] is False
        assert one.tell("status", "t4")["code"] == 8
    said = one.tell("--owner", "other", "down", "t4")
    assert said["code"] == 0 and said["owner"] == "other" and said["gone"] is True
    assert {x["owner"] for k, x in looked(said).items() if k[0] == "aws"} == {"other"}
    assert "(owner other)" in one("--owner", "other", "down", "t4").out
    assert account.alive() == [made]
    said = one.tell("down", "t4")
    assert said["code"] == 0 and said["gone"] is True and account.alive() == []
    assert looked(said)["aws", HOME] == {"provider": "aws", "region": HOME, "owner": OWNER, "checked": True}


def test_exit_8_is_not_forgotten(account, computer, proxies):
    """`down` is refused once: without credentials the next one still names the machine."""
    one = computer()
    made, _ = one.up(one.spec("t4"), "t4")
    proxy = proxies()
    proxy.rule("TerminateInstances", "error", times=None, code="UnauthorizedOperation", status=403)
    never_gone(one.tell("down", "t4", env=through(proxy)), made)
    with Blind(one):
        for _ in range(2):
            never_gone(one.tell("down", "t4"), made)
        assert one.tell("status", "t4")["code"] == 8
    assert account.alive() == [made]
    assert one.tell("down", "t4")["gone"] is True and account.alive() == []
