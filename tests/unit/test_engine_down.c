/* SPDX-License-Identifier: Apache-2.0 */
/* down and gc on bad days: no credentials from the start, a list that fails in the middle, late
 * launches, leftovers of an earlier stack of the same name, tombstones. */
#include "base/gp_base.h"

#include "engine_cloud.h"

static struct intent_list stones_of(struct fixture *f) {
    struct intent_list l = {0};
    struct gp_error err = {0};
    assert_int_equal(journal_intents(f->e->journal, NULL, 1u << INTENT_TOMBSTONE, &l, &err), 0);
    return l;
}

static size_t stones(struct fixture *f) {
    struct intent_list l = stones_of(f);
    size_t n = l.list.len;
    intent_list_clear(&l);
    return n;
}

/* The provider does not even open: the ids come from the journal, and the exit code says billed. */
static void test_no_credentials_at_all(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.open_fails = true;
    struct down_result res = {0};
    assert_int_equal(engine_down(f->e, "t", NULL, &res, &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "i-0"));
    assert_non_null(strstr(err.msg, "i-1"));
    assert_int_equal(res.left.list.len, 2);
    down_result_clear(&res);
}

static void test_list_fails_in_the_middle(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.gone_after = 100;
    cloud.list_fails_at = cloud.lists + 3;
    struct down_result res = {0};
    assert_int_equal(engine_down(f->e, "t", NULL, &res, &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "i-0"));
    down_result_clear(&res);
}

/* One read without a machine does not make it gone in the journal. */
static void test_gone_needs_two_reads(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.hide_instances_at = cloud.lists + 2; /* the first read of the teardown */
    cloud.list_fails_at = cloud.lists + 3;
    struct down_result res = {0};
    assert_int_equal(engine_down(f->e, "t", NULL, &res, &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "i-0"));
    down_result_clear(&res);
}

static void test_earlier_stack_of_the_name(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct stack old = {.owner = xstrdup("me"), .name = xstrdup("t"), .uid = xstrdup("aaaa"),
                        .spec_hash = xstrdup("")};
    add(RES_INSTANCE, "i-late", &old, 0);
    stack_clear(&old);
    down_ok(f);
}

/* A launch of an ended stack shows up after down: gc ends it long before its deadline. */
static void test_gc_ends_what_a_tombstone_names(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    GP_AUTO_FREE char *uid = xstrdup(f->run->stack.uid);
    struct intent in = {.uid = xstrdup(uid), .provider = xstrdup("aws"), .kind = RES_INSTANCE,
                        .slot_first = 0, .slot_count = 2, .attempt = 2,
                        .created_s = clock_wall_s(), .deadline_s = clock_wall_s() + 3600};
    assert_int_equal(journal_intent(f->e->journal, &in, &err), 0);
    intent_clear(&in);
    down_ok(f);
    assert_int_equal(stones(f), 1);
    struct stack old = {.owner = xstrdup("me"), .name = xstrdup("t"), .uid = xstrdup(uid),
                        .spec_hash = xstrdup(""), .expires_s = clock_wall_s() + 3600};
    resource_list_clear(&cloud.things);
    add(RES_INSTANCE, "i-late", &old, 1)->attempt = 2;
    stack_clear(&old);
    struct gc_result res = {0};
    assert_int_equal(engine_gc(f->e, NULL, true, &res, &err), 0);
    assert_int_equal(res.ended.list.len, 1);
    assert_int_equal(running(), 1);
    gc_result_clear(&res);
    assert_int_equal(engine_gc(f->e, NULL, false, &res, &err), 0);
    assert_int_equal(res.ended.list.len, 1);
    gc_result_clear(&res);
    assert_int_equal(running(), 0);
}

/* Once nothing can come of it any more the tombstone goes. */
static void test_gc_clears_tombstones(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct intent in = {.uid = xstrdup("bbbb"), .provider = xstrdup("aws"), .kind = RES_INSTANCE,
                        .slot_count = 2, .created_s = clock_wall_s() - 7200,
                        .deadline_s = clock_wall_s() - 3600, .state = INTENT_TOMBSTONE,
                        .note = xstrdup(TEARDOWN_NOTE)};
    assert_int_equal(journal_intent(f->e->journal, &in, &err), 0);
    in.created_s = clock_wall_s();
    in.deadline_s = clock_wall_s() + 3600;
    assert_int_equal(journal_intent(f->e->journal, &in, &err), 0);
    intent_clear(&in);
    struct gc_result res = {0};
    assert_int_equal(engine_gc(f->e, NULL, false, &res, &err), 0);
    gc_result_clear(&res);
    assert_int_equal(stones(f), 1); /* the young one stays */
}

/* A launch too old to repeat leaves a tombstone too; its stack lives on and is not gc's. */
static void test_gc_leaves_the_living(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct intent in = {.uid = xstrdup(f->run->stack.uid), .provider = xstrdup("aws"),
                        .kind = RES_INSTANCE, .slot_count = 2, .attempt = 1,
                        .created_s = clock_wall_s(), .deadline_s = clock_wall_s() + 3600,
                        .state = INTENT_TOMBSTONE, .note = xstrdup("too old")};
    assert_int_equal(journal_intent(f->e->journal, &in, &err), 0);
    intent_clear(&in);
    struct gc_result res = {0};
    assert_int_equal(engine_gc(f->e, NULL, false, &res, &err), 0);
    assert_int_equal(res.ended.list.len, 0);
    gc_result_clear(&res);
    assert_int_equal(running(), 2);
}

/* An expired stack and a living one share a name: only the expired one goes, and it does go. */
static void test_gc_tells_uids_apart(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct stack old = {.owner = xstrdup("me"), .name = xstrdup("t"), .uid = xstrdup("aaaa"),
                        .spec_hash = xstrdup(""), .expires_s = clock_wall_s() - 5};
    add(RES_INSTANCE, "i-old", &old, 0);
    stack_clear(&old);
    struct gc_result res = {0};
    assert_int_equal(engine_gc(f->e, NULL, false, &res, &err), 0);
    assert_int_equal(res.ended.list.len, 1);
    gc_result_clear(&res);
    assert_int_equal(running(), 2);
}

/* What could not be ended is not called ended. */
static void test_gc_that_fails(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct stack old = {.owner = xstrdup("me"), .name = xstrdup("old"), .uid = xstrdup("aaaa"),
                        .spec_hash = xstrdup(""), .expires_s = clock_wall_s() - 5};
    add(RES_INSTANCE, "i-old", &old, 0);
    stack_clear(&old);
    cloud.gone_after = 100;
    cloud.list_fails_at = cloud.lists + 3;
    struct gc_result res = {0};
    assert_int_equal(engine_gc(f->e, NULL, false, &res, &err), -GP_EBILLED);
    assert_int_equal(res.ended.list.len, 0);
    assert_int_equal(res.kept.list.len, 1);
    gc_result_clear(&res);
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, finish)
    const struct CMUnitTest tests[] = {
        T(test_no_credentials_at_all),
        T(test_list_fails_in_the_middle),
        T(test_gone_needs_two_reads),
        T(test_earlier_stack_of_the_name),
        T(test_gc_ends_what_a_tombstone_names),
        T(test_gc_clears_tombstones),
        T(test_gc_leaves_the_living),
        T(test_gc_tells_uids_apart),
        T(test_gc_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
