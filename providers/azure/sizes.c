// SPDX-License-Identifier: Apache-2.0
/* Sizes of virtual machines: what a region sells to this subscription (API), with the GPU models of the catalogue, and
 * those that fit a spec. One thread. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/form.h"
#include "providers/catalog/catalog.h"
#include "providers/common/gpu_name.h"

/* Without a GPU: small current sizes, the cheap ones first; the first that the region sells. */
static const char *const small_sizes[] = {"Standard_B2s_v2", "Standard_B2s", "Standard_D2as_v5", "Standard_D2s_v5",
                                          "Standard_D2s_v3"};

static void size_clear(struct azure_size *s) {
    free(s->name);
    free(s->family);
    free(s->arch);
    free(s->gpu_model);
    free(s->refused);
    strv_clear(&s->zones);
}

void azure_usages_forget(struct azure_sizes *s) {
    for (size_t i = 0; i < s->usages.len; i++) {
        free(s->usages.items[i].family);
        free(s->usages.items[i].name);
    }
    vec_free(&s->usages);
}

static void sizes_free(struct azure_sizes *s) {
    for (size_t i = 0; i < s->list.len; i++) size_clear(&s->list.items[i]);
    vec_free(&s->list);
    azure_usages_forget(s);
    free(s->region);
    free(s);
}

void azure_cache_free(struct azure_cache *c) {
    if (c == NULL) return;
    for (size_t i = 0; i < c->regions.len; i++) sizes_free(c->regions.items[i]);
    vec_free(&c->regions);
    strv_clear(&c->networks_ready);
    strv_clear(&c->quotas_ok);
    free(c->public_cidr);
    free(c);
}

/* --- one size of the reply --- */

static const char *capability(const json_t *item, const char *name) {
    size_t i = 0;
    json_t *c = NULL;
    json_array_foreach(json_at(item, "capabilities"), i, c) {
        if (strcmp(json_str(c, "name", ""), name) == 0) return json_str(c, "value", "");
    }
    return "";
}

static int whole(const json_t *item, const char *name) {
    int64_t n = 0;
    return str_to_i64(capability(item, name), 0, 100000, &n) ? (int)n : 0;
}

static bool has_text(const json_t *list, const char *text) {
    size_t i = 0;
    json_t *t = NULL;
    json_array_foreach(list, i, t) {
        GP_AUTO_FREE char *plain = azure_region(json_is_string(t) ? json_string_value(t) : "");
        if (strcmp(plain, text) == 0) return true;
    }
    return false;
}

/* A restriction of the whole region, or of some of its zones. */
static void apply_restrictions(const json_t *item, const char *region, struct azure_size *s, struct strv *closed) {
    size_t i = 0, k = 0;
    json_t *r = NULL, *zone = NULL;
    json_array_foreach(json_at(item, "restrictions"), i, r) {
        const char *why = json_str(r, "reasonCode", "");
        if (strcmp(json_str(r, "type", ""), "Zone") == 0) {
            json_array_foreach(json_at(r, "restrictionInfo.zones"), k, zone) {
                if (json_is_string(zone)) strv_add(closed, json_string_value(zone));
            }
        } else if (s->refused == NULL && (json_at(r, "values") == NULL || has_text(json_at(r, "values"), region))) {
            s->refused = xstrdup(form_word(why) ? why : "restricted");
        }
    }
}

static int on_sku(void *ctx, const json_t *item, struct gp_error *err) {
    struct azure_sizes *out = ctx;
    const char *name = json_str(item, "name", "");
    size_t i = 0, k = 0;
    json_t *place = NULL, *zone = NULL;
    (void)err;
    if (strcmp(json_str(item, "resourceType", ""), AZURE_VM) != 0 || !form_word(name)) return 0;
    const struct catalog_size *known = catalog_azure_size(name);
    bool arm = strcasecmp(capability(item, "CpuArchitectureType"), "Arm64") == 0;
    GP_AUTO_STRV struct strv closed = {0};
    struct azure_size s = {.name = xstrdup(name),
                           .family = xstrdup(json_str(item, "family", "")),
                           .arch = xstrdup(arm ? "arm64" : "x86_64"),
                           .gpu_model = xstrdup(known != NULL ? known->gpu_model : ""),
                           .gpus = whole(item, "GPUs"),
                           .vcpus = whole(item, "vCPUs"),
                           .gpu_gib = known != NULL ? known->gpu_gib : 0,
                           .spot = strcasecmp(capability(item, "LowPriorityCapable"), "True") == 0,
                           .rdma = strcasecmp(capability(item, "RdmaEnabled"), "True") == 0,
                           .vgpu = known != NULL && known->vgpu};
    if (!str_to_double(capability(item, "MemoryGB"), &s.memory_gib) || s.memory_gib < 0) s.memory_gib = 0;
    apply_restrictions(item, out->region, &s, &closed);
    bool zoned = false;
    json_array_foreach(json_at(item, "locationInfo"), i, place) {
        GP_AUTO_FREE char *region = azure_region(json_str(place, "location", ""));
        if (strcmp(region, out->region) != 0) continue;
        json_array_foreach(json_at(place, "zones"), k, zone) {
            const char *z = json_is_string(zone) ? json_string_value(zone) : "";
            if (strlen(z) != 1 || *z < '1' || *z > '9') continue;
            zoned = true;
            GP_AUTO_FREE char *named = xasprintf("%s-%s", region, z); /* "1" alone says nothing in a message */
            if (!strv_has(&closed, z) && !strv_has(&s.zones, named)) strv_add(&s.zones, named);
        }
    }
    if (zoned && s.zones.n == 0 && s.refused == NULL) s.refused = xstrdup("restricted in every zone");
    vec_push(&out->list, s);
    return 0;
}

struct azure_sizes *azure_sizes_known(struct azure *a, const char *region) {
    for (size_t i = 0; i < a->cache->regions.len; i++)
        if (strcmp(a->cache->regions.items[i]->region, region) == 0) return a->cache->regions.items[i];
    return NULL;
}

void azure_sizes_begin(struct azure *a, const char *region, struct azure_reads *w, struct azure_sizes_read *ret) {
    struct str url = {0};
    GP_AUTO_FREE char *filter = xasprintf("location eq '%s'", region);
    GP_AUTO_FREE char *base = azure_url(a, AZURE_SKUS, "/providers/Microsoft.Compute/skus");
    ret->fresh = xcalloc(1, sizeof *ret->fresh);
    ret->fresh->region = xstrdup(region);
    str_add(&url, base);
    rest_query(&url, "$filter", filter);
    ret->sizes = azure_reads_pages(w, str_steal(&url), 0, on_sku, ret->fresh);
    ret->usages = azure_usages_add(a, ret->fresh, w);
}

int azure_sizes_end(struct azure *a, struct azure_reads *w, struct azure_sizes_read *read, struct gp_error *err) {
    const struct rest_paged *sizes = &w->lists.items[read->sizes];
    struct azure_sizes *fresh = read->fresh;
    read->fresh = NULL;
    if (w->lists.items[read->usages].rc != 0) azure_usages_forget(fresh); /* cut short: not known */
    if (sizes->rc == 0) {
        vec_push(&a->cache->regions, fresh);
        return 0;
    }
    sizes_free(fresh);
    if (err != NULL) *err = sizes->err;
    return sizes->rc;
}

int azure_sizes_load(struct azure *a, const char *region, struct gp_error *err) {
    GP_AUTO_AZURE_READS struct azure_reads w = {0};
    struct azure_sizes_read read;
    azure_sizes_begin(a, region, &w, &read);
    rest_pages_many(&a->rest, w.lists.items, w.lists.len);
    return azure_sizes_end(a, &w, &read, err);
}

const struct azure_size *azure_size_find(const struct azure_sizes *s, const char *name) {
    for (size_t i = 0; i < s->list.len; i++)
        if (strcasecmp(s->list.items[i].name, name) == 0) return &s->list.items[i];
    return NULL;
}

/* --- what fits --- */

static bool model_matches(const char *wanted, const char *model, int gpu_gib) {
    struct gpu_name want, have;
    gpu_name_parse(wanted, &want);
    gpu_name_parse(model, &have);
    if (model[0] == '\0' || !gpu_name_same(&want, &have)) return false;
    return want.memory_gb == 0 || (gpu_gib > want.memory_gb * 0.9 && gpu_gib < want.memory_gb * 1.1);
}

static bool gpu_matches(const char *wanted, const struct azure_size *s) {
    return model_matches(wanted, s->gpu_model, s->gpu_gib);
}

static int fail_region(struct gp_error *err) {
    if (err != NULL) err->scope = GP_SCOPE_REGION;
    return err != NULL ? -(int)err->code : -GP_EUSAGE;
}

static int refused(const char *region, const struct azure_size *s, struct gp_error *err) {
    gp_fail(err, GP_EQUOTA,
            "azure %s does not sell %s to this subscription (%s): request access to the size in the portal, or offer "
            "another region",
            region, s->name, s->refused);
    if (err != NULL) str_put(err->detail, sizeof err->detail, s->refused);
    return fail_region(err);
}

static int pick_named(const struct azure_sizes *all, const struct spec *spec, const struct spec_offer *o,
                      struct azure_picks *ret, struct gp_error *err) {
    const struct azure_size *s = azure_size_find(all, o->instance_type);
    if (s == NULL) {
        gp_fail(err, GP_EUSAGE, "azure %s has no size '%s'", all->region, o->instance_type);
        return fail_region(err);
    }
    if (spec->gpu.model != NULL && s->vgpu)
        return gp_fail(
            err, GP_EUSAGE,
            "instance_type %s has a virtual GPU, which needs Azure's GRID driver: choose a size of the NC or "
            "ND series",
            s->name);
    if (spec->gpu.model != NULL && (!gpu_matches(spec->gpu.model, s) || s->gpus != spec->gpu.count))
        return gp_fail(err, GP_EUSAGE, "instance_type %s has %d x %s, but gpu is %s:%d", s->name, s->gpus,
                       s->gpu_model[0] ? s->gpu_model
                       : s->gpus > 0   ? "a GPU that the catalogue does not have"
                                       : "no GPU",
                       spec->gpu.model, spec->gpu.count);
    if (o->market == MARKET_SPOT && !s->spot)
        return gp_fail(err, GP_EUSAGE, "instance_type %s is not sold on the spot market", s->name);
    if (s->refused != NULL) return refused(all->region, s, err);
    vec_push(&ret->list, s);
    return 0;
}

static int by_size(const void *x, const void *y) {
    const struct azure_size *a = *(const struct azure_size *const *)x, *b = *(const struct azure_size *const *)y;
    if (a->vcpus != b->vcpus) return a->vcpus < b->vcpus ? -1 : 1;
    if (a->memory_gib != b->memory_gib) return a->memory_gib < b->memory_gib ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int pick_gpus(const struct azure_sizes *all, const struct spec *spec, bool spot, struct azure_picks *ret,
                     struct gp_error *err) {
    const struct azure_size *closed = NULL;
    GP_AUTO_STRV struct strv counts = {0};
    for (size_t i = 0; i < all->list.len; i++) {
        const struct azure_size *s = &all->list.items[i];
        if (s->vgpu || s->gpus < 1 || !gpu_matches(spec->gpu.model, s)) continue;
        char count[16];
        snprintf(count, sizeof count, "%d", s->gpus);
        if (!strv_has(&counts, count)) strv_add(&counts, count);
        if (s->gpus != spec->gpu.count || (spot && !s->spot)) continue;
        if (s->refused != NULL) closed = s;
        else vec_push(&ret->list, s);
    }
    if (ret->list.len > 0) {
        qsort(ret->list.items, ret->list.len, sizeof *ret->list.items, by_size);
        return 0;
    }
    if (closed != NULL) return refused(all->region, closed, err);
    GP_AUTO_FREE char *have = strv_join(&counts, ", ");
    if (counts.n == 0) gp_fail(err, GP_EUSAGE, "azure %s has no size with a GPU '%s'", all->region, spec->gpu.model);
    else
        gp_fail(err, GP_EUSAGE, "azure %s has no size with %d x %s%s; it has them in: %s", all->region, spec->gpu.count,
                spec->gpu.model, spot ? " on the spot market" : "", have);
    return fail_region(err);
}

void azure_sizes_guess(const struct spec *spec, const struct spec_offer *offer, struct strv *ret) {
    if (offer->instance_type != NULL) {
        strv_add(ret, offer->instance_type);
    } else if (spec->gpu.model != NULL) {
        for (const struct catalog_size *c = catalog_azure; c->name != NULL; c++) {
            if (!c->vgpu && c->gpus == spec->gpu.count && model_matches(spec->gpu.model, c->gpu_model, c->gpu_gib))
                strv_add(ret, c->name);
        }
    } else {
        for (size_t i = 0; i < GP_ARRAY_LEN(small_sizes); i++) strv_add(ret, small_sizes[i]);
    }
}

int azure_sizes_pick(const struct azure_sizes *all, const struct spec *spec, const struct spec_offer *offer,
                     struct azure_picks *ret, struct gp_error *err) {
    bool spot = offer->market == MARKET_SPOT;
    if (offer->instance_type != NULL) return pick_named(all, spec, offer, ret, err);
    if (spec->gpu.model != NULL) return pick_gpus(all, spec, spot, ret, err);
    for (size_t i = 0; i < GP_ARRAY_LEN(small_sizes) && ret->list.len == 0; i++) {
        const struct azure_size *s = azure_size_find(all, small_sizes[i]);
        if (s != NULL && s->refused == NULL && (!spot || s->spot)) vec_push(&ret->list, s);
    }
    if (ret->list.len > 0) return 0;
    gp_fail(err, GP_EUSAGE, "azure %s sells none of the small sizes: give instance_type", all->region);
    return fail_region(err);
}
