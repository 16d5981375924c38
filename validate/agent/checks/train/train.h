/* SPDX-License-Identifier: Apache-2.0 */
/* train.ddp's parts: the run (train.c), the search for the culprit (train_blame.c), one rank's replay
 * (train_replay.c). All ranks call all functions in lock-step. */
#ifndef GP_AGENT_TRAIN_H
#define GP_AGENT_TRAIN_H

#include "train_model.h"
#include "validate/agent/gang/gang.h"

#define REPLAY_MAX 8
#define MICRO_MIN 8 /* sequences per rank and step, at least */

/* Comparison of gradients. The fp32 model is computed in one stated order, on the host and by the CUDA kernels
 * alike, so there a gradient must have the reference's bits. Any other device may sum a product in another order: a
 * difference of rounding is no fault, and no rank may be blamed for it. There, each element must lie within     2 *
 * gamma(rows + TRAIN_STAGES * GPT_FF) * max|reference|,   gamma(k) = k*u / (1 - k*u), u = 2^-24 of the host
 * reference. The reason: a sum of k products has a relative error of at most gamma(k) in any order (Higham, Accuracy
 * and Stability, 3.1); the forward and backward pass have fewer than TRAIN_STAGES sums, each over at most GPT_FF
 * terms, and at the end one over all rows; layer norm keeps every stage's sizes near 1, so errors add and do not
 * multiply; twice, because the reference rounds too. The bound is relative to the largest element, because small
 * ones are differences of large ones. With 256 rows it is 8.2e-4: a wrong lane or a lost block of a sum is far above
 * it. Parameters, and the sum that all ranks receive, have the same bits on all ranks on every device: the update
 * has one order only. */
#define TRAIN_STAGES 52
static inline double train_gamma(int k) {
    double u = 0x1p-24 * (double)k;
    return u / (1 - u);
}

struct step_word {                /* every rank's record before each all-reduce */
    uint64_t own_hash, next_hash; /* of its gradient; of its neighbour's, every 4th step */
    float loss;
    int32_t tokens;
    double norm2;            /* sum of squares of its gradient; NaN shows here */
    double total, abs_total; /* sum of its gradient's elements, and of their sizes */
    double compute_s;        /* its own gradient only */
};
struct replay_step { /* the first steps, kept for one rank's replay */
    float *sum;      /* the all-reduced gradient */
    uint64_t params; /* hash after the update */
    float loss;
    uint64_t *own; /* every rank's gradient hash */
};
struct train {
    struct check_ctx *c;
    struct agent_result *r;
    int micro, steps, replays;
    struct gpt gpt;
    struct device *dev;
    struct markov source;
    int32_t *in, *next;
    float *grad, *sum, *params, *old_p, *old_m, *old_v; /* host copies, n_params each */
    float *peer;   /* the neighbour's gradient, computed by this rank; NULL where bits are compared */
    int roundings; /* comparisons whose bits differed within the bound above */
    float old_beta1_t, old_beta2_t;
    struct step_word *words; /* of all ranks */
    uint64_t *hashes;        /* of all ranks */
    double *compute;         /* [size][steps] */
    double *losses;
    struct replay_step replay[REPLAY_MAX];
    double train_s, comm_s;
    /* results of the replay, the same on all ranks */
    double one_rank_tokens_per_s, agreement;
    /* of the runs in bf16 and fp16 */
    double reference_part; /* largest difference from the host reference, as a part of its bound */
    int referenced;
    bool timed; /* the speed figures are from these runs */
};

/* Gradient of rank `of`'s micro-batch at `step` into g->grads and t->grad. False: the check returns. */
bool train_gradient(struct train *t, int of, int step, float *ret_loss);
bool train_failed(struct train *t, const struct gp_error *err); /* this rank's own failure; false */
void train_batch(struct train *t, int of, int step);

/* train_exact: whether this run's device must have the reference's bits. train_bound: else the largest error of a
 * gradient's element, as a part of the reference's largest element. */
bool train_exact(const struct train *t);
double train_bound(const struct train *t);
double train_largest(const float *p, size_t n); /* max|p| */

/* Finds the rank that computes wrong, after a difference of every 4th step's hashes. True: training continues,
 * because only rounding differs. */
bool train_blame_gradient(struct train *t, int step);
/* Finds the rank with wrong parameters, after a difference between ranks. */
bool train_blame_params(struct train *t, int step, uint64_t sum_hash);

/* bf16 and fp16, after the fp32 model passed (train_stages.c). False: the check returns. */
bool train_stages(struct train *t);
/* Only the timed run, for comparison with other programs; figures and data as in train.ddp. */
void train_speed(struct check_ctx *c, struct agent_result *r, enum gemm_type type, double seconds);

/* Rank 0 alone repeats the first steps over the whole global batch; the others wait. */
bool train_replay(struct train *t);

#endif
