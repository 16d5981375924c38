/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the view of a stack from a run, reconciled or read from the journal. No I/O except the journal. */
#include "base/gp_base.h"

#include "engine/view.h"

#include "engine/drift.h"
#include "engine/job/seen/job_seen.h"
#include "engine/run/look.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/stack/cost.h"
#include "engine/stack/deadline.h"

static char *place_of(const struct resource *r) {
    return xasprintf("%s %s", r->provider, r->zone[0] ? r->zone : r->region);
}

/* Whether a launch of that node has no known outcome; slot -1: of any node. */
static bool may_be_launched(const struct stack_view *v, int slot) {
    for (size_t i = 0; i < v->unknown.list.len; i++) {
        const struct intent *in = &v->unknown.list.items[i];
        bool its = slot < 0 || (slot >= in->slot_first && slot < in->slot_first + in->slot_count);
        if (in->kind == RES_INSTANCE && in->state == INTENT_OPEN && its) return true;
    }
    return false;
}

static char *verdict_of(const struct run_node *n, const struct resource *r, bool sure) {
    if (!n->exists && r == NULL) return xstrdup(sure ? "no machine" : "not known");
    if (!n->exists)
        return xasprintf("%s%s%s", resource_state_name(r->state), r->state_reason[0] ? ": " : "", r->state_reason);
    if (n->res.ours == OURS_NOT) return xstrdup("nothing proves that this stack launched it");
    switch (n->rec.phase) {
    case NODE_READY: return xstrdup("ready");
    case NODE_FAILED: return xasprintf("failed: %s", n->rec.note && n->rec.note[0] ? n->rec.note : "see the logs");
    case NODE_WAITING: return xstrdup("not validated yet"); /* by `bootstrap`, or while `up` waits for other nodes */
    default: return xasprintf("not validated: %s", node_phase_name(n->rec.phase));
    }
}

/* The machine of a slot that has none in use: one that was stopped or is ending; NULL: none. */
static const struct resource *former(const struct run *run, int slot) {
    for (size_t i = 0; i < run->others.list.len; i++) {
        const struct resource *r = &run->others.list.items[i];
        bool machine = resource_is_machine(r);
        if (machine && r->slot == slot && str_eq(r->uid, run->stack.uid)) return r;
    }
    return NULL;
}

/* The phase of a node without a machine in use. */
static enum node_phase phase_of_former(const struct resource *r) {
    if (r == NULL) return NODE_PLANNED;
    if (r->state == RES_GONE) return NODE_GONE;
    return r->state == RES_STOPPING ? NODE_ENDING : NODE_FAILED;
}

static void add_node(const struct run *run, const struct run_node *n, struct stack_view *v) {
    const struct resource *r = n->exists ? &n->res : former(run, n->slot);
    /* else it may have a machine: in a place that was not looked at, or by a launch without a known outcome */
    bool sure = coverage_whole(&run->look.covered) && !may_be_launched(v, n->slot);
    const char *address = r == NULL || !n->exists ? "" : r->public_ip[0] ? r->public_ip : r->private_ip;
    struct node_view node = {
        .slot = n->slot,
        .phase = n->exists ? (n->res.ours != OURS_NOT ? n->rec.phase : NODE_LAUNCHING) : phase_of_former(r),
        .id = xstrdup(r != NULL ? r->id : ""),
        .place = r != NULL ? place_of(r) : xstrdup(""),
        .type = xstrdup(r != NULL ? r->instance_type : ""),
        .address = xstrdup(address),
        .state = xstrdup(r != NULL ? resource_state_name(r->state)
                         : sure    ? "gone"
                                   : "not known"),
        .price_usd_per_h = r != NULL && (n->exists || r->billed) ? r->price_usd_per_h
                           : sure                                ? 0
                                                                 : -1,
        .verdict = verdict_of(n, r, sure),
        .billed = r != NULL && r->billed,
    };
    vec_push(&v->nodes, node);
}

static const char *phase_of(const struct stack_view *v) {
    size_t there = 0, ready = 0;
    for (size_t i = 0; i < v->nodes.len; i++) {
        const struct node_view *n = &v->nodes.items[i];
        there += n->id[0] != '\0';
        ready += n->id[0] != '\0' && n->phase == NODE_READY;
    }
    if (there == 0 && may_be_launched(v, -1)) return "not known";
    if (there == 0 && v->others.list.len > 0) return "empty";
    for (size_t i = 0; there == 0 && i < v->unreadable.list.len; i++)
        if (v->unreadable.list.items[i].billed) return "not known"; /* it may be one of its machines */
    /* "gone" needs a complete look */
    if (there == 0) return v->remembered || !coverage_whole(&v->looked) ? "not known" : "gone";
    if (ready == v->nodes.len) return "ready";
    return ready > 0 ? "partial" : "not ready";
}

static void add_price(const struct run *run, struct stack_view *v) {
    double per_h = 0;
    for (size_t i = 0; i < v->nodes.len; i++) {
        double p = v->nodes.items[i].price_usd_per_h;
        per_h = p < 0 || per_h < 0 ? -1 : per_h + p;
    }
    v->price_usd_per_h = per_h;
    v->spent_usd = cost_so_far(run);
}

static const char *ends_of(const struct run *run) {
    enum offer_ends ends = run_nodes_end(run);
    return ends != ENDS_BY_PROVIDER ? offer_ends_name(ends) : "";
}

/* A node in a place that could not be looked at is shown from the journal, and its verdict reports that. */
static void mark_remembered(const struct run *run, struct stack_view *v) {
    for (size_t i = 0; i < v->nodes.len; i++) {
        struct node_view *n = &v->nodes.items[i];
        const struct resource *r = &run->nodes[n->slot].res;
        if (!run->nodes[n->slot].exists || look_is_seen(run, r->provider, r->region)) continue;
        char *verdict = xasprintf("%s, from the journal", n->verdict);
        free(n->verdict);
        n->verdict = verdict;
        v->remembered = true;
    }
}

bool view_has(const struct stack_view *v, const struct resource *r) {
    for (size_t i = 0; i < v->nodes.len; i++) {
        const struct node_view *n = &v->nodes.items[i];
        GP_AUTO_FREE char *place = place_of(r);
        if (str_eq(n->id, r->id) && str_eq(n->place, place)) return true;
    }
    return resource_list_has(&v->others, r);
}

/* One that is no node of this uid: another stack's with the name, or a copy. */
static void note_machine(struct stack_view *v, const struct resource *r) {
    GP_AUTO_FREE char *place = place_of(r);
    bool known = r->price_usd_per_h >= 0 && v->price_usd_per_h >= 0;
    strv_take(&v->notes,
              xasprintf("%s at %s has this stack's name and is none of its nodes: it may be billed; 'gpuprov "
                        "down %s' destroys it",
                        r->id, place, v->stack.name));
    v->price_usd_per_h = known ? v->price_usd_per_h + r->price_usd_per_h : -1;
    if (!str_eq(v->phase, "empty") && !str_eq(v->phase, "gone")) return;
    free(v->phase);
    v->phase = xstrdup("not known");
}

void view_add_other(struct stack_view *v, const struct resource *r) {
    resource_list_add(&v->others, r);
    if (resource_is_machine(r) && r->billed && r->state != RES_GONE) note_machine(v, r);
}

/* Created after the last list, such as the claim of a launch that was refused. */
static int add_unlisted(const struct run *run, struct stack_view *v, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list kept = {0};
    int r = run->stack.uid == NULL ? 0 : journal_resources(run->e->journal, run->stack.uid, &kept, err);
    for (size_t i = 0; r == 0 && i < kept.list.len; i++) {
        const struct resource *k = &kept.list.items[i];
        bool node = k->kind == RES_INSTANCE || k->kind == RES_HOST;
        if (!node && k->state != RES_GONE && !resource_list_has(&v->others, k)) resource_list_add(&v->others, k);
    }
    return r;
}

/* What the claim's tag says, where neither the journal nor a proof has the deadline: only to be shown. */
static int64_t told_deadline(const struct run *run) {
    for (size_t i = 0; run->stack.uid != NULL && i < run->others.list.len; i++) {
        const struct resource *r = &run->others.list.items[i];
        if (r->claim && str_eq(r->uid, run->stack.uid)) return r->expires_s;
    }
    return 0;
}

int view_fill(struct run *run, struct stack_view *v, struct gp_error *err) {
    stack_copy(&v->stack, &run->stack);
    if (v->stack.expires_s == 0) v->stack.expires_s = told_deadline(run);
    int r = run->stack.uid == NULL ? 0
                                   : journal_intents(run->e->journal, run->stack.uid,
                                                     1u << INTENT_OPEN | 1u << INTENT_TOMBSTONE, &v->unknown, err);
    int wanted = run->spec != NULL ? run->spec->nodes : 0;
    run_nodes_alloc(run, wanted); /* also the nodes that were never launched */
    for (int i = 0; i < run->n_nodes; i++)
        if (run->nodes[i].exists || i < wanted) add_node(run, &run->nodes[i], v);
    for (size_t i = 0; i < run->others.list.len; i++) {
        resource_list_add(&v->others, &run->others.list.items[i]);
    }
    if (r == 0) r = add_unlisted(run, v, err);
    for (size_t i = 0; i < run->look.unreadable.list.len; i++) {
        resource_list_add(&v->unreadable, &run->look.unreadable.list.items[i]);
    }
    coverage_merge(&v->looked, &run->look.covered);
    if (!v->remembered) mark_remembered(run, v);
    v->phase = xstrdup(phase_of(v));
    v->ends = xstrdup(ends_of(run));
    v->clock_skew_s = run_cloud_s(run, run->stack.provider) - clock_wall_s();
    add_price(run, v);
    for (size_t i = 0; i < run->others.list.len; i++) {
        const struct resource *one = &run->others.list.items[i];
        if (resource_is_machine(one) && one->billed && !str_eq(one->uid, run->stack.uid)) note_machine(v, one);
    }
    if (r == 0 && !v->remembered) r = drift_find(run, &v->drift, err);
    struct gp_error unread = {0};
    if (job_seen_read(run->e, run->stack.uid, &v->job, &unread) != 0) strv_add(&v->notes, unread.msg);
    deadline_notes(run, &v->notes);
    char *near = cost_near_limit(run);
    if (near != NULL && !run->recalled) run_event(run, -1, NODE_PLANNED, EVENT_WARN, "cost", "%s", near);
    if (near != NULL) strv_take(&v->notes, near);
    return r;
}

void engine_job_text(const struct stack_view *v, struct str *out) { job_seen_text(&v->job, v->stack.name, out); }
