# SPDX-License-Identifier: Apache-2.0
"""What a local node can read of the machine: nothing that the world may not read, and nothing that is
made in /etc or /var after it started. Files with a mark of the test's own are planted on the machine."""
import contextlib
import os
import pathlib
import secrets
import shlex
import shutil

import pytest
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: secrets
nodes: 1
offers: [{provider: local}]
limits: {ttl: 20m}
validate: {time: 1m, require: []}
"""


class Planted:
    """Files on the machine, each with its own text; everything goes when the block ends."""

    def __init__(self):
        self.mark = "gpuprov-test-" + secrets.token_hex(6)
        self.secret, self.public, self._made = {}, {}, []

    def folder(self, path, mode=0o755):
        path = pathlib.Path(path)
        path.mkdir()
        self._made.append(path)
        path.chmod(mode)
        return path

    def file(self, path, mode, *, hidden):
        path = pathlib.Path(path)
        text = f"{'SECRET' if hidden else 'PUBLIC'}-{self.mark}-{len(self._made)}.\n"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._made.append(path)
        os.write(fd, text.encode())
        os.fchmod(fd, mode)
        os.close(fd)
        (self.secret if hidden else self.public)[str(path)] = text.strip()
        return path

    def also(self, path, make):
        """Another name (a link) under which no secret may be read."""
        make(path)
        self._made.append(pathlib.Path(path))
        self.secret[str(path)] = self.secret[str(self._secret_below(path))]

    def _secret_below(self, path):
        """The planted file that a link leads to."""
        return next(f for f in self.secret if os.path.samefile(f, path))

    def remove(self):
        for path in reversed(self._made):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.fixture
def planted():
    p = Planted()
    try:
        yield p
    finally:
        p.remove()


def plant_before(p):
    for top in ("/opt", "/usr/local", "/usr/local/share", "/var", "/var/lib", "/etc", "/var/cache/apt",
                "/var/lib/dpkg", "/var/cache"):
        if not os.path.isdir(top):
            continue
        p.file(f"{top}/{p.mark}-root-only", 0o600, hidden=True)
        p.file(f"{top}/{p.mark}-group-only", 0o640, hidden=True)
        shut = p.folder(f"{top}/{p.mark}-shut", 0o700)
        p.file(shut / f"{p.mark}-readable", 0o644, hidden=True)
        enter = p.folder(f"{top}/{p.mark}-enter-only", 0o711)
        p.file(enter / f"{p.mark}-readable", 0o644, hidden=True)
        own = p.folder(f"{top}/{p.mark} it's =%,:\\\n-odd")
        p.file(own / f"{p.mark} it's =%,:\\\n-odd", 0o600, hidden=True)
        p.also(f"{top}/{p.mark}-link", lambda path, to=shut: os.symlink(to / f"{p.mark}-readable", path))
        p.also(f"{top}/{p.mark}-hard", lambda path, to=top: os.link(f"{to}/{p.mark}-root-only", path))
        p.file(f"{top}/{p.mark}-public", 0o644, hidden=False)
    if os.path.isdir("/var/lib/private"):
        p.file(f"/var/lib/private/{p.mark}", 0o644, hidden=True)
    deep = pathlib.Path(f"/opt/{p.mark}-deep")
    for _ in range(30):  # deeper than a walk goes
        deep = p.folder(deep) / "d"
    p.file(deep.parent / p.mark, 0o600, hidden=True)
    for top in ("/etc", "/var/lib"):
        p.file(f"{top}/{p.mark}-opened-later", 0o600, hidden=True)
    for top in ("/opt", "/usr/local"):
        # public while the node starts: its text is not secret then, and it is never read before
        p.file(f"{top}/{p.mark}-shut-later", 0o644, hidden=True)


def plant_after(p):
    for top in ("/etc", "/var", "/var/lib", "/var/cache"):
        p.file(f"{top}/{p.mark}-late-public", 0o644, hidden=True)
        p.file(f"{top}/{p.mark}-late-secret", 0o600, hidden=True)
        p.file(p.folder(f"{top}/{p.mark}-late-folder") / p.mark, 0o644, hidden=True)
    for top in ("/opt", "/usr/local", "/var/lib/dpkg", "/var/cache/apt"):
        if os.path.isdir(top):
            p.file(f"{top}/{p.mark}-late-secret", 0o600, hidden=True)
            p.file(p.folder(f"{top}/{p.mark}-late-shut", 0o700) / p.mark, 0o644, hidden=True)
    for top in ("/etc", "/var/lib"):
        os.chmod(f"{top}/{p.mark}-opened-later", 0o644)
    for top in ("/opt", "/usr/local"):
        os.chmod(f"{top}/{p.mark}-shut-later", 0o600)


def all_that_can_be_read(gpuprov, p):
    """Every way a node's root has: by name, by search, through processes, in a namespace of its own."""
    paths = " ".join(shlex.quote(path) for path in [*p.secret, *p.public])
    state = shlex.quote(str(gpuprov.state))
    script = f"""
        for f in {paths}; do
            cat "$f"; cp -a "$f" /tmp/copy; cat /tmp/copy; rm -rf /tmp/copy
            for r in /proc/1/root /proc/self/root /proc/[0-9]*/cwd; do cat "$r$f"; done
            chmod 644 "$f"; cat "$f"
        done
        find / -name '*{p.mark}*' -not -path '/proc/*' -type f -exec cat {{}} +
        find /etc /var -not -path '/var/cache/apt/*' -type f -exec grep -ahs 'SECRET-{p.mark}' {{}} +
        find {state} -type f -exec grep -ahs 'SECRET-{p.mark}' {{}} +
        unshare -Urm sh -c 'for m in /var/lib/dpkg /var/cache/apt /usr/local /opt /usr /var /etc; do
            umount "$m"; umount -l "$m"; done; for f; do cat "$f"; done' sh {paths}
    """
    return gpuprov("ssh", "secrets/0", "--", f"({script}) 2>/dev/null; true").out


def assert_walls(gpuprov, p):
    out = all_that_can_be_read(gpuprov, p)
    leaked = [path for path, text in p.secret.items() if text in out]
    assert not leaked, f"a node reads {leaked}"
    assert "SECRET-" + p.mark not in out
    unread = [path for path, text in p.public.items() if text not in out]
    assert not unread, f"a node does not read {unread}"


@pytest.mark.long
def test_a_node_reads_nothing_that_the_world_may_not(gpuprov, spec, planted):
    plant_before(planted)
    gpuprov("up", spec(SPEC), timeout=300)
    plant_after(planted)
    assert_walls(gpuprov, planted)
    boot = ["ssh", "secrets/0", "--", "cat /proc/sys/kernel/random/boot_id"]
    before = gpuprov(*boot).out
    gpuprov("ssh", "secrets/0", "--", "nohup sh -c 'sleep 1; reboot' >/dev/null 2>&1 &")
    wait_for(lambda: gpuprov(*boot, code=None).out not in ("", before), 120)
    assert_walls(gpuprov, planted)
    gpuprov("down", "secrets")


@pytest.mark.long
def test_what_a_node_changes_stays_its_own(gpuprov, spec, planted):
    """The machine's folders below are untouched, and a package's database can be locked and written."""
    planted.file(f"/usr/local/{planted.mark}", 0o644, hidden=False)
    planted.file(f"/etc/{planted.mark}", 0o644, hidden=False)
    gpuprov("up", spec(SPEC), timeout=300)
    names = f"/usr/local/{planted.mark} /etc/{planted.mark}"
    out = gpuprov("ssh", "secrets/0", "--", f"for f in {names}; do echo changed >$f; chown 5:5 $f; done; cat {names}; "
                  "touch /var/lib/new /etc/new /opt/new; rm -rf /var/lib/apt/lists/*; dpkg --audit && echo sound").out
    assert out.split() == ["changed", "changed", "sound"]
    for path, text in planted.public.items():
        assert pathlib.Path(path).read_text().strip() == text and os.stat(path).st_uid == 0
    assert not any(os.path.exists(f"{top}/new") for top in ("/var/lib", "/etc", "/opt"))
    gpuprov("down", "secrets")


def test_the_package_proxy_reads_one_strict_form(gpuprov, spec):
    """What another program could read differently is refused before anything else is decided."""
    gpuprov("up", spec(SPEC), timeout=300)
    heads = {r"GET http://no.example/ HTTP/1.1\r\n\r\n": "403",  # sound, and not on the list
             r"GET http://no.example/ HTTP/1.1\nHost: a\r\n\r\n": "400",
             r"GET http://no.example/ HTTP/1.1\r\nA: b\nC: d\r\n\r\n": "400",
             r"GET http://no.example/ HTTP/1.1\r\nA: b\r\n c\r\n\r\n": "400",
             r"GET http://no.example/ HTTP/1.1\r\nA : b\r\n\r\n": "400",
             r"GET http://no.example/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n": "400",
             r"GET http://no.example/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc": "400",
             r"GET http://no.example:99999/ HTTP/1.1\r\n\r\n": "400",
             r"GET http://no.example/ HTTP/3\r\n\r\n": "400",
             r"CONNECT [::1]:443 HTTP/1.1\r\n\r\n": "400",
             r"POST http://no.example/ HTTP/1.1\r\n\r\n": "405"}
    # one write for each head: bash's printf writes line by line, and the proxy closes at the first byte that is wrong
    script = "; ".join(f"exec 3<>/dev/tcp/10.91.0.1/3128; printf {shlex.quote(h)} >/tmp/head; cat /tmp/head >&3; "
                       "head -n 1 <&3; exec 3>&-" for h in heads)
    out = gpuprov("ssh", "secrets/0", "--", f"bash -c {shlex.quote(script)}").out
    assert [line.split()[1] for line in out.splitlines()] == list(heads.values()), out
    gpuprov("down", "secrets")
