/* SPDX-License-Identifier: Apache-2.0 */
/* What the contract's programs share: the provider that GPUPROV_CONTRACT names, its spec, a journal, one
 * stack. Functions fail the test that calls them. */
#ifndef GP_TESTS_PROVIDER_WORLD_H
#define GP_TESTS_PROVIDER_WORLD_H

#include "providers/local/local.h"
#include "ssh/ssh.h"
#include "tests/drivers/one_stack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

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

static inline void open_provider(struct journal *j, struct provider **ret) {
    struct provider_env env = {
        .cancel = &w.cancel, .journal = j, .state_dir = w.state_dir, .owner = getenv("GPUPROV_OWNER"), .spec = w.spec};
    OK(w.ops->open(&env, ret, err));
    assert_non_null((*ret)->owner);
    assert_ptr_equal((*ret)->ops, w.ops);
}

static inline void new_stack(struct stack *s, const struct provider *p) {
    *s = one_stack(p, w.spec, w.offers.list.len ? w.offers.list.items[0].region : "");
}

static inline int setup(void **state) {
    (void)state;
    const char *name = getenv("GPUPROV_CONTRACT"), *path = getenv("GPUPROV_CONTRACT_SPEC");
    if (name == NULL || path == NULL) return 0;
    w.ops = provider_find(name);
    if (w.ops == NULL) return -1;
    OK(one_stack_open(path, &w.spec, &w.cancel, &w.state_dir, &w.journal, err));
    GP_AUTO_SECRET struct secret private = {0};
    OK(ssh_key_make("contract", &private, &w.pubkey, err));
    return 0;
}

static inline void need_world(void) {
    if (w.ops == NULL) {
        print_message("GPUPROV_CONTRACT and GPUPROV_CONTRACT_SPEC are not set\n");
        skip();
    }
}

/* --- list helpers --- */

static inline void list(struct provider *p, struct resource_list *ret) {
    GP_AUTO_STRV struct strv regions = {0};
    strv_add(&regions, w.stack.region);
    struct list_req req = {.owner = p->owner, .stack = w.spec->name, .regions = &regions};
    OK(p->ops->list(p, &req, ret, err));
}

static inline size_t count_live(const struct resource_list *l, enum resource_kind kind) {
    size_t n = 0;
    for (size_t i = 0; i < l->list.len; i++)
        if (l->list.items[i].kind == kind && l->list.items[i].state != RES_GONE) n++;
    return n;
}

static inline size_t count_all_live(const struct resource_list *l) {
    size_t n = 0;
    for (size_t i = 0; i < l->list.len; i++)
        if (l->list.items[i].state != RES_GONE) n++;
    return n;
}

static inline enum resource_kind node_kind(void) { return strcmp(w.ops->name, "ssh") == 0 ? RES_HOST : RES_INSTANCE; }

/* The live node of that slot; never NULL: the test fails without one. */
static inline const struct resource *by_slot(const struct resource_list *l, int slot) {
    for (size_t i = 0; i < l->list.len; i++) {
        const struct resource *r = &l->list.items[i];
        if (r->kind == node_kind() && r->slot == slot && r->state != RES_GONE) return r;
    }
    fail_msg("no live node of slot %d", slot);
    abort(); /* not reached: gcc does not know */
}

/* Reads until every expected node is there, or the provider's settling time has passed. */
static inline void list_nodes(struct provider *p, size_t want, struct resource_list *ret) {
    int64_t deadline = clock_deadline(w.ops->settle_ms + 20000);
    for (;;) {
        list(p, ret);
        if (count_live(ret, node_kind()) >= want || clock_left_ms(deadline) == 0) return;
        resource_list_clear(ret);
        OK(gp_sleep(200, &w.cancel, err));
    }
}

static inline void destroy_all(const char *stack_name) {
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

static inline int teardown(void **state) {
    (void)state;
    if (w.ops == NULL) return 0;
    resource_list_clear(&w.made);
    offer_list_clear(&w.offers);
    one_stack_close(w.p, &w.stack, w.spec, &w.cancel, w.state_dir, w.journal);
    free(w.pubkey);
    return 0;
}

#endif
