# SPDX-License-Identifier: Apache-2.0
"""torch_stubs.py SITE_PACKAGES: puts empty libraries for those of CUDA into torch/lib, so that a build of PyTorch for
CUDA is imported and computes on the CPU without gigabytes of libraries. Reads what torch's own libraries want."""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile


def readelf(*args):
    return subprocess.run(["readelf", *map(str, args)], capture_output=True, text=True, check=True).stdout


class Wanted:
    """Of all libraries in a folder: the names of others, and the symbols that each of those must have."""

    def __init__(self, folder):
        self.files, self.versions = set(), collections.defaultdict(set)
        self.of_version, self.defined, self.plain = collections.defaultdict(set), set(), set()
        for lib in folder.glob("*.so*"):
            self.files |= set(re.findall(r"NEEDED.*\[(.*)\]", readelf("-dW", lib)))
            self._symbols(lib)
            self._versions(lib)
        self.files -= {lib.name for lib in folder.glob("*.so*")}

    def _symbols(self, lib):
        for line in readelf("--dyn-syms", "-W", lib).splitlines():
            part = line.split()
            if len(part) < 8 or not part[0].endswith(":"):
                continue
            name, at, version = part[7].partition("@")
            if part[6] != "UND":
                self.defined.add(name)
            elif at:
                self.of_version[version.lstrip("@")].add((name, part[3]))
            elif part[4] != "WEAK":
                self.plain.add(name)

    def _versions(self, lib):
        file = None
        for line in readelf("-VW", lib).splitlines():
            named = re.search(r"File: (\S+)", line)
            file = named[1] if named else file
            version = re.search(r"Name: (\S+)\s+Flags", line)
            if version and file:
                self.versions[file].add(version[1])

    def source(self, lib):
        """C and the map of versions for a stub of this library."""
        code, versions = [], []
        for version in sorted(self.versions[lib]):
            symbols = sorted(self.of_version[version])
            names = "global: " + " ".join(s + ";" for s, _ in symbols) if symbols else ""
            versions.append("%s { %s };" % (version, names))
            code += ["char %s[4096];" % s if kind == "OBJECT" else "long %s(void) { return 999; }" % s
                     for s, kind in symbols]
        if not versions:
            prefix = {"cudart": "cuda"}.get(re.match(r"lib([A-Za-z]+)", lib)[1].lower(),
                                            re.match(r"lib([A-Za-z]+)", lib)[1].lower())
            code = ["long %s(void) { return 999; }" % s for s in sorted(self.plain - self.defined)
                    if s.lower().startswith(prefix)]
        return "\n".join(dict.fromkeys(code)) + "\n", "\n".join(versions)


def main():
    folder = pathlib.Path(sys.argv[1]) / "torch/lib"
    wanted = Wanted(folder)
    with tempfile.TemporaryDirectory() as tmp:
        for lib in sorted(f for f in wanted.files if re.match(r"lib(cu|nv|nccl)", f)):  # never one of the system
            code, versions = wanted.source(lib)
            (pathlib.Path(tmp) / "s.c").write_text(code)
            (pathlib.Path(tmp) / "s.map").write_text(versions)
            script = ["-Wl,--version-script=%s/s.map" % tmp] if versions else []
            subprocess.run(["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", "-O1", "-Wl,-soname," + lib, *script,
                            "-o", folder / lib, tmp + "/s.c"], check=True)


if __name__ == "__main__":
    main()
