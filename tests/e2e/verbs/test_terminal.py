# SPDX-License-Identifier: Apache-2.0
"""Live progress in a real terminal (tmux): what stays on the screen and in its history."""
import os
import pathlib
import re
import shutil

import pytest

from terminal import Terminal

ROOT = pathlib.Path(__file__).resolve().parents[3]
DRIVER = pathlib.Path(os.environ.get("B", ROOT / "build")) / "tests" / "drivers" / "live_driver"
pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux")


@pytest.fixture
def terminal(tmp_path):
    assert DRIVER.is_file(), f"{DRIVER} is not built: run 'make drivers'"
    opened = []

    def start(columns, rows, nodes, step_ms):
        opened.append(Terminal(tmp_path, columns, rows, f"{DRIVER} {nodes} {step_ms} {tmp_path}/go-on"))
        return opened[-1]
    yield start
    for t in opened:
        t.close()


HEADING = re.compile(r"llm  \d")


def test_only_what_stays_is_in_the_history(terminal):
    """More nodes than lines: the live area fills the screen from its first row on."""
    t = terminal(80, 12, 40, 20)
    t.wait(lambda: any(HEADING.match(line) for line in t.screen()))
    t.go_on.touch()
    t.wait(t.done.exists)
    t.wait(lambda: "END" in t.screen())
    lines = t.screen(history=True)
    assert not [line for line in lines if HEADING.match(line) or line.startswith("  ")], lines
    assert sorted(re.findall(r"^llm/(\d+) ready: in", "\n".join(lines), re.M), key=int) \
        == [str(n) for n in range(40)]
    assert lines.count("llm/1 bootstrap: warning: packages: slow mirror") == 1


def test_a_resize_in_the_middle_leaves_nothing_behind(terminal):
    t = terminal(80, 20, 6, 150)
    t.wait(lambda: any(HEADING.match(line) for line in t.screen()))
    t.run("resize-window", "-x", "38", "-y", "20")
    t.go_on.touch()
    t.wait(lambda: any("ready: in" in line for line in t.screen()))
    t.wait(t.done.exists)
    t.wait(lambda: "END" in t.screen())
    assert not [line for line in t.screen() if HEADING.match(line) or line.startswith("  llm")]
