/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's settings for NCCL, in its environment: set, set again, the other variables stay, and what a
 * reader holds stays true. */
#include "base/gp_base.h"

#include "validate/agent/comm/nccl_setting.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static size_t count(const char *prefix) {
    size_t n = 0;
    for (char **e = environ; *e != NULL; e++) n += strncmp(*e, prefix, strlen(prefix)) == 0;
    return n;
}

static void sets_and_replaces(void **state) {
    (void)state;
    char value[] = "first";
    assert_null(getenv("GPUPROV_TEST_ENV"));
    nccl_setting("GPUPROV_TEST_ENV_LONGER", "kept");
    nccl_setting("GPUPROV_TEST_ENV", value);
    value[0] = 'F'; /* a copy was taken */
    assert_string_equal(getenv("GPUPROV_TEST_ENV"), "first");
    nccl_setting("GPUPROV_TEST_ENV", "");
    assert_string_equal(getenv("GPUPROV_TEST_ENV"), "");
    assert_int_equal(count("GPUPROV_TEST_ENV="), 1);
    assert_string_equal(getenv("GPUPROV_TEST_ENV_LONGER"), "kept");
}

static void keeps_what_others_hold(void **state) {
    (void)state;
    size_t before = 0, after = 0;
    for (char **e = environ; *e != NULL; e++) before++;
    nccl_setting("GPUPROV_TEST_HELD", "one");
    const char *held = getenv("GPUPROV_TEST_HELD");
    char **list = environ;
    for (int i = 0; i < 100; i++) nccl_setting("GPUPROV_TEST_HELD", "two");
    assert_string_equal(held, "one");
    for (char **e = list; *e != NULL; e++) after++;
    assert_int_equal(after, before + 1); /* the old list is whole */
    assert_string_equal(getenv("GPUPROV_TEST_HELD"), "two");
}

static void works_with_the_library(void **state) {
    (void)state;
    nccl_setting("GPUPROV_TEST_OURS", "1");
    assert_int_equal(setenv("GPUPROV_TEST_THEIRS", "2", 1), 0);
    nccl_setting("GPUPROV_TEST_OURS", "3");
    assert_string_equal(getenv("GPUPROV_TEST_THEIRS"), "2");
    assert_int_equal(unsetenv("GPUPROV_TEST_OURS"), 0);
    assert_null(getenv("GPUPROV_TEST_OURS"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_and_replaces),
        cmocka_unit_test(keeps_what_others_hold),
        cmocka_unit_test(works_with_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
