/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a stack, its cost until its deadline, and the limits of the spec on both. The verb's thread. */
#include "base/gp_base.h"

#include "engine/stack/cost.h"

#include "engine/run/look.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/run/zero_price.h"

#define SHOWN 3 /* reasons in one message */
#define MICRO 1e6
#define SHORTEST_MS (10 * 60 * 1000) /* an offer whose nodes could live no longer is not worth its boot */
#define NEAR 0.8

void cost_drop_zero(const struct provider_ops *ops, struct offer_list *l) {
    for (size_t i = 0; ops->billed && i < l->list.len; i++)
        if (!(l->list.items[i].price_usd_per_h > 0)) l->list.items[i].price_usd_per_h = -1;
}

/* The stack's deadline holds, and what it has cost counts. */
static bool goes_on(const struct run *run) { return run_any_exists(run) || run->e->continues != NULL; }

static bool counts(const struct run *run, int slot) { return run->nodes[slot].exists && slot < run->spec->nodes; }

static int64_t deadline_s(const struct run *run) {
    return run->moved_expires_s != 0 ? run->moved_expires_s : run->stack.expires_s;
}

/* Of one machine from its launch until it was gone, or until now. One that an earlier gpuprov noted as gone has no
 * such time and is left out. */
static double machine_usd(const struct run *run, const struct resource *r) {
    int64_t since = r->created_s > 0 ? r->created_s : run->stack.created_s;
    int64_t until = r->state != RES_GONE ? run_cloud_s(run, r->provider) : r->gone_s;
    return r->price_usd_per_h * (double)GP_MAX(until - since, (int64_t)0) / 3600;
}

static double machines_usd(const struct run *run, bool gone_only) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    double usd = 0;
    if (run->stack.uid == NULL || journal_resources(run->e->journal, run->stack.uid, &all, NULL) != 0) return -1;
    for (size_t i = 0; i < all.list.len; i++) {
        struct resource *r = &all.list.items[i];
        zero_price_drop(r);
        if (!resource_is_machine(r) || (gone_only && r->state != RES_GONE)) continue;
        if (gone_only && r->ours == OURS_NOT) continue; /* a limit counts no prices and times that anybody can write */
        if (r->price_usd_per_h < 0) return -1;
        usd += machine_usd(run, r);
    }
    return usd;
}

double cost_so_far(const struct run *run) { return machines_usd(run, false); }

int64_t cost_ttl_ms(const struct run *run, int missing, double price) {
    const struct spec *s = run->spec;
    if (!s->ttl_is_default || s->max_cost == 0 || price <= 0 || missing == 0 || goes_on(run)) return 0;
    double allowed_ms = (double)s->max_cost / MICRO / (price * missing) * 3600e3;
    if (allowed_ms >= (double)s->ttl_ms) return s->ttl_ms;
    return GP_MAX((int64_t)allowed_ms / 60000 * 60000, (int64_t)SHORTEST_MS);
}

struct cost cost_of(const struct run *run, int missing, double price) {
    struct cost c = {0};
    bool known = missing == 0 || price >= 0, any = goes_on(run);
    int64_t own_ms = cost_ttl_ms(run, missing, price);
    double left_h = (double)(own_ms != 0 ? own_ms : run->spec->ttl_ms) / 3600e3;
    if (any) left_h = (double)GP_MAX(deadline_s(run) - run_cloud_s(run, run->stack.provider), (int64_t)0) / 3600;
    if (missing > 0) {
        c.usd_per_h = price * missing;
        c.usd = price * missing * left_h;
    }
    for (int i = 0; i < run->n_nodes; i++) {
        const struct resource *r = &run->nodes[i].res;
        if (!counts(run, i)) continue;
        int64_t since = r->created_s > 0 ? r->created_s : run->stack.created_s;
        known = known && r->price_usd_per_h >= 0;
        c.usd_per_h += r->price_usd_per_h;
        c.usd += r->price_usd_per_h * (double)GP_MAX(deadline_s(run) - since, (int64_t)0) / 3600;
    }
    if (any) c.usd += GP_MAX(machines_usd(run, true), 0.0);
    if (!known) c.usd_per_h = c.usd = -1;
    return c;
}

/* Whether a limit forbids the offer; then `why` has the reason. */
static bool forbidden(const struct run *run, const struct offer *o, int missing, struct str *why) {
    const struct spec *s = run->spec;
    char limit[48];
    GP_AUTO_FREE char *text = offer_text(o);
    GP_AUTO_FREE char *note = offer_price_note(o);
    if (s->max_price == 0 && s->max_cost == 0) return false;
    struct cost c = cost_of(run, missing, o->price_usd_per_h);
    if (o->price_usd_per_h < 0 || (s->max_cost > 0 && c.usd < 0)) {
        str_addf(why, "%s: the price is not known%s, and limits.%s is set", text, note,
                 s->max_price > 0 ? "max_price" : "max_cost");
    } else if (s->max_price > 0 && o->price_usd_per_h * MICRO > (double)s->max_price) {
        spec_money_text(limit, sizeof limit, s->max_price, "USD/h");
        str_addf(why, "%s: %.2f USD/h%s is over limits.max_price %s", text, o->price_usd_per_h, note, limit);
    } else if (s->max_cost > 0 && c.usd * MICRO > (double)s->max_cost) {
        spec_money_text(limit, sizeof limit, s->max_cost, "USD");
        str_addf(why, "%s: up to %.2f USD until the deadline%s is over limits.max_cost %s", text, c.usd, note, limit);
    }
    return why->len > 0;
}

int cost_check(const struct run *run, size_t first, int missing, struct offer_list *l, struct gp_error *err) {
    GP_AUTO_STR struct str reasons = {0};
    size_t kept = first, dropped = 0;
    for (size_t i = first; i < l->list.len; i++) {
        GP_AUTO_STR struct str why = {0};
        struct offer *o = &l->list.items[i];
        if (forbidden(run, o, missing, &why)) {
            if (dropped++ < SHOWN) str_addf(&reasons, "%s%s", reasons.len > 0 ? "; " : "", why.s);
            offer_clear(o);
            continue;
        }
        if (kept != i) l->list.items[kept] = *o;
        kept++;
    }
    l->list.len = kept;
    if (dropped == 0) return 0;
    if (dropped > SHOWN) str_addf(&reasons, "; and %zu more", dropped - SHOWN);
    if (kept > first) {
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "offers", "passed over: %s", reasons.s);
        return 0;
    }
    struct gp_error why = {0};
    int r = gp_fail(&why, GP_EMONEY, "%s", reasons.s);
    why.scope = GP_SCOPE_OFFER;
    if (err != NULL) *err = why;
    return r;
}

char *cost_near_limit(const struct run *run) {
    char limit[48];
    double usd = run->spec != NULL && run->spec->max_cost > 0 ? cost_so_far(run) : -1;
    if (usd < 0 || usd * MICRO < NEAR * (double)run->spec->max_cost) return NULL;
    spec_money_text(limit, sizeof limit, run->spec->max_cost, "USD");
    return xasprintf("%.2f USD are spent, %.0f %% of limits.max_cost %s: 'gpuprov down %s' ends the nodes before their "
                     "deadline",
                     usd, usd * MICRO / (double)run->spec->max_cost * 100, limit, run->stack.name);
}

void cost_notes(const struct run *run, struct strv *notes) {
    const struct spec *s = run->spec;
    char limit[48];
    for (int i = 0; i < run->n_nodes; i++) {
        double price = run->nodes[i].res.price_usd_per_h;
        if (!counts(run, i) || s->max_price == 0 || price * MICRO <= (double)s->max_price) continue;
        spec_money_text(limit, sizeof limit, s->max_price, "USD/h");
        strv_take(notes, xasprintf("node %d runs at %.2f USD/h, over limits.max_price %s: limits apply to launches", i,
                                   price, limit));
    }
    struct cost c = cost_of(run, 0, 0);
    if (!run_any_exists(run) || s->max_cost == 0 || c.usd * MICRO <= (double)s->max_cost) return;
    spec_money_text(limit, sizeof limit, s->max_cost, "USD");
    strv_take(notes,
              xasprintf("the nodes cost up to %.2f USD until the deadline, over limits.max_cost %s: 'gpuprov down "
                        "%s' ends them earlier",
                        c.usd, limit, run->stack.name));
}
