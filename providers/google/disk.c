// SPDX-License-Identifier: Apache-2.0
/* The boot disk of a node: its type, its size and what it costs. Compute Engine encrypts every disk with keys of its
 * own; no request can leave that out. No calls. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "providers/catalog/catalog.h"

#define DISK_GPU_GIB 100
#define DISK_GIB 20

/* Types that boot from Hyperdisk only (cloud.google.com/compute/docs/disks/hyperdisks, machine support, 2026-08). */
static const char *const hyperdisk_only[] = {"a3-ultragpu-", "a4-", "a4x-", "g4-"};

const char *google_disk_type(const char *type) {
    for (size_t i = 0; i < GP_ARRAY_LEN(hyperdisk_only); i++)
        if (str_starts(type, hyperdisk_only[i])) return "hyperdisk-balanced";
    return "pd-balanced";
}

int google_disk_gib(const struct spec *spec, const struct google_image *image, int gpus) {
    return GP_MAX(image->gib, spec->disk_gib > 0 ? spec->disk_gib : gpus > 0 ? DISK_GPU_GIB : DISK_GIB);
}

int google_disk_check(const struct spec *spec, const struct google_image *image, struct gp_error *err) {
    if (spec->disk_gib == 0 || spec->disk_gib >= image->gib) return 0;
    return gp_fail(err, GP_EUSAGE, "google: image %s needs a boot disk of %d GiB, but 'disk' is %d GiB: correct disk",
                   image->name, image->gib, spec->disk_gib);
}

double google_disk_price(const struct spec *spec, const struct google_image *image, const char *type,
                         const char *region) {
    if (spec->disk_gib == 0) return 0;
    return catalog_google_disk_price(google_disk_type(type), google_disk_gib(spec, image, 0), region);
}
