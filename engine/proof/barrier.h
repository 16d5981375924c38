/* SPDX-License-Identifier: Apache-2.0 */
/* The barrier and what comes after it. */
#ifndef GP_ENGINE_BARRIER_H
#define GP_ENGINE_BARRIER_H

#include "engine/run/run.h"

/* After the pool: the gang checks (only when every node came through), the verdict, the report. */
int barrier_run(struct run *run, struct report *report, struct gp_error *err);

#endif
