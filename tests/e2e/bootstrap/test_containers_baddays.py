# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with containers: registries that refuse, secrets that must be seen nowhere, full disks, engines that
do not start, toolkits that cannot be had."""
import json
import threading

import pytest
from container_node import ContainerNode
from containers import LOGIN, REGISTRY, ContainerLab
from lab import why_not

pytestmark = [pytest.mark.root, pytest.mark.namespaces, pytest.mark.skipif(bool(why_not()), reason=str(why_not()))]
ENGINES = ["podman", "docker", "containerd"]


@pytest.fixture(scope="module", name="lab")
def lab_fixture(tmp_path_factory):
    with ContainerLab(tmp_path_factory.mktemp("containers")) as lab:
        yield lab


@pytest.fixture(name="shared", scope="module")
def shared_fixture(lab):
    host = lab.host()
    host.digest = lab.push(host, "bb:1")
    return host


@pytest.fixture(name="it")
def it_fixture(lab, shared, tmp_path):
    """A node that other tests use too."""
    return ContainerNode(lab, shared, tmp_path)


@pytest.fixture(name="own")
def own_fixture(lab, tmp_path):
    host = lab.host(gpus=1)
    yield ContainerNode(lab, host, tmp_path)
    host.remove()


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_a_registry_that_does_not_give_an_image(it, lab, engine):
    def want(name, **auth):
        return {"engine": engine, "images": [name], **auth}
    image, auth = lab.image("bb:1"), {"registry_auth": "RUN"}
    refused = it.set_up(want(image), error=f"step 'images': the registry {REGISTRY} refuses {image}: ")
    assert "; add bootstrap.container.registry_auth" in refused.result["error"]
    wrong = it.set_up(want(image, **auth), login="lab:wrong", error=f"the registry {REGISTRY} refuses {image}: ")
    assert "; check the secret RUN (bootstrap.container.registry_auth)" in wrong.result["error"]
    it.set_up(want(lab.image("bb:none"), **auth), error=f"the registry {REGISTRY} has no {lab.image('bb:none')}: ")
    other = lab.image("bb@sha256:" + "0" * 64)
    it.set_up(want(other, **auth), error=f"the registry {REGISTRY} has no {other}: ")
    assert not it.has("/run/gpuprov-login")


def test_a_registry_that_cannot_be_reached(it):
    out = it.set_up({"engine": "podman", "images": ["10.77.0.9:5001/bb:1"]},
                    error="step 'images': the registry 10.77.0.9:5001 cannot be reached: ")
    assert "connection refused" in out.result["error"]
    assert sum("did not answer, tries again" in t for t in out.texts("images")) == 2, out


@pytest.mark.parametrize("login, engine, error", [
    ("lab", "podman", "the secret RUN is not USER:PASSWORD and not a docker config.json"),
    ("{}", "docker", "the secret RUN is JSON without \"auths\""),
    ('{"auths":{}}', "containerd", "containerd takes no docker config.json: write USER:PASSWORD"),
    ("a:b", "podman", "which is for one registry, but the images are of 10.77.0.9:5000 and docker.io: use a docker config.json"),
])
def test_a_login_that_does_not_fit_is_refused_before_anything_is_done(it, login, engine, error):
    out = it.set_up({"engine": engine, "images": [REGISTRY + "/bb:1", "busybox:1"], "registry_auth": "RUN"}, login=login,
                    error=error)
    assert out.done() == [], out


@pytest.mark.parametrize("engine", ENGINES)
def test_the_login_is_seen_nowhere(it, lab, engine):
    """Arguments of all processes while an image is pulled, and files and logs afterwards. A login that is on the node
    does not count and stays as it is."""
    password, image = LOGIN.split(":", 1)[1], lab.image("secret-%s:1" % engine)
    lab.push(it.host, "secret-%s:1" % engine)
    it.host.put("/lab/look.py", LOOK)
    it.host.put("/root/.docker/config.json", '{"auths":{"%s":{"auth":"bm86bm8="}}}' % REGISTRY)
    it.host.put("/lab/word", password)
    found = []

    def watch(_):
        found.append(it.host.sh("rm -f /lab/stop; python3 /lab/look.py").stdout)
    thread = threading.Thread(target=watch, args=(None,))
    thread.start()
    try:
        out = it.set_up({"engine": engine, "images": [image], "registry_auth": "RUN"})
    finally:
        it.host.put("/lab/stop", "")
        thread.join()
    seen = json.loads(found[0])
    assert seen["arguments"] == [] and seen["pulls"], seen
    assert seen["login"] in ([], ["0o700 0o600"]), seen
    it.host.file("/lab/word").unlink()
    assert password not in repr(out) and it.sh("cat /root/.docker/config.json").count("bm86bm8=") == 1
    for word in (password, "bGFiOkdlaGVpbSAn"):  # and "lab:Geheim '" in base64
        it.host.put("/lab/pattern", word + "\n", 0o600)
        files = it.sh("grep -rlsaF -f /lab/pattern --exclude=pattern --exclude=look.py /home /tmp /var /run /etc /root /lab; true")
        assert files == "", files
    assert not it.has("/run/gpuprov-login")


# Prints what it saw until /lab/stop is there: arguments with the password, and the modes of the login's folder and file.
LOOK = r'''
import glob, json, os, stat
word = open("/lab/word", "rb").read()
parts = (word, word.replace(b"'", b"'\\''"), b"bGFiOkdlaGVpbSAn")
seen, arguments, modes = set(), set(), set()
while not os.path.exists("/lab/stop"):
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            line = open(path, "rb").read()
        except OSError:
            continue
        seen.add(line)
        if any(p in line for p in parts):
            arguments.add(line.decode(errors="replace"))
    try:
        modes.add(" ".join(oct(stat.S_IMODE(os.stat("/run/gpuprov-login" + f).st_mode)) for f in ("", "/config.json")))
    except OSError:
        pass
print(json.dumps({"arguments": sorted(arguments), "pulls": [p.decode() for p in seen if b"\0pull\0" in p], "login": sorted(modes)}))
'''


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("engine, folder", [("podman", "containers"), ("docker", "docker")])
def test_a_disk_that_is_full_while_an_image_is_pulled(own, lab, engine, folder):
    name = "big:1"
    own.host.sh("mkdir /lab/big; tar -C /lab/big -xf /lab/busybox.tar; head -c 24000000 /dev/urandom >/lab/big/data; "
                "tar -C /lab/big -cf /lab/busybox.tar .")
    lab.push(own.host, name)
    own.host.sh("mount -t tmpfs -o size=12m small /var/lib/%s" % folder)
    out = own.set_up({"engine": engine, "images": [lab.image(name)], "registry_auth": "RUN"},
                     error="step 'images': the disk is full")
    assert "more space" in out.result["error"], out


@pytest.mark.long
def test_an_engine_that_does_not_start(own):
    own.host.put("/etc/docker/daemon.json", '{"storage-driver": "nonsense"}')
    out = own.set_up({"engine": "docker"}, error="step 'container-engine': docker is installed, but does not work: ")
    assert "failed to start daemon: error initializing graphdriver" in out.result["error"], out
    own.host.file("/etc/docker/daemon.json").unlink()
    assert "container-engine" in own.set_up({"engine": "docker"}).done()


@pytest.mark.long
def test_a_driver_that_does_not_work(own):
    own.host.put("/lab/driver-broken", "")
    own.set_up({"engine": "podman"}, error="step 'container-cdi': nvidia-ctk reported: ")
    own.host.file("/lab/driver-broken").unlink()
    own.set_up({"engine": "podman"})


@pytest.mark.long
def test_the_toolkit_cannot_be_had(own, lab):
    """No repository of the node has it: NVIDIA's is tried, and its key must be the one that gpuprov knows."""
    own.host.file("/etc/apt/sources.list.d/test.list").unlink()
    own.set_up({"engine": "podman"}, error="step 'container-toolkit': cannot fetch https://nvidia.github.io/")
    lab.serve_as(own.host, "nvidia.github.io", {"libnvidia-container/gpgkey": "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"})
    own.set_up({"engine": "podman"}, error="gpgkey is not the key that this gpuprov knows")
    assert not own.host.file("/etc/apt/sources.list.d/nvidia-container-toolkit.list").exists()


@pytest.mark.long
def test_a_pull_that_ends_before_it_reads_the_password(own, lab):
    """The reason is in what ctr printed."""
    own.host.put("/usr/local/sbin/ctr", "#!/bin/sh\ncase \"$*\" in *--user*) echo 'ctr: cannot read /etc/containerd/x: input/output "
                 "error'; exit 1 ;; esac\nexec /usr/bin/ctr \"$@\"\n", 0o755)
    own.set_up({"engine": "containerd", "images": [lab.image("bb:1")], "registry_auth": "RUN"},
               error="step 'images': containerd pull reported: cannot read /etc/containerd/x: input/output error")


def test_a_node_that_speaks_another_language(own):
    """apt-cache translates the words that the steps look for, as a real one does with LANG=de_DE.UTF-8."""
    own.host.put("/usr/local/bin/apt-cache", "#!/bin/sh\n/usr/bin/apt-cache \"$@\" | if [ \"$LC_ALL\" = C ]; then cat; "
                 "else sed 's/Candidate:/Installationskandidat:/'; fi\n", 0o755)
    own.set_up({"engine": "podman"})


@pytest.mark.long
def test_docker_is_not_restarted_under_containers(own):
    """The machine was there before, and somebody's container runs on it."""
    own.host.sh("systemctl start docker && docker import /lab/busybox.tar theirs && "
                "docker run -d --name job --network none theirs sleep 1000")
    own.set_up({"engine": "docker"}, error="ends running containers (1): stop them, or set live-restore")
    assert own.sh("docker ps -q --filter name=job") and not own.has("/etc/docker/daemon.json")
    own.host.sh("docker rm -f job")
    assert "container-toolkit" in own.set_up({"engine": "docker"}).done()
