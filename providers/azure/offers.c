// SPDX-License-Identifier: Apache-2.0
/* Offers: sizes x zones x prices x image, for one entry of the spec's offers. Buys nothing. One thread. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/clock.h"
#include "providers/catalog/catalog.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/refusal.h"
#include "providers/common/ssh_from.h"

#define SIZES_MAX 12

struct search {
    struct azure *a;
    const struct spec *spec;
    const struct spec_offer *want;
    size_t index;
    const char *region;
    struct azure_prices prices;
    struct azure_sizes_read read; /* fresh NULL: its sizes are known already */
    struct gp_error err;          /* why the sizes could not be read */
    struct offer_list *out;
};

static char *price_source(struct search *s, bool listed, double price) {
    char day[32];
    if (price < 0) return xstrdup("");
    if (!listed) return xasprintf("catalogue %s", catalog_azure_date);
    time_format_utc(day, sizeof day, cloud_now_s(&s->a->base));
    return xasprintf("retail prices %.10s", day);
}

static void add_offer(struct search *s, const struct azure_size *t, const char *zone, const char *image, double price,
                      bool listed) {
    struct offer o = {.spec_index = s->index,
                      .provider = xstrdup("azure"),
                      .region = xstrdup(s->region),
                      .zone = xstrdup(zone),
                      .instance_type = xstrdup(t->name),
                      .market = s->want->market,
                      .image = xstrdup(image),
                      .image_name = xstrdup(image),
                      .subnet = xstrdup(s->want->subnet != NULL ? s->want->subnet : ""),
                      .gpu_model = xstrdup(t->gpu_model),
                      .gpus = t->gpus,
                      .ends = s->want->role != NULL ? ENDS_GUEST : ENDS_BY_PROVIDER,
                      .vcpus = t->vcpus,
                      .memory_gib = t->memory_gib,
                      .disk_gib = azure_disk_gib(s->spec, t->gpus),
                      .disk_usd_per_h = GP_MAX(s->prices.disk_usd_per_h, 0.0),
                      .fabric = azure_fabric_text(s->spec, s->want, t),
                      .price_usd_per_h = price,
                      .price_source = price_source(s, listed, price)};
    vec_push(&s->out->list, o);
}

static int offers_of_size(struct search *s, const struct azure_size *t, struct gp_error *err) {
    GP_AUTO_FREE char *image = NULL;
    bool spot = s->want->market == MARKET_SPOT;
    double listed = azure_price_of(&s->prices, t->name), disk = s->prices.disk_usd_per_h;
    double price = listed >= 0 || spot ? listed : catalog_azure_price(t->name, s->region);
    price = price < 0 || disk < 0 ? -1 : price + disk;
    bool together = false;
    int r = azure_fabric_choose(s->spec, s->want, t, &together, err);
    if (r == 0) r = azure_image_find(s->spec, s->index, t, together, &image, err);
    if (r != 0) return r;
    /* A region, a size without zones, and an availability set are one place. */
    if (together || (t->zones.n == 0 && s->want->zones.n == 0)) add_offer(s, t, "", image, price, listed >= 0);
    for (size_t i = 0; !together && i < t->zones.n; i++)
        if (s->want->zones.n == 0 || strv_has(&s->want->zones, t->zones.v[i]))
            add_offer(s, t, t->zones.v[i], image, price, listed >= 0);
    return 0;
}

static int offers_of_region(struct search *s, struct gp_error *err) {
    const struct azure_sizes *all = azure_sizes_known(s->a, s->region);
    struct azure_picks picks = {0};
    size_t before = s->out->list.len;
    if (all == NULL) {
        if (err != NULL) *err = s->err;
        return -(int)s->err.code;
    }
    int r = azure_sizes_pick(all, s->spec, s->want, &picks, err);
    picks.list.len = GP_MIN(picks.list.len, (size_t)SIZES_MAX);
    for (size_t i = 0; r == 0 && i < picks.list.len; i++) {
        struct gp_error unfit = {0};
        int one = offers_of_size(s, picks.list.items[i], &unfit);
        if (one == 0 || i + 1 < picks.list.len || s->out->list.len > before) continue;
        r = one; /* none of the sizes fits: the reason of the last one */
        if (err != NULL) *err = unfit;
    }
    if (r == 0 && s->out->list.len == before) {
        r = gp_fail(err, GP_EUSAGE, "azure %s: %s is not sold in the requested zones", s->region,
                    picks.list.items[0]->name);
        if (err != NULL) err->scope = GP_SCOPE_REGION;
    }
    vec_free(&picks.list);
    return r;
}

/* Sizes, quotas and prices of all regions in one round trip: prices are requested by the catalogue's names. */
static int read_all(struct azure *a, struct search *searches, size_t n, struct gp_error *err) {
    GP_AUTO_AZURE_READS struct azure_reads w = {0};
    bool cancelled = false;
    for (size_t i = 0; i < n; i++) {
        struct search *s = &searches[i];
        GP_AUTO_STRV struct strv names = {0};
        azure_sizes_guess(s->spec, s->want, &names);
        if (azure_sizes_known(a, s->region) == NULL) azure_sizes_begin(a, s->region, &w, &s->read);
        azure_prices_begin(s->region, s->want->market == MARKET_SPOT, s->spec->disk_gib, &names, &w, &s->prices);
    }
    rest_pages_many(&a->rest, w.lists.items, w.lists.len);
    for (size_t i = 0; i < w.lists.len; i++) cancelled = cancelled || w.lists.items[i].rc == -GP_ECANCELLED;
    for (size_t i = 0; i < n; i++) {
        struct search *s = &searches[i];
        if (s->read.fresh != NULL) azure_sizes_end(a, &w, &s->read, &s->err);
        azure_prices_end(&w, &s->prices);
    }
    return cancelled ? gp_fail(err, GP_ECANCELLED, "cancelled") : 0;
}

/* The offers of all regions that have some. */
static void collect(struct search *searches, size_t n, struct regions_result *result) {
    for (size_t i = 0; i < n; i++) {
        struct gp_error e = {0};
        if (offers_of_region(&searches[i], &e) != 0 && regions_failed(result, &e)) return;
    }
}

int azure_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                 struct gp_error *err) {
    struct azure *a = azure_of(p);
    const struct spec_offer *want = &spec->offers.items[index];
    struct regions_result result = {.sink = a->sink, .regions = want->regions.n};
    size_t before = ret->list.len;
    if (spec->disk_gib > AZURE_DISK_MAX_GIB) {
        gp_fail(err, GP_EUSAGE,
                "azure: 'disk' is %d GiB, but a machine starts from at most %d GiB: lower it, or give another provider",
                spec->disk_gib, AZURE_DISK_MAX_GIB);
        if (err != NULL) err->scope = GP_SCOPE_PROVIDER;
        return -GP_EUSAGE;
    }
    int r = ssh_from_check_private("azure", spec, index, err);
    if (r != 0) return r;
    struct search *searches = xcalloc(want->regions.n + 1, sizeof *searches);
    for (size_t i = 0; i < want->regions.n; i++)
        searches[i] = (struct search){
            .a = a, .spec = spec, .want = want, .index = index, .region = want->regions.v[i], .out = ret};
    r = read_all(a, searches, want->regions.n, err);
    if (r == 0) {
        collect(searches, want->regions.n, &result);
        r = regions_end(&result, ret->list.len > before, err);
    }
    for (size_t i = 0; i < want->regions.n; i++) azure_prices_clear(&searches[i].prices);
    free(searches);
    return r;
}
