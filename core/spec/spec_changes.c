/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that differ between an earlier spec and this one, their values as text, and the effect that their rows
 * declare. Scripts are never shown: a substituted secret may be in them. No I/O. Any thread. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/log.h"
#include "spec/spec_internal.h"

const char *spec_effect_name(enum spec_effect e) {
    static const char *const names[] = {
        [SPEC_UNDECLARED] = "",   [SPEC_REFUSED] = "refused",   [SPEC_REPEATED] = "repeated",
        [SPEC_SCALED] = "scaled", [SPEC_DEADLINE] = "deadline", [SPEC_ACCESS] = "access",
        [SPEC_LATER] = "later",   [SPEC_STACK] = "stack"};
    return names[e];
}

bool spec_effect_keeps_ready(enum spec_effect e) { return e == SPEC_DEADLINE || e == SPEC_ACCESS || e == SPEC_LATER; }

void spec_changes_clear(struct spec_changes *c) {
    for (size_t i = 0; i < c->list.len; i++) {
        free(c->list.items[i].key);
        free(c->list.items[i].old);
        free(c->list.items[i].now);
    }
    vec_free(&c->list);
}

const struct spec_change *spec_changes_refused(const struct spec_changes *c) {
    for (size_t i = 0; i < c->list.len; i++)
        if (c->list.items[i].effect == SPEC_REFUSED) return &c->list.items[i];
    return NULL;
}

void spec_change_text(const struct spec_change *c, struct str *out) {
    if (c->old != NULL && c->now != NULL) str_addf(out, "%s: %s -> %s", c->key, c->old, c->now);
    else str_addf(out, "%s: %s", c->key, c->now != NULL ? c->now : "changed");
}

/* --- values as text --- */

/* Undoes spec_escape: `$${` is `${`. */
static void add_plain(struct str *out, const char *text) {
    for (; *text != '\0'; text++)
        if (!str_starts(text, "$${")) str_addc(out, *text);
}

/* A value as its file has it: in quotes, which the redactor needs for a short one. */
static void add_shown(struct str *out, const char *text) {
    GP_AUTO_STR struct str quoted = {0};
    str_addc(&quoted, '\'');
    add_plain(&quoted, text);
    str_addc(&quoted, '\'');
    GP_AUTO_FREE char *shown = log_redacted(quoted.s);
    for (size_t i = 1; shown[i] != '\0' && shown[i + 1] != '\0'; i++) str_addc(out, shown[i] == '\n' ? ' ' : shown[i]);
}

static void add_value(const struct spec_field *f, const json_t *v, struct str *out) {
    int64_t ms = 0;
    if (f != NULL && f->type == SPEC_DURATION && duration_parse(json_string_value(v), &ms)) {
        char text[32];
        duration_format(text, sizeof text, ms);
        str_add(out, text);
    } else if (json_is_string(v)) {
        add_shown(out, json_string_value(v));
    } else if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++) {
            str_add(out, i == 0 ? "[" : ", ");
            add_value(NULL, json_array_get(v, i), out);
        }
        str_add(out, json_array_size(v) == 0 ? "[]" : "]");
    } else if (json_is_object(v)) {
        const char *key = NULL;
        const json_t *item = NULL;
        bool first = true;
        json_object_foreach((json_t *)(uintptr_t)v, key, item) {
            str_addf(out, "%s%s: ", first ? "{" : ", ", key);
            add_value(NULL, item, out);
            first = false;
        }
        str_add(out, first ? "{}" : "}");
    } else {
        GP_AUTO_FREE char *text = json_dumps(v, JSON_ENCODE_ANY);
        str_add(out, text != NULL ? text : "");
    }
}

static char *value_text(const struct spec_field *f, const json_t *v) {
    GP_AUTO_STR struct str out = {.max = 300};
    GP_AUTO_JSON json_t *def = v == NULL ? spec_default_json(f) : NULL;
    if (v != NULL || (def != NULL && f->def != NULL)) add_value(f, v != NULL ? v : def, &out);
    else if (f->def_doc != NULL) str_addf(&out, "(%s)", f->def_doc);
    else str_add(&out, "(none)");
    if (out.truncated) return xasprintf("%.290s...", out.s);
    return str_steal(&out);
}

/* --- comparison --- */

struct diff {
    struct spec_changes *to;
    enum spec_effect over; /* of an outer row that declares the effect of all inner ones */
};

static void add(const struct diff *d, const struct spec_field *f, char *key, char *old, char *now) {
    enum spec_effect own = f->effect != SPEC_UNDECLARED ? f->effect : SPEC_REPEATED;
    if (old != NULL && now != NULL && strcmp(old, now) == 0) { /* of one variable or file */
        free(now);
        now = xasprintf("%s (another value)", old);
    }
    GP_AUTO_FREE char *named = key;
    struct spec_change c = {
        .key = log_redacted(named), .old = old, .now = now, .effect = d->over != SPEC_UNDECLARED ? d->over : own};
    vec_push(&d->to->list, c);
}

/* A key that the earlier program did not have counts as its default. */
static bool differs(const struct spec_field *f, const json_t *old, const json_t *now) {
    if (old != NULL && now != NULL) return !json_equal(old, now);
    if (old == now) return false;
    GP_AUTO_JSON json_t *def = spec_default_json(f);
    return def == NULL || !json_equal(def, old != NULL ? old : now);
}

static bool has_refused(const struct spec_block *b) {
    for (const struct spec_field *f = b->fields; f->name != NULL; f++)
        if (f->effect == SPEC_REFUSED || (f->block != NULL && has_refused(f->block))) return true;
    return false;
}

static void compare(const struct diff *d, const struct spec_block *b, const char *at, const json_t *old,
                    const json_t *now);

static bool needs_other_machines(const struct spec_block *b, const json_t *old, const json_t *now) {
    GP_AUTO_CHANGES struct spec_changes found = {0};
    struct diff d = {.to = &found};
    compare(&d, b, "", old, now);
    return spec_changes_refused(&found) != NULL;
}

/* Finds for each item an earlier one that has the same machines. The order of offers decides only which one is tried
 * first. False: an item has none, or the number differs. */
static bool pair_up(const struct spec_block *b, const json_t *old, const json_t *now, size_t *pair) {
    size_t n = json_array_size(now);
    if (json_array_size(old) != n) return false;
    GP_AUTO_FREE bool *taken = xcalloc(n + 1, sizeof *taken);
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < n && (taken[k] || needs_other_machines(b, json_array_get(old, k), json_array_get(now, i)))) k++;
        if (k == n) return false;
        taken[k] = true;
        pair[i] = k;
    }
    return true;
}

static void compare_offers(const struct diff *d, const struct spec_field *f, const char *key, const json_t *old,
                           const json_t *now) {
    size_t n_old = json_array_size(old), n = json_array_size(now);
    GP_AUTO_FREE size_t *pair = xcalloc(n + 1, sizeof *pair);
    bool paired = pair_up(f->block, old, now, pair), moved = false;
    if (n_old != n) {
        struct diff refused = {.to = d->to, .over = SPEC_REFUSED};
        add(&refused, f, xstrdup(key), xasprintf("%zu", n_old), xasprintf("%zu", n));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        size_t k = paired ? pair[i] : i;
        GP_AUTO_FREE char *at = xasprintf("%s[%zu].", key, i);
        moved = moved || k != i;
        compare(d, f->block, at, json_array_get(old, k), json_array_get(now, i));
    }
    struct diff later = {.to = d->to, .over = SPEC_LATER};
    if (moved) add(&later, f, xstrdup(key), NULL, xstrdup("another order"));
}

/* Items of other lists have a name: their first key. */
static const char *item_name(const struct spec_block *b, const json_t *item) {
    return json_str(item, b->fields[0].name, "?");
}

static const json_t *item_find(const struct spec_block *b, const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(item_name(b, json_array_get(list, i)), name) == 0) return json_array_get(list, i);
    return NULL;
}

static void compare_named(const struct diff *d, const struct spec_field *f, const char *key, const json_t *old,
                          const json_t *now) {
    bool moved = json_array_size(old) == json_array_size(now);
    for (size_t i = 0; i < json_array_size(old); i++) {
        const char *name = item_name(f->block, json_array_get(old, i));
        if (item_find(f->block, now, name) != NULL) continue;
        moved = false;
        add(d, f, xasprintf("%s[%s]", key, name), NULL, xstrdup("removed"));
    }
    size_t before = d->to->list.len;
    for (size_t i = 0; i < json_array_size(now); i++) {
        const json_t *item = json_array_get(now, i);
        const char *name = item_name(f->block, item);
        const json_t *was = item_find(f->block, old, name);
        GP_AUTO_FREE char *at = xasprintf("%s[%s].", key, name);
        if (was == NULL) add(d, f, xasprintf("%s[%s]", key, name), NULL, xstrdup("added"));
        else compare(d, f->block, at, was, item);
    }
    if (moved && before == d->to->list.len && !json_equal(old, now))
        add(d, f, xstrdup(key), NULL, xstrdup("another order"));
}

static void compare_field(const struct diff *d, const struct spec_field *f, const char *at, const json_t *old,
                          const json_t *now) {
    GP_AUTO_FREE char *key = xasprintf("%s%s", at, f->name);
    if (f->type == SPEC_LIST) {
        if (!differs(f, old, now)) return;
        if (has_refused(f->block)) compare_offers(d, f, key, old, now);
        else compare_named(d, f, key, old, now);
    } else if (f->type == SPEC_BLOCK && f->effect == SPEC_UNDECLARED) {
        GP_AUTO_FREE char *inner = xasprintf("%s.", key);
        compare(d, f->block, inner, old, now);
    } else if (differs(f, old, now)) {
        bool shown = !f->script;
        add(d, f, GP_STEAL(key), shown ? value_text(f, old) : NULL, shown ? value_text(f, now) : NULL);
    }
}

static void compare(const struct diff *d, const struct spec_block *b, const char *at, const json_t *old,
                    const json_t *now) {
    for (const struct spec_field *f = b->fields; f->name != NULL; f++)
        if (!f->apart) compare_field(d, f, at, json_object_get(old, f->name), json_object_get(now, f->name));
}

void spec_changes_find(const char *old_canonical, const struct spec *now, struct spec_changes *ret) {
    GP_AUTO_JSON json_t *old = json_loads(old_canonical, 0, NULL);
    GP_AUTO_JSON json_t *new = spec_json(now);
    struct diff d = {.to = ret};
    spec_replaced_register(old);
    if (json_is_object(old)) compare(&d, &spec_root, "", old, new);
}
