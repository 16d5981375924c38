/* SPDX-License-Identifier: Apache-2.0 */
/* Proofs: tags that only a holder of a stack's login key can write. Everyone who may launch or tag a machine in the
 * account can copy a stack's other tags, so those are a claim. A proof is an HMAC-SHA256 over what it proves, cut to 16
 * bytes (NIST SP 800-107, 5.3.4: 2^-128 for a guess), as hex, so that it fits the label of every cloud. Pure; any
 * thread. */
#ifndef GP_MODEL_PROOF_H
#define GP_MODEL_PROOF_H

#include "model/stack.h"

#define PROOF_SIZE 33       /* bytes of a proof's text with its NUL */
#define PROOF_TOKEN_SIZE 65 /* bytes of a launch token's text with its NUL */

/* The key of one stack, from its login key. Secret: it is never stored, printed or sent. */
struct proof_key {
    bool known; /* false: this machine can neither write nor check a proof */
    unsigned char bytes[32];
};
/* From n secret bytes. purpose: keys of two purposes differ. */
void proof_key_make(struct proof_key *ret, const char *purpose, const void *secret, size_t n);
/* Makes it the key of one stack: with it nothing is written or holds for another one, whatever uid its claim has. */
void proof_key_bind(struct proof_key *k, const char *owner, const char *stack);
void proof_key_clear(struct proof_key *k);
#define GP_AUTO_PROOF_KEY GP_CLEANUP(proof_key_clear)

/* The functions below need a key that is known. */

/* The idempotency token of a launch: 64 hex digits. text: everything that two equal launches have in common. Nobody
 * without the key can send a slot's token first. */
void proof_token(const struct proof_key *k, const char *text, char ret[PROOF_TOKEN_SIZE]);
/* Tag "launch", written by the create call of nodes FIRST..FIRST+COUNT-1. It names no machine, because the machine has
 * no id yet: a copy of it on another machine of the same slots and attempt is not told apart. So it never makes a
 * machine trusted; it proves that a launch with these slots and this attempt was made by this stack. */
void proof_of_launch(const struct proof_key *k, const char *uid, int slot_first, int slot_count, int attempt,
                     char ret[PROOF_SIZE]);
bool proof_launch_holds(const struct proof_key *k, const struct resource *r);
/* Tag "proof", written once a machine has its own host key: this machine, by the cloud's id, is node `slot` of the
 * stack and has the host key with this fingerprint. */
void proof_of_machine(const struct proof_key *k, const char *uid, const char *provider, const char *id, int slot,
                      const char *fingerprint, char ret[PROOF_SIZE]);
bool proof_machine_holds(const struct proof_key *k, const struct resource *r);
/* Tag "deadline", written with each tag "expires": equal on all resources of a stack. */
void proof_of_deadline(const struct proof_key *k, const char *uid, int64_t expires_s, char ret[PROOF_SIZE]);
bool proof_deadline_holds(const struct proof_key *k, const struct resource *r);
/* Tag "proof" of a baked image: this image, by the cloud's id, has these facts (model/image.h). */
void proof_of_image(const struct proof_key *k, const struct resource *image, char ret[PROOF_SIZE]);
bool proof_image_holds(const struct proof_key *k, const struct resource *image);

#endif
