/* SPDX-License-Identifier: Apache-2.0 */
/* YAML: the tree, the position of every node, and what is refused where. */
#include "base/gp_base.h"

#include "base/str.h"
#include "base/yaml.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct yaml_node *good(const char *text) {
    struct yaml_node *root = NULL;
    struct gp_error err = {0};
    if (yaml_parse("f.yaml", text, strlen(text), &root, &err) != 0) fail_msg("%s", err.msg);
    return root;
}

static void tree_and_places(void **state) {
    (void)state;
    struct yaml_node *root = good("# c\na: 1\nb:\n  - x\n  - {k: 'v', \"q\": no}\nc: |\n  two\n  lines\n"
                                  "\xc3\xa9: [\xc3\xa9, z]\n");
    assert_int_equal(root->kind, YAML_MAP);
    assert_int_equal(root->items.len, 8);
    assert_int_equal(root->line, 2);
    const struct yaml_node *a = yaml_get(root, "a"), *b = yaml_get(root, "b"), *c = yaml_get(root, "c");
    assert_string_equal(a->value, "1");
    assert_false(a->quoted);
    assert_int_equal(a->line, 2);
    assert_int_equal(a->column, 4);
    assert_int_equal(b->kind, YAML_LIST);
    assert_int_equal(b->items.items[0]->line, 4);
    assert_int_equal(b->items.items[0]->column, 5);
    const struct yaml_node *map = b->items.items[1], *k = yaml_get(map, "k"), *q = yaml_get(map, "q");
    assert_true(k->quoted);
    assert_int_equal(k->column, 9);
    assert_false(q->quoted);
    assert_string_equal(q->value, "no"); /* text, whatever YAML 1.1 says */
    assert_string_equal(c->value, "two\nlines\n");
    assert_true(c->quoted);
    const struct yaml_node *e = yaml_get(root, "\xc3\xa9");
    assert_int_equal(e->items.items[1]->column, 8); /* characters, not bytes */
    assert_null(yaml_get(root, "none"));
    assert_null(yaml_get(a, "x"));
    assert_null(yaml_get(NULL, "x"));
    yaml_node_free(root);
}

static void nothing(void **state) {
    (void)state;
    static const char *const texts[] = {"", "\n\n", "# only\n", "---\n", "---\n...\n"};
    for (size_t i = 0; i < GP_ARRAY_LEN(texts); i++) assert_null(good(texts[i]));
    struct yaml_node *empty = good("''");
    assert_non_null(empty);
    yaml_node_free(empty);
    yaml_node_free(NULL);
    struct yaml_node *bom = good("\xef\xbb\xbf"
                                 "a: 1\n");
    assert_non_null(yaml_get(bom, "a"));
    yaml_node_free(bom);
}

static void refuses(void **state) {
    (void)state;
    static const struct {
        const char *text, *start, *part;
    } rows[] = {
        {"a: 1\na: 2\n", "f.yaml:2:1: ", "duplicate key 'a' (first on line 1)"},
        {"a: 1\nb: {c: 1, d: 2, 'c': 3}\n", "f.yaml:2:17: ", "duplicate key 'c'"},
        {"a: &x 1\n", "f.yaml:1:4: ", "anchors"},
        {"a: &x [1]\n", "f.yaml:1:4: ", "anchors"},
        {"a: *x\n", "f.yaml:1:4: ", "aliases"},
        {"a: !!str 1\n", "f.yaml:1:4: ", "tags"},
        {"a: !x {b: 1}\n", "f.yaml:1:4: ", "tags"},
        {"[a]: 1\n", "f.yaml:1:1: ", "plain text"},
        {"? {a: 1}\n: 2\n", "f.yaml:1:3: ", "plain text"},
        {"a: 1\n--- \nb: 2\n", "f.yaml:2:1: ", "more than one document"},
        {"a: [1\n", "f.yaml:2:1: ", "(it begins in line 1)"},
        {"a: 'x\n", "f.yaml:2:1: ", "the file ends inside a quoted text"},
        {"a:\n\tb: 1\n", "f.yaml:2:1: ", "the indentation has a tab: use spaces only"},
        {"\xc3\xa9\xc3\xa9: x\n  b: \t- 1\n", "f.yaml:2:", ""},
        {"a: \"x\\0y\"\n", "f.yaml:1:4: ", "NUL"},
        {"a: \xff\n", "f.yaml:1:4: ", "UTF-8"},
        {"a: \x01\n", "f.yaml:1:4: ", "control characters"},
        {"a: b: c\n", "f.yaml:1:5: ", "':' is not expected here: check the indentation"},
        {"a: 1\n b: 2\n", "f.yaml:2:3: ", "':' is not expected here"},
        {"- a\nb: 1\n", "f.yaml:2:1: ", ""},
        {"a: %x\n", "f.yaml:1:4: ", "put the value in quotes"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct yaml_node *root = NULL;
        struct gp_error err = {0};
        int r = yaml_parse("f.yaml", rows[i].text, strlen(rows[i].text), &root, &err);
        if (r != -GP_EUSAGE) fail_msg("accepted: %s", rows[i].text);
        assert_null(root);
        assert_int_equal(err.domain, GP_D_SPEC);
        if (!str_starts(err.msg, rows[i].start) || strstr(err.msg, rows[i].part) == NULL)
            fail_msg("'%s' is not '%s..%s'", err.msg, rows[i].start, rows[i].part);
    }
}

static void limits(void **state) {
    (void)state;
    GP_AUTO_STR struct str text = {0};
    struct gp_error err = {0};
    struct yaml_node *root = NULL;
    for (int i = 0; i < 32; i++) str_addc(&text, '[');
    for (int i = 0; i < 32; i++) str_addc(&text, ']');
    assert_int_equal(yaml_parse("f", text.s, text.len, &root, &err), 0);
    yaml_node_free(root);
    root = NULL;
    str_reset(&text);
    for (int i = 0; i < 33; i++) str_addc(&text, '[');
    assert_int_equal(yaml_parse("f", text.s, text.len, &root, &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "f:1:33: nested too deeply"));
    gp_error_clear(&err);
    str_reset(&text);
    for (int i = 0; i < 100001; i++) str_add(&text, "- 1\n");
    assert_int_equal(yaml_parse("f", text.s, text.len, &root, &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "too many values"));
    gp_error_clear(&err);
    str_reset(&text); /* many keys: found without comparing each with each */
    for (int i = 0; i < 49000; i++) str_addf(&text, "k%d: 1\n", i);
    str_add(&text, "k7: 1\n");
    assert_int_equal(yaml_parse("f", text.s, text.len, &root, &err), -GP_EUSAGE);
    assert_string_equal(err.msg, "f:49001:1: duplicate key 'k7' (first on line 8)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_and_places),
        cmocka_unit_test(nothing),
        cmocka_unit_test(refuses),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
