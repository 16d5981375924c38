/* SPDX-License-Identifier: Apache-2.0 */
/* How long a transfer waits for a node: slow ones that are honest, and nodes that only keep it waiting. */
#include "base/gp_base.h"

#include "engine/transfer/pace.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* A node that does `each` in every step of step_ms, for hours. Returns how it ends, and *ret_s after how long. */
static enum pace_fate wait_for(int64_t step_ms, struct tree_work each, int64_t hours, int64_t *ret_s) {
    struct pace p;
    struct tree_work done = {0};
    enum pace_fate fate = PACE_GOES_ON;
    pace_init(&p, false);
    pace_begin(&p);
    int64_t ms = 0;
    while (fate == PACE_GOES_ON && ms < hours * 3600000) {
        ms += step_ms;
        done.bytes += each.bytes;
        done.entries += each.entries;
        done.hashed += each.hashed;
        fate = pace_take(&p, step_ms, &done);
    }
    *ret_s = ms / 1000;
    return fate;
}

static void slow_but_honest(void **state) {
    (void)state;
    int64_t s = 0;
    /* 256 kbit/s, a day */
    assert_int_equal(wait_for(1000, (struct tree_work){.bytes = 32000}, 24, &s), PACE_GOES_ON);
    /* a modem, in the first hour; and a packet in a minute and a half */
    assert_int_equal(wait_for(1000, (struct tree_work){.bytes = 1200}, 1, &s), PACE_GOES_ON);
    assert_int_equal(wait_for(90000, (struct tree_work){.bytes = 65536}, 1, &s), PACE_GOES_ON);
    /* the node lists, or compares, for hours */
    assert_int_equal(wait_for(10000, (struct tree_work){.entries = 10000}, 12, &s), PACE_GOES_ON);
    assert_int_equal(wait_for(10000, (struct tree_work){.hashed = 200000000}, 12, &s), PACE_GOES_ON);
}

static void nothing_moves(void **state) {
    (void)state;
    int64_t s = 0;
    assert_int_equal(wait_for(1000, (struct tree_work){0}, 12, &s), PACE_STALLED);
    assert_int_equal(s, PACE_STALL_MS / 1000);
    assert_int_equal(wait_for(1000, (struct tree_work){.bytes = 1}, 12, &s), PACE_STALLED);
    assert_in_range(s, 120, 125);
    assert_int_equal(wait_for(10000, (struct tree_work){.entries = 1}, 12, &s), PACE_STALLED);
    assert_in_range(s, 120, 160);
}

/* Just enough to go on, but never more. */
static void too_little_in_all(void **state) {
    (void)state;
    int64_t s = 0;
    assert_int_equal(wait_for(1000, (struct tree_work){.bytes = 600}, 48, &s), PACE_OVER);
    assert_in_range(s, 3600, 3700);
    assert_int_equal(wait_for(1000, (struct tree_work){.bytes = 16000}, 48, &s), PACE_OVER);
    assert_in_range(s, 7000, 7400);
    assert_int_equal(wait_for(1000, (struct tree_work){.entries = 1}, 48, &s), PACE_OVER);
    assert_in_range(s, 3600, 3700);
}

static void attempts_share_the_end(void **state) {
    (void)state;
    struct pace p;
    const struct tree_work some = {.bytes = 60000}, none = {0};
    enum pace_fate fate = PACE_GOES_ON;
    int n = 0;
    pace_init(&p, false);
    for (; n < 1000 && fate != PACE_OVER; n++) { /* each begins anew, and brings the same */
        pace_begin(&p);
        (void)pace_take(&p, 50000, &some);
        fate = pace_take(&p, 50000, &some);
    }
    assert_in_range(n, 36, 38);
    pace_begin(&p);
    assert_int_equal(pace_take(&p, 0, &none), PACE_OVER);
}

static void an_attempt_counts_by_what_it_did(void **state) {
    (void)state;
    struct pace p;
    pace_init(&p, false);
    pace_begin(&p);
    (void)pace_take(&p, 1000, &(struct tree_work){.bytes = PACE_STALL_BYTES - 1});
    assert_false(pace_progressed(&p));
    (void)pace_take(&p, 1000, &(struct tree_work){.bytes = PACE_STALL_BYTES});
    assert_true(pace_progressed(&p));
    pace_begin(&p);
    (void)pace_take(&p, 3600000, &(struct tree_work){.bytes = 10}); /* long, and nothing */
    assert_false(pace_progressed(&p));
    pace_begin(&p);
    (void)pace_take(&p, 1000, &(struct tree_work){.entries = 60});
    assert_true(pace_progressed(&p));
}

static void numbers_out_of_range(void **state) {
    (void)state;
    struct pace p;
    const struct tree_work much = {.bytes = UINT64_MAX, .entries = UINT64_MAX, .hashed = UINT64_MAX};
    pace_init(&p, false);
    pace_begin(&p);
    for (int i = 0; i < 5; i++) {
        (void)pace_take(&p, 1, &much);
        (void)pace_take(&p, -1, &(struct tree_work){0});
    }
    pace_init(&p, true);
    pace_begin(&p);
    for (uint64_t i = 0; i < 100000; i++) { /* its caller has a deadline */
        const struct tree_work so_far = {.bytes = 60000 * i};
        assert_int_equal(pace_take(&p, 100000, &so_far), PACE_GOES_ON);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(slow_but_honest),
                                       cmocka_unit_test(nothing_moves),
                                       cmocka_unit_test(too_little_in_all),
                                       cmocka_unit_test(attempts_share_the_end),
                                       cmocka_unit_test(an_attempt_counts_by_what_it_did),
                                       cmocka_unit_test(numbers_out_of_range)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
