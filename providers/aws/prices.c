// SPDX-License-Identifier: Apache-2.0
/* Current spot prices of EC2, and the vCPU quotas of the account. On-demand prices are in the
 * catalogue. A price or a quota that cannot be read stays unknown. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/form.h"

#define PRICE_MAX_USD_PER_H 10000 /* ten times the most expensive type */

void aws_spots_clear(struct aws_spots *s) {
    for (size_t i = 0; i < s->list.len; i++) {
        free(s->list.items[i].type);
        free(s->list.items[i].zone);
    }
    vec_free(&s->list);
}

static int on_price(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct aws_spots *all = ctx;
    struct aws_spot s = {0};
    const char *zone = xml_str(item, "availabilityZone", ""), *type = xml_str(item, "instanceType", "");
    if (!form_word(zone) || !form_word(type))
        return gp_fail(err, GP_EPROTO,
                       "ec2 DescribeSpotPriceHistory: an entry without a zone and an "
                       "instance type: run the same command again");
    if (!str_to_double(xml_str(item, "spotPrice", ""), &s.usd_per_h) || !(s.usd_per_h >= 0) ||
        s.usd_per_h > PRICE_MAX_USD_PER_H)
        return gp_fail(err, GP_EPROTO,
                       "ec2 DescribeSpotPriceHistory: the price of %s in %s is not a price "
                       "in USD per hour: run the same command again",
                       type, zone);
    if (!time_parse_utc(xml_str(item, "timestamp", ""), &s.at_s)) s.at_s = 0;
    for (size_t i = 0; i < all->list.len; i++) {
        struct aws_spot *have = &all->list.items[i];
        if (strcmp(have->zone, zone) != 0 || strcmp(have->type, type) != 0) continue;
        if (s.at_s > have->at_s) {
            have->at_s = s.at_s;
            have->usd_per_h = s.usd_per_h;
        }
        return 0;
    }
    s.type = xstrdup(type);
    s.zone = xstrdup(zone);
    vec_push(&all->list, s);
    return 0;
}

int aws_spot_prices(struct aws *a, const char *region, const struct aws_type *types, size_t n, struct aws_spots *ret,
                    struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    char now[32];
    time_format_utc(now, sizeof now, aws_now_s(a));
    aws_begin(&body, "DescribeSpotPriceHistory");
    for (size_t i = 0; i < n; i++) aws_paramf(&body, types[i].name, "InstanceType.%zu", i + 1);
    aws_param(&body, "ProductDescription.1", "Linux/UNIX");
    aws_param(&body, "StartTime", now); /* now: the price in force in every zone */
    return aws_describe(a, region, "DescribeSpotPriceHistory", &body, 1000, "spotPriceHistorySet", on_price, ret, err);
}

const char *aws_quota_code(const char *type, enum spec_market market) {
    static const struct {
        const char *prefix, *on_demand, *spot;
    } rows[] = {
        {"p5", "L-417A185B", "L-C4BD4855"},
        {"p2", "L-417A185B", "L-7212CCBC"},
        {"p3", "L-417A185B", "L-7212CCBC"},
        {"p4", "L-417A185B", "L-7212CCBC"},
        {"p6", "L-417A185B", NULL},
        {"g", "L-DB2E81BA", "L-3819A6DF"},
        {"vt", "L-DB2E81BA", "L-3819A6DF"},
        {"inf", NULL, NULL},
        {"trn", NULL, NULL},
        {"dl", NULL, NULL},
        {"hpc", NULL, NULL},
        {"mac", NULL, NULL},
        {"x", NULL, NULL},
        {"u-", NULL, NULL},
        {"f", NULL, NULL},
        {"a", "L-1216C47A", "L-34B43A08"},
        {"c", "L-1216C47A", "L-34B43A08"},
        {"d", "L-1216C47A", "L-34B43A08"},
        {"h", "L-1216C47A", "L-34B43A08"},
        {"i", "L-1216C47A", "L-34B43A08"},
        {"m", "L-1216C47A", "L-34B43A08"},
        {"r", "L-1216C47A", "L-34B43A08"},
        {"t", "L-1216C47A", "L-34B43A08"},
        {"z", "L-1216C47A", "L-34B43A08"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++)
        if (str_starts(type, rows[i].prefix)) return market == MARKET_SPOT ? rows[i].spot : rows[i].on_demand;
    return NULL;
}

static const struct aws_quota *known(const struct aws *a, const char *region, const char *code) {
    for (size_t i = 0; i < a->cache->quotas.len; i++) {
        const struct aws_quota *q = &a->cache->quotas.items[i];
        if (strcmp(q->region, region) == 0 && strcmp(q->code, code) == 0) return q;
    }
    return NULL;
}

bool aws_quota_known(const struct aws *a, const char *region, const char *code) {
    return code == NULL || known(a, region, code) != NULL;
}

void aws_quota_read(struct aws *a, const char *region, const char *code, struct aws_quota *ret) {
    GP_AUTO_FREE char *body = xasprintf("{\"ServiceCode\":\"ec2\",\"QuotaCode\":\"%s\"}", code);
    struct aws_call call = {
        .service = "servicequotas", .region = region, .action = "GetServiceQuota", .body = body, .flags = AWS_OPTIONAL};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    *ret = (struct aws_quota){.vcpus = -1};
    str_put(ret->region, sizeof ret->region, region);
    str_put(ret->code, sizeof ret->code, code);
    if (aws_call(a, &call, &reply, NULL) != 0) return;
    ret->vcpus = json_num(reply.json, "Quota.Value", -1);
    str_put(ret->name, sizeof ret->name, json_str(reply.json, "Quota.QuotaName", "vCPUs"));
    str_one_line(ret->name);
}

void aws_quota_keep(struct aws *a, const struct aws_quota *q) {
    if (q->code[0] != '\0' && known(a, q->region, q->code) == NULL) vec_push(&a->cache->quotas, *q);
}

int aws_quota_check(struct aws *a, const struct offer *offer, int count, struct gp_error *err) {
    const char *code = aws_quota_code(offer->instance_type, offer->market);
    int need = offer->vcpus * count;
    if (code == NULL || need <= 0) return 0;
    if (!aws_quota_known(a, offer->region, code)) {
        struct aws_quota q;
        aws_quota_read(a, offer->region, code, &q);
        aws_quota_keep(a, &q);
    }
    const struct aws_quota *q = known(a, offer->region, code);
    if (q->vcpus < 0 || q->vcpus >= need) return 0; /* sufficient, or not readable: then EC2 itself decides */
    int r = gp_fail(err, GP_EQUOTA,
                    "aws %s: %d x %s need %d vCPUs, but the account's quota %s (%s) is %.0f: ask "
                    "for more in Service Quotas, or offer another region",
                    offer->region, count, offer->instance_type, need, code, q->name, q->vcpus);
    if (err != NULL) {
        err->domain = GP_D_CLOUD;
        err->scope = GP_SCOPE_REGION;
        str_put(err->detail, sizeof err->detail, code);
    }
    return r;
}
