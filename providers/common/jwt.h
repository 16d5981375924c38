/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Web Tokens (RFC 7515, 7519) signed with RSA and SHA-256, and base64url. Pure; any thread. */
#ifndef GP_COMMON_JWT_H
#define GP_COMMON_JWT_H

#include "base/error.h"
#include "base/json.h"
#include "base/secret.h"
#include "base/str.h"

/* header: further members of the header ("kid", "x5t"), may be NULL; "alg" and "typ" are set. key: a private RSA key in
 * PEM form. ret: the token, a secret. -GP_EAUTH: the key is not one. */
int jwt_rs256(const struct secret *key, json_t *header, const json_t *claims, struct secret *ret, struct gp_error *err);
void base64url(struct str *out, const void *data, size_t n); /* without padding */

#endif
