# SPDX-License-Identifier: Apache-2.0
"""`gpuprov run` does not destroy the only copy of the results, nor a stack that is not its own."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess

import pytest

from job_lab import SPEC, in_use, seen, write_job
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

KEPT = "the nodes stay until their deadline"


@pytest.fixture
def job(tmp_path):
    """job(SCRIPT, nodes=1): the path of a spec that runs it."""
    def write(script, nodes=1, more=""):
        return write_job(tmp_path, SPEC.format(nodes=nodes) + more, script)
    return write


def sshds(gpuprov):
    """The ssh servers of the nodes."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            parents[int(stat.parent.name)] = (int(rest.split()[1]), name)
    [holder] = [json.loads(f.read_text())["pid"] for f in (gpuprov.state / "local").glob("*/holder.json")]

    def below(pid):
        while pid in parents and pid != holder:
            pid = parents[pid][0]
        return pid == holder
    return [pid for pid, (_, name) in parents.items() if name.startswith("sshd") and below(pid)]


def stacks(gpuprov):
    return gpuprov.json("status")["stacks"]


HANGS = "sleep 98764"
AGENT = "~/.gpuprov/agent/gpuprov-agent"


def test_ctrl_c_while_outputs_are_fetched_keeps_the_nodes(gpuprov, job, tmp_path):
    """The node's agent hangs meanwhile, as on a disk that hangs."""
    spec = job(f"mkdir -p out; echo run >>out/runs; mv {AGENT} {AGENT}.real\n"
               f"printf '%s\\n' '#!/bin/sh' '[ \"$1\" != tree ] || exec {HANGS}' 'exec \"$0.real\" \"$@\"' >{AGENT}.new\n"
               f"chmod 755 {AGENT}.new; mv {AGENT}.new {AGENT}\n")
    p = gpuprov.popen("run", spec)
    wait_for(lambda: p.poll() is not None or subprocess.run(["pgrep", "-f", f"^{HANGS}$"], stdout=subprocess.DEVNULL,
                                                           check=False).returncode == 0)
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=60)
    assert p.returncode == 130 and KEPT in err and "the nodes still have 'out'" in err, err
    assert stacks(gpuprov)[0]["phase"] == "ready"
    gpuprov("ssh", "train", "--", f"mv {AGENT}.real {AGENT}; pkill -f '^{HANGS}$'; true")
    gpuprov("run", spec)
    assert (tmp_path / "results/runs").read_text() == "run\n" and stacks(gpuprov) == []


def test_a_folder_in_use_is_waited_for_and_ctrl_c_keeps_the_nodes(gpuprov, job, tmp_path):
    spec = job("mkdir -p out; echo run >>out/runs")
    with in_use(tmp_path / "results"):
        p = gpuprov.popen("run", spec)
        seen(p, "trying again for ")
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=60)
        assert p.returncode == 130 and KEPT in err, err
        assert stacks(gpuprov)[0]["phase"] == "ready"
        p = gpuprov.popen("run", spec)
        seen(p, "trying again for ")
    _, err = p.communicate(timeout=120)
    assert p.returncode == 0, err
    assert (tmp_path / "results/runs").read_text() == "run\n"
    assert stacks(gpuprov) == []


def test_a_target_that_refuses_keeps_the_nodes(gpuprov, job, tmp_path):
    spec = job("mkdir -p out; echo run >>out/runs")
    (tmp_path / "results").write_text("a file")
    assert KEPT in gpuprov("run", spec, code=1).err
    assert stacks(gpuprov)[0]["phase"] == "ready"
    (tmp_path / "results").unlink()
    gpuprov("run", spec)
    assert (tmp_path / "results/runs").read_text() == "run\n"
    assert stacks(gpuprov) == []


@pytest.mark.long
def test_a_node_that_is_away_while_outputs_are_fetched(gpuprov, job, tmp_path):
    spec = job("mkdir -p out; echo run >>out/runs")
    with in_use(tmp_path / "results"):
        p = gpuprov.popen("run", spec)
        seen(p, "yet, trying again for ")
        stopped = sshds(gpuprov)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
    seen(p, "yet, trying again for 1")
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    _, err = p.communicate(timeout=120)
    assert p.returncode == 0, err
    assert (tmp_path / "results/runs").read_text() == "run\n"
    assert stacks(gpuprov) == []


def test_another_stack_of_the_name_is_left_alone(gpuprov, job):
    spec = job("echo up; sleep 600")
    p = gpuprov.popen("run", spec)
    wait_for(lambda: "up" in p.stdout.readline())
    gpuprov("down", spec)
    gpuprov("up", spec)
    before = stacks(gpuprov)[0]
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=120)
    assert p.returncode not in (0, 8) and "launched again by another gpuprov" in err, err
    after = stacks(gpuprov)[0]
    assert (after["uid"], after["nodes"], after["phase"]) == (before["uid"], before["nodes"], "ready")
    gpuprov("down", spec)


def test_outputs_that_are_left_out_keep_the_nodes(gpuprov, job, tmp_path):
    spec = job("mkdir -p out; echo x >out/a; ln -s /etc/passwd out/link; mkfifo out/pipe")
    result = gpuprov("run", "--json", spec, code=1)
    r = result.json
    assert r["job"]["state"] == "succeeded" and r["destroyed"] is None
    [fetched] = r["job"]["fetched"]
    assert fetched["left_out"] == 2 and len(fetched["notes"]) == 2 and fetched["error"] is None
    said = r["error"]["message"]
    assert "outputs are incomplete: 2 files were not fetched, first in .gpuprov/work/out of train/0: " in said
    assert "'gpuprov ssh train/0 -- rm .gpuprov/work/out/" in said and "the same 'gpuprov run' fetches" not in result.err
    gpuprov("cp", "train/0:.gpuprov/work/out/link", tmp_path / "copied")  # what the advice says
    assert (tmp_path / "copied").read_text() == open("/etc/passwd").read()
    assert (tmp_path / "results/a").read_text() == "x\n" and not (tmp_path / "results/link").is_symlink()
    assert stacks(gpuprov)[0]["phase"] == "ready"
    gpuprov("ssh", "train/0", "--", "rm .gpuprov/work/out/link .gpuprov/work/out/pipe")
    assert gpuprov.json("run", spec)["job"]["attached"]
    assert stacks(gpuprov) == []


def test_a_second_run_finishes_what_a_killed_one_began(gpuprov, job, tmp_path):
    spec = job("mkdir -p out; echo run >>out/runs; echo up; while [ ! -e go ]; do sleep 0.1; done; echo done")
    first = gpuprov.popen("run", spec)
    wait_for(lambda: "up" in first.stdout.readline())
    second = gpuprov.popen("run", spec)
    wait_for(lambda: "up" in second.stdout.readline())
    first.kill()
    first.communicate()
    gpuprov("ssh", "train/0", "--", "touch .gpuprov/work/go")
    out, err = second.communicate(timeout=120)
    assert second.returncode == 0 and out.count("done") == 1, err
    assert (tmp_path / "results/runs").read_text() == "run\n"
    assert stacks(gpuprov) == []
