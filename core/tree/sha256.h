/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 and HMAC-SHA256 (FIPS 180-4, RFC 2104) for the static agent, which links no library, and for
 * both sides of a transfer (core/tree). hash.h has SHA-256 through OpenSSL. */
#ifndef GP_TREE_SHA256_H
#define GP_TREE_SHA256_H

#include "base/gp_base.h"

struct sha256 {
    uint32_t h[8];
    uint64_t total;
    unsigned char block[64];
    size_t used;
};
void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_end(struct sha256 *s, unsigned char out[32]);
void hmac_sha256(const void *key, size_t key_len, const void *msg, size_t n, unsigned char out[32]);
bool mem_equal_ct(const void *a, const void *b, size_t n); /* in constant time */

#endif
