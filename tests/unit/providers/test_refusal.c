/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from a cloud's error table: which row holds, whether a call goes again, whether a create may have been
 * acted on, and the clock. */
#include "base/gp_base.h"

#include "providers/common/cloud_clock.h"
#include "providers/common/refusal.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Codes as Azure, Alibaba, OpenStack and RunPod send them. */
static const struct cloud_error rows[] = {
    {"OperationNotAllowed|quota", GP_EQUOTA, GP_SCOPE_REGION, CLOUD_NO, "ask for more"},
    {"OperationNotAllowed", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"Throttling.*", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, ""},
    {"backendError", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, ""},
    {"InvalidAccountStatus.NotEnoughBalance", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, "top up the account"},
    {"*|no valid host was found", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"500.*|no instances available", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"provider/*", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, ""},
};

static const struct cloud_error *find(const char *code, const char *message) {
    struct cloud_said said = {code, message, ""};
    return cloud_error_find(rows, GP_ARRAY_LEN(rows), &said);
}

static void test_rows(void **state) {
    (void)state;
    assert_ptr_equal(find("OperationNotAllowed", "exceeding approved Total Regional Cores Quota"), &rows[0]);
    assert_ptr_equal(find("OperationNotAllowed", "the VM is deallocating"), &rows[1]);
    assert_ptr_equal(find("Throttling", ""), &rows[2]);
    assert_ptr_equal(find("Throttling.User", ""), &rows[2]);
    assert_ptr_equal(find("InvalidAccountStatus.NotEnoughBalance", ""), &rows[4]);
    assert_ptr_equal(find("500", "No valid host was found. There are not enough hosts"), &rows[5]);
    assert_ptr_equal(find("500", "There are no instances available"), &rows[6]);
    assert_ptr_equal(find("provider/internal-unavailable", ""), &rows[7]);
    static const char *const none[] = {"provider.x", "providers/x",  "ThrottlingX",         "Throttlin",
                                       "",           "X.Throttling", "operationNotAllowed", "500x"};
    for (size_t i = 0; i < GP_ARRAY_LEN(none); i++) {
        const struct cloud_error *row = find(none[i], "no instances available");
        assert_true(row->gp == GP_EPROTO && row->scope == GP_SCOPE_OFFER && row->class == CLOUD_NO);
    }
}

/* Status and row, and what they mean for the next try and for a create that was sent. */
static void test_decisions(void **state) {
    (void)state;
    static const struct {
        int status, retry_after_s, row; /* row -1: nothing was said */
        bool malformed;
        enum http_verdict verdict;
        bool open;
    } cases[] = {
        {200, -1, -1, false, HTTP_DONE, true}, /* a success that could not be read in full */
        {201, -1, -1, true, HTTP_TROUBLE, true},   {204, -1, -1, false, HTTP_DONE, true},
        {400, -1, -1, false, HTTP_DONE, false},    {404, -1, -1, true, HTTP_DONE, false},
        {429, -1, -1, false, HTTP_REFUSED, false}, {500, -1, -1, false, HTTP_TROUBLE, true},
        {503, -1, -1, false, HTTP_TROUBLE, true},  {503, 5, -1, false, HTTP_REFUSED, false},
        {500, -1, 5, false, HTTP_DONE, false}, /* capacity as 500 */
        {503, -1, 2, false, HTTP_REFUSED, false},  {200, -1, 3, false, HTTP_TROUBLE, true},
        {400, -1, 4, false, HTTP_DONE, false},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        const struct cloud_error *row = cases[i].row >= 0 ? &rows[cases[i].row] : NULL;
        struct http_resp resp = {.status = cases[i].status, .retry_after_s = cases[i].retry_after_s, .sent = true};
        if (cloud_judge(&resp, row, cases[i].malformed) != cases[i].verdict ||
            cloud_outcome_open(&resp, 0, row) != cases[i].open)
            fail_msg("case %zu", i);
        assert_true(cloud_outcome_open(&resp, -GP_ELOST, row));
        resp.sent = false;
        assert_false(cloud_outcome_open(&resp, -GP_ELOST, row));
    }
}

static void test_messages(void **state) {
    (void)state;
    struct gp_error e = {0}, status = {0}, form = {0};
    struct cloud_said said = {"InvalidAccountStatus.NotEnoughBalance", "Your balance is 0.", "r-1"};
    assert_int_equal(cloud_fail(&e, "ecs RunInstances", &said, &rows[4]), -GP_EMONEY);
    assert_string_equal(e.msg, "ecs RunInstances: InvalidAccountStatus.NotEnoughBalance: Your balance is 0: top up the "
                               "account (request r-1)");
    assert_int_equal(e.scope, GP_SCOPE_PROVIDER);
    assert_int_equal(cloud_to_unknown(&e), -GP_EUNKNOWN);
    assert_true(e.code == GP_EUNKNOWN && e.scope == GP_SCOPE_NONE);
    struct http_resp busy = {.status = 503, .attempts = 5}, html = {.status = 200};
    assert_int_equal(cloud_fail_status(&status, "x", &busy, "JSON"), -GP_ETHROTTLED);
    assert_string_equal(status.detail, "HTTP503");
    assert_int_equal(cloud_fail_status(&form, "x", &html, "JSON"), -GP_EPROTO);
    assert_non_null(strstr(form.msg, "JSON"));
}

static void test_clock(void **state) {
    (void)state;
    struct provider p = {.clock_skew_s = 7};
    cloud_clock_set(&p, &(struct http_resp){.has_date = false, .date_skew_s = 500});
    assert_int_equal(p.clock_skew_s, 7);
    cloud_clock_set(&p, &(struct http_resp){.has_date = true, .date_skew_s = -2});
    assert_int_equal(p.clock_skew_s, 0);
    cloud_clock_set(&p, &(struct http_resp){.has_date = true, .date_skew_s = -600});
    assert_int_equal(p.clock_skew_s, -600);
    int64_t now = cloud_now_s(&p) + 600 - clock_wall_s();
    assert_true(now >= -1 && now <= 1);
    assert_true(cloud_clock_moved(&p, 0));
    assert_false(cloud_clock_moved(&p, -500));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_decisions),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_clock),
    };
    return cmocka_run_group_tests_name("refusals", tests, NULL, NULL);
}
