// SPDX-License-Identifier: Apache-2.0
/* The network of a launch: the VSwitch of the offer, the zone's default one, or a VPC with a VSwitch of the stack's
 * own, and a security group in it. Names are not unique here: each create call has a token made of the stack's uid, so
 * that a repeated call returns the first one's resource, and each has its own intent. One thread. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/hash.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"

#define SENDS_MAX 3
#define READY_MS 120000
#define VPC_NET "172.16.0.0/12"

/* --- VSwitches --- */

static void vswitch_clear(struct ali_vswitch *v) {
    free(v->id);
    free(v->vpc);
    free(v->region);
    free(v->zone);
}

void ali_vswitches_clear(struct ali_vswitches *v) {
    for (size_t i = 0; i < v->list.len; i++) vswitch_clear(&v->list.items[i]);
    vec_free(&v->list);
}

struct reading {
    const char *region;
    struct ali_vswitches *out;
};

static int on_vswitch(void *ctx, const json_t *item, struct gp_error *err) {
    struct reading *r = ctx;
    const char *id = json_str(item, "VSwitchId", ""), *vpc = json_str(item, "VpcId", "");
    const char *zone = json_str(item, "ZoneId", "");
    if (!ali_id(id, "vsw-") || !ali_id(vpc, "vpc-") || !form_word(zone))
        return gp_fail(err, GP_EPROTO,
                       "vpc DescribeVSwitches in %s: an entry without the ids of a VSwitch and a VPC, and "
                       "a zone: run the same command again",
                       r->region);
    struct ali_vswitch v = {.id = xstrdup(id),
                            .vpc = xstrdup(vpc),
                            .region = xstrdup(r->region),
                            .zone = xstrdup(zone),
                            .is_default = json_bool(item, "IsDefault", false)};
    vec_push(&r->out->list, v);
    return 0;
}

static void copy_matching(const struct ali_vswitches *from, const char *region, const char *id,
                          struct ali_vswitches *to) {
    for (size_t i = 0; i < from->list.len; i++) {
        const struct ali_vswitch *v = &from->list.items[i];
        if (strcmp(v->region, region) != 0 || (id != NULL ? strcmp(v->id, id) != 0 : !v->is_default)) continue;
        struct ali_vswitch copy = {.id = xstrdup(v->id),
                                   .vpc = xstrdup(v->vpc),
                                   .region = xstrdup(v->region),
                                   .zone = xstrdup(v->zone),
                                   .is_default = v->is_default};
        vec_push(&to->list, copy);
    }
}

bool ali_vswitches_list(struct ali *a, const char *region, const char *id, struct ali_list *ret) {
    struct ali_vswitches known = {0};
    bool named = id != NULL && id[0] != '\0';
    copy_matching(&a->cache->vswitches, region, named ? id : NULL, &known);
    bool there = known.list.len > 0 || (!named && strv_has(&a->cache->vswitch_regions, region));
    ali_vswitches_clear(&known);
    if (there) return false;
    struct reading *reading = xcalloc(1, sizeof *reading);
    *reading = (struct reading){region, &a->cache->vswitches};
    *ret = (struct ali_list){.service = ALI_VPC,
                             .region = region,
                             .action = "DescribeVSwitches",
                             .items = "VSwitches.VSwitch",
                             .page = 50,
                             .numbered = true,
                             .each = on_vswitch,
                             .ctx = reading};
    ali_begin(&ret->query, region);
    if (named) ali_param(&ret->query, "VSwitchId", id);
    else ali_param(&ret->query, "IsDefault", "true");
    return true;
}

int ali_vswitches_find(struct ali *a, const char *region, const char *id, struct ali_vswitches *ret,
                       struct gp_error *err) {
    bool named = id != NULL && id[0] != '\0';
    struct ali_list l = {0};
    int r = 0;
    if (ali_vswitches_list(a, region, id, &l)) {
        r = ali_list_one(a, &l, err);
        free(l.ctx);
        if (r == 0 && !named) strv_add(&a->cache->vswitch_regions, region);
    }
    if (r == 0) copy_matching(&a->cache->vswitches, region, named ? id : NULL, ret);
    return r;
}

/* --- one resource of the network --- */

struct thing {
    enum resource_kind kind;
    const char *region;
    const char *action, *path, *prefix; /* the create call, and where its reply has the id */
    const char *role;                   /* part of the token: "vpc", "vswitch/ZONE", "group/VPC" */
    struct str query;                   /* without token and tags; owned */
};

static void resource_of(const struct thing *t, const struct stack *s, const char *id, struct resource *ret) {
    struct tags tags;
    tags_of_stack(&tags, s);
    resource_init(ret, t->kind, "alibaba");
    resource_set(&ret->region, t->region);
    resource_set(&ret->id, id);
    tags_to_resource(&tags, -1, ret);
    ret->state = RES_RUNNING;
    ret->price_usd_per_h = 0;
    tags_clear(&tags);
}

/* The stack's resource of that kind as the tags show it: *ret_id NULL: none (yet). vpc: only in that one. */
static int find(struct ali *a, const struct thing *t, const struct stack *s, const char *key, const char *value,
                char **ret_id, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list seen = {0};
    struct ali_wanted w = {.owner = s->owner, .stack = s->name, .uid = s->uid};
    struct ali_list l = {0};
    ali_list_of(&l, t->kind, t->region, &w, &seen);
    if (key != NULL) ali_param(&l.query, key, value);
    int r = ali_list_one(a, &l, err);
    free(l.ctx);
    /* of several the one with the lowest id, so that all runs take the same */
    for (size_t i = 0; r == 0 && i < seen.list.len; i++) {
        const struct resource *one = &seen.list.items[i];
        if (!str_eq(one->uid, s->uid) || !str_eq(one->owner, s->owner)) continue;
        if (*ret_id == NULL || strcmp(one->id, *ret_id) < 0) resource_set(ret_id, one->id);
    }
    return r;
}

static int send(struct ali *a, const struct thing *t, const struct str *query, char **ret_id, struct gp_error *err) {
    enum ali_service service = t->kind == RES_GROUP ? ALI_ECS : ALI_VPC;
    struct gp_error e = {0};
    int r = -GP_EUNKNOWN;
    for (int i = 0; r == -GP_EUNKNOWN && i < SENDS_MAX; i++) { /* its token makes a repeat safe */
        GP_AUTO_REST struct rest_reply reply = {0};
        gp_error_clear(&e);
        r = ali_call(a, service, t->region, t->action, query, REST_ONCE, &reply, &e);
        const char *id = json_str(reply.json, t->path, "");
        if (r == 0 && !ali_id(id, t->prefix))
            r = gp_fail(&e, GP_EUNKNOWN, "alibaba %s in %s: no id in the reply", t->action, t->region);
        if (r == 0) *ret_id = xstrdup(id);
    }
    if (r != 0 && err != NULL) *err = e;
    return r;
}

/* Finds it by its tags, or creates it after an intent. Clears t->query. */
static int ensure_thing(struct ali *a, const struct stack *s, struct thing *t, const char *key, const char *value,
                        char **ret_id, bool *ret_made, struct gp_error *err) {
    GP_AUTO_FREE char *seed = xasprintf("%s|%s|%s|%s", s->uid, t->region, t->role, resource_kind_name(t->kind));
    GP_AUTO_STR struct str query = {0};
    struct tags tags;
    struct intent in;
    struct gp_error why = {0};
    char token[65];
    sha256_hex(seed, strlen(seed), token);
    str_add(&query, t->query.s);
    str_clear(&t->query);
    bool new_stack = str_eq(a->cache->claim_made, s->uid); /* nobody has made anything for it before */
    int r = new_stack ? 0 : find(a, t, s, key, value, ret_id, err);
    if (r != 0) return r;
    if (*ret_id == NULL) {
        tags_of_stack(&tags, s);
        ali_param(&query, "ClientToken", token);
        ali_tags_add(&query, &tags);
        tags_clear(&tags);
        cloud_intent_thing(s, "alibaba", t->region, t->kind, token, query.s, &in);
        r = journal_intent(a->journal, &in, err);
        if (r == 0) {
            struct resource made;
            r = send(a, t, &query, ret_id, &why);
            if (r == -GP_EEXISTS) { /* the same token with another deadline in its tags */
                struct gp_error listed = {0};
                for (int i = 0; i < 5 && *ret_id == NULL; i++) {
                    if (i > 0 && gp_sleep(500 << i, a->cancel, NULL) != 0) break;
                    if (find(a, t, s, key, value, ret_id, &listed) != 0) break;
                }
                if (*ret_id != NULL) r = 0;
            }
            *ret_made = r == 0;
            resource_of(t, s, *ret_id != NULL ? *ret_id : "", &made);
            r = cloud_thing_created(a->journal, &in, r, &made, &why, err);
            resource_clear(&made);
        }
        intent_clear(&in);
    }
    if (r == 0) { /* also intents of earlier runs of the same resource */
        struct resource there;
        resource_of(t, s, *ret_id, &there);
        r = cloud_thing_settle(a->journal, &there, token, err);
        if (r == 0) r = journal_resource_put(a->journal, &there, err);
        resource_clear(&there);
    }
    return r;
}

/* --- an own VPC --- */

static int on_status(void *ctx, const json_t *item, struct gp_error *err) {
    bool *ready = ctx;
    (void)err;
    if (strcmp(json_str(item, "Status", ""), "Available") == 0) *ready = true;
    return 0;
}

/* A new VPC or VSwitch takes no further resource before it is available. */
static int wait_ready(struct ali *a, const char *region, const char *action, const char *items, const char *key,
                      const char *id, struct gp_error *err) {
    int64_t deadline = clock_deadline(READY_MS);
    for (int i = 0;; i++) {
        bool ready = false;
        struct ali_list l = {.service = ALI_VPC,
                             .region = region,
                             .action = action,
                             .items = items,
                             .page = 50,
                             .numbered = true,
                             .each = on_status,
                             .ctx = &ready};
        ali_begin(&l.query, region);
        ali_param(&l.query, key, id);
        int r = ali_list_one(a, &l, err);
        if (r != 0 || ready) return r;
        if (clock_left_ms(deadline) == 0)
            return gp_fail(err, GP_ETIMEOUT, "alibaba %s: %s is not available after %d s: run the same command again",
                           region, id, READY_MS / 1000);
        if (gp_sleep(GP_MIN(200 << i, 2000), a->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
    }
}

/* The zone's part of the VPC's network: one /20 of 256, by the zone's name. */
static char *zone_net(const char *zone, int attempt) {
    char hex[65];
    unsigned n = 0;
    GP_AUTO_FREE char *seed = xasprintf("%s|%d", zone, attempt);
    sha256_hex(seed, strlen(seed), hex);
    sscanf(hex, "%2x", &n);
    return xasprintf("172.%u.%u.0/20", 16 + n / 16, n % 16 * 16);
}

static int own_vswitch(struct ali *a, const struct create_req *req, const char *vpc, char **ret_id, bool *made,
                       struct gp_error *err) {
    const struct offer *o = req->offer;
    GP_AUTO_FREE char *name = xasprintf("gpuprov-%s", req->stack->name);
    int r = 0;
    for (int i = 0; i < 3 && *ret_id == NULL; i++) { /* two zones may have got the same part */
        struct gp_error e = {0};
        GP_AUTO_FREE char *net = zone_net(o->zone, i);
        GP_AUTO_FREE char *role = xasprintf("vswitch/%s/%d", o->zone, i);
        struct thing t = {RES_SUBNET, o->region, "CreateVSwitch", "VSwitchId", "vsw-", role, {0}};
        ali_begin(&t.query, o->region);
        ali_param(&t.query, "VpcId", vpc);
        ali_param(&t.query, "ZoneId", o->zone);
        ali_param(&t.query, "CidrBlock", net);
        ali_param(&t.query, "VSwitchName", name);
        r = ensure_thing(a, req->stack, &t, "ZoneId", o->zone, ret_id, made, &e);
        if (r == 0 || strstr(e.detail, "CidrBlock") == NULL || i == 2) {
            if (r != 0 && err != NULL) *err = e;
            break;
        }
    }
    return r;
}

static int own_network(struct ali *a, const struct create_req *req, struct ali_place *ret, struct gp_error *err) {
    const struct offer *o = req->offer;
    GP_AUTO_FREE char *name = xasprintf("gpuprov-%s", req->stack->name);
    bool made = false;
    struct thing t = {RES_NETWORK, o->region, "CreateVpc", "VpcId", "vpc-", "vpc", {0}};
    ali_begin(&t.query, o->region);
    ali_param(&t.query, "CidrBlock", VPC_NET);
    ali_param(&t.query, "VpcName", name);
    int r = ensure_thing(a, req->stack, &t, NULL, NULL, &ret->vpc, &made, err);
    if (r == 0) r = wait_ready(a, o->region, "DescribeVpcs", "Vpcs.Vpc", "VpcId", ret->vpc, err);
    if (r == 0) r = own_vswitch(a, req, ret->vpc, &ret->vswitch, &made, err);
    if (r == 0) r = wait_ready(a, o->region, "DescribeVSwitches", "VSwitches.VSwitch", "VSwitchId", ret->vswitch, err);
    return r;
}

/* --- the place of a launch --- */

void ali_place_clear(struct ali_place *p) {
    free(p->vswitch);
    free(p->vpc);
    free(p->group);
    *p = (struct ali_place){0};
}

static int group(struct ali *a, const struct create_req *req, struct ali_place *p, struct gp_error *err) {
    const char *region = req->offer->region;
    GP_AUTO_FREE char *name = xasprintf("gpuprov-%s", req->stack->name);
    GP_AUTO_FREE char *role = xasprintf("group/%s", p->vpc);
    bool made = false;
    struct thing t = {RES_GROUP, region, "CreateSecurityGroup", "SecurityGroupId", "sg-", role, {0}};
    ali_begin(&t.query, region);
    ali_param(&t.query, "VpcId", p->vpc);
    ali_param(&t.query, "SecurityGroupName", name);
    ali_param(&t.query, "SecurityGroupType", "normal"); /* its members may reach each other */
    int r = ensure_thing(a, req->stack, &t, "VpcId", p->vpc, &p->group, &made, err);
    return r == 0 ? ali_group_rules(a, req->spec, region, p->group, made, err) : r;
}

int ali_place_find(struct ali *a, const struct create_req *req, struct ali_place *ret, struct gp_error *err) {
    const struct offer *o = req->offer;
    bool named = o->subnet != NULL && o->subnet[0] != '\0';
    struct ali_vswitches found = {0};
    int r = ali_vswitches_find(a, o->region, named ? o->subnet : NULL, &found, err);
    for (size_t i = 0; r == 0 && i < found.list.len && ret->vswitch == NULL; i++) {
        if (strcmp(found.list.items[i].zone, o->zone) != 0) continue;
        ret->vswitch = xstrdup(found.list.items[i].id);
        ret->vpc = xstrdup(found.list.items[i].vpc);
    }
    ali_vswitches_clear(&found);
    if (r == 0 && ret->vswitch == NULL && named) {
        r = gp_fail(err, GP_EUSAGE, "alibaba: the VSwitch %s is not in zone %s: correct subnet or zones", o->subnet,
                    o->zone);
        if (err != NULL) err->scope = GP_SCOPE_ZONE;
    }
    if (r == 0 && ret->vswitch == NULL) r = own_network(a, req, ret, err);
    if (r == 0) r = group(a, req, ret, err);
    return r;
}
