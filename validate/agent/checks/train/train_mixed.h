/* SPDX-License-Identifier: Apache-2.0 */
/* train.ddp in bf16 and fp16: one run of the mixed-precision GPT over all ranks. Its steps are in train_mixed.c, the
 * search for the culprit in train_mixed_blame.c, comparison with the host reference and continuation from a saved
 * state in train_mixed_proof.c, the list of runs in train_stages.c. All ranks call all functions in lock-step;
 * records go through c->comm, gradients through c->data. */
#ifndef GP_AGENT_TRAIN_MIXED_H
#define GP_AGENT_TRAIN_MIXED_H

#include "train.h"
#include "train_bucket.h"
#include "train_scale.h"

struct mixed_plan {
    const char *name; /* "bf16", "fp16" */
    enum gemm_type type;
    struct mx_shape shape;
    int batch;           /* sequences of a micro-batch */
    int micros;          /* micro-batches a step, their gradients added up before the sum over the ranks */
    int steps;           /* maximum; with `seconds` it may end earlier */
    double seconds;      /* 0: all steps */
    int check_every;     /* steps between those whose gradients are compared before they are summed */
    int reference_steps; /* so many of the checked steps (the first with a finite gradient) are compared with the
                          * host reference; 0 on the host itself */
    int restore_at;      /* continue from a saved state after this step, and compare; -1: no */
    size_t bucket;       /* elements */
    bool small;          /* small enough to be repeated on the host */
};

struct mixed_word {               /* every rank's record on a checked step, before the sum */
    uint64_t own_hash, next_hash; /* of its own gradient; of its neighbour's, computed by it */
    float loss;
    int32_t pad;
    double norm2, compute_s;
};

enum { MIXED_RESTORED = 2 /* steps repeated after a restore */ };

struct mixed {
    struct check_ctx *c;
    struct agent_result *r;
    const struct mixed_plan *plan;
    struct device *dev;
    struct mx_gpt gpt;
    struct markov source;
    struct loss_scale scale;
    struct bucket *buckets;
    int n_buckets;
    int next_bucket; /* of the current gradient */
    bool reducing;   /* buckets are summed while the backward pass still runs */
    bool keep;       /* gradient only: no faults are put in (the reference) */
    int32_t *in, *next;
    struct mixed_word *words; /* of all ranks */
    uint64_t *hashes;         /* of all ranks */
    uint64_t *kinds;          /* of all ranks' devices; 0: not known */
    float *sample;            /* a stretch of each rank's own gradient, one after the other */
    size_t sample_at, sample_n;
    int roundings;                /* gradients that differed between devices of different kinds */
    double norm;                  /* of the last summed gradient, unscaled and averaged */
    float *old_p, *old_m, *old_v; /* before the last update; small runs only */
    float old_beta1_t, old_beta2_t, old_scale;
    /* figures */
    double *losses, *step_s, *compute_s, *comm_s; /* per step; step_s of unchecked, the others of checked ones */
    int n_losses, n_step, n_compute;
    double *rank_s; /* [checked steps][size]: each rank's own gradient */
    int referenced;
    double reference_part; /* largest difference from the reference, as a part of the bound */
    double update_s;
};

/* False: the check returns (a verdict was set, unless `m` simply ended). */
bool mixed_open(struct mixed *m, struct check_ctx *c, struct agent_result *r, struct device *dev,
                const struct mixed_plan *plan);
void mixed_close(struct mixed *m);
bool mixed_run(struct mixed *m);
bool mixed_failed(struct mixed *m, const struct gp_error *err); /* this rank's own failure; false */

/* Gradient of rank `of`'s micro-batches at `step`, on model g; *ret_loss: the mean. */
bool mixed_gradient(struct mixed *m, struct mx_gpt *g, int of, int step, float *ret_loss);
bool mixed_reduce(struct mixed *m); /* sums the gradient over the ranks, and waits */
/* One step from the gradient to the update. hash: where this rank's gradient hash goes; may be NULL. */
bool mixed_step(struct mixed *m, int step, bool checked, uint64_t *own_hash);
void mixed_fault_restored(struct mixed *m, int step); /* does nothing but in test builds */
float mixed_rate(const struct mixed *m, int step);

/* --- train_mixed_blame.c --- */
/* Which ranks compute on the same kind of device, so that their bits must be equal. */
bool mixed_kinds(struct mixed *m);
/* Compares each rank's gradient with its neighbour's of the same batch. False: a verdict was set. */
bool mixed_blame_gradient(struct mixed *m, int step);
/* Accepts a gradient that is not finite while the loss scale can fall. False: a verdict was set. */
bool mixed_words_good(struct mixed *m, int step);
/* For a part of the gradient (all of a small one): exchanges every rank's own before the sum; then checks that the
 * received sum is theirs within rounding. False: a verdict was set. */
bool mixed_sample_own(struct mixed *m, int step);
bool mixed_sample_sum(struct mixed *m, int step);
/* Whether all ranks hold the same sum, before the update. False: a verdict was set. */
bool mixed_sums_equal(struct mixed *m, int step);
/* Parameters (m->hashes) differ after `step` but the sums were equal: finds the culprit. Always false. */
bool mixed_blame_params(struct mixed *m, int step);

/* --- train_mixed_proof.c --- */
/* This rank's gradient of the step against the host's, on the same batch. */
bool mixed_against_reference(struct mixed *m, int step, float loss);
/* Rank `of`'s gradient by the host, at the device's parameters; ret_grad: n_params values. */
bool mixed_reference(struct mixed *m, int of, int step, float *ret_grad, float *ret_loss);
/* Saves, trains MIXED_RESTORED steps, restores, trains them again: the bits must be equal. */
bool mixed_restore(struct mixed *m, int step);
/* Largest difference from the reference that rounding explains, as a part of the largest element (of a
 * gradient), of the norm and, forward_only, of the loss.
 * Two sound devices do the same roundings to 16 bits, of numbers that differ by the order of
 * fp32 additions. Such a pair is at most one unit in the last place apart, 2u of the number itself (u =
 * 2^-8 in bf16, 2^-11 in fp16), and most pairs not at all. The model has 11 * layers + 1 roundings forward and 11 *
 * layers + 3 backward; layer norm keeps every stage's sizes near 1, so errors add and do not multiply. Relative to
 * the largest element of a gradient, to the norm and (forward only) to the loss, a sound device therefore differs by
 * at most roundings * 2u, plus fp32's own 2 * gamma(rows + stages * ff) of train.h. */
static inline double mixed_bound(const struct mixed_plan *p, bool forward_only) {
    int roundings = 11 * p->shape.layers + 1 + (forward_only ? 0 : 11 * p->shape.layers + 3);
    double u = p->type == GEMM_BF16 ? 0x1p-8 : 0x1p-11;
    int stages = TRAIN_STAGES * p->shape.layers / GPT_LAYERS;
    return roundings * 2 * u + 2 * train_gamma(p->batch * p->shape.ctx * p->micros + stages * p->shape.ff);
}

#endif
