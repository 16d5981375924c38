/* SPDX-License-Identifier: Apache-2.0 */
/* Known products: limits, the answer, the checksums of its tiles. Integers only; no device. */
#include "base/gp_base.h"

#include "known_product.h"

#include "base/vec.h"
#include "validate/agent/device/numeric.h"

int known_depth_max(int type) { return type == KNOWN_E4M3 ? 256 : 8192; }

struct known_limits known_limits_of(int type, int k) {
    int bound = type == KNOWN_E4M3 ? 1 << 12 : 1 << 24;
    int digits = type == KNOWN_F32 || type == KNOWN_TF32 ? 11 : known_mantissa(type) + 1;
    struct known_limits lim = {.big = GP_MIN((1 << digits) - 1, bound / k)};
    lim.small = GP_MIN(bound / (k * lim.big), lim.big);
    return lim;
}

static void make_answer(struct known_product *p) {
    size_t k = (size_t)p->k;
    GP_AUTO_FREE int32_t *a = xcalloc(KNOWN_ROWS * k, sizeof *a);
    GP_AUTO_FREE int32_t *b = xcalloc(KNOWN_COLS * k, sizeof *b);
    for (size_t i = 0; i < KNOWN_ROWS; i++)
        for (size_t d = 0; d < k; d++) a[i * k + d] = known_value(p->limits, 0, (ki64)i, (ki64)d, p->seed);
    for (size_t j = 0; j < KNOWN_COLS; j++)
        for (size_t d = 0; d < k; d++) b[j * k + d] = known_value(p->limits, 1, (ki64)j, (ki64)d, p->seed);
    for (size_t i = 0; i < KNOWN_ROWS; i++) {
        for (size_t j = 0; j < KNOWN_COLS; j++) {
            int32_t sum = 0; /* below 2^24 */
            for (size_t d = 0; d < k; d++) sum += a[i * k + d] * b[j * k + d];
            p->answer[i * KNOWN_COLS + j] = sum;
            p->bits[i * KNOWN_COLS + j] = num_bits((float)sum);
        }
    }
}

/* A tile's sum is, over its rows r and columns c, of (2 * (r * tile + c) + 1) * bits(r, c): for each of the
 * KNOWN_ROWS different rows, the plain sum and the one weighted by c are computed once per column of tiles. */
static void make_sums(struct known_product *p) {
    size_t across = (size_t)(p->n / p->tile), down = (size_t)(p->m / p->tile), t = (size_t)p->tile;
    GP_AUTO_FREE uint64_t *plain = xcalloc(KNOWN_ROWS * across, sizeof *plain);
    GP_AUTO_FREE uint64_t *weighed = xcalloc(KNOWN_ROWS * across, sizeof *weighed);
    for (size_t i = 0; i < KNOWN_ROWS; i++) {
        for (size_t col = 0; col < (size_t)p->n; col++) {
            uint64_t bits = p->bits[i * KNOWN_COLS + col % KNOWN_COLS];
            plain[i * across + col / t] += bits;
            weighed[i * across + col / t] += bits * (col % t);
        }
    }
    p->sums = xcalloc(down * across, sizeof *p->sums);
    for (size_t ti = 0; ti < down; ti++) {
        for (size_t r = 0; r < t; r++) {
            size_t i = (ti * t + r) % KNOWN_ROWS;
            for (size_t tj = 0; tj < across; tj++)
                p->sums[ti * across + tj] += (2 * r * t + 1) * plain[i * across + tj] + 2 * weighed[i * across + tj];
        }
    }
}

void known_product_make(struct known_product *p) {
    p->limits = known_limits_of(p->type, p->k);
    make_answer(p);
    make_sums(p);
}

void known_product_clear(struct known_product *p) {
    free(p->sums);
    p->sums = NULL;
}

uint64_t known_fold(const ku64 *sums, size_t n) {
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = num_mix(h ^ sums[i]);
    return h;
}

size_t known_odd_ones(const uint64_t *folds, size_t n, bool *same) {
    size_t odd = 0;
    for (size_t i = 0; i < n; i++) {
        size_t like = 0;
        for (size_t j = 0; j < n; j++) like += folds[j] == folds[i];
        same[i] = 2 * like > n;
        odd += !same[i];
    }
    return odd;
}
