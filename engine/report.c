/* SPDX-License-Identifier: Apache-2.0 */
/* The verb report: the last report of a stack, out of the journal. */
#include "base/gp_base.h"

#include "engine/run.h"

int report_stored(struct engine *e, const char *uid, struct report *ret, struct gp_error *err) {
    GP_AUTO_FREE char *text = NULL;
    int r = journal_report_get(e->journal, uid, &text, err);
    if (r != 0) return r;
    json_t *j = json_loads(text, 0, NULL);
    r = report_from_json(j, ret, err);
    json_decref(j);
    return r;
}

int engine_report(struct engine *e, const char *name, struct report *ret, struct gp_error *err) {
    struct stack_list all = {0};
    int r = journal_stacks(e->journal, &all, err);
    const struct stack *found = NULL;
    for (size_t i = 0; r == 0 && i < all.list.len; i++) {
        const struct stack *s = &all.list.items[i];
        if (strcmp(s->name, name) == 0 &&
            (e->opts.owner == NULL || strcmp(s->owner, e->opts.owner) == 0))
            found = s;
    }
    if (r == 0 && found == NULL)
        r = gp_fail(err, GP_ENOTFOUND, "there is no stack '%s' here: 'gpuprov status' lists them",
                    name);
    else if (r == 0) r = report_stored(e, found->uid, ret, err);
    stack_list_clear(&all);
    return r;
}
