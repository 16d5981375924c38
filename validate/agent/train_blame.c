/* SPDX-License-Identifier: Apache-2.0 */
/* Who computes wrong. With three ranks a third one decides; with two (or one) the host reference, a
 * plain scalar computation on every rank, decides. Runs in lock-step on all ranks, after records that
 * all of them have seen. */
#include "base/gp_base.h"

#include "train.h"

#include <math.h>

/* --- the host reference: one thread, plain C, nothing of this run's device but the parameters --- */

struct reference {
    struct device *dev;
    struct gpt gpt;
};

static bool reference_open(struct train *t, struct reference *f, const float *params) {
    struct gp_error err = {0};
    if (device_host.open(0, &f->dev, &err) != 0 ||
        gpt_open(&device_host, f->dev, t->micro, &f->gpt, &err) != 0 ||
        gpt_put(&f->gpt, f->gpt.params, params, &err) != 0)
        return train_failed(t, &err);
    return true;
}

static void reference_close(struct reference *f) {
    gpt_close(&f->gpt);
    if (f->dev != NULL) device_host.close(f->dev);
}

static bool reference_gradient(struct train *t, struct reference *f, int of, int step, float *ret) {
    struct gp_error err = {0};
    float loss = 0;
    train_batch(t, of, step);
    if (gpt_gradient(&f->gpt, t->in, t->next, &loss, &err) != 0 ||
        gpt_get(&f->gpt, f->gpt.grads, ret, &err) != 0)
        return train_failed(t, &err);
    return true;
}

/* --- gradients --- */

/* All ranks compute rank `subject`'s gradient by the reference; true with *ret when they agree. */
static bool reference_hash(struct train *t, int subject, int step, uint64_t *ret, bool *ret_agree) {
    struct reference f = {0};
    struct gp_error err = {0};
    size_t n = t->gpt.n_params;
    GP_AUTO_FREE float *g = xcalloc(n, sizeof *g);
    bool ok = gpt_get(&t->gpt, t->gpt.params, t->params, &err) == 0 || train_failed(t, &err);
    ok = ok && reference_open(t, &f, t->params) && reference_gradient(t, &f, subject, step, g);
    reference_close(&f);
    if (!ok) return false;
    uint64_t own = gang_hash(g, n * sizeof *g);
    if (!gang_gather(t->c, t->r, &own, t->hashes, sizeof own)) return false;
    *ret_agree = true;
    for (int k = 1; k < t->c->size; k++) *ret_agree = *ret_agree && t->hashes[k] == t->hashes[0];
    *ret = t->hashes[0];
    return true;
}

/* The third rank computes it once more on its own device. */
static bool third_hash(struct train *t, int arbiter, int subject, int step, uint64_t *ret) {
    uint64_t h = 0;
    float loss = 0;
    if (t->c->rank == arbiter) {
        if (!train_gradient(t, subject, step, &loss)) return false;
        h = gang_hash(t->grad, t->gpt.n_params * sizeof(float));
    }
    if (!gang_broadcast(t->c, t->r, &h, sizeof h, arbiter)) return false;
    *ret = h;
    return true;
}

bool train_blame_gradient(struct train *t, int step) {
    int n = t->c->size, decided = 0, disputes = 0;
    for (int k = 0; k < n && disputes < 4; k++) {
        int subject = (k + 1) % n;
        uint64_t mine = t->words[k].next_hash, its = t->words[subject].own_hash, judge = 0;
        bool agree = true;
        if (mine == its) continue;
        disputes++;
        if (n >= 3 ? !third_hash(t, (k + 2) % n, subject, step, &judge)
                   : !reference_hash(t, subject, step, &judge, &agree))
            return false;
        if (!agree || (judge != mine && judge != its)) continue;
        agent_culprit(t->r, judge == its ? k : subject);
        decided++;
    }
    if (decided > 0)
        agent_set(t->r, AGENT_FAIL, "wrong_gradient",
                  "step %d: rank %s computes a wrong gradient (%s says so)", step, t->r->culprits.s,
                  n >= 3 ? "a third rank" : "the host reference");
    else
        agent_set(t->r, AGENT_FAIL, "wrong_gradient",
                  "step %d: ranks disagree about a gradient, and no third opinion settled which is wrong",
                  step);
    return false;
}

/* --- parameters --- */

/* Is this rank's sum within rounding of the sum that the reference makes of all micro-batches? */
static bool sum_plausible(struct train *t, int step, bool *ret) {
    struct reference f = {0};
    size_t n = t->gpt.n_params;
    GP_AUTO_FREE float *g = xcalloc(n, sizeof *g);
    GP_AUTO_FREE double *sum = xcalloc(n, sizeof *sum);
    GP_AUTO_FREE double *abs_sum = xcalloc(n, sizeof *abs_sum);
    bool ok = reference_open(t, &f, t->old_p);
    for (int k = 0; k < t->c->size && ok; k++) {
        ok = reference_gradient(t, &f, k, step, g);
        for (size_t i = 0; i < n; i++) {
            sum[i] += (double)g[i];
            abs_sum[i] += fabs((double)g[i]);
        }
    }
    reference_close(&f);
    double u = (double)t->c->size * 0x1p-24;
    *ret = true;
    for (size_t i = 0; i < n && ok; i++)
        if (!(fabs(sum[i] - (double)t->sum[i]) <= 2 * u * abs_sum[i])) *ret = false;
    return ok;
}

static bool blame_sum(struct train *t, int step) {
    int64_t good = 0;
    bool plausible = false;
    GP_AUTO_FREE int64_t *all = xcalloc((size_t)t->c->size, sizeof *all);
    if (!sum_plausible(t, step, &plausible)) return false;
    good = plausible;
    if (!gang_gather(t->c, t->r, &good, all, sizeof good)) return false;
    for (int k = 0; k < t->c->size; k++)
        if (!all[k]) agent_culprit(t->r, k);
    agent_set(t->r, AGENT_FAIL, "wrong_sum",
              "step %d: the ranks hold different sums of the same gradients; to blame: rank %s", step,
              t->r->culprits.len > 0 ? t->r->culprits.s : "unknown");
    return false;
}

bool train_blame_params(struct train *t, int step, uint64_t sum_hash) {
    int n = t->c->size;
    struct gp_error err = {0};
    GP_AUTO_FREE uint64_t *held = xcalloc((size_t)n, sizeof *held);
    memcpy(held, t->hashes, (size_t)n * sizeof *held);
    if (!gang_gather(t->c, t->r, &sum_hash, t->hashes, sizeof sum_hash)) return false;
    for (int k = 1; k < n; k++)
        if (t->hashes[k] != t->hashes[0]) return blame_sum(t, step);
    /* same sums: every rank takes the step again from the state before it, by the reference */
    struct reference f = {0};
    bool ok = reference_open(t, &f, t->old_p);
    for (size_t i = 0; i < t->gpt.n_params; i++) t->sum[i] = t->sum[i] * (1.0f / (float)n);
    f.gpt.beta1_t = t->old_beta1_t;
    f.gpt.beta2_t = t->old_beta2_t;
    if (ok && (gpt_put(&f.gpt, f.gpt.m, t->old_m, &err) != 0 ||
               gpt_put(&f.gpt, f.gpt.v, t->old_v, &err) != 0 ||
               gpt_put(&f.gpt, f.gpt.grads, t->sum, &err) != 0 ||
               gpt_update(&f.gpt, step, t->steps, &err) != 0 ||
               gpt_get(&f.gpt, f.gpt.params, t->params, &err) != 0))
        ok = train_failed(t, &err);
    reference_close(&f);
    uint64_t own = gang_hash(t->params, t->gpt.n_params * sizeof(float));
    if (!ok || !gang_gather(t->c, t->r, &own, t->hashes, sizeof own)) return false;
    bool agree = true;
    for (int k = 1; k < n; k++) agree = agree && t->hashes[k] == t->hashes[0];
    for (int k = 0; k < n && agree; k++)
        if (held[k] != t->hashes[0]) agent_culprit(t->r, k);
    agent_set(t->r, AGENT_FAIL, "parameters_differ",
              "step %d: parameters differ between ranks; to blame: rank %s", step,
              t->r->culprits.len > 0 ? t->r->culprits.s : "unknown");
    return false;
}
