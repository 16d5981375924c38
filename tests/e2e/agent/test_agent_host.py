# SPDX-License-Identifier: Apache-2.0
"""The static agent's checks of the machine around the GPUs: memory bandwidth, limits, RDMA, containers. /sys
and programs are a test's own, in a mount namespace."""
import os
import subprocess

import pytest

import agent_gpu


def check(name, gpus=0, **more):
    results, end, status = agent_gpu.run(gpus=gpus, agent=agent_gpu.HOST_AGENT, checks=name, **more)
    return results[name], end, status


# --- host.bandwidth ---

def test_bandwidth_of_all_cores():
    result, _, status = check("host.bandwidth")
    assert (result["verdict"], status) == ("pass", 0), result
    figures = agent_gpu.metrics(result)
    assert figures["copy"] > 0 and figures["triad"] > 0
    assert result["data"]["threads"] == len(os.sched_getaffinity(0))


# --- host.limits ---

def limits(setup, **more):
    return check("host.limits", setup=setup, **more)[0]


def test_limits_are_told():
    result = limits("ulimit -n 4096; mount -t tmpfs -o size=2g none /dev/shm || exit 99")
    figures = agent_gpu.metrics(result)
    assert result["verdict"] == "pass" and figures["open_files"] == 4096 and figures["shared_memory"] == 2


def test_few_open_files():
    result = limits("ulimit -n 256")
    assert (result["verdict"], result["code"]) == ("degraded", "low_open_files") and "256" in result["message"]


def test_small_shared_memory_matters_between_gpus():
    small = "mount -t tmpfs -o size=64m none /dev/shm || exit 99"
    assert limits(small, gpus=1)["verdict"] == "pass"
    result = limits(small, gpus=8)
    assert (result["verdict"], result["code"]) == ("degraded", "low_shared_memory")


def test_locked_memory_matters_for_rdma(tmp_path):
    assert limits("ulimit -l 64")["verdict"] == "pass"
    result = limits(fabric(tmp_path, {"mlx5_0": {}}) + "; ulimit -l 64")
    assert (result["verdict"], result["code"]) == ("degraded", "low_memlock")


# --- host.rdma ---

def fabric(tmp_path, devices, bus=None, modules=()):
    """sh that puts a /sys there with these RDMA devices ({name: {state, rate, layer, vendor, device,
    symbol_error}}) and PCI devices ({address: (vendor, device, class)})."""
    root = tmp_path / "sys"
    for name, d in devices.items():
        port = root / "class/infiniband" / name / "ports/1"
        (port / "counters").mkdir(parents=True)
        (port / "state").write_text(d.get("state", "4: ACTIVE") + "\n")
        (port / "rate").write_text(d.get("rate", "400 Gb/sec (4X NDR)") + "\n")
        (port / "link_layer").write_text(d.get("layer", "InfiniBand") + "\n")
        for counter in ("symbol_error", "link_downed", "port_rcv_errors"):
            (port / "counters" / counter).write_text("7\n")
        ids = root / "class/infiniband" / name / "device"
        ids.mkdir()
        (ids / "vendor").write_text(d.get("vendor", "0x15b3") + "\n")
        (ids / "device").write_text(d.get("device", "0x1021") + "\n")
    for address, (vendor, device, kind) in (bus or {}).items():
        d = root / "bus/pci/devices" / address
        d.mkdir(parents=True)
        (d / "vendor").write_text(vendor + "\n")
        (d / "device").write_text(device + "\n")
        (d / "class").write_text(kind + "\n")
    for name in modules:
        (root / "module" / name).mkdir(parents=True)
    root.mkdir(exist_ok=True)
    return f"mount --bind {root} /sys || exit 99"


EIGHT = [f"mlx5_{i}" for i in range(8)]
ERDMA = {"layer": "Ethernet", "vendor": "0x1ded", "device": "0x107f", "rate": "100 Gb/sec (4X EDR)"}
EFA = {"layer": "Unspecified", "vendor": "0x1d0f", "device": "0xefa2", "rate": "100 Gb/sec (4X EDR)"}


def rdma(tmp_path, devices, gpus=0, rdma=None, **more):
    return check("host.rdma", gpus=gpus, setup=fabric(tmp_path, devices, **more),
                 more=() if rdma is None else ("--rdma", str(rdma)))


def test_none_there_is_skipped(tmp_path):
    result, _, status = rdma(tmp_path, {})
    assert (result["verdict"], result["code"], status) == ("skipped", "no_rdma", 3)


def test_eight_active_ports(tmp_path):
    result, _, status = rdma(tmp_path, {n: {} for n in EIGHT})
    assert (result["verdict"], status) == ("pass", 0), result
    assert agent_gpu.metrics(result) == {"devices": 8, "active_ports": 8, "rate": 400}
    assert result["data"]["ports"][0]["symbol_error"] == 7


@pytest.mark.parametrize("there, verdict", [(0, "fail"), (31, "fail"), (32, "pass")])
def test_fewer_than_the_cloud_attached(tmp_path, there, verdict):
    result, _, _ = rdma(tmp_path, {f"rdmap{i}s0": EFA for i in range(there)}, rdma=32)
    assert result["verdict"] == verdict, result
    if verdict == "fail":
        assert result["code"] == "too_few" and f"attached 32 RDMA devices, the node has {there}" in result["message"]


@pytest.mark.parametrize("kind, word", [(EFA, "(EFA)"), (ERDMA, "(eRDMA)")])
def test_the_kind_is_told(tmp_path, kind, word):
    result, _, _ = rdma(tmp_path, {f"rdmap{i}s0": kind for i in range(4)})
    assert result["verdict"] == "pass" and word in result["message"]


@pytest.mark.parametrize("change,verdict,code,words", [
    ({"state": "1: DOWN"}, "fail", "port_down", "mlx5_3 port 1 is down; 7 of 8 ports of its kind are up"),
    ({"rate": "200 Gb/sec (2X NDR)"}, "fail", "rate_low", "mlx5_3 port 1 runs at 200 Gb/s"),
    ({"layer": "Ethernet", "rate": "100 Gb/sec (4X EDR)"}, "pass", "", ""),  # another kind of port
])
def test_one_rail_is_bad(tmp_path, change, verdict, code, words):
    result, _, _ = rdma(tmp_path, {**{n: {} for n in EIGHT}, "mlx5_3": change})
    assert (result["verdict"], result["code"]) == (verdict, code), result
    assert words in result["message"]


def test_empty_files_are_no_crash(tmp_path):
    setup = fabric(tmp_path, {"mlx5_0": {}})
    for path in (tmp_path / "sys").rglob("*"):
        if path.is_file():
            path.write_text("")
    result, _, _ = check("host.rdma", setup=setup)
    assert (result["verdict"], result["code"]) == ("fail", "no_active_port")


def test_no_port_is_active(tmp_path):
    result, _, _ = rdma(tmp_path, {"mlx5_0": {"state": "2: INIT"}})
    assert (result["verdict"], result["code"]) == ("fail", "no_active_port")


def test_counters_that_move_without_load(tmp_path):
    setup = fabric(tmp_path, {"mlx5_0": {}, "mlx5_1": {}})
    counter = tmp_path / "sys/class/infiniband/mlx5_1/ports/1/counters/symbol_error"
    # counts up until the agent, whose shell this was, has ended
    setup += (f"; me=$$; (n=8; while kill -0 $me; do echo $n >{counter}.new; mv {counter}.new {counter}; "
              f"n=$((n+1)); done) >/dev/null 2>&1 &")
    result, _, _ = check("host.rdma", setup=setup)
    assert (result["verdict"], result["code"]) == ("degraded", "errors_move"), result
    assert "mlx5_1 port 1: symbol_error" in result["message"]


@pytest.mark.parametrize("bus,advice", [
    ({"0000:10:00.0": ("0x1d0f", "0xefa2", "0x020000")}, "EFA"),
    ({"0000:10:00.0": ("0x15b3", "0x1021", "0x020700")}, "mlx5"),
    ({"0000:10:00.0": ("0x1ded", "0x107f", "0x020000")}, "erdma_installer"),
])
def test_an_adapter_without_a_driver(tmp_path, bus, advice):
    result, _, _ = rdma(tmp_path, {}, bus=bus)
    assert (result["verdict"], result["code"]) == ("fail", "no_driver") and advice in result["suggestion"]


@pytest.mark.parametrize("there, verdict, code", [(1, "fail", "no_driver"), (2, "pass", "")])
def test_each_erdma_interface_has_its_device(tmp_path, there, verdict, code):
    """Another device of the vendor is no RDMA adapter."""
    bus = {"0000:%d0:00.0" % i: ("0x1ded", "0x107f", "0x020000") for i in range(2)}
    bus["0000:30:00.0"] = ("0x1ded", "0x1001", "0x018000")
    result, _, _ = rdma(tmp_path, {f"erdma_{i}": ERDMA for i in range(there)}, bus=bus)
    assert (result["verdict"], result["code"]) == (verdict, code), result
    if code:
        assert "2 RDMA adapters are on the PCI bus (EFA: 0, eRDMA: 2), 1 have a driver" in result["message"]


def test_rdma_into_gpu_memory(tmp_path):
    result, _, _ = rdma(tmp_path, {"mlx5_0": {}}, gpus=8)
    assert (result["verdict"], result["code"]) == ("degraded", "no_gpudirect")
    result, _, _ = rdma(tmp_path / "2", {"mlx5_0": {}}, gpus=8, modules=["nvidia_peermem"])
    assert (result["verdict"], result["data"]["gpudirect"]) == ("pass", "nvidia_peermem")


# --- host.container ---

HELLO = '{"type":"hello","v":1,"dev_nvidia":%d}'


def container(tmp_path, gpus=2, podman=None, docker=None, cdi=True, engine=None):
    """podman, docker: what that program does, as sh; None: it is not there. engine: that of the spec."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("podman", podman), ("docker", docker)):
        if text is not None:
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
    etc = tmp_path / "cdi"
    etc.mkdir()
    if cdi:
        (etc / "nvidia.yaml").write_text("cdiVersion: 0.6.0\nkind: nvidia.com/gpu\n")
    # the machine's own are hidden; /etc/cdi may not exist, so /etc is a copy of what is needed of it
    setup = (f"mount -t tmpfs none /usr/local/bin && mount -t tmpfs none /etc && cp -r {etc} /etc/cdi || exit 99; "
             f"for f in podman docker; do test ! -e /usr/bin/$f || mount --bind /dev/null /usr/bin/$f; done; "
             f"PATH={programs}:$PATH")
    return check("host.container", gpus=gpus, setup=setup, more=("--container-engine", engine) if engine else ())


def test_no_runtime(tmp_path):
    result, _, status = container(tmp_path)
    assert (result["verdict"], result["code"], status) == ("skipped", "no_runtime", 3)


def test_a_runtime_without_gpus_is_skipped(tmp_path):
    result, _, _ = container(tmp_path, gpus=0, podman="exit 0")
    assert (result["verdict"], result["code"]) == ("skipped", "no_gpu")


def test_podman_shows_all_gpus(tmp_path):
    # the root folder is real: the agent in it is run, as podman would
    podman = f"""echo "$@" >{tmp_path}/said
while [ "$1" != --rootfs ]; do shift; done
"$2/gpuprov-agent" version >>{tmp_path}/said || exit 1
echo '{HELLO % 2}'"""
    result, _, status = container(tmp_path, podman=podman)
    assert (result["verdict"], status) == ("pass", 0), result
    said = (tmp_path / "said").read_text()
    assert "--network none" in said and "--device nvidia.com/gpu=all" in said and "gpuprov-agent 0" in said
    root = said.split("--rootfs ")[1].split()[0]
    assert root.startswith("/tmp/gpuprov-container.") and not os.path.exists(root)
    assert result["data"]["gpus_in_container"] == 2


@pytest.mark.parametrize("podman,cdi,code,words", [
    (f"echo '{HELLO % 1}'", True, "gpus_missing", "sees 1 of 2 GPUs"),
    ("echo 'Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all' >&2; exit 126", True,
     "no_container", "unresolvable CDI devices"),
    ("exit 1", True, "no_container", "no reason"),
    ("exit 0", False, "no_cdi", "no CDI file"),
])
def test_podman_does_not(tmp_path, podman, cdi, code, words):
    result, _, status = container(tmp_path, podman=podman, cdi=cdi)
    assert (result["verdict"], result["code"], status) == ("degraded", code, 1), result
    assert words in result["message"] and "nvidia-ctk" in result["suggestion"]


def test_podman_that_hangs_is_ended(tmp_path):
    result, _, _ = container(tmp_path, podman=f"echo $$ >{tmp_path}/pid; exec sleep 1000")
    assert (result["verdict"], result["code"]) == ("degraded", "no_container"), result
    assert "did not end in time" in result["message"]
    assert not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text().strip()}")


def test_of_docker_only_settings_are_read(tmp_path):
    result, _, _ = container(tmp_path, docker="exit 1", cdi=False)
    assert (result["verdict"], result["code"]) == ("degraded", "no_nvidia_runtime")


def test_docker_with_cdi(tmp_path):
    result, _, _ = container(tmp_path, docker="exit 1")
    assert result["verdict"] == "pass" and "only its settings were read" in result["message"]


DOCKER = """echo "$*" >>%s
case $1 in
info) echo '{"CDISpecDirs":[%s],"Runtimes":{%s}}' ;;
run) %s ;;
esac"""


def asked(tmp_path, dirs="", runtimes="", does=f"echo '{HELLO % 2}'", **more):
    """docker as the spec's engine: the result, and the arguments of its calls."""
    calls = tmp_path / "calls"
    docker = DOCKER % (calls, dirs, runtimes, does)
    result, _, _ = container(tmp_path, docker=docker, engine="docker", **more)
    return result, calls.read_text().splitlines()


@pytest.mark.parametrize("dirs, runtimes, words, way", [
    ('"/etc/cdi"', '"nvidia":{}', "--device nvidia.com/gpu=all", "CDI"),
    ("", '"nvidia":{}', "--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=all", "NVIDIA runtime")])
def test_the_specs_docker_starts_a_container(tmp_path, dirs, runtimes, words, way):
    result, calls = asked(tmp_path, dirs, runtimes)
    assert (result["verdict"], result["message"]) == ("pass", f"a container of docker sees all GPUs ({way})")
    ran = next(c for c in calls if c.startswith("run "))
    assert f"run --rm --network none {words} --name gpuprov-check-" in ran
    assert calls[-1].startswith("rmi -f gpuprov-check") and any(c.startswith("import /tmp/") for c in calls)


def test_the_specs_docker_on_a_node_without_gpus(tmp_path):
    result, calls = asked(tmp_path, does=f"echo '{HELLO % 0}'", gpus=0)
    assert result["message"] == "docker started a container; this node has no GPU"
    assert "nvidia" not in " ".join(calls)


@pytest.mark.parametrize("does, code, text", [
    (f"echo '{HELLO % 1}'", "gpus_missing", "a container of docker sees 1 of 2 GPUs (CDI)"),
    ("echo 'docker: Error response from daemon: broken.'; echo 'See docker run --help.'; exit 125", "no_container",
     "Error response from daemon: broken.")])
def test_the_specs_docker_does_not(tmp_path, does, code, text):
    result, _ = asked(tmp_path, '"/etc/cdi"', does=does)
    assert (result["verdict"], result["code"]) == ("fail", code) and text in result["message"], result


def test_the_specs_engine_gives_no_gpus_or_is_not_there(tmp_path):
    result, calls = asked(tmp_path, cdi=False)
    assert (result["verdict"], result["code"]) == ("fail", "no_cdi") and not any(c.startswith("run") for c in calls)
    (tmp_path / "second").mkdir()
    result, _, _ = container(tmp_path / "second", engine="podman")
    assert (result["verdict"], result["code"]) == ("fail", "no_engine"), result
    done = subprocess.run([agent_gpu.HOST_AGENT, "run", "--container-engine", "lxc"], capture_output=True, text=True)
    assert done.returncode == 3 and "'lxc' is not docker, podman or containerd" in done.stderr
