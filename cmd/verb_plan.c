/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov plan SPEC: prints the changes that `up` would make, their price per hour, and who enforces the deadline.
 * Exits 2 if there are changes. */
#include "base/gp_base.h"

#include "app.h"

struct opts {
    bool accept_new_host_key;
};
static const struct opt options[] = {{.name = "accept-new-host-key",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, accept_new_host_key),
                                      .help = "ssh: plan with hosts whose key 'gpuprov up' would accept, too"},
                                     {0}};

static const char *action_name(enum plan_action a) {
    switch (a) {
    case PLAN_CREATE: return "create";
    case PLAN_KEEP: return "keep";
    case PLAN_RESUME: return "resume";
    case PLAN_DESTROY: return "destroy";
    case PLAN_SETTLE: return "settle";
    }
    return "?";
}

static json_t *offers_json(const struct offer_list *l) {
    json_t *list = json_array();
    for (size_t i = 0; i < l->list.len; i++) {
        const struct offer *o = &l->list.items[i];
        json_t *price = o->price_usd_per_h >= 0 ? json_real(o->price_usd_per_h) : json_null();
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:o, s:s}", "provider", o->provider,
                                        "region", o->region ? o->region : "", "zone", o->zone ? o->zone : "", "type",
                                        o->instance_type ? o->instance_type : "", "market", spec_market_name(o->market),
                                        "gpu", o->gpu_model ? o->gpu_model : "", "gpus", o->gpus, "price_usd_per_h",
                                        price, "price_source", o->price_source ? o->price_source : ""));
    }
    return list;
}

static void print_plan_json(struct invocation *inv, const struct spec *spec, const struct plan *p, int r,
                            const struct gp_error *err) {
    json_t *items = json_array(), *notes = json_array();
    for (size_t i = 0; i < p->items.len; i++) {
        const struct plan_item *it = &p->items.items[i];
        json_array_append_new(items, json_pack("{s:s, s:i, s:i, s:s, s:s}", "action", action_name(it->action),
                                               "slot_first", it->slot_first, "slot_count", it->slot_count, "what",
                                               it->what ? it->what : "", "why", it->why ? it->why : ""));
    }
    for (size_t i = 0; i < p->notes.n; i++) json_array_append_new(notes, json_string(p->notes.v[i]));
    json_t *price = p->price_usd_per_h >= 0 ? json_real(p->price_usd_per_h) : json_null();
    json_t *j = json_pack("{s:s, s:b, s:o, s:o, s:o, s:I, s:s, s:o, s:o}", "stack", spec->name, "changes",
                          (int)p->changes, "items", items, "offers", offers_json(&p->offers), "price_usd_per_h", price,
                          "ttl_s", (json_int_t)(p->ttl_ms / 1000), "ends", p->ends ? p->ends : "", "notes", notes,
                          "looked", looked_json(&p->looked));
    json_object_set_new(j, "expires", time_json(p->expires_s));
    if (r != 0) result_error(inv, j, err);
    print_json(j);
}

/* The offers that `up` tries if the first has no capacity. */
static void print_others(const struct offer_list *l) {
    enum { SHOWN = 8 };
    if (l->list.len < 2) return;
    puts("tried in this order until one has capacity:");
    for (size_t i = 0; i < l->list.len && i < SHOWN; i++) {
        const struct offer *o = &l->list.items[i];
        GP_AUTO_FREE char *text = offer_text(o);
        char price[32];
        price_format(price, sizeof price, o->price_usd_per_h);
        printf("  %s, %s%s%s\n", text, o->price_usd_per_h < 0 ? "price " : "", price,
               o->price_usd_per_h > 0 ? " per node" : "");
    }
    if (l->list.len > SHOWN) printf("  and %zu more (--json)\n", l->list.len - SHOWN);
}

static void print_plan(const struct spec *spec, const struct plan *p) {
    static const char mark[] = {
        [PLAN_CREATE] = '+', [PLAN_KEEP] = '=', [PLAN_RESUME] = '~', [PLAN_DESTROY] = '-', [PLAN_SETTLE] = '?'};
    for (size_t i = 0; i < p->items.len; i++) {
        const struct plan_item *it = &p->items.items[i];
        bool why = it->why != NULL && it->why[0] != '\0';
        printf("  %c %s %s%s%s%s\n", mark[it->action], action_name(it->action), it->what ? it->what : "",
               why ? " (" : "", why ? it->why : "", why ? ")" : "");
    }
    char price[32], when[40];
    price_format(price, sizeof price, p->price_usd_per_h);
    if (p->expires_s > 0) time_format_utc(when, sizeof when, p->expires_s);
    else duration_format(when, sizeof when, p->ttl_ms);
    if (p->changes)
        printf("%s: %d node%s, %s%s, deadline %s%s (%s)\n", spec->name, spec->nodes, spec->nodes == 1 ? "" : "s",
               p->price_usd_per_h < 0 ? "price " : "", price, p->expires_s > 0 ? "" : "after ", when,
               ends_text(p->ends));
    else
        printf("%s: nothing to do: every node runs and was validated ('gpuprov up' also connects to the nodes)\n",
               spec->name);
    print_others(&p->offers);
    for (size_t i = 0; i < p->notes.n; i++) printf("note: %s\n", p->notes.v[i]);
    if (!p->changes || !coverage_whole(&p->looked)) show_looked(&p->looked, stdout);
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    inv->app->engine_opts.accept_new_host_key = o->accept_new_host_key;
    GP_AUTO_SPEC struct spec *spec = NULL;
    int r = app_spec(inv, inv->args[0], &spec, err);
    if (r != 0) return r;
    struct engine *e = NULL;
    if ((r = app_engine(inv, &e, err)) != 0) return r;
    struct plan plan = {0};
    r = engine_plan(e, spec, &plan, err);
    if (r == 0) {
        inv->exit_code = plan.changes ? 2 : 0;
        if (!plan.changes) r = look_gap_error(&plan.looked, "nothing to do in the places looked at", err);
        if (inv->common->json) print_plan_json(inv, spec, &plan, r, err);
        else print_plan(spec, &plan);
    }
    plan_clear(&plan);
    return r;
}

const struct verb verb_plan = {
    .name = "plan",
    .argspec = "SPEC",
    .help = "lists the changes 'up' would make and their price; exit 2 on changes",
    .examples = "  gpuprov plan gpuprov.yaml\n"
                "  gpuprov plan --json gpuprov.yaml   # exit code 2: there are changes\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
};
