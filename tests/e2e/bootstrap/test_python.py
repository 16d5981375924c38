# SPDX-License-Identifier: Apache-2.0
"""The steps of bootstrap.python on a real sshd with the distribution's Python and a real pip."""
import pytest
from python_lab import python_lab, python_node
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    with python_lab(tmp_path_factory.mktemp("lab")) as made:
        made.index.wheel("gp-one", "1.0")
        made.index.wheel("gp-one", "1.1")
        made.index.wheel("Gp_Two", "2.0", requires=["gp-one>=1.0"])
        made.url = made.index.url + "/simple/"
        yield made


@pytest.fixture(name="node")
def node_fixture(lab, tmp_path):
    with python_node(lab, tmp_path) as made:
        yield made


def test_first_run_makes_a_venv_second_does_nothing(node):
    block = {"packages": ["gp-one==1.0", "gp-two"], "index": node.lab.url, "venv": "/opt/train"}
    out = node.python(**block)
    assert out.result["applied"] == 3, out  # python-venv, python-packages, agent
    assert any("makes /opt/train with Python 3." in t for t in out.texts("python-venv")), out
    assert any("installs gp-one==1.0 (is not installed), gp-two" in t for t in out.texts("python-packages")), out
    assert node.version("gp-one", "/opt/train") == "1.0" and node.version("gp-two", "/opt/train") == "2.0"
    assert node.host.sh("stat -c %U /opt/train /opt/train/bin/python").stdout.split() == ["ops", "ops"]
    look = "find /opt /home/ops/.gpuprov -printf '%p %T@ %s %u\\n' | sort"
    before = node.host.sh(look).stdout
    node.lab.index.clear()
    again = node.python(**block)
    assert again.result["applied"] == 0 and [e["event"] for e in again.events] == ["result"], again
    assert node.host.sh(look).stdout == before and node.lab.index.log == []


@pytest.mark.long
def test_a_user_whose_files_are_closed_to_others(node):
    """Root's folders above the environment are open all the same."""
    node.host.put("/home/ops/.bashrc", "umask 077\n")
    node.python(packages=["gp-one==1.0"], index=node.lab.url, venv="/opt/team/train")
    assert node.host.sh("stat -c %a /opt/team /opt/team/train/bin").stdout.split() == ["755", "700"]


@pytest.mark.long
def test_a_node_whose_pip_installs_elsewhere(node):
    """pip's settings of the node, as images for notebooks have them: packages go into the environment all the same."""
    node.host.put("/etc/pip.conf", "[global]\nuser = true\n")
    node.host.put("/home/ops/.bashrc", "export PIP_TARGET=/home/ops/elsewhere\n")
    node.python(packages=["gp-one==1.0"], index=node.lab.url)
    assert node.version("gp-one") == "1.0" and not node.host.file("/home/ops/elsewhere").exists()


@pytest.mark.long
def test_requirements_are_of_the_spec(node, tmp_path):
    """The file's text goes to the node; an edited file is installed again, and an equal one is not."""
    file = tmp_path / "requirements.txt"
    file.write_text("# what we train with\r\ngp-one==1.0  # pinned\r\nGP_two >= 1 ; python_version > '3'\r\n")
    block = {"requirements": str(file), "index": node.lab.url}
    node.python(**block)
    assert node.version("gp-one") == "1.0" and node.version("gp-two") == "2.0"
    file.write_text("gp-one==1.0\ngp-two\n")
    assert node.python(**block).result["applied"] == 0
    file.write_text("gp-one==1.1\n")
    assert node.python(**block).result["applied"] == 1
    assert node.version("gp-one") == "1.1" and node.version("gp-two") == "2.0"
    # somebody changed it by hand
    node.host.sh("rm -r /opt/venv/lib/python3*/site-packages/gp_one-1.1.dist-info")
    assert node.python(**block).result["applied"] == 1


@pytest.mark.long
def test_hashes(node):
    url = node.lab.url
    right = node.lab.index.sha256("gp-one", "1.0")
    lines = "gp-one==1.0 \\\n    --hash=sha256:%s\n"
    node.python(requirements=lines % ("0" * 64), index=url, error="step 'python-packages': pip reported: a file of "
                "gp-one==1.0 from %sgp-one/" % url)
    assert node.version("gp-one") is None
    node.python(requirements=lines % right, index=url)
    assert node.python(requirements=lines % right, index=url).result["applied"] == 0


@pytest.mark.long
def test_packages_that_cannot_be_installed(node):
    url = node.lab.url
    at = "step 'python-packages': pip reported: "
    node.python(packages=["gp-gone"], index=url, error=at + "Could not find a version that satisfies the requirement "
                "gp-gone (from versions: none)")
    node.python(packages=["gp-one==9"], index=url, error=at + "Could not find a version that satisfies the requirement "
                "gp-one==9 (from versions: 1.0, 1.1)")
    node.python(packages=["gp-one"], index="http://10.77.0.1:9/simple", error=at + "cannot reach "
                "http://10.77.0.1:9/simple: Failed to establish a new connection: [Errno 111] Connection refused; check "
                "the node's network and bootstrap.python.index")
    node.lab.index.wheel("gp-big", size=64 << 20)
    node.host.sh("mkdir /small && mount -t tmpfs -o size=40m tmpfs /small && "
                 "cp -a /opt/venv /small/venv && chown ops /small")
    node.python(packages=["gp-big"], venv="/small/venv", index=url, error="the disk is full")


@pytest.mark.long
def test_two_packages_that_do_not_fit_each_other(node):
    node.lab.index.wheel("gp-old", requires=["gp-one==1.0"])
    node.lab.index.wheel("gp-new", requires=["gp-one>=1.1"])
    node.python(packages=["gp-old"], index=node.lab.url)
    out = node.python(packages=["gp-new"], index=node.lab.url)
    assert any("do not fit each other: gp-old 1.0 has requirement" in t for t in out.texts("python-packages")), out
    node.lab.index.wheel("gp-older", requires=["gp-one==1.0"])
    node.python(packages=["gp-new", "gp-older"], index=node.lab.url, error="step 'python-packages': pip "
                "reported: Cannot install")


@pytest.mark.long
def test_the_password_of_an_index_is_in_no_file_argument_and_log(node, monkeypatch):
    monkeypatch.setenv("GPUPROV_CLEAR_TEXT", "10.77.0.1")  # the lab's own network; its index is http
    node.lab.index.login("deploy:s3cr3t-pass")
    try:
        block = {"packages": ["gp-one"], "index": node.lab.url, "index_auth": "INDEX_AUTH"}
        node.python(**block, secrets={"INDEX_AUTH": "deploy:wrong-pass"}, error="step 'python-packages': %s "
                    "answered 401, which is a refusal: check the secret INDEX_AUTH" % node.lab.url)
        node.python(packages=["gp-one"], index=node.lab.url, error="answered 401, which is a refusal: name a secret")
        node.python(**block, secrets={"INDEX_AUTH": "nothing"}, error="the secret INDEX_AUTH is not USER:PASSWORD")
        # what can be seen of every process while it runs, by everybody
        node.host.sh("(until [ -e /stop ]; do cat /proc/[0-9]*/cmdline | tr '\\0' ' '; sleep 0.02; done >/seen; "
                     "touch /stopped) </dev/null >/dev/null 2>&1 &")
        out = node.python(**block, secrets={"INDEX_AUTH": "deploy:s3cr3t-pass"})
        node.host.put("/stop", "")
        wait_for(lambda: node.host.file("/stopped").exists(), 30)
        assert node.version("gp-one") and any(line.endswith(" deploy") for line in node.lab.index.log)
        assert "s3cr3t" not in repr(out)
        found = node.host.sh("grep -rlsa -e s3cr3t-pass /home /opt /tmp /var /etc /root /dev/shm /seen", check=False)
        assert found.stdout == "", found.stdout
        assert "pip install" in node.host.sh("grep -ao 'pip install' /seen | head -n 1").stdout
    finally:
        node.lab.index.login(None)


@pytest.mark.long
def test_an_environment_of_somebody_else(node):
    node.host.sh("mkdir -p /opt/data && touch /opt/data/file && cp -a /opt/venv /opt/theirs && "
                 "chown -R root /opt/theirs")
    node.python(venv="/opt/data", error="step 'python-venv': /opt/data exists, and it has no Python that runs: remove "
                "it, or choose another bootstrap.python.venv")
    assert node.host.sh("ls /opt/data").stdout == "file\n"
    assert node.python(venv="/opt/theirs").result["applied"] == 1  # only the agent: it can be used as it is
    node.python(venv="/opt/theirs", packages=["gp-one"], index=node.lab.url, error="step 'python-packages': "
                "/opt/theirs belongs to root, and 'ops' cannot write there")
    node.python(venv="/opt/theirs", version="3.99", error="step 'python-venv': /opt/theirs has Python 3.")


@pytest.mark.long
def test_an_environment_that_an_upgrade_broke_is_made_again(node):
    block = {"packages": ["gp-one"], "index": node.lab.url}
    node.host.sh("su ops -c 'echo made by gpuprov >/opt/venv/.gpuprov'; "
                 "ln -sf /usr/bin/python3.gone /opt/venv/bin/python3")
    out = node.python(**block)
    assert out.result["applied"] == 3 and node.version("gp-one") == "1.1", out


@pytest.mark.long
def test_the_distribution_brings_the_interpreter(node):
    """Without python3-venv at first; what installs it is the distribution's own packages."""
    node.host.sh("dpkg -P python3-venv $(dpkg-query -W -f '${Package} ' 'python3.*-venv') >/dev/null 2>&1; "
                 "cd /debs && dpkg-scanpackages . >Packages 2>/dev/null || true")
    node.host.put("/etc/apt/sources.list.d/debs.list", "deb [trusted=yes] file:/debs ./\n")
    node.host.sh("cd /debs && for d in *.deb; do dpkg-deb -f $d; echo Filename: ./$d; "
                 "echo Size: $(stat -c %s $d); echo SHA256: $(sha256sum $d | cut -c1-64); echo; done >Packages")
    block = {"packages": ["gp-one"], "index": node.lab.url, "venv": "/opt/train"}
    out = node.python(**block)
    assert out.result["applied"] == 4 and any("installs python3-venv" in t for t in out.texts("python")), out
    assert node.python(**block).result["applied"] == 0


@pytest.mark.long
def test_no_interpreter_of_that_version(node):
    node.python(venv="/opt/new", version="3.99", error="step 'python': this distribution has no "
                "python3.99 (its python3 is 3.")
    # a tool that brings one
    brings = ("#!/bin/sh\necho \"$*\" >/tmp/args\ncp -a /opt/venv/. %s\nrm %s/bin/python\n"
              "printf '#!/bin/sh\\ncase $* in *version_info*) echo 3.99;; *) exec %s/bin/python3 \"$@\";; esac\\n'"
              " >%s/bin/python\nchmod 755 %s/bin/python\n")
    for tool, venv, args in (
            ("micromamba", "/opt/a", "install --yes --quiet --channel conda-forge --prefix /opt/a python=3.99 pip"),
            ("uv", "/opt/b", "venv --quiet --seed --allow-existing --python 3.99 /opt/b")):
        node.host.put("/usr/local/bin/" + tool, brings % ((venv,) * 5), 0o755)
        out = node.python(version="3.99", venv=venv)
        assert "makes %s with Python 3.99 by %s" % (venv, tool) in out.texts("python-venv"), out
        assert node.host.sh("cat /tmp/args").stdout == args + "\n"
        assert node.python(version="3.99", venv=venv).result["applied"] == 0, out
        node.host.sh("rm /tmp/args")


def test_python_is_too_old(node):
    node.host.put("/usr/local/bin/python3", "#!/bin/sh\ncase $* in *version_info*) echo 3.6;; *) exit 1;; esac\n",
                  0o755)
    node.python(error="is 3.6, and pip's packages need 3.8 or newer", packages=["gp-one"], venv="/opt/new")


@pytest.mark.long
def test_two_runs_at_once(node):
    """The second one follows the first one's steps instead of disturbing them."""
    block = {"packages": ["gp-one==1.0", "gp-two"], "index": node.lab.url}
    other = []
    first = node.python(**block, during=lambda lines: other.append(node.python(**block)))
    assert first.result["rc"] == other[0].result["rc"] == 0
    assert node.version("gp-one") == "1.0" and node.version("gp-two") == "2.0"
