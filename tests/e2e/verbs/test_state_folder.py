# SPDX-License-Identifier: Apache-2.0
"""A state folder on a read-only file system: `down` and `gc` do not report an end that nobody looked for."""
import os
import subprocess

import pytest

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: kept
nodes: 1
offers: [{provider: local}]
limits: {ttl: 20m}
validate: {time: 1m}
"""
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


@pytest.fixture
def read_only(gpuprov):
    """read_only(ARGS...): one call whose state folder is mounted read-only, in a mount namespace of its own."""
    def call(*args):
        return subprocess.run(["unshare", "-m", "sh", "-c", READ_ONLY, gpuprov.state, gpuprov.program, *args],
                              env=gpuprov.env, capture_output=True, text=True, timeout=60, check=False)
    return call


@pytest.mark.parametrize("verb, code", [
    (["down", "kept"], 8), (["down", "--dry-run", "kept"], 8), (["gc", "--in", "local"], 8), (["status"], 1)])
def test_nothing_was_looked_at(gpuprov, read_only, verb, code):
    gpuprov("status")  # makes the folder
    assert os.path.isdir(gpuprov.state)
    r = read_only(*verb)
    assert r.returncode == code and "Read-only file system" in r.stderr, r
    if code == 8:
        assert "nothing was looked at or destroyed, and something may still be billed" in r.stderr
        assert "GPUPROV_STATE_DIR" in r.stderr and "nothing is left" not in r.stdout + r.stderr


def test_the_stack_is_still_there(gpuprov, read_only, tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    gpuprov("up", spec)
    r = read_only("down", "--json", "kept")
    assert r.returncode == 8 and '"code":"billed"' in r.stdout, r
    assert gpuprov.json("status")["stacks"][0]["phase"] == "ready"
    gpuprov("down", "kept")
    assert gpuprov.json("status")["stacks"] == []
