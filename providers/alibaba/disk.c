// SPDX-License-Identifier: Apache-2.0
/* The system disk of a node, an encrypted ESSD: its size, and the query for its price. No calls. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#define DISK_GPU_GIB 100
#define DISK_GIB 40

int ali_disk_gib(const struct ali *a, const struct spec *spec, const char *image, int gpus) {
    const struct ali_image *seen = ali_image_seen(a, image);
    int gib = spec->disk_gib > 0 ? GP_MAX(spec->disk_gib, ALI_DISK_MIN_GIB) : gpus > 0 ? DISK_GPU_GIB : DISK_GIB;
    return GP_MAX(gib, seen != NULL ? seen->gib : 0);
}

int ali_disk_check(const struct ali *a, const struct spec *spec, const char *region, const char *image,
                   struct gp_error *err) {
    const struct ali_image *seen = ali_image_seen(a, image);
    int r = 0;
    if (spec->disk_gib > ALI_DISK_MAX_GIB)
        r = gp_fail(err, GP_EUSAGE,
                    "alibaba: a system disk has at most %d GiB, but 'disk' is %d GiB: give a smaller disk and mount "
                    "storage for the data",
                    ALI_DISK_MAX_GIB, spec->disk_gib);
    else if (spec->disk_gib > 0 && seen != NULL && spec->disk_gib < seen->gib)
        r = gp_fail(err, GP_EUSAGE,
                    "alibaba %s: image %s needs a system disk of %d GiB, but 'disk' is %d GiB: correct disk", region,
                    image, seen->gib, spec->disk_gib);
    return r;
}

void ali_disk_query(struct str *query, int gib) {
    ali_param(query, "ResourceType", "disk");
    ali_param(query, "PriceUnit", "Hour");
    ali_param(query, "DataDisk.1.Category", "cloud_essd"); /* a system disk of the category has the same price */
    ali_param_int(query, "DataDisk.1.Size", gib);
}
