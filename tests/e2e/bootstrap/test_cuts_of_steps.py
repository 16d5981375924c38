# SPDX-License-Identifier: Apache-2.0
"""SSH is lost in each step of the table, twice: the steps go on, none runs again, and the node is as without a cut. Also
in steps that reboot the node in their middle."""
import contextlib
import socket
import subprocess
import sys

import boto3
import lab as labs
import pytest
import torch_standin
from botocore.config import Config
from container_node import ContainerNode
from containers import LOGIN, ContainerLab
from gpu_node import H100, NVSWITCH, GpuNode, start_lab
from gpu_repo import DRIVER
from python_lab import python_lab, python_node
from repo import Repo
from step_cutter import Cutter
from storage_node import StorageNode
from test_bootstrap import Node
from test_mounts import GOOD, OWN_DEV, DiskNode
from test_os_steps import YEARS, clock
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
NEWER = "6.1.0-99-amd64"
ADDRESS = "10.77.0.1"


class Rig:
    """run(during): the whole bootstrap of `host`. steps: what it applies, in order; twice: those that also run after a
    reboot; own: those without a script on the node."""

    def __init__(self, host, run, steps, twice=(), own=("agent",)):
        self.host, self.run, self.steps, self.twice, self.own = host, run, steps, twice, own


def start(host, key):
    host.authorize((key.parent / "key.pub").read_text())
    host.start()
    host.wait_ssh()


@contextlib.contextmanager
def keyed_lab(tmp, base_script="base.sh"):
    with labs.Lab(tmp, base_script=base_script) as made:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp / "key"], check=True)
        made.key = tmp / "key"
        made.repo = Repo(tmp / "repo")
        yield made
        made.repo.close()


@contextlib.contextmanager
def os_rig(tmp):
    """A launched machine with systemd whose clock is years off, and an upgrade that must end first."""
    with keyed_lab(tmp) as lab:
        lab.repo.add("gp-one")
        lab.repo.serve(lab, ADDRESS)
        host = lab.add("systemd", "os", "10.77.1.3", start=False)
        lab.repo.use(host)
        host.put("/etc/systemd/system/unattended-upgrades.service",
                 "[Service]\nExecStart=/bin/sleep 1000\n[Install]\nWantedBy=multi-user.target\n")
        start(host, lab.key)
        host.sh("systemctl enable --now unattended-upgrades.service")
        clock(host, -YEARS)
        # it ends after its step was cut
        host.sh("systemctl mask -q --now cloud-init-local cloud-init cloud-config cloud-final; "
                "rm -rf /run/cloud-init; mkdir /run/cloud-init; setsid sh -c '%s' </dev/null >/dev/null 2>&1 &" % (
                    "until grep -q cloud_init /cut/log && ! ls /cut/*.at; do sleep 0.1; done; "
                    "echo \"{}\" >/run/cloud-init/result.json"))
        node = Node(lab, host, tmp)
        options = ["--cloud-init", "yes", "--launched", "yes", "--ends-itself", "36000", "--package", "gp-one",
                   *node.step("mine", "echo x >>~/mine\n")]
        yield Rig(host, lambda during=None: node.run(*options, during=during),
                  ["cloud-init", "package-locks", "clock", "deadline", "packages", "mine", "agent"])
        assert host.file("/home/ops/mine").read_text() == "x\n"
        host.remove()


@contextlib.contextmanager
def gpu_rig(tmp):
    """A kernel without headers and a loaded nouveau: the node is rebooted in the middle of the first step, and the
    others have a kernel of another name then."""
    def fill(repo):
        repo.driver(DRIVER)
        repo.libraries()
    lab = start_lab(tmp, fill, lambda repo: repo.kernel(NEWER))
    try:
        node = GpuNode(lab, tmp, ({**H100, "device": "0x2941"}, NVSWITCH))
        node.distribution()
        node.host.put("/etc/lab-kernel", "6.1.0-97-amd64\n")
        node.start()
        node.sh("echo 'nouveau 2000000 1 - Live 0x0' >/run/lab-modules")
        spec = node.spec(driver={"branch": DRIVER, "source": lab.repo.source()}, cuda={"runtime": ["13.0"]}, cudnn="auto",
                         nccl="auto")
        yield Rig(node.host, lambda during=None: node.run(spec, during=during),
                  ["kernel-headers", "nouveau-off", "driver-repo", "driver", "persistence", "fabric-manager", "imex", "cuda",
                   "cudnn", "nccl", "holds", "agent"], twice=["kernel-headers"])
        assert node.host.boots == 2 and node.sh("uname -r") == NEWER
        assert node.sh("modinfo -k %s -F version nvidia" % NEWER) == DRIVER
        node.remove()
    finally:
        lab.repo.close()
        lab.kernels.close()
        lab.close()


@contextlib.contextmanager
def s3(lab, tmp):
    with open(tmp / "moto.log", "wb") as log:
        moto = lab.popen([sys.executable, "-c", "from moto.server import main; main()", "-H", ADDRESS, "-p", "5055"],
                         stdout=log, stderr=log)

    def listens():
        try:
            lab.call(socket.create_connection, (ADDRESS, 5055), 1).close()
            return True
        except OSError:
            return False
    try:
        wait_for(listens, 60)
        client = boto3.client("s3", endpoint_url="http://%s:5055" % ADDRESS, aws_access_key_id="a",
                              aws_secret_access_key="b", region_name="us-east-1", config=Config(retries={"max_attempts": 1}))
        lab.call(client.create_bucket, Bucket="data")
        yield
    finally:
        moto.kill()
        moto.wait()


@contextlib.contextmanager
def storage_rig(tmp):
    with keyed_lab(tmp, "base_storage.sh") as lab, s3(lab, tmp):
        host = lab.add("light", "st", "10.77.5.3", start=False)
        start(host, lab.key)
        node = DiskNode(lab, host, tmp)
        try:
            host.sh(OWN_DEV)
            node.disk("nvme0n1")
            host.put("/sbin/mount.nfs", "#!/bin/sh\n" + GOOD, 0o755)
            names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
            for name in names:
                (tmp / name).write_text("sEcReT" + name)
            (tmp / "code").mkdir()
            (tmp / "code" / "train.py").write_text("print(1)\n" * 100000)
            boot = {"limits": {"nofile": 4096}, "files": [{"from": str(tmp / "code"), "to": "/opt/code"}], "mounts": [
                {"at": "/scratch", "nvme": "auto"}, {"at": "/shared", "nfs": "10.77.0.1:/x"},
                {"at": "/data", "bucket": "s3://data", "endpoint": "http://%s:5055" % ADDRESS, "secrets": names}]}
            secrets = [{"env": name, "from": "file:" + str(tmp / name)} for name in names]
            yield Rig(host, lambda during=None: node.run(boot, secrets=secrets, during=during),
                      ["limits", "disks", "shares", "buckets", "files", "agent"], own=("files", "agent"))
            assert host.file("/opt/code/train.py").read_bytes() == (tmp / "code" / "train.py").read_bytes()
            assert host.sh("grep -c x-gpuprov /etc/fstab").stdout.strip() == "3"
            host.sh("umount /data", check=False)
        finally:
            node.close()


@contextlib.contextmanager
def python_rig(tmp):
    with python_lab(tmp) as lab, python_node(lab, tmp) as node:
        lab.index.wheel("gp-one", "1.0")
        lab.index.wheel("torch", "2.9.1+cpu", torch_standin.files("2.9.1+cpu", None), [], "whl/cpu")
        block = {"venv": "/opt/train", "packages": ["gp-one"], "torch": "auto", "torch_index": lab.index.url + "/whl/",
                 "index": lab.index.url + "/simple"}
        yield Rig(node.host, lambda during=None: node.python(during=during, **block),
                  ["python-venv", "torch", "python-packages", "agent"])
        assert node.version("torch", "/opt/train") == "2.9.1+cpu" and node.version("gp-one", "/opt/train") == "1.0"


@contextlib.contextmanager
def container_rig(tmp):
    with ContainerLab(tmp) as lab:
        host = lab.host(gpus=1)
        try:
            node = ContainerNode(lab, host, tmp)
            lab.push(host, "bb:1")
            (tmp / "login").write_text(LOGIN)
            boot = {"container": {"engine": "docker", "images": [lab.image("bb:1")], "registry_auth": "RUN"}}
            secrets = [{"env": "RUN", "from": "file:login"}]
            yield Rig(host, lambda during=None: StorageNode.run(node, boot, secrets=secrets, during=during),
                      ["container-engine", "container-toolkit", "container-cdi", "images", "agent"])
            assert node.check("docker")["verdict"] == "pass"
        finally:
            host.remove()


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("rig", [os_rig, gpu_rig, storage_rig, python_rig, container_rig],
                         ids=lambda rig: rig.__name__.removesuffix("_rig"))
def test_ssh_lost_in_each_step(tmp_path, rig):
    with rig(tmp_path) as made:
        cutter = Cutter(made.host, made.own)
        out = made.run(during=cutter)
        assert [e["step"] for e in out.events if e["event"] == "done"] == made.steps, out
        scripts = [name for name in made.steps if name not in made.own]
        want = sorted([name.replace("-", "_") for name in (*scripts, *made.twice)])
        assert sorted(cutter.runs()) == want, (cutter.runs(), out)  # none runs again after a cut
        assert set(cutter.cut) >= {*want, *made.own}, (cutter.cut, out)
        cutter.release()
        again = made.run()
        assert again.result["applied"] == 0, again
