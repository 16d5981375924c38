/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the uid of a stack (identity.h). Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/trust/identity.h"

#include "engine/run/ending.h"
#include "engine/run/look.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/trust/proof_key.h"
#include "engine/trust/trust.h"

static bool counts(const struct resource *r) { return r->state != RES_GONE && r->uid[0] != '\0'; }

/* A key that was loaded for another uid's folder is not this one's. */
static void forget_key(struct run *run) {
    if (run->spec != NULL && run->spec->access.key != NULL) return;
    proof_key_clear(&run->proof);
    gp_error_clear(&run->no_proof);
    secret_clear(&run->login.key);
    free(run->login.pubkey);
    run->login.pubkey = NULL;
}

/* Whether a machine of that uid proves that this run's login key is its stack's. A key that was made for the stack is
 * in a folder by its uid. */
static bool is_proven(struct run *run, const struct resource *r) {
    if (!resource_is_machine(r) || r->proof[0] == '\0') return false;
    struct stack was = run->stack; /* borrowed */
    run->stack.uid = r->uid;
    forget_key(run);
    bool proven = run_has_proof_key(run) && proof_machine_holds(&run->proof, r);
    forget_key(run); /* nobody else may log in with the key of a stack that is not this one */
    run->stack = was;
    return proven;
}

static int rank(struct run *run, const struct resource *r) { return is_proven(run, r) ? 2 : r->claim; }

/* Borrowed; NULL: nothing is listed. */
static const struct resource *choose(struct run *run, const struct resource_list *seen) {
    const struct resource *best = NULL;
    int best_rank = -1;
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        if (!counts(r) || trust_is_of_another(run, r->uid)) continue;
        int its = rank(run, r);
        if (its <= best_rank) continue;
        best = r;
        best_rank = its;
    }
    return best;
}

/* Whether the stack of that uid is still there: its claim, or a machine that this journal knows for its own. */
static bool is_listed(const struct resource_list *seen, const char *uid) {
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        bool shows = r->claim || (resource_is_machine(r) && r->ours != OURS_NOT);
        if (counts(r) && shows && strcmp(r->uid, uid) == 0) return true;
    }
    return false;
}

/* The claim of that uid has the times and the home of the stack. */
static const struct resource *claim_of(const struct resource_list *seen, const struct resource *r) {
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *c = &seen->list.items[i];
        if (counts(c) && c->claim && strcmp(c->uid, r->uid) == 0) return c;
    }
    return r;
}

/* Only this machine's own list does. At a cloud it comes from a machine's proof (deadline.c), or is not known. */
static bool tells_deadline(const struct resource *from) {
    const struct provider_ops *ops = provider_find(from->provider);
    return ops != NULL && (ops->own_list || ops->lent);
}

static bool is_unseen(const struct run *run, const struct resource *k) {
    const struct provider_ops *ops = provider_find(k->provider);
    int64_t lag_s = ops != NULL ? ops->settle_ms / 1000 : 0;
    return !look_is_seen(run, k->provider, k->region) || (k->created_s > 0 && clock_wall_s() - k->created_s <= lag_s);
}

/* Whether the stack of that uid may be where the list does not show it: then its absence proves nothing. */
static bool may_be_unseen(const struct run *run, const char *uid) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    struct intent_list open = {0};
    const char *home = run->stack.provider, *region = run->stack.region;
    bool unseen = home != NULL && home[0] != '\0' && !look_is_seen(run, home, region != NULL ? region : "");
    unseen = unseen || journal_resources(run->e->journal, uid, &known, NULL) != 0 ||
             journal_intents(run->e->journal, uid, 1u << INTENT_OPEN, &open, NULL) != 0;
    for (size_t i = 0; i < known.list.len; i++)
        unseen = unseen || (counts(&known.list.items[i]) && is_unseen(run, &known.list.items[i]));
    for (size_t i = 0; i < open.list.len; i++) { /* what an unsettled launch made may show later */
        const struct intent *in = &open.list.items[i];
        unseen = unseen || intent_launches(in) || !look_is_seen(run, in->provider, in->region);
    }
    intent_list_clear(&open);
    return unseen;
}

int identity_take(struct run *run, const struct resource_list *seen, char **ret_ended, struct gp_error *err) {
    if (run->stack.uid != NULL && is_listed(seen, run->stack.uid)) return 0;
    const struct resource *from = choose(run, seen);
    if (from == NULL) return 0;
    GP_AUTO_FREE char *before = xstrdup(run->stack.uid);
    from = claim_of(seen, from);
    if (before != NULL && (!from->claim || may_be_unseen(run, before))) return 0;
    forget_key(run);
    if (before != NULL)
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "reconcile",
                  "uid of '%s': the journal has %s, the cloud has %s: continuing with the cloud's", run->stack.name,
                  before, from->uid);
    struct stack adopted = {.owner = xstrdup(run->owner),
                            .name = xstrdup(run->stack.name),
                            .uid = xstrdup(from->uid),
                            .spec_hash = xstrdup(from->spec_hash),
                            .provider = xstrdup(from->provider),
                            .region = xstrdup(from->region),
                            .created_s = from->created_s,
                            .expires_s = tells_deadline(from) ? from->expires_s : 0};
    stack_clear(&run->stack);
    run->stack = adopted;
    run->takes_deadline = true; /* its machines have their own, from their create call */
    *ret_ended = GP_STEAL(before);
    if (*ret_ended != NULL) return 0; /* the journal still has its own */
    struct gp_error why = {0};
    int r = ending_wrote(run, journal_stack_put(run->e->journal, &run->stack, NULL, &why), &why);
    if (r != 0 && err != NULL) *err = why;
    return r;
}

/* Whether r has a say in the unit of the stack: its claims, or without one its machines that are not unproven. */
static bool tells_unit(const struct run *run, const struct resource *r, bool claims) {
    if (!counts(r) || !str_eq(r->uid, run->stack.uid)) return false;
    if (claims) return r->claim;
    if (!resource_is_machine(r) || r->slot < 0 || r->slot >= run->n_nodes) return false;
    const struct run_node *n = &run->nodes[r->slot];
    return n->exists && n->res.ours != OURS_NOT && strcmp(n->res.id, r->id) == 0;
}

void identity_take_unit(struct run *run, const struct resource_list *seen) {
    bool claims = false;
    const char *unit = NULL;
    for (size_t i = 0; i < seen->list.len; i++) claims = claims || tells_unit(run, &seen->list.items[i], true);
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        if (!tells_unit(run, r, claims)) continue;
        if (unit != NULL && strcmp(unit, r->unit) != 0) return; /* somebody edited a tag: it belongs to no unit */
        unit = r->unit;
    }
    if (unit != NULL && unit[0] != '\0') resource_set(&run->stack.unit, unit);
}
