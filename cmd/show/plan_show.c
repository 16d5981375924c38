/* SPDX-License-Identifier: Apache-2.0 */
/* Shows a plan: changes of the spec, steps, price, cost until the deadline, offers, notes. Texts that have values of a
 * spec pass the redactor one by one, and the words of this file do not: no value of a spec takes the place of the
 * price, of the deadline or of a command that runs here. */
#include "base/gp_base.h"

#include "plan_show.h"

#include "base/log.h"

#include "offer_show.h"

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

/* A text that may have a value of the spec. The caller frees it. */
static char *clean(const char *text) { return log_redacted(text != NULL ? text : ""); }

static json_t *price_json(double v) { return v >= 0 ? json_real(v) : json_null(); }

static json_t *changes_json(const struct spec_changes *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->list.len; i++) {
        const struct spec_change *x = &c->list.items[i];
        json_array_append_new(list, json_pack("{s:o, s:o, s:o, s:s}", "key", json_any_text(x->key), "old",
                                              json_any_text(x->old), "new", json_any_text(x->now), "effect",
                                              spec_effect_name(x->effect)));
    }
    return list;
}

const char *change_action_name(enum change_action a) {
    static const char *const names[] = {
        [CHANGE_CREATE] = "create", [CHANGE_UPDATE] = "update",   [CHANGE_RESUME] = "resume",
        [CHANGE_REPAIR] = "repair", [CHANGE_REPLACE] = "replace", [CHANGE_DESTROY] = "destroy",
        [CHANGE_SETTLE] = "settle", [CHANGE_REFUSE] = "refuse"};
    return names[a];
}

json_t *plan_changes_json(const struct plan_changes *p) {
    json_t *list = json_array();
    for (size_t i = 0; i < p->list.len; i++) {
        const struct plan_change *c = &p->list.items[i];
        json_t *j = json_object();
        json_object_set_new(j, "action", json_string(change_action_name(c->action)));
        json_object_set_new(j, "resource", json_any_text(c->resource));
        json_object_set_new(j, "id", json_any_text(c->id));
        json_object_set_new(j, "node", c->node >= 0 ? json_integer(c->node) : json_null());
        json_object_set_new(j, "key", json_any_text(c->key));
        json_object_set_new(j, "before", json_any_text(c->before));
        json_object_set_new(j, "after", json_any_text(c->after));
        json_object_set_new(j, "reason", json_any_text(c->reason));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *estimate_json(const struct estimate *e) {
    json_t *j = json_object();
    bool known = e->missing == NULL;
    json_object_set_new(j, "operations", json_real(e->operations));
    json_object_set_new(j, "gpu", e->gpu[0] != '\0' ? json_string(e->gpu) : json_null());
    json_object_set_new(j, "gpus", json_integer(e->gpus));
    json_object_set_new(j, "tflops", known ? json_real(e->tflops) : json_null());
    json_object_set_new(j, "mfu", known ? json_real(e->mfu) : json_null());
    json_object_set_new(j, "source", e->source != NULL ? json_string(e->source) : json_null());
    json_object_set_new(j, "gpu_hours", known ? json_real(e->gpu_hours) : json_null());
    json_object_set_new(j, "hours", e->hours > 0 ? json_real(e->hours) : json_null());
    json_object_set_new(j, "usd", price_json(e->usd));
    return j;
}

json_t *plan_json(const struct spec *spec, const struct plan *p) {
    json_t *items = json_array(), *notes = json_array();
    for (size_t i = 0; i < p->items.len; i++) {
        const struct plan_item *it = &p->items.items[i];
        json_array_append_new(items, json_pack("{s:s, s:i, s:i, s:s, s:s}", "action", action_name(it->action),
                                               "slot_first", it->slot_first, "slot_count", it->slot_count, "what",
                                               it->what ? it->what : "", "why", it->why ? it->why : ""));
    }
    for (size_t i = 0; i < p->notes.n; i++) json_array_append_new(notes, json_string(p->notes.v[i]));
    json_t *j =
        json_pack("{s:s, s:b, s:o, s:o, s:o, s:o, s:I, s:s, s:o, s:o}", "stack", spec->name, "changes", (int)p->changes,
                  "spec_changes", changes_json(&p->spec_changes), "items", items, "offers", offers_json(&p->offers),
                  "price_usd_per_h", price_json(p->price_usd_per_h), "ttl_s", (json_int_t)(p->ttl_ms / 1000), "ends",
                  p->ends ? p->ends : "", "notes", notes, "looked", looked_json(&p->looked));
    json_object_set_new(j, "dearest_usd_per_h", price_json(p->dearest_usd_per_h));
    json_object_set_new(j, "max_usd", price_json(p->max_usd));
    json_object_set_new(j, "expires", time_json(p->expires_s));
    json_object_set_new(j, "estimate", p->has_estimate ? estimate_json(&p->estimate) : json_null());
    json_object_set_new(j, "resource_changes", plan_changes_json(&p->resource_changes));
    return j;
}

/* The network between the nodes, where it is not the usual one. */
static void print_first(const struct offer_list *l, FILE *to) {
    if (l->list.len == 0) return;
    const struct offer *o = &l->list.items[0];
    GP_AUTO_FREE char *fabric = clean(o->fabric);
    if (fabric[0] != '\0') fprintf(to, "fabric: %s\n", fabric);
}

/* The offers that `up` tries if the first has no capacity. */
static void print_others(const struct offer_list *l, FILE *to) {
    enum { SHOWN = 8 };
    if (l->list.len < 2) return;
    fputs("tried in this order until one has capacity:\n", to);
    for (size_t i = 0; i < l->list.len && i < SHOWN; i++) {
        const struct offer *o = &l->list.items[i];
        GP_AUTO_FREE char *whole = offer_text(o), *text = clean(whole);
        GP_AUTO_FREE char *note = offer_price_note(o);
        char price[32];
        price_format(price, sizeof price, o->price_usd_per_h);
        bool other_end = o->ends != l->list.items[0].ends;
        fprintf(to, "  %s, %s%s%s%s%s%s\n", text, o->price_usd_per_h < 0 ? "price " : "", price,
                o->price_usd_per_h > 0 ? " per node" : "", note, other_end ? ", deadline " : "",
                other_end ? ends_text(offer_ends_name(o->ends)) : "");
    }
    if (l->list.len > SHOWN) fprintf(to, "  and %zu more (--json)\n", l->list.len - SHOWN);
}

static const char *effect_text(enum spec_effect e) {
    switch (e) {
    case SPEC_REPEATED: return "nodes are bootstrapped and validated again";
    case SPEC_SCALED: return "nodes are launched or destroyed, and all are validated again";
    case SPEC_ACCESS: return "applied to running nodes";
    case SPEC_LATER: return "from the next connection or launch on";
    case SPEC_DEADLINE: return "applied to running nodes"; /* limits.ttl has its own */
    case SPEC_REFUSED:
    case SPEC_STACK:
    case SPEC_UNDECLARED: break;
    }
    return spec_effect_name(e);
}

static void print_changes(const struct plan *p, FILE *to) {
    const struct spec_changes *c = &p->spec_changes;
    char when[40];
    time_format_utc(when, sizeof when, p->expires_s);
    if (c->list.len > 0) fputs("changes of the spec:\n", to);
    for (size_t i = 0; i < c->list.len; i++) {
        GP_AUTO_STR struct str text = {0};
        spec_change_text(&c->list.items[i], &text);
        GP_AUTO_FREE char *shown = clean(text.s);
        bool ttl = c->list.items[i].effect == SPEC_DEADLINE && strcmp(c->list.items[i].key, "limits.ttl") == 0;
        if (ttl) fprintf(to, "  %s (the deadline moves to %s)\n", shown, when);
        else fprintf(to, "  %s (%s)\n", shown, effect_text(c->list.items[i].effect));
    }
}

/* Nothing for stacks that cost nothing. */
static void print_cost(const struct plan *p, FILE *to) {
    char dearest[32];
    if (p->price_usd_per_h == 0 && p->dearest_usd_per_h == 0) return;
    if (p->max_usd < 0) {
        fputs("worst case until the deadline: not known, because the price of an offer is not known\n", to);
        return;
    }
    price_format(dearest, sizeof dearest, p->dearest_usd_per_h);
    fprintf(to, "worst case until the deadline: %.2f USD%s%s%s\n", p->max_usd,
            p->dearest_usd_per_h > p->price_usd_per_h ? ", at the dearest offer (" : "",
            p->dearest_usd_per_h > p->price_usd_per_h ? dearest : "",
            p->dearest_usd_per_h > p->price_usd_per_h ? ")" : "");
}

/* A catalogue may be months old: its price is not that of the bill. */
static void print_sources(const struct offer_list *l, FILE *to) {
    enum { SHOWN = 4 };
    GP_AUTO_STRV struct strv sources = {0};
    for (size_t i = 0; i < l->list.len; i++) {
        const struct offer *o = &l->list.items[i];
        GP_AUTO_FREE char *source = offer_source_text(o);
        GP_AUTO_FREE char *text = xasprintf("%s: %s", o->provider, source);
        bool priced = o->price_usd_per_h > 0 || o->price_in_currency > 0;
        if (priced && source[0] != '\0' && !strv_has(&sources, text)) strv_add(&sources, text);
    }
    for (size_t i = 0; i < sources.n && i < SHOWN; i++) {
        GP_AUTO_FREE char *source = clean(sources.v[i]);
        fprintf(to, "%s%s", i == 0 ? "prices from " : "; ", source);
    }
    if (sources.n > SHOWN) fprintf(to, "; and %zu more (--json)", sources.n - SHOWN);
    if (sources.n > 0) fputc('\n', to);
}

void drift_show(const struct plan_changes *c, FILE *to) {
    for (size_t i = 0; i < c->list.len; i++) {
        const struct plan_change *x = &c->list.items[i];
        if (x->action != CHANGE_REPAIR && x->action != CHANGE_REFUSE) continue;
        fprintf(to, "  %c %s ", x->action == CHANGE_REPAIR ? '~' : '!', change_action_name(x->action));
        if (x->node >= 0) fprintf(to, "node %d: ", x->node);
        GP_AUTO_FREE char *text =
            xasprintf("%s %s: %s -> %s (%s)", x->id != NULL ? x->id : x->resource, x->key != NULL ? x->key : "",
                      x->before != NULL ? x->before : "none", x->after != NULL ? x->after : "none", x->reason);
        GP_AUTO_FREE char *shown = clean(text);
        str_one_line(shown);
        fprintf(to, "%s\n", shown);
    }
}

/* The places, by the function that other verbs use, too. */
static void print_looked(const struct coverage *looked, FILE *to) {
    char *text = NULL;
    size_t n = 0;
    FILE *all = open_memstream(&text, &n);
    if (all == NULL) abort(); /* no memory */
    show_looked(looked, all);
    fclose(all);
    GP_AUTO_FREE char *shown = clean(text);
    fputs(shown, to);
    free(text);
}

static void print_commands(const struct spec *spec, FILE *to) {
    for (size_t i = 0; i < spec->notify.len; i++) {
        if (spec->notify.items[i].command == NULL) continue;
        GP_AUTO_FREE char *command = clean(spec->notify.items[i].command);
        str_one_line(command);
        fprintf(to, "note: notify[%zu] runs on this machine: %s\n", i, command);
    }
}

void plan_show(const struct spec *spec, const struct plan *p, FILE *to) {
    static const char mark[] = {
        [PLAN_CREATE] = '+', [PLAN_KEEP] = '=', [PLAN_RESUME] = '~', [PLAN_DESTROY] = '-', [PLAN_SETTLE] = '?'};
    print_changes(p, to);
    for (size_t i = 0; i < p->items.len; i++) {
        const struct plan_item *it = &p->items.items[i];
        bool has_why = it->why != NULL && it->why[0] != '\0';
        GP_AUTO_FREE char *what = clean(it->what), *why = clean(it->why);
        fprintf(to, "  %c %s %s%s%s%s\n", mark[it->action], action_name(it->action), what, has_why ? " (" : "", why,
                has_why ? ")" : "");
    }
    drift_show(&p->resource_changes, to);
    char price[32], when[40];
    price_format(price, sizeof price, p->price_usd_per_h);
    if (p->expires_s > 0) time_format_utc(when, sizeof when, p->expires_s);
    else duration_format(when, sizeof when, p->ttl_ms);
    if (p->changes) {
        fprintf(to, "%s: %d node%s, %s%s, deadline %s%s (%s)\n", spec->name, spec->nodes, spec->nodes == 1 ? "" : "s",
                p->price_usd_per_h < 0 ? "price " : "", price, p->expires_s > 0 ? "" : "after ", when,
                ends_text(p->ends));
        print_cost(p, to);
        print_sources(&p->offers, to);
    } else {
        fprintf(to, "%s: nothing to do: every node runs and was validated ('gpuprov up' also connects to the nodes)\n",
                spec->name);
    }
    print_first(&p->offers, to);
    print_others(&p->offers, to);
    for (size_t i = 0; i < p->notes.n; i++) {
        GP_AUTO_FREE char *note = clean(p->notes.v[i]);
        fprintf(to, "note: %s\n", note);
    }
    print_commands(spec, to);
    if (!p->changes || !coverage_whole(&p->looked)) print_looked(&p->looked, to);
}
