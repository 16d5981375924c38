# SPDX-License-Identifier: Apache-2.0
"""State is not lost between jobs: checkpoints on nodes, results below the working folder."""
import signal

import pytest

from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: keep
nodes: {nodes}
offers: [{{provider: local}}]
limits: {{ttl: 20m}}
validate: {{time: 1m}}
job:
  workdir: {workdir}
  run: sh job.sh
  checkpoint: {{path: checkpoints, to: ./checkpoints}}
  outputs: [{{path: out, to: ./out}}]
"""


@pytest.fixture
def project(tmp_path):
    """project(SCRIPT, nodes=1): the path of a spec in a folder of its own, which is its working folder."""
    def write(script, nodes=1, workdir="."):
        folder = tmp_path / "project"
        folder.mkdir(exist_ok=True)
        (folder / "job.sh").write_text(script)
        (folder / "gpuprov.yaml").write_text(SPEC.format(nodes=nodes, workdir=workdir))
        return folder / "gpuprov.yaml"
    return write


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def lines(result):
    return sorted(line for line in result.out.splitlines() if line)


def said(result):
    """What rank 0 printed."""
    return "".join(line.removeprefix("[0] ") + "\n" for line in result.out.splitlines())


ON_NODE = ".gpuprov/work/checkpoints"


def test_results_below_the_working_folder_are_not_sent_with_it(gpuprov, project):
    spec = project("mkdir -p checkpoints out; echo $NODE_RANK >>checkpoints/step; echo x >out/x\n"
                   "find . -type f | sort | tr '\\n' ' '\n", nodes=2)
    first = lines(gpuprov("run", spec))
    once = files(spec.parent)
    assert once == ["checkpoints/0/step", "checkpoints/1/step", "gpuprov.yaml", "job.sh", "out/0/x", "out/1/x"]
    for _ in range(2):
        assert lines(gpuprov("run", spec)) == first
        assert files(spec.parent) == once
    assert (spec.parent / "checkpoints/1/step").read_text() == "1\n" * 3
    assert first[0] == "[0] ./checkpoints/step ./gpuprov.yaml ./job.sh ./out/x "


def test_a_folder_of_results_that_a_link_leads_to_is_not_sent(gpuprov, project, tmp_path):
    spec = project("mkdir -p checkpoints out; echo x >out/x; find . -type f | sort | tr '\\n' ' '\n")
    (spec.parent / "deep/saved").mkdir(parents=True)
    (spec.parent / "deep/saved/old").write_text("old")
    (spec.parent / "deep/code").write_text("code")
    (tmp_path / "link").symlink_to(spec.parent / "deep")
    spec.write_text(spec.read_text().replace("to: ./out", "to: ../link/saved"))
    (spec.parent / ".gpuprovignore").write_text("!saved\n")
    assert "./deep/code" in gpuprov("run", spec).out
    out = gpuprov("run", spec).out
    assert "saved" not in out and "./deep/code" in out
    assert (spec.parent / "deep/saved/x").read_text() == "x\n"


def test_a_checkpoint_on_a_node_is_not_replaced_by_the_copy_from_here(gpuprov, project):
    """Neither by exec, nor by the next run of another job; what a detached job left is fetched first."""
    spec = project("mkdir -p checkpoints; echo 9 >checkpoints/s; echo 9")
    here = spec.parent / "checkpoints/s"
    gpuprov("run", "--no-down", spec)
    assert here.read_text() == "9\n"
    gpuprov("exec", "-d", "keep", "--", "echo 103 >checkpoints/s; mkdir out; echo late >out/late")
    gpuprov("wait", "keep")
    assert here.read_text() == "9\n"
    result = gpuprov("exec", "keep", "--", "cat checkpoints/s")
    assert said(result) == "103\n" and "its outputs were not fetched: this comes first" in result.err
    assert here.read_text() == "103\n" and (spec.parent / "out/late").read_text() == "late\n"
    # an older copy here, as from another machine
    here.write_text("9\n")
    result = gpuprov("exec", "keep", "--", "cat checkpoints/s")
    assert said(result) == "103\n" and "1 node keeps its own" in result.err
    here.write_text("9\n")
    assert said(gpuprov("run", "--no-down", spec, "--", "cat checkpoints/s")) == "103\n"
    # a node that has none gets it
    gpuprov("ssh", "keep/0", "--", f"rm -r {ON_NODE}")
    here.write_text("7\n")
    assert said(gpuprov("exec", "keep", "--", "cat checkpoints/s")) == "7\n"
    gpuprov("ssh", "keep/0", "--", f"rm {ON_NODE}/s")
    here.write_text("8\n")
    assert said(gpuprov("exec", "keep", "--", "cat checkpoints/s")) == "8\n"
    gpuprov("down", "keep")
    assert said(gpuprov("run", spec, "--", "cat checkpoints/s")) == "8\n"


def test_a_checkpoint_that_was_sent_in_part_is_sent_again(gpuprov, project):
    """gpuprov is killed while it sends: the folder is not empty, and yet not the node's own."""
    spec = project("ls checkpoints | wc -l; cat checkpoints/*/x | wc -l")
    folder = spec.parent / "checkpoints"
    folder.mkdir()
    for i in range(40):
        (folder / str(i)).mkdir()
        (folder / str(i) / "x").write_text("x\n")
    with open(folder / "39/big", "wb") as f:
        f.truncate(1)
        for _ in range(30):
            f.write(b"\1" * 4096 * 1024)
    gpuprov("up", spec)
    p = gpuprov.popen("exec", spec)
    wait_for(lambda: gpuprov("ssh", "keep/0", "--", f"cat .gpuprov/checkpoint; ls {ON_NODE}", code=None).out.count("\n") > 3)
    p.send_signal(signal.SIGKILL)
    p.communicate()
    note = gpuprov("ssh", "keep/0", "--", "cat .gpuprov/checkpoint").out.split()
    assert note[1:] == ["sending", ON_NODE], "it was killed too late"
    assert said(gpuprov("exec", spec)).split() == ["40", "40"]
    assert gpuprov("ssh", "keep/0", "--", "cat .gpuprov/checkpoint").out.split()[1:] == ["sent", ON_NODE]
    gpuprov("down", "keep")


def test_a_run_does_not_destroy_what_an_earlier_job_left(gpuprov, project):
    """The earlier job's outputs cannot be fetched: another job does not begin, and the nodes stay."""
    spec = project("mkdir -p out; echo one >out/one")
    gpuprov("run", "-d", spec)
    gpuprov("wait", "keep")
    (spec.parent / "out").write_text("a file")
    failed = gpuprov("run", spec, "--", "echo two >two", code=1)
    assert "no job begins before the outputs of job" in failed.err and "the nodes stay until" in failed.err
    assert gpuprov.json("status")["stacks"][0]["phase"] == "ready"
    (spec.parent / "out").unlink()
    gpuprov("run", spec, "--", "rm -r out; mkdir out; echo two >out/two")
    assert files(spec.parent / "out") == ["one", "two"]
    assert gpuprov.json("status")["stacks"] == []


def test_another_stack_s_checkpoint_on_a_lent_machine(gpuprov, project):
    """A machine of a hosts file keeps its folders: the copy from here is the newer one there."""
    spec = project("cat checkpoints/s; echo 5 >checkpoints/s")
    (spec.parent / "checkpoints").mkdir()
    (spec.parent / "checkpoints/s").write_text("4\n")
    gpuprov("up", spec)
    uid = gpuprov.json("status")["stacks"][0]["uid"]
    gpuprov("ssh", "keep/0", "--", f"mkdir -p {ON_NODE}; echo 1 >{ON_NODE}/s; "
            f"echo 0123456789abcdef sent {ON_NODE} >.gpuprov/checkpoint")
    assert uid != "0123456789abcdef"
    assert said(gpuprov("exec", spec)) == "4\n"
    gpuprov("down", "keep")
