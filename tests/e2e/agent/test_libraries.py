# SPDX-License-Identifier: Apache-2.0
"""Where the agent finds cuBLASLt and NCCL: usual places of Python environments, without GPUPROV_LIBRARY_PATH
naming them. The driver's libraries are where the system has them."""
import pytest

from agent_gpu import STANDIN, needed, run  # noqa: F401

pytestmark = pytest.mark.usefixtures("needed")
PACKAGES = "lib/python3.12/site-packages/nvidia"

# Below /opt, which the test covers, or the home folder; {} is the package, "cublas" or "nccl".
PLACES = {
    "hidden": f"/opt/torch/.venv/{PACKAGES}/{{}}/lib",
    "not hidden": f"/opt/app/venv/{PACKAGES}/{{}}/lib",
    "image": f"/opt/venv/{PACKAGES}/{{}}/lib",
    "lib64": "/opt/torch/.venv/lib64/python3.9/site-packages/nvidia/{}/lib",
    "cuda 13": f"/opt/torch/.venv/{PACKAGES}/cu13/lib",
    "home": f"$HOME/.venv/{PACKAGES}/{{}}/lib",
    "project": f"$HOME/project/.venv/{PACKAGES}/{{}}/lib",
    "conda": f"/opt/conda/{PACKAGES}/{{}}/lib",
    "conda's own": "/opt/conda/lib",
    "conda's environment": f"/opt/conda/envs/torch/{PACKAGES}/{{}}/lib",
    "miniconda": "$HOME/miniconda3/envs/torch/lib",
    "CONDA_PREFIX": "$CONDA_PREFIX/lib",
    "VIRTUAL_ENV": f"$VIRTUAL_ENV/{PACKAGES}/{{}}/lib",
}


@pytest.mark.parametrize("place", PLACES)
def test_libraries_of_python_are_found(tmp_path, place):
    driver = tmp_path / "driver"
    driver.mkdir()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (driver / name).symlink_to(STANDIN / name)
    # this machine's own toolkit is hidden
    setup = "mount -t tmpfs none /opt; mount -t tmpfs none /usr/local; mount --bind /dev/null /etc/ld.so.cache\n" + "\n".join(
        f'd="{PLACES[place].format(package)}"; mkdir -p "$d" && cp "{STANDIN}/{lib}" "$d"'
        for package, lib in (("cublas", "libcublasLt.so.13"), ("nccl", "libnccl.so.2")))
    env = {"HOME": str(tmp_path / "home"), "VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
    if place in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        env[place] = str(tmp_path / "python")
    results, _, _ = run(gpus=2, checks="gpu.gemm,nccl.values", libraries=driver, setup=setup, env=env)
    assert results["gpu.gemm"]["data"]["gpus"][0]["by"].startswith("cuBLASLt"), results
    assert results["nccl.values"]["verdict"] == "pass", results
    assert results["nccl.values"]["data"]["library"].endswith("/libnccl.so.2")
