/* SPDX-License-Identifier: Apache-2.0 */
/* One result of many GPUs': the worst counts, and each one keeps its own words. */
#include "base/gp_base.h"

#include "validate/agent/base/result.c"
#include "validate/agent/run/run_merge.c"

#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { GPUS = 3 };

static void make(struct agent_result *each) {
    for (int g = 0; g < GPUS; g++) {
        agent_result_init(&each[g], check_find("gpu.stress"));
        each[g].gpu = g;
        agent_metric(&each[g], "rate", 700 - g);
        agent_metric(&each[g], "temperature", 60 + g);
        agent_data_str(&each[g], "type", "bf16");
        agent_say(&each[g], "held");
    }
}

static json_t *merged(struct agent_result *all, struct agent_result *each) {
    agent_result_init(all, check_find("gpu.stress"));
    run_merge(all, each, GPUS);
    GP_AUTO_STR struct str s = {0};
    agent_result_line(all, &s);
    json_t *j = NULL;
    struct gp_error err = {0};
    if (json_parse(s.s, s.len, "line", &j, &err) < 0) fail_msg("%s", err.msg);
    for (int g = 0; g < GPUS; g++) agent_result_clear(&each[g]);
    return j;
}

static void test_all_pass(void **state) {
    (void)state;
    struct agent_result each[GPUS], all;
    make(each);
    GP_AUTO_JSON json_t *j = merged(&all, each);
    assert_int_equal(all.verdict, VERDICT_PASS);
    assert_true(all.metrics[0].value == 698 && all.metrics[1].value == 62); /* lowest rate, hottest */
    const json_t *gpus = json_object_get(json_object_get(j, "data"), "gpus");
    assert_int_equal(json_array_size(gpus), GPUS);
    const json_t *second = json_array_get(gpus, 1);
    assert_string_equal(json_str(second, "verdict", ""), "pass");
    assert_string_equal(json_str(second, "type", ""), "bf16");
    assert_true(json_number_value(json_object_get(json_object_get(second, "metrics"), "rate")) == 699);
    agent_result_clear(&all);
}

static void test_the_worst_is_named_and_the_others_counted(void **state) {
    (void)state;
    struct agent_result each[GPUS], all;
    make(each);
    agent_set(&each[0], VERDICT_DEGRADED, "sw_thermal", "warm");
    agent_set(&each[1], VERDICT_FAIL, "hw_brake", "gpu 1: slowed down");
    agent_suggest(&each[1], "look at the cable");
    agent_set(&each[2], VERDICT_FAIL, "hw_slowdown", "gpu 2: hot");
    GP_AUTO_JSON json_t *j = merged(&all, each);
    assert_int_equal(all.verdict, VERDICT_FAIL);
    assert_string_equal(all.code, "hw_brake");
    assert_string_equal(all.message, "gpu 1: slowed down (also gpu 2)");
    assert_string_equal(all.suggestion, "look at the cable");
    const json_t *gpus = json_object_get(json_object_get(j, "data"), "gpus");
    assert_string_equal(json_str(json_array_get(gpus, 0), "code", ""), "sw_thermal");
    assert_string_equal(json_str(json_array_get(gpus, 2), "message", ""), "gpu 2: hot");
    agent_result_clear(&all);
}

static void test_one_that_says_too_much_costs_the_others_nothing(void **state) {
    (void)state;
    struct agent_result each[GPUS], all;
    make(each);
    str_add(&each[1].data, ",\"long\":\"");
    for (int i = 0; i < 30000; i++) str_addc(&each[1].data, 'x');
    str_addc(&each[1].data, '"');
    GP_AUTO_JSON json_t *j = merged(&all, each);
    const json_t *gpus = json_object_get(json_object_get(j, "data"), "gpus");
    assert_string_equal(json_str(json_array_get(gpus, 0), "type", ""), "bf16");
    assert_non_null(json_object_get(json_array_get(gpus, 1), "dropped"));
    assert_non_null(json_object_get(json_array_get(gpus, 1), "metrics"));
    agent_result_clear(&all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_pass),
        cmocka_unit_test(test_the_worst_is_named_and_the_others_counted),
        cmocka_unit_test(test_one_that_says_too_much_costs_the_others_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
