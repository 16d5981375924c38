/* SPDX-License-Identifier: Apache-2.0 */
/* No secret passes the redactor; secrets themselves. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/log.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static void redact(const char *value) {
    GP_AUTO_SECRET struct secret s = {0};
    secret_set(&s, value, strlen(value));
    log_redact(&s);
}

static void redacts(void **state) {
    (void)state;
    redact("hunter2");
    redact("hunter2-and-more"); /* the longer one first, whatever the order they came in */
    redact("short");            /* less than 6 bytes: would redact half of the language */
    redact("hunter2");
    redact("first line\nsecond line\r\nend\n"); /* is shown line by line */
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"", ""},
        {"nothing here", "nothing here"},
        {"hunter2", "***"},
        {"a hunter2hunter2 b", "a ****** b"},
        {"x=hunter2-and-more;", "x=***;"},
        {"hunter2-and-mor", "***-and-mor"},
        {"hunter", "hunter"},
        {"short", "short"},
        {"it said: second line!", "it said: ***!"},
        {"first line\nsecond line\r\nend\n", "***"},
        {"the end", "the end"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *out = log_redacted(rows[i].in);
        assert_string_equal(out, rows[i].out);
    }
    log_close();
    GP_AUTO_FREE char *out = log_redacted("hunter2");
    assert_string_equal(out, "hunter2"); /* forgotten */
}

/* A reply of a hostile service: the time grows with its length, not with the square of it. */
static void a_long_word_of_urls(void **state) {
    (void)state;
    enum { TIMES = 1 << 20 };
    GP_AUTO_STR struct str text = {0};
    for (int i = 0; i < TIMES; i++) str_add(&text, "://");
    GP_AUTO_FREE char *out = log_redacted(text.s);
    assert_string_equal(out, text.s);
    str_add(&text, "u:secret@h ://v:other@h");
    GP_AUTO_FREE char *with = log_redacted(text.s);
    assert_null(strstr(with, "secret"));
    assert_null(strstr(with, "other"));
}

/* Foreign output is cleaned before values are looked for, and what cleaning makes of a value is one of its forms. */
static void cleaned(void **state) {
    (void)state;
    static const struct {
        const char *value, *in, *out;
    } rows[] = {
        {"p\344ssw\366rd-Long-Secret-1234", "as p\344ssw\366rd-Long-Secret-1234.", "as ***."},
        {"p\344ssw\366rd-Long-Secret-1234", "as p?ssw?rd-Long-Secret-1234.", "as ***."},
        {"a line\nanother \377 line", "it is: another \377 line", "it is: ***"},
        {"0123456789abcdefghijklmnopqrstuv", "token=0123456789abcdefgh\033[01;31mijkl\033[mmnopqrstuv", "token=***"},
        {"0123456789abcdefghijklmnopqrstuv", "token=0123\033[K456789abcdefghijklmnopqrst\033[muv\n", "token=***\n"},
        {"with\ttab and\033[1m escape", "with\ttab and\033[1m escape", "***"},
        {"\344", "nothing: \344", "nothing: ?"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        redact(rows[i].value);
        GP_AUTO_FREE char *out = log_cleaned(rows[i].in);
        assert_string_equal(out, rows[i].out);
        log_close();
    }
}

/* Values that have a text of their own, as those of ${env:..}: short ones in quotes, longer ones as words, long ones also
 * when they were cut; errors pass through it. */
static void as_text(void **state) {
    (void)state;
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"not 'us' but us", "not '${env:A}' but us"},
        {"at us-east-1, us-east-1a", "at ${env:B}, us-east-1a"},
        {"xtoken-0123456789abcdefx", "x${env:C}x"},
        {"'token-0123456789a' cut", "'${env:C}' cut"},
        {"token-0123456789abcdXY", "token-0123456789abcdXY"},
        {"https://h.example/token-0123456789abcdef", "https://h.example/${env:C}"},
        {"https://h.example/ itself", "https://h.example/ itself"},
        {"line-one-of-key and line-two-of-key", "${file:k} and ${file:k}"},
    };
    log_redact_as("us", "${env:A}");
    log_redact_as("us-east-1", "${env:B}");
    log_redact_as("token-0123456789abcdef", "${env:C}");
    log_redact_as("https://h.example/token-0123456789abcdef", "https://h.example/${env:C}");
    log_redact_as("line-one-of-key\nline-two-of-key\n", "${file:k}");
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *out = log_redacted(rows[i].in), *again = log_redacted(out);
        assert_string_equal(out, rows[i].out);
        assert_string_equal(again, out);
    }
    struct gp_error err = {0};
    gp_fail(&err, GP_EUSAGE, "no '%s'", "token-0123456789abcdef");
    gp_wrap(&err, "%s", "us-east-1");
    gp_append(&err, "; see %s", "token-0123456789abcdef");
    assert_string_equal(err.msg, "${env:B}: no '${env:C}'; see ${env:C}");
    log_reveal("us-east-1");
    GP_AUTO_FREE char *out = log_redacted("at us-east-1");
    assert_string_equal(out, "at us-east-1");
    log_close();
}

/* A file that a spec names may have the program's own sentences: they stay. A secret that has one stays hidden but for
 * those words. What is shown for a piece of a value is a replacement, without the text that was around it. */
static void own_words(void **state) {
    (void)state;
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"not looked at: aws, where it may still be billed", "not looked at${file:n}may still be billed"},
        {"and nothing is left of it: x", "and nothing is left${file:n}: x"},
        {"it may still be billed here", "it may still be billed here"},
        {"pw-1 may still be billed pw-2", "${env:P}may still be billed${env:P}"},
        {"may still be billed-tail", "may still be billed***"},
        {"everything is free and 16 more bytes", "everything is free and 16 more bytes"},
        {"0123456789abcdef 1, and", "${env:Q}, and"},
        {"0123456789abcdef 1234 and it costs nothing", "${env:Q} and it costs nothing"},
        {"second line of it", "${env:R}"},
    };
    log_redact_as("not looked at: aws, where it may still be billed\nnothing is left of it\nmay still be billed",
                  "${file:n}");
    log_redact_as("pw-1 may still be billed pw-2", "${env:P}");
    redact("billed-tail");
    log_redact_as("0123456789abcdef 1234 and it costs nothing", "${env:Q} and it costs nothing");
    log_redact_as("all is free\nsecond line of it", "$${env:all} is free ${env:R}");
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *out = log_redacted(rows[i].in);
        assert_string_equal(out, rows[i].out);
    }
    struct gp_error err = {0};
    gp_fail(&err, GP_EBILLED, "not looked at: aws, where it may still be billed");
    assert_non_null(strstr(err.msg, "may still be billed"));
    log_close();
}

/* A secret may begin inside another value, or have another one in front of it that ends inside it. Both are hidden as
 * one: as the text of the first, or as "***" where a secret goes on behind it. */
static void overlaps(void **state) {
    (void)state;
    static const struct {
        const char *value, *shown, *secret, *in, *out;
    } rows[] = {
        {"API key secret_", "${file:v}", "secret_joe_0123456789.abcdef",
         "Lambda: API key secret_joe_0123456789.abcdef was refused", "Lambda: *** was refused"},
        {"rejected: refr", NULL, "refresh-tok-0123456789abcdef", "HTTP 403: rejected: refresh-tok-0123456789abcdef, so",
         "HTTP 403: ***, so"},
        {"foo://svc:", "${file:v}", "", "'foo://svc:S3cr3tPw@127.0.0.1:9'", "'${file:v}***@127.0.0.1:9'"},
        {"foo://svc:S3", "${file:v}", "", "'foo://svc:S3cr3tPw@127.0.0.1:9'", "'***@127.0.0.1:9'"},
        {"https://svc", "${file:v}", "", "to https://svc:S3cr3tPw@git.example/x", "to ${file:v}:***@git.example/x"},
        {"S3cr3tPw@git.example", "${file:v}", "", "https://svc:S3cr3tPw@git.example/x", "https://svc:${file:v}/x"},
        {"one two three", "${file:v}", "", "one two three two three", "${file:v} two three"},
        {"behind-the-secret", "${file:v}", "0123456789-beh", "0123456789-behind-the-secret.", "***."},
        {"a whole secret inside", "${file:v}", "secret", "a whole secret inside", "${file:v}"},
        {"the key\nis: abc", "${file:v}", "abcdefghijklmnopqrstuvwxyz", "the key\nis: abcdefghijklmnop.. cut",
         "***.. cut"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        if (rows[i].shown != NULL) log_redact_as(rows[i].value, rows[i].shown);
        else redact(rows[i].value);
        redact(rows[i].secret);
        GP_AUTO_FREE char *out = log_redacted(rows[i].in);
        assert_string_equal(out, rows[i].out);
        log_close();
    }
    log_redact_as("first-of-three", "${file:1}");
    log_redact_as("three-and-more", "${file:2}");
    log_redact_as("more-and-on-it-goes", "${file:3}");
    GP_AUTO_FREE char *out = log_redacted("first-of-three-and-more-and-on-it-goes.");
    assert_string_equal(out, "${file:1}.");
    log_close();
    /* its beginning was cut, and another value has the beginning of the line */
    GP_AUTO_STR struct str value = {0};
    for (size_t i = 0; value.len < 2000; i++) str_addf(&value, "%05zx.", i);
    GP_AUTO_FREE char *text = xasprintf("output:\n%s", value.s + 600), *head = xstrndup(text, 12);
    log_redact_text(value.s);
    log_redact_as(head, "${file:v}");
    GP_AUTO_FREE char *rest = log_redacted(text);
    assert_string_equal(rest, "${file:v}***");
    log_close();
}

/* What the redactor leaves of a text is what a plain search for each value leaves, whatever overlaps. */
static void overlaps_at_random(void **state) {
    (void)state;
    enum { ROUNDS = 1000, VALUES = 4, TEXT = 60 };
    uint32_t x = 12345;
    for (int round = 0; round < ROUNDS; round++) {
        char values[VALUES][16] = {{0}}, text[TEXT + 1] = {0}, left[TEXT + 1] = {0};
        bool hidden[TEXT] = {false};
        for (size_t i = 0; i < TEXT; i++)
            text[i] = "ab-"[(x = x * 1664525 + 1013904223) >> 30 & 1 ? 0 : 1 + (x >> 28) % 2];
        for (size_t v = 0; v < VALUES; v++) {
            x = x * 1664525 + 1013904223;
            size_t n = v % 2 == 0 ? 6 + (x >> 16) % 9 : 12 + (x >> 16) % 3; /* a shorter one with a text is a word */
            memcpy(values[v], text + (x >> 20) % (TEXT - n), n);
            if (v % 2 == 0) redact(values[v]);
            else log_redact_as(values[v], "${v}");
            for (const char *p = text; (p = strstr(p, values[v])) != NULL; p++)
                for (size_t i = 0; i < n; i++) hidden[p - text + (ptrdiff_t)i] = true;
        }
        for (size_t i = 0, n = 0; i < TEXT; i++)
            if (!hidden[i]) left[n++] = text[i];
        GP_AUTO_FREE char *out = log_redacted(text);
        GP_AUTO_STR struct str got = {0};
        for (const char *p = out; *p != '\0';) {
            if (str_starts(p, "***")) p += 3;
            else if (str_starts(p, "${v}")) p += 4;
            else str_addc(&got, *p++);
        }
        if (strcmp(got.s != NULL ? got.s : "", left) != 0)
            fail_msg("'%s' with '%s', '%s', '%s', '%s': '%s'", text, values[0], values[1], values[2], values[3], out);
        log_close();
    }
}

/* Values that look like themselves at every byte, and that differ only in their last one: no text takes a time that
 * grows with their length. */
static void overlaps_of_long_values(void **state) {
    (void)state;
    enum { LONG = 1 << 16, TEXT = 1 << 21 };
    GP_AUTO_FREE char *value = xcalloc(1, LONG + 2), *text = xcalloc(1, TEXT + 4);
    memset(value, 'a', LONG);
    memset(text, 'a', TEXT);
    text[0] = 'x';
    log_redact_as(value, "${file:a}");
    value[LONG] = 'b';
    log_redact_text(value);
    memcpy(text + TEXT, " is", 4);
    GP_AUTO_FREE char *out = log_redacted(text);
    assert_string_equal(out, "x${file:a} is");
    memset(value, 'a', LONG);
    memcpy(text + TEXT, "b..", 4);
    GP_AUTO_FREE char *with = log_redacted(text);
    assert_string_equal(with, "x***..");
    log_close();
    /* the same of lines, each of which may be the rest of a value that was cut */
    for (size_t i = 1; i < LONG; i += 2) value[i] = '\n';
    value[LONG] = '\0';
    log_redact_as(value, "${file:a}");
    GP_AUTO_FREE char *lines = xasprintf("%sx is", value);
    GP_AUTO_FREE char *one = log_redacted(lines);
    assert_string_equal(one, "${file:a}x is");
    log_close();
}

/* A long value on one line: buffers and `tail -c` cut it, at its beginning, too. */
static void pieces(void **state) {
    (void)state;
    static const size_t sizes[] = {8800, 65536};
    for (size_t k = 0; k < GP_ARRAY_LEN(sizes); k++) {
        size_t n = sizes[k];
        GP_AUTO_STR struct str value = {0}, text = {0};
        for (size_t i = 0; value.len < n; i++) str_addf(&value, "%05zx.", i);
        value.s[n] = '\0';
        const char *v = value.s;
        log_redact_as(v, "${env:T}");
        str_addf(&text, "whole %s\n%s\n", v, v + 1);           /* nearly whole */
        str_addf(&text, "%s, next\n", v + n - 8192 % (n - 1)); /* its end, and what follows */
        str_addf(&text, "%.4096s\n%s\n", v + 601, v + n - 16); /* its middle, its last bytes */
        str_addf(&text, "x%s\n%s", v + n - 100, v + n - 15);   /* other text; too little to know */
        GP_AUTO_FREE char *out = log_redacted(text.s);
        GP_AUTO_FREE char *want =
            xasprintf("whole ${env:T}\n${env:T}\n${env:T}, next\n${env:T}\n${env:T}\nx%s\n%s", v + n - 100, v + n - 15);
        assert_string_equal(out, want);
        log_close();
    }
}

/* A service repeats a key in the form in which it got it, or in another one. */
static void forms(void **state) {
    (void)state;
    redact("k+y/\"a\\\xff\xfe?b>c");
    redact("-----BEGIN PRIVATE KEY-----\nMIIabcdef\n-----END PRIVATE KEY-----\n");
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"key=k%2By%2F%22a%5C%FF%FE%3Fb%3Ec&x", "key=***&x"},
        {"'ayt5LyJhXP/+P2I+Yw=='", "'***=='"},
        {"ayt5LyJhXP_-P2I-Yw", "***"},
        {"MIIabcdef", "***"},
        {"no '-----BEGIN PRIVATE KEY-----' line", "no '-----BEGIN PRIVATE KEY-----' line"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *out = log_redacted(rows[i].in);
        assert_string_equal(out, rows[i].out);
    }
    log_redact_text(NULL);
    log_close();
}

/* Nor does one pass in an error, also where its text is cut. */
static void errors(void **state) {
    (void)state;
    struct gp_error err = {0};
    redact("hunter2-secret");
    gp_fail(&err, GP_EAUTH, "bad key %s, %d", "hunter2-secret", 1);
    assert_string_equal(err.msg, "bad key ***, 1");
    gp_wrap(&err, "of '%s'", "hunter2-secret");
    assert_string_equal(err.msg, "of '***': bad key ***, 1");
    for (int n = GP_ERROR_MSG_MAX - 30; n < GP_ERROR_MSG_MAX + 5; n++) {
        GP_AUTO_STR struct str big = {0};
        for (int i = 0; i < n; i++) str_addc(&big, 'x');
        gp_error_clear(&err);
        gp_fail(&err, GP_EAUTH, "%shunter2-secret", big.s);
        assert_null(strstr(err.msg, "hun"));
        gp_error_clear(&err);
        gp_fail_errno(&err, GP_EIO, ENOENT, "%shunter2-secret", big.s);
        assert_null(strstr(err.msg, "hun"));
    }
    log_close();
    gp_error_clear(&err);
    gp_fail(&err, GP_EAUTH, "hunter2-secret");
    assert_string_equal(err.msg, "hunter2-secret");
}

/* The password ends at the last '@' of the word, whatever it has before: it may be cut nowhere else. */
static void urls(void **state) {
    (void)state;
    static const char *const of[][2] = {
        {"'https://user:pa55@h.example/x' is no folder", "'https://user:***@h.example/x' is no folder"},
        {"s3://u:a:b@c@bucket", "s3://u:***@bucket"},
        {"http://u:p@h and http://v:q@i", "http://u:***@h and http://v:***@i"},
        {"http://:p@h", "http://:***@h"},
        {"https://u:pa'ssw0rd@h", "https://u:***@h"},
        {"'https://u:pa'ssw0rd@h' is no folder", "'https://u:***@h' is no folder"},
        {"'https://u:pa',ss@h', 'next:x@y'", "'https://u:***@h', 'next:x@y'"},
        {"\"https://u:pa\"ssw0rd@h\"", "\"https://u:***@h\""},
        {"<https://u:pa<s>s@h>", "<https://u:***@h>"},
        {"https://u:12/34ssw0rd@h", "https://u:***@h"},
        {"https://u:12?34#ssw0rd@h/x", "https://u:***@h/x"},
        {"https://u:12@34/ssw0rd@h/x", "https://u:***@h/x"},
        {"https://u:pa/s?s@h/x", "https://u:***@h/x"},
        {"https://h:8080/a@b", "https://h:***@b"}, /* or a password that begins with digits */
        {"https://u:pa/s nobody@h", "https://u:pa/s nobody@h"},
        {"https://h:80/x for me@example.com", "https://h:80/x for me@example.com"},
        {"'https://h:80/x' for 'me@example.com'", "'https://h:80/x' for 'me@example.com'"},
        {"{\"a\":\"https://h:80/x\",\"b\":\"me@h\"}", "{\"a\":\"https://h:80/x\",\"b\":\"me@h\"}"},
        {"{\"a\":\"https://u:p\\\",q@h\"}", "{\"a\":\"https://u:***@h\"}"},
        {"[\"https://u:p@h\"]", "[\"https://u:***@h\"]"},
        {"https://h/x:y@z", "https://h/x:y@z"},
        {"https://h:/x@z", "https://h:***@z"},
        {"https://user@h, https://u:@h, a:b@c", "https://user@h, https://u:@h, a:b@c"},
        {"https://h:1 next:x@y", "https://h:1 next:x@y"},
        {"://", "://"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(of); i++) {
        GP_AUTO_FREE char *got = log_redacted(of[i][0]);
        assert_string_equal(got, of[i][1]);
    }
    log_redact_as("pa55word", "${env:PW}");
    GP_AUTO_FREE char *got = log_redacted("https://u:pa55word@h, https://u:pa55word-2@h");
    assert_string_equal(got, "https://u:${env:PW}@h, https://u:***@h");
    log_close();
}

static void parts(void **state) {
    (void)state;
    struct gp_error err = {0};
    assert_false(log_on(LOG_HTTP));
    assert_int_equal(log_enable("http,shh", &err), -GP_EUSAGE);
    assert_string_equal(err.msg, "unknown trace part 'shh'; valid parts: http, ssh, state, node, all");
    gp_error_clear(&err);
    assert_int_equal(log_enable("", &err), -GP_EUSAGE);
    gp_error_clear(&err);
    assert_false(log_on(LOG_HTTP));
    assert_int_equal(log_enable("http,state", &err), 0);
    assert_true(log_on(LOG_HTTP) && log_on(LOG_STATE) && !log_on(LOG_SSH) && !log_on(LOG_NODE));
    assert_int_equal(log_enable("all", &err), 0);
    assert_true(log_on(LOG_SSH) && log_on(LOG_NODE));
}

/* What really arrives on stderr, also when a secret stands where a long line is cut. */
static void lines_on_stderr(void **state) {
    (void)state;
    struct gp_error err = {0};
    assert_int_equal(log_enable("ssh", &err), 0);
    redact("hunter2-secret");
    int p[2], saved = dup(2);
    assert_int_equal(pipe(p), 0);
    dup2(p[1], 2);
    log_trace(LOG_SSH, "key hunter2-secret\nnext \x1b");
    log_trace(LOG_HTTP, "not on");
    GP_AUTO_STR struct str big = {0};
    for (int i = 0; i < 16370; i++) str_addc(&big, 'x');
    log_trace(LOG_SSH, "%shunter2-secret tail", big.s);
    dup2(saved, 2);
    close(saved);
    close(p[1]);
    GP_AUTO_STR struct str got = {0};
    char buf[4096];
    for (ssize_t n = read(p[0], buf, sizeof buf); n > 0; n = read(p[0], buf, sizeof buf))
        str_add_mem(&got, buf, (size_t)n);
    close(p[0]);
    assert_non_null(strstr(got.s, " ssh: key *** next ?\n"));
    assert_null(strstr(got.s, "hunter"));
    assert_null(strstr(got.s, "not on"));
    assert_true(str_ends(got.s, " ...\n"));
    log_close();
}

static void secrets(void **state) {
    (void)state;
    GP_AUTO_SECRET struct secret a = {0}, b = {0};
    assert_string_equal(secret_reveal(&a), "");
    assert_true(secret_equal(&a, "", 0));
    secret_set(&a, "abc", 3);
    secret_copy(&b, &a);
    secret_set(&a, secret_reveal(&a), 2); /* from itself */
    assert_string_equal(secret_reveal(&a), "ab");
    assert_true(secret_equal(&b, "abc", 3));
    assert_false(secret_equal(&b, "abd", 3));
    assert_false(secret_equal(&b, "ab", 2));
    secret_clear(&b);
    assert_int_equal(b.len, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts),
        cmocka_unit_test(redacts),
        cmocka_unit_test(a_long_word_of_urls),
        cmocka_unit_test(cleaned),
        cmocka_unit_test(as_text),
        cmocka_unit_test(pieces),
        cmocka_unit_test(forms),
        cmocka_unit_test(errors),
        cmocka_unit_test(urls),
        cmocka_unit_test(lines_on_stderr),
        cmocka_unit_test(secrets),
        cmocka_unit_test(own_words),
        cmocka_unit_test(overlaps),
        cmocka_unit_test(overlaps_at_random),
        cmocka_unit_test(overlaps_of_long_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
