# SPDX-License-Identifier: Apache-2.0
"""The output of bootstrap steps: shown and kept when a step fails, read from the node otherwise, bounded and clean; and
events that are followed while another gpuprov works."""
import os
import pathlib
import re
import signal
import time

import pytest

from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: {name}
nodes: {nodes}
offers: [{{provider: local}}]
limits: {{ttl: 20m}}
validate: {{time: 1m}}
secrets: [{{env: TOKEN, from: "env:STEP_TOKEN"}}]
bootstrap:
  steps:
    - name: data
      run: |
        {run}
      check: test -e /opt/done
"""
TOKEN = {"STEP_TOKEN": "hush-hush-4711"}


def make(spec, name, run, nodes=1):
    return spec(SPEC.format(name=name, nodes=nodes, run="\n        ".join(run)))


def kept(gpuprov, slot=0, step="data"):
    return list((gpuprov.state / "stacks").glob(f"*/output/{slot}/{step}.log"))


def test_the_output_of_a_failed_step(gpuprov, spec):
    path = make(spec, "out", [
        "if test -e /opt/allowed; then echo second run; touch /opt/done; exit 0; fi",
        "for i in $(seq 1 100); do echo line $i; done",
        "printf '\\033[31mred\\033[0m \\033]0;title\\007 10%%\\r99%% done\\n'",
        "echo token is $TOKEN >&2",
        "echo no such bucket >&2; exit 3"])
    failed = gpuprov("up", path, code=6, env=TOKEN)
    shown = re.findall(r"^ +[|] (.*)$", failed.err, re.M)
    assert shown == [f"line {i}" for i in range(84, 101)] + ["99% done", "token is ***", "no such bucket"], failed
    [file] = kept(gpuprov)
    assert f"its output: {file}" in failed.err
    node_path = re.search(r"on the node: (\S+)", failed.err)[1]
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    assert text.startswith("line 1\n") and text.endswith("no such bucket\n")
    assert text.splitlines()[:100] == [f"line {i}" for i in range(1, 101)]
    assert "\033" not in text and TOKEN["STEP_TOKEN"] not in text + failed.err + failed.out
    assert "'gpuprov logs out/0 --step data' prints the output" in failed.err  # the next step
    assert gpuprov("logs", "out/0", "--step", "data").out == text
    assert gpuprov.json("logs", "out/0", "--step", "data")["output"] == text
    assert "    | no such bucket" in gpuprov("logs", "out").out
    assert "no such bucket" in gpuprov("ssh", "out/0", "--", f"cat {node_path}").out
    # the next run succeeds: what failed is outdated, the node has what ran last
    gpuprov("ssh", "out/0", "--", "touch /opt/allowed")
    gpuprov("up", path, env=TOKEN)
    assert kept(gpuprov) == []
    assert gpuprov("logs", "out/0", "--step", "data").out == "second run\n"
    assert "steps that have: data" in gpuprov("logs", "out/0", "--step", "nope", code=1).err
    assert "gpuprov status out" in gpuprov("logs", "out/7", "--step", "data", code=1).err
    assert "--step needs one node" in gpuprov("logs", "out", "--step", "data", code=1).err
    gpuprov("down", "out")
    assert not list((gpuprov.state / "stacks").glob("*"))


def test_it_outlives_the_nodes(gpuprov, spec):
    """`run` destroys them a second after it has named this command. The newest stack of the name counts."""
    for said in ("one", "two"):
        path = make(spec, "once", [f"echo {said} went wrong; exit 3"])
        path.write_text(path.read_text() + "job: {run: 'true'}\n")
        failed = gpuprov("run", path, code=6, env=TOKEN)
        assert "'gpuprov logs once/0 --step data' prints the output" in failed.err
        assert not list((gpuprov.state / "stacks").glob("*"))
        assert gpuprov("logs", "once/0", "--step", "data").out == f"{said} went wrong\n"
    [folder] = (gpuprov.state / "outputs").iterdir()
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert "'once' is gone" in gpuprov("logs", "once/0", "--step", "other", code=1).err
    long_ago = time.time() - 31 * 86400
    os.utime(folder, (long_ago, long_ago))
    gpuprov("down", "once")
    assert not folder.exists()


@pytest.mark.parametrize("run, why", [
    ("printf 'no newline'; exit 7", "ended with status 7; its last output: no newline; "),
    ("head -c 1200000 /dev/zero | tr '\\0' a; printf '\\nno newline'; exit 7",
     "ended with status 7; its last output: no newline; "),
    ("printf 'no newline'", "ran, but its check still fails: test -e /opt/done; its last output: no newline; ")])
def test_a_last_line_without_a_newline(gpuprov, spec, run, why):
    failed = gpuprov("up", make(spec, "half", [run]), code=6, env=TOKEN)
    assert f"step 'data': {why}'gpuprov logs" in failed.err
    [file] = kept(gpuprov)
    assert file.read_text().splitlines()[-1] == "no newline"


@pytest.mark.long
def test_100_mb_of_output_of_five_nodes(gpuprov, spec):
    path = make(spec, "big", ["head -c 100000000 /dev/zero | tr '\\0' a | fold -w 99; echo", "echo the end; exit 1"], nodes=5)
    failed = gpuprov("up", path, code=6, env=TOKEN)
    assert failed.err.count("| the end") == 1  # the lines of one node are enough
    assert failed.err.count("on the node: ") == 5
    for slot in range(5):
        [file] = kept(gpuprov, slot)
        assert 1 << 20 <= file.stat().st_size < 1200000
        assert file.read_text().endswith("\nthe end\n") and file.read_text().count("was not kept]") == 1
    assert len(failed.err) < 30000
    gpuprov("down", "big")


def test_a_step_that_prints_nothing(gpuprov, spec):
    failed = gpuprov("up", make(spec, "mute", ["exit 1"]), code=6, env=TOKEN)
    assert "    it printed nothing\n" in failed.err
    assert "step 'data': ended with status 1; it printed nothing\n" in failed.err
    assert "gpuprov logs" not in failed.err  # it would print nothing
    assert gpuprov("logs", "mute/0", "--step", "data").out == ""
    gpuprov("down", "mute")


@pytest.mark.long
def test_following_what_another_gpuprov_does(gpuprov, spec, tmp_path):
    path = make(spec, "fol", ["touch /opt/here; until test -e /opt/go; do sleep 0.1; done; touch /opt/done"])
    gpuprov("logs", "-f", "fol", code=1)  # nothing is there and nobody works on it
    up = gpuprov.popen("up", path, env=TOKEN)
    wait_for(lambda: any(lock.read_text() for lock in (gpuprov.state / "locks").glob("fol@*")))  # held, by whom is in it
    seen = tmp_path / "seen"
    with seen.open("w") as to:
        follower = gpuprov.popen("logs", "-f", "fol", stdout=to)
    wait_for(lambda: "data" in seen.read_text(), 60, seen.read_text)
    assert follower.poll() is None
    wait_for(lambda: gpuprov("ssh", "fol/0", "--", "test -e /opt/here && touch /opt/go", code=None).code == 0)
    assert up.wait(120) == 0
    assert follower.wait(120) == 0  # it ends with the run
    assert "validated" in seen.read_text()
    assert seen.read_text() == gpuprov("logs", "fol").out
    # without a run it prints what there is and ends
    assert gpuprov("logs", "-f", "fol/0").out == gpuprov("logs", "fol/0").out
    gpuprov("down", "fol")


def test_a_follower_ends_when_the_run_is_killed_or_itself_interrupted(gpuprov, spec):
    path = make(spec, "cut", ["until test -e /opt/go; do sleep 0.1; done"])
    up = gpuprov.popen("up", path, env=TOKEN)
    wait_for(lambda: "data" in gpuprov("logs", "cut", code=None).out)
    follower, other = gpuprov.popen("logs", "-f", "cut"), gpuprov.popen("logs", "-f", "cut")
    assert follower.stdout.readline()
    assert other.stdout.readline()
    other.send_signal(signal.SIGINT)
    other.communicate(timeout=120)
    assert other.returncode == 0
    assert follower.poll() is None
    up.kill()
    up.communicate()
    follower.communicate(timeout=120)
    assert follower.returncode == 0
    assert list(pathlib.Path(gpuprov.state / "locks").glob("cut@*"))  # a killed run leaves its file
    gpuprov("down", "cut")
