# SPDX-License-Identifier: Apache-2.0
"""How many round trips a launch waits for before its create call, at each cloud's stand-in with a latency on every call.
Nothing here depends on the time that passes, but on what is under way at once. EC2 has tests/e2e/aws/test_aws_rounds.py;
tests/bench/clouds.py has the times."""
import json
import subprocess

import ec2
import pytest
from far_clouds import FAR, least_rounds

# open, offers, claim, create: of one node, of a gang. A lower count is a success: its figure here goes down with it.
MOST = {"alibaba": (5, 5), "google": (5, 5), "lambda": (5, 5), "runpod": (2, 2), "shadeform": (4, 4)}


@pytest.mark.parametrize("nodes", [1, 32])
@pytest.mark.parametrize("provider", sorted(MOST))
def test_round_trips_before_the_create_call(tmp_path, provider, nodes):
    most = MOST[provider][nodes > 1]
    rounds, told, _ = least_rounds(FAR[provider], tmp_path, nodes, most)
    assert rounds == most, told


def test_a_list_at_google_is_one_round_trip(tmp_path):
    with FAR["google"](tmp_path, 2, latency=0) as far:
        far.drive()
        far.cloud.log.clear()
        far.cloud.meet("aggregated/instances|aggregated/disks|global/firewalls", 3)
        done = subprocess.run([ec2.BUILD / "tests/drivers/provider_drive", "google", far.spec, "list"], env=far.env,
                              capture_output=True, text=True, timeout=100, check=False)
        kinds = sorted(r["kind"] for r in json.loads(done.stdout)["resources"])
        assert kinds == ["group", "group", "instance", "instance"], done.stdout
        assert len(far.cloud.requests("aggregated/instances|aggregated/disks|global/firewalls")) == 3


def test_the_nodes_of_a_gang_are_read_together_at_shadeform(tmp_path):
    """One list until they are placed; then each once, for its deadline, 8 at a time."""
    with FAR["shadeform"](tmp_path, 32, latency=0) as far:
        far.cloud.meet("GET .*/info", 8)
        assert len(far.drive()) == 32
        assert len(far.cloud.requests("GET .*/info")) == 32
