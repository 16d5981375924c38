# SPDX-License-Identifier: Apache-2.0
"""Local nodes where a CI job runs: in a chroot whose / is no mount point, and as root without the capabilities that
a container runtime takes away. What cannot work is one sentence with exit 1, before anything is built."""
import os
import pathlib
import subprocess

import pytest
from lab import why_not

ROOT = pathlib.Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.root, pytest.mark.namespaces, pytest.mark.skipif(bool(why_not()), reason=str(why_not()))]

# A folder of a tmpfs with the machine's folders in it is no mount point. The mounts around it are shared, as on a
# machine with systemd, so that a mount of the chroot would be seen there.
CHROOT = """
at=$1; shift
mount -t tmpfs none "$at" && mount --make-rshared / || exit 99
mkdir -p "$at/root/tmp" "$at/root/root" "$at/root/run"
for d in usr etc var opt proc sys dev; do mkdir -p "$at/root/$d"; mount --rbind "/$d" "$at/root/$d" || exit 99; done
for l in bin sbin lib lib64 lib32; do [ ! -L /$l ] || cp -a /$l "$at/root/$l"; done
mkdir -p "$at/root/$GPUPROV_BUILD" && mount --bind "$GPUPROV_BUILD" "$at/root/$GPUPROV_BUILD" || exit 99
wc -l </proc/self/mountinfo >"$at/before"
sh -c 'while [ ! -e "$0/root/root/ready" ]; do sleep 0.05; done; wc -l </proc/self/mountinfo >"$0/during"' "$at" &
chroot "$at/root" "$@"
rc=$?
wait
echo "mounts: $(cat "$at/before") $(cat "$at/during") $(wc -l </proc/self/mountinfo)"
exit $rc
"""
IN_CHROOT = """
gpuprov=$1; export HOME=/root GPUPROV_STATE_DIR=/root/state
printf 'name: jail\\nnodes: 2\\noffers: [{provider: local}]\\nlimits: {ttl: 20m}\\nvalidate: {time: 1m}\\n' >/root/s.yaml
"$gpuprov" doctor; "$gpuprov" up /root/s.yaml; rc=$?; touch /root/ready; sleep 0.5
"$gpuprov" ssh jail/1 -- hostname; "$gpuprov" down jail --in local && exit $rc
"""


@pytest.mark.long
def test_nodes_in_a_chroot_without_a_mount_point(gpuprov, tmp_path):
    at = tmp_path / "jail"
    at.mkdir()
    program = pathlib.Path(gpuprov.program).resolve()
    done = subprocess.run(["unshare", "-m", "sh", "-c", CHROOT, "sh", str(at), "sh", "-c", IN_CHROOT, "sh", str(program)],
                          env={**os.environ, "GPUPROV_BUILD": str(program.parent)}, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done
    assert "could not make the mounts private" not in done.stdout + done.stderr
    assert "root: usable" in done.stdout and "jail-1" in done.stdout, done
    assert "3 resources destroyed, nothing is left" in done.stdout
    counts = done.stdout.split("mounts: ")[1].split()
    assert len(set(counts)) == 1, f"the machine's mounts before, while the nodes ran, after: {counts}"


@pytest.mark.parametrize("capability", ["sys_admin", "net_admin"])
def test_root_without_a_capability_is_told_in_one_sentence(gpuprov, spec, tmp_path, capability):
    path = spec("name: caps\noffers: [{provider: local}]\n")
    wrapper = tmp_path / "in-container"
    wrapper.write_text("#!/bin/sh\nexec setpriv --bounding-set=-%s --inh-caps=-all %s \"$@\"\n" % (
        capability, gpuprov.program))
    wrapper.chmod(0o755)
    gpuprov.program = wrapper
    up = gpuprov("up", path, code=1)
    assert "CAP_%s" % capability.upper() in up.err and "docker run --privileged" in up.err and "newuidmap" not in up.err
    doctor = gpuprov("doctor").out
    missing = [line for line in doctor.splitlines() if line.startswith("missing") and "local nodes" in line]
    assert len(missing) == 1 and "CAP_%s" % capability.upper() in missing[0], doctor
    assert "/etc/subuid" not in doctor, "an id range does not help root"
    assert gpuprov("validate", "--node-check", "--time", "5s").out.startswith("pass: ")
    demo = subprocess.run(["setpriv", "--bounding-set=-" + capability, "--inh-caps=-all", "sh", "tests/demo.sh",
                           "--possible"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert demo.returncode == 1 and demo.stderr.count("\n") == 1, demo
    assert demo.stderr.startswith("demo: local nodes are not possible here (") and "--privileged" in demo.stderr


def test_the_demo_looks_first(tmp_path):
    """Before it installs or builds anything."""
    lines = (ROOT / "Makefile").read_text().split("\ndemo:\n")[1].splitlines()
    assert lines[0].strip() == "@sh tests/demo.sh --possible"
    assert subprocess.run(["sh", "tests/demo.sh", "--possible"], cwd=ROOT, timeout=60).returncode == 0
