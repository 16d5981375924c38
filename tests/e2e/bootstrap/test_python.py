# SPDX-License-Identifier: Apache-2.0
"""The steps of bootstrap.python on a real sshd with the distribution's Python and a real pip."""
import pytest
from python_lab import python_lab, python_node

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    with python_lab(tmp_path_factory.mktemp("lab")) as made:
        made.index.wheel("gp-one", "1.0")
        made.index.wheel("gp-one", "1.1")
        made.index.wheel("Gp_Two", "2.0", requires=["gp-one>=1.0"])
        made.url = made.index.url + "/simple/"
        yield made


@pytest.fixture(name="node")
def node_fixture(lab, tmp_path):
    with python_node(lab, tmp_path) as made:
        yield made


def test_first_run_makes_a_venv_second_does_nothing(node):
    block = {"packages": ["gp-one==1.0", "gp-two"], "index": node.lab.url}
    out = node.python(**block)
    assert out.result["applied"] == 3, out  # python-venv, python-packages, agent
    assert any("makes /opt/venv with Python 3." in t for t in out.texts("python-venv")), out
    assert any("installs gp-one==1.0 (is not installed), gp-two" in t for t in out.texts("python-packages")), out
    assert node.version("gp-one") == "1.0" and node.version("gp-two") == "2.0"
    assert node.host.sh("stat -c %U /opt/venv /opt/venv/bin/python").stdout.split() == ["ops", "ops"]
    look = "find /opt /home/ops/.gpuprov -printf '%p %T@ %s %u\\n' | sort"
    before = node.host.sh(look).stdout
    node.lab.index.clear()
    again = node.python(**block)
    assert again.result["applied"] == 0 and [e["event"] for e in again.events] == ["result"], again
    assert node.host.sh(look).stdout == before and node.lab.index.log == []
