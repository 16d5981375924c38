/* SPDX-License-Identifier: Apache-2.0 */
/* Silent corruption: operands of known-answer and of random products, checksums of a product's tiles,
 * and the same exact product on every SM, so that a faulty one is named. Also compiled by gcc for the tests. */
#include "known.h"

/* n elements, `depth` of each outer index; outer_major: depth runs fastest in memory. */
KERNEL(gp_known_operand, void *to, ki64 outer, ki64 depth, int type, int is_b, int outer_major, int big, int small,
       ku64 seed) {
    struct known_limits lim = {big, small};
    KITEMS (i) {
        ki64 x = outer_major ? i / depth : i % outer, d = outer_major ? i % depth : i / outer;
        ki64 period = is_b ? KNOWN_COLS : KNOWN_ROWS;
        known_store(to, i, type, known_encode(type, known_value(lim, is_b, x % period, d, seed)));
    }
}

KERNEL(gp_random_operand, void *to, int type, ku64 seed) {
    KITEMS (i) known_store(to, i, type, known_random(type, known_hash(seed + (ku64)i)));
}

/* Item: one column of one row of tiles. partial[i]: its elements' bits, weighed by their place in the
 * tile. Neighbouring threads read neighbouring words. */
KERNEL(gp_column_sums, const unsigned *c, ki64 cols, int tile, ku64 *partial) {
    KITEMS (i) {
        ki64 col = i % cols, row = i / cols * tile;
        ku64 sum = 0;
        for (int r = 0; r < tile; r++)
            sum += known_weight(tile, r, (int)(col % tile)) * known_bits(c[(row + r) * cols + col]);
        partial[i] = sum;
    }
}

/* Item: one tile, row by row of tiles. */
KERNEL(gp_tile_sums, const ku64 *partial, ki64 cols, int tile, ku64 *sums) {
    KITEMS (i) {
        ki64 across = cols / tile;
        const ku64 *from = partial + i / across * cols + i % across * tile;
        ku64 sum = 0;
        for (int c = 0; c < tile; c++) sum += from[c];
        sums[i] = sum;
    }
}

/* Counts numbers that are not finite: type KNOWN_F32, KNOWN_F16 or KNOWN_BF16. counts: {read, not finite, not zero}. */
KERNEL(gp_count_numbers, const void *c, ki64 count, int type, ku64 *counts) {
    int m = known_mantissa(type), bits = 8 * known_bytes(type);
    unsigned top = ((1u << (bits - 1 - m)) - 1) << m;
    KITEMS (i) {
        ku64 did = 0, odd = 0, some = 0;
        for (ki64 e = i; e < count; e += n) {
            unsigned x = bits == 32 ? ((const unsigned *)c)[e] : ((const unsigned short *)c)[e];
            did++;
            odd += (x & top) == top;
            some += (x & ((1u << (bits - 1)) - 1)) != 0;
        }
        KATOMIC_ADD(&counts[0], did);
        if (odd) KATOMIC_ADD(&counts[1], odd);
        if (some) KATOMIC_ADD(&counts[2], some);
    }
}

/* Every thread computes one element of the known product on its SM's fp32 units, from operands in
 * memory (A: KNOWN_ROWS x depth, B: KNOWN_COLS x depth), and records the SM. Nothing is compared here: a faulty SM
 * may compare wrong too. */
KERNEL(gp_sm_product, const float *a, const float *b, int depth, float *result, int *sm) {
    KITEMS (i) {
        const float *x = a + i % KNOWN_ROWS * depth, *y = b + i % KNOWN_COLS * depth;
        float sum = 0.0f;
        for (int d = 0; d < depth; d++) sum += x[d] * y[d];
        sm[i] = KSMID;
        result[i] = sum;
    }
}
