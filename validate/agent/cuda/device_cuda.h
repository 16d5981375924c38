/* SPDX-License-Identifier: Apache-2.0 */
/* An opened CUDA device, for the files that implement it: device_cuda.c (device_ops),
 * measure_cuda.c (marks, page-locked memory, other GPUs), gemm_cuda.c (matrix products). Checks use
 * cuda.h only. */
#ifndef GP_AGENT_DEVICE_CUDA_H
#define GP_AGENT_DEVICE_CUDA_H

#include "cuda.h"

#include "base/vec.h"

struct pinned {
    void *p;
    size_t bytes;
};

struct gemm_state; /* gemm_cuda.c's */

struct device {
    const struct cuda_api *cu;
    cu_device dev;
    cu_context ctx;
    cu_module module;
    cu_stream stream;
    int index, driver;
    int64_t deadline_ms; /* cuda_deadline */
    bool hung;           /* a wait timed out: the driver is not called again, because it would block */
    VEC_OF(dev_addr) held;
    VEC_OF(struct pinned) pinned;
    void *staging; /* page-locked, for copies from and to other host memory; made at the first */
    cu_event marks[CUDA_MARKS];
    struct gemm_state *gemm; /* made at the first product */
};

int device_fail(struct device *d, cu_result r, struct gp_error *err, const char *what);
/* In limit_ms, or at the check's deadline if that comes first. */
int64_t device_deadline(const struct device *d, int64_t limit_ms);
/* Makes its context this thread's: before every call that uses the current one. */
int device_use(struct device *d, struct gp_error *err);
/* Frees the memory and events of measure_cuda.c. The device's context must be the current one. */
void measure_close(struct device *d);
/* device_ops.gemm. */
int device_gemm(struct device *d, const struct gemm_args *a, struct gp_error *err);
/* Frees the state of gemm_cuda.c; driver: also its memory in the driver and on the GPU. */
void gemm_close(struct device *d, bool driver);

#endif
