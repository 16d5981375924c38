/* SPDX-License-Identifier: Apache-2.0 */
/* The typed changes of a plan and the state that it is based on: what a program reads, beside the lines that a person
 * reads. No I/O but the journal. */
#include "base/gp_base.h"

#include "engine/plan.h"

#include "engine/drift.h"
#include "engine/run/run_node.h"
#include "engine/stack/claim.h"

/* Takes over `before`, `after` and `id`. */
static struct plan_change *add(struct plan *p, enum change_action action, const char *resource, char *before,
                               char *after, const char *reason) {
    struct plan_change c = {.action = action,
                            .resource = xstrdup(resource),
                            .node = -1,
                            .before = before,
                            .after = after,
                            .reason = xstrdup(reason)};
    vec_push(&p->resource_changes.list, c);
    return &p->resource_changes.list.items[p->resource_changes.list.len - 1];
}

static char *time_text(int64_t wall_s) {
    char when[40];
    time_format_utc(when, sizeof when, wall_s);
    return xstrdup(when);
}

static const char *effect_reason(enum spec_effect e) {
    switch (e) {
    case SPEC_REPEATED: return "nodes are bootstrapped and validated again";
    case SPEC_SCALED: return "nodes are launched or destroyed, and all are validated again";
    case SPEC_ACCESS: return "applied to running nodes";
    case SPEC_LATER: return "from the next connection or launch on";
    case SPEC_DEADLINE: return "the deadline moves";
    case SPEC_REFUSED: return "needs other machines: run 'gpuprov down' first";
    case SPEC_STACK:
    case SPEC_UNDECLARED: break;
    }
    return "";
}

static void add_spec(const struct run *run, struct plan *p) {
    for (size_t i = 0; i < run->changes.list.len; i++) {
        const struct spec_change *c = &run->changes.list.items[i];
        struct plan_change *x = add(p, c->effect == SPEC_REFUSED ? CHANGE_REFUSE : CHANGE_UPDATE, "spec",
                                    xstrdup(c->old), xstrdup(c->now), effect_reason(c->effect));
        x->key = xstrdup(c->key);
    }
    if (run->moved_expires_s == 0) return;
    struct plan_change *x = add(p, CHANGE_UPDATE, "stack", time_text(run->stack.expires_s),
                                time_text(run->moved_expires_s), "limits.ttl of the spec");
    x->key = xstrdup("deadline");
}

static const struct resource *stopped_machine(const struct finding *found, int slot) {
    for (size_t i = 0; i < found->extras.list.len; i++)
        if (found->extras.list.items[i].slot == slot && found->extras.list.items[i].state == RES_STOPPED)
            return &found->extras.list.items[i];
    return NULL;
}

/* The machine that the journal has for the slot, and that the lists do not show any more; NULL: none. */
static const struct resource *gone_machine(const struct resource_list *known, int slot) {
    for (size_t i = 0; i < known->list.len; i++) {
        const struct resource *k = &known->list.items[i];
        if (resource_is_machine(k) && k->slot == slot && k->state != RES_GONE && k->state != RES_STOPPING) return k;
    }
    return NULL;
}

static void add_missing(const struct finding *found, int slot, const char *offer, const struct resource_list *known,
                        struct plan *p) {
    const struct resource *stopped = stopped_machine(found, slot);
    const struct resource *gone = stopped == NULL ? gone_machine(known, slot) : NULL;
    const struct resource *was = stopped != NULL ? stopped : gone;
    if (was == NULL) {
        add(p, CHANGE_CREATE, "node", NULL, xstrdup(offer), "missing")->node = slot;
        return;
    }
    struct plan_change *x =
        add(p, CHANGE_REPLACE, "node", xstrdup(stopped != NULL ? "stopped" : "gone"), xstrdup("running"),
            stopped != NULL ? "the machine is stopped: 'up' destroys it and launches another one"
                            : "the machine is gone, and 'up' did not end it: 'up' launches another one");
    x->node = slot;
    x->key = xstrdup("state");
    x->id = xstrdup(was->id);
}

static void add_node(const struct run *run, int slot, struct plan *p) {
    const struct run_node *n = &run->nodes[slot];
    if (slot >= run->spec->nodes) {
        struct plan_change *x = add(p, CHANGE_DESTROY, "node", xstrdup(resource_state_name(n->res.state)), NULL,
                                    "the spec has fewer nodes");
        x->node = slot;
        x->id = xstrdup(n->res.id);
        return;
    }
    if (n->rec.phase == NODE_READY && claim_keeps_ready(run)) return;
    struct plan_change *x =
        add(p, CHANGE_RESUME, "node", xstrdup(node_phase_name(n->rec.phase)), xstrdup(node_phase_name(NODE_READY)),
            n->rec.phase == NODE_READY ? "validated for an earlier spec" : "not ready yet");
    x->node = slot;
    x->id = xstrdup(n->res.id);
    x->key = xstrdup("phase");
}

static void add_nodes(const struct run *run, const struct finding *found, const struct resource_list *known,
                      struct plan *p) {
    GP_AUTO_FREE char *offer = p->offers.list.len > 0 ? offer_text(&p->offers.list.items[0]) : NULL;
    for (int i = 0; i < GP_MAX(run->n_nodes, run->spec->nodes); i++) {
        if (i < run->n_nodes && run->nodes[i].exists) add_node(run, i, p);
        else if (i < run->spec->nodes) add_missing(found, i, offer, known, p);
    }
}

/* Second machines, and stopped ones of slots that the spec does not have. */
static void add_extras(const struct run *run, const struct finding *found, struct plan *p) {
    for (size_t i = 0; i < found->extras.list.len; i++) {
        const struct resource *r = &found->extras.list.items[i];
        bool there = r->slot >= 0 && r->slot < run->n_nodes && run->nodes[r->slot].exists;
        bool replaced = r->state == RES_STOPPED && r->slot >= 0 && r->slot < run->spec->nodes && !there &&
                        stopped_machine(found, r->slot) == r;
        if (r->state == RES_STOPPING || replaced) continue;
        struct plan_change *x = add(p, CHANGE_DESTROY, "node", xstrdup(resource_state_name(r->state)), NULL,
                                    r->state == RES_STOPPED ? "it is stopped" : "a second machine");
        x->node = r->slot;
        x->id = xstrdup(r->id);
    }
}

static void add_unknown(const struct run *run, const struct finding *found, struct plan *p) {
    for (size_t i = 0; i < found->unknown.list.len; i++) {
        const struct intent *in = &found->unknown.list.items[i];
        if (in->kind != RES_INSTANCE) continue;
        struct plan_change *x =
            add(p, CHANGE_SETTLE, "launch", xstrdup("unknown"), NULL,
                str_eq(in->spec_hash, run->spec->hash) ? "its outcome is not known: searched for, then repeated"
                                                       : "for an earlier spec: searched for, not repeated");
        x->id = xstrdup(in->token);
        x->key = xasprintf("nodes %d..%d", in->slot_first, in->slot_first + in->slot_count - 1);
        p->state.unknown++;
    }
}

static void add_state(const struct run *run, const struct finding *found, struct plan *p) {
    struct plan_state *s = &p->state;
    s->owner = xstrdup(run->owner);
    s->uid = xstrdup(run->stack.uid);
    s->spec_hash = run_any_exists(run) ? xstrdup(run->stack.spec_hash) : NULL;
    for (int i = 0; i < run->n_nodes; i++) {
        const struct run_node *n = &run->nodes[i];
        if (!n->exists) continue;
        struct plan_node one = {
            .slot = i,
            .id = xstrdup(n->res.id),
            .phase = xstrdup(node_phase_name(n->rec.phase)),
            .place = xasprintf("%s %s", n->res.provider, n->res.zone[0] != '\0' ? n->res.zone : n->res.region),
            .type = xstrdup(n->res.instance_type)};
        vec_push(&s->nodes, one);
    }
    for (size_t i = 0; i < found->extras.list.len; i++)
        if (found->extras.list.items[i].state != RES_STOPPING) strv_add(&s->extras, found->extras.list.items[i].id);
}

int plan_describe(const struct run *run, const struct finding *found, struct plan *p, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    int r = run->stack.uid != NULL ? journal_resources(run->e->journal, run->stack.uid, &known, err) : 0;
    if (r != 0) return r;
    add_state(run, found, p);
    add_spec(run, p);
    add_unknown(run, found, p);
    bool claims = p->offers.list.len > 0 && run->stack.uid == NULL && run->home->ops->unique_claim;
    if (claims) add(p, CHANGE_CREATE, "claim", NULL, xstrdup(run->spec->name), "keeps the name unique");
    add_nodes(run, found, &known, p);
    add_extras(run, found, p);
    r = drift_find(run, &p->resource_changes, err);
    for (size_t i = 0; i < p->resource_changes.list.len; i++)
        p->changes = p->changes || p->resource_changes.list.items[i].action == CHANGE_REPAIR;
    return r;
}
