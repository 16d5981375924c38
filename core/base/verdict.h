/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict of a check, its name, and the exit codes of the node-check language. Shared by the controller and
 * the agents. Pure; any thread. */
#ifndef GP_VERDICT_H
#define GP_VERDICT_H

#include "base/gp_base.h"

/* In order of severity: the worst one wins. */
enum verdict { VERDICT_PASS, VERDICT_DEGRADED, VERDICT_SKIPPED, VERDICT_ERROR, VERDICT_FAIL };
const char *verdict_name(enum verdict v); /* "pass", "degraded", "skipped", "error", "fail" */
bool verdict_parse(const char *name, enum verdict *ret);

/* Exit codes for schedulers: 0 pass, 1 degraded, 2 fail, 3 unknown. A
 * required check that did not run (error, skipped) is 3, never 0. */
enum node_check { NODE_CHECK_PASS, NODE_CHECK_DEGRADED, NODE_CHECK_FAIL, NODE_CHECK_UNKNOWN };
enum node_check verdict_node_check(enum verdict v);

#endif
