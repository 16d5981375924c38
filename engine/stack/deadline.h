/* SPDX-License-Identifier: Apache-2.0 */
/* The deadline of a stack as its tags have it, and its move: in the tags after the nodes, and in the journal last. The
 * verb's thread. */
#ifndef GP_ENGINE_DEADLINE_H
#define GP_ENGINE_DEADLINE_H

#include "engine/run/run.h"

/* Takes the deadline that the tags of the machines have: the earliest one. gc ends the stack by it, so that of the
 * journal does not count. Writes the journal under the stack's lock. */
int deadline_from_tags(struct run *run, struct gp_error *err);
/* Deadlines that do not agree, or that somebody began to move, and money: a sentence for the user each. */
void deadline_notes(struct run *run, struct strv *notes);
/* The first provider of the stack's resources that cannot move a deadline; NULL: all can. */
const struct provider_ops *deadline_cannot_move(const struct run *run);
/* Records that the deadline moves to run->moved_expires_s, before anything else knows it. */
int deadline_begin(struct run *run, struct gp_error *err);
/* Nothing has moved after all. */
int deadline_abandon(struct run *run, struct gp_error *err);
/* Writes run->stack.expires_s to the tags of everything that the stack has. */
int deadline_tag(struct run *run, struct gp_error *err);

#endif
