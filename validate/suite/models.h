/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU model table (gpu_models.tsv, compiled in): each model's data sheet and the figures measured on sound GPUs,
 * each with its source. Compiled into controller and agents. Facts and look-ups only; depends on core/base. Pure;
 * any thread; all strings are static. */
#ifndef GP_MODELS_H
#define GP_MODELS_H

#include "base/gp_base.h"

struct gpu_model; /* a row; static, never freed */

/* device, subsystem: PCI ids without the vendor (0x2330 and 0x16c1; subsystem 0: not known). A row that
 * names the subsystem goes before one that does not. NULL: no such model. */
const struct gpu_model *gpu_model_find(unsigned device, unsigned subsystem);
const char *gpu_model_name(const struct gpu_model *m);   /* "H100 SXM5 80GB" */
const char *gpu_model_id(const struct gpu_model *m);     /* "h100-sxm5-80": the same in all releases */
const struct gpu_model *gpu_model_by_id(const char *id); /* NULL: none */

/* Names as users, clouds and drivers write them: "H100", "nvidia-h100-80gb", "NVIDIA H100 80GB HBM3".
 * Case, blanks, dashes and the words NVIDIA, Tesla and GeForce do not count. A short name can stand for
 * several models ("A100": four of them); gpu_model_named returns the first, gpu_model_is compares with one. */
const struct gpu_model *gpu_model_named(const char *text); /* NULL: no such model */
bool gpu_model_is(const struct gpu_model *m, const char *text);
const char *gpu_model_alias(const struct gpu_model *m, size_t i); /* NULL ends */

/* How a figure was measured decides what it can judge. */
enum gpu_how {
    GPU_HOW_SAME,  /* as gpuprov measures (shape, data, direction): fails under 80 %, degraded under 90 % */
    GPU_HOW_BELOW, /* by a program that sound GPUs exceed: fails under 90 %, degraded under it */
    GPU_HOW_BEST   /* the best of many shapes: judges nothing, because a check has one shape */
};
/* A figure measured on sound GPUs of this model, or a published limit. */
struct gpu_figure {
    double measured;          /* in the metric's unit; negative: only a limit was published */
    double fail, degraded;    /* by how it was measured; of a published limit: itself and 5 % more */
    const char *source, *how; /* where it was published; how it was measured */
};
/* The figure of a check's metric ("gpu.bandwidth", "copy"). gpus, bytes, nvls and nvlink matter for
 * "nccl.*" and "gpu.p2p": the row for that many GPUs and the nearest size that is not above bytes; 0 and
 * false where they do not apply. False: there is no such row, so the figure is unrated. */
struct gpu_figure_key {
    const char *check, *metric;
    int gpus;
    int64_t bytes;
    bool nvls;   /* NCCL reduced in the NVSwitch (NVLink SHARP) */
    bool nvlink; /* all pairs are joined by NVLink; models with NVSwitch have no row that needs it */
    double pcie; /* figures of the PCIe link: the share of the model's link that this machine has by design; 0: all */
};
bool gpu_model_figure(const struct gpu_model *m, const struct gpu_figure_key *key, struct gpu_figure *ret);

/* A value of the data sheet: "memory_gib" (as sold; drivers report up to 8 % less), "memory_gb_per_s",
 * "ecc" (1: on as delivered), "bf16_tflops" (dense; fp32, tf32, fp16, fp8 too), "nvlink_links",
 * "nvlink_gb_per_s" (all links, one direction), "nvlink_gpus", "nvlink_bridge" (links of one bridge; they work with
 * bridges only), "pcie_gen", "pcie_width", "pcie_min_width" (fewer lanes that clouds wire), "c2c_gb_per_s" (instead),
 * "tdp_w", "cc", "train_mfu" (the share of bf16_tflops that training reached elsewhere). Negative: not known, or the
 * GPU has no such thing. */
double gpu_model_spec(const struct gpu_model *m, const char *name);
/* The data sheet's upper bound of that figure; negative: it has none. */
double gpu_model_limit(const struct gpu_model *m, const struct gpu_figure_key *key);
/* True when this can be a sound GPU's figure: between half the data sheet's and all of it (NVLS: a quarter more,
 * because busbw counts a ring's traffic). A limit outside of that fails no GPU, or every GPU. True also where the
 * data sheet has no value. why: one line when false. For tables, fleet baselines and calibration. */
bool gpu_figure_plausible(const struct gpu_model *m, const struct gpu_figure_key *key, double value, char *why,
                          size_t why_size);

/* The model whose figures are used where m has none of its own; NULL: none. */
const struct gpu_model *gpu_model_like(const struct gpu_model *m);

/* The i-th row of the table, for pages and tests. */
const struct gpu_model *gpu_model_at(size_t i); /* NULL ends */
struct gpu_row {
    const struct gpu_model *model; /* the owner of the row; other models may use it (gpu_model_like) */
    const char *check, *metric, *unit, *source, *how;
    enum gpu_how kind;
    double value, fail, degraded; /* its limits; negative: it judges nothing */
    bool is_floor;                /* a published limit, not a measurement */
    int gpus, nvls;               /* 0: any; nvls -1: any */
    int64_t bytes;
    bool nvlink;
};
bool gpu_row_at(size_t i, struct gpu_row *ret); /* false ends */
struct gpu_spec_row {
    const struct gpu_model *model;
    const char *name, *source;
    double value;
};
bool gpu_spec_at(size_t i, struct gpu_spec_row *ret);
bool gpu_pci_at(size_t i, const struct gpu_model **ret, unsigned *ret_device, unsigned *ret_subsystem);

#endif
