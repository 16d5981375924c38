/* SPDX-License-Identifier: Apache-2.0 */
/* Ed25519 signatures through OpenSSL, the keys' text forms. Public keys are base64 of their DER
 * form, which is the middle line of their PEM file; a fingerprint is SHA256: and the base64 of that form's
 * SHA-256, as `openssl pkey -pubin -outform DER | openssl dgst -sha256 -binary | base64` prints it. */
#ifndef GP_BASE_SIGN_H
#define GP_BASE_SIGN_H

#include "base/error.h"
#include "base/secret.h"
#include "base/str.h"

#define SIGN_BYTES 64

struct sign_public {
    char base64[64];      /* "MCowBQYDK2VwAyEA..." */
    char fingerprint[56]; /* "SHA256:..." */
};
struct sign_key {
    struct secret pem; /* PKCS#8 */
    struct sign_public pub;
};
int sign_key_make(struct sign_key *ret, struct gp_error *err);
/* From the text of a private key file. -GP_EUSAGE: not an Ed25519 key without a pass phrase. */
int sign_key_load(const char *pem, size_t n, struct sign_key *ret, struct gp_error *err);
void sign_key_clear(struct sign_key *k);
#define GP_AUTO_SIGN_KEY GP_CLEANUP(sign_key_clear)
/* The public half as a PEM file's text. Caller frees. */
char *sign_public_pem(const struct sign_public *pub);
/* From PEM text or the bare base64. False: not an Ed25519 public key. */
bool sign_public_parse(const char *text, struct sign_public *ret);

int sign_data(const struct sign_key *key, const void *data, size_t n, unsigned char ret[SIGN_BYTES],
              struct gp_error *err);
bool sign_holds(const struct sign_public *pub, const void *data, size_t n, const unsigned char *sig, size_t sig_n);

/* The signing key of a folder: DIR/signing_key (0600), with its public half DIR/signing_key.pub beside it. Several
 * processes may make it at once, and all get the same one. make: a missing key is made. Else -GP_ENOTFOUND. -GP_EUSAGE,
 * -GP_EIO: the file has no key, or cannot be read. */
int sign_key_of_folder(const char *dir, bool make, struct sign_key *ret, struct gp_error *err);

#endif
