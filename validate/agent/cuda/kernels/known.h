/* SPDX-License-Identifier: Apache-2.0 */
/* The operands of known-answer products, the same in kernels and on the host: small integers, exact in
 * every type, in a product whose every partial sum is exact in fp32 whatever the order. A's row i is
 * that of i modulo KNOWN_ROWS, B's column j that of j modulo KNOWN_COLS, so that the whole answer is a table of
 * KNOWN_ROWS x KNOWN_COLS integers; both are odd primes, so no two tiles are equal. Plain C and CUDA C. */
#ifndef GP_KERNEL_KNOWN_H
#define GP_KERNEL_KNOWN_H

#include "kportable.h"

enum { KNOWN_ROWS = 61, KNOWN_COLS = 67 };

/* Element types in memory; the numbers are those of enum gemm_type. */
enum known_type { KNOWN_F32 = 0, KNOWN_TF32, KNOWN_F16, KNOWN_BF16, KNOWN_E4M3 };

/* Magnitudes: at even depth A's are at most `big` and B's at most `small`, at odd depth the other way
 * round, so that k * big * small bounds the sum of absolute products. */
struct known_limits {
    int big, small;
};

KFUNC ku64 known_hash(ku64 x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* outer: row of A (is_b 0) or column of B (is_b 1), already reduced; depth: the index summed over. */
KFUNC int known_value(struct known_limits lim, int is_b, ki64 outer, ki64 depth, ku64 seed) {
    int most = (depth & 1) == is_b ? lim.big : lim.small;
    ku64 h = known_hash(seed + (ku64)is_b * 0x632be59bd9b4e019ull + (ku64)outer * 0x100000000ull + (ku64)depth);
    return (int)((h >> 20) % (ku64)(2 * most + 1)) - most;
}

KFUNC int known_bytes(int type) { return type == KNOWN_E4M3 ? 1 : type == KNOWN_F16 || type == KNOWN_BF16 ? 2 : 4; }

/* Bits of the mantissa, without the leading one; the exponent's bias. */
KFUNC int known_mantissa(int type) {
    return type == KNOWN_E4M3 ? 3 : type == KNOWN_BF16 ? 7 : type == KNOWN_F16 ? 10 : 23;
}
KFUNC int known_bias(int type) { return type == KNOWN_E4M3 ? 7 : type == KNOWN_F16 ? 15 : 127; }

/* A small integer in that type. Exact when it has no more bits than the mantissa and one. */
KFUNC unsigned known_encode(int type, int v) {
    int m = known_mantissa(type), e = 0;
    ku64 a = (ku64)(v < 0 ? -v : v);
    if (a == 0) return 0;
    while (a >> (e + 1)) e++;
    ku64 mant = (e <= m ? a << (m - e) : a >> (e - m)) & ((1ull << m) - 1);
    ku64 bits = (ku64)(e + known_bias(type)) << m | mant;
    return (unsigned)(bits | (v < 0 ? 1ull << (8 * known_bytes(type) - 1) : 0));
}

/* A random number of that type in (-2, -1/8] or [1/8, 2), every bit of its mantissa in use (TF32: of
 * the ten that count). */
KFUNC unsigned known_random(int type, ku64 h) {
    int m = known_mantissa(type);
    ku64 mant = (h >> 8) & ((1ull << m) - 1);
    if (type == KNOWN_TF32) mant &= ~((1ull << 13) - 1);
    ku64 bits = (ku64)(known_bias(type) - (int)(h & 3)) << m | mant;
    return (unsigned)(bits | (h >> 63) << (8 * known_bytes(type) - 1));
}

KFUNC void known_store(void *to, ki64 at, int type, unsigned bits) {
    if (known_bytes(type) == 1) ((unsigned char *)to)[at] = (unsigned char)bits;
    else if (known_bytes(type) == 2) ((unsigned short *)to)[at] = (unsigned short)bits;
    else ((unsigned *)to)[at] = bits;
}

/* An fp32 result's bits for comparison: -0 counts as 0; all other bits, NaN included, stay unchanged. */
KFUNC unsigned known_bits(unsigned bits) { return bits == 0x80000000u ? 0 : bits; }

/* The weight of a tile's element in its checksum: odd, so that no change of one element is lost. */
KFUNC ku64 known_weight(int tile, int row, int col) { return 2ull * ((ku64)row * (ku64)tile + (ku64)col) + 1; }

#endif
