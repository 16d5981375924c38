# SPDX-License-Identifier: Apache-2.0
"""A value from ${env:..} or ${file:..} may be a secret: nothing that gpuprov prints or keeps for people has it. The keys
come from the program's own schema, so that a new key is covered when it is added."""
import concurrent.futures
import copy
import itertools
import json
import re
import resource

import pytest

MARK = "Zk4vQ9wXr2Lm8Tn6"
FORMS = {
    "word": MARK, "lower": MARK.lower(), "number": f"12{MARK}", "path": f"/nowhere/{MARK}", "deep": f"./a/../{MARK}/",
    "pair": f"{MARK}:{MARK}", "gpu": f"H100:{MARK}", "system": f"ubuntu-{MARK.lower()}", "net": f"10.0.0.0/{MARK}",
    "env": f"env:{MARK}", "file": f"file:/nowhere/{MARK}", "outputs": f"terraform:{MARK}", "bucket": f"s3://{MARK}/x",
    "url": f"https://user:{MARK}@host.example/", "image": f"docker.io/library/{MARK.lower()}:{MARK}",
    "version": f"torch=={MARK}", "unit": f"300 {MARK}", "control": f"{MARK}\x01{MARK}", "long": MARK * 30,
    "key": f"-----BEGIN KEY-----\n{MARK}{MARK[::-1]}\n{MARK * 4}\n-----END KEY-----\n",
}
# Other keys that a key needs before its own value is looked at.
BESIDE = {
    "offers[]": {"provider": "local"}, "secrets[]": {"env": "OTHER", "from": "env:OTHER"}, "gpu": {"model": "H100"},
    "bootstrap.steps[]": {"name": "one", "run": "true"}, "bootstrap.files[]": {"from": "beside.txt", "to": "/data/x"},
    "bootstrap.mounts[]": {"at": "/data"}, "bootstrap.container": {"engine": "docker"},
    "job.outputs[]": {"path": "out", "to": "./out"}, "job.checkpoint": {"path": "ckpt", "to": "./ckpt"},
    "estimate": {"params": "7B", "tokens": "1B"}, "notify[]": {"command": "true"},
}
# Keys of one provider only, by the offer that takes them.
PROVIDERS = {"hosts": "ssh", "project": "google", "role": "aws", "reservation": "aws", "networks": "openstack",
             "network": "google", "subnet": "aws", "instance_type": "aws", "regions": "aws", "zones": "aws",
             "image": "aws", "ssh_from": "aws", "market": "aws"}


def leaves(node, path=""):
    """Paths of values that are text, a number or a list or map of them: "offers[].regions[]"."""
    forms = [node, *node.get("anyOf", []), *node.get("oneOf", [])]
    for form in forms:
        for key, value in form.get("properties", {}).items():
            yield from leaves(value, f"{path}.{key}" if path else key)
        if form.get("type") == "array":
            yield from leaves(form["items"], f"{path}[]")
        if isinstance(form.get("additionalProperties"), dict):
            yield f"{path}.net.pair" if path.endswith("floors") else f"{path}.VARIABLE"
    if path and any(form.get("type") in ("string", "integer", "number", "boolean") or "enum" in form or "const" in form
                    for form in forms):
        yield path


def with_value(path, value):
    """A spec whose only unusual value is at the path."""
    root = {"name": "try"}
    words = path.split(".") if not path.endswith(".net.pair") else [*path[:-9].split("."), "net.pair"]
    at, seen = root, ""
    for i, word in enumerate(words):
        key = word.removesuffix("[]")
        seen = f"{seen}.{word}" if seen else word
        last = i == len(words) - 1
        inner = value if last else copy.deepcopy(BESIDE.get(seen, {}))
        if seen == "offers[]" and not last:
            inner["provider"] = PROVIDERS.get(words[1].removesuffix("[]"), "local")
        at[key] = [inner] if word.endswith("[]") else inner
        at = inner
    return root


def pieces(text):
    """Parts of the mark that a text has, in any case."""
    low = text.lower()
    parts = {MARK[i:i + 5].lower() for i in range(len(MARK) - 4)} | {MARK[::-1][i:i + 5].lower() for i in range(12)}
    return sorted(part for part in parts if part in low)


@pytest.fixture(scope="module")
def keys(program):
    from conftest import Gpuprov
    schema = Gpuprov(program, "/nonexistent", "/nonexistent").json("schema")
    found = sorted(set(leaves(schema if "properties" in schema else json.loads(schema["schema"]))))
    assert len(found) > 100 and "secrets[].from" in found and "offers[].regions[]" in found
    return found


ALWAYS = ("word", "lower", "pair", "key")
TEXTS = ("${env:SECRET}", "${file:%s.secret}", "a-${file:%s.secret}", "${env:SECRET}")
VERBS = (["check"], ["check", "--json"], ["plan", "--markdown"], ["plan"])


def cases(keys, folder):
    """(path, verb, spec file, environment): the usual forms at each key and half of the others; texts and verbs in
    turn."""
    turn = itertools.count()
    (folder / "beside.txt").write_text("x\n")
    for name, value in FORMS.items():
        (folder / f"{name}.secret").write_text(value)
    for path in keys:
        for name, value in FORMS.items():
            n = next(turn)
            if name not in ALWAYS and (n + n // len(FORMS)) % 2 == 0:
                continue
            text = TEXTS[(n // len(FORMS) + n) % len(TEXTS)]
            file = folder / f"{n}.yaml"
            file.write_text(json.dumps(with_value(path, text % name if "%s" in text else text)))
            yield path, VERBS[n % len(VERBS)], file, {"SECRET": value, "OTHER": "x"}


def test_no_complaint_has_a_replaced_value(gpuprov, keys, tmp_path):
    """Every key with wrong values: the message quotes the text of the file."""
    def one(case):
        path, verb, file, env = case
        accepted = verb[0] == "plan" and gpuprov("check", file, code=None, env=env).code == 0
        r = gpuprov(*(["check"] if accepted else verb), file, code=None, env=env)  # a plan of it would ask clouds
        return path, r.code, r.out + r.err, r
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(one, cases(keys, tmp_path)))
    leaks = [r for path, code, text, r in results if pieces(text) and not (path == "name" and code == 0)]
    assert not leaks, f"{len(leaks)} leaks, the first:\n{leaks[0]!r}"
    refused = {path for path, code, _, _ in results if code == 1}
    quoted = {path for path, _, text, _ in results if re.search(r"(?m)^(?!  ).*\$\{(env|file):", text)}
    assert len(refused) > 90 and len(quoted) > 70, (sorted(set(keys) - refused), sorted(set(keys) - quoted))


def test_short_and_public_values(gpuprov, spec):
    """Quotes make a short value found; numbers, listed words and the stack's name are shown as they are."""
    text = "name: '${env:NAME}'\nnodes: ${env:N}\noffers: [{provider: local}]\nlimits: {ttl: '${env:TTL}'}\n"
    env = {"NAME": "public-name", "N": "2", "TTL": "30m"}
    r = gpuprov("plan", spec(text), code=2, env=env)
    assert "public-name: 2 nodes" in r.out and "after 30m" in r.out and "${" not in r.out
    r = gpuprov("check", spec(text + "bootstrap: {mounts: [{at: '/x${env:K}', nvme: '${env:K}'}]}\n"), code=1,
                env={**env, "K": "k9q"})
    assert "'nvme' cannot be '${env:K}'" in r.err and "k9q" not in r.err
    r = gpuprov("check", spec(text), code=1, env={**env, "NAME": "Upper_Case"})
    assert "not '${env:NAME}'" in r.err and "Upper_Case" not in r.err
    r = gpuprov("check", spec("name: x\noffers: [{provider: ssh, hosts: '${env:HOME}/no'}]\n"), code=1)
    assert "${env:HOME}/no" in r.err


ACCEPTED = """
name: repl
offers: [{provider: local}]
limits: {ttl: 30m}
validate: {time: 1m}
bootstrap:
  steps:
    - name: s-${env:LOW}
      run: "echo ${env:SECRET} ${file:two.secret}; echo ${file:long.secret}; test -e /data/${env:SECRET} && exit CODE"
  files: [{from: "${env:SECRET}.txt", to: "/data/${env:SECRET}"}]
job:
  workdir: "d-${env:SECRET}"
  env: {TOKEN: "${env:SECRET}", OTHER: "x${file:two.secret}", LONG: "${file:long.secret}"}
  run: "echo ${env:SECRET} >results; test $TOKEN = ${env:SECRET}"
  outputs: [{path: results, to: "./out-${env:SECRET}"}]
secrets: [{env: "V_${env:SECRET}", from: "env:${env:SECRET}"}]
notify: [{command: "cat >>'FOLDER/notified'; : ${env:SECRET}"}]
"""


@pytest.fixture
def accepted(gpuprov, spec, tmp_path):
    (tmp_path / f"{MARK}.txt").write_text("x\n")
    (tmp_path / "two.secret").write_text(MARK[::-1] + "\n")
    (tmp_path / "long.secret").write_text(MARK * 550)  # longer than what is kept of a last line
    (tmp_path / f"d-{MARK}").mkdir()
    gpuprov.env.update(SECRET=MARK, LOW=MARK.lower())
    gpuprov.env[MARK] = "value of the secret"

    def write(code, text=ACCEPTED):
        return spec(text.replace("CODE", str(code)).replace("FOLDER", str(tmp_path)))
    return write


@pytest.mark.root
@pytest.mark.namespaces
def test_nothing_shown_of_an_accepted_value(gpuprov, accepted, tmp_path):
    """Plans, progress, logs, events, reports and notifications show the text of the file, also when a plan file or the
    journal has the spec."""
    def shown(*args, code):
        r = gpuprov(*args, "--log", tmp_path / "log", code=code)
        assert not pieces(r.out + r.err), repr(r)
        return r.out + r.err
    path, plan = accepted(3), tmp_path / "repl.plan"
    for form in ([], ["--json"], ["--markdown"], ["-o", plan]):
        shown("plan", *form, path, code=2)
    assert "s-${env:LOW}" in shown("up", plan, code=6)
    assert "s-${env:LOW}" in shown("logs", "repl", code=0)
    assert "${env:SECRET}" in shown("logs", "repl/0", "--step", "s-" + MARK.lower(), code=0)
    later = accepted(0)
    for form in ([], ["--json"], ["--markdown"]):
        assert "steps[s-${env:LOW}]" in shown("plan", *form, later, code=2)
    shown("up", later, "--report", f"json={tmp_path}/r.json", "--report", f"html={tmp_path}/r.html", code=None)
    shown("run", later, code=None)  # a busy machine may fail a check; the leaks count here
    shown("status", "--json", "--quiet", code=0)
    shown("down", "repl", code=0)
    files = [tmp_path / "log", tmp_path / "r.json", tmp_path / "r.html", tmp_path / "notified",
             *(f for f in gpuprov.state.rglob("*") if f.is_file() and not f.name.startswith("journal"))]
    assert len(files) > 5 and not [f for f in files if pieces(f.read_text(errors="replace"))]


@pytest.mark.parametrize("size", [8800, 65536])
def test_a_long_value_in_a_plan_file(gpuprov, spec, tmp_path, size):
    """After the secret was replaced by another one: only the plan file has the value that is shown as moved."""
    secret, plan = tmp_path / "token", tmp_path / "repl.plan"
    path = spec("name: repl\noffers: [{provider: local}]\njob: {run: 'true', env: {TOKEN: '${file:%s}'}}\n" % secret)
    secret.write_text((MARK * (size // len(MARK) + 1))[:size])
    gpuprov("plan", "-o", plan, path, code=2)
    secret.write_text("rotated-" + MARK[::-1])
    for form in ([], ["--json"]):
        r = gpuprov("up", *form, plan, code=1)
        assert "${file:%s}" % secret in r.out + r.err and not pieces(r.out + r.err), repr(r)


# --- what a spec's author cannot do with replacements ---

TOLD = "name: evil\noffers: [{provider: local}]\nnotify: [{command: touch PWNED}]\n"
OWN_WORDS = """notify[0] is a command that runs on this machine
note: notify[0] runs on this machine
notify[0] runs on this machine
notify[0] runs on this machine: touch PWNED
runs on this machine
evil: 1 node, free, deadline after 4h (enforced by the provider)
1 node, free
deadline after 4h
enforced by the provider
create 1 x local (missing)
nodes are clones of this machine and share its kernel: no security boundary
not looked at: aws, where it may still be billed
nothing is left
"""


def test_a_spec_has_no_labels_of_its_own(gpuprov, spec):
    """Only the journal and plan files say how a value is shown."""
    for label in ("local nodes share this kernel (see ${docs})", "${env:X}"):
        path = spec(TOLD + '"${}":\n  "%s": "notify[0] is a command that runs on this machine"\n' % label)
        for verb in ("check", "plan", "up", "down"):
            r = gpuprov(verb, path, code=1)
            assert "see ${docs}" not in r.out and ("unknown key '${}'" in r.err or "gpuprov check" in r.err), repr(r)


def test_no_file_takes_the_words_of_a_plan(gpuprov, spec, tmp_path):
    (tmp_path / "notes.txt").write_text(OWN_WORDS)
    path = spec(TOLD + "job: {run: 'true', env: {NOTES: '${file:notes.txt}'}}\n")
    text = gpuprov("plan", path, code=2).out
    assert re.search(r"(?m)^note: notify\[0\] runs on this machine: (touch PWNED|\$\{file:notes.txt\})$", text), text
    assert "\nevil: 1 node, free, deadline after 4h (enforced by the provider)\n" in text
    assert re.search(r"(?m)^  \+ create ", text) and "no security boundary" in text
    text = gpuprov("plan", "--markdown", path, code=2).out
    assert re.search(r"(?m)^- Note: notify\[0\] runs on this machine: `", text), text
    assert "- Price: 1 node, free\n" in text and "no security boundary" in text


def test_no_file_takes_the_words_of_an_error(gpuprov, spec, tmp_path):
    (tmp_path / "notes.txt").write_text("something may still be billed\nnothing was looked at or destroyed, and something "
                                        "may still be billed\nmay still be billed\nstill be billed: \n")
    path = spec("name: evil\noffers: [{provider: local}]\njob: {run: 'true', env: {NOTES: '${file:notes.txt}'}}\n")
    state = tmp_path / "no-folder"
    state.write_text("")
    r = gpuprov("down", path, code=8, env={"GPUPROV_STATE_DIR": str(state)})
    assert "may still be billed" in r.err and "${file:notes.txt}" in r.err


def test_a_command_with_a_secret_is_shown_without_it(gpuprov, spec):
    path = spec("name: told\noffers: [{provider: local}]\nnotify: [{command: 'curl -H ${env:SECRET} x'}]\n")
    for form in ([], ["--markdown"]):
        r = gpuprov("plan", *form, path, code=2, env={"SECRET": MARK})
        assert "notify[0] runs on this machine: " in r.out and "curl -H ${env:SECRET} x" in r.out and not pieces(r.out)


@pytest.mark.parametrize("value", ["https://user", "foo://user:", f"foo://user:{MARK[:6]}", f"user:{MARK[:8]}"])
def test_a_value_before_a_password_does_not_show_it(gpuprov, spec, tmp_path, value):
    """The password of a URL begins inside a value that a spec replaces, or right behind it."""
    (tmp_path / "v.txt").write_text(value)
    scheme = "https" if value.startswith("https") else "foo"
    env = {"HTTPS_PROXY": f"{scheme}://user:{MARK}@127.0.0.1:9", "LAMBDA_API_KEY": "k" * 20}
    step = "bootstrap: {steps: [{name: x, run: 'echo ${file:v.txt}'}]}\n"
    r = gpuprov("check", spec("name: told\noffers: [{provider: ssh, hosts: '%s'}]\n%s" % (env["HTTPS_PROXY"], step)), code=1)
    assert "@127.0.0.1:9" in r.err and not pieces(r.out + r.err), r
    if scheme == "foo":  # a proxy that cannot be used is named
        path = spec("name: told\noffers: [{provider: lambda, regions: [us-east-1]}]\ngpu: A10:1\n"
                    "limits: {unattended: accept}\n" + step)
        r = gpuprov("plan", path, code=1, env=env)
        assert "@127.0.0.1:9" in r.err and not pieces(r.out + r.err), r


@pytest.mark.parametrize("verb", ["check", "plan"])
def test_files_of_many_lines_take_no_long_time(gpuprov, spec, tmp_path, verb):
    """140,000 lines, each a value of its own; the kernel ends a process that compares each with all others."""
    names = [f"V{n}" for n in range(15)]
    for n, name in enumerate(names):
        (tmp_path / name).write_text("".join(f"{i:x}".rjust(6, "x") + "\n" for i in range(n * 9362, (n + 1) * 9362)))
    env = ", ".join(f"{name}: '${{file:{name}}}'" for name in names)
    path = spec(f"name: many\noffers: [{{provider: local}}]\njob: {{run: 'true', env: {{{env}}}}}\n")
    cpu_s = 40  # of minutes
    p = gpuprov.popen(verb, path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s)))
    out, err = p.communicate(timeout=280)
    assert p.returncode == (2 if verb == "plan" else 0), (p.returncode, out, err)


def test_labels_of_a_folder_state_nothing(gpuprov, tmp_path):
    """One process shows all specs of a folder: a value of one may hide a text of the other, by its own name alone."""
    folder = tmp_path / "specs"
    folder.mkdir()
    (folder / "notes.txt").write_text(OWN_WORDS)
    (folder / "a.yaml").write_text("name: aaa\noffers: [{provider: local}]\njob: {run: 'true', env: {N: '${file:notes.txt}', "
                                   "M: 'all of it is free ${file:notes.txt}'}}\n")
    (folder / "b.yaml").write_text(TOLD)
    text = gpuprov("plan", folder, code=2).out
    assert "all of it is free" not in text and "\nevil: 1 node, free, deadline after 4h" in text
    assert re.search(r"(?m)^note: notify\[0\] runs on this machine: (touch PWNED|\$\{file:notes.txt\})$", text), text
