/* SPDX-License-Identifier: Apache-2.0 */
/* Tags as labels of clouds: every tag that gpuprov writes is the same after it went through a cloud's limits, and a
 * label that gpuprov would not have written is bad. */
#include "base/gp_base.h"

#include "model/labels.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define UID "0123456789abcdef"
#define HASH UID UID UID UID

static uint64_t seed = 88172645463325252u;
static size_t random_below(size_t n) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (size_t)(seed % n);
}

/* first is of the letters and digits only. */
static char *random_text(const char *chars, size_t first, size_t min, size_t max) {
    size_t n = min + random_below(max - min + 1);
    char *s = xcalloc(n + 1, 1);
    for (size_t i = 0; i < n; i++) s[i] = chars[random_below(i == 0 ? first : strlen(chars))];
    return s;
}

#define ALNUM "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

static void take(struct tags *t, const char *key, char *value) {
    tags_read(t, key, value);
    if (t->bad[0] != '\0') fail_msg("%s: '%s'", t->bad, value);
    free(value);
}

/* What a stack may be called, in all its length and characters. */
static void random_tags(struct tags *t) {
    tags_init(t);
    take(t, "owner", random_text(ALNUM "._+=,@-", 62, 1, 128));
    take(t, "stack", random_text("abcdefghijklmnopqrstuvwxyz0123456789-", 26, 1, 40));
    take(t, "uid", random_text("0123456789abcdef", 16, 16, 16));
    take(t, "spec", random_text("0123456789abcdef", 16, 64, 64));
    char *print = random_text(ALNUM "+/", 62, 43, 43);
    print[42] = 'A'; /* 256 bits: the last digit has two */
    take(t, "hostkey", xasprintf("SHA256:%s", print));
    free(print);
    take(t, "created", xstrdup("2026-11-22T08:00:00Z"));
    take(t, "expires", xasprintf("2026-11-22T12:%02zu:59Z", random_below(60)));
    take(t, "slots", xasprintf("%zu+%zu", random_below(2000), 1 + random_below(2000)));
    take(t, "attempt", xasprintf("%zu", random_below(1000)));
    take(t, "price", random_below(4) == 0 ? xstrdup("") : xasprintf("%.6g", (double)random_below(100000) / 1000));
    if (random_below(2) == 0) take(t, "claim", xstrdup("1"));
    if (random_below(2) == 0) take(t, "unit", random_text("abcdefghijklmnopqrstuvwxyz", 26, 1, 40));
    GP_AUTO_STRV struct strv names = {0};
    for (size_t n = random_below(9); n > 0; n--) strv_take(&names, random_text(ALNUM ".-_", 62, 1, 64));
    take(t, "regions", tags_regions_text(&names));
    for (size_t n = random_below(4); n > 0; n--) {
        GP_AUTO_FREE char *name = random_text(ALNUM ".-_", 62, 1, 60);
        GP_AUTO_FREE char *key = xasprintf(TAGS_REGION "%s", name);
        take(t, key, xstrdup(TAGS_YES));
    }
}

static bool same(const struct tags *a, const struct tags *b) {
    return str_eq(a->owner, b->owner) && str_eq(a->stack, b->stack) && str_eq(a->uid, b->uid) &&
           str_eq(a->spec_hash, b->spec_hash) && str_eq(a->hostkey, b->hostkey) && str_eq(a->regions, b->regions) &&
           str_eq(a->more_regions, b->more_regions) && str_eq(a->unit, b->unit) && a->created_s == b->created_s &&
           a->expires_s == b->expires_s && a->slot_first == b->slot_first && a->slot_count == b->slot_count &&
           a->attempt == b->attempt && a->price_usd_per_h == b->price_usd_per_h && a->claim == b->claim;
}

/* GCP's rules: keys begin with a letter; 63 characters of a-z, 0-9, '_' and '-'; 64 labels; each key once. */
static void obeys_gcp(const struct label_list *labels) {
    static const char chars[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    assert_true(labels->list.len <= 64);
    for (size_t i = 0; i < labels->list.len; i++) {
        const struct label *l = &labels->list.items[i];
        assert_true(l->key[0] >= 'a' && l->key[0] <= 'z');
        assert_true(strlen(l->key) <= 63 && strspn(l->key, chars) == strlen(l->key));
        assert_true(strlen(l->value) <= 63 && strspn(l->value, chars) == strlen(l->value));
        for (size_t k = 0; k < i; k++) assert_string_not_equal(l->key, labels->list.items[k].key);
    }
}

static void shuffle(struct label_list *labels) {
    for (size_t i = labels->list.len; i > 1; i--) {
        size_t k = random_below(i);
        struct label one = labels->list.items[k];
        labels->list.items[k] = labels->list.items[i - 1];
        labels->list.items[i - 1] = one;
    }
}

static void round_trip(const struct label_limits *limits) {
    for (int i = 0; i < 2000; i++) {
        GP_AUTO_LABELS struct label_list labels = {0};
        struct tags t, again;
        random_tags(&t);
        labels_add(&labels, "team", "Ours"); /* somebody else's */
        assert_true(labels_write(limits, &t, &labels));
        free(labels.list.items[0].value);
        labels.list.items[0].value = xstrdup("ours");
        if (limits->coded) obeys_gcp(&labels);
        for (size_t k = 1; limits->slash != '\0' && k < labels.list.len; k++)
            assert_null(strpbrk(labels.list.items[k].key, "<>%&\\?/"));
        shuffle(&labels);
        labels_read(limits, &labels, &again);
        if (again.bad[0] != '\0' || !same(&t, &again)) fail_msg("%s (owner %s)", again.bad, t.owner);
        tags_clear(&t);
        tags_clear(&again);
    }
}

static void test_round_trip_ec2(void **state) {
    (void)state;
    round_trip(&labels_ec2);
    round_trip(&labels_runpod);
}

static void test_round_trip_gcp(void **state) {
    (void)state;
    round_trip(&labels_gcp);
}

/* No '/' in a key, and none of the other characters that Azure refuses there. */
static void test_round_trip_azure(void **state) {
    (void)state;
    round_trip(&labels_azure);
    GP_AUTO_LABELS struct label_list labels = {0};
    struct tags t, again;
    tags_init(&t);
    tags_read(&t, TAGS_REGION "eastus", TAGS_YES);
    assert_true(labels_write(&labels_azure, &t, &labels));
    assert_int_equal(labels.list.len, 1);
    assert_string_equal(labels.list.items[0].key, "gpuprov:region.eastus");
    labels_add(&labels, "gpuprov:region/westus", TAGS_YES); /* not as gpuprov writes it there */
    labels_read(&labels_azure, &labels, &again);
    assert_string_equal(again.more_regions, "eastus");
    tags_clear(&again);
    tags_clear(&t);
}

static void test_form(void **state) {
    (void)state;
    GP_AUTO_LABELS struct label_list ec2 = {0}, gcp = {0};
    struct tags t;
    tags_init(&t);
    tags_read(&t, "owner", "Me@x");
    tags_read(&t, "spec", HASH);
    tags_read(&t, TAGS_REGION "us-east-1", TAGS_YES);
    labels_write(&labels_ec2, &t, &ec2);
    labels_write(&labels_gcp, &t, &gcp);
    static const char *const want_ec2[][2] = {
        {"gpuprov:owner", "Me@x"}, {"gpuprov:spec", HASH}, {"gpuprov:region/us-east-1", "1"}};
    static const char *const want_gcp[][2] = {{"gpuprov-owner", "_me_5x"},
                                              {"gpuprov-spec", UID UID UID "0123456789abcde"},
                                              {"gpuprov-spec-1", "f"},
                                              {"gpuprov-region-", "us-east-1"}};
    assert_int_equal(ec2.list.len, 3);
    assert_int_equal(gcp.list.len, 4);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(ec2.list.items[i].key, want_ec2[i][0]);
        assert_string_equal(ec2.list.items[i].value, want_ec2[i][1]);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_true(str_starts(gcp.list.items[i].key, want_gcp[i][0]));
        assert_string_equal(gcp.list.items[i].value, want_gcp[i][1]);
    }
    tags_clear(&t);
}

/* Labels that anybody wrote. */
static void test_bad(void **state) {
    (void)state;
    static const char *const bad[][2] = {{"gpuprov-owner", "_"},
                                         {"gpuprov-owner", "a_-zz"},
                                         {"gpuprov-owner", "a_-00"},
                                         {"gpuprov-owner", "_-41"},
                                         /* 'A' has a shorter code */ {"gpuprov-owner", "Me"},
                                         {"gpuprov-owner", "a_7b"},
                                         /* a/b */ {"gpuprov-uid", UID "_0"},
                                         {"gpuprov-slots", "4+8"},
                                         {"gpuprov-spec", UID},
                                         {"gpuprov-region-0123456789abcdef", "us-east-1"},
                                         {"gpuprov-owner", ""},
                                         {"gpuprov-expires", "2026-11-22"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        GP_AUTO_LABELS struct label_list labels = {0};
        struct tags t;
        labels_add(&labels, bad[i][0], bad[i][1]);
        labels_read(&labels_gcp, &labels, &t);
        if (t.bad[0] == '\0') fail_msg("%s=%s", bad[i][0], bad[i][1]);
        tags_clear(&t);
    }
    /* a part behind one that is not full, and one that nothing stands before */
    static const char *const extra[][2] = {{"gpuprov-owner", "me"}, {"gpuprov-owner-1", "x"}};
    for (size_t from = 0; from < 2; from++) {
        GP_AUTO_LABELS struct label_list labels = {0};
        struct tags t;
        for (size_t i = from; i < 2; i++) labels_add(&labels, extra[i][0], extra[i][1]);
        labels_read(&labels_gcp, &labels, &t);
        assert_string_equal(t.owner, "");
        assert_int_equal(t.bad[0] != '\0', from == 0);
        tags_clear(&t);
    }
    GP_AUTO_LABELS struct label_list twice = {0};
    struct tags t;
    labels_add(&twice, "gpuprov-uid", UID);
    labels_add(&twice, "gpuprov-uid", UID);
    labels_read(&labels_gcp, &twice, &t);
    assert_string_not_equal(t.bad, "");
    tags_clear(&t);
}

/* More than a cloud holds is told, not cut. */
static void test_too_much(void **state) {
    (void)state;
    GP_AUTO_LABELS struct label_list labels = {0};
    struct tags t;
    tags_init(&t);
    for (int i = 0; i < 70; i++) {
        GP_AUTO_FREE char *key = xasprintf(TAGS_REGION "%c%d", 'a' + i / 10, i % 10);
        tags_read(&t, key, TAGS_YES);
    }
    assert_string_not_equal(t.more_regions, TAGS_EVERYWHERE);
    assert_false(labels_write(&labels_gcp, &t, &labels));
    tags_clear(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_ec2),
        cmocka_unit_test(test_round_trip_gcp),
        cmocka_unit_test(test_round_trip_azure),
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_too_much),
    };
    return cmocka_run_group_tests_name("labels", tests, NULL, NULL);
}
