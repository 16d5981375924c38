// SPDX-License-Identifier: Apache-2.0
/* The quotas of vCPUs, of pay-as-you-go and of spot instances, read with the offers and checked before a launch. A
 * quota that the reply lacks is left to the launch itself. One thread. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"

#define FRESH_MS (60 * 1000) /* from the offers to the launch */
#define QUOTA_MAX 1000000000

/* Attributes of DescribeAccountAttributes, by market. */
static const struct {
    const char *most, *used;
} names[] = {
    [MARKET_ON_DEMAND] = {"max-postpaid-instance-vcpu-count", "used-postpaid-instance-vcpu-count"},
    [MARKET_SPOT] = {"max-spot-instance-vcpu-count", "used-spot-instance-vcpu-count"},
};

static void take(const json_t *item, const char *name, int64_t *ret) {
    int64_t v = 0;
    if (strcmp(json_str(item, "AttributeName", ""), name) == 0 &&
        str_to_i64(json_str(item, "AttributeValues.ValueItem.0.Value", ""), 0, QUOTA_MAX, &v))
        *ret = v;
}

static int on_attribute(void *ctx, const json_t *item, struct gp_error *err) {
    struct ali_quota *q = ctx;
    (void)err;
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        take(item, names[i].most, &q->vcpus[i].most);
        take(item, names[i].used, &q->vcpus[i].used);
    }
    q->until_ms = clock_deadline(FRESH_MS);
    return 0;
}

static struct ali_quota *kept(const struct ali *a, const char *region) {
    for (size_t i = 0; i < a->cache->quotas.len; i++)
        if (strcmp(a->cache->quotas.items[i]->region, region) == 0) return a->cache->quotas.items[i];
    return NULL;
}

bool ali_quota_list(struct ali *a, const char *region, struct ali_list *ret) {
    struct ali_quota *q = kept(a, region);
    if (q != NULL && clock_left_ms(q->until_ms) > 0) return false;
    if (q == NULL) {
        q = xcalloc(1, sizeof *q);
        q->region = xstrdup(region);
        vec_push(&a->cache->quotas, q);
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) q->vcpus[i].most = q->vcpus[i].used = -1;
    q->until_ms = 0; /* until the reply is there */
    *ret = (struct ali_list){.region = q->region,
                             .action = "DescribeAccountAttributes",
                             .items = "AccountAttributeItems.AccountAttributeItem",
                             .each = on_attribute,
                             .ctx = q};
    ali_begin(&ret->query, region);
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        ali_paramf(&ret->query, names[i].most, "AttributeName.%zu", 2 * i + 1);
        ali_paramf(&ret->query, names[i].used, "AttributeName.%zu", 2 * i + 2);
    }
    return true;
}

static const struct ali_vcpus *of_market(const struct ali *a, const char *region, enum spec_market market) {
    const struct ali_quota *q = kept(a, region);
    const struct ali_vcpus *v = q != NULL && (size_t)market < GP_ARRAY_LEN(names) ? &q->vcpus[market] : NULL;
    return v != NULL && v->most >= 0 && v->used >= 0 ? v : NULL;
}

char *ali_quota_text(const struct ali *a, const char *region, enum spec_market market) {
    const struct ali_vcpus *v = of_market(a, region, market);
    return v != NULL ? xasprintf("%lld of %lld vCPUs used", (long long)v->used, (long long)v->most) : xstrdup("");
}

int ali_quota_check(struct ali *a, const struct offer *o, int count, struct gp_error *err) {
    struct ali_list l = {0};
    struct gp_error why = {0};
    int64_t wanted = (int64_t)o->vcpus * count;
    int r = ali_quota_list(a, o->region, &l) ? ali_list_one(a, &l, &why) : 0;
    if (r == -GP_ECANCELLED) {
        if (err != NULL) *err = why;
        return r;
    }
    if (r != 0) /* the launch decides */
        event_emit(a->sink, -1, NODE_PLANNED, EVENT_WARN, "quota", "the quota of %s could not be read: %s", o->region,
                   why.msg);
    const struct ali_vcpus *v = of_market(a, o->region, o->market);
    if (v == NULL || v->most - v->used >= wanted) return 0;
    r = gp_fail(err, GP_EQUOTA,
                "alibaba %s: the quota %s is %lld vCPUs, %lld of them in use, and %d x %s need %lld: raise it in the "
                "Quota Center, or offer another region",
                o->region, names[o->market].most, (long long)v->most, (long long)v->used, count, o->instance_type,
                (long long)wanted);
    if (err != NULL) {
        err->domain = GP_D_CLOUD;
        err->scope = GP_SCOPE_REGION;
        str_put(err->detail, sizeof err->detail, "QuotaExceed.ElasticQuota");
    }
    return r;
}
