/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a search for offers in several regions: the worst failure, warnings, and failures that end it. */
#include "base/gp_base.h"

#include "providers/common/refusal.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static int warnings;
static void on_event(void *ctx, const struct event *e) {
    (void)ctx;
    assert_int_equal(e->status, EVENT_WARN);
    warnings++;
}
static const struct event_sink sink = {.emit = on_event};

static struct gp_error failure(enum gp_code code, enum gp_scope scope, const char *text) {
    struct gp_error e = {0};
    gp_fail(&e, code, "%s", text);
    e.scope = scope;
    return e;
}

static void test_the_worst_counts(void **state) {
    static const struct {
        enum gp_code codes[3];
        const char *worst;
    } rows[] = {
        {{GP_EUSAGE, GP_ECAPACITY, GP_EUSAGE}, "1"},
        {{GP_ECAPACITY, GP_EUSAGE, GP_EUSAGE}, "0"},
        {{GP_EUSAGE, GP_EUSAGE, GP_EUSAGE}, "0"}, /* of equals the first */
        {{GP_EUSAGE, GP_ECAPACITY, GP_EAUTH}, "2"},
    };
    (void)state;
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct regions_result r = {.sink = &sink, .regions = 3};
        struct gp_error err = {0};
        warnings = 0;
        for (int k = 0; k < 3; k++) {
            char name[2] = {(char)('0' + k), '\0'};
            struct gp_error e = failure(rows[i].codes[k], GP_SCOPE_REGION, name);
            assert_false(regions_failed(&r, &e));
        }
        assert_int_equal(warnings, 3);
        assert_int_equal(regions_end(&r, false, &err), -(int)rows[i].codes[rows[i].worst[0] - '0']);
        assert_string_equal(err.msg, rows[i].worst);
        assert_int_equal(err.scope, GP_SCOPE_REGION);
        assert_int_equal(regions_end(&r, true, NULL), 0); /* another region has an offer */
    }
}

static void test_one_region_is_not_warned_of(void **state) {
    struct regions_result r = {.sink = &sink, .regions = 1};
    struct gp_error err = {0}, e = failure(GP_EUSAGE, GP_SCOPE_NONE, "a key");
    (void)state;
    warnings = 0;
    assert_false(regions_failed(&r, &e));
    assert_int_equal(warnings, 0);
    assert_int_equal(regions_end(&r, false, &err), -GP_EUSAGE);
    assert_int_equal(err.scope, GP_SCOPE_OFFER);
}

static void test_failures_of_every_region(void **state) {
    static const struct {
        enum gp_code code;
        enum gp_scope scope;
        bool fatal;
    } rows[] = {
        {GP_ECANCELLED, GP_SCOPE_NONE, true},
        {GP_EAUTH, GP_SCOPE_PROVIDER, true},
        {GP_EAUTH, GP_SCOPE_REGION, false},
        {GP_EQUOTA, GP_SCOPE_PROVIDER, false},
    };
    (void)state;
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct regions_result r = {.sink = &sink, .regions = 2};
        struct gp_error err = {0}, first = failure(GP_EBILLED, GP_SCOPE_NONE, "first");
        struct gp_error e = failure(rows[i].code, rows[i].scope, "second");
        assert_false(regions_failed(&r, &first));
        warnings = 0;
        assert_int_equal(regions_failed(&r, &e), rows[i].fatal);
        assert_int_equal(warnings, rows[i].fatal ? 0 : 1);
        assert_int_equal(regions_end(&r, true, &err), rows[i].fatal ? -(int)rows[i].code : 0);
        assert_string_equal(err.msg, rows[i].fatal ? "second" : "");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_worst_counts),
        cmocka_unit_test(test_one_region_is_not_warned_of),
        cmocka_unit_test(test_failures_of_every_region),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
