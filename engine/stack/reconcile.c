/* SPDX-License-Identifier: Apache-2.0 */
/* Makes journal and cloud agree. A stack that the journal does not know is found again by its tags. The verb's
 * thread. */
#include "base/gp_base.h"

#include "engine/stack/reconcile.h"

#include "engine/internal.h"
#include "engine/run/ending.h"
#include "engine/run/lock.h"
#include "engine/run/look.h"
#include "engine/run/owner.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/stack/deadline.h"

#define LAG_MAX_AGE_S 600 /* an older machine is listed, or gone */

static bool has_slot(const struct run *run, const struct resource *r) {
    return resource_is_machine(r) && run->stack.uid != NULL && strcmp(r->uid, run->stack.uid) == 0 && r->slot >= 0 &&
           r->slot < RUN_MAX_SLOTS;
}

/* Reads the stack from the journal, before any provider is queried. */
static int recall(struct run *run, struct gp_error *err) {
    bool known = true;
    int r = owner_recall_stack(run, NULL, &known, err);
    if (!known) run->adopted = run->stack.uid == NULL;
    return r;
}

/* Opens the providers of the stack's resources and open intents in the journal. */
static int recall_providers(struct run *run, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    if (run->stack.uid == NULL) return 0;
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    for (size_t i = 0; r == 0 && i < known.list.len; i++) {
        const struct resource *k = &known.list.items[i];
        if (k->state == RES_GONE) continue;
        engine_note_resource(run->e, k, true);
        r = ending_provider(run, k->provider, err);
    }
    struct intent_list open = {0}; /* a run that was cut at its first create call there has no resource yet */
    if (r == 0) r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &open, err);
    for (size_t i = 0; r == 0 && i < open.list.len; i++) r = ending_provider(run, open.list.items[i].provider, err);
    intent_list_clear(&open);
    return r;
}

/* Takes the identity from the claim (or, without one, from any resource) as the cloud has it. */
static int take_identity(struct run *run, const struct resource_list *seen, struct finding *found,
                         struct gp_error *err) {
    const struct resource *from = NULL;
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        if (r->state == RES_GONE || r->uid[0] == '\0') continue;
        if (from == NULL || (r->claim && !from->claim)) from = r;
    }
    if (from == NULL) return 0;
    int64_t expires_s = from->expires_s; /* machines have their own, from their create call */
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        if (resource_is_machine(r) && r->state != RES_GONE && strcmp(r->uid, from->uid) == 0 && r->expires_s > 0)
            expires_s = r->expires_s;
    }
    GP_AUTO_FREE char *before = xstrdup(run->stack.uid);
    if (before != NULL && (strcmp(before, from->uid) == 0 || !from->claim)) return 0;
    if (before != NULL)
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "reconcile",
                  "uid of '%s': the journal has %s, the cloud has %s: continuing with the cloud's", run->stack.name,
                  run->stack.uid, from->uid);
    struct stack adopted = {.owner = xstrdup(run->owner),
                            .name = xstrdup(run->stack.name),
                            .uid = xstrdup(from->uid),
                            .spec_hash = xstrdup(from->spec_hash),
                            .provider = xstrdup(from->provider),
                            .region = xstrdup(from->region),
                            .created_s = from->created_s,
                            .expires_s = expires_s};
    stack_clear(&run->stack);
    run->stack = adopted;
    found->ended_uid = GP_STEAL(before);
    if (found->ended_uid != NULL) return 0; /* the journal still has its own */
    struct gp_error why = {0};
    int r = ending_wrote(run, journal_stack_put(run->e->journal, &run->stack, NULL, &why), &why);
    if (r != 0 && err != NULL) *err = why;
    return r;
}

/* The unit of the stack is in its tags only: that of its claim, else of any resource. */
static void take_unit(struct run *run, const struct resource_list *seen) {
    const struct resource *from = NULL;
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        if (r->state == RES_GONE || r->unit[0] == '\0' || !str_eq(r->uid, run->stack.uid)) continue;
        if (from == NULL || (r->claim && !from->claim)) from = r;
    }
    if (from != NULL) resource_set(&run->stack.unit, from->unit);
}

/* Of two machines for one slot the first by id stays, independent of the journal, so that both sides of a race choose
 * the same one. */
static bool supersedes(const struct run_node *n, const struct resource *r) {
    return !n->exists || strcmp(r->id, n->res.id) < 0;
}

static void place_node(struct run *run, const struct resource *r) {
    run_nodes_alloc(run, r->slot + 1);
    struct run_node *n = &run->nodes[r->slot];
    bool first = supersedes(n, r);
    if (n->exists) {
        const struct resource *second = first ? &n->res : r;
        run_event(run, r->slot, NODE_PLANNED, EVENT_WARN, "reconcile",
                  "%s is a second machine for node %d: 'gpuprov up' destroys it", second->id, r->slot);
        resource_list_add(&run->others, second);
    }
    if (!first) return;
    resource_clear(&n->res);
    resource_copy(&n->res, r);
    n->exists = true;
}

/* Resets the record of a node whose machine was replaced or is gone. */
static int fit_record(struct run_node *n, struct gp_error *err) {
    const char *had = n->rec.resource_id ? n->rec.resource_id : "";
    if (n->exists && strcmp(had, n->res.id) == 0) return 0;
    if (!n->exists && had[0] == '\0') return 0;
    int attempt = GP_MAX(n->rec.attempt, n->exists ? n->res.attempt : 0);
    /* the machine of the launch that was cut: it shows the key made for it */
    bool expected = n->exists && had[0] == '\0' && n->rec.attempt == n->res.attempt;
    char *first = expected ? GP_STEAL(n->rec.host_key_first) : NULL;
    node_record_clear(&n->rec);
    n->rec = (struct node_record){.slot = n->slot,
                                  .attempt = attempt,
                                  .resource_id = xstrdup(n->exists ? n->res.id : ""),
                                  .host_key_first = first,
                                  .phase = n->exists ? NODE_REACHING : NODE_PLANNED};
    if (!run_is_locked(n->run)) return 0; /* without the lock, another run may be writing the record */
    return run_node_save(n, err);
}

/* Sorts one listed resource: a node, another resource, or gone. */
static void place(struct run *run, const struct resource *res) {
    bool slot = has_slot(run, res), gone = res->state == RES_GONE;
    engine_note_resource(run->e, res, !gone);
    if (gone && slot) { /* its token is used up, even if the journal never had it */
        run_nodes_alloc(run, res->slot + 1);
        struct node_record *rec = &run->nodes[res->slot].rec;
        rec->attempt = GP_MAX(rec->attempt, res->attempt);
    }
    if (gone) return;
    if (slot && (res->state == RES_PENDING || res->state == RES_RUNNING)) {
        place_node(run, res);
        return;
    }
    resource_list_add(&run->others, res);
}

/* Fills `found` from the recorded resources. */
static int sum_up(const struct run *run, struct finding *found, struct gp_error *err) {
    for (size_t i = 0; i < run->others.list.len; i++) {
        const struct resource *r = &run->others.list.items[i];
        bool own = str_eq(r->uid, run->stack.uid);
        if (own && resource_is_machine(r)) resource_list_add(&found->extras, r);
        if (!own && r->uid[0] != '\0' && !strv_has(&found->earlier_uids, r->uid))
            strv_add(&found->earlier_uids, r->uid);
    }
    if (run->stack.uid == NULL) return 0;
    return journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &found->unknown, err);
}

static int record(struct run *run, const struct resource_list *seen, struct finding *found, struct gp_error *err) {
    struct gp_error why = {0};
    int r = take_identity(run, seen, found, err);
    if (r != 0) return r;
    take_unit(run, seen);
    resource_list_clear(&run->others);
    for (int i = 0; i < run->n_nodes; i++) run->nodes[i].exists = false;
    for (size_t i = 0; r == 0 && i < seen->list.len; i++) {
        if (!run->recalled)
            r = ending_wrote(run, journal_resource_put(run->e->journal, &seen->list.items[i], &why), &why);
        place(run, &seen->list.items[i]);
    }
    for (int i = 0; r == 0 && i < run->n_nodes; i++) {
        run->nodes[i].rec.slot = i;
        r = ending_wrote(run, fit_record(&run->nodes[i], &why), &why);
    }
    if (r == 0 && found->ended_uid == NULL) r = ending_wrote(run, deadline_from_tags(run, &why), &why);
    if (r != 0 && err != NULL) *err = why;
    return r == 0 ? sum_up(run, found, err) : r;
}

int reconcile_listing(struct run *run, const struct resource_list *seen, struct finding *ret, struct gp_error *err) {
    GP_AUTO_FINDING struct finding found = {0};
    int r = record(run, seen, &found, err);
    if (ret == NULL) return r;
    finding_clear(ret);
    *ret = found;
    found = (struct finding){0};
    return r;
}

/* *ret: a machine that was recorded recently is not listed yet. */
static int not_listed_yet(struct run *run, const struct resource_list *seen, bool *ret, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    *ret = false;
    if (run->stack.uid == NULL) return 0;
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    for (size_t i = 0; r == 0 && i < known.list.len; i++) {
        const struct resource *k = &known.list.items[i];
        bool recent = k->created_s == 0 || run_cloud_s(run, k->provider) - k->created_s < LAG_MAX_AGE_S;
        if (!resource_is_machine(k) || k->state == RES_GONE || !recent || !look_is_seen(run, k->provider, k->region))
            continue;
        bool there = false;
        for (size_t s = 0; s < seen->list.len; s++) there = there || strcmp(seen->list.items[s].id, k->id) == 0;
        *ret = *ret || !there;
    }
    return r;
}

/* One list without a machine proves no absence, so it is repeated for as long as the list may lag. */
static int list_until_settled(struct run *run, struct resource_list *seen, struct gp_error *err) {
    int64_t until = clock_deadline(run_settle_ms(run));
    for (;;) {
        bool lags = false;
        int r = look_for_run(run, seen, err);
        if (r == 0 && run_is_locked(run)) r = not_listed_yet(run, seen, &lags, err);
        if (r != 0 || !lags || clock_left_ms(until) == 0) return r;
        r = gp_sleep(run_pause_ms(run), &run->e->cancel, err);
        if (r != 0) return r;
        resource_list_clear(seen);
    }
}

int reconcile(struct run *run, struct finding *ret, struct gp_error *err) {
    if (ret != NULL) finding_clear(ret);
    int r = recall(run, err);
    GP_AUTO_RESOURCES struct resource_list seen = {0};
    if (r == 0) r = recall_providers(run, err);
    if (r == 0) r = run_nodes_recall(run, err);
    if (r == 0) r = list_until_settled(run, &seen, err);
    return r == 0 ? reconcile_listing(run, &seen, ret, err) : r;
}

void finding_clear(struct finding *f) {
    resource_list_clear(&f->extras);
    strv_clear(&f->earlier_uids);
    free(f->ended_uid);
    intent_list_clear(&f->unknown);
    *f = (struct finding){0};
}

bool finding_has_extras(const struct finding *f) {
    for (size_t i = 0; i < f->extras.list.len; i++)
        if (f->extras.list.items[i].state != RES_STOPPING) return true;
    return false;
}
