/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 and HMAC without a library: the static agent has none. Uses the CPU's own instructions where it has them
 * (x86 SHA extensions, about 1.5 GB/s), else plain C (about 0.25 GB/s). Any thread. */
#include "base/gp_base.h"

#include "tree/sha256.h"

static const uint32_t round_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t ror(uint32_t v, unsigned n) { return (v >> n) | (v << (32 - n)); }

static void one_block(uint32_t h[8], const unsigned char *p) {
    uint32_t w[64];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (ror(a, 7) ^ ror(a, 18) ^ (a >> 3)) + w[i - 7] + (ror(b, 17) ^ ror(b, 19) ^ (b >> 10));
    }
    uint32_t v[8];
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = v[7] + (ror(v[4], 6) ^ ror(v[4], 11) ^ ror(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) +
                      round_k[i] + w[i];
        uint32_t t2 = (ror(v[0], 2) ^ ror(v[0], 13) ^ ror(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>

/* Whether the CPU has the SHA extensions; found out once, because CPUID traps in a virtual machine. */
static bool has_sha_ni(void) {
    static atomic_int known; /* 0: not yet, 1: no, 2: yes; each thread finds the same */
    int k = atomic_load_explicit(&known, memory_order_relaxed);
    if (k != 0) return k == 2;
    unsigned a = 0, b = 0, c = 0, d = 0;
    bool yes = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) && (c & bit_SSSE3) &&
               __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
    atomic_store_explicit(&known, yes ? 2 : 1, memory_order_relaxed);
    return yes;
}

/* The instructions keep the state as ABEF and CDGH, and take four rounds' words at a time. */
__attribute__((target("sha,sse4.1,ssse3"))) static void blocks_sha_ni(uint32_t h[8], const unsigned char *p, size_t n) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)h); /* dcba */
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(h + 4));
    low = _mm_shuffle_epi32(low, 0xB1);
    high = _mm_shuffle_epi32(high, 0x1B);
    __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xF0);
    for (; n > 0; n--, p += 64) {
        __m128i abef_was = abef, cdgh_was = cdgh, w[4];
#pragma GCC unroll 16 /* the words stay in registers */
        for (int i = 0; i < 16; i++) {
            if (i < 4) {
                w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)), swap);
            } else { /* words 4i to 4i+3 of the schedule, from the last sixteen */
                __m128i was = _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4);
                __m128i next = _mm_add_epi32(_mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]), was);
                w[i & 3] = _mm_sha256msg2_epu32(next, w[(i + 3) & 3]);
            }
            __m128i k = _mm_loadu_si128((const __m128i *)(const void *)(round_k + 4 * i));
            __m128i sum = _mm_add_epi32(w[i & 3], k);
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
        }
        abef = _mm_add_epi32(abef, abef_was);
        cdgh = _mm_add_epi32(cdgh, cdgh_was);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)(void *)h, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128((__m128i *)(void *)(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

static void blocks(uint32_t h[8], const unsigned char *p, size_t n) {
#if defined(__x86_64__)
    if (has_sha_ni()) {
        blocks_sha_ni(h, p, n);
        return;
    }
#endif
    for (; n > 0; n--, p += 64) one_block(h, p);
}

void sha256_init(struct sha256 *s) {
    *s = (struct sha256){
        .h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(struct sha256 *s, const void *p, size_t n) {
    const unsigned char *b = p;
    s->total += n;
    if (s->used > 0) {
        size_t take = GP_MIN(n, sizeof s->block - s->used);
        memcpy(s->block + s->used, b, take);
        s->used += take;
        b += take;
        n -= take;
        if (s->used < sizeof s->block) return;
        blocks(s->h, s->block, 1);
        s->used = 0;
    }
    blocks(s->h, b, n / sizeof s->block);
    b += n - n % sizeof s->block;
    n %= sizeof s->block;
    if (n > 0) memcpy(s->block, b, n);
    s->used = n;
}

void sha256_end(struct sha256 *s, unsigned char out[32]) {
    uint64_t bits = s->total * 8;
    unsigned char pad[72] = {0x80};
    size_t n = (s->used < 56 ? 56 : 120) - s->used;
    for (unsigned i = 0; i < 8; i++) pad[n + i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(s, pad, n + 8);
    for (unsigned i = 0; i < 32; i++) out[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void hmac_sha256(const void *key, size_t key_len, const void *msg, size_t n, unsigned char out[32]) {
    unsigned char k[64] = {0}, ipad[64], opad[64];
    struct sha256 s;
    if (key_len > sizeof k) {
        sha256_init(&s);
        sha256_add(&s, key, key_len);
        sha256_end(&s, k);
    } else {
        memcpy(k, key, key_len);
    }
    for (size_t i = 0; i < sizeof k; i++) {
        ipad[i] = k[i] ^ 0x36;
        opad[i] = k[i] ^ 0x5c;
    }
    unsigned char inner[32];
    sha256_init(&s);
    sha256_add(&s, ipad, sizeof ipad);
    sha256_add(&s, msg, n);
    sha256_end(&s, inner);
    sha256_init(&s);
    sha256_add(&s, opad, sizeof opad);
    sha256_add(&s, inner, sizeof inner);
    sha256_end(&s, out);
    explicit_bzero(k, sizeof k);
}

bool mem_equal_ct(const void *a, const void *b, size_t n) {
    const volatile unsigned char *x = a, *y = b;
    unsigned char diff = 0;
    for (size_t i = 0; i < n; i++) diff = (unsigned char)(diff | (x[i] ^ y[i]));
    return diff == 0;
}
