/* SPDX-License-Identifier: Apache-2.0 */
/* The key with which a run writes and checks the proofs of its stack (model/proof.h). */
#ifndef GP_ENGINE_PROOF_KEY_H
#define GP_ENGINE_PROOF_KEY_H

#include "engine/run/run.h"

/* Fills run->proof from the stack's login key (login_key.h); run->stack.uid is set. A key whose signatures differ each
 * time (ECDSA, security keys) proves nothing elsewhere: then it is a random one in the stack's folder, and only this
 * machine can check what it wrote. make: login key and folder are made where they are absent. Without it
 * -GP_ENOTFOUND where this machine has neither; the first failure is kept and returned again, so that an agent prompts
 * once. Blocks on local files, or on the SSH agent for up to a minute. */
int run_proof_key(struct run *run, bool make, struct gp_error *err);
/* Whether run->proof is known, or can be had without making anything. */
bool run_has_proof_key(struct run *run);

#endif
