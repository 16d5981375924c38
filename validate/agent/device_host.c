/* SPDX-License-Identifier: Apache-2.0 */
/* The host device: plain C, one thread, everything done when a call returns. Its sums run in one
 * stated order (k rising), so it is the reference that other devices are judged against. */
#include "base/gp_base.h"

#include "device.h"
#include "host_kernels.h"

#include <errno.h>
#include <stdalign.h>

struct host_block {
    struct host_block *next;
    dev_addr p;
};
struct device {
    struct host_block *blocks;
    float *scratch; /* a transposed operand */
    size_t scratch_n;
};

static void *ptr(dev_addr p) { return (void *)(uintptr_t)p; }

static int host_open(int index, struct device **ret, struct gp_error *err) {
    (void)index;
    (void)err;
    *ret = xcalloc(1, sizeof **ret);
    return 0;
}

static void host_free(struct device *d, dev_addr p) {
    for (struct host_block **b = &d->blocks; p != 0 && *b != NULL; b = &(*b)->next) {
        if ((*b)->p != p) continue;
        struct host_block *gone = *b;
        *b = gone->next;
        free(ptr(p));
        free(gone);
        return;
    }
}

static void host_close(struct device *d) {
    if (d == NULL) return;
    while (d->blocks != NULL) host_free(d, d->blocks->p);
    free(d->scratch);
    free(d);
}

static int host_alloc(struct device *d, size_t bytes, dev_addr *ret, struct gp_error *err) {
    void *p = NULL;
    int r = posix_memalign(&p, 256, GP_MAX(bytes, 1));
    if (r != 0) return gp_fail_errno(err, GP_EENV, r, "out of memory for %zu bytes", bytes);
    struct host_block *b = xmalloc(sizeof *b);
    *b = (struct host_block){.next = d->blocks, .p = (dev_addr)(uintptr_t)p};
    d->blocks = b;
    *ret = b->p;
    return 0;
}

static int host_copy(struct device *d, const struct copy_args *a, struct gp_error *err) {
    (void)d;
    if (a->kind == COPY_TO_DEVICE) memmove(ptr(a->dev), a->host, a->bytes);
    else if (a->kind == COPY_FROM_DEVICE) memmove(a->host, ptr(a->dev), a->bytes);
    else if (a->kind == COPY_WITHIN) memmove(ptr(a->dev), ptr(a->dev_src), a->bytes);
    else return gp_fail(err, GP_EINTERNAL, "unknown kind of copy %d", (int)a->kind);
    return 0;
}

/* c[0..n) += over k of a[k * stride] * b[k][0..n): each element's additions run with k rising. */
static void row_times(float *restrict c, const float *restrict a, int64_t stride,
                      const float *restrict b, int k_n, int n) {
    int k = 0;
    for (; k + 4 <= k_n; k += 4) {
        float a0 = a[k * stride], a1 = a[(k + 1) * stride], a2 = a[(k + 2) * stride],
              a3 = a[(k + 3) * stride];
        const float *b0 = b + (int64_t)k * n;
        for (int j = 0; j < n; j++)
            c[j] = (((c[j] + a0 * b0[j]) + a1 * b0[n + j]) + a2 * b0[2 * n + j]) + a3 * b0[3 * n + j];
    }
    for (; k < k_n; k++) {
        float a0 = a[k * stride];
        for (int j = 0; j < n; j++) c[j] = c[j] + a0 * b[(int64_t)k * n + j];
    }
}

/* dst (cols x rows) = src (rows x cols) turned. */
static void transpose(float *dst, const float *src, int rows, int cols) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) dst[(int64_t)j * rows + i] = src[(int64_t)i * cols + j];
}

static int host_gemm(struct device *d, const struct gemm_args *a, struct gp_error *err) {
    if (a->type != GEMM_F32)
        return gp_fail(err, GP_EENV, "the host device multiplies fp32 matrices only");
    size_t bn = (size_t)a->k * (size_t)a->n;
    if (a->trans_b && d->scratch_n < bn) {
        d->scratch = xrealloc(d->scratch, bn * sizeof *d->scratch);
        d->scratch_n = bn;
    }
    for (int g = 0; g < a->batch; g++) {
        const float *pa = (const float *)ptr(a->a) + g * a->stride_a;
        const float *pb = (const float *)ptr(a->b) + g * a->stride_b;
        float *pc = (float *)ptr(a->c) + g * a->stride_c;
        if (a->trans_b) {
            transpose(d->scratch, pb, a->n, a->k);
            pb = d->scratch;
        }
        if (!a->accumulate) memset(pc, 0, (size_t)a->m * (size_t)a->n * sizeof *pc);
        for (int i = 0; i < a->m; i++)
            row_times(pc + (int64_t)i * a->n, a->trans_a ? pa + i : pa + (int64_t)i * a->k,
                      a->trans_a ? a->m : 1, pb, a->k, a->n);
    }
    return 0;
}

static int host_launch(struct device *d, const struct launch_args *a, struct gp_error *err) {
    (void)d;
    for (const struct host_kernel *k = host_kernels; k->name != NULL; k++) {
        if (strcmp(k->name, a->kernel) != 0) continue;
        if (a->n_args != k->n_args)
            return gp_fail(err, GP_EINTERNAL, "kernel '%s' takes %zu arguments, not %zu", k->name,
                           k->n_args, a->n_args);
        k->run(a->args, a->items);
        return 0;
    }
    return gp_fail(err, GP_EINTERNAL, "the host device has no kernel '%s'", a->kernel);
}

static int host_sync(struct device *d, int64_t deadline_ms, struct gp_error *err) {
    (void)d;
    (void)deadline_ms;
    (void)err;
    return 0;
}

const struct device_ops device_host = {.name = "host",
                                       .open = host_open,
                                       .close = host_close,
                                       .alloc = host_alloc,
                                       .free = host_free,
                                       .copy = host_copy,
                                       .gemm = host_gemm,
                                       .launch = host_launch,
                                       .sync = host_sync};
