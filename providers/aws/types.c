// SPDX-License-Identifier: Apache-2.0
/* From `gpu: MODEL:N` or `instance_type` to EC2 types, and the zones that sell them. GPU names are
 * the API's own; a request may add the memory ("A100-80GB"). No prices. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/form.h"
#include "providers/common/gpu_name.h"

/* Without a GPU: small current x86 types, the cheap ones first; the first that a zone sells. */
static const char *const small_types[] = {"t3.medium", "t3a.medium", "c7i.large", "c6i.large",
                                          "m6i.large", "c5.large",   "m5.large"};

static void type_clear(struct aws_type *t) {
    free(t->name);
    free(t->arch);
    free(t->gpu_name);
}

void aws_types_clear(struct aws_types *t) {
    for (size_t i = 0; i < t->list.len; i++) type_clear(&t->list.items[i]);
    vec_free(&t->list);
}

/* --- GPU names --- */

bool aws_gpu_matches(const char *wanted, const struct aws_type *t) {
    struct gpu_name want, have;
    gpu_name_parse(wanted, &want);
    gpu_name_parse(t->gpu_name, &have);
    if (!gpu_name_same(&want, &have)) return false;
    if (want.memory_gb == 0) return true;
    /* Makers use GB, the API MiB, sometimes without the memory that the card reserves. */
    double gib = t->gpu_mib / 1024.0;
    return gib > want.memory_gb * 0.9 && gib < want.memory_gb * 1.1;
}

/* The NVIDIA GPUs of EC2 that are older than Turing, by the API's names. All others
 * get the open kernel modules. Kepler's last branch is 470; Maxwell, Pascal and Volta end with
 * 580. */
static const struct aws_old_gpu old_gpus[] = {
    {"V100", "Volta", 580}, {"P100", "Pascal", 580}, {"P40", "Pascal", 580},
    {"P4", "Pascal", 580},  {"M60", "Maxwell", 580}, {"M40", "Maxwell", 580},
    {"M4", "Maxwell", 580}, {"K80", "Kepler", 470},  {"K520", "Kepler", 470},
};

const struct aws_old_gpu *aws_old_gpu(const char *gpu_name) {
    struct gpu_name have;
    gpu_name_parse(gpu_name, &have);
    for (size_t i = 0; i < GP_ARRAY_LEN(old_gpus); i++)
        if (strcmp(old_gpus[i].model, have.model) == 0) return &old_gpus[i];
    return NULL;
}

/* --- DescribeInstanceTypes --- */

static int xml_number(const struct xml_node *n, const char *path) {
    int64_t v = 0;
    return str_to_i64(xml_str(n, path, "0"), 0, INT32_MAX, &v) ? (int)v : 0;
}

static bool has_item(const struct xml_node *n, const char *path, const char *value) {
    const struct xml_node *set = xml_find(n, path);
    for (size_t i = 0; set != NULL && i < set->children.len; i++)
        if (strcmp(set->children.items[i]->text, value) == 0) return true;
    return false;
}

static int on_type(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct aws_types *all = ctx;
    if (!form_word(xml_str(item, "instanceType", "")))
        return gp_fail(err, GP_EPROTO,
                       "ec2 DescribeInstanceTypes: an entry without a type's name: run the "
                       "same command again");
    const struct xml_node *gpu = xml_find(item, "gpuInfo/gpus/item");
    bool arm = has_item(item, "processorInfo/supportedArchitectures", "arm64");
    struct aws_type t = {
        .name = xstrdup(xml_str(item, "instanceType", "")),
        .arch = xstrdup(arm ? "arm64" : "x86_64"),
        .gpu_name = xstrdup(xml_str(gpu, "name", "")),
        .nvidia = strcmp(xml_str(gpu, "manufacturer", ""), "NVIDIA") == 0,
        .gpus = xml_number(gpu, "count"),
        .gpu_mib = xml_number(gpu, "memoryInfo/sizeInMiB"),
        .vcpus = xml_number(item, "vCpuInfo/defaultVCpus"),
        .memory_mib = xml_number(item, "memoryInfo/sizeInMiB"),
        .current = strcmp(xml_str(item, "currentGeneration", ""), "true") == 0,
        .bare_metal = strcmp(xml_str(item, "bareMetal", ""), "true") == 0,
        .spot = has_item(item, "supportedUsageClasses", "spot"),
    };
    aws_nics_read(item, &t.nics);
    vec_push(&all->list, t);
    return 0;
}

static int describe_named(struct aws *a, const char *region, const char *const *names, size_t n, bool as_filter,
                          struct aws_types *ret, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeInstanceTypes");
    if (as_filter) aws_param(&body, "Filter.1.Name", "instance-type");
    for (size_t i = 0; i < n; i++)
        aws_paramf(&body, names[i], as_filter ? "Filter.1.Value.%zu" : "InstanceType.%zu", i + 1);
    /* MaxResults may not be sent with names. */
    return aws_describe(a, region, "DescribeInstanceTypes", &body, as_filter ? 100 : 0, "instanceTypeSet", on_type, ret,
                        err);
}

static int describe_all(struct aws *a, const char *region, struct aws_types *ret, struct gp_error *err) {
    static const char *const families[] = {"g*", "p*"}; /* every NVIDIA family of EC2 */
    int r = describe_named(a, region, families, 2, true, ret, err);
    if (r != 0 || ret->list.len > 0) return r;
    /* An EC2-compatible endpoint may not support wildcards. */
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeInstanceTypes");
    return aws_describe(a, region, "DescribeInstanceTypes", &body, 100, "instanceTypeSet", on_type, ret, err);
}

/* Moves fitting types from all to ret; appends the other GPU counts to `have`. */
static void pick_gpus(struct aws_types *all, const struct spec *spec, bool spot, struct aws_types *ret,
                      struct strv *have, struct strv *names) {
    for (size_t i = 0; i < all->list.len; i++) {
        struct aws_type *t = &all->list.items[i];
        if (!t->nvidia || t->gpus < 1) continue;
        if (!strv_has(names, t->gpu_name)) strv_add(names, t->gpu_name);
        if (!aws_gpu_matches(spec->gpu.model, t)) continue;
        char count[16];
        snprintf(count, sizeof count, "%d", t->gpus);
        if (!strv_has(have, count)) strv_add(have, count);
        if (t->gpus != spec->gpu.count || (spot && !t->spot)) continue;
        vec_push(&ret->list, *t);
        *t = (struct aws_type){0};
    }
}

static int no_type(const struct spec *spec, const char *region, bool spot, const struct strv *have,
                   const struct strv *names, struct gp_error *err) {
    GP_AUTO_FREE char *counts = strv_join(have, ", ");
    GP_AUTO_FREE char *models = strv_join(names, ", ");
    int r = 0;
    if (names->n > 0 && have->n == 0)
        r = gp_fail(err, GP_EUSAGE, "aws %s has no type with a GPU '%s'; it has: %.200s", region, spec->gpu.model,
                    models);
    else
        r = gp_fail(err, GP_EUSAGE, "aws %s has no type with %d x %s%s; it has them in: %s", region, spec->gpu.count,
                    spec->gpu.model, spot ? " on the spot market" : "", have->n > 0 ? counts : "no number");
    if (err != NULL) err->scope = GP_SCOPE_REGION;
    return r;
}

/* Smaller types first, because they are usually cheaper. */
static int by_size(const void *x, const void *y) {
    const struct aws_type *a = x, *b = y;
    if (a->bare_metal != b->bare_metal) return a->bare_metal ? 1 : -1;
    if (a->vcpus != b->vcpus) return a->vcpus < b->vcpus ? -1 : 1;
    if (a->memory_mib != b->memory_mib) return a->memory_mib < b->memory_mib ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int find_by_name(struct aws *a, const char *region, const struct spec *spec, const struct spec_offer *offer,
                        struct aws_types *ret, struct gp_error *err) {
    const char *name = offer->instance_type;
    int r = describe_named(a, region, &name, 1, false, ret, err);
    if (r != 0) return r;
    if (ret->list.len != 1) return gp_fail(err, GP_EUSAGE, "aws %s has no instance type '%s'", region, name);
    const struct aws_type *t = &ret->list.items[0];
    if (spec->gpu.model != NULL && (!aws_gpu_matches(spec->gpu.model, t) || t->gpus != spec->gpu.count))
        return gp_fail(err, GP_EUSAGE, "instance_type %s has %d x %s, but gpu is %s:%d", name, t->gpus,
                       t->gpu_name[0] ? t->gpu_name : "no GPU", spec->gpu.model, spec->gpu.count);
    if (offer->market == MARKET_SPOT && !t->spot)
        return gp_fail(err, GP_EUSAGE, "instance_type %s is not sold on the spot market", name);
    return 0;
}

/* Without a GPU, for a spec with `cpus` or `memory`: the current families, the smallest sizes that suffice first. */
static int find_by_needs(struct aws *a, const char *region, const struct spec *spec, bool spot, struct aws_types *ret,
                         struct gp_error *err) {
    static const char *const families[] = {"c7i", "m7i", "r7i", "c6i", "m6i", "r6i", "c5", "m5", "r5"};
    static const char *const sizes[] = {"large",    "xlarge",   "2xlarge",  "4xlarge",  "8xlarge",  "9xlarge",
                                        "12xlarge", "16xlarge", "18xlarge", "24xlarge", "32xlarge", "48xlarge"};
    GP_AUTO_STRV struct strv names = {0};
    struct aws_types all = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(families); i++)
        for (size_t k = 0; k < GP_ARRAY_LEN(sizes); k++) strv_take(&names, xasprintf("%s.%s", families[i], sizes[k]));
    int r = describe_named(a, region, (const char *const *)names.v, names.n, true, &all, err);
    for (size_t i = 0; r == 0 && i < all.list.len; i++) {
        struct aws_type *t = &all.list.items[i];
        if (t->vcpus < spec->cpus || t->memory_mib < spec->memory_gib * 1024 || (spot && !t->spot)) continue;
        vec_push(&ret->list, *t);
        *t = (struct aws_type){0};
    }
    aws_types_clear(&all);
    if (r != 0) return r;
    if (ret->list.len == 0) {
        r = gp_fail(err, GP_EUSAGE,
                    "aws %s: no type of the families m, c and r has %d CPUs and %d GiB of memory%s: "
                    "give instance_type",
                    region, spec->cpus, spec->memory_gib, spot ? " on the spot market" : "");
        if (err != NULL) err->scope = GP_SCOPE_REGION;
        return r;
    }
    qsort(ret->list.items, ret->list.len, sizeof *ret->list.items, by_size);
    return 0;
}

int aws_types_find(struct aws *a, const char *region, const struct spec *spec, const struct spec_offer *offer,
                   struct aws_types *ret, struct gp_error *err) {
    bool spot = offer->market == MARKET_SPOT;
    if (offer->instance_type != NULL) return find_by_name(a, region, spec, offer, ret, err);
    struct aws_types all = {0};
    int r = 0;
    if (spec->gpu.model != NULL) {
        GP_AUTO_STRV struct strv have = {0};
        GP_AUTO_STRV struct strv names = {0};
        r = describe_all(a, region, &all, err);
        if (r == 0) pick_gpus(&all, spec, spot, ret, &have, &names);
        aws_types_clear(&all);
        if (r == 0 && ret->list.len == 0) return no_type(spec, region, spot, &have, &names, err);
        if (r == 0) qsort(ret->list.items, ret->list.len, sizeof *ret->list.items, by_size);
        return r;
    }
    if (spec->cpus > 0 || spec->memory_gib > 0) return find_by_needs(a, region, spec, spot, ret, err);
    r = describe_named(a, region, small_types, GP_ARRAY_LEN(small_types), true, &all, err);
    for (size_t i = 0; r == 0 && i < GP_ARRAY_LEN(small_types); i++)
        for (size_t k = 0; k < all.list.len; k++) {
            struct aws_type *t = &all.list.items[k];
            if (t->name == NULL || strcmp(t->name, small_types[i]) != 0 || (spot && !t->spot)) continue;
            vec_push(&ret->list, *t);
            *t = (struct aws_type){0};
        }
    aws_types_clear(&all);
    if (r == 0 && ret->list.len == 0)
        return gp_fail(err, GP_EUSAGE, "aws %s sells none of the small types: give instance_type", region);
    return r;
}

int aws_type_nics(struct aws *a, const char *region, const char *type, struct aws_nics *ret, struct gp_error *err) {
    GP_AUTO_FREE char *key = xasprintf("%s/%s", region, type);
    for (size_t i = 0; i < a->cache->nics_of.n; i++) {
        if (strcmp(a->cache->nics_of.v[i], key) != 0) continue;
        *ret = a->cache->nics.items[i];
        return 0;
    }
    struct aws_types one = {0};
    int r = describe_named(a, region, &type, 1, false, &one, err);
    if (r == 0 && one.list.len != 1) r = gp_fail(err, GP_EUSAGE, "aws %s has no instance type '%s'", region, type);
    if (r == 0) *ret = one.list.items[0].nics;
    aws_types_clear(&one);
    return r;
}

static int on_offering(void *ctx, const struct xml_node *item, struct gp_error *err) {
    const char *type = xml_str(item, "instanceType", ""), *zone = xml_str(item, "location", "");
    if (!form_word(type) || !form_word(zone))
        return gp_fail(err, GP_EPROTO,
                       "ec2 DescribeInstanceTypeOfferings: an entry without a type and a "
                       "zone: run the same command again");
    GP_AUTO_FREE char *key = xasprintf("%s/%s", type, zone);
    if (!strv_has(ctx, key)) strv_add(ctx, key);
    return 0;
}

int aws_type_zones(struct aws *a, const char *region, const struct aws_type *types, size_t n, struct strv *ret,
                   struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeInstanceTypeOfferings");
    aws_param(&body, "LocationType", "availability-zone");
    aws_param(&body, "Filter.1.Name", "instance-type");
    for (size_t i = 0; i < n; i++) aws_paramf(&body, types[i].name, "Filter.1.Value.%zu", i + 1);
    return aws_describe(a, region, "DescribeInstanceTypeOfferings", &body, 1000, "instanceTypeOfferingSet", on_offering,
                        ret, err);
}
