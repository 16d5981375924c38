/* SPDX-License-Identifier: Apache-2.0 */
/* Derives the key from a signature, which is deterministic (RFC 8032): the signing key itself is used for nothing
 * else than to sign. */
#include "base/gp_base.h"

#include "model/image_key.h"

#include "base/sign.h"

#define PURPOSE "gpuprov image key 1"

int image_key_load(const char *state_dir, bool make, struct proof_key *ret, struct gp_error *err) {
    GP_AUTO_SIGN_KEY struct sign_key key = {0};
    unsigned char signature[SIGN_BYTES];
    struct gp_error why = {0};
    *ret = (struct proof_key){0};
    int r = sign_key_of_folder(state_dir, make, &key, &why);
    if (r == -GP_ENOTFOUND && !make) return 0;
    if (r == 0) r = sign_data(&key, PURPOSE, strlen(PURPOSE), signature, &why);
    if (r == 0) proof_key_make(ret, PURPOSE, signature, sizeof signature);
    explicit_bzero(signature, sizeof signature);
    if (r != 0 && err != NULL) *err = why;
    return r;
}
