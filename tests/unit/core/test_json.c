/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: what is refused, and reads by path that never fail. */
#include "base/gp_base.h"

#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static int parse(const char *text, json_t **ret, struct gp_error *err) {
    return json_parse(text, strlen(text), "the reply", ret, err);
}

static void refuses(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"", "the reply is not valid JSON: line 1"}, {"{", "not valid JSON"},           {"{} x", "not valid JSON"},
        {"{\"a\":1,\"a\":2}", "duplicate"},          {"[1,]", "not valid JSON"},        {"nul", "not valid JSON"},
        {"{\"secret\": hunter2}", "line 1"},         {"\"\\u0000\"", "not valid JSON"}, {"\"\xff\"", "not valid JSON"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct gp_error err = {0};
        json_t *j = NULL;
        assert_int_equal(parse(rows[i].text, &j, &err), -GP_EPROTO);
        assert_null(j);
        if (strstr(err.msg, rows[i].part) == NULL) fail_msg("'%s' for %s", err.msg, rows[i].text);
        assert_null(strstr(err.msg, "hunter2")); /* no content: it may be a secret */
    }
    struct gp_error err = {0};
    json_t *j = NULL;
    assert_int_equal(json_parse("{}\0", 3, "the reply", &j, &err), -GP_EPROTO);
}

static void depth_is_capped(void **state) {
    (void)state;
    char text[200] = "";
    for (int depth = 64; depth <= 65; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        struct gp_error err = {0};
        GP_AUTO_JSON json_t *j = NULL;
        int r = json_parse(text, (size_t)depth * 2, "the reply", &j, &err);
        assert_int_equal(r, depth == 64 ? 0 : -GP_EPROTO);
        if (r != 0) assert_non_null(strstr(err.msg, "deeper than 64"));
    }
    struct gp_error err = {0};
    GP_AUTO_JSON json_t *j = NULL; /* brackets inside a string are text */
    assert_int_equal(parse("\"\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"", &j, &err),
                     0);
}

static void reads_by_path(void **state) {
    (void)state;
    struct gp_error err = {0};
    GP_AUTO_JSON json_t *j = NULL;
    assert_int_equal(
        parse("{\"a\": {\"b\": [{\"c\": \"x\"}, 7]}, \"t\": true, \"n\": 1.5, \"i\": 3, \"z\": null}", &j, &err), 0);
    assert_string_equal(json_str(j, "a.b.0.c", "-"), "x");
    assert_int_equal(json_int(j, "a.b.1", 0), 7);
    assert_null(json_at(j, "a.b.2"));
    assert_null(json_at(j, "a.b.x"));
    assert_string_equal(json_str(j, "a.b", "-"), "-"); /* another type */
    assert_string_equal(json_str(j, "i", "-"), "-");
    assert_int_equal(json_int(j, "n", -1), -1);
    assert_true(json_num(j, "n", 0) == 1.5 && json_num(j, "i", 0) == 3 && json_num(j, "t", -1) == -1);
    assert_true(json_bool(j, "t", false));
    assert_true(json_bool(j, "z", true));
    assert_null(json_at(j, ""));
    assert_null(json_at(j, "a..b"));
    assert_null(json_at(j, "a."));
    assert_null(json_at(NULL, "a"));
    assert_string_equal(json_str(NULL, "a", "-"), "-");
}

static void writes(void **state) {
    (void)state;
    GP_AUTO_JSON json_t *j = json_pack("{s:i, s:[s]}", "z", 1, "a", "\xc3\xa9\n");
    GP_AUTO_FREE char *small = json_text(j, 0), *wide = json_text(j, 2);
    assert_string_equal(small, "{\"z\":1,\"a\":[\"\xc3\xa9\\n\"]}"); /* the order of insertion */
    assert_string_equal(wide, "{\n  \"z\": 1,\n  \"a\": [\n    \"\xc3\xa9\\n\"\n  ]\n}");
    GP_AUTO_JSON json_t *text = json_string("x");
    GP_AUTO_FREE char *alone = json_text(text, 0);
    assert_string_equal(alone, "\"x\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses),
        cmocka_unit_test(depth_is_capped),
        cmocka_unit_test(reads_by_path),
        cmocka_unit_test(writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
