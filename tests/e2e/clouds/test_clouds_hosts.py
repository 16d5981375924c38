# SPDX-License-Identifier: Apache-2.0
"""From a spec to proven nodes and back at every cloud: its stand-in answers the API, and behind every machine is a real
host that runs the distribution's cloud-init on its user-data."""
import json

import pytest
from ec2_lab import InLab
from hosted import CLOUDS
from lab import why_not
from mock_lab import MockLab
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces, pytest.mark.skipif(bool(why_not()), reason=str(why_not()))]

SPEC = """\
name: llm
nodes: 2
offers: [{offer}]
limits: {{ttl: 1h{limits}}}
access: {access}
bootstrap:
  steps:
    - {{name: hello, run: "echo hello > ~/hello", check: "test -s ~/hello"}}
validate: {{time: 5m, require: [train.ddp]}}
"""


class World:
    """One cloud with hosts; gpuprov on machines with no memory in common."""

    def __init__(self, make, program, tmp):
        self.make, self.program, self.tmp = make, program, tmp
        self.lab = MockLab(tmp, make)

    def __enter__(self):
        self.lab.__enter__()
        self.cloud = self.lab.cloud
        self.spec = self.tmp / "llm.yaml"
        self.spec.write_text(SPEC.format(offer=self.make.offer, access=self.make.access,
                                         limits=", " + self.make.limits if self.make.limits else ""))
        return self

    def __exit__(self, *args):
        self.lab.close()

    def machine(self, name):
        home = self.tmp / name
        home.mkdir()
        self.lab.env = self.cloud.env(home)
        return InLab(self.lab, self.program, self.tmp / (name + "-state"), home)


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("make", CLOUDS, ids=[c.provider for c in CLOUDS])
def test_from_a_spec_to_proven_nodes_and_back(make, program, tmp_path):
    with World(make, program, tmp_path) as world:
        me = world.machine("me")
        up = me("up", world.spec, "--json", timeout=400)
        assert [n["phase"] for n in json.loads(up.out)["stack"]["nodes"]] == ["ready"] * 2, up
        machines = world.cloud.machines()
        assert len(machines) == 2
        for m in machines:
            assert world.lab.host(m["id"]).sh("cat ~gpuprov/hello").stdout == "hello\n"
        # nothing to do; and another machine, which has no record, sees the same and ends it
        again = me("up", world.spec, timeout=400)
        assert "nothing to do" in again.err + again.out, again
        world.machine("other")("down", world.spec, "--yes", timeout=200)
        assert world.cloud.machines() == []
        wait_for(lambda: not world.cloud.left(), 30)
        for m in machines:
            wait_for(lambda m=m: "ended" in world.lab.about(m["id"]), 60)
        assert world.cloud.sound() is True
