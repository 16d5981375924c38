/* SPDX-License-Identifier: Apache-2.0 */
/* Adopts the result of reconcile(). Runs in the verb's thread, under the stack's lock. */
#include "base/gp_base.h"

#include "engine/stack/adopt.h"

#include "engine/run/ending.h"
#include "engine/stack/forget.h"
#include "engine/stack/reconcile.h"

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
