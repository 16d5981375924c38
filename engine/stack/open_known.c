/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a stack by its name: spec and owner come from the journal, else from every provider that opens. So a machine
 * with an empty journal can list and destroy the stack of another machine. */
#include "base/gp_base.h"

#include "engine/stack/open_known.h"

#include "engine/run/ending.h"
#include "engine/run/eventlog.h"
#include "engine/run/look.h"
#include "engine/run/owner.h"
#include "engine/run/pool.h"
#include "engine/run/run_provider.h"
#include "engine/trust/aside.h"

static int spec_from_journal(struct run *run, const char *text, struct gp_error *err) {
    struct spec_problems problems = {0};
    struct gp_error why = {0};
    int r = spec_load_text("(journal)", text, strlen(text), NULL, &run->spec_owned, &problems, &why);
    spec_problems_clear(&problems);
    if (r != 0)
        return gp_fail(err, GP_EENV,
                       "the journal's spec of '%s' cannot be read (%s): give the spec "
                       "file instead of the name",
                       run->stack.name, why.msg);
    run->spec = run->spec_owned;
    return 0;
}

/* Opens the providers of the stack's resources in the journal; *ret_any: there are some. */
static int open_remembered(struct run *run, bool *ret_any, struct gp_error *err) {
    int r = 0;
    if (run->stack.provider != NULL && run->stack.provider[0] != '\0') {
        r = ending_provider(run, run->stack.provider, err);
        *ret_any = true;
    }
    GP_AUTO_RESOURCES struct resource_list list = {0};
    if (r == 0 && run->stack.uid != NULL) r = journal_resources(run->e->journal, run->stack.uid, &list, err);
    for (size_t i = 0; r == 0 && i < list.list.len; i++)
        if (list.list.items[i].state != RES_GONE) r = ending_provider(run, list.list.items[i].provider, err);
    return r;
}

/* The question to one provider. */
struct question {
    const struct run *run;
    struct run_look look; /* its own */
    const struct provider_ops *ops;
    struct provider *p; /* NULL: it did not open */
    bool has;           /* a stack of this name, for the provider's own owner */
    struct strv uids;   /* of it */
    int r;
    struct gp_error why;
};
struct questions {
    VEC_OF(struct question) list;
};

static void has_it(struct question *q) {
    GP_AUTO_RESOURCES struct resource_list seen = {0};
    struct list_req req = {.owner = q->p->owner, .stack = q->run->stack.name, .regions = NULL};
    q->r = look_list(q->run, &q->look, q->p, &req, &seen, &q->why);
    for (size_t i = 0; i < seen.list.len; i++) /* a listed resource exists, even if the list is incomplete */
        if (seen.list.items[i].state != RES_GONE) {
            q->has = true;
            strv_add(&q->uids, seen.list.items[i].uid);
        }
    q->has = q->has || q->look.unreadable.list.len > 0;
}

/* In a thread of its own: providers are slow and independent. */
static void ask_one(void *ctx, size_t i) {
    struct questions *all = ctx;
    struct question *q = &all->list.items[i];
    const char *owner = q->run->e->opts.owner;
    if (q->p == NULL) q->r = run_provider_open(q->run, q->ops, owner, &q->p, &q->why);
    if (q->r == 0) has_it(q);
    else if (q->r != -GP_ECANCELLED) coverage_put(&q->look.covered, q->ops->name, "", owner, q->ops->billed, &q->why);
}

/* Moves what was found into the run. */
static void take_answer(struct run *run, struct question *q) {
    struct resource_list *unreadable = &q->look.unreadable;
    if (q->p != NULL && run_provider_opened(run, q->ops->name) == NULL) vec_push(&run->providers, q->p);
    coverage_merge(&run->look.covered, &q->look.covered);
    for (size_t i = 0; i < unreadable->list.len; i++) vec_push(&run->look.unreadable.list, unreadable->list.items[i]);
    vec_free(&unreadable->list);
    look_clear(&q->look);
}

/* The provider that has the stack, or NULL: there are two, and err names them. */
static int choose_holder(const struct run *run, const struct questions *all, struct provider **ret,
                         struct gp_error *err) {
    GP_AUTO_STRV struct strv held = {0}; /* uids at the holder */
    *ret = NULL;
    for (size_t i = 0; i < all->list.len; i++) {
        const struct question *q = &all->list.items[i];
        bool same = false;
        if (q->r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "%s", q->why.msg);
        for (size_t k = 0; k < q->uids.n; k++) same = same || strv_has(&held, q->uids.v[k]);
        if (same) continue; /* one stack at several clouds */
        if (q->has && *ret != NULL)
            return gp_fail(err, GP_EUSAGE,
                           "there are stacks '%s' at %s and at %s: give the spec file "
                           "instead of the name",
                           run->stack.name, (*ret)->ops->name, q->ops->name);
        if (q->has) *ret = q->p;
        for (size_t k = 0; k < q->uids.n; k++) strv_add(&held, q->uids.v[k]);
    }
    return 0;
}

/* Queries every provider that opens, each with its own owner: a cloud's principal and the login name on this machine
 * differ. *ret_holder: the provider that has the stack, or NULL. */
static int ask_all(struct run *run, struct provider **ret_holder, struct gp_error *err) {
    struct questions all = {0};
    for (size_t i = 0; provider_registry[i] != NULL; i++) {
        const struct provider_ops *ops = provider_registry[i];
        if (ops->lent || !look_allows(run->e, ops->name, "")) continue; /* hosts: nothing is found without a spec */
        struct question q = {.run = run, .ops = ops, .p = run_provider_opened(run, ops->name)};
        vec_push(&all.list, q);
    }
    pool_each(all.list.len, ask_one, &all);
    for (size_t i = 0; i < all.list.len; i++) take_answer(run, &all.list.items[i]);
    int r = choose_holder(run, &all, ret_holder, err);
    for (size_t i = 0; i < all.list.len; i++) strv_clear(&all.list.items[i].uids);
    vec_free(&all.list);
    return r;
}

/* The stack may be at other clouds too, with the owner that it has at the holder: they are opened again for that one.
 * Without this its nodes there would neither be listed nor ended. */
static int open_for_owner(struct run *run, const char *owner, struct gp_error *err) {
    for (size_t i = 0; i < run->providers.len;) {
        struct provider *p = run->providers.items[i];
        const struct provider_ops *ops = p->ops;
        if (str_eq(p->owner, owner)) {
            i++;
            continue;
        }
        for (size_t k = i + 1; k < run->providers.len; k++) run->providers.items[k - 1] = run->providers.items[k];
        run->providers.len--;
        ops->close(p);
        int r = ending_provider(run, ops->name, err); /* appends it */
        if (r != 0) return r;
    }
    return 0;
}

static int open_all(struct run *run, struct gp_error *err) {
    struct provider *holder = NULL;
    int r = ask_all(run, &holder, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *when = NULL;
    bool ended = holder == NULL && event_log_ended(run->e->state_dir, run->stack.name, &when);
    look_set_aside(run->e, ended, &run->look.covered);
    free(run->owner);
    run->owner = NULL;
    if (holder != NULL) {
        run->owner = xstrdup(holder->owner);
        r = open_for_owner(run, run->owner, err);
        if (r != 0) return r;
    } else if (run->e->opts.owner != NULL) run->owner = xstrdup(run->e->opts.owner);
    else if (run->providers.len > 0) run->owner = xstrdup(run->providers.items[0]->owner);
    if (holder != NULL || run->ending) return 0;
    bool aside = false;
    for (size_t i = 0; i < run->look.covered.list.len; i++) aside = aside || run->look.covered.list.items[i].aside;
    if (ended && !run->looking && coverage_whole(&run->look.covered))
        return gp_fail(err, GP_ENOTFOUND,
                       "'%s' is gone: 'gpuprov down' destroyed it at %s; 'gpuprov logs %s' prints its events%s",
                       run->stack.name, when, run->stack.name,
                       aside ? " (clouds without credentials here were not searched for a new one)" : "");
    const struct look *gap = coverage_gap(&run->look.covered);
    struct gp_error why = {0};
    GP_AUTO_FREE char *what = xasprintf("stack '%s' may exist", run->stack.name);
    if (look_gap_error(&run->look.covered, what, &why) == 0) return 0;
    if (!run->looking && gap != NULL) /* this verb has no --in, and does not report what is billed */
        return gp_fail(err, gap->why.code,
                       "there is no stack '%s' in the journal, and %s was not searched for it: %s; 'gpuprov status' "
                       "lists the stacks",
                       run->stack.name, gap->provider, gap->why.msg);
    if (err != NULL) *err = why;
    return -(int)why.code;
}

/* Opens the providers that the spec's offers name. recalled: it is the journal's, so --in limits them. */
static int open_offered(struct run *run, const struct spec *spec, bool recalled, struct gp_error *err) {
    int r = 0;
    struct owner_order order = {0};
    owner_order_of(spec, &order);
    for (size_t i = 0; r == 0 && i < order.names.len; i++)
        if (!recalled || look_allows(run->e, order.names.items[i], ""))
            r = ending_provider(run, order.names.items[i], err);
    owner_order_clear(&order);
    return r;
}

static int open_providers(struct run *run, const struct spec *spec, struct gp_error *err) {
    bool any = false;
    int r = open_remembered(run, &any, err);
    if (r == 0 && spec != NULL) return open_offered(run, spec, false, err);
    if (r == 0 && !any) r = open_all(run, err);
    /* `down NAME` looks where `down SPEC` does, so both state the same */
    return r == 0 && run->ending && run->spec != NULL ? open_offered(run, run->spec, true, err) : r;
}

enum open_mode { OPEN_STRICT, OPEN_LOOKING, OPEN_ENDING, OPEN_NOTHING };

static int open_stack(struct engine *e, const struct spec *spec, const char *name, enum open_mode mode,
                      struct run **ret, struct gp_error *err) {
    struct run *run = NULL;
    GP_AUTO_FREE char *text = NULL;
    int r = run_open(e, spec, spec != NULL ? spec->name : name, &run, err);
    if (r == 0) run->ending = mode == OPEN_ENDING;
    if (r == 0) run->looking = mode == OPEN_LOOKING;
    bool known = false;
    if (r == 0) r = owner_recall(run, err);
    if (r == 0) r = owner_recall_stack(run, &text, &known, err);
    if (r == 0 && run->spec == NULL && text != NULL && text[0] != '\0') r = spec_from_journal(run, text, err);
    if (r == 0 && mode != OPEN_NOTHING) r = open_providers(run, spec, err);
    if (r == 0 && run->providers.len == 0 && mode == OPEN_STRICT)
        r = look_gap_error(&run->look.covered, "no provider could be queried", err);
    if (r == 0 && run->owner == NULL && e->opts.owner != NULL) run->owner = xstrdup(e->opts.owner);
    if (r != 0) {
        run_close(run);
        return r;
    }
    *ret = run;
    return 0;
}

int run_open_known(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                   struct gp_error *err) {
    return open_stack(e, spec, name, OPEN_STRICT, ret, err);
}

int run_open_ending(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                    struct gp_error *err) {
    return open_stack(e, spec, name, OPEN_ENDING, ret, err);
}

int run_open_looking(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                     struct gp_error *err) {
    return open_stack(e, spec, name, OPEN_LOOKING, ret, err);
}

int run_open_remembered(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                        struct gp_error *err) {
    return open_stack(e, spec, name, OPEN_NOTHING, ret, err);
}

int run_open_journaled(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                       struct gp_error *err) {
    bool known = false;
    if (spec != NULL) name = spec->name;
    int r = engine_knows(e, name, &known, err);
    if (r == 0 && !known && spec != NULL) return run_open_known(e, spec, NULL, ret, err);
    if (r == 0) r = run_open_known(e, NULL, name, ret, err);
    if (r != 0 || spec == NULL || (*ret)->spec != NULL) return r;
    run_close(*ret);
    *ret = NULL;
    return run_open_known(e, spec, NULL, ret, err);
}
