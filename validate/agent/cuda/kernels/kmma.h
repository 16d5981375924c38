/* SPDX-License-Identifier: Apache-2.0 */
/* The one place with a tensor-core instruction: KMMA multiplies, for each warp of a block, 16 rows of A by
 * 8 columns of B over 32 bytes of k (m16n8k8 TF32, m16n8k16 FP16 and BF16, m16n8k32 E4M3 and INT8), adding
 * to 16 x 8 sums. It stands outside KTHREADS. d, a, b are KLOCALS of float (INT8: int) and unsigned; a
 * lane's part is d[i .. i+3], a[j .. j+3], b[l .. l+1]. On the CPU it is computed from PTX's tables of what
 * each lane holds ("Matrix Fragments for mma.m16n8k..."): with g = lane / 4 and t = lane % 4, counted in
 * bytes of k they are the same for all types:
 *   a[0] row g, bytes 4t..4t+3    a[1] row g+8, the same    a[2] row g, bytes 16+4t..    a[3] row g+8
 *   b[0] column g, bytes 4t..     b[1] column g, bytes 16+4t..
 *   d[0] row g, column 2t         d[1] column 2t+1          d[2], d[3] row g+8 */
#ifndef GP_KMMA_H
#define GP_KMMA_H

#include "kportable.h"

#ifndef NUM_FUNC
#define NUM_FUNC KFUNC
#endif
#include "../../device/numeric.h"

#define KMMA_TF32 0
#define KMMA_F16 1
#define KMMA_BF16 2
#define KMMA_E4M3 3 /* sm_89 and later */
#define KMMA_S8 4

#ifdef __CUDACC__

#define K_MMA_ASM(instruction, c)                                                                         \
    asm volatile("mma.sync.aligned." instruction " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                 : c(d[0]), c(d[1]), c(d[2]), c(d[3])                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

/* kind is a literal: one branch is left. An architecture that lacks the instruction traps; the agent does
 * not launch there. */
KFUNC void k_mma(int kind, float *d, const unsigned *a, const unsigned *b) {
#if __CUDA_ARCH__ >= 890
    if (kind == KMMA_E4M3) K_MMA_ASM("m16n8k32.row.col.f32.e4m3.e4m3.f32", "+f");
    else
#endif
#if __CUDA_ARCH__ >= 800
        if (kind == KMMA_TF32)
        K_MMA_ASM("m16n8k8.row.col.f32.tf32.tf32.f32", "+f");
    else if (kind == KMMA_F16) K_MMA_ASM("m16n8k16.row.col.f32.f16.f16.f32", "+f");
    else if (kind == KMMA_BF16) K_MMA_ASM("m16n8k16.row.col.f32.bf16.bf16.f32", "+f");
    else
#elif __CUDA_ARCH__ >= 750
    if (kind == KMMA_F16) /* in two halves of k */
        for (int h = 0; h < 2; h++)
            asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
                         " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                         : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                         : "r"(a[2 * h]), "r"(a[2 * h + 1]), "r"(b[h]));
    else
#endif
        __trap();
}

KFUNC void k_mma(int kind, int *d, const unsigned *a, const unsigned *b) {
    (void)kind;
#if __CUDA_ARCH__ >= 800
    K_MMA_ASM("m16n8k32.row.col.s32.s8.s8.s32", "+r");
#else
    (void)d, (void)a, (void)b;
    __trap();
#endif
}

#define KMMA(kind, d, i, a, j, b, l) k_mma(kind, &d[i], &a[j], &b[l])

#else

/* Element e of 32 bytes of k. */
static inline float k_mma_value(int kind, const unsigned char *p, int e) {
    unsigned w = 0;
    unsigned short h = 0;
    if (kind == KMMA_TF32) {
        __builtin_memcpy(&w, p + 4 * e, 4);
        return num_from_bits(w & 0xffffe000u);
    }
    if (kind == KMMA_E4M3) return num_from_e4m3(p[e]);
    __builtin_memcpy(&h, p + 2 * e, 2);
    return kind == KMMA_F16 ? num_from_f16(h) : num_from_bf16(h);
}

/* A row of A or a column of B, gathered from the lanes that hold it. */
static inline void k_mma_gather(unsigned char *row, const unsigned *regs, int stride, int low, int high, int g) {
    for (int t = 0; t < 4; t++) {
        __builtin_memcpy(row + 4 * t, &regs[(4 * g + t) * stride + low], 4);
        __builtin_memcpy(row + 16 + 4 * t, &regs[(4 * g + t) * stride + high], 4);
    }
}

/* One warp. d, a, b: the first lane's part; strides in elements from lane to lane. */
static inline void k_mma_warp(int kind, void *d, int d_stride, const unsigned *a, int a_stride, const unsigned *b,
                              int b_stride) {
    unsigned char x[16][32], y[8][32];
    int n = kind == KMMA_TF32 ? 8 : kind == KMMA_F16 || kind == KMMA_BF16 ? 16 : 32;
    for (int g = 0; g < 8; g++) {
        k_mma_gather(x[g], a, a_stride, 0, 2, g);
        k_mma_gather(x[g + 8], a, a_stride, 1, 3, g);
        k_mma_gather(y[g], b, b_stride, 0, 1, g);
    }
    float u[16][32], v[8][32];
    for (int e = 0; kind != KMMA_S8 && e < n; e++) {
        for (int r = 0; r < 16; r++) u[r][e] = k_mma_value(kind, x[r], e);
        for (int c = 0; c < 8; c++) v[c][e] = k_mma_value(kind, y[c], e);
    }
    for (int r = 0; r < 16; r++) {
        for (int c = 0; c < 8; c++) {
            int at = (r % 8 * 4 + c / 2) * d_stride + r / 8 * 2 + c % 2;
            if (kind == KMMA_S8) {
                int sum = ((int *)d)[at];
                for (int e = 0; e < 32; e++)
                    sum = (int)((unsigned)sum + (unsigned)((signed char)x[r][e] * (signed char)y[c][e]));
                ((int *)d)[at] = sum;
            } else {
                double sum = (double)((float *)d)[at];
                for (int e = 0; e < n; e++) sum += (double)u[r][e] * (double)v[c][e];
                ((float *)d)[at] = (float)sum;
            }
        }
    }
}

#define KMMA(kind, d, i, a, j, b, l)                                                                          \
    do {                                                                                                      \
        for (int k_w = 0; k_w < KBLOCK_THREADS; k_w += 32)                                                    \
            k_mma_warp(kind, &d[k_w][i], (int)(sizeof d[0] / sizeof d[0][0]), &a[k_w][j],                     \
                       (int)(sizeof a[0] / sizeof a[0][0]), &b[k_w][l], (int)(sizeof b[0] / sizeof b[0][0])); \
    } while (0)

#endif
#endif
