/* SPDX-License-Identifier: Apache-2.0 */
/* train.ddp: trains the small GPT data-parallel and checks every step. All ranks make the same calls in the same
 * order and receive the same records, so they reach the same verdict at the same step without a vote. One thread. */
#include "base/gp_base.h"

#include "train.h"

#include "base/clock.h"
#include "base/stats.h"

#include <math.h>
#include <unistd.h>

#define LOSS_TARGET 1.55
#define LOSS_WINDOW 10 /* steps averaged */
#define CHECK_EVERY 4  /* steps between comparisons with the neighbour */
#define GLOBAL_BATCH 32

bool train_failed(struct train *t, const struct gp_error *err) {
    gang_broken(t->c, t->r, err, true);
    return false;
}

void train_batch(struct train *t, int of, int step) {
    for (int b = 0; b < t->micro; b++)
        markov_sequence(&t->source, t->c->seed, step, (int64_t)of * t->micro + b, GPT_CTX, t->in + b * GPT_CTX,
                        t->next + b * GPT_CTX);
}

#ifdef GPUPROV_FAULTS
static void train_faults(struct train *t, int step) {
    int rank = t->c->rank;
    uint32_t bits = 0;
    if (agent_fault("die", rank, step)) _exit(9);
    while (agent_fault("hang", rank, step)) pause();
    if (agent_fault("slow", rank, step)) usleep(40000);
    if (agent_fault("nan", rank, step)) t->grad[7] = NAN;
    /* on a device other than the host: rounding differs, and the fault */
    float scale = agent_fault("other-ulp", rank, step) ? 1.0f + 0x1p-22f : 1.0f;
    for (size_t i = 0; scale != 1.0f && i < t->gpt.n_params; i++) t->grad[i] *= scale;
    if (agent_fault("other-far", rank, step)) t->grad[100] += 0.002f * (float)train_largest(t->grad, t->gpt.n_params);
    if (agent_fault("zero", rank, step)) memset(t->grad, 0, t->gpt.n_params * sizeof *t->grad);
    if (!agent_fault("flip", rank, step)) return;
    memcpy(&bits, &t->grad[100], sizeof bits);
    bits ^= 1u << 13;
    memcpy(&t->grad[100], &bits, sizeof bits);
}
#endif

bool train_gradient(struct train *t, int of, int step, float *ret_loss) {
    struct gp_error err = {0};
    train_batch(t, of, step);
    if (gpt_gradient(&t->gpt, t->in, t->next, ret_loss, &err) != 0 ||
        gpt_get(&t->gpt, t->gpt.grads, t->grad, &err) != 0)
        return train_failed(t, &err);
#ifdef GPUPROV_FAULTS
    train_faults(t, step);
    if (gpt_put(&t->gpt, t->gpt.grads, t->grad, &err) != 0) return train_failed(t, &err);
#endif
    return true;
}

/* Positions of the micro-batch in t->in and t->next that hold a symbol and its successor. */
static int count_tokens(const struct train *t) {
    int n = 0;
    for (int i = 0; i < t->gpt.rows; i++) {
        if (t->in[i] < 0 || t->in[i] >= GPT_VOCAB) continue;
        const unsigned char *after = t->source.next[t->in[i]];
        for (size_t k = 0; k < sizeof t->source.next[0]; k++)
            if (after[k] == t->next[i]) {
                n++;
                break;
            }
    }
    return n;
}

static void measure_gradient(const float *p, size_t n, struct step_word *w) {
    for (size_t i = 0; i < n; i++) {
        w->norm2 += (double)p[i] * (double)p[i];
        w->total += (double)p[i];
        w->abs_total += fabs((double)p[i]);
    }
}

/* --- the checks of one step --- */

static bool words_good(struct train *t, int step) {
    int n = t->c->size, bad = 0;
    for (int k = 0; k < n; k++) {
        const struct step_word *w = &t->words[k];
        bad += !(isfinite(w->norm2) && w->norm2 > 0 && isfinite(w->loss) && w->tokens == t->gpt.rows);
    }
    for (int k = 0; k < n && bad > 0; k++) {
        const struct step_word *w = &t->words[k];
        const char *what = w->tokens <= 0                              ? "received no tokens"
                           : w->tokens != t->gpt.rows                  ? "received tokens that are not from the source"
                           : !isfinite(w->norm2) || !isfinite(w->loss) ? "computed a gradient that is not finite"
                           : !(w->norm2 > 0)                           ? "computed a gradient of zero"
                                                                       : NULL;
        if (what == NULL) continue;
        if (bad < n || n == 1) agent_culprit(t->r, k); /* all ranks at once: the run diverged, no culprit */
        agent_set(t->r, VERDICT_FAIL, "bad_gradient", "step %d: rank %d %s", step, k, what);
    }
    return bad == 0;
}

/* The sum over all elements must equal the sum of the ranks' own sums, within the rounding of n-1 fp32 additions per
 * element. This finds a wrong value that all ranks share. */
static bool totals_agree(struct train *t, int step) {
    double want = 0, slack = 0, got = 0;
    for (int k = 0; k < t->c->size; k++) {
        want += t->words[k].total;
        slack += t->words[k].abs_total;
    }
    for (size_t i = 0; i < t->gpt.n_params; i++) got += (double)t->sum[i];
    double u = 0x1p-24 * (double)(t->c->size - 1), bound = (u / (1 - u) + 1e-12) * slack;
    if (fabs(got - want) <= bound) return true;
    agent_set(t->r, VERDICT_FAIL, "wrong_sum",
              "step %d: the all-reduced gradient sums to %.9g, the ranks' own "
              "gradients to %.9g",
              step, got, want);
    return false;
}

static bool hashes_equal(const struct train *t) {
    for (int k = 1; k < t->c->size; k++)
        if (t->hashes[k] != t->hashes[0]) return false;
    return true;
}

static bool compare_neighbours(struct train *t, int step) {
    int n = t->c->size;
    for (int k = 0; k < n; k++)
        if (t->words[k].next_hash != t->words[(k + 1) % n].own_hash) return train_blame_gradient(t, step);
    return true;
}

static bool save_state(struct train *t) {
    struct gp_error err = {0};
    t->old_beta1_t = t->gpt.beta1_t;
    t->old_beta2_t = t->gpt.beta2_t;
    if (gpt_get(&t->gpt, t->gpt.params, t->old_p, &err) != 0 || gpt_get(&t->gpt, t->gpt.m, t->old_m, &err) != 0 ||
        gpt_get(&t->gpt, t->gpt.v, t->old_v, &err) != 0)
        return train_failed(t, &err);
    return true;
}

/* Sums the gradients, takes the step, and compares all ranks' parameters. */
static bool reduce_and_update(struct train *t, int step) {
    struct check_ctx *c = t->c;
    struct gp_error err = {0};
    double began = gang_now_s();
    struct all_reduce_args a = {.buf = t->gpt.grads, .count = t->gpt.n_params};
    if (agent_fault("sum", c->rank, step)) { /* the sent value differs from the computed one */
        t->grad[3] += t->grad[3] > 0 ? 0.5f : -0.5f;
        if (gpt_put(&t->gpt, t->gpt.grads, t->grad, &err) != 0) return train_failed(t, &err);
    }
    if (agent_fault("pair", c->rank, step)) { /* two errors that no total shows */
        t->grad[3] += 0.25f;
        t->grad[4] -= 0.25f;
        if (gpt_put(&t->gpt, t->gpt.grads, t->grad, &err) != 0) return train_failed(t, &err);
    }
    if (c->data_ops->all_reduce(c->data, &a, &err) != 0 || c->data_ops->flush(c->data, c->deadline_ms, &err) != 0) {
        gang_broken(c, t->r, &err, false);
        return false;
    }
    t->comm_s += gang_now_s() - began;
    if (!save_state(t)) return false;
    if (gpt_get(&t->gpt, t->gpt.grads, t->sum, &err) != 0) return train_failed(t, &err);
    uint64_t sum_hash = gang_hash(t->sum, t->gpt.n_params * sizeof(float));
    union kernel_arg args[] = {{.p = t->gpt.grads}, {.f = 1.0f / (float)c->size}};
    struct launch_args scale = {.kernel = "scale", .items = (int64_t)t->gpt.n_params, .args = args, .n_args = 2};
    if (c->dev_ops->launch(t->dev, &scale, &err) != 0 || gpt_update(&t->gpt, step, t->steps, &err) != 0 ||
        gpt_get(&t->gpt, t->gpt.params, t->params, &err) != 0)
        return train_failed(t, &err);
    if (agent_fault("param", c->rank, step)) {
        t->params[5] += 1.0f;
        if (gpt_put(&t->gpt, t->gpt.params, t->params, &err) != 0) return train_failed(t, &err);
    }
    uint64_t own = gang_hash(t->params, t->gpt.n_params * sizeof(float));
    began = gang_now_s();
    if (!gang_gather(c, t->r, &own, t->hashes, sizeof own)) return false;
    t->comm_s += gang_now_s() - began;
    if (!hashes_equal(t)) return train_blame_params(t, step, sum_hash);
    return totals_agree(t, step);
}

static void keep_for_replay(struct train *t, int step, float loss) {
    struct replay_step *k = &t->replay[step];
    k->params = t->hashes[0];
    k->loss = loss;
    for (int r = 0; r < t->c->size; r++) k->own[r] = t->words[r].own_hash;
    memcpy(k->sum, t->sum, t->gpt.n_params * sizeof *k->sum);
}

static bool one_step(struct train *t, int step) {
    struct check_ctx *c = t->c;
    struct step_word w = {0};
    size_t bytes = t->gpt.n_params * sizeof(float);
    float loss = 0, mean = 0;
    double aside = 0, began = gang_now_s();
    if (step % CHECK_EVERY == 0) {
        if (!train_gradient(t, (c->rank + 1) % c->size, step, &loss)) return false;
        w.next_hash = gang_hash(t->grad, bytes);
        if (t->peer != NULL) memcpy(t->peer, t->grad, bytes);
        aside = gang_now_s() - began; /* time of checks, not of training */
    }
    double own_began = gang_now_s();
    if (!train_gradient(t, c->rank, step, &w.loss)) return false;
    w.compute_s = gang_now_s() - own_began;
    if (agent_fault("tokens", c->rank, step)) memset(t->in, 0xff, (size_t)t->gpt.rows * sizeof *t->in);
    w.tokens = count_tokens(t);
    w.own_hash = gang_hash(t->grad, bytes);
    measure_gradient(t->grad, t->gpt.n_params, &w);
    double wait = gang_now_s();
    if (!gang_gather(c, t->r, &w, t->words, sizeof w)) return false;
    t->comm_s += gang_now_s() - wait;
    if (!words_good(t, step)) return false;
    if (step % CHECK_EVERY == 0 && !compare_neighbours(t, step)) return false;
    for (int k = 0; k < c->size; k++) {
        mean = mean + t->words[k].loss;
        t->compute[(size_t)k * (size_t)t->steps + (size_t)step] = t->words[k].compute_s;
    }
    mean = mean / (float)c->size;
    t->losses[step] = (double)mean;
    if (!reduce_and_update(t, step)) return false;
    t->train_s += gang_now_s() - began - aside;
    if (step < t->replays) keep_for_replay(t, step, mean);
    return true;
}

/* --- the run --- */

static bool train_open(struct train *t) {
    struct check_ctx *c = t->c;
    struct gp_error err = {0};
    size_t n = 0, size = (size_t)c->size;
    t->micro = GP_MAX(MICRO_MIN, (GLOBAL_BATCH + c->size - 1) / c->size);
    t->steps = c->steps;
    t->replays = GP_MIN(GP_MAX(2, GP_MIN(REPLAY_MAX, 32 / c->size)), t->steps);
    t->dev = c->dev; /* a rank's own GPU is open already */
    if ((t->dev == NULL && c->dev_ops->open(0, &t->dev, &err) != 0) ||
        gpt_open(c->dev_ops, t->dev, t->micro, &t->gpt, &err) != 0 || gpt_init(&t->gpt, c->seed, &err) != 0)
        return train_failed(t, &err);
    n = t->gpt.n_params;
    t->in = xcalloc((size_t)t->gpt.rows, sizeof *t->in);
    t->next = xcalloc((size_t)t->gpt.rows, sizeof *t->next);
    float **flat[] = {&t->grad, &t->sum, &t->params, &t->old_p, &t->old_m, &t->old_v};
    for (size_t i = 0; i < GP_ARRAY_LEN(flat); i++) *flat[i] = xcalloc(n, sizeof(float));
    if (!train_exact(t)) t->peer = xcalloc(n, sizeof *t->peer);
    t->words = xcalloc(size, sizeof *t->words);
    t->hashes = xcalloc(size, sizeof *t->hashes);
    t->compute = xcalloc(size * (size_t)t->steps, sizeof *t->compute);
    t->losses = xcalloc((size_t)t->steps, sizeof *t->losses);
    for (int i = 0; i < t->replays; i++) {
        t->replay[i].sum = xcalloc(n, sizeof(float));
        t->replay[i].own = xcalloc(size, sizeof(uint64_t));
    }
    markov_init(&t->source, c->seed);
    return true;
}

static void train_close(struct train *t) {
    gpt_close(&t->gpt);
    if (t->dev != NULL && t->dev != t->c->dev) t->c->dev_ops->close(t->dev);
    float *flat[] = {t->grad, t->sum, t->params, t->old_p, t->old_m, t->old_v, t->peer};
    for (size_t i = 0; i < GP_ARRAY_LEN(flat); i++) free(flat[i]);
    for (int i = 0; i < REPLAY_MAX; i++) {
        free(t->replay[i].sum);
        free(t->replay[i].own);
    }
    free(t->in);
    free(t->next);
    free(t->words);
    free(t->hashes);
    free(t->compute);
    free(t->losses);
}

static bool same_start(struct train *t) {
    struct gp_error err = {0};
    if (gpt_get(&t->gpt, t->gpt.params, t->params, &err) != 0) return train_failed(t, &err);
    uint64_t own = gang_hash(t->params, t->gpt.n_params * sizeof(float)) ^ t->c->seed;
    if (!gang_gather(t->c, t->r, &own, t->hashes, sizeof own)) return false;
    if (hashes_equal(t)) return true;
    agent_set(t->r, VERDICT_FAIL, "start_differs",
              "the ranks start from different parameters: different seeds or agents");
    return false;
}

static void say_speed(struct train *t) {
    int n = t->c->size, slowest = 0;
    GP_AUTO_FREE double *medians = xcalloc((size_t)n, sizeof *medians);
    for (int k = 0; k < n; k++) {
        medians[k] = stats_median(t->compute + (size_t)k * (size_t)t->steps, (size_t)t->steps);
        if (medians[k] > medians[slowest]) slowest = k;
    }
    double tokens = (double)t->gpt.rows * n * t->steps;
    double rate = t->train_s > 0 ? tokens / t->train_s : 0;
    double middle =
        stats_quantile(medians, (size_t)n, 0.5); /* of two ranks the faster one, so that the other can stand out */
    agent_metric(t->r, "tokens_per_s", rate);
    if (n > 1 && t->one_rank_tokens_per_s > 0) agent_metric(t->r, "efficiency", rate / n / t->one_rank_tokens_per_s);
    agent_metric(t->r, "comm_share", t->train_s > 0 ? t->comm_s / t->train_s : 0);
    agent_metric(t->r, "straggler", middle > 0 ? medians[slowest] / middle : 1);
    agent_data_int(t->r, "slowest_rank", slowest);
    for (int k = 0; k < n; k++) medians[k] *= 1000;
    agent_data_nums(t->r, "gradient_ms_per_rank", medians, (size_t)GP_MIN(n, 256));
    agent_data_num(t->r, "one_rank_tokens_per_s", t->one_rank_tokens_per_s);
}

static void say_loss(struct train *t) {
    double curve[64], last = 0;
    size_t n = 0;
    int window = GP_MIN(LOSS_WINDOW, t->steps), below = -1;
    int stride = GP_MAX(1, (t->steps + 39) / 40);
    for (int i = 0; i < t->steps; i++) {
        if (i % stride == 0 || i == t->steps - 1) curve[n++] = t->losses[i];
        if (below < 0 && t->losses[i] < LOSS_TARGET) below = i;
        if (i >= t->steps - window) last += t->losses[i] / window;
    }
    agent_metric(t->r, "loss", last);
    agent_data_nums(t->r, "loss_curve", curve, n);
    agent_data_int(t->r, "loss_curve_stride", stride);
    agent_data_int(t->r, "first_step_below_target", below);
    agent_data_int(t->r, "steps", t->steps);
    agent_data_int(t->r, "ranks", t->c->size);
    agent_data_int(t->r, "tokens_per_rank_and_step", t->gpt.rows);
    agent_data_int(t->r, "parameters", (int64_t)t->gpt.n_params);
    if (!train_exact(t)) agent_data_int(t->r, "differences_of_rounding", t->roundings);
    char hash[24];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)t->hashes[0]);
    agent_data_str(t->r, "parameters_hash", hash);
    agent_say(t->r,
              "loss %.3f after %d steps (entropy 1.386), %d rank%s bit-identical after every step; "
              "computed on %s",
              last, t->steps, t->c->size, t->c->size == 1 ? "" : "s", gang_device_text(t->c->dev_ops));
}

static bool train_all(struct train *t) {
    struct check_ctx *c = t->c;
    if (!train_open(t) || !same_start(t)) return false;
    if (!known_answer_run(c, t->r) || t->r->verdict != VERDICT_PASS) return false;
    for (int step = 0; step < t->steps; step++) {
        if (clock_left_ms(c->deadline_ms) == 0) {
            GP_AUTO_FREE char *done = xasprintf("only %d of %d steps were done in time", step, t->steps);
            gang_too_late(c, t->r, done);
            return false;
        }
        if (!one_step(t, step)) return false;
    }
    uint64_t final_hash = t->hashes[0];
    say_loss(t);
    if (!train_replay(t)) return false;
    t->hashes[0] = final_hash;
    agent_metric(t->r, "agreement", t->agreement);
    if (!train_stages(t)) return false;
    if (!t->timed) say_speed(t);
    return true;
}

void train_run(struct check_ctx *c, struct agent_result *r) {
    struct train t = {.c = c, .r = r, .agreement = -1};
    agent_data_int(r, "seed", (int64_t)c->seed);
    gang_say_device(r, c->dev_ops);
    if (!train_all(&t)) agent_set(r, VERDICT_ERROR, "not_finished", "training did not reach its end");
    train_close(&t);
}

/* Names the slow rank; the table's limit reports only the ratio. */
void train_conclude(struct check_ctx *c, struct agent_result *r) {
    const char *at = strstr(r->data.s, "\"slowest_rank\":");
    int64_t rank = at != NULL ? strtol(at + 15, NULL, 10) : -1;
    struct limit l;
    if (rank < 0 || rank >= c->size || r->verdict != VERDICT_PASS || agent_limit(r, "straggler", &l) == VERDICT_PASS)
        return;
    agent_culprit(r, (int)rank);
    for (size_t i = 0; i < r->n_metrics; i++)
        if (str_eq(r->metrics[i].info->name, "straggler"))
            agent_set(r, VERDICT_DEGRADED, "slow_rank",
                      "rank %d takes %.1f times as long for a step as the median rank", (int)rank, r->metrics[i].value);
    agent_suggest(r, "check whether the node is throttled or shared; replace it if it stays slow");
}
