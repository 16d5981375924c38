/* SPDX-License-Identifier: Apache-2.0 */
/* What another gpuprov, or somebody else in the account, does between two steps of this one. */
#include "engine_cloud.h"

#include "engine/stack/give_back.h"

static struct fixture *now; /* of the test that runs, for the cloud's hooks */

/* Machines with the tags of the launch, and nothing that proves them. */
static void plant(const struct create_req *req) {
    cloud.at_create = NULL;
    for (int s = req->slot_first; s < req->slot_first + req->slot_count; s++) {
        GP_AUTO_FREE char *id = xasprintf("i-planted-%d", s);
        add(RES_INSTANCE, id, req->stack, s)->attempt = req->attempt;
    }
}

/* Ctrl-C while a create is under way whose machines do not show: planted ones are not taken for them. */
static void test_ctrl_c_beside_planted_machines(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct up_result res = {0};
    cloud.cancel_in_create = f->e;
    cloud.lose_reply_at = 0;
    cloud.never_made = true;
    cloud.at_create = plant;
    assert_int_equal(engine_up(f->e, f->spec, &res, &err), -GP_EUNKNOWN);
    assert_int_equal(gp_exit_code(err.code), 8);
    up_result_clear(&res);
}

static void launch_other(void) {
    cloud.at_destroy = NULL;
    prove(&now->run->proof, add(RES_INSTANCE, "i-other", &now->run->stack, 0));
}

/* Nodes are given back, and another gpuprov fills their place at once: its machine stays. */
static void test_what_takes_the_place_of_a_node_given_back(void **state) {
    struct fixture *f = now = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.at_destroy = launch_other;
    if (give_back(f->run, (const int[]){0}, 1, "of this test", &err) != 0) fail_msg("%s", err.msg);
    assert_string_equal(f->run->nodes[0].res.id, "i-other");
    for (size_t i = 0; i < cloud.things.list.len; i++) {
        const struct resource *r = &cloud.things.list.items[i];
        if (strcmp(r->id, "i-other") == 0 || strcmp(r->id, "i-1") == 0) assert_int_equal(r->state, RES_RUNNING);
    }
}

static void put_deadline(int64_t in_s) {
    struct gp_error err = {0};
    now->run->stack.expires_s = clock_wall_s() + in_s;
    if (journal_stack_put(now->e->journal, &now->run->stack, NULL, &err) != 0) fail_msg("%s", err.msg);
}

static int opens;
static void extend(void) {
    if (++opens == 2) put_deadline(7200); /* gc has judged the stack by its list, and opens its provider to end it */
}

static bool runs(const char *id) {
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (strcmp(cloud.things.list.items[i].id, id) == 0) return cloud.things.list.items[i].state == RES_RUNNING;
    return false;
}

static void sweep(struct fixture *f, struct gc_result *ret) {
    struct gp_error err = {0};
    opens = 0;
    if (engine_gc(f->e, "aws", false, ret, &err) != 0) fail_msg("%s", err.msg);
}

/* `extend` comes between gc's list and gc's lock. */
static void test_a_deadline_that_moves_under_gc(void **state) {
    struct fixture *f = now = *state;
    struct gp_error err = {0};
    struct gc_result res = {0};
    assert_int_equal(launch(f, &err), 0);
    put_deadline(-600);
    for (size_t i = 0; i < cloud.things.list.len; i++) cloud.things.list.items[i].expires_s = f->run->stack.expires_s;
    cloud.at_open = extend;
    sweep(f, &res);
    assert_true(opens >= 2);
    assert_int_equal(res.ended.list.len, 0);
    assert_true(runs("i-0") && runs("i-1"));
    gc_result_clear(&res);
    cloud.at_open = NULL; /* and without it they end */
    put_deadline(-600);
    sweep(f, &res);
    assert_false(runs("i-0") || runs("i-1"));
    gc_result_clear(&res);
}

/* A machine of another controller with the key, which this journal does not have: in place of i-N, or of all. */
static void replace_by_proven(struct fixture *f, bool all, int64_t expires_s, int64_t tag_s) {
    for (size_t i = 0; i < cloud.things.list.len; i++) {
        struct resource *r = &cloud.things.list.items[i];
        if (strcmp(r->id, "i-1") == 0 || (all && strcmp(r->id, "i-0") == 0)) r->state = RES_GONE;
    }
    struct resource *r = add(RES_INSTANCE, "i-other", &f->run->stack, 1);
    r->expires_s = expires_s;
    prove(&f->run->proof, r);
    r->expires_s = tag_s;
}

/* gc knows it by its proof: an edited deadline does not end it, and its own later one is the stack's. */
static void test_gc_of_a_node_that_another_controller_launched(void **state) {
    struct fixture *f = now = *state;
    struct gp_error err = {0};
    struct gc_result res = {0};
    assert_int_equal(launch(f, &err), 0);
    replace_by_proven(f, false, f->run->stack.expires_s, clock_wall_s() - 600);
    sweep(f, &res);
    assert_true(runs("i-0") && runs("i-other"));
    gc_result_clear(&res);
}

static void test_gc_of_a_stack_that_another_controller_extended(void **state) {
    struct fixture *f = now = *state;
    struct gp_error err = {0};
    struct gc_result res = {0};
    assert_int_equal(launch(f, &err), 0);
    int64_t later_s = clock_wall_s() + 7200;
    replace_by_proven(f, true, later_s, later_s);
    put_deadline(-600);
    sweep(f, &res);
    assert_true(runs("i-other"));
    gc_result_clear(&res);
}

/* An adopted stack whose deadline nothing proved is forgotten when nothing of it is there, and not before. */
static void test_gc_forgets_a_stack_without_a_deadline(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct gc_result res = {0};
    struct stack_list left = {0};
    struct stack s = {
        .owner = "me", .name = "t", .uid = "aaaaaaaaaaaaaaaa", .provider = "aws", .region = "r1", .spec_hash = ""};
    assert_int_equal(journal_stack_put(f->e->journal, &s, NULL, &err), 0);
    add_of(RES_INSTANCE, "i-0", 0, "me", "t", s.uid, clock_wall_s() + 600);
    for (size_t there = 2; there-- > 0;) {
        if (there == 0) cloud.things.list.items[0].state = RES_GONE;
        sweep(f, &res);
        gc_result_clear(&res);
        assert_int_equal(journal_stacks(f->e->journal, &left, &err), 0);
        assert_int_equal(left.list.len, there);
        stack_list_clear(&left);
    }
}

static void show_claim(void) {
    if (cloud.lists != 2) return;
    add_of(RES_GROUP, "sg-late", -1, "me", "t", "aaaaaaaaaaaaaaaa", clock_wall_s() + 600);
    add_of(RES_INSTANCE, "i-late", 0, "me", "t", "aaaaaaaaaaaaaaaa", clock_wall_s() + 600);
}

/* A run was killed while it made the claim: neither this journal nor the first list has its uid. */
static void test_a_claim_that_shows_while_down_looks(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct down_result res = {0};
    struct intent in = {.uid = xstrdup("aaaaaaaaaaaaaaaa"),
                        .provider = xstrdup("aws"),
                        .kind = RES_GROUP,
                        .claim = true,
                        .slot_first = -1,
                        .created_s = clock_wall_s() + 1};
    assert_int_equal(journal_intent(f->e->journal, &in, &err), 0);
    intent_clear(&in);
    cloud.at_list = show_claim;
    struct down_req req = {.spec = f->spec, .yes = true};
    if (engine_down(f->e, &req, &res, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(res.destroyed, 2);
    for (size_t i = 0; i < cloud.things.list.len; i++) assert_int_equal(cloud.things.list.items[i].state, RES_GONE);
    down_result_clear(&res);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ctrl_c_beside_planted_machines, setup, finish),
        cmocka_unit_test_setup_teardown(test_what_takes_the_place_of_a_node_given_back, setup, finish),
        cmocka_unit_test_setup_teardown(test_a_deadline_that_moves_under_gc, setup, finish),
        cmocka_unit_test_setup_teardown(test_gc_forgets_a_stack_without_a_deadline, setup, finish),
        cmocka_unit_test_setup_teardown(test_a_claim_that_shows_while_down_looks, setup, finish),
        cmocka_unit_test_setup_teardown(test_gc_of_a_node_that_another_controller_launched, setup, finish),
        cmocka_unit_test_setup_teardown(test_gc_of_a_stack_that_another_controller_extended, setup, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
