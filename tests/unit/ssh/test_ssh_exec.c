/* SPDX-License-Identifier: Apache-2.0 */
/* Commands and copies against a real sshd: how they end, what comes back, what it costs. */
#include "ssh_fixture.h"

#include <pthread.h>
#include <sys/mount.h>
#include <sys/resource.h>

static void exec(struct ssh_session *s, const char *command, const struct ssh_exec_opts *o, struct ssh_result *r) {
    struct gp_error err = {0};
    if (ssh_exec(s, command, o, r, &err) != 0) fail_msg("%s", err.msg);
}

static void test_exit_status(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH struct ssh_session *s = fx_login();
    static const int codes[] = {0, 1, 7, 255};
    for (size_t i = 0; i < GP_ARRAY_LEN(codes); i++) {
        GP_AUTO_SSH_RESULT struct ssh_result r = {0};
        GP_AUTO_FREE char *c = xasprintf("echo out; echo err >&2; exit %d", codes[i]);
        exec(s, c, NULL, &r);
        assert_int_equal(r.end, SSH_EXITED);
        assert_int_equal(r.status, codes[i]);
        assert_string_equal(r.out.s, "out\n");
        assert_string_equal(r.err.s, "err\n");
        assert_int_equal(r.out_bytes, 4);
    }
}

static void test_signal(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH struct ssh_session *s = fx_login();
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    exec(s, "kill -9 $$", NULL, &r);
    assert_int_equal(r.end, SSH_SIGNALED);
    assert_string_equal(r.signal, "KILL");
    struct gp_error err = {0};
    assert_int_equal(ssh_run(s, "the step", "kill -TERM $$", NULL, NULL, &err), -GP_EBOOTSTRAP);
    assert_contains(err.msg, "llm/1: the step was killed by signal TERM");
}

static void test_run_messages(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH struct ssh_session *s = fx_login();
    struct gp_error err = {0};
    assert_int_equal(ssh_run(s, "step 'x'", "echo one; echo two >&2; exit 3", NULL, NULL, &err), -GP_EBOOTSTRAP);
    assert_string_equal(err.msg, "llm/1: step 'x' failed with exit status 3: two");
    assert_string_equal(err.detail, "exit 3");
    gp_error_clear(&err);
    GP_AUTO_FREE char *endless = fx_endless("exec sleep 600");
    for (int64_t ms = 500; ms <= 32000; ms *= 2) { /* enough for its first word */
        gp_error_clear(&err);
        struct ssh_exec_opts o = {.deadline_ms = clock_deadline(ms)};
        assert_int_equal(ssh_run(s, "step 'y'", endless, &o, NULL, &err), -GP_ETIMEOUT);
        if (strstr(err.msg, "begun") != NULL) break;
    }
    assert_string_equal(err.msg, "llm/1: step 'y' did not finish in time: begun");
    gp_error_clear(&err);
    GP_AUTO_FREE char *big = xmalloc(40001);
    memset(big, ' ', 40000);
    big[40000] = '\0';
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    assert_int_equal(ssh_exec(s, big, NULL, &r, &err), -GP_EINTERNAL);
}

static bool make_file(void *ctx, bool is_stderr, const char *line, size_t len) {
    (void)is_stderr, (void)line, (void)len;
    fx_write(ctx, "", 0600);
    return true;
}

/* The server's process for this connection dies in the middle, once the first line has come. */
static void test_lost(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH struct ssh_session *s = fx_login();
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    GP_AUTO_FREE char *heard = fx_path("heard");
    GP_AUTO_FREE char *dies = xasprintf("until [ -e %s ]; do sleep 0.02; done; kill -9 $PPID; "
                                        "exec sleep 600",
                                        heard);
    GP_AUTO_FREE char *endless = fx_endless(dies);
    struct ssh_exec_opts hear = {.on_line = make_file, .ctx = heard};
    exec(s, endless, &hear, &r);
    assert_int_equal(r.end, SSH_LOST);
    assert_string_equal(r.out.s, "begun\n");
    GP_AUTO_SSH_RESULT struct ssh_result again = {0};
    exec(s, "echo after", NULL, &again);
    assert_int_equal(again.end, SSH_LOST);
    struct gp_error err = {0};
    assert_int_equal(ssh_run(s, "a step", "true", NULL, NULL, &err), -GP_ELOST);
    assert_true(err.retryable);
}

static void test_deadline(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH struct ssh_session *s = fx_login();
    /* Silent, talking, and deaf to its own end. */
    static const char *const never[] = {"exec sleep 600", "while :; do echo y; done",
                                        "trap '' HUP PIPE TERM; (while echo y; do :; done); exec sleep 600"};
    for (size_t i = 0; i < GP_ARRAY_LEN(never); i++) {
        GP_AUTO_SSH_RESULT struct ssh_result r = {0};
        struct ssh_exec_opts o = {.deadline_ms = clock_deadline(300), .max_output = 1000};
        GP_AUTO_FREE char *endless = fx_endless(never[i]);
        exec(s, endless, &o, &r);
        assert_int_equal(r.end, SSH_TIMED_OUT);
        assert_true(r.out.len <= 1000);
        /* The session is good for more. */
        GP_AUTO_SSH_RESULT struct ssh_result next = {0};
        exec(s, "echo next", NULL, &next);
        assert_int_equal(next.end, SSH_EXITED);
        assert_string_equal(next.out.s, "next\n");
    }
}

static void *cancel_soon(void *arg) {
    usleep(100000);
    gp_cancel_set(arg);
    return NULL;
}

static void test_cancel(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH struct ssh_session *s = fx_login();
    struct gp_cancel c;
    struct gp_error err = {0};
    pthread_t thread = 0;
    assert_int_equal(gp_cancel_init(&c, NULL), 0);
    struct ssh_exec_opts o = {.cancel = &c};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &c), 0);
    GP_AUTO_FREE char *endless = fx_endless("exec sleep 600");
    assert_int_equal(ssh_exec(s, endless, &o, &r, &err), -GP_ECANCELLED);
    pthread_join(thread, NULL);
    assert_contains(err.msg, "llm/1: cancelled");
    gp_cancel_clear(&c);
}

static void test_stdin(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH struct ssh_session *s = fx_login();
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    exec(s, "cat", NULL, &r);
    assert_int_equal(r.end, SSH_EXITED); /* end of file at once */
    /* Both ways at once, more than any window or buffer holds. */
    size_t n = (size_t)24 << 20;
    GP_AUTO_FREE char *big = xmalloc(n);
    for (size_t i = 0; i < n; i++) big[i] = (char)(i * 2654435761u >> 24);
    struct ssh_exec_opts o = {.in = big, .in_len = n, .max_output = n};
    GP_AUTO_SSH_RESULT struct ssh_result echo = {0};
    exec(s, "cat", &o, &echo);
    assert_int_equal(echo.end, SSH_EXITED);
    assert_int_equal(echo.out.len, n);
    assert_memory_equal(echo.out.s, big, n);
    /* A command that does not want it. */
    GP_AUTO_SSH_RESULT struct ssh_result rude = {0};
    exec(s, "exit 4", &o, &rude);
    assert_int_equal(rude.end, SSH_EXITED);
    assert_int_equal(rude.status, 4);
    GP_AUTO_SSH_RESULT struct ssh_result closed = {0};
    exec(s, "exec >&- 2>&-; wc -c > /dev/null; exit 5", &o, &closed);
    assert_int_equal(closed.status, 5);
}

static long peak_kib(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

struct tally {
    size_t lines, bytes;
};

static bool tally_line(void *ctx, bool is_stderr, const char *line, size_t len) {
    struct tally *t = ctx;
    assert_false(is_stderr);
    assert_int_equal(strlen(line), len);
    t->lines++;
    t->bytes += len + 1;
    return true;
}

static void test_100_mb(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH struct ssh_session *s = fx_login();
    long before = peak_kib();
    struct tally t = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    struct ssh_exec_opts o = {.max_output = 4096, .on_line = tally_line, .ctx = &t};
    exec(s, "yes 0123456789012345678901234567890123456789 | head -c 100000000", &o, &r);
    assert_int_equal(r.end, SSH_EXITED);
    assert_int_equal(r.out_bytes, 100000000);
    assert_int_equal(r.out.len, 4096);
    assert_true(r.out.truncated);
    assert_true(t.bytes >= 100000000 && t.bytes <= 100000001);
    assert_int_equal(t.lines, (100000000 + 40) / 41);
    if (!SANITIZED) assert_true(peak_kib() - before < 12 * 1024);
}

static bool one_line(void *ctx, bool is_stderr, const char *line, size_t len) {
    (void)is_stderr;
    str_addf(ctx, "[%zu:%.3s]", len, line);
    return true;
}

static bool stop_at_three(void *ctx, bool is_stderr, const char *line, size_t len) {
    (void)is_stderr;
    (void)len;
    (void)line;
    return ++*(int *)ctx < 3;
}

static void test_lines(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH struct ssh_session *s = fx_login();
    GP_AUTO_STR struct str seen = {0};
    struct ssh_exec_opts o = {.on_line = one_line, .ctx = &seen};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    /* Nothing, NUL bytes, a huge line, and a last one without an end. */
    exec(s, "echo; printf 'a\\0b\\n'; head -c 1000000 /dev/zero | tr '\\0' x; echo; printf end", &o, &r);
    assert_string_equal(seen.s, "[0:][3:a?b][65536:xxx][3:end]");
    int n = 0;
    struct ssh_exec_opts stop = {.on_line = stop_at_three, .ctx = &n};
    GP_AUTO_SSH_RESULT struct ssh_result stopped = {0};
    exec(s, "yes", &stop, &stopped);
    assert_int_equal(stopped.end, SSH_TIMED_OUT);
    assert_int_equal(stopped.status, -1);
    assert_int_equal(n, 3);
    GP_AUTO_SSH_RESULT struct ssh_result next = {0};
    exec(s, "echo next", NULL, &next);
    assert_string_equal(next.out.s, "next\n");
}

/* "::at 12" may be the first half of "::at 123". */
static void test_half_a_line_is_not_told(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH struct ssh_session *s = fx_login();
    GP_AUTO_STR struct str seen = {0};
    str_init(&seen, 1000);
    struct ssh_exec_opts o = {.on_line = one_line, .ctx = &seen};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    GP_AUTO_FREE char *endless = fx_endless("printf '::at 12'; sleep 3; kill -9 $PPID; exec sleep 600");
    exec(s, endless, &o, &r);
    assert_int_equal(r.end, SSH_LOST);
    assert_string_equal(seen.s, "[5:beg]");
    assert_string_equal(r.out.s, "begun\n::at 12"); /* kept, for a message */
}

static void test_too_many_channels(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct sshd one = {0};
    fx_sshd_start(&one, "one", "ed25519", "MaxSessions 1\n");
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &one);
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    assert_int_equal(fx_open(&t, 30000, &s, &err), 0);
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    for (int i = 0; i < 50; i++) { /* one after the other is one at a time, however slow the server is */
        GP_AUTO_SSH_RESULT struct ssh_result fine = {0};
        if (ssh_exec(s, "true", NULL, &fine, &err) != 0 || fine.end != SSH_EXITED)
            fail_msg("command %d: %s", i, err.msg);
    }
    struct ssh_exec_opts o = {.deadline_ms = clock_deadline(1000)};
    GP_AUTO_FREE char *endless = fx_endless("exec sleep 600");
    exec(s, endless, &o, &r);
    GP_AUTO_SSH_RESULT struct ssh_result next = {0};
    assert_int_equal(ssh_exec(s, "true", NULL, &next, &err), -GP_EREACH);
    assert_contains(err.msg, "MaxSessions");
    fx_sshd_clear(&one);
}

static void test_many(void **state) {
    (void)state;
    NEEDS_SSHD();
    enum { N = 6 };
    struct ssh_job jobs[N] = {0};
    for (size_t i = 0; i < N; i++) jobs[i].session = fx_login();
    jobs[0].command = "echo zero";
    jobs[1].command = "sleep 0.1; echo one; exit 1";
    GP_AUTO_FREE char *dies = fx_endless("kill -9 $PPID; exec sleep 600");
    GP_AUTO_FREE char *endless = fx_endless("exec sleep 600");
    jobs[2].command = dies;
    jobs[3].command = "yes"; /* must not keep the others from their turn */
    jobs[4].command = "wc -c";
    jobs[5].command = "kill -9 $$";
    jobs[3].opts.deadline_ms = clock_deadline(1000);
    size_t n = (size_t)8 << 20;
    GP_AUTO_FREE char *big = xcalloc(n, 1);
    jobs[4].opts.in = big;
    jobs[4].opts.in_len = n;
    struct gp_error err = {0};
    assert_int_equal(ssh_exec_many(jobs, N, NULL, &err), 0);
    static const enum ssh_end ends[N] = {SSH_EXITED, SSH_EXITED, SSH_LOST, SSH_TIMED_OUT, SSH_EXITED, SSH_SIGNALED};
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(jobs[i].rc, 0);
        assert_int_equal(jobs[i].result.end, ends[i]);
    }
    assert_string_equal(jobs[0].result.out.s, "zero\n");
    assert_int_equal(jobs[1].result.status, 1);
    assert_string_equal(jobs[4].result.out.s, "8388608\n");
    /* Cancelled: every job says so. */
    struct gp_cancel c;
    pthread_t thread = 0;
    assert_int_equal(gp_cancel_init(&c, NULL), 0);
    struct ssh_job again[2] = {{.session = jobs[0].session, .command = endless},
                               {.session = jobs[1].session, .command = "echo done"}};
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &c), 0);
    assert_int_equal(ssh_exec_many(again, 2, &c, &err), -GP_ECANCELLED);
    pthread_join(thread, NULL);
    assert_int_equal(again[0].rc, -GP_ECANCELLED);
    assert_true(again[1].rc == 0 || again[1].rc == -GP_ECANCELLED);
    for (size_t i = 0; i < 2; i++) ssh_result_clear(&again[i].result);
    for (size_t i = 0; i < N; i++) {
        ssh_result_clear(&jobs[i].result);
        ssh_close(jobs[i].session);
    }
    gp_cancel_clear(&c);
}

static void put_ok(struct ssh_session *s, const char *path, unsigned mode, const char *data, size_t n, bool want_sent) {
    struct gp_error err = {0};
    bool sent = !want_sent;
    if (ssh_put(s, path, mode, data, n, clock_deadline(60000), NULL, &sent, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(sent, want_sent);
    GP_AUTO_STR struct str have = {0};
    assert_int_equal(fs_read(path, (size_t)64 << 20, &have, NULL), 0);
    assert_int_equal(have.len, n);
    if (n > 0) assert_memory_equal(have.s, data, n);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, mode);
}

static void test_put(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH struct ssh_session *s = fx_login();
    GP_AUTO_FREE char *path = fx_path("new folder/it's \"a\" $file");
    put_ok(s, path, 0755, "hello\n", 6, true);
    put_ok(s, path, 0755, "hello\n", 6, false);
    put_ok(s, path, 0600, "hello\n", 6, false); /* only the mode */
    put_ok(s, path, 0600, "", 0, true);
    size_t n = (size_t)10 << 20;
    GP_AUTO_FREE char *data = xcalloc(n, 1); /* packs well */
    put_ok(s, path, 0644, data, n, true);
    assert_int_equal(fs_random(data, n, NULL), 0); /* does not pack */
    put_ok(s, path, 0644, data, n, true);
    put_ok(s, path, 0644, data, n, false);
    GP_AUTO_FREE char *folder = fx_path("new folder");
    GP_AUTO_FREE char *list = fx_path("list");
    assert_int_equal(RUN_TO(list, "ls", "-A", folder), 0);
    GP_AUTO_FREE char *names = fx_read(list);
    assert_string_equal(names, "it's \"a\" $file"); /* no temporary file is left */
    struct gp_error err = {0};
    assert_int_equal(ssh_put(s, folder, 0644, "x", 1, GP_NEVER, NULL, NULL, &err), -GP_EIO);
    assert_contains(err.msg, "folder of this name");
    gp_error_clear(&err);
    assert_int_equal(ssh_put(s, "/proc/nope/x", 0644, "x", 1, GP_NEVER, NULL, NULL, &err), -GP_EIO);
    assert_contains(err.msg, "llm/1: could not copy to '/proc/nope/x': could not create its folder");
}

static void test_put_disk_full(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_FREE char *small = fx_path("small");
    assert_int_equal(fs_mkdirs(small, 0700, NULL), 0);
    if (mount("none", small, "tmpfs", 0, "size=1m") != 0) {
        print_message("skipped: no tmpfs may be mounted here (%s)\n", strerror(errno));
        skip();
    }
    GP_AUTO_SSH struct ssh_session *s = fx_login();
    GP_AUTO_FREE char *path = fs_join(small, "file");
    size_t n = (size_t)4 << 20;
    GP_AUTO_FREE char *data = xcalloc(n, 1);
    struct gp_error packed = {0}, raw = {0};
    int r1 = ssh_put(s, path, 0644, data, n, GP_NEVER, NULL, NULL, &packed);
    assert_int_equal(fs_random(data, n, NULL), 0);
    int r2 = ssh_put(s, path, 0644, data, n, GP_NEVER, NULL, NULL, &raw);
    GP_AUTO_FREE char *list = fx_path("list2");
    RUN_TO(list, "ls", "-A", small);
    umount(small);
    assert_int_equal(r1, -GP_EIO);
    assert_contains(packed.msg, "llm/1: the disk is full: could not write 4194304 bytes");
    assert_int_equal(r2, -GP_EIO);
    assert_string_equal(raw.detail, "DISK_FULL");
    GP_AUTO_FREE char *names = fx_read(list);
    assert_string_equal(names, "");
}

/* What a node without gzip is sent, when only the packed form is kept. */
static void test_blob_unpacks(void **state) {
    (void)state;
    size_t n = 100000;
    GP_AUTO_FREE char *data = xcalloc(n, 1);
    memset(data + 500, 7, 12);
    GP_AUTO_SSH_BLOB struct ssh_blob blob = {0};
    ssh_blob_make(data, n, &blob);
    assert_non_null(blob.packed);
    blob.data = NULL;
    GP_AUTO_FREE char *back = ssh_blob_unpack(&blob);
    assert_non_null(back);
    assert_memory_equal(back, data, n);
    blob.n--; /* longer or shorter than stated: damaged */
    assert_null(ssh_blob_unpack(&blob));
    blob.n += 2;
    assert_null(ssh_blob_unpack(&blob));
    blob.packed_n /= 2;
    assert_null(ssh_blob_unpack(&blob));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blob_unpacks),
        cmocka_unit_test(test_exit_status),
        cmocka_unit_test(test_signal),
        cmocka_unit_test(test_run_messages),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_stdin),
        cmocka_unit_test(test_100_mb),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_half_a_line_is_not_told),
        cmocka_unit_test(test_too_many_channels),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_put),
        cmocka_unit_test(test_put_disk_full),
    };
    return cmocka_run_group_tests_name("ssh exec", tests, fx_setup, fx_teardown);
}
