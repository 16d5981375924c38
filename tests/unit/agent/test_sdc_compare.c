/* SPDX-License-Identifier: Apache-2.0 */
/* Random products of a node's GPUs against each other: who is blamed, and who must not be. The agent's
 * files are not in the library, so they are included. */
#include "base/gp_base.h"

#include "validate/agent/base/result.c"
#include "validate/agent/checks/gpu/known_product_cuda.c"
#include "validate/agent/checks/gpu/sdc_compare_cuda.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct kstep kstep;
const struct product_type product_types[] = {{"fp32", GEMM_F32, false}, {"fp16", GEMM_F16, false}, {.name = NULL}};
static const char a_model, another_model;

struct gpu {
    const char *random, *own, *algorithm, *by, *capability;
};

static void compare(const struct gpu *gpus, size_t n, struct agent_result *each) {
    for (size_t i = 0; i < n; i++) {
        agent_result_init(&each[i], check_find("gpu.sdc"));
        each[i].gpu = (int)i;
        each[i].about.model = (const void *)&a_model;
        str_addf(&each[i].data,
                 "\"edge\":128,\"capability\":%s,\"sms\":132,\"by\":\"%s\",\"random\":{\"fp32\":\"0x01\","
                 "\"fp16\":\"0x%s\"},\"random_own\":{"
                 "\"fp16\":\"0x%s\"},\"algorithms\":{\"fp32\":\"0x07\",\"fp16\":\"0x%s\"}",
                 gpus[i].capability, gpus[i].by, gpus[i].random, gpus[i].own, gpus[i].algorithm);
    }
}
static void done(struct agent_result *each, size_t n) {
    for (size_t i = 0; i < n; i++) agent_result_clear(&each[i]);
}
static const struct gpu sound = {"aa", "bb", "09", "lt", "90"};

static void test_agreement(void **state) {
    (void)state;
    struct gpu gpus[4] = {sound, sound, sound, sound};
    struct agent_result each[4];
    compare(gpus, 4, each);
    gpu_sdc_compare(each, 4);
    for (size_t i = 0; i < 4; i++) assert_int_equal(each[i].verdict, VERDICT_PASS);
    done(each, 4);
}

static void test_the_odd_one_fails(void **state) {
    (void)state;
    for (int own = 0; own < 2; own++) {
        struct gpu gpus[4] = {sound, sound, sound, sound};
        struct agent_result each[4];
        if (own) gpus[2].own = "cc";
        else gpus[2].random = "cc";
        compare(gpus, 4, each);
        gpu_sdc_compare(each, 4);
        for (size_t i = 0; i < 4; i++) assert_int_equal(each[i].verdict, i == 2 ? VERDICT_FAIL : VERDICT_PASS);
        assert_string_equal(each[2].code, "sdc_differs");
        assert_non_null(strstr(each[2].message, "fp16"));
        assert_non_null(strstr(each[2].message, "3 other GPUs"));
        done(each, 4);
    }
}

static void test_two_that_disagree(void **state) {
    (void)state;
    struct gpu gpus[2] = {sound, sound};
    struct agent_result each[2];
    gpus[1].random = "cc";
    compare(gpus, 2, each);
    gpu_sdc_compare(each, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(each[i].verdict, VERDICT_DEGRADED);
        assert_string_equal(each[i].code, "sdc_disagree");
    }
    done(each, 2);
    compare(gpus, 2, each);
    agent_set(&each[1], VERDICT_FAIL, "sdc_wrong", "known to be wrong");
    gpu_sdc_compare(each, 2);
    assert_int_equal(each[0].verdict, VERDICT_PASS); /* its partner has no voice */
    done(each, 2);
}

/* Another algorithm, library, model or architecture (of models that no table knows) rounds in another way: no fault of anybody's. */
static void test_what_is_not_alike_is_not_compared(void **state) {
    (void)state;
    for (int what = 0; what < 4; what++) {
        struct gpu gpus[3] = {sound, sound, sound};
        struct agent_result each[3];
        gpus[1].random = "cc";
        if (what == 0) gpus[1].algorithm = "0a";
        if (what == 1) gpus[1].by = "another";
        if (what == 3) gpus[1].own = "dd";
        if (what == 3) gpus[1].capability = "89";
        compare(gpus, 3, each);
        for (size_t i = 0; i < 3 && what == 3; i++) each[i].about.model = NULL;
        if (what == 2) each[1].about.model = (const void *)&another_model;
        gpu_sdc_compare(each, 3);
        for (size_t i = 0; i < 3; i++) assert_int_equal(each[i].verdict, VERDICT_PASS);
        done(each, 3);
    }
}

static void test_results_without_checksums(void **state) {
    (void)state;
    struct gpu gpus[2] = {sound, sound};
    struct agent_result each[2];
    compare(gpus, 2, each);
    str_reset(&each[1].data);
    agent_set(&each[1], VERDICT_ERROR, "crashed", "its worker was killed");
    gpu_sdc_compare(each, 2);
    assert_int_equal(each[0].verdict, VERDICT_PASS);
    assert_int_equal(each[1].verdict, VERDICT_ERROR);
    done(each, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agreement),
        cmocka_unit_test(test_the_odd_one_fails),
        cmocka_unit_test(test_two_that_disagree),
        cmocka_unit_test(test_what_is_not_alike_is_not_compared),
        cmocka_unit_test(test_results_without_checksums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
