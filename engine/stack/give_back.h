/* SPDX-License-Identifier: Apache-2.0 */
/* Destroys nodes of a gang, so that others can take their place. */
#ifndef GP_ENGINE_GIVE_BACK_H
#define GP_ENGINE_GIVE_BACK_H

#include "engine/run/run.h"

/* Destroys the machines that the slots in `slots` (n of them) have now, and waits until each is terminating; run->nodes
 * then has none of them. The event: "2 nodes WHICH are destroyed". -GP_EBILLED with the id if one of them does not
 * terminate in time. */
int give_back(struct run *run, const int *slots, size_t n, const char *which, struct gp_error *err);

#endif
