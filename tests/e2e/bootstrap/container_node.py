# SPDX-License-Identifier: Apache-2.0
"""A host with container engines that is set up by a spec, for the tests of bootstrap.container."""
import json

from containers import LOGIN
from storage_node import StorageNode

AGENT = "/home/ops/.gpuprov/agent/gpuprov-agent run --checks host.container --container-engine %s"


class ContainerNode(StorageNode):
    def set_up(self, container, login=LOGIN, **kw):
        """Bootstraps; the secret with the login is called RUN, as a variable of a step is."""
        (self.tmp / "login").write_text(login)
        return self.run({"container": container}, secrets=[{"env": "RUN", "from": "file:login"}], **kw)

    def check(self, engine):
        """What host.container finds on the host now."""
        lines = self.host.sh(AGENT % engine, check=False).stdout.splitlines()
        return next(r for r in map(json.loads, lines) if r["type"] == "result")

    def has(self, path):
        """Also of /run, which is not seen from outside."""
        return self.host.sh("test -e " + path, check=False).returncode == 0

    def sh(self, script):
        return self.host.sh(script).stdout.strip()
