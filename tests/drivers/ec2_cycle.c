// SPDX-License-Identifier: Apache-2.0
/* The benchmark's look at the aws provider: one stack from claim to nothing left, in one process, each
 * step timed. Journal, tokens and tags are the real ones; nodes are not reached (there are none behind
 * an emulator). "describe" is the poll that up's watcher sends; "terminate" ends what the journal knows
 * and is over when a whole list shows nothing.
 *
 * ec2_cycle SPEC      prints {"open_ms", "offers_ms", "launch_ms", "describe_ms", "terminate_ms", "instances"}
 * The journal is below GPUPROV_STATE_DIR. GPUPROV_TRACE=http: every call on stderr. */
#include "base/gp_base.h"

#include "tests/drivers/one_stack.h"

#include <time.h>

struct cycle {
    const struct provider_ops *ops;
    struct spec *spec;
    struct gp_cancel cancel;
    struct journal *journal;
    struct provider *p;
    struct stack stack;
    char *state_dir;
    struct offer_list offers;
    double open_ms, offers_ms, launch_ms, describe_ms, terminate_ms;
    size_t instances;
};

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int list(struct cycle *c, bool nodes_only, struct resource_list *ret, size_t *ret_alive, size_t *ret_instances,
                struct gp_error *err) {
    GP_AUTO_STRV struct strv regions = {0};
    strv_copy(&regions, &c->spec->offers.items[0].regions);
    struct list_req req = {.owner = c->p->owner, .stack = c->spec->name, .regions = &regions, .nodes_only = nodes_only};
    int r = c->ops->list(c->p, &req, ret, err);
    *ret_alive = *ret_instances = 0;
    for (size_t i = 0; r == 0 && i < ret->list.len; i++) {
        if (ret->list.items[i].state == RES_GONE) continue;
        (*ret_alive)++;
        if (ret->list.items[i].kind == RES_INSTANCE) (*ret_instances)++;
    }
    return r;
}

static int launch(struct cycle *c, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct prepare_req prepare = {.stack = &c->stack, .spec = c->spec};
    c->stack = one_stack(c->p, c->spec, c->spec->offers.items[0].regions.v[0]);
    int r = c->ops->prepare(c->p, &prepare, err);
    if (r != 0) return r;
    struct create_req req = {.stack = &c->stack,
                             .spec = c->spec,
                             .offer = &c->offers.list.items[0],
                             .slot_count = c->spec->nodes,
                             .attempt = 1,
                             .proof = one_stack_key(),
                             .login_pubkey = "ssh-ed25519 AAAA bench",
                             .user_data = "#cloud-config\n{}\n",
                             .host_key_private = "",
                             .host_key_public = ""};
    return c->ops->create(c->p, &req, &made, err);
}

static int end(struct cycle *c, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    int r = journal_resources(c->journal, c->stack.uid, &known, err);
    if (r == 0) r = c->ops->destroy(c->p, &known, err);
    int64_t deadline = clock_deadline(60000);
    size_t alive = 1, instances = 0;
    while (r == 0 && alive > 0) {
        GP_AUTO_RESOURCES struct resource_list left = {0};
        r = list(c, false, &left, &alive, &instances, err);
        if (r == 0 && alive > 0) r = c->ops->destroy(c->p, &left, err);
        if (r == 0 && clock_left_ms(deadline) == 0) r = gp_fail(err, GP_EBILLED, "not gone");
    }
    return r;
}

static int run(struct cycle *c, struct gp_error *err) {
    struct provider_env env = {.cancel = &c->cancel, .journal = c->journal, .state_dir = c->state_dir, .spec = c->spec};
    GP_AUTO_RESOURCES struct resource_list all = {0};
    double t[6] = {now_ms()};
    size_t alive = 0;
    int r = c->ops->open(&env, &c->p, err);
    t[1] = now_ms();
    if (r == 0) r = c->ops->offers(c->p, c->spec, 0, &c->offers, err);
    t[2] = now_ms();
    if (r == 0) r = launch(c, err);
    t[3] = now_ms();
    if (r == 0) r = list(c, true, &all, &alive, &c->instances, err);
    t[4] = now_ms();
    if (r == 0) r = end(c, err);
    t[5] = now_ms();
    c->open_ms = t[1] - t[0];
    c->offers_ms = t[2] - t[1];
    c->launch_ms = t[3] - t[2];
    c->describe_ms = t[4] - t[3];
    c->terminate_ms = t[5] - t[4];
    return r;
}

int main(int argc, char **argv) {
    struct cycle c = {.ops = provider_find("aws")};
    struct gp_error err = {0};
    if (argc != 2) {
        fputs("usage: ec2_cycle SPEC\n", stderr);
        return 2;
    }
    int r = one_stack_open(argv[1], &c.spec, &c.cancel, &c.state_dir, &c.journal, &err);
    if (r == 0) r = run(&c, &err);
    if (r == 0)
        printf("{\"open_ms\": %.2f, \"offers_ms\": %.2f, \"launch_ms\": %.2f, \"describe_ms\": %.2f, "
               "\"terminate_ms\": %.2f, \"instances\": %zu}\n",
               c.open_ms, c.offers_ms, c.launch_ms, c.describe_ms, c.terminate_ms, c.instances);
    else fprintf(stderr, "ec2_cycle: %s\n", err.msg);
    offer_list_clear(&c.offers);
    one_stack_close(c.p, &c.stack, c.spec, &c.cancel, c.state_dir, c.journal);
    return r == 0 ? 0 : 1;
}
