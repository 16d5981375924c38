/* SPDX-License-Identifier: Apache-2.0 */
/* Removes a destroyed stack from the journal and the state folder. Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/stack/forget.h"

#include "engine/run/old_report.h"
#include "engine/run/run_node.h"
#include "engine/run/stack_dir.h"

int forget_stack(struct run *run, struct gp_error *err) {
    if (run->stack.uid == NULL) return 0;
    old_report_keep(run->e, &run->stack);
    stack_dir_keep_outputs(run->e, &run->stack);
    int r = stack_dir_remove(run->e, run->stack.uid, err);
    if (r == 0) r = journal_stack_forget(run->e->journal, run->stack.uid, err);
    if (r != 0) return r;
    free(run->stack.uid);
    run->stack.uid = NULL;
    for (int i = 0; i < run->n_nodes; i++) {
        struct run_node *n = &run->nodes[i];
        n->exists = false;
        node_record_clear(&n->rec);
        n->rec = (struct node_record){.slot = i, .phase = NODE_PLANNED};
    }
    return 0;
}

int forget_ended(const struct run *run, const char *uid, struct gp_error *err) {
    struct intent_list open = {0};
    int r = journal_intents(run->e->journal, uid, 1u << INTENT_OPEN, &open, err);
    for (size_t i = 0; r == 0 && i < open.list.len; i++)
        if (open.list.items[i].kind == RES_INSTANCE)
            r = journal_intent_end(run->e->journal, open.list.items[i].id, INTENT_TOMBSTONE, FORGET_NOTE, err);
    intent_list_clear(&open);
    struct stack ended = run->stack; /* borrowed: the same name, an earlier uid */
    GP_AUTO_FREE char *its_uid = xstrdup(uid);
    ended.uid = its_uid;
    if (r == 0) old_report_keep(run->e, &ended);
    if (r == 0) stack_dir_keep_outputs(run->e, &ended);
    if (r == 0) r = stack_dir_remove(run->e, uid, err);
    return r == 0 ? journal_stack_forget(run->e->journal, uid, err) : r;
}
