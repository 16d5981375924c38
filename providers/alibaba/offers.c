// SPDX-License-Identifier: Apache-2.0
/* Offers: types x zones with stock x prices x image, for one entry of the spec's offers. Types, stock, VSwitches,
 * images, quotas and the prices of the types that the catalogue names are read side by side; then the prices of types
 * that it does not name. Buys nothing. One thread at a time. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_search.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/gpu_name.h"
#include "providers/common/refusal.h"
#include "providers/common/ssh_from.h"

#define SMALL_VCPUS 2 /* a node without a GPU and a type */
#define SMALL_MEMORY_GIB 4

/* --- systems --- */

static const struct {
    const char *name, *family;
} systems[] = {
    {"ubuntu-24.04", "acs:ubuntu_24_04_x64"},
    {"ubuntu-22.04", "acs:ubuntu_22_04_x64"},
};

const char *ali_image_os(size_t i) { return i < GP_ARRAY_LEN(systems) ? systems[i].name : NULL; }

/* --- what a region has --- */

void ali_type_clear(struct type *t) {
    free(t->name);
    free(t->gpu);
    free(t->price.currency);
}

static void search_clear(struct search *s) {
    for (size_t i = 0; i < s->types.len; i++) ali_type_clear(&s->types.items[i]);
    for (size_t i = 0; i < s->guesses.len; i++) ali_type_clear(&s->guesses.items[i]);
    vec_free(&s->types);
    vec_free(&s->guesses);
    for (size_t i = 0; i < s->spots.len; i++) {
        free(s->spots.items[i].type);
        free(s->spots.items[i].zone);
    }
    vec_free(&s->spots);
    free(s->image.id);
    free(s->image.name);
    s->image = (struct image){0};
    free(s->disk.currency);
    s->disk = (struct price){.amount = -1};
    strv_clear(&s->sold);
    strv_clear(&s->last);
    strv_clear(&s->models);
    ali_vswitches_clear(&s->vswitches);
}

/* Slices of a GPU ("NVIDIA A10*1/12", "NVIDIA T4/8") are not GPUs. */
bool ali_gpu_matches(const char *wanted, const struct type *t) {
    struct gpu_name want, have;
    if (t->gpu[0] == '\0' || strpbrk(t->gpu, "/*") != NULL) return false;
    gpu_name_parse(wanted, &want);
    gpu_name_parse(t->gpu, &have);
    if (!gpu_name_same(&want, &have)) return false;
    double gib = have.memory_gb > 0 ? have.memory_gb : t->gpu_gib;
    return want.memory_gb == 0 || gib <= 0 || (gib > want.memory_gb * 0.9 && gib < want.memory_gb * 1.1);
}

static bool fits(struct search *s, const struct type *t) {
    const struct spec_gpu *gpu = &s->spec->gpu;
    if (s->want->instance_type != NULL) return strcmp(t->name, s->want->instance_type) == 0;
    if (gpu->model == NULL)
        return t->gpus == 0 && t->x86 && t->vcpus >= SMALL_VCPUS && t->memory_gib >= SMALL_MEMORY_GIB;
    return t->x86 && t->gpus == gpu->count && ali_gpu_matches(gpu->model, t);
}

static int on_type(void *ctx, const json_t *item, struct gp_error *err) {
    struct search *s = ctx;
    const char *name = json_str(item, "InstanceTypeId", "");
    int64_t gpus = json_int(item, "GPUAmount", 0), vcpus = json_int(item, "CpuCoreCount", 0);
    int64_t erdma = json_int(item, "EriQuantity", 0), nics = json_int(item, "EniQuantity", 0);
    int64_t cards = json_int(item, "NetworkCardQuantity", 0), pairs = json_int(item, "QueuePairNumber", 0);
    if (!form_word(name) || gpus < 0 || gpus > 64 || vcpus < 0 || vcpus > 100000 || erdma < 0 || erdma > 1024 ||
        nics < 0 || nics > 10000 || cards < 0 || cards > 1024 || pairs < 0 || pairs > INT32_MAX)
        return gp_fail(err, GP_EPROTO,
                       "ecs DescribeInstanceTypes in %s: an entry without a type's name and counts: run "
                       "the same command again",
                       s->region);
    struct type t = {.name = xstrdup(name),
                     .gpu = xstrdup(json_str(item, "GPUSpec", "")),
                     .gpus = (int)gpus,
                     .vcpus = (int)vcpus,
                     .memory_gib = json_num(item, "MemorySize", 0),
                     .gpu_gib = json_num(item, "GPUMemorySize", 0),
                     .x86 = strcasecmp(json_str(item, "CpuArchitecture", "X86"), "X86") == 0,
                     .price = {.amount = -1}};
    str_one_line(t.gpu);
    if (t.gpu[0] != '\0' && !strv_has(&s->models, t.gpu)) strv_add(&s->models, t.gpu);
    if (fits(s, &t)) {
        struct ali_erdma has = {
            .interfaces = (int)(nics > 0 ? GP_MIN(erdma, nics) : erdma), .cards = (int)cards, .pairs = (int)pairs};
        ali_fabric_seen(s->a, s->region, t.name, &has);
        vec_push(&s->types, t);
    } else {
        free(t.name);
        free(t.gpu);
    }
    return 0;
}

/* {"ZoneId", "AvailableResources": {"AvailableResource": [{"SupportedResources": ...}]}} */
static int on_zone(void *ctx, const json_t *item, struct gp_error *err) {
    struct search *s = ctx;
    const char *zone = json_str(item, "ZoneId", "");
    json_t *kinds = json_at(item, "AvailableResources.AvailableResource"), *kind = NULL, *one = NULL;
    size_t i = 0, k = 0;
    if (!form_word(zone))
        return gp_fail(err, GP_EPROTO,
                       "ecs DescribeAvailableResource in %s: an entry without a zone: run the same "
                       "command again",
                       s->region);
    json_array_foreach(kinds, i, kind) {
        if (strcmp(json_str(kind, "Type", ""), "InstanceType") != 0) continue;
        json_t *all = json_at(kind, "SupportedResources.SupportedResource");
        json_array_foreach(all, k, one) {
            const char *stock = json_str(one, "StatusCategory", "WithStock");
            if (strcmp(json_str(one, "Status", ""), "Available") != 0) continue;
            if (strcmp(stock, "WithStock") != 0 && strcmp(stock, "ClosedWithStock") != 0) continue;
            GP_AUTO_FREE char *place = xasprintf("%s/%s", json_str(one, "Value", ""), zone);
            strv_add(&s->sold, place);
            if (str_eq(stock, "ClosedWithStock")) strv_add(&s->last, place);
        }
    }
    return 0;
}

const struct ali_image *ali_image_seen(const struct ali *a, const char *id) {
    for (size_t i = 0; i < a->cache->images.list.len; i++)
        if (strcmp(a->cache->images.list.items[i].id, id) == 0) return &a->cache->images.list.items[i];
    return NULL;
}

static int on_image(void *ctx, const json_t *item, struct gp_error *err) {
    struct search *s = ctx;
    const char *id = json_str(item, "ImageId", "");
    int64_t created_s = ali_time(json_str(item, "CreationTime", ""));
    size_t n = strlen(id);
    if (n == 0 || n > 128 || strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != n)
        return gp_fail(err, GP_EPROTO, "ecs DescribeImages in %s: an image without an id: run the same command again",
                       s->region);
    if (s->image.id != NULL && s->image.created_s >= created_s) return 0;
    resource_set(&s->image.id, id);
    resource_set(&s->image.name, json_str(item, "ImageName", id));
    str_one_line(s->image.name);
    s->image.created_s = created_s;
    if (ali_image_seen(s->a, id) == NULL) {
        int64_t gib = json_int(item, "Size", 0);
        struct ali_image one = {.id = xstrdup(id),
                                .gib = gib > 0 && gib <= ALI_DISK_MAX_GIB ? (int)gib : 0,
                                .token = strcmp(json_str(item, "Features.ImdsSupport", ""), "v2") == 0};
        vec_push(&s->a->cache->images.list, one);
    }
    s->image.x86 = strcmp(json_str(item, "Architecture", "x86_64"), "arm64") != 0;
    return 0;
}

/* --- the first round --- */

static void types_query(const struct search *s, struct str *q) {
    ali_begin(q, s->region);
    if (s->want->instance_type != NULL) {
        ali_param(q, "InstanceTypes.1", s->want->instance_type);
    } else if (s->spec->gpu.model != NULL) {
        ali_param_int(q, "MinimumGPUAmount", 1);
    } else {
        ali_param_int(q, "MinimumCpuCoreCount", SMALL_VCPUS);
        ali_param_int(q, "MaximumCpuCoreCount", SMALL_VCPUS);
        ali_param_int(q, "MinimumMemorySize", SMALL_MEMORY_GIB);
        ali_param_int(q, "MaximumMemorySize", 2 * SMALL_MEMORY_GIB);
    }
}

static void stock_query(const struct search *s, struct str *q) {
    ali_begin(q, s->region);
    ali_param(q, "DestinationResource", "InstanceType");
    ali_param(q, "InstanceChargeType", "PostPaid");
    ali_param(q, "IoOptimized", "optimized");
    if (s->want->market == MARKET_SPOT) ali_param(q, "SpotStrategy", "SpotAsPriceGo");
    if (s->want->instance_type != NULL) ali_param(q, "InstanceType", s->want->instance_type);
}

static int image_query(const struct search *s, struct str *q, const char **ret_named, struct gp_error *err) {
    const struct spec_image *want = spec_effective(s->spec, s->index).image;
    if (want->baked != NULL && strcmp(want->baked, BAKED_REQUIRE) == 0)
        return gp_fail(err, GP_EUSAGE, "alibaba: there are no baked images there: give image.id or image.os");
    ali_begin(q, s->region);
    ali_param(q, "Status", "Available");
    if (want->id != NULL) {
        ali_param(q, "ImageId", want->id);
        *ret_named = want->id;
        return 0;
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(systems); i++) {
        if (want->os != NULL && strcmp(want->os, systems[i].name) != 0) continue;
        ali_param(q, "ImageOwnerAlias", "system");
        ali_param(q, "ImageFamily", systems[i].family);
        *ret_named = systems[i].name;
        return 0;
    }
    return gp_fail(err, GP_EUSAGE, "alibaba: no image of '%s' is known: give image.id", want->os);
}

static int read_region(struct search *s, struct gp_error *err) {
    enum { TYPES, STOCK, IMAGES, REQUIRED }; /* and the VSwitches, where they are not known */
    const char *image = NULL;
    struct history histories[ALI_GUESSES_MAX];
    struct ali_list lists[REQUIRED + 3 + ALI_GUESSES_MAX] = {
        [TYPES] = {.action = "DescribeInstanceTypes",
                   .items = "InstanceTypes.InstanceType",
                   .page = 1000,
                   .each = on_type},
        [STOCK] = {.action = "DescribeAvailableResource", .items = "AvailableZones.AvailableZone", .each = on_zone},
        [IMAGES] =
            {.action = "DescribeImages", .items = "Images.Image", .page = 100, .numbered = true, .each = on_image},
    };
    size_t n = REQUIRED;
    int r = image_query(s, &lists[IMAGES].query, &image, err);
    types_query(s, &lists[TYPES].query);
    stock_query(s, &lists[STOCK].query);
    for (size_t i = 0; i < REQUIRED; i++) {
        lists[i].region = s->region;
        lists[i].ctx = s;
    }
    bool vswitches = ali_vswitches_list(s->a, s->region, s->want->subnet, &lists[n]);
    size_t required = vswitches ? ++n : n;
    if (ali_quota_list(s->a, s->region, &lists[n])) n++;
    ali_guess_types(s);
    n += ali_guess_lists(s, histories, &lists[n]);
    if (r == 0) ali_lists(s->a, lists, n, NULL);
    for (size_t i = 0; r == 0 && i < n; i++) { /* what else cannot be read stays unknown */
        if (lists[i].rc == 0 || (i >= required && lists[i].rc != -GP_ECANCELLED)) continue;
        r = lists[i].rc;
        if (err != NULL) *err = lists[i].err;
    }
    if (r == 0 && vswitches && s->want->subnet == NULL) strv_add(&s->a->cache->vswitch_regions, s->region);
    if (vswitches) free(lists[REQUIRED].ctx);
    for (size_t i = 0; i < n; i++) ali_list_clear(&lists[i]);
    if (r == 0 && s->image.id == NULL) {
        r = gp_fail(err, GP_EUSAGE, "alibaba %s has no image '%s': correct image", s->region, image);
        if (err != NULL) err->scope = GP_SCOPE_REGION;
    }
    if (r == 0) r = ali_vswitches_find(s->a, s->region, s->want->subnet, &s->vswitches, err);
    if (r == 0 && s->want->subnet != NULL && s->vswitches.list.len == 0) {
        r = gp_fail(err, GP_EUSAGE, "alibaba %s has no VSwitch '%s': correct subnet", s->region, s->want->subnet);
        if (err != NULL) err->scope = GP_SCOPE_REGION;
    }
    return r;
}

/* --- offers --- */

static void add_offer(struct search *s, const struct type *t, const char *zone, const char *subnet) {
    GP_AUTO_FREE char *place = xasprintf("%s/%s", t->name, zone);
    struct offer o = {.spec_index = s->index,
                      .provider = xstrdup("alibaba"),
                      .region = xstrdup(s->region),
                      .zone = xstrdup(zone),
                      .instance_type = xstrdup(t->name),
                      .market = s->want->market,
                      .image = xstrdup(s->image.id),
                      .image_name = xstrdup(s->image.name),
                      .subnet = xstrdup(subnet),
                      .gpu_model = xstrdup(t->gpu),
                      .gpus = t->gpus,
                      .vcpus = t->vcpus,
                      .memory_gib = t->memory_gib,
                      .disk_gib = ali_disk_gib(s->a, s->spec, s->image.id, t->gpus),
                      .fabric = ali_fabric_text(s->a, s->spec, s->region, t->name),
                      .quota = ali_quota_text(s->a, s->region, s->want->market),
                      .stock = strv_has(&s->last, place) ? OFFER_STOCK_LOW : OFFER_STOCK_HIGH,
                      .max_count = 100};
    ali_price_set(s, t, zone, &o);
    vec_push(&s->out->list, o);
}

static bool zone_wanted(const struct search *s, const char *zone) {
    return s->want->zones.n == 0 || strv_has(&s->want->zones, zone);
}

/* The offer's subnet is in one zone; without one the zone's default VSwitch is used, or one is created. */
static const char *subnet_in(const struct search *s, const char *zone) {
    for (size_t i = 0; i < s->vswitches.list.len; i++)
        if (strcmp(s->vswitches.list.items[i].zone, zone) == 0) return s->vswitches.list.items[i].id;
    return s->want->subnet != NULL ? NULL : "";
}

static void offers_of_type(struct search *s, const struct type *t) {
    size_t n = strlen(t->name);
    for (size_t i = 0; i < s->sold.n; i++) {
        if (strncmp(s->sold.v[i], t->name, n) != 0 || s->sold.v[i][n] != '/') continue;
        const char *zone = s->sold.v[i] + n + 1, *subnet = subnet_in(s, zone);
        if (subnet != NULL && zone_wanted(s, zone)) add_offer(s, t, zone, subnet);
    }
}

/* Smaller types first, because they are usually cheaper. */
static int by_size(const void *x, const void *y) {
    const struct type *a = x, *b = y;
    if (a->vcpus != b->vcpus) return a->vcpus < b->vcpus ? -1 : 1;
    if (a->memory_gib < b->memory_gib || a->memory_gib > b->memory_gib) return a->memory_gib < b->memory_gib ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int none(const struct search *s, struct gp_error *err) {
    const char *what = s->want->instance_type ? s->want->instance_type
                       : s->spec->gpu.model   ? s->spec->gpu.model
                                              : "a small type";
    int r = 0;
    if (s->types.len > 0)
        r = gp_fail(err, GP_ECAPACITY, "alibaba %s: %s is sold out or not sold in %s%s", s->region, what,
                    s->want->zones.n > 0 ? "the requested zones" : "any zone",
                    s->want->subnet != NULL ? " of the VSwitch" : "");
    else if (s->want->instance_type != NULL)
        r = gp_fail(err, GP_EUSAGE, "alibaba %s has no instance type '%s': correct instance_type", s->region, what);
    else {
        GP_AUTO_FREE char *models = strv_join(&s->models, ", ");
        r = gp_fail(err, GP_EUSAGE, "alibaba %s has no type with %d x %s; it has: %.200s", s->region,
                    s->spec->gpu.count, what, s->models.n > 0 ? models : "no GPU");
    }
    if (err != NULL) err->scope = GP_SCOPE_REGION;
    return r;
}

static int check_type(const struct search *s, struct gp_error *err) {
    const struct spec_gpu *gpu = &s->spec->gpu;
    const struct type *t = s->types.len > 0 ? &s->types.items[0] : NULL;
    if (t == NULL || s->want->instance_type == NULL) return 0;
    if (gpu->model != NULL && (t->gpus != gpu->count || !ali_gpu_matches(gpu->model, t)))
        return gp_fail(err, GP_EUSAGE, "instance_type %s has %d x %s, but gpu is %s:%d", t->name, t->gpus,
                       t->gpu[0] ? t->gpu : "no GPU", gpu->model, gpu->count);
    if (t->x86 != s->image.x86)
        return gp_fail(err, GP_EUSAGE, "alibaba %s: image %s is for %s, but %s is not", s->region, s->image.id,
                       s->image.x86 ? "x86" : "arm64", t->name);
    return 0;
}

static int offers_of_region(struct search *s, struct gp_error *err) {
    size_t before = s->out->list.len;
    int r = read_region(s, err);
    if (r == 0) r = check_type(s, err);
    if (r == 0) r = ali_disk_check(s->a, s->spec, s->region, s->image.id, err);
    if (r == 0) {
        if (s->types.len > 1) qsort(s->types.items, s->types.len, sizeof *s->types.items, by_size);
        size_t n = 0; /* types with stock come first */
        for (size_t i = 0; i < s->types.len && n < ALI_TYPES_MAX; i++) {
            size_t len = strlen(s->types.items[i].name);
            bool sold = false;
            for (size_t k = 0; k < s->sold.n && !sold; k++)
                sold = strncmp(s->sold.v[k], s->types.items[i].name, len) == 0 && s->sold.v[k][len] == '/';
            if (!sold) continue;
            struct type t = s->types.items[n];
            s->types.items[n++] = s->types.items[i];
            s->types.items[i] = t;
            /* Without a GPU and a type one small type is enough. */
            if (s->spec->gpu.model == NULL && s->want->instance_type == NULL) break;
        }
        if (n > 0) ali_prices_read(s, n);
        for (size_t i = 0; i < n; i++) offers_of_type(s, &s->types.items[i]);
        if (s->out->list.len == before) r = none(s, err);
    }
    search_clear(s);
    return r;
}

int ali_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
               struct gp_error *err) {
    struct ali *a = ali_of(p);
    const struct spec_offer *want = &spec->offers.items[index];
    struct search s = {.a = a, .spec = spec, .want = want, .index = index, .disk = {.amount = -1}, .out = ret};
    int refused = ssh_from_check_private("alibaba", spec, index, err);
    if (refused != 0) return refused;
    GP_AUTO_STRV struct strv regions = {0};
    strv_copy(&regions, &want->regions);
    if (regions.n == 0 && a->region != NULL) strv_add(&regions, a->region);
    if (regions.n == 0) {
        int r = gp_fail(err, GP_EUSAGE, "alibaba: no region: give regions, or set ALIBABA_CLOUD_REGION_ID");
        if (err != NULL) err->scope = GP_SCOPE_OFFER;
        return r;
    }
    struct regions_result result = {.sink = a->sink, .regions = regions.n};
    size_t before = ret->list.len;
    for (size_t i = 0; i < regions.n; i++) {
        struct gp_error e = {0};
        s.region = regions.v[i];
        int r = ali_region_valid(s.region) ? offers_of_region(&s, &e)
                                           : gp_fail(&e, GP_EUSAGE, "alibaba: '%s' is not a region", s.region);
        if (r != 0 && regions_failed(&result, &e)) break;
    }
    return regions_end(&result, ret->list.len > before, err);
}
