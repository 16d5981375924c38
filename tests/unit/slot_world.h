/* SPDX-License-Identifier: Apache-2.0 */
/* The cloud of the tests of common/slot_create: a list in memory whose behaviour is set per slot. Functions fail the
 * test that calls them. */
#ifndef GP_TESTS_SLOT_WORLD_H
#define GP_TESTS_SLOT_WORLD_H

#include "providers/common/launch/slot_create.h"

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
    NEVER_PLACES,
    NAME_TAKEN,   /* refused: c->namesake has the name */
    TAKEN_FAILED, /* the same, and that machine has failed */
    TAKEN_ONCE    /* the same, its state is not known; the second request makes a machine */
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
    struct proof_key key;
    const struct proof_key *sent_key;
    struct resource namesake;
    char dir[128], path[160];
};

static inline int slot_of(const struct intent *in) { return in->slot_first; }

static inline int body(void *ctx, const struct create_req *req, int slot, const char *token, struct str *out,
                       struct gp_error *err) {
    (void)ctx;
    (void)err;
    str_addf(out, "{\"name\":\"%s-%d\",\"token\":\"%s\"}", req->stack->name, slot, token);
    return 0;
}

static inline void state_of(struct cloud *c, const struct intent *in, enum intent_state want) {
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

static inline void machine(struct cloud *c, const struct intent *in, struct resource *ret) {
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
    char launch[PROOF_SIZE];
    proof_of_launch(&c->key, in->uid, in->slot_first, 1, in->attempt, launch);
    resource_set(&r.launch, launch);
    r.slot = r.slot_first = slot_of(in);
    r.slot_count = 1;
    r.attempt = in->attempt;
    r.billed = true;
    c->tokens[c->there.list.len] = xstrdup(in->token);
    vec_push(&c->there.list, r);
    resource_copy(ret, &r);
}

static inline void known(struct cloud *c, size_t want);

static inline void send_all(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
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
        case TAKEN_ONCE:
            if (c->sends[s] > 1) {
                machine(c, in[i], &ret[i].made);
                ret[i].state = SLOT_MADE;
                break;
            }
            resource_copy(&ret[i].made, &c->namesake);
            gp_fail(&ret[i].err, GP_EUNKNOWN, "cloud: its state could not be read");
            ret[i].exists = true;
            break;
        case TAKEN_FAILED:
            resource_copy(&ret[i].made, &c->namesake);
            gp_fail(&ret[i].err, GP_EUSAGE, "cloud: it failed");
            ret[i].state = SLOT_REFUSED;
            ret[i].exists = true;
            break;
        case NAME_TAKEN:
            resource_copy(&ret[i].made, &c->namesake);
            ret[i].state = SLOT_MADE;
            ret[i].exists = true;
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

static inline void poll_all(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
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

static inline int list_all(void *ctx, const char *region, const char *uid, struct resource_list *ret,
                           struct gp_error *err) {
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

static inline int destroy(void *ctx, const struct resource_list *what, struct gp_error *err) {
    struct cloud *c = ctx;
    if (c->destroy_fails) return gp_fail(err, GP_ETHROTTLED, "cloud: slow down");
    c->destroyed += (int)what->list.len;
    return 0;
}

static inline int setup(void **state) {
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
    proof_key_make(&c->key, "test", "fixed", 5);
    c->sent_key = &c->key;
    resource_init(&c->namesake, RES_INSTANCE, "cloud");
    *state = c;
    if (gp_cancel_init(&c->cancel, NULL) != 0) return -1;
    return journal_open(c->path, &c->journal, NULL, NULL);
}

static inline int teardown(void **state) {
    struct cloud *c = *state;
    for (size_t i = 0; i < c->there.list.len; i++) free(c->tokens[i]);
    resource_list_clear(&c->there);
    resource_clear(&c->namesake);
    journal_close(c->journal);
    gp_cancel_clear(&c->cancel);
    int r = fs_remove_tree(c->dir, NULL);
    free(c);
    return r;
}

static inline int create(struct cloud *c, int slots, const struct intent *replay, struct resource_list *ret,
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
                             .proof = c->sent_key,
                             .replay = replay};
    struct slot_create s = {.ops = &c->ops, .ctx = c, .account = "a1", .journal = c->journal, .cancel = &c->cancel};
    return slot_create(&s, &req, ret, err);
}

static inline void states(struct cloud *c, int open, int done, int failed) {
    int n[4] = {0};
    struct intent_list all = {0};
    assert_int_equal(journal_intents(c->journal, UID, 15u, &all, NULL), 0);
    for (size_t i = 0; i < all.list.len; i++) n[all.list.items[i].state]++;
    intent_list_clear(&all);
    assert_int_equal(n[INTENT_OPEN], open);
    assert_int_equal(n[INTENT_DONE], done);
    assert_int_equal(n[INTENT_FAILED], failed);
}

static inline void known(struct cloud *c, size_t want) {
    GP_AUTO_RESOURCES struct resource_list l = {0};
    assert_int_equal(journal_resources(c->journal, UID, &l, NULL), 0);
    size_t live = 0;
    for (size_t i = 0; i < l.list.len; i++) live += l.list.items[i].state != RES_GONE;
    assert_int_equal(live, want);
}

/* The one open intent of the journal, as the engine hands it back. */
static inline void replay_open(struct cloud *c, struct resource_list *ret, int want, struct gp_error *err) {
    struct intent_list open = {0};
    assert_int_equal(journal_intents(c->journal, UID, 1u << INTENT_OPEN, &open, NULL), 0);
    assert_int_equal(open.list.len, 1);
    gp_error_clear(err);
    assert_int_equal(create(c, 1, &open.list.items[0], ret, err), want);
    intent_list_clear(&open);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
