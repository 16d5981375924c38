/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, SHA-1 and base64 through OpenSSL, and the hash of tables. Pure but for hash_key_init; any thread. */
#ifndef GP_BASE_HASH_H
#define GP_BASE_HASH_H

#include "base/str.h"

#define SHA256_BYTES 32

/* Aborts when this OpenSSL has no SHA-256: nothing works without it. p may be NULL when n is 0. */
void sha256_bytes(const void *p, size_t n, unsigned char ret[SHA256_BYTES]);
/* HMAC (RFC 2104). Aborts as sha256_bytes. key and p may be NULL when their length is 0. */
void sha256_hmac(const void *key, size_t key_n, const void *p, size_t n, unsigned char ret[SHA256_BYTES]);
/* Only where a protocol names a certificate by it (the x5t of a JSON Web Token). False: OpenSSL has none. */
bool sha1_bytes(const void *p, size_t n, unsigned char ret[20]);
void sha256_hex(const void *p, size_t n, char ret[65]); /* lower case */
/* In pieces. Aborts as sha256_bytes. */
struct sha256_sum {
    void *ctx_; /* NULL: not begun */
};
void sha256_sum_begin(struct sha256_sum *s);
void sha256_sum_add(struct sha256_sum *s, const void *p, size_t n);
void sha256_sum_end(struct sha256_sum *s, unsigned char ret[SHA256_BYTES]); /* frees */
void sha256_sum_clear(struct sha256_sum *s);                                /* of one that was not ended */
#define GP_AUTO_SHA256_SUM GP_CLEANUP(sha256_sum_clear)

/* For tables of foreign texts: SipHash-2-4. Without the key nobody can choose texts that share a place, as is easy for
 * a hash like FNV. Not for what is stored or sent. */
struct hash_key {
    uint64_t k[2];
};
void hash_key_init(struct hash_key *k); /* random. Aborts when there are no random bytes. */
uint64_t hash_keyed(const struct hash_key *k, const void *p, size_t n);

char *base64_text(const void *p, size_t n); /* one line; caller frees */
/* Strict: whole groups of four, padding only at the end, nothing else. False: not base64. ret: zeroed or
 * initialised, appended to. */
bool base64_bytes(const char *text, size_t n, struct str *ret);

#endif
