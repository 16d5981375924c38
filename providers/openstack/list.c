// SPDX-License-Identifier: Apache-2.0
/* Lists servers, claims, groups, floating addresses and nodes' credentials, by their own tags. nova's list is read
 * without a filter: with one it leaves out, without a word, the servers of a cell that is down. One thread. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#include "base/form.h"

/* --- servers --- */

static enum resource_state state_of(const char *status, const char *task) {
    static const struct {
        const char *status;
        enum resource_state state;
    } known[] = {{"BUILD", RES_PENDING},
                 {"ACTIVE", RES_RUNNING},
                 {"PASSWORD", RES_RUNNING},
                 {"REBOOT", RES_RUNNING},
                 {"HARD_REBOOT", RES_RUNNING},
                 {"DELETED", RES_GONE},
                 {"SOFT_DELETED", RES_STOPPING},
                 {"ERROR", RES_STOPPED},
                 {"SHUTOFF", RES_STOPPED},
                 {"PAUSED", RES_STOPPED},
                 {"SUSPENDED", RES_STOPPED},
                 {"SHELVED", RES_STOPPED},
                 {"SHELVED_OFFLOADED", RES_STOPPED},
                 {"RESCUE", RES_STOPPED}};
    if (strcmp(task, "deleting") == 0) return RES_STOPPING;
    for (size_t i = 0; i < GP_ARRAY_LEN(known); i++)
        if (strcmp(known[i].status, status) == 0) return known[i].state;
    return RES_STOPPED; /* it may be billed: not gone */
}

/* Addresses of RFC 1918, of carrier NAT and of the link are no public ones. */
static bool is_public(const char *ip) {
    unsigned a = 0, b = 0;
    if (strchr(ip, ':') != NULL) return (ip[0] == '2' || ip[0] == '3') && strlen(ip) > 4;
    if (sscanf(ip, "%3u.%3u.", &a, &b) != 2) return false;
    return !(a == 10 || a == 127 || (a == 172 && b >= 16 && b < 32) || (a == 192 && b == 168) ||
             (a == 169 && b == 254) || (a == 100 && b >= 64 && b < 128));
}

/* {"net": [{"addr": .., "OS-EXT-IPS:type": "fixed"}]}. IPv4 before IPv6. */
static void set_addresses(struct resource *r, const json_t *item) {
    const char *net = NULL;
    json_t *all = NULL, *one = NULL;
    size_t i = 0;
    json_object_foreach(json_object_get(item, "addresses"), net, all) {
        (void)net;
        json_array_foreach(all, i, one) {
            const char *ip = json_str(one, "addr", "");
            const json_t *type = json_object_get(one, "OS-EXT-IPS:type");
            bool floating = json_is_string(type) && strcmp(json_string_value(type), "floating") == 0;
            char **to = floating ? &r->public_ip : &r->private_ip;
            if (!form_address(ip)) continue;
            if ((*to)[0] == '\0' || (strchr(*to, ':') != NULL && strchr(ip, ':') == NULL)) resource_set(to, ip);
        }
    }
    if (r->public_ip[0] == '\0' && is_public(r->private_ip)) resource_set(&r->public_ip, r->private_ip);
}

static const char *member(const json_t *item, const char *key) {
    const json_t *j = json_object_get(item, key); /* json_str would take the dots of a key as a path */
    return json_is_string(j) ? json_string_value(j) : "";
}

int os_server_read(const json_t *item, const char *region, struct resource *ret, struct gp_error *err) {
    const char *id = json_str(item, "id", ""), *status = json_str(item, "status", "");
    const char *zone = member(item, "OS-EXT-AZ:availability_zone"),
               *flavor = json_str(item, "flavor.original_name", "");
    const char *image = json_str(item, "image.id", "");
    struct tags t;
    resource_init(ret, RES_INSTANCE, "openstack");
    resource_set(&ret->region, region);
    if (!os_uuid(id))
        return gp_fail(err, GP_EPROTO, "openstack: a server of a reply has a malformed id: run the same command again");
    resource_set(&ret->id, id);
    os_tags_of_server(item, &t);
    tags_to_resource(&t, 0, ret);
    tags_clear(&t);
    resource_set(&ret->account, form_word(json_str(item, "tenant_id", "")) ? json_str(item, "tenant_id", "") : "");
    resource_set(&ret->zone, form_word(zone) ? zone : "");
    resource_set(&ret->instance_type, os_name(flavor) ? flavor : "");
    resource_set(&ret->image, os_uuid(image) ? image : "");
    resource_set(&ret->user, "gpuprov");
    set_addresses(ret, item);
    ret->state = state_of(status, member(item, "OS-EXT-STS:task_state"));
    const char *fault = json_str(item, "fault.message", "");
    resource_set(&ret->state_reason, fault[0] != '\0' ? fault : ret->state == RES_STOPPED ? status : "");
    str_one_line(ret->state_reason);
    ret->billed = ret->state != RES_GONE;
    ret->gpus = -1;
    if (!time_parse_utc(json_str(item, "created", ""), &ret->created_s)) ret->created_s = 0;
    return 0;
}

void os_fault_of(struct os *o, struct resource *server) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *path = xasprintf("/servers/%s", server->id);
    struct os_call c = {
        .service = OS_COMPUTE, .region = server->region, .method = "GET", .path = path, .flags = REST_OPTIONAL};
    if (strcmp(server->state_reason, "ERROR") != 0 || os_call(o, &c, &reply, NULL) != 0) return;
    const char *fault = json_str(reply.json, "server.fault.message", "");
    if (fault[0] == '\0') return;
    resource_set(&server->state_reason, fault);
    str_one_line(server->state_reason);
}

struct listing {
    struct os *o;
    const char *region;
    struct resource_list *out;
    size_t unreadable; /* servers of a cell that is down: only their ids are known */
};

static int on_server(void *ctx, const json_t *item, struct gp_error *err) {
    struct listing *l = ctx;
    struct resource r;
    int rc = os_server_read(item, l->region, &r, err);
    bool hidden = strcmp(json_str(item, "status", ""), "UNKNOWN") == 0 && json_object_get(item, "metadata") == NULL;
    const char *used = json_str(json_object_get(item, "metadata"), OS_CONFIRMED, "");
    if (rc == 0 && used[0] != '\0') strv_take(&l->o->cache->confirmed, xasprintf("%s %s", r.id, used));
    if (hidden) l->unreadable++;
    if (rc == 0 && !hidden) vec_push(&l->out->list, r);
    else resource_clear(&r);
    return rc;
}

int os_servers_list(struct os *o, const char *region, struct resource_list *ret, struct gp_error *err) {
    struct listing l = {.o = o, .region = region, .out = ret};
    strv_clear(&o->cache->confirmed);
    struct os_list list = {.service = OS_COMPUTE,
                           .region = region,
                           .path = "/servers/detail",
                           .items = "servers",
                           .each = on_server,
                           .ctx = &l};
    int r = os_pages(o, &list, err);
    if (r == 0 && l.unreadable > 0)
        r = gp_fail(err, GP_EPROTO,
                    "openstack %s: a part of nova is down, and %zu servers of the project cannot be read: run the same "
                    "command again later",
                    region, l.unreadable);
    return r;
}

/* --- claims --- */

static void claim_resource(const struct os *o, const char *region, const char *name, const struct tags *t,
                           struct resource *ret) {
    GP_AUTO_FREE char *id = xasprintf("%s.%s", name, t->uid); /* a later stack of that name has another claim */
    resource_init(ret, RES_KEY_PAIR, "openstack");
    resource_set(&ret->region, region);
    resource_set(&ret->id, id);
    resource_set(&ret->account, o->project_id);
    tags_to_resource(t, -1, ret);
    ret->state = RES_RUNNING;
    ret->price_usd_per_h = 0;
}

static int on_claim(void *ctx, const json_t *item, struct gp_error *err) {
    struct listing *l = ctx;
    const char *name = json_str(item, "keypair.name", "");
    struct tags t;
    (void)err;
    if (os_claim_read(name, json_str(item, "keypair.public_key", ""), &t)) {
        struct resource r;
        claim_resource(l->o, l->region, name, &t, &r);
        vec_push(&l->out->list, r);
    }
    tags_clear(&t);
    return 0;
}

int os_claims_list(struct os *o, const char *region, struct resource_list *ret, struct gp_error *err) {
    struct listing l = {.o = o, .region = region, .out = ret};
    struct os_list list = {.service = OS_COMPUTE,
                           .region = region,
                           .path = "/os-keypairs",
                           .items = "keypairs",
                           .each = on_claim,
                           .ctx = &l};
    return os_pages(o, &list, err);
}

int os_claim_get(struct os *o, const char *region, const char *name, struct resource *ret, struct tags *ret_tags,
                 struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *path = xasprintf("/os-keypairs/%s", name);
    struct os_call c = {.service = OS_COMPUTE, .region = region, .method = "GET", .path = path, .flags = REST_MISSING};
    int r = os_call(o, &c, &reply, err);
    if (r != 0) return r;
    if (reply.status == 404) return 0;
    tags_clear(ret_tags);
    if (!os_claim_read(name, json_str(reply.json, "keypair.public_key", ""), ret_tags))
        return gp_fail(err, GP_EEXISTS,
                       "openstack: the key pair '%s' exists, but it has no tags of gpuprov: remove it ('openstack "
                       "keypair delete'), or choose another stack name",
                       name);
    claim_resource(o, region, name, ret_tags, ret);
    return 0;
}

/* --- all of a region --- */

static bool is_wanted(const struct list_req *req, const struct resource *r) {
    bool known = false;
    for (size_t i = 0; req->known != NULL && !known && i < req->known->list.len; i++)
        known = str_eq(req->known->list.items[i].id, r->id) && str_eq(req->known->list.items[i].provider, "openstack");
    if (known && r->kind == RES_INSTANCE) return true;
    /* a tag of gpuprov that does not decode: reported, never used */
    if (r->kind == RES_INSTANCE && r->owner[0] == '\0' && str_starts(r->unreadable, "its tag '")) return true;
    if (!str_eq(r->owner, req->owner)) return false;
    return req->stack == NULL || str_eq(r->stack, req->stack) || (req->uid != NULL && str_eq(r->uid, req->uid));
}

static void keep(const struct list_req *req, struct resource_list *all, struct resource_list *ret) {
    for (size_t i = 0; i < all->list.len; i++) {
        if (is_wanted(req, &all->list.items[i])) vec_push(&ret->list, all->list.items[i]);
        else resource_clear(&all->list.items[i]);
    }
    vec_free(&all->list);
}

/* nova learns of a floating address later than neutron. */
static void set_public(struct resource_list *nodes, const struct resource_list *addresses) {
    for (size_t i = 0; i < nodes->list.len; i++) {
        struct resource *n = &nodes->list.items[i];
        for (size_t k = 0; n->kind == RES_INSTANCE && k < addresses->list.len; k++) {
            const struct resource *a = &addresses->list.items[k];
            bool its = n->public_ip[0] == '\0' && str_eq(a->uid, n->uid) && str_eq(a->owner, n->owner) &&
                       a->slot == n->slot && a->private_ip[0] != '\0' && str_eq(a->private_ip, n->private_ip);
            if (its) resource_set(&n->public_ip, a->public_ip);
        }
    }
}

static int list_region(struct os *o, const char *region, const struct list_req *req, struct resource_list *ret,
                       struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list nodes = {0};
    GP_AUTO_RESOURCES struct resource_list addresses = {0};
    GP_AUTO_RESOURCES struct resource_list others = {0};
    if (req->images) return 0;
    int r = os_servers_list(o, region, &nodes, err);
    int read = r;
    if (r == 0) r = os_addresses_list(o, region, req->known, &addresses, err);
    struct gp_error hidden = {0}; /* what can be read is listed nevertheless */
    int granted = r == 0 && !req->nodes_only ? os_grants_list(o, region, req->known, &nodes, &others, &hidden) : 0;
    if (read == 0) {
        GP_AUTO_RESOURCES struct resource_list mine = {0};
        keep(req, &nodes, &mine);
        set_public(&mine, &addresses);
        for (size_t i = 0; i < mine.list.len; i++) {
            if (mine.list.items[i].state == RES_STOPPED) os_fault_of(o, &mine.list.items[i]);
            vec_push(&ret->list, mine.list.items[i]);
        }
        vec_free(&mine.list);
    }
    if (r == 0 && !req->nodes_only) r = os_groups_list(o, region, &others, err);
    if (r == 0 && !req->nodes_only) r = os_claims_list(o, region, &others, err);
    if (r == 0 && granted != 0) {
        r = granted;
        if (err != NULL) *err = hidden;
    }
    if (!req->nodes_only) keep(req, &addresses, ret);
    if (!req->nodes_only) keep(req, &others, ret);
    return r;
}

static int regions_of(struct os *o, const struct list_req *req, struct strv *ret, struct gp_error *err) {
    GP_AUTO_STRV struct strv all = {0};
    if (req->regions != NULL) strv_copy(ret, req->regions);
    if (req->regions != NULL && !req->everywhere) return 0;
    os_regions(o, &all);
    strv_merge(ret, &all);
    if (all.n == 0)
        return gp_fail(err, GP_EPROTO, "openstack: the catalogue has no compute service: check the interface");
    return 0;
}

int os_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    struct os *o = os_of(p);
    GP_AUTO_STRV struct strv regions = {0};
    struct gp_error first = {0};
    int r = regions_of(o, req, &regions, &first);
    if (r != 0 && req->looked != NULL) coverage_put(req->looked, "openstack", "", req->owner, true, &first);
    for (size_t i = 0; i < regions.n; i++) {
        struct gp_error e = {0};
        int one = list_region(o, regions.v[i], req, ret, &e);
        if (req->looked != NULL)
            coverage_put(req->looked, "openstack", regions.v[i], req->owner, true, one != 0 ? &e : NULL);
        if (one != 0 && first.code == GP_OK) first = e;
        if (one == -GP_ECANCELLED) break;
    }
    if (first.code == GP_OK) return 0;
    if (err != NULL) *err = first;
    return gp_wrap(err, "listing the resources of '%s'", req->owner);
}
