/* SPDX-License-Identifier: Apache-2.0 */
/* Which baseline a run is held against. */
#ifndef GP_ENGINE_RUN_BASELINE_H
#define GP_ENGINE_RUN_BASELINE_H

#include "engine/engine.h"
#include "validate/baseline.h"
#include "validate/validate.h"

/* Reads the baseline that this run is held against, where there is one, before anything is bought. */
int run_baseline_open(const struct engine *e, const struct spec *spec, struct baseline *ret, struct gp_error *err);
/* Holds the nodes' rates (gang: those of all together) against it, and reports when it has nothing about them. */
void run_baseline_hold(const struct baseline *b, const struct validate_env *env, struct report *report, bool gang);
/* --calibrate: writes one of a report in which all is well. */
int run_baseline_write(const struct engine *e, const struct validate_env *env, struct report *report,
                       struct gp_error *err);

#endif
