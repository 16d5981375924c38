/* SPDX-License-Identifier: Apache-2.0 */
/* The providers of a run: each opened once, closed with the run. The verb's thread; while the watcher runs, its. */
#include "base/gp_base.h"

#include "engine/run/run_provider.h"

#include "engine/run/owner.h"
#include "engine/run/run_event.h"

int run_provider(struct run *run, const char *name, struct provider **ret, struct gp_error *err) {
    for (size_t i = 0; i < run->providers.len; i++) {
        if (strcmp(run->providers.items[i]->ops->name, name) == 0) {
            *ret = run->providers.items[i];
            return 0;
        }
    }
    const struct provider_ops *ops = provider_find(name);
    if (ops == NULL) return gp_fail(err, GP_EUSAGE, "there is no provider '%s'", name);
    struct provider_env env = {.cancel = &run->e->cancel,
                               .journal = run->e->journal,
                               .state_dir = run->e->state_dir,
                               .owner = run->owner,
                               .spec = run->spec,
                               .accept_new_host_key = run->e->opts.accept_new_host_key,
                               .sink = &run->sink};
    struct provider *p = NULL;
    int r = ops->open(&env, &p, err);
    if (r != 0) return r;
    vec_push(&run->providers, p);
    if (run->owner == NULL) run->owner = xstrdup(p->owner);
    *ret = p;
    return 0;
}

static int open_offer(struct run *run, const char *name, bool home, struct gp_error *err) {
    const struct provider_ops *ops = provider_find(name);
    struct provider *p = NULL;
    struct gp_error why = {0};
    int r = run_provider(run, name, &p, &why);
    if (r == 0 && home) run->home = p;
    if (r == 0) return 0;
    if (home || r == -GP_ECANCELLED) {
        if (err != NULL) *err = why;
        return r;
    }
    coverage_put(&run->look.covered, name, "", run->owner, ops == NULL || ops->billed, &why);
    run_event(run, -1, NODE_PLANNED, EVENT_WARN, "providers", "%s is not asked: %s", name, why.msg);
    return 0;
}

int run_open_offers(struct run *run, struct gp_error *err) {
    const char *home = run->spec->offers.items[0].provider;
    struct owner_order order = {0};
    owner_order_of(run->spec, &order);
    int r = owner_recall(run, err);
    for (size_t i = 0; r == 0 && i < order.names.len; i++)
        r = open_offer(run, order.names.items[i], strcmp(order.names.items[i], home) == 0, err);
    owner_order_clear(&order);
    return r;
}

int64_t run_settle_ms(const struct run *run) {
    int64_t ms = 0;
    for (size_t i = 0; i < run->providers.len; i++) ms = GP_MAX(ms, run->providers.items[i]->ops->settle_ms);
    return ms;
}

int64_t run_pause_ms(const struct run *run) {
    for (size_t i = 0; i < run->providers.len; i++)
        if (run->providers.items[i]->ops->billed)
            return GP_MIN((int64_t)1000, GP_MAX((int64_t)50, run_settle_ms(run) / 10));
    return 50;
}

int64_t run_cloud_s(const struct run *run, const char *provider) {
    for (size_t i = 0; i < run->providers.len; i++)
        if (str_eq(run->providers.items[i]->ops->name, provider))
            return clock_wall_s() + run->providers.items[i]->clock_skew_s;
    return clock_wall_s();
}
