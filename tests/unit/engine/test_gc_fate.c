/* SPDX-License-Identifier: Apache-2.0 */
/* What gc destroys of a stack: a foreign machine's tags end that machine only, and a stack of the journal follows the
 * journal. Pure. */
#include "base/gp_base.h"

#include "engine/gc/gc_fate.h"

#include "engine/stack/forget.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define NOW 1800000000
#define UID "0123456789abcdef"
#define LAUNCH "00112233445566778899aabbccddeeff"

static struct resource_list all;
static struct intent_list stones;
static bool incomplete, keyless;
static int64_t claimed_s;

static struct resource *add(enum resource_kind kind, const char *id, enum resource_ours ours, int64_t expires_s) {
    struct resource r;
    resource_init(&r, kind, "aws");
    resource_set(&r.id, id);
    resource_set(&r.uid, UID);
    resource_set(&r.stack, "t");
    r.expires_s = expires_s;
    r.ours = ours;
    r.claim = kind == RES_GROUP;
    r.slot = kind == RES_INSTANCE ? 0 : -1;
    r.attempt = 1;
    vec_push(&all.list, r);
    return &all.list.items[all.list.len - 1];
}

/* "whole", or the ids. */
static const char *fate_of(bool launched, bool adopted, int64_t known_s) {
    static char text[256];
    struct gc_group g = {.all = &all,
                         .of = &all.list.items[0],
                         .launched = launched,
                         .adopted = adopted,
                         .known_s = known_s,
                         .claimed_s = claimed_s,
                         .keyless = keyless,
                         .complete = !incomplete,
                         .stones = &stones};
    struct gc_fate f = {0};
    gc_fate_find(&g, NOW, &f);
    text[0] = '\0';
    for (size_t i = 0; i < f.some.list.len; i++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%s", i > 0 ? " " : "", f.some.list.items[i].id);
    }
    if (f.whole) snprintf(text, sizeof text, "whole");
    vec_free(&f.some.list);
    return text;
}

/* known_s -1: the journal does not know it; else it has launched it. */
static const char *fate(int64_t known_s) { return fate_of(known_s >= 0, false, known_s); }

static int clear(void **state) {
    (void)state;
    resource_list_clear(&all);
    intent_list_clear(&stones);
    incomplete = keyless = false;
    claimed_s = 0;
    return 0;
}

static void test_a_foreign_machine_ends_alone(void **state) {
    (void)state;
    for (int known = 0; known <= 1; known++) {
        add(RES_GROUP, "sg", OURS_NOT, NOW + 9);
        add(RES_INSTANCE, "i-0", known ? OURS_LAUNCHED : OURS_NOT, NOW + 9);
        add(RES_INSTANCE, "i-1", known ? OURS_PROVEN : OURS_NOT, NOW + 9);
        add(RES_INSTANCE, "i-foreign", OURS_NOT, 1577836800);
        assert_string_equal(fate(known ? NOW + 9 : -1), "i-foreign");
        clear(NULL);
    }
}

/* Edited tags of the stack's own machines, with the journal and without. */
static void test_edited_deadlines(void **state) {
    (void)state;
    add(RES_INSTANCE, "i-0", OURS_LAUNCHED, NOW - 9);
    add(RES_INSTANCE, "i-1", OURS_LAUNCHED, NOW + 9);
    assert_string_equal(fate(NOW + 9), "");
    assert_string_equal(fate(NOW - 1), "whole"); /* and one of 2099 holds nothing up */
    assert_string_equal(fate(0), "");
    for (size_t i = 0; i < all.list.len; i++) all.list.items[i].ours = OURS_NOT;
    assert_string_equal(fate(-1), "i-0");
}

static void test_all_of_it_is_over(void **state) {
    (void)state;
    add(RES_GROUP, "sg", OURS_NOT, NOW + 99); /* its nodes may have been preempted, and are launched again */
    add(RES_INSTANCE, "i-0", OURS_NOT, NOW);
    add(RES_INSTANCE, "i-1", OURS_NOT, NOW - 1);
    assert_string_equal(fate(-1), "i-0 i-1");
    all.list.items[0].expires_s = NOW - 1;
    assert_string_equal(fate(-1), "whole");
    add(RES_INSTANCE, "i-unreadable", OURS_NOT, 0);
    assert_string_equal(fate(-1), "whole");
    incomplete = true; /* there may be machines that are not over */
    assert_string_equal(fate(-1), "i-0 i-1");
    incomplete = false;
}

/* Without machines a foreign group's tag does not end the claim of a stack that is launching. */
static void test_without_machines(void **state) {
    (void)state;
    add(RES_GROUP, "sg", OURS_NOT, NOW + 9);
    add(RES_VOLUME, "vol", OURS_NOT, NOW - 9);
    assert_string_equal(fate(-1), "vol");
    assert_string_equal(fate(NOW + 9), "");
    all.list.items[0].expires_s = NOW - 9;
    assert_string_equal(fate(-1), "whole");
    assert_string_equal(fate(NOW + 9), "");
}

static void test_what_a_tombstone_names(void **state) {
    (void)state;
    struct intent stone = {.uid = xstrdup(UID),
                           .note = xstrdup(FORGET_NOTE),
                           .slot_first = 0,
                           .slot_count = 1,
                           .attempt = 1,
                           .deadline_s = NOW + 9,
                           .body = xstrdup("{\"launch\":\"" LAUNCH "\"}")};
    vec_push(&stones.list, stone);
    add(RES_GROUP, "sg", OURS_NOT, NOW + 9);
    resource_set(&add(RES_INSTANCE, "i-late", OURS_NOT, NOW + 9)->launch, LAUNCH);
    assert_string_equal(fate(-1), "i-late");        /* a claim with its uid may be anybody's */
    add(RES_INSTANCE, "i-copy", OURS_NOT, NOW + 9); /* slot and attempt are another run's too */
    resource_set(&add(RES_INSTANCE, "i-other", OURS_NOT, NOW + 9)->launch, "0123456789abcdef0123456789abcdef");
    struct resource *again = add(RES_INSTANCE, "i-again", OURS_NOT, NOW + 9);
    again->attempt = 2; /* launched again since */
    resource_set(&again->launch, LAUNCH);
    struct resource *same_key =
        add(RES_INSTANCE, "i-same-key", OURS_NOT, NOW + 8); /* another run's, with another deadline */
    resource_set(&same_key->launch, LAUNCH);
    struct resource *node = add(RES_INSTANCE, "i-node", OURS_NOT, NOW + 9); /* a run has made it a node */
    resource_set(&node->launch, LAUNCH);
    resource_set(&node->proof, LAUNCH);
    assert_string_equal(fate(-1), "i-late");
}

/* Without the login key a machine of another controller cannot be told from a copy: the rest waits for the deadline that
 * it states. */
static void test_a_later_deadline_that_may_be_the_stacks(void **state) {
    (void)state;
    add(RES_GROUP, "sg", OURS_NOT, NOW - 9);
    add(RES_INSTANCE, "i-own", OURS_LAUNCHED, NOW - 9);
    resource_set(&add(RES_INSTANCE, "i-perhaps", OURS_NOT, NOW + 9)->proof, LAUNCH);
    add(RES_INSTANCE, "i-foreign", OURS_NOT, NOW - 9);
    keyless = true;
    claimed_s = NOW + 9;
    assert_string_equal(fate(NOW - 9), "i-own i-foreign");
    assert_string_equal(fate(NOW + 9), "i-foreign");
    claimed_s = NOW; /* it is over by its own word */
    assert_string_equal(fate(NOW - 9), "whole");
}

static void test_other_names_and_uids(void **state) {
    (void)state;
    add(RES_INSTANCE, "i-0", OURS_NOT, NOW + 9);
    resource_set(&add(RES_INSTANCE, "i-name", OURS_NOT, NOW - 9)->stack, "u");
    resource_set(&add(RES_INSTANCE, "i-uid", OURS_NOT, NOW - 9)->uid, "aaaaaaaaaaaaaaaa");
    add(RES_INSTANCE, "i-gone", OURS_NOT, NOW - 9)->state = RES_GONE;
    assert_string_equal(fate(-1), "");
}

/* A copy of the uid under another name: only the copy ends, with the journal and without it. */
static void test_another_name_with_the_uid(void **state) {
    (void)state;
    resource_set(&add(RES_INSTANCE, "i-copy", OURS_NOT, NOW - 9)->stack, "other");
    resource_set(&all.list.items[0].stack, "other");
    add(RES_INSTANCE, "i-0", OURS_LAUNCHED, NOW + 9);
    assert_string_equal(fate(-1), "whole"); /* that is, what has both */
    assert_string_equal(fate(0), "i-copy");
}

/* The proven deadline counts for proven machines, and each other one has its own. */
static void test_adopted(void **state) {
    (void)state;
    add(RES_GROUP, "sg", OURS_NOT, NOW - 9);
    add(RES_INSTANCE, "i-0", OURS_PROVEN, NOW - 9); /* somebody put a former deadline back */
    add(RES_INSTANCE, "i-1", OURS_PROVEN, NOW + 9);
    add(RES_INSTANCE, "i-foreign", OURS_NOT, NOW - 9);
    assert_string_equal(fate_of(false, true, NOW + 9), "i-foreign");
    assert_string_equal(fate_of(false, true, 0), "i-foreign");
    assert_string_equal(fate_of(false, true, NOW), "whole");
    all.list.items[0].expires_s = NOW + 9;
    assert_string_equal(fate_of(false, true, NOW), "i-0 i-1 i-foreign");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_foreign_machine_ends_alone, clear),
        cmocka_unit_test_teardown(test_edited_deadlines, clear),
        cmocka_unit_test_teardown(test_all_of_it_is_over, clear),
        cmocka_unit_test_teardown(test_without_machines, clear),
        cmocka_unit_test_teardown(test_what_a_tombstone_names, clear),
        cmocka_unit_test_teardown(test_a_later_deadline_that_may_be_the_stacks, clear),
        cmocka_unit_test_teardown(test_adopted, clear),
        cmocka_unit_test_teardown(test_other_names_and_uids, clear),
        cmocka_unit_test_teardown(test_another_name_with_the_uid, clear),
    };
    return cmocka_run_group_tests_name("gc fate", tests, NULL, NULL);
}
