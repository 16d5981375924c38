/* SPDX-License-Identifier: Apache-2.0 */
/* Intents of what a cloud makes, before the call that makes it, and what their offer says afterwards. Pure. */
#ifndef GP_COMMON_INTENTS_H
#define GP_COMMON_INTENTS_H

#include "providers/provider.h"

/* The token of a launch: 64 hex digits of who, what and where, so that only the same launch has the same. Caller
 * frees. */
char *cloud_launch_token(const struct create_req *req, const char *account);
/* An open intent of the gang. token and body are taken over. */
void cloud_intent_nodes(const struct create_req *req, char *token, char *body, struct intent *ret);
/* Of a thing that is no node: its name is its token. Copies. */
void cloud_intent_thing(const struct stack *s, const char *provider, const char *region, enum resource_kind kind,
                        const char *name, const char *body, struct intent *ret);
/* What an intent keeps of its offer; and what was known of it, -1 where it was not. */
char *cloud_offer_json(const struct offer *o); /* caller frees */
void cloud_offer_facts(const struct intent *in, double *ret_price_usd_per_h, int *ret_gpus);

#endif
