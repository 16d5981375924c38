/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON Schema (draft 2020-12) of the spec, from the decode tables. With it an editor completes
 * keys and marks errors. Rules over several keys are left to `gpuprov check`, except the keys of each
 * provider. No I/O. Any thread. */
#include "base/gp_base.h"

#include "base/json.h"
#include "spec/spec_internal.h"

/* "${env:X}" may stand wherever text, a number or a bool may. */
#define SUBST_PATTERN "[$][{](env|file):"

static json_t *block_schema(const struct spec_block *b);

static json_t *choices_json(const char *const *choices) {
    json_t *list = json_array();
    for (size_t i = 0; choices[i] != NULL; i++) json_array_append_new(list, json_string(choices[i]));
    return list;
}

/* anyOf [plain, "${...}"]: for values that are not text. */
static json_t *or_substitution(json_t *plain) {
    return json_pack("{s:[o, {s:s, s:s}]}", "anyOf", plain, "type", "string", "pattern", SUBST_PATTERN);
}

static json_t *text_schema(const struct spec_field *f) {
    json_t *j = json_object();
    if (f->type == SPEC_DURATION && f->choices == NULL) {
        json_object_set_new(j, "type", json_string("string"));
        json_object_set_new(j, "pattern", json_string("^([0-9]+(ms|s|m|h|d))+$|" SUBST_PATTERN));
    } else if (f->type == SPEC_MONEY) {
        GP_AUTO_FREE char *pattern = xasprintf("^[0-9]+([.][0-9]{1,6})? *%s$|" SUBST_PATTERN, f->unit);
        json_object_set_new(j, "type", json_string("string"));
        json_object_set_new(j, "pattern", json_string(pattern));
    } else if (f->type == SPEC_SIZE) {
        json_object_set_new(j, "type", json_string("string"));
        json_object_set_new(j, "pattern", json_string("^" SPEC_SIZE_PATTERN "$|" SUBST_PATTERN));
    } else if (spec_choices(f) != NULL) {
        json_object_set_new(j, "enum", choices_json(spec_choices(f)));
        return or_substitution(j);
    } else {
        json_object_set_new(j, "type", json_string("string"));
        if (f->pattern != NULL) {
            GP_AUTO_FREE char *pattern = xasprintf("%s|" SUBST_PATTERN, f->pattern);
            json_object_set_new(j, "pattern", json_string(pattern));
        } else {
            json_object_set_new(j, "minLength", json_integer(1));
        }
    }
    return j;
}

static json_t *list_schema(json_t *items, const struct spec_field *f) {
    json_t *j = json_pack("{s:s, s:o, s:i}", "type", "array", "items", items, "maxItems", SPEC_ITEMS_MAX);
    if (f->type == SPEC_TEXTS) json_object_set_new(j, "uniqueItems", json_true());
    if (f->min_items > 0) json_object_set_new(j, "minItems", json_integer((json_int_t)f->min_items));
    return j;
}

static json_t *floors_schema(void) {
    return json_pack("{s:s, s:{s:[{s:s, s:s}, {s:s}]}}", "type", "object", "additionalProperties", "anyOf", "type",
                     "string", "pattern", "^[0-9.]+([eE][+-]?[0-9]+)? *[A-Za-z/%]*$|" SUBST_PATTERN, "type", "number");
}

static json_t *short_schema(const struct spec_field *f) {
    json_t *text = text_schema(f), *map = block_schema(f->block);
    return json_pack("{s:[o, o]}", "anyOf", text, map);
}

static json_t *type_schema(const struct spec_field *f) {
    switch (f->type) {
    case SPEC_INT:
        return or_substitution(json_pack("{s:s, s:I, s:I}", "type", "integer", "minimum", (json_int_t)f->min, "maximum",
                                         (json_int_t)f->max));
    case SPEC_BOOL: return or_substitution(json_pack("{s:s}", "type", "boolean"));
    case SPEC_TEXTS: return list_schema(text_schema(f), f);
    case SPEC_BLOCK: return block_schema(f->block);
    case SPEC_SHORT: return short_schema(f);
    case SPEC_LIST: return list_schema(block_schema(f->block), f);
    case SPEC_FLOORS: return floors_schema();
    case SPEC_VARS: return spec_vars_schema();
    case SPEC_TEXT:
    case SPEC_DURATION:
    case SPEC_MONEY:
    case SPEC_SIZE:
    case SPEC_ENUM: break;
    }
    return text_schema(f);
}

/* The default as the type has it; text defaults as text. */
static json_t *default_json(const struct spec_field *f) {
    int64_t v = 0;
    if (f->type == SPEC_BOOL) return json_boolean(strcmp(f->def, "true") == 0);
    if (f->type == SPEC_INT && str_to_i64(f->def, INT64_MIN, INT64_MAX, &v)) return json_integer(v);
    return json_string(f->def);
}

static json_t *field_schema(const struct spec_field *f) {
    json_t *j = type_schema(f);
    GP_AUTO_FREE char *doc = f->def_doc != NULL ? xasprintf("%s (default: %s)", f->doc, f->def_doc) : xstrdup(f->doc);
    json_object_set_new(j, "description", json_string(doc));
    if (f->def != NULL) json_object_set_new(j, "default", default_json(f));
    return j;
}

/* A provider's schema of a key: refused, or a narrower form. NULL: the language's own. */
static json_t *provider_key(const struct spec_provider *p, const struct spec_field *f) {
    const struct spec_provider_key *k = spec_provider_key(p, f->name);
    if (k == NULL) return json_false();
    if (k->pattern == NULL) return NULL;
    GP_AUTO_FREE char *pattern = xasprintf("%s|" SUBST_PATTERN, k->pattern);
    if (f->type == SPEC_TEXTS) return json_pack("{s:{s:s}}", "items", "pattern", pattern);
    return json_pack("{s:s}", "pattern", pattern);
}

/* offers[] with provider P: its keys, their forms and its required keys. */
static json_t *provider_rules(const struct spec_block *b) {
    json_t *all = json_array();
    const struct spec_provider *p = NULL;
    for (size_t i = 0; (p = spec_provider_at(i)) != NULL; i++) {
        json_t *then = json_object(), *props = json_object(), *required = json_array();
        for (const struct spec_field *f = b->fields; f->name != NULL; f++) {
            json_t *key = strcmp(f->name, "provider") == 0 ? NULL : provider_key(p, f);
            if (key != NULL) json_object_set_new(props, f->name, key);
        }
        for (const struct spec_provider_key *k = p->keys; k->name != NULL; k++)
            if (k->required) json_array_append_new(required, json_string(k->name));
        json_object_set_new(then, "properties", props);
        if (json_array_size(required) > 0) json_object_set(then, "required", required);
        json_decref(required);
        json_array_append_new(all, json_pack("{s:{s:{s:{s:s}}, s:[s]}, s:o}", "if", "properties", "provider", "const",
                                             p->name, "required", "provider", "then", then));
    }
    return all;
}

static json_t *block_schema(const struct spec_block *b) {
    json_t *j = json_object(), *props = json_object(), *required = json_array();
    json_object_set_new(j, "type", json_string("object"));
    json_object_set_new(j, "description", json_string(b->doc));
    json_object_set_new(j, "additionalProperties", json_false());
    for (const struct spec_field *f = b->fields; f->name != NULL; f++) {
        json_object_set_new(props, f->name, field_schema(f));
        if (f->required) json_array_append_new(required, json_string(f->name));
    }
    json_object_set_new(j, "properties", props);
    if (json_array_size(required) > 0) json_object_set(j, "required", required);
    json_decref(required);
    if (b == &spec_offer_block) json_object_set_new(j, "allOf", provider_rules(b));
    if (strcmp(b->path, "image") == 0) {
        json_object_set_new(j, "minProperties", json_integer(1));
        json_object_set_new(j, "maxProperties", json_integer(2));
    }
    return j;
}

char *spec_json_schema(void) {
    GP_AUTO_JSON json_t *j = json_pack("{s:s, s:s}", "$schema", "https://json-schema.org/draft/2020-12/schema", "title",
                                       "gpuprov spec (" SPEC_API_VERSION ")");
    GP_AUTO_JSON json_t *root = block_schema(&spec_root);
    json_object_update(j, root);
    GP_AUTO_FREE char *text = json_text(j, 2);
    return xasprintf("%s\n", text);
}
