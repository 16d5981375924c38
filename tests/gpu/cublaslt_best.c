/* SPDX-License-Identifier: Apache-2.0 */
/* The best rate that cuBLASLt has for C = A * B, 8192 cubed: every algorithm that its heuristic offers (up
 * to 64) is timed by events, the best three again. Prints "gpu.gemm METRIC TFLOPS cublaslt-best" lines
 * for check.sh. Built there by nvcc against the toolkit's headers; not a part of gpuprov. */
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 8192, ALGOS = 64, WORKSPACE = 64 << 20, RUNS = 20 };

#define CHECK(call, what)                                               \
    do {                                                                \
        int r_ = (int)(call);                                           \
        if (r_ != 0) {                                                  \
            fprintf(stderr, "cublaslt_best: %s: error %d\n", what, r_); \
            return -1;                                                  \
        }                                                               \
    } while (0)

struct kind {
    const char *metric;
    cudaDataType_t in, out;
    cublasComputeType_t compute;
    int transposed; /* FP8 has kernels for this layout only */
};

struct setup {
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    void *pa, *pb, *pc, *work;
    cudaEvent_t from, to;
};

static double once(struct setup *s, const cublasLtMatmulAlgo_t *algo, int runs) {
    const float one = 1, zero = 0;
    float ms = 0;
    for (int i = -2; i < runs; i++) {
        if (i == 0) cudaEventRecord(s->from, 0);
        if (cublasLtMatmul(s->lt, s->op, &one, s->pa, s->a, s->pb, s->b, &zero, s->pc, s->c, s->pc, s->c, algo, s->work,
                           WORKSPACE, 0) != CUBLAS_STATUS_SUCCESS)
            return 0;
    }
    cudaEventRecord(s->to, 0);
    if (cudaEventSynchronize(s->to) != cudaSuccess || cudaEventElapsedTime(&ms, s->from, s->to) != cudaSuccess ||
        ms <= 0)
        return 0;
    return 2.0 * N * N * N * runs / ((double)ms * 1e-3) / 1e12;
}

static int measure(struct setup *s, const struct kind *k) {
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t found[ALGOS];
    size_t space = WORKSPACE;
    int n = 0;
    cublasOperation_t t = CUBLAS_OP_T, none = CUBLAS_OP_N;
    CHECK(cublasLtMatmulDescCreate(&s->op, k->compute, CUDA_R_32F), "describe");
    CHECK(cublasLtMatmulDescSetAttribute(s->op, CUBLASLT_MATMUL_DESC_TRANSA, k->transposed ? &t : &none, sizeof t),
          "transpose");
    CHECK(cublasLtMatrixLayoutCreate(&s->a, k->in, N, N, N), "layout");
    CHECK(cublasLtMatrixLayoutCreate(&s->b, k->in, N, N, N), "layout");
    CHECK(cublasLtMatrixLayoutCreate(&s->c, k->out, N, N, N), "layout");
    CHECK(cublasLtMatmulPreferenceCreate(&pref), "preference");
    CHECK(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space),
          "preference");
    CHECK(cublasLtMatmulAlgoGetHeuristic(s->lt, s->op, s->a, s->b, s->c, s->c, pref, ALGOS, found, &n), k->metric);
    double best[3] = {0}; /* rising places: 0 is the best */
    int at[3] = {-1, -1, -1};
    for (int i = 0; i < n; i++) {
        double r = once(s, &found[i].algo, 3);
        for (int p = 0; p < 3; p++) {
            if (r <= best[p]) continue;
            for (int q = 2; q > p; q--) {
                best[q] = best[q - 1];
                at[q] = at[q - 1];
            }
            best[p] = r;
            at[p] = i;
            break;
        }
    }
    double top = 0;
    for (int p = 0; p < 3; p++) {
        double r = at[p] >= 0 ? once(s, &found[at[p]].algo, RUNS) : 0;
        top = r > top ? r : top;
    }
    if (top > 0) printf("gpu.gemm %s %.6g cublaslt-best\n", k->metric, top);
    return 0;
}

int main(void) {
    static const struct kind kinds[] = {
        {"fp32", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 0},
        {"tf32", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 0},
        {"bf16", CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 0},
        {"fp16", CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, 0},
        {"fp8", CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1},
    };
    struct setup s = {0};
    size_t bytes = (size_t)N * N * 4;
    CHECK(cublasLtCreate(&s.lt), "create");
    CHECK(cudaMalloc(&s.pa, bytes), "memory");
    CHECK(cudaMalloc(&s.pb, bytes), "memory");
    CHECK(cudaMalloc(&s.pc, bytes), "memory");
    CHECK(cudaMalloc(&s.work, WORKSPACE), "memory");
    CHECK(cudaEventCreate(&s.from), "event");
    CHECK(cudaEventCreate(&s.to), "event");
    /* Random bits with small exponents: a GPU draws other power, and clocks otherwise, for zeros. */
    unsigned char *host = malloc(bytes);
    unsigned x = 1;
    for (size_t i = 0; host && i < bytes; i++) {
        x = x * 1664525u + 1013904223u;
        host[i] = (unsigned char)(i % 4 == 3 || i % 2 == 1 ? 0x30 | (x >> 28 & 0x8) : x >> 24 & 0x7f);
    }
    if (!host) return 1;
    CHECK(cudaMemcpy(s.pa, host, bytes, cudaMemcpyHostToDevice), "copy");
    CHECK(cudaMemcpy(s.pb, host, bytes, cudaMemcpyHostToDevice), "copy");
    free(host);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        measure(&s, &kinds[i]); /* a type that this GPU has not is said on stderr */
    return 0;
}
