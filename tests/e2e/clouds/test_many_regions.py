# SPDX-License-Identifier: Apache-2.0
"""An endpoint that names more regions than a cloud has. What it names is not looked at one by one, nor held against one
another: the cloud counts as not looked at."""
import subprocess

import ec2
import pytest
from far_clouds import FAR

MANY = 50_000


def names(form):
    return [form % n for n in range(MANY)]


def aws(far):
    far.cloud.rule("DescribeRegions", "edit", times=None, old=b"</regionInfo>", new=b"".join(
        b"<item><regionName>%s</regionName></item>" % name.encode() for name in names("xx-far-%d")) + b"</regionInfo>")


def alibaba(far):
    real = far.cloud.do_DescribeRegions
    more = [{"RegionId": name, "RegionEndpoint": "ecs.%s.aliyuncs.com" % name} for name in names("xx-far-%d")]
    far.cloud.do_DescribeRegions = lambda *a: {"Regions": {"Region": real(*a)["Regions"]["Region"] + more}}


def google(far):
    none = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "none"}}
    more = {"zones/%s" % name: none for name in names("xx-far%d-a")}
    far.cloud.rule("GET .*/aggregated/", "edit", times=None, change=lambda r: dict(r, items=dict(r["items"], **more)))


def google_unreachable(far):
    more = ["projects/p/zones/%s" % name for name in names("xx-far%d-a")]
    far.cloud.rule("GET .*/aggregated/", "edit", times=None, change=lambda r: dict(r, unreachables=more))


def azure(far):
    more = [{"name": name} for name in names("far%d")]
    far.cloud.rule("GET .*/locations", "edit", times=None, change=lambda r: dict(r, value=r["value"] + more))


def lambda_(far):
    more = [{"name": name, "description": "far"} for name in names("xx-far-%d")]
    far.cloud.rule("GET .*/regions", "edit", times=None, change=lambda r: {"data": r["data"] + more})


@pytest.mark.parametrize("provider,edit", [("aws", aws), ("alibaba", alibaba), ("google", google),
                                           ("google", google_unreachable), ("azure", azure), ("lambda", lambda_)],
                         ids=lambda p: getattr(p, "__name__", ""))
def test_more_regions_than_a_cloud_has(tmp_path, provider, edit):
    with FAR[provider](tmp_path, latency=0) as far:
        edit(far)
        done = subprocess.run([ec2.BUILD / "gpuprov", "down", "far", "--in", provider], env=far.env, capture_output=True, text=True,
                              timeout=100, check=False)
        assert done.returncode == 8 and "names more than 500 regions: check the endpoint" in done.stdout + done.stderr, done
        assert len(far.cloud.log if hasattr(far.cloud, "log") else far.cloud.calls) < 100


def test_a_list_of_very_many_machines(tmp_path):
    """Each is held against the journal and the others by a sorted list: one comparison for each pair takes most of an hour."""
    with FAR["lambda"](tmp_path, latency=0) as far:
        tag = {"key": "gpuprov:owner", "value": "somebody"}
        more = [{"id": "%032x" % n, "status": "active", "region": {"name": "us-east-1"}, "tags": [tag]} for n in range(200_000)]
        far.cloud.rule("GET .*/instances$", "edit", times=None, change=lambda r: {"data": r["data"] + more})
        done = subprocess.run([ec2.BUILD / "gpuprov", "gc", "--in", "lambda"], env=far.env, capture_output=True, text=True,
                              timeout=300, check=False)
        assert done.returncode == 8 and "its stack is not known" in done.stdout + done.stderr, done.stderr[-2000:]
