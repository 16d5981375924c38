# SPDX-License-Identifier: Apache-2.0
"""As gpu_node.py, where dnf and rpm manage the packages (tests/hosts/base_gpu_dnf.sh): a host that says that it is
RHEL, Rocky or Amazon Linux, and the repositories of tests/hosts/gpu_rpm_repo.py."""
import subprocess

import lab as labs
from gpu_node import GpuNode, H100
from gpu_rpm_repo import Distribution, GpuRpmRepo
from repo import end_server, serve_folder

ADDRESS, PORT = "10.77.0.1", 8080
DIST = {"rhel9": ".el9", "rhel10": ".el10", "amzn2023": ".amzn2023"}
EL9 = "5.14.0-570.12.1.el9_6.x86_64"
AMAZON = "6.12.40-64.114.amzn2023.x86_64"
# RHEL's
DNF_CONF = "[main]\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\nbest=True\nskip_if_unavailable=False\n"


class DnfLab(labs.Lab):
    """Use as a context manager. fill(lab) adds the packages: made(system) is NVIDIA's repository for a system."""

    def __init__(self, tmp, fill):
        super().__init__(tmp, base_script="base_gpu_dnf.sh")
        self.fill, self.repos, self.next, self.key = fill, {}, 2, tmp / "key"

    def __enter__(self):
        super().__enter__()
        try:
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
            self.maker = self.add("light", "maker", "10.77.1.1")
            self.maker.wait_ssh()
            self.distribution = Distribution(self.maker, "http://%s:%d" % (ADDRESS, PORT))
            self.distribution.system()
            self.fill(self)
            for repo in (*self.repos.values(), self.distribution, self.distribution.epel):
                repo.build()
            self.serve()
        except BaseException:
            self.close()
            raise
        return self

    def made(self, system):
        repo = self.repos[system] = GpuRpmRepo(self.maker, system, DIST[system])
        repo.address, repo.port = ADDRESS, PORT
        return repo

    @property
    def repo(self):
        return self.repos["rhel9"]

    def serve(self):
        self.server = serve_folder(self, ADDRESS, PORT, self.maker.file("/srv"))

    def serve_no_more(self):
        end_server(self.server)


class DnfNode(GpuNode):
    """release: of its distribution; repos: of the distribution that it knows; more: lines for that of the distribution."""

    # pylint: disable=too-many-arguments
    def __init__(self, lab, tmp, devices=(H100,), kind="light", release="rocky-9.6", kernel=EL9,
                 repos=("distribution", "epel"), more=""):
        super().__init__(lab, tmp, devices, kind)
        name, version = release.split("-")
        self.host.put("/etc/os-release", 'ID="%s"\nVERSION_ID="%s"\nPRETTY_NAME="A test"\n' % (name, version))
        self.host.put("/etc/dnf/vars/releasever", version.split(".", maxsplit=1)[0] + "\n")
        self.host.put("/etc/dnf/dnf.conf", DNF_CONF)
        self.host.put("/etc/lab-kernel", kernel + "\n")
        for repo in repos:
            self.host.put("/etc/yum.repos.d/%s.repo" % repo, lab.distribution.repo(repo, more))

    def holds(self):
        """What versionlock holds."""
        return self.sh("grep -v '^#' /etc/dnf/plugins/versionlock.list").split()

    def version(self, package):
        return self.sh("rpm -q --qf '%{VERSION}' " + package)
