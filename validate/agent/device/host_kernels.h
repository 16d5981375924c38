/* SPDX-License-Identifier: Apache-2.0 */
/* The host device's kernels by name. Contract of each: kernel(items, args...), see device.h; a CUDA
 * kernel of the same name takes the same arguments in the same order. */
#ifndef GP_AGENT_HOST_KERNELS_H
#define GP_AGENT_HOST_KERNELS_H

#include "device.h"

struct host_kernel {
    const char *name; /* NULL ends */
    size_t n_args;
    void (*run)(const union kernel_arg *a, int64_t items);
};
extern const struct host_kernel host_kernels[];

#endif
