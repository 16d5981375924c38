/* SPDX-License-Identifier: Apache-2.0 */
/* The verb plan: the changes that `up` would make, their price, and who enforces the deadline. Queries the providers
 * and changes nothing. */
#include "base/gp_base.h"

#include "engine/plan.h"

#include "base/json.h"
#include "engine/job/seen/job_seen.h"
#include "engine/run/notify.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/stack/claim.h"
#include "engine/stack/cost.h"
#include "engine/stack/deadline.h"
#include "engine/stack/reconcile.h"
#include "engine/trust/trust.h"
#include "engine/view.h"
#include "validate/estimate.h"

#include <pthread.h>

/* Sets who enforces the deadline for the offers from `first` on. Drops and reports those that only gc would terminate,
 * unless the spec accepts that; -GP_EUSAGE if none remains. */
static int check_ends(const struct run *run, const struct provider_ops *ops, size_t first, struct offer_list *l,
                      struct gp_error *err) {
    size_t kept = first;
    for (size_t i = first; i < l->list.len; i++) {
        struct offer *o = &l->list.items[i];
        if (o->ends == ENDS_BY_PROVIDER) o->ends = ops->ends;
        if (o->ends == ENDS_GC_ONLY && run->spec->unattended != UNATTENDED_ACCEPT) {
            offer_clear(o);
            continue;
        }
        if (kept != i) l->list.items[kept] = *o;
        kept++;
    }
    size_t dropped = l->list.len - kept;
    l->list.len = kept;
    if (dropped == 0) return 0;
    struct gp_error why = {0};
    int r = gp_fail(&why, GP_EUSAGE,
                    "%s: only 'gpuprov gc' would terminate the nodes of %zu offer%s at the deadline; set "
                    "'limits: {unattended: accept}' in the spec to accept that",
                    ops->name, dropped, dropped == 1 ? "" : "s");
    why.scope = GP_SCOPE_OFFER;
    if (kept > first) { /* the others remain */
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "offers", "%s", why.msg);
        return 0;
    }
    if (err != NULL) *err = why;
    return r;
}

/* Only a later `gpuprov gc` or `down` ends such nodes, and it needs credentials then. */
static int check_credentials(const struct run *run, const struct provider *p, size_t first, struct offer_list *l,
                             struct gp_error *err) {
    int64_t now_s = run_cloud_s(run, p->ops->name), ends_s = now_s + run->spec->ttl_ms / 1000;
    char until[40];
    size_t kept = first;
    if (run_any_exists(run)) ends_s = run->moved_expires_s != 0 ? run->moved_expires_s : run->stack.expires_s;
    if (p->credentials_until_s == 0 || p->credentials_until_s >= ends_s) return 0;
    for (size_t i = first; i < l->list.len; i++) {
        if (l->list.items[i].ends == ENDS_GC_ONLY) offer_clear(&l->list.items[i]);
        else l->list.items[kept++] = l->list.items[i];
    }
    bool dropped = kept < l->list.len;
    l->list.len = kept;
    if (!dropped || kept > first) return 0;
    time_format_utc(until, sizeof until, p->credentials_until_s);
    struct gp_error why = {0};
    int r = gp_fail(&why, GP_EUSAGE,
                    "%s: the credentials of this machine end at %s, before the deadline, and only 'gpuprov gc' would "
                    "terminate the nodes: use credentials that last longer, or a shorter limits.ttl",
                    p->ops->name, until);
    why.scope = GP_SCOPE_OFFER;
    if (err != NULL) *err = why;
    return r;
}

/* A provider that does not open was already reported when the run opened its providers. */
static bool is_reported(const struct run *run, const char *provider, const struct gp_error *why) {
    const struct look *gap = coverage_find(&run->look.covered, provider, "");
    return gap != NULL && !gap->checked && str_eq(gap->why.msg, why->msg);
}

static int count_missing(const struct run *run, int *ret_first) {
    int missing = 0;
    for (int i = run->spec->nodes - 1; i >= 0; i--) {
        if (i < run->n_nodes && run->nodes[i].exists) continue;
        missing++;
        *ret_first = i;
    }
    return missing;
}

/* A provider without images has no baked one. */
static int check_baked(const struct run *run, const struct provider_ops *ops, size_t index, struct gp_error *err) {
    const struct spec_image *image = spec_effective(run->spec, index).image;
    if (ops->images != NULL || !str_eq(image->baked, BAKED_REQUIRE)) return 0;
    int r = gp_fail(err, GP_EUSAGE, "image: baked: %s: use another offer, or {baked: prefer}",
                    ops->image_refusal != NULL ? ops->image_refusal : "no images can be made there");
    if (err != NULL) err->scope = GP_SCOPE_OFFER;
    return r;
}

/* Drops the offers from `first` on that have less than the spec's `cpus`, `memory` and `disk`; -GP_EUSAGE with the
 * reasons if none remains. */
static int check_needs(const struct run *run, size_t first, struct offer_list *l, struct gp_error *err) {
    enum { SHOWN = 3 };
    GP_AUTO_STR struct str reasons = {0};
    size_t kept = first, dropped = 0;
    for (size_t i = first; i < l->list.len; i++) {
        GP_AUTO_STR struct str why = {0};
        if (offer_fits(&l->list.items[i], run->spec, &why)) {
            if (kept != i) l->list.items[kept] = l->list.items[i];
            kept++;
            continue;
        }
        if (dropped++ < SHOWN) str_addf(&reasons, "%s%s", reasons.len > 0 ? "; " : "", why.s);
        offer_clear(&l->list.items[i]);
    }
    l->list.len = kept;
    if (dropped == 0 || kept > first) return 0; /* smaller ones beside those that fit are no news */
    if (dropped > SHOWN) str_addf(&reasons, "; and %zu more", dropped - SHOWN);
    struct gp_error why = {0};
    int r = gp_fail(&why, GP_EUSAGE, "%s", reasons.s);
    why.scope = GP_SCOPE_OFFER;
    if (err != NULL) *err = why;
    return r;
}

/* The offers of one entry of the spec. */
struct answer {
    struct provider *p; /* NULL: it did not open */
    struct offer_list found;
    struct gp_error why;
    int r;
};
/* One provider with all its entries: one thread at a time may call it. */
struct question {
    const struct spec *spec;
    const struct provider *p;
    struct answer *answers; /* by entry */
    pthread_t thread;
    bool started;
};

static void *ask(void *arg) {
    const struct question *q = arg;
    for (size_t i = 0; i < q->spec->offers.len; i++) {
        struct answer *a = &q->answers[i];
        if (a->p != q->p || a->r != 0) continue;
        a->r = a->p->ops->offers(a->p, q->spec, i, &a->found, &a->why);
        offer_list_reveal(&a->found, 0);
        cost_drop_zero(a->p->ops, &a->found);
    }
    return NULL;
}

/* Queries the providers side by side; the answers are by the spec's entries, so their order is the spec's. */
static void ask_all(struct run *run, struct answer *answers) {
    size_t n = 0, len = run->spec->offers.len;
    struct question *all = xcalloc(len, sizeof *all);
    for (size_t i = 0; i < len; i++) {
        struct answer *a = &answers[i];
        bool known = false;
        a->r = run_offer_provider(run, run->spec->offers.items[i].provider, &a->p, &a->why);
        if (a->r == 0) a->r = check_baked(run, a->p->ops, i, &a->why);
        for (size_t k = 0; k < n; k++) known = known || all[k].p == a->p;
        if (a->p == NULL || known) continue;
        all[n++] = (struct question){.spec = run->spec, .p = a->p, .answers = answers};
    }
    for (size_t k = 1; k < n; k++) all[k].started = pthread_create(&all[k].thread, NULL, ask, &all[k]) == 0;
    for (size_t k = 0; k < n; k++)
        if (!all[k].started) ask(&all[k]);
    for (size_t k = 1; k < n; k++)
        if (all[k].started) pthread_join(all[k].thread, NULL);
    free(all);
}

/* The caller may allow only some offers: those of a plan file. It reports why. */
static int drop_unusable(const struct run *run, struct offer_list *l, struct gp_error *err) {
    const struct engine *e = run->e;
    size_t kept = 0;
    for (size_t i = 0; i < l->list.len; i++) {
        struct offer *o = &l->list.items[i];
        if (e->may_use == NULL || e->may_use(e->approve_ctx, o)) l->list.items[kept++] = *o;
        else offer_clear(o);
    }
    l->list.len = kept;
    if (kept > 0) return 0;
    return gp_fail(err, GP_EUSAGE, "'%s': no offer of the plan can be bought at its price any more: plan again",
                   run->spec->name);
}

int plan_offers(struct run *run, struct offer_list *ret, struct gp_error *err) {
    int first_missing = 0, n_missing = count_missing(run, &first_missing);
    GP_AUTO_STR struct str reasons = {0};
    GP_AUTO_STRV struct strv missing = {0}; /* to report */
    struct gp_error worst = {0};
    int worst_exit = 0;
    struct answer *answers = xcalloc(run->spec->offers.len, sizeof *answers);
    ask_all(run, answers);
    int end = 0;
    for (size_t i = 0; i < run->spec->offers.len; i++) {
        const char *name = run->spec->offers.items[i].provider;
        struct answer *a = &answers[i];
        struct gp_error why = a->why;
        size_t first = ret->list.len;
        int r = end == 0 ? a->r : end;
        for (size_t k = 0; k < a->found.list.len; k++) vec_push(&ret->list, a->found.list.items[k]);
        vec_free(&a->found.list);
        if (end != 0) continue;
        if (r == 0) r = check_needs(run, first, ret, &why);
        if (r == 0) r = check_ends(run, a->p->ops, first, ret, &why);
        if (r == 0) r = check_credentials(run, a->p, first, ret, &why);
        if (r == 0) r = cost_check(run, first, n_missing, ret, &why);
        if (r == 0) continue;
        if (why.code == GP_ECANCELLED || (why.code == GP_EUSAGE && why.scope == GP_SCOPE_NONE)) {
            if (err != NULL) *err = why;
            end = r;
            continue;
        }
        GP_AUTO_FREE char *reason = xasprintf("offer %zu (%s): %s", i + 1, name, str_without_name(why.msg, name));
        str_addf(&reasons, "%s%s", reasons.len ? "; " : "", reason);
        if (!is_reported(run, name, &why)) strv_add(&missing, reason);
        int code = gp_exit_code(why.code);
        if (worst.code == GP_OK || gp_exit_worst(code, worst_exit) != worst_exit) {
            worst = why;
            worst_exit = code;
        }
    }
    free(answers);
    if (end != 0) return end;
    for (size_t i = 0; i < ret->list.len; i++)
        ret->list.items[i].ttl_ms = cost_ttl_ms(run, n_missing, ret->list.items[i].price_usd_per_h);
    if (ret->list.len == 0)
        return gp_fail(err, worst.code ? worst.code : GP_EUSAGE, "no offer can be bought: %s",
                       reasons.s ? reasons.s : "the spec lists none");
    int r = drop_unusable(run, ret, err);
    if (r != 0) return r;
    for (size_t i = 0; i < missing.n; i++) run_event(run, -1, NODE_PLANNED, EVENT_WARN, "offers", "%s", missing.v[i]);
    offer_list_sort(ret, run->spec->order);
    return 0;
}

static void add_item(struct plan *plan, enum plan_action action, int first, int count, const char *why, const char *fmt,
                     ...) GP_PRINTF(6, 7);
static void add_item(struct plan *plan, enum plan_action action, int first, int count, const char *why, const char *fmt,
                     ...) {
    GP_AUTO_STR struct str what = {0};
    va_list ap;
    va_start(ap, fmt);
    str_vaddf(&what, fmt, ap);
    va_end(ap);
    struct plan_item item = {
        .action = action, .slot_first = first, .slot_count = count, .what = str_steal(&what), .why = xstrdup(why)};
    vec_push(&plan->items, item);
    if (action != PLAN_KEEP) plan->changes = true;
}

static void add_existing(struct run *run, struct plan *plan) {
    for (int i = 0; i < run->n_nodes; i++) {
        const struct run_node *n = &run->nodes[i];
        if (!n->exists) continue;
        if (i >= run->spec->nodes)
            add_item(plan, PLAN_DESTROY, i, 1, "the spec has fewer nodes", "node %d: %s", i, n->res.id);
        else if (n->rec.phase == NODE_READY && claim_keeps_ready(run))
            add_item(plan, PLAN_KEEP, i, 1, "validated", "node %d: %s", i, n->res.id);
        else
            add_item(plan, PLAN_RESUME, i, 1,
                     n->rec.phase == NODE_READY ? "validated for an earlier spec" : node_phase_name(n->rec.phase),
                     "node %d: %s", i, n->res.id);
    }
}

/* Second machines and stopped ones: `up` destroys them. */
static void add_extras(const struct finding *found, struct plan *plan) {
    for (size_t i = 0; i < found->extras.list.len; i++) {
        const struct resource *r = &found->extras.list.items[i];
        if (r->state == RES_STOPPING) continue;
        add_item(plan, PLAN_DESTROY, r->slot, 1, r->state == RES_STOPPED ? "it is stopped" : "a second machine",
                 "node %d: %s", r->slot, r->id);
    }
}

/* The nodes that `up` launches first: an offer with less capacity is not tried. */
static int count_first_gang(const struct run *run) {
    int first = 0, n = 0;
    while (first < run->n_nodes && run->nodes[first].exists) first++;
    while (first + n < run->spec->nodes && (first + n >= run->n_nodes || !run->nodes[first + n].exists)) n++;
    return n;
}

static int drop_too_small(const struct run *run, struct offer_list *l, struct gp_error *err) {
    GP_AUTO_STR struct str reasons = {0};
    int count = count_first_gang(run);
    size_t kept = 0;
    for (size_t i = 0; i < l->list.len; i++) {
        struct offer *o = &l->list.items[i];
        bool small = o->max_count > 0 && o->max_count < count;
        if (small) str_addf(&reasons, "%s%s has capacity for %d", reasons.len ? "; " : "", o->provider, o->max_count);
        if (small) offer_clear(o);
        else l->list.items[kept++] = *o;
    }
    l->list.len = kept;
    if (kept > 0) return 0;
    return gp_fail(err, GP_ECAPACITY, "no offer has %d node%s: %s", count, count == 1 ? "" : "s", reasons.s);
}

/* `up` tries only the offers beside the nodes that are there, so only those have the price of the missing ones. */
static int drop_elsewhere(const struct run *run, struct offer_list *l, struct gp_error *err) {
    size_t kept = 0;
    for (size_t i = 0; i < l->list.len; i++) {
        struct offer *o = &l->list.items[i];
        if (run_nodes_beside(run, o->provider, o->region)) l->list.items[kept++] = *o;
        else offer_clear(o);
    }
    l->list.len = kept;
    if (kept > 0) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "'%s': no offer is in the region of its nodes: add one there, or run 'gpuprov down %s' first",
                   run->stack.name, run->stack.name);
}

/* The provider of the nodes that are there, else the home. */
static const struct provider_ops *ops_of_nodes(const struct run *run) {
    const struct provider_ops *ops = NULL;
    for (int i = 0; i < run->n_nodes && ops == NULL; i++)
        if (run->nodes[i].exists) ops = provider_find(run->nodes[i].res.provider);
    return ops != NULL ? ops : run->home->ops;
}

/* Nothing was asked of the nodes: a validation would disturb a job that runs there. */
static void add_job_note(const struct run *run, struct plan *plan) {
    struct job_seen job = {0};
    struct gp_error unread = {0};
    GP_AUTO_STR struct str text = {0};
    if (!run_any_exists(run)) return;
    if (job_seen_read(run->e, run->stack.uid, &job, &unread) != 0) strv_add(&plan->notes, unread.msg);
    if (job.id[0] == '\0' || strcmp(job.state, "running") != 0) return;
    job_seen_text(&job, run->stack.name, &text);
    strv_add(&plan->notes, text.s);
}

static void add_notes(struct plan *plan, const struct provider_ops *ops) {
    if (ops->note != NULL) strv_add(&plan->notes, ops->note);
    if (!ops->unique_claim)
        strv_take(&plan->notes, xasprintf("%s: a stack's name is not reserved there: run one gpuprov at a "
                                          "time on this stack",
                                          ops->name));
}

/* Offers of several providers are compared by the price of a node alone. */
static void add_egress_note(struct plan *plan) {
    const char *first = NULL;
    bool several = false, priced = false;
    for (size_t i = 0; i < plan->offers.list.len; i++) {
        const struct offer *o = &plan->offers.list.items[i];
        several = several || (first != NULL && strcmp(first, o->provider) != 0);
        priced = priced || o->price_usd_per_h != 0; /* not known: it is not free */
        first = o->provider;
    }
    if (several && priced)
        strv_add(&plan->notes, "prices are of nodes, without egress: traffic out of a cloud, and between clouds, is "
                               "billed by each cloud's own rates");
}

/* At the first offer, and at the dearest one that `up` may take. */
static void price_plan(struct plan *plan, const struct run *run, int missing) {
    double price = 0, dearest = 0;
    for (size_t i = 0; i < plan->offers.list.len; i++) {
        double p = plan->offers.list.items[i].price_usd_per_h;
        if (i == 0) price = p;
        dearest = p < 0 || dearest < 0 ? -1 : GP_MAX(dearest, p);
    }
    struct cost worst = cost_of(run, missing, dearest);
    plan->price_usd_per_h = cost_of(run, missing, price).usd_per_h;
    plan->dearest_usd_per_h = worst.usd_per_h;
    plan->max_usd = worst.usd;
}

static void add_estimate(struct plan *plan, const struct run *run) {
    const struct offer *first = plan->offers.list.len > 0 ? &plan->offers.list.items[0] : NULL;
    int64_t left_ms = plan->ttl_ms;
    if (plan->expires_s > 0) left_ms = (plan->expires_s - run_cloud_s(run, run->stack.provider)) * 1000;
    plan->has_estimate = estimate_of(run->spec, first, plan->price_usd_per_h, &plan->estimate);
    if (plan->has_estimate) estimate_notes(&plan->estimate, left_ms, &plan->notes);
}

static const char *type_of(const struct intent *in, json_t *offer) {
    const char *type = json_str(offer, "instance_type", "");
    return type[0] != '\0' ? type : resource_kind_name(in->kind);
}

/* Launches whose outcome is not known: `up` settles them first. */
static void add_unknown(const struct run *run, const struct finding *found, struct plan *plan) {
    for (size_t i = 0; i < found->unknown.list.len; i++) {
        const struct intent *in = &found->unknown.list.items[i];
        GP_AUTO_JSON json_t *offer = NULL;
        char at[32];
        if (in->kind != RES_INSTANCE) continue;
        if (json_parse(in->offer, strlen(in->offer), "offer", &offer, NULL) != 0) offer = NULL;
        time_format_utc(at, sizeof at, in->created_s);
        add_item(plan, PLAN_SETTLE, in->slot_first, in->slot_count,
                 str_eq(in->spec_hash, run->spec->hash) ? "its outcome is not known: searched for, then repeated"
                                                        : "for an earlier spec: searched for, not repeated",
                 "the launch of %d x %s at %s %s, requested at %s", in->slot_count, type_of(in, offer), in->provider,
                 in->zone[0] ? in->zone : in->region, at);
    }
}

static void add_spec_changes(const struct run *run, struct plan *plan) {
    for (size_t i = 0; i < run->changes.list.len; i++) {
        const struct spec_change *c = &run->changes.list.items[i];
        struct spec_change copy = {
            .key = xstrdup(c->key), .old = xstrdup(c->old), .now = xstrdup(c->now), .effect = c->effect};
        vec_push(&plan->spec_changes.list, copy);
    }
    plan->changes = plan->changes || plan->spec_changes.list.len > 0 || run->moved_expires_s != 0;
    plan->new_commands = notify_has_new_command(run);
}

int plan_make(struct run *run, const struct finding *found, struct plan *ret, struct gp_error *err) {
    struct plan plan = {.ttl_ms = run->spec->ttl_ms};
    int first = 0, r = 0, missing = count_missing(run, &first);
    add_unknown(run, found, &plan);
    if (missing > 0) r = plan_offers(run, &run->offers, err);
    for (size_t i = 0; r == 0 && i < run->offers.list.len; i++) {
        struct offer o = {0};
        offer_copy(&o, &run->offers.list.items[i]);
        vec_push(&plan.offers.list, o);
    }
    if (r == 0 && missing > 0) r = drop_elsewhere(run, &plan.offers, err);
    if (r == 0 && missing > 0) r = drop_too_small(run, &plan.offers, err);
    if (r != 0) {
        plan_clear(&plan);
        return r;
    }
    const struct provider_ops *ops = ops_of_nodes(run);
    enum offer_ends ends = run_nodes_end(run);
    if (missing > 0) {
        const struct offer *o = &plan.offers.list.items[0];
        GP_AUTO_FREE char *text = offer_text(o);
        if (run->stack.uid == NULL && run->home->ops->unique_claim)
            add_item(&plan, PLAN_CREATE, -1, 0, "keeps the name unique", "the claim of '%s'", run->spec->name);
        add_item(&plan, PLAN_CREATE, first, missing, "missing", "%d x %s", missing, text);
        ops = provider_find(o->provider);
        ends = GP_MAX(ends, o->ends); /* nodes that exist may be at another cloud */
        if (o->ttl_ms != 0 && o->ttl_ms < plan.ttl_ms) {
            char ttl[32], limit[48];
            plan.ttl_ms = o->ttl_ms;
            duration_format(ttl, sizeof ttl, o->ttl_ms);
            spec_money_text(limit, sizeof limit, run->spec->max_cost, "USD");
            strv_take(&plan.notes,
                      xasprintf("limits.max_cost %s allows %s at the price of the first offer: that is the "
                                "deadline, because limits.ttl is not set",
                                limit, ttl));
        }
        if (spec_effective(run->spec, o->spec_index).image->baked != NULL)
            strv_take(&plan.notes, xasprintf("image: %s", o->image_name[0] != '\0' ? o->image_name : o->image));
    }
    plan.ends = xstrdup(offer_ends_name(ends != ENDS_BY_PROVIDER ? ends : ops->ends));
    add_notes(&plan, ops);
    add_egress_note(&plan);
    add_job_note(run, &plan);
    cost_notes(run, &plan.notes);
    char note[CLAIM_NOTE];
    if (claim_launch_unknown(run, note, sizeof note)) strv_add(&plan.notes, note);
    if (claim_keeps_deadline(run, note, sizeof note)) strv_add(&plan.notes, note);
    deadline_notes(run, &plan.notes);
    if (claim_has_no_unit(run, note, sizeof note)) strv_add(&plan.notes, note);
    if (run_any_exists(run)) plan.expires_s = run->moved_expires_s != 0 ? run->moved_expires_s : run->stack.expires_s;
    add_existing(run, &plan);
    add_extras(found, &plan);
    price_plan(&plan, run, missing);
    add_estimate(&plan, run);
    char *long_job = spec_job_too_long(&run->spec->job, plan.ttl_ms);
    if (long_job != NULL) strv_take(&plan.notes, long_job);
    add_spec_changes(run, &plan);
    coverage_merge(&plan.looked, &run->look.covered);
    r = plan_describe(run, found, &plan, err);
    if (r == 0) *ret = plan;
    else plan_clear(&plan);
    return r;
}

int engine_plan(struct engine *e, const struct spec *spec, struct plan *ret, struct gp_error *err) {
    struct run *run = NULL;
    GP_AUTO_FINDING struct finding found = {0};
    int r = run_open(e, spec, spec->name, &run, err);
    if (r == 0) r = engine_preflight(e, spec, &run->validation.plan, err);
    if (r == 0) r = run_open_offers(run, err);
    if (r == 0) run->plans = true;
    if (r == 0) r = reconcile(run, &found, err);
    struct gp_error why = {0};
    bool refused = r == 0 && trust_may_launch(run, &why) != 0;
    if (r == 0) r = claim_may_go_on(run, err);
    if (r == 0) r = plan_make(run, &found, ret, err);
    if (r == 0 && refused) strv_take(&ret->notes, xasprintf("'gpuprov up' here does nothing: %s", why.msg));
    run_close(run);
    return r;
}
