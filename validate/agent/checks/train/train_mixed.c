/* SPDX-License-Identifier: Apache-2.0 */
/* One mixed-precision run over all ranks: gradients of several micro-batches added up, summed over the ranks bucket
 * by bucket while the backward pass still runs, one fused update. Every few steps gradients are compared before they
 * are summed, and parameters after the update, by hashes made on the device. One thread. */
#include "base/gp_base.h"

#include "train_mixed.h"

#include "base/clock.h"

#include <math.h>
#include <unistd.h>

#define LR_WARMUP 8
#define FLUSH_MS 60000
#define STEPS_LEAST 11      /* when the time ends a run: slow GPUs take a second for each */
#define SKIPS_SUSPICIOUS 12 /* a loss scale 4096 times smaller, still not finite */

bool mixed_failed(struct mixed *m, const struct gp_error *err) {
    gang_broken(m->c, m->r, err, true);
    return false;
}

float mixed_rate(const struct mixed *m, int step) {
    /* narrow models learn fast; a wide one needs not converge, its parameters only have to change */
    float top = m->plan->small ? 1e-2f : 3e-4f;
    return step < LR_WARMUP ? top * (float)(step + 1) / (float)LR_WARMUP : top;
}

/* --- gradients --- */

#ifdef GPUPROV_FAULTS
static void poke(struct mx_gpt *g, dev_addr at, size_t element, uint32_t with, uint32_t without) {
    struct gp_error err = {0};
    uint32_t v = 0;
    struct copy_args a = {.kind = COPY_FROM_DEVICE, .dev = at + element * 4, .host = &v, .bytes = 4};
    if (g->ops->copy(g->dev, &a, &err) != 0) return;
    v = (v & ~without) ^ with;
    a.kind = COPY_TO_DEVICE;
    g->ops->copy(g->dev, &a, &err);
}

static void mixed_faults(struct mixed *m, int step) {
    int rank = m->c->rank;
    if (agent_fault("mx-die", rank, step)) _exit(9);
    while (agent_fault("mx-hang", rank, step)) pause();
    if (agent_fault("mx-slow", rank, step)) usleep(60000);
    if (agent_fault("mx-flip", rank, step)) poke(&m->gpt, m->gpt.grads, 100, 1u << 13, 0);
    if (agent_fault("mx-sign", rank, step)) poke(&m->gpt, m->gpt.grads, 100, 1u << 31, 0);
    if (agent_fault("mx-nan", rank, step)) poke(&m->gpt, m->gpt.grads, 7, 0x7fc00000u, ~0u);
    static bool once;
    if (agent_fault("mx-once", rank, step) && step % m->plan->check_every == 0 && !once) {
        once = true;
        poke(&m->gpt, m->gpt.grads, 100, 1u << 13, 0);
    }
}

void mixed_fault_restored(struct mixed *m, int step) {
    if (agent_fault("mx-restore", m->c->rank, step)) poke(&m->gpt, m->gpt.m, 9, 1u << 3, 0);
}
#else
void mixed_fault_restored(struct mixed *m, int step) { (void)m, (void)step; }
static void mixed_faults(struct mixed *m, int step) { (void)m, (void)step; }
#endif

struct done_ctx {
    struct mixed *m;
    int step;
};

static int reduce_bucket(struct mixed *m, const struct bucket *b, struct gp_error *err) {
    struct all_reduce_args a = {.buf = m->gpt.grads + b->at * sizeof(float), .count = b->n};
    return m->c->data_ops->all_reduce(m->c->data, &a, err);
}

/* In the backward pass of the last micro-batch: sums the complete buckets over the ranks. */
static int segment_done(void *ctx, int segment, struct gp_error *err) {
    struct done_ctx *d = ctx;
    struct mixed *m = d->m;
    int r = 0;
    if (segment == m->gpt.n_segments - 1) mixed_faults(m, d->step);
    while (m->reducing && r == 0 && m->next_bucket < m->n_buckets && m->buckets[m->next_bucket].after <= segment)
        r = reduce_bucket(m, &m->buckets[m->next_bucket++], err);
    return r;
}

static void fill_batch(struct mixed *m, int of, int step, int micro) {
    const struct mixed_plan *p = m->plan;
    for (int b = 0; b < p->batch; b++)
        markov_sequence(&m->source, m->c->seed, step, ((int64_t)of * p->micros + micro) * p->batch + b, p->shape.ctx,
                        m->in + b * p->shape.ctx, m->next + b * p->shape.ctx);
}

bool mixed_gradient(struct mixed *m, struct mx_gpt *g, int of, int step, float *ret_loss) {
    struct gp_error err = {0};
    struct done_ctx d = {m, step};
    float mean = 0.0f;
    m->next_bucket = 0;
    for (int k = 0; k < m->plan->micros; k++) {
        float loss = 0.0f;
        bool last = k == m->plan->micros - 1;
        fill_batch(m, of, step, k);
        struct mx_gradient_args a = {.in = m->in,
                                     .next = m->next,
                                     .add = k > 0,
                                     .ctx = &d,
                                     .weight = m->scale.scale / (float)m->plan->micros,
                                     .done = last && !m->keep ? segment_done : NULL};
        if (mx_gradient(g, &a, &loss, &err) != 0) {
            /* a failed sum over the ranks is not this rank's own failure */
            gang_broken(m->c, m->r, &err, !(m->reducing && (err.code == GP_ELOST || comm_culprit(&err) >= 0)));
            return false;
        }
        mean = mean + loss;
    }
    *ret_loss = mean / (float)m->plan->micros;
    return true;
}

static bool flush(struct mixed *m) {
    struct gp_error err = {0};
    int64_t until = GP_MIN(clock_deadline(FLUSH_MS), m->c->deadline_ms);
    if (m->c->data_ops->flush(m->c->data, until, &err) == 0) return true;
    gang_broken(m->c, m->r, &err, false);
    return false;
}

bool mixed_reduce(struct mixed *m) {
    struct gp_error err = {0};
    for (int i = 0; i < m->n_buckets; i++)
        if (reduce_bucket(m, &m->buckets[i], &err) != 0) {
            gang_broken(m->c, m->r, &err, false);
            return false;
        }
    return flush(m);
}

/* --- one step --- */

/* The neighbour's gradient first, so that this rank's own stays in the buffer that is summed. */
static bool own_words(struct mixed *m, int step, struct mixed_word *w, uint64_t *own_hash) {
    struct gp_error err = {0};
    size_t n = m->gpt.n_params;
    float loss = 0;
    bool neighbours = step % m->plan->check_every == 0;
    if (neighbours && (!mixed_gradient(m, &m->gpt, (m->c->rank + 1) % m->c->size, step, &loss))) return false;
    if (neighbours && mx_hash(&m->gpt, m->gpt.grads, n, &w->next_hash, &err) != 0) return mixed_failed(m, &err);
    double began = gang_now_s();
    if (!mixed_gradient(m, &m->gpt, m->c->rank, step, &w->loss)) return false;
    w->compute_s = gang_now_s() - began;
    if (mx_hash(&m->gpt, m->gpt.grads, n, &w->own_hash, &err) != 0 ||
        mx_square_sum(&m->gpt, m->gpt.grads, n, &w->norm2, &err) != 0)
        return mixed_failed(m, &err);
    if (own_hash != NULL) *own_hash = w->own_hash;
    return true;
}

static bool checked_gradient(struct mixed *m, int step, uint64_t *own_hash) {
    struct mixed_word w = {0};
    int n = m->c->size;
    m->reducing = false;
    if (!own_words(m, step, &w, own_hash)) return false;
    if (!gang_gather(m->c, m->r, &w, m->words, sizeof w)) return false;
    if (!mixed_words_good(m, step)) return false;
    if (step % m->plan->check_every == 0 && !mixed_blame_gradient(m, step)) return false;
    float mean = 0.0f;
    for (int k = 0; k < n; k++) {
        mean = mean + m->words[k].loss;
        m->rank_s[m->n_compute * n + k] = m->words[k].compute_s;
    }
    m->losses[m->n_losses++] = (double)(mean / (float)n);
    bool finite = true; /* on every rank: all must decide alike */
    for (int k = 0; k < n; k++) finite = finite && isfinite(m->words[k].norm2);
    if (finite && m->referenced < m->plan->reference_steps && !mixed_against_reference(m, step, w.loss)) return false;
    if (!mixed_sample_own(m, step)) return false;
    double began = gang_now_s();
    if (!mixed_reduce(m)) return false;
    m->comm_s[m->n_compute] = gang_now_s() - began;
#ifdef GPUPROV_FAULTS
    if (agent_fault("mx-wire", m->c->rank, step)) poke(&m->gpt, m->gpt.grads, 100, 1u << 22, 0);
#endif
    if (finite && !mixed_sample_sum(m, step)) return false;
    m->compute_s[m->n_compute++] = w.compute_s;
    return true;
}

static bool overlapped_gradient(struct mixed *m, int step) {
    float loss = 0;
    m->reducing = true;
    bool ok = mixed_gradient(m, &m->gpt, m->c->rank, step, &loss);
    m->reducing = false;
    return ok && flush(m);
}

/* The sum is not finite. If the loss scale cannot be halved, or after many skipped steps in a row, the loss scale is
 * not the cause: each rank computes its own gradient again, unscaled, and records the result. */
static bool not_finite(struct mixed *m, int step) {
    struct mixed_word w = {0};
    bool spent = loss_scale_spent(&m->scale);
    float scale = m->scale.scale;
    if (!spent && m->scale.streak < SKIPS_SUSPICIOUS) return true;
    m->scale.scale = 1.0f;
    bool ok =
        own_words(m, step, &w, NULL) && gang_gather(m->c, m->r, &w, m->words, sizeof w) && mixed_words_good(m, step);
    m->scale.scale = scale;
    if (!ok) return false;
    if (!spent) return true;
    agent_set(m->r, VERDICT_FAIL, "wrong_sum",
              "%s, step %d: the all-reduced gradient is not finite, but every rank's own is", m->plan->name, step);
    return false;
}

static bool keep_state(struct mixed *m) {
    struct gp_error err = {0};
    if (!m->plan->small) return true;
    m->old_beta1_t = m->gpt.beta1_t;
    m->old_beta2_t = m->gpt.beta2_t;
    if (mx_get(&m->gpt, m->gpt.params, m->old_p, &err) != 0 || mx_get(&m->gpt, m->gpt.m, m->old_m, &err) != 0 ||
        mx_get(&m->gpt, m->gpt.v, m->old_v, &err) != 0)
        return mixed_failed(m, &err);
    return true;
}

static bool params_equal(struct mixed *m, int step) {
    struct gp_error err = {0};
    uint64_t own = 0;
    if (mx_hash(&m->gpt, m->gpt.params, m->gpt.n_params, &own, &err) != 0) return mixed_failed(m, &err);
    if (!gang_gather(m->c, m->r, &own, m->hashes, sizeof own)) return false;
    for (int k = 1; k < m->c->size; k++)
        if (m->hashes[k] != m->hashes[0]) return mixed_blame_params(m, step);
    return true;
}

static bool update(struct mixed *m, int step) {
    struct gp_error err = {0};
    double norm2 = 0;
    if (mx_square_sum(&m->gpt, m->gpt.grads, m->gpt.n_params, &norm2, &err) != 0) return mixed_failed(m, &err);
    bool finite = isfinite(norm2);
    if (!finite && !not_finite(m, step)) return false;
    float by = 1.0f / (m->scale.scale * (float)m->c->size);
    if (finite) m->norm = sqrt(norm2) * (double)by;
    m->old_scale = m->scale.scale;
    if (!loss_scale_step(&m->scale, finite)) return true;
    if (!keep_state(m)) return false;
    if (mx_update(&m->gpt, mixed_rate(m, step), by, &err) != 0) return mixed_failed(m, &err);
#ifdef GPUPROV_FAULTS
    if (agent_fault("mx-param", m->c->rank, step)) poke(&m->gpt, m->gpt.params, 5, 1u << 20, 0);
#endif
    return true;
}

bool mixed_step(struct mixed *m, int step, bool checked, uint64_t *own_hash) {
    double began = gang_now_s();
    if (!(checked ? checked_gradient(m, step, own_hash) : overlapped_gradient(m, step))) return false;
    double update_began = gang_now_s();
#ifdef GPUPROV_FAULTS
    if (agent_fault("mx-sum", m->c->rank, step)) poke(&m->gpt, m->gpt.grads, 100, 1u << 22, 0);
#endif
    bool compared = checked || m->plan->small;
    if (compared && !mixed_sums_equal(m, step)) return false;
    if (!update(m, step)) return false;
    struct gp_error err = {0};
    if (m->gpt.ops->sync(m->dev, clock_deadline(FLUSH_MS), &err) != 0) return mixed_failed(m, &err);
    m->update_s = gang_now_s() - update_began;
    if (!checked) m->step_s[m->n_step++] = gang_now_s() - began;
    return compared ? params_equal(m, step) : true;
}

/* --- the run --- */

bool mixed_open(struct mixed *m, struct check_ctx *c, struct agent_result *r, struct device *dev,
                const struct mixed_plan *plan) {
    struct gp_error err = {0};
    size_t size = (size_t)c->size, steps = (size_t)plan->steps + 2 * MIXED_RESTORED;
    size_t tokens = (size_t)plan->batch * (size_t)plan->shape.ctx;
    *m = (struct mixed){.c = c, .r = r, .plan = plan, .dev = dev};
    markov_init(&m->source, c->seed);
    loss_scale_init(&m->scale, plan->type == GEMM_F16, 2 * plan->check_every);
    m->in = xcalloc(tokens, sizeof *m->in);
    m->next = xcalloc(tokens, sizeof *m->next);
    m->words = xcalloc(size, sizeof *m->words);
    m->hashes = xcalloc(size, sizeof *m->hashes);
    double **each[] = {&m->losses, &m->step_s, &m->compute_s, &m->comm_s};
    for (size_t i = 0; i < GP_ARRAY_LEN(each); i++) *each[i] = xcalloc(steps, sizeof(double));
    m->rank_s = xcalloc(steps * size, sizeof *m->rank_s);
    if (mx_open(c->dev_ops, dev, &plan->shape, plan->type, plan->batch, &m->gpt, &err) != 0 ||
        mx_init(&m->gpt, c->seed, &err) != 0)
        return mixed_failed(m, &err);
    m->buckets = xcalloc((size_t)m->gpt.n_segments, sizeof *m->buckets);
    m->n_buckets = bucket_plan(m->gpt.segments, m->gpt.n_segments, plan->bucket, m->buckets);
    float **old[] = {&m->old_p, &m->old_m, &m->old_v};
    for (size_t i = 0; plan->small && i < GP_ARRAY_LEN(old); i++) *old[i] = xcalloc(m->gpt.n_params, sizeof(float));
    return true;
}

void mixed_close(struct mixed *m) {
    mx_close(&m->gpt);
    void *all[] = {m->in,     m->next,    m->words, m->hashes, m->losses, m->step_s, m->compute_s, m->comm_s,
                   m->rank_s, m->buckets, m->old_p, m->old_m,  m->old_v,  m->kinds,  m->sample};
    for (size_t i = 0; i < GP_ARRAY_LEN(all); i++) free(all[i]);
}

/* Rank 0's clock decides for all. */
static bool time_is_up(struct mixed *m, double began, bool *ret) {
    int64_t up = gang_now_s() - began > m->plan->seconds;
    if (!gang_broadcast(m->c, m->r, &up, sizeof up, 0)) return false;
    *ret = up;
    return true;
}

static bool learned(struct mixed *m) {
    int last = m->n_losses - 1;
    if (m->scale.skipped >= m->plan->steps) {
        agent_set(m->r, VERDICT_FAIL, "loss_scale", "%s: every step overflowed, even at loss scale %g", m->plan->name,
                  (double)m->scale.scale);
        return false;
    }
    if (last > 0 && m->losses[last] < m->losses[0]) return true;
    agent_set(m->r, VERDICT_FAIL, "not_learning", "%s: the loss went from %.4f to %.4f", m->plan->name, m->losses[0],
              m->losses[GP_MAX(last, 0)]);
    return false;
}

bool mixed_run(struct mixed *m) {
    const struct mixed_plan *p = m->plan;
    double began = gang_now_s();
    if (!mixed_kinds(m) || !params_equal(m, 0)) return false;
    bool up = false; /* then one more step, with checks */
    for (int step = 0; step < p->steps; step++) {
        bool last = up || step == p->steps - 1, checked = last || step % p->check_every == 0;
        if (clock_left_ms(m->c->deadline_ms) == 0) {
            agent_set(m->r, VERDICT_FAIL, "too_slow", "%s: only %d of %d steps were done before the deadline", p->name,
                      step, p->steps);
            return false;
        }
        if (!mixed_step(m, step, checked, NULL)) return false;
        if (step == p->restore_at && !mixed_restore(m, step)) return false;
        if (last) break;
        bool look = p->seconds > 0 && step >= STEPS_LEAST && step % 4 == 3;
        if (look && !time_is_up(m, began, &up)) return false;
    }
    return learned(m);
}
