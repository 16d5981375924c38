// SPDX-License-Identifier: Apache-2.0
/* Images: the newest of a public family, or the one that the spec names. Only systems whose public images have
 * cloud-init, which reads the user-data. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#define ID_MAX 256

static const struct {
    const char *os, *x86, *arm; /* families */
} systems[] = {
    {"ubuntu-24.04", "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64",
     "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-arm64"},
    {"ubuntu-22.04", "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts",
     "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts-arm64"},
};

const char *google_os(size_t i) { return i < GP_ARRAY_LEN(systems) ? systems[i].os : NULL; }

static bool id_valid(const char *id) {
    size_t n = strlen(id);
    return n < ID_MAX && str_starts(id, "projects/") && strstr(id, "/global/images/") != NULL &&
           strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-.:/_") == n && strstr(id, "..") == NULL &&
           strstr(id, "//") == NULL;
}

static const struct google_image *cached(const struct google *g, const char *key) {
    for (size_t i = 0; i < g->cache->images.len; i++) {
        const struct google_image *one = g->cache->images.items[i];
        if (strcmp(one->key, key) == 0 || strcmp(one->id, key) == 0) return one;
    }
    return NULL;
}

/* Keeps the image of a reply. */
static int take(struct google *g, const char *id, const char *what, const json_t *json, const struct google_image **ret,
                struct gp_error *err) {
    const char *name = json_str(json, "name", "");
    int64_t gib = 0;
    if (!google_name_valid(name) || !str_to_i64(json_str(json, "diskSizeGb", ""), 0, 65536, &gib))
        return gp_fail(err, GP_EPROTO, "%s: the reply is not an image", what);
    if (strcmp(json_str(json, "status", "READY"), "READY") != 0) {
        int r = gp_fail(err, GP_EUSAGE, "%s: the image is not ready: give another one", what);
        if (err != NULL) err->scope = GP_SCOPE_OFFER;
        return r;
    }
    struct google_image *one = xcalloc(1, sizeof *one);
    const char *project_end = strstr(id, "/global/images/");
    one->key = xstrdup(id);
    one->id = xasprintf("%.*s/global/images/%s", (int)(project_end - id), id, name);
    one->name = xstrdup(name);
    one->gib = (int)gib;
    one->arm = strcmp(json_str(json, "architecture", ""), "ARM64") == 0;
    vec_push(&g->cache->images, one);
    *ret = one;
    return 0;
}

int google_image_by_id(struct google *g, const char *id, const struct google_image **ret, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    *ret = cached(g, id);
    if (*ret != NULL) return 0;
    if (!id_valid(id))
        return gp_fail(err, GP_EUSAGE,
                       "google: '%.100s' is not the id of an image: give projects/PROJECT/global/images/NAME", id);
    GP_AUTO_FREE char *url = xasprintf("%s%s", g->endpoint, id);
    GP_AUTO_FREE char *what = xasprintf("google images.get of %s", id);
    int r = google_call(g, what, "GET", url, NULL, 0, &reply, err);
    if (r == -GP_ENOTFOUND && err != NULL) {
        err->code = GP_EUSAGE;
        err->scope = GP_SCOPE_OFFER;
        r = -GP_EUSAGE;
    }
    return r == 0 ? take(g, id, what, reply.json, ret, err) : r;
}

/* NULL: no such system. */
static const char *key_of(const struct spec *spec, size_t index, bool arm) {
    const struct spec_image *want = spec_effective(spec, index).image;
    if (want->id != NULL) return want->id;
    for (size_t i = 0; i < GP_ARRAY_LEN(systems); i++)
        if (want->os == NULL || strcmp(want->os, systems[i].os) == 0) return arm ? systems[i].arm : systems[i].x86;
    return NULL;
}

char *google_image_ahead(const struct google *g, const struct spec *spec, size_t index) {
    const char *key = key_of(spec, index, false);
    bool worth = key != NULL && id_valid(key) && cached(g, key) == NULL;
    return worth ? xasprintf("%s%s", g->endpoint, key) : NULL;
}

void google_image_came(struct google *g, const char *url, const json_t *json) {
    const struct google_image *image = NULL;
    take(g, url + strlen(g->endpoint), "google images.get", json, &image, NULL);
}

int google_image_find(struct google *g, const struct spec *spec, size_t index, bool arm,
                      const struct google_image **ret, struct gp_error *err) {
    const char *key = key_of(spec, index, arm);
    if (key != NULL) return google_image_by_id(g, key, ret, err);
    return gp_fail(err, GP_EUSAGE, "google: there is no image of '%s': give image.id",
                   spec_effective(spec, index).image->os);
}
