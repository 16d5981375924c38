# SPDX-License-Identifier: Apache-2.0
"""The command line itself: help, versions, bad input, exit codes, streams, signals."""
import json
import os
import re
import sqlite3
import subprocess

import pytest
from conftest import sanitized
from small_disk import fill, small_disk

LATER = ["adopt", "audit"]
VERBS = ["init", "check", "offers", "plan", "up", "run", "exec", "attach", "wait", "cancel", "status", "extend", "bootstrap",
         "ssh", "cp", "export", "validate",
         "report", "verify", "logs", "down", "gc",
         "bake", "images", "doctor", "version", "schema", "providers", "checks", "completion", "help"]
GOOD = "name: try\noffers: [{provider: local}]\n"


def one_line(result):
    """Errors are one line on stderr that begins with the program's name."""
    lines = result.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("gpuprov: "), result
    assert result.out == "", result
    return lines[0]


def test_version(gpuprov):
    assert re.fullmatch(r"gpuprov \d+\.\d+\.\d+ \(.*\)\n", gpuprov("version").out)
    assert gpuprov("--version").out == gpuprov("version").out == gpuprov("-V").out
    assert set(gpuprov.json("version")) == {"version", "agent", "agent_cuda"}
    assert not gpuprov.state.exists()  # nothing is written by looking


def test_help_lists_every_verb(gpuprov):
    text = gpuprov("help").out
    for verb in VERBS:
        assert re.search(rf"^  {verb}\b", text, re.M), verb
    for verb in LATER + ["__holder", "__dial", "__known_host"]:
        assert not re.search(rf"^  {verb}\b", text, re.M), verb
    assert gpuprov().out == gpuprov("--help").out == text


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb(gpuprov, verb):
    page = gpuprov("help", verb).out
    assert page.startswith(f"gpuprov {verb}")
    assert "--json" in page and "--trace" not in page and "\nexamples:\n" in page
    assert "--trace" in gpuprov("help", "-a", verb).out
    if verb != "help":
        assert gpuprov(verb, "--help").out == page


@pytest.mark.parametrize("verb", LATER)
def test_verbs_of_later_versions(gpuprov, verb):
    assert "does not have it yet" in one_line(gpuprov(verb, "x", code=1))


def test_unknown_verb(gpuprov):
    assert "did you mean 'status'?" in one_line(gpuprov("stauts", code=1))
    assert "'gpuprov help'" in one_line(gpuprov("frobnicate", code=1))


@pytest.mark.parametrize("args, says", [
    (["status", "--jsno"], "did you mean '--json'"),
    (["status", "--jobs"], "needs a value"),
    (["status", "--jobs", "0"], "from 1 to 1024"),
    (["status", "--jobs=many"], "from 1 to 1024"),
    (["status", "-x"], "unknown option '-x'"),
    (["--nonsense", "status"], "unknown option '--nonsense'; 'gpuprov help -a' lists the options"),
    (["--jsno", "status"], "did you mean '--json'?"),
    (["init", "nodir/y.yaml"], "could not write 'nodir/y.yaml': its folder does not exist; create it first"),
    (["report", "x", "--format", "pdf"], "text|json"),
    (["up"], "no SPEC was given, and this folder has no gpuprov.yaml"),
    (["up", "a.yaml", "b.yaml"], "usage: gpuprov up [SPEC|PLAN|DIR]"),
    (["down", "x", "--", "y"], "takes no arguments after '--'"),
    (["ssh", "x", "ls"], "put '--' before the command 'ls'"),
    (["ssh", "x/abc"], "0 to 4095"),
    (["ssh", "x/4096"], "0 to 4095"),
    # the last node that a spec can have
    (["logs", "x/4095"], "there is no log of a stack 'x' on this machine; 'gpuprov status' lists the stacks"),
    (["down", "Bad_Name"], "neither an existing spec file"),
    (["images", "--in", "aws,ssh"], "ssh: gpuprov makes no images there, so there are none to look for: remove it"),
    (["images", "--in", "lambda/us-east-1", "--remove", "--yes", "x"], "lambda: gpuprov makes no images there"),
    (["gc", "nowhere"], "unknown provider 'nowhere'"),
    (["providers", "nowhere"], "unknown provider 'nowhere'"),
    (["providers", "--policy"], "gpuprov providers NAME --policy (aws, "),
    (["status", "--trace=smtp"], "smtp"),
    (["completion", "tcsh"], "bash, zsh, fish"),
    (["help", "frob"], "unknown verb 'frob'"),
    (["check", "/nonexistent.yaml"], "/nonexistent.yaml"),
    (["check", "/"], "/"),
])
def test_bad_usage(gpuprov, args, says):
    assert says in one_line(gpuprov(*args, code=1))


def test_errors_as_json(gpuprov):
    for args in (["nonsense", "--json"], ["up", "--json"], ["check", "/nonexistent.yaml", "--json"]):
        r = gpuprov(*args, code=1)
        error = r.json["error"]
        assert set(error) >= {"code", "detail", "message"}
        assert error["message"] in r.err


def test_check(gpuprov, spec):
    path = spec(GOOD)
    j = gpuprov.json("check", path)
    known = len(gpuprov.json("checks")["checks"])
    assert j["checks"] + len(j["left_out"]) == known > j["checks"]
    assert gpuprov("check", path).out == (f"{path}: ok: stack 'try', 1 node, {j['checks']} of {known} checks "
                                          "(--json has the reasons for the others)\n")
    assert j["ok"] is True and j["name"] == "try" and j["nodes"] == 1 and len(j["hash"]) == 64
    assert not gpuprov.state.exists()


def test_bad_specs_show_every_place(gpuprov, spec):
    path = spec("name: try\nnodse: 2\nlimits: {ttl: 4}\noffers: [{provider: locl}]\n")
    r = gpuprov("check", path, code=1)
    assert r.out == ""
    for place in (f"{path}:2:1:", f"{path}:3:", f"{path}:4:"):
        assert place in r.err, r
    assert "did you mean" in r.err and "^" in r.err
    assert r.err.splitlines()[-1].startswith("gpuprov: ")
    j = gpuprov("check", path, "--json", code=1).json
    assert j["error"]["code"] == "usage"
    assert [p["line"] for p in j["error"]["problems"]] == sorted(
        p["line"] for p in j["error"]["problems"])
    assert len(j["error"]["problems"]) >= 3


@pytest.mark.parametrize("text", [
    "", "name", "- a\n- b\n", "name: [", "name: try\nname: again\n", "a: &x 1\nb: *x\n",
    "name: Try!\n", "name: try\nnodes: 0\n", "name: try\nnodes: many\n", "\x00", "name: \xff\n",
    "name: try\nvalidate: {require: [no.such.check]}\n", "name: try\nlimits: {ttl: 10}\n",
    "name: try\nsecrets: [{env: A}]\n",
])
def test_wrong_yaml(gpuprov, tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_bytes(text.encode("latin-1"))
    r = gpuprov("check", path, code=1)
    assert "gpuprov: " in r.err and r.out == "" and str(path) in r.err


def test_up_refuses_a_bad_spec_before_anything(gpuprov, spec):
    gpuprov("up", spec("name: try\nnodes: -1\n"), code=1)
    gpuprov("plan", spec("nope: 1\n"), code=1)
    assert not (gpuprov.state / "local").exists()


def test_init_makes_specs_that_check(gpuprov, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    for provider in [p["name"] for p in gpuprov.json("providers")["providers"]]:  # one for each
        path = tmp_path / f"{provider}.yaml"
        gpuprov("init", path, "--provider", provider)
        gpuprov("check", path)
        assert f"{{provider: {provider}" in path.read_text() or f"provider: {provider}\n" in path.read_text()
        full = re.sub(r"^( *)# (- \{|[a-z_]+: )", r"\1\2", path.read_text(), flags=re.M)  # with all its alternatives
        assert full != path.read_text()
        path.with_suffix(".full").write_text(full.replace("~/.ssh/id_ed25519", "key"))
        gpuprov("check", path.with_suffix(".full"))
    assert "2 nodes" in gpuprov("check", tmp_path / "local.yaml").out and "with two nodes" in gpuprov("help", "init").out
    before = path.read_text()
    assert "exists already" in gpuprov("init", path, code=1).err
    assert path.read_text() == before
    assert gpuprov("init", "-").out.startswith("# A gpuprov spec")


def test_schema_is_a_json_schema(gpuprov):
    schema = json.loads(gpuprov("schema").out)
    assert "2020-12" in schema["$schema"]
    assert {"name", "nodes", "gpu", "offers", "limits", "validate"} <= set(schema["properties"])
    assert "| " in gpuprov("schema", "--markdown").out or "#" in gpuprov("schema", "--markdown").out


def test_providers_and_checks(gpuprov):
    names = [p["name"] for p in gpuprov.json("providers")["providers"]]
    assert names[:3] == ["local", "ssh", "aws"] and len(set(names)) == len(names)
    policy = json.loads(gpuprov("providers", "aws", "--policy", "--owner", "me").out)
    actions = json.dumps(policy)
    assert "ec2:RunInstances" in actions and '"*:*"' not in actions and '"ec2:*"' not in actions
    checks = {c["id"]: c for c in gpuprov.json("checks")["checks"]}
    assert checks["train.ddp"]["level"] == "gang"


def test_status_of_nothing(gpuprov):
    """Every place that opens was searched; a cloud without credentials is named, and is no error."""
    text = gpuprov("status").out
    assert text.startswith("no stack was found\nlooked at: local here")
    assert re.search(r"^not looked at: (\w+, )*aws(, \w+)*: this machine has no credentials for (it|them)$", text, re.M)
    j = gpuprov.json("status")
    assert j["stacks"] == [] and j["remembered"] is False
    looked = {p["provider"]: p["checked"] for p in j["looked"]}
    assert looked.pop("local") and looked["aws"] is False and not any(looked.values())
    assert "not looked at: aws" in gpuprov("status", "--in", "aws", code=8).err
    assert gpuprov("status", "--offline").out == "the journal has no stacks; no provider was queried\n"
    assert gpuprov.json("status", "--offline") == {"stacks": [], "remembered": True}


@pytest.mark.parametrize("args", [["gc"], ["gc", "-n"], ["status", "x"], ["down", "x"], ["down", "x", "-n"]])
def test_a_gap_is_reported_once(gpuprov, args):
    """The reason and the next step are in the error; a warning before it would be the same text again."""
    r = gpuprov(*args, code=8)
    assert r.err.count("none found in the environment") == 1, r
    command = " 'gpuprov down x'" if args == ["down", "x"] else ""
    assert r.err.endswith(f"AWS_SECRET_ACCESS_KEY; then repeat{command}, or give --in with the places to look at\n"), r
    assert "nothing was found" not in r.out


@pytest.mark.parametrize("args", [["plan"], ["up", "-q"], ["up"]])
def test_missing_credentials_are_reported_once(gpuprov, spec, args):
    """The reason is the error; a warning before it would be the same text again."""
    aws = "name: x\ngpu: H100:8\noffers: [{provider: aws, regions: [us-east-1]}%s]\n"
    r = gpuprov(*args, spec(aws % ""), code=5)
    assert r.err.count("none found in the environment") == 1 and r.err.startswith("gpuprov: aws credentials: "), r
    if args == ["plan"]:  # another provider opens: no error has the reason
        r = gpuprov(*args, spec(aws.replace("gpu: H100:8\n", "") % ", {provider: local}"), code=2)
        assert "warning: providers: aws is not queried: aws credentials: none found" in r.err


def test_the_state_folder_is_private(gpuprov):
    gpuprov("status")
    assert gpuprov.state.stat().st_mode & 0o777 == 0o700
    for path in gpuprov.state.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_state_folder_that_cannot_be_made(gpuprov):
    r = gpuprov("status", code=1, env={"GPUPROV_STATE_DIR": "/proc/nowhere"})
    assert "state folder" in one_line(r)


def test_doctor(gpuprov):
    r = gpuprov("doctor", "--json", code=None)
    items = {i["name"]: i for i in r.json["items"]}
    assert {"state folder", "agent", "CUDA agent", "ssh client", "local nodes"} <= set(items)
    for item in items.values():
        assert (item["found"] == "ok") == ("how" not in item), item
    assert r.code == (0 if r.json["ok"] else 1)
    text = gpuprov("doctor", code=r.code).out
    assert "state folder" in text


def test_doctor_names_the_variable_that_counts(gpuprov, tmp_path):
    how = {}
    for name, value in (("GPUPROV_STATE_DIR", "/proc/nowhere"), ("XDG_STATE_HOME", "/proc/nowhere")):
        env = {"GPUPROV_STATE_DIR": "", "XDG_STATE_HOME": "", "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
        items = gpuprov("doctor", "--json", code=1, env={**env, name: value}).json["items"]
        how[name] = next(i["how"] for i in items if i["name"] == "state folder")
        assert f"set {name} to a writable folder" in how[name]
    assert len(set(how.values())) == 2


@pytest.mark.root
@pytest.mark.namespaces
def test_doctor_on_a_full_disk(gpuprov, tmp_path):
    with small_disk(tmp_path / "small", "64k") as state:
        state.chmod(0o700)
        fill(state)
        items = gpuprov("doctor", "--json", code=1, env={"GPUPROV_STATE_DIR": str(state)}).json["items"]
        assert "its file system is full" in next(i["how"] for i in items if i["name"] == "state folder"), items


def test_completion_offers_every_verb(gpuprov):
    script = gpuprov("completion", "bash").out + (
        'COMP_WORDS=(gpuprov ""); COMP_CWORD=1; __gpuprov; echo "${COMPREPLY[@]}"\n'
        'COMP_WORDS=(gpuprov report "--fo"); COMP_CWORD=2; __gpuprov; echo "${COMPREPLY[@]}"\n')
    p = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    words, options = p.stdout.splitlines()
    assert set(VERBS) <= set(words.split()) and "__dial" not in words
    assert options == "--format"
    assert "complete -c gpuprov" in gpuprov("completion", "fish").out


def remember(gpuprov, *names, owner="me"):
    """Stacks in the journal alone, without machines."""
    gpuprov("status", "--offline")
    with sqlite3.connect(gpuprov.state / "journal.db") as db:
        for name in names:
            db.execute("INSERT INTO stacks(owner,name,uid,spec_hash,provider,region,created_s,expires_s,spec) "
                       "VALUES(?,?,?,'','local','here',1,4000000000,'')", (owner, name, f"{hash((owner, name)) & 0xffffffff:016x}"))


def test_completion_offers_stack_names(gpuprov, tmp_path):
    bash = gpuprov("completion", "bash").out

    def complete(*words):
        line = " ".join(f'"{w}"' for w in words)
        script = f'{bash}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; __gpuprov; echo "${{COMPREPLY[@]}}"'
        p = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path,
                           env={**gpuprov.env, "PATH": f"{gpuprov.program.parent}:{os.environ['PATH']}"})
        assert p.stderr == ""
        return p.stdout.split()
    (tmp_path / "llm.yaml").write_text(GOOD)
    assert complete("gpuprov", "down", "l") == ["llm.yaml"]
    assert not gpuprov.state.exists()  # completing creates nothing
    remember(gpuprov, "llm", "demo")
    for verb in ("down", "status", "ssh", "logs", "report", "validate"):
        assert complete("gpuprov", verb, "l") == ["llm", "llm.yaml"], verb
    assert complete("gpuprov", "gc", "l") == ["llm.yaml"]
    assert complete("gpuprov", "down", "--dr") == ["--dry-run"]
    assert "completion stacks" in gpuprov("completion", "fish").out


def test_a_file_with_the_form_of_a_stacks_name(gpuprov, spec):
    """'down demo' of a spec without .yaml must not end with "nothing was found" and exit 0."""
    folder = spec("name: other\noffers: [{provider: local}]\n", "demo").parent
    for verb in ("down", "status", "report", "validate", "logs", "ssh"):
        r = gpuprov(verb, "demo", code=1, cwd=folder)
        assert "'demo' is a file here, and the journal has no stack of that name: give './demo'" in r.err and r.out == ""
    assert gpuprov("down", "./demo", "--in", "local", cwd=folder).out.startswith("other: nothing was found")
    assert "there is no log of a stack 'other'" in gpuprov("logs", "./demo", code=1, cwd=folder).err
    (folder / "demo.2").write_text(GOOD)  # no stack has such a name
    assert gpuprov("down", "demo.2", "--in", "local", cwd=folder).out.startswith("try: nothing was found")
    remember(gpuprov, "demo")
    assert gpuprov("status", "demo", "--offline", cwd=folder).out.splitlines()[-1].startswith("demo: ")
    assert "there is no log of a stack 'demo'" in gpuprov("logs", "demo", code=1, cwd=folder).err
    assert gpuprov("down", "demo", "--in", "local", cwd=folder).out.startswith("demo: nothing was found")


def test_a_spec_that_is_not_there(gpuprov):
    for verb in ("down", "status", "report", "validate", "logs", "ssh"):
        assert "there is no spec 'nowhere.yml': correct the path, or give the stack's name" in gpuprov(verb, "nowhere.yml", code=1).err
    for verb in ("up", "plan", "check"):
        assert "correct the path, or let 'gpuprov init nowhere.yml' write one" in gpuprov(verb, "nowhere.yml", code=1).err


def test_status_past_the_deadline_names_the_next_step(gpuprov):
    remember(gpuprov, "llm")
    assert "destroys what is left" not in gpuprov("status", "--offline").out
    with sqlite3.connect(gpuprov.state / "journal.db") as db:
        db.execute("UPDATE stacks SET expires_s=2")
    text = gpuprov("status", "--offline").out
    assert "past its deadline" in text and "'gpuprov down llm' destroys what is left" in text


def test_a_spec_where_a_stack_is_wanted(gpuprov, spec):
    path = spec(GOOD)
    for args in (["logs", path], ["logs", f"{path}/3"]):
        assert "there is no log of a stack 'try'" in one_line(gpuprov(*args, code=1))
    for args in (["ssh", path], ["ssh", f"{path}/0"]):
        assert "there is no stack 'try': run 'gpuprov up' to launch it" in one_line(gpuprov(*args, code=1))
    err = gpuprov("ssh", "try", code=5).err
    assert "there is no stack 'try' in the journal, and aws was not searched for it: " in err
    assert "--in" not in err  # this verb does not have it
    bad = spec("name: 7\n", "bad.yaml")
    assert f"'gpuprov check {bad}' lists them" in one_line(gpuprov("logs", bad, code=1))
    assert "/nonexistent.yaml" in one_line(gpuprov("ssh", "/nonexistent.yaml/1", code=1))


def test_logs_of_two_owners(gpuprov):
    """Stacks of two owners may have one name, and so one log: it is never mixed."""
    events = gpuprov.state / "events"
    events.mkdir(parents=True)

    def line(run, owner, text):
        e = {"t": "2026-01-02T03:04:05.678Z", "stack": "llm", "run": run, "node": None, "phase": "launch",
             "status": "info", "step": "", "text": text}
        return json.dumps({**e, **({"owner": owner} if owner else {})}) + "\n"
    (events / "llm.jsonl").write_text(
        line("a" * 16, None, "begins of A") + line("a" * 16, "ann", "of A") + line("b" * 16, "bob", "of B")
        + line("c" * 16, None, "of an earlier version"))
    gpuprov.state.chmod(0o700)
    assert "several owners (ann, bob): choose one with --owner" in one_line(gpuprov("logs", "llm", code=1))
    text = gpuprov("logs", "llm", "--owner", "ann").out
    assert "begins of A" in text and "of B" not in text and "of an earlier version" in text
    assert "of A" not in gpuprov("logs", "llm", env={"GPUPROV_OWNER": "bob"}).out
    remember(gpuprov, "llm", owner="bob")  # the other one is gone
    assert "of B" in gpuprov("logs", "llm").out and "of A" not in gpuprov("logs", "llm").out


def test_a_state_folder_that_everybody_can_write(gpuprov, tmp_path):
    """Another user could replace the journal, which decides what is destroyed."""
    open_to_all = tmp_path / "shared"
    open_to_all.mkdir()
    for mode in (0o777, 0o1777):
        open_to_all.chmod(mode)
        text = one_line(gpuprov("status", code=1, env={"GPUPROV_STATE_DIR": str(open_to_all)}))
        assert f"'{open_to_all}' can be written by every user (mode {mode:04o}): run 'chmod 700 {open_to_all}'" in text
        assert list(open_to_all.iterdir()) == [] and open_to_all.stat().st_mode & 0o7777 == mode
    gpuprov("status", env={"GPUPROV_STATE_DIR": str(open_to_all / "mine")})


def test_stdout_that_is_full_is_an_error(gpuprov):
    with open("/dev/full", "w") as full:
        p = gpuprov.popen("help", stdout=full)
        _, err = p.communicate(timeout=120)
    assert p.returncode == 1 and "could not write the result" in err


def test_a_reader_that_left_is_not_a_crash(gpuprov):
    read, write = os.pipe()
    os.close(read)
    p = gpuprov.popen("help", stdout=write)
    os.close(write)
    p.communicate(timeout=120)
    assert p.returncode in (0, 1)  # no SIGPIPE death


def test_names_of_files_and_stacks_are_told_apart(gpuprov, spec, tmp_path):
    spec(GOOD, "try")  # a file without a suffix, in the current folder
    r = gpuprov("check", "try", cwd=tmp_path)
    assert "stack 'try'" in r.out
    assert "no" in gpuprov("report", "nothere", code=1).err


def test_unknown_stacks_say_so(gpuprov):
    """Without credentials nobody knows whether a cloud has it; status is the verb that tells what is billed."""
    env = {"AWS_EC2_METADATA_DISABLED": "true"}
    for verb, code in (("report", 1), ("logs", 1), ("ssh", 5), ("validate", 5), ("status", 8)):
        r = gpuprov(verb, "nothere", "--quiet", code=code, env=env, timeout=300)
        assert "nothere" in one_line(r), verb
    told = one_line(gpuprov("status", "nothere", "--in", "local", "--quiet", code=1))
    assert "there is no stack 'nothere' in the journal or at local here" in told  # not everywhere


def test_status_of_a_spec_without_a_stack(gpuprov, tmp_path):
    """It is not gone: nothing was launched."""
    (tmp_path / "s.yaml").write_text("name: never\noffers: [{provider: local}]\n")
    told = gpuprov("status", tmp_path / "s.yaml").out
    assert "never: there is no such stack" in told and "looked at: local here" in told


def test_version_starts_no_library(gpuprov):
    """`version` must stay quick: no file of the state folder, no thread, no socket."""
    if not os.path.exists("/usr/bin/strace"):
        pytest.skip("no strace")
    if sanitized(gpuprov.program):
        pytest.skip("a sanitizer starts threads of its own")
    p = subprocess.run(["/usr/bin/strace", "-f", "-e", "trace=clone,clone3,socket",
                        str(gpuprov.program), "version"], capture_output=True, text=True, check=True)
    assert "clone" not in p.stderr and "socket(" not in p.stderr


@pytest.mark.parametrize("args, said", [
    (["report", "x", "--history", "--format", "html"], "--history prints text, or JSON"),
    (["report", "x", "--history", "--output", "f"], "--history prints text, or JSON"),
    (["report", "x", "--json", "--format", "html"], "--json and --format html exclude each other"),
    (["ssh", "x", "--json"], "--json needs --config"),
    (["ssh", "x", "--config", "--", "ls"], "omit '-- ls'"),
    (["schema", "--hosts", "--report"], "exclude each other"),
    (["checks", "host.clock", "--models"], "omit 'host.clock'"),
])
def test_no_option_is_ignored(gpuprov, args, said):
    assert said in gpuprov(*args, code=1).err


def test_an_unknown_option_has_a_next_step(gpuprov):
    for verb in VERBS:
        r = gpuprov(verb, "--frobnicate", code=None)
        assert r.code != 0 and f"'gpuprov help {verb}' lists the options" in r.err, r


def test_a_check_by_its_name(gpuprov):
    text = gpuprov("checks", "host.clock").out
    assert text.startswith("host.clock\n\nRuns on") and "\nFinds: A clock" in text and "\noffset  " in text
    assert not any(mark in text for mark in ("#", "**", "`", "|", "](")) and "host.k" not in text
    assert max(len(line) for line in text.splitlines() if not line.startswith(("figure ", "offset ", "estimated"))) <= 100
    assert gpuprov.json("checks", "host.clock")["markdown"].startswith("### host.clock\n")
    assert "did you mean 'host.clock'" in one_line(gpuprov("checks", "host.clok", code=1))
    assert "'gpuprov checks host.clock' explains it" in one_line(gpuprov("check", "host.clock", code=1))


def test_the_manual_page_indents_only_examples(gpuprov):
    lines = gpuprov("help", "--man").out.splitlines()
    at = lines.index("The result names the places that were looked at. If one of them could not be read and something")
    assert lines[at + 1].startswith("there may be billed") and "0    done" in lines
    assert "  gpuprov check gpuprov.yaml" in lines


def test_help_fits_100_columns(gpuprov):
    for verb in VERBS:
        for line in gpuprov("help", verb).out.splitlines():
            assert len(line) <= 100, f"{verb}: {line}"


def test_slurm_scripts_are_written_once_and_kept(gpuprov, tmp_path):
    to = tmp_path / "slurm"
    gpuprov("init", "--slurm", to)
    gpuprov("init", "--slurm", to)  # the same again
    (to / "prolog.sh").unlink()
    gpuprov("init", "--slurm", to)  # after a run that was cut
    assert (to / "prolog.sh").exists()
    (to / "healthcheck.sh").write_text("mine")
    assert "exists already with other content" in one_line(gpuprov("init", "--slurm", to, code=1))
    assert (to / "healthcheck.sh").read_text() == "mine"
