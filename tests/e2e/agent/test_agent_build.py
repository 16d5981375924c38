# SPDX-License-Identifier: Apache-2.0
"""What the CUDA agent is built with and how large it may become: toolkits.sh, fatbins.sh and checksize.sh,
against toolkits that only say what they are."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
AGENT = ROOT / "validate" / "agent"
BUILD = pathlib.Path(os.environ.get("B", ROOT / "build"))

NVCC = """#!/bin/sh
case "$*" in
--version) echo "Cuda compilation tools, release %(release)s, V%(release)s.1" ;;
--list-gpu-code) printf 'sm_%%s\\n' %(archs)s ;;
*) while [ $# -gt 1 ]; do [ "$1" = -o ] && echo "$0" >"$2"; [ "$1" = -gencode ] && echo "$2" >>"${0%%/*}/asked"; shift; done ;;
esac
"""


def toolkit(folder, release, archs):
    """A toolkit with an nvcc that writes down what it was asked for."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "nvcc").write_text(NVCC % {"release": release, "archs": archs})
    (folder / "bin" / "nvcc").chmod(0o755)
    return folder


def asked(folder):
    path = folder / "bin" / "asked"
    return path.read_text().split() if path.exists() else []


def toolkits(homes):
    env = {"PATH": "/usr/bin:/bin", "CUDA_HOMES": homes}
    return subprocess.run(["sh", AGENT / "toolkits.sh"], env=env, capture_output=True, text=True,
                          check=True).stdout.splitlines()


def test_toolkits_are_found_newest_first_one_per_major(tmp_path):
    a, b, c = (toolkit(tmp_path / n, r, "90") for n, r in (("a", "12.4"), ("b", "13.0"), ("c", "12.9")))
    nvrtc = tmp_path / "nvidia" / "cuda_nvrtc" / "lib"
    nvrtc.mkdir(parents=True)
    for name in ("libnvrtc.so.11.2", "libnvrtc-builtins.so.11.8"):
        (nvrtc / name).touch()
    assert toolkits(f"{a} {b}:{c} {tmp_path}/nvidia {tmp_path}/nowhere") == [
        f"13000 {b}/bin/nvcc", f"12090 {c}/bin/nvcc", f"11080 {nvrtc}/libnvrtc.so.11.2"]
    assert toolkits(str(tmp_path / "nowhere")) == []


def fatbins(tmp_path, homes, **env):
    done = subprocess.run(["sh", AGENT / "fatbins.sh", tmp_path / "out", "all.cu", "no-nvrtc"],
                          env={"PATH": "/usr/bin:/bin", "CUDA_HOMES": homes, **env}, capture_output=True,
                          text=True)
    table = tmp_path / "out" / "fatbins.c"
    rows = [l.strip() for l in table.read_text().splitlines() if l.startswith("    {")] if table.exists() else []
    return done, rows


@pytest.mark.parametrize("there", [True, False])
def test_make_takes_toolkits_from_its_command_line(tmp_path, there):
    """As docs/build.md shows it: CUDA_HOMES as an argument of make decides whether there is a CUDA agent."""
    home = toolkit(tmp_path / "cuda", "13.0", "90") if there else tmp_path / "nothing"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "CUDA"))}
    said = subprocess.run(["make", "-pnq", f"CUDA_HOMES={home}", "no-such-target"], cwd=ROOT, env=env,
                          capture_output=True, text=True, check=False)
    line = [x for x in said.stdout.splitlines() if x.startswith("CUDA_TOOLKITS :=")]
    assert line == [f"CUDA_TOOLKITS := 13000 {home}/bin/nvcc" if there else "CUDA_TOOLKITS := "], line


def test_each_architecture_once_by_the_oldest_that_knows_it(tmp_path):
    old = toolkit(tmp_path / "old", "12.4", "70 75 80 86 89 90")
    new = toolkit(tmp_path / "new", "13.0", "75 80 89 90 100 103 120 121")
    done, rows = fatbins(tmp_path, f"{new} {old}")
    assert done.returncode == 0, done.stderr
    assert asked(old) == [f"arch=compute_{a},code=sm_{a}" for a in (70, 75, 80, 89, 90)]
    # what only the new one knows, and PTX for what comes after it
    assert asked(new) == [f"arch=compute_{a},code=sm_{a}" for a in (100, 120)] + [
        "arch=compute_120,code=compute_120"]
    assert rows == ["{13000, gp_kernels_13000_fatbin},", "{12040, gp_kernels_12040_fatbin},",
                    "{13000, gp_kernels_13000_ptx},", "{0, NULL},"]


def test_one_toolkit_is_enough(tmp_path):
    only = toolkit(tmp_path / "only", "13.0", "75 80 86 89 90 100 103 120")
    done, rows = fatbins(tmp_path, str(only))
    assert done.returncode == 0, done.stderr
    assert rows == ["{13000, gp_kernels_13000_fatbin},", "{13000, gp_kernels_13000_ptx},", "{0, NULL},"]


def test_a_toolkit_that_knows_none_of_our_gpus_is_told(tmp_path):
    odd = toolkit(tmp_path / "odd", "14.0", "200")
    done, _ = fatbins(tmp_path, str(odd))
    assert done.returncode != 0 and "knows no GPU of" in done.stderr


def checksize(*argv):
    return subprocess.run(["sh", AGENT / "checksize.sh", *map(str, argv)], capture_output=True, text=True)


def test_sizes_are_checked(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 100)
    assert checksize(100, tmp_path / "a").returncode == 0
    over = checksize(100, tmp_path / "a", 99, tmp_path / "a")
    assert over.returncode == 1 and "100 bytes, more than the 99 allowed" in over.stderr
    assert checksize(100, tmp_path / "none").returncode != 0


@pytest.mark.parametrize("name,limit", [("gpuprov-agent", 1000000), ("gpuprov-agent-cuda", 3000000)])
def test_the_agents_are_small(name, limit):
    path = BUILD / "agent" / f"{name}.gz"
    if name == "gpuprov-agent-cuda" and not path.exists():
        pytest.skip("this build has no gpuprov-agent-cuda: no CUDA toolkit was found")
    done = checksize(limit, path)
    assert done.returncode == 0, done.stderr
