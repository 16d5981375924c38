# SPDX-License-Identifier: Apache-2.0
"""gpuprov bootstrap: existing nodes of a stack and machines of a hosts file, steps by name, and what a second run
costs."""
import json
import re
import subprocess

import pytest

from conftest import Result
from test_bootstrap import lab_fixture, node_fixture  # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: byhand
bootstrap:
  packages: [gp-one]
  steps:
    - {name: first, run: "echo 1 >> ~/first"}
    - {name: second, run: "echo 2 >> ~/second", check: "test -s ~/second"}
"""


@pytest.fixture(name="hosts")
def hosts_fixture(node, gpuprov, tmp_path):
    """hosts(*args): the program inside the lab, on the spec above and a hosts file with the one host."""
    file, spec = tmp_path / "hosts.yaml", tmp_path / "gpuprov.yaml"
    spec.write_text(SPEC)
    file.write_text("hosts:\n  - {address: %s, user: ops, key: %s, host_key: \"%s\"}\n" % (
        node.host.address, node.lab.key, node.host.host_key()))

    def call(*args, code=0):
        argv = [gpuprov.program, "bootstrap", "--hosts", file, spec, *args]
        done = node.lab.run(argv, env=gpuprov.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, timeout=200)
        result = Result(argv, done.returncode, done.stdout, done.stderr)
        assert code is None or done.returncode == code, result
        return result
    call.spec, call.host = spec, node.host
    return call


def test_hosts_first_and_second_run(hosts):
    """Dry run, run, and nothing to do; the verb validates nothing and leaves no state here."""
    dry = hosts("--dry-run", code=2)
    assert dry.out == "byhand/0: would apply: packages, first, second, agent\n", dry
    assert not hosts.host.file("/home/ops/first").exists() and not hosts.host.file("/home/ops/.gpuprov").exists()
    first = json.loads(hosts("--json").out)
    assert first == {"stack": "byhand", "dry_run": False, "changes": True,
                     "nodes": [{"node": 0, "steps": ["packages", "first", "second", "agent"]}]}
    assert hosts.host.file("/home/ops/first").read_text() == "1\n"
    assert "gp-one" in hosts.host.sh("dpkg-query -W gp-one").stdout
    again = hosts("--dry-run")
    assert again.out == "byhand/0: nothing to do\n", again
    second = hosts()
    assert second.out == "byhand/0: nothing to do\n" and hosts.host.file("/home/ops/first").read_text() == "1\n"


def test_a_second_run_takes_two_round_trips(hosts):
    """One for the node's facts, one for all probes; whatever the number of steps."""
    hosts.spec.write_text(SPEC + "".join('    - {name: s%d, run: "true", check: "true"}\n' % i for i in range(20)))
    hosts()
    again = hosts("--trace", "ssh")
    assert again.out == "byhand/0: nothing to do\n"
    assert len([line for line in again.err.splitlines() if ": run " in line]) == 2, again


def test_only_and_from(hosts):
    assert hosts("--only", "second,first").out == "byhand/0: applied: first, second\n"
    assert hosts.host.sh("dpkg-query -W gp-one", check=False).returncode != 0
    hosts.host.sh("rm /home/ops/second")
    assert hosts("--from", "second", "--dry-run", code=2).out == "byhand/0: would apply: second, agent\n"
    assert hosts("--from", "agent").out == "byhand/0: applied: agent\n"
    assert not hosts.host.file("/home/ops/second").exists()


def test_only_a_step_that_the_node_does_not_have(hosts):
    done = hosts("--only", "driver,packages", "--dry-run", code=2)
    assert done.out == "byhand/0: would apply: packages\n"
    assert done.err.count("driver: is no step of this node") == 1, done
    assert "packages: is no step" not in done.err, done


@pytest.mark.parametrize("args,said", [
    (("--only", "pakages"), "unknown step 'pakages'; did you mean 'packages'?"),
    (("--only", "first,secnd"), "unknown step 'secnd'; did you mean 'second'?"),
    (("--from", "zzz"), "unknown step 'zzz'; steps: cloud-init, "),
])
def test_unknown_steps(gpuprov, spec, tmp_path, args, said):
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text("hosts: [127.0.0.1]\n")
    assert said in gpuprov("bootstrap", "--hosts", hosts, spec(SPEC), *args, code=1).err
    assert said in gpuprov("bootstrap", "--print-script", args[1].split(",")[-1], spec(SPEC), code=1).err


def test_steps_that_cannot_be_meant(gpuprov, spec, tmp_path):
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text("hosts: [127.0.0.1]\n")
    both = gpuprov("bootstrap", "--hosts", hosts, spec(SPEC), "--only", "agent", "--from", "first", code=1)
    assert "--only and --from exclude each other" in both.err
    assert "--only ',' names no step" in gpuprov("bootstrap", "--hosts", hosts, spec(SPEC), "--only", ",", code=1).err


def test_no_such_stack(gpuprov, spec):
    assert "there is no stack" in gpuprov("bootstrap", "nowhere", code=5).err
    assert "takes a SPEC, not the name of a stack" in gpuprov("bootstrap", "--print-script", "agent", "x", code=1).err
    assert "takes only a SPEC" in gpuprov("bootstrap", "--print-script", "agent", "--dry-run", spec(SPEC), code=1).err


def test_a_failing_step_names_node_and_step(hosts):
    hosts.spec.write_text(SPEC + '    - {name: bad, run: "echo oh no; exit 3"}\n')
    done = hosts(code=6)
    said = re.search(r"step 'bad': ended with status 3; its last output: oh no; the output is in (\S+) on "
                     r"ops@%s$" % re.escape(hosts.host.address), done.err, re.M)
    assert said and hosts.host.file(said[1]).read_text().startswith("oh no\n"), done
    # this machine keeps nothing of it: no stack, no file
    assert "gpuprov logs" not in done.err and "| oh no" in done.err and "its output: " not in done.err, done
    bad = json.loads(hosts("--json", "--only", "bad", code=6).out)
    assert "byhand/0: step 'bad'" in bad["error"]["message"]
    assert bad["nodes"][0]["steps"] == [] and "step 'bad'" in bad["nodes"][0]["error"]


@pytest.mark.long
def test_a_node_that_does_not_come_back_ends_within_its_limit(hosts):
    hosts.spec.write_text(SPEC + '    - {name: r, run: "echo \'::reboot new kernel\'; exit 75"}\n'
                          "access: {timeout: 8s}\n")
    hosts.host.lab.path("hosts", hosts.host.name, "boot-delay").write_text("25")
    done = hosts("--only", "r", code=6)
    assert "the node must be rebooted (new kernel), and it did not come back within 8.0s" in done.err, done


@pytest.mark.long
def test_a_printed_script_works_by_hand(hosts, gpuprov):
    """probe, apply and verify on the node, as an operator would do it."""
    script = gpuprov("bootstrap", "--print-script", "packages", hosts.spec).out
    hosts.host.put("/home/ops/packages.sh", script, uid=1000)

    def by_hand(*words):
        return hosts.host.sh("su ops -c 'sh ~/packages.sh %s'" % " ".join(words), check=False)
    assert (by_hand("probe").returncode, by_hand().returncode, by_hand("remove").returncode) == (10, 2, 2)
    assert by_hand("verify").returncode == 1
    assert by_hand("apply").returncode == 0 and by_hand("verify").returncode == 0 and by_hand("probe").returncode == 0
    assert "installed" in hosts.host.sh("dpkg -s gp-one").stdout


def test_only_without_a_step_is_not_every_step(gpuprov, spec):
    assert "--only ',,' names no step" in gpuprov("bootstrap", "--only", ",,", spec(SPEC), code=1).err


@pytest.mark.long
def test_every_printed_script_is_clean(gpuprov, spec, monkeypatch):
    """Each step of the table, and a user's one: shellcheck finds nothing, and no secret is in it."""
    text = SPEC + "secrets: [{env: TOKEN, from: 'env:MINE'}]\n"
    path = spec(text)
    env = {"MINE": "hunter2-hunter2"}
    names = gpuprov("bootstrap", "--print-script", "zzz", path, code=1, env=env).err
    names = names.split("steps: ")[1].strip().split(", ")
    assert {"packages", "first", "driver", "agent"} <= set(names)
    done = gpuprov("bootstrap", "--print-script", "driver", path, code=1, env=env)
    assert "depends on the operating system: add --os ubuntu-24.04" in done.err, done
    path = spec(text + "image: {os: ubuntu-24.04}\noffers: [{provider: aws}]\ngpu: {model: H100, count: 8}\n")
    packages = gpuprov("bootstrap", "--print-script", "driver", path, env=env).out
    assert "# For ubuntu-24.04, the image that the spec names.\n" in packages and "nvidia-open" in packages
    for name in names:
        text = gpuprov("bootstrap", "--print-script", name, path, env=env).out
        assert "hunter2" not in text and text.startswith("#!/bin/sh\n# Step '%s' " % name)
        done = subprocess.run(["shellcheck", "-S", "error", "-"], input=text, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, (name, done.stdout)


def test_a_printed_script_for_a_machine_that_exists(gpuprov, spec):
    """image.os is no key of machines that exist already: --os names their system."""
    path = spec("name: mine\ngpu: H100:8\nbootstrap: {driver: 580, cuda: '13.0'}\n")
    asked = gpuprov("bootstrap", "--print-script", "driver", path, code=1).err
    assert "depends on the operating system: add --os ubuntu-24.04 or another" in asked, asked
    ubuntu = gpuprov("bootstrap", "--print-script", "driver", "--os", "ubuntu-24.04", path).out
    assert "# For ubuntu-24.04.\n" in ubuntu and "nvidia-driver-pinning-580" in ubuntu
    rocky = gpuprov("bootstrap", "--print-script", "driver", "--os", "rocky-9.4", path).out
    assert "580-open" in rocky and "nvidia-driver-pinning" not in rocky
    for name in ("windows", "x\nreboot", "x" * 300):
        refused = gpuprov("bootstrap", "--print-script", "driver", "--os", name, path, code=None)
        assert refused.code in (1, 6) and refused.out == "", refused
    assert "--os is for --print-script only" in gpuprov("bootstrap", "--os", "debian-12", path, code=1).err


def phase(gpuprov):
    return gpuprov.json("status", "again")["stacks"][0]["phase"]


@pytest.mark.long
def test_a_stack_again_after_an_edit(gpuprov, spec):
    """A node that was changed must be validated again; one that was not stays ready."""
    text = "name: again\noffers: [{provider: local}]\nlimits: {ttl: 20m}\nvalidate: {time: 1m}\nbootstrap:\n  steps:\n" \
           "    - {name: a, run: 'echo a >> /opt/a'}\n"
    gpuprov("up", spec(text), timeout=300)
    assert gpuprov("bootstrap", "again").out == "again/0: nothing to do\n"
    assert phase(gpuprov) == "ready"
    path = spec(text + "    - {name: b, run: 'echo b >> /opt/b'}\n")
    assert gpuprov("bootstrap", path, "--dry-run", code=2).out == "again/0: would apply: b\n"
    assert phase(gpuprov) == "ready"
    killed = gpuprov.popen("bootstrap", path, "--dry-run")
    for line in killed.stderr:
        if "bootstrapping" in line:
            break
    killed.kill()
    killed.communicate()
    assert phase(gpuprov) == "ready"
    assert gpuprov("bootstrap", path).out == (
        "again/0: applied: b\nchanged nodes are no longer validated: run 'gpuprov validate again'\n")
    assert phase(gpuprov) != "ready" and "not validated yet" in gpuprov("status", "again").out
    assert gpuprov("ssh", "again/0", "--", "cat", "/opt/a", "/opt/b").out == "a\nb\n"
    assert "step 'agent' is applied by gpuprov itself and has no output" in gpuprov(
        "logs", "again/0", "--step", "agent", code=1).err
    gpuprov("validate", "again")
    assert phase(gpuprov) == "ready"
    gpuprov("down", "again")


EDITED = "name: again\noffers: [{provider: local}]\nlimits: {ttl: 20m}\nvalidate: {time: 1m}\nbootstrap:\n  steps:\n" \
         "    - {name: a, run: 'echo a >> /opt/a'}\n"
STEP_B = "    - {name: b, run: 'echo b >> /opt/b', check: 'test -e /opt/b'}\n"


@pytest.mark.long
def test_an_edited_spec_becomes_that_of_the_stack(gpuprov, spec):
    """plan, bootstrap, validate, up and status agree about the spec after a bootstrap by an edited one."""
    gpuprov("up", spec(EDITED), timeout=300)
    path = spec(EDITED + STEP_B)
    assert "bootstrap.steps" in gpuprov("plan", path, code=2).out
    # a part of it changes no spec
    assert gpuprov("bootstrap", path, "--only", "b").out.startswith("again/0: applied: b\n")
    assert "bootstrap.steps" in gpuprov("plan", path, code=2).out
    gpuprov("ssh", "again/0", "--", "rm", "/opt/b")
    done = gpuprov("bootstrap", path)
    assert done.out.startswith("again/0: applied: b\n")
    assert "'again' has this spec now: 'gpuprov validate again' validates its nodes for it" in done.err, done
    left = gpuprov("plan", path, code=2).out
    assert "bootstrap.steps" not in left and "earlier spec" not in left, left
    # by its name the stack means the edited spec
    gpuprov("ssh", "again/0", "--", "rm", "/opt/b")
    assert gpuprov("bootstrap", "again").out.startswith("again/0: applied: b\n")
    gpuprov("validate", "again")
    assert phase(gpuprov) == "ready"
    gpuprov("plan", path)  # exit 0: no changes
    assert "nothing to do" in (lambda up: up.out + up.err)(gpuprov("up", path))
    # the nodes have what it wants, but were not validated for it
    other = spec(EDITED + STEP_B + "    - {name: c, run: 'false', check: 'true'}\n")
    assert gpuprov("bootstrap", other).out == "again/0: nothing to do\n"
    assert phase(gpuprov) != "ready"
    gpuprov("down", "again")


@pytest.mark.long
def test_an_edit_that_only_up_applies(gpuprov, spec):
    gpuprov("up", spec(EDITED), timeout=300)
    path = spec((EDITED + STEP_B).replace("ttl: 20m", "ttl: 40m"))
    done = gpuprov("bootstrap", path)
    assert done.out.startswith("again/0: applied: b\n")
    assert "'again' keeps its earlier spec, because only 'gpuprov up' applies the change of 'limits.ttl'" in done.err
    assert "limits.ttl" in gpuprov("plan", path, code=2).out
    refused = gpuprov("bootstrap", spec("gpu: H100:1\n" + EDITED + STEP_B), code=None)
    assert refused.code == 1 and "was launched with another 'gpu'" in refused.err, refused
    gpuprov("down", "again")
