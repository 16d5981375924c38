# SPDX-License-Identifier: Apache-2.0
"""A signed apt repository with stand-ins of NVIDIA's packages: their names, dependencies and versions, with a tiny
kernel module that dkms really builds. The programs answer by what a host's fakekernel.so has loaded."""
import gzip
import hashlib
import os
import pathlib
import shutil
import subprocess

from repo import Repo

DRIVER, LATER = "580.65.06", "580.95.05"
LIBRARY_DIR = "usr/lib/x86_64-linux-gnu/"
SMI = """#!/bin/sh
# answers as the real one does for what is loaded
v=$(sed -n 's/^NVRM.* \\([0-9.]*\\)  Release.*/\\1/p' /proc/driver/nvidia/version 2>/dev/null)
if [ -z "$v" ]; then
    echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    exit 9
fi
lib=$(readlink -f /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1)
if [ "${lib##*.so.}" != "$v" ]; then
    echo "Failed to initialize NVML: Driver/library version mismatch"
    echo "NVML library version: ${lib##*.so.}"
    exit 18
fi
echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-2222-3333-4444-555555555555)"
"""
# a daemon; MATCH: it refuses a driver of another version
DAEMON = """#!/bin/sh
if [ -n "%(match)s" ]; then
    v=$(sed -n 's/^NVRM.* \\([0-9.]*\\)  Release.*/\\1/p' /proc/driver/nvidia/version 2>/dev/null)
    if [ "$v" != "%(match)s" ]; then
        echo "fabric manager NVIDIA GPU driver interface version %(match)s don't match with driver version $v" >&2
        exit 1
    fi
fi
if [ "$1" = --stay ]; then while :; do sleep 1000; done; fi
setsid "$0" --stay </dev/null >/dev/null 2>&1 &
"""
UNIT = "[Unit]\nDescription=%s\n[Service]\nExecStart=/usr/bin/%s --stay\n[Install]\nWantedBy=multi-user.target\n"
# The fabric manager's start script. On NVLink 5 (here: a B200 by its PCI id) NVIDIA's looks for ibstat, the module and
# NVLSM, and starts that first.
FABRIC_START = """#!/bin/sh
if grep -q -x 0x2901 /lab-pci/*/device 2>/dev/null; then
    nvlsm=/opt/nvidia/nvlsm/sbin/nvlsm
    command -v ibstat >/dev/null || { echo "ibstat is not installed"; exit 1; }
    grep -q '^ib_umad ' /proc/modules ||
        { echo 'Kernel module "ib_umad" has not been loaded, fabric manager cannot start'; exit 1; }
    [ -x $nvlsm ] || { echo "\\"$nvlsm\\" does not exist"; exit 1; }
    $nvlsm
fi
exec nv-fabricmanager
"""
MODULE = """#include <linux/module.h>
static int __init start(void) { return 0; }
static void __exit stop(void) {}
module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
MODULE_VERSION("%s");
"""
DKMS = """PACKAGE_NAME="nvidia"
PACKAGE_VERSION="%s"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
AUTOINSTALL="yes"
PRE_BUILD="wait.sh"
MAKE[0]="make -C /lib/modules/${kernelver}/build M=${dkms_tree}/nvidia/%s/build modules"
CLEAN="true"
"""


# from those of the base
HEADERS = """old=$(ls -d /usr/src/linux-headers-*-amd64 | head -n 1)
old=${old##*linux-headers-} new=%(release)s
cp -a /usr/src/linux-headers-$old /usr/src/linux-headers-$new
for f in include/generated/utsrelease.h include/config/kernel.release; do
    [ ! -e /usr/src/linux-headers-$new/$f ] || sed -i "s/$old/$new/" /usr/src/linux-headers-$new/$f
done
mkdir -p /lib/modules/$new
cp /lib/modules/$old/modules.* /lib/modules/$new/ 2>/dev/null || true
ln -sfn /usr/src/linux-headers-$new /lib/modules/$new/build
"""


class GpuRepo(Repo):
    """Packages are added, then finish() signs; serve() is the base's. system: NVIDIA's name of the hosts' system."""

    def __init__(self, folder, system="debian12"):
        super().__init__(folder)
        self.system = system
        self.pool = self.folder / "repos" / system / "x86_64"
        self.pool.mkdir(parents=True)
        self.home = self.folder / "gpg"
        self.home.mkdir(mode=0o700)
        self.indexed = {}
        self.gpg("--passphrase", "", "--quick-gen-key", "lab@localhost", "ed25519", "sign", "never")
        self.library = self.folder / "empty.so"
        (self.folder / "empty.c").write_text("int gp_stand_in;\n")

    def gpg(self, *args, **kw):
        return subprocess.run(["gpg", "--homedir", str(self.home), "-q", "--batch", "--yes", *args], check=True,
                              capture_output=True, **kw)

    # pylint: disable=arguments-differ,too-many-arguments
    def add(self, name, version, depends="", files=None, scripts=None, conffiles=(), arch="amd64"):
        """files: path -> text or bytes (executable below bin/); scripts: postinst, prerm -> shell text."""
        tree = self.folder / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        (tree / "DEBIAN").mkdir(parents=True)
        control = ("Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: test <test@localhost>\n"
                   "Description: stand-in\n" % (name, version, arch))
        if depends:
            control += "Depends: %s\n" % depends
        (tree / "DEBIAN/control").write_text(control)
        for script, text in (scripts or {}).items():
            (tree / "DEBIAN" / script).write_text("#!/bin/sh\nset -e\n" + text)
            (tree / "DEBIAN" / script).chmod(0o755)
        for path, content in (files or {}).items():
            to = tree / path
            to.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, pathlib.Path):
                os.symlink(content, to)
                continue
            to.write_bytes(content if isinstance(content, bytes) else content.encode())
            to.chmod(0o755 if "bin/" in path or path.endswith(".sh") else 0o644)
        if any(".so." in path for path in files or {}):
            (tree / "DEBIAN/triggers").write_text("activate-noawait ldconfig\n")
        if conffiles:
            (tree / "DEBIAN/conffiles").write_text("".join("/%s\n" % c for c in conffiles))
        deb = self.pool / ("%s_%s_%s.deb" % (name, version, arch))
        subprocess.run(["dpkg-deb", "-Znone", "--build", "--root-owner-group", str(tree), str(deb)], check=True,
                       capture_output=True)
        data = deb.read_bytes()
        self.indexed[deb.name] = control + "Filename: ./%s\nSize: %d\nSHA256: %s\n" % (
            deb.name, len(data), hashlib.sha256(data).hexdigest())
        return deb

    def so(self, name, version):
        """The files of a shared library that programs find by `name`."""
        subprocess.run(["gcc", "-shared", "-nostdlib", "-Wl,-soname," + name, "-o", str(self.library),
                        str(self.folder / "empty.c")], check=True)
        whole = name.split(".so")[0] + ".so." + version
        return {LIBRARY_DIR + whole: self.library.read_bytes(), LIBRARY_DIR + name: pathlib.Path(whole)}

    def service(self, package, program, version, match=""):
        self.add(package, version + "-1", files={
            "usr/bin/" + program: DAEMON % {"match": match},
            "lib/systemd/system/%s.service" % package: UNIT % (package, program)})

    def driver(self, version, dkms=""):
        """All packages of one driver version. dkms: more lines of its dkms.conf."""
        branch, full = version.split(".", maxsplit=1)[0], version + "-1"
        exact = " (= %s)" % full
        source = "usr/src/nvidia-%s/" % version
        self.add("nvidia-dkms-%s-open" % branch, full, "dkms, gcc, make", {
            source + "nvidia.c": MODULE % version,
            source + "Makefile": "obj-m := nvidia.o\n", source + "dkms.conf": DKMS % (version, version) + dkms,
            source + "wait.sh": "#!/bin/sh\nuntil [ ! -e /hold ] || [ -e /go ]; do sleep 0.1; done\n"},
            {"postinst": "/usr/lib/dkms/common.postinst nvidia %s /usr/share/nvidia amd64 $2\n" % version,
             "prerm": "dkms remove -m nvidia -v %s --all || true\n" % version})
        self.add("libnvidia-compute-" + branch, full, files={
            **self.so("libnvidia-ml.so.1", version), **self.so("libcuda.so.1", version)})
        self.add("nvidia-utils-" + branch, full, "libnvidia-compute-" + branch + exact, {"usr/bin/nvidia-smi": SMI})
        self.service("nvidia-persistenced", "nvidia-persistenced", version)
        self.add("nvidia-driver-%s-open" % branch, full, ", ".join(
            name + exact for name in ("nvidia-dkms-%s-open" % branch, "nvidia-utils-" + branch, "nvidia-persistenced")))
        self.add("nvidia-open", full, "nvidia-driver-%s-open" % branch + exact)
        self.add("cuda-drivers", full, "nvidia-utils-" + branch + exact)
        self.add("nvidia-fabricmanager", full, files={
            "usr/bin/nv-fabricmanager": DAEMON % {"match": version},
            "usr/bin/nvidia-fabricmanager-start.sh": FABRIC_START,
            "lib/systemd/system/nvidia-fabricmanager.service": UNIT % ("nvidia-fabricmanager", "nv-fabricmanager")})
        self.service("nvidia-imex", "nvidia-imex", version, match=version)
        for name, pinned in ((branch, branch + ".*"), (version, version + "-*")):
            pin = "Package: *nvidia* cuda-drivers*\nPin: version %s\nPin-Priority: 1001\n" % pinned
            self.add("nvidia-driver-pinning-" + name, "1-1", arch="all",
                     files={"etc/apt/preferences.d/nvidia-driver-pinning-%s.pref" % name: pin})

    def nvlsm(self):
        """What NVLink 5 needs beside the fabric manager; versions are dates."""
        self.add("nvlsm", "2025.10.14-1", files={"opt/nvidia/nvlsm/sbin/nvlsm": DAEMON % {"match": ""}})
        self.add("infiniband-diags", "44.0-2", files={"usr/bin/ibstat": "#!/bin/sh\n"})

    def libraries(self, cuda="13.0", cudnn="9.17.0.29", nccl="2.30.7", nccl_cuda="13.3"):
        tag = cuda.replace(".", "-")
        top = "usr/local/cuda-%s/" % cuda
        self.add("cuda-libraries-" + tag, cuda + ".1-1", files={top + "lib64/README": "stand-in\n"})
        self.add("cuda-toolkit-" + tag, cuda + ".1-1", "cuda-libraries-" + tag,
                 {top + "bin/nvcc": "#!/bin/sh\necho release %s\n" % cuda})
        self.add("libcudnn9-cuda-" + cuda[:2], cudnn + "-1", files=self.so("libcudnn.so.9", cudnn))
        self.add("libnccl2", "%s-1+cuda%s" % (nccl, nccl_cuda), files=self.so("libnccl.so.2", nccl))

    def kernel(self, release, kind="amd64"):
        """Headers of a release: copies of the host's real ones under its name; and a kernel package that boots it."""
        self.add("linux-headers-" + release, "1-1", scripts={"postinst": HEADERS % {"release": release}})
        self.add("linux-image-" + kind, "99-1", "linux-headers-" + release,
                 scripts={"postinst": "echo %s >/etc/lab-kernel.next\n" % release})

    def keyring(self):
        key = self.gpg("--export", "lab@localhost").stdout
        sources = "etc/apt/sources.list.d/cuda-%s-x86_64.list" % self.system
        return self.add("cuda-keyring", "1.1-1", arch="all", conffiles=[sources], files={
            "usr/share/keyrings/cuda-archive-keyring.gpg": key,
            sources: "deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] "
                     "http://nvidia.invalid/compute/cuda/repos/%s/x86_64/ /\n" % self.system})

    def finish(self):
        """Writes and signs the index of what was added, and the keyring package beside it once."""
        deb = self.pool / "cuda-keyring_1.1-1_all.deb"
        if not deb.exists():
            self.keyring()
        self.sha256 = hashlib.sha256(deb.read_bytes()).hexdigest()
        self.index()

    def index(self, without=()):
        """without: beginnings of file names that the repository has no longer."""
        text = "\n".join(e for name, e in sorted(self.indexed.items()) if not name.startswith(tuple(without))).encode()
        packed = gzip.compress(text, mtime=0)
        (self.pool / "Packages").write_bytes(text)
        (self.pool / "Packages.gz").write_bytes(packed)
        sums = "".join(" %s %d %s\n" % (hashlib.sha256(data).hexdigest(), len(data), name)
                       for name, data in (("Packages", text), ("Packages.gz", packed)))
        release = "Origin: NVIDIA\nLabel: NVIDIA CUDA\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n" + sums
        self.gpg("--clearsign", "-o", str(self.pool / "InRelease"), "-", input=release.encode())
        subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], check=True)  # gpg starts an agent

    def source(self, sha256=None):
        """What a spec names as its mirror."""
        return "http://%s:%d/repos#sha256=%s" % (self.address, self.port, sha256 or self.sha256)
