/* SPDX-License-Identifier: Apache-2.0 */
/* The event log's bound, its lines under several writers, what tidying takes, and the lock of a stack
 * whose file comes and goes. */
#include "base/gp_base.h"

#include "engine/run/eventlog.h"
#include "engine/run/lock.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char state_dir[200];

static int fresh(void **state) {
    (void)state;
    return make_folder(state_dir, sizeof state_dir, "eventlog") != NULL ? 0 : -1;
}

static int cleared(void **state) {
    (void)state;
    struct gp_error err = {0};
    return fs_remove_tree(state_dir, &err);
}

static struct event_log log_of(const char *stack, int64_t max) {
    struct event_log l;
    event_log_init(&l, state_dir, stack);
    l.max_bytes = max;
    return l;
}

static void add(struct event_log *l, int n) {
    char text[32];
    snprintf(text, sizeof text, "line %d", n);
    struct event e = {.wall_ms = 1700000000000,
                      .node = n % 3 - 1,
                      .phase = NODE_CHECKING,
                      .step = "s",
                      .text = text,
                      .stack = "llm",
                      .run = "0123456789abcdef"};
    struct gp_error err = {0};
    if (event_log_add(l, &e, &err) != 0) fail_msg("%s", err.msg);
}

struct lines {
    VEC_OF(char *) list;
};

static void take(void *ctx, const char *line, size_t n) {
    struct lines *l = ctx;
    GP_AUTO_JSON json_t *j = json_loadb(line, n, 0, NULL);
    assert_non_null(j);
    vec_push(&l->list, xstrdup(json_str(j, "text", "")));
}

static void lines_clear(struct lines *l) {
    for (size_t i = 0; i < l->list.len; i++) free(l->list.items[i]);
    vec_free(&l->list);
}

static struct lines read_all(const struct event_log *l) {
    struct lines out = {0};
    bool found = false;
    event_log_read(l, take, &out, &found);
    assert_int_equal(found, out.list.len > 0);
    return out;
}

static int64_t size_of(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

static void one_line_has_the_facts_of_progress(void **state) {
    (void)state;
    struct event e = {.wall_ms = 1700000000007,
                      .node = -1,
                      .phase = NODE_GANG,
                      .status = EVENT_WARN,
                      .step = "a\"b",
                      .text = "x",
                      .stack = "llm",
                      .run = "00ff"};
    GP_AUTO_STR struct str line = {0};
    event_jsonl(&e, &line);
    assert_string_equal(line.s, "{\"t\":\"2023-11-14T22:13:20.007Z\",\"stack\":\"llm\",\"run\":\"00ff\","
                                "\"node\":null,\"phase\":\"gang\",\"status\":\"warn\","
                                "\"step\":\"a\\\"b\",\"text\":\"x\"}\n");
    str_reset(&line);
    event_jsonl(&(struct event){.node = 3, .step = "", .text = ""}, &line);
    assert_non_null(strstr(line.s, "\"stack\":null,\"run\":null,\"node\":3,"));
    assert_null(strstr(line.s, "percent"));
    str_reset(&line);
    event_jsonl(&(struct event){.step = "packages", .text = "40%: x", .percent = 40}, &line);
    assert_non_null(strstr(line.s, "\"text\":\"40%: x\",\"percent\":40}"));
}

static void a_log_has_a_bound_and_keeps_its_end(void **state) {
    (void)state;
    struct event_log l = log_of("llm", 4000);
    for (int i = 0; i < 400; i++) add(&l, i);
    assert_true(size_of(l.path) <= 4000 && size_of(l.old_path) <= 4000);
    struct lines got = read_all(&l);
    assert_non_null(strstr(got.list.items[0], "older lines were dropped"));
    assert_string_equal(got.list.items[got.list.len - 1], "line 399");
    for (size_t i = 1; i < got.list.len; i++) { /* nothing is missing in between */
        char want[32];
        snprintf(want, sizeof want, "line %d", 400 - (int)(got.list.len - i));
        assert_string_equal(got.list.items[i], want);
    }
    lines_clear(&got);
    event_log_clear(&l);
}

static void nothing_is_said_to_be_dropped_before_it_is(void **state) {
    (void)state;
    struct event_log l = log_of("llm", 4000);
    for (int i = 0; size_of(l.old_path) < 0; i++) add(&l, i);
    struct lines got = read_all(&l);
    assert_string_equal(got.list.items[0], "line 0");
    for (size_t i = 0; i < got.list.len; i++) assert_null(strstr(got.list.items[i], "dropped"));
    lines_clear(&got);
    event_log_clear(&l);
}

static void lines_follow_the_name(void **state) {
    (void)state;
    struct event_log a = log_of("llm", 4000), b = log_of("llm", 4000);
    for (int i = 0; i < 200; i++) add(i % 2 ? &a : &b, i);
    struct lines got = read_all(&a);
    assert_string_equal(got.list.items[got.list.len - 1], "line 199");
    assert_string_equal(got.list.items[got.list.len - 2], "line 198");
    lines_clear(&got);
    assert_int_equal(unlink(a.path), 0); /* a `down` of another process that tidied */
    unlink(a.old_path);
    add(&a, 7);
    add(&b, 8);
    got = read_all(&b);
    assert_int_equal(got.list.len, 2);
    lines_clear(&got);
    event_log_clear(&a);
    event_log_clear(&b);
}

static void a_line_cut_short_spoils_no_other(void **state) {
    (void)state;
    struct event_log l = log_of("llm", 4000);
    add(&l, 1);
    assert_int_equal(truncate(l.path, size_of(l.path) - 20), 0);
    struct event_log again = log_of("llm", 4000);
    add(&again, 2);
    GP_AUTO_STR struct str seen = {0};
    struct gp_error err = {0};
    assert_int_equal(fs_read(l.path, 10000, &seen, &err), 0);
    assert_non_null(strstr(seen.s, "\n{\"t\"")); /* the second begins a line */
    event_log_clear(&l);
    event_log_clear(&again);
}

static void age(const char *path, int64_t s) {
    struct timespec t[2] = {{.tv_sec = (time_t)(clock_wall_s() - s)}, {.tv_sec = (time_t)(clock_wall_s() - s)}};
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static void only_old_logs_of_stacks_that_are_gone_go(void **state) {
    (void)state;
    static const char *const names[] = {"gone", "fresh", "kept"};
    struct event_log l[3];
    for (size_t i = 0; i < 3; i++) {
        l[i] = log_of(names[i], 4000);
        for (int k = 0; size_of(l[i].old_path) < 0; k++) add(&l[i], k);
    }
    for (size_t i = 0; i < 3; i += 2) {
        age(l[i].path, EVENT_LOG_KEEP_S + 60);
        age(l[i].old_path, EVENT_LOG_KEEP_S + 60);
    }
    char kept[] = "kept";
    struct stack_list known = {0};
    vec_push(&known.list, (struct stack){.name = kept});
    event_log_tidy(state_dir, &known, clock_wall_s());
    vec_free(&known.list);
    assert_false(fs_exists(l[0].path) || fs_exists(l[0].old_path));
    assert_true(fs_exists(l[1].path) && fs_exists(l[1].old_path));
    assert_true(fs_exists(l[2].path) && fs_exists(l[2].old_path));
    for (size_t i = 0; i < 3; i++) event_log_clear(&l[i]);
}

/* --- the lock --- */

static struct run *run_in(struct engine **ret_e) {
    struct engine_opts opts = {.owner = "me/x"};
    struct run *run = NULL;
    struct gp_error err = {0};
    assert_int_equal(setenv("GPUPROV_STATE_DIR", state_dir, 1), 0);
    if (engine_open(&opts, ret_e, &err) != 0 || run_open(*ret_e, NULL, "llm", &run, &err) != 0) fail_msg("%s", err.msg);
    return run;
}

static char *lock_path(void) { return xasprintf("%s/locks/llm@me_x", state_dir); }

static void a_lock_is_there_while_it_is_held(void **state) {
    (void)state;
    struct engine *e = NULL;
    struct run *run = run_in(&e);
    GP_AUTO_FREE char *path = lock_path();
    struct gp_error err = {0};
    assert_int_equal(run_lock(run, &err), 0);
    locks_tidy(state_dir); /* held: stays */
    assert_true(fs_exists(path));
    run_unlock(run);
    assert_false(fs_exists(path));
    run_unlock(run);
    assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0); /* what a kill -9 leaves */
    locks_tidy(state_dir);
    assert_false(fs_exists(path));
    run_close(run);
    engine_close(e);
}

/* One of several processes: each holds the lock a few times, alone. */
static void hold_often(const char *alone) {
    for (int i = 0; i < 6; i++) {
        struct engine *e = NULL;
        struct run *run = run_in(&e);
        struct gp_error err = {0};
        if (run_lock(run, &err) != 0) _exit(1);
        int fd = open(alone, O_CREAT | O_EXCL | O_WRONLY, 0600);
        if (fd < 0 || close(fd) != 0) _exit(2);
        locks_tidy(state_dir);
        if (unlink(alone) != 0) _exit(3);
        run_close(run);
        engine_close(e);
    }
    _exit(0);
}

static void a_lock_that_is_removed_is_still_one(void **state) {
    (void)state;
    GP_AUTO_FREE char *alone = xasprintf("%s/alone", state_dir), *path = lock_path();
    pid_t pids[4];
    for (size_t i = 0; i < 4; i++) {
        pids[i] = fork();
        if (pids[i] == 0) hold_often(alone);
        assert_true(pids[i] > 0);
    }
    for (size_t i = 0; i < 4; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_false(fs_exists(path));
}

static void tell(void *ctx, const struct event *e) {
    if (strcmp(e->step, "lock") == 0 && write(*(const int *)ctx, "w", 1) != 1) _exit(4);
}

static char heard(int fd) {
    char c = '?';
    return read(fd, &c, 1) == 1 ? c : '-';
}

/* One that waited for a lock whose file was removed goes on to wait for the file that has the name. */
static void the_lock_is_the_name(void **state) {
    (void)state;
    struct engine *e = NULL;
    struct run *run = run_in(&e);
    GP_AUTO_FREE char *path = lock_path();
    struct gp_error err = {0};
    int p[2];
    assert_int_equal(pipe(p), 0);
    assert_int_equal(run_lock(run, &err), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct engine *mine = NULL;
        close(run->lock.fd); /* a copy of it would hold the lock as well */
        struct run *second = run_in(&mine);
        mine->sink = (struct event_sink){tell, &p[1]};
        _exit(run_lock(second, &err) == 0 && write(p[1], "h", 1) == 1 ? 0 : 1);
    }
    assert_int_equal(heard(p[0]), 'w');
    assert_int_equal(unlink(path), 0); /* as a run that ends, and a third one that begins */
    int next = open(path, O_CREAT | O_RDWR, 0600);
    assert_int_equal(flock(next, LOCK_EX), 0);
    close(run->lock.fd);
    run->lock.fd = -1;
    assert_int_equal(heard(p[0]), 'w');
    assert_int_equal(unlink(path), 0);
    close(next);
    assert_int_equal(heard(p[0]), 'h');
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(p[0]);
    close(p[1]);
    run_close(run);
    engine_close(e);
}

/* Another process writes while the log is followed, and the log is replaced by a new one again and again. */
struct following {
    struct lines lines; /* first: take() gets it */
    struct event_log *writer;
    int written, looks;
};
static bool write_more(void *ctx) {
    struct following *f = ctx;
    for (int i = 0; i < 3 && f->written < 60; i++) add(f->writer, f->written++);
    return ++f->looks < 25;
}

static void a_follower_gets_every_line_once(void **state) {
    (void)state;
    struct event_log writer = log_of("llm", 900), reader = log_of("llm", 900);
    struct following f = {.writer = &writer};
    bool found = false;
    event_log_follow(&reader, take, write_more, &f, &found);
    assert_true(found);
    assert_int_equal(f.lines.list.len, 60);
    for (int i = 0; i < 60; i++) {
        char text[32];
        snprintf(text, sizeof text, "line %d", i);
        assert_string_equal(f.lines.list.items[i], text);
    }
    lines_clear(&f.lines);
    event_log_clear(&writer);
    event_log_clear(&reader);
}

static void a_lock_is_seen_without_taking_it(void **state) {
    (void)state;
    GP_AUTO_FREE char *dir = xasprintf("%s/locks", state_dir);
    GP_AUTO_FREE char *path = xasprintf("%s/llm@me", dir);
    struct gp_error err = {0};
    char pid[16];
    assert_false(lock_is_held(state_dir, "llm"));
    assert_int_equal(fs_mkdirs(dir, 0700, &err), 0);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    assert_int_equal(fs_write_atomic(path, pid, strlen(pid), 0600, &err), 0);
    assert_true(lock_is_held(state_dir, "llm"));
    assert_false(lock_is_held(state_dir, "ll"));
    pid_t child = fork();
    if (child == 0) _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    snprintf(pid, sizeof pid, "%d", (int)child); /* a run that was killed */
    assert_int_equal(fs_write_atomic(path, pid, strlen(pid), 0600, &err), 0);
    assert_false(lock_is_held(state_dir, "llm"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_line_has_the_facts_of_progress),
        cmocka_unit_test_setup_teardown(a_log_has_a_bound_and_keeps_its_end, fresh, cleared),
        cmocka_unit_test_setup_teardown(nothing_is_said_to_be_dropped_before_it_is, fresh, cleared),
        cmocka_unit_test_setup_teardown(lines_follow_the_name, fresh, cleared),
        cmocka_unit_test_setup_teardown(a_line_cut_short_spoils_no_other, fresh, cleared),
        cmocka_unit_test_setup_teardown(only_old_logs_of_stacks_that_are_gone_go, fresh, cleared),
        cmocka_unit_test_setup_teardown(a_follower_gets_every_line_once, fresh, cleared),
        cmocka_unit_test_setup_teardown(a_lock_is_seen_without_taking_it, fresh, cleared),
        cmocka_unit_test_setup_teardown(a_lock_is_there_while_it_is_held, fresh, cleared),
        cmocka_unit_test_setup_teardown(the_lock_is_the_name, fresh, cleared),
        cmocka_unit_test_setup_teardown(a_lock_that_is_removed_is_still_one, fresh, cleared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
