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
#include "engine/trust/identity.h"
#include "engine/trust/trust.h"

#define LAG_MAX_AGE_S 600 /* an older machine is listed, or gone */

static bool is_its_machine(const struct run *run, const struct resource *r) {
    return resource_is_machine(r) && run->stack.uid != NULL && strcmp(r->uid, run->stack.uid) == 0;
}

static bool has_slot(const struct run *run, const struct resource *r) {
    return is_its_machine(run, r) && r->slot >= 0 && r->slot < RUN_MAX_SLOTS;
}

/* Reads the stack from the journal, before any provider is queried. */
static int recall(struct run *run, struct gp_error *err) {
    bool known = true;
    int r = owner_recall_stack(run, NULL, &known, err);
    if (!known) run->adopted = run->stack.uid == NULL;
    if (r == 0) trust_uid(run, NULL);
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

/* How sure the run is of a machine: the one of the node's record goes before others of this journal, those before what
 * a proof alone shows, and that before unproven ones. */
static int sureness(const struct run_node *n, const struct resource *r) {
    bool recorded = n->rec.resource_id != NULL && strcmp(n->rec.resource_id, r->id) == 0;
    return r->ours != OURS_NOT && recorded ? OURS_LAUNCHED + 1 : (int)r->ours;
}

/* Of two machines of equal sureness for one slot the first by id stays. */
static bool supersedes(const struct run_node *n, const struct resource *r) {
    if (!n->exists) return true;
    int now = sureness(n, &n->res), then = sureness(n, r);
    return then != now ? then > now : strcmp(r->id, n->res.id) < 0;
}

/* A second machine that this journal did not launch may be another run's that works with it. */
static void say_second(const struct run *run, const struct resource *r) {
    if (r->ours == OURS_NOT) return; /* trust_report() names it */
    run_event(run, r->slot, NODE_PLANNED, EVENT_WARN, "reconcile", "%s is a second machine for node %d: %s%s%s", r->id,
              r->slot, r->ours == OURS_LAUNCHED ? "'gpuprov up' destroys it" : "it is left alone; 'gpuprov down ",
              r->ours == OURS_LAUNCHED ? "" : run->stack.name, r->ours == OURS_LAUNCHED ? "" : "' destroys it");
}

static void place_node(struct run *run, const struct resource *r) {
    run_nodes_alloc(run, r->slot + 1);
    struct run_node *n = &run->nodes[r->slot];
    bool first = supersedes(n, r);
    if (n->exists) {
        const struct resource *second = first ? &n->res : r;
        say_second(run, second);
        resource_list_add(&run->others, second);
    }
    if (!first) return;
    resource_clear(&n->res);
    resource_copy(&n->res, r);
    n->exists = true;
}

/* The journal has it, or the launch's proof; a machine's proof does not cover it. */
static bool knows_attempt(struct run *run, const struct resource *r) {
    return r->ours == OURS_LAUNCHED || trust_launch(run, r);
}

/* Resets the record of a node whose machine was replaced or is gone. */
static int fit_record(struct run_node *n, struct gp_error *err) {
    const char *had = n->rec.resource_id ? n->rec.resource_id : "";
    if (n->exists && strcmp(had, n->res.id) == 0) {
        trust_tag_key(n);
        return 0;
    }
    if (!n->exists && had[0] == '\0') return 0;
    int attempt = GP_MAX(n->rec.attempt, n->exists && knows_attempt(n->run, &n->res) ? n->res.attempt : 0);
    /* the machine of the launch that was cut: it shows the key made for it; another run's has a key of its own */
    bool cut = n->exists && had[0] == '\0' && n->rec.attempt == n->res.attempt;
    bool expected = cut && n->res.ours == OURS_LAUNCHED;
    char *first = expected ? GP_STEAL(n->rec.host_key_first) : NULL;
    node_record_clear(&n->rec);
    n->rec = (struct node_record){.slot = n->slot,
                                  .attempt = attempt,
                                  .resource_id = xstrdup(n->exists ? n->res.id : ""),
                                  .host_key_first = first,
                                  .phase = n->exists ? NODE_REACHING : NODE_PLANNED};
    trust_tag_key(n);
    if (!run_is_locked(n->run)) return 0; /* without the lock, another run may be writing the record */
    if (n->exists && n->res.ours == OURS_NOT)
        return 0; /* shown only: the record keeps the node's own machine and key */
    return run_node_save(n, err);
}

static bool has_place(const struct run *run, const struct resource *r) {
    return (r->state == RES_PENDING || r->state == RES_RUNNING) && (r->ours != OURS_NOT || run->shows_unproven);
}

/* Sorts one listed resource: a node, another resource, or gone. */
static void place(struct run *run, const struct resource *res) {
    bool slot = has_slot(run, res), gone = res->state == RES_GONE;
    engine_note_resource(run->e, res, !gone);
    if (gone && slot && knows_attempt(run, res)) { /* its token is used up, even if the journal never had it */
        run_nodes_alloc(run, res->slot + 1);
        struct node_record *rec = &run->nodes[res->slot].rec;
        rec->attempt = GP_MAX(rec->attempt, res->attempt);
    }
    if (gone) return;
    if (is_its_machine(run, res) && res->ours == OURS_NOT) resource_list_add(&run->unproven, res);
    if (slot && has_place(run, res)) place_node(run, res);
    else resource_list_add(&run->others, res);
}

/* A machine that no node uses and `up` destroys: of this journal, or proven and stopped. */
static bool is_extra(const struct resource *r) {
    bool runs = r->state == RES_PENDING || r->state == RES_RUNNING;
    return resource_is_machine(r) && (r->ours == OURS_LAUNCHED || (r->ours == OURS_PROVEN && !runs));
}

/* Fills `found` from the recorded resources. */
static int sum_up(const struct run *run, struct finding *found, struct gp_error *err) {
    for (size_t i = 0; i < run->others.list.len; i++) {
        const struct resource *r = &run->others.list.items[i];
        bool own = str_eq(r->uid, run->stack.uid);
        if (own && is_extra(r)) resource_list_add(&found->extras, r);
        if (!own && r->uid[0] != '\0' && !strv_has(&found->earlier_uids, r->uid))
            strv_add(&found->earlier_uids, r->uid);
    }
    if (run->stack.uid == NULL) return 0;
    return journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &found->unknown, err);
}

/* Copies the listed resources, and decides which machines are the stack's. */
static void judge(struct run *run, const struct resource_list *seen, struct resource_list *ret) {
    for (size_t i = 0; i < seen->list.len; i++) {
        resource_list_add(ret, &seen->list.items[i]);
        struct resource *r = &ret->list.items[i];
        if (resource_is_machine(r) && str_eq(r->uid, run->stack.uid)) trust_machine(run, r);
    }
}

/* A verb that only shows or destroys the stack has unproven machines as nodes. `plan` has them where `up` launches
 * nothing because of them. */
static int choose_what_to_show(struct run *run, const struct resource_list *all, struct gp_error *err) {
    bool member = false;
    run->shows_unproven = run->looking || run->recalled || run->ending;
    for (size_t i = 0; i < all->list.len; i++) {
        const struct resource *r = &all->list.items[i];
        member = member || (has_slot(run, r) && r->ours != OURS_NOT && r->state != RES_GONE);
    }
    int r = run->plans && !member && run->stack.uid != NULL
                ? trust_is_member(run->e->journal, run->stack.uid, &member, err)
                : 0;
    run->shows_unproven = run->shows_unproven || (run->plans && !member);
    return r;
}

static int record(struct run *run, const struct resource_list *seen, struct finding *found, struct gp_error *err) {
    struct gp_error why = {0};
    GP_AUTO_RESOURCES struct resource_list all = {0};
    int r = identity_take(run, seen, &found->ended_uid, err);
    if (r != 0) return r;
    resource_list_clear(&run->others);
    resource_list_clear(&run->unproven);
    for (int i = 0; i < run->n_nodes; i++) run->nodes[i].exists = false;
    judge(run, seen, &all);
    r = ending_wrote(run, choose_what_to_show(run, &all, &why), &why);
    for (size_t i = 0; r == 0 && i < all.list.len; i++) {
        const struct resource *one = &all.list.items[i];
        int put = run->recalled ? 0 : journal_resource_put(run->e->journal, one, &why);
        r = ending_wrote(run, put, &why);
        place(run, one);
    }
    for (int i = 0; r == 0 && i < run->n_nodes; i++) {
        run->nodes[i].rec.slot = i;
        r = ending_wrote(run, fit_record(&run->nodes[i], &why), &why);
    }
    bool knew = run->own_uid;
    trust_uid(run, &all);
    if (!knew) look_narrow(run, seen);
    identity_take_unit(run, seen);
    trust_report(run);
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
        *ret = *ret || !resource_list_has(seen, k);
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
