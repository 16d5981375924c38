/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.stress without a GPU: what its samples say. */
#include "base/gp_base.h"

#include "validate/agent/checks/gpu/stress.c"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { PERHAPS = 0x8, HW = 0x40, SW = 0x20, CAP = 0x4, N = 100 };
static const struct stress_reasons why = {.hw = HW | PERHAPS, .hw_certain = HW, .sw_thermal = SW, .power_cap = CAP};

static void steady(struct stress_sample *s) {
    for (size_t i = 0; i < N; i++)
        s[i] = (struct stress_sample){
            .at_s = (double)i / 4, .rate = 700, .clock_mhz = 1700, .temperature_c = 60, .power_w = 690, .reasons = CAP};
}

static void test_steady(void **state) {
    (void)state;
    struct stress_sample s[N];
    struct stress_figures f;
    steady(s);
    for (size_t i = 0; i < 10; i++) /* a slow start is the warm-up's */
        s[i].rate = 100;
    stress_figures(s, N, &why, &f);
    assert_true(f.told && f.clocks_told && f.reasons_told);
    assert_true(fabs(f.decay - 1) < 1e-9 && fabs(f.rate - 700) < 1e-9);
    assert_true(f.dips == 0 && f.clock == 1700 && f.hottest == 60 && f.power == 690);
    assert_true(f.hw == 0 && f.sw_thermal == 0 && f.power_cap == 90);
}

static void test_decay_and_dips(void **state) {
    (void)state;
    struct stress_sample s[N];
    struct stress_figures f;
    steady(s);
    for (size_t i = 60; i < N; i++) s[i].rate = 420;
    for (size_t i = 50; i < 59; i++) s[i].clock_mhz = 900;
    s[70].temperature_c = 91;
    s[71].reasons = HW | CAP;
    s[72].reasons = SW;
    stress_figures(s, N, &why, &f);
    assert_true(fabs(f.decay - 0.6) < 1e-9);
    assert_true(fabs(f.dips - 10) < 1e-9);
    assert_true(f.hottest == 91 && f.hw == 1 && f.hw_seen == HW && f.sw_thermal == 1);
}

/* A quarter's mean hides what begins in its middle, and the first quarter's rate hides a slow fall. */
static void test_a_late_onset_shows(void **state) {
    (void)state;
    struct stress_sample s[N];
    struct stress_figures f;
    steady(s);
    stress_figures(s, N, &why, &f);
    assert_true(f.late_fall == 0 && f.settled == 700);
    for (size_t i = 90; i < N; i++) s[i].rate = 600; /* the last tenth only */
    stress_figures(s, N, &why, &f);
    assert_true(f.decay < 0.87 && f.late_fall > 14 && f.settled == 700);
    steady(s);
    for (size_t i = 0; i < N; i++) s[i].rate = 700 - 0.8 * (double)i; /* 11 % in all, still falling */
    stress_figures(s, N, &why, &f);
    assert_true(f.decay > 0.9 && f.late_fall > 6);
    steady(s);
    for (size_t i = 0; i < 30; i++) s[i].rate = 720; /* settles within the first quarter, as a capped GPU does */
    stress_figures(s, N, &why, &f);
    assert_true(f.decay > 0.95 && f.late_fall < 1);
}

static void test_a_moment_of_what_may_be_a_change_of_clocks(void **state) {
    (void)state;
    struct stress_sample s[N];
    struct stress_figures f;
    steady(s);
    s[40].reasons = s[60].reasons = PERHAPS | CAP; /* alone each time */
    stress_figures(s, N, &why, &f);
    assert_true(f.hw == 0 && f.hw_seen == 0);
    s[61].reasons = s[62].reasons = PERHAPS;
    stress_figures(s, N, &why, &f);
    assert_true(f.hw == 2 && f.hw_seen == PERHAPS);
}

static void test_what_is_not_told_is_no_figure(void **state) {
    (void)state;
    struct stress_sample s[N];
    struct stress_figures f;
    steady(s);
    for (size_t i = 0; i < N; i++) {
        s[i].clock_mhz = s[i].temperature_c = s[i].power_w = -1;
        s[i].reasons = -1;
    }
    stress_figures(s, N, &why, &f);
    assert_true(f.told && !f.clocks_told && !f.reasons_told && f.hottest < 0 && f.power < 0 && f.hw == 0);
    stress_figures(s, 5, &why, &f);
    assert_false(f.told); /* too few to tell a quarter from another */
    stress_figures(s, 0, &why, &f);
    assert_false(f.told);
}

static void test_thinning_keeps_the_extremes(void **state) {
    (void)state;
    struct stress_sample s[N];
    steady(s);
    s[37].clock_mhz = 300;
    s[38].temperature_c = 99;
    s[39].reasons = HW;
    s[40].rate = 0;
    size_t n = stress_thin(s, N, 7);
    assert_int_equal(n, 7);
    double low = 1e9, hot = 0, sum = 0;
    int64_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        low = GP_MIN(low, s[i].clock_mhz);
        hot = GP_MAX(hot, s[i].temperature_c);
        seen |= s[i].reasons;
        sum += s[i].rate;
    }
    assert_true(low == 300 && hot == 99 && (seen & HW) && sum < 7 * 700);
    steady(s);
    assert_int_equal(stress_thin(s, 5, 7), 5); /* what fits stays */
    assert_int_equal(stress_thin(s, 0, 7), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady),
        cmocka_unit_test(test_decay_and_dips),
        cmocka_unit_test(test_a_late_onset_shows),
        cmocka_unit_test(test_a_moment_of_what_may_be_a_change_of_clocks),
        cmocka_unit_test(test_what_is_not_told_is_no_figure),
        cmocka_unit_test(test_thinning_keeps_the_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
