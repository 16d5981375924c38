# SPDX-License-Identifier: Apache-2.0
"""A pod that is a container: behind the stand-in of RunPod's API a process with namespaces and a root of its own runs the
command and the variables that gpuprov gave the pod, and nothing else; it is reached at a mapped port."""
import base64
import json
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import lab as labs
import pytest
from conftest import Gpuprov
from repo import Repo
from runpod import RunPod
from waiting import wait_for

ADDRESS = "10.77.0.1"
pytestmark = [pytest.mark.root, pytest.mark.namespaces]

# A mapped port: HOST PORT TO TO_PORT.
MAPPED = """
import asyncio, sys
host, port, to, to_port = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
async def pass_on(reader, writer):
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    writer.close()
async def serve(reader, writer):
    try:
        to_reader, to_writer = await asyncio.open_connection(to, to_port)
    except OSError:
        return writer.close()
    await asyncio.gather(pass_on(reader, to_writer), pass_on(to_reader, writer))
async def main():
    async with await asyncio.start_server(serve, host, port) as server:
        await server.serve_forever()
asyncio.run(main())
"""

# What container engines leave of root's rights by default.
RIGHTS = ("-all", "+chown", "+dac_override", "+fowner", "+fsetid", "+kill", "+setgid", "+setuid", "+setpcap",
          "+net_bind_service", "+net_raw", "+sys_chroot", "+mknod", "+audit_write", "+setfcap")
# pid 1 of the container: what a container engine prepares, then the pod's own command with its variables and those rights
# only.
INIT = """#!/bin/sh
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mount -t devpts devpts /dev/pts -o newinstance,ptmxmode=0666,mode=620 2>/dev/null
hostname "$(cat /etc/hostname)"
cat /lab-boot-id >/run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
cd /
exec setpriv --bounding-set {rights} --inh-caps -all env -i {variables} {command}
"""


class Containers:
    """RunPod's hosts: start() runs a pod's command in a container and maps its port 22."""

    def __init__(self, lab, tmp):
        self.lab, self.tmp, self.number = lab, tmp, 1
        self.running, self.prepare = {}, lambda host: None
        self.thread = ThreadPoolExecutor(1)  # a child of the lab ends with the thread that started it

    def start(self, pod):
        self.number += 1
        port, address = 40000 + self.number, f"10.77.1.{self.number}"
        host = self.lab.add("light", f"pod{self.number}", address, start=False)
        variables = {"PATH": "/opt/image/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                     "CUDA_VERSION": "12.8.1", **pod.body["env"]}
        host.put("/sbin/lab-init", INIT.format(
            rights=",".join(RIGHTS),
            variables=" ".join(shlex.quote(f"{k}={v}") for k, v in variables.items()),
            command=shlex.join(shlex.split(pod.body["args"]))), 0o755)
        host.put("/etc/apt/sources.list.d/test.list", self.lab.repo.sources())
        self.prepare(host)
        host.start()
        mapped = self.thread.submit(self.lab.popen, [sys.executable, "-c", MAPPED, ADDRESS, port, address, 22]).result()
        self.running[pod.id] = (host, mapped)
        return ADDRESS, port

    def stop(self, pod):
        host, mapped = self.running.pop(pod.id, (None, None))
        if host:
            mapped.kill()
            mapped.wait()
            host.remove()

    def host(self, pod):
        return self.running[pod.id][0]


class World:
    def __init__(self, lab, cloud, gp, tmp):
        self.lab, self.cloud, self.gp, self.tmp = lab, cloud, gp, tmp

    def spec(self, **bootstrap):
        path = self.tmp / "box.yaml"
        path.write_text(json.dumps({"name": "box", "offers": [{"provider": "runpod"}], "image": {"id": "lab/box:1"},
                                    "limits": {"ttl": "1h", "unattended": "accept"}, "access": {"timeout": "60s"},
                                    "bootstrap": bootstrap, "validate": {"time": "1m"}}))
        return path

    @property
    def pod(self):
        return next(iter(self.cloud.pods.values()))

    @property
    def host(self):
        return self.cloud.machine.host(self.pod)


class InLab(Gpuprov):
    def __init__(self, lab, cloud, program, tmp):
        super().__init__(program, tmp / "state", tmp)
        self.lab = lab
        self.env.update(cloud.environment(tmp), GPUPROV_OWNER="me")

    def popen(self, *args, env=None, **kw):
        kw.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(self.lab.in_net([self.program, *args]), text=True, errors="replace",
                                env={**self.env, **(env or {})}, start_new_session=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **kw)


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("pods")
    with labs.Lab(tmp) as lab:
        lab.repo = Repo(tmp / "repo")
        lab.repo.add("gp-one")
        lab.repo.serve(lab, ADDRESS)
        yield lab
        lab.repo.close()


@pytest.fixture(name="world")
def world_fixture(lab, program, tmp_path):
    machine = Containers(lab, tmp_path)
    cloud = lab.call(RunPod, machine=machine)  # its socket is in the lab's network
    with cloud:
        cloud.run_after = 1
        yield World(lab, cloud, InLab(lab, cloud, program, tmp_path), tmp_path)
        for pod in list(cloud.pods.values()):
            machine.stop(pod)
        machine.thread.shutdown()
        assert cloud.faults == []


def first_key(pod):
    """The public host key that the pod was given."""
    script = base64.b64decode(pod.body["env"]["GPUPROV_START"]).decode()
    line = next(x for x in script.splitlines() if x.lstrip().startswith("printf") and "ssh-ed25519 " in x and ".pub" in x)
    return " ".join(shlex.split(line)[2].split()[:2])


def test_a_container_becomes_a_node(world):
    """From a spec to a validated node and back: reached at a mapped port as root, with the steps that a container can have,
    its first host key replaced, a second run changes nothing."""
    (world.tmp / "hello.txt").write_text("hello\n")
    path = world.spec(packages=["gp-one"], files=[{"from": "hello.txt", "to": "/opt/hello.txt"}],
                      limits={"nofile": 2048}, steps=[{"name": "mine", "run": "id -un >~/who; echo $PATH $CUDA_VERSION >~/env"}])
    up = world.gp("up", path, "--yes", "--trace", "http")
    assert "READY" in up.out.upper(), up
    pod, host = world.pod, world.host
    assert host.file("/root/who").read_text() == "root\n"
    assert host.file("/root/env").read_text() == "/opt/image/bin:/usr/sbin:/usr/bin:/sbin:/bin 12.8.1\n"
    assert "a80425fb" in world.gp("ssh", "box/0", "--", "grep", "CapBnd", "/proc/self/status").out
    assert host.file("/opt/hello.txt").read_text() == "hello\n"
    assert host.sh("dpkg -s gp-one | grep -c '^Status: install ok installed'").stdout == "1\n"
    # the key of the pod's variables is of no use any more, and nothing has shown its private half
    assert host.host_key() != first_key(pod)
    assert host.host_key() in world.gp("ssh", "box/0", "--", "cat", "/etc/ssh/ssh_host_ed25519_key.pub").out
    assert pod.body["env"]["GPUPROV_START"] not in up.err and "PRIVATE KEY" not in up.out + up.err
    assert "GPUPROV_START" not in host.sh("tr '\\0' '\\n' </proc/1/environ").stdout
    steps = [e["step"] for e in world.gp("up", path, "--yes", "--json").events if e.get("phase") == "bootstrap"]
    assert not {"cloud-init", "clock", "package-locks", "deadline"} & set(steps)
    assert len(world.cloud.requests("POST")) == 1
    world.gp("down", "box", "--yes")
    assert world.cloud.pods == {} and world.cloud.machine.running == {}


@pytest.mark.long
def test_a_container_that_began_anew(world):
    """RunPod restarts a container with a fresh disk: its first host key, which everyone in the account can read, is back."""
    path = world.spec()
    world.gp("up", path, "--yes")
    pod = world.pod
    own = world.host.host_key()
    world.cloud.machine.stop(pod)
    pod.address = world.cloud.machine.start(pod)
    wait_for(world.host.ssh_up, 60)
    assert world.host.host_key() == first_key(pod) != own
    done = world.gp("ssh", "box/0", "--", "true", code=None)
    assert done.code != 0 and "host key" in done.err.lower(), done
    world.gp("down", "box", "--yes")
    assert world.cloud.pods == {}


@pytest.mark.long
def test_a_container_that_keeps_its_disk(world):
    """The start command run again keeps the host key that the node made."""
    path = world.spec()
    world.gp("up", path, "--yes")
    own = world.host.host_key()
    script = base64.b64decode(world.pod.body["env"]["GPUPROV_START"]).decode()
    world.host.put("/again.sh", script.replace('exec "$sshd"', 'exec true "$sshd"'))
    world.host.sh("sh /again.sh")
    assert world.host.host_key() == own
    assert world.gp("ssh", "box/0", "--", "id", "-un").out == "root\n"
    world.gp("down", "box", "--yes")


def test_an_image_without_sshd(world):
    """Nothing can log in: the container stays, so that its log has the reason, and 'down' ends the pod."""
    def without(host):
        host.put("/usr/sbin/sshd", "", 0o644)  # not executable

    world.cloud.machine.prepare = without
    path = world.spec()
    spec = json.loads(path.read_text())
    path.write_text(json.dumps({**spec, "access": {"timeout": "8s"}}))
    up = world.gp("up", path, "--yes", code=6)
    assert "box/0" in up.err
    said = (world.host.dir / "console.log").read_text()
    assert "this image has no sshd: installing openssh-server" in said and "openssh-server has no sshd" in said, said
    assert world.host.state == "running"
    world.gp("down", "box", "--yes")
    assert world.cloud.pods == {}


@pytest.mark.long
def test_sshd_is_installed_where_the_image_has_none(world):
    """The image's package manager brings one, before anything of gpuprov can be there."""
    def prepare(host):
        sshd = host.file("/usr/sbin/sshd")
        host.file("/opt/sshd").write_bytes(sshd.read_bytes())
        sshd.unlink()

    world.cloud.machine.prepare = prepare
    world.lab.repo.add("openssh-server", version="9:99", postinst="cp /opt/sshd /usr/sbin/sshd && chmod 755 /usr/sbin/sshd\n")
    world.gp("up", world.spec(), "--yes")
    assert world.host.sh("dpkg-query -W -f '${Version}' openssh-server").stdout == "9:99"
    world.gp("down", "box", "--yes")
    assert world.cloud.pods == {}
