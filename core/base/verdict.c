/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts, their names and exit codes. Pure; any thread. */
#include "base/gp_base.h"

#include "base/verdict.h"

static const char *const verdict_names[] = {
    [VERDICT_PASS] = "pass",   [VERDICT_DEGRADED] = "degraded", [VERDICT_SKIPPED] = "skipped",
    [VERDICT_ERROR] = "error", [VERDICT_FAIL] = "fail",
};

const char *verdict_name(enum verdict v) {
    return (size_t)v < GP_ARRAY_LEN(verdict_names) ? verdict_names[v] : "error";
}

bool verdict_parse(const char *name, enum verdict *ret) {
    for (size_t i = 0; name != NULL && i < GP_ARRAY_LEN(verdict_names); i++) {
        if (strcmp(name, verdict_names[i]) != 0) continue;
        *ret = (enum verdict)i;
        return true;
    }
    return false;
}

enum node_check verdict_node_check(enum verdict v) {
    switch (v) {
    case VERDICT_PASS: return NODE_CHECK_PASS;
    case VERDICT_DEGRADED: return NODE_CHECK_DEGRADED;
    case VERDICT_FAIL: return NODE_CHECK_FAIL;
    case VERDICT_ERROR:
    case VERDICT_SKIPPED: return NODE_CHECK_UNKNOWN;
    }
    return NODE_CHECK_UNKNOWN;
}
