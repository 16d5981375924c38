/* SPDX-License-Identifier: Apache-2.0 */
/* Foreign output: nothing of it steers a terminal, and its end is cut at whole lines. */
#include "base/gp_base.h"

#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void escapes_are_dropped(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"plain\ttext\n", "plain\ttext\n"},
        {"\033[31mred\033[0m\n", "red\n"},
        {"\033[2J\033[1;1Hgone", "gone"},
        {"\033]0;a title\007b", "b"},                         /* OSC, ended by BEL */
        {"\033]8;;http://x\033\\link\033]8;;\033\\", "link"}, /* OSC, ended by ST */
        {"\033]0;no end\nnext", "\nnext"},                    /* an end that never comes hides one line only */
        {"\033Pq#0\033\\six", "six"},                         /* DCS */
        {"\033(Bset", "set"},
        {"\033", ""},
        {"\033[", ""},
        {"\033[3", ""},
        {"a\033[\nb", "a\nb"},
        {" 10%\r 50%\r100%\n", "100%\n"}, /* only the last form of a line */
        {"dos\r\nlines\r\r\n", "dos\nlines\n"},
        {"kept\r", "kept"},
        {"one\ntwo\rtoo", "one\ntoo"},
        {"bell\a back\b nul", "bell back nul"},
        {"x\xc2\x9b"
         "2Jy",
         "x?2Jy"},                      /* C1 CSI */
        {"x\xe2\x80\xaey", "x?y"},      /* right-to-left override */
        {"\xff\xc0 \xe4\xb8", "?? ??"}, /* invalid UTF-8 */
        {"\xe4\xb8\xad", "\xe4\xb8\xad"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_STR struct str out = {0};
        str_add(&out, "before");
        str_add_clean(&out, cases[i][0]);
        assert_memory_equal(out.s, "before", 6);
        assert_string_equal(out.s + 6, cases[i][1]);
    }
}

/* Any bytes at all: the result has no control character but newline and tab. */
static void any_bytes(void **state) {
    (void)state;
    uint32_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        static const char often[] = "\033\033[]P;0m\\\007\r\n\t\b\xc2\x9b\xe2\x80\xae";
        char text[64];
        size_t n = 0;
        while (n < sizeof text - 1) {
            seed = seed * 1664525 + 1013904223;
            char c = (seed >> 30) == 0 ? (char)(seed >> 16) : often[(seed >> 16) % (sizeof often - 1)];
            text[n++] = c == '\0' ? 'x' : c;
        }
        text[n] = '\0';
        GP_AUTO_STR struct str out = {0}, again = {0};
        str_add_clean(&out, text);
        for (const char *p = out.s; *p != '\0'; p++) assert_true((unsigned char)*p >= 0x20 || *p == '\n' || *p == '\t');
        str_add_clean(&again, out.s);
        assert_string_equal(again.s, out.s);
    }
}

static void last_lines(void **state) {
    (void)state;
    assert_string_equal(str_last_lines("a\nb\nc\n", 2, 100), "b\nc\n");
    assert_string_equal(str_last_lines("a\nb\nc", 2, 100), "b\nc");
    assert_string_equal(str_last_lines("a\nb\n", 5, 100), "a\nb\n");
    assert_string_equal(str_last_lines("", 5, 100), "");
    assert_string_equal(str_last_lines("\n", 5, 100), "\n");
    assert_string_equal(str_last_lines("aaaa\nbbbb\ncccc\n", 20, 7), "cccc\n"); /* whole lines */
    assert_string_equal(str_last_lines("aaaaaaaa", 20, 3), "aaa");              /* one that is too long */
    assert_string_equal(str_last_lines("aaa\xe4\xb8\xad", 20, 2), "");          /* whole characters */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes_are_dropped),
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(last_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
