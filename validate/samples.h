/* SPDX-License-Identifier: Apache-2.0 */
/* The rates of a report, one by one: each GPU's if the check has them, else the node's or the gang's. Input of
 * peers, baselines and the history. Pure; any thread. */
#ifndef GP_SAMPLES_H
#define GP_SAMPLES_H

#include "model/report.h"
#include "validate/suite/checks.h"

struct sample {
    struct report_node *node; /* NULL: of all nodes together. Borrowed, like the next three */
    struct check_result *result;
    const struct check_info *info;
    const struct check_metric_info *metric;
    int gpu;         /* -1: not of one GPU */
    int gpus;        /* of a gang's figure: how many GPUs took part; 0 otherwise */
    char model[40];  /* id in the GPU model table, or "pci-2bb1" for another model; "" not known */
    char driver[40]; /* "580.65.06"; "" not known */
    char by[40];     /* the library that was used, if there is a choice, without its version: "cuBLASLt"; else "" */
    double value;
};
struct samples {
    VEC_OF(struct sample) list;
};
void samples_clear(struct samples *s);
#define GP_AUTO_SAMPLES GP_CLEANUP(samples_clear)

/* Rates that sound GPUs share: judged by model, or compared with peers. */
bool sample_is_rate(const struct check_metric_info *m);
/* Appends those of one figure, of the nodes (or, gang, of all together) where it was measured: not of checks
 * that were skipped or ended in error. */
void samples_of(struct samples *s, struct report *r, const struct check_info *info, const struct check_metric_info *m);
/* Appends all rates of a report. */
void samples_all(struct samples *s, struct report *r);
/* Adds {"gpu", "metric", "value", ...} of a sample to the result's data under `list`; further: a new
 * reference to an object with more members, taken over. */
void sample_note(const struct sample *one, const char *list, json_t *further);

#endif
