/* SPDX-License-Identifier: Apache-2.0 */
/* Intents of resources, built before the call that creates them, and the offers kept in them. Pure. */
#ifndef GP_COMMON_INTENTS_H
#define GP_COMMON_INTENTS_H

#include "model/tags.h"
#include "providers/provider.h"

/* The token of a launch: 64 hex digits from the stack's proof key, request and place, so that only equal launches of
 * holders of the key share it, and nobody else can send it first. Caller frees. -GP_EINTERNAL: no key. */
int cloud_launch_token(const struct create_req *req, const char *account, char **ret, struct gp_error *err);
/* The tags of the launch of those slots. The request has a key. Initialises ret; caller clears. */
void cloud_launch_tags(const struct create_req *req, int slot_first, int slot_count, struct tags *ret);
/* An open intent of the gang. Takes ownership of token and body. account: of the credentials; NULL: the cloud has no
 * accounts. It is kept in the intent as the member "account" of its offer. */
void cloud_intent_nodes(const struct create_req *req, const char *account, char *token, char *body, struct intent *ret);
/* An intent of a resource that is not a node: its name is its token. Copies. */
void cloud_intent_thing(const struct stack *s, const char *provider, const char *region, enum resource_kind kind,
                        const char *name, const char *body, struct intent *ret);
/* The offer as kept in an intent, and its values read back, -1 where unknown. */
char *cloud_offer_json(const struct offer *o); /* caller frees */
void cloud_offer_facts(const struct intent *in, double *ret_price_usd_per_h, int *ret_gpus);

#endif
