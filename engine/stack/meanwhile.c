/* SPDX-License-Identifier: Apache-2.0 */
/* An `up` that waited for another run must not repeat what that run undid: behind a `down` it would launch everything
 * again. Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/stack/meanwhile.h"

#include "engine/run/lock.h"
#include "engine/run/owner.h"

/* The journal's stack of this name; an empty one if it has none, or several (the run reports those itself). */
static struct stack in_journal(const struct run *run) {
    struct stack s = {0};
    if (owner_find_stack(run->e->journal, run->stack.name, run->owner, &s, NULL) != 0) stack_clear(&s);
    return s;
}

static const char *change(const struct run *run, const struct stack *before, const struct stack *after) {
    if (before->uid != NULL && after->uid == NULL) return "destroyed";
    if (run->lock.behind_end) return "destroyed, at least in part,";
    bool same = str_eq(before->uid, after->uid) && str_eq(before->spec_hash, after->spec_hash);
    bool wanted = after->uid == NULL || str_eq(after->spec_hash, run->spec->hash);
    return same || wanted ? NULL : "changed to another spec";
}

static int compare(const struct run *run, const struct stack *before, struct gp_error *err) {
    struct stack after = in_journal(run);
    const char *what = change(run, before, &after);
    stack_clear(&after);
    if (what == NULL) return 0;
    char pid[32] = "";
    if (run->lock.holder > 0) snprintf(pid, sizeof pid, " (pid %lld)", (long long)run->lock.holder);
    return gp_fail(err, GP_EBUSY,
                   "'%s' was %s by another gpuprov%s while this one waited, so nothing was launched: repeat "
                   "'gpuprov up' if it is still wanted (--even-if-changed skips this check)",
                   run->stack.name, what, pid);
}

int meanwhile_lock(struct run *run, struct gp_error *err) {
    struct stack before = in_journal(run);
    int r = run_lock(run, err);
    if (r == 0 && !run->e->opts.even_if_changed) r = compare(run, &before, err);
    stack_clear(&before);
    return r;
}
