/* SPDX-License-Identifier: Apache-2.0 */
/* Outliers among peers: within a node (the agent's part) and over nodes (the controller's). */
#include "base/gp_base.h"

#include "rates.h"

#include "validate/suite/peers.h"

#include "validate/agent/base/judge.c"
#include "validate/agent/base/result.c"

static size_t outliers(const double *v, size_t n, bool ceiling, size_t *ret_which) {
    bool marked[64];
    struct peers p = {0};
    if (!peers_compare(v, n, ceiling, marked, &p)) {
        for (size_t i = 0; i < n; i++) assert_false(marked[i]);
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        if (marked[i]) *ret_which = i;
    return p.outliers;
}

static void test_what_is_an_outlier(void **state) {
    (void)state;
    size_t which = 99;
    const double one_low[] = {2900, 2890, 2910, 2895, 2905, 2450, 2900, 2902};
    assert_int_equal(outliers(one_low, 8, false, &which), 1);
    assert_int_equal(which, 5);
    assert_int_equal(outliers(one_low, 8, true, &which), 0); /* fast is no fault where less is better */
    const double one_high[] = {10, 10, 10, 14};
    assert_int_equal(outliers(one_high, 4, true, &which), 1);
    assert_int_equal(which, 3);
    assert_int_equal(outliers(one_high, 4, false, &which), 0);
    assert_int_equal(outliers(one_high, 3, true, &which), 0); /* too few */
    const double binning[] = {2900, 2900, 2900, 2900, 2900, 2900, 2900, 2720};
    assert_int_equal(outliers(binning, 8, false, &which), 0);   /* 6 %: usual */
    const double wide[] = {100, 60, 140, 80, 120, 70, 130, 62}; /* no telling who is wrong */
    assert_int_equal(outliers(wide, 8, false, &which), 0);
    const double same[] = {7, 7, 7, 7, 6};
    assert_int_equal(outliers(same, 5, false, &which), 1);
    const double zero[] = {0, 0, 0, 0};
    assert_int_equal(outliers(zero, 4, false, &which), 0);
    const double two[] = {2900, 1450, 2890, 2905, 1400, 2895, 2900, 2902};
    assert_int_equal(outliers(two, 8, false, &which), 2);
}

/* xorshift, seeded: the same on every machine. */
static double noise(uint64_t *s) {
    *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
    return (double)(*s >> 11) / 9007199254740992.0;
}

static void test_no_false_alarm(void **state) {
    (void)state;
    uint64_t seed = 42;
    for (int run = 0; run < 1000; run++)
        for (size_t n = PEERS_MIN; n <= 64; n *= 2) {
            double v[64];
            size_t which = 0;
            for (size_t i = 0; i < n; i++) v[i] = 2900 * (0.96 + 0.04 * noise(&seed));
            assert_int_equal(outliers(v, n, false, &which), 0);
            v[n / 2] = 2900 * 0.85;
            assert_int_equal(outliers(v, n, false, &which), 1);
            assert_int_equal(which, n / 2);
        }
}

#define RATE .by_model = true, .positive = true, .fail = -1, .degraded = -1, .source = ""
static const struct check_info bandwidth = {
    .id = "gpu.bandwidth",
    .level = CHECK_GPU,
    .metrics = {{.name = "read", .unit = "GB/s", RATE},
                {.name = "wrong", .unit = "words", .ceiling = true, .fail = -1, .degraded = -1}}};

static void test_gpus_of_a_node(void **state) {
    (void)state;
    struct agent_result r[8];
    for (int g = 0; g < 8; g++) {
        agent_result_init(&r[g], &bandwidth);
        r[g].gpu = g;
        agent_metric(&r[g], "read", g == 5 ? 2100 : 2500 + g);
        agent_metric(&r[g], "wrong", g == 2 ? 500 : 5); /* no rate: not compared */
    }
    agent_set(&r[7], VERDICT_ERROR, "x", "broke off"); /* measured nothing */
    agent_judge(r, 8, true);
    for (int g = 0; g < 7; g++) assert_int_equal(r[g].verdict, g == 5 ? VERDICT_DEGRADED : VERDICT_PASS);
    assert_string_equal(r[5].code, "outlier");
    assert_non_null(strstr(r[5].message, "read is 2100 GB/s, 16.07 % under the median 2502 of the 7 GPUs here"));
    agent_judge(r, 0, true);
    for (int g = 0; g < 8; g++) agent_result_clear(&r[g]);
}

static void test_models_of_a_node(void **state) {
    (void)state;
    struct agent_result r[8];
    for (int g = 0; g < 8; g++) {
        agent_result_init(&r[g], &bandwidth);
        r[g].about.model = gpu_model_find(g < 4 ? 0x2330 : 0x2331, 0);
        agent_metric(&r[g], "read", g < 4 ? 3100 : g == 7 ? 1200 : 1600);
    }
    agent_judge(r, 8, true);
    for (int g = 0; g < 8; g++) assert_int_equal(r[g].verdict != VERDICT_PASS, g == 7);
    for (int g = 0; g < 8; g++) agent_result_clear(&r[g]);
}

static void test_a_worse_verdict_stays(void **state) {
    (void)state;
    struct agent_result r[4];
    for (int g = 0; g < 4; g++) {
        agent_result_init(&r[g], &bandwidth);
        agent_metric(&r[g], "read", g == 1 ? 100 : 2500);
    }
    agent_set(&r[1], VERDICT_FAIL, "low_read", "far too slow");
    agent_judge(r, 4, true);
    assert_string_equal(r[1].code, "low_read");
    agent_judge(r, 3, true); /* three are no peers */
    for (int g = 0; g < 4; g++) agent_result_clear(&r[g]);
}

/* --- over nodes --- */

static int events;
static void count_event(void *ctx, const struct event *e) {
    (void)ctx;
    if (e->status == EVENT_WARN) events++;
}

static void compare_nodes(struct report *r) {
    struct event_sink sink = {.emit = count_event};
    struct validate_env env = {.sink = &sink};
    events = 0;
    validate_peers(&env, r);
}

static void test_nodes_of_a_run(void **state) {
    (void)state;
    struct report r = {0};
    add_node(&r, "2330", (const double[]){2500, 2510}, 2);
    add_node(&r, "2330", (const double[]){2505, 2000}, 2);
    add_node(&r, "2330", (const double[]){2490, 2500}, 2);
    compare_nodes(&r);
    assert_int_equal(rated(&r, 0)->verdict, VERDICT_PASS);
    assert_int_equal(rated(&r, 2)->verdict, VERDICT_PASS);
    const struct check_result *bad = rated(&r, 1);
    assert_int_equal(bad->verdict, VERDICT_DEGRADED);
    assert_string_equal(bad->code, "outlier");
    assert_true(str_starts(bad->message, "gpu 1: "));
    assert_non_null(strstr(bad->message, "20 % under the median 2500 of the 6 GPUs in this run"));
    assert_int_equal(json_int(bad->data, "outliers.0.gpu", -1), 1);
    assert_int_equal(events, 1);
    report_clear(&r);
}

static void test_models_are_not_mixed(void **state) {
    (void)state;
    struct report r = {0};
    add_node(&r, "2330", (const double[]){2500, 2500, 2500}, 3);
    add_node(&r, "2331", (const double[]){1600}, 1); /* another model, alone */
    add_node(&r, "2330", (const double[]){2500, 2500}, 2);
    compare_nodes(&r);
    for (size_t i = 0; i < 3; i++) assert_int_equal(rated(&r, i)->verdict, VERDICT_PASS);
    assert_int_equal(events, 0);
    report_clear(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_an_outlier),    cmocka_unit_test(test_no_false_alarm),
        cmocka_unit_test(test_gpus_of_a_node),        cmocka_unit_test(test_models_of_a_node),
        cmocka_unit_test(test_a_worse_verdict_stays), cmocka_unit_test(test_nodes_of_a_run),
        cmocka_unit_test(test_models_are_not_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
