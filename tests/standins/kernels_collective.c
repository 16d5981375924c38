/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver's rows for kernels/collective.cu. */
#include "kernels.h"
#include "validate/agent/cuda/kernels/collective.h"

ITEMS(gp_coll_fill, void *, ki64, int, int, int, int, ku64, ki64)
ITEMS(gp_coll_verify, const void *, ki64, int, int, int, int, ku64, ki64, struct coll_found *)

static void cost_elements(void **p, struct kernel_cost *ret) { ret->amount[WORK_MEMORY] = 4.0 * (double)ARG(ki64, 2); }

const struct standin_kernel kernels_collective[] = {
    {ROW(gp_coll_fill), .cost = cost_elements},
    {ROW(gp_coll_verify), .cost = cost_elements},
    {.name = NULL},
};
