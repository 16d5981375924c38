/* SPDX-License-Identifier: Apache-2.0 */
/* One step of destroying a stack. */
#ifndef GP_ENGINE_DESTROY_H
#define GP_ENGINE_DESTROY_H

#include "engine/run/run.h"

/* In this order: a layer is destroyed when the earlier ones are gone. */
enum destroy_layer { DESTROY_MACHINES, DESTROY_OTHERS, DESTROY_CLAIM };

/* The resources whose destruction was requested, once each; `released`: hosts among them, which keep running. */
struct destroy_asked {
    struct strv ids;
    int released;
    bool unlisted; /* the next layer has ended, as far as the last list shows; the request makes sure */
    /* of the last layer, at providers that could not be listed: resources in refused requests, and the first cause */
    int refused;
    struct gp_error refusal;
};

/* Requests the destruction of one layer of `seen`, provider by provider, and does not wait for it. A refusal of a
 * provider that could not be listed is no error here, so that the others go on: it is counted. */
int destroy_layer(struct run *run, const struct resource_list *seen, enum destroy_layer layer,
                  struct destroy_asked *asked, struct gp_error *err);
/* The resource has the uid of the run's stack, and is one of run->only. */
bool destroy_is_ours(const struct run *run, const struct resource *r);
/* The claim is destroyed last. It stays while a place of its provider was not looked at, because it names all
 * places. */
bool destroy_claim_may_go(const struct run *run, const struct resource *claim);

#endif
