/* SPDX-License-Identifier: Apache-2.0 */
/* The record of the job that this machine last saw: each member is needed, and nothing else is taken. */
#include "base/gp_base.h"

#include "base/str.h"
#include "engine/job/seen/job_seen.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define GOOD                                                                                            \
    "{\"version\": 1, \"id\": \"0123456789abcdef\", \"state\": \"failed\", \"started_s\": 1800000000, " \
    "\"seen_s\": 1800000060, \"nodes\": 2, \"fetched\": true, \"why\": \"exited with code 3\"}"

static int decode(const char *text, struct job_seen *ret, struct gp_error *err) {
    gp_error_clear(err);
    return job_seen_decode(text, strlen(text), ret, err);
}

static void as_written(void **state) {
    (void)state;
    struct job_seen s = {0};
    struct gp_error err = {0};
    GP_AUTO_STR struct str text = {0};
    assert_int_equal(decode(GOOD, &s, &err), 0);
    assert_string_equal(s.id, "0123456789abcdef");
    assert_int_equal(s.nodes, 2);
    job_seen_text(&s, "llm", &text);
    assert_string_equal(text.s, "job 0123456789abcdef has failed: exited with code 3, its files were fetched (started "
                                "2027-01-15T08:00:00Z; as this machine saw it at 2027-01-15T08:01:00Z)");
}

static void each_member_spoiled(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *names;
    } rows[] = {{"\"version\": 1", "\"version\": 2", "version"},
                {"0123456789abcdef", "../0123456789abc", "id"},
                {"\"failed\"", "\"fine\"", "state"},
                {"1800000000", "-1", "started_s"},
                {"1800000060", "\"now\"", "seen_s"},
                {"\"nodes\": 2", "\"nodes\": 0", "nodes"},
                {"\"nodes\": 2", "\"nodes\": 65537", "nodes"},
                {"true", "1", "fetched"},
                {"\"exited with code 3\"", "null", "why"},
                {"\"why\"", "\"more\": 1, \"why\"", "number of members"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct job_seen s = {0};
        struct gp_error err = {0};
        const char *at = strstr(GOOD, rows[i].from);
        assert_non_null(at);
        GP_AUTO_FREE char *text = xasprintf("%.*s%s%s", (int)(at - GOOD), GOOD, rows[i].to, at + strlen(rows[i].from));
        assert_true(decode(text, &s, &err) != 0);
        assert_non_null(strstr(err.msg, rows[i].names));
        assert_string_equal(s.id, "");
    }
    struct job_seen s = {0};
    struct gp_error err = {0};
    assert_true(decode("[]", &s, &err) != 0);
    assert_true(decode("", &s, &err) != 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_written), cmocka_unit_test(each_member_spoiled)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
