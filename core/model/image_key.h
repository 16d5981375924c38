/* SPDX-License-Identifier: Apache-2.0 */
/* The key of the proofs of baked images (proof.h): all machines with the same STATE/signing_key have the same one.
 * Blocks on local files; any thread. */
#ifndef GP_MODEL_IMAGE_KEY_H
#define GP_MODEL_IMAGE_KEY_H

#include "base/error.h"
#include "model/proof.h"

/* make: a missing signing key is made. Else ret->known is false without one, and that is no error. -GP_EUSAGE,
 * -GP_EIO: the file has no key, or cannot be read or written. */
int image_key_load(const char *state_dir, bool make, struct proof_key *ret, struct gp_error *err);

#endif
