/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products on tensor cores by our own code: used without cuBLASLt, and to name the multiprocessor of each
 * tile. C (m x cols) = A (m x k) times B' (cols x k), rows of A and B k_bytes long (a multiple of 16; addresses
 * too). One block of 256 threads for each tile of 128 x 128: 8 warps, each 64 x 32; 64 bytes of k at a time through
 * shared memory, the next ones loaded meanwhile. Before it, gp_gemm_pack brings operands into that form. */
#include "gemm.h"
#include "kmma.h"

/* dst (rows x columns, dense, of which the first `rows` x `columns` are filled and the rest is zero) from
 * src with leading dimension ld, element (i, j) or, turned, (j, i). One item per element of dst. */
KERNEL(gp_gemm_pack, void *dst, const void *src, int size, int turned, ki64 rows, ki64 columns, ki64 dst_rows,
       ki64 dst_columns, ki64 ld, ki64 dst_stride, ki64 src_stride) {
    KITEMS (e) {
        ki64 batch = e / (dst_rows * dst_columns), in = e % (dst_rows * dst_columns);
        ki64 i = in / dst_columns, j = in % dst_columns;
        ki64 to = batch * dst_stride + in;
        ki64 from = batch * src_stride + (turned ? j * ld + i : i * ld + j);
        int there = i < rows && j < columns;
        if (size == 4) ((unsigned *)dst)[to] = there ? ((const unsigned *)src)[from] : 0;
        else if (size == 2)
            ((unsigned short *)dst)[to] = there ? ((const unsigned short *)src)[from] : (unsigned short)0;
        else ((unsigned char *)dst)[to] = there ? ((const unsigned char *)src)[from] : (unsigned char)0;
    }
}

#define MMA_ROW 20 /* words of a row of a tile: 16, and 4 so that a warp's reads fall into 32 banks */
#define MMA_OUT_ROW (MMA_TILE + 4)

/* 16 bytes of row `row` of a matrix; zero outside of it. */
KFUNC uint4 mma_load(const unsigned char *base, ki64 row, ki64 rows, ki64 byte, ki64 k_bytes) {
    uint4 none = {0, 0, 0, 0};
    return row < rows && byte < k_bytes ? *(const uint4 *)(const void *)(base + row * k_bytes + byte) : none;
}

/* Half of a tile's 64 bytes of A and B, by each of 256 threads. */
KFUNC void mma_fetch(unsigned *to_a, unsigned *to_b, int tid, const struct gemm_mma *g, const unsigned char *a,
                     const unsigned char *b, ki64 row, ki64 col, ki64 byte) {
    KUNROLL
    for (int h = 0; h < 2; h++) {
        int r = tid / 4 + h * 64, q = tid % 4;
        *(uint4 *)(void *)&to_a[r * MMA_ROW + q * 4] = mma_load(a, row + r, g->m, byte + q * 16, g->k_bytes);
        *(uint4 *)(void *)&to_b[r * MMA_ROW + q * 4] = mma_load(b, col + r, g->cols, byte + q * 16, g->k_bytes);
    }
}

KFUNC void mma_store_float(const struct gemm_mma *g, ki64 at, unsigned bits) {
    float x = num_from_bits(bits);
    if (g->out == MMA_OUT_WORD) {
        float *c = (float *)g->c + at;
        *c = g->accumulate ? *c + x : x;
        return;
    }
    unsigned short *c = (unsigned short *)g->c + at;
    if (g->out == MMA_OUT_F16) *c = num_to_f16(g->accumulate ? num_from_f16(*c) + x : x);
    else *c = num_to_bf16(g->accumulate ? num_from_bf16(*c) + x : x);
}

KFUNC void mma_store_int(const struct gemm_mma *g, ki64 at, unsigned x) {
    unsigned *c = (unsigned *)g->c + at;
    *c = (g->accumulate ? *c : 0u) + x;
}

#define MMA_NAME gp_mma_f16
#define MMA_KIND KMMA_F16
#define MMA_SUM float
#define MMA_WORD num_bits
#define MMA_STORE mma_store_float
#include "gemm_mma_body.inc"

#define MMA_NAME gp_mma_bf16
#define MMA_KIND KMMA_BF16
#define MMA_SUM float
#define MMA_WORD num_bits
#define MMA_STORE mma_store_float
#include "gemm_mma_body.inc"

#define MMA_NAME gp_mma_tf32
#define MMA_KIND KMMA_TF32
#define MMA_SUM float
#define MMA_WORD num_bits
#define MMA_STORE mma_store_float
#include "gemm_mma_body.inc"

#define MMA_NAME gp_mma_e4m3
#define MMA_KIND KMMA_E4M3
#define MMA_SUM float
#define MMA_WORD num_bits
#define MMA_STORE mma_store_float
#include "gemm_mma_body.inc"

#define MMA_NAME gp_mma_s8
#define MMA_KIND KMMA_S8
#define MMA_SUM int
#define MMA_WORD (unsigned)
#define MMA_STORE mma_store_int
#include "gemm_mma_body.inc"
