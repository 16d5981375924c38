/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel of the stand-in driver: one call of step is one thread of one block. */
#ifndef GP_STANDIN_KERNELS_TRAIN_H
#define GP_STANDIN_KERNELS_TRAIN_H

struct standin_kernel {
    const char *name; /* NULL ends */
    void (*step)(void **params);
};
extern const struct standin_kernel train_kernels[];

#endif
