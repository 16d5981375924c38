/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a stack may continue, takes its identity and claim, and records it: the steps between the first list
 * and the first launch. Runs in the verb's thread, under the stack's lock. */
#include "base/gp_base.h"

#include "engine/stack/claim.h"

#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/stack/adopt.h"
#include "engine/stack/forget.h"
#include "engine/stack/reconcile.h"
#include "engine/stack/teardown.h"

static int64_t cloud_now_s(const struct run *run) { return clock_wall_s() + run->home->clock_skew_s; }

static bool is_expired(const struct run *run) {
    return run->stack.uid != NULL && run->stack.expires_s != 0 && cloud_now_s(run) >= run->stack.expires_s;
}

/* The machines of a running stack cannot be changed, so the spec must have the keys that they were launched with. */
static int same_machines(const struct run *run, struct gp_error *err) {
    GP_AUTO_FREE char *old = NULL;
    struct stack known = {0};
    struct gp_error why = {0};
    int r = journal_stack_get(run->e->journal, run->owner, run->stack.name, &known, &old, &why);
    stack_clear(&known);
    if (r != 0 || old == NULL || old[0] == '\0') return 0;
    GP_AUTO_FREE char *changed = spec_fixed_difference(old, run->spec);
    if (changed == NULL) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "'%s' was launched with another '%s', and nodes cannot be changed in "
                   "place: run 'gpuprov down %s', then 'gpuprov up'",
                   run->stack.name, changed, run->stack.name);
}

int claim_may_go_on(const struct run *run, struct gp_error *err) {
    if (!run_any_exists(run)) return 0;
    if (is_expired(run))
        return gp_fail(err, GP_EUSAGE, "the deadline of '%s' has passed: run 'gpuprov down %s' first", run->stack.name,
                       run->stack.name);
    return same_machines(run, err);
}

int claim_retire_expired(struct run *run, struct finding *found, struct gp_error *err) {
    if (!is_expired(run)) return 0;
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

/* Begins a new stack with its full ttl. region: that of its claim; NULL: the spec's. */
static void begin_stack(struct run *run, const char *region) {
    const struct spec_offer *first = &run->spec->offers.items[0];
    for (size_t i = run->spec->offers.len; i-- > 0;)
        if (strcmp(run->spec->offers.items[i].provider, run->home->ops->name) == 0) first = &run->spec->offers.items[i];
    int64_t now = cloud_now_s(run);
    struct stack s = {.owner = xstrdup(run->owner),
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

/* Applies the keys that may change while machines run: who may connect to them. */
static int apply_to_machines(struct run *run, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    int r = 0;
    for (size_t i = 0; i < run->others.list.len; i++) {
        resource_list_add(&known, &run->others.list.items[i]);
    }
    for (size_t i = 0; r == 0 && i < run->providers.len; i++) {
        struct prepare_req req = {.stack = &run->stack, .spec = run->spec, .known = &known};
        r = run->providers.items[i]->ops->prepare(run->providers.items[i], &req, err);
    }
    return r;
}

int claim_take(struct run *run, struct gp_error *err) {
    struct provider *home = run->home;
    if (run_any_exists(run)) return apply_to_machines(run, err);
    GP_AUTO_FREE char *before = xstrdup(run->stack.uid);
    GP_AUTO_FREE char *region = xstrdup(before != NULL ? run->stack.region : NULL);
    bool known = before != NULL && (!home->ops->unique_claim || is_listed(run));
    begin_stack(run, region); /* without machines the spec decides, not a claim */
    if (known) run->stack.uid = xstrdup(before);
    struct prepare_req req = {.stack = &run->stack, .spec = run->spec};
    int r = home->ops->prepare(home, &req, err);
    if (r != 0) return gp_wrap(err, "could not claim '%s' at %s", run->spec->name, home->ops->name);
    if (before != NULL && !str_eq(before, run->stack.uid)) r = forget_ended(run, before, err);
    if (r == 0 && is_expired(run))
        r = gp_fail(err, GP_EUSAGE, "the deadline of '%s' has passed: run 'gpuprov down %s' first", run->stack.name,
                    run->stack.name);
    return r;
}

bool claim_keeps_deadline(const struct run *run, char *dst, size_t n) {
    const struct stack *s = &run->stack;
    char when[40];
    if (!run_any_exists(run) || s->created_s <= 0 || s->expires_s <= 0) return false;
    if (llabs(s->expires_s - s->created_s - run->spec->ttl_ms / 1000) <= 60) return false;
    time_format_utc(when, sizeof when, s->expires_s);
    snprintf(dst, n, "the deadline stays %s: a changed limits.ttl applies after 'gpuprov down' and 'gpuprov up'", when);
    return true;
}

/* Nodes that were validated for another spec are bootstrapped and validated again. */
static int begin_again(struct run *run, struct gp_error *err) {
    int r = 0;
    free(run->stack.spec_hash);
    run->stack.spec_hash = xstrdup(run->spec->hash);
    for (int i = 0; r == 0 && i < run->n_nodes; i++) {
        if (!run->nodes[i].exists) continue;
        resource_set(&run->nodes[i].rec.boot_id, "");
        r = run_node_restart(&run->nodes[i], err);
    }
    char note[160];
    if (r == 0 && claim_keeps_deadline(run, note, sizeof note))
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "ttl", "%s", note);
    return r;
}

int claim_remember(struct run *run, struct gp_error *err) {
    int r = str_eq(run->stack.spec_hash, run->spec->hash) ? 0 : begin_again(run, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *canonical = spec_canonical(run->spec);
    return journal_stack_put(run->e->journal, &run->stack, canonical, err);
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

void claim_take_back(struct run *run) {
    struct down_result gone = {0};
    struct gp_error why = {0};
    bool ours = false;
    if (run->stack.uid == NULL || run_any_exists(run) || gp_cancelled(&run->e->cancel)) return;
    int r = is_ours(run, &ours, &why);
    if (r == 0 && ours) r = adopt_stack(run, NULL, &why); /* another run may have launched under it meanwhile */
    if (r == 0 && ours && !run_any_exists(run)) r = teardown(run, &gone, &why);
    if (r != 0) run_event(run, -1, NODE_ENDING, EVENT_WARN, "claim", "%s", why.msg);
    down_result_clear(&gone);
}
