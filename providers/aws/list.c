// SPDX-License-Identifier: Apache-2.0
/* What exists, by tag: instances, volumes, security groups, of one region or all. The cloud is the
 * truth; nothing here reads the journal. One thread at a time. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "providers/catalog/catalog.h"

void aws_tags_read(const struct xml_node *item, struct aws_tags *ret) {
    const struct {
        const char *key;
        const char **to;
    } map[] = {
        {"owner", &ret->owner},     {"stack", &ret->stack},     {"uid", &ret->uid},
        {"spec", &ret->spec},       {"expires", &ret->expires}, {"created", &ret->created},
        {"slots", &ret->slots},     {"attempt", &ret->attempt}, {"price", &ret->price},
        {"hostkey", &ret->hostkey}, {"claim", &ret->claim},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(map); i++) *map[i].to = "";
    const struct xml_node *set = xml_find(item, "tagSet");
    for (size_t k = 0; set != NULL && k < set->children.len; k++) {
        const char *key = xml_str(set->children.items[k], "key", "");
        if (!str_starts(key, AWS_TAG)) continue;
        for (size_t i = 0; i < GP_ARRAY_LEN(map); i++)
            if (strcmp(key + strlen(AWS_TAG), map[i].key) == 0)
                *map[i].to = xml_str(set->children.items[k], "value", "");
    }
}

static void set_common(struct resource *r, const struct xml_node *item, const char *region) {
    struct aws_tags tags;
    aws_tags_read(item, &tags);
    resource_set(&r->region, region);
    resource_set(&r->owner, tags.owner);
    resource_set(&r->stack, tags.stack);
    resource_set(&r->uid, tags.uid);
    resource_set(&r->spec_hash, tags.spec);
    resource_set(&r->host_keys, tags.hostkey);
    if (!time_parse_utc(tags.expires, &r->expires_s)) r->expires_s = 0;
    int64_t attempt = 0;
    r->attempt = str_to_i64(tags.attempt, 0, 1000000, &attempt) ? (int)attempt : 0;
    r->slot = -1;
}

/* "FIRST+COUNT" and the launch index inside the call. */
static int slot_of(const char *slots, const char *index) {
    int64_t first = 0, i = 0;
    GP_AUTO_FREE char *head = xstrndup(slots, strcspn(slots, "+"));
    if (!str_to_i64(head, 0, 100000, &first)) return -1;
    if (!str_to_i64(index, 0, 100000, &i)) return -1;
    return (int)(first + i);
}

static enum resource_state instance_state(const char *name) {
    if (strcmp(name, "pending") == 0) return RES_PENDING;
    if (strcmp(name, "running") == 0) return RES_RUNNING;
    if (strcmp(name, "stopped") == 0) return RES_STOPPED;
    if (strcmp(name, "terminated") == 0) return RES_GONE;
    return RES_STOPPING; /* shutting-down, stopping, and whatever comes next: not gone */
}

void aws_instance_read(const struct xml_node *item, const char *region, struct resource *ret) {
    struct aws_tags tags;
    resource_init(ret, RES_INSTANCE, "aws");
    set_common(ret, item, region);
    aws_tags_read(item, &tags);
    const char *type = xml_str(item, "instanceType", "");
    const struct catalog_row *known = catalog_aws_type(type);
    resource_set(&ret->id, xml_str(item, "instanceId", ""));
    resource_set(&ret->zone, xml_str(item, "placement/availabilityZone", ""));
    resource_set(&ret->instance_type, type);
    resource_set(&ret->private_ip, xml_str(item, "privateIpAddress", ""));
    resource_set(&ret->public_ip, xml_str(item, "ipAddress", ""));
    resource_set(&ret->user, "gpuprov");
    ret->state = instance_state(xml_str(item, "instanceState/name", ""));
    const char *reason = xml_str(item, "stateReason/message", xml_str(item, "reason", ""));
    resource_set(&ret->state_reason, reason);
    ret->billed = ret->state != RES_GONE;
    ret->slot = slot_of(tags.slots, xml_str(item, "amiLaunchIndex", ""));
    ret->gpus = known != NULL ? known->gpus : -1;
    bool spot = strcmp(xml_str(item, "instanceLifecycle", ""), "spot") == 0;
    if (!str_to_double(tags.price, &ret->price_usd_per_h))
        ret->price_usd_per_h = spot ? -1 : catalog_aws_price(type, region);
    if (!time_parse_utc(xml_str(item, "launchTime", ""), &ret->created_s)) ret->created_s = 0;
}

int aws_tag_filters(struct str *body, int n, const struct aws_wanted *w) {
    const struct {
        const char *key, *value;
    } all[] = {{AWS_TAG "owner", w->owner},
               {AWS_TAG "stack", w->stack},
               {AWS_TAG "uid", w->uid},
               {AWS_TAG "slots", w->slots},
               {AWS_TAG "attempt", w->attempt}};
    for (size_t i = 0; i < GP_ARRAY_LEN(all); i++) {
        if (all[i].value == NULL) continue;
        GP_AUTO_FREE char *name = xasprintf("tag:%s", all[i].key);
        aws_filter(body, n++, name, all[i].value);
    }
    return n;
}

struct listing {
    const char *region;
    struct resource_list *out;
};

static int on_reservation(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct listing *l = ctx;
    (void)err;
    const struct xml_node *set = xml_find(item, "instancesSet");
    for (size_t i = 0; set != NULL && i < set->children.len; i++) {
        struct resource r;
        aws_instance_read(set->children.items[i], l->region, &r);
        vec_push(&l->out->list, r);
    }
    return 0;
}

static int on_volume(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct listing *l = ctx;
    struct resource r;
    (void)err;
    const char *status = xml_str(item, "status", "");
    resource_init(&r, RES_VOLUME, "aws");
    set_common(&r, item, l->region);
    resource_set(&r.id, xml_str(item, "volumeId", ""));
    resource_set(&r.zone, xml_str(item, "availabilityZone", ""));
    resource_set(&r.state_reason, status);
    r.state = strcmp(status, "deleted") == 0    ? RES_GONE
              : strcmp(status, "deleting") == 0 ? RES_STOPPING
              : strcmp(status, "creating") == 0 ? RES_PENDING
              : strcmp(status, "in-use") == 0   ? RES_RUNNING
                                                : RES_STOPPED; /* left behind by its instance */
    r.billed = r.state != RES_GONE && r.state != RES_STOPPING;
    r.price_usd_per_h = -1;
    r.gpus = -1;
    vec_push(&l->out->list, r);
    return 0;
}

static int on_group(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct listing *l = ctx;
    struct resource r;
    struct aws_tags tags;
    (void)err;
    resource_init(&r, RES_GROUP, "aws");
    set_common(&r, item, l->region);
    aws_tags_read(item, &tags);
    resource_set(&r.id, xml_str(item, "groupId", ""));
    r.state = RES_RUNNING;
    r.claim = strcmp(tags.claim, "1") == 0;
    if (!time_parse_utc(tags.created, &r.created_s)) r.created_s = 0;
    r.price_usd_per_h = 0;
    r.gpus = -1;
    vec_push(&l->out->list, r);
    return 0;
}

static void add_live_filter(struct str *body, int n) {
    static const char *const states[] = {"pending", "running", "shutting-down", "stopping", "stopped"};
    aws_paramf(body, "instance-state-name", "Filter.%d.Name", n);
    for (size_t i = 0; i < GP_ARRAY_LEN(states); i++)
        aws_paramf(body, states[i], "Filter.%d.Value.%zu", n, i + 1);
}

int aws_list_instances(struct aws *a, const char *region, const struct aws_wanted *w,
                       struct resource_list *ret, struct gp_error *err) {
    struct listing l = {region, ret};
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeInstances");
    int n = aws_tag_filters(&body, 1, w);
    if (w->live) add_live_filter(&body, n);
    return aws_describe(a, region, "DescribeInstances", &body, 1000, "reservationSet", on_reservation,
                        &l, err);
}

int aws_list_volumes(struct aws *a, const char *region, const struct aws_wanted *w,
                     struct resource_list *ret, struct gp_error *err) {
    struct listing l = {region, ret};
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeVolumes");
    aws_tag_filters(&body, 1, w);
    return aws_describe(a, region, "DescribeVolumes", &body, 500, "volumeSet", on_volume, &l, err);
}

static int list_region(struct aws *a, const char *region, const struct aws_wanted *w, bool nodes_only,
                       struct resource_list *ret, struct gp_error *err) {
    struct listing l = {region, ret};
    int r = aws_list_instances(a, region, w, ret, err);
    if (r != 0 || nodes_only) return r;
    r = aws_list_volumes(a, region, w, ret, err);
    if (r != 0) return r;
    GP_AUTO_STR struct str groups = {0};
    aws_begin(&groups, "DescribeSecurityGroups");
    aws_tag_filters(&groups, 1, w);
    return aws_describe(a, region, "DescribeSecurityGroups", &groups, 500, "securityGroupInfo", on_group,
                        &l, err);
}

static int on_region(void *ctx, const struct xml_node *item, struct gp_error *err) {
    (void)err;
    strv_add(ctx, xml_str(item, "regionName", ""));
    return 0;
}

int aws_list(struct provider *p, const struct list_req *req, struct resource_list *ret,
             struct gp_error *err) {
    struct aws *a = aws_of(p);
    struct aws_wanted w = {.owner = req->owner, .stack = req->stack};
    GP_AUTO_STRV struct strv regions = {0};
    if (req->regions != NULL) {
        strv_copy(&regions, req->regions);
    } else {
        GP_AUTO_STR struct str body = {0};
        aws_begin(&body, "DescribeRegions"); /* those that the account has enabled */
        int r = aws_describe(a, aws_home(a), "DescribeRegions", &body, 0, "regionInfo", on_region,
                             &regions, err);
        if (r != 0) return r;
    }
    int first = 0;
    for (size_t i = 0; i < regions.n && first != -GP_ECANCELLED; i++) {
        struct gp_error e = {0};
        int r = 0;
        if (!aws_region_valid(regions.v[i])) /* it comes from a journal or a reply */
            r = gp_fail(&e, GP_EUSAGE, "aws: '%s' is no region", regions.v[i]);
        else
            r = list_region(a, regions.v[i], &w, req->nodes_only, ret, &e);
        if (r == 0 || (first != 0 && r != -GP_ECANCELLED)) continue;
        first = r; /* one region that does not answer hides no other one */
        if (err != NULL) *err = e;
    }
    return first != 0 ? gp_wrap(err, "listing what '%s' owns", req->owner) : 0;
}
