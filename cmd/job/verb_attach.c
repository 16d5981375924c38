/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov attach STACK|SPEC: prints the log of the stack's newest job until it ends. gpuprov wait STACK|SPEC: waits for
 * its end only. */
#include "base/gp_base.h"

#include "cmd/app.h"
#include "cmd/show/job_show.h"

static int follow(struct invocation *inv, bool log, struct gp_error *err) {
    GP_AUTO_WORK struct app_work w = {0};
    inv->app->hub.news = true;
    int r = app_begin(inv, false, &w, err);
    if (r != 0) return r;
    struct job_result res = {0};
    struct job_printer printer = {.inv = inv, .work = &w};
    struct job_opts opts = {0};
    if (log) job_print_to(&printer, &opts);
    r = engine_attach(w.e, w.name, w.spec, &opts, &res, err);
    if (w.p != NULL) app_progress_end(w.e, &w.p);
    job_show_result(inv, w.name, &res, NULL, r, err);
    job_result_clear(&res);
    return r;
}

static int attach(struct invocation *inv, struct gp_error *err) { return follow(inv, true, err); }

static int wait_for(struct invocation *inv, struct gp_error *err) { return follow(inv, false, err); }

const struct verb verb_attach = {
    .name = "attach",
    .argspec = "STACK|SPEC",
    .help = "prints the log of the stack's newest job until it ends",
    .details = VERB_TARGET_DETAILS
    "  From the beginning of the log. Exits with 0, or 9 if the job failed. Ctrl-C leaves it running.\n"
    "  It works from every machine that can log in: set access.key in the spec.\n",
    .examples = "  gpuprov attach llm\n",
    .run = attach,
    .min_args = 1,
    .max_args = 1,
};

const struct verb verb_wait = {
    .name = "wait",
    .argspec = "STACK|SPEC",
    .help = "waits until the stack's newest job has ended",
    .details = VERB_TARGET_DETAILS
    "  Exits with 0, or 9 if the job failed; with --json the job's own exit code is in the result.\n",
    .examples = "  gpuprov wait llm && gpuprov down llm\n",
    .run = wait_for,
    .min_args = 1,
    .max_args = 1,
};
