/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a YAML tree by the tables. Goes on after an error, so that all errors of a file are shown
 * at once; a value with an error keeps its default. Any thread. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/log.h"
#include "spec/spec_internal.h"

#include <ctype.h>
#include <regex.h>
#include <stdarg.h>

static void complain(struct spec_ctx *c, unsigned line, unsigned column, const char *fmt, va_list ap) GP_PRINTF(4, 0);
static void complain(struct spec_ctx *c, unsigned line, unsigned column, const char *fmt, va_list ap) {
    if (c->problems->list.len >= SPEC_PROBLEMS_MAX) {
        c->dropped++;
        return;
    }
    GP_AUTO_STR struct str text = {.max = 4 * SPEC_VALUE_MAX};
    str_vaddf(&text, fmt, ap);
    GP_AUTO_FREE char *clean = log_redacted(text.s != NULL ? text.s : "");
    struct spec_problem p = {.pos = {line, column}, .message = xstrndup(clean, 1000)};
    str_one_line(p.message);
    vec_push(&c->problems->list, p);
}

void spec_complain_at(struct spec_ctx *c, unsigned line, unsigned column, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    complain(c, line, column, fmt, ap);
    va_end(ap);
}

void spec_complain(struct spec_ctx *c, const struct yaml_node *at, const char *fmt, ...) {
    if (spec_is_bad(c, at)) return;
    va_list ap;
    va_start(ap, fmt);
    complain(c, at->line, at->column, fmt, ap);
    va_end(ap);
    vec_push(&c->bad, at);
}

const char *spec_shown(const struct yaml_node *at, const char *part) {
    return at != NULL && at->source != NULL ? at->source : part;
}

bool spec_is_bad(const struct spec_ctx *c, const struct yaml_node *at) {
    if (c->dropped > SPEC_PROBLEMS_MAX) return true; /* too many errors: skip the rest of the file */
    for (size_t i = 0; i < c->bad.len; i++)
        if (c->bad.items[i] == at) return true;
    return false;
}

bool spec_match(const char *pattern, const char *text) {
    regex_t re;
    if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB) != 0) abort(); /* an error in the table itself */
    bool ok = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return ok && strchr(text, '\n') == NULL;
}

char *spec_hint(const char *word, const char *const *names) {
    const char *near = str_closest(word, names);
    if (near != NULL) return xasprintf("; did you mean '%s'?", near);
    struct str s = {.max = 300};
    for (size_t i = 0; names[i] != NULL; i++) str_addf(&s, "%s%s", i == 0 ? "; valid here: " : ", ", names[i]);
    return str_steal(&s);
}

const char *const *spec_choices(const struct spec_field *f) {
    return f->choices == NULL && f->names != NULL ? f->names() : f->choices;
}

/* "; did you mean 'x'? known: a, b": for names that depend on the program. */
static void unknown_name(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at) {
    const char *const *known = f->names();
    const char *near = str_closest(at->value, known);
    GP_AUTO_STR struct str list = {.max = 300};
    for (size_t i = 0; known[i] != NULL; i++) str_addf(&list, "%s%s", i == 0 ? "" : ", ", known[i]);
    spec_complain(c, at, "unknown %s '%.60s'%s%s%s known: %s", f->name, spec_shown(at, at->value),
                  near != NULL ? "; did you mean '" : ";", near != NULL ? near : "", near != NULL ? "'?" : "",
                  list.len > 0 ? list.s : "none");
}

static bool is_null(const struct yaml_node *at) {
    if (at->kind != YAML_SCALAR || at->quoted) return false;
    return at->value[0] == '\0' || str_eq(at->value, "~") || str_eq(at->value, "null") || str_eq(at->value, "Null") ||
           str_eq(at->value, "NULL");
}

/* Refuses values that are unsafe in terminals, scripts and JSON. */
static const char *unfit(const char *s) {
    if (strlen(s) > SPEC_VALUE_MAX) return "is longer than 64 KiB";
    for (const unsigned char *p = (const unsigned char *)s; *p; p++) {
        if ((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f) return "has control characters";
        if (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f) return "has control characters";
    }
    return NULL;
}

const char *spec_text_of(struct spec_ctx *c, const struct yaml_node *at, const char *key) {
    if (spec_is_bad(c, at)) return NULL;
    const char *why = NULL;
    if (at->kind != YAML_SCALAR)
        spec_complain(c, at, "'%s' must be text, not a %s", key, at->kind == YAML_MAP ? "map" : "list");
    else if (is_null(at)) spec_complain(c, at, "'%s' has no value: give it one or remove the key", key);
    else if ((why = unfit(at->value)) != NULL) spec_complain(c, at, "'%s' %s", key, why);
    else return at->value;
    return NULL;
}

bool spec_int_of(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at, int64_t *ret) {
    const char *text = spec_text_of(c, at, f->name);
    if (text == NULL) return false;
    int64_t v = 0;
    if (at->quoted && str_to_i64(text, INT64_MIN, INT64_MAX, &v)) {
        spec_complain(c, at, "'%s' must be a number: write %s without quotes", f->name, spec_shown(at, text));
        return false;
    }
    if (!str_to_i64(text, f->min, f->max, &v)) {
        spec_complain(c, at, "'%s' must be a whole number from %lld to %lld, not '%s'", f->name, (long long)f->min,
                      (long long)f->max, spec_shown(at, text));
        return false;
    }
    *ret = v;
    return true;
}

static void decode_bool(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at, bool *to) {
    static const char *const yes[] = {"yes", "on", "y", "1", NULL};
    static const char *const no[] = {"no", "off", "n", "0", NULL};
    const char *text = spec_text_of(c, at, f->name);
    if (text == NULL) return;
    bool is_true = strcmp(text, "true") == 0, is_false = strcmp(text, "false") == 0;
    if ((is_true || is_false) && !at->quoted) {
        *to = is_true;
        return;
    }
    const char *meant = is_true ? "true" : is_false ? "false" : NULL;
    char low[8] = "";
    for (size_t i = 0; i + 1 < sizeof low && text[i] != '\0'; i++) low[i] = (char)tolower((unsigned char)text[i]);
    for (size_t i = 0; meant == NULL && yes[i] != NULL; i++) {
        if (strcmp(low, yes[i]) == 0 || strcmp(low, "true") == 0) meant = "true";
        if (strcmp(low, no[i]) == 0 || strcmp(low, "false") == 0) meant = "false";
    }
    spec_complain(c, at, "'%s' must be true or false, not %s'%s'%s%s%s", f->name, at->quoted ? "the text " : "",
                  spec_shown(at, text), meant != NULL ? "; did you mean " : "", meant != NULL ? meant : "",
                  meant != NULL ? " (without quotes)?" : "");
}

static int index_of(const char *const *choices, const char *text) {
    for (int i = 0; choices[i] != NULL; i++)
        if (strcmp(choices[i], text) == 0) return i;
    return -1;
}

static bool allowed(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at, const char *text) {
    if (f->names != NULL && index_of(f->names(), text) < 0) {
        unknown_name(c, f, at);
    } else if (f->choices != NULL && index_of(f->choices, text) < 0) {
        GP_AUTO_FREE char *hint = spec_hint(text, f->choices);
        spec_complain(c, at, "'%s' cannot be '%s'%s", f->name, spec_shown(at, text), hint);
    } else if (f->pattern != NULL && (strlen(text) > 4096 || !spec_match(f->pattern, text))) {
        spec_complain(c, at, "'%s' must be %s, not '%.100s'", f->name, f->pattern_doc, spec_shown(at, text));
    } else if (text[0] == '\0') {
        spec_complain(c, at, "'%s' is empty", f->name);
    } else if (f->check != NULL) {
        f->check(c, at);
    }
    return !spec_is_bad(c, at);
}

static void decode_text(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at, char **to) {
    const char *text = spec_text_of(c, at, f->name);
    if (text == NULL || !allowed(c, f, at, text) || to == NULL) return;
    free(*to);
    *to = xstrdup(text);
}

static bool too_many(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at) {
    if (at->items.len <= SPEC_ITEMS_MAX) return false;
    spec_complain(c, at, "'%s' has %zu entries; at most %d", f->name, at->items.len, SPEC_ITEMS_MAX);
    return true;
}

static void decode_texts(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at, struct strv *to) {
    if (at->kind != YAML_LIST) {
        const char *text = spec_text_of(c, at, f->name);
        if (text != NULL) spec_complain(c, at, "'%s' must be a list: [%s]", f->name, spec_shown(at, text));
        return;
    }
    if (at->items.len < f->min_items)
        spec_complain(c, at, "'%s' is an empty list: remove the key for its default (%s), or name at least one",
                      f->name, f->def_doc != NULL ? f->def_doc : "none");
    if (too_many(c, f, at)) return;
    for (size_t i = 0; i < at->items.len; i++) {
        const struct yaml_node *item = at->items.items[i];
        const char *text = spec_text_of(c, item, f->name);
        if (text == NULL || !allowed(c, f, item, text)) continue;
        if (strv_has(to, text)) spec_complain(c, item, "duplicate '%s' in '%s'", text, f->name);
        else strv_add(to, text);
    }
}

static void decode_duration(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at, int64_t *to) {
    const char *text = spec_text_of(c, at, f->name);
    int64_t ms = 0, number = 0, choice = 0;
    if (text == NULL) return;
    if (!duration_parse(text, &ms)) {
        if (str_to_i64(text, 0, INT64_MAX, &number))
            spec_complain(c, at, "'%s' is %s without a unit: write %ss, %sm or %sh", f->name, spec_shown(at, text),
                          spec_shown(at, text), spec_shown(at, text), spec_shown(at, text));
        else
            spec_complain(c, at, "'%s' must be a duration such as %s, not '%.100s' (units: s, m, h, d)", f->name,
                          f->example, spec_shown(at, text));
        return;
    }
    if (f->choices != NULL) {
        for (size_t i = 0; f->choices[i] != NULL; i++) {
            if (!duration_parse(f->choices[i], &choice) || choice != ms) continue;
            *to = ms;
            return;
        }
        GP_AUTO_FREE char *hint = spec_hint("", f->choices);
        spec_complain(c, at, "'%s' cannot be '%s'%s", f->name, spec_shown(at, text), hint);
    } else if (ms < f->min || ms > f->max) {
        char min[32], max[32];
        duration_format(min, sizeof min, f->min);
        duration_format(max, sizeof max, f->max);
        spec_complain(c, at, "'%s' must be from %s to %s, not %s", f->name, min, max, spec_shown(at, text));
    } else {
        *to = ms;
    }
}

/* A new element of a list, zeroed. */
static void *push(void *list, size_t size) {
    struct spec_vec v;
    memcpy(&v, list, sizeof v);
    if (v.len == v.cap) {
        v.cap = v.cap ? v.cap * 2 : 8;
        v.items = xrealloc(v.items, v.cap * size);
    }
    char *item = v.items + v.len++ * size;
    memset(item, 0, size);
    memcpy(list, &v, sizeof v);
    return item;
}

static void decode_list(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at, void *to) {
    if (at->kind != YAML_LIST) {
        if (at->kind == YAML_SCALAR && spec_text_of(c, at, f->name) == NULL) return;
        spec_complain(c, at, "'%s' must be a list%s: %s", f->name,
                      at->kind == YAML_MAP ? " (put '- ' or [ ] around it)" : "", spec_example(f));
        return;
    }
    if (at->items.len < f->min_items)
        spec_complain(c, at, "'%s' is empty: it needs at least %zu, such as %s", f->name, f->min_items,
                      spec_example(f));
    if (too_many(c, f, at)) return;
    for (size_t i = 0; i < at->items.len; i++) spec_decode(c, f->block, at->items.items[i], push(to, f->block->size));
}

/* Whether every accepted value of the row is one of a list, a number or a word that all see. */
static bool is_plain(const struct spec_field *f) {
    switch (f->type) {
    case SPEC_INT:
    case SPEC_BOOL:
    case SPEC_DURATION:
    case SPEC_MONEY:
    case SPEC_SIZE:
    case SPEC_ENUM: return true;
    case SPEC_TEXT:
    case SPEC_TEXTS: return f->is_public || spec_choices(f) != NULL;
    default: return false;
    }
}

static void decode_field(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at, void *base) {
    void *to = f->offset == SIZE_MAX ? NULL : (char *)base + f->offset;
    int64_t v = 0;
    switch (f->type) {
    case SPEC_TEXT: decode_text(c, f, at, to); break;
    case SPEC_INT:
        if (spec_int_of(c, f, at, &v)) *(int *)to = (int)v;
        break;
    case SPEC_BOOL: decode_bool(c, f, at, to); break;
    case SPEC_DURATION: decode_duration(c, f, at, to); break;
    case SPEC_MONEY: spec_money_decode(c, f, at, to); break;
    case SPEC_SIZE: spec_size_decode(c, f, at, to); break;
    case SPEC_ENUM: {
        const char *text = spec_text_of(c, at, f->name);
        if (text != NULL && allowed(c, f, at, text)) {
            int i = index_of(f->choices, text);
            memcpy(to, &i, sizeof i); /* an enum is as wide as an int */
        }
        break;
    }
    case SPEC_TEXTS: decode_texts(c, f, at, to); break;
    case SPEC_SHORT:
        if (at->kind == YAML_SCALAR) {
            if (spec_text_of(c, at, f->name) != NULL) f->from_text(c, at, to);
            break;
        }
        spec_decode(c, f->block, at, to);
        break;
    case SPEC_BLOCK: spec_decode(c, f->block, at, to); break;
    case SPEC_LIST: decode_list(c, f, at, to); break;
    case SPEC_FLOORS: spec_floors_decode(c, at, to); break;
    case SPEC_VARS: spec_vars_decode(c, f, at, to); break;
    }
    if (is_plain(f)) spec_replaced_reveal(c, at);
}

/* Finds a key of that name in any block, for the hint of an unknown key. */
static const char *home_of(const struct spec_block *b, const char *key) {
    for (const struct spec_field *f = b->fields; f->name != NULL; f++) {
        if (f->block == NULL) continue;
        for (const struct spec_field *g = f->block->fields; g->name != NULL; g++)
            if (strcmp(g->name, key) == 0) return f->block->path;
        const char *deeper = home_of(f->block, key);
        if (deeper != NULL) return deeper;
    }
    return NULL;
}

static void unknown_key(struct spec_ctx *c, const struct spec_block *b, const struct yaml_node *key) {
    const char *names[32] = {NULL};
    size_t n = 0;
    for (const struct spec_field *f = b->fields; f->name != NULL; f++) names[n++] = f->name;
    names[n] = NULL;
    const char *in = b->path[0] != '\0' ? b->path : "a spec";
    const char *home = home_of(&spec_root, key->value);
    bool at_root = false;
    for (const struct spec_field *f = spec_root.fields; f->name != NULL; f++)
        at_root = at_root || strcmp(f->name, key->value) == 0;
    if (str_closest(key->value, names) == NULL && at_root)
        spec_complain(c, key, "unknown key '%s' in %s; it belongs to the top level", key->value, in);
    else if (str_closest(key->value, names) == NULL && home != NULL)
        spec_complain(c, key, "unknown key '%s' in %s; it belongs to '%s'", key->value, in, home);
    else {
        GP_AUTO_FREE char *hint = spec_hint(key->value, names);
        spec_complain(c, key, "unknown key '%.100s' in %s%s", key->value, in, hint);
    }
}

/* The table's own default, through the same decoder. */
static void decode_default(struct spec_ctx *c, const struct spec_field *f, void *to) {
    if (f->type == SPEC_BLOCK) spec_decode(c, f->block, NULL, (char *)to + f->offset);
    if (f->def == NULL) return;
    GP_AUTO_FREE char *text = xstrdup(f->def);
    struct yaml_node at = {.kind = YAML_SCALAR, .value = text};
    decode_field(c, f, &at, to);
}

void spec_decode(struct spec_ctx *c, const struct spec_block *b, const struct yaml_node *map, void *to) {
    for (const struct spec_field *f = b->fields; f->name != NULL; f++) decode_default(c, f, to);
    const char *what = b->path[0] != '\0' ? b->path : "a spec";
    bool two = b->fields[1].name != NULL && (b->fields[2].name == NULL || strcmp(b->path, "image") == 0) &&
               !b->fields[0].required;
    if (map != NULL && map->kind != YAML_MAP) {
        if (map->kind != YAML_SCALAR || spec_text_of(c, map, what) != NULL)
            spec_complain(c, map, "%s must be a map: {%s: ...}%s%s%s", what, b->fields[0].name, two ? " or {" : "",
                          two ? b->fields[1].name : "", two ? ": ...}" : "");
        return;
    }
    if (map != NULL && b->has_pos) {
        struct spec_pos pos = {map->line, map->column};
        memcpy((char *)to + b->pos_offset, &pos, sizeof pos);
    }
    for (size_t i = 0; map != NULL && i + 1 < map->items.len; i += 2) {
        const struct yaml_node *key = map->items.items[i];
        const struct spec_field *f = b->fields;
        while (f->name != NULL && strcmp(f->name, key->value) != 0) f++;
        if (f->name == NULL) unknown_key(c, b, key);
        else decode_field(c, f, map->items.items[i + 1], to);
    }
    for (const struct spec_field *f = b->fields; map != NULL && f->name != NULL; f++)
        if (f->required && yaml_get(map, f->name) == NULL)
            spec_complain_at(c, map->line, map->column, "%s needs '%s', such as %s: %s", what, f->name, f->name,
                             spec_example(f));
    if (b->rules != NULL) b->rules(c, map, to);
}
