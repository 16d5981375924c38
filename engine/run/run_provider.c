/* SPDX-License-Identifier: Apache-2.0 */
/* The providers of a run: each is opened once, and closed with the run. One thread at a time for one run: the verb's,
 * the watcher's while that runs, or that of a search at one provider. Several providers are opened side by side. */
#include "base/gp_base.h"

#include "engine/run/run_provider.h"

#include "engine/run/owner.h"
#include "engine/run/pool.h"
#include "engine/run/run_event.h"
#include "model/image_key.h"

struct provider *run_provider_opened(const struct run *run, const char *name) {
    for (size_t i = 0; i < run->providers.len; i++)
        if (strcmp(run->providers.items[i]->ops->name, name) == 0) return run->providers.items[i];
    return NULL;
}

int run_provider_open(const struct run *run, const struct provider_ops *ops, const char *owner, struct provider **ret,
                      struct gp_error *err) {
    GP_AUTO_PROOF_KEY struct proof_key image_key = {0};
    struct gp_error why = {0};
    /* A bad file proves no image, and prevents nothing else. */
    if (ops->images != NULL && image_key_load(run->e->state_dir, false, &image_key, &why) != 0)
        event_emit(&run->sink, -1, NODE_PLANNED, EVENT_WARN, "image", "no baked image is proven: %s", why.msg);
    struct provider_env env = {.cancel = &run->e->cancel,
                               .journal = run->e->journal,
                               .state_dir = run->e->state_dir,
                               .owner = owner,
                               .spec = run->spec,
                               .image_key = image_key.known ? &image_key : NULL,
                               .accept_new_host_key = run->e->opts.accept_new_host_key,
                               .sink = &run->sink};
    return ops->open(&env, ret, err);
}

int run_provider(struct run *run, const char *name, struct provider **ret, struct gp_error *err) {
    struct provider *p = run_provider_opened(run, name);
    const struct provider_ops *ops = provider_find(name);
    if (p != NULL) {
        *ret = p;
        return 0;
    }
    if (ops == NULL) return gp_fail(err, GP_EUSAGE, "there is no provider '%s'", name);
    int r = run_provider_open(run, ops, run->owner, &p, err);
    if (r != 0) return r;
    vec_push(&run->providers, p);
    if (run->owner == NULL) run->owner = xstrdup(p->owner);
    *ret = p;
    return 0;
}

/* An account without credentials is treated alike wherever the spec names it: the others go on, and the gap is
 * reported. */
static void note_not_open(struct run *run, const char *name, const struct gp_error *why) {
    const struct provider_ops *ops = provider_find(name);
    coverage_put(&run->look.covered, name, "", run->owner, ops == NULL || ops->billed, why);
}

/* Reports them once: neither the one that the run ends with, nor again with the places that were not looked at. */
static void report_not_open(struct run *run, const struct gp_error *end) {
    GP_AUTO_STR struct str gaps = {0};
    for (size_t i = 0; i < run->look.covered.list.len; i++) {
        const struct look *l = &run->look.covered.list.items[i];
        if (!l->checked && l->region[0] == '\0' && (end == NULL || strcmp(l->why.msg, end->msg) != 0))
            run_event(run, -1, NODE_PLANNED, EVENT_WARN, "providers", "%s is not queried: %s", l->provider,
                      str_without_name(l->why.msg, l->provider));
    }
    coverage_text(&run->look.covered, false, 6, &gaps);
    free(run->look.said_gaps);
    run->look.said_gaps = str_steal(&gaps);
}

/* The claim is at the home in the journal, else at the first provider of the spec that opens. The cheapest offer does
 * not decide, because two concurrent `up`s must claim at the same place. */
static void choose_home(struct run *run, const char *known) {
    run->home = known != NULL ? run_provider_opened(run, known) : NULL;
    for (size_t i = 0; run->home == NULL && i < run->spec->offers.len; i++)
        run->home = run_provider_opened(run, run->spec->offers.items[i].provider);
}

/* Of several errors, that of the provider that the spec names first is returned. */
static size_t place_in_spec(const struct spec *spec, const char *name) {
    size_t i = 0;
    while (i < spec->offers.len && strcmp(spec->offers.items[i].provider, name) != 0) i++;
    return i;
}

/* Opens it to buy nodes there: a cloud that the stack cannot use is closed again. */
int run_offer_provider(struct run *run, const char *name, struct provider **ret, struct gp_error *err) {
    struct provider *p = NULL;
    int r = run_provider(run, name, &p, err);
    if (r == 0) r = owner_check_new_place(run, p, err);
    if (r == 0) *ret = p;
    if (r == 0 || p == NULL) return r;
    size_t kept = 0;
    for (size_t i = 0; i < run->providers.len; i++)
        if (run->providers.items[i] != p) run->providers.items[kept++] = run->providers.items[i];
    run->providers.len = kept;
    p->ops->close(p);
    return r;
}

/* One provider that is being opened. */
struct opening {
    const struct run *run;
    const char *name;
    struct provider *p;
    struct gp_error why;
    int r;
};

/* In a thread of its own: reads the run and changes nothing in it. */
static void open_one(void *ctx, size_t i) {
    struct opening *o = (struct opening *)ctx + i;
    o->r = run_provider_open(o->run, provider_find(o->name), o->run->owner, &o->p, &o->why);
}

/* Opens them in their order until one has decided the owner, and the others side by side: they are opened for that
 * owner. The results are in the order of `all`. */
static void open_side_by_side(struct run *run, struct opening *all, size_t n) {
    size_t i = 0;
    for (; i < n && run->owner == NULL; i++) all[i].r = run_provider(run, all[i].name, &all[i].p, &all[i].why);
    if (i < n) pool_each(n - i, open_one, all + i);
    for (; i < n; i++)
        if (all[i].r == 0) vec_push(&run->providers, all[i].p);
}

/* Opens every provider (check false), or closes those that the stack cannot use (true). Of their errors that of the
 * provider that the spec names first is kept in `first`. */
static int open_each(struct run *run, const struct owner_order *order, const char *known, bool check,
                     struct gp_error *first, struct gp_error *err) {
    struct opening *all = xcalloc(order->names.len + 1, sizeof *all);
    size_t n = 0;
    int r = 0;
    for (size_t i = 0; i < order->names.len; i++) {
        bool is_open = run_provider_opened(run, order->names.items[i]) != NULL;
        if (is_open == check) all[n++] = (struct opening){.run = run, .name = order->names.items[i]};
    }
    if (!check) open_side_by_side(run, all, n);
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct opening *o = &all[i];
        if (check) o->r = run_offer_provider(run, o->name, &o->p, &o->why);
        if (o->r == 0) continue;
        if (o->r == -GP_ECANCELLED || str_eq(o->name, known)) { /* without its home nothing is known of the stack */
            if (err != NULL) *err = o->why;
            r = o->r;
            continue;
        }
        note_not_open(run, o->name, &o->why);
    }
    free(all);
    if (r != 0) return r;
    size_t first_place = SIZE_MAX;
    for (size_t i = 0; i < order->names.len; i++) {
        const struct look *gap = coverage_find(&run->look.covered, order->names.items[i], "");
        size_t place = place_in_spec(run->spec, order->names.items[i]);
        if (gap == NULL || gap->checked || place >= first_place) continue;
        first_place = place;
        *first = gap->why;
    }
    return 0;
}

/* All are open before owners are compared: the stack's may be the principal of any of them. */
static int open_all(struct run *run, const struct owner_order *order, const char *known, struct gp_error *err) {
    struct gp_error first = {0};
    int r = open_each(run, order, known, false, &first, err);
    if (r == 0) r = open_each(run, order, known, true, &first, err);
    if (r != 0) return r;
    choose_home(run, known);
    report_not_open(run, run->home != NULL ? NULL : &first);
    if (run->home != NULL) return 0;
    if (err != NULL) *err = first;
    return -(int)first.code;
}

int run_open_offers(struct run *run, struct gp_error *err) {
    struct owner_order order = {0};
    struct stack known = {0};
    owner_order_of(run->spec, &order);
    int r = owner_recall(run, err);
    if (r == 0 && owner_find_stack(run->e->journal, run->stack.name, run->owner, &known, NULL) != 0)
        stack_clear(&known);
    if (r == 0) r = open_all(run, &order, known.uid != NULL ? known.provider : NULL, err);
    stack_clear(&known);
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
