/* SPDX-License-Identifier: Apache-2.0 */
/* Which events are notifications of which kind, when time and money are due, and the signature. The queues and
 * deliveries: tests/e2e/verbs/test_notify.py. */
#include "base/gp_base.h"

#include "engine/run/notify_kind.h"
#include "engine/run/notify_priv.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void kinds(void **state) {
    (void)state;
    static const struct {
        struct event e;
        enum notify_kind kind;
    } rows[] = {
        {{.node = 3, .status = EVENT_WARN, .step = "job.health", .text = "unhealthy: Xid 79"}, NOTIFY_UNHEALTHY},
        {{.node = 3, .status = EVENT_WARN, .step = "job.health", .text = "preempted: in 120 s"}, NOTIFY_PREEMPTED},
        {{.node = 3, .status = EVENT_WARN, .step = "job.health", .text = "is hot"}, NOTIFY_NONE},
        {{.node = 3, .status = EVENT_INFO, .step = "job.health", .text = "unhealthy: Xid 79"}, NOTIFY_NONE},
        {{.node = 1, .status = EVENT_WARN, .step = "job", .text = "its machine is gone"}, NOTIFY_PREEMPTED},
        {{.node = 1, .status = EVENT_WARN, .step = "job", .text = "its node has not answered"}, NOTIFY_NONE},
        {{.node = 1, .status = EVENT_WARN, .step = "watch", .text = "i-1 is stopping: spot"}, NOTIFY_PREEMPTED},
        {{.node = -1, .status = EVENT_FAIL, .step = "", .text = "x", .code = GP_EJOB}, NOTIFY_JOB},
        {{.node = -1, .status = EVENT_FAIL, .step = "", .text = "x", .code = GP_EBILLED}, NOTIFY_LEAKED},
        {{.node = -1, .status = EVENT_FAIL, .step = "", .text = "x", .code = GP_EREACH}, NOTIFY_FAILED},
        {{.node = -1, .status = EVENT_FAIL, .text = "x"}, NOTIFY_FAILED},
        {{.node = 1, .status = EVENT_FAIL, .step = "", .text = "x"}, NOTIFY_NONE}, /* the stack's failure names it */
        {{.node = -1, .status = EVENT_WARN, .step = "", .text = "x"}, NOTIFY_NONE},
        {{.node = -1, .status = EVENT_DONE, .step = "", .text = "x", .phase = NODE_GONE}, NOTIFY_GONE},
        {{.node = -1, .status = EVENT_DONE, .step = "", .text = "x", .phase = NODE_READY}, NOTIFY_NONE},
        {{.node = 1, .status = EVENT_DONE, .step = "", .text = "x", .phase = NODE_GONE}, NOTIFY_NONE},
        {{.node = -1, .status = EVENT_WARN, .step = "notify", .text = "x"}, NOTIFY_NONE}, /* no circles */
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++)
        if (notify_kind_of(&rows[i].e) != rows[i].kind) fail_msg("row %zu: %s", i, rows[i].e.text);
}

static void deadlines(void **state) {
    (void)state;
    static const struct {
        int64_t ttl_s, life_s, left_s;
        bool near;
    } rows[] = {
        {4 * 3600, 4 * 3600, 1441, false},
        {4 * 3600, 4 * 3600, 1440, true}, /* a tenth */
        {3600, 3600, 901, false},
        {3600, 3600, 900, true}, /* 15 minutes */
        {600, 600, 301, false},
        {600, 600, 300, true}, /* half of its life */
        {3600, 3600, 0, false},
        {3600, 3600, -5, false},     /* it has passed */
        {3600, 8 * 3600, 900, true}, /* it was moved */
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        int64_t created_s = 1000000, expires_s = created_s + rows[i].life_s;
        bool near = notify_deadline_near(rows[i].ttl_s, created_s, expires_s, expires_s - rows[i].left_s);
        if (near != rows[i].near) fail_msg("row %zu", i);
    }
    assert_false(notify_deadline_near(3600, 1000, 0, 2000));
}

static void money(void **state) {
    (void)state;
    assert_false(notify_spent_most(79.9, 100 * 1000000));
    assert_true(notify_spent_most(80.0, 100 * 1000000));
    assert_false(notify_spent_most(80.0, 0));
    assert_false(notify_spent_most(-1, 100));
}

/* The value is that of Python's hmac over b"1700000000.{}". */
static void signature(void **state) {
    (void)state;
    GP_AUTO_SECRET struct secret key = {0};
    char text[96];
    secret_set(&key, "Jefe", 4);
    notify_signature(&key, 1700000000, "{}", 2, text);
    assert_string_equal(text, "t=1700000000,v1=d3793e2b4103edfbd98cc19591832f5fad701d413db9fcae0ae7dab8184ed207");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds), cmocka_unit_test(deadlines), cmocka_unit_test(money),
                                       cmocka_unit_test(signature)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
