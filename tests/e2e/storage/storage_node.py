# SPDX-License-Identifier: Apache-2.0
"""A host whose storage is set up by a spec: used by the tests of bootstrap.files, limits and mounts. The test program
bootstrap_spec calls the library as `gpuprov up` does for one node."""
import json
import os
import pathlib
import subprocess
import threading

DRIVER = pathlib.Path(os.environ.get("B", pathlib.Path(__file__).resolve().parents[3] / "build")) \
    / "tests" / "drivers" / "bootstrap_spec"


class Outcome:
    def __init__(self, lines, log):
        self.events = [json.loads(line) for line in lines if line.startswith("{")]
        self.log = log
        self.result = self.events[-1] if self.events else {}

    def texts(self, step):
        return [e["text"] for e in self.events if e.get("step") == step]

    def done(self):
        """The steps that ran."""
        return [e["step"] for e in self.events if e["event"] == "done"]

    def __repr__(self):
        return "\n".join(map(json.dumps, self.events)) + "\n" + self.log


class StorageNode:
    def __init__(self, lab, host, tmp):
        self.lab, self.host, self.tmp = lab, host, tmp
        self.spec = tmp / "spec.yaml"

    def popen(self, bootstrap, seconds=120, secrets=None, user="ops", env=None):
        assert DRIVER.is_file(), "%s is not built: run 'make drivers'" % DRIVER
        spec = {"name": "t", "offers": [{"provider": "local"}], "bootstrap": bootstrap}
        if secrets:
            spec["secrets"] = secrets
        self.spec.write_text(json.dumps(spec))  # JSON is YAML
        command = [DRIVER, self.spec, self.host.address, user, self.lab.key, self.host.host_key(), seconds]
        return self.lab.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **(env or {})})

    def run(self, bootstrap, error=None, during=None, **kw):
        """error: None: must end well; text: must fail and contain that."""
        p = self.popen(bootstrap, **kw)
        lines, helper, trouble = [], None, []
        if during:
            def guarded():
                try:
                    during(lines)
                except Exception as e:  # pylint: disable=broad-except
                    trouble.append(e)
            helper = threading.Thread(target=guarded)
            helper.start()
        killer = threading.Timer(300, p.kill)
        killer.start()
        for line in p.stdout:
            lines.append(line)
        log = p.stderr.read()
        p.wait()
        killer.cancel()
        if helper:
            helper.join()
        assert not trouble, trouble
        out = Outcome(lines, log)
        assert out.result.get("event") == "result", out
        if error is None:
            assert out.result["rc"] == 0, out
        else:
            assert out.result["rc"] != 0 and error in out.result["error"], out
            assert "\n" not in out.result["error"]
        return out
