/* SPDX-License-Identifier: Apache-2.0 */
/* `run`: the node checks. Hello, load, then one check after another in worker processes that are
 * watched, until the first certain failure; then the checks that were not run, and the end. One thread. */
#include "base/gp_base.h"

#include "suite_run.h"

#include "base/clock.h"
#include "gang_local.h"

#include <sys/mman.h>
#include <unistd.h>

#define SLACK_MS 15000 /* the stated seconds select checks; exceeding them does not fail a busy machine */

/* All GPUs' workers load the driver at once, before the time begins. */
static void load(struct suite_run *run) {
    bool host = false, gpus = false;
    for (size_t i = 0; i < run->n_picks; i++) {
        const struct check_info *c = run->picks[i].info;
        bool driver = run->picks[i].taken && c->level == CHECK_GPU && agent_check_ops(c->id);
        host = host || (driver && !(c->needs & NEED_GPU) && agent_kind.start);
        gpus = gpus || (driver && (c->needs & NEED_GPU));
    }
    if (!run->gpus || (!host && !gpus)) return;
    int64_t began = clock_ms();
    places_load(run, host, gpus);
    run->emit.load_ms = clock_ms() - began;
    struct emit_gpu list[RUN_MAX_GPUS];
    for (int g = 0; g < run->gpus; g++) {
        const struct run_place *p = &run->places[g + 1];
        list[g] = (struct emit_gpu){.gpu = g,
                                    .load_ms = p->said.load_ms,
                                    .id = &p->said.id,
                                    .model = p->said.model,
                                    .code = p->said.code,
                                    .message = p->said.message};
    }
    emit_loaded(&run->emit, list, gpus ? (size_t)run->gpus : 0);
}

/* A failure that the caller's floors cannot change. */
static bool is_certain(const struct suite_run *run, const struct agent_result *r) {
    if (r->faults == VERDICT_FAIL || (r->verdict == VERDICT_FAIL && r->by_limits != VERDICT_FAIL)) return true;
    for (size_t i = 0; i < run->own_floors.n; i++)
        if (&check_table[run->own_floors.items[i]] == r->check) return false;
    return r->by_limits == VERDICT_FAIL;
}

/* The check's time: its share, less if earlier ones took longer than stated. */
static struct pick in_time(const struct suite_run *run, size_t at) {
    struct pick p = run->picks[at];
    int64_t stated_ms = (int64_t)pick_stated(&p) * 1000, rest_ms = 0;
    for (size_t i = 0; i < run->n_picks; i++) {
        const struct pick *q = &run->picks[i]; /* gang checks come last */
        if (q->taken && (i > at || q->info->level == CHECK_GANG)) rest_ms += (int64_t)pick_stated(q) * 1000;
    }
    int64_t room_ms = clock_left_ms(run->hard_ms) - rest_ms - SLACK_MS;
    p.budget_ms = GP_MAX(stated_ms, GP_MIN(p.budget_ms, room_ms));
    return p;
}

static void not_run(struct suite_run *run, const struct check_info *info, const char *code, const char *why) {
    struct agent_result r;
    agent_result_init(&r, info);
    agent_set(&r, VERDICT_SKIPPED, code, "not run: %s", why);
    emit_result(&run->emit, &r);
    agent_result_clear(&r);
}

static void run_checks(struct suite_run *run) {
    GP_AUTO_FREE char *failed = NULL;
    for (size_t i = 0; i < run->n_picks && !run->emit.broken; i++) {
        const struct check_info *info = run->picks[i].info;
        struct agent_result r;
        if (!run->picks[i].taken || info->level == CHECK_GANG) continue;
        if (failed) {
            not_run(run, info, "stopped", failed);
            continue;
        }
        if (clock_left_ms(run->hard_ms) < (int64_t)pick_stated(&run->picks[i]) * 1000) {
            not_run(run, info, "no_time", "--time was over: the earlier checks took longer than on a sound node");
            continue;
        }
        emit_start(&run->emit, info);
        struct pick p = in_time(run, i);
        if ((info->needs & NEED_GPU) && agent_check_ops(info->id)) place_ask_gpus(run, &p, &r);
        else place_ask_host(run, &p, &r);
        emit_result(&run->emit, &r);
        run->failed = run->failed || is_certain(run, &r);
        if (!run->all && run->failed) failed = xasprintf("%s failed before (use --all to run the rest)", info->id);
        agent_result_clear(&r);
    }
}

static void say_left_out(struct suite_run *run) {
    char have[32];
    duration_format(have, sizeof have, run->time_ms);
    for (size_t i = 0; i < run->n_picks && !run->emit.broken; i++) {
        const struct pick *p = &run->picks[i];
        GP_AUTO_FREE char *why = xasprintf("takes %d s, more than the rest of --time %s", pick_stated(p), have);
        /* a core check counts; another one left out, or of a gang that nobody asked for, is only reported */
        struct check_info unasked = *p->info;
        unasked.required = p->core && p->info->level != CHECK_GANG;
        if (!p->taken) not_run(run, &unasked, "left_out", why);
    }
}

static const struct pick *taken_gang(const struct suite_run *run, const struct check_info *c) {
    for (size_t i = 0; i < run->n_picks; i++)
        if (run->picks[i].info == c && run->picks[i].taken && c->level == CHECK_GANG) return &run->picks[i];
    return NULL;
}

/* Gang checks without --checks: those that were taken, in the table's order. Without a controller none is
 * required. */
static void run_gang(struct suite_run *run, struct str *why) {
    struct gang_local gang = {.gpus = run->gpus, .unjudged = run->unjudged};
    bool alone = gang_local_ranks(run->gpus) < 2;
    if (run->emit.broken || (alone && !run->named)) return;
    for (size_t i = 0; i < run->gang.n; i++) {
        const struct check_info *c = &check_table[run->gang.items[i]];
        if (alone) not_run(run, c, "one_gpu", "this node has fewer than two GPUs");
        else if (!agent_check_ops(c->id)) not_run(run, c, "no_code", "this agent has no code for it");
        else if (run->failed && !run->all)
            not_run(run, c, "stopped", "a check failed before (use --all to run the rest)");
        else gang.checks.items[gang.checks.n++] = run->gang.items[i];
    }
    for (int i = 0; check_table[i].id && !run->named; i++) {
        const struct pick *p = taken_gang(run, &check_table[i]);
        struct check_info unasked = check_table[i];
        unasked.required = false;
        if (!p) continue;
        if (p->info->longer && !p->full) gang.short_form = true;
        if (!run->failed || run->all) gang.checks.items[gang.checks.n++] = i;
        else not_run(run, &unasked, "stopped", "a check failed before (use --all to run the rest)");
    }
    gang.deadline_ms = GP_MAX(run->hard_ms, clock_deadline(run->time_ms)) + RUN_LOAD_MS; /* its loading's limit */
    if (gang.checks.n) gang_run_local(&gang, &run->emit, why);
}

static int run_all(struct suite_run *run) {
    run->ctx.turn_fd = GP_MAX(0, memfd_create("gpuprov-turn", MFD_CLOEXEC));
    emit_hello(&run->emit, -1, 0);
    load(run);
    int64_t need_ms = GP_MAX(run->time_ms, pick_seconds(run->picks, run->n_picks) * 1000);
    run->hard_ms = clock_deadline(need_ms + SLACK_MS);
    run_checks(run);
    say_left_out(run);
    GP_AUTO_STR struct str left = {0};
    places_end(run, &left);
    if (!left.len) {
        GP_AUTO_STR struct str early = {0};
        run_gang(run, &early);
        return emit_end(&run->emit, early.len ? early.s : "");
    }
    run->emit.worst = VERDICT_FAIL;
    GP_AUTO_FREE char *why =
        xasprintf("driver hang: SIGKILL did not end %s, which still runs; replace the node", left.s);
    return emit_end(&run->emit, why);
}

int verb_run(int argc, char **argv) {
    struct gp_error err = {0};
    struct suite_run *run = xcalloc(1, sizeof *run);
    run->emit.fd = STDOUT_FILENO;
    for (size_t i = 0; i < GP_ARRAY_LEN(run->places); i++)
        run->places[i] = (struct run_place){.worker = WORKER_NONE, .gpu = (int)i - 1};
    int code = NODE_CHECK_UNKNOWN;
    if (run_setup(run, argc, argv, &err) == 0) {
        code = run_all(run);
        if (run->emit.broken) code = NODE_CHECK_UNKNOWN;
    } else {
        fprintf(stderr, "gpuprov-agent run: %s\n", err.msg);
    }
    free(run);
    return code;
}
