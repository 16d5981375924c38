# SPDX-License-Identifier: Apache-2.0
"""Hosts on which the steps of bootstrap.python run: a lab with python3-venv, and a package index of its own."""
import contextlib
import pathlib
import subprocess
import sys

import lab as labs
import pyindex
import yaml

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "nodes"))
from test_bootstrap import Node


class PythonNode(Node):
    def python(self, error=None, secrets=None, keys="", gpu=None, during=None, **python):
        """Bootstraps with this block; keys: YAML of further keys of `bootstrap`. secrets: {name: value}."""
        spec = {"name": "t", "offers": [{"provider": "local"}],
                "bootstrap": {"python": python, **(yaml.safe_load(keys) or {})}}
        if gpu:
            spec["gpu"] = gpu
        options = []
        for name, value in (secrets or {}).items():
            options += self.secret(name, value)
        if secrets:
            spec["secrets"] = [{"env": n, "from": "env:" + n} for n in secrets]
        return self.run("--spec", self.text(yaml.safe_dump(spec)), *options, error=error, during=during)

    def version(self, package, venv="/opt/venv"):
        """As pip's own data have it; None: not installed."""
        done = self.host.sh("%s/bin/python -c 'from importlib import metadata as m; print(m.version(\"%s\"))'" % (
            venv, package), check=False)
        return done.stdout.strip() or None


@contextlib.contextmanager
def python_lab(tmp):
    with labs.Lab(tmp, base_script="base_python.sh") as made:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp / "key"], check=True)
        made.key = tmp / "key"
        made.index = pyindex.Index(tmp / "index")
        made.index.serve(made, "10.77.0.1")
        made.next = 2
        yield made
        made.index.close()


@contextlib.contextmanager
def python_node(lab, tmp_path):
    lab.next += 1
    host = lab.add("light", "h%d" % lab.next, "10.77.1.%d" % lab.next, start=False)
    host.authorize((lab.key.parent / "key.pub").read_text())
    host.start()
    host.wait_ssh()
    lab.index.clear()
    yield PythonNode(lab, host, tmp_path)
    host.remove()
