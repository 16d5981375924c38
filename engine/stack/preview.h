/* SPDX-License-Identifier: Apache-2.0 */
/* What `down` would destroy, and whether the given spec is one of that stack. Changes nothing. */
#ifndef GP_ENGINE_PREVIEW_H
#define GP_ENGINE_PREVIEW_H

#include "engine/run/run.h"

/* Adds what a teardown of the reconciled run would destroy, earlier stacks of the name included. Resources in places
 * that were not looked at are added as the journal has them. */
int preview_list(struct run *run, struct resource_list *ret, struct gp_error *err);
/* The places of these resources at providers that the spec has no offer for: "local here (4 nodes)". NULL: none, or the
 * stack was launched from this spec. An edited spec is one of its stack while it offers all providers. Caller frees. */
char *preview_other_places(const struct run *run, const struct resource_list *l, const struct spec *spec);

#endif
