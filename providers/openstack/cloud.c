// SPDX-License-Identifier: Apache-2.0
/* What a region has: flavors with their GPUs, images, networks, quota. Flavors and networks are read once per run. One
 * thread. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#include "base/form.h"
#include "providers/common/gpu_name.h"

/* --- cache --- */

void os_flavors_clear(struct os_flavors *f) {
    for (size_t i = 0; i < f->list.len; i++) {
        free(f->list.items[i].id);
        free(f->list.items[i].name);
    }
    vec_free(&f->list);
}

void os_networks_clear(struct os_networks *n) {
    for (size_t i = 0; i < n->list.len; i++) {
        free(n->list.items[i].id);
        free(n->list.items[i].name);
    }
    vec_free(&n->list);
}

struct os_region_cache *os_cache_of(struct os *o, const char *region) {
    for (size_t i = 0; i < o->cache->regions.len; i++)
        if (strcmp(o->cache->regions.items[i]->region, region) == 0) return o->cache->regions.items[i];
    struct os_region_cache *c = xcalloc(1, sizeof *c);
    c->region = xstrdup(region);
    vec_push(&o->cache->regions, c);
    return c;
}

void os_cache_free(struct os_cache *c) {
    for (size_t i = 0; c != NULL && i < c->regions.len; i++) {
        os_flavors_clear(&c->regions.items[i]->flavors);
        os_networks_clear(&c->regions.items[i]->networks);
        free(c->regions.items[i]->region);
        free(c->regions.items[i]);
    }
    if (c == NULL) return;
    vec_free(&c->regions);
    strv_clear(&c->groups_ready);
    strv_clear(&c->confirmed);
    free(c->public_cidr);
    free(c);
}

/* --- flavors --- */

/* "h100:8,ib:1": the aliases that are names of GPUs. An alias is a word of the cloud's operator. */
static void add_aliases(const char *text, struct os_flavor *ret) {
    GP_AUTO_STRV struct strv parts = {0};
    strv_split(&parts, text, ", ");
    for (size_t i = 0; i < parts.n; i++) {
        char name[64];
        int64_t n = 0;
        char *colon = strrchr(parts.v[i], ':');
        if (colon == NULL || !str_to_i64(colon + 1, 1, 64, &n)) continue;
        *colon = '\0';
        if (!gpu_name_known(parts.v[i], name, sizeof name)) continue;
        if (ret->gpu[0] != '\0' && strcmp(ret->gpu, name) != 0) { /* two models in one node: none of the table's */
            ret->gpu[0] = '\0';
            ret->gpus = -1;
            return;
        }
        str_put(ret->gpu, sizeof ret->gpu, name);
        ret->gpus += (int)n;
    }
}

void os_flavor_gpu(const json_t *extra_specs, struct os_flavor *ret) {
    const char *key = NULL;
    json_t *value = NULL;
    ret->gpu[0] = '\0';
    ret->gpus = 0;
    const json_t *alias = json_object_get(extra_specs, "pci_passthrough:alias");
    if (json_is_string(alias)) add_aliases(json_string_value(alias), ret);
    if (ret->gpus != 0) return;
    json_object_foreach((json_t *)(uintptr_t)extra_specs, key, value) {
        int64_t n = 0;
        const char *text = json_is_string(value) ? json_string_value(value) : "";
        bool of_gpu = strcmp(key, "resources:VGPU") == 0 || strcmp(key, "resources:PGPU") == 0;
        if (of_gpu && str_to_i64(text, 1, 64, &n)) ret->gpus = -1;
        if (strcmp(key, "accel:device_profile") == 0) ret->gpus = -1;
    }
    /* an alias that the table does not know may be a GPU or a network card */
    if (ret->gpus == 0 && json_is_string(alias)) ret->gpus = -1;
}

static int on_flavor(void *ctx, const json_t *item, struct gp_error *err) {
    struct os_flavors *all = ctx;
    const char *id = json_str(item, "id", ""), *name = json_str(item, "name", "");
    int64_t cpus = json_int(item, "vcpus", -1), ram = json_int(item, "ram", -1), disk = json_int(item, "disk", -1);
    if (!os_name(id) || strpbrk(id, "/?# ") != NULL || !os_name(name) || cpus < 0 || cpus > 100000 || ram < 0 ||
        ram > INT32_MAX || disk < 0 || disk > 1000000)
        return gp_fail(err, GP_EPROTO,
                       "openstack: the list of flavors has a malformed entry: run the same command again");
    struct os_flavor f = {
        .id = xstrdup(id), .name = xstrdup(name), .vcpus = (int)cpus, .memory_mib = (int)ram, .disk_gib = (int)disk};
    os_flavor_gpu(json_object_get(item, "extra_specs"), &f);
    vec_push(&all->list, f);
    return 0;
}

int os_flavors_get(struct os *o, const char *region, const struct os_flavors **ret, struct gp_error *err) {
    struct os_region_cache *c = os_cache_of(o, region);
    *ret = &c->flavors;
    if (c->has_flavors) return 0;
    os_flavors_clear(&c->flavors);
    struct os_list l = {.service = OS_COMPUTE,
                        .region = region,
                        .path = "/flavors/detail",
                        .items = "flavors",
                        .each = on_flavor,
                        .ctx = &c->flavors};
    int r = os_pages(o, &l, err);
    c->has_flavors = r == 0;
    return r;
}

/* --- images --- */

void os_image_clear(struct os_image *i) {
    free(i->id);
    free(i->name);
    *i = (struct os_image){0};
}

struct image_search {
    const struct spec_image *want;
    struct os_image found; /* the newest that fits */
    char *created;
    int fits, active;
    struct str names;
};

/* "ubuntu-24.04" is os_distro ubuntu and os_version 24.04. */
static bool is_system(const json_t *item, const char *os) {
    const char *distro = json_str(item, "os_distro", ""), *version = json_str(item, "os_version", "");
    GP_AUTO_FREE char *name = xasprintf("%s-%s", distro, version);
    return distro[0] != '\0' && strcasecmp(name, os) == 0;
}

static int on_image(void *ctx, const json_t *item, struct gp_error *err) {
    struct image_search *s = ctx;
    const char *id = json_str(item, "id", ""), *name = json_str(item, "name", ""), *want = s->want->id;
    const char *created = json_str(item, "created_at", "");
    int64_t disk = json_int(item, "min_disk", 0), ram = json_int(item, "min_ram", 0);
    if (!os_uuid(id) || disk < 0 || disk > 1000000 || ram < 0 || ram > INT32_MAX)
        return gp_fail(err, GP_EPROTO,
                       "openstack: the list of images has a malformed entry: run the same command again");
    if (strcmp(json_str(item, "status", ""), "active") != 0) return 0;
    if (s->active++ < 8) str_addf(&s->names, "%s%s", s->names.len > 0 ? ", " : "", os_name(name) ? name : id);
    if (want != NULL && strcmp(want, id) != 0 && strcmp(want, name) != 0) return 0;
    if (want == NULL && s->want->os != NULL && !is_system(item, s->want->os)) return 0;
    s->fits++;
    if (s->found.id != NULL && strcmp(created, s->created) <= 0) return 0;
    os_image_clear(&s->found);
    free(s->created);
    s->created = xstrdup(created);
    s->found = (struct os_image){.id = xstrdup(id),
                                 .name = xstrdup(os_name(name) ? name : id),
                                 .min_disk_gib = (int)disk,
                                 .min_memory_mib = (int)ram};
    return 0;
}

int os_image_find(struct os *o, const char *region, const struct spec_image *want, struct os_image *ret,
                  struct gp_error *err) {
    struct image_search s = {.want = want};
    GP_AUTO_STR struct str path = {0};
    str_add(&s.names, "");
    str_add(&path, "/images");
    if (want->id != NULL && !os_uuid(want->id)) rest_query(&path, "name", want->id);
    struct os_list l = {
        .service = OS_IMAGE, .region = region, .path = path.s, .items = "images", .each = on_image, .ctx = &s};
    int r = os_pages(o, &l, err);
    bool named = want->id != NULL, by_os = !named && want->os != NULL;
    if (r == 0 && s.fits == 0)
        r = named   ? gp_fail(err, GP_EUSAGE,
                              "openstack %s has no active image '%.80s': correct image.id ('openstack "
                                "image list' prints their names and ids)",
                              region, want->id)
            : by_os ? gp_fail(err, GP_EUSAGE,
                              "openstack %s has no active image with the properties os_distro and os_version of "
                              "'%.60s': give image: {id: NAME}; it has %.200s",
                              region, want->os, s.active > 0 ? s.names.s : "none")
                    : gp_fail(err, GP_EUSAGE, "openstack %s has no active image: upload one", region);
    else if (r == 0 && named && s.fits > 1)
        r = gp_fail(err, GP_EUSAGE, "openstack %s has %d images named '%.80s': give the id of one as image.id", region,
                    s.fits, want->id);
    else if (r == 0 && !named && !by_os && s.fits > 1)
        r = gp_fail(
            err, GP_EUSAGE,
            "openstack %s has %d images, and 'image: auto' cannot choose: give image: {id: NAME}; it has %.200s",
            region, s.fits, s.names.s);
    if (r == 0) {
        *ret = s.found;
        s.found = (struct os_image){0};
    } else if (err != NULL && err->scope == GP_SCOPE_NONE) {
        err->scope = GP_SCOPE_REGION;
    }
    os_image_clear(&s.found);
    free(s.created);
    str_clear(&s.names);
    return r;
}

/* --- networks --- */

struct network_search {
    const struct os *o;
    struct os_networks *all;
};

static int on_network(void *ctx, const json_t *item, struct gp_error *err) {
    struct network_search *s = ctx;
    const char *id = json_str(item, "id", ""), *name = json_str(item, "name", "");
    if (!os_uuid(id))
        return gp_fail(err, GP_EPROTO,
                       "openstack: the list of networks has a malformed entry: run the same command again");
    if (json_array_size(json_object_get(item, "subnets")) == 0) return 0; /* no addresses there */
    struct os_network n = {
        .id = xstrdup(id),
        .name = xstrdup(os_name(name) ? name : id),
        .external = json_bool(item, "router:external", false),
        .shared = json_bool(item, "shared", false),
        .mine = strcmp(json_str(item, "project_id", json_str(item, "tenant_id", "")), s->o->project_id) == 0};
    vec_push(&s->all->list, n);
    return 0;
}

int os_networks_get(struct os *o, const char *region, const struct os_networks **ret, struct gp_error *err) {
    struct os_region_cache *c = os_cache_of(o, region);
    *ret = &c->networks;
    if (c->has_networks) return 0;
    os_networks_clear(&c->networks);
    struct network_search s = {o, &c->networks};
    struct os_list l = {.service = OS_NETWORK,
                        .region = region,
                        .path = "/networks",
                        .items = "networks",
                        .each = on_network,
                        .ctx = &s};
    int r = os_pages(o, &l, err);
    c->has_networks = r == 0;
    return r;
}

int os_network_find(struct os *o, const char *region, const char *name, const struct os_network **ret,
                    struct gp_error *err) {
    const struct os_networks *all = NULL;
    GP_AUTO_STR struct str names = {0};
    size_t fit = 0, mine = 0;
    int r = os_networks_get(o, region, &all, err);
    if (r != 0) return r;
    *ret = NULL;
    str_add(&names, "");
    for (size_t i = 0; i < all->list.len; i++) {
        const struct os_network *n = &all->list.items[i];
        bool fits = name != NULL ? strcmp(name, n->id) == 0 || strcmp(name, n->name) == 0 : !n->external;
        if (i < 8) str_addf(&names, "%s%s", names.len > 0 ? ", " : "", n->name);
        if (!fits) continue;
        fit++;
        mine += n->mine;
        if (*ret == NULL || (name == NULL && n->mine && !(*ret)->mine)) *ret = n;
    }
    if (fit == 1 || (name == NULL && mine == 1)) return 0; /* the project's own comes before shared ones */
    *ret = NULL;
    if (fit == 0 && name != NULL)
        r = gp_fail(err, GP_EUSAGE, "openstack %s has no network '%.80s': correct network; it has %.200s", region, name,
                    names.len > 0 ? names.s : "none");
    else if (fit == 0)
        r = gp_fail(err, GP_EUSAGE, "openstack %s has no network with a subnet: create one, or give 'network'", region);
    else
        r = gp_fail(err, GP_EUSAGE, "openstack %s has %zu networks that fit: give one as 'network': %.200s", region,
                    fit, names.s);
    if (err != NULL) err->scope = GP_SCOPE_REGION;
    return r;
}

/* --- quota --- */

static int left(const json_t *limits, const char *max_key, const char *used_key) {
    int64_t max = json_int(limits, max_key, -1), used = json_int(limits, used_key, 0);
    if (max < 0 || max > INT32_MAX) return -1;
    return (int)GP_MAX(0, max - GP_MAX(0, used));
}

int os_quota_get(struct os *o, const char *region, struct os_quota *ret, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    struct os_call c = {.service = OS_COMPUTE, .region = region, .method = "GET", .path = "/limits"};
    int r = os_call(o, &c, &reply, err);
    const json_t *l = r == 0 ? json_at(reply.json, "limits.absolute") : NULL;
    if (r == 0 && !json_is_object(l)) return gp_fail(err, GP_EPROTO, "openstack: the reply of /limits has no limits");
    if (r != 0) return r;
    ret->instances = left(l, "maxTotalInstances", "totalInstancesUsed");
    ret->cores = left(l, "maxTotalCores", "totalCoresUsed");
    ret->memory_mib = left(l, "maxTotalRAMSize", "totalRAMUsed");
    ret->max_instances = (int)GP_MIN(json_int(l, "maxTotalInstances", -1), INT32_MAX);
    ret->used_instances = (int)GP_MIN(json_int(l, "totalInstancesUsed", 0), INT32_MAX);
    return 0;
}
