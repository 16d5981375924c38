/* SPDX-License-Identifier: Apache-2.0 */
/* Gangs at clouds with one machine per request: what is on disk at each moment, and what becomes of
 * refusals, lost replies, failed placements and cut runs. The cloud is a list in memory whose behaviour is
 * set per slot. */
#include "base/gp_base.h"

#include "providers/common/slot_create.h"

#include "base/clock.h"
#include "base/fs.h"
#include "folder.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define UID "0123456789abcdef"
#define MAX 64

enum act {
    MAKES,
    NO_ROOM,         /* refused */
    LOSES_REPLY,     /* made, the reply is lost once */
    LOSES_REQUEST,   /* not made, no reply */
    LOSES_FIRST,     /* the same for the first request only */
    PLACES,          /* accepted, placed at the second look */
    FAILS_PLACEMENT, /* accepted, the machine ends in an error */
    NEVER_PLACES
};
struct cloud {
    struct slot_ops ops;
    struct journal *journal;
    struct gp_cancel cancel;
    enum act acts[MAX];
    struct resource_list there;
    char *tokens[4 * MAX]; /* of each machine, by place in `there` */
    int sends[MAX], looks[MAX], lists, destroyed;
    int hidden_lists; /* so many lists show nothing yet */
    int send_ms;      /* how long a request takes */
    bool destroy_fails, list_fails, cancel_at_poll;
    char dir[128], path[160];
};

static int slot_of(const struct intent *in) { return in->slot_first; }

static int body(void *ctx, const struct create_req *req, int slot, const char *token, struct str *out,
                struct gp_error *err) {
    (void)ctx;
    (void)err;
    str_addf(out, "{\"name\":\"%s-%d\",\"token\":\"%s\"}", req->stack->name, slot, token);
    return 0;
}

static void state_of(struct cloud *c, const struct intent *in, enum intent_state want) {
    struct intent_list all = {0};
    bool found = false;
    assert_int_equal(journal_intents(c->journal, in->uid, 15u, &all, NULL), 0);
    for (size_t i = 0; i < all.list.len; i++) {
        if (all.list.items[i].id != in->id) continue;
        found = true;
        assert_int_equal(all.list.items[i].state, want);
        assert_string_equal(all.list.items[i].body, in->body);
        assert_string_equal(all.list.items[i].operation, in->operation);
    }
    assert_true(found);
    intent_list_clear(&all);
}

static void machine(struct cloud *c, const struct intent *in, struct resource *ret) {
    struct resource r;
    for (size_t i = 0; i < c->there.list.len; i++)
        if (c->ops.replay_max_s > 0 && strcmp(c->tokens[i], in->token) == 0) { /* the token was answered before */
            resource_copy(ret, &c->there.list.items[i]);
            return;
        }
    resource_init(&r, RES_INSTANCE, "cloud");
    GP_AUTO_FREE char *id = xasprintf("vm-%d-%zu", slot_of(in), c->there.list.len);
    resource_set(&r.id, id);
    resource_set(&r.uid, in->uid);
    resource_set(&r.region, in->region);
    r.slot = slot_of(in);
    r.attempt = in->attempt;
    r.billed = true;
    c->tokens[c->there.list.len] = xstrdup(in->token);
    vec_push(&c->there.list, r);
    resource_copy(ret, &r);
}

static void known(struct cloud *c, size_t want);

static void send_all(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
    struct cloud *c = ctx;
    if (c->ops.one_by_one) known(c, c->there.list.len + n - 1); /* every id that the cloud returned is on disk */
    if (c->send_ms > 0) assert_int_equal(gp_sleep(c->send_ms, NULL, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        int s = slot_of(in[i]);
        state_of(c, in[i], INTENT_OPEN); /* on disk before anything is sent */
        c->sends[s]++;
        struct resource lost;
        resource_init(&lost, RES_INSTANCE, "cloud");
        switch (c->acts[s]) {
        case LOSES_FIRST:
            if (c->sends[s] == 1) {
                gp_fail(&ret[i].err, GP_ELOST, "cloud: connection reset");
                break;
            }
            machine(c, in[i], &ret[i].made);
            ret[i].state = SLOT_MADE;
            break;
        case MAKES:
            machine(c, in[i], &ret[i].made);
            ret[i].state = SLOT_MADE;
            break;
        case NO_ROOM:
            ret[i].state = SLOT_REFUSED;
            gp_fail(&ret[i].err, GP_ECAPACITY, "cloud: no room for slot %d", s);
            ret[i].err.scope = GP_SCOPE_ZONE;
            break;
        case LOSES_REPLY:
            machine(c, in[i], &lost);
            if (c->sends[s] > 1) { /* only the first reply is lost */
                ret[i].state = SLOT_MADE;
                resource_copy(&ret[i].made, &lost);
                break;
            }
            gp_fail(&ret[i].err, GP_ELOST, "cloud: connection reset");
            break;
        case LOSES_REQUEST: gp_fail(&ret[i].err, GP_ELOST, "cloud: connection reset"); break;
        case PLACES:
        case FAILS_PLACEMENT:
        case NEVER_PLACES:
            ret[i].state = SLOT_ACCEPTED;
            ret[i].operation = xasprintf("https://cloud.test/operations/%d", s);
            if (c->acts[s] == FAILS_PLACEMENT) machine(c, in[i], &ret[i].made);
            break;
        }
        resource_clear(&lost);
    }
}

static void poll_all(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
    struct cloud *c = ctx;
    for (size_t i = 0; i < n; i++) {
        int s = slot_of(in[i]);
        assert_string_equal(in[i]->operation, ret[i].operation);
        state_of(c, in[i], INTENT_OPEN); /* and its operation is on disk */
        if (c->acts[s] == NEVER_PLACES || ++c->looks[s] < 2) continue;
        if (c->acts[s] == FAILS_PLACEMENT) {
            ret[i].state = SLOT_REFUSED;
            gp_fail(&ret[i].err, GP_ECAPACITY, "cloud: No valid host was found");
        } else {
            machine(c, in[i], &ret[i].made);
            ret[i].state = SLOT_MADE;
        }
    }
    if (c->cancel_at_poll) gp_cancel_set(&c->cancel);
}

static int list_all(void *ctx, const char *region, const char *uid, struct resource_list *ret, struct gp_error *err) {
    struct cloud *c = ctx;
    assert_string_equal(region, "north");
    assert_string_equal(uid, UID);
    if (c->list_fails) return gp_fail(err, GP_EENDPOINT, "cloud: no list");
    if (c->lists++ < c->hidden_lists) return 0;
    for (size_t i = c->there.list.len; i-- > 0;) { /* in no order */
        struct resource r = {0};
        resource_copy(&r, &c->there.list.items[i]);
        vec_push(&ret->list, r);
    }
    return 0;
}

static int destroy(void *ctx, const struct resource_list *what, struct gp_error *err) {
    struct cloud *c = ctx;
    if (c->destroy_fails) return gp_fail(err, GP_ETHROTTLED, "cloud: slow down");
    c->destroyed += (int)what->list.len;
    return 0;
}

static int setup(void **state) {
    struct cloud *c = xcalloc(1, sizeof *c);
    if (make_folder(c->dir, sizeof c->dir, "slots") == NULL) return -1;
    snprintf(c->path, sizeof c->path, "%s/journal.db", c->dir);
    c->ops = (struct slot_ops){.provider = "cloud",
                               .settle_ms = 500,
                               .poll_ms = 1,
                               .placement_ms = 2000,
                               .replay_max_s = 3600,
                               .body = body,
                               .send = send_all,
                               .poll = poll_all,
                               .list = list_all,
                               .destroy = destroy};
    *state = c;
    if (gp_cancel_init(&c->cancel, NULL) != 0) return -1;
    return journal_open(c->path, &c->journal, NULL, NULL);
}

static int teardown(void **state) {
    struct cloud *c = *state;
    for (size_t i = 0; i < c->there.list.len; i++) free(c->tokens[i]);
    resource_list_clear(&c->there);
    journal_close(c->journal);
    gp_cancel_clear(&c->cancel);
    int r = fs_remove_tree(c->dir, NULL);
    free(c);
    return r;
}

static int create(struct cloud *c, int slots, const struct intent *replay, struct resource_list *ret,
                  struct gp_error *err) {
    struct stack stack = {.uid = (char[]){UID}, .name = (char[]){"llm"}, .expires_s = clock_wall_s() + 3600};
    struct spec spec = {.hash = "h1"};
    struct offer offer = {.provider = (char[]){"cloud"},
                          .region = (char[]){"north"},
                          .zone = (char[]){"north-1"},
                          .instance_type = (char[]){"gpu_8x"},
                          .image = (char[]){""},
                          .price_usd_per_h = replay ? -1 : 12.5,
                          .gpus = replay ? -1 : 8};
    struct create_req req = {.stack = &stack,
                             .spec = &spec,
                             .offer = &offer,
                             .slot_first = replay ? replay->slot_first : 0,
                             .slot_count = slots,
                             .attempt = 1,
                             .replay = replay};
    struct slot_create s = {.ops = &c->ops, .ctx = c, .account = "a1", .journal = c->journal, .cancel = &c->cancel};
    return slot_create(&s, &req, ret, err);
}

static void states(struct cloud *c, int open, int done, int failed) {
    int n[4] = {0};
    struct intent_list all = {0};
    assert_int_equal(journal_intents(c->journal, UID, 15u, &all, NULL), 0);
    for (size_t i = 0; i < all.list.len; i++) n[all.list.items[i].state]++;
    intent_list_clear(&all);
    assert_int_equal(n[INTENT_OPEN], open);
    assert_int_equal(n[INTENT_DONE], done);
    assert_int_equal(n[INTENT_FAILED], failed);
}

static void known(struct cloud *c, size_t want) {
    GP_AUTO_RESOURCES struct resource_list l = {0};
    assert_int_equal(journal_resources(c->journal, UID, &l, NULL), 0);
    size_t live = 0;
    for (size_t i = 0; i < l.list.len; i++) live += l.list.items[i].state != RES_GONE;
    assert_int_equal(live, want);
}

/* The one open intent of the journal, as the engine hands it back. */
static void replay_open(struct cloud *c, struct resource_list *ret, int want, struct gp_error *err) {
    struct intent_list open = {0};
    assert_int_equal(journal_intents(c->journal, UID, 1u << INTENT_OPEN, &open, NULL), 0);
    assert_int_equal(open.list.len, 1);
    gp_error_clear(err);
    assert_int_equal(create(c, 1, &open.list.items[0], ret, err), want);
    intent_list_clear(&open);
}

static void test_all_made(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    assert_int_equal(create(c, MAX, NULL, &made, &err), 0);
    assert_int_equal(made.list.len, MAX);
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
    assert_int_equal(create(c, 2, NULL, &first, &err), -GP_EUNKNOWN);
    states(c, 2, 0, 0);
    c->list_fails = false;
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

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
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
