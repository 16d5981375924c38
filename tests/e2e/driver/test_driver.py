# SPDX-License-Identifier: Apache-2.0
"""From a bare node to a loaded driver, CUDA, cuDNN and NCCL: real apt, dpkg, gpg and dkms; stand-in packages of
NVIDIA's names with a tiny module that is really built; the running kernel and the load are the preload's."""
import json
import os
import subprocess

import pytest
from gpu_node import GpuNode, driver_and_libraries, gets_all_of_it_once, start_lab
from gpu_repo import DRIVER

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    lab = start_lab(tmp_path_factory.mktemp("lab"), driver_and_libraries)
    yield lab
    lab.repo.close()
    lab.kernels.close()
    lab.close()


@pytest.fixture(name="node")
def node_fixture(lab, tmp_path):
    node = GpuNode(lab, tmp_path).start()
    yield node
    node.remove()


@pytest.mark.long
def test_a_bare_node_gets_all_of_it_once(node):
    gets_all_of_it_once(node)


def test_up_brings_a_host_with_systemd_to_a_driver(lab, tmp_path, program):
    """The whole program on a host of the ssh provider: services run by systemd, and up again changes nothing."""
    node = GpuNode(lab, tmp_path, kind="systemd").start()
    try:
        node.sh("mount --bind /lab-pci /sys/bus/pci/devices")
        (tmp_path / "known_hosts").write_text("%s %s\n" % (node.host.address, node.host.host_key()))
        (tmp_path / "hosts.yaml").write_text(json.dumps({"hosts": [{
            "address": node.host.address, "user": "ops", "key": str(lab.key), "known_hosts": str(tmp_path / "known_hosts")}]}))
        spec = tmp_path / "up.yaml"
        spec.write_text(json.dumps({
            "name": "gpu", "offers": [{"provider": "ssh", "hosts": "hosts.yaml"}], "validate": {"time": "1m"},
            "bootstrap": {"driver": {"branch": "580", "source": lab.repo.source()}, "cuda": {"runtime": ["13.0"]}}}))
        env = {**os.environ, "GPUPROV_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)}
        up = [str(program), "up", str(spec), "--json"]
        first = lab.run(up, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        steps = [json.loads(line).get("step") for line in first.stderr.splitlines() if '"status":"done"' in line]
        assert first.returncode == 0, first
        ours = ["driver-repo", "driver", "persistence", "cuda", "holds"]
        assert [step for step in steps if step in ours] == ours, first
        assert DRIVER in node.sh("cat /proc/driver/nvidia/version")
        assert node.sh("systemctl is-active nvidia-persistenced") == "active"
        assert node.run(node.spec(cuda={"runtime": ["13.0"]})).applied == []
    finally:
        node.remove()
