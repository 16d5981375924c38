# SPDX-License-Identifier: Apache-2.0
"""framework.deepspeed and framework.horovod by the agent's ranks on loopback: each with a Python of its own that has
stand-ins for them and for torch."""
import json

import framework_standins
import pytest
from test_agent import Gang
from test_framework_torch import make_python, running

BOTH = ["deepspeed", "horovod"]


class FrameworkGang(Gang):
    """Rank N uses the environment pyN. asked: per rank {version, fault} of the framework; None: without it."""

    def __init__(self, folder, name, asked, deadline="60s"):
        self.check = "framework." + name
        self.pythons = []
        for n, one in enumerate(asked):
            self.pythons.append(make_python(folder / ("py%d" % n), {}))
            if one is not None:
                packages = next((folder / ("py%d" % n)).glob("lib/python3*/site-packages"))
                framework_standins.put(packages, name, **one)
        super().__init__(folder, len(asked), checks=self.check, deadline=deadline)

    def start(self, rank, addr, token=None):
        keep = self.args
        self.args = [*keep, "--python", self.pythons[rank]]
        super().start(rank, addr, token)
        self.args = keep

    def found(self):
        return [r[self.check] for r in self.results()]


@pytest.mark.parametrize("name", BOTH)
def test_ranks_train_one_step(tmp_path, name):
    every = FrameworkGang(tmp_path, name, [{}, {}, {}]).found()
    assert [r["verdict"] for r in every] == ["pass"] * 3, json.dumps(every)
    assert every[1]["data"][name] == "1.0" and every[1]["data"]["torch"] == "2.9.1+cpu", every
    assert "over 3 ranks by gloo left the right weights" in every[0]["message"], every
    assert {m["name"] for m in every[0]["metrics"]} == {"start_time", "step_time"}
    assert not running(tmp_path)


# what rank 1 of 2 has; the code there; words of its message; whether it alone is to blame
FAULTS = [({"fault": "wrong"}, "wrong_step", "after one step of training a weight is ", True),
          ({"fault": "die"}, "crashed", "Python was killed by signal 9 in '", True),
          ({"fault": "import"}, "import", "import ", True),
          (None, "absent", "py1/bin/python has no ", True)]


@pytest.mark.parametrize("asked, code, words, alone", FAULTS, ids=[f[1] for f in FAULTS])
@pytest.mark.parametrize("name", BOTH)
def test_a_fault_has_its_rank(tmp_path, name, asked, code, words, alone):
    zero, one = FrameworkGang(tmp_path, name, [{}, asked], deadline="20s").found()
    assert zero["verdict"] == one["verdict"] == "fail", (zero, one)
    assert one["code"] == code and words in one["message"], one
    assert (one["data"].get("culprits") == [1]) is alone, one
    assert not running(tmp_path)


@pytest.mark.parametrize("name", BOTH)
def test_it_is_absent(tmp_path, name):
    every = FrameworkGang(tmp_path, name, [None, None]).found()
    assert [(r["verdict"], r["code"]) for r in every] == [("skipped", "no_" + name)] * 2, every
    assert "py0/bin/python has no " + name in every[0]["message"], every
    assert name in every[0]["suggestion"], every


def test_versions_differ(tmp_path):
    every = FrameworkGang(tmp_path, "deepspeed", [{}, {"version": "0.9"}]).found()
    assert {(r["verdict"], r["code"]) for r in every} == {("degraded", "versions_differ")}, every
    assert "rank 0 has deepspeed 1.0 and rank 1 deepspeed 0.9" in every[0]["message"], every
