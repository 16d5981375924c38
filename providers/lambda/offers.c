// SPDX-License-Identifier: Apache-2.0
/* Offers: the types of GET /instance-types that fit, in the regions that have capacity for them now, each with its
 * newest image there. Two calls, buys nothing. One thread at a time. */
#include "base/gp_base.h"

#include "providers/lambda/lambda_int.h"

#include "base/form.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/gpu_name.h"

#define CENTS_MAX 10000000
#define STACK_FAMILY "lambda-stack-"

struct search {
    struct lambda *l;
    const struct spec *spec;
    const struct spec_offer *want;
    size_t index;
    const json_t *images;
    struct offer_list *out;
    struct strv no_room, no_image; /* regions */
};

/* --- images --- */

static const char *arch_of(const char *type) { /* NVIDIA's Grace processors: the API does not give it for types */
    return strstr(type, "gh200") != NULL || strstr(type, "gb200") != NULL ? "arm64" : "x86_64";
}

static bool image_in(const json_t *image, const char *region, const char *arch) {
    return str_eq(json_str(image, "region.name", ""), region) && str_eq(json_str(image, "architecture", ""), arch) &&
           form_word(json_str(image, "id", ""));
}

/* Newer by its family's name, then by its time, which is RFC 3339 in UTC. */
static bool newer(const json_t *a, const json_t *b) {
    int64_t at = 0, bt = 0;
    if (b == NULL) return true;
    int family = strcmp(json_str(a, "family", ""), json_str(b, "family", ""));
    if (family != 0) return family > 0;
    if (!time_parse_utc(json_str(a, "updated_time", ""), &at)) at = 0;
    if (!time_parse_utc(json_str(b, "updated_time", ""), &bt)) bt = 0;
    return at > bt;
}

static bool has_version(const char *version, const char *wanted) {
    size_t n = strlen(wanted);
    return n == 0 || (strncmp(version, wanted, n) == 0 && (version[n] == '\0' || version[n] == '.'));
}

enum image_by { BY_ID, BY_FAMILY, BY_STACK };

static const json_t *newest(const struct search *s, const char *region, const char *arch, enum image_by by,
                            const char *name, const char *version) {
    const json_t *found = NULL, *image = NULL;
    size_t i = 0;
    json_array_foreach(s->images, i, image) {
        const char *family = json_str(image, "family", "");
        bool fits = by == BY_ID       ? str_eq(json_str(image, "id", ""), name)
                    : by == BY_FAMILY ? str_eq(family, name) && has_version(json_str(image, "version", ""), version)
                                      : str_starts(family, name);
        if (fits && image_in(image, region, arch) && newer(image, found)) found = image;
    }
    return found;
}

static const json_t *image_find(const struct search *s, const char *region, const char *arch) {
    const struct spec_image *want = spec_effective(s->spec, s->index).image;
    const json_t *found = NULL;
    if (want->id != NULL) {
        found = newest(s, region, arch, BY_ID, want->id, "");
        return found != NULL ? found : newest(s, region, arch, BY_FAMILY, want->id, "");
    }
    if (want->os == NULL && s->spec->gpu.model != NULL) return newest(s, region, arch, BY_STACK, STACK_FAMILY, "");
    const char *os = want->os != NULL ? want->os : lambda_systems[0].name;
    for (size_t i = 0; lambda_systems[i].name != NULL && found == NULL; i++)
        if (str_eq(lambda_systems[i].name, os))
            found = newest(s, region, arch, BY_FAMILY, lambda_systems[i].family, lambda_systems[i].version);
    return found;
}

/* --- types --- */

struct type {
    const char *name;
    const json_t *item;
    int gpus;
    double usd_per_h;
};
struct types {
    VEC_OF(struct type) list;
};

static int number(const json_t *item, const char *path, int max) {
    int64_t v = json_int(item, path, -1);
    return v >= 0 && v <= max ? (int)v : -1;
}

/* False: not a type of this form; it is left out. */
static bool type_read(const char *key, const json_t *item, struct type *ret) {
    const char *name = json_str(item, "instance_type.name", "");
    int cents = number(item, "instance_type.price_cents_per_hour", CENTS_MAX);
    *ret = (struct type){.name = name,
                         .item = item,
                         .gpus = number(item, "instance_type.specs.gpus", 1024),
                         .usd_per_h = cents >= 0 ? cents / 100.0 : -1};
    return form_word(name) && str_eq(name, key) && ret->gpus >= 0 &&
           json_is_array(json_at(item, "regions_with_capacity_available"));
}

static bool fits(const struct search *s, const struct type *t, struct strv *counts) {
    const char *gpu = json_str(t->item, "instance_type.gpu_description", "");
    const struct spec_gpu *want = &s->spec->gpu;
    if (s->want->instance_type != NULL && !str_eq(s->want->instance_type, t->name)) return false;
    if (want->model == NULL) return s->want->instance_type != NULL || t->gpus == 0;
    if (!gpu_name_fits(want->model, gpu)) return false;
    char n[16];
    snprintf(n, sizeof n, "%d", t->gpus);
    if (!strv_has(counts, n)) strv_add(counts, n);
    return t->gpus == want->count;
}

/* Unknown prices last. */
static int by_price(const void *x, const void *y) {
    const struct type *a = x, *b = y;
    bool known_a = a->usd_per_h >= 0, known_b = b->usd_per_h >= 0;
    if (known_a != known_b) return known_a ? -1 : 1;
    if (a->usd_per_h < b->usd_per_h) return -1;
    if (a->usd_per_h > b->usd_per_h) return 1;
    return strcmp(a->name, b->name);
}

/* --- offers --- */

static void add_offer(struct search *s, const struct type *t, const char *region) {
    const json_t *image = image_find(s, region, arch_of(t->name));
    char day[32];
    if (image == NULL) {
        if (!strv_has(&s->no_image, region)) strv_add(&s->no_image, region);
        return;
    }
    time_format_utc(day, sizeof day, cloud_now_s(&s->l->base));
    struct offer o = {
        .spec_index = s->index,
        .provider = xstrdup("lambda"),
        .region = xstrdup(region),
        .zone = xstrdup(""),
        .instance_type = xstrdup(t->name),
        .market = MARKET_ON_DEMAND,
        .image = xstrdup(json_str(image, "id", "")),
        .image_name = xasprintf("%s %s", json_str(image, "family", ""), json_str(image, "version", "")),
        .subnet = xstrdup(""),
        .gpu_model = xstrdup(t->gpus > 0 ? json_str(t->item, "instance_type.gpu_description", "") : ""),
        .gpus = t->gpus,
        .vcpus = GP_MAX(number(t->item, "instance_type.specs.vcpus", 100000), 0),
        .memory_gib = GP_MAX(number(t->item, "instance_type.specs.memory_gib", 1000000), 0),
        .disk_gib = GP_MAX(number(t->item, "instance_type.specs.storage_gib", 1000000), 0),
        .price_usd_per_h = t->usd_per_h,
        .price_source = t->usd_per_h >= 0 ? xasprintf("instance-types %.10s", day) : xstrdup(""),
    };
    str_one_line(o.image_name);
    str_one_line(o.gpu_model);
    vec_push(&s->out->list, o);
}

static bool has_room(const struct type *t, const char *region) {
    const json_t *all = json_at(t->item, "regions_with_capacity_available"), *one = NULL;
    size_t i = 0;
    json_array_foreach(all, i, one) {
        if (str_eq(json_str(one, "name", ""), region)) return true;
    }
    return false;
}

static void offers_of_type(struct search *s, const struct type *t) {
    const json_t *all = json_at(t->item, "regions_with_capacity_available"), *one = NULL;
    size_t i = 0;
    for (size_t k = 0; k < s->want->regions.n; k++) {
        const char *region = s->want->regions.v[k];
        if (has_room(t, region)) add_offer(s, t, region);
        else if (!strv_has(&s->no_room, region)) strv_add(&s->no_room, region);
    }
    json_array_foreach(all, i, one) {
        const char *region = json_str(one, "name", "");
        if (s->want->regions.n == 0 && form_word(region)) add_offer(s, t, region);
    }
}

static int refuse(struct gp_error *err, int r) {
    if (err != NULL) err->scope = GP_SCOPE_OFFER;
    return r;
}

static int no_type(const struct search *s, const struct strv *counts, const struct strv *models, struct gp_error *err) {
    GP_AUTO_FREE char *numbers = strv_join(counts, ", ");
    GP_AUTO_FREE char *names = strv_join(models, ", ");
    const struct spec_gpu *gpu = &s->spec->gpu;
    if (s->want->instance_type != NULL && counts->n == 0 && strv_has(models, s->want->instance_type))
        return gp_fail(err, GP_EUSAGE, "lambda: %s does not have the GPU %s: correct instance_type or gpu",
                       s->want->instance_type, gpu->model);
    if (s->want->instance_type != NULL)
        return gp_fail(err, GP_EUSAGE, "lambda has no instance type '%s'%s%s: correct instance_type",
                       s->want->instance_type, gpu->model != NULL ? " with the GPUs of " : "",
                       gpu->model != NULL ? "the spec" : "");
    if (gpu->model == NULL)
        return gp_fail(err, GP_EUSAGE, "lambda sells no type without a GPU now: give gpu or instance_type");
    if (counts->n > 0)
        return gp_fail(err, GP_EUSAGE, "lambda has no type with %d x %s; it has them in: %s", gpu->count, gpu->model,
                       numbers);
    return gp_fail(err, GP_EUSAGE, "lambda has no type with a GPU '%s'; it has: %.200s", gpu->model, names);
}

static int nothing(const struct search *s, struct gp_error *err) {
    GP_AUTO_FREE char *where = strv_join(&s->no_image, ", ");
    GP_AUTO_FREE char *full = strv_join(&s->no_room, ", ");
    const char *what = s->want->instance_type != NULL ? s->want->instance_type
                       : s->spec->gpu.model != NULL   ? s->spec->gpu.model
                                                      : "a type without a GPU";
    if (s->no_image.n > 0)
        return gp_fail(err, GP_EUSAGE, "lambda: no image that fits in %s: give image.id (an image or a family)", where);
    int r =
        gp_fail(err, GP_ECAPACITY, "lambda: no capacity for %s in %s now: offer other regions or types, or try later",
                what, s->no_room.n > 0 ? full : "any region");
    if (err != NULL) str_put(err->detail, sizeof err->detail, "regions_with_capacity_available");
    return r;
}

static int search_types(struct search *s, json_t *types, struct gp_error *err) {
    struct types all = {0};
    GP_AUTO_STRV struct strv counts = {0};
    GP_AUTO_STRV struct strv models = {0};
    const char *key = NULL;
    json_t *item = NULL;
    json_object_foreach(types, key, item) {
        struct type t;
        if (!type_read(key, item, &t)) continue;
        const char *gpu = json_str(item, "instance_type.gpu_description", "");
        const char *shown = s->want->instance_type != NULL ? t.name : gpu;
        if (t.gpus > 0 && !strv_has(&models, shown)) strv_add(&models, shown);
        if (fits(s, &t, &counts)) vec_push(&all.list, t);
    }
    if (all.list.len > 1) qsort(all.list.items, all.list.len, sizeof *all.list.items, by_price);
    size_t before = s->out->list.len;
    for (size_t i = 0; i < all.list.len; i++) offers_of_type(s, &all.list.items[i]);
    int r = 0;
    if (all.list.len == 0) r = refuse(err, no_type(s, &counts, &models, err));
    else if (s->out->list.len == before) r = refuse(err, nothing(s, err));
    vec_free(&all.list);
    return r;
}

int lambda_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                  struct gp_error *err) {
    struct lambda *l = lambda_of(p);
    GP_AUTO_REST struct rest_reply types = {0}, images = {0};
    json_t *type_data = NULL, *image_data = NULL;
    struct search s = {.l = l, .spec = spec, .want = &spec->offers.items[index], .index = index, .out = ret};
    if (!spec->access.public_ip)
        return refuse(err, gp_fail(err, GP_EUSAGE,
                                   "lambda: nodes always have a public address: remove access.public_ip, or offer "
                                   "another provider"));
    int r = lambda_call(l, "GET", "/instance-types", NULL, 0, &types, &type_data, err);
    if (r == 0) r = lambda_call(l, "GET", "/images", NULL, LAMBDA_LIST, &images, &image_data, err);
    s.images = image_data;
    if (r == 0) r = search_types(&s, type_data, err);
    strv_clear(&s.no_room);
    strv_clear(&s.no_image);
    return r;
}
