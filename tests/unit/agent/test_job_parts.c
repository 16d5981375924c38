/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a job without processes: its JSON, request, state, the two places of a file, the head of its log. */
#include "base/gp_base.h"

#include "folder.h"
#include "validate/agent/job/job_json.c"
#include "validate/agent/job/job_log.c"
#include "validate/agent/job/job_request.c"
#include "validate/agent/job/job_slots.c"
#include "validate/agent/job/job_state.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct jmap_item find(const struct jmap *m, const char *name) {
    const struct jmap_item *it = jmap_find(m, name);
    assert_non_null(it);
    return it != NULL ? *it : (struct jmap_item){0};
}

static void json_takes(void **state) {
    (void)state;
    GP_CLEANUP(jmap_clear) struct jmap m = {0};
    static const char json[] = " { \"a\" : \"x\\u00e4\\ud83d\\ude00\\n\" , \"n\":-12,\"t\":true,\"z\":null,"
                               "\"m\":{\"k\":\"v\",\"\":\"\"},\"e\":{}}\n";
    assert_int_equal(jmap_parse(json, sizeof json - 1, &m, NULL), 0);
    assert_int_equal(m.n, 6);
    assert_string_equal(find(&m, "a").text, "x\xc3\xa4\xf0\x9f\x98\x80\n");
    assert_int_equal(find(&m, "n").number, -12);
    assert_int_equal(find(&m, "t").kind, JMAP_BOOL);
    assert_int_equal(find(&m, "z").kind, JMAP_NULL);
    assert_int_equal(find(&m, "m").map.n, 4);
    assert_string_equal(find(&m, "m").map.v[1], "v");
    assert_int_equal(find(&m, "e").kind, JMAP_MAP);
    assert_null(jmap_find(&m, "q"));
}

static void json_refuses(void **state) {
    (void)state;
    static const char *const texts[] = {"",
                                        "{",
                                        "{}x",
                                        "[]",
                                        "1",
                                        "{\"a\"}",
                                        "{\"a\":}",
                                        "{\"a\":1,}",
                                        "{,}",
                                        "{\"a\":01}",
                                        "{\"a\":1e3}",
                                        "{\"a\":-}",
                                        "{\"a\":99999999999999999999}",
                                        "{\"a\":1.0}",
                                        "{\"a\":tru}",
                                        "{\"a\":[\"b\"]}",
                                        "{\"a\":{\"b\":{}}}",
                                        "{\"a\":{\"b\":1}}",
                                        "{\"a\":{\"b\":\"1\",\"b\":\"2\"}}",
                                        "{\"a\":1,\"a\":1}",
                                        "{\"a\":\"\\u0000\"}",
                                        "{\"a\":\"\\ud83d\"}",
                                        "{\"a\":\"\\ude00\"}",
                                        "{\"a\":\"\\x\"}",
                                        "{\"a\":\"\n\"}",
                                        "{\"a\":\"\xff\"}",
                                        "{\"a\":\"b",
                                        "{a:1}",
                                        "{'a':1}",
                                        "{\"a\":1 \"b\":2}",
                                        "{\"a\":+1}",
                                        "{\"a\":0x1}",
                                        "{\"a\":NaN}",
                                        "\xef\xbb\xbf{}"};
    for (size_t i = 0; i < GP_ARRAY_LEN(texts); i++) {
        GP_CLEANUP(jmap_clear) struct jmap m = {0};
        struct gp_error err = {0};
        if (jmap_parse(texts[i], strlen(texts[i]), &m, &err) != -GP_EPROTO) fail_msg("taken: %s", texts[i]);
        assert_true(str_starts(err.msg, "byte "));
    }
    GP_CLEANUP(jmap_clear) struct jmap m = {0};
    assert_int_equal(jmap_parse("{\"a\":1}\0", 8, &m, NULL), -GP_EPROTO);
}

static void request_round_trip(void **state) {
    (void)state;
    GP_CLEANUP(job_request_clear) struct job_request q = {0}, again = {0};
    GP_AUTO_STR struct str s = {0};
    static const char json[] =
        "{\"schema\":\"gpuprov-job/v1\",\"id\":\"0123456789abcdef\",\"key\":\"" KEY
        "\",\"rank\":3,\"ranks\":4,\"cwd\":\"~/w\","
        "\"setup\":null,\"run\":\"a\\n\\u001b\\\"b\\\"\",\"env\":{\"A\":\"\\u00e4\\u202e\"},\"secrets\":{\"S\":\"secret\"},"
        "\"max_s\":7,\"grace_s\":0,\"restart\":2,\"preempt\":\"p\",\"watch\":{\"notices\":\"aws\",\"on_unhealthy\":"
        "\"stop\"}}";
    assert_int_equal(job_request_parse(json, sizeof json - 1, &q, NULL), 0);
    assert_int_equal(q.grace_s, 0);
    job_request_json(&q, &s);
    assert_null(strstr(s.s, "secret\""));
    assert_int_equal(job_request_parse(s.s, s.len, &again, NULL), 0);
    assert_string_equal(again.run, "a\n\x1b\"b\"");
    assert_string_equal(again.env.v[1], q.env.v[1]);
    assert_int_equal(again.secrets.n, 0);
    assert_true(again.setup == NULL && again.rank == 3 && again.ranks == 4 && again.max_s == 7 && again.restart == 2);
    assert_true(again.watch && again.stop_unhealthy);
    assert_string_equal(again.notices, "aws");
    assert_string_equal(again.preempt, "p");
}

/* A request without a watch, and one that warns and reads no notices. */
static void request_watch(void **state) {
    (void)state;
    static const char *const ends[] = {"}", ",\"watch\":null,\"preempt\":null}",
                                       ",\"watch\":{\"notices\":null,\"on_unhealthy\":\"warn\"}}",
                                       ",\"watch\":{\"on_unhealthy\":\"warn\"}}"};
    for (size_t i = 0; i < GP_ARRAY_LEN(ends); i++) {
        GP_CLEANUP(job_request_clear) struct job_request q = {0}, again = {0};
        GP_AUTO_STR struct str s = {0};
        GP_AUTO_FREE char *json = xasprintf("{\"schema\":\"gpuprov-job/v1\",\"id\":\"0123456789abcdef\",\"key\":\"" KEY
                                            "\",\"cwd\":\"/\",\"run\":\"x\"%s",
                                            ends[i]);
        assert_int_equal(job_request_parse(json, strlen(json), &q, NULL), 0);
        job_request_json(&q, &s);
        assert_int_equal(job_request_parse(s.s, s.len, &again, NULL), 0);
        assert_int_equal(again.watch, i >= 2);
        assert_true(!again.stop_unhealthy && again.notices == NULL && again.preempt == NULL);
    }
}

static struct job_state a_state(void) {
    struct job_state st = {.number = 3, .ranks = 2, .phase = JOB_RUNNING, .attempt = 1, .restart = 1, .exit = -1};
    str_put(st.id, sizeof st.id, "0123456789abcdef");
    str_put(st.key, sizeof st.key, KEY);
    str_put(st.in, sizeof st.in, "run");
    return st;
}

static void state_round_trip(void **state) {
    (void)state;
    struct job_state st = a_state(), got;
    GP_AUTO_STR struct str s = {0};
    st.unhealthy = INT32_MAX;
    st.preempted = true;
    memset(st.text, '\x1b', sizeof st.text - 1); /* escaped, it is six times as long */
    job_state_json(&st, -1, &s);
    assert_true(s.len <= SLOT_TEXT_MAX);
    assert_int_equal(job_state_parse(s.s, s.len, &got, NULL), 0);
    assert_string_equal(got.text, st.text);
    assert_true(got.phase == JOB_RUNNING && got.exit == -1 && got.ended_s == 0 && got.number == 3);
    assert_true(got.unhealthy == INT32_MAX && got.preempted);
    char *since = strstr(s.s, ",\"unhealthy\":"); /* an earlier version has neither */
    assert_non_null(since);
    char *rest = strstr(since, ",\"boot\"");
    assert_non_null(rest);
    memmove(since, rest, strlen(rest) + 1);
    assert_int_equal(job_state_parse(s.s, strlen(s.s), &got, NULL), 0);
    assert_true(got.unhealthy == 0 && !got.preempted);
    str_reset(&s); /* a later version has more members */
    job_state_json(&st, -1, &s);
    s.len--;
    str_add(&s, ",\"new\":{\"a\":\"b\"}}");
    assert_int_equal(job_state_parse(s.s, s.len, &got, NULL), 0);
    str_reset(&s); /* an end without a reason is none */
    st.phase = JOB_ENDED;
    st.exit = 0;
    job_state_json(&st, -1, &s);
    assert_int_equal(job_state_parse(s.s, s.len, &got, NULL), -GP_EPROTO);
}

static void state_ends(void **state) {
    (void)state;
    struct job_state st = a_state();
    job_state_status(&st, 3 << 8);
    assert_true(st.exit == 3 && str_eq(st.reason, "exited") && !job_state_again(&st));
    st = a_state();
    job_state_status(&st, SIGSEGV);
    assert_true(st.exit == -1 && str_eq(st.signal, "SIGSEGV") && str_eq(st.reason, "signaled"));
    st = a_state();
    job_state_status(&st, 35);
    assert_string_equal(st.signal, "signal 35");
    st = a_state();
    st.exit = 0;
    job_state_lost(&st, 5, "gone");
    assert_true(st.exit == -1 && st.ended_s == 5 && job_state_again(&st));
    st.left = 1; /* its processes may still hold the GPU */
    assert_false(job_state_again(&st));
    st.left = 0;
    st.attempt = 2;
    assert_false(job_state_again(&st));
}

static char *temp_dir(void) {
    char dir[256];
    assert_non_null(make_folder(dir, sizeof dir, "job-parts"));
    return xstrdup(dir);
}

static void slots_survive(void **state) {
    (void)state;
    GP_AUTO_FREE char *dir = temp_dir();
    GP_AUTO_FREE char *path = fs_join(dir, "slots");
    GP_AUTO_STR struct str s = {0};
    struct slots w = {.fd = -1};
    assert_int_equal(slots_create(path, "one", NULL), 0);
    assert_int_equal(slots_create(path, "two", NULL), -GP_EIO);
    assert_int_equal(slots_open(path, &w, NULL), 0);
    assert_int_equal(slots_put(&w, "second", false), 0);
    assert_int_equal(slots_put(&w, "third", true), 0);
    assert_int_equal(slots_get(path, &s, NULL), 0);
    assert_string_equal(s.s, "third");
    /* each byte of the newest place damaged in turn: the text before it is there */
    char place[SLOT_SIZE], bad[SLOT_SIZE];
    off_t at = (off_t)(w.seq % 2 * SLOT_SIZE);
    assert_int_equal(pread(w.fd, place, sizeof place, at), SLOT_SIZE);
    for (size_t i = 0; i < SLOT_SIZE; i += i < 64 ? 1 : 61) {
        if (i == 16 || i == 33) continue; /* the blanks between are no part of it */
        memcpy(bad, place, sizeof bad);
        bad[i] ^= 1;
        assert_int_equal(pwrite(w.fd, bad, sizeof bad, at), SLOT_SIZE);
        str_reset(&s);
        assert_int_equal(slots_get(path, &s, NULL), 0);
        assert_string_equal(s.s, "second");
    }
    assert_int_equal(ftruncate(w.fd, 100), 0);
    assert_int_equal(slots_get(path, &s, NULL), -GP_EPROTO);
    close(w.fd);
    unlink(path);
    assert_int_equal(slots_get(path, &s, NULL), -GP_ENOTFOUND);
    assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

static void heads(void **state) {
    (void)state;
    struct log_head h = {.segment = 16, .base = 32, .total = 100, .lost = 5, .lost_at = 60, .n_marks = 2}, got;
    h.marks[0] = (struct log_mark){10, 16};
    h.marks[1] = (struct log_mark){90, 96};
    GP_AUTO_STR struct str s = {0};
    log_head_render(&h, &s);
    assert_true(log_head_parse(s.s, &got));
    assert_memory_equal(&h, &got, sizeof h);
    static const char *const bad[] = {"",
                                      "gpuprov-job-log/v2 16 0 0 0 0 0",
                                      "gpuprov-job-log/v1 0 0 0 0 0 0",
                                      "gpuprov-job-log/v1 16 5 4 0 0 0",
                                      "gpuprov-job-log/v1 16 0 4 0 5 0",
                                      "gpuprov-job-log/v1 16 0 4 0 0 1",
                                      "gpuprov-job-log/v1 16 0 4 0 0 1 3 2",
                                      "gpuprov-job-log/v1 16 0 4 0 0 1 3 5",
                                      "gpuprov-job-log/v1 16 0 4 0 0 18",
                                      "gpuprov-job-log/v1 16 -1 4 0 0 0"};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) assert_false(log_head_parse(bad[i], &got));
}

/* The end of an attempt that a power cut took with it: the next one begins in a file of its own. */
static void log_after_a_power_cut(void **state) {
    (void)state;
    GP_AUTO_FREE char *dir = temp_dir();
    struct job_log l;
    struct log_head h = {.segment = 1}; /* for the analyzer */
    char buf[64];
    int64_t next = 0;
    int r = job_log_create(dir, NULL);
    if (r == 0) r = job_log_open(&l, dir, false, false, NULL);
    if (r == 0) job_log_put(&l, "first", 5);
    if (r == 0) job_log_show(&l);
    if (r == 0) r = job_log_open(&l, dir, true, true, NULL);
    assert_int_equal(r, 0);
    if (r != 0) return; /* for the analyzer */
    job_log_put(&l, "second", 6);
    job_log_show(&l);
    assert_int_equal(job_log_head(dir, &h, NULL), 0);
    assert_int_equal(h.marks[0].end, 5);
    assert_int_equal(h.marks[0].start, JOB_SEGMENT_BYTES);
    assert_int_equal(h.total, JOB_SEGMENT_BYTES + 6);
    assert_int_equal(job_log_read(dir, &h, JOB_SEGMENT_BYTES, buf, sizeof buf, &next), 6);
    assert_memory_equal(buf, "second", 6);
    job_log_close(&l);
    assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_takes),       cmocka_unit_test(json_refuses),  cmocka_unit_test(request_round_trip),
        cmocka_unit_test(request_watch),    cmocka_unit_test(state_ends),    cmocka_unit_test(heads),
        cmocka_unit_test(state_round_trip), cmocka_unit_test(slots_survive), cmocka_unit_test(log_after_a_power_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
