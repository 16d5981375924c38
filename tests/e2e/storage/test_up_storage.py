# SPDX-License-Identifier: Apache-2.0
"""files and limits through the program: `up` on machines that run already, and a file that changes in between."""
import json

import pytest
from fleet import Fleet

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


@pytest.mark.long
def test_up_copies_files_and_again_when_they_change(gpuprov, tmp_path):
    with Fleet(tmp_path / "fleet", 2) as fleet:
        inside = fleet.enter(gpuprov, tmp_path)
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / "train.py").write_text("first\n")
        spec = tmp_path / "spec.yaml"
        spec.write_text(json.dumps({
            "name": "files", "nodes": 2, "offers": [{"provider": "ssh", "hosts": "fleet.yaml"}],
            "bootstrap": {"files": [{"from": "code", "to": "/opt/code"}], "limits": {"nofile": 4096},
                          "steps": [{"name": "uses", "run": "cp /opt/code/train.py ~/used; ulimit -n >~/files"}]},
            "validate": {"time": "1m"}}))
        inside("up", spec, timeout=300)
        for host in fleet.nodes:
            assert host.sh("cat /opt/code/train.py /home/ops/used /home/ops/files").stdout == "first\nfirst\n4096\n"
        (tmp_path / "code" / "train.py").write_text("second\n")
        inside("up", spec, timeout=300)
        assert [h.sh("cat /opt/code/train.py").stdout for h in fleet.nodes] == ["second\n"] * 2
        inside("down", "files")
