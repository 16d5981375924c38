// SPDX-License-Identifier: Apache-2.0
/* Offers: machine types x zones x image, with the catalogue's prices, for one entry of the spec's offers. Buys nothing.
 * One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "base/form.h"
#include "providers/catalog/catalog.h"
#include "providers/common/refusal.h"
#include "providers/common/ssh_from.h"

struct search {
    struct google *g;
    const struct spec *spec;
    const struct spec_offer *want;
    size_t index;
    const char *region;
    struct offer_list *out;
};

static int refuse_region(struct gp_error *err, int r) {
    if (err != NULL) err->scope = GP_SCOPE_REGION;
    return r;
}

static int add_offer(struct search *s, const struct google_type *t, const struct google_nics *nics,
                     struct gp_error *err) {
    const struct google_image *image = NULL;
    bool spot = s->want->market == MARKET_SPOT;
    /* The price of N1 with a GPU is a sum that the catalogue does not have. */
    double price = t->attach[0] == '\0' ? catalog_google_price(t->name, s->region, spot) : -1;
    int r = google_image_find(s->g, s->spec, s->index, t->arm, &image, err);
    if (r == 0 && image->arm != t->arm)
        r = gp_fail(err, GP_EUSAGE, "google %s: the image %s and the type %s have different processors", t->zone,
                    image->name, t->name);
    if (r == 0) r = google_disk_check(s->spec, image, err);
    if (r != 0) return r;
    double disk = google_disk_price(s->spec, image, t->name, s->region);
    price = price < 0 || disk < 0 ? -1 : price + disk; /* a node's is that with its disk */
    struct offer o = {
        .spec_index = s->index,
        .provider = xstrdup("google"),
        .region = xstrdup(s->region),
        .zone = xstrdup(t->zone),
        .instance_type = xstrdup(t->name),
        .market = s->want->market,
        .image = xstrdup(image->id),
        .image_name = xstrdup(image->name),
        .subnet = xstrdup(s->want->subnet != NULL ? s->want->subnet : ""),
        .gpu_model = xstrdup(t->accelerator),
        .gpus = t->gpus,
        .vcpus = t->vcpus,
        .memory_gib = t->memory_mib / 1024.0,
        .disk_gib = google_disk_gib(s->spec, image, t->gpus),
        .disk_usd_per_h = GP_MAX(disk, 0.0),
        .fabric = google_fabric_text(s->spec, t->name, nics),
        .quota = google_quota_text(s->g, s->region, t->accelerator, s->want->market),
        .price_usd_per_h = price,
        .price_source = price < 0 ? xstrdup("") : xasprintf("catalogue %s", catalog_google_date),
    };
    vec_push(&s->out->list, o);
    return 0;
}

/* The zones of a region that the offer allows. */
static int zones_of(struct search *s, struct strv *ret, struct gp_error *err) {
    GP_AUTO_STRV struct strv all = {0};
    const json_t *zone = NULL, *region_reply = NULL;
    size_t i = 0;
    int r = google_region_read(s->g, s->region, &region_reply, err);
    if (r == -GP_ENOTFOUND) {
        if (err != NULL) gp_error_clear(err);
        r = gp_fail(err, GP_EUSAGE, "google: the region '%s' does not exist: correct regions", s->region);
    }
    if (r != 0) return r == -GP_EUSAGE ? refuse_region(err, r) : r;
    json_array_foreach(json_at(region_reply, "zones"), i, zone) {
        const char *name = google_last(json_is_string(zone) ? json_string_value(zone) : "");
        GP_AUTO_FREE char *region = google_region_of(name);
        if (!str_eq(region, s->region))
            return gp_fail(err, GP_EPROTO, "google regions.get of %s: the reply names a zone that is not of the region",
                           s->region);
        strv_add(&all, name);
        if (s->want->zones.n == 0 || strv_has(&s->want->zones, name)) strv_add(ret, name);
    }
    for (i = 0; i < s->want->zones.n; i++) {
        const char *name = s->want->zones.v[i];
        GP_AUTO_FREE char *region = google_region_of(name);
        if (str_eq(region, s->region) && !strv_has(&all, name))
            return refuse_region(err, gp_fail(err, GP_EUSAGE, "google %s: the zone '%s' does not exist: correct zones",
                                              s->region, name));
    }
    return 0;
}

/* A type whose GPUDirect this gang cannot use is left out, with the reason. */
static int try_type(struct search *s, const struct google_type *t, struct gp_error *ret_why, struct gp_error *err) {
    GP_AUTO_NICS struct google_nics nics = {0};
    struct google_place at = {t->name, s->region, t->zone};
    struct gp_error why = {0};
    int r = google_nics_choose(s->g, s->spec, s->want, &at, &nics, &why);
    if (r == 0) return add_offer(s, t, &nics, err);
    if (r == -GP_EUSAGE) *ret_why = why;
    else if (err != NULL) *err = why;
    return r == -GP_EUSAGE ? 0 : r;
}

static int offers_of_region(struct search *s, struct gp_error *err) {
    GP_AUTO_STRV struct strv zones = {0};
    struct google_types types = {0};
    struct gp_error why = {0};
    size_t before = s->out->list.len;
    int r = zones_of(s, &zones, err);
    if (r == 0) r = google_types_find(s->g, &zones, s->spec, s->index, &types, err);
    for (size_t i = 0; r == 0 && i < types.list.len; i++) r = try_type(s, &types.list.items[i], &why, err);
    google_types_clear(&types);
    if (r != 0 || s->out->list.len > before) return r;
    if (why.code != GP_OK) {
        if (err != NULL) *err = why;
        return -(int)why.code;
    }
    GP_AUTO_FREE char *gpus = s->spec->gpu.model != NULL ? xasprintf("%s:%d", s->spec->gpu.model, s->spec->gpu.count)
                                                         : xstrdup("a small type");
    return refuse_region(err, gp_fail(err, GP_EUSAGE, "google %s: %s%s%s is not sold in %s", s->region,
                                      s->want->instance_type != NULL ? s->want->instance_type : gpus,
                                      s->want->instance_type != NULL && s->spec->gpu.model != NULL ? " with " : "",
                                      s->want->instance_type != NULL && s->spec->gpu.model != NULL ? gpus : "",
                                      s->want->zones.n > 0 ? "the requested zones" : "any zone"));
}

int google_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                  struct gp_error *err) {
    struct google *g = google_of(p);
    const struct spec_offer *want = &spec->offers.items[index];
    struct search s = {.g = g, .spec = spec, .want = want, .index = index, .out = ret};
    int refused = ssh_from_check_private("google", spec, index, err);
    if (refused != 0) return refused;
    GP_AUTO_STRV struct strv regions = {0};
    GP_AUTO_FREE char *set = want->regions.n == 0 ? google_default_region() : NULL;
    strv_copy(&regions, &want->regions);
    if (set != NULL) strv_add(&regions, set);
    if (regions.n == 0) {
        int r = gp_fail(err, GP_EUSAGE,
                        "google: no region: give regions, run 'gcloud config set compute/region NAME', or set "
                        "CLOUDSDK_COMPUTE_REGION");
        if (err != NULL) err->scope = GP_SCOPE_OFFER;
        return r;
    }
    struct regions_result result = {.sink = g->sink, .regions = regions.n};
    size_t before = ret->list.len;
    for (size_t i = 0; i < regions.n; i++) {
        struct gp_error e = {0};
        s.region = regions.v[i];
        int r = offers_of_region(&s, &e);
        if (r != 0 && regions_failed(&result, &e)) break;
    }
    return regions_end(&result, ret->list.len > before, err);
}
