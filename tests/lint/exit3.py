#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exit 3 means that the same command may succeed later. Every place that makes an error of an exit-3 code is listed
here with what may come; an unknown model, an impossible count, a missing image or host key is another code. Prints
file:line: rule; exit 1."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = ["bootstrap", "cmd", "core", "engine", "providers", "validate"]

# file: the cloud's codes in a table of errors, or the beginning of another expression with "?" at its end
MAY_COME = {
    "engine/plan.c": ["gp_fail(err, GP_ECAPACITY, \"no offer has %d node?"],  # the same, before the launch
    "engine/stack/launch.c": ["skipped ? GP_E?"],  # an offer that had too few free machines a moment ago
    "providers/ssh/ssh.c": ["may_come ? GP_E?"],  # held by a stack that can release them
    "providers/common/refusal.c": ["GP_ETHROTTLED, ?"],  # HTTP 429 and 503
    "providers/alibaba/errors.c": [
        "OperationDenied.NoStock", "OperationDenied.PaygNotAvailable",
        "OperationDenied.SpotPriceLowerThanPublicPrice", "InvalidSpotPriceLimit.LowerThanPublicPrice",
        "OperationDenied|usage", "OperationDenied|sold out", "InvalidVSwitchId.IpNotEnough",
        "InvalidPrivateIpAddress.*", "SignatureNonceUsed", "Throttling.*", "LastTokenProcessing",
        "IdempotentProcessing", "OperationConflict", "TaskConflict", "IncorrectVpcStatus",
        "IncorrectVSwitchStatus"],
    "providers/alibaba/offers.c": ["gp_fail(err, GP_ECAPACITY, \"alibaba %s: %s is sold out?"],
    "providers/aws/reserve.c": ["gp_fail(err, GP_ECAPACITY?"],  # a reservation that begins later, or whose nodes are all in use
    "providers/azure/errors.c": [
        "ZonalAllocationFailed", "OverconstrainedZonalAllocationRequest", "AllocationFailed",
        "OverconstrainedAllocationRequest", "SkuNotAvailable", "SpotPriceGreaterThanProvidedMaxPrice",
        "AllocationTimeout", "PreemptedByHigherPriorityVM", "SubnetIsFull",
        "OperationNotAllowed|server rejected the request because too many requests", "TooManyRequests",
        "SubscriptionRequestsThrottled", "ResourceRequestsThrottled", "RetryableErrorDueToAnotherOperation",
        "RetryableError", "AnotherOperationInProgress", "ReferencedResourceNotProvisioned"],
    "providers/common/rest.c": ["slow_down = {\"\", ?"],  # HTTP 429
    "providers/google/errors.c": [
        "ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "stockout", "STOCKOUT",
        "resourcePoolExhausted", "VM_MIN_COUNT_NOT_REACHED", "VM_MIN_COUNT_NOT_REACHED.*", "IP_SPACE_EXHAUSTED",
        "IP_SPACE_EXHAUSTED_WITH_DETAILS", "rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED",
        "RESOURCE_EXHAUSTED", "concurrentOperationQuotaExceeded", "operationRateExceeded",
        "RESOURCE_OPERATION_RATE_EXCEEDED", "temporarily_unavailable", "RESOURCE_AVAILABILITY",
        "*|does not have enough resources"],
    "providers/lambda/create.c": ["GP_ECAPACITY, \"lambda launch in?"],  # accepted, and not run
    "providers/lambda/errors.c": ["instance-operations/launch/insufficient-capacity"],
    "providers/lambda/offers.c": ["GP_ECAPACITY, \"lambda: no capacity?"],
    "providers/runpod/create.c": ["GP_ECAPACITY, \"runpod: pod %s was accepted?"],  # accepted, and no host
    "providers/runpod/errors.c": [
        "HTTP429", "{NO_CAPACITY, ?"],
    "providers/runpod/offers.c": ["GP_ECAPACITY, \"runpod: no %s has?"],
    "providers/shadeform/create.c": ["refuse(ret, GP_ECAPACITY?"],  # accepted, and not run
    "providers/shadeform/errors.c": [
        "OUT_OF_STOCK", "*|out of stock", "*|capacity", "*|not available", "*|unavailable"],
    "providers/shadeform/offers.c": ["gp_fail(err, GP_ECAPACITY,?"],
    "providers/openstack/errors.c": [
        "fault|No valid host", "fault|not enough hosts", "fault|Exceeded maximum number of retries",
        "fault|Insufficient compute resources", "fault|Exhausted all hosts", "fault|No more IP addresses",
        "fault|no fixed IP", "fault", "overLimit", "HTTP 429", "IpAddressGenerationFailure"],
    "providers/aws/errors.c": [
        "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacityOnHost",
        "InsufficientReservedInstanceCapacity", "InsufficientCapacity", "ReservationCapacityExceeded",
        "UnfulfillableCapacity", "SpotMaxPriceTooLow", "InsufficientFreeAddressesInSubnet",
        "RequestLimitExceeded", "EC2ThrottledException", "Throttling.*", "ThrottlingException", "ThrottledException",
        "RequestThrottled", "RequestThrottledException", "TooManyRequestsException", "SlowDown", "ConcurrentTagAccess"],
}
# They compare or map a code, and make none.
READERS = re.compile(r"case GP_E|[!=]= -?GP_E|^\s*\[GP_E|^\s*GP_E\w+ = ")


def exit_3():
    text = (ROOT / "core/base/error.c").read_text(encoding="utf-8")
    return re.findall(r"\[(GP_E\w+)\] = \{3,", text)


def problems_of(path, text, codes):
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)
    for i, line in enumerate(text.splitlines(), 1):
        if not re.search(rf"\b({'|'.join(codes)})\b", line) or READERS.search(line):
            continue
        if not any(f'"{m}"' in line or (m.endswith("?") and m.rstrip("?") in line) for m in MAY_COME.get(path, [])):
            yield f"{path}:{i}: an error with exit 3 that is not listed as one that may pass (tests/lint/exit3.py)"


def main():
    codes = exit_3()
    found, seen = [], 0
    for folder in CODE:
        for p in sorted((ROOT / folder).rglob("*.c")):
            path = str(p.relative_to(ROOT))
            text = p.read_text(encoding="utf-8")
            seen += any(c in text for c in codes)
            found += problems_of(path, text, codes)
    print("\n".join(found + [f"exit3: {', '.join(codes)} in {seen} files, {len(found)} problems"]))
    return 1 if found or len(codes) < 2 or seen < 4 else 0


if __name__ == "__main__":
    sys.exit(main())
