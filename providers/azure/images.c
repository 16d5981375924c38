// SPDX-License-Identifier: Apache-2.0
/* Images: the systems that Azure has, by publisher, offer and SKU, and images of the user's own. Pure. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/form.h"

static const struct {
    const char *name, *arch, *image;
} systems[] = {
    {"ubuntu-24.04", "x86_64", "Canonical:ubuntu-24_04-lts:server:latest"},
    {"ubuntu-24.04", "arm64", "Canonical:ubuntu-24_04-lts:server-arm64:latest"},
    {"ubuntu-22.04", "x86_64", "Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2:latest"},
    {"ubuntu-22.04", "arm64", "Canonical:0001-com-ubuntu-server-jammy:22_04-lts-arm64:latest"},
    {"debian-12", "x86_64", "Debian:debian-12:12-gen2:latest"},
    {"debian-12", "arm64", "Debian:debian-12:12-arm64:latest"},
};
/* With NVIDIA's driver, InfiniBand and NCCL. */
static const char with_driver[] = "microsoft-dsvm:ubuntu-hpc:2204:latest";

const char *azure_image_os(size_t i) {
    for (size_t k = 0; k < GP_ARRAY_LEN(systems); k++) {
        bool seen = k > 0 && strcmp(systems[k].name, systems[k - 1].name) == 0;
        if (!seen && i-- == 0) return systems[k].name;
    }
    return NULL;
}

static int fail_offer(struct gp_error *err) {
    if (err != NULL) err->scope = GP_SCOPE_OFFER;
    return -GP_EUSAGE;
}

static bool is_urn(const char *id) {
    GP_AUTO_STRV struct strv parts = {0};
    strv_split(&parts, id, ":");
    if (parts.n != 4 || strstr(id, "::") != NULL || id[0] == ':') return false;
    for (size_t i = 0; i < 4; i++)
        if (!azure_is_name(parts.v[i])) return false;
    return true;
}

static bool is_image_id(const char *id) {
    GP_AUTO_STRV struct strv parts = {0};
    strv_split(&parts, id, "/");
    bool ok = parts.n >= 8 && strstr(id, "//") == NULL && strcasecmp(parts.v[0], "subscriptions") == 0 &&
              azure_is_guid(parts.v[1]) && strcasecmp(parts.v[2], "resourceGroups") == 0;
    for (size_t i = 2; ok && i < parts.n; i++) ok = azure_is_name(parts.v[i]);
    return ok;
}

int azure_image_find(const struct spec *spec, size_t index, const struct azure_size *size, bool infiniband, char **ret,
                     struct gp_error *err) {
    const struct spec_image *want = spec_effective(spec, index).image;
    if (want->baked != NULL && strcmp(want->baked, BAKED_REQUIRE) == 0) {
        gp_fail(err, GP_EUSAGE, "offers[%zu]: azure has no baked images yet: give image.os or image.id", index);
        return fail_offer(err);
    }
    if (want->id != NULL && is_urn(want->id)) {
        *ret = xstrdup(want->id);
        return 0;
    }
    if (want->id != NULL && is_image_id(want->id)) {
        *ret = xasprintf("/%s", want->id);
        return 0;
    }
    if (want->id != NULL) {
        gp_fail(err, GP_EUSAGE,
                "offers[%zu]: '%.120s' is no image of azure: give publisher:offer:sku:version, or an id that begins "
                "with subscriptions/",
                index, want->id);
        return fail_offer(err);
    }
    bool arm = strcmp(size->arch, "arm64") == 0;
    const char *os = want->os != NULL ? want->os : "ubuntu-24.04";
    if (want->os == NULL && (size->gpus > 0 || infiniband) && !arm) {
        *ret = xstrdup(with_driver);
        return 0;
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(systems); i++)
        if (strcmp(systems[i].name, os) == 0 && strcmp(systems[i].arch, size->arch) == 0) {
            *ret = xstrdup(systems[i].image);
            return 0;
        }
    gp_fail(err, GP_EUSAGE, "offers[%zu]: azure has no image of '%s' for %s", index, os, size->arch);
    return fail_offer(err);
}

json_t *azure_image_json(const char *image) {
    GP_AUTO_STRV struct strv parts = {0};
    if (image[0] == '/') return json_pack("{s:s}", "id", image);
    strv_split(&parts, image, ":");
    if (parts.n != 4) return json_object();
    return json_pack("{s:s,s:s,s:s,s:s}", "publisher", parts.v[0], "offer", parts.v[1], "sku", parts.v[2], "version",
                     parts.v[3]);
}
