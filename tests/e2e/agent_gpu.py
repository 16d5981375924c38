# SPDX-License-Identifier: Apache-2.0
"""Runs gpuprov-agent-cuda against the stand-ins for NVIDIA's libraries, in a mount namespace with device
files and a kernel log of its own."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("B", ROOT / "build"))
AGENT = BUILD / "agent" / "gpuprov-agent-cuda"
HOST_AGENT = BUILD / "agent" / "gpuprov-agent"
STANDIN = BUILD / "tests" / "standin"
NO_CUDA_AGENT = "this build has no gpuprov-agent-cuda: no CUDA toolkit was found"
# of tests in which a node without GPUs fails: without this agent it is not known whether it has any
needs_cuda_agent = pytest.mark.skipif(not AGENT.exists(), reason=NO_CUDA_AGENT)

# A /dev with N /dev/nvidiaN; device files that exist are bound, because a user namespace may make none.
# KMSG, when set, is the text of /dev/kmsg. Then SETUP, a piece of sh, for what else a test puts up.
NAMESPACE = r"""
n=$1; shift
d=$(mktemp -d) && mount -t tmpfs none "$d" || exit 99
for f in null zero urandom full; do : >"$d/$f" && mount --bind "/dev/$f" "$d/$f" || exit 99; done
mkdir "$d/shm"
i=0
while [ $i -lt "$n" ]; do : >"$d/nvidia$i" && mount --bind /dev/null "$d/nvidia$i" || exit 99; i=$((i+1)); done
[ "$n" -eq 0 ] || : >"$d/nvidiactl" && : >"$d/nvidia-uvm"
[ -z "${KMSG+x}" ] || printf %s "$KMSG" >"$d/kmsg"
mount --move "$d" /dev || exit 99
rmdir "$d"
eval "$SETUP"
unset SETUP KMSG
exec "$@"
"""


def namespace():
    return ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-r", "-m"]


@pytest.fixture(scope="module")
def needed():
    skip_without_agent()


def skip_without_agent():
    if not AGENT.exists():
        pytest.skip(NO_CUDA_AGENT)
    if subprocess.run([*namespace(), "sh", "-c", NAMESPACE, "sh", "1", "true"]).returncode:
        pytest.skip("mount namespaces are refused here, so no device files can be made")


def run(gpus=8, nodes=None, bought=None, standin="", nvml="", libraries=STANDIN, agent=AGENT, env=None,
        seconds=60, checks="gpu.presence", kmsg="", setup=":", more=()):
    """What the agent said: {check: result}, its end line and its exit status. gpus: of both stand-ins;
    nodes: device files; bought: --gpus (both as many as gpus unless said); kmsg None: no kernel log."""
    own = {k: v for k, v in os.environ.items()
           if k not in ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "KMSG", "SETUP")}
    own.update({"GPUPROV_STANDIN": f"gpus={gpus},{standin}", "GPUPROV_STANDIN_NVML": f"gpus={gpus},{nvml}",
                "GPUPROV_LIBRARY_PATH": str(libraries), "SETUP": setup,
                "GPUPROV_CPUINFO": "/dev/null"}, **(env or {}))  # no guest, wherever the tests run
    if kmsg is not None:
        own["KMSG"] = kmsg
    argv = [*namespace(), "sh", "-c", NAMESPACE, "sh", str(gpus if nodes is None else nodes), str(agent),
            "run", "--time", f"{seconds}s", "--checks", checks, "--gpus", str(gpus if bought is None else bought),
            *more]
    done = subprocess.run(argv, env=own, capture_output=True, text=True, timeout=seconds + 60)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines and lines[-1]["type"] == "end", done
    return {l["check"]: l for l in lines if l["type"] == "result"}, lines[-1], done.returncode


def one(check, **how):
    """The result of one check, the end line and the exit status."""
    results, end, status = run(checks=check, **how)
    return results[check], end, status


def metrics(result):
    return {m["name"]: m["value"] for m in result["metrics"]}


def gpu_data(result):
    """data.gpus by number."""
    return {g["gpu"]: g for g in result["data"]["gpus"]}
