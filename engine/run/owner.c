/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the owner of a stack in the journal, and compares its account with that of the credentials; contacts no
 * provider. Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/run/owner.h"

#include "base/json.h"

int owner_find_stack(struct journal *j, const char *name, const char *owner, struct stack *ret, struct gp_error *err) {
    struct stack_list all = {0};
    const struct stack *found = NULL;
    int r = journal_stacks(j, &all, err);
    for (size_t i = 0; r == 0 && i < all.list.len; i++) {
        const struct stack *s = &all.list.items[i];
        if (!str_eq(s->name, name) || (owner != NULL && !str_eq(s->owner, owner))) continue;
        if (found != NULL)
            r = gp_fail(err, GP_EUSAGE,
                        "'%s': the journal has stacks of that name for the owners %s and %s: choose one with "
                        "--owner NAME or GPUPROV_OWNER",
                        name, found->owner, s->owner);
        found = s;
    }
    if (r == 0 && found == NULL) r = gp_fail(err, GP_ENOTFOUND, "the journal has no stack '%s'", name);
    if (r == 0) stack_copy(ret, found);
    stack_list_clear(&all);
    return r;
}

int owner_recall(struct run *run, struct gp_error *err) {
    struct stack known = {0};
    struct gp_error why = {0};
    int r = owner_find_stack(run->e->journal, run->stack.name, run->owner, &known, &why);
    if (r == -GP_ENOTFOUND) return 0;
    if (r == 0 && run->owner == NULL) run->owner = xstrdup(known.owner);
    stack_clear(&known);
    if (r != 0 && err != NULL) *err = why;
    return r;
}

int owner_recall_stack(struct run *run, char **ret_spec, bool *ret_known, struct gp_error *err) {
    struct stack known = {0};
    struct gp_error why = {0};
    if (run->owner == NULL) return 0; /* no provider opened, so the owner is not known */
    int r = journal_stack_get(run->e->journal, run->owner, run->stack.name, &known, ret_spec, &why);
    *ret_known = r == 0;
    if (r == -GP_ENOTFOUND) return 0;
    if (r != 0) {
        if (err != NULL) *err = why;
        return r;
    }
    stack_clear(&run->stack);
    run->stack = known;
    return 0;
}

/* Anything that the journal has of this stack there, also what is gone or never came to be. */
static int was_at(const struct run *run, const struct stack *s, const char *provider, bool *ret, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list list = {0};
    struct intent_list intents = {0};
    *ret = str_eq(s->provider, provider);
    int r = journal_resources(run->e->journal, s->uid, &list, err);
    if (r == 0) r = journal_intents(run->e->journal, s->uid, ~0U, &intents, err);
    for (size_t i = 0; i < list.list.len; i++) *ret = *ret || str_eq(list.list.items[i].provider, provider);
    for (size_t i = 0; i < intents.list.len; i++) *ret = *ret || str_eq(intents.list.items[i].provider, provider);
    intent_list_clear(&intents);
    return r;
}

int owner_check_new_place(const struct run *run, const struct provider *p, struct gp_error *err) {
    struct stack known = {0};
    bool there = false;
    if (run->e->opts.owner != NULL || p->principal_owner == NULL || str_eq(p->principal_owner, run->owner)) return 0;
    for (size_t i = 0; i < run->providers.len; i++) /* gc looks for that owner at this cloud too */
        if (str_eq(run->providers.items[i]->principal_owner, run->owner)) return 0;
    int r = owner_find_stack(run->e->journal, run->stack.name, run->owner, &known, err);
    if (r == -GP_ENOTFOUND) {
        gp_error_clear(err);
        return 0;
    }
    if (r == 0) r = was_at(run, &known, p->ops->name, &there, err);
    stack_clear(&known);
    if (r == 0 && !there)
        r = gp_fail(
            err, GP_EAUTH,
            "'%s' belongs to the owner %s, and the credentials of %s are for %s: give --owner %s to use %s too, "
            "or run 'gpuprov down %s' first",
            run->stack.name, run->owner, p->ops->name, p->principal_owner, run->owner, p->ops->name, run->stack.name);
    return r;
}

static bool offers_name(const struct spec *spec, const char *provider) {
    for (size_t i = 0; i < spec->offers.len; i++)
        if (strcmp(spec->offers.items[i].provider, provider) == 0) return true;
    return false;
}

void owner_order_of(const struct spec *spec, struct owner_order *ret) {
    for (int principal = 1; principal >= 0; principal--)
        for (size_t i = 0; provider_registry[i] != NULL; i++)
            if (provider_registry[i]->principal == (principal == 1) && offers_name(spec, provider_registry[i]->name))
                vec_push(&ret->names, provider_registry[i]->name);
}

void owner_order_clear(struct owner_order *o) { vec_free(&o->names); }

void owners_seen_add(struct owners_seen *s, const struct provider *p) {
    if (s == NULL) return;
    vec_push(&s->providers, p->ops);
    strv_add(&s->own, p->owner);
    if (p->principal_owner != NULL && !strv_has(&s->principals, p->principal_owner))
        strv_add(&s->principals, p->principal_owner);
}

bool owners_seen_next(const struct owners_seen *s, size_t *step, const struct provider_ops **ret_ops,
                      const char **ret_owner) {
    for (; s->principals.n > 0 && *step < s->providers.len * s->principals.n; ++*step) {
        size_t p = *step / s->principals.n, k = *step % s->principals.n;
        if (str_eq(s->own.v[p], s->principals.v[k])) continue; /* looked for already */
        *ret_ops = s->providers.items[p];
        *ret_owner = s->principals.v[k];
        ++*step;
        return true;
    }
    return false;
}

void owners_seen_clear(struct owners_seen *s) {
    vec_free(&s->providers);
    strv_clear(&s->own);
    strv_clear(&s->principals);
}

/* --- the account of the credentials: a list with those of another one is empty, but proves no absence --- */

static bool is_account(const struct provider *p, const char *account) {
    return p->account == NULL || account[0] == '\0' || strcmp(account, p->account) == 0;
}

bool account_has(const struct provider *p, const struct resource *r) {
    return p->account_is_key || is_account(p, r->account);
}

/* Of a launch; "": not known. Caller frees. */
static char *account_of(const struct intent *in) {
    GP_AUTO_JSON json_t *offer = NULL;
    bool known = in->offer != NULL && json_parse(in->offer, strlen(in->offer), "offer", &offer, NULL) == 0;
    return xstrdup(known ? json_str(offer, "account", "") : "");
}

bool account_launched(const struct provider *p, const struct intent *in) {
    GP_AUTO_FREE char *account = account_of(in);
    return p->account_is_key || is_account(p, account);
}

/* The first thing that is in another account. */
struct elsewhere {
    char *what, *account; /* NULL: there is none */
    bool shown;           /* the credentials have shown a resource of the stack */
};

static void clear(struct elsewhere *e) {
    free(e->what);
    free(e->account);
}

static int look_at_resources(const struct run *run, const struct provider *p, const struct resource_list *seen,
                             struct elsewhere *e, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    for (size_t i = 0; r == 0 && i < known.list.len; i++) {
        const struct resource *k = &known.list.items[i];
        if (strcmp(k->provider, p->ops->name) != 0) continue;
        bool same = str_eq(k->account, p->account) || (seen != NULL && resource_list_has(seen, k));
        e->shown = e->shown || (p->account_is_key && same);
        if (e->what != NULL || k->state == RES_GONE || is_account(p, k->account)) continue;
        e->what = xstrdup(k->id);
        e->account = xstrdup(k->account);
    }
    return r;
}

static int look_at_launches(const struct run *run, const struct provider *p, struct elsewhere *e,
                            struct gp_error *err) {
    struct intent_list open = {0};
    int r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &open, err);
    for (size_t i = 0; r == 0 && e->what == NULL && i < open.list.len; i++) {
        const struct intent *in = &open.list.items[i];
        if (in->kind != RES_INSTANCE || !str_eq(in->provider, p->ops->name)) continue;
        GP_AUTO_FREE char *account = account_of(in);
        if (is_account(p, account)) continue;
        e->what = xasprintf("a launch of nodes %d..%d", in->slot_first, in->slot_first + in->slot_count - 1);
        e->account = GP_STEAL(account);
    }
    intent_list_clear(&open);
    return r;
}

int account_check(const struct run *run, const struct provider *p, const struct resource_list *seen,
                  struct gp_error *err) {
    struct elsewhere e = {0};
    if (p->account == NULL || run->stack.uid == NULL || (p->account_is_key && seen == NULL)) return 0;
    int r = look_at_resources(run, p, seen, &e, err);
    if (r == 0) r = look_at_launches(run, p, &e, err);
    if (r == 0 && e.what != NULL && !e.shown && p->account_is_key)
        r = gp_fail(err, GP_EAUTH,
                    "%s: '%s' was launched with another API key, and this one shows nothing of it: use a key of the "
                    "account that has %s",
                    p->ops->name, run->stack.name, e.what);
    else if (r == 0 && e.what != NULL && !e.shown)
        r = gp_fail(err, GP_EAUTH,
                    "%s: the credentials are for account %s, but %s of '%s' is in account %s: use "
                    "credentials for that account",
                    p->ops->name, p->account, e.what, run->stack.name, e.account);
    clear(&e);
    return r;
}
