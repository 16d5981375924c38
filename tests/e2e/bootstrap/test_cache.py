# SPDX-License-Identifier: Apache-2.0
"""bootstrap.cache: four hosts with a real apt and a repository that counts what is fetched from it."""
import hashlib
import json
import sys

import pytest
from cache_lab import Cache, CountingRepo, install, template
from fleet import Fleet
from lab import why_not
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

NAMES = ["gp-a", "gp-b", "gp-c", "gp-d", "gp-e", "gp-f"]


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
            host.sh("apt-get -q update")
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


def installed(fleet):
    """The number of packages on each host."""
    ask = "dpkg-query -W -f '${Status} ' %s; true" % " ".join(NAMES)
    return [host.sh(ask).stdout.count("ok installed") for host in fleet.nodes]


def left_behind(fleet):
    """What the cache left on the hosts: processes, its folder, settings of apt."""
    found = []
    for host in fleet.nodes:
        found += host.sh("ps -eo args | grep '[g]puprov-agent cache'; ls -d /var/tmp/gpuprov-cache* "
                         "/var/cache/apt/archives/gpuprov 2>/dev/null; grep -rl gpuprov /etc/apt; true").stdout.split("\n")
    return [line for line in found if line]


@pytest.mark.long
def test_each_package_is_fetched_once(inside, fleet, tmp_path):
    up = inside("up", write(tmp_path / "spec.yaml"), "--json", timeout=300)
    assert fleet.repo.fetched() == NAMES, (fleet.repo.fetched(), up)
    assert installed(fleet) == [6] * 4
    said = [e for e in up.events if e.get("step") == "cache"]
    assert len(said) == 1 and said[0]["text"].startswith("serves packages to the nodes: http://10.77.1."), up
    assert left_behind(fleet) == []
    again = inside("up", tmp_path / "spec.yaml", "--json", timeout=300)
    assert '"cache"' not in again.err and fleet.repo.fetched() == NAMES, again
    inside("down", "cached")


@pytest.mark.long
def test_a_killed_cache_costs_time_only(inside, fleet, tmp_path):
    """It dies in the middle of a file that all nodes wait for: they fetch directly, and it is started again."""
    hold = fleet.repo.folder / "hold"
    hold.write_text("")
    p = inside.popen("up", write(tmp_path / "spec.yaml", nodes=2), "--json")
    try:
        wait_for(fleet.repo.fetched, 60)
        host = next(h for h in fleet.nodes if h.sh("pgrep -f '[g]puprov-agent cache'", check=False).stdout)
        pid, port = host.sh("cat /var/tmp/gpuprov-cache-*/at").stdout.split()
        host.sh("kill -KILL " + pid)

        def another():
            now = host.sh("cat /var/tmp/gpuprov-cache-*/at").stdout.split()
            return now[0] != pid and now
        assert wait_for(another, 60)[1] == port  # the address that the nodes know
    finally:
        hold.unlink()
    out, err = p.communicate(timeout=300)
    assert p.returncode == 0, (out, err)
    warned = [e for e in map(json.loads, err.splitlines()) if e.get("status") == "warn" and "cache" in e["text"]]
    assert warned and all("packages directly: the package cache at http" in e["text"] for e in warned), warned
    assert sorted(installed(fleet)) == [0, 0, 6, 6]
    assert left_behind(fleet) == []
    inside("down", "cached")


@pytest.mark.long
def test_a_killed_program_leaves_no_cache(inside, fleet, tmp_path):
    """Nobody renews the lease: the cache ends, with its folder. The steps go on, as steps do."""
    hold = fleet.repo.folder / "hold"
    hold.write_text("")
    p = inside.popen("up", write(tmp_path / "spec.yaml", nodes=2), "--json")
    try:
        wait_for(fleet.repo.fetched, 60)
        assert any("gpuprov-agent cache" in line for line in left_behind(fleet))
        p.kill()
        p.communicate()
    finally:
        hold.unlink()
    wait_for(lambda: left_behind(fleet) == [], 180)
    wait_for(lambda: sorted(installed(fleet)) == [0, 0, 6, 6], 60)
    inside("down", "cached")


@pytest.mark.long
def test_the_cache_outlives_the_bootstrap_of_its_node(inside, fleet, tmp_path):
    """Its node fails in a later step; the other nodes get their packages from it all the same."""
    fails = {"name": "fails", "run": "! ls -d /var/tmp/gpuprov-cache-*"}
    bootstrap = {"packages": NAMES, "cache": "first-node", "steps": [fails]}
    up = inside("up", write(tmp_path / "spec.yaml", bootstrap=bootstrap, nodes=2), code=6, timeout=300)
    assert up.err.count("step 'fails': ended with status 1") >= 1 and "more node failed" not in up.err, up
    assert sorted(installed(fleet)) == [0, 0, 6, 6] and fleet.repo.fetched() == NAMES
    assert left_behind(fleet) == []
    inside("down", "cached")


# --- one cache by itself ---

@pytest.fixture
def cache(fleet):
    fleet.repo.forget()
    made = Cache(fleet)
    yield made
    made.keep(end="yes")


def test_what_the_cache_refuses(cache, fleet):
    cache.keep()
    good = fleet.repo.path("gp-a")
    sum_, size = good.split("/")[1:3]
    code, body = cache.get(good)
    assert code == 200 and hashlib.sha256(body).hexdigest() == sum_
    assert cache.get(good)[0] == 200 and fleet.repo.fetched() == ["gp-a"]
    cache.host.put("/etc/apt/sources.list.d/bad.list",
                   "deb http://169.254.169.254/ ./\ndeb http://meta.example/ ./\ndeb http://localhost:22/ ./\n")
    cache.host.sh("echo 169.254.169.254 meta.example >>/etc/hosts")
    other = "1" * 64
    for target, want in {
            "/%s/%s/http/169.254.169.254/latest/meta-data/" % (other, size): 403,
            "/%s/%s/http/localhost:22/x" % (other, size): 403,
            "/%s/%s/http/%s:22/x" % (other, size, cache.host.address): 403,
            "/%s/%s/http/%s:80/x" % (other, size, fleet.repo.address): 403,
            "/%s/%s/http/no.source.example/x" % (other, size): 403,
            "/%s/%s/http/meta.example/x" % (other, size): 502,  # its name is looked at, and its address
            good.replace("gp-a_1.0", "../gp-a_1.0"): 400, good.replace("gp-a_", "%2e%2e/gp-a_"): 400,
            "http://%s:8080/Packages" % fleet.repo.address: 400, "/": 400, "/../../etc/passwd": 400}.items():
        assert cache.get(target)[0] == want, target
    assert b" 405 " in cache.ask("CONNECT 10.77.0.1:8080 HTTP/1.1\r\n\r\n")
    assert b" 431 " in cache.ask("GET / HTTP/1.1\r\nA: %s\r\n\r\n" % ("x" * 20000))
    assert fleet.repo.fetched() == ["gp-a"]


def test_no_content_but_the_one_that_was_named(cache, fleet):
    """Another hash, another size, a redirection: the client never gets a whole file."""
    cache.keep()
    sum_, size, rest = fleet.repo.path("gp-b").split("/", 3)[1:]
    code, body = cache.get("/%s/%s/%s" % ("2" * 64, size, rest))
    assert code == 502 or (code == 200 and len(body) < int(size)), code
    code, body = cache.get("/%s/%d/%s" % (sum_, int(size) - 5, rest))
    assert code == 502 or (code == 200 and len(body) < int(size) - 5), code
    code, body = cache.get("/%s/%d/%s" % (sum_, int(size) + 5, rest))
    assert code == 502 or (code == 200 and len(body) <= int(size)), code
    code, body = cache.get("/%s/%s/%s" % (sum_, size, rest.replace(":8080/", ":8080/away/")))
    assert code == 502, code
    assert cache.host.sh("ls %s/store | grep -v lock; true" % cache.dir).stdout == ""
    assert cache.get(fleet.repo.path("gp-b"))[0] == 200  # a failure is not remembered


def test_many_at_once_are_one_fetch(cache, fleet):
    cache.keep()
    hold = fleet.repo.folder / "hold"
    hold.write_text("")
    target = fleet.repo.path("gp-c")
    command = ["sh", "-c", ("for i in $(seq 20); do python3 -c 'import hashlib, sys, urllib.request; "
               "print(hashlib.sha256(urllib.request.urlopen(sys.argv[1]).read()).hexdigest())' \"$1\" & done; wait"),
               "sh", "http://%s:%d%s" % (cache.host.address, cache.port, target)]
    clients = fleet.popen(command, stdout=-1, text=True, env={"PATH": "/usr/bin:/bin"})
    wait_for(lambda: cache.host.sh("pgrep -fc '[g]puprov-agent cache'; true").stdout.strip() >= "2", 60)
    hold.unlink()
    out, _ = clients.communicate(timeout=120)
    assert out.split() == [target.split("/")[1]] * 20 and fleet.repo.fetched() == ["gp-c"], out


def test_the_cache_answers_the_nodes_of_the_run_only(cache, fleet):
    cache.keep(peers=["10.77.1.9"])
    assert cache.ask("GET %s HTTP/1.1\r\n\r\n" % fleet.repo.path("gp-a")) == b""
    cache.keep(peers=["10.77.1.9", "10.77.0.1"])
    assert cache.get(fleet.repo.path("gp-a"))[0] == 200
    listens = cache.host.sh("ss -ltnH").stdout
    assert "%s:%d " % (cache.host.address, cache.port) in listens and listens.count(":%d " % cache.port) == 1, listens


def of_version(cache, node, driver):
    """The step fabric-manager, on a node where this driver is loaded; what it printed."""
    node.sh("echo 'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release' >/proc/driver/nvidia/version" % driver)
    words = "CACHE=http://%s:%d BUDGET=60 REFUSAL= BRANCH=580 EXACT= MINIMUM= FLAVOUR= NEED=x " % (
        cache.host.address, cache.port) + "PACKAGE=nvidia-fabricmanager UNIT=nvidia-fabricmanager PROGRAM=true\n"
    parts = [template(name) for name in ("run/lib", "run/pkg", "run/cache", "gpu/lib", "gpu/of-version")]
    return node.sh("mkdir -p /tmp/w; cd /tmp/w\n" + words + "".join(parts) + "apply\n").stdout


@pytest.mark.long
def test_a_service_of_the_drivers_version_comes_from_the_cache(cache, fleet):
    """Two nodes, one fetch; also of an older version than the one that is installed."""
    versions = ["580.95.05", "580.65.06"]
    for version in versions:
        fleet.repo.add("nvidia-fabricmanager", version + "-1", size=200000)
    nodes = fleet.nodes[1:3]
    cache.keep(peers=[node.address for node in nodes])
    try:
        for node in nodes:
            node.sh("apt-get -q update; mount -t tmpfs x /proc/driver; mkdir /proc/driver/nvidia")
            for version in versions:
                said = of_version(cache, node, version)
                assert "asks the package cache for 1 package\n" in said and "directly" not in said, said
                assert node.sh("dpkg-query -W -f '${Version}' nvidia-fabricmanager").stdout == version + "-1"
        assert fleet.repo.fetched() == ["nvidia-fabricmanager"] * 2
    finally:
        for node in nodes:
            node.sh("dpkg -P nvidia-fabricmanager; umount /proc/driver; rm -rf /etc/gpuprov; "
                    "rm -f /var/cache/apt/archives/*.deb", check=False)


def test_the_cache_ends_when_nobody_renews_it(cache):
    cache.keep(lease="1s")
    wait_for(lambda: not cache.alive, 30)
    assert cache.host.sh("ls -d %s; true" % cache.dir).stdout == ""
    cache.keep()
    assert cache.alive
    cache.keep(end="yes")
    assert not cache.alive and cache.host.sh("ls -d %s; true" % cache.dir).stdout == ""


def test_a_folder_of_somebody_else_is_not_used(cache):
    for make in ("mkdir -m 777 D", "mkdir -m 700 D; chown ops D", "mkdir -m 700 /tmp/x; ln -s /tmp/x D"):
        cache.host.sh(make.replace("D", cache.dir))
        done = cache.keep(check=False)
        assert done.returncode == 1 and "it is not a private folder of this user" in done.stdout, (make, done)
        cache.host.sh("rm -rf %s /tmp/x" % cache.dir)


# --- a node and a cache that lies ---

LIAR = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        size = int(self.path.split("/")[2])
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(b"x" * size)
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer((sys.argv[1], 8081), Handler).serve_forever()
"""


@pytest.fixture
def node(fleet):
    fleet.repo.forget()
    yield fleet.nodes[1]
    fleet.nodes[1].sh("dpkg -P %s 2>/dev/null; rm -f /var/cache/apt/archives/*.deb; true" % " ".join(NAMES))


def test_a_cache_that_lies_is_not_believed(fleet, node):
    liar = fleet.popen([sys.executable, "-c", LIAR, "10.77.0.1"])
    try:
        probe = ["bash", "-c", "exec 3<>/dev/tcp/10.77.0.1/8081"]
        wait_for(lambda: fleet.run(probe, capture_output=True).returncode == 0, 30)
        out = install(node, "http://10.77.0.1:8081", "gp-a gp-b")
    finally:
        liar.kill()
        liar.wait()
    assert "::warn fetches 2 of 2 packages directly: the package cache at http://10.77.0.1:8081: its files" in out, out
    assert fleet.repo.fetched() == ["gp-a", "gp-b"]
    assert node.sh("cat /usr/share/gp-a/data | sha256sum").stdout[:64] == hashlib.sha256(b"x" * 200000).hexdigest()


SLOW = """
import http.server, os, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", self.path.split("/")[2])
        self.end_headers()
        while True:
            self.wfile.write(b"x")
            time.sleep(1)
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer((sys.argv[1], 8083), Handler).serve_forever()
"""


@pytest.mark.long
def test_a_cache_that_is_slow(fleet, node):
    """It never stops to send, and the step has time for apt all the same: it is killed after 30 s."""
    slow = fleet.popen([sys.executable, "-c", SLOW, "10.77.0.1"])
    try:
        probe = ["bash", "-c", "exec 3<>/dev/tcp/10.77.0.1/8083"]
        wait_for(lambda: fleet.run(probe, capture_output=True).returncode == 0, 30)
        out = install(node, "http://10.77.0.1:8083", "gp-c", limit=30)
    finally:
        slow.kill()
        slow.wait()
    assert "::warn fetches 1 of 1 packages directly: the package cache at http://10.77.0.1:8083: it is too slow" in out, out
    assert fleet.repo.fetched() == ["gp-c"] and node.sh("dpkg -s gp-c | grep -c 'ok installed'").stdout == "1\n"


def test_a_cache_that_is_gone(fleet, node):
    out = install(node, "http://10.77.0.1:8082", "gp-a")
    assert "::warn fetches 1 of 1 packages directly: " in out and "Could not connect to 10.77.0.1:8082" in out, out
    assert fleet.repo.fetched() == ["gp-a"]


def test_a_source_that_the_cache_cannot_take(cache, fleet, node):
    """A list of mirrors that has none by http: apt goes on by itself, and the step says so."""
    cache.keep(peers=[node.address])
    node.put("/etc/apt/mirrors/test.list", "file:///srv/repo/\n")
    node.sh("mkdir -p /srv/repo")
    for file in [*fleet.repo.folder.glob("*.deb"), *fleet.repo.folder.glob("Packages*")]:
        (node.file("/srv/repo") / file.name).write_bytes(file.read_bytes())
    list_ = node.file("/etc/apt/sources.list.d/test.list")
    before = list_.read_text()
    try:
        list_.write_text("deb [trusted=yes] mirror+file:/etc/apt/mirrors/test.list ./\n")
        node.sh("apt-get -q update")
        out = install(node, "http://%s:%d" % (cache.host.address, cache.port), "gp-f")
    finally:
        list_.write_text(before)
        node.sh("apt-get -q update; rm -r /srv/repo")
    assert "::warn fetches 1 of 1 packages directly: " in out and ": it takes http, https and SHA-256 only\n" in out, out
    assert fleet.repo.fetched() == []


def test_a_list_of_mirrors(cache, fleet, node):
    """Debian's cloud images name their mirrors in a file."""
    cache.keep(peers=[node.address])
    node.put("/etc/apt/mirrors/test.list", "http://10.77.0.1:8080/\thello\n")
    list_ = node.file("/etc/apt/sources.list.d/test.list")
    before = list_.read_text()
    try:
        list_.write_text("deb [trusted=yes] mirror+file:/etc/apt/mirrors/test.list ./\n")
        node.sh("apt-get -q update")
        out = install(node, "http://%s:%d" % (cache.host.address, cache.port), "gp-d")
    finally:
        list_.write_text(before)
        node.sh("apt-get -q update")
    assert "::warn" not in out and "asks the package cache for 1 package\n" in out, out
    assert fleet.repo.fetched() == ["gp-d"]
    assert "fetched http://10.77.0.1:8080/./gp-d" in cache.host.sh("cat %s/log" % cache.dir).stdout


@pytest.mark.long
def test_a_repository_with_tls(cache, fleet, node):
    """The cache fetches by https as its node's own apt does: with a certificate that the node trusts, or not at all."""
    both = (cache.host, node)
    cache.keep(peers=[node.address, "10.77.0.1"])
    before = {h: h.file("/etc/apt/sources.list.d/test.list").read_text() for h in both}
    target = fleet.repo.path("gp-e").replace("/http/10.77.0.1:8080/", "/https/repo.example:8443/")
    try:
        for h in both:
            h.sh("echo 10.77.0.1 repo.example >>/etc/hosts")
            h.put("/etc/apt/sources.list.d/test.list", "deb [trusted=yes] https://repo.example:8443 ./\n")
        assert cache.get(target)[0] == 502 and fleet.repo.fetched() == []
        for h in both:
            h.put("/etc/ssl/certs/repo.pem", fleet.repo.certificate.read_text())
            h.put("/etc/apt/apt.conf.d/99repo", 'Acquire::https::CAInfo "/etc/ssl/certs/repo.pem";\n')
        node.sh("apt-get -q update")
        out = install(node, "http://%s:%d" % (cache.host.address, cache.port), "gp-e")
        assert cache.get(target)[0] == 200
    finally:
        for h in both:
            h.sh("rm -f /etc/apt/apt.conf.d/99repo")
            h.file("/etc/apt/sources.list.d/test.list").write_text(before[h])
        node.sh("apt-get -q update")
    assert "::warn" not in out and fleet.repo.fetched() == ["gp-e"], out
