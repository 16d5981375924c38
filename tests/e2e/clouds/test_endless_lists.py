# SPDX-License-Identifier: Apache-2.0
"""Lists whose pages never end, each with a new token: the list ends, and its cloud counts as not looked at."""
import itertools
import subprocess

import ec2
import pytest
from far_clouds import FAR
from faultproxy import EC2_NS


def aws(far, tokens):
    def more():
        return ("<DescribeInstancesResponse %s><reservationSet/><nextToken>more-%d</nextToken></DescribeInstancesResponse>"
                % (EC2_NS, next(tokens))).encode()
    far.cloud.rule("DescribeInstances", "reply", times=None, headers={"Content-Type": "text/xml"}, body=more)


def alibaba(far, tokens):
    real = far.cloud.do_DescribeInstances
    far.cloud.do_DescribeInstances = lambda *a: dict(real(*a), NextToken=str(next(tokens)))


def google(far, tokens):
    far.cloud.rule("GET .*/aggregated/", "edit", times=None, change=lambda r: dict(r, nextPageToken=str(next(tokens))))


def azure(far, tokens):
    def more(reply):
        last = [r["target"] for r in far.cloud.log if "/resourcegroups?" in r["target"].lower()][-1]
        return dict(reply, nextLink="%s%s&%%24skiptoken=%d" % (far.cloud.url, last.split("&%24skiptoken")[0], next(tokens)))
    far.cloud.rule(r"GET .*/resource[gG]roups\?", "edit", times=None, change=more)


@pytest.mark.parametrize("provider,edit", [("aws", aws), ("alibaba", alibaba), ("google", google), ("azure", azure)],
                         ids=lambda p: getattr(p, "__name__", ""))
def test_a_list_that_brings_nothing_new_ends(tmp_path, provider, edit):
    tokens = itertools.count(1)
    with FAR[provider](tmp_path, latency=0) as far:
        edit(far, tokens)
        done = subprocess.run([ec2.BUILD / "gpuprov", "gc", "--in", provider], env=far.env, capture_output=True, text=True,
                              timeout=300, check=False)
        assert done.returncode == 8 and "pages in a row bring nothing new: check the endpoint" in done.stdout + done.stderr, done
