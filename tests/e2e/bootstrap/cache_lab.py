# SPDX-License-Identifier: Apache-2.0
"""For tests of bootstrap.cache: a repository that counts, and one cache on the first host of a lab (lab.nodes)."""
import hashlib
import pathlib
import re
import socket
import subprocess

from repo import Repo

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Serves a folder and appends each path to the file "log". While "hold" is there a .deb stops in its middle.
SERVER = """
import http.server, os, ssl, sys, threading, time
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        with open("log", "a") as log:
            log.write(self.path + "\\n")
        if self.path.startswith("/away/"):
            self.send_response(302)
            self.send_header("Location", self.path[5:])
            self.end_headers()
        else:
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
secure = http.server.ThreadingHTTPServer((sys.argv[1], 8443), Handler)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain("../crt", "../crt.key")
secure.socket = tls.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
threading.Thread(target=secure.serve_forever, daemon=True).start()
plain = http.server.ThreadingHTTPServer((sys.argv[1], 8080), Handler)
print("Serving")
plain.serve_forever()
"""


class CountingRepo(Repo):
    """A repository that counts the packages that are fetched."""
    suffix = ".deb"

    def serve(self, lab, address, port=8080):
        self.address, self.port = address, port
        self.certificate = self.folder.parent / "crt"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", "/CN=repo.example", "-addext", "subjectAltName=DNS:repo.example",
                        "-keyout", str(self.certificate) + ".key", "-out", self.certificate], check=True,
                       capture_output=True)
        self.start(lab, ["-c", SERVER, address, str(self.folder)])

    def fetched(self):
        """The names of the packages that were fetched, one for each request."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return sorted(re.match(r"([a-z]+-[a-z]+)", line.split("/")[-1]).group(1) for line in lines
                      if line.endswith(self.suffix))

    def path(self, name):
        """The part of a request to the cache that names this package: hash, size, origin."""
        deb = next(self.folder.glob(name + "_*.deb"))
        data = deb.read_bytes()
        return "/%s/%d/http/%s:8080/%s" % (hashlib.sha256(data).hexdigest(), len(data), self.address, deb.name)

    def forget(self):
        (self.folder / "log").unlink(missing_ok=True)


class Cache:
    """The agent's cache on the first host, as templates/bootstrap/cache/keep.sh starts it."""

    def __init__(self, fleet):
        self.fleet, self.host, self.dir = fleet, fleet.nodes[0], "/var/tmp/gpuprov-cache-test"
        agent = ROOT / "build" / "agent" / "gpuprov-agent"
        self.host.sh("mkdir -p /root/.gpuprov/agent")
        self.host.file("/root/.gpuprov/agent/gpuprov-agent").write_bytes(agent.read_bytes())
        self.host.sh("chmod 755 /root/.gpuprov/agent/gpuprov-agent")

    def keep(self, peers=("10.77.0.1",), lease="60s", end="", check=True):
        words = {"DIR": self.dir, "BIND": self.host.address, "PEERS": "\n".join(peers), "LEASE": lease, "ALLOW": "",
                 "FETCH": template("cache/fetch"), "END": end}
        script = template("run/lib") + "".join("%s=%s\n" % (k, quoted(v)) for k, v in words.items())
        done = self.host.sh(script + template("cache/keep"), check=check)
        if "::cache " in done.stdout:
            self.port = int(done.stdout.split("::cache ")[1])
        return done

    def ask(self, request):
        """The whole answer to these bytes."""
        def talk():
            with socket.create_connection((self.host.address, self.port), timeout=60) as s:
                s.sendall(request.encode())
                got = b""
                while True:
                    try:
                        part = s.recv(1 << 16)
                    except ConnectionResetError:
                        return got
                    if not part:
                        return got
                    got += part
        return self.fleet.call(talk)

    def get(self, target):
        head, _, body = self.ask("GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % target).partition(b"\r\n\r\n")
        return int(head.split()[1]) if head else None, body

    @property
    def alive(self):
        return "gpuprov-agent" in self.host.sh("ps -eo args | grep '[g]puprov-agent cache'; true").stdout


def template(name):
    return (ROOT / "templates" / "bootstrap" / (name + ".sh")).read_text() + "\n"


def quoted(text):
    return "'%s'" % text.replace("'", "'\\''")


def install(host, cache, packages, check=True, limit=60):
    """Installs packages as a step of `limit` seconds does; what it printed."""
    script = template("run/lib") + template("run/pkg") + "CACHE=%s BUDGET=%d REFUSAL=\n" % (cache, limit) + \
        template("run/cache")
    host.put("/tmp/w/step", script + "install_packages %s\n" % packages)
    return host.sh("cd /tmp/w && timeout %d sh ./step" % limit, check).stdout
