# SPDX-License-Identifier: Apache-2.0
"""What every part of the benchmark needs: running a command and what it cost, medians, what the machine
is, and rows for the page. Figures of things that are compared come from rounds in which each had its turn."""
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import tempfile
import time

TICKS = os.sysconf("SC_CLK_TCK")


class Skip(Exception):
    """A comparison that this machine cannot make, with the reason."""


class Cost:
    """wall and cpu in seconds (cpu: user and system of the process and of all it waited for), rss in KiB
    (the largest that the process was), code: its exit."""

    def __init__(self, wall, cpu, rss, out="", code=0):
        self.wall, self.cpu, self.rss, self.out, self.code = wall, cpu, rss, out, code


def cost(argv, env=None, stdin=subprocess.DEVNULL, cwd=None, timeout=180, ok=(0,), enough=None):
    """Runs argv once. An exit code that is not in ok ends the benchmark: a failed run has no speed. enough: asked
    while it runs; true interrupts it."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.monotonic()
        p = subprocess.Popen([str(a) for a in argv], env=env, cwd=cwd, stdin=stdin, stdout=out, stderr=err)
        status, usage, peak = _wait(p, started + timeout, enough)
        wall = time.monotonic() - started
        p.returncode = os.waitstatus_to_exitcode(status)
        for f in (out, err):
            f.seek(0)
        text = out.read().decode(errors="replace")
        if p.returncode not in ok:
            raise RuntimeError("exit %d: %s: %s" % (p.returncode, " ".join(map(str, argv[:4])),
                                                    (err.read().decode(errors="replace") or text)[-800:]))
    return Cost(wall, usage.ru_utime + usage.ru_stime, peak or usage.ru_maxrss, text, p.returncode)


def _peak(pid):
    """Its largest size so far, in KiB. wait4's ru_maxrss begins with the size of the process that started it."""
    found = re.search(r"VmHWM:\s*(\d+)", pathlib.Path("/proc/%d/status" % pid).read_text())
    return int(found.group(1)) if found else 0


def _wait(p, deadline, enough):
    """wait4 with a deadline. Its size is read five times a second: more would cost what is being measured."""
    import select
    fd = os.pidfd_open(p.pid)
    peak = 0
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while not poll.poll(200):
            peak = max(peak, _peak(p.pid))
            if time.monotonic() > deadline:
                p.kill()
                deadline = time.monotonic() + 10
            elif enough and enough():
                p.send_signal(signal.SIGINT)
                enough = None
    finally:
        os.close(fd)
    _, status, usage = os.wait4(p.pid, 0)
    return status, usage, peak


def rounds(n, contestants, before=None):
    """Runs every contestant ({name: function() -> Cost}) n times, in turn, the order rotated every round
    so that nobody is always first. Returns {name: [Cost]}."""
    names = list(contestants)
    got = {name: [] for name in names}
    for i in range(n):
        for name in (names * 2)[i % max(1, len(names)):][:len(names)]:
            if before:
                before()
            got[name].append(contestants[name]())
    return got


def median(costs, what="wall"):
    return statistics.median(getattr(c, what) for c in costs)


def spread(costs, what="wall"):
    return min(getattr(c, what) for c in costs), max(getattr(c, what) for c in costs)


def ms(seconds):
    return "%.1f ms" % (seconds * 1e3) if seconds < 0.1 else "%.0f ms" % (seconds * 1e3)


def sec(seconds):
    return "%.2f s" % seconds


def verdict(ok):
    return "yes" if ok else "**no**"


class Load:
    """How busy the machine was between start and end(): what the figures have to be read with."""

    def __init__(self):
        self.first, self.started = self._stat(), time.monotonic()

    @staticmethod
    def _stat():
        fields = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        return [int(f) / TICKS for f in fields]

    def end(self):
        now = self._stat()
        user, nice, system, idle, iowait, irq, soft, steal = (b - a for a, b in zip(self.first, now))
        total = user + nice + system + idle + iowait + irq + soft + steal
        return {"busy_s": user + nice + system + irq + soft, "idle": (idle + iowait) / max(total, 1e-9),
                "steal": steal / max(total, 1e-9), "wall": time.monotonic() - self.started}


def load_words(load):
    runnable = pathlib.Path("/proc/loadavg").read_text().split()[0]
    return "CPU idle %.0f %%, stolen %.1f %% during it; load average at its end %s" % (
        load["idle"] * 100, load["steal"] * 100, runnable)


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.*)$", info, re.M)
    memory = int(re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1))
    kernel = re.match(r"[0-9.]+", platform.release()).group(0).rstrip(".")
    name = re.search(r'^PRETTY_NAME="(.*)"', pathlib.Path("/etc/os-release").read_text(), re.M).group(1)
    flags = re.search(r"^flags\s*:\s*(.*)$", info, re.M)
    has = [f for f in ("aes", "sha_ni") if flags and f in flags.group(1).split()]
    return "%d cores of a virtual machine (%s; %s), %.0f GiB memory, Linux %s, %s" % (
        os.cpu_count(), model.group(1) if model else platform.machine(),
        ", ".join(has) or "neither aes nor sha_ni", memory / 2**20, kernel, name)


def first_line(*argv):
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines and done.returncode == 0 else None


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
