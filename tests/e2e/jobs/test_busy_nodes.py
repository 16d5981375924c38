# SPDX-License-Identifier: Apache-2.0
"""A stack on which a job runs, and another one that is given more or fewer nodes: nothing is touched."""
import pytest

from snapshot import Snapshot, leftovers
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: full
nodes: {nodes}
offers: [{{provider: local}}]
limits: {{ttl: 20m}}
validate: {{time: 1m}}
job:
  workdir: work
  run: {run}
"""


@pytest.mark.parametrize("before, after", [(1, 2), (2, 1)])
def test_another_number_of_nodes_leaves_the_running_job_alone(gpuprov, tmp_path, before, after):
    clean = Snapshot(tmp_path)
    spec, marker = tmp_path / "spec.yaml", tmp_path / "work/marker"
    marker.parent.mkdir()
    marker.write_text("old\n")
    spec.write_text(SPEC.format(nodes=before, run="sleep 300"))
    gpuprov("run", "-d", spec)
    nodes = [n["id"] for n in gpuprov.json("status")["stacks"][0]["nodes"]]
    marker.write_text("new\n")
    spec.write_text(SPEC.format(nodes=after, run="cat marker"))
    for verb in ("run", "exec"):
        refused = gpuprov(verb, spec, "--json", code=None)
        assert refused.json["error"]["code"] == "busy", refused
        assert "full/0: another job runs there" in refused.json["error"]["message"]
        assert f"the stack has {before} node{'s' * (before > 1)}, the spec {after}" in refused.json["error"]["message"]
        assert not any("checking the node" in e.get("text", "") for e in refused.events)
    assert [n["id"] for n in gpuprov.json("status")["stacks"][0]["nodes"]] == nodes
    for slot in range(before):
        assert gpuprov("ssh", f"full/{slot}", "--", "cat .gpuprov/work/marker").out == "old\n"
    gpuprov("cancel", "full")
    gpuprov("down", "full")
    wait_for(lambda: not leftovers(clean, Snapshot(tmp_path)))


def test_a_job_on_a_node_that_the_spec_has_no_place_for(gpuprov, tmp_path):
    """Rank 0 has ended, rank 1 runs on."""
    spec = tmp_path / "spec.yaml"
    (tmp_path / "work").mkdir()
    spec.write_text(SPEC.format(nodes=2, run="'[ $NODE_RANK = 0 ] || sleep 300'"))
    gpuprov("run", "-d", spec)
    wait_for(lambda: '"ended"' in gpuprov("ssh", "full/0", "--", ".gpuprov/agent/gpuprov-agent job list").out)
    spec.write_text(SPEC.format(nodes=1, run="'true'"))
    for verb in ("run", "exec"):
        refused = gpuprov(verb, spec, "--json", code=None)
        assert refused.json["error"]["code"] == "busy", refused
        assert "full/1: another job runs there" in refused.json["error"]["message"]
    gpuprov("cancel", "full")
    gpuprov("down", "full")
