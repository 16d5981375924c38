/* SPDX-License-Identifier: Apache-2.0 */
/* Two checks of a mixed-precision run: a rank's gradient is within rounding (mixed_bound) of the host reference on
 * the same batch; training continued from a saved state has the same bits. Runs in lock-step on all ranks. One
 * thread. */
#include "base/gp_base.h"

#include "train_mixed.h"

#include <math.h>

/* Largest difference as a part of the bound; huge if a value is not a number. */
static double part(double diff, double bound) {
    double v = fabs(diff) / bound;
    return v < 1e9 ? v : 1e9;
}

static double largest_part(const struct mixed *m, const float *own, const float *ref) {
    size_t n = m->gpt.n_params;
    double bound = mixed_bound(m->plan, false) * train_largest(ref, n), worst = 0, own2 = 0, ref2 = 0;
    for (size_t i = 0; i < n; i++) {
        worst = GP_MAX(worst, part((double)own[i] - (double)ref[i], bound));
        own2 += (double)own[i] * (double)own[i];
        ref2 += (double)ref[i] * (double)ref[i];
    }
    return GP_MAX(worst, part(sqrt(own2) - sqrt(ref2), mixed_bound(m->plan, false) * sqrt(ref2)));
}

bool mixed_reference(struct mixed *m, int of, int step, float *ret_grad, float *ret_loss) {
    struct gp_error err = {0};
    GP_AUTO_FREE float *params = xcalloc(m->gpt.n_params, sizeof *params);
    struct device *host = NULL;
    struct mx_gpt g = {0};
    bool ok = mx_get(&m->gpt, m->gpt.params, params, &err) == 0 && device_host.open(0, &host, &err) == 0 &&
              mx_open(&device_host, host, &m->plan->shape, m->plan->type, m->plan->batch, &g, &err) == 0 &&
              mx_put(&g, g.params, params, &err) == 0 && mx_weights(&g, &err) == 0;
    if (!ok) mixed_failed(m, &err);
    m->keep = true;
    ok = ok && mixed_gradient(m, &g, of, step, ret_loss);
    m->keep = false;
    ok = ok && (mx_get(&g, g.grads, ret_grad, &err) == 0 || mixed_failed(m, &err));
    mx_close(&g);
    if (host != NULL) device_host.close(host);
    return ok;
}

bool mixed_against_reference(struct mixed *m, int step, float loss) {
    struct gp_error err = {0};
    size_t n = m->gpt.n_params;
    float want = 0;
    double own = 0;
    GP_AUTO_FREE float *grad = xcalloc(n, sizeof *grad);
    GP_AUTO_FREE float *ref = xcalloc(n, sizeof *ref);
    GP_AUTO_FREE double *all = xcalloc((size_t)m->c->size, sizeof *all);
    if (mx_get(&m->gpt, m->gpt.grads, grad, &err) != 0) return mixed_failed(m, &err);
    if (!mixed_reference(m, m->c->rank, step, ref, &want)) return false;
    own = largest_part(m, grad, ref);
    own = GP_MAX(own, part((double)loss - (double)want, mixed_bound(m->plan, true) * fabs((double)want)));
    if (!gang_gather(m->c, m->r, &own, all, sizeof own)) return false;
    for (int k = 0; k < m->c->size; k++) {
        m->reference_part = GP_MAX(m->reference_part, all[k]);
        if (!(all[k] <= 1)) agent_culprit(m->r, k);
    }
    m->referenced++;
    if (m->reference_part <= 1) return true;
    agent_set(m->r, VERDICT_FAIL, "beyond_reference",
              "%s, step %d: rank %s is %.3g times as far from the host reference as rounding explains", m->plan->name,
              step, m->r->culprits.s, m->reference_part);
    return false;
}

/* --- save, train, restore, train --- */

struct saved {
    float *p, *m, *v; /* host memory, n_params each */
    float beta1_t, beta2_t;
    struct loss_scale scale;
};

static bool save(struct mixed *m, struct saved *s) {
    struct gp_error err = {0};
    size_t n = m->gpt.n_params;
    float **to[] = {&s->p, &s->m, &s->v};
    for (size_t i = 0; i < GP_ARRAY_LEN(to); i++) *to[i] = xcalloc(n, sizeof(float));
    s->beta1_t = m->gpt.beta1_t;
    s->beta2_t = m->gpt.beta2_t;
    s->scale = m->scale;
    if (mx_get(&m->gpt, m->gpt.params, s->p, &err) != 0 || mx_get(&m->gpt, m->gpt.m, s->m, &err) != 0 ||
        mx_get(&m->gpt, m->gpt.v, s->v, &err) != 0)
        return mixed_failed(m, &err);
    return true;
}

static bool load(struct mixed *m, const struct saved *s) {
    struct gp_error err = {0};
    m->gpt.beta1_t = s->beta1_t;
    m->gpt.beta2_t = s->beta2_t;
    m->scale = s->scale;
    if (mx_put(&m->gpt, m->gpt.params, s->p, &err) != 0 || mx_put(&m->gpt, m->gpt.m, s->m, &err) != 0 ||
        mx_put(&m->gpt, m->gpt.v, s->v, &err) != 0 || mx_weights(&m->gpt, &err) != 0)
        return mixed_failed(m, &err);
    return true;
}

/* A hash of the state that the next step depends on. */
static bool state_hash(struct mixed *m, uint64_t *ret) {
    struct gp_error err = {0};
    const dev_addr flat[] = {m->gpt.params, m->gpt.m, m->gpt.v};
    float rest[] = {m->gpt.beta1_t, m->gpt.beta2_t, m->scale.scale};
    uint64_t h[GP_ARRAY_LEN(flat) + 1] = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(flat); i++)
        if (mx_hash(&m->gpt, flat[i], m->gpt.n_params, &h[i], &err) != 0) return mixed_failed(m, &err);
    h[GP_ARRAY_LEN(flat)] = gang_hash(rest, sizeof rest);
    *ret = gang_hash(h, sizeof h);
    return true;
}

/* Copies the saved state to the device and compares it. False: a verdict was set, or it failed. */
static bool load_and_look(struct mixed *m, const struct saved *s, int step, uint64_t want) {
    uint64_t got = 0;
    int64_t wrong = 0;
    GP_AUTO_FREE int64_t *all = xcalloc((size_t)m->c->size, sizeof *all);
    if (!load(m, s)) return false;
    mixed_fault_restored(m, step);
    if (!state_hash(m, &got)) return false;
    wrong = got != want;
    if (!gang_gather(m->c, m->r, &wrong, all, sizeof wrong)) return false;
    for (int k = 0; k < m->c->size; k++)
        if (all[k]) agent_culprit(m->r, k);
    if (m->r->culprits.len == 0) return true;
    agent_set(m->r, VERDICT_FAIL, "not_repeatable",
              "%s: the state saved after step %d differs after it is restored; to blame: rank %s", m->plan->name, step,
              m->r->culprits.s);
    return false;
}

struct continued { /* one continuation: this rank's gradients, and the parameters after them */
    uint64_t own[MIXED_RESTORED], params[MIXED_RESTORED];
};

static bool go_on(struct mixed *m, int step, struct continued *ret) {
    struct gp_error err = {0};
    int kept = m->n_losses;
    for (int i = 0; i < MIXED_RESTORED; i++) {
        if (!mixed_step(m, step + 1 + i, true, &ret->own[i])) return false;
        if (mx_hash(&m->gpt, m->gpt.params, m->gpt.n_params, &ret->params[i], &err) != 0) return mixed_failed(m, &err);
    }
    m->n_losses = kept; /* these steps are not part of the curve */
    return true;
}

/* Two continuations of the saved state. ret, per rank: 0 the same bits, 1 others, 2 others already in its own gradient
 * of the first step, which depends on no other rank. */
static bool twice(struct mixed *m, int step, const struct saved *s, uint64_t state, int64_t *ret) {
    struct continued first = {0}, again = {0};
    if (!go_on(m, step, &first) || !load_and_look(m, s, step, state) || !go_on(m, step, &again) || !load(m, s))
        return false;
    int64_t differs = 0;
    if (memcmp(&first, &again, sizeof first) != 0) differs = first.own[0] != again.own[0] ? 2 : 1;
    return gang_gather(m->c, m->r, &differs, ret, sizeof differs);
}

static int64_t worst_of(const struct mixed *m, const int64_t *all) {
    int64_t worst = 0;
    for (int k = 0; k < m->c->size; k++) worst = GP_MAX(worst, all[k]);
    return worst;
}

/* Sums of several orders (NVLS, trees) differ from one time to the next on sound GPUs: only a difference that stays
 * with NCCL's plain algorithm counts. */
static bool twice_plainly(struct mixed *m, int step, const struct saved *s, uint64_t state, int64_t *ret) {
    struct gp_error err = {0};
    if (m->c->data_plain == NULL) return true;
    if (m->c->data_plain(m->c, &err) != 0) {
        gang_broken(m->c, m->r, &err, false);
        return false;
    }
    agent_data_bool(m->r, "restored_plainly", true);
    return twice(m, step, s, state, ret);
}

bool mixed_restore(struct mixed *m, int step) {
    struct saved s = {0};
    uint64_t state = 0;
    GP_AUTO_FREE int64_t *all = xcalloc((size_t)m->c->size, sizeof *all);
    bool ok = state_hash(m, &state) && save(m, &s) && twice(m, step, &s, state, all);
    if (ok && worst_of(m, all) == 1) ok = twice_plainly(m, step, &s, state, all);
    free(s.p);
    free(s.m);
    free(s.v);
    if (!ok) return false;
    for (int k = 0; k < m->c->size; k++)
        if (all[k] == 2) agent_culprit(m->r, k);
    if (worst_of(m, all) == 0) return true;
    agent_set(m->r, VERDICT_FAIL, "not_repeatable",
              "%s: training continued from the state saved after step %d does not give the same bits "
              "again%s%s",
              m->plan->name, step, m->r->culprits.len > 0 ? "; to blame: rank " : "",
              m->r->culprits.len > 0 ? m->r->culprits.s : "");
    return false;
}
