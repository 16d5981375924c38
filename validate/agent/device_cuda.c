/* SPDX-License-Identifier: Apache-2.0 */
/* device_ops on NVIDIA's driver API: the primary context, the default stream, kernels from the
 * embedded fatbins by name. gemm is our own fp32 kernel in the host's order; other types are not
 * there. One thread per device; opened in a worker process. */
#include "base/gp_base.h"

#include "cuda.h"

#include "base/clock.h"
#include "base/vec.h"

#include <inttypes.h>
#include <limits.h>
#include <time.h>

struct device {
    const struct cuda_api *cu;
    cu_device dev;
    cu_context ctx;
    cu_module module;
    int index, driver;
    VEC_OF(dev_addr) held;
};

static int device_fail(struct device *d, cu_result r, struct gp_error *err, const char *what)
{
    return cuda_fail(err, r, "gpu %d: %s", d->index, what);
}

/* The newest fatbin that this driver can read; one that lacks this GPU's code gives way to the next. */
static int load_kernels(struct device *d, struct gp_error *err)
{
    cu_result last = CU_NO_BINARY;
    int least = INT_MAX;
    for (const struct cuda_fatbin *f = cuda_fatbins; f->cuda; f++) {
        least = GP_MIN(least, f->cuda / 1000);
        if (d->driver / 1000 < f->cuda / 1000)
            continue;
        last = d->cu->module_load(&d->module, f->image);
        if (last == 0)
            return 0;
        d->module = NULL;
        if (last != CU_NO_BINARY && last != CU_INVALID_IMAGE && last != CU_UNSUPPORTED_PTX)
            break;
    }
    if (d->driver / 1000 >= least)
        return device_fail(d, last, err, "load kernels");
    int rc = gp_fail(err, GP_EENV, "agent needs driver >= %s (this one offers CUDA %d.%d)",
                     least >= 13 ? "580" : least == 12 ? "525" : "450", d->driver / 1000,
                     d->driver % 1000 / 10);
    if (err) {
        err->domain = GP_D_NODE;
        str_put(err->detail, sizeof err->detail, "AGENT_TOO_NEW");
    }
    return rc;
}

static int device_start(struct device *d, struct gp_error *err)
{
    const struct cuda_api *cu = d->cu;
    cu_result r = cu->driver_version(&d->driver);
    if (!r)
        r = cu->device_get(&d->dev, d->index);
    if (r)
        return device_fail(d, r, err, "open");
    r = cu->context_retain(&d->ctx, d->dev);
    if (r) {
        d->ctx = NULL;
        return device_fail(d, r, err, "make a context");
    }
    r = cu->context_use(d->ctx);
    return r ? device_fail(d, r, err, "use its context") : load_kernels(d, err);
}

static void cuda_close(struct device *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->held.len; i++)
        d->cu->memory_free(d->held.items[i]);
    vec_free(&d->held);
    if (d->module)
        d->cu->module_unload(d->module);
    if (d->ctx)
        d->cu->context_release(d->dev);
    free(d);
}

static int cuda_open(int index, struct device **ret, struct gp_error *err)
{
    const struct cuda_api *cu = NULL;
    int rc = cuda_start(&cu, err);
    if (rc < 0)
        return rc;
    struct device *d = xcalloc(1, sizeof *d);
    d->cu = cu;
    d->index = index;
    rc = device_start(d, err);
    if (rc < 0) {
        cuda_close(d);
        return rc;
    }
    *ret = d;
    return 0;
}

static int cuda_alloc(struct device *d, size_t bytes, dev_addr *ret, struct gp_error *err)
{
    dev_addr p = 0;
    cu_result r = d->cu->memory_alloc(&p, bytes);
    if (r == CU_OUT_OF_MEMORY) {
        int rc = gp_fail(err, GP_EENV, "gpu %d: out of device memory (%zu bytes asked for)", d->index,
                         bytes);
        if (err)
            str_put(err->detail, sizeof err->detail, "2");
        return rc;
    }
    if (r)
        return device_fail(d, r, err, "allocate memory");
    vec_push(&d->held, p);
    *ret = p;
    return 0;
}

static void cuda_free(struct device *d, dev_addr p)
{
    for (size_t i = 0; i < d->held.len; i++) {
        if (d->held.items[i] != p)
            continue;
        d->held.items[i] = d->held.items[--d->held.len];
        d->cu->memory_free(p);
        return;
    }
}

static int cuda_copy(struct device *d, const struct copy_args *a, struct gp_error *err)
{
    cu_result r = 0;
    if (a->kind == COPY_TO_DEVICE)
        r = d->cu->copy_to(a->dev, a->host, a->bytes);
    else if (a->kind == COPY_FROM_DEVICE)
        r = d->cu->copy_from(a->host, a->dev, a->bytes);
    else
        r = d->cu->copy_within(a->dev, a->dev_src, a->bytes);
    return r ? device_fail(d, r, err, "copy") : 0;
}

static int cuda_launch(struct device *d, const struct launch_args *a, struct gp_error *err)
{
    enum { ARGS_MAX = 24, BLOCK = 256, GRID_MAX = 1 << 20 };
    cu_function f = NULL;
    if (a->n_args > ARGS_MAX || d->cu->module_function(&f, d->module, a->kernel))
        return gp_fail(err, GP_EINTERNAL, "gpu %d: no kernel is called '%s'", d->index, a->kernel);
    if (a->items <= 0)
        return 0;
    long long n = a->items;
    union kernel_arg args[ARGS_MAX];
    void *params[ARGS_MAX + 1] = {&n};
    for (size_t i = 0; i < a->n_args; i++) {
        args[i] = a->args[i];
        params[i + 1] = &args[i];
    }
    unsigned block = a->block ? a->block : BLOCK;
    int64_t grid = a->grid ? a->grid : (n + block - 1) / block;
    cu_result r = d->cu->launch(f, (unsigned)GP_MIN(grid, GRID_MAX), 1, 1, block, 1, 1, 0, NULL,
                                params, NULL);
    return r ? device_fail(d, r, err, "launch") : 0;
}

static int cuda_gemm(struct device *d, const struct gemm_args *a, struct gp_error *err)
{
    if (a->type != GEMM_F32)
        return gp_fail(err, GP_EENV, "gpu %d: this agent multiplies matrices in fp32 only", d->index);
    union kernel_arg args[10] = {{.p = a->a},
                                 {.p = a->b},
                                 {.p = a->c},
                                 {.i32 = a->m},
                                 {.i32 = a->n},
                                 {.i32 = a->k},
                                 {.i32 = (a->trans_a ? 1 : 0) | (a->trans_b ? 2 : 0) |
                                         (a->accumulate ? 4 : 0)},
                                 {.i = a->stride_a},
                                 {.i = a->stride_b},
                                 {.i = a->stride_c}};
    struct launch_args l = {.kernel = "gp_gemm_f32",
                            .items = (int64_t)a->m * a->n * a->batch,
                            .args = args,
                            .n_args = GP_ARRAY_LEN(args)};
    return cuda_launch(d, &l, err);
}

static int cuda_sync(struct device *d, int64_t deadline_ms, struct gp_error *err)
{
    for (long pause_us = 20;; pause_us = GP_MIN(pause_us * 2, 2000)) {
        cu_result r = d->cu->stream_query(NULL);
        if (r == 0)
            return 0;
        if (r != CU_NOT_READY)
            return device_fail(d, r, err, "run a kernel");
        if (clock_left_ms(deadline_ms) == 0)
            return gp_fail(err, GP_ETIMEOUT, "gpu %d: its work had not ended at the deadline", d->index);
        struct timespec t = {.tv_nsec = pause_us * 1000};
        nanosleep(&t, NULL);
    }
}

int cuda_memory(struct device *d, size_t *ret_free, size_t *ret_total, struct gp_error *err)
{
    cu_result r = d->cu->memory_info(ret_free, ret_total);
    return r ? device_fail(d, r, err, "ask for its memory") : 0;
}

const struct device_ops device_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy = cuda_copy,
    .gemm = cuda_gemm,
    .launch = cuda_launch,
    .sync = cuda_sync,
};
