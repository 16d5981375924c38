/* SPDX-License-Identifier: Apache-2.0 */
/* Fills and verifies the buffers of NCCL's collectives; the construction is in collective.h. Item i takes
 * elements i, i + n, i + 2n, ... Whole-number arithmetic only, so it is the same on every device. Also
 * compiled by gcc for the tests. */
#include "collective.h"
#include "kportable.h"

KFUNC ku64 coll_hash(ku64 seed, ku64 e) {
    ku64 x = seed * 0x9e3779b97f4a7c15ull + e + 1;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* +-m * 2^e as bits of the type; m below 2^24, and 2^(e + bits of m) within the type's normal range. */
KFUNC unsigned coll_float(int type, int negative, unsigned m, int e) {
    int fraction = type == COLL_F32 ? 23 : type == COLL_F16 ? 10 : 7;
    int bias = type == COLL_F16 ? 15 : 127, width = type == COLL_F32 ? 32 : 16, top = 0;
    if (m == 0) return 0;
    while (m >> (top + 1)) top++;
    unsigned rest = m ^ (1u << top); /* without its leading one */
    rest = top <= fraction ? rest << (fraction - top) : rest >> (top - fraction);
    return (negative ? 1u << (width - 1) : 0) | ((unsigned)(top + e + bias) << fraction) | rest;
}

/* The element's total of sizes, the shares' common exponent, the first rank, and whether signs are mixed. */
KFUNC unsigned coll_value(int type, int kind, int rank, int ranks, ku64 seed, ki64 e) {
    ku64 h = coll_hash(seed, (ku64)e);
    if (type == COLL_I32) {
        unsigned sum = (unsigned)(h >> 32), mine = (unsigned)(coll_hash(h, (ku64)rank) >> 32);
        if (kind == COLL_SUM) return sum;
        if (rank) return mine; /* rank 0's share completes the sum */
        for (int r = 1; r < ranks; r++) sum -= (unsigned)(coll_hash(h, (ku64)r) >> 32);
        return sum;
    }
    int p = type == COLL_F32 ? 24 : type == COLL_F16 ? 11 : 8;
    int bits = 1 + (int)(h % (unsigned)p), low = type == COLL_F16 ? -8 : -16, span = type == COLL_F16 ? 12 : 32;
    unsigned total = (1u << (bits - 1)) + (unsigned)((h >> 8) & ((1u << (bits - 1)) - 1));
    int exponent = low + (int)((h >> 33) % (unsigned)span), all_negative = (int)(h >> 40 & 1);
    int mixed = (int)(h >> 41 & 1);
    unsigned each = total / (unsigned)ranks, rest = total % (unsigned)ranks;
    if (kind == COLL_SUM) {
        /* with mixed signs neighbours cancel: the odd one of each kind remains */
        unsigned left = (ranks & 1 ? each : 0) + (rest & 1);
        return coll_float(type, all_negative, mixed ? left : total, exponent);
    }
    int place = (int)(((ku64)rank + (h >> 42)) % (unsigned)ranks);
    unsigned share = each + (place < (int)rest ? 1 : 0);
    return coll_float(type, all_negative ^ (mixed && (place & 1)), share, exponent);
}

KFUNC unsigned coll_bits(ku64 seed, int rank, ki64 e) {
    return (unsigned)(coll_hash(seed + 0x51ed2701u * (ku64)(rank + 1), (ku64)e) >> 32);
}

KFUNC int coll_size(int type) { return type == COLL_F16 || type == COLL_BF16 ? 2 : 4; }

KFUNC unsigned coll_want(int type, int kind, int rank, int ranks, ku64 seed, ki64 e) {
    unsigned v = kind == COLL_BITS ? coll_bits(seed, rank, e) : coll_value(type, kind, rank, ranks, seed, e);
    return coll_size(type) == 2 ? v & 0xffff : v;
}

/* Elements [0, count) of buf become elements first, first + 1, ... of that kind. */
KERNEL(gp_coll_fill, void *buf, ki64 count, int type, int kind, int rank, int ranks, ku64 seed, ki64 first) {
    KITEMS (i)
        for (ki64 k = i; k < count; k += n) {
            unsigned v = coll_want(type, kind, rank, ranks, seed, first + k);
            if (coll_size(type) == 2) ((unsigned short *)buf)[k] = (unsigned short)v;
            else ((unsigned *)buf)[k] = v;
        }
}

/* found[i]: item i's findings. */
KERNEL(gp_coll_verify, const void *buf, ki64 count, int type, int kind, int rank, int ranks, ku64 seed, ki64 first,
       struct coll_found *found) {
    KITEMS (i) {
        struct coll_found f = {0, 0, 0, 0};
        for (ki64 k = i; k < count; k += n) {
            unsigned want = coll_want(type, kind, rank, ranks, seed, first + k);
            unsigned got = coll_size(type) == 2 ? ((const unsigned short *)buf)[k] : ((const unsigned *)buf)[k];
            if (got == want) continue;
            if (!f.wrong) {
                f.index = (ku64)k;
                f.got = got;
                f.want = want;
            }
            f.wrong++;
        }
        found[i] = f;
    }
}
