// SPDX-License-Identifier: Apache-2.0
/* Lists resources of every kind by tag, of one region or all: all lists of all regions run side by side. Does not read
 * the journal. One thread at a time. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/catalog/catalog.h"

#define IDS_MAX 100 /* of one DescribeInstances */

static const char *word_or(const char *text) { return form_word(text) ? text : ""; }
static const char *address_or(const char *text) { return form_address(text) ? text : ""; }

/* What the listed network interfaces show: ids of instances, one entry for each interface. */
struct interfaces {
    struct strv all, erdma;
};

/* One list that is under way. */
struct target {
    enum resource_kind kind;
    const char *region;
    struct resource_list *out;
    struct interfaces *seen; /* NULL: not wanted */
};

/* --- items of the kinds --- */

static void read_tags(struct resource *r, const json_t *item, const char *region, int index) {
    struct tags tags;
    ali_tags_decode(item, &tags);
    resource_set(&r->region, region);
    tags_to_resource(&tags, index, r);
    tags_clear(&tags);
}

/* The launch index: instances are named NAME-SLOT by one call with a running number, and the tag `slots` begins with
 * the first. A launch of one machine has index 0 whatever its name is. */
static int launch_index(const json_t *item) {
    struct tags tags;
    int64_t slot = 0;
    const char *name = json_str(item, "InstanceName", ""), *digits = strrchr(name, '-');
    ali_tags_decode(item, &tags);
    int first = tags.slot_first, count = tags.slot_count;
    tags_clear(&tags);
    if (count == 1) return 0;
    if (digits == NULL || strlen(digits + 1) != 4 || !str_to_i64(digits + 1, first, first + count - 1, &slot))
        return TAGS_SLOTS_MAX;
    return (int)slot - first;
}

static enum resource_state instance_state(const json_t *item) {
    const char *status = json_str(item, "Status", "");
    json_t *locks = json_at(item, "OperationLocks.LockReason"), *one = NULL;
    size_t i = 0;
    json_array_foreach(locks, i, one) if (strcmp(json_str(one, "LockReason", ""), "Recycling") ==
                                          0) return RES_STOPPING; /* a spot reclaim */
    if (strcmp(status, "Pending") == 0 || strcmp(status, "Starting") == 0) return RES_PENDING;
    if (strcmp(status, "Running") == 0) return RES_RUNNING;
    if (strcmp(status, "Stopped") == 0) return RES_STOPPED;
    return RES_STOPPING; /* Stopping and unknown states: not gone */
}

static void reason_of(const json_t *item, struct resource *r) {
    json_t *locks = json_at(item, "OperationLocks.LockReason"), *one = NULL;
    size_t i = 0;
    json_array_foreach(locks, i, one) {
        GP_AUTO_FREE char *text = xasprintf("locked: %s", json_str(one, "LockReason", ""));
        resource_set(&r->state_reason, text);
        str_one_line(r->state_reason);
    }
}

static int take_id(struct resource *r, const json_t *item, const char *path, const char *prefix, struct gp_error *err) {
    const char *id = json_str(item, path, "");
    if (!ali_id(id, prefix))
        return gp_fail(err, GP_EPROTO, "alibaba %s: a reply has an id that is not one of the cloud's (%s...)",
                       r->region, prefix);
    resource_set(&r->id, id);
    return 0;
}

static int read_instance(struct resource *r, const json_t *item, const char *region, struct gp_error *err) {
    const char *type = word_or(json_str(item, "InstanceType", ""));
    read_tags(r, item, region, launch_index(item));
    int rc = take_id(r, item, "InstanceId", "i-", err);
    resource_set(&r->zone, word_or(json_str(item, "ZoneId", "")));
    resource_set(&r->instance_type, type);
    resource_set(&r->private_ip, address_or(json_str(item, "VpcAttributes.PrivateIpAddress.IpAddress.0", "")));
    const char *public = address_or(json_str(item, "PublicIpAddress.IpAddress.0", ""));
    if (public[0] == '\0') public = address_or(json_str(item, "EipAddress.IpAddress", ""));
    resource_set(&r->public_ip, public);
    resource_set(&r->user, "gpuprov");
    r->state = instance_state(item);
    reason_of(item, r);
    r->billed = true;
    int64_t gpus = json_int(item, "GPUAmount", -1);
    r->gpus = gpus >= 0 && gpus <= 64 ? (int)gpus : catalog_alibaba_gpus(type);
    if (r->created_s == 0) r->created_s = ali_time(json_str(item, "CreationTime", ""));
    return rc;
}

static int read_disk(struct resource *r, const json_t *item, const char *region, struct gp_error *err) {
    const char *status = word_or(json_str(item, "Status", ""));
    read_tags(r, item, region, -1);
    resource_set(&r->zone, word_or(json_str(item, "ZoneId", "")));
    int64_t gib = json_int(item, "Size", 0);
    GP_AUTO_FREE char *reason = gib > 0 && gib <= INT32_MAX && status[0] != '\0'
                                    ? xasprintf("%s, %lld GiB", status, (long long)gib)
                                    : xstrdup(status);
    resource_set(&r->state_reason, reason);
    r->state = strcmp(status, "Available") == 0  ? RES_STOPPED /* left behind by its instance */
               : strcmp(status, "Creating") == 0 ? RES_PENDING
                                                 : RES_RUNNING;
    r->billed = true;
    r->price_usd_per_h = -1;
    return take_id(r, item, "DiskId", "d-", err);
}

static bool has_erdma(const json_t *item) {
    return strcmp(json_str(item, "NetworkInterfaceTrafficMode", ""), "HighPerformance") == 0;
}

static int read_nic(struct resource *r, const json_t *item, const char *region, struct gp_error *err) {
    const char *status = word_or(json_str(item, "Status", ""));
    read_tags(r, item, region, -1);
    resource_set(&r->zone, word_or(json_str(item, "ZoneId", "")));
    GP_AUTO_FREE char *reason = xasprintf("%s%s", status, has_erdma(item) ? ", eRDMA" : "");
    resource_set(&r->state_reason, reason);
    r->state = strcmp(status, "Available") == 0  ? RES_STOPPED
               : strcmp(status, "Deleting") == 0 ? RES_STOPPING
                                                 : RES_RUNNING;
    r->price_usd_per_h = 0;
    return take_id(r, item, "NetworkInterfaceId", "eni-", err);
}

static void note_interface(struct interfaces *seen, const json_t *item) {
    const char *instance = json_str(item, "InstanceId", "");
    if (!ali_id(instance, "i-")) return; /* it is attached to no instance */
    strv_add(&seen->all, instance);
    if (has_erdma(item)) strv_add(&seen->erdma, instance);
}

static int read_key_pair(struct resource *r, const json_t *item, const char *region, struct gp_error *err) {
    const char *name = json_str(item, "KeyPairName", "");
    size_t n = strlen(name);
    read_tags(r, item, region, -1);
    r->state = RES_RUNNING;
    r->price_usd_per_h = 0;
    if (n < 2 || n > 128 || strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_-.") != n)
        return gp_fail(err, GP_EPROTO, "alibaba %s: a reply has a key pair whose name is malformed", region);
    resource_set(&r->id, name);
    return 0;
}

static int read_plain(struct resource *r, const json_t *item, const char *region, const char *path, const char *prefix,
                      struct gp_error *err) {
    read_tags(r, item, region, -1);
    r->state = RES_RUNNING;
    r->price_usd_per_h = 0;
    return take_id(r, item, path, prefix, err);
}

static int on_item(void *ctx, const json_t *item, struct gp_error *err) {
    const struct target *t = ctx;
    struct resource r;
    resource_init(&r, t->kind, "alibaba");
    int rc = 0;
    switch (t->kind) {
    case RES_INSTANCE: rc = read_instance(&r, item, t->region, err); break;
    case RES_VOLUME: rc = read_disk(&r, item, t->region, err); break;
    case RES_NIC: rc = read_nic(&r, item, t->region, err); break;
    case RES_KEY_PAIR: rc = read_key_pair(&r, item, t->region, err); break;
    case RES_GROUP: rc = read_plain(&r, item, t->region, "SecurityGroupId", "sg-", err); break;
    case RES_SUBNET: rc = read_plain(&r, item, t->region, "VSwitchId", "vsw-", err); break;
    default: rc = read_plain(&r, item, t->region, "VpcId", "vpc-", err); break;
    }
    for (size_t i = 0; rc == 0 && i < t->out->list.len; i++) /* by tags and by id */
        if (t->out->list.items[i].kind == t->kind && strcmp(t->out->list.items[i].id, r.id) == 0) {
            resource_clear(&r);
            return 0;
        }
    if (rc == 0 && t->kind == RES_NIC && t->seen != NULL) note_interface(t->seen, item);
    if (rc == 0) vec_push(&t->out->list, r);
    else resource_clear(&r);
    return rc;
}

static const struct {
    enum resource_kind kind;
    enum ali_service service;
    const char *action, *items;
    int page;
    bool numbered;
} kinds[] = {
    {RES_INSTANCE, ALI_ECS, "DescribeInstances", "Instances.Instance", 100, false},
    {RES_VOLUME, ALI_ECS, "DescribeDisks", "Disks.Disk", 100, false},
    {RES_NIC, ALI_ECS, "DescribeNetworkInterfaces", "NetworkInterfaceSets.NetworkInterfaceSet", 100, false},
    {RES_GROUP, ALI_ECS, "DescribeSecurityGroups", "SecurityGroups.SecurityGroup", 100, false},
    {RES_KEY_PAIR, ALI_ECS, "DescribeKeyPairs", "KeyPairs.KeyPair", 50, true},
    {RES_SUBNET, ALI_VPC, "DescribeVSwitches", "VSwitches.VSwitch", 50, true},
    {RES_NETWORK, ALI_VPC, "DescribeVpcs", "Vpcs.Vpc", 50, true},
};

static void target_of(struct ali_list *l, enum resource_kind kind, const char *region, struct resource_list *ret) {
    struct target *t = xcalloc(1, sizeof *t);
    *t = (struct target){.kind = kind, .region = region, .out = ret};
    for (size_t i = 0; i < GP_ARRAY_LEN(kinds); i++) {
        if (kinds[i].kind != kind) continue;
        *l = (struct ali_list){.service = kinds[i].service,
                               .region = region,
                               .action = kinds[i].action,
                               .items = kinds[i].items,
                               .page = kinds[i].page,
                               .numbered = kinds[i].numbered,
                               .each = on_item,
                               .ctx = t};
    }
    ali_begin(&l->query, region);
}

void ali_list_of(struct ali_list *l, enum resource_kind kind, const char *region, const struct ali_wanted *w,
                 struct resource_list *ret) {
    target_of(l, kind, region, ret);
    ali_tag_filter(&l->query, w->owner, w->stack, w->uid);
}

/* The RDMA devices of each instance, by its interfaces: DescribeInstances does not show them. Unknown where none is
 * listed. */
static void count_erdma(const struct interfaces *seen, struct resource_list *part) {
    for (size_t i = 0; i < part->list.len; i++) {
        struct resource *r = &part->list.items[i];
        if (r->kind != RES_INSTANCE || !strv_has(&seen->all, r->id)) continue;
        r->rdma = 0;
        for (size_t k = 0; k < seen->erdma.n; k++) r->rdma += strcmp(seen->erdma.v[k], r->id) == 0;
    }
}

static void interfaces_clear(struct interfaces *seen) {
    strv_clear(&seen->all);
    strv_clear(&seen->erdma);
}

int ali_list_instances(struct ali *a, const char *region, const struct ali_wanted *w, struct resource_list *ret,
                       struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list unasked = {0};
    struct interfaces seen = {0};
    struct ali_list lists[2] = {0};
    ali_list_of(&lists[0], RES_INSTANCE, region, w, ret);
    ali_list_of(&lists[1], RES_NIC, region, w, &unasked);
    struct target *t = lists[1].ctx;
    t->seen = &seen;
    ali_lists(a, lists, GP_ARRAY_LEN(lists), NULL);
    int r = lists[0].rc; /* without the interfaces the devices are unknown, until a poll of the nodes shows them */
    if (r != 0 && err != NULL) *err = lists[0].err;
    count_erdma(&seen, ret);
    interfaces_clear(&seen);
    for (size_t i = 0; i < GP_ARRAY_LEN(lists); i++) {
        free(lists[i].ctx);
        ali_list_clear(&lists[i]);
    }
    return r;
}

/* --- all lists of a request --- */

struct work {
    VEC_OF(struct ali_list) lists;
    struct resource_list *parts; /* one for each region */
    struct interfaces seen;
    struct resource_list unasked; /* interfaces, where only nodes are asked for */
};

/* Machines in the journal whose tags were changed. */
static void add_known(struct work *w, const char *region, const struct resource_list *known,
                      struct resource_list *part) {
    for (size_t i = 0; known != NULL && i < known->list.len;) {
        GP_AUTO_STR struct str ids = {0};
        size_t n = 0;
        for (; i < known->list.len && n < IDS_MAX; i++) {
            const struct resource *k = &known->list.items[i];
            if (k->kind == RES_INSTANCE && str_eq(k->provider, "alibaba") && str_eq(k->region, region) &&
                ali_id(k->id, "i-"))
                str_addf(&ids, "%s\"%s\"", n++ > 0 ? "," : "[", k->id);
        }
        if (n == 0) break;
        struct ali_list l = {0};
        str_addc(&ids, ']');
        target_of(&l, RES_INSTANCE, region, part);
        ali_param(&l.query, "InstanceIds", ids.s);
        vec_push(&w->lists, l);
    }
}

static void add_region(struct work *w, const char *region, const struct list_req *req, struct resource_list *part) {
    struct ali_wanted tagged = {.owner = req->owner, .stack = req->stack};
    struct ali_wanted by_uid = {.owner = req->owner, .uid = req->uid};
    for (size_t i = 0; i < GP_ARRAY_LEN(kinds); i++) {
        bool nic = kinds[i].kind == RES_NIC; /* it shows the RDMA devices of a node */
        if (req->nodes_only && !nic && kinds[i].kind != RES_INSTANCE) continue;
        struct ali_list l = {0};
        ali_list_of(&l, kinds[i].kind, region, &tagged, nic && req->nodes_only ? &w->unasked : part);
        struct target *t = l.ctx;
        t->seen = &w->seen;
        vec_push(&w->lists, l);
    }
    if (req->uid != NULL) { /* whose tag of the stack was changed */
        struct ali_list l = {0};
        ali_list_of(&l, RES_INSTANCE, region, &by_uid, part);
        vec_push(&w->lists, l);
    }
    add_known(w, region, req->known, part);
}

/* The requested regions and, with `everywhere`, all of the account. */
static int regions_of(struct ali *a, const struct list_req *req, struct strv *ret, struct gp_error *err) {
    GP_AUTO_STRV struct strv all = {0};
    if (req->regions != NULL) strv_copy(ret, req->regions);
    if (req->regions != NULL && !req->everywhere) return 0;
    int r = ali_regions(a, &all, err);
    strv_merge(ret, &all);
    if (r != 0 && ret->n == 0) strv_add(ret, ali_home(a));
    return r;
}

/* The first failure of a region's lists; NULL: it is complete. */
static const struct gp_error *failure_in(const struct work *w, const char *region) {
    for (size_t i = 0; i < w->lists.len; i++)
        if (w->lists.items[i].rc != 0 && strcmp(w->lists.items[i].region, region) == 0) return &w->lists.items[i].err;
    return NULL;
}

static int collect(const struct work *w, const struct strv *regions, const struct list_req *req,
                   struct resource_list *ret, struct gp_error *err) {
    int first = 0;
    for (size_t i = 0; i < regions->n; i++) {
        struct gp_error malformed = {0};
        const struct gp_error *why = failure_in(w, regions->v[i]);
        if (!ali_region_valid(regions->v[i])) { /* it may come from a journal or a tag */
            gp_fail(&malformed, GP_EUSAGE, "alibaba: '%.60s' is not a region", regions->v[i]);
            why = &malformed;
        }
        for (size_t k = 0; k < w->parts[i].list.len; k++) vec_push(&ret->list, w->parts[i].list.items[k]);
        vec_free(&w->parts[i].list);
        if (req->looked != NULL) coverage_put(req->looked, "alibaba", regions->v[i], req->owner, true, why);
        if (why == NULL || first != 0) continue;
        first = -(int)why->code;
        if (err != NULL) *err = *why;
    }
    return first;
}

int ali_list_all(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    struct ali *a = ali_of(p);
    GP_AUTO_STRV struct strv regions = {0};
    struct gp_error unknown = {0}, e = {0};
    struct work w = {0};
    if (req->images) return 0; /* none can be made here */
    int all = regions_of(a, req, &regions, &unknown);
    if (all != 0 && req->looked != NULL) /* the regions of the account are unknown */
        coverage_put(req->looked, "alibaba", "", req->owner, true, &unknown);
    w.parts = xcalloc(regions.n + 1, sizeof *w.parts);
    for (size_t i = 0; i < regions.n; i++)
        if (ali_region_valid(regions.v[i])) add_region(&w, regions.v[i], req, &w.parts[i]);
    ali_lists(a, w.lists.items, w.lists.len, &e);
    for (size_t i = 0; i < regions.n; i++) count_erdma(&w.seen, &w.parts[i]);
    int r = collect(&w, &regions, req, ret, err);
    for (size_t i = 0; i < w.lists.len; i++) {
        free(w.lists.items[i].ctx);
        ali_list_clear(&w.lists.items[i]);
    }
    vec_free(&w.lists);
    resource_list_clear(&w.unasked);
    interfaces_clear(&w.seen);
    free(w.parts);
    if (r == 0 && all != 0) {
        r = all;
        if (err != NULL) *err = unknown;
    }
    return r;
}
