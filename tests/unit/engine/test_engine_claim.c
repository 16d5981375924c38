/* SPDX-License-Identifier: Apache-2.0 */
/* Identity of a stack between two runs: the journal's, the cloud's, somebody else's, an expired one;
 * and what of a spec may change under machines that are there. */
#include "base/gp_base.h"

#include "engine/stack/claim.h"
#include "engine/stack/cost.h"
#include "engine/stack/deadline.h"
#include "engine_cloud.h"

static int up(struct fixture *f, struct gp_error *err) {
    struct up_result res = {0};
    run_close(f->run);
    f->run = NULL;
    int r = engine_up(f->e, f->spec, &res, err);
    up_result_clear(&res);
    return r;
}

static void refuse_all(void) {
    for (int i = 0; i < 16; i++) cloud.script[i] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "Insufficient"};
}

static void test_refused_takes_its_claim_back(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    refuse_all();
    assert_int_equal(up(f, &err), -GP_ECAPACITY);
    assert_int_equal(cloud.creates, 3);
    assert_int_equal(alive(), 0);
}

/* A claim that another machine made stays, whatever this run is refused. */
static void test_somebody_elses_claim_stays(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    add_of(RES_GROUP, "sg-1", -1, "me", "t", "cccccccccccccccc", clock_wall_s() + 600);
    refuse_all();
    assert_int_equal(up(f, &err), -GP_ECAPACITY);
    assert_int_equal(alive(), 1);
}

/* The stack was ended from elsewhere: the next one has its own uid and its whole time. */
static void test_ended_elsewhere(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    GP_AUTO_FREE char *uid = xstrdup(f->run->stack.uid);
    f->run->stack.expires_s = clock_wall_s() + 60;
    assert_int_equal(journal_stack_put(f->e->journal, &f->run->stack, NULL, &err), 0);
    assert_int_equal(journal_report_put(f->e->journal, uid, "{}", &err), 0);
    resource_list_clear(&cloud.things);
    struct run *run = NULL;
    run_close(f->run);
    f->run = NULL;
    assert_int_equal(run_open(f->e, f->spec, "t", &run, &err), 0);
    f->run = run;
    assert_int_equal(run_open_offers(run, &err), 0);
    assert_int_equal(run_lock(run, &err), 0);
    assert_int_equal(adopt_stack(run, NULL, &err), 0);
    assert_int_equal(claim_take(run, &err), 0);
    assert_int_equal(claim_remember(run, &err), 0);
    assert_string_not_equal(run->stack.uid, uid);
    assert_true(run->stack.expires_s > clock_wall_s() + 3600);
    struct node_record_list nodes = {0};
    assert_int_equal(journal_nodes(f->e->journal, uid, &nodes, &err), 0);
    assert_int_equal(nodes.list.len, 0);
    char *report = NULL;
    struct gp_error none = {0};
    assert_int_equal(journal_report_get(f->e->journal, run->stack.uid, &report, &none), -GP_ENOTFOUND);
}

static int go_on(struct fixture *f, struct gp_error *err) {
    gp_error_clear(err);
    run_close(f->run);
    f->run = NULL;
    int r = run_open(f->e, f->spec, "t", &f->run, err);
    if (r == 0) r = run_open_offers(f->run, err);
    if (r == 0) r = run_lock(f->run, err);
    if (r == 0) r = adopt_stack(f->run, NULL, err);
    if (r == 0) r = claim_may_go_on(f->run, err);
    return r == 0 ? claim_take(f->run, err) : r;
}

/* All its machines are gone, as after a preemption: a run that continues the stack keeps its deadline and its costs. A
 * stack that was destroyed, or whose time is over, is not launched again. */
static void test_continued_without_machines(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    GP_AUTO_FREE char *uid = xstrdup(f->run->stack.uid);
    int64_t ends_s = clock_wall_s() + 900, created_s = f->run->stack.created_s;
    f->run->stack.expires_s = ends_s;
    assert_int_equal(journal_stack_put(f->e->journal, &f->run->stack, NULL, &err), 0);
    for (size_t i = 0; i < cloud.things.list.len; i++) {
        struct resource *r = &cloud.things.list.items[i];
        if (resource_is_machine(r)) r->state = RES_GONE;
        r->expires_s = ends_s;
    }
    f->e->continues = uid;
    assert_int_equal(go_on(f, &err), 0);
    assert_string_equal(f->run->stack.uid, uid);
    assert_int_equal(f->run->stack.expires_s, ends_s);
    assert_int_equal(f->run->stack.created_s, created_s);
    double more = cost_of(f->run, 2, 4).usd - GP_MAX(cost_so_far(f->run), 0.0);
    assert_true(more > 1.9 && more < 2.1); /* a quarter of an hour, not the whole ttl */
    f->run->stack.expires_s = clock_wall_s() - 5;
    assert_int_equal(journal_stack_put(f->e->journal, &f->run->stack, NULL, &err), 0);
    assert_int_equal(go_on(f, &err), -GP_EBUSY);
    resource_list_clear(&cloud.things);
    assert_int_equal(go_on(f, &err), -GP_EBUSY);
    assert_int_equal(alive(), 0);
    f->e->continues = NULL;
}

/* A late machine of an older stack of the name is no reason to take its identity. */
static void test_a_leftover_is_not_the_stack(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    GP_AUTO_FREE char *uid = xstrdup(f->run->stack.uid);
    resource_list_clear(&cloud.things);
    add_of(RES_INSTANCE, "i-late", 0, "me", "t", "aaaaaaaaaaaaaaaa", 0);
    assert_int_equal(adopt_stack(f->run, NULL, &err), 0);
    assert_string_equal(f->run->stack.uid, uid);
    assert_false(f->run->nodes[0].exists);
}

/* Somebody else ended the stack and began it again: found, and the journal's own forgotten only by who acts on it. */
static void test_what_reconcile_finds(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    GP_AUTO_FINDING struct finding found = {0};
    assert_int_equal(launch(f, &err), 0);
    run_unlock(f->run);
    GP_AUTO_FREE char *uid = xstrdup(f->run->stack.uid);
    record_launched(f->e->journal, add(RES_INSTANCE, "i-9", &f->run->stack, 1));
    add(RES_INSTANCE, "i-8", &f->run->stack, 0)->state = RES_STOPPING;
    prove(&f->run->proof, &cloud.things.list.items[cloud.things.list.len - 1]);
    cloud.gone_after = 100;
    assert_int_equal(reconcile(f->run, &found, &err), 0);
    assert_null(found.ended_uid);
    assert_int_equal(found.extras.list.len, 2);
    assert_true(finding_has_extras(&found));
    assert_int_equal(found.earlier_uids.n, 0);

    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (cloud.things.list.items[i].claim) cloud.things.list.items[i].state = RES_GONE;
    add_of(RES_GROUP, "sg-2", -1, "me", "t", "bbbbbbbbbbbbbbbb", 0);
    assert_int_equal(reconcile(f->run, &found, &err), 0);
    assert_null(found.ended_uid); /* its machines are there: the other claim may be anybody's */
    assert_string_equal(f->run->stack.uid, uid);
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (cloud.things.list.items[i].kind == RES_INSTANCE) cloud.things.list.items[i].state = RES_GONE;
    add_of(RES_VOLUME, "vol-1", -1, "me", "t", uid, 0);
    assert_int_equal(reconcile(f->run, &found, &err), 0);
    assert_string_equal(found.ended_uid, uid);
    assert_string_equal(f->run->stack.uid, "bbbbbbbbbbbbbbbb");
    assert_int_equal(found.extras.list.len, 0);
    assert_int_equal(found.earlier_uids.n, 1);
    assert_string_equal(found.earlier_uids.v[0], uid);
    struct stack known = {0};
    assert_int_equal(journal_stack_get(f->e->journal, "me", "t", &known, NULL, &err), 0);
    assert_string_equal(known.uid, uid); /* reconcile forgets nothing */
    stack_clear(&known);
    assert_int_equal(run_lock(f->run, &err), 0);
    assert_int_equal(adopt_stack(f->run, &found, &err), 0);
    assert_int_equal(journal_stack_get(f->e->journal, "me", "t", &known, NULL, &err), 0);
    assert_string_equal(known.uid, "bbbbbbbbbbbbbbbb");
    stack_clear(&known);
}

static void test_expired_with_machines_is_refused(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    int64_t launched_s = f->run->stack.expires_s;
    for (size_t i = 0; i < cloud.things.list.len; i++) { /* a former deadline with its proof, put back */
        cloud.things.list.items[i].expires_s = clock_wall_s() - 5;
        prove(&f->run->proof, &cloud.things.list.items[i]);
    }
    assert_int_equal(reconcile(f->run, NULL, &err), 0);
    assert_int_equal(f->run->stack.expires_s, launched_s);
    deadline_is(f, clock_wall_s() - 5);
    assert_int_equal(up(f, &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "deadline"));
    assert_int_equal(running(), 2);
}

/* Another run may have moved the deadline: a tag with the stack's proof counts, and the earliest machine decides. A time
 * that the stack did not write is not used. */
static void test_the_deadline_is_that_of_the_tags(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct finding found = {0};
    GP_AUTO_STRV struct strv notes = {0};
    assert_int_equal(launch(f, &err), 0);
    int64_t now_s = clock_wall_s(), times[] = {now_s + 9000, now_s + 5000};
    size_t n = 0;
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (resource_is_machine(&cloud.things.list.items[i]) && n < GP_ARRAY_LEN(times))
            cloud.things.list.items[i].expires_s = times[n++];
    assert_int_equal(n, 2);
    int64_t launched_s = f->run->stack.expires_s;
    assert_int_equal(reconcile(f->run, &found, &err), 0);
    assert_int_equal(f->run->stack.expires_s, launched_s); /* somebody edited them */
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (resource_is_machine(&cloud.things.list.items[i])) prove(&f->run->proof, &cloud.things.list.items[i]);
    assert_int_equal(reconcile(f->run, &found, &err), 0);
    assert_int_equal(f->run->stack.expires_s, now_s + 5000);
    deadline_notes(f->run, &notes);
    assert_int_equal(notes.n, 1);
    assert_non_null(strstr(notes.v[0], "different deadlines"));
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (cloud.things.list.items[i].expires_s == now_s + 5000)
            cloud.things.list.items[i].expires_s = now_s + (int64_t)90 * 86400; /* and its proof is of another time */
    assert_int_equal(reconcile(f->run, &found, &err), 0);
    assert_int_equal(f->run->stack.expires_s, now_s + 9000);
    strv_clear(&notes);
    deadline_notes(f->run, &notes);
    assert_non_null(strstr(notes.v[0], "it is ignored"));
    finding_clear(&found);
}

static void test_other_machines_are_refused(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    load(f, "name: t\nnodes: 2\noffers: [{provider: aws, market: spot}]\n");
    assert_int_equal(up(f, &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "'offers[0]."));
    struct plan plan = {0};
    gp_error_clear(&err);
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), -GP_EUSAGE);
    plan_clear(&plan);
}

/* An offer's networks are rules of a group: they change under machines that run. Its image does not. */
static void test_networks_of_an_offer_may_change(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    load(f, "name: t\nnodes: 2\noffers: [{provider: aws, ssh_from: [192.0.2.0/24]}]\n");
    struct plan plan = {0};
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), 0);
    plan_clear(&plan);
    load(f, "name: t\nnodes: 2\noffers: [{provider: aws, image: {id: ami-1}}]\n");
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "'offers[0]."));
}

/* prepare_req.known has everything of the stack: its nodes too, each once. */
static void test_prepare_gets_the_nodes(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(adopt_stack(f->run, NULL, &err), 0);
    assert_int_equal(claim_take(f->run, &err), 0);
    assert_int_equal(cloud.known.n, 3);
    assert_true(strv_has(&cloud.known, "i-0") && strv_has(&cloud.known, "i-1") && strv_has(&cloud.known, "sg-1"));
}

static void test_plan_of_the_most_nodes(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    load(f, "name: t\nnodes: 4096\noffers: [{provider: aws}]\n");
    struct plan plan = {0};
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), 0);
    int nodes = 0;
    for (size_t i = 0; i < plan.items.len; i++)
        if (strstr(plan.items.items[i].what, "4096 x ") != NULL) nodes += plan.items.items[i].slot_count;
    assert_int_equal(nodes, 4096);
    assert_true(plan.price_usd_per_h > 4095.9 && plan.price_usd_per_h < 4096.1);
    plan_clear(&plan);
}

/* An account without credentials leaves the other offers, whether the spec names it first or second; when it is the
 * home of a known stack, nothing goes on. */
static void test_a_provider_that_does_not_open(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    static const char *const texts[] = {"name: t\nnodes: 1\noffers: [{provider: local}, {provider: aws}]\n",
                                        "name: t\nnodes: 1\noffers: [{provider: aws}, {provider: local}]\n"};
    cloud.other_open_fails = true;
    for (int i = 0; i < 2; i++) {
        struct plan plan = {0};
        load(f, texts[i]);
        if (engine_plan(f->e, f->spec, &plan, &err) != 0) fail_msg("%d: %s", i, err.msg);
        assert_string_equal(plan.offers.list.items[0].provider, "aws");
        plan_clear(&plan);
    }
    struct stack known = {.owner = xstrdup("me"),
                          .name = xstrdup("t"),
                          .uid = xstrdup("0123456789abcdef"),
                          .provider = xstrdup("local"),
                          .region = xstrdup("here"),
                          .spec_hash = xstrdup("h")};
    assert_int_equal(journal_stack_put(f->e->journal, &known, "{}", &err), 0);
    stack_clear(&known);
    struct plan plan = {0};
    assert_true(engine_plan(f->e, f->spec, &plan, &err) != 0);
    plan_clear(&plan);
}

static void note_text(void *ctx, const struct event *e) { str_addf(ctx, "%s\n", e->text); }

/* Nodes of another spec: the next step is down, because `up` refuses again. */
static void test_next_step_of_other_machines(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    GP_AUTO_STR struct str seen = {0};
    assert_int_equal(launch(f, &err), 0);
    load(f, "name: t\nnodes: 2\noffers: [{provider: aws, market: spot}]\n");
    f->e->sink = (struct event_sink){note_text, &seen};
    assert_int_equal(up(f, &err), -GP_EUSAGE);
    f->e->sink = (struct event_sink){0};
    assert_non_null(strstr(seen.s, "2 nodes of 't' exist: 'gpuprov down t' destroys them"));
    assert_null(strstr(seen.s, "'gpuprov up' continues"));
    down_ok(f);
}

static int refuse(void *ctx, const struct plan *plan, struct gp_error *err) {
    (void)ctx;
    (void)plan;
    return gp_fail(err, GP_EUSAGE, "it was not approved");
}

/* They are as they were before, so there is nothing to destroy. */
static void test_no_advice_after_a_refused_plan(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    GP_AUTO_STR struct str seen = {0};
    assert_int_equal(launch(f, &err), 0);
    f->e->sink = (struct event_sink){note_text, &seen};
    f->e->approve = refuse;
    assert_int_equal(up(f, &err), -GP_EUSAGE);
    f->e->approve = NULL;
    assert_non_null(strstr(seen.s, "it was not approved"));
    assert_null(strstr(seen.s, "nodes of 't' exist"));
    f->e->sink = (struct event_sink){0};
    down_ok(f);
}

/* With no machine left there is nothing to refuse: the new spec is launched (and here has no room). */
static void test_other_machines_after_the_end(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (cloud.things.list.items[i].kind == RES_INSTANCE) cloud.things.list.items[i].state = RES_GONE;
    load(f, "name: t\nnodes: 2\noffers: [{provider: aws, market: spot}]\n");
    refuse_all();
    assert_int_equal(up(f, &err), -GP_ECAPACITY);
}

/* A spec that changed begins every node again, from its bootstrap. */
static void test_changed_spec_begins_again(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct run *run = f->run;
    for (int i = 0; i < 2; i++) {
        run->nodes[i].rec.phase = NODE_READY;
        resource_set(&run->nodes[i].rec.boot_id, "b");
        assert_int_equal(run_node_save(&run->nodes[i], &err), 0);
    }
    load(f, "name: t\nnodes: 2\nvalidate: {time: 20m}\noffers: [{provider: aws}]\n");
    run->spec = f->spec;
    assert_int_equal(claim_remember(run, &err), 0);
    assert_int_equal(run->nodes[0].rec.phase, NODE_REACHING);
    assert_string_equal(run->nodes[0].rec.boot_id, "");
}

/* validate never makes a node ready that `up` did not set up to its end. */
static void test_validate_wants_a_bootstrap(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct report report = {0};
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(engine_validate(f->e, "t", NULL, &report, &err), -GP_EBOOTSTRAP);
    assert_non_null(strstr(err.msg, "the bootstrap is not complete"));
    assert_false(report.ready);
    report_clear(&report);
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, finish)
    const struct CMUnitTest tests[] = {
        T(test_refused_takes_its_claim_back),
        T(test_somebody_elses_claim_stays),
        T(test_ended_elsewhere),
        T(test_continued_without_machines),
        T(test_a_leftover_is_not_the_stack),
        T(test_what_reconcile_finds),
        T(test_expired_with_machines_is_refused),
        T(test_the_deadline_is_that_of_the_tags),
        T(test_other_machines_are_refused),
        T(test_networks_of_an_offer_may_change),
        T(test_a_provider_that_does_not_open),
        T(test_prepare_gets_the_nodes),
        T(test_plan_of_the_most_nodes),
        T(test_next_step_of_other_machines),
        T(test_no_advice_after_a_refused_plan),
        T(test_other_machines_after_the_end),
        T(test_changed_spec_begins_again),
        T(test_validate_wants_a_bootstrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
