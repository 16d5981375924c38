/* SPDX-License-Identifier: Apache-2.0 */
/* A program that prints credentials: its output, its refusals, and its end in every case. */
#include "base/gp_base.h"

#include "providers/common/program.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_MS 60000

/* Runs a script of the shell. */
static int run(const char *script, int64_t timeout_ms, const struct gp_cancel *cancel, struct str *out,
               struct gp_error *err) {
    char sh[] = "sh", c[] = "-c";
    GP_AUTO_FREE char *text = xstrdup(script);
    char *argv[] = {sh, c, text, NULL};
    return program_run(argv, timeout_ms, cancel, out, err);
}

static void no_child_is_left(void) {
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void test_output(void **state) {
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    (void)state;
    assert_int_equal(run("printf 'a key'; cat", LONG_MS, NULL, &out, &err), 0); /* its input is empty */
    assert_string_equal(out.s, "a key");
    no_child_is_left();
}

static void test_refusals(void **state) {
    static const struct {
        const char *script;
        int64_t timeout_ms;
        int code;
        const char *text;
    } rows[] = {
        {"echo half; exit 3", LONG_MS, GP_EAUTH, "'sh' failed with status 3 (its message is above)"},
        {"kill -9 $$", LONG_MS, GP_EAUTH, "'sh' failed with status 137"},
        {"head -c 65537 /dev/zero; exec sleep 1000", LONG_MS, GP_EPROTO, "more than 64 KiB"},
        {"echo half; exec sleep 1000", 50, GP_ETIMEOUT, "timed out"},
        {"echo whole; exec sleep 1000 >&-", 50, GP_ETIMEOUT, "timed out"},
    };
    (void)state;
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_STR struct str out = {0};
        struct gp_error err = {0};
        assert_int_equal(run(rows[i].script, rows[i].timeout_ms, NULL, &out, &err), -rows[i].code);
        if (strstr(err.msg, rows[i].text) == NULL) fail_msg("%s: '%s'", rows[i].script, err.msg);
        no_child_is_left();
    }
}

/* What a program leaves behind may hold its output, and does not delay the answer. */
static void test_a_child_that_stays(void **state) {
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    int64_t child = 0;
    (void)state;
    if (run("sleep 1000 & printf %s $!", LONG_MS, NULL, &out, &err) != 0) fail_msg("%s", err.msg);
    assert_true(str_to_i64(out.s, 2, INT32_MAX, &child));
    assert_int_equal(kill((pid_t)child, SIGKILL), 0);
    no_child_is_left();
}

/* A program that asks nobody is killed with its children: the last one that holds the pipe is gone. */
static void test_the_whole_group_is_killed(void **state) {
    GP_AUTO_STR struct str out = {0}, messages = {0};
    struct gp_error err = {0};
    char sh[] = "sh", c[] = "-c", script[] = "sleep 1000 & sleep 1000 & wait";
    char *argv[] = {sh, c, script, NULL};
    int ends[2];
    char byte = 0;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(program_run_quiet(argv, 100, 300, NULL, &out, &messages, &err), -GP_ETIMEOUT);
    close(ends[1]);
    if (gp_wait_fd(ends[0], POLLIN, clock_deadline(LONG_MS), NULL, NULL, &err) != 0) fail_msg("a child is alive");
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
    no_child_is_left();
}

static void test_the_largest_output(void **state) {
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    (void)state;
    assert_int_equal(run("head -c 65536 /dev/zero", LONG_MS, NULL, &out, &err), 0);
    assert_int_equal(out.len, PROGRAM_MAX);
    no_child_is_left();
}

static void test_cancelled(void **state) {
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    struct gp_cancel cancel;
    (void)state;
    assert_int_equal(gp_cancel_init(&cancel, &err), 0);
    gp_cancel_set(&cancel);
    assert_int_equal(run("exec sleep 1000", LONG_MS, &cancel, &out, &err), -GP_ECANCELLED);
    no_child_is_left();
    gp_cancel_clear(&cancel);
}

static void test_missing(void **state) {
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    char name[] = "/nonexistent/helper";
    char *argv[] = {name, NULL};
    (void)state;
    assert_int_equal(program_run(argv, LONG_MS, NULL, &out, &err), -GP_ENOTFOUND);
    assert_non_null(strstr(err.msg, "could not start '/nonexistent/helper'"));
    no_child_is_left();
}

static void test_quiet(void **state) {
    (void)state;
    char sh[] = "sh", c[] = "-c",
         text[] = "echo out; head -c 9000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 3";
    char *argv[] = {sh, c, text, NULL};
    GP_AUTO_STR struct str out = {0}, messages = {0};
    struct gp_error err = {0};
    assert_int_equal(program_run_quiet(argv, 100, LONG_MS, NULL, &out, &messages, &err), -GP_EAUTH);
    assert_string_equal(err.msg, "'sh' failed with status 3");
    assert_string_equal(out.s, "out\n");
    assert_int_equal(messages.len, 4096);
    assert_true(str_ends(messages.s, "xxthe end\n"));
    char many[] = "head -c 101 /dev/zero";
    char *flood[] = {sh, c, many, NULL};
    gp_error_clear(&err);
    str_clear(&out);
    assert_int_equal(program_run_quiet(flood, 100, LONG_MS, NULL, &out, &messages, &err), -GP_EPROTO);
    no_child_is_left();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output),
        cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_a_child_that_stays),
        cmocka_unit_test(test_the_whole_group_is_killed),
        cmocka_unit_test(test_the_largest_output),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
