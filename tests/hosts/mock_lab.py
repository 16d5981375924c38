# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a cloud (tests/clouds) with a real systemd host behind every machine.

    with MockLab(tmp_path, google.Cloud) as lab:
        lab.run([gpuprov, "up", spec], env={**os.environ, **lab.cloud.env(tmp_path)})
        lab.host(machine_id).sh("systemctl status")

The stand-in runs in the test's process, and its sockets are in the lab's network. It has machines(), user_data(id) and
powered_off(id), as Reconciler says, and gives machines addresses from addresses(n)."""
import ipaddress
import json
import sys
import threading

from lab import Host, Lab
from reconcile import Reconciler
from waiting import wait_for

ADDRESS = "172.31.240.1"


def addresses(n):
    """The private and the public address of a cloud's machine n (0, 1, ...), as the lab's network has them."""
    return (str(ipaddress.ip_address("172.31.16.4") + n), str(ipaddress.ip_address("198.18.0.4") + n))


class MockLab(Lab):
    """make(): the stand-in, not yet started. It listens on loopback of the lab's network. cidr: the lab's own address in
    the network of the machines; pause: seconds between two looks at the cloud."""

    def __init__(self, tmp, make, base_dir=None, cidr=ADDRESS + "/16", pause=0.2):
        super().__init__(tmp, cidr=cidr, base_dir=base_dir)
        self.make, self.cloud, self.pause = make, None, pause
        self._stop = threading.Event()
        self._thread = None

    def __enter__(self):
        super().__enter__()
        try:
            self.cloud = self.call(self.make)
            self.cloud.__enter__()
            reconciler = Reconciler(self.cloud, self.host_sh, self.path(), self.base, self.cidr.split("/")[1])
            self._thread = threading.Thread(target=self._reconcile, args=(reconciler,), daemon=True)
            self._thread.start()
        except BaseException:
            self.close()
            raise
        return self

    def _reconcile(self, reconciler):
        while not self._stop.wait(self.pause):
            try:
                reconciler.step()
            except Exception as e:  # pylint: disable=broad-except  # said, and looked at again
                print("reconcile: %r" % e, file=sys.stderr, flush=True)

    def close(self):
        self._stop.set()
        if self._thread is not None:
            self._thread.join(120)
            self._thread = None
        if self.cloud is not None:
            self.cloud.__exit__(None, None, None)
            self.cloud = None
        super().close()

    def in_image(self, path, text):
        """Every host that is made from now on has this file."""
        to = self.path("image", path.lstrip("/"))
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text)

    def about(self, machine_id):
        """What was noted of a machine, or {}."""
        path = self.path("instances", machine_id + ".json")
        return json.loads(path.read_text()) if path.exists() else {}

    def host(self, machine_id, seconds=120):
        """The host behind a machine, once it is started."""
        said = wait_for(lambda: self.about(machine_id), seconds)
        if "host" not in said:
            raise RuntimeError("no host behind %s: %s" % (machine_id, said))
        return Host(self, "systemd", said["host"], said["private"], said["public"])

    def wait_no_host(self, machine_id, seconds=120):
        wait_for(lambda: "ended" in self.about(machine_id), seconds)
