/* SPDX-License-Identifier: Apache-2.0 */
/* Destroys nodes of a gang: the launched part of one that cannot be completed, so that it costs nothing, or nodes that
 * a job cannot use any more. Runs in the verb's thread, under the stack's lock. */
#include "base/gp_base.h"

#include "engine/stack/give_back.h"

#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/stack/adopt.h"
#include "engine/stack/destroy.h"
#include "engine/stack/reconcile.h"

/* Another gpuprov may have launched a machine for such a slot meanwhile: that one stays. Borrowed: freed by vec_free
 * only. */
static void still_there(const struct run *run, const struct strv *ids, struct resource_list *ret) {
    for (int i = 0; i < run->n_nodes; i++)
        if (run->nodes[i].exists && strv_has(ids, run->nodes[i].res.id)) vec_push(&ret->list, run->nodes[i].res);
}

int give_back(struct run *run, const int *slots, size_t n, const char *which, struct gp_error *err) {
    int64_t deadline = clock_deadline(run->end_ms);
    GP_AUTO_STRV struct strv ids = {0};
    for (size_t i = 0; i < n; i++)
        if (slots[i] < run->n_nodes && run->nodes[slots[i]].exists) strv_add(&ids, run->nodes[slots[i]].res.id);
    run_event(run, -1, NODE_LAUNCHING, EVENT_WARN, "create", "%zu node%s %s %s destroyed", n, n == 1 ? "" : "s", which,
              n == 1 ? "is" : "are");
    for (;;) {
        struct resource_list left = {0};
        struct destroy_asked asked = {0};
        still_there(run, &ids, &left);
        bool none = left.list.len == 0;
        int r = none ? 0 : destroy_layer(run, &left, DESTROY_MACHINES, &asked, err);
        strv_clear(&asked.ids);
        if (r == 0 && !none && clock_left_ms(deadline) == 0)
            r = gp_fail(
                err, GP_EBILLED,
                "%s did not terminate within %d minutes: check it in the cloud's console, or run 'gpuprov down %s'",
                left.list.items[0].id, (int)(run->end_ms / 60000), run->stack.name);
        vec_free(&left.list);
        if (r != 0 || none) return r;
        r = gp_sleep(run_pause_ms(run), &run->e->cancel, err);
        GP_AUTO_FINDING struct finding found = {0};
        if (r == 0) r = adopt_stack(run, &found, err);
        if (r != 0) return r;
    }
}
