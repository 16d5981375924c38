/* SPDX-License-Identifier: Apache-2.0 */
/* Adopts the result of reconcile(). Runs in the verb's thread, under the stack's lock. */
#include "base/gp_base.h"

#include "engine/stack/adopt.h"

#include "engine/run/ending.h"
#include "engine/run/lock.h"
#include "engine/run/login_key.h"
#include "engine/run/run_node.h"
#include "engine/stack/forget.h"
#include "engine/stack/reconcile.h"
#include "engine/trust/trust.h"

/* The old stack is forgotten first, because the journal has one stack per name. After a crash in between, the stack is
 * read again from its tags. */
static int replace_ended(struct run *run, const char *uid, struct gp_error *err) {
    struct gp_error why = {0};
    int r = forget_ended(run, uid, &why);
    if (r == 0) r = journal_stack_put(run->e->journal, &run->stack, NULL, &why);
    r = ending_wrote(run, r, &why);
    if (r != 0 && err != NULL) *err = why;
    return r;
}

int adopt_stack(struct run *run, struct finding *ret, struct gp_error *err) {
    GP_AUTO_FINDING struct finding found = {0};
    int r = reconcile(run, &found, err);
    if (r == 0 && found.ended_uid != NULL) r = replace_ended(run, found.ended_uid, err);
    if (ret == NULL) return r;
    finding_clear(ret);
    *ret = found;
    found = (struct finding){0};
    return r;
}

int adopt_existing(struct run *run, struct gp_error *err) {
    int r = run_lock(run, err);
    if (r == 0) r = adopt_stack(run, NULL, err);
    if (r == 0 && !run_any_exists(run)) r = trust_no_node(run, err);
    if (r == 0 && !run_any_exists(run))
        r = gp_fail(err, GP_ENOTFOUND, "there is no stack '%s' with nodes: run 'gpuprov up' to launch it",
                    run->stack.name);
    if (r == 0 && run->spec == NULL)
        r = gp_fail(err, GP_EUSAGE,
                    "the spec of '%s' is not in this machine's journal: give the "
                    "spec file instead of the name",
                    run->stack.name);
    return r == 0 ? login_key_get(run, false, err) : r;
}
