/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a stack may continue, takes its identity and claim, and records it. Under the stack's lock. */
#ifndef GP_ENGINE_CLAIM_H
#define GP_ENGINE_CLAIM_H

#include "engine/stack/reconcile.h"

/* Refuses (-GP_EUSAGE) machines that were launched for another spec or are past their deadline. */
int claim_may_go_on(const struct run *run, struct gp_error *err);
/* Destroys the resources of an expired stack without machines, and then clears `found`. */
int claim_retire_expired(struct run *run, struct finding *found, struct gp_error *err);
/* Takes the existing identity and claim of a stack without machines, or makes new ones. */
int claim_take(struct run *run, struct gp_error *err);
/* Records stack and spec in the journal. Nodes of another spec start again. */
int claim_remember(struct run *run, struct gp_error *err);
/* True: nodes run, so the spec's limits.ttl changes no deadline until they are gone; dst gets a note for the user. */
bool claim_keeps_deadline(const struct run *run, char *dst, size_t n);
/* Removes a claim that this journal made and that has no machines; reports a failure. */
void claim_take_back(struct run *run);

#endif
