# SPDX-License-Identifier: Apache-2.0
"""Nodes that do not accept a login: a log shows every 10 s what is waited for, access.timeout ends it, and the console
says why where there is one."""
import re
import socket
import time

import pytest

from waiting import wait_for


def test_hosts_that_refuse_are_waited_for_in_one_line(gpuprov, spec, tmp_path):
    with socket.socket() as reserved:  # bound, not listening: connections are refused
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        (tmp_path / "hosts.yaml").write_text("hosts:\n" + "".join(
            f"  - {{address: 127.0.0.{i}, port: {port}, user: me}}\n" for i in (1, 2, 3)))
        (tmp_path / "known").write_text("")
        path = spec("name: ref\nnodes: 3\noffers: [{provider: ssh, hosts: hosts.yaml}]\naccess: {timeout: 27s}\n")
        done = gpuprov("up", path, "--accept-new-host-key", code=6)
    waits = re.findall(r"^\[ +\d+s\] ref/0-2 reach: ssh: still waiting \[(\d+)s elapsed, limit 27s\]: connection refused$",
                       done.err, re.M)
    assert len(waits) == done.err.count("still waiting") == 2, done
    assert 10 <= int(waits[0]) < 20 <= int(waits[1]), done
    assert done.err.count("access.timeout is 27s") == 3 and "Connection refused" in done.err
    assert "provider 'ssh' has no console log" in done.err
    assert done.err.count("check that sshd is running") == 3  # the reason once per node, not again at the end
    gpuprov("down", "ref")


@pytest.mark.long
@pytest.mark.root
@pytest.mark.namespaces
def test_the_console_of_a_node_without_sshd(gpuprov, spec):
    path = spec("name: con\nvalidate: {time: 1m}\naccess: {timeout: 4s}\n")
    gpuprov("up", path)
    gpuprov("ssh", "con/0", "--", "printf '\\nGarbage yes\\n' >>/run/gpuprov/sshd_config; "
            "(sleep 0.3; pkill -o -x sshd) >/dev/null 2>&1 </dev/null &", code=None)
    wait_for(lambda: gpuprov("ssh", "con/0", "--", "true", code=None).code != 0)
    begin = time.monotonic()
    done = gpuprov("up", path, code=6)
    assert time.monotonic() - begin < 20, done  # the look at a ready node ends after access.timeout too
    assert "reach: warning: console: its last lines" in done.err
    assert re.search(r"^ +[|] .*Garbage", done.err, re.M), done
    assert "\033" not in done.err and "access.timeout is 4" in done.err
    gpuprov("down", "con")
