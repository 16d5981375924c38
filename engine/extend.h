/* SPDX-License-Identifier: Apache-2.0 */
/* Private to engine/: the part of a deadline's move that `extend` and `up` share. */
#ifndef GP_ENGINE_EXTEND_H
#define GP_ENGINE_EXTEND_H

#include "engine/run/run.h"

/* Moves the deadline of the nodes that end themselves to run->moved_expires_s (0: nothing to do). The tags and the
 * journal come after it. Under the stack's lock; blocks on the nodes. */
int deadline_move_nodes(struct run *run, struct gp_error *err);

#endif
