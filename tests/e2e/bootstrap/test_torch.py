# SPDX-License-Identifier: Apache-2.0
"""The step that installs PyTorch: the build for the node, and what else may not replace it. torch is a stand-in."""
import pytest
import torch_standin
from python_lab import python_lab, python_node

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    with python_lab(tmp_path_factory.mktemp("lab")) as made:
        def torch(version, index, cuda=None, **kw):
            made.index.wheel("torch", version, torch_standin.files(version, cuda), ["gp-needed"], index, **kw)
        for version in ("2.8.0", "2.9.0", "2.9.1"):
            torch(version + "+cpu", "whl/cpu")
        torch("2.9.1+cu128", "whl/cu128", "12.8")
        torch("9.0", "simple", "13.0")  # as PyPI has it: newer, and another build
        made.index.wheel("gp-needed", "1.0")
        made.index.wheel("gp-upgrades", "1.0", requires=["torch>=9"])
        yield made


@pytest.fixture(name="node")
def node_fixture(lab, tmp_path):
    with python_node(lab, tmp_path) as made:
        made.block = {"torch_index": lab.index.url + "/whl/", "index": lab.index.url + "/simple"}
        yield made


@pytest.mark.long
def test_the_newest_build_for_a_node_without_gpus(node):
    out = node.python(torch="auto", **node.block)
    assert node.version("torch") == "2.9.1+cpu" and node.version("gp-needed") == "1.0", out
    assert "installs torch for cpu (is not installed)" in out.texts("torch"), out
    assert not any("/simple/torch/" in line for line in node.lab.index.log), node.lab.index.log
    again = node.python(torch="auto", **node.block)
    assert again.result["applied"] == 0, again
    # an older version, by the beginning of its number
    node.python(torch="2.9.0", **node.block)
    assert node.version("torch") == "2.9.0+cpu"
    assert node.python(torch="2.9", **node.block).result["applied"] == 0
    node.python(torch="2.8", **node.block)
    assert node.version("torch") == "2.8.0+cpu"
    # no other package replaces it
    node.python(torch="2.8", packages=["gp-upgrades"], **node.block, error="step 'python-packages': pip reported: ")
    assert node.version("torch") == "2.8.0+cpu"


def test_the_build_is_that_of_the_gpu(node):
    """The GPU is the spec's: the host has none on its bus."""
    node.host.put("/usr/bin/nvidia-smi", "#!/bin/sh\n", 0o755)
    out = node.python(torch="2.9.1", **node.block, gpu="H100:1", error="step 'torch': pip reported: Could not find")
    assert any("/whl/cu1" in line for line in node.lab.index.log), (out, node.lab.index.log)


def test_a_version_that_is_not_there(node):
    node.python(torch="2.7.1", **node.block, error="step 'torch': pip reported: Could not find a version that "
                "satisfies the requirement torch==2.7.1 (from versions: 2.8.0+cpu, 2.9.0+cpu, 2.9.1+cpu)")


def test_an_import_that_fails(node):
    node.python(torch="2.9.1", **node.block)
    node.host.sh("cd /opt/venv/lib/python3*/site-packages/torch && echo '{\"fault\": \"import\"}' >standin.json && "
                 "rm version.py")
    node.python(torch="2.9.1", **node.block, error="step 'torch': torch 2.9.1+cpu is installed, but 'import torch' "
                "fails: ValueError: libcublas.so.*[0-9] not found in the system path")
