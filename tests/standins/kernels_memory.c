/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver's rows for kernels/memory.cu and stream.cu. */
#include "kernels.h"
#include "validate/agent/cuda/kernels/memory.h"

ITEMS(gp_mem_fill, ku64 *, ki64, int, ku64, ku64)
ITEMS(gp_mem_verify, const ku64 *, ki64, int, ku64, ku64, struct mem_log *, ku64 *)
ITEMS(gp_mem_invert, ku64 *, ki64, int, ku64, ku64, int, struct mem_log *, ku64 *)
ITEMS(gp_stream_copy, ku64 *, const ku64 *, ki64, int)
ITEMS(gp_stream_read, const ku64 *, ki64, int, ku64 *)

static void cost_words(void **p, struct kernel_cost *ret) { ret->amount[WORK_MEMORY] = 8.0 * (double)ARG(ki64, 2); }

static void cost_words_twice(void **p, struct kernel_cost *ret) {
    ret->amount[WORK_MEMORY] = 16.0 * (double)ARG(ki64, 2);
}

static void cost_copy(void **p, struct kernel_cost *ret) {
    ret->amount[WORK_MEMORY] = 16.0 * (double)ARG(ki64, 3);
    ret->out = ARG(void *, 1);
    ret->out_elements = (size_t)ARG(ki64, 3);
    ret->out_size = sizeof(ku64);
}

const struct standin_kernel kernels_memory[] = {
    {ROW(gp_mem_fill), .cost = cost_words},         {ROW(gp_mem_verify), .cost = cost_words},
    {ROW(gp_mem_invert), .cost = cost_words_twice}, {ROW(gp_stream_copy), .cost = cost_copy},
    {ROW(gp_stream_read), .cost = cost_words},      {.name = NULL},
};
