# SPDX-License-Identifier: Apache-2.0
"""Signed dnf repositories with stand-ins of NVIDIA's packages for RHEL 9 and Amazon Linux 2023: their names, epochs,
dependencies, versions and module streams, with a tiny kernel module that dkms really builds. Also what the packages of
the distribution and of EPEL do on a node. A host of base_gpu_dnf.sh makes and keeps them."""
import hashlib
import shlex
import subprocess

from gpu_repo import DAEMON, DKMS, HEADERS, MODULE, SMI, UNIT

SPEC = """Name: {name}
Epoch: {epoch}
Version: {version}
Release: {release}
Summary: stand-in
License: none
AutoReqProv: no
{tags}
%description
Of a test.
%install
[ ! -d {tree} ] || cp -a {tree}/. %{{buildroot}}/
{scripts}
%files
{files}
"""
# As NVIDIA's kmod packages: a build that fails is no failure of the package.
POST = """dkms add -m nvidia-open -v {0} --rpm_safe_upgrade || :
dkms build -m nvidia-open -v {0} || :
dkms install -m nvidia-open -v {0} --force || :
"""
PREUN = "dkms remove -m nvidia-open -v {0} --all --rpm_safe_upgrade || :\n"
OPEN = DKMS.replace('NAME="nvidia"', 'NAME="nvidia-open"', 1).replace("}/nvidia/", "}/nvidia-open/")
STREAM = """---
document: modulemd
version: 2
data:
  name: nvidia-driver
  stream: "{0}"
  version: 20260101000000
  context: "1"
  arch: x86_64
  summary: NVIDIA's driver
  description: Of a test.
  license: {{module: [MIT]}}
  profiles:
    default: {{rpms: [nvidia-open]}}
  artifacts:
    rpms: [{1}]
"""
DEFAULT = """---
document: modulemd-defaults
version: 1
data: {module: nvidia-driver, stream: open-dkms, profiles: {open-dkms: [default]}}
"""
KEYS = {"rhel10": "CDF6BA43.pub"}


class RpmRepo:
    """One repository. Packages are added, then build() makes, signs and indexes them on `host`, in its `folder`, which is
    served from there."""

    def __init__(self, host, folder, signed=True):
        self.host, self.where, self.signed = host, folder, signed
        self.specs, self.streams = [], {}
        self.folder = host.file(folder)
        host.sh("mkdir -p /build/specs " + folder)

    def tree(self, name, version, release):
        """Where the maker has the files of a package."""
        return "/build/trees%s/%s-%s-%s" % (self.where, name, version, release)

    # pylint: disable=too-many-arguments
    def add(self, name, version, release="1", epoch=0, requires=(), provides=(), files=None, links=None, post="", preun="",
            postun="", arch="x86_64", config=()):
        """files: path -> text (executable below bin/) or a path of the host; links: path -> target."""
        tree = self.tree(name, version, release)
        self.host.file(tree).mkdir(parents=True)
        for path, content in (files or {}).items():
            self.host.put("%s/%s" % (tree, path), content, 0o755 if "bin/" in path or path.endswith(".sh") else 0o644)
        for path, target in (links or {}).items():
            to = self.host.file("%s/%s" % (tree, path))
            to.parent.mkdir(parents=True, exist_ok=True)
            to.symlink_to(target)
        tags = ["BuildArch: noarch"] if arch == "noarch" else []
        tags += ["Requires: " + r for r in requires] + ["Provides: " + p for p in provides]
        scripts = "".join("%%%s\n%s" % (which, text) for which, text in (
            ("post", post), ("preun", preun), ("postun", postun)) if text)
        listed = ["%s/%s" % ("%config(noreplace) " if p in config else "", p) for p in [*(files or {}), *(links or {})]]
        self.specs.append("/build/specs/%s-%s-%s.spec" % (name, version, release))
        self.host.put(self.specs[-1], SPEC.format(
            name=name, epoch=epoch, version=version, release=release, tags="\n".join(tags), scripts=scripts, tree=tree,
            files="\n".join(listed)))
        return "%s-%s:%s-%s.%s" % (name, epoch, version, release, arch)

    def build(self):
        self.host.sh("cd /build && { rpmbuild --quiet --define '_rpmdir %s' --define '__os_install_post %%{nil}' "
                     "--define '_binary_payload w0.gzdio' --define '_build_name_fmt "
                     "%%%%{NAME}-%%%%{VERSION}-%%%%{RELEASE}.%%%%{ARCH}.rpm' -bb %s; } >log 2>&1 || "
                     "{ tail -n 5 log >&2; exit 1; }" % (self.where, " ".join(map(shlex.quote, self.specs))))
        if self.signed:
            self.sign("lab@localhost", "*.rpm")
            self.host.sh("export HOME=/root; cd %s && gpg -q --export --armor lab@localhost >%s" % (self.where, self.key))
            self.sha256 = hashlib.sha256((self.folder / self.key).read_bytes()).hexdigest()
        self.index()

    def sign(self, name, which):
        """Signs packages with the key of this name, which is made on first use."""
        self.host.sh("export HOME=/root; gpg -q --list-keys %s >/dev/null 2>&1 || gpg -q --batch --passphrase '' "
                     "--quick-gen-key %s rsa2048 sign never" % (name, name))
        self.host.sh("export HOME=/root; cd %s && rpmsign --define '_gpg_name %s' --addsign %s >/dev/null" % (self.where, name, which))

    def index(self, without=()):
        """without: beginnings of file names that the repository has no longer."""
        self.host.put("/build/modules.yaml", "".join(
            STREAM.format(name, ", ".join('"%s"' % n for n in rpms)) for name, rpms in self.streams.items()) + DEFAULT)
        modules = " && modifyrepo_c --mdtype=modules /build/modules.yaml repodata >/dev/null" if self.streams else ""
        self.host.sh("cd %s && rm -rf repodata && createrepo_c -q %s .%s" % (
            self.where, " ".join("-x '%s*'" % w for w in without), modules))


class GpuRpmRepo(RpmRepo):
    """NVIDIA's. system: its name of the hosts' system, as "rhel9"; dist: the end of its releases, as ".el9"."""

    def __init__(self, host, system="rhel9", dist=".el9"):
        super().__init__(host, "/srv/repos/%s/x86_64" % system)
        self.system, self.release, self.empty = system, "1" + dist, host.file("/build")
        self.key = KEYS.get(system, "D42D0685.pub")

    def library(self, package, version, soname, **more):
        """A package with a shared library that programs find by `soname`."""
        whole = "usr/lib64/%s.so.%s" % (soname.split(".so")[0], version)
        (self.empty / "empty.c").write_text("int gp_stand_in;\n")
        nevra = self.add(package, version, files={whole: ""}, links={"usr/lib64/" + soname: whole.rsplit("/", maxsplit=1)[-1]},
                         post="ldconfig\n", postun="ldconfig\n", **more)
        subprocess.run(["gcc", "-shared", "-nostdlib", "-Wl,-soname," + soname, "-o", str(
            self.host.file(self.tree(package, version, more.get("release", "1"))) / whole), str(self.empty / "empty.c")], check=True)
        return nevra

    def service(self, package, program, version, match="", **more):
        return self.add(package, version, files={
            "usr/bin/" + program: DAEMON % {"match": match},
            "usr/lib/systemd/system/%s.service" % package: UNIT % (package, program)}, **more)

    def driver(self, version, dkms="", post=POST, streams=True):
        """All packages of one driver version. dkms: more lines of its dkms.conf; post: the script of its module."""
        branch = version.split(".", maxsplit=1)[0]
        kind = {"epoch": 3, "release": self.release}
        exact = " = 3:" + version
        source = "usr/src/nvidia-open-%s/" % version
        made = [
            self.add("kmod-nvidia-open-dkms", version, requires=["dkms >= 3.1.8", "nvidia-kmod-common" + exact],
                     provides=["nvidia-kmod" + exact], arch="noarch", files={
                         source + "nvidia.c": MODULE % version,
                         source + "Makefile": "obj-m := nvidia.o\n",
                         source + "dkms.conf": OPEN % (version, version) + dkms,
                         source + "wait.sh": "#!/bin/sh\nuntil [ ! -e /hold ] || [ -e /go ]; do sleep 0.1; done\n"},
                     post=post.format(version), preun=PREUN.format(version), **kind),
            self.add("nvidia-kmod-common", version, requires=["nvidia-kmod" + exact], arch="noarch", **kind),
            self.library("libnvidia-ml", version, "libnvidia-ml.so.1", **kind),
            self.library("nvidia-driver-cuda-libs", version, "libcuda.so.1", requires=["libnvidia-ml" + exact], **kind),
            self.add("nvidia-driver-cuda", version, requires=[
                "nvidia-driver-cuda-libs" + exact, "nvidia-kmod-common" + exact, "nvidia-persistenced" + exact],
                files={"usr/bin/nvidia-smi": SMI.replace("lib/x86_64-linux-gnu", "lib64")}, **kind),
            self.add("nvidia-driver", version, requires=["nvidia-driver-cuda-libs" + exact], **kind),
            self.service("nvidia-persistenced", "nvidia-persistenced", version, **kind),
            self.add("nvidia-open", version, arch="noarch", requires=[
                name + exact for name in ("kmod-nvidia-open-dkms", "nvidia-driver", "nvidia-driver-cuda")], **kind)]
        plain = {"release": self.release if branch < "580" else "1"}
        made += [self.service("nvidia-fabricmanager", "nv-fabricmanager", version, match=version, **plain),
                 self.service("nvidia-imex", "nvidia-imex", version, match=version, **plain)]
        for stream in ("open-dkms", branch + "-open") if streams else ():
            self.streams.setdefault(stream, []).extend(made)

    def libraries(self, cuda="13.0", cudnn="9.17.0.29", nccl="2.30.7", nccl_cuda="13.3"):
        tag = cuda.replace(".", "-")
        top = "usr/local/cuda-%s/" % cuda
        self.add("cuda-libraries-" + tag, cuda + ".1", files={top + "lib64/README": "stand-in\n"})
        self.add("cuda-toolkit-" + tag, cuda + ".1", requires=["cuda-libraries-" + tag],
                 files={top + "bin/nvcc": "#!/bin/sh\necho release %s\n" % cuda})
        self.library("libcudnn9-cuda-" + cuda[:2], cudnn, "libcudnn.so.9")
        self.library("libnccl", nccl, "libnccl.so.2", release="1+cuda" + nccl_cuda)

    def source(self, sha256=None):
        """What a spec names as its mirror, once it is served at `address` and `port`."""
        return "http://%s:%d/repos#sha256=%s" % (self.address, self.port, sha256 or self.sha256)


class Distribution(RpmRepo):
    """The packages of the hosts' distribution, and EPEL's in a folder of its own."""

    def __init__(self, host, url):
        """url: of the host's folder /srv."""
        super().__init__(host, "/srv/distribution", signed=False)
        self.url = url
        self.epel = RpmRepo(host, "/srv/epel", signed=False)
        self.epel.add("dkms", "3.2.1", requires=["gcc", "make"], arch="noarch")

    def system(self):
        """What is the base's own, and only has to be known to rpm."""
        self.add("bash", "5.1.8", provides=["/bin/sh"])
        for name in ("gcc", "make"):
            self.add(name, "11.5.0")
        self.add("epel-release", "9", arch="noarch", files={"etc/yum.repos.d/epel.repo": self.repo("epel")})
        plugins = "usr/lib/python3/dist-packages/dnf-plugins/versionlock.py"
        lab = self.host.file("/lab/versionlock")
        conf = {"etc/dnf/plugins/versionlock." + end: (lab / ("versionlock." + end)).read_text() for end in ("conf", "list")}
        self.add("python3-dnf-plugin-versionlock", "4.3.0", provides=["dnf-command(versionlock)"], arch="noarch",
                 files={plugins: (lab / "versionlock.py").read_text(), **conf}, config=list(conf))

    def repo(self, name, more=""):
        """The file that makes one of them known."""
        return f"[{name}]\nname={name}\nbaseurl={self.url}/{name}\ngpgcheck=0\n{more}"

    def kernel(self, release, name="kernel", boots=False, headers=True):
        """Headers of a release ("5.14.0-570.12.1.el9_6.x86_64"): copies of the host's real ones under its name.
        boots: also a package of the kernel, which runs after a reboot; headers=False: a package without them."""
        version, rest = release.split("-", maxsplit=1)
        rest = rest.rsplit(".", maxsplit=1)[0]
        self.add(name + "-devel", version, rest, post=HEADERS % {"release": release} if headers else "")
        if boots:
            self.add(name, version, rest, post="echo %s >/etc/lab-kernel.next\n" % release)
