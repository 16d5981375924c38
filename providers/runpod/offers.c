/* SPDX-License-Identifier: Apache-2.0 */
/* Offers from RunPod's catalogue: GPU types (or CPU flavours) by data center and kind of host, with list price and
 * stock. Buys nothing. One thread. */
#include "base/gp_base.h"

#include "providers/runpod/runpod_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/common/gpu_name.h"
#include "software/software.h"

#include <strings.h>

#define PRICE_MAX 10000.0 /* USD for an hour of one GPU; more is no price */

struct search {
    struct runpod *r;
    const struct spec *spec;
    const struct spec_offer *want;
    size_t index;
    const char *zone; /* RUNPOD_SECURE or RUNPOD_COMMUNITY */
    char cuda[16];
    struct strv joined; /* data centers with a network between pods; only for several nodes */
    struct offer_list *out;
    bool sold, too_many; /* the GPU was found; only with fewer per pod */
};

/* --- the host's CUDA --- */

static void raise(char *min, size_t n, const char *version) {
    size_t major = strspn(version, "0123456789"),
           minor = version[major] == '.' ? strspn(version + major + 1, "0123456789") : 0;
    char text[16];
    if (major == 0 || minor == 0 || version[major + 1 + minor] == '-') return;
    snprintf(text, sizeof text, "%.*s", (int)(major + 1 + minor), version);
    if (min[0] == '\0' || software_version_compare(text, min) > 0) str_put(min, n, text);
}

/* CUDA of the packages that the spec wants, of its PyTorch, and of the image where RunPod's own is used. A driver that
 * is older than those fails at the first call of CUDA. */
void runpod_minimum_cuda(const struct spec *spec, size_t index, char *ret, size_t n) {
    const struct spec_cuda *cuda = &spec->software.cuda;
    ret[0] = '\0';
    if (spec->gpu.count == 0) return;
    if (cuda->version != NULL) raise(ret, n, cuda->version);
    for (size_t i = 0; i < cuda->runtime.n; i++) raise(ret, n, cuda->runtime.v[i]);
    if (spec_effective(spec, index).image->id == NULL) raise(ret, n, runpod_image_cuda);
    if (!spec_python_torch(&spec->python)) return;
    struct software_wish w = spec_software_wish(spec, index, false, 0);
    GP_AUTO_SOFTWARE_SET struct software_set set = {0};
    if (software_solve(&w, &set, NULL) != 0 || !str_starts(set.torch_tag, "cu") || strlen(set.torch_tag) < 5) return;
    GP_AUTO_FREE char *version = xasprintf("%.2s.%s", set.torch_tag + 2, set.torch_tag + 4); /* "cu128" */
    raise(ret, n, version);
}

/* --- one type --- */

static bool gpu_fits(const char *wanted, const json_t *type) {
    struct gpu_name want, id, name;
    gpu_name_parse(wanted, &want);
    gpu_name_parse(json_str(type, "id", ""), &id);
    gpu_name_parse(json_str(type, "name", ""), &name);
    bool same = gpu_name_same(&want, &id);
    bool other_form = id.form[0] != '\0' && !str_starts(id.form, "SXM"); /* the short name may leave it out */
    if (!same && !(other_form && name.form[0] == '\0')) same = gpu_name_same(&want, &name);
    if (!same || want.memory_gb == 0) return same;
    double gb = (double)json_int(type, "memory", 0);
    return gb > want.memory_gb * 0.9 && gb < want.memory_gb * 1.1;
}

static bool in_stock(const json_t *at) {
    const char *level = json_str(at, "availability", "NONE");
    return strcmp(level, "NONE") != 0;
}

static enum offer_stock stock_of(const json_t *at) {
    const char *level = json_str(at, "availability", "");
    for (enum offer_stock o = OFFER_STOCK_NONE; o <= OFFER_STOCK_HIGH; o++)
        if (strcasecmp(level, offer_stock_name(o)) == 0) return o;
    return OFFER_STOCK_UNKNOWN;
}

static void add(struct search *s, const struct offer *of, const char *region, enum offer_stock stock) {
    char day[32];
    if (s->want->regions.n > 0 && !strv_has(&s->want->regions, region)) return;
    if (s->spec->nodes > 1 && !strv_has(&s->joined, region)) return;
    time_format_utc(day, sizeof day, clock_wall_s());
    struct offer o = {.spec_index = s->index,
                      .provider = xstrdup("runpod"),
                      .region = xstrdup(region),
                      .zone = xasprintf("%s-%s", region, s->zone),
                      .instance_type = xstrdup(of->instance_type),
                      .market = MARKET_ON_DEMAND,
                      .image = xstrdup(runpod_image_of(s->spec, s->index)),
                      .image_name = xstrdup(runpod_image_of(s->spec, s->index)),
                      .subnet = xstrdup(""),
                      .gpu_model = xstrdup(of->gpu_model),
                      .gpus = of->gpus,
                      .vcpus = of->vcpus,
                      .memory_gib = of->memory_gib,
                      .disk_gib = runpod_disk_gb(s->spec, of->gpus),
                      .stock = stock,
                      .price_usd_per_h = of->price_usd_per_h,
                      .price_source =
                          of->price_usd_per_h < 0 ? xstrdup("") : xasprintf("RunPod's catalogue %.10s", day)};
    vec_push(&s->out->list, o);
}

/* One offer for each data center that has it; hosts of other people are in none. */
static void add_places(struct search *s, const json_t *type, const struct offer *of) {
    const json_t *centers = json_at(type, "dataCenters"), *one = NULL;
    size_t i = 0, before = s->out->list.len;
    json_array_foreach(centers, i, one) {
        const char *id = json_str(one, "id", "");
        if (form_word(id) && in_stock(one)) add(s, of, id, stock_of(one));
    }
    bool anywhere = strv_has(&s->want->regions, RUNPOD_ANYWHERE) || strcmp(s->zone, RUNPOD_COMMUNITY) == 0;
    if (s->out->list.len == before && anywhere && in_stock(type)) add(s, of, RUNPOD_ANYWHERE, stock_of(type));
}

static double price_of(const json_t *type, const char *path, int units) {
    double one = json_num(type, path, -1);
    return one > 0 && one < PRICE_MAX ? one * units : -1;
}

static void add_gpu(struct search *s, const json_t *type) {
    bool secure = strcmp(s->zone, RUNPOD_SECURE) == 0;
    const char *id = json_str(type, "id", "");
    int count = s->spec->gpu.count;
    char word[80];
    if (strcmp(json_str(type, "manufacturer", ""), "NVIDIA") != 0 || !json_bool(type, s->zone, false)) return;
    if (!gpu_fits(s->spec->gpu.model, type) || !str_put(word, sizeof word, id)) return;
    for (char *c = word; *c != '\0'; c++)
        if (*c == ' ') *c = '-';
    if (!form_word(word)) return;
    s->sold = true;
    if (json_int(type, secure ? "maxCount.secure" : "maxCount.community", 0) < count) {
        s->too_many = true;
        return;
    }
    struct offer of = {.instance_type = word,
                       .gpu_model = (char *)(uintptr_t)id,
                       .gpus = count,
                       .price_usd_per_h = price_of(type, secure ? "price.secure" : "price.community", count)};
    add_places(s, type, &of);
}

/* Without a GPU the smallest size of each flavour that has the spec's `cpus` and `memory`, or its largest one, which is
 * then refused by name; all are sold in RunPod's own data centers only. */
static void add_cpu(struct search *s, const json_t *type) {
    const char *id = json_str(type, "id", "");
    double gib = json_num(type, "ramGbPerVcpu", 0);
    int vcpus = 2;
    int64_t min = json_int(type, "vcpu.min", 2), max = json_int(type, "vcpu.max", 0);
    while (vcpus < min && vcpus < 64) vcpus *= 2; /* a power of two */
    while (vcpus * 2 <= GP_MIN(max, (int64_t)1024) && (vcpus < s->spec->cpus || gib * vcpus < s->spec->memory_gib))
        vcpus *= 2;
    if (!form_word(id) || vcpus > max || strcmp(s->zone, RUNPOD_SECURE) != 0) return;
    s->sold = true;
    struct offer of = {.instance_type = (char *)(uintptr_t)id,
                       .gpu_model = (char[]){""},
                       .vcpus = vcpus,
                       .memory_gib = gib * vcpus,
                       .price_usd_per_h = price_of(type, "price.securePerVcpu", vcpus)};
    add_places(s, type, &of);
}

/* --- the catalogue --- */

static void catalogue_path(const struct search *s, const char *zone, struct str *path) {
    char count[16];
    str_add(path, s->spec->gpu.count > 0 ? "/catalog/gpus" : "/catalog/cpus");
    rest_query(path, "include", "AVAILABILITY");
    rest_query(path, "product", "POD");
    if (s->spec->gpu.count == 0) return;
    snprintf(count, sizeof count, "%d", s->spec->gpu.count);
    rest_query(path, "count", count);
    rest_query(path, "cloud", strcmp(zone, RUNPOD_COMMUNITY) == 0 ? "COMMUNITY" : "SECURE");
    if (s->cuda[0] != '\0') rest_query(path, "minCudaVersion", s->cuda);
}

static int take_catalogue(struct search *s, const json_t *reply, struct gp_error *err) {
    bool gpu = s->spec->gpu.count > 0;
    json_t *types = json_at(reply, gpu ? "gpus" : "cpus"), *one = NULL;
    size_t i = 0;
    if (!json_is_array(types))
        return gp_fail(err, GP_EPROTO, "runpod: the catalogue has no list of types: check RUNPOD_API_BASE_URL");
    json_array_foreach(types, i, one) {
        if (gpu) add_gpu(s, one);
        else add_cpu(s, one);
    }
    return 0;
}

/* Pods reach each other only through RunPod's global network, which not every data center has. */
static void take_joined(struct search *s, const json_t *reply) {
    json_t *one = NULL;
    size_t i = 0;
    json_array_foreach(json_at(reply, "dataCenters"), i, one) {
        const char *id = json_str(one, "id", "");
        if (form_word(id) && json_bool(one, "globalNetwork", false)) strv_add(&s->joined, id);
    }
}

/* The kinds of hosts that the offer wants, and for several nodes the data centers: side by side. */
static int read_all(struct search *s, struct gp_error *err) {
    static const char *const kinds[] = {RUNPOD_SECURE, RUNPOD_COMMUNITY};
    enum { CALLS = GP_ARRAY_LEN(kinds) + 1 };
    const char *zones[CALLS] = {0}; /* NULL: the data centers */
    struct rest_call calls[CALLS] = {0};
    struct rest_result results[CALLS] = {0};
    GP_AUTO_STRV struct strv urls = {0};
    size_t n = 0;
    int rc = 0;
    if (s->spec->nodes > 1) {
        char *url = xasprintf("%s/catalog/datacenters", s->r->url);
        strv_take(&urls, url);
        calls[n++] = (struct rest_call){.what = "runpod list data centers", .method = "GET", .url = url};
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(kinds); i++) {
        GP_AUTO_STR struct str path = {0};
        if (s->want->zones.n > 0 ? !strv_has(&s->want->zones, kinds[i]) : i > 0) continue;
        catalogue_path(s, kinds[i], &path);
        char *url = xasprintf("%s%s", s->r->url, path.s);
        strv_take(&urls, url);
        zones[n] = kinds[i];
        calls[n++] =
            (struct rest_call){.what = s->spec->gpu.count > 0 ? "runpod list GPU types" : "runpod list CPU types",
                               .method = "GET",
                               .url = url};
    }
    rest_call_many(&s->r->rest, calls, n, RUNPOD_AT_ONCE, results);
    for (size_t i = 0; i < n; i++) {
        if (rc == 0 && results[i].rc != 0) {
            rc = results[i].rc;
            if (err != NULL) *err = results[i].err;
        }
        s->zone = zones[i];
        if (rc == 0 && zones[i] == NULL) take_joined(s, results[i].reply.json);
        else if (rc == 0) rc = take_catalogue(s, results[i].reply.json, err);
        rest_reply_clear(&results[i].reply);
    }
    return rc;
}

static int none_fits(const struct search *s, struct gp_error *err) {
    const struct spec *spec = s->spec;
    const char *what = spec->gpu.count > 0 ? spec->gpu.model : "a pod without a GPU";
    int rc = 0;
    if (!s->sold)
        rc = gp_fail(err, GP_EUSAGE, "runpod: %s is not in the catalogue%s: choose another GPU", what,
                     s->cuda[0] != '\0' ? " for that kind of host" : "");
    else if (s->too_many && s->out->list.len == 0)
        rc = gp_fail(err, GP_EUSAGE, "runpod: no host has %d x %s in one pod: ask for fewer per node", spec->gpu.count,
                     what);
    else
        rc = gp_fail(err, GP_ECAPACITY, "runpod: no %s has %d x %s%s%s%s in stock now: try other regions, or later",
                     spec->nodes > 1 ? "data center with a network between pods" : "data center of the offer",
                     GP_MAX(spec->gpu.count, 1), what, s->cuda[0] != '\0' ? " on a host with CUDA " : "", s->cuda,
                     s->cuda[0] != '\0' ? " or newer" : "");
    if (err != NULL) err->scope = GP_SCOPE_OFFER;
    return rc;
}

int runpod_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                  struct gp_error *err) {
    const struct spec_offer *want = &spec->offers.items[index];
    struct search s = {.r = runpod_of(p), .spec = spec, .want = want, .index = index, .out = ret};
    size_t before = ret->list.len;
    int rc = 0;
    if (spec->nodes > 1 && spec->gpu.count == 0) {
        rc = gp_fail(err, GP_EUSAGE, "runpod: pods without a GPU have no network between them: set gpu, or nodes: 1");
        if (err != NULL) err->scope = GP_SCOPE_OFFER;
        return rc;
    }
    runpod_minimum_cuda(spec, index, s.cuda, sizeof s.cuda);
    rc = read_all(&s, err);
    strv_clear(&s.joined);
    if (rc == 0 && ret->list.len == before) rc = none_fits(&s, err);
    return rc;
}
