/* SPDX-License-Identifier: Apache-2.0 */
/* The median, the median absolute deviation and quantiles, as base/stats.h defines them. */
#include "base/gp_base.h"

#include "base/stats.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const double six[] = {5, 1, 4, 2, 3, 100};

static void test_median(void **state) {
    (void)state;
    assert_true(stats_median(six, 5) == 3);
    assert_true(stats_median(six, 6) == 3.5); /* the mean of the middle two */
    assert_true(stats_median(six, 1) == 5);
    assert_true(stats_median(six, 0) == 0);
    assert_true(six[0] == 5 && six[5] == 100); /* not reordered */
}

static void test_deviation(void **state) {
    (void)state;
    assert_true(stats_mad(six, 5, 3) == 1);
    assert_true(stats_mad(six, 6, 3.5) == 1.5); /* distances 0.5, 0.5, 1.5, 1.5, 2.5, 96.5 */
    assert_true(stats_mad(six, 0, 3) == 0);
}

static void test_quantiles(void **state) {
    (void)state;
    assert_true(stats_quantile(six, 6, 0) == 1);
    assert_true(stats_quantile(six, 6, 1) == 100);
    assert_true(stats_quantile(six, 6, 0.5) == 3); /* always a value that was measured */
    assert_true(stats_quantile(six, 5, 0.5) == 3);
    assert_true(stats_quantile(six, 6, 0.9) == 5);
    assert_true(stats_quantile(six, 0, 0.5) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_median), cmocka_unit_test(test_deviation),
                                       cmocka_unit_test(test_quantiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
