/* SPDX-License-Identifier: Apache-2.0 */
/* A gang without a controller: a node with several GPUs runs the gang checks over its GPUs, one rank per GPU over
 * 127.0.0.1, and reports one result per check. One thread. */
#include "base/gp_base.h"

#include "gang_local.h"

#include "base/clock.h"
#include "base/fs.h"
#include "rank.h"

#define STALL_MS 20000

struct local {
    struct emit *emit;
    struct rank_plan plan;
    struct agent_result merged[GP_ARRAY_LEN(((struct check_list *)0)->items)];
    int said[GP_ARRAY_LEN(((struct check_list *)0)->items)]; /* number of ranks with a result */
    bool begun[GP_ARRAY_LEN(((struct check_list *)0)->items)];
    bool hang;
    char why[200];
};

static size_t place_of(const struct local *l, const struct check_info *check) {
    size_t i = 0;
    while (i + 1 < l->plan.checks.n && &check_table[l->plan.checks.items[i]] != check) i++;
    return i;
}

static void local_hello(void *ctx, int local) { (void)ctx, (void)local; }

static void local_begin(void *ctx, int local, const struct check_info *check) {
    struct local *l = ctx;
    size_t i = place_of(l, check);
    (void)local;
    if (!l->begun[i]) emit_start(l->emit, check);
    l->begun[i] = true;
}

/* Rank 0's figures and data, except the worst value of a figure with a limit; the worst verdict of all; all
 * culprits. */
static void merge(struct agent_result *all, const struct agent_result *one, bool zero) {
    for (size_t i = 0; i < one->n_metrics; i++) {
        const struct check_metric_info *m = one->metrics[i].info;
        if (zero || m->by_model || m->fail >= 0 || m->degraded >= 0) agent_metric_worst(all, &one->metrics[i]);
    }
    agent_set(all, one->verdict, one->code, "%s", one->message);
    if (one->verdict == all->verdict && !all->suggestion[0])
        str_put(all->suggestion, sizeof all->suggestion, one->suggestion);
    all->took_ms = GP_MAX(all->took_ms, one->took_ms);
    GP_AUTO_STRV struct strv blamed = {0};
    strv_split(&blamed, one->culprits.s ? one->culprits.s : "", ",");
    for (size_t i = 0; i < blamed.n; i++) {
        int64_t rank = 0;
        if (str_to_i64(blamed.v[i], 0, RANKS_MAX - 1, &rank)) agent_culprit(all, (int)rank);
    }
    if (!zero) return;
    if (one->verdict == VERDICT_PASS) agent_say(all, "%s", one->message);
    all->about = one->about;
    str_put(all->note, sizeof all->note, one->note);
    str_add_mem(&all->data, one->data.s, one->data.len);
}

static void local_result(void *ctx, int local, const struct agent_result *r) {
    struct local *l = ctx;
    size_t i = place_of(l, r->check);
    if (l->said[i] == 0) agent_result_init(&l->merged[i], r->check);
    merge(&l->merged[i], r, local == 0);
    if (++l->said[i] < l->plan.count) return;
    if (!l->begun[i]) emit_start(l->emit, r->check);
    l->begun[i] = true;
    emit_result(l->emit, &l->merged[i]);
    agent_result_clear(&l->merged[i]);
}

static void local_end(void *ctx, int local, const char *why, bool hang) {
    struct local *l = ctx;
    if (*why && !l->why[0]) snprintf(l->why, sizeof l->why, "rank %d: %s", local, why);
    l->hang = l->hang || hang;
}

static bool local_broken(void *ctx) {
    const struct local *l = ctx;
    return l->emit->broken;
}

int gang_local_ranks(int gpus) {
    const char *same = getenv("GPUPROV_NCCL_SAME_GPU");
    int64_t n = 0;
    if (gpus == 1 && same && str_to_i64(same, 2, 8, &n)) return (int)n;
    return GP_MIN(gpus, RANKS_MAX);
}

void gang_run_local(const struct gang_local *a, struct emit *emit, struct str *ret_why) {
    struct local *l = xcalloc(1, sizeof *l);
    struct gp_error err = {0};
    l->emit = emit;
    l->plan = (struct rank_plan){.bind = "127.0.0.1",
                                 .count = gang_local_ranks(a->gpus),
                                 .size = gang_local_ranks(a->gpus),
                                 .same_gpu = gang_local_ranks(a->gpus) > a->gpus,
                                 .deadline_ms = a->deadline_ms,
                                 .meet_ms = 30000,
                                 .stall_ms = STALL_MS,
                                 .seed = 1,
                                 .steps = 200,
                                 .timed_ms = a->short_form ? TRAIN_SHORT_MS : 0,
                                 .unjudged = a->unjudged,
                                 .checks = a->checks,
                                 .token_len = 32};
    const struct rank_ears ears = {.ctx = l,
                                   .hello = local_hello,
                                   .begin = local_begin,
                                   .result = local_result,
                                   .end = local_end,
                                   .broken = local_broken};
    if (fs_random(l->plan.token, l->plan.token_len, &err) == 0) ranks_watch(&l->plan, &ears);
    else str_put(l->why, sizeof l->why, err.msg);
    if (l->why[0]) str_add(ret_why, l->why);
    if (l->hang) emit->worst = VERDICT_FAIL;
    free(l);
}
