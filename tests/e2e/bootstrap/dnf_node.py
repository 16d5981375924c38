# SPDX-License-Identifier: Apache-2.0
"""As gpu_node.py, where dnf and rpm manage the packages (tests/hosts/base_gpu_dnf.sh): a host that says that it is
RHEL 9, Rocky 9 or Amazon Linux 2023, and the repositories of tests/hosts/gpu_rpm_repo.py."""
import subprocess
import sys

import lab as labs
from gpu_node import GpuNode, H100
from gpu_rpm_repo import Distribution, GpuRpmRepo

ADDRESS, PORT = "10.77.0.1", 8080
KERNEL = {"rhel9": "5.14.0-570.12.1.el9_6.x86_64", "amzn2023": "6.12.40-64.114.amzn2023.x86_64"}
RELEASE = {"rocky-9.6": "rhel9", "rhel-9.6": "rhel9", "amzn-2023": "amzn2023"}
REPO = "[{0}]\nname={0}\nbaseurl=http://%s:%d/{0}\ngpgcheck=0\n" % (ADDRESS, PORT)


def start_lab(tmp, fill, system="rhel9"):
    """A lab whose repositories are served; fill(nvidia, distribution) adds their packages."""
    made = labs.Lab(tmp, base_script="base_gpu_dnf.sh")
    made.__enter__()
    try:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp / "key"], check=True)
        made.key, made.next, made.system, made.kernel = tmp / "key", 2, system, KERNEL[system]
        maker = made.add("light", "maker", "10.77.1.1")
        maker.wait_ssh()
        made.repo = GpuRpmRepo(maker, system, ".el9" if system == "rhel9" else ".amzn2023")
        made.repo.address, made.repo.port = ADDRESS, PORT
        made.distribution = Distribution(maker)
        fill(made.repo, made.distribution)
        made.server = made.popen([sys.executable, "-m", "http.server", str(PORT), "--bind", ADDRESS, "--directory",
                                  str(maker.file("/srv"))], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for repo in (made.repo, made.distribution, made.distribution.epel):
            repo.build()
    except BaseException:
        made.close()
        raise
    return made


class DnfNode(GpuNode):
    def __init__(self, lab, tmp, devices=(H100,), kind="light", release="rocky-9.6", epel=True):
        super().__init__(lab, tmp, devices, kind)
        name, version = release.split("-")
        self.host.put("/etc/os-release", 'ID="%s"\nVERSION_ID="%s"\nPRETTY_NAME="A test"\n' % (name, version))
        self.host.put("/etc/dnf/vars/releasever", version.split(".", maxsplit=1)[0] + "\n")
        self.host.put("/etc/lab-kernel", lab.kernel + "\n")
        for repo in ("distribution", "epel") if epel else ("distribution",):
            self.host.put("/etc/yum.repos.d/%s.repo" % repo, REPO.format(repo))
