/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the rank that computes wrong. With three ranks a third one decides; with two (or one) the host reference, a
 * plain scalar computation on every rank, decides. On a device other than the host the reference always decides, by
 * the bound of train.h: no rank is blamed for a difference of rounding. Runs in lock-step on all ranks, after
 * records that all have received. One thread. */
#include "base/gp_base.h"

#include "train.h"

#include <math.h>

bool train_exact(const struct train *t) { return t->c->dev_ops == &device_host || t->c->dev_ops == agent_kind.device; }

double train_bound(const struct train *t) {
    return train_exact(t) ? 0 : 2 * train_gamma(t->gpt.rows + TRAIN_STAGES * GPT_FF);
}

double train_largest(const float *p, size_t n) {
    double largest = 0;
    for (size_t i = 0; i < n; i++) largest = GP_MAX(largest, fabs((double)p[i]));
    return largest;
}

/* --- the host reference: one thread, plain C, with the device's parameters only --- */

struct reference {
    struct device *dev;
    struct gpt gpt;
};

static bool reference_open(struct train *t, struct reference *f, const float *params) {
    struct gp_error err = {0};
    if (device_host.open(0, &f->dev, &err) != 0 || gpt_open(&device_host, f->dev, t->micro, &f->gpt, &err) != 0 ||
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
    if (gpt_gradient(&f->gpt, t->in, t->next, &loss, &err) != 0 || gpt_get(&f->gpt, f->gpt.grads, ret, &err) != 0)
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

/* Largest error of v as a part of the device's bound; huge if a value is not a number. */
static double part_of_device_bound(const struct train *t, const float *v, const float *ref) {
    double bound = train_bound(t) * train_largest(ref, t->gpt.n_params), worst = 0;
    for (size_t i = 0; i < t->gpt.n_params; i++) {
        double part = fabs((double)v[i] - (double)ref[i]) / bound;
        worst = part <= worst ? worst : part < 1e9 ? part : 1e9;
    }
    return worst;
}

struct reference_word { /* this rank's distance from the reference, in bounds */
    double own, next;   /* its own gradient (when it is the subject), its neighbour's */
};

/* One dispute between k and its neighbour. False: the check returns. */
static bool blame_beyond_rounding(struct train *t, int k, int step) {
    int subject = (k + 1) % t->c->size;
    struct reference f = {0};
    struct gp_error err = {0};
    struct reference_word w = {0};
    GP_AUTO_FREE float *ref = xcalloc(t->gpt.n_params, sizeof *ref);
    GP_AUTO_FREE struct reference_word *all = xcalloc((size_t)t->c->size, sizeof *all);
    bool ok = gpt_get(&t->gpt, t->gpt.params, t->params, &err) == 0 || train_failed(t, &err);
    ok = ok && reference_open(t, &f, t->params) && reference_gradient(t, &f, subject, step, ref);
    reference_close(&f);
    if (ok && t->c->rank == k) w.next = part_of_device_bound(t, t->peer, ref);
    if (ok && t->c->rank == subject) w.own = part_of_device_bound(t, t->grad, ref);
    if (!ok || !gang_gather(t->c, t->r, &w, all, sizeof w)) return false;
    if (all[k].next > 1) agent_culprit(t->r, k);
    if (all[subject].own > 1) agent_culprit(t->r, subject);
    return true;
}

static bool blame_by_bound(struct train *t, int step) {
    int n = t->c->size, disputes = 0;
    for (int k = 0; k < n && disputes < 4; k++) {
        if (t->words[k].next_hash == t->words[(k + 1) % n].own_hash) continue;
        disputes++;
        if (!blame_beyond_rounding(t, k, step)) return false;
    }
    t->roundings += disputes;
    if (t->r->culprits.len == 0) return true;
    agent_set(t->r, VERDICT_FAIL, "wrong_gradient",
              "step %d: rank %s computes a wrong gradient (further from the host reference than rounding explains)",
              step, t->r->culprits.s);
    return false;
}

bool train_blame_gradient(struct train *t, int step) {
    if (!train_exact(t)) return blame_by_bound(t, step);
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
        agent_set(t->r, VERDICT_FAIL, "wrong_gradient", "step %d: rank %s computes a wrong gradient (by %s)", step,
                  t->r->culprits.s, n >= 3 ? "a third rank" : "the host reference");
    else
        agent_set(t->r, VERDICT_FAIL, "wrong_gradient",
                  "step %d: two ranks compute different gradients, and no third computation decides between "
                  "them",
                  step);
    return false;
}

/* --- parameters --- */

/* Whether this rank's sum is within rounding of the reference's sum over all micro-batches. */
static bool sum_plausible(struct train *t, int step, bool *ret) {
    struct reference f = {0};
    size_t n = t->gpt.n_params;
    GP_AUTO_FREE float *g = xcalloc(n, sizeof *g);
    GP_AUTO_FREE double *sum = xcalloc(n, sizeof *sum);
    GP_AUTO_FREE double *abs_sum = xcalloc(n, sizeof *abs_sum);
    double slack = 0;
    bool ok = reference_open(t, &f, t->old_p);
    for (int k = 0; k < t->c->size && ok; k++) {
        ok = reference_gradient(t, &f, k, step, g);
        slack += train_bound(t) * train_largest(g, n);
        for (size_t i = 0; i < n; i++) {
            sum[i] += (double)g[i];
            abs_sum[i] += fabs((double)g[i]);
        }
    }
    reference_close(&f);
    double u = (double)t->c->size * 0x1p-24;
    *ret = true;
    for (size_t i = 0; i < n && ok; i++)
        if (!(fabs(sum[i] - (double)t->sum[i]) <= 2 * u * abs_sum[i] + slack)) *ret = false;
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
    agent_set(t->r, VERDICT_FAIL, "wrong_sum",
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
    if (ok && (gpt_put(&f.gpt, f.gpt.m, t->old_m, &err) != 0 || gpt_put(&f.gpt, f.gpt.v, t->old_v, &err) != 0 ||
               gpt_put(&f.gpt, f.gpt.grads, t->sum, &err) != 0 || gpt_update(&f.gpt, step, t->steps, &err) != 0 ||
               gpt_get(&f.gpt, f.gpt.params, t->params, &err) != 0))
        ok = train_failed(t, &err);
    reference_close(&f);
    uint64_t own = gang_hash(t->params, t->gpt.n_params * sizeof(float));
    if (!ok || !gang_gather(t->c, t->r, &own, t->hashes, sizeof own)) return false;
    /* another device may round differently: no culprit when no rank has the reference's bits */
    bool agree = train_exact(t);
    for (int k = 0; k < n; k++) agree = agree || held[k] == t->hashes[0];
    for (int k = 1; k < n; k++) agree = agree && t->hashes[k] == t->hashes[0];
    for (int k = 0; k < n && agree; k++)
        if (held[k] != t->hashes[0]) agent_culprit(t->r, k);
    agent_set(t->r, VERDICT_FAIL, "parameters_differ", "step %d: parameters differ between ranks; to blame: rank %s",
              step, t->r->culprits.len > 0 ? t->r->culprits.s : "unknown");
    return false;
}
