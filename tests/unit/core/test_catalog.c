/* SPDX-License-Identifier: Apache-2.0 */
/* A received list: what it gives back, what it refuses, what it costs. */
#include "base/gp_base.h"

#include "tree/catalog.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static int add(struct catalog *c, char type, const char *path, const char *link, struct gp_error *err) {
    const struct tree_entry e = {.type = type,
                                 .racy = type == 'f',
                                 .mode = 0640,
                                 .size = type == 'f' ? 7 : 0,
                                 .held = type == 'f' ? 5 : 0,
                                 .mtime_s = -3,
                                 .mtime_ns = 999999999,
                                 .path = (char *)(uintptr_t)path,
                                 .link = (char *)(uintptr_t)link};
    return catalog_add(c, &e, err);
}

static const struct {
    char type;
    const char *path, *link;
} tree[] = {{'f', "a", NULL},          {'d', "b", NULL},     {'d', "b/b", NULL},     {'f', "b/b/b", NULL},
            {'l', "b/b/c", "../../a"}, {'f', "b/c", NULL},   {'f', "b-", NULL},      {'d', "c", NULL},
            {'d', "c/d", NULL},        {'d', "c/d/e", NULL}, {'f', "c/d/e/f", NULL}, {'f', "d", NULL}};

static void entries_come_back_as_they_were(void **state) {
    (void)state;
    GP_CLEANUP(catalog_clear) struct catalog c = {0};
    struct gp_error err = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(tree); i++)
        if (add(&c, tree[i].type, tree[i].path, tree[i].link, &err) != 0) fail_msg("%s: %s", tree[i].path, err.msg);
    assert_int_equal(c.all.len, GP_ARRAY_LEN(tree));
    assert_int_equal(c.files, 6);
    assert_int_equal(c.bytes, 42);
    for (size_t i = GP_ARRAY_LEN(tree); i-- > 0;) {
        const struct tree_entry *e = catalog_at(&c, i);
        assert_string_equal(e->path, tree[i].path);
        assert_true(e->type == tree[i].type && e->racy == (e->type == 'f') && e->mode == 0640);
        assert_true(e->mtime_s == -3 && e->mtime_ns == 999999999);
        assert_true(e->size == (e->type == 'f' ? 7 : 0) && e->held == (e->type == 'f' ? 5 : 0));
        if (tree[i].link != NULL) assert_string_equal(e->link, tree[i].link);
        else assert_null(e->link);
        assert_true(catalog_find(&c, tree[i].path));
    }
    assert_false(catalog_find(&c, "b/a") || catalog_find(&c, "e") || catalog_find(&c, "c/d/e/f/g"));
}

static void what_is_no_list_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *first, *second;
    } wrong[] = {{"a", "a"},    {"b", "a"},    {"a", "b/c"},  {"a", "a/b/c"}, {"a/b", NULL},
                 {"ab", "a/b"}, {"a", "ab/c"}, {"a-", "a/b"}, {"a/", NULL}};
    for (size_t i = 0; i < GP_ARRAY_LEN(wrong); i++) {
        GP_CLEANUP(catalog_clear) struct catalog c = {0};
        struct gp_error err = {0};
        int r = add(&c, 'd', wrong[i].first, NULL, &err);
        if (r == 0 && wrong[i].second != NULL) r = add(&c, 'd', wrong[i].second, NULL, &err);
        if (r != -GP_EPROTO) fail_msg("%zu: %d", i, r);
    }
}

/* 200,000 names whose paths have 3,900 bytes: 800 MB before each entry had its own name only. */
static void an_entry_costs_its_own_name(void **state) {
    (void)state;
    GP_CLEANUP(catalog_clear) struct catalog c = {0};
    GP_AUTO_STR struct str deep = {0};
    struct gp_error err = {0};
    for (int i = 0; i < 19; i++) {
        str_addf(&deep, "%s%0200d", i > 0 ? "/" : "", 0);
        if (add(&c, 'd', deep.s, NULL, &err) != 0) fail_msg("%s", err.msg);
    }
    for (int i = 0; i < 200000; i++) {
        char path[TREE_PATH_MAX + 1];
        snprintf(path, sizeof path, "%s/%08d", deep.s, i);
        if (add(&c, 'f', path, NULL, &err) != 0) fail_msg("%s", err.msg);
    }
    assert_in_range(catalog_bytes(&c), 200000, 16 << 20);
    assert_true(c.names.len < (size_t)2 << 20);
    assert_int_equal(strlen(catalog_at(&c, c.all.len - 1)->path), 19 * 201 + 8);
}

/* The limit is in bytes, and the error names it. */
static void a_list_has_a_limit(void **state) {
    (void)state;
    GP_CLEANUP(catalog_clear) struct catalog c = {0};
    struct gp_error err = {0};
    char target[TREE_PATH_MAX + 1], path[32];
    memset(target, 'x', sizeof target - 1);
    target[sizeof target - 1] = '\0';
    int r = 0;
    for (int i = 0; r == 0 && i < 1000000; i++) {
        snprintf(path, sizeof path, "%08d", i);
        r = add(&c, 'l', path, target, &err);
    }
    assert_int_equal(r, -GP_EPROTO);
    assert_non_null(strstr(err.msg, "or 256 MiB of names, after 6"));
    assert_true(catalog_bytes(&c) <= CATALOG_BYTES_MAX);
    catalog_clear(&c);
    assert_int_equal(add(&c, 'f', "a", NULL, &err), 0);
}

static void sizes_do_not_overflow(void **state) {
    (void)state;
    GP_CLEANUP(catalog_clear) struct catalog c = {0};
    struct gp_error err = {0};
    struct tree_entry e = {.type = 'f', .size = INT64_MAX, .path = (char *)(uintptr_t) "a"};
    assert_int_equal(catalog_add(&c, &e, &err), 0);
    e.path = (char *)(uintptr_t) "b";
    e.size = 1;
    assert_int_equal(catalog_add(&c, &e, &err), -GP_EPROTO);
    assert_int_equal(c.bytes, INT64_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(entries_come_back_as_they_were),
                                       cmocka_unit_test(what_is_no_list_is_refused),
                                       cmocka_unit_test(an_entry_costs_its_own_name),
                                       cmocka_unit_test(a_list_has_a_limit), cmocka_unit_test(sizes_do_not_overflow)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
