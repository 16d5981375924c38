# SPDX-License-Identifier: Apache-2.0
"""Python packages on local nodes come through the stack's proxy from an index of this machine; the node itself
reaches nothing of it."""
import socket
import subprocess

import pytest
from pyindex import Index

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: snakes
nodes: 1
offers: [{provider: local}]
limits: {ttl: 20m}
bootstrap: {python: {packages: [gpuprov-snake], index: "http://127.0.0.1:%d/simple"}}
validate: {time: 1m}
"""


class Here:
    """This machine's network, as Index.serve wants it."""
    run = staticmethod(subprocess.run)

    @staticmethod
    def popen(command):
        return subprocess.Popen([str(word) for word in command])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_packages_come_through_the_proxy(gpuprov, spec, tmp_path):
    index, port = Index(tmp_path / "index"), free_port()
    index.wheel("gpuprov-snake", "1.5")
    index.serve(Here, "127.0.0.1", port)
    try:
        path = spec(SPEC % port)
        gpuprov("up", path, timeout=240)
        told = gpuprov("ssh", "snakes", "--", "/opt/venv/bin/python -c 'import gpuprov_snake as s; print(s.VERSION)'")
        assert told.out.strip() == "1.5"
        assert any(line.startswith("200 /simple/gpuprov-snake/") for line in index.log)
        # the node's own network has no way there, and the proxy has none to other ports
        script = "import urllib.request as u; u.install_opener(u.build_opener(u.ProxyHandler(%s))); u.urlopen('%s', timeout=5)"
        for proxies, url in (("{}", index.url), ("{'http': PROXY}", "http://127.0.0.1:%d" % free_port()),
                             ("{'https': PROXY}", "https://localhost"), ("{'https': PROXY}", "https://169.254.169.254")):
            proxy = gpuprov("ssh", "snakes", "--", "sed -n 's/^proxy = //p' /etc/pip.conf").out.strip()
            text = script % (proxies.replace("PROXY", repr(proxy)), url)
            refused = gpuprov("ssh", "snakes", "--", "python3 -c \"%s\"" % text, code=1)
            why = {"{}": "URLError", "{'http': PROXY}": "403"}.get(proxies, "502 Bad Gateway")
            assert why in refused.err
    finally:
        gpuprov("down", "snakes", code=None)
        index.close()
