// SPDX-License-Identifier: Apache-2.0
/* Ends servers, then the floating addresses that they leave, then groups, the claim last. nova's 204 to a DELETE is no
 * proof: the server may come back in ERROR, and list shows it then. Also the late tag and the console. One thread. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#include "base/clock.h"
#include "providers/common/ownership.h"

static void first_error(struct gp_error *to, const struct gp_error *e) {
    if (to->code == GP_OK) *to = *e;
}

/* -GP_EEXISTS: still in use. */
static int delete_path(struct os *o, enum os_service service, const char *region, const char *path,
                       struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    struct os_call c = {.service = service, .region = region, .method = "DELETE", .path = path, .flags = REST_MISSING};
    int r = os_call(o, &c, &reply, err);
    return r == -GP_ENOTFOUND ? 0 : r;
}

/* What is still in use is deleted later: list shows it until then. */
static bool is_ended(int rc) { return rc == 0 || rc == -GP_EEXISTS; }

/* Read before it is deleted: a key pair of that name may be the claim of a later stack. */
int os_claim_delete(struct os *o, const struct resource *claim, struct gp_error *err) {
    GP_AUTO_FREE char *name = os_claim_name(claim->owner, claim->stack);
    GP_AUTO_FREE char *path = xasprintf("/os-keypairs/%s", name);
    struct resource there = {0};
    struct tags t;
    tags_init(&t);
    int r = os_claim_get(o, claim->region, name, &there, &t, err);
    bool its = r == 0 && there.id != NULL && str_eq(there.id, claim->id);
    if (its) {
        r = delete_path(o, OS_COMPUTE, claim->region, path, err);
        if (is_ended(r)) {
            if (err != NULL) gp_error_clear(err);
            r = 0;
        }
    }
    resource_clear(&there);
    tags_clear(&t);
    return r;
}

static void delete_one(struct os *o, enum os_service service, const struct resource *r, const char *folder,
                       struct gp_error *first) {
    struct gp_error e = {0};
    GP_AUTO_FREE char *path = xasprintf("/%s/%s", folder, r->id);
    if (!os_uuid(r->id)) gp_fail(&e, GP_EUSAGE, "openstack: '%.60s' is not an id", r->id);
    else if (is_ended(delete_path(o, service, r->region, path, &e))) return;
    first_error(first, &e);
}

/* A group that only ports of vanished servers keep in use is free without them. */
static void delete_group(struct os *o, const struct resource *r, struct gp_error *first) {
    struct gp_error e = {0};
    GP_AUTO_FREE char *path = xasprintf("/security-groups/%s", r->id);
    size_t ports = 0;
    if (!os_uuid(r->id)) {
        gp_fail(&e, GP_EUSAGE, "openstack: '%.60s' is not an id", r->id);
    } else {
        int rc = delete_path(o, OS_NETWORK, r->region, path, &e);
        if (rc == -GP_EEXISTS) {
            gp_error_clear(&e);
            rc = os_ports_end(o, r->region, r->id, &ports, &e);
            if (rc == 0 && ports > 0) rc = delete_path(o, OS_NETWORK, r->region, path, &e);
        }
        if (is_ended(rc)) return;
    }
    first_error(first, &e);
}

/* --- servers --- */

static bool is_node(const struct os *o, const struct resource *r) {
    return r->kind == RES_INSTANCE && r->state != RES_GONE && cloud_is_ours(&o->base, r) && os_uuid(r->id);
}

/* One DELETE for each, side by side. */
static void delete_servers(struct os *o, const struct resource_list *what, struct gp_error *first) {
    size_t n = 0;
    struct os_call *calls = xcalloc(what->list.len + 1, sizeof *calls);
    struct rest_result *results = xcalloc(what->list.len + 1, sizeof *results);
    GP_AUTO_STRV struct strv paths = {0};
    struct gp_error e = {0};
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        if (!is_node(o, r)) continue;
        strv_take(&paths, xasprintf("/servers/%s", r->id));
        calls[n++] = (struct os_call){.service = OS_COMPUTE,
                                      .region = r->region,
                                      .method = "DELETE",
                                      .path = paths.v[paths.n - 1],
                                      .flags = REST_MISSING};
    }
    if (n > 0 && os_call_many(o, calls, n, results, &e) != 0) first_error(first, &e);
    for (size_t i = 0; i < n; i++) {
        bool gone = results[i].rc == 0 || results[i].rc == -GP_ENOTFOUND || results[i].rc == -GP_EEXISTS;
        if (!gone) first_error(first, &results[i].err);
        rest_reply_clear(&results[i].reply);
    }
    free(results);
    free(calls);
}

int os_servers_end(struct os *o, const struct resource_list *what, struct gp_error *err) {
    enum { EVERY_MS = 500, AGAIN = 10, MOST_MS = 60000 };
    int64_t until = clock_deadline(MOST_MS);
    for (int round = 0;; round++) {
        struct gp_error first = {0};
        const struct resource *left = NULL;
        if (round % AGAIN == 0) delete_servers(o, what, &first);
        for (size_t i = 0; first.code == GP_OK && left == NULL && i < what->list.len; i++) {
            GP_AUTO_REST struct rest_reply reply = {0};
            const struct resource *r = &what->list.items[i];
            GP_AUTO_FREE char *path = xasprintf("/servers/%s", r->id);
            struct os_call c = {
                .service = OS_COMPUTE, .region = r->region, .method = "GET", .path = path, .flags = REST_MISSING};
            if (is_node(o, r) && os_call(o, &c, &reply, &first) == 0 && reply.status != 404) left = r;
        }
        if (first.code == GP_OK && left == NULL) return 0;
        if (first.code == GP_OK && clock_left_ms(until) == 0)
            gp_fail(&first, GP_EBILLED, "openstack: the server %s is still there after its DELETE", left->id);
        if (first.code != GP_OK) {
            if (err != NULL) *err = first;
            return -(int)first.code;
        }
        int r = gp_sleep(EVERY_MS, o->cancel, err);
        if (r != 0) return r;
    }
}

/* Addresses of the servers that are to end here, also where the list given is older than they are. Read while the
 * servers are there: without its port an address is no server's. */
static void read_addresses(struct os *o, const struct resource_list *what, struct resource_list *ret,
                           struct gp_error *first) {
    GP_AUTO_STRV struct strv regions = {0};
    for (size_t i = 0; i < what->list.len; i++)
        if (is_node(o, &what->list.items[i]) && !strv_has(&regions, what->list.items[i].region))
            strv_add(&regions, what->list.items[i].region);
    for (size_t k = 0; k < regions.n; k++) {
        GP_AUTO_STRV struct strv servers = {0};
        struct gp_error e = {0};
        for (size_t i = 0; i < what->list.len; i++)
            if (is_node(o, &what->list.items[i]) && str_eq(what->list.items[i].region, regions.v[k]))
                strv_add(&servers, what->list.items[i].id);
        if (os_addresses_of(o, regions.v[k], &servers, ret, &e) != 0) first_error(first, &e);
    }
}

/* Another stack's address, as its description tells, stays. */
static bool is_of_nodes(const struct os *o, const struct resource *address, const struct resource_list *what) {
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *n = &what->list.items[i];
        if (is_node(o, n) && n->uid[0] != '\0' && str_eq(n->uid, address->uid) && str_eq(n->owner, address->owner))
            return true;
    }
    return false;
}

/* What still exists of the stack in the claim's region: the claim must outlive it. */
static int others_left(struct os *o, const struct resource *claim, size_t *ret, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    *ret = 0;
    int r = os_servers_list(o, claim->region, &all, err);
    if (r == 0) r = os_addresses_list(o, claim->region, NULL, &all, err);
    if (r == 0) r = os_groups_list(o, claim->region, &all, err);
    if (r == 0) r = os_grants_list(o, claim->region, NULL, &all, &all, err);
    for (size_t i = 0; r == 0 && i < all.list.len; i++)
        *ret += str_eq(all.list.items[i].uid, claim->uid) && all.list.items[i].state != RES_GONE;
    return r;
}

int os_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err) {
    struct os *o = os_of(p);
    struct gp_error first = {0};
    bool elsewhere = false; /* a region that the claim's list does not show */
    GP_AUTO_RESOURCES struct resource_list addresses = {0};
    read_addresses(o, what, &addresses, &first);
    delete_servers(o, what, &first);
    for (size_t i = 0; i < addresses.list.len; i++)
        if (is_of_nodes(o, &addresses.list.items[i], what))
            delete_one(o, OS_NETWORK, &addresses.list.items[i], "floatingips", &first);
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        struct gp_error e = {0};
        if (!cloud_is_ours(p, r)) {
            gp_fail(&e, GP_EUSAGE, "openstack: %s belongs to '%s', not to '%s': left alone", r->id, r->owner, p->owner);
            first_error(&first, &e);
        } else if (r->kind == RES_ADDRESS && r->state != RES_GONE) {
            delete_one(o, OS_NETWORK, r, "floatingips", &first);
        } else if (r->kind == RES_GRANT && r->state != RES_GONE) {
            if (os_grant_end(o, r, &e) != 0) first_error(&first, &e);
        } else if (r->kind == RES_GROUP && r->state != RES_GONE) {
            delete_group(o, r, &first);
            strv_clear(&o->cache->groups_ready);
        }
    }
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        struct gp_error e = {0};
        size_t n = 0;
        if (r->kind != RES_KEY_PAIR || r->state == RES_GONE || !cloud_is_ours(p, r) || first.code != GP_OK) continue;
        for (size_t k = 0; k < what->list.len; k++)
            elsewhere =
                elsewhere || (!str_eq(what->list.items[k].region, r->region) && what->list.items[k].state != RES_GONE &&
                              what->list.items[k].kind != RES_KEY_PAIR);
        if (elsewhere) continue;
        if (others_left(o, r, &n, &e) == 0 && (n > 0 || os_claim_delete(o, r, &e) == 0)) continue;
        first_error(&first, &e);
    }
    if (first.code == GP_OK) return 0;
    if (err != NULL) *err = first;
    return -(int)first.code;
}

/* --- late tags and the console --- */

int os_tag_late(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
                struct gp_error *err) {
    struct os *o = os_of(p);
    GP_AUTO_JSON json_t *j = json_pack("{s:{}}", "metadata");
    for (size_t t = 0; t < n; t++) {
        GP_AUTO_FREE char *full = xasprintf("%s%s", labels_openstack.prefix, tags[t].key);
        json_object_set_new(json_at(j, "metadata"), full, json_string(tags[t].value));
    }
    GP_AUTO_FREE char *body = json_text(j, 0);
    for (size_t i = 0; i < what->list.len; i++) {
        GP_AUTO_REST struct rest_reply reply = {0};
        const struct resource *r = &what->list.items[i];
        if (!is_node(o, r)) continue;
        GP_AUTO_FREE char *path = xasprintf("/servers/%s/metadata", r->id);
        struct os_call c = {.service = OS_COMPUTE, .region = r->region, .method = "POST", .path = path, .body = body};
        int rc = os_call(o, &c, &reply, err);
        if (rc != 0) return rc;
    }
    return 0;
}

int os_console(struct provider *p, const struct resource *machine, struct str *ret, struct gp_error *err) {
    enum { LINES = 600, BYTES = 65536 };
    struct os *o = os_of(p);
    GP_AUTO_REST struct rest_reply reply = {0};
    if (!os_uuid(machine->id)) return gp_fail(err, GP_EUSAGE, "openstack: '%.60s' is not an id", machine->id);
    GP_AUTO_FREE char *path = xasprintf("/servers/%s/action", machine->id);
    GP_AUTO_JSON json_t *j = json_pack("{s:{s:i}}", "os-getConsoleOutput", "length", LINES);
    GP_AUTO_FREE char *body = json_text(j, 0);
    struct os_call c = {.service = OS_COMPUTE,
                        .region = machine->region,
                        .method = "POST",
                        .path = path,
                        .body = body,
                        .flags = REST_OPTIONAL};
    int r = os_call(o, &c, &reply, err);
    if (r != 0) return r;
    const json_t *output = json_object_get(reply.json, "output");
    const char *text = json_is_string(output) ? json_string_value(output) : "";
    size_t n = strlen(text);
    str_add(ret, text + (n > BYTES ? n - BYTES : 0));
    return 0;
}
