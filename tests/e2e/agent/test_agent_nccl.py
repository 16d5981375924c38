# SPDX-License-Identifier: Apache-2.0
"""nccl.values and nccl.bandwidth: ranks of gpuprov-agent-cuda, one per stand-in GPU, over a stand-in NCCL
between processes. Each way to fail, what is said of it and who is named; and sound gangs that pass."""
import json
import os
import pathlib
import secrets
import subprocess
import time

import pytest

from agent_gpu import AGENT, STANDIN, needed  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("needed")


class Ranks:
    """Ranks of a gang, as the controller drives them: nodes is how many GPUs each node has. standin, nccl: knobs
    of the stand-ins; env: more, per node."""

    def __init__(self, folder, nodes, checks="nccl.values", standin="", nccl="", libraries=STANDIN, env=(),
                 deadline="100s", stall="4s", more=()):
        self.folder, self.nodes, self.size = folder, nodes, sum(nodes)
        self.base = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "CUDA_VISIBLE", "LD_LIBRARY"))}
        self.base.update({"GPUPROV_STANDIN": f"gpus={max(nodes)},{standin}", "GPUPROV_STANDIN_NCCL": nccl,
                          "GPUPROV_STANDIN_NVML": f"gpus={max(nodes)}", "GPUPROV_LIBRARY_PATH": str(libraries),
                          "HOME": str(folder), "GPUPROV_SYSFS": str(folder / "sys")})
        self.env = env
        self.args = ["--size", str(self.size), "--bind", "127.0.0.1", "--check", checks, "--deadline", deadline,
                     "--stall", stall, *more]
        self.token = secrets.token_hex(32)
        self.lines = [[] for _ in nodes]

    def agent(self, node, *args, stdin=""):
        own = dict(self.base, **(self.env[node] if node < len(self.env) else {}))
        done = subprocess.run([str(AGENT), *map(str, args)], input=stdin, env=own, capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == 0, done
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, node, addr):
        first = sum(self.nodes[:node])
        self.agent(node, "rank", "--dir", self.folder / f"node{node}", "--rank", first, "--ranks",
                   self.nodes[node], "--gpu", 0, *self.args, stdin=f"{self.token}\n{addr}\n")

    def follow(self, node, offset, until):
        lines = self.agent(node, "follow", "--dir", self.folder / f"node{node}", "--from", offset, "--wait", 2000)
        self.lines[node] += lines[:-1]
        done = until(self.lines[node])
        assert done or lines[-1]["alive"], self.lines[node]
        return lines[-1]["offset"], done

    def results(self):
        """[{check: result}] by rank, and the ends."""
        offsets, waiting = [0] * len(self.nodes), set(range(len(self.nodes)))
        self.start(0, "")
        limit = time.monotonic() + 150
        try:
            if len(self.nodes) > 1:
                done = False
                while not done:
                    offsets[0], done = self.follow(0, offsets[0], lambda ls: any(l["type"] == "listen" for l in ls))
                addr = next(l["addr"] for l in self.lines[0] if l["type"] == "listen")
                for node in range(1, len(self.nodes)):
                    self.start(node, addr)
            while waiting:
                assert time.monotonic() < limit, self.lines
                for node in sorted(waiting):
                    offsets[node], done = self.follow(
                        node, offsets[node],
                        lambda ls, n=node: sum(l["type"] == "end" for l in ls) == self.nodes[n])
                    waiting -= {node} if done else set()
        finally:
            for node in range(len(self.nodes)):
                if (self.folder / f"node{node}").exists():
                    self.agent(node, "stop", "--dir", self.folder / f"node{node}")
        every, self.ends = [{} for _ in range(self.size)], [None] * self.size
        for line in (l for lines in self.lines for l in lines):
            rank = line.get("rank", 0)
            if line["type"] == "result":
                every[rank][line["check"]] = line
            if line["type"] == "end":
                self.ends[rank] = line
        return every


def figures(result):
    return {m["name"]: m["value"] for m in result["metrics"]}


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_sound_gangs_pass(tmp_path, size):
    gang = Ranks(tmp_path, [size], checks="nccl.values,nccl.bandwidth")
    every = gang.results()
    for rank in every:
        values, speed = rank["nccl.values"], rank["nccl.bandwidth"]
        assert (values["verdict"], speed["verdict"]) == ("pass", "pass"), rank
        assert figures(values)["wrong"] == 0 and values["data"]["version"] == "2.28.9"
        ops = {(s["op"], s["type"]) for s in values["data"]["sizes"]}
        assert len(ops) == 20 and ("all_to_all", "bfloat16") in ops
        curve = [s for s in speed["data"]["sizes"] if s["op"] == "all_reduce"]
        assert [s["bytes"] for s in curve[:3]] == [8, 32, 128] and curve[-1]["bytes"] == speed["data"]["bytes"]
        for s in speed["data"]["sizes"]:  # nccl-tests' formulas
            factor = {"all_reduce": 2 * (size - 1) / size, "broadcast": 1}.get(s["op"], (size - 1) / size)
            assert s["algbw"] == pytest.approx(s["bytes"] / s["time_us"] / 1e3, rel=1e-4)
            assert s["busbw"] == pytest.approx(s["algbw"] * factor, rel=1e-4)
        assert figures(speed)["busbw"] == pytest.approx(curve[-1]["busbw"], rel=1e-5)
        assert speed["data"]["transport"].startswith("P2P (NVLink)")
        assert ("NVLS" in speed["data"]["transport"]) == (size >= 5) == speed["data"]["nvls"]
    assert [e["verdict"] for e in gang.ends] == ["pass"] * size


def test_a_call_costs_the_host_no_thread(tmp_path):
    """NCCL starts a thread for each group of a non-blocking communicator; small sizes would measure that."""
    told = Ranks(tmp_path, [2], checks="nccl.bandwidth", nccl="thread_us=5000").results()[0]["nccl.bandwidth"]
    assert told["verdict"] == "pass", told
    assert min(s["host_us"] for s in told["data"]["sizes"]) < 1000


@pytest.mark.parametrize("late", [1000, 2500])
def test_a_split_that_nccl_finishes_later_writes_to_memory_that_is_still_there(tmp_path, late):
    """Also after this side gave up: then the groups meet by an id instead."""
    gang = Ranks(tmp_path, [4], checks="nccl.values,train.ddp", nccl=f"rank=2,sums=1,bit=20,late={late}", stall="2s",
                 more=["--steps", "20"])
    for told in gang.results():
        assert (told["nccl.values"]["verdict"], told["nccl.values"]["code"]) == ("fail", "wrong_values"), told
        assert late > 2000 or told["nccl.values"]["data"]["culprits"] == [2], told
    assert not any("SIG" in e.get("reason", "") for e in gang.ends), gang.ends


def test_two_nodes_over_infiniband(tmp_path):
    hosts = [{"NCCL_HOSTID": "a"}, {"NCCL_HOSTID": "b"}]
    every = Ranks(tmp_path, [2, 2], checks="net.pair,nccl.values,nccl.bandwidth", env=hosts).results()
    for rank in every:
        assert rank["nccl.values"]["verdict"] == rank["nccl.bandwidth"]["verdict"] == "pass", rank
        assert "NET/IB" in rank["nccl.bandwidth"]["data"]["transport"]
        assert rank["net.pair"]["data"]["pairs_measured"] == 1  # between nodes only
    assert "NCCL_HOSTID=a" in every[0]["nccl.bandwidth"]["data"]["overrides"]  # what is set is said


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("size, rank, fault", [
    (2, 1, "bit=20"), (4, 2, "bit=20"), (4, 0, "sign=1"), (2, 0, "sign=1"), (8, 5, "nan=1"), (3, 1, "bit=9")])
def test_a_rank_that_sends_wrong_values_is_named(tmp_path, size, rank, fault):
    for told in Ranks(tmp_path, [size], nccl=f"rank={rank},{fault}").results():
        values = told["nccl.values"]
        assert (values["verdict"], values["code"]) == ("fail", "wrong_values"), values
        assert values["data"]["culprits"] == [rank] and f"rank {rank} (" in values["message"]
        assert f"gpu {rank})" in values["message"] and "all_reduce of float" in values["message"]
        assert figures(values)["wrong"] > 0
        by_op = {(s["op"], s["type"]): s["wrong"] for s in values["data"]["sizes"]}
        assert by_op["all_reduce", "float"] > 0 and by_op["all_gather", "int32"] > 0


@pytest.mark.parametrize("size, rank, fault", [(3, 2, "bit=20"), (4, 1, "sign=1"), (8, 6, "bit=20"), (4, 3, "nan=1")])
def test_wrong_sums_are_searched_for_by_halves(tmp_path, size, rank, fault):
    """Nobody's data are wrong on their way: only groups with and without the rank tell."""
    for told in Ranks(tmp_path, [size], nccl=f"rank={rank},sums=1,{fault}").results():
        values = told["nccl.values"]
        assert (values["verdict"], values["data"]["culprits"]) == ("fail", [rank]), values
        assert 1 <= values["data"]["rounds"] <= 6


def test_two_ranks_with_wrong_sums_cannot_be_told_apart(tmp_path):
    for told in Ranks(tmp_path, [2], nccl="rank=1,sums=1,sign=1").results():
        assert told["nccl.values"]["verdict"] == "fail" and "culprits" not in told["nccl.values"]["data"]
        assert "cannot be distinguished" in told["nccl.values"]["message"]


def test_two_wrong_ranks_of_three(tmp_path):
    """Every pair is bad, so no pair tells who is; it is not a fault of larger groups only."""
    env = [{"NCCL_HOSTID": str(k), "GPUPROV_STANDIN_NCCL": f"rank={k},bit=20,sums=1"} for k in (0, 1)]
    for told in Ranks(tmp_path, [1, 2], env=env).results():
        values = told["nccl.values"]
        assert values["verdict"] == "fail" and "at least two of the three ranks" in values["message"], values


def test_one_wrong_element_late_in_the_sweep_is_found(tmp_path):
    told = Ranks(tmp_path, [4], nccl="rank=3,from=100,bit=12").results()[0]["nccl.values"]
    assert (told["verdict"], told["data"]["culprits"]) == ("fail", [3])


# --- what does not end ---

def test_a_gpu_that_never_comes_to_a_collective_is_named(tmp_path):
    for told in Ranks(tmp_path, [4], nccl="hang=2", stall="6s").results():
        values = told["nccl.values"]
        assert (values["verdict"], values["data"].get("culprits")) == ("fail", [2]), values
        assert "did not end before its deadline" in values["message"]


@pytest.mark.long
def test_a_stuck_gpu_is_named_in_the_time_that_the_gang_has_left(tmp_path):
    """The search lasts as long as its rounds need, not as long as the check of a sound gang; where the gang's
    deadline is near, each round waits for a shorter time."""
    for told in Ranks(tmp_path, [4], nccl="hang=2", stall="20s", deadline="70s").results():
        values = told["nccl.values"]
        assert (values["verdict"], values["data"].get("culprits")) == ("fail", [2]), values


@pytest.mark.long
def test_a_search_that_the_deadline_cuts_short(tmp_path):
    """It ends before the gang does, and its reason is the time, not the connections."""
    for told in Ranks(tmp_path, [4], nccl="hang=2", stall="20s", deadline="30s").results():
        values = told["nccl.values"]
        assert values["verdict"] == "fail" and "the time was over" in values["message"], values


@pytest.mark.long
def test_a_rank_that_does_not_come_to_nccls_start_is_named(tmp_path):
    for told in Ranks(tmp_path, [4], nccl="init_hang=1", stall="4s").results():
        values = told["nccl.values"]
        assert (values["verdict"], values["code"], values["data"]["culprits"]) == ("fail", "nccl_start", [1]), values


def test_a_rank_that_hangs_in_a_call_is_named_by_the_others(tmp_path):
    every = Ranks(tmp_path, [3], nccl="block=1,block_from=7", stall="4s", deadline="40s").results()
    for rank in (0, 2):
        assert every[rank]["nccl.values"]["data"]["culprits"] == [1], every[rank]
    assert every[1]["nccl.values"]["verdict"] == "fail"


def test_a_rank_that_dies_is_named_by_the_others(tmp_path):
    gang = Ranks(tmp_path, [4], nccl="die=2,die_from=9")
    every = gang.results()
    for rank in (0, 1, 3):
        assert every[rank]["nccl.values"]["data"]["culprits"] == [2], every[rank]
    assert every[2]["nccl.values"]["verdict"] == "error" and "SIGKILL" in gang.ends[2]["reason"]


def test_a_gpu_that_falls_off_the_bus_is_named(tmp_path):
    for told in Ranks(tmp_path, [4], standin="gpu=1,lost_after=90").results():
        values = told["nccl.values"]
        assert values["verdict"] == "fail" and values["data"]["culprits"] == [1], values


def test_an_error_of_nccl_itself_is_told_with_its_words(tmp_path):
    every = Ranks(tmp_path, [3], nccl="async_rank=1,async=2,from=4").results()
    for told in every:
        assert told["nccl.values"]["verdict"] == "fail" and told["nccl.values"]["data"]["culprits"] == [1], told
    assert "unhandled system error" in every[0]["nccl.values"]["message"]


@pytest.mark.long
def test_an_error_at_nccls_start_is_told_with_its_words(tmp_path):
    for told in Ranks(tmp_path, [3], nccl="init_error=3,init_rank=2", stall="4s").results():
        values = told["nccl.values"]
        assert (values["code"], values["data"]["culprits"]) == ("nccl_start", [2]), values
        assert "internal error" in values["message"]


def test_a_gpu_that_does_not_open_is_named(tmp_path):
    for told in Ranks(tmp_path, [2], standin="gpu=1,context=46").results():
        values = told["nccl.values"]
        assert values["verdict"] == "fail" and values["data"]["culprits"] == [1] and "(46)" in values["message"]


# --- what is missing is an error, not a fault, and never a pass ---

@pytest.mark.parametrize("nccl, says", [("version=21700", "install 2.18.0 or newer"),
                                        ("version=30100", "a major version unknown to this gpuprov")])
def test_a_version_that_is_not_known(tmp_path, nccl, says):
    gang = Ranks(tmp_path, [2], nccl=nccl)
    for told in gang.results():
        assert (told["nccl.values"]["verdict"], told["nccl.values"]["code"]) == ("error", "no_nccl")
        assert says in told["nccl.values"]["message"]
    assert gang.ends[0]["verdict"] == "error"


def test_an_old_and_a_new_version_work(tmp_path):
    """A smaller config is laid out for all of them."""
    for version in ("21801", "22304", "23007"):
        folder = tmp_path / version
        folder.mkdir()
        assert all(r["nccl.values"]["verdict"] == "pass"
                   for r in Ranks(folder, [2], nccl=f"version={version}").results())


def test_versions_that_differ_are_told(tmp_path):
    env = [{"GPUPROV_STANDIN_RANK": "0", "NCCL_HOSTID": "a"}, {"GPUPROV_STANDIN_RANK": "1", "NCCL_HOSTID": "b"}]
    for told in Ranks(tmp_path, [1, 1], nccl="peer=1,peer_version=22703", env=env).results():
        values = told["nccl.values"]
        assert (values["verdict"], values["code"]) == ("error", "no_nccl")
        assert "rank 0 has 2.28.9, rank 1 has 2.27.3" in values["message"]


def without_nccl(folder):
    """The other stand-ins, without NCCL."""
    place = folder / "lib"
    place.mkdir()
    for lib in STANDIN.glob("*.so*"):
        if "nccl" not in lib.name:
            (place / lib.name).symlink_to(lib)
    return place


def test_no_nccl_is_no_pass_of_gpu_training(tmp_path):
    """A library that cannot be used is as good as none; which of the two it was is in the message."""
    gang = Ranks(tmp_path, [2], checks="nccl.values,train.ddp", nccl="version=21700", more=["--steps", "40"],
                 stall="20s")
    for told in gang.results():
        assert (told["nccl.values"]["verdict"], told["nccl.values"]["code"]) == ("error", "no_nccl")
        assert "libnccl.so.2" in told["nccl.values"]["message"]
        assert told["train.ddp"]["verdict"] in ("error", "fail"), told["train.ddp"]
    assert all(e["verdict"] != "pass" for e in gang.ends)


def test_the_toolkits_nccl_without_a_driver(tmp_path):
    """The real library: it loads, and fails with the stand-in driver as with one that is too old for it: no node is to
    blame, and its words are passed on."""
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", *os.environ.get("CUDA_HOMES", "").split()]
    found = [p for h in homes if h for f in ("lib64", "lib", "targets/x86_64-linux/lib")
             for p in [pathlib.Path(h) / f / "libnccl.so.2"] if p.exists()]
    if not found:
        pytest.skip("no CUDA toolkit with NCCL is installed")
    place = without_nccl(tmp_path)
    (place / "libnccl.so.2").symlink_to(found[0])
    for told in Ranks(tmp_path, [2], libraries=place, stall="3s").results():
        values = told["nccl.values"]
        assert (values["verdict"], values["code"]) == ("error", "no_nccl"), values
        assert "CUDA" in values["message"], values


def test_two_ranks_on_one_gpu_are_refused_by_nccl_and_allowed_for_logic(tmp_path):
    hidden = [{"NCCL_HOSTID": "same"}, {"NCCL_HOSTID": "same"}]
    for told in Ranks(tmp_path, [1, 1], env=hidden, stall="4s").results():
        assert told["nccl.values"]["code"] == "nccl_start" and "uplicate GPU" in told["nccl.values"]["message"]
    folder = tmp_path / "logic"
    folder.mkdir()
    gang = Ranks(folder, [2], checks="nccl.values,nccl.bandwidth", more=["--same-gpu"])
    for told in gang.results():
        assert told["nccl.values"]["verdict"] == told["nccl.bandwidth"]["verdict"] == "pass", told
        assert told["nccl.bandwidth"]["data"]["logic_only"] and not told["nccl.bandwidth"]["data"]["rated"]
        assert "no bandwidth figure" in told["nccl.bandwidth"]["message"]


def test_one_gpu_has_nobody_to_talk_to(tmp_path):
    gang = Ranks(tmp_path, [1], checks="nccl.values,nccl.bandwidth")
    told = gang.results()[0]
    assert (told["nccl.values"]["verdict"], told["nccl.values"]["code"]) == ("skipped", "one_gpu")
    assert gang.ends[0]["verdict"] != "pass"  # a required check did not run: the gang was not told to leave it out


# --- rates ---

@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("size, rank", [(4, 2), (8, 7), (3, 0), (3, 1), (5, 3), (6, 0), (7, 6)])
def test_a_slow_rank_is_named_by_comparing(tmp_path, size, rank):
    for told in Ranks(tmp_path, [size], checks="nccl.bandwidth", nccl=f"rank={rank},slow=25").results():
        speed = told["nccl.bandwidth"]
        assert (speed["verdict"], speed["code"], speed["data"]["culprits"]) == ("degraded", "uneven", [rank]), speed


@pytest.mark.parametrize("size, a, b", [(4, 1, 2), (4, 0, 1), (8, 2, 7), (4, 0, 3)])
def test_a_slow_link_is_named(tmp_path, size, a, b):
    for told in Ranks(tmp_path, [size], checks="nccl.bandwidth", nccl=f"link_a={a},link_b={b},slow=25").results():
        speed = told["nccl.bandwidth"]
        assert speed["verdict"] == "degraded" and sorted(speed["data"]["link"]) == [a, b], speed
        assert "the link between" in speed["message"]


def test_a_slow_node_is_named(tmp_path):
    hosts = [{"NCCL_HOSTID": n} for n in "abcd"]
    for told in Ranks(tmp_path, [1, 1, 1, 1], checks="nccl.bandwidth", env=hosts, nccl="rank=2,slow=20").results():
        assert told["nccl.bandwidth"]["data"]["culprits"] == [2], told


@pytest.mark.long
@pytest.mark.parametrize("knobs, verdict", [("", "pass"), ("all=1,slow=50", "fail"), ("all=1,slow=85", "degraded")])
def test_all_gpus_of_a_node_are_held_to_the_model(tmp_path, knobs, verdict):
    gang = Ranks(tmp_path, [8], checks="nccl.bandwidth", standin="profile=a100,memory_mib=800", nccl=knobs)
    speed = gang.results()[0]["nccl.bandwidth"]
    assert speed["data"]["rated"] and speed["verdict"] == verdict, speed
    assert speed["data"]["measured_elsewhere"] == 171.54
    if verdict != "pass":
        assert speed["code"] == "low_busbw" and "culprits" not in speed["data"]


def test_a_slow_network_ends_the_curve_early(tmp_path):
    """A few KB/s between two nodes: sizes that would take minutes are left out, and nothing fails for it."""
    hosts = [{"NCCL_HOSTID": "a"}, {"NCCL_HOSTID": "b"}]
    gang = Ranks(tmp_path, [1, 1], checks="nccl.bandwidth", env=hosts, nccl="net=1,peak=1,half_mib=100000")
    speed = gang.results()[0]["nccl.bandwidth"]
    assert speed["verdict"] == "pass" and speed["data"]["bytes"] == 524288, speed
    assert max(s["bytes"] for s in speed["data"]["sizes"]) == 524288


def test_socket_fallback_is_told(tmp_path):
    """With an active port of InfiniBand or EFA it fails; without one it is only said."""
    hosts = [{"NCCL_HOSTID": "a"}, {"NCCL_HOSTID": "b"}]
    for port, verdict in (("4: ACTIVE", "fail"), ("1: DOWN", "pass")):
        folder = tmp_path / verdict
        state = folder / "sys/class/infiniband/mlx5_0/ports/1"
        state.mkdir(parents=True)
        (state / "state").write_text(port + "\n")
        for told in Ranks(folder, [1, 1], checks="nccl.bandwidth", env=hosts, nccl="net=1").results():
            speed = told["nccl.bandwidth"]
            assert speed["verdict"] == verdict and "NET/Socket" in speed["data"]["transport"], speed
            assert (speed["code"] == "socket_fallback") == (verdict == "fail")


def test_host_memory_instead_of_nvlink_is_told(tmp_path):
    told = Ranks(tmp_path, [2], checks="nccl.bandwidth", nccl="shm=1").results()[0]["nccl.bandwidth"]
    assert (told["verdict"], told["code"]) == ("fail", "no_p2p"), told
    (tmp_path / "t4").mkdir()
    told = Ranks(tmp_path / "t4", [2], checks="nccl.bandwidth", nccl="shm=1",
                 standin="profile=t4").results()[0]["nccl.bandwidth"]
    assert told["verdict"] == "pass" and told["data"]["transport"] == "SHM", told  # a T4 has nothing better


def test_overrides_are_said(tmp_path):
    (tmp_path / ".nccl.conf").write_text("# stale\nNCCL_P2P_LEVEL=LOC\n")
    told = Ranks(tmp_path, [2], checks="nccl.bandwidth", env=[{"NCCL_ALGO": "Ring"}]).results()[0]["nccl.bandwidth"]
    assert "NCCL_ALGO=Ring (environment)" in told["data"]["overrides"]
    assert "NCCL_P2P_LEVEL=LOC" in told["data"]["overrides"] and "stale" not in told["data"]["overrides"]


# --- without a controller ---

def run_alone(tmp_path, gpus, time_, nccl="", env=None, standin="", more=()):
    """`run` on a node of its own, which was not told which checks; what it said of the gang's."""
    import agent_gpu
    own = {"GPUPROV_STANDIN_NCCL": nccl, "HOME": str(tmp_path), "GPUPROV_STANDIN": f"gpus={gpus},{standin}",
           "GPUPROV_STANDIN_NVML": f"gpus={gpus}", "GPUPROV_LIBRARY_PATH": str(STANDIN), "SETUP": ":", "KMSG": "",
           **(env or {})}
    base = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "CUDA_VISIBLE"))}
    done = subprocess.run([*agent_gpu.namespace(), "sh", "-c", agent_gpu.NAMESPACE, "sh", str(gpus), str(AGENT), "run",
                           "--time", time_, "--gpus", str(gpus), *more], env={**base, **own}, capture_output=True,
                          text=True, timeout=500)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {l["check"]: l for l in lines if l["type"] == "result"}, lines[-1], done.returncode


NCCL = ["--checks", "host.clock,nccl.values,nccl.bandwidth", "--all"]


def test_a_node_by_itself_runs_the_gang_of_its_gpus(tmp_path):
    told, _, _ = run_alone(tmp_path, 4, "1m", more=NCCL)
    assert told["nccl.values"]["verdict"] == told["nccl.bandwidth"]["verdict"] == "pass", told
    assert "rank" not in told["nccl.values"] and figures(told["nccl.values"])["wrong"] == 0


@pytest.mark.long
def test_the_gangs_seconds_are_reserved_first(tmp_path):
    """A minute is the tightest: node checks are left out for the gang's, not the other way round."""
    told, _, _ = run_alone(tmp_path, 2, "1m", more=["--all"])
    for check in ("nccl.values", "nccl.bandwidth"):
        assert told[check]["verdict"] == "pass", told[check]
    assert told["train.ddp"]["verdict"] == "pass" or told["train.ddp"]["code"] == "slow_rank"  # they share two cores
    assert told["gpu.stress"]["code"] == "left_out"


def test_a_node_by_itself_names_the_gpu(tmp_path):
    told, end, status = run_alone(tmp_path, 3, "1m", nccl="rank=1,bit=20", more=NCCL)
    assert (told["nccl.values"]["verdict"], told["nccl.values"]["data"]["culprits"]) == ("fail", [1])
    assert "gpu 1)" in told["nccl.values"]["message"] and (end["verdict"], status) == ("fail", 2)


def test_a_local_rank_that_dies_is_no_pass(tmp_path):
    told, end, _ = run_alone(tmp_path, 3, "1m", nccl="die=1,die_from=5", more=NCCL)
    assert told["nccl.values"]["verdict"] == "fail" and told["nccl.values"]["data"]["culprits"] == [1]
    assert end["verdict"] == "fail" and "SIGKILL" in end["reason"]


def test_one_gpu_runs_the_logic_only_where_it_is_asked_for(tmp_path):
    told, _, status = run_alone(tmp_path, 1, "1m", more=NCCL)
    assert (told["nccl.values"]["verdict"], told["nccl.values"]["code"]) == ("skipped", "one_gpu") and status == 3
    told, _, _ = run_alone(tmp_path, 1, "1m", env={"GPUPROV_NCCL_SAME_GPU": "2"}, more=NCCL)
    assert told["nccl.bandwidth"]["verdict"] == "pass" and told["nccl.bandwidth"]["data"]["logic_only"]
    assert "no bandwidth figure" in told["nccl.bandwidth"]["message"]
