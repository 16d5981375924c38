/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov exec STACK|SPEC [-- CMD...]: a job on the ready nodes of a stack, which stay. */
#include "base/gp_base.h"

#include "cmd/app.h"
#include "cmd/show/job_show.h"

struct opts {
    bool detach;
    int64_t lock_timeout_ms, fetch_ms;
};
static const struct opt options[] = {{.name = "detach",
                                      .letter = 'd',
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, detach),
                                      .help = "end when the job has started"},
                                     FETCH_ROW(struct opts, fetch_ms),
                                     LOCK_ROW(struct opts, lock_timeout_ms),
                                     {0}};

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_WORK struct app_work w = {0};
    app_lock_timeout(inv, o->lock_timeout_ms);
    inv->app->hub.news = true;
    int r = app_begin(inv, false, &w, err);
    if (r != 0) return r;
    struct job_result res = {0};
    struct job_printer printer = {.inv = inv, .work = &w, .res = &res};
    struct job_opts opts = {.cmd = inv->rest, .n_cmd = inv->n_rest, .detach = o->detach, .fetch_ms = o->fetch_ms};
    job_print_to(&printer, &opts);
    r = engine_exec(w.e, w.name, w.spec, &opts, &res, err);
    if (w.p != NULL) app_progress_end(w.e, &w.p);
    job_show_result(inv, w.name, &res, NULL, r, err);
    job_result_clear(&res);
    return r;
}

const struct verb verb_exec = {
    .name = "exec",
    .argspec = "STACK|SPEC [-- CMD...]",
    .help = "runs a job on the ready nodes of a stack, which stay",
    .details =
        VERB_TARGET_DETAILS "  As 'run' without launching and destroying: the job of the spec, or CMD in its place.\n",
    .examples = "  gpuprov exec llm -- nvidia-smi\n"
                "  gpuprov exec llm -- 'torchrun $GPUPROV_TORCHRUN_ARGS eval.py'\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
    .flags = VERB_REST | VERB_NOTIFIES,
};
