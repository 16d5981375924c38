# SPDX-License-Identifier: Apache-2.0
"""Fleets of light hosts (an sshd and nothing else) for the ssh provider, a bastion and benchmarks.

    with Fleet(tmp_path, 32, bastion=True) as fleet:
        fleet.hosts_file(tmp_path / "fleet.yaml")
        fleet.run([gpuprov, "up", spec])

As a program, `fleet.py FOLDER N [CMD...]` runs CMD (default: a shell) in the network of N hosts, with
FLEET_DIR naming a folder that has `hosts` (name address), `key`, `known_hosts` and `fleet.yaml`.
"""
import os
import pathlib
import subprocess
import sys

from lab import Lab


class Fleet(Lab):
    """n hosts h1.. at 10.77.(1+i/250).(1+i%250). With bastion=True the hosts lie in a network that only the
    host `bastion` (10.77.0.2) can reach."""

    def __init__(self, tmp, n, bastion=False, base_dir=None, base_script="base.sh"):
        super().__init__(tmp, cidr="10.77.0.1/16", base_dir=base_dir, base_script=base_script)
        self.n, self.with_bastion = n, bastion
        self.key = self.tmp / "key"
        self.nodes, self.bastion = [], None

    def __enter__(self):
        self.tmp.mkdir(parents=True, exist_ok=True)
        if not self.key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fleet", "-f", str(self.key)],
                           check=True)
        super().__enter__()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def _make(self):
        public = self.key.with_suffix(".pub").read_text()
        if self.with_bastion:
            self.bastion = self._one("bastion", "10.77.0.2", public)
        for i in range(1, self.n + 1):
            self.nodes.append(self._one("h%d" % i, "10.77.%d.%d" % (1 + i // 250, i % 250 + 1), public))
        for host in self.nodes + ([self.bastion] if self.bastion else []):
            host.wait_ssh()
        if self.bastion:
            self._hide()

    def _one(self, name, address, public):
        host = self.add("light", name, address, start=False)
        host.authorize(public)
        host.start()
        return host

    def _hide(self):
        """The nodes move to 10.78.0.0/16, on a bridge to which only the bastion has a second leg."""
        lines = ["link add br1 type bridge", "link set br1 up"]
        for host in self.nodes:
            lines.append("link set v%s nomaster" % host.name)
            lines.append("link set v%s master br1" % host.name)
        self._batch(lines)
        for host in self.nodes:
            inner = host.address.replace("10.77.", "10.78.", 1)
            host.sh("ip addr add %s/16 dev eth0; ip addr del %s/16 dev eth0" % (inner, host.address))
            host.address = inner
        # the lab itself has no address there; a veth pair gives the bastion one
        self._batch(["link add vinner type veth peer name inner netns %d" % self._net_pid(self.bastion),
                     "link set vinner master br1 up"])
        self.bastion.sh("ip link set inner name eth1; ip addr add 10.78.0.2/16 dev eth1; ip link set eth1 up")

    def _net_pid(self, host):
        """A process (as the machine sees it) in the host's network."""
        listing = self.host_sh("exec", host.name, "readlink", "/proc/self/ns/net").stdout.strip()
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and os.readlink("/proc/%s/ns/net" % entry) == listing:
                    return int(entry)
            except OSError:
                continue
        raise RuntimeError("no process in the network of " + host.name)

    def _batch(self, lines):
        done = self.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, capture_output=True)
        if done.returncode != 0:
            raise RuntimeError("ip: " + done.stderr)

    def enter(self, gpuprov, tmp):
        """The program, run in the fleet's network; tmp has its home and gets fleet.yaml."""
        wrapper = tmp / "in-net"
        wrapper.write_text("#!/bin/sh\nexec nsenter --net=/proc/%d/ns/net %s \"$@\"\n" % (self.pid, gpuprov.program))
        wrapper.chmod(0o755)
        gpuprov.program = wrapper
        self.hosts_file(tmp / "fleet.yaml")
        ssh = tmp / "home" / ".ssh"
        ssh.mkdir(mode=0o700)
        self.known_hosts(ssh / "known_hosts")
        return gpuprov

    def known_hosts(self, path):
        """Writes a known_hosts file with every host of the fleet."""
        hosts = self.nodes + ([self.bastion] if self.bastion else [])
        path = pathlib.Path(path)
        path.write_text("".join("%s %s\n" % (h.address, h.host_key()) for h in hosts))
        return path

    def hosts_file(self, path, nodes=None):
        """Writes a hosts file for the ssh provider, with the keys that each host really has."""
        path = pathlib.Path(path)
        known = self.known_hosts(path.with_name("known_hosts"))
        lines = ["hosts:"]
        for h in nodes or self.nodes:
            lines.append("  - address: %s" % h.address)
            lines.append("    user: ops")
            lines.append("    key: %s" % self.key)
            lines.append("    known_hosts: %s" % known)
            if self.bastion:
                lines.append("    bastion: ops@%s" % self.bastion.address)
        path.write_text("\n".join(lines) + "\n")
        return path


def main():
    folder, n = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    with Fleet(folder, n) as fleet:
        (folder / "hosts").write_text("".join("%s %s\n" % (h.name, h.address) for h in fleet.nodes))
        fleet.hosts_file(folder / "fleet.yaml")
        env = {**os.environ, "FLEET_DIR": str(folder.resolve())}
        return fleet.run(sys.argv[3:] or [os.environ.get("SHELL", "sh")], env=env, timeout=None).returncode


if __name__ == "__main__":
    sys.exit(main())
