# SPDX-License-Identifier: Apache-2.0
"""bootstrap.cache where dnf manages the packages: each rpm is fetched once, by the hash in dnf's own metadata."""
import pathlib

import lab as labs
import pytest
from cache_lab import Cache, CountingRepo, install
from repo import RpmRepo

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


class CountingRpmRepo(CountingRepo, RpmRepo):
    add, use = RpmRepo.add, RpmRepo.use
    suffix = ".rpm"


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("lab")
    with labs.Lab(tmp, base_script="base_dnf.sh") as made:
        made.repo = CountingRpmRepo(tmp / "repo")
        made.repo.add("gp-one")
        made.repo.add("gp-two", tags="Requires: gp-one")
        made.nodes = [made.add("light", "h%d" % i, "10.77.1.%d" % i) for i in (2, 3, 4)]
        for host in made.nodes:
            host.wait_ssh()
        made.repo.build(made.nodes[0])
        made.repo.serve(made, "10.77.0.1")
        for host in made.nodes:
            made.repo.use(host)
        yield made
        made.repo.close()


@pytest.fixture(name="cache")
def cache_fixture(lab):
    lab.repo.forget()
    made = Cache(lab)
    yield made
    made.keep(end="yes")
    for host in lab.nodes:
        host.sh("rpm -e gp-two gp-one; rm -rf /var/cache/dnf", check=False)


@pytest.mark.long
def test_each_rpm_is_fetched_once(lab, cache):
    cache.keep(peers=[h.address for h in lab.nodes])
    for host in lab.nodes:
        out = install(host, "http://%s:%d" % (cache.host.address, cache.port), "gp-two")
        assert "::warn" not in out and "asks the package cache" in out, out
        assert host.sh("rpm -q gp-one gp-two").stdout.count("1.0-1") == 2
    assert lab.repo.fetched() == ["gp-one", "gp-two"]
    assert cache.host.sh("find /var/cache/dnf -name '*.gpuprov'").stdout == ""


def test_a_cache_that_is_gone(lab, cache):
    out = install(lab.nodes[1], "http://10.77.0.1:8082", "gp-two")
    assert "::warn fetches 2 of 2 packages directly: the package cache at http://10.77.0.1:8082: <urlopen error" in out
    assert lab.repo.fetched() == ["gp-one", "gp-two"]


def test_an_error_is_that_of_dnf(lab, cache):
    cache.keep(peers=[lab.nodes[1].address])
    out = install(lab.nodes[1], "http://%s:%d" % (cache.host.address, cache.port), "gp-three", check=False)
    assert "::warn fetches packages directly: the package cache was not used: " in out
    assert "::error dnf reported: Error: Unable to find a match: gp-three" in out, out


@pytest.mark.parametrize("tool", ["curl", "wget"])
def test_the_tools_that_fetch(lab, cache, tmp_path, tool):
    """Those of a node without apt, tried on this machine: also an address that is refused, and a redirection."""
    script = (pathlib.Path(labs.ROOT) / "templates/bootstrap/cache/fetch.sh").read_text()
    script = script.replace("/usr/lib/apt/apt-helper", "/nowhere")
    (tmp_path / "fetch").write_text(script if tool == "curl" else script.replace("command -v curl", "false"))
    if lab.run(["sh", "-c", "command -v " + tool], capture_output=True).returncode != 0:
        pytest.skip("this machine has no " + tool)
    rpm = next(lab.repo.folder.rglob("gp-one*.rpm"))
    url = "http://10.77.0.1:8080/%s" % rpm.relative_to(lab.repo.folder)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    fetch = ["sh", tmp_path / "fetch", url, tmp_path / "out"]
    assert lab.run(fetch, env=env).returncode == 0 and (tmp_path / "out").read_bytes() == rpm.read_bytes()
    for bad in (url.replace(":8080/", ":8080/away/"), "http://127.0.0.1:8080/x", "http://localhost:8080/x"):
        fetch[2:] = [bad, tmp_path / "out2"]
        assert lab.run(fetch, env=env, capture_output=True).returncode != 0, bad
        assert not (tmp_path / "out2").exists() or (tmp_path / "out2").stat().st_size == 0
