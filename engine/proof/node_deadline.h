/* SPDX-License-Identifier: Apache-2.0 */
/* Moves the deadline that nodes keep themselves. In the verb's thread, with one thread per node inside. */
#ifndef GP_ENGINE_NODE_DEADLINE_H
#define GP_ENGINE_NODE_DEADLINE_H

#include "engine/run/run.h"

/* Moves it to run->moved_expires_s, with the other limits of run->spec, on every node that ends itself: on all of them,
 * or on none. A node that does not answer, cannot store it or is ending already is an error that names it, and then
 * nothing has moved; a node that could not be moved back is reported, and *ret_mixed is set. Nodes that somebody else
 * ends are left alone. */
int node_deadline_move(struct run *run, bool *ret_mixed, struct gp_error *err);

#endif
