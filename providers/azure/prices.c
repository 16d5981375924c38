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

struct pricing {
    const struct azure_picks *picks;
    const char *region;
    bool spot;
    double *ret;
};

static int on_price(void *ctx, const json_t *item, struct gp_error *err) {
    struct pricing *p = ctx;
    const char *meter = json_str(item, "meterName", ""), *product = json_str(item, "productName", "");
    double usd = json_num(item, "retailPrice", -1);
    GP_AUTO_FREE char *region = azure_region(json_str(item, "armRegionName", ""));
    (void)err;
    bool other = strstr(product, "Windows") != NULL || strstr(product, "Dedicated") != NULL ||
                 strstr(product, "Cloud Services") != NULL || strstr(meter, "Low Priority") != NULL;
    if (other || str_ends(meter, " Spot") != p->spot || strcmp(region, p->region) != 0) return 0;
    if (strcmp(json_str(item, "currencyCode", ""), "USD") != 0 || !(usd > 0) || usd > PRICE_MAX_USD_PER_H) return 0;
    if (strcmp(json_str(item, "unitOfMeasure", ""), "1 Hour") != 0) return 0;
    for (size_t i = 0; i < p->picks->list.len; i++)
        if (strcasecmp(p->picks->list.items[i]->name, json_str(item, "armSkuName", "")) == 0) p->ret[i] = usd;
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

struct disk_pricing {
    const char *region, *sku; /* "P10 LRS" */
    double *ret;
};

/* A shared disk has a second row, "Disk Mount", for each further machine. */
static int on_disk_price(void *ctx, const json_t *item, struct gp_error *err) {
    struct disk_pricing *p = ctx;
    double usd = json_num(item, "retailPrice", -1);
    GP_AUTO_FREE char *region = azure_region(json_str(item, "armRegionName", ""));
    (void)err;
    if (strcmp(json_str(item, "productName", ""), DISK_PRODUCT) != 0 ||
        strcmp(json_str(item, "skuName", ""), p->sku) != 0 || strstr(json_str(item, "meterName", ""), "Mount") != NULL)
        return 0;
    if (strcmp(region, p->region) != 0 || strcmp(json_str(item, "currencyCode", ""), "USD") != 0) return 0;
    if (strcmp(json_str(item, "unitOfMeasure", ""), "1/Month") != 0) return 0;
    if (usd > 0 && usd < PRICE_MAX_USD_PER_H) *p->ret = usd / HOURS_PER_MONTH;
    return 0;
}

static struct rest_call retail(const char *filter, struct str *url) {
    const char *own = azure_env("GPUPROV_AZURE_PRICES_ENDPOINT");
    str_addf(url, "%s/api/retail/prices", own != NULL ? own : "https://prices.azure.com");
    rest_query(url, "api-version", "2023-01-01-preview");
    rest_query(url, "currencyCode", "USD");
    rest_query(url, "$filter", filter);
    return (struct rest_call){
        .what = "azure retail prices", .method = "GET", .url = url->s, .flags = REST_PUBLIC | REST_OPTIONAL};
}

int azure_prices(struct azure *a, const char *region, const struct azure_picks *picks, bool spot, int disk_gib,
                 double *ret, double *ret_disk, struct gp_error *err) {
    GP_AUTO_STR struct str filter = {0}, disk_filter = {0}, url = {0}, disk_url = {0};
    struct pricing pricing = {picks, region, spot, ret};
    const char *tier = disk_gib > 0 ? disk_tier(disk_gib) : NULL;
    GP_AUTO_FREE char *sku = xasprintf("%s LRS", tier != NULL ? tier : "");
    struct disk_pricing disk = {region, sku, ret_disk};
    for (size_t i = 0; i < picks->list.len; i++) ret[i] = -1;
    *ret_disk = disk_gib > 0 ? -1 : 0;
    str_addf(&filter,
             "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName eq '%s' and (",
             region);
    for (size_t i = 0; i < picks->list.len; i++)
        str_addf(&filter, "%sarmSkuName eq '%s'", i > 0 ? " or " : "", picks->list.items[i]->name);
    str_add(&filter, ")");
    str_addf(&disk_filter,
             "serviceName eq 'Storage' and priceType eq 'Consumption' and armRegionName eq '%s' and productName eq "
             "'" DISK_PRODUCT "' and skuName eq '%s'",
             region, sku);
    struct rest_paged lists[] = {
        {.first = retail(filter.s, &url),
         .list = {.items = "Items", .next = next_page, .each = on_price, .ctx = &pricing}},
        {.first = retail(disk_filter.s, &disk_url),
         .list = {.items = "Items", .next = next_page, .each = on_disk_price, .ctx = &disk}},
    };
    rest_pages_many(&a->rest, lists, tier != NULL ? 2 : 1);
    for (size_t i = 0; i < GP_ARRAY_LEN(lists); i++) {
        if (lists[i].rc == 0) continue;
        if (err != NULL && err->code == GP_OK) *err = lists[i].err;
        if (i > 0) *ret_disk = -1; /* cut short */
    }
    return lists[0].rc != 0 ? lists[0].rc : lists[1].rc;
}

/* --- quotas --- */

struct quota {
    const char *family; /* in any case */
    bool found;
    int64_t used, limit;
    char name[96];
};

static int on_usage(void *ctx, const json_t *item, struct gp_error *err) {
    struct quota *q = ctx;
    (void)err;
    if (strcasecmp(json_str(item, "name.value", ""), q->family) != 0) return 0;
    q->used = json_int(item, "currentValue", -1);
    q->limit = json_int(item, "limit", -1);
    q->found = q->used >= 0 && q->limit >= 0;
    str_put(q->name, sizeof q->name, json_str(item, "name.localizedValue", q->family));
    return 0;
}

int azure_quota_check(struct azure *a, const struct offer *offer, int count, struct gp_error *err) {
    const struct azure_sizes *all = NULL;
    GP_AUTO_FREE char *key = xasprintf("%s/%s/%d/%d", offer->region, offer->instance_type, (int)offer->market, count);
    if (strv_has(&a->cache->quotas_ok, key)) return 0;
    int r = azure_sizes_of(a, offer->region, &all, err);
    if (r != 0) return r;
    const struct azure_size *s = azure_size_find(all, offer->instance_type);
    int64_t need = s != NULL ? (int64_t)s->vcpus * count : 0;
    struct quota q = {.family = offer->market == MARKET_SPOT ? "lowPriorityCores" : s != NULL ? s->family : ""};
    if (need <= 0 || q.family[0] == '\0') return 0;
    GP_AUTO_FREE char *url =
        azure_url(a, AZURE_COMPUTE, "/providers/Microsoft.Compute/locations/%s/usages", offer->region);
    struct gp_error unread = {0};
    r = azure_pages(a, url, on_usage, &q, &unread);
    if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "cancelled");
    if (r != 0 || !q.found || q.limit - q.used >= need) {
        strv_add(&a->cache->quotas_ok, key); /* unknown: Azure decides */
        return 0;
    }
    str_one_line(q.name);
    gp_fail(err, GP_EQUOTA,
            "azure %s: %d x %s needs %lld vCPUs of the quota '%s', which has %lld of %lld left: request more at the "
            "portal's Quotas page, or offer another region",
            offer->region, count, offer->instance_type, (long long)need, q.name, (long long)(q.limit - q.used),
            (long long)q.limit);
    if (err != NULL) {
        err->domain = GP_D_CLOUD;
        err->scope = GP_SCOPE_REGION;
        str_put(err->detail, sizeof err->detail, "QuotaExceeded");
    }
    return -GP_EQUOTA;
}
