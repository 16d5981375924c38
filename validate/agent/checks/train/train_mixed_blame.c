/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the culprit in a mixed-precision run. Devices of the same kind must produce the same bits, so any difference
 * between them is a fault. The wrong one of two is the one that does not reproduce its own bits, else the one that a
 * third rank contradicts, else (with two ranks) the one further from the host reference. Devices of different kinds
 * may round differently: they are compared with the reference only (train_mixed_proof.c). Runs in lock-step, after
 * records that all have received. One thread. */
#include "base/gp_base.h"

#include "train_mixed.h"

#include <math.h>

bool mixed_kinds(struct mixed *m) {
    char text[200] = "";
    uint64_t own = 0;
    m->kinds = xcalloc((size_t)m->c->size, sizeof *m->kinds);
    bool known = m->c->dev_ops == agent_kind.device && agent_kind.device_kind != NULL;
    if (known) agent_kind.device_kind(m->dev, text, sizeof text);
    if (text[0] != '\0') own = gang_hash(text, strlen(text));
    if (m->c->dev_ops == &device_host) own = 1;
    return gang_gather(m->c, m->r, &own, m->kinds, sizeof own);
}

bool mixed_words_good(struct mixed *m, int step) {
    int n = m->c->size, bad = 0;
    bool may_overflow = !loss_scale_spent(&m->scale);
    GP_AUTO_FREE bool *is = xcalloc((size_t)n, sizeof *is);
    for (int k = 0; k < n; k++) {
        const struct mixed_word *w = &m->words[k];
        is[k] = !isfinite(w->loss) || w->norm2 == 0 || (!isfinite(w->norm2) && !may_overflow);
        bad += is[k];
    }
    for (int k = 0; k < n && bad > 0; k++) {
        if (!is[k]) continue;
        if (bad < n || n == 1) agent_culprit(m->r, k); /* all ranks at once: the run diverged, no culprit */
        agent_set(m->r, VERDICT_FAIL, "bad_gradient", "%s, step %d: rank %d computed a gradient %s", m->plan->name,
                  step, k, m->words[k].norm2 == 0 ? "of zero" : "that is not finite");
    }
    return bad == 0;
}

/* --- gradients --- */

static bool disputed(const struct mixed *m, int k) {
    int s = (k + 1) % m->c->size;
    return m->words[k].next_hash != m->words[s].own_hash;
}

static bool comparable(const struct mixed *m, int k) {
    int s = (k + 1) % m->c->size;
    return m->kinds[k] != 0 && m->kinds[k] == m->kinds[s];
}

static bool repeat(struct mixed *m, int of, int step, float *ret_grad, uint64_t *ret) {
    struct gp_error err = {0};
    float loss = 0;
    if (!mixed_gradient(m, &m->gpt, of, step, &loss)) return false;
    if (mx_hash(&m->gpt, m->gpt.grads, m->gpt.n_params, ret, &err) != 0 ||
        (ret_grad != NULL && mx_get(&m->gpt, m->gpt.grads, ret_grad, &err) != 0))
        return mixed_failed(m, &err);
    return true;
}

/* Every rank computes both gradients again: a rank that does not reproduce its own bits is named. */
static bool blame_by_repeating(struct mixed *m, int step, float *own, float *next) {
    int n = m->c->size;
    struct {
        uint64_t own, next;
    } again = {0}, *all = xcalloc((size_t)n, sizeof *all);
    bool ok = repeat(m, (m->c->rank + 1) % n, step, next, &again.next) &&
              repeat(m, m->c->rank, step, own, &again.own) && gang_gather(m->c, m->r, &again, all, sizeof again);
    for (int k = 0; k < n && ok; k++)
        if (all[k].own != m->words[k].own_hash || all[k].next != m->words[k].next_hash) agent_culprit(m->r, k);
    free(all);
    return ok;
}

static bool blame_by_third(struct mixed *m, int k, int step) {
    int n = m->c->size, subject = (k + 1) % n, arbiter = (k + 2) % n;
    uint64_t judge = 0;
    if (m->c->rank == arbiter && !repeat(m, subject, step, NULL, &judge)) return false;
    if (!gang_broadcast(m->c, m->r, &judge, sizeof judge, arbiter)) return false;
    if (m->kinds[arbiter] != m->kinds[k]) return true;
    if (judge == m->words[subject].own_hash) agent_culprit(m->r, k);
    else if (judge == m->words[k].next_hash) agent_culprit(m->r, subject);
    return true;
}

struct far { /* from the reference: sum of squares, and the largest */
    double all, largest;
};

static struct far distance(const float *v, const float *ref, size_t n) {
    struct far f = {0};
    for (size_t i = 0; i < n; i++) {
        double d = (double)v[i] - (double)ref[i], square = d * d < 1e60 ? d * d : 1e60; /* NaN too */
        f.all += square;
        f.largest = GP_MAX(f.largest, square);
    }
    return f;
}

/* With two ranks. Errors common to both cancel in the difference of their distances; the rest must be far above the
 * device's own rounding to count. */
static bool blame_by_reference(struct mixed *m, int k, int step, const float *own, const float *next) {
    int n = m->c->size, subject = (k + 1) % n;
    float loss = 0;
    struct far f = {0};
    GP_AUTO_FREE float *ref = xcalloc(m->gpt.n_params, sizeof *ref);
    GP_AUTO_FREE struct far *all = xcalloc((size_t)n, sizeof *all);
    if (!mixed_reference(m, subject, step, ref, &loss)) return false;
    f = distance(m->c->rank == subject ? own : next, ref, m->gpt.n_params);
    if (!gang_gather(m->c, m->r, &f, all, sizeof f)) return false;
    int further = all[k].all > all[subject].all ? k : subject, nearer = further == k ? subject : k;
    if (!(all[further].all - all[nearer].all <= 16 * all[nearer].largest)) agent_culprit(m->r, further);
    return true;
}

bool mixed_blame_gradient(struct mixed *m, int step) {
    int n = m->c->size, disputes = 0;
    const char *says = "repeated, it has other bits";
    for (int k = 0; k < n; k++) {
        m->roundings += disputed(m, k) && !comparable(m, k);
        disputes += disputed(m, k) && comparable(m, k);
    }
    if (disputes == 0) return true;
    bool own_bits = m->plan->small && n == 2, ok = true;
    GP_AUTO_FREE float *own = xcalloc(own_bits ? m->gpt.n_params : 1, sizeof *own);
    GP_AUTO_FREE float *next = xcalloc(own_bits ? m->gpt.n_params : 1, sizeof *next);
    ok = blame_by_repeating(m, step, own_bits ? own : NULL, own_bits ? next : NULL);
    bool settled = m->r->culprits.len > 0;
    for (int k = 0, done = 0; k < n && ok && !settled && done < 4; k++) {
        if (!disputed(m, k) || !comparable(m, k)) continue;
        done++;
        says = n >= 3 ? "by a third rank" : "by the host reference";
        if (n >= 3) ok = blame_by_third(m, k, step);
        else if (own_bits) ok = blame_by_reference(m, k, step, own, next);
    }
    if (!ok) return false;
    if (m->r->culprits.len > 0)
        agent_set(m->r, VERDICT_FAIL, "wrong_gradient", "%s, step %d: rank %s computes a wrong gradient (%s)",
                  m->plan->name, step, m->r->culprits.s, says);
    else
        agent_set(m->r, VERDICT_FAIL, "wrong_gradient",
                  "%s, step %d: devices of one kind compute different gradients, and it is not known which one is "
                  "wrong",
                  m->plan->name, step);
    return false;
}

/* --- sums and parameters --- */

enum { WINDOW = 65536 /* elements */ };
#define SUBNORMAL 0x1p-126 /* below it a switch that adds may return zero */

/* The first window of the summed gradient that differs between ranks; false: none, or failed. */
static bool differing_window(struct mixed *m, size_t *ret_at, bool *ret_ok) {
    struct gp_error err = {0};
    size_t n = m->gpt.n_params, windows = (n + WINDOW - 1) / WINDOW, size = (size_t)m->c->size;
    GP_AUTO_FREE uint64_t *own = xcalloc(windows, sizeof *own);
    GP_AUTO_FREE uint64_t *all = xcalloc(windows * size, sizeof *all);
    *ret_ok = false;
    for (size_t i = 0; i < windows; i++)
        if (mx_hash(&m->gpt, m->gpt.grads + i * WINDOW * sizeof(float), GP_MIN(WINDOW, n - i * WINDOW), &own[i],
                    &err) != 0)
            return mixed_failed(m, &err);
    if (!gang_gather(m->c, m->r, own, all, windows * sizeof *own)) return false;
    *ret_ok = true;
    for (size_t i = 0; i < windows; i++)
        for (size_t k = 1; k < size; k++)
            if (all[k * windows + i] != all[i]) {
                *ret_at = i * WINDOW;
                return true;
            }
    return false;
}

static bool window(struct mixed *m, size_t at, size_t n, float *to) {
    struct gp_error err = {0};
    struct copy_args a = {
        .kind = COPY_FROM_DEVICE, .dev = m->gpt.grads + at * sizeof(float), .host = to, .bytes = n * sizeof *to};
    return m->gpt.ops->copy(m->dev, &a, &err) == 0 || mixed_failed(m, &err);
}

/* Whether this rank's values are the sum of all ranks' own gradients, within rounding. */
static bool sum_plausible(const float *sum, const float *all, size_t n, int size) {
    double g = train_gamma(size - 1);
    for (size_t i = 0; i < n; i++) {
        double want = 0, abs_sum = 0;
        for (int k = 0; k < size; k++) {
            want += (double)all[(size_t)k * n + i];
            abs_sum += fabs((double)all[(size_t)k * n + i]);
        }
        if (!(fabs((double)sum[i] - want) <= (g + 1e-12) * abs_sum + size * SUBNORMAL)) return false;
    }
    return true;
}

bool mixed_sample_own(struct mixed *m, int step) {
    size_t n = GP_MIN(WINDOW, m->gpt.n_params), places = m->gpt.n_params - n + 1;
    GP_AUTO_FREE float *own = xcalloc(n, sizeof *own);
    if (m->sample == NULL) m->sample = xcalloc(n * (size_t)m->c->size, sizeof(float));
    m->sample_n = n;
    m->sample_at = (size_t)step * 7919 * 512 % places;
    return window(m, m->sample_at, n, own) && gang_gather(m->c, m->r, own, m->sample, n * sizeof *own);
}

bool mixed_sample_sum(struct mixed *m, int step) {
    int64_t good = 0, bad = 0;
    GP_AUTO_FREE float *sum = xcalloc(m->sample_n, sizeof *sum);
    GP_AUTO_FREE int64_t *said = xcalloc((size_t)m->c->size, sizeof *said);
    if (!window(m, m->sample_at, m->sample_n, sum)) return false;
    good = sum_plausible(sum, m->sample, m->sample_n, m->c->size);
    if (!gang_gather(m->c, m->r, &good, said, sizeof good)) return false;
    for (int k = 0; k < m->c->size; k++) bad += said[k] == 0;
    if (bad == 0) return true;
    for (int k = 0; k < m->c->size && bad < m->c->size; k++) /* all of them: the sender is not known */
        if (said[k] == 0) agent_culprit(m->r, k);
    agent_set(m->r, VERDICT_FAIL, "wrong_sum",
              "%s, step %d: the all-reduced gradient is not the sum of the ranks' own gradients; to blame: rank "
              "%s",
              m->plan->name, step, m->r->culprits.len > 0 ? m->r->culprits.s : "unknown");
    if (m->r->culprits.len == 0)
        agent_suggest(m->r, "run nccl.values, which names the GPU or link; without GPUs run net.pair");
    return false;
}

static bool blame_sum(struct mixed *m, int step, size_t at) {
    size_t n = GP_MIN(WINDOW, m->gpt.n_params - at), size = (size_t)m->c->size;
    float loss = 0;
    int64_t good = 0;
    GP_AUTO_FREE float *sum = xcalloc(n, sizeof *sum);
    GP_AUTO_FREE float *own = xcalloc(n, sizeof *own);
    GP_AUTO_FREE float *all = xcalloc(n * size, sizeof *all);
    GP_AUTO_FREE int64_t *said = xcalloc(size, sizeof *said);
    if (!window(m, at, n, sum) || !mixed_gradient(m, &m->gpt, m->c->rank, step, &loss) || !window(m, at, n, own) ||
        !gang_gather(m->c, m->r, own, all, n * sizeof *own))
        return false;
    good = sum_plausible(sum, all, n, m->c->size);
    if (!gang_gather(m->c, m->r, &good, said, sizeof good)) return false;
    for (int k = 0; k < m->c->size; k++)
        if (!said[k]) agent_culprit(m->r, k);
    agent_set(m->r, VERDICT_FAIL, "wrong_sum",
              "%s, step %d: the ranks hold different sums of the same gradients; to blame: rank %s", m->plan->name,
              step, m->r->culprits.len > 0 ? m->r->culprits.s : "unknown");
    return false;
}

/* If more than half have the same parameters, the others are to blame. */
static void blame_minority(struct mixed *m) {
    int n = m->c->size;
    for (int i = 0; i < n; i++) {
        int same = 0;
        for (int k = 0; k < n; k++) same += m->hashes[k] == m->hashes[i];
        if (2 * same <= n) continue;
        for (int k = 0; k < n; k++)
            if (m->hashes[k] != m->hashes[i]) agent_culprit(m->r, k);
        return;
    }
}

/* Equal sums gave different parameters: the update has one order only, so the host's bits decide. */
static bool blame_update(struct mixed *m, int step) {
    struct gp_error err = {0};
    struct device *host = NULL;
    struct mx_gpt g = {0};
    size_t n = m->gpt.n_params;
    uint64_t want = 0;
    GP_AUTO_FREE float *sum = xcalloc(n, sizeof *sum);
    bool ok = m->plan->small && mx_get(&m->gpt, m->gpt.grads, sum, &err) == 0 &&
              device_host.open(0, &host, &err) == 0 &&
              mx_open(&device_host, host, &m->plan->shape, m->plan->type, 1, &g, &err) == 0 &&
              mx_put(&g, g.params, m->old_p, &err) == 0 && mx_put(&g, g.m, m->old_m, &err) == 0 &&
              mx_put(&g, g.v, m->old_v, &err) == 0 && mx_put(&g, g.grads, sum, &err) == 0;
    g.beta1_t = m->old_beta1_t;
    g.beta2_t = m->old_beta2_t;
    float by = 1.0f / (m->old_scale * (float)m->c->size);
    ok = ok && mx_update(&g, mixed_rate(m, step), by, &err) == 0 && mx_hash(&g, g.params, n, &want, &err) == 0;
    mx_close(&g);
    if (host != NULL) device_host.close(host);
    if (!ok && m->plan->small) return mixed_failed(m, &err);
    /* if the ranks started from different states, none has the right one */
    GP_AUTO_FREE uint64_t *wants = xcalloc((size_t)m->c->size, sizeof *wants);
    if (!gang_gather(m->c, m->r, &want, wants, sizeof want)) return false;
    for (int k = 1; k < m->c->size; k++) ok = ok && wants[k] == wants[0];
    for (int k = 0; k < m->c->size && ok; k++)
        if (m->hashes[k] != want) agent_culprit(m->r, k);
    if (!m->plan->small) blame_minority(m); /* too large to be repeated on the host */
    agent_set(m->r, VERDICT_FAIL, "parameters_differ",
              "%s, step %d: parameters differ between ranks; to blame: rank %s", m->plan->name, step,
              m->r->culprits.len > 0 ? m->r->culprits.s : "unknown");
    return false;
}

bool mixed_blame_params(struct mixed *m, int step) { return blame_update(m, step); }

/* Repeats the sum over a new communicator with the simplest algorithm, because a fault of one algorithm of NCCL
 * blames no rank. False: a verdict was set, or it failed. */
static bool again_plainly(struct mixed *m, int step, bool *ret_differ) {
    struct gp_error err = {0};
    size_t at = 0;
    float loss = 0;
    bool ok = false;
    if (m->c->data_plain == NULL) return true;
    if (m->c->data_plain(m->c, &err) != 0) {
        gang_broken(m->c, m->r, &err, false);
        return false;
    }
    if (!mixed_gradient(m, &m->gpt, m->c->rank, step, &loss) || !mixed_reduce(m)) return false;
    *ret_differ = differing_window(m, &at, &ok);
    if (ok && !*ret_differ)
        agent_set(m->r, VERDICT_FAIL, "wrong_sum",
                  "%s, step %d: the ranks hold different sums of the same gradients, and equal ones with "
                  "NCCL_ALGO=Ring NCCL_PROTO=Simple",
                  m->plan->name, step);
    return ok && *ret_differ;
}

bool mixed_sums_equal(struct mixed *m, int step) {
    struct gp_error err = {0};
    uint64_t own = 0;
    size_t at = 0;
    bool ok = false, differ = false;
    if (mx_hash(&m->gpt, m->gpt.grads, m->gpt.n_params, &own, &err) != 0) return mixed_failed(m, &err);
    if (!gang_gather(m->c, m->r, &own, m->hashes, sizeof own)) return false;
    for (int k = 1; k < m->c->size; k++) differ = differ || m->hashes[k] != m->hashes[0];
    if (!differ) return true;
    if (!again_plainly(m, step, &differ)) return false;
    differ = differing_window(m, &at, &ok);
    return ok && differ ? blame_sum(m, step, at) : ok;
}
