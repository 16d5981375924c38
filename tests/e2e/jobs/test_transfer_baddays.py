# SPDX-License-Identifier: Apache-2.0
"""Transfers that are interrupted, meet a full disk or another transfer: a repetition continues, nothing half is left in
place."""
import os
import re
import signal
import subprocess

import pytest

from small_disk import fill, small_disk
from transfer_lab import Line, agents_of, describe, home_fixture, node_fixture  # noqa: F401
from waiting import wait_for

MIB = 1 << 20
SIZE = 24 * MIB


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.mkdir()
    (path / "big").write_bytes(os.urandom(SIZE))
    for i in range(20):
        (path / ("small%d" % i)).write_bytes(os.urandom(100))
    return path


def parts(folder):
    return [p for p in folder.rglob(".gpuprov-part.*") if not p.name.endswith("lock")]


@pytest.mark.parametrize("how, way", [("up", "up"), ("down", "down")])
def test_a_lost_connection_is_opened_again(node, home, source, how, way):
    with Line(node, (way, 9 * MIB, "cut"), (way, 8 * MIB, "cut")) as line:
        got = node.copy(how, source, home / "w", port=line.port)
    assert describe(home / "w") == describe(source) and not parts(home)
    assert SIZE < got["bytes_sent"] < SIZE + 6 * MIB  # each time only what was on its way is sent again
    assert got["files_sent"] == 21


@pytest.mark.parametrize("how, way", [("up", "up"), ("down", "down")])
def test_a_killed_program_leaves_a_beginning(node, home, source, how, way):
    with Line(node, (way, 9 * MIB, "stall")) as line:
        p = node.start(how, source, home / "w", port=line.port)
        [part] = wait_for(lambda: [q for q in parts(home) if q.stat().st_size >= 4 * MIB])
        assert not (home / "w" / "big").exists()
        p.kill()
        p.wait()
    wait_for(lambda: not agents_of(node))
    got = node.copy(how, source, home / "w")
    assert describe(home / "w") == describe(source) and not part.exists()
    assert got["bytes_sent"] < SIZE - 3 * MIB


@pytest.mark.parametrize("how, way", [("up", "up"), ("down", "down")])
def test_a_beginning_of_another_content_is_not_used(node, home, source, how, way):
    with Line(node, (way, 9 * MIB, "stall")) as line:
        p = node.start(how, source, home / "w", port=line.port)
        wait_for(lambda: [q for q in parts(home) if q.stat().st_size >= 4 * MIB])
        p.kill()
        p.wait()
    wait_for(lambda: not agents_of(node))
    (source / "big").write_bytes(os.urandom(SIZE - 1))
    node.copy(how, source, home / "w")
    assert describe(home / "w") == describe(source)


def test_the_agent_of_a_connection_that_hangs_is_replaced(node, home, source):
    """The node does not notice that the line is dead: its agent still waits, and holds the folder."""
    with Line(node, ("up", 9 * MIB, "stall")) as line:
        p = node.start("up", source, home / "w", port=line.port)
        wait_for(lambda: line.stalled)
        line.stalled[0].close()  # only the client's end
        got, err = p.communicate(timeout=120)
    assert p.returncode == 0, (got, err)
    assert describe(home / "w") == describe(source)


def test_another_transfer_to_the_same_folder_is_refused(node, home, source):
    with Line(node, ("up", 9 * MIB, "stall")) as line:
        p = node.start("up", source, home / "w", port=line.port)
        wait_for(lambda: line.stalled)
        refused = node.up(source, home / "w", code=1)["error"]
        assert refused["code"] == "busy" and "another gpuprov copies to" in refused["message"]
        assert "repeat this command" in refused["message"]
        p.kill()
        p.wait()


@pytest.mark.root
def test_a_full_disk_of_a_node(node, home, source):
    with small_disk(home / "w", "16m") as w:
        (w / "ballast").write_bytes(bytes(4 * MIB))
        error = node.up(source, w, code=1)["error"]
        assert error["code"] == "io" and error["detail"] == "DISK_FULL"
        assert "could not write" in error["message"] and "No space left" in error["message"]
        assert "free some space and repeat the command" in error["message"]
        assert error["message"].startswith("t/0: ")
        subprocess.run(["mount", "-o", "remount,size=64m", w], check=True)
        got = node.up(source, w)
        assert got["bytes_sent"] < SIZE - 8 * MIB
        (w / "ballast").unlink()
        assert describe(w) == describe(source)


@pytest.mark.root
def test_what_does_not_fit_here_is_refused_before_it_comes(node, home, source):
    with small_disk(home / "w", "16m") as w:
        (w / "ballast").write_bytes(bytes(4 * MIB))
        got = node.down(source, w, code=1)
        assert got["bytes_sent"] < MIB and got["error"]["code"] == "io" and got["error"]["detail"] == "DISK_FULL"
        assert re.search(r"^'big' does not fit: it and the files before it need 25\.\d MB here, and 12\.\d MB are free; "
                         "free some space and repeat the command$", got["error"]["message"])
        subprocess.run(["mount", "-o", "remount,size=64m", w], check=True)
        node.down(source, w)
        (w / "ballast").unlink()
        assert describe(w) == describe(source)


@pytest.mark.root
def test_a_disk_without_a_single_byte(node, home, source):
    with small_disk(home / "w", "1m") as w:
        fill(w)
        assert node.up(source, w, code=1)["error"]["detail"] == "DISK_FULL"


@pytest.mark.parametrize("how, way", [("up", "up"), ("down", "down")])
def test_cancelled_at_once(node, home, source, how, way):
    with Line(node, (way, 9 * MIB, "stall")) as line:
        p = node.start(how, source, home / "w", port=line.port)
        wait_for(lambda: line.stalled)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=20)
    assert p.returncode == 1 and b'"cancelled"' in out, (out, err)


def test_a_limit_of_time(node, home, source):
    with Line(node, ("up", 9 * MIB, "stall")) as line:
        error = node.up(source, home / "w", "limit=3000", port=line.port, code=1)["error"]
    assert error["code"] == "timeout" and "repeat it: it continues" in error["message"]


def test_files_that_change_and_vanish(node, home, source):
    """What is read is whole or named."""
    with Line(node, ("up", 9 * MIB, "stall"), (None, 0, None)) as line:
        p = node.start("up", source, home / "w", port=line.port)
        wait_for(lambda: line.stalled)
        with (source / "big").open("r+b") as f:
            f.truncate(SIZE - 5 * MIB)
        line.stalled[0].close()
        out, err = p.communicate(timeout=120)
    assert p.returncode == 0, (out, err)
    node.up(source, home / "w")
    assert describe(home / "w") == describe(source)
