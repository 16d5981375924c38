/* SPDX-License-Identifier: Apache-2.0 */
/* The rule that chooses checks for a given time, orders them and divides the time. */
#include "base/gp_base.h"

#include "validate/suite/pick.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct check_info rows[] = {
    {.id = "slow", .seconds = 30, .required = true, .core = true},
    {.id = "often", .seconds = 6, .telling = 3},
    {.id = "seldom", .seconds = 4},
    {.id = "quick", .seconds = 2, .required = true, .core = true},
    {.id = "long", .seconds = 10, .stretch = true},
    {.id = "longer", .seconds = 20, .stretch = true},
    {.id = "usual", .seconds = 25, .required = true},
};
enum { N = GP_ARRAY_LEN(rows) };

static void fill(struct pick *list) {
    for (size_t i = 0; i < N; i++)
        list[i] = (struct pick){.info = &rows[i], .core = rows[i].core, .required = rows[i].required};
}

static const struct pick *of(const struct pick *list, const char *id) {
    for (size_t i = 0; i < N; i++)
        if (strcmp(list[i].info->id, id) == 0) return &list[i];
    fail_msg("%s is not in the list", id);
    return NULL;
}

static void test_core_first_then_required_then_seconds_over_telling(void **state) {
    (void)state;
    static const char *const want[] = {"quick", "slow", "usual", "often", "seldom", "long", "longer"};
    struct pick list[N];
    fill(list);
    pick_sort(list, N);
    for (size_t i = 0; i < N; i++) assert_string_equal(list[i].info->id, want[i]);
}

static void test_what_fits_is_taken(void **state) {
    (void)state;
    struct pick list[N];
    fill(list);
    assert_int_equal(pick_take(list, N, 45000), 32); /* one that is only required may be left out */
    assert_false(of(list, "usual")->taken);
    assert_true(of(list, "quick")->taken && of(list, "slow")->taken);
    assert_true(of(list, "often")->taken && of(list, "seldom")->taken);
    assert_false(of(list, "long")->taken || of(list, "longer")->taken);
    assert_int_equal(pick_seconds(list, N), 42);
}

static void test_a_core_one_that_does_not_fit_is_told(void **state) {
    (void)state;
    struct pick list[N];
    fill(list);
    assert_true(pick_take(list, N, 12000) > 12); /* that much was needed */
    assert_true(of(list, "quick")->taken && !of(list, "slow")->taken);
    assert_true(of(list, "often")->taken && of(list, "seldom")->taken); /* what is left is used */
    fill(list);
    pick_take(list, N, 0);
    assert_int_equal(pick_seconds(list, N), 0);
}

static int64_t budgets(struct pick *list, int64_t time_ms) {
    int64_t sum = 0;
    fill(list);
    pick_take(list, N, time_ms);
    pick_share(list, N, time_ms);
    for (size_t i = 0; i < N; i++) sum += list[i].taken ? list[i].budget_ms : 0;
    return sum;
}

static void test_one_minute_is_stated_seconds(void **state) {
    (void)state;
    struct pick list[N];
    budgets(list, 60000);
    for (size_t i = 0; i < N; i++) assert_int_equal(list[i].budget_ms, (int64_t)list[i].info->seconds * 1000);
}

static void test_more_time_goes_to_those_that_can_use_it(void **state) {
    (void)state;
    struct pick list[N];
    assert_in_range(budgets(list, 300000), 299998, 300000); /* 97 s stated, so 203 s are divided 1 to 2 */
    assert_int_equal(of(list, "long")->budget_ms, 10000 + 203000 / 3);
    assert_int_equal(of(list, "longer")->budget_ms, 20000 + 203000 * 2 / 3);
    assert_int_equal(of(list, "slow")->budget_ms, 30000);
    for (int64_t t = 60000; t <= 3600000; t += 7777) assert_true(budgets(list, t) <= t);
}

static void test_nothing_that_stretches_leaves_the_rest_unused(void **state) {
    (void)state;
    struct pick list[2] = {{.info = &rows[0]}, {.info = &rows[3]}};
    pick_take(list, 2, 600000);
    pick_share(list, 2, 600000);
    assert_int_equal(list[0].budget_ms + list[1].budget_ms, 32000);
    pick_share(list, 0, 600000); /* an empty list is no trouble */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_core_first_then_required_then_seconds_over_telling),
        cmocka_unit_test(test_what_fits_is_taken),
        cmocka_unit_test(test_a_core_one_that_does_not_fit_is_told),
        cmocka_unit_test(test_one_minute_is_stated_seconds),
        cmocka_unit_test(test_more_time_goes_to_those_that_can_use_it),
        cmocka_unit_test(test_nothing_that_stretches_leaves_the_rest_unused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
