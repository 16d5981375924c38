# SPDX-License-Identifier: Apache-2.0
"""templates/slurm against a real slurmctld and slurmd in namespaces of the test's own. The node fails and holds
for real: /etc/default/gpuprov asks for GPUs that are not there, or does not."""
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from agent_gpu import needs_cuda_agent
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

PROGRAMS = ["slurmd", "slurmctld", "munged", "sinfo", "scontrol", "sbatch", "squeue"]

# An address other than loopback's, because Slurm asks for one before it uses names or numbers at all.
SETUP = r"""
set -e
ip link set lo up
ip link add v0 type veth peer name v1
ip addr add 10.99.0.1/24 dev v0
ip link set v0 up; ip link set v1 up
hostname n1
printf '127.0.0.1 localhost\n10.99.0.1 n1\n' >"$1/hosts"
mount --bind "$1/hosts" /etc/hosts
mount -t tmpfs none /etc/default
mount -t tmpfs none /etc/slurm  # slurmd tells its hooks no other place
cp "$1/slurm.conf" /etc/slurm/
mkdir -m 0755 "$1/munge" "$1/state" "$1/spool"
(umask 077; head -c 128 /dev/urandom >"$1/munge/key")
munged --force --socket="$1/munge/s" --key-file="$1/munge/key" --pid-file="$1/munge/pid" \
  --log-file="$1/munge/log" --seed-file="$1/munge/seed"
slurmctld
echo up >"$1/up"
exec sleep infinity
"""

CONF = """
ClusterName=t
SlurmctldHost=n1(10.99.0.1)
AuthType=auth/munge
AuthInfo=socket={t}/munge/s,cred_expire=5
CredType=cred/munge
SlurmUser=root
StateSaveLocation={t}/state
SlurmdSpoolDir={t}/spool
SlurmctldPidFile={t}/ctld.pid
SlurmdPidFile={t}/slurmd.pid
SlurmctldLogFile={t}/ctld.log
SlurmdLogFile={t}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
MpiDefault=none
ReturnToService=0
HealthCheckProgram={t}/hooks/healthcheck.sh
HealthCheckInterval={interval}
Prolog={t}/hooks/prolog.sh
PrologFlags=Alloc
SchedulerParameters=nohold_on_prolog_fail,batch_sched_delay=1,sched_interval=1
{nodes}
"""
NODES = """NodeName=n1 NodeAddr=10.99.0.1 CPUs=1 State=UNKNOWN
PartitionName=p Nodes=n1 Default=YES State=UP MaxTime=INFINITE"""


class Cluster:
    def __init__(self, program, folder, interval, nodes=NODES):
        self.program, self.folder = program, folder
        self.conf = folder / "slurm.conf"
        self.conf.write_text(CONF.format(t=folder, interval=interval, nodes=nodes))
        subprocess.run([program, "init", "--slurm", folder / "hooks"], check=True, capture_output=True)
        argv = ["unshare", "-m", "-n", "-u", "-p", "-f", "--kill-child", "--mount-proc", "sh", "-c", SETUP, "sh", folder]
        self.holder = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.wait("slurmctld", (folder / "up").exists)
        children = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()
        self.pid = children[0]

    def close(self):
        self.holder.send_signal(signal.SIGKILL)
        self.holder.wait()
        self.holder.stdout.close()

    def wait(self, what, fact, seconds=90):
        def seen():
            assert self.holder.poll() is None, self.holder.stdout.read()
            return fact()
        return wait_for(seen, seconds, lambda: f"no {what}\n{''.join(p.read_text() for p in self.folder.glob('*.log'))[-6000:]}")

    def __call__(self, *argv, check=True, env=None):
        full = ["nsenter", "-t", self.pid, "-m", "-n", "-u", "-p", *argv]
        done = subprocess.run([str(a) for a in full], capture_output=True, text=True, env=env)
        assert not check or done.returncode == 0, done
        return done.stdout.strip()

    def settings(self, **more):
        values = {"GPUPROV": self.program, "GPUPROV_TIME": "5s", "GPUPROV_PROLOG_TIME": "4s",
                  "GPUPROV_STATE_DIR": self.folder / "gpuprov", **more}
        text = "".join(f"{k}='{v}'\n" for k, v in values.items())
        self("sh", "-c", 'printf %s "$1" >/etc/default/.new && mv /etc/default/.new /etc/default/gpuprov', "sh", text)

    def start(self):
        self("slurmd")
        self.wait("idle node", lambda: self.node()[0] == "idle")

    def node(self):
        state, _, reason = self("sinfo", "-h", "-n", "n1", "-o", "%t|%E").partition("|")
        return state, reason

    def hook(self, name, env=None):
        """Runs a hook as slurmd would: with nearly nothing in its environment."""
        full = ["nsenter", "-t", self.pid, "-m", "-n", "-u", "-p", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                "SLURMD_NODENAME=n1", str(self.folder / "hooks" / name)]
        return subprocess.run(full, capture_output=True, text=True, env=env)


MISSING = {"GPUPROV_GPU": "H100:8"} # not on any machine that runs these tests


@pytest.fixture
def cluster(program, tmp_path, request):
    if missing := [p for p in PROGRAMS if not shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]:
        pytest.skip(f"Slurm is not installed here: no {', '.join(missing)}")
    if any(pathlib.Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has GPUs: the tests need a node that lacks them")
    tmp_path.chmod(0o755)
    made = Cluster(program, tmp_path, getattr(request, "param", 3600))
    made.settings()
    try:
        yield made
    finally:
        made.close()


@needs_cuda_agent
@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_slurmd_drains_and_resumes(cluster):
    """All by Slurm itself, every second: a node that fails is taken out, and given back when it holds."""
    cluster.start()
    cluster.settings(**MISSING)
    _, reason = cluster.wait("drained node", lambda: cluster.node() if cluster.node()[0] == "drain" else None)
    assert reason.startswith("gpuprov: fail: gpu.presence: no GPU device files: 8 GPUs bought"), reason
    cluster.settings()
    cluster.wait("resumed node", lambda: cluster.node()[0] == "idle")


@needs_cuda_agent
def test_a_job_meets_the_prolog(cluster):
    """The node turned bad after its last health check: the job does not run, goes back to the queue, and runs
    when the node is good again (Slurm holds a requeued job until its credential has expired)."""
    cluster.start()
    cluster.settings(**MISSING)
    job = cluster("sbatch", "--parsable", "-o", "/dev/null", "--wrap", f"echo ran >>{cluster.folder}/ran")
    cluster.wait("drained node", lambda: cluster.node()[0] == "drain")
    assert cluster.node()[1].startswith("gpuprov: fail: gpu.presence")
    cluster.wait("queued job", lambda: cluster("squeue", "-h", "-j", job, "-o", "%T") == "PENDING")
    assert not (cluster.folder / "ran").exists()
    cluster.settings()
    assert cluster.hook("healthcheck.sh").stdout.startswith("pass: ")
    cluster.wait("job's end", (cluster.folder / "ran").exists)
    assert (cluster.folder / "ran").read_text() == "ran\n"


def test_somebody_elses_reason_is_left_alone(cluster):
    cluster.start()
    cluster("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=bad fan, ticket 7")
    for settings in ({}, MISSING):
        cluster.settings(**settings)
        assert cluster.hook("healthcheck.sh").returncode == 0
        assert cluster.node() == ("drain", "bad fan, ticket 7")


@needs_cuda_agent
def test_what_could_not_be_told_changes_nothing(cluster):
    cluster.start()
    cluster.settings(GPUPROV="/nowhere/gpuprov")
    assert "there is no /nowhere/gpuprov on this node" in cluster.hook("healthcheck.sh").stdout
    assert cluster.node()[0] == "idle"
    assert cluster.hook("prolog.sh").returncode == 0
    cluster.settings(**MISSING)
    cluster.hook("healthcheck.sh")
    assert cluster.node()[0] == "drain"
    cluster.settings(GPUPROV="/nowhere/gpuprov")
    cluster.hook("healthcheck.sh")
    assert cluster.node()[0] == "drain", "given back without a verdict"
    cluster.settings(GPUPROV="/nowhere/gpuprov", GPUPROV_DRAIN_ON="fail unknown", GPUPROV_REFUSE_ON="fail unknown")
    cluster.hook("healthcheck.sh")
    assert "unknown: there is no /nowhere/gpuprov" in cluster.node()[1]
    assert cluster.hook("prolog.sh").returncode == 1


def test_a_check_that_hangs_is_given_up(cluster, tmp_path):
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)
    cluster.start()
    cluster.settings(GPUPROV=slow, GPUPROV_LIMIT="1", GPUPROV_DRAIN_ON="fail unknown")
    assert "no verdict within 1 s" in cluster.hook("healthcheck.sh").stdout
    assert "no verdict within 1 s" in cluster.node()[1]


def test_a_node_that_works_is_not_disturbed(cluster):
    cluster.start()
    cluster("sbatch", "-o", "/dev/null", "--wrap", f"touch {cluster.folder}/began; while ! [ -e {cluster.folder}/go ]; do "
            "sleep 0.1; done")
    cluster.wait("running job", (cluster.folder / "began").exists)
    cluster.settings(**MISSING)
    done = cluster.hook("healthcheck.sh")
    (cluster.folder / "go").touch()
    assert (done.returncode, done.stdout) == (0, "") and cluster.node()[0] in ("alloc", "comp", "idle")


@needs_cuda_agent
def test_a_certificate_opens_the_door(cluster):
    """healthcheck.sh writes it, prolog.sh accepts it as long as it is this machine's and holds."""
    certificate = cluster.folder / "node.json"
    prom = cluster.folder / "gpuprov.prom"
    cluster.start()
    cluster.settings(GPUPROV_CERTIFICATE=certificate, GPUPROV_PROMETHEUS=prom)
    assert cluster.hook("healthcheck.sh").stdout.startswith("pass: ")
    assert certificate.exists() and "gpuprov_node_ready" in prom.read_text()
    cluster.settings(GPUPROV_CERTIFICATE=certificate, **MISSING) # the check itself would fail now
    assert cluster.hook("prolog.sh").returncode == 0
    certificate.write_text(certificate.read_text().replace('"sig": "', '"sig": "AAAA'))
    assert cluster.hook("prolog.sh").returncode == 1
    assert cluster.node()[1].startswith("gpuprov: fail: gpu.presence")


def test_hooks_are_written_once(gpuprov, tmp_path):
    folder = tmp_path / "hooks"
    gpuprov("init", "--slurm", folder)
    for name in ("healthcheck.sh", "prolog.sh"):
        assert (folder / name).stat().st_mode & 0o777 == 0o755
        shipped = pathlib.Path(__file__).resolve().parents[3] / "templates" / "slurm" / name
        assert (folder / name).read_bytes() == shipped.read_bytes()
    (folder / "prolog.sh").write_text("mine")
    assert "exists already" in gpuprov("init", "--slurm", folder, code=1).err
