// SPDX-License-Identifier: Apache-2.0
/* Lists resources by tag: instances, volumes, security groups, of one region or all. Does not read the
 * journal. One thread at a time. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/catalog/catalog.h"
#include "providers/common/places.h"

void aws_tags_decode(const struct xml_node *item, struct tags *ret) {
    GP_AUTO_LABELS struct label_list labels = {0};
    const struct xml_node *set = xml_find(item, "tagSet");
    for (size_t k = 0; set != NULL && k < set->children.len; k++)
        labels_add(&labels, xml_str(set->children.items[k], "key", ""), xml_str(set->children.items[k], "value", ""));
    labels_read(&labels_ec2, &labels, ret);
}

void aws_tags_encode(struct str *body, int n, const char *type, const char *name, const struct tags *tags) {
    GP_AUTO_LABELS struct label_list labels = {0};
    labels_add(&labels, "Name", name);
    labels_write(&labels_ec2, tags, &labels);
    aws_paramf(body, type, "TagSpecification.%d.ResourceType", n);
    for (size_t i = 0; i < labels.list.len; i++) {
        aws_paramf(body, labels.list.items[i].key, "TagSpecification.%d.Tag.%zu.Key", n, i + 1);
        aws_paramf(body, labels.list.items[i].value, "TagSpecification.%d.Tag.%zu.Value", n, i + 1);
    }
}

/* The tags of an item, decoded, and its region. launch_index -1: not a node. */
static void set_common(struct resource *r, const struct xml_node *item, const char *region, int launch_index) {
    struct tags tags;
    aws_tags_decode(item, &tags);
    resource_set(&r->region, region);
    tags_to_resource(&tags, launch_index, r);
    tags_clear(&tags);
}

/* A malformed id does not come from EC2: the whole reply is dropped. */
static int take_id(struct resource *r, const struct xml_node *item, const char *path, const char *prefix,
                   struct gp_error *err) {
    const char *id = xml_str(item, path, "");
    resource_set(&r->id, form_ec2_id(id, prefix) ? id : "");
    if (r->id[0] != '\0') return 0;
    return gp_fail(err, GP_EPROTO, "ec2 in %s: a reply has an id that is not an EC2 id (%s...)", r->region, prefix);
}

static const char *word_or(const char *text) { return form_word(text) ? text : ""; }

static const char *address_or(const char *text) { return form_address(text) ? text : ""; }

static enum resource_state instance_state(const char *name) {
    if (strcmp(name, "pending") == 0) return RES_PENDING;
    if (strcmp(name, "running") == 0) return RES_RUNNING;
    if (strcmp(name, "stopped") == 0) return RES_STOPPED;
    if (strcmp(name, "terminated") == 0) return RES_GONE;
    return RES_STOPPING; /* shutting-down, stopping and unknown states: not gone */
}

/* An instance of an IPv6-only subnet has no other address. */
static const char *ipv6_of(const struct xml_node *item) {
    const char *own = address_or(xml_str(item, "ipv6Address", ""));
    if (own[0] != '\0') return own;
    const struct xml_node *set = xml_find(item, "networkInterfaceSet");
    for (size_t i = 0; set != NULL && i < set->children.len; i++) {
        own = address_or(xml_str(set->children.items[i], "ipv6AddressesSet/item/ipv6Address", ""));
        if (own[0] != '\0') return own;
    }
    return "";
}

static void set_addresses(struct resource *r, const struct xml_node *item) {
    const char *v4 = address_or(xml_str(item, "privateIpAddress", ""));
    const char *v6 = ipv6_of(item);
    resource_set(&r->private_ip, v4[0] != '\0' ? v4 : v6);
    resource_set(&r->public_ip, v4[0] != '\0' ? address_or(xml_str(item, "ipAddress", "")) : v6);
}

/* EFA interfaces of an instance; -1: the reply has no interfaces. */
static int efa_of(const struct xml_node *item) {
    const struct xml_node *set = xml_find(item, "networkInterfaceSet");
    if (set == NULL || set->children.len == 0) return -1;
    int n = 0;
    for (size_t i = 0; i < set->children.len; i++) {
        const char *type = xml_str(set->children.items[i], "interfaceType", "");
        n += strcmp(type, "efa") == 0 || strcmp(type, "efa-only") == 0;
    }
    return n;
}

int aws_instance_read(const struct xml_node *item, const char *region, struct resource *ret, struct gp_error *err) {
    int64_t index = 0;
    resource_init(ret, RES_INSTANCE, "aws");
    if (!str_to_i64(xml_str(item, "amiLaunchIndex", "0"), 0, TAGS_SLOTS_MAX - 1, &index)) index = TAGS_SLOTS_MAX;
    set_common(ret, item, region, (int)index);
    int rc = take_id(ret, item, "instanceId", "i-", err);
    const char *type = word_or(xml_str(item, "instanceType", ""));
    const struct catalog_row *known = catalog_aws_type(type);
    resource_set(&ret->zone, word_or(xml_str(item, "placement/availabilityZone", "")));
    resource_set(&ret->instance_type, type);
    set_addresses(ret, item);
    resource_set(&ret->user, "gpuprov");
    const char *image = xml_str(item, "imageId", "");
    resource_set(&ret->image, form_ec2_id(image, "ami-") ? image : "");
    ret->state = instance_state(xml_str(item, "instanceState/name", ""));
    const char *reason = xml_str(item, "stateReason/message", xml_str(item, "reason", ""));
    resource_set(&ret->state_reason, reason);
    str_one_line(ret->state_reason);
    ret->billed = ret->state != RES_GONE;
    ret->rdma = efa_of(item);
    ret->gpus = known != NULL ? known->gpus : -1;
    bool spot = strcmp(xml_str(item, "instanceLifecycle", ""), "spot") == 0;
    resource_set(&ret->market, spec_market_name(spot ? MARKET_SPOT : MARKET_ON_DEMAND));
    if (ret->price_usd_per_h < 0 && !spot) ret->price_usd_per_h = catalog_aws_price(type, region);
    ret->created_s = 0;
    if (!time_parse_utc(xml_str(item, "launchTime", ""), &ret->created_s)) ret->created_s = 0;
    return rc;
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
    const struct xml_node *set = xml_find(item, "instancesSet");
    int rc = 0;
    if (set == NULL)
        return gp_fail(err, GP_EPROTO, "ec2 DescribeInstances in %s: a reservation without instances", l->region);
    for (size_t i = 0; rc == 0 && i < set->children.len; i++) {
        struct resource r;
        rc = aws_instance_read(set->children.items[i], l->region, &r, err);
        if (rc == 0) vec_push(&l->out->list, r);
        else resource_clear(&r);
    }
    return rc;
}

static int keep(struct listing *l, struct resource *r, int rc) {
    if (rc == 0) vec_push(&l->out->list, *r);
    else resource_clear(r);
    return rc;
}

static int on_volume(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct listing *l = ctx;
    struct resource r;
    const char *status = word_or(xml_str(item, "status", ""));
    resource_init(&r, RES_VOLUME, "aws");
    set_common(&r, item, l->region, -1);
    resource_set(&r.zone, word_or(xml_str(item, "availabilityZone", "")));
    resource_set(&r.state_reason, status);
    r.state = strcmp(status, "deleted") == 0    ? RES_GONE
              : strcmp(status, "deleting") == 0 ? RES_STOPPING
              : strcmp(status, "creating") == 0 ? RES_PENDING
              : strcmp(status, "in-use") == 0   ? RES_RUNNING
                                                : RES_STOPPED; /* left behind by its instance */
    r.billed = r.state != RES_GONE && r.state != RES_STOPPING;
    r.price_usd_per_h = -1;
    return keep(l, &r, take_id(&r, item, "volumeId", "vol-", err));
}

static int on_group(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct listing *l = ctx;
    struct resource r;
    resource_init(&r, RES_GROUP, "aws");
    set_common(&r, item, l->region, -1);
    r.state = RES_RUNNING;
    r.price_usd_per_h = 0;
    int rc = take_id(&r, item, "groupId", "sg-", err);
    GP_AUTO_STR struct str ingress = {0};
    aws_group_ingress(item, r.id, &ingress);
    resource_set(&r.ingress, ingress.s);
    return keep(l, &r, rc);
}

static void add_live_filter(struct str *body, int n) {
    static const char *const states[] = {"pending", "running", "shutting-down", "stopping", "stopped"};
    aws_paramf(body, "instance-state-name", "Filter.%d.Name", n);
    for (size_t i = 0; i < GP_ARRAY_LEN(states); i++) aws_paramf(body, states[i], "Filter.%d.Value.%zu", n, i + 1);
}

int aws_list_instances(struct aws *a, const char *region, const struct aws_wanted *w, struct resource_list *ret,
                       struct gp_error *err) {
    struct listing l = {region, ret};
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeInstances");
    int n = aws_tag_filters(&body, 1, w);
    if (w->live) add_live_filter(&body, n);
    return aws_describe(a, region, "DescribeInstances", &body, 1000, "reservationSet", on_reservation, &l, err);
}

int aws_list_volumes(struct aws *a, const char *region, const struct aws_wanted *w, struct resource_list *ret,
                     struct gp_error *err) {
    struct listing l = {region, ret};
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeVolumes");
    aws_tag_filters(&body, 1, w);
    return aws_describe(a, region, "DescribeVolumes", &body, 500, "volumeSet", on_volume, &l, err);
}

#define IDS_MAX 200 /* values of one filter */

/* Machines in the journal whose tags were changed: a filter by id finds them and ignores unknown ids. */
static int list_by_id(struct aws *a, const char *region, const struct resource_list *known, struct resource_list *ret,
                      struct gp_error *err) {
    struct listing l = {region, ret};
    int r = 0;
    for (size_t i = 0; r == 0 && known != NULL && i < known->list.len;) {
        GP_AUTO_STR struct str body = {0};
        size_t n = 0;
        aws_begin(&body, "DescribeInstances");
        aws_param(&body, "Filter.1.Name", "instance-id");
        for (; i < known->list.len && n < IDS_MAX; i++) {
            const struct resource *k = &known->list.items[i];
            if (k->kind != RES_INSTANCE || !str_eq(k->region, region) || resource_list_has(ret, k)) continue;
            if (form_ec2_id(k->id, "i-")) aws_paramf(&body, k->id, "Filter.1.Value.%zu", ++n);
        }
        if (n > 0)
            r = aws_describe(a, region, "DescribeInstances", &body, 1000, "reservationSet", on_reservation, &l, err);
    }
    return r;
}

/* Machines of the uid whose stack tag was changed. */
static int list_by_uid(struct aws *a, const char *region, const struct list_req *req, struct resource_list *ret,
                       struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    struct aws_wanted w = {.owner = req->owner, .uid = req->uid, .live = true};
    int r = aws_list_instances(a, region, &w, &all, err);
    for (size_t i = 0; r == 0 && i < all.list.len; i++) {
        struct resource copy = {0};
        if (resource_list_has(ret, &all.list.items[i])) continue;
        resource_copy(&copy, &all.list.items[i]);
        vec_push(&ret->list, copy);
    }
    return r;
}

/* One kind of resource in one region: a task of its own. */
enum part_kind { PART_INSTANCES, PART_VOLUMES, PART_PLACEMENTS, PART_GROUPS, PARTS };
struct part {
    const struct list_req *req;
    const char *region;
    enum part_kind kind;
    struct resource_list found;
};

static int list_instances(struct aws *a, const struct part *p, const struct aws_wanted *w, struct resource_list *ret,
                          struct gp_error *err) {
    int r = aws_list_instances(a, p->region, w, ret, err);
    if (r == 0) r = list_by_id(a, p->region, p->req->known, ret, err);
    if (r == 0 && p->req->uid != NULL) r = list_by_uid(a, p->region, p->req, ret, err);
    return r;
}

static int list_part(struct aws *a, void *ctx, struct gp_error *err) {
    struct part *p = ctx;
    struct listing l = {p->region, &p->found};
    struct aws_wanted w = {.owner = p->req->owner, .stack = p->req->stack};
    resource_list_clear(&p->found);
    if (!aws_region_valid(p->region)) /* it may come from a journal or a tag */
        return gp_fail(err, GP_EUSAGE, "aws: '%s' is not a region", p->region);
    if (p->req->images) return aws_list_images(a, p->region, p->req->owner, &p->found, err);
    if (p->kind == PART_INSTANCES) return list_instances(a, p, &w, &p->found, err);
    if (p->kind == PART_VOLUMES) return aws_list_volumes(a, p->region, &w, &p->found, err);
    if (p->kind == PART_PLACEMENTS) return aws_list_placements(a, p->region, &w, &p->found, err);
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeSecurityGroups");
    aws_tag_filters(&body, 1, &w);
    return aws_describe(a, p->region, "DescribeSecurityGroups", &body, 500, "securityGroupInfo", on_group, &l, err);
}

static int on_region(void *ctx, const struct xml_node *item, struct gp_error *err) {
    const char *name = xml_str(item, "regionName", "");
    if (!aws_region_valid(name))
        return gp_fail(err, GP_EPROTO, "ec2 DescribeRegions: a name in the reply is not a region");
    return places_add(ctx, name, "ec2 DescribeRegions", err);
}

/* The regions to list: the requested ones and, with `everywhere`, all that the account has enabled. */
static int regions_of(struct aws *a, const struct list_req *req, struct strv *ret, struct gp_error *err) {
    if (req->regions != NULL) strv_copy(ret, req->regions);
    if (req->regions != NULL && !req->everywhere) return 0;
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_STRV struct strv all = {0};
    aws_begin(&body, "DescribeRegions");
    int r = aws_describe(a, aws_home(a), "DescribeRegions", &body, 0, "regionInfo", on_region, &all, err);
    if (r == 0 && all.n == 0)
        r = gp_fail(err, GP_EPROTO, "ec2 DescribeRegions in %s: the reply names no region", aws_home(a));
    if (r == 0) strv_merge(ret, &all);
    if (r != 0 && ret->n == 0) strv_add(ret, aws_home(a));
    return r;
}

/* Collects the lists, the coverage and the first error. A region that fails does not hide another one. */
static int collect(struct part *parts, const struct aws_task *tasks, const struct strv *regions, size_t per,
                   const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    int first = 0;
    for (size_t i = 0; i < regions->n; i++) {
        const struct gp_error *e = &tasks[i * per].err;
        for (size_t k = i * per; k < (i + 1) * per; k++) {
            for (size_t n = 0; n < parts[k].found.list.len; n++) vec_push(&ret->list, parts[k].found.list.items[n]);
            vec_free(&parts[k].found.list);
            if (e->code == GP_OK) e = &tasks[k].err;
        }
        if (req->looked != NULL) coverage_put(req->looked, "aws", regions->v[i], req->owner, true, e->code ? e : NULL);
        if (e->code == GP_OK || (first != 0 && e->code != GP_ECANCELLED)) continue;
        first = -(int)e->code;
        if (err != NULL) *err = *e;
    }
    return first;
}

static int list_regions(struct aws *a, const struct list_req *req, const struct strv *regions,
                        struct resource_list *ret, struct gp_error *err) {
    size_t per = req->nodes_only || req->images ? 1 : PARTS, n = regions->n * per;
    struct part *parts = xcalloc(n + 1, sizeof *parts);
    struct aws_task *tasks = xcalloc(n + 1, sizeof *tasks);
    for (size_t i = 0; i < n; i++) {
        parts[i] = (struct part){.req = req, .region = regions->v[i / per], .kind = (enum part_kind)(i % per)};
        tasks[i] = (struct aws_task){.run = list_part, .ctx = &parts[i]};
    }
    aws_run_tasks(a, tasks, n);
    int r = collect(parts, tasks, regions, per, req, ret, err);
    free(parts);
    free(tasks);
    return r;
}

int aws_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    struct aws *a = aws_of(p);
    GP_AUTO_STRV struct strv regions = {0};
    struct gp_error unknown = {0};
    int r = aws_creds_ensure(a, false, err);
    if (r != 0) return r;
    int all = regions_of(a, req, &regions, &unknown);
    if (all != 0 && req->looked != NULL) /* the enabled regions are unknown */
        coverage_put(req->looked, "aws", "", req->owner, true, &unknown);
    struct gp_error first = {0};
    r = list_regions(a, req, &regions, ret, &first);
    if (r != -GP_ECANCELLED && all != 0) {
        r = all;
        first = unknown;
    }
    if (r != 0 && err != NULL) *err = first;
    return r != 0 ? gp_wrap(err, "listing the resources of '%s'", req->owner) : 0;
}
