/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a stack may continue, takes its identity and claim, and records it: the steps between the first list
 * and the first launch. Runs in the verb's thread, under the stack's lock. */
#include "base/gp_base.h"

#include "engine/stack/claim.h"

#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/stack/adopt.h"
#include "engine/stack/deadline.h"
#include "engine/stack/forget.h"
#include "engine/stack/reconcile.h"
#include "engine/stack/teardown.h"
#include "engine/trust/trust.h"

#define ADOPTED_TTL_S 60 /* rounding and clocks: a smaller difference is none */

static int64_t cloud_now_s(const struct run *run) { return clock_wall_s() + run->home->clock_skew_s; }

static bool is_expired(const struct run *run) {
    return run->stack.uid != NULL && run->stack.expires_s != 0 && cloud_now_s(run) >= run->stack.expires_s;
}

static bool allows(const struct spec_offer *o, const struct resource *r) {
    return str_eq(o->provider, r->provider) && (o->regions.n == 0 || strv_has(&o->regions, r->region)) &&
           (o->instance_type == NULL || r->instance_type[0] == '\0' || str_eq(o->instance_type, r->instance_type));
}

/* Without the spec of the launch, the machines themselves show where they are and what they are. */
static int fits_machines(struct run *run, struct gp_error *err) {
    run->launch_unknown = !str_eq(run->stack.spec_hash, run->spec->hash);
    for (int i = 0; run->launch_unknown && i < run->n_nodes; i++) {
        const struct resource *r = &run->nodes[i].res;
        bool fits = !run->nodes[i].exists;
        for (size_t k = 0; k < run->spec->offers.len && !fits; k++) fits = allows(&run->spec->offers.items[k], r);
        if (!fits)
            return gp_fail(err, GP_EUSAGE,
                           "'%s' was launched with another spec: no offer of this one allows node %d, which is %s%s%s "
                           "%s: correct 'offers', or run 'gpuprov down %s', then 'gpuprov up'",
                           run->stack.name, i, r->provider, r->instance_type[0] != '\0' ? " " : "", r->instance_type,
                           r->region, run->stack.name);
    }
    return 0;
}

/* The machines of a running stack cannot be changed, so the spec must have the keys that they were launched with. */
int claim_same_machines(struct run *run, struct gp_error *err) {
    GP_AUTO_FREE char *old = NULL;
    struct stack known = {0};
    struct gp_error why = {0};
    int r = journal_stack_get(run->e->journal, run->owner, run->stack.name, &known, &old, &why);
    stack_clear(&known);
    spec_changes_clear(&run->changes);
    run->launch_unknown = false;
    if (r != 0 || old == NULL || old[0] == '\0') return fits_machines(run, err);
    spec_changes_find(old, run->spec, &run->changes);
    const struct spec_change *refused = spec_changes_refused(&run->changes);
    if (refused == NULL) return 0;
    GP_AUTO_STR struct str text = {0};
    spec_change_text(refused, &text);
    return gp_fail(err, GP_EUSAGE,
                   "'%s' was launched with another '%s', and nodes cannot be changed in place (%s): run 'gpuprov down "
                   "%s', then 'gpuprov up'",
                   run->stack.name, refused->key, text.s, run->stack.name);
}

/* ttl_only: without the limits that leave the deadline where it is. */
static bool deadline_changed(const struct run *run, bool ttl_only) {
    for (size_t i = 0; i < run->changes.list.len; i++)
        if (run->changes.list.items[i].effect == SPEC_DEADLINE &&
            (!ttl_only || str_eq(run->changes.list.items[i].key, "limits.ttl")))
            return true;
    if (run->changes.list.len > 0 || str_eq(run->stack.spec_hash, run->spec->hash)) return false;
    /* the journal does not have the earlier spec: its ttl follows from the times of the stack */
    const struct stack *s = &run->stack;
    return s->created_s > 0 && s->expires_s > 0 &&
           llabs(s->expires_s - s->created_s - run->spec->ttl_ms / 1000) > ADOPTED_TTL_S;
}

/* Sets the deadline that the spec's ttl gives to a running stack. */
static int new_deadline(struct run *run, struct gp_error *err) {
    char old[40], now[40], ttl[32];
    run->moved_expires_s = 0;
    if (!deadline_changed(run, false)) return 0;
    int64_t from_s = run->stack.created_s > 0 ? run->stack.created_s : cloud_now_s(run);
    int64_t expires_s = deadline_changed(run, true) ? from_s + run->spec->ttl_ms / 1000 : run->stack.expires_s;
    const struct provider_ops *fixed = deadline_cannot_move(run);
    time_format_utc(old, sizeof old, run->stack.expires_s);
    time_format_utc(now, sizeof now, expires_s);
    duration_format(ttl, sizeof ttl, run->spec->ttl_ms);
    run->keeps_deadline = fixed != NULL && run->changes.list.len == 0; /* another journal has the earlier spec */
    if (run->keeps_deadline) return 0;
    if (fixed != NULL)
        return gp_fail(
            err, GP_EUSAGE,
            "limits.ttl %s would move the deadline of '%s' from %s to %s, and %s cannot move the deadline of "
            "running nodes: restore the earlier ttl, or run 'gpuprov down %s' first",
            ttl, run->stack.name, old, now, fixed->name, run->stack.name);
    if (expires_s <= cloud_now_s(run))
        return gp_fail(
            err, GP_EUSAGE,
            "limits.ttl %s would move the deadline of '%s' to %s, which has passed: set a longer ttl, or run "
            "'gpuprov down %s'",
            ttl, run->stack.name, now, run->stack.name);
    run->moved_expires_s = expires_s;
    return 0;
}

/* A stack with machines stays in the unit that its tags name, and in no other. */
static int check_unit(const struct run *run, struct gp_error *err) {
    const char *wanted = run->e->opts.unit, *has = run->stack.unit;
    if (wanted == NULL || has == NULL || has[0] == '\0' || str_eq(wanted, has)) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "'%s' belongs to the unit '%s', not to '%s': choose another name in the spec, or run 'gpuprov down "
                   "%s' first",
                   run->stack.name, has, wanted, run->stack.name);
}

bool claim_has_no_unit(const struct run *run, char *dst, size_t n) {
    const char *wanted = run->e->opts.unit, *has = run->stack.unit;
    bool tagless = run->home != NULL && run->home->ops->lent; /* hosts have no tags */
    if (wanted == NULL || tagless || !run_any_exists(run) || (has != NULL && has[0] != '\0')) return false;
    snprintf(dst, n,
             "the nodes were launched outside of the unit '%s': 'up --prune' will not take them down until they were "
             "destroyed and launched again",
             wanted);
    return true;
}

static int not_continued(const struct run *run, struct gp_error *err) {
    return gp_fail(err, GP_EBUSY, "'%s' was destroyed, or its deadline has passed: nothing was launched again",
                   run->stack.name);
}

/* Another run may have destroyed the stack since, and launched it again. */
static int check_continued(const struct run *run, struct gp_error *err) {
    const char *wanted = run->e->continues;
    bool same = wanted == NULL || (str_eq(run->stack.uid, wanted) && !is_expired(run));
    return same ? 0 : not_continued(run, err);
}

/* What `up` launches or proves gets the stack's deadline, with a proof. It must not be one that others wrote. */
static int check_deadline(const struct run *run, struct gp_error *err) {
    const char *name = run->stack.name;
    bool any = false; /* unproven nodes are shown by `plan`, and `up` does not work with them */
    for (int i = 0; i < run->n_nodes; i++) any = any || (run->nodes[i].exists && run->nodes[i].res.ours != OURS_NOT);
    if (!any || run->stack.expires_s != 0 || run->home == NULL || run->home->ops->lent) return 0;
    return gp_fail(
        err, GP_EUSAGE,
        "the deadline of '%s' is not known: this journal does not have it, and no node has a tag that proves "
        "it, so somebody has edited the tags: 'gpuprov extend %s TIME' sets it, 'gpuprov down %s' destroys "
        "the nodes",
        name, name, name);
}

int claim_may_go_on(struct run *run, struct gp_error *err) {
    int c = check_continued(run, err);
    if (c != 0 || !run_any_exists(run)) return c;
    int u = check_unit(run, err);
    if (u == 0) u = check_deadline(run, err);
    if (u != 0) return u;
    if (is_expired(run))
        return gp_fail(err, GP_EUSAGE, "the deadline of '%s' has passed: run 'gpuprov down %s' first", run->stack.name,
                       run->stack.name);
    int r = claim_same_machines(run, err);
    return r == 0 ? new_deadline(run, err) : r;
}

bool claim_keeps_deadline(const struct run *run, char *dst, size_t n) {
    char when[40];
    if (!run->keeps_deadline) return false;
    time_format_utc(when, sizeof when, run->stack.expires_s);
    snprintf(dst, n, "the deadline stays %s: limits.ttl applies after 'gpuprov down' and 'gpuprov up'", when);
    return true;
}

bool claim_launch_unknown(const struct run *run, char *dst, size_t n) {
    if (!run->launch_unknown) return false;
    snprintf(dst, n,
             "the nodes were launched with another spec, which this journal does not have: only their provider, region "
             "and instance type were compared with this one");
    return true;
}

bool claim_keeps_ready(const struct run *run) {
    if (str_eq(run->stack.spec_hash, run->spec->hash)) return true;
    bool keeps = run->changes.list.len > 0;
    for (size_t i = 0; i < run->changes.list.len; i++)
        keeps = keeps && spec_effect_keeps_ready(run->changes.list.items[i].effect);
    return keeps;
}

int claim_retire_expired(struct run *run, struct finding *found, struct gp_error *err) {
    if (!is_expired(run)) return 0;
    if (run->unproven.list.len > 0)
        return gp_fail(
            err, GP_EEXISTS,
            "the stack '%s' is past its deadline, and has %s, which this machine cannot prove to be of it: run "
            "'gpuprov down %s' first, or choose another name",
            run->stack.name, run->unproven.list.items[0].id, run->stack.name);
    run_event(run, -1, NODE_PLANNED, EVENT_INFO, "reconcile",
              "destroying the resources of the expired stack '%s' first", run->stack.name);
    struct down_result gone = {0};
    int r = teardown(run, &gone, err);
    down_result_clear(&gone);
    if (r == 0 && run->stack.uid != NULL)
        r = gp_fail(err, GP_EENV,
                    "the resources of the expired stack '%s' are not gone yet: run 'gpuprov down "
                    "%s', or choose another name",
                    run->stack.name, run->stack.name);
    resource_list_clear(&run->others);
    finding_clear(found);
    return r;
}

static bool is_listed(const struct run *run) {
    for (size_t i = 0; i < run->others.list.len; i++) {
        const struct resource *r = &run->others.list.items[i];
        if (r->claim && str_eq(r->uid, run->stack.uid)) return true;
    }
    return false;
}

/* Whether a machine of the stack is listed, running or not, or a launch of it has no known result. Its claim alone does
 * not tell: anybody who may delete it could make them nobody's. */
static int lives_on(const struct run *run, bool *ret, struct gp_error *err) {
    struct intent_list open = {0};
    *ret = false;
    for (size_t i = 0; i < run->others.list.len; i++) {
        const struct resource *r = &run->others.list.items[i];
        *ret = *ret || (resource_is_machine(r) && r->ours != OURS_NOT && r->state != RES_GONE &&
                        str_eq(r->uid, run->stack.uid));
    }
    if (*ret || run->stack.uid == NULL) return 0;
    int r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &open, err);
    for (size_t i = 0; i < open.list.len; i++) *ret = *ret || intent_launches(&open.list.items[i]);
    intent_list_clear(&open);
    return r;
}

/* Begins a new stack with its full ttl. region: that of its claim; NULL: the spec's. */
static void begin_stack(struct run *run, const char *region) {
    const struct spec_offer *first = &run->spec->offers.items[0];
    for (size_t i = run->spec->offers.len; i-- > 0;)
        if (strcmp(run->spec->offers.items[i].provider, run->home->ops->name) == 0) first = &run->spec->offers.items[i];
    int64_t now = cloud_now_s(run);
    const char *unit = run->e->opts.unit != NULL ? run->e->opts.unit : run->stack.unit;
    struct stack s = {.owner = xstrdup(run->owner),
                      .unit = xstrdup(unit),
                      .name = xstrdup(run->spec->name),
                      .spec_hash = xstrdup(run->spec->hash),
                      .provider = xstrdup(run->home->ops->name),
                      .region = xstrdup(region != NULL         ? region
                                        : first->regions.n > 0 ? first->regions.v[0]
                                                               : ""),
                      .created_s = now,
                      .expires_s = now + run->spec->ttl_ms / 1000};
    stack_clear(&run->stack);
    run->stack = s;
}

/* Applies the keys that may change while machines run: who may connect to them, and their deadline. A provider also
 * completes machines of a launch that was cut here: their addresses, and a deadline that nobody read back. */
static int apply_to_machines(struct run *run, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    char when[40];
    int r = 0;
    if (run->moved_expires_s != 0) run->stack.expires_s = run->moved_expires_s;
    for (int i = 0; i < run->n_nodes; i++)
        if (run->nodes[i].exists) resource_list_add(&known, &run->nodes[i].res);
    for (size_t i = 0; i < run->others.list.len; i++) {
        const struct resource *o = &run->others.list.items[i];
        bool unproven = resource_is_machine(o) && o->ours == OURS_NOT; /* it gets no address, and no right */
        if (!unproven) resource_list_add(&known, o);
    }
    for (size_t i = 0; r == 0 && i < run->providers.len; i++) {
        struct prepare_req req = {.stack = &run->stack, .spec = run->spec, .known = &known};
        r = run->providers.items[i]->ops->prepare(run->providers.items[i], &req, err);
    }
    for (int i = 0; i < run->n_nodes; i++) /* so that the bootstrap proves it */
        for (size_t k = 0; run->nodes[i].exists && k < known.list.len; k++)
            if (resource_same(&known.list.items[k], &run->nodes[i].res))
                run->nodes[i].res.ends_itself = known.list.items[k].ends_itself;
    if (r == 0 && run->moved_expires_s != 0) r = deadline_tag(run, err);
    if (r != 0 || run->moved_expires_s == 0) return r;
    run->stack.moving_s = 0; /* the journal follows */
    time_format_utc(when, sizeof when, run->stack.expires_s);
    run_event(run, -1, NODE_PLANNED, EVENT_INFO, "ttl", "the deadline is %s now", when);
    return 0;
}

/* Whether this journal has nothing of the claim that the run goes on with. */
static int is_anothers(const struct run *run, bool *ret, struct gp_error *err) {
    struct intent_list all = {0};
    int r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_DONE | 1u << INTENT_OPEN, &all, err);
    *ret = r == 0 && all.list.len == 0;
    intent_list_clear(&all);
    return r;
}

int claim_take(struct run *run, struct gp_error *err) {
    struct provider *home = run->home;
    if (run_any_exists(run)) return apply_to_machines(run, err);
    GP_AUTO_FREE char *before = xstrdup(run->stack.uid);
    GP_AUTO_FREE char *region = xstrdup(before != NULL ? run->stack.region : NULL);
    bool claimed = !home->ops->unique_claim || is_listed(run), lives = false;
    int r = lives_on(run, &lives, err);
    if (r != 0) return r;
    bool known = before != NULL && (claimed || lives);
    int64_t created_s = run->stack.created_s, expires_s = run->stack.expires_s;
    bool continued = run->e->continues != NULL;
    if (continued && !known) return not_continued(run, err);
    begin_stack(run, region); /* without machines the spec decides, not a claim */
    if (continued) {
        run->stack.created_s = created_s;
        run->stack.expires_s = expires_s;
    }
    if (known) run->stack.uid = xstrdup(before);
    struct prepare_req req = {.stack = &run->stack, .spec = run->spec, .further = known && !claimed};
    r = home->ops->prepare(home, &req, err);
    if (r != 0) return gp_wrap(err, "could not claim '%s' at %s", run->spec->name, home->ops->name);
    if (trust_is_of_another(run, run->stack.uid))
        return gp_fail(err, GP_EEXISTS,
                       "the claim of '%s' at %s has the uid of another stack of this journal (%s), so somebody copied "
                       "its tags: remove that claim in the cloud's console, or choose another name",
                       run->stack.name, home->ops->name, run->stack.uid);
    if (continued && !str_eq(before, run->stack.uid)) return not_continued(run, err);
    if (known && !str_eq(before, run->stack.uid))
        return gp_fail(
            err, GP_EEXISTS,
            "'%s' has a second claim at %s, with the uid %s instead of %s: remove the one that is not yours in "
            "the cloud's console, or choose another name",
            run->spec->name, home->ops->name, run->stack.uid, before);
    if (home->ops->unique_claim) r = is_anothers(run, &run->shares_claim, err);
    if (r == 0 && run->shares_claim && !known && run->spec->access.key == NULL)
        r = gp_fail(err, GP_EBUSY,
                    "another run has just made the claim of '%s' at %s, and its login key is not here: nothing was "
                    "launched; choose another name, or set access.key to a key that both have",
                    run->stack.name, home->ops->name);
    if (r == 0 && before != NULL && !str_eq(before, run->stack.uid)) r = forget_ended(run, before, err);
    if (r == 0 && is_expired(run))
        r = gp_fail(err, GP_EUSAGE, "the deadline of '%s' has passed: run 'gpuprov down %s' first", run->stack.name,
                    run->stack.name);
    return r;
}

/* Nodes that were validated for another spec are bootstrapped and validated again. */
static int begin_again(struct run *run, struct gp_error *err) {
    int r = 0;
    for (int i = 0; r == 0 && i < run->n_nodes; i++) {
        if (!run->nodes[i].exists) continue;
        resource_set(&run->nodes[i].rec.boot_id, "");
        r = run_node_restart(&run->nodes[i], err);
    }
    char note[CLAIM_NOTE];
    if (r == 0 && claim_launch_unknown(run, note, sizeof note))
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "reconcile", "%s", note);
    if (r == 0 && claim_keeps_deadline(run, note, sizeof note))
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "ttl", "%s", note);
    return r;
}

int claim_remember_spec(struct run *run, struct gp_error *err) {
    free(run->stack.spec_hash);
    run->stack.spec_hash = xstrdup(run->spec->hash);
    GP_AUTO_FREE char *canonical = spec_canonical(run->spec);
    return journal_stack_put(run->e->journal, &run->stack, canonical, err);
}

int claim_remember(struct run *run, struct gp_error *err) {
    int r = claim_keeps_ready(run) ? 0 : begin_again(run, err);
    return r == 0 ? claim_remember_spec(run, err) : r;
}

/* Only a claim from an intent in this journal is ours to remove. */
static int is_ours(struct run *run, bool *ret, struct gp_error *err) {
    struct intent_list all = {0};
    int r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_DONE | 1u << INTENT_OPEN, &all, err);
    *ret = !run->home->ops->unique_claim;
    bool launching = false;
    for (size_t i = 0; i < all.list.len; i++) {
        const struct intent *in = &all.list.items[i];
        bool machine = in->kind == RES_INSTANCE || in->kind == RES_HOST;
        *ret = *ret || !machine;
        launching = launching || (machine && in->state == INTENT_OPEN);
    }
    *ret = *ret && !launching;
    intent_list_clear(&all);
    return r;
}

/* They may be another run's nodes. Those that end already are waited for. */
static bool any_unproven(const struct run *run) {
    bool any = false;
    for (size_t i = 0; i < run->unproven.list.len; i++) any = any || run->unproven.list.items[i].state != RES_STOPPING;
    return any;
}

void claim_take_back(struct run *run) {
    struct down_result gone = {0};
    struct gp_error why = {0};
    bool ours = false;
    if (run->stack.uid == NULL || run_any_exists(run) || gp_cancelled(&run->e->cancel)) return;
    int r = is_ours(run, &ours, &why);
    if (r == 0 && ours) r = adopt_stack(run, NULL, &why); /* another run may have launched under it meanwhile */
    bool empty = !run_any_exists(run) && !any_unproven(run);
    if (r == 0 && ours && empty) r = teardown(run, &gone, &why);
    if (r != 0) run_event(run, -1, NODE_ENDING, EVENT_WARN, "claim", "%s", why.msg);
    down_result_clear(&gone);
}
