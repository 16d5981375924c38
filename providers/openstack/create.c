// SPDX-License-Identifier: Apache-2.0
/* Launches a gang with one request per server (common/slot_create.h): each has its own name, tags and slot, its id is
 * in the reply, and a server that fails after the 202 is known by itself. One call with min_count would give one id for
 * all, equal tags, and every server in ERROR when one finds no host. A slot is settled once its server is ACTIVE and
 * has its public address: until then the intent stays open, and a replay goes on with it. One thread. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#include "base/clock.h"
#include "base/hash.h"
#include "providers/common/intents.h"
#include "providers/common/launch/slot_create.h"

struct launching {
    struct os *o;
    const struct create_req *req;
    const char *group;  /* NULL: a replay */
    const char *flavor; /* its id */
    bool addresses;     /* each server needs a floating IP */
};

static int on_body(void *ctx, const struct create_req *req, int slot, const char *token, struct str *out,
                   struct gp_error *err) {
    const struct launching *l = ctx;
    const struct offer *offer = req->offer;
    struct tags t;
    cloud_launch_tags(req, slot, 1, &t);
    json_t *metadata = os_metadata(&t);
    tags_clear(&t);
    if (metadata == NULL)
        return gp_fail(err, GP_EUSAGE,
                       "openstack: the tags of node %d do not fit nova's metadata: give a shorter --owner", slot);
    GP_AUTO_FREE char *name = xasprintf("gpuprov-%s-%d", req->stack->name, slot);
    GP_AUTO_FREE char *uid = xasprintf("gpuprov-uid-%s", req->stack->uid);
    GP_AUTO_FREE char *launch = xasprintf("gpuprov-launch-%.40s", token);
    json_t *server =
        json_pack("{s:s,s:s,s:s,s:[{s:s}],s:[{s:s}],s:o,s:[s,s,s]}", "name", name, "imageRef", offer->image,
                  "flavorRef", l->flavor, "networks", "uuid", offer->subnet, "security_groups", "name", l->group,
                  "metadata", metadata, "tags", "gpuprov", uid, launch);
    if (req->user_data[0] != '\0') {
        GP_AUTO_FREE char *coded = base64_text(req->user_data, strlen(req->user_data));
        json_object_set_new(server, "user_data", json_string(coded));
    }
    if (offer->zone[0] != '\0') json_object_set_new(server, "availability_zone", json_string(offer->zone));
    GP_AUTO_JSON json_t *j = json_pack("{s:o}", "server", server);
    GP_AUTO_FREE char *text = json_text(j, 0);
    str_add(out, text);
    return 0;
}

/* --- outcomes --- */

/* The server of an accepted request, before a reply with all of it. */
static void set_made(const struct launching *l, const struct intent *in, const char *id, struct resource *made) {
    struct tags t;
    cloud_launch_tags(l->req, in->slot_first, 1, &t);
    t.attempt = in->attempt;
    tags_to_resource(&t, 0, made);
    tags_clear(&t);
    resource_set(&made->uid, in->uid);
    resource_set(&made->id, id);
    resource_set(&made->region, in->region);
    resource_set(&made->zone, in->zone);
    resource_set(&made->account, l->o->project_id);
    resource_set(&made->user, "gpuprov");
    made->state = RES_PENDING;
    made->billed = true;
}

static void unknown(struct slot_outcome *ret, const char *text) {
    ret->state = SLOT_UNKNOWN;
    gp_error_clear(&ret->err);
    gp_fail(&ret->err, GP_EUNKNOWN, "%s", text);
}

static void on_send(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
    struct launching *l = ctx;
    struct os_call *calls = xcalloc(n + 1, sizeof *calls);
    struct rest_result *results = xcalloc(n + 1, sizeof *results);
    struct gp_error why = {0};
    for (size_t i = 0; i < n; i++)
        calls[i] = (struct os_call){.service = OS_COMPUTE,
                                    .region = in[i]->region,
                                    .method = "POST",
                                    .path = "/servers",
                                    .body = in[i]->body,
                                    .flags = REST_ONCE};
    int r = os_call_many(l->o, calls, n, results, &why);
    for (size_t i = 0; i < n; i++) {
        const char *id = json_str(results[i].reply.json, "server.id", "");
        if (r != 0 || results[i].rc != 0) {
            ret[i].err = r != 0 ? why : results[i].err;
            ret[i].state = r == 0 && results[i].rc == -GP_EUNKNOWN ? SLOT_UNKNOWN : SLOT_REFUSED;
        } else if (!os_uuid(id)) {
            unknown(&ret[i], "openstack: the reply to a new server has no id");
        } else {
            ret[i].state = SLOT_ACCEPTED;
            free(ret[i].operation);
            ret[i].operation = xstrdup(id);
            set_made(l, in[i], id, &ret[i].made);
        }
        rest_reply_clear(&results[i].reply);
    }
    free(results);
    free(calls);
}

/* Decides from the server's state. ACTIVE without its public address is not settled yet. */
static void judge(struct launching *l, const struct intent *in, struct resource *server, struct slot_outcome *ret) {
    bool missing = false;
    struct tags t;
    GP_AUTO_FREE char *what = xasprintf("openstack: node %d in %s (%s)", in->slot_first, in->region, server->id);
    if (server->state == RES_PENDING) return;
    if (server->state != RES_RUNNING) {
        os_fault_of(l->o, server);
        os_fault(&ret->err, what, server->state_reason);
        ret->state = SLOT_REFUSED;
        return;
    }
    if (l->addresses) {
        cloud_launch_tags(l->req, in->slot_first, 1, &t);
        t.attempt = in->attempt;
        int r = os_address_ensure(l->o, in, &t, server, &missing, &ret->err);
        tags_clear(&t);
        if (r == -GP_ECANCELLED || r == -GP_EENDPOINT || r == -GP_ELOST) gp_error_clear(&ret->err); /* the next poll */
        else if (r != 0) ret->state = SLOT_REFUSED;
        if (r != 0 || missing) return;
    }
    ret->state = SLOT_MADE;
}

static void on_poll(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
    struct launching *l = ctx;
    struct os_call *calls = xcalloc(n + 1, sizeof *calls);
    struct rest_result *results = xcalloc(n + 1, sizeof *results);
    GP_AUTO_STRV struct strv paths = {0};
    struct gp_error why = {0};
    for (size_t i = 0; i < n; i++) {
        bool sound = os_uuid(ret[i].operation); /* it may come from a journal */
        strv_take(&paths, xasprintf("/servers/%s", sound ? ret[i].operation : "malformed"));
        calls[i] = (struct os_call){
            .service = OS_COMPUTE, .region = in[i]->region, .method = "GET", .path = paths.v[i], .flags = REST_MISSING};
    }
    int r = os_call_many(l->o, calls, n, results, &why);
    for (size_t i = 0; i < n; i++) {
        struct resource server;
        if (r == -GP_EAUTH || (r == 0 && results[i].rc == -GP_EAUTH)) { /* no later poll gets a reply either */
            ret[i].err = r != 0 ? why : results[i].err;
            ret[i].state = SLOT_UNKNOWN;
            continue;
        }
        if (r != 0 || results[i].rc != 0) continue; /* asked again, until the time is over */
        if (results[i].reply.status == 404) {
            ret[i].state = SLOT_REFUSED;
            resource_set(&ret[i].made.id, "");
            gp_fail(&ret[i].err, GP_ELOST, "openstack: the server of node %d (%s) was deleted while it was built",
                    in[i]->slot_first, ret[i].operation);
            ret[i].err.scope = GP_SCOPE_ZONE;
            continue;
        }
        gp_error_clear(&ret[i].err);
        if (os_server_read(json_object_get(results[i].reply.json, "server"), in[i]->region, &server, &ret[i].err) == 0)
            judge(l, in[i], &server, &ret[i]);
        if (ret[i].state == SLOT_MADE || ret[i].state == SLOT_REFUSED) {
            resource_clear(&ret[i].made);
            ret[i].made = server;
        } else {
            resource_clear(&server);
        }
    }
    for (size_t i = 0; i < n; i++) rest_reply_clear(&results[i].reply);
    free(results);
    free(calls);
}

/* A server without the proof of a launch of the stack gets no address, is not waited for and not ended. */
static bool is_candidate(const struct launching *l, const struct resource *s, const char *uid) {
    return str_eq(s->uid, uid) && str_eq(s->owner, l->o->base.owner) && proof_launch_holds(l->req->proof, s);
}

/* Of a request without a reply: the servers that were built. One in BUILD is waited for, and one in ERROR is removed:
 * neither is a node yet. Read at least twice: one list that lacks a server proves nothing. */
static int on_list(void *ctx, const char *region, const char *uid, struct resource_list *ret, struct gp_error *err) {
    struct launching *l = ctx;
    int64_t until = clock_deadline(OS_PLACEMENT_MS);
    for (int round = 0;; round++) {
        GP_AUTO_RESOURCES struct resource_list all = {0};
        struct resource_list failed = {0}; /* borrowed */
        size_t building = 0;
        int r = os_servers_list(l->o, region, &all, err);
        for (size_t i = 0; r == 0 && i < all.list.len; i++) {
            struct resource *s = &all.list.items[i];
            if (!is_candidate(l, s, uid)) continue;
            bool missing = false;
            struct tags t;
            if (s->state == RES_RUNNING && l->addresses) {
                struct intent of = {.uid = s->uid, .region = s->region, .deadline_s = s->expires_s};
                cloud_launch_tags(l->req, s->slot, 1, &t);
                t.attempt = s->attempt;
                r = os_address_ensure(l->o, &of, &t, s, &missing, err);
                tags_clear(&t);
            }
            if (s->state == RES_PENDING || missing) building++;
            if (strcmp(s->state_reason, "ERROR") == 0) vec_push(&failed.list, *s);
        }
        if (r == 0 && failed.list.len > 0) r = os_servers_end(l->o, &failed, err);
        vec_free(&failed.list);
        for (size_t i = 0; r == 0 && building == 0 && round > 0 && i < all.list.len; i++) {
            const struct resource *s = &all.list.items[i];
            if (is_candidate(l, s, uid) && s->state == RES_RUNNING) resource_list_add(ret, s);
        }
        if (r != 0 || (building == 0 && round > 0)) return r;
        if (clock_left_ms(until) == 0)
            return gp_fail(err, GP_EUNKNOWN, "openstack: %zu servers are still being built: run the same command again",
                           building);
        r = gp_sleep(500, l->o->cancel, err);
        if (r != 0) return r;
    }
}

static int on_destroy(void *ctx, const struct resource_list *what, struct gp_error *err) {
    struct launching *l = ctx;
    return os_servers_end(l->o, what, err);
}

static const struct slot_ops slots = {.provider = "openstack",
                                      .settle_ms = 30 * 1000,
                                      .poll_ms = 1000,
                                      .placement_ms = OS_PLACEMENT_MS,
                                      .replay_max_s = 0,
                                      .body = on_body,
                                      .send = on_send,
                                      .poll = on_poll,
                                      .list = on_list,
                                      .destroy = on_destroy};

/* --- before the requests --- */

static int check_quota(struct os *o, const struct create_req *req, struct gp_error *err) {
    struct os_quota q;
    const struct offer *offer = req->offer;
    int n = req->slot_count, memory_mib = (int)(offer->memory_gib * 1024);
    int r = os_quota_get(o, offer->region, &q, err);
    if (r != 0) return r;
    bool servers = q.instances >= 0 && q.instances < n, cores = q.cores >= 0 && q.cores < (int64_t)n * offer->vcpus;
    bool memory = q.memory_mib >= 0 && q.memory_mib < (int64_t)n * memory_mib;
    if (!servers && !cores && !memory) return 0;
    r = gp_fail(
        err, GP_EQUOTA,
        "openstack %s: the quota of project %s has room for %d servers, %d cores and %d MiB, and %d nodes of %s "
        "need %d, %d and %d: end servers, or ask the cloud's operator for more",
        offer->region, o->project_name, q.instances, q.cores, q.memory_mib, n, offer->instance_type, n,
        n * offer->vcpus, n * memory_mib);
    if (err != NULL) {
        err->domain = GP_D_CLOUD;
        err->scope = GP_SCOPE_REGION;
        str_put(err->detail, sizeof err->detail, "quota");
    }
    return r;
}

static int find_flavor(struct os *o, const struct offer *offer, const char **ret, struct gp_error *err) {
    const struct os_flavors *all = NULL;
    int r = os_flavors_get(o, offer->region, &all, err);
    for (size_t i = 0; r == 0 && i < all->list.len; i++)
        if (strcmp(all->list.items[i].name, offer->instance_type) == 0) {
            *ret = all->list.items[i].id;
            return 0;
        }
    return r != 0 ? r
                  : gp_fail(err, GP_EUSAGE, "openstack %s has no flavor '%.80s' any more", offer->region,
                            offer->instance_type);
}

/* The network of a replay is in the body of its request. */
static int network_of(const struct create_req *req, struct str *ret, struct gp_error *err) {
    GP_AUTO_JSON json_t *body = NULL;
    if (req->replay == NULL) {
        str_add(ret, req->offer->subnet);
        return 0;
    }
    int r = json_parse(req->replay->body, strlen(req->replay->body), "the request in the journal", &body, err);
    if (r == 0) str_add(ret, json_str(body, "server.networks.0.uuid", ""));
    return r;
}

/* A node in an external network has a public address of its own. */
static int needs_addresses(struct os *o, const struct create_req *req, bool *ret, struct gp_error *err) {
    const struct os_network *network = NULL;
    GP_AUTO_STR struct str name = {0};
    *ret = false;
    if (req->spec == NULL || !req->spec->access.public_ip) return 0;
    int r = network_of(req, &name, err);
    if (r == 0) r = os_network_find(o, req->offer->region, name.s, &network, err);
    if (r == 0) *ret = !network->external;
    return r;
}

int os_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err) {
    struct os *o = os_of(p);
    struct launching l = {.o = o, .req = req};
    struct slot_create c = {.ops = &slots,
                            .ctx = &l,
                            .account = o->project_id,
                            .journal = o->journal,
                            .cancel = (void *)(uintptr_t)o->cancel};
    GP_AUTO_FREE char *group = NULL;
    int r = needs_addresses(o, req, &l.addresses, err);
    if (r == 0 && req->replay == NULL) {
        r = check_quota(o, req, err);
        if (r == 0) r = find_flavor(o, req->offer, &l.flavor, err);
        if (r == 0) r = os_group_ensure(o, req->stack, req->spec, req->offer->region, &group, err);
        l.group = group;
    }
    return r != 0 ? r : slot_create(&c, req, ret, err);
}
