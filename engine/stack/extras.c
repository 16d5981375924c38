/* SPDX-License-Identifier: Apache-2.0 */
/* Destroys machines that the spec does not include. Runs in the verb's thread, under the stack's lock. */
#include "base/gp_base.h"

#include "engine/stack/extras.h"

#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/stack/adopt.h"
#include "engine/stack/destroy.h"
#include "engine/stack/reconcile.h"

int extras_end(struct run *run, struct finding *found, struct gp_error *err) {
    int64_t deadline = clock_deadline(run->end_ms);
    for (;;) {
        struct resource_list extra = {0};
        for (size_t i = 0; i < found->extras.list.len; i++) vec_push(&extra.list, found->extras.list.items[i]);
        for (int i = run->spec->nodes; i < run->n_nodes; i++)
            if (run->nodes[i].exists) vec_push(&extra.list, run->nodes[i].res);
        int r = 0;
        struct destroy_asked asked = {0};
        if (extra.list.len > 0) r = destroy_layer(run, &extra, DESTROY_MACHINES, &asked, err);
        strv_clear(&asked.ids);
        bool none = extra.list.len == 0;
        if (r == 0 && !none && clock_left_ms(deadline) == 0)
            r = gp_fail(err, GP_EBILLED,
                        "%s is not in the spec and did not terminate within %d minutes: check it in "
                        "the cloud's console, or run 'gpuprov down %s'",
                        extra.list.items[0].id, (int)(run->end_ms / 60000), run->stack.name);
        vec_free(&extra.list);
        if (r != 0 || none) return r;
        r = gp_sleep(run_pause_ms(run), &run->e->cancel, err);
        if (r == 0) r = adopt_stack(run, found, err);
        if (r != 0) return r;
    }
}
