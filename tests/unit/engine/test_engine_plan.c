/* SPDX-License-Identifier: Apache-2.0 */
/* What plan shows and up is asked about: changes of the spec under nodes that are there, the limits on prices, the
 * approval before anything is bought. The cloud's three offers cost 1, 2 and 3 USD/h. */
#include "base/gp_base.h"

#include "engine/stack/claim.h"
#include "engine_cloud.h"

#define OFFERS "offers: [{provider: aws}]\n"

static void note_text(void *ctx, const struct event *e) { str_addf(ctx, "%s\n", e->text); }

/* The number of offers that a spec with these limits leaves, or the error. */
static int offers_with(struct fixture *f, const char *limits, struct plan *ret, struct gp_error *err) {
    GP_AUTO_FREE char *text = xasprintf("name: t\nnodes: 2\nlimits: {%s}\n" OFFERS, limits);
    load(f, text);
    gp_error_clear(err);
    return engine_plan(f->e, f->spec, ret, err);
}

static void test_limits(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *limits;
        size_t offers; /* 0: none fits */
        double max_usd;
        const char *why;
    } cases[] = {
        {"ttl: 4h", 3, 24, ""},
        {"ttl: 4h, max_price: 2 USD/h", 2, 16, "3.00 USD/h is over limits.max_price 2 USD/h"},
        {"ttl: 4h, max_price: 2.999999 USD/h", 2, 16, "over limits.max_price"},
        {"ttl: 4h, max_price: 0.5 USD/h", 0, 0, "1.00 USD/h is over limits.max_price 0.5 USD/h"},
        {"ttl: 4h, max_cost: 16 USD", 2, 16, "up to 24.00 USD until the deadline is over limits.max_cost 16 USD"},
        {"ttl: 2h, max_cost: 16 USD", 3, 12, ""},
        {"ttl: 4h, max_cost: 7 USD", 0, 0, "up to 8.00 USD until the deadline is over limits.max_cost 7 USD"},
        {"ttl: 4h, max_cost: 16 USD, max_price: 1 USD/h", 1, 8, "over limits"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct gp_error err = {0};
        struct plan plan = {0};
        GP_AUTO_STR struct str seen = {0};
        str_add(&seen, "");
        f->e->sink = (struct event_sink){note_text, &seen};
        int r = offers_with(f, cases[i].limits, &plan, &err);
        f->e->sink = (struct event_sink){0};
        if (cases[i].offers == 0) {
            assert_int_equal(r, -GP_EMONEY);
            assert_int_equal(gp_exit_code(GP_EMONEY), 4);
            if (strstr(err.msg, cases[i].why) == NULL) fail_msg("'%s' has no '%s'", err.msg, cases[i].why);
            continue;
        }
        assert_int_equal(r, 0);
        assert_int_equal(plan.offers.list.len, cases[i].offers);
        if (strstr(seen.s, cases[i].why) == NULL) fail_msg("'%s' has no '%s'", seen.s, cases[i].why);
        assert_true(plan.max_usd > cases[i].max_usd - 0.001 && plan.max_usd < cases[i].max_usd + 0.001);
        plan_clear(&plan);
    }
}

/* Without limits.ttl the deadline is as early as limits.max_cost requires, by the price of the offer. */
static void test_max_cost_is_a_deadline(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct plan plan = {0};
    struct stack s = {0};
    assert_int_equal(offers_with(f, "max_cost: 0.9 USD", &plan, &err), 0);
    assert_int_equal(plan.offers.list.len, 2); /* the third would live for 9 minutes */
    assert_int_equal(plan.ttl_ms, 27 * 60000);
    assert_true(plan.max_usd < 0.9001);
    assert_non_null(strstr(plan.notes.v[plan.notes.n - 1], "limits.max_cost 0.9 USD allows 27m"));
    plan_clear(&plan);
    assert_int_equal(offers_with(f, "max_cost: 16 USD", &plan, &err), 0);
    assert_int_equal(plan.offers.list.len, 3);
    assert_int_equal(plan.ttl_ms, 4 * 3600000);
    assert_true(plan.max_usd > 15.9 && plan.max_usd < 16.001);
    plan_clear(&plan);
    /* only the dearest place has room: its nodes end after 16 USD / 6 USD/h */
    for (int i = 0; i < 2; i++) cloud.script[i] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "Insufficient"};
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(journal_stack_get(f->e->journal, "me", "t", &s, NULL, &err), 0);
    int64_t from_s = s.created_s > 0 ? s.created_s : clock_wall_s();
    assert_true(llabs(s.expires_s - from_s - (int64_t)160 * 60) < 60);
    stack_clear(&s);
}

/* 80 % of limits.max_cost are reported where somebody looks. */
static void test_most_of_the_money_is_spent(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    load(f, "name: t\nnodes: 2\nlimits: {max_cost: 16 USD}\n" OFFERS);
    assert_int_equal(launch(f, &err), 0);
    for (int hours = 6; hours <= 7; hours++) {
        struct stack_view_list views = {0};
        GP_AUTO_STR struct str seen = {0};
        str_add(&seen, "");
        f->e->sink = (struct event_sink){note_text, &seen};
        for (size_t i = 0; i < cloud.things.list.len; i++) {
            cloud.things.list.items[i].price_usd_per_h = 1;
            cloud.things.list.items[i].created_s = clock_wall_s() - (int64_t)hours * 3600;
        }
        engine_status(f->e, "t", NULL, true, &views, &err);
        f->e->sink = (struct event_sink){0};
        assert_int_equal(views.list.len, 1);
        bool said = false;
        const struct strv *notes = &views.list.items[0].notes;
        for (size_t i = 0; i < notes->n; i++) said = said || strstr(notes->v[i], "14.00 USD are spent, 88 %") != NULL;
        assert_int_equal(said, hours == 7);
        assert_int_equal(strstr(seen.s, "of limits.max_cost 16 USD") != NULL, hours == 7);
        stack_view_list_clear(&views);
    }
}

/* A price that nobody knows cannot be held against a limit. */
static void test_unknown_price(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct plan plan = {0};
    cloud.no_prices = true;
    assert_int_equal(offers_with(f, "ttl: 4h", &plan, &err), 0);
    assert_true(plan.max_usd < 0 && plan.price_usd_per_h < 0);
    plan_clear(&plan);
    assert_int_equal(offers_with(f, "max_cost: 100 USD", &plan, &err), -GP_EMONEY);
    assert_non_null(strstr(err.msg, "the price is not known, and limits.max_cost is set"));
    assert_int_equal(offers_with(f, "max_price: 100 USD/h", &plan, &err), -GP_EMONEY);
}

/* The limits hold at the launch too: the dearer zone is not tried when the cheaper ones have no room. */
static void test_limits_at_launch(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct up_result res = {0};
    load(f, "name: t\nnodes: 2\nlimits: {max_price: 2 USD/h}\n" OFFERS);
    for (int i = 0; i < 16; i++) cloud.script[i] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "Insufficient"};
    assert_int_equal(engine_up(f->e, f->spec, &res, &err), -GP_ECAPACITY);
    up_result_clear(&res);
    assert_string_equal(cloud.tried, "r1-a r1-b ");
}

static size_t count_text(const char *in, const char *text) {
    size_t n = 0;
    for (const char *at = strstr(in, text); at != NULL; at = strstr(at + 1, text)) n++;
    return n;
}

/* The reason why a provider does not open is long: it is printed once, as a warning or as the error. */
static void test_closed_provider_is_reported_once(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *offers;
        bool other;      /* "local" does not open either */
        size_t warnings; /* the error has one more, if no provider opens */
    } cases[] = {{"[{provider: aws}, {provider: local}]", false, 1},
                 {"[{provider: aws}, {provider: local}]", true, 0},
                 {"[{provider: aws}]", false, 0}};
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_FREE char *text = xasprintf("name: t\nnodes: 2\noffers: %s\n", cases[i].offers);
        GP_AUTO_STR struct str seen = {0};
        struct gp_error err = {0};
        struct plan plan = {0};
        load(f, text);
        cloud.open_fails = cloud.no_credentials = true;
        cloud.other_open_fails = cases[i].other;
        f->e->sink = (struct event_sink){note_text, &seen};
        str_add(&seen, "");
        int r = engine_plan(f->e, f->spec, &plan, &err);
        f->e->sink = (struct event_sink){0};
        plan_clear(&plan);
        assert_int_equal(count_text(seen.s, "no credentials"), cases[i].warnings);
        assert_int_equal(count_text(seen.s, "no way in there"), cases[i].other);
        if (cases[i].warnings > 0) continue;
        assert_int_not_equal(r, 0);
        assert_int_equal(count_text(err.msg, "no credentials"), 1);
    }
}

/* An offer without room for all nodes is not tried, so it is neither shown nor priced. */
static void test_offers_that_are_too_small(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct plan plan = {0};
    load(f, "name: t\nnodes: 2\n" OFFERS);
    cloud.max_count[0] = 1;
    cloud.max_count[1] = 2;
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), 0);
    assert_int_equal(plan.offers.list.len, 2);
    assert_true(plan.price_usd_per_h > 3.9 && plan.price_usd_per_h < 4.1);
    plan_clear(&plan);
    cloud.max_count[1] = cloud.max_count[2] = 1;
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), -GP_ECAPACITY);
    assert_non_null(strstr(err.msg, "no offer has 2 nodes: aws has capacity for 1"));
}

/* Without --in, the cause is the provider's. */
static void test_a_list_that_reports_no_place(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct plan plan = {0};
    load(f, "name: t\nnodes: 2\n" OFFERS);
    cloud.looks_nowhere = true;
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), -GP_EINTERNAL);
    assert_non_null(strstr(err.msg, "the provider reported no place (req->looked is empty)"));
}

struct approval {
    int calls, answer;
    double max_usd;
    size_t items;
};

static int approve(void *ctx, const struct plan *plan, struct gp_error *err) {
    struct approval *a = ctx;
    a->calls++;
    a->max_usd = plan->max_usd;
    a->items = plan->items.len;
    return a->answer == 0 ? 0 : gp_fail(err, GP_ECANCELLED, "not confirmed");
}

/* The plan is shown before the claim and before any node; without approval the cloud has nothing. */
static void test_nothing_without_approval(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct up_result res = {0};
    struct approval a = {.answer = -1};
    f->e->approve = approve;
    f->e->approve_ctx = &a;
    assert_int_equal(engine_up(f->e, f->spec, &res, &err), -GP_ECANCELLED);
    up_result_clear(&res);
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.items, 2); /* the claim, and the nodes */
    assert_true(a.max_usd > 23.9 && a.max_usd < 24.1);
    assert_int_equal(alive(), 0);
    assert_int_equal(cloud.creates, 0);
}

static void assert_deadline(struct fixture *f, int64_t expires_s) {
    struct stack s = {0};
    assert_int_equal(journal_stack_get(f->e->journal, "me", "t", &s, NULL, NULL), 0);
    assert_int_equal(s.expires_s, expires_s);
    assert_int_equal(s.moving_s, 0);
    stack_clear(&s);
}

/* EC2's nodes end themselves: where one cannot be told, a changed ttl moves nothing, and no run is left open. */
static void test_deadline_that_nodes_do_not_take(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct plan plan = {0};
    struct stack s = {0};
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(journal_stack_get(f->e->journal, "me", "t", &s, NULL, &err), 0);
    int64_t before_s = s.expires_s;
    stack_clear(&s);
    load(f, "name: t\nnodes: 2\nlimits: {ttl: 9h}\n" OFFERS);
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), 0);
    assert_true(plan.changes && plan.expires_s - before_s > 3600);
    plan_clear(&plan);
    struct up_result res = {0};
    assert_int_equal(engine_up(f->e, f->spec, &res, &err), -GP_EREACH);
    up_result_clear(&res);
    assert_non_null(strstr(err.msg, "the deadline was not moved: t/0: it was never reached"));
    assert_int_equal(running(), 2);
    assert_deadline(f, before_s);
    gp_error_clear(&err);
    struct extend_req req = {.name = "t", .by_ms = (int64_t)9 * 3600 * 1000};
    struct extend_result moved = {0};
    assert_int_equal(engine_extend(f->e, &req, &moved, &err), -GP_EREACH);
    assert_int_equal(moved.expires_s, moved.was_s);
    extend_result_clear(&moved);
    assert_deadline(f, before_s);
}

static void make_ready(struct run *run) {
    struct gp_error err = {0};
    for (int i = 0; i < run->n_nodes; i++) {
        run->nodes[i].rec.phase = NODE_READY;
        assert_int_equal(run_node_save(&run->nodes[i], &err), 0);
    }
}

/* Keys that do not concern the nodes leave them ready; the others do not. The plan names each. */
static void test_changes_in_the_plan(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    static const struct {
        const char *text, *key, *action;
    } cases[] = {
        {"name: t\nnodes: 2\norder: listed\n" OFFERS, "order", "keep"},
        {"name: t\nnodes: 2\naccess: {ssh_from: [192.0.2.0/24]}\n" OFFERS, "access.ssh_from", "keep"},
        {"name: t\nnodes: 2\naccess: {bastion: b.example}\n" OFFERS, "access.bastion", "keep"},
        {"name: t\nnodes: 2\nlimits: {max_price: 9 USD/h}\n" OFFERS, "limits.max_price", "keep"},
        {"name: t\nnodes: 2\nvalidate: {strict: true}\n" OFFERS, "validate.strict", "resume"},
        {"name: t\nnodes: 1\n" OFFERS, "nodes", "resume"},
    };
    assert_int_equal(launch(f, &err), 0);
    make_ready(f->run);
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct plan plan = {0};
        load(f, cases[i].text);
        if (engine_plan(f->e, f->spec, &plan, &err) != 0) fail_msg("%s: %s", cases[i].key, err.msg);
        assert_true(plan.changes);
        assert_int_equal(plan.spec_changes.list.len, 1);
        assert_string_equal(plan.spec_changes.list.items[0].key, cases[i].key);
        bool keep = plan.items.items[0].action == PLAN_KEEP;
        if (keep != (strcmp(cases[i].action, "keep") == 0)) fail_msg("%s: keep is %d", cases[i].key, keep);
        plan_clear(&plan);
    }
}

/* Nodes that run already do not end because a limit was lowered; the plan reports it. */
static void test_lowered_limits_are_reported(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct plan plan = {0};
    assert_int_equal(launch(f, &err), 0);
    for (size_t i = 0; i < cloud.things.list.len; i++) cloud.things.list.items[i].price_usd_per_h = 3;
    load(f, "name: t\nnodes: 2\nlimits: {max_price: 2.5 USD/h}\n" OFFERS);
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), 0);
    GP_AUTO_FREE char *notes = strv_join(&plan.notes, "\n");
    assert_non_null(strstr(notes, "node 0 runs at 3.00 USD/h, over limits.max_price 2.5 USD/h"));
    plan_clear(&plan);
}

/* A node that is gone keeps its cost. */
static void test_cost_of_a_dead_node_stays(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    for (size_t i = 0; i < cloud.things.list.len; i++) {
        cloud.things.list.items[i].price_usd_per_h = 10;
        cloud.things.list.items[i].created_s = clock_wall_s() - 3600;
    }
    double usd[2];
    for (int gone = 0; gone < 2; gone++) {
        struct stack_view_list views = {0};
        if (gone)
            for (size_t i = 0; i < cloud.things.list.len; i++)
                if (strcmp(cloud.things.list.items[i].id, "i-1") == 0) cloud.things.list.items[i].state = RES_GONE;
        assert_int_equal(engine_status(f->e, "t", NULL, true, &views, &err), 0);
        usd[gone] = views.list.items[0].spent_usd;
        if (gone) assert_true(views.list.items[0].price_usd_per_h < 10.1);
        stack_view_list_clear(&views);
    }
    assert_true(usd[0] > 19.9 && usd[0] < 20.2);
    assert_true(usd[1] > 19.9 && usd[1] < 20.2);
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, finish)
    const struct CMUnitTest tests[] = {
        T(test_limits),
        T(test_unknown_price),
        T(test_max_cost_is_a_deadline),
        T(test_most_of_the_money_is_spent),
        T(test_limits_at_launch),
        T(test_closed_provider_is_reported_once),
        T(test_offers_that_are_too_small),
        T(test_a_list_that_reports_no_place),
        T(test_nothing_without_approval),
        T(test_deadline_that_nodes_do_not_take),
        T(test_changes_in_the_plan),
        T(test_lowered_limits_are_reported),
        T(test_cost_of_a_dead_node_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
