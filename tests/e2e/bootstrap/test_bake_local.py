# SPDX-License-Identifier: Apache-2.0
"""gpuprov bake, image: baked and gpuprov images with local nodes: what the image has and has not, when it is used, and
what happens when it is cut, changed, removed or belongs to somebody else."""
import json
import os
import signal
import sqlite3
import subprocess

import pytest

from small_disk import fill, small_disk
from waiting import wait_for


pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SPEC = """\
name: {name}
image: {image}
offers: [{{provider: local}}]
limits: {{ttl: 20m}}
bootstrap:
  steps:
    - name: package
      check: dpkg -s gp-baked
      run: |
        mkdir -p /tmp/p/DEBIAN /tmp/p/usr/lib/gp-baked /tmp/p/opt/gp
        echo library >/tmp/p/usr/lib/gp-baked/file
        echo opt >/tmp/p/opt/gp/file
        printf 'Package: gp-baked\\nVersion: 1.0\\nArchitecture: all\\nMaintainer: t <t@example.org>\\n' >/tmp/p/DEBIAN/control
        printf 'Description: test\\n' >>/tmp/p/DEBIAN/control
        dpkg-deb -b /tmp/p /tmp/p.deb >/dev/null
        dpkg -i /tmp/p.deb
    - name: data
      run: |
        {data}
        mkdir -p /srv/data ~/.docker ~/.aws /etc/gpuprov/secrets
        echo once >>/srv/data/runs
        ln -sf /etc/passwd /srv/data/link
        rm /usr/bin/yes
        echo "$TOKEN" >~/.docker/config.json
        echo "$TOKEN" >~/.aws/credentials
        echo "$TOKEN" >/etc/gpuprov/secrets/login
        echo "$TOKEN" >/var/log/said.log
        echo "said $TOKEN" >~/.bash_history
        echo "printed $TOKEN"
secrets: [{{env: TOKEN, from: env:GP_TEST_TOKEN}}]
validate: {{time: 1m}}
"""
RES_IMAGE = 6  # as core/model/stack.h numbers the kinds
TOKEN = "s3cret-of-the-bake-test"


@pytest.fixture(name="bakery")
def bakery_fixture(gpuprov, spec):
    """gpuprov with the secret, and spec files of one name."""
    gpuprov.env["GP_TEST_TOKEN"] = TOKEN

    def write(image="auto", name="demo", data="true"):
        return spec(SPEC.format(name=name, image=image, data=data), f"{name}-{image.strip('{} ').split()[0]}.yaml")
    gpuprov.write = write
    return gpuprov


def images_folder(gpuprov):
    return gpuprov.state / "local" / ".images"


def images(gpuprov):
    return gpuprov.json("images")["images"]


def sh(gpuprov, node, script):
    return gpuprov("ssh", node, "--", script).out


@pytest.mark.long
def test_a_baked_node_needs_no_step(bakery):
    baked = bakery.json("bake", bakery.write())
    image = baked["image"]
    assert not baked["reused"]
    assert (image["spec"], image["state"], image["verdict"]) == ("demo", "available", "ready")
    assert baked["report"]["ready"]
    assert bakery.json("status")["stacks"] == []
    assert [i["id"] for i in images(bakery)] == [image["id"]]
    text = bakery("images").out
    assert image["id"] in text and "available" in text

    # nothing of the secrets, the identity or the logins of the node is in it
    held = subprocess.run(["grep", "-rlF", TOKEN, images_folder(bakery)], stdout=subprocess.PIPE, text=True,
                          check=False).stdout
    assert held == ""
    folder = images_folder(bakery) / image["uid"]
    assert not list(folder.glob("root/root/.ssh/authorized_keys"))
    assert not [p for p in folder.glob("u/*/ssh/*host*key*") if p.is_file()]  # whiteouts are devices

    up = bakery.json("up", bakery.write(image="baked"), timeout=120)
    node = up["report"]["nodes"][0]
    assert node["ready"] and node["image"] == image["id"]
    log = bakery("logs", "demo").out
    assert "0 steps applied" in log and "package: done" not in log
    assert image["id"] in bakery("report", "demo").out
    assert sh(bakery, "demo/0", "cat /srv/data/runs /usr/lib/gp-baked/file /opt/gp/file; readlink /srv/data/link; "
              "dpkg-query -W -f '${Status}\\n' gp-baked; ls /usr/bin/yes || echo no yes; hostname; "
              "ls /etc/gpuprov") == ("once\nlibrary\nopt\n/etc/passwd\ninstall ok installed\nno yes\ndemo-0\nbaked\n")
    # each node can write, and the image stays as it is
    sh(bakery, "demo/0", "echo changed >/opt/gp/file; rm /usr/lib/gp-baked/file; echo more >>/srv/data/runs")
    assert (folder / "u" / "%opt" / "gp" / "file").read_text() == "opt\n"

    used = bakery("images", "--remove", "--yes", image["id"], code=None)
    assert used.code != 0
    assert f"{image['id']} is in use: demo/0 was made from it: run 'gpuprov down demo' first" in used.err
    assert sh(bakery, "demo/0", "cat /opt/gp/file") == "changed\n"
    bakery("down", "demo")
    refused = bakery("images", "--remove", image["id"], code=1)
    assert "nothing was removed: add --yes" in refused.err
    assert bakery.json("images", "--remove", "--yes", image["id"])["removed"][0]["id"] == image["id"]
    assert images(bakery) == []
    assert not list(images_folder(bakery).iterdir())


def test_the_plan_is_that_of_one_node_of_its_own_stack(bakery, spec):
    """Whatever the number of nodes in the spec. Lines about waits name that stack, too."""
    path = spec("name: many\nnodes: 8\nlimits: {ttl: 20m}\nbootstrap: {steps: [{name: no, run: 'sleep 12; exit 3'}]}\n")
    failed = bakery("bake", path, code=6).err
    assert "\nmany-bake: 1 node, free, deadline after 20m" in failed, failed
    assert "many-bake/0 bootstrap: no: still running" in failed and "many/0" not in failed, failed
    bakery("down", "many-bake")


@pytest.mark.long
def test_an_image_that_does_not_fit_is_not_used(bakery):
    none = bakery("up", bakery.write(image="baked"), code=1)
    assert "no baked image of this owner is at local here: run 'gpuprov bake" in none.err
    image = bakery.json("bake", bakery.write())["image"]
    again = bakery.json("bake", bakery.write())
    assert again["reused"] and again["image"]["id"] == image["id"]

    edited = bakery("plan", bakery.write(image="baked", data="echo edited"), code=1)
    assert f"{image['id']} of 'demo': 'bootstrap' of the spec was changed since" in edited.err
    assert "run 'gpuprov bake" in edited.err
    base = bakery("plan", bakery.write(image="{os: debian-12, baked: require}"), code=1)
    assert "no offer of this spec takes 'os': nodes of local have the system that is there" in base.err
    plan = bakery("plan", bakery.write(image="{baked: prefer}", data="echo edited"), code=2)
    assert "note: image: a clone of this machine, because no baked image at local here fits" in plan.out + plan.err
    plan = bakery("plan", bakery.write(image="{baked: prefer}"), code=2)
    assert f"note: image: baked image {image['id']}" in plan.out + plan.err

    second = bakery.json("bake", "--again", bakery.write())["image"]
    assert second["id"] != image["id"]
    plan = bakery("plan", bakery.write(image="baked"), code=2)
    assert second["id"] in plan.out + plan.err

    # another owner's image is neither listed, used nor removed
    other = {"GPUPROV_OWNER": "somebody-else"}
    assert bakery.json("images", env=other)["images"] == []
    assert "no baked image of this owner" in bakery("plan", bakery.write(image="baked"), code=1, env=other).err
    assert "there is no baked image" in bakery("images", "--remove", "--yes", image["id"], code=None, env=other).err
    assert len(images(bakery)) == 2

    # a record that somebody edited is no image
    record = images_folder(bakery) / second["uid"] / "image.json"
    facts = json.loads(record.read_text())
    record.write_text(json.dumps({**facts, "image": facts["image"].replace("verdict=ready", "verdict=$(reboot)")}))
    assert "its 'image' is malformed" in bakery("images", code=None).err


def open_image_intents(gpuprov):
    with sqlite3.connect(f"file:{gpuprov.state / 'journal.db'}?mode=ro", uri=True, timeout=30) as db:
        return db.execute("select count(*) from intents where kind = ? and state = 0", (RES_IMAGE,)).fetchone()[0]


def holder_of(gpuprov, stack):
    record, = (gpuprov.state / "local").glob(f"{stack}@*/holder.json")
    return json.loads(record.read_text())["pid"]


def cut_at_the_request(gpuprov, path):
    """kill -9 of a bake that has requested its image and has no reply: the holder is stopped meanwhile. Its pid."""
    p = gpuprov.popen("bake", path, "--json")
    for line in p.stderr:
        if '"clean"' in line:
            break
    holder = holder_of(gpuprov, "demo-bake")
    os.kill(holder, signal.SIGSTOP)
    try:
        wait_for(lambda: open_image_intents(gpuprov) == 1 or p.poll() is not None)
        assert p.poll() is None, p.communicate()
        p.kill()
        p.communicate()
    except BaseException:
        os.kill(holder, signal.SIGCONT)
        raise
    return holder


@pytest.mark.long
def test_killed_at_the_request_the_next_bake_finds_the_image(bakery):
    holder = cut_at_the_request(bakery, bakery.write())
    os.kill(holder, signal.SIGCONT)
    done = bakery.json("bake", bakery.write())
    assert done["report"] is None  # nothing was launched or validated again
    assert [i["id"] for i in images(bakery)] == [done["image"]["id"]]
    assert open_image_intents(bakery) == 0
    assert bakery.json("status")["stacks"] == []
    assert "0 steps applied" in bakery("up", bakery.write(image="baked")).err


@pytest.mark.long
def test_killed_after_the_cleaning_the_next_bake_begins_anew(bakery):
    """Nobody can log in to the cleaned node any more, and no image was requested."""
    p = bakery.popen("bake", bakery.write(), "--json")
    for line in p.stderr:
        if '"clean"' in line:
            break
    p.kill()
    p.communicate()
    # the cleaning may have been cut as well: its end, by hand
    bakery("ssh", "demo-bake/0", "--", "rm -f /root/.ssh/authorized_keys", code=None)
    done = bakery.json("bake", bakery.write())
    assert done["report"]["ready"] and len(images(bakery)) == 1
    assert bakery.json("status")["stacks"] == []


@pytest.mark.long
def test_killed_with_its_node_the_next_bake_begins_anew(bakery):
    holder = cut_at_the_request(bakery, bakery.write())
    os.kill(holder, signal.SIGKILL)
    done = bakery.json("bake", bakery.write())
    assert done["report"]["ready"]
    assert len(images(bakery)) == 1 and open_image_intents(bakery) == 0
    assert [p.name for p in images_folder(bakery).iterdir()] == [done["image"]["uid"]]
    assert bakery.json("status")["stacks"] == []


@pytest.mark.long
def test_two_bakes_at_once_make_one_image(bakery):
    path = bakery.write()
    both = [bakery.popen("bake", path, "--json") for _ in range(2)]
    results = [(p.communicate(timeout=300), p.returncode) for p in both]
    assert [code for _, code in results] == [0, 0], results
    made = [json.loads(out) for (out, _), _ in results]
    assert sorted(m["reused"] for m in made) == [False, True]
    assert len({m["image"]["id"] for m in made}) == 1 and len(images(bakery)) == 1


@pytest.mark.long
def test_a_full_disk_leaves_no_half_image(bakery):
    """The images are on a file system of their own, so the layers are copied to it."""
    (bakery.state / "local").mkdir(parents=True)
    bakery.state.chmod(0o700)
    with small_disk(images_folder(bakery), "256m") as disk:
        fill(disk)
        full = bakery("bake", bakery.write(), code=None)
        assert full.code != 0
        assert "No space left on device" in full.err and "no image was made, and the node was destroyed" in full.err
        (disk / "fill").unlink()
        assert images(bakery) == [] and bakery.json("status")["stacks"] == []
        image = bakery.json("bake", bakery.write())["image"]
        assert len(images(bakery)) == 1  # the list removes what saving left
        assert [p.name for p in disk.iterdir()] == [image["uid"]]
        up = bakery("up", bakery.write(image="baked"))
        assert "0 steps applied" in up.err
        assert sh(bakery, "demo/0", "cat /srv/data/runs; ls /usr/bin/yes || echo no yes") == "once\nno yes\n"
        bakery("down", "demo")


@pytest.mark.long
def test_refusals(bakery, spec):
    hosts = spec("name: demo\noffers: [{provider: ssh, hosts: hosts.yaml}]\n")
    (hosts.parent / "hosts.yaml").write_text("hosts: [{address: 192.0.2.1}]\n")
    assert "no image can be made at ssh: a host keeps the system that it has" in bakery("bake", hosts, code=1).err
    both = spec("name: demo\nimage: {baked: sometimes}\n", "bad.yaml")
    assert "bad.yaml:2:" in bakery("check", both, code=1).err
    # a stack that somebody has under the bake's name is left alone
    mine = bakery.write(name="demo-bake")
    bakery("up", mine)
    taken = bakery("bake", bakery.write(), code=1)
    assert "stack 'demo-bake' has nodes of another spec" in taken.err
    assert bakery.json("status", "demo-bake")["stacks"][0]["phase"] == "ready"
