/* SPDX-License-Identifier: Apache-2.0 */
/* What train.ddp runs beside its fp32 model: the small model in bf16 and fp16, held to the reference and
 * to its own saved state, and on a GPU a model of a size that means something, timed. All ranks take
 * the same decisions. One thread. */
#include "base/gp_base.h"

#include "train_mixed.h"

#include "base/stats.h"

#include <math.h>

static const struct mx_shape small_shape = {GPT_VOCAB, GPT_DIM, GPT_CTX, GPT_HEADS, GPT_LAYERS, GPT_FF};

/* Largest first; the first whose memory every rank's GPU has is taken. */
static const struct {
    struct mx_shape shape;
    int batch;
} sizes[] = {
    {{GPT_VOCAB, 2048, 1024, 16, 8, 8192}, 16}, /* 405 million parameters, 24 GiB */
    {{GPT_VOCAB, 1024, 1024, 8, 12, 4096}, 8},  /* 152 million, 8 GiB */
    {{GPT_VOCAB, 512, 512, 8, 8, 2048}, 8},     /* 26 million, 1 GiB */
};
enum { SMALL_STEPS = 24, TIMED_STEPS = 4000, TIMED_S = 8, BUCKET = 6553600 /* 25 MiB */ };

/* --- what the devices can --- */

/* Every rank's answer to a yes-or-no question; false: failed. */
static bool all_say(struct check_ctx *c, struct agent_result *r, bool own, bool *ret) {
    int64_t yes = own;
    GP_AUTO_FREE int64_t *all = xcalloc((size_t)c->size, sizeof *all);
    if (!gang_gather(c, r, &yes, all, sizeof yes)) return false;
    *ret = true;
    for (int k = 0; k < c->size; k++) *ret = *ret && all[k] != 0;
    return true;
}

/* Does every rank's device multiply this type? Only a refusal counts, not a failure. */
static bool type_works(struct train *t, enum gemm_type type, bool *ret) {
    struct check_ctx *c = t->c;
    struct gp_error err = {0};
    dev_addr p = 0;
    int rc = c->dev_ops->alloc(t->dev, 4096, &p, &err);
    struct gemm_args a = {.type = type, .m = 8, .n = 8, .k = 8, .batch = 1, .a = p, .b = p + 1024, .c = p + 2048};
    if (rc == 0) rc = c->dev_ops->gemm(t->dev, &a, &err);
    c->dev_ops->free(t->dev, p);
    if (rc != 0 && rc != -GP_EENV) return train_failed(t, &err);
    return all_say(c, t->r, rc == 0, ret);
}

static bool fits(struct train *t, size_t i, bool *ret) {
    dev_addr p = 0;
    size_t bytes = mx_bytes(&sizes[i].shape, sizes[i].batch);
    struct gp_error err = {0};
    bool own = t->c->dev_ops->alloc(t->dev, bytes + bytes / 6, &p, &err) == 0;
    t->c->dev_ops->free(t->dev, p);
    return all_say(t->c, t->r, own, ret);
}

/* --- what is said --- */

static void say_losses(const struct mixed *m, struct str *s) {
    int stride = GP_MAX(1, (m->n_losses + 39) / 40);
    str_add(s, "\"losses\":[");
    for (int i = 0; i < m->n_losses; i += stride) {
        if (i > 0) str_addc(s, ',');
        agent_json_num(s, m->losses[i]);
    }
    str_addf(s, "],\"losses_stride\":%d", stride * m->plan->check_every);
}

static void say_num(struct str *s, const char *key, double v) {
    str_addf(s, ",\"%s\":", key);
    agent_json_num(s, v);
}

/* data.bf16, data.fp16, data.timed */
static void say_run(struct mixed *m, const char *key) {
    const struct mixed_plan *p = m->plan;
    struct str *s = &m->r->data;
    double step = stats_median(m->step_s, (size_t)m->n_step);
    str_addf(s, "%s\"%s\":{", s->len > 0 ? "," : "", key);
    say_losses(m, s);
    str_addf(s, ",\"type\":\"%s\",\"parameters\":%zu,\"width\":%d,\"layers\":%d,\"context\":%d", p->name,
             m->gpt.n_params, p->shape.dim, p->shape.layers, p->shape.ctx);
    str_addf(s, ",\"heads\":%d,\"inner\":%d,\"vocabulary\":%d,\"batch\":%d", p->shape.heads, p->shape.ff,
             p->shape.vocab, p->batch);
    str_addf(s, ",\"micro_batches\":%d,\"tokens_per_rank_and_step\":%d,\"buckets\":%d", p->micros,
             m->gpt.rows * p->micros, m->n_buckets);
    str_addf(s, ",\"skipped_steps\":%d", m->scale.skipped);
    if (m->roundings > 0) str_addf(s, ",\"differences_of_rounding\":%d", m->roundings);
    say_num(s, "loss_scale", (double)m->scale.scale);
    say_num(s, "gradient_norm", m->norm);
    if (p->reference_steps > 0) say_num(s, "reference", m->reference_part);
    say_num(s, "step_ms", step * 1000);
    say_num(s, "gradient_ms", stats_median(m->compute_s, (size_t)m->n_compute) * 1000);
    say_num(s, "comm_ms", stats_median(m->comm_s, (size_t)m->n_compute) * 1000);
    str_addc(s, '}');
}

/* Each rank's own gradient, in tokens/s, and the slowest. */
static double say_ranks(struct mixed *m, double tokens_per_rank) {
    int n = m->c->size, slowest = 0;
    GP_AUTO_FREE double *medians = xcalloc((size_t)n, sizeof *medians);
    GP_AUTO_FREE double *one = xcalloc((size_t)GP_MAX(m->n_compute, 1), sizeof *one);
    GP_AUTO_FREE double *rates = xcalloc((size_t)n, sizeof *rates);
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < m->n_compute; i++) one[i] = m->rank_s[i * n + k];
        medians[k] = stats_median(one, (size_t)m->n_compute);
        rates[k] = medians[k] > 0 ? tokens_per_rank / medians[k] : 0;
        if (medians[k] > medians[slowest]) slowest = k;
    }
    agent_data_nums(m->r, "tokens_per_s_per_rank", rates, (size_t)GP_MIN(n, 256));
    agent_data_int(m->r, "slowest_rank", slowest);
    double most = medians[slowest], middle = stats_quantile(medians, (size_t)n, 0.5); /* as in fp32 */
    return middle > 0 ? most / middle : 1;
}

static void say_spread(struct mixed *m) {
    static const double parts[] = {0, 0.1, 0.5, 0.9, 1};
    double at[GP_ARRAY_LEN(parts)];
    for (size_t i = 0; i < GP_ARRAY_LEN(parts); i++)
        at[i] = stats_quantile(m->step_s, (size_t)m->n_step, parts[i]) * 1000;
    agent_data_nums(m->r, "step_ms_0_10_50_90_100", at, GP_ARRAY_LEN(at));
}

static void find_model(struct check_ctx *c) {
    struct gpu_identity id = {0};
    if (c->model != NULL || c->gpu < 0 || agent_kind.identify == NULL) return;
    agent_kind.identify(c->gpu, &id);
    c->model = gpu_model_find(id.device, id.subsystem);
}

static void say_speed(struct mixed *m) {
    const struct mixed_plan *p = m->plan;
    struct check_ctx *c = m->c;
    find_model(c);
    double own = (double)m->gpt.rows * p->micros, step = stats_median(m->step_s, (size_t)m->n_step);
    double alone = stats_median(m->compute_s, (size_t)m->n_compute) + m->update_s;
    double comm = stats_median(m->comm_s, (size_t)m->n_compute), shown = GP_MAX(step - alone, 0);
    double rate = step > 0 ? own * c->size / step : 0;
    double peak =
        c->model != NULL ? gpu_model_spec(c->model, p->type == GEMM_BF16 ? "bf16_tflops" : "fp16_tflops") : -1;
    agent_metric(m->r, "tokens_per_s", rate);
    agent_metric(m->r, "efficiency", step > 0 ? GP_MIN(alone / step, 1) : 0);
    agent_metric(m->r, "comm_share", step > 0 ? shown / step : 0);
    agent_metric(m->r, "straggler", say_ranks(m, own));
    if (c->size > 1 && comm > 0) agent_metric(m->r, "overlap", GP_MAX(0, GP_MIN(1, (comm - shown) / comm)));
    if (peak > 0) agent_metric(m->r, "mfu", rate / c->size * mx_flop_per_token(&p->shape) / (peak * 1e12));
    say_spread(m);
}

/* --- the runs --- */

static bool one_run(struct train *t, const struct mixed_plan *plan, const char *key, bool timed) {
    struct mixed m;
    bool ok = mixed_open(&m, t->c, t->r, t->dev, plan) && mixed_run(&m);
    if (ok) say_run(&m, key);
    if (ok && timed) say_speed(&m);
    t->reference_part = GP_MAX(t->reference_part, m.reference_part);
    t->referenced += m.referenced;
    mixed_close(&m);
    return ok;
}

/* The small model; the caller changes what its run has otherwise. */
static struct mixed_plan small_plan(const struct train *t, enum gemm_type type) {
    return (struct mixed_plan){.name = type == GEMM_BF16 ? "bf16" : "fp16",
                               .type = type,
                               .shape = small_shape,
                               .batch = MICRO_MIN / 2,
                               .micros = 2,
                               .steps = GP_MIN(SMALL_STEPS, t->steps),
                               .check_every = 4,
                               .restore_at = GP_MIN(SMALL_STEPS, t->steps) / 2,
                               .bucket = 8192,
                               .small = true};
}

static bool small_run(struct train *t, enum gemm_type type) {
    struct mixed_plan p = small_plan(t, type);
    p.reference_steps = t->c->dev_ops == &device_host ? 0 : 2;
    return one_run(t, &p, p.name, false);
}

/* seconds: how long the large model trains */
static bool timed_run(struct train *t, enum gemm_type type, double seconds) {
    struct mixed_plan p = small_plan(t, type);
    p.check_every = 8;
    p.restore_at = -1;
    p.bucket = BUCKET;
    bool fit = false;
    for (size_t i = 0; i < GP_ARRAY_LEN(sizes) && !fit; i++) {
        if (!fits(t, i, &fit)) return false;
        if (!fit) continue;
        p.shape = sizes[i].shape;
        p.batch = sizes[i].batch;
        p.steps = TIMED_STEPS;
        p.seconds = seconds;
        p.check_every = 16;
        p.small = false;
    }
    return one_run(t, &p, "timed", true);
}

bool train_stages(struct train *t) {
    static const enum gemm_type types[] = {GEMM_BF16, GEMM_F16};
    unsigned wanted = t->c->precisions;
    bool host = t->c->dev_ops == &device_host || !train_exact(t);
    int timed = -1;
    if (wanted == 0 && !host) wanted = 1u << GEMM_BF16 | 1u << GEMM_F16;
    for (size_t i = 0; i < GP_ARRAY_LEN(types); i++) {
        bool works = false;
        if ((wanted & 1u << types[i]) == 0) continue;
        if (!type_works(t, types[i], &works)) return false;
        if (!works) {
            agent_data_str(t->r, types[i] == GEMM_BF16 ? "no_bf16" : "no_fp16",
                           "a rank's device does not multiply this type");
            continue;
        }
        if (!small_run(t, types[i])) return false;
        if (timed < 0) timed = (int)types[i];
    }
    if (t->referenced > 0) agent_metric(t->r, "reference", t->reference_part);
    if ((wanted & ~(1u << GEMM_F32)) != 0 && timed < 0) {
        agent_set(t->r, VERDICT_ERROR, "no_precision", "neither bf16 nor fp16 products on every rank's device");
        return false;
    }
    t->timed = !host && timed >= 0;
    return !t->timed ||
           timed_run(t, (enum gemm_type)timed, t->c->timed_ms > 0 ? (double)t->c->timed_ms / 1000 : TIMED_S);
}

void train_speed(struct check_ctx *c, struct agent_result *r, enum gemm_type type, double seconds) {
    struct train t = {.c = c, .r = r, .dev = c->dev, .steps = TIMED_STEPS};
    bool works = false;
    gang_say_device(r, c->dev_ops);
    if (!type_works(&t, type, &works)) return;
    if (works && timed_run(&t, type, seconds))
        agent_say(r, "%s on %s", type == GEMM_BF16 ? "bf16" : "fp16", gang_device_text(c->dev_ops));
    if (!works)
        agent_set(r, VERDICT_ERROR, "no_precision", "this device does not multiply %s matrices",
                  type == GEMM_BF16 ? "bf16" : "fp16");
}
