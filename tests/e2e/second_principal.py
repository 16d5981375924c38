# SPDX-License-Identifier: Apache-2.0
"""A second principal of an account: launches machines of his own with the tags of a stack that he can read, and runs an
SSH server behind them that accepts every login key and keeps whatever it receives. He has neither the stack's login key
nor its journal. Needs root: an SSH server of EC2 listens on port 22."""
import base64
import gzip
import hashlib
import hmac
import os
import pathlib
import random
import re
import shlex
import socket
import struct
import subprocess
import threading

import ec2
import pytest
from cryptography.hazmat.primitives import serialization
from conftest import Gpuprov
from hostile import FIRST, HOME, REGIONS, Account, tags_of
from killing import forget
from waiting import wait_for

SECRET = "hf_VICTIMSECRET_12345"
PAST = "2020-01-01T00:00:00Z"

# EC2's ids are random, so he launches until one sorts before the genuine ones. That is shortened here: his ids begin
# with 0, or with f if his token begins with "late", those of gpuprov's launches with 8. %(addresses)s: a folder with
# the public address of gpuprov's machines (ours) and of his (foreign); absent: moto's own.
IDS = """
import pathlib as _pathlib, threading as _threading
from moto.ec2.models import elastic_network_interfaces as _eni
from moto.ec2.models import instances as _instances
from moto.ec2.responses import EC2Response as _requests
from moto.ec2.responses.instances import InstanceResponse as _response
_who, _addresses = _threading.local(), %(addresses)r
_run, _id, _address = _response.run_instances, _instances.random_instance_id, _eni.random_public_ip
_call, _one_at_a_time = _requests.call_action, _threading.Lock()
def _call_action(self):  # moto's lists fail while somebody launches
    with _one_at_a_time:
        return _call(self)
def _run_instances(self):
    _who.ours = self.headers.get("User-Agent", "").startswith("gpuprov/")
    _who.late = (self._get_param("ClientToken") or "").startswith("late")
    return _run(self)
def _random_id():
    return "i-" + ("8" if _who.ours else "f" if _who.late else "0") + _id()[3:]
def _random_address():
    if _addresses is None:
        return _address()
    return (_pathlib.Path(_addresses) / ("ours" if getattr(_who, "ours", False) else "foreign")).read_text()
_requests.call_action = _call_action
_response.run_instances = _run_instances
_instances.random_instance_id = _random_id
_eni.random_public_ip = _random_address
"""


def ids(addresses=None):
    return IDS % {"addresses": str(addresses) if addresses else None}


# --- SSH servers ---

# Appends each command and its input to the file, and runs it where `runs` says so.
KEEP = """\
#!/bin/sh
printf '\\n[command] %%s\\n' "$SSH_ORIGINAL_COMMAND" >>%(kept)s
%(act)s
"""
RUN = 'tee -a %(kept)s | exec sh -c "$SSH_ORIGINAL_COMMAND"'
FACTS = ["arch x86_64", "boot 11111111-1111-4111-8111-111111111111", "home /", "user gpuprov", "root yes", "os debian-12",
         "kernel 6.1.0"]
# What gpuprov's first command is answered with, so that it goes on. Nothing is run: it would be on the test's machine.
ONLY_KEEP = "cat >>%(kept)s\necho\nprintf '::fact %%s\\n' " + " ".join(shlex.quote(f) for f in FACTS)
ANY_KEY = '#!/bin/sh\necho "$1 $2"\n'
CONF = """\
HostKey %(dir)s/host_key
AuthorizedKeysFile none
AuthorizedKeysCommand %(dir)s/any-key %%t %%k
AuthorizedKeysCommandUser root
PermitRootLogin yes
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
ForceCommand %(dir)s/keep
"""


def make_host_key(folder):
    """(path of the private key, fingerprint)"""
    path = pathlib.Path(folder) / "host_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    said = subprocess.run(["ssh-keygen", "-l", "-f", path], check=True, capture_output=True, text=True)
    return path, said.stdout.split()[1]


def user_data(host_key):
    """Of his machine, where it is a real host: its server keeps what it receives in /var/log/kept, and obeys."""
    files = {"host_key": host_key.read_text(), "any-key": ANY_KEY,
             "keep": KEEP % {"kept": "/var/log/kept", "act": RUN % {"kept": "/var/log/kept"}}}
    conf = CONF % {"dir": "/opt/his"}
    lines = ["#!/bin/sh", "useradd -m -s /bin/sh -p '*' gpuprov", "mkdir -p /opt/his", "umask 077",
             "echo 'gpuprov ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/his", "touch /var/log/kept", "chmod 666 /var/log/kept"]
    lines += [f"printf %s {shlex.quote(text)} >/opt/his/{name}" for name, text in files.items()]
    lines += [f"printf %s {shlex.quote(conf)} >/etc/ssh/sshd_config", "chmod 755 /opt/his /opt/his/keep /opt/his/any-key",
              "systemctl restart ssh", "touch /opt/his/done", ""]
    return "\n".join(lines)


def free_address():
    """A socket at port 22 of an address of loopback that nobody has."""
    dice = random.SystemRandom()
    while True:
        address = "127.%d.%d.%d" % (dice.randint(64, 254), dice.randint(1, 254), dice.randint(1, 254))
        try:
            return address, socket.create_server((address, 22), backlog=64)
        except OSError:
            continue


class Silent:
    """Stands for the genuine machines: an address that accepts connections and closes them. .count: how many."""

    def __init__(self):
        self.address, self.sock = free_address()
        self.count = 0
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                conn, _ = self.sock.accept()
            except OSError:
                return
            self.count += 1
            conn.close()

    def close(self):
        self.sock.close()


class HisServer:
    """A real sshd, which accepts every key and every login name of gpuprov, and keeps commands and their input. It
    obeys none of them."""

    def __init__(self, folder):
        self.dir = pathlib.Path(folder)
        self.kept = self.dir / "kept"
        path, self.fingerprint = make_host_key(self.dir)
        self.own = path.read_text()
        self.process = None
        self.forget()
        text = KEEP % {"kept": "/mnt/kept", "act": ONLY_KEEP % {"kept": "/mnt/kept"}}
        for name, what in (("keep", text), ("any-key", ANY_KEY)):
            (self.dir / name).write_text(what)
            (self.dir / name).chmod(0o755)
        users = pathlib.Path("/etc/passwd").read_text() + "gpuprov:x:0:0::/:/bin/sh\n"
        (self.dir / "passwd").write_text(users)
        self.address, held = free_address()
        held.close()
        (self.dir / "sshd_config").write_text(CONF % {"dir": "/mnt"} + f"ListenAddress {self.address}:22\n")
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        self.dir.chmod(0o755)
        self.start()

    def start(self):
        script = ('mount --bind "$0" /mnt && mount --bind /mnt/passwd /etc/passwd && '  # sshd runs nothing below /tmp
                  "exec /usr/sbin/sshd -D -e -f /mnt/sshd_config")
        with (self.dir / "log").open("w") as log:
            self.process = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", script, self.dir],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.seen = 0
        wait_for(lambda: "Server listening" in self.log() or self.process.poll() is not None, 60)
        assert self.process.poll() is None, self.log()

    def show(self, private):
        """It has this host key from now on."""
        self.close()
        (self.dir / "host_key").write_text(private)
        self.start()

    def log(self):
        return (self.dir / "log").read_text(errors="replace")

    @property
    def said(self):
        """Its log since forget()."""
        return self.log()[self.seen:]

    def forget(self):
        self.kept.write_text("")
        self.seen = len(self.log()) if self.process else 0

    @property
    def received(self):
        return self.kept.read_text(errors="replace")

    def close(self):
        self.process.terminate()
        self.process.wait(30)


# --- the account ---

class Shared(Account):
    """An account with a second principal. Machines of gpuprov answer nothing, his have his server."""

    def __init__(self, folder):
        addresses = pathlib.Path(folder) / "addresses"
        addresses.mkdir()
        his = pathlib.Path(folder) / "his"
        his.mkdir()
        self.silent, self.server = Silent(), HisServer(his)
        (addresses / "ours").write_text(self.silent.address)
        (addresses / "foreign").write_text(self.server.address)
        self.moto = ec2.Moto(first=FIRST + ids(addresses))
        self.clients = {region: self.moto.client(region=region) for region in REGIONS}
        self.fresh()

    def fresh(self):
        super().fresh()
        self.server.forget()
        if (self.server.dir / "host_key").read_text() != self.server.own:
            self.server.show(self.server.own)

    def about(self, machine):
        """A machine as the account shows it, also one that has ended."""
        for region in REGIONS:
            for r in self.clients[region].describe_instances()["Reservations"]:
                for i in r["Instances"]:
                    if i["InstanceId"] == machine:
                        return i
        raise AssertionError(f"no machine {machine}")

    def copy(self, machine, late=False, **changes):
        """His machine with all tags of that one, and with his host key as its own. `late`: its id sorts last."""
        found = self.about(machine)
        put = {**tags_of(found), "hostkey": self.server.fingerprint, **changes}
        region = found["Placement"]["AvailabilityZone"][:-1]
        return self.instance({k: v for k, v in put.items() if v is not None}, region,
                             ClientToken=("late" if late else "early") + os.urandom(8).hex())

    def first_host_key(self, machine):
        """The private host key of the first contact, which is in the machine's user-data for everybody to read."""
        said = self.clients[HOME].describe_instance_attribute(InstanceId=machine, Attribute="userData")
        text = base64.b64decode(said["UserData"]["Value"])
        text = gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text
        found = re.search(r" *-----BEGIN OPENSSH PRIVATE KEY-----.*?-----END OPENSSH PRIVATE KEY-----", text.decode(), re.S)
        return "\n".join(line.strip() for line in found.group().splitlines()) + "\n"

    def end(self, machine, region=HOME):
        self.clients[region].terminate_instances(InstanceIds=[machine])

    def close(self):
        super().close()
        self.silent.close()
        self.server.close()


class Victim(Gpuprov):
    """gpuprov on a computer of its own, whose stacks have a secret."""

    def __init__(self, account, program, folder):
        self.account, self.work = account, pathlib.Path(folder)
        self.work.mkdir()
        (self.work / "home").mkdir()
        super().__init__(program, self.work / "state", self.work / "home")
        self.env = ec2.environment(account.moto.url, self.state, HOME=str(self.work / "home"), TERM="dumb",
                                   LC_ALL="C.UTF-8", SSH_AUTH_SOCK=None, HF_TOKEN=SECRET)

    def spec(self, name="t4", folder=None, key=None, nodes=2, **more):
        access = {"ssh_from": ["203.0.113.0/24"], "timeout": "1s", **({"key": str(key)} if key else {})}
        known = {"name": name, "nodes": nodes, "gpu": None, "limits": {"ttl": "1h"}, "access": access,
                 "bootstrap": {"steps": [{"name": "login", "run": "true", "check": "false"}]},
                 "secrets": [{"env": "HF_TOKEN", "from": "env:HF_TOKEN"}],
                 "offers": [{"provider": "aws", "regions": [HOME], "market": "on-demand", "instance_type": "t3.medium"}]}
        path = ec2.spec(self.work, self.account.images[HOME], **{**known, **more})
        to = pathlib.Path(folder or self.work) / f"{name}.yaml"
        path.rename(to)
        return to

    def launch(self, path):
        """`up`. Its machines answer nothing, so they stay in the first phase. Their ids."""
        before = self.account.alive(path.stem)
        said = self("up", path, code=6)
        made = [i for i in self.account.alive(path.stem) if i not in before]
        assert made, said
        return made

    def forget(self):
        forget(self)


def slots_of(shared, ids):
    """{slot: id} of machines of one launch."""
    first = int(tags_of(shared.about(ids[0]))["slots"].split("+")[0])
    return {first + shared.about(i)["AmiLaunchIndex"]: i for i in ids}


# --- proofs, as the program writes them (core/model/proof.h) ---

def string(data):
    return struct.pack(">I", len(data)) + data


def message(*fields):
    return "".join(f"{len(str(f))}:{f}" for f in fields).encode()


def proof_of(key, owner, stack, *fields):
    """The proof of these fields for that stack by the login key in that file."""
    private = serialization.load_ssh_private_key(key.read_bytes(), None)
    text = b"SSHSIG" + b"".join(string(s) for s in (
        b"proof@gpuprov", b"", b"sha512", hashlib.sha512(b"gpuprov stack proof 1").digest()))
    secret = hmac.digest(private.sign(text), b"gpuprov proof key 1", "sha256")
    bound = hmac.digest(secret, message("stack", owner, stack), "sha256")
    return hmac.digest(bound, message(*fields), "sha256").hex()[:32]


def prove(account, key, machine, slot):
    """Tags a machine as gpuprov does once it has its own host key. Its host key is nobody's: it answers nothing."""
    fingerprint = "SHA256:" + base64.b64encode(hashlib.sha256(machine.encode()).digest()).decode().rstrip("=")
    has = tags_of(account.about(machine))
    proof = proof_of(key, has["owner"], has["stack"], "machine", has["uid"], "aws", machine, slot, fingerprint)
    account.tag(machine, hostkey=fingerprint, proof=proof)


def make_key(folder):
    path = pathlib.Path(folder) / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(name="accounts", scope="module")
def accounts_fixture(tmp_path_factory):
    made = Shared(tmp_path_factory.mktemp("shared"))
    yield made
    made.close()


@pytest.fixture(name="shared")
def shared_fixture(accounts):
    accounts.fresh()
    return accounts


@pytest.fixture(name="victim")
def victim_fixture(shared, program, tmp_path):
    """victim(): gpuprov on a computer that knows nothing."""
    made = []

    def make():
        made.append(Victim(shared, program, tmp_path / ("computer%d" % len(made))))
        return made[-1]
    return make
