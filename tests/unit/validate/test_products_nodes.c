/* SPDX-License-Identifier: Apache-2.0 */
/* Random products of the GPUs of several nodes against each other: who is blamed, and who must not be. */
#include "base/gp_base.h"

#include "base/json.h"
#include "validate/validate.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct gpu {
    const char *random, *own, *algorithm, *verdict;
};
static const struct gpu sound = {"0xaa", "0xbb", "0x09", "pass"};

static char *none(void) { return xstrdup(""); }

static void add_node(struct report *r, const char *pci_id, const struct gpu *gpus, size_t n) {
    struct report_node rn = {.slot = (int)r->nodes.len, .ready = true};
    struct check_result presence = {.check = xstrdup("gpu.presence"),
                                    .data = json_object(),
                                    .code = none(),
                                    .message = none(),
                                    .suggestion = none()};
    struct check_result c = {
        .check = xstrdup("gpu.sdc"), .data = json_object(), .code = none(), .message = none(), .suggestion = none()};
    json_t *seen = json_array(), *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(seen, json_pack("{s:i,s:s}", "gpu", (int)i, "pci_id", pci_id));
        json_array_append_new(list,
                              json_pack("{s:i,s:s,s:{s:f},s:s,s:i,s:{s:s},s:{s:s},s:{s:s}}", "gpu", (int)i, "verdict",
                                        gpus[i].verdict, "metrics", "products", 20.0, "by", "cuBLASLt 13.1.0", "edge",
                                        8192, "random", "bf16", gpus[i].random, "random_own", "bf16", gpus[i].own,
                                        "algorithms", "bf16", gpus[i].algorithm));
    }
    json_object_set_new(presence.data, "gpus", seen);
    json_object_set_new(c.data, "gpus", list);
    struct metric one = {.name = xstrdup("products"), .value = 20, .unit = xstrdup("products"), .source = none()};
    vec_push(&c.metrics, one);
    vec_push(&rn.checks, presence);
    vec_push(&rn.checks, c);
    vec_push(&r->nodes, rn);
}

static const struct check_result *sdc(const struct report *r, size_t node) {
    return &r->nodes.items[node].checks.items[1];
}

static int events;
static void count_event(void *ctx, const struct event *e) {
    (void)ctx, (void)e;
    events++;
}

static void compare(struct report *r) {
    struct event_sink sink = {.emit = count_event};
    struct validate_env env = {.sink = &sink};
    events = 0;
    validate_products(&env, r);
}

static void test_nodes_agree(void **state) {
    (void)state;
    struct report r = {0};
    const struct gpu two[] = {sound, sound};
    add_node(&r, "2330", two, 2);
    add_node(&r, "2330", two, 2);
    compare(&r);
    for (size_t i = 0; i < 2; i++) assert_int_equal(sdc(&r, i)->verdict, VERDICT_PASS);
    assert_int_equal(events, 0);
    report_clear(&r);
}

static void test_the_odd_gpu_fails_its_node(void **state) {
    (void)state;
    for (int own = 0; own < 2; own++) {
        struct report r = {0};
        struct gpu two[] = {sound, sound}, odd[] = {sound, sound};
        if (own) odd[1].own = "0xcc";
        else odd[1].random = "0xcc";
        add_node(&r, "2330", two, 2);
        add_node(&r, "2330", odd, 2);
        add_node(&r, "2330", two, 2);
        compare(&r);
        assert_int_equal(sdc(&r, 0)->verdict, VERDICT_PASS);
        assert_int_equal(sdc(&r, 2)->verdict, VERDICT_PASS);
        assert_int_equal(sdc(&r, 1)->verdict, VERDICT_FAIL);
        assert_string_equal(sdc(&r, 1)->code, "sdc_differs");
        assert_non_null(strstr(sdc(&r, 1)->message, "gpu 1: bf16"));
        assert_non_null(strstr(sdc(&r, 1)->message, "5 other GPUs"));
        assert_int_equal(events, 1);
        report_clear(&r);
    }
}

static void test_two_nodes_that_disagree(void **state) {
    (void)state;
    struct report r = {0};
    struct gpu other = sound;
    other.random = "0xcc";
    add_node(&r, "2330", &sound, 1);
    add_node(&r, "2330", &other, 1);
    compare(&r);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(sdc(&r, i)->verdict, VERDICT_DEGRADED);
        assert_string_equal(sdc(&r, i)->code, "sdc_disagree");
    }
    report_clear(&r);
}

static void test_what_is_not_alike_is_not_compared(void **state) {
    (void)state;
    for (int what = 0; what < 3; what++) {
        struct report r = {0};
        struct gpu other = sound;
        other.random = "0xcc";
        if (what == 0) other.algorithm = "0x0a";
        if (what == 1) other.verdict = "fail"; /* its own check has said so: it has no voice */
        add_node(&r, "2330", &sound, 1);
        add_node(&r, what == 2 ? "2335" : "2330", &other, 1);
        compare(&r);
        assert_int_equal(sdc(&r, 0)->verdict, VERDICT_PASS);
        assert_int_equal(events, 0);
        report_clear(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_agree),
        cmocka_unit_test(test_the_odd_gpu_fails_its_node),
        cmocka_unit_test(test_two_nodes_that_disagree),
        cmocka_unit_test(test_what_is_not_alike_is_not_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
