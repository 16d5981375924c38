# SPDX-License-Identifier: Apache-2.0
"""The progress of package managers, from transcripts of each and from a real apt."""
import pathlib
import subprocess

import pytest

from test_bootstrap import lab_fixture, node_fixture  # noqa: F401
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]
PKG = ROOT / "templates/bootstrap/run/pkg.sh"

TRANSCRIPTS = {
    "nothing": ("Reading package lists...\nBuilding dependency tree...\n", ""),
    "apt downloads": (("Get:1 http://h trixie/main amd64 htop amd64 3.4\n"
                      "dlstatus:1:20.5882:Retrieving file 1 of 2\n"), "20 Retrieving file 1 of 2"),
    "apt installs": (("dlstatus:2:100:Retrieving file 2 of 2\npmstatus:dpkg-exec:0.0000:Running dpkg\n"
                     "Unpacking htop (3.4) ...\npmstatus:htop:40.0000:Installing htop (amd64)\n"
                     "Setting up htop\n"), "40 Installing htop (amd64)"),
    "apt with colons": ("pmstatus:libc6:i386:40.0:text\npmstatus:a:7.5:Installing a: b: c\n", "7 Installing a: b: c"),
    "dnf 4 downloads": ("Downloading Packages:\n(3/17): kernel-devel-5.14.0.rpm    2.4 MB/s |  20 MB     00:08\n",
                        "17 downloads kernel-devel-5.14.0.rpm"),
    "dnf 4 installs": (("Running transaction\n  Preparing        :                          1/1\n"
                       "  Installing       : htop-3.3.0-1.el9.x86_64                         3/4 \n"),
                       "75 installing htop-3.3.0-1.el9.x86_64"),
    "dnf 4 scriptlet": ("  Running scriptlet: htop-3.3.0-1.el9.x86_64     4/4 \n", "100 running htop-3.3.0-1.el9.x86_64"),
    "dnf 5": (("[1/4] Verify package files   100% | 500.0   B/s |   2.0   B |  00m00s\n"
              "[ 3/17] Installing htop-0:3.3.0-4.fc41.x86_64  100% |  15.2 MiB/s\n"),
              "17 Installing htop-0:3.3.0-4.fc41.x86_64"),
    "half a line": ("pmstatus:htop:40", ""),
    "impossible numbers": ("(9/0): x y\n(9/3): x y\npmstatus:a:900.0:b\n", ""),
    "carriage returns": ("(1/2): a.rpm 1\r(2/2): b.rpm 1\r", "100 downloads b.rpm"),
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_percent_of(name):
    text, want = TRANSCRIPTS[name]
    done = subprocess.run(["sh", "-c", '. "$0"; percent_of', PKG], input=text, capture_output=True, text=True,
                          check=True)
    assert done.stdout.strip() == want and done.stderr == ""


@pytest.mark.root
@pytest.mark.namespaces
def test_a_real_apt_shows_its_progress(node):
    """Over sudo, which closes every further file descriptor."""
    node.lab.repo.add("gp-waits", postinst="n=0; until [ -e /seen ] || [ $n -gt 600 ]; do sleep .1; n=$((n + 1)); done\n")
    node.lab.repo.use(node.host)

    def seen(lines):
        wait_for(lambda: any('"percent":' in line and "gp-waits" in line for line in list(lines)))  # not its download
        node.host.put("/seen", "")
    out = node.run("--package", "gp-waits", during=seen)
    shown = [e for e in out.events if e.get("percent")]
    assert shown and all(0 < e["percent"] <= 100 and e["step"] == "packages" for e in shown), out
    assert all(e["text"].startswith("%d%%: " % e["percent"]) for e in shown), shown
    assert "status:" not in repr(out)
