/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by gemm_mma.cu and its callers. Plain C and CUDA C. */
#ifndef GP_KERNEL_GEMM_H
#define GP_KERNEL_GEMM_H

#define MMA_TILE 128 /* rows and columns of C that one block computes */
#define MMA_THREADS 256

#define MMA_OUT_WORD 0 /* fp32, or int32 of int8 */
#define MMA_OUT_F16 1
#define MMA_OUT_BF16 2

struct gemm_mma { /* one product, as the kernels' functions hand it on */
    void *c;
    long long m, cols, k_bytes;
    int accumulate, out;
};

#endif
