/* SPDX-License-Identifier: Apache-2.0 */
/* Settles launches that were cut before their reply was read, before anything else is launched. Runs in the verb's
 * thread, under the stack's lock. */
#include "base/gp_base.h"

#include "engine/stack/settle.h"

#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/stack/adopt.h"
#include "engine/stack/forget.h"
#include "engine/stack/launch.h"
#include "engine/stack/reconcile.h"
#include "engine/trust/trust.h"

/* Machines of that launch that nothing but its own tags proves: they are not used, and the launch is not in vain. */
static bool is_listed(struct run *run, const struct intent *in) {
    for (size_t i = 0; i < run->unproven.list.len; i++) {
        const struct resource *r = &run->unproven.list.items[i];
        if (r->attempt == in->attempt && r->slot >= in->slot_first && r->slot < in->slot_first + in->slot_count &&
            trust_launch(run, r))
            return true;
    }
    return false;
}

static bool all_there(const struct run *run, const struct intent *in) {
    bool all = true;
    for (int s = in->slot_first; s < in->slot_first + in->slot_count; s++)
        all = all && s >= 0 && s < run->n_nodes && run->nodes[s].exists;
    return all;
}

/* A launch for another spec is never repeated, because its nodes are not wanted any more. It is searched for as long
 * as a list may lag. A machine that appears later is a second machine, which `up` and gc destroy. */
static int settle_by_listing(struct run *run, const struct intent *in, struct finding *found, struct gp_error *err) {
    int64_t until = clock_deadline(run_settle_ms(run));
    run_event(
        run, -1, NODE_LAUNCHING, EVENT_WARN, "settle",
        "the outcome of a launch of nodes %d..%d for an earlier spec is not known: searching for it, not repeating it",
        in->slot_first, in->slot_first + in->slot_count - 1);
    for (;;) {
        int r = adopt_stack(run, found, err);
        if (r != 0) return r;
        if (all_there(run, in) || is_listed(run, in))
            return gp_fail(err, GP_EUSAGE,
                           "'%s': nodes %d..%d were launched for an earlier spec: run 'gpuprov down %s', "
                           "then 'gpuprov up'",
                           run->stack.name, in->slot_first, in->slot_first + in->slot_count - 1, run->stack.name);
        if (clock_left_ms(until) == 0) break;
        r = gp_sleep(run_pause_ms(run), &run->e->cancel, err);
        if (r != 0) return r;
    }
    return journal_intent_end(run->e->journal, in->id, INTENT_TOMBSTONE, FORGET_NOTE, err);
}

static int settle_launch(struct run *run, const struct intent *in, struct finding *found, struct gp_error *err) {
    /* prepare has completed these machines (claim_take), as create's replay would */
    if (all_there(run, in)) return journal_intent_end(run->e->journal, in->id, INTENT_DONE, "found by tags", err);
    bool same_spec = in->spec_hash != NULL && str_eq(in->spec_hash, run->spec->hash);
    if (!same_spec) return settle_by_listing(run, in, found, err);
    /* a provider without replays only lists, and that is never too late */
    const struct provider_ops *ops = provider_find(in->provider);
    bool too_late = ops == NULL || (ops->replay_max_s > 0 && clock_wall_s() - in->created_s >= ops->replay_max_s);
    if (!too_late) return launch_settle(run, in, err);
    run_event(run, -1, NODE_LAUNCHING, EVENT_WARN, "settle",
              "the outcome of an old launch of nodes %d..%d is not known; it is too old to repeat: 'gpuprov gc' "
              "searches for it",
              in->slot_first, in->slot_first + in->slot_count - 1);
    return journal_intent_end(run->e->journal, in->id, INTENT_TOMBSTONE, "too old", err);
}

int settle_launches(struct run *run, struct finding *found, struct gp_error *err) {
    struct intent_list open = {0};
    int r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &open, err);
    for (size_t i = 0; r == 0 && i < open.list.len; i++) {
        const struct intent *in = &open.list.items[i];
        if (in->kind == RES_IMAGE) continue; /* bake settles it */
        /* Groups and keys cost nothing, and a listing settles them: create finds one that appears later by its name,
         * down and gc by its tags. */
        r = in->kind != RES_INSTANCE
                ? journal_intent_end(run->e->journal, in->id, INTENT_DONE, "settled by listing", err)
                : settle_launch(run, in, found, err);
    }
    intent_list_clear(&open);
    return r;
}
