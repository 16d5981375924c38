/* SPDX-License-Identifier: Apache-2.0 */
/* A fleet's own baseline: the figures of its sound GPUs, per model, driver, check and figure, in a JSON file
 * ("gpuprov/baseline/v1", docs/validation.md). Written by `validate --calibrate`, read by every later run. */
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
    int64_t n;  /* the number of values behind the median */
    double median, mad;
};
struct baseline {
    char *path;
    VEC_OF(struct baseline_figure) figures;
};
/* -GP_ENOTFOUND: no file. -GP_EUSAGE: not a baseline of this version, or a figure that is incomplete, duplicate, of
 * an unknown check or unit, or impossible for a sound GPU of the model (gpu_figure_plausible). Blocks for the read. */
int baseline_load(const char *path, struct baseline *ret, struct gp_error *err);
/* Writes it whole or not at all. */
int baseline_save(const struct baseline *b, const char *path, struct gp_error *err);
void baseline_clear(struct baseline *b);

/* Puts the medians of a report's rates into b and replaces those of the same model, driver, check, figure and number
 * of GPUs. Refuses (-GP_EVALIDATE, b is not changed) a report with a fail, degraded or error, one without rates, and
 * a rate of an unknown model or driver. *ret_figures: the number of figures put. */
int baseline_calibrate(struct baseline *b, struct report *r, size_t *ret_figures, struct gp_error *err);

/* Limits of one figure: 80 % and 90 % of the median, or 7 and 3.5 deviations of 1.4826 * MAD where these are further
 * away. Negative: none. */
void baseline_limits(const struct baseline_figure *f, bool ceiling, double *ret_fail, double *ret_degraded);
/* Compares the rates of the nodes (gang: of all together) with it: fail or degraded with the code "below_baseline",
 * named by GPU. A figure with a floor in the spec is not judged here. Sets the figures' limits where the baseline's
 * are stricter. Figures without an entry stay unchanged. */
void baseline_judge(const struct baseline *b, const struct validate_env *env, struct report *r, bool gang);
/* "h100-sxm5-80 with driver 580.65.06": the first model with rates in r and no entry in b; NULL: none.
 * Caller frees. */
char *baseline_unknown(const struct baseline *b, struct report *r);

#endif
