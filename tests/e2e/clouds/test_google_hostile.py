# SPDX-License-Identifier: Apache-2.0
"""Replies of Compute Engine that anyone in the project, or a false endpoint, may have written: labels, descriptions,
names, zones, operations, pages. Nothing in them becomes a path, a number or a decision."""
import itertools
import json
import re

import google_cloud
import pytest
from test_google import drive, write_spec

BAD_NAMES = ["../../../zones/x", "a/../b", "a%2f..%2fb", "A", "a" * 64, "-a", "a\u202e", "a\x1b[2J", "", 5, None]


@pytest.fixture(name="cloud")
def foreign_cloud():
    """Its replies are spoiled: the gate of replies does not count."""
    with google_cloud.Google() as cloud:
        yield cloud


def spoil(cloud, pattern, change, times=None):
    cloud.rule(pattern, "edit", times=times, change=change)


def launched(cloud, tmp_path):
    spec = write_spec(tmp_path)
    rc, result, _ = drive(cloud, tmp_path, spec, "create")
    assert rc == 0, result
    del cloud.log[:]
    return spec


def paths_are_sane(cloud):
    """What gpuprov asked for stays within the API, whatever it was told."""
    for r in cloud.log:
        assert re.fullmatch(r"[!-~]+", r["target"]), r["target"]
        assert "/../" not in r["target"] and "%2f" not in r["target"].lower().split("?")[0], r["target"]


def instances(reply):
    return [i for part in reply["items"].values() for i in part.get("instances", [])]


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_none(cloud, tmp_path, name):
    is_refused(cloud, tmp_path, name=name)


def is_refused(cloud, tmp_path, **members):
    """A list whose instances have these members is an error."""
    spec = launched(cloud, tmp_path)

    def change(reply):
        for i in instances(reply):
            i.update(members)
        return reply
    spoil(cloud, "aggregated/instances", change)
    rc, result, said = drive(cloud, tmp_path, spec, "list")
    assert rc != 0 and "an instance in a reply has no valid name, id and zone" in result["message"], result
    assert "\x1b" not in said + result["message"]
    paths_are_sane(cloud)


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("number", ["", "0", "012", "-1", "1/2", "1" * 21, "x", "1\n", 7, None])
def test_an_id_that_is_no_number(cloud, tmp_path, number):
    is_refused(cloud, tmp_path, id=number)


@pytest.mark.parametrize("zone", ["https://x/zones/../../y", "us-central1-a/../b", "zones/nozone", "", 7, "US-1-A"])
def test_a_zone_that_is_none(cloud, tmp_path, zone):
    spec = launched(cloud, tmp_path)

    def change(reply):
        for i in instances(reply):
            i["zone"] = zone
        return reply
    spoil(cloud, "aggregated/instances", change)
    rc, result, _ = drive(cloud, tmp_path, spec, "list")
    if rc == 0:  # "https://x/zones/../../y" ends in no zone; a path before the last word does not count
        assert all(re.fullmatch("[a-z0-9-]+", r["zone"]) for r in result["resources"] if r["kind"] == "instance")
    paths_are_sane(cloud)


LABELS = [{"gpuprov-uid": "..%2f"}, {"gpuprov-uid": "0123456789abcdeg"}, {"gpuprov-slots": "99999999999999999999_41"},
          {"gpuprov-slots": "4096_41"}, {"gpuprov-attempt": "-1"}, {"gpuprov-expires": "never"},
          {"gpuprov-price": "nan"}, {"gpuprov-stack": "_b"}, {"gpuprov-owner-1": "x"}, {"gpuprov-uid": 5}]


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("labels", LABELS)
def test_labels_that_gpuprov_does_not_write(cloud, tmp_path, labels):
    """Such an instance has no owner: it is listed, and nothing ends it."""
    spec = launched(cloud, tmp_path)
    victim = sorted(cloud.instances)[0]

    def change(reply):
        for i in instances(reply):
            if i["name"] == victim[1]:
                i["labels"].update(labels)
        return reply
    spoil(cloud, "aggregated/instances", change)
    rc, result, _ = drive(cloud, tmp_path, spec, "list")
    assert rc == 0, result
    one = [r for r in result["resources"] if r["id"].split("/")[0] == victim[1]]
    if labels.get("gpuprov-uid") != 5:  # a label that is not text is none
        assert len(one) == 1 and one[0]["slot"] in (-1, 0), result
    paths_are_sane(cloud)


def test_a_name_that_its_labels_do_not_give(cloud, tmp_path):
    """A copy of a node's labels on another instance does not make it that node."""
    spec = launched(cloud, tmp_path)
    (zone, name), vm = sorted(cloud.instances.items())[0]
    copy = json.loads(json.dumps(vm))
    copy["item"].update(name="impostor", id="7000000000000000001")
    cloud.instances[zone, "impostor"] = copy
    rc, result, _ = drive(cloud, tmp_path, spec, "list")
    slots = {r["id"]: r["slot"] for r in result["resources"] if r["kind"] == "instance"}
    assert rc == 0 and slots["impostor/7000000000000000001"] == -1, result
    assert slots[f"{name}/{vm['item']['id']}"] == 0, result


ABOUT = ["", "{", "[]", "x" * 3000, '{"gpuprov:owner":5}', '{"gpuprov:uid":"../.."}', '{"gpuprov:owner":"a","gpuprov:owner":"b"}']


@pytest.mark.parametrize("about", ABOUT)
def test_a_claim_with_a_strange_description_is_not_taken(cloud, tmp_path, about):
    spec = write_spec(tmp_path)
    assert drive(cloud, tmp_path, spec, "prepare")[0] == 0
    rule = next(iter(cloud.firewalls.values()))["item"]
    rule["description"] = about
    rc, result, _ = drive(cloud, tmp_path, spec, "prepare")
    assert rc != 0 and "remove it, or choose another stack name" in result["message"], result
    assert not cloud.requests("PATCH") and not cloud.requests("DELETE")


def test_a_claim_of_another_owner(cloud, tmp_path):
    spec = write_spec(tmp_path)
    assert drive(cloud, tmp_path, spec, "prepare")[0] == 0
    rule = next(iter(cloud.firewalls.values()))["item"]
    rule["description"] = rule["description"].replace(google_cloud.EMAIL, "somebody")
    rc, result, _ = drive(cloud, tmp_path, spec, "prepare")
    assert rc != 0 and "belongs to the stack 'contract'" in result["message"] and "'somebody'" in result["message"]
    assert drive(cloud, tmp_path, spec, "list")[1]["resources"] == []


ROBOT = google_cloud.EMAIL
OPENED = [{"sourceRanges": ["0.0.0.0/0"]}, {"allowed": [{"IPProtocol": "all"}]}, {"disabled": True},
          {"targetTags": ["everything"]}, {"sourceTags": ["theirs"]}, {"priority": 0},
          {"sourceServiceAccounts": [ROBOT], "targetServiceAccounts": [ROBOT], "targetTags": []},
          {"allowed": [], "denied": [{"IPProtocol": "all"}]}, {"destinationRanges": ["192.0.2.0/24"]}]


@pytest.mark.parametrize("change", OPENED)
def test_a_rule_that_was_opened_is_closed_again(cloud, tmp_path, change):
    """Somebody lets everybody in: the next `up` writes the spec's networks, and nothing else stays."""
    spec = write_spec(tmp_path)
    assert drive(cloud, tmp_path, spec, "prepare")[0] == 0
    rule = next(iter(cloud.firewalls.values()))["item"]
    before = dict(rule)
    rule.update(change)
    assert drive(cloud, tmp_path, spec, "prepare")[0] == 0
    assert rule == before
    del cloud.log[:]
    assert drive(cloud, tmp_path, spec, "prepare")[0] == 0
    assert not cloud.requests("PATCH")


def members_of(cloud):
    return next(f["item"] for name, f in cloud.firewalls.items() if name.endswith("-members"))


@pytest.mark.parametrize("about", [{}, {"gpuprov:claim": "1", "gpuprov:regions": "us-central1"}])
def test_a_rule_between_nodes_that_was_opened_is_closed_again(cloud, tmp_path, about):
    """Also one whose description makes it a claim."""
    spec = launched(cloud, tmp_path)
    rule = members_of(cloud)
    before = dict(rule)
    rule.update(sourceRanges=["0.0.0.0/0"], description=json.dumps({**json.loads(rule["description"]), **about}))
    if about:
        rule.update(sourceTags=[], allowed=[{"IPProtocol": "tcp", "ports": ["22"]}])
    cloud.instances.clear()
    drive(cloud, tmp_path, spec, "create")
    assert dict(rule, description="") == dict(before, description="")


def test_a_rule_that_a_patch_does_not_close(cloud, tmp_path):
    """It is read back: what Google reports as done is not believed."""
    spec = write_spec(tmp_path)
    assert drive(cloud, tmp_path, spec, "prepare")[0] == 0
    next(iter(cloud.firewalls.values()))["item"].update(sourceTags=["theirs"])
    done = {"kind": "compute#operation", "name": "operation-1", "status": "DONE"}
    cloud.rule("PATCH .*/global/firewalls/", "reply", status=200, obj=done)
    rc, result, _ = drive(cloud, tmp_path, spec, "prepare")
    assert rc != 0 and "its sourceTags is still not as gpuprov makes it: delete the rule" in result["message"], result


@pytest.mark.parametrize("name", ["../x", "a?b", "operation-1/../../instances", "x\r\ny", "", 5, "o" * 300])
def test_an_operation_that_is_none(cloud, tmp_path, name):
    """The outcome is settled by what exists: the nodes are found by their labels."""
    spec = write_spec(tmp_path)
    spoil(cloud, "POST .*bulkInsert", lambda reply: dict(reply, name=name, status="RUNNING"), times=1)
    rc, result, _ = drive(cloud, tmp_path, spec, "create")
    assert rc == 0 and len(cloud.instances) == 2, result
    paths_are_sane(cloud)


@pytest.mark.parametrize("reply", [[], {"items": 5}, {"items": {"zones/../x": {}}}, {"items": {"zones/us-central1-a": {
    "instances": [5]}}}, {"items": {"zones/us-central1-a": {"instances": [{}]}}}, {}])
def test_a_list_that_is_none(cloud, tmp_path, reply):
    spec = launched(cloud, tmp_path)
    spoil(cloud, "aggregated/instances", lambda _: reply)
    rc, result, _ = drive(cloud, tmp_path, spec, "list")
    assert rc != 0, result  # it never stands for "nothing is there"
    paths_are_sane(cloud)


def test_pages_without_end(cloud, tmp_path):
    spec = launched(cloud, tmp_path)
    spoil(cloud, "aggregated/instances", lambda r: dict(r, nextPageToken="0"))
    rc, result, _ = drive(cloud, tmp_path, spec, "list")
    assert rc != 0 and "the reply repeats a page" in result["message"], result
    paths_are_sane(cloud)


LISTS = {"aggregated/instances": "list", "aggregated/disks": "list", "global/firewalls[?]": "list", "machineTypes": "offers",
         "acceleratorTypes": "offers", "zones/[^/]*/instances[?]": "create"}


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("pattern", sorted(LISTS))
def test_pages_in_a_circle(cloud, tmp_path, pattern):
    """It is an error after a few pages; it neither goes on nor stands for the whole list."""
    if LISTS[pattern] == "list":
        launched(cloud, tmp_path)
    tokens = itertools.cycle("012")
    spoil(cloud, "GET .*" + pattern, lambda r: dict(r, nextPageToken=next(tokens)))
    rc, result, _ = drive(cloud, tmp_path, write_spec(tmp_path, gpu="T4:1"), LISTS[pattern])
    assert rc != 0 and "the reply repeats a page" in result["message"], result
    by_list = [len(list(some)) for _, some in itertools.groupby(sorted(
        r["target"].split("?")[0] for r in cloud.requests("GET .*" + pattern)))]
    assert by_list and max(by_list) <= 4 * 12, by_list  # a launch reads its nodes up to four times


@pytest.mark.parametrize("change", [{"guestCpus": 10 ** 18}, {"memoryMb": -1}, {"name": "a/b"},
                                    {"accelerators": [{"guestAcceleratorType": "x?y", "guestAcceleratorCount": 1}]},
                                    {"accelerators": [{"guestAcceleratorType": "nvidia-l4",
                                                       "guestAcceleratorCount": 10 ** 9}]}])
def test_a_machine_type_that_is_none(cloud, tmp_path, change):
    spoil(cloud, "machineTypes", lambda r: dict(r, items=[dict(r["items"][0], **change)]))
    rc, result, _ = drive(cloud, tmp_path, write_spec(tmp_path), "offers")
    assert rc != 0 and "an entry is not a machine type" in result["message"], result
