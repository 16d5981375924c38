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
        forget_all(f);
        assert_int_equal(creates_planned(f, &r, &err), 0);
        if (r != 0) fail_msg("%s", err.msg);
    }
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_order_of_offers_decides_nothing, setup_principals, finish),
        cmocka_unit_test_setup_teardown(test_two_owners_are_an_error, setup_principals, finish),
        cmocka_unit_test_setup_teardown(test_the_owner_of_the_first_claim_stays, setup_principals, finish),
        cmocka_unit_test_setup_teardown(test_a_cloud_that_comes_later_is_not_the_login_names, setup_principals, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
