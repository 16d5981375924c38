/* SPDX-License-Identifier: Apache-2.0 */
/* The AWS CLI's files as the AWS CLI reads them. */
#include "base/gp_base.h"

#include "base/ini.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void reads(void **state) {
    (void)state;
    const char *text = "\xef\xbb\xbf# comment\n; another\n\n[default]\r\nregion = us-east-1\r\n"
                       "aws_secret_access_key=a+b/c=d #e\n"
                       "[ profile  \"two words\" ]\nRole_Arn = arn:x\n[profile x]\ns3 =\n  max = 20\n\n"
                       "  addr = path\nempty =\n[bare]\n[default]\nregion = eu-west-1\n[profilex]\na = 1";
    struct ini ini = {0};
    struct gp_error err = {0};
    assert_int_equal(ini_parse("config", text, &ini, &err), 0);
    assert_string_equal(ini_get(&ini, "default", "region"), "eu-west-1"); /* the later one wins */
    assert_string_equal(ini_get(&ini, "default", "aws_secret_access_key"), "a+b/c=d #e");
    assert_string_equal(ini_get(&ini, "profile two words", "role_arn"), "arn:x");
    assert_string_equal(ini_get(&ini, "profile x", "s3"), "\nmax = 20\naddr = path");
    assert_string_equal(ini_get(&ini, "profile x", "empty"), "");
    assert_null(ini_get(&ini, "profile x", "max")); /* nested: not a key of the section */
    assert_string_equal(ini_get(&ini, "profilex", "a"), "1");
    assert_true(ini_has_section(&ini, "bare"));
    assert_false(ini_has_section(&ini, "none"));
    assert_null(ini_get(&ini, "bare", ""));
    ini_clear(&ini);
    assert_int_equal(ini_parse("config", "", &ini, &err), 0);
    assert_int_equal(ini.entries.len, 0);
    ini_clear(&ini);
}

static void refuses_without_showing(void **state) {
    (void)state;
    static const struct {
        const char *text, *msg;
    } rows[] = {
        {"[a\nb = 1\n", "creds:1: the section's ']' is missing"},
        {"key = SECRET\n", "creds:1: a key stands before the first [section]"},
        {"[a]\n\nSECRET\n", "creds:3: expected 'key = value' or '[section]'"},
        {"[a]\n= SECRET\n", "creds:2: expected 'key = value' or '[section]'"},
        {"[a]\n  SECRET\n", "creds:2: expected 'key = value' or '[section]'"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct ini ini = {0};
        struct gp_error err = {0};
        assert_int_equal(ini_parse("creds", rows[i].text, &ini, &err), -GP_EUSAGE);
        assert_string_equal(err.msg, rows[i].msg);
        assert_int_equal(ini.entries.len, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads), cmocka_unit_test(refuses_without_showing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
