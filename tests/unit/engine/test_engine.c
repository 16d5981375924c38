/* SPDX-License-Identifier: Apache-2.0 */
/* The engine against a cloud in memory that misbehaves on command: capacity and quota scopes, a lost
 * reply, a list that lags, second machines, slow ends, groups that linger, an empty journal. */
#include "base/gp_base.h"

#include "engine_cloud.h"

static void test_first_offer(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    assert_string_equal(cloud.tried, "r1-a ");
    assert_int_equal(running(), 2);
    char *ids = engine_billed_ids(f->e);
    assert_string_equal(ids, "i-0\ni-1");
    free(ids);
    char *left = engine_left_text(f->e);
    assert_non_null(
        strstr(left, "2 nodes of 't' stay; 'gpuprov down t' destroys them:\n  t/0  i-0  until its deadline 20"));
    assert_non_null(strstr(left, "\n  t/1  i-1  until"));
    assert_null(strstr(left, "may still be billed")); /* both were named */
    free(left);
    assert_int_equal(launch(f, &err), 0); /* again: nothing to create */
    assert_int_equal(cloud.creates, 1);
    down_ok(f);
    ids = engine_billed_ids(f->e);
    assert_string_equal(ids, "");
    free(ids);
    left = engine_left_text(f->e);
    assert_string_equal(left, "");
    free(left);
}

static void test_zone_then_next_zone(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    cloud.script[0] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "InsufficientInstanceCapacity"};
    assert_int_equal(launch(f, &err), 0);
    assert_string_equal(cloud.tried, "r1-a r1-b ");
}

static void test_region_skips_its_zones(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    cloud.script[0] = (struct refusal){GP_EQUOTA, GP_SCOPE_REGION, "VcpuLimitExceeded"};
    assert_int_equal(launch(f, &err), 0);
    assert_string_equal(cloud.tried, "r1-a r2-a ");
}

static void test_all_refused_names_each(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    for (int i = 0; i < 3; i++)
        cloud.script[i] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "InsufficientInstanceCapacity"};
    assert_int_equal(launch(f, &err), -GP_ECAPACITY);
    assert_string_equal(cloud.tried, "r1-a r1-b r2-a ");
    assert_non_null(strstr(err.msg, "r2-a"));
    assert_non_null(strstr(err.msg, "InsufficientInstanceCapacity"));
    assert_int_equal(running(), 0);
    down_ok(f); /* the claim goes too */
}

static void test_bad_parameter_ends_at_once(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    cloud.script[0] = (struct refusal){GP_EUSAGE, GP_SCOPE_NONE, "InvalidParameterValue"};
    assert_int_equal(launch(f, &err), -GP_EUSAGE);
    assert_string_equal(cloud.tried, "r1-a ");
}

/* Clouds with one machine per create call: what a refused gang made is used, and only the rest is asked for. */
static void test_part_of_a_gang_is_completed(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    load(f, "name: t\nnodes: 4\noffers: [{provider: aws}]\n");
    cloud.script[0] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "InsufficientInstanceCapacity"};
    cloud.partial[0] = 3;
    assert_int_equal(launch(f, &err), 0);
    assert_string_equal(cloud.tried, "r1-a r1-b ");
    assert_int_equal(running(), 4);
    for (int s = 0; s < 4; s++) assert_int_equal(f->run->nodes[s].rec.attempt, s < 3 ? 1 : 2);
}

/* The rest is nowhere in that region: the part is given back before the whole gang is tried in another one. */
static void test_part_of_a_gang_is_given_back(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    load(f, "name: t\nnodes: 4\noffers: [{provider: aws}]\n");
    cloud.script[0] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "InsufficientInstanceCapacity"};
    cloud.script[1] = cloud.script[0];
    cloud.partial[0] = 3;
    assert_int_equal(launch(f, &err), 0);
    assert_string_equal(cloud.tried, "r1-a r1-b r2-a ");
    assert_int_equal(running(), 4);
    for (int s = 0; s < 4; s++) assert_true(f->run->nodes[s].rec.attempt >= 2);
}

/* Nowhere at all: nothing that this launch made is left. What was there before stays. */
static void test_part_of_a_gang_is_not_kept(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    load(f, "name: t\nnodes: 4\noffers: [{provider: aws}]\n");
    for (int i = 0; i < 3; i++)
        cloud.script[i] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "InsufficientInstanceCapacity"};
    cloud.partial[0] = 1;
    cloud.partial[1] = 1;
    cloud.partial[2] = 2;
    assert_int_equal(launch(f, &err), -GP_ECAPACITY);
    assert_string_equal(cloud.tried, "r1-a r1-b r2-a ");
    assert_int_equal(running(), 0);
    down_ok(f);
}

static void count_unattended(void *ctx, const struct event *e) {
    if (strstr(e->text, "only 'gpuprov gc' would terminate the nodes of 1 offer at") != NULL) ++*(int *)ctx;
}

/* Nodes that only gc would end are bought only where the spec accepts that; offers left out are reported. */
static void test_unattended_nodes_are_accepted_or_not(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct plan plan = {0};
    int reported = 0;
    cloud.ends = ENDS_GC_ONLY;
    f->e->sink = (struct event_sink){count_unattended, &reported};
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), 0);
    assert_int_equal(reported, 1);
    f->e->sink = (struct event_sink){0};
    plan_clear(&plan);
    assert_int_equal(launch(f, &err), 0);
    assert_string_equal(cloud.tried, "r1-b "); /* ends itself */
    down_ok(f);
    cloud.ends_all = true;
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "limits: {unattended: accept}"));
    gp_error_clear(&err);
    load(f, "name: t\nnodes: 2\noffers: [{provider: aws}]\nlimits: {unattended: accept}\n");
    cloud.tried[0] = '\0';
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), 0);
    assert_string_equal(plan.ends, "gc-only");
    plan_clear(&plan);
    assert_int_equal(launch(f, &err), 0);
    assert_string_equal(cloud.tried, "r1-a ");
}

static void two_entries(struct fixture *f) {
    load(f, "name: t\nnodes: 2\noffers: [{provider: aws}, {provider: aws}]\n");
}

/* A wrong parameter of one entry (an image of another architecture, a type that the region lacks) leaves the other
 * entries; whether it is found while looking or by the create. */
static void test_bad_parameter_of_an_offer_tries_the_next(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    two_entries(f);
    cloud.script[0] = (struct refusal){GP_EUSAGE, GP_SCOPE_OFFER, "InvalidAMIID.NotFound"};
    assert_int_equal(launch(f, &err), 0);
    assert_string_equal(cloud.tried, "r1-a r1-a "); /* the second entry's */
    assert_int_equal(running(), 2);
    down_ok(f);
    cloud.tried[0] = '\0';
    cloud.no_offers[0] = (struct refusal){GP_EUSAGE, GP_SCOPE_OFFER, "no such type"};
    assert_int_equal(launch(f, &err), 0);
    assert_string_equal(cloud.tried, "r1-a ");
}

static void test_all_offers_bad_names_each(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0}, none = {0}, own = {0};
    two_entries(f);
    for (int i = 0; i < 2; i++) cloud.script[i] = (struct refusal){GP_EUSAGE, GP_SCOPE_OFFER, i ? "Second" : "First"};
    assert_int_equal(launch(f, &err), -GP_EUSAGE);
    assert_true(strstr(err.msg, "First") != NULL && strstr(err.msg, "Second") != NULL);
    for (int i = 0; i < 2; i++) cloud.no_offers[i] = (struct refusal){GP_EUSAGE, GP_SCOPE_OFFER, i ? "two" : "one"};
    assert_int_equal(launch(f, &none), -GP_EUSAGE);
    assert_non_null(strstr(none.msg, "offer 1 (aws): refused: one; offer 2 (aws): refused: two"));
    cloud.no_offers[0].scope = GP_SCOPE_NONE; /* the spec itself */
    assert_int_equal(launch(f, &own), -GP_EUSAGE);
    assert_string_equal(own.msg, "refused: one");
}

/* Who cannot pay cannot pay in another zone either. */
static void test_no_money_rules_out_the_provider(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    two_entries(f);
    cloud.script[0] = (struct refusal){GP_EMONEY, GP_SCOPE_NONE, "InsufficientBalance"};
    assert_int_equal(launch(f, &err), -GP_EMONEY);
    assert_int_equal(gp_exit_code(err.code), 4);
    assert_string_equal(cloud.tried, "r1-a ");
}

/* However far a failed call reaches: while its outcome is not known, nothing else is tried. */
static void test_unknown_is_no_refusal(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    cloud.script[0] = (struct refusal){GP_ECANCELLED, GP_SCOPE_ZONE, "x"};
    assert_int_equal(launch(f, &err), -GP_ECANCELLED);
    assert_string_equal(cloud.tried, "r1-a ");
}

static void test_lost_reply_is_replayed(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    cloud.lose_reply_at = 0;
    assert_int_equal(launch(f, &err), 0);
    assert_string_equal(cloud.tried, "r1-a replay ");
    assert_int_equal(running(), 2);
    down_ok(f);
}

/* kill -9 between the call and its ids: the next run finds them by tags. */
static void test_ids_lost_found_by_tags(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct intent in = {.uid = xstrdup(f->run->stack.uid),
                        .provider = xstrdup("aws"),
                        .kind = RES_INSTANCE,
                        .slot_count = 2,
                        .created_s = clock_wall_s()};
    assert_int_equal(journal_intent(f->e->journal, &in, &err), 0);
    intent_clear(&in);
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(cloud.creates, 1);
    struct intent_list open = {0};
    assert_int_equal(journal_intents(f->e->journal, NULL, 1u << INTENT_OPEN, &open, &err), 0);
    assert_int_equal(open.list.len, 0);
}

/* Those that this journal launched; any other is left alone. */
static void test_second_machines_are_ended(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    cloud.double_create = 1;
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(running(), 4);
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(running(), 4);
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (strstr(cloud.things.list.items[i].id, "twin")) record_launched(f->e->journal, &cloud.things.list.items[i]);
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(running(), 2);
    assert_string_equal(f->run->nodes[0].res.id, "i-0");
}

static void test_down_with_empty_journal(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    run_close(f->run);
    f->run = NULL;
    engine_close(f->e);
    GP_AUTO_FREE char *db = fs_join(f->dir, "journal.db");
    assert_int_equal(unlink(db), 0);
    assert_int_equal(engine_open(&(struct engine_opts){.owner = "me"}, &f->e, &err), 0);
    down_ok(f);
}

static void test_down_waits_for_the_end(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.gone_after = 8;
    int before = cloud.lists;
    down_ok(f);
    assert_true(cloud.lists - before > 4);
}

static void test_down_settles_an_unknown_launch(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct intent in = {.uid = xstrdup(f->run->stack.uid),
                        .provider = xstrdup("aws"),
                        .kind = RES_INSTANCE,
                        .slot_first = 0,
                        .slot_count = 2,
                        .created_s = clock_wall_s()};
    assert_int_equal(journal_intent(f->e->journal, &in, &err), 0);
    intent_clear(&in);
    cloud.list_lag = cloud.lists + 3; /* its machines show up late */
    down_ok(f);
    struct intent_list stones = {0};
    assert_int_equal(journal_intents(f->e->journal, NULL, 1u << INTENT_TOMBSTONE, &stones, &err), 0);
    assert_int_equal(stones.list.len, 1);
    intent_list_clear(&stones);
}

/* A machine that the journal knows and the list hides is ended by its id, not forgotten. */
static void test_down_ends_what_is_not_listed(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.list_lag = cloud.lists + 1000;
    struct down_result res = {0};
    assert_int_equal(engine_down(f->e, &(struct down_req){.name = "t"}, &res, &err), 0);
    down_result_clear(&res);
    assert_int_equal(running(), 0);
}

static void test_down_without_credentials_names_the_ids(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.list_fails = true;
    struct down_result res = {0};
    assert_int_equal(engine_down(f->e, &(struct down_req){.name = "t"}, &res, &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "i-0"));
    assert_non_null(strstr(err.msg, "i-1"));
    assert_int_equal(gp_exit_code(err.code), 8);
    down_result_clear(&res);
}

static void test_foreign_owner_is_not_touched(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    add_of(RES_INSTANCE, "i-theirs", 0, "colleague", "t", "ffffffffffffffff", 0);
    assert_int_equal(launch(f, &err), 0);
    struct down_result res = {0};
    assert_int_equal(engine_down(f->e, &(struct down_req){.name = "t"}, &res, &err), 0);
    down_result_clear(&res);
    assert_int_equal(running(), 1);
}

static void test_gc_ends_only_the_expired(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    add_of(RES_INSTANCE, "i-old", 0, "me", "old", "aaaaaaaaaaaaaaaa", clock_wall_s() - 5);
    assert_int_equal(launch(f, &err), 0);
    struct gc_result res = {0};
    assert_int_equal(engine_gc(f->e, NULL, true, &res, &err), 0);
    assert_int_equal(res.ended.list.len, 1);
    assert_int_equal(running(), 3);
    gc_result_clear(&res);
    assert_int_equal(engine_gc(f->e, NULL, false, &res, &err), 0);
    gc_result_clear(&res);
    assert_int_equal(running(), 2);
}

static void test_status_from_memory_when_blind(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.list_fails = true;
    struct stack_view_list views = {0};
    assert_int_equal(engine_status(f->e, "t", NULL, true, &views, &err), -GP_EBILLED); /* and it is shown */
    assert_int_equal(views.list.len, 1);
    assert_true(views.list.items[0].remembered);
    assert_false(coverage_whole(&views.list.items[0].looked));
    assert_int_equal(views.list.items[0].nodes.len, 2);
    assert_string_equal(views.list.items[0].nodes.items[1].id, "i-1");
    stack_view_list_clear(&views);
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, finish)
    const struct CMUnitTest tests[] = {
        T(test_first_offer),
        T(test_zone_then_next_zone),
        T(test_region_skips_its_zones),
        T(test_all_refused_names_each),
        T(test_bad_parameter_ends_at_once),
        T(test_unattended_nodes_are_accepted_or_not),
        T(test_part_of_a_gang_is_completed),
        T(test_part_of_a_gang_is_given_back),
        T(test_part_of_a_gang_is_not_kept),
        T(test_bad_parameter_of_an_offer_tries_the_next),
        T(test_all_offers_bad_names_each),
        T(test_no_money_rules_out_the_provider),
        T(test_unknown_is_no_refusal),
        T(test_lost_reply_is_replayed),
        T(test_ids_lost_found_by_tags),
        T(test_second_machines_are_ended),
        T(test_down_with_empty_journal),
        T(test_down_waits_for_the_end),
        T(test_down_settles_an_unknown_launch),
        T(test_down_ends_what_is_not_listed),
        T(test_down_without_credentials_names_the_ids),
        T(test_foreign_owner_is_not_touched),
        T(test_gc_ends_only_the_expired),
        T(test_status_from_memory_when_blind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
