# SPDX-License-Identifier: Apache-2.0
"""A lab whose hosts can run container engines, with a registry of its own that has a login and TLS, and a repository
with a stand-in for NVIDIA's container toolkit. GPUs are stand-ins too: device files that behave as /dev/null."""
import base64
import json
import pathlib
import subprocess
import sys

from lab import Lab
from repo import Repo
from waiting import wait_for

LOGIN = "lab:Geheim 'ist\" $das"
REGISTRY = "10.77.0.9:5000"

# Does what the steps use of nvidia-ctk, with files of the same form. The version of the toolkit decides about units.
NVIDIA_CTK = r'''#!/usr/bin/python3
import glob, json, os, re, sys
out = [a.split("=", 1)[1] for a in sys.argv if a.startswith("--output=")]
if sys.argv[1:3] == ["cdi", "generate"]:
    if os.path.exists("/lab/driver-broken"):
        sys.exit("time=\"now\" level=error msg=\"failed to initialize NVML: Driver Not Loaded\"")
    devices = sorted(glob.glob("/dev/nvidia[0-9]*"))
    text = 'cdiVersion: "0.5.0"\nkind: nvidia.com/gpu\ndevices:\n'
    for name, own in [(re.sub(r"\D", "", d), [d]) for d in devices] + [("all", devices)]:
        text += '- name: "%s"\n  containerEdits:\n    deviceNodes:\n' % name
        text += "".join("    - path: %s\n      hostPath: %s\n" % (d, d) for d in own)
    text += "containerEdits:\n  env:\n  - NVIDIA_VISIBLE_DEVICES=void\n  deviceNodes:\n  - path: /dev/nvidiactl\n"
    text += "  mounts:\n  - hostPath: /usr/bin/nvidia-smi\n    containerPath: /usr/bin/nvidia-smi\n    options: [ro, bind]\n"
    os.makedirs(os.path.dirname(out[0]), exist_ok=True)
    open(out[0], "w").write(text)
elif sys.argv[1:4] == ["runtime", "configure", "--runtime=containerd"]:
    os.makedirs("/etc/containerd", exist_ok=True)
    cdi = '[plugins."io.containerd.grpc.v1.cri"]\n  enable_cdi = true\n' if "--cdi.enabled" in sys.argv else ""
    open("/etc/containerd/config.toml", "w").write("version = 2\n" + cdi + """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
    BinaryName = "/usr/bin/nvidia-container-runtime"
""")
elif sys.argv[1:3] == ["runtime", "configure"]:
    path = "/etc/docker/daemon.json"
    assert "--runtime=docker" in sys.argv, sys.argv
    os.makedirs("/etc/docker", exist_ok=True)
    conf = json.load(open(path)) if os.path.exists(path) else {}
    conf.setdefault("runtimes", {})["nvidia"] = {"args": [], "path": "nvidia-container-runtime"}
    if "--cdi.enabled" in sys.argv:
        conf.setdefault("features", {})["cdi"] = True
    json.dump(conf, open(path, "w"), indent=4)
else:
    sys.exit("stand-in nvidia-ctk: " + " ".join(sys.argv))
'''
# With the variable NVIDIA_VISIBLE_DEVICES=all it adds the GPUs to the container, as the real one does.
NVIDIA_RUNTIME = r'''#!/usr/bin/python3
import glob, json, os, sys
args = sys.argv[1:]
if "create" in args:
    bundle = args[args.index("--bundle") + 1]
    path = os.path.join(bundle, "config.json")
    conf = json.load(open(path))
    if "NVIDIA_VISIBLE_DEVICES=all" in conf["process"]["env"]:
        for dev in sorted(glob.glob("/dev/nvidia*")):
            n = os.stat(dev).st_rdev
            new = {"path": dev, "type": "c", "major": os.major(n), "minor": os.minor(n), "fileMode": 438, "uid": 0, "gid": 0}
            conf["linux"].setdefault("devices", []).append(new)
        json.dump(conf, open(path, "w"))
os.execvp("runc", ["runc"] + args)
'''
REGISTRY_CONF = """version: 0.1
storage: {filesystem: {rootdirectory: /lab/data}, delete: {enabled: true}}
http: {addr: ':5000', tls: {certificate: /lab/cert.pem, key: /lab/key.pem}}
auth: {htpasswd: {realm: lab, path: /lab/htpasswd}}
"""


HTTPS = """
import functools, http.server, ssl, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(("10.77.0.1", 443), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def program(name, text):
    return "cat >/usr/bin/%s <<'END_OF_FILE'\n%sEND_OF_FILE\nchmod 0755 /usr/bin/%s\n" % (name, text, name)


class ContainerLab(Lab):
    """host(): a machine with the engines. image(name): a name in the registry, which needs LOGIN for everything."""

    def __init__(self, tmp, base_script="base_container.sh"):
        super().__init__(tmp, base_script=base_script)
        self.key = self.tmp / "key"
        self.next = 10
        self.servers = []

    def __enter__(self):
        super().__enter__()
        try:
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
            self.repo = Repo(self.tmp / "repo")
            self.repo.add("nvidia-container-toolkit", version="1.18.0-1", postinst=program("nvidia-ctk", NVIDIA_CTK) +
                          program("nvidia-container-runtime", NVIDIA_RUNTIME))
            self.repo.add_real(pathlib.Path(self.base).with_name("container.debs"))
            self.repo.serve(self, "10.77.0.1")
            self._registry()
        except BaseException:
            self.close()
            raise
        return self

    def _registry(self):
        cert, key = self.tmp / "cert.pem", self.tmp / "key.pem"
        self.certificate("IP:10.77.0.9", cert, key)
        self.cert = cert.read_text()
        user, password = LOGIN.split(":", 1)
        self.registry = self.add("light", "registry", "10.77.0.9", start=False)
        self.registry.put("/lab/cert.pem", self.cert)
        self.registry.put("/lab/key.pem", key.read_text())
        self.registry.put("/lab/registry.yml", REGISTRY_CONF)
        self.registry.start()
        self.registry.wait_ssh()
        self.registry.put("/lab/password", password)
        self.registry.sh("htpasswd -iBn %s </lab/password >/lab/htpasswd; rm /lab/password" % user)
        self.serve_registry()

    def serve_registry(self):
        self.registry.sh("setsid docker-registry serve /lab/registry.yml >>/var/log/registry.log 2>&1 </dev/null & "
                         "echo $! >/run/registry.pid")
        wait_for(lambda: self.run(["timeout", "1", "bash", "-c", "exec 3<>/dev/tcp/10.77.0.9/5000"],
                                  capture_output=True).returncode == 0, 30)

    def stop_registry(self):
        self.registry.sh("kill $(cat /run/registry.pid); while kill -0 $(cat /run/registry.pid) 2>/dev/null; "
                         "do sleep 0.05; done")

    @staticmethod
    def image(name):
        return "%s/%s" % (REGISTRY, name)

    def push(self, host, name, made=False):
        """Puts busybox into the registry, or the image of this name that the host has made; gives its digest. host: one
        with podman."""
        auth = {"auths": {REGISTRY: {"auth": base64.b64encode(LOGIN.encode()).decode()}}}
        host.put("/lab/auth.json", json.dumps(auth), 0o600)
        push = "podman push -q --digestfile /lab/digest --authfile /lab/auth.json " + self.image(name)
        if made:
            host.sh(push)
        else:  # once in some hundred runs podman 5 does not know the image that it has just imported
            host.sh("for i in 1 2 3; do podman import -q /lab/busybox.tar %s && %s && exit; podman images -a; done >&2; "
                    "exit 1" % (self.image(name), push))
        host.sh("podman rmi %s && rm /lab/auth.json" % self.image(name))
        return host.file("/lab/digest").read_text().strip()

    def host(self, gpus=0, kind="container"):
        """A started machine. gpus: stand-ins, which are there again after a reboot, with an nvidia-smi."""
        self.next += 1
        host = self.add(kind, "c%d" % self.next, "10.77.1.%d" % self.next, start=False)
        host.authorize(self.key.with_suffix(".pub").read_text())
        self.repo.use(host)
        bundle = host.file("/etc/ssl/certs/ca-certificates.crt")
        bundle.write_text(bundle.read_text() + self.cert)
        if gpus:
            names = ["nvidiactl"] + ["nvidia%d" % i for i in range(gpus)]
            host.put("/etc/tmpfiles.d/gpus.conf", "".join("c! /dev/%s 0666 root root - 1:3\n" % n for n in names))
            host.put("/usr/bin/nvidia-smi", "#!/bin/sh\ncd /dev; for g in nvidia[0-9]*; do echo GPU ${g#nvidia}: stand-in; done\n",
                     0o755)
        host.start()
        host.wait_ssh()
        return host

    def serve_as(self, host, name, files):
        """Serves files as https://name for this host, on the lab's own address."""
        folder = self.tmp / name
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        cert, key = self.tmp / (name + ".pem"), self.tmp / (name + ".key")
        self.certificate("DNS:" + name, cert, key)
        bundle = host.file("/etc/ssl/certs/ca-certificates.crt")
        bundle.write_text(bundle.read_text() + cert.read_text())
        hosts = host.file("/etc/hosts")
        hosts.write_text(hosts.read_text() + "10.77.0.1 %s\n" % name)
        self.servers.append(self.popen([sys.executable, "-c", HTTPS, str(folder), str(cert), str(key)]))
        wait_for(lambda: self.run(["timeout", "1", "bash", "-c", "exec 3<>/dev/tcp/10.77.0.1/443"],
                                  capture_output=True).returncode == 0, 30)

    @staticmethod
    def certificate(name, cert, key):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "7", "-subj", "/CN=lab", "-addext", "subjectAltName=" + name,
                        "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)

    def enter(self, gpuprov, tmp):
        """The program, run in the lab's network."""
        wrapper = tmp / "in-net"
        wrapper.write_text("#!/bin/sh\nexec nsenter --net=/proc/%d/ns/net %s \"$@\"\n" % (self.pid, gpuprov.program))
        wrapper.chmod(0o755)
        gpuprov.program = wrapper
        return gpuprov

    def hosts_file(self, path, *hosts):
        path = pathlib.Path(path)
        known = path.with_name("known_hosts")
        known.write_text("".join("%s %s\n" % (h.address, h.host_key()) for h in hosts))
        path.write_text("hosts:\n" + "".join("  - {address: %s, user: ops, key: %s, known_hosts: %s}\n"
                                             % (h.address, self.key, known) for h in hosts))
        return path

    def close(self):
        if getattr(self, "repo", None):
            self.repo.close()
        for server in self.servers:
            server.kill()
            server.wait()
        super().close()
