/* SPDX-License-Identifier: Apache-2.0 */
/* device_ops: the device that a check computes on. Two implementations: `host` (plain C on the CPU, the reference)
 * and `cuda`. Numbers that must be equal on all ranks use + - * / sqrt in fp32 only. */
#ifndef GP_AGENT_DEVICE_H
#define GP_AGENT_DEVICE_H

#include "base/error.h"

/* A device address: for host a plain pointer as an integer, for cuda a CUdeviceptr. 0: none. */
typedef uint64_t dev_addr;

struct device; /* each implementation's own; used by the one thread that opened it */

enum copy_kind { COPY_TO_DEVICE, COPY_FROM_DEVICE, COPY_WITHIN };

struct copy_args {
    enum copy_kind kind;
    dev_addr dev;     /* destination of TO and WITHIN, source of FROM */
    dev_addr dev_src; /* source of WITHIN */
    void *host;       /* other end of TO (only read) and FROM */
    size_t bytes;
    int64_t deadline_ms; /* monotonic: give up then; 0: a minute after the call */
};

enum gemm_type { GEMM_F32 = 0, GEMM_TF32, GEMM_F16, GEMM_BF16, GEMM_FP8_E4M3, GEMM_INT8, GEMM_TYPES };

/* C = op(A) * op(B), or C += with `accumulate`; row-major, dense (leading dimension = columns).
 * op(A) is m x k, op(B) is k x n, C is m x n and always fp32 (INT8: int32). `batch` of them, each
 * `stride_*` ELEMENTS apart (0 with batch 1). A and B hold bit patterns of the type (TF32: of fp32, without its low
 * 13 bits; FP8: E4M3, one byte). The host device sums over k in rising order from 0 (or from C), one fp32 addition
 * at a time: its result is the reference. Another device may add in any order and round in between, unless in_order
 * asks for the reference's bits. */
struct gemm_args {
    enum gemm_type type;
    int m, n, k, batch; /* batch >= 1 */
    dev_addr a, b, c;
    bool trans_a, trans_b, accumulate;
    /* C has the type of A and B (F16, BF16), or bf16 (FP8), rounded once at the end, instead of fp32 */
    bool out_same;
    bool in_order; /* F32 only: bit for bit the host's result; slow */
    int64_t stride_a, stride_b, stride_c;
    /* cuda: the first product of a shape tries the library's algorithms and keeps the fastest: for rates. Else the
     * library's own first choice, which is equal on all GPUs of a kind, so that their bits can be compared. */
    bool fastest;
};

/* One 8-byte argument of a kernel; a kernel reads the member it declares (little endian, so a pointer
 * to this union is a pointer to any of them). Zero-initialise. */
union kernel_arg {
    dev_addr p;
    int64_t i;
    uint64_t u;
    int32_t i32;
    float f;
};

/* kernel(n = items, args[0], args[1], ...): item i in [0, n) may be done in any order and by any
 * thread; items write disjoint memory, no atomics, so the result does not depend on the shape.
 * A CUDA kernel of that name is  extern "C" __global__ void NAME(long long n, arg0, arg1, ...). */
struct launch_args {
    const char *kernel;
    int64_t items;
    unsigned block; /* threads per block; 0: the device's choice. Host ignores it */
    unsigned grid;  /* blocks; 0: enough for one thread per item. Host ignores it */
    const union kernel_arg *args;
    size_t n_args;
};

struct device_ops {
    const char *name; /* "host", "cuda" */
    /* index: which GPU (host: ignored, 0). Blocks for the driver's start. -GP_EENV when there is none. */
    int (*open)(int index, struct device **ret, struct gp_error *err);
    void (*close)(struct device *d); /* NULL is fine; frees everything still allocated */
    /* Memory, 256-byte aligned, contents undefined. -GP_EENV "out of device memory" with the size. */
    int (*alloc)(struct device *d, size_t bytes, dev_addr *ret, struct gp_error *err);
    void (*free)(struct device *d, dev_addr p); /* 0 is fine */
    /* Ordered after earlier launches and returns their faults too; has finished when it returns. -GP_ETIMEOUT when
     * the deadline passes. */
    int (*copy)(struct device *d, const struct copy_args *a, struct gp_error *err);
    /* -GP_EENV for a type that this device lacks. May return before it is done. */
    int (*gemm)(struct device *d, const struct gemm_args *a, struct gp_error *err);
    /* -GP_EINTERNAL for an unknown kernel name. May return before it is done. */
    int (*launch)(struct device *d, const struct launch_args *a, struct gp_error *err);
    /* Waits for all queued work; returns faults of earlier launches. deadline: monotonic ms; -GP_ETIMEOUT when it
     * passes (the device must then not be used again). */
    int (*sync)(struct device *d, int64_t deadline_ms, struct gp_error *err);
};

extern const struct device_ops device_host;
extern const struct device_ops device_cuda; /* only in gpuprov-agent-cuda */

#endif
