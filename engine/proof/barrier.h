/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the gang checks and the verdict, after the work on the nodes. */
#ifndef GP_ENGINE_BARRIER_H
#define GP_ENGINE_BARRIER_H

#include "engine/run/run.h"

/* Call it after the pool: runs the gang checks (only if no node failed), judges, and records the report. */
int barrier_run(struct run *run, struct report *report, struct gp_error *err);

/* The worst of the nodes' failures with the number of the others; 0 if no node failed. */
int barrier_failures(struct run *run, struct gp_error *err);

#endif
