/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU model table (gpu_models.tsv, compiled in): what a GPU of each model is by its data sheet, and
 * what sound ones were measured to reach, each with its source. Known to controller and agents.
 * Facts and look-ups only; depends on core/base. Pure; any thread. */
#ifndef GP_MODELS_H
#define GP_MODELS_H

#include "base/gp_base.h"

struct gpu_model; /* a row; static, never freed */

/* device, subsystem: PCI ids without the vendor (0x2330 and 0x16c1; subsystem 0: not known). A row that
 * names the subsystem goes before one that does not. NULL: no such model. */
const struct gpu_model *gpu_model_find(unsigned device, unsigned subsystem);
const char *gpu_model_name(const struct gpu_model *m); /* "H100 SXM5 80GB" */

/* What was measured on sound GPUs of this model. */
struct gpu_figure {
    double measured;       /* in the metric's unit */
    double fail, degraded; /* 80 % and 90 % of it unless the row says otherwise; never above the spec */
    const char *source;
};
/* The figure of a check's metric ("gpu.bandwidth", "copy"); gpus, bytes and nvls matter for "nccl.*":
 * the row for that many GPUs and the nearest size that is not above bytes; 0 where it does not apply.
 * False: nothing is known, so the figure is unrated. */
struct gpu_figure_key {
    const char *check, *metric;
    int gpus;
    int64_t bytes;
    bool nvls;
};
bool gpu_model_figure(const struct gpu_model *m, const struct gpu_figure_key *key,
                      struct gpu_figure *ret);
/* A value of the data sheet: "memory_gib", "memory_gb_per_s", "bf16_tflops", "nvlink_gb_per_s", ...
 * Negative: not known. */
double gpu_model_spec(const struct gpu_model *m, const char *name);

#endif
