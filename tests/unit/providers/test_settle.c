/* SPDX-License-Identifier: Apache-2.0 */
/* A launch from its intent to its outcome, against a cloud that answers by script: with idempotency tokens (AWS, GCP)
 * and without (Lambda, RunPod, OpenStack). And intents and owners. */
#include "base/gp_base.h"

#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"
#include "providers/common/ownership.h"

#include "base/clock.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define UID "0123456789abcdef"

/* What the cloud does with the n-th send, and from which read on its list shows the machines. */
struct cloud {
    enum { MADE, LOST, LOST_UNDONE, CAPACITY, THROTTLED, OTHER_RUN } script[4];
    int sends, reads, shown_from, machines;
    int copies;    /* foreign machines with all tags of slot 0 */
    bool unproven; /* the tag "launch" of all that is listed is that of another launch */
    bool proven;   /* each has its own proof */
    bool own_names;
    bool list_fails;
    struct gp_cancel *cancel_on_send;
};

static const struct proof_key *key(void) {
    static struct proof_key k;
    if (!k.known) proof_key_make(&k, "test", "fixed", 5);
    return &k;
}

static void show_one(const struct cloud *c, const struct intent *in, const char *id, int slot,
                     struct resource_list *made) {
    struct resource r;
    char proof[PROOF_SIZE];
    resource_init(&r, RES_INSTANCE, "aws");
    resource_set(&r.id, id);
    resource_set(&r.uid, in->uid);
    r.slot = slot;
    r.slot_first = in->slot_first;
    r.slot_count = in->slot_count;
    r.attempt = in->attempt;
    r.price_usd_per_h = -1;
    proof_of_launch(key(), in->uid, in->slot_first, in->slot_count, in->attempt + c->unproven, proof);
    resource_set(&r.launch, proof);
    resource_set(&r.host_keys, "SHA256:one");
    proof_of_machine(key(), in->uid, "aws", c->proven ? id : "i-another", slot, "SHA256:one", proof);
    resource_set(&r.proof, proof);
    vec_push(&made->list, r);
}

static void show(const struct cloud *c, const struct intent *in, int n, struct resource_list *made) {
    for (int i = 0; i < n; i++) {
        char id[16];
        snprintf(id, sizeof id, "i-%d", i);
        show_one(c, in, id, in->slot_first + i, made);
    }
}

static int send(void *ctx, const struct intent *in, struct resource_list *made, bool *ret_taken, struct gp_error *err) {
    struct cloud *c = ctx;
    if (c->cancel_on_send != NULL) gp_cancel_set(c->cancel_on_send);
    switch (c->script[c->sends++]) {
    case MADE: show(c, in, c->machines = in->slot_count, made); return 0;
    case LOST: c->machines = in->slot_count; return gp_fail(err, GP_EUNKNOWN, "lost");
    case LOST_UNDONE: return gp_fail(err, GP_EUNKNOWN, "lost");
    case CAPACITY: return gp_fail(err, GP_ECAPACITY, "none left");
    case THROTTLED: return gp_fail(err, GP_ETHROTTLED, "slow down");
    case OTHER_RUN:
        c->machines = in->slot_count;
        *ret_taken = true;
        return gp_fail(err, GP_EEXISTS, "another run");
    }
    return 0;
}

static int find(void *ctx, const struct intent *in, struct resource_list *made, struct gp_error *err) {
    struct cloud *c = ctx;
    if (c->list_fails) return gp_fail(err, GP_EENDPOINT, "no list");
    if (++c->reads > c->shown_from) show(c, in, c->machines, made);
    for (int i = 0; i < c->copies; i++) show_one(c, in, "i-evil", in->slot_first, made);
    return 0;
}

struct outcome {
    int rc;
    enum intent_state state;
    size_t n;
    bool other_run, ours;
    double price;
    char msg[480], detail[64];
};

static struct outcome run(struct cloud *c, bool tokens, bool replay, int64_t age_s, struct gp_cancel *cancel) {
    struct journal *j = NULL;
    struct gp_error err = {0};
    struct resource_list made = {0};
    struct stack s = {.uid = (char *)UID, .expires_s = clock_wall_s() + 3600};
    struct intent in;
    assert_int_equal(journal_open(NULL, &j, NULL, NULL), 0);
    cloud_intent_thing(&s, "aws", "r1", RES_INSTANCE, "token", "body", &in);
    in.slot_first = 0;
    in.slot_count = 2;
    in.created_s -= age_s;
    assert_int_equal(journal_intent(j, &in, NULL), 0);
    struct cloud_launch l = {.journal = j,
                             .cancel = cancel,
                             .in = &in,
                             .proof = key(),
                             .stack = "llm",
                             .price_usd_per_h = 1.5,
                             .gpus = 8,
                             .resend_s = tokens ? 3600 : 0,
                             .own_names = c->own_names,
                             .settle_ms = 30000,
                             .read_every_ms = 1,
                             .ctx = c,
                             .send = send,
                             .find = find};
    struct outcome o = {.rc = replay ? cloud_launch_replay(&l, &made, &err) : cloud_launch_run(&l, &made, &err)};
    assert_int_equal(o.rc, -(int)err.code);
    for (o.state = INTENT_OPEN; o.state <= INTENT_TOMBSTONE; o.state++) {
        struct intent_list found = {0};
        assert_int_equal(journal_intents(j, UID, 1u << o.state, &found, NULL), 0);
        size_t n = found.list.len;
        intent_list_clear(&found);
        if (n > 0) break;
    }
    o.n = made.list.len;
    str_put(o.msg, sizeof o.msg, err.msg);
    str_put(o.detail, sizeof o.detail, err.detail);
    o.ours = o.n > 0;
    for (size_t i = 0; i < o.n; i++) o.ours = o.ours && made.list.items[i].ours;
    o.other_run = o.n > 0 && made.list.items[0].other_run;
    o.price = o.n > 0 ? made.list.items[0].price_usd_per_h : -1;
    struct resource_list kept = {0};
    assert_int_equal(journal_resources(j, UID, &kept, NULL), 0);
    assert_int_equal(kept.list.len, o.n); /* on disk before the caller has them */
    resource_list_clear(&kept);
    resource_list_clear(&made);
    intent_clear(&in);
    journal_close(j);
    return o;
}

static void check(struct cloud c, bool tokens, bool replay, int64_t age_s, int rc, enum intent_state state, size_t n,
                  int sends, int line) {
    struct outcome o = run(&c, tokens, replay, age_s, NULL);
    if (o.rc != rc || o.state != state || o.n != n || c.sends != sends)
        fail_msg("line %d: rc %d, state %d, %zu machines, %d sends", line, o.rc, (int)o.state, o.n, c.sends);
    if (n > 0) assert_true(o.price == 1.5 && o.ours);
}
#define CHECK(cloud, ...) check(cloud, __VA_ARGS__, __LINE__)
#define C(...) ((struct cloud){__VA_ARGS__})

static void test_with_tokens(void **state) {
    (void)state;
    CHECK(C(.script = {MADE}), true, false, 0, 0, INTENT_DONE, 2, 1);
    CHECK(C(.script = {CAPACITY}), true, false, 0, -GP_ECAPACITY, INTENT_FAILED, 0, 1);
    CHECK(C(.script = {THROTTLED}), true, false, 0, -GP_ETHROTTLED, INTENT_FAILED, 0, 1);
    /* a lost reply: the same again, whatever a list shows */
    CHECK(C(.script = {LOST, MADE}), true, false, 0, 0, INTENT_DONE, 2, 2);
    CHECK(C(.script = {LOST, CAPACITY}), true, false, 0, -GP_ECAPACITY, INTENT_FAILED, 0, 2);
    CHECK(C(.script = {LOST_UNDONE, MADE}), true, false, 0, 0, INTENT_DONE, 2, 2);
    CHECK(C(.script = {LOST_UNDONE, CAPACITY}), true, false, 0, -GP_ECAPACITY, INTENT_FAILED, 0, 2);
    /* what was not let in shows nothing of what was sent before */
    CHECK(C(.script = {LOST_UNDONE, THROTTLED}), true, false, 0, -GP_EUNKNOWN, INTENT_OPEN, 0, 2);
    CHECK(C(.script = {LOST_UNDONE, LOST_UNDONE, LOST_UNDONE}), true, false, 0, -GP_EUNKNOWN, INTENT_OPEN, 0, 3);
    /* replay: while the token is kept by it, then by the proofs of a list */
    CHECK(C(.machines = 2), true, true, 7200, 0, INTENT_DONE, 2, 0);
    CHECK(C(.machines = 2, .unproven = true), true, true, 7200, -GP_ENOTFOUND, INTENT_FAILED, 0, 0);
    CHECK(C(.machines = 2, .copies = 1), true, true, 7200, -GP_EUNKNOWN, INTENT_OPEN, 0, 0);
    CHECK(C(.machines = 2, .copies = 1, .proven = true), true, true, 7200, 0, INTENT_DONE, 2, 0);
    CHECK(C(.script = {MADE}), true, true, 10, 0, INTENT_DONE, 2, 1);
    CHECK(C(.script = {MADE}, .machines = 1), true, true, 10, 0, INTENT_DONE, 2, 1);
    CHECK(C(.script = {MADE}), true, true, 7200, -GP_ENOTFOUND, INTENT_FAILED, 0, 0);
    CHECK(C(.list_fails = true), true, true, 7200, -GP_EUNKNOWN, INTENT_OPEN, 0, 0);
}

/* Nothing is ever sent twice. */
static void test_without_tokens(void **state) {
    (void)state;
    CHECK(C(.script = {MADE}), false, false, 0, 0, INTENT_DONE, 2, 1);
    CHECK(C(.script = {LOST}), false, false, 0, 0, INTENT_DONE, 2, 1);
    CHECK(C(.script = {LOST}, .shown_from = 2), false, false, 0, 0, INTENT_DONE, 2, 1);
    CHECK(C(.script = {LOST}, .unproven = true), false, false, 0, -GP_EUNKNOWN, INTENT_OPEN, 0, 1);
    CHECK(C(.script = {LOST}, .copies = 1), false, false, 0, -GP_EUNKNOWN, INTENT_OPEN, 0, 1);
    CHECK(C(.script = {LOST}, .list_fails = true), false, false, 0, -GP_EUNKNOWN, INTENT_OPEN, 0, 1);
    CHECK(C(.script = {LOST_UNDONE, MADE}), false, false, 0, -GP_EUNKNOWN, INTENT_OPEN, 0, 1);
    CHECK(C(.script = {MADE}), false, true, 10, -GP_EUNKNOWN, INTENT_OPEN, 0, 0); /* the list may lag */
    CHECK(C(.script = {MADE}), false, true, 60, -GP_ENOTFOUND, INTENT_FAILED, 0, 0);
    CHECK(C(.machines = 2), false, true, 60, 0, INTENT_DONE, 2, 0);
    CHECK(C(.machines = 1), false, true, 10, -GP_EUNKNOWN, INTENT_OPEN, 0, 0);
    CHECK(C(.machines = 1), false, true, 60, 0, INTENT_DONE, 1, 0); /* the engine launches what is missing */
}

static void test_other_run(void **state) {
    (void)state;
    struct cloud c = {.script = {OTHER_RUN}, .shown_from = 2, .proven = true};
    struct outcome o = run(&c, true, false, 0, NULL);
    assert_true(o.rc == 0 && o.n == 2 && o.other_run && o.ours && c.sends == 1);
    struct cloud never = {.script = {OTHER_RUN}, .shown_from = 50, .proven = true};
    o = run(&never, true, false, 0, NULL);
    assert_true(o.rc == -GP_EREACH && o.state == INTENT_FAILED && never.sends == 1);
    /* after a lost request: only names that nobody else can take are its own */
    CHECK(C(.script = {LOST, OTHER_RUN}), true, false, 0, -GP_EREACH, INTENT_FAILED, 0, 2);
    CHECK(C(.script = {LOST, OTHER_RUN}, .own_names = true), true, false, 0, 0, INTENT_DONE, 2, 2);
    CHECK(C(.script = {LOST, OTHER_RUN}, .own_names = true, .shown_from = 5), true, false, 0, 0, INTENT_DONE, 2, 2);
    CHECK(C(.script = {LOST, OTHER_RUN}, .own_names = true, .shown_from = 50), true, false, 0, -GP_EUNKNOWN,
          INTENT_OPEN, 0, 2); /* not listed: they may be its own */
    CHECK(C(.script = {LOST, OTHER_RUN}, .own_names = true, .unproven = true), true, false, 0, -GP_EREACH,
          INTENT_FAILED, 0, 2);
    CHECK(C(.script = {OTHER_RUN}, .own_names = true), true, false, 0, -GP_EREACH, INTENT_FAILED, 0, 1);
    struct cloud copied = {.script = {OTHER_RUN}}; /* the tag "launch" does not suffice */
    o = run(&copied, true, false, 0, NULL);
    assert_true(o.rc == -GP_EREACH && o.state == INTENT_FAILED && copied.sends == 1 && o.n == 0);
    assert_string_equal(o.msg, "nodes 0..1: another run launched them at aws and they have not proven themselves yet: "
                               "repeat 'gpuprov up' when that run has finished; if it was cut, run 'gpuprov down llm' "
                               "first");
}

static void test_cancelled(void **state) {
    (void)state;
    struct gp_cancel cancel;
    assert_int_equal(gp_cancel_init(&cancel, NULL), 0);
    struct cloud c = {.script = {LOST_UNDONE, MADE}, .cancel_on_send = &cancel};
    struct outcome o = run(&c, true, false, 0, &cancel);
    assert_true(o.rc == -GP_EUNKNOWN && o.state == INTENT_OPEN && c.sends == 1);
    gp_cancel_clear(&cancel);
}

static size_t intents_in(struct journal *j, enum intent_state state) {
    struct intent_list found = {0};
    assert_int_equal(journal_intents(j, NULL, 1u << state, &found, NULL), 0);
    size_t n = found.list.len;
    intent_list_clear(&found);
    return n;
}

static void test_things(void **state) {
    (void)state;
    struct journal *j = NULL;
    struct stack s = {.uid = (char *)UID}, other = {.uid = (char *)"fedcba9876543210"};
    struct resource made;
    struct gp_error why = {0}, err = {0};
    struct intent in[5];
    assert_int_equal(journal_open(NULL, &j, NULL, NULL), 0);
    resource_init(&made, RES_GROUP, "aws");
    resource_set(&made.id, "sg-1");
    resource_set(&made.uid, UID);
    resource_set(&made.region, "r1");
    for (size_t i = 0; i < 5; i++) {
        cloud_intent_thing(i == 3 ? &other : &s, "aws", "r1", RES_GROUP, i == 4 ? "another" : "name", "", &in[i]);
        assert_int_equal(journal_intent(j, &in[i], NULL), 0);
    }
    assert_int_equal(cloud_thing_created(j, &in[0], 0, &made, &why, &err), 0);
    gp_fail(&why, GP_EQUOTA, "too many");
    assert_int_equal(cloud_thing_created(j, &in[1], -GP_EQUOTA, &made, &why, &err), -GP_EQUOTA);
    assert_string_equal(err.msg, "too many");
    why.code = GP_EUNKNOWN;
    assert_int_equal(cloud_thing_created(j, &in[2], -GP_EUNKNOWN, &made, &why, &err), -GP_EUNKNOWN);
    assert_true(intents_in(j, INTENT_DONE) == 1 && intents_in(j, INTENT_FAILED) == 1 &&
                intents_in(j, INTENT_OPEN) == 3);
    assert_int_equal(cloud_thing_settle(j, &made, "name", NULL), 0); /* in[2]: it is there; in[3]: another's */
    assert_true(intents_in(j, INTENT_DONE) == 2 && intents_in(j, INTENT_FAILED) == 2 &&
                intents_in(j, INTENT_OPEN) == 1);
    for (size_t i = 0; i < 5; i++) intent_clear(&in[i]);
    resource_clear(&made);
    journal_close(j);
}

static void test_intents(void **state) {
    (void)state;
    struct stack s = {.uid = (char *)UID, .expires_s = 99};
    struct spec spec = {.hash = "h"};
    struct offer o = {.provider = (char *)"aws",
                      .region = (char *)"r",
                      .zone = (char *)"z",
                      .instance_type = (char *)"t",
                      .image = (char *)"",
                      .price_usd_per_h = 0.526,
                      .gpus = 8};
    struct create_req req = {.stack = &s, .spec = &spec, .offer = &o, .slot_first = 4, .slot_count = 2, .attempt = 3};
    GP_AUTO_FREE char *token = NULL, *same = NULL, *elsewhere = NULL, *foreign = NULL;
    struct proof_key other = {0};
    struct gp_error err = {0};
    assert_int_equal(cloud_launch_token(&req, "acct", &token, &err), -GP_EINTERNAL); /* never a token without a key */
    assert_null(token);
    req.proof = &other;
    assert_int_equal(cloud_launch_token(&req, "acct", &token, NULL), -GP_EINTERNAL);
    req.proof = key();
    assert_int_equal(cloud_launch_token(&req, "acct", &token, NULL), 0);
    assert_int_equal(cloud_launch_token(&req, "acct", &same, NULL), 0);
    assert_int_equal(cloud_launch_token(&req, "other", &elsewhere, NULL), 0);
    proof_key_make(&other, "test", "other", 5);
    req.proof = &other;
    assert_int_equal(cloud_launch_token(&req, "acct", &foreign, NULL), 0);
    assert_string_not_equal(token, foreign);
    assert_int_equal(strlen(token), 64);
    assert_string_equal(token, same);
    assert_string_not_equal(token, elsewhere);
    struct intent in;
    double price = 0;
    int gpus = 0;
    cloud_intent_nodes(&req, NULL, xstrdup(token), xstrdup("body"), &in);
    assert_true(in.slot_first == 4 && in.slot_count == 2 && in.attempt == 3 && in.deadline_s == 99);
    cloud_offer_facts(&in, &price, &gpus);
    assert_true(price == 0.526 && gpus == 8);
    resource_set(&in.offer, "no json");
    cloud_offer_facts(&in, &price, &gpus);
    assert_true(price == -1 && gpus == -1);
    intent_clear(&in);
}

static void test_owners(void **state) {
    (void)state;
    static const struct {
        const char *owner, *stack, *uid, *ask_uid;
        bool ours;
    } rows[] = {
        {"me", "llm", UID, UID, true},
        {"me", "llm", UID, NULL, true},
        {"me", "llm", "fedcba9876543210", UID, false},
        {"me", "llm", "fedcba9876543210", NULL, true},
        {"you", "llm", UID, NULL, false},
        {"me", "other", UID, NULL, false},
        {"", "llm", UID, NULL, false},
        {"me", "llm", "no uid", NULL, false},
    };
    struct stack s = {.owner = (char *)"me", .name = (char *)"llm"};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct tags t;
        struct gp_error err = {0};
        tags_init(&t);
        tags_read(&t, "owner", rows[i].owner);
        tags_read(&t, "stack", rows[i].stack);
        tags_read(&t, "uid", rows[i].uid);
        int r = cloud_check_owner(&t, "aws: the group 'x'", &s, rows[i].ask_uid, &err);
        assert_int_equal(r, rows[i].ours ? 0 : -GP_EEXISTS);
        if (r != 0) assert_true(str_starts(err.msg, "aws: the group 'x'"));
        tags_clear(&t);
    }
    struct provider p = {.owner = (char *)"me"};
    struct resource r = {.owner = (char *)"me"};
    assert_true(cloud_is_ours(&p, &r));
    r.owner = (char *)"";
    assert_true(cloud_is_ours(&p, &r));
    r.owner = (char *)"you";
    assert_false(cloud_is_ours(&p, &r));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_with_tokens), cmocka_unit_test(test_without_tokens), cmocka_unit_test(test_other_run),
        cmocka_unit_test(test_cancelled),   cmocka_unit_test(test_things),         cmocka_unit_test(test_intents),
        cmocka_unit_test(test_owners),
    };
    return cmocka_run_group_tests_name("settling launches", tests, NULL, NULL);
}
