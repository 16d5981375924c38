/* SPDX-License-Identifier: Apache-2.0 */
/* Settles the launches under way after Ctrl-C: searches by tags for a launch whose reply was not read, and creates
 * nothing. Runs in the verb's thread. The run's own providers are cancelled by then, so it opens others. */
#include "base/gp_base.h"

#include "engine/stack/interrupt.h"

#include "engine/internal.h"
#include "engine/run/run_event.h"
#include "engine/run/run_provider.h"
#include "engine/trust/trust.h"

/* Its tags alone are a claim: others can write them. */
static bool is_made(struct run *run, const struct intent *in, struct resource *r) {
    bool told = r->kind == in->kind && r->state != RES_GONE && str_eq(r->uid, in->uid) && r->attempt == in->attempt &&
                r->slot >= in->slot_first && r->slot < in->slot_first + in->slot_count;
    if (told) trust_machine(run, r);
    return told && (r->ours != OURS_NOT || trust_launch(run, r));
}

/* Lists the machines of that launch. */
static int find_made(struct provider *p, struct run *run, const struct intent *in, struct resource_list *ret,
                     struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    GP_AUTO_STRV struct strv regions = {0};
    struct list_req req = {.owner = p->owner, .stack = run->stack.name, .nodes_only = in->kind == RES_INSTANCE};
    if (in->region != NULL && in->region[0] != '\0') {
        strv_add(&regions, in->region);
        req.regions = &regions;
    }
    int r = p->ops->list(p, &req, &all, err);
    resource_list_clear(ret);
    for (size_t i = 0; r == 0 && i < all.list.len; i++)
        if (is_made(run, in, &all.list.items[i])) resource_list_add(ret, &all.list.items[i]);
    return r;
}

/* *ret_known: as many machines as were requested are listed. Their intent stays open: a list does not prove whose they
 * are, and the next run repeats the request. */
static int look_for(struct run *run, const struct intent *in, struct gp_cancel *none, bool *ret_known,
                    struct gp_error *err) {
    const struct provider_ops *ops = provider_find(in->provider);
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct provider *p = NULL;
    *ret_known = false;
    if (ops == NULL) return gp_fail(err, GP_EUSAGE, "there is no provider '%s'", in->provider);
    struct provider_env env = {.cancel = none,
                               .journal = run->e->journal,
                               .state_dir = run->e->state_dir,
                               .owner = run->owner,
                               .spec = run->spec,
                               .sink = &run->sink};
    int r = ops->open(&env, &p, err);
    if (r != 0) return r;
    for (int64_t until = clock_deadline(ops->settle_ms);;) {
        r = find_made(p, run, in, &made, err);
        *ret_known = r == 0 && made.list.len == (size_t)in->slot_count;
        if (r != 0 || *ret_known || clock_left_ms(until) == 0) break;
        (void)gp_sleep(run_pause_ms(run), none, NULL);
    }
    for (size_t i = 0; i < made.list.len; i++) engine_note_resource(run->e, &made.list.items[i], true);
    if (r == 0 && *ret_known)
        run_event(run, -1, NODE_LAUNCHING, EVENT_WARN, "settle",
                  "the launch under way (nodes %d..%d) is listed: the next 'gpuprov up' goes on with it",
                  in->slot_first, in->slot_first + in->slot_count - 1);
    ops->close(p);
    return r;
}

int interrupt_settle(struct run *run, int r, struct gp_error *err) {
    struct gp_cancel none = {.efd = -1};
    struct intent_list open = {0};
    struct gp_error why = {0};
    if (run->stack.uid == NULL || gp_cancel_init(&none, &why) != 0 ||
        journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &open, &why) != 0)
        return r;
    const struct intent *unknown = NULL;
    for (size_t i = 0; i < open.list.len; i++) {
        const struct intent *in = &open.list.items[i];
        bool known = false;
        if (in->kind != RES_INSTANCE) continue;
        gp_error_clear(&why);
        if (look_for(run, in, &none, &known, &why) != 0 || !known) unknown = in;
    }
    if (unknown != NULL) {
        gp_error_clear(err);
        r = gp_fail(err, GP_EUNKNOWN,
                    "cancelled while nodes %d..%d were launched at %s, and they may "
                    "exist%s%s: 'gpuprov up' continues, 'gpuprov down %s' destroys them",
                    unknown->slot_first, unknown->slot_first + unknown->slot_count - 1, unknown->provider,
                    why.msg[0] ? ": " : "", why.msg, run->stack.name);
    }
    intent_list_clear(&open);
    gp_cancel_clear(&none);
    return r;
}
