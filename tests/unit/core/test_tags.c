/* SPDX-License-Identifier: Apache-2.0 */
/* The tags codec: what gpuprov writes is read back the same; what it would not write is not used. */
#include "base/gp_base.h"

#include "model/coverage.h"
#include "model/tags.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define UID "0123456789abcdef"
#define HASH UID UID UID UID
#define PRINT "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

static const char *const good[][2] = {
    {"owner", "123456789012-ci@x"},
    {"stack", "llm"},
    {"uid", UID},
    {"spec", HASH},
    {"hostkey", PRINT},
    {"created", "2026-11-22T08:00:00Z"},
    {"expires", "2026-11-22T12:00:00Z"},
    {"slots", "4+8"},
    {"attempt", "3"},
    {"price", "1.25"},
    {"claim", "1"},
    {"regions", "eu-west-1 us-east-1"},
};

static void read_all(struct tags *t, const char *but, const char *value) {
    tags_init(t);
    for (size_t i = 0; i < GP_ARRAY_LEN(good); i++)
        tags_read(t, good[i][0], but != NULL && strcmp(but, good[i][0]) == 0 ? value : good[i][1]);
}

static void test_good(void **state) {
    (void)state;
    struct tags t;
    struct resource r;
    read_all(&t, NULL, NULL);
    assert_string_equal(t.bad, "");
    assert_true(tags_identify(&t));
    resource_init(&r, RES_INSTANCE, "aws");
    tags_to_resource(&t, 2, &r);
    assert_int_equal(r.slot, 6);
    assert_string_equal(r.uid, UID);
    assert_string_equal(r.host_keys, PRINT);
    assert_string_equal(r.regions, "eu-west-1 us-east-1");
    assert_string_equal(r.unreadable, "");
    assert_true(r.claim && r.attempt == 3 && r.price_usd_per_h == 1.25 && r.expires_s == 1795348800);
    tags_to_resource(&t, 8, &r); /* not within 4+8 */
    assert_int_equal(r.slot, -1);
    assert_string_not_equal(r.unreadable, "");
    resource_clear(&r);
    tags_clear(&t);
}

/* Each key, each kind of wrong value: the field stays unknown, the report names the key, and without owner,
 * stack and uid nobody is named at all. */
static void test_bad(void **state) {
    (void)state;
    static const char *const bad[][2] = {{"uid", "../../../victimdir"},
                                         {"uid", ""},
                                         {"uid", "0123456789abcdeF"},
                                         {"uid", UID "0"},
                                         {"uid", "0123456789abcde"},
                                         {"uid", "0123456789abcd\n"},
                                         {"uid", "0123456789abcd/."},
                                         {"stack", "../../.."},
                                         {"stack", ""},
                                         {"stack", "LLM"},
                                         {"stack", "a/b"},
                                         {"stack", "-a"},
                                         {"stack", "a b"},
                                         {"stack", "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"},
                                         {"owner", ""},
                                         {"owner", "a/b"},
                                         {"owner", "*"},
                                         {"owner", "a?b"},
                                         {"owner", "${x}"},
                                         {"owner", "../x"},
                                         {"owner", "a\tb"},
                                         {"owner", "\xe2\x80\xaex"},
                                         {"spec", "x"},
                                         {"spec", HASH "0"},
                                         {"hostkey", "SHA256:x) touch /tmp/canary;; *"},
                                         {"hostkey", PRINT "A"},
                                         {"hostkey", "MD5:aa"},
                                         {"hostkey", "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA$("},
                                         {"hostkey", ""},
                                         {"created", "yesterday"},
                                         {"created", "2026-11-22T08:00:00+01:00"},
                                         {"expires", "9999-12-31T23:59:59Z"},
                                         {"expires", "2026-02-31T00:00:00Z"},
                                         {"expires", "2026-11-22T08:00:00Z "},
                                         {"expires", "0"},
                                         {"slots", "99999999+1"},
                                         {"slots", "0+0"},
                                         {"slots", "1"},
                                         {"slots", "4095+2"},
                                         {"slots", "-1+2"},
                                         {"slots", "00+1"},
                                         {"slots", "0+1;id"},
                                         {"slots", "+0+1"},
                                         {"attempt", "-1"},
                                         {"attempt", "1e3"},
                                         {"attempt", "99999999999"},
                                         {"attempt", ""},
                                         {"price", "nan"},
                                         {"price", "-1"},
                                         {"price", "inf"},
                                         {"price", "1e300"},
                                         {"price", "x"},
                                         {"claim", "0"},
                                         {"claim", "true"},
                                         {"regions", ""},
                                         {"regions", "us-east-1  eu-west-1"},
                                         {"regions", "us-east-1 eu-west-1"},
                                         {"regions", "../x"},
                                         {"regions", "a;b"},
                                         {"regions", "eu-west-1 eu-west-1"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        struct tags t;
        struct resource r;
        read_all(&t, bad[i][0], bad[i][1]);
        resource_init(&r, RES_INSTANCE, "aws");
        tags_to_resource(&t, 0, &r);
        if (strstr(t.bad, bad[i][0]) == NULL || r.unreadable[0] == '\0') fail_msg("%s=%s", bad[i][0], bad[i][1]);
        bool who = strcmp(bad[i][0], "owner") == 0 || strcmp(bad[i][0], "stack") == 0 || strcmp(bad[i][0], "uid") == 0;
        assert_true((r.uid[0] == '\0') == who && (r.owner[0] == '\0') == who && (r.stack[0] == '\0') == who);
        if (strcmp(bad[i][0], "hostkey") == 0) assert_string_equal(r.host_keys, "");
        if (strcmp(bad[i][0], "slots") == 0) assert_int_equal(r.slot, -1);
        resource_clear(&r);
        tags_clear(&t);
    }
}

static void test_twice_and_missing(void **state) {
    (void)state;
    struct tags t;
    struct resource r;
    read_all(&t, NULL, NULL);
    tags_read(&t, "uid", "fedcba9876543210");
    assert_non_null(strstr(t.bad, "uid"));
    tags_clear(&t);
    tags_init(&t);
    tags_read(&t, "Name", "../..");
    resource_init(&r, RES_GROUP, "aws");
    tags_to_resource(&t, -1, &r);
    assert_string_equal(t.bad, "");
    assert_string_not_equal(r.unreadable, "");
    resource_clear(&r);
    tags_clear(&t);
}

/* encode, decode: the same; decoded text is exactly what encoding gives. */
static void test_round_trip(void **state) {
    (void)state;
    for (int first = 0; first < 4096; first += 37)
        for (int count = 1; count <= 4096 - first; count += 61) {
            char text[32];
            struct tags t;
            tags_init(&t);
            tags_slots_text(text, sizeof text, first, count);
            tags_read(&t, "slots", text);
            if (t.slot_first != first || t.slot_count != count || t.bad[0] != '\0') fail_msg("%s", text);
            tags_clear(&t);
        }
    static const double prices[] = {0, 0.0001, 0.526, 98.32, 99999};
    for (size_t i = 0; i < GP_ARRAY_LEN(prices); i++) {
        char text[32];
        struct tags t;
        tags_init(&t);
        tags_price_text(text, sizeof text, prices[i]);
        tags_read(&t, "price", text);
        assert_true(t.bad[0] == '\0' && t.price_usd_per_h == prices[i]);
        tags_clear(&t);
    }
}

static void test_regions(void **state) {
    (void)state;
    struct strv names = {0}, again = {0};
    strv_add(&names, "us-west-2");
    strv_add(&names, "eu-west-1");
    strv_add(&names, "us-west-2");
    GP_AUTO_FREE char *two = tags_regions_text(&names);
    assert_string_equal(two, "eu-west-1 us-west-2");
    assert_true(tags_regions_split(two, &again) && again.n == 2);
    for (int i = 0; i < 40; i++) strv_take(&names, xasprintf("ap-northeast-%d", i));
    GP_AUTO_FREE char *many = tags_regions_text(&names);
    assert_string_equal(many, TAGS_EVERYWHERE); /* more than a tag holds */
    assert_false(tags_regions_split(many, &again) || tags_regions_split("", &again));
    strv_clear(&names);
    strv_clear(&again);
}

/* Tags that were added later: their order does not matter, nothing that was named is lost, and a bad one or a
 * claim that names no region at first stands for everywhere. */
static void test_regions_added_later(void **state) {
    (void)state;
    static const struct {
        const char *tags[4][2];
        const char *want;
        bool bad;
    } cases[] = {
        {{{"regions", "us-east-1"}, {"region/eu-west-1", "1"}, {"region/us-west-2", "1"}},
         "eu-west-1 us-east-1 us-west-2",
         false},
        {{{"region/us-west-2", "1"}, {"region/us-east-1", "1"}, {"regions", "us-east-1"}},
         "us-east-1 us-west-2",
         false},
        {{{"regions", "*"}, {"region/eu-west-1", "1"}}, "*", false},
        {{{"region/eu-west-1", "1"}}, "", false},
        {{{"regions", "us-east-1"}, {"region/../x", "1"}}, "us-east-1", true},
        {{{"regions", "us-east-1"}, {"region/", "1"}}, "us-east-1", true},
        {{{"regions", "us-east-1"}, {"region/eu-west-1", "0"}}, "us-east-1", true},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct tags t;
        tags_init(&t);
        for (size_t k = 0; k < 4 && cases[i].tags[k][0] != NULL; k++)
            tags_read(&t, cases[i].tags[k][0], cases[i].tags[k][1]);
        GP_AUTO_FREE char *all = tags_regions(&t);
        if (strcmp(all, cases[i].want) != 0 || (t.bad[0] != '\0') != cases[i].bad) fail_msg("%zu: '%s'", i, all);
        tags_clear(&t);
    }
    struct tags t;
    tags_init(&t);
    tags_read(&t, "regions", "us-east-1");
    for (int i = 0; i < 60; i++) {
        char key[32];
        snprintf(key, sizeof key, "region/ap-northeast-%d", i);
        tags_read(&t, key, "1");
    }
    GP_AUTO_FREE char *many = tags_regions(&t);
    assert_string_equal(many, TAGS_EVERYWHERE);
    tags_clear(&t);
}

static void test_coverage(void **state) {
    (void)state;
    struct coverage c = {0};
    struct gp_error why = {0};
    GP_AUTO_STR struct str seen = {0}, gaps = {0};
    gp_fail(&why, GP_EAUTH, "denied");
    assert_false(coverage_whole(&c)); /* nobody looked anywhere: that proves nothing */
    coverage_put(&c, "local", "here", "me", false, NULL);
    coverage_put(&c, "aws", "us-east-1", "me", true, &why);
    coverage_put(&c, "aws", "us-east-1", "me", true, NULL);
    assert_true(coverage_whole(&c));
    coverage_put(&c, "ssh", "here", "me", false, &why);
    coverage_put(&c, "aws", "eu-west-1", "me", true, &why);
    assert_string_equal(coverage_gap(&c)->region, "eu-west-1"); /* the one that may be billed */
    coverage_text(&c, true, 6, &seen);
    coverage_text(&c, false, 6, &gaps);
    assert_string_equal(seen.s, "local here (owner me); aws us-east-1 (owner me)");
    assert_string_equal(gaps.s, "ssh here; aws eu-west-1");
    coverage_drop(&c, "aws");
    assert_null(coverage_find(&c, "aws", "us-east-1"));
    coverage_clear(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),       cmocka_unit_test(test_bad),     cmocka_unit_test(test_twice_and_missing),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_regions), cmocka_unit_test(test_regions_added_later),
        cmocka_unit_test(test_coverage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
