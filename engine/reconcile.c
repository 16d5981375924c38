/* SPDX-License-Identifier: Apache-2.0 */
/* The cloud is the truth, the journal a memory of intentions: this makes them agree. A stack that the
 * journal does not know is found again by its tags. */
#include "base/gp_base.h"

#include "engine/run.h"

#define INTENT_REPLAY_MAX_AGE_S (12 * 3600)
#define LAG_MAX_AGE_S 600 /* what was made longer ago is listed, or gone */

static bool is_node(const struct resource *r) { return r->kind == RES_INSTANCE || r->kind == RES_HOST; }

static bool has_slot(const struct run *run, const struct resource *r) {
    return is_node(r) && run->stack.uid != NULL && strcmp(r->uid, run->stack.uid) == 0 && r->slot >= 0 &&
           r->slot < RUN_MAX_SLOTS;
}

/* What the journal remembers of this stack, before the cloud is asked. */
static int recall(struct run *run, struct gp_error *err) {
    struct stack known = {0};
    struct gp_error why = {0};
    if (run->owner == NULL) return 0; /* no provider opened: nothing is known of whose stack it would be */
    int r = journal_stack_get(run->e->journal, run->owner, run->stack.name, &known, NULL, &why);
    if (r == -GP_ENOTFOUND) {
        run->adopted = run->stack.uid == NULL;
        return 0;
    }
    if (r != 0) {
        if (err != NULL) *err = why;
        return r;
    }
    stack_clear(&run->stack);
    run->stack = known;
    return 0;
}

/* Where the journal knows something of this stack, that provider is asked too. */
static int recall_providers(struct run *run, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    if (run->stack.uid == NULL) return 0;
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    for (size_t i = 0; r == 0 && i < known.list.len; i++) {
        const struct resource *k = &known.list.items[i];
        if (k->state == RES_GONE) continue;
        if (k->billed) engine_note_billed(run->e, k->id, true);
        r = ending_provider(run, k->provider, err);
    }
    struct intent_list open = {0}; /* cut while it made its first thing there: nothing is listed yet */
    if (r == 0) r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &open, err);
    for (size_t i = 0; r == 0 && i < open.list.len; i++) r = ending_provider(run, open.list.items[i].provider, err);
    intent_list_clear(&open);
    return r;
}

static int recall_nodes(struct run *run, struct gp_error *err) {
    if (run->stack.uid == NULL) return 0;
    struct node_record_list records = {0};
    int r = journal_nodes(run->e->journal, run->stack.uid, &records, err);
    for (size_t i = 0; r == 0 && i < records.list.len; i++) {
        struct node_record *rec = &records.list.items[i];
        if (rec->slot < 0 || rec->slot >= RUN_MAX_SLOTS) continue;
        run_nodes_alloc(run, rec->slot + 1);
        struct run_node *n = &run->nodes[rec->slot];
        node_record_clear(&n->rec);
        n->rec = *rec;
        *rec = (struct node_record){0};
    }
    node_record_list_clear(&records);
    return r;
}

/* Takes the identity from the claim (or, without one, from any resource) as the cloud has it. */
static int adopt_identity(struct run *run, const struct resource_list *seen, struct gp_error *err) {
    const struct resource *from = NULL;
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        if (r->state == RES_GONE || r->uid[0] == '\0') continue;
        if (from == NULL || (r->claim && !from->claim)) from = r;
    }
    if (from == NULL) return 0;
    int64_t expires_s = from->expires_s; /* machines have their own, in the call that made them */
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        if (is_node(r) && r->state != RES_GONE && strcmp(r->uid, from->uid) == 0 && r->expires_s > 0)
            expires_s = r->expires_s;
    }
    GP_AUTO_FREE char *before = xstrdup(run->stack.uid);
    if (before != NULL && (strcmp(before, from->uid) == 0 || !from->claim)) return 0;
    if (before != NULL)
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "reconcile",
                  "the journal knew '%s' as %s; the cloud has %s: going on with the cloud's", run->stack.name,
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
    if (before != NULL && run->lock_fd < 0) return 0; /* only looking */
    struct gp_error why = {0};
    int r = before != NULL ? claim_leave_behind(run, before, &why) : 0;
    if (r == 0) r = journal_stack_put(run->e->journal, &run->stack, NULL, &why);
    r = ending_wrote(run, r, &why);
    if (r != 0 && err != NULL) *err = why;
    return r;
}

/* Of two machines for one slot the first by id stays, whatever this side's journal says: both sides of
 * a race choose the same one. */
static bool supersedes(const struct run_node *n, const struct resource *r) {
    return !n->exists || strcmp(r->id, n->res.id) < 0;
}

static void put_other(struct run *run, const struct resource *r) {
    struct resource copy = {0};
    resource_copy(&copy, r);
    vec_push(&run->others.list, copy);
}

static void place_node(struct run *run, const struct resource *r) {
    run_nodes_alloc(run, r->slot + 1);
    struct run_node *n = &run->nodes[r->slot];
    bool first = supersedes(n, r);
    if (n->exists) {
        const struct resource *second = first ? &n->res : r;
        run_event(run, r->slot, NODE_PLANNED, EVENT_WARN, "reconcile",
                  "%s is a second machine for node %d: 'up' ends it", second->id, r->slot);
        put_other(run, second);
        run->others_unwanted++;
    }
    if (!first) return;
    resource_clear(&n->res);
    resource_copy(&n->res, r);
    n->exists = true;
}

/* A record whose machine is another one (or gone) starts again from its beginning. */
static int fit_record(struct run_node *n, struct gp_error *err) {
    const char *had = n->rec.resource_id ? n->rec.resource_id : "";
    if (n->exists && strcmp(had, n->res.id) == 0) return 0;
    if (!n->exists && had[0] == '\0') return 0;
    int attempt = GP_MAX(n->rec.attempt, n->exists ? n->res.attempt : 0);
    /* this is what was being launched when the run was cut: it shows the key made for it */
    bool expected = n->exists && had[0] == '\0' && n->rec.attempt == n->res.attempt;
    char *first = expected ? GP_STEAL(n->rec.host_key_first) : NULL;
    node_record_clear(&n->rec);
    n->rec = (struct node_record){.slot = n->slot,
                                  .attempt = attempt,
                                  .resource_id = xstrdup(n->exists ? n->res.id : ""),
                                  .host_key_first = first,
                                  .phase = n->exists ? NODE_REACHING : NODE_PLANNED};
    if (n->run->lock_fd < 0) return 0; /* only looking: the record is another run's to write */
    return run_node_save(n, err);
}

/* Where one listed thing belongs: a node, something else, or the past. */
static void place(struct run *run, const struct resource *res) {
    bool slot = has_slot(run, res), gone = res->state == RES_GONE;
    if (res->billed || gone) engine_note_billed(run->e, res->id, !gone);
    if (gone && slot) { /* its token is used up, also where the journal never knew it */
        run_nodes_alloc(run, res->slot + 1);
        struct node_record *rec = &run->nodes[res->slot].rec;
        rec->attempt = GP_MAX(rec->attempt, res->attempt);
    }
    if (gone) return;
    if (slot && (res->state == RES_PENDING || res->state == RES_RUNNING)) {
        place_node(run, res);
        return;
    }
    put_other(run, res);
    if (slot && res->state == RES_STOPPED) run->others_unwanted++;
}

int reconcile_listing(struct run *run, const struct resource_list *seen, struct gp_error *err) {
    struct gp_error why = {0};
    int r = adopt_identity(run, seen, err);
    if (r != 0) return r;
    resource_list_clear(&run->others);
    run->others_unwanted = 0;
    for (int i = 0; i < run->n_nodes; i++) run->nodes[i].exists = false;
    for (size_t i = 0; r == 0 && i < seen->list.len; i++) {
        r = ending_wrote(run, journal_resource_put(run->e->journal, &seen->list.items[i], &why), &why);
        place(run, &seen->list.items[i]);
    }
    for (int i = 0; r == 0 && i < run->n_nodes; i++) {
        run->nodes[i].rec.slot = i;
        r = ending_wrote(run, fit_record(&run->nodes[i], &why), &why);
    }
    if (r != 0 && err != NULL) *err = why;
    return r;
}

/* What the journal has in places that could not be looked at. */
static int add_remembered(struct run *run, const char *provider, struct resource_list *seen, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    gp_error_clear(err);
    if (run->stack.uid == NULL) return 0;
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    for (size_t i = 0; r == 0 && i < known.list.len; i++) {
        const struct resource *k = &known.list.items[i];
        struct resource copy = {0};
        if (k->state == RES_GONE || strcmp(k->provider, provider) != 0 || ending_is_seen(run, provider, k->region))
            continue;
        resource_copy(&copy, k);
        vec_push(&seen->list, copy);
    }
    return r;
}

/* What an earlier list showed where this one did not look is there still, as far as is known. */
static void keep_unseen(struct run *run, struct resource_list *before) {
    for (size_t i = 0; i < before->list.len; i++) {
        struct resource *r = &before->list.items[i];
        const struct look *there = coverage_find(&run->looked, r->provider, r->region);
        bool again = there != NULL && there->checked;
        for (size_t k = 0; !again && k < run->unreadable.list.len; k++)
            again = strcmp(run->unreadable.list.items[k].id, r->id) == 0;
        if (again) resource_clear(r);
        else vec_push(&run->unreadable.list, *r);
    }
    vec_free(&before->list);
}

static int list_all(struct run *run, struct resource_list *seen, struct gp_error *err) {
    for (size_t i = 0; i < run->n_providers; i++) {
        struct provider *p = run->providers[i];
        struct gp_error why = {0};
        int r = look_for_stack(run, p, seen, &why);
        if (r == 0 || (run->ending && r != -GP_ECANCELLED)) continue;
        if (run->looking && r != -GP_ECANCELLED) { /* what was read is shown as read, the rest from memory */
            r = add_remembered(run, p->ops->name, seen, &why);
            if (r == 0) continue;
        }
        if (err != NULL) *err = why;
        return gp_wrap(err, "could not list what '%s' has at %s", run->stack.name, p->ops->name);
    }
    return 0;
}

int reconcile_list(struct run *run, struct resource_list *seen, struct gp_error *err) {
    struct resource_list before = run->unreadable;
    run->unreadable = (struct resource_list){0};
    int r = list_all(run, seen, err);
    keep_unseen(run, &before);
    if (r == 0) look_report(run);
    return r;
}

static int is_open(struct run *run, int64_t id, bool *ret, struct gp_error *err) {
    struct intent_list open = {0};
    int r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &open, err);
    *ret = false;
    for (size_t i = 0; i < open.list.len; i++) *ret = *ret || open.list.items[i].id == id;
    intent_list_clear(&open);
    return r;
}

/* A replay that the cloud refuses made nothing, and that settles it too. */
static int replay(struct run *run, const struct intent *in, struct gp_error *err) {
    struct gp_error why = {0};
    bool open = true;
    int r = launch_replay(run, in, &why);
    if (r == 0) return 0;
    if (is_open(run, in->id, &open, NULL) != 0 || open) {
        if (err != NULL) *err = why;
        return r;
    }
    run_event(run, -1, NODE_LAUNCHING, EVENT_WARN, "settle", "it made nothing: %s", why.msg);
    return 0;
}

static bool all_there(const struct run *run, const struct intent *in) {
    bool all = true;
    for (int s = in->slot_first; s < in->slot_first + in->slot_count; s++)
        all = all && s >= 0 && s < run->n_nodes && run->nodes[s].exists;
    return all;
}

/* A launch for another spec is never repeated: it would buy what nobody asks for any more. It is looked for as
 * long as a list may lag; what comes of it later is a second machine, which `up` and gc end. */
static int settle_by_listing(struct run *run, const struct intent *in, struct gp_error *err) {
    int64_t until = clock_deadline(run_settle_ms(run));
    run_event(run, -1, NODE_LAUNCHING, EVENT_WARN, "settle",
              "a launch of nodes %d..%d for an earlier spec has no known outcome: it is not repeated, but looked for",
              in->slot_first, in->slot_first + in->slot_count - 1);
    for (;;) {
        int r = reconcile(run, err);
        if (r != 0) return r;
        if (all_there(run, in))
            return gp_fail(err, GP_EUSAGE,
                           "'%s': nodes %d..%d were launched for an earlier spec: 'gpuprov down %s' "
                           "first, then 'gpuprov up'",
                           run->stack.name, in->slot_first, in->slot_first + in->slot_count - 1, run->stack.name);
        if (clock_left_ms(until) == 0) break;
        r = gp_sleep(run_pause_ms(run), &run->e->cancel, err);
        if (r != 0) return r;
    }
    return journal_intent_end(run->e->journal, in->id, INTENT_TOMBSTONE, TEARDOWN_NOTE, err);
}

static int settle_launch(struct run *run, const struct intent *in, struct gp_error *err) {
    if (all_there(run, in)) return journal_intent_end(run->e->journal, in->id, INTENT_DONE, "found by tags", err);
    bool same_spec = in->spec_hash != NULL && str_eq(in->spec_hash, run->spec->hash);
    if (!same_spec) return settle_by_listing(run, in, err);
    if (clock_wall_s() - in->created_s < INTENT_REPLAY_MAX_AGE_S) return replay(run, in, err);
    run_event(run, -1, NODE_LAUNCHING, EVENT_WARN, "settle",
              "an old launch of nodes %d..%d has no known outcome; it is too old to repeat: 'gpuprov gc' "
              "looks for it",
              in->slot_first, in->slot_first + in->slot_count - 1);
    return journal_intent_end(run->e->journal, in->id, INTENT_TOMBSTONE, "too old", err);
}

int reconcile_settle(struct run *run, struct gp_error *err) {
    struct intent_list open = {0};
    int r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &open, err);
    for (size_t i = 0; r == 0 && i < open.list.len; i++) {
        const struct intent *in = &open.list.items[i];
        /* named things: the provider finds them by name, so a listing settles them */
        r = in->kind != RES_INSTANCE
                ? journal_intent_end(run->e->journal, in->id, INTENT_DONE, "settled by listing", err)
                : settle_launch(run, in, err);
    }
    intent_list_clear(&open);
    return r;
}

/* A machine that the journal saw made a moment ago and the cloud does not list yet. */
static int not_listed_yet(struct run *run, const struct resource_list *seen, bool *ret, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    *ret = false;
    if (run->stack.uid == NULL) return 0;
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    for (size_t i = 0; r == 0 && i < known.list.len; i++) {
        const struct resource *k = &known.list.items[i];
        bool recent = k->created_s == 0 || run_cloud_s(run, k->provider) - k->created_s < LAG_MAX_AGE_S;
        if (!is_node(k) || k->state == RES_GONE || !recent || !ending_is_seen(run, k->provider, k->region)) continue;
        bool there = false;
        for (size_t s = 0; s < seen->list.len; s++) there = there || strcmp(seen->list.items[s].id, k->id) == 0;
        *ret = *ret || !there;
    }
    return r;
}

/* One list without a machine proves nothing: it is read again for as long as the list may lag. */
static int list_until_settled(struct run *run, struct resource_list *seen, struct gp_error *err) {
    int64_t until = clock_deadline(run_settle_ms(run));
    for (;;) {
        bool lags = false;
        int r = reconcile_list(run, seen, err);
        if (r == 0 && run->lock_fd >= 0) r = not_listed_yet(run, seen, &lags, err);
        if (r != 0 || !lags || clock_left_ms(until) == 0) return r;
        r = gp_sleep(run_pause_ms(run), &run->e->cancel, err);
        if (r != 0) return r;
        resource_list_clear(seen);
    }
}

int reconcile(struct run *run, struct gp_error *err) {
    int r = recall(run, err);
    GP_AUTO_RESOURCES struct resource_list seen = {0};
    if (r == 0) r = recall_providers(run, err);
    if (r == 0) r = recall_nodes(run, err);
    if (r == 0) r = list_until_settled(run, &seen, err);
    return r == 0 ? reconcile_listing(run, &seen, err) : r;
}
