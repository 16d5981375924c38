/* SPDX-License-Identifier: Apache-2.0 */
/* The host device: plain C, all work done when a call returns. Its sums have one stated order (host_gemm.c,
 * host_kernels.c), so it is the reference for other devices. One thread per device. */
#include "base/gp_base.h"

#include "device.h"
#include "host_gemm.h"
#include "host_kernels.h"

#include <errno.h>
#include <stdalign.h>

struct host_block {
    struct host_block *next;
    dev_addr p;
};
struct device {
    struct host_block *blocks;
    struct host_scratch scratch;
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
    free(d->scratch.p);
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

static int host_gemm(struct device *d, const struct gemm_args *a, struct gp_error *err) {
    return host_gemm_run(a, &d->scratch, err);
}

static int host_launch(struct device *d, const struct launch_args *a, struct gp_error *err) {
    (void)d;
    for (const struct host_kernel *k = host_kernels; k->name != NULL; k++) {
        if (strcmp(k->name, a->kernel) != 0) continue;
        if (a->n_args != k->n_args)
            return gp_fail(err, GP_EINTERNAL, "kernel '%s' takes %zu arguments, not %zu", k->name, k->n_args,
                           a->n_args);
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
