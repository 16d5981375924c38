// SPDX-License-Identifier: Apache-2.0
/* Offers: the flavors of each region that have the GPUs of the spec, in each zone that the spec names. OpenStack has no
 * prices. Buys nothing. One thread. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#include "base/form.h"
#include "providers/common/gpu_name.h"
#include "providers/common/refusal.h"

struct looking {
    struct os *o;
    const struct spec *spec;
    const struct spec_offer *offer;
    size_t index;
    const char *region;
    struct offer_list *ret;
};

static bool same_model(const char *wanted, const char *have) {
    struct gpu_name a, b;
    gpu_name_parse(wanted, &a);
    gpu_name_parse(have, &b);
    return strcasecmp(wanted, have) == 0 ||
           (gpu_name_same(&a, &b) && (a.memory_gb == 0 || b.memory_gb == 0 || a.memory_gb == b.memory_gb));
}

/* The GPUs of a flavor that does not name a model of the table are trusted where the spec names the flavor:
 * validation counts them on the node. */
static bool fits(const struct looking *l, const struct os_flavor *f, const struct os_image *image) {
    const struct spec *s = l->spec;
    bool named = l->offer->instance_type != NULL;
    if (named && strcmp(l->offer->instance_type, f->name) != 0) return false;
    if (f->disk_gib < image->min_disk_gib || f->memory_mib < image->min_memory_mib) return false;
    if (s->gpu.model == NULL) return named || f->gpus == 0;
    if (f->gpus == -1) return named;
    return f->gpus == s->gpu.count && same_model(s->gpu.model, f->gpu);
}

static int by_size(const void *x, const void *y) {
    const struct os_flavor *const *a = x, *const *b = y;
    if ((*a)->vcpus != (*b)->vcpus) return (*a)->vcpus < (*b)->vcpus ? -1 : 1;
    if ((*a)->memory_mib != (*b)->memory_mib) return (*a)->memory_mib < (*b)->memory_mib ? -1 : 1;
    return strcmp((*a)->name, (*b)->name);
}

/* The most nodes of this flavor that the quota still allows; 0: no limit. */
static int most(const struct os_quota *q, const struct os_flavor *f) {
    int n = q->instances;
    if (q->cores >= 0 && f->vcpus > 0 && (n < 0 || q->cores / f->vcpus < n)) n = q->cores / f->vcpus;
    if (q->memory_mib >= 0 && f->memory_mib > 0 && (n < 0 || q->memory_mib / f->memory_mib < n))
        n = q->memory_mib / f->memory_mib;
    return n;
}

static void add_offer(const struct looking *l, const struct os_flavor *f, const char *zone,
                      const struct os_image *image, const struct os_network *network, const struct os_quota *quota) {
    int n = most(quota, f);
    struct offer o = {.spec_index = l->index,
                      .provider = xstrdup("openstack"),
                      .region = xstrdup(l->region),
                      .zone = xstrdup(zone),
                      .instance_type = xstrdup(f->name),
                      .market = MARKET_ON_DEMAND,
                      .ends = l->offer->role != NULL ? ENDS_GUEST : ENDS_BY_PROVIDER,
                      .image = xstrdup(image->id),
                      .image_name = xstrdup(image->name),
                      .subnet = xstrdup(network->id),
                      .gpu_model = xstrdup(f->gpu),
                      .gpus = f->gpus == -1 ? l->spec->gpu.count : f->gpus,
                      .vcpus = f->vcpus,
                      .memory_gib = f->memory_mib / 1024.0,
                      .disk_gib = f->disk_gib,
                      .price_usd_per_h = -1,
                      .price_source = xstrdup(""),
                      .max_count = n > 0 ? n : 0};
    if (l->spec->gpu.model == NULL && f->gpus == -1) o.gpus = 0;
    if (quota->max_instances > 0)
        o.quota = xasprintf("%d of %d servers used", quota->used_instances, quota->max_instances);
    vec_push(&l->ret->list, o);
}

static int none(const struct looking *l, const struct os_flavors *all, const struct os_image *image,
                struct gp_error *err) {
    GP_AUTO_STR struct str have = {0};
    const struct spec *s = l->spec;
    int r = 0;
    size_t shown = 0;
    str_add(&have, "");
    const struct os_flavor *named = NULL;
    for (size_t i = 0; i < all->list.len; i++) {
        const struct os_flavor *f = &all->list.items[i];
        if (l->offer->instance_type != NULL && strcmp(l->offer->instance_type, f->name) == 0) named = f;
        if (f->gpus <= 0 || shown++ > 7) continue;
        str_addf(&have, "%s%s (%d x %s)", have.len > 0 ? ", " : "", f->name, f->gpus, f->gpu);
    }
    if (l->offer->instance_type != NULL && named == NULL)
        r = gp_fail(err, GP_EUSAGE, "openstack %s has no flavor '%.80s': correct instance_type", l->region,
                    l->offer->instance_type);
    else if (named != NULL && (named->disk_gib < image->min_disk_gib || named->memory_mib < image->min_memory_mib))
        r = gp_fail(err, GP_EUSAGE,
                    "openstack %s: the image %.80s needs %d GiB of disk and %d MiB of memory, the flavor "
                    "%.80s has %d and %d: give another instance_type",
                    l->region, image->name, image->min_disk_gib, image->min_memory_mib, named->name, named->disk_gib,
                    named->memory_mib);
    else if (named != NULL)
        r = gp_fail(err, GP_EUSAGE, "instance_type %.80s has %d x %s, but gpu is %s:%d", named->name, named->gpus,
                    named->gpus > 0 ? named->gpu : "no GPU", s->gpu.model, s->gpu.count);
    else if (s->gpu.model != NULL)
        r = gp_fail(
            err, GP_EUSAGE,
            "openstack %s has no flavor whose extra specs name %d x %s; it has: %.200s: correct gpu, or give the "
            "flavor as instance_type",
            l->region, s->gpu.count, s->gpu.model, have.len > 0 ? have.s : "none");
    else
        r = gp_fail(err, GP_EUSAGE, "openstack %s has no flavor without a GPU that the image fits: give instance_type",
                    l->region);
    if (err != NULL) err->scope = GP_SCOPE_REGION;
    return r;
}

static int no_disk(const struct looking *l, const struct os_flavor *f, struct gp_error *err) {
    int r = gp_fail(err, GP_EUSAGE,
                    "openstack %s: the flavor %.80s has no disk, and servers that start from a volume are not "
                    "supported: give another instance_type",
                    l->region, f->name);
    if (err != NULL) err->scope = GP_SCOPE_REGION;
    return r;
}

static int in_region(struct looking *l, struct gp_error *err) {
    const struct os_flavors *all = NULL;
    const struct os_network *network = NULL;
    struct os_image image = {0};
    struct os_quota quota = {-1, -1, -1, 0, -1};
    const struct spec_image *want = spec_effective(l->spec, l->index).image;
    VEC_OF(const struct os_flavor *) fit = {0};
    if (want->baked != NULL)
        return gp_fail(err, GP_EUSAGE, "openstack: images are not baked here: remove 'baked' from image");
    int r = os_flavors_get(l->o, l->region, &all, err);
    if (r == 0) r = os_image_find(l->o, l->region, want, &image, err);
    if (r == 0) r = os_network_find(l->o, l->region, l->offer->network, &network, err);
    if (r == 0) r = os_quota_get(l->o, l->region, &quota, err);
    for (size_t i = 0; r == 0 && i < all->list.len; i++) {
        const struct os_flavor *f = &all->list.items[i];
        bool named = l->offer->instance_type != NULL && strcmp(l->offer->instance_type, f->name) == 0;
        if (named && f->disk_gib == 0) r = no_disk(l, f, err);
        else if (f->disk_gib > 0 && fits(l, f, &image)) vec_push(&fit, f);
    }
    if (r == 0 && fit.len == 0) r = none(l, all, &image, err);
    if (r == 0 && fit.len > 0) {
        qsort(fit.items, fit.len, sizeof *fit.items, by_size);
        for (size_t i = 0; i < fit.len; i++) {
            if (l->offer->zones.n == 0) add_offer(l, fit.items[i], "", &image, network, &quota);
            for (size_t z = 0; z < l->offer->zones.n; z++)
                add_offer(l, fit.items[i], l->offer->zones.v[z], &image, network, &quota);
        }
    }
    vec_free(&fit);
    os_image_clear(&image);
    return r;
}

int os_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret, struct gp_error *err) {
    struct os *o = os_of(p);
    const struct spec_offer *offer = &spec->offers.items[index];
    GP_AUTO_STRV struct strv regions = {0};
    size_t before = ret->list.len;
    strv_copy(&regions, &offer->regions);
    if (regions.n == 0 && os_home(o) != NULL) strv_add(&regions, os_home(o));
    if (regions.n == 0)
        return gp_fail(err, GP_EUSAGE,
                       "openstack: the cloud has several regions: give 'regions' in the offer, or "
                       "OS_REGION_NAME");
    if (offer->role != NULL) {
        int r = os_check_may_grant(o, err);
        if (r != 0) return r;
    }
    struct regions_result result = {.sink = o->sink, .regions = regions.n};
    for (size_t i = 0; i < regions.n; i++) {
        struct looking l = {o, spec, offer, index, regions.v[i], ret};
        struct gp_error e = {0};
        if (in_region(&l, &e) != 0 && regions_failed(&result, &e)) break;
    }
    return regions_end(&result, ret->list.len > before, err);
}
