/* SPDX-License-Identifier: Apache-2.0 */
/* The boundaries of each form of a foreign word, and that a stack's name is the same thing to a spec. */
#include "base/gp_base.h"

#include "base/form.h"
#include "base/str.h"
#include "spec/spec_internal.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static char *times(const char *s, size_t n) {
    GP_AUTO_STR struct str out = {0};
    str_add(&out, "");
    while (n-- > 0) str_add(&out, s);
    return str_steal(&out);
}

/* Bytes that no form takes at any place, and those that only some take first. */
static void takes_nothing_odd(bool (*form)(const char *s), const char *good) {
    assert_true(form(good));
    assert_false(form(NULL));
    assert_false(form(""));
    size_t n = strlen(good);
    for (size_t at = 0; at <= n; at++) {
        for (int c = 1; c < 256; c++) {
            if (c > ' ' && c < 0x7f && strchr("\"'`$&|;<>(){}[]*?!#~\\^", c) == NULL) continue;
            GP_AUTO_FREE char *in = xasprintf("%.*s%c%s", (int)at, good, c, good + at);
            if (form(in)) fail_msg("byte 0x%02x at %zu of '%s'", (unsigned)c, at, good);
            if (at == n) continue;
            GP_AUTO_FREE char *over = xasprintf("%.*s%c%s", (int)at, good, c, good + at + 1);
            if (form(over)) fail_msg("byte 0x%02x in place of %zu of '%s'", (unsigned)c, at, good);
        }
    }
}

static bool is_instance(const char *s) { return form_ec2_id(s, "i-"); }

#define PRINT "SHA256:t+njFn2dZioBvMF8JjNfjeV7CbyMqi1a9uL1FqWy9/s"

static void odd_bytes(void **state) {
    (void)state;
    takes_nothing_odd(form_uid, "0123456789abcdef");
    takes_nothing_odd(form_spec_hash, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    takes_nothing_odd(form_stack, "llm-1");
    takes_nothing_odd(form_owner, "123456789012-jo.doe+x=1,y@z_2");
    takes_nothing_odd(form_fingerprint, PRINT);
    takes_nothing_odd(form_address, "10.0.0.7");
    takes_nothing_odd(form_address, "2001:db8::1");
    takes_nothing_odd(form_host, "gpu-a.example");
    takes_nothing_odd(form_host, "fe80::1%eth0");
    takes_nothing_odd(form_login, "jo.doe@corp+x-1");
    takes_nothing_odd(form_word, "p5.48xlarge");
    takes_nothing_odd(is_instance, "i-0123456789abcdef0");
}

static void lengths(void **state) {
    (void)state;
    static const struct {
        bool (*form)(const char *s);
        const char *prefix, *of;
        size_t min, max;
    } rows[] = {
        {form_uid, "", "a", 16, 16},
        {form_spec_hash, "", "0", 64, 64},
        {form_stack, "", "a", 1, 40},
        {form_owner, "", "A", 1, 128},
        {form_fingerprint, "SHA256:", "A", 43, 43},
        {form_host, "", "h", 1, 255},
        {form_login, "", "u", 1, 64},
        {form_word, "", "w", 1, 64},
        {is_instance, "i-", "f", 8, 17},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        for (size_t n = 0; n <= rows[i].max + 2; n++) {
            GP_AUTO_FREE char *body = times(rows[i].of, n), *word = xasprintf("%s%s", rows[i].prefix, body);
            if (rows[i].form(word) != (n >= rows[i].min && n <= rows[i].max)) fail_msg("row %zu, %zu bytes", i, n);
        }
    }
}

static void refuse(bool (*form)(const char *s), const char *const *words) {
    for (; *words != NULL; words++)
        if (form(*words)) fail_msg("'%s' is taken", *words);
}
#define REFUSE(form, ...) refuse(form, (const char *const[]){__VA_ARGS__, NULL})

static void first_and_other_characters(void **state) {
    (void)state;
    REFUSE(form_uid, "0123456789ABCDEF", "0123456789abcdeg", "../../../etc/pas");
    REFUSE(form_stack, "1a", "-a", "A", "aB", "a_b", "a.b", "a/b", "a@b");
    REFUSE(form_owner, "-a", ".a", "_a", "@a", "+a", "a/b", "a:b", "a%b", "..");
    REFUSE(form_fingerprint, "sha256:t+njFn2dZioBvMF8JjNfjeV7CbyMqi1a9uL1FqWy9/s", "MD5:00:11", PRINT "=", PRINT " x",
           " " PRINT, "SHA256:", "SHA256:-_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    REFUSE(form_address, "10.0.0", "10.0.0.256", "010.0.0.1.1", "fe80::1%eth0", "[::1]", "::1/64", "0x7f.1",
           "localhost");
    REFUSE(form_host, "-h", ".h", "%h", "a/b", "a@b", "a,b", "a=b", "a+b");
    REFUSE(form_login, "-u", ".u", "@u", "+u", "a:b", "a/b", "a%b", "a,b", "a=b");
    REFUSE(form_word, "-w", ".w", "a/b", "a:b", "a@b", "a+b", "..");
    REFUSE(is_instance, "0123456789abcdef0", "i-0123456G", "I-01234567", "sg-01234567", "i-", "i");
    assert_true(form_host("::1") && form_host("_gpu.example") && form_login("_apt") && form_word("_x"));
    assert_true(form_ec2_id("sg-0123456789abcdef0", "sg-") && form_ec2_id("vol-01234567", "vol-"));
}

static const char *name_pattern(void) {
    for (const struct spec_field *f = spec_root.fields; f->name != NULL; f++)
        if (strcmp(f->name, "name") == 0) return f->pattern;
    fail_msg("a spec has no name");
    return NULL;
}

/* What a spec may be named is what a path and a tag may hold. */
static void a_stack_is_what_a_spec_may_be_named(void **state) {
    (void)state;
    const char *pattern = name_pattern();
    static const char *const words[] = {"a",  "llm", "a-b", "a--b", "a-",  "z9",       "",     "-",
                                        "9",  "A",   "aA",  "a_b",  "a.b", "a/b",      "a b",  " a",
                                        "a ", "a\n", "\na", "a\nb", "a\t", "\xc3\xa4", "a\xff"};
    for (size_t i = 0; i < GP_ARRAY_LEN(words); i++)
        if (form_stack(words[i]) != spec_match(pattern, words[i])) fail_msg("'%s'", words[i]);
    for (size_t n = 0; n < 60; n++) {
        GP_AUTO_FREE char *word = times("a", n);
        if (form_stack(word) != spec_match(pattern, word)) fail_msg("%zu letters", n);
    }
    for (int a = 1; a < 128; a++) {
        for (int b = 0; b < 128; b++) {
            char word[3] = {(char)a, (char)b, '\0'};
            if (form_stack(word) != spec_match(pattern, word)) fail_msg("0x%02x 0x%02x", (unsigned)a, (unsigned)b);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_bytes),
        cmocka_unit_test(lengths),
        cmocka_unit_test(first_and_other_characters),
        cmocka_unit_test(a_stack_is_what_a_spec_may_be_named),
    };
    return cmocka_run_group_tests_name("form", tests, NULL, NULL);
}
