/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt by dlopen: its version, and products by the first or the fastest (gemm_args.fastest) of its algorithms
 * for a shape. Majors 12 and 13. Used by gemm_cuda.c only. One thread per device. */
#ifndef GP_AGENT_CUBLASLT_CUDA_H
#define GP_AGENT_CUBLASLT_CUDA_H

#include "device_cuda.h"

struct blas;

/* Finds and starts one for the device. NULL: none is usable. said: the library's name and version, else the reason.
 * Loads hundreds of MB. */
struct blas *blas_open(struct device *d, struct str *said);
/* The first product of a shape tries the algorithms (with fastest it blocks for that); later ones are queued. FP8
 * and INT8: A plain and B transposed, sizes and addresses multiples of 16. */
int blas_gemm(struct blas *b, const struct gemm_args *a, struct gp_error *err);
/* The algorithm of this product's shape, as a number; 0: none was chosen yet. */
uint64_t blas_algorithm(const struct blas *b, const struct gemm_args *a);
/* driver: also frees the memory in the driver and on the GPU. */
void blas_close(struct blas *b, bool driver);

#endif
