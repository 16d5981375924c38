/* SPDX-License-Identifier: Apache-2.0 */
/* What the journal and the state folder keep of a stack that has ended. */
#ifndef GP_ENGINE_FORGET_H
#define GP_ENGINE_FORGET_H

#include "engine/run/run.h"

/* The note of tombstones that `down` left: what belongs to them may be ended by gc. */
#define FORGET_NOTE "ended by down"

/* The run's own stack is gone: its login key, its records and its uid are forgotten. */
int forget_stack(struct run *run, struct gp_error *err);
/* The stack `uid` that the journal knew was ended by somebody else: its open launches become tombstones,
 * the rest is forgotten, its login key too. */
int forget_ended(const struct run *run, const char *uid, struct gp_error *err);

#endif
