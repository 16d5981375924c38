# SPDX-License-Identifier: Apache-2.0
"""Cuts the SSH connection of a host in each step of a bootstrap: once while the step is held at its beginning, and once
right after it goes on."""
import time

from waiting import wait_for

# The host's first sh: counts the steps that run, and holds each until the test lets it go.
HOLDER = """#!/bin/dash
if [ "$1" = ./run ] && [ -d /cut ]; then
    step=${PWD##*/}
    echo "${step%-*}" >>/cut/log
    : >"/cut/$step.at"
    until [ -e "/cut/$step.go" ]; do sleep 0.05; done
    rm -f "/cut/$step.go"
fi
exec /bin/sh "$@"
"""


class Cutter:
    """Of one host, before its bootstrap. Steps that gpuprov applies itself are cut when they start. cut: a name for each
    cut; runs(): the name of each step that ran on the host, as often as it ran."""

    def __init__(self, host, own=("agent",)):
        self.host, self.own, self.cut = host, own, []
        host.put("/usr/local/bin/sh", HOLDER, 0o755)
        host.sh("mkdir -m 777 /cut")

    def runs(self):
        return self.host.file("/cut/log").read_text().split()

    def release(self):
        self.host.sh("rm -rf /cut")

    def _drop(self, name):
        try:
            self.host.drop_connections()
        except RuntimeError:  # the host reboots: it has no connection
            return
        self.cut.append(name)

    def _held(self, lines, mark):
        name = mark.name.removesuffix(".at")
        lost = sum("connection lost" in line for line in lines)
        self._drop(name[:-9])
        wait_for(lambda: sum("connection lost" in line for line in lines) > lost, 60, lambda: str(lines[-5:]))
        mark.unlink()
        self.host.file("/cut/%s.go" % name).touch()
        self._drop(name[:-9])

    def __call__(self, lines):
        """Beside a run, whose events are `lines`."""
        own = list(self.own)
        while not any('"event":"result"' in line for line in lines):
            for name in list(own):
                if any('"start"' in line and '"step":"%s"' % name in line for line in lines):
                    own.remove(name)
                    self._drop(name)
            for mark in self.host.file("/cut").glob("*.at"):
                self._held(lines, mark)
            time.sleep(0.02)
