/* SPDX-License-Identifier: Apache-2.0 */
/* Which steps of containers a spec and a node need, the full names of images, and an engine's packages by system. What
 * happens on a node is in tests/e2e/bootstrap. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define DIGEST "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void names_of_images(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"busybox:1", "docker.io/library/busybox:1"},
        {"nvidia/cuda:12.8.1-base", "docker.io/nvidia/cuda:12.8.1-base"},
        {"docker.io/nvidia/cuda:1", "docker.io/nvidia/cuda:1"},
        {"localhost/a:1", "localhost/a:1"},
        {"localhost5/a:1", "docker.io/localhost5/a:1"},
        {"host:5000/a:1", "host:5000/a:1"},
        {"ghcr.io/a/b/c:1", "ghcr.io/a/b/c:1"},
        {"busybox" DIGEST, "docker.io/library/busybox" DIGEST},
        {"busybox:1" DIGEST, "docker.io/library/busybox" DIGEST},
        {"host:5000/a" DIGEST, "host:5000/a" DIGEST},
        {"host:5000/a:2" DIGEST, "host:5000/a" DIGEST},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        GP_AUTO_FREE char *full = boot_image_name(names[i][0]);
        assert_string_equal(full, names[i][1]);
    }
}

static void packages_of_engines(void **state) {
    (void)state;
    static const struct {
        enum spec_engine engine;
        const char *os, *packages;
    } rows[] = {
        {ENGINE_DOCKER, "debian-12", "docker.io"},
        {ENGINE_DOCKER, "debian-13", "docker.io docker-cli"},
        {ENGINE_DOCKER, "ubuntu-24.04", "docker.io"},
        {ENGINE_DOCKER, "rhel-9.4", NULL},
        {ENGINE_DOCKER, "amzn-2023", "docker"},
        {ENGINE_DOCKER, "", NULL},
        {ENGINE_PODMAN, "rocky-9.4", "podman"},
        {ENGINE_PODMAN, "debian-12", "podman"},
        {ENGINE_PODMAN, "amzn-2023", NULL},
        {ENGINE_CONTAINERD, "ubuntu-22.04", "containerd"},
        {ENGINE_CONTAINERD, "amzn-2023", "containerd"},
        {ENGINE_CONTAINERD, "rhel-9.4", NULL},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        const char *packages = spec_engine_packages(rows[i].engine, rows[i].os);
        if (rows[i].packages) assert_string_equal(packages, rows[i].packages);
        else assert_null(packages);
    }
}

/* "engine toolkit ..." of the wanted steps, with every script that they send. */
static void wanted(const struct spec *spec, const struct boot_facts *facts, struct str *ret) {
    struct bootstrap_req req = {.spec = spec, .packages_allowed = true};
    struct boot b = {.req = &req, .facts = *facts};
    struct gp_error err = {0};
    for (const struct boot_step *s = boot_steps; s->file; s++) {
        if (!str_starts(s->file, "container/") || !s->wanted(&b)) continue;
        GP_AUTO_STR struct str script = {0};
        struct boot_item it = {.step = s, .name = s->name};
        assert_int_equal(boot_item_script(&b, &it, "probe\n", &script, &err), 0);
        assert_non_null(strstr(script.s, "has_engine()"));
        str_addf(ret, "%s%s", ret->len ? " " : "", s->name);
    }
}

static void steps_follow_the_spec_and_the_node(void **state) {
    (void)state;
    struct spec spec = {0};
    struct boot_facts facts = {.os = "debian-12"};
    GP_AUTO_STR struct str none = {0}, engine = {0}, images = {0}, gpus = {0}, devices = {0};
    wanted(&spec, &facts, &none);
    assert_int_equal(none.len, 0);
    spec.container.engine = ENGINE_DOCKER;
    wanted(&spec, &facts, &engine);
    assert_string_equal(engine.s, "container-engine");
    strv_add(&spec.container.images, "busybox:1");
    wanted(&spec, &facts, &images);
    assert_string_equal(images.s, "container-engine images");
    spec.gpu.count = 1; /* its driver may come with an earlier step */
    wanted(&spec, &facts, &gpus);
    assert_string_equal(gpus.s, "container-engine container-toolkit container-cdi images");
    spec.gpu.count = 0;
    facts.nvidia = true;
    wanted(&spec, &facts, &devices);
    assert_string_equal(devices.s, gpus.s);
    strv_clear(&spec.container.images);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_images),
        cmocka_unit_test(packages_of_engines),
        cmocka_unit_test(steps_follow_the_spec_and_the_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
