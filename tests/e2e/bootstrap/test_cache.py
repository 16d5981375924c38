# SPDX-License-Identifier: Apache-2.0
"""bootstrap.cache: four hosts with a real apt and a repository that counts what is fetched from it."""
import json
import sys

import pytest
from fleet import Fleet
from lab import why_not
from repo import Repo

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

# Serves a folder and appends each path to the file "log". While "hold" is there a .deb stops in its middle.
SERVER = """
import functools, http.server, os, sys, time
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        with open("log", "a") as log:
            log.write(self.path + "\\n")
        super().do_GET()
    def copyfile(self, source, to):
        data = source.read()
        to.write(data[:len(data) // 2])
        to.flush()
        while self.path.endswith(".deb") and os.path.exists("hold"):
            time.sleep(0.05)
        to.write(data[len(data) // 2:])
    def log_message(self, *args):
        pass
os.chdir(sys.argv[2])
http.server.ThreadingHTTPServer((sys.argv[1], 8080), Handler).serve_forever()
"""
NAMES = ["gp-a", "gp-b", "gp-c", "gp-d", "gp-e", "gp-f"]


class CountingRepo(Repo):
    def serve(self, lab, address, port=8080):
        self.address, self.port = address, port
        self.server = lab.popen([sys.executable, "-c", SERVER, address, str(self.folder)])

    def fetched(self):
        """The names of the packages that were fetched, one for each request."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return sorted(line.split("/")[-1].split("_")[0] for line in lines if line.endswith(".deb"))

    def forget(self):
        (self.folder / "log").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    if why_not():
        pytest.skip(why_not())
    tmp = tmp_path_factory.mktemp("cache")
    with Fleet(tmp, 4) as made:
        made.repo = CountingRepo(tmp / "repo")
        for name in NAMES:
            made.repo.add(name, size=200000)
        made.repo.serve(made, "10.77.0.1")
        for host in made.nodes:
            made.repo.use(host)
        yield made
        made.repo.close()


@pytest.fixture
def inside(gpuprov, fleet, tmp_path):
    fleet.repo.forget()
    yield fleet.enter(gpuprov, tmp_path)
    for host in fleet.nodes:
        host.sh("dpkg -P %s 2>/dev/null; rm -f /var/cache/apt/archives/*.deb; true" % " ".join(NAMES))


def write(path, packages=NAMES, **more):
    spec = {"name": "cached", "nodes": 4, "offers": [{"provider": "ssh", "hosts": "fleet.yaml"}],
            "bootstrap": {"packages": packages, "cache": "first-node"}, "validate": {"time": "1m"}, **more}
    path.write_text(json.dumps(spec))  # JSON is YAML
    return path


def left_behind(fleet):
    """What the cache left on the hosts: processes, its folder, settings of apt."""
    found = []
    for host in fleet.nodes:
        found += host.sh("ps -eo args | grep '[g]puprov-agent cache'; ls -d /var/tmp/gpuprov-cache* "
                         "/var/cache/apt/archives/gpuprov 2>/dev/null; grep -rl gpuprov /etc/apt; true").stdout.split("\n")
    return [line for line in found if line]


def test_each_package_is_fetched_once(inside, fleet, tmp_path):
    up = inside("up", write(tmp_path / "spec.yaml"), "--json", timeout=300)
    assert fleet.repo.fetched() == NAMES, (fleet.repo.fetched(), up)
    for host in fleet.nodes:
        assert host.sh("dpkg-query -W -f '${Status} ' %s" % " ".join(NAMES)).stdout.count("ok installed") == 6
    said = [e for e in up.events if e.get("step") == "cache"]
    assert len(said) == 1 and said[0]["text"].startswith("serves packages to the nodes: http://10.77.1."), up
    assert left_behind(fleet) == []
    again = inside("up", tmp_path / "spec.yaml", "--json", timeout=300)
    assert '"cache"' not in again.err and fleet.repo.fetched() == NAMES, again
    inside("down", "cached")
