# SPDX-License-Identifier: Apache-2.0
"""gpuprov-agent's ranks on loopback, and the build with faults, in which every fault must be found and
the right rank named. The checks of one node: test_agent_node.py."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import secrets
import signal
import socket
import subprocess
import time

import pytest
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("B", ROOT / "build"))
AGENT = BUILD / "agent" / "gpuprov-agent"
FAULTS = BUILD / "tests" / "gpuprov-agent-faults"


@pytest.fixture(scope="module", autouse=True)
def needed():
    for path in (AGENT, FAULTS):
        assert path.exists(), f"{path} is not built: make agent agent-faults"


def agent(*args, program=AGENT, stdin="", env=None, timeout=300):
    own = {k: v for k, v in os.environ.items() if not k.startswith("GPUPROV_FAULT")}
    return subprocess.run([str(program), *map(str, args)], input=stdin, capture_output=True, text=True,
                          env={**own, **(env or {})}, timeout=timeout)


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


class Gang:
    """Ranks on loopback, driven as the controller does it: rank 0, its address, the others, follow."""

    def __init__(self, folder, size, program=AGENT, checks="net.pair,train.ddp", fault="", deadline="60s",
                 stall="20s", extra=(), others=True):
        self.folder, self.size, self.program, self.fault = folder, size, program, fault
        self.token = secrets.token_hex(32)
        self.args = ["--size", size, "--check", checks, "--deadline", deadline, "--stall", stall, *extra]
        self.pids = {}
        self.start(0, "")
        self.addr = wait_for(self.listens)
        for rank in range(1, size if others else 1):
            self.start(rank, self.addr)

    def listens(self):
        """Rank 0's address, once it has reported it."""
        lines, at = self.follow(0, 0, 1000)
        addr = next((l["addr"] for l in lines if l["type"] == "listen"), None)
        assert addr or at["alive"], self.raw(0)
        return addr

    def dir(self, rank):
        return self.folder / f"rank{rank}"

    def raw(self, rank):
        return (self.dir(rank) / "rank.jsonl").read_text()

    def start(self, rank, addr, token=None):
        got = agent("rank", "--dir", self.dir(rank), "--rank", rank, "--bind", "127.0.0.1", *self.args,
                    program=self.program, stdin=f"{token or self.token}\n{addr}\n",
                    env={"GPUPROV_FAULT": self.fault} if self.fault else None)
        assert got.returncode == 0, got.stderr
        self.pids[rank] = json.loads(got.stdout)["pid"]

    def follow(self, rank, offset, wait):
        got = agent("follow", "--dir", self.dir(rank), "--from", offset, "--wait", wait)
        assert got.returncode == 0, got.stderr
        lines = lines_of(got.stdout)
        assert lines[-1]["type"] == "at"
        return lines[:-1], lines[-1]

    def rank_lines(self, rank):
        offset, lines = 0, []
        while True:
            more, at = self.follow(rank, offset, 2000)
            lines += more
            offset = at["offset"]
            if not at["alive"]:
                return lines

    def results(self):
        """[{check: result}] per rank; each rank's last line is its end."""
        with concurrent.futures.ThreadPoolExecutor(self.size) as pool:
            every = list(pool.map(self.rank_lines, range(self.size)))
        for lines in every:
            assert lines[0]["type"] == "hello" and lines[-1]["type"] == "end", lines
        return [{l["check"]: l for l in lines if l["type"] == "result"} for lines in every]


def metrics(result):
    return {m["name"]: m["value"] for m in result["metrics"]}


def good(result):
    """Sound ranks that share two cores may be told slow, and nothing else."""
    return result["verdict"] == "pass" or result["code"] in ("slow_rank", "high_latency", "low_bandwidth")


# --- sound gangs ---

@pytest.mark.parametrize("size, seed", [(1, 1), (2, 1), (2, 7), (2, 123456789), (4, 3)])
def test_sound_ranks_pass(tmp_path, size, seed):
    checks = "train.ddp" if size == 1 else "net.pair,train.ddp"
    gang = Gang(tmp_path, size, checks=checks, extra=["--seed", seed])
    every = gang.results()
    hashes = set()
    for results in every:
        train = results["train.ddp"]
        assert good(train), train
        m = metrics(train)
        assert 1.38 < m["loss"] < 1.55 and m["agreement"] <= 1 and m["tokens_per_s"] > 0
        assert 0 < m["comm_share"] < 1 or size == 1
        curve = train["data"]["loss_curve"]
        assert 4.0 < curve[0] < 4.5 and min(curve) < 1.55
        assert 0 < train["data"]["first_step_below_target"] < 200
        hashes.add(train["data"]["parameters_hash"])
        if size > 1:
            assert good(results["net.pair"]), results["net.pair"]
            assert len(results["net.pair"]["data"]["pairs"]) == size * (size - 1) // 2
    assert len(hashes) == 1, "parameters differ between ranks"


def test_the_same_seed_gives_the_same_bits_again(tmp_path):
    hashes = set()
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        every = Gang(tmp_path / name, 2, checks="train.ddp", extra=["--steps", 20]).results()
        hashes |= {r["train.ddp"]["data"]["parameters_hash"] for r in every}
    assert len(hashes) == 1


@pytest.mark.long
def test_the_bits_depend_on_neither_compiler_flags_nor_the_cpu(tmp_path):
    """Optimised for any x86 or for this very CPU (with fused multiply-add), or not at all."""
    sources = subprocess.run(["make", "-s", "agent-sources"], cwd=ROOT, check=True, capture_output=True,
                             text=True).stdout.split()
    common = ["-std=c11", "-D_GNU_SOURCE", "-ffp-contract=off", "-fno-math-errno", "-I", ROOT / "core",
              "-I", ROOT, "-I", BUILD, '-DGP_VERSION="test"', *sources, "-lm"]

    def hash_of(name, flags):
        program = tmp_path / f"agent-{name}" if flags else AGENT
        if flags:
            subprocess.run(["cc", *flags, *common, "-o", program], check=True, cwd=ROOT)
        (tmp_path / name).mkdir()
        gang = Gang(tmp_path / name, 1, program=program, checks="train.ddp", extra=["--steps", 20])
        return gang.results()[0]["train.ddp"]["data"]["parameters_hash"]
    builds = {"O0": ["-O0"], "native": ["-O3", "-march=native"], "shipped": None}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        hashes = dict(zip(builds, pool.map(hash_of, builds, builds.values())))
    assert len(set(hashes.values())) == 1, hashes


def test_more_neighbours_than_pairs(tmp_path):
    """Above four ranks net.pair goes round the ring; an odd number closes it in a round of its own."""
    every = Gang(tmp_path, 5, checks="net.pair").results()
    data = every[2]["net.pair"]["data"]
    pairs = sorted(tuple(p["ranks"]) for p in data["pairs"])
    slowest = min(data["pairs"], key=lambda p: min(p["gb_per_s"]))["ranks"]
    assert data["note"] == "; slowest: ranks {} and {}".format(*slowest)  # part of a limit's message
    assert pairs == [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize("fault, again", [("pair-late", 1), ("pair-slow", 2)])
def test_a_pair_that_looks_slow_is_measured_again(tmp_path, fault, again):
    """One slow attempt says nothing about the network; a link that is slow each time is told."""
    result = Gang(tmp_path, 2, program=FAULTS, checks="net.pair", fault=f"{fault}:1:0").results()[0]["net.pair"]
    assert result["data"]["measured_again"] >= again
    if fault == "pair-late":
        assert good(result) and metrics(result)["bandwidth"] > 0.014, result
    else:
        assert result["code"] == "low_bandwidth" and 0 < metrics(result)["bandwidth"] < 0.014, result


def test_slow_pairs_are_not_measured_again_for_ever(tmp_path):
    """Three of six pairs are slow: twice more for each would be six, and far beyond the check's seconds."""
    result = Gang(tmp_path, 4, program=FAULTS, checks="net.pair", fault="pair-slow:1:0").results()[0]["net.pair"]
    assert result["code"] == "low_bandwidth" and result["data"]["measured_again"] < 6, result


def test_too_little_training_is_a_failure(tmp_path):
    """The loss limit can fail: 20 steps do not learn the source."""
    result = Gang(tmp_path, 1, checks="train.ddp", extra=["--steps", 20]).results()[0]["train.ddp"]
    assert result["verdict"] == "fail" and result["code"] == "high_loss"


# --- faults ---

@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize("size, fault, rank, code", [
    (1, "nan", 0, "bad_gradient"),
    (2, "flip", 1, "wrong_gradient"),
    (2, "flip", 0, "wrong_gradient"),
    (4, "flip", 2, "wrong_gradient"),
    (3, "flip", 0, "wrong_gradient"),
    (2, "nan", 0, "bad_gradient"),
    (4, "nan", 3, "bad_gradient"),
    (2, "zero", 1, "bad_gradient"),
    (2, "tokens", 1, "bad_gradient"),
    (2, "param", 0, "parameters_differ"),
    (4, "param", 3, "parameters_differ"),
    (2, "reduce", 1, "wrong_sum"),
    (4, "reduce", 2, "wrong_sum"),
    (2, "deliver", 0, "wrong_sum"),
    (4, "deliver", 3, "wrong_sum"),
])
def test_a_rank_that_computes_wrong_is_named(tmp_path, size, fault, rank, code):
    step = 0 if fault in ("reduce", "deliver") else 13
    gang = Gang(tmp_path, size, program=FAULTS, checks="train.ddp", fault=f"{fault}:{rank}:{step}")
    for results in gang.results():
        train = results["train.ddp"]
        assert train["verdict"] == "fail" and train["code"] == code, train
        assert train["data"]["culprits"] == [rank], train
        assert f"rank {rank}" in train["message"], train


@pytest.mark.parametrize("size", [2, 4])
def test_a_sum_that_is_wrong_for_all_is_found(tmp_path, size):
    """All ranks share it, so their parameters stay equal: only the totals tell."""
    every = Gang(tmp_path, size, program=FAULTS, checks="train.ddp", fault="sum:1:21").results()
    assert {r["train.ddp"]["code"] for r in every} == {"wrong_sum"}


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_rounding_condemns_nobody_on_another_device(tmp_path, size):
    """One rank's arithmetic rounds otherwise: its bits differ all the time, and that is no fault."""
    every = Gang(tmp_path, size, program=FAULTS, checks="train.ddp", fault=f"other-ulp:{size - 1}:0").results()
    for results in every:
        train = results["train.ddp"]
        assert good(train), train
        assert "culprits" not in train["data"] or train["code"] == "slow_rank", train
        assert train["data"]["device"] == "other"
        assert train["data"]["differences_of_rounding"] > 0 or size == 1
        assert metrics(train)["agreement"] <= 1


@pytest.mark.parametrize("size, rank", [(2, 0), (2, 1), (3, 1)])
def test_more_than_rounding_condemns_on_another_device(tmp_path, size, rank):
    every = Gang(tmp_path, size, program=FAULTS, checks="train.ddp", fault=f"other-far:{rank}:13").results()
    for results in every:
        train = results["train.ddp"]
        assert train["verdict"] == "fail" and train["code"] == "wrong_gradient", train
        assert train["data"]["culprits"] == [rank], train
        assert "than rounding" in train["message"]


@pytest.mark.long
def test_where_it_was_computed_is_said(tmp_path):
    """These checks use no GPU, and nobody may take them for a proof of one."""
    every = Gang(tmp_path, 2, checks="net.pair,train.ddp", extra=["--steps", 20]).results()
    for results in every:
        assert results["train.ddp"]["data"]["device"] == results["net.pair"]["data"]["device"] == "host"
        if results["net.pair"]["verdict"] == "pass":
            assert "no GPU took part" in results["net.pair"]["message"]
    (tmp_path / "one").mkdir()
    train = Gang(tmp_path / "one", 1, checks="train.ddp").results()[0]["train.ddp"]
    assert "no GPU took part" in train["message"]


def test_a_sum_whose_errors_cancel_is_found_by_one_ranks_replay(tmp_path):
    every = Gang(tmp_path, 2, program=FAULTS, checks="train.ddp", fault="pair:1:3").results()
    assert {r["train.ddp"]["code"] for r in every} == {"sum_disagrees"}
    assert all("of the bound" in r["train.ddp"]["message"] for r in every)


def test_a_rank_that_dies_is_named_by_the_others(tmp_path):
    every = Gang(tmp_path, 4, program=FAULTS, checks="train.ddp", fault="die:1:30").results()
    assert every[1]["train.ddp"]["verdict"] == "error"
    for rank in (0, 2, 3):
        train = every[rank]["train.ddp"]
        assert train["verdict"] == "fail" and train["code"] == "rank_lost"
        assert train["data"]["culprits"] == [1]


def test_a_rank_that_hangs_is_named_by_the_others(tmp_path):
    every = Gang(tmp_path, 3, program=FAULTS, checks="train.ddp", fault="hang:2:12", stall="3s",
                 deadline="25s").results()
    for rank in (0, 1):
        train = every[rank]["train.ddp"]
        assert train["code"] == "rank_lost" and train["data"]["culprits"] == [2], train
    assert every[2]["train.ddp"]["verdict"] == "fail"
    assert "deadline" in every[2]["train.ddp"]["message"]


def test_a_stopped_rank_is_named_by_the_others(tmp_path):
    """SIGSTOP: the connection stays, nothing answers. No fault build is needed."""
    gang = Gang(tmp_path, 3, checks="train.ddp", stall="3s", deadline="20s", extra=["--steps", 100000])
    wait_for(lambda: "train.ddp" in gang.raw(1))
    worker = int(subprocess.run(["ps", "-o", "pid=", "--ppid", str(gang.pids[1])], capture_output=True,
                                text=True).stdout.split()[0])
    os.kill(worker, signal.SIGSTOP)
    every = gang.results()
    for rank in (0, 2):
        assert every[rank]["train.ddp"]["data"]["culprits"] == [1], every[rank]
        assert "has not answered for" in every[rank]["train.ddp"]["message"], every[rank]
        assert every[rank]["train.ddp"]["message"].count("rank") == 1, every[rank]  # no chain of who told whom
    assert "killed" in every[1]["train.ddp"]["message"]


def test_a_rank_that_stops_while_the_others_meet_is_the_only_suspect(tmp_path):
    """Its kernel takes connections for it, so that no connection fails. The rank that waits in such a connection is
    silent too, and sound."""
    gang = Gang(tmp_path, 3, checks="train.ddp", deadline="16s", others=False)
    gang.start(1, gang.addr)
    wait_for(lambda: established(gang.addr), 20)  # rank 0 knows its address
    worker = worker_of(gang.pids[1])
    os.kill(worker, signal.SIGSTOP)
    gang.start(2, gang.addr)
    every = gang.results()
    for rank in (0, 2):
        train = every[rank]["train.ddp"]
        assert train["verdict"] == "error" and train["data"]["culprits"] == [1], train
        assert "rank 1" in train["message"] and "token" not in train["message"], train


@pytest.mark.long
def test_a_crowd_that_needs_longer_blames_the_machine(tmp_path):
    """More than two ranks per core, and not enough time: an error, and nobody is named."""
    ranks = 2 * len(os.sched_getaffinity(0)) + 1
    every = Gang(tmp_path, ranks, checks="train.ddp", deadline="8s", extra=["--steps", 100000]).results()
    for results in every:
        train = results["train.ddp"]
        assert train["verdict"] == "error" and "this machine is too busy" in train["message"], train
        assert f"{ranks} ranks" in train["message"] and "culprits" not in train["data"], train


def test_a_stop_in_net_pair_changes_no_verdict(tmp_path):
    """Two seconds within a measurement are a pause, not the rate of the network."""
    for n in range(10):
        folder = tmp_path / str(n)
        folder.mkdir()
        gang = Gang(folder, 2, checks="net.pair")
        worker = wait_for(lambda gang=gang: worker_of(gang.pids[1]))
        try:
            os.kill(worker, signal.SIGSTOP)
            break
        except ProcessLookupError:  # it has ended before this process was given a core
            gang.results()
    time.sleep(0.7)
    os.kill(worker, signal.SIGCONT)
    with contextlib.suppress(ProcessLookupError):  # it has ended
        for _ in range(2):
            time.sleep(0.05)
            os.kill(worker, signal.SIGSTOP)
            time.sleep(0.7)
            os.kill(worker, signal.SIGCONT)
    for results in gang.results():
        assert results["net.pair"]["verdict"] != "fail", results


def worker_of(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    return int(listed[0]) if listed else None


def test_a_slow_rank_is_named_and_degraded(tmp_path):
    every = Gang(tmp_path, 2, program=FAULTS, checks="train.ddp", fault="slow:1:0",
                 extra=["--steps", 60]).results()
    for results in every:
        train = results["train.ddp"]
        assert train["data"]["slowest_rank"] == 1
        assert metrics(train)["straggler"] > 1.2  # how much more depends on who else computes
        if train["verdict"] == "degraded":
            assert train["data"]["culprits"] == [1]


def test_bytes_that_change_on_the_way_are_found(tmp_path):
    every = Gang(tmp_path, 3, program=FAULTS, checks="net.pair", fault="wire:2:0").results()
    for results in every:
        pair = results["net.pair"]
        assert pair["verdict"] == "fail" and pair["code"] == "wrong_data"
        assert pair["data"]["culprits"] == [2]


# --- who may take part, and how it ends ---

def test_a_wrong_token_is_refused_and_the_missing_rank_named(tmp_path):
    gang = Gang(tmp_path, 2, checks="train.ddp", deadline="15s", others=False)
    gang.start(1, gang.addr, token=secrets.token_hex(32))
    every = gang.results()
    assert every[1]["train.ddp"]["verdict"] == "error" and "token" in every[1]["train.ddp"]["message"]
    assert every[0]["train.ddp"]["data"]["culprits"] == [1]
    assert "did not connect" in every[0]["train.ddp"]["message"]
    assert "refused" in every[0]["train.ddp"]["message"]


@pytest.mark.long
def test_many_ranks_that_come_at_once_are_all_let_in(tmp_path):
    """More than the door has places for strangers; none of them may be taken for one."""
    gang = Gang(tmp_path, 40, checks="net.pair", others=False)
    with concurrent.futures.ThreadPoolExecutor(39) as pool:
        list(pool.map(lambda rank: gang.start(rank, gang.addr), range(1, 40)))
    for results in gang.results():
        assert good(results["net.pair"]), results
        assert results["net.pair"]["data"]["pairs_measured"] == 40


def test_a_rank_that_comes_twice_is_one(tmp_path):
    """The second one knows the token and is refused all the same; the gang goes on with the first."""
    gang = Gang(tmp_path, 3, checks="train.ddp", others=False, deadline="30s")
    gang.start(1, gang.addr)
    wait_for(lambda: established(gang.addr), 20)  # rank 0 has let the first one in
    again = agent("rank", "--dir", tmp_path / "again", "--rank", 1, "--bind", "127.0.0.1", *gang.args,
                  stdin=f"{gang.token}\n{gang.addr}\n")
    assert again.returncode == 0, again.stderr
    path = tmp_path / "again" / "rank.jsonl"
    wait_for(lambda: '"end"' in path.read_text(), 120)
    second = {l["check"]: l for l in lines_of(path.read_text()) if l["type"] == "result"}
    assert second["train.ddp"]["verdict"] == "error", second
    gang.start(2, gang.addr)
    for results in gang.results():
        assert good(results["train.ddp"]), results


def established(addr):
    """Connections to a listener on loopback whose two sides are there."""
    host, port = addr.rsplit(":", 1)
    want = f"{int.from_bytes(socket.inet_aton(host), 'little'):08X}:{int(port):04X}"
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row for row in rows if row[1] == want and row[3] == "01"]


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("seed", range(6))
def test_a_rank_that_is_killed_at_any_moment_never_passes(tmp_path, seed):
    """Its watcher or its worker, killed or stopped, at a moment of no choice: a rank that did not end by
    itself says no pass with an end, and all others end by their deadline and say what they saw."""
    rnd = random.Random(seed)
    gang = Gang(tmp_path, 3, checks="net.pair,train.ddp", deadline="12s", stall="1s", extra=["--steps", 20])
    victim, sig = rnd.randrange(3), rnd.choice([signal.SIGKILL, signal.SIGSTOP])
    worker, after = rnd.random() < 0.5, rnd.uniform(0, 1.2)
    time.sleep(after)
    pids = [gang.pids[victim]]
    if worker:
        listed = pathlib.Path(f"/proc/{pids[0]}/task/{pids[0]}/children")
        pids = [int(p) for p in listed.read_text().split()] if listed.exists() else []
    before = gang.raw(victim)
    for pid in pids:
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            pids = []
    over = '"end"' in before or not pids  # it was faster than the signal
    told = [gang.rank_lines(r) for r in range(3) if r != victim]
    if sig == signal.SIGSTOP and not worker:
        assert agent("stop", "--dir", gang.dir(victim)).returncode == 0  # as the controller does
    told.append(gang.rank_lines(victim))
    for lines in told[:2]:
        assert lines[-1]["type"] == "end", lines
        assert {l["check"] for l in lines if l["type"] == "result"} == {"net.pair", "train.ddp"}
    if over:
        return
    ended = told[2][-1]["type"] == "end" and "reason" not in told[2][-1]
    trained = [l for l in told[2] if l["type"] == "result" and l["check"] == "train.ddp"]
    # 20 steps learn too little: "high_loss" is what a rank says that came through to the end
    whole = bool(ended and trained and trained[0]["code"] in ("high_loss", "slow_rank"))
    if whole and worker:  # it had sent its last result already
        assert told[2][-1]["verdict"] == "fail"
    assert not whole or worker, told[2]


def test_strangers_at_the_door_do_no_harm(tmp_path):
    """Port scans, silence and garbage while the ranks meet: they meet all the same."""
    gang = Gang(tmp_path, 2, checks="net.pair", deadline="30s", others=False)
    host, port = gang.addr.rsplit(":", 1)
    strangers = [socket.create_connection((host, int(port))) for _ in range(80)]
    for i, s in enumerate(strangers):
        if i % 3 == 0:
            s.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(200))
        elif i % 3 == 1:
            s.close()
    gang.start(1, gang.addr)
    for results in gang.results():
        assert good(results["net.pair"]), results
    for s in strangers:
        s.close()


@pytest.mark.parametrize("bind, rendezvous, text", [
    ("8.8.8.8", "", "not a private address"),
    ("127.0.0.1", "8.8.8.8:4000", "not a private address"),
])
def test_only_private_addresses(tmp_path, bind, rendezvous, text):
    rank = 1 if rendezvous else 0
    got = agent("rank", "--dir", tmp_path / "r", "--rank", rank, "--size", 2, "--bind", bind, "--check",
                "train.ddp", "--deadline", "5s", stdin=f"{secrets.token_hex(32)}\n{rendezvous}\n")
    assert got.returncode == 0, got.stderr
    wait_for(lambda: '"end"' in (tmp_path / "r/rank.jsonl").read_text())
    assert text in (tmp_path / "r/rank.jsonl").read_text()


@pytest.mark.parametrize("stdin, text", [
    ("", "token"), ("xyz\n\n", "token"), ("ab" * 4 + "\n\n", "token"),
    ("ab" * 32 + "\n127.0.0.1:1\n", "rank 0 takes no address"),
])
def test_bad_stdin_is_refused_before_anything_starts(tmp_path, stdin, text):
    got = agent("rank", "--dir", tmp_path / "r", "--rank", 0, "--size", 2, "--bind", "127.0.0.1",
                "--check", "train.ddp", stdin=stdin)
    assert got.returncode == 3 and text in got.stderr
    assert not (tmp_path / "r").exists()


def test_the_token_is_nowhere_to_be_read(tmp_path):
    gang = Gang(tmp_path, 2, checks="train.ddp")
    for pid in gang.pids.values():
        for name in ("cmdline", "environ"):
            assert gang.token not in pathlib.Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    gang.results()
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or gang.token not in path.read_text(errors="replace")


def test_stop_ends_all_of_a_rank_and_may_come_twice(tmp_path):
    gang = Gang(tmp_path, 1, checks="train.ddp", extra=["--steps", 100000])
    pid = gang.pids[0]
    got = agent("stop", "--dir", gang.dir(0))
    said = json.loads(got.stdout)
    assert got.returncode == 0 and said["killed"] >= 1 and said["left"] == 0
    alive = subprocess.run(["ps", "-o", "stat=", "-s", str(pid)], capture_output=True, text=True).stdout
    assert all(s.startswith("Z") for s in alive.split())
    assert json.loads(agent("stop", "--dir", gang.dir(0)).stdout)["killed"] == 0
    lines, at = gang.follow(0, 0, 5000)
    assert at["alive"] is False and lines[-1]["type"] != "end"


def test_a_second_rank_in_the_same_folder_is_refused(tmp_path):
    gang = Gang(tmp_path, 1, checks="train.ddp", extra=["--steps", 100000])
    got = agent("rank", "--dir", gang.dir(0), "--rank", 0, "--size", 1, "--bind", "127.0.0.1", "--check",
                "train.ddp", stdin=f"{gang.token}\n\n")
    assert got.returncode == 3 and "still running" in got.stderr
    agent("stop", "--dir", gang.dir(0))


def test_the_deadline_leaves_a_result_and_an_end(tmp_path):
    every = Gang(tmp_path, 2, checks="train.ddp", deadline="8s", extra=["--steps", 100000]).results()
    for results in every:
        assert results["train.ddp"]["verdict"] == "error", results  # no proof against a rank
        assert results["train.ddp"]["code"] == "no_time", results
