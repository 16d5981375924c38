/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a stack may go on, under which identity, and what is remembered of it. Under the stack's lock. */
#ifndef GP_ENGINE_CLAIM_H
#define GP_ENGINE_CLAIM_H

#include "engine/stack/reconcile.h"

/* Refuses (-GP_EUSAGE) to go on with machines that were bought for another spec or are past their
 * deadline. */
int claim_may_go_on(const struct run *run, struct gp_error *err);
/* Ends what an expired stack without machines left, and clears `found` then. */
int claim_retire_expired(struct run *run, struct finding *found, struct gp_error *err);
/* Identity and claim of a stack without machines: the one that is there, or a new one. */
int claim_take(struct run *run, struct gp_error *err);
/* The journal's stack and spec are what the nodes will be made into from here on. */
int claim_remember(struct run *run, struct gp_error *err);
/* Removes a claim that this journal made and under which nobody has machines; reports when it cannot. */
void claim_take_back(struct run *run);

#endif
