# SPDX-License-Identifier: Apache-2.0
"""The runner of bootstrap steps: time limits, repetitions, reboots, and bad days of any step."""
import pytest

from test_bootstrap import lab_fixture, node_fixture  # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


def test_a_steps_own_time_limit(node):
    """It ends the step and not the bootstrap, whose limit is far away."""
    node.run()  # the agent is there: all the time below is the step's
    out = node.run(*node.step("slow", "echo begins; sleep 1000 & sleep 1000\n"), "--limit-s", "3",
                   error="step 'slow': did not finish within its 3 s and was killed; its last output: begins")
    assert out.result["rc"] == -8
    assert node.host.sh("pgrep -x sleep", check=False).stdout == ""


def test_a_limit_is_of_each_step(node):
    """Two steps whose limits are together longer than one of them."""
    steps = [*node.step("a", "sleep 2; echo a >> ~/ran\n"), "--limit-s", "60",
             *node.step("b", "sleep 2; echo b >> ~/ran\n"), "--limit-s", "60"]
    assert node.run(*steps).result["applied"] == 3
    assert node.host.file("/home/ops/ran").read_text() == "a\nb\n"


def test_a_step_is_repeated_where_its_row_allows_it(node):
    run = "echo x >> ~/runs; [ $(wc -l < ~/runs) -ge 3 ] || { echo not yet; exit 5; }\n"
    out = node.run(*node.step("flaky", run), "--tries", "3")
    assert out.result["applied"] == 2
    assert node.host.file("/home/ops/runs").read_text() == "x\nx\nx\n"
    assert "failed, tries again in 2 s (2 of 3): ended with status 5; its last output: not yet" in out.texts("flaky")
    assert any(t.startswith("failed, tries again in 4 s (3 of 3)") for t in out.texts("flaky")), out


def test_a_step_is_not_repeated_more_often(node):
    run = "echo x >> ~/runs; exit 5\n"
    node.run(*node.step("bad", run), "--tries", "2", error="step 'bad': ended with status 5")
    assert node.host.file("/home/ops/runs").read_text() == "x\nx\n"


def test_a_step_runs_once_by_default(node):
    out = node.run(*node.step("bad", "echo x >> ~/runs; exit 5\n"), error="step 'bad': ended with status 5")
    assert node.host.file("/home/ops/runs").read_text() == "x\n"
    assert not any("tries again" in t for t in out.texts("bad")), out


def test_a_failed_check_counts_as_a_failure(node):
    run = "echo x >> ~/runs\n"
    node.run(*node.step("c", run, "[ $(wc -l < ~/runs) -ge 2 ]"), "--tries", "2")
    assert node.host.file("/home/ops/runs").read_text() == "x\nx\n"
