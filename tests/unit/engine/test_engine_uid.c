/* SPDX-License-Identifier: Apache-2.0 */
/* A uid in somebody's tags that belongs to another stack of the journal. */
#include "base/gp_base.h"

#include "engine_cloud.h"

static bool is_gone(const char *id) {
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (strcmp(cloud.things.list.items[i].id, id) == 0) return cloud.things.list.items[i].state == RES_GONE;
    return false;
}

#define OTHER "aaaaaaaaaaaaaaaa"

/* A stack with the uid OTHER and one machine, which this journal launched. */
static struct stack launched_stack(struct fixture *f, const char *owner, const char *name, const char *machine) {
    struct gp_error err = {0};
    struct stack s = {.owner = xstrdup(owner),
                      .name = xstrdup(name),
                      .uid = xstrdup(OTHER),
                      .provider = xstrdup("aws"),
                      .region = xstrdup("r1"),
                      .spec_hash = xstrdup(""),
                      .expires_s = clock_wall_s() + 3600};
    if (journal_stack_put(f->e->journal, &s, NULL, &err) != 0) fail_msg("%s", err.msg);
    record_launched(f->e->journal, add(RES_INSTANCE, machine, &s, 0));
    return s;
}

/* A stack "other" of the same owner with one machine and a claim, which this journal does not know. */
static void add_other(void) {
    add_of(RES_INSTANCE, "i-other", 0, "me", "other", OTHER, clock_wall_s() + 3600);
    add_of(RES_GROUP, "sg-other", -1, "me", "other", OTHER, clock_wall_s() + 3600);
}

static int end(struct fixture *f, const char *name, struct gp_error *err) {
    struct down_result down = {0};
    gp_error_clear(err);
    int r = engine_down(f->e, &(struct down_req){.name = name}, &down, err);
    down_result_clear(&down);
    return r;
}

/* A claim that somebody planted has this stack's name and the other's uid. `down` states what it left. */
static void test_a_planted_claim_without_the_journal(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    add_other();
    add_of(RES_GROUP, "sg-planted", -1, "me", "t", OTHER, clock_wall_s() + 3600);
    assert_int_equal(end(f, "t", &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "i-other"));
    assert_false(is_gone("i-other"));
    assert_int_equal(end(f, "other", &err), 0);
    assert_true(is_gone("i-other"));
}

/* What lists alone have shown under this name has no right to the other's uid. */
static void test_hearsay_does_not_own_a_uid(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct stack_view_list views = {0};
    add_of(RES_INSTANCE, "i-his", 0, "me", "t", OTHER, clock_wall_s() + 3600);
    assert_int_equal(engine_status(f->e, "t", NULL, true, &views, &err), 0);
    stack_view_list_clear(&views);
    add_other();
    int r = end(f, "other", &err);
    assert_true(is_gone("i-other"));
    if (!is_gone("i-his")) assert_int_equal(r, -GP_EBILLED);
}

/* The other way round: the journal has launched the other stack, so a copy with this name is left, and said. */
static void test_a_copy_with_the_uid_of_another_is_no_gone(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct stack other = launched_stack(f, "me", "other", "i-other");
    stack_clear(&other);
    add_of(RES_INSTANCE, "i-his", 0, "me", "t", OTHER, clock_wall_s() + 3600);
    assert_int_equal(end(f, "t", &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "i-his"));
    assert_false(is_gone("i-his") || is_gone("i-other"));
}

/* Another owner's stack of the same name is another stack. */
static void test_the_uid_of_another_owner(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct up_result up = {0};
    struct resource_list known = {0};
    struct stack other = launched_stack(f, "you", "t", "i-yours");
    add_of(RES_INSTANCE, "i-his", 0, "me", "t", OTHER, clock_wall_s() + 3600);
    (void)engine_up(f->e, f->spec, &up, &err);
    up_result_clear(&up);
    gp_error_clear(&err);
    (void)end(f, "t", &err);
    gp_error_clear(&err);
    stack_clear(&other);
    assert_false(is_gone("i-yours"));
    assert_int_equal(journal_stack_get(f->e->journal, "you", "t", &other, NULL, &err), 0);
    assert_string_equal(other.uid, OTHER);
    assert_int_equal(journal_resources(f->e->journal, OTHER, &known, &err), 0);
    bool there = false;
    for (size_t i = 0; i < known.list.len; i++)
        there = there || (str_eq(known.list.items[i].id, "i-yours") && known.list.items[i].state != RES_GONE);
    assert_true(there);
    resource_list_clear(&known);
    stack_clear(&other);
}

/* A machine is no cloud's claim, whatever its tags say; and without the journal nothing is launched beside a stack. */
static void test_a_machine_that_says_it_is_a_claim(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct up_result up = {0};
    add_of(RES_INSTANCE, "i-his", -1, "me", "t", "bbbbbbbbbbbbbbbb", clock_wall_s() + 3600)->claim = true;
    add_of(RES_INSTANCE, "i-mine", 0, "me", "t", OTHER, clock_wall_s() + 3600);
    add_of(RES_GROUP, "sg-mine", -1, "me", "t", OTHER, clock_wall_s() + 3600);
    assert_int_equal(engine_up(f->e, f->spec, &up, &err), -GP_ENOTFOUND);
    assert_int_equal(cloud.creates, 0);
    assert_false(is_gone("i-mine") || is_gone("i-his"));
    up_result_clear(&up);
}

/* The claim is this journal's, and another controller has launched under it meanwhile: a refused `up` takes nothing
 * back. */
static void test_a_refused_up_leaves_another_runs_nodes(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct up_result up = {0};
    load(f, "name: t\nnodes: 1\noffers: [{provider: aws}]\n");
    for (size_t i = 0; i < GP_ARRAY_LEN(cloud.script); i++)
        cloud.script[i] = (struct refusal){GP_EQUOTA, GP_SCOPE_PROVIDER, "quota"};
    cloud.launched_meanwhile = "i-theirs";
    assert_int_not_equal(engine_up(f->e, f->spec, &up, &err), 0);
    assert_true(cloud.creates > 0);
    assert_false(is_gone("i-theirs"));
    up_result_clear(&up);
}

/* The stack's nodes are at another cloud than a copy whose deadline has passed. */
static void test_gc_ends_a_copy_at_its_own_cloud_only(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct stack_view_list views = {0};
    struct gc_result gc = {0};
    struct resource *far = add_of(RES_INSTANCE, "i-far", 0, "me", "t", OTHER, clock_wall_s() + 3600);
    resource_set(&far->provider, "local");
    resource_set(&far->region, "here");
    assert_int_equal(engine_status(f->e, "t", NULL, true, &views, &err), 0); /* the journal has it now */
    stack_view_list_clear(&views);
    add_of(RES_INSTANCE, "i-his", 1, "me", "t", OTHER, clock_wall_s() - 60);
    (void)engine_gc(f->e, NULL, false, &gc, &err);
    gc_result_clear(&gc);
    assert_true(is_gone("i-his"));
    assert_false(is_gone("i-far"));
}

/* Somebody gave a claim with this stack's name the uid of another one that the journal has, and a deadline that has
 * passed: no verb of this name touches the other stack. */
static void test_the_uid_of_another_stack(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct stack other = launched_stack(f, "me", "other", "i-other");
    struct resource *renamed = add(RES_INSTANCE, "i-new", &other, 1); /* of another controller; somebody renamed it */
    resource_set(&renamed->stack, "t");
    add_of(RES_GROUP, "sg-planted", -1, "me", "t", "aaaaaaaaaaaaaaaa", clock_wall_s() - 60);
    for (int verb = 0; verb < 4; verb++) {
        struct up_result up = {0};
        struct down_result down = {0};
        struct stack_view_list views = {0};
        struct gc_result gc = {0};
        gp_error_clear(&err);
        if (verb == 0) engine_status(f->e, "t", NULL, true, &views, &err);
        if (verb == 1) engine_gc(f->e, NULL, false, &gc, &err);
        if (verb == 2) assert_int_not_equal(engine_up(f->e, f->spec, &up, &err), 0);
        if (verb == 3) engine_down(f->e, &(struct down_req){.name = "t"}, &down, &err);
        assert_false(is_gone("i-other"));
        assert_false(is_gone("i-new"));
        struct stack known = {0};
        assert_int_equal(journal_stack_get(f->e->journal, "me", "other", &known, NULL, &err), 0);
        stack_clear(&known);
        up_result_clear(&up);
        down_result_clear(&down);
        stack_view_list_clear(&views);
        gc_result_clear(&gc);
    }
    assert_int_equal(cloud.creates, 0);
    stack_clear(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_uid_of_another_stack, setup, finish),
        cmocka_unit_test_setup_teardown(test_a_planted_claim_without_the_journal, setup, finish),
        cmocka_unit_test_setup_teardown(test_hearsay_does_not_own_a_uid, setup, finish),
        cmocka_unit_test_setup_teardown(test_a_copy_with_the_uid_of_another_is_no_gone, setup, finish),
        cmocka_unit_test_setup_teardown(test_the_uid_of_another_owner, setup, finish),
        cmocka_unit_test_setup_teardown(test_a_machine_that_says_it_is_a_claim, setup, finish),
        cmocka_unit_test_setup_teardown(test_a_refused_up_leaves_another_runs_nodes, setup, finish),
        cmocka_unit_test_setup_teardown(test_gc_ends_a_copy_at_its_own_cloud_only, setup, finish),
    };
    return cmocka_run_group_tests_name("engine uid", tests, NULL, NULL);
}
