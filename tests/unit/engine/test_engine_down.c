/* SPDX-License-Identifier: Apache-2.0 */
/* down and gc on bad days: no credentials from the start, a list that fails in the middle, late
 * launches, leftovers of an earlier stack of the same name, tombstones. */
#include "base/gp_base.h"

#include "engine/stack/open_known.h"
#include "engine/stack/teardown.h"
#include "engine_cloud.h"

#include <sqlite3.h>

static struct intent_list stones_of(struct fixture *f) {
    struct intent_list l = {0};
    struct gp_error err = {0};
    assert_int_equal(journal_intents(f->e->journal, NULL, 1u << INTENT_TOMBSTONE, &l, &err), 0);
    return l;
}

static size_t stones(struct fixture *f) {
    struct intent_list l = stones_of(f);
    size_t n = l.list.len;
    intent_list_clear(&l);
    return n;
}

/* Returns how many it ended. */
static size_t gc_ok(struct fixture *f, bool dry_run) {
    struct gp_error err = {0};
    struct gc_result res = {0};
    if (engine_gc(f->e, NULL, dry_run, &res, &err) != 0) fail_msg("%s", err.msg);
    size_t n = res.ended.list.len;
    gc_result_clear(&res);
    return n;
}

/* The provider does not even open: the ids come from the journal, and the exit code says billed. */
static void test_no_credentials_at_all(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.open_fails = true;
    struct down_result res = {0};
    assert_int_equal(engine_down(f->e, &(struct down_req){.name = "t"}, &res, &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "i-0"));
    assert_non_null(strstr(err.msg, "i-1"));
    assert_int_equal(res.left.list.len, 3); /* the claim too */
    down_result_clear(&res);
}

/* Machines of the same stack at two clouds. */
static void launch_at_both(struct fixture *f) {
    struct gp_error err = {0};
    load(f, "name: t\nnodes: 2\noffers: [{provider: aws}, {provider: local}]\n");
    assert_int_equal(launch(f, &err), 0);
    resource_set(&add(RES_INSTANCE, "node-2", &f->run->stack, 2)->provider, "local");
    const struct resource *r = &cloud.things.list.items[cloud.things.list.len - 1];
    assert_int_equal(journal_resource_put(f->e->journal, r, &err), 0);
}

static bool is_gone(const char *id) {
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (strcmp(cloud.things.list.items[i].id, id) == 0) return cloud.things.list.items[i].state == RES_GONE;
    return false;
}

/* What was printed of each node: asked to end, then gone, and gone only when it is. */
static void on_node_event(void *ctx, const struct event *e) {
    struct str *seen = ctx;
    if (e->node < 0 || e->node > 1 || e->phase < NODE_ENDING) return;
    char id[8];
    snprintf(id, sizeof id, "i-%d", e->node);
    if (e->phase == NODE_GONE) assert_true(is_gone(id));
    str_addf(seen, "%s %s,", id, e->phase == NODE_GONE ? "gone" : "asked");
}

static void test_gone_is_printed_when_it_is(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    GP_AUTO_STR struct str seen = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.gone_after = 3;
    f->e->sink = (struct event_sink){on_node_event, &seen};
    down_ok(f);
    f->e->sink = (struct event_sink){0};
    assert_string_equal(seen.s, "i-0 asked,i-1 asked,i-0 gone,i-1 gone,");
}

static void down_fails(struct fixture *f, enum gp_code code, const char *says, const char *id) {
    struct gp_error err = {0};
    struct down_result res = {0};
    assert_int_equal(engine_down(f->e, &(struct down_req){.spec = f->spec}, &res, &err), -(int)code);
    if (strstr(err.msg, says) == NULL || strstr(err.msg, id) == NULL) fail_msg("%s", err.msg);
    down_result_clear(&res);
}

/* Cut while it made its first thing at the second cloud: only the open intent names that cloud. */
static void test_an_open_intent_names_a_cloud(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct stack s = {.owner = "me",
                      .name = "t",
                      .uid = "0123456789abcdef",
                      .provider = "local",
                      .region = "here",
                      .spec_hash = "",
                      .expires_s = clock_wall_s() + 3600};
    struct intent in = {.uid = s.uid,
                        .provider = "aws",
                        .region = "r1",
                        .kind = RES_GROUP,
                        .slot_first = -1,
                        .created_s = clock_wall_s()};
    struct down_result res = {0};
    assert_int_equal(journal_stack_put(f->e->journal, &s, NULL, &err), 0);
    assert_int_equal(journal_intent(f->e->journal, &in, &err), 0);
    add(RES_GROUP, "sg-late", &s, -1);
    if (engine_down(f->e, &(struct down_req){.name = "t"}, &res, &err) != 0) fail_msg("%s", err.msg);
    assert_true(is_gone("sg-late"));
    down_result_clear(&res);
}

/* One of two clouds does not open: all of the other one is ended, what is known of the first is kept in the
 * journal, and the next down with credentials ends it. */
static void test_one_of_two_has_no_credentials(void **state) {
    struct fixture *f = *state;
    launch_at_both(f);
    cloud.open_fails = true;
    down_fails(f, GP_EBILLED, "not looked at: aws", "i-1");
    assert_true(is_gone("node-2"));
    assert_int_equal(running(), 2);
    cloud.open_fails = false;
    down_ok(f);
}

/* Without a record of anything there it is said all the same: nobody has looked. */
static void test_one_of_two_cannot_be_looked_at(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    load(f, "name: t\nnodes: 2\noffers: [{provider: local}, {provider: aws}]\n");
    resource_set(&add_of(RES_INSTANCE, "node-0", 0, "me", "t", "aaaaaaaaaaaaaaaa", 0)->provider, "local");
    cloud.open_fails = true;
    down_fails(f, GP_EBILLED, "not looked at: aws", "no credentials");
    assert_true(is_gone("node-0"));
    (void)err;
}

/* One that opens and then does not answer is the same. */
static void test_one_of_two_does_not_answer(void **state) {
    struct fixture *f = *state;
    launch_at_both(f);
    cloud.other_list_fails = true;
    down_fails(f, GP_EENDPOINT, "not looked at: local", "node-2");
    assert_true(is_gone("i-0"));
    assert_true(is_gone("i-1"));
    cloud.other_list_fails = false;
    down_ok(f);
}

/* gc, which knows a stack's uid from one cloud, calls nothing gone that another one holds. */
static void test_gc_asks_the_other_cloud_too(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    launch_at_both(f);
    deadline_is(f, clock_wall_s() - 5);
    cloud.other_open_fails = true;
    struct gc_result res = {0};
    assert_int_not_equal(engine_gc(f->e, NULL, false, &res, &err), 0);
    gc_result_clear(&res);
    assert_int_equal(running(), 1);
    gp_error_clear(&err);
    struct resource_list known = {0};
    assert_int_equal(journal_resources(f->e->journal, f->run->stack.uid, &known, &err), 0);
    bool kept = false;
    for (size_t i = 0; i < known.list.len; i++)
        kept = kept || (strcmp(known.list.items[i].id, "node-2") == 0 && known.list.items[i].state != RES_GONE);
    resource_list_clear(&known);
    assert_true(kept);
    cloud.other_open_fails = false;
    down_ok(f);
}

/* This machine's clock is five hours ahead: what has hours left in the cloud's clock is not expired. */
static void test_gc_by_the_clouds_clock(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    deadline_is(f, clock_wall_s() - 3600); /* as the wrong clock sees it */
    cloud.skew_s = -5 * 3600;
    gc_ok(f, false);
    assert_int_equal(running(), 2);
    cloud.skew_s = 0;
    gc_ok(f, false);
    assert_int_equal(running(), 0);
}

static struct resource *claim(void) {
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (cloud.things.list.items[i].claim) return &cloud.things.list.items[i];
    fail_msg("there is no claim");
    abort();
}

/* One region does not answer: what the others hold is ended, by down and by gc, and it is said. */
static void test_one_region_is_not_seen(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    resource_set(&claim()->regions, "r1 r9"); /* the stack may have something there */
    cloud.list_is_partial = true;
    down_fails(f, GP_EBILLED, "not looked at: aws r9", "r9 is not for you");
    assert_int_equal(running(), 0);
    assert_int_equal(claim()->state, RES_RUNNING); /* it goes last, and names the regions */
    cloud.list_is_partial = false;
    down_ok(f);
}

/* A machine there that cannot be terminated: the others are, and the cause is reported after a few rounds. */
static void test_a_refusal_beside_a_region_that_is_not_seen(void **state) {
    launch_at_both(*state);
    resource_set(&claim()->regions, "r1 r9");
    cloud.list_is_partial = true;
    cloud.gone_after = 3;
    cloud.keeps = "i-1";
    down_fails(*state, GP_EBILLED, "i-1 is protected against termination", "i-1");
    assert_true(is_gone("i-0") && is_gone("node-2"));
    assert_in_range(cloud.refusals, 5, 20);
}

/* The same where nothing is known of the stack's regions: one that was denied may hold it. */
static void test_a_claim_that_names_no_regions(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    resource_set(&claim()->regions, "");
    cloud.list_is_partial = true;
    down_fails(f, GP_EBILLED, "not looked at: aws r9", "r9 is not for you");
    assert_int_equal(running(), 0);
}

/* A region that is denied and in which the stack, by its claim, never was is no news. */
static void test_a_denied_region_that_does_not_matter(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.list_is_partial = true;
    struct down_result res = {0};
    assert_int_equal(engine_down(f->e, &(struct down_req){.name = "t"}, &res, &err), 0);
    assert_true(coverage_whole(&res.looked));
    assert_non_null(coverage_find(&res.looked, "aws", "r1"));
    assert_null(coverage_find(&res.looked, "aws", "r9"));
    down_result_clear(&res);
}

static void test_gc_with_a_region_that_is_not_seen(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    add_of(RES_INSTANCE, "i-old", 0, "me", "old", "aaaaaaaaaaaaaaaa", clock_wall_s() - 5);
    cloud.list_is_partial = true;
    struct gc_result res = {0};
    assert_int_not_equal(engine_gc(f->e, NULL, false, &res, &err), 0);
    assert_non_null(strstr(err.msg, "r9"));
    gc_result_clear(&res);
    assert_int_equal(running(), 0);
}

/* Of a stack that nothing is known of: there is nothing to wait for but the list. */
static int lists_of_a_teardown(struct fixture *f, int64_t blind_ms, enum gp_code code) {
    struct gp_error err = {0};
    struct down_result res = {0};
    struct run *run = NULL;
    assert_int_equal(run_open_ending(f->e, f->spec, "t", &run, &err), 0);
    run->blind_ms = blind_ms;
    cloud.list_fails = true;
    cloud.list_code = code;
    cloud.lists = 0;
    assert_int_equal(teardown(run, &res, &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "not looked at: aws"));
    down_result_clear(&res);
    run_close(run);
    return cloud.lists;
}

/* A place that stays unreadable is listed for a limited number of rounds, and for a limited time. */
static void test_a_place_that_does_not_answer(void **state) {
    struct fixture *f = *state;
    int two_rounds = lists_of_a_teardown(f, 0, GP_EENDPOINT);
    assert_true(two_rounds > 0);
    assert_int_equal(lists_of_a_teardown(f, GP_NEVER, GP_EENDPOINT) * 2, two_rounds * 5);
    assert_int_equal(lists_of_a_teardown(f, GP_NEVER, GP_EAUTH), two_rounds); /* refused: it will not heal */
}

/* A launch of unknown outcome and no way to look: nothing has an id, and still it may be billed. */
static void test_blind_with_an_open_launch(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    cloud.lose_reply_at = 0;
    cloud.never_made = true;
    for (int i = 1; i < 5; i++) cloud.script[i] = (struct refusal){GP_EUNKNOWN, GP_SCOPE_NONE, "lost"};
    (void)launch(f, &err);
    struct intent in = {.uid = xstrdup(f->run->stack.uid),
                        .provider = xstrdup("aws"),
                        .kind = RES_INSTANCE,
                        .slot_count = 2,
                        .attempt = 9,
                        .created_s = clock_wall_s()};
    gp_error_clear(&err);
    assert_int_equal(journal_intent(f->e->journal, &in, &err), 0);
    intent_clear(&in);
    cloud.open_fails = true;
    down_fails(f, GP_EBILLED, "launch of nodes 0..1 at aws", "no credentials");
}

/* A journal that takes nothing any more (a full disk) keeps no machine alive. */
static void test_a_journal_that_cannot_be_written(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    GP_AUTO_FREE char *db = fs_join(f->dir, "journal.db");
    sqlite3 *j = NULL;
    assert_int_equal(sqlite3_open(db, &j), SQLITE_OK);
    static const char *const tables[] = {"stacks", "intents", "resources", "nodes"};
    static const char *const acts[] = {"INSERT", "UPDATE", "DELETE"};
    for (size_t t = 0; t < 4; t++)
        for (size_t a = 0; a < 3; a++) {
            GP_AUTO_FREE char *sql = xasprintf("CREATE TRIGGER no_%s_%s BEFORE %s ON %s BEGIN SELECT "
                                               "RAISE(ABORT, 'no room'); END",
                                               tables[t], acts[a], acts[a], tables[t]);
            assert_int_equal(sqlite3_exec(j, sql, NULL, NULL, NULL), SQLITE_OK);
        }
    GP_AUTO_STR struct str seen = {0};
    f->e->sink = (struct event_sink){on_node_event, &seen};
    down_fails(f, GP_EIO, "gone", "i-0");
    f->e->sink = (struct event_sink){0};
    assert_string_equal(seen.s, "i-0 asked,i-1 asked,i-0 gone,i-1 gone,");
    assert_int_equal(alive(), 0);
    for (size_t t = 0; t < 4; t++)
        for (size_t a = 0; a < 3; a++) {
            GP_AUTO_FREE char *sql = xasprintf("DROP TRIGGER no_%s_%s", tables[t], acts[a]);
            assert_int_equal(sqlite3_exec(j, sql, NULL, NULL, NULL), SQLITE_OK);
        }
    sqlite3_close(j);
    down_ok(f);
    struct stack_list all = {0};
    assert_int_equal(journal_stacks(f->e->journal, &all, &err), 0);
    assert_int_equal(all.list.len, 0);
}

/* A record that was missing for a while is of no account once the journal could forget the stack: another down, by the
 * name alone, would search every cloud for it. */
static void test_a_journal_that_heals(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    GP_AUTO_FREE char *db = fs_join(f->dir, "journal.db");
    sqlite3 *j = NULL;
    assert_int_equal(sqlite3_open(db, &j), SQLITE_OK);
    const char *sql = "CREATE TRIGGER no_room BEFORE UPDATE ON resources BEGIN SELECT RAISE(ABORT, 'no room'); END";
    assert_int_equal(sqlite3_exec(j, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(j);
    down_ok(f);
    struct stack_list all = {0};
    assert_int_equal(journal_stacks(f->e->journal, &all, &err), 0);
    assert_int_equal(all.list.len, 0);
}

static void test_list_fails_in_the_middle(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.gone_after = 100;
    cloud.list_fails_at = cloud.lists + 3;
    struct down_result res = {0};
    assert_int_equal(engine_down(f->e, &(struct down_req){.name = "t"}, &res, &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "i-0"));
    down_result_clear(&res);
}

/* One read without a machine does not make it gone in the journal. */
static void test_gone_needs_two_reads(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    cloud.hide_instances_at = cloud.lists + 2; /* the first read of the teardown */
    cloud.list_fails_at = cloud.lists + 3;
    struct down_result res = {0};
    assert_int_equal(engine_down(f->e, &(struct down_req){.name = "t"}, &res, &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "i-0"));
    down_result_clear(&res);
}

static void test_earlier_stack_of_the_name(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    add_of(RES_INSTANCE, "i-late", 0, "me", "t", "aaaaaaaaaaaaaaaa", 0);
    down_ok(f);
}

/* A launch of an ended stack shows up after down: gc ends it long before its deadline. */
static void test_gc_ends_what_a_tombstone_names(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    GP_AUTO_FREE char *uid = xstrdup(f->run->stack.uid);
    int64_t ends_s = clock_wall_s() + 3600;
    struct intent in = {.uid = xstrdup(uid),
                        .provider = xstrdup("aws"),
                        .kind = RES_INSTANCE,
                        .slot_first = 0,
                        .slot_count = 2,
                        .attempt = 2,
                        .body = xstrdup("tag=00112233445566778899aabbccddeeff"),
                        .created_s = clock_wall_s(),
                        .deadline_s = ends_s};
    assert_int_equal(journal_intent(f->e->journal, &in, &err), 0);
    intent_clear(&in);
    down_ok(f);
    assert_int_equal(stones(f), 1);
    resource_list_clear(&cloud.things);
    struct resource *late = add_of(RES_INSTANCE, "i-late", 1, "me", "t", uid, ends_s);
    late->attempt = 2;
    resource_set(&late->launch, "00112233445566778899aabbccddeeff");
    assert_int_equal(gc_ok(f, true), 1);
    assert_int_equal(running(), 1);
    assert_int_equal(gc_ok(f, false), 1);
    assert_int_equal(running(), 0);
}

static void bury(struct fixture *f, int64_t deadline_s, const char *offer) {
    struct gp_error err = {0};
    struct intent in = {.uid = xstrdup("bbbbbbbbbbbbbbbb"),
                        .provider = xstrdup("aws"),
                        .kind = RES_INSTANCE,
                        .slot_count = 2,
                        .created_s = deadline_s - 3600,
                        .deadline_s = deadline_s,
                        .state = INTENT_TOMBSTONE,
                        .offer = xstrdup(offer)};
    assert_int_equal(journal_intent(f->e->journal, &in, &err), 0);
    intent_clear(&in);
}

/* Once nothing can come of it any more the tombstone goes. A list of another account tells nothing of it. */
static void test_gc_clears_tombstones(void **state) {
    struct fixture *f = *state;
    bury(f, clock_wall_s() - 3600, "{\"account\":\"111111111111\"}");
    bury(f, clock_wall_s() + 3600, "{}");
    static const char *const accounts[] = {"222222222222", "111111111111"};
    for (size_t i = 0; i < GP_ARRAY_LEN(accounts); i++) {
        cloud.account = accounts[i];
        gc_ok(f, false);
        assert_int_equal(stones(f), i == 0 ? 2 : 1); /* the young one stays */
    }
}

/* A launch too old to repeat leaves a tombstone too; its stack lives on and is not gc's. */
static void test_gc_leaves_the_living(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct intent in = {.uid = xstrdup(f->run->stack.uid),
                        .provider = xstrdup("aws"),
                        .kind = RES_INSTANCE,
                        .slot_count = 2,
                        .attempt = 1,
                        .created_s = clock_wall_s(),
                        .deadline_s = clock_wall_s() + 3600,
                        .state = INTENT_TOMBSTONE,
                        .note = xstrdup("too old")};
    assert_int_equal(journal_intent(f->e->journal, &in, &err), 0);
    intent_clear(&in);
    assert_int_equal(gc_ok(f, false), 0);
    assert_int_equal(running(), 2);
}

/* An expired stack and a living one share a name: only the expired one goes, and it does go. */
static void test_gc_tells_uids_apart(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    add_of(RES_INSTANCE, "i-old", 0, "me", "t", "aaaaaaaaaaaaaaaa", clock_wall_s() - 5);
    assert_int_equal(gc_ok(f, false), 1);
    assert_int_equal(running(), 2);
}

/* What could not be ended is not called ended. */
static void test_gc_that_fails(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    add_of(RES_INSTANCE, "i-old", 0, "me", "old", "aaaaaaaaaaaaaaaa", clock_wall_s() - 5);
    cloud.gone_after = 100;
    cloud.list_fails_at = cloud.lists + 3;
    struct gc_result res = {0};
    assert_int_equal(engine_gc(f->e, NULL, false, &res, &err), -GP_EBILLED);
    assert_int_equal(res.ended.list.len, 0);
    assert_int_equal(res.kept.list.len, 1);
    gc_result_clear(&res);
}

static struct resource *thing(const char *id) {
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (strcmp(cloud.things.list.items[i].id, id) == 0) return &cloud.things.list.items[i];
    fail_msg("there is no %s", id);
    abort();
}

/* Somebody changed the tags of our machines: the journal knows their ids. */
static void test_changed_tags_of_our_machines(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    resource_set(&thing("i-0")->uid, "");
    resource_set(&thing("i-0")->unreadable, "its tag 'uid' is not 16 hex digits");
    thing("i-1")->slot = 7; /* to another slot: it stays the machine of its own */
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(cloud.creates, 1);
    assert_string_equal(f->run->nodes[0].res.id, "i-0");
    assert_string_equal(f->run->nodes[1].res.id, "i-1");
    down_ok(f);
    assert_int_equal(running(), 0);
}

/* Credentials of another account show an empty cloud: nothing is gone by that. */
static void test_credentials_of_another_account(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    cloud.account = "111111111111";
    assert_int_equal(launch(f, &err), 0);
    assert_int_equal(launch(f, &err), 0); /* its list tells the journal the account */
    cloud.account = "222222222222";
    cloud.list_lag = cloud.lists + 1000;
    down_fails(f, GP_EBILLED, "account 222222222222", "i-0");
    assert_int_equal(running(), 2);
    struct stack_view_list views = {0};
    assert_int_equal(engine_status(f->e, "t", NULL, true, &views, &err), -GP_EBILLED);
    assert_string_not_equal(views.list.items[0].phase, "gone");
    stack_view_list_clear(&views);
    cloud.account = "111111111111";
    cloud.list_lag = 0;
    down_ok(f);
}

/* Without the journal nobody can tell whose such a machine is: it is left alone, named, and not called gone. */
static void test_a_machine_that_nobody_can_read(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct resource *r = add_of(RES_INSTANCE, "i-odd", 0, "me", "t", "../../../victimdir", 0);
    resource_set(&r->uid, "");
    resource_set(&r->unreadable, "its tag 'uid' is not 16 hex digits");
    struct down_result res = {0};
    assert_int_equal(engine_down(f->e, &(struct down_req){.name = "t"}, &res, &err), -GP_EBILLED);
    assert_non_null(strstr(err.msg, "i-odd"));
    assert_int_equal(res.unreadable.list.len, 1);
    down_result_clear(&res);
    assert_int_equal(running(), 1);
    gp_error_clear(&err);
    struct gc_result gone = {0};
    assert_int_equal(engine_gc(f->e, NULL, false, &gone, &err), -GP_EBILLED);
    assert_int_equal(gone.unreadable.list.len, 1);
    gc_result_clear(&gone);
    assert_int_equal(running(), 1);
    resource_clear(thing("i-odd"));
    cloud.things.list.len--;
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, finish)
    const struct CMUnitTest tests[] = {
        T(test_no_credentials_at_all),
        T(test_an_open_intent_names_a_cloud),
        T(test_one_of_two_has_no_credentials),
        T(test_one_of_two_cannot_be_looked_at),
        T(test_one_of_two_does_not_answer),
        T(test_gc_asks_the_other_cloud_too),
        T(test_gc_by_the_clouds_clock),
        T(test_one_region_is_not_seen),
        T(test_a_refusal_beside_a_region_that_is_not_seen),
        T(test_a_claim_that_names_no_regions),
        T(test_a_denied_region_that_does_not_matter),
        T(test_gc_with_a_region_that_is_not_seen),
        T(test_a_place_that_does_not_answer),
        T(test_blind_with_an_open_launch),
        T(test_a_journal_that_cannot_be_written),
        T(test_a_journal_that_heals),
        T(test_list_fails_in_the_middle),
        T(test_gone_needs_two_reads),
        T(test_gone_is_printed_when_it_is),
        T(test_earlier_stack_of_the_name),
        T(test_gc_ends_what_a_tombstone_names),
        T(test_gc_clears_tombstones),
        T(test_gc_leaves_the_living),
        T(test_gc_tells_uids_apart),
        T(test_gc_that_fails),
        T(test_changed_tags_of_our_machines),
        T(test_a_machine_that_nobody_can_read),
        T(test_credentials_of_another_account),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
