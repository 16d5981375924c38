/* SPDX-License-Identifier: Apache-2.0 */
/* Judges figures: selects the limit (the spec's floor, the GPU model table, the check table), words a missed limit,
 * and names GPUs out of line with their peers. The controller judges the figures of its agents; an agent that runs
 * alone uses the same functions. A limit can only make a verdict worse. Depends on core/base. Pure; any thread. */
#ifndef GP_LIMITS_H
#define GP_LIMITS_H

#include "base/verdict.h"
#include "checks.h"
#include "models.h"

#define LIMITS_FIGURES GP_ARRAY_LEN(((struct check_info *)0)->metrics)

/* Which row of the GPU model table applies: the model (NULL: not known, so its figures are unrated) and the
 * conditions of the measurement. check and metric of the key are set here. */
struct limit_about {
    const struct gpu_model *model;
    struct gpu_figure_key key;
};
enum limit_kind {
    LIMIT_NONE,    /* only reported */
    LIMIT_UNRATED, /* by model, and this model has no known figure */
    LIMIT_SPEC,
    LIMIT_MODEL,
    LIMIT_TABLE
};
struct limit {
    enum limit_kind kind;
    double fail, degraded; /* negative: none */
    double measured;       /* LIMIT_MODEL: measured on sound GPUs; not positive: only a published limit is known */
    const char *source;    /* static */
    const char *how;       /* LIMIT_MODEL: how it was measured; static */
    const struct gpu_model *model; /* LIMIT_MODEL */
};
/* own: the spec's floor (or ceiling) of this figure; NAN: none. */
struct limit limit_of(const struct check_info *check, const struct check_metric_info *m,
                      const struct limit_about *about, double own);
/* "measured elsewhere: 3180 (BabelStream dot...); Azure/...", as reports name a limit's source. Caller frees. */
char *limit_source(const struct limit *l);

/* The judgement of a figure or of a GPU. With VERDICT_PASS the other members are empty. */
struct limit_word {
    enum verdict verdict;
    char code[48], message[400];
    const char *suggestion; /* static; NULL: the check's */
};
/* VERDICT_PASS when value meets the limit. A value that is not a number meets none. note: added to the message. */
struct limit_word limit_judge(const struct limit *l, const struct check_metric_info *m, double value, const char *note);

/* Figures that are judged together: one GPU's of a check, or all of a check that is not about each GPU. */
struct judged {
    const struct check_info *check;
    struct limit_about about;
    const char *note; /* the check's explanation of a figure that misses its limit; NULL: none */
    size_t n;
    struct {
        const struct check_metric_info *info;
        double value;
        struct limit limit; /* set by limits_judge */
    } figures[LIMITS_FIGURES];
    enum verdict verdict;   /* of its faults; limits_judge and limits_compare make it worse */
    struct limit_word word; /* the cause of a worse verdict; VERDICT_PASS: none */
};
/* Sets the figures' limits and judges by them. own: the spec's floors in the order of check->metrics, NAN where
 * there is none; NULL: none at all. A check that was skipped or ended in error is not judged by the model's figures.
 * A missing figure that sound GPUs of the model have is an error. */
void limits_judge(struct judged *j, const double *own);
/* The same check's figures of the GPUs of a node, each judged: a GPU out of line with the others of its model
 * (peers.h) becomes degraded(outlier), unless it is degraded already. */
void limits_compare(struct judged *gpus, size_t n);

/* "gpu 3: MESSAGE (also gpu 5, 7)": the message for the worst of a node's GPUs. others: "5, 7", or "". Caller frees. */
char *limits_gpu_text(int gpu, const char *message, const char *others);

#endif
