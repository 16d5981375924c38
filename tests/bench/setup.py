# SPDX-License-Identifier: Apache-2.0
"""Setting up many hosts: gpuprov's bootstrap and Ansible do the same ten tasks on the same hosts, on fresh ones and
again. Hosts are namespaces with an sshd and a real apt on this very machine; packages come from a repository of the
benchmark's own. What the hosts look like afterwards is compared with what the tasks say."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

from fanout import descendants, pss_kib
from timing import Load, Skip, cost, load_words, median, sec, spread, table, verdict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "hosts"))
from fleet import Fleet
from lab import why_not
from repo import Repo

ANSIBLE = "ansible-core>=2.16,<2.20"
PACKAGES = ["bench-one", "bench-two", "bench-three"]
CONFIG, LINE = "/opt/bench/config", "x = 1"
FILES = {CONFIG: "colour = blue\n", "/etc/bench.conf": "[bench]\nsize = 8\n",
         "/etc/security/limits.d/bench.conf": "* soft memlock unlimited\n",
         "/etc/sysctl.d/90-bench.conf": "vm.swappiness = 10\n"}
DONE = "/opt/bench/done"
LINKED = 'test "$(readlink /opt/bench/link)" = %s' % CONFIG
GOAL = 5  # times as fast as Ansible


def steps():
    """Nine tasks as steps of a spec; the packages are the tenth."""
    made = [("folder", "sudo install -d -m 755 /opt/bench", "test -d /opt/bench")]
    for i, (path, text) in enumerate(FILES.items()):
        check = "test -s %s" % path if path == CONFIG else same(path, text)
        made.append(("file-%d" % i, "printf '%%s' %s | sudo tee %s >/dev/null" % (quoted(text), path), check))
    made += [("line", "echo '%s' | sudo tee -a %s >/dev/null" % (LINE, CONFIG), "grep -qxF '%s' %s" % (LINE, CONFIG)),
             ("link", "sudo ln -sfn %s /opt/bench/link" % CONFIG, LINKED),
             ("user", "sudo useradd -m bench", "id bench"),
             ("command", "sudo touch %s" % DONE, "test -e %s" % DONE)]
    return [{"name": name, "run": run, "check": check} for name, run, check in made]


def quoted(text):
    return "'%s'" % text.replace("'", "'\\''")


def same(path, text):
    """A check that the file has exactly this content."""
    return 'test "$(cat %s; echo .)" = %s' % (path, quoted(text + "."))


def play():
    tasks = [{"ansible.builtin.apt": {"name": PACKAGES}},
             {"ansible.builtin.file": {"path": "/opt/bench", "state": "directory", "mode": "0755"}}]
    for path, text in FILES.items():
        tasks.append({"ansible.builtin.copy": {"content": text, "dest": path, "force": path != CONFIG}})
    tasks += [{"ansible.builtin.lineinfile": {"path": CONFIG, "line": LINE}},
              {"ansible.builtin.file": {"src": CONFIG, "dest": "/opt/bench/link", "state": "link"}},
              {"ansible.builtin.user": {"name": "bench"}},
              {"ansible.builtin.command": {"cmd": "touch " + DONE, "creates": DONE}}]
    return [{"hosts": "all", "become": True, "gather_facts": False, "tasks": tasks}]


class Setup:
    def __init__(self, fleet, driver, ansible, folder):
        self.fleet, self.driver, self.ansible, self.folder = fleet, driver, ansible, pathlib.Path(folder)
        self.nodes = fleet.nodes
        self.hosts = self.folder / "setup-hosts"
        self.spec = self.folder / "setup-spec.yaml"
        self.inventory = self.folder / "setup-inventory"
        self.play = self.folder / "setup-play.yaml"
        fleet.hosts_file(self.folder / "fleet.yaml")  # and known_hosts
        self.known = self.folder / "known_hosts"
        self.spec.write_text(json.dumps({
            "name": "bench", "offers": [{"provider": "ssh", "hosts": "fleet.yaml"}],
            "bootstrap": {"packages": PACKAGES, "steps": steps()}}))
        self.play.write_text(json.dumps(play()))

    def use(self, n):
        self.nodes = self.fleet.nodes[:n]
        self.hosts.write_text("".join(h.address + "\n" for h in self.nodes))
        self.inventory.write_text("[all]\n%s[all:vars]\nansible_user=ops\nansible_ssh_private_key_file=%s\n"
                                  "ansible_python_interpreter=/usr/bin/python3\n"
                                  % (self.hosts.read_text(), self.fleet.key))

    def each(self, script):
        running = [subprocess.Popen(["nsenter", "-t", str(self.fleet.pid), "--net", "--mount", "--pid", "--ipc",
                                     str(pathlib.Path(__file__).resolve().parent.parent / "hosts" / "host.sh"), "exec",
                                     str(self.fleet.folder.resolve()), h.name, "sh", "-c", script],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                   for h in self.nodes]
        return [(p.communicate()[0], p.returncode) for p in running]

    def fresh(self):
        """As if nobody had been on the hosts. Ansible's connections end too."""
        shutil.rmtree(self.folder / "cp", ignore_errors=True)
        for out, code in self.each(
                "pkill -KILL -f '^sshd: .*@' ; dpkg -P %s >/dev/null 2>&1; userdel -r bench 2>/dev/null; "
                "rm -rf /opt/bench %s /home/ops/.gpuprov /home/ops/.ansible /var/cache/apt/archives/bench-*; "
                "test ! -e /opt/bench" % (" ".join(PACKAGES), " ".join(FILES))):
            if code != 0:
                raise RuntimeError("a host could not be cleaned: " + out)

    def check(self):
        """Whether the hosts are what the tasks say, whoever did them."""
        script = " && ".join(
            ["dpkg-query -W -f '${db:Status-Status}\\n' %s | grep -cx installed | grep -qx %d"
             % (" ".join(PACKAGES), len(PACKAGES)), "id bench >/dev/null", "test -e " + DONE,
             LINKED] +
            [same(path, text + (LINE + "\n" if path == CONFIG else "")) for path, text in FILES.items()])
        for h, (out, code) in zip(self.nodes, self.each(script)):
            if code != 0:
                raise RuntimeError("%s is not what the tasks say: %s" % (h.name, out))

    def ours(self):
        argv = self.fleet.in_net([self.driver, self.spec, self.hosts, "ops", self.fleet.key, self.known])
        return argv, None

    def theirs(self, forks, pipelining):
        (self.folder / "cp").mkdir(exist_ok=True)
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8",
               "ANSIBLE_HOME": str(self.folder / "ansible"), "ANSIBLE_NOCOLOR": "1",
               "ANSIBLE_PIPELINING": "1" if pipelining else "0",
               "ANSIBLE_SSH_ARGS": " ".join(
                   ["-F none -o ControlMaster=auto -o ControlPersist=60s -o StrictHostKeyChecking=yes",
                    "-o UserKnownHostsFile=%s" % self.known, "-o KexAlgorithms=curve25519-sha256"]),
               "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.folder / "cp")}
        argv = self.fleet.in_net([self.ansible, "-i", self.inventory, "-f", forks, self.play])
        return argv, env

    def judge(self, name, out, first):
        """Every host did everything the first time and nothing the second."""
        if name == "gpuprov":
            told = json.loads(out)
            good = told["failed"] == 0 and told["hosts"] == len(self.nodes) and (told["applied"] > 0) == first
        else:
            recap = [line for line in out.splitlines() if "unreachable=0" in line and "failed=0" in line]
            good = len(recap) == len(self.nodes) and all(("changed=0 " in line) != first for line in recap)
        if not good:
            raise RuntimeError("%s, %s run: %s" % (name, "first" if first else "second", out[-2000:]))


def peak_of(argv, env):
    """Largest sum of PSS, in KiB, of a command and all below it. Reading costs time: nothing else is measured then."""
    p = subprocess.Popen([str(a) for a in argv], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    peak, stop = [0], threading.Event()

    def watch():
        while not stop.wait(0.05):
            pids = [p.pid] + descendants(p.pid)
            peak[0] = max(peak[0], sum(pss_kib(pid, own=False) for pid in pids))
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        code = p.wait(timeout=600)
    finally:
        stop.set()
        watcher.join()
    if code != 0 or peak[0] == 0:
        raise RuntimeError("exit %d while memory was sampled: %s" % (code, argv))
    return peak[0]


def measure(setup, n, count):
    setup.use(n)
    clients = {"gpuprov": setup.ours,
               "Ansible, its defaults": lambda: setup.theirs(5, False),
               "Ansible, a fork per host, pipelining": lambda: setup.theirs(n, True)}
    names = list(clients)
    got = {(name, first): [] for name in names for first in (True, False)}
    load = Load()
    for i in range(count):
        for name in (names * 2)[i % len(names):][:len(names)]:
            if name == names[1] and n > 8 and i > 0:
                continue  # slow, and no goal compares with it
            setup.fresh()
            for first in (True, False):
                argv, env = clients[name]()
                c = cost(argv, env=env, timeout=900)
                setup.judge(name, c.out, first)
                setup.check()
                got[name, first].append(c)
    words = load_words(load.end())
    peaks = {}
    for name in (names[0], names[2]):
        setup.fresh()
        for first in (True, False):
            peaks[name, first] = peak_of(*clients[name]())
    return got, peaks, words


def rows_of(got, peaks):
    rows = []
    for (name, first), costs in got.items():
        base = got["Ansible, a fork per host, pipelining", first]
        low, high = spread(costs)
        peak = "%.0f MiB" % (peaks[name, first] / 1024) if (name, first) in peaks else "-"
        rows.append([name, "first" if first else "again",
                     "%s (%s to %s)" % (sec(median(costs)), sec(low), sec(high)) if len(costs) > 1 else sec(low) + " (one run)",
                     "%.3f" % (median(costs) / median(base)), sec(median(costs, "cpu")),
                     "%.3f" % (median(costs, "cpu") / median(base, "cpu")), peak])
    return rows


def install_ansible(folder):
    """A virtual environment of the benchmark's own, kept in the build folder."""
    venv = pathlib.Path(folder) / "ansible-venv"
    program = venv / "bin" / "ansible-playbook"
    if not program.exists():
        done = subprocess.run("python3 -m venv %s && %s/bin/pip install -q '%s'" % (venv, venv, ANSIBLE), shell=True,
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            shutil.rmtree(venv, ignore_errors=True)
            raise Skip("Ansible could not be installed: " + (done.stderr.strip().splitlines() or ["?"])[-1])
    return program


def add_python_apt(fleet, folder):
    """Ansible's module apt needs it on the hosts."""
    debs = pathlib.Path(folder) / "debs"
    debs.mkdir()
    debs.chmod(0o755)
    done = subprocess.run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", "python3-apt",
                           "python-apt-common", "distro-info-data"], cwd=debs, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise Skip("python3-apt could not be fetched for Ansible: " + done.stderr.strip()[-200:])
    for host in fleet.nodes:
        for deb in debs.glob("*.deb"):
            (host.file("/tmp") / deb.name).write_bytes(deb.read_bytes())
        host.sh("dpkg -i /tmp/*.deb && rm /tmp/*.deb && apt-get -q update")


def run(driver, build, folder, sizes, count):
    """Returns (title, text, goals)."""
    why = why_not()
    if why:
        raise Skip("no test hosts on this machine: " + why)
    ansible = install_ansible(build)
    parts, goals = [], []
    with Fleet(pathlib.Path(folder) / "setup-fleet", max(sizes)) as fleet:
        repo = Repo(pathlib.Path(folder) / "setup-repo")
        for name in PACKAGES:
            repo.add(name, size=100_000)
        repo.serve(fleet, "10.77.0.1")
        try:
            for host in fleet.nodes:
                repo.use(host)
            add_python_apt(fleet, folder)
            setup = Setup(fleet, driver, ansible, folder)
            for n in sizes:
                got, peaks, words = measure(setup, n, count)
                parts.append("%d hosts, %d rounds (%s):\n\n" % (n, count, words) + table(
                    ["client", "run", "wall, median (range)", "of the last one's", "client CPU", "of the last one's",
                     "peak memory"], rows_of(got, peaks)))
        finally:
            repo.close()
    for first in (True, False):
        ratio = median(got["Ansible, a fork per host, pipelining", first]) / median(got["gpuprov", first])
        goals.append(["%d hosts, bootstrap, %s: %d times as fast as Ansible"
                      % (n, "first run" if first else "again", GOAL), "%.1f" % ratio, verdict(ratio >= GOAL)])
    return "Bootstrap of many hosts", "\n".join(parts), goals
