/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products in plain C: operands are turned into fp32 (int32), each element of C is one sum with k
 * rising, one rounded product and one rounded addition at a time. Threads share out rows, never a sum. */
#include "base/gp_base.h"

#include "host_gemm.h"

#include "numeric.h"
#include "wide.h"

#include <pthread.h>
#include <sched.h>

enum { THREADS_MAX = 16 };
#define THREADED_OVER (64e6) /* multiplications and additions; below, starting threads takes longer */

static const size_t type_size[GEMM_TYPES] = {
    [GEMM_F32] = 4, [GEMM_TF32] = 4, [GEMM_F16] = 2, [GEMM_BF16] = 2, [GEMM_FP8_E4M3] = 1, [GEMM_INT8] = 1};

union word {
    float f;
    uint32_t u;               /* of an int32, which wraps */
} __attribute__((may_alias)); /* device memory was written as other types */

typedef uint16_t __attribute__((may_alias)) half_word;

/* n elements, `step` apart in each, turned into fp32 (INT8: into int32). */
static void convert(union word *restrict to, int64_t to_step, const void *from, int64_t from_step, enum gemm_type type,
                    int64_t n) {
    const half_word *half = from;
    const uint8_t *byte = from;
    const union word *word = from;
    switch (type) {
    case GEMM_TF32:
        for (int64_t i = 0; i < n; i++) to[i * to_step].u = word[i * from_step].u & 0xffffe000u;
        break;
    case GEMM_F16:
        for (int64_t i = 0; i < n; i++) to[i * to_step].f = num_from_f16(half[i * from_step]);
        break;
    case GEMM_BF16:
        for (int64_t i = 0; i < n; i++) to[i * to_step].f = num_from_bf16(half[i * from_step]);
        break;
    case GEMM_FP8_E4M3:
        for (int64_t i = 0; i < n; i++) to[i * to_step].f = num_from_e4m3(byte[i * from_step]);
        break;
    case GEMM_INT8:
        for (int64_t i = 0; i < n; i++) to[i * to_step].u = (uint32_t)(int8_t)byte[i * from_step];
        break;
    default:
        for (int64_t i = 0; i < n; i++) to[i * to_step] = word[i * from_step];
    }
}

/* c[0..n) += over k of a[k] * b[k][0..n): each element's additions run with k rising. A function of its own, so that
 * the compiler sees plain floats that do not overlap. */
static HOST_WIDE void row_times(float *restrict c, const float *restrict a, const float *restrict b, int k_n, int n) {
    int k = 0;
    for (; k + 4 <= k_n; k += 4) {
        float a0 = a[k], a1 = a[k + 1], a2 = a[k + 2], a3 = a[k + 3];
        const float *b0 = b + (int64_t)k * n;
        for (int j = 0; j < n; j++)
            c[j] = (((c[j] + a0 * b0[j]) + a1 * b0[n + j]) + a2 * b0[2 * n + j]) + a3 * b0[3 * n + j];
    }
    for (; k < k_n; k++) {
        float a0 = a[k];
        for (int j = 0; j < n; j++) c[j] = c[j] + a0 * b[(int64_t)k * n + j];
    }
}

static HOST_WIDE void row_times_int(uint32_t *restrict c, const uint32_t *restrict a, const uint32_t *restrict b,
                                    int k_n, int n) {
    for (int k = 0; k < k_n; k++)
        for (int j = 0; j < n; j++) c[j] += a[k] * b[(int64_t)k * n + j];
}

/* One matrix of the batch; b: op(B), k x n, as 4-byte elements. */
struct work {
    const struct gemm_args *g;
    const void *a;
    const union word *b;
    void *c;
    int from, to;    /* rows */
    union word *row; /* k of A, then n of C */
    pthread_t thread;
};

static void one_row(struct work *w, int i) {
    const struct gemm_args *g = w->g;
    int64_t at = (int64_t)i * g->n, size = (int64_t)type_size[g->type];
    bool half = g->out_same;
    const union word *a = (const union word *)w->a + (int64_t)i * g->k;
    union word *c = half ? w->row + g->k : (union word *)w->c + at;
    if (g->trans_a || g->type != GEMM_F32) {
        convert(w->row, 1, (const char *)w->a + (g->trans_a ? i : (int64_t)i * g->k) * size, g->trans_a ? g->m : 1,
                g->type, g->k);
        a = w->row;
    }
    if (!g->accumulate) memset(c, 0, (size_t)g->n * sizeof *c);
    else if (half) convert(c, 1, (const half_word *)w->c + at, 1, g->type == GEMM_F16 ? GEMM_F16 : GEMM_BF16, g->n);
    if (g->type == GEMM_INT8) row_times_int(&c->u, &a->u, &w->b->u, g->k, g->n);
    else row_times(&c->f, &a->f, &w->b->f, g->k, g->n);
    for (int j = 0; half && j < g->n; j++)
        ((half_word *)w->c)[at + j] = g->type == GEMM_F16 ? num_to_f16(c[j].f) : num_to_bf16(c[j].f);
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
        return gp_fail(err, GP_EINTERNAL, "unsupported matrix product: type %d, %d x %d x %d, batch %d", (int)g->type,
                       g->m, g->n, g->k, g->batch);
    if (g->out_same && g->type != GEMM_F16 && g->type != GEMM_BF16 && g->type != GEMM_FP8_E4M3)
        return gp_fail(err, GP_EENV, "only products of 8 and 16 bits, except int8, have 16-bit results");
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
    union word *own = scratch->p;
    struct work all[THREADS_MAX] = {{.g = g}};
    for (int t = 0; t < threads; t++) all[t] = (struct work){.g = g, .row = own + bn + row * (size_t)t};
    int64_t size = (int64_t)type_size[g->type], c_size = g->out_same ? 2 : 4;
    for (int s = 0; s < g->batch; s++) {
        const char *pb = (const char *)(uintptr_t)g->b + s * g->stride_b * size;
        bool as_it_lies = g->type == GEMM_F32 && !g->trans_b;
        for (int r = 0; g->trans_b && r < g->n; r++)
            convert(own + r, g->n, pb + (int64_t)r * g->k * size, 1, g->type, g->k);
        if (!g->trans_b && !as_it_lies) convert(own, 1, pb, 1, g->type, (int64_t)bn);
        multiply(all, threads, (const char *)(uintptr_t)g->a + s * g->stride_a * size,
                 as_it_lies ? (const union word *)(const void *)pb : own,
                 (char *)(uintptr_t)g->c + s * g->stride_c * c_size);
    }
    return 0;
}
