/* SPDX-License-Identifier: Apache-2.0 */
/* kill -9 between two journal writes, lists that lag, a journal that knows less or other things than
 * the cloud: what the next run makes of it. */
#include "base/gp_base.h"

#include "engine/proof/watch.h"
#include "engine/stack/forget.h"
#include "engine_cloud.h"

static struct node_record record_of(struct fixture *f, int slot) {
    struct node_record_list all = {0};
    struct node_record found = {.slot = -1};
    struct gp_error err = {0};
    assert_int_equal(journal_nodes(f->e->journal, f->run->stack.uid, &all, &err), 0);
    for (size_t i = 0; i < all.list.len; i++) {
        if (all.list.items[i].slot != slot) continue;
        found = all.list.items[i];
        all.list.items[i] = (struct node_record){0};
    }
    node_record_list_clear(&all);
    return found;
}

/* The ids are committed, the node's record is not yet: its first-contact key must not be lost. */
static void test_first_key_survives(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct run_node *n = &f->run->nodes[0];
    resource_set(&n->rec.resource_id, "");
    resource_set(&n->rec.host_key_first, "ssh-ed25519 FIRST");
    n->rec.phase = NODE_LAUNCHING;
    assert_int_equal(run_node_save(n, &err), 0);
    assert_int_equal(launch(f, &err), 0);
    struct node_record now = record_of(f, 0);
    assert_string_equal(now.resource_id, "i-0");
    assert_string_equal(now.host_key_first, "ssh-ed25519 FIRST");
    assert_int_equal(now.phase, NODE_REACHING);
    node_record_clear(&now);
}

/* Of another attempt is another machine: its key is not believed. */
static void test_first_key_of_another_attempt(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct run_node *n = &f->run->nodes[0];
    resource_set(&n->rec.resource_id, "");
    resource_set(&n->rec.host_key_first, "ssh-ed25519 OTHER");
    n->rec.attempt = n->res.attempt + 1;
    assert_int_equal(run_node_save(n, &err), 0);
    assert_int_equal(launch(f, &err), 0);
    struct node_record now = record_of(f, 0);
    assert_string_equal(now.host_key_first, "");
    node_record_clear(&now);
}

/* One empty list proves nothing: what was just launched is waited for, not launched again. */
static void test_a_list_that_lags(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.list_lag = cloud.lists + 2;
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(cloud.creates, 1);
    assert_int_equal(running(), 2);
}

/* What really went away is launched again, under a new attempt. */
static void test_a_machine_that_vanished(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (strcmp(cloud.things.list.items[i].id, "i-1") == 0)
            resource_set(&cloud.things.list.items[i].stack, "elsewhere");
    resource_set(&cloud.things.list.items[2].id, "i-old");
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(cloud.creates, 2);
    assert_int_equal(f->run->nodes[1].rec.attempt, 2);
}

/* A terminated machine that is still listed counts too: its token is used up. */
static void test_attempts_of_the_dead_are_used_up(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    for (size_t i = 0; i < cloud.things.list.len; i++) {
        struct resource *r = &cloud.things.list.items[i];
        if (r->kind != RES_INSTANCE) continue;
        r->state = RES_GONE;
        r->attempt = 7;
        GP_AUTO_FREE char *old = xasprintf("%s-old", r->id);
        resource_set(&r->id, old);
        prove(&f->run->proof, r);
    }
    run_close(f->run);
    f->run = NULL;
    engine_close(f->e);
    GP_AUTO_FREE char *db = fs_join(f->dir, "journal.db");
    assert_int_equal(unlink(db), 0);
    assert_int_equal(engine_open(&(struct engine_opts){.owner = "me"}, &f->e, &err), 0);
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(f->run->nodes[0].rec.attempt, 8);
}

/* Two proven machines for one slot, by two runs of one cloud without tokens: each keeps the one of its journal, and
 * nobody destroys what the other works with. */
static void test_each_side_keeps_its_own_machine(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    cloud.double_create = 1;
    assert_int_equal(launch(f, &err), 0);
    struct run_node *n = &f->run->nodes[0];
    resource_set(&n->rec.resource_id, "i-0-twin"); /* this side recorded the other one */
    assert_int_equal(run_node_save(n, &err), 0);
    assert_int_equal(launch(f, &err), 0);
    assert_string_equal(f->run->nodes[0].res.id, "i-0-twin");
    assert_int_equal(running(), 3);
}

/* An open launch that the cloud refuses when it is repeated made nothing: other offers are tried. */
static void test_a_refused_replay_is_settled(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    cloud.script[0] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "Insufficient"};
    cloud.script[1] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "Insufficient"};
    cloud.script[2] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "Insufficient"};
    assert_int_equal(launch(f, &err), -GP_ECAPACITY);
    gp_error_clear(&err);
    struct intent in = {.uid = xstrdup(f->run->stack.uid),
                        .provider = xstrdup("aws"),
                        .region = xstrdup("r1"),
                        .zone = xstrdup("r1-a"),
                        .token = xstrdup("x"),
                        .kind = RES_INSTANCE,
                        .slot_count = 2,
                        .created_s = clock_wall_s()};
    assert_int_equal(journal_intent(f->e->journal, &in, &err), 0);
    intent_clear(&in);
    cloud.script[3] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "Insufficient"};
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(running(), 2);
}

/* status looks while an `up` works: it must not write the nodes' records. */
static void test_status_changes_no_record(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct run_node *n = &f->run->nodes[0];
    resource_set(&n->rec.resource_id, "");
    resource_set(&n->rec.host_key_first, "ssh-ed25519 FIRST");
    n->rec.attempt = 9; /* it is about to launch again */
    assert_int_equal(run_node_save(n, &err), 0);
    struct stack_view_list views = {0};
    assert_int_equal(engine_status(f->e, "t", NULL, true, &views, &err), 0);
    stack_view_list_clear(&views);
    struct node_record now = record_of(f, 0);
    assert_string_equal(now.host_key_first, "ssh-ed25519 FIRST");
    assert_int_equal(now.attempt, 9);
    node_record_clear(&now);
}

/* A slot that no stack can have is not believed. */
static void test_a_nonsense_slot(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    add(RES_INSTANCE, "i-huge", &f->run->stack, 2000000000);
    assert_int_equal(launch(f, &err), 0);
    assert_true(f->run->n_nodes < 1000);
    down_ok(f);
}

/* A machine that was switched off is not a node any more, whatever the journal says of it. */
static void test_a_stopped_node_is_not_ready(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    for (int i = 0; i < 2; i++) {
        f->run->nodes[i].rec.phase = NODE_READY;
        assert_int_equal(run_node_save(&f->run->nodes[i], &err), 0);
    }
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (strcmp(cloud.things.list.items[i].id, "i-1") == 0) cloud.things.list.items[i].state = RES_STOPPED;
    struct stack_view_list views = {0};
    assert_int_equal(engine_status(f->e, "t", NULL, true, &views, &err), 0);
    assert_int_equal(views.list.len, 1);
    const struct stack_view *v = &views.list.items[0];
    assert_int_equal(v->nodes.len, 2);
    assert_string_equal(v->phase, "partial");
    assert_string_equal(v->nodes.items[1].state, "stopped");
    assert_string_equal(v->nodes.items[1].id, "i-1");
    assert_true(v->nodes.items[1].billed);
    assert_int_not_equal(v->nodes.items[1].phase, NODE_READY);
    stack_view_list_clear(&views);
    struct plan plan = {0};
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), 0);
    assert_true(plan.changes);
    bool destroys = false;
    for (size_t i = 0; i < plan.items.len; i++)
        destroys =
            destroys || (plan.items.items[i].action == PLAN_DESTROY && strstr(plan.items.items[i].what, "i-1") != NULL);
    assert_true(destroys);
    plan_clear(&plan);
    (void)launch(f, &err); /* and up ends it and launches that slot again */
    assert_int_equal(cloud.creates, 2);
}

/* A second machine that does not end is waited for with a deadline, and named: it is billed. */
static void test_an_extra_that_does_not_end(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    GP_AUTO_FINDING struct finding found = {0};
    record_launched(f->e->journal, add(RES_INSTANCE, "i-9", &f->run->stack, 1));
    cloud.gone_after = 1000000;
    assert_int_equal(adopt_stack(f->run, &found, &err), 0);
    f->run->end_ms = 200;
    assert_int_equal(extras_end(f->run, &found, &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "i-9"));
}

/* A machine that vanishes while its node is waited for is heard of by its thread. */
static void test_watch_hears_of_a_machine_that_vanished(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct run *run = f->run;
    for (int i = 0; i < 2; i++) {
        resource_set(&run->nodes[i].res.private_ip, "192.0.2.1");
        run->nodes[i].res.state = RES_RUNNING;
    }
    resource_set(&run->nodes[0].res.private_ip, ""); /* one still waits, so that it polls often */
    resource_list_clear(&cloud.things);
    assert_int_equal(watch_start(run, &err), 0);
    assert_int_equal(gp_wait_fd(-1, 0, clock_deadline(20000), &run->nodes[1].cancel, NULL, &err), -GP_ECANCELLED);
    watch_stop(run);
    assert_false(gp_cancelled(&run->nodes[0].cancel)); /* it was never seen to run */
}

/* Ctrl-C while a create is under way: what was made is found and said; nothing is created for it. */
static void test_ctrl_c_in_a_create(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct up_result res = {0};
    cloud.cancel_in_create = f->e;
    cloud.lose_reply_at = 0;
    assert_int_equal(engine_up(f->e, f->spec, &res, &err), -GP_ECANCELLED);
    up_result_clear(&res);
    assert_non_null(strstr(cloud.under_way, "nodes 0..1"));
    char *ids = engine_billed_ids(f->e);
    assert_non_null(strstr(ids, "i-0"));
    assert_non_null(strstr(ids, "i-1"));
    free(ids);
    struct intent_list open = {0};
    gp_error_clear(&err);
    assert_int_equal(journal_intents(f->e->journal, NULL, 1u << INTENT_OPEN, &open, &err), 0);
    assert_int_equal(open.list.len, 1); /* a list does not prove whose they are: the next run repeats the request */
    intent_list_clear(&open);
}

/* And what cannot be found is not called cancelled: it may be billed. */
static void test_ctrl_c_with_an_unknown_outcome(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct up_result res = {0};
    cloud.cancel_in_create = f->e;
    cloud.lose_reply_at = 0;
    cloud.never_made = true;
    assert_int_equal(engine_up(f->e, f->spec, &res, &err), -GP_EUNKNOWN);
    assert_int_equal(gp_exit_code(err.code), 8);
    assert_int_equal(res.view.unknown.list.len, 1);
    /* no machine is listed, but the launch may have created it: it is neither gone nor free */
    assert_string_equal(res.view.phase, "not known");
    assert_string_equal(res.view.nodes.items[0].verdict, "not known");
    assert_true(res.view.nodes.items[0].price_usd_per_h < 0);
    up_result_clear(&res);
}

/* The claim is younger than the last list: the stack is empty, not gone. */
static void test_a_throttled_launch_leaves_its_claim(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct up_result res = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(cloud.script); i++)
        cloud.script[i] = (struct refusal){GP_ETHROTTLED, GP_SCOPE_REGION, "RequestLimitExceeded"};
    assert_int_equal(engine_up(f->e, f->spec, &res, &err), -GP_ETHROTTLED);
    assert_string_equal(res.view.phase, "empty");
    assert_int_equal(res.view.others.list.len, 1);
    up_result_clear(&res);
}

static int open_launch(struct fixture *f, const char *hash) {
    struct gp_error err = {0};
    struct intent in = {.uid = xstrdup(f->run->stack.uid),
                        .provider = xstrdup("aws"),
                        .spec_hash = xstrdup(hash),
                        .kind = RES_INSTANCE,
                        .slot_first = 2,
                        .slot_count = 1,
                        .attempt = 1,
                        .created_s = clock_wall_s()};
    int r = journal_intent(f->e->journal, &in, &err);
    intent_clear(&in);
    return r;
}

/* A launch of unknown outcome for an earlier spec is looked for and never sent again: it would buy what nobody
 * asks for any more. gc may end what comes of it. */
static void test_a_launch_of_an_earlier_spec_is_not_repeated(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    static const char *const hashes[] = {"", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"};
    for (size_t i = 0; i < GP_ARRAY_LEN(hashes); i++) {
        assert_int_equal(launch(f, &err), 0);
        assert_int_equal(open_launch(f, hashes[i]), 0);
        int before = cloud.creates;
        GP_AUTO_FINDING struct finding found = {0};
        assert_int_equal(settle_launches(f->run, &found, &err), 0);
        assert_int_equal(cloud.creates, before);
        assert_null(strstr(cloud.tried, "replay"));
        struct intent_list stones = {0};
        assert_int_equal(journal_intents(f->e->journal, NULL, 1u << INTENT_TOMBSTONE, &stones, &err), 0);
        assert_int_equal(stones.list.len, 1);
        assert_string_equal(stones.list.items[0].note, FORGET_NOTE);
        assert_int_equal(journal_intent_end(f->e->journal, stones.list.items[0].id, INTENT_FAILED, "", &err), 0);
        intent_list_clear(&stones);
    }
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, finish)
    const struct CMUnitTest tests[] = {
        T(test_first_key_survives),
        T(test_first_key_of_another_attempt),
        T(test_a_list_that_lags),
        T(test_a_machine_that_vanished),
        T(test_attempts_of_the_dead_are_used_up),
        T(test_each_side_keeps_its_own_machine),
        T(test_a_refused_replay_is_settled),
        T(test_a_launch_of_an_earlier_spec_is_not_repeated),
        T(test_status_changes_no_record),
        T(test_a_nonsense_slot),
        T(test_a_stopped_node_is_not_ready),
        T(test_an_extra_that_does_not_end),
        T(test_watch_hears_of_a_machine_that_vanished),
        T(test_ctrl_c_in_a_create),
        T(test_ctrl_c_with_an_unknown_outcome),
        T(test_a_throttled_launch_leaves_its_claim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
