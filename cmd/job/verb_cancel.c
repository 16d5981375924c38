/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov cancel STACK|SPEC: ends the stack's running job. The nodes stay. */
#include "base/gp_base.h"

#include "cmd/app.h"
#include "cmd/show/job_show.h"

static int run(struct invocation *inv, struct gp_error *err) {
    GP_AUTO_WORK struct app_work w = {0};
    int r = app_begin(inv, false, &w, err);
    if (r != 0) return r;
    struct job_result res = {0};
    r = engine_cancel_job(w.e, w.name, w.spec, &res, err);
    if (w.p != NULL) app_progress_end(w.e, &w.p);
    job_show_result(inv, w.name, &res, NULL, r, err);
    if (r == 0 && !inv->common->json && res.id[0] != '\0') printf("%s: job %s was stopped\n", w.name, res.id);
    if (r == 0 && !inv->common->json && res.id[0] == '\0') printf("%s: no job runs\n", w.name);
    job_result_clear(&res);
    return r;
}

const struct verb verb_cancel = {
    .name = "cancel",
    .argspec = "STACK|SPEC",
    .help = "ends the stack's running job; the nodes stay",
    .details = VERB_TARGET_DETAILS "  SIGTERM, and after 10 s SIGKILL to every process of the job on every node.\n",
    .examples = "  gpuprov cancel llm\n",
    .run = run,
    .min_args = 1,
    .max_args = 1,
};
