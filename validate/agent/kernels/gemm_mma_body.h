/* SPDX-License-Identifier: Apache-2.0 */
/* The body of gemm_mma.cu's kernels, included once for each type: MMA_NAME, MMA_KIND, MMA_SUM, MMA_WORD,
 * MMA_STORE say which. n: tiles (of all matrices of the batch); sms: where each tile ran, may be NULL. */
KBLOCK_KERNEL(MMA_NAME, 256, const unsigned char *a_all, const unsigned char *b_all, void *c_all, int m,
              int cols, ki64 k_bytes, int accumulate, int out, ki64 stride_a, ki64 stride_b,
              ki64 stride_c, int *sms)
{
    KSHARED(unsigned, tile_a, 2 * MMA_TILE * MMA_ROW);
    KSHARED(unsigned, tile_b, 2 * MMA_TILE * MMA_ROW);
    KLOCALS(MMA_SUM, sum, 64);
    KLOCALS(unsigned, a, 16);
    KLOCALS(unsigned, b, 8);
    ki64 down = ((ki64)m + MMA_TILE - 1) / MMA_TILE, across = ((ki64)cols + MMA_TILE - 1) / MMA_TILE;
    for (ki64 tile = KBLOCK; tile < n; tile += KBLOCKS) {
        ki64 batch = tile / (down * across), in = tile % (down * across);
        ki64 row = in / across * MMA_TILE, col = in % across * MMA_TILE;
        const unsigned char *pa = a_all + batch * stride_a, *pb = b_all + batch * stride_b;
        struct gemm_mma g = {c_all, m, cols, k_bytes, accumulate, out};
        KTHREADS {
            KUNROLL
            for (int i = 0; i < 64; i++)
                K(sum)[i] = 0;
            mma_fetch(tile_a, tile_b, tid, &g, pa, pb, row, col, 0);
        }
        KSYNC;
        int now = 0;
        for (ki64 byte = 0; byte < k_bytes; byte += 64, now ^= 1) {
            KTHREADS {
                if (byte + 64 < k_bytes)
                    mma_fetch(tile_a + (now ^ 1) * MMA_TILE * MMA_ROW, tile_b + (now ^ 1) * MMA_TILE * MMA_ROW,
                              tid, &g, pa, pb, row, col, byte + 64);
            }
            KUNROLL
            for (int half = 0; half < 2; half++) {
                KTHREADS {
                    int warp = tid / 32, at = now * MMA_TILE * MMA_ROW + half * 8 + tid % 4;
                    const unsigned *x = tile_a + at + (warp / 4 * 64 + tid % 32 / 4) * MMA_ROW;
                    const unsigned *y = tile_b + at + (warp % 4 * 32 + tid % 32 / 4) * MMA_ROW;
                    KUNROLL
                    for (int i = 0; i < 4; i++) {
                        K(a)[i * 4] = x[i * 16 * MMA_ROW];
                        K(a)[i * 4 + 1] = x[(i * 16 + 8) * MMA_ROW];
                        K(a)[i * 4 + 2] = x[i * 16 * MMA_ROW + 4];
                        K(a)[i * 4 + 3] = x[(i * 16 + 8) * MMA_ROW + 4];
                        K(b)[i * 2] = y[i * 8 * MMA_ROW];
                        K(b)[i * 2 + 1] = y[i * 8 * MMA_ROW + 4];
                    }
                }
                KUNROLL
                for (int i = 0; i < 4; i++) {
                    KUNROLL
                    for (int j = 0; j < 4; j++)
                        KMMA(MMA_KIND, sum, (i * 4 + j) * 4, a, i * 4, b, j * 2);
                }
            }
            KSYNC;
        }
        /* 32 rows at a time through shared memory: rows of C are written in one go. */
        KUNROLL
        for (int i = 0; i < 4; i++) {
            KTHREADS {
                int warp = tid / 32, lane = tid % 32;
                unsigned *to = tile_a + (warp / 4 * 16 + lane / 4) * MMA_OUT_ROW + warp % 4 * 32 + lane % 4 * 2;
                KUNROLL
                for (int e = 0; e < 16; e++)
                    to[e / 2 % 2 * 8 * MMA_OUT_ROW + e / 4 * 8 + e % 2] = MMA_WORD(K(sum)[i * 16 + e]);
            }
            KSYNC;
            KTHREADS {
                KNOUNROLL
                for (int e = tid; e < 32 * MMA_TILE; e += KBLOCK_THREADS) {
                    ki64 r = row + e / (16 * MMA_TILE) * 64 + i * 16 + e / MMA_TILE % 16;
                    ki64 c = col + e % MMA_TILE;
                    if (r < m && c < cols)
                        MMA_STORE(&g, batch * stride_c + r * cols + c,
                                  tile_a[e / MMA_TILE * MMA_OUT_ROW + e % MMA_TILE]);
                }
                if (sms && tid == 0)
                    sms[tile] = KSMID;
            }
            KSYNC;
        }
    }
}
#undef MMA_NAME
#undef MMA_KIND
#undef MMA_SUM
#undef MMA_WORD
#undef MMA_STORE
