/* SPDX-License-Identifier: Apache-2.0 */
/* Text from nodes, clouds and files in every output: no character that steers a terminal comes through raw,
 * and in JSON it is the same text after reading. Every code point up to U+FFFF and the tags. */
#include "base/gp_base.h"

#include "base/json.h"
#include "base/str.h"
#include "model/event.h"
#include "output/report_forms.h"
#include "output/width.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* The list again, by hand: the test does not ask the code under test. */
static bool must_not_be_raw(uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x2069) || c == 0xfeff ||
           (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe007f);
}

static void put(struct str *s, uint32_t c) {
    if (c < 0x80) {
        str_addc(s, (char)c);
    } else if (c < 0x800) {
        str_addf(s, "%c%c", (int)(0xc0 | c >> 6), (int)(0x80 | (c & 0x3f)));
    } else if (c < 0x10000) {
        str_addf(s, "%c%c%c", (int)(0xe0 | c >> 12), (int)(0x80 | (c >> 6 & 0x3f)), (int)(0x80 | (c & 0x3f)));
    } else {
        str_addf(s, "%c%c%c%c", (int)(0xf0 | c >> 18), (int)(0x80 | (c >> 12 & 0x3f)), (int)(0x80 | (c >> 6 & 0x3f)),
                 (int)(0x80 | (c & 0x3f)));
    }
}

/* All that a string can hold, in pieces, each between letters. */
#define PIECES 66
static void piece(struct str *s, uint32_t i) {
    str_add(s, "a");
    uint32_t first = i < 64 ? i * 1024 : i == 64 ? 0xe0000 : 0x1f600, n = i < 64 ? 1024 : i == 64 ? 128 : 64;
    for (uint32_t c = first; c < first + n; c++)
        if (c != 0 && (c < 0xd800 || c > 0xdfff)) put(s, c);
    str_add(s, "z");
}

/* newlines: those that a form has of its own. */
static void is_plain(const char *what, const char *text, size_t n, const char *allowed) {
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        size_t len = str_utf8(text + i, n - i, &c);
        if (len == 0) fail_msg("%s: not UTF-8 at %zu", what, i);
        if (must_not_be_raw(c) && (c == 0 || c > 0x7f || strchr(allowed, (int)c) == NULL))
            fail_msg("%s: U+%04X is raw", what, (unsigned)c);
        i += len;
    }
}

static void decodes(void **state) {
    (void)state;
    for (uint32_t c = 1; c < 0x110000; c += c < 0x10000 || (c >= 0xdff00 && c < 0xe0200) ? 1 : 251) {
        GP_AUTO_STR struct str s = {0};
        uint32_t got = 0;
        put(&s, c);
        bool valid = c < 0xd800 || c > 0xdfff;
        assert_int_equal(str_utf8(s.s, s.len, &got), valid ? s.len : 0);
        if (!valid) continue;
        assert_int_equal(got, c);
        assert_int_equal(str_utf8(s.s, s.len - (s.len > 1), &got), s.len > 1 ? 0 : 1); /* cut short */
        assert_int_equal(str_steers(c), must_not_be_raw(c));
    }
}

static void same_after_reading(const char *what, const char *json, const char *path, const char *want) {
    GP_AUTO_JSON json_t *read = NULL;
    struct gp_error err = {0};
    if (json_parse(json, strlen(json), what, &read, &err) != 0) fail_msg("%s", err.msg);
    assert_string_equal(path[0] != '\0' ? json_str(read, path, "") : json_string_value(read), want);
}

static void json_writers(void **state) {
    (void)state;
    for (uint32_t i = 0; i < PIECES; i++) {
        GP_AUTO_STR struct str in = {0}, inside = {0};
        piece(&in, i);
        str_addc(&inside, '"');
        str_add_json(&inside, in.s, in.len);
        str_addc(&inside, '"');
        is_plain("str_add_json", inside.s, inside.len, "");
        same_after_reading("str_add_json", inside.s, "", in.s);
        for (size_t indent = 0; indent <= 2; indent += 2) {
            GP_AUTO_JSON json_t *j = json_pack("{s:{s:s}, s:[i]}", "k", "v", in.s, "n", 1);
            GP_AUTO_FREE char *text = json_text(j, indent), *exact = json_text_exact(j, indent);
            is_plain("json_text", text, strlen(text), "\n");
            same_after_reading("json_text", text, "k.v", in.s);
            same_after_reading("json_text_exact", exact, "k.v", in.s);
            GP_AUTO_STR struct str later = {0}; /* what somebody else wrote, passed on */
            str_add_json_text(&later, exact, strlen(exact));
            assert_string_equal(later.s, text);
        }
        struct event e = {.node = 0, .step = in.s, .text = in.s, .stack = "s", .run = "r"};
        GP_AUTO_STR struct str line = {0};
        event_jsonl(&e, &line);
        is_plain("an event", line.s, line.len, "\n");
        assert_ptr_equal(strchr(line.s, '\n'), line.s + line.len - 1);
        same_after_reading("an event", line.s, "text", in.s);
    }
    GP_AUTO_JSON json_t *tag = json_pack("{s:s}", "\xc2\x9b", "\xf3\xa0\x80\x81"); /* keys too */
    GP_AUTO_FREE char *text = json_text(tag, 0);
    assert_string_equal(text, "{\"\\u009b\":\"\\udb40\\udc01\"}");
}

static void lines_and_columns(void **state) {
    (void)state;
    for (uint32_t i = 0; i < PIECES; i++) {
        GP_AUTO_STR struct str in = {0}, fit = {0};
        piece(&in, i);
        text_fit(&fit, in.s, SIZE_MAX);
        is_plain("text_fit", fit.s, fit.len, "");
        str_one_line(in.s);
        is_plain("str_one_line", in.s, strlen(in.s), "");
    }
}

static void report_writers(void **state) {
    (void)state;
    for (uint32_t i = 0; i < PIECES; i++) {
        GP_AUTO_STR struct str in = {0};
        piece(&in, i);
        struct report r = {.stack = xstrdup("s"), .run = xstrdup(in.s)};
        struct report_node n = {
            .id = xstrdup(in.s), .place = xstrdup(in.s), .address = xstrdup(in.s), .host = xstrdup(in.s)};
        struct check_result c = {.check = xstrdup("net.pair"),
                                 .verdict = VERDICT_FAIL,
                                 .required = true,
                                 .code = xstrdup(in.s),
                                 .message = xstrdup(in.s),
                                 .suggestion = xstrdup(in.s)};
        vec_push(&n.checks, c);
        vec_push(&r.nodes, n);
        report_judge(&r);
        for (size_t f = 0; report_forms[f] != NULL; f++) {
            struct report_style style = {.utf8 = true, .width = f % 2 ? 0 : 80};
            GP_AUTO_STR struct str out = {0};
            struct gp_error err = {0};
            if (report_forms[f]->write(&r, &style, &out, &err) != 0) fail_msg("%s", err.msg);
            bool blanks = strcmp(report_forms[f]->name, "html") == 0 || strcmp(report_forms[f]->name, "junit") == 0;
            is_plain(report_forms[f]->name, out.s, out.len, blanks ? "\n\t\r" : "\n");
        }
        GP_AUTO_STR struct str line = {0};
        report_line(&r, &line);
        is_plain("report_line", line.s, line.len, "");
        report_clear(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes),
        cmocka_unit_test(json_writers),
        cmocka_unit_test(lines_and_columns),
        cmocka_unit_test(report_writers),
    };
    return cmocka_run_group_tests_name("steering", tests, NULL, NULL);
}
