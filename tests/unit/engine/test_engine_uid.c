/* SPDX-License-Identifier: Apache-2.0 */
/* A uid in somebody's tags that belongs to another stack of the journal. */
#include "base/gp_base.h"

#include "engine_cloud.h"

static bool is_gone(const char *id) {
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (strcmp(cloud.things.list.items[i].id, id) == 0) return cloud.things.list.items[i].state == RES_GONE;
    return false;
}

/* Somebody gave a claim with this stack's name the uid of another one that the journal has, and a deadline that has
 * passed: no verb of this name touches the other stack. */
static void test_the_uid_of_another_stack(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct stack other = {.owner = xstrdup("me"),
                          .name = xstrdup("other"),
                          .uid = xstrdup("aaaaaaaaaaaaaaaa"),
                          .provider = xstrdup("aws"),
                          .region = xstrdup("r1"),
                          .spec_hash = xstrdup(""),
                          .expires_s = clock_wall_s() + 3600};
    if (journal_stack_put(f->e->journal, &other, NULL, &err) != 0) fail_msg("%s", err.msg);
    record_launched(f->e->journal, add(RES_INSTANCE, "i-other", &other, 0));
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
    };
    return cmocka_run_group_tests_name("engine uid", tests, NULL, NULL);
}
