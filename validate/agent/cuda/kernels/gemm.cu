/* SPDX-License-Identifier: Apache-2.0 */
/* fp32 matrix product in the host device's order: one item per element of C, k rising, one multiply
 * and one add at a time (built with -fmad=false), so that the result is the reference's bit for bit.
 * Slow on purpose; rates are measured by other means. Also compiled by gcc for the tests. */
#include "kportable.h"

KERNEL(gp_gemm_f32, const float *a, const float *b, float *c, int m, int cols, int k, int flags, ki64 stride_a,
       ki64 stride_b, ki64 stride_c) {
    KITEMS (i) {
        ki64 batch = i / ((ki64)m * cols), e = i % ((ki64)m * cols);
        ki64 row = e / cols, col = e % cols;
        const float *x = a + batch * stride_a, *y = b + batch * stride_b;
        float *z = c + batch * stride_c + e;
        float sum = flags & 4 ? *z : 0.0f;
        KNOUNROLL
        for (ki64 j = 0; j < k; j++)
            sum += x[flags & 1 ? j * m + row : row * k + j] * y[flags & 2 ? col * k + j : j * cols + col];
        *z = sum;
    }
}
