/* SPDX-License-Identifier: Apache-2.0 */
/* Ignore rules: the examples of gitignore(5), precedence, and patterns that must not take long. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "tree/ignore.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct row {
    const char *rules, *path;
    bool is_dir, ignored;
};
static const struct row rows[] = {
    /* a pattern without a slash matches at any depth, and names only */
    {"hello", "hello", false, true},
    {"hello", "a/b/hello", false, true},
    {"hello", "hello2", false, false},
    {"hello.*", "x/hello.c", false, true},
    {"*.o", "a/.o", false, true},
    {"*.o", "a.o/b", false, false}, /* the folder a.o itself matches; the caller does not look below */
    {"foo*bar", "foo-x-bar", false, true},
    {"foo*bar", "foo/bar", false, false},
    {"?", "a", false, true},
    {"?", "ab", false, false},
    /* folders only */
    {"frotz/", "frotz", true, true},
    {"frotz/", "a/frotz", true, true},
    {"frotz/", "frotz", false, false},
    {"doc/frotz/", "doc/frotz", true, true},
    {"doc/frotz/", "a/doc/frotz", true, false},
    /* a slash at the beginning or in the middle ties it to the folder */
    {"/foo", "foo", false, true},
    {"/foo", "a/foo", false, false},
    {"doc/*.txt", "doc/a.txt", false, true},
    {"doc/*.txt", "doc/sub/a.txt", false, false},
    {"foo/*", "foo/test.json", false, true},
    {"foo/*", "foo/bar/hello.c", false, false},
    {"foo/*", "foo", true, false},
    /* ** */
    {"**/foo", "foo", false, true},
    {"**/foo", "a/b/foo", false, true},
    {"**/foo/bar", "x/foo/bar", false, true},
    {"**/foo/bar", "foo/bar", false, true},
    {"**/foo/bar", "foo/x/bar", false, false},
    {"abc/**", "abc/x", false, true},
    {"abc/**", "abc/x/y/z", false, true},
    {"abc/**", "abc", true, false},
    {"a/**/b", "a/b", false, true},
    {"a/**/b", "a/x/b", false, true},
    {"a/**/b", "a/x/y/b", false, true},
    {"a/**/b", "ab", false, false},
    {"a/**/b/**/c", "a/x/b/y/b/c", false, true},
    {"a/**/b/**/c", "a/x/b/y/c/d", false, false},
    {"a**b", "axxb", false, true},
    {"**", "a/b", false, true},
    /* negation: the last rule decides */
    {"*.o\n!keep.o", "keep.o", false, false},
    {"!keep.o\n*.o", "keep.o", false, true},
    {"/*\n!/foo\n/foo/*\n!/foo/bar", "foo", true, false},
    {"/*\n!/foo\n/foo/*\n!/foo/bar", "foo/bar", true, false},
    {"/*\n!/foo\n/foo/*\n!/foo/bar", "foo/baz", false, true},
    {"/*\n!/foo\n/foo/*\n!/foo/bar", "other", false, true},
    /* comments, blanks, escapes */
    {"# no\n\n   \nyes", "yes", false, true},
    {"#no", "#no", false, false},
    {"\\#no", "#no", false, true},
    {"\\!no", "!no", false, true},
    {"trailing   ", "trailing", false, true},
    {"trailing\\ ", "trailing ", false, true},
    {" leading", " leading", false, true},
    {"with\\*star", "with*star", false, true},
    {"with\\*star", "withXstar", false, false},
    {"windows\r\n", "windows", false, true},
    {"/", "a", true, false},
    {"!", "a", true, false},
    /* sets */
    {"[ab]", "a", false, true},
    {"[ab]", "c", false, false},
    {"[!ab]", "c", false, true},
    {"[^ab]", "a", false, false},
    {"[a-c]x", "bx", false, true},
    {"[a-c]x", "dx", false, false},
    {"[]a]", "]", false, true},
    {"[!]a]", "b", false, true},
    {"[!]a]", "]", false, false},
    {"[a-]", "-", false, true},
    {"[[:digit:]]*", "1x", false, true},
    {"[[:digit:]]*", "x1", false, false},
    {"[[:alpha:]_-]", "-", false, true},
    {"[\\]]", "]", false, true},
    {"[a", "[a", false, false}, /* a set that does not end matches nothing */
    {"[a", "a", false, false},
    {"a[b/c]d", "abd", false, false},
    {"\\", "\\", false, true},
};

static void rows_match(void **state) {
    (void)state;
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct ignore_rules r = {0};
        ignore_add(&r, "", rows[i].rules, strlen(rows[i].rules));
        bool got = ignore_match(&r, rows[i].path, rows[i].is_dir);
        if (got != rows[i].ignored) fail_msg("'%s' with '%s': %d", rows[i].rules, rows[i].path, got);
        ignore_clear(&r);
    }
}

static void rules_of_a_folder_hold_below_it(void **state) {
    (void)state;
    struct ignore_rules r = {0};
    ignore_add(&r, "", "*.log\n", 6);
    ignore_add(&r, "a/b", "!*.log\n/x\n", 10);
    assert_true(ignore_match(&r, "y.log", false));
    assert_false(ignore_match(&r, "a/b/y.log", false));
    assert_false(ignore_match(&r, "a/b/c/y.log", false));
    assert_true(ignore_match(&r, "a/bc/y.log", false));
    assert_true(ignore_match(&r, "a/b/x", false));
    assert_false(ignore_match(&r, "a/b/c/x", false));
    assert_false(ignore_match(&r, "x", false));
    ignore_cut(&r, 1);
    assert_true(ignore_match(&r, "a/b/y.log", false));
    ignore_clear(&r);
}

static void patterns_take_no_exponential_time(void **state) {
    (void)state;
    struct ignore_rules r = {0};
    GP_AUTO_STR struct str name = {0}, path = {0}, stars = {0};
    for (int i = 0; i < 250; i++) str_add(&name, "a");
    for (int i = 0; i < 500; i++) str_add(&path, "a/");
    str_add(&path, "c");
    for (int i = 0; i < 100; i++) str_add(&stars, "**/a/");
    str_add(&stars, "b");
    static const char many[] = "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b\n";
    ignore_add(&r, "", many, strlen(many));
    ignore_add(&r, "", stars.s, stars.len);
    assert_false(ignore_match(&r, name.s, false));
    assert_false(ignore_match(&r, path.s, false));
    ignore_clear(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_match), cmocka_unit_test(rules_of_a_folder_hold_below_it),
                                       cmocka_unit_test(patterns_take_no_exponential_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
