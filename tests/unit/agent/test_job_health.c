/* SPDX-License-Identifier: Apache-2.0 */
/* Findings of a job's health watch: lines, the file that keeps them, and the time of a text that a notice starts. */
#include "base/gp_base.h"

#include "folder.h"
#include "validate/agent/job/job_health.c"
#include "validate/agent/job/job_json.c"
#include "validate/agent/job/job_preempt.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Processes are the business of tests/e2e/agent/test_agent_job_health.py. */
pid_t job_spawn(const struct job_request *q, const char *what, const char *file, const char *more, int out,
                struct gp_error *err) {
    (void)q, (void)what, (void)file, (void)more, (void)out, (void)err;
    fail_msg("no process is started here");
    return -1;
}
void worker_status_text(char *dst, size_t n, int status) { snprintf(dst, n, "%d", status); }

#define UNHEALTHY \
    "{\"watch\":\"unhealthy\",\"gpu\":3,\"severity\":\"fail\",\"code\":\"xid_79\",\"text\":\"t\",\"advice\":\"a\"}"

static int parse(const char *line, struct finding *ret) { return finding_parse(line, strlen(line), false, ret, NULL); }

static void lines_are_taken(void **state) {
    (void)state;
    static const struct {
        const char *line, *kept;
    } rows[] = {
        {UNHEALTHY,
         "{\"n\":7,\"watch\":\"unhealthy\",\"gpu\":3,\"severity\":\"fail\",\"code\":\"xid_79\",\"text\":\"t\","
         "\"advice\":\"a\"}"},
        {"{\"watch\":\"unhealthy\",\"severity\":\"note\",\"code\":\"x\",\"text\":\"a\\u001b[2J\\nb\"}",
         "{\"n\":7,\"watch\":\"unhealthy\",\"severity\":\"note\",\"code\":\"x\",\"text\":\"a?[2J b\"}"},
        {"{\"watch\":\"blind\",\"gpu\":0,\"reason\":\"r\"}",
         "{\"n\":7,\"watch\":\"blind\",\"gpu\":0,\"reason\":\"r\"}"},
        {"{\"watch\":\"blind\",\"reason\":\"r\"}", "{\"n\":7,\"watch\":\"blind\",\"reason\":\"r\"}"},
        {"{\"watch\":\"preempted\"}", "{\"n\":7,\"watch\":\"preempted\"}"},
        {"{\"watch\":\"preempted\",\"when\":\"2026-11-26T08:22:00Z\"}",
         "{\"n\":7,\"watch\":\"preempted\",\"when\":\"2026-11-26T08:22:00Z\"}"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct finding f = {0}, again = {0};
        GP_AUTO_STR struct str s = {0};
        assert_int_equal(parse(rows[i].line, &f), 0);
        assert_int_equal(f.n, 0);
        f.n = 7;
        finding_json(&f, &s);
        assert_string_equal(s.s, rows[i].kept);
        assert_int_equal(finding_parse(s.s, s.len, true, &again, NULL), 0);
        assert_int_equal(again.n, 7);
        assert_string_equal(again.text, f.text);
        assert_int_equal(finding_parse(s.s, s.len, false, &again, NULL), -GP_EPROTO); /* the watch has no numbers */
    }
    struct finding f = {0};
    assert_int_equal(parse("{\"watch\":\"alive\",\"gpus\":8,\"kernlog\":true}", &f), 0);
    assert_int_equal(f.kind, FINDING_NONE);
}

static void lines_are_refused(void **state) {
    (void)state;
    static const char *const lines[] = {
        "",
        "{}",
        "hello",
        "{\"watch\":\"\"}",
        "{\"watch\":7}",
        "{\"watch\":\"dead\"}",
        "{\"watch\":\"alive\"}",
        "{\"watch\":\"alive\",\"gpus\":-1,\"kernlog\":true}",
        "{\"watch\":\"alive\",\"gpus\":1,\"kernlog\":1}",
        "{\"watch\":\"alive\",\"gpus\":1,\"kernlog\":true,\"x\":1}",
        "{\"watch\":\"unhealthy\",\"gpu\":3,\"severity\":\"fail\",\"code\":\"xid_79\"}",
        "{\"watch\":\"unhealthy\",\"gpu\":3,\"severity\":\"bad\",\"code\":\"xid_79\",\"text\":\"t\"}",
        "{\"watch\":\"unhealthy\",\"gpu\":3,\"severity\":\"fail\",\"code\":\"../x\",\"text\":\"t\"}",
        "{\"watch\":\"unhealthy\",\"gpu\":3,\"severity\":\"fail\",\"code\":\"\",\"text\":\"t\"}",
        "{\"watch\":\"unhealthy\",\"gpu\":-1,\"severity\":\"fail\",\"code\":\"x\",\"text\":\"t\"}",
        "{\"watch\":\"unhealthy\",\"gpu\":\"3\",\"severity\":\"fail\",\"code\":\"x\",\"text\":\"t\"}",
        "{\"watch\":\"unhealthy\",\"gpu\":9999,\"severity\":\"fail\",\"code\":\"x\",\"text\":\"t\"}",
        "{\"watch\":\"unhealthy\",\"severity\":\"fail\",\"code\":\"x\",\"text\":\"t\",\"when\":\"2026-11-26T08:22:00Z\"}",
        "{\"watch\":\"unhealthy\",\"severity\":\"fail\",\"code\":\"x\",\"text\":\"t\",\"n watch\":1}",
        "{\"watch\":\"blind\"}",
        "{\"watch\":\"blind\",\"reason\":null}",
        "{\"watch\":\"blind\",\"reason\":\"r\",\"n\":1}",
        "{\"watch\":\"preempted\",\"when\":\"soon\"}",
        "{\"watch\":\"preempted\",\"when\":\"1960-11-26T08:22:00Z\"}",
        "{\"watch\":\"preempted\",\"when\":null}",
        "{\"watch\":\"preempted\"} {\"watch\":\"preempted\"}",
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(lines); i++) {
        struct finding f = {.n = 42};
        if (parse(lines[i], &f) != -GP_EPROTO) fail_msg("taken: %s", lines[i]);
        assert_int_equal(f.n, 42);
    }
}

static struct finding fault(const char *text) {
    struct finding f = {.kind = FINDING_UNHEALTHY, .gpu = 1, .severity = SEVERITY_FAIL};
    str_put(f.code, sizeof f.code, "xid_79");
    str_put(f.text, sizeof f.text, text);
    return f;
}

/* The longest line fits, and all of them fit into the space that is allocated. */
static void longest(void **state) {
    (void)state;
    struct finding f = fault(""), again = {0};
    GP_AUTO_STR struct str s = {0};
    f.n = HEALTH_MAX;
    memset(f.code, 'x', sizeof f.code - 1);
    memset(f.text, '"', sizeof f.text - 1);
    memset(f.advice, '\\', sizeof f.advice - 1);
    finding_json(&f, &s);
    assert_true((off_t)s.len + 1 <= HEALTH_BYTES / HEALTH_MAX);
    assert_int_equal(finding_parse(s.s, s.len, true, &again, NULL), 0);
    assert_string_equal(again.text, f.text);
    assert_string_equal(again.advice, f.advice);
}

static size_t count(const char *dir, struct str *ret_last) {
    struct health h = HEALTH_NONE;
    size_t n = 0;
    assert_true(health_open_read(&h, dir));
    for (str_reset(ret_last); health_next(&h, ret_last); n++) {
        struct finding f = {0};
        assert_int_equal(finding_parse(ret_last->s, ret_last->len, true, &f, NULL), 0);
        assert_int_equal(f.n, n + 1);
        if (n + 1 < HEALTH_MAX) str_reset(ret_last);
    }
    health_close(&h);
    return n;
}

/* A line that a crash cut, and bytes that somebody else wrote: what is before them counts, and the next line follows it. */
static void file_survives(void **state) {
    (void)state;
    char dir[256];
    GP_AUTO_STR struct str s = {0};
    struct health h = HEALTH_NONE, r = HEALTH_NONE;
    assert_non_null(make_folder(dir, sizeof dir, "job-health"));
    assert_false(health_open_read(&r, dir));
    assert_int_equal(health_create(dir, NULL), 0);
    assert_int_equal(count(dir, &s), 0);
    assert_true(health_open_read(&r, dir));
    static const char *const rests[] = {"{\"n\":2,\"watch\":\"bl", "{\"n\":2,\"watch\":\"blind\"}\n", "\n\n\n",
                                        "{\"n\":9,\"watch\":\"preempted\"}\n"};
    for (size_t i = 0; i < GP_ARRAY_LEN(rests); i++) {
        struct finding f = fault("a finding");
        assert_int_equal(health_open(&h, dir, NULL), 0);
        assert_int_equal(h.n, i);
        assert_int_equal(health_add(&h, &f), 0);
        assert_int_equal(f.n, i + 1);
        assert_int_equal(pwrite(h.fd, rests[i], strlen(rests[i]), (off_t)h.at), strlen(rests[i]));
        health_close(&h);
        str_reset(&s);
        assert_true(health_next(&r, &s)); /* who reads meanwhile gets each line once */
        assert_false(health_next(&r, &s));
        assert_int_equal(count(dir, &s), i + 1);
    }
    health_close(&r);
    assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

/* The last lines are for a notice, and for the line that says that there would be more. */
static void file_is_bounded(void **state) {
    (void)state;
    char dir[256];
    GP_AUTO_STR struct str s = {0};
    struct health h = HEALTH_NONE;
    struct finding f, notice = {.kind = FINDING_PREEMPTED, .gpu = -1};
    assert_non_null(make_folder(dir, sizeof dir, "job-health"));
    assert_int_equal(health_create(dir, NULL), 0);
    assert_int_equal(health_open(&h, dir, NULL), 0);
    for (int i = 1; i <= 300; i++) {
        f = fault("again");
        assert_int_equal(health_add(&h, &f), 0);
        assert_int_equal(f.n, i <= HEALTH_MAX - 2 ? i : 0);
    }
    assert_int_equal(count(dir, &s), HEALTH_MAX - 1);
    assert_int_equal(health_add(&h, &notice), 0);
    assert_int_equal(notice.n, HEALTH_MAX);
    assert_int_equal(health_add(&h, &notice), 0);
    assert_int_equal(notice.n, 0);
    assert_int_equal(count(dir, &s), HEALTH_MAX);
    health_close(&h);
    assert_int_equal(health_add(&h, &f), -EBADF);
    assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

static void time_of_the_text(void **state) {
    (void)state;
    assert_int_equal(job_preempt_limit_s(0, 1000), 90);
    assert_int_equal(job_preempt_limit_s(1120, 1000), 90); /* EC2 */
    assert_int_equal(job_preempt_limit_s(1119, 1000), 89);
    assert_int_equal(job_preempt_limit_s(1061, 1000), 31);
    assert_int_equal(job_preempt_limit_s(1060, 1000), 30);
    assert_int_equal(job_preempt_limit_s(1059, 1000), 29);
    assert_int_equal(job_preempt_limit_s(1030, 1000), 15); /* Azure */
    assert_int_equal(job_preempt_limit_s(1002, 1000), 1);
    assert_int_equal(job_preempt_limit_s(1001, 1000), 0);
    assert_int_equal(job_preempt_limit_s(1000, 1000), 90); /* over: one of the two clocks is wrong */
    assert_int_equal(job_preempt_limit_s(INT64_MAX, 1000), 90);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_taken), cmocka_unit_test(lines_are_refused), cmocka_unit_test(longest),
        cmocka_unit_test(file_survives),   cmocka_unit_test(file_is_bounded),   cmocka_unit_test(time_of_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
