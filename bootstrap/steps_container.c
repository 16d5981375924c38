/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the steps of containers: the engine, NVIDIA's toolkit, CDI and the images. No I/O; the node's own
 * thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

/* NVIDIA's repository of the toolkit. The key's sum is of the file that the repository serves; its fingerprint is
 * C95B 321B 61E8 8C18 09C4 F759 DDCA E044 F796 ECB0. */
#define TOOLKIT_REPO "https://nvidia.github.io/libnvidia-container"
#define TOOLKIT_KEY_SHA256 "c880576d6cf75a48e5027a871bac70fd0421ab07d2b55f30877b21f1c87959c9"

/* The name without what docker adds silently: "busybox:1" is "docker.io/library/busybox:1". Of a tag and a digest only
 * the digest stays: it alone decides, and podman refuses both. */
char *boot_image_name(const char *image) {
    const char *slash = strchr(image, '/'), *digest = strstr(image, "@sha256:");
    size_t host = slash ? (size_t)(slash - image) : 0;
    bool has_host = host > 0 && (memchr(image, '.', host) || memchr(image, ':', host) ||
                                 (host == 9 && strncmp(image, "localhost", 9) == 0));
    GP_AUTO_STR struct str name = {0};
    str_addf(&name, "%s%s", has_host ? "" : "docker.io/", slash || has_host ? "" : "library/");
    size_t n = digest ? (size_t)(digest - image) : strlen(image);
    if (digest) {
        const char *part = memrchr(image, '/', n), *tag = memrchr(image, ':', n);
        if (tag && (!part || tag > part)) n = (size_t)(tag - image);
    }
    str_add_mem(&name, image, n);
    if (digest) str_add(&name, digest);
    return str_steal(&name);
}

/* The variables that all four have, and the functions that they share. */
static void common(const struct boot *b, struct str *out) {
    struct gp_error ignored = {0}; /* a test reads every file that a step names */
    boot_var(out, "ENGINE", spec_engine_name(b->req->spec->container.engine));
    (void)boot_file("container/lib", out, &ignored);
}

static const struct spec_container *box(const struct boot *b) { return &b->req->spec->container; }

bool boot_want_container(const struct boot *b) { return box(b)->engine != ENGINE_NONE; }
bool boot_want_images(const struct boot *b) { return boot_want_container(b) && box(b)->images.n > 0; }
/* A driver that another step installs makes the devices later. */
bool boot_want_toolkit(const struct boot *b) {
    return boot_want_container(b) && (b->req->spec->gpu.count > 0 || b->facts.nvidia);
}

void boot_engine_vars(const struct boot *b, const struct boot_item *it GP_UNUSED, struct str *out) {
    const char *packages = spec_engine_packages(box(b)->engine, b->facts.os);
    common(b, out);
    boot_var(out, "SYSTEM", b->facts.os[0] ? b->facts.os : "this system");
    boot_var(out, "PACKAGES", packages ? packages : "");
}

void boot_toolkit_vars(const struct boot *b, const struct boot_item *it GP_UNUSED, struct str *out) {
    common(b, out);
    boot_var(out, "REPO", TOOLKIT_REPO);
    boot_var(out, "KEY_SHA256", TOOLKIT_KEY_SHA256);
}

void boot_images_vars(const struct boot *b, const struct boot_item *it GP_UNUSED, struct str *out) {
    GP_AUTO_STR struct str images = {0};
    const char *auth = box(b)->registry_auth;
    for (size_t i = 0; i < box(b)->images.n; i++) {
        GP_AUTO_FREE char *name = boot_image_name(box(b)->images.v[i]);
        str_addf(&images, "%s%s", i > 0 ? " " : "", name);
    }
    common(b, out);
    boot_var(out, "IMAGES", images.s);
    boot_var(out, "AUTH", auth ? auth : "");
}
