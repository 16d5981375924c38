// SPDX-License-Identifier: Apache-2.0
/* Lists the resources of stacks: groups by name or tag, and in each group its machines with their power states and
 * addresses, disks, availability sets, security groups and networks. Does not read the journal. One thread. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/catalog/catalog.h"
#include "providers/common/places.h"

#define AT_ONCE 8

static void set_text(char **field, const char *text) {
    resource_set(field, text);
    str_one_line(*field);
}

/* --- machines --- */

static enum resource_state vm_state(const char *provisioning) {
    if (strcasecmp(provisioning, "Creating") == 0 || strcasecmp(provisioning, "Updating") == 0) return RES_PENDING;
    if (strcasecmp(provisioning, "Deleting") == 0) return RES_STOPPING;
    if (strcasecmp(provisioning, "Failed") == 0 || strcasecmp(provisioning, "Canceled") == 0) return RES_STOPPED;
    return RES_RUNNING; /* Succeeded, and states that this program does not know: not gone */
}

/* A stopped machine is billed as a running one; a deallocated one is billed for its disk. */
static void apply_power(struct resource *r, const json_t *view) {
    size_t i = 0;
    json_t *s = NULL;
    json_array_foreach(json_at(view, "statuses"), i, s) {
        const char *code = json_str(s, "code", "");
        if (strcmp(code, "PowerState/running") == 0 && r->state == RES_PENDING) r->state = RES_RUNNING;
        if (strcmp(code, "PowerState/starting") == 0 && r->state == RES_RUNNING) r->state = RES_PENDING;
        bool off = strcmp(code, "PowerState/stopped") == 0 || strcmp(code, "PowerState/stopping") == 0;
        bool freed = strcmp(code, "PowerState/deallocated") == 0 || strcmp(code, "PowerState/deallocating") == 0;
        if ((off || freed) && r->state != RES_STOPPING) {
            r->state = RES_STOPPED;
            resource_set(&r->state_reason, freed ? "deallocated or evicted: its disk is still billed"
                                                 : "stopped: it is billed as a running machine");
        }
        if (str_starts(code, "ProvisioningState/failed")) set_text(&r->state_reason, json_str(s, "message", code));
    }
}

static bool is_type(const char *type, const char *space, const char *name) {
    size_t n = strlen(space);
    return strncasecmp(type, space, n) == 0 && type[n] == '/' && strcasecmp(type + n + 1, name) == 0;
}

int azure_vm_read(const struct azure *a, const json_t *item, struct resource *ret, struct gp_error *err) {
    GP_AUTO_FREE char *group = NULL, *type = NULL, *name = NULL, *region = NULL;
    struct tags tags;
    resource_init(ret, RES_INSTANCE, "azure");
    if (!azure_id_split(a, json_str(item, "id", ""), &group, &type, &name) ||
        !is_type(type, "Microsoft.Compute", AZURE_VM))
        return gp_fail(err, GP_EPROTO,
                       "azure: a reply has an id that is not that of a virtual machine of this "
                       "subscription");
    region = azure_region(json_str(item, "location", ""));
    resource_set(&ret->region, region);
    azure_tags_decode(json_at(item, "tags"), &tags);
    tags_to_resource(&tags, 0, ret);
    tags_clear(&tags);
    free(ret->id);
    ret->id = azure_handle_text(group, AZURE_VM, name, ret->uid);
    const char *zone = json_str(item, "zones.0", ""), *size = json_str(item, "properties.hardwareProfile.vmSize", "");
    GP_AUTO_FREE char *named = xasprintf("%s-%s", region, zone);
    bool one = strlen(zone) == 1 && *zone >= '1' && *zone <= '9';
    resource_set(&ret->zone, one ? named : "");
    resource_set(&ret->instance_type, form_word(size) ? size : "");
    const struct catalog_size *known = catalog_azure_size(ret->instance_type);
    ret->gpus = known != NULL ? known->gpus : -1;
    bool together = json_str(item, "properties.availabilitySet.id", "")[0] != '\0';
    ret->rdma = together ? azure_fabric_cards(ret->instance_type, ret->gpus) : -1;
    resource_set(&ret->user, "gpuprov");
    resource_set(&ret->account, a->subscription);
    ret->state = vm_state(json_str(item, "properties.provisioningState", ""));
    apply_power(ret, json_at(item, "properties.instanceView"));
    ret->billed = true;
    bool spot = strcasecmp(json_str(item, "properties.priority", ""), "Spot") == 0;
    if (ret->price_usd_per_h < 0 && !spot) ret->price_usd_per_h = catalog_azure_price(ret->instance_type, region);
    ret->created_s = 0;
    if (!time_parse_utc(json_str(item, "properties.timeCreated", ""), &ret->created_s)) ret->created_s = 0;
    return 0;
}

struct reading {
    struct azure *a;
    struct resource_list *vms, *parts;
    const struct azure_group *group;
    json_t *nics, *ips; /* id in lower case: item */
    json_t *rights;     /* id of a machine: its identity and its role */
    json_t *grants;     /* role assignments */
};

static int on_vm(void *ctx, const json_t *item, struct gp_error *err) {
    struct reading *r = ctx;
    struct resource one;
    int rc = azure_vm_read(r->a, item, &one, err);
    if (rc == 0) {
        json_object_set_new(r->rights, one.id,
                            json_pack("{s:s,s:s}", "principal", azure_vm_principal(item), "role", azure_vm_role(item)));
        vec_push(&r->vms->list, one);
    } else {
        resource_clear(&one);
    }
    return rc;
}

/* The list of machines has no power states: each is read by itself, side by side. */
static int read_views(struct azure *a, struct resource_list *vms, struct gp_error *err) {
    size_t n = vms->list.len;
    struct rest_call *calls = xcalloc(n + 1, sizeof *calls);
    struct rest_result *results = xcalloc(n + 1, sizeof *results);
    GP_AUTO_STRV struct strv texts = {0};
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        GP_AUTO_AZURE_HANDLE struct azure_handle h = {0};
        if (!azure_handle_read(vms->list.items[i].id, &h)) h.group = xstrdup("");
        char *url =
            azure_url(a, AZURE_COMPUTE, "/resourceGroups/%s/providers/Microsoft.Compute/" AZURE_VM "/%s/instanceView",
                      h.group, h.name != NULL ? h.name : "");
        strv_take(&texts, azure_what("GET", url));
        strv_take(&texts, url);
        calls[i] = (struct rest_call){.what = texts.v[2 * i], .method = "GET", .url = url, .flags = REST_MISSING};
    }
    rest_call_many(&a->rest, calls, n, AT_ONCE, results);
    for (size_t i = 0; i < n; i++) {
        struct resource *r = &vms->list.items[i];
        if (results[i].rc != 0 && rc == 0) {
            rc = results[i].rc;
            if (err != NULL) *err = results[i].err;
        }
        if (results[i].rc == 0 && results[i].reply.status == 404) r->state = RES_STOPPING; /* it ends just now */
        else if (results[i].rc == 0) apply_power(r, results[i].reply.json);
        rest_reply_clear(&results[i].reply);
    }
    free(calls);
    free(results);
    return rc;
}

/* --- addresses --- */

static int keep_by_id(json_t *to, const json_t *item) {
    GP_AUTO_FREE char *id = xstrdup(json_str(item, "id", ""));
    for (char *p = id; *p != '\0'; p++) *p = (char)(*p >= 'A' && *p <= 'Z' ? *p - 'A' + 'a' : *p);
    json_object_set_new(to, id, json_deep_copy(item));
    return 0;
}

static int on_nic(void *ctx, const json_t *item, struct gp_error *err) {
    (void)err;
    return keep_by_id(((struct reading *)ctx)->nics, item);
}

static int on_ip(void *ctx, const json_t *item, struct gp_error *err) {
    (void)err;
    return keep_by_id(((struct reading *)ctx)->ips, item);
}

static const char *address(const json_t *item, const char *path) {
    const char *text = json_str(item, path, "");
    return form_address(text) ? text : "";
}

static void set_addresses(const struct reading *r, struct resource *vm) {
    const char *id = NULL;
    json_t *nic = NULL;
    json_object_foreach(r->nics, id, nic) {
        GP_AUTO_FREE char *group = NULL, *type = NULL, *name = NULL;
        if (!azure_id_split(r->a, json_str(nic, "properties.virtualMachine.id", ""), &group, &type, &name)) continue;
        GP_AUTO_FREE char *handle = azure_handle_text(group, AZURE_VM, name, vm->uid);
        if (strcmp(handle, vm->id) != 0) continue;
        resource_set(&vm->private_ip, address(nic, "properties.ipConfigurations.0.properties.privateIPAddress"));
        GP_AUTO_FREE char *ip =
            xstrdup(json_str(nic, "properties.ipConfigurations.0.properties.publicIPAddress.id", ""));
        for (char *p = ip; *p != '\0'; p++) *p = (char)(*p >= 'A' && *p <= 'Z' ? *p - 'A' + 'a' : *p);
        resource_set(&vm->public_ip, address(json_object_get(r->ips, ip), "properties.ipAddress"));
    }
}

/* --- the other resources of a group --- */

/* Those that Azure makes beside a machine have no tags: a resource in a stack's group is the stack's. */
static void add_part(struct reading *r, const json_t *item, enum resource_kind kind, const char *type) {
    GP_AUTO_FREE char *group = NULL, *whole = NULL, *name = NULL, *region = NULL;
    struct resource one;
    if (!azure_id_split(r->a, json_str(item, "id", ""), &group, &whole, &name)) return;
    resource_init(&one, kind, "azure");
    tags_to_resource(&r->group->tags, -1, &one);
    one.claim = false;
    region = azure_region(json_str(item, "location", ""));
    resource_set(&one.region, region);
    resource_set(&one.account, r->a->subscription);
    free(one.id);
    one.id = azure_handle_text(group, type, name, one.uid);
    one.price_usd_per_h = kind == RES_VOLUME ? -1 : 0;
    one.billed = kind == RES_VOLUME;
    bool used = kind != RES_VOLUME || json_str(item, "managedBy", "")[0] != '\0';
    one.state = strcasecmp(json_str(item, "properties.provisioningState", ""), "Deleting") == 0 ? RES_STOPPING
                : used                                                                          ? RES_RUNNING
                                                                                                : RES_STOPPED;
    vec_push(&r->parts->list, one);
}

static int on_disk(void *ctx, const json_t *item, struct gp_error *err) {
    (void)err;
    add_part(ctx, item, RES_VOLUME, AZURE_DISK);
    return 0;
}

static int on_guard(void *ctx, const json_t *item, struct gp_error *err) {
    (void)err;
    add_part(ctx, item, RES_GROUP, AZURE_GUARD);
    return 0;
}

static int on_net(void *ctx, const json_t *item, struct gp_error *err) {
    (void)err;
    add_part(ctx, item, RES_GROUP, AZURE_NET);
    return 0;
}

static int on_set(void *ctx, const json_t *item, struct gp_error *err) {
    (void)err;
    add_part(ctx, item, RES_PLACEMENT, AZURE_SET);
    return 0;
}

/* --- rights --- */

static int on_grant(void *ctx, const json_t *item, struct gp_error *err) {
    (void)err;
    return json_array_append_new(((struct reading *)ctx)->grants, json_deep_copy(item));
}

/* The assignments that gpuprov made, by their names; others apply to the group too. */
static void set_rights(struct reading *r) {
    size_t i = 0;
    json_t *item = NULL;
    json_array_foreach(r->grants, i, item) {
        GP_AUTO_FREE char *group = NULL, *type = NULL, *name = NULL;
        if (!azure_id_split(r->a, json_str(item, "properties.scope", ""), &group, &type, &name) ||
            !is_type(type, "Microsoft.Compute", AZURE_VM) || strcasecmp(group, r->group->name) != 0)
            continue;
        GP_AUTO_FREE char *named = azure_grant_name(r->a, r->group->tags.uid, name);
        if (strcasecmp(json_str(item, "name", ""), named) != 0) continue;
        GP_AUTO_FREE char *vm = azure_handle_text(group, AZURE_VM, name, r->group->tags.uid);
        bool lives = false;
        for (size_t k = 0; k < r->vms->list.len; k++) {
            struct resource *one = &r->vms->list.items[k];
            const json_t *right = json_object_get(r->rights, one->id);
            if (!azure_handle_same(one->id, vm)) continue; /* its own tags may have been edited */
            lives = true;
            one->ends_itself =
                azure_grant_is(r->a, item, group, name, json_str(right, "principal", ""), json_str(right, "role", ""));
        }
        struct resource one;
        resource_init(&one, RES_GRANT, "azure");
        tags_to_resource(&r->group->tags, -1, &one);
        one.claim = false;
        resource_set(&one.region, r->group->region);
        resource_set(&one.account, r->a->subscription);
        free(one.id);
        one.id = azure_handle_text(group, AZURE_GRANT, name, one.uid);
        one.price_usd_per_h = 0;
        one.state = lives ? RES_RUNNING : RES_STOPPED;
        if (!lives) resource_set(&one.state_reason, "its machine is gone");
        vec_push(&r->parts->list, one);
    }
}

/* The kinds of a group, which are listed side by side; the first three are enough for machines. */
enum { OF_MACHINES = 3 };
static const struct {
    const char *version, *kind;
    int (*each)(void *ctx, const json_t *item, struct gp_error *err);
} kinds[] = {{AZURE_COMPUTE, "Microsoft.Compute/" AZURE_VM, on_vm},
             {AZURE_NETWORK, "Microsoft.Network/networkInterfaces", on_nic},
             {AZURE_NETWORK, "Microsoft.Network/publicIPAddresses", on_ip},
             {"2020-12-01", "Microsoft.Compute/" AZURE_DISK, on_disk},
             {AZURE_COMPUTE, "Microsoft.Compute/" AZURE_SET, on_set},
             {AZURE_NETWORK, "Microsoft.Network/" AZURE_GUARD, on_guard},
             {AZURE_NETWORK, "Microsoft.Network/" AZURE_NET, on_net}};

/* g NULL: its machines, without their rights; whole: other kinds too. On an error ret has what could be read. */
static int read_group(struct azure *a, const char *group, const struct azure_group *g, bool whole,
                      struct resource_list *ret, struct gp_error *err) {
    GP_AUTO_AZURE_READS struct azure_reads w = {0};
    GP_AUTO_JSON json_t *nics = json_object(), *ips = json_object(), *rights = json_object(), *grants = json_array();
    GP_AUTO_RESOURCES struct resource_list vms = {0}, parts = {0};
    struct reading r = {
        .a = a, .vms = &vms, .parts = &parts, .group = g, .nics = nics, .ips = ips, .rights = rights, .grants = grants};
    int rc = 0;
    for (size_t i = 0; i < (whole ? GP_ARRAY_LEN(kinds) : (size_t)OF_MACHINES); i++)
        azure_reads_pages(&w, azure_url(a, kinds[i].version, "/resourceGroups/%s/providers/%s", group, kinds[i].kind),
                          0, kinds[i].each, &r);
    if (g != NULL && g->grants) azure_reads_pages(&w, azure_grants_url(a, group), 0, on_grant, &r);
    rest_pages_many(&a->rest, w.lists.items, w.lists.len);
    for (size_t i = 0; i < w.lists.len; i++) {
        const struct rest_paged *one = &w.lists.items[i];
        if (one->rc == 0 || one->rc == -GP_ENOTFOUND || rc != 0) continue; /* the group has ended meanwhile */
        rc = one->rc;
        if (err != NULL) *err = one->err;
    }
    if (vms.list.len > 0) {
        struct gp_error unread = {0};
        int views = read_views(a, &vms, &unread);
        if (rc == 0 && views != 0 && err != NULL) *err = unread;
        if (rc == 0) rc = views;
    }
    /* without the list of machines no assignment is known to be left over */
    int of_vms = w.lists.items[0].rc;
    if (g != NULL && (of_vms == 0 || of_vms == -GP_ENOTFOUND)) set_rights(&r);
    for (size_t i = 0; i < vms.list.len; i++) {
        set_addresses(&r, &vms.list.items[i]);
        resource_list_add(ret, &vms.list.items[i]);
    }
    for (size_t i = 0; i < parts.list.len; i++) resource_list_add(ret, &parts.list.items[i]);
    return rc;
}

int azure_list_vms(struct azure *a, const char *group, struct resource_list *ret, struct gp_error *err) {
    return read_group(a, group, NULL, false, ret, err);
}

static int list_group(struct azure *a, const struct azure_group *g, bool nodes_only, struct resource_list *ret,
                      struct gp_error *err) {
    struct resource one;
    azure_group_resource(g, &one);
    resource_set(&one.account, a->subscription);
    vec_push(&ret->list, one);
    return read_group(a, g->name, g, !nodes_only, ret, err);
}

/* --- groups --- */

struct groups {
    VEC_OF(struct azure_group) list;
};

static void groups_clear(struct groups *g) {
    for (size_t i = 0; i < g->list.len; i++) azure_group_clear(&g->list.items[i]);
    vec_free(&g->list);
}

static bool has_group(const struct groups *g, const char *name) {
    for (size_t i = 0; i < g->list.len; i++)
        if (strcmp(g->list.items[i].name, name) == 0) return true;
    return false;
}

static int on_group(void *ctx, const json_t *item, struct gp_error *err) {
    struct groups *all = ctx;
    struct azure_group g = {0};
    int r = azure_group_read(item, &g, err);
    if (r == 0 && !has_group(all, g.name)) vec_push(&all->list, g);
    else azure_group_clear(&g);
    return r;
}

static int by_tag(struct azure *a, const char *key, const char *value, struct groups *ret, struct gp_error *err) {
    GP_AUTO_FREE char *base = azure_url(a, AZURE_RESOURCES, "/resourcegroups");
    GP_AUTO_FREE char *filter = xasprintf("tagName eq 'gpuprov:%s' and tagValue eq '%s'", key, value);
    GP_AUTO_STR struct str url = {0};
    str_add(&url, base);
    rest_query(&url, "$filter", filter);
    return azure_pages(a, url.s, on_group, ret, err);
}

static int by_name(struct azure *a, const char *name, struct groups *ret, struct gp_error *err) {
    struct azure_group g = {0};
    if (has_group(ret, name)) return 0;
    int r = azure_group_get(a, name, &g, err);
    if (r == 0 && g.exists) vec_push(&ret->list, g);
    else azure_group_clear(&g);
    return r;
}

static int find_groups(struct azure *a, const struct list_req *req, struct groups *ret, struct gp_error *err) {
    int r = 0;
    if (req->stack != NULL) { /* by its name: a list by tag may lag */
        GP_AUTO_FREE char *name = azure_group_name(req->owner, req->stack);
        r = by_name(a, name, ret, err);
    } else {
        r = by_tag(a, "owner", req->owner, ret, err);
    }
    if (r == 0 && req->stack != NULL && req->uid != NULL) r = by_tag(a, "uid", req->uid, ret, err);
    for (size_t i = 0; r == 0 && req->known != NULL && i < req->known->list.len; i++) {
        const struct resource *k = &req->known->list.items[i];
        GP_AUTO_AZURE_HANDLE struct azure_handle h = {0};
        if (str_eq(k->provider, "azure") && k->state != RES_GONE && azure_handle_read(k->id, &h))
            r = by_name(a, h.group, ret, err);
    }
    return r;
}

static bool is_known(const struct list_req *req, const char *id) {
    for (size_t i = 0; req->known != NULL && i < req->known->list.len; i++)
        if (strcmp(req->known->list.items[i].id, id) == 0) return true;
    return false;
}

/* The journal's machines keep the id that it has, whatever uid their tags have now. */
static void recall_ids(const struct list_req *req, struct resource_list *all) {
    for (size_t i = 0; i < all->list.len; i++) {
        struct resource *r = &all->list.items[i];
        for (size_t k = 0; req->known != NULL && r->kind == RES_INSTANCE && k < req->known->list.len; k++) {
            const struct resource *known = &req->known->list.items[k];
            if (known->kind == RES_INSTANCE && known->state != RES_GONE && known->ours != OURS_NOT &&
                azure_handle_same(known->id, r->id))
                resource_set(&r->id, known->id);
        }
    }
}

/* Whether a resource of a group answers the request: one of the journal does in any region, because a machine that is
 * listed is not gone. ours: the group is the owner's, so what has no readable tags in it is reported. */
static bool wanted(const struct list_req *req, const struct resource *r, bool ours) {
    if (is_known(req, r->id)) return true;
    if (req->regions != NULL && !req->everywhere && !strv_has(req->regions, r->region)) return false;
    if (r->owner[0] == '\0') return ours;
    if (strcmp(r->owner, req->owner) != 0) return false;
    return req->stack == NULL || strcmp(r->stack, req->stack) == 0 || (req->uid != NULL && str_eq(r->uid, req->uid));
}

/* --- regions --- */

static int on_location(void *ctx, const json_t *item, struct gp_error *err) {
    GP_AUTO_FREE char *name = azure_region(json_str(item, "name", ""));
    return name[0] != '\0' ? places_add(ctx, name, "azure GET locations", err) : 0;
}

static int regions_of(struct azure *a, const struct list_req *req, struct strv *ret, struct gp_error *err) {
    if (req->regions != NULL) strv_copy(ret, req->regions);
    if (req->looked == NULL || (req->regions != NULL && !req->everywhere)) return 0;
    GP_AUTO_FREE char *url = azure_url(a, AZURE_SUBSCRIPTIONS, "/locations");
    GP_AUTO_STRV struct strv all = {0};
    int r = azure_pages(a, url, on_location, &all, err);
    if (r == 0) strv_merge(ret, &all);
    if (r == 0 && all.n == 0) r = gp_fail(err, GP_EPROTO, "azure GET locations: the reply names no region");
    return r;
}

/* One list has all regions: a group's machines may be in any. */
int azure_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    struct azure *a = azure_of(p);
    struct groups groups = {0};
    GP_AUTO_STRV struct strv regions = {0};
    struct gp_error first = {0}, unknown = {0};
    if (req->images) return 0; /* none are made here */
    int names = regions_of(a, req, &regions, &unknown);
    int r = find_groups(a, req, &groups, &first);
    for (size_t i = 0; i < groups.list.len; i++) {
        GP_AUTO_RESOURCES struct resource_list all = {0};
        const struct azure_group *g = &groups.list.items[i];
        struct gp_error e = {0};
        int one = list_group(a, g, req->nodes_only, &all, &e);
        recall_ids(req, &all);
        bool ours = tags_identify(&g->tags) && strcmp(g->tags.owner, req->owner) == 0;
        for (size_t k = 0; k < all.list.len; k++)
            if (wanted(req, &all.list.items[k], ours)) resource_list_add(ret, &all.list.items[k]);
        if (one != 0 && r == 0) {
            r = one;
            first = e;
        }
    }
    groups_clear(&groups);
    for (size_t i = 0; req->looked != NULL && i < regions.n; i++)
        coverage_put(req->looked, "azure", regions.v[i], req->owner, true, r != 0 ? &first : NULL);
    if (names != 0 && req->looked != NULL) coverage_put(req->looked, "azure", "", req->owner, true, &unknown);
    if (r == 0 && names != 0) {
        r = names;
        first = unknown;
    }
    if (r != 0 && err != NULL) *err = first;
    return r != 0 ? gp_wrap(err, "listing the resources of '%s'", req->owner) : 0;
}
