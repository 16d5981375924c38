// SPDX-License-Identifier: Apache-2.0
/* The provider contract: one story, told to any implementation of provider_ops. GPUPROV_CONTRACT names
 * the provider, GPUPROV_CONTRACT_SPEC its spec (two nodes, offers[0] of that provider); whatever else
 * the provider needs is in its own environment. Without them there is nothing to talk to: skipped. */
#include "base/gp_base.h"

#include "provider_world.h"

#include <pthread.h>

/* --- the story --- */

static void test_open(void **state) {
    (void)state;
    need_world();
    open_provider(w.journal, &w.p);
    assert_true(w.p->owner[0] != '\0');
}

static void test_offers(void **state) {
    (void)state;
    need_world();
    OK(w.ops->offers(w.p, w.spec, 0, &w.offers, err));
    assert_true(w.offers.list.len > 0);
    const struct offer *o = &w.offers.list.items[0];
    assert_string_equal(o->provider, w.ops->name);
    assert_int_equal(o->spec_index, 0);
    assert_non_null(o->region);
    assert_non_null(o->instance_type);
}

static void test_prepare_twice(void **state) {
    (void)state;
    need_world();
    struct stack again = {0};
    new_stack(&w.stack, w.p);
    new_stack(&again, w.p);
    struct prepare_req first = {.stack = &w.stack, .spec = w.spec};
    struct prepare_req second = {.stack = &again, .spec = w.spec};
    OK(w.ops->prepare(w.p, &first, err));
    assert_non_null(w.stack.uid);
    assert_int_equal(strlen(w.stack.uid), 16);
    assert_int_equal(strspn(w.stack.uid, "0123456789abcdef"), 16);
    OK(w.ops->prepare(w.p, &second, err));
    assert_string_equal(again.uid, w.stack.uid);
    assert_int_equal(again.expires_s, w.stack.expires_s);
    stack_clear(&again);
    OK(journal_stack_put(w.journal, &w.stack, "{}", err));
}

struct rival {
    struct stack stack;
    struct gp_error err;
    int result;
};

static void *run_rival(void *arg) {
    struct rival *r = arg;
    struct journal *j = NULL;
    struct provider *p = NULL;
    bool damaged = false;
    r->result = journal_open(NULL, &j, &damaged, &r->err);
    struct provider_env env = {
        .cancel = &w.cancel, .journal = j, .state_dir = w.state_dir, .owner = getenv("GPUPROV_OWNER"), .spec = w.spec};
    if (r->result == 0) r->result = w.ops->open(&env, &p, &r->err);
    if (r->result == 0) {
        new_stack(&r->stack, p);
        free(r->stack.name);
        r->stack.name = xstrdup("contract-rivals");
        struct prepare_req req = {.stack = &r->stack, .spec = w.spec};
        r->result = w.ops->prepare(p, &req, &r->err);
    }
    w.ops->close(p);
    journal_close(j);
    return NULL;
}

static void test_rivals(void **state) {
    (void)state;
    need_world();
    if (!w.ops->unique_claim) skip();
    struct rival r[2] = {0};
    pthread_t t[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&t[i], NULL, run_rival, &r[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < 2; i++)
        if (r[i].result != 0) fail_msg("rival %d: %s", i, r[i].err.msg);
    assert_string_equal(r[0].stack.uid, r[1].stack.uid);
    for (int i = 0; i < 2; i++) stack_clear(&r[i].stack);
    destroy_all("contract-rivals");
}

static void test_create(void **state) {
    (void)state;
    need_world();
    struct intent_list intents = {0};
    struct resource_list kept = {0};
    struct create_req req = {.stack = &w.stack,
                             .spec = w.spec,
                             .offer = &w.offers.list.items[0],
                             .slot_first = 0,
                             .slot_count = 2,
                             .attempt = 1,
                             .proof = one_stack_key(),
                             .login_pubkey = w.pubkey,
                             .user_data = w.ops->user_data ? "#cloud-config\n{}\n" : "",
                             .host_key_private = "",
                             .host_key_public = ""};
    OK(w.ops->create(w.p, &req, &w.made, err));
    assert_int_equal(count_live(&w.made, node_kind()), 2);
    assert_non_null(by_slot(&w.made, 0));
    assert_non_null(by_slot(&w.made, 1));
    for (size_t i = 0; i < w.made.list.len; i++) assert_true(w.ops->own_list || w.made.list.items[i].ours);
    /* Before create returned: intent done, ids on disk. */
    OK(journal_intents(w.journal, w.stack.uid, 1U << INTENT_OPEN, &intents, err));
    assert_int_equal(intents.list.len, 0);
    OK(journal_resources(w.journal, w.stack.uid, &kept, err));
    assert_int_equal(count_live(&kept, node_kind()), 2);
    assert_string_equal(by_slot(&kept, 1)->id, by_slot(&w.made, 1)->id);
    intent_list_clear(&intents);
    resource_list_clear(&kept);
}

/* By it gc knows a machine of a launch whose outcome `down` could not learn. */
static void check_launch_is_recorded(const struct resource *r) {
    struct intent_list done = {0};
    bool sent = false;
    OK(journal_intents(w.journal, w.stack.uid, 1U << INTENT_DONE, &done, err));
    for (size_t i = 0; i < done.list.len; i++) {
        const struct intent *in = &done.list.items[i];
        bool its = in->kind == RES_INSTANCE && r->slot >= in->slot_first && r->slot < in->slot_first + in->slot_count;
        sent = sent || (its && r->launch[0] != '\0' && strstr(in->body, r->launch) != NULL);
    }
    intent_list_clear(&done);
    if (!sent) fail_msg("%s: its launch is '%s', which no request has", r->id, r->launch);
}

static void check_listed(struct provider *p) {
    GP_AUTO_RESOURCES struct resource_list l = {0};
    GP_AUTO_RESOURCES struct resource_list nodes = {0};
    GP_AUTO_STRV struct strv regions = {0};
    list_nodes(p, 2, &l);
    assert_int_equal(count_live(&l, node_kind()), 2);
    strv_add(&regions, w.stack.region);
    struct list_req poll = {.owner = p->owner, .stack = w.spec->name, .regions = &regions, .nodes_only = true};
    OK(w.ops->list(p, &poll, &nodes, err));
    assert_int_equal(count_live(&nodes, node_kind()), 2);
    for (int slot = 0; slot < 2; slot++) {
        const struct resource *r = by_slot(&l, slot);
        if (r != NULL && r->kind == RES_INSTANCE && !w.ops->own_list) check_launch_is_recorded(r);
        assert_non_null(r);
        assert_string_equal(r->id, by_slot(&w.made, slot)->id);
        assert_string_equal(r->owner, p->owner);
        assert_string_equal(r->stack, w.spec->name);
        assert_string_equal(r->uid, w.stack.uid);
        assert_string_equal(r->spec_hash, w.stack.spec_hash);
        assert_int_equal(r->attempt, 1);
        if (!w.ops->own_list) { /* what everybody in the account may write has proofs */
            assert_true(proof_launch_holds(one_stack_key(), r));
            assert_true(proof_deadline_holds(one_stack_key(), r));
        }
        assert_int_equal(r->billed, w.ops->billed);
        if (r->kind != RES_HOST) assert_int_equal(r->expires_s, w.stack.expires_s);
        assert_true(r->public_ip[0] != '\0' || r->private_ip[0] != '\0' || r->dial_socket[0] != '\0');
    }
    size_t claims = 0;
    for (size_t i = 0; i < l.list.len; i++)
        if (l.list.items[i].claim) claims++;
    if (w.ops->unique_claim) assert_int_equal(claims, 1);
}

static void test_list(void **state) {
    (void)state;
    need_world();
    check_listed(w.p);
}

/* Another machine: no journal, the same cloud. */
static void test_list_without_journal(void **state) {
    (void)state;
    need_world();
    if (w.ops->lent) skip(); /* ssh: what is taken is an entry in the journal */
    struct journal *empty = NULL;
    struct provider *p = NULL;
    bool damaged = false;
    OK(journal_open(NULL, &empty, &damaged, err));
    open_provider(empty, &p);
    check_listed(p);
    w.ops->close(p);
    journal_close(empty);
}

static void test_tag(void **state) {
    (void)state;
    need_world();
    if (w.ops->tag == NULL) skip();
    GP_AUTO_RESOURCES struct resource_list l = {0};
    OK(one_stack_prove(w.p, by_slot(&w.made, 1), err));
    list_nodes(w.p, 2, &l);
    assert_string_equal(by_slot(&l, 1)->host_keys, ONE_STACK_HOST_KEY);
    assert_string_not_equal(by_slot(&l, 0)->host_keys, ONE_STACK_HOST_KEY);
    assert_true(proof_machine_holds(one_stack_key(), by_slot(&l, 1)));
    assert_false(proof_machine_holds(one_stack_key(), by_slot(&l, 0)));
}

static void test_foreign_owner(void **state) {
    (void)state;
    need_world();
    GP_AUTO_RESOURCES struct resource_list l = {0};
    GP_AUTO_STRV struct strv regions = {0};
    strv_add(&regions, w.stack.region);
    struct list_req req = {.owner = "somebody-else", .regions = &regions};
    OK(w.ops->list(w.p, &req, &l, err));
    assert_int_equal(l.list.len, 0);
}

static void test_destroy(void **state) {
    (void)state;
    need_world();
    GP_AUTO_RESOURCES struct resource_list before = {0};
    list(w.p, &before);
    /* The first call must not take the claim from under nodes that still end. */
    destroy_all(w.spec->name);
    OK(w.ops->destroy(w.p, &before, err)); /* again, of what is gone: success */
    GP_AUTO_RESOURCES struct resource_list after = {0};
    list(w.p, &after);
    assert_int_equal(count_all_live(&after), 0);
}

static void test_prepare_after_destroy(void **state) {
    (void)state;
    need_world();
    if (!w.ops->unique_claim) skip();
    struct stack next = {0};
    new_stack(&next, w.p);
    struct prepare_req req = {.stack = &next, .spec = w.spec};
    OK(w.ops->prepare(w.p, &req, err));
    assert_string_not_equal(next.uid, w.stack.uid);
    stack_clear(&next);
    destroy_all(w.spec->name);
}

int main(int argc, char **argv) {
    /* The local provider runs this very program again, as gpuprov does with its hidden verb. */
    if (argc > 1 && strcmp(argv[1], "__holder") == 0) return local_holder_main(argc - 1, argv + 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_offers),
        cmocka_unit_test(test_prepare_twice),
        cmocka_unit_test(test_rivals),
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_list_without_journal),
        cmocka_unit_test(test_tag),
        cmocka_unit_test(test_foreign_owner),
        cmocka_unit_test(test_destroy),
        cmocka_unit_test(test_prepare_after_destroy),
    };
    return cmocka_run_group_tests_name("provider contract", tests, setup, teardown);
}
