// SPDX-License-Identifier: Apache-2.0
/* The security group of a stack in a region, and its ingress rules: exactly those of the spec. Its name carries the
 * uid, its description the tags. Names are not unique: of two the lowest id counts, and both end with the stack. One
 * thread. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#include "base/clock.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"
#include "providers/common/ssh_from.h"

static char *group_name(const struct stack *s) { return xasprintf("gpuprov-%s-%s", s->name, s->uid); }

/* --- list --- */

struct listing {
    const struct os *o;
    const char *region;
    struct resource_list *out;
};

static int on_group(void *ctx, const json_t *item, struct gp_error *err) {
    struct listing *l = ctx;
    const char *id = json_str(item, "id", "");
    struct tags t;
    if (!os_uuid(id))
        return gp_fail(err, GP_EPROTO,
                       "openstack: the list of groups has a malformed entry: run the same command again");
    if (os_description_read(json_str(item, "description", ""), &t)) {
        struct resource r;
        resource_init(&r, RES_GROUP, "openstack");
        resource_set(&r.region, l->region);
        resource_set(&r.id, id);
        resource_set(&r.account, l->o->project_id);
        tags_to_resource(&t, -1, &r);
        r.state = RES_RUNNING;
        r.price_usd_per_h = 0;
        vec_push(&l->out->list, r);
    }
    tags_clear(&t);
    return 0;
}

static int list_named(struct os *o, const char *region, const char *name, struct resource_list *ret,
                      struct gp_error *err) {
    GP_AUTO_STR struct str path = {0};
    struct listing l = {o, region, ret};
    str_add(&path, "/security-groups");
    rest_query(&path, "project_id", o->project_id);
    if (name != NULL) rest_query(&path, "name", name);
    rest_query(&path, "fields", "id");
    rest_query(&path, "fields", "description");
    struct os_list list = {.service = OS_NETWORK,
                           .region = region,
                           .path = path.s,
                           .items = "security_groups",
                           .each = on_group,
                           .ctx = &l};
    return os_pages(o, &list, err);
}

int os_groups_list(struct os *o, const char *region, struct resource_list *ret, struct gp_error *err) {
    return list_named(o, region, NULL, ret, err);
}

/* --- rules --- */

/* One ingress rule in one line: what is equal here is equal to neutron. */
static char *rule_key(const char *ethertype, const char *protocol, int64_t from, int64_t to, const char *source) {
    return xasprintf("%s %s %lld-%lld %s", ethertype, protocol, (long long)from, (long long)to, source);
}

struct rules {
    struct strv keys, ids; /* of those that are there */
    bool malformed;
};

static int on_rule(void *ctx, const json_t *item, struct gp_error *err) {
    struct rules *have = ctx;
    (void)err;
    if (strcmp(json_str(item, "direction", ""), "ingress") != 0) return 0;
    const char *id = json_str(item, "id", ""), *group = json_str(item, "remote_group_id", "");
    const char *prefix = json_str(item, "remote_ip_prefix", json_str(item, "remote_address_group_id", "any"));
    char *key = rule_key(json_str(item, "ethertype", ""), json_str(item, "protocol", "any"),
                         json_int(item, "port_range_min", -1), json_int(item, "port_range_max", -1),
                         group[0] != '\0' ? group : prefix);
    str_one_line(key);
    strv_take(&have->keys, key);
    strv_add(&have->ids, os_uuid(id) ? id : "");
    have->malformed = have->malformed || !os_uuid(id);
    return 0;
}

static int add_rule(struct os *o, const char *region, const char *group, const char *ethertype, const char *cidr,
                    struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    struct gp_error why = {0};
    GP_AUTO_JSON json_t *rule =
        json_pack("{s:s,s:s,s:s}", "security_group_id", group, "direction", "ingress", "ethertype", ethertype);
    if (cidr != NULL) {
        json_object_set_new(rule, "protocol", json_string("tcp"));
        json_object_set_new(rule, "port_range_min", json_integer(22));
        json_object_set_new(rule, "port_range_max", json_integer(22));
        json_object_set_new(rule, "remote_ip_prefix", json_string(cidr));
    } else {
        json_object_set_new(rule, "remote_group_id", json_string(group));
    }
    GP_AUTO_JSON json_t *j = json_pack("{s:O}", "security_group_rule", rule);
    GP_AUTO_FREE char *body = json_text(j, 0);
    struct os_call c = {
        .service = OS_NETWORK, .region = region, .method = "POST", .path = "/security-group-rules", .body = body};
    int r = os_call(o, &c, &reply, &why);
    if (r == 0 || r == -GP_EEXISTS) return 0;
    if (err != NULL) *err = why;
    return r;
}

static int remove_rule(struct os *o, const char *region, const char *group, const char *id, const char *key,
                       struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *path = xasprintf("/security-group-rules/%s", id);
    struct os_call c = {
        .service = OS_NETWORK, .region = region, .method = "DELETE", .path = path, .flags = REST_MISSING};
    int r = os_call(o, &c, &reply, err);
    if (r == 0)
        event_emit(o->sink, -1, NODE_LAUNCHING, EVENT_WARN, "access",
                   "security group %s allowed %s, which access.ssh_from does not list: removed", group, key);
    return r;
}

static const char *ethertype_of(const char *cidr) { return strchr(cidr, ':') != NULL ? "IPv6" : "IPv4"; }

int os_group_rules(struct os *o, const struct spec *spec, const char *region, const char *id, struct gp_error *err) {
    GP_AUTO_FREE char *ready = xasprintf("%s/%s", region, id);
    GP_AUTO_STRV struct strv from = {0};
    GP_AUTO_STRV struct strv want = {0};
    struct rules have = {0};
    GP_AUTO_STR struct str path = {0};
    if (strv_has(&o->cache->groups_ready, ready)) return 0;
    struct ssh_from networks = {o->rest.http, spec, "openstack", region, os_home(o), &o->cache->public_cidr};
    int r = ssh_from_read(&networks, &from, err);
    for (size_t i = 0; i < from.n; i++) strv_take(&want, rule_key(ethertype_of(from.v[i]), "tcp", 22, 22, from.v[i]));
    strv_take(&want, rule_key("IPv4", "any", -1, -1, id));
    strv_take(&want, rule_key("IPv6", "any", -1, -1, id));
    str_add(&path, "/security-group-rules");
    rest_query(&path, "security_group_id", id);
    struct os_list list = {.service = OS_NETWORK,
                           .region = region,
                           .path = path.s,
                           .items = "security_group_rules",
                           .each = on_rule,
                           .ctx = &have};
    if (r == 0) r = os_pages(o, &list, err);
    if (r == 0 && have.malformed)
        r = gp_fail(err, GP_EPROTO, "openstack: a rule of group %s has a malformed id: run the same command again", id);
    for (size_t i = 0; r == 0 && i < want.n; i++) {
        bool members = i >= from.n;
        const char *type = members ? (i == from.n ? "IPv4" : "IPv6") : ethertype_of(from.v[i]);
        if (!strv_has(&have.keys, want.v[i])) r = add_rule(o, region, id, type, members ? NULL : from.v[i], err);
    }
    for (size_t i = 0; r == 0 && i < have.keys.n; i++)
        if (!strv_has(&want, have.keys.v[i])) r = remove_rule(o, region, id, have.ids.v[i], have.keys.v[i], err);
    strv_clear(&have.keys);
    strv_clear(&have.ids);
    if (r == 0) strv_add(&o->cache->groups_ready, ready);
    return r != 0 ? gp_wrap(err, "openstack: the rules of security group %s", id) : 0;
}

/* --- create --- */

static int make(struct os *o, const struct stack *s, const char *region, const char *name, char **ret_id,
                struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_STR struct str about = {0};
    struct resource made = {0};
    struct gp_error why = {0};
    struct tags t;
    tags_of_stack(&t, s);
    bool fits = os_description(&t, &about);
    if (!fits) {
        tags_clear(&t);
        return gp_fail(err, GP_EUSAGE,
                       "openstack: the owner '%.60s...' is too long for a description: give a shorter "
                       "--owner",
                       s->owner);
    }
    GP_AUTO_JSON json_t *j = json_pack("{s:{s:s,s:s}}", "security_group", "name", name, "description", about.s);
    GP_AUTO_FREE char *body = json_text(j, 0);
    struct intent in;
    cloud_intent_thing(s, "openstack", region, RES_GROUP, name, body, &in);
    int r = journal_intent(o->journal, &in, err);
    if (r == 0) {
        struct os_call c = {.service = OS_NETWORK,
                            .region = region,
                            .method = "POST",
                            .path = "/security-groups",
                            .body = body,
                            .flags = REST_ONCE};
        r = os_call(o, &c, &reply, &why);
        const char *id = json_str(reply.json, "security_group.id", "");
        if (r == 0 && !os_uuid(id))
            r = gp_fail(&why, GP_EUNKNOWN, "openstack: the reply to a new security group has no id");
        resource_init(&made, RES_GROUP, "openstack");
        resource_set(&made.region, region);
        resource_set(&made.id, os_uuid(id) ? id : "");
        resource_set(&made.account, o->project_id);
        tags_to_resource(&t, -1, &made);
        made.state = RES_RUNNING;
        r = cloud_thing_created(o->journal, &in, r, &made, &why, err);
        if (r == 0) *ret_id = xstrdup(made.id);
        resource_clear(&made);
    }
    tags_clear(&t);
    intent_clear(&in);
    return r;
}

/* The lowest id of those that are of this stack. An intent whose reply was lost ends with it. */
static int find(struct os *o, const struct stack *s, const char *region, const char *name, char **ret_id,
                struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    const struct resource *first = NULL;
    int r = list_named(o, region, name, &all, err);
    for (size_t i = 0; r == 0 && i < all.list.len; i++) {
        const struct resource *g = &all.list.items[i];
        if (!str_eq(g->uid, s->uid) || !str_eq(g->owner, s->owner)) continue;
        if (first == NULL || strcmp(g->id, first->id) < 0) first = g;
    }
    if (r != 0 || first == NULL) return r;
    r = cloud_thing_settle(o->journal, first, name, err);
    if (r == 0) *ret_id = xstrdup(first->id);
    return r;
}

int os_group_ensure(struct os *o, const struct stack *s, const struct spec *spec, const char *region, char **ret_id,
                    struct gp_error *err) {
    GP_AUTO_FREE char *name = group_name(s);
    GP_AUTO_FREE char *id = NULL;
    int r = find(o, s, region, name, &id, err);
    for (int i = 0; r == 0 && id == NULL; i++) {
        struct gp_error why = {0};
        r = make(o, s, region, name, &id, &why);
        if (r == -GP_EUNKNOWN && i < 3) { /* its reply was lost: it is there, or comes a moment later */
            r = gp_sleep(500, o->cancel, err);
            if (r == 0) r = find(o, s, region, name, &id, err);
        } else if (r != 0 && err != NULL) {
            *err = why;
        }
    }
    if (r == 0) r = os_group_rules(o, spec, region, id, err);
    if (r == 0) *ret_id = GP_STEAL(id);
    return r;
}
