# SPDX-License-Identifier: Apache-2.0
"""The connection to a node is cut once, at points all over a bootstrap: whatever was cut, what the node
is in the end and what is told of it are the same as without a cut. CUT_EVERY=1 tries every point, which
takes some minutes."""
import json
import os
import pathlib
import subprocess
import sys

import pytest
from test_bootstrap import DRIVER, Outcome, lab_fixture, node_fixture  # noqa: F401
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
PORT = 2022
EVERY = int(os.environ.get("CUT_EVERY", "4"))
# Longer than one packet of SSH, so that only a part of it may arrive.
LONG = "".join("# %06d nothing is done here\n" % i for i in range(2600))
STEP = LONG + """echo x >> ~/runs
echo '::warn only once'
echo '::progress half way'
printf 'no end'; sleep 0.3; echo ' until now'
echo done > ~/ready
"""
CLEAN = "rm -rf /home/ops/.gpuprov /home/ops/runs /home/ops/ready"


class Relayed:
    """bootstrap_driver through a relay that cuts."""

    def __init__(self, lab, node, tmp):  # pylint: disable=redefined-outer-name
        self.lab, self.node, self.tmp, self.n = lab, node, tmp, 0

    def run(self, plan, what="run", *options, keys=None):
        self.n += 1
        plan_file, log = self.tmp / ("plan%d" % self.n), self.tmp / ("log%d" % self.n)
        plan_file.write_text(json.dumps(plan))
        log.write_text("")
        relay = self.lab.popen([sys.executable, ROOT / "tests/hosts/relay.py", PORT, self.node.host.address,
                                22, plan_file, log])
        try:
            wait_for(lambda: "listens" in log.read_text(), 60)
            p = self.lab.run([DRIVER, what, "127.0.0.1", "ops", self.lab.key, keys or self.node.host.host_key(),
                              "--port", PORT, *options],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
        finally:
            relay.kill()
            relay.wait()
        out = Outcome(p.stdout.splitlines(), p.stderr)
        assert out.result and out.result["rc"] == 0, (plan, out)
        return out, log.read_text().split("\n")


def pieces(log, way):
    """How many pieces went that way, by all connections."""
    return sum(line.startswith(way) for line in log)


def told(out):
    """What is said of the node, without what is said of the connection."""
    return [(e["event"], e["step"]) for e in out.events if e["event"] not in ("result", "progress")] + \
        [e["text"] for e in out.events if e.get("event") == "warn"]


def state(node):  # pylint: disable=redefined-outer-name
    host = node.host
    return (host.file("/home/ops/runs").read_text(), host.file("/home/ops/ready").read_text(),
            host.sh("cd /home/ops/.gpuprov && find agent marks -type f | sort | xargs sha256sum").stdout)


@pytest.fixture
def relayed(lab, node, tmp_path):  # pylint: disable=redefined-outer-name
    return Relayed(lab, node, tmp_path)


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("way", ["up", "down"])
def test_a_cut_anywhere_changes_nothing(relayed, way):
    host = relayed.node.host
    options = relayed.node.step("s", STEP)
    whole, log = relayed.run([], "run", *options)
    want = state(relayed.node)
    assert want[0] == "x\n" and ("warn", "s") in told(whole) and "half way" in whole.texts("s")
    # how the bytes fall into pieces differs a little from run to run
    points = pieces(log, way)
    assert points > 10
    cuts = 0
    for n in range(EVERY // 2, points, EVERY):
        host.sh(CLEAN)
        out, log = relayed.run([[way, n]], "run", *options)
        cuts += "cut" in log
        assert state(relayed.node) == want, (way, n, out)
        assert told(out) == told(whole), (way, n, out)
        assert out.result["applied"] == whole.result["applied"], (way, n, out)
    assert cuts > points // EVERY // 2


@pytest.mark.long
def test_a_line_that_breaks_again_and_again(relayed):
    """Five times in each way, each time a little later."""
    options = relayed.node.step("s", STEP)
    out, log = relayed.run([[("up", "down")[i % 2], 5 + i] for i in range(10)], "run", *options)
    assert log.count("cut") == 10
    assert state(relayed.node)[0] == "x\n" and out.texts("s").count("only once") == 1, out


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("way", ["up", "down"])
def test_a_cut_anywhere_while_the_host_key_changes(relayed, tmp_path, way):
    accepted = relayed.node.host.host_key()
    points, n = 1, 0
    while n < points:
        kept = tmp_path / ("key%d" % n)
        out, log = relayed.run([[way, n]], "rotate", "--commit-file", str(kept), keys=accepted)
        if n == 0:
            points = pieces(log, way)
        new = out.result["key"]
        assert out.result["accepted"] == 1 and out.result["shown"] == new == kept.read_text()
        assert relayed.node.host.host_key() == new
        accepted = new
        relayed.node.host.sh("rm -f /etc/ssh/gpuprov_host_key_made")  # the next one makes a new key
        n += EVERY
