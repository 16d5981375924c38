// SPDX-License-Identifier: Apache-2.0
/* eRDMA between the nodes of a gang: which types have it (EriQuantity of DescribeInstanceTypes), and the interfaces of
 * a launch: as many elastic RDMA interfaces as the type takes. RunInstances gives its tags to the primary interface
 * only, so the further ones get theirs after the launch; each goes with its instance in any case. One thread. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"

#define INTERFACES_MAX 16
#define READS 5
#define IDS_MAX 100
#define TAGS_AT_ONCE 50 /* resources of one TagResources */

/* --- types --- */

static const struct ali_erdma *find(const struct ali *a, const char *region, const char *type) {
    for (size_t i = 0; i < a->cache->erdma.len; i++) {
        const struct ali_erdma *e = &a->cache->erdma.items[i];
        if (strcmp(e->region, region) == 0 && strcmp(e->type, type) == 0) return e;
    }
    return NULL;
}

void ali_fabric_seen(struct ali *a, const char *region, const char *type, const struct ali_erdma *has) {
    if (has->interfaces < 1 || find(a, region, type) != NULL) return;
    struct ali_erdma e = *has;
    e.region = xstrdup(region);
    e.type = xstrdup(type);
    e.interfaces = GP_MIN(e.interfaces, INTERFACES_MAX);
    vec_push(&a->cache->erdma, e);
}

char *ali_fabric_text(const struct ali *a, const struct spec *spec, const char *region, const char *type) {
    const struct ali_erdma *e = find(a, region, type);
    if (spec->nodes < 2 || e == NULL) return xstrdup("");
    if (spec->fabric != FABRIC_AUTO) return xstrdup("TCP only; the type has eRDMA: bootstrap.fabric: auto uses it");
    return e->interfaces == 1 ? xstrdup("eRDMA on the primary interface")
                              : xasprintf("eRDMA on %d interfaces", e->interfaces);
}

/* --- the request --- */

/* Of the interfaces beside the primary ones. */
static char *interface_name(const char *stack) { return xasprintf("gpuprov-%s", stack); }

static void param(struct str *query, int n, const char *name, const char *value) {
    ali_paramf(query, value, "NetworkInterface.%d.%s", n, name);
}

static void param_int(struct str *query, int n, const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    param(query, n, name, text);
}

void ali_interface_add(struct str *query, const struct ali *a, const struct create_req *req,
                       const struct ali_place *at) {
    const struct offer *o = req->offer;
    const struct ali_erdma *e =
        req->spec->nodes > 1 && req->spec->fabric == FABRIC_AUTO ? find(a, o->region, o->instance_type) : NULL;
    GP_AUTO_FREE char *name = interface_name(req->stack->name);
    if (e == NULL) {
        ali_param(query, "VSwitchId", at->vswitch);
        ali_param(query, "SecurityGroupId", at->group);
        return;
    }
    for (int i = 0; i < e->interfaces; i++) {
        param(query, i + 1, "InstanceType", i == 0 ? "Primary" : "Secondary");
        param(query, i + 1, "NetworkInterfaceTrafficMode", "HighPerformance");
        param(query, i + 1, "VSwitchId", at->vswitch);
        param(query, i + 1, "SecurityGroupId", at->group);
        if (e->interfaces > 1 && e->pairs >= e->interfaces) /* all together have no more than the type */
            param_int(query, i + 1, "QueuePairNumber", e->pairs / e->interfaces);
        if (i == 0) continue;
        param(query, i + 1, "NetworkInterfaceName", name);
        param(query, i + 1, "DeleteOnRelease", "true");
        if (e->cards > 1) param_int(query, i + 1, "NetworkCardIndex", i % e->cards);
    }
}

/* --- tags of the further interfaces --- */

/* Further interfaces of the stack's name at its machines. Others, such as those that a user attached, are not ours. */
struct further {
    const char *name;
    const struct resource_list *machines;
    size_t found;     /* tagged or not */
    struct strv bare; /* ids of those that nobody has tagged */
};
static void further_clear(struct further *f) { strv_clear(&f->bare); }

static int on_interface(void *ctx, const json_t *item, struct gp_error *err) {
    struct further *f = ctx;
    const char *id = json_str(item, "NetworkInterfaceId", ""), *at = json_str(item, "InstanceId", "");
    struct tags tags;
    (void)err;
    if (!ali_id(id, "eni-") || strcmp(json_str(item, "NetworkInterfaceName", ""), f->name) != 0) return 0;
    ali_tags_decode(item, &tags);
    bool tagged = tags.owner != NULL && tags.owner[0] != '\0', ours = false;
    tags_clear(&tags);
    for (size_t i = 0; i < f->machines->list.len; i++) {
        const struct resource *k = &f->machines->list.items[i];
        ours = ours || (k->kind == RES_INSTANCE && k->state != RES_GONE && strcmp(k->id, at) == 0);
    }
    f->found += ours;
    if (ours && !tagged) strv_add(&f->bare, id);
    return 0;
}

static int read_further(struct ali *a, const char *region, struct further *f, struct gp_error *err) {
    struct ali_list l = {.service = ALI_ECS,
                         .region = region,
                         .action = "DescribeNetworkInterfaces",
                         .items = "NetworkInterfaceSets.NetworkInterfaceSet",
                         .page = 100,
                         .each = on_interface,
                         .ctx = f};
    f->found = 0;
    strv_clear(&f->bare);
    ali_begin(&l.query, region);
    ali_param(&l.query, "Type", "Secondary");
    ali_param(&l.query, "NetworkInterfaceName", f->name);
    return ali_list_one(a, &l, err);
}

static int tag(struct ali *a, const char *region, const struct tags *tags, const struct strv *ids,
               struct gp_error *err) {
    int r = 0;
    for (size_t at = 0; r == 0 && at < ids->n; at += TAGS_AT_ONCE) {
        GP_AUTO_STR struct str query = {0};
        GP_AUTO_REST struct rest_reply reply = {0};
        ali_begin(&query, region);
        ali_param(&query, "ResourceType", "eni");
        for (size_t i = at; i < ids->n && i < at + TAGS_AT_ONCE; i++)
            ali_paramf(&query, ids->v[i], "ResourceId.%zu", i - at + 1);
        ali_tags_add(&query, tags);
        r = ali_call(a, ALI_ECS, region, "TagResources", &query, 0, &reply, err);
    }
    return r;
}

/* Interfaces of each machine beside its primary one, as the body of the launch requests them. */
static size_t further_of(const char *body) {
    size_t n = 0;
    for (;; n++) {
        char name[48];
        snprintf(name, sizeof name, "&NetworkInterface.%zu.InstanceType=", n + 2);
        if (strstr(body, name) == NULL) return n;
    }
}

/* The RDMA devices of new machines, which the reply to their launch lacks. */
static void show_devices(struct ali *a, const struct intent *in, const char *owner, struct resource_list *machines) {
    GP_AUTO_RESOURCES struct resource_list seen = {0};
    struct ali_wanted w = {.owner = owner, .uid = in->uid};
    if (ali_list_instances(a, in->region, &w, &seen, NULL) != 0) return; /* a poll of the nodes shows the devices */
    for (size_t i = 0; i < machines->list.len; i++)
        for (size_t k = 0; k < seen.list.len; k++)
            if (strcmp(machines->list.items[i].id, seen.list.items[k].id) == 0)
                machines->list.items[i].rdma = seen.list.items[k].rdma;
}

void ali_fabric_settle(struct ali *a, const struct intent *in, const char *owner, const char *stack,
                       struct resource_list *machines) {
    size_t wanted = further_of(in->body) * machines->list.len;
    GP_AUTO_FREE char *name = interface_name(stack);
    GP_CLEANUP(further_clear) struct further f = {.name = name, .machines = machines};
    struct gp_error err = {0};
    struct tags tags;
    int r = 0;
    for (int i = 0; r == 0 && f.found < wanted && i < READS; i++) {
        if (i > 0 && gp_sleep(GP_MIN(200 << i, 2000), a->cancel, NULL) != 0) return; /* they go with their instances */
        r = read_further(a, in->region, &f, &err);
    }
    bool primary = strstr(in->body, "&NetworkInterface.1.NetworkInterfaceTrafficMode=") != NULL;
    if (wanted == 0 && primary) show_devices(a, in, owner, machines);
    if (wanted == 0) return;
    tags_init(&tags);
    resource_set(&tags.owner, owner);
    resource_set(&tags.stack, stack);
    resource_set(&tags.uid, in->uid);
    resource_set(&tags.spec_hash, in->spec_hash);
    tags.expires_s = in->deadline_s;
    if (r == 0) r = tag(a, in->region, &tags, &f.bare, &err);
    tags_clear(&tags);
    if (r != 0)
        event_emit(a->sink, -1, NODE_LAUNCHING, EVENT_WARN, "fabric",
                   "alibaba: the further interfaces of the nodes have no tags: %s; they are released with their nodes, "
                   "and validation does not require their devices",
                   err.msg);
    else if (f.found < wanted)
        event_emit(a->sink, -1, NODE_LAUNCHING, EVENT_WARN, "fabric",
                   "alibaba: %zu of %zu further interfaces are not attached to the nodes yet; they are released with "
                   "their nodes, and validation does not require their devices",
                   wanted - f.found, wanted);
    if (r == 0 && f.found > 0) show_devices(a, in, owner, machines);
}

/* --- a launch that was cut before its interfaces had tags --- */

static int complete_region(struct ali *a, const struct stack *stack, const char *region, struct further *f,
                           struct gp_error *err) {
    struct tags tags;
    int r = read_further(a, region, f, err);
    if (r != 0 || f->bare.n == 0) return r;
    tags_of_stack(&tags, stack);
    r = tag(a, region, &tags, &f->bare, err);
    tags_clear(&tags);
    return r;
}

void ali_fabric_complete(struct ali *a, const struct spec *spec, const struct stack *stack,
                         const struct resource_list *known) {
    GP_AUTO_STRV struct strv regions = {0};
    GP_AUTO_FREE char *name = interface_name(stack->name);
    if (spec->nodes < 2 || spec->fabric != FABRIC_AUTO) return;
    for (size_t i = 0; i < known->list.len; i++) {
        const struct resource *k = &known->list.items[i];
        if (k->kind == RES_INSTANCE && str_eq(k->provider, "alibaba") && ali_region_valid(k->region) &&
            !strv_has(&regions, k->region))
            strv_add(&regions, k->region);
    }
    for (size_t i = 0; i < regions.n; i++) {
        GP_CLEANUP(further_clear) struct further f = {.name = name, .machines = known};
        struct gp_error err = {0};
        if (complete_region(a, stack, regions.v[i], &f, &err) != 0)
            event_emit(a->sink, -1, NODE_PLANNED, EVENT_WARN, "fabric",
                       "alibaba: the further interfaces of the nodes in %s could not be read or tagged: %s; they are "
                       "released with their nodes",
                       regions.v[i], err.msg);
    }
}
