/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver's rows for kernels/memory.cu. */
#include "kernels.h"
#include "validate/agent/kernels/memory.h"

ITEMS(gp_mem_fill, ku64 *, ki64, int, ku64)
ITEMS(gp_mem_verify, const ku64 *, ki64, int, ku64, struct mem_found *)

static void cost_words(void **p, struct kernel_cost *ret)
{
    ret->amount[WORK_MEMORY] = 8.0 * (double)ARG(ki64, 2);
}

const struct standin_kernel kernels_memory[] = {
    {ROW(gp_mem_fill), .cost = cost_words},
    {ROW(gp_mem_verify), .cost = cost_words},
    {.name = NULL},
};
