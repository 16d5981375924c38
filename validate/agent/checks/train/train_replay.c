/* SPDX-License-Identifier: Apache-2.0 */
/* One rank repeats the first steps over the whole global batch. Every micro-batch's gradient must have the bits that
 * its rank recorded, the all-reduced sum must lie within the rounding of n fp32 additions of this rank's own sum,
 * and the step taken with it must give the same parameters. 
 * The bound: two sums of the same n numbers in different orders each differ from the exact sum by at
 * most gamma(n-1) * sum|g|, gamma(k) = k*u / (1 - k*u), u = 2^-24 (Higham, Accuracy and Stability,
 * 4.2), so from each other by at most twice that. With one rank the bound is zero. */
#include "base/gp_base.h"

#include "train.h"

#include <math.h>

struct replay_word { /* rank 0 to all */
    double agreement, tokens_per_s;
    int32_t culprit; /* -1 */
    int32_t verdict; /* 0 good, 1 a gradient, 2 the sum, 3 the parameters, 4 the loss, 5 own trouble */
    int32_t step, pad;
};

/* Largest |difference| as a part of the bound; 0 when equal, huge when the bound is 0 and they differ.
 * slack: the addition to every element's bound for a device's own rounding (train.h); 0 on the host. */
static double part_of_bound(const float *a, const float *b, const double *abs_sum, size_t n, int ranks, double slack) {
    double worst = 0, g2 = 2 * train_gamma(ranks - 1);
    for (size_t i = 0; i < n; i++) {
        double diff = fabs((double)a[i] - (double)b[i]), bound = g2 * abs_sum[i] + slack;
        if (diff == 0) continue;
        double part = bound > 0 ? diff / bound : 1e9;
        if (!(part < 1e9)) part = 1e9;
        worst = GP_MAX(worst, part);
    }
    return worst;
}

/* The rank whose gradient at this step has other bits here. If all others differ, it is this rank. */
static int odd_rank(const bool *wrong, int n) {
    int count = 0, last = -1;
    for (int k = 0; k < n; k++) {
        count += wrong[k];
        if (wrong[k]) last = k;
    }
    if (count == 0) return -1;
    return count > 1 && count >= n - 1 ? 0 : last;
}

struct replay_sums {
    float *sum;
    double *abs_sum;
    bool *wrong;
};

static bool replay_step(struct train *t, int step, struct replay_sums *s, struct replay_word *w) {
    struct replay_step *k = &t->replay[step];
    size_t n = t->gpt.n_params;
    struct gp_error err = {0};
    float mean = 0;
    double began = gang_now_s(), spent = 0, slack = 0;
    memset(s->sum, 0, n * sizeof *s->sum);
    memset(s->abs_sum, 0, n * sizeof *s->abs_sum);
    for (int r = 0; r < t->c->size; r++) {
        float loss = 0;
        began = gang_now_s();
        if (!train_gradient(t, r, step, &loss)) return false;
        for (size_t i = 0; i < n; i++) s->sum[i] = s->sum[i] + t->grad[i];
        spent += gang_now_s() - began;
        for (size_t i = 0; i < n; i++) s->abs_sum[i] += fabs((double)t->grad[i]);
        s->wrong[r] = train_exact(t) && gang_hash(t->grad, n * sizeof(float)) != k->own[r];
        slack += train_bound(t) * train_largest(t->grad, n);
        mean = mean + loss;
    }
    double off = fabs((double)(mean / (float)t->c->size) - (double)k->loss);
    w->step = step;
    w->culprit = odd_rank(s->wrong, t->c->size);
    if (w->culprit >= 0) w->verdict = 1;
    w->agreement = GP_MAX(w->agreement, part_of_bound(s->sum, k->sum, s->abs_sum, n, t->c->size, slack));
    if (w->verdict == 0 && w->agreement > 1) w->verdict = 2;
    if (w->verdict == 0 && !(off <= train_bound(t) * fabs((double)k->loss))) w->verdict = 4;
    /* the step uses the gang's own sum, so that the next step starts from the gang's state */
    for (size_t i = 0; i < n; i++) s->sum[i] = k->sum[i] * (1.0f / (float)t->c->size);
    began = gang_now_s();
    if (gpt_put(&t->gpt, t->gpt.grads, s->sum, &err) != 0 || gpt_update(&t->gpt, step, t->steps, &err) != 0)
        return train_failed(t, &err);
    spent += gang_now_s() - began;
    if (gpt_get(&t->gpt, t->gpt.params, t->params, &err) != 0) return train_failed(t, &err);
    if (w->verdict == 0 && gang_hash(t->params, n * sizeof(float)) != k->params) w->verdict = 3;
    w->tokens_per_s += spent; /* seconds until the end */
    return true;
}

static void say_replay(struct train *t, const struct replay_word *w) {
    static const char *const what[] = {"", "has a gradient with other bits than one rank computes", "", "", "", ""};
    if (w->verdict == 0) return;
    if (w->culprit >= 0) agent_culprit(t->r, w->culprit);
    if (w->verdict == 1)
        agent_set(t->r, VERDICT_FAIL, "wrong_gradient", "step %d: rank %d %s", (int)w->step, (int)w->culprit, what[1]);
    else if (w->verdict == 2)
        agent_set(t->r, VERDICT_FAIL, "sum_disagrees",
                  "step %d: the all-reduced gradient differs from one rank's sum by %.3g of the bound", (int)w->step,
                  w->agreement);
    else if (w->verdict == 3)
        agent_set(t->r, VERDICT_FAIL, "parameters_disagree",
                  "step %d: one rank's step gives other parameters than the gang's", (int)w->step);
    else
        agent_set(t->r, VERDICT_FAIL, "loss_disagrees",
                  "step %d: one rank's loss over the global batch differs from the gang's", (int)w->step);
}

bool train_replay(struct train *t) {
    struct replay_word w = {.culprit = -1};
    struct gp_error err = {0};
    size_t n = t->gpt.n_params;
    struct replay_sums s = {.sum = xcalloc(n, sizeof *s.sum),
                            .abs_sum = xcalloc(n, sizeof *s.abs_sum),
                            .wrong = xcalloc((size_t)t->c->size, sizeof *s.wrong)};
    bool going = true;
    if (t->c->rank == 0 && gpt_init(&t->gpt, t->c->seed, &err) != 0) going = train_failed(t, &err);
    for (int step = 0; step < t->replays && going; step++) {
        if (t->c->rank == 0 && w.verdict == 0) going = replay_step(t, step, &s, &w);
        going = going && gang_barrier(t->c, t->r); /* so that no rank is silent for longer than one step */
    }
    if (t->c->rank == 0 && w.tokens_per_s > 0)
        w.tokens_per_s = (double)t->gpt.rows * t->c->size * t->replays / w.tokens_per_s;
    going = going && gang_broadcast(t->c, t->r, &w, sizeof w, 0);
    free(s.sum);
    free(s.abs_sum);
    free(s.wrong);
    if (!going) return false;
    t->agreement = w.agreement;
    t->one_rank_tokens_per_s = w.tokens_per_s;
    say_replay(t, &w);
    return w.verdict == 0;
}
