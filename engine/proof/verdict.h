/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the report and each node's phase from the results of the checks. */
#ifndef GP_ENGINE_VERDICT_H
#define GP_ENGINE_VERDICT_H

#include "engine/run/run.h"

/* report->nodes[i] is node i of the spec, even if it has no machine or no check ran. */
void verdict_collect(struct run *run, struct report *report);
/* Adds the gang checks that did not run, with the reason gang_why, then judges. */
void verdict_judge(const struct run *run, struct report *report, const char *gang_why);
/* Writes the report and each node's phase to the journal. */
int verdict_record(struct run *run, const struct report *report, struct gp_error *err);
/* -GP_EVALIDATE with the worst check that keeps a node from being READY. */
int verdict_error(const struct run *run, const struct report *report, struct gp_error *err);

#endif
