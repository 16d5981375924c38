// SPDX-License-Identifier: Apache-2.0
/* Destroys instances, then what they left behind (disks, network interfaces), then groups, VSwitches, VPCs and at last
 * the claim. Missing resources are success; a resource still in use is kept, and list shows it. One bad id makes
 * DeleteInstances refuse all, so a refused batch is repeated one by one. One thread. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "providers/common/ownership.h"

#define BATCH 100

static void first_error(struct gp_error *to, const struct gp_error *e) {
    if (to->code == GP_OK) *to = *e;
}

static int release(struct ali *a, const char *region, char *const *ids, size_t n, struct gp_error *err) {
    GP_AUTO_STR struct str query = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    struct gp_error e = {0};
    ali_begin(&query, region);
    ali_param(&query, "Force", "true");
    for (size_t i = 0; i < n; i++) ali_paramf(&query, ids[i], "InstanceId.%zu", i + 1);
    int r = ali_call(a, ALI_ECS, region, "DeleteInstances", &query, 0, &reply, &e);
    /* EEXISTS: it is being initialised, so the next call ends it. */
    if (r == 0 || ((r == -GP_ENOTFOUND || r == -GP_EEXISTS) && n == 1)) return 0;
    if (n > 1 && r != -GP_ECANCELLED && r != -GP_EENDPOINT && r != -GP_ETHROTTLED && r != -GP_EAUTH) {
        struct gp_error first = {0};
        for (size_t i = 0; i < n; i++) {
            struct gp_error one = {0};
            if (release(a, region, &ids[i], 1, &one) != 0) first_error(&first, &one);
        }
        if (first.code == GP_OK) return 0;
        e = first;
    }
    if (err != NULL) *err = e;
    return -(int)e.code;
}

static void destroy_instances(struct ali *a, const struct resource_list *what, struct gp_error *first) {
    GP_AUTO_STRV struct strv regions = {0};
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        if (r->kind == RES_INSTANCE && !strv_has(&regions, r->region)) strv_add(&regions, r->region);
    }
    for (size_t k = 0; k < regions.n; k++) {
        GP_AUTO_STRV struct strv ids = {0};
        for (size_t i = 0; i < what->list.len; i++) {
            const struct resource *r = &what->list.items[i];
            if (r->kind == RES_INSTANCE && r->state != RES_GONE && cloud_is_ours(&a->base, r) &&
                str_eq(r->region, regions.v[k]))
                strv_add(&ids, r->id);
        }
        for (size_t at = 0; at < ids.n; at += BATCH) {
            struct gp_error e = {0};
            if (release(a, regions.v[k], ids.v + at, GP_MIN(ids.n - at, BATCH), &e) != 0) first_error(first, &e);
        }
    }
}

/* --- one resource of another kind --- */

static const struct {
    enum resource_kind kind;
    enum ali_service service;
    const char *action, *param;
} calls[] = {
    {RES_VOLUME, ALI_ECS, "DeleteDisk", "DiskId"},
    {RES_NIC, ALI_ECS, "DeleteNetworkInterface", "NetworkInterfaceId"},
    {RES_GROUP, ALI_ECS, "DeleteSecurityGroup", "SecurityGroupId"},
    {RES_SUBNET, ALI_VPC, "DeleteVSwitch", "VSwitchId"},
    {RES_NETWORK, ALI_VPC, "DeleteVpc", "VpcId"},
};

static void delete_one(struct ali *a, size_t row, const struct resource *r, struct gp_error *first) {
    GP_AUTO_STR struct str query = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    struct gp_error e = {0};
    if (calls[row].kind != RES_VOLUME) ali_begin(&query, r->region);
    ali_param(&query, calls[row].param, r->id);
    int rc = ali_call(a, calls[row].service, r->region, calls[row].action, &query, 0, &reply, &e);
    /* EEXISTS: still in use, not yet */
    if (rc != 0 && rc != -GP_ENOTFOUND && rc != -GP_EEXISTS) first_error(first, &e);
}

static void delete_claim(struct ali *a, const struct resource *r, struct gp_error *first) {
    GP_AUTO_STR struct str query = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_JSON json_t *names = json_pack("[s]", r->id);
    GP_AUTO_FREE char *text = json_text(names, 0);
    struct gp_error e = {0};
    ali_begin(&query, r->region);
    ali_param(&query, "KeyPairNames", text);
    int rc = ali_call(a, ALI_ECS, r->region, "DeleteKeyPairs", &query, 0, &reply, &e);
    if (rc != 0 && rc != -GP_ENOTFOUND) first_error(first, &e);
}

/* Resources of the claim's stack that its region still shows: the claim outlives them. */
static int others(struct ali *a, const struct resource *claim, size_t *ret, struct gp_error *err) {
    static const enum resource_kind kinds[] = {RES_INSTANCE, RES_VOLUME, RES_NIC, RES_GROUP, RES_SUBNET, RES_NETWORK};
    struct ali_list lists[GP_ARRAY_LEN(kinds)] = {0};
    GP_AUTO_RESOURCES struct resource_list seen = {0};
    struct ali_wanted w = {.owner = claim->owner, .uid = claim->uid};
    for (size_t i = 0; i < GP_ARRAY_LEN(kinds); i++) ali_list_of(&lists[i], kinds[i], claim->region, &w, &seen);
    int r = ali_lists(a, lists, GP_ARRAY_LEN(kinds), err);
    for (size_t i = 0; i < GP_ARRAY_LEN(kinds); i++) {
        free(lists[i].ctx);
        ali_list_clear(&lists[i]);
    }
    *ret = seen.list.len;
    return r;
}

int ali_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err) {
    struct ali *a = ali_of(p);
    struct gp_error first = {0};
    bool elsewhere = false; /* a listed resource of another region, which this claim's region cannot show */
    destroy_instances(a, what, &first);
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        if (cloud_is_ours(&a->base, r)) continue;
        struct gp_error e = {0};
        gp_fail(&e, GP_EUSAGE, "alibaba: %s belongs to '%s', not to '%s': left alone", r->id, r->owner, a->base.owner);
        first_error(&first, &e);
    }
    for (size_t row = 0; row < GP_ARRAY_LEN(calls); row++)
        for (size_t i = 0; i < what->list.len; i++) {
            const struct resource *r = &what->list.items[i];
            bool attached = (r->kind == RES_VOLUME || r->kind == RES_NIC) && r->state != RES_STOPPED;
            if (r->kind != calls[row].kind || r->state == RES_GONE || attached || !cloud_is_ours(&a->base, r)) continue;
            delete_one(a, row, r, &first);
        }
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        size_t n = 0;
        struct gp_error e = {0};
        if (r->kind != RES_KEY_PAIR || !cloud_is_ours(&a->base, r)) continue;
        for (size_t k = 0; k < what->list.len; k++) {
            const struct resource *o = &what->list.items[k];
            elsewhere = elsewhere || (o->state != RES_GONE && str_eq(o->uid, r->uid) && !str_eq(o->region, r->region));
        }
        if (elsewhere || first.code != GP_OK) continue;
        if (others(a, r, &n, &e) != 0) first_error(&first, &e);
        else if (n == 0) delete_claim(a, r, &first);
    }
    strv_clear(&a->cache->groups_ready);
    if (first.code == GP_OK) return 0;
    if (err != NULL) *err = first;
    return -(int)first.code;
}

int ali_tag_late(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
                 struct gp_error *err) {
    struct ali *a = ali_of(p);
    GP_AUTO_STRV struct strv regions = {0};
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        if (r->kind == RES_INSTANCE && !strv_has(&regions, r->region)) strv_add(&regions, r->region);
    }
    for (size_t k = 0; k < regions.n; k++) {
        for (size_t i = 0; i < what->list.len;) {
            GP_AUTO_STR struct str query = {0};
            GP_AUTO_REST struct rest_reply reply = {0};
            size_t ids = 0;
            ali_begin(&query, regions.v[k]);
            ali_param(&query, "ResourceType", "instance");
            for (; i < what->list.len && ids < 50; i++) { /* of one call */
                const struct resource *r = &what->list.items[i];
                if (r->kind == RES_INSTANCE && str_eq(r->region, regions.v[k]) && cloud_is_ours(&a->base, r))
                    ali_paramf(&query, r->id, "ResourceId.%zu", ++ids);
            }
            if (ids == 0) break;
            for (size_t t = 0; t < n; t++) {
                GP_AUTO_FREE char *full = xasprintf(ALI_TAG "%s", tags[t].key);
                ali_paramf(&query, full, "Tag.%zu.Key", t + 1);
                ali_paramf(&query, tags[t].value, "Tag.%zu.Value", t + 1);
            }
            int r = ali_call(a, ALI_ECS, regions.v[k], "TagResources", &query, 0, &reply, err);
            if (r != 0) return r;
        }
    }
    return 0;
}
