# SPDX-License-Identifier: Apache-2.0
"""The provider contract of lambda against its stand-in, on good and on bad days."""
import lambda_world
import pytest
from lambda_cloud import LambdaCloud
from test_provider_contract import CASES, run_contract


def cut_ids(reply):
    reply["data"] = {"instance_ids": []}
    return reply


def empty(reply):
    reply["data"] = []
    return reply


def faults(cloud, case):
    if case == "gang_cut":
        cloud.rule("POST .*/launch", "edit", change=cut_ids)
        cloud.rule("GET .*/instances$", "edit", change=empty, times=2)
    elif case == "late_address":
        cloud.boot_lists = 4
    elif case == "late_list":
        cloud.late_lists = 4
        cloud.rule("GET .*/ssh-keys$", "edit", change=empty, times=2, skip=1)
    elif case == "lost_reply":
        cloud.rule("POST .*/launch", "drop_after").rule("POST .*/ssh-keys$", "drop_after")
    elif case == "paged":  # there are no pages: lists in no order
        cloud.shuffle = True
    elif case == "throttled":
        cloud.rule("", "reply", times=None, every=3, status=429, headers={"Retry-After": "0"}, obj={})


def test_lambda(tmp_path):
    with LambdaCloud() as cloud:
        run_contract(lambda_world.environment(cloud, tmp_path), "lambda", lambda_world.spec(tmp_path))
        assert cloud.left() == []
        assert cloud.sound() is True


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("case", CASES)
def test_lambda_on_bad_days(tmp_path, case):
    with LambdaCloud() as cloud:
        faults(cloud, case)
        run_contract(lambda_world.environment(cloud, tmp_path), "lambda", lambda_world.spec(tmp_path), case)
        assert cloud.left() == []
        assert cloud.sound() is True
        assert all(r["done"] for r in cloud.rules), "no fault came"
        keys = [r["body"] for r in cloud.requests("POST .*/ssh-keys")]
        assert all("gpuprov owner=" in k for k in keys)
