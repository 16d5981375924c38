/* SPDX-License-Identifier: Apache-2.0 */
/* Whose stack it is: the journal's owner of that name first, then the cloud's principal, whatever the order of the
 * offers. More than one is an error that names them. */
#include "base/gp_base.h"

#include "engine_cloud.h"

#define AWS_FIRST "name: t\nnodes: 2\noffers: [{provider: aws}, {provider: local}]\n"
#define LOCAL_FIRST "name: t\nnodes: 2\noffers: [{provider: local}, {provider: aws}]\n"

/* No --owner: the providers differ in whom they take this user for. */
static int setup_principals(void **state) {
    int r = setup(state);
    struct fixture *f = *state;
    f->e->opts.owner = NULL;
    cloud.principal = "111111111111-dev";
    cloud.login = "alice";
    return r;
}

/* Up to the machines: no sshd is there. */
static void up(struct fixture *f) {
    struct up_result res = {0};
    struct gp_error err = {0};
    assert_int_equal(engine_up(f->e, f->spec, &res, &err), -GP_EREACH);
    up_result_clear(&res);
    assert_int_equal(running(), 2);
}

static int creates_planned(struct fixture *f, int *ret_r, struct gp_error *err) {
    struct plan plan = {0};
    int n = 0;
    *ret_r = engine_plan(f->e, f->spec, &plan, err);
    for (size_t i = 0; i < plan.items.len; i++) n += plan.items.items[i].action == PLAN_CREATE;
    plan_clear(&plan);
    return n;
}

static void forget_all(struct fixture *f) { /* another machine: an empty journal */
    struct gp_error err = {0};
    engine_close(f->e);
    assert_int_equal(fs_remove_tree(f->dir, &err), 0);
    assert_int_equal(fs_mkdirs(f->dir, 0700, &err), 0);
    assert_int_equal(engine_open(&(struct engine_opts){0}, &f->e, &err), 0);
}

static void test_the_order_of_offers_decides_nothing(void **state) {
    struct fixture *f = *state;
    static const char *const specs[] = {AWS_FIRST, LOCAL_FIRST};
    for (size_t i = 0; i < GP_ARRAY_LEN(specs); i++) {
        struct gp_error err = {0};
        int r = 0;
        cloud_reset();
        cloud.principal = "111111111111-dev";
        cloud.login = "alice";
        forget_all(f);
        load(f, specs[i]);
        up(f);
        int bought = cloud.creates;
        load(f, specs[1 - i]);
        assert_int_equal(creates_planned(f, &r, &err), 0);
        if (r != 0) fail_msg("%s", err.msg);
        up(f); /* the machines stay where they are */
        assert_int_equal(cloud.creates, bought);
        forget_all(f); /* with its login key: the same owner finds the machines, and up would launch none beside them */
        assert_int_equal(creates_planned(f, &r, &err), 0);
        if (r != 0) fail_msg("%s", err.msg);
    }
}

/* A foreign machine with the tags of a node that is gone: `plan` and `up` with the journal launch another one. */
static void test_a_copy_is_no_node(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    int r = 0;
    load(f, AWS_FIRST);
    up(f);
    int bought = cloud.creates, nodes = running();
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (cloud.things.list.items[i].slot == 0) cloud.things.list.items[i].state = RES_GONE;
    struct resource *genuine = NULL;
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (cloud.things.list.items[i].slot == 0) genuine = &cloud.things.list.items[i];
    assert_non_null(genuine);
    struct resource copy = {0};
    resource_copy(&copy, genuine);
    resource_set(&copy.id, "h-0");
    copy.state = RES_RUNNING;
    vec_push(&cloud.things.list, copy);
    assert_int_equal(creates_planned(f, &r, &err), 1);
    if (r != 0) fail_msg("%s", err.msg);
    struct up_result res = {0};
    assert_int_equal(engine_up(f->e, f->spec, &res, &err), -GP_EREACH);
    up_result_clear(&res);
    assert_int_equal(cloud.creates, bought + 1);
    assert_int_equal(running(), nodes + 1); /* and the copy is left alone */
}

static void remember(struct fixture *f, const char *owner, const char *uid) {
    struct gp_error err = {0};
    struct stack s = {.owner = xstrdup(owner),
                      .name = xstrdup("t"),
                      .uid = xstrdup(uid),
                      .spec_hash = xstrdup(""),
                      .provider = xstrdup("aws"),
                      .region = xstrdup("r1")};
    assert_int_equal(journal_stack_put(f->e->journal, &s, NULL, &err), 0);
    add(RES_GROUP, uid, &s, -1);
    stack_clear(&s);
}

static void names_both(int r, const struct gp_error *err) {
    assert_int_equal(r, -GP_EUSAGE);
    assert_non_null(strstr(err->msg, "anna"));
    assert_non_null(strstr(err->msg, "otto"));
    assert_non_null(strstr(err->msg, "--owner"));
}

static void test_two_owners_are_an_error(void **state) {
    struct fixture *f = *state;
    struct plan plan = {0};
    struct up_result up_res = {0};
    struct report report = {0};
    struct down_result down = {0};
    struct stack_view_list views = {0};
    remember(f, "anna", "aaaaaaaaaaaaaaaa");
    remember(f, "otto", "bbbbbbbbbbbbbbbb");
    struct gp_error err[5] = {0};
    names_both(engine_plan(f->e, f->spec, &plan, &err[0]), &err[0]);
    names_both(engine_up(f->e, f->spec, &up_res, &err[1]), &err[1]);
    names_both(engine_report(f->e, "t", &report, &err[2]), &err[2]);
    names_both(engine_down(f->e, &(struct down_req){.name = "t"}, &down, &err[3]), &err[3]);
    names_both(engine_status(f->e, "t", NULL, true, &views, &err[4]), &err[4]);
    assert_int_equal(cloud.creates, 0);
    assert_int_equal(alive(), 2);
    up_result_clear(&up_res);
    down_result_clear(&down);

    f->e->opts.owner = "otto"; /* named: that one alone is ended */
    struct gp_error none = {0};
    if (engine_down(f->e, &(struct down_req){.name = "t"}, &down, &none) != 0) fail_msg("%s", none.msg);
    assert_string_equal(down.owner, "otto");
    assert_int_equal(alive(), 1);
    down_result_clear(&down);
}

/* A cloud that does not open leaves the owner to the login name; the journal keeps it from then on. */
static void test_the_owner_of_the_first_claim_stays(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    load(f, LOCAL_FIRST);
    cloud.open_fails = true;
    struct run *run = NULL;
    assert_int_equal(run_open(f->e, f->spec, "t", &run, &err), 0);
    assert_int_equal(run_open_offers(run, &err), 0);
    assert_string_equal(run->owner, "alice");
    assert_string_equal(run->home->ops->name, "local");
    assert_non_null(coverage_gap(&run->look.covered));
    run_close(run);
    remember(f, "alice", "aaaaaaaaaaaaaaaa");
    cloud.open_fails = false;
    run = NULL;
    assert_int_equal(run_open(f->e, f->spec, "t", &run, &err), 0);
    assert_int_equal(run_open_offers(run, &err), 0);
    assert_string_equal(run->owner, "alice");
    for (size_t i = 0; i < run->providers.len; i++) assert_string_equal(run->providers.items[i]->owner, "alice");
    run_close(run);
}

static void count_warnings(void *ctx, const struct event *e) {
    if (e->status == EVENT_WARN) ++*(int *)ctx;
}

/* Credentials that come later stand for another owner: nothing is bought for the login name, which only this
 * journal would find again, unless --owner accepts that. */
static void test_a_cloud_that_comes_later_is_not_the_login_names(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    static const char *const given[] = {NULL, "alice"};
    load(f, LOCAL_FIRST);
    struct stack s = {.owner = xstrdup("alice"),
                      .name = xstrdup("t"),
                      .uid = xstrdup("aaaaaaaaaaaaaaaa"),
                      .spec_hash = xstrdup(""),
                      .provider = xstrdup("local"),
                      .region = xstrdup("here")};
    assert_int_equal(journal_stack_put(f->e->journal, &s, NULL, &err), 0);
    stack_clear(&s);
    for (size_t i = 0; i < GP_ARRAY_LEN(given); i++) {
        struct run *run = NULL;
        int warnings = 0;
        f->e->opts.owner = given[i];
        f->e->sink = (struct event_sink){count_warnings, &warnings};
        assert_int_equal(run_open(f->e, f->spec, "t", &run, &err), 0);
        assert_int_equal(run_open_offers(run, &err), 0);
        assert_string_equal(run->owner, "alice");
        assert_int_equal(run->providers.len, given[i] != NULL ? 2 : 1);
        const struct look *gap = coverage_gap(&run->look.covered);
        if (given[i] == NULL) assert_non_null(strstr(gap->why.msg, "give --owner alice"));
        else assert_null(gap);
        GP_AUTO_OFFERS struct offer_list offers = {0};
        assert_int_equal(plan_offers(run, &offers, &err), 0);
        bool at_aws = false;
        for (size_t k = 0; k < offers.list.len; k++) at_aws = at_aws || str_eq(offers.list.items[k].provider, "aws");
        assert_int_equal(at_aws, given[i] != NULL);
        assert_int_equal(warnings, given[i] == NULL ? 1 : 0); /* reported once */
        run_close(run);
        f->e->sink = (struct event_sink){0};
    }
    f->e->opts.owner = NULL;
}

/* A stack at two clouds has one owner, the first cloud's principal. What it has at the second one is found without a
 * journal, too, where the credentials of both are at hand. */
static void test_a_stack_at_two_clouds_has_one_owner(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct gc_result gc = {0};
    struct stack_view_list views = {0};
    struct down_result down = {0};
    int64_t past = clock_wall_s() - 100, later = clock_wall_s() + 600;
    cloud.other_principal = "bob@other";
    add_of(RES_GROUP, "sg-wide", -1, cloud.principal, "wide", "aaaaaaaaaaaaaaaa", later);
    resource_set(&add_of(RES_INSTANCE, "n-wide", 0, cloud.principal, "wide", "aaaaaaaaaaaaaaaa", later)->provider,
                 "local");
    resource_set(&add_of(RES_INSTANCE, "n-old", 0, cloud.principal, "old", "bbbbbbbbbbbbbbbb", past)->provider,
                 "local");
    resource_set(&add_of(RES_INSTANCE, "n-login", 0, "alice", "mine", "cccccccccccccccc", past)->provider, "aws");
    if (engine_gc(f->e, NULL, true, &gc, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(gc.ended.list.len, 1); /* a login name is no principal: it may be anybody's */
    assert_string_equal(gc.ended.list.items[0].id, "n-old");
    assert_int_equal(gc.kept.list.len, 2);
    assert_true(coverage_whole(&gc.looked));
    gc_result_clear(&gc);
    f->e->opts.owner = "bob@other"; /* named: nothing of another owner */
    assert_int_equal(engine_gc(f->e, NULL, true, &gc, &err), 0);
    assert_int_equal(gc.ended.list.len + gc.kept.list.len, 0);
    gc_result_clear(&gc);
    f->e->opts.owner = NULL;
    if (engine_down(f->e, &(struct down_req){.name = "wide"}, &down, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(down.destroyed, 2);
    assert_string_equal(down.owner, cloud.principal);
    down_result_clear(&down);
    if (engine_status(f->e, NULL, NULL, true, &views, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(views.list.len, 1);
    assert_string_equal(views.list.items[0].stack.name, "old");
    stack_view_list_clear(&views);
}

/* By name, without a journal: one uid at two clouds is one stack, two uids are two. */
static void test_one_stack_at_two_clouds_is_no_conflict(void **state) {
    struct fixture *f = *state;
    static const char *const uids[] = {"aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"};
    for (size_t i = 0; i < GP_ARRAY_LEN(uids); i++) {
        struct gp_error err = {0};
        struct down_result down = {0};
        f->e->opts.owner = "me";
        add_of(RES_GROUP, "sg-both", -1, "me", i == 0 ? "both" : "two", uids[0], clock_wall_s() + 600);
        resource_set(
            &add_of(RES_INSTANCE, "n-both", 0, "me", i == 0 ? "both" : "two", uids[i], clock_wall_s() + 600)->provider,
            "local");
        int r = engine_down(f->e, &(struct down_req){.name = i == 0 ? "both" : "two"}, &down, &err);
        if (r != (i == 0 ? 0 : -GP_EUSAGE)) fail_msg("%zu: %d %s", i, r, err.msg);
        if (i == 0) assert_int_equal(alive(), 0);
        else assert_non_null(strstr(err.msg, "there are stacks 'two' at aws and at local"));
        down_result_clear(&down);
        f->e->opts.owner = NULL;
    }
}

/* Two clouds with principals: a later run buys at the second one too, while the first one's credentials are here. */
static void test_the_principal_of_another_cloud_is_no_stranger(void **state) {
    struct fixture *f = *state;
    for (int here = 0; here < 2; here++) {
        struct gp_error err = {0};
        struct run *run = NULL;
        load(f, LOCAL_FIRST);
        cloud.other_principal = "bob@other";
        if (here == 0) remember(f, cloud.principal, "aaaaaaaaaaaaaaaa");
        cloud.open_fails = here == 1;
        assert_int_equal(run_open(f->e, f->spec, "t", &run, &err), 0);
        int r = run_open_offers(run, &err);
        if (here == 0 && r != 0) fail_msg("%s", err.msg);
        if (here == 0) assert_int_equal(run->providers.len, 2);
        if (here == 1) assert_int_not_equal(r, 0); /* its home does not open */
        run_close(run);
        cloud.open_fails = false;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_order_of_offers_decides_nothing, setup_principals, finish),
        cmocka_unit_test_setup_teardown(test_a_copy_is_no_node, setup_principals, finish),
        cmocka_unit_test_setup_teardown(test_two_owners_are_an_error, setup_principals, finish),
        cmocka_unit_test_setup_teardown(test_a_stack_at_two_clouds_has_one_owner, setup_principals, finish),
        cmocka_unit_test_setup_teardown(test_one_stack_at_two_clouds_is_no_conflict, setup_principals, finish),
        cmocka_unit_test_setup_teardown(test_the_principal_of_another_cloud_is_no_stranger, setup_principals, finish),
        cmocka_unit_test_setup_teardown(test_the_owner_of_the_first_claim_stays, setup_principals, finish),
        cmocka_unit_test_setup_teardown(test_a_cloud_that_comes_later_is_not_the_login_names, setup_principals, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
