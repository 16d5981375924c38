/* SPDX-License-Identifier: Apache-2.0 */
/* status without a name: stacks that only their tags name, places that could not be searched, --in. And down with the
 * spec of another stack, at a cloud with regions. */
#include "base/gp_base.h"

#include "engine_cloud.h"

#include "providers/provider.h"

static size_t place_of(const struct stack_view_list *l, const char *name) {
    size_t i = 0;
    while (i < l->list.len && !str_eq(l->list.items[i].stack.name, name)) i++;
    return i;
}
static bool has(const struct stack_view_list *l, const char *name) { return place_of(l, name) < l->list.len; }
static const struct stack_view *view_of(const struct stack_view_list *l, const char *name) {
    assert_true(has(l, name));
    return &l->list.items[place_of(l, name)];
}

static void test_stacks_of_tags(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct stack_view_list l = {0};
    int64_t later = clock_wall_s() + 600;
    add_of(RES_GROUP, "sg-far", -1, "me", "far", "aaaaaaaaaaaaaaaa", later);
    add_of(RES_INSTANCE, "i-far", 0, "me", "far", "aaaaaaaaaaaaaaaa", later);
    add_of(RES_INSTANCE, "i-other", 0, "you", "other", "bbbbbbbbbbbbbbbb", later);
    resource_set(&add_of(RES_INSTANCE, "n-near", 0, "me", "near", "cccccccccccccccc", later)->provider, "local");
    assert_int_equal(launch(f, &err), 0);
    if (engine_status(f->e, NULL, NULL, true, &l, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(l.list.len, 3); /* t of the journal, far and near; nothing of another owner */
    assert_true(has(&l, "t"));
    const struct stack_view *far = view_of(&l, "far");
    assert_int_equal(far->nodes.len, 1);
    assert_string_equal(far->nodes.items[0].id, "i-far");
    assert_int_equal(far->stack.expires_s, later);
    assert_true(coverage_whole(&far->looked));
    assert_false(far->remembered);
    assert_true(has(&l, "near"));
    assert_true(coverage_whole(&l.looked));
    stack_view_list_clear(&l);
    /* the journal alone does not ask */
    int lists = cloud.lists;
    assert_int_equal(engine_status(f->e, NULL, NULL, false, &l, &err), 0);
    assert_int_equal(cloud.lists, lists);
    assert_true(has(&l, "t"));
    stack_view_list_clear(&l);
}

static bool notes_have(const struct stack_view *v, const char *text) {
    for (size_t i = 0; i < v->notes.n; i++)
        if (strstr(v->notes.v[i], text) != NULL) return true;
    return false;
}

/* Another controller's stack of that name at another cloud is not hidden behind the journal's. */
static void test_a_machine_with_the_name_elsewhere(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct stack_view_list l = {0};
    struct resource *n = add_of(RES_INSTANCE, "n-other", 0, "me", "t", "bbbbbbbbbbbbbbbb", clock_wall_s() + 600);
    resource_set(&n->provider, "local");
    n->billed = true;
    assert_int_equal(launch(f, &err), 0);
    if (engine_status(f->e, NULL, NULL, true, &l, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(l.list.len, 1);
    assert_true(notes_have(view_of(&l, "t"), "n-other at local"));
    for (size_t i = 0; i < view_of(&l, "t")->nodes.len; i++)
        assert_string_not_equal(view_of(&l, "t")->nodes.items[i].id, "n-other");
    stack_view_list_clear(&l);
}

/* A claim that somebody planted has another uid than the machine: the stack is not empty, and costs money. */
static void test_a_planted_claim_hides_no_machine(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct stack_view_list l = {0};
    int64_t later = clock_wall_s() + 600;
    add_of(RES_GROUP, "sg-planted", -1, "me", "far", "dddddddddddddddd", later)->claim = true;
    struct resource *i = add_of(RES_INSTANCE, "i-far", 0, "me", "far", "aaaaaaaaaaaaaaaa", later);
    i->billed = true;
    i->price_usd_per_h = 2;
    if (engine_status(f->e, NULL, NULL, true, &l, &err) != 0) fail_msg("%s", err.msg);
    const struct stack_view *far = view_of(&l, "far");
    assert_string_equal(far->phase, "not known");
    assert_true(far->price_usd_per_h == 2);
    assert_true(notes_have(far, "i-far at aws"));
    stack_view_list_clear(&l);
}

/* A cloud that does not know a price returns 0: no node that costs money is free, neither alone nor in a sum. */
static void test_a_price_of_zero(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct stack_view_list l = {0};
    assert_int_equal(launch(f, &err), 0);
    for (size_t i = 0; i < cloud.things.list.len; i++) cloud.things.list.items[i].price_usd_per_h = i == 1 ? 3.5 : 0;
    for (int refresh = 1; refresh >= 0; refresh--) { /* then from the journal */
        if (engine_status(f->e, NULL, NULL, refresh == 1, &l, &err) != 0) fail_msg("%s", err.msg);
        const struct stack_view *v = view_of(&l, "t");
        assert_int_equal(v->nodes.len, 2);
        assert_true(v->nodes.items[0].price_usd_per_h == 3.5);
        assert_true(v->nodes.items[1].price_usd_per_h < 0);
        assert_true(v->price_usd_per_h < 0);
        assert_true(v->spent_usd < 0);
        stack_view_list_clear(&l);
    }
    struct resource_list known = {0}; /* as an earlier gpuprov wrote it */
    assert_int_equal(journal_resources(f->e->journal, f->run->stack.uid, &known, &err), 0);
    for (size_t i = 0; i < known.list.len; i++) {
        known.list.items[i].price_usd_per_h = 0;
        assert_int_equal(journal_resource_put(f->e->journal, &known.list.items[i], &err), 0);
    }
    resource_list_clear(&known);
    assert_int_equal(engine_status(f->e, NULL, NULL, false, &l, &err), 0);
    assert_true(view_of(&l, "t")->price_usd_per_h < 0);
    assert_true(view_of(&l, "t")->spent_usd < 0);
    stack_view_list_clear(&l);
    struct gc_result res = {0};
    assert_int_equal(engine_gc(f->e, NULL, true, &res, &err), 0);
    for (size_t i = 0; i < res.kept.list.len; i++)
        if (str_eq(res.kept.list.items[i].id, "i-1")) assert_true(res.kept.list.items[i].price_usd_per_h < 0);
    gc_result_clear(&res);
    /* nodes of a place that costs nothing are free */
    struct resource *near = add_of(RES_INSTANCE, "n-near", 0, "me", "near", "cccccccccccccccc", 0);
    resource_set(&near->provider, "local");
    near->price_usd_per_h = 0;
    assert_int_equal(engine_status(f->e, NULL, NULL, true, &l, &err), 0);
    assert_true(view_of(&l, "near")->price_usd_per_h == 0);
    stack_view_list_clear(&l);
}

/* A place that cannot be searched is marked and decides the exit code; one without any credentials is only marked. */
static void test_places_that_cannot_be_searched(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct stack_view_list l = {0};
    resource_set(&add_of(RES_INSTANCE, "n-near", 0, "me", "near", "cccccccccccccccc", 0)->provider, "local");
    cloud.open_fails = true;
    assert_int_equal(engine_status(f->e, NULL, NULL, true, &l, &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "not looked at: aws"));
    assert_true(has(&l, "near"));
    assert_string_equal(coverage_gap(&l.looked)->provider, "aws");
    stack_view_list_clear(&l);
    cloud.no_credentials = true;
    gp_error_clear(&err);
    if (engine_status(f->e, NULL, NULL, true, &l, &err) != 0) fail_msg("%s", err.msg);
    assert_string_equal(coverage_gap(&l.looked)->why.detail, PROVIDER_NO_CREDENTIALS);
    stack_view_list_clear(&l);
    cloud.service_says = true; /* a token service that answers with this word has not made the cloud unimportant */
    assert_int_equal(engine_status(f->e, NULL, NULL, true, &l, &err), -GP_EBILLED);
    stack_view_list_clear(&l);
    cloud.service_says = false;
    /* --in aws asks for it by name */
    struct strv only = {0};
    strv_add(&only, "aws");
    f->e->opts.only = &only;
    assert_int_equal(engine_status(f->e, NULL, NULL, true, &l, &err), -GP_EBILLED);
    assert_false(has(&l, "near")); /* it is elsewhere, which is no error */
    stack_view_list_clear(&l);
    f->e->opts.only = NULL;
    strv_clear(&only);
}

/* What the journal has at a cloud is shown from the journal, and that is never without an error. */
static void test_a_known_stack_without_credentials(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct stack_view_list l = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.open_fails = cloud.no_credentials = true;
    assert_int_equal(engine_status(f->e, NULL, NULL, true, &l, &err), -GP_EBILLED);
    assert_true(view_of(&l, "t")->remembered);
    assert_int_equal(view_of(&l, "t")->nodes.len, 2);
    stack_view_list_clear(&l);
}

/* Of nodes at several clouds, status names the deadline that can be relied on least. Without a node it names none. */
static void ends_is(struct fixture *f, const char *want) {
    struct gp_error err = {0};
    struct stack_view_list l = {0};
    if (engine_status(f->e, "t", NULL, true, &l, &err) != 0) fail_msg("%s", err.msg);
    assert_string_equal(l.list.items[0].ends, want);
    stack_view_list_clear(&l);
}

static void test_who_ends_nodes_at_two_clouds(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    load(f, "name: t\nnodes: 2\noffers: [{provider: aws}, {provider: local}]\n");
    assert_int_equal(launch(f, &err), 0);
    resource_set(&add(RES_INSTANCE, "node-2", &f->run->stack, 2)->provider, "local");
    ends_is(f, "guest"); /* aws: the nodes themselves; local, the last one: the provider */
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (cloud.things.list.items[i].kind == RES_INSTANCE) cloud.things.list.items[i].state = RES_GONE;
    ends_is(f, "");
}

/* --- clouds that this machine never used --- */

/* One cloud is looked at; for the other there are no credentials. It is named, and is a gap only where something
 * points there. */
static void gc_is(struct fixture *f, int want, bool aside) {
    struct gp_error err = {0};
    struct gc_result gc = {0};
    int r = engine_gc(f->e, NULL, true, &gc, &err);
    if (r != want) fail_msg("gc: %d, not %d: %s", r, want, err.msg);
    const struct look *l = coverage_find(&gc.looked, "local", "");
    assert_non_null(l);
    assert_false(l->checked);
    assert_int_equal(l->aside, aside);
    assert_int_equal(coverage_whole(&gc.looked), want == 0);
    gc_result_clear(&gc);
}

static void test_a_cloud_that_was_never_used(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct strv only = {0};
    struct stack_view_list l = {0};
    struct down_result res = {0};
    cloud.other_open_fails = cloud.other_no_credentials = true;
    add_of(RES_GROUP, "sg-far", -1, "me", "far", "aaaaaaaaaaaaaaaa", clock_wall_s() + 600);
    add_of(RES_INSTANCE, "i-far", 0, "me", "far", "aaaaaaaaaaaaaaaa", clock_wall_s() + 600);
    /* down by a name that only the tags know */
    if (engine_down(f->e, &(struct down_req){.name = "far"}, &res, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(running(), 0);
    assert_true(coverage_find(&res.looked, "local", "")->aside);
    down_result_clear(&res);
    gc_is(f, 0, true);
    if (engine_status(f->e, NULL, NULL, true, &l, &err) != 0) fail_msg("%s", err.msg);
    assert_true(coverage_whole(&l.looked));
    stack_view_list_clear(&l);
    /* credentials that do not work are another matter */
    cloud.other_no_credentials = false;
    gc_is(f, -GP_EENV, false);
    cloud.other_no_credentials = true;
    /* the gap is the cloud that refuses, not those that this machine has no account for */
    cloud.open_fails = true;
    gc_is(f, -GP_EBILLED, true);
    assert_int_equal(engine_down(f->e, &(struct down_req){.name = "other"}, &res, &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "not looked at: aws, where it may still be billed: "));
    down_result_clear(&res);
    gp_error_clear(&err);
    cloud.open_fails = false;
    /* --in names it */
    strv_add(&only, "aws");
    strv_add(&only, "local");
    f->e->opts.only = &only;
    gc_is(f, -GP_EENV, false);
    f->e->opts.only = NULL;
    strv_clear(&only);
    /* the journal has something there */
    struct resource r = {0};
    resource_init(&r, RES_INSTANCE, "local");
    resource_set(&r.id, "n-1");
    resource_set(&r.uid, "dddddddddddddddd");
    resource_set(&r.owner, "me");
    resource_set(&r.stack, "old");
    r.state = RES_RUNNING;
    assert_int_equal(journal_resource_put(f->e->journal, &r, &err), 0);
    gc_is(f, -GP_EENV, false);
    r.state = RES_GONE;
    assert_int_equal(journal_resource_put(f->e->journal, &r, &err), 0);
    resource_clear(&r);
    gc_is(f, 0, true);
    /* no cloud at all could be looked at */
    cloud.open_fails = cloud.no_credentials = true;
    gc_is(f, -GP_EBILLED, false);
    cloud.open_fails = cloud.no_credentials = false;
}

/* --- down SPEC --- */

static int answer;
static int on_question(void *ctx, const char *question, struct gp_error *err) {
    str_add(ctx, question);
    return answer == 0 ? 0 : gp_fail(err, GP_ECANCELLED, "not confirmed");
}

static void refused(struct fixture *f, const char *spec, const char *says) {
    struct gp_error err = {0};
    struct down_result res = {0};
    int before = running();
    load(f, spec);
    int r = engine_down(f->e, &(struct down_req){.spec = f->spec}, &res, &err);
    if (r != -GP_EUSAGE || strstr(err.msg, says) == NULL) fail_msg("%d %s", r, err.msg);
    assert_int_equal(running(), before);
    assert_int_equal(res.destroyed, 0);
    down_result_clear(&res);
}

static void test_the_spec_of_another_stack(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct down_result res = {0};
    GP_AUTO_STR struct str question = {0};
    assert_int_equal(launch(f, &err), 0);
    refused(f, "name: t\noffers: [{provider: local}]\n", "'t' is at aws r1 (2 nodes), where ");
    /* the dry run shows the same, without a question */
    struct down_req dry = {.spec = f->spec, .dry_run = true, .confirm = on_question, .ctx = &question};
    if (engine_down(f->e, &dry, &res, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(res.would.list.len, 3); /* the claim too */
    assert_string_equal(res.elsewhere, "aws r1 (2 nodes)");
    assert_int_equal(question.len, 0);
    assert_int_equal(running(), 2);
    down_result_clear(&res);
    /* asked: no, then yes */
    struct down_req ask = {.spec = f->spec, .confirm = on_question, .ctx = &question};
    answer = 1;
    assert_int_equal(engine_down(f->e, &ask, &res, &err), -GP_ECANCELLED); /* not "may still be billed" */
    assert_int_equal(running(), 2);
    down_result_clear(&res);
    answer = 0;
    gp_error_clear(&err);
    if (engine_down(f->e, &ask, &res, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(alive(), 0);
    assert_non_null(strstr(question.s, "Destroy it?"));
    down_result_clear(&res);
}

/* GitOps: the spec is edited, then taken down. As long as it has offers of the stack's providers, in
 * any region, it is the stack's. */
static void test_an_edited_spec(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct down_result res = {0};
    assert_int_equal(launch(f, &err), 0);
    load(f, "name: t\nnodes: 7\ngpu: H100:8\noffers: [{provider: aws, regions: [r9]}, {provider: local}]\n");
    if (engine_down(f->e, &(struct down_req){.spec = f->spec}, &res, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(alive(), 0);
    down_result_clear(&res);
}

static char said[4096];

static void hear(void *ctx, const struct event *e) {
    (void)ctx;
    size_t len = strlen(said);
    if (e->status == EVENT_START) snprintf(said + len, sizeof said - len, "%s\n", e->text);
}

/* Only a list that was read shows that a machine is no longer there. */
static void test_down_of_what_is_not_listed(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct down_result res = {0};
    assert_int_equal(launch(f, &err), 0);
    static const char *const regions[] = {"r1", "r9"};
    for (size_t i = 0; i < GP_ARRAY_LEN(regions); i++) {
        struct resource r = {0};
        resource_copy(&r, &f->run->nodes[0].res);
        resource_set(&r.id, i == 0 ? "i-ended" : "i-far");
        resource_set(&r.region, regions[i]);
        r.slot = 5;
        assert_int_equal(journal_resource_put(f->e->journal, &r, &err), 0);
        resource_clear(&r);
    }
    said[0] = '\0';
    cloud.list_is_partial = true; /* of r9 */
    f->e->sink = (struct event_sink){.emit = hear};
    assert_int_equal(engine_down(f->e, &(struct down_req){.name = "t"}, &res, &err), -GP_EBILLED);
    down_result_clear(&res);
    assert_non_null(strstr(said, "instance i-ended, which is no longer listed\n"));
    assert_non_null(strstr(said, "instance i-far, from the journal: its place could not be listed\n"));
    assert_non_null(strstr(said, "instance i-0\n"));
    cloud.list_is_partial = false;
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, finish)
    const struct CMUnitTest tests[] = {
        T(test_stacks_of_tags),
        T(test_a_machine_with_the_name_elsewhere),
        T(test_a_planted_claim_hides_no_machine),
        T(test_a_price_of_zero),
        T(test_places_that_cannot_be_searched),
        T(test_who_ends_nodes_at_two_clouds),
        T(test_a_known_stack_without_credentials),
        T(test_a_cloud_that_was_never_used),
        T(test_the_spec_of_another_stack),
        T(test_an_edited_spec),
        T(test_down_of_what_is_not_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
