# SPDX-License-Identifier: Apache-2.0
"""A package index of a test's own (the simple index that pip reads), served inside a lab: wheels made from text.
As a program: pyindex.py FOLDER ADDRESS PORT."""
import base64
import hashlib
import http.server
import pathlib
import re
import sys
import urllib.parse
import zipfile

from waiting import wait_for


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


class Index:
    """Indexes are folders: simple/NAME/FILE.whl, whl/cpu/NAME/FILE.whl. Faults and logins are files: see Handler."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        (self.folder / "log").write_text("")
        self.server = None

    def wheel(self, name, version="1.0", files=None, requires=(), index="simple", size=0, python=None):
        """Adds a wheel; files: {path: text}, by default a module of that name. Returns its path."""
        module = plain(name).replace("-", "_")
        files = dict(files or {module + ".py": "VERSION = %r\n" % version})
        info = "%s-%s.dist-info" % (module, version)
        meta = "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version)
        meta += "".join("Requires-Dist: %s\n" % r for r in requires)
        meta += "Requires-Python: %s\n" % python if python else ""
        files[info + "/METADATA"] = meta
        files[info + "/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        if size:
            files[module + "_data.bin"] = "x" * size
        record = ""
        for path, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += "%s,sha256=%s,%d\n" % (path, digest, len(text.encode()))
        files[info + "/RECORD"] = record + info + "/RECORD,,\n"
        to = self.folder / index / plain(name) / ("%s-%s-py3-none-any.whl" % (module, version))
        to.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(to, "w") as z:
            for path, text in files.items():
                z.writestr(path, text)
        return to

    def sha256(self, name, version, index="simple"):
        (at,) = (self.folder / index / plain(name)).glob("*-%s-*.whl" % version)
        return hashlib.sha256(at.read_bytes()).hexdigest()

    def serve(self, lab, address, port=8090):
        self.url = "http://%s:%d" % (address, port)
        self.server = lab.popen([sys.executable, __file__, self.folder, address, port])
        wait_for(lambda: lab.run(["bash", "-c", "exec 3<>/dev/tcp/%s/%d" % (address, port)],
                                 capture_output=True).returncode == 0, 30)

    @property
    def log(self):
        """Requests, one per line: status, path, the user of a login."""
        return (self.folder / "log").read_text().splitlines()

    def clear(self):
        (self.folder / "log").write_text("")

    def login(self, text):
        """Asks for this USER:PASSWORD; None: for none."""
        if text:
            (self.folder / "login").write_text(text)
        else:
            (self.folder / "login").unlink(missing_ok=True)

    def close(self):
        if self.server:
            self.server.kill()
            self.server.wait()


class Handler(http.server.BaseHTTPRequestHandler):
    folder = None

    def note(self, status, user=""):
        with open(self.folder / "log", "a", encoding="utf-8") as f:
            f.write("%d %s %s\n" % (status, self.path, user))

    def answer(self, status, body=b"", kind="text/html", user="", **headers):
        self.note(status, user)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):  # pylint: disable=invalid-name
        login = self.folder / "login"
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        user = base64.b64decode(given).decode().partition(":")[0] if given else ""
        if login.exists() and base64.b64encode(login.read_bytes()).decode() != given:
            self.answer(401, user=user, WWW_Authenticate='Basic realm="x"')
            return
        at = (self.folder / urllib.parse.unquote(self.path.lstrip("/").partition("?")[0])).resolve()
        if not at.is_relative_to(self.folder.resolve()) or not at.exists():
            self.answer(404, user=user)
        elif at.is_dir():
            links = "".join('<a href="%s#sha256=%s">%s</a><br>\n' % (
                f.name, hashlib.sha256(f.read_bytes()).hexdigest(), f.name) for f in sorted(at.glob("*.whl")))
            self.answer(200, ("<!DOCTYPE html><html><body>\n%s</body></html>" % links).encode(), user=user)
        else:
            self.answer(200, at.read_bytes(), "application/zip", user=user)

    def log_message(self, *args):  # pylint: disable=arguments-differ
        pass


if __name__ == "__main__":
    Handler.folder = pathlib.Path(sys.argv[1])
    http.server.ThreadingHTTPServer((sys.argv[2], int(sys.argv[3])), Handler).serve_forever()
