# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of the built program. Nothing of gpuprov's own stands in between: a test runs
GPUPROV_BIN as a person would, in a state folder of its own."""
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from timing import Timing

pytest_plugins = ["scheduling"]
ROOT = pathlib.Path(__file__).resolve().parents[2]


def built_program():
    path = os.environ.get("GPUPROV_BIN") or ROOT / os.environ.get("B", "build") / "gpuprov"
    path = pathlib.Path(path).resolve()
    if not path.is_file():
        pytest.fail(f"{path} is not built: run 'make'", pytrace=False)
    return path


class Result:
    """What one call gave: code, out, err (text), json (of stdout)."""

    def __init__(self, argv, code, out, err):
        self.argv, self.code, self.out, self.err = argv, code, out, err

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def events(self):
        """Progress lines of --json, from stderr."""
        lines = [line for line in self.err.splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines]

    def __repr__(self):
        return (f"{' '.join(map(str, self.argv))}: exit {self.code}\n--- stdout\n{self.out}"
                f"--- stderr\n{self.err}")


def sanitized(program):
    """Whether it was built with a sanitizer, which keeps memory and starts threads of its own."""
    code = program.read_bytes()
    return b"__asan_init" in code or b"__tsan_init" in code


# A person's own credentials and settings of clouds.
PERSONAL = ("ALIBABA", "AWS_", "AZURE_", "CLOUDSDK_", "GCE_", "GOOGLE_", "GPUPROV_", "LAMBDA", "OS_", "RUNPOD_", "SHADEFORM_",
            "XDG_")


class Gpuprov:
    """gpuprov("up", spec, code=0): runs it; any other exit code fails the test with all output.
    code=None accepts every code."""

    def __init__(self, program, state, home):
        self.program, self.state = program, state
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(PERSONAL) and k != "SSH_AUTH_SOCK"}
        self.env.update(GPUPROV_STATE_DIR=str(state), HOME=str(home), TERM="dumb", LC_ALL="C.UTF-8")

    def popen(self, *args, env=None, **kw):
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([str(self.program), *map(str, args)], text=True,
                                errors="replace", env={**self.env, **(env or {})}, start_new_session=True, **kw)

    def __call__(self, *args, code=0, timeout=300, env=None, cwd=None):
        p = self.popen(*args, env=env, cwd=cwd)
        try:
            out, err = p.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGABRT)
            out, err = p.communicate()
            pytest.fail(f"no end within {timeout} s: {Result(p.args, p.returncode, out, err)!r}")
        result = Result(p.args, p.returncode, out, err)
        if code is not None:
            assert result.code == code, f"expected exit {code}\n{result!r}"
        return result

    def json(self, *args, **kw):
        return self(*args, "--json", **kw).json


@pytest.fixture(scope="session")
def program():
    return built_program()


@pytest.fixture
def gpuprov(program, tmp_path):
    """The program with an empty state folder and an empty home. What a test left is taken down."""
    state, home = tmp_path / "state", tmp_path / "home"
    home.mkdir()
    g = Gpuprov(program, state, home)
    yield g
    if (state / "local").is_dir() and any((state / "local").iterdir()):
        for stack in g.json("status", code=None).get("stacks", []):
            g("down", stack["name"], code=None)


@pytest.fixture
def spec(tmp_path):
    """spec("name: x\\n..."): writes a spec and gives its path."""
    def write(text, name="spec.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path
    return write


def can_namespaces():
    """Whether a child may make the namespaces that test hosts need."""
    if not shutil.which("unshare"):
        return "no unshare program"
    p = subprocess.run(["unshare", "-m", "-n", "-p", "-f", "--mount-proc", "true"],
                       capture_output=True, text=True)
    return "" if p.returncode == 0 else f"namespaces are refused: {p.stderr.strip()}"


def pytest_configure(config):
    config.pluginmanager.register(Timing())
    config.addinivalue_line("markers", "root: needs root (test hosts, node clones)")
    config.addinivalue_line("markers", "namespaces: needs to make mount, net and pid namespaces")


def pytest_collection_modifyitems(items):
    why = None
    for item in items:
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root"))
        if item.get_closest_marker("namespaces"):
            why = can_namespaces() if why is None else why
            if why:
                item.add_marker(pytest.mark.skip(reason=why))


def pytest_sessionfinish(session, exitstatus):
    """A run in which nothing passed is a failure, whatever was skipped. GPUPROV_NO_SKIPS: so is a skipped test."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or exitstatus not in (0, 5) or session.config.option.collectonly:
        return
    passed, skipped = (len(reporter.stats.get(what, [])) for what in ("passed", "skipped"))
    if passed == 0:
        print("\nnothing ran: that is a failure")
    elif skipped and os.environ.get("GPUPROV_NO_SKIPS"):
        print(f"\n{skipped} tests were skipped, which GPUPROV_NO_SKIPS makes a failure")
    else:
        return
    session.exitstatus = 1
