/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libcublasLt.so.13 and .12 (STANDIN_VERSION): the part that the agent calls, in plain C,
 * column-major as the real one, on the stand-in GPUs' memory and clock. It refuses what the real one
 * refuses: 8-bit operands that are not transposed x plain or not in multiples of 16, addresses less
 * aligned than the preference said, types that the model has not. GPUPROV_STANDIN_CUBLASLT:
 *   version=140000  what it says it is (also: an unknown major)
 *   create=1        the status of cublasLtCreate        status=15  of every product
 *   offers=0        algorithms offered (default 4; the third is the fastest, the first 10 % slower)
 *   early=80        the first one's first three products of a type take that percentage of their time
 *   broken=1        the first one offered gives NOT_SUPPORTED when it runs
 *   slow=50         percent of the rate    hang=1  a product never ends
 *   tile=1          the first 16 x 16 elements of a result are off by one     nan=1  one element is NaN
 *   gpu=3           the last four: of this GPU only
 * Faults of single bits: gemm_bit and gemm_nan of GPUPROV_STANDIN. */
#include "standin_gpu.h"
#include "validate/agent/device/numeric.h"

#include <dlfcn.h>
#include <math.h>

#undef GET
#define GET(key, def) standin_get("GPUPROV_STANDIN_CUBLASLT", key, def)

enum { NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16F = 2, R_8I = 3, R_32I = 10, R_16BF = 14, R_8F_E4M3 = 28 };
enum { WORKSPACE_WANTED = 64 << 10 };

/* The stand-in driver that this process has loaded. */
static struct {
    int (*current)(void);
    int (*begin)(void);
    void (*spend)(void *stream, enum standin_work w, double amount);
    int (*can)(enum standin_work w);
    void (*spoil)(void *at, size_t elements, size_t size);
    int (*holds)(uint64_t at, size_t bytes);
    void (*hang)(void);
} gpu;

static int find_driver(void) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
    static const char *const names[] = {"standin_gpu_current", "standin_gpu_begin", "standin_gpu_spend",
                                        "standin_gpu_can",     "standin_gpu_spoil", "standin_gpu_holds",
                                        "standin_gpu_hang"};
    for (size_t i = 0; lib && i < sizeof names / sizeof *names; i++) {
        void *f = dlsym(lib, names[i]);
        if (!f) return 0;
        memcpy((char *)&gpu + i * sizeof f, &f, sizeof f);
    }
    return lib != NULL;
}

struct desc {
    int compute, scale;
    int32_t turned[2];
};
struct layout {
    int type;
    uint64_t rows, cols;
    int64_t ld, stride;
    int32_t batch;
};
struct pref {
    uint64_t workspace;
    uint32_t align[4], reduce;
};
struct algo {
    uint64_t which, align[3], rest[4];
};
struct candidate {
    struct algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

EXPORT int cublasLtCreate(void **ret) {
    int r = find_driver() ? (int)GET("create", 0) : NOT_INITIALIZED;
    *ret = r ? NULL : &gpu;
    return r;
}

EXPORT int cublasLtDestroy(void *handle) { return handle == &gpu ? 0 : INVALID_VALUE; }

EXPORT size_t cublasLtGetVersion(void) { return (size_t)GET("version", STANDIN_VERSION); }

static int made(void **ret, const void *value, size_t bytes) {
    *ret = malloc(bytes);
    if (!*ret) return 3;
    memcpy(*ret, value, bytes);
    return 0;
}

EXPORT int cublasLtMatmulDescCreate(void **ret, int compute, int scale) {
    struct desc d = {.compute = compute, .scale = scale};
    return made(ret, &d, sizeof d);
}

EXPORT int cublasLtMatmulDescDestroy(void *p) {
    free(p);
    return 0;
}

EXPORT int cublasLtMatmulDescSetAttribute(void *p, int attribute, const void *value, size_t bytes) {
    struct desc *d = p;
    if (attribute == 25 && bytes == 1) return 0;
    if ((attribute != 3 && attribute != 4) || bytes != 4) return INVALID_VALUE;
    memcpy(&d->turned[attribute - 3], value, 4);
    return 0;
}

EXPORT int cublasLtMatrixLayoutCreate(void **ret, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    struct layout l = {.type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1};
    return ld < (int64_t)rows ? INVALID_VALUE : made(ret, &l, sizeof l);
}

EXPORT int cublasLtMatrixLayoutDestroy(void *p) {
    free(p);
    return 0;
}

EXPORT int cublasLtMatrixLayoutSetAttribute(void *p, int attribute, const void *value, size_t bytes) {
    struct layout *l = p;
    if (attribute == 5 && bytes == 4) memcpy(&l->batch, value, 4);
    else if (attribute == 6 && bytes == 8) memcpy(&l->stride, value, 8);
    else return INVALID_VALUE;
    return 0;
}

EXPORT int cublasLtMatmulPreferenceCreate(void **ret) {
    struct pref f = {.workspace = 0, .align = {256, 256, 256, 256}};
    return made(ret, &f, sizeof f);
}

EXPORT int cublasLtMatmulPreferenceDestroy(void *p) {
    free(p);
    return 0;
}

EXPORT int cublasLtMatmulPreferenceSetAttribute(void *p, int attribute, const void *value, size_t bytes) {
    struct pref *f = p;
    if (attribute == 1 && bytes == 8) memcpy(&f->workspace, value, 8);
    else if (attribute == 3 && bytes == 4) memcpy(&f->reduce, value, 4);
    else if (attribute >= 5 && attribute <= 8 && bytes == 4) memcpy(&f->align[attribute - 5], value, 4);
    else return INVALID_VALUE;
    return 0;
}

/* --- what it can --- */

static size_t size_of(int type) {
    return type == R_16F || type == R_16BF ? 2 : type == R_8I || type == R_8F_E4M3 ? 1 : 4;
}

static int work_of(const struct desc *d, int type) {
    switch (type) {
    case R_16F: return WORK_FP16;
    case R_16BF: return WORK_BF16;
    case R_8I: return WORK_INT8;
    case R_8F_E4M3: return WORK_FP8;
    default: return d->compute == 77 ? WORK_TF32 : WORK_FP32;
    }
}

/* op(A) is m x k, op(B) k x n. 0: supported. */
static int shape_of(const struct desc *d, const struct layout *a, const struct layout *b, const struct layout *c,
                    uint64_t *m, uint64_t *n, uint64_t *k) {
    *m = d->turned[0] ? a->cols : a->rows;
    *k = d->turned[0] ? a->rows : a->cols;
    *n = d->turned[1] ? b->rows : b->cols;
    if ((d->turned[1] ? b->cols : b->rows) != *k || c->rows != *m || c->cols != *n || a->type != b->type ||
        a->batch != b->batch || a->batch != c->batch)
        return INVALID_VALUE;
    int whole = a->type == R_8I;
    int out = whole ? R_32I : R_32F;
    if (d->compute != (whole ? 72 : d->compute == 77 && a->type == R_32F ? 77 : 68) || d->scale != out)
        return NOT_SUPPORTED;
    int half = a->type == R_16F ? R_16F : a->type == R_16BF || a->type == R_8F_E4M3 ? R_16BF : out;
    if (c->type != out && c->type != half) return NOT_SUPPORTED;
    if (size_of(a->type) == 1 &&
        (!d->turned[0] || d->turned[1] || *m % 16 || *n % 16 || *k % 16 || a->ld % 16 || b->ld % 16))
        return NOT_SUPPORTED;
    return gpu.can((enum standin_work)work_of(d, a->type)) ? 0 : NOT_SUPPORTED;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *pref,
                                          int n, struct candidate *ret, int *ret_n) {
    const struct pref *f = pref;
    uint64_t m = 0, cols = 0, k = 0;
    if (handle != &gpu || c != d || n < 1) return INVALID_VALUE;
    int r = shape_of(desc, a, b, c, &m, &cols, &k);
    if (r) return r;
    long long offers = GET("offers", 4);
    *ret_n = (int)(offers < n ? offers : n);
    for (int i = 0; i < *ret_n; i++) {
        ret[i] = (struct candidate){.algo = {.which = (uint64_t)i + 1}, .workspace = i == 1 ? WORKSPACE_WANTED : 0};
        for (int j = 0; j < 3; j++) ret[i].algo.align[j] = f->align[j];
        if (ret[i].workspace > f->workspace) ret[i].state = NOT_SUPPORTED;
    }
    return *ret_n ? 0 : NOT_SUPPORTED;
}

/* --- the product --- */

static double value(const void *p, int type, int compute, size_t i) {
    uint32_t w = 0;
    switch (type) {
    case R_16F: return (double)num_from_f16(((const uint16_t *)p)[i]);
    case R_16BF: return (double)num_from_bf16(((const uint16_t *)p)[i]);
    case R_8I: return ((const int8_t *)p)[i];
    case R_8F_E4M3: return (double)num_from_e4m3(((const uint8_t *)p)[i]);
    case R_32I: return ((const int32_t *)p)[i];
    default: memcpy(&w, (const char *)p + 4 * i, 4); return (double)num_from_bits(compute == 77 ? w & 0xffffe000u : w);
    }
}

static void store(void *p, int type, size_t i, double v) {
    uint16_t h = type == R_16F ? num_to_f16((float)v) : num_to_bf16((float)v);
    float f = (float)v;
    int32_t w = type == R_32I ? (int32_t)(int64_t)v : 0;
    if (type == R_32F) memcpy((char *)p + 4 * i, &f, 4);
    else if (type == R_32I) memcpy((char *)p + 4 * i, &w, 4);
    else memcpy((char *)p + 2 * i, &h, 2);
}

/* op(X) as fp32 rows of k: every type but int8 products of large k is exact in it. */
static float *rows_of(const void *p, const struct layout *l, int compute, int by_columns, size_t rows, size_t k) {
    float *r = malloc(rows * k * sizeof *r);
    if (!r) abort();
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < k; j++)
            r[i * k + j] =
                (float)value(p, l->type, compute, by_columns ? i * (size_t)l->ld + j : j * (size_t)l->ld + i);
    return r;
}

static uint64_t hash(uint64_t h, const void *p, size_t bytes) {
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t w = 0;
        memcpy(&w, (const char *)p + i, 8);
        h = (h ^ w) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    for (size_t i = bytes / 8 * 8; i < bytes; i++) h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3u;
    return h;
}

/* The last product, kept: what is timed multiplies the same matrices again and again. */
static struct {
    uint64_t key;
    double *sums;
    size_t room;
} last;

static const double *sums_of(const struct desc *d, const void *a, const struct layout *la, const void *b,
                             const struct layout *lb, uint64_t m, uint64_t n, uint64_t k) {
    uint64_t what[] = {m,
                       n,
                       k,
                       (uint64_t)la->type,
                       (uint64_t)d->compute,
                       (uint64_t)d->turned[0],
                       (uint64_t)d->turned[1],
                       (uint64_t)la->ld,
                       (uint64_t)lb->ld};
    uint64_t key =
        hash(hash(hash(1, what, sizeof what), a, ((uint64_t)la->ld * (la->cols - 1) + la->rows) * size_of(la->type)), b,
             ((uint64_t)lb->ld * (lb->cols - 1) + lb->rows) * size_of(lb->type));
    if (last.sums && last.key == key) return last.sums;
    if (last.room < m * n) last.sums = realloc(last.sums, (last.room = m * n) * sizeof *last.sums);
    if (!last.sums) abort();
    last.key = key;
    float *x = rows_of(a, la, d->compute, d->turned[0], m, k);
    float *y = rows_of(b, lb, d->compute, !d->turned[1], n, k);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++) {
            double part[4] = {0, 0, 0, 0};
            size_t e = 0;
            for (; e + 4 <= k; e += 4)
                for (size_t h = 0; h < 4; h++) part[h] += (double)x[i * k + e + h] * (double)y[j * k + e + h];
            for (; e < k; e++) part[0] += (double)x[i * k + e] * (double)y[j * k + e];
            last.sums[j * m + i] = (part[0] + part[1]) + (part[2] + part[3]);
        }
    }
    free(x);
    free(y);
    return last.sums;
}

static void one(const struct desc *d, const void *a, const struct layout *la, const void *b, const struct layout *lb,
                int add, void *c, const struct layout *lc, uint64_t m, uint64_t n, uint64_t k) {
    const double *sums = sums_of(d, a, la, b, lb, m, n, k);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++) {
            size_t at = j * (size_t)lc->ld + i;
            store(c, lc->type, at, sums[j * m + i] + (add ? value(c, lc->type, 0, at) : 0));
        }
    }
}

static int mine(void) {
    long long only = GET("gpu", -1);
    return only < 0 || only == gpu.current();
}

static void damage(void *c, const struct layout *l) {
    if (!mine()) return;
    for (size_t j = 0; GET("tile", 0) && j < 16 && j < l->cols; j++)
        for (size_t i = 0; i < 16 && i < l->rows; i++)
            store(c, l->type, j * (size_t)l->ld + i, value(c, l->type, 0, j * (size_t)l->ld + i) + 1);
    if (GET("nan", 0)) store(c, l->type, (size_t)(l->ld * (int64_t)(l->cols / 2)), (double)NAN);
}

static uint64_t span(const struct layout *l) {
    return ((uint64_t)l->stride * (uint64_t)(l->batch - 1) + (uint64_t)l->ld * (l->cols - 1) + l->rows) *
           size_of(l->type);
}

static int number(const struct desc *d, const void *p) {
    float f = 0;
    int32_t i = 0;
    memcpy(&f, p, 4);
    memcpy(&i, p, 4);
    return d->scale == R_32I ? i : (int)f;
}

EXPORT int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
                          void *b_layout, const void *beta, const void *c, void *c_layout, void *out, void *out_layout,
                          const struct algo *algo, void *workspace, size_t bytes, void *stream) {
    const struct desc *d = desc;
    const struct layout *la = a_layout, *lb = b_layout, *lc = out_layout;
    uint64_t m = 0, n = 0, k = 0;
    if (handle != &gpu || c_layout != out_layout || number(d, alpha) != 1 || algo->which < 1) return INVALID_VALUE;
    int r = shape_of(d, la, lb, lc, &m, &n, &k);
    if (r == 0) r = (int)GET("status", 0);
    if (r == 0 && algo->which == 1 && GET("broken", 0)) r = NOT_SUPPORTED;
    if (r) return r;
    const void *at[3] = {a, b, out};
    for (int i = 0; i < 3; i++)
        if ((uintptr_t)at[i] % algo->align[i]) return INVALID_VALUE;
    if (!gpu.holds((uint64_t)(uintptr_t)a, span(la)) || !gpu.holds((uint64_t)(uintptr_t)b, span(lb)) ||
        !gpu.holds((uint64_t)(uintptr_t)out, span(lc)) || !gpu.holds((uint64_t)(uintptr_t)workspace, bytes) ||
        (algo->which == 2 && bytes < WORKSPACE_WANTED))
        return INVALID_VALUE;
    r = gpu.begin();
    if (r) return r > 0 ? EXECUTION_FAILED : 0;
    if (mine() && GET("hang", 0)) {
        gpu.hang();
        return 0;
    }
    static const double cost[] = {1.0, 1.1, 1.05, 1.0, 1.3};
    double work = 2.0 * (double)m * (double)n * (double)k * lc->batch;
    static int run_of_first[WORKS];
    int work_kind = work_of(d, la->type);
    if (algo->which == 1 && GET("early", 0) && run_of_first[work_kind]++ < 3) work *= (double)GET("early", 0) / 100;
    double slow = mine() ? 100.0 / (double)GET("slow", 100) : 1;
    if (la->type == R_8F_E4M3 && lc->type == R_32F) slow *= 1.3; /* four bytes of C for each of A and B */
    gpu.spend(stream, (enum standin_work)work_kind, work * cost[algo->which < 5 ? algo->which : 4] * slow);
    for (int32_t s = 0; s < lc->batch; s++) {
        char *to = (char *)out + (size_t)s * (size_t)lc->stride * size_of(lc->type);
        if (number(d, beta) && c != out)
            for (uint64_t j = 0; j < n; j++)
                memcpy(to + j * (uint64_t)lc->ld * size_of(lc->type),
                       (const char *)c + ((size_t)s * (size_t)lc->stride + j * (uint64_t)lc->ld) * size_of(lc->type),
                       m * size_of(lc->type));
        one(d, (const char *)a + (size_t)s * (size_t)la->stride * size_of(la->type), la,
            (const char *)b + (size_t)s * (size_t)lb->stride * size_of(lb->type), lb, number(d, beta) != 0, to, lc, m,
            n, k);
        damage(to, lc);
        gpu.spoil(to, m * n, size_of(lc->type));
    }
    return 0;
}
