/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as Markdown: foreign text ends neither a table's cell nor its code span. */
#include "base/gp_base.h"

#include "cmd/show/plan_show.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void hostile_text_stays_in_its_span(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"aws us-east-1a", "`aws us-east-1a`"},
        {"", ""},
        {NULL, ""},
        {"  ", ""},
        {"a | b", "`a ¦ b`"},
        {"a`<b>", "`a'<b>`"},
        {"``` @all ```", "`''' @all '''`"},
        {"\\| end \\", "`\\¦ end \\`"},
        {"one\ntwo\r\n| three", "`one two"},
        {"@torvalds #1 <script>", "`@torvalds #1 <script>`"},
        {"\x1b[31m", "`?[31m`"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_STR struct str out = {0};
        str_add(&out, "");
        markdown_code(&out, cases[i].text);
        if (strncmp(out.s, cases[i].want, strlen(cases[i].want)) != 0)
            fail_msg("case %zu: %s, not %s", i, out.s, cases[i].want);
        assert_null(strpbrk(out.s, "|\n\r"));
        size_t ticks = 0;
        for (const char *p = out.s; *p != '\0'; p++) ticks += *p == '`';
        assert_true(ticks == 0 || (ticks == 2 && out.s[0] == '`' && out.s[out.len - 1] == '`'));
    }
}

static void long_text_is_cut_between_characters(void **state) {
    (void)state;
    GP_AUTO_STR struct str long_text = {0}, out = {0};
    for (int i = 0; i < 200; i++) str_add(&long_text, "ü");
    markdown_code(&out, long_text.s);
    assert_true(out.len < 260 && str_ends(out.s, "ü...`"));
}

static void add(struct plan *p, enum change_action action, int node, const char *key, const char *before,
                const char *after) {
    struct plan_change c = {.action = action,
                            .resource = xstrdup("node"),
                            .node = node,
                            .key = xstrdup(key),
                            .before = xstrdup(before),
                            .after = xstrdup(after),
                            .reason = xstrdup("because")};
    vec_push(&p->resource_changes.list, c);
}

static void a_table_has_the_columns_of_its_head(void **state) {
    (void)state;
    struct spec spec = {.name = (char *)"t", .nodes = 3};
    const struct spec_notify hook = {.url = (char *)"env:HOOK"}, command = {.command = (char *)"touch `x` | @me"};
    vec_push(&spec.notify, hook);
    vec_push(&spec.notify, command);
    struct plan plan = {.changes = true, .ttl_ms = 3600000, .ends = xstrdup("server"), .max_usd = 12};
    GP_AUTO_STR struct str out = {0};
    for (int i = 0; i < 3; i++) add(&plan, CHANGE_CREATE, i, NULL, NULL, "aws r1-a");
    add(&plan, CHANGE_UPDATE, -1, "limits.ttl", "1h | @me", "2h");
    add(&plan, CHANGE_REPLACE, 4, "state", "stopped", "running");
    strv_add(&plan.notes, "a | note");
    plan_markdown(&spec, &plan, "specs/`t`.yaml", &out);
    assert_non_null(strstr(out.s, "| create | nodes 0 to 2 |")); /* alike: one row */
    assert_non_null(strstr(out.s, "`1h ¦ @me`"));
    assert_non_null(strstr(out.s, "Worst case until the deadline: 12.00 USD"));
    assert_non_null(strstr(out.s, "- Note: notify[1] runs on this machine: `touch 'x' ¦ @me`\n"));
    assert_null(strstr(out.s, "notify[0]"));
    vec_free(&spec.notify);
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, out.s, "\n");
    size_t rows = 0;
    for (size_t i = 0; i < lines.n; i++) {
        size_t pipes = 0;
        for (const char *p = lines.v[i]; *p != '\0'; p++) pipes += *p == '|';
        if (lines.v[i][0] == '|') assert_int_equal(pipes, 6);
        else assert_int_equal(pipes, 0);
        rows += lines.v[i][0] == '|';
    }
    assert_int_equal(rows, 5);
    plan_clear(&plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_text_stays_in_its_span),
        cmocka_unit_test(long_text_is_cut_between_characters),
        cmocka_unit_test(a_table_has_the_columns_of_its_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
