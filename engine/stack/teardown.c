/* SPDX-License-Identifier: Apache-2.0 */
/* Destroys a stack and verifies it: nodes first, then the resources that they used, the claim last. A resource is gone
 * if two lists apart do not have it. A launch with unknown outcome is searched for as long as the list may lag. */
#include "base/gp_base.h"

#include "engine/stack/teardown.h"

#include "engine/internal.h"
#include "engine/run/ending.h"
#include "engine/run/look.h"
#include "engine/run/run_event.h"
#include "engine/run/run_provider.h"
#include "engine/stack/destroy.h"
#include "engine/stack/forget.h"
#include "engine/trust/identity.h"
#include "engine/trust/trust.h"

#define GROUPS_MS (10 * 60 * 1000)
#define TRIES 5 /* of a list that fails for a while, in a row */

static bool alive(const struct resource *r) { return r->state != RES_GONE; }

struct round {
    int machines, others, claims; /* not gone yet */
    bool lives;                   /* machines are there that are not this teardown's: what they use stays */
};

static struct round count(const struct run *run, const struct resource_list *seen) {
    struct round n = {0};
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        if (alive(r) && resource_is_machine(r) && str_eq(r->uid, run->stack.uid) && !destroy_is_ours(run, r))
            n.lives = true;
        if (!alive(r) || !destroy_is_ours(run, r)) continue;
        if (resource_is_machine(r)) n.machines++;
        else if (r->claim) n.claims += destroy_claim_may_go(run, r);
        else n.others++;
    }
    return n;
}

static int open_intents(struct run *run, struct intent_list *ret, struct gp_error *err) {
    if (run->stack.uid == NULL) return 0;
    return journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, ret, err);
}

/* A claim is made before its stack is in the journal. So while a claim of any stack may be under way, an empty list
 * proves no absence. *ret_ms: the rest of its settling time. */
static int claims_under_way(struct run *run, int64_t *ret_ms, struct gp_error *err) {
    struct intent_list open = {0};
    *ret_ms = 0;
    int r = journal_intents(run->e->journal, NULL, 1u << INTENT_OPEN, &open, err);
    for (size_t i = 0; r == 0 && i < open.list.len; i++) {
        const struct intent *in = &open.list.items[i];
        const struct provider_ops *ops = provider_find(in->provider);
        if (!in->claim || ops == NULL) continue;
        int64_t age_ms = (clock_wall_s() - in->created_s) * 1000;
        /* one from the future: the clock was set back, so its age is not known */
        if (age_ms < ops->settle_ms) *ret_ms = GP_MAX(*ret_ms, ops->settle_ms - GP_MAX(age_ms, (int64_t)0));
    }
    intent_list_clear(&open);
    return r;
}

/* Launches that were not settled within the settling time become tombstones for gc. */
static int bury_intents(struct run *run, struct gp_error *err) {
    struct intent_list open = {0};
    int r = open_intents(run, &open, err);
    for (size_t i = 0; r == 0 && i < open.list.len; i++) {
        const struct intent *in = &open.list.items[i];
        if (!look_is_seen(run, in->provider, in->region)) continue; /* it was not searched for */
        r = journal_intent_end(run->e->journal, in->id, intent_launches(in) ? INTENT_TOMBSTONE : INTENT_DONE,
                               FORGET_NOTE, err);
    }
    intent_list_clear(&open);
    return r;
}

/* Unbilled resources that are slow to vanish get a tombstone too, so that gc destroys them later. */
static int leave_to_gc(struct run *run, const struct down_result *ret, struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < ret->left.list.len; i++) {
        const struct resource *left = &ret->left.list.items[i];
        if (left->uid[0] == '\0' || left->billed || !look_is_seen(run, left->provider, left->region)) continue;
        struct intent in = {.uid = xstrdup(left->uid),
                            .provider = xstrdup(left->provider),
                            .region = xstrdup(left->region),
                            .zone = xstrdup(left->zone),
                            .kind = left->kind,
                            .slot_first = -1,
                            .token = xstrdup(left->id),
                            .body = xstrdup(""),
                            .offer = xstrdup(""),
                            .created_s = clock_wall_s(),
                            .deadline_s = clock_wall_s(),
                            .state = INTENT_TOMBSTONE,
                            .note = xstrdup(FORGET_NOTE)};
        r = journal_intent(run->e->journal, &in, err);
        intent_clear(&in);
    }
    return r;
}

static void report_left(struct run *run, const struct resource_list *seen, struct down_result *ret) {
    resource_list_clear(&ret->left);
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        if (alive(r) && destroy_is_ours(run, r)) resource_list_add(&ret->left, r);
    }
}

int teardown_left(const char *name, const struct down_result *ret, const struct gp_error *why, struct gp_error *err) {
    GP_AUTO_STR struct str ids = {0};
    bool billed = false;
    for (size_t i = 0; i < ret->left.list.len; i++) {
        const struct resource *r = &ret->left.list.items[i];
        billed = billed || r->billed;
        str_addf(&ids, "%s%s", ids.len ? ", " : "", r->id);
    }
    if (!billed && ret->left.list.len > 0 && why->code == GP_OK)
        return 0; /* unbilled and slow to vanish: reported by the caller, left to gc */
    return gp_fail(err,
                   billed      ? GP_EBILLED
                   : why->code ? why->code
                               : GP_EBILLED,
                   "'%s': still there: %s%s%s: repeat 'gpuprov down %s'", name, ids.s ? ids.s : "(not known)",
                   why->code ? ": " : "", why->msg, name);
}

/* Only in places that were looked at; ending_verdict reports the others. */
static bool billed_left(const struct run *run, const struct down_result *ret) {
    for (size_t i = 0; i < ret->left.list.len; i++) {
        const struct resource *r = &ret->left.list.items[i];
        if (r->billed && look_is_seen(run, r->provider, r->region)) return true;
    }
    return false;
}

/* State of one teardown between its rounds. */
struct teardown {
    struct run *run;
    struct down_result *ret;
    struct destroy_asked asked;
    struct strv absent;   /* known and not alive in the last read */
    struct strv reported; /* machines of which "gone" was printed */
    int quiet;            /* reads in a row without machines */
    int clean;            /* reads in a row without anything */
    int blind;            /* reads in a row in which a provider could not be seen */
    int64_t blind_ms;     /* when the first of them began */
    int refused;          /* rounds in a row in which every machine that is left could not be terminated */
    bool looked;          /* the first round is over */
    bool claim_seen;      /* the stack's one claim was listed */
    bool lives;           /* it ended, and the stack has other machines, with the claim and the rest */
    int64_t deadline_ms, groups_until_ms, settle_until_ms, claim_until_ms;
};

/* The journal has it from tags that it had once: without them it may be anybody's. */
static bool is_hearsay(const struct resource *r) { return resource_is_machine(r) && r->ours == OURS_NOT; }

/* Resources that the journal has and the cloud does not list may be filtered out or late. They are destroyed by their
 * ids, and the list counts only after the settling time. */
static int end_unlisted(struct teardown *t, const struct resource_list *seen, struct gp_error *err) {
    struct run *run = t->run;
    GP_AUTO_RESOURCES struct resource_list known = {0};
    if (t->looked || run->stack.uid == NULL || run->only != NULL) return 0;
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    struct resource_list missing = {0};
    for (size_t i = 0; r == 0 && i < known.list.len; i++)
        if (alive(&known.list.items[i]) && !is_hearsay(&known.list.items[i]) &&
            str_eq(known.list.items[i].stack, run->stack.name) && !resource_list_has(seen, &known.list.items[i]) &&
            look_allows(run->e, known.list.items[i].provider, known.list.items[i].region))
            vec_push(&missing.list, known.list.items[i]); /* borrowed */
    if (r == 0 && missing.list.len > 0) {
        t->settle_until_ms = clock_deadline(run_settle_ms(run));
        t->asked.unlisted = true;
        r = destroy_layer(run, &missing, DESTROY_MACHINES, &t->asked, err);
        t->asked.unlisted = false;
    }
    vec_free(&missing.list);
    t->looked = r == 0;
    return r;
}

static bool lives(const struct resource_list *seen, const struct resource *r) {
    for (size_t i = 0; i < seen->list.len; i++)
        if (resource_same(&seen->list.items[i], r) && alive(&seen->list.items[i])) return true;
    return false;
}

/* Reports a machine once: a journal that cannot be written has it alive in the next round too. */
static void report_gone(struct teardown *t, const struct resource *k) {
    if (!resource_is_machine(k) || k->slot < 0 || strv_has(&t->reported, k->id)) return;
    strv_add(&t->reported, k->id);
    run_event(t->run, k->slot, NODE_GONE, EVENT_DONE, "", "%s %s is %s", resource_kind_name(k->kind), k->id,
              k->kind == RES_HOST ? "released" : "no longer there");
}

/* Updates the journal while resources vanish. A resource is gone if two lists in a row do not have it alive; until
 * then it counts as left. */
static int note_gone(struct teardown *t, const struct resource_list *seen, bool settled, struct gp_error *err) {
    struct run *run = t->run;
    GP_AUTO_RESOURCES struct resource_list known = {0};
    struct strv absent = {0};
    struct gp_error why = {0};
    if (run->stack.uid == NULL) return 0;
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    for (size_t i = 0; r == 0 && i < known.list.len; i++) {
        const struct resource *k = &known.list.items[i];
        bool others = !str_eq(k->stack, run->stack.name); /* a stack whose uid somebody copied */
        if (others || lives(seen, k) || lives(&run->look.unreadable, k)) continue;
        if (!look_is_seen(run, k->provider, k->region)) { /* its absence from the list proves nothing */
            if (alive(k) && !resource_list_has(seen, k)) resource_list_add(&t->ret->left, k);
            continue;
        }
        strv_add(&absent, k->id);
        if (!settled || !strv_has(&t->absent, k->id)) {
            if (alive(k) && !resource_list_has(seen, k)) resource_list_add(&t->ret->left, k);
            continue;
        }
        engine_note_resource(run->e, k, false);
        if (!alive(k)) continue;
        report_gone(t, k);
        r = ending_wrote(run, journal_resource_gone(run->e->journal, k->provider, k->kind, k->id, &why), &why);
    }
    if (r != 0 && why.code != GP_OK && err != NULL) *err = why;
    strv_clear(&t->absent);
    t->absent = absent;
    return r;
}

static bool worth_repeating(const struct gp_error *e) {
    return e->code == GP_ETHROTTLED || e->code == GP_EENDPOINT || e->code == GP_EREACH || e->code == GP_ETIMEOUT ||
           e->code == GP_EPROTO || e->code == GP_ELOST || e->code == GP_EUNKNOWN;
}

/* A provider that opened and did not answer may do so in the next round. */
static bool may_heal(const struct run *run) {
    for (size_t i = 0; i < run->look.covered.list.len; i++) {
        const struct look *l = &run->look.covered.list.items[i];
        if (!l->checked && worth_repeating(&l->why)) return true;
    }
    return false;
}

/* Whether to give up on the places that could not be listed. A list has retries of its own: of a region that does not
 * answer, one takes a minute, so the time counts too. */
static bool stays_blind(const struct teardown *t) {
    return t->blind >= TRIES || !may_heal(t->run) || clock_ms() - t->blind_ms >= t->run->blind_ms;
}

/* A machine that is left alone may keep a group in use for ever. */
static bool left_alone(const struct run *run) {
    for (size_t i = 0; i < run->look.unreadable.list.len; i++)
        if (run->look.unreadable.list.items[i].billed) return true;
    return false;
}

/* Requests the termination of the machines. A provider with a place that could not be listed may refuse it for a few
 * rounds: its machines must not keep others alive. If only such machines are left, nothing more can be done. */
static int end_machines(struct teardown *t, const struct resource_list *seen, int n, struct gp_error *err) {
    int r = destroy_layer(t->run, seen, DESTROY_MACHINES, &t->asked, err);
    if (r != 0) return r;
    bool stuck = t->asked.refused >= n && !worth_repeating(&t->asked.refusal);
    t->refused = stuck ? t->refused + 1 : 0;
    if (t->refused < TRIES) return 0;
    if (err != NULL) *err = t->asked.refusal;
    return -(int)t->asked.refusal.code;
}

/* A claim that an earlier run was making may show only now, and with it the stack's uid. If it is another run's, that
 * one may be launching. */
static int take_late(struct teardown *t, const struct resource_list *seen, struct gp_error *err) {
    struct run *run = t->run;
    struct intent_list own = {0};
    char *ended = NULL;
    if (run->stack.uid != NULL || !run->takes_late) return 0;
    int r = identity_take(run, seen, &ended, err);
    free(ended);
    if (r != 0 || run->stack.uid == NULL) return r;
    r = journal_intents(run->e->journal, run->stack.uid, ~0u, &own, err);
    if (own.list.len == 0) t->settle_until_ms = clock_deadline(run_settle_ms(run));
    t->quiet = t->clean = 0;
    intent_list_clear(&own);
    return r;
}

/* One round: lists, then destroys the layer that may go now. *ret_done: nothing is left to do. */
static int teardown_round(struct teardown *t, bool *ret_done, struct gp_error *err) {
    struct run *run = t->run;
    GP_AUTO_RESOURCES struct resource_list seen = {0};
    int64_t began_ms = clock_ms();
    int r = look_for_run(run, &seen, err);
    if (r == 0) r = take_late(t, &seen, err);
    if (r == 0) r = end_unlisted(t, &seen, err);
    if (r != 0) return r;
    report_left(run, &seen, t->ret);
    struct round n = count(run, &seen);
    t->claim_seen = t->claim_seen || n.claims > 0;
    t->blind = coverage_whole(&run->look.covered) ? 0 : t->blind + 1;
    if (t->blind == 1) t->blind_ms = began_ms;
    bool settled = clock_left_ms(t->settle_until_ms) == 0 && (t->claim_seen || clock_left_ms(t->claim_until_ms) == 0);
    r = note_gone(t, &seen, settled, err);
    if (r != 0) return r;
    t->quiet = n.machines == 0 ? t->quiet + 1 : 0;
    t->clean = n.machines + n.others + n.claims == 0 ? t->clean + 1 : 0;
    if (n.machines > 0) {
        if (t->groups_until_ms != 0) t->groups_until_ms = 0;
        return end_machines(t, &seen, n.machines, err);
    }
    if (t->quiet < 2 || !settled) return 0;
    t->lives = *ret_done = n.lives;
    if (n.lives) return 0;
    if (t->groups_until_ms == 0)
        t->groups_until_ms = clock_deadline(left_alone(run) ? run_settle_ms(run) : (int64_t)GROUPS_MS);
    if (t->clean >= 2 || clock_left_ms(t->groups_until_ms) == 0) {
        *ret_done = t->blind == 0 || (t->blind >= 2 && stays_blind(t));
        return 0;
    }
    if (n.others > 0) return destroy_layer(run, &seen, DESTROY_OTHERS, &t->asked, err);
    if (n.claims > 0) return destroy_layer(run, &seen, DESTROY_CLAIM, &t->asked, err);
    return 0;
}

/* A young claim without intents in this journal: the journal was lost, or a run on another machine was cut or is
 * active, and a launch may be under way. Until the claim has settled, a list of machines proves no absence. An older
 * launch cannot be missed, because the cloud refuses to delete its group while a machine uses it. */
static int unremembered(struct run *run, int64_t *ret_ms, struct gp_error *err) {
    struct intent_list any = {0};
    *ret_ms = 0;
    if (run->stack.uid == NULL) return 0;
    int r = journal_intents(run->e->journal, run->stack.uid, ~0u, &any, err);
    for (size_t i = 0; r == 0 && any.list.len == 0 && i < run->others.list.len; i++) {
        const struct resource *c = &run->others.list.items[i];
        const struct provider_ops *ops = provider_find(c->provider);
        if (!c->claim || !destroy_is_ours(run, c) || ops == NULL || !ops->billed) continue;
        int64_t age_ms = GP_MAX(run_cloud_s(run, c->provider) - c->created_s, (int64_t)0) * 1000;
        *ret_ms = GP_MAX(*ret_ms, ops->settle_ms - age_ms);
    }
    intent_list_clear(&any);
    return r;
}

/* Sets how long the list may lag behind the calls of an earlier run. */
static int settling(struct teardown *t, struct gp_error *err) {
    struct run *run = t->run;
    struct intent_list open = {0};
    int r = open_intents(run, &open, err);
    bool unknown = false;
    for (size_t i = 0; i < open.list.len; i++) unknown = unknown || intent_launches(&open.list.items[i]);
    intent_list_clear(&open);
    int64_t claims_ms = 0, young_ms = 0, launch_ms = unknown ? run_settle_ms(run) : 0;
    if (r == 0) r = claims_under_way(run, &claims_ms, err);
    if (r == 0) r = unremembered(run, &young_ms, err);
    if (r == 0 && young_ms > launch_ms)
        run_event(run, -1, NODE_ENDING, EVENT_PROGRESS, "settle",
                  "the claim is young and this journal has no launch of it: searching for the launches of "
                  "another run for up to %lld s",
                  (long long)(young_ms + 999) / 1000);
    t->settle_until_ms = clock_deadline(GP_MAX(launch_ms, young_ms));
    t->claim_until_ms = clock_deadline(claims_ms);
    int64_t ms = GP_MAX(launch_ms, claims_ms);
    if (r == 0 && ms > 0)
        run_event(run, -1, NODE_ENDING, EVENT_PROGRESS, "settle",
                  "an earlier run was cut while it %s: searching for resources of '%s' for up to %lld s",
                  unknown ? "launched" : "claimed a name", run->stack.name, (long long)(ms + 999) / 1000);
    return r;
}

int teardown(struct run *run, struct down_result *ret, struct gp_error *err) {
    struct teardown t = {.run = run, .ret = ret, .deadline_ms = clock_deadline(run->end_ms)};
    struct gp_error why = {0};
    int r = settling(&t, &why);
    bool done = false;
    int failures = 0;
    if (!run->own_uid) trust_uid(run, NULL); /* gc comes without a reconcile() */
    while (r == 0 && !done) {
        gp_error_clear(&why);
        r = teardown_round(&t, &done, &why);
        if (r != 0 && worth_repeating(&why) && ++failures < TRIES) {
            run_event(run, -1, NODE_ENDING, EVENT_WARN, "destroy", "%s: trying again", why.msg);
            gp_error_clear(&why);
            r = 0;
        } else if (r == 0) {
            failures = 0;
        }
        if (r == 0 && !done && clock_left_ms(t.deadline_ms) == 0)
            r = gp_fail(&why, GP_ETIMEOUT, "not destroyed within %d minutes", (int)(run->end_ms / 60000));
        if (r == 0 && !done) r = gp_sleep(run_pause_ms(run), &run->e->cancel, &why);
    }
    ret->destroyed = (int)t.asked.ids.n - t.asked.released;
    ret->released = t.asked.released;
    strv_copy(&ret->asked, &t.asked.ids);
    strv_clear(&t.asked.ids);
    strv_clear(&t.absent);
    strv_clear(&t.reported);
    bool all = run->only == NULL;
    if (r == 0 && all) r = ending_wrote(run, bury_intents(run, &why), &why);
    if (r == 0 && all) r = ending_wrote(run, leave_to_gc(run, ret, &why), &why);
    if (r == 0 && all && ret->left.list.len == 0 && coverage_whole(&run->look.covered))
        r = ending_wrote(run, forget_stack(run, &why), &why);
    if (r == 0 && !billed_left(run, ret)) r = ending_verdict(run, ret, err);
    if (r != 0 && why.code == GP_OK) return r;
    if (r == 0 && t.lives) return 0;
    if (r != 0 || ret->left.list.len > 0) return teardown_left(run->stack.name, ret, &why, err);
    return 0;
}
