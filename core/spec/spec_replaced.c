/* SPDX-License-Identifier: Apache-2.0 */
/* What ${env:..} and ${file:..} of a spec became, and how it is shown: as the text before the replacement, because it
 * may be a secret. The redactor has the same table, so errors, events and plans show it in one way. No I/O. Any
 * thread. */
#include "base/gp_base.h"

#include "base/log.h"
#include "spec/spec_internal.h"

#define KEPT_MAX ((size_t)8 << 10) /* bytes of a value that the canonical form has again; no secret is longer */
#define SHOWN_MAX ((size_t)120)    /* bytes of the text of a value that is shown for it */

void spec_replaced_clear(struct spec *s) {
    for (size_t i = 0; i < s->replaced.len; i++) {
        free(s->replaced.items[i].shown);
        free(s->replaced.items[i].value);
    }
    vec_free(&s->replaced);
}

const char *spec_replaced_shown(const struct spec *s, const char *value) {
    for (size_t i = 0; i < s->replaced.len; i++)
        if (str_eq(s->replaced.items[i].value, value)) return s->replaced.items[i].shown;
    return NULL;
}

/* Messages also show what is behind such a beginning, and folders without the slash at their end. */
static void register_value(const char *value, const char *shown) {
    static const char *const beginnings[] = {"env:", "file:", SPEC_TERRAFORM, "~/", "./", NULL};
    log_redact_as(value, shown);
    for (size_t i = 0; beginnings[i] != NULL; i++)
        if (str_starts(value, beginnings[i])) log_redact_as(value + strlen(beginnings[i]), shown);
    size_t n = strlen(value);
    while (n > 1 && value[n - 1] == '/') n--;
    GP_AUTO_FREE char *folder = xstrndup(value, n);
    if (value[n] != '\0') log_redact_as(folder, shown);
}

void spec_replaced_add(struct spec *s, const char *shown, const char *value) {
    if (value[0] == '\0') return;
    GP_AUTO_FREE char *label = xstrndup(shown, SHOWN_MAX);
    str_one_line(label);
    register_value(value, label);
    for (size_t i = 0; i < s->replaced.len; i++)
        if (str_eq(s->replaced.items[i].shown, label)) return;
    struct spec_replaced r = {.shown = GP_STEAL(label), .value = xstrdup(value)};
    vec_push(&s->replaced, r);
}

void spec_replaced_reveal(struct spec_ctx *c, const struct yaml_node *at) {
    for (size_t i = 0; at->kind == YAML_LIST && i < at->items.len; i++) spec_replaced_reveal(c, at->items.items[i]);
    if (at->source == NULL || spec_is_bad(c, at)) return;
    size_t kept = 0;
    for (size_t i = 0; i < c->spec->replaced.len; i++) {
        struct spec_replaced r = c->spec->replaced.items[i];
        if (strstr(at->source, r.shown) == NULL) {
            c->spec->replaced.items[kept++] = r;
            continue;
        }
        log_reveal(r.value);
        free(r.shown);
        free(r.value);
    }
    c->spec->replaced.len = kept;
}

json_t *spec_replaced_json(const struct spec *s) {
    json_t *map = json_object();
    for (size_t i = 0; i < s->replaced.len; i++)
        if (strlen(s->replaced.items[i].value) <= KEPT_MAX)
            json_object_set_new(map, s->replaced.items[i].shown, json_string(s->replaced.items[i].value));
    if (json_object_size(map) > 0) return map;
    json_decref(map);
    return NULL;
}

void spec_replaced_register(const json_t *canonical) {
    const char *shown = NULL;
    const json_t *value = NULL;
    json_object_foreach(json_object_get(canonical, SPEC_REPLACED_KEY), shown, value) if (json_is_string(value))
        register_value(json_string_value(value), shown);
}

void spec_replaced_take(struct spec_ctx *c, struct yaml_node *root) {
    size_t at = 0;
    while (root->kind == YAML_MAP && at < root->items.len && !str_eq(root->items.items[at]->value, SPEC_REPLACED_KEY))
        at += 2;
    if (root->kind != YAML_MAP || at >= root->items.len) return;
    struct yaml_node *key = root->items.items[at], *map = root->items.items[at + 1];
    bool ok = map->kind == YAML_MAP;
    for (size_t i = 0; ok && i + 1 < map->items.len; i += 2) {
        const struct yaml_node *value = map->items.items[i + 1];
        ok = value->kind == YAML_SCALAR && strstr(map->items.items[i]->value, "${") != NULL;
        if (ok) spec_replaced_add(c->spec, map->items.items[i]->value, value->value);
    }
    if (!ok) spec_complain_at(c, key->line, key->column, "'" SPEC_REPLACED_KEY "' is no key of a spec: remove it");
    memmove(&root->items.items[at], &root->items.items[at + 2], (root->items.len - at - 2) * sizeof *root->items.items);
    root->items.len -= 2;
    yaml_node_free(key);
    yaml_node_free(map);
}
