/* SPDX-License-Identifier: Apache-2.0 */
/* Gangs at clouds with one machine per request: what is on disk at each moment, and what becomes of
 * refusals, lost replies, failed placements and cut runs. */
#include "base/gp_base.h"

#include "slot_world.h"

static void test_all_made(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    assert_int_equal(create(c, MAX, NULL, &made, &err), 0);
    assert_int_equal(made.list.len, MAX);
    for (int i = 0; i < MAX; i++) assert_true(made.list.items[i].ours);
    states(c, 0, MAX, 0);
    known(c, MAX);
    for (int i = 0; i < MAX; i++) {
        assert_int_equal(made.list.items[i].slot, i);
        assert_true(made.list.items[i].price_usd_per_h == 12.5 && made.list.items[i].gpus == 8);
        for (int k = 0; k < i; k++) assert_string_not_equal(c->tokens[i], c->tokens[k]);
    }
}

/* What was made is handed over, what is missing is the refusal's. */
static void test_no_room_in_the_middle(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    c->acts[2] = NO_ROOM;
    assert_int_equal(create(c, 4, NULL, &made, &err), -GP_ECAPACITY);
    assert_int_equal(err.scope, GP_SCOPE_ZONE);
    assert_int_equal(made.list.len, 3);
    states(c, 0, 3, 1);
    known(c, 3);
}

static void test_one_by_one(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    c->ops.one_by_one = true;
    c->acts[2] = NO_ROOM;
    assert_int_equal(create(c, 4, NULL, &made, NULL), -GP_ECAPACITY);
    assert_true(made.list.len == 2 && c->sends[2] == 1 && c->sends[3] == 0); /* no room for one: none for the next */
    states(c, 0, 2, 2);
}

static void test_lost_reply_is_found_by_tags(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    c->ops.replay_max_s = 0; /* a cloud without tokens */
    c->acts[1] = LOSES_REPLY;
    c->hidden_lists = 1; /* and its list is late */
    assert_int_equal(create(c, 3, NULL, &made, &err), 0);
    assert_int_equal(made.list.len, 3);
    assert_int_equal(c->sends[1], 1);
    assert_int_equal(c->there.list.len, 3);
    states(c, 0, 3, 0);
}

static void test_lost_reply_is_asked_again_by_token(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    c->acts[1] = LOSES_REPLY;
    c->hidden_lists = 1000;
    assert_int_equal(create(c, 3, NULL, &made, &err), 0);
    assert_int_equal(made.list.len, 3);
    assert_int_equal(c->sends[1], 2);
    assert_int_equal(c->sends[0], 1);
    assert_int_equal(c->there.list.len, 3);
    states(c, 0, 3, 0);
}

/* Only after two lists past the lag is "nothing was made" a fact. */
static void test_lost_request_made_nothing(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    c->ops.replay_max_s = 0;
    c->acts[0] = LOSES_REQUEST;
    assert_int_equal(create(c, 2, NULL, &made, &err), -GP_ELOST);
    assert_int_equal(err.scope, GP_SCOPE_ZONE); /* the next offer may do */
    assert_int_equal(made.list.len, 1);
    assert_int_equal(c->sends[0], 1);
    assert_true(c->lists >= 3);
    states(c, 0, 1, 1);
}

/* A request may take longer than lists lag: what they lag behind is its end. */
static void test_lag_begins_at_the_end_of_a_request(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    c->ops.replay_max_s = 0;
    c->ops.settle_ms = 1500;
    c->send_ms = 2500;
    c->hidden_lists = 2;
    c->acts[0] = LOSES_REPLY;
    if (create(c, 1, NULL, &made, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(made.list.len, 1);
    assert_int_equal(c->sends[0], 1);
    states(c, 0, 1, 0);
}

/* With repeat_max_s a request that made nothing is sent once more. */
static void test_lost_request_is_repeated_once(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    c->ops.replay_max_s = 0;
    c->ops.repeat_max_s = 600;
    c->acts[0] = LOSES_FIRST;
    c->acts[1] = LOSES_REQUEST;
    assert_int_equal(create(c, 3, NULL, &made, &err), -GP_ELOST);
    assert_int_equal(made.list.len, 2);
    assert_int_equal(c->sends[0], 2);
    assert_int_equal(c->sends[1], 2);
    assert_int_equal(c->sends[2], 1);
    states(c, 0, 2, 1);
}

/* The next run does so too, but not with an old body. */
static void test_cut_request_is_repeated_while_young(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0}, old = {0}, young = {0};
    struct intent_list open = {0};
    struct gp_error err = {0};
    c->ops.replay_max_s = 0;
    c->ops.repeat_max_s = 600;
    c->acts[0] = c->acts[1] = LOSES_REQUEST;
    c->list_fails = true; /* the run is cut: its intents stay open */
    assert_int_equal(create(c, 2, NULL, &made, &err), -GP_EUNKNOWN);
    c->list_fails = false;
    c->acts[0] = c->acts[1] = MAKES;
    assert_int_equal(journal_intents(c->journal, UID, 1u << INTENT_OPEN, &open, NULL), 0);
    assert_int_equal(open.list.len, 2);
    open.list.items[0].created_s -= 3600;
    gp_error_clear(&err);
    assert_int_equal(create(c, 1, &open.list.items[0], &old, &err), -GP_ELOST);
    assert_int_equal(c->sends[0], 1);
    gp_error_clear(&err);
    assert_int_equal(create(c, 1, &open.list.items[1], &young, &err), 0);
    assert_int_equal(c->sends[1], 2);
    assert_int_equal(young.list.len, 1);
    intent_list_clear(&open);
}

/* A list that cannot be read proves nothing. */
static void test_unknown_stays_open(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0}, later = {0};
    struct gp_error err = {0};
    c->ops.replay_max_s = 0;
    c->acts[1] = LOSES_REPLY;
    c->list_fails = true;
    assert_int_equal(create(c, 3, NULL, &made, &err), -GP_EUNKNOWN);
    assert_non_null(strstr(err.msg, "1 of 3 nodes"));
    assert_non_null(strstr(err.msg, "node 1"));
    assert_int_equal(made.list.len, 2);
    states(c, 1, 2, 0);
    c->list_fails = false;
    replay_open(c, &later, 0, &err);
    assert_int_equal(later.list.len, 1);
    assert_int_equal(later.list.items[0].slot, 1);
    assert_true(later.list.items[0].price_usd_per_h == 12.5 && later.list.items[0].gpus == 8);
    assert_int_equal(c->sends[1], 1);
    states(c, 0, 3, 0);
}

static void test_placement(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    c->acts[0] = PLACES;
    assert_int_equal(create(c, 2, NULL, &made, &err), 0);
    assert_int_equal(made.list.len, 2);
    assert_int_equal(c->looks[0], 2);
    states(c, 0, 2, 0);
}

/* A machine that ends in an error is a refusal, and what is left of it is removed. */
static void test_failed_placement_is_capacity(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    c->acts[1] = FAILS_PLACEMENT;
    assert_int_equal(create(c, 2, NULL, &made, &err), -GP_ECAPACITY);
    assert_int_equal(made.list.len, 1);
    assert_int_equal(c->destroyed, 1);
    states(c, 0, 1, 1);
    known(c, 1);
}

static void test_failed_placement_that_stays_is_billed(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    c->acts[0] = FAILS_PLACEMENT;
    c->destroy_fails = true;
    assert_int_equal(create(c, 1, NULL, &made, &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "vm-0-0"));
    states(c, 1, 0, 0);
    known(c, 1);
}

/* Cancelled while the cloud places: the operation is in the journal, and a later run reads it. */
static void test_cut_while_placing(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0}, later = {0};
    struct gp_error err = {0};
    c->acts[0] = PLACES;
    c->cancel_at_poll = true;
    assert_int_equal(create(c, 1, NULL, &made, &err), -GP_EUNKNOWN);
    states(c, 1, 0, 0);
    c->cancel_at_poll = false;
    gp_cancel_clear(&c->cancel);
    assert_int_equal(gp_cancel_init(&c->cancel, NULL), 0);
    replay_open(c, &later, 0, &err);
    assert_int_equal(later.list.len, 1);
    assert_int_equal(c->sends[0], 1); /* not asked for twice */
    states(c, 0, 1, 0);
}

static void test_never_placed_is_unknown(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    c->acts[0] = NEVER_PLACES;
    c->ops.placement_ms = 20;
    c->list_fails = true;
    assert_int_equal(create(c, 1, NULL, &made, &err), -GP_EUNKNOWN);
    states(c, 1, 0, 0);
}

/* A list without it proves nothing while the cloud may still place it: the next run polls the operation. */
static void test_placed_after_the_run_gave_up(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0}, later = {0};
    struct gp_error err = {0};
    c->acts[0] = NEVER_PLACES;
    c->ops.placement_ms = 20;
    c->ops.replay_max_s = 0;
    assert_int_equal(create(c, 2, NULL, &made, &err), -GP_EUNKNOWN);
    assert_int_equal(made.list.len, 1);
    states(c, 1, 1, 0);
    c->acts[0] = PLACES;
    c->ops.placement_ms = 2000;
    replay_open(c, &later, 0, &err);
    assert_int_equal(later.list.len, 1);
    assert_int_equal(c->sends[0], 1);
    states(c, 0, 2, 0);
}

/* An intent from the future: a cloud without tokens would make a second machine of a repeated request. */
static void test_clock_set_back(void **state) {
    struct cloud *c = *state;
    struct gp_error err = {0};
    GP_AUTO_RESOURCES struct resource_list first = {0}, later = {0};
    struct intent_list open = {0};
    c->acts[0] = LOSES_REQUEST;
    c->ops.replay_max_s = 0;
    c->list_fails = true;
    assert_int_equal(create(c, 1, NULL, &first, &err), -GP_EUNKNOWN);
    c->list_fails = false;
    assert_int_equal(journal_intents(c->journal, UID, 1u << INTENT_OPEN, &open, NULL), 0);
    assert_int_equal(open.list.len, 1);
    open.list.items[0].created_s += 30;
    gp_error_clear(&err);
    int64_t began = clock_ms();
    assert_int_equal(create(c, 1, &open.list.items[0], &later, &err), -GP_ELOST);
    assert_true(clock_ms() - began < 20000); /* it does not wait until the clock has caught up */
    assert_int_equal(c->sends[0], 1);
    intent_list_clear(&open);
    states(c, 0, 0, 1);
}

/* Killed between the requests: each slot is settled on its own, nothing is made twice. */
static void test_cut_in_the_middle(void **state) {
    struct cloud *c = *state;
    struct gp_error err = {0};
    GP_AUTO_RESOURCES struct resource_list first = {0}, later = {0};
    c->acts[0] = LOSES_REPLY;
    c->acts[1] = LOSES_REQUEST;
    c->list_fails = true;
    c->ops.replay_max_s = 0; /* this run does not repeat them */
    assert_int_equal(create(c, 2, NULL, &first, &err), -GP_EUNKNOWN);
    states(c, 2, 0, 0);
    c->list_fails = false;
    c->ops.replay_max_s = 3600;
    c->acts[1] = MAKES;
    struct intent_list open = {0};
    assert_int_equal(journal_intents(c->journal, UID, 1u << INTENT_OPEN, &open, NULL), 0);
    for (size_t i = 0; i < open.list.len; i++) {
        gp_error_clear(&err);
        assert_int_equal(create(c, 1, &open.list.items[i], &later, &err), 0);
    }
    intent_list_clear(&open);
    assert_int_equal(later.list.len, 2);
    assert_int_equal(c->there.list.len, 2);
    states(c, 0, 2, 0);
}

/* Launched, but the disk is full: the id is in the error and handed over. */
static void test_not_written_down_is_billed(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(c->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "CREATE TRIGGER full BEFORE INSERT ON resources BEGIN SELECT RAISE(ABORT,'full'); "
                                  "END",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(create(c, 1, NULL, &made, &err), -GP_EBILLED);
    assert_int_equal(made.list.len, 1);
    assert_non_null(strstr(err.msg, "vm-0-0"));
    states(c, 1, 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_all_made),
        T(test_no_room_in_the_middle),
        T(test_one_by_one),
        T(test_lost_reply_is_found_by_tags),
        T(test_lost_reply_is_asked_again_by_token),
        T(test_lost_request_made_nothing),
        T(test_lag_begins_at_the_end_of_a_request),
        T(test_lost_request_is_repeated_once),
        T(test_cut_request_is_repeated_while_young),
        T(test_unknown_stays_open),
        T(test_placement),
        T(test_failed_placement_is_capacity),
        T(test_failed_placement_that_stays_is_billed),
        T(test_cut_while_placing),
        T(test_never_placed_is_unknown),
        T(test_placed_after_the_run_gave_up),
        T(test_clock_set_back),
        T(test_cut_in_the_middle),
        T(test_not_written_down_is_billed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
