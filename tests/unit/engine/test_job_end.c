/* SPDX-License-Identifier: Apache-2.0 */
/* The file that keeps the result of a job while its nodes are destroyed: what is written is read again, and a file that
 * lacks a member, has another one, or one of another type, is refused. */
#include "base/gp_base.h"

#include "engine/job/job_end.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define ID "0123456789abcdef"
#define KEY "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const struct stack its = {.name = (char *)(uintptr_t) "train", .uid = (char *)(uintptr_t) "fedcba9876543210"};

/* A result with every kind of member. */
static void fill(struct job_result *job, struct gp_error *why) {
    *job = (struct job_result){.id = ID, .key = KEY, .attached = true, .deadline = true, .recovered = 1};
    job->outcome.failed = 1;
    job->outcome.len = 3;
    job->outcome.ranks = xcalloc(4, sizeof *job->outcome.ranks);
    job->outcome.ranks[0] = (struct job_rank_end){.lost = true, .gone = true, .why = "its machine is gone"};
    job->outcome.ranks[1] = (struct job_rank_end){.ended = true, .why = "was killed by SIGSEGV"};
    job->outcome.ranks[1].state = (struct job_state){.phase = JOB_ENDED,
                                                     .exit = -1,
                                                     .signal = "SIGSEGV",
                                                     .reason = "signaled",
                                                     .text = "run",
                                                     .attempt = 2,
                                                     .started_s = 5,
                                                     .ended_s = 9,
                                                     .log_bytes = 77,
                                                     .unhealthy = 1,
                                                     .preempted = true};
    struct job_fetched f = {
        .rank = 1, .files = 2, .bytes = 3, .files_sent = 1, .bytes_sent = 2, .left_out = 1, .error = xstrdup("full")};
    f.path = xstrdup("out");
    f.to = xstrdup("/results");
    strv_add(&f.notes, "a pipe");
    vec_push(&job->fetched, f);
    struct job_stored to = {.files = 4, .bytes = 5, .files_sent = 3, .bytes_sent = 4, .left_out = 1};
    to.to = xstrdup("s3://results/a");
    to.error = xstrdup("refused");
    strv_add(&to.notes, "a link");
    vec_push(&job->stored, to);
    struct job_rank_health h = {.id = ID, .rank = 2};
    h.found = (struct job_health){
        .kind = JOB_UNHEALTHY, .n = 1, .gpu = 3, .severity = "fail", .code = "xid_79", .text = "off the bus"};
    vec_push(&job->health, h);
    h.found = (struct job_health){.kind = JOB_PREEMPTED, .n = 2, .gpu = -1, .text = "2026-11-27T00:00:00Z"};
    vec_push(&job->health, h);
    h.found = (struct job_health){.kind = JOB_BLIND, .n = 3, .gpu = -1, .text = "no driver"};
    vec_push(&job->health, h);
    struct job_replaced k = {.id = ID, .rank = 0, .why = "is gone"};
    vec_push(&job->replaced, k);
    (void)gp_fail(why, GP_EJOB, "train/1: the job failed");
}

static json_t *sample(void) {
    struct job_end end = {0};
    fill(&end.job, &end.why);
    job_owed_add(&end.owed, 1, "i-0123");
    job_owed_add(&end.owed, 2, "");
    strv_add(&end.machines, "i-0122");
    strv_add(&end.machines, "i-0123");
    json_t *j = job_end_json(&its, &end.job, &end.why, &end.owed, &end.machines);
    job_end_clear(&end);
    return j;
}

static int decode(const json_t *j, struct job_end *ret, struct gp_error *err) {
    GP_AUTO_FREE char *text = json_text(j, 0);
    gp_error_clear(err);
    return job_end_decode(text, strlen(text), &its, ret, err);
}

static void round_trip(void **state) {
    (void)state;
    struct gp_error err = {0};
    struct job_end end;
    GP_AUTO_JSON json_t *j = sample();
    assert_int_equal(decode(j, &end, &err), 0);
    GP_AUTO_JSON json_t *again = job_end_json(&its, &end.job, &end.why, &end.owed, &end.machines);
    assert_true(json_equal(j, again));
    assert_int_equal(end.why.code, GP_EJOB);
    assert_int_equal(end.job.outcome.failed, 1);
    assert_int_equal(end.job.outcome.ranks[1].state.exit, -1);
    assert_string_equal(end.job.outcome.ranks[1].state.signal, "SIGSEGV");
    assert_true(end.job.outcome.ranks[0].gone);
    assert_false(end.job.outcome.ranks[2].ended || end.job.outcome.ranks[2].lost);
    assert_string_equal(end.job.fetched.items[0].error, "full");
    assert_int_equal(end.owed.list.len, 2);
    assert_int_equal(end.owed.list.items[0].rank, 1);
    assert_string_equal(end.owed.list.items[0].machine, "i-0123");
    assert_int_equal(end.job.stored.len, 1);
    assert_string_equal(end.job.stored.items[0].to, "s3://results/a");
    job_end_clear(&end);
}

static void success(void **state) {
    (void)state;
    struct gp_error err = {0}, none = {0};
    struct job_end end = {0};
    struct job_result job = {.id = ID, .key = KEY, .outcome.failed = -1};
    GP_AUTO_JSON json_t *j = job_end_json(&its, &job, &none, &end.owed, &end.machines);
    assert_int_equal(decode(j, &end, &err), 0);
    assert_int_equal(end.why.code, GP_OK);
    assert_int_equal(end.job.outcome.failed, -1);
    job_end_clear(&end);
}

static int refused;
static void refuse(const json_t *whole, const char *what) {
    struct gp_error err = {0};
    struct job_end end;
    if (decode(whole, &end, &err) == 0) fail_msg("%s was taken", what);
    assert_int_equal(err.code, GP_EPROTO);
    assert_true(strlen(err.msg) > 10);
    assert_null(end.job.outcome.ranks);
    refused++;
}

/* Members of findings: the agent's form, in which those that are absent have a meaning. */
static bool may_lack(const char *name) {
    return strcmp(name, "gpu") == 0 || strcmp(name, "advice") == 0 || strcmp(name, "when") == 0;
}

/* Each member of each object is removed, doubled under another name, and given another type. */
static void spoil(json_t *whole, json_t *at, bool finding) {
    const char *name = NULL;
    json_t *v = NULL;
    size_t i = 0;
    json_array_foreach(at, i, v) spoil(whole, v, finding);
    if (!json_is_object(at)) return;
    if (!finding) {
        json_object_set_new(at, "more", json_null());
        refuse(whole, "an unknown member");
        json_object_del(at, "more");
    }
    GP_AUTO_STRV struct strv names = {0}; /* a member that is put back is the last one */
    json_object_foreach(at, name, v) strv_add(&names, name);
    for (i = 0; i < names.n; i++) {
        const char *key = names.v[i];
        GP_AUTO_JSON json_t *old = json_incref(json_object_get(at, key));
        spoil(whole, old, finding || strcmp(key, "found") == 0);
        json_object_set_new(at, key, json_pack("[[]]"));
        refuse(whole, key);
        json_object_set_new(at, key, json_real(0.5));
        refuse(whole, key);
        if (!finding || !may_lack(key)) {
            json_object_del(at, key);
            refuse(whole, key);
        }
        json_object_set(at, key, old);
    }
}

static void strict(void **state) {
    (void)state;
    GP_AUTO_JSON json_t *j = sample();
    spoil(j, j, false);
    assert_true(refused > 150);
    struct gp_error err = {0};
    struct job_end end;
    assert_int_equal(decode(j, &end, &err), 0); /* it is as it was */
    job_end_clear(&end);
}

static void values(void **state) {
    (void)state;
    static const struct {
        const char *path, *member, *value;
    } wrong[] = {
        {"", "version", "4"},
        {"", "version", "1"},
        {"", "version", "0"},
        {"", "uid", "\"" ID "\""},
        {"", "stack", "\"other\""},
        {"error", "code", "\"ok\""},
        {"error", "code", "\"nonsense\""},
        {"job", "id", "\"x\""},
        {"job", "key", "\"" ID "\""},
        {"job", "failed", "3"},
        {"job", "failed", "2"},
        {"job", "failed", "-1"},
        {"job", "recovered", "-1"},
        {"job.ranks.1.end", "state", "\"running\""},
        {"job.ranks.1.end", "exit", "256"},
        {"job.fetched.0", "files", "-1"},
        {"owed.0", "rank", "-1"},
        {"owed.0", "rank", "65537"},
        {"owed.0", "machine", "5"},
        {"", "machines", "\"i-0122\""},
        {"", "machines", "[5]"},
        {"job.replaced.0", "why", "\"was bored\""},
        {"job.health.0.found", "severity", "\"odd\""},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(wrong); i++) {
        GP_AUTO_JSON json_t *j = sample();
        json_t *at = wrong[i].path[0] != '\0' ? json_at(j, wrong[i].path) : j;
        assert_non_null(at);
        json_object_set_new(at, wrong[i].member, json_loads(wrong[i].value, JSON_DECODE_ANY, NULL));
        refuse(j, wrong[i].member);
    }
    struct gp_error err = {0};
    struct job_end end;
    static const char *const broken[] = {"", "{", "[]", "null", "{}", "{\"version\": 3}"};
    for (size_t i = 0; i < GP_ARRAY_LEN(broken); i++) {
        gp_error_clear(&err);
        assert_int_equal(job_end_decode(broken[i], strlen(broken[i]), &its, &end, &err), -GP_EPROTO);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(success),
        cmocka_unit_test(strict),
        cmocka_unit_test(values),
    };
    return cmocka_run_group_tests_name("job_end", tests, NULL, NULL);
}
