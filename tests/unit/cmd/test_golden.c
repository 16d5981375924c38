/* SPDX-License-Identifier: Apache-2.0 */
/* What a person reads, word for word: help and reports. UPDATE_GOLDEN=1 rewrites the files; the diff is
 * then what the change does to people. */
#include "base/gp_base.h"

#include "golden.h"

#include "base/json.h"
#include "cmd/verbs.h"
#include "output/output.h"
#include "output/report_forms.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define GOLDEN "tests/unit/golden/"

static void help(void **state) {
    (void)state;
    GP_AUTO_STR struct str list = {0}, pages = {0};
    verb_help(NULL, true, &list);
    same_as_file(GOLDEN "help.txt", list.s);
    for (size_t i = 0; verb_table[i] != NULL; i++) {
        if (verb_table[i]->flags & VERB_HIDDEN) continue;
        GP_AUTO_STR struct str page = {0};
        verb_help(verb_table[i], false, &page);
        /* what every page has in common is in help.txt */
        char *common = strstr(page.s, "\n'gpuprov help -a'");
        assert_non_null(common);
        *common = '\0';
        str_addf(&pages, "%s\n", page.s);
    }
    same_as_file(GOLDEN "help-verbs.txt", pages.s);
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, pages.s, "\n");
    for (size_t i = 0; i < lines.n; i++)
        if (strlen(lines.v[i]) > 100) fail_msg("too wide: %s", lines.v[i]);
}

/* The forms of reports stand in one list: help and documentation follow it. */
static void forms(void **state) {
    (void)state;
    GP_AUTO_STR struct str doc = {0}, names = {0};
    assert_int_equal(fs_read("docs/reports.md", (size_t)1 << 20, &doc, NULL), 0);
    for (size_t i = 0; report_forms[i] != NULL; i++) {
        str_addf(&names, "%s%s", i ? "|" : "", report_forms[i]->name);
        GP_AUTO_FREE char *quoted = xasprintf("`%s`", report_forms[i]->name);
        if (strstr(doc.s, quoted) == NULL) fail_msg("docs/reports.md does not name the form %s", quoted);
    }
    assert_string_equal(names.s, REPORT_FORMS);
}

static struct report load(void) {
    struct gp_error err = {0};
    GP_AUTO_STR struct str text = {0};
    struct report r = {0};
    json_t *j = NULL;
    if (fs_read(GOLDEN "report.json", (size_t)1 << 20, &text, &err) != 0 ||
        json_parse(text.s, text.len, "report.json", &j, &err) != 0 || report_from_json(j, &r, &err) != 0)
        fail_msg("%s", err.msg);
    json_decref(j);
    return r;
}

static void reports(void **state) {
    (void)state;
    struct report r = load();
    GP_AUTO_STR struct str text = {0}, brief = {0};
    report_text(&r, &(struct report_style){.utf8 = true, .width = 100}, &text);
    same_as_file(GOLDEN "report.txt", text.s);
    report_brief(&r, &(struct report_style){.utf8 = true, .width = 100}, &brief);
    same_as_file(GOLDEN "report-brief.txt", brief.s);
    report_clear(&r);
}

/* No line is wider than asked where there is room for words at all. */
static void reports_fit(void **state) {
    (void)state;
    struct report r = load();
    for (size_t width = 72; width <= 200; width += 16) {
        GP_AUTO_STR struct str text = {0};
        report_text(&r, &(struct report_style){.width = width}, &text);
        GP_AUTO_STRV struct strv lines = {0};
        strv_split(&lines, text.s, "\n");
        assert_true(lines.n > 10);
        for (size_t i = 0; i < lines.n; i++)
            if (strlen(lines.v[i]) > width) fail_msg("%zu columns: %s", width, lines.v[i]);
    }
    report_clear(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help),
        cmocka_unit_test(forms),
        cmocka_unit_test(reports),
        cmocka_unit_test(reports_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
