# SPDX-License-Identifier: Apache-2.0
"""The cleaning of a node before its image is made, where file systems of other machines are mounted: what is on them
belongs to others and stays."""
import pathlib

import lab as labs
import pytest

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

SCRIPT = pathlib.Path(__file__).parents[3] / "templates" / "bootstrap" / "run" / "bake.sh"
# A file system whose program has ended.
MOUNT = """
mkdir -p '/home/their files' /home/ops/.aws && rm -f /root/fuse && mknod /root/fuse c 10 229
exec 3<>/root/fuse
mount -i -t fuse.theirs -o fd=3,rootmode=40000,user_id=0,group_id=0 server:/x '/home/their files' || exit 9
exec 3<&-
"""


@pytest.fixture(name="host", scope="module")
def host_fixture(tmp_path_factory):
    with labs.Lab(tmp_path_factory.mktemp("lab")) as lab:
        host = lab.add("light", "c1", "10.77.2.3", start=False)
        host.start()
        host.wait_ssh()
        host.put("/root/clean.sh", SCRIPT.read_text())
        yield host


def clean(host, before=""):
    return host.sh(before + "sh -c \"$(cat /root/clean.sh)\" bake /home/ops /home/ops/.gpuprov/nodes/x; "
                   "grep -c theirs /proc/self/mounts; ls /home/ops/.aws 2>&1", check=False)


def test_a_file_system_of_others_is_unmounted_first(host):
    done = clean(host, MOUNT)
    assert done.stdout.endswith("::fact cleaned yes\n0\nls: cannot access '/home/ops/.aws': No such file or directory\n"), \
        (done.stdout, done.stderr)


def test_one_that_is_in_use_ends_the_cleaning(host):
    host.put("/home/ops/.aws/credentials", "key")
    stub = "mkdir -p /root/bin; printf '#!/bin/sh\\necho umount: busy >&2\\nexit 32\\n' >/root/bin/umount; " \
        "chmod +x /root/bin/umount; PATH=/root/bin:$PATH\n"
    done = clean(host, MOUNT + stub)
    assert "::error /home/their files is shared with other machines and could not be unmounted: umount: busy" in done.stdout
    assert "cleaned" not in done.stdout and done.stdout.endswith("\n1\ncredentials\n"), done.stdout
