// SPDX-License-Identifier: Apache-2.0
/* Selects the image of a node: by id, by OS name, or automatically (with a GPU the newest AWS Deep
 * Learning Base image that has a driver for it: OSS, before Turing Proprietary; without one
 * Ubuntu LTS). Public SSM parameters have the newest id; where they cannot be read, DescribeImages
 * by owner and name is used. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/form.h"
#include "providers/aws/systems.h"

/* image: auto, with a GPU; the first image that the region has. */
static const struct aws_os_row gpu_rows[] = {
    {"auto", "x86_64", "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
     "amazon", "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04)*"},
    {"auto", "x86_64", "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
     "amazon", "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)*"},
    {"auto", "arm64", "/aws/service/deeplearning/ami/arm64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
     "amazon", "Deep Learning ARM64 Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04)*"},
    {"auto", "arm64", "/aws/service/deeplearning/ami/arm64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
     "amazon", "Deep Learning ARM64 Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)*"},
};
/* The same for GPUs that the open kernel modules do not support; they have no known public
 * parameter. */
static const struct aws_os_row old_gpu_rows[] = {
    {"auto", "x86_64", NULL, "amazon", "Deep Learning Base Proprietary Nvidia Driver GPU AMI (Ubuntu *"},
};
#define OLD_IMAGES_LAST_BRANCH 580 /* the driver of these images is too new for Kepler */
#define NEWEST_LTS "ubuntu-24.04"

void aws_image_clear(struct aws_image *i) {
    free(i->region);
    free(i->id);
    free(i->name);
    free(i->arch);
    free(i->root_device);
    *i = (struct aws_image){0};
}

/* --- decoding --- */

/* "/dev/sda1", "/dev/xvdb", "/dev/nvme1n1"; old images have "sdb". */
static bool device_valid(const char *s) {
    const char *name = str_starts(s, "/dev/") ? s + strlen("/dev/") : s;
    size_t n = strlen(name);
    return n >= 3 && n <= 16 && name[0] >= 'a' && name[0] <= 'z' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") == n;
}

static int read_disk(const struct xml_node *d, struct aws_image *image, struct gp_error *err) {
    const char *device = xml_str(d, "deviceName", "");
    int64_t gib = 0;
    if (xml_find(d, "ebs") == NULL) return 0; /* the machine's own disks: they end with it */
    if (!device_valid(device) || !str_to_i64(xml_str(d, "ebs/volumeSize", "0"), 0, 65536, &gib))
        return gp_fail(err, GP_EPROTO,
                       "ec2 DescribeImages: a disk of %s has no device name or no size in "
                       "GiB: give another image.id",
                       image->id);
    if (strcmp(device, image->root_device) == 0) {
        image->root_gib = (int)gib;
        return 0;
    }
    if (image->n_disks == AWS_DISKS_MAX)
        return gp_fail(err, GP_EPROTO,
                       "aws: image %s has more than %d disks beside its root: give another "
                       "image.id",
                       image->id, AWS_DISKS_MAX);
    struct aws_disk *to = &image->disks[image->n_disks++];
    to->gib = (int)gib;
    str_put(to->device, sizeof to->device, device);
    return 0;
}

int aws_image_read(const struct xml_node *item, const char *region, struct aws_image *ret, struct gp_error *err) {
    const char *id = xml_str(item, "imageId", ""), *root = xml_str(item, "rootDeviceName", "");
    const char *arch = xml_str(item, "architecture", "x86_64");
    if (!form_ec2_id(id, "ami-") || !form_word(arch) || (root[0] != '\0' && !device_valid(root)))
        return gp_fail(err, GP_EPROTO,
                       "ec2 DescribeImages in %s: an entry without an image's id, "
                       "architecture and root device: give another image.id",
                       region);
    struct aws_image image = {.region = xstrdup(region),
                              .id = xstrdup(id),
                              .arch = xstrdup(arch),
                              .name = xstrdup(xml_str(item, "name", "")),
                              .root_device = xstrdup(root[0] != '\0' ? root : "/dev/sda1")};
    str_one_line(image.name);
    int r = 0;
    const struct xml_node *set = xml_find(item, "blockDeviceMapping");
    for (size_t i = 0; r == 0 && set != NULL && i < set->children.len; i++)
        r = read_disk(set->children.items[i], &image, err);
    if (r == 0) {
        *ret = image;
        return 0;
    }
    aws_image_clear(&image);
    return r;
}

/* --- DescribeImages --- */

struct newest {
    const char *region;
    const char *id; /* the only requested image; NULL: any */
    struct aws_image image;
    char created[32]; /* ISO: sorts as text */
};

static int on_image(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct newest *n = ctx;
    struct aws_image image = {0};
    const char *created = xml_str(item, "creationDate", "");
    if (strcmp(xml_str(item, "imageState", "available"), "available") != 0) return 0;
    if (n->image.id != NULL && strcmp(created, n->created) <= 0) return 0;
    int r = aws_image_read(item, n->region, &image, err);
    if (r != 0) return r;
    if (n->id != NULL && strcmp(n->id, image.id) != 0) {
        r = gp_fail(err, GP_EPROTO,
                    "ec2 DescribeImages in %s: requested %s, got %s: run the same command "
                    "again",
                    n->region, n->id, image.id);
        aws_image_clear(&image);
        return r;
    }
    aws_image_clear(&n->image);
    n->image = image;
    str_put(n->created, sizeof n->created, created);
    return 0;
}

static int describe_id(struct aws *a, const char *region, const char *id, struct newest *ret, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeImages");
    aws_param(&body, "ImageId.1", id);
    ret->region = region;
    ret->id = id;
    return aws_describe(a, region, "DescribeImages", &body, 0, "imagesSet", on_image, ret, err);
}

static int describe_newest(struct aws *a, const char *region, const struct aws_os_row *row, struct newest *ret,
                           struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeImages");
    aws_param(&body, "Owner.1", row->owner);
    aws_filter(&body, 1, "name", row->filter);
    aws_filter(&body, 2, "architecture", row->arch);
    aws_filter(&body, 3, "state", "available");
    ret->region = region;
    return aws_describe(a, region, "DescribeImages", &body, 0, "imagesSet", on_image, ret, err);
}

/* The image id in a public parameter; NULL when it cannot be read or does not exist. Any
 * other content is an error. */
static int from_ssm(struct aws *a, const char *region, const char *name, char **ret, struct gp_error *err) {
    GP_AUTO_FREE char *body = xasprintf("{\"Name\":\"%s\"}", name);
    struct aws_call call = {
        .service = "ssm", .region = region, .action = "GetParameter", .body = body, .flags = AWS_OPTIONAL};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    if (aws_call(a, &call, &reply, NULL) != 0) return 0;
    const char *id = json_str(reply.json, "Parameter.Value", "");
    if (!form_ec2_id(id, "ami-"))
        return gp_fail(err, GP_EPROTO, "ssm GetParameter in %s: %s does not contain an image id: give image.id", region,
                       name);
    *ret = xstrdup(id);
    return 0;
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

int aws_image_by_id(struct aws *a, const char *region, const char *id, const struct aws_image **ret,
                    struct gp_error *err) {
    GP_AUTO_FREE char *key = xasprintf("%s/%s", region, id);
    *ret = NULL;
    for (size_t i = 0; i < a->cache->images.len && *ret == NULL; i++) {
        const struct aws_image *one = a->cache->images.items[i];
        if (strcmp(one->region, region) == 0 && strcmp(one->id, id) == 0) *ret = one;
    }
    if (*ret != NULL) return 0;
    struct newest n = {0};
    int r = describe_id(a, region, id, &n, err);
    if (r == 0 && n.image.id == NULL)
        r = gp_fail(err, GP_EUSAGE, "aws %s has no image '%s': an image lives in one region only", region, id);
    if (r == 0) *ret = keep(a, key, &n);
    aws_image_clear(&n.image);
    return r;
}

static int by_row(struct aws *a, const char *region, const struct aws_os_row *row, const struct aws_image **ret,
                  struct gp_error *err) {
    GP_AUTO_FREE char *key = xasprintf("%s/%s", region, row->ssm != NULL ? row->ssm : row->filter);
    *ret = cached(a, key);
    if (*ret != NULL) return 0;
    struct newest n = {0};
    GP_AUTO_FREE char *id = NULL;
    int r = row->ssm != NULL ? from_ssm(a, region, row->ssm, &id, err) : 0;
    if (r != 0) return r;
    if (id != NULL) {
        struct gp_error e = {0};
        r = describe_id(a, region, id, &n, &e);
        if (r == -GP_EPROTO && err != NULL) *err = e;
        if (r == -GP_EPROTO) return r;
        if (r != 0) aws_image_clear(&n.image);
    }
    r = 0;
    n.id = NULL;
    if (n.image.id == NULL) r = describe_newest(a, region, row, &n, err);
    if (r == 0 && n.image.id != NULL) *ret = keep(a, key, &n);
    aws_image_clear(&n.image);
    return r;
}

/* --- ahead of the question --- */

/* The first row of the spec's system, for x86_64: nearly every type has it. A wrong guess costs one read beside
 * others. NULL: no guess. */
static const struct aws_os_row *likely_row(const struct spec *spec, const struct spec_image *want) {
    bool gpu = want->os == NULL && spec->gpu.model != NULL;
    const char *name = gpu ? "auto" : want->os != NULL ? want->os : NEWEST_LTS;
    const struct aws_os_row *rows = gpu ? gpu_rows : aws_os_rows;
    size_t n = gpu ? GP_ARRAY_LEN(gpu_rows) : aws_os_row_count;
    if (want->baked != NULL || (gpu && aws_old_gpu(spec->gpu.model) != NULL)) return NULL;
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0 && strcmp(rows[i].arch, "x86_64") == 0)
            return rows[i].ssm != NULL ? &rows[i] : NULL;
    return NULL;
}

void aws_image_ahead_first(struct aws *a, const char *region, const struct spec *spec, size_t index,
                           struct aws_image_ahead *ret) {
    const struct spec_image *want = spec_effective(spec, index).image;
    bool by_id = want->id != NULL && want->baked == NULL;
    *ret = (struct aws_image_ahead){.region = region, .row = by_id ? NULL : likely_row(spec, want)};
    if (by_id) {
        ret->id = xstrdup(want->id);
        aws_image_ahead_second(a, ret);
    } else if (ret->row != NULL) {
        from_ssm(a, region, ret->row->ssm, &ret->id, NULL);
    }
}

bool aws_image_ahead_pending(const struct aws_image_ahead *x) { return x->id != NULL && x->image.id == NULL; }

void aws_image_ahead_second(struct aws *a, struct aws_image_ahead *x) {
    struct newest n = {0};
    if (describe_id(a, x->region, x->id, &n, NULL) == 0) x->image = n.image;
    else aws_image_clear(&n.image);
    if (x->image.id == NULL) { /* not tried again: aws_image_find fails with the reason */
        free(x->id);
        x->id = NULL;
    }
}

void aws_image_ahead_keep(struct aws *a, struct aws_image_ahead *x) {
    if (x->image.id == NULL) return;
    GP_AUTO_FREE char *key = xasprintf("%s/%s", x->region, x->row != NULL ? x->row->ssm : x->id);
    struct newest n = {.image = x->image};
    if (cached(a, key) == NULL) keep(a, key, &n);
    aws_image_clear(&n.image);
    x->image = (struct aws_image){0};
    aws_image_ahead_clear(x);
}

void aws_image_ahead_clear(struct aws_image_ahead *x) {
    aws_image_clear(&x->image);
    free(x->id);
    *x = (struct aws_image_ahead){0};
}

static int no_os(const char *name, struct gp_error *err) {
    GP_AUTO_STRV struct strv names = {0};
    for (size_t i = 0; aws_image_os(i) != NULL; i++) strv_add(&names, aws_image_os(i));
    GP_AUTO_FREE char *all = strv_join(&names, ", ");
    return gp_fail(err, GP_EUSAGE, "aws: unknown image.os '%s'; known: %s; or give image.id", name, all);
}

static int no_image(const char *region, const char *name, const struct aws_type *t, const struct aws_old_gpu *old,
                    struct gp_error *err) {
    int r = 0;
    if (old != NULL)
        r = gp_fail(err, GP_EUSAGE,
                    "aws %s: no image is known for %s: its %s (%s) is older than the open "
                    "kernel modules, which begin with Turing, and the region has no 'Deep Learning Base "
                    "Proprietary Nvidia Driver GPU AMI (Ubuntu ...)': give image.id with the proprietary "
                    "driver of branch %d or older",
                    region, t->name, old->model, old->architecture, old->last_branch);
    else r = gp_fail(err, GP_EUSAGE, "aws %s has no %s image for %s: give image.id", region, name, t->arch);
    if (err != NULL) err->scope = GP_SCOPE_REGION;
    return r;
}

int aws_image_find(struct aws *a, const char *region, const struct spec *spec, size_t index,
                   const struct aws_type *type, const struct aws_image **ret, struct gp_error *err) {
    const struct spec_image *want = spec_effective(spec, index).image;
    GP_AUTO_FREE char *baked = NULL, *why = NULL;
    int found = want->baked != NULL ? aws_image_baked(a, region, spec, want, type, &baked, &why, err) : 0;
    if (found != 0) return found;
    if (baked != NULL) return aws_image_by_id(a, region, baked, ret, err);
    if (str_eq(want->baked, BAKED_REQUIRE)) {
        if (err != NULL) err->scope = GP_SCOPE_REGION;
        return gp_fail(err, GP_EUSAGE, "image: baked: %s: run 'gpuprov bake %s'", why, spec->path);
    }
    if (want->baked != NULL)
        event_emit(a->sink, -1, NODE_PLANNED, EVENT_WARN, "image", "baked: prefer: no baked image is used: %s", why);
    if (want->id != NULL) return aws_image_by_id(a, region, want->id, ret, err);
    bool gpu = want->os == NULL && spec->gpu.model != NULL;
    const struct aws_old_gpu *old = gpu ? aws_old_gpu(type->gpu_name) : NULL;
    const char *name = gpu ? "auto" : want->os != NULL ? want->os : NEWEST_LTS;
    const struct aws_os_row *rows = old != NULL ? old_gpu_rows : gpu ? gpu_rows : aws_os_rows;
    size_t n = old != NULL ? GP_ARRAY_LEN(old_gpu_rows) : gpu ? GP_ARRAY_LEN(gpu_rows) : aws_os_row_count;
    bool known = false;
    *ret = NULL;
    if (old != NULL && old->last_branch < OLD_IMAGES_LAST_BRANCH) n = 0;
    for (size_t i = 0; i < n && *ret == NULL; i++) {
        if (strcmp(rows[i].name, name) != 0 || strcmp(rows[i].arch, type->arch) != 0) continue;
        known = true;
        int r = by_row(a, region, &rows[i], ret, err);
        if (r != 0) return r;
    }
    if (*ret != NULL) return 0;
    if (!known && old == NULL) return no_os(name, err);
    return no_image(region, gpu ? "Deep Learning Base OSS" : name, type, old, err);
}
