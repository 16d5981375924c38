/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt_best [EDGE]: the rate of C = A * B, EDGE cubed (8192), by cuBLASLt's best algorithm, without gpuprov's code
 * around it. The work is that of gpu.gemm: the same random operands (known_random), types, layouts, flags and
 * reductions. All algorithms that the heuristic offers (up to 64) are timed, the best three again, longer; the best
 * of those is then measured: the median of 20 products, each between two events. Prints "gpu.gemm METRIC TFLOPS
 * cublaslt-best" lines for check.sh. Loads libcuda and libcublasLt at run time; not a part of gpuprov. */
#define uint4 kernel_uint4 /* the toolkit has one too */
#include "../../validate/agent/cuda/kernels/known.h"
#include "../../validate/agent/cuda/kernels/kportable.h"
#undef uint4

#include <cublasLt.h>
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALGOS = 64, TOP = 3, WORKSPACE_MAX = 64 << 20, FEW = 3, RUNS = 20 };

static struct {
    CUresult (*init)(unsigned);
    CUresult (*device)(CUdevice *, int);
    CUresult (*total)(size_t *, CUdevice);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*use)(CUcontext);
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*host_alloc)(void **, size_t, unsigned);
    CUresult (*copy)(CUdeviceptr, const void *, size_t, CUstream);
    CUresult (*stream)(CUstream *, unsigned);
    CUresult (*query)(CUstream);
    CUresult (*event)(CUevent *, unsigned);
    CUresult (*record)(CUevent, CUstream);
    CUresult (*elapsed)(float *, CUevent, CUevent);
} cu;
static struct {
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtMatmulDescCreate) *desc;
    __typeof__(cublasLtMatmulDescSetAttribute) *desc_set;
    __typeof__(cublasLtMatrixLayoutCreate) *layout;
    __typeof__(cublasLtMatmulPreferenceCreate) *pref;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *pref_set;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *heuristic;
    __typeof__(cublasLtMatmul) *matmul;
} lt;

#define CHECK(call, what)                                               \
    do {                                                                \
        int r_ = (int)(call);                                           \
        if (r_ != 0) {                                                  \
            fprintf(stderr, "cublaslt_best: %s: error %d\n", what, r_); \
            return -1;                                                  \
        }                                                               \
    } while (0)

static int load(void) {
    static const struct {
        const char *name;
        void *slot;
        int of_cuda;
    } all[] = {{"cuInit", &cu.init, 1},
               {"cuDeviceGet", &cu.device, 1},
               {"cuDeviceTotalMem_v2", &cu.total, 1},
               {"cuDevicePrimaryCtxRetain", &cu.retain, 1},
               {"cuCtxSetCurrent", &cu.use, 1},
               {"cuMemAlloc_v2", &cu.alloc, 1},
               {"cuMemHostAlloc", &cu.host_alloc, 1},
               {"cuMemcpyHtoDAsync_v2", &cu.copy, 1},
               {"cuStreamCreate", &cu.stream, 1},
               {"cuStreamQuery", &cu.query, 1},
               {"cuEventCreate", &cu.event, 1},
               {"cuEventRecord", &cu.record, 1},
               {"cuEventElapsedTime", &cu.elapsed, 1},
               {"cublasLtCreate", &lt.create, 0},
               {"cublasLtMatmulDescCreate", &lt.desc, 0},
               {"cublasLtMatmulDescSetAttribute", &lt.desc_set, 0},
               {"cublasLtMatrixLayoutCreate", &lt.layout, 0},
               {"cublasLtMatmulPreferenceCreate", &lt.pref, 0},
               {"cublasLtMatmulPreferenceSetAttribute", &lt.pref_set, 0},
               {"cublasLtMatmulAlgoGetHeuristic", &lt.heuristic, 0},
               {"cublasLtMatmul", &lt.matmul, 0}};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *blas = dlopen("libcublasLt.so.13", RTLD_NOW);
    if (!blas) blas = dlopen("libcublasLt.so.12", RTLD_NOW);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        void *lib = all[i].of_cuda ? driver : blas, *f = lib ? dlsym(lib, all[i].name) : NULL;
        if (!f) {
            fprintf(stderr, "cublaslt_best: no %s: set LD_LIBRARY_PATH\n", all[i].name);
            return -1;
        }
        memcpy(all[i].slot, &f, sizeof f);
    }
    return 0;
}

struct kind {
    const char *metric;
    int known; /* of known.h */
    cudaDataType_t in, out;
    cublasComputeType_t compute;
    int eight; /* FP8 has kernels for the transposed layout only */
};

struct setup {
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    CUdeviceptr pa, pb, pc, work;
    void *host;
    CUstream stream;
    CUevent marks[RUNS + 1];
    uint64_t edge;
    size_t space; /* of the workspace: gpu.gemm's */
};

static int rising(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The median rate of `runs` products, TFLOP/s; 0: it does not run. */
static double rate(struct setup *s, const cublasLtMatmulAlgo_t *algo, int runs) {
    const float one = 1, zero = 0;
    double each[RUNS];
    for (int i = -2; i < runs; i++) {
        if (i == 0) cu.record(s->marks[0], s->stream);
        if (lt.matmul(s->lt, s->op, &one, (void *)s->pa, s->a, (void *)s->pb, s->b, &zero, (void *)s->pc, s->c,
                      (void *)s->pc, s->c, algo, (void *)s->work, s->space, s->stream) != CUBLAS_STATUS_SUCCESS)
            return 0;
        if (i >= 0) cu.record(s->marks[i + 1], s->stream);
    }
    CUresult r = CUDA_SUCCESS;
    while ((r = cu.query(s->stream)) == CUDA_ERROR_NOT_READY) continue;
    for (int i = 0; i < runs; i++) {
        float ms = 0;
        if (r != CUDA_SUCCESS || cu.elapsed(&ms, s->marks[i], s->marks[i + 1]) != CUDA_SUCCESS || ms <= 0) return 0;
        each[i] = 2.0 * (double)s->edge * (double)s->edge * (double)s->edge / ((double)ms * 1e-3) / 1e12;
    }
    qsort(each, (size_t)runs, sizeof each[0], rising);
    return each[runs / 2];
}

/* gp_random_operand with gpu.gemm's seeds. */
static int fill(struct setup *s, const struct kind *k, CUdeviceptr to, uint64_t seed) {
    uint64_t n = s->edge * s->edge;
    for (uint64_t i = 0; i < n; i++)
        known_store(s->host, (ki64)i, k->known, known_random(k->known, known_hash(seed + i)));
    CHECK(cu.copy(to, s->host, n * (uint64_t)known_bytes(k->known), s->stream), "copy");
    CUresult r = CUDA_SUCCESS;
    while ((r = cu.query(s->stream)) == CUDA_ERROR_NOT_READY) continue;
    CHECK(r, "copy");
    return 0;
}

static int describe(struct setup *s, const struct kind *k, cublasLtMatmulPreference_t *pref) {
    cublasOperation_t t = CUBLAS_OP_T;
    int8_t fast = 1;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    CHECK(lt.desc(&s->op, k->compute, CUDA_R_32F), "describe");
    if (k->eight) CHECK(lt.desc_set(s->op, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t), "transpose");
    if (k->eight) CHECK(lt.desc_set(s->op, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast), "accumulation");
    CHECK(lt.layout(&s->a, k->in, s->edge, s->edge, (int64_t)s->edge), "layout");
    CHECK(lt.layout(&s->b, k->in, s->edge, s->edge, (int64_t)s->edge), "layout");
    CHECK(lt.layout(&s->c, k->out, s->edge, s->edge, (int64_t)s->edge), "layout");
    CHECK(lt.pref(pref), "preference");
    CHECK(lt.pref_set(*pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &s->space, sizeof s->space), "preference");
    CHECK(lt.pref_set(*pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction), "preference");
    return 0;
}

static int measure(struct setup *s, const struct kind *k) {
    cublasLtMatmulPreference_t pref = NULL;
    cublasLtMatmulHeuristicResult_t found[ALGOS];
    double first[ALGOS] = {0}, best = 0;
    int n = 0, pick = -1;
    /* the first operand of the column-major product is gpu.gemm's B */
    if (describe(s, k, &pref) != 0 || fill(s, k, s->pb, 0x6e66u + (unsigned)k->known) != 0 ||
        fill(s, k, s->pa, ~(uint64_t)(0x6e66u + (unsigned)k->known)) != 0)
        return -1;
    CHECK(lt.heuristic(s->lt, s->op, s->a, s->b, s->c, s->c, pref, ALGOS, found, &n), k->metric);
    for (int i = 0; i < n; i++) first[i] = rate(s, &found[i].algo, FEW);
    for (int turn = 0; turn < TOP; turn++) {
        int at = 0;
        for (int i = 1; i < n; i++) at = first[i] > first[at] ? i : at;
        double again = n > 0 && first[at] > 0 ? rate(s, &found[at].algo, RUNS) : 0;
        if (again > best) {
            best = again;
            pick = at;
        }
        first[at] = 0;
    }
    if (pick >= 0) printf("gpu.gemm %s %.6g cublaslt-best\n", k->metric, rate(s, &found[pick].algo, RUNS));
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv) {
    static const struct kind kinds[] = {
        {"fp32", KNOWN_F32, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 0},
        {"tf32", KNOWN_TF32, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 0},
        {"bf16", KNOWN_BF16, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 0},
        {"fp16", KNOWN_F16, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, 0},
        {"fp8", KNOWN_E4M3, CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1},
    };
    struct setup s = {.edge = argc > 1 ? strtoull(argv[1], NULL, 10) : 8192};
    size_t bytes = s.edge * s.edge * 4, total = 0;
    CUdevice device = 0;
    CUcontext context = NULL;
    if (load() != 0) return 1;
    CHECK(cu.init(0), "start the driver");
    CHECK(cu.device(&device, 0), "GPU 0");
    CHECK(cu.total(&total, device), "memory");
    s.space = total / 64 < WORKSPACE_MAX ? total / 64 : WORKSPACE_MAX;
    CHECK(cu.retain(&context, device), "context");
    CHECK(cu.use(context), "context");
    CHECK(cu.stream(&s.stream, 1), "stream");
    CHECK(lt.create(&s.lt), "create");
    CHECK(cu.alloc(&s.pa, bytes), "memory");
    CHECK(cu.alloc(&s.pb, bytes), "memory");
    CHECK(cu.alloc(&s.pc, bytes), "memory");
    CHECK(cu.alloc(&s.work, s.space), "memory");
    CHECK(cu.host_alloc(&s.host, bytes, 0), "host memory");
    for (int i = 0; i <= RUNS; i++) CHECK(cu.event(&s.marks[i], 0), "event");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        measure(&s, &kinds[i]); /* a type that this GPU has not is reported on stderr */
    return 0;
}
