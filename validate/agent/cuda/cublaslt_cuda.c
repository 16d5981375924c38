/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt by dlopen, declared by hand (its descriptors are opaque, its enums fixed since version 11).
 * Our matrices are row-major and its column-major, so it computes the transposed product, C' = B' A', of the same
 * memory. The heuristic's candidates are timed on the device once per shape. One thread per device. */
#include "base/gp_base.h"

#include "cublaslt_cuda.h"
#include "validate/agent/device/numeric.h"

#include <dlfcn.h>

enum { /* cublasStatus_t */
       BLAS_EXECUTION_FAILED = 13,
       BLAS_NOT_SUPPORTED = 15
};
enum { /* cudaDataType_t */
       R_32F = 0,
       R_16F = 2,
       R_8I = 3,
       R_32I = 10,
       R_16BF = 14,
       R_8F_E4M3 = 28
};
enum { COMPUTE_32F = 68, COMPUTE_32I = 72, COMPUTE_32F_FAST_TF32 = 77 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_FAST_ACCUM = 25 };
enum { LAYOUT_BATCH_COUNT = 5, LAYOUT_BATCH_STRIDE = 6 };
enum { REDUCE_COMPUTE_TYPE = 2 }; /* cublasLtReductionScheme_t, a mask */
enum { PREF_WORKSPACE = 1, PREF_REDUCTION_MASK = 3, PREF_ALIGN_A = 5, PREF_ALIGN_B, PREF_ALIGN_C, PREF_ALIGN_D };
enum { CANDIDATES = 24, TIMED_RUNS = 2, AGAIN = 3, AGAIN_RUNS = 10, TRY_LIMIT_MS = 5000 };
#define WORKSPACE_MAX ((size_t)64 << 20)
#define TRY_BUDGET_S 0.4 /* of GPU time; the heuristic's order puts the likely ones first */

struct blas_algo {
    uint64_t opaque[8];
};
struct blas_candidate { /* cublasLtMatmulHeuristicResult_t */
    struct blas_algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

struct blas_api {
    int (*create)(void **ret);
    int (*destroy)(void *handle);
    size_t (*version)(void);
    int (*desc_new)(void **ret, int compute, int scale_type);
    int (*desc_free)(void *desc);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
    int (*layout_new)(void **ret, int type, uint64_t rows, uint64_t cols, int64_t ld);
    int (*layout_free)(void *layout);
    int (*layout_set)(void *layout, int attribute, const void *value, size_t bytes);
    int (*pref_new)(void **ret);
    int (*pref_free)(void *pref);
    int (*pref_set)(void *pref, int attribute, const void *value, size_t bytes);
    int (*candidates)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *pref, int n,
                      struct blas_candidate *ret, int *ret_n);
    int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
                  void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
                  const struct blas_algo *algo, void *workspace, size_t bytes, cu_stream stream);
};

#define SYMBOL(name, member) \
    { name, offsetof(struct blas_api, member) }
static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    SYMBOL("cublasLtCreate", create),
    SYMBOL("cublasLtDestroy", destroy),
    SYMBOL("cublasLtGetVersion", version),
    SYMBOL("cublasLtMatmulDescCreate", desc_new),
    SYMBOL("cublasLtMatmulDescDestroy", desc_free),
    SYMBOL("cublasLtMatmulDescSetAttribute", desc_set),
    SYMBOL("cublasLtMatrixLayoutCreate", layout_new),
    SYMBOL("cublasLtMatrixLayoutDestroy", layout_free),
    SYMBOL("cublasLtMatrixLayoutSetAttribute", layout_set),
    SYMBOL("cublasLtMatmulPreferenceCreate", pref_new),
    SYMBOL("cublasLtMatmulPreferenceDestroy", pref_free),
    SYMBOL("cublasLtMatmulPreferenceSetAttribute", pref_set),
    SYMBOL("cublasLtMatmulAlgoGetHeuristic", candidates),
    SYMBOL("cublasLtMatmul", matmul),
};

/* The algorithm and descriptors of a shape. */
struct plan {
    struct gemm_args key;   /* without addresses; alignment of A, B, C in their place */
    void *desc, *a, *b, *c; /* a: of cuBLASLt's first operand, our B */
    struct blas_algo algo;
};

struct blas {
    struct device *d;
    struct blas_api api;
    void *handle;
    dev_addr workspace;
    size_t workspace_bytes;
    cu_event from, to;
    VEC_OF(struct plan) plans;
};

/* --- which library --- */

static const char *status_name(int status) {
    switch (status) {
    case 1: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3: return "CUBLAS_STATUS_ALLOC_FAILED";
    case 7: return "CUBLAS_STATUS_INVALID_VALUE";
    case 8: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case 11: return "CUBLAS_STATUS_MAPPING_ERROR";
    case BLAS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case 14: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case BLAS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "an unknown status";
    }
}

static bool resolve(void *lib, struct blas_api *ret, struct str *why) {
    for (size_t i = 0; i < GP_ARRAY_LEN(symbols); i++) {
        void *f = dlsym(lib, symbols[i].name);
        if (!f) {
            str_addf(why, "it lacks %s", symbols[i].name);
            return false;
        }
        memcpy((char *)ret + symbols[i].offset, &f, sizeof f);
    }
    return true;
}

static bool start(struct blas *b, void *lib, struct str *why, size_t *ret_version) {
    if (!resolve(lib, &b->api, why)) return false;
    size_t v = b->api.version();
    *ret_version = v;
    size_t major = v / 10000;
    if (major != 12 && major != 13) {
        str_addf(why, "its version %zu is unknown to this agent (12, 13)", v);
        return false;
    }
    if (b->d->driver / 1000 < (int)major) {
        str_addf(why, "version %zu needs a driver of CUDA %zu, this one offers %d.%d", v, major, b->d->driver / 1000,
                 b->d->driver % 1000 / 10);
        return false;
    }
    int r = b->api.create(&b->handle);
    if (r) {
        b->handle = NULL;
        str_addf(why, "cublasLtCreate: %s (%d)", status_name(r), r);
    }
    return r == 0;
}

struct blas *blas_open(struct device *d, struct str *said) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    struct blas *b = xcalloc(1, sizeof *b);
    GP_AUTO_STR struct str all = {.max = 1000};
    void *tried[GP_ARRAY_LEN(names)] = {NULL};
    b->d = d;
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        GP_AUTO_STR struct str path = {0};
        GP_AUTO_STR struct str why = {0};
        size_t v = 0;
        void *lib = library_open(names[i], &path, &why);
        str_reset(&why);
        tried[i] = lib;
        if (!lib || (i > 0 && lib == tried[0]) || (i > 1 && lib == tried[1])) continue;
        if (start(b, lib, &why, &v)) {
            str_addf(said, "cuBLASLt %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
            return b;
        }
        str_addf(&all, "%s%s: %s", all.len ? "; " : "", path.s, why.s);
    }
    str_add(said, all.len ? all.s : "libcublasLt.so.13 and .12 were not found");
    free(b);
    return NULL;
}

static void plan_free(struct blas *b, struct plan *p) {
    if (p->desc) b->api.desc_free(p->desc);
    void *layouts[] = {p->a, p->b, p->c};
    for (size_t i = 0; i < GP_ARRAY_LEN(layouts); i++)
        if (layouts[i]) b->api.layout_free(layouts[i]);
    *p = (struct plan){.desc = NULL};
}

void blas_close(struct blas *b, bool driver) {
    if (!b) return;
    for (size_t i = 0; driver && i < b->plans.len; i++) plan_free(b, &b->plans.items[i]);
    if (driver && b->from) b->d->cu->event_free(b->from);
    if (driver && b->to) b->d->cu->event_free(b->to);
    if (driver) b->api.destroy(b->handle);
    vec_free(&b->plans);
    free(b); /* the workspace is freed with the device */
}

/* --- one shape --- */

static const struct {
    const char *name;
    int operand, compute, scale, out;
} types[GEMM_TYPES] = {
    [GEMM_F32] = {"fp32", R_32F, COMPUTE_32F, R_32F, R_32F},
    [GEMM_TF32] = {"tf32", R_32F, COMPUTE_32F_FAST_TF32, R_32F, R_32F},
    [GEMM_F16] = {"fp16", R_16F, COMPUTE_32F, R_32F, R_32F},
    [GEMM_BF16] = {"bf16", R_16BF, COMPUTE_32F, R_32F, R_32F},
    [GEMM_FP8_E4M3] = {"fp8", R_8F_E4M3, COMPUTE_32F, R_32F, R_32F},
    [GEMM_INT8] = {"int8", R_8I, COMPUTE_32I, R_32I, R_32I},
};

static int blas_fail(struct blas *b, const struct gemm_args *a, int status, const char *what, struct gp_error *err) {
    /* The driver reports a fault of the GPU itself. */
    cu_result r = status == BLAS_EXECUTION_FAILED ? b->d->cu->stream_query(b->d->stream) : 0;
    if (r && r != CU_NOT_READY) return device_fail(b->d, r, err, "multiply matrices");
    int rc = gp_fail(err, GP_EENV, "gpu %d: cuBLASLt, %s %d x %d x %d: %s: %s (%d)", b->d->index, types[a->type].name,
                     a->m, a->n, a->k, what, status_name(status), status);
    if (err) err->domain = GP_D_NODE;
    return rc;
}

static int layout_make(struct blas *b, void **ret, int type, int rows, int cols, int batch, int64_t stride) {
    int r = b->api.layout_new(ret, type, (uint64_t)rows, (uint64_t)cols, rows);
    int32_t count = batch;
    if (r == 0 && batch > 1) r = b->api.layout_set(*ret, LAYOUT_BATCH_COUNT, &count, sizeof count);
    if (r == 0 && batch > 1) r = b->api.layout_set(*ret, LAYOUT_BATCH_STRIDE, &stride, sizeof stride);
    return r;
}

static int plan_describe(struct blas *b, struct plan *p) {
    const struct gemm_args *g = &p->key;
    int operand = types[g->type].operand, out = types[g->type].out;
    if (g->out_same) out = operand == R_8F_E4M3 ? R_16BF : operand;
    int32_t yes = 1;
    int8_t fast = 1;
    int r = b->api.desc_new(&p->desc, types[g->type].compute, types[g->type].scale);
    if (r == 0 && g->trans_b) r = b->api.desc_set(p->desc, DESC_TRANSA, &yes, sizeof yes);
    if (r == 0 && g->trans_a) r = b->api.desc_set(p->desc, DESC_TRANSB, &yes, sizeof yes);
    if (r == 0 && g->type == GEMM_FP8_E4M3) r = b->api.desc_set(p->desc, DESC_FAST_ACCUM, &fast, sizeof fast);
    /* Row-major rows x cols is column-major cols x rows. */
    if (r == 0)
        r = layout_make(b, &p->a, operand, g->trans_b ? g->k : g->n, g->trans_b ? g->n : g->k, g->batch, g->stride_b);
    if (r == 0)
        r = layout_make(b, &p->b, operand, g->trans_a ? g->m : g->k, g->trans_a ? g->k : g->m, g->batch, g->stride_a);
    if (r == 0) r = layout_make(b, &p->c, out, g->n, g->m, g->batch, g->stride_c);
    return r;
}

static int plan_run(struct blas *b, const struct plan *p, const struct gemm_args *g, dev_addr out,
                    const struct blas_algo *algo) {
    float one = 1, zero = 0;
    int32_t int_one = 1, int_zero = 0;
    bool whole = g->type == GEMM_INT8;
    const void *alpha = whole ? (const void *)&int_one : &one;
    const void *none = whole ? (const void *)&int_zero : &zero;
    return b->api.matmul(b->handle, p->desc, alpha, (void *)(uintptr_t)g->b, p->a, (void *)(uintptr_t)g->a, p->b,
                         g->accumulate ? alpha : none, (void *)(uintptr_t)g->c, p->c, (void *)(uintptr_t)out, p->c,
                         algo, (void *)(uintptr_t)b->workspace, b->workspace_bytes, b->d->stream);
}

static int plan_candidates(struct blas *b, const struct plan *p, struct blas_candidate *ret, int *ret_n) {
    void *pref = NULL;
    int r = b->api.pref_new(&pref);
    uint64_t bytes = b->workspace_bytes;
    uint32_t reduce = REDUCE_COMPUTE_TYPE;
    uint32_t align[4] = {(uint32_t)p->key.b, (uint32_t)p->key.a, (uint32_t)p->key.c, (uint32_t)p->key.c};
    if (r == 0) r = b->api.pref_set(pref, PREF_WORKSPACE, &bytes, sizeof bytes);
    /* Partial sums are added in fp32 too, never rounded to 16 bits in between. */
    if (r == 0) r = b->api.pref_set(pref, PREF_REDUCTION_MASK, &reduce, sizeof reduce);
    for (int i = 0; r == 0 && i < 4; i++) r = b->api.pref_set(pref, PREF_ALIGN_A + i, &align[i], sizeof align[i]);
    if (r == 0) r = b->api.candidates(b->handle, p->desc, p->a, p->b, p->c, p->c, pref, CANDIDATES, ret, ret_n);
    if (pref) b->api.pref_free(pref);
    return r == 0 && *ret_n < 1 ? BLAS_NOT_SUPPORTED : r;
}

/* Seconds of one run; 0 with a status in *ret_status: this algorithm does not run. */
static int time_one(struct blas *b, const struct plan *p, const struct gemm_args *g, dev_addr out,
                    const struct blas_algo *algo, int runs, double *ret_s, int *ret_status, struct gp_error *err) {
    struct device *d = b->d;
    cu_result r = 0;
    float ms = 0;
    *ret_s = 0;
    *ret_status = plan_run(b, p, g, out, algo); /* warms up */
    if (*ret_status == 0) r = d->cu->event_record(b->from, d->stream);
    for (int i = 0; r == 0 && *ret_status == 0 && i < runs; i++) *ret_status = plan_run(b, p, g, out, algo);
    if (*ret_status) return 0;
    if (r == 0) r = d->cu->event_record(b->to, d->stream);
    if (r) return device_fail(d, r, err, "record an event");
    int rc = device_cuda.sync(d, device_deadline(d, TRY_LIMIT_MS), err);
    if (rc < 0) return rc;
    r = d->cu->event_elapsed(&ms, b->from, b->to);
    *ret_s = (double)ms / 1000 / runs;
    return r ? device_fail(d, r, err, "measure its time") : 0;
}

struct trial {
    double s[CANDIDATES]; /* 0: not tried, or does not run */
    double best, spent;
    int last; /* the status of the last one that does not run */
};

static int try_one(struct blas *b, struct plan *p, const struct gemm_args *g, dev_addr out,
                   const struct blas_candidate *found, int i, int runs, struct trial *t, struct gp_error *err) {
    int status = 0;
    int rc = time_one(b, p, g, out, &found[i].algo, runs, &t->s[i], &status, err);
    t->last = status ? status : t->last;
    t->spent += t->s[i] * (runs + 1);
    if (rc == 0 && status == 0 && (t->best <= 0 || t->s[i] < t->best)) {
        t->best = t->s[i];
        p->algo = found[i].algo;
    }
    return rc;
}

static int try_all(struct blas *b, struct plan *p, const struct gemm_args *g, dev_addr out,
                   const struct blas_candidate *found, int n, struct gp_error *err) {
    struct trial t = {.last = BLAS_NOT_SUPPORTED};
    int rc = 0;
    for (int i = 0; rc == 0 && i < n && (t.spent < TRY_BUDGET_S || t.best <= 0); i++)
        if (found[i].state == 0 && found[i].workspace <= b->workspace_bytes)
            rc = try_one(b, p, g, out, found, i, TIMED_RUNS, &t, err);
    if (rc == 0 && t.best <= 0) return blas_fail(b, g, t.last, "none of its algorithms runs", err);
    /* The first times are short and noisy: the best three are timed again, longer. */
    double first[CANDIDATES];
    memcpy(first, t.s, sizeof first);
    int runs = GP_MAX(TIMED_RUNS, (int)GP_MIN((double)AGAIN_RUNS, TRY_BUDGET_S / AGAIN / t.best));
    t.best = 0;
    for (int turn = 0; rc == 0 && turn < AGAIN; turn++) {
        int at = -1;
        for (int i = 0; i < n; i++)
            if (first[i] > 0 && (at < 0 || first[i] < first[at])) at = i;
        if (at < 0) break;
        first[at] = 0;
        rc = try_one(b, p, g, out, found, at, runs, &t, err);
    }
    return rc;
}

/* The first in the heuristic's order that runs: independent of time, so that equal GPUs choose alike. */
static int take_first(struct blas *b, struct plan *p, const struct gemm_args *g, dev_addr out,
                      const struct blas_candidate *found, int n, struct gp_error *err) {
    int last = BLAS_NOT_SUPPORTED;
    for (int i = 0; i < n; i++) {
        if (found[i].state || found[i].workspace > b->workspace_bytes) continue;
        p->algo = found[i].algo;
        last = plan_run(b, p, g, out, &found[i].algo);
        if (last == 0) return 0;
    }
    return blas_fail(b, g, last, "none of its algorithms runs", err);
}

/* The first or the fastest one that runs. With accumulate the trials write elsewhere, because each adds to C. */
static int plan_choose(struct blas *b, struct plan *p, const struct gemm_args *g, struct gp_error *err) {
    struct blas_candidate found[CANDIDATES];
    int n = 0, status = plan_candidates(b, p, found, &n);
    if (status) return blas_fail(b, g, status, "no algorithm", err);
    p->algo = found[0].algo;
    dev_addr out = g->c;
    size_t bytes = (size_t)(g->stride_c * (g->batch - 1) + (int64_t)g->m * g->n) * 4;
    if (g->accumulate && device_cuda.alloc(b->d, bytes, &out, NULL) < 0)
        return 0; /* no room for trials: the heuristic's first */
    int rc = g->fastest ? try_all(b, p, g, out, found, n, err) : take_first(b, p, g, out, found, n, err);
    if (out != g->c && !b->d->hung) device_cuda.free(b->d, out);
    return rc;
}

/* The largest power of two up to 256 that divides both. (A layout has its leading dimension itself.) */
static dev_addr alignment(dev_addr p, int64_t stride_bytes) {
    dev_addr all = p | (dev_addr)stride_bytes | 256;
    return all & -all;
}

static struct gemm_args key_of(const struct gemm_args *a) {
    static const int size[GEMM_TYPES] = {4, 4, 2, 2, 1, 1};
    struct gemm_args k = *a;
    k.a = alignment(a->a, a->batch > 1 ? a->stride_a * size[a->type] : 0);
    k.b = alignment(a->b, a->batch > 1 ? a->stride_b * size[a->type] : 0);
    k.c = alignment(a->c, a->batch > 1 ? a->stride_c * (a->out_same ? 2 : 4) : 0);
    return k;
}

static bool same_key(const struct gemm_args *x, const struct gemm_args *y) {
    return x->type == y->type && x->m == y->m && x->n == y->n && x->k == y->k && x->batch == y->batch && x->a == y->a &&
           x->b == y->b && x->c == y->c && x->trans_a == y->trans_a && x->trans_b == y->trans_b &&
           x->accumulate == y->accumulate && x->out_same == y->out_same && x->stride_a == y->stride_a &&
           x->stride_b == y->stride_b && x->stride_c == y->stride_c && x->fastest == y->fastest;
}

/* Makes the parts shared by all products, at the first. The workspace is that of Hopper's kernels, less on a small
 * GPU. */
static int prepare(struct blas *b, struct gp_error *err) {
    size_t avail = 0, total = 0;
    int rc = b->workspace ? 0 : cuda_memory(b->d, &avail, &total, err);
    if (rc == 0 && !b->workspace) {
        b->workspace_bytes = GP_MIN(WORKSPACE_MAX, total / 64);
        rc = device_cuda.alloc(b->d, b->workspace_bytes, &b->workspace, err);
    }
    cu_result r = 0;
    if (rc == 0 && !b->from) r = b->d->cu->event_new(&b->from, 0);
    if (rc == 0 && r == 0 && !b->to) r = b->d->cu->event_new(&b->to, 0);
    return rc == 0 && r ? device_fail(b->d, r, err, "make an event") : rc;
}

static const struct plan *plan_find(const struct blas *b, const struct gemm_args *key) {
    for (size_t i = 0; i < b->plans.len; i++)
        if (same_key(&b->plans.items[i].key, key)) return &b->plans.items[i];
    return NULL;
}

uint64_t blas_algorithm(const struct blas *b, const struct gemm_args *a) {
    struct gemm_args key = key_of(a);
    const struct plan *p = plan_find(b, &key);
    uint64_t h = 0;
    for (size_t i = 0; p && i < GP_ARRAY_LEN(p->algo.opaque); i++) h = num_mix(h ^ p->algo.opaque[i]);
    return h;
}

int blas_gemm(struct blas *b, const struct gemm_args *a, struct gp_error *err) {
    struct gemm_args key = key_of(a);
    int rc = prepare(b, err);
    if (rc < 0) return rc;
    const struct plan *p = plan_find(b, &key);
    if (!p) {
        struct plan made = {.key = key};
        int status = plan_describe(b, &made);
        rc = status ? blas_fail(b, a, status, "describe it", err) : plan_choose(b, &made, a, err);
        if (rc < 0) {
            plan_free(b, &made);
            return rc;
        }
        vec_push(&b->plans, made);
        p = &b->plans.items[b->plans.len - 1];
    }
    int status = plan_run(b, p, a, a->c, &p->algo);
    return status ? blas_fail(b, a, status, "multiply", err) : 0;
}
