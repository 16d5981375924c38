/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt, found by dlopen: which one, and products by the first or the fastest (gemm_args.fastest) of the
 * algorithms that it offers for a shape. Majors 12 and 13. Used by gemm_cuda.c only. */
#ifndef GP_AGENT_CUBLASLT_CUDA_H
#define GP_AGENT_CUBLASLT_CUDA_H

#include "device_cuda.h"

struct blas;

/* Finds and starts one for the device. NULL: none can be used; said (a library's name and version, else
 * why there is none). Loads hundreds of MB. */
struct blas *blas_open(struct device *d, struct str *said);
/* The first product of a shape tries the algorithms (fastest: and blocks for that); later ones are queued. FP8 and
 * INT8: A as it is and B transposed, sizes and addresses multiples of 16. */
int blas_gemm(struct blas *b, const struct gemm_args *a, struct gp_error *err);
/* Which algorithm the shape of this product is multiplied with, as a number; 0: none was chosen yet. */
uint64_t blas_algorithm(const struct blas *b, const struct gemm_args *a);
/* driver: also what lies in the driver and on the GPU. */
void blas_close(struct blas *b, bool driver);

#endif
