// SPDX-License-Identifier: Apache-2.0
/* Which image a node boots: by id, by OS name, or automatically (with a GPU the newest AWS Deep
 * Learning Base OSS image, which has the driver; without one Ubuntu LTS). Public SSM parameters name
 * the newest; where they cannot be asked, DescribeImages by owner and name does. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

struct os_row {
    const char *name, *arch;
    const char *ssm;            /* public parameter with the newest id */
    const char *owner, *filter; /* the same by DescribeImages */
};
#define CANONICAL "099720109477"
#define DEBIAN "136693071363"
static const struct os_row os_rows[] = {
    {"ubuntu-24.04", "x86_64",
     "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id", CANONICAL,
     "ubuntu/images/hvm-ssd*/ubuntu-noble-24.04-amd64-server-*"},
    {"ubuntu-24.04", "arm64",
     "/aws/service/canonical/ubuntu/server/24.04/stable/current/arm64/hvm/ebs-gp3/ami-id", CANONICAL,
     "ubuntu/images/hvm-ssd*/ubuntu-noble-24.04-arm64-server-*"},
    {"ubuntu-22.04", "x86_64",
     "/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id", CANONICAL,
     "ubuntu/images/hvm-ssd*/ubuntu-jammy-22.04-amd64-server-*"},
    {"ubuntu-22.04", "arm64",
     "/aws/service/canonical/ubuntu/server/22.04/stable/current/arm64/hvm/ebs-gp2/ami-id", CANONICAL,
     "ubuntu/images/hvm-ssd*/ubuntu-jammy-22.04-arm64-server-*"},
    {"debian-12", "x86_64", "/aws/service/debian/release/12/latest/amd64", DEBIAN,
     "debian-12-amd64-*"},
    {"debian-12", "arm64", "/aws/service/debian/release/12/latest/arm64", DEBIAN,
     "debian-12-arm64-*"},
    {"debian-13", "x86_64", "/aws/service/debian/release/13/latest/amd64", DEBIAN,
     "debian-13-amd64-*"},
    {"debian-13", "arm64", "/aws/service/debian/release/13/latest/arm64", DEBIAN,
     "debian-13-arm64-*"},
};
/* image: auto, with a GPU; the first that the region has. */
static const struct os_row gpu_rows[] = {
    {"auto", "x86_64",
     "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
     "amazon", "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04)*"},
    {"auto", "x86_64",
     "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
     "amazon", "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)*"},
    {"auto", "arm64",
     "/aws/service/deeplearning/ami/arm64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
     "amazon", "Deep Learning ARM64 Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04)*"},
    {"auto", "arm64",
     "/aws/service/deeplearning/ami/arm64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
     "amazon", "Deep Learning ARM64 Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)*"},
};
#define NEWEST_LTS "ubuntu-24.04"

void aws_image_clear(struct aws_image *i) {
    free(i->region);
    free(i->id);
    free(i->name);
    free(i->arch);
    free(i->root_device);
    *i = (struct aws_image){0};
}

struct newest {
    const char *region;
    struct aws_image image;
    char created[32]; /* ISO: sorts as text */
};

static int on_image(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct newest *n = ctx;
    (void)err;
    const char *created = xml_str(item, "creationDate", "");
    if (strcmp(xml_str(item, "imageState", "available"), "available") != 0) return 0;
    if (n->image.id != NULL && strcmp(created, n->created) <= 0) return 0;
    aws_image_clear(&n->image);
    str_put(n->created, sizeof n->created, created);
    n->image.region = xstrdup(n->region);
    n->image.id = xstrdup(xml_str(item, "imageId", ""));
    n->image.name = xstrdup(xml_str(item, "name", ""));
    n->image.arch = xstrdup(xml_str(item, "architecture", "x86_64"));
    n->image.root_device = xstrdup(xml_str(item, "rootDeviceName", ""));
    const struct xml_node *set = xml_find(item, "blockDeviceMapping");
    for (size_t i = 0; set != NULL && i < set->children.len; i++) {
        const struct xml_node *d = set->children.items[i];
        int64_t gib = 0;
        if (strcmp(xml_str(d, "deviceName", ""), n->image.root_device) == 0 &&
            str_to_i64(xml_str(d, "ebs/volumeSize", "0"), 0, 65536, &gib))
            n->image.root_gib = (int)gib;
    }
    return 0;
}

static int describe_id(struct aws *a, const char *region, const char *id, struct newest *ret,
                       struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeImages");
    aws_param(&body, "ImageId.1", id);
    ret->region = region;
    return aws_describe(a, region, "DescribeImages", &body, 0, "imagesSet", on_image, ret, err);
}

static int describe_newest(struct aws *a, const char *region, const struct os_row *row,
                           struct newest *ret, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeImages");
    aws_param(&body, "Owner.1", row->owner);
    aws_filter(&body, 1, "name", row->filter);
    aws_filter(&body, 2, "architecture", row->arch);
    aws_filter(&body, 3, "state", "available");
    ret->region = region;
    return aws_describe(a, region, "DescribeImages", &body, 0, "imagesSet", on_image, ret, err);
}

/* The id that a public parameter names; NULL when it cannot be had, for whatever reason. */
static char *from_ssm(struct aws *a, const char *region, const char *name) {
    GP_AUTO_FREE char *body = xasprintf("{\"Name\":\"%s\"}", name);
    struct aws_call call = {.service = "ssm", .region = region, .action = "GetParameter",
                            .body = body, .flags = AWS_OPTIONAL};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    if (aws_call(a, &call, &reply, NULL) != 0) return NULL;
    const char *id = json_str(reply.json, "Parameter.Value", "");
    return str_starts(id, "ami-") ? xstrdup(id) : NULL;
}

static const struct aws_image *keep(struct aws *a, const char *key, struct newest *n) {
    struct aws_image *image = xcalloc(1, sizeof *image);
    *image = n->image;
    n->image = (struct aws_image){0};
    vec_push(&a->cache->images, image);
    strv_add(&a->cache->image_keys, key);
    return image;
}

static const struct aws_image *cached(const struct aws *a, const char *key) {
    for (size_t i = 0; i < a->cache->image_keys.n; i++)
        if (strcmp(a->cache->image_keys.v[i], key) == 0) return a->cache->images.items[i];
    return NULL;
}

int aws_image_by_id(struct aws *a, const char *region, const char *id,
                    const struct aws_image **ret, struct gp_error *err) {
    GP_AUTO_FREE char *key = xasprintf("%s/%s", region, id);
    *ret = cached(a, key);
    if (*ret != NULL) return 0;
    struct newest n = {0};
    int r = describe_id(a, region, id, &n, err);
    if (r == 0 && n.image.id == NULL)
        r = gp_fail(err, GP_EUSAGE, "aws %s has no image '%s': an image lives in one region only", region,
                    id);
    if (r == 0) *ret = keep(a, key, &n);
    aws_image_clear(&n.image);
    return r;
}

static int by_row(struct aws *a, const char *region, const struct os_row *row,
                  const struct aws_image **ret, struct gp_error *err) {
    GP_AUTO_FREE char *key = xasprintf("%s/%s", region, row->ssm);
    *ret = cached(a, key);
    if (*ret != NULL) return 0;
    struct newest n = {0};
    int r = 0;
    GP_AUTO_FREE char *id = from_ssm(a, region, row->ssm);
    if (id != NULL && describe_id(a, region, id, &n, NULL) != 0) aws_image_clear(&n.image);
    if (n.image.id == NULL) r = describe_newest(a, region, row, &n, err);
    if (r == 0 && n.image.id != NULL) *ret = keep(a, key, &n);
    aws_image_clear(&n.image);
    return r;
}

static int no_os(const char *name, struct gp_error *err) {
    GP_AUTO_STRV struct strv names = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(os_rows); i++)
        if (!strv_has(&names, os_rows[i].name)) strv_add(&names, os_rows[i].name);
    GP_AUTO_FREE char *all = strv_join(&names, ", ");
    return gp_fail(err, GP_EUSAGE, "aws: image.os '%s' is not known here; known: %s; or give image.id",
                   name, all);
}

int aws_image_find(struct aws *a, const char *region, const struct spec *spec, const char *arch,
                   const struct aws_image **ret, struct gp_error *err) {
    if (spec->image.kind == IMAGE_ID) return aws_image_by_id(a, region, spec->image.value, ret, err);
    bool gpu = spec->image.kind == IMAGE_AUTO && spec->gpu.model != NULL;
    const char *name = gpu ? "auto" : spec->image.kind == IMAGE_OS ? spec->image.value : NEWEST_LTS;
    const struct os_row *rows = gpu ? gpu_rows : os_rows;
    size_t n = gpu ? GP_ARRAY_LEN(gpu_rows) : GP_ARRAY_LEN(os_rows);
    bool known = false;
    *ret = NULL;
    for (size_t i = 0; i < n && *ret == NULL; i++) {
        if (strcmp(rows[i].name, name) != 0 || strcmp(rows[i].arch, arch) != 0) continue;
        known = true;
        int r = by_row(a, region, &rows[i], ret, err);
        if (r != 0) return r;
    }
    if (!known) return no_os(name, err);
    if (*ret != NULL) return 0;
    int r = gp_fail(err, GP_ECAPACITY, "aws %s has no %s image for %s: give image.id", region,
                    gpu ? "Deep Learning Base OSS" : name, arch);
    if (err != NULL) err->scope = GP_SCOPE_REGION;
    return r;
}
