/* SPDX-License-Identifier: Apache-2.0 */
/* The registered providers, and the rules of the language that depend on them: the keys of an offer, the
 * forms of their values, the GPU models. Set once; then any thread. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "spec/spec_internal.h"

#include <ctype.h>

#define PROVIDERS_MAX 32
#define MODELS_SHOWN 12 /* in a message */

static const struct spec_provider *const none[] = {NULL};
static const struct spec_provider *const *registered = none;
static const char *names[PROVIDERS_MAX + 1];

void spec_providers_set(const struct spec_provider *const *rows) {
    size_t n = 0;
    for (; rows[n] != NULL && n < PROVIDERS_MAX; n++) names[n] = rows[n]->name;
    names[n] = NULL;
    registered = rows;
}

const struct spec_provider *spec_provider_at(size_t i) { return registered[i]; }

const char *const *spec_provider_names(void) { return names; }

const struct spec_provider *spec_provider_find(const char *name) {
    for (size_t i = 0; registered[i] != NULL; i++)
        if (strcmp(registered[i]->name, name) == 0) return registered[i];
    return NULL;
}

const struct spec_provider_key *spec_provider_key(const struct spec_provider *p, const char *key) {
    for (const struct spec_provider_key *k = p->keys; k->name != NULL; k++)
        if (strcmp(k->name, key) == 0) return k;
    return NULL;
}

bool spec_offer_takes(const void *at, const char *key) {
    const struct spec_offer *o = at;
    const struct spec_provider *p = o->provider != NULL ? spec_provider_find(o->provider) : NULL;
    return p == NULL || strcmp(key, "provider") == 0 || spec_provider_key(p, key) != NULL;
}

const char *spec_example(const struct spec_field *f) {
    const char *found = f->example;
    for (size_t i = 0; found == NULL && registered[i] != NULL; i++) {
        const struct spec_provider_key *k = spec_provider_key(registered[i], f->name);
        if (k != NULL) found = k->example;
    }
    return found != NULL ? found : "...";
}

bool spec_is_image_id(const char *text) {
    for (size_t i = 0; registered[i] != NULL; i++)
        if (registered[i]->image_id != NULL && spec_match(registered[i]->image_id, text)) return true;
    return false;
}

/* --- offers --- */

static void not_taken(struct spec_ctx *c, const struct yaml_node *key, const struct spec_provider *p) {
    GP_AUTO_STR struct str who = {0};
    for (size_t i = 0; registered[i] != NULL; i++)
        if (spec_provider_key(registered[i], key->value) != NULL)
            str_addf(&who, "%s%s", who.len > 0 ? ", " : "", registered[i]->name);
    spec_complain(c, key, "'%s' is a key of %s; the provider '%s' does not take it", key->value,
                  who.len > 0 ? who.s : "no provider", p->name);
}

static void check_pattern(struct spec_ctx *c, const struct spec_provider_key *k, const struct yaml_node *at) {
    for (size_t i = 0; at->kind == YAML_LIST && i < at->items.len; i++) check_pattern(c, k, at->items.items[i]);
    if (at->kind != YAML_SCALAR || spec_is_bad(c, at) || spec_match(k->pattern, at->value)) return;
    spec_complain(c, at, "'%s' must be %s, not '%.100s'", k->name, k->pattern_doc, spec_shown(at, at->value));
}

static void zones_in_regions(struct spec_ctx *c, const struct yaml_node *map, const struct spec_offer *o) {
    const struct yaml_node *list = yaml_get(map, "zones");
    if (list == NULL || list->kind != YAML_LIST || o->regions.n == 0) return;
    for (size_t i = 0; i < list->items.len; i++) {
        const struct yaml_node *zone = list->items.items[i];
        if (zone->kind != YAML_SCALAR || spec_is_bad(c, zone)) continue;
        bool inside = false;
        for (size_t k = 0; k < o->regions.n; k++) {
            size_t n = strlen(o->regions.v[k]);
            inside = inside || (str_starts(zone->value, o->regions.v[k]) && zone->value[n] != '\0');
        }
        if (inside) continue;
        GP_AUTO_FREE char *regions = strv_join(&o->regions, ", ");
        spec_complain(c, zone, "the zone '%s' is in none of the regions of this offer (%s)",
                      spec_shown(zone, zone->value), regions);
    }
}

static void hosts_file(struct spec_ctx *c, const struct yaml_node *map, struct spec_offer *o) {
    if (o->hosts == NULL) return;
    bool outputs = str_starts(o->hosts, SPEC_TERRAFORM);
    char *path = xstrdup(o->hosts + (outputs ? strlen(SPEC_TERRAFORM) : 0));
    bool named = path[0] != '\0';
    if (named) spec_absolute(c, &path);
    free(o->hosts);
    o->hosts = outputs ? xasprintf(SPEC_TERRAFORM "%s", path) : xstrdup(path);
    const struct yaml_node *at = yaml_get(map, "hosts");
    if (!named)
        spec_complain(c, at,
                      "'" SPEC_TERRAFORM "' needs a folder of Terraform or a file, such as " SPEC_TERRAFORM "infra");
    else if (c->names != NULL && !fs_exists(path))
        spec_complain(c, at, "the %s '%s' does not exist", outputs ? "folder or file of Terraform" : "hosts file",
                      spec_shown(at, path));
    free(path);
}

void spec_rule_offer(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    struct spec_offer *o = to;
    const struct spec_provider *p = o->provider != NULL ? spec_provider_find(o->provider) : NULL;
    if (map == NULL || p == NULL) return;
    for (size_t i = 0; i + 1 < map->items.len; i += 2) {
        const struct yaml_node *key = map->items.items[i];
        const struct spec_provider_key *k = spec_provider_key(p, key->value);
        if (spec_is_bad(c, key) || strcmp(key->value, "provider") == 0) continue;
        if (k == NULL) not_taken(c, key, p);
        else if (k->pattern != NULL) check_pattern(c, k, map->items.items[i + 1]);
    }
    for (const struct spec_provider_key *k = p->keys; k->name != NULL; k++)
        if (k->required && yaml_get(map, k->name) == NULL)
            spec_complain_at(c, o->pos.line, o->pos.column, "the provider '%s' needs '%s', such as %s: %s", p->name,
                             k->name, k->name, k->example);
    if (p->zone_in_region) zones_in_regions(c, map, o);
    if (spec_provider_key(p, "hosts") != NULL) hosts_file(c, map, o);
}

void spec_default_offer(struct spec_ctx *c, const struct yaml_node *map) {
    for (size_t i = 0; registered[i] != NULL; i++) {
        if (!registered[i]->by_default) continue;
        struct spec_offer o = {.provider = xstrdup(registered[i]->name)};
        vec_push(&c->spec->offers, o);
        return;
    }
    spec_complain(c, map, "a spec needs 'offers', such as offers: [{provider: NAME}]");
}

/* --- systems --- */

static const struct yaml_node *image_key(const struct yaml_node *map, const char *key) {
    const struct yaml_node *image = map != NULL && map->kind == YAML_MAP ? yaml_get(map, "image") : NULL;
    return image != NULL && image->kind == YAML_MAP ? yaml_get(image, key) : NULL;
}

static void check_system(struct spec_ctx *c, const struct yaml_node *at, const struct spec_provider *p) {
    GP_AUTO_STRV struct strv known = {0};
    for (size_t i = 0; p->os(i) != NULL; i++) strv_add(&known, p->os(i));
    if (strv_has(&known, at->value)) return;
    const char *near = str_closest(at->value, (const char *const *)known.v);
    GP_AUTO_FREE char *all = strv_join(&known, ", ");
    if (near != NULL)
        spec_complain(c, at, "%s has no system '%.60s'; did you mean '%s'?", p->name, spec_shown(at, at->value), near);
    else
        spec_complain(c, at, "%s has no system '%.60s'; it has %s; for another one write the image: {id: ...}", p->name,
                      spec_shown(at, at->value), all);
}

/* A system that a provider does not have, and one that no offer can boot: such nodes keep the system that is there. */
void spec_check_systems(struct spec_ctx *c, const struct yaml_node *root) {
    const struct yaml_node *offers = yaml_get(root, "offers"), *all = image_key(root, "os"), *judged = NULL;
    const struct spec *s = c->spec;
    bool taken = false;
    GP_AUTO_STRV struct strv here = {0};
    if (c->names == NULL || c->problems->list.len > 0) return;
    for (size_t i = 0; i < s->offers.len; i++) {
        const struct spec_provider *p = spec_provider_find(s->offers.items[i].provider);
        if (p == NULL || spec_provider_key(p, "image") == NULL) {
            if (p != NULL && !strv_has(&here, p->name)) strv_add(&here, p->name);
            continue;
        }
        taken = true;
        bool listed = offers != NULL && offers->kind == YAML_LIST && i < offers->items.len;
        const struct yaml_node *one = listed ? offers->items.items[i] : NULL;
        bool own = one != NULL && one->kind == YAML_MAP && yaml_get(one, "image") != NULL;
        const struct yaml_node *at = own ? image_key(one, "os") : all;
        if (at == NULL || at == judged || p->os == NULL) continue;
        check_system(c, at, p);
        judged = at;
    }
    const struct yaml_node *at = all != NULL ? all : image_key(root, "id");
    if (taken || at == NULL) return;
    GP_AUTO_FREE char *kept = strv_join(&here, " and ");
    spec_complain(c, at, "no offer of this spec takes '%s': nodes of %s have the system that is there; remove it",
                  at == all ? "os" : "id", kept);
}

struct spec_effective spec_effective(const struct spec *s, size_t index) {
    const struct spec_offer *o = &s->offers.items[index];
    bool image = o->image.os != NULL || o->image.id != NULL || o->image.baked != NULL;
    return (struct spec_effective){.image = image ? &o->image : &s->image,
                                   .ssh_from = o->ssh_from.n > 0 ? &o->ssh_from : &s->access.ssh_from,
                                   .role = o->role};
}

/* --- GPU models --- */

/* Letters and digits, upper case; digits that a letter looks like are that letter where `look` is set. */
static void plain(const char *text, bool look, char *ret, size_t size) {
    static const char letters[] = "LIOSB", digits[] = "11058";
    size_t n = 0;
    for (; *text != '\0' && n + 1 < size; text++) {
        char ch = (char)toupper((unsigned char)*text);
        const char *at = look ? strchr(letters, ch) : NULL;
        if (isalnum((unsigned char)ch)) ret[n++] = at != NULL ? digits[at - letters] : ch;
    }
    ret[n] = '\0';
}

static bool same(const char *a, const char *b, bool look) {
    char x[64], y[64];
    plain(a, look, x, sizeof x);
    plain(b, look, y, sizeof y);
    return strcmp(x, y) == 0;
}

static void add_new(struct strv *to, const char *name) {
    if (!strv_has(to, name)) strv_add(to, name);
}

/* The models that providers list: those of the offers, or of all. *ret_any: an offer takes any model. */
static void listed_models(const struct spec *s, bool all, struct strv *ret, bool *ret_any) {
    *ret_any = false;
    for (size_t i = 0; i < s->offers.len; i++) {
        const struct spec_offer *o = &s->offers.items[i];
        const struct spec_provider *p = o->provider != NULL ? spec_provider_find(o->provider) : NULL;
        if (p == NULL || p->gpu == NULL || o->instance_type != NULL) *ret_any = true;
        for (size_t k = 0; p != NULL && p->gpu != NULL && p->gpu(k) != NULL; k++) add_new(ret, p->gpu(k));
    }
    for (size_t i = 0; all && registered[i] != NULL; i++)
        for (size_t k = 0; registered[i]->gpu != NULL && registered[i]->gpu(k) != NULL; k++)
            add_new(ret, registered[i]->gpu(k));
}

static const char *look_alike(const char *model, const struct strv *known) {
    for (size_t i = 0; i < known->n; i++)
        if (same(model, known->v[i], true)) return known->v[i];
    return NULL;
}

char *spec_gpu_near(const char *model, const struct spec_names *table) {
    const struct spec no_offers = {0};
    GP_AUTO_STRV struct strv known = {0};
    bool ignored = false;
    if (model == NULL || table->gpu_known(model)) return NULL;
    listed_models(&no_offers, true, &known, &ignored);
    for (size_t i = 0; i < known.n; i++)
        if (same(model, known.v[i], false)) return NULL;
    for (size_t i = 0; table->gpu(i) != NULL; i++) add_new(&known, table->gpu(i));
    const char *near = look_alike(model, &known);
    if (near == NULL) near = str_closest(model, (const char *const *)known.v);
    return xstrdup(near);
}

/* A model that neither the GPU table nor a provider lists. Where an offer takes any machine, only a typing
 * error (a letter for a digit) is refused, because some GPUs are in no table. */
void spec_check_gpu(struct spec_ctx *c, const struct yaml_node *at) {
    const char *model = c->spec->gpu.model;
    if (c->names == NULL || c->names->gpu == NULL || model == NULL || c->names->gpu_known(model)) return;
    GP_AUTO_STRV struct strv here = {0};
    GP_AUTO_STRV struct strv known = {0};
    bool any = false, ignored = false;
    listed_models(c->spec, false, &here, &any);
    listed_models(c->spec, true, &known, &ignored);
    for (size_t i = 0; i < known.n; i++)
        if (same(model, known.v[i], false)) return;
    for (size_t i = 0; c->names->gpu(i) != NULL; i++) add_new(&known, c->names->gpu(i));
    const char *near = look_alike(model, &known);
    if (any && near == NULL) return;
    const char *other = any ? "" : "; an offer with instance_type takes any";
    if (near == NULL) near = str_closest(model, (const char *const *)known.v);
    if (near != NULL) {
        spec_complain(c, at, "unknown GPU model '%s'; did you mean '%s'?%s", spec_shown(at, model), near, other);
        return;
    }
    const struct strv *from = here.n > 0 ? &here : &known;
    GP_AUTO_STRV struct strv shown = {0};
    for (size_t i = 0; i < GP_MIN(from->n, (size_t)MODELS_SHOWN); i++) strv_add(&shown, from->v[i]);
    GP_AUTO_FREE char *list = strv_join(&shown, ", ");
    spec_complain(c, at, "unknown GPU model '%s'; known: %s%s%s", spec_shown(at, model), list,
                  from->n > shown.n ? " and others ('gpuprov checks --models')" : "", other);
}
