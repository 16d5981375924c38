/* SPDX-License-Identifier: Apache-2.0 */
/* The owner of a stack, the first of: --owner or GPUPROV_OWNER; the owner of a stack of that name in the journal; the
 * principal of a cloud that the spec names; the login name. The owner of the first claim stays the stack's. */
#ifndef GP_ENGINE_OWNER_H
#define GP_ENGINE_OWNER_H

#include "engine/run/run.h"

/* The journal's stack of this name, of `owner` alone where that is not NULL. -GP_ENOTFOUND: it has none; -GP_EUSAGE
 * with the owners: it has several. */
int owner_find_stack(struct journal *j, const char *name, const char *owner, struct stack *ret, struct gp_error *err);
/* Sets run->owner where the journal knows it; leaves it as it is where the journal does not. */
int owner_recall(struct run *run, struct gp_error *err);
/* Sets run->stack to the journal's, where the owner is known and the journal has it: *ret_known. ret_spec may be
 * NULL. */
int owner_recall_stack(struct run *run, char **ret_spec, bool *ret_known, struct gp_error *err);
/* -GP_EAUTH if this cloud's credentials stand for another owner than the journal's, and the stack has never had
 * anything there: it would buy nodes that only this journal finds. An owner from --owner is never refused, nor one that
 * is the principal of another open provider. Without a stack of that name in the journal 0. */
int owner_check_new_place(const struct run *run, const struct provider *p, struct gp_error *err);
/* The providers of the spec's offers, each once, in the order in which they are opened, since the first decides an
 * owner that is not known: clouds that have principals, as the registry lists them, then the others. The order of
 * the offers must not decide it: it may change while the stack is there. Names are borrowed. */
struct owner_order {
    VEC_OF(const char *) names;
};
void owner_order_of(const struct spec *spec, struct owner_order *ret);
void owner_order_clear(struct owner_order *o);

/* For looks at every provider without --owner. A stack at several clouds has one owner, the principal of the first
 * one, so at each provider the principals of all others are owners too. Strings are owned. */
struct owners_seen {
    VEC_OF(const struct provider_ops *) providers; /* that opened, each with */
    struct strv own;                               /* the owner it was opened for, at the same index */
    struct strv principals;                        /* of all of them, each once */
};
void owners_seen_add(struct owners_seen *s, const struct provider *p); /* s NULL: nothing */
/* Steps through the pairs of a provider and a principal of another one. *step begins with 0. False after the last. */
bool owners_seen_next(const struct owners_seen *s, size_t *step, const struct provider_ops **ret_ops,
                      const char **ret_owner);
void owners_seen_clear(struct owners_seen *s);

/* --- the account of the credentials --- */

/* False if the resource is known to be in another account than the provider's credentials. */
bool account_has(const struct provider *p, const struct resource *r);
/* False if the launch is known to be in another account. */
bool account_launched(const struct provider *p, const struct intent *in);
/* -GP_EAUTH if the journal has a resource, or a launch without a known outcome, of the run's stack in another account.
 * seen: what was listed, or NULL before the list. Where the account stands for an API key, only a list decides: a
 * resource in it shows that another key is of the same account. */
int account_check(const struct run *run, const struct provider *p, const struct resource_list *seen,
                  struct gp_error *err);

#endif
