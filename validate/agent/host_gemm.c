/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products in plain C: operands are turned into fp32 (int32), each element of C is one sum with k
 * rising, one rounded product and one rounded addition at a time. Threads share out rows, never a sum. */
#include "base/gp_base.h"

#include "host_gemm.h"

#include "numeric.h"

#include <pthread.h>
#include <sched.h>

enum { THREADS_MAX = 16 };
#define THREADED_OVER (64e6) /* multiplications and additions; below, starting threads takes longer */

static const size_t type_size[GEMM_TYPES] = {
    [GEMM_F32] = 4, [GEMM_TF32] = 4, [GEMM_F16] = 2, [GEMM_BF16] = 2, [GEMM_FP8_E4M3] = 1, [GEMM_INT8] = 1};

union word {
    float f;
    uint32_t u; /* of an int32, which wraps */
};

/* Element i, turned into fp32 (INT8: into int32). Device memory holds what other code put there. */
static union word element(const void *p, enum gemm_type type, int64_t i) {
    union word w = {.u = 0};
    uint16_t half = 0;
    int8_t byte = 0;
    size_t size = type_size[type];
    memcpy(size == 4 ? (void *)&w : size == 2 ? (void *)&half : (void *)&byte,
           (const char *)p + i * (int64_t)size, size);
    switch (type) {
    case GEMM_TF32: w.u &= 0xffffe000u; break;
    case GEMM_F16: w.f = num_from_f16(half); break;
    case GEMM_BF16: w.f = num_from_bf16(half); break;
    case GEMM_FP8_E4M3: w.f = num_from_e4m3((uint8_t)byte); break;
    case GEMM_INT8: w.u = (uint32_t)byte; break;
    default: break;
    }
    return w;
}

/* c[0..n) += over k of a[k] * b[k][0..n): each element's additions run with k rising. */
static void row_times(union word *restrict c, const union word *restrict a,
                      const union word *restrict b, int k_n, int n) {
    int k = 0;
    for (; k + 4 <= k_n; k += 4) {
        float a0 = a[k].f, a1 = a[k + 1].f, a2 = a[k + 2].f, a3 = a[k + 3].f;
        const union word *b0 = b + (int64_t)k * n;
        for (int j = 0; j < n; j++)
            c[j].f = (((c[j].f + a0 * b0[j].f) + a1 * b0[n + j].f) + a2 * b0[2 * n + j].f) +
                     a3 * b0[3 * n + j].f;
    }
    for (; k < k_n; k++) {
        float a0 = a[k].f;
        for (int j = 0; j < n; j++) c[j].f = c[j].f + a0 * b[(int64_t)k * n + j].f;
    }
}

static void row_times_int(union word *restrict c, const union word *restrict a,
                          const union word *restrict b, int k_n, int n) {
    for (int k = 0; k < k_n; k++)
        for (int j = 0; j < n; j++) c[j].u += a[k].u * b[(int64_t)k * n + j].u;
}

/* One matrix of the batch; b: op(B), k x n, as 4-byte elements. */
struct work {
    const struct gemm_args *g;
    const void *a;
    const union word *b;
    void *c;
    int from, to; /* rows */
    union word *row; /* k of A, then n of C */
    pthread_t thread;
};

static void one_row(struct work *w, int i) {
    const struct gemm_args *g = w->g;
    union word *a = w->row, *c = w->row + g->k;
    int64_t at = (int64_t)i * g->n;
    bool half = g->out_same;
    for (int k = 0; k < g->k; k++)
        a[k] = element(w->a, g->type, g->trans_a ? (int64_t)k * g->m + i : (int64_t)i * g->k + k);
    for (int j = 0; j < g->n; j++)
        c[j] = !g->accumulate ? (union word){.u = 0} : element(w->c, half ? g->type : GEMM_F32, at + j);
    if (g->type == GEMM_INT8) row_times_int(c, a, w->b, g->k, g->n);
    else row_times(c, a, w->b, g->k, g->n);
    for (int j = 0; half && j < g->n; j++) {
        uint16_t h = g->type == GEMM_F16 ? num_to_f16(c[j].f) : num_to_bf16(c[j].f);
        memcpy((char *)w->c + (at + j) * 2, &h, sizeof h);
    }
    if (!half) memcpy((char *)w->c + at * 4, c, (size_t)g->n * sizeof *c);
}

static void *rows_main(void *arg) {
    struct work *w = arg;
    for (int i = w->from; i < w->to; i++) one_row(w, i);
    return NULL;
}

static int threads_for(const struct gemm_args *g) {
    cpu_set_t cpus;
    if (2.0 * g->m * g->n * g->k < THREADED_OVER || sched_getaffinity(0, sizeof cpus, &cpus)) return 1;
    return GP_MAX(1, GP_MIN(GP_MIN(CPU_COUNT(&cpus), THREADS_MAX), g->m));
}

static void multiply(struct work *all, int threads, const void *a, const union word *b, void *c) {
    const struct gemm_args *g = all->g;
    bool started[THREADS_MAX] = {false};
    for (int t = 0; t < threads; t++) {
        struct work *w = &all[t];
        w->a = a;
        w->b = b;
        w->c = c;
        w->from = (int)((int64_t)g->m * t / threads);
        w->to = (int)((int64_t)g->m * (t + 1) / threads);
        started[t] = t > 0 && pthread_create(&w->thread, NULL, rows_main, w) == 0;
    }
    for (int t = 0; t < threads; t++) {
        if (started[t]) pthread_join(all[t].thread, NULL);
        else rows_main(&all[t]);
    }
}

static int check(const struct gemm_args *g, struct gp_error *err) {
    if ((unsigned)g->type >= GEMM_TYPES || g->m < 1 || g->n < 1 || g->k < 1 || g->batch < 1)
        return gp_fail(err, GP_EINTERNAL, "a matrix product of type %d, %d x %d x %d, batch %d",
                       (int)g->type, g->m, g->n, g->k, g->batch);
    if (g->out_same && g->type != GEMM_F16 && g->type != GEMM_BF16)
        return gp_fail(err, GP_EENV, "only fp16 and bf16 products give their own type");
    return 0;
}

int host_gemm_run(const struct gemm_args *g, struct host_scratch *scratch, struct gp_error *err) {
    int rc = check(g, err);
    if (rc < 0) return rc;
    int threads = threads_for(g);
    size_t bn = (size_t)g->k * (size_t)g->n, row = (size_t)g->k + (size_t)g->n;
    size_t need = (bn + row * (size_t)threads) * 4;
    if (scratch->bytes < need) {
        scratch->p = xrealloc(scratch->p, need);
        scratch->bytes = need;
    }
    union word *b = scratch->p;
    struct work all[THREADS_MAX] = {{.g = g}};
    for (int t = 0; t < threads; t++) all[t] = (struct work){.g = g, .row = b + bn + row * (size_t)t};
    int64_t size = (int64_t)type_size[g->type], c_size = g->out_same ? 2 : 4;
    for (int s = 0; s < g->batch; s++) {
        const char *pb = (const char *)(uintptr_t)g->b + s * g->stride_b * size;
        for (int k = 0; k < g->k; k++)
            for (int j = 0; j < g->n; j++)
                b[(int64_t)k * g->n + j] =
                    element(pb, g->type, g->trans_b ? (int64_t)j * g->k + k : (int64_t)k * g->n + j);
        multiply(all, threads, (const char *)(uintptr_t)g->a + s * g->stride_a * size, b,
                 (char *)(uintptr_t)g->c + s * g->stride_c * c_size);
    }
    return 0;
}
