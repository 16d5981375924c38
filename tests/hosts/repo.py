# SPDX-License-Identifier: Apache-2.0
"""Package repositories of a test's own, served inside a lab: Repo for apt, of small packages made with
dpkg-deb; RpmRepo for dnf, of packages made by a host that has rpmbuild and createrepo_c."""
import gzip
import hashlib
import pathlib
import shutil
import subprocess
import sys

YUM_REPO = "[test]\nname=test\nbaseurl=http://%s:%d\ngpgcheck=0\n"
SPEC = """Name: %s
Version: %s
Release: 1
Summary: %s
License: none
BuildArch: noarch
AutoReqProv: no
%s
%%description
Of a test.
%%files
%s
"""
SOURCES = "deb [trusted=yes] http://%s:%d ./\n"


def start_server(lab, args):
    """A process in the lab: a server written in Python, which prints a line with 'Serving' once it listens."""
    server = lab.popen([sys.executable, "-u", *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if b"Serving" not in server.stdout.readline():
        raise RuntimeError("the repository is not served")
    return server


def serve_folder(lab, address, port, folder):
    return start_server(lab, ["-m", "http.server", str(port), "--bind", address, "--directory", str(folder)])


def end_server(server):
    server.kill()
    server.wait()
    server.stdout.close()


class Repo:
    """Packages are added before serve(); a host is told by use()."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.entries = []
        self.server = None

    def add(self, name, version="1.0", depends="", postinst="", size=0):
        tree = self.folder / ("tree-" + name)
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "usr/share" / name).mkdir(parents=True)
        (tree / "usr/share" / name / "data").write_bytes(b"x" * size)
        control = ("Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: test <test@localhost>\n"
                   "Description: %s\n" % (name, version, name))
        if depends:
            control += "Depends: %s\n" % depends
        (tree / "DEBIAN/control").write_text(control)
        if postinst:
            (tree / "DEBIAN/postinst").write_text("#!/bin/sh\n" + postinst)
            (tree / "DEBIAN/postinst").chmod(0o755)
        deb = self.folder / ("%s_%s_all.deb" % (name, version))
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", str(tree), str(deb)],
                       check=True, capture_output=True)
        shutil.rmtree(tree)
        data = deb.read_bytes()
        self.entries.append(control + "Filename: ./%s\nSize: %d\nSHA256: %s\n" %
                            (deb.name, len(data), hashlib.sha256(data).hexdigest()))
        text = "\n".join(self.entries).encode()
        (self.folder / "Packages").write_bytes(text)
        (self.folder / "Packages.gz").write_bytes(gzip.compress(text))

    def add_real(self, debs):
        """Packages of the distribution, from a folder."""
        for deb in sorted(pathlib.Path(debs).glob("*.deb")):
            control = subprocess.run(["dpkg-deb", "-f", str(deb)], check=True, capture_output=True, text=True).stdout
            name = deb.name.replace("%3a", ".")
            (self.folder / name).symlink_to(deb.resolve())
            data = deb.read_bytes()
            self.entries.append(control + "Filename: ./%s\nSize: %d\nSHA256: %s\n" %
                                (name, len(data), hashlib.sha256(data).hexdigest()))
        text = "\n".join(self.entries).encode()
        (self.folder / "Packages").write_bytes(text)
        (self.folder / "Packages.gz").write_bytes(gzip.compress(text))

    def serve(self, lab, address, port=8080):
        self.address, self.port = address, port
        self.server = serve_folder(lab, address, port, self.folder)

    def start(self, lab, args):
        self.server = start_server(lab, args)

    def sources(self):
        """The line for apt's list of sources, once it is served."""
        return SOURCES % (self.address, self.port)

    def use(self, host):
        host.put("/etc/apt/sources.list.d/test.list", self.sources())

    def close(self):
        if self.server:
            end_server(self.server)


class RpmRepo(Repo):
    """As Repo; build() comes between add() and serve()."""

    def add(self, name, version="1.0", tags="", scripts=""):  # pylint: disable=arguments-differ
        """tags: lines such as 'Requires: x'; scripts: sections such as '%post'."""
        self.entries.append((name, SPEC % (name, version, name, tags, scripts)))

    def build(self, host):
        """Makes all packages and their index on a host of base_dnf.sh."""
        for name, spec in self.entries:
            host.put("/repo/%s.spec" % name, spec)
        host.sh("cd /repo && rpmbuild --quiet --define '_rpmdir /repo' -bb *.spec && createrepo_c -q .")
        shutil.copytree(host.file("/repo"), self.folder, dirs_exist_ok=True)

    def use(self, host):
        host.put("/etc/yum.repos.d/test.repo", YUM_REPO % (self.address, self.port))
