# SPDX-License-Identifier: Apache-2.0
"""What a user sees around a job: on a terminal, after Ctrl-C, and what is said of the nodes."""
import re
import shlex
import shutil
import signal

import pytest

from conftest import Gpuprov, built_program
from terminal import Terminal
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
needs_tmux = pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux")

SPEC = """\
name: vis
nodes: 2
offers: [{{provider: local}}]
limits: {{ttl: 30m}}
validate: {{time: 1m}}
job:
  run: {run}
  outputs: [{{path: out, to: results}}]
"""
MAKES = "mkdir -p out; head -c 2000000 /dev/zero >out/big; echo up; {then}"
HEADING = re.compile(r"^vis  \d")


@pytest.fixture
def spec(tmp_path):
    """spec(RUN): the path of a spec whose job runs that."""
    def write(run):
        path = tmp_path / "spec.yaml"
        path.write_text(SPEC.format(run=f'"{run}"'))
        return path
    return write


@pytest.fixture
def terminal(gpuprov, tmp_path):
    """terminal(COLUMNS, WORDS...): a terminal in which gpuprov runs; "CODE n" is its exit code."""
    opened = []

    def start(columns, *words):
        script = tmp_path / "run.sh"
        lines = [f"export {k}={shlex.quote(v)}" for k, v in gpuprov.env.items() if k.isidentifier()]
        command = shlex.join([str(gpuprov.program), *map(str, words)])
        script.write_text("\n".join(["trap : INT", *lines, "export TERM=screen", command, 'echo "CODE $?"']) + "\n")
        opened.append(Terminal(tmp_path, columns, 24, f"trap : INT; sh {script}"))
        return opened[-1]
    yield start
    for t in opened:
        t.close()


def whole(t):
    """What is on the terminal and in its history, with the lines that it has wrapped joined."""
    return t.run("capture-pane", "-p", "-J", "-S", "-").splitlines()


def has(t, text):
    return any(text in line for line in whole(t))


@needs_tmux
@pytest.mark.parametrize("columns", [80, 120])
def test_a_run_on_a_terminal(terminal, spec, tmp_path, columns):
    t = terminal(columns, "run", "--yes", spec(MAKES.format(then="true")))
    t.wait(t.done.exists, 120)
    t.wait(lambda: has(t, "END"))
    lines = [line.rstrip() for line in whole(t)]
    at = [next((i for i, line in enumerate(lines) if re.search(text, line)), None) for text in (
        r"^vis: job: job [0-9a-f]{16} runs on 2 nodes$",
        r"^\[[01]\] up$",
        rf"^vis: files: out: 2 files of 2 nodes \(4\.0 MB\) are in {tmp_path}/results$",
        r"^vis: job: job [0-9a-f]{16} has succeeded",
        r"^vis: \d resources destroyed, nothing is left$",
        r"^CODE 0$")]
    assert None not in at and at == sorted(at), (at, lines)
    assert not [line for line in lines if HEADING.match(line) or "planned" in line], lines


@needs_tmux
@pytest.mark.parametrize("while_", ["check", "running"])
def test_ctrl_c_on_a_terminal_leaves_no_area(terminal, spec, while_):
    t = terminal(80, "run", "--yes", spec(MAKES.format(then="sleep 300")))
    t.wait(lambda: any(re.search(r"vis/\d +check" if while_ == "check" else r"^\[0\] up", line) for line in whole(t)), 120)
    t.run("send-keys", "C-c")
    t.wait(t.done.exists, 120)
    t.wait(lambda: has(t, "END"))
    lines = [line.rstrip() for line in whole(t)]
    assert "CODE 130" in lines and any("resources destroyed, nothing is left" in line for line in lines), lines
    assert not [line for line in lines if HEADING.match(line) or line.startswith("  vis/")], lines
    assert not [line for line in lines if "cancelled while" in line or "'gpuprov up' continues" in line], lines


@needs_tmux
def test_the_phase_while_a_job_is_waited_for(terminal, gpuprov, spec):
    gpuprov("run", "-d", spec(MAKES.format(then="sleep 300")))
    t = terminal(100, "wait", "vis")
    t.wait(lambda: has(t, "2 running"))
    assert not has(t, "planned")
    assert [line for line in whole(t) if re.match(r"^vis: job: job [0-9a-f]{16} runs", line)]
    t.run("send-keys", "C-c")
    t.wait(t.done.exists, 60)
    lines = whole(t)
    assert any(re.match(r"gpuprov: 'vis': stopped following; job [0-9a-f]{16} goes on: 'gpuprov attach vis'", line)
               for line in lines), lines
    assert not [line for line in lines if HEADING.match(line)], lines
    gpuprov("down", "vis")


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("visible")
    (tmp / "home").mkdir()
    g = Gpuprov(built_program(), tmp / "state", tmp / "home")
    g.spec = tmp / "spec.yaml"
    g.spec.write_text(SPEC.format(run="mkdir -p out; echo fixed >out/x; touch -d @1700000000 out/x"))
    g("up", g.spec)
    yield g
    g("down", "vis", code=None)


@pytest.mark.parametrize("verb", ["attach", "wait"])
def test_ctrl_c_of_a_follower_says_that_the_job_goes_on(stack, verb):
    out = stack("exec", "-d", "--json", "vis", "--", f"echo up; sleep 300 # {verb}")
    id_ = out.json["job"]["id"]
    p = stack.popen(verb, "vis")
    read = []
    while not read or f"job {id_} runs" not in read[-1]:
        read.append(p.stderr.readline())
        assert read[-1], read
    if verb == "attach":
        wait_for(lambda: "up" in p.stdout.readline())
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=60)
    assert p.returncode == 130
    assert f"gpuprov: 'vis': stopped following; job {id_} goes on: 'gpuprov attach vis' follows it, " \
           "'gpuprov cancel vis' ends it" in err
    assert "cancelled while" not in err
    assert id_ in stack("cancel", "vis").out


def test_ctrl_c_of_exec_says_what_stays(stack):
    p = stack.popen("exec", "vis", "--", "echo up; sleep 300")
    wait_for(lambda: "up" in p.stdout.readline())
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=60)
    until = stack.json("status", "vis")["stacks"][0]["expires"]
    assert p.returncode == 130
    assert re.search(rf"^gpuprov: 'vis': job [0-9a-f]{{16}} was stopped; the nodes stay until {until}: 'gpuprov down vis' "
                     "destroys them$", err, re.M), err


def test_files_that_did_not_change(stack):
    script = "mkdir -p out; echo fixed >out/x; touch -d @1700000000 out/x"
    first = stack("exec", "vis", "--", script)
    assert "vis/0 ready: files: out: 1 file fetched, 6 B" in first.err and "0.0 MB" not in first.err
    again = stack("exec", "vis", "--", script)
    assert "vis/0 ready: files: out: 1 file, unchanged" in again.err
    assert re.search(r"vis: files: out: 2 files of 2 nodes \(12 B\) are in /.*/results$", again.err, re.M)


def test_one_clock_for_one_command(stack):
    err = stack("exec", "vis", "--", "mkdir -p out; sleep 3").err
    seconds = [int(s) for s in re.findall(r"^\[ *(\d+)s\]", err, re.M)]
    assert seconds == sorted(seconds) and seconds[-1] >= 3, err


def test_no_down_says_what_stays(gpuprov, spec):
    done = gpuprov("run", "--no-down", spec(MAKES.format(then="true")))
    until = gpuprov.json("status", "vis")["stacks"][0]["expires"]
    assert f"the nodes stay until {until}: 'gpuprov exec vis' runs another job on them, 'gpuprov down vis'" in done.err
    gpuprov("down", "vis")


def test_keep_names_the_failure_at_once(gpuprov, spec):
    refused = gpuprov("run", "-d", "--keep", "10m", spec("true"), code=1)
    assert "--keep is of no use with -d" in refused.err
    p = gpuprov.popen("run", "--keep", "10m", spec("exit 3"))
    while "the nodes stay" not in (line := p.stderr.readline()):
        assert line
    assert re.search(r"vis/\d: the job failed: exited with code 3: the nodes stay for 10m, until .*Z", line), line
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=60)
    assert p.returncode == 9 and "nothing is left" in err


def test_a_run_that_fails_before_its_job_promises_no_nodes(gpuprov, spec):
    path = spec("true")
    path.write_text(path.read_text() + "bootstrap: {steps: [{name: brk, run: exit 5}]}\n")
    failed = gpuprov("run", path, code=None)
    assert failed.code != 0 and "nothing is left" in failed.err
    assert "'gpuprov up' continues" not in failed.err and "exist" not in failed.err, failed.err
    up = gpuprov("up", path, code=None)
    assert "2 nodes of 'vis' exist: 'gpuprov up' continues, 'gpuprov down vis' destroys them" in up.err
    gpuprov("down", "vis")


def seen_job(stack):
    return stack.json("status", "vis")["stacks"][0]["job"]


def test_status_and_plan_name_the_job(stack):
    id_ = stack("exec", "-d", "--json", "vis", "--", "sleep 301").json["job"]["id"]
    job = seen_job(stack)
    assert (job["id"], job["state"], job["nodes"], job["fetched"], job["from"]) == (id_, "running", 2, False, "this machine")
    line = f"job {id_} runs on 2 nodes (started {job['started']}; as this machine saw it at {job['seen']}): " \
           "'gpuprov attach vis' follows it, 'gpuprov cancel vis' ends it"
    assert line in stack("status", "vis").out.splitlines()
    assert line in stack("status", "--offline", "vis").out.splitlines()
    assert f"note: {line}" in stack("plan", stack.spec).out
    assert line in stack("up", stack.spec).out.splitlines()
    stack("cancel", "vis")
    assert seen_job(stack)["state"] == "stopped"
    assert "runs on" not in stack("plan", stack.spec).out
    failed = stack("exec", "--json", "vis", "--", "exit 4", code=9).json["job"]
    job = seen_job(stack)
    assert (job["id"], job["state"], job["why"]) == (failed["id"], "failed", "exited with code 4")
    done = stack("exec", "--json", "vis", "--", "mkdir -p out; true # status").json["job"]
    job = seen_job(stack)
    assert (job["id"], job["state"], job["fetched"]) == (done["id"], "succeeded", True)
    assert f"job {done['id']} has succeeded, its files were fetched (started" in stack("status", "vis").out


def test_a_damaged_record_of_the_job_is_named(stack):
    stack("exec", "vis", "--", "mkdir -p out; true # damaged")
    [path] = stack.state.glob("stacks/*/job_seen.json")
    path.write_text(path.read_text().replace('"succeeded"', '"fine"'))
    status = stack.json("status", "vis")["stacks"][0]
    assert status["job"] is None
    assert any("job_seen.json" in note and "no sound 'state'" in note for note in status["notes"])
