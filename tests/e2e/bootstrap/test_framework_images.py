# SPDX-License-Identifier: Apache-2.0
"""framework.images: torch (a stand-in) in container images, through real engines on systemd hosts, with stand-in GPUs
and between two hosts."""
import json
import os
import pathlib
import secrets
import subprocess

import pytest
import torch_standin
from containers import LOGIN, ContainerLab
from lab import why_not
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces, pytest.mark.skipif(bool(why_not()), reason=str(why_not()))]
BUILD = pathlib.Path(os.environ.get("B", pathlib.Path(__file__).resolve().parents[3] / "build"))
AGENT = BUILD / "agent/gpuprov-agent"
CHECK = "framework.images"

# The host's own Python as the root folder of an image, in /lab/python.
PYTHON = r'''
set -e
img=/lab/python
[ ! -d $img ] || exit 0
v=$(python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
mkdir -p $img/usr/bin $img/usr/lib $img/tmp $img/etc $img/dev $img/proc $img/sys
cp /usr/bin/$v $img/usr/bin/python3
cp -r /usr/lib/$v $img/usr/lib/
rm -rf $img/usr/lib/$v/config-* $img/usr/lib/$v/ensurepip $img/usr/lib/$v/idlelib $img/usr/lib/$v/test
ldd /usr/bin/$v /usr/lib/$v/lib-dynload/*.so | awk '$3 ~ "^/" {print $3} $1 ~ "^/.*ld-" {print $1}' | sort -u |
    xargs cp -L --parents -t $img
'''
GPU = {"gpus": "dev", "arch": ["sm_90"], "torch": {"version": "2.9.1+cu128", "cuda": "12.8"}}


@pytest.fixture(scope="module", name="lab")
def lab_fixture(tmp_path_factory):
    with ContainerLab(tmp_path_factory.mktemp("images")) as lab:
        yield lab


@pytest.fixture(name="host")
def host_fixture(lab):
    made = []

    def make(**kw):
        made.append(lab.host(**kw))
        return made[-1]
    yield make
    for host in made:
        host.remove()


def make_image(host, name, asked=None, torch=None):
    """Makes an image of the host's Python in podman. asked: for the stand-in of torch; None: without torch."""
    host.sh(PYTHON)
    packages = "/lab/python/usr/local/lib/%s/dist-packages" % host.sh("ls /lab/python/usr/lib | grep ^python").stdout.strip()
    host.sh("rm -rf %s; mkdir -p %s" % (packages, packages))
    if asked is not None:
        torch_standin.put(host.file(packages), **(torch or {}), **asked)
    host.sh("tar -C /lab/python --owner=0 --group=0 -cf - . | podman import -q -c 'ENV PATH=/usr/bin:/bin' - " + name)


def give(host, engine, name):
    """From podman to the other engine."""
    load = {"docker": "docker load", "containerd": "ctr image import -"}
    if engine in load:
        host.sh("systemctl start %s && podman save -q %s | %s" % (engine, name, load[engine]))


def ranks(host, engine, images, n=1, gpus=False, user="ops", deadline=60):
    """The results of n ranks on one host, as the controller starts them."""
    folder = "/tmp/rank-" + secrets.token_hex(4)
    command = ("/lab/gpuprov-agent rank --dir %s --rank 0 --ranks %d --size %d --bind 127.0.0.1 --check %s --deadline %ds "
               "--container-engine %s --images %s%s" % (folder, n, n, CHECK, deadline, engine, ",".join(images),
                                                      " --gpu 0" if gpus else ""))
    if not host.file("/lab/gpuprov-agent").exists():
        host.file("/lab/gpuprov-agent").write_bytes(AGENT.read_bytes())
        host.sh("chmod 0755 /lab /lab/gpuprov-agent")
    host.sh("printf '%s\n\n' | su %s -c '%s'" % (secrets.token_hex(32), user, command))
    lines = []

    def ended():
        lines[:] = [json.loads(line) for line in host.sh("cat %s/rank.jsonl" % folder).stdout.splitlines()]
        return sum(line["type"] == "end" for line in lines) == n
    wait_for(ended, deadline + 60)
    return sorted((line for line in lines if line["type"] == "result"), key=lambda line: line["rank"])


def left(host):
    return host.sh("podman ps -aq; docker ps -aq 2>/dev/null; ctr c ls -q 2>/dev/null; pgrep -f GPUPROV_IMAG[E]",
                   check=False).stdout.strip()


@pytest.mark.long
@pytest.mark.parametrize("engine", ["podman", "docker", "containerd"])
def test_two_gpus_of_a_node(host, engine):
    it = host(gpus=2)
    name, broken = "docker.io/lab/torch:1", "docker.io/lab/torch:2"
    make_image(it, name, {k: v for k, v in GPU.items() if k != "torch"}, GPU["torch"])
    make_image(it, broken, {"fault": "import"})
    it.sh("apt-get -q update && apt-get install -y nvidia-container-toolkit && "
          "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
    if engine == "docker":
        it.sh("nvidia-ctk runtime configure --runtime=docker && systemctl restart docker")
    give(it, engine, name)
    give(it, engine, broken)
    zero, one = ranks(it, engine, [name], 2, gpus=True)
    assert (zero["verdict"], one["verdict"]) == ("pass", "pass"), (zero, one)
    assert "torch trains in 1 of 1 image; " + name + ": torch 2.9.1+cu128 for CUDA 12.8" in zero["message"], zero
    assert "over 2 ranks by nccl left the same weights" in zero["message"], zero
    assert not left(it)
    bad, _ = ranks(it, engine, [name, broken], 2, gpus=True)
    assert (bad["verdict"], bad["code"]) == ("fail", "import"), bad
    assert bad["message"].startswith(broken + ": rank 0") and "libcublas.so" in bad["message"], bad
    assert [i["verdict"] for i in bad["data"]["images"]] == ["pass", "fail"], bad
    assert not left(it)


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("engine", ["docker", "podman", "containerd"])
def test_images_without_torch_and_bad_days(host, engine):
    it = host()
    torch, python, bare = ("docker.io/lab/%s:1" % n for n in ("torch", "python", "bare"))
    make_image(it, torch, {})
    make_image(it, python)
    it.sh("podman import -q /lab/busybox.tar " + bare)
    for name in (torch, python, bare):
        give(it, engine, name)
    # without torch: skipped with the reason of each
    (none,) = ranks(it, engine, [python, bare])
    assert (none["verdict"], none["code"]) == ("skipped", "no_torch"), none["message"]
    assert none["message"] == ("no image has torch; %s: /usr/bin/python3 has no torch; %s: the image has no python3"
                               % (python, bare)), none
    # one of two
    (some,) = ranks(it, engine, [bare, torch])
    assert some["verdict"] == "pass" and some["message"].startswith("torch trains in 1 of 2 images; " + torch), some
    assert "%s: the image has no python3" % bare in some["message"], some
    # an image that is not there is no reason to skip
    (gone,) = ranks(it, engine, ["docker.io/lab/gone:1"])
    assert (gone["verdict"], gone["code"]) == ("fail", "not_started"), gone
    assert "%s ended with status " % engine in gone["message"] and "started no Python: " in gone["message"], gone
    # nor is a login that may not use the engine
    it.sh("useradd -m guest")
    (guest,) = ranks(it, engine, [torch], user="guest")
    assert (guest["verdict"], guest["code"]) == ("fail", "not_started") and "password" in guest["message"], guest
    # an engine that is not there
    it.sh("mv /usr/bin/%s /usr/bin/hidden" % ("ctr" if engine == "containerd" else engine))
    (absent,) = ranks(it, engine, [torch])
    assert (absent["verdict"], absent["code"]) == ("fail", "not_started"), absent
    assert "%s is not installed" % engine in absent["message"], absent
    assert not left(it)


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("engine", ["docker", "podman", "containerd"])
def test_a_rank_that_hangs_leaves_no_container(host, engine):
    it = host()
    name = "docker.io/lab/torch:1"
    make_image(it, name, {"fault": "hang_forward"})
    give(it, engine, name)
    (hung,) = ranks(it, engine, [name], deadline=20)
    assert (hung["verdict"], hung["code"]) == ("fail", "hang"), hung
    assert "Python did not come beyond 'forward' within " in hung["message"], hung
    assert not left(it)


@pytest.mark.long
def test_from_a_spec_over_two_hosts(host, lab, gpuprov, tmp_path):
    """Images of a registry, a container on each host, one step of training between them."""
    hosts = [host(), host()]
    image, bare = lab.image("torch:1"), lab.image("bb:1")
    make_image(hosts[0], image, {})
    lab.push(hosts[0], "torch:1", made=True)
    lab.push(hosts[0], "bb:1")
    (tmp_path / "login").write_text(LOGIN)
    lab.hosts_file(tmp_path / "hosts.yaml", *hosts)
    spec = {"name": "box", "nodes": 2, "offers": [{"provider": "ssh", "hosts": "hosts.yaml"}],
            "validate": {"time": "1m", "require": [CHECK]}, "secrets": [{"env": "RUN", "from": "file:login"}],
            "bootstrap": {"container": {"engine": "podman", "images": [image, bare], "registry_auth": "RUN"}}}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    lab.enter(gpuprov, tmp_path)
    report = gpuprov("up", tmp_path / "spec.yaml", "--json", timeout=400).json["report"]
    found = next(c for c in report["gang"] if c["check"] == CHECK)
    assert (found["verdict"], found["required"]) == ("pass", True), found
    assert "torch trains in 1 of 2 images" in found["message"] and "over 2 ranks by gloo" in found["message"], found
    assert bare + ": the image has no python3" in found["message"], found
    # it is gone from one host
    hosts[1].sh("podman rmi -f " + image)
    report = gpuprov("validate", "box", "--json", code=7, timeout=400).json
    found = next(c for c in report["gang"] if c["check"] == CHECK)
    assert found["verdict"] == "fail" and [b["node"] for b in found["data"]["blamed"]] == ["box/1"], found
    assert "started no Python" in found["message"], found
    # without torch in any image the demand is not met
    spec["bootstrap"]["container"]["images"] = [bare]
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    report = gpuprov("up", tmp_path / "spec.yaml", "--json", code=7, timeout=400).json["report"]
    found = next(c for c in report["gang"] if c["check"] == CHECK)
    assert (found["verdict"], found["required"], found["code"]) == ("skipped", True, "no_torch"), found


@pytest.mark.long
def test_a_real_torch_in_an_image(host):
    it = host()
    name = "docker.io/lab/torch:real"
    folder = os.environ.get("GP_HOSTS_DIR") or BUILD / "hosts"
    made = subprocess.run([pathlib.Path(__file__).resolve().parents[2] / "hosts/real_torch.sh", folder],
                          capture_output=True, text=True, timeout=1800, check=False)
    assert made.returncode == 0, made.stderr
    it.sh(PYTHON)
    version = it.sh("ls /lab/python/usr/lib | grep ^python").stdout.strip()
    real = pathlib.Path(made.stdout.strip()) / "lib" / version / "site-packages"
    assert real.is_dir(), "the hosts' %s is not that of %s" % (version, made.stdout)
    packages = it.file("/lab/python/usr/local/lib/%s" % version)
    packages.mkdir(parents=True)
    subprocess.run(["cp", "-a", real, packages / "dist-packages"], check=True)
    it.sh("cd /lab/python && cp -L --parents -t . $(ls /lib/*/libstdc++.so.6 /lib/*/libgcc_s.so.1 /lib/*/librt.so.1 "
          "/lib/*/libdl.so.2 /lib/*/libpthread.so.0)")
    it.sh("tar -C /lab/python --owner=0 --group=0 -cf - . | podman import -q -c 'ENV PATH=/usr/bin:/bin' - " + name,
          timeout=900)
    zero, one = ranks(it, "podman", [name], 2, deadline=300)
    assert (zero["verdict"], one["verdict"]) == ("pass", "pass"), (zero, one)
    assert "torch 2.15.0" in zero["message"] and "over 2 ranks by gloo left the same weights" in zero["message"], zero
