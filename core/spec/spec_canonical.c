/* SPDX-License-Identifier: Apache-2.0 */
/* The decoded spec as JSON, by the tables: the form that the journal keeps (a spec again) and the form
 * that is hashed. Every default of the first version is in both, keys are in the tables' order. No I/O. Any
 * thread. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "spec/spec_internal.h"

_Static_assert(sizeof(struct spec_vec) == sizeof(VEC_OF(int)), "a VEC_OF has another layout");

static json_t *block_json(const struct spec_block *b, const void *base, bool hash);

static json_t *text_json(const struct spec_field *f, const char *text, bool hash) {
    if (text == NULL) return NULL;
    const char *slash = hash && f->basename_in_hash ? strrchr(text, '/') : NULL;
    const char *scheme = str_starts(text, "file:") ? "file:" : str_starts(text, SPEC_TERRAFORM) ? SPEC_TERRAFORM : "";
    GP_AUTO_FREE char *base = slash != NULL ? xasprintf("%s%s", scheme, slash + 1) : NULL;
    GP_AUTO_FREE char *escaped = spec_escape(base != NULL ? base : text, f->script);
    return json_string(escaped);
}

static json_t *texts_json(const struct spec_field *f, const struct strv *v, bool hash) {
    if (v->n == 0) return NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < v->n; i++) json_array_append_new(list, text_json(f, v->v[i], hash));
    return list;
}

static json_t *list_json(const struct spec_block *b, const void *at, bool hash) {
    struct spec_vec v;
    memcpy(&v, at, sizeof v);
    json_t *list = json_array();
    for (size_t i = 0; i < v.len; i++) json_array_append_new(list, block_json(b, v.items + i * b->size, hash));
    return list;
}

static json_t *duration_json(int64_t ms) {
    GP_AUTO_FREE char *text = xasprintf("%lldms", (long long)ms);
    return json_string(text);
}

/* NULL: an empty map. */
static json_t *map_json(const struct spec_block *b, const void *at, bool hash) {
    json_t *map = block_json(b, at, hash);
    if (json_object_size(map) > 0) return map;
    json_decref(map);
    return NULL;
}

/* NULL: absent. A number of 0 where the row takes none is absent too. */
static json_t *value_json(const struct spec_field *f, const void *base, bool hash) {
    if (f->offset == SIZE_MAX) return json_string(f->choices[0]); /* has one value only */
    const void *at = (const char *)base + f->offset;
    int i = 0;
    int64_t ms = 0;
    json_t *map = NULL;
    char money[48];
    switch (f->type) {
    case SPEC_TEXT: return text_json(f, *(char *const *)at, hash);
    case SPEC_INT: i = *(const int *)at; return i == 0 && f->min > 0 ? NULL : json_integer(i);
    case SPEC_BOOL: return json_boolean(*(const bool *)at);
    case SPEC_DURATION:
        ms = *(const int64_t *)at;
        return ms == 0 && (f->min > 0 || f->choices != NULL) ? NULL : duration_json(ms);
    case SPEC_MONEY:
        ms = *(const int64_t *)at;
        if (ms == 0) return NULL;
        spec_money_text(money, sizeof money, ms, f->unit);
        return json_string(money);
    case SPEC_SIZE:
        i = *(const int *)at;
        if (i == 0) return NULL;
        spec_size_text(money, sizeof money, i);
        return json_string(money);
    case SPEC_ENUM: memcpy(&i, at, sizeof i); return json_string(f->choices[i]);
    case SPEC_TEXTS: return texts_json(f, at, hash);
    case SPEC_BLOCK: return map_json(f->block, at, hash);
    case SPEC_SHORT:
        map = map_json(f->block, at, hash);
        return map == NULL && f->def != NULL ? json_string(f->def) : map;
    case SPEC_LIST: return list_json(f->block, at, hash);
    case SPEC_FLOORS: return spec_floors_json(at, hash);
    case SPEC_VARS: return spec_vars_json(at);
    }
    return NULL;
}

json_t *spec_default_json(const struct spec_field *f) {
    int64_t v = 0;
    switch (f->type) {
    case SPEC_INT: return f->def != NULL && str_to_i64(f->def, f->min, f->max, &v) ? json_integer(v) : json_integer(0);
    case SPEC_BOOL: return json_boolean(f->def != NULL && strcmp(f->def, "true") == 0);
    case SPEC_DURATION: return duration_json(f->def != NULL && duration_parse(f->def, &v) ? v : 0);
    case SPEC_ENUM: return json_string(f->def != NULL ? f->def : f->choices[0]);
    case SPEC_LIST: return json_array();
    case SPEC_FLOORS: return json_object();
    case SPEC_TEXT:
    case SPEC_MONEY:
    case SPEC_SIZE:
    case SPEC_SHORT:
    case SPEC_TEXTS:
    case SPEC_VARS:
    case SPEC_BLOCK: break;
    }
    return f->def != NULL ? json_string(f->def) : NULL;
}

static bool is_default(const struct spec_field *f, const json_t *value) {
    GP_AUTO_JSON json_t *def = spec_default_json(f);
    return def != NULL && json_equal(def, value);
}

static json_t *block_json(const struct spec_block *b, const void *base, bool hash) {
    json_t *map = json_object();
    for (const struct spec_field *f = b->fields; f->name != NULL; f++) {
        if (b->takes != NULL && !b->takes(base, f->name)) continue;
        if (hash && f->apart) continue;
        json_t *value = value_json(f, base, hash);
        if (value == NULL) continue;
        if (hash && !f->default_in_hash && is_default(f, value)) json_decref(value);
        else json_object_set_new(map, f->name, value);
    }
    return map;
}

json_t *spec_json(const struct spec *s) { return block_json(&spec_root, s, false); }

static char *form(const struct spec *s, bool hash) {
    GP_AUTO_JSON json_t *j = block_json(&spec_root, s, hash);
    json_t *replaced = hash ? NULL : spec_replaced_json(s);
    if (replaced != NULL) json_object_set_new(j, SPEC_REPLACED_KEY, replaced);
    return json_text_exact(j, 0);
}

char *spec_canonical(const struct spec *s) { return form(s, false); }
char *spec_hash_form(const struct spec *s) { return form(s, true); }
