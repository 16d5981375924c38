# SPDX-License-Identifier: Apache-2.0
"""The provider contract of lambda against its stand-in, on good and on bad days."""
import lambda_world
import pytest
from lambda_cloud import LambdaCloud, error
from test_provider_contract import CASES, LATE_REFUSALS, REFUSALS, run_contract


def cut_ids(reply):
    reply["data"] = {"instance_ids": []}
    return reply


def empty(reply):
    reply["data"] = []
    return reply


def faults(cloud, case, flag):
    denied = {"times": None, "when": str(flag), "status": 403, "obj": error(403, "global/forbidden", "no").obj}
    if case == "async_failure":
        cloud.boot_lists, cloud.fails_boot = 0, True
    elif case == "gang_partial":
        cloud.capacity = dict.fromkeys(cloud.capacity, 1)
    elif case == "gang_cut":
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
    elif case == "destroy_refused":
        cloud.rule("POST .*/terminate", "reply", **denied)
    elif case == "list_hollow":
        cloud.rule("GET .*/instances$", "reply", times=None, when=str(flag), status=200, obj={"success": False})
    elif case == "list_refused":
        cloud.rule("GET .*/instances$", "reply", **denied)
    elif case == "throttled":
        cloud.rule("", "reply", times=None, every=3, status=429, headers={"Retry-After": "0"}, obj={})


def test_lambda(tmp_path):
    with LambdaCloud() as cloud:
        run_contract(lambda_world.environment(cloud, tmp_path), "lambda", lambda_world.spec(tmp_path))
        assert cloud.left() == []
        assert cloud.sound() is True


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("case", CASES + REFUSALS + LATE_REFUSALS)
def test_lambda_on_bad_days(tmp_path, case):
    with LambdaCloud() as cloud:
        faults(cloud, case, tmp_path / "flag")
        run_contract(lambda_world.environment(cloud, tmp_path), "lambda", lambda_world.spec(tmp_path), case,
                     tmp_path / "flag")
        assert cloud.left() == []
        assert cloud.sound() is True
        assert all(r["done"] for r in cloud.rules), "no fault came"
        keys = [r["body"] for r in cloud.requests("POST .*/ssh-keys")]
        assert all("gpuprov owner=" in k for k in keys)
