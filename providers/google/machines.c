// SPDX-License-Identifier: Apache-2.0
/* Machine types of a zone that fit a spec: those with GPUs of their own, and N1 types to which a GPU is attached. The
 * API gives accelerators and their numbers; memory and quota of an accelerator are facts here. Types and accelerators
 * of all zones are read side by side, and the image with them. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "providers/common/gpu_name.h"

/* Names, memory: cloud.google.com/compute/docs/gpus of 2026-08, as in the catalogue. Quota metrics: those of
 * regions.get in the API's description. H100 has only the PREEMPTIBLE_ one there; the newest families have theirs only
 * in the Cloud Quotas API. */
static const struct google_gpu gpus[] = {
    {"nvidia-tesla-t4", "T4", 16, "NVIDIA_T4_GPUS"},
    {"nvidia-tesla-v100", "V100", 16, "NVIDIA_V100_GPUS"},
    {"nvidia-tesla-p100", "P100", 16, "NVIDIA_P100_GPUS"},
    {"nvidia-tesla-p4", "P4", 8, "NVIDIA_P4_GPUS"},
    {"nvidia-l4", "L4", 24, "NVIDIA_L4_GPUS"},
    {"nvidia-tesla-a100", "A100", 40, "NVIDIA_A100_GPUS"},
    {"nvidia-a100-80gb", "A100-80GB", 80, "NVIDIA_A100_80GB_GPUS"},
    {"nvidia-h100-80gb", "H100", 80, "NVIDIA_H100_GPUS"},
    {"nvidia-h100-mega-80gb", "H100", 80, NULL},
    {"nvidia-h200-141gb", "H200", 141, NULL},
    {"nvidia-b200", "B200", 180, NULL},
    {"nvidia-gb200", "GB200", 186, NULL},
    {"nvidia-gb300", "GB300", 279, NULL},
    {"nvidia-rtx-pro-6000", "RTX PRO 6000", 96, NULL},
};

/* N1 types for attached GPUs: enough CPUs for the number, within the limits that Google has for the model (1 T4: at
 * most 48, 1 V100: 12, 1 P100: 16, 1 P4: 24). */
static const struct {
    const char *accelerator;
    int gpus;
    const char *type;
} attached[] = {
    {"nvidia-tesla-t4", 1, "n1-standard-8"},    {"nvidia-tesla-t4", 2, "n1-standard-16"},
    {"nvidia-tesla-t4", 4, "n1-standard-32"},   {"nvidia-tesla-v100", 1, "n1-standard-8"},
    {"nvidia-tesla-v100", 2, "n1-standard-16"}, {"nvidia-tesla-v100", 4, "n1-standard-32"},
    {"nvidia-tesla-v100", 8, "n1-standard-64"}, {"nvidia-tesla-p100", 1, "n1-standard-8"},
    {"nvidia-tesla-p100", 2, "n1-standard-16"}, {"nvidia-tesla-p100", 4, "n1-standard-32"},
    {"nvidia-tesla-p4", 1, "n1-standard-8"},    {"nvidia-tesla-p4", 2, "n1-standard-16"},
    {"nvidia-tesla-p4", 4, "n1-standard-32"},
};

/* Without a GPU and a type: the first that a zone sells. */
static const char *const small[] = {"e2-medium", "n2-standard-2", "n1-standard-2"};

const struct google_gpu *google_gpu_find(const char *accelerator) {
    for (size_t i = 0; i < GP_ARRAY_LEN(gpus); i++)
        if (strcmp(gpus[i].accelerator, accelerator) == 0) return &gpus[i];
    return NULL;
}

const char *google_gpu_at(size_t i) {
    for (size_t k = 0; k < GP_ARRAY_LEN(gpus); k++) {
        bool seen = k > 0 && strcmp(gpus[k].model, gpus[k - 1].model) == 0; /* rows of a model are neighbours */
        if (!seen && i-- == 0) return gpus[k].model;
    }
    return NULL;
}

bool google_gpu_matches(const char *wanted, const char *accelerator) {
    struct gpu_name want, have;
    const struct google_gpu *row = google_gpu_find(accelerator);
    gpu_name_parse(wanted, &want);
    gpu_name_parse(row != NULL ? row->model : accelerator, &have);
    int memory = row != NULL ? row->memory_gb : have.memory_gb;
    return gpu_name_same(&want, &have) && (want.memory_gb == 0 || want.memory_gb == memory);
}

void google_types_clear(struct google_types *t) {
    for (size_t i = 0; i < t->list.len; i++) {
        free(t->list.items[i].name);
        free(t->list.items[i].zone);
        free(t->list.items[i].accelerator);
        free(t->list.items[i].attach);
    }
    vec_free(&t->list);
}

struct search {
    const char *zone;
    const struct spec *spec;
    const struct spec_offer *want;
    struct google_types all; /* of the zone */
    struct strv attachable;  /* accelerators of the zone that an N1 type can get */
};

static int on_types(void *ctx, const json_t *page, struct gp_error *err) {
    struct search *s = ctx;
    const json_t *item = NULL;
    size_t i = 0;
    json_array_foreach(json_at(page, "items"), i, item) {
        const char *name = json_str(item, "name", ""), *gpu = json_str(item, "accelerators.0.guestAcceleratorType", "");
        int64_t cpus = json_int(item, "guestCpus", 0), mib = json_int(item, "memoryMb", 0);
        int64_t n = json_int(item, "accelerators.0.guestAcceleratorCount", 0);
        if (!google_name_valid(name) || (gpu[0] != '\0' && !google_name_valid(gpu)) || cpus < 0 || cpus > 65536 ||
            mib < 0 || mib > INT32_MAX || n < 0 || n > 1024)
            return gp_fail(err, GP_EPROTO, "google machineTypes.list in %s: an entry is not a machine type", s->zone);
        if (json_is_object(json_at(item, "deprecated"))) continue;
        struct google_type t = {.name = xstrdup(name),
                                .zone = xstrdup(s->zone),
                                .accelerator = xstrdup(gpu),
                                .attach = xstrdup(""),
                                .gpus = (int)n,
                                .vcpus = (int)cpus,
                                .memory_mib = (int)mib,
                                .arm = strcmp(json_str(item, "architecture", "X86_64"), "ARM64") == 0};
        vec_push(&s->all.list, t);
    }
    return 0;
}

static int on_accelerators(void *ctx, const json_t *page, struct gp_error *err) {
    struct search *s = ctx;
    const json_t *item = NULL;
    size_t i = 0;
    (void)err;
    json_array_foreach(json_at(page, "items"), i, item) {
        const char *name = json_str(item, "name", "");
        if (google_name_valid(name)) strv_add(&s->attachable, name);
    }
    return 0;
}

static void take(struct google_types *ret, const struct google_type *t, const char *attach, int n) {
    struct google_type one = {.name = xstrdup(t->name),
                              .zone = xstrdup(t->zone),
                              .accelerator = xstrdup(attach[0] != '\0' ? attach : t->accelerator),
                              .attach = xstrdup(attach),
                              .gpus = attach[0] != '\0' ? n : t->gpus,
                              .vcpus = t->vcpus,
                              .memory_mib = t->memory_mib,
                              .arm = t->arm};
    vec_push(&ret->list, one);
}

static const struct google_type *named(const struct search *s, const char *type) {
    for (size_t i = 0; i < s->all.list.len; i++)
        if (strcmp(s->all.list.items[i].name, type) == 0) return &s->all.list.items[i];
    return NULL;
}

static void take_own(const struct search *s, struct google_types *ret) {
    const char *model = s->spec->gpu.model;
    for (size_t i = 0; i < s->all.list.len; i++) {
        const struct google_type *t = &s->all.list.items[i];
        if (s->want->instance_type != NULL && strcmp(s->want->instance_type, t->name) != 0) continue;
        bool gpu = model != NULL && t->gpus == s->spec->gpu.count && google_gpu_matches(model, t->accelerator);
        if (gpu || (model == NULL && s->want->instance_type != NULL)) take(ret, t, "", 0);
    }
}

static bool may_be_attached(const struct spec *spec, size_t row) {
    return spec->gpu.model != NULL && attached[row].gpus == spec->gpu.count &&
           google_gpu_matches(spec->gpu.model, attached[row].accelerator);
}

static bool needs_accelerators(const struct spec *spec, const struct spec_offer *want) {
    if (want->instance_type != NULL && !str_starts(want->instance_type, "n1-")) return false;
    for (size_t i = 0; i < GP_ARRAY_LEN(attached); i++)
        if (may_be_attached(spec, i)) return true;
    return false;
}

static void take_attached(const struct search *s, struct google_types *ret) {
    for (size_t i = 0; i < GP_ARRAY_LEN(attached); i++) {
        if (!may_be_attached(s->spec, i)) continue;
        const char *type = s->want->instance_type != NULL ? s->want->instance_type : attached[i].type;
        const struct google_type *t = str_starts(type, "n1-") ? named(s, type) : NULL;
        if (t != NULL && strv_has(&s->attachable, attached[i].accelerator))
            take(ret, t, attached[i].accelerator, attached[i].gpus);
    }
}

static void take_small(const struct search *s, struct google_types *ret) {
    for (size_t i = 0; i < GP_ARRAY_LEN(small); i++) {
        const struct google_type *t = named(s, small[i]);
        if (t == NULL) continue;
        take(ret, t, "", 0);
        return;
    }
}

static void take_fitting(const struct search *s, struct google_types *ret) {
    take_own(s, ret);
    take_attached(s, ret);
    if (s->spec->gpu.model == NULL && s->want->instance_type == NULL) take_small(s, ret);
}

/* --- what is read side by side --- */

struct ahead {
    struct google *g;
    const char *what; /* the image's URL, or the network's name */
};

static int on_image(void *ctx, const json_t *reply, struct gp_error *err) {
    const struct ahead *image = ctx;
    (void)err;
    google_image_came(image->g, image->what, reply);
    return 0;
}

static int on_network(void *ctx, const json_t *reply, struct gp_error *err) {
    const struct ahead *network = ctx;
    (void)err;
    google_network_came(network->g, network->what, reply);
    return 0;
}

struct lists {
    VEC_OF(struct rest_paged) all;
    struct strv urls;
};

/* url: taken over. */
static void also(struct lists *l, const char *what, char *url, google_page_fn page, void *ctx) {
    struct rest_paged one = google_paged(what, url, page, ctx);
    strv_take(&l->urls, url);
    vec_push(&l->all, one);
}

/* What could not be read is read again where an offer needs it, with its error. ret: room for all of them. */
static void also_ahead(struct lists *l, struct google *g, const char *image, const struct strv *networks,
                       struct ahead *ret) {
    for (size_t i = 0; i < networks->n; i++) {
        ret[i] = (struct ahead){g, networks->v[i]};
        also(l, "google networks.get", google_url(g, "global/networks/%s", networks->v[i]), on_network, &ret[i]);
    }
    if (image == NULL) return;
    ret[networks->n] = (struct ahead){g, image};
    also(l, "google images.get", xstrdup(image), on_image, &ret[networks->n]);
}

int google_types_find(struct google *g, const struct strv *zones, const struct spec *spec, size_t index,
                      struct google_types *ret, struct gp_error *err) {
    const struct spec_offer *want = &spec->offers.items[index];
    struct search *searches = xcalloc(zones->n + 1, sizeof *searches);
    struct lists lists = {0};
    GP_AUTO_FREE char *image = google_image_ahead(g, spec, index);
    GP_AUTO_STRV struct strv networks = {0};
    bool more = needs_accelerators(spec, want);
    int r = 0;
    google_networks_ahead(g, spec, want, &networks);
    struct ahead *ahead = xcalloc(networks.n + 1, sizeof *ahead);
    for (size_t i = 0; i < zones->n; i++) {
        const char *zone = zones->v[i];
        searches[i] = (struct search){.zone = zone, .spec = spec, .want = want};
        also(&lists, "google machineTypes.list", google_url(g, "zones/%s/machineTypes?maxResults=500", zone), on_types,
             &searches[i]);
        if (more)
            also(&lists, "google acceleratorTypes.list",
                 google_url(g, "zones/%s/acceleratorTypes?maxResults=500", zone), on_accelerators, &searches[i]);
    }
    size_t needed = lists.all.len;
    also_ahead(&lists, g, image, &networks, ahead);
    rest_pages_many(&g->rest, lists.all.items, lists.all.len);
    for (size_t i = 0; r == 0 && i < needed; i++) {
        r = lists.all.items[i].rc;
        if (r != 0 && err != NULL) *err = lists.all.items[i].err;
    }
    for (size_t i = 0; i < zones->n; i++) {
        if (r == 0) take_fitting(&searches[i], ret);
        google_types_clear(&searches[i].all);
        strv_clear(&searches[i].attachable);
    }
    free(searches);
    free(ahead);
    vec_free(&lists.all);
    strv_clear(&lists.urls);
    return r;
}
