// SPDX-License-Identifier: Apache-2.0
/* The provider contract: one story, told to any implementation of provider_ops. GPUPROV_CONTRACT names
 * the provider, GPUPROV_CONTRACT_SPEC its spec (two nodes, offers[0] of that provider); whatever else
 * the provider needs is in its own environment. Without them there is nothing to talk to: skipped. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/fs.h"
#include "providers/local/local.h"
#include "providers/provider.h"
#include "ssh/ssh.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct world {
    const struct provider_ops *ops;
    struct spec *spec;
    struct gp_cancel cancel;
    struct journal *journal;
    struct provider *p;
    struct stack stack;
    char *state_dir;
    struct offer_list offers;
    struct resource_list made;
    char *pubkey;
};
static struct world w;

#define OK(call)                                                            \
    do {                                                                    \
        struct gp_error e_ = {0};                                           \
        struct gp_error *err = &e_;                                         \
        if ((call) != 0) fail_msg("%s: %s [%s]", #call, e_.msg, e_.detail); \
    } while (0)

static void open_provider(struct journal *j, struct provider **ret) {
    struct provider_env env = {
        .cancel = &w.cancel, .journal = j, .state_dir = w.state_dir, .owner = getenv("GPUPROV_OWNER"), .spec = w.spec};
    OK(w.ops->open(&env, ret, err));
    assert_non_null((*ret)->owner);
    assert_ptr_equal((*ret)->ops, w.ops);
}

static void new_stack(struct stack *s, const struct provider *p) {
    *s = (struct stack){.owner = xstrdup(p->owner),
                        .name = xstrdup(w.spec->name),
                        .spec_hash = xstrdup(w.spec->hash),
                        .provider = xstrdup(w.ops->name),
                        .region = xstrdup(w.offers.list.len ? w.offers.list.items[0].region : ""),
                        .expires_s = clock_wall_s() + p->clock_skew_s + 3600};
}

static int setup(void **state) {
    (void)state;
    const char *name = getenv("GPUPROV_CONTRACT"), *path = getenv("GPUPROV_CONTRACT_SPEC");
    struct spec_problems problems = {0};
    struct gp_error e = {0};
    if (name == NULL || path == NULL) return 0;
    w.ops = provider_find(name);
    if (w.ops == NULL) return -1;
    if (spec_load(path, NULL, &w.spec, &problems, &e) != 0) {
        GP_AUTO_STR struct str text = {0};
        spec_problems_format(&problems, path, "", false, &text);
        print_error("%s\n%s\n", e.msg, text.s != NULL ? text.s : "");
        return -1;
    }
    OK(gp_cancel_init(&w.cancel, err));
    OK(fs_state_dir(&w.state_dir, err));
    GP_AUTO_FREE char *file = fs_join(w.state_dir, "journal.db");
    bool damaged = false;
    OK(journal_open(file, &w.journal, &damaged, err));
    GP_AUTO_SECRET struct secret private = {0};
    OK(ssh_key_make("contract", &private, &w.pubkey, err));
    return 0;
}

static void need_world(void) {
    if (w.ops == NULL) {
        print_message("GPUPROV_CONTRACT and GPUPROV_CONTRACT_SPEC are not set\n");
        skip();
    }
}

/* --- list helpers --- */

static void list(struct provider *p, struct resource_list *ret) {
    GP_AUTO_STRV struct strv regions = {0};
    strv_add(&regions, w.stack.region);
    struct list_req req = {.owner = p->owner, .stack = w.spec->name, .regions = &regions};
    OK(p->ops->list(p, &req, ret, err));
}

static size_t count_live(const struct resource_list *l, enum resource_kind kind) {
    size_t n = 0;
    for (size_t i = 0; i < l->list.len; i++)
        if (l->list.items[i].kind == kind && l->list.items[i].state != RES_GONE) n++;
    return n;
}

static size_t count_all_live(const struct resource_list *l) {
    size_t n = 0;
    for (size_t i = 0; i < l->list.len; i++)
        if (l->list.items[i].state != RES_GONE) n++;
    return n;
}

static enum resource_kind node_kind(void) { return strcmp(w.ops->name, "ssh") == 0 ? RES_HOST : RES_INSTANCE; }

static const struct resource *by_slot(const struct resource_list *l, int slot) {
    for (size_t i = 0; i < l->list.len; i++) {
        const struct resource *r = &l->list.items[i];
        if (r->kind == node_kind() && r->slot == slot && r->state != RES_GONE) return r;
    }
    return NULL;
}

/* Reads until every expected node is there, or the provider's settling time has passed. */
static void list_nodes(struct provider *p, size_t want, struct resource_list *ret) {
    int64_t deadline = clock_deadline(w.ops->settle_ms + 20000);
    for (;;) {
        list(p, ret);
        if (count_live(ret, node_kind()) >= want || clock_left_ms(deadline) == 0) return;
        resource_list_clear(ret);
        OK(gp_sleep(200, &w.cancel, err));
    }
}

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

static void destroy_all(const char *stack_name) {
    GP_AUTO_STRV struct strv regions = {0};
    strv_add(&regions, w.stack.region);
    struct list_req req = {.owner = w.p->owner, .stack = stack_name, .regions = &regions};
    int empty = 0;
    int64_t deadline = clock_deadline(120000);
    while (empty < 2) { /* one empty list proves nothing */
        GP_AUTO_RESOURCES struct resource_list l = {0};
        OK(w.ops->list(w.p, &req, &l, err));
        empty = count_all_live(&l) == 0 ? empty + 1 : 0;
        if (count_all_live(&l) > 0) OK(w.ops->destroy(w.p, &l, err));
        if (clock_left_ms(deadline) == 0) fail_msg("'%s' is not gone after two minutes", stack_name);
        OK(gp_sleep(100, &w.cancel, err));
    }
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
                             .login_pubkey = w.pubkey,
                             .user_data = w.ops->user_data ? "#cloud-config\n{}\n" : "",
                             .host_key_private = "",
                             .host_key_public = ""};
    OK(w.ops->create(w.p, &req, &w.made, err));
    assert_int_equal(count_live(&w.made, node_kind()), 2);
    assert_non_null(by_slot(&w.made, 0));
    assert_non_null(by_slot(&w.made, 1));
    /* Before create returned: intent done, ids on disk. */
    OK(journal_intents(w.journal, w.stack.uid, 1U << INTENT_OPEN, &intents, err));
    assert_int_equal(intents.list.len, 0);
    OK(journal_resources(w.journal, w.stack.uid, &kept, err));
    assert_int_equal(count_live(&kept, node_kind()), 2);
    assert_string_equal(by_slot(&kept, 1)->id, by_slot(&w.made, 1)->id);
    intent_list_clear(&intents);
    resource_list_clear(&kept);
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
        assert_non_null(r);
        assert_string_equal(r->id, by_slot(&w.made, slot)->id);
        assert_string_equal(r->owner, p->owner);
        assert_string_equal(r->stack, w.spec->name);
        assert_string_equal(r->uid, w.stack.uid);
        assert_string_equal(r->spec_hash, w.stack.spec_hash);
        assert_int_equal(r->attempt, 1);
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
    if (w.ops->ends == ENDS_NEVER) skip(); /* ssh: what is taken is an entry in the journal */
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
    GP_AUTO_RESOURCES struct resource_list one = {0};
    struct resource copy = {0};
    resource_copy(&copy, by_slot(&w.made, 1));
    vec_push(&one.list, copy);
    OK(w.ops->tag(w.p, &one, "hostkey", "SHA256:contractcontractcontractcontractcontractcon", err));
    list_nodes(w.p, 2, &l);
    assert_string_equal(by_slot(&l, 1)->host_keys, "SHA256:contractcontractcontractcontractcontractcon");
    assert_string_not_equal(by_slot(&l, 0)->host_keys, "SHA256:contractcontractcontractcontractcontractcon");
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

static int teardown(void **state) {
    (void)state;
    if (w.ops == NULL) return 0;
    resource_list_clear(&w.made);
    offer_list_clear(&w.offers);
    stack_clear(&w.stack);
    w.ops->close(w.p);
    journal_close(w.journal);
    gp_cancel_clear(&w.cancel);
    spec_free(w.spec);
    free(w.state_dir);
    free(w.pubkey);
    return 0;
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
