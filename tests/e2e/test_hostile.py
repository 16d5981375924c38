# SPDX-License-Identifier: Apache-2.0
"""An account in which everybody can write tags, groups, rules and machines, and somebody who knows the owner,
the name and the uid of a stack does: no file outside the state folder changes, no process starts, nothing of
others is ended, and nothing of ours is called gone. The cases with names; what Hypothesis makes of it:
test_hostile_random.py. What is true is asked of moto with boto3."""
import calendar
import time

import faultproxy
import pytest
from hostile import AWAY, HOME, OWNER, THIRD, Account, Machine, claim_tags, denied, rules, side_by_side, stamp, tags
from hostile import tags_of, uid, wait_for

SSH_FROM = ("tcp", 22, 22, "203.0.113.0/24")
NOBODY = {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}


@pytest.fixture(scope="module")
def clouds():
    made = Account()
    yield made
    made.close()


@pytest.fixture
def account(clouds):
    clouds.fresh()
    return clouds


@pytest.fixture
def computer(account, program, tmp_path):
    """computer(): gpuprov on a computer that knows nothing; what it changed outside its state folder, and what
    it started, is looked at in the end."""
    made = []

    def make():
        made.append(Machine(account, program, tmp_path / ("computer%d" % len(made))))
        return made[-1]
    yield make
    for one in made:
        one.check()


@pytest.fixture
def proxies(account):
    made = []

    def make(proxy=None):
        made.append(proxy or faultproxy.FaultProxy(account.moto.url).start())
        return made[-1]
    yield make
    for proxy in made:
        proxy.close()


def through(proxy):
    return {"AWS_ENDPOINT_URL": proxy.url}


def without_credentials(computer):
    env = dict(computer.env)
    for name in NOBODY:
        env.pop(name)
    return env


class Blind:
    """Runs verbs without credentials."""

    def __init__(self, computer):
        self.computer = computer

    def __enter__(self):
        self.env = self.computer.env
        self.computer.env = without_credentials(self.computer)
        return self.computer

    def __exit__(self, *_):
        self.computer.env = self.env


def never_gone(said, *ids):
    """Exit 8, and no word of absence."""
    assert said["code"] == 8 and said["gone"] is not True, said["said"]
    assert "nothing is left" not in said["said"].err and "nothing was there" not in said["said"].err
    for i in ids:
        assert i in said["said"].out + said["said"].err, said["said"]
    return said


def looked(said):
    return {(x["provider"], x["region"]): x for x in said["looked"]}


# --- 1: identities that are paths ---

PATHS = ["../../../victimdir", "../../victimdir", "../victimdir", "..", ".", "/tmp/victimdir", "~/victimdir", "",
         "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0", "0123456789abcde/", "0123456789abcdef ",
         "%2e%2e%2fvictimdir", "....//victimdir", "victimdir\\..", "*", "$HOME", "\u2024\u2024/victimdir"]


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
    for words in (["gc", "--dry-run"], ["gc"], ["down", "t4"], ["status", "t4"], ["gc"]):
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


# --- 3: regions that the spec does not name any more ---

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
        assert f"from {source}, which access.ssh_from does not name: revoked" in said, (source, said)


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
    wait_for("the launch", lambda: proxy.count("RunInstances"))
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
    [made] = wait_for("the instance", lambda: account.alive("t7"))
    p.kill()
    p.communicate()
    proxy.clear()
    said = one.tell("plan", path)
    assert "settle" in [i["action"] for i in said["items"]] or made in str(said["items"]), said
    one.again(path, proxy)
    assert proxy.count("RunInstances") == 0 and account.alive("t7") == [made]


def test_a_launch_without_a_known_outcome(account, computer, proxies):
    jobs = [(what, computer(), proxies()) for what in (corrected, repeated, dropped)]
    side_by_side(*[lambda job=job: job[0](account, *job[1:]) for job in jobs])


# --- 6: a region that may not be looked at ---

def test_one_denied_region(account, computer, proxies):
    """The machines elsewhere are found and ended; what may be in that region keeps exit 8."""
    proxy = proxies(denied(account, THIRD))
    made = {s: account.instance(tags(s), AWAY) for s in ("bare", "claimed", "limited", "hidden")}
    hidden = account.instance(tags("hidden"), THIRD)
    account.group(claim_tags("claimed", regions=f"{HOME} {AWAY}"))
    one, two, three, four = computer(), computer(), computer(), computer()
    for g in (one, two, three, four):
        g.env["AWS_ENDPOINT_URL"] = proxy.url

    seen = one.tell("status", "bare")
    assert seen["code"] == 8 and [n["id"] for n in seen["stacks"][0]["nodes"]] == [made["bare"]], seen["said"]
    seen = two.tell("status", "claimed")
    assert seen["code"] == 0 and [n["id"] for n in seen["stacks"][0]["nodes"]] == [made["claimed"]], seen["said"]
    bare, claimed, limited, gap = side_by_side(
        lambda: one.tell("down", "bare"), lambda: two.tell("down", "claimed"),
        lambda: three.tell("down", "limited", "--in", f"aws/{AWAY},aws/{HOME}"), lambda: four.tell("down", "hidden"))
    assert bare["code"] == 8 and bare["gone"] is None and THIRD in bare["said"].err, bare["said"]
    assert looked(bare)["aws", THIRD]["checked"] is False and looked(bare)["aws", AWAY]["checked"] is True
    assert claimed["code"] == 0 and claimed["gone"] is True, claimed["said"]
    assert ("aws", THIRD) not in looked(claimed)
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


# --- 9: tags of our own machine ---

CHANGES = [("uid", "0" * 16), ("uid", "../x"), ("uid", None), ("stack", "other"), ("stack", "../x"), ("stack", None),
           ("slots", "9+1"), ("slots", "99999999999+1"), ("slots", None), ("owner", "other"), ("owner", "../x"),
           ("owner", None), ("expires", stamp(-3600)), ("expires", "yesterday"), ("price", "1e999"), ("price", "nan")]


@pytest.mark.parametrize("journal", ["kept", "lost"])
def test_tags_of_our_machine_changed(account, computer, journal):
    """With the journal the machine is found by its id and ended. Without it: ended, or reported by its id with
    exit 8. A machine without our owner's tag is not seen: it is left, and the result
    names the owner that was looked for. (Another stack's tag without the journal: `down` waits ten minutes for
    the end of the claim, which a machine with its uid keeps, and then says that the claim is left.)"""
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
        else:
            assert there == (key == "uid" and value != "0" * 16), (key, value, said["said"])
            if there:
                never_gone(said, made)
            else:
                assert said["code"] == 0 and said["gone"] is True, (key, value, said["said"])

    changes = [c for c in CHANGES if journal == "kept" or c[0] != "stack"]
    jobs = [(n, key, value, computer()) for n, (key, value) in enumerate(changes)]
    side_by_side(*[lambda job=job: one_change(*job) for job in jobs])


def test_gc_keeps_what_somebody_called_expired_apart(account, computer):
    """A machine whose stack tag is no stack's name any more is seen by gc, and may be billed."""
    made = account.instance(tags("t4", stack="../x"))
    said = computer().tell("gc")
    assert said["code"] == 8 and [r["id"] for r in said["unreadable"]] == [made] and account.alive() == [made]


# --- 10: others ---

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
