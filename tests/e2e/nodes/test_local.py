# SPDX-License-Identifier: Apache-2.0
"""The local provider end to end: a spec becomes proven nodes and goes back to nothing, whatever is
killed in between. Before and after are compared by the test itself."""
import contextlib
import datetime
import json
import os
import pathlib
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import Gpuprov
from small_disk import fill, small_disk
from snapshot import Snapshot, leftovers
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: {name}
nodes: {nodes}
offers: [{{provider: local}}]
limits: {{ttl: 20m}}
bootstrap:
  steps:
    - {{name: hello, run: "echo hello > /opt/hello", check: "test -s /opt/hello"}}
validate: {{time: 5m, require: [train.ddp]}}
"""


def stack_members(state):
    """Processes that live in a pid namespace whose holder is recorded below the state folder."""
    found = set()
    for record in (state / "local").glob("*/holder.json"):
        with contextlib.suppress(FileNotFoundError):  # it goes with its stack
            pid = json.loads(record.read_text()).get("pid")
            if pid and os.path.exists(f"/proc/{pid}"):
                found.add(pid)
    return found


def nothing_left(gpuprov, before, tmp_path):
    assert not list((gpuprov.state / "local").glob("*")) if (gpuprov.state / "local").is_dir() else True
    assert gpuprov.json("status")["stacks"] == []
    # the kernel reaps a namespace's last processes in its own time
    wait_for(lambda: not leftovers(before, Snapshot(tmp_path)))


def trained(check):
    """Sound nodes that share the cores of a busy machine may be told slow, and nothing else."""
    return check["verdict"] == "pass" or (check["verdict"], check["code"]) == ("degraded", "slow_rank")


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("nodes", [2, 4])
def test_spec_to_proven_nodes_and_back(gpuprov, spec, tmp_path, nodes):
    path = spec(SPEC.format(name="e2e", nodes=nodes))
    before = Snapshot(tmp_path)
    plan = gpuprov("plan", path, code=2)
    assert "shared" in plan.out or "share" in plan.out
    up = gpuprov.json("up", path, timeout=300)
    assert up["report"]["ready"] is True and up["stack"]["phase"] == "ready", "both say the same"
    assert [(n["phase"], n["ready"]) for n in up["stack"]["nodes"]] == [("ready", True)] * nodes
    for node in up["report"]["nodes"]:
        verdicts = {c["check"]: c["verdict"] for c in node["checks"]}
        assert trained(next(c for c in node["checks"] if c["check"] == "train.ddp")), node["checks"]
        assert verdicts["host.memory"] == "pass"
        assert verdicts["host.clock"] == "skipped", "its clock is the controller's"
    gang = {c["check"]: c for c in up["report"]["gang"]}
    assert trained(gang["train.ddp"]), gang["train.ddp"]
    metrics = {m["name"]: m["value"] for m in gang["train.ddp"]["metrics"]}
    assert metrics["loss"] < 1.55
    status = gpuprov.json("status", "e2e")["stacks"][0]
    assert status["phase"] == "ready"
    assert [n["phase"] for n in status["nodes"]] == ["ready"] * nodes
    assert status["ends"] == "server"
    # nothing the second time: no event but the listing, the same machines
    again = gpuprov.json("up", path)
    assert again["nothing_to_do"] is True
    assert [n["id"] for n in again["stack"]["nodes"]] == [n["id"] for n in status["nodes"]]
    gpuprov("plan", path, code=0)
    # the user's own ssh, and the nodes see each other by name
    out = gpuprov("ssh", "e2e/1", "--", "cat /opt/hello; ping -c1 -W2 e2e-0 >/dev/null && echo peer")
    assert out.out.split() == ["hello", "peer"]
    # each other's hardware address for good (0x6): of those that ARP learns, the kernel keeps 1,024 for all namespaces
    # together, too few for 33 nodes that all meet each other
    arp = [line.split() for line in gpuprov("ssh", "e2e/0", "--", "cat /proc/net/arp").out.splitlines()]
    peers = {row[0]: row[2] for row in arp[1:] if row[0] != "10.91.0.1"}
    assert peers == {f"10.91.0.{k + 2}": "0x6" for k in range(1, nodes)}, arp
    validated = gpuprov.json("validate", "e2e", timeout=300)
    assert validated["ready"] is True and validated["run"] != up["report"]["run"]
    assert gpuprov.json("report", "e2e")["run"] == validated["run"]
    assert "train.ddp" in gpuprov("logs", "e2e").out
    gpuprov("down", "e2e")
    nothing_left(gpuprov, before, tmp_path)
    # again: its end was seen here, so clouds without credentials are no gap; of another name none was asked
    no_cloud = {"AWS_EC2_METADATA_DISABLED": "true"}
    assert "nothing was found" in gpuprov("down", path).out
    assert "nothing was found" in gpuprov("down", "e2e", env=no_cloud).out
    assert "'e2e' is gone: " in gpuprov("validate", "e2e", code=1, env=no_cloud).err
    assert "nothing was found" not in gpuprov("down", "other", code=8, env=no_cloud).out
    log = gpuprov.state / "events" / "e2e.jsonl"
    with log.open("a") as f:
        f.write('{"t":"2026-01-01T00:00:00.000Z","node":0,"phase":"launch","status":"start"}\n')
    assert "nothing was found" not in gpuprov("down", "e2e", code=8, env=no_cloud).out


@pytest.mark.long
def test_a_changed_spec_is_applied_to_the_same_nodes(gpuprov, spec, tmp_path):
    first = spec(SPEC.format(name="chg", nodes=1))
    ids = [n["id"] for n in gpuprov.json("up", first, timeout=300)["stack"]["nodes"]]
    more = spec(SPEC.format(name="chg", nodes=2).replace(
        "validate:", "    - {name: more, run: \"touch /opt/more\", check: \"test -e /opt/more\"}\nvalidate:"))
    shown = gpuprov("plan", more, code=2).out
    assert "nodes: 1 -> 2 (nodes are launched" in shown and "bootstrap.steps[more]: added (nodes are boot" in shown
    assert "limits.ttl" not in shown and "the deadline" not in shown
    after = gpuprov.json("up", more, timeout=300)["stack"]["nodes"]
    assert len(after) == 2 and after[0]["id"] == ids[0]
    gpuprov("ssh", "chg/0", "--", "test -e /opt/more")
    longer = spec(SPEC.format(name="chg", nodes=2).replace("ttl: 20m", "ttl: 100h"))
    assert "limits.ttl: 20m -> 4d4h (the deadline moves to 20" in gpuprov("plan", longer, code=2).out
    fewer = spec(SPEC.format(name="chg", nodes=1))
    after = gpuprov.json("up", fewer, timeout=300)["stack"]["nodes"]
    assert [n["id"] for n in after] == ids
    other = spec(SPEC.format(name="chg", nodes=1).replace("nodes: 1", "nodes: 1\nimage: {baked: prefer}"))
    for verb in ("plan", "up"):
        refused = gpuprov(verb, other, code=1)
        assert "another 'image'" in refused.err and "(image: auto -> {baked: prefer})" in refused.err
        assert "gpuprov down chg" in refused.err
    gpuprov("down", "chg")


MOVED = SPEC.format(name="mv", nodes=1).replace("time: 5m, require: [train.ddp]", "time: 1m")


def moved_to(gpuprov):
    """Seconds after the stack's creation, the same at the node's holder."""
    stack = gpuprov.json("status", "mv")["stacks"][0]
    claim = json.loads(next((gpuprov.state / "local").glob("*/claim.json")).read_text())
    at = datetime.datetime.fromisoformat(stack["expires"].replace("Z", "+00:00")).timestamp()
    assert claim["expires"] == at
    return at - claim["created"]


@pytest.mark.long
def test_a_changed_ttl_moves_the_deadline(gpuprov, spec):
    """The nodes stay, ready, and the holder ends them at the new deadline."""
    first = gpuprov.json("up", spec(MOVED), timeout=300)
    assert moved_to(gpuprov) == 20 * 60
    longer = spec(MOVED.replace("20m", "2h"))
    up = gpuprov.json("up", longer)
    assert up["nothing_to_do"] is True and moved_to(gpuprov) == 2 * 3600
    assert [n["id"] for n in up["stack"]["nodes"]] == [n["id"] for n in first["stack"]["nodes"]]
    gpuprov("plan", longer, code=0)
    longest = spec(MOVED.replace("20m", "3h"))
    assert gpuprov("up", "--quiet", longest).out.startswith("the deadline was moved: every node is ready already\n")
    assert gpuprov("up", "--quiet", longest).out.startswith("nothing to do: every node is ready already\n")
    gpuprov("down", "mv")


@pytest.mark.long
def test_a_deadline_that_has_passed_is_refused(gpuprov, spec):
    """One that comes soon is not: the holder ends the nodes then."""
    gpuprov("up", spec(MOVED), timeout=300)
    created = json.loads(next((gpuprov.state / "local").glob("*/claim.json")).read_text())["created"]
    wait_for(lambda: time.time() > created + 61, 90)
    for verb in ("plan", "up"):
        assert "has passed" in gpuprov(verb, spec(MOVED.replace("20m", "1m")), code=1).err
    assert moved_to(gpuprov) == 20 * 60
    gpuprov("up", spec(MOVED.replace("20m", f"{int(time.time() - created) + 15}s")))
    wait_for(lambda: not list((gpuprov.state / "local").glob("*/claim.json")), 60)
    gpuprov("down", "mv", code=None)


@pytest.mark.long
def test_a_failing_step_is_named_and_resumed(gpuprov, spec, tmp_path):
    text = SPEC.format(name="bad", nodes=2).replace(
        'run: "echo hello > /opt/hello"', 'run: "test -e /opt/allowed && echo hello > /opt/hello"')
    path = spec(text)
    failed = gpuprov("up", path, code=6, timeout=300)
    assert "bad/0" in failed.err and "hello" in failed.err
    assert "gpuprov down bad" in failed.err
    assert "failed" in failed.out
    ids = [n["id"] for n in gpuprov.json("status", "bad")["stacks"][0]["nodes"]]
    for i in (0, 1):
        gpuprov("ssh", f"bad/{i}", "--", "touch /opt/allowed")
    resumed = gpuprov.json("up", path, timeout=300)
    assert [n["id"] for n in resumed["stack"]["nodes"]] == ids
    assert resumed["report"]["ready"] is True
    gpuprov("down", "bad")


def test_a_package_manager_of_the_machine_is_named(gpuprov, spec):
    """Nodes share /usr with the machine. A change there broke steps with 'Stale file handle' and no word of the cause."""
    path = spec(SPEC.format(name="stale", nodes=1).replace(
        'run: "echo hello > /opt/hello"', 'run: "touch /opt/here; until test -e /opt/go; do sleep 0.1; done; exit 1"'))
    p = gpuprov.popen("up", path)
    wait_for(lambda: gpuprov("ssh", "stale/0", "--", "test -e /opt/here", code=None).code == 0, 120)
    time.sleep(2)  # the times of files are compared by the second
    made = pathlib.Path("/usr/local/lib/gpuprov-test-stale")
    made.mkdir()
    made.rmdir()
    gpuprov("ssh", "stale/0", "--", "touch /opt/go")
    _, err = p.communicate(timeout=120)
    assert p.returncode == 6
    assert "possible cause: " in err and "on this machine at 20" in err and "while the node used its files" in err, err
    assert "gpuprov down stale" in err
    gpuprov("down", "stale")


def test_a_node_that_powers_off_in_the_middle(gpuprov, spec):
    path = spec(SPEC.format(name="off", nodes=2).replace(
        'run: "echo hello > /opt/hello"', 'run: "case $(hostname) in *-1) poweroff; sleep 60;; esac; echo hello > /opt/hello"'))
    failed = gpuprov("up", path, code=6, timeout=300)
    assert "off/1" in failed.err
    gpuprov("down", "off")


@pytest.mark.long
def test_ready_nodes_that_reboot_or_power_off(gpuprov, spec):
    path = spec(SPEC.format(name="again", nodes=2))
    first = gpuprov.json("up", path, timeout=300)
    boot = ["ssh", "again/1", "--", "cat /proc/sys/kernel/random/boot_id"]
    before = gpuprov(*boot).out
    gpuprov("ssh", "again/1", "--", "nohup sh -c 'sleep 1; reboot' >/dev/null 2>&1 &")
    wait_for(lambda: gpuprov(*boot, code=None).out not in ("", before), 120)
    up = gpuprov.json("up", path, timeout=300)  # what was proven was another boot: it is proven again
    assert up["nothing_to_do"] is False and up["report"]["run"] != first["report"]["run"]
    assert up["report"]["ready"] is True
    assert gpuprov.json("up", path)["nothing_to_do"] is True
    gpuprov("ssh", "again/0", "--", "nohup sh -c 'sleep 1; poweroff' >/dev/null 2>&1 &")
    wait_for(lambda: gpuprov.json("status", "again")["stacks"][0]["phase"] == "partial", 120)
    node = gpuprov.json("status", "again")["stacks"][0]["nodes"][0]
    assert node["ready"] is False and node["state"] != "running"
    after = gpuprov.json("up", path, timeout=300)
    assert after["report"]["ready"] is True
    ids = [n["id"] for n in after["stack"]["nodes"]]
    assert ids[0] != first["stack"]["nodes"][0]["id"] and ids[1] == first["stack"]["nodes"][1]["id"]
    gpuprov("down", "again")


def test_two_ups_at_once(gpuprov, spec, tmp_path):
    path = spec(SPEC.format(name="two", nodes=2))
    before = Snapshot(tmp_path)
    both = [gpuprov.popen("up", path, "--json") for _ in range(2)]
    done = [p.communicate(timeout=300) for p in both]
    assert [p.returncode for p in both] == [0, 0], done
    results = [json.loads(out) for out, _ in done]
    assert sorted(r["nothing_to_do"] for r in results) == [False, True]
    assert [n["id"] for n in results[0]["stack"]["nodes"]] == [n["id"] for n in results[1]["stack"]["nodes"]]
    assert any("waiting" in err for _, err in done)
    gpuprov("down", "two")
    nothing_left(gpuprov, before, tmp_path)


def test_ctrl_c_says_what_is_there(gpuprov, spec):
    path = spec(SPEC.format(name="intr", nodes=2).replace("echo hello > /opt/hello", "sleep 300"))
    p = gpuprov.popen("up", path)
    wait_for(lambda: (gpuprov.state / "events" / "intr.jsonl").is_file()
             and "hello" in (gpuprov.state / "events" / "intr.jsonl").read_text())
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=300)
    assert p.returncode == 130, (out, err)
    assert "2 nodes of 'intr' exist" in err
    gpuprov("down", "intr")


def deadline(program, tmp):
    """Nobody ends the stack: it goes by itself, and what is left of it is nothing."""
    (tmp / "home").mkdir()
    gpuprov, before = Gpuprov(program, tmp / "state", tmp / "home"), Snapshot(tmp)
    for ttl in ("1m", "4m"):  # on a slow machine a minute may be over before the node is proven
        path = tmp / "spec.yaml"
        path.write_text(SPEC.format(name="ttl", nodes=1).replace("ttl: 20m", "ttl: " + ttl)
                        .replace("time: 5m, require: [train.ddp]", "time: 1m"))
        up = gpuprov("up", path, code=None, timeout=300)
        if up.code == 0:
            break
        gpuprov("down", "ttl")
    assert up.code == 0, up
    wait_for(lambda: not stack_members(gpuprov.state), 300)
    # the holder's last act, and it may still be at it: nobody else removes it
    wait_for(lambda: not list((gpuprov.state / "local").glob("*")), 60)
    gone = gpuprov("ssh", "ttl/0", "--", "true", code=None)
    assert gone.code != 0
    gpuprov("gc", "local")
    nothing_left(gpuprov, before, tmp)


@pytest.fixture(scope="module", autouse=True)
def under_way(request, program, tmp_path_factory):
    """deadline() is a minute of waiting: it begins with the first test, with a state folder of its own."""
    wanted = any(i.name == "test_the_deadline_needs_nobody" for i in request.session.items)
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(deadline, program, tmp_path_factory.mktemp("deadline")) if wanted else None


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("with_journal", [True, False])
def test_kill_at_random_moments_leaves_nothing(gpuprov, spec, tmp_path, with_journal):
    """kill -9 of `up` at ten random moments each way; the next `down` leaves zero."""
    path = spec(SPEC.format(name="kill", nodes=2))
    before = Snapshot(tmp_path)
    rng = random.Random(20261121 + with_journal)
    for _ in range(10):
        p = gpuprov.popen("up", path, "--quiet")
        # most moments lie in the first half second, where everything is created
        time.sleep(rng.choice([rng.uniform(0, 0.3), rng.uniform(0, 0.3), rng.uniform(0.3, 4)]))
        p.kill()
        p.communicate()
        if not with_journal:
            for f in gpuprov.state.glob("journal.db*"):
                f.unlink()
        gpuprov("down", "kill", "--in", "local")
        nothing_left(gpuprov, before, tmp_path)


def test_what_a_kill_left_half_made_goes_without_a_stack(gpuprov):
    """Killed before its claim had a name, or half way through removing one: no stack is left to end."""
    for name in (".new-0123456789abcdef", ".dead-0123456789abcdef-nodes"):
        folder = gpuprov.state / "local" / name
        folder.mkdir(parents=True, mode=0o700)
        (folder / "claim.json").write_text("{")
    gpuprov("down", "kill", code=None)
    assert list((gpuprov.state / "local").glob("*")) == []


def test_up_after_kill_resumes(gpuprov, spec, tmp_path):
    path = spec(SPEC.format(name="res", nodes=2))
    rng = random.Random(7)
    for _ in range(4):
        p = gpuprov.popen("up", path, "--quiet")
        time.sleep(rng.uniform(0.02, 0.4))
        p.kill()
        p.communicate()
    up = gpuprov.json("up", path, timeout=300)
    assert up["report"]["ready"] is True
    assert len(stack_members(gpuprov.state)) == 1
    gpuprov("down", "res")


def test_a_full_disk_here_loses_nothing(gpuprov, spec, tmp_path):
    """The state folder's file system is full: one clear line, and what was made is still found."""
    with small_disk(tmp_path / "small", "400k") as small:
        env = {"GPUPROV_STATE_DIR": str(small / "state")}
        (small / "fill").write_bytes(b"x" * 380 * 1024)
        r = gpuprov("up", spec(SPEC.format(name="full", nodes=1)), env=env, code=None, timeout=300)
        assert r.code in (1, 6), r
        assert "space" in r.err or "full" in r.err, r
        (small / "fill").unlink()
        gpuprov("down", "full", "--in", "local", env=env)
        assert gpuprov.json("status", env=env)["stacks"] == []


def test_down_on_a_full_disk(gpuprov, spec, tmp_path):
    """What runs is ended first; then it is said what could not be written down, and what to do."""
    with small_disk(tmp_path / "small", "64m") as small:
        env = {"GPUPROV_STATE_DIR": str(small / "state")}
        text = SPEC.format(name="full", nodes=1).replace("train.ddp", "host.memory")
        gpuprov("up", spec(text), env=env, code=None, timeout=120)  # host.disk wants more room than there is
        assert stack_members(small / "state")
        gpuprov("ssh", "full/0", "--", "true", env=env)
        fill(small)
        seen = gpuprov("status", "full", "--json", env=env)
        assert [n["slot"] for n in seen.json["stacks"][0]["nodes"]] == [0], seen
        assert "nothing is recorded: the journal" in seen.err and "disk is full" in seen.err, seen
        for verb in (["status"], ["status", "--offline"], ["logs", "full"], ["ssh", "full/0", "--", "true"]):
            r = gpuprov(*verb, env=env)
            assert r.err == "" if verb[-1] == "--offline" else "full/0" in r.out or verb[0] == "ssh", r
        r = gpuprov("down", "full", env=env, code=None)
        assert not stack_members(small / "state"), r
        assert r.code == 0 or (r.code == 1 and "gpuprov down full" in r.err and "disk is full" in r.err), r
        assert r.code == 0 or "the resources are destroyed without a record of it: the journal " in r.err, r
        (small / "fill").unlink()
        gpuprov("down", "full", "--in", "local", env=env)
        assert gpuprov.json("status", env=env)["stacks"] == []


@pytest.mark.long
def test_down_when_another_cloud_has_no_credentials(gpuprov, spec):
    """The nodes here are ended all the same, and exit 8 says where nobody could look."""
    path = spec(SPEC.format(name="both", nodes=1).replace(
        "{provider: local}", "{provider: local}, {provider: aws, regions: [us-east-1]}"))
    gpuprov("up", path, env={"AWS_EC2_METADATA_DISABLED": "true"}, code=None, timeout=120)  # proven or not: they are there
    assert stack_members(gpuprov.state)
    r = gpuprov("down", path, env={"AWS_EC2_METADATA_DISABLED": "true"}, code=8)
    last = r.err.splitlines()[-1]
    assert "not looked at: aws" in last and "gpuprov down both" in last, r
    assert not stack_members(gpuprov.state) and not any((gpuprov.state / "local").iterdir())


@pytest.mark.long
@pytest.mark.parametrize("first", ["name", "spec"])
def test_down_by_name_looks_where_the_spec_does(gpuprov, spec, first):
    """The step that exit 8 advises, and a down by name alone, never state an end that nobody has seen."""
    path = spec(SPEC.format(name="both", nodes=1).replace(
        "{provider: local}", "{provider: local}, {provider: aws, regions: [us-east-1]}"))
    env = {"AWS_EC2_METADATA_DISABLED": "true"}
    gpuprov("up", path, env=env, code=None, timeout=120)
    assert "not looked at: aws" in gpuprov("down", "-n", "both", env=env, code=8).out
    gpuprov("down", {"name": "both", "spec": path}[first], env=env, code=8)
    assert not stack_members(gpuprov.state)
    for _ in range(2):
        r = gpuprov("down", "both", "--json", env=env, code=8)
        assert r.json["gone"] is None and r.json["error"]["code"] == "billed", r
    # --in limits the statement
    assert gpuprov.json("down", "both", "--in", "local", env=env)["gone"] is True


@pytest.mark.long
def test_packages_install_through_the_stack(gpuprov, spec):
    path = spec(SPEC.format(name="pkg", nodes=1).replace("bootstrap:", "bootstrap:\n  packages: [hello]"))
    gpuprov("up", path, timeout=300)
    assert "Hello" in gpuprov("ssh", "pkg/0", "--", "hello").out
    gpuprov("down", "pkg")


@pytest.mark.long
def test_a_deadline_during_the_bootstrap_is_named(gpuprov, spec):
    path = spec("name: slow\nlimits: {ttl: 1m}\nbootstrap: {steps: [{name: wait, run: sleep 1000}]}\n")
    r = gpuprov("up", path, "--json", code=6, timeout=200)
    last = r.json["error"]["message"]
    assert "slow/0: its deadline passed in phase 'bootstrap' (limits.ttl is 1m): set a longer ttl" in last, r
    assert "of 'slow' exists" not in r.err, r
    waits = [e["text"] for e in r.events if "limit " in e["text"]]
    assert waits and not any("45m" in t for t in waits), r
    gpuprov("down", "slow")


def test_the_deadline_needs_nobody(under_way):
    under_way.result()
