/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that nodes of an offer cannot have: because they are containers, or for a reason of the provider's own. Any
 * thread. */
#include "base/gp_base.h"

#include "spec/spec_internal.h"

static const struct spec_refused of_containers[] = {
    {"bootstrap.driver", "a container uses the driver of its host: choose an offer or an image for it, or write none",
     "none"},
    {"bootstrap.fabric", "a container uses the cards of its host and cannot install their software: write none",
     "none"},
    {"bootstrap.container", "no container engine runs in a container: run the images as the nodes' own image", "none"},
    {"bootstrap.mounts", "a container cannot mount file systems: fetch the data in 'steps'", NULL},
    {"bootstrap.limits.hugepages", "huge pages belong to the kernel of the host: remove it", NULL},
    {0}};

static const struct spec_refused without_end[] = {
    {"limits.idle", "they cannot end themselves: remove it, or use offers of aws, or of azure or openstack with 'role'",
     NULL},
    {"limits.controller",
     "they cannot end themselves: remove it, or use offers of aws, or of azure or openstack with 'role'", NULL},
    {0}};

/* The value of a key such as "bootstrap.limits.hugepages"; NULL: it is not written. */
static const struct yaml_node *value_at(const struct yaml_node *root, const char *key) {
    GP_AUTO_STRV struct strv words = {0};
    const struct yaml_node *at = root;
    strv_split(&words, key, ".");
    for (size_t i = 0; i < words.n && at != NULL; i++) at = at->kind == YAML_MAP ? yaml_get(at, words.v[i]) : NULL;
    return at;
}

static bool says(const struct yaml_node *at, const char *word) {
    return at != NULL && at->kind == YAML_SCALAR && strcmp(at->value, word) == 0;
}

/* The value that is accepted, also as the driver's branch or the engine. */
static bool is_accepted(const struct yaml_node *at, const char *word) {
    if (at->kind == YAML_LIST) return at->items.len == 0;
    if (word == NULL) return false;
    return says(at, word) ||
           (at->kind == YAML_MAP && (says(yaml_get(at, "branch"), word) || says(yaml_get(at, "engine"), word)));
}

static void refuse(struct spec_ctx *c, const struct yaml_node *root, const struct spec_refused *rows,
                   const char *which) {
    for (; rows != NULL && rows->key != NULL; rows++) {
        const struct yaml_node *at = value_at(root, rows->key);
        const char *dot = strrchr(rows->key, '.');
        if (at == NULL || spec_is_bad(c, at) || is_accepted(at, rows->unless)) continue;
        spec_complain(c, at, "nodes of %s cannot have '%s': %s", which, dot != NULL ? dot + 1 : rows->key,
                      rows->reason);
    }
}

/* The first offer whose nodes cannot end themselves decides. */
static void refuse_own_ends(struct spec_ctx *c, const struct yaml_node *root) {
    for (size_t i = 0; i < c->spec->offers.len; i++) {
        const char *name = c->spec->offers.items[i].provider;
        const struct spec_provider *p = name != NULL ? spec_provider_find(name) : NULL;
        bool by_role = p != NULL && p->self_end == SELF_END_BY_ROLE;
        if (p == NULL || p->self_end == SELF_END_ALWAYS || (by_role && spec_effective(c->spec, i).role != NULL))
            continue;
        GP_AUTO_FREE char *which = xasprintf("%s%s", name, by_role ? " without 'role'" : "");
        refuse(c, root, without_end, which);
        return;
    }
}

void spec_rule_shapes(struct spec_ctx *c, const struct yaml_node *root) {
    GP_AUTO_STRV struct strv done = {0};
    if (c->names != NULL) refuse_own_ends(c, root);
    for (size_t i = 0; c->names != NULL && i < c->spec->offers.len; i++) {
        const char *name = c->spec->offers.items[i].provider;
        const struct spec_provider *p = name != NULL ? spec_provider_find(name) : NULL;
        if (p == NULL || strv_has(&done, name)) continue;
        strv_add(&done, name);
        if (p->container) refuse(c, root, of_containers, name);
        refuse(c, root, p->refused, name);
    }
}
