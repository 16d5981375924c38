// SPDX-License-Identifier: Apache-2.0
/* Prices of the Retail Prices API, which is public, and the quotas of the subscription. A price or a quota that cannot
 * be read stays unknown. One thread. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#define PRICE_MAX_USD_PER_H 10000 /* ten times the most expensive size */
#define HOURS_PER_MONTH 730       /* Azure's own month, of its price pages */
#define DISK_PRODUCT "Premium SSD Managed Disks"
#define DISK_GIB_GPU 128
#define DISK_GIB 32

static int on_price(void *ctx, const json_t *item, struct gp_error *err) {
    struct azure_prices *p = ctx;
    const char *meter = json_str(item, "meterName", ""), *product = json_str(item, "productName", "");
    double usd = json_num(item, "retailPrice", -1);
    GP_AUTO_FREE char *region = azure_region(json_str(item, "armRegionName", ""));
    (void)err;
    bool other = strstr(product, "Windows") != NULL || strstr(product, "Dedicated") != NULL ||
                 strstr(product, "Cloud Services") != NULL || strstr(meter, "Low Priority") != NULL;
    if (other || str_ends(meter, " Spot") != p->spot || strcmp(region, p->region) != 0) return 0;
    if (strcmp(json_str(item, "currencyCode", ""), "USD") != 0 || !(usd > 0) || usd > PRICE_MAX_USD_PER_H) return 0;
    if (strcmp(json_str(item, "unitOfMeasure", ""), "1 Hour") != 0) return 0;
    for (size_t i = 0; i < p->names.n; i++)
        if (strcasecmp(p->names.v[i], json_str(item, "armSkuName", "")) == 0) p->usd[i] = usd;
    return 0;
}

/* The service names its next page with the port, and once with another host: only its path and query are used. */
static char *next_page(const char *url, const json_t *reply) {
    const char *next = json_str(reply, "NextPageLink", ""), *path = strstr(next, "/api/");
    const char *own = strstr(url, "/api/");
    return path != NULL && own != NULL ? xasprintf("%.*s%s", (int)(own - url), url, path) : NULL;
}

/* Premium SSDs are billed by the smallest of these that the disk fits in. */
static const struct {
    const char *name;
    int gib;
} tiers[] = {{"P1", 4},    {"P2", 8},    {"P3", 16},    {"P4", 32},    {"P6", 64},   {"P10", 128},
             {"P15", 256}, {"P20", 512}, {"P30", 1024}, {"P40", 2048}, {"P50", 4096}};

int azure_disk_gib(const struct spec *spec, int gpus) {
    return spec->disk_gib > 0 ? spec->disk_gib : gpus > 0 ? DISK_GIB_GPU : DISK_GIB;
}

static const char *disk_tier(int gib) {
    for (size_t i = 0; i < GP_ARRAY_LEN(tiers); i++)
        if (gib <= tiers[i].gib) return tiers[i].name;
    return NULL;
}

/* A shared disk has a second row, "Disk Mount", for each further machine. */
static int on_disk_price(void *ctx, const json_t *item, struct gp_error *err) {
    struct azure_prices *p = ctx;
    double usd = json_num(item, "retailPrice", -1);
    GP_AUTO_FREE char *region = azure_region(json_str(item, "armRegionName", ""));
    (void)err;
    if (strcmp(json_str(item, "productName", ""), DISK_PRODUCT) != 0 ||
        strcmp(json_str(item, "skuName", ""), p->disk_sku) != 0 ||
        strstr(json_str(item, "meterName", ""), "Mount") != NULL)
        return 0;
    if (strcmp(region, p->region) != 0 || strcmp(json_str(item, "currencyCode", ""), "USD") != 0) return 0;
    if (strcmp(json_str(item, "unitOfMeasure", ""), "1/Month") != 0) return 0;
    if (usd > 0 && usd < PRICE_MAX_USD_PER_H) p->disk_usd_per_h = usd / HOURS_PER_MONTH;
    return 0;
}

static size_t retail(struct azure_reads *w, const char *filter, struct azure_prices *p,
                     int (*each)(void *ctx, const json_t *item, struct gp_error *err)) {
    const char *own = azure_env("GPUPROV_AZURE_PRICES_ENDPOINT");
    struct str url = {0};
    struct rest_list list = {.items = "Items", .next = next_page, .each = each, .ctx = p};
    str_addf(&url, "%s/api/retail/prices", own != NULL ? own : "https://prices.azure.com");
    rest_query(&url, "api-version", "2023-01-01-preview");
    rest_query(&url, "currencyCode", "USD");
    rest_query(&url, "$filter", filter);
    return azure_reads_add(w, str_steal(&url), "azure retail prices", &list, REST_PUBLIC | REST_OPTIONAL);
}

void azure_prices_begin(const char *region, bool spot, int disk_gib, const struct strv *names, struct azure_reads *w,
                        struct azure_prices *ret) {
    GP_AUTO_STR struct str filter = {0}, disk_filter = {0};
    const char *tier = disk_gib > 0 ? disk_tier(disk_gib) : NULL;
    ret->region = region;
    ret->spot = spot;
    strv_copy(&ret->names, names);
    ret->usd = xcalloc(names->n + 1, sizeof *ret->usd);
    ret->disk_usd_per_h = disk_gib > 0 ? -1 : 0;
    ret->disk_sku = tier != NULL ? xasprintf("%s LRS", tier) : NULL;
    str_addf(&filter,
             "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName eq '%s' and (",
             region);
    for (size_t i = 0; i < names->n; i++) {
        ret->usd[i] = -1;
        str_addf(&filter, "%sarmSkuName eq '%s'", i > 0 ? " or " : "", names->v[i]);
    }
    str_add(&filter, ")");
    ret->lists[0] = ret->lists[1] = SIZE_MAX;
    if (names->n > 0) ret->lists[0] = retail(w, filter.s, ret, on_price);
    if (tier == NULL) return;
    str_addf(&disk_filter,
             "serviceName eq 'Storage' and priceType eq 'Consumption' and armRegionName eq '%s' and productName eq "
             "'" DISK_PRODUCT "' and skuName eq '%s'",
             region, ret->disk_sku);
    ret->lists[1] = retail(w, disk_filter.s, ret, on_disk_price);
}

/* Of a list that was cut short, the prices that it had are used; a disk's is one row of one page. */
void azure_prices_end(const struct azure_reads *w, struct azure_prices *p) {
    if (p->lists[1] != SIZE_MAX && w->lists.items[p->lists[1]].rc != 0) p->disk_usd_per_h = -1;
}

double azure_price_of(const struct azure_prices *p, const char *size) {
    for (size_t i = 0; i < p->names.n; i++)
        if (strcasecmp(p->names.v[i], size) == 0) return p->usd[i];
    return -1;
}

void azure_prices_clear(struct azure_prices *p) {
    strv_clear(&p->names);
    free(p->usd);
    free(p->disk_sku);
    *p = (struct azure_prices){0};
}

/* --- quotas --- */

static int on_usage(void *ctx, const json_t *item, struct gp_error *err) {
    struct azure_sizes *s = ctx;
    struct azure_usage u = {.used = json_int(item, "currentValue", -1), .limit = json_int(item, "limit", -1)};
    const char *family = json_str(item, "name.value", "");
    (void)err;
    if (u.used < 0 || u.limit < 0 || family[0] == '\0') return 0;
    u.family = xstrdup(family);
    u.name = xasprintf("%.95s", json_str(item, "name.localizedValue", family));
    str_one_line(u.name);
    vec_push(&s->usages, u);
    return 0;
}

size_t azure_usages_add(struct azure *a, struct azure_sizes *to, struct azure_reads *w) {
    char *url = azure_url(a, AZURE_COMPUTE, "/providers/Microsoft.Compute/locations/%s/usages", to->region);
    return azure_reads_pages(w, url, REST_OPTIONAL, on_usage, to);
}

static const struct azure_usage *usage_of(const struct azure_sizes *s, const char *family) {
    for (size_t i = 0; i < s->usages.len; i++)
        if (strcasecmp(s->usages.items[i].family, family) == 0) return &s->usages.items[i];
    return NULL;
}

static int usages_again(struct azure *a, struct azure_sizes *s, struct gp_error *err) {
    GP_AUTO_AZURE_READS struct azure_reads w = {0};
    azure_usages_forget(s);
    azure_usages_add(a, s, &w);
    rest_pages_many(&a->rest, w.lists.items, w.lists.len);
    if (w.lists.items[0].rc == 0) return 0;
    azure_usages_forget(s);
    return w.lists.items[0].rc == -GP_ECANCELLED ? gp_fail(err, GP_ECANCELLED, "cancelled") : 0; /* Azure decides */
}

/* Quotas that were read with the sizes let a launch begin at once; they are read again before they refuse one. */
int azure_quota_check(struct azure *a, const struct offer *offer, int count, struct gp_error *err) {
    GP_AUTO_FREE char *key = xasprintf("%s/%s/%d/%d", offer->region, offer->instance_type, (int)offer->market, count);
    if (strv_has(&a->cache->quotas_ok, key)) return 0;
    int r = azure_sizes_known(a, offer->region) == NULL ? azure_sizes_load(a, offer->region, err) : 0;
    if (r != 0) return r;
    struct azure_sizes *all = azure_sizes_known(a, offer->region);
    const struct azure_size *s = azure_size_find(all, offer->instance_type);
    int64_t need = s != NULL ? (int64_t)s->vcpus * count : 0;
    const char *family = offer->market == MARKET_SPOT ? "lowPriorityCores" : s != NULL ? s->family : "";
    if (need <= 0 || family[0] == '\0') return 0;
    const struct azure_usage *u = usage_of(all, family);
    if (u == NULL || u->limit - u->used < need) {
        r = usages_again(a, all, err);
        if (r != 0) return r;
        u = usage_of(all, family);
    }
    if (u == NULL || u->limit - u->used >= need) {
        strv_add(&a->cache->quotas_ok, key); /* unknown: Azure decides */
        return 0;
    }
    gp_fail(err, GP_EQUOTA,
            "azure %s: %d x %s needs %lld vCPUs of the quota '%s', which has %lld of %lld left: request more at the "
            "portal's Quotas page, or offer another region",
            offer->region, count, offer->instance_type, (long long)need, u->name, (long long)(u->limit - u->used),
            (long long)u->limit);
    if (err != NULL) {
        err->domain = GP_D_CLOUD;
        err->scope = GP_SCOPE_REGION;
        str_put(err->detail, sizeof err->detail, "QuotaExceeded");
    }
    return -GP_EQUOTA;
}
