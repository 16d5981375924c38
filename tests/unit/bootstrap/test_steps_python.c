/* SPDX-License-Identifier: Apache-2.0 */
/* Which build of PyTorch a node gets, by its facts and the spec. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define H100 0x2330
#define V100 0x1db1
#define B200 0x2901

struct row {
    const char *wish;
    unsigned gpu; /* PCI device; 0: none */
    const char *driver, *model;
    const char *want, *tag, *why;
};

static const struct row rows[] = {
    {"auto", 0, "", NULL, "", "cpu", ""},
    {"2.9.1", 0, "", NULL, "2.9.1", "cpu", ""},
    /* its script is printed for a spec without torch too */
    {NULL, 0, "", NULL, "", "cpu", ""},
    /* the driver that is loaded decides about CUDA 13 */
    {"2.9.1", H100, "580.95.05", NULL, "2.9.1", "cu130", ""},
    {"2.9.1", H100, "535.183.06", NULL, "2.9.1", "cu128", ""},
    /* Volta is in the oldest build only */
    {"2.11.0", V100, "580.95.05", NULL, "2.11.0", "cu126", ""},
    {"2.7.1", B200, "580.95.05", NULL, "2.7.1", "cu128", ""},
    {"2.6.0", B200, "580.95.05", NULL, "", "", "no build of torch fits: "},
    /* the bus shows no GPU, but the spec has one */
    {"2.9.1", 0, "580.95.05", "H100", "2.9.1", "cu130", ""},
    {"2.9.1", 0, "", "Mystery 1", "", "", "this GPU is not known"},
    /* newer than the tables: the build that fits the newest one they have */
    {"9.9.9", H100, "580.95.05", NULL, "9.9.9", "cu13", ""},
};

static void has(const char *text, const char *name, const char *value, bool whole) {
    GP_AUTO_FREE char *line = xasprintf("%s%s='%s%s", text[0] == '\n' ? "" : "\n", name, value, whole ? "'\n" : "");
    GP_AUTO_FREE char *bare = xasprintf("\n%s=%s%s", name, value, whole ? "\n" : "");
    if (strstr(text, line) == NULL && strstr(text, bare) == NULL) {
        const char *at = strstr(text, name);
        fail_msg("no %s=%s, but %.200s", name, value, at ? at : "nothing");
    }
}

static void one(const struct row *r) {
    struct spec_python python = {.wanted = true, .torch = (char *)(uintptr_t)r->wish};
    struct spec spec = {.python = python, .gpu = {.model = (char *)(uintptr_t)r->model, .count = r->model != NULL}};
    struct bootstrap_req req = {.spec = &spec};
    struct boot b = {.req = &req};
    GP_AUTO_STR struct str out = {0};
    str_put(b.facts.os, sizeof b.facts.os, "ubuntu-24.04");
    str_put(b.facts.driver, sizeof b.facts.driver, r->driver);
    if (r->gpu != 0) b.facts.gpus[b.facts.n_gpus++] = (struct boot_gpu){.device = r->gpu};
    python_torch_vars(&b, NULL, &out);
    has(out.s, "WANT", r->want, true);
    has(out.s, "TAG", r->tag, strlen(r->tag) != 4);
    const char *why = strstr(out.s, "\nWHY=");
    assert_non_null(why);
    if (*r->why == '\0') assert_true(str_starts(why, "\nWHY=''\n"));
    else if (strstr(why, r->why) == NULL) fail_msg("%.300s", why);
}

static void the_build_follows_gpu_and_driver(void **state) {
    (void)state;
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) one(&rows[i]);
}

/* The name of the index's secret is in the script, the value never is. */
static void a_script_has_no_secret(void **state) {
    (void)state;
    struct spec_python python = {.wanted = true, .torch = (char[]){"auto"}, .index_auth = (char[]){"AUTH"}};
    struct spec spec = {.python = python};
    struct bootstrap_secret secret = {.env = "AUTH"};
    secret_set(&secret.value, "deploy:s3cr3t", 13);
    struct bootstrap_req req = {.spec = &spec, .secrets = &secret, .n_secrets = 1};
    struct boot b = {.req = &req};
    GP_AUTO_STR struct str out = {0};
    python_torch_vars(&b, NULL, &out);
    python_packages_vars(&b, NULL, &out);
    has(out.s, "AUTH", "AUTH", true);
    assert_null(strstr(out.s, "s3cr3t"));
    secret_clear(&secret.value);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_build_follows_gpu_and_driver),
                                       cmocka_unit_test(a_script_has_no_secret)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
