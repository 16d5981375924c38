# SPDX-License-Identifier: Apache-2.0
"""`gpuprov export`: the programs that the forms are for read them: ansible, ssh, slurmctld and slurmd, terraform."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from fleet import Fleet
from lab import why_not
from test_slurm import PROGRAMS, Cluster
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = {"name": "exp-1", "nodes": 2, "offers": [{"provider": "local"}], "limits": {"ttl": "20m"},
        "validate": {"time": "1m"}}
# slurmd wants the files of gres.conf to exist.
WITH_DEVICES = """
set -e
d=$1; shift
mkdir "$d"; mount -t tmpfs none "$d"
for f in null zero random urandom; do cp -a "/dev/$f" "$d"; done
for i in 0 1; do mknod "$d/nvidia$i" c 195 "$i"; done
mount --bind "$d" /dev
exec "$@"
"""


def ansible(tmp_path, name, *args):
    """One of Ansible's programs, with the settings of nobody."""
    empty = tmp_path / "ansible.cfg"
    empty.touch()
    env = {**os.environ, "HOME": str(tmp_path), "ANSIBLE_CONFIG": str(empty), "ANSIBLE_LOCAL_TEMP": str(tmp_path / "a"),
           "ANSIBLE_SSH_CONTROL_PATH_DIR": str(tmp_path / "cp"), "ANSIBLE_SSH_ARGS": "-o ControlMaster=no", "LC_ALL": "C.UTF-8"}
    program = pathlib.Path(sys.executable).with_name(name)
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, env=env, timeout=120, check=False)
    assert done.returncode == 0, done
    return done


def test_a_local_stack(gpuprov, spec, tmp_path):
    path = spec(json.dumps(SPEC))
    gpuprov("up", "--yes", path)
    inventory = tmp_path / "it's {mine}.yaml"
    gpuprov("export", "ansible", "exp-1", "-o", inventory)
    listed = json.loads(ansible(tmp_path, "ansible-inventory", "-i", inventory, "--list").stdout)
    assert sorted(listed["gpuprov_exp_1"]["hosts"]) == ["exp-1-0", "exp-1-1"], listed
    assert listed["_meta"]["hostvars"]["exp-1-1"]["gpuprov_slot"] == 1
    said = ansible(tmp_path, "ansible", "gpuprov_exp_1", "-i", inventory, "-m", "raw", "-a", "hostname").stdout
    for name in ("exp-1-0", "exp-1-1"):
        assert f"{name} | CHANGED | rc=0" in said and f"\n{name}\n" in said.replace("\r", ""), said

    config = tmp_path / "cfg"
    gpuprov("export", "ssh_config", path, "-o", config)
    assert config.read_text() == gpuprov("ssh", "--config", "exp-1").out
    done = subprocess.run(["ssh", "-F", config, "exp-1-1", "hostname"], capture_output=True, text=True, env=gpuprov.env,
                          timeout=60, check=True)
    assert done.stdout == "exp-1-1\n"

    addresses = [n["address"] for n in gpuprov.json("status", "exp-1")["stacks"][0]["nodes"]]
    hosts = gpuprov("export", "hostfile", "exp-1").out
    assert hosts == "".join(f"{a} slots=1\n" for a in addresses)
    assert gpuprov.json("export", "hostfile", "exp-1") == {"hostfile": hosts}

    assert "NodeName=exp-1-1 NodeAddr=" + addresses[1] + " NodeHostname=exp-1-1 CPUs=" in gpuprov("export", "slurm", path).out

    refused = gpuprov("export", "terraform", "exp-1", code=1)
    assert "exp-1-0: cannot be exported: it is reached through a socket" in refused.err and refused.out == ""
    assert "did you mean 'ansible'?" in gpuprov("export", "ansibel", "exp-1", code=1).err
    gpuprov("down", "exp-1")
    assert "'exp-1' is gone: " in gpuprov("export", "hostfile", "exp-1", "--json", code=None).json["error"]["message"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    if why_not():
        pytest.skip(why_not())
    with Fleet(tmp_path_factory.mktemp("fleet"), 2) as made:
        yield made


def fleet_spec(tmp_path, **more):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps({**SPEC, "limits": {}, "offers": [{"provider": "ssh", "hosts": "fleet.yaml"}], **more}))
    return path


def test_slurm_reads_gpus(gpuprov, fleet, tmp_path):
    """Nodes without the GPUs that their hosts file names are not ready: only --unproven exports them."""
    if missing := [p for p in PROGRAMS if not shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]:
        pytest.skip(f"Slurm is not installed here: no {', '.join(missing)}")
    program, tmp_path = gpuprov.program, tmp_path.resolve()
    inside = fleet.enter(gpuprov, tmp_path)
    hosts = tmp_path / "fleet.yaml"
    hosts.write_text(hosts.read_text().replace("    user:", "    gpu: RTX 4090:2\n    user:"))
    inside("up", "--yes", fleet_spec(tmp_path, gpu={"model": "RTX 4090", "count": 2}), code=6)
    refused = inside("export", "slurm", "exp-1", code=7)
    assert "exp-1/0: not ready, so it is not exported" in refused.err and refused.out == "", refused
    nodes = inside("export", "slurm", "--unproven", "exp-1").out
    gres = inside("export", "gres", "--unproven", "exp-1").out
    inside("down", "exp-1")

    folder = tmp_path / "slurm"
    folder.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    cluster = Cluster(program, folder, 3600, nodes="GresTypes=gpu\n" + nodes)
    try:
        seen = cluster("scontrol", "show", "node", "exp-1-1")
        assert "Gres=gpu:rtx_4090:2" in seen and f"NodeAddr={fleet.nodes[1].address}" in seen, seen
        assert "Nodes=exp-1-[0-1]" in cluster("scontrol", "show", "partition", "exp-1")
    finally:
        cluster.close()
    (folder / "gres.conf").write_text(gres)
    done = subprocess.run(["unshare", "-m", "sh", "-c", WITH_DEVICES, "sh", tmp_path / "dev", "slurmd", "-N", "exp-1-1",
                           "-f", folder / "slurm.conf", "-G"], capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "Gres Name=gpu Type=rtx_4090 Count=2" in said, said
    assert "/dev/nvidia[0-1]" in said, said


def outputs(folder):
    """What `terraform output -json` prints after `apply`. Terraform is in no package of Debian: where it is not
    installed, the values of the file are read as it reads them."""
    if not shutil.which("terraform"):
        text = (folder / "stack.tf.json").read_text().replace("$${", "${").replace("%%{", "%{")
        output = {"sensitive": False, "type": ["tuple", []], "value": json.loads(text)["locals"]["gpuprov_exp-1"]}
        return json.dumps({"gpuprov_exp-1": output, "gpuprov_hosts": output})
    terraform(folder, "apply", "-auto-approve", "-input=false")
    return terraform(folder, "output", "-json")


def terraform(folder, *args):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TF_")}
    done = subprocess.run(["terraform", f"-chdir={folder}", *args], capture_output=True, text=True, env=env, timeout=120,
                          check=False)
    assert done.returncode == 0, done
    return done.stdout


def test_terraform_reads_a_stack(gpuprov, fleet, tmp_path):
    inside = fleet.enter(gpuprov, tmp_path)
    inside("up", "--yes", fleet_spec(tmp_path))
    infra = tmp_path / "infra ${x}"
    infra.mkdir()
    inside("export", "terraform", "exp-1", "-o", infra / "stack.tf.json")
    (infra / "main.tf").write_text('output "gpuprov_hosts" {\n  value = local.gpuprov_exp-1\n}\n')
    saved = tmp_path / "outputs.json"
    saved.write_text(outputs(infra))
    value = json.loads(saved.read_text())["gpuprov_exp-1"]["value"]
    assert [h["address"] for h in value] == [h.address for h in fleet.nodes]
    assert [h["host_key"] for h in value] == [[h.host_key()] for h in fleet.nodes]
    assert {h["key"] for h in value} == {str(fleet.key)} and {h["user"] for h in value} == {"ops"}
    inside("down", "exp-1")

    # the way back: the outputs are the hosts of a spec, by the program and from a file
    (tmp_path / "fleet.yaml").unlink()
    (tmp_path / "home/.ssh/known_hosts").unlink()
    if not shutil.which("terraform"):
        inside.env.update(stand_in(tmp_path, f"cat '{saved}'\n"))
    back = fleet_spec(tmp_path, offers=[{"provider": "ssh", "hosts": "terraform:infra $${x}"}])
    inside("up", "--yes", back, cwd="/")
    assert [n["address"] for n in inside.json("status", "exp-1")["stacks"][0]["nodes"]] == [h.address for h in fleet.nodes]
    done = inside("up", "--yes", fleet_spec(tmp_path, offers=[{"provider": "ssh", "hosts": "terraform:outputs.json"}]), code=None)
    assert done.code == 1 and "terraform:" in done.err and "run 'gpuprov down exp-1', then 'gpuprov up'" in done.err, done
    inside("validate", "--hosts", "terraform:infra ${x}", cwd=tmp_path)
    inside("down", "exp-1")


def stand_in(tmp_path, text):
    """An environment in which `terraform` is this script."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "terraform").write_text("#!/bin/sh\n" + text)
    (folder / "terraform").chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


# What Terraform 1.11 printed.
NO_BACKEND = """
Error: Backend initialization required, please run "terraform init"

Reason: Initial configuration of the requested backend "s3"

The "backend" is the interface that Terraform uses to store state,
"""


def test_terraform_that_fails(gpuprov, tmp_path):
    infra = tmp_path / "infra"
    infra.mkdir()
    spec = fleet_spec(tmp_path, offers=[{"provider": "ssh", "hosts": "terraform:infra"}])
    def refused(env):
        done = gpuprov("plan", spec, code=1, env=env)
        assert len(done.err.splitlines()) == 1, done
        return done.err.replace(str(tmp_path), "")
    failing = stand_in(tmp_path, f"cat >&2 <<'END'\n{NO_BACKEND}END\necho \"$@\" >{tmp_path}/argv\nexit 1\n")
    assert refused(failing) == ("gpuprov: terraform:/infra: 'terraform output': 'terraform' failed with status 1: Backend "
                                "initialization required, please run \"terraform init\"\n")
    assert (tmp_path / "argv").read_text() == f"-chdir={infra} output -json -no-color\n"
    assert "has no output 'gpuprov_hosts'" in refused(stand_in(tmp_path, "echo '{}'\n"))
    assert "it wrote more than 4096 KiB" in refused(stand_in(tmp_path, "exec cat /dev/zero\n"))
    assert "'terraform' failed with status 137" in refused(stand_in(tmp_path, "kill -9 $$\n"))
    (tmp_path / "bin/terraform").unlink()
    assert "there is no program 'terraform' here" in refused({"PATH": f"{tmp_path}/bin"})
    spec.write_text(spec.read_text().replace("terraform:infra", "terraform:nothing"))
    assert "the folder or file of Terraform" in gpuprov("plan", spec, code=1).err


def test_ctrl_c_ends_terraform(gpuprov, tmp_path):
    (tmp_path / "infra").mkdir()
    spec = fleet_spec(tmp_path, offers=[{"provider": "ssh", "hosts": "terraform:infra"}])
    env = stand_in(tmp_path, f"echo $$ >{tmp_path}/pid\nexec sleep 1000\n")
    p = gpuprov.popen("plan", spec, env=env)
    pid = int(wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()))
    p.send_signal(signal.SIGTERM)
    assert p.wait(30) == 130, p.communicate()
    assert not pathlib.Path(f"/proc/{pid}").exists()
    p.communicate()
