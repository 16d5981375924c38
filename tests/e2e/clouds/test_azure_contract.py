# SPDX-License-Identifier: Apache-2.0
"""The provider contract against the stand-in for Azure, on good and on bad days."""
import azure_cloud as azure
import azure_lab
import pytest
from test_provider_contract import CASES, LATE_REFUSALS, REFUSALS, run_contract


def faults(cloud, case, flag):
    denied = {"times": None, "when": str(flag), "status": 403,
              "obj": {"error": {"code": "AuthorizationFailed", "message": "The client does not have authorization."}}}
    vm = "PUT .*/virtualMachines/"
    if case == "async_failure":
        cloud.fail_name = {"contract-": "AllocationFailed"}
    elif case == "gang_partial":
        cloud.fail_name = {"contract-1-": "AllocationFailed"}
    elif case == "gang_cut":
        cloud.rule(vm, "drop_after").rule("GET .*/virtualMachines[?]", "edit", times=2, change=lambda o: {"value": []})
    elif case == "late_address":
        cloud.rule("GET .*/publicIPAddresses", "edit", times=4, change=lambda o: {"value": []})
        cloud.rule("GET .*/networkInterfaces", "edit", times=2, change=lambda o: {"value": []})
    elif case == "late_list":
        cloud.rule("GET .*/virtualMachines[?]", "edit", times=4, change=lambda o: {"value": []})
    elif case == "lost_reply":
        cloud.rule(vm, "drop_after").rule("PUT .*/resourcegroups/", "drop_after")
        cloud.rule("PUT .*/networkSecurityGroups/", "drop_after").rule("DELETE .*/virtualMachines/", "drop_after")
    elif case == "paged":
        cloud.page = 1
    elif case == "destroy_refused":
        cloud.rule("DELETE .*/virtualMachines/", "reply", **denied)
    elif case == "list_hollow":
        cloud.rule("GET .*/virtualMachines[?]", "reply", times=None, when=str(flag), status=200, obj={"success": False})
    elif case == "list_refused":
        cloud.rule("GET .*/virtualMachines[?]", "reply", **denied)
    elif case == "throttled":
        cloud.rule(r"(GET|PUT|PATCH|DELETE) /subscriptions", "reply", times=None, every=3, status=429,
                   headers={"Retry-After": "0"}, obj={"error": {"code": "TooManyRequests", "message": "Slow down."}})


@pytest.mark.parametrize("market", ["on-demand", "spot"])
def test_story(tmp_path, market):
    with azure.Azure() as cloud:
        cloud.upper_groups = market == "spot"
        run_contract(azure_lab.environment(cloud, tmp_path), "azure",
                     azure_lab.spec(tmp_path, offer={"market": market}))
        azure_lab.clean(cloud)


@pytest.mark.matrix(keep=2)
@pytest.mark.parametrize("case", CASES + REFUSALS + LATE_REFUSALS)
def test_bad_days(tmp_path, case):
    with azure.Azure() as cloud:
        faults(cloud, case, tmp_path / "flag")
        run_contract(azure_lab.environment(cloud, tmp_path), "azure", azure_lab.spec(tmp_path), case,
                     tmp_path / "flag")
        assert all(r["done"] for r in cloud.rules), "a fault did not come"
        azure_lab.clean(cloud)
