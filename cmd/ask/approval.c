/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the plan of `up` and `run` and asks for approval. The verb's thread. */
#include "base/gp_base.h"

#include "cmd/ask/approval.h"

#include "cmd/show/plan_show.h"

#include <unistd.h>

/* Shows the plan, and asks if a person can answer. The live area would be drawn over both. */
static int ask_for(struct approval *a, const struct plan *plan, struct gp_error *err) {
    struct invocation *inv = a->inv;
    const struct spec *spec = a->work->spec;
    bool matters = plan->changes || plan->new_commands; /* a command runs on this machine, also when all is as it was */
    bool ask = matters && !a->yes && confirm_can_ask(inv);
    if (inv->common->json) a->plan = plan_json(spec, plan);
    int r = a->check != NULL ? a->check(a->check_ctx, plan, err) : 0;
    if (r != 0) return r;
    if (inv->common->json && matters && !a->yes && isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1)
        return gp_fail(err, GP_EUSAGE,
                       "--json requests no confirmation on a terminal: add --yes, or run 'gpuprov plan' first");
    if (inv->common->json || !matters || (inv->common->quiet && !ask)) return 0;
    app_progress_end(a->work->e, &a->work->p);
    plan_show(spec, plan, stderr);
    if (ask) {
        GP_AUTO_FREE char *question = xasprintf("Do this for '%s'?", spec->name);
        r = confirm_ask(a->work->e, question, err);
    }
    /* without approval there is no progress to show */
    return r == 0 ? app_progress(inv, a->work->e, spec->name, spec->nodes, &a->work->p, err) : r;
}

/* A notification may run a command of the spec, so none is sent before a person has agreed to the spec. */
void approval_hold(const struct approval *a) {
    if (!a->yes && confirm_can_ask(a->inv)) a->work->e->notifies = false;
}

int approval_ask(void *ctx, const struct plan *plan, struct gp_error *err) {
    struct approval *a = ctx;
    int r = ask_for(a, plan, err);
    if (r == 0) a->work->e->notifies = (a->inv->verb->flags & VERB_NOTIFIES) != 0;
    return r;
}
