# SPDX-License-Identifier: Apache-2.0
"""`gpuprov extend` on local nodes, and limits that only some nodes can have. On EC2: aws/test_ec2_extend.py."""
import calendar
import time

import pytest

SPEC = """\
name: ext
offers: [{provider: local}]
limits: {ttl: 20m}
validate: {require: [host.memory]}
"""


def seconds(text):
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


@pytest.mark.root
@pytest.mark.namespaces
def test_the_holder_moves_it(gpuprov, tmp_path):
    path = tmp_path / "ext.yaml"
    path.write_text(SPEC)
    gpuprov("up", path)
    said = gpuprov.json("extend", "ext", "2h", env={"TZ": "Pacific/Apia"})
    assert abs(seconds(said["expires"]) - time.time() - 7200) < 60 and said["ends"] == "server"
    more = gpuprov.json("extend", path, "+30m")
    assert seconds(more["expires"]) == seconds(said["expires"]) + 1800
    [stack] = gpuprov.json("status", "ext")["stacks"]
    assert stack["expires"] == more["expires"] and stack["notes"] == []
    assert "nothing to do" in gpuprov("plan", path).out  # the spec's ttl does not move it back
    for text, why in (("31d", "more than 30 days"), ("1s", "less than a minute"), ("soon", "is not a time"),
                      ("+", "is not a time"), ("-2h", ""), ("", "is empty")):
        assert why in gpuprov("extend", "ext", text, code=1).err
    assert gpuprov.json("status", "ext")["stacks"][0]["expires"] == more["expires"]
    path.write_text(SPEC.replace("20m", "5h"))
    assert "limits.ttl: 20m -> 5h (the deadline moves to " in gpuprov("plan", path, code=2).out
    gpuprov("down", "ext")
    assert "'ext' is gone: 'gpuprov down' destroyed it at " in gpuprov("extend", "ext", "2h", code=1).err
    gpuprov("extend", "other", "2h", code=5)  # this machine has no credentials of any cloud to look for it


@pytest.mark.parametrize("offer, which", [
    ("provider: local", "local"), ("provider: google, regions: [us-central1]", "google"),
    ("provider: azure, regions: [eastus]", "azure without 'role'")])
def test_limits_that_need_nodes_that_end_themselves(gpuprov, tmp_path, offer, which):
    path = tmp_path / "ext.yaml"
    path.write_text("name: ext\noffers: [{%s}]\nlimits: {idle: 10m, controller: 1h}\n" % offer)
    said = gpuprov("check", path, code=1).err
    for key in ("idle", "controller"):
        assert "nodes of %s cannot have '%s': they cannot end themselves" % (which, key) in said
