/* SPDX-License-Identifier: Apache-2.0 */
/* device_ops on NVIDIA's driver API: the primary context, one stream of its own that waits for no
 * other, kernels from the embedded fatbins by name (matrix products: gemm_cuda.c). No call blocks inside the driver
 * behind a kernel: copies and syncs poll. One thread per device; opened in a worker process. */
#include "base/gp_base.h"

#include "device_cuda.h"

#include "base/clock.h"

#include <inttypes.h>
#include <limits.h>
#include <time.h>

enum { STREAM_NON_BLOCKING = 1, STAGING_BYTES = 4 << 20, COPY_LIMIT_MS = 60000 };

int device_fail(struct device *d, cu_result r, struct gp_error *err, const char *what) {
    return cuda_fail(err, r, "gpu %d: %s", d->index, what);
}

void cuda_deadline(struct device *d, int64_t deadline_ms) { d->deadline_ms = deadline_ms; }

int64_t device_deadline(const struct device *d, int64_t limit_ms) {
    int64_t own = clock_deadline(limit_ms);
    return d->deadline_ms ? GP_MIN(own, d->deadline_ms) : own;
}

int device_use(struct device *d, struct gp_error *err) {
    cu_result r = d->cu->context_use(d->ctx);
    return r ? device_fail(d, r, err, "use its context") : 0;
}

/* The newest fatbin that this driver can read; one that lacks this GPU's code gives way to the next. */
static int load_kernels(struct device *d, struct gp_error *err) {
    cu_result last = CU_NO_BINARY;
    int least = INT_MAX;
    for (const struct cuda_fatbin *f = cuda_fatbins; f->cuda; f++) {
        least = GP_MIN(least, f->cuda / 1000);
        if (d->driver / 1000 < f->cuda / 1000) continue;
        last = d->cu->module_load(&d->module, f->image);
        if (last == 0) return 0;
        d->module = NULL;
        if (last == CU_INVALID_IMAGE || last == CU_INVALID_PTX) /* code for another architecture, too */
            last = CU_NO_BINARY;
        if (last != CU_NO_BINARY && last != CU_UNSUPPORTED_PTX) break;
    }
    if (d->driver / 1000 >= least) return device_fail(d, last, err, "load kernels");
    int rc = gp_fail(err, GP_EENV, "agent needs driver >= %s (this one offers CUDA %d.%d)",
                     least >= 13   ? "580"
                     : least == 12 ? "525"
                                   : "450",
                     d->driver / 1000, d->driver % 1000 / 10);
    if (err) {
        err->domain = GP_D_NODE;
        str_put(err->detail, sizeof err->detail, "AGENT_TOO_NEW");
    }
    return rc;
}

static int device_start(struct device *d, struct gp_error *err) {
    const struct cuda_api *cu = d->cu;
    cu_result r = cu->driver_version(&d->driver);
    if (!r) r = cu->device_get(&d->dev, d->index);
    if (r) return device_fail(d, r, err, "open");
    r = cu->context_retain(&d->ctx, d->dev);
    if (r) {
        d->ctx = NULL;
        return device_fail(d, r, err, "create a context");
    }
    int rc = device_use(d, err);
    if (rc == 0 && (r = cu->stream_new(&d->stream, STREAM_NON_BLOCKING))) {
        d->stream = NULL;
        return device_fail(d, r, err, "create a stream");
    }
    return rc < 0 ? rc : load_kernels(d, err);
}

static void cuda_close(struct device *d) {
    if (!d) return;
    bool driver = d->ctx && !d->hung && device_use(d, NULL) == 0;
    gemm_close(d, driver);
    if (driver) {
        for (size_t i = 0; i < d->held.len; i++) d->cu->memory_free(d->held.items[i]);
        measure_close(d);
        if (d->module) d->cu->module_unload(d->module);
        if (d->stream) d->cu->stream_free(d->stream);
        d->cu->context_release(d->dev);
    }
    vec_free(&d->held);
    vec_free(&d->pinned);
    free(d);
}

static int cuda_open(int index, struct device **ret, struct gp_error *err) {
    const struct cuda_api *cu = NULL;
    int rc = cuda_start(&cu, err);
    if (rc < 0) return rc;
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

static int cuda_alloc(struct device *d, size_t bytes, dev_addr *ret, struct gp_error *err) {
    dev_addr p = 0;
    int use = device_use(d, err);
    if (use < 0) return use;
    cu_result r = d->cu->memory_alloc(&p, bytes);
    if (r == CU_OUT_OF_MEMORY) {
        int rc = gp_fail(err, GP_EENV, "gpu %d: out of device memory (%zu bytes requested)", d->index, bytes);
        if (err) str_put(err->detail, sizeof err->detail, "2");
        return rc;
    }
    if (r) return device_fail(d, r, err, "allocate memory");
    vec_push(&d->held, p);
    *ret = p;
    return 0;
}

static void cuda_free(struct device *d, dev_addr p) {
    for (size_t i = 0; i < d->held.len; i++) {
        if (d->held.items[i] != p) continue;
        d->held.items[i] = d->held.items[--d->held.len];
        if (!d->hung && device_use(d, NULL) == 0) d->cu->memory_free(p);
        return;
    }
}

/* Polls, because a waiting driver call cannot be abandoned. Spins for short work, because a sleep takes longer. */
/* The deadline moves by time in which the process did not run, because the GPU may have stood still, too. */
static int cuda_sync(struct device *d, int64_t deadline_ms, struct gp_error *err) {
    int rc = device_use(d, err);
    long pause_us = 20;
    int64_t last_ms = 0;
    for (int polls = 0; rc == 0; polls++) {
        int64_t stood_ms = clock_stood_ms(&last_ms, 0);
        if (deadline_ms != GP_NEVER) deadline_ms += stood_ms;
        cu_result r = d->cu->stream_query(d->stream);
        if (r == 0) return 0;
        if (r != CU_NOT_READY) return device_fail(d, r, err, "run a kernel");
        if (clock_left_ms(deadline_ms) == 0) {
            d->hung = true;
            return gp_fail(err, GP_ETIMEOUT, "gpu %d: its work did not end before the deadline", d->index);
        }
        if (polls < 64) continue;
        struct timespec t = {.tv_nsec = pause_us * 1000};
        nanosleep(&t, NULL);
        pause_us = GP_MIN(pause_us * 2, 2000);
    }
    return rc;
}

int cuda_copy_queue(struct device *d, const struct copy_args *a, struct gp_error *err) {
    int rc = device_use(d, err);
    if (rc < 0) return rc;
    cu_result r = 0;
    if (a->kind == COPY_TO_DEVICE) r = d->cu->copy_to(a->dev, a->host, a->bytes, d->stream);
    else if (a->kind == COPY_FROM_DEVICE) r = d->cu->copy_from(a->host, a->dev, a->bytes, d->stream);
    else r = d->cu->copy_within(a->dev, a->dev_src, a->bytes, d->stream);
    return r ? device_fail(d, r, err, "copy memory") : 0;
}

static bool is_pinned(const struct device *d, const void *p, size_t bytes) {
    for (size_t i = 0; i < d->pinned.len; i++) {
        uintptr_t at = (uintptr_t)d->pinned.items[i].p;
        if ((uintptr_t)p >= at && (uintptr_t)p - at <= d->pinned.items[i].bytes &&
            bytes <= d->pinned.items[i].bytes - ((uintptr_t)p - at))
            return true;
    }
    return false;
}

/* Copies pageable host memory through a page-locked buffer: otherwise the driver blocks until earlier work has
 * ended, without a deadline. */
static int copy_staged(struct device *d, const struct copy_args *a, int64_t deadline_ms, struct gp_error *err) {
    int rc = d->staging ? 0 : cuda_host_alloc(d, STAGING_BYTES, &d->staging, err);
    for (size_t at = 0; rc == 0 && at < a->bytes; at += STAGING_BYTES) {
        struct copy_args part = {.kind = a->kind,
                                 .dev = a->dev + at,
                                 .host = d->staging,
                                 .bytes = GP_MIN(a->bytes - at, (size_t)STAGING_BYTES)};
        if (a->kind == COPY_TO_DEVICE) memcpy(d->staging, (const char *)a->host + at, part.bytes);
        rc = cuda_copy_queue(d, &part, err);
        if (rc == 0) rc = cuda_sync(d, deadline_ms, err);
        if (rc == 0 && a->kind == COPY_FROM_DEVICE) memcpy((char *)a->host + at, d->staging, part.bytes);
    }
    return rc;
}

static int cuda_copy(struct device *d, const struct copy_args *a, struct gp_error *err) {
    int64_t deadline_ms = a->deadline_ms ? a->deadline_ms : device_deadline(d, COPY_LIMIT_MS);
    if (a->kind != COPY_WITHIN && !is_pinned(d, a->host, a->bytes)) return copy_staged(d, a, deadline_ms, err);
    int rc = cuda_copy_queue(d, a, err);
    return rc < 0 ? rc : cuda_sync(d, deadline_ms, err);
}

static int cuda_launch(struct device *d, const struct launch_args *a, struct gp_error *err) {
    enum { ARGS_MAX = 24, BLOCK = 256, GRID_MAX = 1 << 20 };
    cu_function f = NULL;
    int rc = device_use(d, err);
    if (rc < 0) return rc;
    if (a->n_args > ARGS_MAX || d->cu->module_function(&f, d->module, a->kernel))
        return gp_fail(err, GP_EINTERNAL, "gpu %d: unknown kernel '%s'", d->index, a->kernel);
    if (a->items <= 0) return 0;
    long long n = a->items;
    union kernel_arg args[ARGS_MAX];
    void *params[ARGS_MAX + 1] = {&n};
    for (size_t i = 0; i < a->n_args; i++) {
        args[i] = a->args[i];
        params[i + 1] = &args[i];
    }
    unsigned block = a->block ? a->block : BLOCK;
    int64_t grid = a->grid ? a->grid : (n + block - 1) / block;
    cu_result r = d->cu->launch(f, (unsigned)GP_MIN(grid, GRID_MAX), 1, 1, block, 1, 1, 0, d->stream, params, NULL);
    return r ? device_fail(d, r, err, "launch") : 0;
}

int cuda_memory(struct device *d, size_t *ret_free, size_t *ret_total, struct gp_error *err) {
    int rc = device_use(d, err);
    if (rc < 0) return rc;
    cu_result r = d->cu->memory_info(ret_free, ret_total);
    return r ? device_fail(d, r, err, "read its memory size") : 0;
}

const struct device_ops device_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy = cuda_copy,
    .gemm = device_gemm,
    .launch = cuda_launch,
    .sync = cuda_sync,
};
