// SPDX-License-Identifier: Apache-2.0
/* Public addresses of nodes: floating IPs. A port has at most one, so neutron itself refuses a second one, and a lost
 * reply is settled by reading the port's. They outlive their servers: they are listed, and ended with their node. One
 * thread. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"

struct listing {
    const struct os *o;
    const char *region;
    struct resource_list *out;
    const struct resource_list *known;
    const struct strv *ports; /* only addresses of these; NULL: all */
    size_t foreign;           /* addresses that are not gpuprov's */
};

static int address_read(const json_t *item, const char *region, const struct os *o, struct resource *ret,
                        bool *ret_ours, struct gp_error *err) {
    const char *id = json_str(item, "id", ""), *ip = json_str(item, "floating_ip_address", "");
    const char *fixed = json_str(item, "fixed_ip_address", "");
    struct tags t;
    if (!os_uuid(id) || !form_address(ip))
        return gp_fail(err, GP_EPROTO,
                       "openstack: the list of floating IPs has a malformed entry: run the same command again");
    *ret_ours = os_description_read(json_str(item, "description", ""), &t);
    resource_init(ret, RES_ADDRESS, "openstack");
    resource_set(&ret->region, region);
    resource_set(&ret->id, id);
    resource_set(&ret->account, o->project_id);
    tags_to_resource(&t, -1, ret);
    if (t.slot_count == 1) ret->slot = t.slot_first;
    resource_set(&ret->public_ip, ip);
    resource_set(&ret->private_ip, form_address(fixed) ? fixed : "");
    ret->state = RES_RUNNING;
    ret->billed = true;
    ret->price_usd_per_h = -1;
    tags_clear(&t);
    return 0;
}

static const struct resource *find_known(const struct resource_list *known, const char *id) {
    for (size_t i = 0; known != NULL && i < known->list.len; i++) {
        const struct resource *k = &known->list.items[i];
        if (k->kind == RES_ADDRESS && str_eq(k->provider, "openstack") && str_eq(k->id, id)) return k;
    }
    return NULL;
}

static void take_tags(const struct resource *from, struct resource *to) {
    resource_set(&to->owner, from->owner);
    resource_set(&to->stack, from->stack);
    resource_set(&to->uid, from->uid);
    to->slot = from->slot;
    to->attempt = from->attempt;
    to->expires_s = from->expires_s;
    resource_set(&to->unreadable, "");
}

static int on_address(void *ctx, const json_t *item, struct gp_error *err) {
    struct listing *l = ctx;
    struct resource r = {0};
    bool ours = false;
    if (l->ports != NULL && !strv_has(l->ports, json_str(item, "port_id", ""))) return 0;
    int rc = address_read(item, l->region, l->o, &r, &ours, err);
    if (rc != 0) return rc;
    const struct resource *known = find_known(l->known, r.id);
    if (known != NULL) take_tags(known, &r);
    if (!ours && known == NULL) {
        l->foreign++;
        resource_clear(&r);
        return 0;
    }
    vec_push(&l->out->list, r);
    return 0;
}

static int list_addresses(struct os *o, struct listing *l, struct gp_error *err) {
    GP_AUTO_STR struct str path = {0};
    str_add(&path, "/floatingips");
    rest_query(&path, "project_id", o->project_id);
    struct os_list list = {.service = OS_NETWORK,
                           .region = l->region,
                           .path = path.s,
                           .items = "floatingips",
                           .each = on_address,
                           .ctx = l};
    return os_pages(o, &list, err);
}

int os_addresses_list(struct os *o, const char *region, const struct resource_list *known, struct resource_list *ret,
                      struct gp_error *err) {
    struct listing l = {.o = o, .region = region, .out = ret, .known = known};
    return list_addresses(o, &l, err);
}

/* --- of certain servers --- */

static int on_port_of(void *ctx, const json_t *item, struct gp_error *err) {
    const char *id = json_str(item, "id", "");
    if (!os_uuid(id))
        return gp_fail(err, GP_EPROTO, "openstack: a port has a malformed id: run the same command again");
    strv_add(ctx, id);
    return 0;
}

int os_addresses_of(struct os *o, const char *region, const struct strv *servers, struct resource_list *ret,
                    struct gp_error *err) {
    enum { AT_ONCE = 50 }; /* 47 bytes each: a URL of more than 8 KiB is refused */
    GP_AUTO_STRV struct strv ports = {0};
    struct listing l = {.o = o, .region = region, .out = ret, .ports = &ports};
    for (size_t i = 0; i < servers->n; i += AT_ONCE) {
        GP_AUTO_STR struct str path = {0};
        str_add(&path, "/ports");
        for (size_t k = i; k < servers->n && k < i + AT_ONCE; k++) rest_query(&path, "device_id", servers->v[k]);
        struct os_list list = {.service = OS_NETWORK,
                               .region = region,
                               .path = path.s,
                               .items = "ports",
                               .each = on_port_of,
                               .ctx = &ports};
        int r = os_pages(o, &list, err);
        if (r != 0) return r;
    }
    return ports.n == 0 ? 0 : list_addresses(o, &l, err);
}

/* --- one port --- */

struct text {
    char id[40];
};

static int on_port(void *ctx, const json_t *item, struct gp_error *err) {
    struct text *ret = ctx;
    const char *id = json_str(item, "id", "");
    const json_t *fixed = json_object_get(item, "fixed_ips");
    if (!os_uuid(id))
        return gp_fail(err, GP_EPROTO, "openstack: a port has a malformed id: run the same command again");
    if (ret->id[0] == '\0' && json_array_size(fixed) > 0) str_put(ret->id, sizeof ret->id, id);
    return 0;
}

static int find_port(struct os *o, const struct resource *server, struct text *ret, struct gp_error *err) {
    GP_AUTO_STR struct str path = {0};
    str_add(&path, "/ports");
    rest_query(&path, "device_id", server->id);
    struct os_list list = {
        .service = OS_NETWORK, .region = server->region, .path = path.s, .items = "ports", .each = on_port, .ctx = ret};
    return os_pages(o, &list, err);
}

/* The port's address, if it has one already. ret_foreign: it has one that somebody else gave it. */
static int find_of_port(struct os *o, const char *region, const char *port, struct resource_list *ret,
                        bool *ret_foreign, struct gp_error *err) {
    GP_AUTO_STR struct str path = {0};
    struct listing l = {.o = o, .region = region, .out = ret};
    str_add(&path, "/floatingips");
    rest_query(&path, "port_id", port);
    struct os_list list = {
        .service = OS_NETWORK, .region = region, .path = path.s, .items = "floatingips", .each = on_address, .ctx = &l};
    int r = os_pages(o, &list, err);
    *ret_foreign = l.foreign > 0;
    return r;
}

static int request(struct os *o, const struct intent *in, struct resource *made, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    bool ours = false;
    struct os_call c = {.service = OS_NETWORK,
                        .region = in->region,
                        .method = "POST",
                        .path = "/floatingips",
                        .body = in->body,
                        .flags = REST_ONCE};
    int r = os_call(o, &c, &reply, err);
    if (r != 0) return r;
    r = address_read(json_object_get(reply.json, "floatingip"), in->region, o, made, &ours, err);
    return r != 0 ? cloud_to_unknown(err) : 0;
}

/* Each external network in turn: only one that the server's network has a router to can be used. */
static int request_from(struct os *o, const struct intent *of, const char *port, const char *about, const char *network,
                        struct gp_error *err) {
    struct resource made;
    struct gp_error why = {0};
    struct stack s = {.uid = of->uid, .expires_s = of->deadline_s};
    GP_AUTO_JSON json_t *j = json_pack("{s:{s:s,s:s,s:s}}", "floatingip", "floating_network_id", network, "port_id",
                                       port, "description", about);
    GP_AUTO_FREE char *body = json_text(j, 0);
    GP_AUTO_FREE char *name = xasprintf("port %s", port);
    struct intent in;
    resource_init(&made, RES_ADDRESS, "openstack");
    cloud_intent_thing(&s, "openstack", of->region, RES_ADDRESS, name, body, &in);
    int r = journal_intent(o->journal, &in, err);
    if (r == 0) {
        r = request(o, &in, &made, &why);
        r = cloud_thing_created(o->journal, &in, r, &made, &why, err);
    }
    intent_clear(&in);
    resource_clear(&made);
    return r;
}

int os_address_ensure(struct os *o, const struct intent *of, const struct tags *tags, const struct resource *server,
                      bool *ret_missing, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list have = {0};
    GP_AUTO_STR struct str about = {0};
    const struct os_networks *all = NULL;
    struct text port = {0};
    struct gp_error why = {0};
    bool foreign = false;
    *ret_missing = false;
    int r = find_port(o, server, &port, err);
    if (r == 0 && port.id[0] == '\0') *ret_missing = true;
    if (r != 0 || *ret_missing) return r;
    r = find_of_port(o, server->region, port.id, &have, &foreign, err);
    if (r == 0 && have.list.len > 0) { /* an earlier call's, whose reply may have been lost */
        GP_AUTO_FREE char *name = xasprintf("port %s", port.id);
        return cloud_thing_settle(o->journal, &have.list.items[0], name, err);
    }
    if (r == 0 && foreign) return 0; /* a port has one address: the node has a public one */
    if (r == 0) r = os_networks_get(o, server->region, &all, err);
    if (r != 0) return r;
    if (!os_description(tags, &about))
        return gp_fail(err, GP_EUSAGE, "openstack: the owner is too long for a description: give a shorter --owner");
    bool some = false;
    for (size_t i = 0; i < all->list.len; i++) {
        if (!all->list.items[i].external) continue;
        some = true;
        gp_error_clear(&why);
        r = request_from(o, of, port.id, about.s, all->list.items[i].id, &why);
        if (r == 0) return 0;
        if (r == -GP_EUNKNOWN || r == -GP_EEXISTS) { /* the next look at the port tells */
            *ret_missing = true;
            return 0;
        }
        if (r != -GP_ENOTFOUND) break;
    }
    if (!some) {
        r = gp_fail(&why, GP_EUSAGE,
                    "openstack %s has no external network for public addresses: set access.public_ip to false, or give "
                    "a 'network' whose own addresses are public",
                    server->region);
        why.scope = GP_SCOPE_REGION;
    }
    if (err != NULL) *err = why;
    return r;
}

/* --- launches that were cut before the address --- */

static bool has_address(const struct resource_list *addresses, const struct resource *server) {
    for (size_t i = 0; i < addresses->list.len; i++)
        if (str_eq(addresses->list.items[i].private_ip, server->private_ip) &&
            str_eq(addresses->list.items[i].uid, server->uid))
            return true;
    return false;
}

static int complete(struct os *o, const struct resource *server, bool *ret_missing, struct gp_error *err) {
    struct intent of = {.uid = server->uid, .region = server->region, .deadline_s = server->expires_s};
    struct tags t;
    tags_init(&t);
    resource_set(&t.owner, server->owner);
    resource_set(&t.stack, server->stack);
    resource_set(&t.uid, server->uid);
    t.expires_s = server->expires_s;
    t.slot_first = server->slot;
    t.slot_count = 1;
    t.attempt = server->attempt;
    int r = os_address_ensure(o, &of, &t, server, ret_missing, err);
    tags_clear(&t);
    return r;
}

int os_addresses_complete(struct os *o, const char *region, const char *uid, struct gp_error *err) {
    int64_t until = clock_deadline(OS_PLACEMENT_MS);
    for (;;) {
        GP_AUTO_RESOURCES struct resource_list servers = {0};
        GP_AUTO_RESOURCES struct resource_list addresses = {0};
        size_t open = 0;
        int r = os_servers_list(o, region, &servers, err);
        if (r == 0) r = os_addresses_list(o, region, NULL, &addresses, err);
        for (size_t i = 0; r == 0 && i < servers.list.len; i++) {
            const struct resource *s = &servers.list.items[i];
            bool missing = false;
            if (!str_eq(s->uid, uid) || !str_eq(s->owner, o->base.owner) || s->slot < 0) continue;
            if (s->public_ip[0] != '\0' || has_address(&addresses, s)) continue;
            if (s->state == RES_RUNNING) r = complete(o, s, &missing, err);
            if (s->state == RES_PENDING || missing) open++;
        }
        if (r != 0 || open == 0 || clock_left_ms(until) == 0) return r;
        r = gp_sleep(1000, o->cancel, err);
        if (r != 0) return r;
    }
}
