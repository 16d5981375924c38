/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's lines: what decodes, what is refused, and that silence never becomes a pass. */
#include "base/gp_base.h"

#include "validate/lines.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static int decode(const char *line, struct agent_line *l, struct gp_error *err) {
    *err = (struct gp_error){0};
    return agent_line_decode(line, strlen(line), l, err);
}

static void test_each_type(void **state) {
    (void)state;
    struct agent_line l;
    struct gp_error err;
    assert_int_equal(decode("{\"v\":1,\"type\":\"hello\",\"pid\":7,\"new\":[]}", &l, &err), 0);
    assert_int_equal(l.type, AGENT_HELLO);
    assert_int_equal(l.pid, 7);
    assert_int_equal(decode("{\"type\":\"start\",\"check\":\"host.disk\"}", &l, &err), 0);
    assert_string_equal(l.check, "host.disk");
    assert_int_equal(decode("{\"type\":\"listen\",\"addr\":\"10.0.0.1:4000\"}", &l, &err), 0);
    assert_string_equal(l.addr, "10.0.0.1:4000");
    assert_int_equal(decode("{\"type\":\"started\",\"pid\":99}", &l, &err), 0);
    assert_int_equal(l.pid, 99);
    assert_int_equal(decode("{\"type\":\"at\",\"offset\":4096,\"alive\":true}", &l, &err), 0);
    assert_true(l.alive && l.offset == 4096);
    assert_int_equal(decode("{\"type\":\"end\",\"verdict\":\"degraded\"}", &l, &err), 0);
    assert_int_equal(l.verdict, VERDICT_DEGRADED);
    assert_int_equal(decode("{\"type\":\"weather\"}", &l, &err), 0);
    assert_int_equal(l.type, AGENT_OTHER);
}

static void test_result(void **state) {
    (void)state;
    struct agent_line l;
    struct gp_error err;
    assert_int_equal(decode("{\"type\":\"result\",\"check\":\"host.disk\",\"verdict\":\"pass\",\"code\":\"\","
                            "\"message\":\"fine\",\"took_ms\":12,\"metrics\":[{\"name\":\"free\",\"value\":3.5,"
                            "\"unit\":\"GiB\"}],\"data\":{\"x\":1}}",
                            &l, &err),
                     0);
    assert_int_equal(l.result.verdict, VERDICT_PASS);
    const struct metric *m = check_metric(&l.result, "free");
    assert_non_null(m);
    assert_true(m->value > 3.4 && m->value < 3.6);
    agent_line_clear(&l);
}

static void test_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "null",
                                      "{\"type\":\"at\",\"offset\":9223372036854775807,\"alive\":true}",
                                      "{\"v\":1,\"type\":\"hello\",\"pid\":9223372036854775807}",
                                      "{\"v\":1,\"type\":\"hello\",\"size\":-1}",
                                      "{\"type\":\"start\",\"check\":\"x\",\"rank\":9223372036854775807}",
                                      "[]",
                                      "7",
                                      "{}",
                                      "{\"type\":3}",
                                      "{\"type\":\"start\"}",
                                      "{\"type\":\"hello\"}",
                                      "{\"v\":2,\"type\":\"hello\"}",
                                      "{\"v\":\"1\",\"type\":\"hello\"}",
                                      "{\"type\":\"end\",\"verdict\":\"splendid\"}",
                                      "{\"type\":\"end\"}",
                                      "{\"type\":\"at\",\"offset\":-1,\"alive\":true}",
                                      "{\"type\":\"at\",\"offset\":1}",
                                      "{\"type\":\"result\",\"verdict\":\"pass\"}",
                                      "{\"type\":\"result\",\"check\":\"host.disk\"}",
                                      "{\"type\":\"result\",\"check\":\"host.disk\",\"verdict\":\"ok\"}",
                                      "{\"type\":\"start\",\"check\":\"host.disk\"} trailing",
                                      "{\"type\":\"start\",\"check\":\"ho",
                                      "NCCL version 2.28.9",
                                      "{\"type\":\"start\",\"check\":\"a\",\"check\":\"b\"}"};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        struct agent_line l;
        struct gp_error err;
        if (decode(bad[i], &l, &err) >= 0) fail_msg("accepted: %s", bad[i]);
        assert_int_equal(err.code, GP_EPROTO);
        agent_line_clear(&l);
    }
    GP_AUTO_FREE char *big = xmalloc(AGENT_LINE_MAX + 2);
    memset(big, ' ', AGENT_LINE_MAX + 1);
    struct agent_line l;
    struct gp_error err = {0};
    assert_int_equal(agent_line_decode(big, AGENT_LINE_MAX + 1, &l, &err), -GP_EPROTO);
}

/* --- a stream --- */

struct fixture {
    struct agent_stream s;
    int starts, results;
};

static void told(void *ctx, const struct check_info *info, struct check_result *r) {
    struct fixture *f = ctx;
    assert_non_null(info);
    f->starts += r == NULL;
    f->results += r != NULL;
}

static void open_stream(struct fixture *f) {
    const struct check_info *checks[] = {check_find("host.cores"), check_find("host.memory"), check_find("host.disk")};
    *f = (struct fixture){0};
    agent_stream_init(&f->s, checks, 3);
    f->s.told = told;
    f->s.ctx = f;
}

static bool feed(struct fixture *f, const char *line) { return agent_stream_line(&f->s, false, line, strlen(line)); }

#define HELLO "{\"v\":1,\"type\":\"hello\"}"
#define END "{\"type\":\"end\",\"verdict\":\"pass\"}"
#define START(id) "{\"type\":\"start\",\"check\":\"" id "\"}"
#define PASS(id) "{\"type\":\"result\",\"check\":\"" id "\",\"verdict\":\"pass\"}"

static void test_silence_is_never_a_pass(void **state) {
    (void)state;
    /* The stream is cut after every number of lines: what has no result must not be one. */
    static const char *const lines[] = {"{\"v\":1,\"type\":\"hello\"}",
                                        START("host.cores"),
                                        PASS("host.cores"),
                                        START("host.memory"),
                                        PASS("host.memory"),
                                        START("host.disk"),
                                        PASS("host.disk"),
                                        "{\"type\":\"end\",\"verdict\":\"pass\"}"};
    for (size_t cut = 0; cut <= GP_ARRAY_LEN(lines); cut++) {
        struct fixture f;
        open_stream(&f);
        for (size_t i = 0; i < cut; i++) assert_true(feed(&f, lines[i]));
        agent_stream_finish(&f.s, "lost the connection to the node");
        for (size_t k = 0; k < 3; k++) {
            const struct check_result *r = &f.s.checks.items[k].result;
            /* without the agent's own end what passed before is not believed either */
            enum verdict want = cut == GP_ARRAY_LEN(lines) ? VERDICT_PASS
                                : cut >= 2 + 2 * k         ? VERDICT_ERROR
                                                           : VERDICT_SKIPPED;
            assert_int_equal(r->verdict, want);
            if (want != VERDICT_PASS) assert_non_null(strstr(r->message, "lost the connection to the node"));
        }
        assert_true(f.results >= 3); /* one that is taken back is told again */
        agent_stream_clear(&f.s);
    }
}

/* Whatever the agent says, one wrong line anywhere and nothing is a pass. */
static void test_one_wrong_line_spoils_it(void **state) {
    (void)state;
    static const char *const lines[] = {HELLO,
                                        START("host.cores"),
                                        PASS("host.cores"),
                                        START("host.memory"),
                                        PASS("host.memory"),
                                        START("host.disk"),
                                        PASS("host.disk"),
                                        END};
    static const char *const wrong[] = {
        HELLO,
        "garbage",
        "{\"type\":\"result\",\"check\":\"host.co",
        START("host.cores"),
        PASS("host.disk"),
        PASS("train.ddp"),
        START("train.ddp"),
        END,
        "{\"type\":\"end\",\"verdict\":\"fail\"}",
        "{\"type\":\"end\",\"verdict\":\"error\"}",
        "{\"type\":\"end\",\"verdict\":\"pass\",\"reason\":\"the rank's worker was killed by SIGKILL\"}",
        "{\"type\":\"result\",\"check\":\"host.cores\",\"verdict\":\"degraded\"}"};
    for (size_t at = 0; at <= GP_ARRAY_LEN(lines); at++)
        for (size_t w = 0; w < GP_ARRAY_LEN(wrong); w++) {
            struct fixture f;
            open_stream(&f);
            for (size_t i = 0; i < at; i++) assert_true(feed(&f, lines[i]));
            feed(&f, wrong[w]);
            for (size_t i = at; i < GP_ARRAY_LEN(lines); i++) feed(&f, lines[i]);
            agent_stream_finish(&f.s, "it said strange things");
            for (size_t k = 0; k < 3; k++)
                if (f.s.checks.items[k].result.verdict <= VERDICT_DEGRADED)
                    fail_msg("line %zu, wrong %zu: %s passed", at, w, f.s.checks.items[k].info->id);
            agent_stream_clear(&f.s);
        }
}

/* The end speaks for what came before it. */
static void test_the_end_may_take_back(void **state) {
    (void)state;
    static const struct {
        const char *second, *end;
        enum verdict first;
    } cases[] = {
        {PASS("host.memory"), END, VERDICT_PASS},
        {PASS("host.memory"), "{\"type\":\"end\",\"verdict\":\"degraded\"}", VERDICT_PASS},
        {PASS("host.memory"), "{\"type\":\"end\",\"verdict\":\"fail\"}", VERDICT_ERROR},
        {PASS("host.memory"), "{\"type\":\"end\",\"verdict\":\"pass\",\"reason\":\"stopped\"}", VERDICT_ERROR},
        {"{\"type\":\"result\",\"check\":\"host.memory\",\"verdict\":\"fail\"}",
         "{\"type\":\"end\",\"verdict\":\"fail\"}", VERDICT_PASS},
        {"{\"type\":\"result\",\"check\":\"host.memory\",\"verdict\":\"fail\"}",
         "{\"type\":\"end\",\"verdict\":\"fail\",\"reason\":\"driver hang\"}", VERDICT_ERROR},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct fixture f;
        open_stream(&f);
        assert_true(feed(&f, HELLO) && feed(&f, START("host.cores")) && feed(&f, PASS("host.cores")));
        assert_true(feed(&f, START("host.memory")) && feed(&f, cases[i].second));
        assert_true(feed(&f, cases[i].end));
        if (f.s.checks.items[0].result.verdict != cases[i].first)
            fail_msg("case %zu: %s", i, verdict_name(f.s.checks.items[0].result.verdict));
        agent_stream_clear(&f.s);
    }
}

/* Whose hello it is: another rank, another size or another boot is another's result. */
static void test_the_hello_must_be_the_right_one(void **state) {
    (void)state;
    static const struct {
        const char *hello, *says;
    } cases[] = {
        {"{\"v\":1,\"type\":\"hello\",\"rank\":1,\"size\":4,\"boot_id\":\"b\"}", NULL},
        {"{\"v\":1,\"type\":\"hello\",\"rank\":1,\"size\":4}", NULL}, /* an unreadable boot id is no other */
        {"{\"v\":1,\"type\":\"hello\",\"rank\":1,\"size\":4,\"agent\":\"" GP_VERSION "\"}", NULL},
        {"{\"v\":1,\"type\":\"hello\",\"rank\":1,\"size\":4,\"agent\":\"0.0.1\"}", "is of gpuprov 0.0.1"},
        {"{\"v\":1,\"type\":\"hello\",\"rank\":2,\"size\":4,\"boot_id\":\"b\"}", "received rank 2 of 4"},
        {"{\"v\":1,\"type\":\"hello\",\"rank\":1,\"size\":3,\"boot_id\":\"b\"}", "expected rank 1 of 4"},
        {"{\"v\":1,\"type\":\"hello\",\"boot_id\":\"b\"}", "expected rank 1 of 4"},
        {"{\"v\":1,\"type\":\"hello\",\"rank\":1,\"size\":4,\"boot_id\":\"c\"}", "rebooted"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct fixture f;
        open_stream(&f);
        f.s.want_rank = 1;
        f.s.want_size = 4;
        str_put(f.s.want_boot_id, sizeof f.s.want_boot_id, "b");
        assert_int_equal(feed(&f, cases[i].hello), cases[i].says == NULL);
        if (cases[i].says) assert_non_null(strstr(f.s.bad.msg, cases[i].says));
        agent_stream_clear(&f.s);
    }
}

static void bad_stream(const char *const *lines, const char *says) {
    struct fixture f;
    open_stream(&f);
    bool ok = true;
    for (size_t i = 0; lines[i]; i++) ok = feed(&f, lines[i]);
    assert_false(ok);
    assert_false(feed(&f, PASS("host.disk"))); /* nothing is read after it */
    assert_non_null(strstr(f.s.bad.msg, says));
    agent_stream_finish(&f.s, f.s.bad.msg);
    assert_int_not_equal(f.s.checks.items[2].result.verdict, VERDICT_PASS);
    agent_stream_clear(&f.s);
}

static void test_trouble_stops_the_stream(void **state) {
    (void)state;
    bad_stream((const char *const[]){HELLO, START("host.cores"), "Segmentation fault", NULL}, "JSON");
    bad_stream((const char *const[]){HELLO, START("gpu.presence"), NULL}, "not requested");
    bad_stream((const char *const[]){HELLO, PASS("net.pair"), NULL}, "not requested");
    bad_stream((const char *const[]){HELLO, PASS("host.cores"), NULL}, "had not begun");
    bad_stream((const char *const[]){HELLO, START("host.cores"), START("host.cores"), NULL}, "twice");
    bad_stream((const char *const[]){HELLO, START("host.cores"), PASS("host.cores"), PASS("host.cores"), NULL},
               "two results");
    bad_stream((const char *const[]){HELLO, END, PASS("host.disk"), NULL}, "after its end");
    bad_stream((const char *const[]){HELLO, HELLO, NULL}, "two hello lines");
    bad_stream((const char *const[]){START("host.cores"), NULL}, "did not send hello");
    bad_stream((const char *const[]){END, NULL}, "did not send hello");
}

/* Not even the first one is believed then. */
static void test_two_results_are_none(void **state) {
    (void)state;
    struct fixture f;
    open_stream(&f);
    assert_true(feed(&f, HELLO));
    assert_true(feed(&f, START("host.cores")));
    assert_true(feed(&f, PASS("host.cores")));
    assert_false(feed(&f, "{\"type\":\"result\",\"check\":\"host.cores\",\"verdict\":\"fail\"}"));
    assert_int_equal(f.s.checks.items[0].result.verdict, VERDICT_ERROR);
    agent_stream_clear(&f.s);
}

static void test_stderr_is_only_remembered(void **state) {
    (void)state;
    struct fixture f;
    open_stream(&f);
    assert_true(agent_stream_line(&f.s, true, "boom", 4));
    assert_string_equal(f.s.last_err, "boom");
    assert_false(agent_stream_began(&f.s));
    assert_true(feed(&f, HELLO));
    assert_true(feed(&f, START("host.cores")));
    assert_true(agent_stream_began(&f.s));
    assert_false(agent_stream_complete(&f.s));
    agent_stream_clear(&f.s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_type),
        cmocka_unit_test(test_result),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_silence_is_never_a_pass),
        cmocka_unit_test(test_one_wrong_line_spoils_it),
        cmocka_unit_test(test_the_end_may_take_back),
        cmocka_unit_test(test_the_hello_must_be_the_right_one),
        cmocka_unit_test(test_trouble_stops_the_stream),
        cmocka_unit_test(test_two_results_are_none),
        cmocka_unit_test(test_stderr_is_only_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
