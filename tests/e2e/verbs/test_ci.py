# SPDX-License-Identifier: Apache-2.0
"""What is shipped for CI: each script of action.yml and of the GitLab template runs with the built program, on local
nodes and on moto, with hostile inputs; the units for systemd and the image run on hosts."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml
from ci_runner import ROOT, Action, Api, gitlab, gitlab_script
import ec2
from lab import Lab, base, why_not

SPEC = {"name": "ci", "offers": [{"provider": "local"}], "limits": {"ttl": "20m"}, "validate": {"time": "1m"}}
EVIL = "$(touch pwned)`touch pwned`'; touch pwned; #\"|touch pwned&touch pwned\\"
PULL = {"event_name": "pull_request", "event": {"pull_request": {"number": 7}}}


@pytest.fixture
def api():
    made = Api()
    yield made
    made.close()


@pytest.fixture
def job(gpuprov, api, tmp_path):
    """A job's folder with the action: job(command="plan", ...)."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "gpuprov.yaml").write_text(json.dumps(SPEC))
    return Action(folder, {"GPUPROV_STATE_DIR": str(gpuprov.state), "GITHUB_API_URL": api.url, "LC_ALL": "C.UTF-8",
                           "GITHUB_HEAD_REF": EVIL, "GITHUB_REF_NAME": EVIL})


def untouched(folder):
    return not list(folder.rglob("pwned"))


def blocks():
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    return [("bash", s["run"]) for s in steps] + [("sh", gitlab_script(f"gpuprov-{j}")) for j in ("plan", "up", "gc")]


def test_scripts_are_sound():
    for shell, text in blocks():
        assert "${{" not in text, f"an expression becomes a part of a script: {text}"
        # SC2034, SC2154: variables of the runner
        done = subprocess.run(["shellcheck", "-s", shell, "-e", "SC2154,SC2312", "-"], input=text, capture_output=True,
                              text=True, check=False)
        assert done.returncode == 0, done.stdout
    for word in ("GPUPROV_GITLAB_TOKEN", "TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"):
        for _, text in blocks():
            for line in text.splitlines():
                assert f"${word}" not in line or "printf" in line or "-z" in line, f"a token in argv: {line}"


def test_workflow_uses_inputs_that_exist():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    page = (ROOT / "docs/ci.md").read_text()
    workflow = (ROOT / "examples/ci/github.yml").read_text()
    used = yaml.safe_load(workflow)["jobs"]["gpuprov"]["steps"][1]["with"]
    assert used.keys() <= action["inputs"].keys() and used["command"].startswith("${{ github.event_name ==")
    for name in [*action["inputs"], *action["outputs"]]:
        assert f"`{name}`" in page, f"docs/ci.md does not describe {name}"


@pytest.mark.root
@pytest.mark.namespaces
def test_plan_up_down_of_the_action(gpuprov, job, api, tmp_path):
    bot = {"user": {"type": "Bot"}}
    api.comments += [{"id": i, "user": {"type": "User"}, "body": "hello"} for i in range(150)]
    code, said, steps = job(PULL, command="plan", binary=str(gpuprov.program))
    assert code == 0 and steps["plan"]["outputs"]["changes"] == "true", said
    body = api.comments[150]["body"]
    marker = body.splitlines()[0]
    assert re.fullmatch(r"<!-- gpuprov plan [0-9a-f]{16} -->", marker), body
    plan = pathlib.Path(steps["plan"]["outputs"]["plan"]).read_text()
    assert plan.strip() and body == f"{marker}\n{plan}" and job.summary.read_text() == plan
    headers = api.calls[-1][2]
    assert headers["Authorization"] == "Bearer job-token"
    # a person's comment that copies the marker is not the bot's
    api.comments[3].update(body=body)
    api.comments[150].update(bot, body=marker + "\nold")
    assert job(PULL, command="plan", binary=str(gpuprov.program))[0] == 0
    assert api.calls[-1][:2] == ("PATCH", "/repos/acme/models/issues/comments/%d" % api.comments[150]["id"])
    assert len(api.comments) == 151 and api.comments[150]["body"] == body

    code, said, steps = job(command="up", binary=str(gpuprov.program))
    assert code == 0 and "ready" in said, said
    assert "<html" in pathlib.Path(steps["up"]["outputs"]["report"]).read_text()
    assert gpuprov.json("status", "--owner", "acme.models")["stacks"][0]["name"] == "ci"
    code, said, steps = job(PULL, command="plan", binary=str(gpuprov.program), comment="false")
    assert code == 0 and steps["plan"]["outputs"]["changes"] == "false", said
    code, said, _ = job(command="down", binary=str(gpuprov.program))
    assert code == 0 and "nothing is left" in said, said


def test_a_comment_that_fails_is_a_warning(gpuprov, job, api):
    api.broken = 403
    code, said, _ = job(PULL, command="plan", binary=str(gpuprov.program))
    assert code == 0 and "::warning title=gpuprov::the plan could not be written" in said, said
    assert "job-token" not in said


def test_a_plan_that_fails_fails_the_job(gpuprov, job, api):
    (job.folder / "gpuprov.yaml").write_text("name: ci\nnodes: none\n")
    code, said, _ = job(PULL, command="plan", binary=str(gpuprov.program))
    assert code == 1 and "'nodes' must be" in said and api.calls == [], said
    assert "gpuprov.yaml:2:8: 'nodes' must be" in job.summary.read_text()


def test_long_plans_are_cut(gpuprov, job, api, tmp_path):
    program = tmp_path / "long"
    program.write_text('#!/bin/sh\n[ "$1" = version ] || head -c 200000 /dev/zero | tr "\\0" x\n')
    program.chmod(0o755)
    assert job(PULL, command="plan", binary=str(program))[0] == 0
    assert len(api.comments[0]["body"]) < 65536 and api.comments[0]["body"].endswith("(cut; the job summary has the whole plan)")


@pytest.mark.parametrize("inputs", [{"spec": EVIL}, {"owner": EVIL}, {"binary": EVIL}, {"command": EVIL}, {"aws_role": EVIL},
                                    {"spec": "-"}, {"spec": ""}, {"spec": "--help"}, {"spec": "a\nplan=/etc/passwd"},
                                    {"owner": "a\nspec=/etc/passwd"}])
def test_hostile_inputs_are_data(gpuprov, job, api, inputs):
    code, said, steps = job({**PULL, "head_ref": EVIL}, **{"command": "plan", "binary": str(gpuprov.program), **inputs})
    assert code != 0 and steps.get("plan", {"outputs": {}})["outputs"] == {}, said
    assert untouched(job.folder) and api.calls == [], said


def test_a_spec_of_a_strange_name_works(gpuprov, job, api):
    (job.folder / (EVIL.replace("/", "") + ".yaml")).write_text(json.dumps(SPEC))
    code, said, _ = job(PULL, command="plan", binary=str(gpuprov.program), spec=EVIL + ".yaml")
    assert code == 0 and len(api.comments) == 1 and untouched(job.folder), said
    code, said, _ = job({"event": {"pull_request": {"number": "7/../../x"}}}, command="plan", binary=str(gpuprov.program))
    assert code == 1 and "there is no pull request" in said


@pytest.fixture(scope="module", name="moto")
def moto_fixture():
    server = ec2.Moto()
    yield server
    server.close()


def test_the_role_of_github_gives_credentials(gpuprov, job, api, moto, tmp_path):
    """plan and gc at a cloud, with nothing but the job's OIDC token."""
    ec2.spec(job.folder, moto.image(), market="on-demand")
    job.env.update(ec2.CLEAN, AWS_ENDPOINT_URL=moto.url, AWS_REGION=ec2.REGION)
    role = "arn:aws:iam::123456789012:role/ci"
    code, said, _ = job(command="gc", binary=str(gpuprov.program), aws_role=role)
    assert code == 1 and "needs the job's permission 'id-token: write'" in said, said
    job.env.update(ACTIONS_ID_TOKEN_REQUEST_TOKEN="request-token", ACTIONS_ID_TOKEN_REQUEST_URL=api.url + "/token?v=1")
    code, said, steps = job(command="plan", binary=str(gpuprov.program), aws_role=role, spec="spec.yaml")
    assert code == 0 and steps["plan"]["outputs"]["changes"] == "true", said
    method, path, headers, _ = api.calls[0]
    assert (method, path) == ("GET", "/token?v=1&audience=sts.amazonaws.com")
    assert headers["Authorization"] == "bearer request-token" and "request-token" not in said
    token = pathlib.Path(steps["aws"]["outputs"]["token"])
    assert token.read_text() == "header.payload.signature" and token.stat().st_mode & 0o777 == 0o600
    code, said, _ = job(command="gc", binary=str(gpuprov.program), aws_role=role)
    assert code == 0 and "gc: 0 destroyed" in said, said


@pytest.fixture
def project(gpuprov, api, tmp_path):
    """A folder and the environment of a GitLab job in it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "gpuprov.yaml").write_text(json.dumps(SPEC))
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "gpuprov").symlink_to(gpuprov.program)
    env = {"PATH": f"{bin_dir}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "GPUPROV_STATE_DIR": str(gpuprov.state),
           "CI_API_V4_URL": api.url, "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "9", "CI_COMMIT_REF_NAME": EVIL,
           "CI_MERGE_REQUEST_TITLE": EVIL, "LC_ALL": "C.UTF-8"}
    return folder, env


@pytest.mark.root
@pytest.mark.namespaces
def test_gitlab_plans_and_launches(gpuprov, project, api):
    folder, env = project
    code, said = gitlab("gpuprov-plan", folder, env)
    assert code == 0 and "no GPUPROV_GITLAB_TOKEN" in said and api.calls == [], said
    env["GPUPROV_GITLAB_TOKEN"] = "glpat-1"
    api.comments += [{"id": i, "author": {"id": 8}, "body": "hello"} for i in range(120)]
    assert gitlab("gpuprov-plan", folder, env)[0] == 0
    note = api.comments[120]
    assert note["body"].split("\n", 1)[1] == (folder / "gpuprov-plan.md").read_text()
    assert api.calls[-1][:2] == ("POST", "/projects/5/merge_requests/9/notes") and api.calls[-1][2]["PRIVATE-TOKEN"] == "glpat-1"
    api.comments[5].update(body=note["body"])
    assert gitlab("gpuprov-plan", folder, env)[0] == 0
    assert api.calls[-1][:2] == ("PUT", f"/projects/5/merge_requests/9/notes/{note['id']}") and len(api.comments) == 121
    api.broken = 500
    code, said = gitlab("gpuprov-plan", folder, env)
    assert code == 0 and "warning: the plan could not be written as a note" in said and "glpat" not in said, said

    code, said = gitlab("gpuprov-up", folder, env)
    assert code == 0 and (folder / "gpuprov-report.xml").exists() and (folder / "gpuprov-report.html").exists(), said
    gpuprov("down", "ci", "--owner", "acme-models")
    env["GPUPROV_SPEC"] = EVIL
    code, said = gitlab("gpuprov-up", folder, env)
    assert code == 1 and untouched(folder), said


def test_gitlab_role_and_gc(project, moto):
    folder, env = project
    code, said = gitlab("gpuprov-gc", folder, {**env, **ec2.CLEAN, "AWS_ENDPOINT_URL": moto.url, "AWS_REGION": ec2.REGION,
                                               "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/ci"})
    assert code == 0 and "gc: 0 destroyed" in said, said


def libraries(program):
    out = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [line.split()[2] for line in out.splitlines() if "=> /" in line]


@pytest.mark.root
@pytest.mark.namespaces
def test_the_timer_runs_gc(program, tmp_path):
    """The units on a host with systemd: verified, and started by the timer."""
    if why_not():
        pytest.skip(why_not())
    with Lab(tmp_path / "lab") as lab:
        host = lab.add("systemd", "t1", "10.77.1.1", start=False)
        for unit in ("gpuprov-gc.service", "gpuprov-gc.timer"):
            host.put(f"/etc/systemd/system/{unit}", (ROOT / "examples/systemd" / unit).read_text())
        # this machine's libraries, where the host has none of its own; no cloud, so only local nodes are looked at
        host.put("/etc/gpuprov/gc.env", "LD_LIBRARY_PATH=/opt/lib\nGPUPROV_OWNER=ops\n", 0o600)
        host.put("/etc/systemd/system/gpuprov-gc.service.d/test.conf",
                 "[Service]\nExecStart=\nExecStart=/usr/local/bin/gpuprov gc --in local\n")
        for path in [program, *libraries(program)]:
            to = host.file("/usr/local/bin/gpuprov" if path == program else f"/opt/lib/{pathlib.Path(path).name}")
            if path != program and list(host.file("/usr/lib").glob(f"*/{to.name}")):
                continue
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, to)
        host.start()
        host.wait_ssh()
        done = host.sh("systemd-analyze verify /etc/systemd/system/gpuprov-gc.service /etc/systemd/system/gpuprov-gc.timer",
                       check=False)
        assert done.returncode == 0 and "gpuprov" not in done.stdout + done.stderr, done
        host.sh("systemctl start gpuprov-gc.timer")
        assert "gpuprov-gc.timer" in host.sh("systemctl list-timers --no-pager").stdout
        host.sh("systemctl start gpuprov-gc.service || { journalctl -u gpuprov-gc --no-pager >&2; exit 1; }")
        log = host.sh("journalctl -u gpuprov-gc.service --no-pager -o cat").stdout
        assert "gc: 0 destroyed" in log, log
        assert host.sh("stat -c %a /var/lib/private/gpuprov-gc").stdout.strip() == "700"
        host.sh("rm /etc/gpuprov/gc.env")
        assert host.sh("systemctl start gpuprov-gc.service", check=False).returncode != 0


def dockerfile():
    """The stages of the Dockerfile: lists of (instruction, text)."""
    text = (ROOT / "examples/ci/Dockerfile").read_text().replace("\\\n", " ")
    stages = []
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stages.append([])
        if word and word != "#":
            stages[-1].append((word, rest))
    return stages


def test_the_image_is_built_with_what_deps_names():
    build = next(rest for word, rest in dockerfile()[0] if word == "RUN")
    names = set(build.partition("--no-install-recommends")[2].split())
    deps = (ROOT / "tests/deps.sh").read_text().split("part_build() {", 1)[1].split("\n}", 1)[0]
    needed = set(re.findall(r"^  need\w* (\S+)", deps, re.M)) - {"openssh-client", "openssh-server"}
    assert names == needed


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.long
def test_the_image_has_every_library(program, tmp_path):
    """Base images and a container engine are not there in the tests: the last stage is made in a chroot of Debian's
    minimal system, by its own RUN lines; the first stage is this build."""
    if why_not():
        pytest.skip(why_not())
    run, copy = [], []
    for word, rest in dockerfile()[1]:
        assert word in ("FROM", "RUN", "COPY", "CMD"), word
        (run if word == "RUN" else copy).append(rest) if word in ("RUN", "COPY") else None
    assert copy == ["--from=build /out/ /"] and run[1] == "gpuprov version"
    proxy = subprocess.run(["apt-config", "shell", "proxy", "Acquire::http::Proxy"], capture_output=True, text=True, check=True)
    script = f"""
set -e
base=$1 dir=$2 program=$3
mkdir "$dir"; mount -t tmpfs none "$dir"; mkdir "$dir/up" "$dir/work" "$dir/m"
mount -t overlay -o "lowerdir=$base,upperdir=$dir/up,workdir=$dir/work" none "$dir/m"
mount --rbind /dev "$dir/m/dev"; mount -t proc none "$dir/m/proc"
cp -L /etc/resolv.conf "$dir/m/etc/resolv.conf"
cp -L /etc/apt/sources.list "$dir/m/etc/apt/" 2>/dev/null || true
cp -L /etc/apt/sources.list.d/* "$dir/m/etc/apt/sources.list.d/" 2>/dev/null || true
{proxy.stdout}
[ -z "${{proxy:-}}" ] || export http_proxy="$proxy"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
chroot "$dir/m" sh -ec "$4"
install -D -m 0755 -s "$program" "$dir/m/usr/local/bin/gpuprov"
chroot "$dir/m" sh -ec "$5"
chroot "$dir/m" sh -ec 'ldd /usr/local/bin/gpuprov; for p in ssh curl jq; do command -v $p; done'
"""
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", base(), tmp_path / "root", program, run[0], run[1]],
                          capture_output=True, text=True, timeout=600, check=False, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "not found" not in done.stdout and "\ngpuprov " in done.stdout and "/usr/bin/jq" in done.stdout, done.stdout
