/* SPDX-License-Identifier: Apache-2.0 */
/* train.ddp's parts: the run (train.c), who is to blame (train_blame.c), one rank's replay
 * (train_replay.c). All ranks call all of it in lock-step. */
#ifndef GP_AGENT_TRAIN_H
#define GP_AGENT_TRAIN_H

#include "gang.h"
#include "train_model.h"

#define REPLAY_MAX 8

struct step_word { /* what every rank says before each all-reduce */
    uint64_t own_hash, next_hash; /* of its gradient; of its neighbour's, every 4th step */
    float loss;
    int32_t tokens;
    double norm2;     /* sum of squares of its gradient; NaN shows here */
    double total, abs_total; /* sum of its gradient's elements, and of their sizes */
    double compute_s; /* its own gradient only */
};
struct replay_step { /* kept of the first steps, for one rank's replay */
    float *sum;      /* the all-reduced gradient */
    uint64_t params; /* hash after the update */
    float loss;
    uint64_t *own;   /* every rank's gradient hash */
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
    float old_beta1_t, old_beta2_t;
    struct step_word *words; /* of all ranks */
    uint64_t *hashes;        /* of all ranks */
    double *compute;         /* [size][steps] */
    double *losses;
    struct replay_step replay[REPLAY_MAX];
    double train_s, comm_s;
    /* results of the replay, the same on all ranks */
    double one_rank_tokens_per_s, agreement;
};

/* Gradient of rank `of`'s micro-batch at `step` into g->grads and t->grad. False: the check returns. */
bool train_gradient(struct train *t, int of, int step, float *ret_loss);
bool train_failed(struct train *t, const struct gp_error *err); /* this rank's own trouble; false */
void train_batch(struct train *t, int of, int step);

/* Every 4th step's hashes disagree somewhere: finds the rank that computes wrong. */
bool train_blame_gradient(struct train *t, int step);
/* Parameters differ between ranks after `step`: finds the rank that holds wrong ones. */
bool train_blame_params(struct train *t, int step, uint64_t sum_hash);

/* Rank 0 alone repeats the first steps over the whole global batch; the others wait. */
bool train_replay(struct train *t);

#endif
