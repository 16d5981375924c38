# SPDX-License-Identifier: Apache-2.0
"""The console of an instance that is unreachable, against moto: nobody listens at the addresses that moto invents, and
with public_ip: false they are private ones."""
import base64

import ec2
from aws_cloud import cloud_fixture, moto_fixture  # noqa: F401
from test_aws_absence import gpuprov

ACCESS = {"ssh_from": ["203.0.113.0/24"], "public_ip": False, "timeout": "4s"}


def spec(cloud, **more):
    return str(ec2.spec(cloud.tmp, cloud.moto.image(), market="on-demand", nodes=1, access=ACCESS, **more))


def console(text):
    lines = base64.encodebytes(text.encode())  # EC2 breaks it into lines
    return b"<GetConsoleOutputResponse><output>" + lines + b"</output></GetConsoleOutputResponse>"


def test_the_last_lines_are_printed(cloud):
    text = "".join(f"[ {i}.0] boot {i}\r\n" for i in range(40)) + "\033[0;1;31mKernel panic\033[0m - not syncing\n"
    cloud.proxy.rule("GetConsoleOutput", "reply", times=None, body=console(text))
    said = gpuprov(cloud, 6, "up", spec(cloud)).stderr
    assert "| Kernel panic - not syncing" in said and "\033" not in said
    assert said.count("        | [ ") == 19 and "| [ 39.0] boot 39\n" in said and "access.timeout is 4" in said
    gpuprov(cloud, 0, "down", "contract")


def test_a_console_that_cannot_be_read_changes_nothing(cloud):
    cloud.proxy.rule("GetConsoleOutput", "reply", times=None, body=b"<Response><output>%%%</output></Response>")
    said = gpuprov(cloud, 6, "up", spec(cloud)).stderr
    assert "could not be read: aws: the console of i-" in said and "access.timeout is 4" in said
    gpuprov(cloud, 0, "down", "contract")
