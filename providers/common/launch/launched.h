/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which machines of a list a launch made. Everyone who may launch and tag a machine can copy the tags of a
 * stack, so tags select candidates only: proofs (model/proof.h) and the number of candidates decide. Pure; any
 * thread. */
#ifndef GP_COMMON_LAUNCHED_H
#define GP_COMMON_LAUNCHED_H

#include "providers/provider.h"

/* -GP_EINTERNAL: a launch without a key. There is none without proofs. */
int launched_need_key(const struct proof_key *key, struct gp_error *err);

/* Makes r the index-th machine of the intent's launch, as the cloud's reply or the name in its request says. Its tags
 * are of no account then: somebody may have edited them. */
void launched_identify(const struct intent *in, const struct stack *stack, int index, struct resource *r);

/* By its tags a machine of the intent: its uid, its attempt and one of its slots. */
bool launched_claims(const struct intent *in, const struct resource *r);
/* It claims that, and its tag "launch" is that of the intent. A copy on another machine is not told apart. */
bool launched_proven(const struct proof_key *key, const struct intent *in, const struct resource *r);

/* Appends copies of the machines of `seen` that the intent's launch made, as ours: those of proven launches, where a
 * slot has one. -GP_EUNKNOWN: a slot has several, and none is taken; err names them. */
int launched_pick(const struct proof_key *key, const struct intent *in, const struct resource_list *seen,
                  struct resource_list *ret, struct gp_error *err);

/* The cloud refused the intent's request because its token or name is taken. Appends copies of the machines, as
 * ours and of another run, if every slot has one with its own proof (tag "proof"). -GP_EREACH: not yet, or never:
 * then nothing shows that the other run is one of the stack's. No other offer is tried (scope NONE). stack: its
 * name. */
int launched_by_other_run(const struct proof_key *key, const struct intent *in, const char *stack,
                          const struct resource_list *seen, struct resource_list *ret, struct gp_error *err);

#endif
