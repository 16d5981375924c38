/* SPDX-License-Identifier: Apache-2.0 */
/* Ownership of a cloud's resource, by its decoded tags: gpuprov neither uses nor destroys others. Names as owners.
 * Pure except owner_of_login; any thread. */
#ifndef GP_COMMON_OWNERSHIP_H
#define GP_COMMON_OWNERSHIP_H

#include "model/tags.h"
#include "providers/provider.h"

/* True for a resource of this provider's owner, or one whose owner the journal did not record. */
bool cloud_is_ours(const struct provider *p, const struct resource *r);
/* -GP_EEXISTS when a resource with the stack's name is not the stack's: no tags of gpuprov, malformed ones, or those
 * of another stack or owner. what: "aws: the security group 'x' (sg-1)". uid NULL: any that decodes. */
int cloud_check_owner(const struct tags *t, const char *what, const struct stack *s, const char *uid,
                      struct gp_error *err);

/* Gives s the form of an owner but for its length: each byte that form_owner does not allow becomes '-', or 'x' at the
 * front. */
void owner_to_form(char *s);
/* The owner at a provider without principals: the login name in that form, cut to its length, or the user's number
 * where there is no name. Caller frees. */
char *owner_of_login(void);

#endif
