/* SPDX-License-Identifier: Apache-2.0 */
/* The name of an account that only its API key stands for. */
#include "base/gp_base.h"

#include "providers/common/api_key.h"

#include "providers/provider.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct secret key_of(const char *text) {
    struct secret ret = {0};
    secret_set(&ret, text, strlen(text));
    return ret;
}

/* A create that is under way when a refused key is renewed goes on with the name that it borrowed. */
static void test_a_renewed_key_leaves_the_first_name(void **state) {
    GP_AUTO_STRV struct strv names = {0};
    GP_AUTO_SECRET struct secret first = key_of("one"), second = key_of("two");
    struct provider p = {0};
    (void)state;
    api_key_account(&names, &first, &p);
    const char *borrowed = p.account;
    char before[32];
    str_put(before, sizeof before, borrowed);
    assert_true(p.account_is_key);
    assert_int_equal(strlen(borrowed), strlen("key-") + 12);
    for (int i = 0; i < 100; i++) api_key_account(&names, i % 2 == 0 ? &second : &first, &p);
    assert_string_equal(borrowed, before);
    assert_string_equal(p.account, before);
    api_key_account(&names, &second, &p);
    assert_string_not_equal(p.account, before);
    assert_null(strstr(p.account, "two"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_renewed_key_leaves_the_first_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
