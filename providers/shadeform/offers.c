// SPDX-License-Identifier: Apache-2.0
/* Offers: virtual machines and bare metal of GET /instances/types that fit, in the regions that have them now. One
 * call, buys nothing. One thread at a time. */
#include "base/gp_base.h"

#include "providers/shadeform/shadeform_int.h"

#include "base/form.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/gpu_name.h"

#define CENTS_MAX 10000000
#define GIB (INT64_C(1) << 30)

struct search {
    struct shade *s;
    const struct spec *spec;
    const struct spec_offer *want;
    size_t index;
    struct offer_list *out;
    struct strv models, counts; /* on sale */
    bool seen, no_image;        /* a type fits, but has no capacity; no image fits */
};

static int number(const json_t *j, const char *path, int max) {
    int64_t v = json_int(j, path, -1);
    return v >= 0 && v <= max ? (int)v : -1;
}

/* "A100 80GB SXM4" from gpu_type "A100_80G", vram_per_gpu_in_gb 80 and interconnect "sxm4". "pcie" is left out where
 * the model table does not have it: such cards have one form. Caller frees. */
static char *gpu_text(const json_t *type) {
    const char *gpu = json_str(type, "configuration.gpu_type", "");
    const char *how = json_str(type, "configuration.interconnect", "");
    int gb = number(type, "configuration.vram_per_gpu_in_gb", 4096);
    char known[64];
    char *plain = gb > 0 ? xasprintf("%.*s %dGB", (int)strcspn(gpu, "_"), gpu, gb)
                         : xasprintf("%.*s", (int)strcspn(gpu, "_"), gpu);
    GP_AUTO_FREE char *whole = xasprintf("%s %s", plain, how);
    str_one_line(plain);
    str_one_line(whole);
    bool form = strncasecmp(how, "sxm", 3) == 0 || strcasecmp(how, "nvl") == 0;
    if (!form && (strcasecmp(how, "pcie") != 0 || !gpu_name_known(whole, known, sizeof known))) return plain;
    free(plain);
    return GP_STEAL(whole);
}

/* The newest of os_options that fits: names are "ubuntu22.04_cuda12.2_shade_os". */
static const char *os_find(const struct search *s, const json_t *type) {
    const struct spec_image *want = spec_effective(s->spec, s->index).image;
    const json_t *all = json_at(type, "configuration.os_options"), *one = NULL;
    const char *found = NULL;
    size_t i = 0;
    bool cuda = want->os == NULL && want->id == NULL && s->spec->gpu.model != NULL;
    const char *os = want->os != NULL ? want->os : "ubuntu-";
    GP_AUTO_FREE char *prefix = xasprintf("%.*s%s", (int)strcspn(os, "-"), os, strchr(os, '-') + 1);
    json_array_foreach(all, i, one) {
        const char *name = json_is_string(one) ? json_string_value(one) : "";
        bool fits = want->id != NULL ? str_eq(name, want->id) : str_starts(name, prefix);
        if (!form_word(name) || !fits || (cuda && strstr(name, "_cuda") == NULL)) continue;
        if (found == NULL || strcmp(name, found) > 0) found = name;
    }
    return found;
}

static bool fits(struct search *s, const json_t *type, const char *gpu) {
    int gpus = number(type, "configuration.num_gpus", 1024);
    const char *how = json_str(type, "deployment_type", "");
    if (!str_eq(how, "vm") && !str_eq(how, "baremetal")) return false; /* containers have no init of their own */
    if (s->want->instance_type != NULL && !str_eq(json_str(type, "shade_instance_type", ""), s->want->instance_type))
        return false;
    if (s->spec->gpu.model == NULL) return s->want->instance_type != NULL || gpus == 0;
    if (!strv_has(&s->models, gpu)) strv_add(&s->models, gpu);
    if (!gpu_name_fits(s->spec->gpu.model, gpu)) return false;
    char n[16];
    snprintf(n, sizeof n, "%d", gpus);
    if (!strv_has(&s->counts, n)) strv_add(&s->counts, n);
    return gpus == s->spec->gpu.count;
}

static void add_offer(struct search *s, const json_t *type, const char *region, const char *gpu, const char *os) {
    int cents = number(type, "hourly_price", CENTS_MAX), gpus = number(type, "configuration.num_gpus", 1024);
    int64_t disk = GP_MAX(number(type, "configuration.storage_in_gb", 1000000), 0) * INT64_C(1000000000);
    char day[32];
    time_format_utc(day, sizeof day, cloud_now_s(&s->s->base));
    struct offer o = {
        .spec_index = s->index,
        .provider = xstrdup("shadeform"),
        .region = xstrdup(region),
        .zone = xstrdup(""),
        .instance_type = xstrdup(json_str(type, "shade_instance_type", "")),
        .market = MARKET_ON_DEMAND,
        .image = xstrdup(os),
        .image_name = xstrdup(os),
        .subnet = xstrdup(""),
        .gpu_model = xstrdup(gpus > 0 ? gpu : ""),
        .gpus = GP_MAX(gpus, 0),
        .vcpus = GP_MAX(number(type, "configuration.vcpus", 100000), 0),
        .memory_gib = GP_MAX(number(type, "configuration.memory_in_gb", 1000000), 0),
        .disk_gib = (int)((disk + GIB - 1) / GIB), /* rounded as `disk` of the spec is */
        .price_usd_per_h = cents >= 0 ? cents / 100.0 : -1,
        .price_source = cents >= 0 ? xasprintf("instances/types %.10s", day) : xstrdup(""),
    };
    vec_push(&s->out->list, o);
}

static void offers_of_type(struct search *s, const json_t *type) {
    const json_t *all = json_at(type, "availability"), *one = NULL;
    const char *cloud = json_str(type, "cloud", "");
    GP_AUTO_FREE char *gpu = gpu_text(type);
    size_t i = 0;
    if (!form_word(json_str(type, "shade_instance_type", "")) || !fits(s, type, gpu)) return;
    s->seen = true;
    const char *os = os_find(s, type);
    json_array_foreach(all, i, one) {
        GP_AUTO_FREE char *region = xasprintf("%s.%s", cloud, json_str(one, "region", ""));
        bool wanted = s->want->regions.n == 0 || strv_has(&s->want->regions, region);
        if (!wanted || strchr(cloud, '.') != NULL || !form_word(region) || !json_bool(one, "available", false))
            continue;
        if (os == NULL) s->no_image = true;
        else add_offer(s, type, region, gpu, os);
    }
}

static int by_price(const void *x, const void *y) {
    const struct offer *a = x, *b = y;
    bool known_a = a->price_usd_per_h >= 0, known_b = b->price_usd_per_h >= 0;
    if (known_a != known_b) return known_a ? -1 : 1;
    if (a->price_usd_per_h < b->price_usd_per_h) return -1;
    if (a->price_usd_per_h > b->price_usd_per_h) return 1;
    int region = strcmp(a->region, b->region);
    return region != 0 ? region : strcmp(a->instance_type, b->instance_type);
}

static int nothing(const struct search *s, struct gp_error *err) {
    GP_AUTO_FREE char *models = strv_join(&s->models, ", ");
    GP_AUTO_FREE char *counts = strv_join(&s->counts, ", ");
    GP_AUTO_FREE char *regions = strv_join(&s->want->regions, ", ");
    const char *what = s->want->instance_type != NULL ? s->want->instance_type : s->spec->gpu.model;
    int r = 0;
    if (s->no_image)
        r = gp_fail(err, GP_EUSAGE, "shadeform: no image of %s fits: give image.id, one of its os_options", what);
    else if (s->seen)
        r = gp_fail(err, GP_ECAPACITY,
                    "shadeform: no capacity for %s in %s now: offer other regions or types, or try later",
                    what != NULL ? what : "a type without a GPU", s->want->regions.n > 0 ? regions : "any region");
    else if (s->want->instance_type != NULL)
        r = gp_fail(err, GP_EUSAGE, "shadeform has no machine type '%s' with these GPUs: correct instance_type",
                    s->want->instance_type);
    else if (what == NULL)
        r = gp_fail(err, GP_EUSAGE, "shadeform sells no machine without a GPU now: give gpu or instance_type");
    else if (s->counts.n > 0)
        r = gp_fail(err, GP_EUSAGE, "shadeform has no machine with %d x %s; it has them in: %s", s->spec->gpu.count,
                    what, counts);
    else r = gp_fail(err, GP_EUSAGE, "shadeform has no machine with a GPU '%s'; it has: %.200s", what, models);
    if (err != NULL) err->scope = GP_SCOPE_OFFER;
    return r;
}

int shade_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                 struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    json_t *types = NULL, *type = NULL;
    size_t i = 0, before = ret->list.len;
    struct search s = {.s = shade_of(p), .spec = spec, .want = &spec->offers.items[index], .index = index, .out = ret};
    int r = 0;
    if (!spec->access.public_ip || spec_effective(spec, index).ssh_from->n > 0) {
        r = gp_fail(err, GP_EUSAGE,
                    "shadeform: nodes have a public address and no firewall in the API: remove "
                    "access.public_ip and access.ssh_from, or offer another provider");
        if (err != NULL) err->scope = GP_SCOPE_OFFER;
        return r;
    }
    r = shade_call(s.s, "GET", "/instances/types", NULL, 0, "instance_types", &reply, &types, err);
    if (r != 0) return r;
    json_array_foreach(types, i, type) offers_of_type(&s, type);
    size_t n = ret->list.len - before;
    if (n > 1) qsort(ret->list.items + before, n, sizeof *ret->list.items, by_price);
    if (n == 0) r = nothing(&s, err);
    strv_clear(&s.models);
    strv_clear(&s.counts);
    return r;
}
