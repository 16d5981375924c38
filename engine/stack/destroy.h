/* SPDX-License-Identifier: Apache-2.0 */
/* One step of ending a stack: what may end now is asked to end. */
#ifndef GP_ENGINE_DESTROY_H
#define GP_ENGINE_DESTROY_H

#include "engine/run/run.h"

/* In this order: nothing of a layer ends while something of an earlier one is there. */
enum destroy_layer { DESTROY_MACHINES, DESTROY_OTHERS, DESTROY_CLAIM };

/* What was asked to end, each once; `released`: hosts among them, which go on running. */
struct destroy_asked {
    struct strv ids;
    int released;
};

/* Starts the end of one layer of `seen`, provider by provider, and returns. A refusal of a provider that could not
 * be listed is no error here: the end of the run reports that provider. */
int destroy_layer(struct run *run, const struct resource_list *seen, enum destroy_layer layer,
                  struct destroy_asked *asked, struct gp_error *err);
/* It bears the uid of the run's stack; any does where the run knows none. */
bool destroy_is_ours(const struct run *run, const struct resource *r);
/* The claim goes last: while a place of its provider was not looked at it stays, and with it the list of all
 * places. */
bool destroy_claim_may_go(const struct run *run, const struct resource *claim);

#endif
