# SPDX-License-Identifier: Apache-2.0
"""Runs the scripts of action.yml and examples/ci/gitlab.yml as their runners do: GitHub's `shell: bash`, GitLab's
joined lines. What a runner puts into the environment comes from the caller; the APIs of both are a local HTTP server
that keeps what it was sent."""
import http.server
import json
import pathlib
import re
import subprocess
import threading
import urllib.parse

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


class Api:
    """The comments of GitHub and the notes of GitLab, 100 a page, and GitHub's OIDC tokens. broken: the status of every
    reply; calls: (method, path, headers, body)."""

    def __init__(self):
        self.comments, self.calls, self.broken = [], [], 0
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                api.answer(self)
            do_POST = do_PATCH = do_PUT = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, h):
        raw = h.rfile.read(int(h.headers.get("Content-Length") or 0))
        body = json.loads(raw) if raw else None
        self.calls.append((h.command, h.path, dict(h.headers), body))
        url = urllib.parse.urlsplit(h.path)
        status, reply = self.broken or 200, {"message": "no"}
        if not self.broken:
            reply = self.reply(h.command, url.path, urllib.parse.parse_qs(url.query), body)
        data = json.dumps(reply).encode()
        h.send_response(status)
        h.send_header("Content-Length", str(len(data)))
        h.end_headers()
        h.wfile.write(data)

    def reply(self, method, path, query, body):
        if path == "/user":
            return {"id": 42}
        if path == "/token":
            return {"value": "header.payload.signature"}
        if method == "GET":
            page = int(query["page"][0])
            return self.comments[(page - 1) * 100:page * 100]
        if method == "POST":
            self.comments.append({"id": 1000 + len(self.comments), "user": {"type": "Bot"}, "author": {"id": 42}, **body})
            return self.comments[-1]
        found = next(c for c in self.comments if str(c["id"]) == path.rsplit("/", 1)[1])
        found.update(body)
        return found


def expression(text, context):
    """An expression of the few forms that action.yml uses: references, 'text', ==, !=, &&."""
    if "&&" in text:
        return all(expression(part, context) for part in text.split("&&"))
    m = re.fullmatch(r"\s*(\S+)\s*(==|!=)\s*(\S+)\s*", text)
    if m:
        same = expression(m[1], context) == expression(m[3], context)
        return same if m[2] == "==" else not same
    text = text.strip()
    if text[0] == "'":
        return text[1:-1]
    value = context
    for part in text.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return value


class Action:
    """One job's use of the action. event: the `github` context; env: what the job has."""

    def __init__(self, folder, env):
        self.doc = yaml.safe_load((ROOT / "action.yml").read_text())
        self.folder, self.env = folder, env
        self.temp = folder / "runner-temp"
        self.temp.mkdir(exist_ok=True)
        self.summary = folder / "summary.md"

    def __call__(self, event=None, **inputs):
        """Runs the steps whose `if` holds, until one fails: (exit code, output of all, outputs of steps)."""
        given = {k: v.get("default", "") for k, v in self.doc["inputs"].items()}
        given.update({k.replace("_", "-"): v for k, v in inputs.items()})
        unknown = given.keys() - self.doc["inputs"].keys()
        assert not unknown, unknown
        context = {"inputs": given, "steps": {}, "github": {"action_path": str(ROOT), "token": "job-token", "event": {},
                                                            **(event or {})}}
        given["token"] = "job-token" if given["token"] == "${{ github.token }}" else given["token"]
        said = ""
        for step in self.doc["runs"]["steps"]:
            if "if" in step and not expression(step["if"], context):
                continue
            code, text, outputs = self.step(step, context)
            said += text
            context["steps"][step.get("id", "")] = {"outputs": outputs}
            if code != 0:
                return code, said, context["steps"]
        return 0, said, context["steps"]

    def step(self, step, context):
        assert step["shell"] == "bash"
        script, out = self.folder / "step.sh", self.folder / "output"
        script.write_text(step["run"])
        out.write_text("")
        env = {"PATH": PATH, "HOME": str(self.folder), "RUNNER_TEMP": str(self.temp), "GITHUB_OUTPUT": str(out),
               "GITHUB_STEP_SUMMARY": str(self.summary), "GITHUB_REPOSITORY": "acme/models", **self.env}
        for key, value in step.get("env", {}).items():
            m = re.fullmatch(r"\$\{\{ (\S+) \}\}", value)
            env[key] = str(expression(m[1], context))
        done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", script], cwd=self.folder, env=env,
                              capture_output=True, text=True, timeout=300, check=False)
        outputs = dict(line.split("=", 1) for line in out.read_text().splitlines())
        return done.returncode, done.stdout + done.stderr, outputs


def gitlab_script(job):
    """The script of a job of the template, with that of the job that it extends in front."""
    doc = yaml.safe_load((ROOT / "examples/ci/gitlab.yml").read_text())
    before = doc[doc[job]["extends"]]["before_script"]
    return "\n".join(before + doc[job]["script"]) + "\n"


def gitlab(job, folder, env):
    doc = yaml.safe_load((ROOT / "examples/ci/gitlab.yml").read_text())
    script = folder / "job.sh"
    script.write_text(gitlab_script(job))
    full = {"PATH": PATH, "HOME": str(folder), "GPUPROV_SPEC": doc["variables"]["GPUPROV_SPEC"],
            "GPUPROV_OWNER": "acme-models", "GPUPROV_ID_TOKEN": "header.payload.signature", **env}
    done = subprocess.run(["sh", "-e", script], cwd=folder, env=full, capture_output=True, text=True, timeout=300,
                          check=False)
    return done.returncode, done.stdout + done.stderr
