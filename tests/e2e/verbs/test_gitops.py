# SPDX-License-Identifier: Apache-2.0
"""Plan files, typed changes, Markdown, and a folder of specs as one unit: on local nodes, and without any."""
import json
import os
import re
import stat

import pytest

SPEC = "name: {}\nnodes: 1\noffers: [{{provider: local}}]\nlimits: {{ttl: 20m}}\nvalidate: {{time: 1m}}\n"


@pytest.fixture(name="folder")
def folder_fixture(tmp_path):
    """folder(name, a=TEXT, ...): a folder of specs; the unit is its name unless unit=None."""
    def make(name, *stacks, unit=True, **files):
        path = tmp_path / name
        path.mkdir(exist_ok=True)
        for stack in stacks:
            (path / f"{stack}.yaml").write_text(SPEC.format(stack))
        for file, text in files.items():
            (path / f"{file}.yaml").write_text(text)
        if unit:
            (path / "gpuprov.unit").write_text(name + "\n")
        return path
    return make


def nothing_exists(gpuprov):
    local = gpuprov.state / "local"
    return not local.exists() or not any(local.iterdir())


def signed(plan, path):
    """Writes a plan file again, with the hash that its content has."""
    import hashlib
    text = json.dumps(plan["plan"], separators=(",", ":"), ensure_ascii=False)
    plan["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(plan))


# --- one plan ---

def test_typed_changes(gpuprov, spec):
    j = gpuprov.json("plan", spec(SPEC.format("typed").replace("nodes: 1", "nodes: 2")), code=2)
    rows = j["resource_changes"]
    assert [(r["action"], r["resource"], r["node"], r["before"]) for r in rows] == [
        ("create", "claim", None, None), ("create", "node", 0, None), ("create", "node", 1, None)]
    assert rows[1]["after"] == "local" and rows[1]["reason"] == "missing"
    assert {"stack", "changes", "items", "offers", "spec_changes", "price_usd_per_h", "ends", "notes"} <= set(j)


def test_markdown(gpuprov, spec):
    path = spec(SPEC.format("mark"), name="a|b`@all`.yaml")
    out = gpuprov("plan", "--markdown", path, code=2).out
    assert "| create | node 0 |" in out and "deadline" in out.lower() and "enforced by the provider" in out
    for line in out.splitlines():
        assert line.count("|") == (6 if line.startswith("|") else 0), line
        assert "@" not in re.sub("`[^`]*`", "", line), line
    broken = spec("name: x\nnodse: 1\n", name="broken.yaml")
    r = gpuprov("plan", "--markdown", broken, code=1)
    assert "**The plan failed:** `" in r.out
    assert "not both" in gpuprov("plan", "--markdown", "--json", path, code=1).err


# --- plan files that are refused ---

def test_a_plan_file_has_no_secret_and_is_private(gpuprov, spec, tmp_path):
    text = SPEC.format("s") + "secrets: [{env: TOKEN, from: env:GP_TOKEN}]\n"
    plan = tmp_path / "s.plan"
    before = os.umask(0)
    try:
        gpuprov("plan", "-o", plan, spec(text), code=2, env={"GP_TOKEN": "hunter2-hunter2"})
    finally:
        os.umask(before)
    assert plan.stat().st_mode & 0o777 == 0o600
    assert "hunter2" not in plan.read_text()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("s.plan")] == ["s.plan"]  # no temporary file
    full = gpuprov("plan", "-o", "/dev/full/x", spec(text), code=1, env={"GP_TOKEN": "x"})
    assert "/dev/full/x" in full.err


def test_clocks_may_differ_a_little(gpuprov, spec, tmp_path):
    """A plan of a machine whose clock is ahead by minutes is no plan of the future."""
    plan = tmp_path / "ahead.plan"
    gpuprov("plan", "-o", plan, spec(SPEC.format("ahead")), code=2)
    j = json.loads(plan.read_text())
    j["plan"]["created"] += 60
    j["plan"]["state"]["owner"] = "somebody-else"  # refused later, so that nothing is launched
    signed(j, plan)
    r = gpuprov("up", plan, code=1)
    assert "future" not in r.err and "owner: planned somebody-else" in r.err, r


@pytest.mark.parametrize("bad", ["moved", "future", "hash"])
def test_a_refused_plan_runs_no_command(gpuprov, spec, tmp_path, bad):
    """Nothing from a plan file acts before it is accepted: whoever can write it may have written anything."""
    ran = tmp_path / "ran"
    path, plan = spec(SPEC.format("quiet") + f"notify: [{{command: 'touch {ran}'}}]\n"), tmp_path / "quiet.plan"
    gpuprov("plan", "-o", plan, path, code=2)
    j = json.loads(plan.read_text())
    if bad == "moved":
        j["plan"]["state"]["owner"] = "somebody-else"
    elif bad == "future":
        j["plan"]["created"] += 86400
    signed(j, plan)
    if bad == "hash":
        plan.write_text(plan.read_text().replace('"quiet"', '"queit"'))
    assert "nothing was changed" in gpuprov("up", plan, code=1).err
    assert not ran.exists()


@pytest.mark.parametrize("bad", ["cut", "edited", "version", "schema", "old", "future", "absurd", "number",
                                 "hash of another spec", "spec moved"])
def test_a_bad_plan_file(gpuprov, spec, tmp_path, bad):
    path, plan = spec(SPEC.format("bad")), tmp_path / "bad.plan"
    gpuprov("plan", "-o", plan, path, code=2)
    j = json.loads(plan.read_text())
    why = {"cut": "cut or damaged", "edited": "edited or damaged", "version": "and this is gpuprov",
           "schema": "its schema is", "old": "too old", "future": "from the future", "absurd": "'created' is malformed",
           "number": "'state' is malformed", "hash of another spec": "not the one of its hash",
           "spec moved": "limits.ttl: planned 20m, now 5h"}[bad]
    if bad == "cut":
        plan.write_text(plan.read_text()[:-300])
    elif bad == "edited":
        plan.write_text(plan.read_text().replace('"nodes": 1', '"nodes": 9'))
    elif bad == "version":
        j["plan"]["gpuprov"] = "99.0.0"
        signed(j, plan)
    elif bad == "schema":
        plan.write_text(plan.read_text().replace("gpuprov-plan/v1", "gpuprov-plan/v7"))
    elif bad == "old":
        j["plan"]["created"] -= 40 * 86400
        signed(j, plan)
    elif bad in ("future", "absurd"):
        j["plan"]["created"] = j["plan"]["created"] + 3600 if bad == "future" else 2 ** 63 - 1
        signed(j, plan)
    elif bad == "number":
        j["plan"]["state"]["unsettled launches"] = 2 ** 62
        signed(j, plan)
    elif bad == "hash of another spec":
        j["plan"]["spec"]["nodes"] = 9
        signed(j, plan)
    else:
        path.write_text(path.read_text().replace("20m", "5h"))
    r = gpuprov("up", plan, code=1)
    assert why in r.err and "nothing was changed" in r.err, r
    assert nothing_exists(gpuprov)
    j = gpuprov.json("up", plan, code=1)
    assert j["error"]["code"] == "usage"


def test_a_plan_of_another_owner(gpuprov, spec, tmp_path):
    plan = tmp_path / "o.plan"
    gpuprov("plan", "-o", plan, "--owner", "repo-a", spec(SPEC.format("own")), code=2)
    j = gpuprov.json("up", "--owner", "repo-b", plan, code=1)
    assert j["moved"] == [{"field": "owner", "planned": "repo-a", "now": "repo-b"}]
    assert nothing_exists(gpuprov)


@pytest.mark.root
@pytest.mark.namespaces
def test_a_plan_is_applied_once(gpuprov, spec, tmp_path):
    plan = tmp_path / "once.plan"
    path = spec(SPEC.format("once"))
    gpuprov("plan", "-o", plan, path, code=2)
    assert "READY" in gpuprov("up", plan).out
    again = gpuprov("up", plan, code=1)
    assert "moved: uid: planned none, now " in again.err and "moved: nodes 0: planned none, now local-" in again.err
    gpuprov("plan", "-o", tmp_path / "kept.plan", path)
    assert gpuprov.json("up", tmp_path / "kept.plan")["nothing_to_do"] is True
    gpuprov("down", "once")
    r = gpuprov("up", plan, code=1)
    assert "it was applied before" in r.err and nothing_exists(gpuprov)
    gone = gpuprov("up", tmp_path / "kept.plan", code=1)
    assert "moved: uid: planned " in gone.err and "now none" in gone.err and nothing_exists(gpuprov)


# --- folders ---

def test_what_is_a_spec_in_a_folder(gpuprov, folder):
    path = folder("unit", "a", hosts="hosts: [10.0.0.1]\n", _notes="what: ever\n")
    (path / "sub.yaml").mkdir()
    (path / ".hidden.yaml").write_text("no: spec\n")
    (path / "readme.txt").write_text("no spec")
    j = gpuprov.json("plan", path, code=2)
    assert [s["stack"] for s in j["stacks"]] == ["a"] and j["unit"] == "unit" and j["changes"] is True
    assert sorted(os.path.basename(s) for s in j["skipped"]) == ["_notes.yaml", "hosts.yaml"]
    (path / "other.yaml").write_text("services: {web: {image: x}}\n")  # neither a spec nor marked as none
    assert "other.yaml:1:" in gpuprov("plan", path, code=1).err
    (path / "other.yaml").unlink()
    assert "left out, as no specs: %s/_notes.yaml, %s/hosts.yaml" % (path, path) in gpuprov("plan", path, code=2).out


@pytest.mark.parametrize("name, text", [("b.YAML", "name: b\n"), ("b.Yml", "name: b\n"),
                                        ("b.yaml", "hosts: [10.0.0.1]\noffers: [{provider: local}]\n")])
def test_a_spec_that_is_nearly_overlooked(gpuprov, folder, name, text):
    """--prune would destroy its stack."""
    path = folder("unit", "a")
    (path / name).write_text(text)
    said = gpuprov("plan", path, code=None)
    assert "/b." in said.out + said.err and "left out" not in said.out, said


# --- places that the user names ---

def test_what_an_output_file_may_be(gpuprov, spec, tmp_path):
    """Devices stay devices, links stay links, and no spec becomes a plan."""
    path = spec(SPEC.format("out"))
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to(tmp_path / "real")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    gpuprov("plan", "-o", fifo, path, code=2)
    assert b"gpuprov-plan" in os.read(reader, 65536) and stat.S_ISFIFO(os.lstat(fifo).st_mode)
    os.close(reader)
    (tmp_path / "real").write_text("")
    gpuprov("plan", "-o", link, path, code=2)
    assert link.is_symlink() and "gpuprov-plan" in (tmp_path / "real").read_text()
    gpuprov("plan", "-o", link, path, code=2)  # a plan may replace a plan
    text = path.read_text()
    assert "is not a plan file" in gpuprov("plan", "-o", path, path, code=1).err and path.read_text() == text
    assert "cannot be '-'" in gpuprov("plan", "-o", "-", path, code=1).err and not (tmp_path / "-").exists()


def test_all_problems_at_once(gpuprov, folder):
    path = folder("unit", "a", b=SPEC.format("a"), c="name: c\nnodse: 1\n", d="name: [\n", e="name: e\ngpu: 7\n")
    (path / "loop.yaml").symlink_to("loop.yaml")
    (path / "dangling.yaml").symlink_to("nowhere.yaml")
    for args in (["plan"], ["up"], ["up", "--prune"]):
        r = gpuprov(*args, path, code=1, env={"GPUPROV_OWNER": "ci"})
        for text in ("c.yaml:2:", "d.yaml", "e.yaml:2:", "loop.yaml: error: ",
                     "dangling.yaml: error: it is a link to a file that does not exist", "b.yaml: error: it has the same name 'a' as "):
            assert text in r.err, (text, r)
        assert "nothing was done for any of its specs" in r.err
    problems = gpuprov.json("plan", path, code=1)["error"]["problems"]
    assert {os.path.basename(p["file"]) for p in problems} == {
        "b.yaml", "c.yaml", "d.yaml", "e.yaml", "loop.yaml", "dangling.yaml"}
    assert nothing_exists(gpuprov)


def test_folders_that_are_refused(gpuprov, folder, tmp_path):
    owner = {"GPUPROV_OWNER": "ci"}
    empty = folder("empty")
    assert "has no spec: nothing is planned, launched or pruned" in gpuprov("up", "--prune", empty, code=1, env=owner).err
    path = folder("unit", "a", unit=None)
    assert "write it into" in gpuprov("up", "--prune", path, code=1, env=owner).err
    (path / "gpuprov.unit").write_text("../x\n")
    assert "must have one line: the unit's name" in gpuprov("plan", path, code=1).err
    (path / "gpuprov.unit").write_text("unit\n")
    assert "set GPUPROV_OWNER" in gpuprov("up", "--prune", path, code=1).err
    assert "takes a folder" in gpuprov("up", "--prune", path / "a.yaml", code=1).err
    assert "-o takes one spec" in gpuprov("plan", "-o", tmp_path / "x", path, code=1).err
    assert "take one spec" in gpuprov("up", "--report", f"json={tmp_path}/r", path, code=1).err
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    assert gpuprov("plan", f"{loop}/", code=1)
    assert nothing_exists(gpuprov)


def test_two_hundred_specs(gpuprov, folder):
    path = folder("many", *[f"s{i:03}" for i in range(200)])
    j = gpuprov.json("plan", "--prune", path, code=2, env={"GPUPROV_OWNER": "ci"})
    assert [s["stack"] for s in j["stacks"]] == [f"s{i:03}" for i in range(200)]
    assert all(s["changes"] for s in j["stacks"]) and j["prune"] == []


def test_the_worst_exit_code(gpuprov, folder):
    """One spec is refused by its limits, one by its hosts file, and the others are planned."""
    path = folder("mixed", "a", z=SPEC.format("z").replace("local}", "ssh, hosts: nowhere.hosts}"))
    r = gpuprov("plan", path, code=1)
    assert "z.yaml" in r.err
    (path / "z.yaml").write_text("name: z\noffers: [{provider: aws, regions: [us-east-1]}]\n")
    j = gpuprov.json("plan", path, code=5)  # no credentials: worse than changes
    assert [("error" in s, s.get("changes")) for s in j["stacks"]] == [(False, True), (True, None)]
    out = gpuprov("plan", "--markdown", path, code=5).out
    assert "gpuprov plan: `a`" in out and "**The plan failed:**" in out


def test_a_comment_says_what_is_wrong_with_a_spec(gpuprov, folder, tmp_path):
    path = folder("some", "a", b="name: b\noffrs: []\n")
    problem = "b.yaml:2:1: unknown key 'offrs' in a spec; did you mean 'offers'?`"
    for spec in (path / "b.yaml", path):
        out = gpuprov("plan", "--markdown", spec, code=1).out
        assert "**The plan failed:**" in out and problem in out, out


def test_a_plan_file_is_no_spec(gpuprov, folder, tmp_path):
    path, plan = folder("some", "a"), tmp_path / "a.plan"
    gpuprov("plan", "-o", plan, path / "a.yaml", code=2)
    for verb in ("plan", "check"):
        err = gpuprov(verb, plan, code=1).err
        assert f"'gpuprov up {plan}' applies it" in err and "unknown key" not in err


@pytest.mark.long
@pytest.mark.root
@pytest.mark.namespaces
def test_a_folder_goes_up_and_is_pruned(gpuprov, folder):
    ours, theirs = folder("ours", "a", "b"), folder("theirs", "c")
    env = {"GPUPROV_OWNER": "ci"}
    j = gpuprov.json("up", ours, env=env)
    assert [(s["name"], s["exit_code"], s["stack"]["unit"]) for s in j["stacks"]] == [("a", 0, "ours"), ("b", 0, "ours")]
    gpuprov("up", theirs, env=env)
    gpuprov("up", "--owner", "someone", ours / "a.yaml", env=env)  # another owner's stack of a unit of that name
    assert gpuprov("plan", "--prune", ours, env=env).code == 0
    (ours / "b.yaml").rename(ours / "_b.yaml")
    plan = gpuprov("plan", "--prune", ours, code=2, env=env)
    assert "- destroy stack b (1 node)" in plan.out and "stack c" not in plan.out and "stack a" not in plan.out
    (ours / "broken.yaml").write_text("name: x\nnodse: 1\n")
    gpuprov("up", "--prune", ours, code=1, env=env)
    stacks = {(s["name"], s["owner"]) for s in gpuprov.json("status")["stacks"]}
    assert stacks == {("a", "ci"), ("b", "ci"), ("c", "ci"), ("a", "someone")}
    (ours / "broken.yaml").unlink()
    j = gpuprov.json("up", "--prune", ours, env=env)
    assert [(p["name"], p["gone"], p["exit_code"]) for p in j["pruned"]] == [("b", True, 0)]
    assert j["stacks"][0]["nothing_to_do"] is True
    stacks = {(s["name"], s["owner"]) for s in gpuprov.json("status")["stacks"]}
    assert stacks == {("a", "ci"), ("c", "ci"), ("a", "someone")}
    for stack, owner in stacks:
        gpuprov("down", "--owner", owner, stack)
