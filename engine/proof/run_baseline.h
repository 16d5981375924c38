/* SPDX-License-Identifier: Apache-2.0 */
/* Selects, applies and writes the baseline of a run. */
#ifndef GP_ENGINE_RUN_BASELINE_H
#define GP_ENGINE_RUN_BASELINE_H

#include "engine/engine.h"
#include "validate/baseline.h"
#include "validate/validate.h"

/* Reads the baseline of this run, if there is one, before anything is launched. */
int run_baseline_open(const struct engine *e, const struct spec *spec, struct baseline *ret, struct gp_error *err);
/* Compares the nodes' rates (gang: those of the gang checks) with it, and reports rates that it does not have. */
void run_baseline_hold(const struct baseline *b, const struct validate_env *env, struct report *report, bool gang);
/* --calibrate: writes a baseline from a report in which every check passed. */
int run_baseline_write(const struct engine *e, const struct validate_env *env, struct report *report,
                       struct gp_error *err);

#endif
