/* SPDX-License-Identifier: Apache-2.0 */
/* From what ran on the nodes to a report and to each node's phase. */
#ifndef GP_ENGINE_VERDICT_H
#define GP_ENGINE_VERDICT_H

#include "engine/run/run.h"

/* report->nodes[i] is node i of the spec, also where there is no machine or nothing ran. */
void verdict_collect(struct run *run, struct report *report);
/* Adds what was planned for all nodes and did not run (gang_why), then judges. */
void verdict_judge(const struct run *run, struct report *report, const char *gang_why);
/* Each node's phase and the report, on disk. */
int verdict_record(struct run *run, const struct report *report, struct gp_error *err);
/* Names the first check that keeps a node from being READY: -GP_EVALIDATE. */
int verdict_error(const struct run *run, const struct report *report, struct gp_error *err);

#endif
