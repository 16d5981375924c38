/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a stack may continue, takes its identity and claim, and records it. Under the stack's lock. */
#ifndef GP_ENGINE_CLAIM_H
#define GP_ENGINE_CLAIM_H

#include "engine/stack/reconcile.h"

/* Finds the changes of the spec of a stack with machines (run->changes, run->moved_expires_s). Refuses (-GP_EUSAGE)
 * machines that are past their deadline, and changes that cannot be applied to them. -GP_EBUSY: it is not the stack
 * that the engine continues (engine.continues). */
int claim_may_go_on(struct run *run, struct gp_error *err);
/* The same, but for deadlines: refuses only changes that need other machines. */
int claim_same_machines(struct run *run, struct gp_error *err);
enum { CLAIM_NOTE = 200 }; /* bytes of a note */
/* The note for nodes that were launched with another spec, if the journal does not have that. */
bool claim_launch_unknown(const struct run *run, char *dst, size_t n);
/* True: its nodes carry no unit, although this run works for one; dst gets a note for the user. */
bool claim_has_no_unit(const struct run *run, char *dst, size_t n);
/* True: the stack was adopted, its deadline is not that of the spec and cannot move; dst gets a note for the user. */
bool claim_keeps_deadline(const struct run *run, char *dst, size_t n);
/* Whether nodes that were validated stay so with this spec. Call it after claim_may_go_on. */
bool claim_keeps_ready(const struct run *run);
/* Destroys the resources of an expired stack without machines, and then clears `found`. */
int claim_retire_expired(struct run *run, struct finding *found, struct gp_error *err);
/* Takes the existing identity and claim of a stack without machines, or makes new ones. With machines: applies the
 * access and the deadline of the spec to them. */
int claim_take(struct run *run, struct gp_error *err);
/* Records stack and spec in the journal. Nodes of another spec start again. */
int claim_remember(struct run *run, struct gp_error *err);
/* The same, but the nodes stay as they are. */
int claim_remember_spec(struct run *run, struct gp_error *err);
/* Removes a claim that this journal made and that has no machines; reports a failure. */
void claim_take_back(struct run *run);

#endif
