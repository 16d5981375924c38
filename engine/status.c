/* SPDX-License-Identifier: Apache-2.0 */
/* The verb status: launches and destroys nothing. If a provider cannot be queried, it reports that and shows the
 * journal. Stacks that the journal does not know are found by their tags. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "engine/images.h"
#include "engine/run/look.h"
#include "engine/run/owner.h"
#include "engine/run/pool.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/run/zero_price.h"
#include "engine/stack/open_known.h"
#include "engine/stack/reconcile.h"
#include "engine/trust/aside.h"
#include "engine/view.h"

/* Fills the run from the journal, if the provider is not queried or does not answer. */
static int from_memory(struct run *run, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    if (run->stack.uid == NULL) return 0;
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    run->recalled = true;
    for (size_t i = 0; i < known.list.len; i++) zero_price_drop(&known.list.items[i]);
    if (r == 0) r = run_nodes_recall(run, err);
    return r == 0 ? reconcile_listing(run, &known, NULL, err) : r;
}

/* Whether the stack may be at a billed provider. Called if the providers could not be queried. */
static bool may_be_billed(const struct run *run) {
    for (size_t i = 0; i < run->providers.len; i++)
        if (run->providers.items[i]->ops->billed) return true;
    const struct look *gap = coverage_gap(&run->look.covered);
    return gap != NULL && gap->billed;
}

static int ask(struct run *run, struct gp_error *err) {
    const struct look *gap = coverage_gap(&run->look.covered);
    if (gap == NULL || gap->region[0] != '\0' || run->stack.uid == NULL) return reconcile(run, NULL, err);
    if (err != NULL) *err = gap->why; /* a provider that has something of it did not open */
    return -(int)gap->why.code;
}

/* Builds one view, from the providers as far as they were read, else from the journal. */
static int one_view(struct run *run, bool refresh, struct stack_view_list *ret, struct gp_error *err) {
    struct gp_error why = {0}, second = {0};
    struct stack_view v = {.remembered = !refresh};
    int r = refresh ? ask(run, &why) : from_memory(run, &why);
    if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "cancelled");
    if (r != 0 && refresh) {
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "status", "shown from the journal only: %s", why.msg);
        v.remembered = true;
        if (from_memory(run, &second) != 0) r = -(int)second.code;
        else second = (struct gp_error){0};
    }
    int shown = second.code == GP_OK && (r == 0 || refresh) ? view_fill(run, &v, &second) : -1;
    if (shown == 0) vec_push(&ret->list, v);
    else stack_view_clear(&v);
    if (r == 0 && shown != 0) why = second;
    if (r == 0 && shown == 0 && refresh) r = look_gap_error(&run->look.covered, run->stack.name, &why);
    if (r == 0 && shown == 0 && refresh) r = look_unreadable_error(&run->look.unreadable, run->stack.name, &why);
    if (r == 0 && shown == 0) return 0;
    if (r != 0 && refresh && why.code != GP_EBILLED && may_be_billed(run)) why.code = GP_EBILLED;
    if (err != NULL) *err = why;
    return -(int)why.code;
}

static int status_one(struct engine *e, const char *name, const struct spec *spec, bool refresh,
                      struct stack_view_list *ret, struct gp_error *err) {
    struct run *run = NULL;
    int r = refresh ? run_open_looking(e, spec, name, &run, err) : run_open_remembered(e, spec, name, &run, err);
    if (r != 0) return r;
    r = one_view(run, refresh, ret, err);
    run_close(run);
    return r;
}

/* --- every stack --- */

/* The worst error of several stacks and places; a failure does not hide the others. */
static void keep_worst(struct gp_error *worst, const struct gp_error *one) {
    int code = gp_exit_code(one->code), before = gp_exit_code(worst->code);
    if (one->code != GP_OK && (worst->code == GP_OK || gp_exit_worst(code, before) != before)) *worst = *one;
}

/* Whether --in includes a place where the journal has something of the stack. */
static bool is_allowed(struct engine *e, const struct stack *s) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    if (s->provider[0] == '\0' || look_allows(e, s->provider, s->region)) return true;
    if (journal_resources(e->journal, s->uid, &known, NULL) != 0) return true;
    for (size_t i = 0; i < known.list.len; i++)
        if (known.list.items[i].state != RES_GONE &&
            look_allows(e, known.list.items[i].provider, known.list.items[i].region))
            return true;
    return false;
}

static int status_journal(struct engine *e, bool refresh, struct stack_view_list *ret, struct gp_error *worst) {
    struct stack_list all = {0};
    struct gp_error why = {0};
    if (journal_stacks(e->journal, &all, &why) != 0) keep_worst(worst, &why);
    for (size_t i = 0; i < all.list.len && worst->code != GP_ECANCELLED; i++) {
        const struct stack *s = &all.list.items[i];
        if ((e->opts.owner != NULL && strcmp(e->opts.owner, s->owner) != 0) || !is_allowed(e, s)) continue;
        struct engine_opts saved = e->opts;
        e->opts.owner = s->owner;
        struct gp_error one = {0};
        status_one(e, s->name, NULL, refresh, ret, &one);
        e->opts = saved;
        keep_worst(worst, &one);
    }
    stack_list_clear(&all);
    return -(int)worst->code;
}

/* Everything of the owner at one provider, in every region. */
struct search {
    const struct provider_ops *ops;
    const char *owner; /* NULL: the provider's own */
    struct run *run;
    struct provider *p; /* NULL: it did not open */
    struct resource_list found, images;
    int r;
};
struct searches {
    VEC_OF(struct search) list;
};

static int search_add(struct engine *e, const struct provider_ops *ops, const char *owner, struct searches *to,
                      struct gp_error *err) {
    struct search s = {.ops = ops, .owner = owner};
    int r = run_open(e, NULL, NULL, &s.run, err);
    if (r != 0) return r;
    s.run->looking = true;
    if (owner != NULL) {
        free(s.run->owner);
        s.run->owner = xstrdup(owner);
    }
    vec_push(&to->list, s);
    return 0;
}

/* In a thread of its own: providers are slow and independent. */
static void search_one(void *ctx, size_t i) {
    struct searches *all = ctx;
    struct search *s = &all->list.items[i];
    struct engine *e = s->run->e;
    struct gp_error why = {0};
    s->r = run_provider(s->run, s->ops->name, &s->p, &why);
    if (s->r != 0 && s->r != -GP_ECANCELLED)
        coverage_put(&s->run->look.covered, s->ops->name, "", e->opts.owner, s->ops->billed, &why);
    if (s->r != 0) return;
    struct list_req req = {.owner = s->p->owner};
    s->r = look_list(s->run, &s->run->look, s->p, &req, &s->found, &why);
    if (s->r == 0 && s->ops->images != NULL) s->r = images_at(s->run, s->p, &s->images, &why);
}

static void move_all(struct resource_list *to, struct resource_list *from) {
    for (size_t i = 0; i < from->list.len; i++) vec_push(&to->list, from->list.items[i]);
    vec_free(&from->list);
}

/* Searches at all of them at once; the results are taken in their order. */
static int search_all(struct searches *all, struct resource_list *found, struct stack_view_list *ret,
                      struct owners_seen *seen, struct gp_error *err) {
    bool cancelled = false;
    pool_each(all->list.len, search_one, all);
    for (size_t i = 0; i < all->list.len; i++) {
        struct search *s = &all->list.items[i];
        if (s->p != NULL) owners_seen_add(seen, s->p);
        cancelled = cancelled || s->r == -GP_ECANCELLED;
        move_all(found, &s->found);
        move_all(&ret->images, &s->images);
        if (s->owner == NULL) coverage_merge(&ret->looked, &s->run->look.covered);
        else coverage_add_gaps(&ret->looked, &s->run->look.covered);
        move_all(&ret->unreadable, &s->run->look.unreadable);
        run_close(s->run);
    }
    vec_free(&all->list);
    return cancelled ? gp_fail(err, GP_ECANCELLED, "cancelled") : 0;
}

/* The view of the stack with that name and owner; NULL: there is none. */
static struct stack_view *view_of(const struct stack_view_list *l, const struct resource *r) {
    for (size_t i = 0; i < l->list.len; i++)
        if (str_eq(l->list.items[i].stack.name, r->stack) && str_eq(l->list.items[i].stack.owner, r->owner))
            return &l->list.items[i];
    return NULL;
}

/* A stack that only its tags name: its view is made from what was listed. */
static int found_view(struct engine *e, const struct resource_list *found, const struct resource *of,
                      struct stack_view_list *ret, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list its = {0};
    struct run *run = NULL;
    struct stack_view v = {0};
    int r = run_open(e, NULL, of->stack, &run, err);
    if (r != 0) return r;
    run->looking = true;
    free(run->owner);
    run->owner = xstrdup(of->owner);
    for (size_t i = 0; i < found->list.len; i++) {
        const struct resource *one = &found->list.items[i];
        if (!str_eq(one->stack, of->stack) || !str_eq(one->owner, of->owner)) continue;
        resource_list_add(&its, one);
        for (size_t k = 0; k < ret->looked.list.len; k++) {
            const struct look *l = &ret->looked.list.items[k];
            if (str_eq(l->provider, one->provider))
                coverage_put(&run->look.covered, l->provider, l->region, l->owner, l->billed,
                             l->checked ? NULL : &l->why);
        }
    }
    r = reconcile_listing(run, &its, NULL, err);
    if (r == 0) r = view_fill(run, &v, err);
    if (r == 0) vec_push(&ret->list, v);
    else stack_view_clear(&v);
    run_close(run);
    return r;
}

/* Places without credentials are listed as not looked at, and are no error unless --in names them: a machine that
 * never used a cloud has none. */
static int search_gap(struct engine *e, const struct stack_view_list *ret, struct gp_error *err) {
    struct coverage asked = {0};
    bool named = e->opts.only != NULL && e->opts.only->n > 0;
    for (size_t i = 0; i < ret->looked.list.len; i++) {
        const struct look *l = &ret->looked.list.items[i];
        if (l->aside) continue;
        if (l->checked || named || !provider_no_credentials(&l->why))
            coverage_put(&asked, l->provider, l->region, l->owner, l->billed, l->checked ? NULL : &l->why);
    }
    int r = look_gap_error(&asked, "status", err);
    coverage_clear(&asked);
    return r == 0 ? look_unreadable_error(&ret->unreadable, "status", err) : r;
}

static int search(struct engine *e, struct stack_view_list *ret, struct gp_error *worst) {
    GP_AUTO_RESOURCES struct resource_list found = {0};
    struct owners_seen seen = {0};
    struct searches own = {0}, others = {0};
    struct gp_error why = {0};
    int r = 0;
    for (size_t i = 0; r == 0 && provider_registry[i] != NULL; i++) {
        const struct provider_ops *ops = provider_registry[i];
        if (!ops->lent && look_allows(e, ops->name, "")) r = search_add(e, ops, NULL, &own, &why);
    }
    int ran = search_all(&own, &found, ret, &seen, r == 0 ? &why : NULL);
    if (r == 0) r = ran;
    const struct provider_ops *ops = NULL;
    const char *owner = NULL;
    for (size_t i = 0; r == 0 && e->opts.owner == NULL && owners_seen_next(&seen, &i, &ops, &owner);)
        r = search_add(e, ops, owner, &others, &why);
    ran = search_all(&others, &found, ret, NULL, r == 0 ? &why : NULL);
    if (r == 0) r = ran;
    keep_worst(worst, &why);
    owners_seen_clear(&seen);
    for (size_t i = 0; r == 0 && i < found.list.len; i++) {
        const struct resource *of = &found.list.items[i];
        struct gp_error unseen = {0};
        if (of->state == RES_GONE) continue;
        struct stack_view *v = view_of(ret, of);
        if (v == NULL) found_view(e, &found, of, ret, &unseen);
        else if (!view_has(v, of)) view_add_other(v, of); /* at a cloud of which this journal knows nothing of it */
        keep_worst(worst, &unseen);
    }
    look_set_aside(e, false, &ret->looked);
    struct gp_error gap = {0};
    if (r == 0 && search_gap(e, ret, &gap) != 0) keep_worst(worst, &gap);
    return -(int)worst->code;
}

int engine_status(struct engine *e, const char *name, const struct spec *spec, bool refresh,
                  struct stack_view_list *ret, struct gp_error *err) {
    struct gp_error worst = {0};
    if (name != NULL || spec != NULL) return status_one(e, name, spec, refresh, ret, err);
    run_say_damaged(e, &e->sink);
    int r = status_journal(e, refresh, ret, &worst);
    if (refresh && r != -GP_ECANCELLED) r = search(e, ret, &worst);
    if (r != 0 && err != NULL) *err = worst;
    return r;
}
