# SPDX-License-Identifier: Apache-2.0
"""`gpuprov run` on machines of a hosts file, whose cables are pulled: ten minutes without a network in both directions. The
ten minutes pass on the program's own clock only (tests/hosts/clock.py)."""
import json

import pytest

from clock import Clock
from fleet import Fleet
from job_lab import in_use, seen
from lab import why_not
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = {"name": "far", "nodes": 2, "offers": [{"provider": "ssh", "hosts": "fleet.yaml"}], "validate": {"time": "1m"},
        "job": {"run": "mkdir -p out; i=0; while [ ! -e stop ]; do i=$((i + 1)); echo line $i; sleep 0.02; done; echo $i >out/n",
                "outputs": [{"path": "out", "to": "results"}]}}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    if why_not():
        pytest.skip(why_not())
    with Fleet(tmp_path_factory.mktemp("far"), 2) as made:
        yield made


@pytest.fixture
def inside(gpuprov, fleet, tmp_path):
    """The program in the network of the machines, which have nothing of an earlier test."""
    for host in fleet.nodes:
        host.sh("rm -rf /home/ops/.gpuprov/work /home/ops/.gpuprov/jobs")
    return fleet.enter(gpuprov, tmp_path)


def stop(fleet):
    for host in fleet.nodes:
        host.sh("touch /home/ops/.gpuprov/work/stop")


def ten_minutes(fleet, clock, meanwhile):
    """Without a network; meanwhile() is called after the first of them."""
    for host in fleet.nodes:
        host.cut()
    clock.jump(61)
    meanwhile()
    for _ in range(9):
        clock.jump(60)
    for host in fleet.nodes:
        host.mend()


@pytest.mark.matrix(keep=1)
@pytest.mark.parametrize("phase", ["job", "results"])
def test_ten_minutes_without_a_network(inside, fleet, tmp_path, phase):
    spec, clock = tmp_path / "spec.yaml", Clock(tmp_path)
    spec.write_text(json.dumps(SPEC))  # JSON is YAML
    with (tmp_path / "out").open("w+") as out:
        p = inside.popen("run", spec, env=clock.env, stdout=out)
        if phase == "job":
            wait_for(lambda: "[1] line 9\n" in (tmp_path / "out").read_text(), 120)
            ten_minutes(fleet, clock, lambda: seen(p, "it counts as lost after 15m"))
            stop(fleet)
        else:
            wait_for(lambda: "[1] line 1\n" in (tmp_path / "out").read_text(), 120)
            with in_use(tmp_path / "results/0"), in_use(tmp_path / "results/1"):
                stop(fleet)
                seen(p, "yet, trying again for ")
                ten_minutes(fleet, clock, lambda: seen(p, "trying again for 1[0-5]m"))
        _, err = p.communicate(timeout=120)
        out.seek(0)
        lines = out.read().splitlines()
    assert p.returncode == 0, err
    for rank in (0, 1):
        n = int((tmp_path / f"results/{rank}/n").read_text())
        assert [line for line in lines if line.startswith(f"[{rank}]")] == [f"[{rank}] line {i}" for i in range(1, n + 1)]
