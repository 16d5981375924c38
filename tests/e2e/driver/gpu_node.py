# SPDX-License-Identifier: Apache-2.0
"""A test host on which a driver's module can be built and "loaded" (tests/hosts/base_gpu.sh), and a run of bootstrap
on it. The package repository is the lab's own (tests/hosts/gpu_repo.py)."""
import json
import os
import pathlib
import subprocess
import threading

import lab as labs
from gpu_repo import DRIVER, GpuRepo
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = pathlib.Path(os.environ.get("B", ROOT / "build")) / "tests" / "drivers" / "bootstrap_driver"
H100 = {"vendor": "0x10de", "class": "0x030200", "device": "0x2330", "subsystem_vendor": "0x10de",
        "subsystem_device": "0x16c1"}
NVSWITCH = {**H100, "class": "0x068000", "device": "0x22a3"}


def bare_lab(tmp, base_script="base_gpu.sh"):
    """A lab for GpuNode, without repositories."""
    made = labs.Lab(tmp, base_script=base_script)
    made.__enter__()
    try:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp / "key"], check=True)
        made.key, made.next = tmp / "key", 2
        made.kernel = pathlib.Path(made.base, "etc/lab-kernel").read_text().strip()
    except BaseException:
        made.close()
        raise
    return made


def start_lab(tmp, fill, kernels=None, base_script="base_gpu.sh", system="debian12"):
    """A lab whose repository is served; fill(repo) adds its packages, kernels(repo) those of the distribution."""
    made = bare_lab(tmp, base_script)
    try:
        made.repo = GpuRepo(tmp / "repo", system)
        fill(made.repo)
        made.repo.finish()
        made.repo.serve(made, "10.77.0.1")
        made.kernels = GpuRepo(tmp / "kernels")
        if kernels:
            kernels(made.kernels)
        made.kernels.finish()
        made.kernels.serve(made, "10.77.0.1", 8081)
    except BaseException:
        made.close()
        raise
    return made


class Outcome:
    """Of one run: its result, the steps that were applied, all texts."""

    def __init__(self, lines, log):
        self.events = [json.loads(line) for line in lines if line.startswith("{")]
        self.log = log
        self.result = self.events[-1] if self.events else {}

    @property
    def applied(self):
        return [e["step"] for e in self.events if e["event"] == "done"]

    def texts(self, step=None):
        return [e["text"] for e in self.events if "text" in e and step in (None, e["step"])]

    def __repr__(self):
        return "\n".join(map(json.dumps, self.events)) + "\n" + self.log


class GpuNode:
    def __init__(self, lab, tmp, devices=(H100,), kind="light"):
        self.lab, self.tmp, self.n = lab, tmp, 0
        lab.next += 1
        self.host = lab.add(kind, "g%d" % lab.next, "10.77.1.%d" % lab.next, start=False)
        self.host.authorize((lab.key.parent / "key.pub").read_text())
        for i, device in enumerate(devices):
            for name, value in device.items():
                self.host.put("/lab-pci/0000:%02x:00.0/%s" % (i, name), value + "\n")

    def distribution(self):
        """The host's own apt knows the distribution's kernels."""
        self.host.put("/etc/apt/sources.list", "deb [trusted=yes] http://10.77.0.1:8081/repos/debian12/x86_64/ /\n")

    def start(self):
        self.host.start()
        self.host.wait_ssh()
        return self

    def remove(self):
        self.host.remove()

    def sh(self, script):
        return self.host.sh(script).stdout.strip()

    def spec(self, **keys):
        """The path of a spec whose bootstrap has these keys; without driver: branch 580 of the lab's repository."""
        if "driver" not in keys:
            keys["driver"] = {"branch": "580", "source": self.lab.repo.source()}
        self.n += 1
        path = self.tmp / ("spec%d.yaml" % self.n)
        path.write_text(json.dumps({"name": "gpu", "bootstrap": keys}))
        return path

    def run(self, spec, error=None, during=None, limit=300):
        """error: None: must end well; a text: must fail with it. during(lines) runs beside it."""
        assert PROGRAM.is_file(), "%s is not built: run 'make drivers'" % PROGRAM
        p = self.lab.popen([PROGRAM, "run", self.host.address, "ops", self.lab.key, self.host.host_key(), "--spec", spec,
                            "--deadline-s", str(limit)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines, trouble = [], []

        def beside():
            try:
                during(lines)
            except Exception as e:  # pylint: disable=broad-except
                trouble.append(e)
        helper = threading.Thread(target=beside) if during else None
        if helper:
            helper.start()
        for line in p.stdout:
            lines.append(line)
        out = Outcome(lines, p.stderr.read())
        p.wait()
        if helper:
            helper.join()
        assert not trouble, (trouble, out)
        if error is None:
            assert out.result.get("rc") == 0, out
        else:
            assert out.result.get("rc") != 0 and error in out.result["error"], out
            assert "\n" not in out.result["error"]
        return out


def saw(lines, text, seconds=60):
    wait_for(lambda: any(text in line for line in lines), seconds, lambda: f"no {text!r} in {lines}")


def driver_and_libraries(repo):
    repo.driver(DRIVER)
    repo.libraries()


def gets_all_of_it_once(node, first=()):
    """The whole order on a bare node of a lab with driver_and_libraries, and nothing the second time. first: the steps
    that come before NVIDIA's repository."""
    assert node.run(node.spec(driver="none")).applied == ["agent"]  # not yet the agent for GPUs
    spec = node.spec(driver={"branch": "580", "source": node.lab.repo.source()}, cuda={"runtime": ["13.0"]},
                     cudnn="auto", nccl="auto")
    out = node.run(spec)
    assert out.applied == [*first, "driver-repo", "driver", "persistence", "cuda", "cudnn", "nccl", "holds", "agent"], out
    assert node.sh("dkms status -k $(uname -r)").startswith("nvidia/%s, %s, " % (DRIVER, node.lab.kernel))
    assert node.sh("modinfo -k $(uname -r) -F version nvidia") == DRIVER
    assert DRIVER in node.sh("cat /proc/driver/nvidia/version")
    assert "H100" in node.sh("nvidia-smi -L")
    held = node.sh("apt-mark showhold").split()
    assert {"nvidia-open", "nvidia-dkms-580-open", "libcudnn9-cuda-13", "libnccl2", "cuda-libraries-13-0"} <= set(held)
    assert any(name.startswith("linux-headers-") for name in held)
    assert "nvidia-persiste" in node.sh("cat /proc/[0-9]*/comm")
    again = node.run(spec)
    assert again.applied == [] and again.result["applied"] == 0, again
