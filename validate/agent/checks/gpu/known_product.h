/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of a known product (kernels/known.h), by integer arithmetic on the host, and the expected checksums of
 * its tiles. Pure; any thread. */
#ifndef GP_AGENT_KNOWN_PRODUCT_H
#define GP_AGENT_KNOWN_PRODUCT_H

#include "base/gp_base.h"
#include "validate/agent/cuda/kernels/known.h"

/* The largest operands for which k * big * small stays within the bound on the sum of absolute products:
 * 2^24, with FP8 2^12. k: at most known_depth_max(type). */
struct known_limits known_limits_of(int type, int k);
int known_depth_max(int type);

struct known_product {
    int type, m, n, k, tile; /* m and n are multiples of tile */
    ku64 seed;
    struct known_limits limits;
    int32_t answer[KNOWN_ROWS * KNOWN_COLS];
    uint32_t bits[KNOWN_ROWS * KNOWN_COLS]; /* the same as fp32 */
    ku64 *sums;                             /* (m / tile) * (n / tile), row by row */
};
/* type, m, n, k, tile and seed are set; fills the rest. known_product_clear afterwards. */
void known_product_make(struct known_product *p);
void known_product_clear(struct known_product *p);

/* 64 bits of a list of checksums, for comparing GPUs and nodes. */
uint64_t known_fold(const ku64 *sums, size_t n);

/* Compares the lists of GPUs of one model. same[i]: GPU i has the majority's value; without a majority of more than
 * half, none is the same. Returns the number that differ. */
size_t known_odd_ones(const uint64_t *folds, size_t n, bool *same);

#endif
