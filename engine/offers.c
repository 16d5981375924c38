/* SPDX-License-Identifier: Apache-2.0 */
/* The verb offers: everything that could be bought for a spec now, at every provider that it names. Buys nothing and
 * writes nothing. One thread per provider, because providers are slow and independent; the verb's thread waits. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "engine/stack/cost.h"
#include "model/image_key.h"
#include "providers/provider.h"

#include <pthread.h>

/* One provider, with all entries of the spec that name it. */
struct asked {
    struct engine *e;
    const struct offers_req *req;
    const struct provider_ops *ops;
    struct offers_result found;
    pthread_t thread;
    bool started;
};

static void add_gap(struct offers_result *ret, size_t index, const struct provider_ops *ops,
                    const struct gp_error *why) {
    struct offers_gap gap = {.index = index, .provider = xstrdup(ops->name), .why = *why};
    vec_push(&ret->gaps, gap);
}

/* The options of the verb are for every provider: one without such a key has no offer. */
static int check_keys(const struct asked *a, struct gp_error *err) {
    for (size_t i = 0; a->req->keys != NULL && i < a->req->keys->n; i++)
        if (spec_provider_key(a->ops->spec, a->req->keys->v[i]) == NULL)
            return gp_fail(err, GP_EUSAGE, "%s has no '%s' to choose from", a->ops->name, a->req->keys->v[i]);
    return 0;
}

/* Drops offers with less than the spec requires; why: the first reason. */
static void drop_unfit(const struct spec *spec, size_t first, struct offer_list *l, struct str *why) {
    size_t kept = first;
    for (size_t i = first; i < l->list.len; i++) {
        GP_AUTO_STR struct str reason = {0};
        if (offer_fits(&l->list.items[i], spec, &reason)) {
            if (kept != i) l->list.items[kept] = l->list.items[i];
            kept++;
            continue;
        }
        if (why->len == 0) str_add(why, reason.s);
        offer_clear(&l->list.items[i]);
    }
    l->list.len = kept;
}

static int offers_of_entry(struct asked *a, struct provider *p, size_t index, struct gp_error *err) {
    struct offer_list *l = &a->found.offers;
    size_t first = l->list.len;
    GP_AUTO_STR struct str unfit = {0};
    int r = a->ops->offers(p, a->req->spec, index, l, err);
    offer_list_reveal(l, first);
    cost_drop_zero(a->ops, l);
    if (r != 0) return r;
    drop_unfit(a->req->spec, first, l, &unfit);
    for (size_t i = first; i < l->list.len; i++)
        if (l->list.items[i].ends == ENDS_BY_PROVIDER) l->list.items[i].ends = a->ops->ends;
    return l->list.len > first || unfit.len == 0 ? 0 : gp_fail(err, GP_EUSAGE, "%s", unfit.s);
}

static void *ask(void *arg) {
    struct asked *a = arg;
    const struct spec *spec = a->req->spec;
    GP_AUTO_PROOF_KEY struct proof_key image_key = {0};
    (void)image_key_load(a->e->state_dir, false, &image_key, NULL); /* a bad file proves no image */
    struct provider_env env = {.cancel = &a->e->cancel,
                               .journal = a->e->journal,
                               .state_dir = a->e->state_dir,
                               .owner = a->e->opts.owner,
                               .spec = spec,
                               .image_key = image_key.known ? &image_key : NULL,
                               .accept_new_host_key = a->e->opts.accept_new_host_key,
                               .sink = &a->e->sink};
    struct provider *p = NULL;
    struct gp_error why = {0};
    int r = check_keys(a, &why);
    if (r == 0) r = a->ops->open(&env, &p, &why);
    for (size_t i = 0; i < spec->offers.len; i++) {
        if (strcmp(spec->offers.items[i].provider, a->ops->name) != 0) continue;
        if (r == 0 && offers_of_entry(a, p, i, &why) == 0) continue;
        add_gap(&a->found, i, a->ops, &why);
        if (r != 0) break; /* it did not open: one line */
        gp_error_clear(&why);
    }
    a->ops->close(p);
    return NULL;
}

static void take(struct offers_result *to, struct offers_result *from) {
    for (size_t i = 0; i < from->offers.list.len; i++) vec_push(&to->offers.list, from->offers.list.items[i]);
    for (size_t i = 0; i < from->gaps.len; i++) vec_push(&to->gaps, from->gaps.items[i]);
    vec_free(&from->offers.list);
    vec_free(&from->gaps);
}

static bool is_named(const struct spec *spec, const char *provider) {
    for (size_t i = 0; i < spec->offers.len; i++)
        if (strcmp(spec->offers.items[i].provider, provider) == 0) return true;
    return false;
}

/* Without any offer the worst reason is the error. */
static int verdict(const struct offers_result *ret, struct gp_error *err) {
    const struct offers_gap *worst = NULL;
    if (ret->offers.list.len > 0) return 0;
    for (size_t i = 0; i < ret->gaps.len; i++) {
        const struct offers_gap *gap = &ret->gaps.items[i];
        int code = gp_exit_code(gap->why.code), before = worst != NULL ? gp_exit_code(worst->why.code) : 0;
        if (worst == NULL || gp_exit_worst(code, before) != before) worst = gap;
    }
    if (worst == NULL) return gp_fail(err, GP_EUSAGE, "no provider was queried: name one in the spec");
    return gp_fail(err, worst->why.code, "no provider has an offer: %s: %s", worst->provider,
                   str_without_name(worst->why.msg, worst->provider));
}

int engine_offers(struct engine *e, const struct offers_req *req, struct offers_result *ret, struct gp_error *err) {
    size_t n = 0;
    while (provider_registry[n] != NULL) n++;
    struct asked *all = xcalloc(n, sizeof *all);
    for (size_t i = 0; i < n; i++) {
        all[i] = (struct asked){.e = e, .req = req, .ops = provider_registry[i]};
        bool wanted = req->only == NULL || strv_has(req->only, all[i].ops->name);
        if (!wanted || !is_named(req->spec, all[i].ops->name)) continue;
        all[i].started = pthread_create(&all[i].thread, NULL, ask, &all[i]) == 0;
        if (!all[i].started) ask(&all[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (all[i].started) pthread_join(all[i].thread, NULL);
        take(ret, &all[i].found);
    }
    free(all);
    offer_list_sort(&ret->offers, ORDER_CHEAPEST);
    if (gp_cancelled(&e->cancel)) return gp_fail(err, GP_ECANCELLED, "cancelled");
    return verdict(ret, err);
}

void offers_result_clear(struct offers_result *r) {
    offer_list_clear(&r->offers);
    for (size_t i = 0; i < r->gaps.len; i++) free(r->gaps.items[i].provider);
    vec_free(&r->gaps);
}
