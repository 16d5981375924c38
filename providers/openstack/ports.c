// SPDX-License-Identifier: Apache-2.0
/* Ports that nova left: a build that failed half-way, or a compute host that was lost, can leave the port of a server
 * that no longer exists. Such a port keeps the stack's security group in use for ever. One thread. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

struct found {
    const char *group;
    struct strv ports, servers; /* in parallel */
};

/* nova's ports have its server as device_id, and "compute:ZONE" as device_owner. */
static int on_port(void *ctx, const json_t *item, struct gp_error *err) {
    struct found *f = ctx;
    const char *id = json_str(item, "id", ""), *server = json_str(item, "device_id", "");
    const json_t *group = NULL;
    bool member = false;
    size_t i = 0;
    if (!os_uuid(id))
        return gp_fail(err, GP_EPROTO, "openstack: a port has a malformed id: run the same command again");
    json_array_foreach(json_object_get(item, "security_groups"), i, group) member =
        member || (json_is_string(group) && strcmp(json_string_value(group), f->group) == 0);
    if (!member || !os_uuid(server) || !str_starts(json_str(item, "device_owner", ""), "compute:")) return 0;
    strv_add(&f->ports, id);
    strv_add(&f->servers, server);
    return 0;
}

static int end_port(struct os *o, const char *region, const char *port, const char *server, size_t *ret,
                    struct gp_error *err) {
    GP_AUTO_REST struct rest_reply there = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *server_path = xasprintf("/servers/%s", server);
    GP_AUTO_FREE char *path = xasprintf("/ports/%s", port);
    struct os_call look = {
        .service = OS_COMPUTE, .region = region, .method = "GET", .path = server_path, .flags = REST_MISSING};
    struct os_call end = {
        .service = OS_NETWORK, .region = region, .method = "DELETE", .path = path, .flags = REST_MISSING};
    int r = os_call(o, &look, &there, err);
    if (r != 0 || there.status != 404) return r;
    r = os_call(o, &end, &reply, err);
    if (r == 0 || r == -GP_ENOTFOUND) (*ret)++;
    return r == -GP_ENOTFOUND ? 0 : r;
}

int os_ports_end(struct os *o, const char *region, const char *group, size_t *ret, struct gp_error *err) {
    struct found f = {.group = group};
    GP_AUTO_STR struct str path = {0};
    static const char *const fields[] = {"id", "device_id", "device_owner", "security_groups"};
    str_add(&path, "/ports");
    rest_query(&path, "project_id", o->project_id);
    for (size_t i = 0; i < GP_ARRAY_LEN(fields); i++) rest_query(&path, "fields", fields[i]);
    struct os_list list = {
        .service = OS_NETWORK, .region = region, .path = path.s, .items = "ports", .each = on_port, .ctx = &f};
    *ret = 0;
    int r = os_pages(o, &list, err);
    for (size_t i = 0; r == 0 && i < f.ports.n; i++) r = end_port(o, region, f.ports.v[i], f.servers.v[i], ret, err);
    strv_clear(&f.ports);
    strv_clear(&f.servers);
    return r != 0 ? gp_wrap(err, "openstack: the ports of security group %s", group) : 0;
}
