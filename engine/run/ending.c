/* SPDX-License-Identifier: Apache-2.0 */
/* Lets down and gc continue when a provider cannot be queried or the journal cannot be written: all other machines
 * are still destroyed. Both failures are kept in the run and reported at the end. Verbs that only read continue without
 * the journal too. Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/run/ending.h"

#include "engine/run/look.h"
#include "engine/run/run_event.h"
#include "engine/run/run_provider.h"

int ending_provider(struct run *run, const char *name, struct gp_error *err) {
    const struct provider_ops *ops = provider_find(name);
    const struct look *before = coverage_find(&run->look.covered, name, "");
    struct provider *p = NULL;
    struct gp_error why = {0};
    bool note = run->ending || run->looking;
    if (note && before != NULL && !before->checked) return 0; /* noted already */
    int r = look_allows(run->e, name, "") ? run_provider(run, name, &p, &why) : look_left_out(&why);
    if (r == 0) return 0;
    if (note && r != -GP_ECANCELLED) {
        coverage_put(&run->look.covered, name, "", run->owner, ops == NULL || ops->billed, &why);
        return 0;
    }
    if (err != NULL) *err = why;
    return r;
}

int ending_wrote(struct run *run, int r, struct gp_error *err) {
    bool disk = err->domain == GP_D_JOURNAL || err->code == GP_EIO;
    bool reads = run->lock.fd < 0; /* only a run with the lock needs what it records */
    if (r == 0 || !disk || (!run->ending && !reads)) return r;
    if (run->unwritten.code == GP_OK) {
        run->unwritten = *err;
        if (!run->ending) run_event(run, -1, NODE_PLANNED, EVENT_WARN, "journal", "nothing is recorded: %s", err->msg);
        else
            run_event(run, -1, NODE_ENDING, EVENT_WARN, "journal",
                      "the resources are destroyed without a record of it: %s", err->msg);
    }
    gp_error_clear(err);
    return 0;
}

/* Resources with the stack's name but unreadable tags are never destroyed and never reported as gone. */
static int verdict_of_unreadable(struct run *run, struct gp_error *err) {
    for (size_t i = 0; i < run->look.unreadable.list.len; i++) {
        const struct resource *r = &run->look.unreadable.list.items[i];
        run_event(run, -1, NODE_ENDING, EVENT_WARN, "tags", "left alone: %s in %s: %s", r->id, r->region,
                  r->unreadable);
    }
    return look_unreadable_error(&run->look.unreadable, run->stack.name, err);
}

static int verdict_of_gaps(struct run *run, const struct down_result *done, struct gp_error *err) {
    const struct look *gap = coverage_gap(&run->look.covered);
    GP_AUTO_STR struct str ids = {0}, gaps = {0}, reason = {0}, next = {0};
    GP_AUTO_FREE char *command = xasprintf("gpuprov down %s", run->stack.name);
    if (gap == NULL) return look_gap_error(&run->look.covered, run->stack.name, err);
    for (size_t i = 0; i < done->left.list.len; i++)
        str_addf(&ids, "%s%s", i == 0 ? " (known there: " : ", ", done->left.list.items[i].id);
    if (ids.len > 0) str_addc(&ids, ')');
    coverage_text(&run->look.covered, false, 6, &gaps);
    look_gap_text(gap, command, &reason, &next);
    return gp_fail(err, gap->billed ? GP_EBILLED : gap->why.code, "'%s': not looked at: %.120s%s%s: %s; %s",
                   run->stack.name, gaps.s, gap->billed ? ", where it may still be billed" : "", ids.s ? ids.s : "",
                   reason.s, next.s);
}

int ending_verdict(struct run *run, const struct down_result *done, struct gp_error *err) {
    int r = verdict_of_gaps(run, done, err);
    if (r == 0) r = verdict_of_unreadable(run, err);
    /* a journal that could be written in the end has forgotten the stack, and with it the missing record */
    bool unwritten = run->unwritten.code != GP_OK && run->stack.uid != NULL;
    run->verdict = r != 0 || unwritten;
    if (r != 0 || !unwritten) return r;
    GP_AUTO_FREE char *ids = done->asked.n > 0 ? strv_join(&done->asked, ", ") : xstrdup("nothing");
    return gp_fail(err, GP_EIO,
                   "'%s': everything billed is gone (destroyed now: %.120s), but the journal could not be "
                   "written: %.240s; then repeat 'gpuprov down %s'",
                   run->stack.name, ids, run->unwritten.msg, run->stack.name);
}
