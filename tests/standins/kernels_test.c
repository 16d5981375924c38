/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver's rows for kernels_test.cu. */
#include "kernels.h"

BLOCKS(gp_test_sums, const int *, ki64, int *, int *, int *, int *)

static void cost_sums(void **p, struct kernel_cost *ret) {
    ret->amount[WORK_MEMORY] = 4.0 * (double)ARG(ki64, 2);
    ret->out = ARG(int *, 3);
    ret->out_elements = 16;
    ret->out_size = 4;
}

const struct standin_kernel kernels_test[] = {
    {ROW(gp_test_sums), .cost = cost_sums},
    {.name = NULL},
};
