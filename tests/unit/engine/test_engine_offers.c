/* SPDX-License-Identifier: Apache-2.0 */
/* Offers of several providers: the verb offers, their order with prices in several currencies, and the failover from
 * one provider to the next. */
#include "base/gp_base.h"

#include "engine_cloud.h"

#include "engine/run/look.h"
#include "providers/provider.h"

#define BOTH "offers: [{provider: aws}, {provider: local}]\n"
#define LISTED "name: t\nnodes: 2\norder: listed\n" BOTH

static int ask(struct fixture *f, const char *key, const char *only, struct offers_result *ret, struct gp_error *err) {
    GP_AUTO_STRV struct strv keys = {0}, names = {0};
    struct offers_req req = {.spec = f->spec};
    if (key != NULL) strv_add(&keys, key), req.keys = &keys;
    if (only != NULL) strv_add(&names, only), req.only = &names;
    gp_error_clear(err);
    return engine_offers(f->e, &req, ret, err);
}

/* "aws/r1-a aws/r1-b ..." */
static void assert_offers(const struct offer_list *l, const char *want) {
    GP_AUTO_STR struct str got = {0};
    str_add(&got, "");
    for (size_t i = 0; i < l->list.len; i++)
        str_addf(&got, "%s%s/%s", i > 0 ? " " : "", l->list.items[i].provider, l->list.items[i].zone);
    assert_string_equal(got.s, want);
}

static void test_all_providers_are_listed(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct offers_result res = {0};
    load(f, "name: t\n" BOTH);
    cloud.other_currency = "CNY"; /* 1 to 3 CNY are less than 1 USD */
    if (ask(f, NULL, NULL, &res, &err) != 0) fail_msg("%s", err.msg);
    assert_offers(&res.offers, "local/r1-a local/r1-b local/r2-a aws/r1-a aws/r1-b aws/r2-a");
    assert_int_equal(res.gaps.len, 0);
    assert_int_equal(res.offers.list.items[0].ends, ENDS_SERVER);
    assert_int_equal(res.offers.list.items[3].ends, ENDS_GUEST);
    offers_result_clear(&res);
    assert_int_equal(cloud.creates, 0);
    assert_int_equal(cloud.lists, 0);
    /* one of them, and a currency without a rate: last */
    cloud.other_currency = "XXX";
    assert_int_equal(ask(f, NULL, NULL, &res, &err), 0);
    assert_offers(&res.offers, "aws/r1-a aws/r1-b aws/r2-a local/r1-a local/r1-b local/r2-a");
    offers_result_clear(&res);
    assert_int_equal(ask(f, NULL, "local", &res, &err), 0);
    assert_int_equal(res.offers.list.len, 3);
    offers_result_clear(&res);
}

/* A provider without an offer is never left out silently. */
static void test_gaps_are_named(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct offers_result res = {0};
    load(f, "name: t\n" BOTH);
    cloud.open_fails = cloud.no_credentials = true;
    assert_int_equal(ask(f, NULL, NULL, &res, &err), 0);
    assert_int_equal(res.offers.list.len, 3);
    assert_int_equal(res.gaps.len, 1);
    assert_string_equal(res.gaps.items[0].provider, "aws");
    assert_string_equal(res.gaps.items[0].why.detail, PROVIDER_NO_CREDENTIALS);
    offers_result_clear(&res);
    cloud.other_open_fails = true; /* then the worst reason is the error */
    assert_int_equal(ask(f, NULL, NULL, &res, &err), -GP_EAUTH);
    assert_int_equal(res.gaps.len, 2);
    assert_non_null(strstr(err.msg, "no provider has an offer: aws: no credentials"));
    offers_result_clear(&res);
    cloud.open_fails = cloud.other_open_fails = false;
    cloud.no_offers[1] = (struct refusal){GP_ECAPACITY, GP_SCOPE_OFFER, "sold out"};
    assert_int_equal(ask(f, NULL, NULL, &res, &err), 0);
    assert_string_equal(res.gaps.items[0].provider, "local");
    assert_int_equal(res.gaps.items[0].index, 1);
    offers_result_clear(&res);
    cloud.no_offers[1] = (struct refusal){0};
    assert_int_equal(ask(f, "market", NULL, &res, &err), 0); /* "local" of these tests takes no key */
    assert_string_equal(res.gaps.items[0].why.msg, "local has no 'market' to choose from");
    offers_result_clear(&res);
    load(f, "name: t\ncpus: 2\n" BOTH); /* these offers do not know their CPUs */
    assert_int_equal(ask(f, NULL, NULL, &res, &err), -GP_EUSAGE);
    assert_non_null(strstr(res.gaps.items[0].why.msg, "its number of CPUs is not known, and 'cpus' is set"));
    offers_result_clear(&res);
    struct plan plan = {0};
    gp_error_clear(&err);
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "and 'cpus' is set"));
    engine_cancel(f->e);
    load(f, "name: t\n" BOTH);
    assert_int_equal(ask(f, NULL, NULL, &res, &err), -GP_ECANCELLED);
    offers_result_clear(&res);
}

static void test_a_plan_ranks_over_currencies(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct plan plan = {0};
    load(f, "name: t\nnodes: 2\nlimits: {ttl: 1h}\n" BOTH);
    cloud.other_currency = "EUR"; /* 1.12, 2.24 and 3.36 USD */
    if (engine_plan(f->e, f->spec, &plan, &err) != 0) fail_msg("%s", err.msg);
    assert_offers(&plan.offers, "aws/r1-a local/r1-a aws/r1-b local/r1-b aws/r2-a local/r2-a");
    bool noted = false;
    for (size_t i = 0; i < plan.notes.n; i++) noted = noted || strstr(plan.notes.v[i], "without egress") != NULL;
    assert_true(noted);
    assert_true(plan.max_usd > 2 * 3.36 && plan.max_usd < 2 * 3.37); /* in USD, at the dearest */
    plan_clear(&plan);
    /* limits compare the converted price, and print the original beside it */
    load(f, "name: t\nnodes: 2\nlimits: {max_price: 1.1 USD/h}\n" BOTH);
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), 0);
    assert_offers(&plan.offers, "aws/r1-a");
    plan_clear(&plan);
    load(f, "name: t\nlimits: {max_price: 1.1 USD/h}\noffers: [{provider: local}]\n");
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), -GP_EMONEY);
    assert_non_null(strstr(err.msg, "1.12 USD/h (1.00 EUR/h at the rate of 2026-10-05) is over limits.max_price"));
    gp_error_clear(&err);
    cloud.other_currency = "XXX";
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), -GP_EMONEY);
    assert_non_null(strstr(err.msg, "the price is not known (1.00 XXX/h; no rate to USD)"));
}

static void test_providers_are_asked_side_by_side(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct offers_result res = {0};
    struct plan plan = {0};
    load(f, "name: t\n" BOTH);
    meeting.on = true;
    meeting.together = 0;
    assert_int_equal(ask(f, NULL, NULL, &res, &err), 0);
    assert_int_equal(meeting.together, 2);
    offers_result_clear(&res);
    meeting.together = 0;
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), 0);
    assert_int_equal(meeting.together, 2);
    plan_clear(&plan);
    meeting.on = false; /* two entries of one provider are asked one after the other */
    meeting.together = 0;
    load(f, "name: t\noffers: [{provider: aws}, {provider: aws, market: spot}]\n");
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), 0);
    assert_int_equal(meeting.together, 1);
    assert_int_equal(plan.offers.list.len, 6);
    plan_clear(&plan);
}

/* plan and up open the clouds of a spec at once, once the owner is known. Errors keep the spec's order. */
static void test_providers_are_opened_side_by_side(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    static const char *const specs[] = {"name: t\noffers: [{provider: aws}, {provider: local}]\n",
                                        "name: t\noffers: [{provider: local}, {provider: aws}]\n"};
    for (size_t i = 0; i < GP_ARRAY_LEN(specs); i++) {
        struct run *run = NULL;
        load(f, specs[i]);
        cloud.opens_meet = meeting.on = true;
        meeting.together = 0;
        assert_int_equal(run_open(f->e, f->spec, "t", &run, &err), 0);
        assert_int_equal(run_open_offers(run, &err), 0);
        assert_int_equal(meeting.together, 2);
        assert_int_equal(run->providers.len, 2);
        assert_string_equal(run->providers.items[0]->ops->name, "aws"); /* as owner_order_of lists them */
        assert_string_equal(run->providers.items[1]->ops->name, "local");
        assert_string_equal(run->home->ops->name, i == 0 ? "aws" : "local");
        run_close(run);
        run = NULL;
        meeting.together = 0;
        cloud.open_fails = cloud.other_open_fails = true;
        assert_int_equal(run_open(f->e, f->spec, "t", &run, &err), 0);
        assert_int_equal(run_open_offers(run, &err), i == 0 ? -GP_EAUTH : -GP_EENV);
        assert_string_equal(err.msg, i == 0 ? "no credentials" : "no way in there");
        assert_int_equal(meeting.together, 2);
        gp_error_clear(&err);
        cloud.open_fails = cloud.other_open_fails = cloud.opens_meet = meeting.on = false;
        run_close(run);
    }
    /* without an owner the first cloud decides it, and the second is opened for that owner */
    f->e->opts.owner = NULL;
    cloud.principal = "jo";
    struct run *run = NULL;
    assert_int_equal(run_open(f->e, f->spec, "t", &run, &err), 0);
    assert_int_equal(run_open_offers(run, &err), 0);
    assert_string_equal(run->owner, "jo");
    assert_string_equal(run->providers.items[1]->owner, "jo");
    run_close(run);
}

/* "aws/i-0 local/n-0 ", which provider is looked at or not, and the error. */
static char *look_text(struct run *run, int want) {
    GP_AUTO_RESOURCES struct resource_list seen = {0};
    struct gp_error err = {0};
    struct str out = {0};
    GP_AUTO_STR struct str looked = {0}, gaps = {0};
    int r = look_for_run(run, &seen, &err);
    if (r != want) fail_msg("%d instead of %d: %s", r, want, err.msg);
    for (size_t i = 0; i < seen.list.len; i++)
        str_addf(&out, "%s/%s ", seen.list.items[i].provider, seen.list.items[i].id);
    coverage_text(&run->look.covered, true, 6, &looked);
    coverage_text(&run->look.covered, false, 6, &gaps);
    str_addf(&out, "| %s | %s | %s", looked.len > 0 ? looked.s : "", gaps.len > 0 ? gaps.s : "", err.msg);
    return out.s;
}

/* Every verb lists the clouds of a stack at once. Resources, places and the error are in the clouds' order, whichever
 * answers first. */
static void test_providers_are_listed_side_by_side(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    load(f, LISTED);
    if (launch(f, &err) != 0) fail_msg("%s", err.msg);
    const char *uid = f->run->stack.uid;
    resource_set(&add_of(RES_INSTANCE, "n-0", 0, "me", "t", uid, 0)->provider, "local");
    static const struct {
        bool fails, other_fails, ending;
        enum gp_code code; /* of the first provider's failure */
        int want;
        const char *text;
    } cases[] = {
        {.text = "aws/sg-1 aws/i-0 aws/i-1 local/n-0 | aws r1, r2 (owner me); local here (owner me) |  | "},
        {.fails = true,
         .other_fails = true,
         .want = -GP_EAUTH,
         .text = "|  | aws r1, r2; local | could not list the resources of 't' at aws: no credentials"},
        {.fails = true, .other_fails = true, .ending = true, .text = "|  | aws r1, r2; local | "},
        {.other_fails = true,
         .want = -GP_EENDPOINT,
         .text = "aws/sg-1 aws/i-0 aws/i-1 | aws r1, r2 (owner me) | local | could not list the resources of 't' at "
                 "local: it does not answer"},
        {.fails = true, .ending = true, .text = "local/n-0 | local here (owner me) | aws r1, r2 | "},
        {.fails = true,
         .ending = true,
         .code = GP_ECANCELLED,
         .want = -GP_ECANCELLED,
         .text = "local/n-0 | local here (owner me) |  | could not list the resources of 't' at aws: cancelled"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        meeting.together = 0;
        cloud.lists_meet = meeting.on = true;
        cloud.list_fails = cases[i].fails;
        cloud.list_code = cases[i].code;
        cloud.other_list_fails = cases[i].other_fails;
        f->run->ending = cases[i].ending;
        GP_AUTO_FREE char *got = look_text(f->run, cases[i].want);
        if (strcmp(got, cases[i].text) != 0) fail_msg("%zu: %s", i, got);
        assert_int_equal(meeting.together, 2);
    }
    cloud.list_fails = cloud.other_list_fails = false;
    f->run->ending = false;

    struct plan plan = {0}; /* every node is there: the verbs list, and query no offer */
    struct stack_view_list views = {0};
    struct down_result down = {0};
    meeting.together = 0;
    if (engine_plan(f->e, f->spec, &plan, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(meeting.together, 2);
    plan_clear(&plan);
    meeting.together = 0;
    if (engine_status(f->e, NULL, f->spec, true, &views, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(meeting.together, 2);
    stack_view_list_clear(&views);
    meeting.together = 0;
    if (engine_down(f->e, &(struct down_req){.spec = f->spec, .yes = true}, &down, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(meeting.together, 2);
    assert_int_equal(alive(), 0);
    down_result_clear(&down);
    cloud.lists_meet = meeting.on = false;
}

/* What a refusal rules out, and where the launch goes next: to the other provider at the latest. */
static void test_failover_over_clouds(void **state) {
    struct fixture *f = *state;
    static const struct {
        struct refusal first;
        const char *tried;
    } cases[] = {
        {{GP_ECAPACITY, GP_SCOPE_ZONE, "Insufficient"}, "aws/r1-a aws/r1-b "},
        {{GP_EQUOTA, GP_SCOPE_REGION, "LimitExceeded"}, "aws/r1-a aws/r2-a "},
        {{GP_EUSAGE, GP_SCOPE_OFFER, "Unsupported"}, "aws/r1-a local/r1-a "},
        {{GP_EAUTH, GP_SCOPE_NONE, "AccessDenied"}, "aws/r1-a local/r1-a "},
        {{GP_EMONEY, GP_SCOPE_NONE, "NoBalance"}, "aws/r1-a local/r1-a "},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct gp_error err = {0};
        load(f, LISTED);
        cloud.name_providers = true;
        cloud.script[0] = cases[i].first;
        if (launch(f, &err) != 0) fail_msg("%zu: %s", i, err.msg);
        if (strcmp(cloud.tried, cases[i].tried) != 0) fail_msg("%zu: %s", i, cloud.tried);
        assert_int_equal(running(), 2);
        down_ok(f);
        cloud_reset();
    }
}

/* Every zone of the first cloud is full: the second one is tried, and the reason of each is in the error. */
static void test_no_cloud_has_room(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    load(f, LISTED);
    cloud.name_providers = true;
    for (int i = 0; i < 16; i++) cloud.script[i] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "Insufficient"};
    assert_int_equal(launch(f, &err), -GP_ECAPACITY);
    assert_string_equal(cloud.tried, "aws/r1-a aws/r1-b aws/r2-a local/r1-a local/r1-b local/r2-a ");
    assert_non_null(strstr(err.msg, "aws r1-a"));
    assert_int_equal(running(), 0);
    down_ok(f);
}

/* A cloud without credentials is skipped, wherever the spec names it; it is an error if there is no other one. */
static void test_a_cloud_without_credentials_is_skipped(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    load(f, LISTED);
    cloud.name_providers = cloud.open_fails = cloud.no_credentials = true;
    if (launch(f, &err) != 0) fail_msg("%s", err.msg);
    assert_string_equal(cloud.tried, "local/r1-a ");
    cloud.open_fails = false;
    down_ok(f);
    cloud.open_fails = cloud.other_open_fails = true;
    assert_int_equal(launch(f, &err), -GP_EAUTH);
    cloud.open_fails = cloud.other_open_fails = false;
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, finish)
    const struct CMUnitTest tests[] = {
        T(test_all_providers_are_listed),
        T(test_gaps_are_named),
        T(test_a_plan_ranks_over_currencies),
        T(test_providers_are_asked_side_by_side),
        T(test_providers_are_opened_side_by_side),
        T(test_providers_are_listed_side_by_side),
        T(test_failover_over_clouds),
        T(test_no_cloud_has_room),
        T(test_a_cloud_without_credentials_is_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
