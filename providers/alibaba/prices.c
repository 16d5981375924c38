// SPDX-License-Identifier: Apache-2.0
/* Prices of a search for offers: DescribePrice, the history of spot prices, the disk that the spec asks for, and the
 * catalogue where the cloud gives none. One thread at a time. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_search.h"

#include "base/clock.h"
#include "base/form.h"
#include "model/currency.h"
#include "providers/catalog/catalog.h"
#include "providers/common/cloud_clock.h"

#define PRICE_MAX 100000 /* per hour, in any currency of the cloud */

/* --- replies --- */

static bool price_valid(double p) { return p >= 0 && p < PRICE_MAX; }

static int on_price(void *ctx, const json_t *reply, struct gp_error *err) {
    struct price *ret = ctx;
    double price = json_num(reply, "PriceInfo.Price.TradePrice", -1);
    const char *currency = json_str(reply, "PriceInfo.Price.Currency", "");
    (void)err;
    if (!price_valid(price) || !form_word(currency)) return 0; /* it stays unknown */
    ret->amount = price;
    ret->currency = xstrdup(currency);
    return 0;
}

static int on_history(void *ctx, const json_t *reply, struct gp_error *err) {
    struct history *h = ctx;
    json_t *all = json_at(reply, "SpotPrices.SpotPriceType"), *one = NULL;
    const char *currency = json_str(reply, "Currency", "");
    size_t i = 0;
    (void)err;
    if (!form_word(currency)) return 0;
    h->type->price.currency = xstrdup(currency);
    json_array_foreach(all, i, one) {
        const char *zone = json_str(one, "ZoneId", "");
        struct zone_price z = {.price = json_num(one, "SpotPrice", -1),
                               .at_s = ali_time(json_str(one, "Timestamp", ""))};
        struct zone_price *have = NULL;
        if (!form_word(zone) || !price_valid(z.price)) continue;
        for (size_t k = 0; k < h->s->spots.len; k++) {
            struct zone_price *p = &h->s->spots.items[k];
            if (strcmp(p->zone, zone) == 0 && strcmp(p->type, h->type->name) == 0) have = p;
        }
        if (have == NULL) {
            z.zone = xstrdup(zone);
            z.type = xstrdup(h->type->name);
            vec_push(&h->s->spots, z);
        } else if (z.at_s > have->at_s) {
            have->at_s = z.at_s;
            have->price = z.price;
        }
    }
    return 0;
}

/* --- lists --- */

/* The list that reads the price of a type. history: of a spot search, until the list was read. image NULL: a system
 * of the cloud, whose price is that of a Linux image, which DescribePrice takes without one. */
static void price_list(struct search *s, struct type *t, const char *image, struct history *history,
                       struct ali_list *l) {
    bool spot = s->want->market == MARKET_SPOT;
    *history = (struct history){s, t};
    *l = (struct ali_list){.region = s->region,
                           .action = spot ? "DescribeSpotPriceHistory" : "DescribePrice",
                           .each = spot ? on_history : on_price,
                           .ctx = spot ? (void *)history : (void *)&t->price};
    t->disk_gib = ali_disk_gib(s->a, s->spec, image != NULL ? image : "", t->gpus);
    ali_begin(&l->query, s->region);
    ali_param(&l->query, "InstanceType", t->name);
    if (spot) {
        ali_param(&l->query, "NetworkType", "vpc");
        ali_param(&l->query, "OSType", "linux");
        return;
    }
    ali_param(&l->query, "ResourceType", "instance");
    ali_param(&l->query, "PriceUnit", "Hour");
    if (image != NULL) ali_param(&l->query, "ImageId", image);
    ali_param(&l->query, "SystemDisk.Category", "cloud_essd");
    ali_param_int(&l->query, "SystemDisk.Size", t->disk_gib);
}

static void add_guess(struct search *s, const char *name, int gpus) {
    struct type t = {.name = xstrdup(name), .gpus = gpus, .price = {.amount = -1}};
    if (s->guesses.len < ALI_GUESSES_MAX) vec_push(&s->guesses, t);
    else ali_type_clear(&t);
}

void ali_guess_types(struct search *s) {
    const struct spec_gpu *gpu = &s->spec->gpu;
    if (s->want->instance_type != NULL) {
        int gpus = catalog_alibaba_gpus(s->want->instance_type);
        add_guess(s, s->want->instance_type, gpu->model != NULL ? gpu->count : GP_MAX(gpus, 0));
        return;
    }
    for (const struct catalog_row *c = catalog_alibaba; gpu->model != NULL && c->type != NULL; c++) {
        struct type t = {.gpu = xstrdup(c->gpu_model)};
        if (c->gpus == gpu->count && ali_gpu_matches(gpu->model, &t)) add_guess(s, c->type, c->gpus);
        free(t.gpu);
    }
}

size_t ali_guess_lists(struct search *s, struct history *histories, struct ali_list *lists) {
    const char *image = spec_effective(s->spec, s->index).image->id;
    size_t n = 0;
    if (s->spec->disk_gib > 0) {
        struct ali_list *l = &lists[n++];
        *l = (struct ali_list){
            .region = s->region, .action = "DescribePrice", .each = on_price, .ctx = (void *)&s->disk};
        ali_begin(&l->query, s->region);
        ali_disk_query(&l->query, ali_disk_gib(s->a, s->spec, image != NULL ? image : "", 0));
    }
    for (size_t i = 0; i < s->guesses.len; i++) price_list(s, &s->guesses.items[i], image, &histories[i], &lists[n++]);
    return n;
}

/* Gives a type the price that was read for it, unless that has another disk than the node would have. */
static bool priced(struct search *s, struct type *t) {
    for (size_t i = 0; i < s->guesses.len; i++) {
        struct type *g = &s->guesses.items[i];
        if (strcmp(g->name, t->name) != 0 || g->price.currency == NULL) continue;
        if (s->want->market != MARKET_SPOT && g->disk_gib != ali_disk_gib(s->a, s->spec, s->image.id, t->gpus))
            continue;
        t->price = g->price;
        g->price = (struct price){.amount = -1};
    }
    return t->price.currency != NULL;
}

void ali_prices_read(struct search *s, size_t types) {
    struct ali_list lists[ALI_TYPES_MAX] = {0};
    struct history histories[ALI_TYPES_MAX];
    size_t n = 0;
    for (size_t i = 0; i < types; i++) {
        if (priced(s, &s->types.items[i])) continue;
        price_list(s, &s->types.items[i], s->image.id, &histories[n], &lists[n]);
        n++;
    }
    if (n > 0) ali_lists(s->a, lists, n, NULL);
    for (size_t i = 0; i < n; i++) ali_list_clear(&lists[i]);
}

/* --- of an offer --- */

static double spot_in(const struct search *s, const char *type, const char *zone) {
    for (size_t i = 0; i < s->spots.len; i++)
        if (strcmp(s->spots.items[i].zone, zone) == 0 && strcmp(s->spots.items[i].type, type) == 0)
            return s->spots.items[i].price;
    return -1;
}

/* Adds the disk that the spec asks for. Negative: its price is not known in that currency. */
static double with_disk(const struct search *s, double price, const char *currency) {
    if (s->spec->disk_gib == 0) return price;
    return s->disk.amount >= 0 && str_eq(s->disk.currency, currency) ? price + s->disk.amount : -1;
}

/* Of that disk; 0: the spec asks for none. Negative: unknown. */
static double disk_usd(const struct search *s) {
    double rate = currency_usd(s->disk.currency);
    if (s->spec->disk_gib == 0) return 0;
    return s->disk.amount < 0 || rate < 0 ? -1 : s->disk.amount * rate;
}

/* DescribePrice has the disk in its sum; the other sources have the instance alone. */
void ali_price_set(const struct search *s, const struct type *t, const char *zone, struct offer *o) {
    bool spot = s->want->market == MARKET_SPOT;
    double alone = spot ? spot_in(s, t->name, zone) : -1, listed = catalog_alibaba_price(t->name, s->region);
    double price = !spot ? t->price.amount : alone < 0 ? -1 : with_disk(s, alone, t->price.currency);
    char day[32];
    time_format_utc(day, sizeof day, cloud_now_s(&s->a->base));
    o->price_usd_per_h = -1;
    if (price >= 0) {
        offer_set_price(o, price, t->price.currency);
        o->price_source = xasprintf("%s %.10s", spot ? "spot price history" : "DescribePrice", day);
    } else if (!spot && listed >= 0 && disk_usd(s) >= 0) {
        o->price_usd_per_h = listed + disk_usd(s);
        o->price_source = xasprintf("catalogue %s", catalog_alibaba_date);
    } else {
        o->price_source = xstrdup("");
    }
    if (o->price_usd_per_h >= 0) o->disk_usd_per_h = GP_MAX(disk_usd(s), 0.0);
}
