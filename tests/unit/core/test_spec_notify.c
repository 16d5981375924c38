/* SPDX-License-Identifier: Apache-2.0 */
/* The spec's list `notify`: what it takes, what it refuses, its form in the journal, and the reading of URLs and keys. */
#include "base/gp_base.h"

#include "../spec_fixture.h"
#include "base/fs.h"

static const char text[] = "name: a\nnotify:\n"
                           "  - {url: 'https://hooks.example:8443/a/b?c=d', secret: env:KEY, on: [failed, leaked]}\n"
                           "  - {url: env:HOOK}\n"
                           "  - {url: 'file:hook', secret: 'file:/k'}\n"
                           "  - {command: 'echo ${X} >>log'}\n"
                           "  - {url: 'http://127.0.0.1:80/x'}\n";

static void whole(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good(text);
    assert_int_equal(s->notify.len, 5);
    const struct spec_notify *n = s->notify.items;
    assert_true(spec_notify_wants(&n[0], NOTIFY_FAILED) && !spec_notify_wants(&n[0], NOTIFY_READY));
    for (enum notify_kind k = NOTIFY_READY; k < NOTIFY_NONE; k++) assert_true(spec_notify_wants(&n[1], k));
    assert_false(spec_notify_wants(&n[1], NOTIFY_NONE));
    assert_true(str_starts(n[2].url, "file:/") && str_ends(n[2].url, "/hook"));
    assert_string_equal(n[3].command, "echo ${X} >>log");
    assert_int_equal(n[1].line, 4);
    GP_AUTO_FREE char *form = spec_canonical(s);
    GP_AUTO_LOADED struct loaded l = {0};
    l.r = spec_load_text("(journal)", form, strlen(form), NULL, &l.spec, &l.problems, &l.err);
    if (l.r != 0) fail_msg("%s: %s", form, l.problems.list.items[0].message);
    GP_AUTO_FREE char *again = spec_canonical(l.spec);
    assert_string_equal(again, form);
}

/* A receiver has no effect on nodes: another one must neither repeat their validation nor show its URL as a change. */
static void no_change(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good("name: a\n"), *with = good(text);
    GP_AUTO_CHANGES struct spec_changes found = {0};
    GP_AUTO_FREE char *before = spec_canonical(s);
    assert_string_equal(s->hash, with->hash);
    spec_changes_find(before, with, &found);
    assert_int_equal(found.list.len, 0);
}

static void refused(void **state) {
    (void)state;
    bad_at("name: a\nnotify: [{url: 'http://hooks.example/x'}]\n", 2, 16, "is not https");
    bad_at("name: a\nnotify: [{url: 'http://127.0.0.1.evil.example/x'}]\n", 2, 16, "is not https");
    bad_at("name: a\nnotify: [{url: 'http://127.0.0.999/x'}]\n", 2, 16, "is not https");
    bad_at("name: a\nnotify: [{url: 'http://127.0.0.1@evil.example/x'}]\n", 2, 16, "a user or a password");
    bad_at("name: a\nnotify: [{url: 'https://me:pw@hooks.example/x'}]\n", 2, 16, "a user or a password");
    bad_at("name: a\nnotify: [{url: 'ftp://hooks.example/x'}]\n", 2, 16, "is not a URL");
    bad_at("name: a\nnotify: [{url: 'https://hooks.example/x y'}]\n", 2, 16, "is not a URL");
    bad_at("name: a\nnotify: [{url: 'env:1X'}]\n", 2, 16, "must be a URL, env:NAME");
    bad_at("name: a\nnotify: [{url: '${env:HOME}'}]\n", 2, 16, "write 'env:HOME' without");
    bad_at("name: a\nnotify: [{url: env:A, secret: '${file:/etc/hostname}'}]\n", 2, 31, "write 'file:/etc/hostname'");
    bad_at("name: a\nnotify: [{url: env:A, secret: plain}]\n", 2, 31,
           "must be env:NAME or file:PATH, which has the key");
    bad_at("name: a\nnotify: [{url: env:A, on: [redy]}]\n", 2, 28, "did you mean 'ready'");
    bad_at("name: a\nnotify: [{url: env:A, on: []}]\n", 2, 27, "is an empty list");
    bad_at("name: a\nnotify: [{url: env:A, command: x}]\n", 2, 32, "both 'url' and 'command'");
    bad_at("name: a\nnotify: [{command: x, secret: env:A}]\n", 2, 31, "a command has none");
    bad_at("name: a\nnotify: [{on: [ready]}]\n", 2, 10, "needs 'url' or 'command'");
    bad_at("name: a\nnotify: {url: env:A}\n", 2, 9, "must be a list");
    bad_at("name: a\nnotify: [{uri: env:A, url: env:A}]\n", 2, 11, "did you mean 'url'");
    bad_at("name: a\nnotify: [{url: env:A}, {url: env:A}, {url: env:A}, {url: env:A}, {url: env:A}, {url: env:A},\n"
           "  {url: env:A}, {url: env:A}, {url: env:A}]\n",
           3, 31, "has 9 entries; at most 8");
}

/* Problems are shown with their line, and end in the logs of a CI. */
static void shown_lines(void **state) {
    (void)state;
    static const struct {
        const char *line, *shown;
    } rows[] = {
        {"notify: [{url: 'http://hooks.example/T0KEN?x', on: [x]}]",
         "notify: [{url: 'http://hooks.example********', on: [x]}]"},
        {"notify: [{\"url\": \"http://me:T0KEN@h/\"}]", "notify: [{\"url\": \"http://***********\"}]"},
        {"notify: [{url: env:A, secret: T0KEN}]", "notify: [{url: env:A, secret: *****}]"},
        {"notify: [{url: ${env:A}, secret: 'file:x'}]", "notify: [{url: ${env:A}, secret: 'file:x'}]"},
        {"notify: https://hooks.example/T0KEN", "notify: https://hooks.example******"},
        {"notify: [https://hooks.example/T0KEN]", "notify: [https://hooks.example******]"},
        {"notify: [{url: T0KEN}]", "notify: [{url: *****}]"},
        {"notify: [{curl: a, url_x: b, on: [url]}]", "notify: [{curl: a, url_x: b, on: [url]}]"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *spec = xasprintf("name: a\n%s\n", rows[i].line),
                          *want = xasprintf("\n  %s\n", rows[i].shown);
        GP_AUTO_LOADED struct loaded l = load(spec);
        GP_AUTO_STR struct str out = {0};
        spec_problems_format(&l.problems, "t.yaml", spec, false, &out);
        if (strstr(out.s, want) == NULL) fail_msg("%s: shown as %s", rows[i].line, out.s);
        assert_null(strstr(out.s, "T0KEN"));
    }
}

static void loopback(void **state) {
    (void)state;
    static const struct {
        const char *url;
        bool yes;
    } rows[] = {{"http://127.0.0.1", true},           {"http://127.9.9.9:80/x", true},
                {"http://[::1]:80/x", true},          {"http://localhost:1/x", true},
                {"http://localhost.example/", false}, {"http://128.0.0.1/", false},
                {"http://127.0.0.1.example/", false}, {"http://[::2]/", false}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++)
        if ((spec_notify_url_wrong(rows[i].url) == NULL) != rows[i].yes) fail_msg("%s", rows[i].url);
    GP_AUTO_FREE char *place = spec_notify_place("https://hooks.example:8443/secret?x");
    assert_string_equal(place, "hooks.example:8443");
}

static void expect_read(const char *value, int rc, const char *part) {
    GP_AUTO_SECRET struct secret url = {0};
    struct gp_error err = {0};
    char from[] = "env:GP_TEST_HOOK";
    const struct spec_notify n = {.url = from};
    if (value != NULL) setenv("GP_TEST_HOOK", value, 1);
    else unsetenv("GP_TEST_HOOK");
    assert_int_equal(spec_notify_read_url(&n, &url, &err), rc);
    if (strstr(err.msg, part) == NULL) fail_msg("'%s' has no '%s'", err.msg, part);
    assert_null(strstr(err.msg, "xyzzy"));
    assert_int_equal(url.len > 0, rc == 0);
}

/* What a variable has is checked as a URL in the spec is, and no error has it. */
static void values_that_are_read(void **state) {
    (void)state;
    expect_read("https://hooks.example/xyzzy", 0, "");
    expect_read("http://hooks.example/xyzzy", -GP_EUSAGE, "'env:GP_TEST_HOOK' is not https");
    expect_read("https://hooks.example/xyzzy\nX: y", -GP_EUSAGE, "is not a URL");
    expect_read("", -GP_EENV, "notify.url: the environment has no GP_TEST_HOOK");
    expect_read(NULL, -GP_EENV, "notify.url: the environment has no GP_TEST_HOOK");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole),
                                       cmocka_unit_test(no_change),
                                       cmocka_unit_test(refused),
                                       cmocka_unit_test(loopback),
                                       cmocka_unit_test(values_that_are_read),
                                       cmocka_unit_test(shown_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
