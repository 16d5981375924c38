/* SPDX-License-Identifier: Apache-2.0 */
/* Which steps of the driver a node gets by its facts and the spec, and the packages that they install. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define H100 0x2330
#define B200 0x2901
#define V100 0x1db1
#define HASH "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

struct fixture {
    struct spec spec;
    struct bootstrap_req req;
    struct node_link link;
    struct boot boot;
    struct gp_error err;
};

static void make(struct fixture *f, const char *os, unsigned gpu) {
    *f = (struct fixture){.link = {.target = {.label = xstrdup("llm/1")}}};
    f->req = (struct bootstrap_req){.spec = &f->spec, .packages_allowed = true, .image_name = ""};
    f->boot = (struct boot){.link = &f->link, .req = &f->req};
    str_put(f->boot.facts.os, sizeof f->boot.facts.os, os);
    str_put(f->boot.facts.kernel, sizeof f->boot.facts.kernel, "6.1.0-50-amd64");
    f->boot.facts.gpus[0].device = gpu;
    f->boot.facts.n_gpus = gpu ? 1 : 0;
}

static void clear(struct fixture *f) {
    boot_clear(&f->boot);
    ssh_target_clear(&f->link.target);
}

static int steps(struct fixture *f, struct str *names) {
    f->err = (struct gp_error){0};
    str_clear(names);
    int rc = boot_items_make(&f->boot, &f->err);
    if (rc && strstr(f->err.msg, "built without")) rc = 0;
    for (size_t i = 0; i < f->boot.items.len; i++) str_addf(names, "%s%s", i ? " " : "", f->boot.items.items[i].name);
    return rc;
}

static char *vars(const struct fixture *f, const char *name) {
    struct str out = {0};
    for (size_t i = 0; i < f->boot.items.len; i++)
        if (str_eq(f->boot.items.items[i].name, name)) boot_driver_vars(&f->boot, &f->boot.items.items[i], &out);
    assert_true(out.len > 0);
    return str_steal(&out);
}

static void a_wish_brings_its_steps(void **state) {
    (void)state;
    struct fixture f;
    GP_AUTO_STR struct str names = {0};
    make(&f, "debian-12", H100);
    f.spec.software.driver.branch = (char *)(uintptr_t) "580";
    f.spec.software.nccl = (char *)(uintptr_t) "auto";
    f.spec.software.cuda.version = (char *)(uintptr_t) "13.0";
    f.boot.facts.n_nvswitches = 4;
    assert_int_equal(steps(&f, &names), 0);
    assert_string_equal(names.s,
                        "clock secure-boot kernel-headers nouveau-off driver-repo driver persistence fabric-manager "
                        "cuda nccl holds agent");
    GP_AUTO_FREE char *driver = vars(&f, "driver");
    assert_non_null(strstr(driver, "BRANCH='580'\n"));
    assert_non_null(strstr(driver, "FLAVOUR='open'\n"));
    assert_non_null(strstr(driver, "PIN='nvidia-driver-pinning-580'\n"));
    assert_non_null(strstr(driver, "DRIVER='nvidia-open'\n"));
    assert_non_null(strstr(driver, "REPLACE=''\n"));
    GP_AUTO_FREE char *cuda = vars(&f, "cuda");
    assert_non_null(strstr(cuda, "PACKAGES='cuda-toolkit-13-0'\n"));
    assert_non_null(strstr(cuda, "LOOK='/usr/local/cuda-13.0'\n"));
    GP_AUTO_FREE char *fabric = vars(&f, "fabric-manager");
    assert_non_null(strstr(fabric, "PACKAGE='nvidia-fabricmanager'\n"));
    assert_non_null(strstr(fabric, "NVLSM=''\n"));
    clear(&f);
}

/* NVLink 5: its switches are no PCI devices, and the fabric manager needs the subnet manager. */
static void a_b200_gets_nvlsm(void **state) {
    (void)state;
    struct fixture f;
    GP_AUTO_STR struct str names = {0};
    make(&f, "ubuntu-24.04", B200);
    f.spec.software.driver.branch = (char *)(uintptr_t) "580";
    assert_int_equal(steps(&f, &names), 0);
    GP_AUTO_FREE char *fabric = vars(&f, "fabric-manager");
    assert_non_null(strstr(fabric, "NVLSM='nvlsm infiniband-diags'\n"));
    clear(&f);
}

static void keys_have_a_pinned_hash(void **state) {
    (void)state;
    struct fixture f;
    GP_AUTO_STR struct str names = {0};
    make(&f, "ubuntu-24.04", H100);
    f.spec.software.driver.branch = (char *)(uintptr_t) "580";
    assert_int_equal(steps(&f, &names), 0);
    GP_AUTO_FREE char *nvidia = vars(&f, "driver-repo");
    assert_non_null(
        strstr(nvidia, "URL='https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64'\n"));
    assert_non_null(strstr(nvidia, "KEY_SHA256='d2a6b11c096396d868758b86dab1823b25e14d70333f1dfa74da5ddaf6a06dba'\n"));
    f.spec.software.driver.source = (char *)(uintptr_t) "http://mirror.example/repos/"
                                                        "#sha256=" HASH;
    assert_int_equal(steps(&f, &names), 0);
    GP_AUTO_FREE char *mirror = vars(&f, "driver-repo");
    assert_non_null(strstr(mirror, "URL='http://mirror.example/repos/ubuntu2404/x86_64'\n"));
    assert_non_null(strstr(mirror, "KEY_SHA256='" HASH "'\n"));
    clear(&f);

    make(&f, "rhel-9.4", H100);
    f.spec.software.driver.branch = (char *)(uintptr_t) "580";
    assert_int_equal(steps(&f, &names), 0);
    GP_AUTO_FREE char *rpm = vars(&f, "driver-repo");
    assert_non_null(strstr(rpm, "cuda/repos/rhel9/x86_64'\n"));
    assert_non_null(
        strstr(rpm, "KEY='https://developer.download.nvidia.com/compute/cuda/repos/rhel8/x86_64/D42D0685.pub'"));
    assert_null(strstr(rpm, "KEY_SHA256=''"));
    GP_AUTO_FREE char *stream = vars(&f, "driver");
    assert_non_null(strstr(stream, "STREAM='580-open'\n"));
    clear(&f);

    make(&f, "rhel-10.0", H100);
    f.spec.software.driver.branch = (char *)(uintptr_t) "580";
    assert_int_equal(steps(&f, &names), 0);
    GP_AUTO_FREE char *unknown = vars(&f, "driver-repo");
    assert_non_null(strstr(unknown, "KEY_SHA256=''\n"));
    f.spec.software.driver.source = (char *)(uintptr_t) "https://developer.download.nvidia.com/compute/cuda/repos"
                                                        "#sha256=" HASH;
    assert_int_equal(steps(&f, &names), 0);
    GP_AUTO_FREE char *written = vars(&f, "driver-repo");
    assert_non_null(
        strstr(written, "KEY='https://developer.download.nvidia.com/compute/cuda/repos/rhel10/x86_64/CDF6BA43.pub'\n"));
    assert_non_null(strstr(written, "KEY_SHA256='" HASH "'\n"));
    GP_AUTO_FREE char *no_stream = vars(&f, "driver");
    assert_non_null(strstr(no_stream, "STREAM=''\n"));
    clear(&f);
}

static void what_is_there_decides(void **state) {
    (void)state;
    struct fixture f;
    GP_AUTO_STR struct str names = {0};
    make(&f, "ubuntu-24.04", H100);
    f.spec.gpu.count = 1;
    assert_int_equal(steps(&f, &names), 0);
    assert_string_equal(names.s, "clock driver-check agent"); /* a machine that existed before: looked at */
    f.req.image_name = "ubuntu-24.04";
    assert_int_equal(steps(&f, &names), 0);
    assert_non_null(strstr(names.s, "driver-repo driver persistence")); /* launched by gpuprov: auto */
    f.req.packages_allowed = false;
    assert_int_equal(steps(&f, &names), 0);
    assert_string_equal(names.s, "clock driver-check agent");
    f.req.packages_allowed = true;
    f.boot.facts.n_gpus = 0;
    assert_int_equal(steps(&f, &names), 0);
    assert_string_equal(names.s, "clock driver-check agent"); /* nothing to drive */
    f.boot.facts.n_gpus = 1;
    str_put(f.boot.facts.driver, sizeof f.boot.facts.driver, "570.133.20");
    assert_int_equal(steps(&f, &names), 0);
    assert_string_equal(names.s, "clock driver-check agent"); /* the image has one */
    f.boot.facts.driver_ours = true;
    assert_int_equal(steps(&f, &names), 0); /* cut after the driver: the libraries follow */
    assert_non_null(strstr(names.s, "persistence"));
    assert_non_null(strstr(names.s, "cuda"));
    f.boot.facts.driver_ours = false;
    f.spec.software.driver.branch = (char *)(uintptr_t) "none";
    assert_int_equal(steps(&f, &names), 0);
    assert_string_equal(names.s, "clock driver-check agent");
    clear(&f);
}

static void a_loaded_driver_that_fits_stays(void **state) {
    (void)state;
    struct fixture f;
    GP_AUTO_STR struct str names = {0};
    make(&f, "ubuntu-24.04", H100);
    f.spec.software.driver.branch = (char *)(uintptr_t) "auto";
    str_put(f.boot.facts.driver, sizeof f.boot.facts.driver, "570.133.20");
    f.boot.facts.driver_open = true;
    assert_int_equal(steps(&f, &names), 0);
    GP_AUTO_FREE char *kept = vars(&f, "driver");
    assert_non_null(strstr(kept, "BRANCH='570'\n"));
    clear(&f);
}

static void a_clash_on_the_node_names_both_facts(void **state) {
    (void)state;
    struct fixture f;
    GP_AUTO_STR struct str names = {0};
    make(&f, "ubuntu-24.04", V100);
    f.spec.software.driver.branch = (char *)(uintptr_t) "580";
    f.spec.software.driver.flavour = (char *)(uintptr_t) "open";
    assert_int_equal(steps(&f, &names), -GP_EBOOTSTRAP);
    assert_non_null(strstr(f.err.msg, "llm/1: "));
    assert_non_null(strstr(f.err.msg, "open"));
    assert_non_null(strstr(f.err.msg, "the nearest set that works here"));
    f.spec.software.driver.flavour = NULL;
    str_put(f.boot.facts.os, sizeof f.boot.facts.os, "plan9-4");
    assert_int_equal(steps(&f, &names), -GP_EBOOTSTRAP);
    assert_non_null(strstr(f.err.msg, "plan9-4"));
    clear(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wish_brings_its_steps),         cmocka_unit_test(a_b200_gets_nvlsm),
        cmocka_unit_test(keys_have_a_pinned_hash),         cmocka_unit_test(what_is_there_decides),
        cmocka_unit_test(a_loaded_driver_that_fits_stays), cmocka_unit_test(a_clash_on_the_node_names_both_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
