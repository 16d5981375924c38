/* SPDX-License-Identifier: Apache-2.0 */
/* Known products: the answer and the tiles' checksums against brute force over encoded operands, the
 * bounds, and who differs. The agent's files are not in the library, so they are included. */
#include "base/gp_base.h"

#include "validate/agent/checks/gpu/known_product_cuda.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct kstep kstep;
#include "validate/agent/cuda/kernels/checksum.cu"

/* What those bits are worth, by the definition of the formats. */
static double decode(int type, unsigned bits) {
    int m = known_mantissa(type), width = 8 * known_bytes(type);
    unsigned e = bits >> m & ((1u << (width - 1 - m)) - 1), mant = bits & ((1u << m) - 1);
    double v = e ? 1.0 + (double)mant / (double)(1u << m) : (double)mant / (double)(1u << m);
    for (int i = (e ? (int)e : 1) - known_bias(type); i != 0; i += i > 0 ? -1 : 1) v *= i > 0 ? 2 : 0.5;
    return bits >> (width - 1) & 1 ? -v : v;
}

static unsigned load(const void *p, size_t at, int type) {
    int bytes = known_bytes(type);
    if (bytes == 1) return ((const unsigned char *)p)[at];
    return bytes == 2 ? ((const unsigned short *)p)[at] : ((const unsigned *)p)[at];
}

static void test_encode(void **state) {
    (void)state;
    static const int most[] = {2047, 2047, 2047, 255, 15};
    for (int type = KNOWN_F32; type <= KNOWN_E4M3; type++)
        for (int v = -most[type]; v <= most[type]; v++) assert_true(decode(type, known_encode(type, v)) == v);
    for (int type = KNOWN_F32; type <= KNOWN_E4M3; type++) {
        bool negative = false, positive = false;
        for (ku64 i = 0; i < 4096; i++) {
            double v = decode(type, known_random(type, known_hash(i)));
            negative = negative || v < 0;
            positive = positive || v > 0;
            if (v < 0) v = -v;
            assert_true(v >= 0.125 && v < 2);
        }
        assert_true(negative && positive);
    }
}

static void test_limits(void **state) {
    (void)state;
    for (int type = KNOWN_F32; type <= KNOWN_E4M3; type++) {
        for (int k = 16; k <= known_depth_max(type); k *= 2) {
            struct known_limits l = known_limits_of(type, k);
            assert_true(l.big >= 1 && l.small >= 1 && l.small <= l.big);
            assert_true((int64_t)k * l.big * l.small <= (type == KNOWN_E4M3 ? 1 << 12 : 1 << 24));
            assert_true(decode(type, known_encode(type, l.big)) == l.big);
        }
    }
    assert_int_equal(known_limits_of(KNOWN_E4M3, 256).big, 15);
    assert_int_equal(known_limits_of(KNOWN_BF16, 8192).big, 255);
}

static void step(void (*kernel)(void *), void *arg) {
    for (unsigned b = 0; b < 3; b++)
        for (unsigned t = 0; t < 32; t++) {
            kstep = (struct kstep){.block = b, .thread = t, .block_dim = 32, .grid_dim = 3};
            kernel(arg);
        }
}

struct case_ {
    struct known_product p;
    void *a, *b;
    unsigned *c;
    ku64 *partial, *sums;
};
static void make_a(void *v) {
    struct case_ *t = v;
    gp_known_operand((ki64)t->p.m * t->p.k, t->a, t->p.m, t->p.k, t->p.type, 0, 1, t->p.limits.big, t->p.limits.small,
                     t->p.seed);
}
static void make_b(void *v) { /* depth by columns, as a row-major k x n matrix */
    struct case_ *t = v;
    gp_known_operand((ki64)t->p.n * t->p.k, t->b, t->p.n, t->p.k, t->p.type, 1, 0, t->p.limits.big, t->p.limits.small,
                     t->p.seed);
}
static void sum_columns(void *v) {
    struct case_ *t = v;
    gp_column_sums((ki64)(t->p.m / t->p.tile) * t->p.n, t->c, t->p.n, t->p.tile, t->partial);
}
static void sum_tiles(void *v) {
    struct case_ *t = v;
    gp_tile_sums((ki64)(t->p.m / t->p.tile) * (t->p.n / t->p.tile), t->partial, t->p.n, t->p.tile, t->sums);
}
static void test_brute_force(void **state) {
    (void)state;
    for (int type = KNOWN_F32; type <= KNOWN_E4M3; type++) {
        struct case_ t = {.p = {.type = type, .m = 128, .n = 96, .k = 48, .tile = 32, .seed = 7}};
        size_t m = 128, n = 96, k = 48, tiles = 4 * 3;
        known_product_make(&t.p);
        t.a = xcalloc(m * k, 4);
        t.b = xcalloc(n * k, 4);
        t.c = xcalloc(m * n, 4);
        t.partial = xcalloc(4 * n, 8);
        t.sums = xcalloc(tiles, 8);
        step(make_a, &t);
        step(make_b, &t);
        for (size_t i = 0; i < m; i++) {
            for (size_t j = 0; j < n; j++) {
                double sum = 0, sizes = 0; /* exact in any order */
                for (size_t d = 0; d < k; d++) {
                    double x = decode(type, load(t.a, i * k + d, type)) * decode(type, load(t.b, d * n + j, type));
                    sum += x;
                    sizes += x < 0 ? -x : x;
                }
                assert_true(sizes <= (type == KNOWN_E4M3 ? 4096 : 16777216));
                assert_true(sum == t.p.answer[i % KNOWN_ROWS * KNOWN_COLS + j % KNOWN_COLS]);
                t.c[i * n + j] = num_bits((float)sum);
            }
        }
        step(sum_columns, &t);
        step(sum_tiles, &t);
        assert_memory_equal(t.sums, t.p.sums, tiles * 8);
        uint64_t fold = known_fold(t.sums, tiles);
        /* any one bit of any element, NaN included, changes its tile's sum and no other */
        for (size_t at = 5; at < m * n; at += 997) {
            unsigned keep = t.c[at];
            t.c[at] = at % 2 ? 0x7fc00000u : keep ^ 1u << at % 31;
            if (t.c[at] == keep) continue;
            step(sum_columns, &t);
            step(sum_tiles, &t);
            for (size_t i = 0; i < tiles; i++) {
                bool mine = i == at / n / 32 * 3 + at % n / 32;
                assert_true((t.sums[i] != t.p.sums[i]) == mine);
            }
            assert_true(known_fold(t.sums, tiles) != fold);
            t.c[at] = keep;
        }
        known_product_clear(&t.p);
        free(t.a), free(t.b), free(t.c), free(t.partial), free(t.sums);
    }
}

static void test_odd_ones(void **state) {
    (void)state;
    bool same[8];
    assert_int_equal(known_odd_ones((uint64_t[]){5, 5, 5, 5}, 4, same), 0);
    assert_int_equal(known_odd_ones((uint64_t[]){5, 5, 6, 5}, 4, same), 1);
    assert_true(same[0] && same[1] && !same[2] && same[3]);
    assert_int_equal(known_odd_ones((uint64_t[]){5, 6}, 2, same), 2); /* nobody knows who is right */
    assert_true(!same[0] && !same[1]);
    assert_int_equal(known_odd_ones((uint64_t[]){9}, 1, same), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_odd_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
