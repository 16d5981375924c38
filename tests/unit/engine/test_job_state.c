/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent prints about a job: states and logs, right ones and hostile ones. */
#include "base/gp_base.h"

#include "engine/job/job_state.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define HEALTH "@{\"health\": {\"n\": 1, \"watch\": \"unhealthy\", "

#define ID "0123456789abcdef"
#define KEY "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static int parse(const char *line, struct job_state *ret, struct gp_error *err) {
    *ret = (struct job_state){0};
    gp_error_clear(err);
    return job_state_parse(line, strlen(line), ret, err);
}

static void states(void **state) {
    (void)state;
    struct job_state s;
    struct gp_error err = {0};
    assert_int_equal(parse("{\"state\": \"none\"}", &s, &err), 0);
    assert_int_equal(s.phase, JOB_NONE);
    assert_int_equal(parse("{\"job\": \"busy\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"state\": \"running\", "
                           "\"rank\": 1, \"ranks\": 2, \"exit\": null, \"signal\": null, \"log_bytes\": 7}",
                           &s, &err),
                     0);
    assert_true(s.busy);
    assert_int_equal(s.phase, JOB_RUNNING);
    assert_int_equal(s.rank, 1);
    assert_int_equal(s.exit, -1);
    assert_int_equal(s.log_bytes, 7);
    assert_false(job_state_ok(&s));
    assert_int_equal(parse("{\"id\": \"" ID "\", \"key\": \"" KEY "\", \"state\": \"ended\", \"reason\": \"exited\", "
                           "\"exit\": 0, \"text\": \"a\\u001b[2Jb\"}",
                           &s, &err),
                     0);
    assert_true(job_state_ok(&s));
    assert_null(strchr(s.text, 033));
    assert_int_equal(s.unhealthy, 0);
    assert_false(s.preempted);
    assert_int_equal(parse("{\"id\": \"" ID "\", \"key\": \"" KEY
                           "\", \"state\": \"ended\", \"reason\": \"preempted\", "
                           "\"unhealthy\": 2, \"preempted\": true}",
                           &s, &err),
                     0);
    assert_int_equal(s.unhealthy, 2);
    assert_true(s.preempted);
    assert_false(job_state_ok(&s));
}

static void ends(void **state) {
    (void)state;
    char why[300];
    struct job_state s = {.phase = JOB_ENDED, .exit = 3, .reason = "exited", .in = "setup"};
    job_state_why(&s, why, sizeof why);
    assert_string_equal(why, "its setup exited with code 3");
    s = (struct job_state){.phase = JOB_ENDED, .exit = -1, .reason = "signaled", .signal = "SIGSEGV"};
    job_state_why(&s, why, sizeof why);
    assert_string_equal(why, "was killed by SIGSEGV");
    s = (struct job_state){.phase = JOB_ENDED, .exit = -1, .reason = "stopped", .text = "rank 1 failed"};
    job_state_why(&s, why, sizeof why);
    assert_string_equal(why, "stopped: rank 1 failed");
    assert_false(job_state_ok(&s));
    s = (struct job_state){.phase = JOB_ENDED, .exit = -1, .reason = "unhealthy", .text = "GPU 3: xid_79"};
    job_state_why(&s, why, sizeof why);
    assert_string_equal(why, "was ended, because its node has a fault: GPU 3: xid_79");
    s = (struct job_state){.phase = JOB_ENDED, .exit = -1, .reason = "preempted"};
    job_state_why(&s, why, sizeof why);
    assert_string_equal(why, "was ended, because the cloud takes its node back");
    s = (struct job_state){.phase = JOB_ENDED, .exit = -1, .reason = "stopped", .text = "rank 1 failed"};
    /* stopped, although the command exited with 0 on SIGTERM */
    s.exit = 0;
    assert_false(job_state_ok(&s));
}

static void hostile_states(void **state) {
    (void)state;
    static const char *const lines[] = {
        "",
        "[]",
        "{}",
        "{\"state\": \"done\"}",
        "{\"state\": \"running\"}",
        "{\"state\": \"running\", \"id\": \"../../etc\", \"key\": \"" KEY "\"}",
        "{\"state\": \"running\", \"id\": \"" ID "\", \"key\": \"x\"}",
        "{\"state\": \"running\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"rank\": -1}",
        "{\"state\": \"running\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"rank\": \"1\"}",
        "{\"state\": \"running\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"log_bytes\": -5}",
        "{\"state\": \"running\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"log_bytes\": 9007199254740993}",
        "{\"state\": \"running\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"started_s\": 253402300800}",
        "{\"state\": \"running\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"ended_s\": 9223372036854775807}",
        "{\"state\": \"ended\", \"id\": \"" ID "\", \"key\": \"" KEY "\"}",
        "{\"state\": \"ended\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"reason\": \"exited\", \"exit\": 256}",
        "{\"state\": \"ended\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"reason\": \"exited\", \"exit\": 0.5}",
        "{\"state\": \"ended\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"reason\": \"a b\"}",
        "{\"state\": \"ended\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"reason\": \"exited\", \"signal\": \"\\n\"}",
        "{\"state\": \"none\"} {\"state\": \"none\"}",
        "{\"state\": \"running\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"unhealthy\": -1}",
        "{\"state\": \"running\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"unhealthy\": true}",
        "{\"state\": \"running\", \"id\": \"" ID "\", \"key\": \"" KEY "\", \"preempted\": \"no\"}",
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(lines); i++) {
        struct job_state s;
        struct gp_error err = {0};
        int r = parse(lines[i], &s, &err);
        if (r != -GP_EPROTO) fail_msg("accepted: %s", lines[i]);
        assert_int_equal(s.id[0], '\0');
    }
}

/* --- the log --- */

static struct str got;
static void take(void *ctx, const char *line, size_t n) {
    (void)ctx;
    str_add_mem(&got, line, n);
    str_addc(&got, '|');
}
static void take_note(void *ctx, const char *text) {
    (void)ctx;
    str_addf(&got, "(%.5s)", text);
}
static void take_found(void *ctx, const struct job_health *h) {
    (void)ctx;
    char text[600];
    job_health_text(h, text, sizeof text);
    str_addf(&got, "%s %d: %s|", job_health_name(h->kind), h->n, text);
}
static const struct job_sink sink = {.text = take, .note = take_note, .health = take_found};

static int feed(struct job_stream *s, const char *line, struct gp_error *err) {
    gp_error_clear(err);
    return job_stream_line(s, &sink, line, strlen(line), err);
}

static void log_lines(void **state) {
    (void)state;
    struct job_stream s = {0};
    struct gp_error err = {0};
    str_reset(&got);
    assert_int_equal(feed(&s, "=one", &err), 0);
    assert_int_equal(feed(&s, "=", &err), 0);
    assert_int_equal(feed(&s, "+tw", &err), 0);
    assert_int_equal(feed(&s, "=o", &err), 0);
    assert_int_equal(s.offset, strlen("one\n\ntwo\n"));
    assert_int_equal(feed(&s, "@{\"at\": 9}", &err), 0);
    assert_int_equal(feed(&s, "@{\"alive\": true}", &err), 0);
    assert_int_equal(feed(&s, "+end", &err), 0);
    assert_int_equal(s.offset, 12);
    assert_int_equal(feed(&s, "@{\"dropped\": 100}", &err), 0);
    assert_int_equal(feed(&s, "@{\"at\": 112}", &err), 0);
    assert_int_equal(s.offset, 112);
    assert_int_equal(s.dropped, 100);
    assert_int_equal(feed(&s, "+last", &err), 0);
    assert_int_equal(feed(&s,
                          "@{\"end\": {\"id\": \"" ID "\", \"key\": \"" KEY "\", \"state\": \"ended\", \"reason\": "
                          "\"exited\", \"exit\": 1}}",
                          &err),
                     0);
    assert_true(s.ended);
    job_stream_flush(&s, &sink);
    assert_string_equal(got.s, "one||two|end|(100 b)last|");
    job_stream_clear(&s);
    str_clear(&got);
}

/* Each finding once, although a follower that reconnects gets all of them again. */
static void health(void **state) {
    (void)state;
    static const char *const lines[] = {
        "@{\"health\": {\"n\": 1, \"watch\": \"blind\", \"gpu\": 2, \"reason\": \"no\\u001b[2J driver\"}}",
        "@{\"health\": {\"n\": 2, \"watch\": \"unhealthy\", \"gpu\": 3, \"severity\": \"fail\", \"code\": "
        "\"xid_79\", \"text\": \"fell off the bus\", \"advice\": \"replace the node\"}}",
        "@{\"health\": {\"n\": 4, \"watch\": \"preempted\", \"when\": \"2026-11-26T18:00:00Z\"}}",
        "@{\"health\": {\"n\": 5, \"watch\": \"preempted\"}}"};
    struct job_stream s = {0};
    struct gp_error err = {0};
    str_reset(&got);
    for (int again = 0; again < 2; again++)
        for (size_t i = 0; i < GP_ARRAY_LEN(lines); i++) assert_int_equal(feed(&s, lines[i], &err), 0);
    assert_int_equal(s.health_n, 5);
    assert_string_equal(got.s,
                        "blind 1: GPU 2: not watched for faults: no?[2J driver|unhealthy 2: GPU 3: fell off the bus "
                        "(xid_79, fail): replace the node|preempted 4: the cloud takes the node back at "
                        "2026-11-26T18:00:00Z|preempted 5: the cloud takes the node back|");
    job_stream_clear(&s);
    str_clear(&got);
}

/* A line without an end needs bounded memory, and no byte of it is lost. */
static void endless_line(void **state) {
    (void)state;
    struct job_stream s = {0};
    struct gp_error err = {0};
    char piece[20002];
    memset(piece, 'x', sizeof piece);
    piece[0] = '+';
    piece[sizeof piece - 1] = '\0';
    str_reset(&got);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(feed(&s, piece, &err), 0);
        assert_true(s.part.len <= JOB_LINE_MAX);
    }
    job_stream_flush(&s, &sink);
    size_t n = 0;
    for (size_t i = 0; i < got.len; i++) n += got.s[i] == 'x';
    assert_int_equal(n, 50 * 20000);
    assert_int_equal(s.offset, 50 * 20000);
    job_stream_clear(&s);
    str_clear(&got);
}

static void hostile_log(void **state) {
    (void)state;
    static const char *const lines[] = {"x",
                                        "",
                                        "@",
                                        "@[]",
                                        "@{\"at\": -1}",
                                        "@{\"at\": \"1\"}",
                                        "@{\"at\": 9223372036854775800}",
                                        "@{\"at\": 9007199254740993}",
                                        "@{\"dropped\": 4611686018427387903}",
                                        "@{\"dropped\": -1}",
                                        "@{\"attempt\": -2}",
                                        "@{\"end\": {}}",
                                        "@{\"end\": {\"state\": \"none\"}}",
                                        "@{\"health\": 1}",
                                        "@{\"health\": {}}",
                                        "@{\"health\": {\"n\": 0, \"watch\": \"preempted\"}}",
                                        "@{\"health\": {\"n\": 1025, \"watch\": \"preempted\"}}",
                                        "@{\"health\": {\"n\": 1, \"watch\": \"watching\"}}",
                                        "@{\"health\": {\"n\": 1, \"watch\": \"blind\"}}",
                                        "@{\"health\": {\"n\": 1, \"watch\": \"blind\", \"reason\": 1}}",
                                        "@{\"health\": {\"n\": 1, \"watch\": \"preempted\", \"when\": \"soon\"}}",
                                        "@{\"health\": {\"n\": 1, \"watch\": \"preempted\", \"gpu\": -2}}",
                                        (HEALTH "\"severity\": \"bad\", \"code\": \"x\", \"text\": \"t\"}}"),
                                        (HEALTH "\"severity\": \"fail\", \"code\": \"a b\", \"text\": \"t\"}}"),
                                        (HEALTH "\"severity\": \"fail\", \"text\": \"t\"}}")};
    for (size_t i = 0; i < GP_ARRAY_LEN(lines); i++) {
        struct job_stream s = {.offset = 5};
        struct gp_error err = {0};
        if (feed(&s, lines[i], &err) != -GP_EPROTO) fail_msg("accepted: %s", lines[i]);
        assert_int_equal(s.offset, 5);
        assert_int_equal(s.health_n, 0);
        assert_false(s.ended);
        job_stream_clear(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(states),         cmocka_unit_test(ends),
                                       cmocka_unit_test(hostile_states), cmocka_unit_test(log_lines),
                                       cmocka_unit_test(endless_line),   cmocka_unit_test(hostile_log),
                                       cmocka_unit_test(health)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
