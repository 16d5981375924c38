/* SPDX-License-Identifier: Apache-2.0 */
/* A fleet's own baseline: what its sound GPUs reached, per model, driver, check and figure, in a JSON file
 * ("gpuprov/baseline/v1", docs/validation.md). Made by `validate --calibrate`, read by every later run. */
#ifndef GP_BASELINE_H
#define GP_BASELINE_H

#include "base/error.h"
#include "base/vec.h"
#include "model/report.h"

struct validate_env;

struct baseline_figure {
    char *model, *driver; /* as struct sample has them */
    char *check, *metric, *unit;
    char *by;   /* as struct sample has it; "" */
    char *date; /* "2026-11-21" */
    int gpus;   /* of a gang's figure; 0 otherwise */
    int64_t n;  /* how many values it was made of */
    double median, mad;
};
struct baseline {
    char *path;
    VEC_OF(struct baseline_figure) figures;
};
/* -GP_ENOTFOUND: no file. -GP_EUSAGE: no baseline of this version, a figure that is not whole, there twice,
 * of a check or unit that this program does not know, or that no sound GPU of the model could have
 * (gpu_figure_plausible). Blocks for the read. */
int baseline_load(const char *path, struct baseline *ret, struct gp_error *err);
/* Writes it whole or not at all. */
int baseline_save(const struct baseline *b, const char *path, struct gp_error *err);
void baseline_clear(struct baseline *b);

/* Puts the medians of a report's rates into b, in the place of what it had for the same model, driver, check,
 * figure and number of GPUs. Refuses (-GP_EVALIDATE, b is not changed) a report in which anything failed,
 * was degraded or could not be told, one without rates, and a rate of an unknown model or driver.
 * *ret_figures: how many were put. */
int baseline_calibrate(struct baseline *b, struct report *r, size_t *ret_figures, struct gp_error *err);

/* Limits of one figure: 80 % and 90 % of the median, and further away where the fleet itself spreads: 7 and
 * 3.5 deviations of 1.4826 * MAD. Negative: none. */
void baseline_limits(const struct baseline_figure *f, bool ceiling, double *ret_fail, double *ret_degraded);
/* Holds the rates of the nodes (gang: of all together) against it: fail or degraded with the code
 * "below_baseline", named by GPU. A figure that has a floor of the spec is left to that. Sets the figures'
 * limits where the baseline's are the stricter ones. Figures without an entry are as they were. */
void baseline_judge(const struct baseline *b, const struct validate_env *env, struct report *r, bool gang);
/* "h100-sxm5-80 with driver 580.65.06": the first model that r has rates of and b has nothing about; NULL: none.
 * Caller frees. */
char *baseline_unknown(const struct baseline *b, struct report *r);

#endif
