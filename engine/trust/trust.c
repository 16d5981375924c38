/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which machines are the stack's (trust.h). Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/trust/trust.h"

#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/trust/proof_key.h"

void trust_machine(struct run *run, struct resource *r) {
    const struct provider_ops *ops = provider_find(r->provider);
    if (r->ours != OURS_NOT) return;
    if (ops != NULL && ops->own_list) r->ours = OURS_LAUNCHED;
    else if (trust_host_key(run, r)) r->ours = OURS_PROVEN;
}

bool trust_launch(struct run *run, const struct resource *r) {
    return r->launch[0] != '\0' && run_has_proof_key(run) && proof_launch_holds(&run->proof, r);
}

bool trust_deadline(struct run *run, const struct resource *r) {
    return r->deadline[0] != '\0' && run_has_proof_key(run) && proof_deadline_holds(&run->proof, r);
}

bool trust_host_key(struct run *run, const struct resource *r) {
    return r->proof[0] != '\0' && run_has_proof_key(run) && proof_machine_holds(&run->proof, r);
}

void trust_tag_key(struct run_node *n) {
    const struct provider_ops *ops = provider_find(n->res.provider);
    bool rotates = n->exists && ops != NULL && ops->key_rotation && !run_node_has_key(n);
    bool proven = rotates && trust_host_key(n->run, &n->res);
    str_put(n->tag_key, sizeof n->tag_key, proven ? n->res.host_keys : "");
}

void trust_report(struct run *run) {
    for (size_t i = 0; i < run->unproven.list.len; i++) {
        const struct resource *r = &run->unproven.list.items[i];
        if (strv_has(&run->said_unproven, r->id)) continue;
        strv_add(&run->said_unproven, r->id);
        if (run->ending) continue; /* it is destroyed with the stack */
        run_event(run, r->slot, NODE_PLANNED, EVENT_WARN, "trust",
                  "%s in %s has the tags of node %d, and nothing proves that this stack launched it: it is left alone; "
                  "'gpuprov down %s' destroys it",
                  r->id, r->region, r->slot, run->stack.name);
    }
}

/* A launch of this journal whose outcome is not known: settling it finds its machines. */
static bool is_own_launch(const struct intent_list *open, const struct resource *r) {
    for (size_t i = 0; i < open->list.len; i++) {
        const struct intent *in = &open->list.items[i];
        if (in->kind == RES_INSTANCE && r->attempt == in->attempt && r->slot >= in->slot_first &&
            r->slot < in->slot_first + in->slot_count)
            return true;
    }
    return false;
}

/* A launch of that attempt, or a later one, is in this journal: so the machine has copied tags. */
static bool is_used_up(const struct run *run, const struct resource *r) {
    return r->slot >= 0 && r->slot < run->n_nodes && run->nodes[r->slot].rec.attempt >= r->attempt;
}

static int cannot_prove(struct run *run, const struct resource *r, struct gp_error *err) {
    struct gp_error why = {0};
    int n = run_proof_key(run, false, &why);
    return gp_fail(err, GP_ENOTFOUND,
                   "'%s' has %s in %s, and this machine cannot prove that the stack launched it: %.220s%s: nothing is "
                   "launched beside it; 'gpuprov down %s' destroys it",
                   run->stack.name, r->id, r->region, n != 0 ? why.msg : "it has no proof by the stack's login key",
                   n != 0 ? "" : ", and the journal of its launch is not here", run->stack.name);
}

int trust_launched_here(struct journal *j, const char *uid, bool *ret, struct gp_error *err) {
    struct intent_list all = {0};
    *ret = false;
    int r = journal_intents(j, uid, 1u << INTENT_DONE | 1u << INTENT_OPEN, &all, err);
    for (size_t i = 0; i < all.list.len; i++)
        *ret = *ret || all.list.items[i].kind == RES_INSTANCE || all.list.items[i].kind == RES_HOST;
    intent_list_clear(&all);
    return r;
}

int trust_is_member(struct journal *j, const char *uid, bool *ret, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    struct intent_list all = {0};
    int r = journal_intents(j, uid, 1u << INTENT_DONE | 1u << INTENT_OPEN, &all, err);
    if (r == 0) r = journal_resources(j, uid, &known, err);
    bool member = false;
    for (size_t i = 0; i < all.list.len; i++) { /* a group may be another run's stack's */
        const struct intent *in = &all.list.items[i];
        member = member || in->kind == RES_INSTANCE || in->kind == RES_HOST || (in->claim && in->state == INTENT_DONE);
    }
    for (size_t i = 0; i < known.list.len; i++) member = member || known.list.items[i].ours != OURS_NOT;
    intent_list_clear(&all);
    if (r == 0) *ret = member;
    return r;
}

void trust_uid(struct run *run, const struct resource_list *machines) {
    bool member = false;
    if (run->stack.uid != NULL) (void)trust_is_member(run->e->journal, run->stack.uid, &member, NULL);
    for (size_t i = 0; machines != NULL && i < machines->list.len; i++) {
        const struct resource *r = &machines->list.items[i];
        bool ours = resource_is_machine(r) && r->state != RES_GONE && r->ours != OURS_NOT;
        member = member || (ours && str_eq(r->uid, run->stack.uid));
    }
    run->own_uid = member;
}

/* A stack that lists alone have shown has no uid of its own: its tags may be the copied ones. */
bool trust_is_of_another(const struct run *run, const char *uid) {
    struct journal *j = run->e->journal;
    struct stack_list all = {0};
    bool another = journal_stacks(j, &all, NULL) != 0, member = true;
    for (size_t i = 0; i < all.list.len && !another; i++) {
        const struct stack *s = &all.list.items[i];
        bool its = str_eq(s->name, run->stack.name) && str_eq(s->owner, run->owner);
        if (str_eq(s->uid, uid) && !its) another = trust_is_member(j, uid, &member, NULL) != 0 || member;
    }
    stack_list_clear(&all);
    return another;
}

/* A machine with the stack's name and a uid that this journal has no part in. */
static const struct resource *other_uid(struct run *run, struct gp_error *err, int *ret) {
    for (size_t i = 0; *ret == 0 && i < run->others.list.len; i++) {
        const struct resource *r = &run->others.list.items[i];
        bool runs = resource_is_machine(r) && (r->state == RES_PENDING || r->state == RES_RUNNING);
        bool member = false;
        if (!runs || r->uid[0] == '\0' || str_eq(r->uid, run->stack.uid)) continue;
        *ret = trust_is_member(run->e->journal, r->uid, &member, err);
        if (!member) return r;
    }
    return NULL;
}

int trust_may_launch(struct run *run, struct gp_error *err) {
    struct intent_list open = {0};
    bool missing = false, member = false;
    for (int i = 0; i < run->spec->nodes; i++) {
        bool there = i < run->n_nodes && run->nodes[i].exists && run->nodes[i].res.ours != OURS_NOT;
        missing = missing || !there;
        member = member || there;
    }
    if (!missing) return 0;
    int r = 0;
    if (!member && run->stack.uid != NULL) r = trust_is_member(run->e->journal, run->stack.uid, &member, err);
    const struct resource *other = r == 0 && !member ? other_uid(run, err, &r) : NULL;
    if (r == 0 && other != NULL) return cannot_prove(run, other, err);
    if (r == 0 && run->unproven.list.len > 0)
        r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &open, err);
    for (size_t i = 0; r == 0 && i < run->unproven.list.len; i++) {
        const struct resource *s = &run->unproven.list.items[i];
        if (is_own_launch(&open, s)) continue;
        if (trust_launch(run, s) && !is_used_up(run, s))
            r = gp_fail(
                err, GP_EREACH,
                "%s/%d: %s was launched by another run, and has not proven itself yet: repeat 'gpuprov up' when "
                "that run has finished; if it was cut, run 'gpuprov down %s' first",
                run->stack.name, s->slot, s->id, run->stack.name);
        else if (!member) r = cannot_prove(run, s, err);
    }
    intent_list_clear(&open);
    return r;
}

int trust_no_node(struct run *run, struct gp_error *err) {
    if (run->unproven.list.len == 0) return 0;
    return cannot_prove(run, &run->unproven.list.items[0], err);
}
