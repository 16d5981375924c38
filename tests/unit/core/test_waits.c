/* SPDX-License-Identifier: Apache-2.0 */
/* Progress without a terminal: a log shows that work goes on, with one line for all nodes that wait alike; a line about
 * all nodes is there once; the error that the verb prints is not a line of progress too. */
#include "base/gp_base.h"

#include "output/progress_priv.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct log {
    FILE *f;
    struct progress *p;
};

static struct log begin(enum output_mode mode, int64_t beat_ms) {
    struct log l = {.f = tmpfile()};
    struct gp_error err = {0};
    assert_non_null(l.f);
    assert_int_equal(progress_open(mode, l.f, "llm", 128, NULL, &l.p, &err), 0);
    l.p->beat_ms = beat_ms;
    return l;
}

/* The lines so far; the writer may go on. */
static struct strv lines_of(struct log *l) {
    struct strv lines = {0};
    char *line = NULL;
    size_t cap = 0;
    fflush(l->f);
    GP_AUTO_FREE char *path = xasprintf("/proc/self/fd/%d", fileno(l->f)); /* with a position of its own */
    GP_AUTO_FILE FILE *again = fopen(path, "re");
    assert_non_null(again);
    for (ssize_t n = 0; (n = getline(&line, &cap, again)) > 0;) {
        line[n - 1] = '\0';
        strv_add(&lines, line);
    }
    free(line);
    return lines;
}

static struct strv end(struct log *l) {
    progress_close(l->p);
    struct strv lines = lines_of(l);
    fclose(l->f);
    return lines;
}

static size_t count(const struct strv *lines, const char *text) {
    size_t n = 0;
    for (size_t i = 0; i < lines->n; i++) n += strstr(lines->v[i], text) != NULL;
    return n;
}

static void reach(struct progress *p, int nodes, int first_refused) {
    const struct event_sink *s = progress_sink(p);
    for (int i = 0; i < nodes; i++) {
        event_send(s, (struct event){.node = i,
                                     .phase = NODE_REACHING,
                                     .status = EVENT_START,
                                     .text = "waiting for ssh",
                                     .limit_ms = 600000});
        event_emit(s, i, NODE_REACHING, EVENT_PROGRESS, "ssh", i < first_refused ? "no route" : "connection refused");
    }
}

/* Waits until n lines have the text; a hang is the test's failure. */
static void wait_for_lines(struct log *l, const char *text, size_t n) {
    for (int64_t deadline = clock_deadline(20000);;) {
        GP_AUTO_STRV struct strv lines = lines_of(l);
        if (count(&lines, text) >= n) return;
        assert_true(clock_left_ms(deadline) > 0);
        gp_sleep(20, NULL, NULL);
    }
}

static void a_wait_is_a_line_for_all_nodes(void **state) {
    (void)state;
    struct log l = begin(OUTPUT_PLAIN, 200);
    reach(l.p, 128, 28);
    wait_for_lines(&l, "still waiting", 3);
    GP_AUTO_STRV struct strv lines = end(&l);
    assert_int_equal(count(&lines, "refused"), count(&lines, "still waiting")); /* not a line per node and reason */
    assert_true(count(&lines, "still waiting") < 128);
    assert_int_equal(count(&lines, "] llm/0-127 reach: ssh: still waiting ["), count(&lines, "still waiting"));
    assert_int_equal(count(&lines, " elapsed, limit 10m]: 28 no route, 100 connection refused"),
                     count(&lines, "still waiting"));
}

static void a_node_that_is_done_waits_no_more(void **state) {
    (void)state;
    struct log l = begin(OUTPUT_PLAIN, 200);
    reach(l.p, 4, 0);
    const struct event_sink *s = progress_sink(l.p);
    event_emit(s, 1, NODE_READY, EVENT_DONE, "", "validated");
    event_emit(s, 2, NODE_REACHING, EVENT_FAIL, "", "llm/2: no answer");
    event_emit(s, 3, NODE_BOOTSTRAPPING, EVENT_START, "data", "%s", "");
    wait_for_lines(&l, "still", 2);
    GP_AUTO_STRV struct strv lines = end(&l);
    assert_true(count(&lines, "] llm/0 reach: ssh: still waiting [") >= 1);
    assert_true(count(&lines, "] llm/3 bootstrap: data: still running [") >= 1);
    assert_int_equal(count(&lines, "llm/1 reach: ssh: still"), 0);
    assert_int_equal(count(&lines, "llm/2 reach: ssh: still"), 0);
}

static void json_has_it_too(void **state) {
    (void)state;
    struct log l = begin(OUTPUT_JSON, 200);
    event_send(
        progress_sink(l.p),
        (struct event){.node = -1, .phase = NODE_PLANNED, .text = "", .owner = "anna", .run = "00112233445566ff"});
    reach(l.p, 3, 0);
    wait_for_lines(&l, "still waiting", 2);
    GP_AUTO_STRV struct strv lines = end(&l);
    for (size_t i = 0; i < lines.n; i++) {
        json_t *j = json_loads(lines.v[i], JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(j);
        bool wait = strstr(lines.v[i], "still waiting") != NULL;
        if (wait) assert_true(json_is_null(json_object_get(j, "node")));
        if (wait) assert_string_equal(json_string_value(json_object_get(j, "status")), "progress");
        if (wait) assert_string_equal(json_string_value(json_object_get(j, "run")), "00112233445566ff");
        if (wait) assert_string_equal(json_string_value(json_object_get(j, "owner")), "anna");
        json_decref(j);
    }
    assert_true(count(&lines, "\"text\":\"llm/0-2: still waiting [") >= 2);
}

/* The result of a check over all nodes is a line, not one per node. */
static void a_gang_speaks_once(void **state) {
    (void)state;
    struct log l = begin(OUTPUT_PLAIN, 60000);
    const struct event_sink *s = progress_sink(l.p);
    for (int i = 0; i < 32; i++) {
        event_emit(s, i, NODE_GANG, EVENT_START, "train.ddp", "up to 30 s on a sound node");
        if (i == 25) event_emit(s, i, NODE_GANG, EVENT_FAIL, "train.ddp", "fail: rank 25 hangs");
        else event_emit(s, i, NODE_GANG, EVENT_WARN, "train.ddp", "error: stopped because rank 25 hangs");
        event_emit(s, i, NODE_GANG, EVENT_DONE, "net.pair", "pass: 496 pairs");
    }
    GP_AUTO_STRV struct strv lines = end(&l);
    assert_int_equal(lines.n, 4);
    assert_int_equal(count(&lines, "] llm gang: train.ddp: up to 30 s"), 1);
    assert_int_equal(count(&lines, "] llm/25 gang: failed: train.ddp: fail: rank 25 hangs"), 1);
    assert_int_equal(count(&lines, "stopped because rank 25"), 1);
    assert_int_equal(count(&lines, "] llm gang: net.pair: pass: 496 pairs"), 1);
}

static void an_error_is_printed_once(void **state) {
    (void)state;
    GP_AUTO_STRV struct strv failed = {0};
    struct log l = begin(OUTPUT_PLAIN, 60000);
    const struct event_sink *s = progress_sink(l.p);
    progress_collect_failures(l.p, &failed);
    event_send(s, (struct event){.node = 3,
                                 .phase = NODE_BOOTSTRAPPING,
                                 .status = EVENT_FAIL,
                                 .text = "llm/3: step 'data': ended with status 3",
                                 .output = "| one\n| \033[31mtwo\n"});
    event_emit(s, -1, NODE_FAILED, EVENT_FAIL, "", "llm/3: step 'data': ended with status 3");
    GP_AUTO_STRV struct strv lines = end(&l);
    assert_int_equal(lines.n, 3);
    assert_int_equal(count(&lines, "] llm/3 bootstrap: failed: step 'data': ended with status 3"), 1);
    assert_string_equal(lines.v[1], "        | one");
    assert_string_equal(lines.v[2], "        | ?[31mtwo");
    assert_int_equal(failed.n, 1);
    assert_string_equal(failed.v[0], "llm/3: step 'data': ended with status 3");
}

/* A wait of the whole stack, such as that for another gpuprov, is printed at once, and again only as a wait. */
static void a_wait_of_the_stack_is_printed_at_once(void **state) {
    (void)state;
    struct log l = begin(OUTPUT_PLAIN, 60000);
    for (int i = 0; i < 5; i++) event_emit(progress_sink(l.p), -1, NODE_PLANNED, EVENT_PROGRESS, "lock", "pid 7 works");
    GP_AUTO_STRV struct strv lines = end(&l);
    assert_int_equal(lines.n, 1);
    assert_int_equal(count(&lines, "] llm: lock: pid 7 works"), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_is_a_line_for_all_nodes),
        cmocka_unit_test(a_node_that_is_done_waits_no_more),
        cmocka_unit_test(json_has_it_too),
        cmocka_unit_test(a_gang_speaks_once),
        cmocka_unit_test(an_error_is_printed_once),
        cmocka_unit_test(a_wait_of_the_stack_is_printed_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
