/* SPDX-License-Identifier: Apache-2.0 */
/* The option parser and what is made from the verb table. */
#include "base/gp_base.h"

#include "cmd/options.h"
#include "cmd/verbs.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct vals {
    bool flag, other;
    const char *text;
    int number, choice;
    int64_t wait;
};
static const struct opt table[] = {
    {.name = "flag", .letter = 'f', .type = OPT_FLAG, .offset = offsetof(struct vals, flag)},
    {.name = "other", .letter = 'o', .type = OPT_FLAG, .offset = offsetof(struct vals, other)},
    {.name = "text", .letter = 't', .type = OPT_TEXT, .offset = offsetof(struct vals, text), .arg = "TEXT"},
    {.name = "number",
     .letter = 'n',
     .type = OPT_INT,
     .offset = offsetof(struct vals, number),
     .arg = "N",
     .min = 1,
     .max = 64},
    {.name = "format", .type = OPT_ENUM, .offset = offsetof(struct vals, choice), .arg = "text|json"},
    {.name = "wait",
     .type = OPT_DURATION,
     .offset = offsetof(struct vals, wait),
     .arg = "TIME",
     .min = 1000,
     .max = 3600000},
    {0}};

static int parse(struct vals *v, struct opt_args *a, struct gp_error *err, int argc, const char *const *words) {
    struct opt_set set = {table, v};
    GP_AUTO_FREE char **argv = xcalloc((size_t)argc + 1, sizeof *argv);
    for (int i = 0; i < argc; i++) memcpy(&argv[i], &words[i], sizeof argv[i]);
    int r = options_parse(&set, 1, argc, argv, false, a, NULL, err);
    a->rest = NULL; /* argv ends here; n_rest is enough for the tests */
    return r;
}
#define PARSE(v, a, err, ...) \
    parse(v, a, err, (int)GP_ARRAY_LEN(((const char *[]){__VA_ARGS__})), (const char *const[]){__VA_ARGS__})

static void reads_every_form(void **state) {
    (void)state;
    struct vals v = {0};
    struct gp_error err = {0};
    GP_AUTO_OPT_ARGS struct opt_args a = {0};
    assert_int_equal(PARSE(&v, &a, &err, "one", "-fo", "--text=a=b", "-n", "7", "two", "--format", "json", "--wait=90s",
                           "--", "--flag", "x"),
                     0);
    assert_true(v.flag && v.other);
    assert_string_equal(v.text, "a=b");
    assert_int_equal(v.number, 7);
    assert_int_equal(v.choice, 1);
    assert_int_equal(v.wait, 90000);
    assert_int_equal(a.args.len, 2);
    assert_string_equal(a.args.items[1], "two");
    assert_int_equal(a.n_rest, 2);
}

static void short_values_may_stick(void **state) {
    (void)state;
    struct vals v = {0};
    struct gp_error err = {0};
    GP_AUTO_OPT_ARGS struct opt_args a = {0};
    assert_int_equal(PARSE(&v, &a, &err, "-fn12", "-tx"), 0);
    assert_int_equal(v.number, 12);
    assert_string_equal(v.text, "x");
}

static void refuses(const char *word, const char *next, const char *says) {
    struct vals v = {0};
    struct gp_error err = {0};
    GP_AUTO_OPT_ARGS struct opt_args a = {0};
    int r = next != NULL ? PARSE(&v, &a, &err, word, next) : PARSE(&v, &a, &err, word);
    assert_int_equal(r, -GP_EUSAGE);
    if (strstr(err.msg, says) == NULL) fail_msg("'%s' does not say '%s'", err.msg, says);
}

static void bad_options_are_errors(void **state) {
    (void)state;
    refuses("--flg", NULL, "did you mean '--flag'");
    refuses("--zzzzzz", NULL, "unknown option '--zzzzzz'");
    refuses("-x", NULL, "unknown option '-x'");
    refuses("--flag=1", NULL, "takes no value");
    refuses("--text", NULL, "needs a value");
    refuses("--text", "--", "needs a value");
    refuses("--text=", NULL, "is empty");
    refuses("--number", "0", "from 1 to 64");
    refuses("--number", "7x", "from 1 to 64");
    refuses("--number", "99999999999999999999", "from 1 to 64");
    refuses("--format", "xml", "text|json");
    refuses("--format", "tex", "text|json");
    refuses("--format", "", "text|json");
    refuses("--wait", "5", "with its unit");
    refuses("--wait", "2h", "must be from");
    refuses("--wait", "1ms", "must be from");
}

static void stops_at_the_verb(void **state) {
    (void)state;
    struct vals v = {0};
    struct gp_error err = {0};
    struct opt_set set = {table, &v};
    char a0[] = "--flag", a1[] = "verb", a2[] = "--other";
    char *argv[] = {a0, a1, a2, NULL};
    GP_AUTO_OPT_ARGS struct opt_args a = {0};
    int used = -1;
    assert_int_equal(options_parse(&set, 1, 3, argv, true, &a, &used, &err), 0);
    assert_int_equal(used, 1);
    assert_true(v.flag && !v.other);
    assert_int_equal(a.args.len, 0);
}

static void the_first_set_wins(void **state) {
    (void)state;
    struct vals v = {0}, w = {0};
    struct gp_error err = {0};
    struct opt_set sets[] = {{table, &v}, {table, &w}};
    char a0[] = "-f";
    char *argv[] = {a0, NULL};
    GP_AUTO_OPT_ARGS struct opt_args a = {0};
    assert_int_equal(options_parse(sets, 2, 1, argv, false, &a, NULL, &err), 0);
    assert_true(v.flag && !w.flag);
}

/* The table itself: what a typo in a row would break. */
static void verb_rows_are_sound(void **state) {
    (void)state;
    for (size_t i = 0; verb_table[i] != NULL; i++) {
        const struct verb *v = verb_table[i];
        assert_non_null(v->run);
        assert_non_null(v->argspec);
        assert_true(v->help != NULL && v->help[0] != '\0');
        assert_ptr_equal(verb_find(v->name), v); /* no name twice */
        assert_true(v->min_args <= v->max_args);
        assert_true((v->options == NULL) == (v->opts_size == 0));
        for (const struct opt *o = v->options; o != NULL && o->name != NULL; o++) {
            assert_true(o->help != NULL && o->offset < v->opts_size);
            assert_true(o->type == OPT_FLAG || o->arg != NULL);
            for (const struct opt *c = common_options; c->name != NULL; c++) {
                assert_string_not_equal(c->name, o->name);
                assert_true(o->letter == '\0' || o->letter != c->letter);
            }
        }
    }
}

static void unknown_verbs_say_more(void **state) {
    (void)state;
    struct gp_error err = {0};
    assert_int_equal(verb_unknown("stats", &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "did you mean 'status'"));
    gp_error_clear(&err);
    verb_unknown("audit", &err);
    assert_non_null(strstr(err.msg, "does not have it yet"));
    gp_error_clear(&err);
    verb_unknown("__dail", &err);
    assert_null(strstr(err.msg, "__dial")); /* hidden ones are not told */
}

/* A longer list of forms, such as a recipe's, must not break the layout. */
static void help_is_wrapped(void **state) {
    (void)state;
    const struct opt rows[] = {
        {.name = "report",
         .type = OPT_TEXT,
         .arg = "FORM=FILE",
         .help = "write the report as text|json|junit|prometheus|html|recipe|another; may be repeated, up to sixteen "
                 "times"},
        {.name = "a-name-that-takes-more-than-its-column", .type = OPT_FLAG, .help = "short"},
        {0}};
    GP_AUTO_STR struct str out = {0};
    GP_AUTO_STRV struct strv lines = {0};
    options_help(rows, &out);
    strv_split(&lines, out.s, "\n");
    assert_int_equal(lines.n, 4);
    for (size_t i = 0; i < lines.n; i++) assert_true(strlen(lines.v[i]) <= 100);
    assert_string_equal(lines.v[1], "                              may be repeated, up to sixteen times");
    assert_string_equal(lines.v[3], "                              short");
}

static void help_names_every_option(void **state) {
    (void)state;
    for (size_t i = 0; verb_table[i] != NULL; i++) {
        GP_AUTO_STR struct str page = {0};
        verb_help(verb_table[i], false, &page);
        for (const struct opt *o = verb_table[i]->options; o != NULL && o->name != NULL; o++) {
            GP_AUTO_FREE char *dashed = xasprintf("--%s", o->name);
            assert_non_null(strstr(page.s, dashed));
        }
    }
    GP_AUTO_STR struct str list = {0};
    verb_help(NULL, false, &list);
    assert_non_null(strstr(list.s, "doctor"));
    assert_null(strstr(list.s, "__holder"));
}

/* Each example is a line that the verb's own table accepts. */
static void examples_parse(void **state) {
    (void)state;
    for (size_t i = 0; verb_table[i] != NULL; i++) {
        const struct verb *v = verb_table[i];
        if (v->flags & VERB_HIDDEN) continue;
        assert_non_null(v->examples);
        GP_AUTO_STRV struct strv lines = {0};
        strv_split(&lines, v->examples, "\n");
        for (size_t k = 0; k < lines.n; k++) {
            char *line = lines.v[k];
            if (line[0] == '\0') continue;
            char *verb = strstr(line, "gpuprov ");
            assert_non_null(verb);
            verb[strcspn(verb, "#>|)&\n")] = '\0';
            GP_AUTO_STRV struct strv words = {0};
            strv_split(&words, verb, " ");
            while (words.n > 0 && words.v[words.n - 1][0] == '\0') free(words.v[--words.n]);
            assert_string_equal(words.v[1], v->name);
            GP_AUTO_FREE struct common_opts *common = xcalloc(1, sizeof *common);
            GP_AUTO_FREE void *values = xcalloc(1, v->opts_size + 1);
            const struct opt_set sets[2] = {{common_options, common}, {v->options, values}};
            GP_AUTO_OPT_ARGS struct opt_args args = {0};
            struct gp_error err = {0};
            if (options_parse(sets, 2, (int)words.n - 2, words.v + 2, false, &args, NULL, &err) != 0)
                fail_msg("%s: %s", line, err.msg);
            if ((int)args.args.len < v->min_args || (int)args.args.len > v->max_args) fail_msg("arguments: %s", line);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_form),        cmocka_unit_test(short_values_may_stick),
        cmocka_unit_test(bad_options_are_errors),  cmocka_unit_test(stops_at_the_verb),
        cmocka_unit_test(the_first_set_wins),      cmocka_unit_test(verb_rows_are_sound),
        cmocka_unit_test(unknown_verbs_say_more),  cmocka_unit_test(help_is_wrapped),
        cmocka_unit_test(help_names_every_option), cmocka_unit_test(examples_parse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
