# SPDX-License-Identifier: Apache-2.0
"""framework.torch over two hosts, from a spec to the verdict: the environment that bootstrap made, torch (a stand-in)
from an index, one rank per host over the hosts' own network."""
import json

import pyindex
import pytest
import torch_standin
from fleet import Fleet

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
SITE = "/opt/venv/lib/python3*/site-packages/torch/"


@pytest.fixture(name="fleet", scope="module")
def fleet_fixture(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("fleet")
    with Fleet(tmp, 2, base_script="base_python.sh") as made:
        made.index = pyindex.Index(tmp / "index")
        made.index.wheel("torch", "2.9.1+cpu", torch_standin.files(), index="whl/cpu")
        made.index.serve(made, "10.77.0.1")
        yield made
        made.index.close()


def checks(report):
    return {c["check"]: c for c in report["gang"]}


@pytest.mark.long
def test_from_spec_to_verdict(fleet, gpuprov, tmp_path):
    inside = fleet.enter(gpuprov, tmp_path)
    spec = tmp_path / "spec.yaml"
    python = {"torch": "auto", "torch_index": fleet.index.url + "/whl"}
    content = {"name": "t", "nodes": 2, "offers": [{"provider": "ssh", "hosts": "fleet.yaml"}],
               "bootstrap": {"python": python}, "validate": {"time": "1m"}}
    spec.write_text(json.dumps(content))
    inside("up", spec, timeout=300)
    report = inside.json("validate", "t", timeout=300)
    found = checks(report)["framework.torch"]
    assert found["verdict"] == "pass" and found["required"] is True, found
    assert "one step of training over 2 ranks by gloo" in found["message"], found
    assert found["data"]["torchrun"] == "torchrun --nnodes=2 --nproc_per_node=1 --node_rank=0", found
    # the second host's torch breaks
    fleet.nodes[1].sh("echo '{\"fault\": \"import\"}' >$(echo %s)standin.json" % SITE)
    report = inside.json("validate", "t", code=None, timeout=300)
    found = checks(report)["framework.torch"]
    assert found["verdict"] == "fail" and [b["node"] for b in found["data"]["blamed"]] == ["t/1"], found
    assert "import torch: ValueError: libcublas.so" in found["message"] and "(to blame: t/1)" in found["message"], found
    assert report["ready"] is False
    inside("down", "t")


def test_without_a_wish_it_is_left_out_with_the_reason(fleet, gpuprov, tmp_path):
    inside = fleet.enter(gpuprov, tmp_path)
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps({"name": "t", "nodes": 2, "offers": [{"provider": "ssh", "hosts": "fleet.yaml"}],
                                "validate": {"time": "1m", "require": ["framework.torch"]}}))
    refused = inside("check", spec, code=1)
    assert "framework.torch cannot run: the spec has no bootstrap.python" in refused.err + refused.out, refused
