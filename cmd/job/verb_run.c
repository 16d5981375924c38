/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov run [SPEC] [-- CMD...]: nodes up, a job on them, its log, its outputs, nodes down. */
#include "base/gp_base.h"

#include "cmd/ask/approval.h"
#include "cmd/show/job_show.h"
#include "cmd/show/reports.h"

struct opts {
    bool detach, no_down, yes, accept_new_host_key;
    int64_t keep_ms, lock_timeout_ms, fetch_ms;
};
static const struct opt options[] = {
    {.name = "detach",
     .letter = 'd',
     .type = OPT_FLAG,
     .offset = offsetof(struct opts, detach),
     .help = "end when the job has started; the nodes end at their deadline"},
    {.name = "keep",
     .type = OPT_DURATION,
     .offset = offsetof(struct opts, keep_ms),
     .arg = "TIME",
     .min = 1000,
     .help = "keep the nodes that long after a failure (default: job.keep of the spec)"},
    {.name = "no-down", .type = OPT_FLAG, .offset = offsetof(struct opts, no_down), .help = "the nodes stay"},
    YES_ROW(struct opts, yes),
    {.name = "accept-new-host-key",
     .type = OPT_FLAG,
     .offset = offsetof(struct opts, accept_new_host_key),
     .help = "ssh: accept and store the key of a host that is in no known_hosts file"},
    FETCH_ROW(struct opts, fetch_ms),
    LOCK_ROW(struct opts, lock_timeout_ms),
    {0}};

/* The nodes that were not proven: the reasons. */
static void show_report(const struct invocation *inv, const struct job_result *res, const struct gp_error *err) {
    bool proven = res->up.report.nodes.len == 0 || res->up.report.ready;
    if (inv->common->json || proven || err->code == GP_ECANCELLED) return;
    GP_AUTO_STR struct str text = {0};
    const struct report_style style = output_style(stderr);
    report_brief(&res->up.report, &style, &text);
    fputs(text.s, stderr);
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    if (o->detach && o->keep_ms > 0)
        return gp_fail(
            err, GP_EUSAGE,
            "run: --keep is of no use with -d, which ends before the job has failed: the nodes of a detached "
            "job end at their deadline (limits.ttl)");
    inv->app->engine_opts.accept_new_host_key = o->accept_new_host_key;
    app_lock_timeout(inv, o->lock_timeout_ms);
    inv->app->hub.news = true;
    GP_AUTO_WORK struct app_work w = {0};
    int r = app_begin(inv, true, &w, err);
    if (r != 0) return r;
    struct job_result res = {0};
    struct approval a = {.inv = inv, .work = &w, .yes = o->yes};
    struct job_printer printer = {.inv = inv, .work = &w, .res = &res};
    struct job_opts opts = {.cmd = inv->rest,
                            .n_cmd = inv->n_rest,
                            .detach = o->detach,
                            .no_down = o->no_down,
                            .keep_ms = o->keep_ms,
                            .fetch_ms = o->fetch_ms};
    job_print_to(&printer, &opts);
    approval_hold(&a);
    w.e->approve = approval_ask;
    w.e->approve_ctx = &a;
    r = engine_run(w.e, w.spec, &opts, &res, err);
    w.e->approve = NULL;
    if (w.p != NULL) app_progress_end(w.e, &w.p);
    show_report(inv, &res, err);
    job_show_result(inv, w.spec->name, &res, a.plan, r, err);
    json_decref(a.plan);
    job_result_clear(&res);
    return r;
}

const struct verb verb_run = {
    .name = "run",
    .argspec = "[SPEC] [-- CMD...]",
    .help = "nodes up, a job on them, outputs back, nodes down",
    .details = VERB_SPEC_DETAILS
    "  The log of all nodes comes on stdout, each line behind the rank of its node. The first rank that\n"
    "  fails stops the others, and the exit code is 9. In every case the outputs are fetched, and the\n"
    "  nodes are destroyed, also those of an earlier 'up'; 'exec' and --no-down leave them. Ctrl-C stops\n"
    "  the job. Run again, it continues a job that was not finished: after a crash, or elsewhere.\n"
    "  CMD: one word is a script for sh, several are a command with its arguments.\n",
    .examples = "  gpuprov run train.yaml\n"
                "  gpuprov run train.yaml -- 'torchrun $GPUPROV_TORCHRUN_ARGS train.py'\n"
                "  gpuprov run -d train.yaml          # then: gpuprov attach, wait, cancel\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
    .flags = VERB_REST | VERB_NOTIFIES | VERB_PLANS,
};
