/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products on the CPU, for the host device: the reference. */
#ifndef GP_AGENT_HOST_GEMM_H
#define GP_AGENT_HOST_GEMM_H

#include "device.h"

/* Kept between calls; the owner frees p. */
struct host_scratch {
    void *p;
    size_t bytes;
};

/* As device_ops.gemm, addresses being pointers. Large products use several threads; each element is
 * summed by one of them, so their number does not change the result. */
int host_gemm_run(const struct gemm_args *g, struct host_scratch *scratch, struct gp_error *err);

#endif
