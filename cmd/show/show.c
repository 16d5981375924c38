/* SPDX-License-Identifier: Apache-2.0 */
/* Prints stacks, resources and errors: tables for people, JSON for programs. */
#include "base/gp_base.h"

#include "cmd/app.h"

#include "base/json.h"
#include "base/log.h"
#include "cmd/show/plan_show.h"
#include "output/width.h"

void price_format(char *dst, size_t n, double usd_per_h) {
    if (usd_per_h < 0) str_put(dst, n, "not known");
    else if (usd_per_h == 0) str_put(dst, n, "free");
    else snprintf(dst, n, usd_per_h < 0.1 ? "%.4f USD/h" : "%.2f USD/h", usd_per_h);
}

static const char *or_dash(const char *s) { return s != NULL && s[0] != '\0' ? s : "-"; }

static json_t *text_json(const char *s) { return s != NULL && s[0] != '\0' ? json_any_text(s) : json_null(); }

static json_t *price_json(double v) { return v >= 0 ? json_real(v) : json_null(); }

json_t *time_json(int64_t wall_s) {
    if (wall_s <= 0) return json_null();
    char t[32];
    time_format_utc(t, sizeof t, wall_s);
    return json_string(t);
}

/* Every text of j without what the redactor hides. */
static void redact(json_t *j) {
    const char *key = NULL;
    json_t *item = NULL;
    size_t i = 0;
    if (json_is_string(j)) {
        GP_AUTO_FREE char *clean = log_redacted(json_string_value(j));
        if (strcmp(clean, json_string_value(j)) != 0) (void)json_string_set(j, clean);
    }
    json_object_foreach(j, key, item) redact(item);
    json_array_foreach(j, i, item) redact(item);
}

void print_json_exact(json_t *j) {
    GP_AUTO_FREE char *text = json_text(j, 0);
    json_decref(j);
    puts(text);
}

void print_json(json_t *j) {
    redact(j);
    print_json_exact(j);
}

json_t *error_json(const struct gp_error *err) {
    return json_pack("{s:s, s:o, s:s, s:b}", "code", gp_code_name(err->code), "detail", text_json(err->detail),
                     "message", err->msg, "retryable", (int)err->retryable);
}

void print_text(const struct invocation *inv, const char *key, const char *text) {
    if (inv->common->json) print_json_exact(json_pack("{s:s}", key, text)); /* for another program, as without --json */
    else printf("%s%s", text, str_ends(text, "\n") ? "" : "\n");
}

const char *ends_text(const char *ends) {
    static const char *const table[][2] = {{"server", "enforced by the provider"},
                                           {"guest", "enforced by the node itself"},
                                           {"gc-only", "enforced only by 'gpuprov gc'"},
                                           {"never", "the machines keep running"}};
    for (size_t i = 0; ends != NULL && i < GP_ARRAY_LEN(table); i++)
        if (strcmp(table[i][0], ends) == 0) return table[i][1];
    return "";
}

void result_error(struct invocation *inv, json_t *j, const struct gp_error *err) {
    json_object_set_new(j, "error", error_json(err));
    fprintf(stderr, "gpuprov: %s\n", err->msg);
    inv->error_shown = true;
}

void print_error_json(const struct gp_error *err, json_t *problems) {
    json_t *e = error_json(err);
    if (problems != NULL) json_object_set_new(e, "problems", problems);
    print_json(json_pack("{s:o}", "error", e));
}

/* "3h 12m left" or "past its deadline". */
static void left_text(char *dst, size_t n, int64_t expires_s, int64_t now_s) {
    int64_t left = expires_s - now_s;
    if (left <= 0) {
        str_put(dst, n, "past its deadline");
        return;
    }
    char d[32];
    duration_format(d, sizeof d, left >= 600 ? left / 60 * 60000 : left * 1000);
    snprintf(dst, n, "%s left", d);
}

/* A table has room for 64 columns of a verdict and names the node already; --json has all of it. */
static void shorten(const char *verdict, const char *name, struct str *out) {
    GP_AUTO_FREE char *again = xasprintf(": %s: ", name);
    const char *p = strstr(verdict, again);
    GP_AUTO_STR struct str text = {0};
    str_add_mem(&text, verdict, p != NULL ? (size_t)(p - verdict) + 2 : strlen(verdict));
    if (p != NULL) str_add(&text, p + strlen(again));
    text_fit(out, text.s, 64);
}

static void node_rows(const struct stack_view *v, struct table *t) {
    bool reachable = strcmp(v->phase != NULL ? v->phase : "", "gone") != 0;
    for (size_t i = 0; i < v->nodes.len; i++) {
        const struct node_view *n = &v->nodes.items[i];
        char price[32], verdict_buf[64];
        bool absent = n->id[0] == '\0' && n->price_usd_per_h == 0;
        if (absent) str_put(price, sizeof price, "-");
        else price_format(price, sizeof price, n->price_usd_per_h);
        GP_AUTO_FREE char *name = xasprintf("%s/%d", v->stack.name, n->slot);
        bool in = reachable && n->phase != NODE_GONE && n->address != NULL && n->address[0] != '\0';
        GP_AUTO_FREE char *how = in ? xasprintf("gpuprov ssh %s", name) : xstrdup("-");
        const char *verdict = n->verdict;
        if (verdict == NULL || verdict[0] == '\0') {
            str_put(verdict_buf, sizeof verdict_buf, node_phase_name(n->phase));
            verdict = verdict_buf;
        }
        GP_AUTO_STR struct str short_verdict = {0};
        shorten(verdict, name, &short_verdict);
        table_row(t, name, or_dash(n->place), price, short_verdict.s, how, NULL);
    }
}

/* Of a machine that is there: that of a node that may be there is no price. */
static bool has_unknown_price(const struct stack_view *v) {
    for (size_t i = 0; i < v->nodes.len; i++)
        if (v->nodes.items[i].id[0] != '\0' && v->nodes.items[i].price_usd_per_h < 0) return true;
    return false;
}

void show_stack(const struct stack_view *v, FILE *to) {
    struct table t = {.whole = 1};
    table_head(&t, "node", "place", "price", "verdict", "connect with", NULL);
    node_rows(v, &t);
    if (v->nodes.len > 0) table_print(&t, to);
    table_clear(&t);
    GP_AUTO_STR struct str line = {0};
    bool gone = v->phase != NULL && strcmp(v->phase, "gone") == 0;
    int64_t now_s = clock_wall_s() + v->clock_skew_s;
    bool none = gone && v->stack.uid == NULL; /* neither the journal nor a provider has one */
    str_addf(&line, "%s: %s%s", v->stack.name, none ? "there is no such stack" : or_dash(v->phase),
             v->remembered ? ", from the journal" : "");
    if (v->price_usd_per_h > 0 || has_unknown_price(v)) {
        char price[32];
        price_format(price, sizeof price, v->price_usd_per_h);
        str_addf(&line, ", %s%s", v->price_usd_per_h < 0 ? "price " : "", price);
    }
    if (v->spent_usd >= 0.005) str_addf(&line, ", %.2f USD so far", v->spent_usd);
    if (v->stack.expires_s > 0 && !gone) {
        char at[32], left[48];
        time_format_utc(at, sizeof at, v->stack.expires_s);
        left_text(left, sizeof left, v->stack.expires_s, now_s);
        str_addf(&line, ", deadline %s (%s", at, left);
        if (ends_text(v->ends)[0] != '\0') str_addf(&line, ", %s", ends_text(v->ends));
        str_add(&line, ")");
    }
    if (v->stack.expires_s > 0 && !gone && v->stack.expires_s <= now_s)
        str_addf(&line, ": 'gpuprov down %s' destroys what is left", v->stack.name);
    fprintf(to, "%s\n", line.s);
    GP_AUTO_STR struct str job = {0};
    if (v->job.id[0] != '\0' && !gone) engine_job_text(v, &job);
    if (job.len > 0) fprintf(to, "%s\n", job.s);
    drift_show(&v->drift, to);
    for (size_t i = 0; i < v->notes.n; i++) fprintf(to, "note: %s\n", v->notes.v[i]);
    for (size_t i = 0; i < v->unknown.list.len; i++) {
        const struct intent *u = &v->unknown.list.items[i];
        char at[32];
        time_format_utc(at, sizeof at, u->created_s);
        fprintf(to, "outcome not known: %s in %s%s%s, requested at %s: %s\n", resource_kind_name(u->kind),
                or_dash(u->region), u->zone && u->zone[0] ? "/" : "", u->zone ? u->zone : "", at,
                u->state == INTENT_TOMBSTONE ? "'gpuprov gc' searches for it"
                                             : "run 'gpuprov up' or 'gpuprov down' to settle it");
    }
    show_unreadable(&v->unreadable, to);
    if (none || !coverage_whole(&v->looked)) show_looked(&v->looked, to);
}

static json_t *resource_json(const struct resource *r) {
    json_t *j =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:b, s:b}", "kind", resource_kind_name(r->kind), "provider",
                  text_json(r->provider), "region", text_json(r->region), "zone", text_json(r->zone), "id",
                  text_json(r->id), "owner", text_json(r->owner), "stack", text_json(r->stack), "state",
                  resource_state_name(r->state), "billed", (int)r->billed, "claim", (int)r->claim);
    json_object_set_new(j, "slot", r->slot >= 0 ? json_integer(r->slot) : json_null());
    json_object_set_new(j, "state_reason", text_json(r->state_reason));
    json_object_set_new(j, "expires", time_json(r->expires_s));
    json_object_set_new(j, "price_usd_per_h", resource_is_machine(r) ? price_json(r->price_usd_per_h) : json_null());
    if (r->unreadable[0] != '\0') json_object_set_new(j, "unreadable", text_json(r->unreadable));
    return j;
}

json_t *resources_json(const struct resource_list *l) {
    json_t *list = json_array();
    for (size_t i = 0; i < l->list.len; i++) json_array_append_new(list, resource_json(&l->list.items[i]));
    return list;
}

void show_resources(const struct resource_list *l, FILE *to) {
    struct table t = {0};
    table_head(&t, "kind", "id", "stack", "place", "state", "billed", NULL);
    for (size_t i = 0; i < l->list.len; i++) {
        const struct resource *r = &l->list.items[i];
        const char *where = r->zone != NULL && r->zone[0] != '\0' ? r->zone : r->region;
        GP_AUTO_FREE char *place = xasprintf("%s %s", or_dash(r->provider), or_dash(where));
        table_row(&t, resource_kind_name(r->kind), or_dash(r->id), or_dash(r->stack), place,
                  resource_state_name(r->state), r->billed ? "yes" : "no", NULL);
    }
    table_print(&t, to);
    table_clear(&t);
}

static bool same_stack(const struct resource *a, const struct resource *b) {
    return str_eq(a->owner, b->owner) && str_eq(a->stack, b->stack);
}

/* "llm (owner me): 2 nodes, 98.32 USD/h, deadline 2026-11-22T23:00:00Z (1h30m left)" */
static void stack_line(const struct resource_list *l, const struct resource *of, FILE *to) {
    int nodes = 0;
    double per_h = 0;
    bool billed = false;
    int64_t expires_s = 0;
    for (size_t i = 0; i < l->list.len; i++) {
        const struct resource *r = &l->list.items[i];
        if (!same_stack(r, of)) continue;
        expires_s = GP_MAX(expires_s, r->expires_s);
        if (!resource_is_machine(r)) continue;
        nodes++;
        billed = billed || r->billed;
        per_h = per_h < 0 || r->price_usd_per_h < 0 ? -1 : per_h + r->price_usd_per_h;
    }
    fprintf(to, "%s (owner %s): %d node%s", or_dash(of->stack), or_dash(of->owner), nodes, nodes == 1 ? "" : "s");
    char price[32], at[32], left[48];
    price_format(price, sizeof price, per_h);
    if (billed) fprintf(to, ", %s%s", per_h < 0 ? "price " : "", price);
    time_format_utc(at, sizeof at, expires_s);
    left_text(left, sizeof left, expires_s, clock_wall_s());
    if (expires_s > 0) fprintf(to, ", deadline %s (%s)", at, left);
    fputc('\n', to);
}

static void one_stack(const struct resource_list *l, const struct resource *of, FILE *to) {
    struct table t = {0};
    table_head(&t, "  node", "id", "place", "state", "price", NULL);
    for (size_t i = 0; i < l->list.len; i++) {
        const struct resource *r = &l->list.items[i];
        if (!same_stack(r, of)) continue;
        const char *where = r->zone[0] != '\0' ? r->zone : r->region;
        bool node = resource_is_machine(r) && r->slot >= 0;
        GP_AUTO_FREE char *place = xasprintf("%s %s", or_dash(r->provider), or_dash(where));
        GP_AUTO_FREE char *name =
            node ? xasprintf("  %s/%d", r->stack, r->slot) : xasprintf("  (%s)", resource_kind_name(r->kind));
        char price[32];
        price_format(price, sizeof price, r->price_usd_per_h);
        table_row(&t, name, or_dash(r->id), place, resource_state_name(r->state), node ? price : "-", NULL);
    }
    table_print(&t, to);
    table_clear(&t);
}

void show_stacks_of(const struct resource_list *l, FILE *to) {
    for (size_t i = 0; i < l->list.len; i++) {
        size_t first = 0;
        while (!same_stack(&l->list.items[first], &l->list.items[i])) first++;
        if (first < i) continue;
        stack_line(l, &l->list.items[i], to);
        one_stack(l, &l->list.items[i], to);
    }
}

static json_t *node_view_json(const char *stack, const struct node_view *n) {
    json_t *j = json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o}", "slot", n->slot, "phase", node_phase_name(n->phase),
                          "id", text_json(n->id), "place", text_json(n->place), "type", text_json(n->type), "address",
                          text_json(n->address), "state", text_json(n->state));
    json_object_set_new(j, "price_usd_per_h", price_json(n->price_usd_per_h));
    json_object_set_new(j, "verdict", text_json(n->verdict));
    json_object_set_new(j, "ready", json_boolean(n->phase == NODE_READY));
    json_object_set_new(j, "billed", json_boolean(n->billed));
    GP_AUTO_FREE char *ssh = xasprintf("gpuprov ssh %s/%d", stack, n->slot);
    json_object_set_new(j, "ssh", json_string(ssh));
    return j;
}

static json_t *intents_json(const struct intent_list *l) {
    json_t *list = json_array();
    for (size_t i = 0; i < l->list.len; i++) {
        const struct intent *u = &l->list.items[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:o, s:o, s:o, s:i, s:i, s:o}", "kind", resource_kind_name(u->kind),
                                        "provider", text_json(u->provider), "region", text_json(u->region), "zone",
                                        text_json(u->zone), "slot_first", u->slot_first, "slot_count", u->slot_count,
                                        "created", time_json(u->created_s)));
    }
    return list;
}

static json_t *job_seen_json(const struct job_seen *s) {
    if (s->id[0] == '\0') return json_null();
    return json_pack("{s:s, s:s, s:o, s:o, s:i, s:b, s:o, s:s}", "id", s->id, "state", s->state, "started",
                     time_json(s->started_s), "seen", time_json(s->seen_s), "nodes", s->nodes, "fetched",
                     (int)s->fetched, "why", text_json(s->why), "from", "this machine");
}

json_t *stack_view_json(const struct stack_view *v) {
    const struct stack *s = &v->stack;
    json_t *nodes = json_array();
    for (size_t i = 0; i < v->nodes.len; i++) json_array_append_new(nodes, node_view_json(s->name, &v->nodes.items[i]));
    json_t *j = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "name", s->name, "owner", text_json(s->owner), "uid",
                          text_json(s->uid), "spec_hash", text_json(s->spec_hash), "provider", text_json(s->provider),
                          "region", text_json(s->region), "phase", text_json(v->phase));
    json_object_set_new(j, "unit", s->unit != NULL && s->unit[0] != '\0' ? json_any_text(s->unit) : json_null());
    json_object_set_new(j, "created", time_json(s->created_s));
    json_object_set_new(j, "expires", time_json(s->expires_s));
    json_object_set_new(j, "ends", text_json(v->ends));
    json_object_set_new(j, "price_usd_per_h", price_json(v->price_usd_per_h));
    json_object_set_new(j, "spent_usd", price_json(v->spent_usd));
    json_object_set_new(j, "nodes", nodes);
    json_object_set_new(j, "others", resources_json(&v->others));
    json_object_set_new(j, "unknown", intents_json(&v->unknown));
    json_object_set_new(j, "unreadable", resources_json(&v->unreadable));
    json_object_set_new(j, "looked", looked_json(&v->looked));
    json_object_set_new(j, "job", job_seen_json(&v->job));
    json_object_set_new(j, "drift", plan_changes_json(&v->drift));
    json_object_set_new(j, "remembered", json_boolean(v->remembered));
    json_t *notes = json_array();
    for (size_t i = 0; i < v->notes.n; i++) json_array_append_new(notes, json_any_text(v->notes.v[i]));
    json_object_set_new(j, "notes", notes);
    return j;
}
