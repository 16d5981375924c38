/* SPDX-License-Identifier: Apache-2.0 */
/* Durations, times, deadlines, and that every wait hears cancellation. */
#include "base/gp_base.h"

#include "base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static void durations_parse(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"250ms", 250},    {"90s", 90000},     {"5m", 300000}, {"4h", 14400000},
                {"2d", 172800000}, {"1h30m", 5400000}, {"0s", 0},      {"9999999999d", 9999999999 * 86400000}};
    for (size_t i = 0; i < GP_ARRAY_LEN(good); i++) {
        int64_t ms = -1;
        assert_true(duration_parse(good[i].text, &ms));
        assert_true(ms == good[i].ms);
    }
    static const char *const bad[] = {"",
                                      "5",
                                      "m",
                                      "5 m",
                                      "5M",
                                      "5min",
                                      "1.5h",
                                      "-5m",
                                      "5m ",
                                      "1h30",
                                      "99999999999s",
                                      "5mm",
                                      ("9999999999d9999999999d9999999999d9999999999d9999999999d9999999999d"
                                       "9999999999d9999999999d9999999999d9999999999d9999999999d")};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        int64_t ms = -1;
        assert_false(duration_parse(bad[i], &ms));
        assert_true(ms == -1);
    }
}

static void durations_format(void **state) {
    (void)state;
    static const struct {
        int64_t ms;
        const char *text;
    } rows[] = {{0, "0.0s"},      {-5, "0.0s"},      {4250, "4.2s"},      {9999, "9.9s"},     {10000, "10s"},
                {59999, "59s"},   {60000, "1m"},     {90000, "1m30s"},    {3600000, "1h"},    {5400000, "1h30m"},
                {14400000, "4h"}, {172800000, "2d"}, {176400000, "2d1h"}, {2592000000, "30d"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        char text[32];
        duration_format(text, sizeof text, rows[i].ms);
        assert_string_equal(text, rows[i].text);
    }
}

static void times(void **state) {
    (void)state;
    char text[32];
    time_format_utc(text, sizeof text, 1795238843);
    assert_string_equal(text, "2026-11-21T05:27:23Z");
    static const struct {
        const char *text;
        int64_t s;
    } good[] = {{"2026-11-21T05:27:23Z", 1795238843},
                {"2026-11-21T05:27:23.123Z", 1795238843},
                {"2026-11-21T06:27:23+01:00", 1795238843},
                {"2026-11-20T23:57:23-05:30", 1795238843},
                {"1970-01-01T00:00:00Z", 0}};
    for (size_t i = 0; i < GP_ARRAY_LEN(good); i++) {
        int64_t s = -1;
        assert_true(time_parse_utc(good[i].text, &s));
        assert_true(s == good[i].s);
    }
    static const char *const bad[] = {"",
                                      "2026-11-21",
                                      "2026-11-21T05:27:23.Z",
                                      "2026-11-21T05:27:23Zx",
                                      "2026-11-21T05:27:23+1:00",
                                      "2026-13-01T00:00:00Z"};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        int64_t s = -1;
        assert_false(time_parse_utc(bad[i], &s));
    }
}

/* Around both changes of a zone's clock: an hour that is left out, and one that comes twice. */
static void daylight_saving_time_changes_nothing(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t s;
    } around[] = {{"2026-03-08T06:59:59Z", 1772953199}, {"2026-03-08T07:00:00Z", 1772953200},
                  {"2026-03-08T02:30:00Z", 1772937000}, {"2026-11-01T05:59:59Z", 1793512799},
                  {"2026-11-01T06:00:00Z", 1793512800}, {"2026-11-01T01:30:00Z", 1793496600}};
    const char *before = getenv("TZ");
    GP_AUTO_FREE char *kept = before != NULL ? xstrdup(before) : NULL;
    setenv("TZ", "EST5EDT,M3.2.0,M11.1.0", 1);
    tzset();
    struct tm local;
    time_t summer = 1793512799, winter = 1793512800;
    assert_int_equal(localtime_r(&summer, &local)->tm_isdst, 1);
    assert_int_equal(localtime_r(&winter, &local)->tm_isdst, 0);
    for (size_t i = 0; i < GP_ARRAY_LEN(around); i++) {
        char text[32];
        int64_t s = -1;
        time_format_utc(text, sizeof text, around[i].s);
        assert_string_equal(text, around[i].text);
        assert_true(time_parse_utc(around[i].text, &s));
        assert_true(s == around[i].s);
    }
    if (kept != NULL) setenv("TZ", kept, 1);
    else unsetenv("TZ");
    tzset();
}

static void deadlines(void **state) {
    (void)state;
    assert_true(clock_deadline(GP_NEVER) == GP_NEVER);
    assert_true(clock_left_ms(GP_NEVER) == GP_NEVER);
    assert_true(clock_left_ms(clock_ms() - 1) == 0);
    int64_t left = clock_left_ms(clock_deadline(3600000));
    assert_true(left > 0 && left <= 3600000);
    int64_t last_ms = 0;
    assert_int_equal(clock_stood_ms(&last_ms, 0), 0); /* the first round */
    assert_true(last_ms > 0);
    last_ms -= 900;
    assert_int_equal(clock_stood_ms(&last_ms, 500), 0);
    last_ms -= 100000;
    int64_t stood_ms = clock_stood_ms(&last_ms, 500);
    assert_true(stood_ms >= 99500 && clock_ms() - last_ms < 60000);
}

static void waits_for_a_descriptor(void **state) {
    (void)state;
    int p[2];
    assert_int_equal(pipe(p), 0);
    struct gp_error err = {0};
    assert_int_equal(gp_wait_fd(p[0], POLLIN, clock_deadline(0), NULL, NULL, &err), -GP_ETIMEOUT);
    gp_error_clear(&err);
    assert_int_equal(write(p[1], "x", 1), 1);
    short got = 0;
    assert_int_equal(gp_wait_fd(p[0], POLLIN, GP_NEVER, NULL, &got, &err), 0);
    assert_true(got & POLLIN);
    close(p[1]);
    assert_int_equal(gp_wait_fd(p[0], POLLIN, GP_NEVER, NULL, NULL, &err), 0);
    close(p[0]);
}

static void *cancel_it(void *c) {
    gp_cancel_set(c);
    return NULL;
}

static void hears_cancellation(void **state) {
    (void)state;
    struct gp_cancel c = {.efd = -1};
    struct gp_error err = {0};
    assert_int_equal(gp_cancel_init(&c, &err), 0);
    assert_false(gp_cancelled(&c));
    assert_false(gp_cancelled(NULL));
    assert_int_equal(gp_sleep(1, &c, &err), 0);
    pthread_t t = 0;
    assert_int_equal(pthread_create(&t, NULL, cancel_it, &c), 0);
    /* would be for ever: only the other thread ends it */
    assert_int_equal(gp_wait_fd(-1, 0, GP_NEVER, &c, NULL, &err), -GP_ECANCELLED);
    assert_string_equal(err.msg, "cancelled");
    pthread_join(t, NULL);
    gp_error_clear(&err);
    assert_int_equal(gp_sleep(3600000, &c, &err), -GP_ECANCELLED); /* once cancelled, always */
    gp_cancel_set(&c);
    gp_cancel_clear(&c);
    assert_int_equal(c.efd, -1);
    gp_cancel_clear(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_parse),
        cmocka_unit_test(durations_format),
        cmocka_unit_test(times),
        cmocka_unit_test(daylight_saving_time_changes_nothing),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(waits_for_a_descriptor),
        cmocka_unit_test(hears_cancellation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
