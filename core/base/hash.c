/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, SHA-1 and base64 through OpenSSL, and the hash of tables. Pure but for hash_key_init; any thread. */
#include "base/gp_base.h"

#include "base/hash.h"

#include "base/fs.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

static void need(int ok) {
    if (ok == 1) return;
    fputs("gpuprov: this OpenSSL has no SHA-256\n", stderr);
    abort();
}

void sha256_bytes(const void *p, size_t n, unsigned char ret[SHA256_BYTES]) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    need(EVP_Digest(p, n, digest, &len, EVP_sha256(), NULL) == 1 && len == SHA256_BYTES);
    memcpy(ret, digest, SHA256_BYTES);
}

void sha256_hmac(const void *key, size_t key_n, const void *p, size_t n, unsigned char ret[SHA256_BYTES]) {
    unsigned len = 0;
    need(HMAC(EVP_sha256(), key_n > 0 ? key : "", (int)key_n, p, n, ret, &len) != NULL && len == SHA256_BYTES);
}

void sha256_sum_begin(struct sha256_sum *s) {
    s->ctx_ = EVP_MD_CTX_new();
    need(s->ctx_ != NULL && EVP_DigestInit_ex(s->ctx_, EVP_sha256(), NULL) == 1);
}

void sha256_sum_add(struct sha256_sum *s, const void *p, size_t n) { need(EVP_DigestUpdate(s->ctx_, p, n)); }

void sha256_sum_end(struct sha256_sum *s, unsigned char ret[SHA256_BYTES]) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    need(EVP_DigestFinal_ex(s->ctx_, digest, &len) == 1 && len == SHA256_BYTES);
    memcpy(ret, digest, SHA256_BYTES);
    sha256_sum_clear(s);
}

void sha256_sum_clear(struct sha256_sum *s) {
    EVP_MD_CTX_free(s->ctx_);
    s->ctx_ = NULL;
}

bool sha1_bytes(const void *p, size_t n, unsigned char ret[20]) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    if (EVP_Digest(p, n, digest, &len, EVP_sha1(), NULL) != 1 || len != 20) return false;
    memcpy(ret, digest, 20);
    return true;
}

void sha256_hex(const void *p, size_t n, char ret[65]) {
    unsigned char digest[SHA256_BYTES];
    sha256_bytes(p, n, digest);
    str_hex(ret, digest, sizeof digest);
}

/* --- SipHash-2-4 (J.-P. Aumasson, D. J. Bernstein) --- */

static uint64_t rotate(uint64_t x, unsigned bits) { return x << bits | x >> (64 - bits); }

static void sip_rounds(uint64_t v[4], int n) {
    for (int i = 0; i < n; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

/* At most 8 bytes, the first one lowest. */
static uint64_t sip_word(const unsigned char *p, size_t n) {
    uint64_t w = 0;
    for (size_t i = 0; i < n; i++) w |= (uint64_t)p[i] << (8 * i);
    return w;
}

static void sip_add(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    sip_rounds(v, 2);
    v[0] ^= word;
}

uint64_t hash_keyed(const struct hash_key *k, const void *p, size_t n) {
    const unsigned char *b = p;
    uint64_t v[4] = {k->k[0] ^ 0x736f6d6570736575U, k->k[1] ^ 0x646f72616e646f6dU, k->k[0] ^ 0x6c7967656e657261U,
                     k->k[1] ^ 0x7465646279746573U};
    size_t at = 0;
    for (; n - at >= 8; at += 8) sip_add(v, sip_word(b + at, 8));
    sip_add(v, (uint64_t)n << 56 | (n > at ? sip_word(b + at, n - at) : 0));
    v[2] ^= 0xff;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void hash_key_init(struct hash_key *k) {
    if (fs_random(k, sizeof *k, NULL) == 0) return;
    fputs("gpuprov: this system gives no random bytes\n", stderr);
    abort();
}

char *base64_text(const void *p, size_t n) {
    char *out = xmalloc((n + 2) / 3 * 4 + 1);
    EVP_EncodeBlock((unsigned char *)out, p, (int)n);
    return out;
}

bool base64_bytes(const char *text, size_t n, struct str *ret) {
    size_t pad = n >= 1 && text[n - 1] == '=' ? n >= 2 && text[n - 2] == '=' ? 2 : 1 : 0;
    if (n % 4 != 0 || n > (size_t)INT32_MAX) return false;
    for (size_t i = 0; i < n - pad; i++) {
        char c = text[i];
        bool ok = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
        if (!ok) return false;
    }
    str_add(ret, "");
    if (n == 0) return true;
    GP_AUTO_FREE unsigned char *raw = xmalloc(n / 4 * 3);
    int got = EVP_DecodeBlock(raw, (const unsigned char *)text, (int)n);
    bool ok = got >= 0 && str_add_mem(ret, raw, (size_t)got - pad);
    explicit_bzero(raw, n / 4 * 3); /* it may be a key */
    return ok;
}
