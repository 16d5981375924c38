/* SPDX-License-Identifier: Apache-2.0 */
/* Strings with a maximum, lists of strings, quoting, numbers, distances, vectors and errors. */
#include "base/gp_base.h"

#include "base/error.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/str.h"
#include "base/vec.h"
#include "folder.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void grows_and_stops_at_its_maximum(void **state) {
    (void)state;
    GP_AUTO_STR struct str s = {0};
    for (int i = 0; i < 1000; i++) assert_true(str_addf(&s, "%d,", i));
    assert_int_equal(s.len, 3890);
    assert_int_equal(s.s[s.len], '\0');
    GP_AUTO_STR struct str small = {.max = 5};
    assert_true(str_add(&small, "abc"));
    assert_false(str_add(&small, "defg"));
    assert_string_equal(small.s, "abcde");
    assert_true(small.truncated);
    assert_false(str_addc(&small, 'x'));
    str_reset(&small);
    assert_false(small.truncated);
    assert_string_equal(small.s, "");
    assert_true(str_addf(&small, "%s", "12345"));
    str_clear(&small);
    assert_int_equal(small.max, 5);
    assert_null(small.s);
}

static void made_one_line(const char *text, const char *want) {
    GP_AUTO_FREE char *s = xstrdup(text);
    str_one_line(s);
    assert_string_equal(s, want);
}

static void bytes_for_people(void **state) {
    (void)state;
    const struct {
        uint64_t n;
        const char *want;
    } rows[] = {{0, "0 B"},
                {999, "999 B"},
                {1000, "1.0 kB"},
                {1234, "1.2 kB"},
                {999949, "999.9 kB"},
                {999950, "1.0 MB"},
                {3000000, "3.0 MB"},
                {1500000000, "1.5 GB"},
                {2000000000000, "2.0 TB"},
                {UINT64_MAX, "18446.7 PB"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        char text[24];
        bytes_format(text, sizeof text, rows[i].n);
        assert_string_equal(text, rows[i].want);
    }
}

static void one_line_steers_no_terminal(void **state) {
    (void)state;
    made_one_line("", "");
    made_one_line("a\tb\nc", "a b c");
    made_one_line("\x1b[31mred\x7f", "?[31mred?");
    made_one_line("\xc2\x9b"
                  "31m",
                  "?31m"); /* CSI as U+009B */
    made_one_line("\xe2\x80\xae"
                  "evil\xe2\x81\xa9",
                  "?evil?"); /* text turned around */
    made_one_line("gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x98\x80",
                  "gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x98\x80");
    made_one_line("\xff\xe4\xb8", "???"); /* not UTF-8, and cut within a character */
}

/* A message that fills the struct is cut between characters: --json needs valid UTF-8. */
static void long_errors_stay_utf8(void **state) {
    (void)state;
    char path[600];
    for (size_t shift = 0; shift < 3; shift++) {
        size_t n = shift;
        memset(path, 'x', shift);
        for (; n + 3 < sizeof path; n += 3) memcpy(path + n, "\xe4\xb8\xad", 3);
        path[n] = '\0';
        struct gp_error plain = {0}, os = {0};
        gp_fail(&plain, GP_EUSAGE, "'%s'", path);
        gp_wrap(&plain, "%s", path + shift);
        gp_fail_errno(&os, GP_EIO, ENOENT, "could not read '%s'", path);
        GP_AUTO_JSON json_t *a = json_string(plain.msg), *b = json_string(os.msg);
        assert_non_null(a);
        assert_non_null(b);
    }
    GP_AUTO_JSON json_t *odd = json_any_text("a\xff"), *none = json_any_text(NULL);
    assert_string_equal(json_string_value(odd), "a?");
    assert_true(json_is_null(none));
}

static void formats_longer_than_the_stack_buffer(void **state) {
    (void)state;
    char big[3000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    GP_AUTO_STR struct str s = {0};
    assert_true(str_addf(&s, "<%s>", big));
    assert_int_equal(s.len, sizeof big + 1);
    assert_int_equal(s.s[s.len - 1], '>');
    GP_AUTO_STR struct str exact = {0}; /* 255 and 256 characters: the edge of that buffer */
    for (int n = 254; n <= 257; n++) {
        str_reset(&exact);
        assert_true(str_addf(&exact, "%.*s", n, big));
        assert_int_equal(exact.len, n);
    }
}

static void steals(void **state) {
    (void)state;
    struct str s = {0};
    GP_AUTO_FREE char *empty = str_steal(&s);
    assert_string_equal(empty, "");
    str_add(&s, "x");
    GP_AUTO_FREE char *x = str_steal(&s);
    assert_string_equal(x, "x");
    assert_null(s.s);
}

/* What the shell makes of it, not what we think of it. */
static void quotes_for_sh(void **state) {
    (void)state;
    const char *text = "it's $HOME `id` \"x\" \\ \n*;&|'";
    GP_AUTO_STR struct str cmd = {0};
    str_add(&cmd, "printf %s ");
    str_add_shquoted(&cmd, text);
    int p[2];
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(p[1], 1);
        execl("/bin/sh", "sh", "-c", cmd.s, (char *)NULL);
        _exit(127);
    }
    close(p[1]);
    char got[256] = "";
    size_t n = 0;
    for (ssize_t r = 1; r > 0; n += (size_t)r) {
        r = read(p[0], got + n, sizeof got - 1 - n);
        if (r < 0) break;
    }
    close(p[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_string_equal(got, text);
}

static void json_text_is_escaped_and_utf8(void **state) {
    (void)state;
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"a\"b\\c", "a\\\"b\\\\c"},
        {"\n\t\r", "\\n\\t\\r"},
        {"\x01\x7f", "\\u0001\\u007f"},
        {"\xc3\xa9", "\xc3\xa9"},
        {"\xff", "\\ufffd"},
        {"\xc3", "\\ufffd"},
        {"\xc0\xaf", "\\ufffd\\ufffd"},
        {"\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd"},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
        {"\xf5\x80\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd"},
        {"\xe0\x80\x80", "\\ufffd\\ufffd\\ufffd"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_STR struct str s = {0};
        str_add_json(&s, rows[i].in, strlen(rows[i].in));
        assert_string_equal(s.s, rows[i].out);
    }
    GP_AUTO_STR struct str nul = {0};
    str_add_json(&nul, "a\0b", 3);
    assert_string_equal(nul.s, "a\\u0000b");
}

static void lists(void **state) {
    (void)state;
    GP_AUTO_STRV struct strv v = {0}, w = {0};
    strv_split(&v, " a, b,,c ", ", ");
    assert_int_equal(v.n, 3);
    assert_null(v.v[3]);
    assert_true(strv_has(&v, "b"));
    assert_false(strv_has(&v, "d"));
    strv_merge(&w, &v);
    strv_merge(&w, &v);
    for (int i = 0; i < 100; i++) strv_add(&w, "x");
    assert_int_equal(w.n, 103);
    GP_AUTO_FREE char *joined = strv_join(&v, "+");
    assert_string_equal(joined, "a+b+c");
    GP_AUTO_STRV struct strv none = {0};
    GP_AUTO_FREE char *empty = strv_join(&none, "+");
    assert_string_equal(empty, "");
    assert_false(strv_has(&none, ""));
}

static void small_helpers(void **state) {
    (void)state;
    assert_true(str_starts("abc", "ab") && !str_starts("a", "ab") && str_starts("a", ""));
    assert_string_equal(str_without_name("lambda: no key", "lambda"), "no key");
    assert_string_equal(str_without_name("lambda:no key", "lambda"), "lambda:no key");
    assert_string_equal(str_without_name("lambdas: no key", "lambda"), "lambdas: no key");
    assert_string_equal(str_without_name("lambda", "lambda"), "lambda");
    assert_true(str_ends("abc", "bc") && !str_ends("c", "bc") && str_ends("c", ""));
    assert_true(str_eq(NULL, NULL) && !str_eq(NULL, "") && str_eq("a", "a"));
    char text[] = " \t x y \n";
    assert_string_equal(str_trim(text), "x y");
    char blank[] = "  ";
    assert_string_equal(str_trim(blank), "");
    char dst[4];
    assert_true(str_put(dst, sizeof dst, "abc"));
    assert_false(str_put(dst, sizeof dst, "abcd"));
    assert_string_equal(dst, "abc");
    char hex[7];
    str_hex(hex, "\x00\xff\x1a", 3);
    assert_string_equal(hex, "00ff1a");
}

static void numbers(void **state) {
    (void)state;
    int64_t i = 7;
    assert_true(str_to_i64("-12", -12, 0, &i));
    assert_int_equal(i, -12);
    static const char *const not_ints[] = {"",    " 1", "1 ", "+1", "0x10", "1.0", "1e3", "-", "9223372036854775808",
                                           "--1", "abc"};
    for (size_t k = 0; k < GP_ARRAY_LEN(not_ints); k++) {
        assert_false(str_to_i64(not_ints[k], INT64_MIN, INT64_MAX, &i));
        assert_int_equal(i, -12); /* untouched */
    }
    assert_false(str_to_i64("5", 6, 9, &i));
    double d = 7;
    assert_true(str_to_double("-1.5e3", &d));
    assert_true(d == -1500);
    assert_true(str_to_double(".5", &d));
    static const char *const not_doubles[] = {"", "nan", "inf", "-inf", "0x1p3", "1,5", "1 ", " 1", "1e999", "x"};
    for (size_t k = 0; k < GP_ARRAY_LEN(not_doubles); k++) assert_false(str_to_double(not_doubles[k], &d));
}

static void distances(void **state) {
    (void)state;
    assert_int_equal(str_distance("", ""), 0);
    assert_int_equal(str_distance("abc", "ABC"), 0);
    assert_int_equal(str_distance("kitten", "sitting"), 3);
    assert_int_equal(str_distance("nodse", "nodes"), 1); /* two letters swapped are one mistake */
    char sixty_four[65];
    memset(sixty_four, 'a', 64);
    sixty_four[64] = '\0';
    assert_true(str_distance(sixty_four, "a") == SIZE_MAX);
    static const char *const names[] = {"nodes", "name", "offers", NULL};
    assert_string_equal(str_closest("ofers", names), "offers");
    assert_null(str_closest("zzzzz", names));
    assert_null(str_closest("", names));
    assert_null(str_closest(sixty_four, names));
}

static void vectors(void **state) {
    (void)state;
    VEC_OF(int) v = {0};
    for (int i = 0; i < 100; i++) vec_push(&v, i);
    assert_int_equal(v.len, 100);
    assert_int_equal(v.items[99], 99);
    vec_free(&v);
    assert_null(v.items);
    assert_int_equal(v.cap, 0);
}

static void errors(void **state) {
    (void)state;
    struct gp_error e = {0};
    assert_int_equal(gp_fail(&e, GP_EQUOTA, "two\nlines \x1b %d", 1), -GP_EQUOTA);
    assert_string_equal(e.msg, "two lines ? 1");
    assert_int_equal(gp_wrap(&e, "node %d", 3), -GP_EQUOTA);
    assert_string_equal(e.msg, "node 3: two lines ? 1");
    gp_error_clear(&e);
    assert_int_equal(e.code, GP_OK);
    assert_int_equal(gp_fail_errno(&e, GP_EIO, ENOENT, "could not read '%s'", "x"), -GP_EIO);
    assert_string_equal(e.msg, "could not read 'x': No such file or directory");
    assert_string_equal(e.detail, "ENOENT");
    assert_int_equal(e.domain, GP_D_OS);
    gp_error_clear(&e);
    char big[2000];
    memset(big, 'y', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    gp_fail(&e, GP_EIO, "%s", big);
    for (int i = 0; i < 3; i++) gp_wrap(&e, "%s", big);
    gp_fail_errno(&(struct gp_error){0}, GP_EIO, EPERM, "%s", big);
    assert_int_equal(strlen(e.msg), GP_ERROR_MSG_MAX - 1);
    assert_int_equal(gp_fail(NULL, GP_EAUTH, "x"), -GP_EAUTH);
}

static void exit_codes(void **state) {
    (void)state;
    static const struct {
        enum gp_code code;
        int exit_code;
    } rows[] = {{GP_EUSAGE, 1},    {GP_ECAPACITY, 3},    {GP_EQUOTA, 4},     {GP_EMONEY, 4},    {GP_EAUTH, 5},
                {GP_EENDPOINT, 1}, {GP_EREACH, 6},       {GP_EBOOTSTRAP, 6}, {GP_EVALIDATE, 7}, {GP_EBILLED, 8},
                {GP_EJOB, 9},      {GP_ECANCELLED, 130}, {GP_EUNKNOWN, 8},   {GP_OK, 0}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) assert_int_equal(gp_exit_code(rows[i].code), rows[i].exit_code);
    for (int c = 0; c <= GP_CODE_MAX; c++) assert_non_null(gp_code_name((enum gp_code)c));
    static const int order[] = {8, 5, 4, 3, 6, 7, 9, 1, 130, 2, 0};
    for (size_t i = 0; i + 1 < GP_ARRAY_LEN(order); i++) {
        assert_int_equal(gp_exit_worst(order[i], order[i + 1]), order[i]);
        assert_int_equal(gp_exit_worst(order[i + 1], order[i]), order[i]);
    }
}

/* Whatever the file is, what was read is a string: readers use it as one. */
static void read_is_a_string(void **state) {
    (void)state;
    char dir[200];
    assert_non_null(make_folder(dir, sizeof dir, "fs"));
    GP_AUTO_FREE char *empty = fs_join(dir, "empty"), *binary = fs_join(dir, "binary"), *none = fs_join(dir, "none");
    assert_int_equal(fs_write_atomic(empty, "", 0, 0600, NULL), 0);
    assert_int_equal(fs_write_atomic(binary, "ab\0cd\xff", 6, 0600, NULL), 0);
    const char *const paths[] = {empty, none, dir, binary, "/dev/null"};
    for (size_t i = 0; i < GP_ARRAY_LEN(paths); i++) {
        GP_AUTO_STR struct str all = {0}, text = {0}, end = {0}, less = {0};
        (void)fs_read(paths[i], 100, &all, NULL);
        (void)fs_read_text(paths[i], 100, &text, NULL);
        (void)fs_read_end(paths[i], 100, &end, NULL);
        (void)fs_read(paths[i], 3, &less, NULL);
        if (all.s == NULL || text.s == NULL || end.s == NULL || less.s == NULL) fail_msg("%s", paths[i]);
    }
    struct gp_error err = {0};
    GP_AUTO_STR struct str text = {0};
    str_add(&text, "kept");
    assert_int_equal(fs_read_text(binary, 100, &text, &err), -GP_EIO);
    assert_non_null(strstr(err.msg, "has a NUL byte: give another file"));
    assert_string_equal(text.s, "kept");
    assert_int_equal(text.len, 4);
    assert_int_equal(fs_read_text(empty, 100, &text, NULL), 0);
    GP_AUTO_STR struct str small = {.max = 3}; /* less than the file: not a part of it */
    gp_error_clear(&err);
    assert_int_equal(fs_read(binary, 100, &small, &err), -GP_EIO);
    assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

static void files(void **state) {
    (void)state;
    char dir[200];
    assert_non_null(make_folder(dir, sizeof dir, "fs"));
    struct gp_error err = {0};
    GP_AUTO_FREE char *deep = fs_join(dir, "a/b/c"), *file = fs_join(deep, "f");
    assert_int_equal(fs_mkdirs(deep, 0700, &err), 0);
    assert_int_equal(fs_mkdirs(deep, 0700, &err), 0);
    assert_int_equal(fs_write_atomic(file, "hello", 5, 0600, &err), 0);
    assert_int_equal(fs_write_atomic(file, "again", 5, 0600, &err), 0);
    GP_AUTO_STR struct str text = {0};
    assert_int_equal(fs_read(file, 5, &text, &err), 0);
    assert_string_equal(text.s, "again");
    assert_int_equal(fs_read(file, 4, &text, &err), -GP_EIO);
    gp_error_clear(&err);
    assert_int_equal(fs_read(deep, 100, &text, &err), -GP_EIO);
    gp_error_clear(&err);
    GP_AUTO_FREE char *none = fs_join(dir, "none"), *link = fs_join(dir, "a/link");
    assert_int_equal(fs_read(none, 100, &text, &err), -GP_ENOTFOUND);
    gp_error_clear(&err);
    GP_AUTO_FREE char *outside = fs_join(dir, "outside"), *keep = fs_join(outside, "keep");
    assert_int_equal(fs_mkdirs(outside, 0700, &err), 0);
    assert_int_equal(fs_write_atomic(keep, "", 0, 0600, &err), 0);
    assert_int_equal(symlink(outside, link), 0);
    GP_AUTO_FREE char *a = fs_join(dir, "a");
    assert_int_equal(fs_remove_tree(a, &err), 0); /* the link goes, what it points to stays */
    assert_false(fs_exists(a));
    assert_true(fs_exists(keep));
    assert_int_equal(fs_remove_tree(a, &err), 0);
    assert_int_equal(fs_remove_tree(dir, &err), 0);
}

static void paths(void **state) {
    (void)state;
    setenv("HOME", "/home/me", 1);
    GP_AUTO_FREE char *a = fs_relative_to("dir/spec.yaml", "x"), *b = fs_relative_to("spec.yaml", "x");
    GP_AUTO_FREE char *c = fs_relative_to("/d/spec.yaml", "/x"), *d = fs_relative_to("d/s", "~/x");
    GP_AUTO_FREE char *e = fs_expand_home("~other/x"), *f = fs_join("a/", "b"), *g = fs_join("a", "/b");
    assert_string_equal(a, "dir/x");
    assert_string_equal(b, "x");
    assert_string_equal(c, "/x");
    assert_string_equal(d, "/home/me/x");
    assert_string_equal(e, "~other/x");
    assert_string_equal(f, "a/b");
    assert_string_equal(g, "/b");
}

/* Four significant digits, never an exponent. */
static void figures(void **state) {
    (void)state;
    static const struct {
        double v;
        const char *text;
    } cases[] = {{58746, "58746"},
                 {16200300, "16200300"},
                 {3e11, "300000000000"},
                 {0.00006877, "0.00006877"},
                 {1.2e-7, "0.00000012"},
                 {0.9754, "0.9754"},
                 {12.345, "12.35"},
                 {1, "1"},
                 {0, "0"},
                 {-2.5, "-2.5"},
                 {1000, "1000"},
                 {NAN, "not measured"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        char text[STR_FIGURE];
        assert_string_equal(str_figure(text, cases[i].v), cases[i].text);
    }
    char long_one[STR_FIGURE];
    assert_null(strchr(str_figure(long_one, 1e300), 'e'));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_and_stops_at_its_maximum),
        cmocka_unit_test(bytes_for_people),
        cmocka_unit_test(one_line_steers_no_terminal),
        cmocka_unit_test(long_errors_stay_utf8),
        cmocka_unit_test(formats_longer_than_the_stack_buffer),
        cmocka_unit_test(steals),
        cmocka_unit_test(quotes_for_sh),
        cmocka_unit_test(json_text_is_escaped_and_utf8),
        cmocka_unit_test(lists),
        cmocka_unit_test(small_helpers),
        cmocka_unit_test(numbers),
        cmocka_unit_test(distances),
        cmocka_unit_test(vectors),
        cmocka_unit_test(errors),
        cmocka_unit_test(exit_codes),
        cmocka_unit_test(files),
        cmocka_unit_test(read_is_a_string),
        cmocka_unit_test(paths),
        cmocka_unit_test(figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
